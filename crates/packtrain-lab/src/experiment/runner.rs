//! Runs the settings of an experiment, round by round.

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::Value;

use super::load::Load;
use super::matrix::{Cell, Experiment, FileError, Setup};
use crate::error::ToolError;
use crate::tool::{Control, INTERRUPTED, Measured};

/// Rounds of a quick run.
pub const QUICK_ROUNDS: usize = 3;

/// How an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds: each has one run of every setting.
    pub rounds: usize,
    /// Shorter runs, fewer settings, and no verdict better than `direction`.
    pub quick: bool,
    /// How many different seeds the rounds take in turn, at least 1.
    pub seeds: u64,
    /// Where settings are run; `None` for all.
    pub only: Option<Only>,
}

/// Where settings are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// On this machine
    Kernel,
    /// On virtual machines, in virtual time: no figure is a measurement
    Sim,
    /// In a guest with emulated network cards
    Guest,
}

impl Options {
    /// Why a setting is not run; `None` if it is.
    pub fn leave_out(&self, cell: &Cell) -> Option<&'static str> {
        match self.only {
            _ if self.quick && cell.is_long => Some("a quick run leaves it out"),
            Some(Only::Kernel) if cell.is_virtual() || cell.is_in_guest() => {
                Some("--only kernel leaves it out")
            }
            Some(Only::Sim) if !cell.is_virtual() => Some("--only sim leaves it out"),
            Some(Only::Guest) if !cell.is_in_guest() => Some("--only guest leaves it out"),
            _ => None,
        }
    }
}

/// One run of one setting.
#[derive(Clone, Debug)]
pub struct Run {
    /// The cell of the experiment.
    pub cell: usize,
    /// The round, from 0.
    pub round: usize,
    /// What `{seed}` stood for.
    pub seed: u64,
    /// The machine's load when the run began.
    pub load: Load,
    /// The result. A run that failed has no figures, and a flag that says why.
    pub measured: Measured,
}

/// The runs of one experiment.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// In the order in which they were made.
    pub runs: Vec<Run>,
    /// Cells that this host cannot show, each with the reason.
    pub missing: Vec<(usize, String)>,
    /// Whether it was stopped before its end.
    pub stopped: bool,
    /// The first run that failed: the cell, and why.
    pub failed: Option<(usize, ToolError)>,
}

impl Results {
    /// The rounds that were begun.
    pub fn rounds(&self) -> usize {
        let rounds = self.runs.iter().map(|run| run.round + 1);
        rounds.max().unwrap_or(0)
    }

    /// Why this host cannot show a cell.
    pub fn why_missing(&self, cell: usize) -> Option<&str> {
        let mut missing = self.missing.iter();
        let found = missing.find(|(other, _)| *other == cell);
        found.map(|(_, why)| why.as_str())
    }
}

/// Why an experiment has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The file is wrong.
    File(FileError),
    /// A setting is wrong, in a way that only a run finds, or the first setting cannot be run.
    Setting {
        /// The experiment and the settings of the run.
        at: String,
        /// What is wrong.
        error: ToolError,
    },
    /// A setting was requested and was not in force; in a line.
    NotTaken(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Setting { at, error } => write!(f, "{at}: {error}"),
            Self::NotTaken(line) => f.write_str(line),
        }
    }
}

impl core::error::Error for RunError {}

/// Performs the run of a setup: [`Setup::run`], or what a test has in its place.
pub type Measure<'a> = dyn FnMut(&Setup, &Control<'_>) -> Result<Measured, ToolError> + 'a;

impl Setup {
    /// Runs the tool.
    ///
    /// # Errors
    /// [`ToolError`]
    pub fn run(&self, control: &Control<'_>) -> Result<Measured, ToolError> {
        self.workload.run(&self.testbed, self.memory, control)
    }
}

