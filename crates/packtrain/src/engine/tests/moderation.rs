//! Interrupt moderation of RX queues, in virtual time.

use super::coalesce;
use super::fake::{End, Item, Queue};
use super::rig::{Rig, Setup};
use crate::driver::Input;
use crate::engine::Action;
use crate::limits::{COALESCE_HOLD_MAX, TX_POLL_AFTER};
use crate::policy::moderation::Moderation;
use crate::time::Instant;
use proptest::prelude::*;
use std::os::fd::AsRawFd;

const fn fixed(usecs: u32, frames: u32) -> Moderation {
    Moderation::Fixed { usecs, frames }
}

/// A rig starts at 1 ms.
const fn us(us: u64) -> Instant {
    Instant::from_nanos(1_000_000 + us * 1000)
}

fn moderated(mut setup: Setup, moderation: Moderation) -> Rig {
    setup.settings.moderation = moderation;
    setup.with_fds = true;
    setup.forward()
}

fn world(moderation: Moderation) -> Rig {
    moderated(Setup::new([1, 1]), moderation)
}

/// The sleep of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleep {
    until: Option<Instant>,
    /// Whether a packet at port A wakes it.
    waits_for_a: bool,
}

/// Runs the worker at `now` until it sleeps; `None` at the end of the run.
fn run(world: &mut Rig, now: Instant) -> Option<Sleep> {
    world.advance(now.since(world.now()));
    for _ in 0..10_000 {
        match world.run(0) {
            Action::Step => {}
            Action::Sleep { until } => {
                let waits = world.watched(0);
                // The worker always waits for port B, which never has a packet in these tests.
                assert!((1..=2).contains(&waits), "{waits}");
                let waits_for_a = waits == 2;
                return Some(Sleep { until, waits_for_a });
            }
            Action::Done => return None,
            other => panic!("{other:?}"),
        }
    }
    panic!("the worker does not sleep")
}

const AT_ONCE: Sleep = Sleep {
    until: None,
    waits_for_a: true,
};

const fn held(until: Instant) -> Sleep {
    Sleep {
        until: Some(until),
        waits_for_a: false,
    }
}

fn sent(queue: &Queue) -> usize {
    queue.tx().sent.len()
}

/// The times in microseconds at which packets are sent on, if the worker runs exactly when it
/// requests.
fn passed(world: &mut Rig, arrivals: &[u64]) -> Vec<u64> {
    let mut sleep = run(world, us(0)).unwrap();
    let mut times = Vec::new();
    let mut arrivals = arrivals.iter().copied().enumerate().peekable();
    loop {
        let arrival = arrivals.peek().map(|&(_, at)| at);
        let timer = sleep
            .until
            .map(|until| until.since(us(0)).as_micros() as u64);
        let wakes = sleep.waits_for_a.then_some(arrival).flatten();
        let Some(now) = timer.into_iter().chain(wakes).min() else {
            assert_eq!(arrival, None, "the worker waits for nothing");
            return times;
        };
        while let Some((number, _)) = arrivals.next_if(|&(_, at)| at <= now) {
            world.a[0].arrive([number as u32]);
        }
        if wakes.is_some_and(|wakes| wakes <= now) {
            let mut fds = Vec::new();
            world.workers[0].interests(&mut |fd, _| fds.push(fd.as_raw_fd()));
            // In the order of `interests`: port A, port B.
            world.workers[0].woken_by(fds[0]);
        }
        let before = sent(&world.b[0]);
        sleep = run(world, us(now)).unwrap();
        let after = sent(&world.b[0]);
        times.extend(std::iter::repeat_n(now, after - before));
    }
}

