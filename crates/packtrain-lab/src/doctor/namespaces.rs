//! User and network namespaces, and the sysctls that forbid them.

use packtrain::advice;

use super::finding::Finding;
use super::host::{Host, words};
use crate::error::Missing;

const USER: &str = "user namespaces";
const NETWORK: &str = "network namespaces";

/// Sysctls with the value that forbids user namespaces to an unprivileged user.
const FORBID: [(&str, &str); 3] = [
    ("user.max_user_namespaces", "0"),
    // Debian and its derivatives.
    ("kernel.unprivileged_userns_clone", "0"),
    // Ubuntu: they are made, and give no privilege.
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
];

pub(super) fn findings(host: &Host<'_>) -> Vec<Finding> {
    let user = user(host);
    let user = match host.trials.user_namespace {
        Some(_) => user.needed(),
        None => user,
    };
    vec![user, network(host).needed()]
}

fn user(host: &Host<'_>) -> Finding {
    let forbidden = forbidden(host);
    match (&host.trials.user_namespace, forbidden) {
        (Some(Ok(())), Some((name, value))) if host.trials.network_namespace.is_err() => {
            let detail = format!("one was made, and {name}={value} leaves it no privilege");
            Finding::limited(USER, detail).mend(allow(host, name))
        }
        (Some(Ok(())), _) => Finding::yes(USER, "one was made: `packtrain demo` needs no root"),
        (Some(Err(missing)), _) => of_missing(host, USER, missing, mend(host, missing)),
        (None, None) => Finding::yes(USER, "not tried: this process needs none"),
        (None, Some((name, value))) => {
            let detail = format!("not needed here; {name}={value} forbids them to other users");
            Finding::limited(USER, detail).mend(allow(host, name))
        }
    }
}

fn network(host: &Host<'_>) -> Finding {
    match &host.trials.network_namespace {
        Ok(()) => Finding::yes(NETWORK, "one was made"),
        Err(missing) => of_missing(host, NETWORK, missing, mend(host, missing)),
    }
}

/// The first sysctl that forbids user namespaces, with its value.
fn forbidden(host: &Host<'_>) -> Option<(&'static str, &'static str)> {
    let mut all = FORBID.into_iter();
    all.find(|(name, value)| host.sysctl(name).as_deref() == Some(value))
}

fn allow(host: &Host<'_>, name: &str) -> Option<String> {
    match name {
        "kernel.unprivileged_userns_clone" => Some(host.set_sysctl(name, "1")),
        "kernel.apparmor_restrict_unprivileged_userns" => Some(host.set_sysctl(name, "0")),
        _ => host.raise_namespaces(name),
    }
}

/// The command for a namespace that was refused.
fn mend(host: &Host<'_>, missing: &Missing) -> Option<String> {
    let forbidden = match host.trials.user_namespace {
        Some(_) => forbidden(host),
        None => None,
    };
    match (missing.errno, forbidden) {
        (_, Some((name, _))) => allow(host, name),
        (libc::ENOSPC | libc::EUSERS, None) => host.raise_namespaces("user.max_net_namespaces"),
        // The kernel is built without them.
        (libc::EINVAL | libc::ENOSYS, None) => None,
        _ => Some(host.privilege()),
    }
}

/// A missing feature, and the command for it. If the command is for this cause alone, it says what
/// the hint says.
pub(super) fn of_missing(
    host: &Host<'_>,
    subject: &'static str,
    missing: &Missing,
    mend: Option<String>,
) -> Finding {
    let advice = advice::on_descriptors(Some(missing.errno));
    if !advice.is_empty() {
        return Finding::no(subject, words(missing.errno) + advice);
    }
    let privilege = host.privilege();
    let detail = match &mend {
        Some(mend) if *mend != privilege => words(missing.errno),
        _ => format!("{}; {}", words(missing.errno), missing.hint),
    };
    Finding::no(subject, detail).mend(mend)
}
