//! How many bytes may sit in a device: as few as keep it busy, so that a queue is short and what
//! comes last does not wait behind megabytes.
//!
//! The idea and the rules are those of Linux's dynamic queue limits (`lib/dynamic_queue_limits.c`,
//! `dql_completed`): the limit grows when the device ran empty while more was waiting for the
//! limit, and shrinks by what was never needed for a whole second. It only makes sense where
//! completions come later than the packets, so bytes count only while a device keeps them.
//!
//! The rules compare one interval with the next, and hold where an interval is at least as long as
//! a packet is in the device. Linux has that from interrupts. A worker that polls each few
//! microseconds has not, and would take what is under way for what is too much. So polls are taken
//! together until as much time is over as a packet needs that finds the device empty, and as passes
//! between two polls of a worker that sleeps meanwhile.

use crate::limits::{TX_BYTES_HOLD, TX_BYTES_MAX, TX_BYTES_START, TX_LATENCY_MAX, TX_REST_MAX};
use crate::time::Instant;
use std::time::Duration;

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
    /// As of the end of the interval before.
    before: Interval,
    /// When this interval began: with the first poll that follows.
    began: Option<Instant>,
    /// A packet that found the device empty.
    first: Option<First>,
    /// From the first poll after a packet that found the device empty to its completion.
    latency: Option<Duration>,
    /// The least length of an interval: a worker that waits for room does not poll before.
    interval: Duration,
    /// The last poll, and how long before it there was none.
    looked: Option<Instant>,
    gap: Duration,
    /// The least that was too much since `shrunk_at`.
    slack: Option<u64>,
    shrunk_at: Option<Instant>,
}

/// A packet that found the device empty.
#[derive(Clone, Copy, Debug)]
struct First {
    /// What `completed` will be with it.
    done: u64,
    /// Of the first poll after it: the clock need not have been read when it was queued.
    seen: Option<Instant>,
}

/// What was so at the end of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    queued: u64,
    completed: u64,
    /// Bytes in the device beyond the limit: packets had to wait.
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
            began: None,
            first: None,
            latency: None,
            interval: Duration::ZERO,
            looked: None,
            gap: Duration::ZERO,
            slack: None,
            shrunk_at: None,
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
    /// one, and a packet that has to wait waits for a completion.
    pub(super) const fn has_room(&self) -> bool {
        self.in_device() <= self.limit
    }

    /// A packet was given to the device, which keeps it.
    pub(super) const fn queue(&mut self, bytes: u64) {
        if self.in_device() == 0 {
            self.began = None;
            self.first = Some(First {
                done: self.queued + bytes,
                seen: None,
            });
        }
        self.queued += bytes;
        self.last_packet = bytes;
    }

    /// The device is polled for completions. The clock may have jumped, also back.
    pub(super) fn look(&mut self, now: Instant) {
        if self.looked != Some(now) {
            self.gap = now.since(self.looked.unwrap_or(now));
            self.looked = Some(now);
        }
        self.began = Some(self.began.map_or(now, |began| began.min(now)));
        self.shrunk_at = Some(self.shrunk_at.map_or(now, |at| at.min(now)));
        if let Some(first) = &mut self.first {
            first.seen = Some(first.seen.map_or(now, |seen| seen.min(now)));
        }
    }

    /// A worker that waits for room polls no more often than this.
    pub(super) const fn look_every(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// The device is done with so many bytes. Call it once for all that one poll has found.
    pub(super) fn complete(&mut self, now: Instant, bytes: u64) {
        debug_assert!(bytes <= self.in_device(), "more than was queued");
        self.look(now);
        let over = self.in_device().saturating_sub(self.limit);
        self.completed += bytes.min(self.in_device());
        self.learn_latency(now);
        let began = self.began.unwrap_or(now);
        // Whether it has run empty is not to be seen any more once it has packets again.
        let interval = self.interval.max(self.latency.unwrap_or_default());
        if self.in_device() == 0 || now.since(began) >= interval {
            self.judge(now, over);
            self.began = Some(now);
        }
    }

    fn learn_latency(&mut self, now: Instant) {
        let Some(first) = self.first.filter(|first| first.done <= self.completed) else {
            return;
        };
        self.first = None;
        let sample = now.since(first.seen.unwrap_or(now)).min(TX_LATENCY_MAX);
        if self.gap > TX_REST_MAX && self.latency.is_none_or(|latency| sample > latency) {
            // Nothing waited for it, and it may have been done for long.
            return;
        }
        // Down at once and up slowly: what was in the way once is not the device's.
        let latency = self.latency.unwrap_or(sample);
        self.latency = Some(match sample.checked_sub(latency) {
            Some(more) => latency + more / 8,
            None => sample,
        });
    }

    /// What an interval that ends with this poll says about the limit, of which the device had
    /// `over` more before it.
    fn judge(&mut self, now: Instant, over: u64) {
        let before = self.before;
        let bytes = self.completed - before.completed;
        let left = self.in_device();
        let left_before = before.queued - before.completed;
        let all_of_before = self.completed >= before.queued;

        // It ran empty while packets waited; or it may have, between the poll before and the
        // packets that followed it.
        let ran_empty = (over > 0 && left == 0) || (before.over > 0 && all_of_before);
        let mut limit = self.limit;
        if ran_empty {
            // By what came and went within one interval, and what was too much for the limit.
            limit += self.completed.saturating_sub(before.queued) + before.over;
            self.slack = None;
            self.shrunk_at = Some(now);
        } else if left > 0 && left_before > 0 && !all_of_before {
            // Busy for the whole interval: perhaps with more than it needs.
            let of_limit = (limit + before.over).saturating_sub(2 * bytes);
            let of_packet = if before.over > 0 {
                before.last_packet.saturating_sub(before.over)
            } else {
                0
            };
            let slack = of_limit.max(of_packet);
            let least = self.slack.map_or(slack, |least| least.min(slack));
            self.slack = Some(least);
            if now.since(self.shrunk_at.unwrap_or(now)) > TX_BYTES_HOLD {
                limit = limit.saturating_sub(least);
                self.slack = None;
                self.shrunk_at = Some(now);
            }
        }
        let limit = limit.min(TX_BYTES_MAX);
        self.before = Interval {
            queued: self.queued,
            completed: self.completed,
            // Packets that waited for the old limit do not wait for the new one.
            over: if limit == self.limit { over } else { 0 },
            last_packet: self.last_packet,
        };
        self.limit = limit;
    }

    /// The device was emptied by other means: a reset. What was learned stays.
    pub(super) fn empty(&mut self) {
        self.completed = self.queued;
        self.before = Interval {
            queued: self.queued,
            completed: self.queued,
            ..Interval::default()
        };
        self.first = None;
        self.slack = None;
    }
}

#[cfg(test)]
mod tests;
