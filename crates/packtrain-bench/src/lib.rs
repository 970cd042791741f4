//! The measured loops of packtrain's offloads, and the harness that compares them with others.
//! Experiments use its statistics and verdicts.
//!
//! `cargo bench -p packtrain-offload --bench offload` measures packtrain's own loops, and with
//! `--features peers` also those of other libraries. [`ours`] implements each kind of [`Work`] with
//! packtrain; [`contest`] alternates it with each peer. How figures are computed:
//!
//! - A *sample* is one side's time for one work, about a millisecond, on fresh data: branch
//!   predictors learn small fixed inputs.
//! - Only the work is timed. Making packets, and freeing the output, happens outside; the cost of
//!   reading the clock is measured, and subtracted from both sides alike ([`clock`]).
//! - A *round* has one sample of every side, one right after the other, in turning order. Figures
//!   are compared within a round only.
//! - A sample during which the thread was preempted is taken again.
//! - The ratio is the median over the rounds, with a bootstrap interval of 95 %
//!   ([`statistics`]). A goal is met if the whole interval meets it ([`verdict`]).

pub mod claim;
pub mod clock;
pub mod coalesce;
pub mod contest;
pub mod frames;
pub mod keys;
pub mod memory;
pub mod native;
pub mod options;
pub mod ours;
pub mod pieces;
pub mod plot;
mod prefetch;
pub mod random;
pub mod report;
pub mod segments;
pub mod sizes;
pub mod stack;
pub mod statistics;
pub mod trains;
pub mod verdict;
pub mod work;

pub use claim::Claim;
pub use contest::{Contest, Goal, Peer, Sample, Side};
pub use sizes::SEGMENTS;
pub use verdict::{Expected, Verdict};
pub use work::{Mode, Place, Work};
