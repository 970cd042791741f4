//! The slots of a ring, and the stamps that say which of them are published.

#![allow(
    unsafe_code,
    reason = "a mask keeps indices below a power of two, so they are not checked again"
)]

use super::word::{Stamp, after, index, index_times};
use crate::sync::{AtomicU64, Lines, Ordering, UnsafeCell};
use std::hint;
use std::mem::MaybeUninit;
use std::slice;

/// A slot. It holds an item from the producer's write until the consumer takes it.
pub(super) type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The stamp of the batch that begins at a position, and the item of a batch of one. With a packet
/// handle they share a cache line, the only one that goes from the producer to the consumer.
pub(super) struct Place<T> {
    pub(super) stamp: AtomicU64,
    pub(super) single: Slot<T>,
}

/// Places in a cache line, if items are words.
const LINE_PLACES: usize = 4;
#[cfg(not(packtrain_loom))]
const _: () = assert!(LINE_PLACES * size_of::<Place<u64>>() == 64);

/// The logarithm of the bytes of a place whose item is a word.
const PLACE_LOG: u32 = 4;

/// The logarithm of the distance in memory, in lines, of consecutive lines. After eight of them
/// come the lines adjacent to those. A processor that reads adjacent lines in order prefetches the
/// next ones, and would take them from the producer that writes there.
const LINE_STRIDE_LOG: u32 = 5;

/// The bits of an index that count strides, shifted by the stride.
const SPREAD: usize = (7 * LINE_PLACES) << LINE_STRIDE_LOG;

/// How far ahead of a single item lines are prefetched, in positions: two lines.
const AHEAD: u64 = 2 * LINE_PLACES as u64;

/// A place and a slot for each position. The items of a batch are in adjacent slots, to be moved at
/// once; the place of the first item has the stamp. A single item is in its place, with its stamp.
pub(super) struct Places<T> {
    places: Lines<Place<T>>,
    slots: Lines<Slot<T>>,
    /// Their number less one.
    mask: usize,
}

impl<T> Places<T> {
    /// A power of two of places, at least a line.
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

    /// The index of the place of a position.
    #[inline(always)]
    fn place_index(&self, at: u64) -> usize {
        self.place_times::<0>(at)
    }

    /// The same times two to the power of `LOG`.
    #[inline(always)]
    fn place_times<const LOG: u32>(&self, at: u64) -> usize {
        // Bits move up only, so the mask may come last.
        let all = index_times::<LOG>(at);
        (all ^ ((all << LINE_STRIDE_LOG) & (SPREAD << LOG))) & (self.mask << LOG)
    }

    /// The place of a position.
    #[inline(always)]
    pub(super) fn place(&self, at: u64) -> &Place<T> {
        if size_of::<Place<T>>() == 1 << PLACE_LOG {
            // An offset in bytes saves a shift, twice for each batch.
            let bytes = self.place_times::<PLACE_LOG>(at);
            // SAFETY: the index of that place is below their number, by the mask.
            return unsafe { &*self.places.as_ptr().byte_add(bytes) };
        }
        // SAFETY: the index is below their number, by the mask.
        unsafe { self.places.get_unchecked(self.place_index(at)) }
    }

    /// The slots of a batch of `count`: up to the last slot, and the rest from slot 0 on.
    #[inline(always)]
    pub(super) fn batch(&self, at: u64, count: usize) -> [&[Slot<T>]; 2] {
        debug_assert!(count <= self.slots.len());
        let start = index(at, self.mask);
        let end = start + count;
        // SAFETY: the start is below the number of slots, the first part ends there at most, and no
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

    /// Gives the slots of `count` published positions to `work`, oldest first, in runs of adjacent
    /// slots. `first` is the number of items of the stamp at `at`, or 0 if that is unknown.
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
            // Before the rest: usually there is one run.
            if run == left {
                break;
            }
            at = after(at, run as u64);
            left -= run;
            first = 0;
        }
    }

    /// The next run, of at most `most` slots; in two parts if it wraps.
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

    /// Not inlined, so that the fast paths above are. It takes no closure, whose captures would be
    /// in memory for those, too.
    #[inline(never)]
    fn run_by_stamp(&self, at: u64, most: usize) -> [&[Slot<T>]; 2] {
        // The consumer loaded it with acquire when it found the position published.
        let place = self.place(at);
        match Stamp(place.stamp.load(Ordering::Relaxed)).items_at(at) {
            Some(1) => [slice::from_ref(&place.single), &[]],
            // Without a stamp: inside of a batch of which some items were taken.
            items => self.batch(at, most.min(items.unwrap_or(1) as usize)),
        }
    }

    /// Prefetches, for writing, the line of single items to come, which the consumer has. Each
    /// reservation is a locked instruction that waits for all earlier stores, and so for that line.
    #[inline(always)]
    pub(super) fn fetch_to_write(&self, at: u64) {
        if Self::is_line_start(at) {
            self.places
                .fetch_to_write(self.place_index(after(at, AHEAD)));
        }
    }

    /// Prefetches the line two lines ahead, at the last place of a line. For a consumer that found
    /// single items up to there: it is behind its producer and does not take a line that the
    /// producer still writes to.
    #[inline(always)]
    pub(super) fn fetch(&self, at: u64) {
        if Self::is_line_start(after(at, 1)) {
            self.places.fetch(self.place_index(after(at, AHEAD)));
        }
    }
}
