//! Operations on many bytes: comparing under a mask, and finding a byte.
//!
//! Uses SSE2 on x86-64, and byte loops elsewhere, which compilers can vectorise.

#![allow(
    unsafe_code,
    reason = "vector instructions are only there as intrinsics"
)]

/// Positions, as bits, at which `bytes` has `wanted`.
#[inline(always)]
pub(super) fn positions(bytes: &[u8; 16], wanted: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2, and only values are passed.
    unsafe {
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};
        let equal = _mm_cmpeq_epi8(vector(bytes), _mm_set1_epi8(wanted.cast_signed()));
        _mm_movemask_epi8(equal).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    plain::positions(bytes, wanted)
}

/// Whether `a` and `b` have the same value in every bit that is set in `bits`. `N` is at least 16.
#[inline(always)]
pub(super) fn agree<const N: usize>(a: &[u8; N], b: &[u8; N], bits: &[u8; N]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let (a_pieces, _) = a.as_chunks();
        let (b_pieces, _) = b.as_chunks();
        let (pieces, _) = bits.as_chunks();
        let mut all = vector(&[0; 16]);
        for at in 0..N / 16 {
            all = or_difference(all, &a_pieces[at], &b_pieces[at], &pieces[at]);
        }
        // The last sixteen once more: the length need not be a multiple of sixteen.
        if let (false, Some(a), Some(b), Some(bits)) = (
            N.is_multiple_of(16),
            a.last_chunk(),
            b.last_chunk(),
            bits.last_chunk(),
        ) {
            all = or_difference(all, a, b, bits);
        }
        is_zero(all)
    }
    #[cfg(not(target_arch = "x86_64"))]
    plain::agree(a, b, bits)
}

/// The code for processors without vector code here.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    #[inline(always)]
    pub(super) fn positions(bytes: &[u8; 16], wanted: u8) -> u32 {
        let bits = bytes.iter().enumerate();
        bits.fold(0, |all, (at, byte)| all | u32::from(*byte == wanted) << at)
    }

    #[inline(always)]
    pub(super) fn agree<const N: usize>(a: &[u8; N], b: &[u8; N], bits: &[u8; N]) -> bool {
        let bytes = a.iter().zip(b).zip(bits);
        bytes.fold(0, |all, ((a, b), bits)| all | (a ^ b) & bits) == 0
    }
}

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::__m128i as Vector;

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn vector(bytes: &[u8; 16]) -> Vector {
    // SAFETY: sixteen bytes are read, which are there; they need no alignment.
    unsafe { core::arch::x86_64::_mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn or_difference(all: Vector, a: &[u8; 16], b: &[u8; 16], bits: &[u8; 16]) -> Vector {
    use core::arch::x86_64::{_mm_and_si128, _mm_or_si128, _mm_xor_si128};
    // SAFETY: every x86-64 has SSE2, and only values are passed.
    unsafe {
        let differ = _mm_and_si128(_mm_xor_si128(vector(a), vector(b)), vector(bits));
        _mm_or_si128(all, differ)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn is_zero(all: Vector) -> bool {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_setzero_si128};
    // SAFETY: every x86-64 has SSE2, and only values are passed.
    unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) == 0xFFFF }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A difference in each bit, under a mask of this bit alone and of all the others.
    fn plain_code_agrees<const N: usize>() {
        let a: [u8; N] = core::array::from_fn(|at| (at * 37) as u8);
        for bit in 0..8 * N {
            let mut b = a;
            b[bit / 8] ^= 1 << (bit % 8);
            let mut this = [0; N];
            this[bit / 8] = 1 << (bit % 8);
            let others = this.map(|byte| !byte);
            for (bits, same) in [(this, false), (others, true), ([0xFF; N], false)] {
                assert_eq!(agree(&a, &b, &bits), same, "bit {bit} of {N} bytes");
                assert_eq!(plain::agree(&a, &b, &bits), same, "bit {bit} of {N} bytes");
                assert!(agree(&a, &a, &bits) && plain::agree(&a, &a, &bits));
            }
        }
    }

    /// With no remainder, a remainder of one byte, of half a vector, and of all but one byte.
    #[test]
    fn plain_code_and_vectors_agree_on_every_bit() {
        plain_code_agrees::<16>();
        plain_code_agrees::<17>();
        plain_code_agrees::<24>();
        plain_code_agrees::<31>();
        plain_code_agrees::<32>();
        plain_code_agrees::<64>();
    }

    proptest! {
        #[test]
        fn positions_are_those_of_equal_bytes(bytes: [u8; 16], at in 0_usize..16, other: u8) {
            for wanted in [bytes[at], other] {
                let found = positions(&bytes, wanted);
                for (at, byte) in bytes.iter().enumerate() {
                    prop_assert_eq!(found >> at & 1 == 1, *byte == wanted);
                }
                prop_assert_eq!(found >> 16, 0);
                prop_assert_eq!(found, plain::positions(&bytes, wanted));
            }
        }

        #[test]
        fn a_difference_counts_where_the_mask_has_a_bit(
            a in prop::array::uniform32(any::<u8>()),
            bits in prop::array::uniform32(any::<u8>()),
            at in 0_usize..32,
            flip in 1_u8..,
        ) {
            let mut b = a;
            prop_assert!(agree(&a, &b, &bits));
            b[at] ^= flip;
            prop_assert_eq!(agree(&a, &b, &bits), flip & bits[at] == 0);
            // A length that is no multiple of a vector's.
            let part = |all: &[u8; 32]| -> [u8; 24] { all[8..].try_into().unwrap() };
            let same = at < 8 || flip & bits[at] == 0;
            prop_assert_eq!(agree(&part(&a), &part(&b), &part(&bits)), same);
        }
    }
}
