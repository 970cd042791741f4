//! Checks before a packet is cut.

use super::error::SegmentError;
use super::plan::{TCP_FLAGS, load};
use crate::layout::{IpProtocol, Layout, Network, Transport};
use crate::limits::{
    self, IPV4_HEADER_BYTES_MIN, IPV6_HEADER_BYTES, TCP_HEADER_BYTES_MIN, UDP_HEADER_BYTES,
};
use crate::offload::GsoKind;

/// Most segments of one UDP GSO packet that is cut: `UDP_MAX_SEGMENTS` since Linux 6.9 (commit
/// 1382e3b6a350, also in 6.8.8, 6.1 and other stable series). No more are merged than
/// [`limits::UDP_GSO_SEGMENTS_MAX`].
pub const UDP_SEGMENTS_MAX: u32 = 128;
/// Most segments of one TCP GSO packet: 64 KiB in pieces of [`TCP_GSO_SIZE_MIN`]. It bounds the
/// work per packet.
pub const TCP_SEGMENTS_MAX: u32 = limits::IP_LENGTH_MAX as u32 / TCP_GSO_SIZE_MIN as u32;
/// Smallest payload of a TCP segment, in bytes: an MSS of 48 less 40 bytes of options. Linux raises
/// smaller values to this one.
pub const TCP_GSO_SIZE_MIN: u16 = 8;

const TCP_SYN: u16 = 0x02;
const TCP_RST: u16 = 0x04;

pub(super) fn kind(kind: GsoKind, layout: &Layout) -> Result<(), SegmentError> {
    let network = if kind.is_ipv6() {
        Network::Ipv6
    } else {
        Network::Ipv4
    };
    let transport = if kind.is_tcp() {
        Transport::Tcp
    } else {
        Transport::Udp
    };
    if layout.kind != network || layout.transport_kind != transport {
        return Err(SegmentError::Kind);
    }
    Ok(())
}

/// Checks that every fixed field is inside `headers`, for any layout.
pub(super) fn headers(kind: GsoKind, headers: &[u8], layout: &Layout) -> Result<(), SegmentError> {
    network(headers, layout, kind.is_ipv6())?;
    let transport = usize::from(layout.transport);
    let bytes = headers.len() - transport;
    let fits = if kind.is_tcp() {
        bytes >= TCP_HEADER_BYTES_MIN && usize::from(headers[transport + 12] >> 4) * 4 == bytes
    } else {
        bytes == UDP_HEADER_BYTES
    };
    if fits {
        Ok(())
    } else {
        Err(SegmentError::Headers)
    }
}

/// The same for an IP header alone. Leaves `layout.transport <= headers.len()`.
pub(super) fn network(headers: &[u8], layout: &Layout, ipv6: bool) -> Result<(), SegmentError> {
    let header = headers
        .get(usize::from(layout.network)..usize::from(layout.transport))
        .ok_or(SegmentError::Headers)?;
    let fits = if ipv6 {
        header.len() >= IPV6_HEADER_BYTES && header[0] >> 4 == 6
    } else {
        header.len() >= IPV4_HEADER_BYTES_MIN
            && header[0] >> 4 == 4
            && usize::from(header[0] & 0x0f) * 4 == header.len()
    };
    if fits {
        Ok(())
    } else {
        Err(SegmentError::Headers)
    }
}

pub(super) fn transport(
    kind: GsoKind,
    headers: &[u8],
    layout: &Layout,
    segments: u32,
) -> Result<(), SegmentError> {
    let transport = usize::from(layout.transport);
    let max = if kind.is_tcp() {
        TCP_SEGMENTS_MAX
    } else {
        UDP_SEGMENTS_MAX
    };
    if segments > max {
        return Err(SegmentError::TooManySegments);
    }
    if kind.is_tcp() {
        let flags = load(headers, transport + TCP_FLAGS);
        if segments > 1 && flags & (TCP_SYN | TCP_RST) != 0 {
            return Err(SegmentError::TcpFlags);
        }
    } else {
        let datagram = layout.ip_end - u32::from(layout.transport);
        if u32::from(load(headers, transport + 4)) != datagram {
            return Err(SegmentError::UdpLength);
        }
    }
    Ok(())
}

/// Offset of the destination address of the pseudo-header: in the IP header, or in a source route
/// that is not used up yet.
pub(super) fn destination(
    headers: &[u8],
    layout: &Layout,
    ipv6: bool,
) -> Result<u16, SegmentError> {
    match (layout.source_routed, ipv6) {
        (false, false) => Ok(layout.network + 16),
        (false, true) => Ok(layout.network + 24),
        (true, false) => final_destination_v4(headers, layout),
        (true, true) => final_destination_v6(headers, layout),
    }
}

/// Offset of the address that the sender of a source-routed packet used in the pseudo-header: the
/// last one of the route (RFC 1122 §4.1.3.5, §4.2.3.8).
fn final_destination_v4(headers: &[u8], layout: &Layout) -> Result<u16, SegmentError> {
    const LOOSE: u8 = 131;
    const STRICT: u8 = 137;
    let options = &headers[..usize::from(layout.transport)];
    let mut at = usize::from(layout.network) + 20;
    while let Some(&[option, len, pointer]) = options.get(at..at + 3) {
        let len = usize::from(len);
        match option {
            0 => break,
            1 => at += 1,
            _ if len < 2 || at + len > options.len() => break,
            LOOSE | STRICT if len >= 7 && usize::from(pointer) <= len => {
                return u16::try_from(at + len - 4).map_err(|_| SegmentError::SourceRoute);
            }
            _ => at += len,
        }
    }
    Err(SegmentError::SourceRoute)
}

/// The same for IPv6: the last address of the routing header (RFC 8200 §8.1).
fn final_destination_v6(headers: &[u8], layout: &Layout) -> Result<u16, SegmentError> {
    let network = usize::from(layout.network);
    let mut rest = &headers[network + 40..usize::from(layout.transport)];
    let mut next = IpProtocol(headers[network + 6]);
    while let Some(&[following, units, route, left]) = rest.get(..4) {
        let len = (usize::from(units) + 1) * 8;
        if len > rest.len() {
            break;
        }
        if next == IpProtocol::ROUTING && left != 0 {
            let at = usize::from(layout.transport) - rest.len();
            let address = match route {
                0 | 2 if len >= 24 => at + len - 16,
                // RFC 8754 §2: the segment list is stored backwards.
                4 if len >= 24 => at + 8,
                _ => break,
            };
            return u16::try_from(address).map_err(|_| SegmentError::SourceRoute);
        }
        next = IpProtocol(following);
        rest = &rest[len..];
    }
    Err(SegmentError::SourceRoute)
}
