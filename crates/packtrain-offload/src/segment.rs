//! Software segmentation: cuts one GSO packet into its wire packets (TSO4, TSO6, USO).
//!
//! The payload is not moved. For each segment, a [`Segmenter`] returns the range of the packet that
//! is its payload, and writes fresh headers; the caller joins the two, by copy or by reference.
//!
//! Per segment `i` of `n`, with `mss` payload bytes in all but the last:
//!
//! | field | rule |
//! |---|---|
//! | link header, VLAN tags, IP options, extension headers, TCP options | copied |
//! | IPv4 total length, header checksum | recomputed |
//! | IPv4 identification | first + `i`, modulo 2^16; or fixed, [`Gso::with_fixed_id`] |
//! | IPv6 payload length | extension headers, transport header, payload |
//! | TCP sequence number | first + `i * mss`, modulo 2^32 |
//! | TCP FIN, PSH | on the last only |
//! | TCP CWR | on the first only; with [`Ecn::Accurate`] on all |
//! | TCP ACK, ECE, AE, URG, urgent pointer, window, acknowledgement | copied, as Linux does |
//! | TCP SYN, RST | refused on more than one segment: copies would mean something else |
//! | UDP length | 8 + payload |
//! | transport checksum | from scratch; a computed UDP checksum of 0 is stored as 0xFFFF |
//!
//! The rules are those of `tcp_gso_segment()`, `__udp_gso_segment()` and `inet_gso_segment()` in
//! Linux, with one difference: Linux builds the checksums on the pseudo-header sum that the sender
//! stored, so a wrong one makes every segment wrong. Here that value is not read.
//! The addresses are those of the IP header, or the end of a source route. (A home address option,
//! RFC 6275 §6.3, is not parsed: such a packet gets the checksum of its care-of address.)
//!
//! CWR is cleared after the first segment whether [`Ecn::Cwr`] says that it is set or not (RFC 3168
//! §6.1.2). In Accurate ECN (RFC 9768) CWR is one bit of a counter, and belongs on every segment.
//! The packet does not show which of the two is in use, so the caller has to set [`Ecn::Accurate`].
//!
//! # Tunnels
//!
//! [`Segmenter::in_tunnel`] cuts the packet inside VXLAN, GENEVE or GRE (NVGRE too) by the rules
//! above, and in front of every segment:
//!
//! | field | rule |
//! |---|---|
//! | outer link header, VLAN tags, IP options, extension headers | copied |
//! | outer IPv4 total length, header checksum; IPv6 payload length | recomputed |
//! | outer IPv4 identification | first + `i` |
//! | outer UDP length | recomputed |
//! | outer UDP checksum | 0 stays 0 (RFC 6935 for IPv6); else recomputed, 0 stored as 0xFFFF |
//! | VXLAN and GENEVE header, GENEVE options (RFC 8926 §4.6), inner Ethernet header | copied |
//! | GRE key | copied |
//! | GRE checksum, if present | recomputed |
//! | GRE sequence number, if present | refused: [`SegmentError::TunnelSequence`] |
//! | ECN of either IP header | copied |
//!
//! These are the rules of `skb_udp_tunnel_segment()` and `gre_gso_segment()`. The outer checksum
//! does not read the payload again. Once the segmenter or the device finishes the inner checksum,
//! the inner packet from its transport header on sums up to the complement of its pseudo-header
//! ("local checksum offload" in Linux). So outer checksums are final at once, even with
//! [`Fill::Partial`]. A tunnel in a tunnel is not parsed.
//!
//! # Identifications
//!
//! Receivers reassemble IPv4 fragments by source, destination, protocol and identification. So the
//! identification of a datagram that may be fragmented must not repeat while the datagram is in
//! flight (RFC 6864 §4.3). A GSO packet of `n` segments uses `n` identifications, from its own on.
//! Linux counts that way when it sends (`ip_select_ident_segs()`), and so does coalescing: cutting
//! into the sizes that were merged never uses an identification twice. Cutting into *more* segments
//! uses those of the sender's next packets. That is harmless with DF set, where they have no
//! meaning (RFC 6864 §4.1). Without DF, take them from an [`IdSource`](crate::fragment::IdSource),
//! and write the first one into the IPv4 header before the [`Segmenter`] is made. Preferably do so
//! for all packets of that source, destination and protocol, also for those that are not cut: see
//! there.

