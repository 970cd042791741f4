//! Tests of fragmentation: the known cases, then random packets that an independent reassembly puts
//! together again.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as any_vec;
use proptest::prelude::*;

use super::*;
use crate::offload::LinkType;
use crate::test_packets::{Ext, Field, Spec, bytes, slow_sum};

const DF: u8 = 0x40;
const MF: u16 = 0x2000;

/// UDP over IPv4 on a raw IP link that may be fragmented, this many payload bytes.
fn udp(payload: usize) -> Spec {
    Spec {
        df: false,
        ..Spec::udp4(payload)
    }
}

fn fragmenter(spec: &Spec, packet: &[u8], mtu: u32) -> Result<Fragmenter, FragmentError> {
    let bytes = packet.len() as u32;
    let layout = Layout::parse(spec.link, packet, bytes).unwrap();
    Fragmenter::new(packet, &layout, mtu, ChecksumState::None, bytes)
}

fn all(fragmenter: &Fragmenter, packet: &[u8]) -> Vec<Vec<u8>> {
    (0..fragmenter.fragments())
        .map(|index| {
            let mut fragment = vec![0xa5; fragmenter.wire_bytes(index) + 2];
            let bytes = fragmenter
                .write_fragment(index, packet, &mut fragment)
                .unwrap();
            assert_eq!(fragment[bytes..], [0xa5; 2], "nothing behind it");
            fragment.truncate(bytes);
            let mut header = vec![0; fragmenter.header_bytes(index)];
            let written = fragmenter.write_header(index, packet, &mut header);
            assert_eq!(written, Ok(header.len()));
            assert_eq!(header, fragment[..header.len()]);
            fragment
        })
        .collect()
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Puts raw IP fragments together, after checking each.
fn reassemble(fragments: &[Vec<u8>], mtu: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let header = usize::from(fragment[0] & 15) * 4;
        assert!(fragment.len() <= mtu, "fragment {i} fits");
        assert_eq!(usize::from(word(fragment, 2)), fragment.len());
        assert_eq!(slow_sum(&fragment[..header]), 0xffff, "header checksum {i}");
        assert_eq!(fragment[4..6], fragments[0][4..6], "one identification");
        assert_eq!(
            (fragment[1], fragment[8], fragment[9]),
            (2, 64, fragments[0][9])
        );
        let offset = usize::from(word(fragment, 6) & 0x1fff) * 8;
        assert_eq!(offset, payload.len(), "no gap and no overlap");
        let last = i + 1 == fragments.len();
        assert_eq!(word(fragment, 6) & MF != 0, !last);
        assert!(last || (fragment.len() - header).is_multiple_of(8));
        // Filled to the last multiple of 8.
        assert!(last || fragment.len() + 8 > mtu);
        payload.extend_from_slice(&fragment[header..]);
    }
    payload
}

#[test]
fn a_datagram_of_3000_bytes_in_1500() {
    let packet = udp(2992).build(Field::Final);
    let fragments = all(&fragmenter(&udp(2992), &packet, 1500).unwrap(), &packet);
    assert_eq!(
        fragments.iter().map(Vec::len).collect::<Vec<_>>(),
        [1500, 1500, 60]
    );
    assert_eq!(
        fragments.iter().map(|f| word(f, 6)).collect::<Vec<_>>(),
        [MF, MF | 185, 370]
    );
    assert_eq!(reassemble(&fragments, 1500), packet[20..]);
}

#[test]
fn pieces_are_multiples_of_8() {
    let packet = udp(100).build(Field::Final);
    let made = fragmenter(&udp(100), &packet, 75).unwrap();
    // 55 bytes of room take 48.
    let payloads: Vec<_> = (0..made.fragments()).map(|i| made.payload(i)).collect();
    assert_eq!(payloads, [20..68, 68..116, 116..128]);
    assert_eq!(made.payload(3), 128..128);
    assert_eq!(made.payload(u32::MAX), 128..128);
}

