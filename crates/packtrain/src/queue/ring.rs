//! The bounded ring in front of a shared TX queue: many producers, one consumer at a time.
//!
//! A [`Ring`] holds items (packets) and the consumer's state (the TX queue with its device). The
//! *consumer role*, a [`ConsumerGuard`], gives `&mut` to that state. A producer claims it for
//! direct dispatch, the TX worker for everything else. The dispatch mode decides: each producer
//! passes a function from [`RingState`] to [`Decision`].
//!
//! - **Reserve.** One compare-and-swap of the *head* reserves slots for a batch. The head also
//!   holds the state and the flags, so the same step tells the producer whether a consumer will
//!   see its items, and gives it the role if it claims it.
//! - **Publish.** The producer moves the items to their slots and writes one *stamp*: the position
//!   of the first item, and the number of items. Producers never wait for each other.
//! - **Take.** The consumer follows the stamps and takes published items in place. It gives slots
//!   back once a turn, by a store of the *tail*. Producers cache the limit up to which slots are
//!   free and load the tail only if that limit is reached.
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
//! - WAITERS: a producer waits for space. It adds itself to the caller's list of waiters, calls
//!   [`Ring::wait_for_space`], and sleeps if that returns false. A consumer that took items stores
//!   the tail and then reads and writes the head in one step, in [`ConsumerGuard::release`] or
//!   [`ConsumerGuard::keep`]. Of two read-modify-writes of one word the later one sees the earlier
//!   one, so the producer sees the space or the consumer sees WAITERS. The caller clears the flag
//!   under the lock of its list, and wakes all waiters.
//! - ATTENTION: the TX worker needs the role ([`Ring::attend`]) and found the ring busy. A release
//!   then leaves the ring *abdicated* even if it is empty, and no producer claims the role. Only a
//!   claim of the TX worker clears the flag.
//! - SHUT, CLOSED: the ring accepts nothing more from applications, or from any producer
//!   ([`Ring::close`]).
//!
//! The states and the batch of 64 are those of FreeBSD's mp_ring (`sys/net/mp_ring.c`). Unlike
//! there, all slots are used and the budget is a bound.

mod consumer;
mod core;
mod places;
#[cfg(all(test, not(packtrain_loom)))]
mod tests;
mod word;

pub use self::core::{Batch, Ring};
pub use consumer::{ConsumerGuard, Ended, Items, Kept, Released, Turn};
pub use word::ProducerKind;

use crate::policy::dispatch::{Decision, RingState};
use crate::sync::{Ordering, in_program_order};
use word::{Head, WAITERS, closing, distance};

/// The result of [`Ring::put`].
#[derive(Debug)]
#[must_use = "the caller may have the consumer role, or has to notify the TX worker"]
pub enum Put<'a, T, S> {
    /// The ring is closed to this source. The batch is unchanged.
    Closed,
    /// The ring has no free slot for this source. The batch is unchanged.
    Full,
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
    /// Another thread has the role. If ATTENTION was requested, it is set: the release of the role
    /// notifies the TX worker.
    Busy,
    /// The TX worker does not need the role in this state.
    NotNeeded(RingState),
}

/// Slots that a producer has reserved and not yet published: the state between the two halves of
/// [`Ring::put`]. The consumer gets no further than these slots until they are published.
#[derive(Debug)]
#[must_use = "the consumer does not get beyond slots that are not published"]
pub(crate) struct Reservation<'a, T, S> {
    ring: &'a Ring<T, S>,
    at: u64,
    count: u64,
    notify: bool,
    role: Option<ConsumerGuard<'a, T, S>>,
}

/// A [`Reservation`] without a borrow of the ring. If it is dropped, the slots are never published.
#[cfg(feature = "internals")]
#[derive(Debug)]
#[must_use = "only `Ring::resume_slots` makes a reservation of it"]
pub(crate) struct KeptSlots {
    ring: u64,
    at: u64,
    count: u64,
    notify: bool,
    role: Option<Kept>,
}

