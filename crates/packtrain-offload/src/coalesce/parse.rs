//! From a packet to what the rules ask about: one parse, one verdict on whether it is a candidate.

use super::packet::Packet;
use super::shape::Shape;
use super::stats::NotTaken;
use crate::checksum::{self, Sum};
use crate::layout::{IpProtocol, Layout, Network, Transport};
use crate::offload::{ChecksumState, GsoKind, LinkType};
use crate::wire::ParseError;

/// What is to be done with a packet before its flow is even looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It may be merged or held.
    Candidate,
    /// It is handed on, after what is held of its flow.
    OfFlow(NotTaken),
    /// It is handed on, after everything: its flow cannot be told.
    OfAnyFlow(NotTaken),
    /// It is handed on: nothing of its kind is ever held.
    Stranger(NotTaken),
}

/// One packet, as the rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsed {
    /// Of addresses, ports and protocol; without meaning for a `Stranger`.
    pub hash: u64,
    pub shape: Shape,
    /// TCP sequence number.
    pub seq: u32,
    /// Transport payload, in bytes, without padding.
    pub payload_bytes: u32,
    /// Just after the IP datagram, from the packet's first byte.
    pub ip_end: u32,
    /// IPv4 identification.
    pub id: u16,
    /// TCP flags.
    pub flags: u8,
    pub class: Class,
}

pub(super) const TCP_FIN: u8 = 0x01;
pub(super) const TCP_SYN: u8 = 0x02;
pub(super) const TCP_RST: u8 = 0x04;
pub(super) const TCP_PSH: u8 = 0x08;
pub(super) const TCP_ACK: u8 = 0x10;
pub(super) const TCP_URG: u8 = 0x20;
pub(super) const TCP_CWR: u8 = 0x80;

/// `!MF && offset == 0 && !reserved`: all but DF.
const IPV4_NOT_DF: u16 = 0xBFFF;

impl Parsed {
    /// A packet that nothing is done with.
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

    /// A packet whose flow cannot be read.
    const fn of_any_flow(why: NotTaken) -> Self {
        let mut parsed = Self::stranger(why);
        parsed.class = Class::OfAnyFlow(why);
        parsed
    }

