use super::*;
use proptest::prelude::*;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

#[test]
fn settings_are_written_as_they_are_read() {
    for text in [
        "off",
        "fixed(0,1)",
        "fixed(50,64)",
        "fixed(10000,4096)",
        "adaptive",
    ] {
        assert_eq!(text.parse::<Moderation>().unwrap().to_string(), text);
    }
    assert_eq!(Moderation::default(), Moderation::Adaptive);
}

#[test]
fn errors_state_what_is_wrong_and_what_to_write() {
    for (text, why) in [
        ("on", "'on' is not known"),
        ("off(1)", "'off(1)' has arguments, but 'off' takes none"),
        ("fixed", "'fixed' lacks the arguments of 'fixed'"),
        ("fixed(50)", "'fixed(50)' lacks one of usecs and frames"),
        (
            "fixed(10001,1)",
            "'fixed(10001,1)' has '10001' for usecs, which is a number from 0 to 10000",
        ),
        (
            "fixed(1,0)",
            "'fixed(1,0)' has '0' for frames, which is a number from 1 to 4096",
        ),
        (
            "fixed(1,2,3)",
            "'fixed(1,2,3)' has '2,3' for frames, which is a number from 1 to 4096",
        ),
        (
            "fixed(1, 2)",
            "'fixed(1, 2)' has ' 2' for frames, which is a number from 1 to 4096",
        ),
    ] {
        let error = text.parse::<Moderation>().unwrap_err().to_string();
        let write = "write off, fixed(usecs,frames) with usecs from 0 to 10000 and frames from 1 \
                     to 4096, or adaptive";
        assert_eq!(error, format!("moderation {why}; {write}"));
    }
}

fn observation(bytes: u64, packets: u64, events: u64) -> Observation {
    Observation {
        packets,
        bytes,
        events,
    }
}

#[test]
fn fixed_settings_ignore_observations() {
    let fixed = Moderation::Fixed {
        usecs: 50,
        frames: 7,
    };
    for (setting, expected) in [
        (Moderation::Off, Profile::IMMEDIATE),
        (fixed, Profile::new(50, 7)),
    ] {
        let mut moderator = Moderator::new(setting);
        let mut now = Instant::default();
        for k in 0..100 {
            now = now.after(MS);
            let seen = observation(1000 + 1000 * (k % 2), 1000, 1000);
            assert_eq!(moderator.observe(now, &seen), expected);
        }
        assert_eq!((moderator.profile(), moderator.changes()), (expected, 0));
    }
}

/// The bytes, packets and wake-ups of a millisecond, by the number of the decision and the profile.
type Load = fn(u64, usize) -> (u64, u64, u64);

/// DIM as the kernel starts it: at the second profile, and with a reference of zero.
fn kernel() -> Dim {
    Dim {
        profile: 1,
        reference: Some(Rates::default()),
        ..Dim::new()
    }
}

/// Feeds one decision for each millisecond. Each entry is the profile and the state after it: `P`
/// parked, `r` and `l` going right and left.
fn trace(mut dim: Dim, load: Load, decisions: usize) -> String {
    let mut now = Instant::default();
    dim.observe(now, &Observation::NONE);
    let mut trace = Vec::new();
    for k in 0..decisions {
        let (bytes, packets, events) = load(k as u64, dim.profile);
        now = now.after(MS);
        dim.observe(now, &observation(bytes, packets, events));
        let state = match dim.tune {
            Tune::Parked => 'P',
            Tune::Right => 'r',
            Tune::Left => 'l',
        };
        trace.push(format!("{}{state}", dim.profile));
    }
    trace.join(" ")
}

/// A load that grows by 20 % with each profile.
const RISING: [u64; 5] = [1000, 1200, 1440, 1728, 2073];

const LOADS: [(&str, Load); 7] = [
    ("constant", |_, _| (1000, 1000, 1000)),
    ("longer is better", |_, ix| (RISING[ix], 1000, 1000)),
    ("shorter is better", |_, ix| (RISING[4 - ix], 1000, 1000)),
    ("a peak in the middle", |_, ix| {
        ([800, 1000, 1300, 1000, 800][ix], 1000, 1000)
    }),
    ("fewer wake-ups", |_, ix| {
        (1000, 1000, [1000, 800, 600, 450, 300][ix])
    }),
    ("every other sample doubles", |k, _| {
        (2000 - k % 2 * 1000, 1000, 1000)
    }),
    // Not significant from one sample to the next.
    ("10 % more each time", |k, _| {
        let k = k as u32;
        (1000 * 11_u64.pow(k) / 10_u64.pow(k), 1000, 1000)
    }),
];

