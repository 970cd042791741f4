//! The reset of a TX queue: each packet that the device had is sent again in order, or counted.

use super::TxQueue;
use crate::driver::{DeviceError, Reset, TxDescriptors};
use crate::stats::DropReason;
use crate::time::Instant;

/// The packets that were in flight at a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restarted {
    /// Packets that the device reported as sent.
    pub sent: usize,
    /// Packets that the device reported as not sent: the queue sends them first.
    pub again: usize,
    /// Packets that the device reported as neither, dropped as `drop.device_reset`.
    pub lost: usize,
}

impl<T: TxDescriptors> TxQueue<T> {
    /// Resets the queue in the device. Packets that the device had not sent are sent again, before
    /// those that wait here and in their order. `None` if the device does not support it; then
    /// nothing has changed.
    ///
    /// # Errors
    ///
    /// If the device was removed or the reset failed. Its packets are still in flight.
    pub fn reset(&mut self, now: Instant) -> Result<Option<Restarted>, DeviceError> {
        self.now = now;
        self.counters.begin();
        let result = self.reset_device();
        self.count_calls();
        self.counters.publish();
        result
    }

    fn reset_device(&mut self) -> Result<Option<Restarted>, DeviceError> {
        debug_assert!(self.completed.is_empty() && self.returned.is_empty());
        match self.device.reset(&mut self.completed, &mut self.returned) {
            Ok(Reset::Done) => {}
            Ok(Reset::Unsupported) => return Ok(None),
            Err(error) => {
                // The device may still read packets that it has reported.
                self.completed.drain().for_each(drop);
                self.returned.drain().for_each(drop);
                return Err(error);
            }
        }
        let mut done = Restarted {
            sent: self.free_completed(),
            ..Restarted::default()
        };
        self.put_back(&mut done);
        self.count_lost(&mut done);
        self.bytes.reset();
        self.room.clear();
        self.doorbell.rung();
        self.front_defragged = false;
        self.watchdog.restart(self.now);
        self.counters.resets.add(1);
        Ok(Some(done))
    }

    /// Puts unsent packets to the front of `again`, followed by the fitted ones.
    fn put_back(&mut self, done: &mut Restarted) {
        while let Some(packet) = self.fitted.pop_back() {
            self.again.push_front(packet);
        }
        let mut tokens = std::mem::take(&mut self.unsent);
        tokens.extend(self.returned.drain());
        self.sort_last_first(&mut tokens);
        for token in tokens.drain(..) {
            let Some((packet, _)) = self.in_flight.take(token) else {
                self.counters.bad_completions.add(1);
                continue;
            };
            let wire_packets = u64::from(packet.meta().wire_packets);
            self.counters.taken_back.add(wire_packets);
            self.again.push_front(packet);
            done.again += 1;
        }
        self.unsent = tokens;
    }

    fn count_lost(&mut self, done: &mut Restarted) {
        let mut tokens = std::mem::take(&mut self.unsent);
        tokens.extend(self.in_flight.tokens());
        for token in tokens.drain(..) {
            if let Some((packet, _)) = self.in_flight.take(token) {
                let wire_packets = u64::from(packet.meta().wire_packets);
                self.counters.taken_back.add(wire_packets);
                self.drop_packet(DropReason::DeviceReset, &packet);
                done.lost += 1;
            }
        }
        self.unsent = tokens;
    }
}
