//! The models.

use super::*;
use crate::engine::{Command, Queues};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

const MODES: [Dispatch; 5] = [
    Dispatch::Direct,
    Dispatch::Deferred,
    Dispatch::Abdicate,
    Dispatch::Threshold(2),
    Dispatch::Adaptive,
];

fn is_full() -> bool {
    std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1")
}

/// The preemptions of a model that takes longer than all others together: one less without
/// `PACKTRAIN_FULL=1`, for a hundredth of the runs. A wake-up is lost by one preemption, which
/// quick models of one waiting producer and of two have.
fn in_full(preemptions: usize) -> usize {
    preemptions - usize::from(!is_full())
}

/// A device with room for all `goal` packets that it gets.
fn roomy(goal: usize) -> State {
    State {
        room: goal,
        goal,
        ..State::default()
    }
}

/// A full device, to which `goal` packets are sent.
fn full(goal: usize) -> State {
    State {
        goal,
        ..State::default()
    }
}

#[test]
fn a_worker_that_falls_asleep_sees_enqueued_packets() {
    for dispatch in MODES {
        model(2, move || {
            let mut world = World::new(dispatch, 4, roomy(2));
            let sender = world.producer(&[&[10], &[11]]);
            world.run_to_goal();
            world.finish([sender], &[10, 11]);
        });
    }
}

/// If a notified worker finds a producer draining, it sleeps only with ATTENTION set. The release
/// of the role then notifies it, though the ring is empty.
#[test]
fn a_worker_that_was_notified_gets_the_role_after_a_producer() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        let asleep = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&asleep);
        model(2, move || {
            let mut world = World::new(dispatch, 4, roomy(2));
            let lane = world.shared.enter_lane(None);
            let sender = world.producer(&[&[10], &[11]]);
            let leaves = {
                let shared = Arc::clone(&world.shared);
                // Deregistering notifies the worker.
                spawn(move || shared.leave_lane(&lane))
            };
            let reached = |world: &World, action| {
                let sleeps = matches!(action, Action::Sleep { .. });
                if sleeps && world.shared.ring.has_attention() {
                    asleep.fetch_add(1, Ordering::Relaxed);
                }
                let state = world.hardware.state();
                state.sent.len() >= state.goal
            };
            world.run_until(reached).expect("no device fails");
            leaves.join().unwrap();
            world.finish([sender], &[10, 11]);
        });
        assert!(
            seen.load(Ordering::Relaxed) > 0,
            "{dispatch}: no run had it"
        );
    }
}

/// A full device that gets room as a producer sends: the notified worker restarts it.
#[test]
fn a_notified_worker_restarts_a_device_beside_a_producer() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        model(2, move || {
            let mut world = World::new(dispatch, 4, full(2));
            let own = Submit::enter(&*world.shared);
            send(&world.shared, &own, &[&[10]]);
            world.run_to_sleep();
            let hardware = world.hardware(|hardware| hardware.make_room(2));
            let sender = world.send(own, &[&[11]]);
            world.run_to_goal();
            hardware.join().unwrap();
            let sender = sender.join().unwrap();
            assert_eq!(sender.accepted, 1);
            Submit::leave(&*world.shared, &sender.own);
            world.finish([], &[10, 11]);
        });
    }
}

/// A producer whose budget is used up abdicates. The next producer drains the rest, or the worker,
/// which sleeps until it is notified.
#[test]
fn an_abdicated_ring_is_drained() {
    for dispatch in [Dispatch::Direct, Dispatch::Adaptive] {
        model(2, move || {
            let mut world = World::new(dispatch, 4, roomy(4));
            world.run_to_sleep();
            let bursts: [Bursts; 2] = [&[&[10]], &[&[20, 21], &[22]]];
            let senders = bursts.map(|bursts| world.producer(bursts));
            world.notifier.sleep();
            world.run_to_goal();
            world.finish(senders, &[10, 20, 21, 22]);
        });
    }
}

#[test]
fn a_sleeping_worker_is_notified_of_packets_that_no_producer_drains() {
    for dispatch in MODES {
        model(2, move || {
            let mut world = World::new(dispatch, 4, roomy(4));
            world.run_to_sleep();
            let bursts: [Bursts; 2] = [&[&[10, 11]], &[&[20, 21]]];
            let senders = bursts.map(|bursts| world.producer(bursts));
            world.notifier.sleep();
            world.run_to_goal();
            world.finish(senders, &[10, 11, 20, 21]);
        });
    }
}

#[test]
fn a_device_with_room_wakes_a_worker_that_falls_asleep() {
    for dispatch in MODES {
        model(2, move || {
            let mut world = World::new(dispatch, 4, full(2));
            let sender = world.producer(&[&[10], &[11]]);
            let hardware = world.hardware(|hardware| hardware.make_room(2));
            world.run_to_goal();
            hardware.join().unwrap();
            world.finish([sender], &[10, 11]);
        });
    }
}

