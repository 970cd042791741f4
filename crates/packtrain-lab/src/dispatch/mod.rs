//! Who should drain a TX queue on this machine, and how near the adaptive settings come to the best
//! of all fixed ones.
//!
//! A *cell* is a situation: a port, so many producers, frames of one size, a load. In each cell
//! every fixed setting of dispatch, idle and placement runs, and the adaptive one, with real
//! threads of an application that send through [`TxHandle`](packtrain::engine::TxHandle)s beside
//! the port's worker. A *repeat* runs all cells, in each all settings in an order of its own
//! ([`schedule`]), so that what is compared was measured at about the same time. The *regret*
//! of the adaptive setting is what it loses against the best fixed one ([`regret`]). Where that is
//! more than it may be, there is a second look.

mod again;
mod claims;
pub mod load;
pub mod meter;
mod ports;
mod producer;
pub mod regret;
mod run;
pub mod schedule;
mod sweep;
#[cfg(test)]
mod tests;
mod threads;

pub use claims::{LATENCY_REGRET_MAX, SWITCHES_PER_FRAME_MAX, THROUGHPUT_REGRET_MAX, claims};
pub use producer::FRAME_BYTES_MIN;
pub use run::Sample;

use crate::error::LabError;
use packtrain::driver::DeviceError;
use packtrain::engine::{Ledger, RunError, Settings};
use packtrain::plan::Incompatible;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::placement::Placement;
use packtrain::policy::topology::{CpuId, CpuList};
use packtrain::stats::DropSnapshot;
use packtrain_bench::{clock, statistics};
use ports::Ports;
use regret::Regret;
use schedule::{Cell, Grid, PortKind};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use sweep::Sweep;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// In which situations.
    pub grid: Grid,
    /// The `n` of each `threshold(n)`.
    pub thresholds: Vec<u32>,
    /// How often everything is run: at least 2, since one half chooses for the other.
    pub repeats: usize,
    /// How often what missed its goal is run again, beside the settings that were the best ones;
    /// fewer than 2 is never.
    pub again: usize,
    /// The time that counts, of each run; four times as long in the second look.
    pub window: Duration,
    /// The time before it, of each run; three times as long where several producers send as fast as
    /// they can.
    pub warm_up: Duration,
    /// Of the order in which settings run.
    pub seed: u64,
    /// When set to true the bench ends soon, with the repeats that it has.
    pub stop: Arc<AtomicBool>,
}

/// What is told while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A port cannot be had here, for this reason.
    LeftOut(PortKind, &'a str),
    /// What the ports take is known; so many runs follow, which take about so long.
    Begin(usize, Duration),
    /// So many of them are done.
    Done(usize),
    /// So many situations are looked at again: so many runs more, which are counted from 0 and take
    /// about so long.
    Again(usize, usize, Duration),
}

/// A placement, and what it comes to on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The setting.
    pub placement: Placement,
    /// The CPU of the worker; `None` where the scheduler chooses.
    pub cpu: Option<CpuId>,
    /// Why.
    pub why: String,
    /// The placement before it that comes to the same, and is measured instead.
    pub same_as: Option<Placement>,
}

/// One setting in one cell.
#[derive(Clone, Debug)]
pub struct Row {
    /// The situation.
    pub cell: Cell,
    /// The setting.
    pub settings: Settings,
    /// Packets a second that were offered; `None` for as many as it takes.
    pub offered: Option<u64>,
    /// One for each repeat that is complete.
    pub samples: Vec<Sample>,
    /// Those of the second look, if the row was part of one.
    pub again: Vec<Sample>,
    /// On the adaptive row: what it loses, in throughput or in the 99th percentile of latency; by
    /// the second look if there was one.
    pub regret: Option<Regret>,
    /// What it lost in the first look, if there was a second one.
    pub first: Option<Regret>,
}

impl Row {
    /// Whether this is the setting that is compared with the others.
    #[must_use]
    pub fn is_adaptive(&self) -> bool {
        self.settings.dispatch == Dispatch::Adaptive
    }

    /// The runs of both looks.
    pub fn all_samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().chain(&self.again)
    }

    /// A figure of each repeat.
    pub fn figures(&self, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(figure).collect()
    }

    /// The median of a figure over the repeats; 0 where none is complete.
    pub fn median(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        statistics::median(&self.figures(figure))
    }

    /// What decides in this cell, of each repeat: kpps, or where packets are due at fixed times the
    /// 99th percentile of latency in microseconds.
    #[must_use]
    pub fn judged(&self) -> Vec<f64> {
        self.judged_of(&self.samples)
    }

    /// The same of each repeat of the second look.
    #[must_use]
    pub fn judged_again(&self) -> Vec<f64> {
        self.judged_of(&self.again)
    }

    fn judged_of(&self, samples: &[Sample]) -> Vec<f64> {
        let figure: fn(&Sample) -> f64 = match self.cell.load.is_paced() {
            true => |sample| sample.latency_us(0.99),
            false => Sample::kpps,
        };
        samples.iter().map(figure).collect()
    }
}

