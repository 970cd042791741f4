//! Packets longer than an MTU, merged or not: segmented, fragmented, or counted.

use super::*;

/// A packet as a host captures it before its NIC: long, with a partial checksum.
fn unfinished(payload: usize) -> Vec<u8> {
    let mut data = tcp(1, 1, 9, 8, &vec![0x77; payload]);
    unfinish_transport(&mut data);
    data
}

#[test]
fn a_packet_before_its_offloads_is_segmented_and_its_checksum_completed() {
    let packets = [Captured::new(5, 0, unfinished(7000))];
    let input = file(NANO, &packets);
    let (output, report) = replayed(&input, Options::default());
    assert_eq!(parsed(&output), packets, "it is passed through");
    assert_eq!(report.interfaces[0].unfinished, 1);
    let options = Options {
        segment: Segment::Mtu(1500),
        ..Options::default()
    };
    let (output, report) = replayed(&input, options);
    let out = parsed(&output);
    let payloads: Vec<_> = out
        .iter()
        .map(|packet| checked_payload(&packet.data))
        .collect();
    assert_eq!(payloads.concat(), vec![0x77; 7000]);
    assert_eq!(payloads[0].len(), 1460);
    assert!(out.iter().all(|packet| packet.at == 5));
    assert_eq!((report.transmitted, report.expanded), (5, 4));
}

#[test]
fn an_mtu_splits_merged_and_correct_packets_only() {
    let mut packets = train(1, 9, 1_000, 10, 0);
    packets.push(Captured::new(2_000, 0, tcp(2, 1, 1, 0, &[1; 3000])));
    let mut wrong = Captured::new(2_001, 0, tcp(4, 1, 1, 0, &[2; 3000]));
    wrong.data[2000] ^= 4;
    packets.push(wrong.clone());
    packets.push(Captured::new(2_002, 0, udp(1, &[3; 3000])));
    let options = Options {
        segment: Segment::Mtu(1500),
        ..Options::default()
    };
    let (output, report) = replayed(&file(NANO, &packets), options);
    let out = parsed(&output);
    assert_eq!(report.interfaces[0].not_cut, 2, "{report:?}");
    assert!(out.contains(&wrong));
    let merged: Vec<_> = out.iter().filter(|packet| packet.at == 1_000).collect();
    let sizes: Vec<_> = merged
        .iter()
        .map(|packet| checked_payload(&packet.data).len())
        .collect();
    assert_eq!(sizes, [1460, 1460, 1460, 1460, 1460, 1460, 240]);
    assert_eq!(report.absorbed, 2, "nine packets became seven");
    assert_eq!(report.expanded, 2, "one became three");
}

/// Replays `packets` with an MTU.
fn cut(packets: &[Captured], mtu: u32, semantics: Semantics) -> (Vec<Captured>, Report) {
    let options = Options {
        coalesce: Some(semantics),
        segment: Segment::Mtu(mtu),
        ..Options::default()
    };
    let (output, report) = replayed(&file(NANO, packets), options);
    (parsed(&output), report)
}

/// Also into more segments than with an MSS of 48.
#[test]
fn the_least_mtus_split_all_and_below_them_packets_stay_merged_and_counted() {
    let packets = train(1, 60, 1_000, 10, 0);
    for mtu in [68, 80, 84] {
        let (out, report) = cut(&packets, mtu, Semantics::Reversible);
        let bytes: usize = out.iter().map(|p| checked_payload(&p.data).len()).sum();
        assert_eq!(bytes, 60_000, "MTU {mtu}");
        let segments = 60_000_u32.div_ceil(mtu - 40) as usize;
        assert_eq!((out.len(), report.interfaces[0].not_cut), (segments, 0));
        assert_eq!(report.absorbed, 0, "MTU {mtu}");
    }
    // Flow 0 is IPv6, and its payload would be below the least segment.
    let (out, report) = cut(&train(0, 4, 1_000, 10, 0), 67, Semantics::Reversible);
    assert_eq!(checked_payload(&out[0].data).len(), 4000);
    assert_eq!((out.len(), report.interfaces[0].not_cut), (1, 1));
}

