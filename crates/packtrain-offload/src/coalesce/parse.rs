//! Parsing a packet for the rules: one parse, and a verdict whether it is a candidate.

use super::header::{IPV4_NOT_DF, WIDE, array, load16, load32};
use super::packet::Packet;
use super::shape::{Shape, places, protocol_of};
use super::stats::NotTaken;
use crate::checksum::{self, Sum};
use crate::flow::fold;
use crate::layout::{EtherType, IpProtocol, Layout, Network, Transport};
use crate::limits::{IPV4_HEADER_BYTES_MIN, IPV6_HEADER_BYTES, L2_HEADER_BYTES_MAX};
use crate::offload::{ChecksumState, GsoKind, LinkType};
use crate::wire::ParseError;
use core::ops::Range;

/// The verdict on a packet before its flow is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It may be merged or held.
    Candidate,
    /// It is handed on, after the held packet of its flow.
    OfFlow(NotTaken),
    /// It is handed on, after the held packets with its addresses: its ports cannot be read. Only
    /// the IP version and the network header of its shape are valid.
    OfPair(NotTaken),
    /// It is handed on, after all held packets: its addresses cannot be read here, but its receiver
    /// can read them.
    OfAnyFlow(NotTaken),
    /// It is handed on: the coalescer never holds packets of its kind.
    Stranger(NotTaken),
}

/// One packet, as parsed for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parsed {
    /// Of addresses, ports and protocol; only for a `Candidate` and an `OfFlow`.
    pub hash: u64,
    pub shape: Shape,
    /// TCP sequence number.
    pub seq: u32,
    /// Transport payload, in bytes, without padding.
    pub payload_bytes: u32,
    /// End of the IP datagram, as an offset from the packet's first byte.
    pub ip_end: u32,
    /// IPv4 identification.
    pub id: u16,
    /// TCP flags.
    pub flags: u8,
    pub class: Class,
}

impl Parsed {
    /// A packet that the coalescer ignores.
    const fn stranger(why: NotTaken) -> Self {
        Self {
            hash: 0,
            shape: Shape::NONE,
            seq: 0,
            payload_bytes: 0,
            ip_end: 0,
            id: 0,
            flags: 0,
            class: Class::Stranger(why),
        }
    }

    /// A packet whose addresses cannot be read.
    const fn of_any_flow(why: NotTaken) -> Self {
        let mut parsed = Self::stranger(why);
        parsed.class = Class::OfAnyFlow(why);
        parsed
    }

    /// A packet of this network header whose ports cannot be read. `None` if its addresses are not
    /// in `head` either, or if it is not IP.
    fn of_pair(head: &[u8], layout: &Layout, why: NotTaken) -> Option<Self> {
        let network = layout.network;
        let (kind, header_bytes) = match layout.ethertype {
            EtherType::IPV4 => (GsoKind::TcpV4, IPV4_HEADER_BYTES_MIN),
            EtherType::IPV6 => (GsoKind::TcpV6, IPV6_HEADER_BYTES),
            _ => return None,
        };
        let is_there = usize::from(network) <= L2_HEADER_BYTES_MAX
            && head.len() >= usize::from(network) + header_bytes;
        is_there.then(|| Self {
            shape: Shape::new(kind, network, network, network),
            class: Class::OfPair(why),
            ..Self::stranger(why)
        })
    }

    /// A packet for which [`Layout::parse`] returns an error.
    fn of_refused(head: &[u8], link: LinkType, packet_bytes: u32, error: ParseError) -> Self {
        let why = match error {
            ParseError::HeadersNotContiguous => NotTaken::Shared,
            ParseError::UdpLengthShort | ParseError::UdpLengthBeyond => NotTaken::UdpLength,
            ParseError::IpVersionUnknown => NotTaken::Protocol,
            _ => NotTaken::Malformed,
        };
        if is_of_no_flow(error) {
            return Self::stranger(why);
        }
        let is_there = error != ParseError::HeadersNotContiguous;
        let pair = Layout::parse_link(link, head, packet_bytes)
            .ok()
            .and_then(|layout| Self::of_pair(head, &layout, why));
        match pair {
            Some(parsed) => parsed,
            // It ends before its addresses do: no receiver assigns it to a flow.
            None if is_there => Self::stranger(why),
            None => Self::of_any_flow(why),
        }
    }

