//! A worker that merges received packets: no packet stays behind in a stall, a failure or the end
//! of a run.

use super::fake::{End, Queue};
use super::rig::{Rig, Setup, closed};
use crate::driver::{Coalesce, Features, Input};
use crate::engine::{Action, Session, Snapshot};
use crate::limits::{BURST_PACKETS_MAX, COALESCE_HOLD_MAX};
use crate::policy::gro::{Flush, Gro};
use crate::port;
use crate::runtime::System;
use crate::stats::{DropReason, RxSnapshot};
use crate::test_packets::{Segment, tcp4};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

const PAYLOAD: usize = 1000;

/// Packets from port a are merged, and port b accepts GSO packets.
pub fn merging(queues: [usize; 2]) -> Setup {
    let mut setup = Setup::new(queues);
    setup.offloads[1][1] = Features::CSUM | Features::TSO;
    setup.config[1].segments = Some(64);
    setup
}

/// Segments `range` of the flow from `port`.
pub fn flow(port: u16, range: std::ops::Range<u32>) -> impl Iterator<Item = Segment> {
    range.map(move |i| Segment {
        port,
        seq: 1 + i * PAYLOAD as u32,
        id: i as u16,
        payload: PAYLOAD,
        ..Segment::default()
    })
}

/// Wire packets of each packet sent.
fn sizes(queue: &Queue) -> Vec<u16> {
    queue.tx().tcp.iter().map(|packet| packet.3).collect()
}

/// Checks that the stream `0..segments` of `port` was sent, in order and complete.
fn assert_stream(queue: &Queue, port: u16, segments: u32) {
    let expected: Vec<u8> = flow(port, 0..segments)
        .flat_map(|segment| tcp4(&segment).split_off(54))
        .collect();
    let tx = queue.tx();
    let mut got = Vec::new();
    for (_, seq, payload, _) in tx.tcp.iter().filter(|packet| packet.0 == port) {
        assert_eq!(*seq as usize, 1 + got.len(), "in order");
        got.extend_from_slice(payload);
    }
    assert!(got == expected, "the bytes of the stream");
}

/// The end of a burst flushes nothing: held packets stay while packets arrive, and leave before the
/// worker sleeps.
#[test]
fn trains_are_merged_across_bursts_and_sent_before_a_sleep() {
    let mut rig = merging([1, 1]).forward();
    rig.a[0].arrive_tcp(flow(7, 0..100));
    assert_eq!(rig.run(0), Action::Step);
    assert_eq!((sizes(&rig.b[0]), rig.closed().ledger.held), (vec![63], 1));
    rig.settle();
    assert_eq!(sizes(&rig.b[0]), [63, 37]);
    assert_stream(&rig.b[0], 7, 100);
    let coalesce = rig.finish().ports[0].rx_batches[0].coalesce.clone();
    assert_eq!(
        (coalesce.count(), coalesce.sum(), coalesce.max()),
        (2, 100, 63)
    );
}

/// If no poll finds the queue empty, a packet leaves when it is old and the last turn did not
/// continue it.
#[test]
fn packets_are_not_held_for_ever_if_no_poll_is_empty() {
    let mut rig = merging([1, 1]).forward();
    rig.a[0].arrive_tcp(flow(1, 0..1));
    let (begin, mut steps) = (rig.now(), 0);
    while sizes(&rig.b[0]).is_empty() {
        // No poll is empty, and none of these packets is of the first flow or merged.
        rig.a[0].arrive(0..BURST_PACKETS_MAX as u32);
        assert_eq!(rig.run(0), Action::Step);
        rig.advance(COALESCE_HOLD_MAX / 4);
        steps += 1;
        assert!(steps < 10, "held for ever");
    }
    assert!(rig.now() > begin.after(COALESCE_HOLD_MAX));
    let port = &rig.closed().ports[0];
    assert_eq!(port.rx_total().gro_flush_inactive, 1);
    // To within a unit of its clock.
    let (held, hold) = (
        &port.rx_batches[0].held_us,
        COALESCE_HOLD_MAX.as_micros() as u64,
    );
    assert_eq!(held.count(), steps);
    assert!(
        (hold - 1..hold + hold / 4).contains(&held.max()),
        "{held:?}"
    );
    assert_stream(&rig.b[0], 1, 1);
}

