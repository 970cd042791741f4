//! Queues that are paused, resumed and reset while they run, by who steps the workers and from
//! other threads. Under load: [`resets`](super::resets).

use super::fake::{World, dispatched, plan_of};
use super::handles::{NOW, PATIENCE, POLICIES, block_on, burst, settle, start, wait_for};
use crate::driver::{DeviceError, Input};
use crate::engine::{
    Closed, Command, CommandError, Commanded, Control, Forward, Next, Port, SendError,
    TrySendError, TxHandle, TxQueues,
};
use crate::limits::TX_RING_PACKETS;
use crate::policy::dispatch::Dispatch;
use crate::stats::DropReason;
use std::thread;
use std::time::Instant;

const TO_B: TxQueues = TxQueues::Port(Port::B);

fn world(dispatch: Dispatch, queues: usize) -> World<Forward> {
    let input = [Input::Endless; 2];
    let plan = plan_of([queues; 2]);
    dispatched(&plan, [queues; 2], input, None, dispatch, || Forward).unwrap()
}

/// From another thread, so that one that is never carried out ends the test.
pub fn command(
    control: &Control,
    queues: TxQueues,
    command: Command,
) -> Result<usize, CommandError> {
    let control = control.clone();
    let thread = thread::spawn(move || control.command(queues, command));
    wait_for("the command to be carried out", || thread.is_finished());
    thread.join().unwrap()
}

fn to_queue(world: &mut World<Forward>, command: Command) {
    let done = world.worker(0).command(TO_B, command, NOW).unwrap();
    assert_eq!((done.done, done.unsupported), (1, 0), "{command:?}");
}

/// Everything stays where it is and pushes back, and the worker sleeps; then it goes on by itself.
#[test]
fn what_a_pause_holds_back_goes_out_when_it_is_over() {
    for dispatch in POLICIES {
        let mut world = world(dispatch, 1);
        let mut handle = world.handles.queue(Port::B, 0).unwrap();
        let device = world.b[0].clone();
        handle.try_send(&mut burst(&world.arena, 0..10)).unwrap();
        settle(world.worker(0));
        to_queue(&mut world, Command::Pause);
        to_queue(&mut world, Command::Pause);
        let before = world.closed().ports[1].tx[0];
        let mut next = 10;
        let left = loop {
            let mut packets = burst(&world.arena, next..next + 16);
            match handle.try_send(&mut packets) {
                Ok(16) => next += 16,
                Err(TrySendError::Full { accepted }) => {
                    next += accepted as u32;
                    break packets;
                }
                other => panic!("{other:?}"),
            }
        };
        world.a[0].arrive((0..500).map(|n| 9 << 20 | n));
        settle(world.worker(0));
        let (polls, _) = world.a[0].asked();
        settle(world.worker(0));
        assert_eq!(world.a[0].asked().0, polls, "{dispatch}: not polled");
        assert_eq!(device.tx().sent.len(), 10, "{dispatch}");
        assert_eq!(next as usize, 10 + TX_RING_PACKETS, "{dispatch}");
        let tx = world.closed().ports[1].tx[0];
        assert_eq!((tx.stalls, tx.stall_flush, tx.restarts), (1, 1, 0));
        assert!(tx.ring_full > 0);
        if matches!(dispatch, Dispatch::Direct | Dispatch::Adaptive) {
            // As behind a full device: nobody tries, and nobody is woken, for as long as it lasts.
            let tries = (tx.direct, tx.wakeups);
            assert_eq!(tries, (before.direct, before.wakeups), "{dispatch}");
        }
        drop(left);

        to_queue(&mut world, Command::Resume);
        assert_eq!(settle(world.worker(0)), Next::Arm);
        let sent = device.tx().sent.clone();
        let own = sent.iter().copied().filter(|&n| n < 9 << 20);
        assert!(own.eq(0..next), "{dispatch}");
        let workers = sent.iter().filter(|&&n| n >= 9 << 20);
        assert!(workers.eq((0..500).map(|n| 9 << 20 | n).collect::<Vec<_>>().iter()));
        let end = world.closed();
        let tx = end.ports[1].tx[0];
        assert_eq!((tx.stalls, tx.restarts), (1, 1), "{dispatch}");
        assert_eq!((end.ledger.held, end.ledger.dropped), (0, 0), "{dispatch}");
        // As if nothing had been.
        to_queue(&mut world, Command::Resume);
        assert_eq!(world.closed().ports[1].tx[0].restarts, 1);
    }
}