    /// Parses `packet`. `strict` also refuses a packet that could not be restored byte for byte.
    #[inline]
    pub(super) fn of<P: Packet>(packet: &P, link: LinkType, strict: bool, seed: u64) -> Self {
        let head = packet.head();
        if let Some(wide) = head.first_chunk()
            && let Some(parsed) = common(packet, link, wide, strict, seed)
        {
            return parsed;
        }
        Self::of_any(packet, head, link, strict, seed)
    }

    /// A packet of any shape.
    #[inline(never)]
    pub(super) fn of_any<P: Packet>(
        packet: &P,
        head: &[u8],
        link: LinkType,
        strict: bool,
        seed: u64,
    ) -> Self {
        let layout = match packet.layout() {
            Some(layout) => layout,
            None => match Layout::parse(link, head, packet.bytes()) {
                Ok(layout) => layout,
                Err(error) => return Self::of_refused(head, link, packet.bytes(), error),
            },
        };
        if layout.fragment {
            return Self::of_pair(head, &layout, NotTaken::Fragment)
                .unwrap_or(Self::of_any_flow(NotTaken::Fragment));
        }
        let kind = match (layout.kind, layout.transport_kind) {
            (Network::Ipv4, Transport::Tcp) => GsoKind::TcpV4,
            (Network::Ipv6, Transport::Tcp) => GsoKind::TcpV6,
            (Network::Ipv4, Transport::Udp) => GsoKind::UdpV4,
            (Network::Ipv6, Transport::Udp) => GsoKind::UdpV6,
            _ if is_tunnel(&layout) => return Self::stranger(NotTaken::Tunnel),
            _ => return Self::stranger(NotTaken::Protocol),
        };
        if (layout.network | layout.transport | layout.payload) % 2 == 1 {
            // The headers are of other kinds, but a layout that came with the packet may describe
            // them so.
            return Self::of_any_flow(NotTaken::Protocol);
        }
        let shape = Shape::new(kind, layout.network, layout.transport, layout.payload);
        let Some(head) = head.get(..shape.header_bytes()) else {
            // A layout that came with the packet, and headers in more than one piece.
            return Self::of_pair(head, &layout, NotTaken::Shared)
                .unwrap_or(Self::of_any_flow(NotTaken::Shared));
        };
        let mut parsed = Self {
            hash: flow_hash(head, shape, seed),
            shape,
            seq: 0,
            payload_bytes: layout.payload_len(),
            ip_end: layout.ip_end,
            id: 0,
            flags: 0,
            class: Class::Candidate,
        };
        if kind.is_tcp() {
            let tcp = shape.transport();
            parsed.seq = load32(head, tcp + 4);
            parsed.flags = head[tcp + 13];
        }
        if !kind.is_ipv6() {
            parsed.id = load16(head, shape.network() + 4);
        }
        let contents = Contents {
            kind,
            transport: layout.transport,
            ip_end: layout.ip_end,
            ipv4: head[shape.network()..]
                .first_chunk()
                .filter(|_| !kind.is_ipv6()),
            checksum: load16(head, shape.checksum_at()),
            udp_length: load16(head, shape.transport() + 4),
        };
        let why = parsed
            .structure(head, &layout, strict)
            .or_else(|| contents.refusal(packet, strict));
        parsed.class = why.map_or(Class::Candidate, Class::OfFlow);
        parsed
    }

    /// The reason why the header structure of a TCP or UDP packet makes it no candidate, if any.
    fn structure(&self, head: &[u8], layout: &Layout, strict: bool) -> Option<NotTaken> {
        let (network, transport) = (self.shape.network(), self.shape.transport());
        let options = if self.shape.kind().is_ipv6() {
            layout.source_routed || (!strict && transport - network != 40)
        } else {
            // `inet_gro_receive()`: the first byte is 0x45, no fragment, no reserved flag.
            transport - network != 20 || load16(head, network + 6) & IPV4_NOT_DF != 0
        };
        options.then_some(NotTaken::Options)
    }

    /// Where the transport payload is.
    #[inline]
    pub(super) const fn payload(&self) -> Range<u32> {
        self.ip_end - self.payload_bytes..self.ip_end
    }

