//! The ring in front of a TX queue: many producers, one consumer, who may be any of them.
//!
//! A [`Ring`] holds items (packets) and the consumer's state (the TX queue with its device).
//! Whoever is the [`Consumer`] has `&mut` to that state, and there is one at a time: a producer
//! that finds the ring idle, or left, and takes the role (direct dispatch), or a worker.
//!
//! # How it works
//!
//! - **Reserve.** One compare-and-swap of the *head* for a batch. The head has the state in it
//!   ([`Status`]), so a producer knows in the same step whether somebody is going to look.
//! - **Publish.** The items are written to their slots, then one *stamp* says where they begin and
//!   how many they are. Producers never wait for each other, as those of a ring with one published
//!   tail do when one of them is preempted.
//! - **Take.** The consumer follows the stamps and sees only published items, in place. Space goes
//!   back once a turn; producers share a note of what is free and look at the consumer's word when
//!   that is used up. While the consumer is at work it does not touch the head.
//! - **Leave.** The consumer becomes idle by a compare-and-swap of the head, which fails when
//!   somebody has reserved anything since: nothing can come between.
//! - **Gaps.** If what is next is reserved and not published (its producer was preempted), the
//!   consumer leaves the role to that producer, which looks for that when it has published: it is
//!   the consumer from then on, or sees to it that a worker is. Each of the two writes and then
//!   reads what the other wrote. The fence that this takes is on the consumer's side alone
//!   (`membarrier(2)`): gaps are rare, and publishing is not. Where the kernel refuses that, every
//!   producer has one.
//!
//! | state | means | an enqueue |
//! | --- | --- | --- |
//! | idle | nothing pending | takes the role, or leaves it to the worker: `Wake`, once |
//! | busy | there is a consumer | leaves it to the consumer |
//! | stalled | the device took no more | waits for [`Ring::kick`]; `Claim::Any` tries at once |
//! | abdicated | left to who comes next | takes the role, or leaves it to the worker |
//!
//! The states and the batch of 64 are those of FreeBSD's mp_ring (`sys/net/mp_ring.c`). Other than
//! there, every slot is used, the budget bounds, and the cause of a stall is kept.

#![allow(
    unsafe_code,
    reason = "slots are shared by threads that take turns, as the head and the stamps say"
)]

mod batch;
mod bell;
mod consumer;
mod places;
#[cfg(all(test, not(packtrain_loom)))]
mod tests;
mod word;

pub use batch::Batch;
pub use bell::Bell;
pub use consumer::{Consumer, Drained, Exit, Turn};

use crate::limits::RING_SLOTS_MAX;
use crate::stats::Stall;
use crate::sync::{
    AtomicU64, Barrier, Ordering, Padded, UnsafeCell, in_program_order, write_cells,
};
use places::Places;
use std::error::Error;
use std::fmt;
use std::hint;
use std::slice;
use word::{Head, NOWHERE, STAMP_ITEMS_MAX, Stamp, State, UNFENCED, after, distance, reaches};

/// Which states a caller takes the consumer's role in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// None: the worker drains (deferred dispatch).
    Never,
    /// When the ring is idle, or was abdicated (direct dispatch).
    Free,
    /// Whenever nobody has it: also when the device stalled.
    Any,
}

impl Claim {
    #[inline(always)]
    const fn takes(self, state: State) -> bool {
        match (self, state) {
            (Self::Never, _) | (_, State::Busy | State::Kicked) => false,
            (_, State::Idle | State::Abdicated) | (Self::Any, State::Stalled(_)) => true,
            (Self::Free, State::Stalled(_)) => false,
        }
    }
}

/// What the caller has to do now.
#[derive(Debug)]
#[must_use = "without it nobody may drain the ring"]
pub enum Duty<'a, T, S> {
    /// Nothing: somebody is on it.
    None,
    /// Ring the worker's [`Bell`]. Said once for an edge from idle.
    Wake,
    /// Drain: the caller has become the consumer.
    Drain(Consumer<'a, T, S>),
}

