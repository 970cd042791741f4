//! Packets for tests, built field by field from a description, with sums of their own: nothing here
//! uses the code under test.
//!
//! [`Spec`] has the fields that matter for segmentation, [`frame::Frame`] every field that can keep
//! two packets from merging, [`tunnel::Carried`] a packet around another; [`wire::Wire`] can be
//! merged.
//!
//! Tests beside the library and fuzz targets include this folder by its path, and import the
//! modules of the library that it names.

pub mod frame;
pub mod tunnel;
pub mod wire;

use std::vec;
use std::vec::Vec;

use crate::offload::LinkType;

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const URG: u8 = 0x20;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;

/// The content of the transport checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The pseudo-header sum, not complemented.
    Preload,
    /// The final value.
    Final,
    /// This value.
    Value(u16),
}

/// An IPv6 extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ext {
    HopByHop,
    /// Destination options of this many 8-byte units.
    Destination(u8),
    /// Type 2, one segment left.
    Routing2,
    /// Type 4 with two segments, one left.
    SegmentRouting,
    /// Type 4 with two segments, none left.
    SegmentRoutingDone,
}

/// The description of a packet.
#[derive(Clone, Debug)]
pub struct Spec {
    pub link: LinkType,
    pub vlans: Vec<u16>,
    pub ipv6: bool,
    pub tcp: bool,
    pub id: u16,
    pub df: bool,
    /// Every segment is to have the same identification.
    pub fixed_id: bool,
    /// Every segment is to keep CWR.
    pub accurate_ecn: bool,
    pub ip_options: Vec<u8>,
    pub exts: Vec<Ext>,
    pub sequence: u32,
    pub flags: u8,
    pub tcp_options: Vec<u8>,
    pub payload: Vec<u8>,
}

pub const SOURCE4: [u8; 4] = [198, 18, 0, 1];
pub const DESTINATION4: [u8; 4] = [198, 19, 255, 254];
pub const SOURCE6: [u8; 16] = [0xfd, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
pub const DESTINATION6: [u8; 16] = [0xfd, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xee, 0, 9];
pub const FINAL6: [u8; 16] = [
    0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78,
];

/// `n` bytes that differ from their neighbours.
pub fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Folded ones-complement sum, not complemented: modulo 65535, the slow way.
pub fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or(0));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    sum as u16
}

/// `tags` are type and control of each.
fn link_header(link: LinkType, macs: [u8; 12], tags: &[(u16, u16)], ipv6: bool) -> Vec<u8> {
    let ethertype = if ipv6 { [0x86, 0xdd] } else { [8, 0] };
    match link {
        LinkType::RawIp => vec![],
        LinkType::Ipoib => vec![ethertype[0], ethertype[1], 0, 0],
        LinkType::Ethernet => {
            let mut out = macs.to_vec();
            for (tpid, control) in tags {
                out.extend(tpid.to_be_bytes());
                out.extend(control.to_be_bytes());
            }
            out.extend(ethertype);
            out
        }
    }
}

/// Bytes of [`link_header`].
const fn link_bytes(link: LinkType, tags: usize) -> usize {
    match link {
        LinkType::RawIp => 0,
        LinkType::Ipoib => 4,
        LinkType::Ethernet => 14 + 4 * tags,
    }
}

/// The fields of an IPv4 header that differ between test packets.
struct Ipv4<'a> {
    tos: u8,
    id: u16,
    /// Flags and offset.
    fragment: u16,
    ttl: u8,
    protocol: u8,
    /// Source and destination.
    addresses: &'a [u8],
    options: &'a [u8],
}

impl Ipv4<'_> {
    /// The header in front of this many bytes, with its checksum.
    fn build(&self, datagram: usize) -> Vec<u8> {
        let bytes = 20 + self.options.len();
        let mut ip = vec![0x40 | (bytes / 4) as u8, self.tos];
        ip.extend(((bytes + datagram) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl, self.protocol, 0, 0]);
        ip.extend(self.addresses);
        ip.extend(self.options);
        let sum = !slow_sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip
    }
}

/// The fields of an IPv6 header that differ between test packets.
struct Ipv6<'a> {
    tos: u8,
    flow_label: u32,
    ttl: u8,
    protocol: u8,
    /// Source and destination.
    addresses: &'a [u8],
    /// Type of each header, and everything behind its first byte.
    extensions: &'a [(u8, Vec<u8>)],
}

impl Ipv6<'_> {
    /// The header and all extension headers in front of so many bytes.
    fn build(&self, datagram: usize) -> Vec<u8> {
        let types = self.extensions.iter().map(|(kind, _)| *kind);
        let mut types = types.chain([self.protocol]);
        let first = types.next();
        let mut chain = vec![];
        for ((_, rest), next) in self.extensions.iter().zip(types) {
            chain.push(next);
            chain.extend(rest);
        }
        let word = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label;
        let mut ip = word.to_be_bytes().to_vec();
        ip.extend(((chain.len() + datagram) as u16).to_be_bytes());
        ip.extend(first);
        ip.push(self.ttl);
        ip.extend(self.addresses);
        ip.extend(chain);
        ip
    }
}

