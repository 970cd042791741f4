//! The virtio-net header: validation of a peer's header, and our own header for a peer.
//!
//! TUN, TAP, `AF_PACKET`, vhost-user and a virtio-net guest all put this header in front of a
//! packet (virtio 1.2 §5.1.6; `struct virtio_net_hdr` in Linux). [`validate`] converts a received
//! one into the types of [`crate::offload`]; [`describe`] converts back.
//!
//! | bytes | field | received | written |
//! |---|---|---|---|
//! | 0 | `flags` | `NEEDS_CSUM`, `DATA_VALID` ¹ | `NEEDS_CSUM` or 0 |
//! | 1 | `gso_type` | 0, `TCPV4`, `TCPV6`, `UDP_L4`, the ECN bit on TCP ² | the same |
//! | 2..4 | `hdr_len` | a hint, never used ³ | header bytes of a GSO packet, else 0 |
//! | 4..6 | `gso_size` | payload bytes per segment; ignored without a type | the same |
//! | 6..8 | `csum_start` | from the packet's first byte, VLAN tags counted ⁴ | the same |
//! | 8..10 | `csum_offset` | from `csum_start` ⁴ | the same |
//! | 10..12 | `num_buffers` | ignored: the descriptor chain is the truth | 1 |
//!
//! 1. RSC and tunnel bits are refused, since they were not negotiated; reserved bits are ignored.
//! 2. All else is refused.
//! 3. Refused if it is larger than the packet.
//! 4. Compared with the packet's own headers.
//!
//! Byte order: every field is little endian, as in virtio 1.x devices, and in TUN/TAP, `AF_PACKET`
//! and legacy virtio on a little-endian host. Legacy big-endian headers are not supported.
//!
//! Copy the header out of a shared ring once, before it is decoded and checked: the peer may change
//! it in between.

use core::fmt;
use core::num::NonZeroU16;

use crate::layout::{EtherType, IpProtocol, Layout, Network, Transport};
use crate::limits::{
    ETHERNET_HEADER_BYTES, IPOIB_HEADER_BYTES, IPV4_HEADER_BYTES_MIN, IPV6_HEADER_BYTES,
    L2_HEADER_BYTES_MAX, PACKET_BYTES_MAX, VLAN_TAG_BYTES, VLAN_TAGS_MAX,
};
use crate::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use crate::segment::{Fill, SegmentError, Segmenter, TCP_GSO_SIZE_MIN};
use crate::wire::ParseError;

mod big;
mod features;

pub use self::big::BigTcp;

/// `flags`: the transport checksum is not finished (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
pub const FLAG_NEEDS_CSUM: u8 = 1;
/// `flags`: the sender verified the checksum (`VIRTIO_NET_HDR_F_DATA_VALID`).
pub const FLAG_DATA_VALID: u8 = 2;
/// `flags`: the checksum fields carry coalescing counts instead (`VIRTIO_NET_HDR_F_RSC_INFO`).
pub const FLAG_RSC_INFO: u8 = 4;
/// `flags`: the checksum of the outer UDP header is offloaded too
/// (`VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM`).
pub const FLAG_UDP_TUNNEL_CSUM: u8 = 8;

/// `gso_type`: an ordinary packet.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: UFO, one UDP datagram to be cut into IP *fragments*. Never negotiated.
pub const GSO_UDP: u8 = 3;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: USO, one UDP datagram per segment, over IPv4 or IPv6.
pub const GSO_UDP_L4: u8 = 5;
/// `gso_type`, a bit: the packet is in a UDP tunnel over IPv4. Never negotiated.
pub const GSO_UDP_TUNNEL_IPV4: u8 = 0x20;
/// `gso_type`, a bit: the packet is in a UDP tunnel over IPv6. Never negotiated.
pub const GSO_UDP_TUNNEL_IPV6: u8 = 0x40;
/// `gso_type`, a bit: CWR is set and belongs to the first segment alone.
pub const GSO_ECN: u8 = 0x80;

/// The form of the header in front of every packet of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderLen {
    /// 10 bytes: TUN or TAP (with `IFF_VNET_HDR`) unless `TUNSETVNETHDRSZ` was called; `AF_PACKET`
    /// by default; legacy virtio without mergeable buffers.
    Legacy,
    /// 12 bytes, with `num_buffers`: `VIRTIO_F_VERSION_1` or `VIRTIO_NET_F_MRG_RXBUF`.
    V1,
}