impl<T, S> Duty<'_, T, S> {
    /// True if there is nothing to do.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// True if the worker has to be woken.
    #[must_use]
    pub const fn is_wake(&self) -> bool {
        matches!(self, Self::Wake)
    }
}

/// What an enqueue came to.
#[derive(Debug)]
#[must_use = "the caller may have become the consumer"]
pub struct Enqueued<'a, T, S> {
    /// How many items the ring took, from the front of the batch. The others are still in it: the
    /// ring was full.
    pub accepted: usize,
    /// What to do now.
    pub duty: Duty<'a, T, S>,
}

/// Who works a ring, as [`Ring::status`] saw it a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing is pending.
    Idle,
    /// There is a consumer, or a producer that finds the role when it publishes.
    Busy,
    /// Something may be pending, and whoever left it tells a worker unless somebody takes it.
    Abdicated,
    /// The device took no more, for this cause.
    Stalled(Stall),
}

/// Why a ring cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// For this many items.
    Capacity(usize),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Capacity(asked) = self;
        write!(
            f,
            "a ring for {asked} items: it holds from 1 to {RING_SLOTS_MAX}; ask for a number there"
        )
    }
}

impl Error for RingError {}

/// What producers write.
struct Producers {
    /// A [`Head`].
    head: AtomicU64,
    /// Up to which position there was space when one of them looked last. It may go back, when
    /// one that looked earlier writes later; then somebody looks once more than needed.
    limit: AtomicU64,
}

/// What belongs to the role of the consumer.
struct Owner<S> {
    /// Up to where items are known to be published.
    seen: u64,
    state: S,
}

/// A bounded ring of `T` in front of a consumer with the state `S`. See the
/// [module](crate::queue::ring).
///
/// A ring of capacity N holds N items. It allocates when it is made and never again; N is from 1
/// to [`RING_SLOTS_MAX`], and memory is for the next power of two. Items that are still in it when
/// it is dropped are dropped.
///
/// ```
/// use packtrain::queue::ring::{Claim, Duty, Exit, Ring, Turn};
///
/// // The consumer's state is a vector here, and a TX queue in earnest.
/// let ring: Ring<u32, Vec<u32>> = Ring::new(4, Vec::new())?;
/// let mut batch = vec![1, 2, 3, 4, 5];
/// let enqueued = ring.enqueue(&mut batch, Claim::Free);
/// assert_eq!((enqueued.accepted, batch), (4, vec![5]));
/// let Duty::Drain(consumer) = enqueued.duty else { unreachable!("it was idle") };
/// let exit = consumer.drain(64, |sent, items| {
///     sent.extend(items);
///     Turn::More
/// });
/// assert_eq!(exit, Exit::Idle);
/// # Ok::<(), packtrain::queue::ring::RingError>(())
/// ```
pub struct Ring<T, S> {
    producers: Padded<Producers>,
    /// The next item. Slots before it are empty. Written by the consumer, once a turn.
    tail: Padded<AtomicU64>,
    owner: Padded<UnsafeCell<Owner<S>>>,
    places: Places<T>,
    capacity: u64,
    /// Where a consumer left the role to the producer that has reserved this position, or
    /// [`no_gap`](Self::no_gap). Beside what never changes: every producer reads it, and it is
    /// hardly written.
    gap: AtomicU64,
    barrier: Barrier,
}

// SAFETY: items move from one thread to another, hence `T: Send`, and are never seen by two at
// once: a slot belongs to the producer that reserved it until the stamp is there, then to the
// consumer until `tail` is beyond it. `S` is used by the consumer of the time only, and the
// role goes on by release and acquire of the head, or of `gap`.
unsafe impl<T: Send, S: Send> Sync for Ring<T, S> {}
// SAFETY: it owns items and state, and borrows nothing.
unsafe impl<T: Send, S: Send> Send for Ring<T, S> {}

impl<T, S> fmt::Debug for Ring<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.capacity)
            .field("len", &self.len())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// Replaces a head; says what is there when it has changed meanwhile.
