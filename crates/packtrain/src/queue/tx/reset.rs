//! The reset of a TX queue: each packet that the device had is sent again in order, or counted.

use super::TxQueue;
use crate::driver::{DeviceError, Reset, TxDescriptors};
use crate::plant::planted;
use crate::stats::DropReason;
use crate::time::Instant;
use std::cmp::Reverse;

impl<T: TxDescriptors> TxQueue<T> {
    /// Resets the queue in the device. Packets that the device had not sent are sent again, before
    /// those that wait here and in their order. Returns false if the device does not support it;
    /// then nothing has changed.
    ///
    /// # Errors
    ///
    /// If the device was removed or the reset failed. Its packets are still in flight.
    pub fn reset(&mut self, now: Instant) -> Result<bool, DeviceError> {
        self.progress.now = now;
        let mut queue = self.counting();
        let result = queue.take_back(DropReason::DeviceReset);
        if matches!(result, Ok(true)) {
            queue.counters.resets.add(1);
        }
        queue.count_calls();
        result
    }

    /// Empties the device. Packets that it had not sent are at the front of `again`; those that it
    /// reported as neither sent nor unsent are dropped as `lost`. False if it does not support it.
    pub(super) fn take_back(&mut self, lost: DropReason) -> Result<bool, DeviceError> {
        debug_assert!(self.flight.completed.is_empty() && self.flight.returned.is_empty());
        match self
            .device
            .reset(&mut self.flight.completed, &mut self.flight.returned)
        {
            Ok(Reset::Done) => {}
            Ok(Reset::Unsupported) => return Ok(false),
            Err(error) => {
                // The device may still read packets that it has reported.
                self.flight.completed.drain().for_each(drop);
                self.flight.returned.drain().for_each(drop);
                return Err(error);
            }
        }
        self.forget_device(lost);
        Ok(true)
    }

    /// The device has no packets any more: frees those that it reported as sent, takes back those
    /// that it reported as unsent, and drops the others as `lost`.
    pub(super) fn forget_device(&mut self, lost: DropReason) {
        self.free_completed();
        self.put_back();
        self.drop_lost(lost);
        self.flight.bytes.reset();
        self.progress.room.clear();
        self.flight.doorbell.rung();
        #[cfg(feature = "plants")]
        {
            self.progress.locked_up = false;
        }
        self.staged.front_defragged = false;
        self.progress.watchdog.restart(self.progress.now);
    }

    /// Puts unsent packets to the front of `again`, followed by the fitted ones.
    fn put_back(&mut self) {
        self.staged.prepare_again();
        let mut tokens = std::mem::take(&mut self.flight.unsent);
        tokens.extend(self.flight.returned.drain());
        // The last one that the device got first.
        tokens.sort_unstable_by_key(|&token| Reverse(self.flight.in_flight.serial(token)));
        for token in tokens.drain(..) {
            let Some((packet, _)) = self.flight.in_flight.take(token) else {
                self.counters.bad_completions.add(1);
                continue;
            };
            let wire_packets = u64::from(packet.meta().wire_packets);
            self.counters.taken_back.add(wire_packets);
            if planted!(ResetForgets) {
                continue;
            }
            self.staged.again.push_front(packet);
        }
        self.flight.unsent = tokens;
    }

    /// Drops the packets that the device reported as neither sent nor unsent.
    fn drop_lost(&mut self, reason: DropReason) {
        let mut tokens = std::mem::take(&mut self.flight.unsent);
        tokens.extend(self.flight.in_flight.tokens());
        for token in tokens.drain(..) {
            if let Some((packet, _)) = self.flight.in_flight.take(token) {
                let wire_packets = u64::from(packet.meta().wire_packets);
                self.counters.taken_back.add(wire_packets);
                self.drop_packet(reason, &packet);
            }
        }
        self.flight.unsent = tokens;
    }
}
