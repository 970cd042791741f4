//! Each transition, in one thread.

#![allow(
    unsafe_code,
    reason = "positions of a ring that no other thread uses are set"
)]

mod property;
mod stress;

use super::word::after;
use super::*;
use crate::limits::RING_SLOTS_MAX;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The consumer's state: the items in their order, and the number of items that the device still
/// accepts.
#[derive(Debug)]
struct Device {
    sent: Vec<u32>,
    credit: usize,
}

type TestRing = Ring<u32, Device>;
type Decide = fn(RingState) -> Decision;
type Guard<'a> = ConsumerGuard<'a, u32, Device>;

impl<T, S> Ring<T, S> {
    fn has_attention(&self) -> bool {
        self.head().has_attention()
    }

    fn state_mut(&mut self) -> &mut S {
        // SAFETY: `&mut self`: no other thread has the ring, and no guard exists.
        self.owner
            .0
            .with_mut(|owner| unsafe { &mut (*owner).state })
    }
}

const STATES: [RingState; 5] = [
    RingState::Idle,
    RingState::Busy,
    RingState::Abdicated,
    RingState::Stalled,
    RingState::Gap,
];

fn ring(capacity: usize) -> TestRing {
    let device = Device {
        sent: Vec::new(),
        credit: usize::MAX,
    };
    Ring::new(capacity, device)
}

/// A ring whose words are all at a position.
fn ring_at(capacity: usize, position: u64) -> TestRing {
    let ring = ring(capacity);
    let order = Ordering::Relaxed;
    let head = Head::new(position, RingState::Idle).0;
    ring.producers.head.store(head, order);
    let limit = after(position, capacity as u64);
    ring.producers.limit.store(limit, order);
    ring.tail.store(position, order);
    // SAFETY: no other thread has the ring yet.
    ring.owner.with_mut(|owner| unsafe {
        (*owner).seen = position;
    });
    ring
}

/// The dispatch modes direct, adaptive, deferred and abdicate.
fn direct(state: RingState) -> Decision {
    match state {
        RingState::Idle | RingState::Abdicated | RingState::Stalled => Decision::Drain,
        RingState::Busy | RingState::Gap => Decision::Enqueue,
    }
}

fn adaptive(state: RingState) -> Decision {
    match state {
        RingState::Idle => Decision::Drain,
        _ => Decision::Enqueue,
    }
}

fn deferred(state: RingState) -> Decision {
    match state {
        RingState::Idle => Decision::Notify,
        _ => Decision::Enqueue,
    }
}

fn abdicate(state: RingState) -> Decision {
    match state {
        RingState::Stalled => Decision::Enqueue,
        _ => Decision::Notify,
    }
}

fn send(device: &mut Device, drained: &mut Items<'_, u32, Device>) -> Turn {
    let count = device.credit.min(drained.len());
    drained.take(count, |item| device.sent.push(item));
    device.credit -= count;
    if drained.len() > 0 {
        Turn::Stalled
    } else {
        Turn::More
    }
}

/// Puts all items, which fit, from a lane.
fn put(
    ring: &TestRing,
    items: impl IntoIterator<Item = u32>,
    decide: Decide,
) -> Put<'_, u32, Device> {
    let mut batch: VecDeque<u32> = items.into_iter().collect();
    let put = ring.put(&mut batch, ProducerKind::Lane, decide, |_, _| {});
    assert!(batch.is_empty(), "the ring has space");
    put
}

/// Enqueues all items, which fit; true if the TX worker is to be notified.
fn enqueue(ring: &TestRing, items: impl IntoIterator<Item = u32>, decide: Decide) -> bool {
    notifies(put(ring, items, decide))
}

fn notifies(put: Put<'_, u32, Device>) -> bool {
    match put {
        Put::Enqueued { notify } => notify,
        other => panic!("{other:?}"),
    }
}

/// Publishes what was enqueued; true if the TX worker is to be notified.
fn publish(slots: Reservation<'_, u32, Device>, mut items: &[u32]) -> bool {
    notifies(slots.publish(&mut items, |_, _| {}))
}

/// The number of items that the ring accepts of a batch.
fn accepted(ring: &TestRing, items: usize, from: ProducerKind) -> usize {
    let mut batch: VecDeque<u32> = (0..items as u32).collect();
    match ring.put(&mut batch, from, deferred, |_, _| {}) {
        Put::Enqueued { .. } | Put::Full => items - batch.len(),
        other => panic!("{other:?}"),
    }
}

