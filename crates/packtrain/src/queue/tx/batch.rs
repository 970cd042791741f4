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
    tally: Tally,
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
            tally: Tally::default(),
            taken: 0,
            how: Accepted::Complete,
        }
    }

    /// Packets that the device has accepted.
    pub(super) const fn accepted(&self) -> u64 {
        self.tally.packets
    }
}

impl TxBatch for Batch<'_> {
    #[inline(always)]
    fn each(
        &mut self,
        mut encap: impl FnMut(&mut TxPacket<'_>, Token) -> Result<Accepted, Refused>,
    ) -> Result<(), Refused> {
        loop {
            let (mut result, mut other) = (Ok(()), None);
            let most = self.offerable();
            if most == 0 {
                return Ok(());
            }
            let (packets, _) = self.packets.as_mut_slices();
            let mut sums = Sums {
                tally: &mut self.tally,
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
        let packets = self.packets.drain(..taken);
        match self.how {
            Accepted::Complete => Packet::free(packets),
            Accepted::Pending => {
                for packet in packets {
                    // With what a wrapping driver has added or taken off.
                    let bytes = packet.bytes() as u32;
                    self.flight.bytes.queue(u64::from(bytes));
                    self.flight.in_flight.put(packet, bytes);
                }
            }
        }
    }
}

/// What the device accepted of a batch.
#[derive(Debug, Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    wire_packets: u64,
    gso_packets: u64,
    gso_wire_packets: u64,
    needs_csum: u64,
}

impl Tally {
    #[inline(never)]
    fn add_offloads(&mut self, meta: &Meta) {
        if meta.gso.is_some() {
            self.gso_packets += 1;
            self.gso_wire_packets += u64::from(meta.wire_packets);
        }
        let is_partial = matches!(meta.checksum, ChecksumState::Partial { .. });
        self.needs_csum += u64::from(is_partial);
    }
}

/// Sums over accepted packets, in registers until the driver returns or panics.
struct Sums<'a> {
    tally: &'a mut Tally,
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
            self.tally.add_offloads(meta);
        }
    }
}

impl Drop for Sums<'_> {
    #[inline]
    fn drop(&mut self) {
        self.doorbell.add(self.descriptors, self.now);
        self.tally.packets += self.packets;
        self.tally.bytes += self.bytes;
        self.tally.wire_packets += self.wire_packets;
    }
}

/// Counted once for the batch, also if the driver panics.
impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.finish();
        let (tally, counters) = (&self.tally, self.counters);
        counters.packets.add(tally.packets);
        counters.bytes.add(tally.bytes);
        counters.wire_packets.add(tally.wire_packets);
        counters.gso_packets.add(tally.gso_packets);
        counters.gso_wire_packets.add(tally.gso_wire_packets);
        counters.needs_csum.add(tally.needs_csum);
    }
}
