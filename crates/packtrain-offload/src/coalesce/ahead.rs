//! Prefetching: with thousands of flows, the memory that a packet needs is in no near cache, and
//! each load gives the address of the next.
//!
//! Packets pass through a short pipeline, in order. The loads that lead to a packet's held packet
//! are issued one after the other, each several packets ahead of its use. The pipeline affects only
//! timing, never a result.

use super::done::Done;
use super::flush::STEP;
use super::packet::Packet;
use super::parse;
use super::shape::Shape;
use super::work::Work;

/// Packets in the pipeline: a power of two, more than three steps.
const SLOTS: usize = 32;
const _: () = assert!(SLOTS > 3 * STEP && SLOTS.is_power_of_two());

/// A packet in the pipeline, and the part of the path to its held packet found so far.
struct Slot<P> {
    packet: Option<P>,
    shape: Shape,
    hash: u64,
    entry: Option<u32>,
}

impl<P> Slot<P> {
    const EMPTY: Self = Self {
        packet: None,
        shape: Shape::NONE,
        hash: 0,
        entry: None,
    };
}

impl<P: Packet> Work<'_, P> {
    /// Whether the table holds enough packets for prefetching to pay.
    #[inline]
    pub(super) fn looks_ahead(&self) -> bool {
        self.core.ring.live() > self.core.near
    }

    /// Takes packets; returns how many there were.
    pub(super) fn take_ahead(
        &mut self,
        mut packets: impl Iterator<Item = P>,
        sink: &mut impl FnMut(P, &Done),
    ) -> u64 {
        let mut slots = [const { Slot::EMPTY }; SLOTS];
        // A short burst is too short for long steps.
        let expected = packets.size_hint().1.unwrap_or(4 * STEP);
        let step = (expected / 4).clamp(1, STEP);
        let (mut at, mut count) = (0, usize::MAX);
        loop {
            if at < count {
                match packets.next() {
                    Some(packet) => slots[at % SLOTS] = self.first_step(packet),
                    None => count = at,
                }
            }
            let behind = |steps: usize| at.checked_sub(steps * step).filter(|at| *at < count);
            if let Some(at) = behind(1) {
                self.second_step(&mut slots[at % SLOTS]);
            }
            if let Some(at) = behind(2) {
                self.third_step(&slots[at % SLOTS]);
            }
            if let Some(at) = behind(3) {
                let slot = &mut slots[at % SLOTS];
                if let Some(packet) = slot.packet.take() {
                    let (hash, entry) = (slot.hash, slot.entry);
                    self.take_found(packet, slot.shape, hash, entry, sink);
                }
            }
            at += 1;
            if at >= count.saturating_add(3 * step) {
                return count as u64;
            }
        }
    }

    /// The set of the packet's flow, if the packet has the shape of the packet held last. For other
    /// shapes the prefetch is useless.
    #[inline(always)]
    fn first_step(&self, packet: P) -> Slot<P> {
        let shape = self.core.masks.recent().shape;
        let hash = packet.head().first_chunk().map_or(0, |head| {
            let hash = parse::hash_at(shape, head, self.core.config.seed);
            self.table.prefetch_set(hash);
            hash
        });
        Slot {
            packet: Some(packet),
            shape,
            hash,
            entry: None,
        }
    }

    /// The entry.
    #[inline(always)]
    fn second_step(&self, slot: &mut Slot<P>) {
        slot.entry = self.table.candidate(slot.hash);
        if let Some(index) = slot.entry {
            self.table.prefetch_entry(index);
        }
    }

    /// The held packet.
    #[inline(always)]
    fn third_step(&self, slot: &Slot<P>) {
        if let Some(index) = slot.entry
            && let Some(held) = &self.table.entries[index as usize].packet
        {
            held.prefetch();
        }
    }
}
