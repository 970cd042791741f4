//! The bounded ring in front of a shared TX queue: many producers, one consumer at a time.
//!
//! A [`Ring`] holds items (packets) and the consumer's state (the TX queue with its device). The
//! *consumer role*, a [`ConsumerGuard`], gives `&mut` to that state. A producer claims it for
//! direct dispatch, the TX worker for everything else. The dispatch mode decides: each producer
//! passes a function from [`RingState`] to [`Decision`].
//!
//! # How it works
//!
//! - **Reserve.** One compare-and-swap of the *head* reserves slots for a batch. The head also
//!   holds the state and the flags, so the same step tells the producer whether a consumer will
//!   see its items, and gives it the role if it claims it.
//! - **Publish.** The producer moves the items to their slots and writes one *stamp*: where they
//!   begin, and how many they are. Producers never wait for each other.
//! - **Take.** The consumer follows the stamps and takes published items in place. It gives slots
//!   back once a turn, by a store of the *tail*. Producers share a note of the free space and load
//!   the tail only if that is used up. [`ConsumerGuard::poll`] does not touch the head.
//! - **Release.** The ring becomes idle by a compare-and-swap of the head that fails if a slot was
//!   reserved meanwhile. Pending items therefore imply *busy*, *abdicated*, *stalled* or *gap*.
//! - **Gap.** If the next slot is reserved and not yet published, the consumer rechecks it 64 times
//!   and then releases the ring as *gap*. Only the TX worker retries.
//!
//! | state | meaning |
//! | --- | --- |
//! | idle | nothing is pending, in the ring or in the consumer's state |
//! | busy | a thread has the consumer role |
//! | abdicated | items may be pending, and the TX worker is notified |
//! | stalled | the device accepts no more; items may be pending |
//! | gap | the next slot is reserved and not yet published |
//!
//! # Flags
//!
//! - WAITERS: a producer waits for space. It adds itself to the list of waiters (the caller's), calls
//!   [`Ring::wait_for_space`], and sleeps if that returns false. A consumer that took items follows
//!   its store of the tail by a read-modify-write of the head, in [`ConsumerGuard::release`] or
//!   [`ConsumerGuard::keep`]. Of the two read-modify-writes of one word the later one sees the
//!   earlier one, so a waiter sees the space or the consumer sees the waiter. The caller clears
//!   the flag under the lock of its list, and wakes all waiters.
//! - ATTENTION: the TX worker needs the role ([`Ring::attend`]) and found the ring busy. A release
//!   then leaves the ring *abdicated* even if it is empty, and no producer claims the role. Only a
//!   claim of the TX worker clears the flag.
//! - SHUT and CLOSED: the ring accepts nothing more from applications, or from lanes either
//!   ([`Ring::close`]).
//!
//! The states and the batch of 64 are those of FreeBSD's mp_ring (`sys/net/mp_ring.c`). Unlike
//! there, all slots are used and the budget is a bound.

#![allow(
    unsafe_code,
    reason = "threads share slots in turn, as the head and the stamps say"
)]

mod batch;
mod consumer;
mod places;
#[cfg(all(test, not(packtrain_loom)))]
mod tests;
mod word;

pub use batch::Batch;
pub use consumer::{ConsumerGuard, Drain, Drained, Kept, Release, Released, Turn};

use crate::limits::RING_SLOTS_MAX;
use crate::policy::dispatch::{Decision, RingState};
use crate::sync::{AtomicU64, Ordering, Padded, UnsafeCell, in_program_order, write_cells};
use places::{Places, Slot};
use std::error::Error;
use std::fmt;
use std::hint;
use std::slice;
use word::{Head, STAMP_ITEMS_MAX, Stamp, WAITERS, after, closing, distance, reaches};

/// The kind of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An application that submits packets.
    Application,
    /// A lane, which transmits the packets of an RX queue.
    Lane,
}

/// The result of [`Ring::put`].
#[derive(Debug)]
#[must_use = "the caller may have the consumer role, or has to notify the TX worker"]
pub enum Put<'a, T, S> {
    /// The ring is closed to this source. The batch is unchanged.
    Closed,
    /// The ring has no free slot for this source. The batch is unchanged. The state is that of the
    /// moment when the producer found no slot.
    Full(RingState),
    /// The oldest items of the batch are published. Items that did not fit are still in it.
    Enqueued {
        /// The caller has to notify the TX worker.
        notify: bool,
    },
    /// The caller has the consumer role. If [`ConsumerGuard::from`] is [`RingState::Idle`], the
    /// batch is unchanged: the ring is empty, and the caller transmits the batch past the slots.
    /// Otherwise the oldest items of the batch are published, behind those of other producers.
    Drain(ConsumerGuard<'a, T, S>),
}