impl HeaderLen {
    /// Bytes of the header.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Legacy => 10,
            Self::V1 => 12,
        }
    }

    /// The form that has exactly `bytes` bytes; `None` for the forms with a hash (20) or a tunnel
    /// (24, Linux 6.17), which are not supported, and for every other number. Packets in a tunnel
    /// are cut with [`Segmenter::in_tunnel`] before they go to such a port.
    #[must_use]
    pub const fn from_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            10 => Some(Self::Legacy),
            12 => Some(Self::V1),
            _ => None,
        }
    }
}

/// The header, decoded and not validated. For the meaning of each field see the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VnetHeader {
    /// `FLAG_*` bits.
    pub flags: u8,
    /// One of `GSO_*`, possibly with [`GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of all headers from the first byte of the packet: a hint.
    pub hdr_len: u16,
    /// Transport payload bytes of each segment, headers not counted.
    pub gso_size: u16,
    /// First byte that is summed, from the first byte of the packet.
    pub csum_start: u16,
    /// Where the 16-bit checksum field is, from `csum_start`.
    pub csum_offset: u16,
    /// Receive buffers that the packet occupies; 0 when the header has only 10 bytes.
    pub num_buffers: u16,
}

impl VnetHeader {
    /// Reads the header at the start of `bytes`, which may be longer.
    ///
    /// # Errors
    /// [`VnetError::HeaderTruncated`] if `bytes` is shorter than `len`.
    pub fn decode(bytes: &[u8], len: HeaderLen) -> Result<Self, VnetError> {
        let bytes = bytes.get(..len.bytes()).ok_or(VnetError::HeaderTruncated)?;
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Ok(Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: match len {
                HeaderLen::Legacy => 0,
                HeaderLen::V1 => word(10),
            },
        })
    }

    /// The state of the checksum of an Ethernet packet that [`validate`] accepts by its length
    /// alone, since the header asks for nothing. `None` for all others, and on other links. A
    /// packet that is only passed on need not be parsed then.
    #[inline]
    #[must_use]
    pub fn asks_for_nothing(
        &self,
        link: LinkType,
        accept: Accept,
        packet_bytes: u32,
    ) -> Option<ChecksumState> {
        let is_plain = self.flags & !FLAG_DATA_VALID == 0
            && self.gso_type == GSO_NONE
            && u32::from(self.hdr_len) <= packet_bytes
            && link == LinkType::Ethernet
            && (ETHERNET_HEADER_BYTES..=PACKET_BYTES_MAX).contains(&(packet_bytes as usize));
        is_plain.then(|| self.verified(accept))
    }

    /// The state of a checksum that is not unfinished.
    fn verified(&self, accept: Accept) -> ChecksumState {
        if self.flags & FLAG_DATA_VALID != 0 && accept.contains(Accept::DATA_VALID) {
            ChecksumState::Unnecessary
        } else {
            ChecksumState::None
        }
    }

    /// Writes the header to the start of `out`, all `len` bytes of it, and nothing behind them.
    ///
    /// # Errors
    /// [`VnetError::HeaderTruncated`] if `out` is shorter than `len`; then nothing is written.
    pub fn encode(&self, out: &mut [u8], len: HeaderLen) -> Result<(), VnetError> {
        let out = out
            .get_mut(..len.bytes())
            .ok_or(VnetError::HeaderTruncated)?;
        out[0] = self.flags;
        out[1] = self.gso_type;
        out[2..4].copy_from_slice(&self.hdr_len.to_le_bytes());
        out[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        out[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
        out[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        if len == HeaderLen::V1 {
            out[10..12].copy_from_slice(&self.num_buffers.to_le_bytes());
        }
        Ok(())
    }
}

/// The offloads negotiated for packets that the peer sends to us.
///
/// For TUN/TAP this is the argument of `TUNSETOFFLOAD`; for a guest, its `CSUM` and `HOST_*`
/// features. [`tun_flags`](Self::tun_flags), [`host_features`](Self::host_features) and
/// [`guest_features`](Self::guest_features) are the bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Accept(u8);

impl Accept {
    /// Finished packets only.
    pub const NONE: Self = Self(0);
    /// Unfinished checksums (`TUN_F_CSUM`, `VIRTIO_NET_F_CSUM`).
    pub const CSUM: Self = Self(1);
    /// TCP over IPv4 GSO packets (`TUN_F_TSO4`, `VIRTIO_NET_F_HOST_TSO4`).
    pub const TSO4: Self = Self(2);
    /// TCP over IPv6 GSO packets (`TUN_F_TSO6`, `VIRTIO_NET_F_HOST_TSO6`).
    pub const TSO6: Self = Self(4);
    /// TCP GSO packets with CWR set (`TUN_F_TSO_ECN`, `VIRTIO_NET_F_HOST_ECN`).
    pub const TSO_ECN: Self = Self(8);
    /// UDP over IPv4 GSO packets (`TUN_F_USO4`; `VIRTIO_NET_F_HOST_USO` is both versions).
    pub const USO4: Self = Self(16);
    /// UDP over IPv6 GSO packets (`TUN_F_USO6`; `VIRTIO_NET_F_HOST_USO` is both versions).
    pub const USO6: Self = Self(32);
    /// Accept the peer's `DATA_VALID`. Right for the host's kernel, wrong for a guest: a virtio
    /// driver must not set `DATA_VALID` (virtio 1.2 §5.1.6.2.1), and passing it on would mark
    /// unverified data as verified. It is not negotiated: there is no `TUN_F_*` bit for it.
    pub const DATA_VALID: Self = Self(64);
    /// Everything: right for a TUN, a TAP or a packet socket, whose header the host's own kernel
    /// writes.
    pub const ALL: Self = Self(127);

    /// The one bit that allows GSO packets of `kind`.
    #[must_use]
    pub const fn of(kind: GsoKind) -> Self {
        match kind {
            GsoKind::TcpV4 => Self::TSO4,
            GsoKind::TcpV6 => Self::TSO6,
            GsoKind::UdpV4 => Self::USO4,
            GsoKind::UdpV6 => Self::USO6,
        }
    }
}

crate::bit_set!(Accept);

impl fmt::Debug for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Accept, &str); 7] = [
            (Accept::CSUM, "CSUM"),
            (Accept::TSO4, "TSO4"),
            (Accept::TSO6, "TSO6"),
            (Accept::TSO_ECN, "TSO_ECN"),
            (Accept::USO4, "USO4"),
            (Accept::USO6, "USO6"),
            (Accept::DATA_VALID, "DATA_VALID"),
        ];
        f.write_str("Accept(")?;
        let mut separator = "";
        for (bit, name) in NAMES {
            if self.contains(bit) {
                write!(f, "{separator}{name}")?;
                separator = " | ";
            }
        }
        f.write_str(")")
    }
}

