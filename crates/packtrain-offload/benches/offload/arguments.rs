//! What to run.

use crate::loops::Work;
use packtrain_measure::options::{self, Common, Goals};
use std::path::PathBuf;

/// The options. `--quick` also leaves out what takes seconds for one round or needs gigabytes of
/// memory.
#[derive(Debug, clap::Parser)]
pub struct Arguments {
    /// Works whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT", action = clap::ArgAction::Append)]
    only: Vec<String>,
    /// Rounds of each work, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 21)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    pub rounds: usize,
    /// Those of every bench.
    #[command(flatten)]
    pub common: Common,
    /// Run this build; without it a build for this CPU is made and run, since C peers are compiled
    /// for it
    #[arg(long)]
    pub as_built: bool,
    /// Draw the growth with flows, segments and bytes
    #[arg(long, value_name = "DIRECTORY")]
    pub plots: Option<PathBuf>,
    /// Measure nothing, and draw the rows of this JSON document
    #[arg(long, value_name = "FILE")]
    pub rows: Option<PathBuf>,
    /// What of the goals decides.
    #[command(flatten)]
    pub goals: Goals,
}

impl Arguments {
    /// Whether `work` is among what to run.
    pub fn wants(&self, work: Work) -> bool {
        let name = work.row();
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}
