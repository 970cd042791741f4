//! The consumer of a ring: the role that gives access to published slots and to the state.

#![allow(
    unsafe_code,
    reason = "the role gives access to the state and to published slots"
)]

use super::core::{Owner, Ring};
use super::places::{Places, Slot};
use super::word::{Head, Stamp, after, distance};
use crate::limits::BURST_PACKETS_MAX;
use crate::policy::dispatch::RingState;
use crate::sync::{Ordering, spin};
use std::mem::ManuallyDrop;

/// How often a consumer rechecks an unpublished slot before it reports a gap. A running producer
/// publishes within some ten nanoseconds; a preempted one needs longer than a consumer should wait.
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
    /// The device accepts no more. Items that were not taken stay in the ring; the state may hold
    /// others.
    Stalled,
}

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says how the role is released"]
pub enum Ended {
    /// All slots that were reserved a moment ago are taken. The ring becomes idle.
    Empty,
    /// The next slot is reserved and was not published in time. The ring becomes a gap.
    Gap,
    /// The device accepts no more. The ring becomes stalled.
    Stalled,
    /// The budget is used up. The ring is abdicated: the TX worker continues. If it is empty, it
    /// becomes idle.
    Budget,
}

/// The result of a release. If `attention` is set, the caller notifies the TX worker. A producer
/// also notifies it if `state` is abdicated or gap, and if it is stalled and was not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the TX worker and the waiters have to be notified"]
pub struct Released {
    /// The new state. If ATTENTION is set, it is abdicated, not as requested.
    pub state: RingState,
    /// ATTENTION was and is set: the TX worker needs the role.
    pub attention: bool,
    /// Items were taken, and WAITERS is set: the caller takes the lock of its list of waiters,
    /// calls [`Ring::clear_waiters`], and wakes all of them.
    pub wake_waiters: bool,
}

/// The consumer role that a TX worker keeps from one step to the next, without a borrow of the
/// ring. If it is dropped, the ring stays busy and is never drained again.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "only `Ring::resume` makes a consumer of it"]
pub struct Kept {
    pub(super) ring: u64,
    pub(super) from: RingState,
}

/// The consumer role: the right to take items from a ring and to use its state. There is one at a
/// time.
///
/// If a panic drops the guard, the ring is abdicated, also if it is empty. The caller then notifies
/// the TX worker and wakes all waiters.
#[derive(Debug)]
#[must_use = "a guard that is dropped abdicates and notifies no thread"]
pub struct ConsumerGuard<'a, T, S> {
    pub(super) ring: &'a Ring<T, S>,
    from: RingState,
    took: bool,
}

/// Published items, the oldest first. Items that are not taken stay in the ring.
#[derive(Debug)]
pub struct Items<'a, T, S> {
    ring: &'a Ring<T, S>,
    /// The position of the next item. It becomes the tail on drop, also if a panic drops this.
    next: u64,
    end: u64,
    /// The number of items of the stamp at `next`; 0 if that takes a load.
    first: u64,
}

impl<'a, T, S> ConsumerGuard<'a, T, S> {
    /// The caller has claimed the role.
    #[inline(always)]
    pub(super) const fn new(ring: &'a Ring<T, S>, from: RingState) -> Self {
        Self {
            ring,
            from,
            took: false,
        }
    }

    /// The state in which the role was claimed.
    #[must_use]
    pub const fn from(&self) -> RingState {
        self.from
    }

    /// The consumer's state.
    #[inline(always)]
    pub fn state(&mut self) -> &mut S {
        let owner = &self.ring.owner.0;
        // SAFETY: this thread has the role, and the borrow of the guard ends with it.
        owner.with_mut(|owner| unsafe { &mut (*owner).state })
    }

