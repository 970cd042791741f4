//! What virtio-net headers tell: of a program that forgets them, and of the large packets that it
//! hands to the kernel.

use packtrain_offload::checksum::{Sum, pseudo_header_v4, pseudo_header_v6, sum};
use packtrain_offload::layout::{Layout, Network};
use packtrain_offload::virtio_net::{FLAG_NEEDS_CSUM, GSO_NONE, HeaderLen, VnetHeader};

use super::packet::{Link, TCP};
use crate::topology::Side;

/// The end of a clause.
pub(super) const HEADER_QUESTION: &str = "is the virtio-net header read and written?";

/// Lengths of a virtio-net header.
const HEADERS: [usize; 2] = [10, 12];
/// Packets for which a virtio-net header is searched, at most.
const SEARCHED_MAX: usize = 64;

/// A clause for a packet that arrived, all bytes equal, with a virtio-net header in front of it, or
/// without as many of its first bytes. Each packet is beside the host that it arrives in.
pub(super) fn header_hint(
    expected: impl Iterator<Item = (Side, Vec<u8>)>,
    arrived: &[(Side, &[u8])],
) -> Option<String> {
    for (at, wire) in expected.take(SEARCHED_MAX) {
        for (_, found) in arrived.iter().filter(|(side, _)| *side == at) {
            for bytes in HEADERS {
                let what = if found.get(bytes..) == Some(&wire) {
                    format!("{bytes} bytes are in front of one that arrived")
                } else if wire.len() > 2 * bytes && wire[bytes..] == **found {
                    format!("one arrived without its first {bytes} bytes")
                } else {
                    continue;
                };
                return Some(format!("; {what}: {HEADER_QUESTION}"));
            }
        }
    }
    None
}

/// What is wrong with a GSO packet as it was handed to the kernel. Its segments tell nothing of its
/// own lengths and checksums, which the kernel and a network card use (`tcp_gso_segment`,
/// `__udp_gso_segment` of Linux).
pub(super) fn large_error(link: Link, read: &[u8]) -> Option<&'static str> {
    let header = VnetHeader::decode(read, HeaderLen::Legacy).ok()?;
    if header.gso_type == GSO_NONE {
        return None;
    }
    let packet = &read[HeaderLen::Legacy.bytes()..];
    let Some(layout) = link.layout(packet) else {
        return Some("its headers do not fit its bytes");
    };
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    if layout.ip_end as usize != packet.len() {
        return Some("its IP length is not that of its bytes");
    }
    if layout.kind == Network::Ipv4 && !sum(&packet[network..transport]).is_valid() {
        return Some("the checksum of its IPv4 header is wrong");
    }
    let pseudo = pseudo(packet, &layout)?;
    let offset = if layout.protocol.0 == TCP { 16 } else { 6 };
    let place = (
        usize::from(header.csum_start),
        usize::from(header.csum_offset),
    );
    if header.flags & FLAG_NEEDS_CSUM == 0 || place != (transport, offset) {
        return Some("its virtio-net header names no transport checksum to complete");
    }
    let stored = packet.get(transport + offset..)?.first_chunk().copied()?;
    let is_pseudo = u16::from_be_bytes(stored) == pseudo.fold();
    (!is_pseudo).then_some("its transport checksum is not the sum of its pseudo-header")
}

/// The sum of the pseudo-header of a TCP or UDP packet that ends where its bytes do.
pub(super) fn pseudo(packet: &[u8], layout: &Layout) -> Option<Sum> {
    let octets = |at: usize| packet.get(usize::from(layout.network) + at..);
    let bytes = packet.len().checked_sub(usize::from(layout.transport))? as u32;
    let protocol = layout.protocol.0;
    Some(if layout.kind == Network::Ipv4 {
        let [from, to] = [12, 16].map(|at| octets(at)?.first_chunk().copied());
        pseudo_header_v4(from?, to?, protocol, bytes)
    } else {
        let [from, to] = [8, 24].map(|at| octets(at)?.first_chunk().copied());
        pseudo_header_v6(from?, to?, protocol, bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::super::packet::{Form, Packet, Sent};
    use super::*;
    use crate::ip::IpVersion;

    #[test]
    fn a_virtio_net_header_is_found_where_all_other_bytes_are_equal() {
        let sent = Sent::new(Side::Left, Form::Wire(Packet::udp(IpVersion::V4, 1, 100)));
        let wire = sent.build(Link::Tap, 1).wire.swap_remove(0);
        let hint = |at: Side, found: &[u8]| {
            let expected = [(Side::Right, wire.clone())].into_iter();
            header_hint(expected, &[(at, found)]).unwrap_or_default()
        };
        let longer = [&[0; 10][..], &wire].concat();
        let words = "; 10 bytes are in front of one that arrived: is the virtio-net header read";
        assert!(hint(Side::Right, &longer).starts_with(words));
        let words = "; one arrived without its first 12 bytes: is the";
        assert!(hint(Side::Right, &wire[12..]).starts_with(words));
        let mut other = longer.clone();
        *other.last_mut().expect("bytes") ^= 1;
        assert_eq!(hint(Side::Right, &other), "");
        assert_eq!(hint(Side::Left, &longer), "");
        assert_eq!(hint(Side::Right, &wire[11..]), "");
    }

    #[test]
    fn a_large_packet_has_the_lengths_and_sums_that_a_card_uses() {
        for (ip, header) in [(IpVersion::V4, 20), (IpVersion::V6, 40)] {
            for (packet, field) in [
                (Packet::tcp(ip, 1, 5, 2500), 16),
                (Packet::udp(ip, 1, 2500), 6),
            ] {
                let form = Form::Large { packet, size: 1000 };
                let read = Sent::new(Side::Left, form).build(Link::Tun, 1).handed;
                assert_eq!(large_error(Link::Tun, &read), None);
                let with = |at: usize| {
                    let mut read = read.clone();
                    read[at] ^= 1;
                    large_error(Link::Tun, &read).unwrap_or("nothing")
                };
                let sum = "its transport checksum is not the sum of its pseudo-header";
                assert_eq!(with(10 + header + field), sum);
                let length = 10 + if ip == IpVersion::V4 { 3 } else { 5 };
                assert_ne!(with(length), "nothing");
                let place = "its virtio-net header names no transport checksum to complete";
                assert_eq!((with(0), with(8)), (place, place));
                if ip == IpVersion::V4 {
                    assert_eq!(with(10 + 8), "the checksum of its IPv4 header is wrong");
                }
            }
        }
        // A wire packet has none of this.
        let form = Form::Wire(Packet::udp(IpVersion::V4, 1, 9));
        let mut read = Sent::new(Side::Left, form).build(Link::Tun, 1).handed;
        read[10 + 8] ^= 1;
        assert_eq!(large_error(Link::Tun, &read), None);
    }
}
