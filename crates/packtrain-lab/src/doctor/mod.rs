//! The doctor: what this host allows, what each kind of port would do here, and the command that
//! mends each lack.
//!
//! Features are tried ([`Trials`]): a descriptor is opened, a socket bound, a namespace made, and
//! all of it is closed again. The rest is read from the system's files below a root, so that a test
//! can make a tree of its own. Nothing of the host is changed.

mod cards;
mod finding;
mod host;
mod limits;
mod machine;
mod memory;
mod namespaces;
mod ports;
mod sockets;
#[cfg(test)]
mod tests;
mod tracing;
mod trials;
mod tun;

use std::path::Path;

pub use finding::{Finding, State};
use host::Host;
pub use trials::{Inside, Trials};

/// Findings about one part of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The part.
    pub name: &'static str,
    /// At least one.
    pub findings: Vec<Finding>,
}

/// What the host allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The parts of the host, and at the end the kinds of port.
    pub groups: Vec<Group>,
}

impl Report {
    /// All findings, with the names of their groups.
    pub fn findings(&self) -> impl Iterator<Item = (&'static str, &Finding)> {
        self.groups.iter().flat_map(|group| {
            let findings = group.findings.iter();
            findings.map(|finding| (group.name, finding))
        })
    }

    /// The first needed feature that is missing. If there is none, TAP interfaces in namespaces
    /// work, and so does `packtrain demo`.
    #[must_use]
    pub fn missing(&self) -> Option<&Finding> {
        let missing = |one: &&Finding| one.needed && one.state == State::No;
        self.findings().map(|(_, finding)| finding).find(missing)
    }
}

/// Examines this host.
///
/// The process is then in a user namespace if it lacks the privilege to administer networks, so
/// `main` calls it before any thread is started, as [`rootless::enter`](crate::rootless::enter)
/// requires.
#[must_use]
pub fn examine() -> Report {
    report(Path::new("/"), &Trials::run())
}

/// The report for the results of `trials` and the system's files below `root`: `/`, or the tree of
/// a test.
#[must_use]
pub fn report(root: &Path, trials: &Trials) -> Report {
    let host = Host { root, trials };
    let groups = [
        ("namespaces", namespaces::findings(&host)),
        ("TUN/TAP", tun::findings(&host)),
        ("sockets", sockets::findings(&host)),
        ("memory", memory::findings(&host)),
        ("machine", machine::findings(&host)),
        ("limits", limits::findings(&host)),
        ("tracing", tracing::findings(&host)),
        ("cards", cards::findings(&host)),
        ("ports", ports::findings(&host)),
    ];
    let groups = groups.map(|(name, findings)| Group { name, findings });
    Report {
        groups: groups.into(),
    }
}
