//! The types shared by every offload: the work left before a packet can go on the wire.

use core::num::NonZeroU16;

use crate::limits::{ETHERNET_HEADER_BYTES, IPOIB_HEADER_BYTES};

/// The state of the transport checksum, and the work left on it.
///
/// Offsets count bytes from the first byte of the packet: from the Ethernet header on an Ethernet
/// link (VLAN tags included), from the IP header on a raw IP link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// Not verified. The field holds the value that the sender stored.
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
        /// Offset of the 16-bit field, counted from `start`: 16 in TCP, 6 in UDP.
        offset: u16,
    },
}

/// The protocols of a GSO packet.
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

/// How CWR is treated when a TCP GSO packet is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// CWR is not set. If it is set all the same, it stays on the first wire packet alone, as with
    /// [`Cwr`](Self::Cwr): `tcp_gso_segment()` in Linux does not check either.
    #[default]
    None,
    /// CWR is set; the first wire packet carries it and the others must not (RFC 3168 §6.1.2;
    /// `SKB_GSO_TCP_ECN` in Linux, `VIRTIO_NET_HDR_GSO_ECN`).
    Cwr,
    /// The flow uses Accurate ECN, where CWR is one bit of the ACE counter (RFC 9768 §3.2.2): every
    /// wire packet keeps it unchanged (`SKB_GSO_TCP_ACCECN`, Linux 6.15). A virtio-net header of
    /// virtio 1.3 cannot express this, so such a packet is cut before it goes through one
    /// ([`Gso::fits_virtio`]).
    Accurate,
}

/// One packet in memory that stands for several wire packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gso {
    /// The protocols it is cut as.
    pub kind: GsoKind,
    /// Transport payload bytes of every wire packet but the last, which may be shorter. Headers
    /// are not counted.
    pub size: NonZeroU16,
    /// The other settings, in one byte: a packet's metadata has no room for more.
    flags: GsoFlags,
}

/// Bits of [`Gso`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct GsoFlags(u8);

const CWR: u8 = 1;
const ACCURATE_ECN: u8 = 2;
const FIXED_ID: u8 = 4;

impl Gso {
    /// Cut as `kind` into `size` payload bytes each; no CWR, identifications counting up.
    #[must_use]
    pub const fn new(kind: GsoKind, size: NonZeroU16) -> Self {
        Self {
            kind,
            size,
            flags: GsoFlags(0),
        }
    }

    /// The same with this rule for CWR. No effect on UDP.
    #[must_use]
    pub const fn with_ecn(mut self, ecn: Ecn) -> Self {
        let bits = match ecn {
            Ecn::None => 0,
            Ecn::Cwr => CWR,
            Ecn::Accurate => ACCURATE_ECN,
        };
        self.flags.0 = self.flags.0 & !(CWR | ACCURATE_ECN) | bits;
        self
    }

    /// The same, but every wire packet has the IPv4 identification of this one, instead of counting
    /// up from it (`SKB_GSO_TCP_FIXEDID` in Linux). Needs IPv4 with DF set (RFC 6864 §4). A
    /// virtio-net header cannot express this: a peer behind one counts up, which changes the bytes,
    /// but not their meaning.
    #[must_use]
    pub const fn with_fixed_id(mut self) -> Self {
        self.flags.0 |= FIXED_ID;
        self
    }

    /// Which wire packets carry CWR.
    #[must_use]
    pub const fn ecn(self) -> Ecn {
        if self.flags.0 & ACCURATE_ECN != 0 {
            Ecn::Accurate
        } else if self.flags.0 & CWR != 0 {
            Ecn::Cwr
        } else {
            Ecn::None
        }
    }

    /// Whether every wire packet has the same IPv4 identification.
    #[must_use]
    pub const fn fixed_id(self) -> bool {
        self.flags.0 & FIXED_ID != 0
    }

    /// Whether a peer behind a virtio-net header would cut this packet correctly. False if every
    /// wire packet has to keep CWR: there is no bit for that, and the peer would clear it.
    #[must_use]
    pub const fn fits_virtio(self) -> bool {
        !(self.kind.is_tcp() && matches!(self.ecn(), Ecn::Accurate))
    }

    /// Number of wire packets for `payload_bytes` of transport payload; at least 1.
    #[must_use]
    pub const fn segments(self, payload_bytes: u32) -> u32 {
        let n = payload_bytes.div_ceil(self.size.get() as u32);
        if n == 0 { 1 } else { n }
    }
}

const _: () = assert!(size_of::<Option<Gso>>() == 4);

/// The header at the first byte of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header of 14 bytes, no FCS; VLAN tags in band.
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header: TUN without packet information (`IFF_TUN | IFF_NO_PI`).
    RawIp,
    /// The 4-byte header of IP over InfiniBand: an Ethernet type and two reserved bytes (RFC 4391
    /// §6). The InfiniBand headers in front of it on the wire are not part of the packet.
    Ipoib,
}

impl LinkType {
    /// Bytes of the link header without VLAN tags: 14, 0 or 4.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => ETHERNET_HEADER_BYTES,
            Self::RawIp => 0,
            Self::Ipoib => IPOIB_HEADER_BYTES,
        }
    }
}
