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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn readable(event: &Event) -> bool {
        let mut poll = libc::pollfd {
            fd: event.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd, no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
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
