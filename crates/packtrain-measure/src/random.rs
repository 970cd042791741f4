//! Reproducible pseudo-random numbers.

pub use packtrain_offload::random::{Random, mix};

/// All numbers below `len` once, in a scattered order without a table: the multiples of a number
/// that is coprime to `len`.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    len: u64,
    step: u64,
    at: u64,
}

impl Shuffle {
    /// An order of the numbers below `len`, at least 1.
    pub const fn new(len: u64, random: &mut Random) -> Self {
        // Near the golden ratio of the length, consecutive numbers are never adjacent.
        let mut step = (len as f64 * 0.618) as u64 + random.below(len.div_ceil(16));
        while gcd(step, len) != 1 {
            step += 1;
        }
        Self {
            len,
            step: step % len,
            at: random.below(len),
        }
    }

    /// The next number; after `len` of them the same ones again.
    pub const fn next(&mut self) -> u64 {
        let this = self.at;
        self.at = (self.at + self.step) % self.len;
        this
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_number_once() {
        for len in [1_u64, 2, 3, 8, 64, 1000, 1024] {
            for seed in 0..20 {
                let mut shuffle = Shuffle::new(len, &mut Random::new(seed));
                let mut seen: Vec<u64> = (0..len).map(|_| shuffle.next()).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..len), "{len} {seed}");
            }
        }
    }
}
