//! Waiting for a point in time.

use std::thread;
use std::time::{Duration, Instant};

/// The kernel ends an ordinary thread's sleep up to this much later than requested (timer slack,
/// `PR_SET_TIMERSLACK`).
const SLACK: Duration = Duration::from_micros(50);

/// How long a thread sleeps before it checks whether the run has to end.
const QUANTUM: Duration = Duration::from_millis(20);

/// The time of which a paced sender sends the packets back to back, unless it is given another.
const BURST_SECONDS: f64 = 100e-6;

/// How many of `rate` packets a second are sent back to back: those of 100 us, at least one.
pub(crate) fn usual_burst(rate: f64) -> u64 {
    (rate * BURST_SECONDS).max(1.0) as u64
}

/// How long a thread that waits for `at` may sleep; `None` if it is so close that the sleep might
/// end too late. For long waits in `ppoll` the kernel allows itself a half percent.
pub(crate) fn sleep_until(at: Instant, now: Instant) -> Option<Duration> {
    let left = at.saturating_duration_since(now);
    let sleep = left.saturating_sub(SLACK.max(left / 200));
    (!sleep.is_zero()).then_some(sleep)
}

/// Waits until `at`: sleeps first, then yields the CPU again and again. Returns the time, which is
/// earlier if `stopped` says so.
pub(crate) fn wait_until(at: Instant, stopped: impl Fn() -> bool) -> Instant {
    loop {
        let now = Instant::now();
        if now >= at || stopped() {
            return now;
        }
        match sleep_until(at, now) {
            Some(time) => thread::sleep(time.min(QUANTUM)),
            None => thread::yield_now(),
        }
    }
}

/// The times of bursts at a constant rate. A burst that is late goes out late, and never sooner
/// than half an interval after the one before it, so that the load catches up without larger
/// bursts.
#[derive(Debug)]
pub(crate) struct Pacer {
    start: Instant,
    /// Seconds from one burst to the next. A rounded time would add up over a run.
    interval: f64,
    bursts: u64,
    earliest: Instant,
}

impl Pacer {
    /// The first burst is at `start`, the others `interval` seconds apart.
    pub(crate) const fn new(start: Instant, interval: f64) -> Self {
        Self {
            start,
            interval,
            bursts: 0,
            earliest: start,
        }
    }

    /// When the next burst is due, late or not.
    pub(crate) fn due(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.interval * self.bursts as f64)
    }

    /// Waits for the next burst, or until `stopped`.
    pub(crate) fn wait(&mut self, stopped: impl Fn() -> bool) {
        let now = wait_until(self.next_at(), stopped);
        self.begin(now);
    }

    fn next_at(&self) -> Instant {
        self.due().max(self.earliest)
    }

    /// A burst goes out `now`.
    fn begin(&mut self, now: Instant) {
        self.bursts += 1;
        self.earliest = now + Duration::from_secs_f64(self.interval / 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_on_time_and_late_ones_keep_half_an_interval() {
        let half = Duration::from_millis(2);
        let start = Instant::now();
        // The first burst is late by so many halves of an interval.
        for (late, halves) in [(0, [0, 2, 4, 6, 8, 10]), (4, [4, 5, 6, 7, 8, 10])] {
            let mut pacer = Pacer::new(start, 2.0 * half.as_secs_f64());
            let times = halves.map(|_| {
                let now = pacer.next_at().max(start + late * half);
                pacer.begin(now);
                now
            });
            assert_eq!(times, halves.map(|halves| start + halves * half));
        }
        let at = start + half;
        assert!(wait_until(at, || false) >= at);
    }
}
