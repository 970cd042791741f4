//! Tests of the segmenter: the known cases, then random packets against segments that are built
//! from a description instead of being cut from a packet.

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use core::num::NonZeroU16;

use proptest::collection::vec as any_vec;
use proptest::prelude::*;

use super::*;
use crate::checksum;
use crate::offload::{Ecn, LinkType};
use crate::test_packets::{
    ACK, CWR, ECE, Ext, FIN, Field, PSH, RST, SYN, Spec, URG, bytes, slow_sum,
};

mod bugs;
mod contradictions;
mod tunnel;

fn gso_of(spec: &Spec, size: u16) -> Gso {
    let kind = match (spec.tcp, spec.ipv6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, false) => GsoKind::UdpV4,
        (false, true) => GsoKind::UdpV6,
    };
    let ecn = match (spec.tcp && spec.flags & CWR != 0, spec.accurate_ecn) {
        (_, true) => Ecn::Accurate,
        (true, false) => Ecn::Cwr,
        (false, false) => Ecn::None,
    };
    let gso = Gso::new(kind, NonZeroU16::new(size).unwrap()).with_ecn(ecn);
    if spec.fixed_id {
        gso.with_fixed_id()
    } else {
        gso
    }
}

fn layout_of(link: LinkType, packet: &[u8]) -> Layout {
    Layout::parse(link, packet, packet.len() as u32).unwrap()
}

fn segmenter(spec: &Spec, packet: &[u8], size: u16) -> Result<Segmenter, SegmentError> {
    let layout = layout_of(spec.link, packet);
    Segmenter::new(packet, &layout, gso_of(spec, size), packet.len() as u32)
}

/// All segments, and their checksum states.
fn cut(segmenter: &Segmenter, packet: &[u8], complete: bool) -> Vec<(Vec<u8>, ChecksumState)> {
    (0..segmenter.segments())
        .map(|index| {
            let range = segmenter.payload(index);
            let payload = &packet[range.start as usize..range.end as usize];
            let fill = if complete {
                Fill::Complete {
                    payload: checksum::sum(payload),
                }
            } else {
                Fill::Partial
            };
            let mut segment = vec![0xa5; segmenter.header_bytes()];
            let state = segmenter
                .write_header(index, packet, &mut segment, fill)
                .unwrap();
            segment.extend_from_slice(payload);
            (segment, state)
        })
        .collect()
}

/// The segments, finished.
fn segments(spec: &Spec, size: u16) -> Vec<Vec<u8>> {
    let packet = spec.build(Field::Preload);
    let segmenter = segmenter(spec, &packet, size).unwrap();
    cut(&segmenter, &packet, true)
        .into_iter()
        .map(|(segment, _)| segment)
        .collect()
}

/// The description of every segment: the slow reference.
fn describe_segments(spec: &Spec, size: usize) -> Vec<Spec> {
    let count = spec.payload.len().div_ceil(size).max(1);
    (0..count)
        .map(|i| {
            let chunk = spec
                .payload
                .iter()
                .skip(i * size)
                .take(size)
                .copied()
                .collect();
            let mut flags = spec.flags;
            if i != 0 && !spec.accurate_ecn {
                flags &= !CWR;
            }
            if i != count - 1 {
                flags &= !(FIN | PSH);
            }
            Spec {
                id: if spec.fixed_id {
                    spec.id
                } else {
                    ((usize::from(spec.id) + i) % 65_536) as u16
                },
                sequence: ((u64::from(spec.sequence) + (i * size) as u64) % (1 << 32)) as u32,
                flags,
                payload: chunk,
                ..spec.clone()
            }
        })
        .collect()
}

