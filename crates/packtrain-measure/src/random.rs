//! Reproducible pseudo-random numbers.

/// SplitMix64 (Steele, Lea, Flood 2014): every seed, also a small one, gives a good sequence.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0. (The bias, below `bound / 2^64`, does not matter.)
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Each bit of `word` in every bit of the result.
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

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

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::new(1);
        for bound in [1, 2, 3, 1000, u64::MAX] {
            assert!((0..100).all(|_| random.below(bound) < bound));
        }
    }
}
