//! What can go wrong in the laboratory, in one line each.

use packtrain::advice;
use std::fmt;
use std::io;
use std::time::Duration;

/// A kernel feature the laboratory needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// User namespaces: how an unprivileged user gets network namespaces.
    UserNamespaces,
    /// Network namespaces.
    NetworkNamespaces,
    /// The TUN/TAP driver behind `/dev/net/tun`.
    Tun,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserNamespaces => "user namespaces",
            Self::NetworkNamespaces => "network namespaces",
            Self::Tun => "/dev/net/tun",
        })
    }
}

/// A feature that is not available here, why, and what to do. Displays as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which feature.
    pub feature: Feature,
    /// The error number the kernel gave (`errno`).
    pub errno: i32,
    /// What the user can do about it.
    pub hint: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            feature,
            errno,
            hint,
        } = self;
        let error = io::Error::from_raw_os_error(*errno);
        match advice::on_descriptors(Some(*errno)) {
            "" => write!(f, "{feature} not available: {error}; {hint}"),
            advice => write!(f, "{feature} not available: {error}{advice}"),
        }
    }
}

impl core::error::Error for Missing {}

/// Any failure of the laboratory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LabError {
    /// The kernel refused an operation.
    Os {
        /// The operation, as a system call or netlink message name.
        what: &'static str,
        /// The error number (`errno`).
        errno: i32,
    },
    /// A kernel feature is not available.
    Missing(Missing),
    /// The kernel answered something this code does not understand.
    Answer(&'static str),
    /// A setting is out of its range.
    Setting(&'static str),
    /// Nothing moved for the stall time.
    Stalled {
        /// What waited.
        what: &'static str,
        /// How long it waited.
        after: Duration,
        /// Payload bytes that had got through on that stream.
        bytes: u64,
    },
    /// A transfer was not over within its time limit, though it may have gone on until then.
    TimeLimit {
        /// What was not over.
        what: &'static str,
        /// The limit.
        limit: Duration,
        /// Payload bytes that had got through on that stream.
        bytes: u64,
    },
    /// The caller's stop flag was set.
    Cancelled,
}

impl LabError {
    /// An operating system error from the operation `what`.
    pub(crate) fn os(what: &'static str, error: &io::Error) -> Self {
        // Errors made by std itself (invalid address …) carry no number.
        Self::Os {
            what,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// For `map_err`: wraps an [`io::Error`] with the operation that failed.
    pub(crate) fn from_io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::os(what, &error)
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os { what, errno } => {
                let advice = advice::on_descriptors(Some(*errno));
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "{what}: {error}{advice}")
            }
            Self::Missing(missing) => missing.fmt(f),
            Self::Answer(what) => write!(f, "unexpected answer from the kernel: {what}"),
            Self::Setting(what) => write!(f, "setting out of range: {what}"),
            Self::Stalled { what, after, bytes } => write!(
                f,
                "{what} stalled: nothing for {} ms after {bytes} bytes",
                after.as_millis()
            ),
            Self::TimeLimit { what, limit, bytes } => write!(
                f,
                "{what} was not over after {} ms, its time limit; {bytes} bytes got through",
                limit.as_millis()
            ),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl core::error::Error for LabError {}

impl From<Missing> for LabError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}
