//! What a forwarder has used since its start.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

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

/// States and CPU times of threads at one moment.
#[derive(Debug)]
pub(crate) struct Threads {
    at: Instant,
    /// State and CPU time of each, by its number.
    all: HashMap<u32, (char, Duration)>,
}

impl Threads {
    /// Those of processes whose names begin with `name`. One that ends meanwhile may be left out.
    pub(crate) fn of(processes: impl IntoIterator<Item = u32>, name: &str) -> Self {
        let at = Instant::now();
        let threads = processes.into_iter().flat_map(|process| {
            let threads = fs::read_dir(format!("/proc/{process}/task"));
            threads.into_iter().flatten().flatten()
        });
        let threads = threads.filter_map(|thread| {
            let number = thread.file_name().to_str()?.parse().ok()?;
            let read = |name| fs::read_to_string(thread.path().join(name)).ok();
            let stat = read("stat")?;
            let own = stat.split_once(" (")?.1;
            // The CPU time comes last: a thread that got a CPU between the two has run.
            let state = letter(&stat).filter(|_| own.starts_with(name))?;
            Some((number, (state, cpu_time(&read("schedstat")?))))
        });
        let all = threads.collect();
        Self { at, all }
    }

    /// The time that they had until `now`. If some of them have something to do at `now`, it is the
    /// mean of what these ran: on a busy machine a program that has done nothing may just have had
    /// no CPU. A kernel that does not count CPU time to the nanosecond says 0 of all: then all time
    /// was theirs.
    pub(crate) fn had(&self, now: &Self) -> Duration {
        let time = now.at - self.at;
        let counts = now.all.values().any(|(_, cpu)| !cpu.is_zero());
        let ready = now.all.iter().filter(|(_, (state, _))| *state == 'R');
        let ran = ready.map(|(number, (_, cpu))| {
            let then = self
                .all
                .get(number)
                .map_or(Duration::ZERO, |(_, then)| *then);
            cpu.saturating_sub(then)
        });
        let (sum, count) = ran.fold((Duration::ZERO, 0), |(sum, n), ran| (sum + ran, n + 1));
        let mean = sum.checked_div(count).filter(|_| counts);
        mean.map_or(time, |mean| mean.min(time))
    }
}

/// The state in a line of `stat`, see proc_pid_stat(5).
pub(crate) fn letter(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The CPU time in a line of `schedstat` of proc(5), to the nanosecond.
fn cpu_time(schedstat: &str) -> Duration {
    let first = schedstat.split(' ').next();
    Duration::from_nanos(first.and_then(|word| word.parse().ok()).unwrap_or(0))
}
