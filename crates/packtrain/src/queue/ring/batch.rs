//! What a producer brings: items that move out at the front.

#![allow(
    unsafe_code,
    reason = "items are moved in bulk, and what is left is told that they are gone"
)]

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

/// Items to enqueue, the oldest first.
///
/// # Safety
///
/// The ring reserves space for what [`len`](Batch::len) says before it moves the items, so
/// [`move_front`](Batch::move_front) must hand over exactly as many as it was asked for, each of
/// them valid and owned by nobody else from then on, and it must not unwind.
// SAFETY: the section above says what an implementation promises.
pub unsafe trait Batch<T> {
    /// Items in it.
    fn len(&self) -> usize;

    /// True without items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the oldest `count` items, at most [`len`](Batch::len), to `take` as runs that lie
    /// side by side in memory, in order. They are moved: what is left holds the others only.
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize));
}

// SAFETY: one run of `count` items; the rest is moved to the front and the length says so.
unsafe impl<T> Batch<T> for Vec<T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize)) {
        let len = self.len();
        assert!(count <= len, "asked for more than there is");
        // SAFETY: no item is owned by the vector while its length is 0; `count` of them are moved
        // by `take`, and the others to the front, within the same memory.
        unsafe {
            self.set_len(0);
            take(self.as_ptr(), count);
            if count < len {
                let items = self.as_mut_ptr();
                items.add(count).copy_to(items, len - count);
                self.set_len(len - count);
            }
        }
    }
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
        assert!(count <= self.len(), "asked for more than there is");
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

// SAFETY: one run of `count` items, copied as their type allows; what is left are the others.
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

// SAFETY: one run of one item, or none.
unsafe impl<T> Batch<T> for Option<T> {
    #[inline(always)]
    fn len(&self) -> usize {
        usize::from(self.is_some())
    }

    #[inline(always)]
    fn move_front(&mut self, count: usize, take: &mut impl FnMut(*const T, usize)) {
        assert!(count <= Batch::len(self), "asked for more than there is");
        if count == 1 {
            let item = ManuallyDrop::new(self.take());
            if let Some(item) = &*item {
                take(item, 1);
            }
        }
    }
}
