//! The limit of bytes in a device: as few as keep it busy, so that the queue is short and a new
//! packet does not wait behind megabytes.
//!
//! The rules are those of Linux's dynamic queue limits (`lib/dynamic_queue_limits.c`,
//! `dql_completed`). The limit grows if the device ran empty while packets waited for the limit. It
//! shrinks by the bytes that were not needed for a whole second. Only asynchronous devices have a
//! limit: bytes count while a device keeps their packet.
//!
//! The rules compare consecutive intervals. An interval has to be at least as long as a packet is
//! in the device, which Linux's interrupts ensure. With a poll each few microseconds, packets on
//! their way would seem to be too many. So an interval joins polls until two times are over: the
//! latency of a packet that finds the device empty, and the rest of a full device.

use crate::limits::{TX_BYTES_HOLD, TX_BYTES_MAX, TX_BYTES_START, TX_LATENCY_MAX, TX_REST_MAX};
use crate::time::Instant;
use std::time::Duration;

/// The state machine. From the bytes queued and completed it decides whether more may be queued.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteLimit {
    limit: u64,
    /// Bytes given to the device since the start.
    queued: u64,
    /// Bytes completed since the start.
    completed: u64,
    /// Bytes of the packet that was queued last.
    last_packet: u64,
    /// The end of the previous interval.
    before: Interval,
    /// The start of this interval: its first poll.
    began: Option<Instant>,
    /// The last packet that found the device empty, until it completes.
    first: Option<First>,
    /// From the first poll after such a packet to its completion.
    latency: Option<Duration>,
    /// The least length of an interval: a worker that waits for room does not poll before.
    interval: Duration,
    /// The last poll.
    polled_at: Option<Instant>,
    /// The time between the last two polls.
    gap: Duration,
    /// The fewest excess bytes since `shrunk_at`.
    slack: Option<u64>,
    shrunk_at: Option<Instant>,
}

/// A packet that found the device empty.
#[derive(Clone, Copy, Debug)]
struct First {
    /// The value of `completed` when it has completed.
    completed: u64,
    /// The first poll after it: the caller may not have read the clock when it was queued.
    polled_at: Option<Instant>,
}

/// The values at the end of an interval.
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
            polled_at: None,
            gap: Duration::ZERO,
            slack: None,
            shrunk_at: None,
        }
    }

    /// The limit: the most bytes in the device at which one more packet may be queued.
    #[cfg(test)]
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in the device.
    pub(super) const fn in_device(&self) -> u64 {
        self.queued - self.completed
    }

    /// Whether one more packet may be queued behind so many bytes, of any size. An empty device
    /// always gets one, so a packet that has to wait waits for a completion.
    pub(super) const fn has_room_behind(&self, bytes: u64) -> bool {
        self.in_device() + bytes <= self.limit
    }

    /// The device has accepted a packet and completes it later.
    pub(super) const fn queue(&mut self, bytes: u64) {
        if self.in_device() == 0 {
            self.began = None;
            self.first = Some(First {
                completed: self.queued + bytes,
                polled_at: None,
            });
        }
        self.queued += bytes;
        self.last_packet = bytes;
    }

    /// The device is polled for completions. The clock may have jumped, also back.
    pub(super) fn observe_poll(&mut self, now: Instant) {
        if self.polled_at != Some(now) {
            self.gap = now.since(self.polled_at.unwrap_or(now));
            self.polled_at = Some(now);
        }
        self.began = Some(self.began.map_or(now, |began| began.min(now)));
        self.shrunk_at = Some(self.shrunk_at.map_or(now, |at| at.min(now)));
        if let Some(first) = &mut self.first {
            first.polled_at = Some(first.polled_at.map_or(now, |at| at.min(now)));
        }
    }

    /// Sets the time between the polls of a worker that waits for room.
    pub(super) const fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// One poll has found completions of `bytes` in total.
    pub(super) fn complete(&mut self, now: Instant, bytes: u64) {
        debug_assert!(bytes <= self.in_device(), "more than was queued");
        self.observe_poll(now);
        let over = self.in_device().saturating_sub(self.limit);
        self.completed += bytes.min(self.in_device());
        self.update_latency(now);
        let began = self.began.unwrap_or(now);
        // An empty device ends the interval: the next packets hide that it ran empty.
        let interval = self.interval.max(self.latency.unwrap_or_default());
        if self.in_device() == 0 || now.since(began) >= interval {
            self.update_limit(now, over);
            self.began = Some(now);
        }
    }

    fn update_latency(&mut self, now: Instant) {
        let Some(first) = self.first.filter(|first| first.completed <= self.completed) else {
            return;
        };
        self.first = None;
        let sample = now
            .since(first.polled_at.unwrap_or(now))
            .min(TX_LATENCY_MAX);
        if self.gap > TX_REST_MAX && self.latency.is_none_or(|latency| sample > latency) {
            // No worker polled meanwhile, so the packet may have completed long before.
            return;
        }
        // Down at once and up slowly: a single delay is not the device's latency.
        let latency = self.latency.unwrap_or(sample);
        self.latency = Some(match sample.checked_sub(latency) {
            Some(more) => latency + more / 8,
            None => sample,
        });
    }

    /// Updates the limit after an interval that ends with this poll. Before the poll the device had
    /// `over` bytes more than the limit.
    fn update_limit(&mut self, now: Instant, over: u64) {
        let before = self.before;
        let bytes = self.completed - before.completed;
        let left = self.in_device();
        let left_before = before.queued - before.completed;
        let all_of_before = self.completed >= before.queued;

        // The device ran empty while packets waited; or it may have done so between the previous
        // poll and the packets that followed.
        let ran_empty = (over > 0 && left == 0) || (before.over > 0 && all_of_before);
        let mut limit = self.limit;
        if ran_empty {
            // By the bytes queued and completed within this interval, and those over the limit.
            limit += self.completed.saturating_sub(before.queued) + before.over;
            self.slack = None;
            self.shrunk_at = Some(now);
        } else if left > 0 && left_before > 0 && !all_of_before {
            // Busy for the whole interval, perhaps with more bytes than it needs.
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

    /// The device was reset and is empty. The limit and the latency stay.
    pub(super) fn reset(&mut self) {
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