use core::ops::Range;

use crate::checksum::{self, Sum};
use crate::layout::{IpProtocol, Layout, TunnelLayout};
use crate::limits::{TCP_HEADER_BYTES_MIN, UDP_HEADER_BYTES};
use crate::offload::{ChecksumState, Ecn, Gso, GsoKind};

pub use self::check::{TCP_GSO_SIZE_MIN, TCP_SEGMENTS_MAX, UDP_SEGMENTS_MAX};
pub use self::error::SegmentError;
pub use self::mtu::{Remedy, TooBig, fits_mtu};
use self::outer::Outer;
use self::plan::{Ip, Length, TCP_FLAGS, UDP_CHECKSUM, fold, window};

mod check;
mod error;
mod mtu;
mod outer;
mod plan;

/// What [`Segmenter::write_header`] stores in the transport checksum field.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// The pseudo-header sum of the segment: the egress port finishes it.
    Partial,
    /// The final checksum.
    Complete {
        /// Sum over the segment's payload, begun at its first byte.
        payload: Sum,
    },
}

/// Cuts one GSO packet. Small and `Copy`: it holds offsets and sums, no bytes.
///
/// Each call takes the header bytes, which must be the ones the segmenter was made from. Other
/// bytes give wrong segments, and have no other effect.
///
/// ```
/// use core::num::NonZeroU16;
/// use packtrain_offload::layout::Layout;
/// use packtrain_offload::offload::{Gso, GsoKind, LinkType};
/// use packtrain_offload::segment::{SegmentError, Segmenter};
///
/// fn cut(packet: &[u8], layout: &Layout, gso: Gso) -> Result<Vec<Vec<u8>>, SegmentError> {
///     let segmenter = Segmenter::new(packet, layout, gso, packet.len() as u32)?;
///     let mut wire = Vec::new();
///     for index in 0..segmenter.segments() {
///         let mut segment = vec![0; segmenter.wire_bytes(index)];
///         segmenter.write_segment(index, packet, &mut segment)?;
///         wire.push(segment);
///     }
///     Ok(wire)
/// }
///
/// let mut packet = vec![0; 20 + 20 + 2921];
/// packet[0] = 0x45;
/// packet[2..4].copy_from_slice(&2961_u16.to_be_bytes());
/// packet[9] = 6;
/// packet[32] = 5 << 4;
/// let layout = Layout::parse(LinkType::RawIp, &packet, 2961).unwrap();
/// let size = NonZeroU16::new(1460).unwrap();
/// let wire = cut(&packet, &layout, Gso::new(GsoKind::TcpV4, size)).unwrap();
/// assert_eq!(wire.iter().map(Vec::len).collect::<Vec<_>>(), [1500, 1500, 41]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmenter {
    kind: GsoKind,
    /// The IP header whose payload is cut: of two, the inner one.
    ip: Ip,
    size: u16,
    transport: u16,
    header_bytes: u16,
    /// TCP: the flag that only the first segment has, if it has it.
    first_flags: u16,
    /// TCP: sequence number of the first segment.
    sequence: u32,
    payload_bytes: u32,
    segments: u32,
    /// Every segment but the last, and the last.
    lengths: [Length; 2],
    outer: Option<Outer>,
}