#[test]
fn what_fits_is_left_as_it_is() {
    for (spec, field) in [
        (udp(1472), Field::Final),
        (Spec::udp4(1472), Field::Preload),
        (Spec::tcp4(1460).ethernet(), Field::Preload),
    ] {
        let mut packet = spec.build(field);
        let at = spec.network() + 10;
        packet[at] ^= 1;
        packet.extend(vec![0; 4]);
        let bytes = packet.len() as u32;
        let layout = Layout::parse(spec.link, &packet, bytes).unwrap();
        let partial = ChecksumState::Partial {
            start: spec.transport() as u16,
            offset: spec.checksum_offset(),
        };
        let made = Fragmenter::new(&packet, &layout, 1500, partial, bytes).unwrap();
        assert_eq!(all(&made, &packet), [&packet[..packet.len() - 4]]);
        assert!(Fragmenter::new(&packet, &layout, u32::MAX, partial, bytes).is_ok());
    }
}

#[test]
fn df_is_obeyed() {
    let spec = Spec::udp4(1473);
    let packet = spec.build(Field::Final);
    assert_eq!(packet[6] & DF, DF);
    assert_eq!(
        fragmenter(&spec, &packet, 1500),
        Err(FragmentError::DontFragment)
    );
    assert_eq!(fragmenter(&spec, &packet, 1501).unwrap().fragments(), 1);
}

