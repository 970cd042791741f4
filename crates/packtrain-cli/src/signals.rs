//! SIGINT and SIGTERM end a run in good order.

use crate::exit::{Exit, Failure};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

    /// Whether a signal has arrived.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag itself, for a library that watches it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
