//! What a worker without work does.
//!
//! Halting costs two context switches and the exit latency of the CPU; polling costs a CPU.
//! `adaptive` is the rule of Linux's haltpoll governor (`drivers/cpuidle/governors/haltpoll.c`):
//! the worker polls up to a limit, then halts. The limit grows if work came shortly after the
//! worker had halted, and shrinks if work came late. The constants are the defaults of the
//! governor's parameters.
//!
//! Between two polls `adaptive` yields, so that a worker takes no CPU from the threads that it
//! waits for, and these need not wake it.

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
    /// It polls up to a limit of at most [`LIMIT_MAX`] and yields after each poll, then sleeps.
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
    /// It lets other threads run, then polls again.
    Yield,
    /// It sleeps until it is notified.
    Halt,
}

/// The idle policy of one worker.
#[derive(Clone, Debug)]
pub struct Idler {
    setting: Idle,
    limit: Duration,
    /// The time of the first step without work since the last step with work.
    since: Option<Instant>,
    /// Whether this gap was answered with [`Wait::Halt`].
    halted: bool,
}

impl Idler {
    /// The policy of a worker that has not polled yet: like the governor, `adaptive` starts with a
    /// limit of zero.
    #[must_use]
    pub const fn new(setting: Idle) -> Self {
        Self {
            setting,
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
        let wait = match self.setting {
            Idle::Poll => Wait::Spin,
            Idle::Adaptive if now >= since && now.since(since) < self.limit && !self.halted => {
                Wait::Yield
            }
            Idle::Halt | Idle::Adaptive => Wait::Halt,
        };
        self.halted = wait == Wait::Halt;
        wait
    }

    /// Records that a step found work, and so the length of the gap before it. Like the governor,
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
