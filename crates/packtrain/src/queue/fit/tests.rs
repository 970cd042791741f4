//! Packets of n segments against limits, with exact outcomes.

use super::*;
use crate::driver::Capabilities;
use crate::packet::ArenaConfig;
use crate::plan::Mtu;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{Gso, GsoKind, LinkType};
use proptest::prelude::*;
use std::num::NonZeroU16;

fn arena(small_frames: u32, large_frames: u32) -> Arena {
    Arena::new(ArenaConfig {
        small_frames,
        large_frames,
        lines: 64,
    })
    .unwrap()
}

fn limits(segments: usize) -> FitLimits {
    FitLimits {
        segments_max: segments,
        gso_segments_max: segments,
        segment_bytes_max: usize::MAX,
        memory: TxMemory::Any,
        contiguous_headers: false,
        min_packet_bytes: 0,
        mtu: Mtu::new(LinkType::Ethernet, None, None),
        headroom: 1,
        fit: Fit::Defrag,
    }
}

fn numbered(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

fn in_pieces(arena: &Arena, lengths: &[usize]) -> Packet {
    let bytes = numbered(lengths.iter().sum());
    let mut packet = arena.empty_packet().unwrap();
    let mut at = 0;
    for &n in lengths {
        packet.add_frame(FrameClass::Small).unwrap();
        packet.tailroom_mut()[..n].copy_from_slice(&bytes[at..at + n]);
        packet.grow(n).unwrap();
        at += n;
    }
    packet
}

fn as_gso(packet: &mut Packet) {
    packet.meta_mut().gso = Some(Gso::new(GsoKind::TcpV4, NonZeroU16::new(1000).unwrap()));
}

#[track_caller]
fn assert_all_free(arena: &Arena) {
    let census = arena.census();
    assert_eq!(
        (census.small_used, census.large_used, census.lines_used),
        (0, 0, 0)
    );
    assert_eq!(census.small_free, arena.config().small_frames);
    assert_eq!(census.large_free, arena.config().large_frames);
    assert_eq!(census.lines_free, arena.config().lines);
}

#[test]
fn a_packet_within_the_limit_does_not_change() {
    let arena = arena(16, 0);
    for n in 1..=8 {
        let packet = in_pieces(&arena, &vec![100; n]);
        let at = packet.first().as_ptr();
        let (packet, how) = fit(packet, &limits(8), &arena).unwrap();
        assert_eq!(how, Fitted::AsIs);
        assert_eq!((packet.segment_count(), packet.first().as_ptr()), (n, at));
    }
}

#[test]
fn forty_small_pieces_collapse_in_place_into_eight() {
    let arena = arena(40, 0);
    let packet = in_pieces(&arena, &[13; 40]);
    let (packet, how) = fit(packet, &limits(8), &arena).unwrap();
    // All but the eight that stay are copied, and no frame was needed.
    assert_eq!(how, Fitted::Collapsed { copied: 32 * 13 });
    assert_eq!(packet.segment_count(), 8);
    assert_eq!(content(&packet), numbered(520));
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn forty_full_pieces_cannot_collapse_and_are_copied() {
    let arena = arena(48, 1);
    let packet = in_pieces(&arena, &[1500; 40]);
    let (packet, how) = fit(packet, &limits(8), &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 60_000 });
    assert_eq!(packet.segment_count(), 1);
    assert_eq!(content(&packet), numbered(60_000));
    assert_eq!(arena.census().small_used, 0, "the pieces were given back");
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn without_defrag_a_packet_that_cannot_collapse_is_returned_unchanged() {
    let arena = arena(48, 1);
    let limits = FitLimits {
        fit: Fit::Collapse,
        ..limits(8)
    };
    let unfit = fit(in_pieces(&arena, &[1500; 40]), &limits, &arena).unwrap_err();
    assert_eq!(unfit.reason, DropReason::TooManySegments);
    assert_eq!(content(&unfit.packet), numbered(60_000));
    drop(unfit);
    let (packet, how) = fit(in_pieces(&arena, &[13; 40]), &limits, &arena).unwrap();
    assert_eq!(how, Fitted::Collapsed { copied: 32 * 13 });
    // A packet that fails for another reason is copied.
    let small = FitLimits {
        memory: TxMemory::SmallFrames,
        ..limits
    };
    let mut large = arena.packet(FrameClass::Large).unwrap();
    large
        .append_copy(FrameClass::Large, &numbered(5000))
        .unwrap();
    let (large, how) = fit(large, &small, &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 5000 });
    drop((packet, large));
    assert_all_free(&arena);
}

#[test]
fn without_a_free_frame_the_packet_is_returned_and_the_next_one_fits() {
    let arena = arena(44, 0);
    let packet = in_pieces(&arena, &[1500; 40]);
    let unfit = fit(packet, &limits(8), &arena).unwrap_err();
    assert_eq!(unfit.reason, DropReason::NoBuffer);
    assert_eq!(content(&unfit.packet), numbered(60_000));
    drop(unfit);
    assert_all_free(&arena);
    let next = in_pieces(&arena, &[10; 9]);
    let (next, how) = fit(next, &limits(8), &arena).unwrap();
    assert_eq!(how, Fitted::Collapsed { copied: 10 });
    drop(next);
    assert_all_free(&arena);
}

#[test]
fn when_no_large_frame_is_free_small_ones_do_if_they_fit() {
    let arena = arena(16, 0);
    let packet = in_pieces(&arena, &[1000; 8]);
    let (packet, how) = fit(packet, &limits(5), &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 8000 });
    assert_eq!(packet.segment_count(), 8000_usize.div_ceil(1792));
    assert_eq!(content(&packet), numbered(8000));
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn shared_pieces_are_not_merged_into_but_copied() {
    let arena = arena(16, 1);
    let packet = in_pieces(&arena, &[10; 6]);
    let other_owner = packet.try_clone().unwrap();
    let (packet, how) = fit(packet, &limits(2), &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 60 });
    assert_eq!(packet.segment_count(), 1);
    assert!(packet.in_small_frames());
    assert_eq!(content(&packet), content(&other_owner));
    assert_eq!(other_owner.segment_count(), 6);
}