/// The role, from an idle ring.
fn bypass(ring: &TestRing) -> Guard<'_> {
    let mut batch = &[7][..];
    match ring.put(&mut batch, ProducerKind::Lane, direct, |_, _| {
        panic!("not counted")
    }) {
        Put::Drain(guard) => {
            assert_eq!((guard.from(), batch), (RingState::Idle, &[7][..]));
            guard
        }
        other => panic!("{other:?}"),
    }
}

/// The role of the TX worker.
fn work(ring: &TestRing) -> Guard<'_> {
    match ring.attend(|_| true, false) {
        Attended::Claimed(guard) => guard,
        other => panic!("{other:?}"),
    }
}

fn to_idle(guard: Guard<'_>) -> Released {
    guard.release(Ended::Empty).expect("no slot is reserved")
}

/// Drains as the TX worker, and releases accordingly.
fn drain(ring: &TestRing, budget: usize) -> (Ended, Released) {
    let mut guard = work(ring);
    let drained = guard.drain(budget, send);
    let released = guard.release(drained).expect("no slot is reserved");
    (drained, released)
}

const fn released(state: RingState) -> Released {
    Released {
        state,
        attention: false,
        wake_waiters: false,
    }
}

fn slots<'a>(ring: &'a TestRing, want: usize, decide: Decide) -> Reservation<'a, u32, Device> {
    let reserved = ring.reserve(want, ProducerKind::Lane, decide);
    reserved.expect("the ring has space")
}

#[test]
fn a_capacity_is_from_one_to_the_bound() {
    for capacity in [0, RING_SLOTS_MAX + 1, usize::MAX] {
        let panicked = catch_unwind(|| Ring::<u32, ()>::new(capacity, ())).unwrap_err();
        let text = panicked.downcast::<String>().unwrap();
        assert!(text.contains("from 1 to 32768"), "{text}");
    }
    // Miri takes a quarter of a minute for so many slots.
    for capacity in [1, if cfg!(miri) { 100 } else { RING_SLOTS_MAX }] {
        let ring = Ring::<u32, ()>::new(capacity, ());
        assert_eq!(ring.capacity(), capacity);
    }
}

#[test]
fn all_slots_are_used_and_the_rest_stays_in_the_batch() {
    for capacity in [1, 2, 3, 5, 7, 8, 100] {
        let ring = ring(capacity);
        for lap in 0..5 {
            let mut batch: VecDeque<u32> = (0..capacity as u32 + 3).collect();
            let put = ring.put(&mut batch, ProducerKind::Lane, deferred, |batch, count| {
                assert_eq!((batch.len(), count), (capacity + 3, capacity));
            });
            assert!(matches!(put, Put::Enqueued { notify: true }), "lap {lap}");
            assert_eq!((batch.len(), batch[0]), (3, capacity as u32));
            let put = ring.put(&mut batch, ProducerKind::Lane, direct, |_, _| {
                panic!("full")
            });
            assert!(matches!(put, Put::Full), "{put:?}");
            assert_eq!((batch.len(), ring.len()), (3, capacity));
            assert!(!ring.has_space(ProducerKind::Lane));
            let (drained, left) = drain(&ring, usize::MAX);
            assert_eq!((drained, left), (Ended::Empty, released(RingState::Idle)));
            assert!(ring.is_empty() && ring.has_space(ProducerKind::Lane));
        }
    }
}

/// The table of [`Ring::put`], for each state and decision.
#[test]
fn a_cell_of_the_table_is_what_a_producer_does() {
    for state in STATES {
        for decision in [Decision::Drain, Decision::Notify, Decision::Enqueue] {
            let ring = ring(8);
            match state {
                RingState::Idle => {}
                RingState::Busy => {
                    let (kept, wake) = work(&ring).keep();
                    assert_eq!((kept.ring, wake), (ring.id, false));
                }
                RingState::Abdicated => assert!(enqueue(&ring, [1], deferred)),
                RingState::Stalled => {
                    assert_eq!(work(&ring).release(Ended::Stalled).unwrap().state, state);
                }
                RingState::Gap => {
                    assert_eq!(work(&ring).release(Ended::Gap).unwrap().state, state);
                }
            }
            assert_eq!(ring.state(), state);
            let before = ring.len();
            let decide = |seen| {
                assert_eq!(seen, state);
                decision
            };
            let mut batch = &[2, 3][..];
            let mut counted = 0;
            let put = ring.put(&mut batch, ProducerKind::Lane, decide, |_, count| {
                counted = count;
            });
            let claims =
                decision == Decision::Drain && !matches!(state, RingState::Busy | RingState::Gap);
            let edge = state == RingState::Idle && !claims;
            match put {
                Put::Drain(guard) => {
                    assert!(claims, "{state:?} {decision:?}");
                    assert_eq!(guard.from(), state);
                    assert_eq!(ring.state(), RingState::Busy);
                    assert_eq!(
                        guard.release(Ended::Stalled).unwrap().state,
                        RingState::Stalled
                    );
                }
                Put::Enqueued { notify } => {
                    assert!(!claims, "{state:?} {decision:?}");
                    assert_eq!(notify, edge || decision == Decision::Notify);
                    let next = if edge { RingState::Abdicated } else { state };
                    assert_eq!(ring.state(), next);
                }
                other => panic!("{other:?}"),
            }
            let enqueued = if claims && state == RingState::Idle {
                0
            } else {
                2
            };
            assert_eq!((ring.len() - before, counted), (enqueued, enqueued));
            assert_eq!(batch.len(), 2 - enqueued);
        }
    }
}

