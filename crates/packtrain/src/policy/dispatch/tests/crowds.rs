//! What the adaptive dispatcher does where producers are in each other's way.

use super::trials::{MS, adaptive, at, defers, run, saturated, takes_turns};
use super::*;

/// Producers in each other's way, and no CPU for the worker: what is sent, by whether they take
/// turns. Less where it is deferred.
fn contended(in_turns: u64) -> impl FnMut(Rule) -> Observation {
    move |rule| {
        let packets = match rule {
            _ if takes_turns(rule) => in_turns,
            _ if defers(rule) => 900,
            _ => 1_000,
        };
        Observation {
            packets,
            depth: packets,
            enqueues: 1_000,
            contended: 200,
            producers: 4,
            idle_cpus: 0,
            ..saturated()
        }
    }
}

#[test]
fn producers_that_contend_take_turns() {
    let share = |mut observe: Box<dyn FnMut(Rule) -> Observation>| {
        let mut dispatcher = adaptive();
        let rules = (0..20_000).map(|ms| {
            let seen = observe(dispatcher.rule());
            dispatcher.observe(at(ms), &seen)
        });
        rules.filter(|rule| takes_turns(*rule)).count()
    };
    assert!(share(Box::new(contended(1_200))) >= 19_600);
    let trials = share(Box::new(contended(1_000)));
    assert!((1..=400).contains(&trials), "{trials}");
    let mut alone = contended(1_200);
    let alone = move |rule| Observation {
        contended: 0,
        ..alone(rule)
    };
    assert_eq!(share(Box::new(alone)), 0);
    // Who wakes the worker for every few packets has nothing from it.
    let mut sleepy = contended(1_200);
    let sleepy = move |rule| Observation {
        wakeups: 100,
        ..sleepy(rule)
    };
    let trials = share(Box::new(sleepy));
    assert!((1..=20).contains(&trials), "{trials}");
}

/// Whether a producer drains only what has gathered.
fn gathers(rule: Rule) -> bool {
    rule.counts_depth()
}

/// Two producers in each other's way: what is sent, by whether packets gather. Less in turns, and
/// where it is deferred.
fn gathering(sent: u64) -> impl FnMut(Rule) -> Observation {
    move |rule| {
        let packets = match rule {
            _ if gathers(rule) => sent,
            _ if defers(rule) || takes_turns(rule) => 900,
            _ => 1_000,
        };
        // Who drains what has gathered has turns of 64.
        let turns = if gathers(rule) { packets / 64 } else { 800 };
        Observation {
            packets,
            depth: packets,
            enqueues: turns + 200,
            contended: 200,
            producers: 2,
            idle_cpus: 0,
            ..saturated()
        }
    }
}

#[test]
fn packets_of_producers_that_contend_gather() {
    let share = |ring, observe: &mut dyn FnMut(Rule) -> Observation| {
        let mut dispatcher = Dispatcher::new(Dispatch::Adaptive, ring);
        let rules = (0..20_000).map(|ms| {
            let seen = observe(dispatcher.rule());
            dispatcher.observe(at(ms), &seen)
        });
        rules.filter(|rule| gathers(*rule)).count()
    };
    assert!(share(RING, &mut gathering(1_200)) >= 19_000);
    let trials = share(RING, &mut gathering(1_000));
    assert!((1..=400).contains(&trials), "{trials}");
    // A ring in which nothing else would have space.
    assert_eq!(share(255, &mut gathering(1_200)), 0);
    let mut world = gathering(1_200);
    let mut changed = |change: fn(&mut Observation)| {
        share(RING, &mut |rule| {
            let mut seen = world(rule);
            change(&mut seen);
            seen
        })
    };
    assert_eq!(changed(|seen| seen.producers = 1), 0);
    assert_eq!(changed(|seen| seen.contended = 0), 0);
    assert_eq!(
        changed(|seen| seen.depth = 500_000),
        0,
        "the device is full"
    );
    // Who wakes the worker for every few packets has nothing from it.
    let trials = changed(|seen| seen.wakeups = 100);
    assert!((1..=20).contains(&trials), "{trials}");
}

/// Of a device that takes long for each packet a budget is half of what gathers: each drain would
/// end in asking for the worker, since no producer sees as much again before as many more came.
#[test]
fn who_drains_may_drain_as_many_as_gather() {
    let mut world = gathering(1_200);
    let mut dispatcher = adaptive();
    for ms in 0..1_000 {
        let mut seen = world(dispatcher.rule());
        (seen.timed_packets, seen.timed_ns) = (100, 100 * 1_900);
        seen.wakeup_ns = 5_000;
        dispatcher.observe(at(ms), &seen);
    }
    let rule = dispatcher.rule();
    assert!(gathers(rule));
    let drains = |depth| {
        rule.ask(Sight {
            seen: Seen::Asked,
            depth,
            batch: 1,
        })
    };
    let least = (1..=512).find(|depth| drains(*depth).drain).unwrap();
    assert!(drains(least).budget >= least, "{least}: {rule:?}");
}

