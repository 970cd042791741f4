//! The coalescing stage: which packets it holds, when it flushes, and what it counts.

use super::*;
use crate::limits::COALESCE_PACKETS;
use crate::packet::{Arena, ArenaConfig};
use crate::policy::gro::Flush;
use crate::stats::RxSnapshot;
use crate::test_packets::{Segment, tcp4, tcp6, udp4};
use packtrain_offload::coalesce::{Mode, Semantics};
use std::ops::Range;
use std::time::Duration;

const ALL: Features = Features::TSO4.union(Features::TSO6).union(Features::USO);
const START: Instant = Instant::from_nanos(1_000_000_000);

fn plan() -> Coalescing {
    Coalescing {
        semantics: Semantics::Reversible,
        mode: Mode::Auto,
        kinds: ALL,
        segments_max: 63,
        gro: Gro::default(),
    }
}

struct Bench {
    arena: Arena,
    stage: CoalesceStage,
    counters: Arc<RxCounters>,
    drops: Arc<DropCounters>,
    given: u64,
    taken: Vec<Packet>,
}

impl Bench {
    fn new(plan: &Coalescing) -> Self {
        let (counters, drops) = <(Arc<RxCounters>, Arc<DropCounters>)>::default();
        let stage = CoalesceStage::new(
            plan,
            LinkType::Ethernet,
            Arc::clone(&counters),
            Arc::clone(&drops),
        );
        Self {
            arena: Arena::new(ArenaConfig::default()).expect("memory"),
            stage,
            counters,
            drops,
            given: 0,
            taken: Vec::new(),
        }
    }

    /// As from an RX queue.
    fn packet(&self, bytes: &[u8]) -> Packet {
        let mut packet = self.arena.packet_from(bytes).expect("memory");
        packet.meta_mut().layout =
            Layout::parse(LinkType::Ethernet, bytes, bytes.len() as u32).ok();
        packet
    }

    fn give(&mut self, now: Instant, egress: Features, frames: &[Vec<u8>]) {
        for frames in frames.chunks(BURST_PACKETS_MAX) {
            let mut burst = Burst::new();
            for frame in frames {
                burst.push(self.packet(frame)).expect("room");
            }
            self.given += frames.len() as u64;
            self.stage.take(now, &mut burst, egress);
            assert!(burst.is_empty());
            self.collect();
        }
    }

    /// Takes the output; the ledger must balance.
    fn collect(&mut self) {
        let mut burst = Burst::new();
        while self.stage.has_output() {
            self.stage.deliver(&mut burst);
            while let Some(packet) = burst.pop() {
                self.taken.push(packet);
            }
        }
        let out: u64 = self.wire_packets().iter().map(|&n| u64::from(n)).sum();
        let absorbed = self.counters.absorbed.get();
        assert_eq!(self.given, out + absorbed + self.stage.held());
    }

    fn flush(&mut self) {
        self.stage.flush();
        self.collect();
        assert_eq!(self.stage.held(), 0);
    }

    fn wire_packets(&self) -> Vec<u16> {
        let of = |packet: &Packet| packet.meta().wire_packets;
        self.taken.iter().map(of).collect()
    }

    fn counts(&self) -> RxSnapshot {
        self.counters.snapshot()
    }
}

fn train(count: u32, payload: usize) -> Vec<Vec<u8>> {
    let segment = |i| Segment {
        seq: 1 + i * payload as u32,
        id: 10 + i as u16,
        payload,
        ..Segment::default()
    };
    (0..count).map(|i| tcp4(&segment(i))).collect()
}

