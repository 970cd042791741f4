//! SIGINT, SIGTERM and SIGHUP end a run in order: it stops receiving, drains, and prints its
//! totals. SIGUSR1 asks for the totals so far.

use crate::exit::{Exit, Failure};
use crate::print;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How long printing the last line may take.
const LAST_LINE_MAX: Duration = Duration::from_millis(200);

/// What a run on files may be waiting for.
pub const FOR_A_FILE: &str = "a file, perhaps a pipe without a reader or writer,";

/// Set if the run has to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

/// Whether a run is still starting. A signal then ends the program at once.
#[derive(Clone, Debug)]
pub struct Start {
    is_over: Arc<Mutex<bool>>,
}

impl Start {
    /// The start of a run that moves no packet before [`end`](Self::end) is called.
    pub fn new() -> Self {
        Self {
            is_over: Arc::new(Mutex::new(false)),
        }
    }

    /// From now on a signal ends the run in order. If a signal arrived before, this does not
    /// return: the program is ending.
    pub fn end(&self) {
        *self.lock() = true;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stop {
    /// Installs the handlers. Those of SIGINT and SIGTERM also where they were inherited as ignored
    /// (a shell does that to background jobs); that of SIGHUP not, which nohup(1) has ignored on
    /// purpose. A second signal changes nothing: draining is bounded, and `timeout(1)` sends two.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn install() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in ending() {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| {
                Failure::new(
                    Exit::Port,
                    format!("cannot handle signal {signal}: {error}"),
                )
            })?;
        }
        print::after(Arc::clone(&flag));
        Ok(Self(flag))
    }

    /// A descriptor that is readable after a signal, for a thread that also waits for other
    /// descriptors. For signals before this call, check [`requested`].
    ///
    /// [`requested`]: Self::requested
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn pipe() -> Result<UnixStream, Failure> {
        piped(ending())
    }

    /// Ends the program after a signal: at once while `start` is not over, and otherwise with a
    /// failure if it has not ended after `time_max`. It is then stalled, such as in a write to a
    /// full pipe; `waits` says for what it may be waiting.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn end_after(
        &self,
        time_max: Duration,
        start: &Start,
        waits: &'static str,
    ) -> Result<(), Failure> {
        let mut reader = Self::pipe()?;
        let (stop, start) = (self.clone(), start.clone());
        let watch = move || {
            // The thread ends with the program.
            if !stop.requested() && reader.read_exact(&mut [0]).is_err() {
                return;
            }
            let is_over = start.lock();
            if !*is_over {
                // The lock is held until the end, so no packet moves.
                last_words(|| {
                    print::message("interrupted during the start: nothing was forwarded");
                });
                std::process::exit(0);
            }
            drop(is_over);
            thread::sleep(time_max);
            let seconds = time_max.as_secs();
            let line =
                format!("still waiting for {waits} {seconds} s after the signal: ended without it");
            last_words(move || print::error_line(&line));
            std::process::exit(Exit::Port as i32);
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(watch).map_err(|error| unwatched(&error))?;
        Ok(())
    }

    /// Whether a signal has arrived.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag itself, for a library that watches it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// Whether the totals were asked for by SIGUSR1.
#[derive(Debug)]
pub struct Asked(UnixStream);

impl Asked {
    /// Installs the handler: the signal ends nothing from now on.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn install() -> Result<Self, Failure> {
        let reader = piped(vec![SIGUSR1])?;
        reader
            .set_nonblocking(true)
            .map_err(|error| unwatched(&error))?;
        Ok(Self(reader))
    }

    /// A descriptor that is readable after the signal, until [`take`](Self::take).
    pub const fn stream(&self) -> &UnixStream {
        &self.0
    }

    /// Whether the signal has arrived since the last call.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn take(&self) -> Result<bool, Failure> {
        match (&self.0).read(&mut [0; 64]) {
            Ok(count) => Ok(count > 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(unwatched(&error)),
        }
    }
}

/// The signals that end a run.
fn ending() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    // Once a handler is installed the signal is not ignored, so each call has the same answer.
    if !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether the process ignores a signal. Where /proc is not mounted, that is not known: no.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// A stream that is readable after one of `signals`.
fn piped(signals: Vec<i32>) -> Result<UnixStream, Failure> {
    let (reader, writer) = UnixStream::pair().map_err(|error| unwatched(&error))?;
    for signal in signals {
        let writer = writer.try_clone().map_err(|error| unwatched(&error))?;
        signal_hook::low_level::pipe::register(signal, writer)
            .map_err(|error| unwatched(&error))?;
    }
    Ok(reader)
}

fn unwatched(error: &io::Error) -> Failure {
    Failure::new(Exit::Port, format!("cannot watch for signals: {error}"))
}

/// Prints a line before the program ends. Standard error may have no reader, so the program waits
/// for [`LAST_LINE_MAX`] at most.
fn last_words(say: impl FnOnce() + Send + 'static) {
    let (done, said) = mpsc::channel::<()>();
    let says = thread::Builder::new().spawn(move || {
        say();
        drop(done);
    });
    // No value is sent: the channel closes, or the time is over.
    said.recv_timeout(LAST_LINE_MAX).unwrap_or(());
    drop(says);
}