impl Segmenter {
    /// Prepares to cut a packet of `packet_bytes` bytes, link header included.
    ///
    /// `headers` is the start of the packet as one piece, at least `layout.payload` bytes. Bytes
    /// behind the IP packet (link padding) belong to no segment. A packet whose payload fits one
    /// segment is one segment, with its checksum finished if wanted.
    ///
    /// # Errors
    /// Every [`SegmentError`] but `TunnelSequence`, `Index` and `Buffer`.
    pub fn new(
        headers: &[u8],
        layout: &Layout,
        gso: Gso,
        packet_bytes: u32,
    ) -> Result<Self, SegmentError> {
        if layout.fragment {
            return Err(SegmentError::Fragment);
        }
        check::kind(gso.kind, layout)?;
        let headers = headers
            .get(..usize::from(layout.payload))
            .ok_or(SegmentError::Headers)?;
        check::headers(gso.kind, headers, layout)?;
        let ipv6 = gso.kind.is_ipv6();
        let destination = check::destination(headers, layout, ipv6)?;
        let (end, header_bytes) = (layout.ip_end, u32::from(layout.payload));
        if end > packet_bytes || end < header_bytes {
            return Err(SegmentError::Length);
        }
        let payload_bytes = end - header_bytes;
        let ip = Ip::new(headers, layout, ipv6);
        let largest = payload_bytes.min(u32::from(gso.size.get()));
        let transport_bytes = header_bytes - u32::from(layout.transport);
        if ip.length(transport_bytes + largest) > u32::from(u16::MAX) {
            return Err(SegmentError::Length);
        }
        let segments = gso.segments(payload_bytes);
        check::transport(gso.kind, headers, layout, segments)?;
        let header = &headers[usize::from(layout.transport)..];
        let pseudo_sum = ip.pseudo_sum(headers, destination, protocol_of(gso.kind));
        let transport_sum = plan::transport_sum(gso.kind, header);
        let (mut flags, mut first_flags, mut sequence) = (0, 0, 0);
        if gso.kind.is_tcp() {
            flags = plan::load(header, TCP_FLAGS);
            sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            if gso.ecn() != Ecn::Accurate {
                first_flags = flags & TCP_CWR;
            }
        }
        let last = payload_bytes - (segments - 1) * u32::from(gso.size.get());
        let length = |payload: u32, cleared: u16| {
            let flags = flags & !(first_flags | cleared);
            Length::new(
                gso.kind,
                &ip,
                pseudo_sum,
                transport_sum,
                transport_bytes + payload,
                flags,
            )
        };
        let segmenter = Self {
            kind: gso.kind,
            ip,
            size: gso.size.get(),
            transport: layout.transport,
            header_bytes: layout.payload,
            first_flags,
            sequence,
            payload_bytes,
            segments,
            lengths: [length(largest, TCP_FIN | TCP_PSH), length(last, 0)],
            outer: None,
        };
        if gso.fixed_id() {
            return segmenter.with_fixed_id(headers);
        }
        Ok(segmenter)
    }

    /// Prepares to cut the packet inside a tunnel; each segment gets the tunnel's headers too. See
    /// the [module](self) for the rules.
    ///
    /// `headers` is the start of the packet as one piece, at least `layout.inner.payload` bytes;
    /// [`Gso::kind`] names the inner protocols. Payload, checksum state and
    /// [`with_fixed_id`](Self::with_fixed_id) are those of the inner packet.
    ///
    /// # Errors
    /// As [`new`](Self::new), for either packet. [`SegmentError::TunnelSequence`] for GRE with
    /// sequence numbers; [`SegmentError::Length`] if the two IP packets do not end together.
    pub fn in_tunnel(
        headers: &[u8],
        layout: &TunnelLayout,
        gso: Gso,
        packet_bytes: u32,
    ) -> Result<Self, SegmentError> {
        let mut segmenter = Self::new(headers, &layout.inner, gso, packet_bytes)?;
        let outer = Outer::new(headers, layout)?;
        let largest = segmenter.payload_bytes.min(u32::from(gso.size.get()))
            + u32::from(segmenter.header_bytes - segmenter.transport);
        if outer.length(largest) > u32::from(u16::MAX) {
            return Err(SegmentError::Length);
        }
        segmenter.outer = Some(outer);
        Ok(segmenter)
    }

    /// Gives every segment the identification of the original (`SKB_GSO_TCP_FIXEDID` in Linux, for
    /// an inner packet `SKB_GSO_TCP_FIXEDID_INNER`). [`Gso::with_fixed_id`] does the same.
    ///
    /// # Errors
    /// [`SegmentError::FixedId`] unless the packet is IPv4 with DF set.
    pub fn with_fixed_id(mut self, headers: &[u8]) -> Result<Self, SegmentError> {
        self.ip.fix_id(headers)?;
        Ok(self)
    }

    /// Number of wire packets; at least 1.
    #[must_use]
    pub const fn segments(&self) -> u32 {
        self.segments
    }

