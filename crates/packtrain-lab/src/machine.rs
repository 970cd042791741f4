//! What the machine did: CPU time by state, context switches, interrupts between CPUs.

use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cpus;
use crate::error::LabError;

/// CPU time of the CPUs that the process may use, and events of all CPUs, since boot, from
/// `/proc/stat` and `/proc/interrupts`. The difference of two is that of a run.
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
    /// CPU time of the kernel's own threads for softirqs; `None` if the process does not see them,
    /// as in a PID namespace.
    pub ksoftirqd: Option<Duration>,
    /// Context switches.
    pub switches: u64,
    /// Interrupts that CPUs send each other: rescheduling and function calls (x86 only).
    pub ipis: u64,
}

/// CPU time by state, in percent of all time of the CPUs; `None` if a run is shorter than a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuFigures {
    /// User mode.
    pub cpu_user_percent: Option<f64>,
    /// The kernel on behalf of threads.
    pub cpu_system_percent: Option<f64>,
    /// Softirqs.
    pub cpu_softirq_percent: Option<f64>,
    /// Idle.
    pub cpu_idle_percent: Option<f64>,
    /// All that is not idle.
    pub cpu_machine_percent: Option<f64>,
}

impl Activity {
    /// Now, of the CPUs that the calling thread may use. The kernel counts CPU time in ticks, of
    /// 10 ms as a rule.
    ///
    /// # Errors
    /// [`LabError::Os`] if `/proc` cannot be read.
    pub fn now() -> Result<Self, LabError> {
        let read = |path, what| fs::read_to_string(path).map_err(LabError::from_io(what));
        let stat = read("/proc/stat", "/proc/stat")?;
        let cpus = cpus::allowed()?;
        let mut activity = Self::of_stat(&stat, &cpus, clock_ticks_per_second())
            .ok_or(LabError::Answer("/proc/stat"))?;
        let interrupts = read("/proc/interrupts", "/proc/interrupts")?;
        // The names of IPIs are those of the architecture; elsewhere there is no such line.
        activity.ipis = row(&interrupts, "RES:") + row(&interrupts, "CAL:");
        activity.ksoftirqd = ksoftirqd(&cpus);
        Ok(activity)
    }

    /// The sum over `cpus`, which all have to be there.
    fn of_stat(text: &str, cpus: &[usize], ticks: u64) -> Option<Self> {
        let line = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|line| line.split_whitespace().map_while(|word| word.parse().ok()))
        };
        // user nice system idle iowait irq softirq steal: proc_stat(5).
        let mut times = [Duration::ZERO; 8];
        for cpu in cpus {
            let mut counts = line(&format!("cpu{cpu} "))?;
            for time in &mut times {
                let count: u64 = counts.next()?;
                *time += Duration::from_nanos(count * (1_000_000_000 / ticks.max(1)));
            }
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = times;
        Some(Self {
            user: user + nice,
            system,
            idle: idle + iowait,
            irq,
            softirq,
            steal,
            switches: line("ctxt ")?.next()?,
            ..Self::default()
        })
    }

    /// Time that the CPUs were busy, without what the hypervisor took.
    pub fn busy(&self) -> Duration {
        self.user + self.system + self.softirq + self.irq
    }

    /// All time of the CPUs.
    pub fn total(&self) -> Duration {
        self.busy() + self.idle + self.steal
    }

    /// `part` in percent of all time of the CPUs; `None` if it is shorter than a tick.
    pub fn percent(&self, part: Duration) -> Option<f64> {
        let total = self.total().as_secs_f64();
        (total > 0.0).then(|| 100.0 * part.as_secs_f64() / total)
    }

    /// The figures of a run's row: its CPU time by state, in percent of all time of the CPUs.
    /// `cpu_machine_percent` is what they were busy.
    pub fn figures(&self) -> CpuFigures {
        CpuFigures {
            cpu_user_percent: self.percent(self.user),
            cpu_system_percent: self.percent(self.system),
            cpu_softirq_percent: self.percent(self.softirq),
            cpu_idle_percent: self.percent(self.idle),
            cpu_machine_percent: self.percent(self.busy()),
        }
    }

    /// CPU time that other programs used and the hypervisor took beside this process, which used
    /// `own`. A run beside them is not to be judged.
    pub fn others(&self, own: Duration) -> Duration {
        self.others_of(own, softirqs_are_charged())
    }

    /// `own` has the softirqs that interrupted this process, unless the kernel accounts them apart.
    /// In `/proc/stat` they are never part of user and system.
    fn others_of(&self, own: Duration, softirqs_are_charged: bool) -> Duration {
        let threads = self.user + self.system;
        // Or it is more than all threads used.
        let includes_softirqs = softirqs_are_charged || own > threads + 2 * tick();
        // Those in the kernel's own threads are charged to no program.
        let used = match self.ksoftirqd {
            Some(kernel) if includes_softirqs => self.busy().saturating_sub(kernel),
            _ => threads,
        };
        used.saturating_sub(own) + self.steal
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
            ksoftirqd: (self.ksoftirqd.zip(earlier.ksoftirqd))
                .map(|(now, then)| now.saturating_sub(then)),
            switches: self.switches.saturating_sub(earlier.switches),
            ipis: self.ipis.saturating_sub(earlier.ipis),
        }
    }
}

/// The unit in which the kernel counts CPU time.
pub(crate) fn tick() -> Duration {
    Duration::from_secs(1) / u32::try_from(clock_ticks_per_second()).unwrap_or(100)
}

