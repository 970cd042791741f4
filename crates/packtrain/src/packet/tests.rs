//! Packets compared with a model of bytes and counted frames.

use super::arena::{LARGE_CACHED_MAX, SMALL_CACHED_MAX};
use super::*;
use crate::time::WallTime;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;

mod model;

const SMALL: FrameClass = FrameClass::Small;
const LARGE: FrameClass = FrameClass::Large;
const SMALL_DATA: usize = FrameClass::Small.data_bytes();

fn arena(small_frames: u32, large_frames: u32, lines: u32) -> Arena {
    Arena::new(ArenaConfig {
        small_frames,
        large_frames,
        lines,
    })
    .unwrap()
}

fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

/// `n` bytes that differ from adjacent ones. Made by whole copies, since Miri is slow.
fn numbered(n: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..251_u32).map(|i| (i * 7) as u8).collect();
    let mut bytes = pattern.repeat(n / pattern.len() + 1);
    bytes.truncate(n);
    bytes
}

/// A packet whose segments have exactly these lengths, each in its own small frame.
fn in_pieces(arena: &Arena, lengths: &[usize]) -> Packet {
    let bytes = numbered(lengths.iter().sum());
    let mut packet = arena.empty_packet().unwrap();
    let mut at = 0;
    for &n in lengths {
        packet.add_frame(SMALL).unwrap();
        packet.tailroom_mut()[..n].copy_from_slice(&bytes[at..at + n]);
        packet.grow(n).unwrap();
        at += n;
    }
    packet
}

#[test]
fn a_merged_packet_has_the_time_of_its_first_one_and_a_clone_has_the_same() {
    let arena = arena(4, 0, 4);
    let [mut first, mut second] = [1, 2].map(|ns| {
        let mut packet = in_pieces(&arena, &[10]);
        packet.meta_mut().timestamp = Some(WallTime::from_nanos(ns));
        packet
    });
    second = second.try_clone().unwrap();
    assert_eq!(second.meta().timestamp, Some(WallTime::from_nanos(2)));
    first.append_part(second, 0..10).unwrap();
    assert_eq!(first.meta().timestamp, Some(WallTime::from_nanos(1)));
    assert_eq!(arena.empty_packet().unwrap().meta().timestamp, None);
}

#[track_caller]
fn assert_all_free(arena: &Arena) {
    let config = arena.config();
    let all_free = Census {
        small_free: config.small_frames,
        small_used: 0,
        large_free: config.large_frames,
        large_used: 0,
        lines_free: config.lines,
        lines_used: 0,
    };
    assert_eq!(arena.census(), all_free);
}

#[test]
fn a_new_packet_has_full_headroom_and_the_rest_as_tailroom() {
    let arena = arena(4, 1, 4);
    for class in [SMALL, LARGE] {
        let mut packet = arena.packet(class).unwrap();
        assert!(packet.is_empty());
        assert_eq!((packet.bytes(), packet.segment_count()), (0, 1));
        assert_eq!(packet.headroom(), HEADROOM_BYTES);
        assert_eq!(packet.tailroom_mut().len(), class.data_bytes());
        assert_eq!(packet.first(), b"");
        assert_eq!(packet.segments().count(), 0);
        assert!(packet.in_small_frames(), "no byte is anywhere else");
        packet.append_copy(class, b"x").unwrap();
        assert_eq!(packet.in_small_frames(), class == SMALL);
    }
    assert_all_free(&arena);
}

