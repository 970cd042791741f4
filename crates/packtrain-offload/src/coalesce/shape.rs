//! Which bytes of two headers have to be equal for the packets to merge: everything but a few
//! fields, whose places depend only on where the headers are.

use super::Semantics;
use super::parse::{TCP_CWR, TCP_FIN, TCP_PSH, WIDE, protocol_of};
use crate::layout::{EtherType, Layout, Network, Transport};
use crate::limits::{ETHERNET_HEADER_BYTES, HEADER_BYTES_MAX, L2_HEADER_BYTES_MAX, VLAN_TAG_BYTES};
use crate::offload::{GsoKind, LinkType};

/// Where the headers of a TCP or UDP packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    header_bytes: u16,
    transport: u16,
    network: u8,
    kind: GsoKind,
}

const _: () = assert!(size_of::<Shape>() == 6);
const _: () = assert!(L2_HEADER_BYTES_MAX <= u8::MAX as usize);

impl Shape {
    /// Of no packet.
    pub(super) const NONE: Self = Self::new(GsoKind::TcpV4, 0, 0, 0);

    #[inline]
    pub(super) const fn new(kind: GsoKind, network: u16, transport: u16, payload: u16) -> Self {
        Self {
            header_bytes: payload,
            transport,
            network: network as u8,
            kind,
        }
    }

    /// The same, said to be of the kind that it is of: the compiler knows it then.
    #[inline(always)]
    pub(super) const fn of_kind<const KIND: u8>(self) -> Self {
        let kind = match KIND {
            0 => GsoKind::TcpV4,
            1 => GsoKind::TcpV6,
            2 => GsoKind::UdpV4,
            _ => GsoKind::UdpV6,
        };
        const {
            assert!(GsoKind::TcpV4 as u8 == 0 && GsoKind::TcpV6 as u8 == 1);
            assert!(GsoKind::UdpV4 as u8 == 2 && GsoKind::UdpV6 as u8 == 3);
        }
        Self { kind, ..self }
    }

    #[inline]
    pub(super) const fn kind(self) -> GsoKind {
        self.kind
    }

    #[inline]
    pub(super) const fn network(self) -> usize {
        self.network as usize
    }

    #[inline]
    pub(super) const fn transport(self) -> usize {
        self.transport as usize
    }

    /// Link, IP and transport header, in bytes.
    #[inline]
    pub(super) const fn header_bytes(self) -> usize {
        self.header_bytes as usize
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
        self.bits = [0; HEADER_BYTES_MAX];
        self.bits[..shape.header_bytes()].fill(0xFF);
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

/// The mask of a shape whose headers are within the first `WIDE` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct WideMask {
    pub shape: Shape,
    bits: [u8; WIDE],
}

impl WideMask {
    /// Whether two packets agree in every bit that has to be equal.
    #[inline(always)]
    pub(super) fn agrees(&self, a: &[u8; WIDE], b: &[u8; WIDE]) -> bool {
        const { assert!(WIDE.is_multiple_of(8)) };
        let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
        let bits = self.bits.as_chunks::<8>().0;
        let mut difference = 0;
        for at in 0..WIDE / 8 {
            difference |= differ(&a[at], &b[at], &bits[at]);
        }
        difference == 0
    }
}

/// Masks of the shapes that were seen last. Most links carry four or so.
#[derive(Clone, Debug)]
pub(super) struct Masks {
    masks: [Mask; Self::KEPT],
    /// The one that is replaced next.
    next: usize,
    semantics: Semantics,
    /// Of the packet that was held last, if its headers are short enough: most come next, too.
    recent: WideMask,
}

impl Masks {
    const KEPT: usize = 8;

    pub(super) const fn new(semantics: Semantics) -> Self {
        Self {
            masks: [Mask::EMPTY; Self::KEPT],
            next: 0,
            semantics,
            recent: WideMask {
                shape: Shape::NONE,
                bits: [0xFF; WIDE],
            },
        }
    }

    /// The mask of the shape that was held last.
    #[inline(always)]
    pub(super) const fn recent(&self) -> &WideMask {
        &self.recent
    }

    /// A packet of `shape` is held.
    #[inline]
    pub(super) fn note(&mut self, shape: Shape) {
        if shape != self.recent.shape && shape.header_bytes() <= WIDE {
            self.take_note(shape);
        }
    }

    fn take_note(&mut self, shape: Shape) {
        let found = self.masks.iter().position(|mask| mask.shape == shape);
        let at = found.unwrap_or_else(|| self.replace(shape));
        self.recent.shape = shape;
        let bits = self.masks[at].bits.first_chunk();
        self.recent.bits = *bits.unwrap_or(&[0xFF; WIDE]);
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
