//! What each kind of port would do here.

use packtrain::driver::Features;
use packtrain::limits::QUEUES_MAX;

use super::finding::{Finding, State};
use super::host::Host;
use super::namespaces::of_missing;
use super::{cards, sockets, tun};

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    let in_memory = |kind| match &host.trials.nice_levels {
        Ok(_) => Finding::yes(kind, "a run with it started and ended; needs no privilege"),
        Err(error) => Finding::no(kind, error),
    };
    vec![
        interface(host, "tap"),
        interface(host, "tun"),
        Finding::yes("pcap", "reads and writes capture files; needs no privilege"),
        in_memory("null"),
        in_memory("sim"),
        from_parts("packet", &[sockets::packet(host)]),
        from_parts(
            "xdp",
            &[sockets::xdp_copy(host), sockets::xdp_program(host)],
        ),
        from_parts("vhost-user", &[sockets::shared_memory(host), kvm(host)]),
        from_parts("e1000e", &[cards::iommu(host), cards::vfio(host)]),
        from_parts("virtio", &[cards::iommu(host), cards::vfio(host)]),
        from_parts("vmxnet3", &[cards::iommu(host), cards::vfio(host)]),
    ]
}

/// A TAP or TUN interface in the network namespace that the process was started in.
fn interface(host: &Host<'_>, kind: &'static str) -> Finding {
    let trials = host.trials;
    if let Err(missing) = &trials.tun_flags {
        return of_missing(host, kind, missing, tun::mend(host, missing));
    }
    // An interface that exists and belongs to the user needs no privilege.
    let own = format!(r#"ip tuntap add dev {kind}0 mode {kind} multi_queue user "$USER""#);
    let own = Some(host.as_root(&own));
    let opened = trials.inside.as_ref();
    match (opened.map(|inside| &inside.offloads), trials.admin) {
        (Some(Ok(offloads)), true) => {
            let several = opened.is_some_and(|inside| inside.queues.is_ok());
            let queues = if several { QUEUES_MAX } else { 1 };
            Finding::yes(
                kind,
                format!("at most {queues} queues; {}", listed(*offloads)),
            )
        }
        (Some(Ok(_)), false) => Finding::limited(
            kind,
            "in a network namespace of its own, or an interface that belongs to the user",
        )
        .mend(own),
        (Some(Err(error)), _) => Finding::no(kind, error).mend(Some(host.privilege())),
        (None, true) => Finding::limited(kind, "allowed here, and not tried: no network namespace"),
        (None, false) => {
            Finding::limited(kind, "only an interface that belongs to the user").mend(own)
        }
    }
}

fn listed(offloads: Features) -> String {
    let names: Vec<_> = offloads.names().collect();
    if names.is_empty() {
        "no offloads".to_owned()
    } else {
        format!("offloads: {}", names.join(", "))
    }
}

/// What a guest of QEMU needs for its interrupts. A front end of another kind needs nothing.
fn kvm(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "KVM";
    match host.path("dev/kvm").exists() {
        true => Finding::yes(SUBJECT, "there"),
        false => Finding::limited(
            SUBJECT,
            "no /dev/kvm: give QEMU's virtio-net-pci vectors=0, since QEMU 7.2 without KVM ends by \
             SIGSEGV with MSI-X",
        ),
    }
}

/// A kind of port that these parts of the host are enough for.
fn from_parts(kind: &'static str, parts: &[Finding]) -> Finding {
    let worst = parts.iter().max_by_key(|part| part.state);
    match worst.filter(|part| part.state != State::Yes) {
        Some(part) => {
            let detail = format!("{}: {}", part.subject, part.detail);
            Finding::new(kind, part.state, detail).mend(part.mend.clone())
        }
        None => Finding::yes(kind, "this host allows it"),
    }
}
