//! The memory of a ring: the head, the tail, the slots and the consumer's state.

#![allow(
    unsafe_code,
    reason = "threads share slots in turn, as the head and the stamps say"
)]

use super::places::{Places, Slot};
use super::word::{Head, ProducerKind, STAMP_ITEMS_MAX, Stamp, after, distance, reaches};
use crate::limits::RING_SLOTS_MAX;
use crate::policy::dispatch::RingState;
use crate::sync::{AtomicU64, Ordering, Padded, UnsafeCell, write_cells};
use std::collections::VecDeque;
use std::fmt;
use std::hint;
use std::mem::ManuallyDrop;
use std::slice;
use std::sync::atomic::AtomicU64 as StdAtomicU64;

/// Items to enqueue, the oldest first.
///
/// # Safety
///
/// The ring reserves slots for [`len`](Batch::len) items before it moves them. So
/// [`move_front`](Batch::move_front) must hand over exactly as many items as requested, each valid
/// and owned by the ring alone from then on, and it must not unwind.
// SAFETY: the section above says what an implementation promises.
#[allow(clippy::len_without_is_empty, reason = "the ring needs no more")]
pub unsafe trait Batch<T> {
    /// Items in the batch.
    fn len(&self) -> usize;

    /// Gives the oldest `count` items, at most [`len`](Batch::len), to `take`, in order, in runs
    /// that are contiguous in memory. The batch then holds only the others.
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize));
}

// SAFETY: the front of the first slice and, if that is shorter, of the second one make two runs;
// then the same items are removed and not dropped.
unsafe impl<T> Batch<T> for VecDeque<T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize)) {
        assert!(count <= self.len(), "the batch has fewer items");
        let (first, second) = self.as_slices();
        let run = count.min(first.len());
        take(first.as_ptr(), run);
        if count > run {
            take(second.as_ptr(), count - run);
        }
        self.drain(..count).for_each(|moved| {
            let _moved = ManuallyDrop::new(moved);
        });
    }
}

// SAFETY: one run of `count` items, copied as their type allows; the slice becomes the others.
unsafe impl<T: Copy> Batch<T> for &[T] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[inline(always)]
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize)) {
        let (given, left) = self.split_at(count);
        take(given.as_ptr(), count);
        *self = left;
    }
}

/// The words that producers write.
pub(super) struct Producers {
    /// A [`Head`].
    pub(super) head: AtomicU64,
    /// The position up to which slots were free when a producer last loaded the tail. It may go
    /// back if a producer that loaded earlier stores later; the next producer then loads again.
    pub(super) limit: AtomicU64,
}

/// The data of the consumer role.
pub(super) struct Owner<S> {
    /// The position up to which items are known to be published.
    pub(super) seen: u64,
    pub(super) state: S,
}

/// A bounded ring of `T` in front of a consumer with the state `S`. See the
/// [module](crate::queue::ring).
///
/// It allocates in [`new`](Ring::new) and never again, for the next power of two of the capacity.
/// If the ring is dropped, it drops the items that it still has.
///
/// ```
/// use packtrain::policy::dispatch::{Decision, RingState};
/// use packtrain::queue::ring::{Ended, Put, Ring, ProducerKind, Turn};
///
/// // The consumer's state is a vector here, and a TX queue in the engine.
/// let ring: Ring<u32, Vec<u32>> = Ring::new(4, Vec::new());
/// let mut batch = &[1, 2, 3, 4, 5][..];
/// let deferred = |_| Decision::Notify;
/// let put = ring.put(&mut batch, ProducerKind::Application, deferred, |_, _| {});
/// assert!(matches!(put, Put::Enqueued { notify: true }));
/// assert_eq!(batch, [5]);
///
/// let mut consumer = ring.claim(|_| true).expect("no thread has the role");
/// let drained = consumer.drain(64, |sent, items| {
///     items.take(usize::MAX, |item| sent.push(item));
///     Turn::More
/// });
/// assert_eq!(drained, Ended::Empty);
/// assert_eq!(*consumer.state(), [1, 2, 3, 4]);
/// assert_eq!(consumer.release(drained).expect("no producer").state, RingState::Idle);
/// ```
pub struct Ring<T, S> {
    pub(super) producers: Padded<Producers>,
    /// The next item. Slots before it are empty. The consumer stores it once a turn.
    pub(super) tail: Padded<AtomicU64>,
    pub(super) owner: Padded<UnsafeCell<Owner<S>>>,
    pub(super) places: Places<T>,
    pub(super) capacity: u64,
    /// Slots that are withheld from applications. Beside the constants: each application loads it,
    /// and it changes only when a lane registers or deregisters.
    pub(super) withheld: AtomicU64,
    /// Unique in the process, for [`Kept`](super::Kept).
    pub(super) id: u64,
}

