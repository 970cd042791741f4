//! The transfers of a case, and their interfaces.

use packtrain_lab::topology::{Host, TwoHosts};
use packtrain_lab::traffic::{Amount, Transfer, TransferReport};
use packtrain_lab::{LabError, netns};
use std::time::Duration;

/// Of the interfaces.
pub const NAMES: [&str; 2] = ["grid-a", "grid-b"];
/// Longest wait until counts are equal: a busy machine may be slow, and only a hang is a failure.
pub const TIMEOUT: Duration = Duration::from_secs(60);
const TCP_BYTES: u64 = 3 << 20;

pub fn ways(hosts: &TwoHosts) -> [(&Host, &Host); 2] {
    [(&hosts.left, &hosts.right), (&hosts.right, &hosts.left)]
}

/// The TCP transfers of every case.
pub fn tcp_transfers(hosts: &TwoHosts, streams: u32) -> Result<Vec<TransferReport>, LabError> {
    let mut reports = Vec::new();
    for &ip in netns::ip_versions() {
        for (from, to) in ways(hosts) {
            let transfer = Transfer::tcp(ip, Amount::Bytes(TCP_BYTES));
            reports.push(transfer.streams(streams).run(from, to)?);
        }
    }
    Ok(reports)
}
