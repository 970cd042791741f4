//! FIFOs that are written: their `open` waits until another program reads them.

use crate::exit::{Exit, Failure};
use crate::print;
use packtrain::name::Name;
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

/// Waits until each FIFO of `paths` has a reader, and says so on standard error if one has none,
/// unless `is_quiet`. Returns them open for writing: as long as the caller keeps them, a reader
/// finds no end. Other files are left out. Ends early when `is_stopped`.
///
/// The readers may be one program that opens them in any order.
///
/// # Errors
///
/// If one has no reader after `time_max`.
pub fn wait_for_readers<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
    time_max: Option<Duration>,
    is_quiet: bool,
    is_stopped: impl Fn() -> bool,
) -> Result<Vec<File>, Failure> {
    let mut options = File::options();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    options.write(true).custom_flags(flags);
    let mut waiting: Vec<_> = paths.into_iter().filter(|path| is_pipe(path)).collect();
    let mut open = Vec::new();
    let start = Instant::now();
    let mut is_told = is_quiet;
    loop {
        waiting.retain(|path| match options.open(path) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => true,
            // The program reports another error when it opens the file.
            result => {
                open.extend(result);
                false
            }
        });
        let Some(first) = waiting.first().filter(|_| !is_stopped()) else {
            return Ok(open);
        };
        if !is_told {
            for path in &waiting {
                let shown = Name::from(path);
                print::message(&format!("waiting for a program that reads {shown}"));
            }
            is_told = true;
        }
        if time_max.is_some_and(|time_max| start.elapsed() >= time_max) {
            let line = format!(
                "{}: no program has opened the FIFO for reading within --duration; start the \
                 reader first",
                Name::from(first)
            );
            return Err(Failure::new(Exit::Port, line));
        }
        thread::sleep(POLL_INTERVAL);
    }
}
