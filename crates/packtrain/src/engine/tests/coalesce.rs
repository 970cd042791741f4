//! A worker that merges what it receives: nothing is stranded, whatever happens around it.

use super::fake::{End, Queue, World, plan_of, planned};
use crate::driver::{Armed, Features, Input};
use crate::engine::{Forward, Next};
use crate::limits::{BURST_PACKETS_MAX, COALESCE_HOLD_MAX, TX_POLL_AFTER};
use crate::plan::{Coalescing, Plan};
use crate::stats::DropReason;
use crate::test_packets::{Segment, tcp4};
use crate::time::Instant;
use packtrain_offload::coalesce::{Mode, Semantics};

const NOW: Instant = Instant::from_nanos(1_000_000);
const PAYLOAD: usize = 1000;

/// Packets from a are merged; b takes them large.
pub(super) fn plan(queues: [usize; 2]) -> Plan {
    let mut plan = plan_of(queues);
    plan.directions[0].tx = Features::CSUM | Features::TSO;
    plan.directions[0].coalesce = Some(Coalescing {
        semantics: Semantics::Reversible,
        mode: Mode::Auto,
        kinds: Features::TSO4,
        segments_max: 63,
    });
    plan
}

fn merging(queues: [usize; 2], input: Input) -> World<Forward> {
    let inputs = [input, Input::Endless];
    planned(&plan(queues), queues, inputs, None, || Forward).unwrap()
}

/// Segments `range` of the flow from `port`.
pub(super) fn flow(port: u16, range: std::ops::Range<u32>) -> impl Iterator<Item = Segment> {
    range.map(move |i| Segment {
        port,
        seq: 1 + i * PAYLOAD as u32,
        id: i as u16,
        payload: PAYLOAD,
        ..Segment::default()
    })
}

fn step(world: &mut World<Forward>, now: Instant) -> Next {
    let next = world.worker(0).step(now).unwrap();
    world.closed();
    next
}

fn settle(world: &mut World<Forward>) -> Next {
    for _ in 0..1000 {
        let next = step(world, NOW);
        if next != Next::Again {
            return next;
        }
    }
    panic!("no end")
}

/// Nothing to do but to ask, after a while, whether a wake-up of the device was lost.
fn waits_for_the_device() -> Next {
    Next::SleepUntil(NOW.after(TX_POLL_AFTER))
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
    let mut world = merging([1, 1], Input::Endless);
    world.a[0].arrive_tcp(flow(7, 0..100));
    assert_eq!(step(&mut world, NOW), Next::Again);
    // 65 534 bytes of IP datagram have room for 65 of these.
    assert_eq!(sizes(&world.b[0]), [63]);
    assert_eq!(world.closed().ledger.held, 1);
    assert_eq!(settle(&mut world), Next::Arm);
    assert_eq!(sizes(&world.b[0]), [63, 37]);
    assert_eq!(world.closed().ledger.held, 0);
    assert_stream(&world.b[0], 7, 100);
    let coalesce = &world.closed().ports[0].rx_batches[0].coalesce;
    assert_eq!(
        (coalesce.count(), coalesce.sum(), coalesce.max()),
        (2, 100, 63)
    );
    assert_eq!(world.worker(0).arm(), Armed::Idle);
}

#[test]
fn a_poll_that_never_ends_does_not_hold_packets_for_ever() {
    let mut world = merging([1, 1], Input::Endless);
    world.a[0].arrive_tcp(flow(1, 0..1));
    let (mut now, mut steps) = (NOW, 0);
    while sizes(&world.b[0]).is_empty() {
        // Never an empty look, and nothing of the first flow. None of these are merged.
        world.a[0].arrive(0..BURST_PACKETS_MAX as u32);
        assert_eq!(step(&mut world, now), Next::Again);
        now = now.after(COALESCE_HOLD_MAX / 4);
        steps += 1;
        assert!(steps < 10, "held for ever");
    }
    assert!(now > NOW.after(COALESCE_HOLD_MAX));
    let snapshot = world.closed();
    assert_eq!(snapshot.ports[0].rx_total().gro_flush_inactive, 1);
    assert_stream(&world.b[0], 1, 1);
}

