//! Batches to writes and back to packets. Packets are those of `test_packets`, built and summed
//! without the code under test; every write has to pass `virtio_net::validate`.

use super::*;
use crate::coalesce::{FlushReason, NotTaken};
use crate::test_packets::{ACK, CWR, Field, PSH, Spec};
use crate::virtio_net::{FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_UDP_L4, VnetHeader, validate};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const FORMS: [HeaderLen; 2] = [HeaderLen::Legacy, HeaderLen::V1];
/// What is in memory before it is used.
const STALE: u8 = 0xA5;

/// Consecutive packets of one flow; `sizes` are their payloads.
fn train(first: &Spec, sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut next = first.clone();
    let mut packets = Vec::new();
    for (index, &size) in sizes.iter().enumerate() {
        next.payload = vec![index as u8; size];
        packets.push(next.build(Field::Final));
        next.sequence = next.sequence.wrapping_add(size as u32);
        next.id = next.id.wrapping_add(1);
    }
    packets
}

fn copied(tun: &Tun, buffers: usize, batch: &[Vec<u8>]) -> (Vec<Vec<u8>>, Written) {
    let mut buffers = vec![vec![STALE; WRITE_BYTES_MAX]; buffers];
    let mut writes = Vec::new();
    let packets = batch.iter().map(|packet| &packet[..]);
    let written = tun.write_batch(&mut buffers, packets, |bytes| writes.push(bytes.to_vec()));
    (writes, written)
}

fn gathered(tun: &Tun, pieces: usize, headroom: usize, batch: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut memory: Vec<Vec<u8>> = batch
        .iter()
        .map(|packet| [&vec![STALE; headroom][..], packet].concat())
        .collect();
    let mut pieces = vec![Piece::EMPTY; pieces];
    let mut writes = Vec::new();
    let packets = memory.iter_mut().map(|packet| &mut packet[..]);
    let stats = tun.gather_batch(&mut pieces, packets, headroom, |write| {
        let slices: Vec<_> = write.slices().collect();
        assert_eq!(slices.len(), write.slices().len());
        let bytes = slices.concat();
        assert_eq!(bytes.len(), write.bytes());
        writes.push(bytes);
    });
    assert_eq!(stats.packets, batch.len() as u64);
    assert_eq!(stats.emitted, writes.len() as u64);
    writes
}

/// The packets of a read, fetched in three ways that have to agree.
fn wire(tun: &Tun, read: &[u8]) -> Vec<Vec<u8>> {
    let mut in_place = Vec::new();
    let mut memory = read.to_vec();
    let mut packets = tun.packets(&mut memory).expect("a good header");
    while let Some(packet) = packets.next_packet() {
        in_place.push(packet.to_vec());
    }
    let mut into = Vec::new();
    let mut memory = read.to_vec();
    let mut packets = tun.packets(&mut memory).expect("a good header");
    assert_eq!(packets.remaining(), in_place.len());
    let mut out = vec![STALE; WRITE_BYTES_MAX];
    while let Some(bytes) = packets.next_into(&mut out).expect("room") {
        into.push(out[..bytes].to_vec());
    }
    assert_eq!(in_place, into);
    // In turns.
    let mut memory = read.to_vec();
    let mut packets = tun.packets(&mut memory).expect("a good header");
    let mut turns = Vec::new();
    for turn in 0.. {
        if turn % 2 == 0 {
            match packets.next_packet() {
                Some(packet) => turns.push(packet.to_vec()),
                None => break,
            }
        } else {
            match packets.next_into(&mut out).expect("room") {
                Some(bytes) => turns.push(out[..bytes].to_vec()),
                None => break,
            }
        }
    }
    assert_eq!(in_place, turns);
    in_place
}

/// Checks a write as a peer would, and gives its header.
fn accepted(tun: &Tun, write: &[u8]) -> VnetHeader {
    let header = VnetHeader::decode(write, tun.header).expect("a header");
    let packet = &write[tun.header.bytes()..];
    let got = validate(&header, tun.link, Accept::ALL, packet, packet.len() as u32);
    got.unwrap_or_else(|error| panic!("{error}: {header:?}"));
    header
}

