//! The rings, each with the loops that are measured.
//!
//! All do the same work: numbers from 1 on are written to a batch, enqueued, taken out as the ring
//! gives them (DPDK's into a table, crossbeam's one by one, ours in place), and added up.

use packtrain::policy::dispatch::{Decision, RingState};
use packtrain::queue::ring::{Batch, ConsumerGuard, Ended, Items, ProducerKind, Put, Ring, Turn};
use std::hint::spin_loop;
use std::thread::yield_now;

/// What a producer does at a full ring, and a consumer at an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Spins: the other thread has a CPU of its own.
    Spin,
    /// Gives its CPU to other threads.
    Yield,
}

impl Wait {
    /// Waits for a moment.
    #[inline(always)]
    pub fn once(self) {
        match self {
            Self::Spin => spin_loop(),
            Self::Yield => yield_now(),
        }
    }
}

/// A ring with many producers and one consumer. `burst` divides what is put in.
pub trait Queue: Sync {
    /// Puts the `total` numbers after `first` in, waiting where it is full.
    fn produce(&self, burst: usize, first: u64, total: u64, wait: Wait);

    /// Takes `total` numbers out, waiting where it is empty; gives their sum. One thread at a time.
    fn consume(&self, burst: usize, total: u64, wait: Wait) -> u64;

    /// One burst in, one burst out, in one thread.
    fn same(&self, burst: usize, total: u64) -> u64;
}

/// Items of a burst.
const BURST_MAX: usize = 64;

/// A table on the stack, aligned for the widest vectors, as that of the peer in C is: else
/// some of what is written and read crosses cache lines in one of them only.
#[repr(align(64))]
struct Table([u64; BURST_MAX]);

impl Table {
    const fn new() -> Self {
        Self([0; BURST_MAX])
    }
}

/// The `burst` numbers after `from`.
#[inline(always)]
fn fill(table: &mut Table, from: u64, burst: usize) -> &[u64] {
    let items = &mut table.0[..burst];
    for (item, number) in items.iter_mut().zip(from + 1..) {
        *item = number;
    }
    items
}

/// A producer that never drains.
fn deferred(_: RingState) -> Decision {
    Decision::Enqueue
}

/// A producer that drains wherever it can.
fn direct(_: RingState) -> Decision {
    Decision::Drain
}

/// Enqueues as many items as fit; false if none fits.
#[inline(always)]
fn enqueue(ring: &Ring<u64, ()>, batch: &mut impl Batch<u64>) -> bool {
    match ring.put(batch, ProducerKind::Lane, deferred, |_, _| {}) {
        Put::Enqueued { .. } => true,
        Put::Full => false,
        Put::Closed | Put::Drain(_) => unreachable!("it is open, and deferred"),
    }
}

/// The role, until all items are taken.
fn consumer(ring: &Ring<u64, ()>) -> ConsumerGuard<'_, u64, ()> {
    ring.claim(|_| true).expect("no thread has the role")
}

