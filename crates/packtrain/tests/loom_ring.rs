//! Models of the ring: every order of events that the memory model allows, for a few threads.
//!
//! `RUSTFLAGS="--cfg packtrain_loom" cargo test -p packtrain --release --test loom_ring`
//!
//! The bounds on switches keep all of them below half a minute. Without, each takes some minutes
//! (`a_full_ring_…`: 78 s, `a_producer_that_comes_back_…`: 125 s on two cores) up to hours.

#![cfg(packtrain_loom)]

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use packtrain::queue::ring::{Bell, Claim, Consumer, Duty, Exit, Ring, Status, Turn};
use packtrain::stats::Stall;

/// What the consumer's state is: the items in the order in which they came.
type Items = Vec<u32>;
type TestRing = Ring<u32, Items>;

/// Runs a model. More than `switches` forced switches of threads in one run are left out, if that
/// is given: loom's own paper (CDSChecker, and before it CHESS) found two or three to be enough.
fn model(switches: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches;
    builder.check(body);
}

fn ring(capacity: usize) -> Arc<TestRing> {
    Arc::new(Ring::new(capacity, Vec::new()).unwrap())
}

fn take_all(consumer: Consumer<'_, u32, Items>, budget: usize) -> Exit {
    consumer.drain(budget, |items, drained| {
        items.extend(drained);
        Turn::More
    })
}

/// Drains for as long as that is this thread's duty; true if the worker has to be woken.
fn fulfil(duty: Duty<'_, u32, Items>, budget: usize) -> bool {
    match duty {
        Duty::None => false,
        Duty::Wake => true,
        Duty::Drain(consumer) => take_all(consumer, budget) == Exit::Abdicated,
    }
}

/// Enqueues all of them, which fit; true if the worker has to be woken.
fn put(ring: &TestRing, items: &[u32], claim: Claim, budget: usize) -> bool {
    let mut batch = items.to_vec();
    let enqueued = ring.enqueue(&mut batch, claim);
    assert_eq!(enqueued.accepted, items.len());
    assert!(batch.is_empty());
    fulfil(enqueued.duty, budget)
}

/// The items of each producer (its tens) in order, each once.
fn assert_complete(items: &[u32], expected: &[u32]) {
    let mut sorted = items.to_vec();
    // Stable: the order within a producer stays.
    sorted.sort_by_key(|item| item / 10);
    assert_eq!(sorted, expected, "{items:?}");
}

/// Nobody is told, and nothing is left.
fn assert_drained(ring: Arc<TestRing>, expected: &[u32]) {
    assert_eq!(ring.status(), Status::Idle);
    assert!(ring.is_empty());
    let mut ring = Arc::try_unwrap(ring).unwrap();
    assert_complete(ring.state_mut(), expected);
}

#[test]
fn two_producers_combine() {
    model(None, || {
        let ring = ring(4);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || assert!(!put(&ring, &[10, 11], Claim::Free, 64)))
        };
        assert!(!put(&ring, &[20], Claim::Free, 64));
        other.join().unwrap();
        assert_drained(ring, &[10, 11, 20]);
    });
}

#[test]
fn three_producers_combine() {
    model(Some(3), || {
        let ring = ring(4);
        let others = [10, 20].map(|item| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || assert!(!put(&ring, &[item], Claim::Free, 64)))
        });
        assert!(!put(&ring, &[30], Claim::Any, 64));
        for other in others {
            other.join().unwrap();
        }
        assert_drained(ring, &[10, 20, 30]);
    });
}

#[test]
fn a_producer_that_comes_back_meets_the_exit_of_the_other() {
    model(Some(3), || {
        let ring = ring(2);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || assert!(!put(&ring, &[10], Claim::Free, 64)))
        };
        for item in [20, 21] {
            let mut batch = vec![item];
            while !batch.is_empty() {
                let enqueued = ring.enqueue(&mut batch, Claim::Free);
                assert!(!fulfil(enqueued.duty, 64));
                if !batch.is_empty() {
                    thread::yield_now();
                }
            }
        }
        other.join().unwrap();
        assert_drained(ring, &[10, 20, 21]);
    });
}

#[test]
fn who_does_not_drain_wakes_the_worker() {
    model(None, || {
        let ring = ring(4);
        let producers = [10, 20].map(|item| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[item], Claim::Never, 64))
        });
        let wakes = producers.map(|producer| producer.join().unwrap());
        // Only the edge from idle, since nobody drained between.
        assert_eq!(wakes.iter().filter(|wake| **wake).count(), 1);
        assert_eq!(ring.status(), Status::Abdicated);
        let consumer = ring.try_consume(Claim::Any).unwrap();
        assert_eq!(take_all(consumer, 64), Exit::Idle);
        assert_drained(ring, &[10, 20]);
    });
}

