use super::*;

/// Packets that arrive at once, twice in each sample of the policy: if one batch is miscounted, the
/// rates of that sample change by half.
const LUMP: u64 = 200;
const LUMP_TURNS: u64 = 32;
/// Turns after which the packets double in length, so that a search for a profile starts.
const SHORT_TURNS: u64 = 320;

/// The decisions of each turn, if the counters of the queue start at these packets, bytes and
/// wake-ups. Each change of the profile makes the packets longer, so the search continues.
fn decisions(packets: u64, bytes: u64, mut wakeups: u64) -> Vec<(Option<u32>, bool, u64)> {
    let mut throttle = Throttle::new(Moderation::Adaptive);
    let mut now = Instant::from_nanos(1_000_000);
    let mut counts = (packets, bytes);
    throttle.settle(now, false, counts, wakeups);
    let mut trace = Vec::new();
    for turn in 0..1500 {
        let frames = throttle.sleep(wakeups);
        // Every other delay ends by time.
        if frames.is_none() || turn % 2 == 0 {
            wakeups = wakeups.wrapping_add(1);
        }
        now = now.after(Duration::from_micros(200));
        throttle.resume(true);
        if turn % LUMP_TURNS == LUMP_TURNS / 2 {
            let bytes = if turn < SHORT_TURNS { 500 } else { 1000 };
            let bytes = LUMP * (bytes + 300 * throttle.changes());
            counts = (counts.0.wrapping_add(LUMP), counts.1.wrapping_add(bytes));
        }
        let counted = throttle.settle(now, true, counts, wakeups);
        throttle.settle(now, false, counts, wakeups);
        trace.push((frames, counted, throttle.changes()));
    }
    trace
}

#[test]
fn counters_that_wrap_around_change_no_decision() {
    let expected = decisions(0, 0, 0);
    // The trace reaches the longest profile, and has wake-ups of both kinds.
    assert_eq!(expected.last().unwrap().2, 4);
    assert!(expected.iter().any(|turn| turn.1) && expected.iter().any(|turn| turn.0.is_some()));
    // Each counter wraps before and within each lump.
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
