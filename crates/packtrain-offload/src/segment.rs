//! Software segmentation: one GSO packet in, the wire packets it stands for out (TSO4, TSO6, USO).
//!
//! Nothing of the payload is moved. A [`Segmenter`] says for each segment which bytes of the packet
//! are its payload, and writes fresh headers for it; the owner joins the two, by copy or by
//! reference.
//!
//! Per segment `i` of `n`, with `mss` payload bytes in all but the last:
//!
//! | field | rule |
//! |---|---|
//! | Ethernet header, VLAN tags, IP options, extension headers, TCP options | copied |
//! | IPv4 total length, header checksum | recomputed |
//! | IPv4 identification | first + `i`, modulo 2^16; or fixed, [`Segmenter::with_fixed_id`] |
//! | IPv6 payload length | extension headers, transport header, payload |
//! | TCP sequence number | first + `i * mss`, modulo 2^32 |
//! | TCP FIN, PSH | on the last only |
//! | TCP CWR | on the first only |
//! | TCP ACK, ECE, AE, URG, urgent pointer, window, acknowledgement | copied, as Linux does |
//! | TCP SYN, RST | refused on more than one segment: copies would mean something else |
//! | UDP length | 8 + payload |
//! | transport checksum | from scratch; a computed UDP checksum of 0 is stored as 0xFFFF |
//!
//! The rules are those of `tcp_gso_segment()`, `__udp_gso_segment()` and `inet_gso_segment()` in
//! Linux, with one difference: Linux builds the checksums on the pseudo-header sum that the sender
//! stored, so a wrong one makes every segment wrong. Here that value is not read. The addresses are
//! those of the IP header, or the end of a source route. (A home address option, RFC 6275 §6.3, is
//! not looked for: such a packet gets the checksum of its care-of address.)
//!
//! CWR is cleared after the first segment whether [`Gso::ecn`] says that it is set or not (RFC 3168
//! §6.1.2). In Accurate ECN (RFC 9768) CWR is one bit of a counter, and belongs on every segment;
//! a peer has to negotiate a GSO type of its own for that, which is not supported, so a stack that
//! speaks it segments before it gets here.

use core::fmt;
use core::ops::Range;

use crate::checksum::{self, Sum};
use crate::layout::{IpProtocol, Layout, Network, Transport};
use crate::limits;
use crate::offload::{ChecksumState, Gso, GsoKind};

/// Most segments of one UDP GSO packet. `UDP_MAX_SEGMENTS` is 64 before Linux 6.10, and 128 since
/// (and in some stable backports); 64 passes everywhere.
pub const UDP_SEGMENTS_MAX: u32 = limits::UDP_GSO_SEGMENTS_MAX as u32;
/// Most segments of one TCP GSO packet: 64 KiB at the smallest MSS that Linux sends with by default
/// (`tcp_min_snd_mss`, 48). It bounds the work that one packet can ask for.
pub const TCP_SEGMENTS_MAX: u32 = 65_535 / 48;
/// Smallest payload of a TCP segment, in bytes: an MSS of 48 less 40 bytes of options. Linux raises
/// smaller values to this one.
pub const TCP_GSO_SIZE_MIN: u16 = 8;

/// Why a packet cannot be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SegmentError {
    /// It is an IP fragment.
    Fragment,
    /// Its headers are not of the protocols that [`Gso::kind`] names.
    Kind,
    /// The header bytes end early, or contradict the layout.
    Headers,
    /// It has a source route that is not used up, and of which the final destination is not known:
    /// other than IPv4 LSRR and SSRR and IPv6 routing types 0, 2 and 4, or malformed.
    SourceRoute,
    /// The IP packet is longer than the packet, or a segment would be longer than 65 535 bytes.
    Length,
    /// The UDP length is not that of the IP payload: no datagram, or one with a surplus area (RFC
    /// 9868), which has no meaning on segments.
    UdpLength,
    /// More segments than [`TCP_SEGMENTS_MAX`] or [`UDP_SEGMENTS_MAX`].
    TooManySegments,
    /// SYN or RST on more than one segment.
    TcpFlags,
    /// A fixed IPv4 identification without DF (RFC 6864 §4: it must be unique), or over IPv6.
    FixedId,
    /// There is no segment of this number.
    Index,
    /// A buffer is shorter than the headers.
    Buffer,
}

