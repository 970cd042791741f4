//! What drivers of network cards (PCI functions) share, for authors of more of them: the bus
//! ([`Bus`]), memory that the card accesses ([`Dma`], [`Ring`], [`Window`]), frames that it fills
//! ([`Buffers`], [`Arriving`]), packets that it sends ([`Flight`]), and its interrupts
//! ([`Interrupt`], [`Fanout`]).
//!
//! A driver is generic over its bus. [`Vfio`] is that of a card of this machine.

#[cfg(test)]
pub(in crate::port) mod bench;
mod buffers;
mod bus;
mod config;
#[cfg(any(test, feature = "internals"))]
#[doc(hidden)]
pub mod fake;
mod fanout;
mod flight;
mod halves;
mod headers;
mod interrupt;
pub mod pci;
mod pieces;
mod running;

pub use super::arriving::Arriving;
pub use super::sys::card::dma::{Dma, Ring, Window, full_barrier, read_barrier, write_barrier};
pub use super::sys::card::memory::Memory;
pub(super) use super::sys::device::{failed, unsupported};
pub use super::sys::vfio::Vfio;
pub use buffers::Buffers;
pub use bus::Bus;
pub use config::CardConfig;
pub(super) use config::{MTU, Model, RINGS, address_of};
pub use fanout::Fanout;
pub use flight::Flight;
pub use halves::{CardRx, CardTx, Receive, Received, Transmit};
pub(super) use headers::{CutHeaders, TCP_CHECKSUM, pseudo_header};
pub use interrupt::{Interrupt, InterruptKind};
pub(super) use pieces::{Pieces, checksum_place};
pub(super) use running::{LastLink, Running, Started, Stop};

use crate::driver::DeviceError;
use std::io;

/// The key that makes hashes comparable with those of other systems: the one of Microsoft's
/// "Verifying the RSS hash calculation".
pub(super) const RSS_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Another program has reset a card that runs: it has forgotten its rings.
pub(super) fn was_reset() -> DeviceError {
    let source = io::Error::other(
        "it was reset meanwhile, as by `reset` of its folder in sysfs; run it again",
    );
    failed("go on with the card")(source)
}
