//! The errors of the laboratory, each displayed in one line.

use packtrain::advice;
use packtrain::driver::DeviceError;
use packtrain::engine::StartError;
use packtrain::port::{OpenError, OpenErrorKind};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::units::Time;

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
    /// The queueing discipline of a line rate (tc-tbf(8)).
    TokenBucket,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserNamespaces => "user namespaces",
            Self::NetworkNamespaces => "network namespaces",
            Self::Tun => "/dev/net/tun",
            Self::TokenBucket => "the queueing discipline tbf",
        })
    }
}

/// A feature that is not available, why, and what to do. It is displayed in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The feature.
    pub feature: Feature,
    /// The error number of the kernel (`errno`).
    pub errno: i32,
    /// What to do.
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

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A switch: `on` or `off`.
    Switch(bool),
}

impl From<bool> for Value {
    fn from(on: bool) -> Self {
        Self::Switch(on)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
        }
    }
}

/// The operation of [`LabError::Os`] that starts a thread.
pub(crate) const START_THREAD: &str = "start a thread";

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
    /// The kernel's answer has an unknown form.
    Answer(&'static str),
    /// A setting is out of its range.
    Setting(&'static str),
    /// The kernel accepted a setting and has another value in force.
    NotTaken {
        /// The setting.
        what: &'static str,
        /// The requested value.
        wanted: Value,
        /// The value in force.
        found: Value,
        /// Why, and what to do.
        hint: &'static str,
    },
    /// No progress for the stall time.
    Stalled {
        /// The stream that waited.
        what: &'static str,
        /// How long it waited.
        after: Duration,
        /// Payload bytes that had arrived on that stream.
        bytes: u64,
    },
    /// A transfer did not end within its time limit, although it may have made progress.
    TimeLimit {
        /// The transfer.
        what: &'static str,
        /// The limit.
        limit: Duration,
        /// Payload bytes that had arrived on that stream.
        bytes: u64,
    },
    /// The caller's stop flag was set.
    Cancelled,
}

impl LabError {
    /// An operating system error from the operation `what`.
    pub(crate) fn os(what: &'static str, error: &io::Error) -> Self {
        // Errors that std makes itself (invalid address …) have no number.
        Self::Os {
            what,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// The error number of the kernel, of [`LabError::Os`].
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// For `map_err`: wraps an [`io::Error`] with the operation that failed.
    pub(crate) fn from_io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::os(what, &error)
    }

    /// The same for an error of nix.
    pub(crate) fn from_errno(what: &'static str) -> impl Fn(nix::Error) -> Self {
        move |errno| Self::os(what, &errno.into())
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os { what, errno } => {
                let advice = match *errno {
                    errno if *what == START_THREAD => advice::on_threads(Some(errno)),
                    errno => advice::on_descriptors(Some(errno)),
                };
                let error = io::Error::from_raw_os_error(*errno);
                write!(f, "{what}: {error}{advice}")
            }
            Self::Missing(missing) => missing.fmt(f),
            Self::Answer(what) => write!(f, "unexpected answer from the kernel: {what}"),
            Self::Setting(what) => write!(f, "setting out of range: {what}"),
            Self::NotTaken {
                what,
                wanted,
                found,
                hint,
            } => write!(f, "{what} {wanted} did not take, it is {found}: {hint}"),
            Self::Stalled { what, after, bytes } => write!(
                f,
                "{what} stalled: no progress for {} ms after {bytes} bytes",
                after.as_millis()
            ),
            Self::TimeLimit { what, limit, bytes } => write!(
                f,
                "{what} did not end within {} ms, its time limit; {bytes} bytes arrived",
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

/// Why a tool did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolError {
    /// An option or a combination of options is wrong.
    Usage(String),
    /// A privilege, a kernel feature or a program is missing.
    Missing(String),
    /// A device or a socket failed while running.
    Failed(String),
    /// A check failed: packets that are not accounted for, wrong bytes.
    Check(String),
    /// The caller stopped it before it measured anything.
    Cancelled,
    /// The caller stopped it during the warm-up, of this length, which is not measured.
    InWarmUp(Time),
}

impl ToolError {
    /// Why a port cannot be opened.
    pub fn of_open(error: &OpenError) -> Self {
        let line = error.to_string();
        match error.kind() {
            OpenErrorKind::Privilege => Self::Missing(line),
            OpenErrorKind::Usage => Self::Usage(line),
            OpenErrorKind::Open => Self::Failed(line),
        }
    }

    /// Why a session did not start.
    pub fn of_start(error: &StartError) -> Self {
        let line = error.to_string();
        let denied = |error: &DeviceError| {
            matches!(error, DeviceError::Failed { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied)
        };
        match error {
            StartError::Incompatible(_) | StartError::Setting(_) => Self::Usage(line),
            StartError::Port(port) if denied(&port.error) => Self::Missing(line),
            StartError::System(error) if denied(error) => Self::Missing(line),
            _ => Self::Failed(line),
        }
    }

    /// Checks the number of an option.
    pub(crate) fn unless_in(
        range: RangeInclusive<u64>,
        option: &str,
        value: u64,
    ) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        Err(Self::Usage(format!(
            "{option} cannot be '{value}': write a number from {} to {}",
            range.start(),
            range.end()
        )))
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(line) | Self::Missing(line) | Self::Failed(line) | Self::Check(line) => {
                f.write_str(line)
            }
            Self::Cancelled => f.write_str("interrupted before anything was measured"),
            Self::InWarmUp(length) => write!(
                f,
                "interrupted during the warm-up of {length}: nothing was measured yet"
            ),
        }
    }
}

impl core::error::Error for ToolError {}

impl From<LabError> for ToolError {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Missing(missing) => Self::Missing(missing.to_string()),
            LabError::Setting(_) => Self::Usage(error.to_string()),
            LabError::Cancelled => Self::Cancelled,
            _ => Self::Failed(error.to_string()),
        }
    }
}
