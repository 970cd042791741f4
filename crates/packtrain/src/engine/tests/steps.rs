//! Workers step by step, on both paths.

use super::fake::{End, Item};
use super::rig::{Rig, Setup, ring_slots};
use crate::driver::{Features, Input};
use crate::engine::{Action, Handler, RxId, StartError};
use crate::limits::{BURST_PACKETS_MAX, TX_POLL_AFTER, TX_STAGED_PACKETS_MAX};
use crate::packet::Burst;
use crate::plan::PlannedPart;
use crate::stats::{DropReason, HistogramSnapshot};
use crate::time::Instant;
use proptest::prelude::*;
use std::time::Duration;

const FOR_EVER: Action = Action::Sleep { until: None };

#[test]
fn a_busy_queue_gets_one_turn_and_is_polled_once_more_before_the_sleep() {
    let mut rig = Setup::new([1, 1]).forward();
    rig.a[0].arrive(0..100);
    rig.b[0].arrive(1000..1001);
    assert_eq!(rig.run(0), Action::Step);
    // A turn receives as many packets as a burst holds. The other direction has its turn in the
    // same step.
    assert_eq!(rig.b[0].sent().len(), BURST_PACKETS_MAX);
    assert_eq!(rig.a[0].sent(), [1000]);
    assert_eq!(rig.run(0), Action::Step);
    assert_eq!(rig.b[0].sent().len(), 100);
    assert_eq!(rig.run(0), FOR_EVER);
    let ports = rig.closed().ports;
    let sizes = |sizes: &HistogramSnapshot| sizes.buckets().collect::<Vec<_>>();
    assert_eq!(sizes(&ports[0].rx_batches[0].poll), [(36, 1), (64, 1)]);
    assert_eq!(sizes(&ports[1].tx_batches[0].drain), [(36, 1), (64, 1)]);
    assert_eq!(sizes(&ports[0].tx_batches[0].drain), [(1, 1)]);
}

#[test]
fn both_directions_keep_their_order_and_bad_packets_are_counted() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.a[0].arrive(0..200);
        rig.b[0].arrive_items((1000..1010).map(Item::Packet));
        rig.b[0].rx().items.insert(5, Item::Bad);
        rig.settle();
        rig.b[0].assert_sent(0..200, &path);
        rig.a[0].assert_sent(1000..1010, &path);
        // A packet that arrives later wakes the worker.
        rig.receive([200]);
        assert_eq!(rig.b[0].sent().len(), 201, "{path}");
        let end = rig.finish();
        let ledger = end.ledger;
        assert_eq!(
            (ledger.received, ledger.transmitted, ledger.dropped),
            (212, 211, 1)
        );
        assert_eq!(end.drops.get(DropReason::BadDescriptor), 1, "{path}");
    }
}

/// If a device accepts nothing, received packets are held and no more are received. The worker
/// sleeps even if packets wait at the ingress.
#[test]
fn a_stalled_egress_pushes_back_and_lets_the_workers_sleep() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.b[0].tx().room = 10;
        rig.a[0].arrive(0..1500);
        rig.a[0].rx().next_at = Some(Instant::from_nanos(0));
        let until = rig.settle().expect("the device is polled after a while");
        assert!(until >= rig.now().after(TX_POLL_AFTER), "{path}");
        let held = rig.closed().ledger.held;
        let most = 3 * BURST_PACKETS_MAX + ring_slots(&path);
        assert!(held > 0 && held <= most as u64, "{path}: {held}");
        let polls = rig.a[0].rx().polls;
        for _ in 0..10 {
            for worker in 0..rig.workers.len() {
                assert!(matches!(rig.run(worker), Action::Sleep { .. }), "{path}");
            }
        }
        assert_eq!(rig.a[0].rx().polls, polls, "{path}");
        assert_eq!(rig.b[0].sent().len(), 10, "{path}");
        // The other direction continues.
        rig.b[0].arrive([5]);
        rig.settle();
        assert_eq!(rig.a[0].sent(), [5], "{path}");
        rig.a[0].rx().next_at = None;
        rig.make_room(usize::MAX);
        rig.b[0].assert_sent(0..1500, &path);
        assert_eq!(rig.finish().ledger.dropped, 0, "{path}");
    }
}