macro_rules! vnet_errors {
    ($($(#[doc = $doc:literal])+ $variant:ident => $label:literal,)+) => {
        /// Why a packet was refused for what its virtio-net header says. One variant per rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum VnetError {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl VnetError {
            /// Every variant, in the order in which the rules are checked.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name under which a drop for this reason is counted.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }

            /// The rule, as it stands above: a space, and a sentence.
            const fn rule(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+),)+
                }
            }
        }
    };
}

vnet_errors! {
    /// The buffer is shorter than the header.
    HeaderTruncated => "vnet_header_truncated",
    /// Shorter than an Ethernet header (14), an IPoIB header (4), or an IPv4 header (20) on a raw
    /// IP link.
    PacketTooShort => "vnet_packet_too_short",
    /// Longer than any IP packet with its link header.
    PacketTooLong => "vnet_packet_too_long",
    /// A raw IP link, and the first four bits are neither 4 nor 6. As when the header has another
    /// length than was said, or there is none, or packet information (no `IFF_NO_PI`) besides.
    RawIpVersion => "vnet_raw_ip_version",
    /// `hdr_len` is larger than the packet.
    HdrLen => "vnet_hdr_len",
    /// `RSC_INFO` is set; it was not negotiated.
    RscInfo => "vnet_rsc_info",
    /// `UDP_TUNNEL_CSUM` is set; it was not negotiated.
    TunnelCsum => "vnet_tunnel_csum",
    /// `NEEDS_CSUM` is set, and checksum offload was not negotiated.
    CsumNotNegotiated => "vnet_csum_not_negotiated",
    /// The type is UFO (IP fragmentation of one datagram), which is never negotiated.
    GsoUfo => "vnet_gso_ufo_unsupported",
    /// A tunnel bit is set in the type; it was not negotiated.
    GsoTunnel => "vnet_gso_tunnel_unsupported",
    /// The type has no meaning.
    GsoTypeUnknown => "vnet_gso_type_unknown",
    /// The ECN bit on a UDP type.
    EcnOnUdp => "vnet_ecn_on_udp",
    /// The type is known, and was not negotiated for either or for this IP version.
    GsoNotNegotiated => "vnet_gso_not_negotiated",
    /// The ECN bit is set, and was not negotiated.
    EcnNotNegotiated => "vnet_ecn_not_negotiated",
    /// A GSO packet without `NEEDS_CSUM` (virtio 1.2 §5.1.6.2.1: both or neither).
    GsoWithoutCsum => "vnet_gso_without_csum",
    /// A GSO packet with `gso_size` 0.
    GsoSizeZero => "vnet_gso_size_zero",
    /// `gso_size` 0xFFFF, which Linux keeps for itself (`GSO_BY_FRAGS`).
    GsoSizeReserved => "vnet_gso_size_reserved",
    /// A TCP `gso_size` below 8 (`TCP_GSO_SIZE_MIN`).
    GsoSizeTooSmall => "vnet_gso_size_too_small",
    /// The headers of a GSO packet are truncated, contradict each other or the packet's length, or
    /// are not TCP or UDP over IP. As when the buffer of the read is shorter than
    /// `tun::WRITE_BYTES_MAX`: the kernel cuts the packet off.
    GsoHeaders => "vnet_gso_headers",
    /// A GSO packet that is an IP fragment.
    GsoFragment => "vnet_gso_fragment",
    /// The IP version in the packet is not the one of the type.
    GsoNetwork => "vnet_gso_network",
    /// The transport protocol in the packet is not the one of the type.
    GsoTransport => "vnet_gso_transport",
    /// A GSO packet with a source route of which the final destination is not known.
    GsoSourceRoute => "vnet_gso_source_route",
    /// The UDP length of a GSO packet is not that of the IP payload.
    GsoUdpLength => "vnet_gso_udp_length",
    /// A raw IP link, and the lengths in the IP header contradict the packet's. As when the buffer
    /// of the read is shorter than `tun::WRITE_BYTES_MAX`, when the virtio-net header has another
    /// length than was said, or when packet information (no `IFF_NO_PI`) is in its place.
    IpLength => "vnet_ip_length",
    /// The checksum field, or the place where summing begins, is not inside the packet.
    CsumBounds => "vnet_csum_bounds",
    /// Summing would begin inside or before the IP header.
    CsumInNetwork => "vnet_csum_in_network_header",
    /// `NEEDS_CSUM` on an IP fragment: the sum covers bytes that are not here.
    CsumFragment => "vnet_csum_fragment",
    /// `NEEDS_CSUM` on SCTP, whose checksum is a CRC (RFC 9260 §6.8).
    CsumSctp => "vnet_csum_sctp",
    /// `csum_start` is not at the transport header.
    CsumStart => "vnet_csum_start",
    /// `csum_offset` is not that of the transport protocol.
    CsumOffset => "vnet_csum_offset",
    /// A GSO packet without transport payload.
    GsoNoPayload => "vnet_gso_no_payload",
    /// SYN or RST on a packet that is to be cut: the copies would mean something else.
    GsoTcpFlags => "vnet_gso_tcp_flags",
    /// `gso_size` is so small that one packet would become too many.
    GsoTooManySegments => "vnet_gso_too_many_segments",
}

