use super::*;
use std::time::Duration;

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

const fn seen(progress: u64) -> Seen {
    Seen {
        pending: true,
        progress,
        blocked: false,
    }
}

const IDLE: Seen = Seen {
    pending: false,
    progress: 0,
    blocked: false,
};

/// Rows of time in ms, observation, and verdict.
#[track_caller]
fn table(dog: &mut Watchdog, rows: &[(u64, Seen, Verdict)]) {
    for &(at, seen, verdict) in rows {
        assert_eq!(dog.observe(ms(at), seen), verdict, "at {at} ms: {seen:?}");
    }
}

#[test]
fn a_queue_without_work_is_never_hung() {
    let mut dog = Watchdog::default();
    dog.sleep(None);
    table(
        &mut dog,
        &[
            (0, IDLE, Verdict::Fine),
            (60_000, IDLE, Verdict::Fine),
            // Work after a long idle time has the full time.
            (60_000, seen(1), Verdict::Fine),
            (60_900, seen(1), Verdict::Fine),
        ],
    );
}

#[test]
fn a_hang_is_reported_once_and_again_after_progress() {
    let mut dog = Watchdog::default();
    table(
        &mut dog,
        &[
            (0, seen(1), Verdict::Fine),
            (999, seen(1), Verdict::Fine),
            (1000, seen(1), Verdict::Hung),
            (1001, seen(1), Verdict::Fine),
            (1500, seen(1), Verdict::Fine),
            (1600, seen(2), Verdict::Fine),
            (2599, seen(2), Verdict::CheckLost),
            (2600, seen(2), Verdict::Hung),
        ],
    );
}

#[test]
fn a_queue_that_waits_for_a_wake_up_polls_each_100_ms() {
    let mut dog = Watchdog::default();
    assert_eq!(dog.observe(ms(0), seen(1)), Verdict::Fine);
    assert!(!dog.poll_is_due(ms(5000)), "it does not wait");
    dog.sleep(Some(1));
    for (at, due) in [
        (99, false),
        (100, true),
        (101, false),
        (199, false),
        (200, true),
    ] {
        assert_eq!(dog.poll_is_due(ms(at)), due, "at {at} ms");
        assert_eq!(dog.observe(ms(at), seen(1)), Verdict::Fine);
    }
    assert_eq!(dog.poll_at(), ms(300));
    dog.wake();
    assert!(!dog.poll_is_due(ms(300)), "it was woken");
    dog.sleep(Some(1));
    assert_eq!(dog.observe(ms(250), seen(2)), Verdict::Fine);
    assert_eq!(dog.poll_at(), ms(350), "from the last progress");
}

#[test]
fn a_device_with_a_wire_at_fault_is_not_hung() {
    let mut dog = Watchdog::default();
    let blocked = Seen {
        blocked: true,
        ..seen(1)
    };
    let mut at = 0;
    for _ in 0..100 {
        at += 500;
        assert!(matches!(
            dog.observe(ms(at), blocked),
            Verdict::Fine | Verdict::CheckLost
        ));
    }
    // Its second starts afterwards.
    assert_ne!(dog.observe(ms(at + 999), seen(1)), Verdict::Hung);
    let later = [1000, 1001].map(|more| dog.observe(ms(at + more), seen(1)));
    assert!(later.contains(&Verdict::Hung), "{later:?}");
}

/// A process or a machine that was stopped for a while observes nothing.
#[test]
fn a_time_without_observations_does_not_count() {
    let mut dog = Watchdog::default();
    table(
        &mut dog,
        &[
            (0, seen(1), Verdict::Fine),
            (500, seen(1), Verdict::Fine),
            (5500, seen(1), Verdict::Fine),
            (6499, seen(1), Verdict::Fine),
            (6500, seen(1), Verdict::Hung),
            // A hang that was reported is not reported again after it.
            (60_000, seen(1), Verdict::Fine),
            (60_500, seen(1), Verdict::Fine),
            (61_000, seen(1), Verdict::Fine),
        ],
    );
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_delays_nothing() {
    let hour = 3_600_000;
    let mut dog = Watchdog::default();
    table(
        &mut dog,
        &[
            (0, seen(1), Verdict::Fine),
            (hour, seen(2), Verdict::Fine),
            (100, seen(2), Verdict::Fine),
        ],
    );
    dog.sleep(Some(1));
    assert_eq!(dog.poll_at(), ms(200));
    assert!(dog.poll_is_due(ms(200)));
    table(
        &mut dog,
        &[
            (200, seen(2), Verdict::Fine),
            (1050, seen(2), Verdict::Fine),
            (1100, seen(2), Verdict::Hung),
        ],
    );
    // It does not delay the check for lost completions either.
    let mut dog = Watchdog::default();
    dog.observe(ms(0), seen(1));
    dog.observe(ms(hour), seen(2));
    let later = [600, 1100, 1600].map(|at| dog.observe(ms(at), seen(at)));
    assert!(later.contains(&Verdict::CheckLost), "{later:?}");
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config {
        failure_persistence: None,
        ..Default::default()
    })]

    /// For any events at any times: a hang is reported by the first observation after the whole
    /// time with work and without progress, and only then.
    #[test]
    fn a_hang_is_a_whole_second_without_progress(
        steps in proptest::collection::vec((0..700_u64, 0..3_u8, proptest::bool::ANY), 1..200),
    ) {
        let mut dog = Watchdog::default();
        let (mut at, mut progress, mut still_since, mut reported) = (0, 1, None, false);
        for (wait, what, sleep) in steps {
            at += wait;
            match what {
                0 => progress += 1,
                1 => {}
                _ => {
                    proptest::prop_assert_eq!(dog.observe(ms(at), IDLE), Verdict::Fine);
                    (still_since, reported) = (None, false);
                    continue;
                }
            }
            if what == 0 || still_since.is_none() {
                (still_since, reported) = (Some(at), false);
            }
            dog.sleep(sleep.then_some(1));
            let is_hung = dog.observe(ms(at), seen(progress)) == Verdict::Hung;
            let still = Duration::from_millis(at - still_since.unwrap_or(at));
            proptest::prop_assert_eq!(is_hung, still >= TX_HUNG_AFTER && !reported);
            reported |= is_hung;
        }
    }
}
