//! The CPUs that threads of this process are bound to, over all of its sessions.
//!
//! FreeBSD counts the queues on each CPU set, so that the second NIC's begin where the first one's
//! end (`cpu_offset` of `iflib.c`). Here a session that is placed sees the CPUs of the others as
//! busy, and who goes gives its own back.

use crate::policy::topology::{CpuId, CpuList};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts, by CPU, the threads bound to it.
#[derive(Debug)]
pub(super) struct Taken(Mutex<BTreeMap<u16, usize>>);

/// Of this process.
static OF_PROCESS: Taken = Taken::new();

impl Taken {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// That of all sessions of this process.
    pub(super) const fn of_process() -> &'static Self {
        &OF_PROCESS
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, usize>> {
        // Counts of one thread each are right whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session's part. What it has is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    taken: &'static Taken,
    own: Vec<CpuId>,
}

impl Claim {
    /// Of nothing yet.
    pub(super) const fn of(taken: &'static Taken) -> Self {
        let own = Vec::new();
        Self { taken, own }
    }

    /// Has `choose` choose CPUs, told of those that others have, and takes them instead of those it
    /// had. Two sessions never choose at once.
    pub(super) fn renew<R>(
        &mut self,
        choose: impl FnOnce(&CpuList) -> R,
        cpus: impl FnOnce(&R) -> Vec<CpuId>,
    ) -> R {
        let mut taken = self.taken.lock();
        self.give_back(&mut taken);
        let busy = taken.keys().map(|id| CpuId(*id)).collect();
        let chosen = choose(&busy);
        self.own = cpus(&chosen);
        for cpu in &self.own {
            *taken.entry(cpu.0).or_default() += 1;
        }
        chosen
    }

    fn give_back(&mut self, taken: &mut BTreeMap<u16, usize>) {
        for cpu in self.own.drain(..) {
            if let Some(threads) = taken.get_mut(&cpu.0) {
                *threads -= 1;
                if *threads == 0 {
                    taken.remove(&cpu.0);
                }
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        self.give_back(&mut taken);
    }
}
