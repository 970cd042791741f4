//! Offloads in software, for devices without them: segmentation of GSO packets, checksums, VLAN
//! tags.

use crate::driver::Features;
use crate::packet::{Arena, FrameClass, Packet, PacketError};
use crate::plant::planted;
use crate::stats::DropReason;
use packtrain_offload::checksum::Sum;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, GsoKind, LinkType};
use packtrain_offload::segment::{Fill, SegmentError, Segmenter, finish_partial};

/// A GSO packet that is being segmented. It makes one segment at a time, so it needs memory for the
/// headers of one segment only.
#[derive(Debug)]
pub(super) struct Segmentation {
    packet: Packet,
    segmenter: Segmenter,
    next: u32,
    /// The feature of a device that completes the checksums of the segments.
    checksum: Features,
}

impl Segmentation {
    /// Starts with `packet`, which must have a `gso` and a layout.
    pub(super) fn new(mut packet: Packet) -> Result<Self, (DropReason, Packet)> {
        let meta = packet.meta();
        let (Some(gso), Some(layout)) = (meta.gso, meta.layout) else {
            return Err((DropReason::BadChecksumPlace, packet));
        };
        let headers = usize::from(layout.payload);
        if packet.first().len() < headers
            && let Err(error) = packet.pull(headers)
        {
            let reason = match error {
                // No headers are so long.
                PacketError::OutOfRange => DropReason::Segment(SegmentError::Headers),
                error => drop_reason(error),
            };
            return Err((reason, packet));
        }
        let bytes = packet.bytes() as u32;
        match Segmenter::new(packet.first(), &layout, gso, bytes) {
            Ok(segmenter) => Ok(Self {
                packet,
                segmenter,
                next: 0,
                checksum: checksum_of(gso.kind),
            }),
            Err(error) => Err((DropReason::Segment(error), packet)),
        }
    }

    /// Segments still to come; each accounts for one wire packet.
    pub(super) const fn left(&self) -> u32 {
        self.segmenter.segments() - self.next
    }

    /// Bytes of the frames of the whole packet.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.packet.frame_bytes()
    }

    /// The feature that a device needs for segments with a partial checksum.
    pub(super) const fn checksum_feature(&self) -> Features {
        self.checksum
    }

    /// The next segment, with fresh headers and shared payload. With `partial` the device completes
    /// its checksum. An error loses this segment only.
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
        Some(
            self.build(index, arena, partial)
                .map_err(|reason| (reason, 1)),
        )
    }

    fn build(&self, index: u32, arena: &Arena, partial: bool) -> Result<Packet, DropReason> {
        let header_bytes = self.segmenter.header_bytes();
        let payload = self.segmenter.payload(index);
        let payload = payload.start as usize..payload.end as usize;
        let mut segment = arena.packet(FrameClass::Small).map_err(drop_reason)?;
        let fill = if partial {
            Fill::Partial
        } else {
            let mut sum = Sum::new();
            for piece in self.packet.pieces(payload.clone()).map_err(drop_reason)? {
                sum.add(piece);
            }
            Fill::Complete { payload: sum }
        };
        let out = segment.tailroom_mut();
        let checksum = self
            .segmenter
            .write_header(index, self.packet.first(), out, fill)
            .map_err(DropReason::Segment)?;
        segment.grow(header_bytes).map_err(drop_reason)?;
        segment
            .append_shared(&self.packet, payload)
            .map_err(drop_reason)?;
        segment.copy_meta(&self.packet);
        let bytes = segment.bytes() as u32;
        let meta = segment.meta_mut();
        meta.gso = None;
        meta.wire_packets = 1;
        meta.checksum = checksum;
        if let Some(layout) = &mut meta.layout {
            layout.ip_end = bytes;
        }
        Ok(segment)
    }
}

/// The largest start of a partial checksum. The kernel counts it from the start of its buffer, in
/// 16 bits, with some hundred bytes before the packet (`skb_partial_csum_set()`), and refuses a
/// larger one. All transport headers are below.
const CHECKSUM_START_MAX: u16 = u16::MAX - 1024;

