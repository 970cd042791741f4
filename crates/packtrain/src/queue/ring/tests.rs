//! One thread: every transition by itself. The cases of mp_ring are those that its source implies.

mod property;
mod stress;

use super::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// What the consumer's state is: the items in the order in which they came, and how many more the
/// device takes.
struct Device {
    sent: Vec<u32>,
    credit: usize,
}

type TestRing = Ring<u32, Device>;

fn ring(capacity: usize) -> TestRing {
    let device = Device {
        sent: Vec::new(),
        credit: usize::MAX,
    };
    Ring::new(capacity, device).unwrap()
}

/// As where the kernel runs no fence for producers.
fn without_kernel<T, S>(mut ring: Ring<T, S>) -> Ring<T, S> {
    ring.barrier = Barrier::without_kernel();
    ring.gap = AtomicU64::new(ring.no_gap());
    ring
}

fn send(device: &mut Device, drained: &mut Drained<'_, u32, Device>) -> Turn {
    let count = device.credit.min(drained.len());
    device.sent.extend(drained.by_ref().take(count));
    device.credit -= count;
    if drained.len() > 0 {
        Turn::Stalled(Stall::NoDescriptor)
    } else {
        Turn::More
    }
}

fn drain(ring: &TestRing, budget: usize) -> Exit {
    let consumer = ring.try_consume(Claim::Any).expect("nobody is at work");
    consumer.drain(budget, send)
}

fn put(
    ring: &TestRing,
    items: impl IntoIterator<Item = u32>,
    claim: Claim,
) -> Duty<'_, u32, Device> {
    let mut batch: Vec<u32> = items.into_iter().collect();
    let enqueued = ring.enqueue(&mut batch, claim);
    assert_eq!(batch, [], "it has room");
    enqueued.duty
}

fn with_credit(ring: &mut TestRing, credit: usize) {
    ring.state_mut().credit = credit;
}

/// Begins just before positions wrap, with all of the ring's words at that position.
fn ring_at(capacity: usize, position: u64) -> TestRing {
    let ring = ring(capacity);
    let order = Ordering::Relaxed;
    ring.producers
        .head
        .store(Head::new(position, State::Idle).0, order);
    ring.producers
        .limit
        .store(after(position, capacity as u64), order);
    ring.tail.store(position, order);
    // SAFETY: nobody else has the ring yet.
    ring.owner.with_mut(|owner| unsafe {
        (*owner).seen = position;
    });
    ring
}

#[test]
fn a_capacity_is_from_one_to_the_bound() {
    for capacity in [0, RING_SLOTS_MAX + 1, usize::MAX] {
        let error = Ring::<u32, ()>::new(capacity, ()).unwrap_err();
        assert_eq!(error, RingError::Capacity(capacity));
        let text = error.to_string();
        assert!(text.contains("from 1 to 32768"), "{text}");
    }
    for capacity in [1, RING_SLOTS_MAX] {
        assert_eq!(
            Ring::<u32, ()>::new(capacity, ()).unwrap().capacity(),
            capacity
        );
    }
}

#[test]
fn every_slot_is_used_and_the_rest_handed_back() {
    for capacity in [1, 2, 3, 5, 7, 8, 100] {
        let ring = ring(capacity);
        for lap in 0..5 {
            let mut batch: VecDeque<u32> = (0..capacity as u32 + 3).collect();
            let enqueued = ring.enqueue(&mut batch, Claim::Never);
            assert_eq!((enqueued.accepted, batch.len()), (capacity, 3), "lap {lap}");
            assert_eq!(batch[0], capacity as u32);
            assert!(enqueued.duty.is_wake());
            let refused = ring.enqueue(&mut batch, Claim::Never);
            assert_eq!((refused.accepted, refused.duty.is_none()), (0, true));
            assert_eq!(ring.len(), capacity);
            assert_eq!(ring.taken(), lap * capacity as u64);
            assert_eq!(drain(&ring, usize::MAX), Exit::Idle);
            assert!(ring.is_empty());
            assert_eq!(ring.taken(), (lap + 1) * capacity as u64);
        }
    }
}

#[test]
fn a_full_ring_that_was_left_is_drained_by_who_finds_no_space() {
    for claim in [Claim::Free, Claim::Any] {
        let ring = ring(2);
        assert!(put(&ring, [1, 2], Claim::Never).is_wake());
        let mut batch = vec![3];
        let enqueued = ring.enqueue(&mut batch, claim);
        assert_eq!(enqueued.accepted, 0);
        let Duty::Drain(consumer) = enqueued.duty else {
            panic!("nobody is at work")
        };
        assert_eq!(consumer.drain(64, send), Exit::Idle);
        assert!(ring.enqueue(&mut Vec::new(), claim).duty.is_none());
    }
}

