//! Why a run ended early, and because of which port.

use super::handler::Port;
use crate::driver::DeviceError;
use std::fmt;

/// A device, or what drives it, failed: the run cannot go on.
#[derive(Debug)]
pub struct RunError {
    /// The port whose device failed; `None` when it was the engine's own thread that could not go
    /// on (no descriptor to wait for).
    pub port: Option<Port>,
    /// That port's name. A worker does not know it; a [`Session`](super::Session) puts it in.
    pub name: Option<String>,
    /// What failed.
    pub error: DeviceError,
}

impl RunError {
    /// `port` failed.
    pub(super) const fn of(port: Port, error: DeviceError) -> Self {
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
            (None, Some(Port::A)) => write!(f, "first port: {}", self.error),
            (None, Some(Port::B)) => write!(f, "second port: {}", self.error),
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