fn assert_reference(spec: &Spec, size: u16) {
    let packet = spec.build(Field::Preload);
    let segmenter = segmenter(spec, &packet, size).unwrap();
    let expected = describe_segments(spec, usize::from(size));
    assert_eq!(segmenter.segments() as usize, expected.len());
    let complete = cut(&segmenter, &packet, true);
    let partial = cut(&segmenter, &packet, false);
    let left = ChecksumState::Partial {
        start: spec.transport() as u16,
        offset: spec.checksum_offset(),
    };
    for (i, segment) in expected.iter().enumerate() {
        assert_eq!(
            complete[i].0,
            segment.build(Field::Final),
            "segment {i}, finished"
        );
        assert_eq!(complete[i].1, ChecksumState::Unnecessary);
        assert_eq!(
            partial[i].0,
            segment.build(Field::Preload),
            "segment {i}, partial"
        );
        assert_eq!(partial[i].1, left);
        let mut whole = vec![0xa5; segmenter.wire_bytes(i as u32) + 3];
        let bytes = segmenter
            .write_segment(i as u32, &packet, &mut whole)
            .unwrap();
        assert_eq!(whole[..bytes], complete[i].0, "segment {i}, in one call");
        assert_eq!(whole[bytes..], [0xa5; 3], "and nothing behind it");
    }
}

/// Big-endian field of a segment on a raw IP link without options.
fn word(segment: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([segment[at], segment[at + 1]])
}

fn sequence(segment: &[u8], tcp: usize) -> u32 {
    u32::from_be_bytes(segment[tcp + 4..tcp + 8].try_into().unwrap())
}

#[test]
fn g1_fin_and_psh_on_the_last_and_ids_wrap() {
    let spec = Spec {
        id: 65_535,
        flags: FIN | PSH | ACK,
        ..Spec::tcp4(3000)
    };
    let wire = segments(&spec, 1000);
    assert_eq!(wire.len(), 3);
    assert_eq!(
        wire.iter().map(|s| word(s, 4)).collect::<Vec<_>>(),
        [65_535, 0, 1]
    );
    assert_eq!(
        wire.iter().map(|s| s[33]).collect::<Vec<_>>(),
        [ACK, ACK, FIN | PSH | ACK]
    );
    assert_eq!(
        wire.iter().map(|s| sequence(s, 20)).collect::<Vec<_>>(),
        [1, 1001, 2001]
    );
    assert_reference(&spec, 1000);
}

#[test]
fn g2_cwr_on_the_first_and_a_tail_of_one_byte() {
    let spec = Spec {
        flags: CWR | ECE | ACK,
        ..Spec::tcp4(2001)
    };
    let wire = segments(&spec, 1000);
    assert_eq!(
        wire.iter().map(Vec::len).collect::<Vec<_>>(),
        [1040, 1040, 41]
    );
    assert_eq!(
        wire.iter().map(|s| s[33]).collect::<Vec<_>>(),
        [CWR | ECE | ACK, ECE | ACK, ECE | ACK]
    );
    assert_reference(&spec, 1000);
}

#[test]
fn cwr_is_cleared_without_the_ecn_bit_too() {
    let spec = Spec {
        flags: CWR | ACK,
        ..Spec::tcp4(2000)
    };
    let packet = spec.build(Field::Preload);
    let layout = layout_of(spec.link, &packet);
    let gso = gso_of(&spec, 1000).with_ecn(Ecn::None);
    let segmenter = Segmenter::new(&packet, &layout, gso, packet.len() as u32).unwrap();
    let wire = cut(&segmenter, &packet, true);
    assert_eq!((wire[0].0[33], wire[1].0[33]), (CWR | ACK, ACK));
}

#[test]
fn accurate_ecn_keeps_cwr_on_every_segment() {
    for base in [Spec::tcp4(2001), Spec::tcp6(2001)] {
        let spec = Spec {
            flags: CWR | ECE | ACK,
            accurate_ecn: true,
            ..base
        };
        let at = spec.transport() + 13;
        assert!(
            segments(&spec, 1000)
                .iter()
                .all(|s| s[at] == CWR | ECE | ACK)
        );
        assert_reference(&spec, 1000);
    }
}

