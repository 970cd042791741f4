//! The flow table: entries in a ring, in the order in which they were begun, and sets of slots that
//! map a hash to an entry.
//!
//! A lookup costs two dependent loads, the set and the entry, for any number of flows. Entries are
//! used one after the other, so their places give their age: eviction from a full table needs no
//! search, and a flush in order of arrival needs no sort.
//!
//! That ends if the next place is in use and others are free: packets of some flows were handed on
//! before older ones. From then on entries are linked, oldest to newest, and any free place is
//! used, until the table is empty again. Linking takes one step per entry, once for at least as
//! many entries begun since the table was empty: the cost is amortised.

use super::entry::State;
use super::wide;
use crate::prefetch;
use core::ops::Range;

/// Slots of one set; with a byte of each one's hash they fill a cache line.
pub(super) const WAYS: usize = 12;
/// Most entries of a table.
pub(super) const FLOWS_MAX: usize = 1 << 19;
/// Entries per set, if the table is full and the hash is uniform; a set has room for [`WAYS`].
const ENTRIES_PER_SET: usize = 4;
/// Places that are searched for packets which a packet without ports might overtake. If more are in
/// use, everything is flushed, one step for each entry begun.
pub(super) const SEARCH_MAX: usize = 1024;
/// Bits of [`Entry::slot`] for the number within the set.
const WAY_BITS: u32 = 4;

/// One cache line of slots, which map a hash to an entry.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Set {
    /// A byte of the hash, never zero; zero in free slots, and behind the last.
    tags: [u8; 16],
    entries: [u32; WAYS],
}

const _: () = assert!(size_of::<Set>() == 64 && WAYS <= 16);
const _: () = assert!((sets_for(FLOWS_MAX) as u64) << WAY_BITS <= u32::MAX as u64);

impl Set {
    /// A set without entries.
    pub const EMPTY: Self = Self {
        tags: [0; 16],
        entries: [0; WAYS],
    };

    /// The first free slot.
    #[inline(always)]
    fn free(&self) -> Option<usize> {
        let free = wide::positions(&self.tags, 0).trailing_zeros() as usize;
        (free < WAYS).then_some(free)
    }

    /// Entries whose hash has this tag.
    #[inline(always)]
    fn tagged(&self, tag: u8) -> impl Iterator<Item = u32> {
        let mut found = wide::positions(&self.tags, tag);
        core::iter::from_fn(move || {
            let index = self.entries.get(found.trailing_zeros() as usize)?;
            found &= found - 1;
            Some(*index)
        })
    }
}

/// A slot for one held packet.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry<P> {
    pub(super) state: State,
    /// The slot that refers to this entry: a set, and in the low bits the number within the set.
    slot: u32,
    pub(super) packet: Option<P>,
}

impl<P> Entry<P> {
    /// A free entry.
    pub const EMPTY: Self = Self {
        state: State::EMPTY,
        slot: 0,
        packet: None,
    };
}

const _: () = assert!(size_of::<Entry<core::num::NonZeroU64>>() == 128);

/// The position of an entry in the order of age, while places do not give it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The entry begun before this one, of those in use.
    before: u32,
    /// The one begun after it. Of a free entry: the next free one.
    after: u32,
    /// Entries begun before it, wrapping.
    number: u32,
}

impl Link {
    /// The link of an entry that is in no order.
    pub const EMPTY: Self = Self {
        before: 0,
        after: 0,
        number: 0,
    };
}

/// How many sets a table of `flows` entries needs: a power of two.
pub(super) const fn sets_for(flows: usize) -> usize {
    flows.div_ceil(ENTRIES_PER_SET).next_power_of_two()
}

/// Where the ring begins and ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ring {
    /// The oldest entry; it may be free already.
    tail: u32,
    /// The next to be used. If all are in use, the oldest.
    head: u32,
    /// Entries in use.
    live: u32,
    /// The newest entry, while entries are linked.
    newest: u32,
    /// Entries are linked: their places do not give their age.
    linked: bool,
}

