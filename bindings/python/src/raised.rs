//! Errors as Python expects them.

use packtrain_capture::CaptureError;
use packtrain_replay::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use std::fmt::Display;

/// A `ValueError`.
pub fn wrong(line: impl Display) -> PyErr {
    PyValueError::new_err(line.to_string())
}

/// An `OSError` of the subclass of this error number, with a sentence.
fn of_number(number: Option<i32>, line: String) -> PyErr {
    match number {
        Some(number) => PyOSError::new_err((number, line)),
        None => PyOSError::new_err(line),
    }
}

/// The exception for a capture that cannot be read. A fault of compressed data has no number.
pub fn of_capture(error: &CaptureError, line: String) -> PyErr {
    match error {
        CaptureError::Io { fault, .. } if fault.os_error.is_some() => {
            of_number(fault.os_error, line)
        }
        _ => wrong(line),
    }
}

/// The exception for an error of a run.
pub fn raised(error: &Error) -> PyErr {
    let line = error.to_string();
    match error {
        Error::Open { error, .. }
        | Error::Write { error, .. }
        | Error::Sink(error)
        | Error::Thread(error) => of_number(error.raw_os_error(), line),
        Error::Changed { .. } => of_number(None, line),
        Error::Capture { error, .. } => of_capture(error, line),
        Error::Replay(_) | Error::Dataset { .. } => wrong(line),
        _ => PyRuntimeError::new_err(line),
    }
}
