//! Whether others do a worker's work, so that it need not sleep to be woken again at once.

use crate::time::Instant;
use std::time::Duration;

/// So long after the last packet that producers sent, they are taken to go on.
const GOES_ON: Duration = Duration::from_millis(1);
/// So long after something was received, a worker with nothing to do sleeps: its device wakes it,
/// and whoever is woken runs sooner than one that let others run.
const HEARD: Duration = Duration::from_secs(1);

/// What a worker saw of its queues. Where packets gather, producers drain the ring again and again,
/// and each time they leave the first packets after that to the worker. A worker that sleeps then
/// is woken for each few packets, and takes the CPU from those that would have drained them.
#[derive(Debug, Default)]
pub(super) struct Relief {
    received: u64,
    sent: u64,
    heard: Option<Instant>,
    told: Option<Instant>,
}

impl Relief {
    /// Looks at the packets that all RX queues received and that all TX queues sent, in all, and at
    /// whether packets gather for any of these.
    pub(super) fn look(&mut self, now: Instant, received: u64, sent: u64, gathers: bool) -> bool {
        if std::mem::replace(&mut self.received, received) != received {
            self.heard = Some(now);
        }
        if std::mem::replace(&mut self.sent, sent) != sent {
            self.told = Some(now);
        }
        let within = |time: Option<Instant>, long| time.is_some_and(|time| now.since(time) < long);
        gathers && within(self.told, GOES_ON) && !within(self.heard, HEARD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_while_others_send_what_gathers_and_nothing_is_received() {
        const MS: u64 = 1_000_000;
        let mut relief = Relief::default();
        // Time in microseconds, received, sent, gathers; the answer.
        for (us, received, sent, gathers, expected) in [
            (0, 0, 0, true, false),
            (10, 0, 5, false, false),
            (20, 0, 5, true, true),
            (1_009, 0, 5, true, true),
            (1_010, 0, 5, true, false),
            (1_011, 0, 6, true, true),
            (1_012, 1, 7, true, false),
            (900_000, 1, 8, true, false),
            (1_001_011, 1, 9, true, false),
            (1_001_012, 1, 10, true, true),
            (1_001_013, 1, 11, false, false),
        ] {
            let now = Instant::from_nanos(us * MS / 1_000);
            let said = relief.look(now, received, sent, gathers);
            assert_eq!(said, expected, "after {us} us");
        }
    }
}
