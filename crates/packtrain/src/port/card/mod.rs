//! What drivers of network cards (PCI functions) share, for authors of more of them: the bus
//! ([`Bus`]), memory that the card accesses ([`Dma`], [`Ring`], [`Window`]), frames that it fills
//! ([`Buffers`], [`Arriving`]), packets that it sends ([`Flight`]), and its interrupts
//! ([`Interrupt`], [`Fanout`]).
//!
//! A driver is generic over its bus. [`Vfio`] is that of a card of this machine.

mod buffers;
mod bus;
#[cfg(test)]
pub(crate) mod fake;
mod fanout;
mod flight;
mod interrupt;
pub mod pci;

pub use super::arriving::Arriving;
pub use super::sys::card::dma::{Dma, Ring, Window, full_barrier, read_barrier, write_barrier};
pub use super::sys::card::memory::Memory;
pub(super) use super::sys::device::{failed, unsupported};
pub use super::sys::vfio::Vfio;
pub use buffers::Buffers;
pub use bus::Bus;
pub use fanout::Fanout;
pub use flight::Flight;
pub use interrupt::{Interrupt, InterruptKind};

use crate::driver::DeviceError;
use std::io;

/// Another program has reset a card that runs: it has forgotten its rings.
pub(super) fn was_reset() -> DeviceError {
    let source = io::Error::other(
        "it was reset meanwhile, as by `reset` of its folder in sysfs; run it again",
    );
    failed("go on with the card")(source)
}
