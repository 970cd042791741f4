use super::*;
use crate::layout::{Layout, Network, Transport};
use crate::offload::LinkType;
use crate::test_packets::{Ext, Field, Spec};
use proptest::prelude::*;
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_OTHER: u8 = 99;

fn key_of(link: LinkType, packet: &[u8]) -> FlowKey {
    let layout = Layout::parse(link, packet, packet.len() as u32).unwrap();
    FlowKey::new(&layout, packet, 0).unwrap()
}

/// A raw IPv4 packet with ports and room for any transport header.
fn ipv4_packet(protocol: u8, src: ([u8; 4], u16), dst: ([u8; 4], u16)) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    packet.extend(src.0);
    packet.extend(dst.0);
    packet.extend(transport(protocol, src.1, dst.1));
    packet
}

fn ipv6_packet(protocol: u8, src: ([u8; 16], u16), dst: ([u8; 16], u16)) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
    packet.extend(src.0);
    packet.extend(dst.0);
    packet.extend(transport(protocol, src.1, dst.1));
    packet
}

fn transport(protocol: u8, src: u16, dst: u16) -> Vec<u8> {
    let mut header = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    header.resize(20, 0);
    match protocol {
        PROTOCOL_TCP => header[12] = 5 << 4,
        PROTOCOL_UDP => header[5] = 20,
        _ => {}
    }
    header
}

/// A TCP packet with these tag control informations.
fn tagged(tags: &[u16]) -> Vec<u8> {
    let mut spec = Spec::tcp4(20).ethernet();
    spec.vlans = vec![0x8100; tags.len()];
    let mut packet = spec.build(Field::Final);
    for (at, tci) in tags.iter().enumerate() {
        packet[14 + 4 * at..16 + 4 * at].copy_from_slice(&tci.to_be_bytes());
    }
    packet
}

/// Microsoft, "Verifying the RSS Hash Calculation": destination, source, hash without and with
/// ports.
#[test]
fn toeplitz_passes_the_published_ipv4_vectors() {
    let vectors = [
        (
            ([161, 142, 100, 80], 1766),
            ([66, 9, 149, 187], 2794),
            0x323e_8fc2,
            0x51cc_c178,
        ),
        (
            ([65, 69, 140, 83], 4739),
            ([199, 92, 111, 2], 14230),
            0xd718_262a,
            0xc626_b0ea,
        ),
        (
            ([12, 22, 207, 184], 38024),
            ([24, 19, 198, 95], 12898),
            0xd2d0_a5de,
            0x5c2b_394a,
        ),
        (
            ([209, 142, 163, 6], 2217),
            ([38, 27, 205, 30], 48228),
            0x8298_9176,
            0xafc7_327f,
        ),
        (
            ([202, 188, 127, 2], 1303),
            ([153, 39, 163, 191], 44251),
            0x5d18_09c5,
            0x10e8_28a2,
        ),
    ];
    let rss = Toeplitz::new(&TOEPLITZ_KEY_MICROSOFT);
    for (dst, src, addresses, with_ports) in vectors {
        for (protocol, expected) in [
            (PROTOCOL_TCP, (with_ports, HashType::TcpIpv4)),
            (PROTOCOL_UDP, (with_ports, HashType::UdpIpv4)),
            (PROTOCOL_OTHER, (addresses, HashType::Ipv4)),
        ] {
            let key = key_of(LinkType::RawIp, &ipv4_packet(protocol, src, dst));
            assert_eq!(rss.hash_flow(&key), expected, "{src:?} {dst:?}");
            let slow = toeplitz(&TOEPLITZ_KEY_MICROSOFT, key.rss_input().bytes());
            assert_eq!(slow, Some(expected.0));
        }
    }
}

