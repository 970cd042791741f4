//! The options and the results of the demo.

use packtrain::driver::Features;
use packtrain::engine::{Ledger, Snapshot};
use packtrain::stats::DropSnapshot;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sending time of each transfer.
    pub transfer_time: Duration,
    /// Seed of the payload.
    pub seed: u64,
    /// If set to true, the demo ends soon, with the results so far.
    pub stop: Arc<AtomicBool>,
    /// Run in memory also if namespaces are available.
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

/// The environment of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum World {
    /// Two network namespaces with a TAP each, and the kernel's TCP and UDP.
    Namespaces,
    /// Two simulated NICs and generated GSO packets, because namespaces are not available.
    Memory {
        /// The missing feature and the reason, in one line.
        reason: String,
    },
}

/// The offloads that both ports may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// None.
    None,
    /// Transport checksums.
    Csum,
    /// All offloads of the ports.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Wire packets in both directions.
    pub wire_packets: u64,
    /// Packets that packtrain received in both directions; a GSO packet is one.
    pub frames: u64,
    /// packtrain's system calls for each MB (10⁶ bytes) of payload.
    pub syscalls_per_mb: f64,
    /// CPU time of packtrain's workers, in percent of one CPU.
    pub cpu_percent: f64,
    /// Whether every byte arrived as it was sent.
    pub hash_ok: bool,
}

/// The counters of one setting.
#[derive(Clone, Debug)]
pub struct SettingReport {
    /// The setting.
    pub setting: Setting,
    /// All counters at its end.
    pub snapshot: Snapshot,
    /// Packets that the two kernels dropped on their side of the ports.
    pub kernel_drops: u64,
}

impl SettingReport {
    /// Whether every packet is accounted for. A setting drains at its end, so no packet may be
    /// held.
    #[must_use]
    pub const fn closed(&self) -> bool {
        self.snapshot.ledger.closed() && self.snapshot.ledger.held == 0
    }
}

/// The results of the demo.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its environment.
    pub world: World,
    /// The transfers.
    pub rows: Vec<Row>,
    /// The settings.
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

    /// The sum of the settings' losses.
    #[must_use]
    pub fn drops(&self) -> DropSnapshot {
        self.settings
            .iter()
            .fold(DropSnapshot::default(), |mut sum, setting| {
                sum.merge(&setting.snapshot.drops);
                sum
            })
    }

    /// Whether every hash matched, and every ledger closed without held packets.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.hash_ok) && self.settings.iter().all(SettingReport::closed)
    }
}
