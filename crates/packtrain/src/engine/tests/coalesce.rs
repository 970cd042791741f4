//! A worker that merges what it receives: nothing is stranded, whatever happens around it.

use super::fake::{End, Queue};
use super::rig::{Rig, Setup, closed};
use crate::driver::{Coalesce, Features, Input};
use crate::engine::{Action, Session, Snapshot};
use crate::limits::{BURST_PACKETS_MAX, COALESCE_HOLD_MAX};
use crate::port;
use crate::runtime::System;
use crate::stats::{DropReason, RxSnapshot};
use crate::test_packets::{Segment, tcp4};
use crate::time::Instant;
use std::sync::Arc;
use std::time::Duration;

const PAYLOAD: usize = 1000;

/// Packets from a are merged, and b takes them large.
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

/// What was sent is the stream `0..segments` of `port`, in order and complete.
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

/// A burst is not the end of a train: what is held stays while packets come, and goes before the
/// worker sleeps.
#[test]
fn trains_are_merged_across_bursts_and_never_slept_on() {
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

/// While the queue is never found empty, a packet goes on once it is old and was not continued
/// since the last turn.
#[test]
fn a_poll_that_never_ends_does_not_hold_packets_for_ever() {
    let mut rig = merging([1, 1]).forward();
    rig.a[0].arrive_tcp(flow(1, 0..1));
    let (begin, mut steps) = (rig.now(), 0);
    while sizes(&rig.b[0]).is_empty() {
        // Never an empty poll, and nothing of the first flow. None of these are merged.
        rig.a[0].arrive(0..BURST_PACKETS_MAX as u32);
        assert_eq!(rig.run(0), Action::Step);
        rig.advance(COALESCE_HOLD_MAX / 4);
        steps += 1;
        assert!(steps < 10, "held for ever");
    }
    assert!(rig.now() > begin.after(COALESCE_HOLD_MAX));
    assert_eq!(rig.closed().ports[0].rx_total().gro_flush_inactive, 1);
    assert_stream(&rig.b[0], 1, 1);
}

/// Turns that take longer than packets are held, as with jumbo frames or a busy CPU: what the last
/// turn received could not be continued before this one, so nothing is flushed for its age while
/// its queue was not found empty since.
#[test]
fn nothing_is_flushed_for_its_age_while_its_queue_was_not_found_empty_since() {
    let mut rig = merging([1, 1]).forward();
    // A turn receives 64 of them, and 63 are a whole packet; each next turn is late.
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
fn the_end_of_a_run_sends_on_what_is_held() {
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

/// What came before a failure is sent on; what the failure of the egress leaves is counted.
#[test]
fn failures_strand_nothing() {
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

/// Held packets wait with the others, and the worker sleeps until the egress goes on; also if two
/// RX queues share it.
#[test]
fn a_stalled_egress_holds_and_lets_go_in_order() {
    for (path, setup) in merging([2, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.b[0].tx().room = 1;
        rig.a[0].arrive_tcp(flow(1, 0..300));
        rig.a[1].arrive_tcp(flow(2, 0..150));
        rig.settle();
        for _ in 0..100 {
            rig.b[0].make_room(1);
            rig.settle();
        }
        assert_stream(&rig.b[0], 1, 300);
        assert_stream(&rig.b[0], 2, 150);
        assert_eq!(rig.finish().ledger.dropped, 0, "{path}");
    }
}

/// Some kernels refuse large packets that they said they take: those are cut again, and no more
/// are made.
#[test]
fn a_refused_kind_is_cut_again_and_not_merged_any_more() {
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

/// What is held is memory: none is kept while the device lacks it.
#[test]
fn a_device_without_buffers_ends_the_wait() {
    let mut rig: Rig = merging([1, 1]).forward();
    rig.a[0].rx().short = true;
    rig.a[0].arrive_tcp(flow(1, 0..30));
    assert_eq!(rig.run(0), Action::Step);
    assert_eq!((sizes(&rig.b[0]), rig.closed().ledger.held), (vec![30], 0));
    rig.a[0].rx().short = false;
    rig.advance(Duration::from_millis(1));
    rig.finish();
}

/// FreeBSD D52989: a device whose hash is not constant within a flow, as the opaque types of RSS
/// allow, and software that told flows apart by it. Flows here are told apart by their headers:
/// the hash of a device changes nothing, whatever it is.
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

/// What is counted when all of a source, 2000 packets, has gone to `egress`.
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

/// What is counted of a source, and the packets that a simulated NIC was given.
fn to_sim(source: &str) -> (RxSnapshot, u64) {
    let end = all_of(source, "sim:");
    (end.ports[0].rx_total(), end.ports[1].tx_total().packets)
}

/// A source shows how TCP is merged, and what ends a merged packet: nothing but its length while
/// packets are in order, a timestamp that goes up, or packets out of order.
#[test]
fn a_source_of_tcp_is_merged_and_shows_what_ends_a_merged_packet() {
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
        // Of a hundred late ones, each ends what is held, as the early one before and the one after
        // it do if something is.
        let ended = rx.gro_flush_order;
        assert!((100..=300).contains(&ended), "{flows} flows: {ended}");
        assert!(more > sent);
    }
}

/// ACKs are aggregated as a stream, and passed on where bytes are to be restored.
#[test]
fn a_source_of_acks_is_aggregated() {
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

/// A limit on the egress makes a source receive into pieces, and they are made to fit.
#[test]
fn what_a_source_makes_in_pieces_is_fitted() {
    for (buffers, fitted) in [("", true), (",rx=whole", false), (",rx=pieces", true)] {
        let source = format!("null:source,bytes=9000,count=2000{buffers}");
        let end = all_of(&source, "null:segs=2");
        let tx = end.ports[1].tx_total();
        assert_eq!(tx.packets, 2000);
        let made = if fitted { 2000 } else { 0 };
        assert_eq!(tx.collapse + tx.defrag, made, "rx{buffers}");
    }
}
