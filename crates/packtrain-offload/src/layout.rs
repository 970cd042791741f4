//! Offsets of the headers of a packet: found and checked once.
//!
//! [`Layout`] covers one packet. [`TunnelLayout`] also parses VXLAN, GENEVE and GRE.

use crate::limits::{
    ETHERNET_HEADER_BYTES, HEADER_BYTES_MAX, ICMP_HEADER_BYTES, IP_LENGTH_MAX, IPOIB_HEADER_BYTES,
    IPV4_HEADER_BYTES_MAX, IPV4_HEADER_BYTES_MIN, IPV6_HEADER_BYTES, L3_HEADER_BYTES_MAX,
    TCP_HEADER_BYTES_MAX, TCP_HEADER_BYTES_MIN, UDP_HEADER_BYTES, VLAN_TAG_BYTES, VLAN_TAGS_MAX,
};
use crate::offload::LinkType;
use crate::wire::{arp, ether, icmp, ipoib, ipv4, ipv6, tcp, udp};

mod tunnel;
mod unstated;

pub use self::tunnel::{Tunnel, TunnelLayout, TunnelPorts};
pub use self::unstated::Unstated;
pub use crate::wire::{EtherType, IpProtocol, ParseError};

/// The type of the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP, for any address types.
    Arp,
    /// Anything else; not parsed.
    Other,
}

/// The type of the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP over IPv4.
    Icmp,
    /// ICMPv6 over IPv6.
    Icmpv6,
    /// An IP payload that is not parsed: SCTP, ESP, AH, a tunnel.
    Other,
    /// No transport header to use: not IP, an IP fragment (the first one too), or IPv6 with "no
    /// next header".
    None,
}

/// Offsets of the headers of one packet.
///
/// Offsets count bytes from the first byte of the packet, as [`LinkType`] says. Always
/// `network <= transport <= payload <= ip_end <= packet_bytes`, and the bytes below `payload` were
/// contiguous when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// End of the IP datagram (or ARP packet) by its own length; bytes beyond it are link padding.
    /// The packet's end if the network header is not parsed.
    pub ip_end: u32,
    /// The network header: after the link header and its VLAN tags.
    pub network: u16,
    /// The IP payload: after IPv4 options or IPv6 extension headers. Equal to `network` if the
    /// packet is not IP.
    pub transport: u16,
    /// The first byte after the transport header; equal to `transport` if no transport header is
    /// parsed.
    pub payload: u16,
    /// The innermost type, after VLAN tags. On a raw IP link, that of the IP version.
    pub ethertype: EtherType,
    /// The protocol at `transport`, from the IPv4 header or the last walked IPv6 extension header.
    /// Without meaning (0) if the packet is not IP.
    pub protocol: IpProtocol,
    /// In-band VLAN tags before the network header, 0 to 2.
    pub vlans: u8,
    /// The type of the network header.
    pub kind: Network,
    /// The type of the transport header.
    pub transport_kind: Transport,
    /// Any IP fragment, the first one and an IPv6 atomic one (RFC 6946) too.
    pub fragment: bool,
    /// The destination field is not the final destination: an IPv6 routing header has segments
    /// left, or an IPv4 source route is not used up. A pseudo-header made of the header's
    /// addresses would be wrong.
    pub source_routed: bool,
}

const _: () = assert!(size_of::<Layout>() <= 24);

impl Layout {
    /// Finds and checks the headers of a packet.
    ///
    /// `headers` is the contiguous start of the packet, `packet_bytes` the length of all of it;
    /// bytes of `headers` beyond that are ignored. With at least `min(packet_bytes,
    /// limits::HEADER_BYTES_MAX)` bytes of `headers` the result depends on the packet alone. Fewer
    /// are enough if they contain all the headers; else the error is
    /// [`ParseError::HeadersNotContiguous`].
    ///
    /// Checked: the rules that [`ParseError`] lists except option contents. Not checked: any
    /// checksum, addresses, flags. A length field must not exceed the packet; it may leave link
    /// padding after [`ip_end`](Self::ip_end).
    ///
    /// A third VLAN tag is no error but [`Network::Other`] with that tag's type: the packet can be
    /// forwarded, not offloaded. More extension headers than the limits are errors, because they
    /// could hide a transport header from a port filter.
    ///
    /// A packet above 64 KiB whose length field is 0 is an error, too: see [`Unstated`].
    pub fn parse(link: LinkType, headers: &[u8], packet_bytes: u32) -> Result<Self, ParseError> {
        let prefix = Prefix::new(headers, packet_bytes as usize);
        if link == LinkType::Ethernet
            && let Some(layout) = prefix.usual()
        {
            return Ok(layout);
        }
        prefix.network(prefix.link(link)?)
    }

