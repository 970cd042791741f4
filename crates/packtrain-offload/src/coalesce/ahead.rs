//! Memory that is fetched before it is needed: with thousands of flows, what a packet touches is in
//! no near cache, and each of these loads gives the address of the next.
//!
//! Packets wait in a short pipeline, in order, while the steps to their held packet are made one
//! after the other, so that each step has as long as several packets take. Nothing but time depends
//! on what the steps find.

use super::done::Done;
use super::flush::STEP;
use super::packet::Packet;
use super::parse;
use super::shape::Shape;
use super::work::Work;

/// Packets in the pipeline: a power of two, more than three steps.
const SLOTS: usize = 32;
const _: () = assert!(SLOTS > 3 * STEP && SLOTS.is_power_of_two());

/// A packet in the pipeline, and the way to its held packet as far as it is known.
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
    /// Whether there is enough in the table to be worth it.
    #[inline]
    pub(super) fn looks_ahead(&self) -> bool {
        self.core.ring.live() > self.core.near
    }

    /// Takes packets; says how many there were.
    pub(super) fn take_ahead(
        &mut self,
        mut packets: impl Iterator<Item = P>,
        sink: &mut impl FnMut(P, &Done),
    ) -> u64 {
        let mut slots = [const { Slot::EMPTY }; SLOTS];
        // A short burst has no time for long steps.
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

    /// The set of its flow, if it is of the shape that was held last. For others nothing useful is
    /// fetched.
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
