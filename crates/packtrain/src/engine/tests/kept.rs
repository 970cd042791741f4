//! Packets that a device keeps and applications have left there: the worker, which was told
//! nothing of them, looks whether they come back.

use super::fake::{FakeWorker, Gate, World, dispatched, plan_of};
use super::handles::{PATIENCE, POLICIES, burst, start, wait_for};
use crate::driver::{Armed, DeviceError, Input};
use crate::engine::{Forward, Next, Port, TxHandle};
use crate::limits::{TX_HUNG_AFTER, TX_POLL_AFTER, TX_RING_PACKETS};
use crate::policy::dispatch::{BUDGET, Dispatch};
use crate::time::{Clock, Instant, MonotonicClock};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A device that keeps what it gets, and sends it again after a reset.
fn keeping(dispatch: Dispatch) -> World<Forward> {
    let (plan, input) = (plan_of([1, 1]), [Input::Endless; 2]);
    let world = dispatched(&plan, [1, 1], input, None, dispatch, || Forward).unwrap();
    let mut tx = world.b[0].tx();
    (tx.keeps, tx.forgets) = (true, true);
    drop(tx);
    world
}

/// Steps until the worker may sleep; says until when.
fn settle(worker: &mut FakeWorker<Forward>, now: Instant) -> Next {
    for _ in 0..1000 {
        let next = worker.step(now).unwrap();
        if next != Next::Again && worker.arm() == Armed::Idle {
            return next;
        }
    }
    panic!("it does not settle")
}

/// Wakes the worker at the times that it names, and at no other, until it is so; says when that
/// was.
fn sleep_on(world: &mut World<Forward>, mut now: Instant, until: impl Fn() -> bool) -> Instant {
    loop {
        let next = settle(world.worker(0), now);
        if until() {
            return now;
        }
        let Next::SleepUntil(time) = next else {
            panic!("it sleeps for ever, at {now:?}");
        };
        assert!(time > now, "and does not spin");
        now = time;
    }
}

/// Whatever time the handle has read when it looked after the packets, it was before this.
fn now() -> Instant {
    MonotonicClock::new().now()
}

#[test]
fn what_a_handle_left_in_a_hung_device_is_found_and_reset() {
    for leaves in [false, true] {
        let mut world = keeping(Dispatch::Direct);
        assert_eq!(settle(world.worker(0), now()), Next::Arm);
        let mut handle = world.handles.queue(Port::B, 0).unwrap();
        assert_eq!(settle(world.worker(0), now()), Next::Arm);
        world.b[0].tx().hung = true;
        let before = now();
        for number in 0..3 {
            handle.try_send(&mut burst(&world.arena, [number])).unwrap();
        }
        let tx = world.stats.snapshot().ports[1].tx[0];
        assert_eq!((tx.direct, tx.wakeups), (3, 1), "it is told once");
        assert_eq!(world.b[0].tx().kept.len(), 3);
        if leaves {
            drop(handle);
        }
        let begin = now();
        let device = world.b[0].clone();
        let end = sleep_on(&mut world, begin, || device.tx().resets > 0);
        assert!(
            end.since(before) >= TX_HUNG_AFTER,
            "a whole second, from the first packet on"
        );
        let took = end.since(begin);
        assert!(took <= TX_HUNG_AFTER + 2 * TX_POLL_AFTER, "{took:?}");
        let tx = world.closed().ports[1].tx[0];
        assert_eq!((tx.hangs, tx.resets, tx.taken_back), (1, 1, 3));
        // They went out again, and this time they come back.
        device.tx().complete = usize::MAX;
        sleep_on(&mut world, end, || device.tx().kept.is_empty());
        assert_eq!(device.tx().sent, [0, 1, 2]);
        let ledger = world.closed().ledger;
        assert_eq!((ledger.transmitted, ledger.held), (3, 0));
    }
}

