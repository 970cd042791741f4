//! The module `packtrain._packtrain`: what the Python package is made of.

mod packets;
mod settings;
mod summary;

use packtrain_capture::replay::Options;
use packtrain_replay::{Done, Files, Ignore, Settings, run};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// How far a run is.
#[pyclass(frozen, get_all, module = "packtrain")]
struct Progress {
    bytes: u64,
    bytes_total: Option<u64>,
    packets: u64,
    seconds: f64,
}

/// Runs without the lock of Python, which is taken ten times a second for signals and progress.
fn watched(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    runs: &[Options],
    progress: Option<&Py<PyAny>>,
) -> PyResult<Done<Ignore>> {
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
    let done = py.detach(|| {
        let files = Files::open(&paths)?;
        let mut settings = Settings {
            watch: Some(&mut watch),
            ..Settings::default()
        };
        run(files, runs, vec![Ignore; runs.len()], &mut settings)
    });
    match failed {
        Some(error) => Err(error),
        None => done.map_err(|error| settings::raised(&error)),
    }
}

#[pyfunction]
#[pyo3(signature = (paths, grid, *, progress=None))]
fn try_it<'py>(
    py: Python<'py>,
    paths: &Bound<'py, PyAny>,
    grid: &Bound<'py, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let runs = settings::grid(grid)?;
    let done = watched(py, settings::paths(paths)?, &runs, progress.as_ref())?;
    runs.iter()
        .zip(&done.reports)
        .map(|(o, r)| summary::summary(py, o, r, done.stopped))
        .collect()
}

#[pymodule]
fn _packtrain(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(packets::coalesce, module)?)?;
    module.add_function(wrap_pyfunction!(packets::segment, module)?)?;
    module.add_function(wrap_pyfunction!(try_it, module)?)?;
    Ok(())
}