    /// Looks at `packet`. `strict` also refuses what could not be restored byte for byte.
    #[inline]
    pub(super) fn of<P: Packet>(packet: &P, link: LinkType, strict: bool, seed: u64) -> Self {
        let head = packet.head();
        let layout = match packet.layout() {
            Some(layout) => layout,
            None => match Layout::parse(link, head, packet.bytes()) {
                Ok(layout) => layout,
                Err(ParseError::HeadersNotContiguous) => {
                    return Self::of_any_flow(NotTaken::Shared);
                }
                Err(_malformed) => return Self::stranger(NotTaken::Protocol),
            },
        };
        if layout.fragment {
            return Self::of_any_flow(NotTaken::Fragment);
        }
        let kind = match (layout.kind, layout.transport_kind) {
            (Network::Ipv4, Transport::Tcp) => GsoKind::TcpV4,
            (Network::Ipv6, Transport::Tcp) => GsoKind::TcpV6,
            (Network::Ipv4, Transport::Udp) => GsoKind::UdpV4,
            (Network::Ipv6, Transport::Udp) => GsoKind::UdpV6,
            _ => return Self::stranger(NotTaken::Protocol),
        };
        let shape = Shape::new(kind, layout.network, layout.transport, layout.payload);
        let Some(head) = head.get(..shape.header_bytes()) else {
            // A layout that came with the packet, and headers in more than one piece.
            return Self::of_any_flow(NotTaken::Shared);
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
        if let Some(why) = parsed.refusal(packet, head, &layout, strict) {
            parsed.class = Class::OfFlow(why);
        }
        parsed
    }

    /// Why a TCP or UDP packet is no candidate. Reads headers only.
    #[inline]
    fn refusal<P: Packet>(
        &mut self,
        packet: &P,
        head: &[u8],
        layout: &Layout,
        strict: bool,
    ) -> Option<NotTaken> {
        let (network, transport) = (self.shape.network(), self.shape.transport());
        if packet.gso().is_some() {
            return Some(NotTaken::Gso);
        }
        if self.shape.kind().is_ipv6() {
            if layout.source_routed || (!strict && transport - network != 40) {
                return Some(NotTaken::Options);
            }
        } else {
            // `inet_gro_receive()`: the first byte is 0x45, no fragment, no reserved flag, and the
            // header checksum right.
            if transport - network != 20 {
                return Some(NotTaken::Options);
            }
            self.id = load16(head, network + 4);
            if load16(head, network + 6) & IPV4_NOT_DF != 0 {
                return Some(NotTaken::Options);
            }
            let ip: &[u8; 20] = head[network..].first_chunk()?;
            if !ipv4_header_is_right(ip) {
                return Some(NotTaken::BadChecksum);
            }
            if strict && load16(head, network + 10) == 0xFFFF {
                return Some(NotTaken::ChecksumForm);
            }
        }
        if strict && self.ip_end != packet.bytes() {
            return Some(NotTaken::Padding);
        }
        if !self.shape.kind().is_tcp()
            && u32::from(load16(head, transport + 4)) != self.ip_end - transport as u32
        {
            return Some(NotTaken::UdpLength);
        }
        self.checksum_refusal(packet.checksum(), head, strict)
    }

    /// Why the checksum field alone rules a packet out.
    #[inline]
    fn checksum_refusal(
        &self,
        state: ChecksumState,
        head: &[u8],
        strict: bool,
    ) -> Option<NotTaken> {
        let transport = self.shape.transport();
        let at = self.shape.checksum_at();
        let field = load16(head, at);
        match state {
            ChecksumState::Partial { start, offset } => {
                let ours = usize::from(start) == transport && usize::from(start + offset) == at;
                (!ours).then_some(NotTaken::NoChecksum)
            }
            ChecksumState::None | ChecksumState::Unnecessary => {
                if self.shape.kind().is_tcp() {
                    (strict && field == 0xFFFF).then_some(NotTaken::ChecksumForm)
                } else if field == 0 {
                    Some(if self.shape.kind().is_ipv6() {
                        NotTaken::BadChecksum
                    } else {
                        NotTaken::NoChecksum
                    })
                } else {
                    None
                }
            }
        }
    }

    /// Sum of the pseudo-header and the transport header of `head`, checksum field included.
    #[inline]
    pub(super) fn transport_sum(&self, head: &[u8]) -> Sum {
        let bytes = self.ip_end - self.shape.transport() as u32;
        let mut sum = pseudo_header(head, self.shape, bytes);
        sum.add(&head[self.shape.transport()..self.shape.header_bytes()]);
        sum
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

pub(super) const fn protocol_of(kind: GsoKind) -> IpProtocol {
    if kind.is_tcp() {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    }
}

/// Whether two packets have the same addresses, ports and protocol.
#[inline]
pub(super) fn same_flow(a: &[u8], sa: Shape, b: &[u8], sb: Shape) -> bool {
    if sa.kind() != sb.kind() {
        return false;
    }
    let addresses = if sa.kind().is_ipv6() {
        array::<32>(a, sa.network() + 8) == array::<32>(b, sb.network() + 8)
    } else {
        array::<8>(a, sa.network() + 12) == array::<8>(b, sb.network() + 12)
    };
    addresses && array::<4>(a, sa.transport()) == array::<4>(b, sb.transport())
}

/// A ones-complement sum of exactly 20 bytes: five words, no loop.
#[inline]
fn ipv4_header_is_right(ip: &[u8; 20]) -> bool {
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

/// A hash of addresses, ports and protocol.
#[inline]
fn flow_hash(head: &[u8], shape: Shape, seed: u64) -> u64 {
    let network = shape.network();
    let ports = u64::from(u32::from_ne_bytes(array(head, shape.transport())));
    let rest = ports | (shape.kind() as u64) << 32;
    let addresses = if shape.kind().is_ipv6() {
        let word = |at| u64::from_ne_bytes(array(head, network + at));
        mix(word(8) ^ seed, word(16) ^ K1) ^ mix(word(24) ^ seed, word(32) ^ K2)
    } else {
        u64::from_ne_bytes(array(head, network + 12))
    };
    mix(addresses ^ seed, rest ^ K1)
}

const K1: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xD6E8_FEB8_6659_FD93;

/// Both halves of a 128-bit product.
#[inline]
const fn mix(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product >> 64) as u64 ^ product as u64
}

#[inline]
pub(super) fn load16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

#[inline]
pub(super) fn load32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

#[inline]
pub(super) fn store16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
