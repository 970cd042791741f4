//! CPU time and context switches, by thread and by process (`getrusage(2)`).

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// CPU time and context switches since the start of a thread or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel on behalf of the thread or process. A softirq is charged to the thread
    /// that it interrupts, so sums over a machine are exact, and shares are not.
    pub system: Duration,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because its time slice ended or a thread of higher priority ran.
    pub involuntary_switches: u64,
}

impl Usage {
    /// The usage of the calling thread (`RUSAGE_THREAD`).
    pub fn of_thread() -> Self {
        Self::of(UsageWho::RUSAGE_THREAD)
    }

    /// The usage of all threads of the process, also of ended ones (`RUSAGE_SELF`).
    pub fn of_process() -> Self {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// The usage of all child processes that have ended and were waited for (`RUSAGE_CHILDREN`).
    pub fn of_children() -> Self {
        Self::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(who: UsageWho) -> Self {
        // It cannot fail for the three above.
        let usage = getrusage(who).expect("a valid argument");
        let time = |t: TimeVal| Duration::from_micros(t.num_microseconds().unsigned_abs());
        Self {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            voluntary_switches: usage.voluntary_context_switches().unsigned_abs(),
            involuntary_switches: usage.involuntary_context_switches().unsigned_abs(),
        }
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

/// The CPU time of the kernel threads that receive the packets of an interface (`threaded` of its
/// NAPI contexts), by their process numbers. Their names have that of the interface and nothing of
/// its namespace, so those of equal names elsewhere are among them.
pub(crate) fn napi_threads(interface: &str) -> BTreeMap<u32, Duration> {
    let prefix = format!("napi/{interface}-");
    let mut threads = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        // A process may end meanwhile.
        let read = |file| fs::read_to_string(path.join(file)).ok();
        let number = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number) = number
            && read("comm").is_some_and(|name| name.starts_with(&prefix))
            && let Some(cpu) = read("schedstat").as_deref().and_then(time_on_cpu)
        {
            threads.insert(number, cpu);
        }
    }
    threads
}

/// The first number of a thread's `schedstat` (proc(5)).
fn time_on_cpu(schedstat: &str) -> Option<Duration> {
    let ns = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
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
    fn waiting_thread_switches_and_is_not_charged() {
        let (clock, start) = (std::time::Instant::now(), Usage::of_thread());
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let used = Usage::of_thread().since(&start);
        assert!(used.voluntary_switches >= 5, "{used:?}");
        // The kernel rounds user and system time, each to a microsecond.
        let most = clock.elapsed() - Duration::from_micros(9_990);
        assert!(used.cpu() <= most, "{used:?} of {most:?}");
    }
}
