//! The doctor: what this host allows, what each kind of port would do here, and the command that
//! mends each lack.
//!
//! Features are tried ([`Trials`]): a descriptor is opened, a socket bound, a namespace made, and
//! all of it is closed again. The rest is read from the system's files below a root, so that a test
//! can make a tree of its own. Nothing of the host is changed.

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

use std::fmt;
use std::path::Path;

use host::Host;
pub use trials::{Inside, Trials};

/// Whether the host allows something; a greater one is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It works.
    Yes,
    /// It works in part, or slower than on other hosts.
    Limited,
    /// It does not work.
    No,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::Limited => "limited",
            Self::No => "no",
        })
    }
}

/// One feature of the host, or one kind of port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the feature, unique in a report.
    pub subject: &'static str,
    /// Whether it works.
    pub state: State,
    /// What was found, in one line.
    pub detail: String,
    /// The command that mends what is limited or missing; `None` if no command on this host does.
    pub mend: Option<String>,
    /// Whether the laboratory, and so `packtrain demo`, cannot work without it.
    pub needed: bool,
}

impl Finding {
    fn new(subject: &'static str, state: State, detail: impl Into<String>) -> Self {
        Self {
            subject,
            state,
            detail: detail.into(),
            mend: None,
            needed: false,
        }
    }

    fn yes(subject: &'static str, detail: impl Into<String>) -> Self {
        Self::new(subject, State::Yes, detail)
    }

    fn limited(subject: &'static str, detail: impl Into<String>) -> Self {
        Self::new(subject, State::Limited, detail)
    }

    fn no(subject: &'static str, detail: impl Into<String>) -> Self {
        Self::new(subject, State::No, detail)
    }

    /// The command that mends it.
    fn mend(self, mend: Option<String>) -> Self {
        Self { mend, ..self }
    }

    /// Marks it as needed by the laboratory.
    fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }
}

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
        ("ports", ports::findings(&host)),
    ];
    let groups = groups.map(|(name, findings)| Group { name, findings });
    Report {
        groups: groups.into(),
    }
}
