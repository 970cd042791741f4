//! The file behind a capture, its errors, and the time of its records.

use crate::driver::DeviceError;
use packtrain_capture::{CaptureError, WriteError};
use rustix::io::ioctl_fionbio;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const OPEN: &str = "open the capture";
pub(super) const CREATE: &str = "create the capture";
const READ: &str = "read the capture";
const WRITE: &str = "write the capture";

/// A file that counts the calls made on it.
#[derive(Debug)]
pub(in crate::port) struct Counted {
    pub(super) file: File,
    pub(super) calls: u64,
    /// Each call is made with `MSG_DONTWAIT`.
    dont_wait: Cell<bool>,
}

impl Counted {
    pub(in crate::port) const fn new(file: File) -> Self {
        Self {
            file,
            calls: 0,
            dont_wait: Cell::new(false),
        }
    }

    /// From now on calls return instead of waiting for another program. A socket cannot be opened
    /// by its name, so it is standard input or output: non-blocking, it would be so for the other
    /// programs that have it, too.
    pub(in crate::port) fn set_nonblocking(&self) -> io::Result<()> {
        if self.file.metadata()?.file_type().is_socket() {
            self.dont_wait.set(true);
        } else if may_block(&self.file) {
            ioctl_fionbio(&self.file, true)?;
        }
        Ok(())
    }
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.dont_wait.get() {
            let (bytes, _) = recv(&self.file, out, RecvFlags::DONTWAIT)?;
            return Ok(bytes);
        }
        self.file.read(out)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.calls += 1;
        self.file.seek(to)
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.dont_wait.get() {
            return Ok(send(&self.file, bytes, SendFlags::DONTWAIT)?);
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A `File` buffers nothing.
        Ok(())
    }
}

/// Whether a call on the file may wait for another program: a pipe, a terminal and the like.
pub(super) fn may_block(file: &File) -> bool {
    // If the metadata cannot be read, it may.
    !file.metadata().is_ok_and(|metadata| metadata.is_file())
}

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
