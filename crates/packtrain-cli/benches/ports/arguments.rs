//! What to run.

use crate::paths::{self, Path};
use packtrain_measure::options::{Common, Timed};

/// The options.
#[derive(Debug, clap::Parser)]
pub struct Arguments {
    /// Rounds of each path, 1 to 10000 [with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    #[arg(default_value_t = 7, default_value_if("quick", "true", "1"))]
    pub rounds: u16,
    /// Those of every bench.
    #[command(flatten)]
    pub common: Common,
    /// The length of each measurement.
    #[command(flatten)]
    pub timed: Timed,
    /// Paths whose names contain NAME; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Exit with 1 if a goal is not reproduced or a peer is missing
    #[arg(long)]
    pub check: bool,
}

impl Arguments {
    /// The paths to run.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = paths::all();
        let wanted = |path: &Path| self.only.iter().any(|name| path.name.contains(name));
        paths.retain(|path| self.only.is_empty() || wanted(path));
        paths
    }

    /// Seconds after which packtrain ends by itself, should the bench be killed.
    pub fn lifetime_s(&self) -> u64 {
        120 + 8 * self.timed.time.as_secs()
    }
}
