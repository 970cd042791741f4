//! How the program ends: exit codes, and the one line that says why.

use packtrain::advice;
use packtrain::driver::DeviceError;
use packtrain::engine::StartError;
use std::io::{Error, ErrorKind};
use std::process::ExitCode;

/// Exit codes other than 0, "done".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A check failed: a ledger does not close, or received bytes are wrong.
    Check = 1,
    /// The command line is wrong, or the two ports cannot be joined.
    Usage = 2,
    /// A privilege or a kernel feature is missing.
    Privilege = 3,
    /// A port or file cannot be opened, or failed while running.
    Port = 4,
    /// Nothing failed, and the runs do not decide what was to be judged.
    NotJudged = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What, why, and what to do; one line.
    pub line: String,
}

impl Failure {
    /// A failure that ends the program with `exit`.
    pub fn new(exit: Exit, line: impl Into<String>) -> Self {
        let line = line.into();
        Self { exit, line }
    }

    /// A device's failure; `port` is the port's name, if it is known.
    pub fn of_device(port: Option<&str>, error: &DeviceError) -> Self {
        let exit = match error {
            DeviceError::Failed { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                Exit::Privilege
            }
            _ => Exit::Port,
        };
        let line = match port {
            Some(port) => format!("{port}: {error}"),
            None => error.to_string(),
        };
        Self { exit, line }
    }

    /// A thread that did not start.
    pub fn of_thread(error: &Error) -> Self {
        let advice = advice::on_threads(error.raw_os_error());
        let line = format!("cannot start a thread: {error}{advice}");
        Self::new(Exit::Port, line)
    }

    /// Why a run did not start.
    pub fn of_start(error: &StartError) -> Self {
        match error {
            StartError::Incompatible(_) | StartError::Setting(_) => {
                Self::new(Exit::Usage, error.to_string())
            }
            StartError::Port(failed) => Self::of_device(failed.name.as_deref(), &failed.error),
            StartError::System(error) => Self::of_device(None, error),
            _ => Self::new(Exit::Port, error.to_string()),
        }
    }
}
