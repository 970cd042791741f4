//! Asking for memory before it is needed.
#![allow(
    unsafe_code,
    reason = "the prefetch instruction is only there as an intrinsic"
)]

/// Asks the processor to bring the first byte of `place` into its nearest cache.
#[inline]
pub fn read<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that could be seen, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(place);
}
