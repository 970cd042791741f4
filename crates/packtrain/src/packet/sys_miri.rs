//! The mapping of an arena under Miri, which has neither memfd nor mmap: an allocation with the
//! alignment of a page.

#![allow(unsafe_code, reason = "allocates and frees memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

/// A zeroed, page-aligned allocation, freed when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    layout: Layout,
    fd: File,
}

// SAFETY: plain memory without thread affinity; the arena controls the access to each byte.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself hands out only its base address.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(bytes.next_multiple_of(4096), 4096)
            .map_err(io::Error::other)?;
        let fd = File::open("/dev/null")?;
        // SAFETY: at least one page, so not of size zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })
            .ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, layout, fd })
    }

    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.layout.size()
    }

    pub(super) const fn huge_pages(&self) -> bool {
        false
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