    /// See [`transport_sum`].
    #[inline]
    pub(super) fn transport_sum(&self, head: &[u8]) -> Sum {
        transport_sum(head, self.shape, self.ip_end)
    }
}

/// Whether a packet with this error is certainly neither TCP nor UDP over IP.
const fn is_of_no_flow(error: ParseError) -> bool {
    matches!(
        error,
        ParseError::EthernetTruncated
            | ParseError::IpoibTruncated
            | ParseError::VlanTruncated
            | ParseError::IpTruncated
            | ParseError::IpVersionUnknown
            | ParseError::ArpTruncated
            | ParseError::IcmpTruncated
            | ParseError::Icmpv6Truncated
    )
}

/// Whether another packet follows the headers, which is not parsed.
const fn is_tunnel(layout: &Layout) -> bool {
    if layout.is_ip() {
        matches!(
            layout.protocol,
            IpProtocol::GRE | IpProtocol::IPV4 | IpProtocol::IPV6
        )
    } else {
        matches!(
            layout.ethertype,
            EtherType::MPLS | EtherType::MPLS_UPSTREAM | EtherType::PPPOE_SESSION
        )
    }
}

/// Sum of the pseudo-header and the transport header of `head`, checksum field included.
#[inline]
pub(super) fn transport_sum(head: &[u8], shape: Shape, ip_end: u32) -> Sum {
    let bytes = ip_end - shape.transport() as u32;
    let mut sum = pseudo_header(head, shape, bytes);
    sum.add(&head[shape.transport()..shape.header_bytes()]);
    sum
}

/// The checks on a packet of the right kind that may still refuse it. Headers only.
struct Contents<'a> {
    kind: GsoKind,
    transport: u16,
    ip_end: u32,
    /// The first 20 bytes of an IPv4 header.
    ipv4: Option<&'a [u8; 20]>,
    /// The transport checksum field.
    checksum: u16,
    /// The UDP length field.
    udp_length: u16,
}

impl Contents<'_> {
    #[inline(always)]
    fn refusal<P: Packet>(&self, packet: &P, strict: bool) -> Option<NotTaken> {
        if packet.gso().is_some() {
            return Some(NotTaken::Gso);
        }
        if strict && self.ip_end != packet.bytes() {
            return Some(NotTaken::Padding);
        }
        if let Some(ip) = self.ipv4 {
            if !ipv4_header_is_right(ip) {
                return Some(NotTaken::BadChecksum);
            }
            if strict && [ip[10], ip[11]] == [0xFF; 2] {
                return Some(NotTaken::ChecksumForm);
            }
        }
        let tcp = self.kind.is_tcp();
        if !tcp && u32::from(self.udp_length) != self.ip_end - u32::from(self.transport) {
            return Some(NotTaken::UdpLength);
        }
        match packet.checksum() {
            ChecksumState::Partial { start, offset } => {
                let ours = start == self.transport && offset == if tcp { 16 } else { 6 };
                (!ours).then_some(NotTaken::NoChecksum)
            }
            ChecksumState::None | ChecksumState::Unnecessary => match self.checksum {
                0xFFFF if tcp && strict => Some(NotTaken::ChecksumForm),
                0 if !tcp && self.ipv4.is_some() => Some(NotTaken::NoChecksum),
                0 if !tcp => Some(NotTaken::BadChecksum),
                _ => None,
            },
        }
    }
}

/// The pseudo-header sum for a transport header and payload of `bytes` bytes.
#[inline]
pub(super) fn pseudo_header(head: &[u8], shape: Shape, bytes: u32) -> Sum {
    let network = shape.network();
    let protocol = protocol_of(shape.kind()).0;
    if shape.kind().is_ipv6() {
        checksum::pseudo_header_v6(
            array(head, network + 8),
            array(head, network + 24),
            protocol,
            bytes,
        )
    } else {
        checksum::pseudo_header_v4(
            array(head, network + 12),
            array(head, network + 16),
            protocol,
            bytes,
        )
    }
}

/// Whether two packets have the same addresses, ports and protocol.
#[inline]
pub(super) fn same_flow(a: &[u8], sa: Shape, b: &[u8], sb: Shape) -> bool {
    sa.kind() == sb.kind()
        && same_pair(a, sa, b, sb)
        && array::<4>(a, sa.transport()) == array::<4>(b, sb.transport())
}

