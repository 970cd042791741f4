//! TAP and TUN interfaces, and each of their features.

use packtrain::driver::Features;

use super::finding::Finding;
use super::host::Host;
use super::namespaces::of_missing;
use super::trials::Inside;
use crate::error::{Feature, Missing};

/// The features that a TAP port uses, with their names in `packtrain plan`, and the Linux version
/// that added them.
const OFFLOADS: [(&str, Features, &str); 5] = [
    ("checksums", Features::CSUM, "2.6.27"),
    ("tso4", Features::TSO4, "2.6.27"),
    ("tso6", Features::TSO6, "2.6.27"),
    ("tso-ecn", Features::TSO_ECN, "2.6.27"),
    ("uso", Features::USO, "6.2"),
];

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    let mut findings = vec![device(host).needed(), interfaces(host).needed()];
    match (&host.trials.inside, &host.trials.tun_flags) {
        (Some(inside), Ok(_)) => findings.extend(features(inside)),
        _ => findings.push(Finding::no(
            "TAP features",
            "not tried: no interface in a network namespace",
        )),
    }
    findings.push(napi(host));
    findings
}

fn device(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "/dev/net/tun";
    match &host.trials.tun_flags {
        Ok(_) => Finding::yes(SUBJECT, "opened for reading and writing"),
        Err(missing) => of_missing(host, SUBJECT, missing, mend(host, missing)),
    }
}

/// The command for a device that cannot be opened.
pub(super) fn mend(host: &Host<'_>, missing: &Missing) -> Option<String> {
    let misc = host.read("proc/misc").unwrap_or_default();
    let has_driver = misc.lines().any(|line| line.trim().ends_with(" tun"));
    Some(match missing.errno {
        libc::ENOENT if has_driver => {
            host.as_root("sh -c 'mkdir -p /dev/net && mknod -m 666 /dev/net/tun c 10 200'")
        }
        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOTTY => host.as_root("modprobe tun"),
        libc::EACCES => host.as_root("chmod 666 /dev/net/tun"),
        _ => host.privilege(),
    })
}

/// The check that `packtrain demo` makes first, too.
fn interfaces(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "TAP in a namespace";
    match &host.trials.laboratory {
        Ok(()) => Finding::yes(SUBJECT, "an interface was made"),
        Err(missing) if missing.feature == Feature::Tun && host.trials.tun_flags.is_ok() => {
            of_missing(host, SUBJECT, missing, Some(host.privilege()))
        }
        // A finding of its own has the reason and the command.
        Err(missing) => Finding::no(SUBJECT, format!("it needs {}", missing.feature)),
    }
}

fn features(inside: &Inside) -> Vec<Finding> {
    let queues = match &inside.queues {
        Ok(()) => Finding::yes("several queues", "an interface with two was opened"),
        Err(error) => Finding::no("several queues", error),
    };
    let header = match &inside.header {
        Ok(()) => Finding::yes("virtio-net header", "12 bytes were accepted"),
        Err(error) => Finding::no("virtio-net header", error.to_string()),
    };
    let offloads = OFFLOADS
        .into_iter()
        .map(|(name, feature, since)| match &inside.offloads {
            Ok(offloads) if offloads.contains(feature) => Finding::yes(name, "accepted"),
            Ok(_) => Finding::no(
                name,
                format!("refused: it needs Linux {since}; packtrain does it in software"),
            ),
            Err(error) => Finding::no(name, error),
        });
    [queues, header].into_iter().chain(offloads).collect()
}

fn napi(host: &Host<'_>) -> Finding {
    const SUBJECT: &str = "NAPI of a TAP";
    match host.trials.tun_flags {
        Ok(flags) if flags & libc::IFF_NAPI == 0 => {
            Finding::no(SUBJECT, "napi=threaded of a TAP needs Linux 4.15")
        }
        Ok(flags) if flags & libc::IFF_NAPI_FRAGS == 0 => {
            Finding::limited(SUBJECT, "without fragments, which no port uses")
        }
        Ok(_) => Finding::yes(SUBJECT, "known, for napi=threaded"),
        Err(_) => Finding::no(SUBJECT, "not known without /dev/net/tun"),
    }
}
