//! FIFOs that are written: their `open` waits until another program reads them.

use crate::exit::{Exit, Failure};
use crate::print;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two attempts to open the FIFO: nothing reports that it has a reader.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether a path is a FIFO, or standard output that is a pipe.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Waits until a FIFO has a reader, and says so on standard error if it has none yet. Returns it
/// open for writing: as long as the caller keeps it, the reader finds no end. `None` at once for
/// any other file, and when `is_stopped`.
///
/// # Errors
///
/// If it has no reader after `time_max`.
pub fn wait_for_reader(
    path: &Path,
    time_max: Option<Duration>,
    is_stopped: impl Fn() -> bool,
) -> Result<Option<File>, Failure> {
    if !is_pipe(path) {
        return Ok(None);
    }
    let mut options = File::options();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    options.write(true).custom_flags(flags);
    let start = Instant::now();
    let shown = path.display();
    let mut is_told = false;
    while !is_stopped() {
        match options.open(path) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {}
            // The program reports it when it opens the file.
            Err(_other) => return Ok(None),
        }
        if !is_told {
            print::message(&format!("waiting for a program that reads {shown}\n"));
            is_told = true;
        }
        if time_max.is_some_and(|time_max| start.elapsed() >= time_max) {
            let line = format!(
                "{shown}: no program has opened the FIFO for reading within --duration; start the \
                 reader first"
            );
            return Err(Failure::new(Exit::Port, line));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(None)
}