#[test]
fn a_train_becomes_one_packet_with_its_metadata() {
    let mut bench = Bench::new(&plan());
    bench.give(START, ALL, &train(10, 1000));
    assert_eq!((bench.taken.len(), bench.stage.held()), (0, 10));
    bench.flush();
    let packet = bench.taken.pop().expect("one packet");
    assert!(bench.taken.is_empty());
    let meta = packet.meta();
    let gso = meta.gso.expect("large");
    assert_eq!((gso.size.get(), meta.wire_packets), (1000, 10));
    assert_eq!(packet.bytes(), 54 + 10_000);
    assert_eq!(meta.layout.expect("known").ip_end, 54 + 10_000);
    let (start, offset) = (34, 16);
    assert_eq!(meta.checksum, ChecksumState::Partial { start, offset });
    let counts = bench.counts();
    assert_eq!((counts.gro_packets, counts.gro_wire_packets), (1, 10));
    assert_eq!(counts.gro_flush_timeout, 1);
}

#[test]
fn a_single_packet_is_verified_and_otherwise_unchanged() {
    let mut bench = Bench::new(&plan());
    let train = train(1, 1000);
    bench.give(START, ALL, &train);
    bench.flush();
    let packet = &bench.taken[0];
    assert_eq!(packet.first(), train[0]);
    assert_eq!(packet.meta().checksum, ChecksumState::Unnecessary);
    assert_eq!((packet.meta().gso, packet.meta().wire_packets), (None, 1));
    assert_eq!(bench.counts().gro_packets, 0);
}

#[test]
fn a_packet_with_a_wrong_checksum_stays_unchanged_and_in_order() {
    let mut bench = Bench::new(&plan());
    let mut frames = train(5, 1000);
    frames[2][60] ^= 1;
    bench.give(START, ALL, &frames);
    bench.flush();
    assert_eq!(bench.wire_packets(), [2, 1, 2]);
    assert_eq!(bench.taken[1].first(), frames[2]);
    assert_eq!(bench.taken[1].meta().checksum, ChecksumState::None);
    let counts = bench.counts();
    assert_eq!((counts.csum_bad, counts.gro_passed_bad_checksum), (1, 1));
}

/// A merged packet is bounded by the limits of the egress.
#[test]
fn no_more_segments_than_the_egress_accepts() {
    for segments_max in [2, 3, 17, 63] {
        let mut bench = Bench::new(&Coalescing {
            segments_max,
            ..plan()
        });
        bench.give(START, ALL, &train(200, 200));
        bench.flush();
        for packet in &bench.taken {
            assert!(packet.segment_count() <= segments_max);
        }
        assert_eq!(bench.taken.len(), 200_usize.div_ceil(segments_max));
        let counts = bench.counts();
        let all_but_the_last = bench.taken.len() as u64 - 1;
        assert_eq!(counts.gro_flush_full, all_but_the_last);
        assert_eq!(counts.gro_flush_timeout, 1);
    }
}

#[test]
fn old_packets_are_flushed_and_the_others_stay() {
    let mut bench = Bench::new(&plan());
    bench.give(START, ALL, &flow(1, 0..3));
    let later = START.after(COALESCE_HOLD_MAX - Duration::from_micros(10));
    bench.stage.flush_due(later, later);
    bench.collect();
    assert!(bench.taken.is_empty());
    bench.give(later, ALL, &flow(2, 0..4));
    let now = START.after(COALESCE_HOLD_MAX + Duration::from_micros(2));
    bench.stage.flush_due(now, later);
    bench.collect();
    assert_eq!(bench.wire_packets(), [3]);
    assert_eq!(
        (bench.stage.held(), bench.counts().gro_flush_inactive),
        (4, 1)
    );
}

/// Sorted mode merges packets held at the same time, so it holds them for their whole time.
#[test]
fn sorted_packets_are_held_for_the_whole_time() {
    let mut bench = Bench::new(&Coalescing {
        mode: Mode::Sorted,
        ..plan()
    });
    let frames = train(30, 1000);
    for (i, frames) in frames.chunks(10).enumerate() {
        let now = START.after(COALESCE_HOLD_MAX / 4 * i as u32);
        bench.stage.flush_due(now, now);
        bench.give(now, ALL, frames);
    }
    assert!(bench.taken.is_empty());
    let now = START.after(COALESCE_HOLD_MAX + Duration::from_micros(1));
    bench.stage.flush_due(now, now);
    bench.collect();
    assert_eq!(bench.wire_packets(), [30]);
}

