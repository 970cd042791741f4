//! The consumer of a ring: it has the role that gives access to published slots and to the state.

#![allow(
    unsafe_code,
    reason = "the role is what gives access to the state and to published slots"
)]

use super::batch::Batch;
use super::core::{Owner, Ring};
use super::places::{Places, Slot};
use super::word::{Head, Source, Stamp, after, distance};
use crate::limits::BURST_PACKETS_MAX;
use crate::policy::dispatch::RingState;
use crate::sync::{Ordering, spin};
use std::mem::ManuallyDrop;

/// How often a consumer rechecks an unpublished slot before it reports a gap. A producer that runs
/// publishes within some ten nanoseconds; one that was preempted needs longer than a consumer
/// should wait.
const GAP_POLLS: u32 = if cfg!(any(packtrain_loom, miri)) {
    1
} else {
    64
};

/// The result of a turn of the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stalled device has to be watched"]
pub enum Turn {
    /// The device accepts more, and the state holds nothing that waits for it.
    More,
    /// The device accepts no more. Items that were not taken stay in the ring. A turn that took all
    /// but keeps some in the state reports this, too.
    Stalled,
}

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the role has to be released accordingly"]
pub enum Drain {
    /// All slots that were reserved a moment ago are taken:
    /// [`release_idle`](ConsumerGuard::release_idle).
    Empty,
    /// The next slot is reserved and was not published in time: [`Release::Gap`].
    Gap,
    /// The device accepts no more: [`Release::Stalled`].
    Stalled,
    /// The budget is used up; items may be pending: [`Release::Abdicated`].
    Budget,
}

/// The state in which a consumer leaves the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The TX worker continues. The ring becomes idle instead if it is empty.
    Abdicated,
    /// The device accepts no more.
    Stalled,
    /// The next slot is reserved and not yet published.
    Gap,
}

/// What a release did. If `attention` is set, the caller notifies the TX worker. A producer also
/// notifies it if `state` is abdicated or gap, and if it is stalled and was not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the TX worker and the waiters have to be notified"]
pub struct Released {
    /// The new state. It is abdicated if ATTENTION is set, whatever was asked for.
    pub state: RingState,
    /// ATTENTION was and is set: the TX worker needs the role.
    pub attention: bool,
    /// Items were taken, and a producer waits for space: the caller takes the lock of its list of
    /// waiters, calls [`Ring::clear_waiters`], and wakes all of them.
    pub wake_waiters: bool,
}

/// The consumer role of a TX worker that keeps it from one step to the next, without a borrow of
/// the ring. If it is dropped, the ring stays busy and is never drained again.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "only `Ring::resume` makes a consumer of it"]
pub struct Kept(u64);

impl Kept {
    pub(super) const fn is_of(&self, id: u64) -> bool {
        self.0 == id
    }
}

/// The consumer role: the right to take items from a ring and to use its state. There is one at a
/// time.
///
/// A guard that a panic drops leaves the ring abdicated, also if it is empty. The caller then
/// notifies the TX worker, and wakes all waiters.
#[derive(Debug)]
#[must_use = "a guard that is dropped abdicates and notifies no thread"]
pub struct ConsumerGuard<'a, T, S> {
    ring: &'a Ring<T, S>,
    from: RingState,
    took: bool,
}

/// Published items, the oldest first. Items that are not taken stay in the ring.
#[derive(Debug)]
pub struct Drained<'a, T, S> {
    ring: &'a Ring<T, S>,
    /// The next one. The ring's tail follows when this is dropped, also by a panic.
    next: u64,
    end: u64,
    /// What is left of the first stamp's items, if that is known without a load, else 0. 1 is an
    /// item alone: of a batch's last one it is not known.
    first: u64,
}

impl<'a, T, S> ConsumerGuard<'a, T, S> {
    /// For a caller that has got the role.
    #[inline(always)]
    pub(super) const fn new(ring: &'a Ring<T, S>, from: RingState) -> Self {
        Self {
            ring,
            from,
            took: false,
        }
    }