/// By the clock, since nobody waits for it.
#[test]
fn what_a_handle_left_is_collected_when_it_is_gone() {
    let mut world = keeping(Dispatch::Direct);
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    handle.try_send(&mut burst(&world.arena, 0..3)).unwrap();
    settle(world.worker(0), now());
    drop(handle);
    let begin = now();
    settle(world.worker(0), begin);
    let mut watched = 0;
    world.worker(0).interests(|_, _| watched += 1);
    assert_eq!(watched, 3, "its own, and two RX queues");
    world.b[0].tx().complete = 3;
    let device = world.b[0].clone();
    let end = sleep_on(&mut world, begin, || device.tx().kept.is_empty());
    assert!(end.since(begin) <= TX_POLL_AFTER);
    assert_eq!(settle(world.worker(0), end), Next::Arm);
    assert_eq!(world.closed().ports[1].tx[0].missed_wakeups, 0);
    world.closed();
}

/// The worker looks in by the clock, less and less often, and is not woken for completions.
#[test]
fn an_application_that_sends_wakes_nobody_and_is_watched_all_the_same() {
    let mut world = keeping(Dispatch::Direct);
    world.b[0].tx().complete = usize::MAX;
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    handle.try_send(&mut burst(&world.arena, [0])).unwrap();
    let mut at = now();
    let mut waits = Vec::new();
    for round in 0..8 {
        if round == 6 {
            handle.try_send(&mut burst(&world.arena, [1])).unwrap();
            let mut watched = 0;
            world.worker(0).interests(|_, _| watched += 1);
            assert_eq!(watched, 3, "its own, and two RX queues");
        }
        let Next::SleepUntil(time) = settle(world.worker(0), at) else {
            panic!("in round {round}")
        };
        waits.push(time.since(at));
        at = time;
    }
    let ms = Duration::from_millis;
    let expected = [100, 200, 400, 800, 1000, 1000, 100, 200].map(ms);
    assert_eq!(waits, expected);
    // With nobody who could send there is nothing to look for.
    drop(handle);
    assert_eq!(settle(world.worker(0), at), Next::Arm);
    world.closed();
}

/// As [`direct_dispatch_wakes_nobody`](super::handles), over a device that keeps packets.
#[test]
fn direct_dispatch_wakes_nobody_over_a_device_with_completions() {
    const COUNT: u32 = 2000;
    let mut world = keeping(Dispatch::Direct);
    world.b[0].tx().complete = usize::MAX;
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    let running = start(&mut world);
    let worker = Arc::clone(&world.stats.workers[0]);
    wait_for("the worker to sleep", || worker.sleeps.get() > 0);
    let wakeups = worker.wakeups.get();
    for number in 0..COUNT {
        let mut burst = burst(&world.arena, [number]);
        assert_eq!(handle.send_blocking(&mut burst, PATIENCE), Ok(1));
    }
    let tx = world.stats.snapshot().ports[1].tx[0];
    let woken = worker.wakeups.get() - wakeups;
    // It is told once that the device keeps packets, and may see that twice. Where the worker is
    // interrupted as it looks in, batches are left to it, and it may be awake for them.
    assert!(tx.wakeups <= 1, "{} {}", tx.wakeups, tx.deferred);
    assert!(woken <= 2 + tx.deferred, "{woken} {}", tx.deferred);
    assert!(tx.deferred < u64::from(COUNT) / 2, "{}", tx.deferred);
    wait_for("the packets", || {
        handle.reclaim();
        world.b[0].tx().sent.len() == COUNT as usize
    });
    drop(handle);
    running.stop();
    running.join().unwrap();
    assert_eq!(world.closed().ledger.transmitted, COUNT.into());
}

/// The same as the first one, with the threads and the time of a real run.
#[test]
fn a_worker_that_sleeps_finds_a_hung_device() {
    let mut world = keeping(Dispatch::Direct);
    let running = start(&mut world);
    let worker = Arc::clone(&world.stats.workers[0]);
    wait_for("the worker to sleep", || worker.sleeps.get() > 0);
    world.b[0].tx().hung = true;
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    handle.try_send(&mut burst(&world.arena, 0..3)).unwrap();
    drop(handle);
    wait_for("the reset", || world.b[0].tx().resets > 0);
    world.b[0].tx().complete = usize::MAX;
    wait_for("the packets", || world.b[0].tx().sent == [0, 1, 2]);
    running.stop();
    running.join().unwrap();
    let end = world.closed();
    let tx = end.ports[1].tx[0];
    assert!(tx.hangs >= 1 && tx.resets >= 1);
    assert_eq!((end.ledger.transmitted, end.ledger.held), (3, 0));
}

