//! Memory of the coalescer's own.

use super::{Parts, Queued, Storage};
use crate::coalesce::{Config, Entry, Link, Set};
use crate::sort::Keyed;
use alloc::boxed::Box;
use core::fmt;
use core::iter::repeat_with;

/// Storage that is allocated at set-up and freed as a whole, with the packets in it.
pub struct Owned<P> {
    entries: Box<[Entry<P>]>,
    sets: Box<[Set]>,
    links: Box<[Link]>,
    queue: Box<[Queued<P>]>,
    keys: Box<[Keyed]>,
    words: Box<[u32]>,
}

impl<P> Owned<P> {
    /// Allocates the storage for `config`.
    #[must_use]
    pub fn for_config(config: &Config) -> Self {
        let needs = config.needs();
        Self {
            entries: boxed(needs.entries, || Entry::EMPTY),
            sets: boxed(needs.sets, || Set::EMPTY),
            links: boxed(needs.links, || Link::EMPTY),
            queue: boxed(needs.queue, || Queued::EMPTY),
            keys: boxed(needs.keys, Keyed::default),
            words: boxed(needs.words, || 0),
        }
    }
}

fn boxed<T>(count: usize, each: impl FnMut() -> T) -> Box<[T]> {
    repeat_with(each).take(count).collect()
}

impl<P> Storage<P> for Owned<P> {
    #[inline]
    fn parts(&mut self) -> Parts<'_, P> {
        Parts {
            entries: &mut self.entries,
            sets: &mut self.sets,
            links: &mut self.links,
            queue: &mut self.queue,
            keys: &mut self.keys,
            words: &mut self.words,
        }
    }
}

impl<P> fmt::Debug for Owned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned")
            .field("entries", &self.entries.len())
            .field("queue", &self.queue.len())
            .finish_non_exhaustive()
    }
}
