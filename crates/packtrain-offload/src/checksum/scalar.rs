//! The portable implementation, and the short path that all others share.

/// The longest piece in bytes that [`Sum::add`](super::Sum::add) sums without choosing an
/// implementation: every header without its options, most with them, and small packets.
pub const SHORT_BYTES_MAX: usize = 127;

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
    sum_below_32(lanes.iter().sum(), rest, bytes)
}

/// Copies and sums at most `BLOCK_BYTES`, up to the shorter length.
pub(super) fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u64 {
    let bytes = dst.len().min(src.len());
    // Few enough to be still in the first-level cache for the sum.
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

/// `sum` for fewer than 128 bytes, inlined where it is called: chains of additions with carry, and
/// one branch for each power of two, which the lengths of headers predict well. A loop would be
/// unrolled.
#[inline(always)]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    const { assert!(SHORT_BYTES_MAX < 128) };
    let (mut total, mut rest) = (0, bytes);
    if let Some((words, after)) = rest.split_first_chunk::<64>() {
        total = add_chain(total, words.as_chunks::<8>().0);
        rest = after;
    }
    if let Some((words, after)) = rest.split_first_chunk::<32>() {
        total = add_chain(total, words.as_chunks::<8>().0);
        rest = after;
    }
    sum_below_32(total, rest, bytes)
}

/// Adds words with the carry brought around. Compilers turn each round into one addition with
/// carry.
#[inline(always)]
fn add_chain(total: u64, words: &[[u8; 8]]) -> u64 {
    let (mut sum, mut carry) = (total, false);
    for word in words {
        let (added, around) = sum.overflowing_add(u64::from_ne_bytes(*word));
        let (with_carry, again) = added.overflowing_add(u64::from(carry));
        (sum, carry) = (with_carry, around | again);
    }
    // A sum with a carry out of it is at most 2^64 - 2.
    sum + u64::from(carry)
}

/// Adds the fewer than 32 bytes that are left of `all`.
#[inline(always)]
fn sum_below_32(mut total: u64, mut rest: &[u8], all: &[u8]) -> u64 {
    if let Some((words, after)) = rest.split_first_chunk::<16>() {
        total = add_chain(total, words.as_chunks::<8>().0);
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<8>() {
        total = add_chain(total, &[*word]);
        rest = after;
    }
    if rest.is_empty() {
        return total;
    }
    let last = match all.last_chunk::<8>() {
        // The last bytes of a word that begins with others, which are shifted out of it.
        Some(word) => leave_last(u64::from_ne_bytes(*word), rest.len()),
        None => below_8(all),
    };
    add_around(total, last)
}

/// The last `bytes` bytes of a word in memory, 1 to 7, moved to its start; zeros behind them.
#[inline(always)]
const fn leave_last(word: u64, bytes: usize) -> u64 {
    let bits = (bytes as u32).wrapping_neg().wrapping_mul(8);
    if cfg!(target_endian = "little") {
        word.wrapping_shr(bits)
    } else {
        word.wrapping_shl(bits)
    }
}

/// The word that fewer than 8 bytes begin, with zeros behind them.
#[inline(always)]
fn below_8(bytes: &[u8]) -> u64 {
    let word = match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            // Bytes in both are the same in both.
            let shift = 8 * (bytes.len() as u32 - 4);
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => {
            let byte = |at: usize| u64::from(bytes.get(at).copied().unwrap_or(0)) << (8 * at);
            byte(0) | byte(1) | byte(2)
        }
    };
    word.to_le()
}

/// Adds with the carry brought around. 0xFFFF divides 2^64 - 1, so this keeps the residue.
#[inline]
pub(super) const fn add_around(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // After a carry the sum is at most 2^64 - 2: this cannot overflow.
    sum + carry as u64
}