/// Runs `turns` turns in which the queue is never empty, 50 us apart: 60 datagrams that are not
/// merged, after one segment of flow 1. Returns the turn in which that left.
fn turn_of_a_lone_segment(gro: Gro, turns: u32) -> (Option<u32>, Rig) {
    let mut setup = merging([1, 1]);
    setup.config[0].gro = gro;
    let mut rig = setup.forward();
    rig.a[0].arrive_tcp(flow(1, 0..1));
    let left = (0..turns).find(|_| {
        rig.a[0].arrive(0..BURST_PACKETS_MAX as u32);
        rig.run(0);
        rig.advance(COALESCE_HOLD_MAX / 4);
        !sizes(&rig.b[0]).is_empty()
    });
    (left, rig)
}

/// Without FreeBSD's rule a packet held stays as long as packets arrive, and leaves once the queue
/// is empty.
#[test]
fn without_the_inactive_flush_packets_stay_while_packets_arrive() {
    let off = Gro {
        inactive: false,
        ..Gro::default()
    };
    let (left, mut rig) = turn_of_a_lone_segment(off, 1000);
    assert_eq!((left, rig.closed().ledger.held), (None, 1));
    rig.settle();
    assert_stream(&rig.b[0], 1, 1);
    let rx = rig.finish().ports[0].rx_total();
    assert_eq!((rx.gro_flush_inactive, rx.gro_flush_timeout), (0, 1));

    // So it does by each of the alternatives.
    let flush = |flush| Gro { flush, ..off };
    let rx_pause = Some(5 * BURST_PACKETS_MAX as u32);
    for (gro, turn) in [
        (flush(Flush::Usecs(500)), 10),
        (flush(Flush::Packets(1 + BURST_PACKETS_MAX as u32)), 1),
        (Gro { rx_pause, ..off }, 4),
    ] {
        let (left, rig) = turn_of_a_lone_segment(gro, 20);
        assert_eq!(left, Some(turn), "{gro:?}");
        let rx = rig.finish().ports[0].rx_total();
        assert_eq!((rx.gro_flush_inactive, rx.gro_flush_timeout), (0, 1));
        assert_eq!(rx.pauses, gro.rx_pause.map_or(0, |_| 1));
    }
}

/// In a pause the worker does what it does without work; the rest of the input follows.
#[test]
fn a_worker_that_pauses_continues_with_the_rest() {
    for (path, mut setup) in merging([1, 1]).on_every_path() {
        setup.config[0].gro.rx_pause = Some(64);
        let mut rig = setup.forward();
        rig.a[0].arrive_tcp(flow(1, 0..1000));
        rig.settle();
        assert_stream(&rig.b[0], 1, 1000);
        // A turn receives 64 packets, and nothing is held after it.
        let turns = std::iter::repeat_n([63, 1], 15).flatten();
        let expected: Vec<u16> = turns.chain([40]).collect();
        assert_eq!(sizes(&rig.b[0]), expected, "{path}");
        let end = rig.finish();
        assert_eq!(end.ports[0].rx_total().pauses, 1000 / 64, "{path}");
        assert_eq!(end.ledger.dropped, 0, "{path}");
    }
}

/// Turns may take longer than the hold time, as with jumbo frames or on a busy CPU. Packets of the
/// last turn could not be continued before this one, so none is flushed for its age, unless a poll
/// has found the queue empty.
#[test]
fn slow_turns_flush_no_packet_for_its_age() {
    let mut rig = merging([1, 1]).forward();
    // A turn receives 64 segments, and 63 fill a packet. Each next turn is late.
    rig.a[0].arrive_tcp(flow(1, 0..640));
    for _ in 0..10 {
        assert_eq!(rig.run(0), Action::Step);
        rig.advance(3 * COALESCE_HOLD_MAX);
    }
    rig.settle();
    let expected: Vec<u16> = std::iter::repeat_n(63, 10).chain([10]).collect();
    assert_eq!(sizes(&rig.b[0]), expected);
    assert_eq!(rig.closed().ports[0].rx_total().gro_flush_inactive, 0);
    assert_stream(&rig.b[0], 1, 640);
}

