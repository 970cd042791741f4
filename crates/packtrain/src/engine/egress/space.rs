//! Who waits for space in a ring: the slow path of producers.

use crate::queue::ring::Exit;
use crate::sync::{AtomicU32, Barrier, Ordering};
#[cfg(packtrain_loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(packtrain_loom))]
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

/// Producers that wait, each at most once.
///
/// One that waits writes itself down and then looks at the ring once more; a consumer gives space
/// back and then looks whether anybody waits. The fence that this takes is on the side of those
/// that wait.
#[derive(Debug)]
pub(in crate::engine) struct Space {
    waiting: AtomicU32,
    list: Mutex<Vec<(u64, Waker)>>,
    barrier: Barrier,
}

impl Space {
    pub(in crate::engine) fn new() -> Self {
        Self {
            waiting: AtomicU32::new(0),
            list: Mutex::new(Vec::new()),
            barrier: Barrier::new(),
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u64, Waker)>> {
        // The list is whole after every step of those below, also after a panic.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is one more producer: it can wait without anything being allocated.
    pub(in crate::engine) fn make_place(&self, producers: usize) {
        let mut list = self.list();
        let more = producers.saturating_sub(list.len());
        list.reserve(more);
    }

    /// Producer `id` waits, and `waker` tells it to look. It has to look once more after this.
    pub(in crate::engine) fn wait(&self, id: u64, waker: &Waker) {
        let mut list = self.list();
        match list.iter_mut().find(|(other, _)| *other == id) {
            Some((_, known)) => known.clone_from(waker),
            None => list.push((id, waker.clone())),
        }
        self.count(&list);
        drop(list);
        self.barrier.heavy();
    }

    /// Producer `id` is gone, or waits no more. A load, if nobody waits: who wrote itself down and
    /// finds nobody waiting is in the list no more.
    pub(in crate::engine) fn forget(&self, id: u64) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut list = self.list();
        list.retain(|(other, _)| *other != id);
        self.count(&list);
    }

    /// To be called with the list locked.
    fn count(&self, list: &[(u64, Waker)]) {
        self.waiting.store(list.len() as u32, Ordering::Relaxed);
    }

    /// A consumer has left, and said how; `took`: there is more space than before. A load, if
    /// nobody waits.
    ///
    /// A ring that is empty is everybody's, and so is one of which nobody knows when it goes on.
    /// Else somebody is going to drain what is left, and then tells the next one: so only one is
    /// told, who has waited longest. All of them would be switched to and fro for each drain, on
    /// the few CPUs that there are, and one can fill the space.
    #[inline]
    pub(in crate::engine) fn tell_after(&self, exit: Exit, took: bool) {
        match exit {
            Exit::Idle => self.tell_all(),
            // As full as before: to say so would have those that wait try, and tell each other,
            // without end.
            Exit::Stalled(_) if !took => {}
            Exit::Stalled(_) => self.tell_all(),
            Exit::Abdicated | Exit::Passed => self.tell(1),
        }
    }

    /// Everybody shall look who waits.
    pub(in crate::engine) fn tell_all(&self) {
        self.tell(usize::MAX);
    }

    #[inline]
    fn tell(&self, most: usize) {
        self.barrier.light();
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.wake(most);
        }
    }

    #[cold]
    fn wake(&self, most: usize) {
        let mut left = self.list().len().min(most);
        // One at a time: a waker is the caller's code, and may come back here. Those that wait
        // again meanwhile are at the end.
        while left > 0 {
            let mut list = self.list();
            if list.is_empty() {
                return;
            }
            let (_, waker) = list.remove(0);
            self.count(&list);
            drop(list);
            waker.wake();
            left -= 1;
        }
    }
}
