//! What the adaptive dispatcher does over time.

use super::*;
use std::time::Duration;

pub(super) const MS: u64 = 1_000_000;

/// A producer that spends half of its time in draining, and a second CPU with nothing to do.
pub(super) fn saturated() -> Observation {
    Observation {
        packets: 5_000,
        depth: 5_000,
        enqueues: 5_000,
        timed_packets: 100,
        timed_ns: 10_000,
        wakeup_ns: 5_000,
        idle_cpus: 1,
        ..Observation::default()
    }
}

pub(super) fn defers(rule: Rule) -> bool {
    !rule.producers_drain()
}

/// Whether each producer drains as many as the ring holds.
pub(super) fn takes_turns(rule: Rule) -> bool {
    rule == Rule::direct(RING as u16)
}

/// The time in milliseconds of one hundredth more or less, so that what is as much in each of them
/// is no steady load.
pub(super) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * MS + ms / 2 * (MS / 100))
}

/// Observations of a millisecond each, `rates` in packets by whether the ring is deferred. Says
/// in which of them the ring was.
pub(super) fn run(
    dispatcher: &mut Dispatcher,
    from_ms: u64,
    count: u64,
    observe: impl FnMut(bool) -> Observation,
) -> Vec<bool> {
    run_at(at, dispatcher, from_ms..from_ms + count, observe)
}

/// The same, of a load that is as much in each of them.
pub(super) fn run_steady(
    dispatcher: &mut Dispatcher,
    from_ms: u64,
    count: u64,
    observe: impl FnMut(bool) -> Observation,
) -> Vec<bool> {
    let at = |ms| Instant::from_nanos(ms * MS);
    run_at(at, dispatcher, from_ms..from_ms + count, observe)
}

fn run_at(
    at: impl Fn(u64) -> Instant,
    dispatcher: &mut Dispatcher,
    times: std::ops::Range<u64>,
    mut observe: impl FnMut(bool) -> Observation,
) -> Vec<bool> {
    let mut deferred = defers(dispatcher.rule());
    let observed = times.map(|ms| {
        let rule = dispatcher.observe(at(ms), &observe(deferred));
        deferred = defers(rule);
        deferred
    });
    observed.collect()
}

pub(super) fn adaptive() -> Dispatcher {
    Dispatcher::new(Dispatch::Adaptive, RING)
}

/// So many packets, and a worker that is awake where it drains.
fn sent(packets: u64, deferred: bool) -> Observation {
    Observation {
        packets,
        depth: packets,
        worker_awake: deferred,
        ..saturated()
    }
}

/// As many packets each way, by what was observed.
fn with_rates(direct: u64, deferred: u64) -> impl Fn(bool) -> Observation {
    move |is_deferred| sent(if is_deferred { deferred } else { direct }, is_deferred)
}

/// As many packets as `rate` says of how many windows the ring has been deferred, 0 for not.
fn by_age(rate: impl Fn(u32) -> u64) -> impl FnMut(bool) -> Observation {
    let mut windows = 0;
    move |deferred| {
        windows = if deferred { windows + 1 } else { 0 };
        sent(rate(windows), deferred)
    }
}

#[test]
fn begins_with_direct_dispatch() {
    assert_eq!(adaptive().rule(), Rule::direct(BUDGET));
}

#[test]
fn defers_only_where_it_may_pay() {
    let base = saturated();
    let rows = [
        ("half the time goes into draining", base, true),
        (
            "no CPU is free for the worker",
            Observation {
                idle_cpus: 0,
                ..base
            },
            false,
        ),
        (
            "no CPU is idle, but the worker has one and polls",
            Observation {
                idle_cpus: 0,
                worker_awake: true,
                ..base
            },
            true,
        ),
        (
            "a trickle: draining takes 0.5 % of the time",
            Observation {
                packets: 50,
                depth: 50,
                ..base
            },
            false,
        ),
        (
            "nothing is known of the costs, and nobody contends",
            Observation {
                timed_packets: 0,
                timed_ns: 0,
                ..base
            },
            false,
        ),
        (
            "half of the batches find somebody draining",
            Observation {
                timed_packets: 0,
                timed_ns: 0,
                contended: 2_500,
                ..base
            },
            true,
        ),
        (
            "no CPU is free for the worker, but producers are in each other's way",
            Observation {
                idle_cpus: 0,
                contended: 625,
                producers: 2,
                ..base
            },
            true,
        ),
        (
            "and one that is in the worker's way only",
            Observation {
                idle_cpus: 0,
                contended: 625,
                producers: 1,
                ..base
            },
            false,
        ),
        (
            "producers are seldom in each other's way",
            Observation {
                idle_cpus: 0,
                contended: 600,
                producers: 2,
                ..base
            },
            false,
        ),
        (
            "the device is full: most is left in the ring",
            Observation {
                depth: 500_000,
                ..base
            },
            false,
        ),
    ];
    for (what, observation, expected) in rows {
        let tried = run(&mut adaptive(), 0, 2_000, |_| observation).contains(&true);
        assert_eq!(tried, expected, "{what}");
    }
}