#[test]
fn a_packet_too_long_for_the_limits_is_refused() {
    let arena = arena(48, 2);
    let small_only = FitLimits {
        memory: TxMemory::SmallFrames,
        ..limits(8)
    };
    let unfit = fit(in_pieces(&arena, &[1500; 12]), &small_only, &arena).unwrap_err();
    assert_eq!(
        unfit.reason,
        DropReason::TooManySegments,
        "8 * 1792 < 18000"
    );
    drop(unfit);
    let (fitted, _) = fit(in_pieces(&arena, &[1194; 12]), &small_only, &arena).unwrap();
    assert_eq!((fitted.segment_count(), fitted.bytes()), (8, 14_328));
    drop(fitted);
    let short_pieces = FitLimits {
        segment_bytes_max: 100,
        ..limits(4)
    };
    let unfit = fit(in_pieces(&arena, &[401]), &short_pieces, &arena).unwrap_err();
    assert_eq!(unfit.reason, DropReason::TooManySegments);
    drop(unfit);
    let (fitted, how) = fit(in_pieces(&arena, &[400]), &short_pieces, &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 400 });
    assert_eq!(fitted.segments().map(<[u8]>::len).max(), Some(100));
    drop(fitted);
    assert_all_free(&arena);
}

#[test]
fn segments_of_at_most_64_kib_still_use_large_frames() {
    let arena = arena(48, 1);
    let limits = FitLimits {
        segment_bytes_max: 65_535,
        ..limits(4)
    };
    let (packet, how) = fit(in_pieces(&arena, &[1500; 40]), &limits, &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 60_000 });
    assert_eq!((packet.segment_count(), packet.bytes()), (1, 60_000));
}

#[test]
fn large_frames_are_copied_for_a_device_that_reads_small_ones_only() {
    let arena = arena(8, 1);
    let limits = FitLimits {
        memory: TxMemory::SmallFrames,
        ..limits(8)
    };
    let packet = arena.packet_from(&numbered(5000)).unwrap();
    let (packet, how) = fit(packet, &limits, &arena).unwrap();
    assert_eq!(how, Fitted::Defragged { copied: 5000 });
    assert!(packet.in_small_frames());
    assert_eq!(
        (packet.segment_count(), content(&packet)),
        (3, numbered(5000))
    );
}

#[test]
fn headers_are_made_contiguous_for_a_device_that_asks() {
    let arena = arena(16, 1);
    let limits = FitLimits {
        contiguous_headers: true,
        ..limits(8)
    };
    let mut bytes = vec![0; 20 + 20 + 60];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&100_u16.to_be_bytes());
    bytes[9] = 6;
    bytes[32] = 5 << 4;
    let layout = Layout::parse(LinkType::RawIp, &bytes, 100).unwrap();
    for split in 1..100 {
        let mut packet = arena.packet_from(&bytes[..split]).unwrap();
        packet
            .append(arena.packet_from(&bytes[split..]).unwrap())
            .unwrap();
        packet.meta_mut().layout = Some(layout);
        let (packet, how) = fit(packet, &limits, &arena).unwrap();
        assert_eq!(how == Fitted::AsIs, split >= 40, "split at {split}");
        assert!(packet.first().len() >= 40);
        assert_eq!(content(&packet), bytes);
        assert_eq!(packet.meta().layout, Some(layout));
    }
    // Without a layout the headers are unknown.
    let packet = in_pieces(&arena, &[1, 99]);
    assert_eq!(fit(packet, &limits, &arena).unwrap().1, Fitted::AsIs);
    assert_all_free(&arena);
}

