//! Prefetching memory.
#![allow(
    unsafe_code,
    reason = "the prefetch instruction is only there as an intrinsic"
)]

/// Prefetches the first byte of `place` into the nearest cache.
#[inline]
pub fn read<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(place);
}
