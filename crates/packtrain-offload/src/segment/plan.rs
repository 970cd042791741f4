//! The header fields that change from segment to segment, and the sums of all others: each header
//! checksum is then a few additions instead of a pass over the header.

use super::error::SegmentError;
use crate::checksum;
use crate::layout::Layout;
use crate::limits::IPV4_HEADER_BYTES_MIN;
use crate::offload::GsoKind;
use crate::wire::IpProtocol;

/// One IP header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    pub(super) ipv6: bool,
    /// All ones if the identification counts up, else zero.
    counting: u16,
    /// Offset of the header.
    at: u16,
    /// Bytes that the length field counts before the transport header.
    counted: u16,
    /// IPv4 identification of the first segment.
    id: u16,
    /// IPv4: sum of the header without length, identification and checksum, folded.
    sum: u16,
}

impl Ip {
    /// `headers` has passed [`check::network`](super::check::network).
    pub(super) fn new(headers: &[u8], layout: &Layout, ipv6: bool) -> Self {
        let network = usize::from(layout.network);
        let header = &headers[network..usize::from(layout.transport)];
        let mut ip = Self {
            ipv6,
            counting: u16::MAX,
            at: layout.network,
            counted: header.len() as u16,
            id: 0,
            sum: 0,
        };
        if ipv6 {
            // The length field does not count the first 40 bytes.
            ip.counted -= 40;
        } else {
            ip.id = load(header, 4);
            let mut sum = checksum::sum(&header[..2]);
            sum.add(&header[6..10]);
            sum.add(&header[12..]);
            ip.sum = sum.fold();
        }
        ip
    }

    /// Offset of the header in the packet.
    pub(super) const fn begin(&self) -> u16 {
        self.at
    }

    /// Stops the identification from counting.
    pub(super) fn fix_id(&mut self, headers: &[u8]) -> Result<(), SegmentError> {
        const DF: u8 = 0x40;
        let flags = headers.get(usize::from(self.at) + 6);
        if self.ipv6 || flags.is_none_or(|flags| flags & DF == 0) {
            return Err(SegmentError::FixedId);
        }
        self.counting = 0;
        Ok(())
    }

    /// The value of the length field over `l4_bytes` of transport header and payload.
    #[inline]
    pub(super) fn length(&self, l4_bytes: u32) -> u32 {
        u32::from(self.counted) + l4_bytes
    }

    /// IPv4: sum of the header with its length field, without identification and checksum.
    #[inline]
    pub(super) fn length_sum(&self, l4_bytes: u32) -> u16 {
        fold(u32::from(self.sum) + self.length(l4_bytes))
    }

    /// Sets length, identification and header checksum. `sum` is
    /// [`length_sum`](Self::length_sum).
    #[inline]
    pub(super) fn patch(&self, index: u32, out: &mut [u8], length: u16, sum: u16) {
        if self.ipv6 {
            store(out, usize::from(self.at) + 4, length);
            return;
        }
        let Some(header) = window::<IPV4_HEADER_BYTES_MIN>(out, self.at) else {
            return;
        };
        // The number of segments is bounded far below 2^16; the sum wraps.
        let id = self.id.wrapping_add(narrow(index) & self.counting);
        let length_and_id = u32::from(length) << 16 | u32::from(id);
        header[2..6].copy_from_slice(&length_and_id.to_be_bytes());
        let checksum = !fold(u32::from(sum) + u32::from(id));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Sum of the pseudo-header without its length; `destination` is the offset of that address.
    pub(super) fn pseudo_sum(&self, headers: &[u8], destination: u16, protocol: IpProtocol) -> u16 {
        let (at, destination) = (usize::from(self.at), usize::from(destination));
        let (source, bytes) = if self.ipv6 {
            (at + 8, 16)
        } else {
            (at + 12, 4)
        };
        let mut sum = checksum::sum(&headers[source..source + bytes]);
        sum.add(&headers[destination..destination + bytes]);
        sum.add_u16(u16::from(protocol.0));
        sum.fold()
    }
}

/// Offset of data offset and flags in the TCP header, 16 bits.
pub(super) const TCP_FLAGS: usize = 12;
/// Offset of the checksum in the UDP header.
pub(super) const UDP_CHECKSUM: u16 = 6;

/// Values shared by all segments of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Length {
    /// Transport header and payload.
    pub l4_bytes: u16,
    /// The IP length field.
    pub ip_length: u16,
    /// IPv4: sum of the header, identification and checksum aside.
    pub ip_sum: u16,
    /// TCP: data offset and flags, `first_flags` aside.
    pub flags: u16,
    /// Sum of the pseudo-header.
    pub pseudo_sum: u16,
    /// The same and the transport header, sequence number, first flags and checksum aside.
    pub transport_sum: u16,
}

impl Length {
    /// `pseudo_sum` is without its length, `transport_sum` that of
    /// [`transport_sum`].
    pub(super) fn new(
        kind: GsoKind,
        ip: &Ip,
        pseudo_sum: u16,
        transport_sum: u16,
        l4_bytes: u32,
        flags: u16,
    ) -> Self {
        let pseudo_sum = fold(u32::from(pseudo_sum) + l4_bytes);
        // In UDP the length is in the header, too.
        let own = if kind.is_tcp() {
            u32::from(flags)
        } else {
            l4_bytes
        };
        Self {
            l4_bytes: narrow(l4_bytes),
            ip_length: narrow(ip.length(l4_bytes)),
            ip_sum: ip.length_sum(l4_bytes),
            flags,
            pseudo_sum,
            transport_sum: fold(u32::from(transport_sum) + u32::from(pseudo_sum) + own),
        }
    }
}

/// Sum of the transport header fields that are the same on all segments: without sequence number,
/// data offset with flags, and checksum; or without length and checksum.
pub(super) fn transport_sum(kind: GsoKind, header: &[u8]) -> u16 {
    let mut sum = checksum::sum(&header[..4]);
    if kind.is_tcp() {
        sum.add(&header[8..12]);
        sum.add(&header[14..16]);
        sum.add(&header[18..]);
    }
    sum.fold()
}

/// `N` bytes from `at` on.
#[inline]
pub(super) fn window<const N: usize>(bytes: &mut [u8], at: u16) -> Option<&mut [u8; N]> {
    let at = usize::from(at);
    bytes.get_mut(at..at + N)?.first_chunk_mut()
}

/// A folded sum of 16-bit numbers; 0 only if all of them were 0.
#[inline]
pub(super) const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

pub(super) fn load(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(super) fn store(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The segmenter made sure that every value stored in 16 bits fits.
#[inline]
pub(super) const fn narrow(value: u32) -> u16 {
    value as u16
}