#[test]
fn keeps_what_sends_more_and_leaves_what_does_not() {
    // Packets of a millisecond, directly and deferred, and which it is in the end.
    for (direct, deferred, expected) in [
        (1_000, 2_000, true),
        (1_000, 1_030, true),
        (1_000, 1_015, false),
        (1_000, 1_000, false),
        (1_000, 500, false),
    ] {
        let mut dispatcher = adaptive();
        let world = with_rates(direct, deferred);
        let modes = run(&mut dispatcher, 0, 20_000, world);
        let share = modes.iter().filter(|&&is| is == expected).count();
        assert!(
            share >= modes.len() * 98 / 100,
            "{direct} or {deferred}: {share} of {}",
            modes.len()
        );
    }
}

/// One that somebody paces gains nothing by a trial, and packets that wait meanwhile are late. It
/// may also be a machine without any noise: then what is better is found half a second later.
#[test]
fn of_a_steady_load_the_first_trial_comes_later() {
    let even = [10_000; 8];
    // What is held up in one window, and made up for in the next.
    let held_up = |times| {
        let mut packets = even;
        for two in packets.chunks_mut(2).take(times) {
            two.copy_from_slice(&[9_000, 11_000]);
        }
        packets
    };
    let lost = |packets, window: usize| {
        let mut some = even;
        some[window] -= packets;
        some
    };
    // Packets of the first eight windows, and of each eight that follow.
    for (what, first, later, first_trial) in [
        ("as many in each", even, even, 520),
        ("held up twice", held_up(2), held_up(2), 520),
        ("held up three times", held_up(3), held_up(3), 520),
        (
            "four times, so five moments are on the line",
            held_up(4),
            held_up(4),
            16,
        ),
        ("a hundredth is lost", lost(100, 4), lost(100, 4), 520),
        ("more is lost", lost(400, 4), lost(400, 4), 16),
        ("it may be made up for yet", lost(400, 6), lost(400, 6), 520),
        (
            "two moments are above the line",
            lost(400, 1),
            lost(400, 1),
            16,
        ),
        ("only the beginning is slow", lost(400, 4), even, 528),
    ] {
        let mut dispatcher = adaptive();
        let deferred: Vec<_> = (0..1_000_u64)
            .map(|ms| {
                let is_deferred = defers(dispatcher.rule());
                // The first observation begins the first window.
                let window = ms.saturating_sub(1);
                let eight = if window < 8 { &first } else { &later };
                let direct = eight[window as usize % 8];
                let seen = with_rates(direct, 2 * direct)(is_deferred);
                defers(dispatcher.observe(Instant::from_nanos(ms * MS), &seen))
            })
            .collect();
        let first = deferred.iter().position(|&is| is).unwrap();
        assert!(
            (first_trial..first_trial + 8).contains(&first),
            "{what}: {first}"
        );
        let wins = deferred.ends_with(&[true; 400]);
        assert!(wins, "{what}: it sends twice as much");
    }
}

/// What held a load up may be taken for a pause, and not count for what it sends: it is made up for
/// all the same.
#[test]
fn a_load_is_as_steady_with_what_looks_like_pauses() {
    // Packets are due each 100 ns, and observed each 100 us. Every 8 ms nothing is sent for 600 us;
    // what was due goes out in the ones that follow.
    for at_us in [500, 2_000, 3_400, 5_000, 7_300] {
        let mut dispatcher = adaptive();
        let (mut all, mut first) = (0, None);
        for us in (100..1_000_000_u64).step_by(100) {
            let since = (us + 8_000 - at_us) % 8_000;
            if (1..600).contains(&since) {
                continue;
            }
            let packets = (us * 10 - all).min(1_500);
            all += packets;
            let rule = dispatcher.observe(Instant::from_nanos(us * 1_000), &sent(packets, false));
            first = first.or(defers(rule).then_some(us / 1_000));
        }
        assert!(matches!(first, Some(512..560)), "{at_us}: {first:?}");
    }
}

