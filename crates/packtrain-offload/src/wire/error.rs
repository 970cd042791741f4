//! Errors for malformed headers.

use core::fmt;

/// Why a header was refused. Each case is its own reason to drop a packet.
///
/// `…Truncated` means that fewer bytes are there than the header needs, where "there" ends at the
/// packet's end for link and network headers and at the IP datagram's end for transport headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// The caller's contiguous prefix ends inside a header that continues in the packet. The packet
    /// may be valid: make [`HEADER_BYTES_MAX`](crate::limits::HEADER_BYTES_MAX) bytes contiguous.
    HeadersNotContiguous,
    /// Fewer than 14 bytes.
    EthernetTruncated,
    /// Fewer than 4 bytes on an IPoIB link.
    IpoibTruncated,
    /// A tag type, and fewer than 4 bytes after it.
    VlanTruncated,
    /// A raw IP packet without a byte.
    IpTruncated,
    /// A raw IP packet whose version is neither 4 nor 6.
    IpVersionUnknown,
    /// ARP that is shorter than its address lengths say.
    ArpTruncated,
    /// ARP for other addresses than Ethernet and IPv4. [`arp::Header`](super::arp::Header) only:
    /// in a [`Layout`](crate::layout::Layout) it is no error.
    ArpAddressTypes,
    /// Fewer than 20 bytes.
    Ipv4Truncated,
    /// The type said IPv4, the version field did not.
    Ipv4Version,
    /// IHL below 5.
    Ipv4HeaderLength,
    /// IHL goes beyond the packet.
    Ipv4OptionsTruncated,
    /// An option's length is below 2 or goes beyond the options.
    Ipv4OptionLength,
    /// Total length below the header length.
    Ipv4TotalLengthShort,
    /// Total length goes beyond the packet.
    Ipv4TotalLengthBeyond,
    /// Total length 0 with more than 65535 bytes: a BIG TCP packet, which no wire carries.
    Ipv4TotalLengthZero,
    /// Fewer than 40 bytes.
    Ipv6Truncated,
    /// The type said IPv6, the version field did not.
    Ipv6Version,
    /// Payload length goes beyond the packet.
    Ipv6PayloadLengthBeyond,
    /// Payload length 0 with more than 65535 bytes of payload: a jumbogram (RFC 2675).
    Ipv6Jumbogram,
    /// An extension header goes beyond the datagram.
    Ipv6ExtensionTruncated,
    /// More than [`IPV6_EXTENSION_HEADERS_MAX`](crate::limits::IPV6_EXTENSION_HEADERS_MAX).
    Ipv6ExtensionsTooMany,
    /// More than [`IPV6_EXTENSION_BYTES_MAX`](crate::limits::IPV6_EXTENSION_BYTES_MAX).
    Ipv6ExtensionsTooLong,
    /// Fewer than 20 bytes.
    TcpTruncated,
    /// Data offset below 5.
    TcpDataOffset,
    /// Data offset goes beyond the datagram.
    TcpOptionsTruncated,
    /// An option's length is below 2, goes beyond the options, or is wrong for its kind.
    TcpOptionLength,
    /// Fewer than 8 bytes.
    UdpTruncated,
    /// Length field below 8.
    UdpLengthShort,
    /// Length field goes beyond the datagram.
    UdpLengthBeyond,
    /// Fewer than 8 bytes of ICMP over IPv4.
    IcmpTruncated,
    /// Fewer than 8 bytes of ICMPv6 over IPv6.
    Icmpv6Truncated,
    /// Shorter than the GRE header that its flags ask for.
    GreTruncated,
    /// Fewer than 8 bytes of VXLAN.
    VxlanTruncated,
    /// Fewer than 8 bytes of GENEVE.
    GeneveTruncated,
    /// GENEVE options go beyond the datagram.
    GeneveOptionsTruncated,
}