    /// Gives at most `most` published items, and at most [`BURST_PACKETS_MAX`], to `turn`. Returns
    /// the number of items taken, whose slots are free now. It does not touch the head.
    #[inline(always)]
    fn turn(
        &mut self,
        most: usize,
        turn: impl FnOnce(&mut S, &mut Items<'_, T, S>) -> Turn,
    ) -> (usize, Turn) {
        let ring = self.ring;
        let most = most.min(BURST_PACKETS_MAX) as u64;
        let owner = ring.owner.0.get_mut();
        // SAFETY: this thread has the role, and the borrow of the guard ends with it.
        let owner = unsafe { owner.deref() };
        let tail = ring.tail();
        let (known, first) = ring.published(owner, tail, most);
        let mut drained = Items {
            ring,
            next: tail,
            end: after(tail, known.min(most)),
            first,
        };
        let result = turn(&mut owner.state, &mut drained);
        let taken = distance(tail, drained.next);
        self.took |= taken > 0;
        (taken as usize, result)
    }

    /// Gives items to `turn`, at most [`BURST_PACKETS_MAX`] at once, until the ring is empty, the
    /// device stalls, the next slot is unpublished, or `budget` items are taken. The first turn may
    /// have no items: the state may have something to do.
    ///
    /// A turn that takes nothing counts as one item of the budget, and a budget of 0 is one of 1.
    /// The role stays with the caller.
    #[inline]
    pub fn drain(
        &mut self,
        budget: usize,
        mut turn: impl FnMut(&mut S, &mut Items<'_, T, S>) -> Turn,
    ) -> Ended {
        let mut left = budget.max(1);
        loop {
            let (taken, result) = self.turn(left, &mut turn);
            left -= taken.max(1);
            if result == Turn::Stalled {
                return Ended::Stalled;
            }
            if left == 0 {
                return Ended::Budget;
            }
            if !self.has_published() {
                if self.ring.head().position() == self.ring.tail() {
                    return Ended::Empty;
                }
                if !self.is_published_soon() {
                    return Ended::Gap;
                }
            }
        }
    }

    /// Whether the next slot is published while the consumer rechecks it.
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

    /// Releases the role after a drain. If ATTENTION is set, the ring is abdicated, however the
    /// drain has ended. After [`Ended::Empty`] the state must hold nothing that waits for the
    /// device.
    ///
    /// # Errors
    ///
    /// After [`Ended::Empty`], if a slot was reserved meanwhile: the caller still has the role, and
    /// drains again.
    #[inline]
    pub fn release(self, ended: Ended) -> Result<Released, Self> {
        let tail = self.ring.tail();
        // Usually the ring is empty and no flag is set, and this swap has nothing to compute.
        if ended == Ended::Empty {
            let busy = Head::new(tail, RingState::Busy);
            let idle = Head::new(tail, RingState::Idle);
            if self.ring.swap(busy, idle).is_ok() {
                let _role = ManuallyDrop::new(self);
                return Ok(Released {
                    state: RingState::Idle,
                    attention: false,
                    wake_waiters: false,
                });
            }
        }
        let released = self.leave(self.ring.head(), |head| {
            let empty = head.position() == tail;
            match ended {
                Ended::Empty => empty.then_some(RingState::Idle),
                Ended::Budget if empty => Some(RingState::Idle),
                Ended::Budget => Some(RingState::Abdicated),
                Ended::Stalled => Some(RingState::Stalled),
                Ended::Gap => Some(RingState::Gap),
            }
        });
        let role = ManuallyDrop::new(self);
        released.ok_or_else(|| ManuallyDrop::into_inner(role))
    }

    /// Keeps the role from one step of the TX worker to the next. True if items were taken with
    /// this guard and a producer waits for space: see [`Released::wake_waiters`]. If nothing was
    /// taken, it does not touch the head.
    pub fn keep(self) -> (Kept, bool) {
        let role = ManuallyDrop::new(self);
        let word = &role.ring.producers.head;
        // A read-modify-write after the store of the tail: see WAITERS.
        let wake = role.took && Head(word.fetch_or(0, Ordering::AcqRel)).has_waiters();
        let kept = Kept {
            ring: role.ring.id,
            from: role.from,
        };
        (kept, wake)
    }

    /// Sets the state that `to` returns for the head. If that is None, changes nothing.
    #[inline(always)]
    fn leave(&self, mut head: Head, to: impl Fn(Head) -> Option<RingState>) -> Option<Released> {
        loop {
            let requested = to(head)?;
            let attention = head.has_attention();
            let state = if attention {
                RingState::Abdicated
            } else {
                requested
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
        // After a panic the state may hold items, so the ring is not idle.
        let released = self.leave(self.ring.head(), |_| Some(RingState::Abdicated));
        debug_assert!(released.is_some());
    }
}

impl<T, S> Ring<T, S> {
    /// The next position. Only the consumer changes it.
    #[inline(always)]
    fn tail(&self) -> u64 {
        // The role came with acquire from the consumer that stored it.
        self.tail.load(Ordering::Relaxed)
    }

    /// Returns the number of items known to be published from `tail` on, and the number of the
    /// stamp there (0 without one). It loads further stamps if fewer than `enough` are known.
    #[inline(always)]
    fn published(&self, owner: &mut Owner<S>, tail: u64, enough: u64) -> (u64, u64) {
        let first = self.items_at(tail);
        // A fast path: one batch is enough, so later stamps need not be known. If the turn takes
        // only a part of the batch, `seen` says where its items end.
        if first > 1 && first >= enough {
            owner.seen = after(tail, first);
            return (first, first);
        }
        (self.scan(owner, tail, first, enough), first)
    }

    /// As [`published`](Self::published), where the stamp at `tail`, for `first` items, does not
    /// answer it.
    #[inline(always)]
    fn scan(&self, owner: &mut Owner<S>, tail: u64, first: u64, enough: u64) -> u64 {
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
        // To read a stamp takes its cache line from the producer. So at the start of a line the
        // consumer also reads the other stamps there, as long as they may be of single items.
        // Within a line it reads no more than it needs: a consumer that is as fast as its producer
        // finds nothing more.
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

    /// The number of items of the stamp at a position; 0 without one.
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

impl<T, S> Drop for Items<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: a producer that sees the slots empty also sees that they were read.
        self.ring.tail.store(self.next, Ordering::Release);
    }
}

impl<T, S> Items<'_, T, S> {
    /// Items that are not taken yet.
    #[must_use]
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "its callers need no more")]
    pub const fn len(&self) -> usize {
        distance(self.next, self.end) as usize
    }

    /// Takes the oldest `most` items, or all if there are fewer, and gives them to `each` in order.
    #[inline(always)]
    pub fn take(&mut self, most: usize, mut each: impl FnMut(T)) {
        let count = self.len().min(most);
        let (places, at) = (&self.ring.places, self.next);
        let first = std::mem::take(&mut self.first);
        // A fast path: runs would make a third of all instructions of an item alone.
        if first == 1 && count == 1 {
            self.next = after(at, 1);
            // SAFETY: as below.
            each((places.place(at).single).with(|slot| unsafe { (*slot).assume_init_read() }));
            return;
        }
        let next = &mut self.next;
        let take = |slots: &[Slot<T>]| {
            let begin = *next;
            for (taken, slot) in (1..).zip(slots) {
                // SAFETY: the slots up to `end` are published, and only this thread takes them.
                // `next` moves on before anything can panic, so no item is taken twice.
                let item = slot.with(|slot| unsafe { (*slot).assume_init_read() });
                *next = after(begin, taken);
                each(item);
            }
        };
        places.in_runs(at, count, first, take);
    }
}
