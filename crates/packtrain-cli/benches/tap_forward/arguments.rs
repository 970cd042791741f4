//! What to run.

use crate::forwarder::{Contestant, Offloads};
use packtrain_measure::options::{self, Common, Timed};
use std::path::{Path, PathBuf};

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Experiment {
    /// Every offload on both sides.
    Offloaded,
    /// None on one side.
    Unequal,
    /// None on one side beside none on either: what merging and cutting in software are worth.
    Coalesce,
}

impl Experiment {
    const ALL: [Self; 3] = [Self::Offloaded, Self::Unequal, Self::Coalesce];

    /// As in rows and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offloaded => "offloaded",
            Self::Unequal => "unequal",
            Self::Coalesce => "coalesce",
        }
    }
}

/// The options. 12 rounds have every order and direction.
#[derive(Debug, clap::Parser)]
pub struct Arguments {
    /// Pairs of each experiment, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 24)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    pub rounds: usize,
    /// Those of every bench.
    #[command(flatten)]
    pub common: Common,
    /// The length of each transfer.
    #[command(flatten)]
    pub timed: Timed,
    /// One experiment
    #[arg(long, value_name = "NAME", value_enum)]
    only: Option<Experiment>,
    /// Another packtrain program in the place of the C forwarder with two threads
    #[arg(long, value_name = "PATH")]
    pub against: Option<PathBuf>,
    /// Exit with 1 if a goal is not reproduced
    #[arg(long)]
    pub check: bool,
}

impl Arguments {
    /// What to run.
    pub fn experiments(&self) -> Vec<Experiment> {
        self.only
            .map_or_else(|| Experiment::ALL.to_vec(), |one| vec![one])
    }

    /// The forwarders: packtrain first, and those that it is compared with.
    pub fn contestants(
        &self,
        experiment: Experiment,
        packtrain: &Path,
        baseline: &Path,
    ) -> Vec<Contestant> {
        let ours = |name, path: &Path, offloads| Contestant::Packtrain {
            name,
            path: path.to_owned(),
            offloads,
        };
        let offloads = match experiment {
            Experiment::Offloaded => Offloads::Both,
            Experiment::Unequal => Offloads::Second,
            Experiment::Coalesce => {
                return vec![
                    ours("packtrain", packtrain, Offloads::Second),
                    ours("packtrain-off", packtrain, Offloads::Neither),
                ];
            }
        };
        let theirs = |threads| Contestant::Baseline {
            path: baseline.to_owned(),
            threads,
            vnet: offloads == Offloads::Both,
        };
        let second = match &self.against {
            Some(path) => ours("packtrain-other", path, offloads),
            None => theirs(2),
        };
        vec![ours("packtrain", packtrain, offloads), theirs(1), second]
    }
}