#[test]
fn packets_are_delayed_only_for_a_time_after_a_wake_up() {
    type Row = (
        &'static str,
        Moderation,
        &'static [u64],
        &'static [u64],
        u64,
    );
    let rows: [Row; 9] = [
        (
            "off",
            Moderation::Off,
            &[10, 11, 12, 90],
            &[10, 11, 12, 90],
            4,
        ),
        (
            "light load",
            fixed(50, 64),
            &[10, 60, 110, 1000],
            &[10, 60, 110, 1000],
            4,
        ),
        (
            "two at once",
            fixed(50, 64),
            &[10, 10, 100],
            &[10, 10, 100],
            2,
        ),
        // A second packet within the time waits for its end, which is a wake-up of its own.
        (
            "a second packet",
            fixed(50, 64),
            &[10, 30, 61, 200],
            &[10, 60, 110, 200],
            4,
        ),
        (
            "load",
            fixed(50, 64),
            &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110],
            &[10, 60, 60, 60, 60, 60, 110, 110, 110, 110, 110],
            3,
        ),
        ("no delay", fixed(0, 64), &[10, 11, 12], &[10, 11, 12], 3),
        (
            "one packet ends the delay",
            fixed(50, 1),
            &[10, 11, 12],
            &[10, 11, 12],
            3,
        ),
        (
            "adaptive, light load",
            Moderation::Adaptive,
            &[10, 11, 12],
            &[10, 11, 12],
            3,
        ),
        (
            "the longest delay",
            fixed(10_000, 4096),
            &[1, 2, 10_002],
            &[1, 10_001, 20_001],
            3,
        ),
    ];
    for (what, moderation, arrivals, expected, wakeups) in rows {
        let mut world = world(moderation);
        assert_eq!(passed(&mut world, arrivals), expected, "{what}");
        let rx = world.closed().ports[0].rx[0];
        assert_eq!(rx.wakeups, wakeups, "{what}");
        assert_eq!(
            rx.moderated > 0,
            matches!(
                moderation,
                Moderation::Fixed {
                    usecs: 1..,
                    frames: 2..
                }
            ),
            "{what}"
        );
    }
}

#[test]
fn enough_packets_end_the_delay_of_a_device_that_counts_them() {
    for (counts, frames) in [(true, 4), (true, 64), (false, 4)] {
        let mut world = world(fixed(50, frames));
        world.a[0].rx().counts = counts;
        run(&mut world, us(0)).unwrap();
        world.a[0].arrive([0]);
        let slept = run(&mut world, us(10)).unwrap();
        assert_eq!((slept.until, slept.waits_for_a), (Some(us(60)), counts));
        let armed_for = world.a[0].rx().armed_for;
        assert_eq!(armed_for, counts.then_some(frames as usize));
    }
}

