//! Packets in tunnels.

use std::vec;
use std::vec::Vec;

use super::{Field, Ipv4, Ipv6, Spec};
use super::{bytes, final_checksum, link_bytes, link_header, pseudo_header, slow_sum};
use crate::layout::{TunnelLayout, TunnelPorts};
use crate::offload::LinkType;

/// The tunnel between the outer IP header and the inner packet.
#[derive(Clone, Debug)]
pub enum Between {
    Gre {
        checksum: bool,
        key: bool,
        sequence: bool,
    },
    Vxlan {
        checksum: bool,
    },
    /// Words of options.
    Geneve {
        checksum: bool,
        options: u8,
    },
}

/// The description of a packet in a tunnel.
#[derive(Clone, Debug)]
pub struct Carried {
    pub link: LinkType,
    pub vlans: Vec<u16>,
    pub ipv6: bool,
    pub id: u16,
    pub df: bool,
    /// Bytes of IPv4 options, or of an IPv6 destination options header.
    pub options: u8,
    pub between: Between,
    pub inner: Spec,
}

const OUTER6: [u8; 32] = [
    0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0xfd, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0x98, 0x76,
];
const OUTER4: [u8; 8] = [198, 18, 200, 1, 198, 19, 200, 2];

impl Carried {
    /// Over IPv4 on Ethernet.
    pub fn new(between: Between, inner: Spec) -> Self {
        Self {
            link: LinkType::Ethernet,
            vlans: vec![],
            ipv6: false,
            id: 500,
            df: true,
            options: 0,
            between,
            inner,
        }
    }

    pub fn network(&self) -> usize {
        link_bytes(self.link, self.vlans.len())
    }

    pub fn transport(&self) -> usize {
        self.network() + if self.ipv6 { 40 } else { 20 } + usize::from(self.options)
    }

    fn inner_ethertype(&self) -> [u8; 2] {
        match (self.inner.link, self.inner.ipv6) {
            (LinkType::Ethernet, _) => [0x65, 0x58],
            (_, false) => [8, 0],
            (_, true) => [0x86, 0xdd],
        }
    }

    /// GRE header, or UDP and tunnel header, checksum fields zero, UDP length of all that follows.
    fn between_bytes(&self, inner_bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        match self.between {
            Between::Gre {
                checksum,
                key,
                sequence,
            } => {
                let flags = u8::from(checksum) << 7 | u8::from(key) << 5 | u8::from(sequence) << 4;
                out.extend([flags, 0]);
                out.extend(self.inner_ethertype());
                out.resize(if checksum { 8 } else { 4 }, 0);
                if key {
                    out.extend([0xde, 0xad, 0xbe, 0xef]);
                }
                if sequence {
                    out.extend([0, 0, 0, 9]);
                }
            }
            Between::Vxlan { .. } => {
                out.extend([0xc0, 1, 0x12, 0xb5]);
                out.extend(((16 + inner_bytes) as u16).to_be_bytes());
                out.extend([0, 0, 8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
            }
            Between::Geneve { options, .. } => {
                let options_bytes = usize::from(options) * 4;
                out.extend([0xc0, 2, 0x17, 0xc1]);
                out.extend(((16 + options_bytes + inner_bytes) as u16).to_be_bytes());
                out.extend([0, 0, options, 0]);
                out.extend(self.inner_ethertype());
                out.extend([0x65, 0x43, 0x21, 0]);
                out.extend(bytes(options_bytes));
            }
        }
        out
    }

    /// The whole packet: the outer checksum is that of the finished inner packet.
    pub fn build(&self, field: Field) -> Vec<u8> {
        let inner = self.inner.build(field);
        let mut between = self.between_bytes(inner.len());
        let l4_bytes = between.len() + inner.len();
        let protocol = if matches!(self.between, Between::Gre { .. }) {
            47
        } else {
            17
        };
        let mut summed = Vec::new();
        let place = match self.between {
            Between::Gre { checksum, .. } => checksum.then_some(4),
            Between::Vxlan { checksum } | Between::Geneve { checksum, .. } => {
                let addresses = if self.ipv6 { &OUTER6[..] } else { &OUTER4 };
                summed = pseudo_header(addresses, l4_bytes, 17);
                checksum.then_some(6)
            }
        };
        if let Some(at) = place {
            summed.extend(&between);
            summed.extend(self.inner.build(Field::Final));
            let value = final_checksum(slow_sum(&summed), protocol == 17);
            between[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        let mut packet = self.link_and_ip(protocol, l4_bytes);
        packet.extend(between);
        packet.extend(inner);
        packet
    }

    fn link_and_ip(&self, protocol: u8, l4_bytes: usize) -> Vec<u8> {
        let tags: Vec<_> = self.vlans.iter().map(|tpid| (*tpid, 0x2063)).collect();
        let macs = [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
        let mut packet = link_header(self.link, macs, &tags, self.ipv6);
        let options = usize::from(self.options);
        packet.extend(if self.ipv6 {
            // Destination options, of which one is as long as the header.
            let mut extension = vec![0; options.saturating_sub(1)];
            if options > 0 {
                extension[..3].copy_from_slice(&[(options / 8 - 1) as u8, 1, (options - 4) as u8]);
            }
            let ip = Ipv6 {
                tos: 0xab,
                flow_label: 7,
                ttl: 61,
                protocol,
                addresses: &OUTER6,
                extensions: if options > 0 { &[(60, extension)] } else { &[] },
            };
            ip.build(l4_bytes)
        } else {
            let ip = Ipv4 {
                tos: 0xb8,
                id: self.id,
                fragment: if self.df { 0x4000 } else { 0 },
                ttl: 62,
                protocol,
                addresses: &OUTER4,
                options: &vec![1; options],
            };
            ip.build(l4_bytes)
        });
        packet
    }

    pub fn layout(&self, packet: &[u8]) -> TunnelLayout {
        let bytes = packet.len() as u32;
        TunnelLayout::parse(self.link, packet, bytes, TunnelPorts::default())
            .unwrap()
            .expect("a tunnel")
    }
}

/// The shortest GRE header.
pub const GRE: Between = Between::Gre {
    checksum: false,
    key: false,
    sequence: false,
};
