//! The reset of a TX queue: each packet that the device had is sent again in order, or counted.

use super::TxQueue;
use crate::driver::{DeviceError, Reset, TxDescriptors};
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
        self.now = now;
        self.counters.begin();
        let result = self.take_back(DropReason::DeviceReset);
        if matches!(result, Ok(true)) {
            self.counters.resets.add(1);
        }
        self.count_calls();
        self.counters.publish();
        result
    }

    /// Empties the device. Packets that it had not sent are at the front of `again`; those that it
    /// reported as neither sent nor unsent are dropped as `lost`. False if it does not support it.
    pub(super) fn take_back(&mut self, lost: DropReason) -> Result<bool, DeviceError> {
        debug_assert!(self.completed.is_empty() && self.returned.is_empty());
        match self.device.reset(&mut self.completed, &mut self.returned) {
            Ok(Reset::Done) => {}
            Ok(Reset::Unsupported) => return Ok(false),
            Err(error) => {
                // The device may still read packets that it has reported.
                self.completed.drain().for_each(drop);
                self.returned.drain().for_each(drop);
                return Err(error);
            }
        }
        self.free_completed();
        self.put_back();
        self.drop_lost(lost);
        self.bytes.reset();
        self.room.clear();
        self.doorbell.rung();
        self.front_defragged = false;
        self.watchdog.restart(self.now);
        Ok(true)
    }

    /// Puts unsent packets to the front of `again`, followed by the fitted ones.
    fn put_back(&mut self) {
        while let Some(packet) = self.fitted.pop_back() {
            self.again.push_front(packet);
        }
        let mut tokens = std::mem::take(&mut self.unsent);
        tokens.extend(self.returned.drain());
        // The last one that the device got first.
        tokens.sort_unstable_by_key(|&token| Reverse(self.in_flight.serial(token)));
        for token in tokens.drain(..) {
            let Some((packet, _)) = self.in_flight.take(token) else {
                self.counters.bad_completions.add(1);
                continue;
            };
            let wire_packets = u64::from(packet.meta().wire_packets);
            self.counters.taken_back.add(wire_packets);
            self.again.push_front(packet);
        }
        self.unsent = tokens;
    }

    /// Drops the packets that the device reported as neither sent nor unsent.
    fn drop_lost(&mut self, reason: DropReason) {
        let mut tokens = std::mem::take(&mut self.unsent);
        tokens.extend(self.in_flight.tokens());
        for token in tokens.drain(..) {
            if let Some((packet, _)) = self.in_flight.take(token) {
                let wire_packets = u64::from(packet.meta().wire_packets);
                self.counters.taken_back.add(wire_packets);
                self.drop_packet(reason, &packet);
            }
        }
        self.unsent = tokens;
    }
}
