//! Models of how a worker falls asleep, and of how a producer waits for space: every order of
//! events that the memory model allows, between the worker, a producer, a device that becomes
//! ready, and who commands a queue.
//!
//! `RUSTFLAGS="--cfg packtrain_loom" cargo test -p packtrain --release --lib engine::models`
//!
//! What runs is the engine as it ships: worker, lane, alarm, ring, TX queue. Put in the place of
//! the system are the descriptor that the worker blocks on, and the device. Time stands still, so
//! that nothing is found by looking again later: a wake-up that is lost is a deadlock, which loom
//! finds. Counters are those of `std`, of which loom knows nothing: none of them is relied upon to
//! wake anybody.

use loom::sync::{Condvar, Mutex, MutexGuard};
use std::io::{self, Stdin};
use std::os::fd::{AsFd, BorrowedFd};

/// In the place of an eventfd and the ppoll that watches it beside a device.
#[derive(Debug)]
pub(super) struct Waker {
    readable: Mutex<Readable>,
    changed: Condvar,
    /// Somebody has to be named; it is never read.
    stdin: Stdin,
}

#[derive(Debug, Default)]
struct Readable {
    alarm: bool,
    #[cfg(test)]
    device: bool,
}

impl Waker {
    #[allow(clippy::unnecessary_wraps, reason = "as that of the system")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            readable: Mutex::new(Readable::default()),
            changed: Condvar::new(),
            stdin: io::stdin(),
        })
    }

    fn readable(&self) -> MutexGuard<'_, Readable> {
        self.readable.lock().expect("no model panics with it")
    }

    pub(super) fn wake(&self) {
        self.readable().alarm = true;
        self.changed.notify_one();
    }

    pub(super) fn clear(&self) -> bool {
        std::mem::take(&mut self.readable().alarm)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }

    /// The device says that it can go on.
    #[cfg(test)]
    fn interrupt(&self) {
        self.readable().device = true;
        self.changed.notify_one();
    }

    /// Blocks as ppoll does.
    #[cfg(test)]
    fn wait(&self) {
        let mut readable = self.readable();
        while !readable.alarm && !readable.device {
            readable = self
                .changed
                .wait(readable)
                .expect("no model panics with it");
        }
        readable.device = false;
    }
}

#[cfg(test)]
mod space;
#[cfg(test)]
mod tests;