/// What the device has is its own to send; the worker is woken for it, and for nothing after that.
#[test]
fn what_the_device_has_at_a_pause_is_collected() {
    let mut world = world(Dispatch::Direct, 1);
    let device = world.b[0].clone();
    device.tx().keeps = true;
    world.a[0].arrive(0..20);
    settle(world.worker(0));
    to_queue(&mut world, Command::Pause);
    world.a[0].arrive(20..30);
    settle(world.worker(0));
    let watched = |world: &mut World<Forward>| {
        let mut watched = 0;
        world.worker(0).interests(|_, _| watched += 1);
        watched
    };
    // Its own, the RX queue of the other direction, and the device; what came waits in its queue.
    assert_eq!(watched(&mut world), 3);
    device.tx().complete = 20;
    settle(world.worker(0));
    settle(world.worker(0));
    assert!(device.tx().kept.is_empty());
    assert_eq!(settle(world.worker(0)), Next::Arm);
    assert_eq!(watched(&mut world), 2, "not the device");
    to_queue(&mut world, Command::Resume);
    settle(world.worker(0));
    assert_eq!(device.tx().sent, (0..30).collect::<Vec<_>>());
    world.closed();
}

/// A reset, a stall, and a link that is down, all of it behind a pause: nothing goes out before it
/// is resumed, and then all of it does, in order.
#[test]
fn a_pause_outlives_what_else_happens_to_the_queue() {
    let mut world = world(Dispatch::Direct, 1);
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    let device = world.b[0].clone();
    {
        let mut tx = device.tx();
        (tx.keeps, tx.forgets, tx.room) = (true, true, 10);
    }
    handle.try_send(&mut burst(&world.arena, 0..30)).unwrap();
    settle(world.worker(0));
    assert_eq!(device.tx().sent.len(), 10, "stalled");
    to_queue(&mut world, Command::Pause);
    device.make_room(usize::MAX);
    settle(world.worker(0));
    handle.try_send(&mut burst(&world.arena, 30..40)).unwrap();
    assert_eq!(device.tx().sent.len(), 10);
    to_queue(&mut world, Command::Reset);
    device.tx().link_down = true;
    settle(world.worker(0));
    assert!(device.tx().sent.is_empty(), "taken back");
    let ledger = world.closed().ledger;
    assert_eq!(
        (ledger.transmitted, ledger.held, ledger.dropped),
        (0, 40, 0)
    );
    device.tx().link_down = false;
    to_queue(&mut world, Command::Resume);
    settle(world.worker(0));
    assert_eq!(device.tx().sent, (0..40).collect::<Vec<_>>());
    device.tx().complete = usize::MAX;
    settle(world.worker(0));
    let end = world.closed();
    assert_eq!((end.ledger.transmitted, end.ledger.held), (40, 0));
    let tx = end.ports[1].tx[0];
    assert_eq!((tx.resets, tx.taken_back), (1, 10));
}