#[test]
fn a_stall_is_left_alone_but_by_who_takes_any_state() {
    let mut ring = ring(8);
    with_credit(&mut ring, 1);
    assert!(put(&ring, [1, 2], Claim::Never).is_wake());
    assert_eq!(drain(&ring, 64), Exit::Stalled(Stall::NoDescriptor));
    assert!(put(&ring, [3], Claim::Free).is_none());
    assert!(ring.try_consume(Claim::Free).is_none());
    assert!(ring.try_consume(Claim::Any).is_some());
}

#[test]
fn an_idle_ring_gives_the_role_to_its_producer() {
    let mut ring = ring(4);
    let Duty::Drain(consumer) = put(&ring, [1], Claim::Free) else {
        panic!("the ring is idle")
    };
    assert_eq!(ring.status(), Status::Busy);
    // Others leave their items to it, and nobody else gets the role.
    assert!(put(&ring, [2], Claim::Any).is_none());
    assert!(put(&ring, [3], Claim::Never).is_none());
    assert!(ring.try_consume(Claim::Any).is_none());
    assert_eq!(consumer.drain(64, send), Exit::Idle);
    assert_eq!(ring.status(), Status::Idle);
    assert_eq!(ring.state_mut().sent, [1, 2, 3]);
}

#[test]
fn a_deferred_item_wakes_the_worker_once() {
    let ring = ring(8);
    assert!(put(&ring, [1], Claim::Never).is_wake());
    assert_eq!(ring.status(), Status::Abdicated);
    assert!(put(&ring, [2], Claim::Never).is_none());
    assert!(ring.try_consume(Claim::Never).is_none());
    assert_eq!(drain(&ring, 64), Exit::Idle);
    assert!(put(&ring, [3], Claim::Never).is_wake());
    let Duty::Drain(consumer) = put(&ring, [4], Claim::Free) else {
        panic!("nobody is at work")
    };
    assert_eq!(consumer.drain(64, send), Exit::Idle);
}

#[test]
fn the_budget_bounds() {
    let mut ring = ring(200);
    assert!(put(&ring, 0..150, Claim::Never).is_wake());
    assert_eq!(drain(&ring, 32), Exit::Abdicated);
    assert_eq!((ring.state_mut().sent.len(), ring.len()), (32, 118));
    assert_eq!(ring.status(), Status::Abdicated);
    // More than a turn, and not a multiple of one.
    assert_eq!(drain(&ring, 100), Exit::Abdicated);
    assert_eq!(ring.state_mut().sent.len(), 132);
    // A budget of nothing is one of one, so that there is progress.
    assert_eq!(drain(&ring, 0), Exit::Abdicated);
    // All of it, to the last one.
    assert_eq!(drain(&ring, 17), Exit::Idle);
    assert_eq!(ring.state_mut().sent, (0..150).collect::<Vec<_>>());
}

#[test]
fn a_turn_that_takes_nothing_uses_the_budget() {
    let ring = ring(4);
    assert!(put(&ring, [1], Claim::Never).is_wake());
    let mut turns = 0;
    let consumer = ring.try_consume(Claim::Any).unwrap();
    let exit = consumer.drain(5, |_, _| {
        turns += 1;
        Turn::More
    });
    assert_eq!((exit, turns), (Exit::Abdicated, 5));
}

#[test]
fn what_arrives_meanwhile_is_drained_within_the_budget() {
    let ring = ring(8);
    let Duty::Drain(consumer) = put(&ring, [0], Claim::Free) else {
        panic!("the ring is idle")
    };
    let mut taken = 0;
    let exit = consumer.drain(10, |device, drained| {
        taken += drained.len();
        let said = send(device, drained);
        assert!(put(&ring, [1], Claim::Free).is_none());
        said
    });
    assert_eq!((exit, taken, ring.len()), (Exit::Abdicated, 10, 1));
}

