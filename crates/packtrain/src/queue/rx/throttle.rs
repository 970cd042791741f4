//! The interrupt throttle of an RX queue, with the delay that the moderation policy chooses.
//!
//! A wake-up counts for a queue if the worker slept and then finds packets in the queue. After a
//! wake-up the queue does not wake the worker until the delay is over, even if packets arrive. At
//! its end the worker polls, so no packet waits longer. If no packet arrives within the delay, the
//! next one wakes the worker at once.
//!
//! A device that delays its interrupts by itself (`RxDescriptors::moderate`) does all of this, and
//! here is only the choice of the delay.
//!
//! Only wake-ups are delayed. A worker that is awake polls all its queues, and a worker that spins
//! has no wake-ups.

use crate::policy::moderation::{Moderation, Moderator, Observation, Profile};
use crate::time::Instant;
use std::time::Duration;

/// The wake-ups of one RX queue.
#[derive(Debug)]
pub(super) struct Throttle {
    moderator: Moderator,
    profile: Profile,
    /// The device delays.
    is_left: bool,
    /// The last wake-up.
    last: Option<Instant>,
    /// The end of the delay of an empty queue.
    until: Option<Instant>,
    /// How the queue was armed, until the next step.
    asleep: Option<Asleep>,
    /// How the queue was armed before the sleep that precedes this step.
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
            profile: moderator.profile(),
            moderator,
            is_left: false,
            last: None,
            until: None,
            asleep: None,
            back: None,
            seen: (0, 0),
        }
    }

    /// A step begins; `slept` states whether the worker slept before it. Nothing is delayed until
    /// the queue is found empty again.
    pub(super) const fn resume(&mut self, slept: bool) {
        let asleep = self.asleep.take();
        self.back = if slept { asleep } else { None };
        self.until = None;
    }

    /// The queue was polled. `found` states whether packets came; the totals of its packets, bytes
    /// and wake-ups follow. Returns true if the caller has to count a wake-up: a delayed one that
    /// time ended.
    pub(super) fn settle(
        &mut self,
        now: Instant,
        found: bool,
        (packets, bytes): (u64, u64),
        wakeups: u64,
    ) -> bool {
        let back = self.back.take().filter(|_| found);
        // If another queue woke the worker during the delay, this queue did not.
        let woken = |asleep: &Asleep| asleep.wakeups != wakeups;
        let due = |asleep: &Asleep| asleep.until.is_none_or(|until| now >= until);
        let wakeup = back.filter(|asleep| woken(asleep) || due(asleep));
        if wakeup.is_some() {
            self.last = Some(now);
        }
        let seen = Observation {
            packets: packets.wrapping_sub(self.seen.0),
            bytes: bytes.wrapping_sub(self.seen.1),
            events: u64::from(wakeup.is_some()),
        };
        self.seen = (packets, bytes);
        self.profile = self.moderator.observe(now, &seen);
        if !found && !self.is_left {
            self.until = self.end(now).filter(|&end| now < end);
        }
        wakeup.is_some_and(|asleep| asleep.until.is_some() && !woken(&asleep))
    }

    /// The end of the delay after the last wake-up.
    fn end(&self, now: Instant) -> Option<Instant> {
        // If the clock went back, the delay is not longer.
        Some(self.last?.min(now).after(self.delay()))
    }

    /// The delay in force. A profile of one packet delays nothing.
    pub(super) const fn delay(&self) -> Duration {
        match self.profile.frames {
            ..=1 => Duration::ZERO,
            _ => Duration::from_micros(self.profile.usecs as u64),
        }
    }

    /// Leaves the delays to the device, or, with `false`, to this throttle from the next poll on.
    pub(super) const fn leave(&mut self, to_device: bool) {
        self.is_left = to_device;
        if to_device {
            self.until = None;
        }
    }

    /// The worker is about to sleep; `wakeups` is the total of the queue. Returns how many packets
    /// end the delay, if there is one.
    pub(super) fn sleep(&mut self, wakeups: u64) -> Option<u32> {
        self.asleep = Some(Asleep {
            until: self.until,
            wakeups,
        });
        self.until.map(|_| self.profile.frames)
    }

    /// The end of the present delay.
    pub(super) const fn delayed_until(&self) -> Option<Instant> {
        self.until
    }

    /// How often the profile has changed.
    pub(super) const fn changes(&self) -> u64 {
        self.moderator.changes()
    }
}

#[cfg(test)]
mod tests;