#[test]
fn toeplitz_passes_the_published_ipv6_vectors() {
    let ip = |text: &str| text.parse::<core::net::Ipv6Addr>().unwrap().octets();
    let vectors = [
        (
            "3ffe:2501:200:3::1",
            1766,
            "3ffe:2501:200:1fff::7",
            2794,
            0x2cc1_8cd5,
            0x4020_7d3d,
        ),
        (
            "ff02::1",
            4739,
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            0x0f0c_461c,
            0xdde5_1bbf,
        ),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];
    let rss = Toeplitz::new(&TOEPLITZ_KEY_MICROSOFT);
    for (dst, dst_port, src, src_port, addresses, with_ports) in vectors {
        for (protocol, expected) in [
            (PROTOCOL_TCP, (with_ports, HashType::TcpIpv6)),
            (PROTOCOL_UDP, (with_ports, HashType::UdpIpv6)),
            (PROTOCOL_OTHER, (addresses, HashType::Ipv6)),
        ] {
            let packet = ipv6_packet(protocol, (ip(src), src_port), (ip(dst), dst_port));
            let key = key_of(LinkType::RawIp, &packet);
            assert_eq!(rss.hash_flow(&key), expected, "{src} {dst}");
            let slow = toeplitz(&TOEPLITZ_KEY_MICROSOFT, key.rss_input().bytes());
            assert_eq!(slow, Some(expected.0));
        }
    }
}

proptest! {
    #[test]
    fn toeplitz_tables_agree_with_the_definition(
        key in prop::collection::vec(any::<u8>(), 40..=52),
        input in prop::collection::vec(any::<u8>(), 0..=36),
    ) {
        let table = Toeplitz::from_slice(&key).unwrap();
        prop_assert_eq!(table.hash(&input), toeplitz(&key, &input));
        prop_assert!(table.hash(&input).is_some());
    }

    #[test]
    fn the_symmetric_key_hashes_both_ways_alike(src: [u8; 16], dst: [u8; 16], a: u16, b: u16) {
        let rss = Toeplitz::new(&TOEPLITZ_KEY_SYMMETRIC);
        let there = key_of(LinkType::RawIp, &ipv6_packet(PROTOCOL_TCP, (src, a), (dst, b)));
        let (hash, hash_type) = rss.hash_flow(&there);
        prop_assert_eq!(rss.hash_flow(&there.reversed()), (hash, hash_type));
        prop_assert_eq!(hash >> 16, hash & 0xffff);
    }

    #[test]
    fn reversed_is_the_key_of_the_way_back(
        src: [u8; 16],
        dst: [u8; 16],
        a: u16,
        b: u16,
        seed: u64,
        protocol in prop::sample::select(vec![PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_OTHER]),
    ) {
        let short = |address: [u8; 16]| <[u8; 4]>::try_from(&address[12..]).unwrap();
        let pairs = [
            (
                ipv6_packet(protocol, (src, a), (dst, b)),
                ipv6_packet(protocol, (dst, b), (src, a)),
            ),
            (
                ipv4_packet(protocol, (short(src), a), (short(dst), b)),
                ipv4_packet(protocol, (short(dst), b), (short(src), a)),
            ),
        ];
        for (there, back) in pairs {
            let there = key_of(LinkType::RawIp, &there);
            let back = key_of(LinkType::RawIp, &back);
            prop_assert_eq!(there.reversed(), back);
            prop_assert_eq!(back.reversed(), there);
        }
    }

    /// Also with layouts that do not fit the bytes.
    #[test]
    fn no_bytes_and_no_layout_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        network: u16,
        transport: u16,
        vlans: u8,
        cut in 0_usize..120,
    ) {
        for link in [LinkType::Ethernet, LinkType::RawIp] {
            let Ok(layout) = Layout::parse(link, &bytes, bytes.len() as u32) else {
                continue;
            };
            let whole = FlowKey::new(&layout, &bytes, 7);
            prop_assert!(whole.is_some());
            let part = FlowKey::new(&layout, &bytes[..cut.min(bytes.len())], 7);
            prop_assert!(part.is_none() || part == whole);
            if cut >= usize::from(layout.payload) {
                prop_assert_eq!(part, whole);
            }
            for kind in [Network::Ipv4, Network::Ipv6, Network::Other] {
                let transport_kind = Transport::Tcp;
                let made = Layout { network, transport, vlans, kind, transport_kind, ..layout };
                if let Some(key) = FlowKey::new(&made, &bytes, 7) {
                    prop_assert_eq!(key.reversed().reversed(), key);
                }
            }
        }
    }
}

#[test]
fn toeplitz_takes_keys_from_40_bytes_and_inputs_to_36() {
    let table = Toeplitz::from_slice(&[7; 52]).unwrap();
    assert_eq!(table.hash(&[1; 36]), toeplitz(&[7; 52], &[1; 36]));
    assert_eq!(table.hash(&[1; 37]), None);
    assert!(toeplitz(&[7; 52], &[1; 37]).is_some());
    assert_eq!(toeplitz(&[7; 52], &[1; 49]), None);
    assert_eq!(toeplitz(&[7; 3], &[]), None);
    let error = Toeplitz::from_slice(&[7; 39]).unwrap_err();
    assert_eq!(error, ToeplitzKeyTooShort { bytes: 39 });
    assert_eq!(Toeplitz::new(&TOEPLITZ_KEY_MICROSOFT).hash(&[]), Some(0));
}