impl fmt::Display for VnetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("virtio-net header refused, ")?;
        f.write_str(self.reason())?;
        f.write_str(":")?;
        f.write_str(self.rule())
    }
}

crate::error::error!(VnetError, InvalidData);

/// A received packet in the types of this crate, after [`validate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The layout; `None` if the headers are not understood (a bridge forwards such packets too).
    /// Always known for a GSO packet.
    pub layout: Option<Layout>,
    /// The state of the transport checksum.
    pub checksum: ChecksumState,
    /// How it is cut; `None` for one wire packet. Always has more than one segment.
    pub gso: Option<Gso>,
    /// Bytes of the packet, link header included. Less than received if an IP packet with an
    /// unfinished checksum has padding behind it: neither the sum nor a segment may contain
    /// padding. The owner trims the packet to this length.
    pub packet_bytes: u32,
    /// Number of wire packets; at least 1.
    pub wire_packets: u32,
}

/// Checks the header that a peer sent against the packet itself.
///
/// `headers` is the start of the packet as one piece: all of it, or at least
/// [`HEADER_BYTES_MAX`](crate::limits::HEADER_BYTES_MAX) bytes. `packet_bytes` is the length of the
/// whole packet, link header included, virtio-net header not. Neither may be in memory that the
/// peer can still write.
///
/// No peer is trusted, not even a kernel: an accepted packet can be finished, segmented and written
/// to any other port without another check. The rules are those of Linux
/// (`virtio_net_hdr_to_skb()`, `tun_get_user()`), and stricter where Linux leaves a contradiction
/// to later stages: `csum_start`, `csum_offset` and `gso_type` are compared with the real headers.
/// A packet without `NEEDS_CSUM` and GSO need not be understood at all; on a raw IP link, its IP
/// header has to fit its length.
///
/// `NEEDS_CSUM` may also point *inside* a UDP datagram, or behind the IP header of a protocol that
/// is not understood. This is an encapsulated packet whose inner checksum is unfinished; Linux
/// sends it for VXLAN and GRE over a device with a generic checksum offload. TCP has no such case.
///
/// A GSO packet that fits one segment is returned as an ordinary packet, as in Linux, and keeps its
/// unfinished checksum.
///
/// # Errors
/// One [`VnetError`] variant per rule; drop the packet and count it under its
/// [`reason`](VnetError::reason).
#[inline(always)]
pub fn validate(
    header: &VnetHeader,
    link: LinkType,
    accept: Accept,
    headers: &[u8],
    packet_bytes: u32,
) -> Result<Received, VnetError> {
    check_packet(link, headers, packet_bytes)?;
    if u32::from(header.hdr_len) > packet_bytes {
        return Err(VnetError::HdrLen);
    }
    check_flags(header, accept)?;
    let gso_type = GsoType::decode(header, accept)?;
    let layout = Layout::parse(link, headers, packet_bytes);
    let gso = match gso_type {
        GsoType::None => None,
        GsoType::Tcp { .. } | GsoType::Udp => {
            let layout = layout.as_ref().map_err(|_| VnetError::GsoHeaders)?;
            Some(gso_type.check_headers(header, accept, layout)?)
        }
    };
    if let (LinkType::RawIp, Err(error)) = (link, layout)
        && contradicts_length(error)
    {
        return Err(VnetError::IpLength);
    }
    let layout = layout.ok();
    if header.flags & FLAG_NEEDS_CSUM == 0 {
        return Ok(Received {
            layout,
            checksum: header.verified(accept),
            gso: None,
            packet_bytes,
            wire_packets: 1,
        });
    }
    let end = check_partial(header, link, layout.as_ref(), gso.is_some(), packet_bytes)?;
    let checksum = ChecksumState::Partial {
        start: header.csum_start,
        offset: header.csum_offset,
    };
    let (gso, wire_packets) = match (gso, layout.as_ref()) {
        (Some(gso), Some(layout)) => check_segments(gso, headers, layout, end)?,
        _ => (None, 1),
    };
    Ok(Received {
        layout,
        checksum,
        gso,
        packet_bytes: end,
        wire_packets,
    })
}

