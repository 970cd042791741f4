//! One direction of a port: budgets, software offloads, fitting, packets in flight, counters.

mod coalesce;
mod fit;
pub mod ring;
mod rx;
mod segment;
mod tx;

pub use coalesce::Coalesce;
pub use fit::Fitted;
pub use rx::RxQueue;
pub use tx::TxQueue;
