//! What drivers of network cards share below the driver contract: memory that a card reads and
//! writes by itself (DMA), and rings of descriptors in it.

pub(in crate::port) mod dma;
#[cfg(any(test, feature = "internals"))]
pub(in crate::port) mod fake;
pub(in crate::port) mod memory;