/// The result of [`Ring::attend`].
#[derive(Debug)]
#[must_use = "the caller may have the consumer role"]
pub enum Attended<'a, T, S> {
    /// The caller has the consumer role, and ATTENTION is clear.
    Claimed(ConsumerGuard<'a, T, S>),
    /// Another thread has the role. ATTENTION is set if it was requested: the release of the role
    /// notifies the TX worker.
    Busy,
    /// The TX worker does not need the role in this state.
    NotNeeded(RingState),
}

/// Slots that a producer has reserved and not yet published. A part of [`Ring::put`] for tests that
/// preempt a producer between the two.
///
/// Without a call of [`publish`](Self::publish) the consumer never gets beyond these slots.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "the consumer does not get beyond slots that are not published"]
pub struct Reservation<'a, T, S> {
    ring: &'a Ring<T, S>,
    at: u64,
    count: u64,
    notify: bool,
    role: Option<ConsumerGuard<'a, T, S>>,
}

/// The result of [`Ring::reserve`].
#[doc(hidden)]
#[derive(Debug)]
pub enum Reserved<'a, T, S> {
    /// Nothing was reserved: [`Put::Closed`], [`Put::Full`], or [`Put::Drain`] from idle.
    Nothing(Put<'a, T, S>),
    /// Some slots were reserved.
    Slots(Reservation<'a, T, S>),
}

/// The reason why a ring cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// The requested capacity.
    Capacity(usize),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Capacity(requested) = self;
        write!(
            f,
            "a ring of {requested} slots: the number must be from 1 to {RING_SLOTS_MAX}"
        )
    }
}

impl Error for RingError {}

/// What producers write.
struct Producers {
    /// A [`Head`].
    head: AtomicU64,
    /// The position up to which there was space when a producer last loaded the tail. It may go
    /// back, if a producer that loaded earlier stores later; the next one then loads once more.
    limit: AtomicU64,
}

/// What belongs to the consumer role.
struct Owner<S> {
    /// The position up to which items are known to be published.
    seen: u64,
    state: S,
}

/// A bounded ring of `T` in front of a consumer with the state `S`. See the
/// [module](crate::queue::ring).
///
/// It allocates when it is made and never again; the memory is for the next power of two of the
/// capacity. Items that are still in it when it is dropped are dropped.
///
/// ```
/// use packtrain::policy::dispatch::{Decision, RingState};
/// use packtrain::queue::ring::{Drain, Put, Release, Ring, Source, Turn};
///
/// // The consumer's state is a vector here, and a TX queue in the engine.
/// let ring: Ring<u32, Vec<u32>> = Ring::new(4, Vec::new())?;
/// let mut batch = &[1, 2, 3, 4, 5][..];
/// let deferred = |_| Decision::Notify;
/// let put = ring.put(&mut batch, Source::Application, deferred, |_, _| {});
/// assert!(matches!(put, Put::Enqueued { notify: true }));
/// assert_eq!(batch, [5]);
///
/// let mut consumer = ring.claim(|_| true).expect("no thread has the role");
/// let drained = consumer.drain(64, |sent, items| {
///     sent.extend(items);
///     Turn::More
/// });
/// assert_eq!(drained, Drain::Empty);
/// assert_eq!(*consumer.state(), [1, 2, 3, 4]);
/// assert_eq!(consumer.release_idle().expect("no producer").state, RingState::Idle);
/// # Ok::<(), packtrain::queue::ring::RingError>(())
/// ```
pub struct Ring<T, S> {
    producers: Padded<Producers>,
    /// The next item. Slots before it are empty. The consumer stores it once a turn.
    tail: Padded<AtomicU64>,
    owner: Padded<UnsafeCell<Owner<S>>>,
    places: Places<T>,
    capacity: u64,
    /// Slots that applications leave to lanes. Beside what never changes: each application loads
    /// it, and it changes only when a lane registers or deregisters.
    withheld: AtomicU64,
    /// Of this ring alone in the process, for [`Kept`].
    id: u64,
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
    /// # Errors
    ///
    /// If `capacity` is 0 or above [`RING_SLOTS_MAX`].
    pub fn new(capacity: usize, state: S) -> Result<Self, RingError> {
        if !(1..=RING_SLOTS_MAX).contains(&capacity) {
            return Err(RingError::Capacity(capacity));
        }
        Ok(Self {
            producers: Padded(Producers {
                head: AtomicU64::new(Head::new(0, RingState::Idle).0),
                limit: AtomicU64::new(after(0, capacity as u64)),
            }),
            tail: Padded(AtomicU64::new(0)),
            owner: Padded(UnsafeCell::new(Owner { seen: 0, state })),
            places: Places::new(capacity),
            capacity: capacity as u64,
            withheld: AtomicU64::new(0),
            id: consumer::next_id(),
        })
    }

