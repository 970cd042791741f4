//! The nice value and the scheduling class of the threads of workers.
//!
//! While a worker waits for its CPU, the queues of the devices fill up. So `auto` puts a worker
//! [`AHEAD`] nice levels before the thread that started it: three quarters of a CPU that two
//! threads want. A real-time priority would leave applications nothing under a flood of packets
//! (receive livelock).
//!
//! A worker that sends what threads of an application hand it gains nothing by going first: a full
//! queue holds them up, and loses nothing. Ahead of a thread on its CPU, it would take the CPU
//! from it for each packet that wakes it, at two context switches a packet; at the same nice value
//! still after a few, since the scheduler favours a thread that has slept. So `auto` leaves it at
//! the nice value of the senders and gives it the class `SCHED_BATCH` (sched(7)), whose threads
//! preempt no other when they are woken. It runs when the sender waits, or when its time slice is
//! over, and then sends many packets at once.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::idle::Idle;
use super::setting::Parts;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The nice levels that `auto` goes ahead. A level is a factor of 1.25 in weight
/// (`sched_prio_to_weight`), so five give 75 % of a CPU, and the other thread has 25 %.
pub const AHEAD: i8 = 5;
/// The nice values of the kernel (setpriority(2)).
pub const NICE: RangeInclusive<i8> = -20..=19;

const TAKES: &str = "none, nice(n) with n from -20 to 19, or auto";

/// Whose packets a worker moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Serves {
    /// Those of devices: it has an RX queue, or a TX queue to which only RX workers send.
    Devices,
    /// Those of an application: it has TX queues only, and threads of the application send to each.
    Senders,
}

/// The nice value of the threads of workers: the setting `priority=`. The kernel compares it among
/// the threads of a control group, and with autogroups (sched(7)) of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// The value of the thread that starts the worker.
    None,
    /// This value. The start fails if the system refuses it.
    Nice(i8),
    /// [`AHEAD`] of the thread that starts the worker, or as far as the system permits: a lower
    /// value requires `CAP_SYS_NICE` or `RLIMIT_NICE`. As `None` with `idle=poll`, since a worker
    /// that never sleeps would take three quarters of a CPU for polling.
    ///
    /// A worker that serves [`Serves::Senders`] has the nice value of `None`, and is
    /// [`batch`](Self::batch).
    ///
    /// Threads and programs that a handler starts inherit the value.
    #[default]
    Auto,
}

impl Priority {
    /// The nice value of a worker's thread whose inherited value is `now`; `None` to keep that.
    #[must_use]
    pub fn nice(self, idle: Idle, serves: Serves, now: i8) -> Option<i8> {
        let wanted = match self {
            Self::None => return None,
            Self::Nice(nice) => nice,
            Self::Auto if idle == Idle::Poll || serves == Serves::Senders => return None,
            Self::Auto => now.saturating_sub(AHEAD),
        };
        let wanted = wanted.clamp(*NICE.start(), *NICE.end());
        (wanted != now).then_some(wanted)
    }

    /// Whether a worker's thread gets the class `SCHED_BATCH`. If a sender on its CPU never waits,
    /// a packet then waits for the end of the sender's time slice: some milliseconds.
    #[must_use]
    pub fn batch(self, serves: Serves) -> bool {
        self == Self::Auto && serves == Serves::Senders
    }

    /// The error if the system refuses the value because of `why`.
    #[must_use]
    pub fn refused(self, why: &dyn fmt::Display) -> SettingError {
        SettingError::new(format!(
            "priority '{self}' is refused by the system: {why}; a lower nice value requires \
             CAP_SYS_NICE or a limit (ulimit -e); write auto, which goes as far as the system \
             permits, or a higher number"
        ))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Nice(nice) => write!(f, "nice({nice})"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Priority {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("priority", TAKES, text)?;
        match parts.word {
            "none" => parts.alone(Self::None),
            "auto" => parts.alone(Self::Auto),
            "nice" => parts.number(parts.arguments()?, "n", NICE).map(Self::Nice),
            _ => Err(parts.unknown()),
        }
    }
}
