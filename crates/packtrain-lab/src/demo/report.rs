//! What the demonstration is asked for, and what it came to.

use packtrain::driver::Features;
use packtrain::engine::{Ledger, Snapshot};
use packtrain::stats::DropSnapshot;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How the demonstration runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time that each transfer sends for.
    pub transfer_time: Duration,
    /// Seed of the payload.
    pub seed: u64,
    /// When set to true the demonstration ends soon, with what it has.
    pub stop: Arc<AtomicBool>,
    /// Run in memory also where namespaces are available.
    pub in_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transfer_time: Duration::from_millis(900),
            seed: 1,
            stop: Arc::default(),
            in_memory: false,
        }
    }
}

/// What the demonstration runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum World {
    /// Two network namespaces with a TAP each, and the kernel's own TCP and UDP.
    Namespaces,
    /// Two simulated NICs and generated trains, since namespaces cannot be had.
    Memory {
        /// What is missing and why, in one line.
        reason: String,
    },
}

/// Which offloads both ports may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// None.
    None,
    /// Transport checksums.
    Csum,
    /// Everything that the ports can do.
    Full,
}

impl Setting {
    /// All three, in the order in which they run.
    pub const ALL: [Self; 3] = [Self::None, Self::Csum, Self::Full];

    /// Its name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Csum => "csum",
            Self::Full => "full",
        }
    }

    /// The offloads that it allows.
    #[must_use]
    pub const fn features(self) -> Features {
        match self {
            Self::None => Features::NONE,
            Self::Csum => Features::CSUM,
            Self::Full => Features::ALL,
        }
    }
}

/// One transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Offloads of both ports.
    pub setting: Setting,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// IP version: `4` or `6`.
    pub ip: &'static str,
    /// `a_to_b` or `b_to_a`.
    pub direction: &'static str,
    /// Goodput: payload that arrived, in Gbit/s.
    pub gbps: f64,
    /// Packets that a cable would have carried, both ways.
    pub wire_packets: u64,
    /// Packets that packtrain received, both ways; a GSO packet is one.
    pub frames: u64,
    /// packtrain's system calls for each MB (10⁶ bytes) of payload.
    pub syscalls_per_mb: f64,
    /// CPU time of packtrain's workers, in percent of one CPU.
    pub cpu_percent: f64,
    /// Whether every byte arrived as it was sent.
    pub hash_ok: bool,
}

/// The account of one setting.
#[derive(Clone, Debug)]
pub struct SettingReport {
    /// Which.
    pub setting: Setting,
    /// All counters at its end.
    pub snapshot: Snapshot,
    /// Packets that the two kernels dropped on their side of the ports.
    pub kernel_drops: u64,
}

impl SettingReport {
    /// Whether every packet is accounted for. At its end a setting has drained, so what is still
    /// held was forgotten, though the sum is right.
    #[must_use]
    pub const fn closed(&self) -> bool {
        self.snapshot.ledger.closed() && self.snapshot.ledger.held == 0
    }
}

/// What the demonstration came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it ran on.
    pub world: World,
    /// By transfer.
    pub rows: Vec<Row>,
    /// By setting.
    pub settings: Vec<SettingReport>,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

impl Outcome {
    /// The sum of the settings' ledgers.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.settings
            .iter()
            .fold(Ledger::default(), |mut sum, setting| {
                sum.merge(&setting.snapshot.ledger);
                sum
            })
    }

    /// The settings' losses together.
    #[must_use]
    pub fn drops(&self) -> DropSnapshot {
        self.settings
            .iter()
            .fold(DropSnapshot::default(), |mut sum, setting| {
                sum.merge(&setting.snapshot.drops);
                sum
            })
    }

    /// Whether every hash matched and every ledger closed with nothing held.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.hash_ok) && self.settings.iter().all(SettingReport::closed)
    }
}
