//! Producers that wait for space in the ring of a shared TX queue.

use crate::queue::ring::Ring;
use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
use std::task::Waker;

/// The list of waiting producers, each at most once.
///
/// A waker is the caller's code: its clone, its drop and its wake may call a handle of this queue.
/// So none of them happens under the lock of the list.
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
        let added = waker.clone();
        let replaced = {
            let mut list = self.list();
            match list.iter().position(|(other, _)| *other == id) {
                Some(at) => Some(std::mem::replace(&mut list[at].1, added)),
                None => {
                    list.push((id, added));
                    None
                }
            }
        };
        // The drop of a waker is the caller's code: after the lock.
        replaced.is_none()
    }

    /// Removes producer `id`.
    pub(super) fn remove(&self, id: u64) {
        let removed = {
            let mut list = self.list();
            let at = list.iter().position(|(other, _)| *other == id);
            at.map(|at| list.remove(at))
        };
        drop(removed);
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

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// A waker that uses the list when it is woken and when it is dropped, as one does that owns
    /// the last reference to a task with another handle of the queue.
    struct Task {
        waiters: Arc<SpaceWaiters>,
        calls: Arc<AtomicUsize>,
    }

    impl Task {
        fn call(&self) {
            // A test that hangs says less than one that fails.
            assert!(self.waiters.list.try_lock().is_ok(), "the list is locked");
            self.waiters.remove(2);
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.call();
        }
    }

    impl Drop for Task {
        fn drop(&mut self) {
            self.call();
        }
    }

    #[test]
    fn no_code_of_a_waker_runs_under_the_lock() {
        let waiters = Arc::new(SpaceWaiters::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let waker = || {
            let (waiters, calls) = (Arc::clone(&waiters), Arc::clone(&calls));
            Waker::from(Arc::new(Task { waiters, calls }))
        };
        let mut expected = 0;
        let mut called = |calls_more| {
            expected += calls_more;
            assert_eq!(calls.load(Ordering::Relaxed), expected);
        };
        assert!(waiters.add(1, &waker()));
        called(0);
        assert!(!waiters.add(1, &waker()), "the first waker is replaced");
        called(1);
        waiters.remove(1);
        called(1);
        assert!(waiters.add(1, &waker()));
        waiters.wake_all(&Ring::<u32, ()>::new(1, ()));
        called(2);
    }
}