#[test]
fn held_packets_are_sent_at_the_end_of_a_run() {
    for (path, setup) in merging([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.a[0].arrive_tcp(flow(1, 0..30));
        rig.run(0);
        assert_eq!(rig.closed().ledger.held, 30, "{path}");
        rig.session.stop();
        rig.settle();
        assert!(rig.is_done(), "{path}");
        assert_eq!(sizes(&rig.b[0]), [30], "{path}: a stop");

        let mut finite = setup.clone();
        finite.input[0] = Input::Finite;
        let mut rig = finite.forward();
        rig.a[0].arrive_tcp(flow(1, 0..30));
        rig.a[0].end(End::Finished);
        rig.settle();
        assert!(rig.is_done(), "{path}");
        assert_eq!(sizes(&rig.b[0]), [30], "{path}: the end of the input");

        let mut counted = setup.clone();
        counted.packets = Some(20);
        let mut rig = counted.forward();
        rig.a[0].arrive_tcp(flow(1, 0..100));
        rig.settle();
        assert!(rig.is_done(), "{path}");
        assert_eq!(sizes(&rig.b[0]), [20], "{path}: the count");
    }
}

/// Packets received before a failure are sent. Packets that a failed egress leaves are counted as
/// dropped.
#[test]
fn failures_leave_no_packet_uncounted() {
    for (path, setup) in merging([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.a[0].arrive_tcp(flow(1, 0..30));
        rig.a[0].rx().end = Some(End::Failed);
        rig.try_settle();
        rig.take_error();
        assert_eq!(sizes(&rig.b[0]), [30], "{path}");

        let mut rig = setup.forward();
        rig.a[0].arrive_tcp(flow(1, 0..30));
        rig.run(0);
        rig.b[0].tx().removed = true;
        rig.try_settle();
        rig.take_error();
        let end = rig.finish();
        assert_eq!(end.drops.get(DropReason::DeviceReset), 30, "{path}");
    }
}

/// Held packets wait with the others, and the worker sleeps until the egress continues, even if two
/// RX queues share it.
#[test]
fn packets_pass_a_stalled_egress_in_order() {
    for (path, setup) in merging([2, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.b[0].tx().room = 1;
        rig.a[0].arrive_tcp(flow(1, 0..300));
        rig.a[1].arrive_tcp(flow(2, 0..150));
        rig.settle();
        for _ in 0..100 {
            rig.make_room(1);
        }
        assert_stream(&rig.b[0], 1, 300);
        assert_stream(&rig.b[0], 2, 150);
        assert_eq!(rig.finish().ledger.dropped, 0, "{path}");
    }
}

/// Some kernels refuse GSO packets of a type that they advertise. These are segmented, and no more
/// are made.
#[test]
fn a_refused_gso_type_is_segmented_and_no_longer_merged() {
    for (path, setup) in merging([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.b[0].tx().refuses = Features::TSO4;
        rig.a[0].arrive_tcp(flow(1, 0..100));
        rig.settle();
        rig.a[0].arrive_tcp(flow(1, 100..200));
        rig.settle();
        assert_stream(&rig.b[0], 1, 200);
        assert_eq!(sizes(&rig.b[0]), vec![1; 200], "{path}");
        let end = rig.finish();
        let rx = end.ports[0].rx_total();
        assert!(end.ports[1].refused.contains(Features::TSO4), "{path}");
        assert!(rx.gro_passed_off >= 100 && rx.gro_packets > 0, "{path}");
        assert_eq!(end.ledger.dropped, 0, "{path}");
    }
}

/// Held packets use buffers: none is held while the device lacks them.
#[test]
fn a_device_without_buffers_flushes_held_packets() {
    let mut rig: Rig = merging([1, 1]).forward();
    rig.a[0].rx().short = true;
    rig.a[0].arrive_tcp(flow(1, 0..30));
    assert_eq!(rig.run(0), Action::Step);
    assert_eq!((sizes(&rig.b[0]), rig.closed().ledger.held), (vec![30], 0));
    rig.a[0].rx().short = false;
    rig.advance(Duration::from_millis(1));
    rig.finish();
}

/// FreeBSD D52989: the hash of a device may vary within a flow, as the opaque types of RSS allow.
/// Coalescing tells flows apart by their headers and ignores the hash of a device.
#[test]
fn the_hash_of_a_device_neither_splits_a_flow_nor_reorders_it() {
    type Hash = fn(&Segment) -> u32;
    let hashes: [(&str, Option<Hash>); 5] = [
        ("none", None),
        ("of the flow", Some(|segment| u32::from(segment.port))),
        ("the same for all flows", Some(|_| 0xFFFF_FFFF)),
        (
            "another for each packet",
            Some(|segment| segment.seq.wrapping_mul(0x9E37_79B9)),
        ),
        (
            "now and then none",
            Some(|segment| u32::from(segment.id % 3) * 0x1234_5678),
        ),
    ];
    for mode in [Coalesce::Hash, Coalesce::Sorted, Coalesce::Auto] {
        for (what, hash) in hashes {
            let mut setup = merging([1, 1]);
            setup.config[0].coalesce = mode;
            let mut rig = setup.forward();
            rig.a[0].rx().hash = hash;
            let turns = (0..40).flat_map(|i| (1..=8).flat_map(move |port| flow(port, i..i + 1)));
            rig.a[0].arrive_tcp(turns);
            rig.settle();
            for port in 1..=8 {
                assert_stream(&rig.b[0], port, 40);
            }
            assert_eq!(sizes(&rig.b[0]), [40; 8], "{mode:?}, {what}");
        }
    }
}

/// Sends all of a source, 2000 packets, to `egress`. Returns the counters.
fn all_of(source: &str, egress: &str) -> Snapshot {
    let [a, b] = [source, egress].map(|text| port::open(text).expect("a port"));
    let builder = Session::between(a, b);
    let (session, mut workers) = builder.assemble(Arc::new(System::new())).expect("memory");
    let mut now = Instant::from_nanos(1);
    while !session.is_over() {
        for worker in &mut workers {
            worker.run(now).expect("no device fails");
        }
        now = now.after(Duration::from_micros(1));
    }
    let end = closed(session.finish_with(workers).snapshot);
    assert_eq!((end.ledger.dropped, end.ledger.held), (0, 0), "{source}");
    assert_eq!(end.ledger.received, 2000, "{source}");
    end
}

/// The RX counters of a source, and the number of packets given to a simulated NIC.
fn to_sim(source: &str) -> (RxSnapshot, u64) {
    let end = all_of(source, "sim:");
    (end.ports[0].rx_total(), end.ports[1].tx_total().packets)
}

/// TCP in order is merged up to the length limit. A newer timestamp or a packet out of order ends a
/// merged packet sooner.
#[test]
fn a_timestamp_or_disorder_ends_a_merged_packet() {
    for flows in [1, 4] {
        let source = format!("null:source,proto=tcp,count=2000,flows={flows}");
        let (rx, sent) = to_sim(&source);
        assert_eq!(rx.gro_wire_packets, 2000, "all are merged");
        assert!(sent <= 2000 / 7 + 4, "{sent} packets were sent");
        assert_eq!((rx.gro_flush_order, rx.gro_flush_mismatch), (0, 0));

        let (rx, _) = to_sim(&format!("{source},timestamps"));
        let ticks = flows * (2000 / flows / 64);
        assert!((1..=ticks).contains(&rx.gro_flush_mismatch), "{rx:?}");
        assert_eq!(rx.gro_flush_order, 0);

        let (rx, more) = to_sim(&format!("{source},out-of-order=5"));
        // Each of a hundred late packets ends the held packet. The early packet before it and the
        // packet after it end one, too, if there is one.
        let ended = rx.gro_flush_order;
        assert!((100..=300).contains(&ended), "{flows} flows: {ended}");
        assert!(more > sent);
    }
}

/// `coalesce=stream` aggregates ACKs. Reversible coalescing passes them on.
#[test]
fn acks_are_aggregated_in_a_stream_only() {
    for timestamps in ["", ",timestamps"] {
        let source = format!("null:source,proto=ack,count=2000{timestamps}");
        let (rx, sent) = to_sim(&format!("{source},coalesce=stream"));
        assert_eq!(rx.absorbed + sent, 2000);
        assert!(sent < 100, "{sent} ACKs stand for 2000");
        let (rx, more) = to_sim(&format!("{source},coalesce=stream,out-of-order=5"));
        assert!((100..=300).contains(&rx.gro_flush_order), "{rx:?}");
        assert!(more > sent);
        let (rx, sent) = to_sim(&source);
        assert_eq!((rx.absorbed, sent), (0, 2000));
    }
}

/// A table of eight flows merges as long as there are no more flows than that.
#[test]
fn a_small_table_merges_few_flows_only() {
    for (flows, settings, is_merged) in [
        (8, "coalesce=hash,gro-flows=8", true),
        (9, "coalesce=hash,gro-flows=8", false),
        (100, "coalesce=hash,gro-flows=8", false),
        (100, "coalesce=sorted,gro-flows=8", true),
        (100, "coalesce=auto,gro-flows=8", true),
    ] {
        for protocol in ["tcp,bytes=200", "ack,coalesce=stream"] {
            let stream = protocol.starts_with("ack");
            if stream && !settings.starts_with("coalesce=auto") {
                continue;
            }
            let settings = settings.replace("coalesce=auto,", "");
            let source =
                format!("null:source,proto={protocol},count=2000,flows={flows},{settings}");
            let (rx, sent) = to_sim(&source);
            let merged = if stream {
                rx.absorbed
            } else {
                rx.gro_wire_packets
            };
            assert_eq!(merged > 1000, is_merged, "{source}: {rx:?}");
            assert_eq!(rx.gro_flush_evict > 1000, !is_merged, "{source}");
            assert_eq!(sent < 1000, is_merged, "{source}");
        }
    }
}

/// 80,000 connections, of which 256 send trains of four at a time, to a table of eight: sorting
/// finds each train.
#[test]
fn sorting_merges_the_trains_of_any_number_of_flows() {
    let keys = "count=2000,flows=80000,active=256,train=4,gro-flows=8";
    for source in ["proto=tcp,bytes=200", "proto=ack,coalesce=stream"] {
        let (rx, sent) = to_sim(&format!("null:source,{source},{keys},gro-packets=1024"));
        let merged = rx.gro_wire_packets;
        assert!(merged > 1500, "{source}: {rx:?}");
        assert!(sent < 1000, "{source}: {sent}");
    }
    let (rx, sent) = to_sim(&format!("null:source,proto=tcp,coalesce=hash,{keys}"));
    assert_eq!((rx.gro_packets, sent), (0, 2000));
}

/// A segment limit of the egress makes a source receive into pieces, which the TX queue collapses
/// or defragments.
#[test]
fn packets_in_pieces_are_fitted() {
    for (buffers, fitted) in [("", true), (",rx=whole", false), (",rx=pieces", true)] {
        let source = format!("null:source,bytes=9000,count=2000{buffers}");
        let end = all_of(&source, "null:segs=2");
        let tx = end.ports[1].tx_total();
        assert_eq!(tx.packets, 2000);
        let made = if fitted { 2000 } else { 0 };
        assert_eq!(tx.collapse + tx.defrag, made, "rx{buffers}");
    }
}
