//! Stubs for processors without vector code here.

use core::mem::MaybeUninit;

use super::level::Level;

/// Always `None`.
#[inline]
pub(super) const fn sum(_only: Option<Level>, _bytes: &[u8]) -> Option<u64> {
    None
}

/// Always `None`, with nothing copied.
#[inline]
pub(super) const fn copy_and_sum(
    _only: Option<Level>,
    _dst: &mut [u8],
    _src: &[u8],
) -> Option<u64> {
    None
}

/// Always returns `dst`.
#[inline]
pub(super) const fn copy_and_sum_uninit<'a>(
    dst: &'a mut [MaybeUninit<u8>],
    _src: &[u8],
) -> Result<(&'a mut [u8], u64), &'a mut [MaybeUninit<u8>]> {
    Err(dst)
}
