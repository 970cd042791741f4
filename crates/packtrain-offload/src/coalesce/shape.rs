//! Offsets of the headers of a packet.

use crate::layout::{EtherType, IpProtocol, Layout, Network, Transport};
use crate::limits::{ETHERNET_HEADER_BYTES, HEADER_BYTES_MAX, L2_HEADER_BYTES_MAX, VLAN_TAG_BYTES};
use crate::offload::{GsoKind, LinkType};

/// Offsets of the headers of a TCP or UDP packet, in one word: the kind in the lowest bits, then a
/// byte each for the network header, half of the transport header, and half of the payload.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape(u32);

impl core::fmt::Debug for Shape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shape")
            .field("kind", &self.kind())
            .field("network", &self.network())
            .field("transport", &self.transport())
            .field("header_bytes", &self.header_bytes())
            .finish()
    }
}

const _: () = assert!(L2_HEADER_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(HEADER_BYTES_MAX / 2 <= u8::MAX as usize);

impl Shape {
    /// The shape of no packet.
    pub(super) const NONE: Self = Self(0);

    /// Headers are of even length, and at most [`HEADER_BYTES_MAX`] together.
    #[inline(always)]
    pub(super) const fn new(kind: GsoKind, network: u16, transport: u16, payload: u16) -> Self {
        let (transport, payload) = (transport as u32 / 2, payload as u32 / 2);
        Self(kind as u32 | (network as u32 & 0xFF) << 8 | transport << 16 | payload << 24)
    }

    /// The same shape, with its kind as a constant for the compiler.
    #[inline(always)]
    pub(super) const fn of_kind<const KIND: u8>(self) -> Self {
        const {
            assert!(GsoKind::TcpV4 as u8 == 0 && GsoKind::TcpV6 as u8 == 1);
            assert!(GsoKind::UdpV4 as u8 == 2 && GsoKind::UdpV6 as u8 == 3);
        }
        Self(self.0 & !0xFF | KIND as u32)
    }

    #[inline]
    pub(super) const fn kind(self) -> GsoKind {
        match self.0 & 0xFF {
            0 => GsoKind::TcpV4,
            1 => GsoKind::TcpV6,
            2 => GsoKind::UdpV4,
            _ => GsoKind::UdpV6,
        }
    }

    #[inline]
    pub(super) const fn network(self) -> usize {
        (self.0 >> 8 & 0xFF) as usize
    }

    #[inline]
    pub(super) const fn transport(self) -> usize {
        (self.0 >> 16 & 0xFF) as usize * 2
    }

    /// Length of the link, IP and transport headers together, in bytes.
    #[inline]
    pub(super) const fn header_bytes(self) -> usize {
        (self.0 >> 24) as usize * 2
    }

    /// Offset of the transport checksum field.
    #[inline]
    pub(super) const fn checksum_at(self) -> usize {
        self.transport() + if self.kind().is_tcp() { 16 } else { 6 }
    }

    /// Offset of the 12 bytes of a lone timestamp option, if the options have exactly that length.
    #[inline]
    pub(super) const fn timestamps_at(self) -> Option<usize> {
        if self.kind().is_tcp() && self.header_bytes() - self.transport() == 32 {
            Some(self.transport() + 20)
        } else {
            None
        }
    }

    /// VLAN tags in the link header.
    pub(super) const fn vlans(self, link: LinkType) -> u8 {
        match link {
            LinkType::Ethernet => {
                (self.network().saturating_sub(ETHERNET_HEADER_BYTES) / VLAN_TAG_BYTES) as u8
            }
            LinkType::RawIp | LinkType::Ipoib => 0,
        }
    }

    /// The layout of a merged packet with so many VLAN tags that ends at `ip_end`.
    #[inline(always)]
    pub(super) const fn layout(self, vlans: u8, ip_end: u32) -> Layout {
        let ipv6 = self.kind().is_ipv6();
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
            vlans,
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

/// The kind of a shape, and the offsets of its network and transport headers, masked to within
/// `WIDE` bytes so that no index needs a check. For common shapes the mask changes nothing.
#[inline(always)]
pub(super) const fn places(shape: Shape) -> (GsoKind, usize, usize) {
    let network = shape.network() & 30;
    let ip_bytes = if shape.kind().is_ipv6() { 40 } else { 20 };
    (shape.kind(), network, network + ip_bytes)
}

pub(super) const fn protocol_of(kind: GsoKind) -> IpProtocol {
    if kind.is_tcp() {
        IpProtocol::TCP
    } else {
        IpProtocol::UDP
    }
}