    /// Like [`parse`](Self::parse), but of the link header alone: the offset of the network header,
    /// and its type according to the link header.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn parse_link(
        link: LinkType,
        headers: &[u8],
        packet_bytes: u32,
    ) -> Result<Self, ParseError> {
        Prefix::new(headers, packet_bytes as usize).link(link)
    }

    /// Link header length, VLAN tags included: 0 on a raw IP link, 4 on an IPoIB link, else 14, 18
    /// or 22.
    #[inline]
    #[must_use]
    pub const fn l2_len(&self) -> u16 {
        self.network
    }

    /// IP header length with IPv4 options or IPv6 extension headers; 0 if the packet is not IP.
    #[inline]
    #[must_use]
    pub const fn l3_header_len(&self) -> u16 {
        self.transport - self.network
    }

    /// Transport header length with TCP options; 0 if no transport header is parsed.
    #[inline]
    #[must_use]
    pub const fn l4_header_len(&self) -> u16 {
        self.payload - self.transport
    }

    /// Transport header and payload, without link padding: the length in a pseudo-header. If the
    /// packet is not IP, everything from the network header on.
    #[inline]
    #[must_use]
    pub const fn l4_len(&self) -> u32 {
        self.ip_end - self.transport as u32
    }

    /// Bytes after the transport header, without link padding. A UDP length field may be smaller
    /// (RFC 9868), never larger.
    #[inline]
    #[must_use]
    pub const fn payload_len(&self) -> u32 {
        self.ip_end - self.payload as u32
    }

    /// True for IPv4 or IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ip(&self) -> bool {
        matches!(self.kind, Network::Ipv4 | Network::Ipv6)
    }

    /// Checks the relations between the fields that this type guarantees; the error names the first
    /// that does not hold. A result of [`parse`](Self::parse) always passes with the same
    /// `packet_bytes`: for fuzz targets and debug assertions, and for layouts made by hand.
    pub fn check(&self, packet_bytes: u32) -> Result<(), &'static str> {
        let l3 = usize::from(self.transport) - usize::from(self.network.min(self.transport));
        let l4 = usize::from(self.payload) - usize::from(self.transport.min(self.payload));
        let l3_fits = match self.kind {
            Network::Ipv4 => {
                l3 % 4 == 0 && (IPV4_HEADER_BYTES_MIN..=IPV4_HEADER_BYTES_MAX).contains(&l3)
            }
            Network::Ipv6 => l3 % 8 == 0 && (IPV6_HEADER_BYTES..=L3_HEADER_BYTES_MAX).contains(&l3),
            Network::Arp | Network::Other => l3 == 0,
        };
        let l4_fits = match self.transport_kind {
            Transport::Tcp => {
                l4 % 4 == 0 && (TCP_HEADER_BYTES_MIN..=TCP_HEADER_BYTES_MAX).contains(&l4)
            }
            Transport::Udp => l4 == UDP_HEADER_BYTES,
            Transport::Icmp | Transport::Icmpv6 => l4 == ICMP_HEADER_BYTES,
            Transport::Other | Transport::None => l4 == 0,
        };
        let no_transport = self.transport_kind == Transport::None;
        let rules = [
            (self.network <= self.transport, "network <= transport"),
            (self.transport <= self.payload, "transport <= payload"),
            (u32::from(self.payload) <= self.ip_end, "payload <= ip_end"),
            (self.ip_end <= packet_bytes, "ip_end <= packet_bytes"),
            (
                usize::from(self.payload) <= HEADER_BYTES_MAX,
                "payload <= HEADER_BYTES_MAX",
            ),
            (
                usize::from(self.vlans) <= VLAN_TAGS_MAX,
                "vlans <= VLAN_TAGS_MAX",
            ),
            (l3_fits, "network header length fits its kind"),
            (l4_fits, "transport header length fits its kind"),
            (
                !self.fragment || no_transport,
                "a fragment has no transport",
            ),
            (self.is_ip() || no_transport, "a transport needs IP"),
            (self.is_ip() || !self.fragment, "a fragment needs IP"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(rule),
            None => Ok(()),
        }
    }
}

/// The contiguous start of a packet.
struct Prefix<'a> {
    /// No longer than `packet_bytes`.
    bytes: &'a [u8],
    packet_bytes: usize,
}

impl<'a> Prefix<'a> {
    #[inline]
    fn new(headers: &'a [u8], packet_bytes: usize) -> Self {
        Self {
            bytes: &headers[..headers.len().min(packet_bytes)],
            packet_bytes,
        }
    }