#[inline(always)]
fn swap(word: &AtomicU64, head: Head, next: Head) -> Result<u64, u64> {
    word.compare_exchange_weak(head.0, next.0, Ordering::AcqRel, Ordering::Acquire)
}

/// What the word for a gap holds while there is none. Where the kernel does not fence for the
/// producers it is not what they take for that, so each of them looks again behind a fence.
const fn no_gap(barrier: Barrier) -> u64 {
    match barrier.is_light() {
        true => NOWHERE,
        false => UNFENCED,
    }
}

/// Space that a producer reserved, and whether it is the consumer as well.
struct Reserved {
    at: u64,
    count: u64,
    /// Whether the reservation took the ring from idle to abdicated.
    edge: bool,
    claimed: bool,
}

impl<T, S> Ring<T, S> {
    /// An idle ring for `capacity` items.
    ///
    /// # Errors
    ///
    /// When `capacity` is 0 or above [`RING_SLOTS_MAX`].
    pub fn new(capacity: usize, state: S) -> Result<Self, RingError> {
        if !(1..=RING_SLOTS_MAX).contains(&capacity) {
            return Err(RingError::Capacity(capacity));
        }
        let barrier = Barrier::new();
        Ok(Self {
            producers: Padded(Producers {
                head: AtomicU64::new(Head::new(0, State::Idle).0),
                limit: AtomicU64::new(after(0, capacity as u64)),
            }),
            tail: Padded(AtomicU64::new(0)),
            owner: Padded(UnsafeCell::new(Owner { seen: 0, state })),
            places: Places::new(capacity),
            capacity: capacity as u64,
            gap: AtomicU64::new(no_gap(barrier)),
            barrier,
        })
    }

    /// How many items it can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Items in it: reserved by producers and not given back by the consumer, which does so once a
    /// turn. Others may change it meanwhile.
    #[must_use]
    pub fn len(&self) -> usize {
        // In this order the head is never behind.
        let tail = self.tail.load(Ordering::Acquire);
        let head = Head(self.producers.head.load(Ordering::Acquire)).position();
        distance(tail, head).min(self.capacity) as usize
    }

    /// True if [`len`](Self::len) is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that were taken since it was made (modulo 2^57): those of a turn when it ends, as that
    /// makes space. Others may change it meanwhile.
    #[must_use]
    pub fn taken(&self) -> u64 {
        distance(0, self.tail.load(Ordering::Relaxed))
    }

    /// Who works it. Others may change it meanwhile.
    #[must_use]
    pub fn status(&self) -> Status {
        match Head(self.producers.head.load(Ordering::Acquire)).state() {
            State::Idle => Status::Idle,
            State::Busy | State::Kicked => Status::Busy,
            State::Abdicated => Status::Abdicated,
            State::Stalled(cause) => Status::Stalled(cause),
        }
    }

    /// The consumer's state, of a ring that nobody else uses.
    pub fn state_mut(&mut self) -> &mut S {
        self.owner.0.with_mut(|owner| {
            // SAFETY: `&mut self` says that there is no consumer.
            unsafe { &mut (*owner).state }
        })
    }