impl SegmentError {
    /// Every variant.
    pub const ALL: &[Self] = &[
        Self::Fragment,
        Self::Kind,
        Self::Headers,
        Self::SourceRoute,
        Self::Length,
        Self::UdpLength,
        Self::TooManySegments,
        Self::TcpFlags,
        Self::FixedId,
        Self::Index,
        Self::Buffer,
    ];

    /// The name under which a drop for this reason is counted.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Fragment => "segment_fragment",
            Self::Kind => "segment_kind",
            Self::Headers => "segment_headers",
            Self::SourceRoute => "segment_source_route",
            Self::Length => "segment_length",
            Self::UdpLength => "segment_udp_length",
            Self::TooManySegments => "segment_too_many",
            Self::TcpFlags => "segment_tcp_flags",
            Self::FixedId => "segment_fixed_id",
            Self::Index => "segment_index",
            Self::Buffer => "segment_buffer",
        }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packet cannot be segmented: ")?;
        f.write_str(self.reason())
    }
}

impl core::error::Error for SegmentError {}

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

/// Cuts one GSO packet. Small and `Copy`: it holds offsets, no bytes.
///
/// The header bytes are given to each call, and must be the ones it was made from; if they are not,
/// the segments are wrong and nothing else happens.
///
/// ```
/// use core::num::NonZeroU16;
/// use packtrain_offload::checksum::Sum;
/// use packtrain_offload::layout::Layout;
/// use packtrain_offload::offload::{Gso, GsoKind, LinkType};
/// use packtrain_offload::segment::{Fill, SegmentError, Segmenter};
///
/// fn cut(packet: &[u8], layout: &Layout, gso: Gso) -> Result<Vec<Vec<u8>>, SegmentError> {
///     let segmenter = Segmenter::new(packet, layout, gso, packet.len() as u32)?;
///     let mut wire = Vec::new();
///     for index in 0..segmenter.segments() {
///         let range = segmenter.payload(index);
///         let payload = &packet[range.start as usize..range.end as usize];
///         let mut sum = Sum::new();
///         sum.add(payload);
///         let mut segment = vec![0; segmenter.header_bytes()];
///         segmenter.write_header(index, packet, &mut segment, Fill::Complete { payload: sum })?;
///         segment.extend_from_slice(payload);
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
    fixed_id: bool,
    size: u16,
    network: u16,
    transport: u16,
    header_bytes: u16,
    /// Where the destination address of the pseudo-header is: in the IP header, or in a source
    /// route that is not used up yet.
    destination: u16,
    payload_bytes: u32,
    segments: u32,
}

impl Segmenter {
    /// Prepares to cut a packet of `packet_bytes` bytes, link header included.
    ///
    /// `headers` is the start of the packet as one piece, at least `layout.payload` bytes. Bytes
    /// behind the IP packet (link padding) belong to no segment. A packet whose payload fits one
    /// segment is one segment, with its checksum finished if wanted.
    ///
    /// # Errors
    /// Every [`SegmentError`] but `FixedId`, `Index` and `Buffer`.
    pub fn new(
        headers: &[u8],
        layout: &Layout,
        gso: Gso,
        packet_bytes: u32,
    ) -> Result<Self, SegmentError> {
        if layout.fragment {
            return Err(SegmentError::Fragment);
        }
        check_kind(gso.kind, layout)?;
        let headers = headers
            .get(..usize::from(layout.payload))
            .ok_or(SegmentError::Headers)?;
        check_headers(gso.kind, headers, layout)?;
        let destination = match (layout.source_routed, gso.kind.is_ipv6()) {
            (false, false) => layout.network + 16,
            (false, true) => layout.network + 24,
            (true, false) => final_destination_v4(headers, layout)?,
            (true, true) => final_destination_v6(headers, layout)?,
        };
        let (end, header_bytes) = (layout.ip_end, u32::from(layout.payload));
        if end > packet_bytes || end < header_bytes {
            return Err(SegmentError::Length);
        }
        let payload_bytes = end - header_bytes;
        // The IPv6 length field does not count the first 40 bytes.
        let counted_from = u32::from(layout.network) + if gso.kind.is_ipv6() { 40 } else { 0 };
        let largest = payload_bytes.min(u32::from(gso.size.get()));
        if header_bytes - counted_from + largest > u32::from(u16::MAX) {
            return Err(SegmentError::Length);
        }
        let segments = gso.segments(payload_bytes);
        check_transport(gso.kind, headers, layout, segments)?;
        Ok(Self {
            kind: gso.kind,
            fixed_id: false,
            size: gso.size.get(),
            network: layout.network,
            transport: layout.transport,
            header_bytes: layout.payload,
            destination,
            payload_bytes,
            segments,
        })
    }

