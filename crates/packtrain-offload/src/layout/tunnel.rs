//! Layout of a tunnelled packet: offsets of the outer, the tunnel and the inner headers.

use super::{EtherType, IpProtocol, Layout, ParseError, Prefix, Transport};
use crate::limits::{UDP_HEADER_BYTES, VXLAN_HEADER_BYTES};
use crate::offload::LinkType;
use crate::wire::{geneve, gre, udp, vxlan};
use core::fmt;

/// The encapsulation between the two packets of a [`TunnelLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// GRE version 0 right behind an IP header (RFC 2784, RFC 2890; NVGRE, RFC 7637).
    Gre,
    /// VXLAN behind UDP (RFC 7348).
    Vxlan,
    /// GENEVE behind UDP (RFC 8926).
    Geneve,
}

impl Tunnel {
    /// True if a UDP header is in front of the tunnel header.
    #[must_use]
    pub const fn is_udp(self) -> bool {
        matches!(self, Self::Vxlan | Self::Geneve)
    }
}

/// The UDP ports that indicate a tunnel header; 0 is no port. A packet does not say what its port
/// means: another protocol on that port would be parsed as a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelPorts {
    /// VXLAN, and VXLAN-GPE, which its flags tell apart.
    pub vxlan: [u16; 4],
    /// GENEVE.
    pub geneve: [u16; 2],
    /// Any other tunnel: its packets are not merged, and not parsed.
    pub other: [u16; 8],
}

impl TunnelPorts {
    /// The assigned ones, 4789, 4790 (VXLAN-GPE) and 6081, and 8472, on which Linux opens VXLAN by
    /// default (`drivers/net/vxlan`, `udp_port`).
    pub const KNOWN: Self = Self {
        vxlan: [vxlan::PORT, vxlan::PORT_LINUX, vxlan::PORT_GPE, 0],
        geneve: [geneve::PORT, 0],
        other: [0; 8],
    };

    /// [`KNOWN`](Self::KNOWN), and [`other`](Self::other) has these; `None` if they are more than
    /// it has room for.
    #[must_use]
    pub const fn with_other(ports: &[u16]) -> Option<Self> {
        let mut all = Self::KNOWN;
        if ports.len() > all.other.len() {
            return None;
        }
        let (other, _) = all.other.split_at_mut(ports.len());
        other.copy_from_slice(ports);
        Some(all)
    }

    /// Whether this is one of them.
    #[inline]
    #[must_use]
    pub const fn contain(&self, port: u16) -> bool {
        is_in(port, &self.vxlan) || is_in(port, &self.geneve) || is_in(port, &self.other)
    }
}

/// Whether `ports` have `port`, which is not 0.
const fn is_in(port: u16, ports: &[u16]) -> bool {
    let mut at = 0;
    while at < ports.len() {
        if port != 0 && ports[at] == port {
            return true;
        }
        at += 1;
    }
    false
}

impl fmt::Display for TunnelPorts {
    /// The ports of other tunnels, joined by `+`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.other.iter().filter(|port| **port != 0);
        ports.enumerate().try_for_each(|(at, port)| {
            f.write_str(if at == 0 { "" } else { "+" })?;
            port.fmt(f)
        })
    }
}

impl Default for TunnelPorts {
    /// [`TunnelPorts::KNOWN`].
    fn default() -> Self {
        Self::KNOWN
    }
}

/// Offsets of the headers of a packet in a tunnel. One level: a tunnel in the tunnel is payload.
///
/// Every offset of both layouts counts bytes from the first byte of the outer packet. Always
/// `outer.payload <= inner_start <= inner.network`, and `inner.ip_end <= outer.ip_end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunnelLayout {
    /// The outer packet. Its `transport` is the GRE or UDP header; its `payload` is the GRE header
    /// too, or the first byte after the UDP header.
    pub outer: Layout,
    /// The inner packet. Its [`l2_len`](Layout::l2_len) and its [`check`](Layout::check) have no
    /// meaning, because they count from 0.
    pub inner: Layout,
    /// The encapsulation between the two.
    pub tunnel: Tunnel,
    /// First byte of the inner packet: its Ethernet header, or its IP header if there is none.
    pub inner_start: u16,
}

