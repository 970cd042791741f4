//! What was wrong with a device that did not go on, as the watchdog of its TX queue found it.

use super::TxSnapshot;
use crate::time::Instant;
use std::fmt;

/// Why a TX queue made no progress. None of these ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    /// The counter that it is counted by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissedWakeup => "missed_wakeups",
            Self::LostCompletion => "lost_completions",
            Self::Hung => "hangs",
            Self::Stuck => "stuck",
        }
    }

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

/// What the watchdog found, and what it did about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TroubleReport {
    /// What was wrong.
    pub cause: Trouble,
    /// When it was found.
    pub at: Instant,
    /// When the device last gave a packet back or took one, or was given work after it had none. Of
    /// [`Trouble::LostCompletion`], when it had given back later ones already.
    pub since: Instant,
    /// Packets that the device had when it was found.
    pub in_flight: usize,
    /// Their bytes, link headers included.
    pub in_flight_bytes: u64,
    /// Wire packets that waited for it behind the ring, at most a few bursts.
    pub held: u64,
    /// Whether the queue was reset for it.
    pub was_reset: bool,
}

impl fmt::Display for TroubleReport {
    /// One sentence: what is wrong, since when, what is concerned, what was done, what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cause,
            in_flight,
            in_flight_bytes,
            held,
            ..
        } = self;
        let seconds = self.at.since(self.since).as_secs_f64();
        write!(
            f,
            "{cause}, for {seconds:.1} s: {in_flight} packets ({in_flight_bytes} bytes) in flight, \
             {held} wire packets waiting; "
        )?;
        f.write_str(match (self.was_reset, cause) {
            (true, _) => {
                "the queue was reset, and what the device had not sent goes out again; if it comes \
                 again, suspect the device or its driver"
            }
            (false, Trouble::MissedWakeup) => {
                "it was polled and goes on; if it comes often, suspect its interrupts"
            }
            (false, _) => {
                "it was polled in vain and cannot be reset; it goes on if the device does: else \
                 end the run and restart the device"
            }
        })
    }
}

/// The last report of each cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TroubleLog([Option<TroubleReport>; Trouble::ALL.len()]);

impl TroubleLog {
    /// Keeps `report` as the last one of its cause.
    pub const fn record(&mut self, report: TroubleReport) {
        self.0[report.cause as usize] = Some(report);
    }

    /// The last reports, by cause.
    pub fn iter(&self) -> impl Iterator<Item = &TroubleReport> {
        self.0.iter().flatten()
    }

    /// The latest of all.
    #[must_use]
    pub fn last(&self) -> Option<&TroubleReport> {
        self.iter().max_by_key(|report| report.at)
    }
}

impl TxSnapshot {
    /// What was wrong with the device so far, and how often ([`Trouble::count`]).
    pub fn troubles(&self) -> impl Iterator<Item = (Trouble, u64)> + use<> {
        let counts = Trouble::ALL.map(|cause| (cause, cause.count(self)));
        counts.into_iter().filter(|&(_, count)| count > 0)
    }
}
