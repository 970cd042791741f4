//! A queue is reset in its device, and no packet is lost without being counted, nor overtaken.

use super::TxQueue;
use crate::driver::{DeviceError, Reset, TxDescriptors};
use crate::stats::DropReason;
use crate::time::Instant;

/// What became of the packets that a device had when its queue was reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restarted {
    /// Packets that it had sent, and are done.
    pub sent: usize,
    /// Packets that it had not sent: they are the first to go out again.
    pub again: usize,
    /// Packets that the device named in neither list, lost as `drop.device_reset`.
    pub lost: usize,
}

impl<T: TxDescriptors> TxQueue<T> {
    /// Stops the queue in the device and starts it again, empty. What the device had not sent goes
    /// out again, in front of what waits here and in the old order. `None` for a device that cannot
    /// be reset; then nothing has changed.
    ///
    /// # Errors
    ///
    /// When the device is gone or does not come back. What it had is in flight still.
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
                // It may have named some, but it is not known to be done with them.
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
        self.bytes.empty();
        self.room.forget();
        self.doorbell.rung();
        self.front_defragged = false;
        self.watchdog.begin_again(self.now);
        self.counters.resets.add(1);
        Ok(Some(done))
    }

    /// What the device did not send goes in front of `again`, and behind it what was about to go.
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