/// Whether two packets have the same IP version and addresses.
#[inline]
pub(super) fn same_pair(a: &[u8], sa: Shape, b: &[u8], sb: Shape) -> bool {
    if sa.kind().is_ipv6() != sb.kind().is_ipv6() {
        false
    } else if sa.kind().is_ipv6() {
        array::<32>(a, sa.network() + 8) == array::<32>(b, sb.network() + 8)
    } else {
        array::<8>(a, sa.network() + 12) == array::<8>(b, sb.network() + 12)
    }
}

/// A ones-complement sum of exactly 20 bytes: five words, no loop.
#[inline(always)]
pub(super) fn ipv4_header_is_right(ip: &[u8; 20]) -> bool {
    let (words, _) = ip.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let sum = (sum & 0xFFFF) + ((sum >> 16) & 0xFFFF) + (sum >> 32);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    // Never zero: the version is in it.
    sum == 0xFFFF
}

/// Parses the headers of nearly all packets: short enough, no VLAN tag, no IPv4 options, no IPv6
/// extension headers, no fragment. Returns `None` for all others, and for every packet that
/// [`Layout::parse`] would refuse. Otherwise the result equals that of [`Layout::parse`] (a
/// property test compares them), in a third of the time, since every offset is a compile-time
/// constant.
#[inline(always)]
fn common<P: Packet>(
    packet: &P,
    link: LinkType,
    wide: &[u8; WIDE],
    strict: bool,
    seed: u64,
) -> Option<Parsed> {
    match link {
        LinkType::Ethernet => match [wide[12], wide[13]] {
            [0x08, 0x00] => common_v4::<P, 14>(packet, wide, strict, seed),
            [0x86, 0xDD] => common_v6::<P, 14>(packet, wide, strict, seed),
            _ => None,
        },
        LinkType::RawIp => match wide[0] >> 4 {
            4 => common_v4::<P, 0>(packet, wide, strict, seed),
            6 => common_v6::<P, 0>(packet, wide, strict, seed),
            _ => None,
        },
        LinkType::Ipoib => None,
    }
}

#[inline(always)]
fn common_v4<P: Packet, const AT: usize>(
    packet: &P,
    wide: &[u8; WIDE],
    strict: bool,
    seed: u64,
) -> Option<Parsed> {
    let ip: &[u8; 40] = wide[AT..].first_chunk()?;
    if ip[0] != 0x45 || u16::from_be_bytes([ip[6], ip[7]]) & IPV4_NOT_DF != 0 {
        return None;
    }
    let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
    let addresses: [u8; 8] = *ip[12..].first_chunk()?;
    let ports: [u8; 4] = *ip[20..].first_chunk()?;
    let (tcp, transport_bytes) =
        transport(ip[9], ip[32], [ip[24], ip[25]], total.wrapping_sub(20))?;
    let kind = if tcp { GsoKind::TcpV4 } else { GsoKind::UdpV4 };
    let header_bytes = AT as u32 + 20 + transport_bytes;
    let ip_end = AT as u32 + total;
    if header_bytes as usize > WIDE || ip_end < header_bytes || ip_end > packet.bytes() {
        return None;
    }
    let contents = Contents {
        kind,
        transport: AT as u16 + 20,
        ip_end,
        ipv4: ip.first_chunk(),
        checksum: if tcp {
            u16::from_be_bytes([ip[36], ip[37]])
        } else {
            u16::from_be_bytes([ip[26], ip[27]])
        },
        udp_length: u16::from_be_bytes([ip[24], ip[25]]),
    };
    let addresses = u64::from_ne_bytes(addresses);
    Some(Parsed {
        hash: hash_of(addresses, u32::from_ne_bytes(ports), kind, seed),
        shape: Shape::new(kind, AT as u16, AT as u16 + 20, header_bytes as u16),
        seq: if tcp {
            u32::from_be_bytes([ip[24], ip[25], ip[26], ip[27]])
        } else {
            0
        },
        payload_bytes: ip_end - header_bytes,
        ip_end,
        id: u16::from_be_bytes([ip[4], ip[5]]),
        flags: if tcp { ip[33] } else { 0 },
        class: contents
            .refusal(packet, strict)
            .map_or(Class::Candidate, Class::OfFlow),
    })
}

