//! AArch64 with NEON, which has an instruction that adds both halves of a lane to a wider one.
//!
//! The loop takes addresses, not slices, and is never inlined, for the reason given for x86-64: so
//! that it stays one loop when it copies.

#![allow(unsafe_code, reason = "vector loads and stores by address")]

use core::arch::aarch64::{
    uint8x16_t, vaddq_u64, vaddvq_u64, vdupq_n_u64, vld1q_u8, vpadalq_u32, vreinterpretq_u32_u8,
    vst1q_u8,
};
use core::mem::MaybeUninit;
use core::{ptr, slice};

use super::level::Level;
use super::scalar::{self, add_around};
use super::uninit;

/// Sum of the words of at most `BLOCK_BYTES`; `None` if another level is requested.
#[inline]
pub(super) fn sum(only: Option<Level>, bytes: &[u8]) -> Option<u64> {
    // SAFETY: a slice is valid, and without COPY nothing is stored.
    is_this(only).then(|| unsafe { run::<false>(ptr::null_mut(), bytes.as_ptr(), bytes.len()) })
}

/// Copies and sums at most `BLOCK_BYTES`, up to the shorter length; else like `sum`.
#[inline]
pub(super) fn copy_and_sum(only: Option<Level>, dst: &mut [u8], src: &[u8]) -> Option<u64> {
    let src = src.get(..dst.len()).unwrap_or(src);
    // SAFETY: `dst` has at least the bytes of `src` and, being borrowed to be changed, lies
    // elsewhere.
    is_this(only).then(|| unsafe { run::<true>(dst.as_mut_ptr(), src.as_ptr(), src.len()) })
}

/// `copy_and_sum` into memory that need not be initialised. Returns the written slice.
#[inline]
pub(super) fn copy_and_sum_uninit<'a>(
    dst: &'a mut [MaybeUninit<u8>],
    src: &[u8],
) -> Result<(&'a mut [u8], u64), &'a mut [MaybeUninit<u8>]> {
    let bytes = dst.len().min(src.len());
    // SAFETY: as in `copy_and_sum`; the type of `dst` allows to store any byte.
    let words = unsafe { run::<true>(dst.as_mut_ptr().cast(), src.as_ptr(), bytes) };
    // SAFETY: `run` has stored a byte of `src` in each of these.
    Ok((unsafe { uninit::assume_init(&mut dst[..bytes]) }, words))
}

fn is_this(only: Option<Level>) -> bool {
    only.is_none_or(|only| only == Level::Neon)
}

/// Sums `bytes` bytes from `src` on, and with `COPY` stores them to `dst`.
///
/// # Safety
/// `src` is valid for loading `bytes` bytes, and with `COPY` `dst` for storing as many elsewhere.
/// The processor has NEON, as the target of this file says.
#[inline(never)]
#[target_feature(enable = "neon")]
unsafe fn run<const COPY: bool>(dst: *mut u8, src: *const u8, bytes: usize) -> u64 {
    const VECTOR: usize = size_of::<uint8x16_t>();
    let mut sums = [vdupq_n_u64(0); 4];
    let mut at = 0;
    while bytes - at >= 4 * VECTOR {
        for (i, sum) in sums.iter_mut().enumerate() {
            let from = at + i * VECTOR;
            // SAFETY: the vector ends within `src`, and within `dst` if that is used.
            let v = unsafe { vld1q_u8(src.add(from)) };
            if COPY {
                // SAFETY: as above.
                unsafe { vst1q_u8(dst.add(from), v) };
            }
            *sum = vpadalq_u32(*sum, vreinterpretq_u32_u8(v));
        }
        at += 4 * VECTOR;
    }
    while bytes - at >= VECTOR {
        // SAFETY: as above.
        let v = unsafe { vld1q_u8(src.add(at)) };
        if COPY {
            // SAFETY: as above.
            unsafe { vst1q_u8(dst.add(at), v) };
        }
        sums[0] = vpadalq_u32(sums[0], vreinterpretq_u32_u8(v));
        at += VECTOR;
    }
    // SAFETY: the caller's `src` has these bytes.
    let rest = unsafe { slice::from_raw_parts(src.add(at), bytes - at) };
    if COPY {
        // SAFETY: the caller's `dst` has as many bytes, elsewhere.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), dst.add(at), rest.len()) };
    }
    let sum = vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3]));
    add_around(vaddvq_u64(sum), scalar::sum_short(rest))
}
