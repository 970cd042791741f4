//! Where a ring keeps its items, and the stamps that say what is there.

#![allow(
    unsafe_code,
    reason = "indices are below a power of two by their mask, which is not checked again"
)]

use super::word::{Stamp, after, index, index_times};
use crate::sync::{AtomicU64, Lines, Ordering, UnsafeCell};
use std::hint;
use std::mem::MaybeUninit;
use std::slice;

/// A slot, which holds an item from when it is written until the consumer takes it.
pub(super) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The stamp of what begins at a position, and the item if that is one alone. For a packet handle
/// they are in one cache line, and that is all that goes from the producer to the consumer.
pub(super) struct Place<T> {
    pub(super) stamp: AtomicU64,
    pub(super) single: Slot<T>,
}

/// Places in a cache line, where items are words.
const LINE_PLACES: usize = 4;
#[cfg(not(packtrain_loom))]
const _: () = assert!(LINE_PLACES * size_of::<Place<u64>>() == 64);

/// Bytes of a place whose item is a word, as a power of two.
const PLACE_LOG: u32 = 4;

/// Consecutive lines are this many lines apart in memory, eight of them; then come the lines beside
/// them. So the line beside one in memory is not the next one to come. A processor that reads lines
/// in a row fetches further ones ahead, and would take them from the producer that writes there.
const LINE_STRIDE_LOG: u32 = 5;

/// The bits of an index that say how many strides, moved up by as much.
const SPREAD: usize = (7 * LINE_PLACES) << LINE_STRIDE_LOG;

/// How far ahead of a single item lines are asked for, in positions: two lines.
const AHEAD: u64 = 2 * LINE_PLACES as u64;

/// Positions, each with a place and a slot. Items of a batch are in slots side by side, to be moved
/// at once; the place of the first one has the stamp. An item alone is beside its stamp.
pub(super) struct Places<T> {
    places: Lines<Place<T>>,
    slots: Lines<Slot<T>>,
    /// How many there are, less one.
    mask: usize,
}

impl<T> Places<T> {
    /// At least as many as there are in a line, a power of two.
    pub(super) fn new(at_least: usize) -> Self {
        let count = at_least.next_power_of_two().max(LINE_PLACES);
        Self {
            places: Lines::new(count, || Place {
                stamp: AtomicU64::new(Stamp::NONE.0),
                single: UnsafeCell::new(MaybeUninit::uninit()),
            }),
            slots: Lines::new(count, || UnsafeCell::new(MaybeUninit::uninit())),
            mask: count - 1,
        }
    }

    /// Whether the place of a position is the first one in its cache line.
    #[inline(always)]
    pub(super) const fn is_line_start(at: u64) -> bool {
        index(at, LINE_PLACES - 1) == 0
    }

    /// Which place a position has.
    #[inline(always)]
    fn place_index(&self, at: u64) -> usize {
        self.place_times::<0>(at)
    }

    /// The same times two to the power of `LOG`.
    #[inline(always)]
    fn place_times<const LOG: u32>(&self, at: u64) -> usize {
        // Bits go up only, so it makes no difference that those above the mask go last.
        let all = index_times::<LOG>(at);
        (all ^ ((all << LINE_STRIDE_LOG) & (SPREAD << LOG))) & (self.mask << LOG)
    }

    /// The place of a position.
    #[inline(always)]
    pub(super) fn place(&self, at: u64) -> &Place<T> {
        if size_of::<Place<T>>() == 1 << PLACE_LOG {
            // In bytes from the first one: a shift less, twice for each batch.
            let bytes = self.place_times::<PLACE_LOG>(at);
            // SAFETY: so many bytes are a place whose index is below their number.
            return unsafe { &*self.places.as_ptr().byte_add(bytes) };
        }
        // SAFETY: the mask is that of an index below their number, a power of two.
        unsafe { self.places.get_unchecked(self.place_index(at)) }
    }