#[test]
fn accurate_ecn_sets_no_cwr() {
    let spec = Spec {
        flags: ECE | ACK,
        accurate_ecn: true,
        ..Spec::tcp4(2001)
    };
    assert!(segments(&spec, 1000).iter().all(|s| s[33] == ECE | ACK));
}

#[test]
fn g3_ipv6_payload_length_counts_extension_headers() {
    let spec = Spec {
        exts: vec![Ext::Destination(1)],
        ..Spec::tcp6(2500)
    };
    let wire = segments(&spec, 1000);
    let lengths: Vec<_> = wire.iter().map(|s| word(s, 4)).collect();
    assert_eq!(lengths, [1028, 1028, 528]);
    let packet = spec.build(Field::Preload);
    assert!(wire.iter().all(|s| s[40..48] == packet[40..48]));
    assert_reference(&spec, 1000);
}

#[test]
fn g4_sequence_numbers_wrap() {
    let spec = Spec {
        sequence: 0xffff_ff00,
        ..Spec::tcp4(2000)
    };
    let wire = segments(&spec, 1000);
    assert_eq!(sequence(&wire[1], 20), 0x0000_02e8);
    assert_reference(&spec, 1000);
}

#[test]
fn g5_tcp_options_are_on_every_segment() {
    let options = vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let spec = Spec {
        tcp_options: options.clone(),
        ..Spec::tcp4(3000)
    };
    let wire = segments(&spec, 1448);
    assert_eq!(
        wire.iter().map(Vec::len).collect::<Vec<_>>(),
        [1500, 1500, 156]
    );
    assert!(wire.iter().all(|s| s[40..52] == options));
    assert_reference(&spec, 1448);
}

#[test]
fn g6_both_vlan_tags_are_on_every_segment() {
    for vlans in [vec![0x8100], vec![0x88a8, 0x8100]] {
        let spec = Spec {
            vlans,
            ..Spec::tcp4(3000).ethernet()
        };
        let packet = spec.build(Field::Preload);
        let link = spec.network();
        assert!(
            segments(&spec, 1000)
                .iter()
                .all(|s| s[..link] == packet[..link])
        );
        assert_reference(&spec, 1000);
    }
}

#[test]
fn an_ipoib_header_is_on_every_segment() {
    for spec in [
        Spec::tcp4(3000),
        Spec::tcp6(3000),
        Spec::udp4(3000),
        Spec::udp6(3000),
    ] {
        let spec = spec.ipoib();
        let packet = spec.build(Field::Preload);
        let wire = segments(&spec, 1000);
        assert_eq!(wire.len(), 3);
        assert!(wire.iter().all(|s| s[..4] == packet[..4]));
        assert_reference(&spec, 1000);
    }
}

#[test]
fn g7_a_payload_of_one_mss_is_one_finished_packet() {
    for spec in [
        Spec::tcp4(1000),
        Spec::tcp6(1000),
        Spec::udp4(1000),
        Spec::udp6(1000),
    ] {
        for size in [1000, 1001, 65_535] {
            assert_eq!(segments(&spec, size), [spec.build(Field::Final)]);
        }
    }
}

#[test]
fn g8_sums_are_right_for_every_odd_size() {
    for spec in [
        Spec::tcp4(1999),
        Spec::tcp6(1999),
        Spec::udp4(1999),
        Spec::udp6(1999),
    ] {
        for size in (33..1999).step_by(62) {
            assert_reference(&spec, size);
        }
    }
}

#[test]
fn g10_a_wrong_preloaded_sum_changes_nothing() {
    for spec in [
        Spec::tcp4(3000),
        Spec::tcp6(3000),
        Spec::udp4(3000),
        Spec::udp6(3000),
    ] {
        let good = segments(&spec, 999);
        for value in [0, 1, 0xffff, 0x1234] {
            let packet = spec.build(Field::Value(value));
            let segmenter = segmenter(&spec, &packet, 999).unwrap();
            let wire = cut(&segmenter, &packet, true);
            assert!(wire.iter().map(|(segment, _)| segment).eq(good.iter()));
        }
    }
}

