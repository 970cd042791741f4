//! Prefetching memory.

#![allow(
    unsafe_code,
    reason = "the prefetch instruction is only there as an intrinsic"
)]

/// Prefetches the first byte of `place` into the nearest cache. A hint: it changes nothing, and may
/// do nothing.
#[inline]
pub(crate) fn read<T: ?Sized>(place: &T) {
    ahead(place, 0);
}

/// The same for the address `bytes` bytes further on, which need not be valid.
#[inline]
pub(crate) fn ahead<T: ?Sized>(place: &T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no visible effect, and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast::<i8>().wrapping_add(bytes));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _: (&T, usize) = (place, bytes);
}
