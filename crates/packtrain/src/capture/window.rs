//! The one bounded buffer through which a capture is read.

use std::io::{self, Read, Seek, SeekFrom};

use super::MAX_BLOCK_BYTES;

/// How much is asked of the input at once. Large enough that a system call is spread over many
/// records, small enough to stay in a level-2 cache.
const READ_BYTES: usize = 128 * 1024;

/// A view of the input that can hold any block of up to [`MAX_BLOCK_BYTES`] contiguously.
#[derive(Debug)]
pub(super) struct Window<R> {
    input: R,
    buffer: Box<[u8]>,
    /// The first byte that is not consumed. Invariant: `start <= end <= buffer.len()`.
    start: usize,
    end: usize,
    /// Where in the input `start` is.
    offset: u64,
}

impl<R> Window<R> {
    pub(super) fn new(input: R) -> Self {
        let buffer = vec![0; MAX_BLOCK_BYTES + READ_BYTES].into_boxed_slice();
        Self {
            input,
            buffer,
            start: 0,
            end: 0,
            offset: 0,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn input(&self) -> &R {
        &self.input
    }

    pub(super) fn into_input(self) -> R {
        self.input
    }

    /// Everything that is buffered and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The first `N` bytes, once a [`fill`](Self::fill) said that they are there.
    pub(super) fn array<const N: usize>(&self) -> Option<[u8; N]> {
        self.bytes().first_chunk().copied()
    }

    /// Gives up the first `count` bytes and says where in the buffer they are; they stay there,
    /// for [`consumed`](Self::consumed), until the next `fill`.
    pub(super) fn consume(&mut self, count: usize) -> usize {
        let at = self.start;
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
        at
    }

    /// Consumed bytes, by the position that [`consume`](Self::consume) gave.
    pub(super) fn consumed(&self, at: usize, count: usize) -> &[u8] {
        self.buffer.get(at..at + count).unwrap_or_default()
    }
}

impl<R: Read> Window<R> {
    /// Makes at least `count` (at most [`MAX_BLOCK_BYTES`]) bytes available, or says `false` when
    /// the input ends before. After an error what was read is kept and the call can be repeated.
    pub(super) fn fill(&mut self, count: usize) -> io::Result<bool> {
        if self.end - self.start >= count {
            return Ok(true);
        }
        // What is moved is less than one record, once per read of many.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < count {
            let limit = (self.end + READ_BYTES).min(self.buffer.len());
            let space = &mut self.buffer[self.end..limit];
            match self.input.read(space) {
                Ok(0) => return Ok(false),
                // A reader that claims more than it was given room for is not believed.
                Ok(got) => self.end += got.min(space.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Consumes `left` bytes of any number through the buffer and counts it down to 0, or says
    /// `false` when the input ends before. After an error the call can be repeated.
    pub(super) fn skip(&mut self, left: &mut u64) -> io::Result<bool> {
        while *left > 0 {
            if !self.fill(1)? {
                return Ok(false);
            }
            let here = (self.end - self.start) as u64;
            let step = here.min(*left);
            // `step` is at most the buffer's length.
            self.consume(step as usize);
            *left -= step;
        }
        Ok(true)
    }
}

impl<R: Seek> Window<R> {
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.input.seek(SeekFrom::Start(0))?;
        self.start = 0;
        self.end = 0;
        self.offset = 0;
        Ok(())
    }
}