/// The traces of the rules of `net_dim.c`, from the state in which the kernel starts. The first and
/// the last would rest and search again; here the search is parked, and a difference that adds up
/// beyond 10 % starts the next one.
#[test]
fn the_kernel_s_start_gives_the_kernel_s_traces() {
    let expected = [
        "0l 1r 0l 1r 0l 1r 0l 1r 0l 1r 1P 1P 1P 1P",
        "0l 1r 2r 3r 4r 4P 4P 4P 4P 4P 4P 4P 4P 4P",
        "0l 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P",
        "0l 1r 2r 3r 2l 2P 2P 2P 2P 2P 2P 2P 2P 2P",
        "0l 1r 2r 3r 4r 4P 4P 4P 4P 4P 4P 4P 4P 4P",
        "0l 1r 2r 1l 1P 0l 0P 1r 2r 1l 1P 0l 0P 1r",
        "0l 1r 0l 1r 0l 1r 0l 1r 0l 1r 1P 1P 0l 1r",
    ];
    for ((what, load), expected) in LOADS.iter().zip(expected) {
        assert_eq!(trace(kernel(), *load, 14), expected, "{what}");
    }
}

/// With the first sample as the reference, only a load that changes by itself starts a search.
#[test]
fn the_first_sample_is_the_reference() {
    let parked = ["0P"; 14].join(" ");
    let expected = [
        &*parked,
        &parked,
        &parked,
        &parked,
        &parked,
        "0P 1r 2r 1l 1P 0l 0P 1r 2r 1l 1P 0l 0P 1r",
        "0P 0P 1r 0l 1r 0l 1r 0l 1r 0l 1r 0l 0P 0P",
    ];
    for ((what, load), expected) in LOADS.iter().zip(expected) {
        assert_eq!(trace(Dim::new(), *load, 14), expected, "{what}");
    }
}

/// A load that doubles once: the search finds the best profile and stays there.
#[test]
fn a_change_of_the_load_starts_one_search() {
    let rows: [(&str, Load, &str); 4] = [
        (
            "fewer wake-ups are better",
            |k, ix| {
                (
                    if k < 2 { 500 } else { 1000 },
                    1000,
                    [1000, 800, 600, 450, 300][ix],
                )
            },
            "0P 0P 1r 2r 3r 4r 4P 4P 4P 4P 4P 4P 4P 4P 4P 4P",
        ),
        (
            "no profile is better",
            |k, _| (if k < 2 { 500 } else { 1000 }, 1000, 1000),
            "0P 0P 1r 0l 1r 0l 1r 0l 1r 0l 1r 0l 0P 0P 0P 0P",
        ),
        (
            "a burst of one sample",
            |k, _| (if k == 2 { 5000 } else { 1000 }, 1000, 1000),
            "0P 0P 1r 0l 1r 0l 1r 0l 1r 0l 1r 0l 0P 0P 0P 0P",
        ),
        (
            "jitter of 10 %",
            |k, _| {
                (
                    1000 + k * 7 % 5 * 25,
                    1000 + k * 3 % 4 * 33,
                    1000 - k % 3 * 50,
                )
            },
            "0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P 0P",
        ),
    ];
    for (what, load, expected) in rows {
        assert_eq!(trace(Dim::new(), load, 16), expected, "{what}");
    }
}

