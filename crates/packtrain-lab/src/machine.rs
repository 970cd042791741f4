//! What the whole machine did: CPU time by state, context switches, interrupts between CPUs.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use crate::error::LabError;

/// CPU time and events of all CPUs since boot, from `/proc/stat`, `/proc/interrupts` and
/// `/proc/softirqs`. The difference of two is that of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// User mode, niced included.
    pub user: Duration,
    /// The kernel on behalf of threads.
    pub system: Duration,
    /// Softirqs, in which the network stack receives.
    pub softirq: Duration,
    /// Hardware interrupts.
    pub irq: Duration,
    /// Idle, waiting for I/O included.
    pub idle: Duration,
    /// Taken by the hypervisor.
    pub steal: Duration,
    /// Context switches.
    pub switches: u64,
    /// Interrupts that CPUs send each other: rescheduling and function calls (x86 only).
    pub ipis: u64,
    /// Runs of the softirq that receives packets (`NET_RX`).
    pub net_rx: u64,
}

impl Activity {
    /// Now. The kernel counts CPU time in ticks, of 10 ms as a rule.
    ///
    /// # Errors
    /// [`LabError::Os`] if `/proc` cannot be read.
    pub fn now() -> Result<Self, LabError> {
        let read = |path, what| fs::read_to_string(path).map_err(LabError::from_io(what));
        let mut activity =
            Self::of_stat(&read("/proc/stat", "/proc/stat")?, clock_ticks_per_second())
                .ok_or(LabError::Answer("/proc/stat"))?;
        let interrupts = read("/proc/interrupts", "/proc/interrupts")?;
        // The names of IPIs are those of the architecture; elsewhere there is no such line.
        activity.ipis = row(&interrupts, "RES:") + row(&interrupts, "CAL:");
        activity.net_rx = row(&read("/proc/softirqs", "/proc/softirqs")?, "NET_RX:");
        Ok(activity)
    }

    fn of_stat(text: &str, ticks: u64) -> Option<Self> {
        let line = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|line| line.split_whitespace().map_while(|word| word.parse().ok()))
        };
        let cpu: Vec<u64> = line("cpu ")?.collect();
        // user nice system idle iowait irq softirq steal: proc_stat(5).
        let time = |index: usize| {
            Some(Duration::from_nanos(
                cpu.get(index)? * (1_000_000_000 / ticks.max(1)),
            ))
        };
        Some(Self {
            user: time(0)? + time(1)?,
            system: time(2)?,
            idle: time(3)? + time(4)?,
            irq: time(5)?,
            softirq: time(6)?,
            steal: time(7)?,
            switches: line("ctxt ")?.next()?,
            ..Self::default()
        })
    }

    /// Time that CPUs were busy, without what the hypervisor took.
    pub fn busy(&self) -> Duration {
        self.user + self.system + self.softirq + self.irq
    }

    /// All time of all CPUs.
    pub fn total(&self) -> Duration {
        self.busy() + self.idle + self.steal
    }

    /// The share of all CPUs, in percent, that neither this process used (`own`), nor interrupts,
    /// nor idling: other programs, and the hypervisor. A run beside them is not to be judged.
    pub fn interference_percent(&self, own: Duration) -> f64 {
        let others = (self.user + self.system).saturating_sub(own) + self.steal;
        100.0 * others.as_secs_f64() / self.total().as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Sub for Activity {
    type Output = Self;

    /// The growth since an earlier reading. Never negative: the kernel may shift time from one
    /// state to another.
    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            irq: self.irq.saturating_sub(earlier.irq),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
            switches: self.switches.saturating_sub(earlier.switches),
            ipis: self.ipis.saturating_sub(earlier.ipis),
            net_rx: self.net_rx.saturating_sub(earlier.net_rx),
        }
    }
}

/// The sum over all CPUs of a row of `/proc/interrupts` or `/proc/softirqs`; 0 without the row.
fn row(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .map_or(0, |counts| {
            counts
                .split_whitespace()
                .map_while(|word| word.parse::<u64>().ok())
                .sum()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 400 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nctxt 77\n";

    #[test]
    fn the_kernels_ticks_are_times() {
        let activity = Activity::of_stat(STAT, 100).unwrap();
        assert_eq!(activity.user, Duration::from_millis(1200));
        assert_eq!(activity.system, Duration::from_millis(300));
        assert_eq!(activity.idle, Duration::from_millis(4050));
        assert_eq!(activity.softirq, Duration::from_millis(70));
        assert_eq!(activity.switches, 77);
        assert_eq!(activity.total(), Duration::from_millis(5760));
        assert_eq!(Activity::of_stat("cpu  1 2\nctxt 1\n", 100), None);
    }

    #[test]
    fn interference_is_what_others_used() {
        let run = Activity {
            user: Duration::from_millis(600),
            system: Duration::from_millis(300),
            softirq: Duration::from_millis(50),
            idle: Duration::from_millis(1000),
            steal: Duration::from_millis(50),
            ..Activity::default()
        };
        let near = |own, percent: f64| {
            let found = run.interference_percent(Duration::from_millis(own));
            assert!((found - percent).abs() < 1e-9, "{found}");
        };
        near(900, 2.5);
        near(400, 27.5);
    }

    #[test]
    fn rows_are_summed_over_cpus() {
        let text = "           CPU0       CPU1\n RES:  10  32  Rescheduling interrupts\n";
        assert_eq!(row(text, "RES:"), 42);
        assert_eq!(row(text, "CAL:"), 0);
    }

    #[test]
    fn a_busy_thread_is_in_the_machines_time() {
        let before = Activity::now().unwrap();
        let started = std::time::Instant::now();
        let own = crate::cpu::Usage::of_thread();
        while crate::cpu::Usage::of_thread().since(&own).cpu() < Duration::from_millis(200) {
            assert!(started.elapsed() < Duration::from_secs(60));
        }
        let run = Activity::now().unwrap() - before;
        // Two ticks of 10 ms may be missing at either end.
        assert!(run.busy() >= Duration::from_millis(150), "{run:?}");
    }
}
