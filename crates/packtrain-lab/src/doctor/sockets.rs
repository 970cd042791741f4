//! Sockets and descriptors that other kinds of port are made of.

use super::finding::Finding;
use super::host::{Host, words};

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    vec![
        packet(host),
        xdp_copy(host),
        xdp_program(host),
        shared_memory(host),
        io_uring(host),
    ]
}

/// The error number of a feature that the kernel is built without.
const fn is_absent(errno: i32) -> bool {
    matches!(
        errno,
        libc::EAFNOSUPPORT | libc::ENOSYS | libc::EPROTONOSUPPORT | libc::EINVAL
    )
}

/// A feature in the namespace that the process was started in, and in one of its own.
fn here_or_inside(
    host: &Host<'_>,
    subject: &'static str,
    here: Result<(), i32>,
    inside: Option<Result<(), i32>>,
    option: &str,
) -> Finding {
    match (here, inside) {
        (Ok(()), Some(Ok(())) | None) => Finding::yes(subject, "tried, and closed again"),
        (_, Some(Ok(()))) => Finding::limited(
            subject,
            "only in a network namespace of its own; elsewhere it needs CAP_NET_RAW",
        )
        .mend(Some(host.privilege())),
        (Err(errno), _) | (Ok(()), Some(Err(errno))) if is_absent(errno) => {
            let detail = format!("{}: the kernel is built without {option}", words(errno));
            Finding::no(subject, detail)
        }
        (Err(errno), _) | (Ok(()), Some(Err(errno))) => {
            Finding::no(subject, words(errno)).mend(Some(host.privilege()))
        }
    }
}

pub(super) fn packet(host: &Host<'_>) -> Finding {
    let trials = host.trials;
    let inside = trials.inside.as_ref().map(|inside| inside.packet);
    here_or_inside(host, "AF_PACKET", trials.packet, inside, "CONFIG_PACKET")
}

pub(super) fn xdp_copy(host: &Host<'_>) -> Finding {
    let trials = host.trials;
    let inside = trials.inside.as_ref().map(|inside| inside.xdp_copy);
    let option = "CONFIG_XDP_SOCKETS";
    here_or_inside(host, "AF_XDP copy mode", trials.xdp, inside, option)
}

/// An AF_XDP socket receives packets only from an XDP program.
pub(super) fn xdp_program(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "XDP programs";
    match host.trials.xdp_program {
        Ok(()) => Finding::yes(SUBJECT, "one was loaded, and removed again"),
        Err(errno) if is_absent(errno) => {
            let detail = format!("{}: the kernel is built without them", words(errno));
            Finding::no(SUBJECT, detail)
        }
        Err(errno) => {
            let detail = format!("{}: they need CAP_BPF and CAP_NET_ADMIN", words(errno));
            Finding::no(SUBJECT, detail).mend(Some(host.privilege()))
        }
    }
}

/// What vhost-user is made of.
pub(super) fn shared_memory(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "shared memory";
    match host.trials.shared_memory {
        Ok(()) => Finding::yes(
            SUBJECT,
            "a memfd was mapped, and a pair of Unix sockets made",
        ),
        // A sandbox filters the calls: no privilege helps.
        Err(errno) => Finding::no(SUBJECT, format!("memfd or Unix sockets: {}", words(errno))),
    }
}

fn io_uring(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "io_uring";
    const SYSCTL: &str = "kernel.io_uring_disabled";
    match host.trials.io_uring {
        Ok(()) => Finding::yes(SUBJECT, "made, and closed again; no port uses it"),
        Err(errno) => {
            let set = host.sysctl(SYSCTL).filter(|value| value != "0");
            let why = match &set {
                Some(value) => format!("{SYSCTL}={value}"),
                None if is_absent(errno) => "the kernel is built without CONFIG_IO_URING".into(),
                None => "a sandbox filters it".into(),
            };
            let detail = format!("{}: {why}; no port uses it", words(errno));
            let mend = set.map(|_| host.set_sysctl(SYSCTL, "0"));
            Finding::no(SUBJECT, detail).mend(mend)
        }
    }
}