/// Seconds of a load that comes and goes, give or take a fifth, told each 256 packets. Directly
/// one takes `direct` ns, deferred `deferred` ns. Says what share of the sending time was lost.
fn regret_with_pauses(on: Duration, off: Duration, direct: u64, deferred: u64) -> f64 {
    const PACKETS: u64 = 256;
    let mut dispatcher = adaptive();
    let (mut now, mut random) = (0_u64, 12_345_u64);
    let mut about = |time: Duration| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        time.as_nanos() as u64 * (80 + (random >> 33) % 41) / 100
    };
    let (mut spent, mut best) = (0, 0);
    while now < 120_000 * MS {
        let end = now + about(on);
        let mut is_first = true;
        while now < end {
            let is_deferred = defers(dispatcher.rule());
            let ns = PACKETS * if is_deferred { deferred } else { direct };
            now += ns;
            spent += ns;
            best += PACKETS * direct.min(deferred);
            let seen = Observation {
                enqueues: PACKETS,
                timed_packets: 1,
                timed_ns: 50,
                wakeups: u64::from(is_deferred && is_first),
                producers: 1,
                ..sent(PACKETS, is_deferred)
            };
            dispatcher.observe(Instant::from_nanos(now), &seen);
            is_first = false;
        }
        now += about(off);
    }
    1.0 - best as f64 / spent as f64
}

/// A worker that is woken runs on the CPU of who woke it, until the scheduler has moved it: once or
/// twice that takes longer than a trial.
#[test]
fn a_worker_in_its_producers_way_is_tried_again_at_once() {
    for (bad_trials, wins) in [(1, true), (2, true), (3, false)] {
        let mut dispatcher = adaptive();
        let (mut trials, mut was) = (0, false);
        let deferred = run(&mut dispatcher, 1, 100, |is_deferred| {
            trials += u32::from(is_deferred && !was);
            was = is_deferred;
            let in_the_way = is_deferred && trials <= bad_trials;
            Observation {
                wakeups: if in_the_way { 300 } else { 0 },
                ..sent(
                    if in_the_way {
                        2500
                    } else if is_deferred {
                        4600
                    } else {
                        3900
                    },
                    is_deferred,
                )
            }
        });
        assert_eq!(deferred.ends_with(&[true; 40]), wins, "{bad_trials}");
    }
    // Also where what follows looks steady: it was tried before.
    let mut dispatcher = adaptive();
    let steady_from = 17;
    let deferred: Vec<_> = (0..100)
        .map(|ms| {
            let is_deferred = defers(dispatcher.rule());
            let in_the_way = is_deferred && ms <= steady_from;
            let seen = Observation {
                wakeups: if in_the_way { 300 } else { 0 },
                ..sent(
                    if in_the_way {
                        2500
                    } else {
                        3900 + 700 * u64::from(is_deferred)
                    },
                    is_deferred,
                )
            };
            let noise = ms.min(steady_from) / 2 * (MS / 100);
            defers(dispatcher.observe(Instant::from_nanos(ms * MS + noise), &seen))
        })
        .collect();
    assert!(deferred.ends_with(&[true; 40]));
    // A light load sends as much: there it is over at once, for the usual time.
    let mut dispatcher = adaptive();
    let deferred = run(&mut dispatcher, 1, 400, |is_deferred| Observation {
        wakeups: if is_deferred { 500 } else { 0 },
        ..sent(500, is_deferred)
    });
    assert!(deferred.iter().filter(|&&is| is).count() <= 2);
}

/// How long nothing is sent is not the doing of what is in force, or was tried.
#[test]
fn pauses_of_the_load_are_not_taken_for_slowness() {
    for (on_ms, off_ms) in [(1, 1), (2, 3), (5, 5), (5, 20), (8, 2), (50, 50), (3, 100)] {
        let (on, off) = (Duration::from_millis(on_ms), Duration::from_millis(off_ms));
        for (direct, deferred) in [(100, 80), (100, 111), (100, 160)] {
            let regret = regret_with_pauses(on, off, direct, deferred);
            assert!(
                regret < 0.02,
                "{on:?}, {off:?}, {direct} to {deferred}: {regret}"
            );
        }
    }
}

/// The other side: what is slow all the time is no pause.
#[test]
fn a_load_that_becomes_light_ends_deferring_within_a_few_observations() {
    let mut dispatcher = adaptive();
    let before = run(&mut dispatcher, 1, 1000, with_rates(4000, 5000));
    assert!(before.ends_with(&[true; 100]));
    let mut now = 1001 * MS;
    let mut observations = 0;
    while defers(dispatcher.rule()) {
        now += 50 * MS;
        observations += 1;
        let seen = Observation {
            wakeups: 1,
            ..sent(1, true)
        };
        dispatcher.observe(Instant::from_nanos(now), &seen);
        assert!(observations < 12);
    }
}