    /// Parses what starts at `at` and may reach up to `limit`, telling a packet that ends too soon
    /// from a prefix that does.
    #[inline]
    fn view<T>(
        &self,
        at: usize,
        limit: usize,
        parse: impl FnOnce(&'a [u8]) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        let bytes = self.bytes.get(..limit).unwrap_or(self.bytes);
        parse(bytes.get(at..).unwrap_or_default()).map_err(|error| {
            if error.is_truncated() && limit > self.bytes.len() {
                ParseError::HeadersNotContiguous
            } else {
                error
            }
        })
    }

    /// A layout that has found its network header and nothing more.
    #[inline]
    fn opaque(&self, network: usize, ethertype: EtherType, vlans: usize) -> Layout {
        Layout {
            ip_end: self.packet_bytes as u32,
            network: network as u16,
            transport: network as u16,
            payload: network as u16,
            ethertype,
            protocol: IpProtocol(0),
            vlans: vlans as u8,
            kind: Network::Other,
            transport_kind: Transport::None,
            fragment: false,
            source_routed: false,
        }
    }

    /// The layout of TCP or UDP over IPv4, without VLAN tags, IP options and fragments: most
    /// packets, with few questions. `None` for every other packet, and for one with an error.
    #[inline]
    fn usual(&self) -> Option<Layout> {
        const TRANSPORT: usize = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES_MIN;
        const VERSION_AND_LENGTH: u8 = 0x45;
        let (ethernet, rest) = self.bytes.split_first_chunk::<ETHERNET_HEADER_BYTES>()?;
        let (ip, rest) = rest.split_first_chunk::<IPV4_HEADER_BYTES_MIN>()?;
        let ethertype = EtherType(u16::from_be_bytes([ethernet[12], ethernet[13]]));
        let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let fragment =
            word(ipv4::field::FRAGMENT) & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK);
        if ethertype != EtherType::IPV4
            || ip[ipv4::field::VERSION_IHL] != VERSION_AND_LENGTH
            || fragment != 0
        {
            return None;
        }
        let end = ETHERNET_HEADER_BYTES + usize::from(word(ipv4::field::TOTAL_LEN));
        let protocol = IpProtocol(ip[ipv4::field::PROTOCOL]);
        let (transport_kind, header_bytes, least_bytes) = match protocol {
            IpProtocol::UDP => {
                let bytes = usize::from(udp::Header::parse(rest).ok()?.len());
                (Transport::Udp, UDP_HEADER_BYTES, bytes)
            }
            IpProtocol::TCP => {
                let bytes = tcp::Header::parse(rest).ok()?.header_len();
                (Transport::Tcp, bytes, bytes)
            }
            _ => return None,
        };
        (TRANSPORT + least_bytes <= end && end <= self.packet_bytes).then_some(Layout {
            ip_end: end as u32,
            network: ETHERNET_HEADER_BYTES as u16,
            transport: TRANSPORT as u16,
            payload: (TRANSPORT + header_bytes) as u16,
            ethertype,
            protocol,
            vlans: 0,
            kind: Network::Ipv4,
            transport_kind,
            fragment: false,
            source_routed: false,
        })
    }

    #[inline]
    fn link(&self, link: LinkType) -> Result<Layout, ParseError> {
        match link {
            LinkType::Ethernet => self.ethernet(0),
            LinkType::RawIp => self.raw_ip(),
            LinkType::Ipoib => self.ipoib(),
        }
    }

    #[inline]
    fn ethernet(&self, at: usize) -> Result<Layout, ParseError> {
        let mut ethertype = self
            .view(at, self.packet_bytes, ether::Header::parse)?
            .ethertype();
        let mut network = at + ETHERNET_HEADER_BYTES;
        let mut vlans = 0;
        while ethertype.is_vlan() && vlans < VLAN_TAGS_MAX {
            ethertype = self
                .view(network, self.packet_bytes, ether::VlanTag::parse)?
                .ethertype();
            network += VLAN_TAG_BYTES;
            vlans += 1;
        }
        Ok(self.opaque(network, ethertype, vlans))
    }

    #[inline]
    fn raw_ip(&self) -> Result<Layout, ParseError> {
        let first = self.view(0, self.packet_bytes, |bytes| {
            bytes.first().copied().ok_or(ParseError::IpTruncated)
        })?;
        let ethertype = match first >> 4 {
            4 => EtherType::IPV4,
            6 => EtherType::IPV6,
            _ => return Err(ParseError::IpVersionUnknown),
        };
        Ok(self.opaque(0, ethertype, 0))
    }

    #[inline]
    fn ipoib(&self) -> Result<Layout, ParseError> {
        let header = self.view(0, self.packet_bytes, ipoib::Header::parse)?;
        Ok(self.opaque(IPOIB_HEADER_BYTES, header.ethertype(), 0))
    }

