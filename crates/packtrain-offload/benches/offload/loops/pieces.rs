//! Pieces of memory for checksums, and the timing of them.

use crate::loops::contest::{Sample, Side};
use crate::loops::sizes::EVICT_BYTES;
use crate::loops::work::Place;
use packtrain_measure::clock::Laps;
use packtrain_measure::random::Random;
use std::hint::black_box;

/// Equal pieces in one block, each at the start of a cache line. Cold ones are part of a memory
/// larger than the caches, a different part in each sample.
#[derive(Debug)]
pub struct Pieces {
    memory: Vec<u8>,
    start: usize,
    stretches: usize,
    stretch: usize,
    /// Length of a piece.
    pub bytes: usize,
    /// From one piece to the next.
    pub stride: usize,
    /// Pieces.
    pub count: usize,
    /// Passes over all of them in one sample.
    pub passes: usize,
    place: Place,
}

/// Bytes that warm pieces have together: half of a first-level cache.
const WARM_BYTES: usize = 16 << 10;
/// Bytes that a warm sample goes through.
const SAMPLE_BYTES: usize = 8 << 20;
/// The most calls of one.
const CALLS_MAX: usize = 40_000;
const ALIGN: usize = 4096;
/// Parts of cold memory: data that was read this many samples ago is no longer in any cache.
const STRETCHES: usize = 32;

impl Pieces {
    /// Pieces of `bytes` bytes.
    pub fn new(bytes: usize, place: Place) -> Self {
        let stride = bytes.next_multiple_of(64);
        let (count, passes, stretches) = match place {
            Place::Cold => (EVICT_BYTES / STRETCHES / stride, 1, STRETCHES),
            Place::Warm => {
                let count = (WARM_BYTES / stride).max(1);
                let calls = (SAMPLE_BYTES / bytes).min(CALLS_MAX);
                (count, (calls / count).max(1), 1)
            }
        };
        let mut memory = vec![0; stretches * count * stride + ALIGN];
        Random::new(7).fill(&mut memory);
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            memory,
            start,
            stretches,
            stretch: 0,
            bytes,
            stride,
            count,
            passes,
            place,
        }
    }

    /// The block of all pieces of a sample.
    pub fn block(&self) -> &[u8] {
        let bytes = self.count * self.stride;
        let start = self.start + self.stretch * bytes;
        &self.memory[start..start + bytes]
    }

    /// Provides new data: warm pieces are refilled, cold ones are different ones.
    pub fn refresh(&mut self, seed: u64) {
        match self.place {
            Place::Warm => Random::new(seed).fill(&mut self.memory),
            Place::Cold => self.stretch = (self.stretch + 1) % self.stretches,
        }
    }

    /// Calls in one sample.
    pub const fn calls(&self) -> u64 {
        (self.count * self.passes) as u64
    }
}

/// The destination of copies, one after the other. It begins a page for every side: the alignment
/// of a vector changes the time of the same loop.
#[derive(Debug)]
pub struct Destination {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Destination {
    /// For pieces of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            memory,
            start,
            bytes,
        }
    }

    /// The room for one piece.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// A function of one piece, as a side.
pub struct Summing<F> {
    pieces: Pieces,
    sum: F,
}

impl<F: Fn(&[u8]) -> u16> Summing<F> {
    /// `sum` is inlined into the loop where the compiler wants that, as it would be with a user.
    pub fn new(bytes: usize, place: Place, sum: F) -> Self {
        Self {
            pieces: Pieces::new(bytes, place),
            sum,
        }
    }
}

impl<F: Fn(&[u8]) -> u16> Side for Summing<F> {
    fn sample(&mut self, seed: u64) -> Sample {
        self.pieces.refresh(seed);
        let pieces = &self.pieces;
        let (bytes, stride) = black_box((pieces.bytes, pieces.stride));
        let mut laps = Laps::new();
        laps.time(|| {
            let mut sink = 0_u64;
            for _ in 0..pieces.passes {
                for piece in black_box(pieces.block()).chunks_exact(stride) {
                    sink = sink.wrapping_add(u64::from((self.sum)(&piece[..bytes])));
                }
            }
            black_box(sink)
        });
        Sample::new(laps.per(pieces.calls()))
    }
}

/// A function that copies one piece and sums it, as a side.
pub struct Copying<F> {
    pieces: Pieces,
    to: Destination,
    copy: F,
}

impl<F: Fn(&mut [u8], &[u8]) -> u16> Copying<F> {
    /// `copy` gets the destination and the source, of the same length. The destination is the same
    /// for all pieces.
    pub fn new(bytes: usize, copy: F) -> Self {
        Self {
            pieces: Pieces::new(bytes, Place::Warm),
            to: Destination::new(bytes),
            copy,
        }
    }
}

impl<F: Fn(&mut [u8], &[u8]) -> u16> Side for Copying<F> {
    fn sample(&mut self, seed: u64) -> Sample {
        self.pieces.refresh(seed);
        let pieces = &self.pieces;
        let (bytes, stride) = black_box((pieces.bytes, pieces.stride));
        let mut laps = Laps::new();
        laps.time(|| {
            let mut sink = 0_u64;
            for _ in 0..pieces.passes {
                for piece in black_box(pieces.block()).chunks_exact(stride) {
                    let to = black_box(self.to.bytes_mut());
                    sink = sink.wrapping_add(u64::from((self.copy)(to, &piece[..bytes])));
                }
            }
            black_box(sink)
        });
        Sample::new(laps.per(pieces.calls()))
    }
}
