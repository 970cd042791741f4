//! Rings in which each side knows by a bit of a descriptor, its generation, whether the other side
//! has written it in this round.

use super::registers::WORDS;
use crate::port::card::{Dma, Ring};
use std::sync::Arc;

/// A ring of descriptors that the driver writes.
#[derive(Debug)]
pub(super) struct Posts {
    ring: Ring<WORDS>,
    /// The bit, and what it is in this round.
    bit: u32,
    generation: u32,
}

impl Posts {
    /// An empty ring, in memory that is zero, whose generation is this bit of the word 2.
    pub(super) fn new(memory: Arc<Dma>, start: usize, count: usize, bit: u32) -> Self {
        Self {
            ring: Ring::new(memory, start, count),
            bit,
            generation: bit,
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.ring.count()
    }

    /// Writes the next descriptor, `index`, which the card does not take yet. Returns the word that
    /// hands it over.
    pub(super) fn write(&mut self, index: usize, address: u64, word2: u32, word3: u32) -> u32 {
        let other = word2 | (self.generation ^ self.bit);
        let words = [address as u32, (address >> 32) as u32, other, word3];
        self.ring.write(index, words);
        let word = word2 | self.generation;
        if index + 1 == self.ring.count() {
            self.generation ^= self.bit;
        }
        word
    }

    /// Hands a descriptor over to the card, after all that was written before.
    pub(super) fn publish(&mut self, index: usize, word: u32) {
        self.ring.publish(index, 2, word);
    }
}

/// A ring of completions, which the card writes.
#[derive(Debug)]
pub(super) struct Completions {
    ring: Ring<WORDS>,
    next: usize,
    generation: u32,
}

/// The generation of a completion, in the word 3.
const GENERATION: u32 = 1 << 31;

impl Completions {
    pub(super) fn new(memory: Arc<Dma>, start: usize, count: usize) -> Self {
        Self {
            ring: Ring::new(memory, start, count),
            next: 0,
            generation: GENERATION,
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.ring.count()
    }

    /// Whether the card has written the next one.
    pub(super) fn has_next(&self) -> bool {
        self.ring.status(self.next, 3) & GENERATION == self.generation
    }

    /// Takes the next one.
    pub(super) fn take(&mut self) -> Option<[u32; WORDS]> {
        if !self.has_next() {
            return None;
        }
        let words = std::array::from_fn(|word| self.ring.word(self.next, word));
        self.next += 1;
        if self.next == self.ring.count() {
            self.next = 0;
            self.generation ^= GENERATION;
        }
        Some(words)
    }

    /// Writes one as the card does.
    #[cfg(test)]
    pub(super) fn fill(&mut self, index: usize, words: [u32; WORDS]) {
        self.ring.write(index, words);
        self.ring.publish(index, 3, words[3]);
    }
}
