//! When an RX queue may wake its worker again: its signals held back, as the moderation policy
//! says.
//!
//! It is the interrupt throttle of a NIC. A *signal* is a return from sleep that finds packets in
//! the queue. After one, the queue does not wake the worker again before the policy's time is over,
//! though its packets arrive; then the worker looks by itself, so that no wake-up can be lost. The
//! first packet after a longer time without any wakes it at once.
//!
//! Only waking is held back. A worker that is awake for whatever reason looks at all its queues,
//! and one that spins instead of sleeping gets no signals at all.

use crate::policy::moderation::{Moderation, Moderator, Observation, Signal};
use crate::time::Instant;
use std::time::Duration;

/// The signals of one RX queue.
#[derive(Debug)]
pub(super) struct Throttle {
    moderator: Moderator,
    signal: Signal,
    /// The last signal.
    last: Option<Instant>,
    /// Nothing came from the queue, and until this time it wakes nobody.
    until: Option<Instant>,
    /// What the worker goes to sleep with, from arming to its next look.
    asleep: Option<Asleep>,
    /// What ended that sleep, if there was one.
    back: Option<Asleep>,
    /// Packets and bytes of the queue at the last observation.
    seen: (u64, u64),
}

/// How a queue was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asleep {
    until: Option<Instant>,
    /// Wake-ups counted for the queue by then.
    wakeups: u64,
}

impl Throttle {
    pub(super) const fn new(setting: Moderation) -> Self {
        let moderator = Moderator::new(setting);
        Self {
            signal: moderator.signal(),
            moderator,
            last: None,
            until: None,
            asleep: None,
            back: None,
            seen: (0, 0),
        }
    }

    /// The worker looks again; `slept` says whether it was asleep meanwhile. Nothing is held back
    /// until the queue is found empty again.
    pub(super) const fn resume(&mut self, slept: bool) {
        let asleep = self.asleep.take();
        self.back = if slept { asleep } else { None };
        self.until = None;
    }

    /// The queue had its turn: as many packets and bytes have come from it in all, `found` in this
    /// turn, and the worker was woken for it so many times in all. Returns true when a wake-up has
    /// to be counted: one that was held back, and came by time.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        found: bool,
        (packets, bytes): (u64, u64),
        wakeups: u64,
    ) -> bool {
        let back = self.back.take().filter(|_| found);
        // Who was awake early for something else has not been signalled by this queue.
        let woken = |asleep: &Asleep| asleep.wakeups != wakeups;
        let due = |asleep: &Asleep| asleep.until.is_none_or(|until| now >= until);
        let signal = back.filter(|asleep| woken(asleep) || due(asleep));
        if signal.is_some() {
            self.last = Some(now);
        }
        let seen = Observation {
            packets: packets.wrapping_sub(self.seen.0),
            bytes: bytes.wrapping_sub(self.seen.1),
            events: u64::from(signal.is_some()),
        };
        self.seen = (packets, bytes);
        self.signal = self.moderator.observe(now, &seen);
        if !found {
            self.until = self.end(now).filter(|&end| now < end);
        }
        signal.is_some_and(|asleep| asleep.until.is_some() && !woken(&asleep))
    }

    /// Before this the queue may not signal again.
    fn end(&self, now: Instant) -> Option<Instant> {
        let hold = Duration::from_micros(u64::from(self.signal.usecs));
        // A signal that the first packet ends is not held back.
        let last = self.last.filter(|_| self.signal.frames > 1)?;
        // A clock that went back does not make it longer.
        Some(last.min(now).after(hold))
    }

    /// The worker is about to sleep, woken `wakeups` times for the queue so far. Returns how many
    /// packets end the wait, if the queue's signal is held back.
    pub(super) fn sleep(&mut self, wakeups: u64) -> Option<u32> {
        self.asleep = Some(Asleep {
            until: self.until,
            wakeups,
        });
        self.until.map(|_| self.signal.frames)
    }

    /// Until when the queue wakes nobody.
    pub(super) const fn held_until(&self) -> Option<Instant> {
        self.until
    }

    /// How often the policy changed its mind.
    pub(super) const fn changes(&self) -> u64 {
        self.moderator.changes()
    }
}

#[cfg(test)]
mod tests;
