//! A packet to be sent, as a card gets it.

use super::{CutHeaders, Dma, Window};
use crate::driver::Refused;
use crate::packet::Packet;
use crate::stats::DropReason;
use packtrain_offload::offload::ChecksumState;
use std::ops::Range;
use std::sync::Arc;

/// The pieces of the next packet, each an address for the card and a length, and the memory for the
/// headers of packets that the card segments: a slot for each descriptor of the ring.
#[derive(Debug)]
pub(in crate::port) struct Pieces {
    pub(in crate::port) all: Vec<(u64, usize)>,
    pub(in crate::port) window: Window,
    pub(in crate::port) memory: Arc<Dma>,
    slots: usize,
}

impl Pieces {
    /// Bytes of a slot.
    pub(in crate::port) const SLOT_BYTES: usize = CutHeaders::BYTES_MAX;

    /// For packets of `most` pieces, with slots from the offset `slots` on.
    pub(in crate::port) fn new(
        window: Window,
        memory: &Arc<Dma>,
        slots: usize,
        most: usize,
    ) -> Self {
        Self {
            all: Vec::with_capacity(most),
            window,
            memory: Arc::clone(memory),
            slots,
        }
    }

    /// Where the slot of a descriptor is in the memory.
    pub(in crate::port) const fn slot(&self, index: usize) -> usize {
        self.slots + index * Self::SLOT_BYTES
    }

    /// Begins with the headers of a packet that the card segments, in the slot of the free
    /// descriptor `index`.
    pub(in crate::port) fn begin_with(&mut self, headers: &CutHeaders, index: usize) {
        let (at, bytes) = (self.slot(index), headers.as_bytes());
        self.memory.store_bytes(at, bytes);
        self.all.clear();
        self.all
            .push((self.memory.address() + at as u64, bytes.len()));
    }

    /// Adds a part of a packet in pieces of at most `bytes_max` bytes, up to `most` pieces.
    ///
    /// # Errors
    ///
    /// [`Refused::TooManySegments`] beyond that, or if it is in another arena: a copy is in this
    /// one, and has fewer.
    pub(in crate::port) fn gather(
        &mut self,
        packet: &Packet,
        part: Range<usize>,
        bytes_max: usize,
        most: usize,
    ) -> Result<(), Refused> {
        let pieces = packet.pieces(part);
        let pieces = pieces.map_err(|_beyond| Refused::Bad(DropReason::Truncated))?;
        for piece in pieces.flat_map(|piece| piece.chunks(bytes_max)) {
            let address = self.window.address(piece).ok_or(Refused::TooManySegments)?;
            if self.all.len() >= most {
                return Err(Refused::TooManySegments);
            }
            self.all.push((address, piece.len()));
        }
        Ok(())
    }

    /// The only piece of a packet that is in one, as most are.
    pub(in crate::port) fn only(&self, packet: &Packet, bytes_max: usize) -> Option<(u64, usize)> {
        let first = packet.first();
        let is_one = first.len() == packet.bytes() && first.len() <= bytes_max;
        Some((self.window.address(first).filter(|_| is_one)?, first.len()))
    }
}

/// Where the checksum begins that a card completes, and where it goes; `None` if there is none.
///
/// # Errors
///
/// [`DropReason::BadChecksumPlace`] if that is behind the packet.
pub(in crate::port) fn checksum_place(packet: &Packet) -> Result<Option<(u16, usize)>, Refused> {
    let ChecksumState::Partial { start, offset } = packet.meta().checksum else {
        return Ok(None);
    };
    let field = usize::from(start) + usize::from(offset);
    match field + 2 > packet.bytes() {
        true => Err(Refused::Bad(DropReason::BadChecksumPlace)),
        false => Ok(Some((start, field))),
    }
}