/// Writes in both forms, checked, and cut again: every packet is there as it was.
fn round_trip(tun: &Tun, batch: &[Vec<u8>]) -> Vec<Vec<u8>> {
    // As many flows at once as the other form has.
    let (writes, written) = copied(tun, LARGE + 1, batch);
    assert_eq!(written.too_long, 0);
    assert_eq!(written.stats.emitted, writes.len() as u64);
    for headroom in [0, 9, 10, 12, 40] {
        let gathered = gathered(tun, 64, headroom, batch);
        assert!(gathered == writes, "headroom {headroom}");
    }
    let mut back = Vec::new();
    for write in &writes {
        accepted(tun, write);
        back.extend(wire(tun, write));
    }
    let (mut there, mut here) = (batch.to_vec(), back);
    // Flows may change places; the order in each is that of `coalesce`, tested there.
    there.sort();
    here.sort();
    assert_eq!(here, there);
    writes
}

#[test]
fn a_train_becomes_one_write_and_a_train_again() {
    let kinds = [Spec::tcp4(0), Spec::tcp6(0), Spec::udp4(0), Spec::udp6(0)];
    let links = kinds.into_iter().flat_map(|spec| {
        let (ethernet, ipoib) = (spec.clone().ethernet(), spec.clone().ipoib());
        [spec, ethernet, ipoib]
    });
    for spec in links {
        for header in FORMS {
            let tun = Tun {
                link: spec.link,
                header,
                ..Tun::new(Accept::ALL)
            };
            let batch = train(&spec, &[100, 100, 100, 100, 37]);
            let writes = round_trip(&tun, &batch);
            assert_eq!(writes.len(), 1, "{spec:?}");
            let described = accepted(&tun, &writes[0]);
            assert_eq!(described.flags, FLAG_NEEDS_CSUM);
            assert_eq!(described.gso_size, 100);
            let headers = batch[0].len() - 100;
            assert_eq!(usize::from(described.hdr_len), headers);
            assert_eq!(writes[0].len(), header.bytes() + headers + 437);
            assert_eq!(wire(&tun, &writes[0]), batch, "in order");
        }
    }
}

#[test]
fn odd_sizes_short_tails_and_options_come_back() {
    let options = Spec {
        tcp_options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        ..Spec::tcp4(0)
    };
    for sizes in [
        &[9, 9, 9, 1][..],
        &[1448; 44],
        &[1001, 1001, 999],
        &[8, 8],
        &[20_000, 20_000, 20_000, 20_000],
    ] {
        for spec in [&options, &Spec::tcp6(0), &Spec::udp4(0), &Spec::udp6(0)] {
            round_trip(&Tun::new(Accept::ALL), &train(spec, sizes));
        }
    }
}

/// tailscale/tailscale#19820, WireGuard/wireguard-go#145.
#[test]
fn bug_header_bytes_of_an_earlier_use_stay() {
    for form in FORMS {
        let tun = Tun {
            header: form,
            ..Tun::new(Accept::ALL)
        };
        let mut batch = train(&Spec::tcp4(0), &[200; 5]);
        batch[2][100] ^= 0xff;
        let writes = round_trip(&tun, &batch);
        // The wrong one alone; what is behind it starts anew.
        assert_eq!(writes.len(), 3);
        let alone = writes
            .iter()
            .find(|write| write[form.bytes()..] == batch[2])
            .expect("it is passed on as it came");
        assert!(
            alone[..10].iter().all(|&byte| byte == 0),
            "{:?}",
            &alone[..12]
        );
    }
}

