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
    /// Where it is not known how long a consumer takes that has a CPU and makes space, or where
    /// that is less than this, or more than is worth looking for. To let other producers run, who
    /// find no space either, would be nothing but context switches: with 15 us four producers had
    /// 0.022 for each frame on a TAP that takes 2 Mpps, and with this 0.004 to 0.008.
    pub(super) const SHORT: Self = Self {
        time: Duration::from_micros(25),
        times: 4,
    };
    /// Whoever would have to look for longer is better off asleep.
    const LONGEST: Duration = Duration::from_micros(250);

    /// One and a half times as long as space is expected to take, in all as long as
    /// [`SHORT`](Self::SHORT) at least, and twice: the consumer may have to get a CPU. That where
    /// it is longer than one time of `SHORT`, and at most [`LONGEST`](Self::LONGEST); else `SHORT`.
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
/// has to wait again and again: space comes when the consumer is done with as many as it takes at
/// once. On a TAP that takes 0.75 Mpps that is 85 us, and four producers that looked for 25 us had
/// 0.020 to 0.028 context switches for each frame; now 0.003.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When the time was taken, and packets that were taken from the ring by then.
    began: Option<(Instant, u64)>,
    looks: Option<Looks>,
}

impl Patience {
    /// Found out over so long at least, in which a consumer makes space again and again.
    const OVER: Duration = Duration::from_millis(1);
    /// And at most: who did not have to wait for longer sends less than the consumer can take.
    const OVER_MAX: Duration = Duration::from_millis(32);

    /// How to look for space now. `taken`: packets that were taken from the ring since it was made;
    /// none where nobody makes space, as the device takes no more.
    pub(super) fn looks(&mut self, now: Instant, taken: Option<u64>) -> Looks {
        let Some(taken) = taken else {
            return Looks::SHORT;
        };
        let (began, before) = *self.began.get_or_insert((now, taken));
        let time = now.since(began);
        if time >= Self::OVER {
            self.began = Some((now, taken));
            let packets = u32::try_from(taken.wrapping_sub(before)).unwrap_or(u32::MAX);
            let expected = (time * BURST_PACKETS_MAX as u32).checked_div(packets);
            self.looks = expected.map(Looks::of).filter(|_| time <= Self::OVER_MAX);
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
        for (packets_per_ms, ns, times) in [
            (20_000, 25_000, 4),
            (3_841, 25_000, 4),
            (3_839, 25_006, 4),
            (3_200, 30_000, 4),
            (2_400, 39_999, 3),
            (1_280, 75_000, 2),
            (750, 127_999, 2),
            (384, 249_999, 2),
            // It would look for longer than is good for anybody.
            (383, 25_000, 4),
            (1, 25_000, 4),
            (0, 25_000, 4),
        ] {
            let mut patience = Patience::default();
            assert_eq!(patience.looks(at(5), Some(7)), Looks::SHORT, "not known");
            let looks = patience.looks(at(1_005), Some(7 + packets_per_ms));
            let expected = Looks {
                time: Duration::from_nanos(ns),
                times,
            };
            assert_eq!(looks, expected, "{packets_per_ms} in 1 ms");
        }
    }

    #[test]
    fn it_is_found_out_anew_by_who_waits_again_soon() {
        let mut patience = Patience::default();
        assert_eq!(patience.looks(at(0), Some(0)), Looks::SHORT);
        let tap = patience.looks(at(1_000), Some(750));
        assert!(tap > Looks::SHORT);
        assert_eq!(patience.looks(at(1_999), Some(10_000)), tap, "too soon");
        assert_eq!(patience.looks(at(2_000), Some(10_750)), Looks::SHORT);
        assert_eq!(patience.looks(at(3_000), Some(11_500)), tap);
        // The device takes no more, and then it does again.
        assert_eq!(patience.looks(at(3_010), None), Looks::SHORT);
        assert_eq!(patience.looks(at(3_020), Some(11_510)), tap);
        assert_eq!(patience.looks(at(35_000), Some(11_500 + 32 * 750)), tap);
        // As many each millisecond, but nobody had to wait for them.
        assert_eq!(
            patience.looks(at(67_001), Some(11_500 + 64 * 750)),
            Looks::SHORT
        );
        assert_eq!(patience.looks(at(68_001), Some(11_500 + 65 * 750)), tap);
    }
}
