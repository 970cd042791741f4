use super::*;

/// What is decided in each turn of a load that pays for holding signals back, if the counters of
/// the queue begin at `base`.
fn decisions(base: u64) -> Vec<(Option<u32>, Option<Instant>, bool, u64)> {
    let mut throttle = Throttle::new(Moderation::Adaptive);
    let mut now = Instant::from_nanos(1_000_000);
    let (mut counts, mut wakeups) = ((base, base), base);
    throttle.settle(now, false, counts, wakeups);
    let mut trace = Vec::new();
    for turn in 0..1500 {
        let frames = throttle.sleep(wakeups);
        let until = throttle.held_until();
        // Every other time it is the clock that wakes the worker.
        if until.is_none() || turn % 2 == 0 {
            wakeups = wakeups.wrapping_add(1);
        }
        now = now.after(Duration::from_micros(100));
        throttle.resume(true);
        let bytes = 10_000 + 2_000 * throttle.changes();
        counts = (counts.0.wrapping_add(64), counts.1.wrapping_add(bytes));
        let counted = throttle.settle(now, true, counts, wakeups);
        throttle.settle(now, false, counts, wakeups);
        trace.push((frames, until, counted, throttle.changes()));
    }
    trace
}

/// mechanisms-linux.md 6.1, D8.
#[test]
fn counters_that_wrap_around_change_no_decision() {
    let expected = decisions(0);
    // A trace with something in it: up to the longest profile, and wake-ups of both kinds.
    assert_eq!(expected.last().unwrap().3, 4);
    assert!(expected.iter().any(|turn| turn.2) && expected.iter().any(|turn| turn.0.is_some()));
    // Bytes wrap at once, and packets and wake-ups soon, or in the middle of it.
    for before_the_end in [0, 1, 700, 40_000, 10_000_000] {
        let found = decisions(u64::MAX - before_the_end);
        assert!(found == expected, "{before_the_end}");
    }
}