#[test]
fn ipv6_is_its_senders_to_fragment() {
    let spec = Spec::udp6(3000);
    let packet = spec.build(Field::Final);
    assert_eq!(fragmenter(&spec, &packet, 1500), Err(FragmentError::Ipv6));
    let mut packet = udp(3000).ethernet().build(Field::Final);
    packet[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert_eq!(
        fragmenter(&udp(3000).ethernet(), &packet, 1500),
        Err(FragmentError::NotIp)
    );
}

#[test]
fn an_unfinished_checksum_covers_bytes_of_other_fragments() {
    let spec = udp(3000);
    let packet = spec.build(Field::Preload);
    let bytes = packet.len() as u32;
    let layout = Layout::parse(spec.link, &packet, bytes).unwrap();
    let partial = ChecksumState::Partial {
        start: 20,
        offset: 6,
    };
    let made = |state| Fragmenter::new(&packet, &layout, 1500, state, bytes).map(drop);
    assert_eq!(made(partial), Err(FragmentError::Checksum));
    assert_eq!(made(ChecksumState::Unnecessary), Ok(()));
}

#[test]
fn no_mtu_is_below_68() {
    let spec = udp(3000);
    let packet = spec.build(Field::Final);
    for mtu in [0, 1, 20, 28, 67] {
        assert_eq!(fragmenter(&spec, &packet, mtu), Err(FragmentError::Mtu));
    }
    let fragments = all(&fragmenter(&spec, &packet, 68).unwrap(), &packet);
    assert_eq!(fragments.len(), 3008_usize.div_ceil(48));
    assert_eq!(reassemble(&fragments, 68), packet[20..]);
}

/// RFC 791 §3.1: security (130, copied), record route (7, first only), stream identifier (136,
/// copied), timestamp (68, first only).
#[test]
fn only_options_with_the_copied_flag_are_on_every_fragment() {
    let security = [130, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let route = [7, 7, 4, 0, 0, 0, 0];
    let stream = [136, 4, 0x12, 0x34];
    let mut options = [&route[..], &[1], &security[..], &stream[..], &[68, 8, 5, 0]].concat();
    options.extend([0, 0, 0, 0, 0]);
    assert_eq!(options.len(), 32);
    let spec = Spec {
        ip_options: options.clone(),
        ..udp(3000)
    };
    let packet = spec.build(Field::Final);
    let fragments = all(&fragmenter(&spec, &packet, 1500).unwrap(), &packet);
    assert_eq!(fragments[0][20..52], options);
    let copied = [&security[..], &stream[..], &[0]].concat();
    for fragment in &fragments[1..] {
        assert_eq!(fragment[0], 0x40 | 9);
        assert_eq!(fragment[20..36], copied);
    }
    // Shorter headers leave room for more payload.
    assert_eq!(
        fragments.iter().map(Vec::len).collect::<Vec<_>>(),
        [52 + 1448, 36 + 1464, 36 + 96]
    );
    assert_eq!(reassemble(&fragments, 1500), packet[52..]);
}

#[test]
fn malformed_options_are_refused_unless_the_packet_fits() {
    for options in [[130, 1, 0, 0], [130, 9, 0, 0], [7, 0, 0, 0], [1, 1, 1, 7]] {
        let spec = Spec {
            ip_options: options.to_vec(),
            ..udp(1500)
        };
        let packet = spec.build(Field::Final);
        assert_eq!(
            fragmenter(&spec, &packet, 1500),
            Err(FragmentError::Options)
        );
        assert_eq!(fragmenter(&spec, &packet, 2000).unwrap().fragments(), 1);
    }
}

#[test]
fn fragments_of_a_fragment_reassemble_to_the_whole() {
    let packet = udp(2992).build(Field::Final);
    let first = all(&fragmenter(&udp(2992), &packet, 1500).unwrap(), &packet);
    let again: Vec<_> = first
        .iter()
        .flat_map(|fragment| {
            let made = fragmenter(&udp(0), fragment, 576).unwrap();
            all(&made, fragment)
        })
        .collect();
    assert_eq!(again.len(), 7);
    let mut payload = Vec::new();
    for (i, fragment) in again.iter().enumerate() {
        assert_eq!(usize::from(word(fragment, 6) & 0x1fff) * 8, payload.len());
        assert_eq!(word(fragment, 6) & MF != 0, i != 6);
        assert_eq!(slow_sum(&fragment[..20]), 0xffff);
        payload.extend_from_slice(&fragment[20..]);
    }
    assert_eq!(payload, packet[20..]);
}

#[test]
fn a_fragment_that_reaches_beyond_64_kib_is_refused() {
    let spec = udp(2992);
    let mut packet = spec.build(Field::Final);
    // Offset in units of 8: the payload of 3000 bytes may end at 65515.
    let most = (65_515_u16 - 3000) / 8;
    let beyond = most + 1;
    packet[6..8].copy_from_slice(&most.to_be_bytes());
    let fragments = all(&fragmenter(&spec, &packet, 1500).unwrap(), &packet);
    assert_eq!(word(&fragments[2], 6), most + 370);
    packet[6..8].copy_from_slice(&beyond.to_be_bytes());
    assert_eq!(fragmenter(&spec, &packet, 1500), Err(FragmentError::Length));
    // To the last byte that an IPv4 datagram can have.
    let spec = udp(2995);
    let mut packet = spec.build(Field::Final);
    packet[6..8].copy_from_slice(&((65_515_u16 - 3003) / 8).to_be_bytes());
    assert!(fragmenter(&spec, &packet, 1500).is_ok());
}

#[test]
fn a_middle_fragment_of_no_multiple_of_8_is_refused() {
    for payload in [2993, 2996] {
        let spec = udp(payload);
        let mut packet = spec.build(Field::Final);
        packet[6] = 0x20;
        assert_eq!(fragmenter(&spec, &packet, 1500), Err(FragmentError::Length));
        packet[6] = 0;
        assert!(fragmenter(&spec, &packet, 1500).is_ok());
    }
}

#[test]
fn lying_lengths_and_short_buffers_are_refused() {
    let spec = udp(3000);
    let packet = spec.build(Field::Final);
    let bytes = packet.len() as u32;
    let layout = Layout::parse(spec.link, &packet, bytes).unwrap();
    let made = |packet: &[u8], layout: &Layout, bytes| {
        Fragmenter::new(packet, layout, 1500, ChecksumState::None, bytes).map(|f| f.fragments())
    };
    assert_eq!(made(&packet, &layout, bytes), Ok(3));
    assert_eq!(
        made(&packet, &layout, bytes - 1),
        Err(FragmentError::Length)
    );
    assert_eq!(
        made(&packet[..19], &layout, bytes),
        Err(FragmentError::Headers)
    );
    let longer = Layout {
        transport: 24,
        ..layout
    };
    assert_eq!(made(&packet, &longer, bytes), Err(FragmentError::Headers));
    let fragmenter = fragmenter(&spec, &packet, 1500).unwrap();
    let mut out = [0xa5; 1500];
    let write =
        |index, packet: &[u8], out: &mut [u8]| fragmenter.write_fragment(index, packet, out);
    assert_eq!(write(3, &packet, &mut out), Err(FragmentError::Index));
    assert_eq!(
        write(1, &packet[..2979], &mut out),
        Err(FragmentError::Buffer)
    );
    assert_eq!(
        write(1, &packet, &mut out[..1499]),
        Err(FragmentError::Buffer)
    );
    assert_eq!(
        fragmenter.write_header(3, &packet, &mut out),
        Err(FragmentError::Index)
    );
    assert_eq!(
        fragmenter.write_header(0, &packet, &mut out[..19]),
        Err(FragmentError::Buffer)
    );
    assert_eq!(out, [0xa5; 1500]);
}

/// A middle fragment of the longest options in the smallest MTU: the most fragments possible.
#[test]
fn the_bound_on_fragments_holds() {
    let spec = Spec {
        ip_options: vec![130, 40].into_iter().chain(bytes(38)).collect(),
        ..udp(65_535 - 60 - 8)
    };
    let packet = spec.build(Field::Final);
    assert_eq!(fragmenter(&spec, &packet, 68).unwrap().fragments(), 8185);
    assert_eq!(fragmenter(&spec, &packet, 1500).unwrap().fragments(), 46);
}

#[test]
fn reasons_are_distinct_words() {
    let mut reasons: Vec<_> = FragmentError::ALL.iter().map(|e| e.reason()).collect();
    for (error, reason) in FragmentError::ALL.iter().zip(&reasons) {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        assert!(reason.bytes().all(plain), "{reason}");
        assert!(error.to_string().ends_with(reason));
    }
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), FragmentError::ALL.len());
}

