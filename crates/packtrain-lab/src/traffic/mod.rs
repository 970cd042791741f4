//! Load from ordinary kernel sockets, in this process, checked byte for byte unless its payload is
//! plain.
//!
//! A [`Transfer`] runs from one host to another, and reports what was sent, what arrived, and
//! whether the two are equal. An [`Opened`] transfer also counts what its threads have done while
//! they run. Its threads use blocking `send` and `recv`
//! on sockets that were made inside the namespaces. Each wait is bounded: a transfer
//! without progress ends with [`LabError::Stalled`], one that takes too long with
//! [`LabError::TimeLimit`].

mod exchange;
mod gauge;
mod in_force;
mod limits;
mod open;
pub(crate) mod pace;
pub mod payload;
pub(crate) mod sequence;
mod streams;
mod tcp;
mod transfer;
pub(crate) mod udp;

use crate::error::LabError;
use crate::topology::Host;
pub(crate) use limits::is_pause;
pub(crate) use transfer::range;

pub use crate::ip::IpVersion;
pub use gauge::{Done, Sample};
pub use in_force::InForce;
pub use open::Opened;
pub use payload::Datagrams;
pub use tcp::congestion_control;
pub use transfer::{
    Amount, Calls, Exchange, Pace, Payload, Protocol, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX,
    Transfer, TransferReport,
};

impl Transfer {
    /// Runs the transfer and waits for its end. A forwarder must join the hosts.
    ///
    /// Lost, repeated or damaged data is not an error but a report without
    /// [`hash_ok`](TransferReport::hash_ok).
    ///
    /// # Errors
    /// As [`open`](Self::open), [`LabError::TimeLimit`], [`LabError::Cancelled`], or
    /// [`LabError::Answer`] if a thread did not stay on its CPU.
    pub fn run(&self, from: &Host, to: &Host) -> Result<TransferReport, LabError> {
        self.open(from, to)?.run()
    }
}
