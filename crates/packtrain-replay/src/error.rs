//! Errors, one line each, which names the file.

use packtrain_capture::CaptureError;
use packtrain_capture::replay::ReplayError;
use std::fmt;
use std::io;

/// The reason why a run failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or read.
    Open {
        /// Its path.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// A file is no capture, or ends in the middle of a record.
    Capture {
        /// Its path.
        path: String,
        /// The reason.
        error: CaptureError,
    },
    /// A file has another length or time of modification than at the start.
    Changed {
        /// Its path.
        path: String,
    },
    /// The captures cannot be replayed together.
    Replay(ReplayError),
    /// A [`Sink`](super::Sink) failed.
    Sink(io::Error),
    /// A file cannot be written.
    Write {
        /// Its path.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// A folder cannot be used as a data set.
    Dataset {
        /// The folder, or a file in it.
        path: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A thread cannot be started.
    Thread(io::Error),
    /// Configurations that cannot be run in one pass: this differs.
    Mixed(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, error } => write!(f, "{path}: cannot open: {error}"),
            Self::Capture { path, error } => write!(f, "{path}: {error}"),
            Self::Changed { path } => write!(
                f,
                "{path}: changed while it was read: replay it again when its writer has ended"
            ),
            Self::Replay(error) => error.fmt(f),
            Self::Sink(error) => error.fmt(f),
            Self::Write { path, error } => write!(f, "{path}: cannot write: {error}"),
            Self::Dataset { path, why } => write!(f, "{path}: {why}"),
            Self::Mixed(what) => write!(
                f,
                "configurations with different {what} cannot be run at once: run them one by one"
            ),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<ReplayError> for Error {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}
