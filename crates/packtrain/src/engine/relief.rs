//! Whether others do a worker's work, so that it need not sleep to be woken again at once.

use crate::time::Instant;
use std::time::Duration;

/// So long after producers sent a packet, they are taken to go on.
const GOES_ON: Duration = Duration::from_millis(1);
/// So long after something was received, a worker with nothing to do sleeps: its device wakes it,
/// and whoever is woken runs sooner than one that let others run.
const HEARD: Duration = Duration::from_secs(1);

/// What a worker saw of one TX queue. Where packets gather, producers drain the ring again and
/// again, and each time they leave the first packets after that to the worker. A worker that sleeps
/// then is woken for each few packets, and takes the CPU from those that would have drained them.
#[derive(Debug, Default)]
pub(super) struct Relief {
    sent: u64,
    last: Option<Instant>,
}

impl Relief {
    /// Looks at the packets sent in all, and at whether the last of them were sent by a producer
    /// that drained what had gathered.
    pub(super) fn look(&mut self, now: Instant, sent: u64, by_others: bool) -> bool {
        let changed = std::mem::replace(&mut self.sent, sent) != sent;
        if changed && by_others {
            self.last = Some(now);
        }
        self.last.is_some_and(|last| now.since(last) < GOES_ON)
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
        let mut relief = Relief::default();
        // Time in microseconds, packets sent, by others; the answer.
        for (us, sent, by_others, expected) in [
            (0, 0, true, false),
            (10, 5, false, false),
            (20, 5, true, false),
            (30, 6, true, true),
            (1_029, 6, true, true),
            (1_030, 6, true, false),
            (1_031, 7, true, true),
            // The worker's own are none of theirs.
            (1_500, 8, false, true),
            (2_031, 9, false, false),
        ] {
            let said = relief.look(at(us), sent, by_others);
            assert_eq!(said, expected, "after {us} us");
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