/// The result for the packet without its virtio-net header.
#[inline]
fn check_packet(link: LinkType, headers: &[u8], packet_bytes: u32) -> Result<(), VnetError> {
    let (min, max) = match link {
        LinkType::Ethernet => (ETHERNET_HEADER_BYTES, PACKET_BYTES_MAX),
        LinkType::RawIp => (
            IPV4_HEADER_BYTES_MIN,
            PACKET_BYTES_MAX - L2_HEADER_BYTES_MAX,
        ),
        LinkType::Ipoib => (
            IPOIB_HEADER_BYTES,
            PACKET_BYTES_MAX - L2_HEADER_BYTES_MAX + IPOIB_HEADER_BYTES,
        ),
    };
    let packet_bytes = packet_bytes as usize;
    if packet_bytes < min {
        return Err(VnetError::PacketTooShort);
    }
    if packet_bytes > max {
        return Err(VnetError::PacketTooLong);
    }
    match (link, headers.first()) {
        (LinkType::Ethernet | LinkType::Ipoib, _) => Ok(()),
        (LinkType::RawIp, Some(first)) if matches!(first >> 4, 4 | 6) => Ok(()),
        (LinkType::RawIp, _) => Err(VnetError::RawIpVersion),
    }
}

/// True if an IP header of this error is longer than the packet or says that the packet is longer
/// than it is, or no IP header at all.
const fn contradicts_length(error: ParseError) -> bool {
    matches!(
        error,
        ParseError::Ipv4HeaderLength
            | ParseError::Ipv4OptionsTruncated
            | ParseError::Ipv4TotalLengthShort
            | ParseError::Ipv4TotalLengthBeyond
            | ParseError::Ipv4TotalLengthZero
            | ParseError::Ipv6Truncated
            | ParseError::Ipv6PayloadLengthBeyond
            | ParseError::Ipv6Jumbogram
    )
}

