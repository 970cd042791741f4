//! The RX and TX queues of a port: budgets, software offloads, fit, packets in flight, the ring.

mod coalesce;
mod fit;
pub mod ring;
mod rx;
mod segment;
mod tx;

pub use coalesce::Coalesce;
pub use fit::Fitted;
pub use rx::RxQueue;
pub use tx::{Sent, TxQueue};