/// A producer that blocks, one that awaits and one that tries, at a queue that is paused while its
/// worker sleeps. Nobody sends anything after the resume but those that it wakes.
#[test]
fn resume_wakes_who_waits_at_a_paused_queue() {
    const EACH: u32 = 2 * TX_RING_PACKETS as u32;
    for dispatch in POLICIES {
        let mut world = world(dispatch, 1);
        let device = world.b[0].clone();
        let running = start(&mut world);
        let control = running.control().clone();
        assert_eq!(command(&control, TO_B, Command::Pause), Ok(1));
        let send = |producer: u32, mut handle: TxHandle| {
            move || {
                let mut next = 0;
                while next < EACH {
                    let numbers = (next..EACH.min(next + 32)).map(|n| producer << 20 | n);
                    let mut packets = burst(handle.arena(), numbers);
                    next += packets.len() as u32;
                    if packets.is_empty() {
                        // Others have all the buffers.
                        handle.reclaim();
                        thread::yield_now();
                    } else if producer == 0 {
                        handle.send_blocking(&mut packets, PATIENCE).unwrap();
                    } else {
                        block_on(handle.send(&mut packets)).unwrap();
                    }
                }
            }
        };
        let mut handle = world.handles.queue(Port::B, 0).unwrap();
        let threads = [0, 1].map(|producer| thread::spawn(send(producer, handle.clone())));
        let full = || world.stats.snapshot().ports[1].tx[0].ring_full >= 2;
        wait_for("both to wait", full);
        let mut more = burst(&world.arena, [2 << 20]);
        wait_for("a full ring", || {
            handle.try_send(&mut more) == Err(TrySendError::Full { accepted: 0 })
        });
        let worker = &world.stats.workers[0];
        wait_for("the worker to sleep", || worker.sleeps.get() > 0);
        assert!(device.tx().sent.is_empty(), "{dispatch}");
        assert_eq!(command(&control, TO_B, Command::Resume), Ok(1));
        for thread in threads {
            wait_for("a producer", || thread.is_finished());
            thread.join().unwrap();
        }
        wait_for("all of it", || device.tx().sent.len() == 2 * EACH as usize);
        running.stop();
        running.join().unwrap();
        let end = world.closed();
        assert_eq!((end.ledger.held, end.ledger.dropped), (0, 0), "{dispatch}");
        for producer in [0, 1] {
            let sent = device.tx().sent.clone();
            let own = sent.iter().filter(|&n| n >> 20 == producer);
            assert!(own.map(|n| n & 0xf_ffff).eq(0..EACH), "{dispatch}");
        }
    }
}

/// As behind a device that stands still.
#[test]
fn a_stop_at_a_paused_queue_ends_in_time_and_counts_what_is_lost() {
    let mut world = world(Dispatch::Direct, 1);
    let device = world.b[0].clone();
    let running = start(&mut world);
    assert_eq!(command(running.control(), TO_B, Command::Pause), Ok(1));
    world.a[0].arrive(0..1000);
    let handle = world.handles.queue(Port::B, 0).unwrap();
    let threads = [true, false].map(|blocks| {
        let mut handle = handle.clone();
        thread::spawn(move || {
            // Until it is closed: full is no end.
            loop {
                let mut packets = burst(handle.arena(), 0..20);
                let closed = if blocks {
                    handle.send_blocking(&mut packets, PATIENCE) == Err(SendError::Closed)
                } else {
                    block_on(handle.send(&mut packets)) == Err(Closed)
                };
                if closed {
                    return;
                }
            }
        })
    });
    let full = || world.stats.snapshot().ports[1].tx[0].ring_full >= 2;
    wait_for("producers to wait", full);
    let begin = Instant::now();
    running.stop();
    running.join().unwrap();
    assert!(begin.elapsed() < PATIENCE);
    for thread in threads {
        wait_for("a producer", || thread.is_finished());
        thread.join().unwrap();
    }
    assert!(device.tx().sent.is_empty());
    let end = world.closed();
    assert_eq!((end.ledger.transmitted, end.ledger.held), (0, 0));
    let lost = end.drops.get(DropReason::Shutdown);
    assert!(lost >= TX_RING_PACKETS as u64);
    assert_eq!(lost, end.ledger.received + end.ledger.generated);
}

/// Neither that it is paused, nor what the device has gone on to send, is anything to wait for.
#[test]
fn a_paused_queue_that_holds_nothing_ends_at_once() {
    let mut world = world(Dispatch::Direct, 1);
    let device = world.b[0].clone();
    device.tx().keeps = true;
    world.a[0].arrive(0..10);
    settle(world.worker(0));
    to_queue(&mut world, Command::Pause);
    world.intake.stop();
    assert!(matches!(settle(world.worker(0)), Next::SleepUntil(_)));
    device.tx().complete = 10;
    settle(world.worker(0));
    assert_eq!(settle(world.worker(0)), Next::Done);
    assert_eq!(world.closed().ledger.transmitted, 10);
}