#[test]
fn a_stop_sends_on_what_is_held() {
    let mut world = merging([1, 1], Input::Endless);
    world.a[0].arrive_tcp(flow(1, 0..30));
    assert_eq!(step(&mut world, NOW), Next::Again);
    assert_eq!(world.closed().ledger.held, 30);
    world.intake.stop();
    assert_eq!(settle(&mut world), Next::Done);
    assert_eq!(sizes(&world.b[0]), [30]);
}

#[test]
fn the_end_of_the_input_sends_on_what_is_held() {
    let mut world = merging([1, 1], Input::Finite);
    world.a[0].arrive_tcp(flow(1, 0..30));
    world.a[0].rx().end = Some(End::Finished);
    assert_eq!(settle(&mut world), Next::Done);
    assert_eq!(sizes(&world.b[0]), [30]);
    assert_stream(&world.b[0], 1, 30);
}

#[test]
fn the_count_of_packets_sends_on_what_is_held() {
    let inputs = [Input::Endless; 2];
    let mut world = planned(&plan([1, 1]), [1, 1], inputs, Some(20), || Forward).unwrap();
    world.a[0].arrive_tcp(flow(1, 0..100));
    assert_eq!(settle(&mut world), Next::Done);
    assert_eq!(sizes(&world.b[0]), [20]);
}

/// What came before a failure is sent on; what the failure of the egress leaves is counted.
#[test]
fn failures_strand_nothing() {
    let mut world = merging([1, 1], Input::Endless);
    world.a[0].arrive_tcp(flow(1, 0..30));
    world.a[0].rx().end = Some(End::Failed);
    assert!(world.worker(0).step(NOW).is_err());
    assert_eq!(sizes(&world.b[0]), [30]);
    assert_eq!(world.closed().ledger.held, 0);

    let mut world = merging([1, 1], Input::Endless);
    world.a[0].arrive_tcp(flow(1, 0..30));
    assert_eq!(step(&mut world, NOW), Next::Again);
    world.b[0].tx().removed = true;
    assert!(world.worker(0).step(NOW).is_err());
    world.worker(0).abandon(DropReason::DeviceReset);
    let snapshot = world.closed();
    assert_eq!(snapshot.drops.get(DropReason::DeviceReset), 30);
    assert_eq!(snapshot.ledger.held, 0);
}

/// Held packets wait with the others, and the worker may sleep until the egress goes on.
#[test]
fn a_stalled_egress_holds_and_lets_go_in_order() {
    let mut world = merging([1, 1], Input::Endless);
    world.b[0].tx().room = 1;
    world.a[0].arrive_tcp(flow(1, 0..300));
    assert_eq!(settle(&mut world), waits_for_the_device());
    assert_eq!(world.worker(0).arm(), Armed::Idle);
    let held = world.closed().ledger.held;
    assert!(held > 0, "{held}");
    assert_eq!(settle(&mut world), waits_for_the_device());
    assert_eq!(world.closed().ledger.held, held);
    world.b[0].tx().room = usize::MAX;
    assert_eq!(settle(&mut world), Next::Arm);
    assert_stream(&world.b[0], 1, 300);
    assert_eq!(world.closed().ledger.held, 0);
}

/// Two RX queues share a TX queue that stalls: what both hold goes on when it does.
#[test]
fn queues_that_share_a_stalled_one_strand_nothing() {
    let mut world = merging([2, 1], Input::Endless);
    world.b[0].tx().room = 1;
    world.a[0].arrive_tcp(flow(1, 0..150));
    world.a[1].arrive_tcp(flow(2, 0..150));
    assert_eq!(settle(&mut world), waits_for_the_device());
    for _ in 0..100 {
        world.b[0].tx().room = 1;
        settle(&mut world);
    }
    assert_stream(&world.b[0], 1, 150);
    assert_stream(&world.b[0], 2, 150);
    assert_eq!(world.closed().ledger.held, 0);
}

