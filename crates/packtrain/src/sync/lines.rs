//! A slice that begins with a cache line.

#![allow(unsafe_code, reason = "memory with an alignment of its own")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// Of memory that threads hand to each other by the line: two of Intel's (see `Padded`).
const ALIGN: usize = 128;

/// A boxed slice whose first element is at the start of a cache line.
#[derive(Debug)]
pub(crate) struct Lines<X> {
    first: NonNull<X>,
    len: usize,
}

// SAFETY: it owns its elements, as a boxed slice does.
unsafe impl<X: Send> Send for Lines<X> {}
// SAFETY: a shared one gives shared elements only.
unsafe impl<X: Sync> Sync for Lines<X> {}

impl<X> Lines<X> {
    /// `len` elements, at least one, of a type that has a size.
    pub(crate) fn new(len: usize, mut make: impl FnMut() -> X) -> Self {
        let layout = Self::layout(len);
        assert!(layout.size() > 0, "elements without a size need no lines");
        // SAFETY: the layout has a size.
        let first = NonNull::new(unsafe { alloc(layout) }.cast::<X>());
        let first = first.unwrap_or_else(|| handle_alloc_error(layout));
        for i in 0..len {
            // SAFETY: there is room for `len` of them. (Should `make` panic, memory is lost, and
            // nothing else.)
            unsafe { first.add(i).write(make()) };
        }
        Self { first, len }
    }

    /// Asks the processor to bring the line of an element here, to be read soon. It changes
    /// nothing, and may do nothing.
    #[inline(always)]
    pub(crate) fn fetch(&self, index: usize) {
        debug_assert!(index < self.len);
        #[cfg(all(target_arch = "x86_64", not(any(packtrain_loom, miri))))]
        // SAFETY: a prefetch reads nothing that could be seen, and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.first.as_ptr().wrapping_add(index).cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(packtrain_loom, miri)))))]
        let _: usize = index;
    }

    /// The same for one that will be written, which takes the line from the CPU that has it.
    #[inline(always)]
    pub(crate) fn fetch_to_write(&self, index: usize) {
        debug_assert!(index < self.len);
        #[cfg(all(target_arch = "x86_64", not(any(packtrain_loom, miri))))]
        // SAFETY: a prefetch reads nothing that could be seen, writes nothing, and never faults.
        // As an instruction, since the intrinsic means another one where the build is for any
        // CPU; those of before 2014 that do not know it take it for a `nop`.
        unsafe {
            std::arch::asm!(
                "prefetchw [{place}]",
                place = in(reg) self.first.as_ptr().wrapping_add(index),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(packtrain_loom, miri)))))]
        let _: usize = index;
    }

    fn layout(len: usize) -> Layout {
        let layout = Layout::array::<X>(len).and_then(|layout| layout.align_to(ALIGN));
        layout.expect("it fits into the address space")
    }
}

impl<X> Deref for Lines<X> {
    type Target = [X];

    #[inline(always)]
    fn deref(&self) -> &[X] {
        // SAFETY: `len` elements were written there, and are ours.
        unsafe { NonNull::slice_from_raw_parts(self.first, self.len).as_ref() }
    }
}

impl<X> Drop for Lines<X> {
    fn drop(&mut self) {
        let elements = NonNull::slice_from_raw_parts(self.first, self.len);
        // SAFETY: the elements are ours, and so is the memory, which was allocated like this.
        unsafe {
            ptr::drop_in_place(elements.as_ptr());
            dealloc(self.first.as_ptr().cast(), Self::layout(self.len));
        }
    }
}

#[cfg(all(test, not(packtrain_loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn elements_begin_with_a_line_and_are_dropped_once() {
        let one = Rc::new(());
        for len in [1, 3, 1000] {
            let lines = Lines::new(len, || Rc::clone(&one));
            assert_eq!((lines.len(), Rc::strong_count(&one)), (len, len + 1));
            assert!(lines.as_ptr().addr().is_multiple_of(ALIGN));
            drop(lines);
            assert_eq!(Rc::strong_count(&one), 1);
        }
    }
}
