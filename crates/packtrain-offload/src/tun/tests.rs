//! Batches to writes and back to packets. Packets are those of `test_packets`, built and summed
//! without the code under test; every write has to pass `virtio_net::validate`.

use super::*;
use crate::coalesce::{FlushReason, NotTaken, Stats};
use crate::layout::Layout;
use crate::offload::LinkType;
use crate::test_packets::{ACK, CWR, Field, PSH, Spec};
use crate::virtio_net::{
    Accept, FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_UDP_L4, VnetHeader, validate,
};
use core::convert::Infallible;
use proptest::prelude::*;
use std::format;
use std::slice;
use std::vec;
use std::vec::Vec;

mod fallback;
mod reader;

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

fn copied(tun: &TunOffload, buffers: usize, batch: &[Vec<u8>]) -> (Vec<Vec<u8>>, Written) {
    let mut buffers = vec![vec![STALE; WRITE_BYTES_MAX]; buffers];
    let mut writes = Vec::new();
    let Ok(written) = tun.write_batch(&mut buffers, batch, |bytes| {
        writes.push(bytes.to_vec());
        Ok::<_, Infallible>(())
    });
    (writes, written)
}

/// Packets behind headroom, in buffers that are owned.
fn behind(headroom: usize, batch: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let packets = batch.iter();
    packets
        .map(|packet| [&vec![STALE; headroom][..], packet].concat())
        .collect()
}

fn gathered(tun: &TunOffload, headroom: usize, batch: &[Vec<u8>]) -> (Vec<Vec<u8>>, Stats) {
    let mut memory = behind(headroom, batch);
    let mut pieces = Pieces::new();
    let writes = tun.gather_batch(&mut pieces, &mut memory, headroom);
    let stats = *writes.stats();
    assert_eq!(stats.packets, batch.len() as u64);
    assert_eq!(stats.emitted, writes.len() as u64);
    let writes = writes.map(|write| {
        let slices: Vec<_> = write.slices().collect();
        assert_eq!(slices.len(), write.slices().len());
        let bytes = slices.concat();
        assert_eq!(bytes.len(), write.bytes());
        let mut copy = vec![STALE; bytes.len() + 1];
        assert_eq!(write.copy_to(&mut copy), Ok(bytes.len()));
        assert_eq!(copy, [&bytes[..], &[STALE]].concat());
        bytes
    });
    (writes.collect(), stats)
}