#[test]
fn a_full_device_bounds_the_received_packets_and_none_is_dropped() {
    const OFFERED: usize = 12_000;
    for queues in [1, 4] {
        for (path, setup) in Setup::new([queues, 1]).on_every_path() {
            let name = format!("{path}, {queues}");
            let mut rig = setup.forward();
            let device = rig.b[0].clone();
            device.tx().room = 0;
            let places = ring_slots(&path) + BURST_PACKETS_MAX + 2 * TX_STAGED_PACKETS_MAX;
            let most = places + queues * BURST_PACKETS_MAX;
            let each = (OFFERED / queues) as u32;
            for (index, queue) in (0u32..).zip(&rig.a) {
                queue.arrive((0..each).map(|n| index << 20 | n));
            }
            rig.settle();
            let received = rig.closed().ledger.received as usize;
            assert!((1..=most).contains(&received), "{name}: {received}");
            rig.settle();
            // Each packet sent makes room for another one.
            rig.make_room(200);
            let ledger = rig.closed().ledger;
            assert_eq!(ledger.transmitted, 200, "{name}");
            assert!(ledger.held as usize <= most, "{name}: {}", ledger.held);
            rig.make_room(usize::MAX);
            let sent = device.sent();
            for index in 0..queues {
                let begin = (index << 20) as u32;
                let own = sent.iter().copied().filter(|&n| n >> 20 == index as u32);
                assert!(own.eq(begin..begin + each), "{name}: {index}");
            }
            let end = rig.finish();
            assert_eq!(
                (end.drops.total(), end.ledger.transmitted),
                (0, OFFERED as u64),
                "{name}"
            );
        }
    }
}

/// Each of two workers has the lanes that send to the other's TX queues, and the devices accept
/// nothing. The workers do not wake each other.
#[test]
fn workers_that_wait_for_each_others_queues_sleep() {
    for (path, setup) in Setup::new([2, 2]).on_every_path() {
        let mut rig = setup.settled();
        let before = rig.closed().sleeps;
        for (source, device) in rig.a.iter().zip(&rig.b) {
            device.tx().room = 0;
            source.arrive(0..1500);
        }
        rig.settle();
        let sleeps = rig.closed().sleeps - before;
        assert!(sleeps <= 16, "{path}: {sleeps}");
        rig.b.iter().for_each(|device| device.make_room(usize::MAX));
        rig.settle();
        assert_eq!(rig.finish().ledger.transmitted, 3000, "{path}");
    }
}

/// A TAP stays writable while the kernel has no memory, so the worker can only wait for a time.
#[test]
fn without_memory_in_the_system_a_worker_waits_by_time() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        for stopped in [false, true] {
            let mut rig = setup.forward();
            rig.b[0].tx().no_memory = true;
            rig.receive(0..10);
            if stopped {
                rig.session.stop();
            }
            for _ in 0..3 {
                let until = rig.settle();
                let wait = until.unwrap().since(rig.now());
                assert!(
                    wait > Duration::ZERO && wait <= Duration::from_millis(1),
                    "{path}"
                );
                let asked = rig.b[0].tx().asked;
                rig.advance(wait);
                rig.settle();
                assert!(rig.b[0].tx().asked > asked, "{path}");
            }
            assert_eq!(rig.closed().ledger.held, 10, "{path}");
            rig.b[0].tx().no_memory = false;
            rig.pass_until(|rig| rig.b[0].sent().len() == 10);
            rig.finish();
        }
    }
}

#[test]
fn a_stalled_device_is_offered_packets_once_a_step() {
    let mut rig = Setup::new([4, 1]).forward();
    rig.b[0].tx().room = 0;
    for queue in &rig.a {
        queue.arrive(0..64);
    }
    rig.settle();
    let asked = rig.b[0].tx().asked;
    for step in 1..=5 {
        rig.run(0);
        assert_eq!(rig.b[0].tx().asked, asked + step);
    }
}

