//! What a worker without work does.
//!
//! A sleep and the wake-up after it cost CPU time ([`WAKEUP`]), and so does each poll that finds
//! nothing. `adaptive` keeps an account of both, so that polling costs no more CPU time than it
//! saves: a gap in which polling found the next packets earns the price of a wake-up, and each
//! poll costs the time that it took. A worker whose credit is used up sleeps in each gap until it
//! has earned it again, at one 256th of the time that it had no work. So the worker tries again
//! from time to time, for 0.4 % of a CPU: whether polling pays depends on how fast the other
//! threads answer, and they answer faster while no CPU sleeps. After a gap of more than
//! [`LIMIT_MAX`] it does not poll: the next one is likely as long.
//!
//! Between two polls `adaptive` yields, so that a worker takes no CPU from the threads that it
//! waits for, and these need not wake it. Of the time until the next poll at most 2 us
//! counts as the cost of this one: the policy does not see how much of it another thread had.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use crate::time::Instant;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a sleep and the wake-up after it cost: two context switches, the interrupt to an idle CPU,
/// and caches that are cold afterwards. 5 to 20 us of CPU time, on virtual machines more than on
/// real ones.
pub const WAKEUP: Duration = Duration::from_micros(20);
/// The longest that `adaptive` polls in one gap (Linux's `guest_halt_poll_ns`).
pub const LIMIT_MAX: Duration = Duration::from_micros(200);
/// The most credit. A burst of traffic after a pause is polled for until it is used up; and the
/// more it is, the less often a worker changes over, which delays the packets of that moment.
const CREDIT_MAX: Duration = Duration::from_millis(10);
/// One part in so many of the time without work is credit.
const SHARE: u32 = 256;
/// What one poll costs at most: more time between two polls is that of another thread, for which
/// the worker has yielded.
const POLL_MAX: Duration = Duration::from_micros(2);

const TAKES: &str = "halt, poll or adaptive";

/// What a worker without work does: the setting `idle=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Idle {
    /// It sleeps until the kernel wakes it up.
    Halt,
    /// It polls without end.
    Poll,
    /// It polls while that costs no more CPU time than it saves, and for at most [`LIMIT_MAX`], and
    /// yields after each poll. Then it sleeps.
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
    /// CPU time that polling may cost.
    credit: Duration,
    /// Whether it polls at all: from full credit until none is left.
    polls: bool,
    /// Whether the last gap was short enough to poll through: sparse work is not polled for.
    soon: bool,
    gap: Option<Gap>,
}

/// The time since the last step with work.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The first step without work, and the last one so far.
    since: Instant,
    last: Instant,
    halted: bool,
}

impl Idler {
    /// The policy of a worker that has had no work yet. It has all the credit, and begins with a
    /// sleep.
    #[must_use]
    pub const fn new(setting: Idle) -> Self {
        Self {
            setting,
            credit: CREDIT_MAX,
            polls: true,
            soon: false,
            gap: None,
        }
    }

    /// Decides after a step without work. Once `adaptive` has answered with [`Wait::Halt`], it does
    /// for the rest of the gap: a wake-up without work starts no new polling.
    pub fn idle(&mut self, now: Instant) -> Wait {
        let gap = self.gap.get_or_insert(Gap {
            since: now,
            last: now,
            halted: false,
        });
        match self.setting {
            Idle::Halt => return Wait::Halt,
            Idle::Poll => return Wait::Spin,
            Idle::Adaptive if gap.halted => return Wait::Halt,
            Idle::Adaptive => {}
        }
        self.credit = self.credit.saturating_sub(cost(gap.last, now));
        self.polls &= !self.credit.is_zero();
        // A clock that goes back ends the polling, so it cannot prolong it.
        let within = now >= gap.last && now.since(gap.since) < LIMIT_MAX;
        gap.last = now;
        gap.halted = !(self.polls && self.soon && within);
        match gap.halted {
            true => Wait::Halt,
            false => Wait::Yield,
        }
    }

    /// Records that a step found work.
    pub fn busy(&mut self, now: Instant) {
        let Some(gap) = self.gap.take() else {
            return;
        };
        let saved = match gap.halted {
            true => Duration::ZERO,
            false => WAKEUP - cost(gap.last, now),
        };
        let earned = saved + now.since(gap.since) / SHARE;
        self.credit = (self.credit + earned).min(CREDIT_MAX);
        self.polls |= self.credit == CREDIT_MAX;
        // A clock that stands still would end no polling.
        let length = now.since(gap.since);
        self.soon = !length.is_zero() && length <= LIMIT_MAX;
    }
}

/// The CPU time of the poll at `last`, if the worker ran again at `now`.
fn cost(last: Instant, now: Instant) -> Duration {
    now.since(last).min(POLL_MAX)
}
