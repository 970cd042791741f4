//! Layouts, flags and indices of virtqueues, as both ends have them (virtio 1.2 §2.6 to §2.8).

use crate::port::card::Dma;

/// The most descriptors of a ring (virtio 1.2 §2.7 and §2.8.10.1).
pub(in crate::port) const SIZE_MAX: u32 = 32_768;
/// Bytes of a descriptor, in both kinds of rings.
pub(in crate::port) const DESCRIPTOR_BYTES: usize = 16;
/// Where its last word is: flags and what the kind of ring needs.
pub(in crate::port) const WORD_AT: usize = 12;
/// The chain goes on with another descriptor.
pub(in crate::port) const NEXT: u16 = 1;
/// The device writes to the buffer; else it reads from it.
pub(in crate::port) const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub(in crate::port) const INDIRECT: u16 = 4;
/// In the flags of the used ring: the driver need not notify the device.
pub(in crate::port) const NO_NOTIFY: u16 = 1;
/// In the flags of the avail ring: the device need not interrupt the driver.
pub(in crate::port) const NO_INTERRUPT: u16 = 1;
/// In the avail ring and in the used ring: the index, and the first element.
pub(in crate::port) const INDEX_AT: usize = 2;
pub(in crate::port) const ELEMENTS_AT: usize = 4;
/// Bytes of an element of the used ring.
pub(in crate::port) const USED_BYTES: usize = 8;

/// In the avail ring: the place of the index at which the driver wants an interrupt, behind all
/// elements.
pub(in crate::port) const fn used_event_at(size: usize) -> usize {
    ELEMENTS_AT + 2 * size
}

/// In the used ring: the place of the index at which the device wants a notification, behind all
/// elements.
pub(in crate::port) const fn avail_event_at(size: usize) -> usize {
    ELEMENTS_AT + USED_BYTES * size
}

/// Whether an index that went from `before` to `now` has passed `event` (virtio 1.2 §2.7.10.2).
pub(in crate::port) const fn passed(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// What a driver's ring depends on of the features that were negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::port) struct Shape {
    /// Descriptors; of a split ring a power of two.
    pub(in crate::port) size: u16,
    /// `VIRTIO_F_RING_PACKED`.
    pub(in crate::port) packed: bool,
    /// `VIRTIO_F_EVENT_IDX`.
    pub(in crate::port) event_idx: bool,
}

impl Shape {
    /// Bytes of the ring's three areas.
    pub(in crate::port) const fn bytes(self) -> usize {
        let (_, [.., last], bytes) = self.areas();
        last + bytes
    }

    /// Where the areas of the descriptors, of the driver and of the device begin, each aligned as
    /// both kinds need; and the bytes of the last one.
    pub(super) const fn areas(self) -> (usize, [usize; 3], usize) {
        let size = self.size as usize;
        let driver = size * DESCRIPTOR_BYTES;
        if self.packed {
            return (size, [0, driver, driver + 4], 4);
        }
        let device = (driver + used_event_at(size) + 2).next_multiple_of(4);
        (size, [0, driver, device], avail_event_at(size) + 2)
    }
}

/// A buffer of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Buffer {
    /// Its address for the device, and its length.
    pub(in crate::port) address: u64,
    pub(in crate::port) bytes: u32,
    /// [`WRITE`], [`INDIRECT`], or none.
    pub(in crate::port) flags: u16,
}

impl Buffer {
    /// One that the device reads.
    pub(in crate::port) const fn to_read(address: u64, bytes: usize) -> Self {
        Self::new(address, bytes, 0)
    }

    /// One that the device writes to.
    pub(in crate::port) const fn to_write(address: u64, bytes: usize) -> Self {
        Self::new(address, bytes, WRITE)
    }

    const fn new(address: u64, bytes: usize, flags: u16) -> Self {
        Self {
            address,
            bytes: bytes as u32,
            flags,
        }
    }

    /// A table of so many descriptors.
    pub(super) const fn table(address: u64, descriptors: usize) -> Self {
        Self::new(address, descriptors * DESCRIPTOR_BYTES, INDIRECT)
    }

    /// Stores address and length in a descriptor, which both kinds of rings have first.
    pub(super) fn store(self, dma: &Dma, at: usize) {
        dma.store(at, self.address as u32);
        dma.store(at + 4, (self.address >> 32) as u32);
        dma.store(at + 8, self.bytes);
    }
}

/// A chain that the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) struct Used {
    /// The number that [`Virtqueue::put`] returned; `None` if the device has no such chain.
    pub(in crate::port) slot: Option<u16>,
    /// Bytes that it says it has written.
    pub(in crate::port) bytes: u32,
}
