//! What a forwarder has used since its start.

use std::fs;
use std::time::Duration;

use packtrain::engine::Snapshot;

/// What the forwarder has used and moved since its start. Without a forwarder of its own (veth,
/// bridge) everything is 0: the kernel's work is charged to the threads of the hosts.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// CPU time of all its threads.
    pub cpu: Duration,
    /// Its threads.
    pub threads: usize,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because the scheduler took the CPU.
    pub involuntary_switches: u64,
    /// packtrain's own counters. Wake-ups, system calls and batches are there.
    pub packtrain: Option<Box<Snapshot>>,
}

impl Used {
    /// CPU time and context switches of all threads of a process since their start, from `/proc`. A
    /// thread that has ended is not counted, so a process that has ended has used nothing.
    pub fn of_process(pid: u32) -> Self {
        let mut used = Self::default();
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return used;
        };
        for thread in threads.flatten() {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let (scheduled, status) = (read("schedstat"), read("status"));
            let switches = |name| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|rest| rest.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            used.cpu += cpu_time(&scheduled);
            used.threads += 1;
            used.voluntary_switches += switches("voluntary_ctxt_switches:");
            used.involuntary_switches += switches("nonvoluntary_ctxt_switches:");
        }
        used
    }

    /// The growth of CPU time and context switches since an earlier reading; packtrain's counters
    /// are those of this reading.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        self.cpu = self.cpu.saturating_sub(earlier.cpu);
        self.voluntary_switches -= earlier.voluntary_switches.min(self.voluntary_switches);
        self.involuntary_switches -= earlier.involuntary_switches.min(self.involuntary_switches);
        self
    }

    /// CPU time that is not part of this process: packtrain's threads are.
    pub fn of_other_process(&self) -> Duration {
        match self.packtrain {
            Some(_) => Duration::ZERO,
            None => self.cpu,
        }
    }
}

/// The CPU time in a line of `schedstat` of proc(5), to the nanosecond.
pub(crate) fn cpu_time(schedstat: &str) -> Duration {
    let first = schedstat.split(' ').next();
    Duration::from_nanos(first.and_then(|word| word.parse().ok()).unwrap_or(0))
}
