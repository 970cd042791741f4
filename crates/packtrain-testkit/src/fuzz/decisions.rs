//! Decisions that are drawn from a finite string of bytes.

use arbitrary::Unstructured;
use packtrain_offload::random::{Random, mix};
use std::ops::RangeInclusive;

/// Bytes of a world that is drawn from a seed: more than its decisions use.
const BYTES: usize = 512;

/// The bytes of world `number` of a seed.
#[must_use]
pub fn bytes_of(seed: u64, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    Random::new(mix(seed) ^ mix(number.wrapping_add(1))).fill(&mut bytes);
    bytes
}

/// Draws decisions from bytes. After their end, each decision is the smallest value or the first
/// choice: so shorter bytes, and smaller ones, are simpler worlds.
#[derive(Debug)]
pub(super) struct Decisions<'a> {
    bytes: Unstructured<'a>,
}

impl<'a> Decisions<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: Unstructured::new(bytes),
        }
    }

    /// A number of the range.
    pub(super) fn number(&mut self, range: RangeInclusive<u32>) -> u32 {
        let smallest = *range.start();
        // It does not fail: without bytes it is the smallest.
        self.bytes.int_in_range(range).unwrap_or(smallest)
    }

    pub(super) fn index(&mut self, range: RangeInclusive<usize>) -> usize {
        self.number(*range.start() as u32..=*range.end() as u32) as usize
    }

    pub(super) fn flag(&mut self) -> bool {
        self.number(0..=1) == 1
    }

    /// One of `choices`, which has at least one.
    pub(super) fn choose<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.index(0..=choices.len() - 1)].clone()
    }

    /// One of `choices` if `on`, else the first one.
    pub(super) fn choose_if<T: Clone>(&mut self, on: bool, choices: &[T]) -> T {
        match on {
            true => self.choose(choices),
            false => choices[0].clone(),
        }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bytes_each_decision_is_the_smallest() {
        let mut decisions = Decisions::new(&[]);
        assert_eq!(decisions.number(3..=900), 3);
        assert_eq!(decisions.choose(&["first", "second"]), "first");
        assert!(!decisions.flag());
    }

    #[test]
    fn bytes_of_zeros_are_as_none() {
        let mut decisions = Decisions::new(&[0; 64]);
        assert_eq!(decisions.number(7..=1_000_000), 7);
        assert!(!decisions.flag());
        assert_eq!(decisions.left(), 60);
    }

    #[test]
    fn each_world_has_other_bytes() {
        assert_eq!(bytes_of(1, 2), bytes_of(1, 2));
        assert_ne!(bytes_of(1, 2), bytes_of(1, 3));
        assert_ne!(bytes_of(1, 2), bytes_of(2, 2));
    }
}
