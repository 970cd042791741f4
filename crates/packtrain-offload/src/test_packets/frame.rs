//! Packets described field by field, with slow reference checksums.

use std::vec;
use std::vec::Vec;

use super::wire::Wire;
use super::{ACK, Ipv4, Ipv6, final_checksum, link_bytes, link_header, pseudo_header, slow_sum};
use crate::layout::{Layout, Network, Transport};
use crate::offload::{ChecksumState, LinkType};

/// The content of the transport checksum field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Right,
    /// One bit off.
    Wrong,
    Value(u16),
}

/// The description of a packet. Every field can differ from the next packet's.
#[derive(Clone, Debug)]
pub struct Frame {
    pub link: LinkType,
    /// Type and control of each tag.
    pub vlans: Vec<(u16, u16)>,
    pub macs: [u8; 12],
    pub ipv6: bool,
    pub tcp: bool,
    /// Sender's and receiver's: third byte of the address in IPv4, fourth in IPv6.
    pub networks: (u8, u8),
    pub source: u8,
    pub destination: u8,
    pub ports: (u16, u16),
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    /// Flags and offset of IPv4: 0x4000 is DF.
    pub fragment: u16,
    pub ip_options: Vec<u8>,
    pub ip_checksum: Field,
    pub flow_label: u32,
    /// Extension headers: type, and everything behind the first byte.
    pub extensions: Vec<(u8, Vec<u8>)>,
    pub sequence: u32,
    pub acknowledgement: u32,
    /// Low four bits of byte 12.
    pub reserved: u8,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// Bytes between the UDP payload and the end of the IP datagram.
    pub surplus: usize,
    /// Bytes behind the IP datagram.
    pub padding: usize,
    pub checksum: Field,
}

/// 12 bytes: NOP, NOP, timestamps.
pub fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    let mut options = vec![1, 1, 8, 10];
    options.extend(value.to_be_bytes());
    options.extend(echo.to_be_bytes());
    options
}

