//! One block of memory for all parts.

#![allow(
    unsafe_code,
    reason = "cuts one allocation into slices of several types"
)]

use super::{Parts, Queued, Storage};
use crate::coalesce::{Config, Entry, Link, Needs, Set};
use crate::sort::Keyed;
use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

/// Storage in one allocation, made at set-up and freed as a whole, with the packets in it.
pub struct Owned<P> {
    block: NonNull<u8>,
    layout: Layout,
    needs: Needs,
    /// Where each part begins, in bytes: entries, sets, links, queue, keys, words.
    at: [usize; 6],
    packets: PhantomData<P>,
}

// SAFETY: the block is this value's alone; sending it sends the packets in it, and nothing else in
// it is tied to a thread.
unsafe impl<P: Send> Send for Owned<P> {}
// SAFETY: `&Owned` gives access to lengths only.
unsafe impl<P> Sync for Owned<P> {}

impl<P> Owned<P> {
    /// Allocates the storage for `config`.
    #[must_use]
    pub fn for_config(config: &Config) -> Self {
        let needs = config.needs();
        let (layout, at) = Self::layout(&needs);
        // SAFETY: the layout is not empty: there is at least one entry.
        let Some(block) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: every part is inside the block, aligned, and written before it is read.
        unsafe {
            fill(block.add(at[0]), needs.entries, || Entry::<P>::EMPTY);
            fill(block.add(at[1]), needs.sets, || Set::EMPTY);
            fill(block.add(at[2]), needs.links, || Link::EMPTY);
            fill(block.add(at[3]), needs.queue, || Queued::<P>::EMPTY);
            fill(block.add(at[4]), needs.keys, Keyed::default);
            fill(block.add(at[5]), needs.words, || 0_u32);
        }
        Self {
            block,
            layout,
            needs,
            at,
            packets: PhantomData,
        }
    }

    /// Size of the allocation, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The layout of the block and where its parts begin.
    fn layout(needs: &Needs) -> (Layout, [usize; 6]) {
        let arrays = [
            Layout::array::<Entry<P>>(needs.entries),
            Layout::array::<Set>(needs.sets),
            Layout::array::<Link>(needs.links),
            Layout::array::<Queued<P>>(needs.queue),
            Layout::array::<Keyed>(needs.keys),
            Layout::array::<u32>(needs.words),
        ];
        let mut whole = Layout::new::<()>();
        let mut at = [0; 6];
        for (start, array) in at.iter_mut().zip(arrays) {
            // `Config::FLOWS_MAX` keeps everything far below the address space.
            let extended = array.and_then(|array| whole.extend(array));
            let Ok((longer, offset)) = extended else {
                unreachable!("the parts of {} flows fit the address space", needs.entries)
            };
            whole = longer;
            *start = offset;
        }
        (whole.pad_to_align(), at)
    }

    /// One part.
    ///
    /// # Safety
    ///
    /// `T` and `len` are those that part `index` was filled with, and no other slice of that part
    /// is in use.
    unsafe fn part<'s, T>(&self, index: usize, len: usize) -> &'s mut [T] {
        // SAFETY: the part is inside the block, aligned and initialised, and the caller guarantees
        // that no other slice of it is in use.
        unsafe {
            let start = self.block.add(self.at[index]).cast::<T>();
            slice::from_raw_parts_mut(start.as_ptr(), len)
        }
    }
}

/// Writes `len` values from `at` on.
///
/// # Safety
///
/// There is room for them, aligned.
unsafe fn fill<T>(at: NonNull<u8>, len: usize, value: impl Fn() -> T) {
    let at = at.cast::<T>();
    for index in 0..len {
        // SAFETY: the caller guarantees the room.
        unsafe { at.add(index).write(value()) };
    }
}

impl<P> Storage<P> for Owned<P> {
    fn parts(&mut self) -> Parts<'_, P> {
        let needs = self.needs;
        // SAFETY: types and lengths are those of `for_config`; the parts do not overlap, and
        // `&mut self` is borrowed for as long as they are in use.
        unsafe {
            Parts {
                entries: self.part(0, needs.entries),
                sets: self.part(1, needs.sets),
                links: self.part(2, needs.links),
                queue: self.part(3, needs.queue),
                keys: self.part(4, needs.keys),
                words: self.part(5, needs.words),
            }
        }
    }
}

impl<P> Drop for Owned<P> {
    fn drop(&mut self) {
        let needs = self.needs;
        // SAFETY: the parts are no longer in use. Only entries and queued packets own anything; the
        // block was allocated with this layout.
        unsafe {
            core::ptr::drop_in_place(self.part::<Entry<P>>(0, needs.entries));
            core::ptr::drop_in_place(self.part::<Queued<P>>(3, needs.queue));
            dealloc(self.block.as_ptr(), self.layout);
        }
    }
}

impl<P> fmt::Debug for Owned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned")
            .field("bytes", &self.bytes())
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}
