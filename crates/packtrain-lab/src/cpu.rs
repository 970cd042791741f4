//! CPU time and context switches, by thread and by process (`getrusage(2)`).

use std::fs;
use std::num::NonZero;
use std::time::Duration;

use crate::error::LabError;
use crate::sys;

/// CPU time and context switches since the start of a thread or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel on behalf of the thread or process. Softirq work that interrupts some
    /// other thread is charged to that thread, so sums over a machine are exact, shares are not.
    pub system: Duration,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because its time slice ended or something more urgent ran.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Of the calling thread (`RUSAGE_THREAD`).
    pub fn of_thread() -> Self {
        sys::rusage_thread()
    }

    /// Of all threads of the process, ended ones included (`RUSAGE_SELF`).
    pub fn of_process() -> Self {
        sys::rusage_process()
    }

    /// User and system time together.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    /// The growth since `earlier`, a value taken from the same thread or process. Never negative:
    /// the kernel may shift time between user and system from one reading to the next.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self
                .voluntary_switches
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
        }
    }

    /// The sum of two usages, for adding up threads.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }
}

/// CPU time of all CPUs since the system started, whoever had it, time that a hypervisor took away
/// included; in clock ticks, which are 10 ms (`/proc/stat`).
///
/// # Errors
/// [`LabError`] when `/proc` is not mounted or says something else.
pub fn machine_busy() -> Result<Duration, LabError> {
    let text = fs::read_to_string("/proc/stat").map_err(LabError::from_io("read /proc/stat"))?;
    let ticks = busy_ticks(&text).ok_or(LabError::Answer("/proc/stat without CPU times"))?;
    Ok(Duration::from_millis(ticks.saturating_mul(TICK_MS)))
}

/// `USER_HZ` is 100 on every architecture of Linux in use.
const TICK_MS: u64 = 10;

/// The sum of the first line without idle and iowait; guest time is in user time already (proc(5)).
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields = line
        .split_whitespace()
        .map(|field| field.parse::<u64>().ok());
    let fields: Vec<u64> = fields.collect::<Option<_>>()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = *fields.first_chunk()?;
    Some(user + nice + system + irq + softirq + steal)
}

/// CPUs this process may run on (affinity mask and cgroup quota), at least 1.
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_thread_is_charged() {
        let start = Usage::of_thread();
        let clock = std::time::Instant::now();
        let mut x = 1u64;
        while Usage::of_thread().since(&start).cpu() < Duration::from_millis(20) {
            assert!(
                clock.elapsed() < Duration::from_secs(30),
                "no CPU time was charged"
            );
            for _ in 0..10_000 {
                x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005));
            }
        }
        let used = Usage::of_thread().since(&start).cpu();
        assert!(
            used <= clock.elapsed() + Duration::from_millis(10),
            "{used:?}"
        );
        assert!(Usage::of_process().cpu() + Duration::from_millis(10) >= used);
    }

    #[test]
    fn waiting_thread_switches_and_costs_little() {
        // In the best of many rounds: interrupts are charged to whoever they interrupt.
        let cheap = (0..100).any(|_| {
            let start = Usage::of_thread();
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let used = Usage::of_thread().since(&start);
            assert!(used.voluntary_switches >= 5, "{used:?}");
            used.cpu() < Duration::from_millis(10)
        });
        assert!(cheap, "waiting is charged as work");
    }

    #[test]
    fn busy_is_everything_but_idle_and_waiting() {
        let stat = "cpu  1 20 300 4000 50000 6 70 800 9000 10000\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), Some(1 + 20 + 300 + 6 + 70 + 800));
        for other in [
            "",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu  1 2 3",
            "cpu  1 2 3 x 5 6 7 8",
        ] {
            assert_eq!(busy_ticks(other), None, "{other}");
        }
        assert!(machine_busy().unwrap() > Duration::ZERO);
    }

    #[test]
    fn at_least_one_cpu() {
        assert!(count() >= 1);
    }
}
