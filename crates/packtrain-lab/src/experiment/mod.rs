//! Experiments: the tables of five documents, repeated on this machine.
//!
//! An experiment is a TOML file: what a document claims and the table that it has,
//! a testbed, a workload, the settings that vary, the figures that are shown, and what is expected
//! of them. [`Experiment::read`] checks it. [`run`] makes the runs, [`judge()`] the verdicts, and
//! [`document::part`] the document. [`BUILT_IN`] are the experiments of the documents.

pub mod compare;
pub mod counters;
pub mod document;
mod file;
mod forward;
mod guests;
pub mod judge;
mod known;
mod load;
mod matrix;
mod runner;
mod send;
mod sources;
#[cfg(test)]
mod tests;
mod workload;

pub use file::{GuestSpec, Needs};
pub use forward::Forward;
pub use guests::{Guests, Printed};
pub use judge::judge;
pub use load::Load;
pub use matrix::{Cell, Expectation, Experiment, FileError, Pair, Place, Setup};
pub use runner::{Measure, Only, Options, QUICK_ROUNDS, Results, Run, RunError, run};
pub use send::Senders;
pub use sources::{SOURCES, Source};
pub use workload::{TOOLS, Workload};

macro_rules! files {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../experiments/", $name, ".toml"))),)*]
    };
}

/// The files of the built-in experiments, by the experiments' names.
pub const BUILT_IN: &[(&str, &str)] = files![
    "encap-limit",
    "netblast",
    "ping",
    "udp-large",
    "media-change",
    "bad-rx",
    "placement",
    "interrupts",
    "sensitivity",
    "tso-matrix",
    "ipoib",
    "lro-flows",
    "lro-sort",
    "lro-livelock",
    "tx-dispatch",
    "tx-throughput",
    "netblast-card",
    "ping-card",
    "interrupts-card",
    "udp-large-card",
    "media-change-card",
    "bad-rx-card",
    "encap-limit-card",
    "tx-dispatch-card",
    "regret",
    "regret-virtual",
];

/// The built-in experiment `name`.
pub fn built_in(name: &str) -> Option<Experiment> {
    let (_, text) = BUILT_IN.iter().find(|(other, _)| *other == name)?;
    match Experiment::read(&format!("<{name}>"), text) {
        Ok(experiment) => Some(experiment),
        Err(error) => panic!("a test reads every built-in experiment: {error}"),
    }
}