#[test]
fn what_a_flow_is_does_not_depend_on_what_varies_within_it() {
    let base = Spec::tcp4(100);
    let mut other = Spec::tcp4(7);
    other.id = 999;
    other.sequence = 0x1234_5678;
    other.flags = 0x11;
    other.tcp_options = vec![1; 12];
    other.ip_options = vec![1; 4];
    let key = |spec: &Spec| key_of(spec.link, &spec.build(Field::Final));
    assert_eq!(key(&base), key(&other));
    // The priority and the drop bit of a tag.
    let of_tag = |tci| key_of(LinkType::Ethernet, &tagged(&[tci]));
    assert_eq!(of_tag(0x0123), of_tag(0xf123));
    // Extension headers.
    let mut extended = Spec::tcp6(40);
    extended.exts = vec![Ext::HopByHop, Ext::Destination(2)];
    assert_eq!(key(&Spec::tcp6(3)), key(&extended));
}

#[test]
fn whatever_tells_flows_apart_is_in_the_key_and_in_the_hash() {
    let base = || Spec::tcp4(20).ethernet();
    let build = |spec: &Spec| spec.build(Field::Final);
    let mut packets = vec![build(&base()), build(&Spec::udp4(20).ethernet())];
    packets.push(build(&Spec::tcp6(20).ethernet()));
    packets.push(build(&Spec::udp6(20).ethernet()));
    for tags in [&[0][..], &[5], &[6], &[5, 6], &[6, 5], &[0, 5], &[5, 0]] {
        packets.push(tagged(tags));
    }
    // Every address and port byte.
    for at in 26..38 {
        let mut packet = build(&base());
        packet[at] ^= 0x40;
        packets.push(packet);
    }
    for at in 22..58 {
        let mut packet = build(&Spec::udp6(20).ethernet());
        packet[at] ^= 0x40;
        packets.push(packet);
    }
    let mut keys: Vec<FlowKey> = packets
        .iter()
        .map(|packet| key_of(LinkType::Ethernet, packet))
        .collect();
    let layout = Layout::parse(LinkType::Ethernet, &packets[0], packets[0].len() as u32).unwrap();
    keys.push(FlowKey::new(&layout, &packets[0], 1).unwrap());
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
    let hashes: HashSet<u64> = keys.iter().map(|key| key.hash(1)).collect();
    assert_eq!(hashes.len(), keys.len());
}

#[test]
fn all_fragments_of_a_datagram_have_one_key_and_no_ports() {
    let mut first = ipv4_packet(PROTOCOL_UDP, ([198, 18, 0, 1], 53), ([198, 18, 0, 2], 4000));
    let mut last = ipv4_packet(PROTOCOL_UDP, ([198, 18, 0, 1], 9), ([198, 18, 0, 2], 99));
    let whole = key_of(LinkType::RawIp, &first);
    first[6] = 0x20;
    (last[6], last[7]) = (0, 100);
    let (first, last) = (
        key_of(LinkType::RawIp, &first),
        key_of(LinkType::RawIp, &last),
    );
    assert_eq!(first, last);
    assert_ne!(first, whole);
    assert_eq!(first.rss_input().hash_type(), HashType::Ipv4);

    // IPv6: the next header fields of the fragment headers may differ (RFC 8200 §4.5).
    let mut packet = ipv6_packet(44, ([0xfd; 16], 0), ([0xfc; 16], 0));
    packet[40..48].copy_from_slice(&[PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 7]);
    let first = key_of(LinkType::RawIp, &packet);
    packet[40..44].copy_from_slice(&[60, 0, 0x10, 0]);
    assert_eq!(first, key_of(LinkType::RawIp, &packet));
    assert_eq!(first.rss_input().hash_type(), HashType::Ipv6);
}

