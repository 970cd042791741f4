//! Whether others do a worker's work, so that it need not sleep and be woken again at once.

use crate::policy::idle::Relief;
use crate::time::Instant;
use std::time::Duration;

/// So long after a producer was seen to drain, and a nap more, they are taken to go on.
const GOES_ON: Duration = Duration::from_millis(1);
/// A worker that is in their way looks again after so many packets: a nap is two context switches,
/// and so they stay under 0.01 for each packet. Where so many take longer than [`NAP_MAX`] it does
/// not nap.
const PACKETS_PER_NAP: u64 = 256;
/// The shortest nap, and the longest: what producers leave when they stop waits for two of them.
const NAP_MIN: Duration = Duration::from_micros(250);
const NAP_MAX: Duration = Duration::from_millis(1);
/// How fast packets are sent is found out over so long at least.
const RATE_OVER: Duration = Duration::from_micros(100);
/// So long after something was received, a worker with nothing to do sleeps: its device wakes it,
/// and whoever is woken runs sooner than one that let others run.
const HEARD: Duration = Duration::from_secs(1);

/// The applications that submit to a worker's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// How much of its work they do.
    pub relief: Relief,
    /// How many threads they are, as each handle counts as one, and one behind a device that the
    /// worker receives from; `None` where nobody has a handle, so that it is not known who makes
    /// the packets.
    pub producers: Option<u32>,
}

/// What a worker saw of one TX queue. Where packets gather, producers drain the ring again and
/// again, and each time they leave the first packets after that to the worker. A worker that sleeps
/// then is woken for each few packets, and takes the CPU from those that would have drained them.
#[derive(Debug, Default)]
pub(super) struct Helpers {
    sent: u64,
    /// When a producer was last seen to have drained.
    last: Option<Instant>,
    /// When the time was taken, and packets sent by then.
    timed: Option<(Instant, u64)>,
    /// How long [`PACKETS_PER_NAP`] took; not known at first.
    time: Option<Duration>,
}

impl Helpers {
    /// Looks at the packets sent in all, and at whether the last of them were sent by a producer
    /// that drained what had gathered; says whether one did since the last look.
    pub(super) fn look(&mut self, now: Instant, sent: u64, by_others: bool) -> bool {
        let packets = sent.wrapping_sub(std::mem::replace(&mut self.sent, sent));
        if packets == 0 || !by_others {
            return false;
        }
        self.last = Some(now);
        let (begin, before) = *self.timed.get_or_insert((now, sent));
        if now.since(begin) >= RATE_OVER {
            let ns = now.since(begin).as_nanos() * u128::from(PACKETS_PER_NAP);
            let ns = ns / u128::from(sent.wrapping_sub(before).max(1));
            self.time = Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)));
            self.timed = Some((now, sent));
        }
        true
    }

    /// How much of the work producers do. `has_cpu`: there is one for the worker.
    pub(super) fn relief(&self, now: Instant, has_cpu: bool) -> Relief {
        let nap = self.time.map(|time| time.max(NAP_MIN));
        let nap = nap.filter(|nap| *nap <= NAP_MAX);
        let goes_on = GOES_ON + nap.unwrap_or_default();
        match (self.last, nap) {
            (None, _) => Relief::None,
            (Some(last), _) if now.since(last) >= goes_on => Relief::None,
            (Some(_), Some(nap)) if !has_cpu => Relief::InTheWay(nap),
            (Some(_), _) => Relief::Most,
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
            (1_029, 6, true, false, true),
            (1_030, 6, true, false, false),
            (1_330, 7, true, true, true),
            // The worker's own are none of theirs.
            (1_500, 8, false, false, true),
            (2_329, 8, true, false, true),
            (2_330, 9, false, false, false),
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
            (10_000, Relief::InTheWay(NAP_MIN)),
            (1_000, Relief::InTheWay(Duration::from_micros(256))),
            (800, Relief::InTheWay(Duration::from_micros(320))),
            (256, Relief::InTheWay(NAP_MAX)),
            // A nap would be as long as the packets take that gather: what it finds is theirs again
            // and again.
            (255, Relief::Most),
            (10, Relief::Most),
        ] {
            let mut helpers = Helpers::default();
            assert!(helpers.look(at(0), 1, true));
            assert_eq!(helpers.relief(at(0), false), Relief::Most, "not known");
            assert!(helpers.look(at(1_000), 1 + packets_per_ms, true));
            // Two looks in a row say nothing of how fast it goes.
            assert!(helpers.look(at(1_001), 2 + packets_per_ms, true));
            let relief = helpers.relief(at(1_001), false);
            assert_eq!(relief, expected, "{packets_per_ms}");
            assert_eq!(helpers.relief(at(1_001), true), Relief::Most);
            let Relief::InTheWay(nap) = expected else {
                continue;
            };
            let end = at(1_001).after(GOES_ON).after(nap);
            assert_eq!(helpers.relief(end, false), Relief::None);
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
