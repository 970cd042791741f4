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
        let now = wait_until(self.due().max(self.earliest), stopped);
        self.bursts += 1;
        self.earliest = now + Duration::from_secs_f64(self.interval / 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_burst_is_early_and_late_ones_keep_half_an_interval() {
        let interval = Duration::from_millis(2);
        let start = Instant::now();
        let mut pacer = Pacer::new(start, interval.as_secs_f64());
        thread::sleep(4 * interval);
        let mut next = || {
            pacer.wait(|| false);
            Instant::now()
        };
        let times: Vec<Instant> = (0..8).map(|_| next()).collect();
        for (burst, time) in (0..).zip(&times) {
            assert!(*time >= start + interval * burst);
        }
        // The last of them was due long before the first was sent.
        assert!(times[3] - times[0] >= 3 * interval / 2);
    }
}
