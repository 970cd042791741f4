//! What to run.

use crate::forwarder::{Contestant, Offloads};
use packtrain_measure::options::{self, Timed};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The text of `--help`.
const USAGE: &str = "\
usage: cargo bench -p packtrain-cli --bench tap_forward -- [OPTIONS]
  --rounds N         pairs of each experiment [default: 24; every order and direction in 12]
  --time SECONDS     length of each transfer [default: 1]
  --quick            4 rounds of 0.4 s: a look, no verdict to rely on
  --only NAME        one experiment: offloaded, unequal, coalesce
  --against PATH     another packtrain program in the place of the C forwarder with two threads
  --json FILE        where the rows go [default: bench/tap_forward.json in the target directory]
  --check            exit with 1 if a goal is not reproduced
  --help             this";

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The options.
#[derive(Debug)]
pub struct Arguments {
    /// Rounds, time of each transfer, and where the rows go.
    pub timed: Timed,
    /// What to run.
    pub experiments: Vec<Experiment>,
    /// Another packtrain to compare with.
    pub against: Option<PathBuf>,
    /// Whether a goal that is missed is a failure.
    pub check: bool,
}

impl Arguments {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// The status to exit with.
    pub fn read() -> Result<Self, ExitCode> {
        let arguments = Self {
            timed: Timed::new(24),
            experiments: Experiment::ALL.to_vec(),
            against: None,
            check: false,
        };
        options::read("tap_forward", USAGE, arguments, |arguments, word| {
            match word.name() {
                "--only" => {
                    let name = word.value()?;
                    let found = Experiment::ALL.into_iter().find(|one| one.name() == name);
                    let known = found.ok_or(format!("no experiment is called {name}"))?;
                    arguments.experiments = vec![known];
                }
                "--against" => arguments.against = Some(word.value()?.into()),
                "--check" => arguments.check = true,
                _ => return arguments.timed.set(word),
            }
            Ok(true)
        })
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
