use std::vec;
use std::vec::Vec;

use proptest::collection::vec as any_vec;
use proptest::prelude::*;

use super::*;
use crate::layout::Network;
use crate::limits::TUNNEL_HEADER_BYTES_MAX;
use crate::test_packets::{Field, Spec, bytes};

/// An outer IPv4 or IPv6 packet on Ethernet that carries `l4` as `protocol`.
fn carrier(ipv6: bool, protocol: u8, l4: &[u8]) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if ipv6 {
        packet.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        packet.extend((l4.len() as u16).to_be_bytes());
        packet.extend([protocol, 64]);
        packet.extend([0xfd; 32]);
    } else {
        packet.extend([8, 0, 0x45, 0]);
        packet.extend((20 + l4.len() as u16).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend([198, 18, 0, 1, 198, 18, 0, 2]);
    }
    packet.extend(l4);
    packet
}

fn udp(port: u16, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0xc0, 1];
    out.extend(port.to_be_bytes());
    out.extend((8 + body.len() as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(body);
    out
}

fn vxlan(flags: u8, inner: &[u8]) -> Vec<u8> {
    [&[flags, 0, 0, 0, 1, 2, 3, 0], inner].concat()
}

fn geneve(first: u8, flags: u8, protocol: u16, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![first, flags];
    out.extend(protocol.to_be_bytes());
    out.extend([1, 2, 3, 0]);
    out.extend(bytes(usize::from(first & 0x3f) * 4));
    out.extend(inner);
    out
}

fn gre(flags: u16, protocol: u16, inner: &[u8]) -> Vec<u8> {
    let mut out = flags.to_be_bytes().to_vec();
    out.extend(protocol.to_be_bytes());
    out.resize(4 + 4 * (flags >> 12).count_ones() as usize, 0);
    out.extend(inner);
    out
}

fn parse(packet: &[u8]) -> Result<Option<TunnelLayout>, ParseError> {
    let ports = TunnelPorts::default();
    TunnelLayout::parse(LinkType::Ethernet, packet, packet.len() as u32, ports)
}

#[test]
fn finds_the_inner_headers() {
    let frame = Spec {
        vlans: vec![0x8100],
        ..Spec::tcp6(50).ethernet()
    };
    let (frame_bytes, raw) = (
        frame.build(Field::Final),
        Spec::udp4(50).build(Field::Final),
    );
    // Tunnel, what follows the outer IP header, first byte of the inner packet from there, and
    // whether the inner packet is the frame.
    let cases = [
        (
            Tunnel::Vxlan,
            17,
            udp(4789, &vxlan(8, &frame_bytes)),
            16,
            true,
        ),
        (
            Tunnel::Geneve,
            17,
            udp(6081, &geneve(0, 0, 0x6558, &frame_bytes)),
            16,
            true,
        ),
        (
            Tunnel::Geneve,
            17,
            udp(6081, &geneve(63, 0x40, 0x0800, &raw)),
            268,
            false,
        ),
        (Tunnel::Gre, 47, gre(0, 0x0800, &raw), 4, false),
        (Tunnel::Gre, 47, gre(0x2000, 0x6558, &frame_bytes), 8, true),
        (Tunnel::Gre, 47, gre(0xb000, 0x6558, &frame_bytes), 16, true),
    ];
    for (tunnel, protocol, l4, start, is_frame) in cases {
        for ipv6 in [false, true] {
            let packet = carrier(ipv6, protocol, &l4);
            let found = parse(&packet).unwrap().unwrap();
            let transport = if ipv6 { 54 } else { 34 };
            let start = transport + start;
            assert_eq!(found.tunnel, tunnel);
            assert_eq!(usize::from(found.outer.transport), transport);
            assert_eq!(usize::from(found.inner_start), start);
            let (spec, kind) = if is_frame {
                (frame.clone(), Network::Ipv6)
            } else {
                (Spec::udp4(50), Network::Ipv4)
            };
            assert_eq!(found.inner.kind, kind);
            assert_eq!(usize::from(found.inner.network), start + spec.network());
            assert_eq!(usize::from(found.inner.transport), start + spec.transport());
            assert_eq!(
                usize::from(found.inner.payload),
                start + spec.header_bytes()
            );
            assert_eq!(found.inner.ip_end as usize, packet.len());
            assert_eq!(found.inner.vlans, u8::from(is_frame));
            assert_eq!(
                TunnelLayout::within(&found.outer, &packet, TunnelPorts::default()),
                Ok(Some(found))
            );
        }
    }
}

#[test]
fn what_is_no_tunnel_is_none() {
    let (frame, raw) = (
        Spec::tcp4(50).ethernet().build(Field::Final),
        Spec::tcp4(50).build(Field::Final),
    );
    let mut fragment = carrier(false, 17, &udp(4789, &vxlan(8, &frame)));
    fragment[20] = 0x20;
    for (why, packet) in [
        ("TCP", carrier(false, 6, &raw[20..])),
        (
            "another port",
            carrier(false, 17, &udp(4788, &vxlan(8, &frame))),
        ),
        (
            "no identifier",
            carrier(false, 17, &udp(4789, &vxlan(0, &frame))),
        ),
        (
            "VXLAN-GPE",
            carrier(false, 17, &udp(4789, &vxlan(0x0c, &frame))),
        ),
        (
            "version 1",
            carrier(false, 17, &udp(6081, &geneve(0x40, 0, 0x6558, &frame))),
        ),
        (
            "control",
            carrier(false, 17, &udp(6081, &geneve(0, 0x80, 0x6558, &frame))),
        ),
        (
            "MPLS in GENEVE",
            carrier(false, 17, &udp(6081, &geneve(0, 0, 0x8847, &raw))),
        ),
        ("PPTP", carrier(false, 47, &gre(0x2001, 0x880b, &raw))),
        (
            "source routes",
            carrier(false, 47, &gre(0x4000, 0x0800, &raw)),
        ),
        (
            "a reserved bit",
            carrier(false, 47, &gre(0x0800, 0x0800, &raw)),
        ),
        ("ERSPAN", carrier(false, 47, &gre(0x1000, 0x88be, &raw))),
        ("a fragment", fragment),
    ] {
        assert_eq!(parse(&packet), Ok(None), "{why}");
    }
}

#[test]
fn ports_are_the_callers() {
    let frame = Spec::tcp4(50).ethernet().build(Field::Final);
    let of = |port| carrier(false, 17, &udp(port, &vxlan(8, &frame)));
    // The default of Linux is known.
    assert_eq!(parse(&of(8472)).unwrap().unwrap().tunnel, Tunnel::Vxlan);
    let packet = of(8473);
    assert_eq!(parse(&packet), Ok(None));
    let ports = TunnelPorts {
        vxlan: [8473, 0, 0, 0],
        ..TunnelPorts::default()
    };
    let found = TunnelLayout::parse(LinkType::Ethernet, &packet, packet.len() as u32, ports);
    assert_eq!(found.unwrap().unwrap().tunnel, Tunnel::Vxlan);
}

#[test]
fn truncated_tunnel_headers_are_errors() {
    let no = &[][..];
    for (expected, packet) in [
        (
            ParseError::VxlanTruncated,
            carrier(false, 17, &udp(4789, &[8, 0, 0, 0, 0, 0, 0])),
        ),
        (
            ParseError::EthernetTruncated,
            carrier(false, 17, &udp(4789, &vxlan(8, &[0; 13]))),
        ),
        (
            ParseError::GeneveTruncated,
            carrier(false, 17, &udp(6081, &[0; 7])),
        ),
        (
            ParseError::GeneveOptionsTruncated,
            carrier(false, 17, &udp(6081, &[1, 0, 8, 0, 0, 0, 0, 0])),
        ),
        (ParseError::GreTruncated, carrier(false, 47, &[0, 0, 8])),
        (
            ParseError::GreTruncated,
            carrier(false, 47, &[0xb0, 0, 8, 0, 0, 0, 0, 0]),
        ),
        (
            ParseError::Ipv4Truncated,
            carrier(false, 47, &gre(0, 0x0800, no)),
        ),
        (
            ParseError::Ipv4Version,
            carrier(false, 47, &gre(0, 0x0800, &[0x60; 40])),
        ),
        (
            ParseError::Ipv6Version,
            carrier(false, 47, &gre(0, 0x86dd, &[0x45; 40])),
        ),
    ] {
        assert_eq!(parse(&packet), Err(expected));
    }
}

/// The inner packet ends where the UDP datagram does, not where the IP packet does (RFC 9868).
#[test]
fn the_inner_packet_ends_with_the_udp_datagram() {
    let frame = Spec::tcp4(50).ethernet().build(Field::Final);
    let mut l4 = udp(4789, &vxlan(8, &frame));
    l4.extend([0xee; 6]);
    let packet = carrier(false, 17, &l4);
    let found = parse(&packet).unwrap().unwrap();
    assert_eq!(found.outer.ip_end as usize, packet.len());
    assert_eq!(found.inner.ip_end as usize, packet.len() - 6);
    let mut short = carrier(false, 17, &l4);
    short[39] -= 1;
    assert_eq!(parse(&short), Err(ParseError::Ipv4TotalLengthBeyond));
}

#[test]
fn a_tunnel_in_a_tunnel_is_payload() {
    let frame = Spec::tcp4(50).ethernet().build(Field::Final);
    let inner = carrier(false, 17, &udp(4789, &vxlan(8, &frame)));
    let packet = carrier(true, 17, &udp(4789, &vxlan(8, &inner)));
    let found = parse(&packet).unwrap().unwrap();
    assert_eq!(found.inner.transport_kind, Transport::Udp);
    assert_eq!(usize::from(found.inner.payload), 54 + 16 + 14 + 20 + 8);
}

fn any_tunnel() -> impl Strategy<Value = Vec<u8>> {
    let inner = prop_oneof![
        Just(Spec::tcp4(40)),
        Just(Spec::tcp6(40)),
        Just(Spec::udp4(40)),
        Just(Spec::udp6(40)),
    ];
    (inner, any::<bool>(), any::<bool>(), 0_u8..6, 0_u8..64).prop_map(
        |(spec, ipv6, teb, tunnel, words)| {
            let ethertype = if spec.ipv6 { 0x86dd } else { 0x0800 };
            let (spec, protocol) = if teb || tunnel == 0 {
                (spec.ethernet(), 0x6558)
            } else {
                (spec, ethertype)
            };
            let inner = spec.build(Field::Final);
            match tunnel {
                0 => carrier(ipv6, 17, &udp(4789, &vxlan(8, &inner))),
                1 | 2 => carrier(ipv6, 17, &udp(6081, &geneve(words, 0, protocol, &inner))),
                _ => {
                    let flags = u16::from(words & 11) << 12;
                    carrier(ipv6, 47, &gre(flags, protocol, &inner))
                }
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A prefix gives the same answer or says that it is too short, and what is found is in order.
    #[test]
    fn prefixes_agree_and_nothing_panics(
        good in any_tunnel(),
        flips in any_vec((0_usize..400, any::<u8>()), 0..6),
        prefix in 0_usize..500,
    ) {
        prop_assert!(parse(&good).unwrap().is_some());
        let mut packet = good;
        for (at, value) in flips {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let whole = parse(&packet);
        prop_assert_ne!(whole, Err(ParseError::HeadersNotContiguous));
        if let Ok(Some(found)) = whole {
            prop_assert!(found.outer.payload <= found.inner_start);
            prop_assert!(found.inner_start <= found.inner.network);
            prop_assert!(found.inner.ip_end <= found.outer.ip_end);
            prop_assert!(usize::from(found.inner.payload) <= TUNNEL_HEADER_BYTES_MAX);
            prop_assert!(u32::from(found.inner.payload) <= found.inner.ip_end);
        }
        let bytes = packet.len() as u32;
        let start = &packet[..prefix.min(packet.len())];
        let part = TunnelLayout::parse(LinkType::Ethernet, start, bytes, TunnelPorts::default());
        prop_assert!(part == whole || part == Err(ParseError::HeadersNotContiguous));
    }
}
