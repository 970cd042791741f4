//! `replay` and `sweep`: runs in Rust threads, without the lock of Python.

use arrow_schema::ArrowError;
use packtrain_capture::replay::{Options, Report};
use packtrain_replay::tables::{self, Trains};
use packtrain_replay::{Done, Error, Files, Ignore, Settings, Sink, run};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::{Path, PathBuf};

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

/// Returns what a run found; if a capture ends in the middle of a record, as the attribute
/// `result` of the exception.
fn result<'py, T: PyClass>(
    py: Python<'py>,
    broken: Option<&(String, packtrain_capture::CaptureError)>,
    found: impl Into<PyClassInitializer<T>>,
) -> PyResult<Bound<'py, T>> {
    let found = Bound::new(py, found)?;
    let Some((path, error)) = broken else {
        return Ok(found);
    };
    let error = settings::of_capture(error, format!("{path}: {error}"));
    error.value(py).setattr("result", found)?;
    Err(error)
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
pub fn dataset_of(paths: &[PathBuf], name: Option<String>) -> String {
    let of_path = || {
        let name = paths.first().and_then(|path| Path::new(path).file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let end = name.find('.').filter(|&end| end > 0);
        name[..end.unwrap_or(name.len())].to_owned()
    };
    name.unwrap_or_else(of_path)
}

/// Reports and trains.
type Found = (Done<()>, Option<Table>);

fn found<S>(done: Done<S>) -> (Done<()>, Vec<S>) {
    let Done {
        reports,
        sinks,
        stopped,
        broken,
    } = done;
    let rest = Done {
        reports,
        sinks: Vec::new(),
        stopped,
        broken,
    };
    (rest, sinks)
}

fn run_all(
    py: Python<'_>,
    paths: &[PathBuf],
    runs: &[Options],
    trains: Option<Vec<Trains>>,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Found> {
    let open = || Files::open(paths);
    let settings = Settings::default();
    match trains {
        Some(sinks) => {
            let done = watched(py, open, runs, sinks, settings, progress)?;
            let (done, sinks) = found(done);
            Ok((done, trains_table(sinks)?))
        }
        None => {
            let sinks = vec![Ignore; runs.len()];
            let done = watched(py, open, runs, sinks, settings, progress)?;
            Ok((found(done).0, None))
        }
    }
}

/// Replays captures as one, with one configuration.
#[pyfunction]
#[pyo3(signature = (path, *, flows=None, hold_us=None, mode=None, queues=None, headers_only=None,
                    coalesce=None, ack_limit=None, trains=true, dataset=None, progress=None))]
#[allow(clippy::too_many_arguments, reason = "keywords of Python")]
pub fn replay<'py>(
    py: Python<'py>,
    path: &Bound<'py, PyAny>,
    flows: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Replay>> {
    todo!()
}
