//! The portable implementation, and the short path that all others share.

use super::add_around;
const LANES: usize = 4;

/// Sum of the words of at most `BLOCK_BYTES` as they lie in memory, the last one padded with a zero
/// byte. The lanes are independent so that they become vector registers.
#[inline]
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (rows, rest) = bytes.as_chunks::<{ LANES * 8 }>();
    let mut lanes = [0u64; LANES];
    for row in rows {
        let (words, _) = row.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += halves(u64::from_ne_bytes(*word));
        }
    }
    sum_below_32(lanes.iter().sum(), rest)
}

/// Copies and sums at most `BLOCK_BYTES`, as many bytes as both have.
pub(super) fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u64 {
    let bytes = dst.len().min(src.len());
    // So few that they are still in the first-level cache when they are read again.
    const PIECE_BYTES: usize = 4096;
    let dst = dst[..bytes].chunks_mut(PIECE_BYTES);
    let mut total = 0;
    for (dst, src) in dst.zip(src[..bytes].chunks(PIECE_BYTES)) {
        dst.copy_from_slice(src);
        total = add_around(total, sum(src));
    }
    total
}

#[inline]
const fn halves(word: u64) -> u64 {
    (word & 0xFFFF_FFFF) + (word >> 32)
}

/// `sum` for fewer than 128 bytes, meant to be inlined: chains of additions with carry, and one
/// branch for each power of two, which the lengths of headers predict well. A loop would be
/// unrolled.
#[inline]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    const { assert!(super::SHORT_BYTES_MAX < 128) };
    let (mut total, mut rest) = (0, bytes);
    if let Some((words, after)) = rest.split_first_chunk::<64>() {
        total = add_chain(total, words.as_chunks::<8>().0);
        rest = after;
    }
    if let Some((words, after)) = rest.split_first_chunk::<32>() {
        total = add_chain(total, words.as_chunks::<8>().0);
        rest = after;
    }
    sum_below_32(total, rest)
}

/// Adds words with the carry brought around.
#[inline]
fn add_chain(total: u64, words: &[[u8; 8]]) -> u64 {
    let mut carry = false;
    let mut sum = total;
    for word in words {
        (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    // A sum with a carry out of it is at most 2^64 - 2.
    sum + u64::from(carry)
}

/// Adds the fewer than 32 bytes that are left.
#[inline]
fn sum_below_32(mut total: u64, mut rest: &[u8]) -> u64 {
    if let Some((words, after)) = rest.split_first_chunk::<16>() {
        total = add_chain(total, words.as_chunks::<8>().0);
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<8>() {
        total = add_chain(total, &[*word]);
        rest = after;
    }
    let mut last = 0;
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        last += u64::from(u32::from_ne_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        last += u64::from(u16::from_ne_bytes(*word));
        rest = after;
    }
    if let Some(&byte) = rest.first() {
        last += u64::from(u16::from_ne_bytes([byte, 0]));
    }
    add_around(total, last)
}