/// An application that only asks for what is done restarts what has stalled, where producers send
/// at all, and wakes nobody as long as there is nothing.
#[test]
fn who_reclaims_restarts_a_stalled_ring() {
    for dispatch in POLICIES {
        let input = [Input::Endless; 2];
        let plan = plan_of([1, 1]);
        let world = dispatched(&plan, [1, 1], input, None, dispatch, || Forward);
        let mut world = world.unwrap();
        let device = world.b[0].clone();
        device.tx().keeps = true;
        device.tx().room = 10;
        let mut flows = world.handles.flows(Port::B);
        flows.try_send(&mut burst(&world.arena, 0..30)).unwrap();
        settle(world.worker(0), now());
        assert_eq!(device.tx().sent.len(), 10, "{dispatch}: stalled");
        let before = world.stats.snapshot().ports[1].tx[0].wakeups;
        for _ in 0..10 {
            flows.reclaim();
        }
        let tx = world.stats.snapshot().ports[1].tx[0];
        assert_eq!(tx.wakeups, before, "{dispatch}: nothing has moved");
        // Room without a word from the device: the worker knows nothing of it.
        device.tx().room = usize::MAX;
        device.tx().complete = usize::MAX;
        for _ in 0..3 {
            flows.reclaim();
        }
        let sends = matches!(
            dispatch,
            Dispatch::Direct | Dispatch::Threshold(_) | Dispatch::Adaptive
        );
        if sends {
            assert_eq!(device.tx().sent, (0..30).collect::<Vec<_>>(), "{dispatch}");
            flows.reclaim();
            assert!(device.tx().kept.is_empty(), "{dispatch}");
        } else {
            assert_eq!(device.tx().sent.len(), 10, "{dispatch}: the worker's");
        }
        device.make_room(0);
        settle(world.worker(0), now());
        settle(world.worker(0), now());
        let ledger = world.closed().ledger;
        assert_eq!((ledger.transmitted, ledger.held), (30, 0), "{dispatch}");
    }
}

/// A device with ten packets, for which 20 more wait, and that holds up who looks next what it has
/// done: who says so, and whom to tell that it may go on.
fn stalled_with_a_gate(dispatch: Dispatch) -> (World<Forward>, TxHandle, Receiver<()>, Sender<()>) {
    let input = [Input::Endless; 2];
    let world = dispatched(&plan_of([1, 1]), [1, 1], input, None, dispatch, || Forward);
    let mut world = world.unwrap();
    let device = world.b[0].clone();
    device.tx().keeps = true;
    device.tx().room = 10;
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    handle.try_send(&mut burst(&world.arena, 0..30)).unwrap();
    settle(world.worker(0), now());
    assert_eq!(device.tx().sent.len(), 10, "{dispatch}: stalled");
    let ((came, arrival), (go, go_on)) = (channel(), channel());
    device.tx().gate = Some(Gate { came, go_on });
    (world, handle, arrival, go)
}

/// Nothing moves, and so nobody else tells the worker; but it has not armed the device.
#[test]
fn a_worker_that_came_while_somebody_looked_is_told() {
    for dispatch in [Dispatch::Direct, Dispatch::Threshold(8)] {
        let (mut world, mut handle, arrival, go) = stalled_with_a_gate(dispatch);
        let wakeups = |world: &World<Forward>| world.stats.snapshot().ports[1].tx[0].wakeups;
        let before = wakeups(&world);
        thread::scope(|scope| {
            scope.spawn(|| handle.reclaim());
            arrival.recv().unwrap();
            assert_eq!(world.worker(0).arm(), Armed::Idle, "somebody is at it");
            go.send(()).unwrap();
        });
        assert_eq!(wakeups(&world), before + 1, "{dispatch}");
        settle(world.worker(0), now());
        handle.reclaim();
        assert_eq!(wakeups(&world), before + 1, "{dispatch}: once");
        world.closed();
    }
}

