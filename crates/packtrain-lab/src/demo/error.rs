//! Why the demo failed.

use crate::error::LabError;
use packtrain::driver::DeviceError;
use packtrain::engine::{RunError, StartError};
use std::fmt;

/// Why the demo failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DemoError {
    /// The laboratory: namespaces, sockets.
    Lab(LabError),
    /// A port.
    Device(DeviceError),
    /// A port failed during the run.
    Run(RunError),
    /// The session between the two ports did not start.
    Start(StartError),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DemoError {}

impl From<LabError> for DemoError {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}

impl From<DeviceError> for DemoError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
