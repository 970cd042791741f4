use super::*;
use crate::limits::{IPV6_EXTENSION_BYTES_MAX, IPV6_EXTENSION_HEADERS_MAX};
use core::ops::Range;
use std::vec;
use std::vec::Vec;

mod cut;
mod differential;
mod lengths;
mod properties;

const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88A8;
const ETHERNET: LinkType = LinkType::Ethernet;
const RAW: LinkType = LinkType::RawIp;

/// Ethernet header, tags given by their announcing types, then `body` of type `ethertype`.
fn ethernet(tags: &[u16], ethertype: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    for tag in tags {
        bytes.extend(tag.to_be_bytes());
        bytes.extend(0x6005u16.to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn ipv4(protocol: u8, options: &[u8], body: &[u8]) -> Vec<u8> {
    let total = (20 + options.len() + body.len()) as u16;
    let mut bytes = vec![0x40 | (5 + options.len() / 4) as u8, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([
        0x12, 0x34, 0x40, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
    ]);
    bytes.extend(options);
    bytes.extend(body);
    bytes
}

fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    bytes.extend([0xFD; 16]);
    bytes.extend([0xFC; 16]);
    bytes.extend(body);
    bytes
}

/// Extension headers of given kinds and lengths, then `body` as protocol `last`. Gives the first
/// next-header number too.
fn extensions(chain: &[(u8, usize)], last: u8, body: &[u8]) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    for (i, (_, len)) in chain.iter().enumerate() {
        let next = chain.get(i + 1).map_or(last, |(kind, _)| *kind);
        let at = bytes.len();
        bytes.resize(at + len, 0);
        bytes[at] = next;
        bytes[at + 1] = (len / 8 - 1) as u8;
    }
    bytes.extend(body);
    (chain.first().map_or(last, |(kind, _)| *kind), bytes)
}

fn ipv6_with(chain: &[(u8, usize)], last: u8, body: &[u8]) -> Vec<u8> {
    let (next, body) = extensions(chain, last, body);
    ipv6(next, &body)
}

fn tcp(option_bytes: usize, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2];
    bytes.extend([((20 + option_bytes) * 4) as u8, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(20 + option_bytes, 1);
    bytes.resize(20 + option_bytes + payload, 0x5A);
    bytes
}

fn udp(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0, 53];
    bytes.extend((8 + payload as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(8 + payload, 0xA5);
    bytes
}

/// Stores `n` as the length of everything from `network` on, in whichever IP header is there.
fn set_ip_length(packet: &mut [u8], network: usize, n: usize) {
    if packet[network] >> 4 == 4 {
        packet[network + 2..network + 4].copy_from_slice(&(n as u16).to_be_bytes());
    } else {
        let n = (n - 40) as u16;
        packet[network + 4..network + 6].copy_from_slice(&n.to_be_bytes());
    }
}

/// Parses a whole contiguous packet.
fn whole(link: LinkType, bytes: &[u8]) -> Result<Layout, ParseError> {
    Layout::parse(link, bytes, bytes.len() as u32)
}

/// `(network, transport, payload, ip_end)` of a packet that must parse.
fn offsets(link: LinkType, bytes: &[u8]) -> (u16, u16, u16, u32) {
    let layout = whole(link, bytes).unwrap();
    (
        layout.network,
        layout.transport,
        layout.payload,
        layout.ip_end,
    )
}

/// Rows: a packet, its `network`, `transport`, `payload` and `ip_end`, both kinds, its protocol.
macro_rules! rows {
    ($($packet:expr => $offsets:expr, $kind:ident, $transport:ident, $protocol:literal;)*) => {
        [$(($packet, $offsets, Network::$kind, Transport::$transport, $protocol)),*]
    };
}

#[test]
fn finds_every_kind_of_header() {
    use Network::{Ipv4, Ipv6, Other};
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[7; 20]].concat();
    let t = tcp(12, 5);
    let (v4, v6) = (0x0800, 0x86DD);
    let cases = rows! {
        ethernet(&[], v4, &ipv4(6, &[], &t)) => (14, 34, 66, 71), Ipv4, Tcp, 6;
        ethernet(&[], v4, &ipv4(17, &[1; 40], &udp(3))) => (14, 74, 82, 85), Ipv4, Udp, 17;
        ethernet(&[TAG], v4, &ipv4(1, &[], &[8; 11])) => (18, 38, 46, 49), Ipv4, Icmp, 1;
        ethernet(&[], v4, &ipv4(132, &[], &[0; 12])) => (14, 34, 34, 46), Ipv4, Other, 132;
        ethernet(&[], v4, &ipv4(58, &[], &[0; 8])) => (14, 34, 34, 42), Ipv4, Other, 58;
        ethernet(&[], v4, &ipv4(59, &[], &[])) => (14, 34, 34, 34), Ipv4, Other, 59;
        ethernet(&[], v4, &ipv4(0, &[], &[9; 8])) => (14, 34, 34, 42), Ipv4, Other, 0;
        ethernet(&[SERVICE_TAG, TAG], v6, &ipv6(6, &t)) => (22, 62, 94, 99), Ipv6, Tcp, 6;
        ethernet(&[], v6, &ipv6(17, &udp(0))) => (14, 54, 62, 62), Ipv6, Udp, 17;
        ethernet(&[], v6, &ipv6(58, &[0; 8])) => (14, 54, 62, 62), Ipv6, Icmpv6, 58;
        ethernet(&[], v6, &ipv6(1, &[0; 3])) => (14, 54, 54, 57), Ipv6, Other, 1;
        ethernet(&[], v6, &ipv6(59, &[1; 9])) => (14, 54, 54, 63), Ipv6, None, 59;
        ethernet(&[], v6, &ipv6(50, &[1; 9])) => (14, 54, 54, 63), Ipv6, Other, 50;
        ethernet(&[], v6, &ipv6(51, &[1; 9])) => (14, 54, 54, 63), Ipv6, Other, 51;
        ethernet(&[TAG, TAG], 0x0806, &arp) => (22, 22, 22, 50), Arp, None, 0;
        ethernet(&[], 0x88CC, &[1, 2, 3]) => (14, 14, 14, 17), Other, None, 0;
        ethernet(&[], 0x0003, &[1, 2, 3]) => (14, 14, 14, 17), Other, None, 0;
    };
    for (packet, (network, transport, payload, ip_end), kind, transport_kind, protocol) in cases {
        let tags = (usize::from(network) - 14) / 4;
        let at = usize::from(network) - 2;
        let expected = Layout {
            ip_end,
            network,
            transport,
            payload,
            ethertype: EtherType(u16::from_be_bytes([packet[at], packet[at + 1]])),
            protocol: IpProtocol(protocol),
            vlans: tags as u8,
            kind,
            transport_kind,
            fragment: false,
            source_routed: false,
        };
        assert_eq!(whole(ETHERNET, &packet), Ok(expected));
        assert_eq!(expected.check(packet.len() as u32), Ok(()));
        assert_eq!(expected.l2_len(), network);

        // Link padding changes nothing, except where there is no length field to tell it.
        let mut padded = packet.clone();
        padded.extend([0; 18]);
        let ip_end = if kind == Other {
            padded.len() as u32
        } else {
            ip_end
        };
        assert_eq!(whole(ETHERNET, &padded), Ok(Layout { ip_end, ..expected }));

        // The same datagram without a link header.
        if matches!(kind, Ipv4 | Ipv6) {
            let raw = Layout {
                ip_end: expected.ip_end - u32::from(network),
                network: 0,
                transport: transport - network,
                payload: payload - network,
                vlans: 0,
                ..expected
            };
            assert_eq!(whole(RAW, &packet[usize::from(network)..]), Ok(raw));
        }
    }
}

#[test]
fn lengths_derive_from_offsets() {
    let packet = ethernet(&[TAG], 0x0800, &ipv4(6, &[1; 8], &tcp(12, 100)));
    let layout = whole(ETHERNET, &packet).unwrap();
    assert_eq!(
        (
            layout.l2_len(),
            layout.l3_header_len(),
            layout.l4_header_len()
        ),
        (18, 28, 32)
    );
    assert_eq!((layout.l4_len(), layout.payload_len()), (132, 100));
    assert!(layout.is_ip());

    let layout = whole(RAW, &ipv6_with(&[(60, 8)], 17, &udp(9))).unwrap();
    assert_eq!(
        (
            layout.l2_len(),
            layout.l3_header_len(),
            layout.l4_header_len()
        ),
        (0, 48, 8)
    );
    assert_eq!((layout.l4_len(), layout.payload_len()), (17, 9));
    assert!(layout.is_ip());
}

#[test]
fn raw_ip_needs_a_known_version() {
    assert_eq!(whole(RAW, &[]), Err(ParseError::IpTruncated));
    let split = Layout::parse(RAW, &[], 40);
    assert_eq!(split, Err(ParseError::HeadersNotContiguous));
    for version in 0..16u8 {
        let expected = match version {
            4 => ParseError::Ipv4Truncated,
            6 => ParseError::Ipv6Truncated,
            _ => ParseError::IpVersionUnknown,
        };
        assert_eq!(whole(RAW, &[version << 4 | 5]), Err(expected));
    }
}

/// RFC 4391 §6: an Ethernet type and two bytes that are ignored.
#[test]
fn ipoib_has_a_header_of_4_bytes() {
    const IPOIB: LinkType = LinkType::Ipoib;
    let t = tcp(12, 5);
    for reserved in [[0, 0], [0xff, 0x12]] {
        let with =
            |ethertype: u16, body: &[u8]| [&ethertype.to_be_bytes()[..], &reserved, body].concat();
        let v4 = with(0x0800, &ipv4(6, &[], &t));
        assert_eq!(offsets(IPOIB, &v4), (4, 24, 56, 61));
        assert_eq!(whole(IPOIB, &v4).unwrap().l2_len(), 4);
        let v6 = with(0x86dd, &ipv6(17, &udp(3)));
        assert_eq!(offsets(IPOIB, &v6), (4, 44, 52, 55));
        let other = whole(IPOIB, &with(0x8100, &[0; 40])).unwrap();
        assert_eq!((other.kind, other.vlans), (Network::Other, 0));
        let wrong = whole(IPOIB, &with(0x86dd, &ipv4(6, &[], &t)));
        assert_eq!(wrong, Err(ParseError::Ipv6Version));
    }
    for n in 0..4 {
        assert_eq!(
            whole(IPOIB, &[8, 0, 0, 0][..n]),
            Err(ParseError::IpoibTruncated)
        );
        let split = Layout::parse(IPOIB, &[8, 0, 0, 0][..n], 60);
        assert_eq!(split, Err(ParseError::HeadersNotContiguous));
    }
    let no_ip = whole(IPOIB, &[8, 0, 0, 0]);
    assert_eq!(no_ip, Err(ParseError::Ipv4Truncated));
}

#[test]
fn the_type_must_agree_with_the_version() {
    let (four, six) = (ipv4(6, &[], &tcp(0, 60)), ipv6(6, &tcp(0, 60)));
    assert_eq!(
        whole(ETHERNET, &ethernet(&[], 0x0800, &six)),
        Err(ParseError::Ipv4Version)
    );
    assert_eq!(
        whole(ETHERNET, &ethernet(&[], 0x86DD, &four)),
        Err(ParseError::Ipv6Version)
    );
}

#[test]
fn two_vlan_tags_are_looked_through() {
    let datagram = ipv4(17, &[], &udp(0));
    for (tags, network) in [
        (&[][..], 14),
        (&[TAG], 18),
        (&[SERVICE_TAG], 18),
        (&[SERVICE_TAG, TAG], 22),
        (&[TAG, SERVICE_TAG], 22),
        (&[TAG, TAG], 22),
    ] {
        let packet = ethernet(tags, 0x0800, &datagram);
        let layout = whole(ETHERNET, &packet).unwrap();
        assert_eq!(
            (layout.network, usize::from(layout.vlans)),
            (network, tags.len())
        );
        assert_eq!(
            (layout.kind, layout.ethertype),
            (Network::Ipv4, EtherType::IPV4)
        );
    }
    for (tags, third) in [
        (&[SERVICE_TAG, TAG, TAG][..], TAG),
        (&[TAG, TAG, SERVICE_TAG], SERVICE_TAG),
        (&[TAG, TAG, TAG, TAG, TAG], TAG),
    ] {
        let packet = ethernet(tags, 0x0800, &datagram);
        let layout = whole(ETHERNET, &packet).unwrap();
        assert_eq!(
            (layout.network, layout.vlans, layout.ethertype.0),
            (22, 2, third)
        );
        assert_eq!(
            (layout.kind, layout.transport_kind),
            (Network::Other, Transport::None)
        );
        assert_eq!(layout.ip_end as usize, packet.len());
    }
    // Announced but not there.
    let cut = &ethernet(&[TAG, TAG], 0x0800, &[])[..20];
    assert_eq!(whole(ETHERNET, cut), Err(ParseError::VlanTruncated));
}

#[test]
fn fragments_have_no_transport() {
    // DF and the reserved flag alone do not make a fragment.
    for (word, fragment) in [
        (0u16, false),
        (0x4000, false),
        (0x8000, false),
        (0x2000, true),
        (1, true),
        (0x3FFF, true),
    ] {
        // Too short for TCP, which is irrelevant in a fragment.
        for body in [&tcp(0, 4)[..], &[1, 2, 3]] {
            let mut packet = ipv4(6, &[], body);
            packet[6..8].copy_from_slice(&word.to_be_bytes());
            let got = whole(RAW, &packet);
            if fragment {
                let layout = got.unwrap();
                assert!(layout.fragment);
                assert_eq!(layout.transport_kind, Transport::None);
                assert_eq!((layout.transport, layout.payload), (20, 20));
                assert_eq!(layout.protocol, IpProtocol::TCP);
            } else if body.len() < 20 {
                assert_eq!(got, Err(ParseError::TcpTruncated));
            } else {
                assert_eq!(
                    got.map(|l| (l.fragment, l.transport_kind)),
                    Ok((false, Transport::Tcp))
                );
            }
        }
    }
    // First, later and atomic fragments alike; what follows the header is not walked.
    for word in [0u16, 1, 0x0008, 0xFFF8] {
        for next in [6, 17, 60, 0, 44] {
            let mut packet = ipv6_with(&[(60, 8), (44, 8)], next, &[0xFF; 5]);
            packet[50..52].copy_from_slice(&word.to_be_bytes());
            let layout = whole(RAW, &packet).unwrap();
            assert!(layout.fragment);
            assert_eq!(layout.transport_kind, Transport::None);
            assert_eq!(
                (layout.transport, layout.payload, layout.ip_end),
                (56, 56, 61)
            );
            assert_eq!(layout.protocol.0, next);
        }
    }
}

#[test]
fn a_fragment_header_has_one_length() {
    // Its second byte is reserved, not a length.
    let mut packet = ipv6_with(&[(44, 8)], 17, &[0; 8]);
    packet[41] = 0xFF;
    assert_eq!(offsets(RAW, &packet), (0, 48, 48, 56));
}

#[test]
fn extension_headers_have_bounds() {
    let parse = |chain: &[(u8, usize)]| {
        let packet = ipv6_with(chain, 17, &udp(1));
        whole(RAW, &packet).map(|layout| layout.transport)
    };
    for count in 0..20 {
        for kind in [0, 43, 60] {
            let expected = if count <= IPV6_EXTENSION_HEADERS_MAX {
                Ok(40 + 8 * count as u16)
            } else {
                Err(ParseError::Ipv6ExtensionsTooMany)
            };
            assert_eq!(
                parse(&vec![(kind, 8); count]),
                expected,
                "{count} of {kind}"
            );
        }
    }
    let mut with_fragment = vec![(60, 8); IPV6_EXTENSION_HEADERS_MAX];
    with_fragment.push((44, 8));
    assert_eq!(
        parse(&with_fragment),
        Err(ParseError::Ipv6ExtensionsTooMany)
    );

    for len in (8..=2048).step_by(8) {
        let expected = if len <= IPV6_EXTENSION_BYTES_MAX {
            Ok(40 + len as u16)
        } else {
            Err(ParseError::Ipv6ExtensionsTooLong)
        };
        assert_eq!(parse(&[(60, len)]), expected, "{len}");
    }
    assert_eq!(parse(&[(0, 128), (43, 128)]), Ok(296));
    assert_eq!(
        parse(&[(0, 128), (43, 128), (60, 8)]),
        Err(ParseError::Ipv6ExtensionsTooLong)
    );
    assert_eq!(
        parse(&[(0, 128), (43, 128), (44, 8)]),
        Err(ParseError::Ipv6ExtensionsTooLong)
    );
}

#[test]
fn an_extension_header_may_not_reach_beyond_the_datagram() {
    let mut packet = ipv6_with(&[(0, 8), (60, 16)], 6, &tcp(0, 0));
    packet[49] = 5;
    assert_eq!(whole(RAW, &packet), Err(ParseError::Ipv6ExtensionTruncated));
    // Nor into padding.
    packet.extend([0; 100]);
    assert_eq!(whole(RAW, &packet), Err(ParseError::Ipv6ExtensionTruncated));
}

#[test]
fn source_routes_are_flagged() {
    for (segments_left, routed) in [(0, false), (1, true), (255, true)] {
        let mut packet = ipv6_with(&[(60, 8), (43, 24)], 17, &udp(0));
        packet[48 + 3] = segments_left;
        assert_eq!(whole(RAW, &packet).unwrap().source_routed, routed);
    }
    // The same byte of another extension header means something else.
    let mut packet = ipv6_with(&[(60, 24)], 17, &udp(0));
    packet[43] = 9;
    assert!(!whole(RAW, &packet).unwrap().source_routed);

    for (options, routed) in [
        ([1, 131, 7, 4, 198, 18, 0, 9], true),
        ([137, 7, 4, 198, 18, 0, 9, 0], true),
        // The route is used up once the pointer is greater than the length (RFC 791 §3.1).
        ([137, 7, 7, 198, 18, 0, 9, 0], true),
        ([137, 7, 8, 198, 18, 0, 9, 0], false),
        ([7, 7, 4, 198, 18, 0, 9, 0], false),
        ([0, 131, 7, 4, 198, 18, 0, 9], false),
        ([131, 2, 137, 7, 4, 0, 0, 0], false),
        ([131, 1, 131, 7, 4, 0, 0, 0], false),
    ] {
        let packet = ipv4(17, &options, &udp(0));
        assert_eq!(
            whole(RAW, &packet).unwrap().source_routed,
            routed,
            "{options:?}"
        );
    }
}

#[test]
fn arp_of_any_address_type_is_measured() {
    for (hardware, protocol, end) in [(6u8, 4u8, 42), (8, 4, 46), (20, 16, 94), (0, 0, 22)] {
        let mut body = vec![0, 1, 8, 0, hardware, protocol, 0, 1];
        body.resize(
            8 + 2 * (usize::from(hardware) + usize::from(protocol)) + 5,
            7,
        );
        let layout = whole(ETHERNET, &ethernet(&[], 0x0806, &body)).unwrap();
        assert_eq!((layout.kind, layout.ip_end), (Network::Arp, end));
    }
    let body = [0, 1, 8, 0, 255, 255, 0, 1, 0, 0];
    assert_eq!(
        whole(ETHERNET, &ethernet(&[], 0x0806, &body)),
        Err(ParseError::ArpTruncated)
    );
}

#[test]
fn check_names_the_broken_rule() {
    let packet = ethernet(&[], 0x0800, &ipv4(6, &[], &tcp(0, 9)));
    let good = whole(ETHERNET, &packet).unwrap();
    let n = packet.len() as u32;
    assert_eq!(good.check(n), Ok(()));
    assert_eq!(good.check(n - 1), Err("ip_end <= packet_bytes"));
    type Change = fn(&mut Layout);
    let broken: [(Change, &str); 7] = [
        (|l| l.network = 35, "network <= transport"),
        (|l| l.transport = 55, "transport <= payload"),
        (|l| l.ip_end = 53, "payload <= ip_end"),
        (|l| l.vlans = 3, "vlans <= VLAN_TAGS_MAX"),
        (|l| l.transport = 36, "network header length fits its kind"),
        (|l| l.payload = 56, "transport header length fits its kind"),
        (|l| l.fragment = true, "a fragment has no transport"),
    ];
    for (change, rule) in broken {
        let mut layout = good;
        change(&mut layout);
        assert_eq!(layout.check(n), Err(rule));
    }
}