#[test]
fn merged_datagrams_that_are_too_long_are_counted_one_by_one() {
    let packets: Vec<_> = [1400, 1400, 1400, 100]
        .iter()
        .zip(1_000..)
        .map(|(&bytes, at)| Captured::new(at, 0, udp(1, &vec![7; bytes])))
        .collect();
    let (out, report) = cut(&packets, 576, Semantics::Reversible);
    let same = out
        .iter()
        .zip(&packets)
        .all(|(out, packet)| out.data == packet.data);
    assert!(same && out.len() == 4);
    assert_eq!(report.interfaces[0].not_cut, 3);
}

/// Merged with an ACK before it, the packet has no segment size, but is longer than the MTU.
#[test]
fn data_after_an_ack_is_segmented_to_the_mtu() {
    let packets = [
        Captured::new(1_000, 0, tcp(1, 1, 1, 0, &[])),
        Captured::new(1_001, 0, tcp(1, 1, 2, 0, &[9; 1400])),
    ];
    let (out, report) = cut(&packets, 576, Semantics::Stream);
    let sizes: Vec<_> = out.iter().map(|p| checked_payload(&p.data).len()).collect();
    assert_eq!(sizes, [536, 536, 328]);
    assert_eq!(report.interfaces[0].not_cut, 0);
}

/// A UDP datagram over IPv4.
fn udp4(id: u16, df: bool, payload: &[u8]) -> Vec<u8> {
    let ip = etherparse::Ipv4Header {
        identification: id,
        dont_fragment: df,
        time_to_live: 64,
        protocol: etherparse::IpNumber::UDP,
        source: [198, 18, 0, 1],
        destination: [198, 18, 0, 2],
        ..Default::default()
    };
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        .udp(7000, 53)
        .write(&mut bytes, payload)
        .expect("a packet");
    bytes
}

/// Reassembly as in a receiver: by source, destination, protocol and identification. Returns the IP
/// payloads in the order of their completion.
fn reassembled(packets: &[Captured]) -> Vec<Vec<u8>> {
    let mut pools = etherparse::defrag::IpDefragPool::<(), ()>::new();
    let mut whole = Vec::new();
    for packet in packets {
        let sliced = SlicedPacket::from_ethernet(&packet.data).expect("a packet");
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else {
            panic!("not IPv4")
        };
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        if !header.is_fragmenting_payload() {
            whole.push(ip.payload().payload.to_vec());
        } else if let Some(done) = pools.process_sliced_packet(&sliced, (), ()).expect("room") {
            whole.push(done.payload);
        }
    }
    whole
}

/// Single and merged datagrams, some with partial checksums: their fragments can be reassembled,
/// with one identification for each datagram. With DF each stays whole, and is counted.
#[test]
fn datagrams_are_fragmented_and_can_be_reassembled() {
    for mtu in [68, 576, 1000] {
        for (df, gap) in [(false, 1), (false, 1_000_000), (true, 1), (true, 1_000_000)] {
            let mut packets: Vec<_> = (0..6_u16)
                .map(|n| {
                    let payload: Vec<u8> = (0..1400).map(|at| (at * 7 + n) as u8).collect();
                    let at = 1_000 + u64::from(n) * gap;
                    Captured::new(at, 0, udp4(500 + n, df, &payload))
                })
                .collect();
            let datagrams: Vec<_> = packets.iter().map(|p| p.data[34..].to_vec()).collect();
            for packet in packets.iter_mut().step_by(2) {
                unfinish_transport(&mut packet.data);
            }
            let (out, report) = cut(&packets, mtu, Semantics::Reversible);
            let seen = &report.interfaces[0];
            assert_eq!(seen.stats.supers, u64::from(gap == 1));
            if df {
                assert_eq!((out.len() as u64, seen.not_cut), (6, 6));
                continue;
            }
            assert_eq!(seen.not_cut, 0, "MTU {mtu}");
            let longest = out.iter().map(|packet| packet.data.len() as u32 - 14);
            assert!(longest.max() <= Some(mtu) && out.len() >= 12);
            assert_eq!(report.expanded, out.len() as u64 - 6);
            assert_eq!(reassembled(&out), datagrams);
            let mut ids = ids(&out);
            ids.dedup();
            assert_eq!(ids, [500, 501, 502, 503, 504, 505]);
        }
    }
}