/// `mp_ring` gives space back after 64 items, or when its budget is used up (mechanisms-bsd.md
/// 1.14, case 8). Here a turn is never longer than that, and each gives back what it took.
#[test]
fn space_is_given_back_after_each_turn() {
    for (most, turns) in [
        (usize::MAX, vec![200, 136, 72, 8]),
        (50, vec![200, 150, 100, 50]),
    ] {
        let ring = ring(200);
        assert!(put(&ring, 0..200, Claim::Never).is_wake());
        let (mut found, mut added) = (Vec::new(), 0);
        let consumer = ring.try_consume(Claim::Any).unwrap();
        let exit = consumer.drain(1000, |device, drained| {
            found.push(ring.len() - added);
            // As many as were taken since the ring was full, and not one more.
            let mut more: Vec<u32> = (0..200).collect();
            let space = 200 - ring.len();
            if added == 0 && space > 0 {
                added = ring.enqueue(&mut more, Claim::Free).accepted;
                assert_eq!(added, space);
            }
            let count = drained.len().min(most);
            device.sent.extend(drained.by_ref().take(count));
            if found.len() == turns.len() {
                return Turn::Stalled(Stall::Busy);
            }
            Turn::More
        });
        assert_eq!(exit, Exit::Stalled(Stall::Busy));
        assert_eq!(found, turns);
    }
}

#[test]
fn a_stall_keeps_its_cause_and_what_was_not_taken() {
    for cause in [
        Stall::NoDescriptor,
        Stall::LinkDown,
        Stall::Busy,
        Stall::NoMemory,
        Stall::Flush,
    ] {
        let ring = ring(4);
        let Duty::Drain(consumer) = put(&ring, [1, 2], Claim::Free) else {
            panic!("the ring is idle")
        };
        let exit = consumer.drain(64, |device, drained| {
            device.sent.extend(drained.next());
            Turn::Stalled(cause)
        });
        assert_eq!(exit, Exit::Stalled(cause));
        assert_eq!((ring.status(), ring.len()), (Status::Stalled(cause), 1));
        // It still takes items, until it is full.
        assert!(put(&ring, [3, 4, 5], Claim::Free).is_none());
        let refused = ring.enqueue(&mut vec![6], Claim::Free);
        assert_eq!((refused.accepted, refused.duty.is_none()), (0, true));
    }
}

#[test]
fn a_stalled_ring_is_restarted_by_a_kick() {
    let mut ring = ring(4);
    with_credit(&mut ring, 1);
    assert!(put(&ring, [1, 2, 3], Claim::Never).is_wake());
    assert_eq!(drain(&ring, 64), Exit::Stalled(Stall::NoDescriptor));
    with_credit(&mut ring, 1);
    let Duty::Drain(consumer) = ring.kick(Claim::Free) else {
        panic!("it is stalled")
    };
    assert_eq!(consumer.drain(64, send), Exit::Stalled(Stall::NoDescriptor));
    with_credit(&mut ring, 1);
    assert!(ring.kick(Claim::Never).is_wake());
    assert_eq!(ring.status(), Status::Abdicated);
    assert!(
        ring.kick(Claim::Any).is_none(),
        "the worker is told already"
    );
    assert_eq!(drain(&ring, 64), Exit::Idle);
    assert!(ring.kick(Claim::Any).is_none(), "nothing is stalled");
    assert_eq!(ring.state_mut().sent, [1, 2, 3]);
}

#[test]
fn a_kick_during_a_turn_makes_it_try_again() {
    let mut ring = ring(4);
    with_credit(&mut ring, 0);
    let Duty::Drain(consumer) = put(&ring, [1], Claim::Free) else {
        panic!("the ring is idle")
    };
    let mut turns = 0;
    let exit = consumer.drain(64, |device, drained| {
        turns += 1;
        let said = send(device, drained);
        if turns == 1 {
            // Between the look at the device and the stall.
            assert!(ring.kick(Claim::Any).is_none());
            device.credit = 1;
        }
        said
    });
    assert_eq!((exit, turns), (Exit::Idle, 2));
    assert_eq!(ring.state_mut().sent, [1]);
}

#[test]
fn a_kick_at_the_end_of_the_budget_is_not_lost() {
    let ring = ring(4);
    let Duty::Drain(consumer) = put(&ring, [1], Claim::Free) else {
        panic!("the ring is idle")
    };
    // It takes the item, but the device has not: the ring is empty, and not idle.
    let exit = consumer.drain(1, |device, drained| {
        device.sent.extend(drained);
        assert!(ring.kick(Claim::Any).is_none());
        Turn::Stalled(Stall::Busy)
    });
    assert_eq!((exit, ring.status()), (Exit::Abdicated, Status::Abdicated));
}