/// The packets of a read, fetched in three ways that have to agree.
fn wire(tun: &TunOffload, read: &[u8]) -> Vec<Vec<u8>> {
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
fn accepted(tun: &TunOffload, write: &[u8]) -> VnetHeader {
    let form = tun.header.expect("one with a header");
    let header = VnetHeader::decode(write, form).expect("a header");
    let packet = &write[form.bytes()..];
    let got = validate(&header, tun.link, Accept::ALL, packet, packet.len() as u32);
    got.unwrap_or_else(|error| panic!("{error}: {header:?}"));
    header
}

/// Writes in both forms, checked, and cut again: every packet is there as it was.
fn round_trip(tun: &TunOffload, batch: &[Vec<u8>]) -> Vec<Vec<u8>> {
    // As many flows at once as the other form has.
    let (writes, written) = copied(tun, LARGE + 1, batch);
    assert_eq!(written.buffer_too_short, 0);
    assert_eq!(written.stats.emitted, writes.len() as u64);
    for headroom in [0, 9, 10, 12, 40] {
        let (gathered, _) = gathered(tun, headroom, batch);
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
            let tun = TunOffload {
                link: spec.link,
                header: Some(header),
                ..TunOffload::tun()
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
            round_trip(&TunOffload::tun(), &train(spec, sizes));
        }
    }
}

/// tailscale/tailscale#19820, WireGuard/wireguard-go#145.
#[test]
fn bug_header_bytes_of_an_earlier_use_stay() {
    for form in FORMS {
        let tun = TunOffload {
            header: Some(form),
            ..TunOffload::tun()
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
    let tun = TunOffload::tun();
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
fn a_buffer_that_is_too_short_costs_at_most_its_packet() {
    let tun = TunOffload::tun();
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
        let tun = TunOffload::tun();
        let packet = spec.build(Field::Preload);
        let header = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            csum_start: spec.transport() as u16,
            csum_offset: if spec.tcp { 16 } else { 6 },
            ..VnetHeader::default()
        };
        let mut read = vec![0; 10];
        header.encode(&mut read, HeaderLen::Legacy).expect("room");
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
    let tun = TunOffload::tun();
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

/// What `TUNSETIFF` without `IFF_NO_PI` or without `IFF_VNET_HDR` makes of a packet, and what a
/// short buffer does.
#[test]
fn a_device_that_was_opened_in_another_form_is_an_error_with_a_name() {
    let tun = TunOffload::tun();
    let packet = Spec::tcp4(0).build(Field::Final);
    assert_eq!(packet[6] >> 4, 4, "DF: what follows looks like IPv4");
    let with_info = [&[0, 0, 8, 0][..], &packet].concat();
    assert_eq!(with_info.len(), 44);
    let error = |mut read: Vec<u8>| tun.packets(&mut read).err();
    assert_eq!(error(with_info), Some(VnetError::IpLength));
    assert_eq!(error(packet), Some(VnetError::RawIpVersion));
    let (mut writes, _) = copied(&tun, 2, &train(&Spec::tcp4(0), &[1400; 3]));
    writes[0].truncate(1500);
    assert_eq!(error(writes.remove(0)), Some(VnetError::GsoHeaders));
    let mut cut_off = [&[0; 10][..], &Spec::udp6(900).build(Field::Final)].concat();
    cut_off.truncate(500);
    assert_eq!(error(cut_off), Some(VnetError::IpLength));
}

/// Where the kernel refuses a write it is written packet by packet.
#[test]
fn a_write_that_is_refused_is_cut_again() {
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
        let (writes, _written) = copied(&TunOffload::tun(), 3, &batch);
        assert_eq!(writes.len(), 1);
        assert_eq!(wire(&TunOffload::tun(), &writes[0]), batch);
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
        let tun = TunOffload {
            merge_tcp: tcp,
            merge_udp: udp,
            ..TunOffload::tun()
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
    let tun = TunOffload::tun();
    assert_eq!(round_trip(&tun, &batch).len(), 3);
    let tun = TunOffload {
        merge_fixed_id: true,
        ..tun
    };
    let (writes, _) = copied(&tun, 3, &batch);
    assert_eq!(writes.len(), 1);
    let ids: Vec<_> = wire(&tun, &writes[0])
        .iter()
        .map(|packet| packet[5])
        .collect();
    assert_eq!(ids, [0, 1, 2], "the segmenter counts up");
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
    let tun = TunOffload::tun();
    for (buffers, expected) in [(7, 6), (9, 6), (10, 6), (70, 6), (2, 24), (1, 24)] {
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
    assert_eq!((writes.len(), written.buffer_too_short), (0, 24));
}

/// One flow needs one buffer.
#[test]
fn one_buffer_merges_one_flow() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::tcp4(0), &[100; 5]);
    let (writes, written) = copied(&tun, 1, &batch);
    assert_eq!((writes.len(), written.stats.merged), (1, 5));
    assert_eq!(wire(&tun, &writes[0]), batch);
    // Packets of other flows, with and without a payload, in between: written in the order of each
    // flow, with nothing lost.
    let others = train(&Spec::udp4(0), &[40, 40, 40, 0]);
    let ack = Spec::tcp6(0).build(Field::Final);
    let mut mixed = batch[..3].to_vec();
    mixed.extend([ack.clone(), others[0].clone(), others[1].clone()]);
    mixed.extend_from_slice(&batch[3..]);
    mixed.extend([
        ack.clone(),
        ack.clone(),
        others[2].clone(),
        others[3].clone(),
    ]);
    for verified in [false, true] {
        let tun = TunOffload { verified, ..tun };
        let (writes, written) = copied(&tun, 1, &mixed);
        assert_eq!(written.stats.packets, mixed.len() as u64);
        let back: Vec<_> = writes.iter().flat_map(|write| wire(&tun, write)).collect();
        assert_eq!(back.len(), mixed.len());
        for flow in [&batch, &others] {
            let of_flow = back.iter().filter(|packet| flow.contains(packet));
            assert!(of_flow.eq(flow.iter()), "verified: {verified}");
        }
        assert_eq!(back.iter().filter(|packet| **packet == ack).count(), 3);
        assert!(writes.len() < mixed.len());
    }
}

/// An iterator may say anything about its length.
#[test]
fn what_an_iterator_says_of_its_length_changes_nothing() {
    struct Lies<'p>(slice::Iter<'p, Vec<u8>>, (usize, Option<usize>));
    impl<'p> Iterator for Lies<'p> {
        type Item = &'p Vec<u8>;

        fn next(&mut self) -> Option<&'p Vec<u8>> {
            self.0.next()
        }

        fn size_hint(&self) -> (usize, Option<usize>) {
            self.1
        }
    }
    let tun = TunOffload::tun();
    // As many flows as a large batch has, one packet of each after the other.
    let mut batch = Vec::new();
    for index in 0..3_u32 {
        for flow in 0..20_u8 {
            let mut spec = Spec::udp4(0);
            spec.payload = vec![flow; 40];
            spec.id += index as u16;
            let mut packet = spec.build(Field::Final);
            packet[21] = packet[21].wrapping_add(flow);
            let sum = u16::from_be_bytes([packet[26], packet[27]]);
            let sum = crate::checksum::update_u16(sum, 0, u16::from(flow));
            packet[26..28].copy_from_slice(&sum.to_be_bytes());
            batch.push(packet);
        }
    }
    let (expected, stats) = copied(&tun, 33, &batch);
    assert_eq!(expected.len(), 20);
    for hint in [
        (0, None),
        (0, Some(0)),
        (1, Some(1)),
        (8, Some(8)),
        (60, Some(60)),
    ] {
        let mut buffers = vec![vec![STALE; WRITE_BYTES_MAX]; 33];
        let mut writes = Vec::new();
        let packets = Lies(batch.iter(), hint);
        let Ok(written) = tun.write_batch(&mut buffers, packets, |bytes| {
            writes.push(bytes.to_vec());
            Ok::<_, Infallible>(())
        });
        assert_eq!(written, stats, "{hint:?}");
        assert!(writes == expected, "{hint:?}");
    }
}

#[test]
fn the_first_error_of_a_write_ends_the_batch() {
    let tun = TunOffload::tun();
    let batch = [
        train(&Spec::tcp4(0), &[100; 3]),
        vec![Spec::tcp6(0).build(Field::Final); 2],
        train(&Spec::udp4(0), &[100; 3]),
    ]
    .concat();
    for buffers in [1, 4, 20] {
        let (all, _) = copied(&tun, buffers, &batch);
        for fails in 0..all.len() {
            let mut buffers = vec![vec![STALE; WRITE_BYTES_MAX]; buffers];
            let mut writes = Vec::new();
            let result = tun.write_batch(&mut buffers, &batch, |bytes| {
                writes.push(bytes.to_vec());
                if writes.len() > fails {
                    Err(fails)
                } else {
                    Ok(bytes.len())
                }
            });
            assert_eq!(result.err(), Some(fails));
            assert!(writes == all[..=fails], "nothing is written after an error");
        }
    }
    // A batch of one packet takes another way.
    let result = tun.write_batch(&mut [[0; 2000]], &batch[..1], |_| Err::<(), _>("no"));
    assert_eq!(result.err(), Some("no"));
}

#[test]
fn a_gathered_batch_can_be_awaited_by_a_task_of_any_thread() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let tun = TunOffload::tun();
    let batch = [
        train(&Spec::tcp4(0), &[100; 5]),
        train(&Spec::udp6(0), &[50; 3]),
    ]
    .concat();
    let (expected, _) = copied(&tun, 4, &batch);
    let mut memory = behind(10, &batch);
    let mut pieces = Pieces::with_capacity(8);
    let mut writes = is_send(tun.gather_batch(&mut pieces, &mut memory, 10));
    // The first write is still there when the second was fetched.
    let (first, second) = (writes.next().expect("TCP"), writes.next().expect("UDP"));
    assert!(writes.next().is_none() && writes.len() == 0);
    for (write, expected) in [(first, &expected[0]), (second, &expected[1])] {
        assert!(is_send(write).slices().flatten().eq(expected));
        let needs = expected.len();
        let has = needs - 1;
        let result = write.copy_to(&mut vec![0; has]);
        assert_eq!(result, Err(TooShort { has, needs }));
    }
    // The packets of a read, in buffers of the caller.
    let mut read = expected[0].clone();
    let mut packets = is_send(tun.packets(&mut read).expect("a good header"));
    assert!(packets.skip_packet());
    // The same memory for the next batch, of other lifetimes and another type.
    let mut other: Vec<_> = batch
        .iter()
        .map(|packet| packet.clone().into_boxed_slice())
        .collect();
    assert_eq!(tun.gather_batch(&mut pieces, &mut other, 0).len(), 2);
    let mut slices: Vec<_> = memory.iter_mut().map(|packet| &mut packet[..]).collect();
    assert_eq!(tun.gather_batch(&mut pieces, &mut slices[..1], 10).len(), 1);
    let mut none: [[u8; 0]; 0] = [];
    assert_eq!(tun.gather_batch(&mut pieces, &mut none, 0).len(), 0);
}

/// A log line of a program has lengths and counts, not the bytes of its users.
#[test]
fn what_is_printed_for_debugging_has_no_packet_bytes() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::tcp4(0), &[100, 100, 40]);
    let (mut copies, _) = copied(&tun, 2, &batch);
    let mut packets = tun.packets(&mut copies[0]).expect("a good header");
    assert!(packets.skip_packet());
    assert_eq!(
        format!("{packets:?}"),
        "Packets { packet_bytes: 280, remaining: 2, next_bytes: Some(140) }"
    );
    let mut memory = behind(9, &batch);
    let mut pieces = Pieces::new();
    let mut writes = tun.gather_batch(&mut pieces, &mut memory, 9);
    let start = "Writes { remaining: 1, stats: Stats {";
    assert!(format!("{writes:?}").starts_with(start));
    let write = writes.next().expect("one write");
    assert_eq!(
        format!("{write:?}"),
        "GatheredWrite { bytes: 290, slices: 4 }"
    );
    let mut slices = write.slices();
    assert!(slices.next().is_some());
    assert_eq!(format!("{slices:?}"), "Slices { remaining: 3 }");
}