#[test]
fn g11_full_ipv4_options_are_on_every_segment() {
    let mut options = vec![1; 39];
    options.push(0);
    let spec = Spec {
        ip_options: options.clone(),
        ..Spec::tcp4(3000)
    };
    let wire = segments(&spec, 1000);
    assert!(wire.iter().all(|s| s[0] == 0x4f && s[20..60] == options));
    assert!(
        wire.iter().all(|s| slow_sum(&s[..60]) == 0xffff),
        "header checksum"
    );
    assert_reference(&spec, 1000);
}

#[test]
fn g12_a_tiny_mss_is_refused() {
    let refused = |spec: &Spec, packet: &[u8], size| {
        let made = segmenter(spec, packet, size);
        assert_eq!(made, Err(SegmentError::TooManySegments), "{size}");
    };
    // 48 is the lowest value that Linux sends with; 36 with timestamps in it, 8 with all other
    // options.
    let spec = Spec::tcp4(65_495);
    let packet = spec.build(Field::Preload);
    refused(&spec, &packet, 1);
    refused(&spec, &packet, 7);
    for (size, segments) in [(8, 8187), (36, 1820), (48, 1365)] {
        assert_eq!(
            segmenter(&spec, &packet, size).unwrap().segments(),
            segments
        );
    }
    let spec = Spec::udp4(65_000);
    let packet = spec.build(Field::Preload);
    refused(&spec, &packet, 1);
    refused(&spec, &packet, 507);
    for (size, segments) in [(508, 128), (1016, 64)] {
        assert_eq!(
            segmenter(&spec, &packet, size).unwrap().segments(),
            segments
        );
    }
}

#[test]
fn u8_three_datagrams_with_ids_in_order() {
    let spec = Spec::udp4(2500);
    let wire = segments(&spec, 1000);
    assert_eq!(
        wire.iter().map(|s| word(s, 4)).collect::<Vec<_>>(),
        [100, 101, 102]
    );
    assert_eq!(
        wire.iter().map(|s| word(s, 24)).collect::<Vec<_>>(),
        [1008, 1008, 508]
    );
    assert_reference(&spec, 1000);
}

#[test]
fn u9_a_udp_sum_of_zero_is_sent_as_ffff() {
    for mut spec in [Spec::udp4(2000), Spec::udp6(2000)] {
        // The last word of each segment is the complement of the rest of its sum.
        for chunk in [0..1000, 1000..2000] {
            let end = chunk.end;
            spec.payload[end - 2..end].fill(0);
            let segment = Spec {
                payload: spec.payload[chunk].to_vec(),
                ..spec.clone()
            };
            let wire = segment.build(Field::Final);
            let field = word(&wire, segment.transport() + 6);
            spec.payload[end - 2..end].copy_from_slice(&field.to_be_bytes());
        }
        let wire = segments(&spec, 1000);
        let at = spec.transport() + 6;
        assert_eq!((word(&wire[0], at), word(&wire[1], at)), (0xffff, 0xffff));
        assert_reference(&spec, 1000);
    }
}

#[test]
fn a_tcp_sum_of_zero_stays_zero() {
    let mut spec = Spec::tcp4(1000);
    spec.payload[998..].fill(0);
    let field = word(&spec.build(Field::Final), 36);
    spec.payload[998..].copy_from_slice(&field.to_be_bytes());
    assert_eq!(word(&segments(&spec, 1000)[0], 36), 0);
}

#[test]
fn wire_bytes_of_54_and_2921_are_3083() {
    let spec = Spec::tcp4(2921).ethernet();
    let wire = segments(&spec, 1460);
    assert_eq!(wire.len(), 3);
    assert_eq!(wire.iter().map(Vec::len).sum::<usize>(), 2921 + 3 * 54);
}