#[test]
fn etherparse_reads_every_fragment() {
    use etherparse::{Ipv4HeaderSlice, NetSlice, SlicedPacket};
    let packet = udp(5000).build(Field::Final);
    let fragments = all(&fragmenter(&udp(5000), &packet, 1280).unwrap(), &packet);
    let mut payload = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let ip = Ipv4HeaderSlice::from_slice(fragment).unwrap();
        assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
        assert!(ip.is_fragmenting_payload());
        assert_eq!(ip.more_fragments(), i + 1 != fragments.len());
        assert_eq!(
            usize::from(ip.fragments_offset().byte_offset()),
            payload.len()
        );
        let sliced = SlicedPacket::from_ip(fragment).unwrap();
        let Some(NetSlice::Ipv4(net)) = sliced.net else {
            panic!("IPv4");
        };
        payload.extend_from_slice(net.payload().payload);
    }
    let udp = etherparse::UdpSlice::from_slice(&payload).unwrap();
    assert_eq!(udp.payload(), &packet[28..]);
}

mod ids {
    use std::collections::BTreeSet;

    use super::*;

    const FROM: [u8; 4] = [198, 18, 0, 1];
    const TO: [u8; 4] = [198, 18, 0, 2];

    #[test]
    fn none_repeats_within_65536() {
        let mut counters = [0; 8];
        let mut ids = IdSource::new(&mut counters, 7).unwrap();
        let seen: BTreeSet<_> = (0..65_536).map(|_| ids.take(FROM, TO, 17, 1)).collect();
        assert_eq!(seen.len(), 65_536);
    }

    #[test]
    fn the_ids_of_consecutive_gso_packets_do_not_overlap() {
        let mut counters = [0; 8];
        let mut ids = IdSource::new(&mut counters, 7).unwrap();
        let mut seen = BTreeSet::new();
        for count in [1, 64, 3, 45, 2, 64] {
            let first = ids.take(FROM, TO, 17, count);
            for i in 0..count {
                assert!(seen.insert(first.wrapping_add(i)));
            }
        }
        assert_eq!(seen.len(), 179);
    }

    /// With one counter, too, packets of another flow only make it count faster.
    #[test]
    fn other_flows_cause_no_repetition() {
        for counters in [1, 2, 16] {
            let mut counters = vec![0xff00; counters];
            let mut ids = IdSource::new(&mut counters, 99).unwrap();
            let mut seen = BTreeSet::new();
            for i in 0..1000_u16 {
                assert!(seen.insert(ids.take(FROM, TO, 17, 2)));
                ids.take(TO, FROM, 17, i % 5);
                ids.take(FROM, TO, 6, 3);
            }
        }
    }

