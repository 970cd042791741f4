//! What a thread can wait for together with sockets: a counter, `eventfd(2)`, and a time,
//! `timerfd_create(2)`.

#![allow(unsafe_code, reason = "eventfd and timerfd are raw system calls")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

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

/// Readable once its time has come, until `clear`.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: a plain call; the result is checked before use.
        let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just returned to us and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Readable when `time` is over, and not before. One system call.
    pub(crate) fn set(&self, time: Duration) {
        // Zero would never come.
        self.settime(time.max(Duration::from_nanos(1)));
    }

    /// Unreadable, and not set any more. One system call.
    pub(crate) fn clear(&self) {
        self.settime(Duration::ZERO);
    }

    fn settime(&self, time: Duration) {
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let new = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: time.subsec_nanos().into(),
            },
        };
        let fd = self.0.as_raw_fd();
        // SAFETY: the descriptor is ours, `new` lives as long as the call, the old one is not asked
        // for.
        let set = unsafe { libc::timerfd_settime(fd, 0, &raw const new, std::ptr::null_mut()) };
        debug_assert_eq!(set, 0, "a valid time for a timer");
    }
}

impl AsFd for Timer {
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
    patience: Duration,
) -> io::Result<bool> {
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

    #[test]
    fn a_timer_is_readable_from_its_time_to_clear() {
        let timer = Timer::new().unwrap();
        let ready = |patience| is_ready(timer.as_fd(), Interest::Read, patience).unwrap();
        let long = Duration::from_secs(3600);
        timer.set(long);
        assert!(!ready(Duration::ZERO));
        for time in [Duration::ZERO, Duration::from_micros(10)] {
            timer.set(time);
            assert!(ready(long));
            timer.clear();
            assert!(!ready(Duration::ZERO));
        }
    }
}