impl<T, S> Ring<T, S> {
    /// Enqueues the oldest items of `batch`, or gives the caller the consumer role, or both.
    ///
    /// `decide` says what a producer does in a state. It is evaluated for the state that each
    /// compare-and-swap replaces. Where ATTENTION is set, the producer enqueues, whatever `decide`
    /// says; no producer claims a ring that is busy or in a gap.
    ///
    /// | decision | idle | busy | abdicated, stalled | gap |
    /// | --- | --- | --- | --- | --- |
    /// | drain | the role, the batch unchanged | enqueued | enqueued, and the role | enqueued |
    /// | notify | enqueued, abdicated, notify | enqueued, notify | as busy | as busy |
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
        from: ProducerKind,
        decide: impl Fn(RingState) -> Decision,
        count: impl FnOnce(&B, usize),
    ) -> Put<'_, T, S> {
        match self.reserve(batch.len(), from, decide) {
            Ok(slots) => slots.publish(batch, count),
            Err(put) => put,
        }
    }

    /// The first half of [`put`](Self::put), for a batch of `want` items;
    /// [`Reservation::publish`] is the second. Tests preempt a producer between them.
    ///
    /// # Errors
    ///
    /// If nothing is reserved, the result of `put`: closed, full, an empty batch, or the role of a
    /// ring that was idle.
    #[inline(always)]
    pub(crate) fn reserve(
        &self,
        want: usize,
        from: ProducerKind,
        decide: impl Fn(RingState) -> Decision,
    ) -> Result<Reservation<'_, T, S>, Put<'_, T, S>> {
        if want == 0 {
            return Err(Put::Enqueued { notify: false });
        }
        let want = want as u64;
        let reserved = |at, count, notify, role| {
            Ok(Reservation {
                ring: self,
                at,
                count,
                notify,
                role,
            })
        };
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
                    return Err(Put::Full);
                }
                match self.swap(head, head.forward(count)) {
                    Ok(()) => {
                        let notify = decide(RingState::Busy) == Decision::Notify;
                        return reserved(at, count, notify, None);
                    }
                    Err(now) => head = now,
                }
                continue;
            }
            // Without these barriers the compiler merges the swaps into one.
            in_program_order();
            if head.is_closed(from) {
                return Err(Put::Closed);
            }
            let state = head.state();
            let decision = if head.has_attention() {
                Decision::Enqueue
            } else {
                decide(state)
            };
            // First: the swap of direct dispatch has nothing else to compute.
            if state == RingState::Idle && decision == Decision::Drain {
                match self.swap(head, head.with_state(RingState::Busy)) {
                    Ok(()) => return Err(Put::Drain(ConsumerGuard::new(self, state))),
                    Err(now) => head = now,
                }
                continue;
            }
            in_program_order();
            let Some(count) = self.room(at, want, from) else {
                head = self.head();
                continue;
            };
            if count == 0 {
                return Err(Put::Full);
            }
            let claims =
                decision == Decision::Drain && !matches!(state, RingState::Busy | RingState::Gap);
            let (next, notify) = if claims {
                (RingState::Busy, false)
            } else if state == RingState::Idle {
                (RingState::Abdicated, true)
            } else {
                (state, decision == Decision::Notify)
            };
            match self.swap(head, head.forward(count).with_state(next)) {
                Ok(()) => {
                    let role = claims.then(|| ConsumerGuard::new(self, state));
                    return reserved(at, count, notify, role);
                }
                Err(now) => head = now,
            }
        }
    }

    /// Claims the consumer role for a producer, if no thread has it, `may` allows the state, and
    /// ATTENTION is not set.
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

    /// Claims the consumer role for the TX worker, if `needs` is true of the state, and clears
    /// ATTENTION. If another thread has the role, sets ATTENTION if `request` is true. A worker
    /// that has kept the role ([`Kept`]) must not call it.
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

    /// The consumer role of a thread that has kept it.
    ///
    /// # Panics
    ///
    /// If `kept` is of another ring.
    #[expect(clippy::needless_pass_by_value, reason = "the role is in one place")]
    pub fn resume(&self, kept: Kept) -> ConsumerGuard<'_, T, S> {
        assert!(kept.ring == self.id, "the role of another ring");
        ConsumerGuard::new(self, kept.from)
    }

    /// The slots of a producer that has kept them.
    ///
    /// # Panics
    ///
    /// If `kept` is of another ring.
    #[cfg(feature = "internals")]
    pub(crate) fn resume_slots(&self, kept: KeptSlots) -> Reservation<'_, T, S> {
        assert!(kept.ring == self.id, "the slots of another ring");
        Reservation {
            ring: self,
            at: kept.at,
            count: kept.count,
            notify: kept.notify,
            role: kept.role.map(|role| self.resume(role)),
        }
    }

    /// Sets WAITERS and then checks [`has_space`](Self::has_space), for a producer that has added
    /// itself to the list of waiters. If it returns false, the producer may sleep: a consumer that
    /// makes space finds WAITERS set.
    ///
    /// If [`state`](Self::state) is then abdicated, stalled or gap, the producer notifies the TX
    /// worker before it sleeps: the producer that released the ring may not have done so yet.
    #[must_use]
    pub fn wait_for_space(&self, from: ProducerKind) -> bool {
        let head = self.producers.head.fetch_or(WAITERS, Ordering::AcqRel);
        self.may_send(Head(head), from)
    }

    /// Clears WAITERS. The caller holds the lock of its list of waiters, and wakes all of them.
    pub fn clear_waiters(&self) {
        self.producers.head.fetch_and(!WAITERS, Ordering::AcqRel);
    }

    /// Whether a producer may call [`put`](Self::put): a slot is free for it, or the ring is closed
    /// to it.
    #[must_use]
    pub fn has_space(&self, from: ProducerKind) -> bool {
        self.may_send(self.head(), from)
    }

    fn may_send(&self, mut head: Head, from: ProducerKind) -> bool {
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

    /// Whether the TX worker has requested the role of a busy ring.
    #[cfg(all(test, packtrain_loom))]
    pub(crate) fn has_attention(&self) -> bool {
        self.head().has_attention()
    }

    /// Closes the ring to applications, or to lanes and applications. Slots that are reserved by
    /// now are still published. The caller wakes all waiters and notifies the TX worker.
    pub fn close(&self, to: ProducerKind) {
        self.producers.head.fetch_or(closing(to), Ordering::AcqRel);
    }

    /// Whether the ring is closed to a source.
    #[must_use]
    pub fn is_closed(&self, to: ProducerKind) -> bool {
        self.head().is_closed(to)
    }
}