/// WireGuard/wireguard-go#151.
#[test]
fn bug_splitter_miscounts_when_the_output_array_is_full() {
    let tun = Tun::new(Accept::ALL);
    let batch = train(&Spec::tcp4(0), &[300; 7]);
    let (writes, _) = copied(&tun, 2, &batch);
    for count in [0, 1, 3, 6, 7, 8, 20] {
        let mut read = writes[0].clone();
        let mut packets = tun.packets(&mut read).expect("a good header");
        let mut got = Vec::new();
        let mut calls = 0;
        loop {
            let mut buffers = vec![vec![STALE; 700]; count];
            let mut lengths = vec![usize::MAX; count];
            let n = packets.fill(&mut buffers, 16, &mut lengths).expect("room");
            assert_eq!(n, count.min(7 - got.len()));
            for (buffer, length) in buffers.iter().zip(&lengths).take(n) {
                assert!(buffer[..16].iter().all(|&byte| byte == STALE), "headroom");
                got.push(buffer[16..16 + length].to_vec());
                assert!(buffer[16 + length..].iter().all(|&byte| byte == STALE));
            }
            assert!(lengths[n..].iter().all(|&length| length == usize::MAX));
            assert_eq!(packets.remaining(), 7 - got.len());
            calls += 1;
            if n < count || count == 0 {
                break;
            }
        }
        if count == 0 {
            assert_eq!((calls, packets.remaining()), (1, 7));
        } else {
            assert_eq!(got, batch, "{count} buffers");
        }
    }
}

#[test]
fn a_buffer_that_is_too_short_loses_nothing() {
    let tun = Tun::new(Accept::ALL);
    let batch = train(&Spec::udp4(0), &[300, 300, 10]);
    let (mut writes, _) = copied(&tun, 2, &batch);
    let mut packets = tun.packets(&mut writes[0]).expect("a good header");
    let error = TooShort {
        has: 327,
        needs: 328,
    };
    let mut short = [0; 327];
    assert_eq!(packets.next_into(&mut short), Err(error));
    assert_eq!(packets.remaining(), 3);
    // The first fits, the second does not: the error waits.
    let mut buffers = [vec![0; 330], vec![0; 329]];
    let mut lengths = [0; 2];
    assert_eq!(packets.fill(&mut buffers, 2, &mut lengths), Ok(1));
    assert_eq!(packets.fill(&mut buffers[1..], 2, &mut lengths), Err(error));
    assert_eq!(
        packets.fill(&mut buffers, 1000, &mut lengths),
        Err(TooShort { has: 0, needs: 328 })
    );
    assert!(packets.skip_packet());
    assert_eq!(packets.next_bytes(), Some(38));
    assert_eq!(packets.next_packet(), Some(&mut batch[2].clone()[..]));
    assert!(!packets.skip_packet());
    assert_eq!((packets.next_bytes(), packets.next_packet()), (None, None));
}

#[test]
fn an_unfinished_packet_that_is_not_cut_is_finished() {
    for spec in [
        Spec::tcp4(77),
        Spec::tcp6(77),
        Spec::udp4(78),
        Spec::udp6(0),
    ] {
        let tun = Tun::new(Accept::ALL);
        let packet = spec.build(Field::Preload);
        let header = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: spec.transport() as u16,
            csum_offset: if spec.tcp { 16 } else { 6 },
            ..VnetHeader::default()
        };
        let mut read = vec![0; 10];
        header.encode(&mut read, tun.header).expect("room");
        read.extend_from_slice(&packet);
        // Padding belongs to nothing.
        read.extend_from_slice(&[9; 3]);
        assert_eq!(wire(&tun, &read), [spec.build(Field::Final)]);
    }
}

#[test]
fn a_header_that_lies_is_an_error_with_a_name() {
    let mut read = vec![0; 50];
    read[10] = 0x45;
    read[1] = 3;
    let tun = Tun::new(Accept::ALL);
    assert_eq!(tun.packets(&mut read).err(), Some(VnetError::GsoUfo));
    assert_eq!(
        tun.packets(&mut read[..9]).err(),
        Some(VnetError::HeaderTruncated)
    );
    assert_eq!(
        tun.packets(&mut read[..10]).err(),
        Some(VnetError::PacketTooShort)
    );
}

