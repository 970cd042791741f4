//! Threads that use all operations at once; conservation and order are checked.

use super::*;
use packtrain_offload::random::Random;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

/// Items of each producer.
const ITEMS: u64 = if cfg!(miri) { 40 } else { 100_000 };
/// The producers. Two of them are alike, for contention.
const PRODUCERS: [(ProducerKind, Decide); 4] = [
    (ProducerKind::Lane, direct),
    (ProducerKind::Application, direct),
    (ProducerKind::Application, deferred),
    (ProducerKind::Lane, abdicate),
];

/// The producer and the number of its item.
type Item = Box<(usize, u64)>;

/// A device whose descriptors become free some time after they were used.
#[derive(Debug)]
struct Nic {
    descriptors: Arc<AtomicUsize>,
    /// The next item of each producer.
    next: [u64; PRODUCERS.len()],
    wrong: Option<String>,
}

impl Nic {
    /// Uses a descriptor; false if none is free.
    fn accept(&mut self, take: impl FnOnce() -> Option<Item>) -> bool {
        let used = self
            .descriptors
            .try_update(Ordering::AcqRel, Ordering::Acquire, |free| {
                free.checked_sub(1)
            });
        if used.is_err() {
            return false;
        }
        let (producer, number) = *take().expect("there is one");
        let expected = std::mem::replace(&mut self.next[producer], number + 1);
        if number != expected && self.wrong.is_none() {
            self.wrong = Some(format!(
                "{number} of producer {producer} instead of {expected}"
            ));
        }
        true
    }

    fn turn(&mut self, drained: &mut Items<'_, Item, Self>) -> Turn {
        while drained.len() > 0 {
            let next = || {
                let mut next = None;
                drained.take(1, |item| next = Some(item));
                next
            };
            if !self.accept(next) {
                return Turn::Stalled;
            }
        }
        Turn::More
    }
}

type Role<'a> = ConsumerGuard<'a, Item, Nic>;

struct Shared {
    ring: Ring<Item, Nic>,
    /// Producers that wait for space.
    waiters: Mutex<[Option<Thread>; PRODUCERS.len()]>,
    worker: Thread,
    notified: AtomicBool,
    counted: AtomicUsize,
    done: AtomicBool,
}