#[inline(always)]
fn common_v6<P: Packet, const AT: usize>(
    packet: &P,
    wide: &[u8; WIDE],
    strict: bool,
    seed: u64,
) -> Option<Parsed> {
    let ip: &[u8; 60] = wide[AT..].first_chunk()?;
    if ip[0] >> 4 != 6 {
        return None;
    }
    let after = u32::from(u16::from_be_bytes([ip[4], ip[5]]));
    let ports: [u8; 4] = *ip[40..].first_chunk()?;
    let (tcp, transport_bytes) = transport(ip[6], ip[52], [ip[44], ip[45]], after)?;
    let kind = if tcp { GsoKind::TcpV6 } else { GsoKind::UdpV6 };
    let header_bytes = AT as u32 + 40 + transport_bytes;
    let ip_end = AT as u32 + 40 + after;
    if header_bytes as usize > WIDE || ip_end < header_bytes || ip_end > packet.bytes() {
        return None;
    }
    let addresses: &[u8; 32] = ip[8..].first_chunk()?;
    let contents = Contents {
        kind,
        transport: AT as u16 + 40,
        ip_end,
        ipv4: None,
        checksum: if tcp {
            u16::from_be_bytes([ip[56], ip[57]])
        } else {
            u16::from_be_bytes([ip[46], ip[47]])
        },
        udp_length: u16::from_be_bytes([ip[44], ip[45]]),
    };
    Some(Parsed {
        hash: hash_of(
            fold_v6(addresses, seed),
            u32::from_ne_bytes(ports),
            kind,
            seed,
        ),
        shape: Shape::new(kind, AT as u16, AT as u16 + 40, header_bytes as u16),
        seq: if tcp {
            u32::from_be_bytes([ip[44], ip[45], ip[46], ip[47]])
        } else {
            0
        },
        payload_bytes: ip_end - header_bytes,
        ip_end,
        id: 0,
        flags: if tcp { ip[53] } else { 0 },
        class: contents
            .refusal(packet, strict)
            .map_or(Class::Candidate, Class::OfFlow),
    })
}

/// Whether it is TCP, and the length of the transport header, for TCP or UDP with plausible
/// lengths. `offset` is the byte at 12, `length` the two bytes at 4.
#[inline(always)]
fn transport(protocol: u8, offset: u8, length: [u8; 2], bytes: u32) -> Option<(bool, u32)> {
    if protocol == IpProtocol::TCP.0 {
        let header = u32::from(offset >> 4) * 4;
        (header >= 20).then_some((true, header))
    } else if protocol == IpProtocol::UDP.0 {
        (u32::from(u16::from_be_bytes(length)) == bytes && bytes >= 8).then_some((false, 8))
    } else {
        None
    }
}

/// The hash of a packet of a common shape.
#[inline(always)]
pub(super) fn hash_at(shape: Shape, head: &[u8; WIDE], seed: u64) -> u64 {
    let (kind, network, transport) = places(shape);
    let ports: [u8; 4] = array(head, transport);
    let addresses = if kind.is_ipv6() {
        fold_v6(&array(head, network + 8), seed)
    } else {
        u64::from_ne_bytes(array(head, network + 12))
    };
    hash_of(addresses, u32::from_ne_bytes(ports), kind, seed)
}

/// A hash of addresses, ports and protocol.
fn flow_hash(head: &[u8], shape: Shape, seed: u64) -> u64 {
    let network = shape.network();
    let ports = u32::from_ne_bytes(array(head, shape.transport()));
    let addresses = if shape.kind().is_ipv6() {
        fold_v6(&array(head, network + 8), seed)
    } else {
        u64::from_ne_bytes(array(head, network + 12))
    };
    hash_of(addresses, ports, shape.kind(), seed)
}

#[inline(always)]
const fn hash_of(addresses: u64, ports: u32, kind: GsoKind, seed: u64) -> u64 {
    fold(addresses ^ seed, (ports as u64 | (kind as u64) << 32) ^ K1)
}

#[inline(always)]
fn fold_v6(addresses: &[u8; 32], seed: u64) -> u64 {
    let (words, _) = addresses.as_chunks::<8>();
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| u64::from_ne_bytes(words[i]));
    fold(a ^ seed, b ^ K1) ^ fold(c ^ seed, d ^ K2)
}

const K1: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xD6E8_FEB8_6659_FD93;
