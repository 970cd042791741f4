//! How a worker is told to look, and woken if it sleeps.

#[cfg(packtrain_loom)]
use super::models::Waker;
#[cfg(not(packtrain_loom))]
use super::sys::Waker;
use crate::queue::ring::Bell;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

/// A worker's bell, and the descriptor that it blocks on.
#[derive(Debug)]
pub(super) struct Alarm {
    bell: Bell,
    waker: Waker,
    /// For what is a matter of cost only: nothing that must be right depends on it.
    asleep: AtomicBool,
}

impl Alarm {
    /// For a worker that is awake.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            bell: Bell::new(),
            waker: Waker::new()?,
            asleep: AtomicBool::new(false),
        })
    }

    /// Tells the worker to look. True if that took a system call, since the worker slept.
    pub(super) fn ring(&self) -> bool {
        let slept = self.bell.ring();
        if slept {
            self.waker.wake();
        }
        slept
    }

    /// Whether the worker was asleep, or about to be, a moment ago. Also one that naps, and is not
    /// woken when somebody rings.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    #[cfg(all(test, packtrain_loom))]
    pub(super) const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// What becomes readable when somebody rings for a worker that sleeps.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.waker.fd()
    }
}

/// As one that waits for space in a ring.
impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// The worker's side of its alarm.
#[derive(Debug)]
pub(super) struct Sleeper {
    alarm: Arc<Alarm>,
    /// The worker said that it would block.
    slept: bool,
    /// Somebody makes the descriptor readable, or did; it has to be read.
    signalled: bool,
    /// Somebody rang, which the bell has forgotten, and the worker has not looked since.
    told: bool,
}

impl Sleeper {
    pub(super) const fn new(alarm: Arc<Alarm>) -> Self {
        Self {
            alarm,
            slept: false,
            signalled: false,
            told: false,
        }
    }

    pub(super) const fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Whether the worker said that it would block, and has not run since.
    pub(super) const fn has_slept(&self) -> bool {
        self.slept
    }

    /// Whether somebody rang since the worker looked last. It looks now.
    pub(super) fn was_rung(&mut self) -> bool {
        std::mem::take(&mut self.told) || self.alarm.bell.is_rung()
    }

    /// The worker neither sleeps nor has anything to do: it looks again where it is rung for.
    pub(super) fn listen(&mut self) {
        self.told |= self.alarm.bell.heard();
    }

    /// The worker sleeps for a bounded time, and whoever rings does not wake it.
    pub(super) fn nap(&self) {
        self.alarm.asleep.store(true, Ordering::Relaxed);
    }

    /// The worker has napped.
    pub(super) fn rise(&self) {
        self.alarm.asleep.store(false, Ordering::Relaxed);
    }

    /// True when the worker may block now; it has looked at everything. False when somebody rang
    /// meanwhile.
    pub(super) fn try_sleep(&mut self) -> bool {
        if !self.slept {
            self.slept = self.alarm.bell.try_sleep();
            self.told |= !self.slept;
            self.alarm.asleep.store(self.slept, Ordering::Relaxed);
        }
        self.slept
    }

    /// The worker runs again. Returns the number of system calls made: the descriptor is read only
    /// if it was written, or will be at once. Then it is tried again the next time.
    pub(super) fn wake(&mut self) -> u64 {
        if self.slept {
            self.slept = false;
            self.alarm.asleep.store(false, Ordering::Relaxed);
            self.signalled |= self.alarm.bell.wake();
        }
        if !self.signalled {
            return 0;
        }
        self.signalled = !self.alarm.waker.clear();
        1
    }
}
