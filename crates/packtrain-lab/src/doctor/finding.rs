//! A finding: a feature of the host, whether it works, and what mends it.

use std::fmt;

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
    pub(super) fn new(subject: &'static str, state: State, detail: impl Into<String>) -> Self {
        Self {
            subject,
            state,
            detail: detail.into(),
            mend: None,
            needed: false,
        }
    }

    pub(super) fn yes(subject: &'static str, detail: impl Into<String>) -> Self {
        Self::new(subject, State::Yes, detail)
    }

    pub(super) fn limited(subject: &'static str, detail: impl Into<String>) -> Self {
        Self::new(subject, State::Limited, detail)
    }

    pub(super) fn no(subject: &'static str, detail: impl Into<String>) -> Self {
        Self::new(subject, State::No, detail)
    }

    /// The command that mends it.
    pub(super) fn mend(self, mend: Option<String>) -> Self {
        Self { mend, ..self }
    }

    /// Marks it as needed by the laboratory.
    pub(super) fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }
}