#[test]
fn packets_gather_only_as_long_as_producers_contend() {
    let lone = |seen: &mut Observation| seen.contended = 0;
    let last = |seen: &mut Observation| seen.producers = 1;
    let slow = |seen: &mut Observation| (seen.packets, seen.depth) = (500, 500);
    let sleepy = |seen: &mut Observation| seen.wakeups = 20;
    type Change = fn(&mut Observation);
    let rows: [(&str, Change); 4] = [
        ("nobody else sends", lone),
        ("there is nobody else", last),
        ("it sends less than half", slow),
        ("the worker is woken for each few packets", sleepy),
    ];
    for (what, change) in rows {
        let mut dispatcher = adaptive();
        let mut world = gathering(1_200);
        let mut observe = |from: u64, to: u64, changed: bool| {
            for ms in from..to {
                let mut seen = world(dispatcher.rule());
                if changed {
                    change(&mut seen);
                }
                dispatcher.observe(at(ms), &seen);
            }
            gathers(dispatcher.rule())
        };
        assert!(observe(0, 1_000, false));
        assert!(observe(1_000, 1_003, true), "{what}: that may be chance");
        assert!(!observe(1_003, 1_005, true), "{what}");
    }
}

/// With more producers than CPUs, one of them has a CPU for itself now and then, and then sends
/// twice as much as two that contend, whatever the dispatch.
#[test]
fn a_producer_that_runs_alone_is_no_measure_for_those_that_contend() {
    for (in_turns, expected) in [(1_200, true), (900, false)] {
        let mut dispatcher = adaptive();
        let mut together = contended(in_turns);
        let rules: Vec<_> = (0..20_000_u64)
            .map(|ms| {
                let mut seen = together(dispatcher.rule());
                if ms < 10 || ms % 5 == 0 {
                    (seen.packets, seen.depth, seen.contended) = (2_000, 2_000, 0);
                }
                dispatcher.observe(at(ms), &seen)
            })
            .collect();
        let turns = rules.iter().filter(|rule| takes_turns(**rule)).count();
        let share = if expected { turns } else { 20_000 - turns };
        assert!(share >= 19_500, "{in_turns}: {share} of 20000");
    }
    // When they contend no more, there are no turns to take.
    let mut dispatcher = adaptive();
    let mut observe = contended(1_200);
    let mut in_turns = |from: u64, to: u64, contended: bool| {
        for ms in from..to {
            let mut seen = observe(dispatcher.rule());
            if !contended {
                seen.contended = 0;
            }
            dispatcher.observe(at(ms), &seen);
        }
        takes_turns(dispatcher.rule())
    };
    assert!(in_turns(0, 1_000, true));
    assert!(in_turns(1_000, 1_003, false), "that may be chance");
    assert!(!in_turns(1_003, 1_005, false));
}

/// Where a CPU is free as well, both taking turns and deferring are tried.
#[test]
fn what_may_pay_is_tried_alternately() {
    let mut dispatcher = adaptive();
    let [mut in_turns, mut deferred] = [0, 0];
    for ms in 0..5_000 {
        let observation = Observation {
            contended: 3_000,
            producers: 2,
            ..saturated()
        };
        let rule = dispatcher.observe(at(ms), &observation);
        in_turns += u32::from(takes_turns(rule));
        deferred += u32::from(defers(rule));
    }
    assert!(in_turns > 0 && deferred > 0, "{in_turns} {deferred}");
}

/// The first one need not wait for long, nor another one for the first one's next turn.
#[test]
fn all_are_tried_at_the_beginning() {
    let mut dispatcher = adaptive();
    let seen: Vec<_> = (0..85)
        .map(|ms| {
            let observation = Observation {
                contended: 3_000,
                producers: 2,
                ..saturated()
            };
            dispatcher.observe(at(ms), &observation)
        })
        .collect();
    assert!(seen.iter().any(|rule| takes_turns(*rule)));
    assert!(seen.iter().any(|rule| gathers(*rule)));
    assert!(seen.iter().any(|rule| defers(*rule)));
}

