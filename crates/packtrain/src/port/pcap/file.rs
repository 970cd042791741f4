//! The errors of the file behind a capture, and the time of its records.

use crate::driver::DeviceError;
use packtrain_capture::{CaptureError, WriteError};
use std::io::{self, ErrorKind};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const OPEN: &str = "open the capture";
pub(super) const CREATE: &str = "create the capture";
const READ: &str = "read the capture";
const WRITE: &str = "write the capture";

/// Nanoseconds since 1970 by the machine's wall clock.
pub(in crate::port) fn wall_clock_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn failed(
    action: &'static str,
    path: &str,
    kind: ErrorKind,
    why: &dyn std::fmt::Display,
) -> DeviceError {
    DeviceError::Failed {
        action,
        source: io::Error::new(kind, format!("{path}: {why}")),
    }
}

pub(super) fn broken(path: &str, error: CaptureError) -> DeviceError {
    let kind = match error {
        CaptureError::Io { fault, .. } => fault.kind,
        CaptureError::Truncated { .. } => ErrorKind::UnexpectedEof,
        _ => ErrorKind::InvalidData,
    };
    failed(READ, path, kind, &error)
}

pub(super) fn unwritable(path: &str, error: WriteError) -> DeviceError {
    match error {
        WriteError::Io(fault) => failed(WRITE, path, fault.kind, &fault),
        other => failed(WRITE, path, ErrorKind::InvalidInput, &other),
    }
}
