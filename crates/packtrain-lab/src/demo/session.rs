//! The session of one setting: its start, its counters, and its report.

use super::error::DemoError;
use super::report::{Setting, SettingReport};
use packtrain::driver::{Driver, Port, PortConfig};
use packtrain::engine::{Report, Session, Snapshot};
use std::time::Duration;

/// Joins two ports with the offloads of `setting`.
pub(super) fn forward<D: Driver + 'static>(
    a: D,
    b: D,
    setting: Setting,
) -> Result<Session, DemoError> {
    let config = PortConfig {
        offload: setting.features(),
        ..PortConfig::default()
    };
    let [a, b] = [a, b].map(|driver| Port { driver, config });
    Session::between(a, b).start().map_err(DemoError::Start)
}

/// The packets between two snapshots of a session.
pub(super) struct Moved {
    pub frames: u64,
    pub wire_packets: u64,
    pub syscalls: u64,
    pub cpu: Duration,
}

impl Moved {
    pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Self {
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

/// The report at the end of a setting.
pub(super) fn settle(setting: Setting, report: Report) -> Result<SettingReport, DemoError> {
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
