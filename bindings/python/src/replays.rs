//! `replay` and `sweep`: runs in Rust threads, without the lock of Python.

use arrow_schema::ArrowError;
use packtrain_capture::replay::{Options, Report};
use packtrain_replay::tables::{self, Trains};
use packtrain_replay::{Done, Error, Files, Ignore, Settings, Sink, run};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;

use crate::table::Table;
use crate::{settings, summary, tasks};

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
    summary: Py<PyDict>,
    /// A row for each train, unless `trains=False`.
    trains: Option<Py<Table>>,
    /// A row for each interface.
    runs: Py<Table>,
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

fn of_arrow(error: &ArrowError) -> PyErr {
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
        let told = Python::attach(|py| {
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
        failed = told.err();
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

/// The exception for a capture that ends in the middle of a record.
fn of_broken<S>(done: &Done<S>) -> Option<PyErr> {
    let (path, error) = done.broken.as_ref()?;
    Some(settings::of_capture(error, format!("{path}: {error}")))
}

/// Returns what a run found; if a capture is broken, as the attribute `result` of the exception.
fn result<'py, T: pyo3::PyClass>(
    py: Python<'py>,
    broken: Option<PyErr>,
    found: impl Into<PyClassInitializer<T>>,
) -> PyResult<Bound<'py, T>> {
    let found = Bound::new(py, found)?;
    match broken {
        None => Ok(found),
        Some(error) => {
            error.value(py).setattr("result", found)?;
            Err(error)
        }
    }
}

fn runs_table(dataset: &str, runs: &[Options], reports: &[Report]) -> PyResult<Table> {
    let runs = runs.iter().zip(reports);
    let runs = runs.map(|(options, report)| tables::Run {
        dataset,
        options,
        report,
    });
    let batch = tables::runs(&runs.collect::<Vec<_>>()).map_err(|error| of_arrow(&error))?;
    Ok(Table::new(batch.schema(), vec![batch]))
}

fn trains_table(sinks: Vec<Trains>) -> PyResult<Option<Table>> {
    let Some(schema) = sinks.first().map(Trains::schema) else {
        return Ok(None);
    };
    let batches = sinks.into_iter().map(Trains::into_batches);
    let batches = batches.collect::<Result<Vec<_>, _>>();
    let batches = batches.map_err(|error| of_arrow(&error))?;
    let batches = batches.into_iter().flatten().collect();
    Ok(Some(Table::new(schema, batches)))
}

/// The name of captures in the column `dataset`: that of the first file, without its endings.
#[pyfunction]
#[pyo3(signature = (paths, name=None))]
pub fn dataset_of(paths: Vec<PathBuf>, name: Option<String>) -> String {
    name.unwrap_or_else(|| {
        let name = paths.first().and_then(|path| path.file_name());
        let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let endings = [".gz", ".zst", ".pcap", ".pcapng", ".cap"];
        let cut = |name: &str| {
            endings
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .map(str::to_owned)
        };
        let mut stem = name;
        while let Some(shorter) = cut(&stem).filter(|shorter| !shorter.is_empty()) {
            stem = shorter;
        }
        stem
    })
}

/// Runs all configurations; the trains of each go to `sinks`, or nowhere.
fn run_all(
    py: Python<'_>,
    paths: &[PathBuf],
    runs: &[Options],
    sinks: Option<Vec<Trains>>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<(Done<Ignore>, Option<Table>)> {
    let open = || Files::open(paths);
    let settings = Settings::default();
    let Some(sinks) = sinks else {
        let sinks = vec![Ignore; runs.len()];
        return Ok((watched(py, open, runs, sinks, settings, progress)?, None));
    };
    let Done {
        reports,
        sinks,
        stopped,
        broken,
    } = watched(py, open, runs, sinks, settings, progress)?;
    let done = Done {
        reports,
        sinks: Vec::new(),
        stopped,
        broken,
    };
    Ok((done, trains_table(sinks)?))
}

/// Replays captures as one, with one configuration.
#[pyfunction]
#[pyo3(signature = (path, *, flows=1024, hold_us=50.0, mode="auto", queues=1, headers_only=None,
                    coalesce=Some("reversible"), ack_limit=None, trains=true, dataset=None,
                    progress=None))]
#[allow(clippy::too_many_arguments, reason = "they are keywords of Python")]
pub fn replay<'py>(
    py: Python<'py>,
    path: &Bound<'py, PyAny>,
    flows: u32,
    hold_us: f64,
    mode: &str,
    queues: u32,
    headers_only: Option<bool>,
    coalesce: Option<&str>,
    ack_limit: Option<u16>,
    trains: bool,
    dataset: Option<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, Replay>> {
    let grid = PyDict::new(py);
    grid.set_item("flows", flows)?;
    grid.set_item("hold_us", hold_us)?;
    grid.set_item("mode", mode)?;
    grid.set_item("queues", queues)?;
    grid.set_item("headers_only", headers_only)?;
    grid.set_item("coalesce", coalesce)?;
    grid.set_item("ack_limit", ack_limit)?;
    let runs = settings::grid(&grid)?;
    let paths = settings::paths(path)?;
    let sinks = trains.then(|| vec![Trains::new()]);
    let (done, trains) = run_all(py, &paths, &runs, sinks, progress.as_ref())?;
    let found = Replay {
        summary: summary::summary(py, &runs[0], &done.reports[0])?.unbind(),
        trains: trains.map(|trains| Py::new(py, trains)).transpose()?,
        runs: Py::new(
            py,
            runs_table(&dataset_of(paths, dataset), &runs, &done.reports)?,
        )?,
    };
    result(py, of_broken(&done), found)
}

/// Replays captures as one, with each combination of settings, in one pass.
#[pyfunction]
#[pyo3(signature = (paths, grid, *, trains=false, output=None, dataset=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "they are keywords of Python")]
pub fn sweep<'py>(
    py: Python<'py>,
    paths: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyDict>,
    trains: bool,
    output: Option<PathBuf>,
    dataset: Option<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, Sweep>> {
    let runs = settings::grid(grid)?;
    let paths = settings::paths(paths)?;
    let name = dataset_of(paths.clone(), dataset);
    let progress = progress.as_ref();
    if let Some(folder) = output {
        if trains {
            return Err(PyValueError::new_err(
                "trains=True keeps the trains in memory, and output= writes them: leave one out",
            ));
        }
        let (reports, broken) = tasks::sweep_into(py, &folder, &name, &paths, &runs, progress)?;
        let found = Sweep::of(py, &name, &runs, &reports, None)?;
        return result(py, broken.map(PyValueError::new_err), found);
    }
    let sinks = trains.then(|| runs.iter().map(Trains::of).collect());
    let (done, trains) = run_all(py, &paths, &runs, sinks, progress)?;
    let found = Sweep::of(py, &name, &runs, &done.reports, trains)?;
    result(py, of_broken(&done), found)
}
