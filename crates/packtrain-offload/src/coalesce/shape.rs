//! Which bytes of two headers have to be equal for the packets to merge: everything but a few
//! fields, whose places depend only on where the headers are.

use super::Semantics;
use super::parse::{TCP_CWR, TCP_FIN, TCP_PSH, protocol_of};
use crate::layout::{EtherType, Layout, Network, Transport};
use crate::limits::{ETHERNET_HEADER_BYTES, HEADER_BYTES_MAX, VLAN_TAG_BYTES};
use crate::offload::{GsoKind, LinkType};

/// Where the headers of a TCP or UDP packet are, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape(u32);

const NETWORK_BITS: u32 = 6;
const OFFSET_BITS: u32 = 10;
const _: () = assert!(HEADER_BYTES_MAX < 1 << OFFSET_BITS);

impl Shape {
    /// Of no packet.
    pub(super) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(super) const fn new(kind: GsoKind, network: u16, transport: u16, payload: u16) -> Self {
        let kind = match kind {
            GsoKind::TcpV4 => 0,
            GsoKind::TcpV6 => 1,
            GsoKind::UdpV4 => 2,
            GsoKind::UdpV6 => 3,
        };
        Self(
            kind | (network as u32) << 2
                | (transport as u32) << (2 + NETWORK_BITS)
                | (payload as u32) << (2 + NETWORK_BITS + OFFSET_BITS),
        )
    }

    #[inline]
    pub(super) const fn kind(self) -> GsoKind {
        match self.0 & 3 {
            0 => GsoKind::TcpV4,
            1 => GsoKind::TcpV6,
            2 => GsoKind::UdpV4,
            _ => GsoKind::UdpV6,
        }
    }

    #[inline]
    pub(super) const fn network(self) -> usize {
        (self.0 >> 2) as usize & ((1 << NETWORK_BITS) - 1)
    }

    #[inline]
    pub(super) const fn transport(self) -> usize {
        (self.0 >> (2 + NETWORK_BITS)) as usize & ((1 << OFFSET_BITS) - 1)
    }

    /// Link, IP and transport header, in bytes.
    #[inline]
    pub(super) const fn header_bytes(self) -> usize {
        (self.0 >> (2 + NETWORK_BITS + OFFSET_BITS)) as usize & ((1 << OFFSET_BITS) - 1)
    }

    /// Where the transport checksum field is.
    #[inline]
    pub(super) const fn checksum_at(self) -> usize {
        self.transport() + if self.kind().is_tcp() { 16 } else { 6 }
    }

    /// Where the 12 bytes of a lone timestamp option would be, if there is exactly that much room
    /// for options.
    #[inline]
    pub(super) const fn timestamps_at(self) -> Option<usize> {
        if self.kind().is_tcp() && self.header_bytes() - self.transport() == 32 {
            Some(self.transport() + 20)
        } else {
            None
        }
    }

    /// The layout of a merged packet that ends at `ip_end`.
    pub(super) fn layout(self, link: LinkType, ip_end: u32) -> Layout {
        let ipv6 = self.kind().is_ipv6();
        let vlans = match link {
            LinkType::Ethernet => {
                self.network().saturating_sub(ETHERNET_HEADER_BYTES) / VLAN_TAG_BYTES
            }
            _ => 0,
        };
        Layout {
            ip_end,
            network: self.network() as u16,
            transport: self.transport() as u16,
            payload: self.header_bytes() as u16,
            ethertype: if ipv6 {
                EtherType::IPV6
            } else {
                EtherType::IPV4
            },
            protocol: protocol_of(self.kind()),
            vlans: vlans as u8,
            kind: if ipv6 { Network::Ipv6 } else { Network::Ipv4 },
            transport_kind: if self.kind().is_tcp() {
                Transport::Tcp
            } else {
                Transport::Udp
            },
            fragment: false,
            source_routed: false,
        }
    }
}

/// The bits that have to be equal, for one shape.
#[derive(Clone, Debug)]
pub(super) struct Mask {
    shape: Shape,
    bits: [u8; HEADER_BYTES_MAX],
}

impl Mask {
    const EMPTY: Self = Self {
        shape: Shape::NONE,
        bits: [0; HEADER_BYTES_MAX],
    };

    fn build(&mut self, shape: Shape, semantics: Semantics) {
        self.shape = shape;
        self.bits = [0xFF; HEADER_BYTES_MAX];
        let (network, transport) = (shape.network(), shape.transport());
        if shape.kind().is_ipv6() {
            self.ignore(network + 4, 2);
        } else {
            // Length, identification and checksum.
            self.ignore(network + 2, 4);
            self.ignore(network + 10, 2);
        }
        self.ignore(shape.checksum_at(), 2);
        if !shape.kind().is_tcp() {
            self.ignore(transport + 4, 2);
            return;
        }
        self.ignore(transport + 4, 4);
        self.bits[transport + 13] &= !(TCP_FIN | TCP_PSH | TCP_CWR);
        if semantics == Semantics::Stream {
            // Acknowledgement, window, and the timestamps, which have rules of their own.
            self.ignore(transport + 8, 4);
            self.ignore(transport + 14, 2);
            if let Some(options) = shape.timestamps_at() {
                self.ignore(options + 4, 8);
            }
        }
    }

    fn ignore(&mut self, at: usize, bytes: usize) {
        self.bits[at..at + bytes].fill(0);
    }

    /// Whether `a` and `b`, both at least as long as the headers, agree.
    #[inline]
    fn agrees(&self, a: &[u8], b: &[u8]) -> bool {
        let bytes = self.shape.header_bytes();
        let (Some(a), Some(b), Some(bits)) =
            (a.get(..bytes), b.get(..bytes), self.bits.get(..bytes))
        else {
            return false;
        };
        let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        let mut difference = 0;
        for ((a, b), bits) in words.zip(bits.as_chunks::<8>().0) {
            difference |= differ(a, b, bits);
        }
        // The last eight bytes once more, since the headers need not end with a word.
        if let (Some(a), Some(b), Some(bits)) = (a.last_chunk(), b.last_chunk(), bits.last_chunk())
        {
            difference |= differ(a, b, bits);
        }
        difference == 0
    }
}

#[inline]
const fn differ(a: &[u8; 8], b: &[u8; 8], bits: &[u8; 8]) -> u64 {
    (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b)) & u64::from_ne_bytes(*bits)
}

/// Masks of the shapes that were seen last. Most links carry four or so.
#[derive(Clone, Debug)]
pub(super) struct Masks {
    masks: [Mask; Self::KEPT],
    /// The one that is replaced next.
    next: usize,
    semantics: Semantics,
}

impl Masks {
    const KEPT: usize = 8;

    pub(super) const fn new(semantics: Semantics) -> Self {
        Self {
            masks: [Mask::EMPTY; Self::KEPT],
            next: 0,
            semantics,
        }
    }

    /// Whether two headers of `shape` agree in every bit that has to be equal.
    #[inline]
    pub(super) fn agree(&mut self, shape: Shape, a: &[u8], b: &[u8]) -> bool {
        let found = self.masks.iter().position(|mask| mask.shape == shape);
        let at = found.unwrap_or_else(|| self.replace(shape));
        self.masks[at].agrees(a, b)
    }

    #[cold]
    fn replace(&mut self, shape: Shape) -> usize {
        let at = self.next;
        self.next = (at + 1) % Self::KEPT;
        self.masks[at].build(shape, self.semantics);
        at
    }
}