/// RX queues that share a TX queue with too little room each get a share of it.
#[test]
fn queues_that_share_an_egress_alternate() {
    for (path, setup) in Setup::new([4, 1]).on_every_path() {
        for room in [1, 64, 100] {
            let mut rig = setup.forward();
            rig.b[0].tx().room = 0;
            for (index, queue) in (0u32..).zip(&rig.a) {
                queue.arrive((0..2000).map(|n| index << 16 | n));
            }
            for _ in 0..40 * 64 / room {
                rig.make_room(room);
            }
            let mut shares = [0usize; 4];
            for number in rig.b[0].sent() {
                shares[(number >> 16) as usize] += 1;
            }
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(
                most - least <= 192 && *least >= 500,
                "{path}, {room}: {shares:?}"
            );
        }
    }
}

#[test]
fn queue_i_sends_to_queue_i_modulo_the_other_ports() {
    for (from, to) in [(1, 1), (4, 4), (4, 1), (4, 3), (1, 4), (2, 7)] {
        for per_direction in [false, true] {
            let mut setup = Setup::new([from, to]);
            setup.cpus = 64;
            if per_direction {
                setup.offloads[0][0] = Features::CSUM | Features::TSO;
            }
            for (path, setup) in [
                ("owned", setup.clone()),
                ("shared", setup.shared(super::rig::POLICIES[1])),
            ] {
                maps_queues(&setup, [from, to], &format!("{path}, {from} to {to}"));
            }
        }
    }
}

fn maps_queues(setup: &Setup, [from, to]: [usize; 2], name: &str) {
    let mut rig = setup.forward();
    let pairs = from.min(to);
    let lanes = |parts: &Vec<PlannedPart>| {
        parts
            .iter()
            .any(|part| matches!(part, PlannedPart::Lanes { .. }))
    };
    let plan = rig.session.plan();
    let workers = plan.workers.iter().filter(|parts| lanes(parts)).count();
    assert_eq!(
        workers,
        pairs * if plan.worker_per_direction() { 2 } else { 1 },
        "{name}"
    );
    for (index, queue) in (0u32..).zip(&rig.a) {
        queue.arrive((0..100).map(|n| index << 16 | n));
    }
    for (index, queue) in (0u32..).zip(&rig.b) {
        queue.arrive([index]);
    }
    rig.settle();
    for (index, queue) in rig.b.iter().enumerate() {
        let sent = queue.sent();
        for source in 0..from {
            let own: Vec<_> = sent
                .iter()
                .filter(|&n| (n >> 16) as usize == source)
                .collect();
            let here = source % pairs == index;
            assert_eq!(own.len(), if here { 100 } else { 0 }, "{name}");
            assert!(own.is_sorted(), "{name}");
        }
    }
    for (index, queue) in rig.a.iter().enumerate() {
        let mut back: Vec<_> = (0..to as u32).collect();
        back.retain(|source| *source as usize % pairs == index);
        let mut sent = queue.sent();
        sent.sort_unstable();
        assert_eq!(sent, back, "{name}");
    }
    rig.finish();
}

