//! How busy the machine is, and since when it runs.

use std::fs;

/// The state of the machine at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Threads that ran or waited for a CPU, on average over the last minute (`/proc/loadavg`).
    pub one_minute: f64,
    /// Seconds since boot (`/proc/uptime`).
    pub uptime_seconds: f64,
}

impl Load {
    /// Now. A value that the kernel does not report is 0.
    pub fn now() -> Self {
        let first = |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let word = text.split_whitespace().next();
            word.and_then(|word| word.parse().ok()).unwrap_or_default()
        };
        Self {
            one_minute: first("/proc/loadavg"),
            uptime_seconds: first("/proc/uptime"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_been_up() {
        assert!(Load::now().uptime_seconds > 0.0);
    }
}
