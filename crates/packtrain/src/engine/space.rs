//! Producers that wait for space in the ring of a shared TX queue.

use crate::queue::ring::Ring;
use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
use std::task::Waker;

/// The list of waiting producers, each at most once.
///
/// A producer adds itself, then sets WAITERS in the head of the ring and checks the space once
/// more. A consumer that took something changes the same word after it has given the space back. So
/// either the producer sees the space, or the consumer sees WAITERS.
#[derive(Debug, Default)]
pub(super) struct SpaceWaiters {
    list: Mutex<Vec<(u64, Waker)>>,
}

impl SpaceWaiters {
    fn list(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        // The list is whole after every step of those below, also after a panic.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There are now so many producers: each can wait without an allocation.
    pub(super) fn reserve(&self, producers: usize) {
        let mut list = self.list();
        let more = producers.saturating_sub(list.len());
        list.reserve(more);
    }

    /// Adds producer `id`. It sets WAITERS and rechecks the space after this. False if it waits
    /// already, and was not woken since.
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

    /// Producer `id` waits no more.
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
        // One at a time, without the lock: a waker is the caller's code, and may add itself again
        // at the end.
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
