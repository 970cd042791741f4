//! Models of the ring: all orders of events that the memory model allows, for a few threads.
//!
//! `RUSTFLAGS="--cfg packtrain_loom" cargo test -p packtrain --profile loom --test loom_ring`
//!
//! Models of three threads bound the number of preemptions: without the bound they take minutes.

#![cfg(packtrain_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use packtrain::policy::dispatch::{Decision, Dispatch, RingState};
use packtrain::queue::ring::{
    Attended, ConsumerGuard, Ended, Items, ProducerKind, Put, Released, Ring, Turn,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The consumer's state: the items in the order in which they came.
type Sent = Vec<u32>;
type TestRing = Ring<u32, Sent>;
type Guard<'a> = ConsumerGuard<'a, u32, Sent>;

/// Runs a model, with at most `preemptions` in one run if that is given. The authors of loom's
/// algorithm (CDSChecker), and of CHESS before it, found two or three to be enough.
fn model(preemptions: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(body);
}

fn ring(capacity: usize) -> Arc<TestRing> {
    Arc::new(Ring::new(capacity, Vec::new()))
}

/// What a producer does in two dispatch modes of the product.
fn direct(state: RingState) -> Decision {
    Dispatch::Direct.decide(state, 0)
}

fn deferred(state: RingState) -> Decision {
    Dispatch::Deferred.decide(state, 0)
}

fn turn(items: &mut Sent, drained: &mut Items<'_, u32, Sent>) -> Turn {
    drained.take(usize::MAX, |item| items.push(item));
    Turn::More
}

/// Takes the published items, in one turn.
fn poll(guard: &mut Guard<'_>) {
    let drained = guard.drain(64, |items, drained| {
        assert_eq!(turn(items, drained), Turn::More);
        // The stall ends the drain.
        Turn::Stalled
    });
    assert_eq!(drained, Ended::Stalled);
}

/// Drains and releases.
fn drain(mut guard: Guard<'_>, budget: usize) -> Released {
    loop {
        let ended = guard.drain(budget, turn);
        match guard.release(ended) {
            Ok(released) => return released,
            Err(again) => guard = again,
        }
    }
}

/// Whether a release of a producer notifies the TX worker. No device stalls.
fn notifies(released: Released) -> bool {
    released.attention || matches!(released.state, RingState::Abdicated | RingState::Gap)
}

/// Puts all items, which fit, and drains if `decide` says so. Returns true if the TX worker must be
/// notified.
fn put(ring: &TestRing, items: &[u32], decide: fn(RingState) -> Decision, budget: usize) -> bool {
    let mut batch = items;
    match ring.put(&mut batch, ProducerKind::Lane, decide, |_, _| {}) {
        Put::Enqueued { notify } => {
            assert!(batch.is_empty(), "the ring has space");
            notify
        }
        Put::Drain(mut guard) => {
            // Without using slots, if the ring was idle.
            guard.state().extend(batch);
            notifies(drain(guard, budget))
        }
        other => panic!("{other:?}"),
    }
}

/// Drains as the TX worker until the ring is idle. All slots are published.
fn drain_all(ring: &TestRing) {
    match ring.attend(|state| state != RingState::Idle, false) {
        Attended::Claimed(guard) => assert_eq!(drain(guard, 64).state, RingState::Idle),
        Attended::NotNeeded(RingState::Idle) => {}
        other => panic!("{other:?}"),
    }
}

/// Checks that each item came out once, and those of each producer (its tens) in order.
fn assert_complete(items: &[u32], expected: &[u32]) {
    let mut sorted = items.to_vec();
    // Stable: the order of each producer is kept.
    sorted.sort_by_key(|item| item / 10);
    assert_eq!(sorted, expected, "{items:?}");
}

/// Checks that the ring is idle, and that all items came out.
fn assert_drained(ring: Arc<TestRing>, expected: &[u32]) {
    assert_eq!(ring.state(), RingState::Idle);
    assert!(ring.is_empty());
    let mut guard = ring.claim(|_| true).expect("ATTENTION is clear");
    assert_complete(guard.state(), expected);
}

#[test]
fn of_two_producers_one_drains_for_both_or_each_for_itself() {
    model(None, || {
        let ring = ring(4);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[10, 11], direct, 64))
        };
        let mine = put(&ring, &[20], direct, 64);
        let others = other.join().unwrap();
        // The TX worker must be notified only at a gap.
        assert_eq!(mine || others, ring.state() != RingState::Idle);
        drain_all(&ring);
        assert_drained(ring, &[10, 11, 20]);
    });
}

