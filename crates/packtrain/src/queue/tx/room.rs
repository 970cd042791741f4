//! How long a full device is left alone: until it has room for many packets, and not for one.
//!
//! A queue that goes on with each completion wakes its worker for each, and then a slow device
//! costs two context switches a packet. Drivers therefore start a stopped queue only once it has
//! room for more than one packet of the worst kind, or for a quarter of a ring. A device that can
//! count is asked to say so ([`TxDescriptors::arm_for`]). Any other one is not asked: the time that
//! it needs for so many packets is learned, and the worker polls it after that time.
//!
//! A rest without any completion is the last one: then the device is asked to wake the worker with
//! the first, so that a device that pauses, or is stalled, is not polled again and again.
//!
//! [`TxDescriptors::arm_for`]: crate::driver::TxDescriptors::arm_for

use crate::limits::{TX_REST_MAX, TX_REST_PACKETS};
use crate::time::Instant;
use std::time::Duration;

/// The state machine: from what the device is done with at each poll it says how long to rest.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The device can say when it is done with so many packets.
    pub(super) counts: bool,
    /// Nanoseconds that it needs for a packet, and for a wire packet.
    pace: Option<[u64; 2]>,
    mark: Option<Mark>,
    rest: Option<Rest>,
}

/// A poll that left packets in the device.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    done: Done,
    /// Packets that the device had after it.
    in_flight: u64,
}

/// What the device is done with, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) packets: u64,
    pub(super) wire_packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    /// As of its beginning.
    packets: u64,
}

impl Room {
    /// The device was polled: it is `done` with so much, and has `in_flight` left.
    pub(super) fn look(&mut self, now: Instant, done: Done, in_flight: u64) {
        if let Some(mark) = self.mark {
            if now >= mark.at && (now == mark.at || done == mark.done) {
                // A step has one time, in which more may be done: what was at its beginning counts.
                return;
            }
            self.learn(now.since(mark.at), done, mark);
        }
        if in_flight == 0 {
            return self.forget();
        }
        self.mark = Some(Mark {
            at: now,
            done,
            in_flight,
        });
    }

    fn learn(&mut self, took: Duration, done: Done, since: Mark) {
        let packets = done.packets - since.done.packets;
        let wire_packets = done.wire_packets - since.done.wire_packets;
        let took = took.as_nanos() as u64;
        // Not from a clock that went back.
        if took == 0 || packets == 0 {
            return;
        }
        let sample = [packets, wire_packets.max(1)].map(|n| took / n);
        // A device that was done with all that it had may have been idle for a while.
        let was_busy = packets < since.in_flight;
        self.pace = match self.pace {
            None => was_busy.then_some(sample),
            Some(pace) => Some([0, 1].map(|i| {
                let (old, new) = (pace[i], sample[i]);
                if was_busy {
                    // By a quarter at most: a device that paused was not slow.
                    old - old / 4 + new.min(2 * old + 4) / 4
                } else {
                    old.min(new)
                }
            })),
        };
    }

    /// The device has taken all that it could in this step, as of when it has `in_flight`, and is
    /// to be left alone until it is done with `wanted`.
    pub(super) fn fill(&mut self, now: Instant, in_flight: u64, wanted: u64) {
        let Some(mark) = self.mark.as_mut().filter(|mark| mark.at == now) else {
            // It is not known when it got them.
            return self.begin(now, None);
        };
        mark.in_flight = in_flight;
        let time = |[each, _]: [u64; 2]| Duration::from_nanos(each.saturating_mul(wanted));
        self.begin(now, self.pace.map(time).filter(|_| wanted > 1));
    }

    /// The device has many packets, and nothing waits for it.
    pub(super) fn keep(&mut self, now: Instant) {
        self.begin(now, Some(TX_REST_MAX));
    }

    fn begin(&mut self, now: Instant, time: Option<Duration>) {
        let packets = self.mark.map_or(0, |mark| mark.done.packets);
        if self.rest.is_some_and(|rest| rest.packets == packets) {
            return;
        }
        self.rest = time.map(|time| Rest {
            until: now.after(time.min(TX_REST_MAX)),
            packets,
        });
    }

    /// Nothing waits for the device any more.
    pub(super) const fn end(&mut self) {
        self.rest = None;
    }

    /// The device has nothing any more.
    pub(super) const fn forget(&mut self) {
        self.mark = None;
        self.rest = None;
    }

    /// When to poll again, if not now.
    pub(super) fn rests_until(&self, now: Instant) -> Option<Instant> {
        let until = self.rest.map(|rest| rest.until)?;
        // A clock that went back does not make it longer.
        let until = until.min(now.after(TX_REST_MAX));
        (now < until).then_some(until)
    }

    /// How long it takes until a poll is worth a context switch.
    pub(super) fn interval(&self) -> Duration {
        let each = self.pace.map_or(0, |[_, each]| each);
        Duration::from_nanos(each.saturating_mul(TX_REST_PACKETS)).min(TX_REST_MAX)
    }
}

#[cfg(test)]
mod tests;
