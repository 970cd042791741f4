//! How many bytes may sit in a device: as few as keep it busy, so that a queue is short and what
//! comes last does not wait behind megabytes.
//!
//! The idea and the rules are those of Linux's dynamic queue limits (`lib/dynamic_queue_limits.c`,
//! `dql_completed`): the limit grows when the device ran empty while more was waiting for the
//! limit, and shrinks by what was never needed for a whole second. It only makes sense where
//! completions come later than the packets, so bytes count only while a device keeps them.

use crate::limits::{TX_BYTES_HOLD, TX_BYTES_MAX, TX_BYTES_START};
use crate::time::Instant;

/// The state machine: told what is queued and what completes, it says whether more may be queued.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteLimit {
    limit: u64,
    /// Bytes since the start, given to the device.
    queued: u64,
    /// Bytes since the start, that the device is done with.
    completed: u64,
    /// Bytes of the packet that was queued last.
    last_packet: u64,
    /// As of the completion before.
    before: Interval,
    /// The least that was too much since `shrunk_at`.
    slack: Option<u64>,
    shrunk_at: Instant,
}

/// What was so at a completion.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    queued: u64,
    /// Bytes in the device beyond the limit: somebody had to wait.
    over: u64,
    last_packet: u64,
}

impl Default for ByteLimit {
    fn default() -> Self {
        Self::starting_at(TX_BYTES_START)
    }
}

impl ByteLimit {
    fn starting_at(limit: u64) -> Self {
        Self {
            limit,
            queued: 0,
            completed: 0,
            last_packet: 0,
            before: Interval::default(),
            slack: None,
            shrunk_at: Instant::default(),
        }
    }

    /// Bytes that may be in the device before the last packet that is let in.
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in the device.
    pub(super) const fn in_device(&self) -> u64 {
        self.queued - self.completed
    }

    /// Whether one more packet may be queued, of any size: so a device with nothing always gets
    /// one, and whoever has to wait waits for a completion.
    pub(super) const fn has_room(&self) -> bool {
        self.in_device() <= self.limit
    }

    /// A packet was given to the device, which keeps it.
    pub(super) const fn queue(&mut self, bytes: u64) {
        self.queued += bytes;
        self.last_packet = bytes;
    }

    /// The device is done with so many bytes. Call it once for all that one look has found.
    pub(super) fn complete(&mut self, now: Instant, bytes: u64) {
        debug_assert!(bytes <= self.in_device(), "more than was queued");
        let bytes = bytes.min(self.in_device());
        let over = self.in_device().saturating_sub(self.limit);
        let completed = self.completed + bytes;
        let left = self.queued - completed;
        let left_before = self.before.queued - self.completed.min(self.before.queued);
        let all_of_before = completed >= self.before.queued;

        // It ran empty while somebody waited; or it may have, between the look before and the
        // packets that followed it.
        let ran_empty = (over > 0 && left == 0) || (self.before.over > 0 && all_of_before);
        let mut limit = self.limit;
        if ran_empty {
            // By what came and went within one interval, and what was too much for the limit.
            limit += completed.saturating_sub(self.before.queued) + self.before.over;
            self.slack = None;
            self.shrunk_at = now;
        } else if left > 0 && left_before > 0 && !all_of_before {
            // Busy for the whole interval: perhaps with more than it needs.
            let of_limit = (limit + self.before.over).saturating_sub(2 * bytes);
            let of_packet = if self.before.over > 0 {
                self.before.last_packet.saturating_sub(self.before.over)
            } else {
                0
            };
            let slack = of_limit.max(of_packet);
            let least = self.slack.map_or(slack, |least| least.min(slack));
            self.slack = Some(least);
            if now.since(self.shrunk_at) > TX_BYTES_HOLD {
                limit = limit.saturating_sub(least);
                self.slack = None;
                self.shrunk_at = now;
            }
        }
        let limit = limit.min(TX_BYTES_MAX);
        self.before = Interval {
            queued: self.queued,
            // Who waited for the old limit does not for the new one.
            over: if limit == self.limit { over } else { 0 },
            last_packet: self.last_packet,
        };
        self.limit = limit;
        self.completed = completed;
    }

    /// The device was emptied by other means: a reset. What was learned stays.
    pub(super) fn empty(&mut self) {
        self.completed = self.queued;
        self.before = Interval {
            queued: self.queued,
            ..Interval::default()
        };
        self.slack = None;
    }
}

#[cfg(test)]
mod tests;
