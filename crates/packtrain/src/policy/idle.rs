//! What a worker without work does.
//!
//! Halting costs two context switches and the exit latency of the CPU; polling costs a CPU.
//! `adaptive` is the rule of Linux's haltpoll governor (`drivers/cpuidle/governors/haltpoll.c`):
//! the worker polls up to a limit, then halts. The limit grows if work came shortly after the
//! worker had halted, and shrinks if work came late. The constants are the defaults of the
//! governor's parameters.
//!
//! A worker polls only if a CPU is spare ([`spare_cpu`]), so that it takes no CPU from the threads
//! that it waits for.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use crate::time::Instant;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest that `adaptive` polls before it halts (`guest_halt_poll_ns`).
pub const LIMIT_MAX: Duration = Duration::from_micros(200);
/// The limit after the first growth (`guest_halt_poll_grow_start`).
pub const LIMIT_START: Duration = Duration::from_micros(50);
/// The factor of each growth and each shrinking (`guest_halt_poll_grow`, `guest_halt_poll_shrink`).
const FACTOR: u32 = 2;

const TAKES: &str = "halt, poll or adaptive";

/// What a worker without work does: the setting `idle=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Idle {
    /// It sleeps until the kernel wakes it up.
    Halt,
    /// It polls without end.
    Poll,
    /// It polls up to a limit of at most [`LIMIT_MAX`] if a CPU is spare, then sleeps.
    #[default]
    Adaptive,
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Halt => "halt",
            Self::Poll => "poll",
            Self::Adaptive => "adaptive",
        })
    }
}

impl FromStr for Idle {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("idle", TAKES, text)?;
        match parts.word {
            "halt" => parts.alone(Self::Halt),
            "poll" => parts.alone(Self::Poll),
            "adaptive" => parts.alone(Self::Adaptive),
            _ => Err(parts.unknown()),
        }
    }
}

/// What a worker does after a step that found no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// It polls again at once.
    Spin,
    /// It sleeps until it is notified.
    Halt,
}

/// Whether a CPU is spare for workers that poll: each RX worker has a core, and so do its sender
/// and its receiver, each TX worker that drains, and each application thread that sends.
#[must_use]
pub const fn spare_cpu(
    cores: usize,
    rx_workers: usize,
    draining_tx_workers: usize,
    senders: usize,
) -> bool {
    let threads = rx_workers
        .saturating_mul(3)
        .saturating_add(draining_tx_workers)
        .saturating_add(senders);
    cores >= threads
}

/// The idle policy of one worker.
#[derive(Clone, Debug)]
pub struct Idler {
    setting: Idle,
    spare_cpu: bool,
    limit: Duration,
    /// The time of the first step without work since the last step with work.
    since: Option<Instant>,
    /// Whether this gap was answered with [`Wait::Halt`].
    halted: bool,
}

impl Idler {
    /// The policy of a worker that has not polled yet: like the governor, `adaptive` starts with a
    /// limit of zero. `spare_cpu` permits `adaptive` to poll.
    #[must_use]
    pub const fn new(setting: Idle, spare_cpu: bool) -> Self {
        Self {
            setting,
            spare_cpu,
            limit: Duration::ZERO,
            since: None,
            halted: false,
        }
    }

    /// How long the worker polls in a gap before it halts. `halt` and `poll` do not read it.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        self.limit
    }

    /// Decides after a step without work. Once the limit is over, `adaptive` answers with
    /// [`Wait::Halt`] for the rest of the gap: a wake-up without work starts no new polling.
    pub fn idle(&mut self, now: Instant) -> Wait {
        let since = *self.since.get_or_insert(now);
        // A clock that goes back ends the polling, so it cannot prolong it.
        let polls = match self.setting {
            Idle::Halt => false,
            Idle::Poll => true,
            Idle::Adaptive => {
                let within = now >= since && now.since(since) < self.limit;
                self.spare_cpu && within && !self.halted
            }
        };
        self.halted = !polls;
        if polls { Wait::Spin } else { Wait::Halt }
    }

    /// Takes in that a step found work, and so the length of the gap before it. Like the governor,
    /// only a gap in which the worker halted adjusts the limit.
    pub fn busy(&mut self, now: Instant) {
        let halted = std::mem::take(&mut self.halted);
        let Some(since) = self.since.take().filter(|_| halted) else {
            return;
        };
        let gap = now.since(since);
        if gap > LIMIT_MAX {
            self.limit /= FACTOR;
        } else if gap > self.limit {
            self.limit = (self.limit * FACTOR).clamp(LIMIT_START, LIMIT_MAX);
        }
    }
}