#[test]
fn the_count_runs_before_the_consumer_sees_the_items() {
    let ring = ring(4);
    let mut guard = work(&ring);
    let mut batch = &[1, 2, 3][..];
    let put = ring.put(&mut batch, ProducerKind::Lane, direct, |batch, count| {
        assert_eq!((*batch, count), (&[1, 2, 3][..], 3));
        assert_eq!(ring.len(), 3, "the slots are reserved");
        assert_eq!(guard.drain(64, send), Ended::Gap);
        assert!(guard.state().sent.is_empty());
    });
    assert!(matches!(put, Put::Enqueued { notify: false }));
    assert_eq!(guard.drain(64, send), Ended::Empty);
    assert_eq!(guard.state().sent, [1, 2, 3]);
    assert_eq!(to_idle(guard), released(RingState::Idle));
}

#[test]
fn an_empty_batch_has_no_effect() {
    let ring = ring(1);
    let mut batch = VecDeque::new();
    let put = ring.put(&mut batch, ProducerKind::Lane, direct, |_, _| {
        panic!("no items")
    });
    assert!(matches!(put, Put::Enqueued { notify: false }));
    assert_eq!(ring.state(), RingState::Idle);
    assert_eq!(
        work(&ring).put_rest(&mut batch, ProducerKind::Lane, |_, _| panic!("none")),
        0
    );
}

#[test]
fn a_producer_that_drains_also_takes_what_others_enqueue() {
    let mut ring = ring(4);
    let mut guard = bypass(&ring);
    assert!(!enqueue(&ring, [2], direct));
    assert!(!enqueue(&ring, [3], adaptive));
    assert!(ring.claim(|_| true).is_none());
    guard.state().sent.push(1);
    let guard = guard.release(Ended::Empty).expect_err("slots are reserved");
    assert_eq!(
        (guard.from(), ring.state()),
        (RingState::Idle, RingState::Busy)
    );
    let mut guard = guard;
    assert_eq!(guard.drain(64, send), Ended::Empty);
    assert_eq!(to_idle(guard), released(RingState::Idle));
    assert_eq!(ring.state_mut().sent, [1, 2, 3]);
}

#[test]
fn a_deferred_batch_notifies_once_and_abdicate_each_time() {
    let ring = ring(8);
    assert!(enqueue(&ring, [1], deferred));
    assert!(!enqueue(&ring, [2], deferred));
    assert!(enqueue(&ring, [3], abdicate));
    assert_eq!(drain(&ring, 64).1, released(RingState::Idle));
    assert!(enqueue(&ring, [4], deferred));
    let guard = work(&ring);
    assert!(!enqueue(&ring, [5], deferred));
    assert!(enqueue(&ring, [6], abdicate));
    assert_eq!(
        guard.release(Ended::Stalled).unwrap(),
        released(RingState::Stalled)
    );
    assert!(!enqueue(&ring, [7], abdicate), "the device is full");
}

#[test]
fn the_budget_is_a_bound() {
    let mut ring = ring(200);
    assert!(enqueue(&ring, 0..150, deferred));
    let abdicated = (Ended::Budget, released(RingState::Abdicated));
    assert_eq!(drain(&ring, 32), abdicated);
    assert_eq!((ring.state_mut().sent.len(), ring.len()), (32, 118));
    // More than a turn, and not a multiple of one.
    assert_eq!(drain(&ring, 100), abdicated);
    assert_eq!(ring.state_mut().sent.len(), 132);
    // A budget of 0 is one of 1, so that there is progress.
    assert_eq!(drain(&ring, 0), abdicated);
    // Up to the last item: the ring is empty, and idle.
    assert_eq!(drain(&ring, 17), (Ended::Budget, released(RingState::Idle)));
    assert_eq!(ring.state_mut().sent, (0..150).collect::<Vec<_>>());
}

