//! A TX queue as its consumer drives it: the RX worker of an owned path, or the consumer of the
//! ring in front of a shared queue.

use super::stats::PathStats;
use crate::driver::{DeviceError, TxDescriptors};
use crate::queue::TxQueue;
use crate::time::Instant;
use std::sync::Arc;

/// A TX queue, and where its state is published for other threads.
#[derive(Debug)]
pub(super) struct Egress<T> {
    pub(super) queue: TxQueue<T>,
    stats: Arc<PathStats>,
    /// The device is asynchronous: it completes packets later, and each step services it.
    asynchronous: bool,
}

impl<T: TxDescriptors> Egress<T> {
    pub(super) fn new(queue: TxQueue<T>, stats: Arc<PathStats>, asynchronous: bool) -> Self {
        let mut egress = Self {
            queue,
            stats,
            asynchronous,
        };
        egress.publish(0);
        egress
    }

    /// Begins a step or a drain: does the work of the queue that is due. A synchronous device
    /// without pending packets needs no service and no clock, unless `recheck` is set.
    #[inline]
    pub(super) fn begin(
        &mut self,
        recheck: bool,
        now: impl FnOnce() -> Instant,
    ) -> Result<(), DeviceError> {
        let pending = self.queue.in_flight() > 0 || !self.queue.is_ready();
        if recheck || self.asynchronous || pending {
            return self.service(now());
        }
        // First: a device that has changed is asked for its MTU at once.
        self.queue.follow()?;
        if self.queue.has_mtu() {
            self.queue.renew_mtu(now());
        }
        Ok(())
    }

    fn service(&mut self, now: Instant) -> Result<(), DeviceError> {
        let before = self.queue.counters().reclaimed.get();
        self.queue.service(now)?;
        if self.queue.counters().reclaimed.get() != before {
            // This poll found the completions for which the device was armed, without its wake-up.
            self.queue.note_wakeup();
        }
        Ok(())
    }

    /// Ends a step or a drain: rings the doorbell once for all packets that it has sent. `staged`
    /// wire packets wait in front of the queue.
    #[inline]
    pub(super) fn end(&mut self, staged: u64) -> Result<(), DeviceError> {
        let rung = self.queue.ring_if_pending();
        self.publish(staged);
        rung
    }

    /// Whether the queue accepts packets.
    #[inline]
    pub(super) fn accepts(&self) -> bool {
        self.queue.is_ready() && !self.queue.is_stopped()
    }

    /// Whether packets wait for the device, or the end of the run waits for completions. Otherwise
    /// completions wake no worker.
    pub(super) fn waits(&self, ending: bool) -> bool {
        !self.queue.is_ready() || (ending && self.queue.in_flight() > 0)
    }

    /// Publishes the state of the queue, with `staged` wire packets in front of it.
    #[inline]
    pub(super) fn publish(&mut self, staged: u64) {
        let shown = &self.stats.shown;
        shown.held.set(match staged == 0 && self.queue.is_ready() {
            true => 0,
            false => self.queue.held() + staged,
        });
        shown.in_flight.set(self.queue.in_flight() as u64);
        shown.features.set(self.queue.features().bits());
        shown.refused.set(self.queue.refused().bits());
        if let Some(troubles) = self.queue.take_troubles() {
            *self.stats.troubles() = troubles;
        }
    }
}

impl<T> Drop for Egress<T> {
    /// The device is dropped with its queue: nothing is in flight.
    fn drop(&mut self) {
        self.stats.shown.in_flight.set(0);
    }
}