    /// Takes items from the front of `batch` until it is empty or the ring is full, and says what
    /// to do then. Items of one producer come out in the order in which they were put in.
    ///
    /// It takes less than the batch only if the ring was full a moment ago; what the consumer took
    /// and did not give back yet counts as being there.
    #[inline(always)]
    pub fn enqueue(&self, batch: &mut impl Batch<T>, claim: Claim) -> Enqueued<'_, T, S> {
        let want = batch.len() as u64;
        let reserved = match want {
            0 => None,
            _ => self.reserve(want, claim),
        };
        let Some(reserved) = reserved else {
            return self.refuse(want, claim);
        };
        self.put(&reserved, batch);
        Enqueued {
            accepted: reserved.count as usize,
            duty: self.duty(&reserved, claim),
        }
    }

    /// Takes nothing: the ring is full, or the batch is empty.
    #[cold]
    fn refuse(&self, want: u64, claim: Claim) -> Enqueued<'_, T, S> {
        let duty = match claim {
            Claim::Never => Duty::None,
            _ if want == 0 => Duty::None,
            _ => self.try_consume(claim).map_or(Duty::None, Duty::Drain),
        };
        Enqueued { accepted: 0, duty }
    }

    /// Reserves space for up to `want` items; None when there is none.
    #[inline(always)]
    fn reserve(&self, want: u64, claim: Claim) -> Option<Reserved> {
        let Producers { head: word, limit } = &self.producers.0;
        let mut head = Head(word.load(Ordering::Acquire));
        loop {
            let at = head.position();
            // Acquire: who wrote the limit saw that the consumer was done with those slots.
            let count = if reaches(at, want, limit.load(Ordering::Acquire)) {
                want
            } else {
                hint::cold_path();
                match self.look_for_room(at) {
                    Some(0) => return None,
                    Some(room) => room.min(want),
                    None => {
                        // The head is older than that: others went on meanwhile.
                        head = Head(word.load(Ordering::Acquire));
                        continue;
                    }
                }
            };
            // Two swaps in the code, so that which state comes next is a branch: a producer that
            // finds a consumer need not wait for that to be worked out. The compiler would make
            // one of them, if nothing kept it from that.
            let (swapped, claimed, edge) = if head.is(State::Busy) {
                (swap(word, head, head.forward(count)), false, false)
            } else {
                in_program_order();
                let (next, claimed, edge) = Self::edge(head, count, claim);
                (swap(word, head, next), claimed, edge)
            };
            match swapped {
                Ok(_) => {
                    return Some(Reserved {
                        at,
                        count,
                        edge,
                        claimed,
                    });
                }
                Err(now) => head = Head(now),
            }
        }
    }

    /// Looks at what the consumer has given back, and says how much room there is at the head `at`;
    /// None if that is not the head any more.
    #[inline(never)]
    fn look_for_room(&self, at: u64) -> Option<u64> {
        let tail = self.tail.load(Ordering::Acquire);
        let room = self.capacity.checked_sub(distance(tail, at))?;
        let limit = &self.producers.limit;
        limit.store(after(tail, self.capacity), Ordering::Release);
        Some(room)
    }

    /// What a reservation makes of a head where nobody may be at work; whether it takes the role,
    /// and whether it abdicates an idle ring.
    #[inline]
    fn edge(head: Head, count: u64, claim: Claim) -> (Head, bool, bool) {
        let next = head.forward(count);
        let state = head.state();
        if claim.takes(state) {
            (next.with_state(State::Busy), true, false)
        } else if state == State::Idle {
            (next.with_state(State::Abdicated), false, true)
        } else {
            (next, false, false)
        }
    }

    /// Moves as many items as were reserved from the front of `batch` to their places, and lets the
    /// consumer see them.
    #[inline(always)]
    fn put(&self, reserved: &Reserved, batch: &mut impl Batch<T>) {
        if reserved.count == 1 {
            self.places.fetch_to_write(reserved.at);
            let place = self.places.place(reserved.at);
            batch.move_front(1, &mut |item, _| {
                // SAFETY: it was reserved and is empty; the batch gives the item away.
                unsafe { write_cells(slice::from_ref(&place.single), item) };
            });
            // Not before the batch is done with the item: the consumer may be at once.
            let stamp = Stamp::new(reserved.at, 1);
            place.stamp.store(stamp.0, Ordering::Release);
        } else {
            let mut at = reserved.at;
            batch.move_front(reserved.count as usize, &mut |items, run| {
                self.write(at, items, run);
                at = after(at, run as u64);
            });
            debug_assert_eq!(at, after(reserved.at, reserved.count));
            self.stamp(reserved);
        }
    }

    /// Moves a run of items into slots that the caller reserved, of at least two.
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

    /// Lets the consumer see a batch that was written.
    #[inline(always)]
    fn stamp(&self, reserved: &Reserved) {
        let Reserved { mut at, count, .. } = *reserved;
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

    /// What the caller has to do, now that all is published.
    #[inline(always)]
    fn duty(&self, reserved: &Reserved, claim: Claim) -> Duty<'_, T, S> {
        if reserved.claimed {
            return Duty::Drain(Consumer::new(self));
        }
        // The stamps are written, now the gap is read. A consumer that waits for a stamp writes
        // the gap and then reads the stamp.
        // Without the kernel's help this never says that there is none.
        in_program_order();
        if self.gap.load(Ordering::Acquire) != NOWHERE && self.take_gap(reserved) {
            let consumer = Consumer::new(self);
            if claim == Claim::Never {
                consumer.abdicate();
                return Duty::Wake;
            }
            return Duty::Drain(consumer);
        }
        // The first one after idle: what follows finds the ring abdicated.
        if reserved.edge {
            Duty::Wake
        } else {
            Duty::None
        }
    }

    /// Takes the role that a consumer left at a gap, if that was reserved by the caller and the
    /// consumer has not taken it back.
    #[cold]
    fn take_gap(&self, reserved: &Reserved) -> bool {
        // Read again: what was read before counts only where the kernel fences.
        self.barrier.light();
        let gap = self.gap.load(Ordering::Acquire);
        gap != self.no_gap()
            && distance(reserved.at, gap) < reserved.count
            && self
                .gap
                .compare_exchange(gap, self.no_gap(), Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// What the word for a gap holds while there is none.
    const fn no_gap(&self) -> u64 {
        no_gap(self.barrier)
    }

    /// Takes the consumer's role if nobody has it and `claim` allows it. A worker does so with
    /// [`Claim::Any`] when its bell rang, or to work on what its state holds.
    #[inline]
    #[must_use]
    pub fn try_consume(&self, claim: Claim) -> Option<Consumer<'_, T, S>> {
        let word = &self.producers.head;
        let mut head = Head(word.load(Ordering::Acquire));
        while claim.takes(head.state()) {
            let next = head.with_state(State::Busy);
            match word.compare_exchange_weak(head.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Consumer::new(self)),
                Err(now) => head = Head(now),
            }
        }
        None
    }

    /// Says that the cause of a stall may be gone: descriptors were completed, the link is up.
    ///
    /// A stalled ring gets a consumer, the caller if `claim` is not [`Claim::Never`]; else it is
    /// abdicated, and the worker has to be woken. A consumer that is at work tries once more
    /// instead of stalling. Otherwise nothing happens.
    pub fn kick(&self, claim: Claim) -> Duty<'_, T, S> {
        let word = &self.producers.head;
        let mut head = Head(word.load(Ordering::Acquire));
        loop {
            let state = match head.state() {
                State::Stalled(_) if claim == Claim::Never => State::Abdicated,
                State::Stalled(_) => State::Busy,
                State::Busy => State::Kicked,
                State::Idle | State::Kicked | State::Abdicated => return Duty::None,
            };
            let next = head.with_state(state);
            match word.compare_exchange_weak(head.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    return match state {
                        State::Busy => Duty::Drain(Consumer::new(self)),
                        State::Abdicated => Duty::Wake,
                        _ => Duty::None,
                    };
                }
                Err(now) => head = Head(now),
            }
        }
    }
}

impl<T, S> Drop for Ring<T, S> {
    fn drop(&mut self) {
        let head = Head(self.producers.head.load(Ordering::Acquire)).position();
        let tail = self.tail.load(Ordering::Acquire);
        // Nobody is enqueueing, so all that is reserved was published.
        let count = distance(tail, head) as usize;
        self.places.in_runs(tail, count, 0, |slots| {
            for slot in slots {
                slot.with_mut(|slot| {
                    // SAFETY: items from tail to head were written and not taken.
                    unsafe { (*slot).assume_init_drop() };
                });
            }
        });
    }
}