    /// Bytes in front of the payload of every segment: link, IP and transport header, and in a
    /// tunnel those of both packets and what is between them.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.header_bytes as usize
    }

    /// The range of the packet that is the payload of segment `index`, counted from the packet's
    /// first byte. Empty, at the end of the payload, if there is no such segment.
    #[inline]
    #[must_use]
    pub const fn payload(&self, index: u32) -> Range<u32> {
        let end = self.payload_bytes;
        let start = if index >= self.segments {
            end
        } else {
            index * self.size as u32
        };
        let stop = if end - start > self.size as u32 {
            start + self.size as u32
        } else {
            end
        };
        let base = self.header_bytes as u32;
        base + start..base + stop
    }

    /// Bytes of segment `index` on the wire, link header included; of the headers alone if there
    /// is no such segment.
    #[inline]
    #[must_use]
    pub const fn wire_bytes(&self, index: u32) -> usize {
        let payload = self.payload(index);
        self.header_bytes() + (payload.end - payload.start) as usize
    }

    /// Bytes of the longest segment's IP packet, IP header included; in a tunnel, of the outer one.
    ///
    /// Compare this with an MTU, not the length of the GSO packet: see
    /// [`fits_mtu`](Self::fits_mtu).
    #[must_use]
    pub const fn ip_bytes_max(&self) -> u32 {
        let outermost = match self.outer {
            Some(outer) => outer.ip.begin(),
            None => self.ip.begin(),
        };
        // Every segment but the last is as long as the first, and that is no longer.
        self.wire_bytes(0) as u32 - outermost as u32
    }

    /// Writes the headers of segment `index` to the first [`header_bytes`](Self::header_bytes)
    /// bytes of `out`.
    ///
    /// Returns the checksum state of the segment: `Unnecessary` after [`Fill::Complete`]. Outer
    /// checksums of a tunnel are final with either.
    ///
    /// # Errors
    /// [`SegmentError::Index`] if there is no such segment, [`SegmentError::Buffer`] if `headers`
    /// or `out` is too short; then nothing is written.
    #[inline]
    pub fn write_header(
        &self,
        index: u32,
        headers: &[u8],
        out: &mut [u8],
        fill: Fill,
    ) -> Result<ChecksumState, SegmentError> {
        if index >= self.segments {
            return Err(SegmentError::Index);
        }
        let bytes = self.header_bytes();
        let headers = headers.get(..bytes).ok_or(SegmentError::Buffer)?;
        let out = out.get_mut(..bytes).ok_or(SegmentError::Buffer)?;
        copy_header(out, headers);
        let length = &self.lengths[usize::from(index + 1 == self.segments)];
        self.ip.patch(index, out, length.ip_length, length.ip_sum);
        if let Some(outer) = &self.outer {
            outer.patch(index, out, self.ip.ipv6, length);
        }
        let left = if self.kind.is_tcp() {
            self.patch_tcp(index, out, length, fill)
        } else {
            self.patch_udp(out, length, fill)
        };
        left.ok_or(SegmentError::Buffer)
    }

    /// Writes segment `index` to the start of `out`, with its checksum finished, and returns its
    /// [`wire_bytes`](Self::wire_bytes).
    ///
    /// `packet` is the whole packet as one piece. The payload is read once, copied and summed in
    /// one pass.
    ///
    /// # Errors
    /// [`SegmentError::Index`] if there is no such segment, [`SegmentError::Buffer`] if `packet`
    /// or `out` is too short; then nothing is written.
    #[inline]
    pub fn write_segment(
        &self,
        index: u32,
        packet: &[u8],
        out: &mut [u8],
    ) -> Result<usize, SegmentError> {
        if index >= self.segments {
            return Err(SegmentError::Index);
        }
        let range = self.payload(index);
        let payload = packet
            .get(range.start as usize..range.end as usize)
            .ok_or(SegmentError::Buffer)?;
        let bytes = self.header_bytes() + payload.len();
        let (header, body) = out
            .get_mut(..bytes)
            .ok_or(SegmentError::Buffer)?
            .split_at_mut(self.header_bytes());
        let payload = checksum::copy_and_sum(body, payload);
        self.write_header(index, packet, header, Fill::Complete { payload })?;
        Ok(bytes)
    }

    #[inline]
    fn patch_tcp(
        &self,
        index: u32,
        out: &mut [u8],
        length: &Length,
        fill: Fill,
    ) -> Option<ChecksumState> {
        let tcp = window::<TCP_HEADER_BYTES_MIN>(out, self.transport)?;
        let sequence = self.sequence.wrapping_add(index * u32::from(self.size));
        let first_flags = if index == 0 { self.first_flags } else { 0 };
        let (field, left) = match fill {
            Fill::Partial => (length.pseudo_sum, self.partial(TCP_CHECKSUM)),
            Fill::Complete { payload } => {
                let sum = u32::from(length.transport_sum)
                    + u32::from(first_flags)
                    + (sequence >> 16)
                    + (sequence & 0xFFFF)
                    + u32::from(payload.fold());
                (!fold(sum), ChecksumState::Unnecessary)
            }
        };
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        tcp[12..14].copy_from_slice(&(length.flags | first_flags).to_be_bytes());
        tcp[16..18].copy_from_slice(&field.to_be_bytes());
        Some(left)
    }

    #[inline]
    fn patch_udp(&self, out: &mut [u8], length: &Length, fill: Fill) -> Option<ChecksumState> {
        let udp = window::<UDP_HEADER_BYTES>(out, self.transport)?;
        let (field, left) = match fill {
            Fill::Partial => (length.pseudo_sum, self.partial(UDP_CHECKSUM)),
            Fill::Complete { payload } => {
                let sum = u32::from(length.transport_sum) + u32::from(payload.fold());
                (checksum::udp_field(!fold(sum)), ChecksumState::Unnecessary)
            }
        };
        udp[4..6].copy_from_slice(&length.l4_bytes.to_be_bytes());
        udp[6..8].copy_from_slice(&field.to_be_bytes());
        Some(left)
    }

    #[inline]
    const fn partial(&self, offset: u16) -> ChecksumState {
        ChecksumState::Partial {
            start: self.transport,
            offset,
        }
    }
}

