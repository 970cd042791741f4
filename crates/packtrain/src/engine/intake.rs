//! The intake of a run. Workers receive until a stop, until the packet limit is reached, or until
//! the input ends.

use crate::runtime::{Notifier, Wakeup};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shared by the workers of one run.
#[derive(Debug)]
pub(super) struct Intake {
    stopped: AtomicBool,
    /// All workers of the run. A stop notifies them.
    workers: Vec<Arc<Wakeup>>,
    /// The packet limit of the run; `u64::MAX` for none.
    limit: u64,
    /// Packets of the limit that no worker has claimed.
    left: AtomicU64,
    /// Packets received. Not the limit less `left`: a worker may give back a part of its claim.
    used: AtomicU64,
    /// RX queues whose input ends by itself and has not ended yet.
    finite: AtomicUsize,
    /// A worker has ended.
    ended: AtomicBool,
    /// Notified when the first worker has ended.
    over: Arc<dyn Notifier>,
}

impl Intake {
    /// The intake of at most `packets` packets (a GSO packet is one). If `finite_queues` is not 0,
    /// it also stops after so many RX queues have reached the end of their input.
    pub(super) fn new(
        packets: Option<u64>,
        finite_queues: usize,
        workers: Vec<Arc<Wakeup>>,
        over: Arc<dyn Notifier>,
    ) -> Self {
        Self {
            stopped: AtomicBool::new(packets == Some(0)),
            workers,
            limit: packets.unwrap_or(u64::MAX),
            left: AtomicU64::new(packets.unwrap_or(u64::MAX)),
            used: AtomicU64::new(0),
            finite: AtomicUsize::new(finite_queues),
            ended: AtomicBool::new(false),
            over,
        }
    }

    /// Stops intake and notifies all workers. They send the packets that they hold, and end.
    pub(super) fn stop(&self) {
        if !self.stopped.swap(true, Ordering::AcqRel) {
            for worker in &self.workers {
                worker.notify();
            }
        }
    }

    /// Whether intake has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Claims up to `wanted` packets of the limit. Returns how many the worker may receive.
    pub(super) fn claim(&self, wanted: usize) -> usize {
        if self.is_stopped() {
            return 0;
        }
        if self.limit == u64::MAX {
            return wanted;
        }
        let wanted = wanted as u64;
        let take = |left: u64| left - left.min(wanted);
        let before = self.left.update(Ordering::AcqRel, Ordering::Acquire, take);
        before.min(wanted) as usize
    }

    /// Ends a claim of which `used` packets were received, and returns the others. Stops intake
    /// when the limit is reached.
    pub(super) fn refund(&self, claimed: usize, used: u64) {
        if self.limit == u64::MAX {
            return;
        }
        let unused = (claimed as u64).saturating_sub(used);
        if unused > 0 {
            self.left.fetch_add(unused, Ordering::AcqRel);
        }
        // If no packet is left to claim, intake goes on: other workers may return a part of their
        // claims.
        if used > 0 && self.used.fetch_add(used, Ordering::AcqRel) + used >= self.limit {
            self.stop();
        }
    }

    /// Records that a worker has ended, which ends the run.
    pub(super) fn worker_ended(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.over.notify();
        }
        self.stop();
    }

    /// The notifier of the end of the first worker.
    pub(super) fn over(&self) -> &dyn Notifier {
        &*self.over
    }

    /// Whether a worker has ended.
    pub(super) fn any_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Records that the input of one RX queue has ended.
    pub(super) fn one_finished(&self) {
        let before = self
            .finite
            .try_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        if before == Ok(1) {
            self.stop();
        }
    }
}