#[inline]
fn check_flags(header: &VnetHeader, accept: Accept) -> Result<(), VnetError> {
    if header.flags & FLAG_RSC_INFO != 0 {
        return Err(VnetError::RscInfo);
    }
    if header.flags & FLAG_UDP_TUNNEL_CSUM != 0 {
        return Err(VnetError::TunnelCsum);
    }
    if header.flags & FLAG_NEEDS_CSUM != 0 && !accept.contains(Accept::CSUM) {
        return Err(VnetError::CsumNotNegotiated);
    }
    Ok(())
}

/// `gso_type`; the IP version of a UDP type is known only from the packet.
#[derive(Clone, Copy)]
enum GsoType {
    None,
    Tcp { ipv6: bool, ecn: bool },
    Udp,
}

impl GsoType {
    /// The checks of the GSO fields that do not need the packet.
    #[inline]
    fn decode(header: &VnetHeader, accept: Accept) -> Result<Self, VnetError> {
        let gso_type = header.gso_type;
        if gso_type & (GSO_UDP_TUNNEL_IPV4 | GSO_UDP_TUNNEL_IPV6) != 0 {
            return Err(VnetError::GsoTunnel);
        }
        let ecn = gso_type & GSO_ECN != 0;
        let (decoded, allowed) = match gso_type & !GSO_ECN {
            // ECN alone is an unknown type in Linux as well.
            GSO_NONE if !ecn => return Ok(Self::None),
            GSO_TCPV4 => (
                Self::Tcp { ipv6: false, ecn },
                accept.contains(Accept::TSO4),
            ),
            GSO_TCPV6 => (Self::Tcp { ipv6: true, ecn }, accept.contains(Accept::TSO6)),
            GSO_UDP_L4 if ecn => return Err(VnetError::EcnOnUdp),
            GSO_UDP_L4 => {
                let any = accept.contains(Accept::USO4) || accept.contains(Accept::USO6);
                (Self::Udp, any)
            }
            GSO_UDP => return Err(VnetError::GsoUfo),
            _ => return Err(VnetError::GsoTypeUnknown),
        };
        if !allowed {
            return Err(VnetError::GsoNotNegotiated);
        }
        if ecn && !accept.contains(Accept::TSO_ECN) {
            return Err(VnetError::EcnNotNegotiated);
        }
        if header.flags & FLAG_NEEDS_CSUM == 0 {
            return Err(VnetError::GsoWithoutCsum);
        }
        match (header.gso_size, decoded) {
            (0, _) => Err(VnetError::GsoSizeZero),
            (u16::MAX, _) => Err(VnetError::GsoSizeReserved),
            (size, Self::Tcp { .. }) if size < TCP_GSO_SIZE_MIN => Err(VnetError::GsoSizeTooSmall),
            _ => Ok(decoded),
        }
    }

    /// Compares the type with the real headers.
    fn check_headers(
        self,
        header: &VnetHeader,
        accept: Accept,
        layout: &Layout,
    ) -> Result<Gso, VnetError> {
        if layout.fragment {
            return Err(VnetError::GsoFragment);
        }
        let is_ipv6 = match layout.kind {
            Network::Ipv4 => false,
            Network::Ipv6 => true,
            _ => return Err(VnetError::GsoNetwork),
        };
        let (kind, ecn) = match (self, layout.transport_kind) {
            (Self::Tcp { ipv6, .. }, _) if ipv6 != is_ipv6 => return Err(VnetError::GsoNetwork),
            (Self::Tcp { ecn, ipv6: false }, Transport::Tcp) => (GsoKind::TcpV4, ecn),
            (Self::Tcp { ecn, ipv6: true }, Transport::Tcp) => (GsoKind::TcpV6, ecn),
            (Self::Udp, Transport::Udp) if is_ipv6 => (GsoKind::UdpV6, false),
            (Self::Udp, Transport::Udp) => (GsoKind::UdpV4, false),
            _ => return Err(VnetError::GsoTransport),
        };
        if !accept.contains(Accept::of(kind)) {
            return Err(VnetError::GsoNotNegotiated);
        }
        let size = NonZeroU16::new(header.gso_size).ok_or(VnetError::GsoSizeZero)?;
        Ok(Gso::new(kind, size).with_ecn(if ecn { Ecn::Cwr } else { Ecn::None }))
    }
}