/// Runs each setting once in each round. A round begins with the setting after the one with which
/// the round before it began, so that no setting is always the first one. A short round goes before
/// the first; its runs are dropped.
///
/// A run that fails is kept with a flag. If the warm-up of the first setting fails twice, the
/// experiment ends: the others would fail for the same reason, each after its own time. If the
/// host lacks what a run needs, its cell is missing. A stop keeps the runs that were made.
///
/// # Errors
/// [`RunError`]
pub fn run(
    experiment: &Experiment,
    options: &Options,
    measure: &mut Measure<'_>,
    control: &Control<'_>,
) -> Result<Results, RunError> {
    let mut results = Results::default();
    let mut cells = Vec::new();
    // Affinity mask and cgroup quota.
    let here = thread::available_parallelism().map_or(1, NonZero::get);
    for (index, cell) in experiment.cells.iter().enumerate() {
        let cpus = cell.needs.cpus;
        if options.leave_out(cell).is_some() {
            continue;
        }
        if cpus > here && !cell.is_virtual() && !cell.is_in_guest() {
            let why = format!("it needs {cpus} CPUs and this process may use {here}");
            results.missing.push((index, why));
        } else {
            cells.push(index);
        }
    }
    let mut made = Duration::ZERO;
    // Round 0 is the warm-up, which also finds what the host lacks.
    for round in 0..=options.rounds {
        let is_warm_up = round == 0;
        for turn in 0..cells.len() {
            let cell = cells[(round + turn) % cells.len()];
            let what = if is_warm_up {
                format!("warm-up {} of {}", turn + 1, cells.len())
            } else {
                progress(results.runs.len(), cells.len() * options.rounds, made)
            };
            let at = format!("{}: {}", experiment.name(), experiment.label(cell));
            let say = |line: &str| (control.progress)(&format!("{at}: {what} {line}"));
            let control = Control {
                stop: Arc::clone(&control.stop),
                progress: &say,
            };
            say("");
            let seed = round.saturating_sub(1) as u64 % options.seeds.max(1) + 1;
            let setup = experiment
                .setup(cell, seed, options.quick || is_warm_up)
                .map_err(RunError::File)?;
            let (load, started) = (Load::now(), Instant::now());
            let mut attempt = || match control.stopped() {
                true => Err(ToolError::Cancelled),
                false => match measure(&setup, &control) {
                    Ok(measured) if measured.flags.iter().any(|flag| flag == INTERRUPTED) => {
                        Err(ToolError::Cancelled)
                    }
                    outcome => outcome,
                },
            };
            let is_first = is_warm_up && turn == 0;
            let outcome = match attempt() {
                Err(ToolError::Failed(_)) if is_first => attempt(),
                outcome => outcome,
            };
            let measured = match outcome {
                Ok(measured) => {
                    check(&at, &setup, &measured)?;
                    measured
                }
                Err(ToolError::Cancelled | ToolError::InWarmUp(_)) => {
                    results.stopped = true;
                    return Ok(results);
                }
                Err(error @ ToolError::Usage(_)) => return Err(RunError::Setting { at, error }),
                Err(ToolError::Missing(why)) if is_warm_up => {
                    results.missing.push((cell, why));
                    continue;
                }
                // Lost or damaged bytes, or packets that are not accounted for, are no noise.
                Err(error @ ToolError::Check(_)) if is_warm_up => {
                    results.failed.get_or_insert((cell, error));
                    continue;
                }
                Err(error @ ToolError::Failed(_)) if is_first => {
                    return Err(RunError::Setting { at, error });
                }
                Err(_) if is_warm_up => continue,
                Err(error) => {
                    let flags = vec![format!("the run failed: {error}")];
                    results.failed.get_or_insert((cell, error));
                    Measured {
                        flags,
                        ..Measured::default()
                    }
                }
            };
            if !is_warm_up {
                made += started.elapsed();
                results.runs.push(Run {
                    cell,
                    round: round - 1,
                    seed,
                    load,
                    measured,
                });
            }
        }
        cells.retain(|cell| results.why_missing(*cell).is_none());
    }
    Ok(results)
}

/// Compares the settings that were read back with those of `[check]`. A name without its `_a` or
/// `_b` is about both ports.
fn check(at: &str, setup: &Setup, measured: &Measured) -> Result<(), RunError> {
    let settings = &measured.settings;
    for (name, wanted) in &setup.check {
        let names = match settings.contains_key(name) {
            true => vec![name.clone()],
            false => [format!("{name}_a"), format!("{name}_b")]
                .into_iter()
                .filter(|name| settings.contains_key(name))
                .collect(),
        };
        let not_taken = |line: String| Err(RunError::NotTaken(format!("{at}: {line}")));
        if names.is_empty() {
            let what = format!("{name} is to be {wanted}, and no such setting is read back");
            return not_taken(what);
        }
        for name in names {
            let found = match &settings[&name] {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            if found != *wanted {
                return not_taken(format!("{name} did not take {wanted}: it is {found}"));
            }
        }
    }
    Ok(())
}

/// Which run is the next one, and how long the rest takes if it is as slow as those `made`.
fn progress(done: usize, all: usize, made: Duration) -> String {
    let run = format!("run {} of {all}", done + 1);
    if done == 0 {
        return run;
    }
    let left = made.mul_f64((all - done) as f64 / done as f64);
    format!("{run}, {} left", minutes(left))
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
