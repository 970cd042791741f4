//! The demonstration: real kernel TCP and UDP through packtrain, with no offload, with checksums
//! only, and with everything; every byte hashed, every packet accounted for.

mod memory;
mod namespaces;

use crate::error::LabError;
use packtrain::driver::{DeviceError, Driver, Features, Port, PortConfig};
use packtrain::engine::{Ledger, Report, RunError, Session, Snapshot, StartError};
use packtrain::stats::DropSnapshot;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Why the demonstration could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum DemoError {
    /// The laboratory: namespaces, sockets.
    Lab(LabError),
    /// A port.
    Device(DeviceError),
    /// A port, while it ran.
    Run(RunError),
    /// The session between the two ports did not start.
    Start(StartError),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DemoError {}

impl From<LabError> for DemoError {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}

impl From<DeviceError> for DemoError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Runs the demonstration: in namespaces where they are available, else in memory. `on_world` is
/// called once before the first transfer, `on_row` after each.
///
/// # Errors
///
/// [`DemoError`], when something fails that was available at the start. Lost or damaged data is no
/// error but a row without `hash_ok`.
pub fn run(
    options: &Options,
    on_world: impl FnOnce(&World),
    mut on_row: impl FnMut(&Row),
) -> Result<Outcome, DemoError> {
    let world = match crate::netns::available() {
        Ok(()) if options.in_memory => World::Memory {
            reason: "asked for".to_owned(),
        },
        Ok(()) => World::Namespaces,
        Err(missing) => World::Memory {
            reason: missing.to_string(),
        },
    };
    on_world(&world);
    let mut outcome = Outcome {
        world,
        rows: Vec::new(),
        settings: Vec::new(),
        stopped: false,
    };
    for setting in Setting::ALL {
        let rows = &mut outcome.rows;
        let mut on_row = |row: Row| {
            on_row(&row);
            rows.push(row);
        };
        let report = match outcome.world {
            World::Namespaces => namespaces::run(setting, options, &mut on_row)?,
            World::Memory { .. } => memory::run(setting, options, &mut on_row)?,
        };
        outcome.settings.push(report);
        if options.stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            break;
        }
    }
    Ok(outcome)
}

/// Joins two ports with the offloads of `setting`.
fn forward<D: Driver + 'static>(a: D, b: D, setting: Setting) -> Result<Session, DemoError> {
    let config = PortConfig {
        offload: setting.features(),
        ..PortConfig::default()
    };
    let [a, b] = [a, b].map(|driver| Port { driver, config });
    Session::between(a, b).start().map_err(DemoError::Start)
}

/// What was moved between two snapshots of a session.
struct Moved {
    frames: u64,
    wire_packets: u64,
    syscalls: u64,
    cpu: Duration,
}

impl Moved {
    fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let frames = |snapshot: &Snapshot| -> u64 {
            snapshot
                .ports
                .iter()
                .map(|port| port.rx_total().packets)
                .sum()
        };
        Self {
            frames: frames(after) - frames(before),
            wire_packets: after.ledger.received - before.ledger.received,
            syscalls: after.syscalls - before.syscalls,
            cpu: Duration::from_nanos(after.cpu_ns.saturating_sub(before.cpu_ns)),
        }
    }
}

/// The final account of a setting.
fn settle(setting: Setting, report: Report) -> Result<SettingReport, DemoError> {
    if let Some(error) = report.error {
        return Err(DemoError::Run(error));
    }
    let drops = report
        .devices
        .iter()
        .flatten()
        .map(|kernel| kernel.tx_dropped + kernel.rx_dropped);
    Ok(SettingReport {
        setting,
        kernel_drops: drops.sum(),
        snapshot: report.snapshot,
    })
}
