//! The errors of a run that ended early or did not start. They name the port.

use crate::advice;
use crate::driver::DeviceError;
use crate::name::printable;
use crate::plan::Incompatible;
use crate::policy::SettingError;
use std::fmt;
use std::io;

/// A device failed, or the thread that drives it: the run ends.
#[derive(Debug)]
pub struct RunError {
    /// The port whose device failed; `None` if a worker's thread failed.
    pub port: Option<usize>,
    /// The name of that port. A worker does not know it; the [`Session`](super::Session) fills it
    /// in.
    pub name: Option<String>,
    /// What failed.
    pub error: DeviceError,
}

impl RunError {
    /// A failure of `port`.
    pub(super) const fn of(port: usize, error: DeviceError) -> Self {
        Self {
            port: Some(port),
            name: None,
            error,
        }
    }
}

impl From<DeviceError> for RunError {
    /// A failure of a worker's thread, and of no port.
    fn from(error: DeviceError) -> Self {
        Self {
            port: None,
            name: None,
            error,
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.port) {
            (Some(name), _) => write!(f, "{}: {}", printable(name), self.error),
            (None, Some(0)) => write!(f, "first port: {}", self.error),
            (None, Some(1)) => write!(f, "second port: {}", self.error),
            (None, Some(2)) => write!(f, "third port: {}", self.error),
            (None, Some(port)) => write!(f, "{}th port: {}", port + 1, self.error),
            (None, None) => self.error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message of the inner error is part of this error's message.
        self.error.source()
    }
}

/// The action of a thread that does not start.
pub(super) const START_THREAD: &str = "start a worker's thread";

/// Why a run did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The ports cannot be joined.
    Incompatible(Incompatible),
    /// A setting requests something that this machine does not have.
    Setting(SettingError),
    /// A port could not be attached as planned.
    Port(RunError),
    /// The system refused memory, a descriptor, a thread, a CPU or a priority.
    System(DeviceError),
}

impl StartError {
    /// The system refused an action. The message is "cannot" and `action`.
    pub(super) fn system(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System(DeviceError::Failed { action, source })
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incompatible(error) => error.fmt(f),
            Self::Setting(error) => error.fmt(f),
            Self::Port(error) => error.fmt(f),
            Self::System(error) => {
                let advice = match error {
                    DeviceError::Failed { action, source } if *action == START_THREAD => {
                        advice::on_threads(source.raw_os_error())
                    }
                    _ => "",
                };
                write!(f, "{error}{advice}")
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Incompatible(error) => Some(error),
            Self::Setting(error) => Some(error),
            Self::Port(error) => error.source(),
            Self::System(error) => error.source(),
        }
    }
}