/// Some kernels refuse large packets that they said they take: those are cut again, and no more
/// are made.
#[test]
fn a_refused_kind_is_cut_again_and_not_merged_any_more() {
    let mut world = merging([1, 1], Input::Endless);
    world.b[0].tx().refuses = Features::TSO4;
    world.a[0].arrive_tcp(flow(1, 0..200));
    assert_eq!(settle(&mut world), Next::Arm);
    assert_stream(&world.b[0], 1, 200);
    assert_eq!(sizes(&world.b[0]), vec![1; 200]);
    let snapshot = world.closed();
    let rx = snapshot.ports[0].rx_total();
    assert!(snapshot.ports[1].refused.contains(Features::TSO4));
    assert!(rx.gro_passed_off >= 100, "{}", rx.gro_passed_off);
    assert!(rx.gro_packets > 0);
    assert_eq!(snapshot.ledger.dropped, 0);
}

/// What is held is memory: none is kept while the device lacks it.
#[test]
fn a_device_without_buffers_ends_the_wait() {
    let mut world = merging([1, 1], Input::Endless);
    world.a[0].rx().short = true;
    world.a[0].arrive_tcp(flow(1, 0..30));
    assert_eq!(step(&mut world, NOW), Next::Again);
    assert_eq!(sizes(&world.b[0]), [30]);
    assert_eq!(world.closed().ledger.held, 0);
}

/// Flows that take turns: each is merged, and stays in order.
#[test]
fn interleaved_flows_are_merged_side_by_side() {
    let mut world = merging([1, 1], Input::Endless);
    let turns = (0..40).flat_map(|i| (1..=8).flat_map(move |port| flow(port, i..i + 1)));
    world.a[0].arrive_tcp(turns);
    settle(&mut world);
    assert_eq!(sizes(&world.b[0]), [40; 8]);
    for port in 1..=8 {
        assert_stream(&world.b[0], port, 40);
    }
}

/// FreeBSD D52989: a device whose hash is not constant within a flow, as the opaque types of RSS
/// allow, and software that told flows apart by it. Flows here are told apart by their headers:
/// the hash of a device changes nothing, whatever it is.
#[test]
fn the_hash_of_a_device_neither_splits_a_flow_nor_reorders_it() {
    type Hash = fn(&Segment) -> u32;
    let hashes: [(&str, Hash); 5] = [
        ("of the flow", |segment| u32::from(segment.port)),
        ("the same for all flows", |_| 0xFFFF_FFFF),
        ("one of two in turn", |segment| {
            u32::from(segment.id % 2) + 1
        }),
        ("another for each packet", |segment| {
            segment.seq.wrapping_mul(0x9E37_79B9)
        }),
        ("now and then none", |segment| {
            u32::from(segment.id % 3) * 0x1234_5678
        }),
    ];
    for mode in [Mode::Hash, Mode::Sorted, Mode::Auto] {
        for (what, hash) in hashes {
            let mut plan = plan([1, 1]);
            if let Some(coalescing) = &mut plan.directions[0].coalesce {
                coalescing.mode = mode;
            }
            let inputs = [Input::Endless; 2];
            let mut world = planned(&plan, [1, 1], inputs, None, || Forward).unwrap();
            world.a[0].rx().hash = Some(hash);
            let turns = (0..40).flat_map(|i| (1..=8).flat_map(move |port| flow(port, i..i + 1)));
            world.a[0].arrive_tcp(turns);
            settle(&mut world);
            for port in 1..=8 {
                assert_stream(&world.b[0], port, 40);
            }
            assert_eq!(sizes(&world.b[0]), [40; 8], "{mode:?}, {what}");
        }
    }
}
