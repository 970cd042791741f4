//! What a producer enqueues: items that move out at the front.

#![allow(
    unsafe_code,
    reason = "items are moved in bulk, and the batch is told that they are gone"
)]

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

/// Items to enqueue, the oldest first.
///
/// # Safety
///
/// The ring reserves slots for [`len`](Batch::len) items before it moves them. So
/// [`move_front`](Batch::move_front) must hand over exactly as many as it was asked for, each
/// valid and owned by the ring alone from then on, and it must not unwind.
// SAFETY: the section above says what an implementation promises.
pub unsafe trait Batch<T> {
    /// Items in the batch.
    fn len(&self) -> usize;

    /// True without items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the oldest `count` items, at most [`len`](Batch::len), to `take` as runs that are
    /// side by side in memory, in order. They are moved: the batch holds only the others then.
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize));
}

// SAFETY: the front of the first part and, if that is shorter, of the second one make two runs;
// then the same items are taken off and not dropped.
unsafe impl<T> Batch<T> for VecDeque<T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize)) {
        assert!(count <= self.len(), "the batch has fewer items");
        let (first, second) = self.as_slices();
        let run = count.min(first.len());
        take(first.as_ptr(), run);
        if count > run {
            take(second.as_ptr(), count - run);
        }
        self.drain(..count).for_each(|moved| {
            let _moved = ManuallyDrop::new(moved);
        });
    }
}

// SAFETY: one run of `count` items, copied as their type allows; the slice becomes the others.
unsafe impl<T: Copy> Batch<T> for &[T] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[inline(always)]
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize)) {
        let (given, left) = self.split_at(count);
        take(given.as_ptr(), count);
        *self = left;
    }
}