#[test]
fn what_is_not_patched_is_copied_urg_included() {
    let spec = Spec {
        flags: URG | ACK,
        ..Spec::tcp4(2500)
    };
    assert_reference(&spec, 1000);
    assert!(
        segments(&spec, 1000)
            .iter()
            .all(|s| s[33] & URG != 0 && word(s, 38) == 5)
    );
}

#[test]
fn syn_and_rst_are_refused_on_more_than_one_segment() {
    for flag in [SYN, RST] {
        let spec = Spec {
            flags: flag | ACK,
            ..Spec::tcp4(2000)
        };
        let packet = spec.build(Field::Preload);
        assert_eq!(segmenter(&spec, &packet, 1999), Err(SegmentError::TcpFlags));
        assert_eq!(segmenter(&spec, &packet, 2000).unwrap().segments(), 1);
    }
}

#[test]
fn a_fixed_id_needs_df() {
    let spec = Spec {
        id: 77,
        ..Spec::tcp4(3000)
    };
    let packet = spec.build(Field::Preload);
    let fixed = segmenter(&spec, &packet, 1000)
        .unwrap()
        .with_fixed_id(&packet)
        .unwrap();
    assert!(
        cut(&fixed, &packet, true)
            .iter()
            .all(|(s, _)| word(s, 4) == 77)
    );
    for (segment, _) in cut(&fixed, &packet, true) {
        assert_eq!(slow_sum(&segment[..20]), 0xffff);
    }
    assert_reference(
        &Spec {
            fixed_id: true,
            ..spec
        },
        1000,
    );
    for spec in [
        Spec {
            df: false,
            ..Spec::tcp4(3000)
        },
        Spec::tcp6(3000),
    ] {
        let packet = spec.build(Field::Preload);
        let counting = segmenter(&spec, &packet, 1000).unwrap();
        assert_eq!(counting.with_fixed_id(&packet), Err(SegmentError::FixedId));
        let fixed = Spec {
            fixed_id: true,
            ..spec
        };
        assert_eq!(segmenter(&fixed, &packet, 1000), Err(SegmentError::FixedId));
    }
}

#[test]
fn routing_headers_use_the_final_destination() {
    for ext in [Ext::Routing2, Ext::SegmentRouting, Ext::SegmentRoutingDone] {
        for exts in [vec![ext], vec![Ext::HopByHop, ext, Ext::Destination(2)]] {
            assert_reference(
                &Spec {
                    exts: exts.clone(),
                    ..Spec::tcp6(3000)
                },
                999,
            );
            assert_reference(
                &Spec {
                    exts,
                    ..Spec::udp6(3000).ethernet()
                },
                999,
            );
        }
    }
}

#[test]
fn an_unknown_routing_type_with_segments_left_is_refused() {
    let spec = Spec {
        exts: vec![Ext::Routing2],
        ..Spec::tcp6(3000)
    };
    let mut packet = spec.build(Field::Preload);
    packet[42] = 3;
    assert_eq!(
        segmenter(&spec, &packet, 1000),
        Err(SegmentError::SourceRoute)
    );
    packet[43] = 0;
    assert!(segmenter(&spec, &packet, 1000).is_ok());
}

