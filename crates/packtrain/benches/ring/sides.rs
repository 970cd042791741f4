//! The rings, each with the loops that are measured.
//!
//! All do the same work: numbers from 1 on are written to a batch, enqueued, taken out as the ring
//! gives them (DPDK's into a table, crossbeam's one by one, ours in place), and added up.

use packtrain::queue::ring::{Claim, Consumer, Duty, Exit, Ring, Turn};
use std::hint::spin_loop;

/// A ring with many producers and one consumer. `burst` divides what is put in.
pub trait Queue: Sync {
    /// Puts the `total` numbers after `first` in, waiting where it is full.
    fn produce(&self, burst: usize, first: u64, total: u64);

    /// Takes `total` numbers out; gives their sum. One thread at a time.
    fn consume(&self, burst: usize, total: u64) -> u64;

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

/// Ours, with a consumer that keeps its role, as one that polls does.
pub struct Polled(pub Ring<u64, ()>);

impl Queue for Polled {
    fn produce(&self, burst: usize, first: u64, total: u64) {
        let mut done = 0;
        if burst == 1 {
            while done < total {
                let mut one = Some(first + done + 1);
                while self.0.enqueue(&mut one, Claim::Never).accepted == 0 {
                    spin_loop();
                }
                done += 1;
            }
            return;
        }
        let mut items = Table::new();
        while done < total {
            let mut batch = fill(&mut items, first + done, burst);
            while !batch.is_empty() {
                if self.0.enqueue(&mut batch, Claim::Never).accepted == 0 {
                    spin_loop();
                }
            }
            done += burst as u64;
        }
    }

    fn consume(&self, burst: usize, total: u64) -> u64 {
        let mut consumer = self.0.try_consume(Claim::Any).expect("nobody has the role");
        let (mut done, mut result) = (0, 0);
        while done < total {
            let before = done;
            let said = consumer.poll(burst, |(), drained| {
                done += drained.len() as u64;
                drained.take_each(|item| result += item);
                Turn::More
            });
            assert_eq!(said, Turn::More);
            if done == before {
                spin_loop();
            }
        }
        assert_eq!(consumer.leave(Turn::More), Exit::Idle);
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

/// The loops apart, so that each is compiled as who needs only one would have it.
impl Polled {
    #[inline(never)]
    fn same_one(&self, total: u64) -> u64 {
        let mut consumer = self.0.try_consume(Claim::Any).expect("nobody has the role");
        let mut result = 0;
        for item in 1..=total {
            let enqueued = self.0.enqueue(&mut Some(item), Claim::Never);
            assert!(enqueued.duty.is_none());
            let said = consumer.poll(1, |(), drained| {
                result += drained.next().unwrap_or(0);
                Turn::More
            });
            assert_eq!(said, Turn::More);
        }
        assert_eq!(consumer.leave(Turn::More), Exit::Idle);
        result
    }

    #[inline(never)]
    fn same_bursts(&self, burst: usize, total: u64) -> u64 {
        let mut consumer = self.0.try_consume(Claim::Any).expect("nobody has the role");
        let mut items = Table::new();
        let (mut done, mut result) = (0, 0);
        while done < total {
            let mut batch = fill(&mut items, done, burst);
            assert!(self.0.enqueue(&mut batch, Claim::Never).duty.is_none());
            result += Self::take(&mut consumer, burst);
            done += burst as u64;
        }
        assert_eq!(consumer.leave(Turn::More), Exit::Idle);
        result
    }

    #[inline(always)]
    fn take(consumer: &mut Consumer<'_, u64, ()>, burst: usize) -> u64 {
        let mut sum = 0;
        let said = consumer.poll(burst, |(), drained| {
            drained.take_each(|item| sum += item);
            Turn::More
        });
        assert_eq!(said, Turn::More);
        sum
    }
}

/// Ours in direct dispatch: each burst takes the role, drains, and leaves the ring idle.
pub struct Direct(pub Ring<u64, ()>);

impl Queue for Direct {
    fn produce(&self, _burst: usize, _first: u64, _total: u64) {
        unreachable!("direct dispatch is measured in one thread");
    }

    fn consume(&self, _burst: usize, _total: u64) -> u64 {
        unreachable!("direct dispatch is measured in one thread");
    }

    fn same(&self, burst: usize, total: u64) -> u64 {
        let mut items = Table::new();
        let (mut done, mut result) = (0, 0);
        while done < total {
            let enqueued = if burst == 1 {
                self.0.enqueue(&mut Some(done + 1), Claim::Free)
            } else {
                self.0
                    .enqueue(&mut fill(&mut items, done, burst), Claim::Free)
            };
            let Duty::Drain(consumer) = enqueued.duty else {
                unreachable!("it was idle");
            };
            let exit = consumer.drain(64, |(), drained| {
                drained.take_each(|item| result += item);
                Turn::More
            });
            assert_eq!(exit, Exit::Idle);
            done += burst as u64;
        }
        result
    }
}

/// crossbeam's ring, which takes one item at a time.
#[cfg(feature = "peers")]
pub struct Array(pub crossbeam_queue::ArrayQueue<u64>);

#[cfg(feature = "peers")]
impl Queue for Array {
    fn produce(&self, burst: usize, first: u64, total: u64) {
        let mut batch = Vec::with_capacity(burst);
        let mut done = 0;
        while done < total {
            batch.extend(first + done + 1..first + done + 1 + burst as u64);
            for item in batch.drain(..) {
                while self.0.push(item).is_err() {
                    spin_loop();
                }
            }
            done += burst as u64;
        }
    }

    fn consume(&self, _burst: usize, total: u64) -> u64 {
        let (mut done, mut result) = (0, 0);
        while done < total {
            if let Some(item) = self.0.pop() {
                result += item;
                done += 1;
            } else {
                spin_loop();
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