/// Checks the offsets of the unfinished checksum, and returns the end of the bytes that it covers.
#[inline(always)]
fn check_partial(
    header: &VnetHeader,
    link: LinkType,
    layout: Option<&Layout>,
    gso: bool,
    packet_bytes: u32,
) -> Result<u32, VnetError> {
    let start = u32::from(header.csum_start);
    let field_end = start + u32::from(header.csum_offset) + 2;
    // The network header if nothing was understood, as Linux assumes too.
    let link_bytes = link.header_bytes() as u32;
    let Some(layout) = layout else {
        return if field_end > packet_bytes {
            Err(VnetError::CsumBounds)
        } else if start < link_bytes + 20 {
            Err(VnetError::CsumInNetwork)
        } else {
            Ok(packet_bytes)
        };
    };
    let end = if layout.is_ip() {
        layout.ip_end
    } else {
        packet_bytes
    };
    if field_end > end {
        return Err(VnetError::CsumBounds);
    }
    let first = if layout.is_ip() {
        u32::from(layout.transport)
    } else {
        u32::from(layout.network) + 20
    };
    if start < first {
        return Err(VnetError::CsumInNetwork);
    }
    if layout.fragment {
        return Err(VnetError::CsumFragment);
    }
    match layout.transport_kind {
        Transport::Tcp => exact(header, layout.transport, TCP_CSUM_OFFSET)?,
        // An inner packet begins behind the UDP header at the earliest.
        Transport::Udp if !gso && start >= u32::from(layout.payload) => {}
        Transport::Udp => exact(header, layout.transport, UDP_CSUM_OFFSET)?,
        _ if layout.protocol == IPPROTO_SCTP => return Err(VnetError::CsumSctp),
        _ => {}
    }
    Ok(end)
}

/// Offset of the checksum in a TCP header (RFC 9293 §3.1).
const TCP_CSUM_OFFSET: u16 = 16;
/// Offset of the checksum in a UDP header (RFC 768).
const UDP_CSUM_OFFSET: u16 = 6;
/// IANA protocol number of SCTP.
const IPPROTO_SCTP: IpProtocol = IpProtocol(132);

fn exact(header: &VnetHeader, start: u16, offset: u16) -> Result<(), VnetError> {
    if header.csum_start != start {
        return Err(VnetError::CsumStart);
    }
    if header.csum_offset != offset {
        return Err(VnetError::CsumOffset);
    }
    Ok(())
}

/// Counts the segments of a GSO packet that ends at `end`. `None` and 1 if it is an ordinary
/// packet.
fn check_segments(
    gso: Gso,
    headers: &[u8],
    layout: &Layout,
    end: u32,
) -> Result<(Option<Gso>, u32), VnetError> {
    let payload = end.saturating_sub(u32::from(layout.payload));
    if payload == 0 {
        return Err(VnetError::GsoNoPayload);
    }
    // The segmenter decides last, so that every accepted packet can be cut.
    let segmenter = Segmenter::new(headers, layout, gso, end).map_err(cut)?;
    match segmenter.segments() {
        1 => Ok((None, 1)),
        segments => Ok((Some(gso), segments)),
    }
}

/// Why a packet cannot be cut.
const fn cut(error: SegmentError) -> VnetError {
    match error {
        SegmentError::Fragment => VnetError::GsoFragment,
        SegmentError::SourceRoute => VnetError::GsoSourceRoute,
        SegmentError::UdpLength => VnetError::GsoUdpLength,
        SegmentError::TcpFlags => VnetError::GsoTcpFlags,
        SegmentError::TooManySegments => VnetError::GsoTooManySegments,
        _ => VnetError::GsoHeaders,
    }
}

/// The header for a packet to a peer that negotiated the features the packet needs.
///
/// `gso` needs `checksum` to be [`ChecksumState::Partial`] at the packet's own transport header and
/// a `layout`; else the peer refuses the packet. The header also has to be able to describe it
/// ([`Gso::fits_virtio`]); else the peer cuts it wrong. The header's `num_buffers` is 1: one
/// buffer, or a peer without mergeable buffers.
///
/// The caller has stored in the packet itself: the IPv4 header checksum, final, over the *whole*
/// GSO packet's total length (this interface never offloads it); and in the transport checksum
/// field the pseudo-header sum, folded and not complemented, with the length of the *whole* GSO
/// packet's TCP or UDP header and payload. Linux's segmenters build on that value instead of
/// recomputing it.
///
/// [`ChecksumState::Unnecessary`] writes no flag: `DATA_VALID` is allowed only towards a guest that
/// negotiated `VIRTIO_NET_F_GUEST_CSUM`. If the guest did, and the packet is TCP or UDP, the caller
/// may set [`FLAG_DATA_VALID`] in the result.
#[must_use]
pub fn describe(checksum: ChecksumState, gso: Option<Gso>, layout: Option<&Layout>) -> VnetHeader {
    let mut header = VnetHeader {
        num_buffers: 1,
        ..VnetHeader::default()
    };
    if let ChecksumState::Partial { start, offset } = checksum {
        header.flags = FLAG_NEEDS_CSUM;
        header.csum_start = start;
        header.csum_offset = offset;
    }
    if let Some(gso) = gso {
        let ecn = if gso.ecn() == Ecn::Cwr && gso.kind.is_tcp() {
            GSO_ECN
        } else {
            0
        };
        header.gso_type = ecn
            | match gso.kind {
                GsoKind::TcpV4 => GSO_TCPV4,
                GsoKind::TcpV6 => GSO_TCPV6,
                GsoKind::UdpV4 | GsoKind::UdpV6 => GSO_UDP_L4,
            };
        header.gso_size = gso.size.get();
        header.hdr_len = layout.map_or(0, |layout| layout.payload);
    }
    header
}