#[test]
fn an_ipv4_source_route_uses_its_last_address() {
    // A strict route of two addresses, none visited; the pseudo-header ends in 198.18.9.9.
    let mut options = vec![1, 137, 11, 4, 198, 18, 7, 7, 198, 18, 9, 9];
    let spec = Spec {
        ip_options: options.clone(),
        ..Spec::udp4(100)
    };
    let packet = spec.build(Field::Preload);
    let wire = cut(&segmenter(&spec, &packet, 100).unwrap(), &packet, true);
    let mut summed = vec![198, 18, 0, 1, 198, 18, 9, 9, 0, 17, 0, 108];
    summed.extend_from_slice(&wire[0].0[32..]);
    assert_eq!(slow_sum(&summed), 0xffff);
    // Used up: the header's destination counts.
    options[3] = 12;
    assert_reference(
        &Spec {
            ip_options: options,
            ..spec.clone()
        },
        50,
    );
    // Too short to hold an address, and yet not used up.
    let spec = Spec {
        ip_options: vec![131, 3, 3, 0],
        ..spec
    };
    let packet = spec.build(Field::Preload);
    assert_eq!(
        segmenter(&spec, &packet, 50),
        Err(SegmentError::SourceRoute)
    );
}

#[test]
fn link_padding_is_in_no_segment() {
    let spec = Spec::tcp4(2500).ethernet();
    let mut packet = spec.build(Field::Preload);
    packet.extend([0xee; 7]);
    let segmenter = segmenter(&spec, &packet, 1000).unwrap();
    let wire = cut(&segmenter, &packet, true);
    let expected = describe_segments(&spec, 1000);
    assert!(
        wire.iter().map(|w| &w.0).eq(expected
            .iter()
            .map(|s| s.build(Field::Final))
            .collect::<Vec<_>>()
            .iter())
    );
}

#[test]
fn the_wrong_kind_is_refused() {
    let specs = [
        Spec::tcp4(3000),
        Spec::tcp6(3000),
        Spec::udp4(3000),
        Spec::udp6(3000),
    ];
    for spec in &specs {
        let packet = spec.build(Field::Preload);
        let layout = layout_of(spec.link, &packet);
        for other in &specs {
            let gso = gso_of(other, 1000);
            let made = Segmenter::new(&packet, &layout, gso, packet.len() as u32);
            if gso.kind == gso_of(spec, 1000).kind {
                assert!(made.is_ok());
            } else {
                assert_eq!(made, Err(SegmentError::Kind));
            }
        }
    }
}

#[test]
fn fragments_are_refused() {
    let spec = Spec::udp4(3000);
    let mut packet = spec.build(Field::Preload);
    packet[6] = 0x20;
    let layout = layout_of(spec.link, &packet);
    let made = Segmenter::new(&packet, &layout, gso_of(&spec, 1000), packet.len() as u32);
    assert_eq!(made, Err(SegmentError::Fragment));
}

#[test]
fn lying_lengths_are_refused() {
    let spec = Spec::udp4(3000);
    let mut packet = spec.build(Field::Preload);
    let layout = layout_of(spec.link, &packet);
    let gso = gso_of(&spec, 1000);
    let made = Segmenter::new(&packet, &layout, gso, packet.len() as u32 - 1);
    assert_eq!(made, Err(SegmentError::Length));
    let made = Segmenter::new(&packet[..27], &layout, gso, packet.len() as u32);
    assert_eq!(made, Err(SegmentError::Headers));
    let longer = Layout {
        payload: layout.payload + 4,
        ..layout
    };
    let made = Segmenter::new(&packet, &longer, gso, packet.len() as u32);
    assert_eq!(made, Err(SegmentError::Headers));
    packet[25] -= 1;
    let made = Segmenter::new(&packet, &layout, gso, packet.len() as u32);
    assert_eq!(made, Err(SegmentError::UdpLength));
    let jumbo = Layout {
        ip_end: 200_000,
        ..layout
    };
    let large = Gso::new(gso.kind, NonZeroU16::new(65_535).unwrap());
    let made = Segmenter::new(&packet, &jumbo, large, 200_000);
    assert_eq!(made, Err(SegmentError::Length));
}