#[test]
fn an_empty_ring_may_be_stalled_and_has_a_turn_when_kicked() {
    let ring = ring(4);
    let Duty::Drain(consumer) = put(&ring, [1], Claim::Free) else {
        panic!("the ring is idle")
    };
    let exit = consumer.drain(64, |device, drained| {
        device.sent.extend(drained);
        Turn::Stalled(Stall::LinkDown)
    });
    assert_eq!(exit, Exit::Stalled(Stall::LinkDown));
    assert!(ring.is_empty());
    assert!(put(&ring, [2], Claim::Free).is_none());
    let Duty::Drain(consumer) = ring.kick(Claim::Free) else {
        panic!("it is stalled")
    };
    assert_eq!(consumer.drain(64, send), Exit::Idle);
    let mut turns = 0;
    let consumer = ring.try_consume(Claim::Free).expect("it is idle");
    let exit = consumer.drain(64, |_, drained| {
        turns += 1;
        assert_eq!(drained.len(), 0);
        Turn::More
    });
    assert_eq!((exit, turns), (Exit::Idle, 1));
}

/// A producer that was preempted between reservation and publication.
struct Preempted<'a> {
    ring: &'a TestRing,
    reserved: Reserved,
    claim: Claim,
}

impl<'a> Preempted<'a> {
    fn new(ring: &'a TestRing, count: u64, claim: Claim) -> Self {
        let reserved = ring.reserve(count, claim).expect("it has room");
        assert_eq!(reserved.count, count);
        Self {
            ring,
            reserved,
            claim,
        }
    }

    fn go_on(self, mut items: &[u32]) -> Duty<'a, u32, Device> {
        self.ring.put(&self.reserved, &mut items);
        self.ring.duty(&self.reserved, self.claim)
    }
}

#[test]
fn the_consumer_stops_at_a_gap_and_its_producer_goes_on() {
    for ring in [ring(8), without_kernel(ring(8))] {
        stops_at_a_gap(ring);
    }
}

fn stops_at_a_gap(mut ring: TestRing) {
    let Duty::Drain(consumer) = put(&ring, [1], Claim::Free) else {
        panic!("the ring is idle")
    };
    let preempted = Preempted::new(&ring, 2, Claim::Free);
    assert!(put(&ring, [4], Claim::Any).is_none());
    assert_eq!(consumer.drain(64, send), Exit::Passed);
    // The role is in the gap: nobody else gets it.
    assert_eq!((ring.status(), ring.len()), (Status::Busy, 3));
    assert!(ring.try_consume(Claim::Any).is_none());
    assert!(put(&ring, [5], Claim::Any).is_none());
    let Duty::Drain(consumer) = preempted.go_on(&[2, 3]) else {
        panic!("the role was left to it")
    };
    assert_eq!(consumer.drain(64, send), Exit::Idle);
    assert_eq!(ring.state_mut().sent, [1, 2, 3, 4, 5]);
}

#[test]
fn a_producer_that_never_drains_leaves_the_role_to_the_worker() {
    let mut ring = ring(8);
    let preempted = Preempted::new(&ring, 1, Claim::Never);
    assert!(put(&ring, [2], Claim::Never).is_none());
    // The worker comes for another reason.
    assert_eq!(drain(&ring, 64), Exit::Passed);
    assert!(preempted.go_on(&[1]).is_wake());
    assert_eq!(ring.status(), Status::Abdicated);
    assert_eq!(drain(&ring, 64), Exit::Idle);
    assert_eq!(ring.state_mut().sent, [1, 2]);
}

#[test]
fn a_kick_at_a_gap_is_kept_for_who_goes_on() {
    let mut ring = ring(8);
    with_credit(&mut ring, 0);
    let preempted = Preempted::new(&ring, 1, Claim::Never);
    assert_eq!(drain(&ring, 64), Exit::Passed);
    assert!(ring.kick(Claim::Any).is_none());
    assert!(preempted.go_on(&[1]).is_wake());
    assert_eq!(ring.status(), Status::Abdicated);
    with_credit(&mut ring, 1);
    assert_eq!(drain(&ring, 64), Exit::Idle);
}