/// A device may need all headers in one segment, and accept only segments shorter than some
/// headers.
#[test]
fn headers_longer_than_any_first_segment_are_a_drop_reason() {
    let arena = arena(16, 1);
    let limits = FitLimits {
        contiguous_headers: true,
        segment_bytes_max: 64,
        ..limits(8)
    };
    // Ethernet, IPv4 and TCP with options: 14 + 20 + from 20 to 60 bytes.
    for words in 5..=15_u8 {
        let mut bytes = vec![0; 200];
        bytes[12] = 8;
        bytes[14] = 0x45;
        bytes[17] = 186;
        bytes[23] = 6;
        bytes[46] = words << 4;
        let headers = 34 + 4 * usize::from(words);
        let layout = Layout::parse(LinkType::Ethernet, &bytes, 200).unwrap();
        assert_eq!(usize::from(layout.payload), headers);
        let mut packet = arena.packet_from(&bytes).unwrap();
        packet.meta_mut().layout = Some(layout);
        match fit(packet, &limits, &arena) {
            Ok((packet, how)) => {
                assert_eq!(how, Fitted::Defragged { copied: 200 });
                assert!(headers <= 64 && packet.first().len() == 64, "{headers}");
                assert_eq!(content(&packet), bytes);
            }
            Err(unfit) => {
                assert!(headers > 64, "{headers}");
                assert_eq!(unfit.reason, DropReason::HeadersTooLong);
                assert_eq!(content(&unfit.packet), bytes);
            }
        }
    }
    assert_all_free(&arena);
}

#[test]
fn gso_packets_and_others_have_limits_of_their_own() {
    let arena = arena(16, 1);
    for (ordinary, gso) in [(2, 6), (6, 2)] {
        let limits = FitLimits {
            segments_max: ordinary,
            gso_segments_max: gso,
            ..limits(1)
        };
        let packet = in_pieces(&arena, &[10; 6]);
        let (packet, _) = fit(packet, &limits, &arena).unwrap();
        assert_eq!(packet.segment_count(), ordinary);
        drop(packet);
        let mut packet = in_pieces(&arena, &[10; 6]);
        as_gso(&mut packet);
        let (packet, _) = fit(packet, &limits, &arena).unwrap();
        assert_eq!(packet.segment_count(), gso);
    }
}

#[test]
fn limits_are_at_most_a_twelfth_of_the_ring_and_at_least_one() {
    let device = |ring, ordinary, gso| Capabilities {
        tx_ring: ring,
        tx_segments_max: ordinary,
        tx_gso_segments_max: gso,
        ..Capabilities::default()
    };
    // (ring, ordinary, gso, user's limit) -> (ordinary, gso, advertised)
    let cases = [
        (Some(64), 40, 40, None, (5, 5, 4)),
        (Some(32), 40, 40, None, (2, 2, 1)),
        (Some(12), 40, 40, None, (1, 1, 1)),
        (Some(4), 40, 40, None, (1, 1, 1)),
        (Some(0), 0, 0, Some(0), (1, 1, 1)),
        (None, 40, 17, None, (40, 17, 16)),
        (None, 17, 40, None, (17, 40, 16)),
        (None, 40, 40, Some(8), (8, 8, 7)),
        (None, 1000, usize::MAX, None, (288, 288, 287)),
        (Some(1 << 20), 1000, 1000, Some(1000), (288, 288, 287)),
    ];
    for (ring, ordinary, gso, limit, wanted) in cases {
        let limits = FitLimits::new(&device(ring, ordinary, gso), limit);
        let got = (
            limits.segments_max,
            limits.gso_segments_max,
            limits.advertised(),
        );
        assert_eq!(got, wanted, "ring {ring:?}, {ordinary}, {gso}, {limit:?}");
    }
    let tables = Capabilities {
        tx_tables: true,
        ..device(Some(64), 40, 17)
    };
    let limits = FitLimits::new(&tables, None);
    assert_eq!((limits.segments_max, limits.gso_segments_max), (40, 17));
}

#[test]
fn a_packet_within_the_advertised_limit_is_never_copied() {
    let arena = arena(24, 0);
    for limit in 2..20 {
        let limits = limits(limit);
        let mut packet = in_pieces(&arena, &[1]);
        packet
            .append(in_pieces(&arena, &vec![1500; limits.advertised()]))
            .unwrap();
        let (packet, how) = fit(packet, &limits, &arena).unwrap();
        assert_eq!((how, packet.segment_count()), (Fitted::AsIs, limit));
    }
}

