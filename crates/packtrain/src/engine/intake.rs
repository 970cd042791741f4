//! How much more the workers of a run may take in: until it is stopped, until a count is reached,
//! or until the input ends.

use crate::runtime::{Notifier, Wakeup};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Shared by the workers of one run.
#[derive(Debug)]
pub(super) struct Intake {
    stopped: AtomicBool,
    /// All workers of the run, which a stop notifies.
    workers: Vec<Arc<Wakeup>>,
    /// Packets that may be received in all; `u64::MAX` for no limit.
    limit: u64,
    /// Packets of the limit that no worker has claimed.
    left: AtomicU64,
    /// Packets received. Not the limit less `left`: a worker may give back a part of its claim.
    used: AtomicU64,
    /// RX queues whose input ends by itself and has not ended yet.
    finite: AtomicUsize,
    /// A worker has ended.
    ended: AtomicBool,
    /// Notified then.
    over: Arc<dyn Notifier>,
}

impl Intake {
    /// Takes in at most `packets` packets (as devices hand them over; a GSO packet is one), and
    /// ends when `finite_queues` RX queues have come to their end, if there are any.
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

    /// Takes nothing in any more, and notifies all workers: they send what they hold and end.
    pub(super) fn stop(&self) {
        if !self.stopped.swap(true, Ordering::AcqRel) {
            for worker in &self.workers {
                worker.notify();
            }
        }
    }

    /// Whether intake is over.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Asks for up to `wanted` packets; returns how many may be received.
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

    /// Says that of `claimed` packets `used` were received, and gives back the others; stops when
    /// the count is reached.
    pub(super) fn refund(&self, claimed: usize, used: u64) {
        if self.limit == u64::MAX {
            return;
        }
        let unused = (claimed as u64).saturating_sub(used);
        if unused > 0 {
            self.left.fetch_add(unused, Ordering::AcqRel);
        }
        // That nothing is left to claim is not the end: other workers may still hold claims, and
        // give them back.
        if used > 0 && self.used.fetch_add(used, Ordering::AcqRel) + used >= self.limit {
            self.stop();
        }
    }

    /// A worker has ended: so does the run.
    pub(super) fn worker_ended(&self) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.over.notify();
        }
        self.stop();
    }

    /// Notified once a worker has ended.
    pub(super) fn over(&self) -> &dyn Notifier {
        &*self.over
    }

    /// Whether a worker has ended.
    pub(super) fn any_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// One RX queue's input is at its end.
    pub(super) fn one_finished(&self) {
        let before = self
            .finite
            .try_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        if before == Ok(1) {
            self.stop();
        }
    }
}
