//! The session of one setting: how it begins, what it moves, and its account.

use super::error::DemoError;
use super::report::{Setting, SettingReport};
use packtrain::driver::{Driver, Wishes};
use packtrain::engine::{Report, Session, Snapshot};
use packtrain::plan::{Side, plan};
use std::time::Duration;

/// Joins two ports with the offloads of `setting`.
pub(super) fn forward<A: Driver, B: Driver>(
    a: A,
    b: B,
    setting: Setting,
) -> Result<Session<A, B>, DemoError>
where
    A::Rx: 'static,
    A::Tx: 'static,
    B::Rx: 'static,
    B::Tx: 'static,
{
    let wishes = Wishes {
        offload: setting.features(),
        ..Wishes::default()
    };
    let plan = plan(&Side::of(&a, wishes), &Side::of(&b, wishes))?;
    Ok(Session::forward(a, b, &plan, None)?)
}

/// What was moved between two snapshots of a session.
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

/// The final account of a setting.
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