#[cfg(feature = "std")]
#[test]
fn one_list_of_io_slices_serves_a_batch() {
    use std::io::{IoSlice, Write as _};
    let tun = TunOffload::tun();
    let batch = [
        train(&Spec::tcp4(0), &[100; 5]),
        train(&Spec::udp6(0), &[50; 3]),
    ]
    .concat();
    let (expected, _) = copied(&tun, 4, &batch);
    let mut memory = behind(12, &batch);
    let (mut pieces, mut file) = (Pieces::new(), Vec::new());
    let mut slices: Vec<IoSlice<'_>> = Vec::new();
    for write in tun.gather_batch(&mut pieces, &mut memory, 12) {
        slices.clear();
        slices.extend(write.io_slices());
        let written = file.write_vectored(&slices).expect("memory");
        assert_eq!(written, write.bytes());
    }
    assert_eq!(file, expected.concat());
}

#[test]
fn a_run_has_one_stride() {
    let tun = TunOffload::tun();
    for (sizes, per_run) in [
        (&[300, 300, 300, 300, 120][..], 99),
        (&[300; 5], 99),
        (&[300, 300, 300, 300, 120], 2),
        (&[300; 4], 2),
        (&[77], 1),
    ] {
        let batch = train(&Spec::udp4(0), sizes);
        let (mut writes, _) = copied(&tun, 2, &batch);
        let mut packets = tun.packets(&mut writes[0]).expect("a good header");
        let stride = 32 + batch[0].len() + 16;
        let mut out = vec![STALE; (stride * per_run).min(3000)];
        let mut got = Vec::new();
        let mut runs = 0;
        while let Some(run) = packets.fill_run(&mut out, 32, 16, 64).expect("room") {
            let is_last = run.bytes == run.stride;
            assert!(run.stride == stride || is_last, "{run:?}");
            let (used, rest) = out.split_at(run.bytes);
            for piece in used.chunks(run.stride) {
                let (packet, tail) = piece[32..].split_at(piece.len() - 48);
                assert!(piece[..32].iter().chain(tail).all(|&byte| byte == STALE));
                got.push(packet.to_vec());
            }
            assert!(runs > 0 || rest.iter().all(|&byte| byte == STALE));
            out.fill(STALE);
            runs += 1;
        }
        assert_eq!(got, batch);
        assert_eq!(runs, batch.len().div_ceil(per_run));
        assert_eq!(packets.fill_run(&mut [], 0, 0, 1), Ok(None));
    }
    let batch = train(&Spec::udp4(0), &[100; 2]);
    let (mut writes, _) = copied(&tun, 2, &batch);
    let mut packets = tun.packets(&mut writes[0]).expect("a good header");
    let error = TooShort {
        has: 127,
        needs: 128,
    };
    assert_eq!(packets.fill_run(&mut [0; 137], 8, 2, 1), Err(error));
    let far = packets.fill_run(&mut [0; 137], usize::MAX, 2, 1);
    assert_eq!(far, Err(TooShort { has: 0, needs: 128 }));
    assert_eq!(packets.remaining(), 2, "nothing is lost");
}

