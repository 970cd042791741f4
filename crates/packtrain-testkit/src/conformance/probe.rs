//! Packets of the suite, built from a description. Building and checking them shares no code with
//! the tested framework, not even for checksums.

use super::outside::{Outside, tag_bytes};
use packtrain::driver::Features;
use packtrain::packet::{Packet, VlanTag};
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use std::collections::VecDeque;
use std::num::NonZeroU16;

impl Outside {
    /// A received packet without the tag that the port has inserted.
    ///
    /// # Panics
    ///
    /// If it has no such tag.
    pub(super) fn received(packet: &Packet, tag: Option<VlanTag>) -> Self {
        let mut outside = Self::of(packet);
        if let Some(tag) = tag {
            let found: Vec<u8> = outside.bytes.splice(12..16, []).collect();
            assert_eq!(found, tag_bytes(tag), "the port's own tag");
            if let ChecksumState::Partial { start, .. } = &mut outside.checksum {
                *start -= 4;
            }
        }
        outside
    }
}

/// Ports by which the suite recognises its own packets.
const SOURCE_PORT: u16 = 47_311;
const DESTINATION_PORT: u16 = 47_312;
const SOURCE_V4: [u8; 4] = [198, 18, 3, 1];
const DESTINATION_V4: [u8; 4] = [198, 18, 3, 2];
const SOURCE_V6: [u8; 16] = [0xfd, 0x18, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const DESTINATION_V6: [u8; 16] = [0xfd, 0x18, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

/// The shortest payload: every frame then has at least 60 bytes, so no link pads it.
pub const PAYLOAD_MIN: usize = 18;

/// The description of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its link type.
    pub link: LinkType,
    /// TCP or UDP, over IPv4 or IPv6.
    pub kind: GsoKind,
    /// A number that makes its payload unique.
    pub number: u32,
    /// Bytes of payload.
    pub payload: usize,
    /// Its VLAN tag, if it has one.
    pub vlan: Option<VlanTag>,
    /// TCP: with CWR.
    pub cwr: bool,
}

impl Probe {
    fn payload_bytes(&self) -> Vec<u8> {
        let number = self.number.to_be_bytes();
        let byte = |i: usize| match number.get(i) {
            Some(byte) => *byte,
            // No two adjacent bytes are equal, nor are two packets.
            None => (i as u32)
                .wrapping_mul(self.number.wrapping_mul(2) + 7)
                .to_le_bytes()[1],
        };
        (0..self.payload).map(byte).collect()
    }

    fn flags(&self) -> u8 {
        ACK | PSH | FIN | ECE | if self.cwr { CWR } else { 0 }
    }

    fn header_bytes(&self) -> (usize, usize, usize) {
        let link = self.link.header_bytes();
        let ip = if self.kind.is_ipv6() { 40 } else { 20 };
        let transport = if self.kind.is_tcp() { 20 } else { 8 };
        (link, ip, transport)
    }

    /// The packet with a complete checksum.
    pub fn complete(&self) -> Vec<u8> {
        self.build(&self.payload_bytes(), 0, 0, self.flags(), true)
    }

    /// The packet with a partial checksum, and the tag in the metadata.
    pub fn partial(&self) -> Outside {
        let untagged = Self {
            vlan: None,
            ..*self
        };
        let bytes = untagged.build(&self.payload_bytes(), 0, 0, self.flags(), false);
        let (link, ip, _) = self.header_bytes();
        Outside {
            bytes,
            checksum: ChecksumState::Partial {
                start: (link + ip) as u16,
                offset: if self.kind.is_tcp() { 16 } else { 6 },
            },
            gso: None,
        }
    }

    /// The GSO packet with segments of `size` bytes, and the tag in the metadata.
    pub fn gso(&self, size: NonZeroU16) -> Outside {
        Outside {
            gso: Some(Gso::new(self.kind, size).with_ecn(if self.cwr {
                Ecn::Cwr
            } else {
                Ecn::None
            })),
            ..self.partial()
        }
    }

    /// The wire packets of [`Self::gso`].
    pub fn wire(&self, size: NonZeroU16) -> Vec<Vec<u8>> {
        let size = usize::from(size.get());
        let payload = self.payload_bytes();
        let last = payload.len().div_ceil(size) - 1;
        let segment = |(index, piece): (usize, &[u8])| {
            let mut flags = self.flags();
            if index < last {
                flags &= !(FIN | PSH);
            }
            if index > 0 {
                flags &= !CWR;
            }
            self.build(piece, index as u16, (index * size) as u32, flags, true)
        };
        payload.chunks(size).enumerate().map(segment).collect()
    }

    /// The features that a device needs for [`Self::gso`].
    pub fn gso_features(&self) -> Features {
        let ecn = if self.cwr {
            Features::TSO_ECN
        } else {
            Features::NONE
        };
        Features::of(self.kind) | self.checksum_feature() | ecn
    }

    /// The feature that a device needs for [`Self::partial`].
    pub const fn checksum_feature(&self) -> Features {
        if self.kind.is_ipv6() {
            Features::CSUM6
        } else {
            Features::CSUM4
        }
    }

    fn build(&self, payload: &[u8], id: u16, sequence: u32, flags: u8, finish: bool) -> Vec<u8> {
        let (_, _, transport_bytes) = self.header_bytes();
        let mut l4 = Vec::with_capacity(transport_bytes + payload.len());
        l4.extend(SOURCE_PORT.to_be_bytes());
        l4.extend(DESTINATION_PORT.to_be_bytes());
        if self.kind.is_tcp() {
            l4.extend((self.number.wrapping_add(sequence)).to_be_bytes());
            l4.extend([0, 0, 0, 9, 5 << 4, flags, 1, 0, 0, 0, 0, 0]);
        } else {
            l4.extend(((transport_bytes + payload.len()) as u16).to_be_bytes());
            l4.extend([0, 0]);
        }
        l4.extend(payload);
        let field = if self.kind.is_tcp() { 16 } else { 6 };
        let pseudo = self.pseudo_header(l4.len());
        let check = if finish {
            let sum = !slow_sum(&[pseudo, l4.clone()].concat());
            if sum == 0 && !self.kind.is_tcp() {
                0xFFFF
            } else {
                sum
            }
        } else {
            slow_sum(&pseudo)
        };
        l4[field..field + 2].copy_from_slice(&check.to_be_bytes());
        let mut bytes = self.link_and_ip(id, l4.len());
        bytes.extend(l4);
        bytes
    }

    const fn protocol(&self) -> u8 {
        if self.kind.is_tcp() { 6 } else { 17 }
    }

    fn pseudo_header(&self, l4_bytes: usize) -> Vec<u8> {
        let length = (l4_bytes as u32).to_be_bytes();
        let tail = [0, 0, 0, self.protocol()];
        if self.kind.is_ipv6() {
            [&SOURCE_V6[..], &DESTINATION_V6, &length, &tail].concat()
        } else {
            [&SOURCE_V4[..], &DESTINATION_V4, &tail, &length].concat()
        }
    }

    fn link_and_ip(&self, id: u16, l4_bytes: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(60);
        let ethertype: u16 = if self.kind.is_ipv6() { 0x86DD } else { 0x0800 };
        if self.link == LinkType::Ethernet {
            bytes.extend([2, 0, 0, 0, 3, 2, 2, 0, 0, 0, 3, 1]);
            bytes.extend(self.vlan.map(tag_bytes).into_iter().flatten());
            bytes.extend(ethertype.to_be_bytes());
        }
        if self.link == LinkType::Ipoib {
            bytes.extend(ethertype.to_be_bytes());
            bytes.extend([0, 0]);
        }
        if self.kind.is_ipv6() {
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend((l4_bytes as u16).to_be_bytes());
            bytes.extend([self.protocol(), 64]);
            bytes.extend(SOURCE_V6);
            bytes.extend(DESTINATION_V6);
        } else {
            let at = bytes.len();
            bytes.extend([0x45, 0]);
            bytes.extend(((20 + l4_bytes) as u16).to_be_bytes());
            bytes.extend((self.number as u16).wrapping_add(id).to_be_bytes());
            bytes.extend([0x40, 0, 64, self.protocol(), 0, 0]);
            bytes.extend(SOURCE_V4);
            bytes.extend(DESTINATION_V4);
            let check = !slow_sum(&bytes[at..]);
            bytes[at + 10..at + 12].copy_from_slice(&check.to_be_bytes());
        }
        bytes
    }
}

/// The folded ones' complement sum, not complemented, by a simple loop.
fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or(0));
        if sum > 0xFFFF {
            sum -= 0xFFFF;
        }
    }
    sum as u16
}