#[test]
fn every_operation_works_on_a_packet_without_segments() {
    let arena = arena(2, 0, 4);
    let mut packet = arena.empty_packet().unwrap();
    assert_eq!((packet.bytes(), packet.segment_count()), (0, 0));
    assert_eq!(packet.headroom(), 0);
    assert_eq!(packet.tailroom_mut(), &mut [] as &mut [u8]);
    assert_eq!(packet.grow(0), Ok(()));
    assert_eq!(packet.grow(1), Err(PacketError::OutOfRange));
    assert_eq!(packet.prepend(0), Err(PacketError::NoHeadroom));
    assert_eq!(packet.headers_mut(0), Err(PacketError::NotWritable));
    packet.trim_front(1);
    packet.truncate(0);
    assert!(packet.collapse(0));
    packet.drop_empty_front();
    assert_eq!(packet.pieces(0..0).unwrap().count(), 0);
    assert_eq!(packet.copy_to(&mut [0; 4]), 0);
    let clone = packet.try_clone().unwrap();
    assert_eq!(clone.segment_count(), 0);
    packet.append(clone).unwrap();
    assert_eq!(packet.segment_count(), 0);
    packet.append_copy(SMALL, b"").unwrap();
    assert_eq!((packet.bytes(), packet.segment_count()), (0, 1));
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn packet_from_takes_the_smallest_class_that_holds_the_bytes() {
    let arena = arena(2, 2, 4);
    let small = arena.packet_from(&numbered(SMALL_DATA)).unwrap();
    assert_eq!((small.segment_count(), small.in_small_frames()), (1, true));
    let large = arena.packet_from(&numbered(SMALL_DATA + 1)).unwrap();
    assert_eq!((large.segment_count(), large.in_small_frames()), (1, false));
    assert_eq!(content(&small), numbered(SMALL_DATA));
    assert_eq!(content(&large), numbered(SMALL_DATA + 1));
    let two = numbered(LARGE.data_bytes() + 1);
    assert_eq!(
        arena.packet_from(&two).map(drop),
        Err(PacketError::NoBuffer),
        "only one large frame is left"
    );
    drop(large);
    let two_frames = arena.packet_from(&two).unwrap();
    assert_eq!(two_frames.segment_count(), 2);
    assert_eq!(content(&two_frames), two);
    drop((small, two_frames));
    assert_all_free(&arena);
}

#[test]
fn prepend_and_trim_front_move_the_start_within_the_frame() {
    let arena = arena(4, 0, 4);
    let mut packet = arena.packet_from(b"payload").unwrap();
    packet.prepend(4).unwrap().copy_from_slice(b"head");
    assert_eq!(content(&packet), b"headpayload");
    assert_eq!(packet.headroom(), HEADROOM_BYTES - 4);
    packet.trim_front(6);
    assert_eq!(content(&packet), b"yload");
    assert_eq!(packet.headroom(), HEADROOM_BYTES + 2);
    assert_eq!(
        packet.prepend(HEADROOM_BYTES + 3),
        Err(PacketError::NoHeadroom)
    );
    assert_eq!(content(&packet), b"yload");
    let clone = packet.try_clone().unwrap();
    assert_eq!(packet.headroom(), 0, "the frame is shared now");
    assert_eq!(packet.prepend(1), Err(PacketError::NoHeadroom));
    assert_eq!(packet.headers_mut(1), Err(PacketError::NotWritable));
    assert!(packet.tailroom_mut().is_empty());
    drop(clone);
    assert_eq!(packet.headroom(), HEADROOM_BYTES + 2);
    packet.headers_mut(1).unwrap()[0] = b'Y';
    assert_eq!(content(&packet), b"Yload");
    assert_eq!(packet.headers_mut(6), Err(PacketError::NotWritable));
    packet.trim_front(100);
    assert!(packet.is_empty());
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn trimming_and_truncating_cross_segment_and_line_borders() {
    let arena = arena(24, 0, 8);
    let counts: &[usize] = if cfg!(miri) {
        &[5, 14]
    } else {
        &[1, 4, 5, 13, 14, 23]
    };
    for &segments in counts {
        let lengths: Vec<_> = (1..=segments).collect();
        let all = numbered(lengths.iter().sum());
        for cut in (0..=all.len() + 1).step_by(if cfg!(miri) { 17 } else { 1 }) {
            let mut front = in_pieces(&arena, &lengths);
            front.trim_front(cut);
            assert_eq!(content(&front), all[cut.min(all.len())..]);
            assert_eq!(front.bytes(), all.len().saturating_sub(cut));
            front.drop_empty_front();
            assert_eq!(content(&front), all[cut.min(all.len())..]);
            if !front.is_empty() {
                assert_eq!(front.segment_count(), front.segments().count());
            }
            drop(front);
            let mut back = in_pieces(&arena, &lengths);
            back.truncate(cut);
            assert_eq!(content(&back), all[..cut.min(all.len())]);
            assert_eq!(back.segments().count().max(1), back.segment_count());
            drop(back);
        }
        assert_all_free(&arena);
    }
}

#[test]
fn pieces_yields_any_range() {
    let arena = arena(8, 0, 4);
    let packet = in_pieces(&arena, &[3, 0, 1, 5, 2]);
    let all = numbered(11);
    for start in 0..=all.len() {
        for end in start..=all.len() {
            let got: Vec<_> = packet
                .pieces(start..end)
                .unwrap()
                .flatten()
                .copied()
                .collect();
            assert_eq!(got, all[start..end]);
        }
    }
    assert_eq!(packet.pieces(0..12).map(drop), Err(PacketError::OutOfRange));
    #[expect(clippy::reversed_empty_ranges, reason = "a range that must be refused")]
    let reversed = packet.pieces(3..2).map(drop);
    assert_eq!(reversed, Err(PacketError::OutOfRange));
    for n in 0..=12 {
        let mut out = vec![0; n];
        assert_eq!(packet.copy_to(&mut out), n.min(11));
        assert_eq!(out[..n.min(11)], all[..n.min(11)]);
    }
}

#[test]
fn append_moves_segments_and_frees_empty_ones() {
    let arena = arena(40, 0, 20);
    let mut all = Vec::new();
    let mut packet = arena.empty_packet().unwrap();
    for n in [1_usize, 3, 5, 9, 14] {
        let other = in_pieces(&arena, &vec![2; n]);
        all.extend(content(&other));
        packet.append(other).unwrap();
        assert_eq!(content(&packet), all);
    }
    assert_eq!(packet.segment_count(), 32);
    packet.append(in_pieces(&arena, &[0, 1, 0])).unwrap();
    assert_eq!(packet.segment_count(), 33, "the empty ones are gone");
    assert_eq!(arena.census().small_used, 33);
    // Four in the head, nine in each of four further lines.
    assert_eq!(arena.census().lines_used, 5);
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn a_failed_append_leaves_both_packets_as_they_were() {
    let arena = arena(4, 0, 40);
    let one = arena.packet_from(b"z").unwrap();
    let mut full = arena.empty_packet().unwrap();
    for _ in 0..SEGMENTS_MAX - 1 {
        full.append_shared(&one, 0..1).unwrap();
    }
    let other = in_pieces(&arena, &[1, 1]);
    let used = arena.census();
    let (error, other) = full.append(other).unwrap_err();
    assert_eq!(error, PacketError::TooManySegments);
    assert_eq!((full.bytes(), other.bytes()), (SEGMENTS_MAX - 1, 2));
    assert_eq!(
        full.append_shared(&other, 0..2),
        Err(PacketError::TooManySegments)
    );
    assert_eq!(content(&full), vec![b'z'; SEGMENTS_MAX - 1]);
    assert_eq!(content(&other), numbered(2));
    assert_eq!(arena.census(), used);
    full.append_shared(&other, 0..1).unwrap();
    assert_eq!(full.add_frame(SMALL), Err(PacketError::TooManySegments));
    assert_eq!(
        full.append_copy(SMALL, b"more"),
        Err(PacketError::TooManySegments)
    );
    assert_eq!(full.bytes(), SEGMENTS_MAX);
    drop((full, other, one));
    assert_all_free(&arena);
}

#[test]
fn a_failure_for_want_of_a_line_changes_nothing() {
    let arena = arena(16, 0, 2);
    let mut packet = in_pieces(&arena, &[1; 4]);
    let other = arena.empty_packet().unwrap();
    assert_eq!(arena.empty_packet().map(drop), Err(PacketError::NoBuffer));
    assert_eq!(packet.add_frame(SMALL), Err(PacketError::NoBuffer));
    assert_eq!(packet.try_clone().map(drop), Err(PacketError::NoBuffer));
    assert_eq!(arena.packet(SMALL).map(drop), Err(PacketError::NoBuffer));
    assert_eq!(
        arena.packet_from(b"x").map(drop),
        Err(PacketError::NoBuffer)
    );
    assert_eq!((packet.segment_count(), arena.census().small_used), (4, 4));
    drop(other);
    packet.add_frame(SMALL).unwrap();
    assert_eq!(packet.segment_count(), 5);
    packet.truncate(1);
    assert_eq!(arena.census().lines_used, 1, "the second line came back");
    // A clone of five segments needs two lines, and there is one.
    packet.truncate(0);
    let five = [1; 5];
    drop(packet);
    let packet = in_pieces(&arena, &five);
    assert_eq!(packet.try_clone().map(drop), Err(PacketError::NoBuffer));
    assert_eq!(arena.census().small_used, 5);
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn pull_copies_only_what_is_split_or_shared() {
    let arena = arena(8, 1, 8);
    let mut packet = in_pieces(&arena, &[4, 4, 4]);
    packet.meta_mut().flow_hash = 7;
    assert_eq!(packet.pull(4), Ok(false));
    assert_eq!(packet.pull(6), Ok(true));
    assert_eq!(packet.first(), &numbered(12)[..6]);
    assert_eq!(content(&packet), numbered(12));
    assert_eq!(packet.meta().flow_hash, 7);
    assert_eq!(arena.census().small_used, 3, "the first frame came back");
    let clone = packet.try_clone().unwrap();
    assert_eq!(packet.pull(1), Ok(true), "shared, so not writable");
    packet.headers_mut(1).unwrap()[0] = 0xee;
    assert_eq!(
        content(&clone),
        numbered(12),
        "the other packet is untouched"
    );
    assert_eq!(content(&packet)[1..], numbered(12)[1..]);
    assert_eq!(packet.pull(1000), Ok(true), "all there is");
    assert_eq!((packet.segment_count(), packet.first().len()), (1, 12));
    let mut large = arena.packet_from(&numbered(SMALL_DATA + 1)).unwrap();
    assert_eq!(large.pull(SMALL_DATA + 1), Ok(false));
    let shared = large.try_clone().unwrap();
    assert_eq!(
        large.pull(SMALL_DATA + 1),
        Err(PacketError::OutOfRange),
        "no small frame holds so much"
    );
    drop((packet, clone, large, shared));
    assert_all_free(&arena);
}

#[test]
fn collapse_merges_until_the_target_and_no_further() {
    let arena = arena(24, 0, 8);
    let mut packet = in_pieces(&arena, &[10; 20]);
    assert!(packet.collapse(20));
    assert_eq!(packet.segment_count(), 20, "nothing to do");
    assert!(packet.collapse(7));
    assert_eq!(packet.segment_count(), 7);
    assert_eq!(content(&packet), numbered(200));
    assert_eq!(arena.census().small_used, 7);
    let clone = packet.try_clone().unwrap();
    assert!(!packet.collapse(1), "every frame is shared");
    assert_eq!(content(&packet), numbered(200));
    drop(clone);
    assert!(packet.collapse(1));
    assert_eq!(
        (packet.segment_count(), content(&packet)),
        (1, numbered(200))
    );
    assert_eq!(arena.census().lines_used, 1);
    drop(packet);
    let mut full = in_pieces(&arena, &[SMALL_DATA, SMALL_DATA, 1, 1]);
    assert!(!full.collapse(1));
    assert_eq!(full.segment_count(), 3);
    assert_eq!(content(&full), numbered(2 * SMALL_DATA + 2));
    drop(full);
    assert_all_free(&arena);
}

#[test]
fn slices_of_one_frame_in_one_packet_are_not_writable() {
    let arena = arena(4, 0, 4);
    let source = arena.packet_from(&numbered(100)).unwrap();
    let mut packet = arena.empty_packet().unwrap();
    packet.append_shared(&source, 0..10).unwrap();
    packet.append_shared(&source, 50..60).unwrap();
    drop(source);
    assert!(packet.tailroom_mut().is_empty());
    assert!(packet.headers_mut(1).is_err());
    assert!(!packet.collapse(1), "it would overwrite what it copies");
    let wanted = [&numbered(100)[..10], &numbered(100)[50..60]].concat();
    assert_eq!(content(&packet), wanted);
    assert_eq!(arena.census().small_used, 1);
    drop(packet);
    assert_all_free(&arena);
}

#[test]
fn overwritten_or_swapped_metadata_does_not_touch_the_bytes() {
    let arena = arena(16, 0, 8);
    let mut long = in_pieces(&arena, &[2; 10]);
    let mut short = arena.packet_from(b"abc").unwrap();
    std::mem::swap(long.meta_mut(), short.meta_mut());
    *short.meta_mut() = Meta::default();
    assert_eq!((long.segment_count(), content(&long)), (10, numbered(20)));
    assert_eq!(
        (short.segment_count(), content(&short)),
        (1, b"abc".to_vec())
    );
    drop((long, short));
    assert_all_free(&arena);
}

#[test]
fn packets_of_two_arenas_do_not_mix() {
    let (here, there) = (arena(4, 0, 4), arena(4, 0, 4));
    let mut packet = here.packet_from(b"here").unwrap();
    let foreign = there.packet_from(b"there").unwrap();
    assert_eq!(
        packet.append_shared(&foreign, 0..5),
        Err(PacketError::ForeignArena)
    );
    let (error, foreign) = packet.append(foreign).unwrap_err();
    assert_eq!(error, PacketError::ForeignArena);
    assert_eq!(
        (content(&packet), content(&foreign)),
        (b"here".to_vec(), b"there".to_vec())
    );
    // Each of these binds the thread's cache to the other arena.
    for _ in 0..3 {
        drop((here.packet(SMALL).unwrap(), there.packet(SMALL).unwrap()));
    }
    drop((packet, foreign));
    assert_all_free(&here);
    assert_all_free(&there);
}

#[test]
fn every_class_can_be_used_up_and_freed() {
    let arena = arena(6, 3, 10);
    for _ in 0..3 {
        let mut packets = Vec::new();
        for class in [SMALL, LARGE] {
            loop {
                match arena.packet(class) {
                    Ok(packet) => packets.push(packet),
                    Err(error) => {
                        assert_eq!(error, PacketError::NoBuffer);
                        break;
                    }
                }
            }
        }
        assert_eq!(packets.len(), 9);
        let last = arena.empty_packet().unwrap();
        assert_eq!(arena.empty_packet().map(drop), Err(PacketError::NoBuffer));
        let census = arena.census();
        assert_eq!(
            (census.small_free, census.large_free, census.lines_free),
            (0, 0, 0)
        );
        drop((packets, last));
        assert_all_free(&arena);
    }
}

#[test]
fn frames_beyond_a_threads_cache_are_free_for_other_threads() {
    let (small, large) = (SMALL_CACHED_MAX * 3, LARGE_CACHED_MAX * 3);
    let arena = arena(small as u32, large as u32, (small + large) as u32);
    let fill = |class| {
        let packets: Vec<_> = std::iter::from_fn(|| arena.packet(class).ok()).collect();
        packets.len()
    };
    assert_eq!((fill(SMALL), fill(LARGE)), (small, large));
    assert_all_free(&arena);
    assert_eq!((fill(LARGE), fill(SMALL)), (large, small));
    // The cache of this thread is full, and the other thread gets the rest.
    let other = arena.clone();
    let got = thread::spawn(move || {
        let packets: Vec<_> = std::iter::from_fn(|| other.packet(SMALL).ok()).collect();
        packets.len()
    });
    assert!((small - SMALL_CACHED_MAX..small).contains(&got.join().unwrap()));
    assert_eq!(fill(SMALL), small);
    assert_all_free(&arena);
}

#[test]
fn the_frame_freed_last_is_used_first() {
    let arena = arena(8, 0, 8);
    let first = arena.packet_from(b"1").unwrap();
    let second = arena.packet_from(b"2").unwrap();
    let places = [first.first().as_ptr(), second.first().as_ptr()];
    drop(first);
    drop(second);
    let again = arena.packet_from(b"3").unwrap();
    let once_more = arena.packet_from(b"4").unwrap();
    assert_eq!(again.first().as_ptr(), places[1]);
    assert_eq!(once_more.first().as_ptr(), places[0]);
}

#[test]
fn a_frame_that_is_to_be_filled_has_its_range_as_a_packet() {
    let arena = arena(1, 1, 2);
    for class in [SMALL, LARGE] {
        for (earlier, range) in [(0, 0..0), (0, 3..7), (12, 12..20), (HEADROOM_BYTES, 0..9)] {
            let mut unfilled = arena.unfilled(class).unwrap().earlier(earlier);
            assert_eq!(unfilled.free().len(), earlier + class.data_bytes());
            let written: Vec<_> = (0..range.end as u8).collect();
            unfilled.free()[..range.end].copy_from_slice(&written);
            let mut packet = unfilled.filled(range.clone()).unwrap();
            assert_eq!(
                (packet.first(), packet.bytes()),
                (&written[range.clone()], range.len())
            );
            assert_eq!(packet.headroom(), HEADROOM_BYTES - earlier + range.start);
            let rest = earlier + class.data_bytes() - range.end;
            assert_eq!(packet.tailroom_mut().len(), rest);
        }
        let all = class.data_bytes();
        assert!(arena.unfilled(class).unwrap().filled(0..all + 1).is_none());
        assert!(arena.unfilled(class).unwrap().filled(0..all).is_some());
        let reversed = Range { start: 2, end: 1 };
        assert!(arena.unfilled(class).unwrap().filled(reversed).is_none());
    }
    assert_all_free(&arena);
}

#[test]
#[should_panic(expected = "the headroom is shorter")]
fn free_bytes_begin_in_the_headroom_at_the_earliest() {
    let unfilled = arena(1, 0, 1).unfilled(SMALL).unwrap();
    drop(unfilled.earlier(HEADROOM_BYTES + 1));
}

/// Also if they were freed together, with others that are not kept so.
#[test]
fn frames_that_stay_with_their_lines_are_free_for_other_packets() {
    let arena = arena(8, 1, 10);
    let mut packets = Vec::new();
    for round in 0..2 {
        assert!(arena.fill(SMALL, &mut packets, 8));
        let mut places: Vec<_> = packets
            .iter_mut()
            .map(|p| p.tailroom_mut().as_ptr())
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8);
        assert!(!arena.fill(SMALL, &mut packets, 9));
        packets.insert(3, arena.packet(LARGE).unwrap());
        packets.push(packets[5].try_clone().unwrap());
        let mut freed = VecDeque::from(std::mem::take(&mut packets));
        let count = freed.len();
        Packet::free(&mut freed, count);
        let mut packet = arena.empty_packet().unwrap();
        let frames = (0..).take_while(|_| packet.add_frame(SMALL).is_ok());
        assert_eq!(frames.count(), 8, "round {round}");
    }
    assert_all_free(&arena);
}

#[test]
fn an_arena_may_be_dropped_before_its_packets() {
    let arena = arena(4, 0, 4);
    let mut packet = in_pieces(&arena, &[3, 4]);
    drop(arena);
    packet.append_copy(SMALL, b"!").unwrap();
    let clone = packet.try_clone().unwrap();
    assert_eq!(content(&clone), [&numbered(7)[..], b"!"].concat());
    let elsewhere = thread::spawn(move || content(&packet));
    assert_eq!(elsewhere.join().unwrap().len(), 8);
    drop(clone);
    // The next arena frees the memory of those without references.
    drop(tests::arena(1, 0, 1));
}

#[test]
fn packets_move_between_threads_and_none_is_lost() {
    let rounds = if cfg!(miri) { 20 } else { 5_000 };
    let arena = arena(64, 4, 64);
    let (there, arrives) = mpsc::sync_channel::<Packet>(8);
    let (back, returns) = mpsc::sync_channel::<Packet>(8);
    let makes = {
        let arena = arena.clone();
        thread::spawn(move || {
            for i in 0..rounds {
                let Ok(mut packet) = arena.packet_from(&numbered(i % 100)) else {
                    continue;
                };
                if i % 3 == 0
                    && let Ok(clone) = packet.try_clone()
                {
                    back.send(clone).unwrap();
                }
                packet.meta_mut().flow_hash = (i % 100) as u32;
                there.send(packet).unwrap();
            }
        })
    };
    let frees = thread::spawn(move || {
        for packet in arrives {
            assert_eq!(content(&packet), numbered(packet.meta().flow_hash as usize));
        }
    });
    for packet in returns {
        assert_eq!(content(&packet), numbered(packet.bytes()));
    }
    makes.join().unwrap();
    frees.join().unwrap();
    // Joined, so the threads' caches are flushed.
    assert_all_free(&arena);
}

#[test]
fn a_packet_in_a_thread_that_ends_is_freed() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<Packet>> = const { std::cell::RefCell::new(None) };
    }
    let arena = arena(4, 0, 4);
    let packet = arena.packet_from(b"left behind").unwrap();
    thread::spawn(move || LAST.with(|last| last.replace(Some(packet)).is_none()))
        .join()
        .unwrap();
    assert_all_free(&arena);
}

#[test]
fn a_reader_of_a_clone_never_sees_a_write() {
    let arena = arena(8, 0, 8);
    let packet = arena.packet_from(&[1; 64]).unwrap();
    let mut clone = packet.try_clone().unwrap();
    let reader = thread::spawn(move || content(&packet));
    // Fails while the reader exists, and succeeds in place afterwards.
    while clone.headers_mut(64).is_err() {
        thread::yield_now();
    }
    clone.headers_mut(64).unwrap().fill(2);
    assert_eq!(reader.join().unwrap(), [1; 64]);
    drop(clone);
    assert_all_free(&arena);
}

#[test]
fn sizes_out_of_range_are_refused() {
    for (small_frames, large_frames, lines) in [(u32::MAX, 1, 1), (1, 1, u32::MAX)] {
        let config = ArenaConfig {
            small_frames,
            large_frames,
            lines,
        };
        let error = Arena::new(config).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    assert_all_free(&arena(0, 0, 0));
    assert_eq!(
        arena(0, 0, 0).empty_packet().map(drop),
        Err(PacketError::NoBuffer)
    );
}

#[test]
fn a_burst_retains_what_is_wanted_in_order_and_frees_the_rest() {
    let arena = arena(8, 0, 8);
    let mut burst = Burst::new();
    for byte in 0..8 {
        burst.push(arena.packet_from(&[byte]).unwrap()).unwrap();
    }
    let byte = |packet: &Packet| packet.first()[0];
    burst.retain(|packet| byte(packet) % 3 == 1);
    assert_eq!(burst.iter().map(byte).collect::<Vec<_>>(), [1, 4, 7]);
    // The others are free again.
    for _ in 0..5 {
        burst.push(arena.packet_from(&[0]).unwrap()).unwrap();
    }
    assert!(arena.packet_from(&[0]).is_err());
}

#[test]
fn a_burst_is_bounded_and_keeps_order() {
    let arena = arena(80, 0, 80);
    let mut burst = Burst::new();
    for i in 0..crate::limits::BURST_PACKETS_MAX {
        assert_eq!(burst.len(), i);
        burst.push(arena.packet_from(&[i as u8]).unwrap()).unwrap();
    }
    assert_eq!((burst.room(), burst.wire_packets()), (0, 64));
    let spare = arena.packet_from(b"s").unwrap();
    let spare = burst.push(spare).unwrap_err();
    let spare = burst.push_front(spare).unwrap_err();
    assert_eq!(burst.pop().unwrap().first(), [0]);
    burst.push_front(spare).unwrap();
    assert_eq!(burst.front().unwrap().first(), b"s");
    for packet in burst.iter_mut() {
        packet.meta_mut().wire_packets = 2;
    }
    assert_eq!(burst.wire_packets(), 128);
    assert_eq!(burst.iter().count(), 64);
    burst.clear();
    assert!(burst.is_empty());
    assert_all_free(&arena);
}