/// A view of the storage. It always belongs to the same ring.
#[derive(Debug)]
pub(super) struct Table<'t, P> {
    pub entries: &'t mut [Entry<P>],
    pub sets: &'t mut [Set],
    pub links: &'t mut [Link],
}

/// The tag: the bits of a hash that differ most between flows whose addresses or ports count up, as
/// those of one program do. Two flows with one tag in a set take the slow path.
#[inline(always)]
fn tag(hash: u64) -> u8 {
    let tag = (hash >> 40) as u8;
    tag + u8::from(tag == 0)
}

/// The place where a flow may be begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    set: usize,
    way: usize,
    tag: u8,
}

impl Ring {
    pub(super) const fn live(&self) -> u32 {
        self.live
    }

    /// Removes an entry, which is in use, from the order of age. It is the next to be used.
    #[cold]
    fn unlink(&mut self, links: &mut [Link], index: u32) {
        let Link { before, after, .. } = links[index as usize];
        if index == self.tail {
            self.tail = after;
        } else {
            links[before as usize].after = after;
        }
        if index == self.newest {
            self.newest = before;
        } else {
            links[after as usize].before = before;
        }
        links[index as usize].after = self.head;
        self.head = index;
    }

    /// Makes the entry being begun the newest one.
    #[cold]
    fn append(&mut self, links: &mut [Link]) {
        let (index, newest) = (self.head, self.newest);
        let free = links[index as usize].after;
        links[newest as usize].after = index;
        links[index as usize] = Link {
            before: newest,
            after: index,
            number: links[newest as usize].number.wrapping_add(1),
        };
        self.newest = index;
        // The link of the last free entry is not used.
        let full = self.live as usize + 1 == links.len();
        self.head = if full { self.tail } else { free };
    }

    /// Counts one packet less.
    #[inline]
    const fn leave(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            // The next packets use the entries that are in cache.
            self.tail = 0;
            self.head = 0;
            self.linked = false;
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
        self.sets[self.set_of(hash)].tagged(tag(hash)).next()
    }

    #[inline]
    pub(super) fn prefetch_set(&self, hash: u64) {
        prefetch::read(&self.sets[self.set_of(hash)]);
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, index: u32) {
        let entry = &self.entries[index as usize];
        prefetch::read(&entry.state.template);
        prefetch::read(&entry.state.shape);
    }

    /// Prefetches the set that contains this entry's slot.
    #[inline]
    pub(super) fn prefetch_slot(&self, entry: &Entry<P>) {
        if let Some(set) = self.sets.get((entry.slot >> WAY_BITS) as usize) {
            prefetch::read(set);
        }
    }