#[test]
fn a_release_to_idle_fails_if_a_slot_was_reserved() {
    model(Some(3), || {
        let ring = ring(4);
        let others = [10, 20].map(|item| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[item], direct, 64))
        });
        let mine = put(&ring, &[30], direct, 64);
        let others = others.map(|other| other.join().unwrap());
        assert!(mine || others.contains(&true) || ring.state() == RingState::Idle);
        drain_all(&ring);
        assert_drained(ring, &[10, 20, 30]);
    });
}

#[test]
fn a_batch_that_bypasses_the_slots_keeps_its_order_if_it_is_refused() {
    model(None, || {
        let ring = ring(4);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[10], deferred, 64))
        };
        let mut batch = &[20, 21, 22][..];
        match ring.put(&mut batch, ProducerKind::Lane, direct, |_, _| {}) {
            Put::Drain(mut guard) if guard.from() == RingState::Idle => {
                // The device accepts one.
                guard.state().push(batch[0]);
                batch = &batch[1..];
                assert_eq!(guard.put_rest(&mut batch, ProducerKind::Lane, |_, _| {}), 2);
                let released = guard.release(Ended::Stalled).unwrap();
                assert_eq!(released.state, RingState::Stalled);
            }
            Put::Drain(guard) => assert!(!drain(guard, 64).attention),
            other => panic!("{other:?}"),
        }
        other.join().unwrap();
        drain_all(&ring);
        assert_drained(ring, &[10, 20, 21, 22]);
    });
}

#[test]
fn deferred_producers_notify_once() {
    model(None, || {
        let ring = ring(4);
        let producers = [10, 20].map(|item| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[item], deferred, 64))
        });
        let notified = producers.map(|producer| producer.join().unwrap());
        assert_eq!(notified.iter().filter(|one| **one).count(), 1);
        assert_eq!(ring.state(), RingState::Abdicated);
        drain_all(&ring);
        assert_drained(ring, &[10, 20]);
    });
}

#[test]
fn a_budget_that_is_used_up_leaves_a_notification() {
    model(None, || {
        let ring = ring(4);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[10, 11], direct, 1))
        };
        let mine = put(&ring, &[20, 21], direct, 1);
        let others = other.join().unwrap();
        match ring.state() {
            RingState::Idle => {}
            RingState::Abdicated | RingState::Gap => assert!(mine || others),
            state => panic!("{state:?}"),
        }
        drain_all(&ring);
        assert_drained(ring, &[10, 11, 20, 21]);
    });
}

/// The TX worker runs at each moment of a deferred producer.
#[test]
fn an_unpublished_slot_is_a_gap_and_never_taken() {
    model(None, || {
        let ring = ring(2);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let notify = put(&ring, &[10, 11], deferred, 64);
                assert!(notify);
            })
        };
        let mut left = RingState::Idle;
        if let Attended::Claimed(guard) = ring.attend(|state| state != RingState::Idle, false) {
            left = drain(guard, 64).state;
        }
        producer.join().unwrap();
        match ring.state() {
            RingState::Idle => assert_eq!(left, RingState::Idle),
            RingState::Gap => assert_eq!(left, RingState::Gap),
            // The worker ran before the producer.
            RingState::Abdicated => assert_eq!(left, RingState::Idle),
            state => panic!("{state:?}"),
        }
        drain_all(&ring);
        assert_drained(ring, &[10, 11]);
    });
}