const fn protocol_of(kind: GsoKind) -> IpProtocol {
    if kind.is_tcp() {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    }
}

/// Copies `src` to `dst`, which has the same length. Headers are so short that a call would cost as
/// much as the copy; two overlapping pieces need no loop.
#[inline]
fn copy_header(dst: &mut [u8], src: &[u8]) {
    fn ends<const N: usize>(dst: &mut [u8], src: &[u8]) {
        if let (Some(to), Some(from)) = (dst.first_chunk_mut::<N>(), src.first_chunk()) {
            *to = *from;
        }
        if let (Some(to), Some(from)) = (dst.last_chunk_mut::<N>(), src.last_chunk()) {
            *to = *from;
        }
    }
    match src.len() {
        49..=96 => ends::<48>(dst, src),
        28..=48 => ends::<28>(dst, src),
        _ => dst.copy_from_slice(src),
    }
}

/// The final value of an unfinished checksum field.
///
/// Every packet that is [`ChecksumState::Partial`] and is not cut needs it before transmission. A
/// GSO packet that fits one segment is among them: [`validate`](crate::virtio_net::validate)
/// returns it with `gso: None`, still `Partial`.
///
/// `sum_from_start` is the sum over every byte from `start` of [`ChecksumState::Partial`] to the
/// end of the packet, the field itself included as it stands. `is_udp` applies the rule that a
/// computed 0 is stored as 0xFFFF, since 0 means "no checksum" (RFC 768, RFC 8200 §8.1).
///
/// For `is_udp` pass whether `offset` of `Partial` is 6: UDP has the field there, and TCP at 16. An
/// unknown protocol may have it at 6, too: both values are equally valid in every other protocol
/// that uses this sum (`skb_checksum_help()` in Linux never stores 0).
#[must_use]
pub fn finish_partial(sum_from_start: Sum, is_udp: bool) -> u16 {
    let field = sum_from_start.finish();
    if is_udp {
        checksum::udp_field(field)
    } else {
        field
    }
}

const TCP_FIN: u16 = 0x01;
const TCP_PSH: u16 = 0x08;
const TCP_CWR: u16 = 0x80;
/// Offset of the checksum in the TCP header.
const TCP_CHECKSUM: u16 = 16;

#[cfg(test)]
mod tests;
