//! A hash that is the same in every run, on every machine and with every compiler, so that totals
//! of several runs can be merged. It does not resist an attacker: chosen packets can make an
//! estimate of flows wrong.

use packtrain_offload::random::Random;

/// Hashes bytes, eight at a time, by the finalizer of splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Copy, Debug)]
pub(super) struct StableHash(u64);

impl StableHash {
    pub(super) const fn new() -> Self {
        Self(0x7061_636b_7472_6169)
    }

    /// With these bytes behind those before, and their number.
    pub(super) fn with(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain([&last]);
        let hash = words.fold(self, |hash, word| hash.with_word(u64::from_le_bytes(*word)));
        hash.with_word(bytes.len() as u64)
    }

    /// With these eight bytes.
    pub(super) const fn with_word(self, word: u64) -> Self {
        Self(mix(self.0 ^ word))
    }

    pub(super) const fn finish(self) -> u64 {
        self.0
    }
}

/// The first number of SplitMix64 for this seed.
const fn mix(value: u64) -> u64 {
    Random::new(value).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values may never change: totals that were stored are merged with later ones.
    #[test]
    fn values_are_fixed() {
        let hash = |bytes: &[u8]| StableHash::new().with(bytes).finish();
        assert_eq!(hash(b""), EMPTY);
        assert_eq!(hash(b"packtrain replay"), WORDS);
        assert_ne!(hash(b"\0"), hash(b"\0\0"));
    }

    const EMPTY: u64 = 0x567f_abbf_b367_743f;
    const WORDS: u64 = 0xe006_66be_b11d_7ab1;
}
