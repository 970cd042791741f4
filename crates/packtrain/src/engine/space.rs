//! Producers that wait for space in the ring of a shared TX queue.

use crate::queue::ring::Ring;
use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
use std::task::Waker;

/// The list of waiting producers, each at most once.
///
/// A producer adds itself, then sets WAITERS in the head of the ring and checks the space once
/// more. A consumer that took packets changes the same word after it has freed their slots. So
/// either the producer sees the space, or the consumer sees WAITERS.
#[derive(Debug, Default)]
pub(super) struct SpaceWaiters {
    list: Mutex<Vec<(u64, Waker)>>,
}

impl SpaceWaiters {
    fn list(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        // A panic cannot leave the list inconsistent.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory for `producers` producers, so each can wait without an allocation.
    pub(super) fn reserve(&self, producers: usize) {
        let mut list = self.list();
        let more = producers.saturating_sub(list.len());
        list.reserve(more);
    }

    /// Adds producer `id`, which then sets WAITERS and rechecks the space. Returns false if the
    /// producer is still in the list from an earlier call.
    pub(super) fn add(&self, id: u64, waker: &Waker) -> bool {
        let mut list = self.list();
        let known = list.iter_mut().find(|(other, _)| *other == id);
        if let Some((_, known)) = known {
            known.clone_from(waker);
            return false;
        }
        list.push((id, waker.clone()));
        true
    }

    /// Removes producer `id`.
    pub(super) fn remove(&self, id: u64) {
        self.list().retain(|(other, _)| *other != id);
    }

    /// Clears WAITERS and wakes all producers of the list.
    #[cold]
    pub(super) fn wake_all<T, S>(&self, ring: &Ring<T, S>) {
        let mut left = {
            let list = self.list();
            ring.clear_waiters();
            list.len()
        };
        // Wakes one at a time, without the lock: a waker is the caller's code, and may add its
        // producer again at the end of the list.
        while left > 0 {
            let mut list = self.list();
            if list.is_empty() {
                return;
            }
            let (_, waker) = list.remove(0);
            drop(list);
            waker.wake();
            left -= 1;
        }
    }
}