    /// Gives every segment the identification of the original (`SKB_GSO_TCP_FIXEDID` in Linux).
    ///
    /// # Errors
    /// [`SegmentError::FixedId`] unless the packet is IPv4 with DF set.
    pub fn with_fixed_id(mut self, headers: &[u8]) -> Result<Self, SegmentError> {
        let flags = headers.get(usize::from(self.network) + 6);
        if self.kind.is_ipv6() || flags.is_none_or(|flags| flags & IPV4_DF == 0) {
            return Err(SegmentError::FixedId);
        }
        self.fixed_id = true;
        Ok(self)
    }

    /// How many wire packets there are; at least 1.
    #[must_use]
    pub const fn segments(&self) -> u32 {
        self.segments
    }

    /// Bytes in front of the payload of every segment: link, IP and transport header.
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        self.header_bytes as usize
    }

    /// Which bytes of the packet are the payload of segment `index`, counted from the packet's
    /// first byte. Empty, at the end of the payload, if there is no such segment.
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

    /// Writes the headers of segment `index` to the first [`header_bytes`](Self::header_bytes)
    /// bytes of `out`.
    ///
    /// Returns what is left to do to the segment's checksum: `Unnecessary` after
    /// [`Fill::Complete`].
    ///
    /// # Errors
    /// [`SegmentError::Index`] if there is no such segment, [`SegmentError::Buffer`] if `headers`
    /// or `out` is too short; then nothing is written.
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
        out.copy_from_slice(headers);
        let range = self.payload(index);
        let transport_bytes =
            u32::from(self.header_bytes - self.transport) + (range.end - range.start);
        self.patch_network(index, out, transport_bytes);
        if self.kind.is_tcp() {
            self.patch_tcp(index, out);
        } else {
            let at = usize::from(self.transport) + UDP_LENGTH;
            store(out, at, narrow(transport_bytes));
        }
        Ok(self.patch_checksum(out, transport_bytes, fill))
    }

    /// `transport_bytes` counts the transport header and the payload.
    fn patch_network(&self, index: u32, out: &mut [u8], transport_bytes: u32) {
        let network = usize::from(self.network);
        let counted = u32::from(self.transport - self.network) + transport_bytes;
        if self.kind.is_ipv6() {
            store(out, network + 4, narrow(counted - 40));
            return;
        }
        store(out, network + 2, narrow(counted));
        if !self.fixed_id {
            let first = load(out, network + 4);
            // The number of segments is bounded far below 2^16; the sum wraps.
            store(out, network + 4, first.wrapping_add(narrow(index)));
        }
        let sum = checksum::ipv4_header(&out[network..usize::from(self.transport)]);
        store(out, network + 10, sum);
    }

    fn patch_tcp(&self, index: u32, out: &mut [u8]) {
        let tcp = &mut out[usize::from(self.transport)..];
        let first = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let sequence = first.wrapping_add(index * u32::from(self.size));
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if index > 0 {
            tcp[TCP_FLAGS] &= !TCP_CWR;
        }
        if index + 1 < self.segments {
            tcp[TCP_FLAGS] &= !(TCP_FIN | TCP_PSH);
        }
    }

    fn patch_checksum(&self, out: &mut [u8], transport_bytes: u32, fill: Fill) -> ChecksumState {
        let transport = usize::from(self.transport);
        let offset = if self.kind.is_tcp() {
            TCP_CHECKSUM
        } else {
            UDP_CHECKSUM
        };
        let mut sum = self.pseudo_header(out, transport_bytes);
        match fill {
            Fill::Partial => {
                store(out, transport + usize::from(offset), sum.fold());
                ChecksumState::Partial {
                    start: self.transport,
                    offset,
                }
            }
            Fill::Complete { payload } => {
                store(out, transport + usize::from(offset), 0);
                sum.add(&out[transport..]);
                sum.add_sum(payload);
                let field = finish_partial(sum, !self.kind.is_tcp());
                store(out, transport + usize::from(offset), field);
                ChecksumState::Unnecessary
            }
        }
    }

    fn pseudo_header(&self, out: &[u8], transport_bytes: u32) -> Sum {
        let network = usize::from(self.network);
        let destination = usize::from(self.destination);
        let protocol = if self.kind.is_tcp() {
            IpProtocol::TCP
        } else {
            IpProtocol::UDP
        };
        if self.kind.is_ipv6() {
            let source = address::<16>(out, network + 8);
            let destination = address::<16>(out, destination);
            checksum::pseudo_header_v6(source, destination, protocol.0, transport_bytes)
        } else {
            let source = address::<4>(out, network + 12);
            let destination = address::<4>(out, destination);
            checksum::pseudo_header_v4(source, destination, protocol.0, transport_bytes)
        }
    }
}

