//! What other threads can know of a TX queue and of a lane.

use crate::driver::Features;
use crate::stats::{Counter, SubmitCounters, SubmitSnapshot, TroubleLog, TxSnapshot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the lanes of one direction count besides their queues. One writer: their worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct LaneCounters {
    /// Wire packets that handlers took.
    pub(super) delivered: Counter,
    /// Wire packets that handlers made.
    pub(super) generated: Counter,
    /// Wire packets received and not passed to a TX path yet, as of the end of the last step.
    pub(super) held: Counter,
}

/// What one TX path shows to other threads: the queue, and the ring in front of a shared one.
#[derive(Debug, Default)]
pub(super) struct PathStats {
    /// Written by the owner of the queue: the RX worker, or the consumer of the ring.
    pub(super) shown: Shown,
    producers: Mutex<Producers>,
    /// Written when the watchdog of the queue finds something.
    troubles: Mutex<TroubleLog>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Shown {
    /// Wire packets taken out of the ring's slots.
    pub(super) taken: Counter,
    /// Wire packets behind the ring that the device did not accept yet.
    pub(super) held: Counter,
    /// Packets that the device still reads from.
    pub(super) in_flight: Counter,
    /// Offloads that the device is still trusted with, as [`Features::bits`].
    pub(super) features: Counter,
    /// Offloads that it refused on legal packets.
    pub(super) refused: Counter,
}

/// The producers of a shared queue, with a block of counters each.
#[derive(Debug, Default)]
struct Producers {
    here: Vec<Arc<SubmitCounters>>,
    /// The sum of those that have ended.
    gone: SubmitSnapshot,
}

/// A copy of [`PathStats`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathSnapshot {
    pub(super) producers: SubmitSnapshot,
    /// Wire packets in the ring and behind it.
    pub(super) held: u64,
    pub(super) refused: Features,
    pub(super) troubles: TroubleLog,
}

impl PathSnapshot {
    /// Adds what the producers counted to what the queue did.
    pub(super) const fn add_to(&self, tx: &mut TxSnapshot) {
        tx.ring_full += self.producers.ring_full;
        tx.abdications += self.producers.abdications;
        tx.direct += self.producers.direct;
        tx.deferred += self.producers.deferred;
        tx.wakeups += self.producers.wakeups;
        tx.syscalls += self.producers.wakeups;
    }
}

impl PathStats {
    fn producers(&self) -> MutexGuard<'_, Producers> {
        // Numbers only: a panic leaves nothing half done.
        self.producers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the watchdog of the queue has found.
    pub(super) fn troubles(&self) -> MutexGuard<'_, TroubleLog> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block for one more producer, and how many there are now.
    pub(super) fn enter(&self) -> (Arc<SubmitCounters>, usize) {
        let counters = Arc::new(SubmitCounters::default());
        let mut producers = self.producers();
        producers.here.push(Arc::clone(&counters));
        (counters, producers.here.len())
    }

    /// The producer of this block has ended.
    pub(super) fn leave(&self, counters: &Arc<SubmitCounters>) {
        let mut producers = self.producers();
        producers.here.retain(|other| !Arc::ptr_eq(other, counters));
        producers.gone.merge(&counters.snapshot());
    }

    /// A copy of everything.
    pub(super) fn snapshot(&self) -> PathSnapshot {
        // In this order a packet that moves meanwhile is not counted twice as taken.
        let (taken, held) = (self.shown.taken.get(), self.shown.held.get());
        let producers = self.producers();
        let mut sum = producers.gone;
        for block in &producers.here {
            sum.merge(&block.snapshot());
        }
        PathSnapshot {
            producers: sum,
            held: sum.ring_wire_packets.saturating_sub(taken) + held,
            refused: Features::from_bits(self.shown.refused.get()),
            troubles: *self.troubles(),
        }
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_producer_counted_outlives_it() {
        let stats = PathStats::default();
        let (first, _) = stats.enter();
        let (second, producers) = stats.enter();
        assert_eq!(producers, 2);
        first.generated.add(3);
        first.ring_wire_packets.add(3);
        second.generated.add(4);
        second.ring_wire_packets.add(4);
        stats.shown.taken.add(2);
        stats.leave(&first);
        let snapshot = stats.snapshot();
        assert_eq!((snapshot.producers.generated, snapshot.held), (7, 5));
    }
}