// SAFETY: items move from one thread to another, hence `T: Send`, and no two threads access one at
// once: a slot belongs to the producer that reserved it until the stamp is there, then to the
// consumer until `tail` is beyond it. Only the consumer accesses `S`, and the role passes from
// thread to thread by release and acquire of the head.
unsafe impl<T: Send, S: Send> Sync for Ring<T, S> {}
// SAFETY: it owns items and state, and borrows nothing.
unsafe impl<T: Send, S: Send> Send for Ring<T, S> {}

impl<T, S> fmt::Debug for Ring<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.capacity)
            .field("len", &self.len())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl<T, S> Ring<T, S> {
    /// An idle ring of `capacity` slots.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0 or above [`RING_SLOTS_MAX`].
    pub fn new(capacity: usize, state: S) -> Self {
        // Not an atomic of loom's: loom creates those anew for each run of a model.
        static NEXT_ID: StdAtomicU64 = StdAtomicU64::new(0);
        assert!(
            (1..=RING_SLOTS_MAX).contains(&capacity),
            "a ring of {capacity} slots: the number must be from 1 to {RING_SLOTS_MAX}"
        );
        Self {
            producers: Padded(Producers {
                head: AtomicU64::new(Head::new(0, RingState::Idle).0),
                limit: AtomicU64::new(after(0, capacity as u64)),
            }),
            tail: Padded(AtomicU64::new(0)),
            owner: Padded(UnsafeCell::new(Owner { seen: 0, state })),
            places: Places::new(capacity),
            capacity: capacity as u64,
            withheld: AtomicU64::new(0),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The number of slots.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Slots that producers have reserved and the consumer has not given back, which it does once
    /// a turn. Other threads may change it meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        // The tail first: then the head is not behind it.
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head().position();
        distance(tail, head).min(self.capacity) as usize
    }

    /// True if [`len`](Self::len) is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The state. Other threads may change it meanwhile.
    #[must_use]
    pub fn state(&self) -> RingState {
        self.head().state()
    }

    /// Withholds this many more slots from applications.
    ///
    /// # Panics
    ///
    /// If applications would have no slot.
    pub fn withhold(&self, slots: usize) {
        let all = self.withheld.fetch_add(slots as u64, Ordering::Relaxed) + slots as u64;
        assert!(
            all < self.capacity() as u64,
            "{all} of {} slots withheld from applications",
            self.capacity
        );
    }

    /// Gives slots that were withheld back to applications, and wakes no waiter.
    pub fn give_back(&self, slots: usize) {
        self.withheld.fetch_sub(slots as u64, Ordering::Relaxed);
    }

    /// How many of `want` slots are free at the head `at` for this source; None if that is not the
    /// head any more.
    #[inline(always)]
    pub(super) fn room(&self, at: u64, want: u64, from: ProducerKind) -> Option<u64> {
        let withheld = self.withheld(from);
        // Acquire: the producer that stored the limit saw that the consumer had given those slots
        // back.
        let limit = self.producers.limit.load(Ordering::Acquire);
        if reaches(at, want + withheld, limit) {
            return Some(want);
        }
        hint::cold_path();
        let room = self.load_room(at)?;
        Some(room.saturating_sub(withheld).min(want))
    }

    /// Loads the tail, and returns the number of free slots at the head `at`; None if that is not
    /// the head any more.
    #[inline(never)]
    fn load_room(&self, at: u64) -> Option<u64> {
        let tail = self.tail.load(Ordering::Acquire);
        let room = self.capacity.checked_sub(distance(tail, at))?;
        let limit = &self.producers.limit;
        limit.store(after(tail, self.capacity), Ordering::Release);
        Some(room)
    }

    #[inline(always)]
    pub(super) fn withheld(&self, from: ProducerKind) -> u64 {
        match from {
            ProducerKind::Application => self.withheld.load(Ordering::Relaxed),
            ProducerKind::Lane => 0,
        }
    }

    #[inline(always)]
    pub(super) fn head(&self) -> Head {
        Head(self.producers.head.load(Ordering::Acquire))
    }

    /// Replaces the head; returns the present one if it has changed meanwhile.
    #[inline(always)]
    pub(super) fn swap(&self, head: Head, next: Head) -> Result<(), Head> {
        let word = &self.producers.head;
        match word.compare_exchange_weak(head.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(now) => Err(Head(now)),
        }
    }

    /// Moves `count` items from the front of `batch` to the slots that were reserved at `at`, and
    /// publishes them.
    #[inline(always)]
    pub(super) fn publish(&self, at: u64, count: u64, batch: &mut impl Batch<T>) {
        if count == 1 {
            self.places.fetch_to_write(at);
            let place = self.places.place(at);
            batch.move_front(1, &mut |item, _| {
                // SAFETY: the slot is reserved and empty; the batch gives the item away.
                unsafe { write_cells(slice::from_ref(&place.single), item) };
            });
            // After the batch has removed the item: the consumer may take it at once.
            let stamp = Stamp::new(at, 1);
            place.stamp.store(stamp.0, Ordering::Release);
        } else {
            let mut next = at;
            batch.move_front(count as usize, &mut |items, run| {
                self.write(next, items, run);
                next = after(next, run as u64);
            });
            debug_assert_eq!(next, after(at, count));
            self.stamp(at, count);
        }
    }

    /// Moves a run of items to slots of a reservation of at least two.
    #[inline(always)]
    fn write(&self, at: u64, items: *const T, run: usize) {
        let [front, back] = self.places.batch(at, run);
        // SAFETY: the caller has reserved the slots and they are empty; the batch gives away the
        // items of the run, which is as long as both parts.
        unsafe {
            write_cells(front, items);
            if !back.is_empty() {
                write_cells(back, items.add(front.len()));
            }
        }
    }

    /// Publishes a batch that was written.
    #[inline(always)]
    fn stamp(&self, mut at: u64, count: u64) {
        let mut left = count;
        while left > STAMP_ITEMS_MAX {
            // Not a stamp for one item: that is beside its stamp, and not in the slots.
            let items = STAMP_ITEMS_MAX.min(left - 2);
            self.stamp_one(at, items);
            at = after(at, items);
            left -= items;
        }
        self.stamp_one(at, left);
    }

    #[inline(always)]
    fn stamp_one(&self, at: u64, items: u64) {
        let stamp = &self.places.place(at).stamp;
        stamp.store(Stamp::new(at, items).0, Ordering::Release);
    }
}

impl<T, S> Drop for Ring<T, S> {
    fn drop(&mut self) {
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head().position();
        let seen = self.owner.0.with_mut(|owner| {
            // SAFETY: `&mut self`: no thread has the role.
            unsafe { (*owner).seen }
        });
        let drop_all = |slots: &[Slot<T>]| {
            for slot in slots {
                slot.with_mut(|slot| {
                    // SAFETY: published items from the tail on were written and not taken.
                    unsafe { (*slot).assume_init_drop() };
                });
            }
        };
        // If some items of a batch were taken, its stamp is before the tail.
        let known = distance(tail, seen) as usize;
        self.places.in_runs(tail, known, 0, drop_all);
        let mut at = seen;
        while at != head {
            let stamp = Stamp(self.places.place(at).stamp.load(Ordering::Acquire));
            // A producer that panicked may have left slots unpublished, which are empty.
            let items = stamp.items_at(at).unwrap_or(0);
            self.places.in_runs(at, items as usize, items, drop_all);
            at = after(at, items.max(1));
        }
    }
}