/// The device raises no interrupt for a packet. The worker finds it after the delay, or when it
/// polls for another reason.
#[test]
fn an_interrupt_lost_during_the_delay_costs_no_more_than_the_delay() {
    let mut world = world(fixed(50, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive([1]);
    assert_eq!(run(&mut world, us(5)), Some(held(us(55))));
    world.a[0].rx().items.push_back(Item::Packet(2));
    assert_eq!(sent(&world.b[0]), 1);
    assert_eq!(run(&mut world, us(55)), Some(held(us(105))));
    assert_eq!(sent(&world.b[0]), 2);
    // The queue was empty: from now on the first packet is not delayed.
    assert_eq!(run(&mut world, us(105)), Some(AT_ONCE));
    assert_eq!(run(&mut world, us(106)), Some(AT_ONCE));
}

/// A worker that is woken for another reason polls all queues. That is no wake-up of this queue,
/// and does not restart the delay.
#[test]
fn a_worker_that_is_awake_receives_during_the_delay() {
    let mut world = world(fixed(50, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive([1]);
    assert_eq!(run(&mut world, us(5)), Some(held(us(55))));
    world.a[0].arrive([2]);
    for now in [20, 30, 54] {
        assert_eq!(run(&mut world, us(now)), Some(held(us(55))));
        assert_eq!(sent(&world.b[0]), 2);
    }
    let wakeups = world.closed().ports[0].rx[0].wakeups;
    assert_eq!(wakeups, 0, "no descriptor was ready");
    assert_eq!(run(&mut world, us(55)), Some(AT_ONCE));
}

#[test]
fn a_stop_and_the_end_of_the_input_are_never_delayed() {
    let mut world = world(fixed(10_000, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive([1]);
    assert_eq!(run(&mut world, us(5)), Some(held(us(10_005))));
    world.a[0].arrive([2]);
    world.session.stop();
    // The stop wakes the worker by its own descriptor. The packet in the device was not received
    // yet.
    assert_eq!(run(&mut world, us(6)), None);

    let mut setup = Setup::new([1, 1]);
    setup.input = [Input::Finite, Input::None];
    let mut world = moderated(setup, fixed(10_000, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive(0..100);
    world.a[0].rx().end = Some(End::Finished);
    assert_eq!(run(&mut world, us(5)), None, "in the same poll");
    assert_eq!(sent(&world.b[0]), 100);
}

/// Moderation does not delay the next poll of a device without buffers.
#[test]
fn a_device_without_buffers_is_polled_no_later() {
    let mut world = world(fixed(10_000, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].rx().short = true;
    world.a[0].arrive([1]);
    let slept = run(&mut world, us(5)).unwrap();
    assert_eq!(slept.until, Some(us(1005)));
}

/// The worker sleeps for a stalled egress, not for the delay. When the egress continues by itself,
/// the worker must wait for the RX queue again.
#[test]
fn a_delay_before_a_stall_continues_after_it() {
    let mut world = world(fixed(50, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive([1]);
    assert_eq!(run(&mut world, us(5)), Some(held(us(55))));
    world.b[0].tx().room = 0;
    world.a[0].arrive([2, 3]);
    let slept = run(&mut world, us(55)).unwrap();
    assert_eq!(slept.until, Some(us(55).after(TX_POLL_AFTER)));
    world.b[0].tx().room = usize::MAX;
    let slept = run(&mut world, us(60)).unwrap();
    assert_eq!(sent(&world.b[0]), 3);
    assert_eq!(slept, held(us(105)), "the last wake-up was at 55");
}

#[test]
fn packets_held_by_the_coalescer_never_wait_for_an_interrupt() {
    let hold = u32::try_from(COALESCE_HOLD_MAX.as_micros()).unwrap() * 10;
    let mut world = moderated(coalesce::merging([1, 1]), fixed(hold, 4096));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive_tcp(coalesce::flow(7, 0..3));
    let slept = run(&mut world, us(5)).unwrap();
    assert_eq!(slept, held(us(5 + u64::from(hold))));
    let merged: Vec<_> = world.b[0].tx().tcp.iter().map(|packet| packet.3).collect();
    assert_eq!(merged, [3], "no packet is left before the sleep");
    assert_eq!(world.closed().ledger.held, 0);
}

proptest! {
    /// For any arrivals and any setting, every packet is sent within the delay, and there is at
    /// most one wake-up for each delay.
    #[test]
    fn no_packet_waits_longer_than_the_delay_and_no_wake_up_comes_sooner(
        usecs in 1..200_u32,
        gaps in prop::collection::vec(0..300_u64, 1..60),
    ) {
        let mut at = 0;
        let arrivals: Vec<u64> = gaps.iter().map(|gap| { at += gap; at }).collect();
        let mut world = world(fixed(usecs, 4096));
        let times = passed(&mut world, &arrivals);
        prop_assert_eq!(times.len(), arrivals.len());
        for (sent, came) in times.iter().zip(&arrivals) {
            prop_assert!(sent >= came && sent - came < u64::from(usecs));
        }
        let mut signals = times.clone();
        signals.dedup();
        for pair in signals.windows(2) {
            prop_assert!(pair[1] - pair[0] >= u64::from(usecs));
        }
        prop_assert_eq!(world.closed().ports[0].rx[0].wakeups, signals.len() as u64);
    }
}