/// TCP that cannot be segmented is fragmented, as by a router, which does not check transport
/// checksums. It does check the IPv4 header.
#[test]
fn tcp_that_cannot_be_segmented_is_fragmented_if_allowed() {
    let mut wrong = tcp_df(1, 1, 9, 0, &[2; 3000], false);
    wrong[2000] ^= 4;
    let captured = [Captured::new(1_000, 0, wrong.clone())];
    let (out, report) = cut(&captured, 1500, Semantics::Reversible);
    assert_eq!((out.len(), report.interfaces[0].not_cut), (3, 0));
    assert_eq!(reassembled(&out), [wrong[34..].to_vec()]);
    wrong[22] ^= 1;
    let captured = [Captured::new(1_000, 0, wrong)];
    let (out, report) = cut(&captured, 1500, Semantics::Reversible);
    assert_eq!((out, report.interfaces[0].not_cut), (captured.to_vec(), 1));
}

fn ids(packets: &[Captured]) -> Vec<u16> {
    let id = |packet: &Captured| u16::from_be_bytes([packet.data[18], packet.data[19]]);
    packets.iter().map(id).collect()
}

/// RFC 6864 §4.3: without DF no identification repeats, though there are more packets than
/// captured.
#[test]
fn identifications_do_not_repeat_without_df() {
    let packet = |n: u32| {
        let flags = if n % 4 == 3 { 8 } else { 0 };
        let bytes = tcp_df(1, 1 + n * 1000, n as u16, flags, &[3; 1000], false);
        Captured::new(1_000 + u64::from(n), 0, bytes)
    };
    let packets: Vec<_> = (0..8).map(packet).collect();
    for (mtu, count) in [(700, 14), (1040, 8), (2040, 4)] {
        let (out, _) = cut(&packets, mtu, Semantics::Reversible);
        let mut seen = ids(&out);
        assert_eq!(seen.len(), count, "MTU {mtu}");
        if mtu >= 1040 {
            assert!(
                seen.iter().all(|id| *id < 8),
                "of the merged ones: {seen:?}"
            );
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "MTU {mtu}");
        out.iter().for_each(|p| drop(checked_payload(&p.data)));
    }
}

/// Packets that `stream` merges may have any identifications: their segments get new ones.
#[test]
fn segments_of_arbitrary_identifications_get_new_ones() {
    let packet = |(n, id): (u32, u16)| {
        let bytes = tcp_df(1, 1 + n * 1000, id, 0, &[3; 1000], false);
        Captured::new(1_000 + u64::from(n), 0, bytes)
    };
    let packets = [(0, 100), (1, 7), (2, 300)].map(packet);
    let (out, _) = cut(&packets, 1040, Semantics::Stream);
    let seen = ids(&out);
    assert_eq!(seen.len(), 3);
    assert_ne!(seen[0], 100);
    assert_eq!([seen[1], seen[2]], [1, 2].map(|n| seen[0].wrapping_add(n)));
}

#[test]
fn a_fixed_identification_stays_fixed() {
    let packet = |n: u32| {
        let bytes = tcp(1, 1 + n * 1000, 5, 0, &[3; 1000]);
        Captured::new(1_000 + u64::from(n), 0, bytes)
    };
    let packets: Vec<_> = (0..4).map(packet).collect();
    let (out, _) = cut(&packets, 540, Semantics::Reversible);
    assert_eq!(ids(&out), [5; 8]);
}