/// Whoever paces a load goes on doing so: not each way is asked about anew, until one of the times
/// does not look steady.
#[test]
fn of_a_load_that_once_was_steady_every_first_trial_comes_later() {
    let mut dispatcher = adaptive();
    let mut first = None;
    for ms in 0..1_000 {
        let noise = u64::saturating_sub(ms, 13) / 2 * (MS / 100);
        let seen = Observation {
            contended: 3_000,
            producers: 2,
            ..saturated()
        };
        let rule = dispatcher.observe(Instant::from_nanos(ms * MS + noise), &seen);
        first = first.or((rule != Rule::direct(BUDGET)).then_some(ms));
    }
    assert!(matches!(first, Some(512..560)), "{first:?}");
}

/// What was not like the others, and so is compared with nothing, was sent all the same.
#[test]
fn a_load_is_as_steady_where_one_producer_was_away() {
    for away in 0..8 {
        let mut dispatcher = adaptive();
        let mut first = None;
        for ms in 0..1_000 {
            let (packets, contended) = match (ms + 8 - away) % 8 {
                0 => (2_500, 0),
                1 => (7_500, 3_000),
                _ => (5_000, 3_000),
            };
            let seen = Observation {
                packets,
                depth: packets,
                contended,
                producers: 2,
                ..saturated()
            };
            let rule = dispatcher.observe(Instant::from_nanos(ms * MS), &seen);
            first = first.or((rule != Rule::direct(BUDGET)).then_some(ms));
        }
        assert!(matches!(first, Some(512..560)), "{away}: {first:?}");
    }
}

/// While a producer drains a ring's worth it makes nothing of its own.
#[test]
fn turns_that_take_long_are_not_tried() {
    for (drain_ns, expected) in [(1_900, true), (2_000, false)] {
        let mut dispatcher = adaptive();
        let mut observe = contended(1_200);
        let turns = (0..5_000).any(|ms| {
            let seen = Observation {
                timed_packets: 1,
                timed_ns: drain_ns,
                ..observe(dispatcher.rule())
            };
            takes_turns(dispatcher.observe(at(ms), &seen))
        });
        assert_eq!(turns, expected, "{drain_ns} ns");
    }
    // Nor those of a ring that holds no more than a budget.
    let mut dispatcher = Dispatcher::new(Dispatch::Adaptive, 128);
    let mut observe = contended(1_200);
    for ms in 0..5_000 {
        let seen = observe(dispatcher.rule());
        let rule = dispatcher.observe(at(ms), &seen);
        assert!(defers(rule) || gathers(rule) || rule == Rule::direct(BUDGET));
    }
}

/// One producer contends with the worker only.
#[test]
fn one_producer_takes_no_turns() {
    for (producers, expected) in [(1, false), (2, true)] {
        let mut dispatcher = adaptive();
        let mut observe = contended(1_200);
        let turns = (0..5_000).any(|ms| {
            let seen = Observation {
                producers,
                ..observe(dispatcher.rule())
            };
            let rule = dispatcher.observe(at(ms), &seen);
            takes_turns(rule)
        });
        assert_eq!(turns, expected, "{producers}");
    }
}

/// Producers that contend send more or less as the scheduler goes: what is tried is compared with
/// the time before and the time after, and one of both may be good.
#[test]
fn a_lucky_time_before_or_after_decides_nothing() {
    for lucky in [3..12, 21..30] {
        let mut dispatcher = adaptive();
        let mut observe = contended(1_200);
        for ms in 0..60_u64 {
            let mut seen = observe(dispatcher.rule());
            if dispatcher.rule() == Rule::direct(BUDGET) && lucky.contains(&ms) {
                (seen.packets, seen.depth) = (1_300, 1_300);
            }
            dispatcher.observe(at(ms), &seen);
        }
        assert!(takes_turns(dispatcher.rule()), "{lucky:?}");
    }
}

/// Where several producers contend, a worker that is deferred to was at work before.
#[test]
fn among_many_deferring_has_no_time_to_become_better() {
    for (contended, producers, expected) in
        [(700, 2, 1 + 8), (700, 1, 1 + 8 + 8 + 8), (0, 2, 4 + 8 + 3)]
    {
        let mut dispatcher = adaptive();
        let modes = run(&mut dispatcher, 0, 500, |deferred| {
            let packets = if deferred { 900 } else { 1_000 };
            Observation {
                packets,
                depth: packets,
                enqueues: 1_000,
                contended,
                producers,
                worker_awake: true,
                ..saturated()
            }
        });
        let count = modes.iter().filter(|&&is| is).count();
        assert_eq!(count, expected, "{contended} in 1000 of {producers}");
    }
}