/// The arena is sized for this bound.
#[test]
fn packets_held_are_bounded() {
    let mut bench = Bench::new(&plan());
    let mut most = 0;
    for flow in 0..3000 {
        let segment = Segment {
            port: flow,
            payload: 500,
            ..Segment::default()
        };
        bench.give(START, ALL, &[tcp4(&segment)]);
        most = most.max(bench.stage.held());
    }
    assert_eq!(most, COALESCE_PACKETS as u64);
    bench.flush();
    assert_eq!(bench.taken.len(), 3000);

    // Packets in large frames are fewer.
    let mut bench = Bench::new(&plan());
    let mut most = 0;
    for flow in 0..100 {
        let segment = Segment {
            port: flow,
            payload: 8000,
            ..Segment::default()
        };
        bench.give(START, ALL, &[tcp4(&segment)]);
        most = most.max(bench.stage.held());
    }
    assert_eq!(most, COALESCE_LARGE_MAX as u64);
    bench.flush();
    assert_eq!(bench.taken.len(), 100);
    assert_eq!(bench.counts().gro_flush_timeout, 100);

    // Packets that were flushed do not count, and no packet is lost.
    let mut bench = Bench::new(&plan());
    for port in 0..30 {
        let segment = |i: u32| Segment {
            port,
            seq: 1 + i * 8000,
            id: i as u16,
            payload: if i == 6 { 100 } else { 8000 },
            ..Segment::default()
        };
        let train: Vec<_> = (0..7).map(|i| tcp4(&segment(i))).collect();
        bench.give(START, ALL, &train);
        assert_eq!(bench.stage.held(), 0);
        assert_eq!(bench.counts().gro_flush_size, u64::from(port) + 1);
    }
    assert_eq!(bench.counts().gro_wire_packets, 210);
}

fn with(gro: Gro) -> Coalescing {
    Coalescing { gro, ..plan() }
}

/// Segments `range` of the flow from `port`.
fn flow(port: u16, range: Range<u32>) -> Vec<Vec<u8>> {
    let segment = |i: u32| Segment {
        port,
        seq: 1 + i * 1000,
        id: i as u16,
        payload: 1000,
        ..Segment::default()
    };
    range.map(|i| tcp4(&segment(i))).collect()
}

/// A table of eight flows loses each flow of sixteen before its next packet, and sorting does not.
#[test]
fn flows_beyond_the_limit_are_evicted_and_sorted() {
    let rounds = |i| (0..16).flat_map(move |port| flow(port, i..i + 1));
    let frames: Vec<_> = (0..4).flat_map(rounds).collect();
    for (mode, evicted, sizes) in [
        (Mode::Hash, 56, vec![1; 64]),
        (Mode::Sorted, 0, vec![4; 16]),
    ] {
        let flows = Some(8);
        let mut bench = Bench::new(&Coalescing {
            mode,
            ..with(Gro {
                flows,
                ..Gro::default()
            })
        });
        bench.give(START, ALL, &frames);
        bench.flush();
        assert_eq!(bench.wire_packets(), sizes);
        assert_eq!(bench.counts().gro_flush_evict, evicted);
    }
}

#[test]
fn a_merged_packet_has_no_more_bytes_than_the_limit() {
    for (bytes, sizes) in [
        (3040, vec![3, 3, 3, 1]),
        (3039, vec![2; 5]),
        (1039, vec![1; 10]),
    ] {
        let mut bench = Bench::new(&with(Gro {
            bytes: Some(bytes),
            ..Gro::default()
        }));
        bench.give(START, ALL, &train(10, 1000));
        bench.flush();
        assert_eq!(bench.wire_packets(), sizes);
        let counts = bench.counts();
        let is_held = bytes >= 1040;
        let (full, long) = if is_held {
            (sizes.len() as u64 - 1, 0)
        } else {
            (0, 10)
        };
        assert_eq!(
            (counts.gro_flush_full, counts.gro_passed_length),
            (full, long)
        );
    }
}