/// Whether the suite made this packet.
pub fn is_probe(link: LinkType, bytes: &[u8]) -> bool {
    let mut at = link.header_bytes();
    if link == LinkType::Ethernet && matches!(bytes.get(12..14), Some([0x81, 0] | [0x88, 0xA8])) {
        at += 4;
    }
    let transport = match bytes.get(at).map(|first| first >> 4) {
        Some(4) => at + 20,
        Some(6) => at + 40,
        _ => return false,
    };
    let ports = [SOURCE_PORT.to_be_bytes(), DESTINATION_PORT.to_be_bytes()].concat();
    bytes.get(transport..transport + 4) == Some(&ports[..])
}

/// The packet with its checksum completed, by a simple loop.
fn finish(packet: &Outside) -> Vec<u8> {
    let mut bytes = packet.bytes.clone();
    if let ChecksumState::Partial { start, offset } = packet.checksum {
        let start = usize::from(start);
        let field = start + usize::from(offset);
        let sum = !slow_sum(&bytes[start..]);
        let sum = if sum == 0 && offset == 6 { 0xFFFF } else { sum };
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

/// An expected packet: as one packet, or as wire packets.
#[derive(Clone, Debug)]
pub struct Expected {
    /// As one packet.
    pub whole: Outside,
    /// As wire packets.
    pub wire: Vec<Vec<u8>>,
}

/// Compares the packets that arrive with the expected ones, in order.
#[derive(Debug)]
pub struct Matcher {
    link: LinkType,
    expected: VecDeque<Expected>,
    /// Wire packets of the first expected packet that have arrived.
    part: usize,
    /// Whether packets may be lost.
    lossy: bool,
    /// Whether other packets may arrive between those expected.
    pub skips_others: bool,
    /// Packets that arrived.
    pub matched: usize,
}

impl Matcher {
    /// Without expected packets.
    pub const fn new(link: LinkType, lossy: bool) -> Self {
        Self {
            link,
            expected: VecDeque::new(),
            part: 0,
            lossy,
            skips_others: false,
            matched: 0,
        }
    }

    /// Expects this packet next.
    pub fn expect(&mut self, expected: Expected) {
        self.expected.push_back(expected);
    }

    /// Expects this complete packet next.
    pub fn expect_finished(&mut self, bytes: Vec<u8>) {
        self.expect(Expected {
            whole: Outside::complete(bytes.clone()),
            wire: vec![bytes],
        });
    }

    /// Whether all expected packets have arrived.
    pub fn is_done(&self) -> bool {
        self.expected.is_empty()
    }

    /// The number of packets that have not arrived.
    pub fn missing(&self) -> usize {
        self.expected.len()
    }

    /// A packet has arrived. Those of other senders are ignored.
    pub fn arrived(&mut self, got: &Outside) {
        if !is_probe(self.link, &got.bytes) || self.skips_others && !self.awaits(got) {
            return;
        }
        loop {
            let Some(next) = self.expected.front() else {
                panic!(
                    "a packet arrived twice, or late: {:02x?}",
                    got.bytes.get(..80)
                );
            };
            if let Some(gso) = got.gso
                && let Some(want) = next.whole.gso
                && (gso.kind, gso.size) == (want.kind, want.size)
                && self.part == 0
                && starts_with(&finish(got), &finish(&next.whole))
            {
                self.next();
                return;
            }
            if got.gso.is_none() && starts_with(&finish(got), &next.wire[self.part]) {
                self.part += 1;
                if self.part == next.wire.len() {
                    self.next();
                }
                return;
            }
            assert!(self.lossy, "{}", self.difference(got, next));
            self.expected.pop_front();
            self.part = 0;
        }
    }

    /// Whether it is a wire packet of those expected.
    fn awaits(&self, got: &Outside) -> bool {
        let got = finish(got);
        let mut wire = self.expected.iter().flat_map(|one| &one.wire);
        wire.any(|wire| starts_with(&got, wire))
    }

    /// The difference, without the whole payload.
    fn difference(&self, got: &Outside, want: &Expected) -> String {
        let (matched, part) = (self.matched, self.part);
        let (complete, wire) = (finish(got), &want.wire[part]);
        let same = complete
            .iter()
            .zip(wire)
            .take_while(|(a, b)| a == b)
            .count();
        let (got_bytes, want_bytes) = (complete.len(), wire.len());
        let head = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(80)]);
        format!(
            "packet {matched}, wire packet {part}, is missing, late or changed: it has {got_bytes} \
             bytes of {want_bytes}, equal up to {same}\n got {:?} {:?}\n     {}\n\
             want {:?} {:?}\n     {}",
            got.gso,
            got.checksum,
            head(&complete),
            want.whole.gso,
            want.whole.checksum,
            head(wire),
        )
    }

    fn next(&mut self) {
        self.matched += 1;
        self.part = 0;
        self.expected.pop_front();
    }
}

/// Whether they are equal, or padded with zeros.
fn starts_with(got: &[u8], want: &[u8]) -> bool {
    got.len() >= want.len()
        && got[..want.len()] == *want
        && got[want.len()..].iter().all(|byte| *byte == 0)
}
