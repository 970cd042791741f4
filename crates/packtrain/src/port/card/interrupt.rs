//! Interrupts of cards, as descriptors that a worker waits for.

use crate::driver::key::Words;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How a card raises its interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptKind {
    /// A message for each vector, with a table in the card.
    #[default]
    Msix,
    /// Messages in a block of vectors; mostly one.
    Msi,
    /// One line, which stays raised until the cause is read.
    Intx,
}

impl Words for InterruptKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("msix", Self::Msix),
        ("msi", Self::Msi),
        ("intx", Self::Intx),
    ];
}

/// One interrupt: readable from when it came until [`clear`](Self::clear). Clones are the same one.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<OwnedFd>);

impl Interrupt {
    /// One that has not come.
    ///
    /// # Errors
    ///
    /// The system's, without a free descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }

    /// Forgets that it came. Returns whether it had.
    pub fn clear(&self) -> bool {
        // An error says that it had not.
        read(&self.0, &mut [0_u8; 8]).is_ok()
    }

    /// Raises it, as a card does.
    pub fn raise(&self) {
        // An error says that it has come 2^64 - 2 times.
        write(&self.0, &1_u64.to_ne_bytes()).unwrap_or(0);
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
