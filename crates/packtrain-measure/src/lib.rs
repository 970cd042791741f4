//! What packtrain's benches and experiments measure and report with: clocks, statistics, verdicts,
//! reports, charts.
//!
//! A figure is the median over rounds, with a bootstrap interval of 95 % ([`statistics`]). A goal
//! or a claim is met if the whole interval meets it ([`verdict`]).

pub mod chart;
pub mod claim;
pub mod clock;
pub mod document;
pub mod host;
pub mod key;
pub mod keys;
pub mod markup;
pub mod native;
pub mod numbers;
pub mod options;
pub mod random;
pub mod report;
pub mod stack;
pub mod statistics;
pub mod verdict;

pub use claim::Claim;
pub use key::Key;
pub use statistics::Estimate;
pub use verdict::{Expected, Verdict};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