/// What a kernel sends, and so what a read may be, has nothing to do with what is merged for it.
#[test]
fn a_write_that_is_refused_is_cut_again_whatever_reads_may_be() {
    let mut spec = Spec::tcp4(0);
    spec.flags |= CWR;
    let mut congested = train(&spec, &[60; 3]);
    for (index, packet) in congested.iter_mut().enumerate().skip(1) {
        spec.flags = ACK;
        spec.payload = vec![index as u8; 60];
        spec.sequence = spec.sequence.wrapping_add(60);
        spec.id = spec.id.wrapping_add(1);
        *packet = spec.build(Field::Final);
    }
    for batch in [train(&Spec::udp4(0), &[60; 3]), congested] {
        for accept in [Accept::NONE, Accept::CSUM | Accept::TSO4, Accept::ALL] {
            let tun = Tun::new(accept);
            let (mut writes, _written) = copied(&tun, 3, &batch);
            assert_eq!(writes.len(), 1, "{accept:?}");
            let mut packets = tun.cut_write(&mut writes[0]).expect("our own write");
            let mut again = Vec::new();
            while let Some(packet) = packets.next_packet() {
                again.push(packet.to_vec());
            }
            assert_eq!(again, batch, "{accept:?}");
        }
    }
}

#[test]
fn protocols_are_switched_one_by_one() {
    let batch = [
        train(&Spec::tcp4(0), &[50; 3]),
        train(&Spec::udp4(0), &[50; 3]),
    ]
    .concat();
    let types = |tcp, udp| {
        let tun = Tun {
            merge_tcp: tcp,
            merge_udp: udp,
            ..Tun::new(Accept::ALL)
        };
        let writes = round_trip(&tun, &batch);
        writes
            .iter()
            .map(|write| accepted(&tun, write).gso_type)
            .collect::<Vec<_>>()
    };
    assert_eq!(types(true, true), [GSO_TCPV4, GSO_UDP_L4]);
    assert_eq!(
        types(false, true),
        [GSO_NONE, GSO_NONE, GSO_NONE, GSO_UDP_L4]
    );
    assert_eq!(types(false, false), [GSO_NONE; 6]);
    let mut only_tcp = types(true, false);
    only_tcp.sort_unstable();
    assert_eq!(only_tcp, [GSO_NONE, GSO_NONE, GSO_NONE, GSO_TCPV4]);
}

#[test]
fn one_identification_for_all_is_merged_on_request_only() {
    let spec = Spec::tcp4(0);
    let mut batch = train(&spec, &[60; 3]);
    for (index, packet) in batch.iter_mut().enumerate() {
        let same = Spec {
            id: 0,
            sequence: spec.sequence + 60 * index as u32,
            payload: vec![3; 60],
            ..spec.clone()
        };
        *packet = same.build(Field::Final);
    }
    let tun = Tun::new(Accept::ALL);
    assert_eq!(round_trip(&tun, &batch).len(), 3);
    let tun = Tun {
        merge_fixed_id: true,
        ..tun
    };
    let (writes, _) = copied(&tun, 3, &batch);
    assert_eq!(writes.len(), 1);
    let ids: Vec<_> = wire(&tun, &writes[0])
        .iter()
        .map(|packet| packet[5])
        .collect();
    assert_eq!(ids, [0, 1, 2], "who cuts it counts up");
}