/// What the bench came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By cell; in each the fixed settings, then the adaptive one.
    pub rows: Vec<Row>,
    /// Ports that could not be had, and why.
    pub left_out: Vec<(PortKind, String)>,
    /// What placements come to here.
    pub places: Vec<Place>,
    /// Repeats that are complete.
    pub repeats: usize,
    /// Those of the second look; 0 where there was nothing to look at again.
    pub again: usize,
    /// Runs, with those that found out what the ports take.
    pub runs: usize,
    /// Runs that were taken again, since others had the machine meanwhile.
    pub retaken: usize,
    /// The runs whose account does not close: what they were.
    pub unclosed: Vec<String>,
    /// The sum of all runs.
    pub ledger: Ledger,
    /// What was lost in all runs.
    pub drops: DropSnapshot,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

impl Outcome {
    /// The rows of each cell.
    pub fn cells(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.cell == b.cell)
    }

    fn book(&mut self, cell: &Cell, settings: &Settings, sample: &Sample) {
        self.runs += 1;
        self.ledger.merge(&sample.ledger);
        self.drops.merge(&sample.drops);
        if !sample.closed() {
            let ledger = sample.ledger;
            self.unclosed.push(format!(
                "{cell}, {}: {} came in, {} left, {} are held",
                named(settings),
                ledger.inflow(),
                ledger.outflow(),
                ledger.held
            ));
        }
    }
}

/// A setting in one line.
#[must_use]
pub fn named(settings: &Settings) -> String {
    let Settings {
        dispatch,
        idle,
        placement,
        moderation: _,
        priority: _,
        senders: _,
    } = settings;
    format!("{dispatch}, {idle}, {placement}")
}

/// Why the bench could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// The laboratory: namespaces, threads.
    Lab(LabError),
    /// A port.
    Device(DeviceError),
    /// A port, while it ran.
    Run(RunError),
    /// The port cannot be joined with the other one.
    Plan(Incompatible),
    /// A producer could not send.
    Producer(String),
    /// None of the ports can be had here: why not, of each.
    NoPort(String),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lab(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Plan(error) => error.fmt(f),
            Self::Producer(why) => write!(f, "a producer cannot send: {why}"),
            Self::NoPort(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<LabError> for BenchError {
    fn from(error: LabError) -> Self {
        Self::Lab(error)
    }
}

impl From<DeviceError> for BenchError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Incompatible> for BenchError {
    fn from(error: Incompatible) -> Self {
        Self::Plan(error)
    }
}

/// Runs the bench; `tell` is told how it goes.
///
/// # Errors
///
/// [`BenchError`], when a port cannot be had or fails. A run whose account does not close is no
/// error here but in [`Outcome::unclosed`].
pub fn run(options: &Options, mut tell: impl FnMut(Progress<'_>)) -> Result<Outcome, BenchError> {
    let mut outcome = Outcome {
        places: places(options.grid.producers.iter().copied().min().unwrap_or(0)),
        ..Outcome::default()
    };
    let mut ports = Ports::default();
    let mut cells = Vec::new();
    for &port in &options.grid.ports {
        match ports.prepare(port) {
            Ok(()) => cells.extend(options.grid.cells(port)),
            Err(error) => {
                let why = error.to_string();
                tell(Progress::LeftOut(port, &why));
                outcome.left_out.push((port, why));
            }
        }
    }
    if cells.is_empty() {
        let whys = outcome.left_out.iter();
        let whys: Vec<_> = whys.map(|(port, why)| format!("{port}: {why}")).collect();
        return Err(BenchError::NoPort(whys.join("; ")));
    }
    let measured = outcome.places.iter();
    let measured = measured.filter(|place| place.same_as.is_none());
    let measured: Vec<_> = measured.map(|place| place.placement.clone()).collect();
    let settings = schedule::settings(&options.thresholds, &measured);

    let sweep = Sweep {
        options,
        ports,
        cells,
        settings,
    };
    sweep.run(&mut outcome, &mut tell)?;
    Ok(outcome)
}

/// What `none`, `auto` and a list come to on this machine, with as many `senders` as the cell with
/// the fewest has: what differs there is measured in all. The list has the last CPU: interrupts
/// and other programs tend to be on the first.
fn places(senders: usize) -> Vec<Place> {
    let mut placements = vec![Placement::None, Placement::Auto];
    if let Ok(cpu) = clock::last_cpu() {
        let cpu = CpuId(u16::try_from(cpu).unwrap_or(u16::MAX));
        placements.push(Placement::List(CpuList::from_iter([cpu])));
    }
    let mut places: Vec<Place> = Vec::new();
    for placement in placements {
        let settings = Settings {
            placement: placement.clone(),
            senders,
            ..Settings::default()
        };
        let placed = settings.place(1, false);
        let cpu = placed.cpus.first().copied().flatten();
        let first = |place: &&Place| place.cpu == cpu && place.same_as.is_none();
        let same = places.iter().find(first);
        places.push(Place {
            same_as: same.map(|place| place.placement.clone()),
            placement,
            cpu,
            why: placed.why.to_string(),
        });
    }
    places
}