#[test]
fn whoever_takes_an_abdicated_ring_finds_all_or_is_followed() {
    model(Some(3), || {
        let ring = ring(4);
        let woken = Arc::new(AtomicBool::new(false));
        let producers = [(10, Claim::Never), (20, Claim::Any)].map(|(item, claim)| {
            let (ring, woken) = (Arc::clone(&ring), Arc::clone(&woken));
            thread::spawn(move || {
                if put(&ring, &[item], claim, 64) {
                    woken.store(true, Ordering::Release);
                }
            })
        });
        // A worker that looks too early.
        if let Some(consumer) = ring.try_consume(Claim::Any) {
            assert_ne!(take_all(consumer, 64), Exit::Abdicated);
        }
        for producer in producers {
            producer.join().unwrap();
        }
        // What is left is left with somebody told.
        match ring.status() {
            Status::Idle => {}
            Status::Abdicated => {
                assert!(woken.load(Ordering::Acquire));
                let consumer = ring.try_consume(Claim::Any).unwrap();
                assert_eq!(take_all(consumer, 64), Exit::Idle);
            }
            status => panic!("left {status:?}"),
        }
        assert_drained(ring, &[10, 20]);
    });
}

#[test]
fn a_budget_hands_over() {
    model(None, || {
        let ring = ring(4);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || put(&ring, &[10, 11], Claim::Free, 1))
        };
        let mine = put(&ring, &[20, 21], Claim::Free, 1);
        let others = other.join().unwrap();
        // Whoever drained took one of four.
        assert!(mine || others);
        assert_eq!(ring.status(), Status::Abdicated);
        let consumer = ring.try_consume(Claim::Any).unwrap();
        assert_eq!(take_all(consumer, 64), Exit::Idle);
        assert_drained(ring, &[10, 11, 20, 21]);
    });
}

#[test]
fn a_full_ring_hands_back_and_takes_again() {
    model(Some(3), || {
        let ring = ring(1);
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut batch = vec![10, 11];
                while !batch.is_empty() {
                    let enqueued = ring.enqueue(&mut batch, Claim::Free);
                    assert!(enqueued.accepted <= 1);
                    assert!(!fulfil(enqueued.duty, 64));
                    if !batch.is_empty() {
                        thread::yield_now();
                    }
                }
            })
        };
        let mut batch = vec![20];
        while !batch.is_empty() {
            assert!(!fulfil(ring.enqueue(&mut batch, Claim::Free).duty, 64));
            if !batch.is_empty() {
                thread::yield_now();
            }
        }
        other.join().unwrap();
        assert_drained(ring, &[10, 11, 20]);
    });
}

#[test]
fn a_slot_is_used_again_only_when_it_is_empty() {
    // The consumer keeps its role; producers see space by the limit that the other one wrote.
    // Nobody waits for anybody: what is refused is not tried again.
    model(Some(3), || {
        let ring = ring(1);
        let mut consumer = ring.try_consume(Claim::Any).unwrap();
        let producers = [10, 20].map(|first| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let mut accepted = Vec::new();
                for item in [first, first + 1] {
                    let enqueued = ring.enqueue(&mut Some(item), Claim::Free);
                    if enqueued.accepted == 1 {
                        accepted.push(item);
                    }
                    assert!(enqueued.duty.is_none());
                }
                accepted
            })
        });
        for _ in 0..2 {
            let said = consumer.poll(64, |items, drained| {
                items.extend(drained);
                Turn::More
            });
            assert_eq!(said, Turn::More);
        }
        let accepted = producers.map(|producer| producer.join().unwrap()).concat();
        assert!(!accepted.is_empty());
        assert_eq!(take_all(consumer, 64), Exit::Idle);
        assert_drained(ring, &accepted);
    });
}

/// A device with one descriptor, and an interrupt that says when it is free again.
struct Device {
    sent: Items,
    free: Arc<AtomicUsize>,
}

impl Device {
    fn turn(&mut self, drained: &mut packtrain::queue::ring::Drained<'_, u32, Self>) -> Turn {
        while self.free.load(Ordering::Acquire) > 0 {
            let Some(item) = drained.next() else {
                return Turn::More;
            };
            self.free.fetch_sub(1, Ordering::AcqRel);
            self.sent.push(item);
        }
        match drained.len() {
            0 => Turn::More,
            _ => Turn::Stalled(Stall::NoDescriptor),
        }
    }
}

fn drain_device(consumer: Consumer<'_, u32, Device>) -> Exit {
    consumer.drain(64, |device, drained| device.turn(drained))
}

#[test]
fn a_kick_is_never_lost_to_a_stall_that_is_about_to_be() {
    model(None, || {
        let free = Arc::new(AtomicUsize::new(1));
        let device = Device {
            sent: Vec::new(),
            free: Arc::clone(&free),
        };
        let ring = Arc::new(Ring::new(2, device).unwrap());
        let interrupt = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                free.fetch_add(1, Ordering::AcqRel);
                if let Duty::Drain(consumer) = ring.kick(Claim::Any) {
                    assert_eq!(drain_device(consumer), Exit::Idle);
                }
            })
        };
        let Duty::Drain(consumer) = ring.enqueue(&mut vec![10, 11], Claim::Free).duty else {
            panic!("nobody else enqueues")
        };
        let exit = drain_device(consumer);
        assert!(matches!(
            exit,
            Exit::Idle | Exit::Stalled(Stall::NoDescriptor)
        ));
        interrupt.join().unwrap();
        assert_eq!(ring.status(), Status::Idle);
        let mut ring = Arc::try_unwrap(ring).unwrap();
        assert_eq!(ring.state_mut().sent, [10, 11]);
    });
}

