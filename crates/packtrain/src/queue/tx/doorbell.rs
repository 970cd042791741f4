//! When the device is told of packets: once for many, and bounded both in time and in descriptors.

use crate::limits::{TX_DOORBELL_DESCRIPTORS_MAX, TX_DOORBELL_HOLD_MAX};
use crate::time::Instant;

/// What the device has not been told of.
#[derive(Debug, Default)]
pub(super) struct Doorbell {
    /// Descriptors, as the framework counts them: one for each segment.
    owed: usize,
    /// Since when.
    since: Instant,
}

impl Doorbell {
    pub(super) const fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// The device took a packet of so many segments.
    pub(super) fn owe(&mut self, segments: usize, now: Instant) {
        if self.owed == 0 {
            self.since = now;
        }
        self.owed += segments.max(1);
    }

    /// Whether it is to be rung before another packet is offered.
    pub(super) const fn is_full(&self) -> bool {
        self.owed >= TX_DOORBELL_DESCRIPTORS_MAX
    }

    /// When it is to be rung at the latest.
    pub(super) fn due_at(&self, now: Instant) -> Option<Instant> {
        // A clock that went back does not make it later.
        let since = self.since.min(now);
        self.is_owed().then(|| since.after(TX_DOORBELL_HOLD_MAX))
    }

    /// Whether it is to be rung now: also where a clock that went back does not say since when.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let unknown = self.is_owed() && now < self.since;
        unknown || self.due_at(now).is_some_and(|due| now >= due)
    }

    pub(super) const fn rung(&mut self) {
        self.owed = 0;
    }
}