/// `addresses` are source and final destination, `bytes` those of the datagram.
fn pseudo_header(addresses: &[u8], bytes: usize, protocol: u8) -> Vec<u8> {
    let mut pseudo = addresses.to_vec();
    pseudo.extend((bytes as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    pseudo
}

/// The final checksum over bytes that sum up to `sum`: 0 is not sent in UDP.
const fn final_checksum(sum: u16, is_udp: bool) -> u16 {
    match !sum {
        0 if is_udp => 0xffff,
        checksum => checksum,
    }
}

impl Spec {
    /// TCP over IPv4 on a raw IP link, ACK, this many payload bytes.
    pub fn tcp4(payload: usize) -> Self {
        Self {
            link: LinkType::RawIp,
            vlans: vec![],
            ipv6: false,
            tcp: true,
            id: 100,
            df: true,
            fixed_id: false,
            accurate_ecn: false,
            ip_options: vec![],
            exts: vec![],
            sequence: 1,
            flags: ACK,
            tcp_options: vec![],
            payload: bytes(payload),
        }
    }

    pub fn tcp6(payload: usize) -> Self {
        Self {
            ipv6: true,
            ..Self::tcp4(payload)
        }
    }

    pub fn udp4(payload: usize) -> Self {
        Self {
            tcp: false,
            ..Self::tcp4(payload)
        }
    }

    pub fn udp6(payload: usize) -> Self {
        Self {
            tcp: false,
            ..Self::tcp6(payload)
        }
    }

    pub fn ethernet(self) -> Self {
        Self {
            link: LinkType::Ethernet,
            ..self
        }
    }

    pub fn ipoib(self) -> Self {
        Self {
            link: LinkType::Ipoib,
            ..self
        }
    }

    /// Offset of the IP header.
    pub fn network(&self) -> usize {
        link_bytes(self.link, self.vlans.len())
    }

    /// Offset of the transport header.
    pub fn transport(&self) -> usize {
        if self.ipv6 {
            self.network()
                + 40
                + self
                    .exts
                    .iter()
                    .map(|&ext| ext_bytes(ext, 0).len())
                    .sum::<usize>()
        } else {
            self.network() + 20 + self.ip_options.len()
        }
    }

    /// Offset of the payload.
    pub fn header_bytes(&self) -> usize {
        self.transport()
            + if self.tcp {
                20 + self.tcp_options.len()
            } else {
                8
            }
    }

    pub fn checksum_offset(&self) -> u16 {
        if self.tcp { 16 } else { 6 }
    }

    fn protocol(&self) -> u8 {
        if self.tcp { 6 } else { 17 }
    }

    /// Source, and the destination that is in the pseudo-header or in the IP header.
    fn addresses(&self, last: bool) -> Vec<u8> {
        if !self.ipv6 {
            return [SOURCE4, DESTINATION4].concat();
        }
        let routed = |ext: &Ext| matches!(ext, Ext::Routing2 | Ext::SegmentRouting);
        if last && self.exts.iter().any(routed) {
            return [SOURCE6, FINAL6].concat();
        }
        [SOURCE6, DESTINATION6].concat()
    }

    /// The whole packet.
    pub fn build(&self, field: Field) -> Vec<u8> {
        let transport = self.build_transport(field);
        let tags = self.vlans.iter().zip(0x6007..);
        let tags: Vec<_> = tags.map(|(tpid, control)| (*tpid, control)).collect();
        let macs = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let mut packet = link_header(self.link, macs, &tags, self.ipv6);
        let addresses = self.addresses(false);
        packet.extend(if self.ipv6 {
            let extension = |&ext: &Ext| (ext_type(ext), ext_bytes(ext, 0)[1..].to_vec());
            let ip = Ipv6 {
                tos: 0x02,
                flow_label: 0x12345,
                ttl: 63,
                protocol: self.protocol(),
                addresses: &addresses,
                extensions: &self.exts.iter().map(extension).collect::<Vec<_>>(),
            };
            ip.build(transport.len())
        } else {
            let ip = Ipv4 {
                tos: 0x02,
                id: self.id,
                fragment: if self.df { 0x4000 } else { 0 },
                ttl: 64,
                protocol: self.protocol(),
                addresses: &addresses,
                options: &self.ip_options,
            };
            ip.build(transport.len())
        });
        packet.extend(transport);
        packet
    }

    fn build_transport(&self, field: Field) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 0x56, 0x78];
        if self.tcp {
            let words = 5 + self.tcp_options.len() / 4;
            out.extend(self.sequence.to_be_bytes());
            out.extend(0x0a0b_0c0d_u32.to_be_bytes());
            out.extend([(words as u8) << 4, self.flags, 0x20, 0x01, 0, 0, 0, 5]);
            out.extend(&self.tcp_options);
        } else {
            out.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            out.extend([0, 0]);
        }
        out.extend(&self.payload);
        let mut summed = pseudo_header(&self.addresses(true), out.len(), self.protocol());
        let value = match field {
            Field::Value(value) => value,
            Field::Preload => slow_sum(&summed),
            Field::Final => {
                summed.extend(&out);
                final_checksum(slow_sum(&summed), !self.tcp)
            }
        };
        let at = usize::from(self.checksum_offset());
        out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        out
    }
}

fn ext_type(ext: Ext) -> u8 {
    match ext {
        Ext::HopByHop => 0,
        Ext::Destination(_) => 60,
        Ext::Routing2 | Ext::SegmentRouting | Ext::SegmentRoutingDone => 43,
    }
}

fn ext_bytes(ext: Ext, next: u8) -> Vec<u8> {
    match ext {
        Ext::HopByHop => vec![next, 0, 1, 4, 0, 0, 0, 0],
        Ext::Destination(units) => {
            let mut out = vec![0; usize::from(units) * 8];
            out[..4].copy_from_slice(&[next, units - 1, 1, units * 8 - 4]);
            out
        }
        Ext::Routing2 => {
            let mut out = vec![next, 2, 2, 1, 0, 0, 0, 0];
            out.extend(FINAL6);
            out
        }
        Ext::SegmentRouting | Ext::SegmentRoutingDone => {
            let done = ext == Ext::SegmentRoutingDone;
            let mut out = vec![next, 4, 4, u8::from(!done), 1, 0, 0, 0];
            out.extend(if done { DESTINATION6 } else { FINAL6 });
            out.extend(SOURCE6);
            out
        }
    }
}
