//! Counters: 64 bits, one writer each, cheap enough never to be turned off.

mod counter;
mod drop;
mod trouble;

pub use counter::{Counter, RxCounters, RxSnapshot, TxCounters, TxSnapshot};
pub use drop::{DropCounters, DropReason, DropSnapshot, Stall};
pub use trouble::{Trouble, TroubleReport};
