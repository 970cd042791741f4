//! The bounded buffer of a reader.

use std::io::{self, Read};

/// The most bytes of one read of the input. Enough for many records in a system call, and few
/// enough for a level-2 cache.
pub(super) const READ_BYTES: usize = 128 * 1024;

/// A view of the input that can hold any part of up to a given length contiguously.
#[derive(Debug)]
pub(super) struct Window<R> {
    input: R,
    buffer: Box<[u8]>,
    /// The first byte that is not consumed. Invariant: `start <= end <= buffer.len()`.
    start: usize,
    end: usize,
    /// The position of `start` in the input.
    offset: u64,
}

impl<R> Window<R> {
    /// A window with a buffer of `bytes` bytes: the longest part, and room for a read behind it.
    pub(super) fn new(input: R, bytes: usize) -> Self {
        Self {
            input,
            buffer: vec![0; bytes].into(),
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

    pub(super) fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    pub(super) fn into_input(self) -> R {
        self.input
    }

    /// Makes the buffer `bytes` bytes long, if it is shorter.
    pub(super) fn grow(&mut self, bytes: usize) {
        let mut buffer = std::mem::take(&mut self.buffer).into_vec();
        buffer.resize(bytes.max(buffer.len()), 0);
        self.buffer = buffer.into();
    }

    /// Forgets all bytes: the input is at its start again.
    pub(super) fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
        self.offset = 0;
    }

    /// The bytes that are buffered and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The first `N` bytes, after a [`fill`](Self::fill) of as many.
    pub(super) fn array<const N: usize>(&self) -> Option<[u8; N]> {
        self.bytes().first_chunk().copied()
    }

    /// Consumes the first `count` bytes and returns their position in the buffer. They stay there,
    /// for [`consumed`](Self::consumed), until the next `fill`.
    pub(super) fn consume(&mut self, count: usize) -> usize {
        let at = self.start;
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
        at
    }

    /// Consumed bytes, by the position that [`consume`](Self::consume) returned.
    pub(super) fn consumed(&self, at: usize, count: usize) -> &[u8] {
        self.buffer.get(at..at + count).unwrap_or_default()
    }
}

impl<R: Read> Window<R> {
    /// Makes at least `count` bytes available, at most as many as the window is for. Returns false
    /// if the input ends before. After an error the read bytes are kept, and the caller may repeat
    /// the call.
    #[inline]
    pub(super) fn fill(&mut self, count: usize) -> io::Result<bool> {
        if self.end - self.start >= count {
            return Ok(true);
        }
        self.read(count)
    }

    /// Reads until `count` bytes are there. Apart from [`fill`](Self::fill), since a decompressing
    /// input makes the stack frame so large that each call probes its pages.
    #[inline(never)]
    fn read(&mut self, count: usize) -> io::Result<bool> {
        // This moves less than one record, once for each read of many.
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < count {
            let limit = (self.end + READ_BYTES).min(self.buffer.len());
            let space = &mut self.buffer[self.end..limit];
            match self.input.read(space) {
                Ok(0) => return Ok(false),
                // A wrong input may state more bytes than it had room for.
                Ok(got) => self.end += got.min(space.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads to `out`: what is buffered, then from the input directly.
    pub(super) fn read_through(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let here = self.bytes();
        if here.is_empty() {
            return self.input.read(out);
        }
        let count = here.len().min(out.len());
        out[..count].copy_from_slice(&here[..count]);
        self.consume(count);
        Ok(count)
    }

    /// Consumes `left` bytes, any number, and counts it down to 0. Returns false if the input ends
    /// before. After an error the caller may repeat the call.
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