/// Something else that takes a CPU for some milliseconds makes nothing slower for half a second.
#[test]
fn what_ended_by_a_disturbance_is_tried_again_soon() {
    let world = with_rates(5_000, 6_000);
    let mut dispatcher = adaptive();
    run(&mut dispatcher, 0, 100, &world);
    assert!(defers(dispatcher.rule()));
    let disturbed = run(&mut dispatcher, 100, 5, with_rates(3_000, 3_000));
    assert_eq!(disturbed.last(), Some(&false));
    let modes = run(&mut dispatcher, 105, 40, &world);
    let since = modes.iter().rev().take_while(|&&deferred| deferred).count();
    assert!(since >= 20, "{since} of the last 40");
    // Where it stays as slow as that, one look is enough.
    let mut dispatcher = adaptive();
    run(&mut dispatcher, 0, 100, &world);
    let modes = run(&mut dispatcher, 100, 300, with_rates(3_000, 3_000));
    let deferred = modes[5..].iter().filter(|&&is| is).count();
    assert_eq!(deferred, 4);
    // However often it happened before, one that lasts longer costs no more than the first one.
    let mut dispatcher = adaptive();
    let mut ms = 0;
    let slow = with_rates(4_000, 4_000);
    let mut on = |dispatcher: &mut Dispatcher, count, disturbed: bool| {
        ms += count;
        run(dispatcher, ms - count, count, |deferred| {
            if disturbed {
                slow(deferred)
            } else {
                world(deferred)
            }
        })
    };
    for _ in 0..8 {
        on(&mut dispatcher, 1_000, false);
        assert!(defers(dispatcher.rule()));
        on(&mut dispatcher, 5, true);
    }
    on(&mut dispatcher, 1_000, false);
    on(&mut dispatcher, 60, true);
    let modes = on(&mut dispatcher, 1_100, false);
    assert_eq!(modes.last(), Some(&true), "{modes:?}");
}

/// Deferring that is good for as long as a trial, and bad from then on.
#[test]
fn what_is_good_at_first_is_not_tried_again_and_again() {
    let world = by_age(|windows| match windows {
        0 => 5_000,
        1..=12 => 6_000,
        _ => 3_000,
    });
    let modes = run(&mut adaptive(), 0, 20_000, world);
    let deferred = modes.iter().filter(|&&is| is).count();
    assert!((1..=1_000).contains(&deferred), "{deferred} of 20000");
}

/// A worker that begins on the CPU of its producer.
#[test]
fn deferring_has_time_to_become_better() {
    for (slow, expected) in [(7, true), (10, true), (16, false)] {
        let world = by_age(|windows| match windows {
            0 => 5_000,
            n if n <= slow => 4_000,
            _ => 6_000,
        });
        let modes = run(&mut adaptive(), 0, 400, world);
        assert_eq!(modes.last(), Some(&expected), "slow for {slow} ms");
    }
}

#[test]
fn a_trial_without_hope_is_over_soon() {
    for (deferred, expected) in [(2_400, 3), (2_600, 4 + 8 + 3), (4_950, 4)] {
        let mut dispatcher = adaptive();
        let modes = run(&mut dispatcher, 0, 500, with_rates(5_000, deferred));
        let count = modes.iter().filter(|&&is| is).count();
        assert_eq!(count, expected, "{deferred} instead of 5000");
    }
}

/// Until the worker has come to work, the producer finds an empty ring now and then.
#[test]
fn wakeups_at_the_beginning_of_a_trial_are_no_sign() {
    for (first, expected) in [(300, true), (400, false)] {
        let mut windows = 0;
        let modes = run(&mut adaptive(), 0, 500, |deferred| {
            windows = if deferred { windows + 1 } else { 0 };
            Observation {
                wakeups: if windows == 1 { first } else { 0 },
                packets: if deferred { 6_000 } else { 5_000 },
                worker_awake: deferred,
                ..saturated()
            }
        });
        assert_eq!(modes.last(), Some(&expected), "{first} for 6000 packets");
    }
}

/// The first milliseconds of a run are slow, whatever the mode.
#[test]
fn a_slow_beginning_makes_no_trial_a_win() {
    let mut ms = 0;
    let modes = run(&mut adaptive(), 0, 500, |deferred| {
        ms += 1;
        let packets = match deferred {
            true => 800,
            false if ms < 20 => 500,
            false => 1_000,
        };
        sent(packets, deferred)
    });
    let deferred = modes.iter().filter(|&&is| is).count();
    assert!((1..=8).contains(&deferred), "{deferred} of 500");
}