impl ParseError {
    /// A stable label in snake case, for a drop counter.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::HeadersNotContiguous => "headers_not_contiguous",
            Self::EthernetTruncated => "ethernet_truncated",
            Self::IpoibTruncated => "ipoib_truncated",
            Self::VlanTruncated => "vlan_truncated",
            Self::IpTruncated => "ip_truncated",
            Self::IpVersionUnknown => "ip_version_unknown",
            Self::ArpTruncated => "arp_truncated",
            Self::ArpAddressTypes => "arp_address_types",
            Self::Ipv4Truncated => "ipv4_truncated",
            Self::Ipv4Version => "ipv4_version",
            Self::Ipv4HeaderLength => "ipv4_header_length",
            Self::Ipv4OptionsTruncated => "ipv4_options_truncated",
            Self::Ipv4OptionLength => "ipv4_option_length",
            Self::Ipv4TotalLengthShort => "ipv4_total_length_short",
            Self::Ipv4TotalLengthBeyond => "ipv4_total_length_beyond",
            Self::Ipv4TotalLengthZero => "ipv4_total_length_zero",
            Self::Ipv6Truncated => "ipv6_truncated",
            Self::Ipv6Version => "ipv6_version",
            Self::Ipv6PayloadLengthBeyond => "ipv6_payload_length_beyond",
            Self::Ipv6Jumbogram => "ipv6_jumbogram",
            Self::Ipv6ExtensionTruncated => "ipv6_extension_truncated",
            Self::Ipv6ExtensionsTooMany => "ipv6_extensions_too_many",
            Self::Ipv6ExtensionsTooLong => "ipv6_extensions_too_long",
            Self::TcpTruncated => "tcp_truncated",
            Self::TcpDataOffset => "tcp_data_offset",
            Self::TcpOptionsTruncated => "tcp_options_truncated",
            Self::TcpOptionLength => "tcp_option_length",
            Self::UdpTruncated => "udp_truncated",
            Self::UdpLengthShort => "udp_length_short",
            Self::UdpLengthBeyond => "udp_length_beyond",
            Self::IcmpTruncated => "icmp_truncated",
            Self::Icmpv6Truncated => "icmpv6_truncated",
            Self::GreTruncated => "gre_truncated",
            Self::VxlanTruncated => "vxlan_truncated",
            Self::GeneveTruncated => "geneve_truncated",
            Self::GeneveOptionsTruncated => "geneve_options_truncated",
        }
    }

    /// True if more bytes could have made it a header.
    #[must_use]
    pub const fn is_truncated(self) -> bool {
        matches!(
            self,
            Self::EthernetTruncated
                | Self::IpoibTruncated
                | Self::VlanTruncated
                | Self::IpTruncated
                | Self::ArpTruncated
                | Self::Ipv4Truncated
                | Self::Ipv4OptionsTruncated
                | Self::Ipv6Truncated
                | Self::Ipv6ExtensionTruncated
                | Self::TcpTruncated
                | Self::TcpOptionsTruncated
                | Self::UdpTruncated
                | Self::IcmpTruncated
                | Self::Icmpv6Truncated
                | Self::GreTruncated
                | Self::VxlanTruncated
                | Self::GeneveTruncated
                | Self::GeneveOptionsTruncated
        )
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeadersNotContiguous => "the headers are not in one contiguous piece",
            Self::EthernetTruncated => "shorter than an Ethernet header",
            Self::IpoibTruncated => "shorter than an IPoIB header",
            Self::VlanTruncated => "shorter than its VLAN tag",
            Self::IpTruncated => "an empty IP packet",
            Self::IpVersionUnknown => "IP version is neither 4 nor 6",
            Self::ArpTruncated => "ARP is shorter than its addresses",
            Self::ArpAddressTypes => "ARP is not for IPv4 over Ethernet",
            Self::Ipv4Truncated => "shorter than an IPv4 header",
            Self::Ipv4Version => "IPv4 type with another version",
            Self::Ipv4HeaderLength => "IPv4 header length is below 20 bytes",
            Self::Ipv4OptionsTruncated => "IPv4 options go beyond the packet",
            Self::Ipv4OptionLength => "IPv4 option length is impossible",
            Self::Ipv4TotalLengthShort => "IPv4 total length is below the header length",
            Self::Ipv4TotalLengthBeyond => "IPv4 total length goes beyond the packet",
            Self::Ipv4TotalLengthZero => "IPv4 total length is 0 on a packet above 64 KiB",
            Self::Ipv6Truncated => "shorter than an IPv6 header",
            Self::Ipv6Version => "IPv6 type with another version",
            Self::Ipv6PayloadLengthBeyond => "IPv6 payload length goes beyond the packet",
            Self::Ipv6Jumbogram => "IPv6 jumbograms are not supported",
            Self::Ipv6ExtensionTruncated => "IPv6 extension header goes beyond the datagram",
            Self::Ipv6ExtensionsTooMany => "too many IPv6 extension headers",
            Self::Ipv6ExtensionsTooLong => "IPv6 extension headers are too long",
            Self::TcpTruncated => "shorter than a TCP header",
            Self::TcpDataOffset => "TCP data offset is below 20 bytes",
            Self::TcpOptionsTruncated => "TCP options go beyond the datagram",
            Self::TcpOptionLength => "TCP option length is impossible",
            Self::UdpTruncated => "shorter than a UDP header",
            Self::UdpLengthShort => "UDP length is below 8 bytes",
            Self::UdpLengthBeyond => "UDP length goes beyond the datagram",
            Self::IcmpTruncated => "shorter than an ICMP header",
            Self::Icmpv6Truncated => "shorter than an ICMPv6 header",
            Self::GreTruncated => "shorter than a GRE header",
            Self::VxlanTruncated => "shorter than a VXLAN header",
            Self::GeneveTruncated => "shorter than a GENEVE header",
            Self::GeneveOptionsTruncated => "GENEVE options go beyond the datagram",
        })
    }
}

crate::error::error!(ParseError, InvalidData);