#[test]
fn a_run_has_at_most_as_many_segments_as_asked_for() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::udp4(0), &[300, 300, 300, 300, 120]);
    let (mut writes, _) = copied(&tun, 2, &batch);
    for (segments_max, runs) in [
        (1, &[1, 1, 1, 1, 1][..]),
        (2, &[2, 2, 1]),
        (3, &[3, 2]),
        (5, &[5]),
        (usize::MAX, &[5]),
    ] {
        let mut read = writes[0].clone();
        let mut packets = tun.packets(&mut read).expect("a good header");
        let (mut out, mut got, mut segments) = (vec![STALE; 65_507], Vec::new(), Vec::new());
        while let Some(run) = packets
            .fill_run(&mut out, 16, 16, segments_max)
            .expect("room")
        {
            let pieces = out[..run.bytes].chunks(run.stride);
            segments.push(pieces.len());
            got.extend(pieces.map(|piece| piece[16..piece.len() - 16].to_vec()));
        }
        assert_eq!(got, batch, "{segments_max}");
        assert_eq!(segments, runs, "{segments_max}");
    }
    let mut packets = tun.packets(&mut writes[0]).expect("a good header");
    let none = packets.fill_run(&mut [0; 1000], 16, 16, 0);
    assert_eq!(none, Err(TooShort { has: 0, needs: 328 }));
    assert_eq!(packets.remaining(), 5, "nothing is lost");
}