/// The final value of an unfinished checksum field.
///
/// Every packet that is [`ChecksumState::Partial`] and is not cut needs it before a cable may carry
/// it. A GSO packet that fits one segment is among them:
/// [`validate`](crate::virtio_net::validate) returns it with `gso: None`, still `Partial`.
///
/// `sum_from_start` is the sum over every byte from `start` of [`ChecksumState::Partial`] to the
/// end of the packet, the field itself included as it stands. `is_udp` applies the rule that a
/// computed 0 is stored as 0xFFFF, since 0 means "no checksum" (RFC 768, RFC 8200 §8.1).
///
/// For `is_udp` pass whether `offset` of `Partial` is 6: that is where UDP has the field, and TCP
/// has it at 16. It may be 6 in a protocol that is not known, too: both values are equally valid in
/// every other protocol that uses this sum (`skb_checksum_help()` in Linux never stores 0).
#[must_use]
pub fn finish_partial(sum_from_start: Sum, is_udp: bool) -> u16 {
    let field = sum_from_start.finish();
    if is_udp {
        checksum::udp_field(field)
    } else {
        field
    }
}

/// DF in the byte that holds the flags of the IPv4 header.
const IPV4_DF: u8 = 0x40;
/// Offset of the flags in the TCP header.
const TCP_FLAGS: usize = 13;
const TCP_FIN: u8 = 0x01;
const TCP_SYN: u8 = 0x02;
const TCP_RST: u8 = 0x04;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
/// Offset of the checksum in the TCP header.
const TCP_CHECKSUM: u16 = 16;
/// Offset of the length in the UDP header.
const UDP_LENGTH: usize = 4;
/// Offset of the checksum in the UDP header.
const UDP_CHECKSUM: u16 = 6;