#[test]
fn a_turn_that_takes_nothing_uses_the_budget() {
    let ring = ring(4);
    assert!(enqueue(&ring, [1], deferred));
    let mut turns = 0;
    let mut guard = work(&ring);
    let drained = guard.drain(5, |_, _| {
        turns += 1;
        Turn::More
    });
    assert_eq!((drained, turns), (Ended::Budget, 5));
}

#[test]
fn the_first_turn_comes_without_items_and_no_other() {
    let ring = ring(4);
    let mut guard = bypass(&ring);
    let mut turns = 0;
    let mut count = |_: &mut Device, drained: &mut Items<'_, u32, Device>| {
        assert_eq!(drained.len(), 0);
        turns += 1;
        Turn::More
    };
    assert_eq!(guard.drain(64, &mut count), Ended::Empty);
    assert_eq!(turns, 1);
}

#[test]
fn items_that_arrive_meanwhile_are_drained_within_the_budget() {
    let ring = ring(8);
    let mut guard = bypass(&ring);
    assert!(!enqueue(&ring, [0], direct));
    let mut taken = 0;
    let drained = guard.drain(10, |device, drained| {
        taken += drained.len();
        let result = send(device, drained);
        assert!(!enqueue(&ring, [1], direct));
        result
    });
    assert_eq!((drained, taken, ring.len()), (Ended::Budget, 10, 1));
}

/// `mp_ring` gives space back after 64 items, or when its budget is used up. Here a turn is never
/// longer than that, and each gives back what it took.
#[test]
fn space_is_given_back_after_each_turn() {
    for (most, turns) in [
        (usize::MAX, vec![200, 136, 72, 8]),
        (50, vec![200, 150, 100, 50]),
    ] {
        let ring = ring(200);
        assert!(enqueue(&ring, 0..200, deferred));
        let (mut found, mut added) = (Vec::new(), 0);
        let mut guard = work(&ring);
        let drained = guard.drain(1000, |device, drained| {
            found.push(ring.len() - added);
            // As many as were taken since the ring was full, and not one more.
            let space = 200 - ring.len();
            if added == 0 && space > 0 {
                added = accepted(&ring, 200, ProducerKind::Lane);
                assert_eq!(added, space);
            }
            let count = drained.len().min(most);
            drained.take(count, |item| device.sent.push(item));
            if found.len() == turns.len() {
                return Turn::Stalled;
            }
            Turn::More
        });
        assert_eq!((drained, found), (Ended::Stalled, turns));
    }
}

#[test]
fn a_stalled_ring_keeps_what_was_not_taken_and_accepts_more() {
    let mut ring = ring(4);
    ring.state_mut().credit = 1;
    assert!(enqueue(&ring, [1, 2], deferred));
    let stalled = (Ended::Stalled, released(RingState::Stalled));
    assert_eq!(drain(&ring, 64), stalled);
    assert_eq!(ring.len(), 1);
    assert!(!enqueue(&ring, [3, 4, 5], adaptive));
    assert_eq!(accepted(&ring, 1, ProducerKind::Lane), 0);
    // A turn that takes all may be stalled, too.
    ring.state_mut().credit = 4;
    let mut guard = work(&ring);
    let drained = guard.drain(64, |device, drained| {
        assert_eq!(send(device, drained), Turn::More);
        Turn::Stalled
    });
    assert_eq!((drained, ring.len()), (Ended::Stalled, 0));
    assert_eq!(
        guard.release(Ended::Stalled).unwrap().state,
        RingState::Stalled
    );
    assert_eq!(ring.state_mut().sent, [1, 2, 3, 4, 5]);
}

#[test]
fn an_unpublished_slot_is_a_gap_that_only_a_claim_ends() {
    let mut ring = ring(8);
    let preempted = slots(&ring, 2, deferred);
    assert_eq!((preempted.count, ring.state()), (2, RingState::Abdicated));
    assert!(!enqueue(&ring, [3], deferred));
    let gap = (Ended::Gap, released(RingState::Gap));
    assert_eq!(drain(&ring, 64), gap);
    for decide in [direct, adaptive, deferred] {
        assert!(!enqueue(&ring, [4], decide), "the TX worker retries");
        assert_eq!(ring.state(), RingState::Gap);
    }
    // Publishing does not take the ring over.
    assert!(publish(preempted, &[1, 2]));
    assert_eq!(ring.state(), RingState::Gap);
    assert_eq!(drain(&ring, 64), (Ended::Empty, released(RingState::Idle)));
    assert_eq!(ring.state_mut().sent, [1, 2, 3, 4, 4, 4]);
}

