//! Runs what is to be compared: everything once or more, and again what missed its goal.

use super::load::Load;
use super::ports::Ports;
use super::run::{Ran, Sample, Span, once};
use super::schedule::{self, Cell};
use super::{BenchError, Options, Outcome, Progress, Row, again};
use packtrain::engine::Settings;
use packtrain_bench::statistics;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Runs from which the capacity of a port is taken.
pub(super) const CAPACITY_RUNS: usize = 3;

/// How much longer than in the first look a run of the second one is measured: of a short run the
/// 99th percentile is one of a few dozen packets that a tick of the clock met.
const AGAIN_WINDOWS: u32 = 4;

/// One in so many runs is taken again, at most, because others had the machine.
const RETAKEN_PART: usize = 4;

/// Packets a second to be offered in each cell, and how long a run takes.
type Rates = (Vec<Option<u64>>, Duration);

/// One look at some rows.
struct Look {
    /// The rows of each cell.
    rows: Vec<Vec<usize>>,
    repeats: usize,
    span: Span,
    /// Where their samples go.
    samples: fn(&mut Row) -> &mut Vec<Sample>,
}

/// What has to run, and where.
pub(super) struct Sweep<'a> {
    pub(super) options: &'a Options,
    pub(super) ports: Ports,
    /// Situations.
    pub(super) cells: Vec<Cell>,
    /// What is compared in each; the adaptive one is the last.
    pub(super) settings: Vec<Settings>,
}