    /// The number of slots.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Items in the ring: reserved by producers and not given back by the consumer, which gives
    /// slots back once a turn. Other threads may change it meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        // In this order the head is never behind.
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

    /// Whether the TX worker needs the role that another thread has.
    #[must_use]
    pub fn is_attention(&self) -> bool {
        self.head().has_attention()
    }

    /// The consumer's state, of a ring that no other thread uses.
    pub fn state_mut(&mut self) -> &mut S {
        self.owner.0.with_mut(|owner| {
            // SAFETY: `&mut self` says that there is no guard. A role that was kept is not in use
            // either: `resume` borrows the ring.
            unsafe { &mut (*owner).state }
        })
    }

    /// Reserves this many slots for lanes: applications see that much less free space. Lowering
    /// the number makes space for applications, but wakes no waiter.
    ///
    /// # Panics
    ///
    /// If no slot is left for applications.
    pub fn set_withheld(&self, slots: usize) {
        assert!(
            slots < self.capacity(),
            "{slots} of {} slots reserved for lanes",
            self.capacity
        );
        self.withheld.store(slots as u64, Ordering::Relaxed);
    }

    /// Enqueues the oldest items of `batch`, or gives the caller the consumer role, or both.
    ///
    /// `decide` says what a producer does in a state. It is evaluated for the state that each
    /// compare-and-swap replaces. Where ATTENTION is set, the producer enqueues, whatever `decide`
    /// says; no producer claims a ring that is busy or in a gap.
    ///
    /// | decision | idle | busy | abdicated, stalled | gap |
    /// | --- | --- | --- | --- | --- |
    /// | drain | the role, the batch unchanged | enqueued | enqueued, and the role | enqueued |
    /// | notify | enqueued, the ring abdicated, notify | enqueued, notify | enqueued, notify | enqueued, notify |
    /// | enqueue | as notify | enqueued | enqueued | enqueued |
    ///
    /// `count` gets the batch and the number of its oldest items that are accepted. It runs between
    /// reservation and publication, so the items are counted before the consumer sees them. It must
    /// not panic: the slots would stay unpublished.
    ///
    /// Items of one producer come out in the order in which they were put in. An empty batch is
    /// enqueued without effect.
    #[inline(always)]
    pub fn put<B: Batch<T>>(
        &self,
        batch: &mut B,
        from: Source,
        decide: impl Fn(RingState) -> Decision,
        count: impl FnOnce(&B, usize),
    ) -> Put<'_, T, S> {
        match self.reserve(batch.len(), from, decide) {
            Reserved::Nothing(put) => put,
            Reserved::Slots(reservation) => {
                count(batch, reservation.count as usize);
                reservation.publish(batch)
            }
        }
    }

    /// The first part of [`put`](Self::put), for a batch of `want` items.
    #[doc(hidden)]
    #[inline(always)]
    pub fn reserve(
        &self,
        want: usize,
        from: Source,
        decide: impl Fn(RingState) -> Decision,
    ) -> Reserved<'_, T, S> {
        if want == 0 {
            return Reserved::Nothing(Put::Enqueued { notify: false });
        }
        let want = want as u64;
        let mut head = self.head();
        // Two swaps in the code, so that the next state is a branch: a producer that finds a
        // consumer does not wait for the computation of that state.
        loop {
            let at = head.position();
            if head.is_busy_only() {
                let Some(count) = self.room(at, want, from) else {
                    head = self.head();
                    continue;
                };
                if count == 0 {
                    return Reserved::Nothing(Put::Full(RingState::Busy));
                }
                match self.swap(head, head.forward(count)) {
                    Ok(()) => {
                        return Reserved::Slots(Reservation {
                            ring: self,
                            at,
                            count,
                            notify: decide(RingState::Busy) == Decision::Notify,
                            role: None,
                        });
                    }
                    Err(now) => head = now,
                }
                continue;
            }
            // The compiler would make one of the two swaps, if nothing kept it from that.
            in_program_order();
            if head.is_closed(from) {
                return Reserved::Nothing(Put::Closed);
            }
            let state = head.state();
            let decision = if head.has_attention() {
                Decision::Enqueue
            } else {
                decide(state)
            };
            // Before all else: nothing is left to compute for the swap of direct dispatch.
            if state == RingState::Idle && decision == Decision::Drain {
                match self.swap(head, head.with_state(RingState::Busy)) {
                    Ok(()) => {
                        let consumer = ConsumerGuard::new(self, state);
                        return Reserved::Nothing(Put::Drain(consumer));
                    }
                    Err(now) => head = now,
                }
                continue;
            }
            in_program_order();
            let claims =
                decision == Decision::Drain && !matches!(state, RingState::Busy | RingState::Gap);
            let Some(count) = self.room(at, want, from) else {
                head = self.head();
                continue;
            };
            if count == 0 {
                return Reserved::Nothing(Put::Full(state));
            }
            let (next, notify) = if claims {
                (RingState::Busy, false)
            } else if state == RingState::Idle {
                (RingState::Abdicated, true)
            } else {
                (state, decision == Decision::Notify)
            };
            match self.swap(head, head.forward(count).with_state(next)) {
                Ok(()) => {
                    return Reserved::Slots(Reservation {
                        ring: self,
                        at,
                        count,
                        notify,
                        role: claims.then(|| ConsumerGuard::new(self, state)),
                    });
                }
                Err(now) => head = now,
            }
        }
    }

    /// How many of `want` slots are free at the head `at` for this source; None if that is not the
    /// head any more.
    #[inline(always)]
    fn room(&self, at: u64, want: u64, from: Source) -> Option<u64> {
        let withheld = self.withheld(from);
        // Acquire: the producer that stored the limit saw that the consumer was done with those
        // slots.
        let limit = self.producers.limit.load(Ordering::Acquire);
        if reaches(at, want + withheld, limit) {
            return Some(want);
        }
        hint::cold_path();
        let room = self.load_room(at)?;
        Some(room.saturating_sub(withheld).min(want))
    }

    /// Loads what the consumer has given back, and returns the number of free slots at the head
    /// `at`; None if that is not the head any more.
    #[inline(never)]
    fn load_room(&self, at: u64) -> Option<u64> {
        let tail = self.tail.load(Ordering::Acquire);
        let room = self.capacity.checked_sub(distance(tail, at))?;
        let limit = &self.producers.limit;
        limit.store(after(tail, self.capacity), Ordering::Release);
        Some(room)
    }

    #[inline(always)]
    fn withheld(&self, from: Source) -> u64 {
        match from {
            Source::Application => self.withheld.load(Ordering::Relaxed),
            Source::Lane => 0,
        }
    }

    #[inline(always)]
    fn head(&self) -> Head {
        Head(self.producers.head.load(Ordering::Acquire))
    }

    /// Replaces the head; returns the present one if it has changed meanwhile.
    #[inline(always)]
    fn swap(&self, head: Head, next: Head) -> Result<(), Head> {
        let word = &self.producers.head;
        match word.compare_exchange_weak(head.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(now) => Err(Head(now)),
        }
    }

    /// Claims the consumer role, if no thread has it, `may` allows the state, and ATTENTION is not
    /// set. For a producer, such as one that finds the ring full.
    #[must_use]
    pub fn claim(&self, may: impl Fn(RingState) -> bool) -> Option<ConsumerGuard<'_, T, S>> {
        let mut head = self.head();
        loop {
            let state = head.state();
            if state == RingState::Busy || head.has_attention() || !may(state) {
                return None;
            }
            match self.swap(head, head.with_state(RingState::Busy)) {
                Ok(()) => return Some(ConsumerGuard::new(self, state)),
                Err(now) => head = now,
            }
        }
    }

    /// Claims the consumer role for the TX worker, if `needs` says so of the state, and clears
    /// ATTENTION. If another thread has the role, sets ATTENTION if `request` is true. Each of the
    /// two is one compare-and-swap.
    ///
    /// A worker that has kept the role ([`Kept`]) must not call it.
    pub fn attend(&self, needs: impl Fn(RingState) -> bool, request: bool) -> Attended<'_, T, S> {
        let mut head = self.head();
        loop {
            let state = head.state();
            let busy = state == RingState::Busy;
            let next = if busy {
                if !request || head.has_attention() {
                    return Attended::Busy;
                }
                head.with_attention()
            } else {
                if !needs(state) {
                    return Attended::NotNeeded(state);
                }
                head.with_state(RingState::Busy).without_attention()
            };
            match self.swap(head, next) {
                Ok(()) if busy => return Attended::Busy,
                Ok(()) => return Attended::Claimed(ConsumerGuard::new(self, state)),
                Err(now) => head = now,
            }
        }
    }

    /// The consumer role of a TX worker that has kept it.
    ///
    /// # Panics
    ///
    /// If `kept` is of another ring.
    #[expect(clippy::needless_pass_by_value, reason = "the role is in one place")]
    pub fn resume(&self, kept: Kept) -> ConsumerGuard<'_, T, S> {
        assert!(kept.is_of(self.id), "the role of another ring");
        ConsumerGuard::new(self, RingState::Busy)
    }

    /// Sets WAITERS and then checks [`has_space`](Self::has_space), for a producer that has added
    /// itself to the list of waiters. If it returns false, the producer may sleep: a consumer that
    /// makes space finds WAITERS set.
    ///
    /// A producer that sleeps first notifies the TX worker if [`state`](Self::state) is then
    /// abdicated, stalled or gap: the producer that released the ring may not have done so yet.
    #[must_use]
    pub fn wait_for_space(&self, from: Source) -> bool {
        let head = self.producers.head.fetch_or(WAITERS, Ordering::AcqRel);
        self.may_send(Head(head), from)
    }

    /// Clears WAITERS. The caller holds the lock of its list of waiters, and wakes all of them.
    pub fn clear_waiters(&self) {
        self.producers.head.fetch_and(!WAITERS, Ordering::AcqRel);
    }

    /// Whether a producer may send: a slot is free for it, or the ring is closed to it, so that
    /// [`put`](Self::put) says so.
    #[must_use]
    pub fn has_space(&self, from: Source) -> bool {
        self.may_send(self.head(), from)
    }

    fn may_send(&self, mut head: Head, from: Source) -> bool {
        loop {
            if head.is_closed(from) {
                return true;
            }
            let tail = self.tail.load(Ordering::Acquire);
            // The tail may be ahead of a head that was loaded before it.
            match self.capacity.checked_sub(distance(tail, head.position())) {
                Some(room) => return room > self.withheld(from),
                None => head = self.head(),
            }
        }
    }

    /// Closes the ring to a source, and one that is closed to lanes to applications, too. Slots
    /// that are reserved by now are still published. The caller wakes all waiters and notifies the
    /// TX worker.
    pub fn close(&self, to: Source) {
        self.producers.head.fetch_or(closing(to), Ordering::AcqRel);
    }

    /// Whether the ring is closed to a source.
    #[must_use]
    pub fn is_closed(&self, to: Source) -> bool {
        self.head().is_closed(to)
    }

    /// Moves `count` items from the front of `batch` to the slots that were reserved at `at`, and
    /// publishes them.
    #[inline(always)]
    fn publish(&self, at: u64, count: u64, batch: &mut impl Batch<T>) {
        if count == 1 {
            self.places.fetch_to_write(at);
            let place = self.places.place(at);
            batch.move_front(1, &mut |item, _| {
                // SAFETY: it was reserved and is empty; the batch gives the item away.
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
            // A stamp for one item would say that it is not in the slots.
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

impl<'a, T, S> Reservation<'a, T, S> {
    /// How many items were reserved.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count as usize
    }

    /// The second part of [`Ring::put`].
    ///
    /// # Panics
    ///
    /// If the batch has fewer items than were reserved. Then nothing is published.
    #[inline(always)]
    pub fn publish(self, batch: &mut impl Batch<T>) -> Put<'a, T, S> {
        self.ring.publish(self.at, self.count, batch);
        match self.role {
            None => Put::Enqueued {
                notify: self.notify,
            },
            Some(consumer) => Put::Drain(consumer),
        }
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
        // A batch of which some items were taken begins before the tail.
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