#[test]
fn few_buffers_merge_less_and_lose_nothing() {
    let mut batch = Vec::new();
    for index in 0..4 {
        for flow in 0..6_u8 {
            let mut spec = Spec::tcp6(0);
            spec.sequence += 40 * index;
            spec.payload = vec![flow; 40];
            let mut packet = spec.build(Field::Final);
            // Another source port: the sum changes by as much.
            packet[41] = packet[41].wrapping_add(flow);
            let sum = u16::from_be_bytes([packet[56], packet[57]]);
            let sum = crate::checksum::update_u16(sum, 0, u16::from(flow));
            packet[56..58].copy_from_slice(&sum.to_be_bytes());
            batch.push(packet);
        }
    }
    let tun = Tun::new(Accept::ALL);
    for (buffers, expected) in [(7, 6), (9, 6), (70, 6), (2, 24), (1, 24)] {
        let (writes, written) = copied(&tun, buffers, &batch);
        assert_eq!(writes.len(), expected, "{buffers}");
        assert_eq!(written.stats.packets, 24);
        let mut back: Vec<_> = writes.iter().flat_map(|write| wire(&tun, write)).collect();
        back.sort();
        let mut sorted = batch.clone();
        sorted.sort();
        assert_eq!(back, sorted, "{buffers}");
    }
    let (writes, written) = copied(&tun, 0, &batch);
    assert_eq!((writes.len(), written.too_long), (0, 24));
    for pieces in [0, 1, 5, 24] {
        let writes = gathered(&tun, pieces, 10, &batch);
        assert!(
            writes.len() >= 6 && writes.len() <= 24,
            "{pieces}: {}",
            writes.len()
        );
        let mut back: Vec<_> = writes.iter().flat_map(|write| wire(&tun, write)).collect();
        back.sort();
        let mut sorted = batch.clone();
        sorted.sort();
        assert_eq!(back, sorted, "{pieces}");
    }
}

#[test]
fn short_buffers_bound_a_write_and_refuse_what_does_not_fit() {
    let tun = Tun::new(Accept::ALL);
    let mut batch = train(&Spec::tcp4(0), &[100; 6]);
    batch.push(vec![0x45; 400]);
    let mut buffers = vec![vec![STALE; 10 + 40 + 300 + 5]; 3];
    let mut writes = Vec::new();
    let packets = batch.iter().map(|packet| &packet[..]);
    let written = tun.write_batch(&mut buffers, packets, |bytes| writes.push(bytes.to_vec()));
    assert_eq!(written.too_long, 1);
    assert_eq!(written.stats.flushes.get(FlushReason::Full), 1);
    let back: Vec<_> = writes.iter().flat_map(|write| wire(&tun, write)).collect();
    assert_eq!(back, batch[..6]);
    assert_eq!(writes.len(), 2);
}

#[test]
fn an_ack_and_a_packet_of_another_kind_are_written_alone() {
    let tun = Tun::new(Accept::ALL);
    let ack = Spec::tcp4(0).build(Field::Final);
    let icmp = {
        let mut packet = vec![0; 28];
        packet[..4].copy_from_slice(&[0x45, 0, 0, 28]);
        packet[9] = 1;
        packet
    };
    let (writes, written) = copied(&tun, 4, &[ack, icmp.clone(), vec![0x45; 3]]);
    assert_eq!(writes.len(), 3);
    assert_eq!(writes[1], [&[0; 10][..], &icmp].concat());
    assert_eq!(written.stats.not_taken.get(NotTaken::Payload), 1);
    assert_eq!(written.stats.not_taken.get(NotTaken::Protocol), 2);
}

#[test]
fn a_trusted_batch_is_not_summed() {
    let tun = Tun {
        verified: true,
        ..Tun::new(Accept::ALL)
    };
    let batch = train(&Spec::tcp4(0), &[500; 4]);
    let (writes, written) = copied(&tun, 2, &batch);
    assert_eq!((writes.len(), written.stats.summed_bytes), (1, 0));
    assert_eq!(wire(&tun, &writes[0]), batch);
    let (_, written) = copied(&Tun::new(Accept::ALL), 2, &batch);
    assert_eq!(written.stats.summed_bytes, 2000);
}