/// What a device without a virtio-net header is given: packets that a receiver verifies.
#[test]
fn without_a_header_tcp_is_merged_with_complete_checksums() {
    let tun = TunOffload::headerless();
    for (spec, merges) in [
        (Spec::tcp4(0), true),
        (Spec::tcp6(0), true),
        (Spec::udp4(0), false),
        (Spec::udp6(0), false),
    ] {
        let batch = train(&spec, &[100, 100, 101, 100, 37]);
        let batch = [&batch[..2], &train(&spec, &[500])].concat();
        for verified in [false, true] {
            let tun = TunOffload { verified, ..tun };
            let (writes, _) = copied(&tun, 3, &batch[..2]);
            for headroom in [0, 12] {
                assert!(gathered(&tun, headroom, &batch[..2]).0 == writes);
            }
            if !merges {
                assert_eq!(writes, batch[..2]);
                continue;
            }
            assert_eq!(writes.len(), 1, "{spec:?}");
            let mut whole = spec.clone();
            whole.payload = [[0; 100], [1; 100]].concat();
            assert_eq!(writes[0], whole.build(Field::Final), "as if sent at once");
        }
    }
    // Odd payloads: the parts of the sum are swapped.
    let spec = Spec::tcp6(0);
    let (writes, _) = copied(&tun, 2, &train(&spec, &[101, 101, 101, 9]));
    let mut whole = spec;
    whole.payload = [&[0; 101][..], &[1; 101], &[2; 101], &[3; 9]].concat();
    assert_eq!(writes, [whole.build(Field::Final)]);
    // A packet with a wrong checksum stays as it is.
    let mut wrong = train(&Spec::tcp4(0), &[100; 2]);
    wrong[1][90] ^= 1;
    assert_eq!(copied(&tun, 2, &wrong).0, wrong);
}