#[test]
fn a_port_without_queues_does_not_start() {
    for (queues, name) in [([0, 2], "a: "), ([2, 0], "b: ")] {
        match Setup::new(queues).try_rig(|_| crate::engine::Forward) {
            Err(StartError::Port(error)) => {
                let why = error.to_string();
                assert!(why.starts_with(name) && why.contains("with 0 of "), "{why}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("the session starts"),
        }
    }
}

#[test]
fn finite_inputs_end_the_run_when_all_of_them_have_ended() {
    for (path, mut setup) in Setup::new([2, 2]).on_every_path() {
        setup.input = [Input::Finite, Input::None];
        let mut rig = setup.forward();
        rig.a[0].arrive(0..100);
        rig.a[0].end(End::Finished);
        rig.settle();
        assert!(!rig.session.is_over(), "{path}");
        let polls = rig.a[0].rx().polls;
        rig.a[1].arrive(0..100);
        rig.settle();
        assert_eq!(
            rig.a[0].rx().polls,
            polls,
            "{path}: an ended queue is not polled"
        );
        rig.a[1].end(End::Finished);
        rig.settle();
        assert!(rig.is_done() && rig.session.is_over(), "{path}");
        assert_eq!(rig.finish().ledger.transmitted, 200, "{path}");
    }
}

#[test]
fn the_packet_limit_is_exact() {
    for (path, setup) in Setup::new([2, 2]).on_every_path() {
        for count in [1, 63, 64, 65, 300] {
            let mut setup = setup.clone();
            setup.packets = Some(count);
            let mut rig = setup.forward();
            let queues: Vec<_> = rig.a.iter().chain(&rig.b).cloned().collect();
            queues.iter().for_each(|queue| queue.arrive(0..1000));
            rig.settle();
            assert!(rig.is_done(), "{path}, {count}");
            assert_eq!(rig.finish().ledger.transmitted, count, "{path}");
        }
    }
}

#[test]
fn a_stop_drains_held_packets_and_waits_for_those_in_flight() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        let device = rig.b[0].clone();
        (device.tx().room, device.tx().keeps) = (0, true);
        rig.receive(0..50);
        rig.session.stop();
        rig.receive(50..90);
        assert!(!rig.is_done(), "{path}");
        rig.make_room(usize::MAX);
        assert_eq!(rig.closed().ledger.transmitted, 50, "{path}");
        device.complete(49);
        rig.settle();
        assert!(!rig.is_done() && device.tx().kept.len() <= 50, "{path}");
        device.complete(1);
        rig.settle();
        assert!(rig.is_done(), "{path}: the completion wakes the worker");
        assert_eq!(
            rig.a[0].rx().items.len(),
            40,
            "{path}: not received after the stop"
        );
        rig.finish();
    }
}

/// Two seconds after the stop, packets that the device has not accepted or not completed are
/// dropped.
#[test]
fn a_stop_ends_after_two_seconds_at_the_latest_and_counts_the_drops() {
    for (path, setup) in Setup::new([2, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.b[0].tx().room = 5;
        rig.a.iter().for_each(|queue| queue.arrive(0..1000));
        rig.settle();
        let took = rig.stop();
        let two = Duration::from_secs(2);
        assert!(
            took >= two && took < two + Duration::from_millis(100),
            "{path}: {took:?}"
        );
        let end = rig.closed();
        assert_eq!((end.ledger.transmitted, end.ledger.held), (5, 0), "{path}");
        let lost = end.drops.get(DropReason::Shutdown);
        assert!(lost > 0 && lost == end.ledger.received - 5, "{path}");
        let arena = rig.arena();
        drop(rig);
        arena.flush_cache();
        assert_eq!(arena.census().lines_used, 0, "{path}: all memory is free");
    }
}

#[test]
fn packets_before_a_receive_error_are_sent() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.forward();
        rig.a[0].arrive(0..10);
        rig.a[0].rx().end = Some(End::Failed);
        rig.try_settle();
        assert_eq!(
            rig.take_error().to_string(),
            "first port: cannot read: test",
            "{path}"
        );
        assert!(rig.is_done() && rig.session.is_over(), "{path}");
        assert_eq!(
            (rig.b[0].sent().len(), rig.b[0].tx().pending),
            (10, 0),
            "{path}"
        );
        rig.finish();
    }
}

