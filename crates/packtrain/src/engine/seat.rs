//! Where a worker's thread runs, which may be decided again while it runs.

use super::sys::bind_to;
use crate::policy::idle::Room;
use crate::policy::topology::CpuId;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// What one thread is told. It binds itself: whoever else tried might meet another thread that has
/// got the number of one that ended.
#[derive(Debug)]
pub(super) struct Seat {
    /// Changes with `told`. The thread looks at this only.
    version: AtomicU32,
    told: Mutex<Told>,
    refused: AtomicBool,
}

/// What holds from now on.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// CPUs to be bound to; empty to stay as it is.
    pub cpus: Vec<CpuId>,
    /// The CPUs that there are for all workers.
    pub room: Room,
    /// Those that producers have.
    pub for_producers: u32,
}

impl Seat {
    /// For a thread that starts on one of the CPUs it is told, or wherever if there are none.
    pub(super) const fn new(told: Told) -> Self {
        Self {
            version: AtomicU32::new(0),
            told: Mutex::new(told),
            refused: AtomicBool::new(false),
        }
    }

    /// Tells the thread. It looks in its next step.
    pub(super) fn tell(&self, told: Told) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Takes the first seat.
    ///
    /// # Errors
    ///
    /// The system's, when the thread may not run there.
    pub(super) fn take(&self) -> io::Result<()> {
        let told = self.told();
        if told.cpus.is_empty() {
            return Ok(());
        }
        bind_to(&told.cpus)
    }

    fn told(&self) -> Told {
        let told = self.told.lock();
        told.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Follows what was told since `seen`, and returns it if that was anything. The CPUs may
    /// have changed again meanwhile: then the thread stays where the kernel has put it, and
    /// [`Seat::was_refused`] says so.
    pub(super) fn follow(&self, seen: &mut u32) -> Option<Told> {
        let version = self.version.load(Ordering::Acquire);
        if version == *seen {
            return None;
        }
        *seen = version;
        if self.take().is_err() {
            self.refused.store(true, Ordering::Release);
        }
        Some(self.told())
    }

    /// Whether the thread could not follow since the last time this was asked.
    pub(super) fn was_refused(&self) -> bool {
        self.refused.swap(false, Ordering::AcqRel)
    }
}
