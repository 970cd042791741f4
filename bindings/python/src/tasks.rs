//! Data sets of Parquet files: what a task does, on one machine or on many.

use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Options, Report};
use packtrain_offload::coalesce::Mode;
use packtrain_replay::dataset::{Dataset, Inputs, TrainsWriter};
use packtrain_replay::{Done, Error, Files, Part, Parts, Settings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::found::{Sweep, watched};
use crate::settings::{self, raised};

/// What a task reads of the captures. Its text is the description of a part in the data set.
#[derive(Clone, Copy)]
enum Share {
    Whole,
    /// A part that begins and ends where nothing arrives for longer than this hold time.
    Gap(u64, Part),
    /// The packets of a queue, of so many.
    Queue(u16, u16),
}

impl Share {
    fn text(self) -> String {
        match self {
            Self::Whole => "whole".to_owned(),
            Self::Gap(hold, Part { head, start, end }) => {
                format!("gap {hold} {head} {start} {end}")
            }
            Self::Queue(queue, queues) => format!("queue {queue} {queues}"),
        }
    }

    /// Whether its parts add up to the whole for these configurations.
    fn is_exact(self, runs: &[Options]) -> bool {
        match self {
            Self::Whole => true,
            Self::Gap(hold, _) => runs
                .iter()
                .all(|run| run.mode != Mode::Auto && run.hold_ns <= hold),
            Self::Queue(_, queues) => queues > 1 && runs.iter().all(|run| run.queues == queues),
        }
    }

    fn open(self, paths: &[PathBuf]) -> Result<Files, Error> {
        match (self, paths) {
            (Self::Gap(_, part), [path]) => Files::part(path, part),
            _ => Files::open(paths),
        }
    }

    /// Divides a capture into parts of at least `bytes` bytes, if it is larger.
    fn of(path: &Path, runs: &[Options], bytes: u64) -> Result<Vec<Self>, Error> {
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        if length <= bytes {
            return Ok(vec![Self::Whole]);
        }
        let hold = runs.iter().map(|run| run.hold_ns).max().unwrap_or(0);
        let is_exact = |share: Self| share.is_exact(runs);
        let all = Part {
            head: 0,
            start: 0,
            end: length,
        };
        if is_exact(Self::Gap(hold, all)) {
            let parts = Parts::of(path, hold, bytes)?.parts;
            if parts.len() > 1 {
                return Ok(parts.iter().map(|part| Self::Gap(hold, *part)).collect());
            }
        }
        let queues = runs.first().map_or(1, |run| run.queues);
        if is_exact(Self::Queue(0, queues)) {
            return Ok((0..queues)
                .map(|queue| Self::Queue(queue, queues))
                .collect());
        }
        Ok(vec![Self::Whole])
    }
}

impl FromStr for Share {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let kind = words.next();
        let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>();
        let short = |n: u64| u16::try_from(n).map_err(drop);
        match (kind, &numbers.map_err(drop)?[..]) {
            (Some("whole"), []) => Ok(Self::Whole),
            (Some("gap"), &[hold, head, start, end]) => {
                Ok(Self::Gap(hold, Part { head, start, end }))
            }
            (Some("queue"), &[queue, queues]) => Ok(Self::Queue(short(queue)?, short(queues)?)),
            _ => Err(()),
        }
    }
}

/// Creates a data set, or opens it with the parts that it has.
fn create(
    folder: &Path,
    name: &str,
    paths: &[PathBuf],
    divide: impl FnOnce() -> Result<Vec<Share>, Error>,
    runs: &[Options],
) -> Result<Dataset, Error> {
    let mut inputs = Inputs::of(paths)?;
    let known = Dataset::open(folder, name).ok();
    let known = known.map(|known| known.parts().map(str::to_owned).collect::<Vec<_>>());
    let fits = |part: &String| part.parse().is_ok_and(|share: Share| share.is_exact(runs));
    inputs.parts = match known {
        Some(parts) if !parts.is_empty() && parts.iter().all(fits) => parts,
        _ => divide()?.into_iter().map(Share::text).collect(),
    };
    Dataset::create(folder, name, &inputs)
}

/// The configurations that have not run on each part.
fn missing(dataset: &Dataset, runs: &[Options]) -> Vec<(usize, Vec<usize>)> {
    let parts = 0..dataset.parts().len();
    let left = parts.map(|part| {
        let runs = runs.iter().enumerate();
        let left = runs.filter(|(_, options)| !dataset.has(options, part));
        (part, left.map(|(index, _)| index).collect::<Vec<_>>())
    });
    left.filter(|(_, runs)| !runs.is_empty()).collect()
}

