//! The state of TX queues and lanes that other threads read.

use crate::driver::Features;
use crate::limits::EGRESS_FRAME_BYTES_MAX;
use crate::plant::planted;
use crate::stats::{Counter, SubmitCounters, SubmitSnapshot, TroubleLog, TxSnapshot};
use crate::sync::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counters of the lanes of one direction, without those of their queues. Only their worker
/// writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct LaneCounters {
    /// Wire packets that handlers took out of bursts.
    pub(super) delivered: Counter,
    /// Wire packets that handlers put into bursts.
    pub(super) generated: Counter,
    /// Wire packets of the clones that were made for further egress ports.
    pub(super) cloned: Counter,
    /// At the end of the last step: wire packets received that no TX path has accepted yet.
    pub(super) held: Counter,
}

/// The published state of one TX path: of the queue, and of the ring in front of a shared queue.
#[derive(Debug, Default)]
pub(super) struct PathStats {
    /// Written by the owner of the queue: the RX worker, or the consumer of the ring.
    pub(super) shown: Shown,
    /// Bytes of the frames of all packets that wait for the queue, in a session among several
    /// ports: those of its ring and those behind it.
    frame_bytes: AtomicU64,
    producers: Mutex<Producers>,
    /// The findings of the queue's watchdog.
    troubles: Mutex<TroubleLog>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Shown {
    /// Wire packets taken out of the ring's slots.
    pub(super) taken: Counter,
    /// Wire packets behind the ring that the device has not accepted yet.
    pub(super) held: Counter,
    /// Packets in flight: the device has not completed them.
    pub(super) in_flight: Counter,
    /// Offloads that the device does and has not refused, as [`Features::bits`].
    pub(super) features: Counter,
    /// Offloads that the device refused for legal packets, as [`Features::bits`].
    pub(super) refused: Counter,
}

/// The producers of a shared queue. Each has a block of counters.
#[derive(Debug, Default)]
struct Producers {
    here: Vec<Arc<SubmitCounters>>,
    /// The sum of the blocks of producers that have ended.
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
    /// Adds the counts of the producers to the counters of the queue.
    pub(super) const fn add_to(&self, tx: &mut TxSnapshot) {
        tx.ring_full += self.producers.ring_full;
        tx.egress_full += self.producers.egress_full;
        tx.abdications += self.producers.abdications;
        tx.direct += self.producers.direct;
        tx.deferred += self.producers.deferred;
        tx.wakeups += self.producers.wakeups;
        tx.syscalls += self.producers.wakeups;
    }
}

impl PathStats {
    fn producers(&self) -> MutexGuard<'_, Producers> {
        // The data consists of numbers only, so a panic cannot leave it inconsistent.
        self.producers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `bytes` of frames of packets that will wait for the queue. Returns all that wait.
    pub(super) fn add_frames(&self, bytes: u64) -> u64 {
        self.frame_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// As [`add_frames`](Self::add_frames); false if all that wait would exceed
    /// [`EGRESS_FRAME_BYTES_MAX`].
    pub(super) fn charge(&self, bytes: u64) -> bool {
        let all = self.add_frames(bytes);
        let fits = all <= EGRESS_FRAME_BYTES_MAX as u64 || planted!(FramesUnbounded);
        if !fits {
            self.discharge(bytes);
        }
        fits
    }

    /// Whether as many bytes would be counted now.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.frame_bytes.load(Ordering::Relaxed) + bytes <= EGRESS_FRAME_BYTES_MAX as u64
    }

    /// Counts `bytes` of frames of packets that do not wait for the queue any more.
    pub(super) fn discharge(&self, bytes: u64) {
        self.frame_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The findings of the queue's watchdog.
    pub(super) fn troubles(&self) -> MutexGuard<'_, TroubleLog> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a producer. Returns its block of counters, and the number of producers.
    pub(super) fn enter(&self) -> (Arc<SubmitCounters>, usize) {
        let counters = Arc::new(SubmitCounters::default());
        let mut producers = self.producers();
        producers.here.push(Arc::clone(&counters));
        (counters, producers.here.len())
    }

    /// Deregisters the producer of this block.
    pub(super) fn leave(&self, counters: &Arc<SubmitCounters>) {
        let mut producers = self.producers();
        producers.here.retain(|other| !Arc::ptr_eq(other, counters));
        producers.gone.merge(&counters.snapshot());
    }

    /// Times that producers woke the TX worker.
    #[cfg(feature = "internals")]
    pub(super) fn wakeups(&self) -> u64 {
        let producers = self.producers();
        let here = producers.here.iter().map(|block| block.wakeups.get());
        producers.gone.wakeups + here.sum::<u64>()
    }

    /// A copy of everything.
    pub(super) fn snapshot(&self) -> PathSnapshot {
        // In this order the packets taken never exceed those submitted, though packets move
        // meanwhile.
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
    fn the_counts_of_a_producer_outlive_it() {
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