/// In both modes, with few packets and with more than the default.
#[test]
fn no_more_packets_are_held_than_the_limit() {
    for (packets, mode) in [
        (100, Mode::Hash),
        (100, Mode::Sorted),
        (2000, Mode::Hash),
        (2000, Mode::Sorted),
    ] {
        let mut bench = Bench::new(&Coalescing {
            mode,
            ..with(Gro {
                packets: Some(packets),
                ..Gro::default()
            })
        });
        let mut most = 0;
        for port in 0..2500 {
            bench.give(START, ALL, &flow(port, 0..1));
            most = most.max(bench.stage.held());
        }
        assert_eq!(most, u64::from(packets), "{mode:?}");
        bench.flush();
        assert_eq!(bench.taken.len(), 2500);
    }
}

#[test]
fn an_ack_limit_of_one_holds_no_ack() {
    for (limit, absorbed) in [(1, 0), (2, 3), (6, 5)] {
        let mut bench = Bench::new(&Coalescing {
            semantics: Semantics::Stream,
            ..with(Gro {
                ack_limit: Some(limit),
                ..Gro::default()
            })
        });
        let ack = |i: u32| {
            tcp4(&Segment {
                ack: i * 1000,
                ..Segment::default()
            })
        };
        bench.give(START, ALL, &(1..=6).map(ack).collect::<Vec<_>>());
        assert_eq!(bench.stage.held(), 0, "the last ACK of the limit ends it");
        let counts = bench.counts();
        assert_eq!(counts.absorbed, absorbed);
        let passed = if limit == 1 { 6 } else { 0 };
        assert_eq!(counts.gro_passed_payload, passed);
        assert_eq!(counts.gro_flush_full, 6 / u64::from(limit) % 6);
    }
}

/// A queue that is never empty, in which only flow 2 goes on: turns of 10 packets, 50 us apart.
/// Returns the turn in which the packet of flow 1 left, if it did, and the counters.
fn turn_of_the_other_flow(gro: Gro) -> (Option<u32>, RxSnapshot) {
    let mut bench = Bench::new(&Coalescing {
        segments_max: 100,
        ..with(gro)
    });
    bench.give(START, ALL, &flow(1, 0..1));
    let mut last_turn = START;
    for turn in 0..50 {
        let now = START.after(Duration::from_micros(50) * turn);
        let i = turn * 10;
        bench.give(now, ALL, &flow(2, i..i + 10));
        assert!(!bench.stage.pauses(10));
        bench.stage.flush_due(now, last_turn);
        bench.collect();
        last_turn = now;
        if bench.taken.iter().any(|packet| packet.first()[35] == 1) {
            return (Some(turn), bench.counts());
        }
    }
    (None, bench.counts())
}

/// FreeBSD's rule, without it, and the periodic flushes that FreeBSD tried instead.
#[test]
fn a_packet_that_is_not_continued_leaves_by_the_configured_rule() {
    let usual = Gro::default();
    let (turn, counts) = turn_of_the_other_flow(usual);
    assert_eq!(
        (turn, counts.gro_flush_inactive),
        (Some(4), 2),
        "both flows"
    );
    let off = Gro {
        inactive: false,
        ..usual
    };
    let (turn, counts) = turn_of_the_other_flow(off);
    assert_eq!((turn, counts.gro_flush_inactive), (None, 0));
    assert!(counts.gro_flush_full > 5, "only full packets leave");
    for (flush, expected) in [
        (Flush::Usecs(100), 2),
        (Flush::Usecs(1_000), 20),
        (Flush::Packets(11), 0),
        (Flush::Packets(12), 1),
        (Flush::Packets(101), 9),
    ] {
        let (turn, counts) = turn_of_the_other_flow(Gro { flush, ..off });
        assert_eq!(turn, Some(expected), "{flush}");
        assert!(counts.gro_flush_timeout >= 1, "{flush}");
    }
}

