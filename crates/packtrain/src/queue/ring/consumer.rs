//! The one who drains a ring.

#![allow(
    unsafe_code,
    reason = "the role is what gives access to the state and to published slots"
)]

use super::places::{Places, Slot};
use super::word::{Head, Stamp, State, after, distance};
use super::{Owner, Ring};
use crate::limits::BURST_PACKETS_MAX;
use crate::stats::Stall;
use crate::sync::{Ordering, spin};

/// How often the consumer looks at a gap before it leaves. A producer that runs publishes within
/// some ten nanoseconds; one that was preempted takes longer than anybody should wait.
const GAP_LOOKS: u32 = if cfg!(any(packtrain_loom, miri)) {
    1
} else {
    64
};

/// What a turn says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a stall that is not passed on is lost"]
pub enum Turn {
    /// Go on: the state can take more, and has nothing of its own to do.
    More,
    /// The device takes no more now. What was not taken stays in the ring. So does a turn that has
    /// taken everything, but keeps some of it in its state: the ring is stalled, and not idle.
    Stalled(Stall),
}

/// How a consumer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was left has to be seen to, a stall waits for the device"]
pub enum Exit {
    /// Nothing is pending.
    Idle,
    /// The device took no more. Whoever learns that it does again calls
    /// [`kick`](super::Ring::kick).
    Stalled(Stall),
    /// The budget is used up and something is pending. Unless somebody else takes the role the
    /// worker has to be woken, or if this is the worker, it comes again.
    Abdicated,
    /// The next item was reserved and is not published yet. The role is left to its producer,
    /// which is at it: nothing to do.
    Passed,
}

/// The right to drain a ring, and to use its state. There is one at a time.
///
/// A consumer that is dropped leaves as one whose budget is used up, without telling anybody; only
/// a panic should do that.
#[derive(Debug)]
#[must_use = "while there is a consumer, nobody else drains"]
pub struct Consumer<'a, T, S> {
    ring: &'a Ring<T, S>,
    /// False when the role is somebody else's already.
    active: bool,
}

/// Published items, oldest first. What is not taken stays in the ring.
#[derive(Debug)]
pub struct Drained<'a, T, S> {
    ring: &'a Ring<T, S>,
    /// The next one. The ring's tail follows when this is dropped, also by a panic.
    next: u64,
    end: u64,
    /// What is left of the first stamp's items, as far as it is known without a look, else 0. 1 is
    /// an item alone: of a batch's last one it is not known.
    first: u64,
}

impl<'a, T, S> Consumer<'a, T, S> {
    /// For who has got the role.
    #[inline(always)]
    pub(super) const fn new(ring: &'a Ring<T, S>) -> Self {
        Self { ring, active: true }
    }

    /// Works on the consumer's state.
    pub fn with_state<R>(&mut self, work: impl FnOnce(&mut S) -> R) -> R {
        let owner = self.ring.owner.0.get_mut();
        // SAFETY: this thread has the role, and the borrow of the consumer ends with it.
        work(unsafe { &mut owner.deref().state })
    }

