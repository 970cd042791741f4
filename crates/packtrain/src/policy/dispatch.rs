//! Which thread drains the ring in front of a shared TX queue.
//!
//! [`Dispatch::decide`] is the whole policy: one table of the dispatch mode and the state of the
//! ring. A producer asks it once for each batch. The policy keeps no state.
//!
//! Each mode has a source. `direct` and `abdicate` are FreeBSD's `mp_ring` with `abdicate` 0 and 1
//! (`sys/net/mp_ring.c`; iflib's `tx_abdicate`). `threshold(n)` is OpenBSD's `ifq_start()` with
//! `if_txmit` of `n`. `deferred` notifies the TX worker only when the ring was empty. `adaptive`
//! drains directly, and defers to the TX worker under contention.
//!
//! Unlike `mp_ring`, no mode lets a producer drain a stalled ring. The producer would collect the
//! few packets that the device has completed, and the TX worker would have to arm the device again.

#[cfg(test)]
mod tests;

use super::SettingError;
use super::setting::Parts;
use std::fmt;
use std::str::FromStr;

/// Packets of others that a draining producer transmits before it abdicates. If the TX worker then
/// has to wake up, that costs two context switches, less than one for each hundred packets.
pub const BUDGET: usize = if cfg!(packtrain_loom) { 2 } else { 256 };
/// The largest `n` of `threshold(n)`. With an `n` above the capacity of the ring, `threshold(n)`
/// decides as `deferred` does.
pub const THRESHOLD_MAX: u32 = 65_536;

const TAKES: &str = "direct, deferred, abdicate, threshold(n) with n from 1 to 65536, or adaptive";

/// Which thread drains the ring of a shared TX queue: the setting `dispatch=`. An owned TX queue
/// has no ring; the plan chooses it only for `direct` and `adaptive`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// The producer that finds no other consumer drains, up to [`BUDGET`]. The TX worker drains
    /// only after a stall or an exhausted budget.
    Direct,
    /// The TX worker drains. A producer notifies it if the ring was empty.
    Deferred,
    /// The TX worker drains. Each batch notifies it, as iflib does with `tx_abdicate=1`. This mode
    /// exists for measurements: its extra wake-ups gain nothing.
    Abdicate,
    /// The TX worker drains while fewer packets than this wait in the ring; from then on a producer
    /// drains at once. That is OpenBSD's `ifq_start()` with `if_txmit` of `n`.
    Threshold(u32),
    /// A producer that finds the ring idle drains, up to [`BUDGET`]. After that the TX worker
    /// drains until it sleeps or, if it also has RX queues, finds the ring empty.
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

/// The state of the consumer of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingState {
    /// No consumer, and the ring is empty.
    Idle,
    /// A consumer drains.
    Busy,
    /// No consumer; packets wait for the TX worker.
    Abdicated,
    /// The device accepted nothing more; the TX worker restarts the queue.
    Stalled,
    /// The consumer reached a slot that is reserved and not yet published; only the TX worker
    /// retries.
    Gap,
}

/// What a producer does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It becomes the consumer and drains.
    Drain,
    /// It enqueues the batch.
    Enqueue,
    /// It enqueues the batch and notifies the TX worker.
    Notify,
}

impl Dispatch {
    /// What a producer does with a batch that finds the ring in `state`. `depth` is the number of
    /// packets that wait, the batch included; only modes with [`Dispatch::counts_depth`] read it.
    #[must_use]
    pub const fn decide(self, state: RingState, depth: u32) -> Decision {
        use Decision::{Drain, Enqueue, Notify};
        use RingState::{Abdicated, Busy, Gap, Idle, Stalled};
        match self {
            Self::Direct => match state {
                Idle | Abdicated => Drain,
                Stalled | Busy | Gap => Enqueue,
            },
            Self::Adaptive => match state {
                Idle => Drain,
                Abdicated | Stalled | Busy | Gap => Enqueue,
            },
            Self::Abdicate => match state {
                Idle | Abdicated | Busy | Gap => Notify,
                Stalled => Enqueue,
            },
            Self::Threshold(n) if depth >= n => match state {
                Idle | Abdicated => Drain,
                Stalled | Busy | Gap => Enqueue,
            },
            Self::Deferred | Self::Threshold(_) => match state {
                Idle => Notify,
                Abdicated | Stalled | Busy | Gap => Enqueue,
            },
        }
    }

    /// Whether the TX worker keeps the consumer role of an empty ring until it sleeps.
    #[must_use]
    pub const fn keeps_until_sleep(self) -> bool {
        !matches!(self, Self::Direct)
    }

    /// Whether [`Dispatch::decide`] reads the depth, so that a producer has to count it.
    #[must_use]
    pub const fn counts_depth(self) -> bool {
        matches!(self, Self::Threshold(_))
    }
}