#[test]
fn frames_that_are_not_ip_are_keyed_by_their_ethernet_addresses() {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0xcc, 1, 2, 3];
    let key = key_of(LinkType::Ethernet, &frame);
    assert_eq!(key.rss_input(), RssInput::none());
    let rss = Toeplitz::new(&TOEPLITZ_KEY_MICROSOFT);
    assert_eq!(rss.hash_flow(&key), (0, HashType::None));
    frame[14] = 77;
    assert_eq!(key_of(LinkType::Ethernet, &frame), key);
    let (to, from) = frame.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    assert_eq!(key_of(LinkType::Ethernet, &frame), key.reversed());
    frame[0] ^= 1;
    assert_ne!(key_of(LinkType::Ethernet, &frame), key.reversed());
}

/// One changed bit of a key changes each bit of the hash in a quarter to three quarters of cases.
#[test]
fn every_bit_of_a_key_changes_every_bit_of_the_hash() {
    const KEYS: u64 = 400;
    for bit in 0..FLOW_KEY_WORDS * 64 {
        let mut flips = [0_u32; 64];
        for n in 0..KEYS {
            // Similar to each other, as the keys of real flows are.
            let mut words = [0xc612_0001_c612_0002 + n, 0x1000_0050_0406_0000, 0, 0, 0, 0];
            let key = FlowKey { words };
            words[bit / 64] ^= 1 << (bit % 64);
            let changed = key.hash(11) ^ FlowKey { words }.hash(11);
            for (place, flips) in flips.iter_mut().enumerate() {
                *flips += (changed >> place & 1) as u32;
            }
        }
        let bounds = KEYS as u32 / 4..=KEYS as u32 * 3 / 4;
        let all = flips.iter().all(|flips| bounds.contains(flips));
        assert!(all, "bit {bit}: {flips:?}");
    }
}

/// Chi-squared over buckets taken from the low and from the high bits.
#[test]
fn flows_that_are_much_alike_spread_over_buckets_as_by_chance() {
    const FLOWS: u32 = 1 << 15;
    const BUCKETS: usize = 1 << 10;
    type Make = fn(u32) -> [u64; FLOW_KEY_WORDS];
    let families: [Make; 6] = [
        |n| {
            [
                0xc612_0001_c612_0002,
                u64::from(n) << 48 | 0x0050_0406_0000,
                0,
                0,
                0,
                0,
            ]
        },
        |n| {
            [
                0xc612_0001_c612_0002,
                u64::from(n) << 32 | 0x0406_0000,
                0,
                0,
                0,
                0,
            ]
        },
        |n| {
            [
                0xc612_0001_c612_0000 + u64::from(n),
                0x0400_0000,
                0,
                0,
                0,
                0,
            ]
        },
        |n| {
            [
                0xc612_0000_c612_0001 + (u64::from(n) << 32),
                0x0400_0000,
                0,
                0,
                0,
                0,
            ]
        },
        |n| {
            [
                0xfd00 << 48,
                0x1234_0050_0606_0000,
                0,
                n.into(),
                0xfd00 << 48,
                1,
            ]
        },
        |n| [5, 0x0400_0000, n.into(), 0, 0, 0],
    ];
    for (family, make) in families.iter().enumerate() {
        for seed in [0, 1, u64::MAX] {
            for shift in [0, 64 - BUCKETS.trailing_zeros()] {
                let mut counts = [0_u32; BUCKETS];
                for n in 0..FLOWS {
                    let hash = FlowKey { words: make(n) }.hash(seed) >> shift;
                    counts[hash as usize % BUCKETS] += 1;
                }
                let mean = FLOWS / BUCKETS as u32;
                let squares: u32 = counts.iter().map(|count| count.abs_diff(mean).pow(2)).sum();
                // 1023 degrees of freedom: six standard deviations of 45 around 1023.
                let chi = squares / mean;
                assert!(
                    (750..=1300).contains(&chi),
                    "{family}, seed {seed}, {shift}: {chi}"
                );
            }
        }
    }
}

/// The same on every machine and in every release: a plan or a test may depend on it.
#[test]
fn the_hash_depends_on_key_and_seed_alone() {
    let key = key_of(
        LinkType::RawIp,
        &ipv4_packet(PROTOCOL_TCP, ([198, 18, 0, 1], 1000), ([198, 18, 0, 2], 80)),
    );
    assert_eq!(
        key.words(),
        &[0xc612_0001_c612_0002, 0x03e8_0050_0406_0000, 0, 0, 0, 0]
    );
    assert_eq!(key.hash(0), 0x8f9e_e87d_14c3_aaaa);
    assert_eq!(key.hash(1), 0x74af_fb84_26e3_d10a);
}
