//! Load from ordinary kernel sockets, in this process, checked byte for byte.
//!
//! A [`Transfer`] runs from one host to another, and reports what was sent, what arrived, and
//! whether the two are equal. Its threads use blocking `send` and `recv`
//! on sockets that were made inside the namespaces. Each wait is bounded: a transfer
//! without progress ends with [`LabError::Stalled`], one that takes too long with
//! [`LabError::TimeLimit`].

pub mod payload;
mod tcp;
mod transfer;
pub(crate) mod udp;
mod watch;

use crate::error::LabError;
use crate::topology::Host;
use watch::Way;
pub(crate) use watch::is_pause;

pub use crate::ip::IpVersion;
pub use payload::Datagrams;
pub use tcp::congestion_control;
pub use transfer::{
    Amount, Calls, Protocol, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, Transfer, TransferReport,
};

impl Transfer {
    /// Runs the transfer and waits for its end. A forwarder must join the hosts.
    ///
    /// Lost, repeated or damaged data is not an error but a report without
    /// [`hash_ok`](TransferReport::hash_ok).
    ///
    /// # Errors
    /// [`LabError::Setting`], [`LabError::Stalled`], [`LabError::TimeLimit`],
    /// [`LabError::Cancelled`], or [`LabError::Os`] from a socket call.
    pub fn run(&self, from: &Host, to: &Host) -> Result<TransferReport, LabError> {
        self.check()?;
        let way = Way {
            from: &from.netns,
            to: &to.netns,
            address: to.ip(self.ip),
        };
        match self.protocol {
            Protocol::Tcp => tcp::run(self, &way),
            Protocol::Udp => udp::run(self, &way),
        }
    }
}
