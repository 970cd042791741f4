//! Slices of memory that need not be initialised. `core` has the same from Rust 1.93 on.

#![allow(
    unsafe_code,
    reason = "a slice of bytes that were stored, with another type"
)]

use core::mem::MaybeUninit;
use core::ptr;

/// The bytes of `stored`.
///
/// # Safety
/// Each of them was stored.
#[inline]
pub(super) unsafe fn assume_init(stored: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    // SAFETY: both types have the same layout, and the caller answers for the bytes.
    unsafe { &mut *(ptr::from_mut(stored) as *mut [u8]) }
}

/// Copies `src` to `dst`, which has the same length.
#[inline]
pub(super) fn copy<'a>(dst: &'a mut [MaybeUninit<u8>], src: &[u8]) -> &'a mut [u8] {
    assert_eq!(dst.len(), src.len(), "a copy of all bytes");
    for (to, from) in dst.iter_mut().zip(src) {
        to.write(*from);
    }
    // SAFETY: the loop has stored each byte, since the lengths are equal.
    unsafe { assume_init(dst) }
}