#[test]
fn short_buffers_and_wrong_numbers_write_nothing() {
    let spec = Spec::tcp4(3000);
    let packet = spec.build(Field::Preload);
    let segmenter = segmenter(&spec, &packet, 1000).unwrap();
    let mut out = [0xa5; 40];
    let write = |index, headers: &[u8], out: &mut [u8]| {
        segmenter.write_header(index, headers, out, Fill::Partial)
    };
    assert_eq!(write(3, &packet, &mut out), Err(SegmentError::Index));
    assert_eq!(write(0, &packet[..39], &mut out), Err(SegmentError::Buffer));
    assert_eq!(write(0, &packet, &mut out[..39]), Err(SegmentError::Buffer));
    assert_eq!(write(0, &packet, &mut []), Err(SegmentError::Buffer));
    assert_eq!(out, [0xa5; 40]);
    assert!(write(2, &packet, &mut out).is_ok());
    let write = |index, packet: &[u8], out: &mut [u8]| segmenter.write_segment(index, packet, out);
    let mut out = [0xa5; 1040];
    assert_eq!(write(3, &packet, &mut out), Err(SegmentError::Index));
    // Errors that do not depend on the buffers are reported first.
    assert_eq!(write(3, &packet, &mut []), Err(SegmentError::Index));
    assert_eq!(
        write(2, &packet[..3039], &mut out),
        Err(SegmentError::Buffer)
    );
    assert_eq!(
        write(0, &packet, &mut out[..1039]),
        Err(SegmentError::Buffer)
    );
    assert_eq!(out, [0xa5; 1040]);
    assert_eq!(write(2, &packet, &mut out), Ok(1040));
    assert_eq!(segmenter.wire_bytes(2), 1040);
    assert_eq!(segmenter.payload(2), 2040..3040);
    assert_eq!(segmenter.payload(3), 3040..3040);
    assert_eq!(segmenter.payload(u32::MAX), 3040..3040);
}

#[test]
fn reasons_are_distinct_words() {
    let mut reasons: Vec<_> = SegmentError::ALL
        .iter()
        .map(|error| error.reason())
        .collect();
    for (error, reason) in SegmentError::ALL.iter().zip(&reasons) {
        assert!(
            reason.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{reason}"
        );
        assert!(error.to_string().ends_with(reason));
    }
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), SegmentError::ALL.len());
}

#[test]
fn finish_partial_is_never_zero_for_udp() {
    let all_ones = checksum::sum(&[0xff, 0xff]);
    assert_eq!(finish_partial(all_ones, true), 0xffff);
    assert_eq!(finish_partial(all_ones, false), 0);
    assert_eq!(finish_partial(Sum::new(), true), 0xffff);
    for spec in [
        Spec::tcp4(777),
        Spec::tcp6(777),
        Spec::udp4(777),
        Spec::udp6(777),
    ] {
        let packet = spec.build(Field::Preload);
        let field = finish_partial(checksum::sum(&packet[spec.transport()..]), !spec.tcp);
        let finished = spec.build(Field::Final);
        assert_eq!(
            field,
            word(
                &finished,
                spec.transport() + usize::from(spec.checksum_offset())
            )
        );
    }
}

