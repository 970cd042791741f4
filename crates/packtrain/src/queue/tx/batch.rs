//! Offering packets to the device: which it may get; accepted ones are freed or in flight.

use super::doorbell::Doorbell;
use super::in_flight::Flight;
use crate::driver::{Accepted, Features, Refused, Token, TxBatch, TxPacket};
use crate::packet::{Meta, Packet};
use crate::plan::FitLimits;
use crate::stats::TxCounters;
use crate::time::Instant;
use packtrain_offload::offload::ChecksumState;
use std::collections::VecDeque;

/// Why a batch ended without a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    All,
    OutOfSlots,
    OutOfBytes,
    DoorbellFull,
}

/// The packets that are offered in one call of the driver.
pub(super) struct Batch<'a> {
    packets: &'a mut VecDeque<Packet>,
    /// The device's features and limits, for packets that were not fitted to them.
    as_is: Option<(Features, &'a FitLimits)>,
    flight: &'a mut Flight,
    counters: &'a TxCounters,
    front_defragged: &'a mut bool,
    now: Instant,
    pub(super) ended: Offered,
    /// Packets that the device has accepted.
    pub(super) accepted: u64,
    /// Packets at the front that the device has accepted, all as `how` says.
    taken: usize,
    how: Accepted,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        as_is: Option<(Features, &'a FitLimits)>,
        packets: &'a mut VecDeque<Packet>,
        flight: &'a mut Flight,
        counters: &'a TxCounters,
        front_defragged: &'a mut bool,
        now: Instant,
    ) -> Self {
        Self {
            packets,
            as_is,
            flight,
            counters,
            front_defragged,
            now,
            ended: Offered::All,
            accepted: 0,
            taken: 0,
            how: Accepted::Complete,
        }
    }
}

impl TxBatch for Batch<'_> {
    #[inline(always)]
    fn each(
        &mut self,
        mut encap: impl FnMut(&mut TxPacket<'_>, Token) -> Result<Accepted, Refused>,
    ) -> Result<(), Refused> {
        while !self.packets.is_empty() {
            let (mut result, mut other) = (Ok(()), None);
            let most = self.offerable();
            if most == 0 {
                break;
            }
            let (packets, _) = self.packets.as_mut_slices();
            let mut sums = Sums {
                accepted: &mut self.accepted,
                counters: self.counters,
                doorbell: &mut self.flight.doorbell,
                now: self.now,
                packets: 0,
                bytes: 0,
                wire_packets: 0,
                descriptors: 0,
            };
            for packet in packets.iter_mut().take(most) {
                let (bytes, segments) = (packet.bytes(), packet.segment_count());
                let ahead = match self.how {
                    Accepted::Complete => 0,
                    Accepted::Pending => self.taken,
                };
                let token = self.flight.in_flight.token(ahead);
                let how = match encap(&mut TxPacket::fitted(packet), token) {
                    Ok(how) => how,
                    Err(refused) => {
                        result = Err(refused);
                        break;
                    }
                };
                sums.add(bytes, segments, packet.meta());
                if self.taken > 0 && how != self.how {
                    other = Some(how);
                    break;
                }
                self.how = how;
                self.taken += 1;
            }
            drop(sums);
            self.finish();
            if let Some(how) = other {
                (self.how, self.taken) = (how, 1);
                self.finish();
            }
            result?;
        }
        Ok(())
    }
}

impl Batch<'_> {
    /// How many packets at the front may be offered, if the device keeps each of them. If there is
    /// none, also why.
    fn offerable(&mut self) -> usize {
        let (packets, _) = self.packets.as_slices();
        let slots = self.flight.in_flight.free();
        let (mut count, mut descriptors, mut bytes) = (0, 0, 0);
        self.ended = Offered::All;
        for packet in packets {
            if let Some((features, limits)) = self.as_is
                && !limits.takes_as_is(packet, features)
            {
                break;
            }
            let ended = if count == slots {
                Offered::OutOfSlots
            } else if !self.flight.bytes.has_room_behind(bytes) {
                Offered::OutOfBytes
            } else if self.flight.doorbell.is_full_behind(descriptors) {
                Offered::DoorbellFull
            } else {
                descriptors += packet.segment_count().max(1);
                bytes += packet.bytes() as u64;
                count += 1;
                continue;
            };
            self.ended = ended;
            break;
        }
        count
    }

    /// Removes the packets that the device has accepted.
    #[inline]
    fn finish(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if taken == 0 {
            return;
        }
        *self.front_defragged = false;
        match self.how {
            Accepted::Complete => Packet::free(self.packets, taken),
            Accepted::Pending => {
                for packet in self.packets.drain(..taken) {
                    // With what a wrapping driver has added or taken off.
                    let bytes = packet.bytes() as u32;
                    self.flight.bytes.queue(u64::from(bytes));
                    self.flight.in_flight.put(packet, bytes);
                }
            }
        }
    }
}

/// Sums over accepted packets, in registers until the driver returns or panics.
struct Sums<'a> {
    accepted: &'a mut u64,
    counters: &'a TxCounters,
    doorbell: &'a mut Doorbell,
    now: Instant,
    packets: u64,
    bytes: u64,
    wire_packets: u64,
    descriptors: usize,
}

impl Sums<'_> {
    #[inline]
    fn add(&mut self, bytes: usize, segments: usize, meta: &Meta) {
        self.packets += 1;
        self.bytes += bytes as u64;
        self.wire_packets += u64::from(meta.wire_packets);
        self.descriptors += segments.max(1);
        if !meta.is_plain() {
            add_offloads(self.counters, meta);
        }
    }
}

/// Not a method of [`Sums`]: the call would force their fields out of registers.
#[inline(never)]
fn add_offloads(counters: &TxCounters, meta: &Meta) {
    if meta.gso.is_some() {
        counters.gso_packets.add(1);
        counters.gso_wire_packets.add(u64::from(meta.wire_packets));
    }
    let is_partial = matches!(meta.checksum, ChecksumState::Partial { .. });
    counters.needs_csum.add(u64::from(is_partial));
}

impl Drop for Sums<'_> {
    #[inline]
    fn drop(&mut self) {
        self.doorbell.add(self.descriptors, self.now);
        *self.accepted += self.packets;
        self.counters.packets.add(self.packets);
        self.counters.bytes.add(self.bytes);
        self.counters.wire_packets.add(self.wire_packets);
    }
}

/// Accepted packets are removed, also if the driver panics.
impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.finish();
    }
}
