//! Every bound on headers and packets, with its unit in its name.
//!
//! A *header* never includes what follows it; an *IP datagram* is the IP header and everything up
//! to the end that its own length field gives; a *packet* also has the link header in front.

/// Ethernet header: two addresses and a type, no FCS (IEEE 802.3 clause 3).
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// The header of IP over InfiniBand (RFC 4391 §6).
pub const IPOIB_HEADER_BYTES: usize = 4;
/// One 802.1Q or 802.1ad tag in band.
pub const VLAN_TAG_BYTES: usize = 4;
/// In-band tags that are parsed: a service tag and a customer tag.
pub const VLAN_TAGS_MAX: usize = 2;
/// Ethernet header and the in-band tags that are parsed.
pub const L2_HEADER_BYTES_MAX: usize = ETHERNET_HEADER_BYTES + VLAN_TAGS_MAX * VLAN_TAG_BYTES;

/// IPv4 header without options (RFC 791 §3.1).
pub const IPV4_HEADER_BYTES_MIN: usize = 20;
/// IPv4 header with IHL 15.
pub const IPV4_HEADER_BYTES_MAX: usize = 60;
/// IPv6 header without extension headers (RFC 8200 §3).
pub const IPV6_HEADER_BYTES: usize = 40;
/// Extension headers that are walked, a fragment header included.
pub const IPV6_EXTENSION_HEADERS_MAX: usize = 8;
/// All walked extension headers together.
pub const IPV6_EXTENSION_BYTES_MAX: usize = 256;
/// Network header with options or extension headers.
pub const L3_HEADER_BYTES_MAX: usize = IPV6_HEADER_BYTES + IPV6_EXTENSION_BYTES_MAX;

/// TCP header without options (RFC 9293 §3.1).
pub const TCP_HEADER_BYTES_MIN: usize = 20;
/// TCP header with data offset 15.
pub const TCP_HEADER_BYTES_MAX: usize = 60;
/// UDP header (RFC 768).
pub const UDP_HEADER_BYTES: usize = 8;
/// ICMP and ICMPv6 header: type, code, checksum and the four bytes whose meaning the type gives
/// (RFC 792; RFC 4443 §2.1).
pub const ICMP_HEADER_BYTES: usize = 8;
/// The longest transport header.
pub const L4_HEADER_BYTES_MAX: usize = TCP_HEADER_BYTES_MAX;

/// The part of ARP that precedes its addresses (RFC 826).
pub const ARP_FIXED_BYTES: usize = 8;

/// Most bytes from the first byte of a packet to its first transport payload byte. If this many
/// bytes of a packet (or all of a shorter one) are contiguous, its headers are never split.
pub const HEADER_BYTES_MAX: usize = L2_HEADER_BYTES_MAX + L3_HEADER_BYTES_MAX + L4_HEADER_BYTES_MAX;

/// GRE header with checksum, key and sequence number (RFC 2784, RFC 2890).
pub const GRE_HEADER_BYTES_MAX: usize = 16;
/// VXLAN header (RFC 7348 §5).
pub const VXLAN_HEADER_BYTES: usize = 8;
/// GENEVE header without options (RFC 8926 §3.4).
pub const GENEVE_HEADER_BYTES_MIN: usize = 8;
/// GENEVE header with 252 bytes of options, the maximum of its length field.
pub const GENEVE_HEADER_BYTES_MAX: usize = 260;

/// [`HEADER_BYTES_MAX`] for a packet in a tunnel: from the first byte of the outer packet to the
/// first transport payload byte of the inner one.
pub const TUNNEL_HEADER_BYTES_MAX: usize = L2_HEADER_BYTES_MAX
    + L3_HEADER_BYTES_MAX
    + UDP_HEADER_BYTES
    + GENEVE_HEADER_BYTES_MAX
    + HEADER_BYTES_MAX;

/// The size that every IPv4 module forwards without fragmenting it further (RFC 791 §3.2): no MTU
/// is smaller.
pub const IPV4_MTU_MIN: usize = 68;

/// An IPv4 datagram, header included, or an IPv6 payload, header excluded: the maximum of a 16-bit
/// length field.
pub const IP_LENGTH_MAX: usize = 65_535;
/// The longest packet that is not a jumbogram: an IPv6 header, a full payload, and tags.
pub const PACKET_BYTES_MAX: usize = L2_HEADER_BYTES_MAX + IPV6_HEADER_BYTES + IP_LENGTH_MAX;

/// UDP datagrams that are merged into one GSO packet. `UDP_MAX_SEGMENTS` is 64 before Linux 6.9,
/// and 128 since (and in stable series): every kernel accepts 64. On input, up to
/// [`crate::segment::UDP_SEGMENTS_MAX`] are accepted.
pub const UDP_GSO_SEGMENTS_MAX: usize = 64;

const _: () = assert!(IPV4_HEADER_BYTES_MAX <= L3_HEADER_BYTES_MAX);
const _: () = assert!(UDP_HEADER_BYTES <= L4_HEADER_BYTES_MAX);
const _: () = assert!(ICMP_HEADER_BYTES <= L4_HEADER_BYTES_MAX);
const _: () = assert!(
    HEADER_BYTES_MAX <= u16::MAX as usize,
    "header offsets are u16"
);
const _: () = assert!(GRE_HEADER_BYTES_MAX <= UDP_HEADER_BYTES + GENEVE_HEADER_BYTES_MAX);
const _: () = assert!(VXLAN_HEADER_BYTES <= GENEVE_HEADER_BYTES_MAX);
const _: () = assert!(
    TUNNEL_HEADER_BYTES_MAX <= u16::MAX as usize,
    "header offsets are u16"
);
const _: () = assert!(
    PACKET_BYTES_MAX <= u32::MAX as usize,
    "packet lengths are u32"
);