#[test]
fn a_stalled_ring_takes_items_and_the_kick_sends_them() {
    model(None, || {
        let free = Arc::new(AtomicUsize::new(0));
        let device = Device {
            sent: Vec::new(),
            free: Arc::clone(&free),
        };
        let ring = Arc::new(Ring::new(4, device).unwrap());
        let Duty::Drain(consumer) = ring.enqueue(&mut vec![10], Claim::Free).duty else {
            panic!("nobody else enqueues")
        };
        assert_eq!(drain_device(consumer), Exit::Stalled(Stall::NoDescriptor));
        let producer = {
            let ring = Arc::clone(&ring);
            thread::spawn(
                move || match ring.enqueue(&mut vec![11], Claim::Free).duty {
                    Duty::Drain(consumer) => assert_eq!(drain_device(consumer), Exit::Idle),
                    duty => assert!(duty.is_none()),
                },
            )
        };
        free.fetch_add(2, Ordering::AcqRel);
        // The worker is told, and comes.
        assert!(ring.kick(Claim::Never).is_wake());
        if let Some(consumer) = ring.try_consume(Claim::Any) {
            assert!(matches!(drain_device(consumer), Exit::Idle | Exit::Passed));
        }
        producer.join().unwrap();
        assert_eq!(ring.status(), Status::Idle);
        let mut ring = Arc::try_unwrap(ring).unwrap();
        assert_eq!(ring.state_mut().sent, [10, 11]);
    });
}

/// An eventfd.
struct Event {
    readable: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn notify(&self) {
        *self.readable.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut readable = self.readable.lock().unwrap();
        while !*readable {
            readable = self.changed.wait(readable).unwrap();
        }
        *readable = false;
    }
}

/// A worker that sleeps whenever there is nothing to do, until it has `count` items. If a wake-up
/// could be lost, loom would find the deadlock.
fn work(ring: &TestRing, bell: &Bell, event: &Event, count: usize) {
    let mut done = 0;
    while done < count {
        if let Some(consumer) = ring.try_consume(Claim::Any) {
            let exit = consumer.drain(64, |items, drained| {
                items.extend(drained);
                done = items.len();
                Turn::More
            });
            // The budget is never used up.
            assert!(matches!(exit, Exit::Idle | Exit::Passed));
        }
        if done < count && bell.try_sleep() {
            event.wait();
            bell.wake();
        }
    }
}

fn sleeping_worker(switches: Option<usize>, producers: &'static [&'static [u32]]) {
    model(switches, move || {
        let ring = ring(4);
        let bell = Arc::new(Bell::new());
        let event = Arc::new(Event {
            readable: Mutex::new(false),
            changed: Condvar::new(),
        });
        let count = producers.iter().map(|items| items.len()).sum();
        let threads: Vec<_> = producers
            .iter()
            .map(|items| {
                let (ring, bell, event) =
                    (Arc::clone(&ring), Arc::clone(&bell), Arc::clone(&event));
                thread::spawn(move || {
                    for item in *items {
                        if put(&ring, &[*item], Claim::Never, 64) && bell.ring() {
                            event.notify();
                        }
                    }
                })
            })
            .collect();
        work(&ring, &bell, &event, count);
        for thread in threads {
            thread.join().unwrap();
        }
        let expected: Vec<u32> = producers.concat();
        assert_drained(ring, &expected);
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_for_every_item() {
    sleeping_worker(Some(3), &[&[10, 11]]);
}

#[test]
fn a_worker_is_woken_by_the_producer_that_closes_the_gap() {
    sleeping_worker(Some(2), &[&[10], &[20]]);
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn what_is_left_is_dropped_once() {
    model(None, || {
        let dropped = Arc::new(AtomicUsize::new(0));
        let ring = Arc::new(Ring::new(4, ()).unwrap());
        let others = {
            let (ring, dropped) = (Arc::clone(&ring), Arc::clone(&dropped));
            thread::spawn(move || {
                let mut batch = vec![Counted(Arc::clone(&dropped)), Counted(dropped)];
                ring.enqueue(&mut batch, Claim::Never).duty.is_wake()
            })
        };
        let mut batch = Some(Counted(Arc::clone(&dropped)));
        let mine = ring.enqueue(&mut batch, Claim::Never).duty.is_wake();
        if let Some(consumer) = ring.try_consume(Claim::Any) {
            // One of them, if it is there.
            let exit = consumer.drain(1, |(), drained| {
                drop(drained.next());
                Turn::More
            });
            assert_ne!(exit, Exit::Stalled(Stall::Busy));
        }
        assert!(others.join().unwrap() || mine);
        drop(Arc::try_unwrap(ring).map_err(|_| "shared").unwrap());
        assert_eq!(dropped.load(Ordering::Acquire), 3);
    });
}