/// A worker that is held up while it looks in leaves more to a producer than its budget. If that is
/// the only one, it sends all of it rather than wake the worker; one that is awake costs nothing to
/// tell, and may be what fills the ring. Of two producers one works for the other, and hands over.
#[test]
fn what_an_only_producer_finds_in_the_ring_it_sends_and_wakes_nobody() {
    const BACKLOG: u32 = TX_RING_PACKETS as u32;
    const END: u32 = BACKLOG + 2 + 200;
    for (others, sleeps, expected) in [(0, true, (0, 0)), (1, true, (1, 1)), (0, false, (1, 0))] {
        let mut world = keeping(Dispatch::Direct);
        let mut handle = world.handles.queue(Port::B, 0).unwrap();
        let _others: Vec<_> = (0..others).map(|_| handle.clone()).collect();
        handle.try_send(&mut burst(&world.arena, [0])).unwrap();
        let Next::SleepUntil(time) = settle(world.worker(0), now()) else {
            panic!("it looks in by the clock")
        };
        let arena = world.arena.clone();
        let device = world.b[0].clone();
        device.tx().complete = usize::MAX;
        let hold_up = || {
            let ((came, arrival), (go, go_on)) = (channel(), channel());
            device.tx().gate = Some(Gate { came, go_on });
            (arrival, go)
        };
        thread::scope(|scope| {
            let (arrival, go) = hold_up();
            scope.spawn(|| world.worker(0).step(time).unwrap());
            arrival.recv_timeout(PATIENCE).unwrap();
            for number in 1..=BACKLOG {
                handle.try_send(&mut burst(&arena, [number])).unwrap();
            }
            go.send(()).unwrap();
        });
        let left = BACKLOG as usize + 1 - device.tx().sent.len();
        let budget = usize::from(BUDGET);
        assert!(left >= budget, "{left}: with one more than a budget");
        let before = world.stats.snapshot().ports[1].tx[0];
        thread::scope(|scope| {
            let (arrival, go) = hold_up();
            scope.spawn(|| handle.try_send(&mut burst(&arena, [BACKLOG + 1])));
            arrival.recv_timeout(PATIENCE).unwrap();
            // The worker forwards before it sleeps, and so there is much more than a budget.
            world.a[0].arrive(BACKLOG + 2..END);
            while world.worker(0).step(time).unwrap() == Next::Again {}
            if sleeps {
                assert_eq!(world.worker(0).arm(), Armed::Idle, "somebody is at it");
            }
            go.send(()).unwrap();
        });
        let tx = world.stats.snapshot().ports[1].tx[0];
        let handed_over = (
            tx.abdications - before.abdications,
            tx.wakeups - before.wakeups,
        );
        assert_eq!(handed_over, expected, "{others} others, {sleeps}");
        if handed_over.0 > 0 {
            assert!(device.tx().sent.len() < END as usize, "one budget of them");
            settle(world.worker(0), now());
        }
        assert_eq!(device.tx().sent, (0..END).collect::<Vec<_>>());
        world.closed();
    }
}

#[test]
fn the_end_waits_for_who_only_looks() {
    for dispatch in POLICIES {
        let (mut world, mut handle, arrival, go) = stalled_with_a_gate(dispatch);
        let workers = world.workers.take();
        thread::scope(|scope| {
            let looks = scope.spawn(|| handle.reclaim());
            if matches!(dispatch, Dispatch::Deferred | Dispatch::Abdicate) {
                // A stalled ring is the worker's.
                looks.join().unwrap();
            } else {
                arrival.recv().unwrap();
            }
            let ends = scope.spawn(|| drop(workers));
            // As much time as it needs where it waits for nobody.
            thread::sleep(Duration::from_millis(20));
            go.send(()).unwrap();
            ends.join().unwrap();
        });
        let ledger = world.closed().ledger;
        assert_eq!((ledger.held, ledger.generated), (0, 30), "{dispatch}");
        handle.reclaim();
        drop(handle);
        assert_eq!(world.arena.census().small_used, 0, "{dispatch}");
    }
}

/// A device that turns out to be gone when somebody looks after what it keeps: the worker hears of
/// it, and ends the run.
#[test]
fn what_goes_wrong_while_somebody_looks_is_told_to_the_worker() {
    let mut world = keeping(Dispatch::Direct);
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    handle.try_send(&mut burst(&world.arena, [0])).unwrap();
    settle(world.worker(0), now());
    let mut tx = world.b[0].tx();
    (tx.hung, tx.removed) = (true, true);
    drop(tx);
    let wakeups = || world.stats.snapshot().ports[1].tx[0].wakeups;
    let before = wakeups();
    // It is found to be gone by the attempt to reset it.
    wait_for("the worker to be told", || {
        handle.reclaim();
        wakeups() > before
    });
    let ended = world.worker(0).step(now());
    assert!(matches!(ended.unwrap_err().error, DeviceError::Removed));
    world.closed();
}

