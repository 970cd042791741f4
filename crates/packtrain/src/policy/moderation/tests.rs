mod arrivals;

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
fn settings_are_refused_with_what_why_and_what_to_do() {
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

#[test]
fn fixed_settings_stay_whatever_is_observed() {
    let fixed = Moderation::Fixed {
        usecs: 50,
        frames: 7,
    };
    let signal = Signal {
        usecs: 50,
        frames: 7,
    };
    for (setting, expected) in [(Moderation::Off, Signal::NOW), (fixed, signal)] {
        let mut moderator = Moderator::new(setting);
        let (_, last) = decisions(&mut moderator, 100, |_, _| (1000, 1000, 1000));
        assert_eq!((last, moderator.changes()), (expected, 0));
    }
}

/// As many decisions, one for each millisecond, with what happens in it by decision and profile:
/// bytes, packets, signals. Returns the profiles in the order in which they came, and the last
/// signal.
fn decisions(
    moderator: &mut Moderator,
    count: u64,
    mut load: impl FnMut(u64, usize) -> (u64, u64, u64),
) -> (Vec<usize>, Signal) {
    let mut now = Instant::default();
    let mut signal = moderator.observe(now, &Observation::default());
    let mut profiles = vec![profile(signal)];
    for k in 0..count {
        let (bytes, packets, events) = load(k, profile(signal));
        now = now.after(MS);
        let seen = Observation {
            packets,
            bytes,
            events,
        };
        signal = moderator.observe(now, &seen);
        if profiles.last() != Some(&profile(signal)) {
            profiles.push(profile(signal));
        }
    }
    (profiles, signal)
}

fn profile(signal: Signal) -> usize {
    PROFILES
        .iter()
        .position(|&usecs| usecs == signal.usecs)
        .unwrap_or(0)
}

/// mechanisms-linux.md 6.1, D1 to D7, with the trace that is wanted here instead of DIM's.
#[test]
fn dims_loads() {
    type Load = fn(u64, usize) -> (u64, u64, u64);
    const RISING: [u64; 5] = [1000, 1200, 1440, 1728, 2073];
    let rows: [(&str, Load, &[usize]); 10] = [
        // DIM: 0 1 0 1 0 1 ... for good.
        ("D1 constant", |_, _| (1000, 1000, 1000), &[0, 1, 0]),
        (
            "D2 longer is better",
            |_, ix| (RISING[ix], 1000, 1000),
            &[0, 1, 2, 3, 4],
        ),
        // What took something away is tried twice.
        (
            "D3 shorter is better",
            |_, ix| (RISING[4 - ix], 1000, 1000),
            &[0, 1, 0, 1, 0],
        ),
        (
            "D4 a peak",
            |_, ix| ([800, 1000, 1300, 1000, 800][ix], 1000, 1000),
            &[0, 1, 2, 3, 2, 3, 2],
        ),
        (
            "D5 fewer signals",
            |_, ix| (1000, 1000, [1000, 800, 600, 450, 300][ix]),
            &[0, 1, 2, 3, 4],
        ),
        // DIM goes up and down with it without end.
        (
            "D6 twice the bytes every other time",
            |k, _| (2000 - k % 2 * 1000, 1000, 1000),
            &[0, 1, 0],
        ),
        (
            "fewer signals, but they were few already",
            |_, ix| (1000, 1000, [7, 6, 5, 4, 3][ix]),
            &[0, 1, 0],
        ),
        // Gaps of 22 us: 8 us put no two packets together, nor do 16 or 32.
        (
            "45 kpps, each a signal",
            |_, ix| (45_000, 45, [45, 45, 45, 31, 16][ix]),
            &[0, 4],
        ),
        // Of 14 us.
        (
            "70 kpps, each a signal",
            |_, ix| (70_000, 70, [70, 70, 62, 31, 16][ix]),
            &[0, 3, 4],
        ),
        (
            "200 kpps, each a signal",
            |_, ix| (200_000, 200, [200, 125, 62, 31, 16][ix]),
            &[0, 2, 3, 4],
        ),
    ];
    for (what, load, expected) in rows {
        let mut moderator = Moderator::new(Moderation::Adaptive);
        let (profiles, _) = decisions(&mut moderator, 20_000, load);
        assert_eq!(profiles, expected, "{what}");
    }
}

/// A worker that is never asleep has nobody wake it: what it takes varies, and no profile is why.
#[test]
fn without_signals_there_is_nothing_to_search() {
    let varies = |k: u64| 1000 * (1 + k / 200 % 7);
    let mut moderator = Moderator::new(Moderation::Adaptive);
    for few in [0, 1] {
        let load = |k: u64, _| {
            (
                60 * varies(k),
                varies(k),
                u64::from(k.is_multiple_of(5)) * few,
            )
        };
        let (profiles, _) = decisions(&mut moderator, 60_000, load);
        assert_eq!((profiles, moderator.changes()), (vec![0], 0), "{few}");
    }
    // As soon as it sleeps there is.
    let gains = |ix: usize| [1000, 800, 600, 450, 300][ix];
    let (profiles, _) = decisions(&mut moderator, 2000, |_, ix| (1000, 1000, gains(ix)));
    assert_eq!(profiles, [0, 1, 2, 3, 4]);
    // And when it does so no more, it ends where nothing is held back.
    let load = |k: u64, _| (60 * varies(k), varies(k), 0);
    let (_, last) = decisions(&mut moderator, 60_000, load);
    assert_eq!(last, Signal::NOW);
    let before = moderator.changes();
    decisions(&mut moderator, 60_000, load);
    assert_eq!(moderator.changes(), before);
}

/// Under the longest profile the worker has not slept for a while; then it does again, and holding
/// back makes the load smaller.
#[test]
fn a_time_without_signals_leaves_no_profile_behind() {
    const RATES: [u64; 5] = [160, 130, 100, 80, 62];
    for between in [60, 200, 10_000] {
        for kpps in [35, 60, 90, 300, 1000] {
            let mut moderator = Moderator::new(Moderation::Adaptive);
            let gains = |ix: usize| [1000, 800, 600, 450, 300][ix];
            decisions(&mut moderator, 2000, |_, ix| (1_000_000, 1000, gains(ix)));
            assert_eq!(profile(moderator.signal()), 4);
            decisions(&mut moderator, between, |_, _| (1000 * kpps, kpps, 0));
            let waits = |_, ix: usize| {
                let signals = [160, 60, 30, 20, 14][ix];
                (1000 * RATES[ix], RATES[ix], signals)
            };
            let (_, last) = decisions(&mut moderator, 60_000, waits);
            assert_eq!(last, Signal::NOW, "{between} ms of {kpps} kpps");
        }
    }
}

/// Of five slices only one has signals: what is tried first comes as soon as in other loads.
#[test]
fn signals_in_some_slices_are_signals() {
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let bursts = |k: u64, _| (200_000, 200, if k % 20 < 4 { 200 } else { 0 });
    let (profiles, _) = decisions(&mut moderator, 1_000, bursts);
    assert!(profiles.len() > 1, "{profiles:?}");
}

/// D7: 10 % more in each decision is not significant, and goes on for 60 decisions.
#[test]
fn a_load_that_grows_never_makes_it_hop() {
    let mut bytes = 1000;
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let (profiles, _) = decisions(&mut moderator, 60, |_, _| {
        bytes = bytes * 11 / 10;
        (bytes, 1000, 1000)
    });
    assert!(profiles.is_sorted(), "{profiles:?}");
}

/// D9.
#[test]
fn decides_nothing_from_too_little() {
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let seen = |events| Observation {
        packets: 1_000_000,
        bytes: 1_000_000_000,
        events,
    };
    let at = |us| Instant::default().after(Duration::from_micros(us));
    moderator.observe(at(0), &seen(0));
    for k in 1..20 {
        // Sure of the load after four slices, and of what it is after four more.
        moderator.observe(at(k * 1_000), &seen(9));
        assert_eq!(moderator.signal(), Signal::NOW);
    }
    // In no time at all there are no rates.
    let mut moderator = Moderator::new(Moderation::Adaptive);
    for _ in 0..100 {
        moderator.observe(at(5), &seen(64));
        assert_eq!(moderator.signal(), Signal::NOW);
    }
}

#[test]
fn latency_comes_first_when_load_is_light() {
    // Packets of a millisecond, beginning at the longest profile and at none; then the profile.
    for (packets, from_top, from_none) in [(1, 0, 0), (31, 0, 0), (32, 4, 0), (39, 4, 0)] {
        let mut moderator = Moderator::new(Moderation::Adaptive);
        let better_by = |ix: usize, base: u64| base * (10 + 2 * ix as u64);
        decisions(&mut moderator, 1000, |_, ix| {
            (better_by(ix, 100), 1000, 1000)
        });
        assert_eq!(profile(moderator.signal()), 4);
        let mut now = Instant::default().after(Duration::from_millis(1000));
        // A load that is a little less than the limit takes a second, and one of nothing 20 ms.
        for _ in 0..if packets < 16 { 24 } else { 2_500 } {
            now = now.after(MS);
            let seen = Observation {
                packets,
                bytes: packets * 1500,
                events: [64, 64, 64, 31, 16][profile(moderator.signal())],
            };
            moderator.observe(now, &seen);
        }
        assert_eq!(profile(moderator.signal()), from_top, "{packets}");

        let mut moderator = Moderator::new(Moderation::Adaptive);
        let load = |_, ix| (better_by(ix, packets), packets, 64);
        let (profiles, _) = decisions(&mut moderator, 1_000, load);
        assert_eq!(profiles, [from_none], "{packets}");
    }
}

/// Senders that wait for answers: holding back signals makes the load itself smaller.
#[test]
fn what_the_profile_did_to_the_load_is_not_taken_for_the_load() {
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let load = |_, ix: usize| [(1000, 50, 1000), (2000, 50, 500), (200, 10, 100)][ix.min(2)];
    let (profiles, _) = decisions(&mut moderator, 10_000, load);
    // Twice, since it may have been the load all the same.
    assert_eq!(profiles, [0, 1, 4, 0, 1, 4, 0]);
}

#[test]
fn goes_back_down_when_the_load_falls() {
    let mut moderator = Moderator::new(Moderation::Adaptive);
    let (profiles, _) = decisions(&mut moderator, 1_000, |k, ix| {
        if k < 500 {
            (1000 + 200 * ix as u64, 1000, 1000)
        } else {
            (500, 50, 8)
        }
    });
    // With 20 us between packets nothing shorter is any better than none.
    assert_eq!(profiles, [0, 1, 2, 3, 4, 0]);
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), Just(u64::MAX), 0..5_000_u64, any::<u64>()]
}

