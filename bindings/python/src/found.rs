//! A run in Rust threads, without the lock of Python, and the objects that have what it found.

use arrow_schema::ArrowError;
use packtrain_capture::replay::{Options, Report};
use packtrain_replay::{Done, Error, Files, Settings, Sink, run, tables};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::table::Table;
use crate::{settings, summary};

/// How far a run is.
#[pyclass(frozen, get_all, module = "packtrain")]
pub struct Progress {
    /// Bytes read.
    bytes: u64,
    /// Bytes to read, if known.
    bytes_total: Option<u64>,
    /// Packets read.
    packets: u64,
    /// Seconds since the start.
    seconds: f64,
}

/// What one configuration makes of captures.
#[pyclass(frozen, get_all, name = "Result", module = "packtrain")]
pub struct Replay {
    /// The keys of `packtrain replay --json`.
    pub summary: Py<PyDict>,
    /// A row for each train, unless `trains=False`.
    pub trains: Option<Py<Table>>,
    /// A row for each interface.
    pub runs: Py<Table>,
}

/// What several configurations make of captures.
#[pyclass(frozen, get_all, module = "packtrain")]
pub struct Sweep {
    /// For each configuration.
    summaries: Py<PyList>,
    /// A row for each train of each configuration, if `trains=True`.
    trains: Option<Py<Table>>,
    /// A row for each configuration and interface.
    runs: Py<Table>,
}

impl Sweep {
    /// The tables of these reports.
    pub fn of(
        py: Python<'_>,
        dataset: &str,
        runs: &[Options],
        reports: &[Report],
        trains: Option<Table>,
    ) -> PyResult<Self> {
        let each = runs.iter().zip(reports);
        let summaries = each.map(|(options, report)| summary::summary(py, options, report));
        Ok(Self {
            summaries: PyList::new(py, summaries.collect::<PyResult<Vec<_>>>()?)?.unbind(),
            trains: trains.map(|trains| Py::new(py, trains)).transpose()?,
            runs: Py::new(py, runs_table(dataset, runs, reports)?)?,
        })
    }
}

/// Arrow refuses columns that do not fit, which is not known to happen.
pub fn of_arrow(error: &ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// Runs without the lock of Python, which is taken ten times a second for signals and progress.
pub fn watched<S: Sink>(
    py: Python<'_>,
    open: impl FnOnce() -> Result<Files, Error> + Send,
    runs: &[Options],
    sinks: Vec<S>,
    mut settings: Settings<'_>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Done<S>> {
    let mut failed = None;
    let mut watch = |now: &packtrain_replay::Progress| {
        let called = Python::attach(|py| {
            py.check_signals()?;
            let Some(progress) = progress else {
                return Ok(());
            };
            let now = Progress {
                bytes: now.bytes,
                bytes_total: now.bytes_total,
                packets: now.packets,
                seconds: now.elapsed.as_secs_f64(),
            };
            progress.call1(py, (now,)).map(drop)
        });
        failed = called.err();
        failed.is_none()
    };
    let (threads, queue) = (settings.threads, settings.queue.take());
    let done = py.detach(|| {
        let mut settings = Settings {
            threads,
            queue,
            watch: Some(&mut watch),
        };
        run(open()?, runs, sinks, &mut settings)
    });
    match failed {
        Some(error) => Err(error),
        None => done.map_err(|error| settings::raised(&error)),
    }
}

/// A row for each configuration and interface.
pub fn runs_table(dataset: &str, runs: &[Options], reports: &[Report]) -> PyResult<Table> {
    let runs = runs.iter().zip(reports);
    let runs = runs.map(|(options, report)| tables::Run {
        dataset,
        options,
        report,
    });
    let batch = tables::runs(&runs.collect::<Vec<_>>()).map_err(|error| of_arrow(&error))?;
    Ok(Table::new(batch.schema(), vec![batch]))
}