impl Shared {
    fn notify(&self) {
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.worker.unpark();
        }
    }

    fn wake_waiters(&self) {
        let mut waiters = self.waiters.lock().unwrap();
        self.ring.clear_waiters();
        for waiter in waiters.iter_mut().filter_map(Option::take) {
            waiter.unpark();
        }
    }

    fn count(&self, count: usize) {
        self.counted.fetch_add(count, Ordering::Relaxed);
    }

    /// Drains and releases; returns the new state.
    fn finish(&self, mut role: Role<'_>, budget: usize) -> RingState {
        let from = role.from();
        let released = loop {
            let ended = role.drain(budget, Nic::turn);
            match role.release(ended) {
                Ok(released) => break released,
                Err(again) => role = again,
            }
        };
        self.after_release(from, released);
        released.state
    }

    fn after_release(&self, from: RingState, released: Released) {
        if released.wake_waiters {
            self.wake_waiters();
        }
        let edge = released.state == RingState::Stalled && from != RingState::Stalled;
        let left = matches!(released.state, RingState::Abdicated | RingState::Gap);
        if released.attention || left || edge {
            self.notify();
        }
    }

    fn produce(&self, producer: usize, mut random: Random) {
        let (from, decide) = PRODUCERS[producer];
        let mut next = 0;
        let mut batch: VecDeque<Item> = VecDeque::new();
        while next < ITEMS || !batch.is_empty() {
            let wanted = [1, 1, 3, 8, 32, 100][random.below(6) as usize];
            while batch.len() < wanted && next < ITEMS {
                batch.push_back(Box::new((producer, next)));
                next += 1;
            }
            let count = |_: &VecDeque<Item>, count| self.count(count);
            match self.ring.put(&mut batch, from, decide, count) {
                Put::Closed => unreachable!("it is open"),
                Put::Full => self.wait(producer),
                Put::Enqueued { notify } => {
                    if notify {
                        self.notify();
                    }
                }
                Put::Drain(mut role) => {
                    if role.from() == RingState::Idle {
                        let before = batch.len();
                        let nic = role.state();
                        while !batch.is_empty() && nic.accept(|| batch.pop_front()) {}
                        self.count(before - batch.len());
                        if !batch.is_empty() {
                            let accepted = role.put_rest(&mut batch, from, count);
                            assert!(accepted <= before);
                            let released = role.release(Ended::Stalled).unwrap();
                            self.after_release(RingState::Idle, released);
                            continue;
                        }
                    }
                    self.finish(role, 1 + random.below(40) as usize);
                }
            }
        }
    }

    fn wait(&self, producer: usize) {
        let waiting = |waiter| {
            let mut waiters = self.waiters.lock().unwrap();
            std::mem::replace(&mut waiters[producer], waiter)
        };
        waiting(Some(thread::current()));
        if self.ring.wait_for_space(PRODUCERS[producer].0) {
            waiting(None);
            return;
        }
        if !matches!(self.ring.state(), RingState::Idle | RingState::Busy) {
            self.notify();
        }
        while self.waiters.lock().unwrap()[producer].is_some() {
            thread::park();
        }
    }

    /// The TX worker. It sleeps until it is notified, but for a gap.
    fn work(&self, mut random: Random) {
        let mut kept = None;
        let mut notified = true;
        while !self.done.load(Ordering::Acquire) {
            let budget = 1 + random.below(100) as usize;
            let role = match kept.take() {
                Some(kept) => Some(self.ring.resume(kept)),
                None => match self.ring.attend(|state| state != RingState::Idle, notified) {
                    Attended::Claimed(role) => Some(role),
                    Attended::Busy | Attended::NotNeeded(_) => None,
                },
            };
            let mut state = RingState::Idle;
            if let Some(mut role) = role {
                notified = false;
                if random.below(2) == 0 {
                    let drained = role.drain(budget, Nic::turn);
                    let (role, wake) = role.keep();
                    if wake {
                        self.wake_waiters();
                    }
                    kept = Some(role);
                    if drained == Ended::Stalled {
                        thread::yield_now();
                    }
                    continue;
                }
                state = self.finish(role, budget);
            }
            if self.notified.swap(false, Ordering::AcqRel) {
                notified = true;
                continue;
            }
            match state {
                RingState::Gap => thread::park_timeout(Duration::from_micros(50)),
                _ => thread::park(),
            }
            notified |= self.notified.swap(false, Ordering::AcqRel);
        }
    }

    /// Frees descriptors, and notifies the worker.
    fn interrupt(&self, descriptors: &AtomicUsize, mut random: Random) {
        while !self.done.load(Ordering::Acquire) {
            if descriptors.load(Ordering::Acquire) < 64 {
                descriptors.fetch_add(1 + random.below(96) as usize, Ordering::AcqRel);
                self.notify();
            }
            thread::yield_now();
        }
    }
}

fn run(capacity: usize, seed: u64) {
    let descriptors = Arc::new(AtomicUsize::new(0));
    let nic = Nic {
        descriptors: Arc::clone(&descriptors),
        next: [0; PRODUCERS.len()],
        wrong: None,
    };
    let mut shared = Shared {
        ring: Ring::new(capacity, nic),
        waiters: Mutex::default(),
        worker: thread::current(),
        notified: AtomicBool::new(false),
        counted: AtomicUsize::new(0),
        done: AtomicBool::new(false),
    };
    shared.ring.withhold(capacity / 2);
    let random = |which: u64| Random::new(seed ^ (which << 32));
    thread::scope(|scope| {
        let shared = &shared;
        let producers: Vec<_> = (0..PRODUCERS.len())
            .map(|one| scope.spawn(move || shared.produce(one, random(one as u64))))
            .collect();
        scope.spawn(move || shared.interrupt(&descriptors, random(10)));
        scope.spawn(move || {
            let result: Vec<_> = producers
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect();
            // All items are in the ring. When it is idle, all are out.
            while shared.ring.state() != RingState::Idle && result.iter().all(Result::is_ok) {
                thread::yield_now();
            }
            shared.done.store(true, Ordering::Release);
            shared.notify();
            for one in result {
                one.expect("a producer failed");
            }
        });
        shared.work(random(20));
    });
    let total = ITEMS as usize * PRODUCERS.len();
    assert_eq!(shared.counted.into_inner(), total);
    let nic = shared.ring.state_mut();
    assert_eq!(nic.wrong, None, "seed {seed:#x}, capacity {capacity}");
    assert_eq!(
        nic.next,
        [ITEMS; PRODUCERS.len()],
        "seed {seed:#x}, capacity {capacity}"
    );
}

/// If a wake-up of the worker or of a waiting producer is lost, the test hangs.
#[test]
fn each_item_comes_out_once_and_in_order() {
    for (capacity, seed) in [(1, 0x51), (7, 0x52), (64, 0x53), (512, 0x54)] {
        run(capacity, seed);
    }
}
