//! The system calls of the outer shell: epoll, eventfd, thread CPU time.

#![allow(unsafe_code, reason = "calls the kernel")]

use crate::driver::Interest;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A set of descriptors to wait for.
#[derive(Debug)]
pub(super) struct Epoll {
    fd: OwnedFd,
    /// What is registered, so that the kernel is told of changes only.
    registered: Vec<Registered>,
}

#[derive(Debug)]
struct Registered {
    fd: RawFd,
    events: u32,
    wanted: u32,
}

/// Takes ownership of a descriptor that a system call has just returned.
fn owned(raw: libc::c_int) -> io::Result<OwnedFd> {
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

const EVENTS: usize = 16;

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            fd,
            registered: Vec::with_capacity(EVENTS),
        })
    }

    /// Waits until one of `interests` is ready, or `timeout` (`None`: for ever), and calls `ready`
    /// for each. Level-triggered. Returns the number of system calls made.
    pub(super) fn wait(
        &mut self,
        interests: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>, Interest)),
        timeout: Option<Duration>,
        mut ready: impl FnMut(RawFd),
    ) -> io::Result<u64> {
        let mut syscalls = 1 + self.register(interests)?;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let milliseconds = timeout.map_or(-1, |left| {
            // Rounded up: waking a moment early would only mean waiting again.
            let up = left.as_nanos().div_ceil(1_000_000);
            libc::c_int::try_from(up).unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: `events` is valid for `EVENTS` entries.
        let count = unsafe {
            let events = events.as_mut_ptr();
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events,
                EVENTS as libc::c_int,
                milliseconds,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            syscalls += 1;
        }
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            ready(event.u64 as RawFd);
        }
        Ok(syscalls)
    }

    fn register(
        &mut self,
        interests: impl FnOnce(&mut dyn FnMut(BorrowedFd<'_>, Interest)),
    ) -> io::Result<u64> {
        for registered in &mut self.registered {
            registered.wanted = 0;
        }
        let all = &mut self.registered;
        interests(&mut |fd, interest| {
            let events = match interest {
                Interest::Read => libc::EPOLLIN as u32,
                Interest::Write => libc::EPOLLOUT as u32,
            };
            let fd = fd.as_raw_fd();
            match all.iter_mut().find(|known| known.fd == fd) {
                Some(known) => known.wanted |= events,
                None => all.push(Registered {
                    fd,
                    events: 0,
                    wanted: events,
                }),
            }
        });
        let epoll = self.fd.as_raw_fd();
        self.registered
            .iter_mut()
            .try_fold(0, |calls, known| Ok(calls + known.update(epoll)?))
    }
}

impl Registered {
    /// Tells the kernel of a change; returns the number of system calls made.
    fn update(&mut self, epoll: RawFd) -> io::Result<u64> {
        if self.events == self.wanted {
            return Ok(0);
        }
        let operation = match (self.events, self.wanted) {
            (0, _) => libc::EPOLL_CTL_ADD,
            (_, 0) => libc::EPOLL_CTL_DEL,
            _ => libc::EPOLL_CTL_MOD,
        };
        let mut event = libc::epoll_event {
            events: self.wanted,
            u64: self.fd as u64,
        };
        // SAFETY: `event` is valid for the call.
        if unsafe { libc::epoll_ctl(epoll, operation, self.fd, &raw mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.events = self.wanted;
        Ok(1)
    }
}

/// Wakes one worker from another thread.
#[derive(Debug)]
pub(super) struct Waker {
    fd: OwnedFd,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        Ok(Self { fd })
    }

    /// Makes [`Waker::fd`] readable, for good: it is never read, since it says "stop".
    pub(super) fn wake(&self) -> io::Result<()> {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is valid for its eight bytes.
        let written = unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if written < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// CPU time that this thread has used, in nanoseconds; 0 where the kernel does not say.
pub(super) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if failed != 0 {
        0
    } else {
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