impl<'a, T, S> Reservation<'a, T, S> {
    /// The second half of [`Ring::put`].
    ///
    /// # Panics
    ///
    /// If the batch has fewer items than were reserved. Then nothing is published.
    #[inline(always)]
    pub(crate) fn publish<B: Batch<T>>(
        self,
        batch: &mut B,
        count: impl FnOnce(&B, usize),
    ) -> Put<'a, T, S> {
        count(batch, self.count as usize);
        self.ring.publish(self.at, self.count, batch);
        match self.role {
            None => Put::Enqueued {
                notify: self.notify,
            },
            Some(consumer) => Put::Drain(consumer),
        }
    }

    /// Keeps the slots without a borrow of the ring, until [`Ring::resume_slots`].
    #[cfg(feature = "internals")]
    pub(crate) fn keep(self) -> KeptSlots {
        KeptSlots {
            ring: self.ring.id,
            at: self.at,
            count: self.count,
            notify: self.notify,
            // Nothing was taken, so no waiter has to be woken.
            role: self.role.map(|role| role.keep().0),
        }
    }
}

impl<T, S> ConsumerGuard<'_, T, S> {
    /// Enqueues the rest of a batch that bypassed the slots and that the device refused, and
    /// returns how many items were accepted: none if the ring is full or closed to this source.
    /// The role stays with the caller, which releases the ring as stalled.
    ///
    /// `count` is as in [`Ring::put`].
    #[inline(never)]
    pub fn put_rest<B: Batch<T>>(
        &mut self,
        batch: &mut B,
        from: ProducerKind,
        count: impl FnOnce(&B, usize),
    ) -> usize {
        let before = batch.len();
        let put = self.ring.put(batch, from, |_| Decision::Enqueue, count);
        debug_assert!(!matches!(put, Put::Drain(_)), "the ring is busy");
        before - batch.len()
    }
}
