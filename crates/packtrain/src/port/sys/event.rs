//! A counter that a thread can wait for together with sockets: `eventfd(2)`.

#![allow(unsafe_code, reason = "eventfd is a raw system call")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable from `notify` until `clear`.
#[derive(Debug)]
pub(crate) struct Event(File);

impl Event {
    /// An event that nobody has notified yet.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a plain call; the result is checked before use.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just returned to us and nobody else has it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(raw) })))
    }

    /// Makes the descriptor readable. One system call.
    pub(crate) fn notify(&self) {
        let written = (&self.0).write_all(&1_u64.to_ne_bytes());
        // It fails only with EAGAIN, when the counter is at its end: then it is readable already.
        debug_assert!(written.is_ok(), "an eventfd takes 2^64 notifications");
    }

    /// Makes the descriptor unreadable again. One system call.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // An eventfd reads as a whole or not at all.
        if let Err(error) = (&self.0).read_exact(&mut count) {
            debug_assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "not notified");
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether `fd` becomes what `interest` says within `patience`. One system call.
///
/// # Errors
///
/// The system's: `EINTR` when a signal came.
#[cfg(any(test, feature = "conformance"))]
pub(crate) fn is_ready(
    fd: BorrowedFd<'_>,
    interest: crate::driver::Interest,
    patience: std::time::Duration,
) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    let events = match interest {
        crate::driver::Interest::Read => libc::POLLIN,
        crate::driver::Interest::Write => libc::POLLOUT,
    };
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let timeout = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one valid pollfd, and the descriptor is borrowed for the call.
    match unsafe { libc::poll(&raw mut poll, 1, timeout) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        n => Ok(n > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Interest;
    use std::time::Duration;

    fn readable(event: &Event) -> bool {
        is_ready(event.as_fd(), Interest::Read, Duration::ZERO).unwrap()
    }

    #[test]
    fn it_is_readable_from_notify_to_clear() {
        let event = Event::new().unwrap();
        assert!(!readable(&event));
        event.notify();
        event.notify();
        assert!(readable(&event));
        event.clear();
        assert!(!readable(&event));
        event.clear();
        assert!(!readable(&event));
    }
}
