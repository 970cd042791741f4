//! The storage of a coalescer: the caller's memory, or memory of its own.

use super::parse::Parsed;
use super::table::{Entry, Link, Set, Table};
use crate::sort::Keyed;
use core::fmt;

#[cfg(feature = "alloc")]
mod owned;
#[cfg(feature = "alloc")]
pub use owned::Owned;

/// A slot for one packet of the queue of sorted mode.
#[derive(Debug)]
pub struct Queued<P>(Option<(P, Parsed)>);

impl<P> Queued<P> {
    /// A free slot.
    pub const EMPTY: Self = Self(None);

    pub(super) fn put(&mut self, packet: P, parsed: Parsed) {
        self.0 = Some((packet, parsed));
    }

    pub(super) const fn take(&mut self) -> Option<(P, Parsed)> {
        self.0.take()
    }

    pub(super) fn hash(&self) -> u64 {
        self.0.as_ref().map_or(0, |(_, parsed)| parsed.hash)
    }

    /// Frees the packet, and returns whether there was one.
    pub(super) fn clear(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// The number of elements of each kind that a [`Storage`] needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// [`Entry`], one for each flow.
    pub entries: usize,
    /// [`Set`], a power of two.
    pub sets: usize,
    /// [`Link`], one for each flow.
    pub links: usize,
    /// [`Queued`], for sorted mode.
    pub queue: usize,
    /// [`Keyed`], two for each queued packet.
    pub keys: usize,
    /// Words of scratch for [`sort::group`](crate::sort::group).
    pub words: usize,
}

impl Needs {
    /// Total size in bytes, for packets of type `P`.
    #[must_use]
    pub const fn bytes<P>(&self) -> usize {
        self.entries * size_of::<Entry<P>>()
            + self.sets * size_of::<Set>()
            + self.links * size_of::<Link>()
            + self.queue * size_of::<Queued<P>>()
            + self.keys * size_of::<Keyed>()
            + self.words * size_of::<u32>()
    }
}

/// The parts of a storage.
#[derive(Debug)]
pub struct Parts<'s, P> {
    /// Held packets.
    pub entries: &'s mut [Entry<P>],
    /// The hash sets that lead to the entries.
    pub sets: &'s mut [Set],
    /// Their order, if it is not that of their places.
    pub links: &'s mut [Link],
    /// Queued packets.
    pub queue: &'s mut [Queued<P>],
    /// Keys of queued packets, and as many spare ones.
    pub keys: &'s mut [Keyed],
    /// Scratch for sorting.
    pub words: &'s mut [u32],
}

impl<'s, P> Parts<'s, P> {
    /// The parts that make up the table.
    #[inline(always)]
    pub(super) fn table(self) -> Table<'s, P> {
        Table {
            entries: self.entries,
            sets: self.sets,
            links: self.links,
        }
    }

    pub(super) fn check(&self, needs: &Needs) -> Result<(), StorageError> {
        let lengths = [
            (self.entries.len(), needs.entries, "entries"),
            (self.sets.len(), needs.sets, "sets"),
            (self.links.len(), needs.links, "links"),
            (self.queue.len(), needs.queue, "queue"),
            (self.keys.len(), needs.keys, "keys"),
            (self.words.len(), needs.words, "words"),
        ];
        for (is, needed, what) in lengths {
            if is != needed {
                return Err(StorageError { what, is, needed });
            }
        }
        let entries = self.entries.iter().filter(|entry| entry.packet.is_some());
        let queued = self.queue.iter().filter(|queued| queued.0.is_some());
        match entries.count() + queued.count() {
            0 => Ok(()),
            is => Err(StorageError {
                what: "packets in it",
                is,
                needed: 0,
            }),
        }
    }
}

/// Owner of the parts. It must return the same parts each time: the same memory, the same lengths.
pub trait Storage<P> {
    /// The parts.
    fn parts(&mut self) -> Parts<'_, P>;
}

/// A storage whose numbers of elements differ from [`Config::needs`](super::Config::needs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageError {
    what: &'static str,
    is: usize,
    needed: usize,
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, is, needed } = self;
        write!(
            f,
            "the storage of the coalescer has {is} {what}, and its configuration needs {needed}"
        )
    }
}

crate::error::error!(StorageError, InvalidInput);

/// The caller's memory: arrays in a `static`, on the stack, or elsewhere.
#[derive(Debug)]
pub struct Borrowed<'s, P>(
    /// The parts, with as many elements as [`Config::needs`](super::Config::needs) says, all of
    /// them `EMPTY`.
    pub Parts<'s, P>,
);

impl<P> Storage<P> for Borrowed<'_, P> {
    fn parts(&mut self) -> Parts<'_, P> {
        let Parts {
            entries,
            sets,
            links,
            queue,
            keys,
            words,
        } = &mut self.0;
        Parts {
            entries,
            sets,
            links,
            queue,
            keys,
            words,
        }
    }
}
