//! What to run.

use crate::loops::Work;
use packtrain_measure::{native, options};
use std::path::PathBuf;
use std::process::ExitCode;

/// The text of `--help`.
const USAGE: &str = "\
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
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// The status to exit with.
    pub fn read() -> Result<Self, ExitCode> {
        let arguments = Self {
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
        options::read("offload", USAGE, arguments, |arguments, word| {
            match word.name() {
                "--only" => arguments.only.push(word.value()?),
                "--rounds" => arguments.rounds = word.number(1, 10_000)?,
                "--quick" => (arguments.quick, arguments.rounds) = (true, 3),
                native::AS_BUILT => arguments.as_built = true,
                "--json" => arguments.json = Some(word.value()?.into()),
                "--plots" => arguments.plots = Some(word.value()?.into()),
                "--rows" => arguments.rows = Some(word.value()?.into()),
                "--check" => arguments.check = true,
                "--check-half" => arguments.check_half = true,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    /// Whether `work` is among what to run.
    pub fn wants(&self, work: Work) -> bool {
        let name = work.row();
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }
}
