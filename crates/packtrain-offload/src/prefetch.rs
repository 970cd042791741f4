//! Asking for memory before it is needed.

#![allow(
    unsafe_code,
    reason = "the prefetch instruction is only there as an intrinsic"
)]

/// Asks the processor to bring the first byte of `place` into its nearest cache. It changes
/// nothing, and may do nothing.
#[inline]
pub(crate) fn read<T: ?Sized>(place: &T) {
    ahead(place, 0);
}

/// The same for what is `bytes` bytes further on, whatever that may be.
#[inline]
pub(crate) fn ahead<T: ?Sized>(place: &T, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that could be seen, and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast::<i8>().wrapping_add(bytes));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _: (&T, usize) = (place, bytes);
}
