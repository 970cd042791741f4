//! What users choose about queues and threads.

use super::error::StartError;
use super::priority::try_priority;
use crate::driver::QueueConfig;
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::Idle;
use crate::policy::moderation::Moderation;
use crate::policy::placement::{Placed, Placement, place, place_unseen};
use crate::policy::priority::Priority;
use crate::policy::topology::Topology;
use std::path::Path;

/// How the queues of a run are worked, and how its threads wait and where they run. The defaults
/// adapt themselves. The settings of a port's own queues come first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Which thread drains the ring in front of a shared TX queue.
    pub dispatch: Dispatch,
    /// How long an RX queue may delay the next wake-up of its worker.
    pub moderation: Moderation,
    /// What a worker does with nothing to do.
    pub idle: Idle,
    /// On which CPU each worker runs. Not for workers that a caller drives.
    pub placement: Placement,
    /// How a worker's thread stands among the others that want its CPU. Not for workers that a
    /// caller drives.
    pub priority: Priority,
}

impl Settings {
    /// How the queues of a port with these settings are worked.
    #[must_use]
    pub fn of_port(&self, config: &QueueConfig) -> (Dispatch, Moderation) {
        (
            config.dispatch.unwrap_or(self.dispatch),
            config.moderation.unwrap_or(self.moderation),
        )
    }

    /// Refuses what this machine cannot do: a list with a CPU that may not be used, a nice value
    /// that the system does not permit.
    ///
    /// # Errors
    ///
    /// What it is, and what there is instead: [`StartError::Setting`] or [`StartError::System`].
    pub fn check(&self) -> Result<(), StartError> {
        // If the topology is hidden, a list is tried as it is, and the session does not start if
        // the system refuses it.
        if let Ok(topology) = Topology::read(Path::new("/")) {
            let checked = self.placement.check(&topology);
            checked.map_err(StartError::Setting)?;
        }
        match self.priority {
            Priority::Nice(_) => try_priority(self.priority, self.idle),
            Priority::None | Priority::Auto => Ok(()),
        }
    }

    /// Where the threads of `workers` workers run beside `senders` application threads, and why.
    #[must_use]
    pub fn place(&self, workers: usize, senders: usize) -> Placed {
        match Topology::read(Path::new("/")) {
            Ok(topology) => place(&self.placement, &topology, workers, senders),
            Err(error) => place_unseen(&self.placement, &error, workers),
        }
    }
}
