//! The rest of a full device: the time without polls until it has room for many packets.
//!
//! If a queue continued with each completion, its worker would wake up for each, and a slow device
//! would cost two context switches a packet. Drivers therefore restart a stopped queue only once it
//! has room for more than one packet of the largest kind, or for a quarter of a ring. A device that
//! counts completions raises its interrupt after that many ([`TxDescriptors::arm_for`]). For any
//! other device the queue estimates the time for that many packets, and polls after that time.
//!
//! After a rest without a completion there is no further one: the queue arms the device for the
//! first completion, so that a paused or stalled device is not polled repeatedly.
//!
//! [`TxDescriptors::arm_for`]: crate::driver::TxDescriptors::arm_for

use crate::limits::{TX_REST_MAX, TX_REST_PACKETS};
use crate::time::Instant;
use std::time::Duration;

/// The state machine. From the completions of each poll it computes the length of a rest.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The device counts completions: it raises its interrupt after a given number.
    pub(super) counts: bool,
    /// Nanoseconds that the device needs for a packet, and for a wire packet.
    pace: Option<[u64; 2]>,
    last: Option<Poll>,
    rest: Option<Rest>,
}

/// A poll after which packets were in flight.
#[derive(Clone, Copy, Debug)]
struct Poll {
    at: Instant,
    totals: Totals,
    in_flight: u64,
}

/// Completed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) packets: u64,
    pub(super) wire_packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    /// [`Totals::packets`] at its start.
    packets: u64,
}

impl Room {
    /// The device was polled: it has completed `totals`, and `in_flight` packets remain.
    pub(super) fn observe(&mut self, now: Instant, totals: Totals, in_flight: u64) {
        if let Some(last) = self.last {
            if now >= last.at && (now == last.at || totals == last.totals) {
                // All polls of a step have the same time. The first one counts.
                return;
            }
            self.update_pace(now.since(last.at), totals, last);
        }
        if in_flight == 0 {
            return self.clear();
        }
        self.last = Some(Poll {
            at: now,
            totals,
            in_flight,
        });
    }

    fn update_pace(&mut self, took: Duration, totals: Totals, last: Poll) {
        let packets = totals.packets - last.totals.packets;
        let wire_packets = totals.wire_packets - last.totals.wire_packets;
        let took = took.as_nanos() as u64;
        // 0 if the clock went back.
        if took == 0 || packets == 0 {
            return;
        }
        let sample = [packets, wire_packets.max(1)].map(|n| took / n);
        // A device that has completed all its packets may have been idle for a part of the time.
        let was_busy = packets < last.in_flight;
        self.pace = match self.pace {
            None => was_busy.then_some(sample),
            Some(pace) => Some([0, 1].map(|i| {
                let (old, new) = (pace[i], sample[i]);
                if was_busy {
                    // Up by a quarter at most: a pause of the device is not its pace.
                    old - old / 4 + new.min(2 * old + 4) / 4
                } else {
                    old.min(new)
                }
            })),
        };
    }

    /// The device is full, with `in_flight` packets: starts a rest until it has completed `wanted`.
    pub(super) fn rest_until_room(&mut self, now: Instant, in_flight: u64, wanted: u64) {
        let Some(last) = self.last.as_mut().filter(|last| last.at == now) else {
            // The time when the device got its packets is unknown.
            return self.start_rest(now, None);
        };
        last.in_flight = in_flight;
        let time = |[each, _]: [u64; 2]| Duration::from_nanos(each.saturating_mul(wanted));
        self.start_rest(now, self.pace.map(time).filter(|_| wanted > 1));
    }

    /// The device has many packets, and no packet waits for it: starts a rest of the full length.
    pub(super) fn rest_fully(&mut self, now: Instant) {
        self.start_rest(now, Some(TX_REST_MAX));
    }

    fn start_rest(&mut self, now: Instant, time: Option<Duration>) {
        let packets = self.last.map_or(0, |last| last.totals.packets);
        if self.rest.is_some_and(|rest| rest.packets == packets) {
            return;
        }
        self.rest = time.map(|time| Rest {
            until: now.after(time.min(TX_REST_MAX)),
            packets,
        });
    }

    /// No packet waits for the device.
    pub(super) const fn end_rest(&mut self) {
        self.rest = None;
    }

    /// No packet is in flight.
    pub(super) const fn clear(&mut self) {
        self.last = None;
        self.rest = None;
    }

    /// When to poll again, if not now.
    pub(super) fn rests_until(&self, now: Instant) -> Option<Instant> {
        let until = self.rest.map(|rest| rest.until)?;
        // If the clock went back, the rest is not longer.
        let until = until.min(now.after(TX_REST_MAX));
        (now < until).then_some(until)
    }

    /// The time until enough packets have completed for a poll to be worth a context switch.
    pub(super) fn interval(&self) -> Duration {
        let each = self.pace.map_or(0, |[_, each]| each);
        Duration::from_nanos(each.saturating_mul(TX_REST_PACKETS)).min(TX_REST_MAX)
    }
}

#[cfg(test)]
mod tests;
