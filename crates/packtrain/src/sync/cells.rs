//! Cells, and values that move into them, many at once.

#![allow(unsafe_code, reason = "values are moved by pointer")]

#[cfg(packtrain_loom)]
pub(crate) use loom::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// The cell of `std` with the methods of loom's, which see each access.
#[cfg(not(packtrain_loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(packtrain_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get().cast_const())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }

    /// As `with_mut`, without a closure, which the compiler inlines only where it thinks fit.
    #[inline(always)]
    pub(crate) const fn get_mut(&self) -> MutPtr<T> {
        MutPtr(self.0.get())
    }
}

/// Where a value is that no other thread uses as long as this lives.
#[cfg(not(packtrain_loom))]
pub(crate) struct MutPtr<T>(*mut T);

#[cfg(not(packtrain_loom))]
impl<T> MutPtr<T> {
    /// # Safety
    ///
    /// Nothing else may use the value while the reference lives.
    // SAFETY: the section above says what the caller promises.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "as loom's")]
    pub(crate) unsafe fn deref(&self) -> &mut T {
        // SAFETY: it comes from a cell, and the caller is the only user.
        unsafe { &mut *self.0 }
    }
}

/// Moves `count` values. Few of them in steps of known length, which is done before a call of
/// `memcpy` has found out what to do.
///
/// # Safety
///
/// Both places are for `count` values and do not overlap; those at `from` are gone afterwards.
#[cfg(not(packtrain_loom))]
#[inline(always)]
// SAFETY: the section above.
unsafe fn move_values<T>(from: *const T, to: *mut T, count: usize) {
    // SAFETY: the caller gives two places for `count` values that do not overlap.
    unsafe {
        if count >= 16 {
            from.copy_to_nonoverlapping(to, count);
            return;
        }
        let mut done = 0;
        if count & 8 != 0 {
            from.copy_to_nonoverlapping(to, 8);
            done = 8;
        }
        // A burst of eight needs no look at each of the others.
        if done == count {
            return;
        }
        for step in [4, 2, 1] {
            if count & step != 0 {
                from.add(done).copy_to_nonoverlapping(to.add(done), step);
                done += step;
            }
        }
    }
}

/// Moves values from `from` on into all of `cells`.
///
/// # Safety
///
/// The cells are the caller's alone and hold no value, and there are as many values to be moved.
// SAFETY: the section above.
#[inline(always)]
pub(crate) unsafe fn write_cells<T>(cells: &[UnsafeCell<MaybeUninit<T>>], from: *const T) {
    #[cfg(not(packtrain_loom))]
    // SAFETY: a cell has the layout of what is in it, and changes by way of a shared reference.
    unsafe {
        move_values(from, cells.as_ptr().cast_mut().cast::<T>(), cells.len());
    }
    #[cfg(packtrain_loom)]
    for (i, cell) in cells.iter().enumerate() {
        // SAFETY: as the caller says.
        cell.with_mut(|cell| unsafe { (*cell).write(from.add(i).read()) });
    }
}