    /// The entry of `hash` that `is_it` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&State, &P) -> bool) -> Option<u32> {
        let set = &self.sets[self.set_of(hash)];
        set.tagged(tag(hash)).find(|&index| {
            let entry = &self.entries[index as usize];
            let packet = entry.packet.as_ref();
            packet.is_some_and(|packet| is_it(&entry.state, packet))
        })
    }

    /// The place where an entry for `hash` may be begun.
    ///
    /// # Errors
    /// The entry to evict first: the oldest of the set if that is full, or of all if all are in
    /// use.
    #[inline(always)]
    pub(super) fn room(&self, ring: &Ring, hash: u64) -> Result<Room, u32> {
        let at = self.set_of(hash);
        let set = &self.sets[at];
        let Some(way) = set.free() else {
            return Err(self.oldest_of(ring, set));
        };
        if ring.live as usize == self.entries.len()
            && self.entries[ring.head as usize].packet.is_some()
        {
            return Err(ring.head);
        }
        Ok(Room {
            set: at,
            way,
            tag: tag(hash),
        })
    }

    /// Links the entries, which are in order of age from the ring's head on.
    #[cold]
    fn link(&mut self, ring: &mut Ring) {
        let (capacity, start) = (self.entries.len() as u32, ring.head);
        let (mut free, mut newest, mut number) = (start, start, 0);
        for at in (start..capacity).chain(0..start) {
            if self.entries[at as usize].packet.is_none() {
                self.links[at as usize].after = free;
                free = at;
                continue;
            }
            // The first is its own neighbour; that link is never read.
            self.links[newest as usize].after = at;
            self.links[at as usize] = Link {
                before: newest,
                after: at,
                number,
            };
            newest = at;
            number += 1;
        }
        *ring = Ring {
            tail: start,
            head: free,
            live: ring.live,
            newest,
            linked: true,
        };
    }

    /// The oldest entry of a set that is full.
    #[cold]
    fn oldest_of(&self, ring: &Ring, set: &Set) -> u32 {
        let (capacity, head) = (self.entries.len() as u32, ring.head);
        // Age, in entries begun since.
        let age = |index: u32| {
            if ring.linked {
                let number = |index: u32| self.links[index as usize].number;
                number(ring.newest).wrapping_sub(number(index))
            } else {
                (head + capacity - 1 - index) % capacity
            }
        };
        let used = set
            .entries
            .iter()
            .zip(set.tags)
            .filter(|(_, tag)| *tag != 0);
        used.map(|(index, _)| *index)
            .max_by_key(|index| age(*index))
            .unwrap_or(head)
    }

    /// Begins an entry at the ring's head, where [`Table::room`] found room. Returns it and its
    /// index.
    #[inline(always)]
    pub(super) fn begin(&mut self, ring: &mut Ring, room: Room, packet: P) -> (u32, &mut Entry<P>) {
        if self.entries[ring.head as usize].packet.is_some() {
            self.link(ring);
        }
        let index = ring.head;
        let Room { set: at, way, tag } = room;
        let set = &mut self.sets[at];
        set.tags[way] = tag;
        set.entries[way] = index;
        if ring.linked {
            ring.append(self.links);
        } else {
            let next = if index as usize + 1 == self.entries.len() {
                0
            } else {
                index + 1
            };
            if index == ring.tail && ring.live > 0 {
                // The oldest entry was here and is removed.
                ring.tail = next;
            }
            ring.head = next;
        }
        ring.live += 1;
        let entry = &mut self.entries[index as usize];
        entry.slot = (at << WAY_BITS | way) as u32;
        entry.packet = Some(packet);
        (index, entry)
    }

    /// Removes a packet from the table.
    #[inline]
    pub(super) fn take(&mut self, ring: &mut Ring, index: u32) -> Option<(&State, P)> {
        let entry = &mut self.entries[index as usize];
        let packet = entry.packet.take()?;
        let (set, way) = (entry.slot >> WAY_BITS, entry.slot % (1 << WAY_BITS));
        self.sets[set as usize].tags[way as usize] = 0;
        if ring.linked {
            ring.unlink(self.links, index);
        }
        ring.leave();
        Some((&entry.state, packet))
    }

    /// Removes the oldest packet.
    #[inline(always)]
    pub(super) fn take_oldest(&mut self, ring: &mut Ring) -> Option<(&State, P)> {
        let oldest = self.oldest(ring)?;
        self.take(ring, oldest)
    }

    /// A range of places that includes all entries in use, unless it exceeds [`SEARCH_MAX`].
    pub(super) fn places(&self, ring: &Ring) -> Option<Range<usize>> {
        let (tail, head) = (ring.tail as usize, ring.head as usize);
        let places = if ring.live == 0 {
            0..0
        } else if tail < head && !ring.linked {
            tail..head
        } else {
            0..self.entries.len()
        };
        (places.len() <= SEARCH_MAX).then_some(places)
    }

    /// The oldest entry in use.
    #[inline]
    pub(super) fn oldest(&self, ring: &mut Ring) -> Option<u32> {
        if ring.live == 0 {
            return None;
        }
        let mut tail = ring.tail;
        while self.entries[tail as usize].packet.is_none() {
            tail += 1;
            if tail as usize == self.entries.len() {
                tail = 0;
            }
        }
        ring.tail = tail;
        Some(tail)
    }
}