/// Whether the offloads that `packet` needs are possible at all. If they are not, a device refuses
/// the packet rightly and keeps its features.
///
/// # Errors
///
/// The reason why they are impossible.
pub(super) fn check(packet: &Packet) -> Result<(), DropReason> {
    let meta = packet.meta();
    match (meta.gso, meta.checksum) {
        (Some(gso), _) => {
            let layout = meta.layout.ok_or(DropReason::BadChecksumPlace)?;
            let bytes = packet.bytes();
            let headers = usize::from(layout.payload);
            // No packet has longer ones.
            let is_possible = headers <= bytes.min(HEADER_BYTES_MAX);
            if is_possible && packet.first().len() < headers {
                // Unknown: segmentation pulls the headers together first.
                return Ok(());
            }
            Segmenter::new(packet.first(), &layout, gso, bytes as u32)
                .map(drop)
                .map_err(DropReason::Segment)
        }
        (None, ChecksumState::Partial { start, offset })
            if start > CHECKSUM_START_MAX
                || usize::from(start) + usize::from(offset) + 2 > packet.bytes() =>
        {
            Err(DropReason::BadChecksumPlace)
        }
        _ => Ok(()),
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
    if planted!(SkippedChecksum) {
        packet.meta_mut().checksum = ChecksumState::Unnecessary;
        return Ok(());
    }
    let mut sum = Sum::new();
    for piece in packet
        .pieces(usize::from(start)..packet.bytes())
        .map_err(drop_reason)?
    {
        sum.add(piece);
    }
    // Only UDP has its checksum at this offset, and only UDP must not store zero (RFC 768).
    let value = finish_partial(sum, offset == UDP_CHECKSUM_OFFSET).to_be_bytes();
    match packet.pull(field + 2) {
        Ok(_) => {
            let headers = packet.headers_mut(field + 2).map_err(drop_reason)?;
            headers[field..].copy_from_slice(&value);
        }
        Err(PacketError::OutOfRange) => packet.replace(field, &value).map_err(drop_reason)?,
        Err(error) => return Err(drop_reason(error)),
    }
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
    if packet.meta().link != LinkType::Ethernet {
        return Err(DropReason::LinkType);
    }
    let checksum = match packet.meta().checksum {
        ChecksumState::Partial { start, offset } => ChecksumState::Partial {
            start: start.checked_add(4).ok_or(DropReason::BadChecksumPlace)?,
            offset,
        },
        other => other,
    };
    let headers = match packet.meta().layout {
        Some(layout) => usize::from(layout.payload),
        None => HEADER_BYTES_MAX,
    };
    packet
        .pull(headers.max(ETHERNET_ADDRESSES_BYTES + 2))
        .map_err(drop_reason)?;
    if packet.headroom() < 4 {
        // While a second packet shares the frame, `pull` copies the headers to a frame with
        // headroom.
        let keeps_frame = packet.try_clone().map_err(drop_reason)?;
        packet
            .pull(headers.max(ETHERNET_ADDRESSES_BYTES + 2))
            .map_err(drop_reason)?;
        drop(keeps_frame);
    }
    packet.prepend(4).map_err(drop_reason)?;
    let header = packet
        .headers_mut(ETHERNET_ADDRESSES_BYTES + 4)
        .map_err(drop_reason)?;
    header.copy_within(4.., 0);
    header[12..14].copy_from_slice(&tag.protocol.to_be_bytes());
    header[14..16].copy_from_slice(&tag.control.to_be_bytes());
    let layout = Layout::parse(packet.meta().link, packet.first(), packet.bytes() as u32).ok();
    let meta = packet.meta_mut();
    meta.vlan = None;
    meta.layout = layout;
    meta.checksum = checksum;
    Ok(())
}

/// The checksum feature that segmentation of `kind` in a device includes.
pub(super) const fn checksum_of(kind: GsoKind) -> Features {
    if kind.is_ipv6() {
        Features::CSUM6
    } else {
        Features::CSUM4
    }
}

const fn drop_reason(error: PacketError) -> DropReason {
    match error {
        PacketError::TooManySegments => DropReason::TooManySegments,
        _ => DropReason::NoBuffer,
    }
}
