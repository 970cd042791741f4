//! The mapping of an arena: one memfd, with huge pages if enough are reserved.

#![allow(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// A shared, zeroed, page-aligned mapping of a memfd, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    huge: bool,
    fd: OwnedFd,
}

// SAFETY: the mapping is plain memory without thread affinity; the arena controls the access to
// each byte.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself hands out only its base address.
unsafe impl Sync for Mapping {}

const HUGE_PAGE_BYTES: usize = 2 << 20;

impl Mapping {
    /// Maps at least `bytes` bytes, in 2 MiB pages if enough are reserved, else in ordinary ones.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        Self::map(bytes.next_multiple_of(HUGE_PAGE_BYTES), libc::MFD_HUGETLB)
            .or_else(|_no_huge_pages| Self::map(bytes.next_multiple_of(4096), 0))
    }

    fn map(bytes: usize, huge_flag: libc::c_uint) -> io::Result<Self> {
        // SAFETY: the name is a valid C string; the result is checked before use.
        let raw = unsafe {
            libc::memfd_create(c"packtrain-arena".as_ptr(), libc::MFD_CLOEXEC | huge_flag)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned `raw`, and no other owner has it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: a plain call with an owned descriptor.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The system provides pages on first use. It reserves huge ones here, so that too few of
        // them are an error and not a signal.
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            base,
            bytes,
            huge: huge_flag != 0,
            fd,
        })
    }

    /// First byte; valid for [`Self::bytes`] bytes while `self` lives.
    pub(super) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn huge_pages(&self) -> bool {
        self.huge
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `mmap` returned; the arena frees it only if no packet and
        // no cache refers to it.
        let failed = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) } != 0;
        debug_assert!(!failed, "munmap of our own mapping cannot fail");
    }
}