#[test]
fn a_short_packet_is_copied_before_padding_if_it_is_shared() {
    let arena = arena(8, 0);
    let limits = FitLimits {
        min_packet_bytes: 60,
        ..limits(1)
    };
    let arp = numbered(42);
    let mut padded = arp.clone();
    padded.resize(60, 0);
    let original = arena.packet_from(&arp).unwrap();
    let shared = original.try_clone().unwrap();
    let (packet, _) = fit(shared, &limits, &arena).unwrap();
    assert_eq!((packet.bytes(), packet.segment_count()), (60, 1));
    assert_eq!(content(&packet), padded);
    assert_eq!(content(&original), arp, "the shared frame is untouched");
    let at = original.first().as_ptr();
    drop(packet);
    let (packet, how) = fit(original, &limits, &arena).unwrap();
    assert_eq!(
        (how, packet.first().as_ptr()),
        (Fitted::AsIs, at),
        "in place"
    );
    assert_eq!(content(&packet), padded);
    drop(packet);
    for lengths in [&[14, 28][..], &[0, 42], &[42, 0], &[20, 1, 0, 21]] {
        let (packet, _) = fit(in_pieces(&arena, lengths), &limits, &arena).unwrap();
        assert_eq!(content(&packet), padded, "{lengths:?}");
        assert_eq!(packet.segments().count(), 1);
    }
    let (packet, how) = fit(in_pieces(&arena, &[60]), &limits, &arena).unwrap();
    assert_eq!((how, packet.bytes()), (Fitted::AsIs, 60));
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn padding_beyond_a_small_frame_works_too() {
    let arena = arena(8, 2);
    let limits = FitLimits {
        min_packet_bytes: 4000,
        ..limits(1)
    };
    for bytes in [10, 1792, 3000] {
        let packet = arena.packet_from(&numbered(bytes)).unwrap();
        let other_owner = packet.try_clone().unwrap();
        let (packet, _) = fit(packet, &limits, &arena).unwrap();
        let mut padded = numbered(bytes);
        padded.resize(4000, 0);
        assert_eq!((content(&packet), packet.segments().count()), (padded, 1));
        assert_eq!(content(&other_owner), numbered(bytes));
    }
    assert_all_free(&arena);
}

#[test]
fn a_header_prepended_to_a_fitted_packet_adds_no_segment() {
    let arena = arena(8, 0);
    let (mut packet, how) = fit(in_pieces(&arena, &[0, 0, 50]), &limits(1), &arena).unwrap();
    assert_eq!(how, Fitted::AsIs);
    packet.prepend(12).unwrap().fill(0xee);
    assert_eq!((packet.segments().count(), packet.first().len()), (1, 62));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_fitted_packet_is_within_every_limit_and_has_the_same_bytes(
        lengths in proptest::collection::vec(0..1700_usize, 1..30),
        segments in 1..12_usize,
        segment_bytes_max in prop_oneof![Just(usize::MAX), 200..4000_usize],
        small_only in any::<bool>(),
        min_packet_bytes in prop_oneof![Just(0), Just(60)],
        share in any::<bool>(),
        spare in 0..40_u32,
        large in 0..2_u32,
    ) {
        let arena = arena(lengths.len() as u32 + spare, large);
        let limits = FitLimits {
            segment_bytes_max,
            min_packet_bytes,
            memory: if small_only { TxMemory::SmallFrames } else { TxMemory::Any },
            ..limits(segments)
        };
        let packet = in_pieces(&arena, &lengths);
        let mut bytes = content(&packet);
        let original = bytes.clone();
        let clone = share.then(|| packet.try_clone().unwrap());
        match fit(packet, &limits, &arena) {
            Ok((packet, _)) => {
                bytes.resize(bytes.len().max(min_packet_bytes), 0);
                prop_assert_eq!(content(&packet), bytes);
                prop_assert!(packet.segments().count() <= segments);
                prop_assert!(packet.segments().all(|s| s.len() <= segment_bytes_max));
                prop_assert!(!small_only || packet.in_small_frames());
            }
            Err(unfit) => {
                let piece = segment_bytes_max.min(1792);
                prop_assert!(
                    unfit.reason == DropReason::NoBuffer
                        || bytes.len().div_ceil(piece) > segments
                );
            }
        }
        if let Some(clone) = clone {
            prop_assert_eq!(content(&clone), original);
        }
        assert_all_free(&arena);
    }
}

/// A prepended header would be one segment more than was counted.
#[test]
fn a_packet_with_an_empty_first_segment_is_not_accepted_unchanged() {
    let arena = arena(16, 0);
    let limits = limits(1);
    let mut packet = in_pieces(&arena, &[20, 100]);
    packet.trim_front(20);
    assert!(!limits.takes(&packet));
    let (mut packet, how) = fit(packet, &limits, &arena).unwrap();
    assert_eq!(how, Fitted::AsIs);
    assert!(limits.takes(&packet));
    packet.prepend(12).unwrap();
    assert_eq!(packet.segments().count(), 1);
}
