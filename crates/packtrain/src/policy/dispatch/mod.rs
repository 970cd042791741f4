//! When a TX ring is drained, and by whom.
//!
//! Two ways of getting this wrong are known well. iflib with `tx_abdicate` hands every packet to
//! another thread: two context switches each, 591 kpps instead of 975 (S1). OpenBSD puts off the
//! start of the driver until `if_txmit` packets wait, which a forwarder that has one at a time
//! never reaches: a wakeup and an interrupt of another CPU for each packet, 581 to 1017 kpps from
//! one run to the next, and steady once packets were dispatched directly (S4). So here
//!
//! - a wakeup is asked for on the edge from empty only, never for each packet;
//! - whoever finds the queue idle drains it, unless it is known that another way is faster;
//! - who has drained for others long enough leaves the queue to the next of them, and to the worker
//!   only if none comes in the time that a wakeup would take.
//!
//! A producer holds a [`Rule`], one word that it loads from an atomic, and asks it about each
//! batch. Whoever is the consumer of the ring holds the [`Dispatcher`], tells it what happened, and
//! publishes the rule that comes back.

mod adaptive;
mod rule;
#[cfg(test)]
mod tests;

pub use adaptive::{Observation, TRIAL_EVERY_MAX, TRIAL_EVERY_MIN};
pub use rule::{Action, Rule, Seen, Sight};

use super::SettingError;
use super::setting::Parts;
use crate::time::Instant;
use adaptive::Adaptive;
use std::fmt;
use std::str::FromStr;

/// Packets that a producer drains on behalf of everybody before it leaves the ring to the next
/// one, but for a batch of its own that goes past the ring. If none of the other producers comes,
/// that costs a wakeup, which is two context switches: at one for each 256 packets they are under
/// 1 % of the packets. iflib's `TX_BATCH_SIZE` is 32, and no bound, because its consumer leaves
/// only while another producer is under way.
pub const BUDGET: u16 = 256;
/// The least budget that `adaptive` chooses, of a device that takes long for each packet: what one
/// burst has.
pub const BUDGET_MIN: u16 = 64;
/// The largest `n` of `threshold(n)`. A ring with fewer slots is drained when it is full.
pub const THRESHOLD_MAX: u32 = 65_536;

const TAKES: &str = "direct, deferred, abdicate, threshold(n) with n from 1 to 65536, or adaptive";

/// How a TX ring is drained: the setting `dispatch=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// By the producer that finds it idle, up to a budget; the rest is left to the next producer,
    /// or to the worker if none comes. The only producer that there is goes on instead where it
    /// would have to wake the worker. What a device has no room for is the worker's in any case.
    Direct,
    /// By the worker, which is woken when the ring was empty.
    Deferred,
    /// By the worker, which each batch asks anew unless it was asked already, as iflib does with
    /// `tx_abdicate=1` (S1). There to be measured: it costs context switches and gains nothing.
    Abdicate,
    /// As `Deferred` until so many packets wait; then by the producer that sees it, at once. That
    /// is OpenBSD's `ifq_start()` with `if_txmit` of `n`.
    Threshold(u32),
    /// As `Direct`, until it was seen that another way is faster, and as long as it is: `Deferred`,
    /// turns of as many packets as the ring holds, or 128 packets that gather.
    #[default]
    Adaptive,
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Deferred => f.write_str("deferred"),
            Self::Abdicate => f.write_str("abdicate"),
            Self::Threshold(n) => write!(f, "threshold({n})"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl FromStr for Dispatch {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let parts = Parts::of("dispatch", TAKES, text)?;
        match parts.word {
            "direct" => parts.alone(Self::Direct),
            "deferred" => parts.alone(Self::Deferred),
            "abdicate" => parts.alone(Self::Abdicate),
            "adaptive" => parts.alone(Self::Adaptive),
            "threshold" => {
                let n = parts.number(parts.arguments()?, "n", 1..=THRESHOLD_MAX)?;
                Ok(Self::Threshold(n))
            }
            _ => Err(parts.unknown()),
        }
    }
}

impl Dispatch {
    /// The rule that a ring of `capacity` packets begins with. It is also the last one, unless the
    /// setting is `Adaptive`.
    #[must_use]
    pub const fn rule(self, capacity: u32) -> Rule {
        match self {
            Self::Direct | Self::Adaptive => Rule::direct(BUDGET),
            Self::Deferred => Rule::deferred(BUDGET),
            Self::Abdicate => Rule::abdicate(BUDGET),
            // A full ring takes nothing more, so nobody would reach a threshold above it.
            Self::Threshold(n) if n > capacity => Rule::threshold(capacity, BUDGET),
            Self::Threshold(n) => Rule::threshold(n, BUDGET),
        }
    }
}

/// What decides for one TX ring. Held by its consumer: whoever drains may touch it, nobody else.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    rule: Rule,
    changes: u64,
    adaptive: Option<Adaptive>,
}

impl Dispatcher {
    /// For a ring of `capacity` packets.
    #[must_use]
    pub fn new(setting: Dispatch, capacity: u32) -> Self {
        let rule = setting.rule(capacity);
        Self {
            rule,
            changes: 0,
            adaptive: (setting == Dispatch::Adaptive).then(|| Adaptive::new(capacity)),
        }
    }

    /// The rule that holds now.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// How often the rule has changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes in what happened since the last call, and returns the rule that holds from now on.
    /// Cheap enough to be called after each drain: most calls add up a few numbers.
    pub fn observe(&mut self, now: Instant, seen: &Observation) -> Rule {
        if let Some(adaptive) = &mut self.adaptive {
            let rule = adaptive.observe(now.as_nanos(), seen);
            self.changes += u64::from(rule != self.rule);
            self.rule = rule;
        }
        self.rule
    }
}
