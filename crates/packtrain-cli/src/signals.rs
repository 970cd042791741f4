//! SIGINT and SIGTERM end a run in good order.

use crate::exit::{Exit, Failure};
use crate::print;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How long the last line may take.
const SAY_MAX: Duration = Duration::from_millis(200);

/// Set when the run shall end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

/// Whether a run is still being started. A signal then ends the program at once.
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

    /// From now on a signal ends the run in good order. Does not return if a signal came before:
    /// the program is ending then.
    pub fn end(&self) {
        *self.lock() = true;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stop {
    /// Installs the handlers, also where the signals were inherited as ignored (a shell does that
    /// to background jobs). A second signal changes nothing: draining is bounded, and `timeout(1)`
    /// sends two.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn install() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| {
                Failure::new(
                    Exit::Port,
                    format!("cannot handle signal {signal}: {error}"),
                )
            })?;
        }
        Ok(Self(flag))
    }

    /// A descriptor that is readable once a signal has arrived, for a thread that waits for other
    /// things as well. A signal before this call does not show there: [`requested`] says so.
    ///
    /// [`requested`]: Self::requested
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn pipe() -> Result<UnixStream, Failure> {
        let (told, teller) = UnixStream::pair().map_err(|error| unwatched(&error))?;
        for signal in [SIGINT, SIGTERM] {
            let teller = teller.try_clone().map_err(|error| unwatched(&error))?;
            signal_hook::low_level::pipe::register(signal, teller)
                .map_err(|error| unwatched(&error))?;
        }
        Ok(told)
    }

    /// Ends the program after a signal: at once while `start` is not over, and else with a failure
    /// if it has not ended within `patience`. It then hangs in a system call that no signal ends,
    /// as writing to a full pipe does.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn end_after(&self, patience: Duration, start: &Start) -> Result<(), Failure> {
        let mut told = Self::pipe()?;
        let (stop, start) = (self.clone(), start.clone());
        let watch = move || {
            // Its end comes with the program's.
            if !stop.requested() && told.read_exact(&mut [0]).is_err() {
                return;
            }
            let is_over = start.lock();
            if !*is_over {
                // The lock is held to the end: no packet moves any more.
                last_words(|| {
                    print::message("interrupted during the start: nothing was forwarded\n");
                });
                std::process::exit(0);
            }
            drop(is_over);
            thread::sleep(patience);
            let seconds = patience.as_secs();
            let line = format!(
                "still waiting for a file {seconds} s after the signal (a pipe that nobody reads \
                 or writes?): ended without it"
            );
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

fn unwatched(error: &io::Error) -> Failure {
    Failure::new(Exit::Port, format!("cannot watch for signals: {error}"))
}

/// Says something before the program ends. Standard error may have no reader, so the end does
/// not wait for it longer than [`SAY_MAX`].
fn last_words(say: impl FnOnce() + Send + 'static) {
    let (done, said) = mpsc::channel::<()>();
    let says = thread::Builder::new().spawn(move || {
        say();
        drop(done);
    });
    // Nothing is ever sent: the channel closes, or the time is over.
    said.recv_timeout(SAY_MAX).unwrap_or(());
    drop(says);
}