    /// One look: gives at most `most` published items to `turn`, at most [`BURST_PACKETS_MAX`],
    /// none if there are none. Space is given back after it. The role stays here.
    #[inline(always)]
    pub fn poll(
        &mut self,
        most: usize,
        turn: impl FnOnce(&mut S, &mut Drained<'_, T, S>) -> Turn,
    ) -> Turn {
        self.turn(most, turn).1
    }

    /// Says also how many items were taken.
    #[inline(always)]
    fn turn(
        &mut self,
        most: usize,
        turn: impl FnOnce(&mut S, &mut Drained<'_, T, S>) -> Turn,
    ) -> (usize, Turn) {
        let ring = self.ring;
        let most = most.min(BURST_PACKETS_MAX) as u64;
        let owner = ring.owner.0.get_mut();
        // SAFETY: this thread has the role, and the borrow of the consumer ends with it.
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
        (taken as usize, said)
    }

    /// Gives items to `turn`, at most [`BURST_PACKETS_MAX`] at once, until there are none, the
    /// device stalls, or `budget` of them were taken; then leaves. The first turn comes also when
    /// there are no items: the state may have something to do.
    ///
    /// The budget bounds: a turn that takes nothing counts as one item, and so does a budget of 0.
    #[inline]
    pub fn drain(
        mut self,
        budget: usize,
        mut turn: impl FnMut(&mut S, &mut Drained<'_, T, S>) -> Turn,
    ) -> Exit {
        let mut left = budget.max(1);
        loop {
            let (taken, said) = self.turn(left, &mut turn);
            left -= taken.max(1);
            match said {
                Turn::Stalled(cause) => {
                    if self.try_stall(cause) {
                        return Exit::Stalled(cause);
                    }
                    if left == 0 {
                        // Kicked: whoever comes next has to try.
                        self.abdicate();
                        return Exit::Abdicated;
                    }
                }
                Turn::More if left == 0 => return self.finish(),
                Turn::More => {
                    if let Some(exit) = self.try_rest() {
                        return exit;
                    }
                }
            }
        }
    }

    /// Leaves, after the last [`poll`](Self::poll) said `said`.
    pub fn leave(mut self, said: Turn) -> Exit {
        match said {
            Turn::Stalled(cause) if self.try_stall(cause) => Exit::Stalled(cause),
            // Kicked: whoever comes next has to try.
            Turn::Stalled(_) => {
                self.abdicate();
                Exit::Abdicated
            }
            Turn::More => self.finish(),
        }
    }

    /// Leaves if nothing is published. None if there is something, and the role stays here.
    fn try_rest(&mut self) -> Option<Exit> {
        if self.has_published() {
            return None;
        }
        if self.try_idle() {
            return Some(Exit::Idle);
        }
        for _ in 0..GAP_LOOKS {
            if self.has_published() {
                return None;
            }
            spin();
        }
        self.try_pass().then_some(Exit::Passed)
    }

    fn has_published(&mut self) -> bool {
        let ring = self.ring;
        let owner = ring.owner.0.get_mut();
        // SAFETY: this thread has the role, and the borrow of the consumer ends with it.
        ring.published(unsafe { owner.deref() }, ring.tail(), 1).0 > 0
    }

    /// Idle, unless somebody has reserved anything.
    fn try_idle(&mut self) -> bool {
        let tail = self.ring.tail();
        let word = &self.ring.producers.head;
        let idle = Head::new(tail, State::Idle).0;
        let mut head = Head::new(tail, State::Busy);
        loop {
            match word.compare_exchange(head.0, idle, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.active = false;
                    return true;
                }
                // A kick, at most one.
                Err(now) if Head(now).position() == tail => head = Head(now),
                Err(_) => return false,
            }
        }
    }

    /// Leaves the role to the producer that has reserved the next position, unless it has
    /// published meanwhile.
    #[cold]
    fn try_pass(&mut self) -> bool {
        let ring = self.ring;
        let tail = self.ring.tail();
        ring.gap.store(tail, Ordering::Release);
        // From here on the producer may be the consumer: all that is used is shared.
        self.active = false;
        // The gap is written, now the stamp is read; the producer does it the other way round.
        ring.barrier.heavy();
        let stamp = ring.places.place(tail).stamp.load(Ordering::Acquire);
        // The producer may or may not have seen the gap: one of us takes the role.
        self.active = Stamp(stamp).items_at(tail).is_some()
            && ring
                .gap
                .compare_exchange(tail, ring.no_gap(), Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
        !self.active
    }

    /// Stalled, unless there was a kick, which is used up by that.
    fn try_stall(&mut self, cause: Stall) -> bool {
        let stalled = State::Stalled(cause);
        let left = self.change(|head| match head.state() {
            State::Kicked => State::Busy,
            _ => stalled,
        });
        self.active = left != stalled;
        !self.active
    }

    /// Leaves to who comes next.
    pub(super) fn abdicate(mut self) {
        self.change(|_| State::Abdicated);
        self.active = false;
    }

    /// Idle if nothing is reserved, else left to who comes next.
    fn finish(mut self) -> Exit {
        let tail = self.ring.tail();
        let left = self.change(|head| {
            if head.position() == tail {
                State::Idle
            } else {
                State::Abdicated
            }
        });
        self.active = false;
        match left {
            State::Idle => Exit::Idle,
            _ => Exit::Abdicated,
        }
    }

    /// Changes the state; says to what.
    fn change(&self, to: impl Fn(Head) -> State) -> State {
        let word = &self.ring.producers.head;
        let mut head = Head(word.load(Ordering::Acquire));
        loop {
            let state = to(head);
            let next = head.with_state(state);
            match word.compare_exchange_weak(head.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return state,
                Err(now) => head = Head(now),
            }
        }
    }
}

impl<T, S> Drop for Consumer<'_, T, S> {
    fn drop(&mut self) {
        if self.active {
            // After a panic: whoever takes the role next finds all that was not taken.
            self.change(|_| State::Abdicated);
        }
    }
}

impl<T, S> Ring<T, S> {
    /// The next position. Nobody but the consumer changes it.
    #[inline(always)]
    fn tail(&self) -> u64 {
        // The role came with acquire from whoever wrote it.
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
        // A look takes the line with the stamp from its producer, so what else is in that line is
        // looked at, too, as long as it may be single items. Only at its start: within a line, no
        // further than asked for. Who is as fast as its producer would find nothing more each time.
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
        // Release: whoever sees that slots are empty must not be overtaken by the reads.
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
                // before anything else can happen, so that nobody takes it again.
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
        // nobody takes it again.
        Some(slot.with(|slot| unsafe { (*slot).assume_init_read() }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = distance(self.next, self.end) as usize;
        (len, Some(len))
    }
}

impl<T, S> ExactSizeIterator for Drained<'_, T, S> {}