#[test]
fn a_budget_or_a_stall_before_a_gap_is_reported() {
    for (budget, credit, expected) in [
        (2, 9, Ended::Budget),
        (9, 1, Ended::Stalled),
        (9, 9, Ended::Gap),
    ] {
        let mut ring = ring(8);
        ring.state_mut().credit = credit;
        assert!(enqueue(&ring, [1, 2], deferred));
        let preempted = slots(&ring, 1, deferred);
        assert_eq!(drain(&ring, budget).0, expected);
        assert!(!publish(preempted, &[3]));
    }
}

#[test]
fn a_reservation_may_have_the_role() {
    let mut ring = ring(8);
    assert!(enqueue(&ring, [1], deferred));
    let preempted = slots(&ring, 2, direct);
    assert_eq!(ring.state(), RingState::Busy);
    assert!(ring.claim(|_| true).is_none());
    let preempted = ring.resume_slots(preempted.keep());
    let Put::Drain(mut guard) = preempted.publish(&mut &[2, 3][..], |_, _| {}) else {
        panic!("the ring was abdicated");
    };
    assert_eq!(guard.from(), RingState::Abdicated);
    assert_eq!(guard.drain(64, send), Ended::Empty);
    assert_eq!(to_idle(guard), released(RingState::Idle));
    assert_eq!(ring.state_mut().sent, [1, 2, 3]);
}

#[test]
fn the_rest_of_a_bypassing_batch_is_enqueued_under_the_role() {
    let ring = ring(3);
    let mut guard = bypass(&ring);
    assert!(!enqueue(&ring, [9], direct));
    let mut rest: VecDeque<u32> = [1, 2, 3].into();
    let count = |batch: &VecDeque<u32>, count| assert_eq!((batch.len(), count), (3, 2));
    assert_eq!(guard.put_rest(&mut rest, ProducerKind::Lane, count), 2);
    assert_eq!(rest, [3]);
    let no = |_: &VecDeque<u32>, _| panic!("no slot is free");
    assert_eq!(guard.put_rest(&mut rest, ProducerKind::Lane, no), 0);
    assert_eq!((rest.len(), ring.state()), (1, RingState::Busy));
    assert_eq!(guard.drain(64, send), Ended::Empty);
    assert_eq!(guard.state().sent, [9, 1, 2]);
    ring.close(ProducerKind::Application);
    assert_eq!(guard.put_rest(&mut rest, ProducerKind::Application, no), 0);
    assert_eq!(guard.put_rest(&mut rest, ProducerKind::Lane, |_, _| {}), 1);
    assert_eq!(
        guard.release(Ended::Stalled).unwrap().state,
        RingState::Stalled
    );
}

#[test]
fn applications_leave_slots_to_lanes() {
    let ring = ring(10);
    ring.withhold(4);
    assert_eq!(accepted(&ring, 10, ProducerKind::Application), 6);
    assert_eq!(accepted(&ring, 1, ProducerKind::Application), 0);
    assert!(!ring.has_space(ProducerKind::Application) && ring.has_space(ProducerKind::Lane));
    assert_eq!(accepted(&ring, 10, ProducerKind::Lane), 4);
    assert_eq!(accepted(&ring, 1, ProducerKind::Application), 0);
    // Below the number of withheld slots an application still has no space.
    assert_eq!(drain(&ring, 4).0, Ended::Budget);
    assert!(!ring.has_space(ProducerKind::Application));
    assert_eq!(accepted(&ring, 1, ProducerKind::Application), 0);
    assert_eq!(drain(&ring, 1).0, Ended::Budget);
    assert!(ring.has_space(ProducerKind::Application));
    assert_eq!(accepted(&ring, 2, ProducerKind::Application), 1);
    ring.give_back(4);
    assert!(ring.has_space(ProducerKind::Application));
    assert_eq!(accepted(&ring, 9, ProducerKind::Application), 4);
}

#[test]
#[should_panic(expected = "4 of 4 slots")]
fn lanes_do_not_get_all_slots() {
    ring(4).withhold(4);
}

#[test]
fn a_closed_ring_accepts_nothing() {
    for to in [ProducerKind::Application, ProducerKind::Lane] {
        let ring = ring(1);
        assert!(enqueue(&ring, [1], deferred));
        assert!(!ring.is_closed(to) && !ring.has_space(to));
        ring.close(to);
        assert_eq!(ring.state(), RingState::Abdicated);
        assert!(ring.is_closed(ProducerKind::Application));
        assert_eq!(ring.is_closed(ProducerKind::Lane), to == ProducerKind::Lane);
        assert!(ring.has_space(to), "the producer finds it closed");
        assert!(ring.wait_for_space(to));
        for state in [RingState::Abdicated, RingState::Idle, RingState::Busy] {
            let kept = match state {
                RingState::Idle => {
                    assert_eq!(drain(&ring, 64).0, Ended::Empty);
                    None
                }
                RingState::Busy => Some(work(&ring)),
                _ => None,
            };
            assert_eq!(ring.state(), state);
            let mut batch = &[2][..];
            let put = ring.put(&mut batch, to, direct, |_, _| panic!("closed"));
            assert!(matches!(put, Put::Closed), "{put:?}");
            assert_eq!(batch, [2]);
            drop(kept);
        }
        if to == ProducerKind::Application {
            assert_eq!(accepted(&ring, 1, ProducerKind::Lane), 1);
        }
    }
}