#[test]
fn a_gap_in_the_middle_of_a_long_batch() {
    let ring = ring(200);
    let consumer = ring.try_consume(Claim::Any).unwrap();
    let reserved = ring.reserve(130, Claim::Free).unwrap();
    let items: Vec<u32> = (0..130).collect();
    ring.write(reserved.at, items.as_ptr(), items.len());
    // The first of its three stamps, and the consumer is faster than the second one.
    let stamp = &ring.places.place(0).stamp;
    stamp.store(Stamp::new(0, STAMP_ITEMS_MAX).0, Ordering::Release);
    assert_eq!(consumer.drain(100, send), Exit::Passed);
    let rest = Reserved {
        at: after(0, 64),
        count: 66,
        ..reserved
    };
    ring.stamp(&rest);
    let Duty::Drain(consumer) = ring.duty(&rest, Claim::Free) else {
        panic!("the role was left to it")
    };
    assert_eq!(consumer.drain(usize::MAX, send), Exit::Idle);
    let mut ring = ring;
    assert_eq!(ring.state_mut().sent, items);
}

#[test]
fn a_consumer_that_stays_polls_and_leaves() {
    let ring = ring(8);
    let mut consumer = ring.try_consume(Claim::Any).unwrap();
    assert_eq!(consumer.poll(64, send), Turn::More);
    assert!(put(&ring, [1, 2, 3], Claim::Free).is_none());
    assert_eq!(consumer.poll(2, send), Turn::More);
    assert_eq!(consumer.with_state(|device| device.sent.clone()), [1, 2]);
    assert_eq!(consumer.leave(Turn::More), Exit::Abdicated);
    let mut consumer = ring.try_consume(Claim::Any).unwrap();
    assert_eq!(consumer.poll(64, send), Turn::More);
    assert_eq!(consumer.leave(Turn::More), Exit::Idle);
    let consumer = ring.try_consume(Claim::Any).unwrap();
    let stall = Turn::Stalled(Stall::Flush);
    assert_eq!(consumer.leave(stall), Exit::Stalled(Stall::Flush));
    let consumer = ring.try_consume(Claim::Any).unwrap();
    assert!(ring.kick(Claim::Any).is_none());
    assert_eq!(consumer.leave(stall), Exit::Abdicated);
}

