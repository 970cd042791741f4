//! Errors for malformed headers.

use core::fmt;

macro_rules! parse_errors {
    ($($(#[doc = $doc:literal])+ $variant:ident => $reason:literal, $words:literal;)+) => {
        /// Why a header was refused. Each case is its own reason to drop a packet.
        ///
        /// `…Truncated` means that fewer bytes are there than the header needs, where "there" ends
        /// at the packet's end for link and network headers and at the IP datagram's end for
        /// transport headers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ParseError {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl ParseError {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// A stable label in snake case, for a drop counter.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self {
                    $(Self::$variant => $reason,)+
                }
            }
        }

        impl fmt::Display for ParseError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $words,)+
                })
            }
        }
    };
}

parse_errors! {
    /// The caller's contiguous prefix ends inside a header that continues in the packet. The packet
    /// may be valid: make [`HEADER_BYTES_MAX`](crate::limits::HEADER_BYTES_MAX) bytes contiguous.
    HeadersNotContiguous => "headers_not_contiguous", "the headers are not in one contiguous piece";
    /// Fewer than 14 bytes.
    EthernetTruncated => "ethernet_truncated", "shorter than an Ethernet header";
    /// Fewer than 4 bytes on an IPoIB link.
    IpoibTruncated => "ipoib_truncated", "shorter than an IPoIB header";
    /// A tag type, and fewer than 4 bytes after it.
    VlanTruncated => "vlan_truncated", "shorter than its VLAN tag";
    /// A raw IP packet without a byte.
    IpTruncated => "ip_truncated", "an empty IP packet";
    /// A raw IP packet whose version is neither 4 nor 6.
    IpVersionUnknown => "ip_version_unknown", "IP version is neither 4 nor 6";
    /// ARP that is shorter than its address lengths say.
    ArpTruncated => "arp_truncated", "ARP is shorter than its addresses";
    /// Fewer than 20 bytes.
    Ipv4Truncated => "ipv4_truncated", "shorter than an IPv4 header";
    /// The type said IPv4, the version field did not.
    Ipv4Version => "ipv4_version", "IPv4 type with another version";
    /// IHL below 5.
    Ipv4HeaderLength => "ipv4_header_length", "IPv4 header length is below 20 bytes";
    /// IHL goes beyond the packet.
    Ipv4OptionsTruncated => "ipv4_options_truncated", "IPv4 options go beyond the packet";
    /// An option's length is below 2 or goes beyond the options.
    Ipv4OptionLength => "ipv4_option_length", "IPv4 option length is impossible";
    /// Total length below the header length.
    Ipv4TotalLengthShort => "ipv4_total_length_short",
        "IPv4 total length is below the header length";
    /// Total length goes beyond the packet.
    Ipv4TotalLengthBeyond => "ipv4_total_length_beyond", "IPv4 total length goes beyond the packet";
    /// Total length 0 with more than 65535 bytes: a BIG TCP packet, which no wire carries.
    Ipv4TotalLengthZero => "ipv4_total_length_zero",
        "IPv4 total length is 0 on a packet above 64 KiB";
    /// Fewer than 40 bytes.
    Ipv6Truncated => "ipv6_truncated", "shorter than an IPv6 header";
    /// The type said IPv6, the version field did not.
    Ipv6Version => "ipv6_version", "IPv6 type with another version";
    /// Payload length goes beyond the packet.
    Ipv6PayloadLengthBeyond => "ipv6_payload_length_beyond",
        "IPv6 payload length goes beyond the packet";
    /// Payload length 0 with more than 65535 bytes of payload: a jumbogram (RFC 2675).
    Ipv6Jumbogram => "ipv6_jumbogram", "IPv6 jumbograms are not supported";
    /// An extension header goes beyond the datagram.
    Ipv6ExtensionTruncated => "ipv6_extension_truncated",
        "IPv6 extension header goes beyond the datagram";
    /// More than [`IPV6_EXTENSION_HEADERS_MAX`](crate::limits::IPV6_EXTENSION_HEADERS_MAX).
    Ipv6ExtensionsTooMany => "ipv6_extensions_too_many", "too many IPv6 extension headers";
    /// More than [`IPV6_EXTENSION_BYTES_MAX`](crate::limits::IPV6_EXTENSION_BYTES_MAX).
    Ipv6ExtensionsTooLong => "ipv6_extensions_too_long", "IPv6 extension headers are too long";
    /// Fewer than 20 bytes.
    TcpTruncated => "tcp_truncated", "shorter than a TCP header";
    /// Data offset below 5.
    TcpDataOffset => "tcp_data_offset", "TCP data offset is below 20 bytes";
    /// Data offset goes beyond the datagram.
    TcpOptionsTruncated => "tcp_options_truncated", "TCP options go beyond the datagram";
    /// Fewer than 8 bytes.
    UdpTruncated => "udp_truncated", "shorter than a UDP header";
    /// Length field below 8.
    UdpLengthShort => "udp_length_short", "UDP length is below 8 bytes";
    /// Length field goes beyond the datagram.
    UdpLengthBeyond => "udp_length_beyond", "UDP length goes beyond the datagram";
    /// Fewer than 8 bytes of ICMP over IPv4.
    IcmpTruncated => "icmp_truncated", "shorter than an ICMP header";
    /// Fewer than 8 bytes of ICMPv6 over IPv6.
    Icmpv6Truncated => "icmpv6_truncated", "shorter than an ICMPv6 header";
    /// Shorter than the GRE header that its flags ask for.
    GreTruncated => "gre_truncated", "shorter than a GRE header";
    /// Fewer than 8 bytes of VXLAN.
    VxlanTruncated => "vxlan_truncated", "shorter than a VXLAN header";
    /// Fewer than 8 bytes of GENEVE.
    GeneveTruncated => "geneve_truncated", "shorter than a GENEVE header";
    /// GENEVE options go beyond the datagram.
    GeneveOptionsTruncated => "geneve_options_truncated", "GENEVE options go beyond the datagram";
}

impl ParseError {
    /// True if more bytes could have made it a header.
    #[must_use]
    pub fn is_truncated(self) -> bool {
        self.reason().ends_with("_truncated")
    }
}

crate::error::error!(ParseError, InvalidData);
