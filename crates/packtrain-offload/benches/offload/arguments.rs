//! What to run.

use packtrain_bench::{Work, native};
use std::path::PathBuf;

/// The text of `--help`.
pub const USAGE: &str = "\
usage: cargo bench -p packtrain-offload --features peers --bench offload -- [OPTIONS]
  --only TEXT        works whose name contains this; may be repeated
  --rounds N         rounds of each work [default: 21]
  --quick            3 rounds, without what takes seconds for one or needs gigabytes of memory:
                     a look, no verdict
  --as-built         runs this build; without it a build for this CPU is made and run, since C
                     peers are compiled for it
  --json FILE        where the rows go [default: bench/offload.json in the target directory]
  --plots DIRECTORY  draws the growth with flows, segments and bytes
  --rows FILE        measures nothing, and draws the rows of this JSON document
  --check            exit with 1 if a goal is not reproduced or a peer is missing
  --check-half       exit with 1 if a median does not reach half its goal
  --help             this";

/// The options.
#[derive(Debug)]
pub struct Arguments {
    /// Parts of names of works; all if there is none.
    only: Vec<String>,
    /// Rounds of each work.
    pub rounds: usize,
    /// Only a look.
    pub quick: bool,
    /// No build for this CPU.
    pub as_built: bool,
    /// Where the rows go.
    pub json: Option<PathBuf>,
    /// Where charts go.
    pub plots: Option<PathBuf>,
    /// Rows to draw in the place of new ones.
    pub rows: Option<PathBuf>,
    /// Whether a goal that is missed is a failure.
    pub check: bool,
    /// Whether half a goal that is missed is a failure.
    pub check_half: bool,
}

impl Arguments {
    /// Reads the command line; `None` when only help is wanted.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Self {
            only: Vec::new(),
            rounds: 21,
            quick: false,
            as_built: false,
            json: None,
            plots: None,
            rows: None,
            check: false,
            check_half: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--only" => arguments.only.push(value()?),
                "--rounds" => {
                    let text = value()?;
                    arguments.rounds = text
                        .parse()
                        .ok()
                        .filter(|rounds| (1..=10_000).contains(rounds))
                        .ok_or(format!("--rounds is 1 to 10000, not {text}"))?;
                }
                "--quick" => (arguments.quick, arguments.rounds) = (true, 3),
                native::AS_BUILT => arguments.as_built = true,
                "--json" => arguments.json = Some(value()?.into()),
                "--plots" => arguments.plots = Some(value()?.into()),
                "--rows" => arguments.rows = Some(value()?.into()),
                "--check" => arguments.check = true,
                "--check-half" => arguments.check_half = true,
                "--help" | "-h" => return Ok(None),
                // What cargo gives to every bench.
                "--bench" => {}
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(Some(arguments))
    }

    /// Whether `work` is among what to run.
    pub fn wants(&self, work: Work) -> bool {
        let name = work.row();
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}
