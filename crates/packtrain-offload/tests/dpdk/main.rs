//! The offloads compared with those of DPDK, packet by packet. Each deliberate difference has a
//! test, which fails if either side changes.
//!
//! DPDK is found through pkg-config, and its functions are compiled into a library when the test
//! starts. Without it the tests are skipped.

#[path = "../../benches/offload/peers/loader.rs"]
mod loader;
mod oracle;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../src/test_packets/mod.rs"]
mod test_packets;

mod merging;
mod segments;
mod sums;

// What `test_packets` names.
use packtrain_offload::{checksum, coalesce, layout, offload, random};

/// Repetitions of a random comparison; each uses its number as seed.
fn rounds() -> u64 {
    if std::env::var_os("PACKTRAIN_FULL").is_some() {
        50_000
    } else {
        1000
    }
}

/// A stream of numbers.
struct Random(random::Random);

impl Random {
    /// A stream of its own for each test and round.
    fn new(test: &str, round: u64) -> Self {
        let salt = test
            .bytes()
            .fold(0, |salt, byte| salt * 31 + u64::from(byte));
        Self(random::Random::new(
            salt ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ))
    }

    fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Less than `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    /// Once in `n` times.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
