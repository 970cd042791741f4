//! Who waits for space in a ring: the slow path of producers.

use crate::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Producers that wait, each at most once.
///
/// One that waits writes itself down and then looks at the ring once more; a consumer gives space
/// back and then looks whether anybody waits. The fence that this takes is on the side of those
/// that wait.
#[derive(Debug)]
pub(super) struct Space {
    waiting: AtomicUsize,
    list: Mutex<Vec<(u64, Waker)>>,
    barrier: Barrier,
}

impl Space {
    pub(super) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            list: Mutex::default(),
            barrier: Barrier::new(),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        // The list is whole after every step of those below, also after a panic.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is one more producer: it can wait without anything being allocated.
    pub(super) fn make_place(&self, producers: usize) {
        let mut list = self.list();
        let more = producers.saturating_sub(list.len());
        list.reserve(more);
    }

    /// Producer `id` waits, and `waker` tells it to look. It has to look once more after this.
    pub(super) fn wait(&self, id: u64, waker: &Waker) {
        let mut list = self.list();
        match list.iter_mut().find(|(other, _)| *other == id) {
            Some((_, known)) => known.clone_from(waker),
            None => list.push((id, waker.clone())),
        }
        self.waiting.store(list.len(), Ordering::Relaxed);
        drop(list);
        self.barrier.heavy();
    }

    /// Producer `id` is gone.
    pub(super) fn forget(&self, id: u64) {
        let mut list = self.list();
        list.retain(|(other, _)| *other != id);
        self.waiting.store(list.len(), Ordering::Relaxed);
    }

    /// There may be space: whoever waits shall look. A load, if nobody does.
    #[inline]
    pub(super) fn tell(&self) {
        self.barrier.light();
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.tell_all();
        }
    }

    #[cold]
    fn tell_all(&self) {
        let mut left = self.list().len();
        // One at a time: a waker is the caller's code, and may come back here. Those that wait
        // again meanwhile are at the end.
        while left > 0 {
            let mut list = self.list();
            if list.is_empty() {
                return;
            }
            let (_, waker) = list.remove(0);
            self.waiting.store(list.len(), Ordering::Relaxed);
            drop(list);
            waker.wake();
            left -= 1;
        }
    }
}
