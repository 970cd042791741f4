//! The nice value and the scheduling class of a worker's thread.

use super::error::StartError;
use super::sys::{nice, set_batch, set_nice};
use crate::policy::idle::Idle;
use crate::policy::priority::{NICE, Priority, Serves};
use std::io;
use std::thread;

/// The priority that a worker's thread has been given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) nice: i8,
    /// It was given the class `SCHED_BATCH`.
    pub(super) batch: bool,
}

/// Gives the calling thread the priority of a worker.
///
/// # Errors
///
/// [`StartError::System`] if the system refuses a value that the user set by number.
pub(super) fn take_priority(
    priority: Priority,
    idle: Idle,
    serves: Serves,
) -> Result<Taken, StartError> {
    if let Priority::Nice(asked) = priority {
        let asked = asked.clamp(*NICE.start(), *NICE.end());
        let refused = |error: io::Error| io::Error::new(error.kind(), priority.refused(&error));
        return match set_nice(asked) {
            Ok(()) => Ok(Taken {
                nice: asked,
                batch: false,
            }),
            Err(error) => {
                let failed = StartError::system("give a worker's thread its priority");
                Err(failed(refused(error)))
            }
        };
    }
    let batch = priority.batch(serves) && set_batch();
    let Ok(now) = nice() else {
        // Only a filter of system calls refuses this call: the thread keeps its value.
        return Ok(Taken { nice: 0, batch });
    };
    let wanted = priority.nice(idle, serves, now).unwrap_or(now);
    // The lowest value that the system permits.
    let taken = (wanted..now).find(|&nice| set_nice(nice).is_ok());
    let nice = taken.unwrap_or(now);
    Ok(Taken { nice, batch })
}

/// Probes whether a worker's thread could have its priority, on a thread that ends afterwards.
///
/// # Errors
///
/// As [`take_priority`], and if the system refuses a thread.
pub(super) fn try_priority(priority: Priority, idle: Idle) -> Result<(), StartError> {
    thread::scope(|scope| {
        let take = || take_priority(priority, idle, Serves::Devices);
        let probe = thread::Builder::new().spawn_scoped(scope, take);
        let probe = probe.map_err(StartError::system("start a thread"))?;
        let taken = probe.join();
        taken.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(())
    })
}
