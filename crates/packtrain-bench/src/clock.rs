//! Time, and the conditions under which it is worth something.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::Instant;

/// What reading the clock twice in a row says, in nanoseconds: the least of many.
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
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { ns: 0, laps: 0 }
    }

    /// Runs `work` and adds its time, without the time during which another thread had the CPU:
    /// the time that the thread used is taken around it, and counts if it is less.
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

/// CPU time of the calling thread. Reading it is a system call: good for telling that a lap was
/// interrupted, too slow to measure one.
fn thread_ns() -> u128 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u128 * 1_000_000_000 + time.tv_nsec as u128
}

/// The last of the CPUs that this process may use: interrupts and other programs tend to be on the
/// first.
///
/// # Errors
///
/// What the kernel says to `sched_getaffinity(2)`.
pub fn last_cpu() -> io::Result<usize> {
    Ok(cpus()?.last().copied().unwrap_or(0))
}

/// The CPUs that this process may use.
///
/// # Errors
///
/// What the kernel says to `sched_getaffinity(2)`.
pub fn cpus() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    let cpus = 0..CpuSet::MAX_CPU;
    Ok(cpus.filter(|&cpu| allowed.is_set(cpu)).collect())
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
///
/// What the kernel says to `sched_setaffinity(2)`.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// How often the calling thread had to make way for another; `None` where the kernel does not say.
pub fn preemptions() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}