impl TunnelLayout {
    /// Finds and checks the headers of a packet and of the one inside. `None` if it is not a
    /// supported tunnel: another protocol or port, an IP fragment, GRE of another version or with
    /// source routes, VXLAN without a network identifier or with VXLAN-GPE, GENEVE of another
    /// version, a control message, or a payload that is neither Ethernet nor IP.
    ///
    /// The arguments are those of [`Layout::parse`];
    /// [`TUNNEL_HEADER_BYTES_MAX`](crate::limits::TUNNEL_HEADER_BYTES_MAX) bytes are always enough
    /// of `headers`.
    ///
    /// # Errors
    /// The outer headers, the tunnel header or the inner headers are truncated or contradict
    /// themselves.
    pub fn parse(
        link: LinkType,
        headers: &[u8],
        packet_bytes: u32,
        ports: TunnelPorts,
    ) -> Result<Option<Self>, ParseError> {
        let outer = Layout::parse(link, headers, packet_bytes)?;
        Self::within(&outer, headers, ports)
    }

    /// The same for a packet whose outer layout is already known.
    ///
    /// # Errors
    /// The tunnel header or the inner headers are truncated or contradict themselves.
    pub fn within(
        outer: &Layout,
        headers: &[u8],
        ports: TunnelPorts,
    ) -> Result<Option<Self>, ParseError> {
        let transport = usize::from(outer.transport);
        let mut end = outer.ip_end as usize;
        let outer_prefix = Prefix::new(headers, end);
        let tunnel = match (outer.transport_kind, outer.protocol) {
            (Transport::Other, IpProtocol::GRE) => Tunnel::Gre,
            (Transport::Udp, _) => {
                let header = outer_prefix.view(transport, end, udp::Header::parse)?;
                end = end.min(transport + usize::from(header.len()));
                match header.dst_port() {
                    port if is_in(port, &ports.vxlan) => Tunnel::Vxlan,
                    port if is_in(port, &ports.geneve) => Tunnel::Geneve,
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let prefix = Prefix::new(headers, end);
        let at = transport + if tunnel.is_udp() { UDP_HEADER_BYTES } else { 0 };
        let Some((header_bytes, protocol)) = prefix.tunnel(tunnel, at)? else {
            return Ok(None);
        };
        let start = at + header_bytes;
        let base = match protocol {
            EtherType::TEB => prefix.ethernet(start)?,
            EtherType::IPV4 | EtherType::IPV6 => prefix.opaque(start, protocol, 0),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            outer: *outer,
            inner: prefix.network(base)?,
            tunnel,
            inner_start: start as u16,
        }))
    }
}

impl Prefix<'_> {
    /// Length of a tunnel header and type of its payload; `None` if it is not supported.
    fn tunnel(&self, tunnel: Tunnel, at: usize) -> Result<Option<(usize, EtherType)>, ParseError> {
        let end = self.packet_bytes;
        Ok(match tunnel {
            Tunnel::Gre => {
                let header = self.view(at, end, gre::Header::parse)?;
                header
                    .is_plain()
                    .then(|| (header.header_len(), header.protocol()))
            }
            Tunnel::Vxlan => {
                const GPE: u8 = 0x04;
                let header = self.view(at, end, vxlan::Header::parse)?;
                (header.flags() & (vxlan::FLAG_VNI | GPE) == vxlan::FLAG_VNI)
                    .then_some((VXLAN_HEADER_BYTES, EtherType::TEB))
            }
            Tunnel::Geneve => {
                let header = self.view(at, end, geneve::Header::parse)?;
                (header.version() == 0 && header.flags() & geneve::FLAG_CONTROL == 0)
                    .then(|| (header.header_len(), header.protocol()))
            }
        })
    }
}

#[cfg(test)]
mod tests;