#[test]
fn batches_of_each_kind_move_at_the_front() {
    let mut ring = ring(16);
    let mut vector = vec![1, 2, 3];
    assert!(ring.enqueue(&mut vector, Claim::Never).duty.is_wake());
    let mut one = Some(4);
    assert!(ring.enqueue(&mut one, Claim::Never).duty.is_none());
    assert_eq!(one, None);
    // In two parts.
    let mut deque: VecDeque<u32> = VecDeque::with_capacity(4);
    deque.extend([0, 0, 5, 6]);
    deque.drain(..2);
    deque.extend([7, 8]);
    assert!(!deque.as_slices().1.is_empty());
    assert!(ring.enqueue(&mut deque, Claim::Never).duty.is_none());
    assert!(vector.is_empty() && deque.is_empty());
    assert_eq!(drain(&ring, 64), Exit::Idle);
    assert_eq!(ring.state_mut().sent, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Some of them by `next`, the others by `take_each`, in turns of each length: what a batch has
/// left is never taken for an item alone, nor one of those for a batch's.
#[test]
fn items_come_in_order_however_they_are_taken() {
    let batches: [&[u32]; 6] = [&[1, 2, 3, 4, 5], &[6], &[7, 8], &[9], &[10], &[11, 12, 13]];
    // Miri takes long.
    let step = if cfg!(miri) { 5 } else { 1 };
    let turns = (1..=13).step_by(step);
    for (most, by_next) in turns.flat_map(|most| (0..=most).map(move |one| (most, one))) {
        // Positions and slots wrap on the way.
        let ring = ring_at(16, after(0, 6_u64.wrapping_neg()));
        for batch in batches {
            let (Duty::Wake | Duty::None) = put(&ring, batch.to_vec(), Claim::Never) else {
                unreachable!("it was not claimed");
            };
        }
        let mut consumer = ring.try_consume(Claim::Any).unwrap();
        let mut left = true;
        while left {
            let said = consumer.poll(most, |device, items| {
                left = items.len() > 0;
                device.sent.extend(items.by_ref().take(by_next));
                items.take_each(|item| device.sent.push(item));
                Turn::More
            });
            assert_eq!(said, Turn::More);
        }
        let sent = consumer.with_state(|device| std::mem::take(&mut device.sent));
        assert!(
            sent.iter().copied().eq(1..=13),
            "{most} {by_next}: {sent:?}"
        );
        assert_eq!(consumer.leave(Turn::More), Exit::Idle);
    }
}

#[test]
fn a_batch_may_be_longer_than_a_stamp_and_a_turn() {
    let mut ring = ring(1000);
    for _ in 0..3 {
        assert!(put(&ring, 0..777, Claim::Never).is_wake());
        ring.state_mut().sent.clear();
        assert_eq!(drain(&ring, 777), Exit::Idle);
        assert_eq!(ring.state_mut().sent, (0..777).collect::<Vec<_>>());
    }
}

#[test]
fn positions_wrap_without_a_trace() {
    let before_wrap = |items: u64| after(0, items.wrapping_neg());
    for capacity in [1, 3, 8] {
        let mut ring = ring_at(capacity, before_wrap(6));
        for i in 0..20 {
            assert!(put(&ring, [i], Claim::Never).is_wake());
            assert_eq!(ring.len(), 1);
            assert_eq!(drain(&ring, 64), Exit::Idle);
        }
        assert_eq!(ring.state_mut().sent, (0..20).collect::<Vec<_>>());
    }
    // A batch across the wrap, and a full ring there.
    let mut ring = ring_at(8, before_wrap(3));
    let mut batch: Vec<u32> = (0..9).collect();
    assert_eq!(ring.enqueue(&mut batch, Claim::Never).accepted, 8);
    assert_eq!(ring.len(), 8);
    assert_eq!(drain(&ring, 64), Exit::Idle);
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
fn what_is_in_it_is_dropped_once() {
    let dropped = Rc::new(Cell::new(0));
    let counted = || Counted(Rc::clone(&dropped));
    let ring = Ring::new(3, counted()).unwrap();
    let mut batch: Vec<Counted> = (0..5).map(|_| counted()).collect();
    assert_eq!(ring.enqueue(&mut batch, Claim::Never).accepted, 3);
    let consumer = ring.try_consume(Claim::Any).unwrap();
    let exit = consumer.drain(2, |_, drained| {
        drained.for_each(drop);
        Turn::More
    });
    assert_eq!((exit, dropped.get()), (Exit::Abdicated, 2));
    drop(batch);
    assert_eq!(dropped.get(), 4);
    // The last item, and the state.
    drop(ring);
    assert_eq!(dropped.get(), 6);
}

#[test]
fn a_turn_that_panics_loses_and_doubles_nothing() {
    let mut ring = ring(8);
    assert!(put(&ring, 0..6, Claim::Never).is_wake());
    let consumer = ring.try_consume(Claim::Any).unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        consumer.drain(64, |device, drained| {
            device.sent.extend(drained.by_ref().take(2));
            panic!("a driver")
        })
    }));
    assert!(result.is_err());
    assert_eq!((ring.status(), ring.len()), (Status::Abdicated, 4));
    assert_eq!(drain(&ring, 64), Exit::Idle);
    assert_eq!(ring.state_mut().sent, (0..6).collect::<Vec<_>>());
}

/// A panic at each of six items, in a batch that goes around the end, and in single ones.
#[test]
fn who_takes_each_and_panics_loses_and_doubles_nothing() {
    let all = (1..=6).flat_map(|at| [(false, at), (true, at)]);
    for (single, at) in all {
        let mut ring = ring(8);
        assert!(put(&ring, 100..105, Claim::Never).is_wake());
        assert_eq!(drain(&ring, 64), Exit::Idle);
        ring.state_mut().sent.clear();
        if single {
            for item in 0..6 {
                drop(put(&ring, item..item + 1, Claim::Never));
            }
        } else {
            drop(put(&ring, 0..6, Claim::Never));
        }
        let consumer = ring.try_consume(Claim::Any).unwrap();
        let mut seen = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            consumer.drain(64, |_, drained| {
                drained.take_each(|item| {
                    seen.push(item);
                    assert!(seen.len() < at, "a driver");
                });
                Turn::More
            })
        }));
        assert!(result.is_err());
        assert_eq!((ring.len(), seen.len()), (6 - at, at));
        assert_eq!(drain(&ring, 64), Exit::Idle);
        seen.append(&mut ring.state_mut().sent);
        assert_eq!(seen, (0..6).collect::<Vec<_>>(), "{single} {at}");
    }
}

#[test]
fn a_bell_wakes_only_who_sleeps() {
    let bell = Bell::new();
    assert!(!bell.ring(), "it is awake");
    assert!(!bell.try_sleep(), "it was rung for");
    assert!(bell.try_sleep());
    assert!(bell.ring(), "it sleeps");
    assert!(!bell.ring(), "the first ring wakes it");
    assert!(bell.wake());
    assert!(bell.try_sleep());
    assert!(!bell.wake(), "something else woke it");
    assert!(!bell.ring());
}
