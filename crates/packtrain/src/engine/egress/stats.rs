//! What can be known of a TX queue without being its consumer, and what its producers count.

use crate::driver::Features;
use crate::stats::{Counter, SubmitCounters, SubmitSnapshot, TroubleLog, TxSnapshot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one TX queue and the ring in front of it show to everybody.
#[derive(Debug, Default)]
pub struct EgressStats {
    /// Written by the consumer of the ring before it leaves.
    pub(super) shown: Shown,
    producers: Mutex<Producers>,
    /// Written when something is found, which is never but when a device stands still.
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
    /// 1 when it was an application's thread that gave packets to the device last.
    pub(super) by_handle: Counter,
    /// Offloads that the device is still trusted with, as [`Features::bits`].
    pub(super) features: Counter,
    /// Offloads that it refused on legal packets.
    pub(super) refused: Counter,
}

/// Those that submit to the queue, with a block of counters each.
#[derive(Debug, Default)]
struct Producers {
    here: Vec<Arc<SubmitCounters>>,
    /// What those counted that are gone.
    gone: SubmitSnapshot,
}

/// A copy of [`EgressStats`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct EgressSnapshot {
    pub(in crate::engine) producers: SubmitSnapshot,
    /// Wire packets in the ring and behind it.
    pub(in crate::engine) held: u64,
    pub(in crate::engine) refused: Features,
    pub(in crate::engine) troubles: TroubleLog,
}

impl EgressSnapshot {
    /// Adds what the producers counted to what the queue did.
    pub(in crate::engine) const fn add_to(&self, tx: &mut TxSnapshot) {
        tx.ring_full += self.producers.ring_full;
        tx.abdications += self.producers.abdications;
        tx.direct += self.producers.direct;
        tx.deferred += self.producers.deferred;
        tx.wakeups += self.producers.wakeups;
        tx.syscalls += self.producers.wakeups;
    }
}

impl EgressStats {
    fn producers(&self) -> MutexGuard<'_, Producers> {
        // Numbers only: there is nothing that a panic could leave half done.
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

    /// The producer of this block is gone.
    pub(super) fn leave(&self, counters: &Arc<SubmitCounters>) {
        let mut producers = self.producers();
        producers.here.retain(|other| !Arc::ptr_eq(other, counters));
        producers.gone.merge(&counters.snapshot());
    }

    /// Whether a producer is in the middle of a submission.
    pub(super) fn anybody_inside(&self) -> bool {
        self.producers().here.iter().any(|block| block.is_open())
    }

    /// Wire packets in the ring and behind it that no device has accepted.
    pub(in crate::engine) fn snapshot(&self) -> EgressSnapshot {
        // In this order a packet that moves meanwhile is not seen twice as taken.
        let (taken, held) = (self.shown.taken.get(), self.shown.held.get());
        let producers = self.producers();
        let mut sum = producers.gone;
        for block in &producers.here {
            sum.merge(&block.snapshot());
        }
        EgressSnapshot {
            producers: sum,
            held: sum.ring_wire_packets.saturating_sub(taken) + held,
            refused: Features::from_bits(self.shown.refused.get()),
            troubles: *self.troubles(),
        }
    }
}
