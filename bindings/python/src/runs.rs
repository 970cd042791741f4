//! Runs in Rust threads, without the lock of Python, in memory and in data sets.

use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Options, Report};
use packtrain_replay::dataset::{self, Dataset};
use packtrain_replay::tables::{self, Trains};
use packtrain_replay::{Done, Error, Files, Ignore, Progress, Settings, Sink, summary};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::Value;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::grid::Grid;
use crate::raised::{of_capture, raised};
use crate::table::Table;

/// Arrow refuses columns that do not fit, which is not known to happen.
fn of_arrow(error: impl Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Calls `run` without the lock of Python. Ten times a second it takes the lock for signals and
/// `progress`, whose exception ends the run.
fn watched<T: Send>(
    py: Python<'_>,
    threads: usize,
    progress: Option<Py<PyAny>>,
    run: impl FnOnce(&mut Settings<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let failed = Arc::new(Mutex::new(None));
    let goes_on = {
        let failed = Arc::clone(&failed);
        move |call: &dyn Fn(Python<'_>) -> PyResult<()>| {
            let called = Python::attach(|py| py.check_signals().and_then(|()| call(py)));
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = called.err().or(failed.take());
            failed.is_none()
        }
    };
    let signals = goes_on.clone();
    let mut watch = |now: &Progress| {
        let seconds = now.elapsed.as_secs_f64();
        let now = (now.bytes, now.bytes_total, now.packets, seconds);
        goes_on(&|py| {
            let called = progress.as_ref().map(|progress| progress.call1(py, now));
            called.transpose().map(drop)
        })
    };
    let done = py.detach(|| {
        run(&mut Settings {
            threads,
            watch: Some(&mut watch),
            interrupt: Some(Arc::new(move || !signals(&|_| Ok(())))),
            ..Settings::default()
        })
    });
    let failed = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    match failed {
        Some(error) => Err(error),
        None => done.map_err(|error| raised(&error)),
    }
}

/// The exception for a capture that was not read to its end.
fn broken<S>(done: &Done<S>) -> Option<PyErr> {
    let (path, error) = done.broken.first()?;
    Some(of_capture(error, format!("{path}: {error}")))
}

/// The summary of each configuration as JSON, and the table of runs.
fn found(name: &str, runs: &[Options], reports: &[Report]) -> PyResult<(Vec<String>, Table)> {
    let all: Vec<_> = runs.iter().zip(reports).collect();
    let texts = all
        .iter()
        .map(|(options, report)| Value::from(summary(options, report)).to_string());
    let batch = tables::runs(name, &all).map_err(of_arrow)?;
    Ok((texts.collect(), Table::new(vec![batch])))
}

/// The summary of each configuration as JSON, the tables of trains and runs, and the exception for
/// a capture that was not read to its end.
type Found = (Vec<String>, Option<Table>, Table, Option<PyErr>);

/// Runs a grid on captures.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    grid: &Grid,
    trains: bool,
    dataset: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Found> {
    fn all<S: Sink>(
        py: Python<'_>,
        paths: &[PathBuf],
        runs: &[Options],
        sink: impl Fn(&Options) -> S,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<Report>, Vec<S>, Option<PyErr>)> {
        let sinks = runs.iter().map(sink).collect();
        let done = watched(py, 0, progress, |settings| {
            packtrain_replay::run(Files::open(paths)?, runs, sinks, settings)
        })?;
        let broken = broken(&done);
        Ok((done.reports, done.sinks, broken))
    }
    let runs = &grid.runs[..];
    let (reports, trains, broken) = if trains {
        let (reports, sinks, broken) = all(py, &paths, runs, Trains::new, progress)?;
        let batches = sinks.into_iter().map(Trains::into_batches);
        let batches = batches.collect::<Result<Vec<_>, _>>().map_err(of_arrow)?;
        (reports, Some(Table::new(batches.concat())), broken)
    } else {
        let (reports, _, broken) = all(py, &paths, runs, |_| Ignore, progress)?;
        (reports, None, broken)
    };
    let (summaries, runs) = found(dataset, runs, &reports)?;
    Ok((summaries, trains, runs, broken))
}

/// The name of a data set that has none: that of its first capture, without the suffixes of
/// compression and format.
#[pyfunction]
pub fn name_of(path: PathBuf) -> String {
    dataset::name_of(&path)
}

/// Creates the data set of captures, or opens it; see [`Dataset::create`]. Returns each part with
/// the indices of the configurations that have not run on it.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    grid: &Grid,
    output: PathBuf,
    dataset: &str,
    part_bytes: Option<u64>,
) -> PyResult<Vec<(usize, Vec<usize>)>> {
    let planned = py.detach(|| {
        let dataset = Dataset::create(&output, dataset, &paths, &grid.runs, part_bytes)?;
        Ok(dataset.missing(&grid.runs))
    });
    planned.map_err(|error| raised(&error))
}

/// Runs configurations of a grid, by index, on a part of a data set, but for those that have run.
#[pyfunction]
#[pyo3(signature = (grid, output, dataset, part, indices, threads, progress=None))]
#[allow(clippy::too_many_arguments, reason = "they are arguments of Python")]
pub fn work(
    py: Python<'_>,
    grid: &Grid,
    output: PathBuf,
    dataset: &str,
    part: usize,
    indices: Vec<usize>,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let runs = indices.iter().filter_map(|&index| grid.runs.get(index));
    let runs: Vec<_> = runs.copied().collect();
    let done = watched(py, threads, progress, |settings| {
        let dataset = Dataset::open(&output, dataset)?;
        dataset.run(dataset.files(part)?, part, &runs, settings)
    })?;
    let is_io = |fault: &&(_, _)| matches!(fault, (_, CaptureError::Io { .. }));
    match done.broken.iter().find(is_io) {
        // Nothing was written.
        Some((path, error)) => Err(of_capture(error, format!("{path}: {error}"))),
        None => Ok(()),
    }
}

/// Adds up the parts of a data set, and writes its table of runs. Returns the summary of each
/// configuration as JSON, the table, and why captures were not read to their end.
#[pyfunction]
pub fn merge(
    py: Python<'_>,
    grid: &Grid,
    output: PathBuf,
    dataset: &str,
) -> PyResult<(Vec<String>, Table, Option<String>)> {
    let merged = py.detach(|| {
        let stored = Dataset::open(&output, dataset)?;
        let merged = grid.runs.iter().map(|options| stored.merge(options));
        merged.collect::<Result<Vec<_>, _>>()
    });
    let (reports, faults): (Vec<_>, Vec<_>) =
        merged.map_err(|error| raised(&error))?.into_iter().unzip();
    let (summaries, runs) = found(dataset, &grid.runs, &reports)?;
    Ok((summaries, runs, faults.into_iter().flatten().next()))
}