/// The drain time is time to resume in: what was held goes out then, though intake is over.
#[test]
fn a_queue_that_is_resumed_after_the_stop_sends_what_it_holds() {
    let mut world = world(Dispatch::Direct, 1);
    to_queue(&mut world, Command::Pause);
    world.a[0].arrive(0..50);
    let mut handle = world.handles.queue(Port::B, 0).unwrap();
    handle.try_send(&mut burst(&world.arena, 100..150)).unwrap();
    settle(world.worker(0));
    world.intake.stop();
    assert_eq!(settle(world.worker(0)), Next::Arm, "not over");
    to_queue(&mut world, Command::Resume);
    assert_eq!(settle(world.worker(0)), Next::Done);
    let ledger = world.closed().ledger;
    assert_eq!((ledger.dropped, ledger.held), (0, 0));
    assert!(ledger.transmitted >= 50);
}

#[test]
fn who_commands_is_told_what_came_of_it() {
    let mut world = world(Dispatch::Direct, 3);
    for (queue, forgets) in world.b.iter().zip([true, false, true]) {
        queue.tx().forgets = forgets;
    }
    let running = start(&mut world);
    let control = running.control().clone();
    let of = |queue| TxQueues::Queue(Port::B, queue);
    for what in [Command::Pause, Command::Resume] {
        assert_eq!(command(&control, TO_B, what), Ok(3));
        assert_eq!(command(&control, of(2), what), Ok(1));
    }
    assert_eq!(command(&control, of(0), Command::Reset), Ok(1));
    let cannot = |done| Err(CommandError::Unsupported { done });
    assert_eq!(command(&control, of(1), Command::Reset), cannot(0));
    assert_eq!(command(&control, TO_B, Command::Reset), cannot(2));
    let to_a = TxQueues::Port(Port::A);
    assert_eq!(command(&control, to_a, Command::Reset), cannot(0));
    for what in [Command::Pause, Command::Resume, Command::Reset] {
        let said = command(&control, of(3), what);
        assert_eq!(said, Err(CommandError::NoSuchQueue));
    }
    let resets: Vec<_> = world.b.iter().map(|queue| queue.tx().resets).collect();
    assert_eq!(resets, [2, 0, 1]);
    running.stop();
    running.join().unwrap();
    let ended = Err(CommandError::Ended { done: 0 });
    assert_eq!(command(&control, TO_B, Command::Reset), ended);
    world.closed();
}

/// A device that does not come back from a reset ends the run, and whoever asked for it is told.
#[test]
fn a_reset_that_fails_ends_the_run() {
    let mut world = world(Dispatch::Direct, 1);
    let running = start(&mut world);
    world.b[0].tx().removed = true;
    let said = command(running.control(), TO_B, Command::Reset);
    assert_eq!(said, Err(CommandError::Ended { done: 0 }));
    let error = running.join().unwrap_err();
    assert!(matches!(error.error, DeviceError::Removed), "{error}");
    assert_eq!(error.port, Some(Port::B));
    world.closed();
}

/// A worker that is not driven any more: what it was asked before is answered, too.
#[test]
fn a_worker_that_is_dropped_answers() {
    let mut world = world(Dispatch::Direct, 1);
    let workers = world.workers.take().unwrap();
    let control = Control::of(&workers);
    let asked = control.send(TO_B, Command::Pause).expect("it is there");
    drop(workers);
    let ended = Err(CommandError::Ended { done: 0 });
    assert_eq!(asked.wait(), ended);
    assert_eq!(command(&control, TO_B, Command::Reset), ended);
    world.closed();
}

/// Whoever drives the workers on one thread does it there; those of other queues say that they
/// have none.
#[test]
fn a_worker_does_it_to_its_own_queues() {
    let mut world = world(Dispatch::Direct, 2);
    for queue in 0..2 {
        let of = TxQueues::Queue(Port::B, queue);
        for worker in 0..2 {
            let done = world.worker(worker).command(of, Command::Pause, NOW);
            let expected = Commanded {
                done: usize::from(worker == queue),
                unsupported: 0,
            };
            assert_eq!(done.unwrap(), expected);
        }
    }
    world.closed();
}
