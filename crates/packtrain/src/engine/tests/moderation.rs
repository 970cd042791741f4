//! RX queues whose wake-ups are delayed, in virtual time.

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

/// What a worker sleeps for.
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
                // Port B never has a packet in these tests, and is always waited for.
                assert!((1..=2).contains(&waits), "{waits}");
                let waits_for_a = waits == 2;
                return Some(Sleep { until, waits_for_a });
            }
            Action::Done => return None,
            other => panic!("{other:?}"),
        }
    }
    panic!("no end")
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

/// Packets and the times at which they are sent on, in microseconds, by a shell that wakes up for
/// what it is told to.
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
            assert_eq!(arrival, None, "nothing is waited for");
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
fn the_first_packet_after_a_while_is_never_delayed_and_later_ones_until_the_time_is_over() {
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
        // A second within the time waits for its end, which is a signal of its own.
        (
            "a second",
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
        (
            "none of the time",
            fixed(0, 64),
            &[10, 11, 12],
            &[10, 11, 12],
            3,
        ),
        (
            "the first of all ends it",
            fixed(50, 1),
            &[10, 11, 12],
            &[10, 11, 12],
            3,
        ),
        (
            "adaptive, and little to do",
            Moderation::Adaptive,
            &[10, 11, 12],
            &[10, 11, 12],
            3,
        ),
        (
            "the longest",
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
fn enough_packets_end_the_wait_of_a_device_that_counts_them() {
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

/// The device says nothing of a packet: it is found when the time is over, and at once where the
/// worker looks for another reason.
#[test]
fn a_signal_that_is_lost_while_it_was_held_back_costs_no_more_than_the_time() {
    let mut world = world(fixed(50, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive([1]);
    assert_eq!(run(&mut world, us(5)), Some(held(us(55))));
    world.a[0].rx().items.push_back(Item::Packet(2));
    assert_eq!(sent(&world.b[0]), 1);
    assert_eq!(run(&mut world, us(55)), Some(held(us(105))));
    assert_eq!(sent(&world.b[0]), 2);
    // Nothing was there: from now on the first one is not delayed.
    assert_eq!(run(&mut world, us(105)), Some(AT_ONCE));
    assert_eq!(run(&mut world, us(106)), Some(AT_ONCE));
}

/// Woken for something else it looks at everything; that is no signal of this queue, and the time
/// does not begin anew.
#[test]
fn a_worker_that_is_awake_takes_what_is_there() {
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
    // The stop wakes it by its own descriptor. What is in the device was not received yet.
    assert_eq!(run(&mut world, us(6)), None);

    let mut setup = Setup::new([1, 1]);
    setup.input = [Input::Finite, Input::None];
    let mut world = moderated(setup, fixed(10_000, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive(0..100);
    world.a[0].rx().end = Some(End::Finished);
    assert_eq!(run(&mut world, us(5)), None, "in the same look");
    assert_eq!(sent(&world.b[0]), 100);
}

/// A device that is out of buffers is tried again when it would be anyway.
#[test]
fn a_device_without_buffers_is_not_tried_later() {
    let mut world = world(fixed(10_000, 64));
    run(&mut world, us(0)).unwrap();
    world.a[0].rx().short = true;
    world.a[0].arrive([1]);
    let slept = run(&mut world, us(5)).unwrap();
    assert_eq!(slept.until, Some(us(1005)));
}

/// A stalled egress is the reason to sleep, and not the time: when it goes on without the worker
/// the queue must be waited for.
#[test]
fn what_was_held_back_before_a_stall_is_not_forgotten_after_it() {
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
    assert_eq!(slept, held(us(105)), "the signal was at 55");
}

#[test]
fn packets_that_are_held_to_be_merged_never_wait_for_a_signal() {
    let hold = u32::try_from(COALESCE_HOLD_MAX.as_micros()).unwrap() * 10;
    let mut world = moderated(coalesce::merging([1, 1]), fixed(hold, 4096));
    run(&mut world, us(0)).unwrap();
    world.a[0].arrive_tcp(coalesce::flow(7, 0..3));
    let slept = run(&mut world, us(5)).unwrap();
    assert_eq!(slept, held(us(5 + u64::from(hold))));
    let merged: Vec<_> = world.b[0].tx().tcp.iter().map(|packet| packet.3).collect();
    assert_eq!(merged, [3], "nothing is left when it goes to sleep");
    assert_eq!(world.closed().ledger.held, 0);
}

proptest! {
    /// Whatever arrives and whatever the setting: every packet goes on, none later than the time
    /// allows, and there is at most one wake-up for each time.
    #[test]
    fn no_packet_waits_longer_than_the_time_and_no_signal_comes_sooner(
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
