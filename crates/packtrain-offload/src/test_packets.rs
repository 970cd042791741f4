//! Packets for tests, built field by field from a description, with sums of their own: nothing here
//! uses the code under test.

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

/// What the transport checksum field holds.
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

/// A packet in words.
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
        match self.link {
            LinkType::RawIp => 0,
            LinkType::Ipoib => 4,
            LinkType::Ethernet => 14 + 4 * self.vlans.len(),
        }
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

    /// The pseudo-header as bytes.
    fn pseudo_header(&self, transport_bytes: usize) -> Vec<u8> {
        let mut pseudo = Vec::new();
        if self.ipv6 {
            let routed = |ext: &Ext| matches!(ext, Ext::Routing2 | Ext::SegmentRouting);
            pseudo.extend(SOURCE6);
            pseudo.extend(if self.exts.iter().any(routed) {
                FINAL6
            } else {
                DESTINATION6
            });
        } else {
            pseudo.extend(SOURCE4);
            pseudo.extend(DESTINATION4);
        }
        pseudo.extend((transport_bytes as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, self.protocol()]);
        pseudo
    }

    /// The whole packet.
    pub fn build(&self, field: Field) -> Vec<u8> {
        let transport = self.build_transport(field);
        let mut packet = Vec::new();
        if self.link == LinkType::Ethernet {
            packet.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
            for (i, tpid) in self.vlans.iter().enumerate() {
                packet.extend(tpid.to_be_bytes());
                packet.extend([0x60, 7 + i as u8]);
            }
            packet.extend(if self.ipv6 { [0x86, 0xdd] } else { [8, 0] });
        }
        if self.link == LinkType::Ipoib {
            packet.extend(if self.ipv6 {
                [0x86, 0xdd, 0, 0]
            } else {
                [8, 0, 0, 0]
            });
        }
        if self.ipv6 {
            self.push_ipv6(&mut packet, transport.len());
        } else {
            self.push_ipv4(&mut packet, transport.len());
        }
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
        let mut summed = self.pseudo_header(out.len());
        let value = match field {
            Field::Value(value) => value,
            Field::Preload => slow_sum(&summed),
            Field::Final => {
                summed.extend(&out);
                match !slow_sum(&summed) {
                    0 if !self.tcp => 0xffff,
                    sum => sum,
                }
            }
        };
        let at = usize::from(self.checksum_offset());
        out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        out
    }

    fn push_ipv4(&self, packet: &mut Vec<u8>, transport_bytes: usize) {
        let bytes = 20 + self.ip_options.len();
        let mut ip = vec![0x40 | (bytes / 4) as u8, 0x02];
        ip.extend(((bytes + transport_bytes) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend([if self.df { 0x40 } else { 0 }, 0, 64, self.protocol(), 0, 0]);
        ip.extend(SOURCE4);
        ip.extend(DESTINATION4);
        ip.extend(&self.ip_options);
        let sum = !slow_sum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(ip);
    }

    fn push_ipv6(&self, packet: &mut Vec<u8>, transport_bytes: usize) {
        let mut exts = Vec::new();
        for (i, &ext) in self.exts.iter().enumerate() {
            let next = self
                .exts
                .get(i + 1)
                .map_or(self.protocol(), |&ext| ext_type(ext));
            exts.extend(ext_bytes(ext, next));
        }
        let first = self
            .exts
            .first()
            .map_or(self.protocol(), |&ext| ext_type(ext));
        packet.extend([0x60, 0x21, 0x23, 0x45]);
        packet.extend(((exts.len() + transport_bytes) as u16).to_be_bytes());
        packet.extend([first, 63]);
        packet.extend(SOURCE6);
        packet.extend(DESTINATION6);
        packet.extend(exts);
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
