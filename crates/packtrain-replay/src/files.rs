//! The captures of a run, in the order of time.

use super::error::Error;
use super::part::Part;
use super::stoppable::{Interrupt, Stoppable};
use packtrain_capture::{CaptureError, Reader};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The captures of a run. They are as one: see
/// [`Intake`](packtrain_capture::replay::Intake).
pub struct Files {
    /// By the time of their first packets.
    pub(super) sources: Vec<Source>,
}

/// One capture.
pub(super) struct Source {
    pub(super) path: String,
    /// The time of the first packet, in nanoseconds since the Unix epoch; the last one without
    /// packets.
    pub(super) first_ns: u64,
    /// Bytes to read, if known.
    pub(super) bytes: Option<u64>,
    open: Opens,
}

enum Opens {
    /// A file, or a part of it, and how it was at the start.
    File(PathBuf, Option<Part>, Stamp),
    /// An input that is open; taken when it is read.
    Input(Option<Box<dyn Read + Send>>),
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.paths()).finish()
    }
}

/// What differs for a file that was changed: its length, and when it was modified.
type Stamp = (u64, Option<SystemTime>);

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.len(), metadata.modified().ok())
}

/// An input that counts what is read from it.
pub(super) struct Counting {
    input: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Files {
    /// Captures of any number, in the order of their first packets.
    ///
    /// # Errors
    /// If a file cannot be opened, or is no capture. One of several that has the start of one and
    /// cannot be read, or is empty, is in [`Done::broken`](super::Done::broken).
    pub fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        let several = paths.len() > 1;
        let sources = paths
            .iter()
            .map(|path| Source::file(path.as_ref(), None, several));
        let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
        sources.sort_by_key(|source| source.first_ns);
        Ok(Self { sources })
    }

    /// A part of a capture.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn part(path: &Path, part: Part) -> Result<Self, Error> {
        let source = Source::file(path, Some(part), false)?;
        Ok(Self {
            sources: vec![source],
        })
    }

    /// One capture that is open already, under a name for errors.
    #[must_use]
    pub fn input(name: &str, input: Box<dyn Read + Send>) -> Self {
        let source = Source {
            path: name.to_owned(),
            first_ns: 0,
            bytes: None,
            open: Opens::Input(Some(input)),
        };
        Self {
            sources: vec![source],
        }
    }

    /// The bytes of all files, if known. Those of compressed files are before decompression.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.sources.iter().map(|source| source.bytes).sum()
    }

    /// The paths, in the order in which they are read.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|source| &source.path[..])
    }
}

impl Source {
    fn file(path: &Path, part: Option<Part>, several: bool) -> Result<Self, Error> {
        let name = path.display().to_string();
        let failed = |error| Error::Open {
            path: path.display().to_string(),
            error,
        };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let found = stamp(&metadata);
        if part.is_some_and(|part| part.end > metadata.len()) {
            return Err(Error::Changed { path: name });
        }
        let bytes = metadata.is_file().then_some(metadata.len());
        let mut source = Self {
            first_ns: 0,
            bytes: part.map_or(bytes, |part| Some(part.bytes())),
            open: Opens::File(path.to_owned(), part, found),
            path: name.clone(),
        };
        if part.is_none() && metadata.is_file() {
            let input = source.reopen(None).map_err(failed)?;
            let mut reader = match Reader::new(input) {
                Ok(reader) => reader,
                Err(error) if several && !matches!(error, CaptureError::UnknownMagic { .. }) => {
                    source.first_ns = u64::MAX;
                    return Ok(source);
                }
                Err(error) => return Err(source.of_capture(error)),
            };
            source.first_ns = loop {
                match reader.next_record() {
                    Ok(Some(record)) => break record.timestamp_ns.unwrap_or(0),
                    // Read last: what is wrong with it ends no other one.
                    Ok(None) => break u64::MAX,
                    Err(error) if error.is_fatal() => break u64::MAX,
                    Err(_) => {}
                }
            };
        }
        Ok(source)
    }

    fn of_open(&self, error: io::Error) -> Error {
        let path = self.path.clone();
        Error::Open { path, error }
    }

    fn of_capture(&self, error: CaptureError) -> Error {
        Error::Capture {
            path: self.path.clone(),
            error,
        }
    }

    fn reopen(&mut self, stop: Option<&Interrupt>) -> io::Result<Box<dyn Read + Send>> {
        match &mut self.open {
            Opens::File(path, Some(part), _) => Ok(Box::new(part.read(File::open(path)?)?)),
            Opens::File(path, None, _) => Ok(match (stop, self.bytes) {
                (Some(stop), None) => Box::new(Stoppable::open(path, Arc::clone(stop))?),
                _ => Box::new(File::open(path)?),
            }),
            Opens::Input(input) => input.take().ok_or_else(|| io::Error::other("read twice")),
        }
    }

    /// Opens it to be read; what is read is added to `bytes`.
    pub(super) fn reader(
        &mut self,
        bytes: &Arc<AtomicU64>,
        stop: Option<&Interrupt>,
    ) -> Result<Reader<Counting>, Error> {
        self.unchanged()?;
        let input = self.reopen(stop).map_err(|error| self.of_open(error))?;
        let counting = Counting {
            input,
            bytes: Arc::clone(bytes),
        };
        Reader::new(counting).map_err(|error| self.of_capture(error))
    }

    /// Whether it is the file that it was at the start.
    pub(super) fn unchanged(&self) -> Result<(), Error> {
        let Opens::File(path, _, known) = &self.open else {
            return Ok(());
        };
        let metadata = std::fs::metadata(path).map_err(|error| self.of_open(error))?;
        if self.bytes.is_some() && stamp(&metadata) != *known {
            return Err(Error::Changed {
                path: self.path.clone(),
            });
        }
        Ok(())
    }
}
