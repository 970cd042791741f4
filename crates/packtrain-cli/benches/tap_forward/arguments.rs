//! What to run.

use crate::forwarder::{Contestant, Offloads};
use packtrain_bench::options::number;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The text of `--help`.
pub const USAGE: &str = "\
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
    /// Rounds of each experiment.
    pub rounds: usize,
    /// Length of each transfer.
    pub time: Duration,
    /// What to run.
    pub experiments: Vec<Experiment>,
    /// Another packtrain to compare with.
    pub against: Option<PathBuf>,
    /// Where the rows go.
    pub json: Option<PathBuf>,
    /// Whether a goal that is missed is a failure.
    pub check: bool,
}

impl Arguments {
    /// Reads the command line; `None` when only help is wanted.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Self {
            rounds: 24,
            time: Duration::from_secs(1),
            experiments: Experiment::ALL.to_vec(),
            against: None,
            json: None,
            check: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--rounds" => arguments.rounds = number(&word, &value()?, 2.0, 10_000.0)? as usize,
                "--time" => {
                    let seconds = number(&word, &value()?, 0.1, 60.0)?;
                    arguments.time = Duration::from_secs_f64(seconds);
                }
                "--quick" => {
                    arguments.rounds = 4;
                    arguments.time = Duration::from_millis(400);
                }
                "--only" => {
                    let name = value()?;
                    let found = Experiment::ALL.into_iter().find(|one| one.name() == name);
                    let known = found.ok_or(format!("no experiment is called {name}"))?;
                    arguments.experiments = vec![known];
                }
                "--against" => arguments.against = Some(value()?.into()),
                "--json" => arguments.json = Some(value()?.into()),
                "--check" => arguments.check = true,
                "--help" | "-h" => return Ok(None),
                // What cargo gives to every bench.
                "--bench" => {}
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(Some(arguments))
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