proptest! {
    /// Whatever each profile does to a load that is otherwise constant: the search ends.
    #[test]
    fn a_constant_load_never_makes_it_hop(
        loads in prop::collection::vec((number(), number(), number()), 5),
    ) {
        let mut moderator = Moderator::new(Moderation::Adaptive);
        // A load near the limit of a light one takes a second to be told from it, and what a step
        // took away is tried once more.
        decisions(&mut moderator, 4_000, |_, ix| loads[ix]);
        let before = moderator.changes();
        // Its clock begins anew, which must not matter either.
        decisions(&mut moderator, 2_000, |_, ix| loads[ix]);
        prop_assert_eq!(moderator.changes(), before);
    }

    #[test]
    fn no_observation_and_no_clock_breaks_it(
        steps in prop::collection::vec(
            (number(), number(), number(), any::<u64>(), any::<bool>()),
            1..200,
        ),
    ) {
        let mut moderator = Moderator::new(Moderation::Adaptive);
        let mut now = 0_u64;
        for (packets, bytes, events, time, jumps) in steps {
            now = if jumps { time } else { now.saturating_add(time % 40_000_000) };
            let seen = Observation { packets, bytes, events };
            let signal = moderator.observe(Instant::from_nanos(now), &seen);
            prop_assert!(signal.usecs <= PROFILES[TOP]);
            prop_assert!((1..=FRAMES).contains(&signal.frames));
            prop_assert_eq!(signal.usecs == 0, signal.frames == 1);
        }
    }
}
