//! Tracing of the probes of a run.

use packtrain::name::Name;
use std::fs;

use super::finding::Finding;
use super::host::Host;

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    vec![probes(), uprobes(host), tracefs(host), bpftrace(host)]
}

fn probes() -> Finding {
    const SUBJECT: &str = "USDT probes";
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        Finding::yes(SUBJECT, "in this program")
    } else {
        Finding::no(SUBJECT, "only on x86-64 and AArch64")
    }
}

/// A tracer attaches to a probe by a breakpoint of the kernel.
fn uprobes(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "uprobes";
    match host.read("sys/bus/event_source/devices/uprobe/type") {
        Some(_) => Finding::yes(SUBJECT, "the kernel has them"),
        None => Finding::no(SUBJECT, "the kernel is built without CONFIG_UPROBE_EVENTS"),
    }
}

fn tracefs(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "tracefs";
    let mounts = host.read("proc/self/mounts").unwrap_or_default();
    let folder = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (folder, kind) = (words.nth(1)?, words.next()?);
        (kind == "tracefs").then_some(folder)
    });
    let Some(folder) = folder else {
        let mount = host.as_root("mount -t tracefs tracefs /sys/kernel/tracing");
        return Finding::no(SUBJECT, "not mounted").mend(Some(mount));
    };
    match fs::read_dir(host.path(folder)) {
        Ok(_) => Finding::yes(SUBJECT, format!("mounted at {folder}")),
        Err(error) => {
            let detail = format!("mounted at {folder}: {error}; tracing needs root");
            Finding::limited(SUBJECT, detail).mend(Some(host.privilege()))
        }
    }
}

fn bpftrace(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "bpftrace";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(SUBJECT));
    let found = places.find(|place| {
        place
            .to_str()
            .is_some_and(|place| host.path(place).is_file())
    });
    match found {
        Some(place) => Finding::yes(SUBJECT, Name::from(place).to_string()),
        None => Finding::no(SUBJECT, "not found in PATH").mend(host.install(SUBJECT)),
    }
}