/// Everything leaves periodically, also packets that would be continued.
#[test]
fn a_periodic_flush_ends_all_trains() {
    for (flush, sizes) in [
        (Flush::Off, vec![60]),
        (Flush::Packets(20), vec![20; 3]),
        (Flush::Packets(15), vec![20; 3]),
        (Flush::Usecs(30), vec![20; 3]),
        (Flush::Usecs(31), vec![30; 2]),
    ] {
        let mut bench = Bench::new(&with(Gro {
            flush,
            ..Gro::default()
        }));
        for (frames, turn) in flow(1, 0..60).chunks(10).zip(0..) {
            let now = START.after(Duration::from_micros(30) * turn);
            bench.give(now, ALL, frames);
            bench.stage.flush_due(now, now);
            bench.collect();
        }
        bench.flush();
        assert_eq!(bench.wire_packets(), sizes, "{flush}");
    }
}

/// Packets count from the last time that the queue was empty, or from the last pause.
#[test]
fn receiving_pauses_after_as_many_packets() {
    let mut bench = Bench::new(&with(Gro {
        rx_pause: Some(100),
        ..Gro::default()
    }));
    let pauses = [60, 39, 1, 99, 0, 99, 0, 60, 60, 60].map(|packets| bench.stage.pauses(packets));
    assert_eq!(pauses.map(u8::from), [0, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(bench.counts().pauses, 2);
    let mut never = Bench::new(&plan());
    assert!(!never.stage.pauses(u64::MAX));
}

/// The egress stops accepting large packets of a kind: packets held are flushed first.
#[test]
fn a_kind_that_the_egress_removes_is_no_longer_merged() {
    let mut bench = Bench::new(&plan());
    let frames = train(8, 1000);
    bench.give(START, ALL, &frames[..4]);
    bench.give(START, ALL.without(Features::TSO4), &frames[4..]);
    assert_eq!(bench.wire_packets(), [4, 1, 1, 1, 1]);
    assert_eq!(bench.stage.held(), 0);
    assert_eq!(bench.counts().gro_passed_off, 4);
    for (packet, frame) in bench.taken[1..].iter().zip(&frames[4..]) {
        assert_eq!(packet.first(), frame);
    }
    assert!(!bench.stage.is_off(ALL.without(Features::TSO4)));
    // Other kinds are merged.
    let six = |seq| {
        tcp6(&Segment {
            seq,
            payload: 700,
            ..Segment::default()
        })
    };
    bench.give(START, ALL.without(Features::TSO4), &[six(1), six(701)]);
    bench.flush();
    assert_eq!(bench.wire_packets().last(), Some(&2));
}

/// Packets may pass the stage if it merges no kind, and not before it has given up those it holds.
#[test]
fn a_stage_that_merges_nothing_is_off_once_it_is_empty() {
    let mut bench = Bench::new(&plan());
    let frames = train(4, 1000);
    assert!(bench.stage.is_off(Features::CSUM) && !bench.stage.is_off(ALL));
    bench.give(START, ALL, &frames);
    assert!(!bench.stage.is_off(Features::CSUM));
    bench.stage.flush();
    assert!(
        !bench.stage.is_off(Features::CSUM),
        "they are in its output"
    );
    bench.collect();
    assert!(bench.stage.is_off(Features::CSUM));
    bench.stage.pass(3);
    assert_eq!(bench.counts().gro_passed_off, 3);
}

#[test]
fn only_planned_kinds_are_merged() {
    for (kinds, expected) in [
        (Features::TSO4, [2, 1, 1, 1, 1]),
        (Features::TSO6, [1, 1, 2, 1, 1]),
        (Features::USO4, [1, 1, 1, 1, 2]),
    ] {
        let mut bench = Bench::new(&Coalescing { kinds, ..plan() });
        let at = |index: u32| Segment {
            seq: 1 + index * 600,
            id: index as u16,
            payload: 600,
            ..Segment::default()
        };
        let frames = [
            [tcp4(&at(0)), tcp4(&at(1))],
            [tcp6(&at(0)), tcp6(&at(1))],
            [udp4(&at(0)), udp4(&at(1))],
        ];
        bench.give(START, ALL, frames.as_flattened());
        bench.flush();
        let mut got = bench.wire_packets();
        got.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(got, expected);
        assert_eq!(bench.counts().gro_passed_off, 4);
    }
}

/// The ledger counts a pure ACK that was merged with another one.
#[test]
fn absorbed_acks_are_counted() {
    let mut bench = Bench::new(&Coalescing {
        semantics: Semantics::Stream,
        ..plan()
    });
    let ack = |ack| {
        tcp4(&Segment {
            ack,
            ..Segment::default()
        })
    };
    bench.give(START, ALL, &[ack(1), ack(1001), ack(2001), ack(3001)]);
    bench.flush();
    assert_eq!(bench.wire_packets(), [1]);
    assert_eq!(bench.taken[0].first()[42..46], 3001_u32.to_be_bytes());
    assert_eq!(bench.counts().absorbed, 3);
}

#[test]
fn abandoned_packets_are_counted() {
    let mut bench = Bench::new(&plan());
    bench.give(START, ALL, &train(30, 1000));
    bench.stage.abandon(DropReason::Shutdown);
    assert_eq!(bench.drops.snapshot().get(DropReason::Shutdown), 30);
    assert_eq!((bench.stage.held(), bench.stage.has_output()), (0, false));
    assert_eq!(bench.arena.census().lines_used, 0);
}

/// Each reason of the engine has its counter, under the engine's name for it.
#[test]
fn every_reason_is_counted_by_name() {
    for (prefix, names) in [
        (
            "gro_flush_",
            FlushReason::ALL
                .iter()
                .map(|r| r.name())
                .collect::<Vec<_>>(),
        ),
        (
            "gro_passed_",
            NotTaken::ALL.iter().map(|r| r.name()).collect(),
        ),
    ] {
        let counters: Vec<_> = RxSnapshot::NAMES
            .iter()
            .filter_map(|name| name.strip_prefix(prefix))
            .collect();
        assert_eq!(counters, names);
    }
    let mut bench = Bench::new(&plan());
    let mut frames = train(20, 1000);
    // A gap, a push, a different header, a fragment, an ACK, and a packet other than IP.
    frames.remove(3);
    frames[6][47] |= 8;
    frames[9][15] = 4;
    frames[12][20] = 0x20;
    frames.push(tcp4(&Segment::default()));
    frames.push(vec![0; 60]);
    bench.give(START, ALL, &frames);
    bench.flush();
    let all: u64 = bench
        .counts()
        .values()
        .filter(|(name, _)| name.starts_with("gro_flush_") || name.starts_with("gro_passed_"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(all, bench.taken.len() as u64, "one reason for each");
}

/// FreeBSD, macOS and iOS send 0 always. A device counts identifications up, so `exact` leaves
/// such packets apart.
#[test]
fn packets_with_one_identification_are_merged_unless_each_byte_counts() {
    for (ids, exact_id, merged) in [
        ([0, 0, 0], false, true),
        ([7, 7, 7], false, true),
        ([0, 1, 2], false, true),
        ([0, 0, 0], true, false),
        ([7, 7, 7], true, false),
        ([0, 1, 2], true, true),
    ] {
        for make in [tcp4, udp4] {
            let mut plan = plan();
            plan.gro.exact_id = exact_id;
            let mut bench = Bench::new(&plan);
            let frames: Vec<_> = (0..3)
                .map(|i| {
                    let frame = make(&Segment {
                        seq: 1 + 500 * i,
                        id: ids[i as usize],
                        payload: 500,
                        ..Segment::default()
                    });
                    assert_eq!(frame[20], 0x40, "DF");
                    frame
                })
                .collect();
            bench.give(START, ALL, &frames);
            bench.flush();
            let expected: &[u16] = if merged { &[3] } else { &[1, 1, 1] };
            assert_eq!(bench.wire_packets(), expected, "{ids:?}");
            if !merged {
                let bytes: Vec<_> = bench.taken.iter().map(|p| p.first().to_vec()).collect();
                assert_eq!(bytes, frames);
            }
        }
    }
}

/// A packet that was not parsed, as without a free frame for its headers, and of a kind that is not
/// merged: the next packets of its flow are not held, and must not overtake it.
#[test]
fn a_packet_that_was_not_parsed_is_held_only_if_all_kinds_are() {
    let kinds = Features::TSO4.union(Features::TSO6);
    for first_known in [0, 1, 2, 3] {
        let mut bench = Bench::new(&Coalescing { kinds, ..plan() });
        let mut burst = Burst::new();
        for index in 0..3_u16 {
            let frame = udp4(&Segment {
                id: 10 + index,
                payload: 400,
                ..Segment::default()
            });
            let packet = if index < first_known {
                opaque(&bench, &frame)
            } else {
                bench.packet(&frame)
            };
            burst.push(packet).expect("there is room");
        }
        bench.given += 3;
        bench.stage.take(START, &mut burst, ALL);
        bench.collect();
        bench.flush();
        let id = |packet: &Packet| u16::from_be_bytes([packet.first()[18], packet.first()[19]]);
        let ids: Vec<u16> = bench.taken.iter().map(id).collect();
        assert_eq!(ids, [10, 11, 12], "{first_known} unknown");
    }
    // It flushes the packets held, which may be of its flow.
    let mut bench = Bench::new(&Coalescing { kinds, ..plan() });
    let mut burst = Burst::new();
    for (index, frame) in train(3, 500).iter().enumerate() {
        let packet = if index == 2 {
            opaque(&bench, frame)
        } else {
            bench.packet(frame)
        };
        burst.push(packet).expect("there is room");
    }
    bench.given += 3;
    bench.stage.take(START, &mut burst, ALL);
    bench.collect();
    bench.flush();
    let merged = bench.taken.iter().map(|packet| packet.meta().wire_packets);
    assert_eq!(merged.collect::<Vec<_>>(), [2, 1]);
}

/// A packet whose headers were not pulled together.
fn opaque(bench: &Bench, frame: &[u8]) -> Packet {
    let mut packet = bench.packet(&frame[..30]);
    let rest = bench.packet(&frame[30..]);
    packet.append(rest).expect("there is room");
    packet.meta_mut().layout = None;
    packet
}

/// An inconsistent packet may be of any flow, and follows the packets held of all flows.
#[test]
fn a_malformed_packet_overtakes_nothing() {
    for kinds in [ALL, Features::TSO4.union(Features::TSO6)] {
        let mut bench = Bench::new(&Coalescing { kinds, ..plan() });
        let mut frames = Vec::new();
        for (index, frame) in train(8, 500).into_iter().enumerate() {
            let mut wrong = frame.clone();
            wrong[16..18].fill(0xff);
            frames.push(frame);
            if index % 4 == 3 {
                frames.push(wrong);
            }
        }
        bench.give(START, ALL, &frames);
        bench.flush();
        let counts = bench.counts();
        assert_eq!((counts.gro_packets, counts.gro_wire_packets), (2, 8));
        assert_eq!(counts.gro_passed_malformed, 2);
        let merged = bench.taken.iter().map(|packet| packet.meta().wire_packets);
        assert_eq!(merged.collect::<Vec<_>>(), [4, 1, 4, 1]);
    }
}
