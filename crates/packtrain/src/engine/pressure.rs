//! Who else wants the CPU of a worker, and what a halt costs it: what the policy of idling is told.

use super::sys::{THREAD_USAGE_SYSCALLS, thread_usage};
use crate::policy::idle::{Pressure, SPIN_MAX};
use crate::time::Instant;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Of so much of its time a worker may wait for its CPU, before somebody else is taken to want it.
/// A thread that sleeps and is woken waits a little each time, on an idle machine too.
const WAITING_SHARE: u64 = 8;
/// Longer halts are not worth to be told apart: nobody spins for that long.
const HALT_MAX: Duration = SPIN_MAX;

/// Looks for one worker, on its thread.
#[derive(Debug)]
pub(super) struct Gauge {
    /// `/proc/thread-self/schedstat`, where the kernel has it.
    schedstat: Option<File>,
    last: Option<Reading>,
    halt_ns: u64,
}

/// What the kernel says of a thread at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    at: Instant,
    involuntary: u64,
    /// Time that it could have run and waited for a CPU; `None` where nobody counts it.
    delay_ns: Option<u64>,
}

impl Reading {
    /// What has happened since `before`.
    fn since(&self, before: &Self) -> Pressure {
        let time = self.at.since(before.at).as_nanos();
        let delay = self.delay_ns.zip(before.delay_ns);
        let waited = delay.map_or(0, |(now, before)| now.saturating_sub(before));
        let waiting = u128::from(waited) * u128::from(WAITING_SHARE) > time;
        Pressure {
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            waiting: u32::from(waiting),
            ..Pressure::UNKNOWN
        }
    }
}

/// The second number of `schedstat` (Documentation/scheduler/sched-stats.rst).
fn delay(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

impl Gauge {
    /// For the calling thread.
    pub(super) fn new() -> Self {
        Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            last: None,
            halt_ns: 0,
        }
    }

    /// What there is to know now, and the system calls that it took to ask. What happened before
    /// the first look is nobody's fault.
    pub(super) fn look(&mut self, now: Instant) -> (Pressure, u64) {
        let mut text = [0; 64];
        let read = self
            .schedstat
            .as_ref()
            .map(|file| file.read_at(&mut text, 0));
        let delay_ns = match read {
            Some(Ok(bytes)) => str::from_utf8(&text[..bytes]).ok().and_then(delay),
            Some(Err(_)) | None => None,
        };
        let reading = Reading {
            at: now,
            involuntary: thread_usage().involuntary_switches,
            delay_ns,
        };
        let before = self.last.replace(reading).unwrap_or(reading);
        let pressure = Pressure {
            halt_ns: std::mem::take(&mut self.halt_ns),
            ..reading.since(&before)
        };
        let syscalls = THREAD_USAGE_SYSCALLS + u64::from(self.schedstat.is_some());
        (pressure, syscalls)
    }

    /// Nobody has looked for a while: what happened before the next look is nobody's fault.
    pub(super) const fn forget(&mut self) {
        self.last = None;
    }

    /// A sleep has ended so much later than it was meant to: that is what it takes to come back.
    pub(super) fn came_back(&mut self, late: Duration) {
        self.halt_ns = late.min(HALT_MAX).as_nanos().max(1) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::take_priority;
    use crate::engine::sys::{affinity, bind_to};
    use crate::policy::idle::{Idle, Idler, Relief, Room, Wait};
    use crate::policy::priority::Priority;
    use crate::time::{Clock, MonotonicClock};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn waiting_is_what_takes_a_good_part_of_the_time() {
        let reading = |ms: u64, involuntary, delay_us: Option<u64>| Reading {
            at: Instant::from_nanos(ms * 1_000_000),
            involuntary,
            delay_ns: delay_us.map(|us| us * 1000),
        };
        for (before, after, expected) in [
            (reading(0, 5, Some(7)), reading(10, 5, Some(7)), (0, 0)),
            (reading(0, 5, Some(7)), reading(10, 6, Some(7)), (1, 0)),
            // An eighth of 10 ms.
            (reading(0, 0, Some(0)), reading(10, 0, Some(1250)), (0, 0)),
            (reading(0, 0, Some(0)), reading(10, 0, Some(1251)), (0, 1)),
            (reading(0, 0, None), reading(10, 3, None), (3, 0)),
            (reading(0, 0, None), reading(10, 0, Some(9999)), (0, 0)),
            // Counts that go back, and no time at all.
            (reading(9, 9, Some(9)), reading(9, 0, Some(0)), (0, 0)),
        ] {
            let pressure = after.since(&before);
            assert_eq!(
                (pressure.involuntary, pressure.waiting),
                expected,
                "{after:?}"
            );
        }
        assert_eq!(delay("12 34 56\n"), Some(34));
        for text in ["", "12", "12 x 3"] {
            assert_eq!(delay(text), None);
        }
    }

    #[test]
    fn a_halt_is_told_once_and_never_as_longer_than_anybody_spins() {
        let mut gauge = Gauge::new();
        let mut halt = |late: Option<Duration>| {
            late.into_iter().for_each(|late| gauge.came_back(late));
            gauge.look(Instant::from_nanos(1)).0.halt_ns
        };
        assert_eq!(halt(None), 0);
        assert_eq!(halt(Some(Duration::from_micros(7))), 7_000);
        assert_eq!(halt(None), 0);
        assert_eq!(halt(Some(Duration::ZERO)), 1);
        assert_eq!(
            halt(Some(Duration::from_secs(1))),
            SPIN_MAX.as_nanos() as u64
        );
    }

    /// A worker that spins, and another thread that has as much to do on the same CPU: the worker
    /// finds that out and stops spinning, as `idle=adaptive` promises, also where it goes ahead of
    /// the other one (as far as this test may). Nothing but this CPU is contended, and the policy
    /// is told that there is room.
    #[test]
    fn a_spinning_worker_gives_way_to_who_wants_its_cpu() {
        for priority in [Priority::None, Priority::Auto] {
            assert_eq!(spins_beside_another(priority), Duration::ZERO, "{priority}");
        }
    }

    /// How long a worker would spin in the end, at most, that has met another busy thread.
    fn spins_beside_another(priority: Priority) -> Duration {
        const PATIENCE: Duration = Duration::from_secs(60);
        let cpu = *affinity().unwrap().as_slice().last().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind_to(&[cpu]).unwrap();
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let worker = scope.spawn(|| {
                bind_to(&[cpu]).unwrap();
                take_priority(priority, Idle::Adaptive).unwrap();
                let room = Room {
                    cores: 8,
                    workers: 1,
                    producers: None,
                };
                let mut idler = Idler::new(Idle::Adaptive, room);
                let mut gauge = Gauge::new();
                assert!(!idler.spin_bound().is_zero(), "it may spin");
                let clock = MonotonicClock::new();
                let start = clock.now();
                let mut look_due = start;
                // As the shell does, with work each time that it would sleep.
                while !idler.spin_bound().is_zero() && clock.now().since(start) < PATIENCE {
                    let now = clock.now();
                    let mut pressure = Pressure::UNKNOWN;
                    if now >= look_due {
                        pressure = gauge.look(now).0;
                        look_due = now.after(Duration::from_millis(10));
                    }
                    if idler.idle(now, &pressure, Relief::None) == Wait::Halt {
                        idler.busy(now);
                    }
                }
                let bound = idler.spin_bound();
                done.store(true, Ordering::Relaxed);
                bound
            });
            worker.join().unwrap()
        })
    }
}
