//! The flow table: entries in a ring, in the order in which they were begun, and sets of slots that
//! lead from a hash to an entry.
//!
//! To find a flow costs two loads that depend on each other, its set and its entry, however many
//! flows there are. The oldest entry is always next to be overwritten, so that there is nothing to
//! search when the table is full, and nothing to sort when it is flushed in order of arrival.

use super::entry::State;
use crate::prefetch;

/// Slots of one set: one cache line.
pub(super) const WAYS: usize = 16;
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// Most entries of a table.
pub(super) const FLOWS_MAX: usize = 1 << 19;
/// Entries for each set, when the table is full and the hash is fair; a set takes [`WAYS`].
const ENTRIES_PER_SET: usize = 6;

/// One cache line of slots. A slot is 0, or has 12 bits of the hash and the index of its entry
/// plus one. Slots in use come first.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Set([u32; WAYS]);

impl Set {
    /// A set without entries.
    pub const EMPTY: Self = Self([0; WAYS]);
}

/// Room for one held packet.
#[derive(Debug)]
#[repr(align(64))]
pub struct Entry<P> {
    pub(super) state: State,
    /// The set that leads here.
    set: u32,
    pub(super) packet: Option<P>,
}

impl<P> Entry<P> {
    /// Room that is free.
    pub const EMPTY: Self = Self {
        state: State::EMPTY,
        set: 0,
        packet: None,
    };
}

const _: () = assert!(size_of::<Entry<core::num::NonZeroU64>>() == 128);

/// How many sets a table of `flows` entries needs: a power of two.
pub(super) const fn sets_for(flows: usize) -> usize {
    flows.div_ceil(ENTRIES_PER_SET).next_power_of_two()
}

/// Where the ring begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ring {
    /// The oldest entry, perhaps free already.
    tail: u32,
    /// The next to be used.
    head: u32,
    /// Entries in use.
    live: u32,
}

/// A view of the storage with the ring's state.
#[derive(Debug)]
pub(super) struct Table<'t, P> {
    pub entries: &'t mut [Entry<P>],
    pub sets: &'t mut [Set],
    pub ring: &'t mut Ring,
}

const fn tag(hash: u64) -> u32 {
    (hash >> 52) as u32
}

impl Ring {
    pub(super) const fn live(&self) -> u32 {
        self.live
    }

    /// One packet less.
    #[inline]
    const fn leave(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            // The next ones use the entries that are in cache.
            self.tail = 0;
            self.head = 0;
        }
    }
}

impl<P> Table<'_, P> {
    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        // A power of two, and never empty.
        hash as usize & (self.sets.len() - 1)
    }

    /// The first entry that `hash` may lead to.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u64) -> Option<u32> {
        let set = &self.sets[self.set_of(hash)];
        for &slot in &set.0 {
            if slot == 0 {
                return None;
            }
            if slot >> INDEX_BITS == tag(hash) {
                return Some((slot & INDEX_MASK) - 1);
            }
        }
        None
    }

    #[inline]
    pub(super) fn prefetch_set(&self, hash: u64) {
        prefetch::read(&self.sets[self.set_of(hash)]);
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) {
        if let Some(index) = self.candidate(hash) {
            let entry = &self.entries[index as usize];
            prefetch::read(&entry.state.template);
            prefetch::read(&entry.packet);
        }
    }

    /// The entry of `hash` that `is_it` accepts.
    #[inline]
    pub(super) fn find(
        &mut self,
        hash: u64,
        mut is_it: impl FnMut(&State, &P) -> bool,
    ) -> Option<u32> {
        let set = &self.sets[self.set_of(hash)];
        for &slot in &set.0 {
            if slot == 0 {
                return None;
            }
            if slot >> INDEX_BITS != tag(hash) {
                continue;
            }
            let index = (slot & INDEX_MASK) - 1;
            let entry = &self.entries[index as usize];
            if entry
                .packet
                .as_ref()
                .is_some_and(|packet| is_it(&entry.state, packet))
            {
                return Some(index);
            }
        }
        None
    }

    /// The entry that has to go before one for `hash` can be begun: the oldest of its set if that
    /// is full, or of all.
    #[inline]
    pub(super) fn in_the_way(&self, hash: u64) -> Option<u32> {
        let set = &self.sets[self.set_of(hash)];
        if set.0[WAYS - 1] != 0 {
            return self.oldest_of(set);
        }
        let next = self.ring.head as usize;
        self.entries[next].packet.is_some().then_some(next as u32)
    }

    #[cold]
    fn oldest_of(&self, set: &Set) -> Option<u32> {
        let (capacity, head) = (self.entries.len() as u32, self.ring.head);
        let indexes = set.0.iter().filter(|&&slot| slot != 0);
        // How long ago, in entries begun since.
        indexes
            .map(|slot| (slot & INDEX_MASK) - 1)
            .max_by_key(|index| (head + capacity - 1 - index) % capacity)
    }

    /// Begins an entry for `hash` at the ring's head; [`Table::in_the_way`] said that nothing is.
    #[inline]
    pub(super) fn begin(&mut self, hash: u64, packet: P) -> &mut Entry<P> {
        let index = self.ring.head;
        let at = self.set_of(hash);
        let set = &mut self.sets[at];
        if let Some(free) = set.0.iter_mut().find(|slot| **slot == 0) {
            *free = tag(hash) << INDEX_BITS | (index + 1);
        }
        let next = if index as usize + 1 == self.entries.len() {
            0
        } else {
            index + 1
        };
        if index == self.ring.tail && self.ring.live > 0 {
            // The oldest was here, and is gone.
            self.ring.tail = next;
        }
        self.ring.head = next;
        self.ring.live += 1;
        let entry = &mut self.entries[index as usize];
        entry.set = at as u32;
        entry.packet = Some(packet);
        entry
    }

    /// Takes a packet out of the table.
    #[inline]
    pub(super) fn take(&mut self, index: u32) -> Option<(&State, P)> {
        let entry = &mut self.entries[index as usize];
        let packet = entry.packet.take()?;
        let set = &mut self.sets[entry.set as usize].0;
        let mine = set.iter().position(|slot| slot & INDEX_MASK == index + 1);
        if let Some(mine) = mine {
            let mut last = mine;
            while last + 1 < WAYS && set[last + 1] != 0 {
                last += 1;
            }
            set[mine] = set[last];
            set[last] = 0;
        }
        self.ring.leave();
        Some((&entry.state, packet))
    }

    /// Takes the oldest packet out, on the way to taking out all of them: the set that leads to it
    /// is emptied, and with it the way to others. Until all are out nothing may be looked for.
    #[inline(always)]
    pub(super) fn take_oldest_of_all(&mut self) -> Option<(&State, P)> {
        let index = self.oldest()?;
        let entry = &mut self.entries[index as usize];
        let packet = entry.packet.take()?;
        self.sets[entry.set as usize] = Set::EMPTY;
        self.ring.leave();
        Some((&entry.state, packet))
    }

    /// The oldest entry in use.
    #[inline]
    pub(super) fn oldest(&mut self) -> Option<u32> {
        if self.ring.live == 0 {
            return None;
        }
        let mut tail = self.ring.tail;
        while self.entries[tail as usize].packet.is_none() {
            tail += 1;
            if tail as usize == self.entries.len() {
                tail = 0;
            }
        }
        self.ring.tail = tail;
        Some(tail)
    }
}