/// Writes the IP length of a GSO packet whose sender left it 0, as some drivers of guests do, so
/// that [`validate`] takes it. True if it was written.
///
/// The arguments are those of [`validate`]: call it after that has refused the packet, and then
/// again. Everything behind the IP header is taken for the packet. A packet of more than 65,535
/// bytes keeps its 0, since no IP header has its length: see [`BigTcp`].
#[must_use]
pub fn fill_ip_length(
    header: &VnetHeader,
    link: LinkType,
    headers: &mut [u8],
    packet_bytes: u32,
) -> bool {
    if header.gso_type & !GSO_ECN == GSO_NONE {
        return false;
    }
    let Some((network, ipv6)) = network_of(link, headers) else {
        return false;
    };
    let Some(ip_bytes) = packet_bytes.checked_sub(network as u32) else {
        return false;
    };
    let (at, counted) = if ipv6 {
        (4, ip_bytes.checked_sub(IPV6_HEADER_BYTES as u32))
    } else {
        (2, Some(ip_bytes))
    };
    let field = headers.get_mut(network + at..network + at + 2);
    match (field, counted.map(u16::try_from)) {
        (Some(field), Some(Ok(bytes))) if field == [0, 0] && bytes > 0 => {
            field.copy_from_slice(&bytes.to_be_bytes());
            true
        }
        _ => false,
    }
}

/// Where the IP header is, and whether its version is 6; `None` if the packet is not IP.
fn network_of(link: LinkType, headers: &[u8]) -> Option<(usize, bool)> {
    let network = match link {
        LinkType::RawIp | LinkType::Ipoib => link.header_bytes(),
        LinkType::Ethernet => {
            let mut network = ETHERNET_HEADER_BYTES;
            for _ in 0..VLAN_TAGS_MAX {
                let ethertype = headers.get(network - 2..network)?;
                let ethertype = u16::from_be_bytes([ethertype[0], ethertype[1]]);
                if EtherType(ethertype).is_vlan() {
                    network += VLAN_TAG_BYTES;
                }
            }
            network
        }
    };
    match headers.get(network)? >> 4 {
        4 => Some((network, false)),
        6 => Some((network, true)),
        _ => None,
    }
}

/// The headers of a GSO packet as a peer needs them that builds those of the segments on them, as
/// Linux does: the IP length, the IPv4 header checksum, and the pseudo-header sum with the length
/// of the whole packet. Written to the start of `out`, `layout.payload` bytes. True if they differ
/// from `headers`. A wrong length of UDP is an error.
///
/// Guests and other systems hand over packets without some of these, since their device computes
/// them anyway; the [`Segmenter`] does, too. A kernel drops such a packet, or its segments, in
/// silence. What else such peers do wrong, [`validate`] and [`describe`] mend: a wrong `hdr_len`,
/// bytes behind the IP packet (trim the packet to [`Received::packet_bytes`]), `DATA_VALID` beside
/// `NEEDS_CSUM`; and [`fill_ip_length`] an IP length of 0.
///
/// # Errors
/// Those of [`Segmenter::new`], and [`SegmentError::Buffer`] if `out` is too short.
pub fn mend(
    headers: &[u8],
    layout: &Layout,
    gso: Gso,
    out: &mut [u8],
) -> Result<bool, SegmentError> {
    // One segment as long as the packet has exactly these headers.
    let whole = Gso::new(gso.kind, NonZeroU16::MAX).with_ecn(gso.ecn());
    let segmenter = Segmenter::new(headers, layout, whole, layout.ip_end)?;
    segmenter.write_header(0, headers, out, Fill::Partial)?;
    let bytes = segmenter.header_bytes();
    Ok(headers.get(..bytes) != out.get(..bytes))
}

#[cfg(test)]
mod tests;