    #[test]
    fn flows_have_starts_of_their_own_and_seeds_move_them() {
        let start = |seed, protocol| {
            let mut counters = [0; 4];
            IdSource::new(&mut counters, seed)
                .unwrap()
                .take(FROM, TO, protocol, 1)
        };
        assert_eq!(start(1, 17), start(1, 17));
        let all: BTreeSet<_> = [(1, 17), (1, 6), (2, 17), (2, 6)]
            .map(|(seed, protocol)| start(seed, protocol))
            .into();
        assert_eq!(all.len(), 4);
        assert!(IdSource::new(&mut [], 1).is_none());
    }
}

prop_compose! {
    fn any_spec()(
        link in prop_oneof![Just(LinkType::Ethernet), Just(LinkType::RawIp), Just(LinkType::Ipoib)],
        tcp in any::<bool>(),
        vlans in any_vec(prop_oneof![Just(0x8100_u16), Just(0x88a8)], 0..=2),
        id in any::<u16>(),
        options in any_vec((any::<u8>(), 0_usize..12), 0..4),
        payload in any_vec(any::<u8>(), 0..9000),
    ) -> Spec {
        let mut ip_options = Vec::new();
        for (kind, data) in options {
            // 0 ends the list, and source routes have contents with a meaning.
            let kind = if matches!(kind, 0 | 131 | 137) { 130 } else { kind };
            if kind == 1 {
                ip_options.push(1);
            } else if ip_options.len() + 2 + data <= 40 {
                ip_options.extend([kind, 2 + data as u8]);
                ip_options.extend(bytes(data));
            }
        }
        ip_options.resize(ip_options.len().next_multiple_of(4), 0);
        Spec {
            link,
            vlans,
            id,
            df: false,
            ip_options,
            payload,
            tcp,
            exts: Vec::<Ext>::new(),
            ..Spec::udp4(0)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_packets_reassemble(spec in any_spec(), mtu in 68_u32..9100) {
        let packet = spec.build(Field::Final);
        let made = fragmenter(&spec, &packet, mtu).unwrap();
        let fragments = all(&made, &packet);
        let link = spec.network();
        prop_assert!(fragments.iter().all(|f| f[..link] == packet[..link]));
        let fits = packet.len() - link <= mtu as usize;
        prop_assert_eq!(fits, fragments.len() == 1);
        let raw: Vec<_> = fragments.iter().map(|f| f[link..].to_vec()).collect();
        let whole = reassemble(&raw, mtu as usize);
        prop_assert_eq!(&whole[..], &packet[spec.transport()..]);
        for fragment in &raw[1..] {
            let header = usize::from(fragment[0] & 15) * 4;
            let expected: Vec<_> = copied(&spec.ip_options);
            prop_assert_eq!(&fragment[20..header], &expected[..]);
        }
    }

    #[test]
    fn no_bytes_panic(
        spec in any_spec(),
        flips in any_vec((0_usize..80, any::<u8>()), 0..8),
        mtu in any::<u32>(),
        small in 60_u32..600,
        cut_at in 0_usize..100,
    ) {
        let good = spec.build(Field::Final);
        let mut packet = good.clone();
        for (at, value) in flips {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let whole = packet.len() as u32;
        packet.truncate(cut_at.max(60));
        for headers in [&packet, &good] {
            let Ok(layout) = Layout::parse(spec.link, headers, whole) else { continue };
            for mtu in [mtu, small] {
                for given in [&packet, &good] {
                    let state = ChecksumState::None;
                    let Ok(made) = Fragmenter::new(given, &layout, mtu, state, whole) else {
                        continue;
                    };
                    let mut out = vec![0; 200];
                    for index in [0, 1, made.fragments() - 1, made.fragments()] {
                        for bytes in [&packet, &good] {
                            if made.write_header(index, bytes, &mut out).is_ok() {
                                prop_assert!(index < made.fragments());
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The options with the copied flag, the slow way.
fn copied(options: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        let len = if options[at] == 1 {
            1
        } else {
            usize::from(options[at + 1])
        };
        if options[at] >= 128 {
            out.extend_from_slice(&options[at..at + len]);
        }
        at += len;
    }
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
    out
}