#[test]
fn a_slot_is_used_again_only_when_it_is_empty() {
    // The consumer keeps its role; a producer sees space by the limit that the other one stored.
    // Refused items are not put in again.
    model(Some(3), || {
        let ring = ring(1);
        let Attended::Claimed(mut guard) = ring.attend(|_| true, false) else {
            panic!("no other thread has the role");
        };
        let producers = [10, 20].map(|first| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let accepted = [first, first + 1].into_iter().filter(|item| {
                    let mut batch = std::slice::from_ref(item);
                    match ring.put(&mut batch, ProducerKind::Lane, direct, |_, _| {}) {
                        Put::Enqueued { notify } => assert!(!notify),
                        Put::Full => {}
                        other => panic!("{other:?}"),
                    }
                    batch.is_empty()
                });
                accepted.collect::<Vec<_>>()
            })
        });
        for _ in 0..2 {
            poll(&mut guard);
        }
        let accepted = producers.map(|producer| producer.join().unwrap()).concat();
        assert!(!accepted.is_empty());
        assert_eq!(drain(guard, 64).state, RingState::Idle);
        assert_drained(ring, &accepted);
    });
}

#[test]
fn a_panic_in_a_drain_leaves_all_other_items() {
    model(None, || {
        let ring = ring(4);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[10], direct, 64))
        };
        let mut batch = &[20, 21][..];
        let panicked = match ring.put(&mut batch, ProducerKind::Lane, deferred, |_, _| {}) {
            Put::Enqueued { .. } => match ring.attend(|_| true, false) {
                Attended::Claimed(mut guard) => catch_unwind(AssertUnwindSafe(move || {
                    let drained = guard.drain(64, |items, drained| {
                        drained.take(1, |item| items.push(item));
                        panic!("a driver");
                    });
                    panic!("{drained:?}");
                }))
                .is_err(),
                Attended::Busy => false,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let others = other.join().unwrap();
        match ring.state() {
            // The other producer drained after the panic, or before this one claimed.
            RingState::Idle => {}
            RingState::Abdicated => assert!(panicked || others),
            RingState::Gap => assert!(others),
            state => panic!("{state:?}"),
        }
        drain_all(&ring);
        assert_drained(ring, &[10, 20, 21]);
    });
}

#[test]
fn a_closed_ring_has_all_that_it_accepted() {
    model(None, || {
        let ring = ring(4);
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let accepted = [10, 11].into_iter().filter(|item| {
                    let mut batch = std::slice::from_ref(item);
                    let put = ring.put(&mut batch, ProducerKind::Application, deferred, |_, _| {});
                    assert_eq!(batch.is_empty(), matches!(put, Put::Enqueued { .. }));
                    batch.is_empty()
                });
                accepted.collect::<Vec<_>>()
            })
        };
        ring.close(ProducerKind::Application);
        // The TX worker of a session that ends: until all reserved slots are published and taken.
        let mut guard = match ring.attend(|_| true, false) {
            Attended::Claimed(guard) => guard,
            other => panic!("{other:?}"),
        };
        while guard.drain(64, turn) != Ended::Empty {
            thread::yield_now();
        }
        let ended = guard.state().clone();
        assert_eq!(drain(guard, 64).state, RingState::Idle);
        assert_eq!(producer.join().unwrap(), ended);
        assert_drained(ring, &ended);
    });
}