#[test]
fn without_a_header_a_read_is_one_packet() {
    let tun = TunOffload::headerless();
    let packet = Spec::tcp4(300).build(Field::Final);
    assert_eq!(wire(&tun, &packet), [packet]);
    let error = |read: &mut [u8]| tun.packets(read).err();
    assert_eq!(error(&mut []), Some(VnetError::PacketTooShort));
    assert_eq!(error(&mut [0; 40]), Some(VnetError::RawIpVersion));
}

/// Some systems number nothing. Where nothing segments a packet again that is no reason not to
/// merge.
#[test]
fn without_a_header_identifications_need_not_count() {
    let spec = Spec::tcp4(0);
    let mut batch = train(&spec, &[60; 3]);
    for (index, packet) in batch.iter_mut().enumerate() {
        let mut same = spec.clone();
        same.id = 0;
        same.sequence += 60 * index as u32;
        same.payload = vec![3; 60];
        *packet = same.build(Field::Final);
    }
    let (writes, _) = copied(&TunOffload::headerless(), 3, &batch);
    assert_eq!(writes.len(), 1);
    let bytes = writes[0].len() as u32;
    let layout = Layout::parse(LinkType::RawIp, &writes[0], bytes).expect("TCP");
    assert!(crate::verify::verify_transport(&writes[0], &layout).is_valid());
}

#[test]
fn a_configuration_is_a_preset_and_what_differs() {
    assert_eq!(TunOffload::default(), TunOffload::tun());
    let tap = TunOffload {
        link: LinkType::Ethernet,
        ..TunOffload::default()
    };
    assert_eq!(tap, TunOffload::tap());
}

#[test]
fn short_buffers_bound_a_write_and_refuse_what_does_not_fit() {
    let tun = TunOffload::tun();
    let mut batch = train(&Spec::tcp4(0), &[100; 6]);
    batch.push(vec![0x45; 400]);
    let mut buffers = vec![vec![STALE; 10 + 40 + 300 + 5]; 3];
    let mut writes = Vec::new();
    let Ok(written) = tun.write_batch(&mut buffers, &batch, |bytes| {
        writes.push(bytes.to_vec());
        Ok::<_, Infallible>(())
    });
    assert_eq!(written.buffer_too_short, 1);
    assert_eq!(written.stats.flushes.get(FlushReason::Full), 1);
    let back: Vec<_> = writes.iter().flat_map(|write| wire(&tun, write)).collect();
    assert_eq!(back, batch[..6]);
    assert_eq!(writes.len(), 2);
}

