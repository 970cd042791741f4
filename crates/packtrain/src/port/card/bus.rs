//! What a driver asks of the bus of its card.

use super::interrupt::{Interrupt, InterruptKind};
use crate::driver::DeviceError;
use crate::port::sys::card::memory::Memory;
use crate::port::sys::device::unsupported;
use std::fmt;
use std::io;
use std::time::Duration;

/// A PCI function that this process has to itself: its registers, its memory, its interrupts.
///
/// Registers are little endian, and are accessed in the order of the calls. A function that was
/// removed reads as all ones, and ignores what is written. An access outside of a region (BAR) is
/// a defect of the driver: it panics.
pub trait Bus: fmt::Debug + Send + Sync + 'static {
    /// Where it is: `0000:01:00.0`.
    fn name(&self) -> &str;

    /// Bytes of the region `bar`, 0 to 5; 0 if there is none.
    fn region(&self, bar: usize) -> usize;

    /// Reads a byte of the region `bar` at the offset `at`.
    fn read8(&self, bar: usize, at: usize) -> u8;

    /// Reads 16 bits.
    fn read16(&self, bar: usize, at: usize) -> u16;

    /// Reads 32 bits.
    fn read32(&self, bar: usize, at: usize) -> u32;

    /// Writes a byte. What was stored in shared memory before has to be made visible with
    /// [`write_barrier`](super::write_barrier).
    fn write8(&self, bar: usize, at: usize, value: u8);

    /// Writes 16 bits.
    fn write16(&self, bar: usize, at: usize, value: u16);

    /// Writes 32 bits.
    fn write32(&self, bar: usize, at: usize, value: u32);

    /// Reads an aligned word of the configuration space.
    ///
    /// # Errors
    ///
    /// The system's.
    fn config(&self, at: usize) -> io::Result<u32>;

    /// Gives the function memory to read and to write, and returns its address there. The function
    /// may access it until the bus is dropped, so the bus keeps its pages.
    ///
    /// # Errors
    ///
    /// The system's: too much memory is locked, no address is free.
    fn map(&self, memory: &Memory<'_>) -> io::Result<u64>;

    /// How many interrupts of a kind the function has.
    fn interrupts(&self, kind: InterruptKind) -> usize;

    /// Has the function raise these interrupts, the first one as its vector 0 and so on, in place
    /// of earlier ones; none turns them off.
    ///
    /// # Errors
    ///
    /// The system's; there are no more than [`interrupts`](Self::interrupts) of a kind.
    fn connect(&self, kind: InterruptKind, interrupts: &[Interrupt]) -> io::Result<()>;

    /// Lets an [`InterruptKind::Intx`] come again: it is masked when it comes, since its line stays
    /// raised until the driver has read the cause. Nothing to do for the others.
    fn unmask(&self);

    /// Resets the function. It has no memory access (bus mastering) until
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// The system's.
    fn reset(&self) -> io::Result<()>;

    /// Lets the function access memory, or, with `false`, no longer: what it is doing is complete
    /// when the call returns.
    ///
    /// # Errors
    ///
    /// The system's.
    fn start(&self, accesses_memory: bool) -> io::Result<()>;

    /// Whether the function was removed, or its removal was requested.
    fn is_removed(&self) -> bool;

    /// Waits, as data sheets ask for: while a function resets itself.
    fn pause(&self, time: Duration);
}

impl InterruptKind {
    /// The first kind that the card has of MSI-X with `vectors` vectors, MSI and INTx; or `wanted`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it has none, or not `wanted`.
    pub fn choose(
        bus: &impl Bus,
        wanted: Option<Self>,
        vectors: usize,
    ) -> Result<Self, DeviceError> {
        let kinds = [Self::Msix, Self::Msi, Self::Intx].into_iter();
        let mut kinds = kinds.filter(|kind| wanted.is_none_or(|wanted| wanted == *kind));
        let found = kinds.find(|kind| match kind {
            Self::Msix => bus.interrupts(*kind) >= vectors,
            Self::Msi | Self::Intx => bus.interrupts(*kind) >= 1,
        });
        let name = bus.name();
        match (found, wanted) {
            (Some(kind), _) => Ok(kind),
            (None, Some(_)) => unsupported(format!(
                "{name} has no such interrupts: leave out irq=, or give another one of msix, msi \
                 and intx"
            )),
            (None, None) => unsupported(format!(
                "{name} has no interrupts (MSI-X, MSI, INTx), which its queues wait for: see what \
                 `lspci -vv -s {name}` says of them"
            )),
        }
    }
}