/// Runs configurations on a part, and writes what they find.
fn run_part(
    py: Python<'_>,
    dataset: &Dataset,
    paths: &[PathBuf],
    part: usize,
    runs: &[Options],
    threads: usize,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Option<String>> {
    let text = dataset.parts().nth(part).unwrap_or_default();
    let share: Share = text.parse().map_err(|()| {
        let name = dataset.name();
        PyValueError::new_err(format!("the data set {name} has no part {part}: {text:?}"))
    })?;
    let writers = runs.iter().map(|options| dataset.writer(options, part));
    let writers = writers.collect::<Result<Vec<TrainsWriter>, _>>();
    let settings = Settings {
        threads,
        queue: match share {
            Share::Queue(queue, _) => Some(queue),
            Share::Whole | Share::Gap(..) => None,
        },
        watch: None,
    };
    let open = || share.open(paths);
    let writers = writers.map_err(|error| raised(&error))?;
    let Done {
        reports,
        sinks,
        broken,
        ..
    } = watched(py, open, runs, writers, settings, progress)?;
    // Where reading failed, another run may read more: the writers leave no files.
    if let Some((path, error @ CaptureError::Io { .. })) = &broken {
        return Err(settings::of_capture(error, format!("{path}: {error}")));
    }
    py.detach(|| {
        let mut all = sinks.into_iter().zip(&reports);
        all.try_for_each(|(writer, report)| writer.finish(report))
    })
    .map_err(|error| raised(&error))?;
    Ok(broken.map(|(path, error)| format!("{path}: {error}")))
}

/// The sums of all parts, for each configuration.
fn merged(py: Python<'_>, dataset: &Dataset, runs: &[Options]) -> PyResult<Vec<Report>> {
    let sums = || runs.iter().map(|options| dataset.merge(options)).collect();
    let sums: Result<_, Error> = py.detach(sums);
    sums.map_err(|error| raised(&error))
}

/// `sweep` with `output`: what is there is not done again.
pub fn sweep_into(
    py: Python<'_>,
    folder: &Path,
    name: &str,
    paths: &[PathBuf],
    runs: &[Options],
    progress: Option<&Py<PyAny>>,
) -> PyResult<(Vec<Report>, Option<String>)> {
    let dataset = py.detach(|| create(folder, name, paths, || Ok(vec![Share::Whole]), runs));
    let dataset = dataset.map_err(|error| raised(&error))?;
    let mut broken = None;
    for (part, left) in missing(&dataset, runs) {
        let left: Vec<_> = left.iter().map(|&index| runs[index]).collect();
        let found = run_part(py, &dataset, paths, part, &left, 0, progress)?;
        broken = broken.or(found);
    }
    Ok((merged(py, &dataset, runs)?, broken))
}

/// Creates the data set of a capture, in parts of at least `part_bytes` bytes if they add up
/// exactly. Returns each part with the indices of the configurations that have not run on it.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    path: PathBuf,
    grid: &Bound<'_, PyDict>,
    output: PathBuf,
    dataset: &str,
    part_bytes: u64,
) -> PyResult<Vec<(usize, Vec<usize>)>> {
    let runs = settings::grid(grid)?;
    let planned = py.detach(|| {
        let divide = || Share::of(&path, &runs, part_bytes);
        let paths = std::slice::from_ref(&path);
        let dataset = create(&output, dataset, paths, divide, &runs)?;
        Ok(missing(&dataset, &runs))
    });
    planned.map_err(|error| raised(&error))
}

/// Runs configurations of a grid, by index, on a part of a capture. Returns why the capture was
/// not read to its end, if so.
#[pyfunction]
pub fn work(
    py: Python<'_>,
    path: PathBuf,
    grid: &Bound<'_, PyDict>,
    output: PathBuf,
    dataset: &str,
    part: usize,
    configurations: Vec<usize>,
) -> PyResult<Option<String>> {
    let runs = settings::grid(grid)?;
    let dataset = Dataset::open(&output, dataset).map_err(|error| raised(&error))?;
    dataset.unchanged().map_err(|error| raised(&error))?;
    let wanted = configurations.iter().filter_map(|&index| runs.get(index));
    // A task that was killed may have done some of them.
    let left = wanted.filter(|options| !dataset.has(options, part));
    let runs: Vec<_> = left.copied().collect();
    if runs.is_empty() {
        return Ok(None);
    }
    run_part(py, &dataset, &[path], part, &runs, 1, None)
}

/// Adds up the parts of a data set, writes its table of runs, and returns it.
#[pyfunction]
pub fn merge(
    py: Python<'_>,
    grid: &Bound<'_, PyDict>,
    output: PathBuf,
    dataset: &str,
) -> PyResult<Sweep> {
    let runs = settings::grid(grid)?;
    let found = Dataset::open(&output, dataset).map_err(|error| raised(&error))?;
    let reports = merged(py, &found, &runs)?;
    Sweep::of(py, dataset, &runs, &reports, None)
}
