//! GSO packets above 64 KiB (BIG TCP), cut into those whose IP headers can state their length.

use super::{Accept, GsoType, VnetError, VnetHeader, check_flags, check_partial, describe};
use crate::layout::{Layout, Unstated};
use crate::limits::{HEADER_BYTES_MAX, IP_LENGTH_MAX};
use crate::offload::{ChecksumState, Gso, LinkType};
use crate::segment::{Fill, Segmenter};
use core::num::NonZeroU16;
use core::ops::Range;

/// A TCP packet that an AF_PACKET socket hands over whole, and that goes on in parts.
///
/// Each part is a GSO packet of as many whole segments as fit the length field of an IP header, and
/// the last has the rest. Their headers follow the rules of [`crate::segment`], so that the wire
/// packets are those that the whole packet stands for.
#[derive(Clone, Copy, Debug)]
pub struct BigTcp {
    unstated: Unstated,
    gso: Gso,
    /// Segments of each part but the last, and their payload.
    segments: u16,
    part: NonZeroU16,
    /// Where the payload starts and ends in the packet.
    payload: u32,
    end: u32,
}

impl BigTcp {
    /// Checks the header that a peer sent with such a packet. The arguments are those of
    /// [`validate`](super::validate); `None` for any other packet, which is for that function.
    ///
    /// # Errors
    /// As of [`validate`](super::validate), which is to check each part, too.
    pub fn new(
        header: &VnetHeader,
        link: LinkType,
        accept: Accept,
        headers: &[u8],
        packet_bytes: u32,
    ) -> Result<Option<Self>, VnetError> {
        let Some(unstated) = Unstated::parse(link, headers, packet_bytes) else {
            return Ok(None);
        };
        let layout = unstated.layout();
        if layout.ip_end - u32::from(layout.network) <= IP_LENGTH_MAX as u32 {
            return Ok(None);
        }
        check_flags(header, accept)?;
        let gso_type = GsoType::decode(header, accept)?;
        if !matches!(gso_type, GsoType::Tcp { .. }) {
            return Err(VnetError::PacketTooLong);
        }
        let gso = gso_type.check_headers(header, accept, layout)?;
        let start = header.csum_start.checked_sub(unstated.removed());
        let moved = VnetHeader {
            csum_start: start.ok_or(VnetError::CsumStart)?,
            ..*header
        };
        check_partial(&moved, link, Some(layout), true, layout.ip_end)?;
        let most = IP_LENGTH_MAX as u16 - (layout.payload - layout.network);
        let segments = most / gso.size;
        let part = NonZeroU16::new(segments * gso.size.get()).ok_or(VnetError::GsoHeaders)?;
        let removed = u32::from(unstated.removed());
        Ok(Some(Self {
            gso,
            segments,
            part,
            payload: u32::from(layout.payload) + removed,
            end: layout.ip_end + removed,
            unstated,
        }))
    }

    /// The number of parts; at least 2.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        (self.end - self.payload).div_ceil(self.part.get() as u32)
    }

    /// Bytes of the headers of each part.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.unstated.headers().len()
    }

    /// The payload of a part, counted from the first byte of the packet that was received. Empty,
    /// at its end, if there is no such part.
    #[must_use]
    pub fn payload(&self, index: u32) -> Range<u32> {
        let part = u32::from(self.part.get());
        let at = |index: u32| {
            let offset = index.saturating_mul(part).min(self.end - self.payload);
            self.payload + offset
        };
        at(index)..at(index.saturating_add(1))
    }

    /// Writes the headers of a part to `out`, [`header_bytes`](Self::header_bytes) of it, with the
    /// sum of the pseudo-header in place of the checksum, and returns the virtio-net header.
    ///
    /// # Errors
    /// [`VnetError::GsoTcpFlags`] for SYN and RST, which no part may have; else
    /// [`VnetError::GsoHeaders`].
    pub fn write_headers(&self, index: u32, out: &mut [u8]) -> Result<VnetHeader, VnetError> {
        let (layout, size) = (self.unstated.layout(), self.header_bytes());
        let mut headers = [0; HEADER_BYTES_MAX];
        let headers = headers.get_mut(..size).ok_or(VnetError::GsoHeaders)?;
        headers.copy_from_slice(self.unstated.headers());
        if !self.gso.kind.is_ipv6() {
            // The segmenter counts parts; the identifications are those of segments.
            let at = usize::from(layout.network) + 4;
            let skipped = (index as u16).wrapping_mul(self.segments - 1);
            let id = u16::from_be_bytes([headers[at], headers[at + 1]]).wrapping_add(skipped);
            headers[at..at + 2].copy_from_slice(&id.to_be_bytes());
        }
        let parts = Gso::new(self.gso.kind, self.part).with_ecn(self.gso.ecn());
        let segmenter =
            Segmenter::new(headers, layout, parts, layout.ip_end).map_err(super::cut)?;
        let checksum = segmenter
            .write_header(index, headers, out, Fill::Partial)
            .map_err(super::cut)?;
        debug_assert!(matches!(checksum, ChecksumState::Partial { .. }));
        let is_large = self.payload(index).len() > usize::from(self.gso.size.get());
        let layout: &Layout = layout;
        Ok(describe(
            checksum,
            is_large.then_some(self.gso),
            Some(layout),
        ))
    }
}
