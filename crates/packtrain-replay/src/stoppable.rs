//! An input that a signal ends, also while it has no data.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a signal can go unnoticed while the input has no data.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Says whether a read without data is to end.
pub type Interrupt = Arc<dyn Fn() -> bool + Send + Sync>;

/// An input that ends once its [`Interrupt`] says so, also if it is a FIFO without a writer.
pub struct Stoppable {
    input: File,
    /// For a pipe, a terminal and the like.
    may_block: bool,
    stop: Interrupt,
}

impl fmt::Debug for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.input.fmt(f)
    }
}

impl Stoppable {
    /// An input that is open. `stop` is called before each read, and five times a second while
    /// there is no data.
    #[must_use]
    pub fn new(input: File, stop: Interrupt) -> Self {
        // If its metadata cannot be read, it may block.
        let may_block = !input.metadata().is_ok_and(|metadata| metadata.is_file());
        Self {
            input,
            may_block,
            stop,
        }
    }

    /// Opens a path, without waiting for the writer of a FIFO.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path, stop: Interrupt) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits() as i32;
        let input = File::options().read(true).custom_flags(flags).open(path)?;
        Ok(Self::new(input, stop))
    }
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !(self.stop)() {
            // The system restarts a read after a signal; a poll ends.
            if self.may_block {
                let wait = Timespec::try_from(POLL_INTERVAL).map_err(io::Error::other)?;
                let mut ready = [PollFd::new(&self.input, PollFlags::IN)];
                if matches!(poll(&mut ready, Some(&wait)), Ok(0) | Err(Errno::INTR)) {
                    continue;
                }
            }
            match self.input.read(buffer) {
                // No data yet, or a signal arrived.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                other => return other,
            }
        }
        Ok(0)
    }
}
