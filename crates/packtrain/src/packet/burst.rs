//! A bounded batch of packets.

use super::Packet;
use crate::limits::BURST_PACKETS_MAX;
use std::collections::VecDeque;

/// At most [`BURST_PACKETS_MAX`] packets in their order. Only [`Burst::new`] allocates.
#[derive(Debug)]
pub struct Burst {
    packets: VecDeque<Packet>,
}

impl Burst {
    /// An empty burst.
    #[must_use]
    pub fn new() -> Self {
        Self {
            packets: VecDeque::with_capacity(BURST_PACKETS_MAX),
        }
    }

    /// Packets in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// True without packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The number of packets that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        BURST_PACKETS_MAX - self.packets.len()
    }

    /// Adds a packet at the end.
    ///
    /// # Errors
    ///
    /// If the burst is full, returns the packet.
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.room() == 0 {
            return Err(packet);
        }
        self.packets.push_back(packet);
        Ok(())
    }

    /// Puts a packet back at the front.
    ///
    /// # Errors
    ///
    /// If the burst is full, returns the packet.
    pub fn push_front(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.room() == 0 {
            return Err(packet);
        }
        self.packets.push_front(packet);
        Ok(())
    }

    /// Removes the oldest packet.
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }

    /// Moves the oldest packet to the front of `to`, which has room. False if there is none.
    pub(crate) fn move_front(&mut self, to: &mut Self) -> bool {
        debug_assert!(to.room() > 0, "a burst is bounded");
        let packet = self.packets.pop_front();
        packet.map(|one| to.packets.push_front(one)).is_some()
    }

    /// Moves the youngest packet to the front of `to`, which has room. False if there is none.
    pub(crate) fn move_back(&mut self, to: &mut Self) -> bool {
        debug_assert!(to.room() > 0, "a burst is bounded");
        let packet = self.packets.pop_back();
        packet.map(|one| to.packets.push_front(one)).is_some()
    }

    /// Moves all packets of `other` to the end. There must be room for them.
    pub(crate) fn append(&mut self, other: &mut Self) {
        debug_assert!(other.len() <= self.room(), "a burst is bounded");
        self.packets.append(&mut other.packets);
    }

    /// Removes the oldest packet if `wanted` is true of it.
    pub fn pop_if(&mut self, wanted: impl FnOnce(&Packet) -> bool) -> Option<Packet> {
        if wanted(self.packets.front()?) {
            self.packets.pop_front()
        } else {
            None
        }
    }

    /// The oldest packet.
    #[must_use]
    pub fn front(&self) -> Option<&Packet> {
        self.packets.front()
    }

    /// The packets, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter()
    }

    /// The packets, oldest first, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Packet> {
        self.packets.iter_mut()
    }

    /// Frees the packets that `keep` is false of. The others stay in their order.
    pub fn retain(&mut self, keep: impl FnMut(&Packet) -> bool) {
        self.packets.retain(keep);
    }

    /// Frees all packets.
    pub fn clear(&mut self) {
        self.packets.clear();
    }

    /// The packets, for a ring that removes them from the front. The caller must add none.
    pub(crate) const fn batch(&mut self) -> &mut VecDeque<Packet> {
        &mut self.packets
    }

    /// Bytes of the frames of all packets.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.packets.iter().map(Packet::frame_bytes).sum()
    }

    /// The wire packets of all packets.
    #[must_use]
    pub fn wire_packets(&self) -> u64 {
        self.packets
            .iter()
            .map(|p| u64::from(p.meta().wire_packets))
            .sum()
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}
