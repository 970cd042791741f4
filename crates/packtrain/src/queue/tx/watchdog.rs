//! The watchdog of a TX queue. If work is pending without progress, the queue polls the device, and
//! reports it as hung after [`TX_HUNG_AFTER`].
//!
//! A stopped process or machine observes nothing meanwhile, which is not the device's fault. So a
//! wake-up is lost only if the worker polled in time: less than [`TX_POLL_AFTER`] after the poll
//! was due, and before the time at which the device itself asked for a step. A hang takes two
//! observations less than [`TX_HUNG_AFTER`] apart, and the queue polls the device once more before
//! the report. Time in which the device states that the wire is at fault (the link is down,
//! the receiver sends pause frames) does not count. Linux's `dev_watchdog` and iflib's timer also
//! check both pending work and progress.

use crate::limits::{TX_HUNG_AFTER, TX_POLL_AFTER};
use crate::time::Instant;

/// The state machine. It gets one observation a step.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// [`Seen::progress`] of the last observation.
    progress: u64,
    observed_at: Instant,
    /// The time of the last progress, or of the last observation without work.
    progress_at: Instant,
    polled_at: Instant,
    /// When to check for lost completions.
    check_lost_at: Instant,
    /// The queue has work and waits for a wake-up after this many completions.
    waiting: Option<usize>,
    /// The present hang was reported.
    reported: bool,
    /// [`Seen::pending`] of the last observation.
    pending: bool,
}

/// The state of the queue in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The device has packets, or some wait for it.
    pub(super) pending: bool,
    /// Changes with each packet that the device completes. While no packet is in flight, it changes
    /// also with each packet that the device accepts.
    pub(super) progress: u64,
    /// The wire is at fault: the device may keep its packets.
    pub(super) blocked: bool,
}

/// The action that the queue takes after an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Check for lost completions.
    CheckLost,
    /// Report the device as hung: once, until it makes progress or is reset.
    Hung,
}

impl Watchdog {
    /// The worker may sleep. If the device was armed, it wakes the worker after `completions`.
    pub(super) const fn sleep(&mut self, completions: Option<usize>) {
        self.waiting = completions;
    }

    /// The time of the last progress, or of the last observation without work.
    pub(super) const fn progress_at(&self) -> Instant {
        self.progress_at
    }

    /// Whether the queue waits for a wake-up that has not come.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether `found` completions should have raised the interrupt: as many as the queue waits
    /// for, or the last ones in flight.
    pub(super) fn has_missed(&self, found: usize, were_last: bool) -> bool {
        self.waiting
            .is_some_and(|completions| were_last || found >= completions)
    }

    /// A wake-up came.
    pub(super) const fn wake(&mut self) {
        self.waiting = None;
    }

    /// The device was reset: its time starts again, and another hang is reported.
    pub(super) const fn restart(&mut self, now: Instant) {
        self.progress_at = now;
        self.polled_at = now;
        self.reported = false;
    }

    /// A step begins. If the worker did not run when it should have polled, it was stopped, and the
    /// device's wake-up may have been stopped with it: that wake-up is late and not lost.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.is_waiting() && now >= self.poll_at().after(TX_POLL_AFTER) {
            self.wake();
        }
    }

    /// Takes the observation of a step.
    pub(super) fn observe(&mut self, now: Instant, seen: Seen) -> Verdict {
        let began = seen.pending && !self.pending;
        self.pending = seen.pending;
        self.clamp_times(now);
        let unwatched = now.since(self.observed_at) >= TX_HUNG_AFTER;
        self.observed_at = now;
        if unwatched {
            self.progress_at = now;
            self.check_lost_at = now.after(TX_HUNG_AFTER);
        }
        if !seen.pending || began || seen.blocked || seen.progress != self.progress {
            self.progress = seen.progress;
            self.progress_at = now;
            self.reported = false;
        }
        if !seen.pending || began {
            self.polled_at = now;
            self.check_lost_at = now.after(TX_HUNG_AFTER);
            return Verdict::Fine;
        }
        if now >= self.poll_at() {
            // This step has polled the device before the observation.
            self.polled_at = now;
        }
        if now.since(self.progress_at) >= TX_HUNG_AFTER && !self.reported {
            self.reported = true;
            return Verdict::Hung;
        }
        if now >= self.check_lost_at {
            self.check_lost_at = now.after(TX_HUNG_AFTER);
            // Without any completion the device is hung, and none is lost.
            if now.since(self.progress_at) < TX_HUNG_AFTER {
                return Verdict::CheckLost;
            }
        }
        Verdict::Fine
    }

    /// If the clock went back, moves all times back to `now`.
    fn clamp_times(&mut self, now: Instant) {
        for at in [
            &mut self.observed_at,
            &mut self.progress_at,
            &mut self.polled_at,
        ] {
            *at = now.min(*at);
        }
        self.check_lost_at = self.check_lost_at.min(now.after(TX_HUNG_AFTER));
    }

    /// Whether the queue has waited for a wake-up for so long that it polls the device.
    pub(super) fn poll_is_due(&self, now: Instant) -> bool {
        self.is_waiting() && now >= self.poll_at()
    }

    /// When a queue with work polls its device if nothing wakes the worker.
    pub(super) fn poll_at(&self) -> Instant {
        self.polled_at.max(self.progress_at).after(TX_POLL_AFTER)
    }
}

#[cfg(test)]
mod tests;