/// One slot: the producer waits for space while others drain. The consumer releases the role.
#[test]
fn a_producer_that_waits_for_space_is_woken_by_a_release() {
    a_producer_that_waits_for_space_is_woken(1, Dispatch::Direct, &[]);
}

/// The same where the worker keeps the role. The slot is full before the producers begin, and both
/// wait. With `PACKTRAIN_FULL=1` they also race for the empty slot, which takes four minutes.
#[test]
fn a_producer_that_waits_for_space_is_woken_by_the_worker() {
    a_producer_that_waits_for_space_is_woken(in_full(1), Dispatch::Deferred, &[&[10]]);
    if is_full() {
        a_producer_that_waits_for_space_is_woken(1, Dispatch::Deferred, &[]);
    }
}

/// Packets `before` are sent before another producer begins.
fn a_producer_that_waits_for_space_is_woken(
    preemptions: usize,
    dispatch: Dispatch,
    before: Bursts,
) {
    model(preemptions, move || {
        let mut world = World::new(dispatch, 1, roomy(3));
        world.run_to_sleep();
        let own = Submit::enter(&*world.shared);
        send(&world.shared, &own, before);
        let bursts: Bursts = if before.is_empty() {
            &[&[10, 11]]
        } else {
            &[&[11]]
        };
        let senders = [world.send(own, bursts), world.producer(&[&[20]])];
        world.notifier.sleep();
        world.run_to_goal();
        world.finish(senders, &[10, 11, 20]);
    });
}

/// One slot, and a producer that waits for each packet but the first. The worker keeps the role.
#[test]
fn a_producer_that_waits_twice_is_woken_twice() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        model(1, move || {
            let mut world = World::new(dispatch, 1, full(3));
            let sender = world.producer(&[&[10, 11, 12]]);
            let hardware = world.hardware(|hardware| {
                hardware.make_room(1);
                hardware.make_room(2);
            });
            world.run_to_goal();
            hardware.join().unwrap();
            world.finish([sender], &[10, 11, 12]);
        });
    }
}

/// The same with a full device: only the worker makes space.
#[test]
fn a_producer_that_waits_behind_a_full_device_is_woken() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        model(in_full(2), move || {
            let mut world = World::new(dispatch, 1, full(3));
            let sender = world.producer(&[&[10], &[11, 12]]);
            let hardware = world.hardware(|hardware| hardware.make_room(3));
            world.run_to_goal();
            hardware.join().unwrap();
            world.finish([sender], &[10, 11, 12]);
        });
    }
}

/// Of two waiting producers one gives up, as a send does after its timeout.
#[test]
fn a_producer_that_gives_up_takes_no_wake_up_from_another() {
    model(2, || {
        let mut world = World::new(Dispatch::Deferred, 1, roomy(2));
        let [other, own] = [(); 2].map(|()| Submit::enter(&*world.shared));
        send(&world.shared, &own, &[&[10]]);
        assert!(!world.shared.wait(&other, Waker::noop()));
        let sender = world.send(own, &[&[11]]);
        let gives_up = {
            let shared = Arc::clone(&world.shared);
            spawn(move || shared.forget(&other))
        };
        world.run_to_goal();
        gives_up.join().unwrap();
        assert_eq!(sender.join().unwrap().accepted, 1);
        world.finish([], &[10, 11]);
    });
}

/// The device sends the packets whose slots were reserved before the queue was closed, and no
/// others. The producer gets `Closed` for the others.
#[test]
fn packets_accepted_before_the_end_are_sent() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        model(2, move || {
            let mut world = World::new(dispatch, 1, State { room: 2, ..full(0) });
            let sender = world.producer(&[&[10, 11]]);
            let stop = world.stop();
            world.run_to_end();
            stop.join().unwrap();
            let sender = sender.join().unwrap();
            world.assert_sent(&[10, 11][..sender.accepted]);
            let generated = world.shared.stats.snapshot().producers.generated;
            assert_eq!(generated, sender.accepted as u64);
        });
    }
}

/// The device is full until the producer has got `Closed`.
#[test]
fn the_end_of_a_run_wakes_a_producer_that_waits_for_space() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        model(1, move || {
            let mut world = World::new(dispatch, 1, full(0));
            let own = Submit::enter(&*world.shared);
            let producer = {
                let (shared, hardware) = (Arc::clone(&world.shared), Arc::clone(&world.hardware));
                spawn(move || {
                    let accepted = send(&shared, &own, &[&[10], &[11, 12]]);
                    hardware.make_room(3);
                    accepted
                })
            };
            let stop = world.stop();
            world.run_to_end();
            stop.join().unwrap();
            let accepted = producer.join().unwrap();
            world.assert_sent(&[10, 11, 12][..accepted]);
        });
    }
}

