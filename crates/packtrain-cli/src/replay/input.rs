//! The inputs of a replay: files, and what blocks.

use super::args::ReplayArgs;
use crate::exit::{Exit, Failure};
use crate::signals::Stop;
use packtrain::advice;
use packtrain_capture::CaptureError;
use packtrain_replay::{Error, Files, Stoppable};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The inputs, in the order of time.
///
/// # Errors
///
/// If one cannot be opened, or is no capture.
pub fn files(args: &ReplayArgs, stop: &Stop) -> Result<Files, Failure> {
    match &args.inputs[..] {
        [path] if !is_file(path) => {
            let input = open(path, stop)?;
            Ok(Files::input(path, Box::new(input)))
        }
        paths => Files::open(paths).map_err(|error| {
            let mut failure = of_run(&error, false);
            if let (Error::Open { error, .. }, [_, _, ..]) = (&error, paths)
                && error.kind() == ErrorKind::NotFound
            {
                failure.line += "; a capture to write is named with -o";
            }
            failure
        }),
    }
}

/// Opens an input that ends after a signal; `-` is standard input.
///
/// # Errors
///
/// If it cannot be opened.
pub fn open(path: &str, stop: &Stop) -> Result<Stoppable, Failure> {
    let stop = stop.clone();
    let stop = Arc::new(move || stop.requested());
    let opened = if path == "-" {
        let input = stdin().as_fd().try_clone_to_owned();
        input.map(|input| Stoppable::new(input.into(), stop))
    } else {
        Stoppable::open(Path::new(path), stop)
    };
    opened.map_err(|error| of_file(path, false, &error))
}

/// Whether an input is no file: standard input, a FIFO and the like. One that is not there is none.
pub fn is_stream(path: &str) -> bool {
    path == "-" || std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

fn is_file(path: &str) -> bool {
    path != "-" && std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// Checks that no input is read twice, is written over, or has to be read alone.
///
/// # Errors
///
/// A usage error.
pub fn check(args: &ReplayArgs) -> Result<(), Failure> {
    let usage = |line: String| Err(Failure::new(Exit::Usage, line));
    let output = args.output.as_deref();
    let output = output.and_then(|path| identity(path, stdout().as_fd()));
    let mut known = Vec::new();
    for path in &args.inputs {
        // If it is not there, another error comes when it is opened.
        if args.inputs.len() > 1 && is_stream(path) {
            return usage(format!(
                "{path} is no file, and only files are read beside others, in the order of time: \
                 replay it alone"
            ));
        }
        let Some(id) = identity(path, stdin().as_fd()) else {
            continue;
        };
        if output == Some(id) {
            return usage("the capture would be written over itself: name another file".to_owned());
        }
        if known.contains(&id) {
            return usage(format!("{path} is given twice: name each capture once"));
        }
        known.push(id);
    }
    Ok(())
}

/// Device and inode of a file; `-` is the file behind `standard`. `None` for pipes and the like,
/// and for a file that does not exist.
fn identity(path: &str, standard: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let metadata = if path == "-" {
        File::from(standard.try_clone_to_owned().ok()?).metadata()
    } else {
        std::fs::metadata(path)
    };
    let metadata = metadata.ok()?;
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

/// A failure to open a file, or to create it.
pub fn of_file(path: &str, write: bool, error: &io::Error) -> Failure {
    let what = if write { "create" } else { "open" };
    let line = format!("{path}: cannot {what}: {error}{}", advice_on(error, write));
    Failure::new(Exit::Port, line)
}

/// What to do about a file that cannot be opened, read or written.
fn advice_on(error: &io::Error, write: bool) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => "; raise the limit on open files with `ulimit -n`",
        _ => advice::on_file(error.kind(), write),
    }
}

/// A capture that cannot be read, or not to its end.
pub fn of_capture(path: &str, error: &CaptureError) -> Failure {
    let advice = match error {
        CaptureError::Io { fault, .. } => advice::on_file(fault.kind, false),
        _ => "",
    };
    Failure::new(Exit::Port, format!("{path}: {error}{advice}"))
}

/// A failure of a run; `stopped` after a signal.
pub fn of_run(error: &Error, stopped: bool) -> Failure {
    match error {
        Error::Open { path, error } => of_file(path, false, error),
        Error::Capture {
            path,
            error: CaptureError::Truncated { .. },
        } if stopped => before_the_start(path),
        Error::Capture { path, error } => of_capture(path, error),
        Error::Write { error: fault, .. } | Error::Sink(fault) => {
            Failure::new(Exit::Port, format!("{error}{}", advice_on(fault, true)))
        }
        Error::Thread(fault) => {
            let advice = advice::on_threads(fault.raw_os_error());
            Failure::new(Exit::Port, format!("{error}{advice}"))
        }
        error => Failure::new(Exit::Port, error.to_string()),
    }
}

/// A signal ended the wait for the start of a capture.
pub fn before_the_start(path: &str) -> Failure {
    let line = format!("{path}: a signal came before the capture began");
    Failure::new(Exit::Port, line)
}
