//! AArch64 with NEON, which has an instruction that adds both halves of a lane to a wider one.

#![allow(unsafe_code, reason = "vector loads and stores by address")]

use core::arch::aarch64::{
    uint8x16_t, vaddq_u64, vaddvq_u64, vdupq_n_u64, vld1q_u8, vpadalq_u32, vreinterpretq_u32_u8,
    vst1q_u8,
};
use core::mem::MaybeUninit;
use core::ptr;

use super::scalar;
use super::select::Level;

/// Sum of the words of at most `BLOCK_BYTES`; `None` if another level is asked for.
#[inline]
pub(super) fn sum(only: Option<Level>, bytes: &[u8]) -> Option<u64> {
    // SAFETY: without COPY nothing is stored.
    is_this(only).then(|| unsafe { run::<false>(ptr::null_mut(), bytes) })
}

/// Copies and sums at most `BLOCK_BYTES`, as many bytes as both have; else like `sum`.
#[inline]
pub(super) fn copy_and_sum(only: Option<Level>, dst: &mut [u8], src: &[u8]) -> Option<u64> {
    let src = src.get(..dst.len()).unwrap_or(src);
    // SAFETY: `dst` has at least the bytes of `src` and, being borrowed to be changed, lies
    // elsewhere.
    is_this(only).then(|| unsafe { run::<true>(dst.as_mut_ptr(), src) })
}

/// `copy_and_sum` into memory that need not be initialised. The slice is what was written.
#[inline]
pub(super) fn copy_and_sum_uninit<'a>(
    dst: &'a mut [MaybeUninit<u8>],
    src: &[u8],
) -> Result<(&'a mut [u8], u64), &'a mut [MaybeUninit<u8>]> {
    let bytes = dst.len().min(src.len());
    // SAFETY: as in `copy_and_sum`; the type of `dst` allows to store any byte.
    let words = unsafe { run::<true>(dst.as_mut_ptr().cast(), &src[..bytes]) };
    // SAFETY: `run` has stored a byte of `src` in each of these.
    Ok((unsafe { dst[..bytes].assume_init_mut() }, words))
}

fn is_this(only: Option<Level>) -> bool {
    only.is_none_or(|only| only == Level::Neon)
}

/// # Safety
/// With `COPY`, `dst` is valid for storing `src.len()` bytes, and they do not overlap `src`.
unsafe fn run<const COPY: bool>(dst: *mut u8, src: &[u8]) -> u64 {
    const VECTOR: usize = size_of::<uint8x16_t>();
    let mut sums = [vdupq_n_u64(0); 4];
    let mut at = 0;
    while src.len() - at >= 4 * VECTOR {
        for (i, sum) in sums.iter_mut().enumerate() {
            let from = at + i * VECTOR;
            // SAFETY: the vector ends within `src`, and within `dst` if that is used.
            let v = unsafe { vld1q_u8(src.as_ptr().add(from)) };
            if COPY {
                // SAFETY: as above.
                unsafe { vst1q_u8(dst.add(from), v) };
            }
            *sum = vpadalq_u32(*sum, vreinterpretq_u32_u8(v));
        }
        at += 4 * VECTOR;
    }
    let sum = vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3]));
    let rest = &src[at..];
    if COPY {
        // SAFETY: the caller gives `dst` as many bytes as `src` has, elsewhere.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), dst.add(at), rest.len()) };
    }
    vaddvq_u64(sum) + scalar::sum_short(rest)
}
