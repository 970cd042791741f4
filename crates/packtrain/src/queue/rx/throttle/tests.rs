use super::*;

/// Packets that come at once, now and then: so one of them that is miscounted makes a difference.
/// On average they are 200 000 a second.
const LUMP: u64 = 200;
const LUMP_TURNS: u64 = 5;

/// What is decided in each turn of a load that pays for holding signals back, if the counters of
/// the queue begin with these packets, bytes and wake-ups.
fn decisions(packets: u64, bytes: u64, mut wakeups: u64) -> Vec<(Option<u32>, bool, u64)> {
    let mut throttle = Throttle::new(Moderation::Adaptive);
    let mut now = Instant::from_nanos(1_000_000);
    let mut counts = (packets, bytes);
    throttle.settle(now, false, counts, wakeups);
    let mut trace = Vec::new();
    for turn in 0..1500 {
        let frames = throttle.sleep(wakeups);
        // Every other time it is the clock that wakes the worker.
        if frames.is_none() || turn % 2 == 0 {
            wakeups = wakeups.wrapping_add(1);
        }
        now = now.after(Duration::from_micros(200));
        throttle.resume(true);
        if turn % LUMP_TURNS == LUMP_TURNS / 2 {
            let bytes = LUMP * (1000 + 200 * throttle.changes());
            counts = (counts.0.wrapping_add(LUMP), counts.1.wrapping_add(bytes));
        }
        let counted = throttle.settle(now, true, counts, wakeups);
        throttle.settle(now, false, counts, wakeups);
        trace.push((frames, counted, throttle.changes()));
    }
    trace
}

/// mechanisms-linux.md 6.1, D8.
#[test]
fn counters_that_wrap_around_change_no_decision() {
    let expected = decisions(0, 0, 0);
    // A trace with something in it: up to the longest profile, and wake-ups of both kinds.
    assert_eq!(expected.last().unwrap().2, 3);
    assert!(expected.iter().any(|turn| turn.1) && expected.iter().any(|turn| turn.0.is_some()));
    // Each wraps in front of each of the lumps in turn, and in the middle of it.
    for lump in 0..1500 / LUMP_TURNS {
        for part in [1, 2] {
            let packets = u64::MAX - lump * LUMP - LUMP / part / 2;
            let bytes = u64::MAX - lump * LUMP * 1000 - LUMP * 500 / part;
            let wakeups = u64::MAX - lump * LUMP_TURNS;
            for (packets, bytes, wakeups) in [(packets, 0, 0), (0, bytes, 0), (0, 0, wakeups)] {
                let found = decisions(packets, bytes, wakeups);
                assert!(found == expected, "{packets} {bytes} {wakeups}");
            }
        }
    }
}