pub fn tcp4(bytes: usize) -> Frame {
    Frame {
        link: LinkType::RawIp,
        vlans: vec![],
        macs: [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2],
        ipv6: false,
        tcp: true,
        networks: (0, 0),
        source: 1,
        destination: 2,
        ports: (40_000, 443),
        tos: 0,
        ttl: 64,
        id: 8,
        fragment: 0x4000,
        ip_options: vec![],
        ip_checksum: Field::Right,
        flow_label: 0x12345,
        extensions: vec![],
        sequence: 1000,
        acknowledgement: 0x0a0b_0c0d,
        reserved: 0,
        flags: ACK,
        window: 1000,
        urgent: 0,
        options: vec![],
        payload: (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect(),
        surplus: 0,
        padding: 0,
        checksum: Field::Right,
    }
}

pub fn tcp6(bytes: usize) -> Frame {
    Frame {
        ipv6: true,
        ..tcp4(bytes)
    }
}

pub fn udp4(bytes: usize) -> Frame {
    Frame {
        tcp: false,
        ..tcp4(bytes)
    }
}

pub fn udp6(bytes: usize) -> Frame {
    Frame {
        tcp: false,
        ..tcp6(bytes)
    }
}

/// A flow that goes on from `first`: sequence numbers and identifications that follow, and a
/// payload that differs from packet to packet.
pub fn train(first: &Frame, sizes: &[usize]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = vec![];
    for (index, &bytes) in sizes.iter().enumerate() {
        let mut next = frames.last().unwrap_or(first).clone();
        if let Some(last) = frames.last() {
            next.sequence = last.sequence.wrapping_add(last.payload.len() as u32);
            next.id = last.id.wrapping_add(1);
        }
        next.payload = (0..bytes)
            .map(|i| (i * 5 + i / 251 + index * 31) as u8)
            .collect();
        frames.push(next);
    }
    frames
}

/// Both IP versions of a train: every test has to hold for both.
pub fn both(sizes: &[usize]) -> [Vec<Frame>; 2] {
    [train(&tcp4(0), sizes), train(&tcp6(0), sizes)]
}

impl Frame {
    pub fn ethernet(self) -> Self {
        Self {
            link: LinkType::Ethernet,
            ..self
        }
    }

    pub fn transport(&self) -> usize {
        let link = link_bytes(self.link, self.vlans.len());
        let extensions: usize = self.extensions.iter().map(|(_, rest)| 1 + rest.len()).sum();
        link + if self.ipv6 {
            40 + extensions
        } else {
            20 + self.ip_options.len()
        }
    }

    fn addresses(&self) -> Vec<u8> {
        let mut bytes = vec![];
        let (from, to) = self.networks;
        for (net, host) in [(from, self.source), (to, self.destination)] {
            if self.ipv6 {
                bytes.extend([0xfd, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            } else {
                bytes.extend([198, 18, net, host]);
            }
        }
        bytes
    }

    const fn protocol(&self) -> u8 {
        if self.tcp { 6 } else { 17 }
    }

    /// Transport header and payload, the checksum field 0.
    fn datagram(&self) -> Vec<u8> {
        let mut out = vec![];
        out.extend(self.ports.0.to_be_bytes());
        out.extend(self.ports.1.to_be_bytes());
        if self.tcp {
            out.extend(self.sequence.to_be_bytes());
            out.extend(self.acknowledgement.to_be_bytes());
            let words = 5 + self.options.len() as u8 / 4;
            out.extend([words << 4 | self.reserved, self.flags]);
            out.extend(self.window.to_be_bytes());
            out.extend([0, 0]);
            out.extend(self.urgent.to_be_bytes());
            out.extend(&self.options);
        } else {
            out.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            out.extend([0, 0]);
        }
        out.extend(&self.payload);
        out.resize(out.len() + self.surplus, 0xEE);
        out
    }

    /// The packet, and `partial` makes the field the pseudo-header sum.
    fn build(&self, partial: bool) -> Vec<u8> {
        let mut datagram = self.datagram();
        let mut summed = pseudo_header(&self.addresses(), datagram.len(), self.protocol());
        let preload = slow_sum(&summed);
        summed.extend(&datagram);
        let right = final_checksum(slow_sum(&summed), !self.tcp);
        let field = match self.checksum {
            Field::Right if partial => preload,
            Field::Right => right,
            Field::Wrong => right ^ 0x0100,
            Field::Value(value) => value,
        };
        let at = if self.tcp { 16 } else { 6 };
        datagram[at..at + 2].copy_from_slice(&field.to_be_bytes());

        let mut packet = link_header(self.link, self.macs, &self.vlans, self.ipv6);
        packet.extend(self.ip_header(datagram.len()));
        packet.extend(datagram);
        packet.resize(packet.len() + self.padding, 0xDD);
        packet
    }

    fn ip_header(&self, datagram: usize) -> Vec<u8> {
        let (protocol, addresses) = (self.protocol(), self.addresses());
        if self.ipv6 {
            let ip = Ipv6 {
                tos: self.tos,
                flow_label: self.flow_label,
                ttl: self.ttl,
                protocol,
                addresses: &addresses,
                extensions: &self.extensions,
            };
            return ip.build(datagram);
        }
        let ip = Ipv4 {
            tos: self.tos,
            id: self.id,
            fragment: self.fragment,
            ttl: self.ttl,
            protocol,
            addresses: &addresses,
            options: &self.ip_options,
        };
        let mut header = ip.build(datagram);
        match self.ip_checksum {
            Field::Right => {}
            Field::Wrong => header[10] ^= 1,
            Field::Value(value) => header[10..12].copy_from_slice(&value.to_be_bytes()),
        }
        header
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.build(false)
    }

    /// The checksum is not verified.
    pub fn unverified(&self) -> Wire {
        Wire::new(self.bytes(), ChecksumState::None)
    }

    /// A device verified the checksum.
    pub fn verified(&self) -> Wire {
        Wire::new(self.bytes(), ChecksumState::Unnecessary)
    }

    /// The checksum is partial.
    pub fn partial(&self) -> Wire {
        let state = ChecksumState::Partial {
            start: self.transport() as u16,
            offset: if self.tcp { 16 } else { 6 },
        };
        Wire::new(self.build(true), state)
    }
}

/// The packet with its partial checksum finished.
pub fn finish(bytes: &[u8], start: u16, offset: u16) -> Vec<u8> {
    let (start, at) = (usize::from(start), usize::from(start + offset));
    let mut out = bytes.to_vec();
    let sum = final_checksum(slow_sum(&bytes[start..]), offset == 6);
    out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    out
}

/// Whether every checksum of a TCP or UDP packet is right.
pub fn is_right(bytes: &[u8], layout: &Layout) -> bool {
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let datagram = &bytes[transport..layout.ip_end as usize];
    let mut summed = match layout.kind {
        Network::Ipv4 => {
            if slow_sum(&bytes[network..transport]) != 0xFFFF {
                return false;
            }
            bytes[network + 12..network + 20].to_vec()
        }
        _ => bytes[network + 8..network + 40].to_vec(),
    };
    summed.extend((datagram.len() as u32).to_be_bytes());
    let protocol = if layout.transport_kind == Transport::Tcp {
        6
    } else {
        17
    };
    summed.extend([0, 0, 0, protocol]);
    summed.extend(datagram);
    let is_there = protocol == 6 || datagram[6..8] != [0, 0];
    is_there && slow_sum(&summed) == 0xFFFF
}