/// The device of an RX queue, and then that of a TX queue.
#[test]
fn a_removed_device_ends_the_run_with_the_ledger_closed() {
    for (path, setup) in Setup::new([3, 3]).on_every_path() {
        let mut rig = setup.settled();
        rig.b[1].end(End::Removed);
        rig.try_settle();
        assert!(rig.is_done(), "{path}");
        assert_eq!(rig.removed_port(), Some(1), "{path}");
        rig.finish();

        let mut rig = setup.forward();
        rig.b[2].tx().removed = true;
        rig.a[2].arrive(0..10);
        rig.try_settle();
        assert!(rig.is_done(), "{path}");
        assert_eq!(rig.take_error().port, Some(1), "{path}");
        let end = rig.finish();
        assert_eq!(end.drops.get(DropReason::DeviceReset), 10, "{path}");
        assert_eq!(end.drops.get(DropReason::Shutdown), 0, "{path}");
    }
}

#[test]
fn the_next_due_packet_of_any_queue_bounds_the_sleep() {
    let mut rig = Setup::new([2, 1]).forward();
    let at = |ms: u64| Some(Instant::from_nanos(ms * 1_000_000));
    rig.a[1].rx().next_at = at(500);
    rig.run(0);
    assert_eq!(rig.settle(), at(500));
    rig.b[0].rx().next_at = at(300);
    rig.run(0);
    assert_eq!(rig.settle(), at(300));
    rig.a[0].rx().next_at = at(400);
    // The time of a lane that waits for its TX path does not count.
    rig.a[0].tx().room = 0;
    rig.b[0].arrive([1]);
    assert_eq!(rig.settle(), Some(rig.now().after(TX_POLL_AFTER)));
    rig.a[0].make_room(1);
    assert_eq!(rig.settle(), at(300));
}

/// A handler that takes every third packet out, and duplicates every fifth.
#[derive(Default)]
struct Meddle {
    seen: u32,
}

impl Handler for Meddle {
    fn handle(&mut self, _now: Instant, from: RxId, burst: &mut Burst) {
        assert_eq!(from, RxId { port: 0, queue: 0 });
        for _ in 0..burst.len() {
            let packet = burst.pop().unwrap();
            self.seen += 1;
            if self.seen.is_multiple_of(3) {
                continue;
            }
            if self.seen.is_multiple_of(5) && burst.room() > 1 {
                burst.push(packet.try_clone().unwrap()).unwrap();
            }
            burst.push(packet).unwrap();
        }
    }
}

#[test]
fn packets_that_a_handler_takes_out_or_puts_in_are_counted() {
    for (path, setup) in Setup::new([1, 1]).on_every_path() {
        let mut rig = setup.rig(|_| Meddle::default());
        rig.receive(1..=300);
        let sent = rig.b[0].sent().len() as u64;
        let ledger = rig.finish().ledger;
        assert_eq!((ledger.received, ledger.transmitted), (300, sent), "{path}");
        assert_eq!(ledger.delivered - ledger.generated, 300 - sent, "{path}");
        assert!(ledger.delivered > 0 && sent < 300, "{path}");
    }
}

/// Devices wake the worker by descriptors or by interrupts.
#[test]
fn a_wake_up_is_counted_for_its_queue() {
    for with_fds in [false, true] {
        for (path, mut setup) in Setup::new([1, 1]).on_every_path() {
            setup.with_fds = with_fds;
            let mut rig = setup.settled();
            rig.receive([1]);
            rig.b[0].tx().room = 0;
            rig.receive(0..10);
            rig.make_room(usize::MAX);
            let ports = rig.closed().ports;
            let name = format!("{path}, descriptors: {with_fds}");
            assert_eq!(
                (ports[0].rx[0].wakeups, ports[1].rx[0].wakeups),
                (2, 0),
                "{name}"
            );
            let producers = ports[1].tx[0].deferred + 1;
            let woken = ports[1].tx[0].wakeups;
            assert!(woken >= 1 && woken <= 1 + producers, "{name}: {woken}");
            assert_eq!(rig.b[0].sent().len(), 11, "{name}");
            assert_eq!(ports[1].tx[0].missed_wakeups, 0, "{name}");
            rig.finish();
        }
    }
}

