//! A lane as a producer of the ring in front of a shared TX queue.

use super::shared::{Closed, Producer, SharedTx};
use crate::driver::{Features, TxDescriptors};
use crate::packet::{Burst, Packet};
use crate::stats::DropReason;
use crate::sync::Ordering;
use crate::time::Instant;
use std::sync::Arc;
use std::task::Waker;

/// A lane's access to a shared TX queue.
#[derive(Debug)]
pub(super) struct RingProducer<T: TxDescriptors> {
    shared: Arc<SharedTx<T>>,
    own: Producer,
    /// The packet that is handed over, if they are handed over one by one.
    one: Option<Burst>,
    /// The lane is in the list of producers that wait for space.
    waits: bool,
    closed: Option<DropReason>,
    deregistered: bool,
}

impl<T: TxDescriptors> RingProducer<T> {
    /// Registers with the queue: the TX worker does not end before the lane deregisters.
    /// `of_worker` is another producer of its worker, whose counters it shares.
    pub(super) fn new(
        shared: Arc<SharedTx<T>>,
        by_packet: bool,
        of_worker: Option<&Producer>,
    ) -> Self {
        Self {
            own: shared.enter_lane(of_worker),
            shared,
            one: by_packet.then(Burst::new),
            waits: false,
            closed: None,
            deregistered: false,
        }
    }

    /// Begins a step. Returns whether the lane is still in the list of producers that wait.
    pub(super) fn begin(&mut self) -> bool {
        if self.waits && self.shared.has_space(&self.own) {
            self.forget();
        }
        self.waits
    }

    /// The reason for which packets are dropped, if the TX worker has ended and the ring accepts
    /// none.
    pub(super) const fn closed(&self) -> Option<DropReason> {
        self.closed
    }

    /// The lane has deregistered.
    pub(super) const fn is_over(&self) -> bool {
        self.deregistered
    }

    /// Whether the ring has space for a packet.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.shared.has_space(&self.own)
    }

    pub(super) fn features(&self) -> Features {
        self.shared.features()
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.shared.forget(&self.own);
        }
    }

    pub(super) fn send(&mut self, now: Instant, burst: &mut Burst) {
        let Some(mut one) = self.one.take() else {
            return self.put(now, burst);
        };
        while burst.move_front(&mut one) {
            self.put(now, &mut one);
            // There is no space for a packet that is still there.
            if one.move_front(burst) {
                break;
            }
        }
        self.one = Some(one);
    }

    /// As [`send`](Self::send), as far as the frames of all packets that wait for the queue stay
    /// within their bound. `excess` is empty, before and after.
    pub(super) fn send_within(&mut self, now: Instant, burst: &mut Burst, excess: &mut Burst) {
        let (shared, bytes) = (&self.shared, burst.frame_bytes());
        let fits = shared.stats.charge(bytes)
            || shared.make_space(&self.own, &|| now) && shared.stats.charge(bytes);
        if !fits {
            let fits = |packet: &&Packet| shared.stats.charge(packet.frame_bytes());
            let count = burst.iter().take_while(fits).count();
            while burst.len() > count && burst.move_back(excess) {}
        }
        self.send(now, burst);
        if !burst.is_empty() {
            self.shared.stats.discharge(burst.frame_bytes());
        }
        burst.append(excess);
    }

    /// Whether the frames of `packet` would stay within that bound.
    pub(super) fn has_frames(&self, packet: &Packet) -> bool {
        self.shared.stats.fits(packet.frame_bytes())
    }

    /// Drops packets for which the queue has no space.
    pub(super) fn refuse(&self, burst: &mut Burst) {
        self.own.count_refused(burst.wire_packets());
        burst.clear();
    }

    fn put(&mut self, now: Instant, burst: &mut Burst) {
        if self.shared.put(&self.own, burst, &|| now) == Err(Closed) {
            let broken = self.shared.broken.load(Ordering::Acquire);
            self.closed = Some(match broken {
                true => DropReason::DeviceReset,
                false => DropReason::Shutdown,
            });
        }
    }

    pub(super) fn wait(&mut self, waker: &Waker) -> bool {
        self.waits = true;
        self.shared.wait(&self.own, waker)
    }

    pub(super) fn deregister(&mut self) {
        if !std::mem::replace(&mut self.deregistered, true) {
            self.forget();
            self.shared.leave_lane(&self.own);
        }
    }
}

impl<T: TxDescriptors> Drop for RingProducer<T> {
    fn drop(&mut self) {
        self.deregister();
    }
}
