//! The settings of a run: of its queues and its threads.

use super::error::StartError;
use super::priority::try_priority;
use crate::driver::QueueConfig;
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::Idle;
use crate::policy::moderation::Moderation;
use crate::policy::placement::{Placed, Placement, place, place_unseen};
use crate::policy::priority::Priority;
use crate::runtime::{Runtime, System};

/// The settings of the queues and threads of a run. The defaults are adaptive. The settings of a
/// port's own queues override these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which thread drains the ring in front of a shared TX queue.
    pub dispatch: Dispatch,
    /// How long an RX queue may delay the next wake-up of its worker.
    pub moderation: Moderation,
    /// What a worker without work does.
    pub idle: Idle,
    /// On which CPU each worker runs. It does not apply to workers that a caller drives.
    pub placement: Placement,
    /// The nice value of a worker's thread. It does not apply to workers that a caller drives.
    pub priority: Priority,
}

impl Settings {
    /// The dispatch and moderation of a port with the settings `config`.
    #[must_use]
    pub fn of_port(&self, config: &QueueConfig) -> (Dispatch, Moderation) {
        (
            config.dispatch.unwrap_or(self.dispatch),
            config.moderation.unwrap_or(self.moderation),
        )
    }

    /// Refuses settings that this machine does not permit: a list with a CPU that the process may
    /// not use, a nice value that the system refuses.
    ///
    /// # Errors
    ///
    /// [`StartError::Setting`] or [`StartError::System`], which name the setting and an
    /// alternative.
    pub fn check(&self) -> Result<(), StartError> {
        self.check_placement(&System::new())?;
        self.check_priority()
    }

    pub(super) fn check_placement(&self, runtime: &dyn Runtime) -> Result<(), StartError> {
        // If the topology cannot be read, a list is not checked here. The session does not start if
        // the system refuses it.
        match runtime.topology() {
            Ok(topology) => self.placement.check(&topology).map_err(StartError::Setting),
            Err(_unknown) => Ok(()),
        }
    }

    pub(super) fn check_priority(&self) -> Result<(), StartError> {
        match self.priority {
            Priority::Nice(_) => try_priority(self.priority, self.idle),
            Priority::None | Priority::Auto => Ok(()),
        }
    }

    /// The CPUs of the threads of `workers` workers beside `senders` application threads, on the
    /// machine of `runtime`, with the reason.
    #[must_use]
    pub fn place(&self, runtime: &dyn Runtime, workers: usize, senders: usize) -> Placed {
        match runtime.topology() {
            Ok(topology) => place(&self.placement, &topology, workers, senders),
            Err(error) => place_unseen(&self.placement, &error, workers),
        }
    }
}