/// `net_dim_decision`, row by row: state, profile, and the steps ahead, behind and in all; then how
/// the sample compares with the reference; then the same five afterwards.
#[test]
fn every_transition_is_that_of_net_dim() {
    use Comparison::{Better, Same, Worse};
    use Tune::{Left, Parked, Right};
    type At = (Tune, usize, u8, u8, u8);
    let rows: [(At, Comparison, At); 18] = [
        // Parked: anything but the same starts a search, to the left if there is a left.
        ((Parked, 2, 0, 0, 0), Same, (Parked, 2, 0, 0, 0)),
        ((Parked, 2, 0, 0, 0), Better, (Left, 1, 1, 0, 1)),
        ((Parked, 2, 0, 0, 0), Worse, (Left, 1, 1, 0, 1)),
        ((Parked, 0, 0, 0, 0), Worse, (Right, 1, 1, 0, 1)),
        ((Parked, 4, 0, 0, 0), Better, (Left, 3, 1, 0, 1)),
        // A better sample continues in the same direction, up to the edge.
        ((Right, 1, 1, 0, 1), Better, (Right, 2, 2, 0, 2)),
        ((Left, 2, 1, 0, 1), Better, (Left, 1, 2, 0, 2)),
        ((Right, 4, 3, 0, 3), Better, (Parked, 4, 0, 0, 0)),
        ((Left, 0, 3, 0, 3), Better, (Parked, 0, 0, 0, 0)),
        // Anything else turns, and forgets older steps in the new direction.
        ((Right, 1, 1, 5, 1), Same, (Left, 0, 1, 1, 2)),
        ((Right, 3, 3, 0, 3), Worse, (Left, 2, 1, 3, 4)),
        ((Left, 1, 1, 5, 1), Same, (Right, 2, 1, 1, 2)),
        ((Left, 0, 1, 0, 1), Worse, (Right, 1, 1, 1, 2)),
        // One step back over the best profile ends the search, unless it was worse.
        ((Left, 2, 1, 3, 4), Better, (Parked, 2, 0, 0, 0)),
        ((Right, 2, 1, 3, 4), Better, (Parked, 2, 0, 0, 0)),
        ((Right, 2, 1, 3, 4), Worse, (Left, 1, 1, 1, 5)),
        // The tenth step ends it as well.
        ((Right, 1, 1, 1, 9), Same, (Left, 0, 1, 1, 10)),
        ((Left, 0, 1, 1, 10), Same, (Parked, 0, 0, 0, 0)),
    ];
    let reference = Rates {
        bytes: 1000,
        packets: 1000,
        events: 1000,
    };
    for (before, compared, after) in rows {
        let (tune, profile, ahead, behind, steps) = before;
        let mut dim = Dim {
            profile,
            tune,
            ahead,
            behind,
            steps,
            reference: Some(reference),
            ..Dim::new()
        };
        let bytes = match compared {
            Worse => 800,
            Same => 1000,
            Better => 1200,
        };
        dim.decide(&Rates { bytes, ..reference });
        let found = (dim.tune, dim.profile, dim.ahead, dim.behind, dim.steps);
        assert_eq!(found, after, "{before:?} {compared:?}");
    }
}

/// `net_dim_stats_compare`: bytes before packets before wake-ups, each only above 10 %.
#[test]
fn samples_are_compared_as_net_dim_does() {
    use Comparison::{Better, Same, Worse};
    let base = (1000, 1000, 1000);
    for (current, before, expected) in [
        (base, base, Same),
        // 10.9 % is 10 in integers.
        ((1109, 1109, 891), base, Same),
        ((891, 891, 1109), base, Same),
        ((1110, 500, 5000), base, Better),
        ((890, 5000, 1), base, Worse),
        ((1000, 1110, 5000), base, Better),
        ((1000, 890, 1), base, Worse),
        ((1000, 1000, 1110), base, Worse),
        ((1000, 1000, 890), base, Better),
        // Beside zero.
        ((0, 0, 5000), (0, 0, 64), Same),
        ((1, 0, 5000), (0, 0, 64), Better),
        ((0, 5000, 1), (0, 1000, 64), Same),
        ((1000, 1, 1), (1000, 0, 1000), Better),
        ((1000, 0, 1), (1000, 0, 1000), Same),
        ((1000, 1000, 64), (1000, 1000, 0), Same),
        ((u64::MAX, 0, 0), (1, 0, 0), Better),
    ] {
        let rates = |(bytes, packets, events)| Rates {
            bytes,
            packets,
            events,
        };
        let found = rates(current).compare(&rates(before));
        assert_eq!(found, expected, "{current:?} {before:?}");
    }
}

