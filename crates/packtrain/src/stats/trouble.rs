//! What was wrong with a device that did not go on, as the watchdog of its TX queue found it.

use super::TxSnapshot;
use crate::time::Instant;
use std::fmt;

/// Why a TX queue made no progress. None of these ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The device had completed packets or had room again, and did not say so. Asking was enough.
    MissedWakeup,
    /// The device reports packets, but not some that it was given before.
    LostCompletion,
    /// The device has packets and reports none.
    Hung,
    /// The device has no packets and takes none.
    Stuck,
}

impl Trouble {
    /// Every cause.
    pub const ALL: [Self; 4] = [
        Self::MissedWakeup,
        Self::LostCompletion,
        Self::Hung,
        Self::Stuck,
    ];

    /// How often it was found, in times; of [`Trouble::LostCompletion`], in packets.
    #[must_use]
    pub const fn count(self, tx: &TxSnapshot) -> u64 {
        match self {
            Self::MissedWakeup => tx.missed_wakeups,
            Self::LostCompletion => tx.lost_completions,
            Self::Hung => tx.hangs,
            Self::Stuck => tx.stuck,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissedWakeup => "a wake-up of the device was lost, and polling found its work",
            Self::LostCompletion => "the device did not report some of its packets as sent",
            Self::Hung => "the device has packets and reports none as sent",
            Self::Stuck => "the device has no packets and takes none",
        })
    }
}

/// What the watchdog found last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TroubleReport {
    /// What was wrong.
    pub cause: Trouble,
    /// When it was found.
    pub at: Instant,
    /// Packets that the device had then.
    pub in_flight: usize,
    /// Wire packets that waited for it.
    pub held: u64,
    /// Whether the queue was reset for it.
    pub was_reset: bool,
}

impl TxSnapshot {
    /// What was wrong with the device so far, and how often ([`Trouble::count`]).
    pub fn troubles(&self) -> impl Iterator<Item = (Trouble, u64)> + use<> {
        let counts = Trouble::ALL.map(|cause| (cause, cause.count(self)));
        counts.into_iter().filter(|&(_, count)| count > 0)
    }
}
