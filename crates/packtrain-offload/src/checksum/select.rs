//! Selection of the implementation for long pieces.

use core::mem::MaybeUninit;

use super::level::Level;
use super::scalar::{self, add_around};
use super::uninit;
use super::vectors;

impl Level {
    /// True if this program on this processor can use it.
    #[must_use]
    pub fn is_available(self) -> bool {
        sum_with(self, &[]).is_some()
    }

    /// Those that can be used, slowest first; [`Scalar`](Self::Scalar) is always among them.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(|level| level.is_available())
    }

    /// The level that [`Sum::add`](super::Sum::add) uses.
    #[must_use]
    pub fn selected() -> Self {
        Self::available().last().unwrap_or(Self::Scalar)
    }
}

/// Most bytes passed to an implementation at once: few enough that none of its accumulators
/// overflows; even, so that a block does not shift the words of the next one.
const BLOCK_BYTES: usize = 1 << 24;

/// Sum of the words of `bytes` as they lie in memory, the last one padded with a zero byte.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() <= BLOCK_BYTES {
        sum_block(bytes)
    } else {
        sum_blocks(bytes)
    }
}

#[inline(always)]
fn sum_block(bytes: &[u8]) -> u64 {
    match vectors::sum(None, bytes) {
        Some(words) => words,
        None => scalar::sum(bytes),
    }
}

/// Apart from `sum`, so that it needs no stack frame.
#[cold]
#[inline(never)]
fn sum_blocks(bytes: &[u8]) -> u64 {
    bytes.chunks(BLOCK_BYTES).map(sum_block).fold(0, add_around)
}

/// `sum` by one implementation, if it can be used.
pub(super) fn sum_with(level: Level, bytes: &[u8]) -> Option<u64> {
    let block = |block: &[u8]| match level {
        Level::Scalar => Some(scalar::sum(block)),
        _ => vectors::sum(Some(level), block),
    };
    let (first, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES));
    let mut blocks = rest.chunks(BLOCK_BYTES);
    blocks.try_fold(block(first)?, |total, next| {
        Some(add_around(total, block(next)?))
    })
}

/// Copies and sums up to the shorter length.
pub(super) fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u64 {
    if dst.len() <= BLOCK_BYTES {
        copy_and_sum_block(dst, src)
    } else {
        copy_and_sum_blocks(dst, src)
    }
}

#[inline(always)]
fn copy_and_sum_block(dst: &mut [u8], src: &[u8]) -> u64 {
    match vectors::copy_and_sum(None, dst, src) {
        Some(words) => words,
        None => scalar::copy_and_sum(dst, src),
    }
}

/// Apart from `copy_and_sum`, so that it needs no stack frame.
#[cold]
#[inline(never)]
fn copy_and_sum_blocks(dst: &mut [u8], src: &[u8]) -> u64 {
    let blocks = dst.chunks_mut(BLOCK_BYTES).zip(src.chunks(BLOCK_BYTES));
    blocks.fold(0, |total, (dst, src)| {
        add_around(total, copy_and_sum_block(dst, src))
    })
}

/// `copy_and_sum` by one implementation, if it can be used.
pub(super) fn copy_and_sum_with(level: Level, dst: &mut [u8], src: &[u8]) -> Option<u64> {
    let block = |dst: &mut [u8], src: &[u8]| match level {
        Level::Scalar => Some(scalar::copy_and_sum(dst, src)),
        _ => vectors::copy_and_sum(Some(level), dst, src),
    };
    if !level.is_available() {
        return None;
    }
    let mut blocks = dst.chunks_mut(BLOCK_BYTES).zip(src.chunks(BLOCK_BYTES));
    blocks.try_fold(0, |total, (dst, src)| {
        Some(add_around(total, block(dst, src)?))
    })
}

/// `copy_and_sum` into memory that need not be initialised. Returns the written slice.
pub(super) fn copy_and_sum_uninit<'a>(
    dst: &'a mut [MaybeUninit<u8>],
    src: &[u8],
) -> (&'a mut [u8], u64) {
    let bytes = dst.len().min(src.len());
    let (dst, src) = (&mut dst[..bytes], &src[..bytes]);
    let dst = if bytes <= BLOCK_BYTES {
        match vectors::copy_and_sum_uninit(dst, src) {
            Ok(done) => return done,
            Err(dst) => dst,
        }
    } else {
        dst
    };
    (uninit::copy(dst, src), sum(src))
}
