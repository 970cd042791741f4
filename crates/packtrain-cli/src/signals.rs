//! SIGINT and SIGTERM end a run in good order.

use crate::exit::{Exit, Failure};
use crate::print;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long the last line may take.
const SAY_MAX: Duration = Duration::from_millis(200);

/// Set when the run shall end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

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

    /// Ends the program with a failure `patience` after a signal, if it has not ended by then: it
    /// hangs in a system call that no signal ends, as writing to a pipe that nobody reads does.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn end_after(&self, patience: Duration) -> Result<(), Failure> {
        let failed = |error| {
            let line = format!("cannot watch for signals: {error}");
            Failure::new(Exit::Port, line)
        };
        let (mut told, teller) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM] {
            let teller = teller.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, teller).map_err(failed)?;
        }
        let watch = move || {
            // Its end comes with the program's.
            if told.read_exact(&mut [0]).is_ok() {
                thread::sleep(patience);
                let seconds = patience.as_secs();
                let line = format!(
                    "still waiting for a file {seconds} s after the signal (a pipe that nobody \
                     reads or writes?): ended without it"
                );
                // Perhaps it is standard error that nobody reads: the end does not wait for it.
                let says = thread::Builder::new().spawn(move || print::error_line(&line));
                thread::sleep(SAY_MAX);
                drop(says);
                std::process::exit(Exit::Port as i32);
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(watch).map_err(failed)?;
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