impl Sweep<'_> {
    /// Of a run of the first look.
    fn span(&self) -> Span {
        Span {
            warm_up: self.options.warm_up,
            window: self.options.window,
        }
    }

    /// Runs everything, and works out what the adaptive setting loses.
    pub(super) fn run(
        &self,
        outcome: &mut Outcome,
        tell: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let Some((rates, a_run)) = self.rates(outcome)? else {
            outcome.stopped = true;
            return Ok(());
        };
        let cells = self.cells.len();
        let runs = self.options.repeats * cells * self.settings.len();
        tell(Progress::Begin(runs, a_run * runs as u32));
        for (cell, &offered) in self.cells.iter().zip(&rates) {
            for settings in &self.settings {
                outcome.rows.push(Row {
                    cell: *cell,
                    settings: schedule::in_cell(settings, cell),
                    offered,
                    samples: Vec::with_capacity(self.options.repeats),
                    again: Vec::new(),
                    regret: None,
                    first: None,
                });
            }
        }
        let all = |cell| (cell * self.settings.len()..(cell + 1) * self.settings.len()).collect();
        let first = Look {
            rows: (0..cells).map(all).collect(),
            repeats: self.options.repeats,
            span: self.span(),
            samples: |row| &mut row.samples,
        };
        outcome.repeats = self.look(&first, outcome, tell)?;
        for cell in outcome.rows.chunk_by_mut(|a, b| a.cell == b.cell) {
            again::judge(cell, cells);
        }
        if !outcome.stopped && self.options.again > 1 {
            self.again(outcome, a_run, tell)?;
        }
        Ok(())
    }

    /// Looks again at what missed its goal. `a_run` is how long a run of the first look takes.
    fn again(
        &self,
        outcome: &mut Outcome,
        a_run: Duration,
        tell: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), BenchError> {
        let cells = outcome.cells().enumerate();
        let rows = cells.map(|(cell, rows)| {
            let in_cell = again::rows(rows).into_iter();
            in_cell
                .map(|row| cell * self.settings.len() + row)
                .collect()
        });
        let rows: Vec<Vec<usize>> = rows.filter(|rows: &Vec<_>| !rows.is_empty()).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let span = Span {
            window: self.span().window * AGAIN_WINDOWS,
            ..self.span()
        };
        let runs = self.options.again * rows.iter().map(Vec::len).sum::<usize>();
        let a_run = a_run + span.window - self.span().window;
        tell(Progress::Again(rows.len(), runs, a_run * runs as u32));
        let second = Look {
            rows,
            repeats: self.options.again,
            span,
            samples: |row| &mut row.again,
        };
        outcome.again = self.look(&second, outcome, tell)?;
        for cell in outcome.rows.chunk_by_mut(|a, b| a.cell == b.cell) {
            again::judge_again(cell, self.cells.len());
        }
        Ok(())
    }

    /// Runs what is to be looked at; returns the repeats that are complete. Of one that is
    /// interrupted nothing counts, in no cell: all have as many samples.
    fn look(
        &self,
        look: &Look,
        outcome: &mut Outcome,
        tell: &mut impl FnMut(Progress<'_>),
    ) -> Result<usize, BenchError> {
        let (mut done, mut complete) = (0, 0);
        'repeats: for repeat in 0..look.repeats {
            for (cell, rows) in look.rows.iter().enumerate() {
                for which in schedule::order(self.options.seed, repeat, cell, rows.len()) {
                    let row = rows[which];
                    let mut sample = self.run_row(outcome, row, look.span)?;
                    let is_disturbed = sample.as_ref().is_some_and(Sample::is_disturbed);
                    if is_disturbed && outcome.retaken < outcome.runs / RETAKEN_PART {
                        outcome.retaken += 1;
                        sample = self.run_row(outcome, row, look.span)?;
                    }
                    let Some(sample) = sample else {
                        outcome.stopped = true;
                        break 'repeats;
                    };
                    (look.samples)(&mut outcome.rows[row]).push(sample);
                    done += 1;
                    tell(Progress::Done(done));
                }
            }
            complete += 1;
        }
        for row in &mut outcome.rows {
            (look.samples)(row).truncate(complete);
        }
        Ok(complete)
    }

    /// Runs a row once; `None` if the bench is to stop.
    fn run_row(
        &self,
        outcome: &mut Outcome,
        row: usize,
        span: Span,
    ) -> Result<Option<Sample>, BenchError> {
        let Row {
            cell,
            settings,
            offered,
            ..
        } = &outcome.rows[row];
        let (cell, settings, offered) = (*cell, settings.clone(), *offered);
        self.once(outcome, &cell, offered, &settings, span)
    }

    /// Runs once and books it; `None` if the bench is to stop before the run or in it.
    fn once(
        &self,
        outcome: &mut Outcome,
        cell: &Cell,
        rate: Option<u64>,
        settings: &Settings,
        span: Span,
    ) -> Result<Option<Sample>, BenchError> {
        let stop = &self.options.stop;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Ran { sample, is_whole } = once(&self.ports, cell, rate, settings, span, stop)?;
        outcome.book(cell, settings, &sample);
        Ok(is_whole.then_some(sample))
    }

    /// Packets a second to be offered in each cell, and how long a run takes; `None` if the bench
    /// is to stop before that is known.
    fn rates(&self, outcome: &mut Outcome) -> Result<Option<Rates>, BenchError> {
        let settings = schedule::plain();
        let mut capacities = HashMap::new();
        let mut rates = Vec::new();
        let (mut time, mut runs) = (Duration::ZERO, 0);
        for cell in &self.cells {
            let full = Cell {
                load: Load::Saturation,
                ..*cell
            };
            let needed = matches!(cell.load, Load::Percent(_)) || runs == 0;
            if needed && !capacities.contains_key(&full) {
                let mut found = Vec::new();
                for _ in 0..CAPACITY_RUNS {
                    let begin = Instant::now();
                    let settings = schedule::in_cell(&settings, &full);
                    let Some(sample) = self.once(outcome, &full, None, &settings, self.span())?
                    else {
                        return Ok(None);
                    };
                    (time, runs) = (time + begin.elapsed(), runs + 1);
                    found.push(sample.kpps() * 1e3);
                }
                capacities.insert(full, statistics::median(&found) as u64);
            }
            let capacity = capacities.get(&full).copied().unwrap_or_default();
            rates.push(cell.load.rate(capacity));
        }
        Ok(Some((rates, time / runs.max(1))))
    }
}
