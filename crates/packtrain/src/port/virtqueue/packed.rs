//! A packed virtqueue (virtio 1.2 §2.8), seen from the driver.

use super::layout::{Buffer, DESCRIPTOR_BYTES, NEXT, Shape, Used};
use super::slots::Slots;
use crate::port::card::{Dma, full_barrier, read_barrier, write_barrier};
use std::sync::Arc;

/// In the flags of a descriptor: the lap of the end that wrote it last.
pub(super) const AVAIL: u16 = 1 << 7;
pub(super) const USED: u16 = 1 << 15;
/// Where its fields are.
pub(super) const LENGTH_AT: usize = 8;
pub(super) const ID_AT: usize = 12;
pub(super) const FLAGS_AT: usize = 14;
/// In the flags of an end's area: notify it, do not, or do at a descriptor.
pub(super) const ENABLE: u16 = 0;
pub(super) const DISABLE: u16 = 1;
pub(super) const AT_DESCRIPTOR: u16 = 2;
/// In the word with that descriptor: the lap.
pub(super) const LAP: u16 = 1 << 15;

/// The last word of a descriptor in a table: the next one is behind it.
pub(super) const fn word(flags: u16) -> u32 {
    (flags as u32) << 16
}

/// A place in the ring, and the lap's parity, which begins with 1.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u16,
    lap: bool,
}

impl Place {
    const fn ahead(self, by: u16, size: u16) -> Self {
        let index = self.index + by;
        if index < size {
            return Self { index, ..self };
        }
        Self {
            index: index - size,
            lap: !self.lap,
        }
    }

    const fn at(self) -> usize {
        self.index as usize * DESCRIPTOR_BYTES
    }
}

/// One ring of descriptors, which both ends write.
#[derive(Debug)]
pub(in crate::port) struct Packed {
    pub(super) dma: Arc<Dma>,
    /// Where the descriptors, and the areas of the driver and of the device are.
    pub(super) areas: [usize; 3],
    pub(super) slots: Slots,
    pub(super) shape: Shape,
    /// Where the next chain is added, and whether one was since the last notification was
    /// considered.
    tail: Place,
    has_added: bool,
    /// Where the next used chain is.
    head: Place,
    armed: bool,
}

impl Packed {
    pub(super) fn new(dma: Arc<Dma>, shape: Shape) -> Self {
        let (_, areas, _) = shape.areas();
        let start = Place {
            index: 0,
            lap: true,
        };
        let mut ring = Self {
            dma,
            areas,
            slots: Slots::new(shape.size),
            shape,
            tail: start,
            has_added: false,
            head: start,
            armed: true,
        };
        ring.disarm();
        ring
    }

    pub(super) fn put(&mut self, buffers: impl Iterator<Item = Buffer>) -> u16 {
        let (slot, start) = (self.slots.take(), self.tail);
        let (mut first, mut count) = (0, 0);
        let mut buffers = buffers.peekable();
        while let Some(buffer) = buffers.next() {
            let at = self.tail.at();
            let mut flags = if self.tail.lap { AVAIL } else { USED };
            flags |= buffer.flags;
            flags |= if buffers.peek().is_some() { NEXT } else { 0 };
            buffer.store(&self.dma, at);
            self.dma.store16(at + ID_AT, slot);
            if count == 0 {
                first = flags;
            } else {
                self.dma.store16(at + FLAGS_AT, flags);
            }
            self.tail = self.tail.ahead(1, self.shape.size);
            count += 1;
        }
        self.slots.begin(slot, count);
        // The device has the whole chain with the first descriptor.
        write_barrier();
        self.dma.store16(start.at() + FLAGS_AT, first);
        self.has_added = true;
        slot
    }

    pub(super) fn publish(&mut self) -> bool {
        if !std::mem::take(&mut self.has_added) {
            return false;
        }
        // As in a split ring.
        full_barrier();
        // A device that wants a notification at a descriptor gets one at each. QEMU (7.2,
        // `virtio_net_tx_complete`) asks for one at a descriptor, and then takes what is behind it
        // without asking anew. In a split ring each chain that it takes moves the index; here none
        // does, and the next chains would wait for ever.
        self.dma.load16(self.areas[2] + 2) != DISABLE
    }

    pub(super) fn take(&mut self) -> Option<Used> {
        if !self.is_used(self.head) {
            return None;
        }
        read_barrier();
        let at = self.head.at();
        let slot = self.dma.load16(at + ID_AT);
        let bytes = self.dma.load(at + LENGTH_AT);
        // The number of descriptors of a chain that does not exist is unknown. A buffer to be
        // received into has one.
        let count = self.slots.end(slot, false);
        self.head = self.head.ahead(count.unwrap_or(1), self.shape.size);
        Some(Used {
            slot: count.map(|_| slot),
            bytes,
        })
    }

    pub(super) fn arm(&mut self, ahead: u16) -> Option<bool> {
        let place = self.head.ahead(ahead, self.shape.size);
        let driver = self.areas[1];
        if self.shape.event_idx {
            let lap = if place.lap { LAP } else { 0 };
            self.dma.store16(driver, place.index | lap);
            write_barrier();
            self.dma.store16(driver + 2, AT_DESCRIPTOR);
        } else if ahead > 0 {
            return None;
        } else {
            self.dma.store16(driver + 2, ENABLE);
        }
        self.armed = true;
        full_barrier();
        Some(self.is_used(place))
    }

    pub(super) fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.dma.store16(self.areas[1] + 2, DISABLE);
        }
    }

    /// Whether the device has used the descriptor there, in its lap.
    fn is_used(&self, place: Place) -> bool {
        let flags = self.dma.load16(place.at() + FLAGS_AT);
        let (avail, used) = (flags & AVAIL != 0, flags & USED != 0);
        avail == used && used == place.lap
    }
}
