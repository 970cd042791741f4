//! Why a run ended early or did not start, and because of which port.

use crate::driver::DeviceError;
use crate::plan::Incompatible;
use crate::policy::SettingError;
use std::fmt;
use std::io;

/// A device, or the thread that drives it, failed: the run cannot go on.
#[derive(Debug)]
pub struct RunError {
    /// The port whose device failed; `None` when it was the engine's own thread that could not go
    /// on.
    pub port: Option<usize>,
    /// That port's name. A worker does not know it; a [`Session`](super::Session) puts it in.
    pub name: Option<String>,
    /// What failed.
    pub error: DeviceError,
}

impl RunError {
    /// `port` failed.
    pub(super) const fn of(port: usize, error: DeviceError) -> Self {
        Self {
            port: Some(port),
            name: None,
            error,
        }
    }
}

impl From<DeviceError> for RunError {
    /// A failure that is no port's.
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
            (Some(name), _) => write!(f, "{name}: {}", self.error),
            (None, Some(0)) => write!(f, "first port: {}", self.error),
            (None, Some(_)) => write!(f, "second port: {}", self.error),
            (None, None) => self.error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The device's own words are part of this one's.
        self.error.source()
    }
}

/// Why a run did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The ports cannot be joined.
    Incompatible(Incompatible),
    /// A setting asks for what this machine does not have.
    Setting(SettingError),
    /// A port could not be attached as planned.
    Port(RunError),
    /// The system gave no memory, descriptor, thread, CPU or priority.
    System(DeviceError),
}

impl StartError {
    /// For an action that the system refused, in words that follow "cannot".
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
            Self::System(error) => error.fmt(f),
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
