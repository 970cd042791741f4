//! Work pending and no progress: the queue polls the device first, and reports it after a stated
//! time.
//!
//! The question is whether the device stalled, not whether the worker did: a process or a machine
//! that was stopped has seen nothing meanwhile. So a halt takes two observations less than the
//! stated time apart, and the device is polled once more before it is reported.
//!
//! Linux's `dev_watchdog` and iflib's timer ask the same two questions, and both are needed: a
//! queue without work makes no progress either. Neither is asked while the device says that the
//! wire is at fault: a link that is down, a receiver that pauses it.

use crate::limits::{TX_HUNG_AFTER, TX_POLL_AFTER};
use crate::time::Instant;
use std::cell::Cell;

/// The state machine. Told what goes on once a step, it says what to do about it.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// As of the last observation.
    progress: u64,
    /// Of the last observation.
    seen_at: Instant,
    /// Of the last progress, or of the last moment without work.
    progress_at: Instant,
    polled_at: Instant,
    /// When to look for packets that later ones have overtaken.
    aged_at: Instant,
    /// The queue has work and waits for a wake-up, once so many packets are done. A cell, since a
    /// wake-up is counted through a shared reference.
    waiting: Cell<Option<usize>>,
    /// This halt was reported.
    reported: bool,
    /// There was work when last observed.
    pending: bool,
}

/// What the queue sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The device has packets, or some wait for it.
    pub(super) pending: bool,
    /// Changes with each packet that the device completes; with each that it takes, while it has
    /// none: a device that only takes packets stands still all the same.
    pub(super) progress: u64,
    /// The device may keep what it has.
    pub(super) blocked: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Look whether some packets never come back while later ones do.
    Age,
    /// The device stands still: said once, until it moves or is reset.
    Halted,
}

impl Watchdog {
    /// The queue waits to be woken; with how many packets done, if it has work.
    pub(super) fn sleep(&mut self, once_done: Option<usize>) {
        self.waiting.set(once_done);
    }

    /// Of the last progress, or of the last moment without work.
    pub(super) const fn progress_at(&self) -> Instant {
        self.progress_at
    }

    /// Whether a wake-up is owed, and none came.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.get().is_some()
    }

    /// Whether so many packets that were found done should have woken it, and nothing did: as many
    /// as it waits for, or the last that the device had.
    pub(super) fn has_missed(&self, found: usize, were_last: bool) -> bool {
        let waiting = self.waiting.get();
        waiting.is_some_and(|once_done| were_last || found >= once_done)
    }

    /// A wake-up came.
    pub(super) fn wake(&self) {
        self.waiting.set(None);
    }

    /// The device was reset: it has as much time as one that was just given work, and if it stands
    /// still again, that is another halt.
    pub(super) const fn begin_again(&mut self, now: Instant) {
        self.progress_at = now;
        self.polled_at = now;
        self.reported = false;
    }

    /// Once a step.
    pub(super) fn observe(&mut self, now: Instant, seen: Seen) -> Verdict {
        let began = seen.pending && !self.pending;
        self.pending = seen.pending;
        self.go_back_with(now);
        let unwatched = now.since(self.seen_at) >= TX_HUNG_AFTER;
        self.seen_at = now;
        if unwatched {
            self.progress_at = now;
            self.aged_at = now.after(TX_HUNG_AFTER);
        }
        if !seen.pending || began || seen.blocked || seen.progress != self.progress {
            self.progress = seen.progress;
            self.progress_at = now;
            self.reported = false;
        }
        if !seen.pending || began {
            self.polled_at = now;
            self.aged_at = now.after(TX_HUNG_AFTER);
            return Verdict::Fine;
        }
        if now >= self.poll_at() {
            // The step that observes has just polled it.
            self.polled_at = now;
        }
        if now.since(self.progress_at) >= TX_HUNG_AFTER && !self.reported {
            self.reported = true;
            return Verdict::Halted;
        }
        if now >= self.aged_at {
            self.aged_at = now.after(TX_HUNG_AFTER);
            // While nothing comes back it is the device that stands still.
            if now.since(self.progress_at) < TX_HUNG_AFTER {
                return Verdict::Age;
            }
        }
        Verdict::Fine
    }

    /// A clock that was ahead must not put off everything until it has come as far again.
    fn go_back_with(&mut self, now: Instant) {
        for at in [
            &mut self.seen_at,
            &mut self.progress_at,
            &mut self.polled_at,
        ] {
            *at = now.min(*at);
        }
        self.aged_at = self.aged_at.min(now.after(TX_HUNG_AFTER));
    }

    /// Whether the queue has waited for a wake-up for long enough to ask the device without one.
    pub(super) fn poll_is_due(&self, now: Instant) -> bool {
        self.is_waiting() && now >= self.poll_at()
    }

    /// When a queue with work is to ask its device though nothing else happens.
    pub(super) fn poll_at(&self) -> Instant {
        self.polled_at.max(self.progress_at).after(TX_POLL_AFTER)
    }
}

#[cfg(test)]
mod tests;
