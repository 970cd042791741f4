//! Counters of 64 bits with one writer each. They are always on.

mod cell;
mod counter;
mod drop;
mod histogram;
mod trouble;

pub use cell::Counter;
pub use counter::{
    NoBatches, QueueId, RxBatches, RxBatchesSnapshot, RxCounters, RxSnapshot, SubmitCounters,
    SubmitSnapshot, TxBatches, TxBatchesSnapshot, TxCounters, TxSnapshot,
};
pub use drop::{DropCounters, DropReason, DropSnapshot, Stall};
pub use histogram::{Histogram, HistogramSnapshot, SharedHistogram};
pub use trouble::{Trouble, TroubleLog, TroubleReport};
