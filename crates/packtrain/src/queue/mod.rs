//! The RX and TX queues of a port: budgets, software offloads, fit, packets in flight, the ring.

mod coalesce;
mod fit;
pub mod ring;
mod rx;
mod segment;
mod tx;

pub use coalesce::CoalesceStage;
pub use rx::RxQueue;
pub use tx::{Sent, TxQueue};

/// `packet` for a driver, for a bench that drives a device without the framework. There is no fit:
/// the caller ensures that the packet is within the device's capabilities.
#[cfg(feature = "internals")]
pub const fn by_hand(packet: &mut crate::packet::Packet) -> crate::driver::TxPacket<'_> {
    crate::driver::TxPacket::fitted(packet)
}
