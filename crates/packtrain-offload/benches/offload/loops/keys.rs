//! Keys to be grouped, and the timing of it.

use crate::loops::contest::{Sample, Side};
use packtrain_measure::clock::Laps;
use packtrain_measure::random::Random;

/// Keys of one lap: several arrays, each different. As items they are half a megabyte, so that
/// recently written data is in the second level of cache wherever its pages are.
const KEYS: usize = 1 << 15;
/// Laps of one sample: the keys of one lap are too few for the clock.
const LAPS: u64 = 4;
const LINE_BYTES: usize = 64;
/// Items of a cache line.
const LINE_ITEMS: usize = LINE_BYTES / 16;

/// A grouping algorithm.
pub trait Grouper {
    /// The element moved: 16 bytes with a key and an index in them.
    type Item: Copy;

    /// One item.
    fn item(key: u64, index: u64) -> Self::Item;

    /// Called before the clock starts, on each array: prepares the items.
    fn prepare(&mut self, _items: &mut [Self::Item]) {}

    /// Groups `items`. Returns whether equal keys are together, in their own order of arrival if
    /// that is promised; called once, outside of the clock.
    fn check(&mut self, items: &mut [Self::Item]) -> bool;

    /// Groups `items`, in place or elsewhere.
    fn group(&mut self, items: &mut [Self::Item]);
}

/// A grouper and its keys.
pub struct Grouping<G: Grouper> {
    grouper: G,
    n: usize,
    distinct: usize,
    items: Vec<G::Item>,
    /// Items before the first one that is used. It begins a cache line, on every side: long loads
    /// from anywhere else would take twice as long.
    skipped: usize,
}

impl<G: Grouper> Grouping<G> {
    /// Arrays of `n` keys, of which `distinct` differ.
    ///
    /// # Errors
    ///
    /// If the grouper does not group correctly.
    pub fn new(grouper: G, n: usize, distinct: usize) -> Result<Self, String> {
        let items: Vec<G::Item> = Vec::with_capacity(KEYS.max(n) + LINE_ITEMS);
        let skipped = items.as_ptr().align_offset(LINE_BYTES);
        if skipped >= LINE_ITEMS {
            return Err("cannot begin at a cache line".to_owned());
        }
        let mut grouping = Self {
            grouper,
            n,
            distinct,
            items,
            skipped,
        };
        grouping.fill(u64::MAX);
        let items = &mut grouping.items[skipped..];
        let grouped = grouping.grouper.check(&mut items[..n]);
        grouped
            .then_some(grouping)
            .ok_or("does not group".to_owned())
    }

    /// Keys as flows have them: a type of 1 to 4, and 32 bits of hash.
    fn fill(&mut self, seed: u64) {
        let mut random = Random::new(seed);
        self.items.clear();
        (self.items).resize(self.skipped, G::item(0, 0));
        for _ in 0..(KEYS / self.n).max(1) {
            let salt = random.next();
            for index in 0..self.n as u64 {
                let which = random.below(self.distinct as u64);
                let hash = packtrain_measure::random::mix(salt ^ which);
                let key = ((hash >> 62) + 1) << 32 | (hash & 0xFFFF_FFFF);
                self.items.push(G::item(key, index));
            }
        }
        for items in self.items[self.skipped..].chunks_exact_mut(self.n) {
            self.grouper.prepare(items);
        }
    }
}

impl<G: Grouper> Side for Grouping<G> {
    fn sample(&mut self, seed: u64) -> Sample {
        let mut laps = Laps::new();
        let mut keys = 0;
        for lap in 0..LAPS {
            self.fill(seed.wrapping_mul(LAPS).wrapping_add(lap));
            let (grouper, n) = (&mut self.grouper, self.n);
            let items = &mut self.items[self.skipped..];
            keys += items.len();
            laps.time(|| {
                for items in items.chunks_exact_mut(n) {
                    grouper.group(items);
                }
            });
        }
        Sample::new(laps.per(keys as u64))
    }
}
