//! `replay` and `sweep`.

use packtrain_capture::replay::Options;
use packtrain_replay::tables::Trains;
use packtrain_replay::{Done, Files, Ignore, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};

use crate::found::{Replay, Sweep, of_arrow, runs_table, watched};
use crate::table::Table;
use crate::{settings, summary, tasks};

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

/// The name of captures in the column `dataset`: that of the first file, without the suffixes of
/// compression and format.
#[pyfunction]
#[pyo3(signature = (paths, name=None))]
pub fn dataset_of(paths: Vec<PathBuf>, name: Option<String>) -> String {
    let of_path = || {
        let name = paths.first().and_then(|path| path.file_name());
        let name = name.unwrap_or_default().to_string_lossy();
        let plain = [".gz", ".zst"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        let stem = Path::new(plain.unwrap_or(&name)).file_stem();
        stem.unwrap_or_default().to_string_lossy().into_owned()
    };
    name.unwrap_or_else(of_path)
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
                    progress=None),
       text_signature = "(path, *, flows=1024, hold_us=50.0, mode='auto', queues=1, \
                         headers_only=None, coalesce='reversible', ack_limit=None, trains=True, \
                         dataset=None, progress=None)")]
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
