//! `--parquet`: the trains of each configuration in a data set.

use super::args::ReplayArgs;
use super::found::{Found, Stored};
use super::input::{self, is_stream, of_run};
use super::pass::pass;
use crate::exit::{Exit, Failure};
use crate::signals::Stop;
use packtrain_capture::CaptureError;
use packtrain_capture::replay::Options;
use packtrain_replay::Error;
use packtrain_replay::dataset::{Dataset, Input, Inputs, check_name};
use packtrain_replay::tables::configuration_id;
use std::path::Path;

/// The most configurations of a run: each one has an open file, and the rows of a row group in
/// memory.
const RUNS_MAX: usize = 256;

/// Checks what the data set is to have, and its name.
///
/// # Errors
///
/// A usage error.
pub fn check(args: &ReplayArgs, runs: &[Options]) -> Result<(), Failure> {
    if runs.len() > RUNS_MAX {
        let line = format!(
            "--parquet is for up to {RUNS_MAX} configurations at once, and the lists are {}: run \
             some of them at a time, into one data set",
            runs.len()
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    name(args).map(drop)
}

/// The name of the data set.
fn name(args: &ReplayArgs) -> Result<String, Failure> {
    let first = args.inputs.first().map_or("", String::as_str);
    let (name, advice) = match &args.dataset {
        Some(name) => (name.clone(), ""),
        None if is_stream(first) => {
            let line = format!("{first} is no file that names the data set: add --dataset NAME");
            return Err(Failure::new(Exit::Usage, line));
        }
        None => (stem(first), "; name it with --dataset"),
    };
    match check_name(&name) {
        Ok(()) => Ok(name),
        Err(why) => Err(Failure::new(Exit::Usage, format!("{why}{advice}"))),
    }
}

/// The name of a file without the suffixes of compression and format.
fn stem(path: &str) -> String {
    let name = Path::new(path).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let plain = [".gz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    let stem = Path::new(plain.unwrap_or(&name)).file_stem();
    stem.unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads the captures once, for the configurations that the data set does not have.
///
/// # Errors
///
/// If a capture cannot be read, the folder has other data, or a file cannot be written.
pub fn run(
    args: &ReplayArgs,
    folder: &str,
    runs: &[Options],
    stop: &Stop,
) -> Result<Found, Failure> {
    let failed = |error: Error| of_run(&error, false);
    let files = input::files(args, stop)?;
    let inputs = files.paths().map(str::to_owned).collect();
    let dataset = create(args, folder)?;
    let listed = runs.len();
    let (kept, runs): (Vec<_>, Vec<_>) = runs
        .iter()
        .copied()
        .partition(|options| dataset.has(options, 0));
    let mut fault = None;
    for options in &kept {
        fault = fault.or(dataset.fault(options).map_err(failed)?);
    }
    let writers = runs.iter().map(|options| dataset.writer(options, 0));
    let writers = writers.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut found = Found {
        listed,
        inputs,
        ..Found::default()
    };
    let mut written = Vec::new();
    if !runs.is_empty() {
        let done = pass(args, files, &runs, writers, stop)?;
        // Of an input that fails, another run may read more.
        let failed_to_read = matches!(done.broken, Some((_, CaptureError::Io { .. })));
        let all = done.sinks.into_iter().zip(&runs).zip(&done.reports);
        for ((writer, options), report) in all {
            // A signal may have ended the input, so that the trains are not all. A writer that is
            // not finished removes its file.
            if !(failed_to_read || done.stopped || stop.requested()) {
                writer.finish(report).map_err(failed)?;
                written.push(configuration_id(options));
            }
        }
        found.reports = done.reports;
        found.broken = done.broken;
    }
    found.runs = runs;
    found.stopped = stop.requested();
    found.stored = Some(Stored {
        folder: folder.to_owned(),
        dataset: dataset.name().to_owned(),
        written,
        kept: kept.iter().map(configuration_id).collect(),
        fault,
    });
    Ok(found)
}

/// Creates the data set, or opens it.
fn create(args: &ReplayArgs, folder: &str) -> Result<Dataset, Failure> {
    let failed = |error: Error| of_run(&error, false);
    let stream = args.inputs.iter().find(|path| is_stream(path));
    let captures = match stream {
        Some(path) => Inputs {
            files: vec![Input {
                path: path.clone(),
                bytes: None,
                modified_ns: None,
            }],
            parts: Vec::new(),
        },
        None => Inputs::of(&args.inputs).map_err(failed)?,
    };
    let dataset = Dataset::create(Path::new(folder), &name(args)?, &captures).map_err(failed)?;
    // Two streams of one name cannot be told apart.
    if let Some(path) = stream
        && !dataset.is_empty().map_err(failed)?
    {
        let line = format!(
            "{folder}: the data set {} has trains, and {path} is no file that can be compared with \
             theirs: choose another name with --dataset",
            dataset.name()
        );
        return Err(Failure::new(Exit::Port, line));
    }
    Ok(dataset)
}
