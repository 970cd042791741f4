//! The tunnel headers in front of every segment.

use super::check;
use super::error::SegmentError;
use super::plan::{Ip, Length, UDP_CHECKSUM, fold, load, narrow, store};
use crate::checksum;
use crate::layout::{IpProtocol, Network, Transport, Tunnel, TunnelLayout};
use crate::limits::UDP_HEADER_BYTES;
use crate::wire::gre;

/// The outer packet of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    pub(super) ip: Ip,
    /// Offset of the UDP or GRE header.
    transport: u16,
    /// From there to the inner transport header.
    between: u16,
    /// Sum of the checksummed bytes that are the same on every segment.
    sum: u16,
    fields: Fields,
}

/// The header to write behind the outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fields {
    None,
    UdpLength,
    UdpLengthAndChecksum,
    GreChecksum,
}

impl Outer {
    /// `headers` reaches to the inner payload, and the inner layout has been checked against it.
    pub(super) fn new(headers: &[u8], layout: &TunnelLayout) -> Result<Self, SegmentError> {
        let (outer, inner) = (&layout.outer, &layout.inner);
        if outer.fragment {
            return Err(SegmentError::Fragment);
        }
        let ipv6 = match outer.kind {
            Network::Ipv4 => false,
            Network::Ipv6 => true,
            Network::Arp | Network::Other => return Err(SegmentError::Kind),
        };
        let right = match layout.tunnel {
            Tunnel::Gre => outer.protocol == IpProtocol::GRE,
            Tunnel::Vxlan | Tunnel::Geneve => outer.transport_kind == Transport::Udp,
        };
        if !right {
            return Err(SegmentError::Kind);
        }
        check::network(headers, outer, ipv6)?;
        if outer.ip_end != inner.ip_end {
            return Err(SegmentError::Length);
        }
        let ip = Ip::new(headers, outer, ipv6);
        let header = headers
            .get(usize::from(outer.transport)..usize::from(inner.network))
            .ok_or(SegmentError::Headers)?;
        let (fields, mut sum) = if layout.tunnel.is_udp() {
            let destination = check::destination(headers, outer, ipv6)?;
            let pseudo_sum = ip.pseudo_sum(headers, destination, IpProtocol::UDP);
            udp(header, pseudo_sum, outer.l4_len())?
        } else {
            gre(header)?
        };
        if inner.kind == Network::Ipv6 {
            let ip = &headers[usize::from(inner.network)..usize::from(inner.transport)];
            sum.add(&ip[..4]);
            sum.add(&ip[6..]);
        }
        // An IPv4 header with its checksum sums to zero.
        Ok(Self {
            ip,
            transport: outer.transport,
            between: inner.transport - outer.transport,
            sum: sum.fold(),
            fields,
        })
    }

    /// The value of the IP length field over `inner_l4_bytes` of inner transport header and
    /// payload.
    pub(super) fn length(&self, inner_l4_bytes: u32) -> u32 {
        self.ip.length(u32::from(self.between) + inner_l4_bytes)
    }

    /// Sets every field of the outer headers that differs between segments. `inner` describes the
    /// inner packet; `inner_ipv6` is whether it is IPv6.
    pub(super) fn patch(&self, index: u32, out: &mut [u8], inner_ipv6: bool, inner: &Length) {
        let l4_bytes = u32::from(self.between) + u32::from(inner.l4_bytes);
        let (length, sum) = (self.ip.length(l4_bytes), self.ip.length_sum(l4_bytes));
        self.ip.patch(index, out, narrow(length), sum);
        let at = usize::from(self.transport);
        // Once its checksum is finished, the inner packet from its transport header on sums up to
        // the complement of its pseudo-header.
        let mut sum = u32::from(self.sum) + u32::from(!inner.pseudo_sum);
        if inner_ipv6 {
            sum += u32::from(inner.ip_length);
        }
        match self.fields {
            Fields::None => {}
            Fields::UdpLength => store(out, at + 4, narrow(l4_bytes)),
            Fields::UdpLengthAndChecksum => {
                store(out, at + 4, narrow(l4_bytes));
                let field = checksum::udp_field(!fold(sum + 2 * l4_bytes));
                store(out, at + usize::from(UDP_CHECKSUM), field);
            }
            Fields::GreChecksum => store(out, at + gre::field::CHECKSUM, !fold(sum)),
        }
    }
}

/// `header` is the UDP header and everything behind it up to the inner IP header; `l4_bytes` is the
/// value of its length field.
fn udp(
    header: &[u8],
    pseudo_sum: u16,
    l4_bytes: u32,
) -> Result<(Fields, checksum::Sum), SegmentError> {
    let (udp, tunnel) = header
        .split_at_checked(UDP_HEADER_BYTES)
        .ok_or(SegmentError::Headers)?;
    if u32::from(load(udp, 4)) != l4_bytes {
        return Err(SegmentError::UdpLength);
    }
    let mut sum = checksum::sum(&udp[..4]);
    sum.add_u16(pseudo_sum);
    sum.add(tunnel);
    let fields = match load(udp, usize::from(UDP_CHECKSUM)) {
        0 => Fields::UdpLength,
        _ => Fields::UdpLengthAndChecksum,
    };
    Ok((fields, sum))
}

/// `header` is the GRE header and everything behind it up to the inner IP header.
fn gre(header: &[u8]) -> Result<(Fields, checksum::Sum), SegmentError> {
    let gre = gre::Header::parse(header).map_err(|_| SegmentError::Headers)?;
    if !gre.is_plain() {
        return Err(SegmentError::Headers);
    }
    if gre.sequence().is_some() {
        return Err(SegmentError::TunnelSequence);
    }
    if gre.checksum().is_none() {
        return Ok((Fields::None, checksum::Sum::new()));
    }
    let mut sum = checksum::sum(&header[..gre::field::CHECKSUM]);
    sum.add(&header[gre::field::CHECKSUM + 2..]);
    Ok((Fields::GreChecksum, sum))
}