#[test]
fn a_closed_ring_publishes_what_was_reserved() {
    let ring = ring(4);
    let preempted = slots(&ring, 1, deferred);
    ring.close(ProducerKind::Lane);
    assert_eq!(drain(&ring, 64).0, Ended::Gap);
    assert!(publish(preempted, &[1]));
    assert_eq!(drain(&ring, 64).1.state, RingState::Idle);
}

#[test]
fn a_claim_needs_a_state_that_it_may_have() {
    let ring = ring(4);
    assert!(ring.claim(|state| state != RingState::Idle).is_none());
    assert!(enqueue(&ring, [1], deferred));
    let guard = ring.claim(|state| state == RingState::Abdicated);
    assert_eq!(guard.map(|guard| guard.from()), Some(RingState::Abdicated));
    // A guard that is dropped abdicates.
    assert_eq!(ring.state(), RingState::Abdicated);
    let worker = ring.attend(|state| state != RingState::Abdicated, true);
    assert!(matches!(worker, Attended::NotNeeded(RingState::Abdicated)));
    assert!(!ring.has_attention());
}

#[test]
fn attention_makes_each_release_an_abdication() {
    for (ended, took) in [
        (Ended::Empty, false),
        (Ended::Budget, true),
        (Ended::Stalled, true),
        (Ended::Gap, false),
    ] {
        let ring = ring(4);
        let mut guard = bypass(&ring);
        assert!(matches!(ring.attend(|_| true, false), Attended::Busy));
        assert!(!ring.has_attention());
        assert!(matches!(ring.attend(|_| true, true), Attended::Busy));
        assert!(ring.has_attention());
        if took {
            assert!(!enqueue(&ring, [1], direct));
            assert_eq!(guard.drain(64, send), Ended::Empty);
        }
        let left = guard.release(ended).expect("the ring is empty");
        let attention = Released {
            state: RingState::Abdicated,
            attention: true,
            wake_waiters: false,
        };
        assert_eq!(left, attention);
        // No producer claims the ring, and none becomes a new edge.
        assert!(ring.claim(|_| true).is_none());
        assert!(!enqueue(&ring, [2], direct));
        assert_eq!(ring.state(), RingState::Abdicated);
        let mut guard = work(&ring);
        assert!(!ring.has_attention());
        assert_eq!(guard.drain(64, send), Ended::Empty);
        assert_eq!(to_idle(guard), released(RingState::Idle));
    }
}

#[test]
fn a_reserved_slot_keeps_the_role_from_being_released_idle_with_attention() {
    let ring = ring(4);
    let guard = bypass(&ring);
    assert!(!enqueue(&ring, [1], direct));
    assert!(matches!(ring.attend(|_| true, true), Attended::Busy));
    let mut guard = guard.release(Ended::Empty).expect_err("a slot is reserved");
    assert_eq!(ring.state(), RingState::Busy);
    assert_eq!(guard.drain(64, send), Ended::Empty);
    assert!(to_idle(guard).attention);
}

#[test]
fn waiters_are_woken_by_a_release_that_took_items() {
    let ring = ring(1);
    assert!(enqueue(&ring, [1], deferred));
    assert!(!ring.wait_for_space(ProducerKind::Lane));
    // Nothing was taken: no waiter has space.
    assert!(!work(&ring).release(Ended::Stalled).unwrap().wake_waiters);
    let (kept, wake) = work(&ring).keep();
    assert!(!wake);
    let mut guard = ring.resume(kept);
    assert_eq!(guard.from(), RingState::Stalled);
    assert_eq!(guard.drain(64, send), Ended::Empty);
    let (kept, wake) = guard.keep();
    assert!(wake);
    // Without further items it is not reported again.
    let (kept, wake) = ring.resume(kept).keep();
    assert!(!wake);
    let mut guard = ring.resume(kept);
    assert!(!enqueue(&ring, [2], deferred));
    assert_eq!(guard.drain(64, send), Ended::Empty);
    let left = to_idle(guard);
    assert_eq!((left.state, left.wake_waiters), (RingState::Idle, true));
    ring.clear_waiters();
    assert!(enqueue(&ring, [3], deferred));
    assert_eq!(drain(&ring, 64).1, released(RingState::Idle));
    // Space is free after all.
    assert!(ring.wait_for_space(ProducerKind::Lane));
    assert_eq!(ring.state(), RingState::Idle);
}

