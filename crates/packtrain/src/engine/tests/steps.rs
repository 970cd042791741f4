//! A worker step by step.

use super::fake::{End, FakeWorker, Item, World, dispatched, plan_of, planned, world};
use super::handles::{POLICIES, fill};
use crate::driver::{Armed, DeviceError, Features, Input, Interest};
use crate::engine::{Command, Commanded, Forward, Handler, Next, Port, TxQueues};
use crate::limits::{
    BURST_PACKETS_MAX, TX_POLL_AFTER, TX_REST_MAX, TX_RING_PACKETS, TX_STAGED_PACKETS_MAX,
};
use crate::packet::Burst;
use crate::policy::dispatch::Dispatch;
use crate::stats::{DropReason, HistogramSnapshot};
use crate::time::Instant;
use proptest::prelude::*;
use std::os::fd::AsRawFd;
use std::time::Duration;

const NOW: Instant = Instant::from_nanos(1);
const ENDLESS: [Input; 2] = [Input::Endless; 2];

fn forward(queues: [usize; 2]) -> World<Forward> {
    world(queues, ENDLESS, None, || Forward).unwrap()
}

/// Steps until there is nothing to do now; the books close after every step.
fn settle(world: &mut World<impl Handler>, worker: usize) -> Next {
    for _ in 0..10_000 {
        let next = world.worker(worker).step(NOW).unwrap();
        world.closed();
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

/// Descriptors of devices that the worker waits for.
fn watched(worker: &FakeWorker<impl Handler>) -> usize {
    let (mut count, mut alarms) = (0, 0);
    let own = worker.alarm().fd().as_raw_fd();
    worker.interests(|fd, interest| {
        assert!(fd.as_raw_fd() >= 0);
        assert_eq!(interest, Interest::Read);
        if fd.as_raw_fd() == own {
            alarms += 1;
        } else {
            count += 1;
        }
    });
    assert_eq!(alarms, 1, "its own, always");
    count
}

#[test]
fn a_busy_queue_gets_one_turn_and_is_looked_at_again_before_sleeping() {
    let mut world = forward([1, 1]);
    world.a[0].arrive(0..100);
    world.b[0].arrive(1000..1001);
    assert_eq!(world.worker(0).step(NOW).unwrap(), Next::Again);
    // As many as a burst holds, and the other direction in the same step.
    assert_eq!(world.b[0].tx().sent.len(), 64);
    assert_eq!(world.a[0].tx().sent, [1000]);
    // The rest drains the device; still there is one more look.
    assert_eq!(world.worker(0).step(NOW).unwrap(), Next::Again);
    assert_eq!(world.b[0].tx().sent.len(), 100);
    assert_eq!(world.worker(0).step(NOW).unwrap(), Next::Arm);
    // And what went at once is known afterwards.
    let ports = world.closed().ports;
    let sizes = |sizes: &HistogramSnapshot| sizes.buckets().collect::<Vec<_>>();
    assert_eq!(sizes(&ports[0].rx_batches[0].poll), [(36, 1), (64, 1)]);
    assert_eq!(sizes(&ports[1].tx_batches[0].enqueue), [(36, 1), (64, 1)]);
    assert_eq!(sizes(&ports[1].tx_batches[0].drain), [(36, 1), (64, 1)]);
    assert_eq!(sizes(&ports[0].tx_batches[0].drain), [(1, 1)]);
}

#[test]
fn both_ways_in_order_and_bad_packets_are_counted() {
    let mut world = forward([1, 1]);
    world.a[0].arrive(0..200);
    world.b[0].arrive(1000..1010);
    world.b[0].rx().items.insert(5, Item::Bad);
    assert_eq!(settle(&mut world, 0), Next::Arm);
    assert_eq!(world.b[0].tx().sent, (0..200).collect::<Vec<_>>());
    assert_eq!(world.a[0].tx().sent, (1000..1010).collect::<Vec<_>>());
    let ledger = world.closed().ledger;
    assert_eq!(
        (ledger.received, ledger.transmitted, ledger.dropped),
        (211, 210, 1)
    );
    assert_eq!(world.closed().drops.get(DropReason::BadDescriptor), 1);
    assert_eq!(world.worker(0).arm(), Armed::Idle);
    assert_eq!(watched(world.worker(0)), 2);
    world.a[0].arrive([7]);
    assert_eq!(world.worker(0).arm(), Armed::WorkPending);
}

/// A device that takes nothing: what was received is held, nothing more is received, and there is
/// no reason to be awake, whatever waits at the ingress.
#[test]
fn a_stalled_egress_pushes_back_and_lets_the_worker_sleep() {
    let mut world = forward([1, 1]);
    world.b[0].tx().room = 10;
    world.a[0].arrive(0..1000);
    world.a[0].rx().next_at = Some(Instant::from_nanos(0));
    assert_eq!(settle(&mut world, 0), waits_for_the_device());
    let held = world.closed().ledger.held;
    assert!(held > 0 && held <= 192, "{held}");
    let asked = world.a[0].asked();
    for _ in 0..10 {
        assert_eq!(world.worker(0).step(NOW).unwrap(), waits_for_the_device());
        assert_eq!(world.worker(0).arm(), Armed::Idle);
        // B's RX queue, and B's TX queue that packets wait for; not A's RX queue.
        assert_eq!(watched(world.worker(0)), 2);
    }
    assert_eq!(world.a[0].asked(), asked);
    assert_eq!(world.closed().ledger.held, held);
    assert_eq!(world.b[0].tx().sent.len(), 10);
    // The other way is not concerned.
    world.b[0].arrive([5]);
    assert_eq!(world.worker(0).arm(), Armed::WorkPending);
    settle(&mut world, 0);
    assert_eq!(world.a[0].tx().sent, [5]);

    world.b[0].tx().room = usize::MAX;
    world.a[0].rx().next_at = None;
    assert_eq!(settle(&mut world, 0), Next::Arm);
    assert_eq!(world.b[0].tx().sent, (0..1000).collect::<Vec<_>>());
    assert_eq!(world.closed().ledger.held, 0);
}

/// mechanisms-bsd.md 6.10, case 6: OpenBSD signals pressure from 6145 packets on, and drops from
/// 10,241 on. Here no backlog could come to that: what is not received stays in the device.
#[test]
fn without_any_room_a_burst_of_each_queue_is_received_at_most_and_none_dropped() {
    for dispatch in POLICIES {
        for queues in [1, 4] {
            for filled in [false, true] {
                pushes_back(dispatch, queues, filled);
            }
        }
    }
}

/// To a device without room; `filled`: all places in front of it are an application's.
fn pushes_back(dispatch: Dispatch, queues: usize, filled: bool) {
    const OFFERED: usize = 20_000;
    let name = format!("{dispatch}, {queues}, filled: {filled}");
    let plan = plan_of([queues, 1]);
    let world = dispatched(&plan, [queues, 1], ENDLESS, None, dispatch, || Forward);
    let mut world = world.unwrap();
    let (sources, device) = (world.a.clone(), world.b[0].clone());
    device.tx().room = 0;
    // A ring, what was taken out of it, and what the queue has as it came and as the device is to
    // see it.
    let places = TX_RING_PACKETS + BURST_PACKETS_MAX + 2 * TX_STAGED_PACKETS_MAX;
    let first = queues << 20;
    let mut own = 0;
    if filled {
        let mut handle = world.handles.queue(Port::B, 0).unwrap();
        own = fill(&mut world, &mut handle, first as u32) as usize - first;
        assert!((TX_RING_PACKETS..=places).contains(&own), "{name}: {own}");
    }
    let each = (OFFERED / queues) as u32;
    for (index, queue) in (0u32..).zip(&sources) {
        queue.arrive((0..each).map(|n| index << 20 | n));
    }
    settle(&mut world, 0);
    // Who gives the first burst to the device itself knows then; who leaves it to the next step has
    // one of each queue by then.
    let bursts = match dispatch {
        _ if filled => 0,
        Dispatch::Deferred | Dispatch::Abdicate => queues,
        _ => 1,
    };
    let early = bursts * BURST_PACKETS_MAX;
    let waits = |world: &World<Forward>, received: usize, sent: usize| {
        let left: usize = sources.iter().map(|a| a.rx().items.len()).sum();
        assert_eq!(left, OFFERED - received, "{name}");
        let ledger = world.closed().ledger;
        let all = [ledger.received, ledger.transmitted, ledger.held].map(|n| n as usize);
        assert_eq!(all, [received, sent, received + own - sent], "{name}");
        assert!(world.arena.census().small_free > 0, "there are buffers");
    };
    waits(&world, early, 0);
    for _ in 0..100 {
        world.worker(0).step(NOW).unwrap();
        assert_eq!(world.worker(0).arm(), Armed::Idle, "{name}");
    }
    waits(&world, early, 0);

    // As much as goes out is received, and what finds a place.
    device.make_room(own + early);
    settle(&mut world, 0);
    assert_eq!(device.tx().sent.len(), own + early, "{name}");
    let received = world.closed().ledger.received as usize;
    let bound = early + places + queues * BURST_PACKETS_MAX;
    assert!(received <= bound, "{name}: {received}");
    waits(&world, received, own + early);

    device.make_room(usize::MAX);
    assert_eq!(settle(&mut world, 0), Next::Arm, "{name}");
    waits(&world, OFFERED, OFFERED + own);
    let sent = device.tx().sent.clone();
    let of = |index: usize| {
        sent.iter()
            .copied()
            .filter(move |&n| n >> 20 == index as u32)
    };
    assert!(of(queues).eq((first as u32..).take(own)), "{name}");
    for index in 0..queues {
        let begin = (index << 20) as u32;
        assert!(of(index).eq(begin..begin + each), "{name}: {index}");
    }
    let end = world.closed();
    assert_eq!((end.ledger.dropped, end.drops.total()), (0, 0), "{name}");
    let rx = &end.ports[0].rx;
    assert!(
        rx.iter()
            .all(|rx| (rx.bad_packets, rx.alloc_fail) == (0, 0))
    );
}

/// A TAP stays writable while the kernel has no memory: only time can be waited for.
#[test]
fn without_memory_in_the_system_a_worker_waits_by_time() {
    for stopped in [false, true] {
        let mut world = forward([1, 1]);
        world.b[0].tx().no_memory = true;
        world.a[0].arrive(0..10);
        let later = NOW.after(Duration::from_millis(1));
        assert_eq!(settle(&mut world, 0), Next::SleepUntil(later));
        if stopped {
            world.intake.stop();
        }
        let asked = world.b[0].tx().asked;
        assert_eq!(world.worker(0).step(NOW).unwrap(), Next::SleepUntil(later));
        assert_eq!(world.b[0].tx().asked, asked + 1);
        assert_eq!(world.worker(0).arm(), Armed::Idle);
        // B's RX queue, and not B's TX queue that packets wait for.
        assert_eq!(watched(world.worker(0)), usize::from(!stopped));
        assert_eq!(world.closed().ledger.held, 10);
        world.b[0].tx().no_memory = false;
        let end = if stopped { Next::Done } else { Next::Arm };
        assert_eq!(settle(&mut world, 0), end);
        assert_eq!(world.b[0].tx().sent, (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn a_stalled_device_is_asked_once_a_step() {
    let mut world = forward([4, 1]);
    world.b[0].tx().room = 0;
    for queue in &world.a {
        queue.arrive(0..64);
    }
    settle(&mut world, 0);
    let asked = world.b[0].tx().asked;
    for step in 1..=5 {
        world.worker(0).step(NOW).unwrap();
        assert_eq!(world.b[0].tx().asked, asked + step);
    }
}

/// RX queues that share a TX queue with too little room each get a share of it.
#[test]
fn queues_that_share_an_egress_take_turns() {
    for room in [1, 32, 64, 65, 100] {
        let mut world = forward([4, 1]);
        for (index, queue) in (0u32..).zip(&world.a) {
            queue.arrive((0..2000).map(|n| index << 16 | n));
        }
        for _ in 0..40 * 64 / room {
            world.b[0].tx().room = room;
            settle(&mut world, 0);
        }
        let mut shares = [0usize; 4];
        for number in &world.b[0].tx().sent {
            shares[(number >> 16) as usize] += 1;
        }
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(
            most - least <= 128 && *least >= 500,
            "room {room}: {shares:?}"
        );
    }
}

#[test]
fn queue_i_sends_to_queue_i_modulo_the_other_ports() {
    for (from, to) in [(1, 1), (4, 4), (4, 1), (4, 3), (1, 4), (3, 4), (2, 7)] {
        maps_queues(from, to, false);
        maps_queues(from, to, true);
    }
}

fn maps_queues(from: usize, to: usize, per_direction: bool) {
    let mut plan = plan_of([from, to]);
    if per_direction {
        plan.attach[0].rx = Features::TSO4;
    }
    assert_eq!(plan.worker_per_direction(), per_direction);
    let mut world = planned(&plan, [from, to], ENDLESS, None, || Forward).unwrap();
    let pairs = from.min(to);
    let workers = if per_direction { 2 * pairs } else { pairs };
    assert_eq!(world.workers.as_ref().unwrap().len(), workers);
    for (index, queue) in (0u32..).zip(&world.a) {
        queue.arrive((0..100).map(|n| index << 16 | n));
    }
    (0..workers).for_each(|worker| assert_eq!(settle(&mut world, worker), Next::Arm));
    for (index, queue) in world.b.iter().enumerate() {
        let sent = &queue.tx().sent;
        for source in 0..from {
            let got: Vec<_> = sent
                .iter()
                .filter(|&&n| (n >> 16) as usize == source)
                .collect();
            let here = source % pairs == index;
            assert_eq!(got.len(), if here { 100 } else { 0 }, "{from} to {to}");
            assert!(got.is_sorted());
        }
    }
    // And the way back.
    for (index, queue) in (0u32..).zip(&world.b) {
        queue.arrive([index]);
    }
    (0..workers).for_each(|worker| assert_eq!(settle(&mut world, worker), Next::Arm));
    for (index, queue) in world.a.iter().enumerate() {
        let mut back: Vec<_> = (0..to as u32).collect();
        back.retain(|source| *source as usize % pairs == index);
        assert_eq!(queue.tx().sent, back);
    }
}

#[test]
fn a_port_without_queues_cannot_be_joined() {
    for (queues, name) in [([0, 2], "a "), ([2, 0], "b ")] {
        match world(queues, ENDLESS, None, || Forward) {
            Err(DeviceError::Unsupported(why)) => assert!(why.starts_with(name), "{why}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("joined"),
        }
    }
}

#[test]
fn finite_inputs_end_and_then_it_is_done() {
    let inputs = [Input::Finite, Input::None];
    let mut world = world([2, 2], inputs, None, || Forward).unwrap();
    for queue in &world.a {
        queue.arrive(0..100);
        queue.rx().end = Some(End::Finished);
    }
    assert_eq!(settle(&mut world, 0), Next::Arm);
    // Its own queue has ended and is left alone; the other one has not.
    assert_eq!(world.worker(0).arm(), Armed::Idle);
    let polls = world.a[0].rx().polls;
    assert_eq!(settle(&mut world, 0), Next::Arm);
    assert_eq!(world.a[0].rx().polls, polls);
    assert_eq!(settle(&mut world, 1), Next::Done);
    assert_eq!(settle(&mut world, 0), Next::Done);
    assert_eq!(world.closed().ledger.transmitted, 200);
}

#[test]
fn the_count_ends_it_to_the_packet() {
    for count in [1, 63, 64, 65, 300] {
        let mut world = world([2, 2], ENDLESS, Some(count), || Forward).unwrap();
        world
            .a
            .iter()
            .chain(&world.b)
            .for_each(|queue| queue.arrive(0..1000));
        let mut done = [false; 2];
        while done != [true; 2] {
            for (worker, done) in done.iter_mut().enumerate() {
                *done = world.worker(worker).step(NOW).unwrap() == Next::Done;
                world.closed();
            }
        }
        assert_eq!(world.closed().ledger.transmitted, count);
    }
}

#[test]
fn stop_drains_what_is_held_and_waits_for_what_is_in_flight() {
    let mut world = forward([1, 1]);
    world.b[0].tx().room = 0;
    world.b[0].tx().keeps = true;
    world.a[0].arrive(0..50);
    assert_eq!(settle(&mut world, 0), waits_for_the_device());
    world.a[0].arrive(50..90);
    world.intake.stop();
    assert_eq!(settle(&mut world, 0), waits_for_the_device());
    assert_eq!(world.worker(0).arm(), Armed::Idle);
    assert_eq!(watched(world.worker(0)), 1);

    world.b[0].tx().room = usize::MAX;
    assert_eq!(settle(&mut world, 0), waits_for_the_device());
    assert_eq!(world.closed().ledger.transmitted, 50);
    // Completions are work also after the stop.
    world.b[0].tx().complete = 49;
    assert_eq!(world.worker(0).arm(), Armed::WorkPending);
    assert_eq!(settle(&mut world, 0), waits_for_the_device());
    world.b[0].tx().complete = 1;
    assert_eq!(world.worker(0).arm(), Armed::WorkPending);
    assert_eq!(settle(&mut world, 0), Next::Done);
    // What came after the stop was not taken in.
    assert_eq!(world.a[0].rx().items.len(), 40);
}

#[test]
fn a_reset_of_a_port_sends_again_what_was_not_sent_on_each_queue() {
    let mut world = forward([2, 2]);
    for queue in 0..2 {
        let mut tx = world.b[queue].tx();
        (tx.keeps, tx.forgets) = (true, true);
        drop(tx);
        world.a[queue].arrive(0..50);
        settle(&mut world, queue);
        assert_eq!(world.b[queue].tx().kept.len(), 50);
    }
    for worker in 0..2 {
        let worker = world.worker(worker);
        for (port, done) in [(Port::A, 0), (Port::B, 1)] {
            let said = worker.command(TxQueues::Port(port), Command::Reset, NOW);
            let unsupported = 1 - done;
            assert_eq!(said.unwrap(), Commanded { done, unsupported });
        }
    }
    let ledger = world.closed().ledger;
    assert_eq!((ledger.transmitted, ledger.held), (0, 100));
    for queue in 0..2 {
        world.a[queue].arrive(50..60);
        settle(&mut world, queue);
        assert_eq!(world.b[queue].tx().sent, (0..60).collect::<Vec<_>>());
    }
    assert_eq!(world.closed().ledger.transmitted, 120);
}

#[test]
fn what_is_abandoned_is_counted_and_freed() {
    let mut world = forward([1, 1]);
    world.b[0].tx().room = 0;
    world.a[0].arrive(0..500);
    settle(&mut world, 0);
    let held = world.closed().ledger.held;
    assert!(held > 0);
    world.worker(0).abandon(DropReason::Shutdown);
    let end = world.closed();
    assert_eq!(
        (end.ledger.held, end.drops.get(DropReason::Shutdown)),
        (0, held)
    );
    world.arena.flush_cache();
    assert_eq!(world.arena.census().lines_used, 0);
}

#[test]
fn a_receive_error_comes_after_the_packets_before_it() {
    let mut world = forward([1, 1]);
    world.a[0].arrive(0..10);
    world.a[0].rx().end = Some(End::Failed);
    let error = world.worker(0).step(NOW).unwrap_err();
    assert_eq!(error.to_string(), "first port: cannot read: test");
    assert_eq!(world.b[0].tx().sent.len(), 10);
    assert_eq!(world.b[0].tx().untold, 0, "the device knows of them");
    world.closed();
}

#[test]
fn a_removed_egress_ends_it_with_the_books_closed() {
    let mut world = forward([1, 1]);
    world.b[0].tx().removed = true;
    world.a[0].arrive(0..10);
    let error = world.worker(0).step(NOW).unwrap_err();
    assert!(matches!(error.error, DeviceError::Removed), "{error}");
    assert_eq!(error.port, Some(Port::B));
    assert_eq!(world.closed().ledger.held, 10);
    world.worker(0).abandon(DropReason::DeviceReset);
    assert_eq!(world.closed().drops.get(DropReason::DeviceReset), 10);
}

#[test]
fn the_next_due_packet_of_any_queue_bounds_the_sleep() {
    let mut world = forward([2, 1]);
    let at = |ns| Some(Instant::from_nanos(ns));
    let sleep = |ns| Next::SleepUntil(Instant::from_nanos(ns));
    world.a[1].rx().next_at = at(500);
    assert_eq!(settle(&mut world, 0), sleep(500));
    world.b[0].rx().next_at = at(300);
    assert_eq!(settle(&mut world, 0), sleep(300));
    world.a[0].rx().next_at = at(400);
    assert_eq!(settle(&mut world, 0), sleep(300));
    // Who has to wait for its egress is not waited for.
    world.a[0].tx().room = 0;
    world.b[0].arrive([1]);
    assert_eq!(settle(&mut world, 0), sleep(400));
    world.intake.stop();
    assert_eq!(settle(&mut world, 0), waits_for_the_device());
}

/// Takes every third packet out, and doubles every fifth.
#[derive(Default)]
struct Meddle {
    seen: u32,
}

impl Handler for Meddle {
    fn handle(&mut self, now: Instant, from: Port, burst: &mut Burst) {
        assert_eq!((now, from), (NOW, Port::A));
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
fn what_a_handler_takes_out_or_puts_in_is_counted() {
    let mut world = world([1, 1], ENDLESS, None, Meddle::default).unwrap();
    world.a[0].arrive(1..=300);
    assert_eq!(settle(&mut world, 0), Next::Arm);
    let ledger = world.closed().ledger;
    let sent = world.b[0].tx().sent.len() as u64;
    assert_eq!((ledger.received, ledger.transmitted), (300, sent));
    assert_eq!(ledger.delivered - ledger.generated, 300 - sent);
    assert!(ledger.delivered > 0 && sent < 300);
}

#[derive(Clone, Debug)]
enum Act {
    Arrive(bool, usize, u8),
    Room(bool, usize, u8),
    Complete(bool, usize, u8),
    Step(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let side = any::<bool>();
    let act = prop_oneof![
        1 => (side, 0..4usize, any::<u8>()).prop_map(|(s, q, n)| Act::Arrive(s, q, n)),
        1 => (any::<bool>(), 0..4usize, any::<u8>()).prop_map(|(s, q, n)| Act::Room(s, q, n)),
        1 => (any::<bool>(), 0..4usize, any::<u8>()).prop_map(|(s, q, n)| Act::Complete(s, q, n)),
        4 => (0..4usize).prop_map(Act::Step),
    ];
    prop::collection::vec(act, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever arrives, stalls and completes when: the books close after every step, nothing is
    /// lost, order holds, and a worker with nothing to do says so.
    #[test]
    fn conservation_and_order_at_every_step(
        queues in (1..4usize, 1..4usize), keeps in any::<bool>(), acts in acts(),
    ) {
        let mut world = forward([queues.0, queues.1]);
        let sides = [world.a.clone(), world.b.clone()];
        for queue in sides.iter().flatten() {
            queue.tx().room = 0;
            queue.tx().keeps = keeps;
        }
        let mut arrived = 0;
        let workers = queues.0.min(queues.1);
        for act in acts {
            let at = |side: bool, queue: usize| {
                let side = &sides[usize::from(side)];
                &side[queue % side.len()]
            };
            match act {
                Act::Arrive(side, queue, count) => {
                    let count = u32::from(count);
                    at(side, queue).arrive((arrived..arrived + count).map(|n| {
                        (queue % sides[usize::from(side)].len()) as u32 | n << 3
                    }));
                    arrived += count;
                }
                Act::Room(side, queue, room) => at(side, queue).tx().room = room.into(),
                Act::Complete(side, queue, count) => {
                    at(side, queue).tx().complete += usize::from(count);
                }
                Act::Step(worker) => {
                    world.worker(worker % workers).step(NOW).unwrap();
                }
            }
            world.closed();
        }
        for queue in sides.iter().flatten() {
            let mut tx = queue.tx();
            (tx.room, tx.complete) = (usize::MAX, usize::MAX);
        }
        for worker in 0..workers {
            // As the outer shell does it: arming finds what completed meanwhile.
            loop {
                let next = settle(&mut world, worker);
                // Many that a device keeps are asked for soon.
                let soon = Next::SleepUntil(NOW.after(TX_REST_MAX));
                prop_assert!([Next::Arm, waits_for_the_device(), soon].contains(&next));
                if world.worker(worker).arm() == Armed::Idle {
                    break;
                }
            }
        }
        world.intake.stop();
        for worker in 0..workers {
            // What a device has is asked for only now.
            while settle(&mut world, worker) != Next::Done {
                prop_assert_eq!(world.worker(worker).arm(), Armed::WorkPending);
            }
        }
        let ledger = world.closed().ledger;
        prop_assert_eq!((ledger.held, ledger.dropped), (0, 0));
        prop_assert_eq!(ledger.transmitted, u64::from(arrived));
        for queue in sides.iter().flatten() {
            for source in 0..4 {
                let sent = &queue.tx().sent;
                prop_assert!(sent.iter().filter(|&n| n & 7 == source).is_sorted());
            }
        }
    }
}

#[test]
fn a_wake_up_is_counted_for_the_queue_whose_descriptor_it_came_from() {
    let mut world = forward([1, 1]);
    world.b[0].tx().room = 0;
    world.a[0].arrive(0..10);
    settle(&mut world, 0);
    let worker = world.worker(0);
    let mut fds = Vec::new();
    worker.interests(|fd, _| fds.push(fd.as_raw_fd()));
    fds.iter().for_each(|&fd| worker.woken_by(fd));
    let [a, b] = world.stats.snapshot().ports;
    // Port A is not received from while packets wait for port B.
    assert_eq!((a.rx[0].wakeups, a.tx[0].wakeups), (0, 0));
    assert_eq!((b.rx[0].wakeups, b.tx[0].wakeups), (1, 1));
}