/// A worker waits for the RX queues from which it receives, and for a TX queue for which packets
/// wait.
#[test]
fn a_worker_waits_for_devices_that_can_continue_its_work() {
    let mut setup = Setup::new([1, 1]);
    setup.with_fds = true;
    let mut rig = setup.settled();
    assert_eq!(rig.watched(0), 2);
    rig.b[0].tx().room = 0;
    rig.receive(0..10);
    assert_eq!(
        rig.watched(0),
        2,
        "the RX queue of b, and the TX queue of b"
    );
    rig.session.stop();
    rig.settle();
    assert_eq!(rig.watched(0), 1);
    rig.make_room(10);
    assert!(rig.is_done());
}

#[derive(Clone, Debug)]
enum Act {
    Arrive(bool, usize, u8),
    Room(bool, usize, u8),
    Complete(bool, usize, u8),
    Run(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let at = || (any::<bool>(), 0..4usize, any::<u8>());
    let act = prop_oneof![
        1 => at().prop_map(|(s, q, n)| Act::Arrive(s, q, n)),
        1 => at().prop_map(|(s, q, n)| Act::Room(s, q, n)),
        1 => at().prop_map(|(s, q, n)| Act::Complete(s, q, n)),
        6 => (0..12usize).prop_map(Act::Run),
    ];
    prop::collection::vec(act, 1..80)
}

fn at(rig: &Rig, side: bool, queue: usize) -> (super::fake::Queue, u32) {
    let side = if side { &rig.b } else { &rig.a };
    let queue = queue % side.len();
    (side[queue].clone(), queue as u32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// For any order of arrivals, stalls and completions, on every path: the ledger is closed after
    /// each step, packets keep their order, and no packet and no wake-up is lost.
    #[test]
    fn conservation_and_order_at_every_step(
        queues in (1..4usize, 1..4usize), keeps in any::<bool>(), acts in acts(),
        path in 0..12usize, cpus in 1..6usize,
    ) {
        let (_, mut setup) = Setup::new([queues.0, queues.1]).on_every_path().swap_remove(path);
        setup.cpus = cpus;
        let mut rig = setup.forward();
        let all: Vec<_> = rig.a.iter().chain(&rig.b).cloned().collect();
        for queue in &all {
            (queue.tx().room, queue.tx().keeps) = (0, keeps);
        }
        let mut arrived = 0;
        for act in acts {
            match act {
                Act::Arrive(side, queue, count) => {
                    let (queue, index) = at(&rig, side, queue);
                    queue.arrive((arrived..arrived + u32::from(count)).map(|n| index | n << 3));
                    arrived += u32::from(count);
                }
                Act::Room(side, queue, room) => {
                    let (queue, _) = at(&rig, side, queue);
                    queue.tx().room = 0;
                    queue.make_room(room.into());
                }
                Act::Complete(side, queue, count) => at(&rig, side, queue).0.complete(count.into()),
                Act::Run(worker) => {
                    let worker = worker % rig.workers.len();
                    rig.run(worker);
                }
            }
        }
        for queue in &all {
            queue.complete(usize::MAX);
            queue.make_room(usize::MAX);
        }
        // A full device that cannot count completions is left alone for a while. A lost wake-up
        // would take longer.
        let all_sent = |rig: &Rig| rig.closed().ledger.transmitted == u64::from(arrived);
        let took = rig.pass_until(all_sent);
        prop_assert!(took < TX_POLL_AFTER, "{:?}", took);
        rig.session.stop();
        let took = rig.pass_until(Rig::is_done);
        prop_assert!(took < Duration::from_secs(1), "{:?}", took);
        let end = rig.finish();
        prop_assert_eq!((end.ledger.dropped, end.ledger.transmitted), (0, u64::from(arrived)));
        let missed: u64 = end.ports.iter().map(|port| port.tx_total().missed_wakeups).sum();
        prop_assert_eq!(missed, 0);
        for queue in &all {
            for source in 0..4 {
                let sent = queue.sent();
                prop_assert!(sent.iter().filter(|&n| n & 7 == source).is_sorted());
            }
        }
    }
}
