//! Memory latency of this machine: the bounds for the figures.

use crate::loops::contest::{Sample, Side};
use crate::loops::sizes::EVICT_BYTES;
use packtrain_measure::clock::Laps;
use packtrain_measure::random::{Random, Shuffle};
use std::hint::black_box;

/// A cache line.
pub const LINE_BYTES: usize = 64;

/// Evicts the caches by reading other data.
#[derive(Debug)]
pub struct Evictor(Vec<u64>);

impl Evictor {
    /// With [`EVICT_BYTES`] of its own.
    pub fn new() -> Self {
        Self((0..EVICT_BYTES as u64 / 8).collect())
    }

    /// Fills the caches with its own data.
    pub fn evict(&self) {
        let words = self.0.iter().step_by(LINE_BYTES / 8);
        black_box(words.fold(0, |sum: u64, word| sum.wrapping_add(*word)));
    }
}

impl Default for Evictor {
    fn default() -> Self {
        Self::new()
    }
}

/// A chain of dependent loads over a footprint: each gives the address of the next.
#[derive(Debug)]
pub struct Chase {
    lines: Vec<[u64; LINE_BYTES / 8]>,
    at: u64,
}

impl Chase {
    /// A circle over all cache lines of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let count = (bytes / LINE_BYTES).max(16) as u64;
        let mut order = Shuffle::new(count, &mut Random::new(count));
        // The multiples alone would be a stride that prefetchers recognise: swap them at random.
        let mut circle: Vec<u64> = (0..count).map(|_| order.next()).collect();
        let mut random = Random::new(1);
        for i in (1..circle.len()).rev() {
            circle.swap(i, random.below(i as u64 + 1) as usize);
        }
        let mut lines = vec![[0; LINE_BYTES / 8]; count as usize];
        for (i, line) in circle.iter().enumerate() {
            lines[*line as usize][0] = circle[(i + 1) % circle.len()];
        }
        Self { lines, at: 0 }
    }

    /// Follows this many loads.
    fn follow(&mut self, loads: usize) {
        let mut at = self.at;
        for _ in 0..loads {
            at = self.lines[at as usize][0];
        }
        self.at = black_box(at);
    }

    /// Goes around once, to evict the data of other sides.
    fn warm(&mut self) {
        self.follow(self.lines.len());
    }
}

impl Side for Chase {
    /// Nanoseconds for one load.
    fn sample(&mut self, _seed: u64) -> Sample {
        const LOADS: usize = 20_000;
        let mut laps = Laps::new();
        laps.time(|| self.follow(LOADS));
        Sample::new(laps.per(LOADS as u64))
    }
}

/// The most that work may take when flows are added: its time with one flow, plus two dependent
/// loads in as much memory as the flows touch. No other side has used that memory since it
/// was last read.
pub struct Growth {
    one: Box<dyn Side>,
    chase: Chase,
}

impl Growth {
    /// `one` is the work with one flow; `bytes` is the size of the lines that many flows touch.
    pub fn new(one: Box<dyn Side>, bytes: usize) -> Self {
        Self {
            one,
            chase: Chase::new(bytes),
        }
    }
}

impl Side for Growth {
    fn sample(&mut self, seed: u64) -> Sample {
        let one = self.one.sample(seed);
        self.chase.warm();
        Sample::new(one.ns + 2.0 * self.chase.sample(seed).ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_visits_every_line() {
        let chase = Chase::new(1 << 16);
        let (mut at, mut steps) = (chase.lines[0][0], 1);
        while at != 0 {
            at = chase.lines[at as usize][0];
            steps += 1;
        }
        assert_eq!(steps, chase.lines.len());
    }
}