#[test]
#[should_panic(expected = "another ring")]
fn a_role_is_that_of_one_ring() {
    let (one, other) = (ring(1), ring(1));
    let (kept, _) = work(&one).keep();
    drop(other.resume(kept));
}

#[test]
#[should_panic(expected = "another ring")]
fn slots_are_those_of_one_ring() {
    let (one, other) = (ring(1), ring(1));
    drop(other.resume_slots(slots(&one, 1, deferred).keep()));
}

#[test]
fn flags_survive_what_others_do() {
    let ring = ring(4);
    ring.close(ProducerKind::Application);
    let guard = bypass(&ring);
    assert!(ring.wait_for_space(ProducerKind::Lane));
    assert!(matches!(ring.attend(|_| true, true), Attended::Busy));
    assert!(!enqueue(&ring, [1, 2], direct));
    drop(guard);
    assert_eq!((ring.state(), ring.len()), (RingState::Abdicated, 2));
    assert!(ring.has_attention() && ring.is_closed(ProducerKind::Application));
    let (drained, left) = drain(&ring, 64);
    assert_eq!((drained, left.state), (Ended::Empty, RingState::Idle));
    assert!(left.wake_waiters && !ring.has_attention());
    assert!(ring.is_closed(ProducerKind::Application) && !ring.is_closed(ProducerKind::Lane));
}

#[test]
fn batches_of_each_kind_move_at_the_front() {
    let mut ring = ring(16);
    assert!(enqueue(&ring, [1], deferred));
    let mut slice = &[2, 3, 4][..];
    assert!(!notifies(ring.put(
        &mut slice,
        ProducerKind::Lane,
        deferred,
        |_, _| {}
    )));
    // In two parts.
    let mut deque: VecDeque<u32> = VecDeque::with_capacity(4);
    deque.extend([0, 0, 5, 6]);
    deque.drain(..2);
    deque.extend([7, 8]);
    assert!(!deque.as_slices().1.is_empty());
    assert!(!notifies(ring.put(
        &mut deque,
        ProducerKind::Lane,
        deferred,
        |_, _| {}
    )));
    assert!(slice.is_empty() && deque.is_empty());
    assert_eq!(drain(&ring, 64).0, Ended::Empty);
    assert_eq!(ring.state_mut().sent, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Turns of each length, with some items taken one by one and the others at once. The rest of a
/// batch is never mistaken for a single item, nor a single item for the rest of a batch.
#[test]
fn items_come_in_order_however_they_are_taken() {
    let batches: [&[u32]; 6] = [&[1, 2, 3, 4, 5], &[6], &[7, 8], &[9], &[10], &[11, 12, 13]];
    // Miri takes long.
    let step = if cfg!(miri) { 5 } else { 1 };
    let turns = (1..=13).step_by(step);
    for (most, singly) in turns.flat_map(|most| (0..=most).map(move |one| (most, one))) {
        // Positions and slots wrap on the way.
        let ring = ring_at(16, after(0, 6_u64.wrapping_neg()));
        for (i, batch) in batches.into_iter().enumerate() {
            assert_eq!(enqueue(&ring, batch.to_vec(), deferred), i == 0);
        }
        let mut guard = work(&ring);
        let mut left = true;
        while left {
            let drained = guard.drain(most, |device, items| {
                left = items.len() > 0;
                for _ in 0..singly {
                    items.take(1, |item| device.sent.push(item));
                }
                items.take(usize::MAX, |item| device.sent.push(item));
                // It ends the drain.
                Turn::Stalled
            });
            assert_eq!(drained, Ended::Stalled);
        }
        let sent = std::mem::take(&mut guard.state().sent);
        assert!(sent.iter().copied().eq(1..=13), "{most} {singly}: {sent:?}");
        assert_eq!(to_idle(guard), released(RingState::Idle));
    }
}

#[test]
fn a_batch_may_be_longer_than_a_stamp_and_a_turn() {
    let mut ring = ring(1000);
    for _ in 0..3 {
        assert!(enqueue(&ring, 0..777, deferred));
        ring.state_mut().sent.clear();
        assert_eq!(drain(&ring, 778).0, Ended::Empty);
        assert_eq!(ring.state_mut().sent, (0..777).collect::<Vec<_>>());
    }
}

#[test]
fn positions_wrap_without_a_trace() {
    let before_wrap = |items: u64| after(0, items.wrapping_neg());
    for capacity in [1, 3, 8] {
        let mut ring = ring_at(capacity, before_wrap(6));
        for i in 0..20 {
            assert!(enqueue(&ring, [i], deferred));
            assert_eq!(ring.len(), 1);
            assert!(ring.has_space(ProducerKind::Lane) == (capacity > 1));
            assert_eq!(drain(&ring, 64).0, Ended::Empty);
        }
        assert_eq!(ring.state_mut().sent, (0..20).collect::<Vec<_>>());
    }
    // A batch across the wrap, and a full ring there.
    let mut ring = ring_at(8, before_wrap(3));
    assert_eq!(accepted(&ring, 9, ProducerKind::Lane), 8);
    assert_eq!(ring.len(), 8);
    assert_eq!(drain(&ring, 64).0, Ended::Empty);
    assert_eq!(ring.state_mut().sent, (0..8).collect::<Vec<_>>());
}

/// Counts how often it is dropped.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn items_in_it_are_dropped_once() {
    let dropped = Rc::new(Cell::new(0));
    let counted = || Counted(Rc::clone(&dropped));
    let ring = Ring::new(9, counted());
    let mut batch: VecDeque<Counted> = (0..5).map(|_| counted()).collect();
    let put = |batch: &mut VecDeque<Counted>| {
        let put = ring.put(batch, ProducerKind::Lane, deferred, |_, _| {});
        assert!(matches!(put, Put::Enqueued { .. }), "it has space");
    };
    put(&mut batch);
    for _ in 0..2 {
        batch.push_back(counted());
        put(&mut batch);
    }
    // A panic between reservation and publication: the slot stays empty.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        drop(ring.put(
            &mut VecDeque::from([counted(), counted()]),
            ProducerKind::Lane,
            deferred,
            |_, _| panic!("a counter"),
        ));
    }));
    assert!(panicked.is_err() && batch.is_empty());
    assert_eq!((ring.len(), dropped.replace(0)), (9, 2));
    let mut guard = ring.claim(|_| true).unwrap();
    // Within a batch.
    let drained = guard.drain(2, |_, drained| {
        drained.take(usize::MAX, drop);
        Turn::More
    });
    assert_eq!((drained, dropped.get()), (Ended::Budget, 2));
    drop(guard);
    // Five items, and the state.
    drop(ring);
    assert_eq!(dropped.get(), 8);
}

