//! Reports of the watchdog of a TX queue.

use super::TxSnapshot;
use crate::time::Instant;
use std::fmt;

/// The cause of a report. None of them ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The device completed packets or had room, and did not wake the worker. A poll found it.
    MissedWakeup,
    /// The device completes packets, but not some that it accepted earlier.
    LostCompletion,
    /// The device has packets and completes none.
    Hung,
    /// The device has no packets and accepts none.
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

    /// The name of its counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MissedWakeup => "missed_wakeups",
            Self::LostCompletion => "lost_completions",
            Self::Hung => "hangs",
            Self::Stuck => "stuck",
        }
    }

    /// The number of times; for [`Trouble::LostCompletion`], of packets.
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
            Self::LostCompletion => "the device did not complete some of its packets",
            Self::Hung => "the device has packets and completes none",
            Self::Stuck => "the device has no packets and accepts none",
        })
    }
}

/// A report of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TroubleReport {
    /// The cause.
    pub cause: Trouble,
    /// The time of the report.
    pub at: Instant,
    /// The time of the last progress, or of the first packet after a time without work. For
    /// [`Trouble::LostCompletion`], a time at which later packets had completed.
    pub since: Instant,
    /// Packets in flight at that time.
    pub in_flight: usize,
    /// Their bytes, link headers included.
    pub in_flight_bytes: u64,
    /// Wire packets that waited in the TX queue, at most a few bursts.
    pub held: u64,
    /// Whether the queue was reset.
    pub was_reset: bool,
}

impl fmt::Display for TroubleReport {
    /// One line: the cause, the time, the packets concerned, the action taken, and the advice.
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
                "the queue was reset and sends again what the device had not sent; if this recurs, \
                 suspect the device or its driver"
            }
            (false, Trouble::MissedWakeup) => {
                "a poll collected them; if this recurs, suspect the interrupts of the device"
            }
            (false, _) => {
                "a poll found nothing and the device does not support a reset; if it does not \
                 recover, end the run and restart the device"
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
}

impl TxSnapshot {
    /// The causes that occurred, and their counts ([`Trouble::count`]).
    pub fn troubles(&self) -> impl Iterator<Item = (Trouble, u64)> + use<> {
        let counts = Trouble::ALL.map(|cause| (cause, cause.count(self)));
        counts.into_iter().filter(|&(_, count)| count > 0)
    }
}