/// A buffer is as long as its length, not its capacity. The shortest one decides.
#[test]
fn a_buffer_without_length_is_counted_by_name() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::tcp4(0), &[100; 6]);
    let empty = || Vec::with_capacity(WRITE_BYTES_MAX);
    let full = || vec![STALE; WRITE_BYTES_MAX];
    let one_byte_short = vec![STALE; 10 + 140 - 1];
    for mut buffers in [
        vec![],
        vec![empty()],
        vec![empty(), empty(), empty()],
        vec![full(), empty(), full()],
        vec![full(), full(), one_byte_short],
    ] {
        for packets in [&batch[..], &batch[..1]] {
            let lengths: Vec<_> = buffers.iter().map(Vec::len).collect();
            // A batch of one packet uses the first buffer only.
            let fits = packets.len() == 1 && lengths.first() > Some(&150);
            let mut writes = 0;
            let Ok(written) = tun.write_batch(&mut buffers, packets, |_| {
                writes += 1;
                Ok::<_, Infallible>(())
            });
            let lost = if fits { 0 } else { packets.len() as u64 };
            assert_eq!(written.buffer_too_short, lost, "{lengths:?}");
            assert_eq!(written.stats.packets + lost, packets.len() as u64);
            assert_eq!(writes, written.stats.emitted);
        }
    }
}

#[test]
fn an_ack_and_a_packet_of_another_kind_are_written_alone() {
    let tun = TunOffload::tun();
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
    assert_eq!(written.stats.not_taken.get(NotTaken::Protocol), 1);
    assert_eq!(written.stats.not_taken.get(NotTaken::Malformed), 1);
}

#[test]
fn a_trusted_batch_is_not_summed() {
    let tun = TunOffload {
        verified: true,
        ..TunOffload::tun()
    };
    let batch = train(&Spec::tcp4(0), &[500; 4]);
    let (writes, written) = copied(&tun, 2, &batch);
    assert_eq!((writes.len(), written.stats.summed_bytes), (1, 0));
    assert_eq!(wire(&tun, &writes[0]), batch);
    let (_, written) = copied(&TunOffload::tun(), 2, &batch);
    assert_eq!(written.stats.summed_bytes, 2000);
}

#[test]
fn a_write_of_many_pieces_stays_within_what_writev_takes() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::tcp6(0), &[8; 1500]);
    let mut memory = batch.clone();
    let mut pieces = Pieces::new();
    let writes = tun.gather_batch(&mut pieces, &mut memory, 0);
    let counts: Vec<_> = writes.map(|write| write.slices().len()).collect();
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
        let tun = TunOffload { header: Some(FORMS[form]), ..TunOffload::tun() };
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
        // With few buffers too, and in the order of each flow: IP version and protocol.
        let flow = |packet: &[u8]| match packet[0] >> 4 {
            4 => (4, packet[9]),
            _ => (6, packet[6]),
        };
        for buffers in 1..4 {
            let (writes, _) = copied(&tun, buffers, &batch);
            let mut back: Vec<_> = writes.iter().flat_map(|write| wire(&tun, write)).collect();
            let mut there = batch.clone();
            back.sort_by_key(|packet| flow(packet));
            there.sort_by_key(|packet| flow(packet));
            prop_assert!(back == there, "{} buffers", buffers);
        }
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
        let tun = TunOffload::tun();
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
        let tun = TunOffload::tun();
        let (writes, written) = copied(&tun, 3, &batch);
        prop_assert_eq!(written.buffer_too_short, 0);
        let bytes: usize = writes.iter().map(|write| write.len() - 10).sum();
        prop_assert!(bytes <= batch.iter().map(Vec::len).sum());
        prop_assert_eq!(gathered(&tun, 12, &batch).0, writes);
    }
}

/// Where there is nothing to merge with nothing is read, and the counts add up.
#[test]
fn a_packet_alone_is_counted_as_any_other() {
    let tun = TunOffload::tun();
    let batch = train(&Spec::tcp4(0), &[100]);
    let all = [
        copied(&tun, 1, &batch).1.stats,
        copied(&tun, 4, &batch).1.stats,
        gathered(&tun, 0, &batch).1,
    ];
    for stats in all {
        let accounted = stats.flushes.total() + stats.not_taken.total();
        assert_eq!((stats.packets, stats.emitted, accounted), (1, 1, 1));
        assert_eq!(stats.summed_bytes, 0);
    }
}
