//! What the threads of a run cost, read from outside of them: they go on meanwhile.

use crate::error::LabError;
use crate::sys;
use std::fs;
use std::io;
use std::time::Duration;

/// The beginning of the name of a producer's thread.
pub(super) const PRODUCER: &str = "producer-";
/// The beginning of the name of a worker's thread, as the engine gives it.
const WORKER: &str = "packtrain-";

/// CPU time and context switches, since their start, of threads that still run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) producers: Duration,
    pub(super) workers: Duration,
    /// Voluntary and involuntary, of all of them.
    pub(super) switches: u64,
}

impl Cost {
    /// Of all workers and producers of this process, now.
    pub(super) fn now() -> Result<Self, LabError> {
        Self::of(|_name| true)
    }

    /// Of those whose names are `wanted`.
    fn of(wanted: impl Fn(&str) -> bool) -> Result<Self, LabError> {
        let failed = LabError::from_io("read /proc/self/task");
        let mut cost = Self::default();
        for entry in fs::read_dir("/proc/self/task").map_err(&failed)? {
            let path = entry.map_err(&failed)?.path();
            let status = match fs::read_to_string(path.join("status")) {
                Ok(status) => status,
                // It ended since the folder was read.
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(failed(error)),
            };
            let name = field(&status, "Name:").unwrap_or_default();
            let cpu = match (name.starts_with(WORKER), name.starts_with(PRODUCER)) {
                (true, _) => &mut cost.workers,
                (_, true) => &mut cost.producers,
                _ => continue,
            };
            if !wanted(name) {
                continue;
            }
            let number = |key| field(&status, key).and_then(|text| text.parse::<u64>().ok());
            let numbers = [
                "Pid:",
                "voluntary_ctxt_switches:",
                "nonvoluntary_ctxt_switches:",
            ];
            let [Some(thread), Some(voluntary), Some(involuntary)] = numbers.map(number) else {
                return Err(LabError::Answer("a thread's status lacks its switches"));
            };
            cost.switches += voluntary + involuntary;
            match sys::thread_cpu_time(thread as u32) {
                Ok(time) => *cpu += time,
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(LabError::os("clock_gettime", &error)),
            }
        }
        Ok(cost)
    }

    /// What was added since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            producers: self.producers.saturating_sub(earlier.producers),
            workers: self.workers.saturating_sub(earlier.workers),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The value of a line `key value` of a status file.
fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_thread_is_charged_to_its_kind_while_it_runs() {
        // Its own name: what other tests had run, and is gone, would be missing.
        let name = format!("{PRODUCER}alone");
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let work = move || {
            let burn = std::time::Instant::now();
            let mut x = 1_u64;
            while burn.elapsed() < Duration::from_millis(20) {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            tell.send(()).unwrap();
            // It waits: a voluntary switch, and it is still there to be looked at.
            assert!(ended.recv().is_err());
        };
        let thread = thread::Builder::new().name(name.clone());
        let thread = thread.spawn(work).unwrap();
        told.recv().unwrap();
        // It may not have gone to sleep yet.
        let seen = (0..60_000).any(|_| {
            let cost = Cost::of(|other| other == name).unwrap();
            thread::sleep(Duration::from_millis(1));
            cost.producers > Duration::ZERO && cost.switches > 0
        });
        drop(end);
        thread.join().unwrap();
        assert!(seen, "nothing was charged to the producer");
    }

    #[test]
    fn fields_are_whole_words() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some("7"));
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), Some("3"));
        assert_eq!(field(status, "Pid:"), None);
    }
}