/// An independent parser and its sums agree (the reference above shares only the field positions).
#[test]
fn etherparse_accepts_every_segment() {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    for spec in [
        Spec::tcp4(4001),
        Spec::tcp6(4001),
        Spec::udp4(4001),
        Spec::udp6(4001),
    ] {
        for segment in segments(&spec, 1333) {
            let sliced = SlicedPacket::from_ip(&segment).unwrap();
            match (sliced.net.unwrap(), sliced.transport.unwrap()) {
                (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
                    let ip = ip.header();
                    assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
                    let sum = tcp
                        .to_header()
                        .calc_checksum_ipv4(&ip.to_header(), tcp.payload());
                    assert_eq!(sum.unwrap(), tcp.checksum());
                }
                (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
                    let ip = ip.header().to_header();
                    let sum = tcp.to_header().calc_checksum_ipv6(&ip, tcp.payload());
                    assert_eq!(sum.unwrap(), tcp.checksum());
                }
                (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
                    let ip = ip.header().to_header();
                    let sum = udp.to_header().calc_checksum_ipv4(&ip, udp.payload());
                    assert_eq!(sum.unwrap(), udp.checksum());
                }
                (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
                    let ip = ip.header().to_header();
                    let sum = udp.to_header().calc_checksum_ipv6(&ip, udp.payload());
                    assert_eq!(sum.unwrap(), udp.checksum());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn any_ext() -> impl Strategy<Value = Ext> {
    prop_oneof![
        Just(Ext::HopByHop),
        (1_u8..4).prop_map(Ext::Destination),
        Just(Ext::SegmentRoutingDone),
    ]
}

prop_compose! {
    fn any_spec()(
        link in prop_oneof![Just(LinkType::Ethernet), Just(LinkType::RawIp), Just(LinkType::Ipoib)],
        (ipv6, tcp, df, fixed, accurate_ecn) in any::<(bool, bool, bool, bool, bool)>(),
        vlans in any_vec(prop_oneof![Just(0x8100_u16), Just(0x88a8)], 0..=2),
        (id, sequence) in any::<(u16, u32)>(),
        flags in any::<u8>().prop_map(|flags| flags & !(SYN | RST)),
        option_words in 0_usize..=10,
        mut exts in any_vec(any_ext(), 0..=3),
        last in prop_oneof![3 => Just(None), 1 => Just(Some(Ext::Routing2)),
            1 => Just(Some(Ext::SegmentRouting))],
        tcp_option_words in 0_usize..=10,
        payload in any_vec(any::<u8>(), 0..6000),
    ) -> Spec {
        exts.extend(last);
        Spec {
            link,
            vlans,
            ipv6,
            tcp,
            id,
            df,
            fixed_id: fixed && df && !ipv6,
            accurate_ecn,
            ip_options: vec![1; option_words * 4],
            exts: if ipv6 { exts } else { vec![] },
            sequence,
            flags,
            tcp_options: bytes(tcp_option_words * 4),
            payload,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_packets_equal_the_reference(spec in any_spec(), size in 8_u16..3000) {
        let count = spec.payload.len().div_ceil(usize::from(size));
        prop_assume!(spec.tcp || count <= 64);
        assert_reference(&spec, size);
    }

    /// For any bytes and any layout, which need not belong together.
    #[test]
    fn no_bytes_and_no_layout_panic(
        spec in any_spec(),
        garbage in any_vec(any::<u8>(), 0..200),
        flips in any_vec((0_usize..160, any::<u8>()), 0..8),
        size in 1_u16..,
        kind in 0_usize..4,
        cut_at in any::<u16>(),
        index in 0_u32..70,
    ) {
        let mut packet = spec.build(Field::Preload);
        for (at, value) in flips {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let whole = packet.len() as u32;
        packet.truncate(usize::from(cut_at).max(60));
        let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpV4, GsoKind::UdpV6][kind];
        let gso = Gso::new(kind, NonZeroU16::new(size).unwrap());
        let Ok(layout) = Layout::parse(spec.link, &packet, whole) else { return Ok(()) };
        for headers in [&packet[..], &garbage[..]] {
            let Ok(segmenter) = Segmenter::new(headers, &layout, gso, whole) else { continue };
            let mut out = vec![0; segmenter.header_bytes()];
            for index in [index, segmenter.segments() - 1] {
                let range = segmenter.payload(index);
                prop_assert!(range.start <= range.end && range.end <= layout.ip_end);
                for bytes in [headers, &garbage[..]] {
                    let fill = Fill::Complete { payload: Sum::new() };
                    let wrote = segmenter.write_header(index, bytes, &mut out, fill);
                    let fits = index < segmenter.segments() && bytes.len() >= out.len();
                    prop_assert_eq!(wrote.is_ok(), fits);
                }
            }
        }
    }
}