    /// Goes on from a layout that has found its network header.
    #[inline]
    fn network(&self, base: Layout) -> Result<Layout, ParseError> {
        match base.ethertype {
            EtherType::IPV4 | EtherType::IPV6 => self.ip(base),
            EtherType::ARP => self.arp(base),
            _ => Ok(base),
        }
    }

    fn ip(&self, base: Layout) -> Result<Layout, ParseError> {
        let ip = match base.ethertype {
            EtherType::IPV4 => self.ipv4(base)?,
            _ => self.ipv6(base)?,
        };
        self.transport(ip)
    }

    fn arp(&self, base: Layout) -> Result<Layout, ParseError> {
        let network = usize::from(base.network);
        let end = network + self.view(network, self.packet_bytes, arp::packet_len)?;
        if end > self.packet_bytes {
            return Err(ParseError::ArpTruncated);
        }
        Ok(Layout {
            kind: Network::Arp,
            ip_end: end as u32,
            ..base
        })
    }

    #[inline]
    fn ipv4(&self, base: Layout) -> Result<Layout, ParseError> {
        let network = usize::from(base.network);
        let header = self.view(network, self.packet_bytes, ipv4::Header::parse)?;
        let total_bytes = usize::from(header.total_len());
        let there = self.packet_bytes - network;
        if total_bytes == 0 && there > IP_LENGTH_MAX {
            return Err(ParseError::Ipv4TotalLengthZero);
        }
        if total_bytes < header.header_len() {
            return Err(ParseError::Ipv4TotalLengthShort);
        }
        if total_bytes > there {
            return Err(ParseError::Ipv4TotalLengthBeyond);
        }
        let transport = (network + header.header_len()) as u16;
        Ok(Layout {
            kind: Network::Ipv4,
            ip_end: (network + total_bytes) as u32,
            transport,
            payload: transport,
            protocol: header.protocol(),
            fragment: header.is_fragment(),
            source_routed: !header.option_bytes().is_empty() && header.is_source_routed(),
            ..base
        })
    }

    #[inline]
    fn ipv6(&self, base: Layout) -> Result<Layout, ParseError> {
        let network = usize::from(base.network);
        let header = self.view(network, self.packet_bytes, ipv6::Header::parse)?;
        let after = network + IPV6_HEADER_BYTES;
        let payload_bytes = usize::from(header.payload_len());
        let there = self.packet_bytes - after;
        if payload_bytes == 0 && there > IP_LENGTH_MAX {
            return Err(ParseError::Ipv6Jumbogram);
        }
        if payload_bytes > there {
            return Err(ParseError::Ipv6PayloadLengthBeyond);
        }
        let end = after + payload_bytes;
        let mut ip = Layout {
            kind: Network::Ipv6,
            ip_end: end as u32,
            transport: after as u16,
            payload: after as u16,
            protocol: header.next_header(),
            ..base
        };
        // Most packets have none; asking first keeps the walk's result out of their way.
        if ip.protocol.is_ipv6_extension() {
            let walk = |bytes| ipv6::Extensions::walk(header.next_header(), bytes);
            let extensions = self.view(after, end, walk)?;
            ip.transport += extensions.bytes;
            ip.payload = ip.transport;
            ip.protocol = extensions.protocol;
            ip.fragment = extensions.fragment;
            ip.source_routed = extensions.source_routed;
        }
        Ok(ip)
    }

    #[inline]
    fn transport(&self, ip: Layout) -> Result<Layout, ParseError> {
        if ip.fragment {
            return Ok(ip);
        }
        let at = usize::from(ip.transport);
        let end = ip.ip_end as usize;
        let (transport_kind, header_bytes) = match (ip.protocol, ip.kind) {
            (IpProtocol::TCP, _) => (
                Transport::Tcp,
                self.view(at, end, tcp::Header::parse)?.header_len(),
            ),
            (IpProtocol::UDP, _) => {
                let udp = self.view(at, end, udp::Header::parse)?;
                if at + usize::from(udp.len()) > end {
                    return Err(ParseError::UdpLengthBeyond);
                }
                (Transport::Udp, UDP_HEADER_BYTES)
            }
            (IpProtocol::ICMP, Network::Ipv4) => {
                self.view(at, end, icmp::Header::parse)?;
                (Transport::Icmp, ICMP_HEADER_BYTES)
            }
            (IpProtocol::ICMPV6, Network::Ipv6) => {
                self.view(at, end, icmp::Header::parse_v6)?;
                (Transport::Icmpv6, ICMP_HEADER_BYTES)
            }
            (IpProtocol::NO_NEXT_HEADER, Network::Ipv6) => (Transport::None, 0),
            _ => (Transport::Other, 0),
        };
        Ok(Layout {
            transport_kind,
            payload: ip.transport + header_bytes as u16,
            ..ip
        })
    }
}

#[cfg(test)]
mod tests;