/// Packets are due at fixed times, and what a trial's beginning leaves in the ring is sent later in
/// the trial.
#[test]
fn to_catch_up_is_no_win() {
    let world = by_age(|windows| match windows {
        0 => 1_000,
        1 => 400,
        _ => 1_200,
    });
    let modes = run(&mut adaptive(), 0, 500, world);
    let deferred = modes.iter().filter(|&&is| is).count();
    assert!((1..=8).contains(&deferred), "{deferred} of 500");
}

#[test]
fn a_trial_ends_at_once_when_the_worker_sleeps_between_packets() {
    let mut dispatcher = adaptive();
    let modes = run(&mut dispatcher, 0, 500, |deferred| Observation {
        wakeups: if deferred { 3_000 } else { 0 },
        packets: if deferred { 9_000 } else { 5_000 },
        ..saturated()
    });
    assert_eq!(modes.iter().filter(|&&deferred| deferred).count(), 1);
}

#[test]
fn deferring_ends_when_what_it_lives_from_ends() {
    let deferred = || {
        let mut dispatcher = adaptive();
        run(&mut dispatcher, 0, 400, with_rates(1_000, 2_000));
        assert!(defers(dispatcher.rule()));
        dispatcher
    };
    let good = Observation {
        packets: 2_000,
        depth: 2_000,
        worker_awake: true,
        ..saturated()
    };
    let rows = [
        ("all as it was", good, true),
        (
            "others took the CPU",
            Observation {
                idle_cpus: 0,
                worker_awake: false,
                ..good
            },
            false,
        ),
        (
            "the worker sleeps between packets",
            Observation {
                wakeups: 20,
                ..good
            },
            false,
        ),
        (
            "a wakeup here and there",
            Observation {
                wakeups: 15,
                ..good
            },
            true,
        ),
        (
            "the load is gone",
            Observation {
                packets: 100,
                depth: 100,
                ..good
            },
            false,
        ),
        (
            "a quarter less",
            Observation {
                packets: 1_510,
                depth: 1_510,
                ..good
            },
            true,
        ),
    ];
    for (what, observation, stays) in rows {
        let mut dispatcher = deferred();
        // Less than three windows are noise.
        let early = run(&mut dispatcher, 400, 3, |_| observation);
        assert_eq!(early, [true; 3], "{what}");
        let later = run(&mut dispatcher, 403, 30, |_| observation);
        assert_eq!(later.last(), Some(&stays), "{what}");
    }
}

#[test]
fn a_load_that_changes_is_tried_again_soon() {
    let mut dispatcher = adaptive();
    // Deferring gains nothing for a minute: the trials are far apart by now.
    run(&mut dispatcher, 0, 70_000, with_rates(1_000, 1_000));
    assert!(!defers(dispatcher.rule()));
    // Then the load triples, and it would.
    let modes = run(&mut dispatcher, 70_000, 1_000, with_rates(3_000, 6_000));
    assert_eq!(modes.last(), Some(&true));
}

#[test]
fn the_budget_follows_the_costs_without_hunting() {
    let mut dispatcher = adaptive();
    let mut now = Instant::default();
    let mut budget = |drain_ns, wakeup_ns| {
        let observation = Observation {
            timed_packets: 1,
            timed_ns: drain_ns,
            wakeup_ns,
            idle_cpus: 0,
            ..saturated()
        };
        now = now.after(Duration::from_millis(2));
        dispatcher.observe(now, &observation);
        dispatcher.rule().budget()
    };
    assert_eq!(
        budget(200, 5_000),
        256,
        "nothing is known in the first call"
    );
    // 16 wakeups of 5 µs, in packets of so many nanoseconds.
    for (drain_ns, expected) in [
        (200, 256),
        (90, 256),
        (1_000, 256),
        (2_000, 64),
        (1_000, 64),
        (400, 256),
        (2_000, 64),
        (90, 256),
    ] {
        assert_eq!(budget(drain_ns, 5_000), expected, "{drain_ns}");
    }
    assert_eq!(budget(u64::MAX, 1), 64);
    assert_eq!(budget(1, u64::MAX), 256);
}

#[test]
fn trials_of_a_constant_load_get_rare() {
    let mut dispatcher = adaptive();
    let changes: Vec<u64> = (0..8)
        .map(|period| {
            let before = dispatcher.changes();
            run(&mut dispatcher, period * 16_384, 16_384, |_| saturated());
            dispatcher.changes() - before
        })
        .collect();
    // A trial after 17 ms, then one 0.5, 1, 2, 4, 8, 16, 32 and 64 s later, each there and back.
    assert_eq!(changes, [12, 2, 0, 2, 0, 0, 0, 2]);
}