/// Whether the kernel is known to charge softirqs to the threads that they interrupt: it is built
/// without `CONFIG_IRQ_TIME_ACCOUNTING`, and so has no pressure of interrupts, which exists since
/// Linux 6.1. A kernel that is built with it may have it off.
fn softirqs_are_charged() -> bool {
    let is_there = |name| Path::new("/proc/pressure").join(name).exists();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    is_there("cpu") && !is_there("irq") && version(&release) >= Some((6, 1))
}

/// Major and minor version of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

/// CPU time of the kernel's threads for softirqs on `cpus`; `None` if there are none to see.
fn ksoftirqd(cpus: &[usize]) -> Option<Duration> {
    let threads = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let cpu = name.strip_prefix("ksoftirqd/")?.trim_end().parse().ok()?;
        let time = || fs::read_to_string(entry.path().join("schedstat")).ok();
        // The first number: nanoseconds on a CPU.
        let nanoseconds = (cpus.contains(&cpu).then(time)??.split(' ').next()?.parse()).ok()?;
        Some(Duration::from_nanos(nanoseconds))
    });
    threads.reduce(|sum, one| sum + one)
}

/// The sum over all CPUs of a row of `/proc/interrupts`; 0 without the row.
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

    /// The process may use the CPUs 1 and 10.
    const STAT: &str = "cpu  900 900 900 900 900 900 900 900 0 0\n\
                        cpu0 900 900 900 900 900 900 900 900 0 0\n\
                        cpu1 60 15 20 300 4 5 6 7 0 0\n\
                        cpu10 40 5 10 100 1 1 1 1 0 0\n\
                        ctxt 77\n";

    #[test]
    fn the_kernels_ticks_are_times_of_the_cpus_that_the_process_may_use() {
        let activity = Activity::of_stat(STAT, &[1, 10], 100).unwrap();
        assert_eq!(activity.user, Duration::from_millis(1200));
        assert_eq!(activity.system, Duration::from_millis(300));
        assert_eq!(activity.idle, Duration::from_millis(4050));
        assert_eq!(activity.softirq, Duration::from_millis(70));
        assert_eq!(activity.switches, 77);
        assert_eq!(activity.total(), Duration::from_millis(5760));
        assert_eq!(Activity::of_stat(STAT, &[1, 2], 100), None);
        assert_eq!(Activity::of_stat("cpu0 1 2\nctxt 1\n", &[0], 100), None);
    }

    #[test]
    fn states_are_in_percent_of_all_cpus_that_the_process_may_use() {
        // Two CPUs for a second.
        let run = Activity {
            user: Duration::from_millis(300),
            system: Duration::from_millis(700),
            softirq: Duration::from_millis(200),
            irq: Duration::from_millis(100),
            idle: Duration::from_millis(500),
            steal: Duration::from_millis(200),
            ..Activity::default()
        };
        let expected = CpuFigures {
            cpu_user_percent: Some(15.0),
            cpu_system_percent: Some(35.0),
            cpu_softirq_percent: Some(10.0),
            cpu_idle_percent: Some(25.0),
            cpu_machine_percent: Some(65.0),
        };
        assert_eq!(run.figures(), expected);
        assert_eq!(Activity::default().percent(Duration::ZERO), None);
    }

    /// Two CPUs for a second, of which other programs used 240 ms and the hypervisor took 50 ms.
    /// Softirqs interrupted this process for 400 ms, and the kernel's threads for 60 ms.
    const BESIDE_OTHERS: Activity = Activity {
        user: Duration::from_millis(600),
        system: Duration::from_millis(300),
        softirq: Duration::from_millis(460),
        irq: Duration::ZERO,
        idle: Duration::from_millis(590),
        steal: Duration::from_millis(50),
        ksoftirqd: Some(Duration::from_millis(60)),
        switches: 0,
        ipis: 0,
    };

    #[test]
    fn interference_is_what_others_used() {
        let others = Duration::from_millis(240 + 50);
        let [own, with_softirqs] = [660, 1060].map(Duration::from_millis);
        let run = BESIDE_OTHERS;
        assert_eq!(run.others_of(own, false), others);
        assert_eq!(run.others_of(with_softirqs, true), others);
        // More than user and system together: it includes softirqs.
        assert_eq!(run.others_of(with_softirqs, false), others);
        // If the kernel's threads are not seen, softirqs are left out.
        let unseen = Activity {
            ksoftirqd: None,
            ..run
        };
        assert_eq!(unseen.others_of(with_softirqs, true), run.steal);
        // Ticks and a thread's clock differ.
        let more = run.busy() + Duration::from_millis(9);
        assert_eq!(run.others_of(more, true), run.steal);
    }

    #[test]
    fn the_kernel_shows_what_it_charges_to_threads() {
        assert_eq!(version("6.18.44-fc\n"), Some((6, 18)));
        assert_eq!(version("5.4-rc1"), Some((5, 4)));
        assert_eq!(version("six"), None);
        if Path::new("/proc/pressure/irq").exists() {
            assert!(!softirqs_are_charged());
        }
        // A growing sum, if it is seen at all.
        let cpus = cpus::allowed().unwrap();
        let before = ksoftirqd(&cpus);
        assert!(ksoftirqd(&cpus) >= before);
        assert_eq!(ksoftirqd(&[]), None);
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
