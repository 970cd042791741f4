//! What both ends of a virtqueue share (virtio 1.2 §2.6 to §2.8): layouts, flags and indices; and
//! the driver's end of one, split or packed, with the PCI function that it belongs to (§4.1). The
//! device's end is `vhost-user:`'s.

pub(in crate::port) mod features;
mod layout;
mod packed;
pub(in crate::port) mod pci;
mod slots;
mod split;

use super::card::Dma;
pub(in crate::port) use layout::*;

use packed::Packed;
use split::Split;
use std::iter::once;
use std::sync::Arc;

/// The driver's end of a virtqueue.
///
/// The device may write anything at any time: numbers and lengths are read once and checked, and
/// the chains themselves are kept outside of the shared memory.
#[derive(Debug)]
pub(in crate::port) enum Virtqueue {
    Split(Split),
    Packed(Packed),
}

/// Calls a method of either kind.
macro_rules! each {
    ($queue:expr, $ring:ident => $call:expr) => {
        match $queue {
            Virtqueue::Split($ring) => $call,
            Virtqueue::Packed($ring) => $call,
        }
    };
}

impl Virtqueue {
    /// A ring in the first bytes of `dma`, which is zeroed. The device is not to interrupt.
    pub(in crate::port) fn new(dma: Arc<Dma>, shape: Shape) -> Self {
        if shape.packed {
            Self::Packed(Packed::new(dma, shape))
        } else {
            Self::Split(Split::new(dma, shape))
        }
    }

    /// The memory that it is in.
    pub(in crate::port) fn dma(&self) -> &Arc<Dma> {
        each!(self, ring => &ring.dma)
    }

    /// What it depends on.
    pub(in crate::port) fn shape(&self) -> Shape {
        each!(self, ring => ring.shape)
    }

    /// Forgets all chains: the ring is as a new one. The device does not access it.
    pub(in crate::port) fn renew(&mut self) {
        let (dma, shape) = (Arc::clone(self.dma()), self.shape());
        (0..shape.bytes())
            .step_by(2)
            .for_each(|at| dma.store16(at, 0));
        *self = Self::new(dma, shape);
    }

    /// Descriptors that are free.
    pub(in crate::port) fn room(&self) -> usize {
        each!(self, ring => ring.slots.room())
    }

    /// Chains that the device has.
    pub(in crate::port) fn in_flight(&self) -> usize {
        each!(self, ring => ring.slots.in_flight())
    }

    /// The number of the next chain.
    pub(in crate::port) fn next_slot(&self) -> u16 {
        each!(self, ring => ring.slots.next())
    }

    /// Adds a chain, and returns its number, which is below the ring's size. The device sees it
    /// after [`publish`](Self::publish), in a packed ring it may at once.
    ///
    /// # Panics
    ///
    /// Without [`room`](Self::room) for each of `buffers`, of which there is at least one.
    pub(in crate::port) fn put(&mut self, buffers: impl Iterator<Item = Buffer>) -> u16 {
        each!(self, ring => ring.put(buffers))
    }

    /// Adds a chain whose descriptors are in a table (`INDIRECT_DESC`), which stays at `at` of the
    /// ring's memory until the chain was used. It takes one descriptor of the ring.
    pub(in crate::port) fn put_table(
        &mut self,
        at: usize,
        buffers: impl Iterator<Item = Buffer>,
    ) -> u16 {
        let is_packed = matches!(self, Self::Packed(_));
        let dma = self.dma();
        let (mut buffers, mut count) = (buffers.peekable(), 0);
        while let Some(buffer) = buffers.next() {
            let place = at + count * DESCRIPTOR_BYTES;
            count += 1;
            buffer.store(dma, place);
            let is_last = buffers.peek().is_none();
            let word = match is_packed {
                true => packed::word(buffer.flags),
                false => split::word(buffer.flags, is_last, count as u16),
            };
            dma.store(place + WORD_AT, word);
        }
        let table = Buffer::table(dma.address() + at as u64, count);
        self.put(once(table))
    }

    /// Shows the device the chains that were added. Returns whether to notify it: if it may want
    /// that.
    pub(in crate::port) fn publish(&mut self) -> bool {
        each!(self, ring => ring.publish())
    }

    /// The next chain that the device has used.
    pub(in crate::port) fn take(&mut self) -> Option<Used> {
        each!(self, ring => ring.take())
    }

    /// Whether the device has broken the ring: it says that it has used more chains than there are.
    pub(in crate::port) const fn is_broken(&self) -> bool {
        match self {
            Self::Split(ring) => ring.is_broken(),
            // Each descriptor says by itself whether it is used.
            Self::Packed(_) => false,
        }
    }

    /// Has the device interrupt when it has used `ahead` chains of one descriptor, and one more,
    /// that were not taken. Returns whether it has. `None` from a ring that cannot count, for
    /// `ahead` more than 0.
    ///
    /// No interrupt is missed: the request is visible before the ring is looked at (a full barrier
    /// is between), and the device looks at the request after it has made a used chain visible. So
    /// either this end sees the chain, or the device sees the request.
    pub(in crate::port) fn arm(&mut self, ahead: u16) -> Option<bool> {
        each!(self, ring => ring.arm(ahead))
    }

    /// Has the device not interrupt.
    pub(in crate::port) fn disarm(&mut self) {
        each!(self, ring => ring.disarm());
    }

    /// The addresses of the three areas for the device.
    pub(in crate::port) fn addresses(&self) -> [u64; 3] {
        each!(self, ring => ring.areas).map(|at| self.dma().address() + at as u64)
    }
}