/// A full ring, a producer that waits for space, and a consumer that makes some.
fn waiting(make_space: fn(Guard<'_>) -> bool) {
    model(None, move || {
        let ring = ring(1);
        assert!(put(&ring, &[10], deferred, 64));
        let waiter = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.wait_for_space(ProducerKind::Lane))
        };
        let Attended::Claimed(mut guard) = ring.attend(|_| true, false) else {
            panic!("no other thread has the role");
        };
        poll(&mut guard);
        let wakes = make_space(guard);
        let has_space = waiter.join().unwrap();
        assert!(has_space || wakes, "the waiter sleeps beside a free slot");
    });
}

#[test]
fn a_waiter_sees_the_space_or_the_release_sees_the_waiter() {
    waiting(|guard| guard.release(Ended::Empty).unwrap().wake_waiters);
    waiting(|guard| guard.release(Ended::Stalled).unwrap().wake_waiters);
}

#[test]
fn a_waiter_sees_the_space_or_the_kept_role_sees_the_waiter() {
    waiting(|guard| guard.keep().1);
}

/// A producer has the role when the TX worker needs it.
fn attention(preemptions: Option<usize>, decide: fn(RingState) -> Decision) {
    model(preemptions, move || {
        let ring = ring(2);
        let mut batch = &[10][..];
        let Put::Drain(guard) = ring.put(&mut batch, ProducerKind::Lane, direct, |_, _| {}) else {
            panic!("the ring is idle");
        };
        let (kept, _) = guard.keep();
        let holder = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut guard = ring.resume(kept);
                guard.state().push(10);
                notifies(drain(guard, 64))
            })
        };
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[20], decide, 64))
        };
        let busy = match ring.attend(|_| true, true) {
            Attended::Busy => true,
            Attended::Claimed(guard) => {
                let released = drain(guard, 64);
                assert!(matches!(released.state, RingState::Idle | RingState::Gap));
                false
            }
            other => panic!("{other:?}"),
        };
        let holders = holder.join().unwrap();
        let others = other.join().unwrap();
        if busy {
            // The TX worker may sleep: a release notifies it, and no producer claims in between.
            assert!(holders || others, "the worker sleeps");
            assert_eq!(ring.state(), RingState::Abdicated);
            assert!(ring.claim(|_| true).is_none(), "ATTENTION is set");
            let Attended::Claimed(guard) = ring.attend(|_| true, true) else {
                panic!("no other thread has the role");
            };
            assert_eq!(
                drain(guard, 64).state,
                RingState::Idle,
                "ATTENTION is clear"
            );
        }
        drain_all(&ring);
        assert_drained(ring, &[10, 20]);
    });
}

#[test]
fn a_release_sees_attention_or_the_worker_claims() {
    attention(Some(3), direct);
}

#[test]
fn attention_survives_a_deferred_producer() {
    attention(Some(3), deferred);
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn items_that_are_left_are_dropped_once() {
    model(None, || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let ring: Arc<Ring<Counted, ()>> = Arc::new(Ring::new(4, ()));
        let produce = |ring: &Ring<Counted, ()>, count, dropped: &Arc<AtomicUsize>| {
            let items = (0..count).map(|_| Counted(Arc::clone(dropped)));
            let mut batch = items.collect::<std::collections::VecDeque<_>>();
            let put = ring.put(&mut batch, ProducerKind::Lane, deferred, |_, _| {});
            matches!(put, Put::Enqueued { notify: true })
        };
        let other = {
            let (ring, dropped) = (Arc::clone(&ring), Arc::clone(&dropped));
            thread::spawn(move || produce(&ring, 2, &dropped))
        };
        let mine = produce(&ring, 1, &dropped);
        if let Some(mut guard) = ring.claim(|_| true) {
            // One of the items, if it is published.
            let drained = guard.drain(1, |(), drained| {
                drained.take(1, drop);
                Turn::Stalled
            });
            assert_eq!(drained, Ended::Stalled);
        }
        assert!(other.join().unwrap() || mine);
        drop(Arc::try_unwrap(ring).map_err(|_| "shared").unwrap());
        assert_eq!(dropped.load(Ordering::Acquire), 3);
    });
}
