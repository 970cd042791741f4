//! [`Packet`] for the coalescer: payloads are linked, not copied.

use super::frame::Segment;
use super::{Packet, PacketError};
use crate::limits::SEGMENTS_MAX;
use packtrain_offload::checksum::Sum;
use packtrain_offload::coalesce;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso};
use std::mem::ManuallyDrop;
use std::ops::Range;

impl coalesce::Packet for Packet {
    #[inline]
    fn head(&self) -> &[u8] {
        self.first()
    }

    #[inline]
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.headers_mut(bytes).ok()
    }

    #[inline]
    fn bytes(&self) -> u32 {
        self.head().bytes
    }

    #[inline]
    fn checksum(&self) -> ChecksumState {
        self.meta().checksum
    }

    #[inline]
    fn gso(&self) -> Option<Gso> {
        self.meta().gso
    }

    #[inline]
    fn layout(&self) -> Option<Layout> {
        self.meta().layout
    }

    /// The VLAN tag in the metadata.
    #[inline]
    fn aside(&self) -> u32 {
        self.meta().vlan.map_or(0, |tag| {
            u32::from(tag.protocol) << 16 | u32::from(tag.control)
        })
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        let mut sum = Sum::new();
        // The coalescer passes a range inside of the packet.
        if let Ok(pieces) = self.pieces(range.start as usize..range.end as usize) {
            sum.add_pieces(pieces);
        }
        sum
    }

    fn truncate(&mut self, bytes: u32) {
        Self::truncate(self, bytes as usize);
    }

    /// Links the payload. The packet then accounts for the wire packets of both. It has at most
    /// [`Meta::merge_segments_max`](super::Meta::merge_segments_max) segments.
    #[inline]
    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let meta = self.meta();
        let segments = self.segment_count() + tail.segment_count();
        let wire_packets = meta.wire_packets.checked_add(tail.meta().wire_packets);
        let (Some(wire_packets), true) = (
            wire_packets,
            segments <= usize::from(meta.merge_segments_max),
        ) else {
            return Err(tail);
        };
        self.append_part(tail, payload)
            .map_err(|(_error, tail)| tail)?;
        self.meta_mut().wire_packets = wire_packets;
        Ok(())
    }
}

impl Packet {
    /// Appends `range` of `tail` without copying bytes. The other bytes of `tail` and its metadata
    /// are dropped.
    ///
    /// # Errors
    ///
    /// [`PacketError::TooManySegments`], [`PacketError::NoBuffer`], [`PacketError::ForeignArena`]
    /// or [`PacketError::OutOfRange`]; then both packets are unchanged.
    #[inline]
    pub fn append_part(
        &mut self,
        tail: Self,
        range: Range<u32>,
    ) -> Result<(), (PacketError, Self)> {
        if let Err(error) = self.check_append(&tail, &range) {
            return Err((error, tail));
        }
        if range.is_empty() {
            return Ok(());
        }
        // Most packets have one segment, and its reference only moves.
        if tail.segment_count() == 1 {
            let whole = tail.head().segments[0];
            let part = Segment {
                offset: whole.offset + range.start,
                len: range.end - range.start,
                ..whole
            };
            return match self.push_segment(part) {
                Ok(()) => {
                    tail.free_line();
                    Ok(())
                }
                Err(error) => Err((error, tail)),
            };
        }
        match self.append_shared(&tail, range.start as usize..range.end as usize) {
            Ok(()) => Ok(()),
            Err(error) => Err((error, tail)),
        }
    }

    /// Frees the line of a packet of one segment, and not the segment: another packet has its
    /// reference now.
    #[inline]
    fn free_line(self) {
        let this = ManuallyDrop::new(self);
        this.core().put_line(this.head().header.index);
    }

    #[inline]
    fn check_append(&self, tail: &Self, range: &Range<u32>) -> Result<(), PacketError> {
        if self.head().header.core != tail.head().header.core {
            return Err(PacketError::ForeignArena);
        }
        if range.start > range.end || range.end > tail.head().bytes {
            return Err(PacketError::OutOfRange);
        }
        if self.segment_count() + tail.segment_count() > SEGMENTS_MAX {
            return Err(PacketError::TooManySegments);
        }
        Ok(())
    }
}
