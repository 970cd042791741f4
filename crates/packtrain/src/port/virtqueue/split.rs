//! A split virtqueue (virtio 1.2 §2.7), seen from the driver.

use super::layout::{
    Buffer, DESCRIPTOR_BYTES, ELEMENTS_AT, INDEX_AT, NEXT, NO_INTERRUPT, NO_NOTIFY, Shape,
    USED_BYTES, Used, WORD_AT, avail_event_at, passed, used_event_at,
};
use super::slots::Slots;
use crate::port::card::{Dma, full_barrier, read_barrier, write_barrier};
use std::sync::Arc;

/// The last word of a descriptor, in a ring or in a table: flags, and the index of the next one.
pub(super) const fn word(flags: u16, is_last: bool, next: u16) -> u32 {
    let flags = if is_last { flags } else { flags | NEXT };
    flags as u32 | (next as u32) << 16
}

/// Descriptors, and a ring of chains for each direction.
#[derive(Debug)]
pub(in crate::port) struct Split {
    pub(super) dma: Arc<Dma>,
    /// Where the descriptors, the avail ring and the used ring are.
    pub(super) areas: [usize; 3],
    pub(super) slots: Slots,
    pub(super) shape: Shape,
    /// The index behind the last chain that was added, and the one that the device knows.
    added: u16,
    published: u16,
    /// The index of the next used chain, and the device's when it was last read.
    next: u16,
    seen: u16,
    armed: bool,
    broken: bool,
}

impl Split {
    pub(super) fn new(dma: Arc<Dma>, shape: Shape) -> Self {
        let (_, areas, _) = shape.areas();
        let mut ring = Self {
            dma,
            areas,
            slots: Slots::new(shape.size),
            shape,
            added: 0,
            published: 0,
            next: 0,
            seen: 0,
            armed: true,
            broken: false,
        };
        ring.disarm();
        if shape.event_idx {
            // The index that is passed last.
            ring.dma.store16(ring.used_event(), u16::MAX);
        }
        ring
    }

    pub(super) fn put(&mut self, buffers: impl Iterator<Item = Buffer>) -> u16 {
        let [descriptors, avail, _] = self.areas;
        let (head, mut count) = (self.slots.next(), 0);
        let mut buffers = buffers.peekable();
        while let Some(buffer) = buffers.next() {
            let slot = self.slots.take();
            let at = descriptors + usize::from(slot) * DESCRIPTOR_BYTES;
            buffer.store(&self.dma, at);
            let is_last = buffers.peek().is_none();
            let word = word(buffer.flags, is_last, self.slots.next());
            self.dma.store(at + WORD_AT, word);
            count += 1;
        }
        self.slots.begin(head, count);
        let element = avail + ELEMENTS_AT + 2 * usize::from(self.added & (self.shape.size - 1));
        self.dma.store16(element, head);
        self.added = self.added.wrapping_add(1);
        head
    }

    pub(super) fn publish(&mut self) -> bool {
        if self.added == self.published {
            return false;
        }
        let [_, avail, used] = self.areas;
        write_barrier();
        self.dma.store16(avail + INDEX_AT, self.added);
        // The device writes what it wants and then reads the index; here it is the other way round.
        full_barrier();
        let before = std::mem::replace(&mut self.published, self.added);
        if self.shape.event_idx {
            let event = used + avail_event_at(usize::from(self.shape.size));
            passed(self.dma.load16(event), self.added, before)
        } else {
            self.dma.load16(used) & NO_NOTIFY == 0
        }
    }

    pub(super) fn take(&mut self) -> Option<Used> {
        if self.seen == self.next {
            self.seen = self.index();
            if self.seen == self.next || self.broken {
                return None;
            }
            // No more than the ring holds: else it is unknown which of them it means.
            if self.seen.wrapping_sub(self.next) > self.shape.size {
                self.broken = true;
                return None;
            }
            read_barrier();
        }
        if self.broken {
            return None;
        }
        let index = usize::from(self.next & (self.shape.size - 1));
        let at = self.areas[2] + ELEMENTS_AT + USED_BYTES * index;
        let (slot, bytes) = (self.dma.load(at), self.dma.load(at + 4));
        self.next = self.next.wrapping_add(1);
        let slot = u16::try_from(slot).ok();
        let slot = slot.filter(|slot| self.slots.end(*slot, true).is_some());
        Some(Used { slot, bytes })
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn arm(&mut self, ahead: u16) -> Option<bool> {
        if self.shape.event_idx {
            let event = self.next.wrapping_add(ahead);
            self.dma.store16(self.used_event(), event);
        } else if ahead > 0 {
            return None;
        } else {
            self.dma.store16(self.areas[1], 0);
            self.armed = true;
        }
        full_barrier();
        Some(self.index().wrapping_sub(self.next) > ahead)
    }

    /// With `EVENT_IDX` the index that was asked for has passed.
    pub(super) fn disarm(&mut self) {
        if !self.shape.event_idx && std::mem::take(&mut self.armed) {
            self.dma.store16(self.areas[1], NO_INTERRUPT);
        }
    }

    /// The device's index.
    fn index(&self) -> u16 {
        self.dma.load16(self.areas[2] + INDEX_AT)
    }

    fn used_event(&self) -> usize {
        self.areas[1] + used_event_at(usize::from(self.shape.size))
    }
}
