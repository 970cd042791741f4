//! When a queue rings its device's doorbell: once for many packets, bounded in time and
//! descriptors.

use crate::limits::{TX_DOORBELL_DESCRIPTORS_MAX, TX_DOORBELL_HOLD_MAX};
use crate::time::Instant;

/// The descriptors that the device was given since the last doorbell.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// Pending descriptors, as the framework counts them: one for each segment.
    pending: usize,
    /// When the oldest of them was given to the device.
    since: Instant,
}

impl Doorbell {
    /// Whether descriptors are pending.
    pub(super) const fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// The device accepted so many descriptors.
    pub(super) fn add(&mut self, descriptors: usize, now: Instant) {
        if self.pending == 0 {
            self.since = now;
        }
        self.pending += descriptors;
    }

    /// Whether the queue rings it before it offers another packet, behind some of so many
    /// descriptors.
    pub(super) const fn is_full_behind(&self, descriptors: usize) -> bool {
        self.pending + descriptors >= TX_DOORBELL_DESCRIPTORS_MAX
    }

    /// The latest time to ring it.
    pub(super) fn due_at(&self, now: Instant) -> Option<Instant> {
        // If the clock went back, that time is not later.
        let since = self.since.min(now);
        self.is_pending().then(|| since.after(TX_DOORBELL_HOLD_MAX))
    }

    /// Whether to ring it now. If the clock went back, the age is unknown and it is rung.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let unknown = self.is_pending() && now < self.since;
        unknown || self.due_at(now).is_some_and(|due| now >= due)
    }

    /// The doorbell was rung.
    pub(super) const fn rung(&mut self) {
        self.pending = 0;
    }
}
