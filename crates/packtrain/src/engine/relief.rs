//! Whether others do a worker's work, so that it need not sleep to be woken again at once.

use crate::policy::idle::Relief;
use crate::time::Instant;
use std::time::Duration;

/// So long after producers sent a packet, they are taken to go on.
const GOES_ON: Duration = Duration::from_millis(1);
/// A worker that is in their way looks again after so many packets: a nap is two context switches,
/// and so they stay under 0.01 for each packet.
const PACKETS_PER_NAP: u64 = 256;
/// The shortest nap, and the longest: what producers leave when they stop waits for two of them.
const NAP_MIN: Duration = Duration::from_micros(250);
const NAP_MAX: Duration = GOES_ON;
/// So long after something was received, a worker with nothing to do sleeps: its device wakes it,
/// and whoever is woken runs sooner than one that let others run.
const HEARD: Duration = Duration::from_secs(1);

/// What a worker saw of one TX queue. Where packets gather, producers drain the ring again and
/// again, and each time they leave the first packets after that to the worker. A worker that sleeps
/// then is woken for each few packets, and takes the CPU from those that would have drained them.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    sent: u64,
    looked: Option<Instant>,
    last: Option<Instant>,
    nap: Duration,
}

impl Helpers {
    /// Looks at the packets sent in all, and at whether the last of them were sent by a producer
    /// that drained what had gathered; says whether one did since the last look.
    pub(super) fn look(&mut self, now: Instant, sent: u64, by_others: bool) -> bool {
        let packets = sent.wrapping_sub(std::mem::replace(&mut self.sent, sent));
        if packets == 0 || !by_others {
            return false;
        }
        let before = self.looked.replace(now).unwrap_or(now);
        let each = now.since(before).as_nanos() / u128::from(packets);
        let nap = u64::try_from(each * u128::from(PACKETS_PER_NAP)).unwrap_or(u64::MAX);
        self.nap = Duration::from_nanos(nap).clamp(NAP_MIN, NAP_MAX);
        self.last = Some(now);
        true
    }

    /// How much of the work producers do. `has_cpu`: there is one for the worker.
    pub(super) fn relief(&self, now: Instant, has_cpu: bool) -> Relief {
        match self.last {
            Some(last) if now.since(last) >= GOES_ON + self.nap => Relief::None,
            None => Relief::None,
            Some(_) if has_cpu => Relief::Most,
            Some(_) => Relief::InTheWay(self.nap),
        }
    }
}

/// Whether a worker receives anything.
#[derive(Debug, Default)]
pub(super) struct Heard {
    received: u64,
    last: Option<Instant>,
}

impl Heard {
    /// Looks at the packets that all RX queues received.
    pub(super) fn look(&mut self, now: Instant, received: u64) -> bool {
        if std::mem::replace(&mut self.received, received) != received {
            self.last = Some(now);
        }
        self.last.is_some_and(|last| now.since(last) < HEARD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn there_is_relief_for_as_long_as_others_send() {
        let mut helpers = Helpers::default();
        // Time in microseconds, packets sent, by others; whether one drained, and whether they are
        // taken to go on.
        for (us, sent, by_others, drained, goes_on) in [
            (0, 0, true, false, false),
            (10, 5, false, false, false),
            (20, 5, true, false, false),
            (30, 6, true, true, true),
            (40, 6, true, false, true),
            (1_279, 6, true, false, true),
            (1_280, 6, true, false, false),
            // 1.3 ms for a packet: the longest nap.
            (1_330, 7, true, true, true),
            // The worker's own are none of theirs.
            (1_500, 8, false, false, true),
            (3_329, 8, true, false, true),
            (3_330, 9, false, false, false),
        ] {
            assert_eq!(helpers.look(at(us), sent, by_others), drained, "{us} us");
            let relief = helpers.relief(at(us), true);
            assert_eq!(relief == Relief::Most, goes_on, "{us} us");
        }
    }

    /// Two context switches for a nap are under one in a hundred packets.
    #[test]
    fn naps_are_as_long_as_so_many_packets_take() {
        for (packets_per_ms, expected) in [
            (10_000, NAP_MIN),
            (1_000, Duration::from_micros(256)),
            (800, Duration::from_micros(320)),
            (300, Duration::from_nanos(853_248)),
            (10, NAP_MAX),
        ] {
            let mut helpers = Helpers::default();
            assert!(helpers.look(at(0), 1, true));
            assert!(helpers.look(at(1_000), 1 + packets_per_ms, true));
            assert_eq!(
                helpers.relief(at(1_000), false),
                Relief::InTheWay(expected),
                "{packets_per_ms}"
            );
        }
    }

    #[test]
    fn what_was_received_is_remembered_for_a_second() {
        let mut heard = Heard::default();
        for (us, received, expected) in [
            (0, 0, false),
            (1, 3, true),
            (1_000_000, 3, true),
            (1_000_001, 3, false),
            (1_000_002, 4, true),
        ] {
            let said = heard.look(at(us), received);
            assert_eq!(said, expected, "after {us} us");
        }
    }
}
