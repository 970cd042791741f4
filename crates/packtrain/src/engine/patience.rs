//! How long a thread that finds no space looks for it before it lets others run.

use crate::limits::BURST_PACKETS_MAX;
use crate::time::Instant;
use std::time::Duration;

/// How often a thread looks for space, and how long each time. Between two times it lets others
/// run, and after the last one it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Looks {
    pub(super) time: Duration,
    pub(super) times: u32,
}

impl Looks {
    /// Where it is not known how long a consumer that has a CPU takes to make space, or it takes
    /// less than this, or so long that it is better to sleep. To let other producers run, who find
    /// no space either, would be nothing but context switches: with 15 us four producers had 0.022
    /// for each frame on a TAP that takes 2 Mpps, and with this 0.004 to 0.008.
    pub(super) const SHORT: Self = Self {
        time: Duration::from_micros(25),
        times: 4,
    };
    const LONGEST: Duration = Duration::from_micros(250);

    /// As long as `expected` and half as long again, at least [`SHORT`](Self::SHORT) in all, and
    /// twice: the consumer may have to get a CPU.
    fn of(expected: Duration) -> Self {
        let time = expected + expected / 2;
        if time <= Self::SHORT.time || time > Self::LONGEST {
            return Self::SHORT;
        }
        let all = Self::SHORT.time * Self::SHORT.times;
        let times = all.as_nanos().div_ceil(time.as_nanos());
        Self {
            time,
            times: (times as u32).max(2),
        }
    }
}

/// How long the consumer of a queue takes to make space, as one of its producers finds out where it
/// has to wait: space comes when the consumer is done with as many as it takes at once. On a TAP
/// that takes 0.75 Mpps that is 85 us, and four producers that looked for 25 us had 0.028 context
/// switches for each frame; now 0.003.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When the time was taken, and packets that were taken from the ring by then.
    began: Option<(Instant, u64)>,
    looks: Option<Looks>,
}

impl Patience {
    /// Found out over so long at least, in which a consumer makes space again and again.
    const OVER: Duration = Duration::from_millis(1);

    /// How to look for space now. `taken`: packets that were taken from the ring since it was made,
    /// asked for once in a while.
    pub(super) fn looks(&mut self, now: Instant, taken: impl FnOnce() -> u64) -> Looks {
        let due = self
            .began
            .is_none_or(|(began, _)| now.since(began) >= Self::OVER);
        if due {
            let taken = taken();
            if let Some((began, before)) = self.began.replace((now, taken)) {
                // A time without packets is not known to be one of a slow device.
                let packets = u32::try_from(taken.wrapping_sub(before)).unwrap_or(u32::MAX);
                let expected = (now.since(began) * BURST_PACKETS_MAX as u32).checked_div(packets);
                self.looks = expected.map(Looks::of);
            }
        }
        self.looks.unwrap_or(Looks::SHORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn who_waits_looks_for_as_long_as_a_burst_takes_and_half_of_it() {
        for (packets_per_ms, us, times) in [
            (20_000, 25, 4),
            // 64 packets take 16.7 us, and 17.1.
            (3_841, 25, 4),
            (3_200, 30, 4),
            (1_280, 75, 2),
            (750, 127, 2),
            (384, 249, 2),
            // It would look for longer than is good for anybody.
            (383, 25, 4),
            (1, 25, 4),
            (0, 25, 4),
        ] {
            let mut patience = Patience::default();
            assert_eq!(patience.looks(at(5), || 7), Looks::SHORT, "not known");
            let looks = patience.looks(at(1_005), || 7 + packets_per_ms);
            let time = Duration::from_micros(looks.time.as_micros() as u64);
            let expected = (Duration::from_micros(us), times);
            assert_eq!((time, looks.times), expected, "{packets_per_ms} in 1 ms");
        }
    }

    #[test]
    fn it_is_found_out_anew_each_millisecond_and_not_asked_for_before() {
        let mut patience = Patience::default();
        let _first = patience.looks(at(0), || 0);
        let tap = patience.looks(at(1_000), || 750);
        assert!(tap > Looks::SHORT);
        assert_eq!(patience.looks(at(1_999), || unreachable!()), tap);
        assert_eq!(patience.looks(at(2_000), || 10_750), Looks::SHORT);
        assert_eq!(patience.looks(at(3_000), || 11_500), tap);
        // Nobody waited for a long time.
        assert_eq!(patience.looks(at(9_000_000), || 11_500), Looks::SHORT);
        assert_eq!(patience.looks(at(9_001_000), || 12_250), tap);
    }
}
