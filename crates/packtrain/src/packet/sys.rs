//! The mapping of an arena: one memfd, with huge pages if enough are reserved.

#![allow(unsafe_code, reason = "maps and unmaps memory")]

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A shared, zeroed, page-aligned mapping of a memfd, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
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

/// A memfd of a fixed length. A process that has the descriptor cannot shorten the file: an access
/// behind its end is SIGBUS.
fn sealed_memfd(bytes: u64, huge: bool) -> io::Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    flags.set(MemfdFlags::HUGETLB, huge);
    let fd = memfd_create("packtrain-arena", flags)?;
    ftruncate(&fd, bytes)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

impl Mapping {
    /// Maps at least `bytes` bytes, in 2 MiB pages if enough are reserved, else in ordinary ones.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Self::map(bytes.next_multiple_of(HUGE_PAGE_BYTES), true)
            .or_else(|_no_huge_pages| Self::map(bytes.next_multiple_of(4096), false))
    }

    fn map(bytes: usize, huge: bool) -> io::Result<Self> {
        let fd = sealed_memfd(bytes as u64, huge)?;
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
            huge,
            fd,
        })
    }

    /// First byte; valid for [`Self::bytes`] bytes while `self` lives.
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn huge_pages(&self) -> bool {
        self.huge
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fcntl_get_seals;
    use rustix::io::Errno;

    #[test]
    fn the_descriptor_cannot_resize_the_memory() {
        let mapping = Mapping::new(1).unwrap();
        let ordinary = sealed_memfd(4096, false).unwrap();
        // A kernel may have no huge pages.
        let huge = sealed_memfd(HUGE_PAGE_BYTES as u64, true).ok();
        let fds = [Some(mapping.fd()), Some(ordinary.as_fd())];
        for fd in fds.into_iter().chain([huge.as_ref().map(AsFd::as_fd)]) {
            let Some(fd) = fd else { continue };
            for bytes in [0, 64 << 20] {
                assert_eq!(ftruncate(fd, bytes), Err(Errno::PERM), "to {bytes} bytes");
            }
            assert!(fcntl_get_seals(fd).unwrap().contains(SealFlags::SEAL));
        }
    }
}
