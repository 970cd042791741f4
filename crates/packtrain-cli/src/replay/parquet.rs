//! `--parquet`: the trains of each configuration in a data set.

use super::args::ReplayArgs;
use super::found::{Found, Stored};
use super::input::{self, is_stream, of_run};
use super::pass::watched;
use crate::exit::{Exit, Failure};
use crate::signals::Stop;
use packtrain_capture::CaptureError;
use packtrain_capture::replay::Options;
use packtrain_replay::dataset::{Dataset, check_name, name_of};
use packtrain_replay::tables::configuration_id;
use packtrain_replay::{Error, Settings};
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
        None => (name_of(Path::new(first)), "; name it with --dataset"),
    };
    match check_name(&name) {
        Ok(()) => Ok(name),
        Err(why) => Err(Failure::new(Exit::Usage, format!("{why}{advice}"))),
    }
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
    let name = name(args)?;
    let files = input::files(args, stop)?;
    let inputs = files.paths().map(str::to_owned).collect();
    // A stream is read once, and has one part.
    let is_stream = args.inputs.iter().any(|path| is_stream(path));
    let mut stream = is_stream.then_some(files);
    let dataset = Dataset::create(Path::new(folder), &name, &args.inputs, runs, None);
    let dataset = dataset.map_err(failed)?;
    let mut found = Found {
        runs: runs.to_vec(),
        inputs,
        ..Found::default()
    };
    let mut is_new = vec![false; runs.len()];
    let (mut last_bad, mut stopped) = (None, None);
    for (part, left) in dataset.missing(runs) {
        let files = stream.take().map_or_else(|| dataset.files(part), Ok);
        let files = files.map_err(failed)?;
        let new: Vec<_> = left.iter().map(|&index| runs[index]).collect();
        let run = |settings: &mut Settings<'_>| dataset.run(files, part, &new, settings);
        let done = watched(args, stop, run)?;
        if done.stopped {
            let line = format!(
                "{folder}: a signal ended the run before all configurations were in the data set \
                 {name}: run it again"
            );
            return Err(Failure::new(Exit::Port, line));
        }
        let mut faults = done.broken.iter();
        let is_io = |fault: &&(_, _)| matches!(fault, (_, CaptureError::Io { .. }));
        if let Some((path, error)) = faults.clone().find(is_io) {
            return Err(input::of_capture(path, error));
        }
        let report = done.reports.first();
        last_bad = last_bad.or(report.and_then(|report| report.last_bad));
        stopped = stopped.or(faults.next().map(|(_, error)| *error));
        left.iter().for_each(|&index| is_new[index] = true);
    }
    let ids = |new: bool| {
        let all = runs
            .iter()
            .zip(&is_new)
            .filter(|(_, is_new)| **is_new == new);
        all.map(|(options, _)| configuration_id(options)).collect()
    };
    let mut stored = Stored {
        folder: folder.to_owned(),
        dataset: name,
        written: ids(true),
        kept: ids(false),
        fault: None,
    };
    for options in runs {
        let (mut report, fault) = dataset.merge(options).map_err(failed)?;
        // Reports of data sets have neither.
        (report.last_bad, report.stopped) = (last_bad, stopped);
        stored.fault = stored.fault.or(fault);
        found.reports.push(report);
    }
    found.stored = Some(stored);
    Ok(found)
}
