//! Settings as Python writes them, and errors as Python expects them.

use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Options, QUEUES_MAX};
use packtrain_offload::coalesce::{Config, Mode, Semantics};
use packtrain_replay::{Error, Grid};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::path::PathBuf;

/// The longest hold time: a year, as in the program.
const HOLD_US_MAX: f64 = 366.0 * 86_400e6;

/// An `OSError` of the subclass that the number belongs to, with a sentence.
fn of_number(number: Option<i32>, line: String) -> PyErr {
    match number {
        Some(number) => PyOSError::new_err((number, line)),
        None => PyOSError::new_err(line),
    }
}

/// The exception for an error of a run.
pub fn raised(error: &Error) -> PyErr {
    let line = error.to_string();
    match error {
        Error::Open { error, .. } | Error::Write { error, .. } => {
            of_number(error.raw_os_error(), line)
        }
        Error::Sink(error) | Error::Thread(error) => of_number(error.raw_os_error(), line),
        Error::Capture { error, .. } => of_capture(error, line),
        Error::Changed { .. } => PyOSError::new_err(line),
        Error::Replay(_) | Error::Dataset { .. } => PyValueError::new_err(line),
        _ => PyRuntimeError::new_err(line),
    }
}

/// The exception for a capture that cannot be read. A fault of compressed data has no number.
pub fn of_capture(error: &CaptureError, line: String) -> PyErr {
    match error {
        CaptureError::Io { fault, .. } if fault.os_error.is_some() => {
            of_number(fault.os_error, line)
        }
        _ => PyValueError::new_err(line),
    }
}

/// One path, or a list of paths.
pub fn paths(value: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let is_many = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    let paths: Vec<PathBuf> = match is_many {
        true => value.extract()?,
        false => vec![value.extract()?],
    };
    match paths.is_empty() {
        true => Err(PyValueError::new_err("no path: name at least one capture")),
        false => Ok(paths),
    }
}

pub fn semantics(word: Option<&str>) -> PyResult<Option<Semantics>> {
    match word {
        Some("reversible") => Ok(Some(Semantics::Reversible)),
        Some("stream") => Ok(Some(Semantics::Stream)),
        Some("off") | None => Ok(None),
        Some(word) => Err(PyValueError::new_err(format!(
            "coalesce={word:?}: write \"reversible\", \"stream\" or None"
        ))),
    }
}

pub fn mode(word: &str) -> PyResult<Mode> {
    match word {
        "hash" => Ok(Mode::Hash),
        "sorted" => Ok(Mode::Sorted),
        "auto" => Ok(Mode::Auto),
        word => Err(PyValueError::new_err(format!(
            "mode={word:?}: write \"hash\", \"sorted\" or \"auto\""
        ))),
    }
}

fn hold_ns(us: f64) -> PyResult<u64> {
    match (0.0..=HOLD_US_MAX).contains(&us) {
        true => Ok((us * 1000.0).round() as u64),
        false => Err(PyValueError::new_err(format!(
            "hold_us={us}: write microseconds, from 0 to a year"
        ))),
    }
}

fn within(name: &str, value: u32, most: u32) -> PyResult<u32> {
    match (1..=most).contains(&value) {
        true => Ok(value),
        false => Err(PyValueError::new_err(format!(
            "{name}={value}: write 1 to {most}"
        ))),
    }
}

/// Checks what one configuration has.
pub fn check(flows: u32, semantics: Option<Semantics>, ack_limit: Option<u16>) -> PyResult<()> {
    within("flows", flows, Config::FLOWS_MAX)?;
    match ack_limit {
        None => Ok(()),
        Some(_) if semantics != Some(Semantics::Stream) => Err(PyValueError::new_err(
            "ack_limit is for coalesce=\"stream\", which alone merges pure ACKs: add it, or leave \
             ack_limit out",
        )),
        Some(limit) => within("ack_limit", limit.into(), u16::MAX.into()).map(drop),
    }
}

/// The values of a key: a list, or one value.
fn values<'py>(value: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match value.is_none() || value.is_instance_of::<PyString>() || value.try_iter().is_err() {
        true => Ok(vec![value.clone()]),
        false => value.try_iter()?.collect(),
    }
}

fn each<T>(
    key: &str,
    given: &[Bound<'_, PyAny>],
    read: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let read = |value: &Bound<'_, PyAny>| {
        read(value).map_err(
            |error| match error.is_instance_of::<PyTypeError>(value.py()) {
                true => PyTypeError::new_err(format!("{key}={value}: {error}")),
                false => error,
            },
        )
    };
    match given.is_empty() {
        true => Err(PyValueError::new_err(format!(
            "{key}=[]: write at least one value"
        ))),
        false => given.iter().map(read).collect(),
    }
}

/// The configurations of a dict of lists.
pub fn grid(grid: &Bound<'_, PyDict>) -> PyResult<Vec<Options>> {
    let mut found = Grid::of(&Options::default());
    for (key, value) in grid {
        let key: String = key.extract()?;
        let given = values(&value)?;
        match &key[..] {
            "flows" => {
                let read =
                    |value: &Bound<'_, PyAny>| within("flows", value.extract()?, Config::FLOWS_MAX);
                found.flows = each(&key, &given, read)?;
            }
            "hold_us" => found.hold_ns = each(&key, &given, |value| hold_ns(value.extract()?))?,
            "mode" => found.mode = each(&key, &given, |value| mode(value.extract()?))?,
            "queues" => {
                let read = |value: &Bound<'_, PyAny>| {
                    within("queues", value.extract()?, QUEUES_MAX.into()).map(|n| n as u16)
                };
                found.queues = each(&key, &given, read)?;
            }
            "coalesce" => {
                found.coalesce = each(&key, &given, |value| semantics(value.extract()?))?;
            }
            "ack_limit" => found.ack_limit = each(&key, &given, |value| value.extract())?,
            "headers_only" => {
                let given: Vec<Option<bool>> = each(&key, &given, |value| value.extract())?;
                let [one] = given[..] else {
                    return Err(PyValueError::new_err(
                        "headers_only: write one value, which holds for all configurations",
                    ));
                };
                found.base.headers_only = one.unwrap_or(false);
            }
            _ => {
                return Err(PyValueError::new_err(format!(
                    "{key}: no such setting; there are flows, hold_us, mode, queues, coalesce, \
                     ack_limit and headers_only"
                )));
            }
        }
    }
    let limits = found.ack_limit.iter().flatten();
    for &limit in limits {
        let streams = found.coalesce.contains(&Some(Semantics::Stream));
        let semantics = streams.then_some(Semantics::Stream);
        check(Grid::FLOWS, semantics, Some(limit))?;
    }
    Ok(found.runs())
}
