//! What GRO, LRO and interrupt moderation make of captures of any size.
//!
//! [`run`] reads [`Files`] once, in the order of time, and runs each configuration of a [`Grid`] on
//! it: side by side in threads, with the results of a run alone. [`Parts`] divides a capture so
//! that its parts are run anywhere, in any order, and add up to the whole.
//!
//! Memory does not depend on the captures: batches of packets, and what each configuration holds.

#[cfg(feature = "parquet")]
pub mod dataset;
mod error;
mod files;
mod grid;
mod part;
mod run;
mod stoppable;
mod summary;
#[cfg(feature = "parquet")]
pub mod tables;

pub use error::Error;
pub use files::Files;
pub use grid::{Grid, settings};
pub use part::{Part, Parts};
pub use run::{Done, Ignore, Progress, Settings, Sink, run};
pub use stoppable::{Interrupt, Stoppable};
pub use summary::{configuration, figures, input, summary};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