/// A stop while packets are in flight: the worker sleeps until the last lane has deregistered and
/// the device has completed.
#[test]
fn the_last_lane_and_the_last_completion_end_the_run() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        model(2, move || {
            let device = State {
                keeps: true,
                ..roomy(0)
            };
            let mut world = World::new(dispatch, 2, State { room: 2, ..device });
            let own = world.shared.enter_lane(None);
            let lane = {
                let (shared, hardware) = (Arc::clone(&world.shared), Arc::clone(&world.hardware));
                spawn(move || {
                    let accepted = send(&shared, &own, &[&[10], &[11]]);
                    shared.leave_lane(&own);
                    // Deregistering and completing each wake the worker, or find it awake.
                    while hardware.sent().len() < accepted {
                        thread::yield_now();
                    }
                    hardware.complete();
                    accepted
                })
            };
            world.intake.stop();
            world.run_to_end();
            assert_eq!(lane.join().unwrap(), 2);
            world.assert_sent(&[10, 11]);
            assert_eq!(world.shared.stats.snapshot().held, 0);
        });
    }
}

/// A command while a producer drains, and as the worker falls asleep. After the resume, the worker
/// sends the packets that the pause left in the queue, though no producer sends more.
#[test]
fn a_command_reaches_a_worker_that_falls_asleep() {
    for dispatch in MODES {
        model(in_full(2), move || {
            let mut world = World::new(dispatch, 4, roomy(2));
            let sender = world.producer(&[&[10], &[11]]);
            let control = world.control();
            let commands = spawn(move || {
                [Command::Pause, Command::Resume]
                    .map(|command| control.send(Queues::tx(0), command).unwrap())
            });
            world.run_to_goal();
            let tickets = commands.join().unwrap();
            world.finish([sender], &[10, 11]);
            for ticket in tickets {
                // An error if the run had ended before.
                assert!(matches!(ticket.wait(), Ok(1) | Err(_)));
            }
        });
    }
}

/// The run ends while its queue is paused.
#[test]
fn a_stop_wakes_a_worker_whose_queue_is_paused() {
    for dispatch in MODES {
        model(2, move || {
            let mut world = World::new(dispatch, 4, State { room: 1, ..full(0) });
            let control = world.control();
            let ticket = control.send(Queues::tx(0), Command::Pause).unwrap();
            world.run_to_sleep();
            assert_eq!(ticket.wait(), Ok(1));
            let sender = world.producer(&[&[10]]);
            let stop = world.stop();
            world.run_to_end();
            stop.join().unwrap();
            let sender = sender.join().unwrap();
            world.assert_sent(&[10][..sender.accepted]);
        });
    }
}

/// A producer drains while another one publishes, and the worker falls asleep.
#[test]
fn a_slot_that_is_published_late_is_drained_beside_a_producer() {
    model(3, || {
        let mut world = World::new(Dispatch::Direct, 4, roomy(2));
        let bursts: [Bursts; 2] = [&[&[10]], &[&[20]]];
        let senders = bursts.map(|bursts| world.producer(bursts));
        world.run_to_goal();
        world.finish(senders, &[10, 20]);
    });
}

/// The same with the worker as the consumer.
#[test]
fn a_worker_retries_an_unpublished_slot() {
    for dispatch in [Dispatch::Deferred, Dispatch::Abdicate] {
        model(2, move || {
            let mut world = World::new(dispatch, 4, roomy(2));
            let bursts: [Bursts; 2] = [&[&[10]], &[&[20]]];
            let senders = bursts.map(|bursts| world.producer(bursts));
            world.run_to_goal();
            world.finish(senders, &[10, 20]);
        });
    }
}

/// A driver panics, or a device is removed, while a producer or the worker drains. The run ends,
/// and each accepted packet is counted as sent or dropped.
fn fails(dispatch: Dispatch, device: State) {
    model(2, move || {
        let mut world = World::new(dispatch, 4, device.clone());
        let bursts: [Bursts; 2] = [&[&[10, 11]], &[&[20]]];
        let senders = bursts.map(|bursts| {
            let own = Submit::enter(&*world.shared);
            let shared = Arc::clone(&world.shared);
            spawn(move || {
                let sent = catch_unwind(AssertUnwindSafe(|| send(&shared, &own, bursts)));
                sent.is_err()
            })
        });
        // If the worker drains, it panics, and its thread drops it.
        let ran = catch_unwind(AssertUnwindSafe(|| world.run_until(|_, _| false)));
        assert!(!matches!(ran, Ok(Ok(()))));
        let World {
            worker,
            shared,
            hardware,
            drops,
            ..
        } = world;
        drop(worker);
        for sender in senders {
            sender.join().unwrap();
        }
        let stats = shared.stats.snapshot();
        let (sent, lost) = (hardware.sent().len() as u64, drops.snapshot().total());
        assert_eq!((stats.producers.generated, stats.held), (sent + lost, 0));
    });
}

#[test]
fn a_panic_in_a_drain_ends_the_run() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        fails(
            dispatch,
            State {
                panics_at: Some(11),
                ..roomy(3)
            },
        );
    }
}

#[test]
fn a_removed_device_ends_the_run() {
    for dispatch in [Dispatch::Direct, Dispatch::Deferred] {
        fails(
            dispatch,
            State {
                removed_at: Some(11),
                ..roomy(3)
            },
        );
    }
}