    /// The state in which the role was claimed. [`RingState::Busy`] if it was resumed.
    #[must_use]
    pub const fn from(&self) -> RingState {
        self.from
    }

    /// Whether items were taken with this guard.
    #[must_use]
    pub const fn took(&self) -> bool {
        self.took
    }

    /// The consumer's state.
    #[inline(always)]
    pub fn state(&mut self) -> &mut S {
        let owner = &self.ring.owner.0;
        // SAFETY: this thread has the role, and the borrow of the guard ends with it.
        owner.with_mut(|owner| unsafe { &mut (*owner).state })
    }

    /// One turn: gives at most `most` published items to `turn`, at most [`BURST_PACKETS_MAX`], or
    /// none if there are none. Their slots are free after it. It does not touch the head, so a
    /// consumer that polls an empty ring takes no cache line from producers.
    #[inline(always)]
    pub fn poll(
        &mut self,
        most: usize,
        turn: impl FnOnce(&mut S, &mut Drained<'_, T, S>) -> Turn,
    ) -> Turn {
        self.turn(most, turn).1
    }

    /// Returns also how many items were taken.
    #[inline(always)]
    fn turn(
        &mut self,
        most: usize,
        turn: impl FnOnce(&mut S, &mut Drained<'_, T, S>) -> Turn,
    ) -> (usize, Turn) {
        let ring = self.ring;
        let most = most.min(BURST_PACKETS_MAX) as u64;
        let owner = ring.owner.0.get_mut();
        // SAFETY: this thread has the role, and the borrow of the guard ends with it.
        let owner = unsafe { owner.deref() };
        let tail = ring.tail();
        let (known, first) = ring.published(owner, tail, most);
        let mut drained = Drained {
            ring,
            next: tail,
            end: after(tail, known.min(most)),
            first,
        };
        let said = turn(&mut owner.state, &mut drained);
        let taken = distance(tail, drained.next);
        self.took |= taken > 0;
        (taken as usize, said)
    }

    /// Gives items to `turn`, at most [`BURST_PACKETS_MAX`] at once, until the ring is empty, the
    /// device stalls, the next slot is unpublished, or `budget` items are taken. The first turn
    /// also comes without items: the state may have something to do.
    ///
    /// The budget is a bound: a turn that takes nothing counts as one item, and so does a budget
    /// of 0. The role stays with the caller.
    #[inline]
    pub fn drain(
        &mut self,
        budget: usize,
        mut turn: impl FnMut(&mut S, &mut Drained<'_, T, S>) -> Turn,
    ) -> Drain {
        let mut left = budget.max(1);
        loop {
            let (taken, said) = self.turn(left, &mut turn);
            left -= taken.max(1);
            if said == Turn::Stalled {
                return Drain::Stalled;
            }
            if left == 0 {
                return Drain::Budget;
            }
            if !self.has_published() {
                if self.ring.head().position() == self.ring.tail() {
                    return Drain::Empty;
                }
                if !self.is_published_soon() {
                    return Drain::Gap;
                }
            }
        }
    }

    /// Whether a reserved slot is published while the consumer rechecks it a few times.
    #[cold]
    fn is_published_soon(&mut self) -> bool {
        (0..GAP_POLLS).any(|_| {
            spin();
            self.has_published()
        })
    }

    fn has_published(&mut self) -> bool {
        let ring = self.ring;
        let owner = ring.owner.0.get_mut();
        // SAFETY: this thread has the role, and the borrow of the guard ends with it.
        ring.published(unsafe { owner.deref() }, ring.tail(), 1).0 > 0
    }

    /// Enqueues the rest of a batch that bypassed the slots and that the device refused, and
    /// returns how many items were accepted: none if the ring is full or closed to this source.
    /// The role stays with the caller, which releases the ring as stalled.
    ///
    /// `count` is as in [`Ring::put`].
    pub fn put_rest<B: Batch<T>>(
        &mut self,
        batch: &mut B,
        from: Source,
        count: impl FnOnce(&B, usize),
    ) -> usize {
        let ring = self.ring;
        let want = batch.len() as u64;
        let mut head = ring.head();
        loop {
            let at = head.position();
            // A head that is behind the tail is not possible: this thread is the consumer.
            let room = ring.room(at, want, from).unwrap_or(0);
            if room == 0 || head.is_closed(from) {
                return 0;
            }
            match ring.swap(head, head.forward(room)) {
                Ok(()) => {
                    count(batch, room as usize);
                    ring.publish(at, room, batch);
                    return room as usize;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Releases the role, if no slot was reserved meanwhile, and the ring is idle, or abdicated if
    /// ATTENTION is set. The state must hold nothing that waits for the device.
    ///
    /// # Errors
    ///
    /// If a slot was reserved. The caller still has the role, and drains again.
    #[inline]
    pub fn release_idle(self) -> Result<Released, Self> {
        let tail = self.ring.tail();
        // Mostly there is no flag, and nothing to compute before the swap.
        let busy = Head::new(tail, RingState::Busy);
        let idle = Head::new(tail, RingState::Idle);
        let released = match self.ring.swap(busy, idle) {
            Ok(()) => Some(Released {
                state: RingState::Idle,
                attention: false,
                wake_waiters: false,
            }),
            Err(now) => self.leave(now, |head| {
                (head.position() == tail).then_some(RingState::Idle)
            }),
        };
        match released {
            Some(released) => {
                let _role = ManuallyDrop::new(self);
                Ok(released)
            }
            None => Err(self),
        }
    }

    /// Releases the role. If ATTENTION is set, the ring is abdicated, whatever `to` is.
    pub fn release(self, to: Release) -> Released {
        let role = ManuallyDrop::new(self);
        let tail = role.ring.tail();
        let released = role.leave(role.ring.head(), |head| {
            Some(match to {
                Release::Abdicated if head.position() == tail => RingState::Idle,
                Release::Abdicated => RingState::Abdicated,
                Release::Stalled => RingState::Stalled,
                Release::Gap => RingState::Gap,
            })
        });
        released.expect("it has a state for each head")
    }

    /// Keeps the role from one step of the TX worker to the next. True if items were taken with
    /// this guard and a producer waits for space: see [`Released::wake_waiters`]. If nothing was
    /// taken, it does not touch the head.
    pub fn keep(self) -> (Kept, bool) {
        let role = ManuallyDrop::new(self);
        let word = &role.ring.producers.head;
        // A read-modify-write, which follows the store of the tail: see the module.
        let wake = role.took && Head(word.fetch_or(0, Ordering::AcqRel)).has_waiters();
        (Kept(role.ring.id), wake)
    }

    /// Replaces the state by what `to` makes of the head; None, and no change, if that is None.
    #[inline(always)]
    fn leave(&self, mut head: Head, to: impl Fn(Head) -> Option<RingState>) -> Option<Released> {
        loop {
            let asked = to(head)?;
            let attention = head.has_attention();
            let state = if attention {
                RingState::Abdicated
            } else {
                asked
            };
            match self.ring.swap(head, head.with_state(state)) {
                Ok(()) => {
                    return Some(Released {
                        state,
                        attention,
                        wake_waiters: self.took && head.has_waiters(),
                    });
                }
                Err(now) => head = now,
            }
        }
    }
}

impl<T, S> Drop for ConsumerGuard<'_, T, S> {
    fn drop(&mut self) {
        // After a panic: the state may hold items, so the ring is not idle.
        let left = self.leave(self.ring.head(), |_| Some(RingState::Abdicated));
        debug_assert!(left.is_some());
    }
}

impl<T, S> Ring<T, S> {
    /// The next position. Only the consumer changes it.
    #[inline(always)]
    fn tail(&self) -> u64 {
        // The role came with acquire from the consumer that stored it.
        self.tail.load(Ordering::Relaxed)
    }

    /// Items known to be published from `tail` on, looking on if these are not `enough`; and how
    /// many the first stamp is for, or 0 if there is none at `tail`. For the consumer.
    #[inline(always)]
    fn published(&self, owner: &mut Owner<S>, tail: u64, enough: u64) -> (u64, u64) {
        let first = self.items_at(tail);
        // The way of a batch that is as long as asked for. What is known besides, if anything, is
        // found again. Of this batch some may be left, and then its stamp is behind the tail.
        if first > 1 && first >= enough {
            owner.seen = after(tail, first);
            return (first, first);
        }
        (self.look_on(owner, tail, first, enough), first)
    }

    /// The same where the first stamp, which is for `first` items, does not say it all.
    #[inline(always)]
    fn look_on(&self, owner: &mut Owner<S>, tail: u64, first: u64, enough: u64) -> u64 {
        let mut seen = owner.seen;
        let mut known = distance(tail, seen);
        if known >= enough {
            return known;
        }
        if known == 0 {
            if first == 0 {
                return 0;
            }
            (seen, known) = (after(tail, first), first);
        }
        // Reading a stamp takes its line from the producer. So at the start of a line the consumer
        // also reads the other stamps there, as long as they may be of single items. Within a line
        // it reads no more than asked for: if it is as fast as its producer, nothing more is there.
        let whole_line = first == 1 && Places::<T>::is_line_start(tail);
        while known < enough || (whole_line && !Places::<T>::is_line_start(seen)) {
            let items = self.items_at(seen);
            if items == 0 {
                break;
            }
            seen = after(seen, items);
            known += items;
        }
        owner.seen = seen;
        known
    }

    /// How many items the stamp of a position is for; 0 where there is none.
    #[inline(always)]
    fn items_at(&self, at: u64) -> u64 {
        let stamp = Stamp(self.places.place(at).stamp.load(Ordering::Acquire));
        let items = stamp.items_at(at).unwrap_or(0);
        if items == 1 {
            self.places.fetch(at);
        }
        items
    }
}

impl<T, S> Drop for Drained<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: a producer that sees the slots empty also sees that they were read.
        self.ring.tail.store(self.next, Ordering::Release);
    }
}

impl<T, S> Drained<'_, T, S> {
    /// Gives all items to `each`, oldest first. The same as a loop over the iterator, without
    /// finding the slot for each anew.
    #[inline(always)]
    pub fn take_each(&mut self, mut each: impl FnMut(T)) {
        let (places, at, count, first) = (&self.ring.places, self.next, self.len(), self.first);
        // The way of an item alone: what runs need is a third of all the instructions for it.
        if first == 1 && count == 1 {
            self.next().into_iter().for_each(each);
            return;
        }
        self.first = 0;
        let next = &mut self.next;
        let take = |slots: &[Slot<T>]| {
            let begin = *next;
            for (taken, slot) in (1..).zip(slots) {
                // SAFETY: the slots up to `end` are published, and ours to take; `next` goes on
                // before anything else can happen, so that none is taken again.
                let item = slot.with(|slot| unsafe { (*slot).assume_init_read() });
                *next = after(begin, taken);
                each(item);
            }
        };
        places.in_runs(at, count, first, take);
    }
}

impl<T, S> Iterator for Drained<'_, T, S> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        let slot = self.ring.places.slot(self.next, self.first);
        // The last one of a batch would be taken for one alone.
        self.first = if self.first > 2 { self.first - 1 } else { 0 };
        self.next = after(self.next, 1);
        // SAFETY: the slots up to `end` are published, and ours to take; `next` went on, so that
        // none is taken again.
        Some(slot.with(|slot| unsafe { (*slot).assume_init_read() }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = distance(self.next, self.end) as usize;
        (len, Some(len))
    }
}

impl<T, S> ExactSizeIterator for Drained<'_, T, S> {}
