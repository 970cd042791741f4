//! Memory on its way to a card.

#![allow(
    unsafe_code,
    reason = "a descriptor by which a device is given the memory"
)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Memory that is given to a card: for implementations of [`Bus`](crate::port::card::Bus).
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    fd: BorrowedFd<'a>,
    start: NonNull<u8>,
    bytes: usize,
}

impl<'a> Memory<'a> {
    /// Of a memfd that is mapped at `start`.
    pub(super) const fn new(fd: BorrowedFd<'a>, start: NonNull<u8>, bytes: usize) -> Self {
        Self { fd, start, bytes }
    }

    /// Its first byte, at the start of a page.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length: whole pages.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memfd that is mapped there from its first byte on. Its size is sealed.
    ///
    /// # Safety
    ///
    /// Through it, only a device may access the memory, and only what its driver told it.
    #[must_use]
    pub const unsafe fn fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