fn load(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn store(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// `new` made sure that every value stored in 16 bits fits.
fn narrow(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn address<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut address = [0; N];
    address.copy_from_slice(&bytes[at..at + N]);
    address
}

fn check_kind(kind: GsoKind, layout: &Layout) -> Result<(), SegmentError> {
    let network = if kind.is_ipv6() {
        Network::Ipv6
    } else {
        Network::Ipv4
    };
    let transport = if kind.is_tcp() {
        Transport::Tcp
    } else {
        Transport::Udp
    };
    if layout.kind != network || layout.transport_kind != transport {
        return Err(SegmentError::Kind);
    }
    Ok(())
}

/// Makes sure that every fixed field is inside `headers`, whatever the layout says.
fn check_headers(kind: GsoKind, headers: &[u8], layout: &Layout) -> Result<(), SegmentError> {
    let network = usize::from(layout.network);
    let transport = usize::from(layout.transport);
    let network_bytes = transport
        .checked_sub(network)
        .ok_or(SegmentError::Headers)?;
    let transport_bytes = headers
        .len()
        .checked_sub(transport)
        .ok_or(SegmentError::Headers)?;
    let network_fits = if kind.is_ipv6() {
        network_bytes >= 40 && headers[network] >> 4 == 6
    } else {
        network_bytes >= 20
            && headers[network] >> 4 == 4
            && usize::from(headers[network] & 0x0f) * 4 == network_bytes
    };
    let transport_fits = if kind.is_tcp() {
        transport_bytes >= 20 && usize::from(headers[transport + 12] >> 4) * 4 == transport_bytes
    } else {
        transport_bytes == 8
    };
    if network_fits && transport_fits {
        Ok(())
    } else {
        Err(SegmentError::Headers)
    }
}

fn check_transport(
    kind: GsoKind,
    headers: &[u8],
    layout: &Layout,
    segments: u32,
) -> Result<(), SegmentError> {
    let transport = usize::from(layout.transport);
    let max = if kind.is_tcp() {
        TCP_SEGMENTS_MAX
    } else {
        UDP_SEGMENTS_MAX
    };
    if segments > max {
        return Err(SegmentError::TooManySegments);
    }
    if kind.is_tcp() {
        let flags = headers[transport + TCP_FLAGS];
        if segments > 1 && flags & (TCP_SYN | TCP_RST) != 0 {
            return Err(SegmentError::TcpFlags);
        }
    } else {
        let datagram = layout.ip_end - u32::from(layout.transport);
        if u32::from(load(headers, transport + UDP_LENGTH)) != datagram {
            return Err(SegmentError::UdpLength);
        }
    }
    Ok(())
}

/// Where the address is that the sender of a source-routed packet used in the pseudo-header: the
/// last one of the route (RFC 1122 §4.1.3.5, §4.2.3.8).
fn final_destination_v4(headers: &[u8], layout: &Layout) -> Result<u16, SegmentError> {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    let options = &headers[..usize::from(layout.transport)];
    let mut at = usize::from(layout.network) + 20;
    while let Some(&[option, len, pointer]) = options.get(at..at + 3) {
        let len = usize::from(len);
        match option {
            0 => break,
            1 => at += 1,
            _ if len < 2 || at + len > options.len() => break,
            LOOSE | STRICT if len >= 7 && usize::from(pointer) <= len => {
                return u16::try_from(at + len - 4).map_err(|_| SegmentError::SourceRoute);
            }
            _ => at += len,
        }
    }
    Err(SegmentError::SourceRoute)
}

/// The same for IPv6: the last address of the routing header (RFC 8200 §8.1).
fn final_destination_v6(headers: &[u8], layout: &Layout) -> Result<u16, SegmentError> {
    let network = usize::from(layout.network);
    let mut rest = &headers[network + 40..usize::from(layout.transport)];
    let mut next = IpProtocol(headers[network + 6]);
    while let Some(&[following, units, route, left]) = rest.get(..4) {
        let len = (usize::from(units) + 1) * 8;
        if len > rest.len() {
            break;
        }
        if next == IpProtocol::ROUTING && left != 0 {
            let at = usize::from(layout.transport) - rest.len();
            let address = match route {
                0 | 2 if len >= 24 => at + len - 16,
                // RFC 8754 §2: the segment list is stored backwards.
                4 if len >= 24 => at + 8,
                _ => break,
            };
            return u16::try_from(address).map_err(|_| SegmentError::SourceRoute);
        }
        next = IpProtocol(following);
        rest = &rest[len..];
    }
    Err(SegmentError::SourceRoute)
}

#[cfg(test)]
mod tests;
