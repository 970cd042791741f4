//! Memory for packets.

use super::finding::Finding;
use super::host::Host;

/// Bytes of the huge pages that packets are in.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    vec![available(host), huge_pages(host)]
}

fn available(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "memory";
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    match (host.trials.memory, host.trials.packet_bytes) {
        (Some(bytes), Some(needed)) => {
            let free = mib(bytes);
            let detail = format!(
                "{free} MiB available; packets take at most {} MiB",
                mib(needed)
            );
            if bytes < needed {
                Finding::limited(
                    SUBJECT,
                    detail + ": the system or a control group limits it",
                )
            } else {
                Finding::yes(SUBJECT, detail + " with two queues")
            }
        }
        (Some(bytes), None) => Finding::yes(SUBJECT, format!("{} MiB available", mib(bytes))),
        (None, _) => Finding::limited(SUBJECT, "not known: /proc/meminfo has no MemAvailable"),
    }
}

fn huge_pages(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "huge pages";
    let meminfo = host.read("proc/meminfo").unwrap_or_default();
    let count = |key: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok()
    };
    let (Some(reserved), Some(free)) = (count("HugePages_Total:"), count("HugePages_Free:")) else {
        return Finding::no(SUBJECT, "the kernel is built without CONFIG_HUGETLBFS");
    };
    let detail = format!("{reserved} reserved, {free} free");
    if host.trials.huge_pages {
        return Finding::yes(SUBJECT, detail + "; packets are in them");
    }
    // Frames and the table of packets are two mappings; each is rounded up.
    let wanted = host
        .trials
        .packet_bytes
        .map(|bytes| bytes.div_ceil(HUGE_PAGE_BYTES) + 1);
    let mend = wanted.map(|wanted| {
        let all = reserved - free.min(reserved) + wanted;
        host.set_sysctl("vm.nr_hugepages", &all.to_string())
    });
    Finding::limited(SUBJECT, detail + "; packets are in ordinary pages").mend(mend)
}