/// The worker fell asleep before somebody looked: it is woken by the device all the same, and the
/// wake-up is counted.
#[test]
fn a_device_that_was_asked_is_watched_while_somebody_looks() {
    for dispatch in [Dispatch::Direct, Dispatch::Threshold(8)] {
        let (mut world, mut handle, arrival, go) = stalled_with_a_gate(dispatch);
        let watched = |world: &mut World<Forward>| {
            let mut watched = Vec::new();
            let worker = world.worker(0);
            worker.interests(|fd, _| watched.push(fd.as_raw_fd()));
            watched
        };
        let wakeups = |world: &World<Forward>| world.stats.snapshot().ports[1].tx[0].wakeups;
        let (asked, before) = (watched(&mut world), wakeups(&world));
        let device = asked.last().copied().unwrap();
        let mut seen = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| handle.reclaim());
            arrival.recv().unwrap();
            seen = watched(&mut world);
            // The TX queues come last.
            world.worker(0).woken_by(device);
            go.send(()).unwrap();
        });
        assert_eq!(seen.last(), Some(&device), "{dispatch}");
        assert_eq!(wakeups(&world), before + 1, "{dispatch}");
        world.closed();
    }
}

/// A worker that came while packets were sent has nothing to be told of by who looks later.
#[test]
fn who_looks_where_nothing_waits_wakes_nobody() {
    let mut world = keeping(Dispatch::Direct);
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    let ((came, arrival), (go, go_on)) = (channel(), channel());
    handle.try_send(&mut burst(&world.arena, [0])).unwrap();
    settle(world.worker(0), now());
    let wakeups = |world: &World<Forward>| world.stats.snapshot().ports[1].tx[0].wakeups;
    let before = wakeups(&world);
    world.b[0].tx().gate = Some(Gate { came, go_on });
    let mut packets = burst(&world.arena, [1]);
    thread::scope(|scope| {
        scope.spawn(|| handle.try_send(&mut packets).unwrap());
        arrival.recv().unwrap();
        let workers = world.workers.as_mut().expect("not running");
        assert_eq!(workers[0].arm(), Armed::Idle, "somebody is at it");
        go.send(()).unwrap();
    });
    handle.reclaim();
    assert_eq!(wakeups(&world), before);
    world.closed();
}

/// Each look takes away the lines that producers write with every packet, and the packets that a
/// device is done with are whose who sends next.
#[test]
fn a_worker_that_polls_leaves_a_ring_alone_that_it_is_not_rung_for() {
    let mut world = keeping(Dispatch::Direct);
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    let begin = now();
    // As the shell does where it does not sleep.
    let look = |world: &mut World<Forward>, at: Duration| {
        let worker = world.worker(0);
        assert_ne!(worker.step(begin.after(at)).unwrap(), Next::Again);
        worker.listen();
        world.b[0].tx().kept.len()
    };
    let us = Duration::from_micros;
    look(&mut world, us(0));
    handle.try_send(&mut burst(&world.arena, [1])).unwrap();
    // The first one that the device keeps: the worker is told, and finds nothing complete. It
    // looks once more, since it cannot know whether it was rung for before the look or after it.
    assert_eq!(look(&mut world, us(10)), 1);
    assert_eq!(look(&mut world, us(11)), 1);
    world.b[0].tx().complete = 1;
    assert_eq!(look(&mut world, us(20)), 1, "nobody rang");
    assert_eq!(look(&mut world, us(1_010)), 1, "nor by now");
    assert_eq!(look(&mut world, us(1_011)), 0, "but once a millisecond");
    // Where the device takes no more, the worker is told, and looks at once and every time.
    world.b[0].tx().room = 0;
    handle.try_send(&mut burst(&world.arena, [2])).unwrap();
    assert_eq!(look(&mut world, us(1_020)), 0);
    assert_eq!(look(&mut world, us(1_025)), 0);
    world.b[0].tx().room = 1;
    assert_eq!(look(&mut world, us(1_030)), 1, "it was watching");
    assert_eq!(world.b[0].tx().sent, [1, 2]);
}
