//! The measured loops of packtrain's offloads, and how they are compared with others.
//!
//! [`ours`] implements each kind of [`Work`] with packtrain; [`contest`] alternates it with each
//! peer. How figures are computed:
//!
//! - A *sample* is one side's time for one work, about a millisecond, on fresh data: branch
//!   predictors learn small fixed inputs.
//! - Only the work is timed. Making packets, and freeing the output, happens outside; the cost of
//!   reading the clock is measured, and subtracted from both sides alike
//!   ([`packtrain_measure::clock`]).
//! - A *round* has one sample of every side, one right after the other, in turning order. Figures
//!   are compared within a round only.
//! - A sample during which the thread was preempted is taken again.
//! - The ratio is the median over the rounds, with a bootstrap interval of 95 %
//!   ([`packtrain_measure::statistics`]). A goal is met if the whole interval meets it
//!   ([`packtrain_measure::verdict`]).

pub mod coalesce;
pub mod contest;
pub mod frames;
pub mod keys;
pub mod memory;
pub mod ours;
pub mod pieces;
pub mod plot;
mod prefetch;
pub mod rows;
pub mod segments;
pub mod sizes;
pub mod trains;
pub mod work;

pub use contest::{Contest, Goal, Sample, Side};
pub use work::{Place, Work};
