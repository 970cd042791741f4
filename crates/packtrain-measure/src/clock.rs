//! Time, and the conditions for measuring it.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::Instant;

/// The time between two consecutive clock reads, in nanoseconds: the minimum of many.
pub fn overhead_ns() -> f64 {
    static OVERHEAD: OnceLock<f64> = OnceLock::new();
    *OVERHEAD.get_or_init(|| {
        let least = (0..20_000).map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos()
        });
        least.min().unwrap_or_default() as f64
    })
}

/// Adds up the laps of one sample.
#[derive(Debug, Default)]
pub struct Laps {
    ns: u128,
    laps: u64,
}

impl Laps {
    /// A stopwatch at zero.
    pub const fn new() -> Self {
        Self { ns: 0, laps: 0 }
    }

    /// Runs `work` and adds its time, without the time during which another thread had the CPU. It
    /// also reads the thread's CPU time around `work`, and uses the smaller of the two.
    #[inline]
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let used = thread_ns();
        let start = Instant::now();
        let result = work();
        let elapsed = start.elapsed().as_nanos();
        self.ns += elapsed.min(thread_ns() - used);
        self.laps += 1;
        result
    }

    /// Nanoseconds for each of `units`, the clock's own time subtracted.
    pub fn per(&self, units: u64) -> f64 {
        let ns = self.ns as f64 - self.laps as f64 * overhead_ns();
        ns.max(0.0) / units.max(1) as f64
    }
}

/// CPU time of the calling thread. Reading it is a system call: it shows that a lap was
/// interrupted, but is too slow to measure one.
fn thread_ns() -> u128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

/// The last of the CPUs that this process may use: interrupts and other programs tend to run on the
/// first.
///
/// # Errors
///
/// The error of `sched_getaffinity(2)`.
pub fn last_cpu() -> io::Result<usize> {
    Ok(cpus()?.last().copied().unwrap_or(0))
}

/// The CPUs that this process may use.
///
/// # Errors
///
/// The error of `sched_getaffinity(2)`.
pub fn cpus() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    let cpus = 0..CpuSet::MAX_CPU;
    Ok(cpus.filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// Pins the calling thread to one CPU.
///
/// # Errors
///
/// The error of `sched_setaffinity(2)`.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Preemptions of the calling thread; `None` if the kernel does not report them.
pub fn preemptions() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}
