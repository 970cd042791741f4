//! What the egress device cannot do, done in software: cutting GSO packets, completing checksums,
//! putting VLAN tags into the bytes.

use crate::packet::{Arena, FrameClass, Packet, PacketError};
use crate::stats::DropReason;
use packtrain_offload::checksum::Sum;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::ChecksumState;
use packtrain_offload::segment::{Fill, Segmenter, finish_partial};

/// A GSO packet on its way to becoming wire packets, one at a time, so that no packet asks for more
/// memory at once than one segment's headers.
#[derive(Debug)]
pub(super) struct Cutting {
    packet: Packet,
    segmenter: Segmenter,
    next: u32,
    /// Wire packets that the packet accounts for and no segment has been given yet.
    unassigned: u32,
}

impl Cutting {
    /// Prepares to cut `packet`, which must have a `gso` and a layout.
    pub(super) fn new(packet: Packet) -> Result<Self, (DropReason, Packet)> {
        let meta = packet.meta();
        let (Some(gso), Some(layout)) = (meta.gso, meta.layout) else {
            return Err((DropReason::BadChecksumPlace, packet));
        };
        let bytes = packet.bytes() as u32;
        match Segmenter::new(packet.first(), &layout, gso, bytes) {
            Ok(segmenter) => {
                let unassigned = u32::from(packet.meta().wire_packets);
                Ok(Self {
                    packet,
                    segmenter,
                    next: 0,
                    unassigned,
                })
            }
            Err(error) => Err((DropReason::Segment(error), packet)),
        }
    }

    /// Segments still to come.
    pub(super) const fn left(&self) -> u32 {
        self.segmenter.segments() - self.next
    }

    /// Wire packets that the segments still to come account for.
    pub(super) const fn wire_packets_left(&self) -> u32 {
        if self.left() > self.unassigned {
            self.left()
        } else {
            self.unassigned
        }
    }

    /// The next segment: fresh headers, shared payload. With `partial` the checksum is left to the
    /// device. An error costs that segment.
    pub(super) fn next(
        &mut self,
        arena: &Arena,
        partial: bool,
    ) -> Option<Result<Packet, (DropReason, u64)>> {
        if self.left() == 0 {
            return None;
        }
        let index = self.next;
        self.next += 1;
        // One each; should the packet account for more than it has segments, the last takes them.
        let wire_packets = if self.left() == 0 {
            self.unassigned.max(1)
        } else {
            1
        };
        self.unassigned = self.unassigned.saturating_sub(wire_packets);
        Some(
            self.build(index, arena, partial)
                .map(|mut segment| {
                    segment.meta_mut().wire_packets = wire_packets as u16;
                    segment
                })
                .map_err(|reason| (reason, u64::from(wire_packets))),
        )
    }

    fn build(&self, index: u32, arena: &Arena, partial: bool) -> Result<Packet, DropReason> {
        let header_bytes = self.segmenter.header_bytes();
        let payload = self.segmenter.payload(index);
        let payload = payload.start as usize..payload.end as usize;
        let mut segment = arena.packet(FrameClass::Small).map_err(no_buffer)?;
        let fill = if partial {
            Fill::Partial
        } else {
            let mut sum = Sum::new();
            for piece in self.packet.pieces(payload.clone()).map_err(no_buffer)? {
                sum.add(piece);
            }
            Fill::Complete { payload: sum }
        };
        let out = segment.tailroom_mut();
        let checksum = self
            .segmenter
            .write_header(index, self.packet.first(), out, fill)
            .map_err(DropReason::Segment)?;
        segment.grow(header_bytes).map_err(no_buffer)?;
        segment
            .append_shared(&self.packet, payload)
            .map_err(no_buffer)?;
        segment.copy_meta(&self.packet);
        let bytes = segment.bytes() as u32;
        let meta = segment.meta_mut();
        meta.gso = None;
        meta.checksum = checksum;
        if let Some(layout) = &mut meta.layout {
            layout.ip_end = bytes;
        }
        Ok(segment)
    }
}

/// Completes a partial checksum in place.
pub(super) fn complete_checksum(packet: &mut Packet) -> Result<(), DropReason> {
    let ChecksumState::Partial { start, offset } = packet.meta().checksum else {
        return Ok(());
    };
    let field = usize::from(start) + usize::from(offset);
    if field + 2 > packet.bytes() {
        return Err(DropReason::BadChecksumPlace);
    }
    let mut sum = Sum::new();
    for piece in packet
        .pieces(usize::from(start)..packet.bytes())
        .map_err(no_buffer)?
    {
        sum.add(piece);
    }
    packet.pull(field + 2).map_err(|error| match error {
        PacketError::OutOfRange => DropReason::BadChecksumPlace,
        _ => DropReason::NoBuffer,
    })?;
    // Only UDP has its field there, and only UDP may not store zero (RFC 768).
    let value = finish_partial(sum, offset == UDP_CHECKSUM_OFFSET);
    let headers = packet.headers_mut(field + 2).map_err(no_buffer)?;
    headers[field..].copy_from_slice(&value.to_be_bytes());
    packet.meta_mut().checksum = ChecksumState::Unnecessary;
    Ok(())
}

const UDP_CHECKSUM_OFFSET: u16 = 6;
const ETHERNET_ADDRESSES_BYTES: usize = 12;

/// Moves a VLAN tag from the metadata into the bytes.
pub(super) fn insert_vlan_tag(packet: &mut Packet) -> Result<(), DropReason> {
    let Some(tag) = packet.meta().vlan else {
        return Ok(());
    };
    if packet.bytes() < ETHERNET_ADDRESSES_BYTES + 2 {
        return Err(DropReason::Truncated);
    }
    packet.pull(HEADER_BYTES_MAX).map_err(no_buffer)?;
    if packet.headroom() < 4 {
        return Err(DropReason::NoBuffer);
    }
    packet.prepend(4).map_err(no_buffer)?;
    let header = packet
        .headers_mut(ETHERNET_ADDRESSES_BYTES + 4)
        .map_err(no_buffer)?;
    header.copy_within(4.., 0);
    header[12..14].copy_from_slice(&tag.protocol.to_be_bytes());
    header[14..16].copy_from_slice(&tag.control.to_be_bytes());
    let layout = Layout::parse(packet.meta().link, packet.first(), packet.bytes() as u32).ok();
    let meta = packet.meta_mut();
    meta.vlan = None;
    meta.layout = layout;
    if let ChecksumState::Partial { start, .. } = &mut meta.checksum {
        *start += 4;
    }
    Ok(())
}

const fn no_buffer(_: PacketError) -> DropReason {
    DropReason::NoBuffer
}
