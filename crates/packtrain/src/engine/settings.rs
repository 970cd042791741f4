//! What users choose about queues and threads, and what came of it.

use super::sys::affinity;
use crate::driver::QueueWishes;
use crate::policy::SettingError;
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::{Idle, Room};
use crate::policy::moderation::Moderation;
use crate::policy::placement::{FEW_CPUS, Placed, Placement, Queue, Wanted, Why, place};
use crate::policy::topology::{CpuList, Topology};
use std::path::Path;

/// How the queues of a run are worked, and how its threads wait and where they run. The defaults
/// adapt themselves. What a port's own wishes say of its queues is stronger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// When the ring in front of a TX queue is drained, and by whom.
    pub dispatch: Dispatch,
    /// When an RX queue wakes its worker.
    pub moderation: Moderation,
    /// What a worker's thread does with nothing to do.
    pub idle: Idle,
    /// Which CPU works which queues.
    pub placement: Placement,
}

impl Settings {
    /// How the queues of a port with these wishes are worked.
    #[must_use]
    pub fn of_port(&self, wishes: &QueueWishes) -> (Dispatch, Moderation) {
        (
            wishes.dispatch.unwrap_or(self.dispatch),
            wishes.moderation.unwrap_or(self.moderation),
        )
    }

    /// Refuses what this machine cannot do: a list with a CPU that may not be used.
    ///
    /// # Errors
    ///
    /// Which it is, and what there is instead.
    pub fn check(&self) -> Result<(), SettingError> {
        match Machine::read() {
            Ok(machine) => self.placement.check(&machine.topology),
            // Of a machine that hides its CPUs nothing is known; a list is tried as it is.
            Err(_hidden) => Ok(()),
        }
    }

    /// Where the threads of `workers` workers would run, and why. With `paired`, worker i and
    /// worker i + workers/2 work the two directions of one pair of queues.
    #[must_use]
    pub fn place(&self, workers: usize, paired: bool) -> Placed {
        let half = workers / 2;
        let queues: Vec<_> = (0..workers)
            .map(|index| Queue {
                peer: (paired && half > 0).then_some((index + half) % workers),
                now: None,
            })
            .collect();
        let wanted = Wanted {
            queues: &queues,
            busy: &CpuList::default(),
            application: 0,
        };
        match Machine::read() {
            Ok(machine) => place(&self.placement, &machine.topology, &wanted),
            Err(_hidden) => Placed {
                cpus: vec![None; workers],
                why: Why::Unbound,
            },
        }
    }
}

/// The CPUs that this thread may use.
struct Machine {
    topology: Topology,
}

impl Machine {
    fn read() -> Result<Self, Box<dyn std::error::Error>> {
        let mask = affinity()?;
        let topology = Topology::read(Path::new("/"), Some(&mask))?;
        Ok(Self { topology })
    }
}

/// CPUs that this process may use, at least one.
pub(super) fn cpus() -> usize {
    affinity().map_or(1, |mask| mask.as_slice().len().max(1))
}

/// Room for `workers` workers to spin in. Whoever makes their packets, or takes them, has as many
/// CPUs as they have: on few CPUs that leaves none.
pub(super) fn room(workers: usize) -> Room {
    let cpus = cpus();
    let ours = if cpus <= FEW_CPUS {
        1
    } else {
        cpus.saturating_sub(workers)
    };
    Room {
        cpus: ours as u32,
        workers: workers as u32,
    }
}
