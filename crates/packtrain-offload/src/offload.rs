//! The words shared by every offload: what is still to be done to a packet before it is a packet
//! a cable would carry.

use core::num::NonZeroU16;

/// Who vouches for the transport checksum, and what is left to do.
///
/// Offsets count bytes from the first byte of the packet: from the Ethernet header on an Ethernet
/// link (VLAN tags included), from the IP header on a raw IP link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// Nobody verified it. The field holds whatever the sender stored there.
    #[default]
    None,
    /// It was verified, and the field holds the final value.
    Unnecessary,
    /// The field at `start + offset` holds the folded, *not* complemented pseudo-header sum. It is
    /// finished by summing from `start` to the end of the packet, complementing, and storing
    /// (virtio 1.2 §5.1.6.2; `skb_checksum_help()` in Linux):
    /// [`finish_partial`](crate::segment::finish_partial) gives the value to store.
    Partial {
        /// First byte that is summed: the start of the transport header.
        start: u16,
        /// Where the 16-bit field is, counted from `start`: 16 in TCP, 6 in UDP.
        offset: u16,
    },
}

/// Which protocol a GSO packet is cut as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GsoKind {
    /// TCP over IPv4 (TSO4).
    TcpV4,
    /// TCP over IPv6 (TSO6).
    TcpV6,
    /// One UDP datagram per segment, over IPv4 (USO4; not IP fragmentation).
    UdpV4,
    /// One UDP datagram per segment, over IPv6 (USO6).
    UdpV6,
}

impl GsoKind {
    /// True for the two TCP kinds.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::TcpV4 | Self::TcpV6)
    }

    /// True for the two IPv6 kinds.
    #[must_use]
    pub const fn is_ipv6(self) -> bool {
        matches!(self, Self::TcpV6 | Self::UdpV6)
    }
}

/// One packet in memory that stands for several wire packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gso {
    /// How it is cut.
    pub kind: GsoKind,
    /// Transport payload bytes of every wire packet but the last, which may be shorter. Headers
    /// are not counted.
    pub size: NonZeroU16,
    /// The first wire packet carries CWR and the others must not (RFC 3168 §6.1.2;
    /// `SKB_GSO_TCP_ECN` in Linux). TCP only.
    pub ecn: bool,
}

impl Gso {
    /// How many wire packets `payload_bytes` of transport payload become; at least 1.
    #[must_use]
    pub const fn segments(self, payload_bytes: u32) -> u32 {
        let n = payload_bytes.div_ceil(self.size.get() as u32);
        if n == 0 { 1 } else { n }
    }
}

/// What the first byte of a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header of 14 bytes, no FCS; VLAN tags in band.
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header: TUN without packet information (`IFF_TUN | IFF_NO_PI`).
    RawIp,
}
