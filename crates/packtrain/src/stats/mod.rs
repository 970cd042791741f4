//! Counters: 64 bits, one writer each, cheap enough never to be turned off.

mod counter;
mod drop;

pub use counter::{
    Counter, RxCounters, RxSnapshot, SubmitCounters, SubmitSnapshot, TxCounters, TxSnapshot,
};
pub use drop::{DropCounters, DropReason, DropSnapshot, Stall};