#[test]
fn a_turn_that_panics_loses_and_doubles_nothing() {
    for taken in [2, 6] {
        let mut ring = ring(8);
        assert!(enqueue(&ring, 0..6, deferred));
        let mut guard = work(&ring);
        let result = catch_unwind(AssertUnwindSafe(move || {
            let drained = guard.drain(64, |device, drained| {
                drained.take(taken, |item| device.sent.push(item));
                panic!("a driver")
            });
            assert_eq!(drained, Ended::Empty);
        }));
        assert!(result.is_err());
        // Also if the ring is empty: the state may hold items.
        assert_eq!(
            (ring.state(), ring.len()),
            (RingState::Abdicated, 6 - taken)
        );
        assert_eq!(drain(&ring, 64).0, Ended::Empty);
        assert_eq!(ring.state_mut().sent, (0..6).collect::<Vec<_>>());
    }
}

/// A panic at each of six items, in a batch that wraps around, and in single items.
#[test]
fn a_closure_that_panics_in_take_loses_and_doubles_nothing() {
    let all = (1..=6).flat_map(|at| [(false, at), (true, at)]);
    for (single, at) in all {
        let mut ring = ring(8);
        assert!(enqueue(&ring, 100..105, deferred));
        assert_eq!(drain(&ring, 64).0, Ended::Empty);
        ring.state_mut().sent.clear();
        if single {
            for item in 0..6 {
                assert_eq!(enqueue(&ring, item..item + 1, deferred), item == 0);
            }
        } else {
            assert!(enqueue(&ring, 0..6, deferred));
        }
        let mut guard = work(&ring);
        let mut seen = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            guard.drain(64, |_, drained| {
                drained.take(usize::MAX, |item| {
                    seen.push(item);
                    assert!(seen.len() < at, "a driver");
                });
                Turn::More
            })
        }));
        assert!(result.is_err());
        drop(guard);
        assert_eq!((ring.len(), seen.len()), (6 - at, at));
        assert_eq!(drain(&ring, 64).0, Ended::Empty);
        seen.append(&mut ring.state_mut().sent);
        assert_eq!(seen, (0..6).collect::<Vec<_>>(), "{single} {at}");
    }
}