#[test]
fn a_write_of_many_pieces_stays_within_what_writev_takes() {
    let tun = Tun::new(Accept::ALL);
    let batch = train(&Spec::tcp6(0), &[8; 1500]);
    let mut memory = batch.clone();
    let mut pieces = vec![Piece::EMPTY; 2000];
    let mut counts = Vec::new();
    let packets = memory.iter_mut().map(|packet| &mut packet[..]);
    tun.gather_batch(&mut pieces, packets, 0, |write| {
        counts.push(write.slices().len());
    });
    assert_eq!(counts, [1024, 478]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is in a batch is written, and comes back.
    #[test]
    fn any_batch_comes_back(
        flows in prop::collection::vec((any::<bool>(), any::<bool>(), 1_usize..200), 1..6),
        order in prop::collection::vec((0_usize..6, 0_u8..10, 0_usize..4), 0..60),
        form in 0_usize..2,
    ) {
        let tun = Tun { header: FORMS[form], ..Tun::new(Accept::ALL) };
        let mut specs: Vec<_> = flows.iter().map(|&(ipv6, tcp, size)| {
            (Spec { ipv6, tcp, ..Spec::tcp4(0) }, size)
        }).collect();
        let mut batch = Vec::new();
        for (flow, what, cut) in order {
            let index = flow % specs.len();
            let (spec, size) = &mut specs[index];
            let bytes = if cut == 0 { *size / 2 } else { *size };
            spec.payload = vec![what; bytes];
            spec.flags = if what == 1 { ACK | PSH } else { ACK };
            let mut packet = spec.build(Field::Final);
            if what == 2 {
                let last = packet.len() - 1;
                packet[last] ^= 1;
            }
            batch.push(packet);
            if what != 3 {
                spec.sequence = spec.sequence.wrapping_add(bytes as u32);
                spec.id = spec.id.wrapping_add(1);
            }
        }
        round_trip(&tun, &batch);
    }

    /// No bytes make a reader panic, and what it yields are packets of the read's length at most.
    #[test]
    fn any_read_is_packets_or_an_error(
        header in prop::array::uniform12(any::<u8>()),
        body in prop::collection::vec(any::<u8>(), 0..200),
        known in any::<bool>(),
    ) {
        let mut read = [&header[..], &body].concat();
        if known && read.len() > 60 {
            read[0] &= 3;
            read[1] %= 6;
            read[10..20].copy_from_slice(&[0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6]);
            read[42] = 5 << 4;
        }
        let tun = Tun::new(Accept::ALL);
        let most = read.len();
        if let Ok(mut packets) = tun.packets(&mut read) {
            let mut left = packets.remaining();
            while let Some(packet) = packets.next_packet() {
                prop_assert!(packet.len() <= most);
                left -= 1;
            }
            prop_assert_eq!(left, 0);
        }
    }

    /// Nor do any packets in a batch.
    #[test]
    fn any_batch_is_written(batch in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..120), 0..20), lie in any::<bool>(),
    ) {
        let mut batch = batch;
        for packet in &mut batch {
            if lie && packet.len() > 40 {
                packet[..4].copy_from_slice(&[0x45, 0, 0, 60]);
                packet[9] = 17;
            }
        }
        let tun = Tun::new(Accept::ALL);
        let (writes, written) = copied(&tun, 3, &batch);
        prop_assert_eq!(written.too_long, 0);
        let bytes: usize = writes.iter().map(|write| write.len() - 10).sum();
        prop_assert!(bytes <= batch.iter().map(Vec::len).sum());
        prop_assert_eq!(gathered(&tun, 20, 12, &batch), writes);
    }
}

/// Where there is nothing to merge with nothing is looked at, and what is counted adds up.
#[test]
fn a_packet_alone_is_counted_as_any_other() {
    let tun = Tun::new(Accept::ALL);
    let batch = train(&Spec::tcp4(0), &[100]);
    for buffers in [1, 4] {
        let mut buffers = vec![vec![0; 2000]; buffers];
        let packets = batch.iter().map(|packet| &packet[..]);
        let stats = tun.write_batch(&mut buffers, packets, |_| ()).stats;
        let accounted = stats.flushes.total() + stats.not_taken.total();
        assert_eq!((stats.packets, stats.emitted, accounted), (1, 1, 1));
    }
    let mut batch = batch;
    let packets = batch.iter_mut().map(|packet| &mut packet[..]);
    let stats = tun.gather_batch(&mut [Piece::EMPTY; 8], packets, 0, |_| ());
    let accounted = stats.flushes.total() + stats.not_taken.total();
    assert_eq!((stats.packets, stats.emitted, accounted), (1, 1, 1));
}
