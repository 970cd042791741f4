//! The portable implementation, and the short path that all others share.

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
    lanes.iter().sum::<u64>() + sum_tail(rest)
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
        total += sum(src);
    }
    total
}

#[inline]
const fn halves(word: u64) -> u64 {
    (word & 0xFFFF_FFFF) + (word >> 32)
}

/// Like `sum`, meant to be inlined for few bytes.
#[inline]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    sum(bytes)
}

/// A few words, at most `BLOCK_BYTES`.
#[inline]
fn sum_tail(bytes: &[u8]) -> u64 {
    let mut total = 0;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        total += halves(u64::from_ne_bytes(*word));
    }
    // At most one of each is left; a header's sum is mostly this tail.
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let (words, rest) = rest.as_chunks::<2>();
    for word in words {
        total += u64::from(u16::from_ne_bytes(*word));
    }
    for &byte in rest {
        total += u64::from(u16::from_ne_bytes([byte, 0]));
    }
    total
}
