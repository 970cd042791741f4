//! The output of a program under test: a pipe that a thread reads, the last bytes of it, and a log.

use packtrain::name::Name;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::{LabError, ToolError};
use crate::tap;

/// The last bytes of the output, in which the last line is searched. At most twice as many are
/// kept.
const TAIL_BYTES: usize = 2000;

/// Bytes of one read.
const READ_BYTES: usize = 4096;

/// Reads in a row. They take more than a pipe holds (64 KiB), so that what a program has printed
/// before its end is read, and a program that never stops printing delays its reader for a moment.
const READS_MAX: usize = 64;

/// How long the thread waits for output at a time.
const WAIT: Duration = Duration::from_secs(3600);

/// A file for the output of all starts of a program, as it comes.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    error: Mutex<Option<io::Error>>,
}

impl Log {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// [`ToolError::Failed`] with the path if it cannot be created.
    pub fn create(path: &Path) -> Result<Self, ToolError> {
        let file = File::create(path).map_err(|error| {
            let line = format!(
                "--log {}: {error}; name a file in a folder that exists and that \
                                you may write to",
                Name::from(path)
            );
            ToolError::Failed(line)
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            error: Mutex::default(),
        })
    }

    /// Why the log ends before the output does, with the path; `None` for a log that is whole.
    pub fn error(&self) -> Option<String> {
        let error = locked(&self.error);
        let error = error.as_ref()?;
        let path = Name::from(&self.path);
        Some(format!("{path}: {error}: the log is cut"))
    }

    /// After the first error nothing is written.
    fn write(&self, bytes: &[u8]) {
        let mut error = locked(&self.error);
        if error.is_none() {
            *error = (&self.file).write_all(bytes).err();
        }
    }
}

/// The output of one start of a program. Its memory has a bound: the tail, and what the pipe holds.
#[derive(Debug)]
pub(crate) struct Output {
    /// The end that is read. Reads do not wait.
    pipe: File,
    tail: Mutex<Vec<u8>>,
    log: Option<Arc<Log>>,
}

impl Output {
    /// Reads a pipe in a thread of its own, until all processes that hold its other end have ended.
    ///
    /// # Errors
    /// [`LabError::Os`] if the pipe cannot be set to reads that do not wait.
    pub(crate) fn read(pipe: OwnedFd, log: Option<Arc<Log>>) -> Result<Arc<Self>, LabError> {
        rustix::io::ioctl_fionbio(&pipe, true)
            .map_err(|error| LabError::from_io("FIONBIO")(error.into()))?;
        let output = Arc::new(Self {
            pipe: pipe.into(),
            tail: Mutex::default(),
            log,
        });
        let reader = Arc::clone(&output);
        thread::spawn(move || {
            while tap::wait_readable(&[reader.pipe.as_fd()], WAIT).is_ok() && reader.take() {}
        });
        Ok(output)
    }

    /// Takes what is in the pipe; false at its end.
    pub(crate) fn take(&self) -> bool {
        let mut tail = locked(&self.tail);
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            let bytes = match (&self.pipe).read(&mut buffer) {
                Ok(0) => return false,
                Ok(bytes) => &buffer[..bytes],
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return true,
            };
            if let Some(log) = &self.log {
                log.write(bytes);
            }
            tail.extend_from_slice(bytes);
            if tail.len() > 2 * TAIL_BYTES {
                let excess = tail.len() - TAIL_BYTES;
                tail.drain(..excess);
            }
        }
        true
    }

    /// The last line that is not empty, without the spaces around it.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.take();
        let tail = locked(&self.tail);
        let text = String::from_utf8_lossy(&tail[tail.len().saturating_sub(TAIL_BYTES)..]);
        let mut lines = text.lines().rev().map(str::trim);
        lines.find(|line| !line.is_empty()).map(str::to_owned)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_endless_output_has_a_bound_and_the_log_has_all() {
        let name = format!("packtrain-output-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let log = Arc::new(Log::create(&path).expect("a log"));
        let (read, mut write) = io::pipe().expect("a pipe");
        let output = Output::read(read.into(), Some(Arc::clone(&log))).expect("a reader");
        let mut all = String::new();
        for number in 0..20_000 {
            let line = format!("line {number}\n");
            write.write_all(line.as_bytes()).expect("the thread reads");
            all.push_str(&line);
        }
        write
            .write_all(b"  the last one \n\n")
            .expect("the thread reads");
        all.push_str("  the last one \n\n");
        assert_eq!(output.last_line().as_deref(), Some("the last one"));
        assert!(locked(&output.tail).len() <= 2 * TAIL_BYTES);
        drop(write);
        assert!(!output.take(), "its end");
        assert_eq!(std::fs::read_to_string(&path).expect("the log"), all);
        assert_eq!(log.error(), None);
        std::fs::remove_file(&path).expect("the log");
    }

    #[test]
    fn a_log_that_is_cut_says_so_and_one_that_cannot_be_is_an_error() {
        let full = Log::create(Path::new("/dev/full")).expect("a device");
        full.write(b"text");
        full.write(b"text");
        let error = full.error().expect("no space");
        assert!(error.starts_with("/dev/full: No space"), "{error}");
        let missing = Log::create(Path::new("/no/such/folder/log")).expect_err("no folder");
        let wanted = "--log /no/such/folder/log: No such file or directory";
        assert!(missing.to_string().starts_with(wanted), "{missing}");
    }
}
