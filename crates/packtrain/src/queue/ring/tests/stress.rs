//! Threads that do everything at once, with conservation as the check.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

/// Items of each producer.
const ITEMS: u64 = if cfg!(miri) { 60 } else { 150_000 };
/// The first claims like the second, so that two of them meet.
const CLAIMS: [Claim; 4] = [Claim::Free, Claim::Free, Claim::Never, Claim::Any];

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }
}

/// What every producer's items have in them.
type Item = Box<(usize, u64)>;

/// A device with descriptors that come back some time after they were used.
struct Nic {
    descriptors: Arc<AtomicUsize>,
    /// What is next of each producer.
    next: [u64; CLAIMS.len()],
    wrong: Option<String>,
}

impl Nic {
    fn send(&mut self, drained: &mut Drained<'_, Item, Self>) -> Turn {
        while drained.len() > 0 {
            let used = self
                .descriptors
                .try_update(Ordering::AcqRel, Ordering::Acquire, |free| {
                    free.checked_sub(1)
                });
            if used.is_err() {
                return Turn::Stalled(Stall::NoDescriptor);
            }
            let (producer, number) = *drained.next().expect("there is one");
            if self.next[producer] != number {
                let expected = self.next[producer];
                self.wrong = self.wrong.take().or(Some(format!(
                    "{number} of producer {producer} where {expected} was next"
                )));
            }
            self.next[producer] = number + 1;
        }
        Turn::More
    }
}

struct Shared {
    ring: Ring<Item, Nic>,
    bell: Bell,
    worker: thread::Thread,
    done: AtomicBool,
}

impl Shared {
    fn wake(&self) {
        if self.bell.ring() {
            self.worker.unpark();
        }
    }

    fn fulfil(&self, duty: Duty<'_, Item, Nic>, budget: usize) {
        match duty {
            Duty::None => {}
            Duty::Wake => self.wake(),
            Duty::Drain(consumer) => match consumer.drain(budget, Nic::send) {
                Exit::Abdicated => self.wake(),
                Exit::Idle | Exit::Passed | Exit::Stalled(_) => {}
            },
        }
    }

    fn produce(&self, producer: usize, mut random: Random) {
        let mut next = 0;
        let mut batch: VecDeque<Item> = VecDeque::new();
        while next < ITEMS || !batch.is_empty() {
            let wanted = [1, 1, 3, 8, 32, 100][random.below(6) as usize];
            while batch.len() < wanted && next < ITEMS {
                batch.push_back(Box::new((producer, next)));
                next += 1;
            }
            let before = batch.len();
            let enqueued = self.ring.enqueue(&mut batch, CLAIMS[producer]);
            assert_eq!(batch.len(), before - enqueued.accepted);
            let full = enqueued.accepted == 0;
            self.fulfil(enqueued.duty, 1 + random.below(40) as usize);
            if full {
                thread::yield_now();
            }
        }
    }

    /// Sleeps until it is rung for.
    fn work(&self, mut random: Random) {
        while !self.done.load(Ordering::Acquire) {
            let budget = 1 + random.below(100) as usize;
            if let Some(consumer) = self.ring.try_consume(Claim::Any)
                && consumer.drain(budget, Nic::send) == Exit::Abdicated
            {
                continue;
            }
            if self.bell.try_sleep() {
                thread::park();
                self.bell.wake();
            }
        }
    }

    /// Gives descriptors back, and says so.
    fn interrupt(&self, descriptors: &AtomicUsize, mut random: Random) {
        while !self.done.load(Ordering::Acquire) {
            if descriptors.load(Ordering::Acquire) < 64 {
                descriptors.fetch_add(1 + random.below(96) as usize, Ordering::AcqRel);
                let claim = [Claim::Never, Claim::Free][random.below(2) as usize];
                self.fulfil(self.ring.kick(claim), 1 + random.below(40) as usize);
            }
            thread::yield_now();
        }
    }
}

fn run(capacity: usize, seed: u64, by_kernel: bool) {
    let descriptors = Arc::new(AtomicUsize::new(0));
    let nic = Nic {
        descriptors: Arc::clone(&descriptors),
        next: [0; CLAIMS.len()],
        wrong: None,
    };
    let ring = Ring::new(capacity, nic).unwrap();
    let mut shared = Shared {
        ring: if by_kernel {
            ring
        } else {
            without_kernel(ring)
        },
        bell: Bell::new(),
        worker: thread::current(),
        done: AtomicBool::new(false),
    };
    let random = |which: u64| Random(seed ^ (which << 32));
    thread::scope(|scope| {
        let shared = &shared;
        let producers: Vec<_> = (0..CLAIMS.len())
            .map(|one| scope.spawn(move || shared.produce(one, random(one as u64))))
            .collect();
        scope.spawn(move || shared.interrupt(&descriptors, random(10)));
        scope.spawn(move || {
            let result: Vec<_> = producers
                .into_iter()
                .map(thread::ScopedJoinHandle::join)
                .collect();
            // All is in the ring. When nobody is at work any more, all is out.
            while shared.ring.status() != Status::Idle && result.iter().all(Result::is_ok) {
                thread::yield_now();
            }
            shared.done.store(true, Ordering::Release);
            shared.wake();
            for one in result {
                one.expect("a producer failed");
            }
        });
        shared.work(random(20));
    });
    let nic = shared.ring.state_mut();
    assert_eq!(nic.wrong, None, "seed {seed:#x}, capacity {capacity}");
    assert_eq!(
        nic.next,
        [ITEMS; CLAIMS.len()],
        "seed {seed:#x}, capacity {capacity}"
    );
}

#[test]
fn every_item_comes_out_once_and_in_order() {
    for (capacity, seed) in [(1, 0x51), (7, 0x52), (64, 0x53), (512, 0x54)] {
        // A ring of one slot is all about waiting for another thread.
        run(capacity, seed, true);
    }
}

/// Each producer has a fence, as where `membarrier(2)` is refused.
#[test]
fn so_it_does_where_the_kernel_does_not_help() {
    run(64, 0x55, false);
}