    /// The slots of a batch of `count`: up to the end, and the rest from the start.
    #[inline(always)]
    pub(super) fn batch(&self, at: u64, count: usize) -> [&[Slot<T>]; 2] {
        debug_assert!(count <= self.slots.len());
        let start = index(at, self.mask);
        let end = start + count;
        // SAFETY: an index is below the number of slots, the first part ends there at most, and no
        // thread reserves or takes more than the capacity, which is not above that number.
        unsafe {
            if end <= self.mask + 1 {
                return [self.slots.get_unchecked(start..end), &[]];
            }
            hint::cold_path();
            let back = end - (self.mask + 1);
            [
                self.slots.get_unchecked(start..self.mask + 1),
                self.slots.get_unchecked(..back),
            ]
        }
    }

    /// Gives what is at `count` published positions to `work`, oldest first, as many as are side by
    /// side. `first` is how many the stamp at the first one is for, or 0 if the caller does not
    /// know.
    #[inline(always)]
    pub(super) fn in_runs(
        &self,
        mut at: u64,
        count: usize,
        mut first: u64,
        mut work: impl FnMut(&[Slot<T>]),
    ) {
        let mut left = count;
        while left > 0 {
            let [front, back] = self.run(at, left, first);
            work(front);
            if !back.is_empty() {
                work(back);
            }
            let run = front.len() + back.len();
            // Nearly always: nothing has to be worked out for another one.
            if run == left {
                break;
            }
            at = after(at, run as u64);
            left -= run;
            first = 0;
        }
    }

    /// The slot of the item that is published at `at`; `first` as above, or how many are left of a
    /// batch, if that is more than one.
    #[inline(always)]
    pub(super) fn slot(&self, at: u64, first: u64) -> &Slot<T> {
        if first == 1 {
            return &self.place(at).single;
        }
        let [front, _] = if first > 1 {
            self.batch(at, 1)
        } else {
            self.run_by_stamp(at, 1)
        };
        // SAFETY: one of one.
        unsafe { front.get_unchecked(0) }
    }

    /// The slots of what is published at `at` and behind it side by side, of at most `most` items;
    /// in two parts where they go over the end.
    #[inline(always)]
    fn run(&self, at: u64, most: usize, first: u64) -> [&[Slot<T>]; 2] {
        if first > 1 && most as u64 <= first {
            self.batch(at, most)
        } else if first == 1 {
            [slice::from_ref(&self.place(at).single), &[]]
        } else {
            self.run_by_stamp(at, most)
        }
    }

    /// Not inlined, so that the ways above are. It gets no closure: what that captures would be
    /// in memory for them, too.
    #[inline(never)]
    fn run_by_stamp(&self, at: u64, most: usize) -> [&[Slot<T>]; 2] {
        // The consumer loaded it with acquire when it found the position published.
        let place = self.place(at);
        match Stamp(place.stamp.load(Ordering::Relaxed)).items_at(at) {
            Some(1) => [slice::from_ref(&place.single), &[]],
            // Without a stamp it is within a batch of which some have been taken.
            items => self.batch(at, most.min(items.unwrap_or(1) as usize)),
        }
    }

    /// Asks for the line that single items will be written to soon: the consumer has had it. Each
    /// reservation is a locked instruction, which waits for all stores before it, so a line that is
    /// not here by then is waited for.
    #[inline(always)]
    pub(super) fn fetch_to_write(&self, at: u64) {
        if Self::is_line_start(at) {
            self.places
                .fetch_to_write(self.place_index(after(at, AHEAD)));
        }
    }

    /// Asks for the line two further on, at the last place of a line. For a consumer that found
    /// single items up to there, so that it is some way behind; else it would take the line from
    /// its producer.
    #[inline(always)]
    pub(super) fn fetch(&self, at: u64) {
        if Self::is_line_start(after(at, 1)) {
            self.places.fetch(self.place_index(after(at, AHEAD)));
        }
    }
}
