//! The descriptor of memory that a card is given.

#![allow(unsafe_code, reason = "the memory of a driver is given to a device")]

use packtrain::port::card::Memory;
use std::os::fd::BorrowedFd;

/// The memfd of `memory`, to be mapped by QEMU.
pub(super) fn descriptor<'a>(memory: &'a Memory<'_>) -> BorrowedFd<'a> {
    // SAFETY: this process gives it to QEMU only, whose CPU is halted: QEMU accesses the memory for
    // the cards, as their driver tells them.
    unsafe { memory.fd() }
}