/// One turn: takes at most `burst` items. It does not touch the head, as a consumer that polls.
#[inline(always)]
fn poll(
    consumer: &mut ConsumerGuard<'_, u64, ()>,
    burst: usize,
    take: impl FnOnce(&mut Items<'_, u64, ()>),
) {
    let mut take = Some(take);
    let drained = consumer.drain(burst, |(), drained| {
        if let Some(take) = take.take() {
            take(drained);
        }
        // It ends the drain.
        Turn::Stalled
    });
    assert_eq!(drained, Ended::Stalled);
}

fn release(consumer: ConsumerGuard<'_, u64, ()>) {
    let released = consumer.release(Ended::Budget).unwrap();
    assert_eq!(released.state, RingState::Idle);
}

/// Ours, with a consumer that keeps its role, as one that polls does.
pub struct Polled(pub Ring<u64, ()>);

impl Queue for Polled {
    fn produce(&self, burst: usize, first: u64, total: u64, wait: Wait) {
        let mut done = 0;
        if burst == 1 {
            while done < total {
                while !enqueue(&self.0, &mut &[first + done + 1][..]) {
                    wait.once();
                }
                done += 1;
            }
            return;
        }
        let mut items = Table::new();
        while done < total {
            let mut batch = fill(&mut items, first + done, burst);
            while !batch.is_empty() {
                if !enqueue(&self.0, &mut batch) {
                    wait.once();
                }
            }
            done += burst as u64;
        }
    }

    fn consume(&self, burst: usize, total: u64, wait: Wait) -> u64 {
        let mut consumer = consumer(&self.0);
        let (mut done, mut result) = (0, 0);
        while done < total {
            let before = done;
            poll(&mut consumer, burst, |drained| {
                done += drained.len() as u64;
                drained.take(burst, |item| result += item);
            });
            if done == before {
                wait.once();
            }
        }
        release(consumer);
        result
    }

    fn same(&self, burst: usize, total: u64) -> u64 {
        if burst == 1 {
            self.same_one(total)
        } else {
            self.same_bursts(burst, total)
        }
    }
}

/// Separate loops, so that each is compiled as in a program that needs only one.
impl Polled {
    #[inline(never)]
    fn same_one(&self, total: u64) -> u64 {
        let mut consumer = consumer(&self.0);
        let mut result = 0;
        for item in 1..=total {
            assert!(enqueue(&self.0, &mut &[item][..]), "it has space");
            poll(&mut consumer, 1, |drained| {
                drained.take(1, |item| result += item);
            });
        }
        release(consumer);
        result
    }

    #[inline(never)]
    fn same_bursts(&self, burst: usize, total: u64) -> u64 {
        let mut consumer = consumer(&self.0);
        let mut items = Table::new();
        let (mut done, mut result) = (0, 0);
        while done < total {
            let mut batch = fill(&mut items, done, burst);
            assert!(enqueue(&self.0, &mut batch), "it has space");
            result += Self::take(&mut consumer, burst);
            done += burst as u64;
        }
        release(consumer);
        result
    }

    #[inline(always)]
    fn take(consumer: &mut ConsumerGuard<'_, u64, ()>, burst: usize) -> u64 {
        let mut sum = 0;
        poll(consumer, burst, |drained| {
            drained.take(burst, |item| sum += item);
        });
        sum
    }
}

/// Ours in direct dispatch: each burst claims the idle ring, bypasses its slots, and leaves it
/// idle.
pub struct Direct(pub Ring<u64, ()>);

impl Queue for Direct {
    fn produce(&self, _burst: usize, _first: u64, _total: u64, _wait: Wait) {
        unreachable!("direct dispatch is measured in one thread");
    }

    fn consume(&self, _burst: usize, _total: u64, _wait: Wait) -> u64 {
        unreachable!("direct dispatch is measured in one thread");
    }

    fn same(&self, burst: usize, total: u64) -> u64 {
        let mut items = Table::new();
        let (mut done, mut result) = (0, 0);
        while done < total {
            result += if burst == 1 {
                self.send(&[done + 1])
            } else {
                self.send(fill(&mut items, done, burst))
            };
            done += burst as u64;
        }
        result
    }
}

impl Direct {
    #[inline(always)]
    fn send(&self, mut batch: &[u64]) -> u64 {
        let put = self
            .0
            .put(&mut batch, ProducerKind::Lane, direct, |_, _| {});
        let Put::Drain(consumer) = put else {
            unreachable!("it was idle");
        };
        let sum = batch.iter().sum();
        let released = consumer.release(Ended::Empty).expect("no other producer");
        assert_eq!(released.state, RingState::Idle);
        sum
    }
}

/// crossbeam's ring, which takes one item at a time.
#[cfg(feature = "peers")]
pub struct Array(pub crossbeam_queue::ArrayQueue<u64>);

#[cfg(feature = "peers")]
impl Queue for Array {
    fn produce(&self, burst: usize, first: u64, total: u64, wait: Wait) {
        let mut batch = Vec::with_capacity(burst);
        let mut done = 0;
        while done < total {
            batch.extend(first + done + 1..first + done + 1 + burst as u64);
            for item in batch.drain(..) {
                while self.0.push(item).is_err() {
                    wait.once();
                }
            }
            done += burst as u64;
        }
    }

    fn consume(&self, _burst: usize, total: u64, wait: Wait) -> u64 {
        let (mut done, mut result) = (0, 0);
        while done < total {
            if let Some(item) = self.0.pop() {
                result += item;
                done += 1;
            } else {
                wait.once();
            }
        }
        result
    }

    fn same(&self, burst: usize, total: u64) -> u64 {
        let mut batch = Vec::with_capacity(burst);
        let (mut done, mut result) = (0, 0);
        while done < total {
            batch.extend(done + 1..done + 1 + burst as u64);
            for item in batch.drain(..) {
                assert!(self.0.push(item).is_ok(), "it has room");
            }
            for _ in 0..burst {
                result += self.0.pop().expect("it was put in");
            }
            done += burst as u64;
        }
        result
    }
}