#[test]
fn a_sample_needs_64_wake_ups_and_some_time() {
    let at = |us| Instant::default().after(Duration::from_micros(us));
    let observe = |moderator: &mut Moderator, us, bytes, events| {
        moderator.observe(at(us), &observation(bytes, 1000, events))
    };
    let mut moderator = Moderator::new(Moderation::Adaptive);
    observe(&mut moderator, 0, 0, 0);
    observe(&mut moderator, 1000, 1000, 64);
    // Twice the bytes, but one wake-up less than a sample has.
    assert_eq!(observe(&mut moderator, 2000, 4000, 63), Profile::IMMEDIATE);
    assert_eq!(observe(&mut moderator, 3000, 0, 1), PROFILES[1]);

    let mut moderator = Moderator::new(Moderation::Adaptive);
    observe(&mut moderator, 0, 0, 0);
    observe(&mut moderator, 1000, 1000, 64);
    for bytes in 0..100 {
        // The clock stopped.
        assert_eq!(
            observe(&mut moderator, 1000, bytes * 1000, 64),
            Profile::IMMEDIATE
        );
    }
    // The clock goes back, and runs on from there.
    observe(&mut moderator, 10, 9000, 64);
    assert_eq!(observe(&mut moderator, 1010, 9000, 64), PROFILES[1]);
    assert_eq!(moderator.changes(), 1);
}

#[test]
fn a_worker_that_never_sleeps_starts_no_search() {
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let mut now = Instant::default();
    for k in 0..1000 {
        now = now.after(MS);
        moderator.observe(now, &observation(1000 * k, k, 0));
    }
    assert_eq!(moderator.changes(), 0);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), Just(u64::MAX), 0..5_000_u64, any::<u64>()]
}

proptest! {
    #[test]
    fn no_observation_and_no_clock_breaks_a_bound(
        steps in prop::collection::vec(
            (number(), number(), number(), any::<u64>(), any::<bool>()),
            1..200,
        ),
    ) {
        let mut moderator = Moderator::new(Moderation::Adaptive);
        let (mut now, mut changes) = (0_u64, 0);
        for (packets, bytes, events, time, jumps) in steps {
            now = if jumps { time } else { now.saturating_add(time % 40_000_000) };
            let before = moderator.profile();
            let seen = Observation { packets, bytes, events };
            let profile = moderator.observe(Instant::from_nanos(now), &seen);
            let at = |profile| PROFILES.iter().position(|&each| each == profile).unwrap();
            prop_assert!(at(profile).abs_diff(at(before)) <= 1);
            changes += u64::from(profile != before);
            prop_assert_eq!(moderator.changes(), changes);
        }
    }

    /// Samples that differ from the first one by 10 % at most.
    #[test]
    fn equal_loads_change_nothing(
        base in (100..1_u64 << 40, 100..1_u64 << 40, 100..1_u64 << 40),
        samples in prop::collection::vec((-10..=10_i64, -10..=10_i64, -10..=10_i64), 1..100),
    ) {
        let mut moderator = Moderator::new(Moderation::Adaptive);
        let mut now = Instant::default();
        moderator.observe(now, &Observation::NONE);
        let near = |count: u64, percent: i64| {
            count.saturating_add_signed(count as i64 / 100 * percent)
        };
        for (bytes, packets, events) in [(0, 0, 0)].into_iter().chain(samples) {
            now = now.after(Duration::from_secs(1));
            let (bytes, packets) = (near(base.0, bytes), near(base.1, packets));
            moderator.observe(now, &observation(bytes, packets, near(base.2, events)));
        }
        prop_assert_eq!(moderator.changes(), 0);
    }

    /// From any sample on, and for any effect of the profiles on the load, a search ends after ten
    /// steps, and the next one needs another difference.
    #[test]
    fn a_search_has_ten_steps_at_most(
        samples in prop::collection::vec((number(), number(), number()), 1..300),
    ) {
        let mut dim = kernel();
        let mut steps = 0;
        for (bytes, packets, events) in samples {
            let before = dim.profile;
            dim.decide(&Rates { bytes, packets, events });
            steps = if before == dim.profile { 0 } else { steps + 1 };
            prop_assert!(steps <= 10);
        }
    }
}
