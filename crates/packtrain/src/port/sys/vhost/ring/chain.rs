//! Chains of descriptors in a ring of a guest. Each value that is used is the one that was checked:
//! a descriptor is read anew where another attempt has refused it.

use super::super::memory::{Block, Memory, Piece};
use crate::port::virtqueue::{DESCRIPTOR_BYTES, ELEMENTS_AT, INDIRECT, NEXT, WRITE};
use crate::stats::DropReason;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most descriptors of a chain, those of an indirect table included: as in QEMU. Linux uses 19
/// for a packet.
pub(super) const CHAIN_DESCRIPTORS_MAX: usize = 1024;

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) enum BadChain {
    /// The avail index is more than the size of the ring ahead: the ring is broken.
    Ring,
    /// The chain begins or goes on at a descriptor that does not exist.
    Index,
    /// It does not end, or has more descriptors than any chain may have.
    Endless,
    /// Its indirect table was not negotiated, has a wrong length, is in another one, or is not the
    /// end of the chain.
    Indirect,
    /// A descriptor is for the wrong direction.
    Direction,
    /// A buffer is not in the guest's memory.
    Unmapped,
    /// More bytes than any packet has.
    Long,
    /// Fewer bytes than the header has.
    Short,
    /// A buffer has no bytes: descriptors that carry nothing are work without end. QEMU takes none
    /// either (`virtqueue_map_desc`).
    Empty,
}

impl BadChain {
    /// The reason to report for the packet that is lost.
    pub(in crate::port) const fn reason(self) -> DropReason {
        match self {
            Self::Long => DropReason::TooLong,
            Self::Short => DropReason::Truncated,
            _ => DropReason::BadDescriptor,
        }
    }
}

/// The parts of a ring in the guest's memory.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) memory: Arc<Memory>,
    pub(super) descriptors: Block,
    pub(super) avail: Block,
    pub(super) used: Block,
    pub(super) size: u16,
}

impl Live {
    /// The first descriptor of the chain with this index.
    pub(super) fn head(&self, index: u16) -> u16 {
        let at = ELEMENTS_AT + 2 * usize::from(index & (self.size - 1));
        self.avail.load(at, Ordering::Relaxed)
    }

    /// The buffer of a chain of one descriptor in the ring itself, as most packets have, which the
    /// device writes (`WRITE`) or reads (0). `None` for every other chain, and for a bad one.
    #[inline(always)]
    pub(super) fn whole(&self, head: u16, access: u16) -> Option<Piece> {
        let live = Some(self).filter(|live| head < live.size)?;
        let [address, rest] = live.descriptors.words(usize::from(head) * DESCRIPTOR_BYTES);
        let (bytes, flags) = (rest as u32, (rest >> 32) as u16);
        let is_whole = flags & (NEXT | INDIRECT | WRITE) == access && bytes > 0;
        let piece = live.memory.guest(address, bytes).filter(|_| is_whole)?;
        (piece.bytes() == bytes as usize).then_some(piece)
    }
}

/// Which way the bytes of a chain go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    FromGuest,
    ToGuest,
    /// First from the guest, then to it.
    Both,
}

/// A chain whose descriptors were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) head: u16,
    /// Bytes of its buffers that count: of a chain to the guest no more than were wanted.
    pub(super) bytes: usize,
    /// Its descriptors that are in the ring itself.
    pub(super) direct: usize,
    /// The first piece that the device writes.
    pub(super) writable: usize,
}

/// Reads chains, and adds their buffers to `pieces`.
pub(super) struct Walk<'a> {
    pub(super) live: &'a Live,
    /// Indirect tables were negotiated.
    pub(super) indirect: bool,
    pub(super) pieces: &'a mut Vec<Piece>,
    /// Each descriptor costs one.
    pub(super) budget: &'a mut i32,
}

impl Walk<'_> {
    /// A chain of one descriptor in the ring itself, as most packets have. `None` for every other
    /// one, and for one with an error: then nothing has changed.
    #[inline]
    pub(super) fn one(&mut self, head: u16, way: Way, most: usize) -> Option<Chain> {
        let (access, most_here) = match way {
            Way::FromGuest => (0, most),
            Way::ToGuest => (WRITE, usize::MAX),
            Way::Both => return None,
        };
        let piece = self.live.whole(head, access)?;
        if piece.bytes() > most_here || self.pieces.len() == self.pieces.capacity() {
            return None;
        }
        *self.budget -= 1;
        self.pieces.push(piece);
        Some(Chain {
            head,
            bytes: most.min(piece.bytes()),
            direct: 1,
            writable: self.pieces.len(),
        })
    }

    /// Any chain. To the guest it is read until there is room for `most` bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn each(&mut self, head: u16, way: Way, most: usize) -> Result<Chain, BadChain> {
        let live = self.live;
        let mut chain = Chain {
            head,
            bytes: 0,
            direct: 0,
            writable: usize::MAX,
        };
        let (mut index, mut table) = (head, None::<Piece>);
        for _ in 0..CHAIN_DESCRIPTORS_MAX {
            *self.budget -= 1;
            let count = table.map_or(usize::from(live.size), |table| {
                table.bytes() / DESCRIPTOR_BYTES
            });
            if usize::from(index) >= count {
                return Err(BadChain::Index);
            }
            let at = usize::from(index) * DESCRIPTOR_BYTES;
            let [address, rest] = match table {
                None => live.descriptors.words(at),
                Some(table) => live.memory.words(table, at),
            };
            let (bytes, flags, next) = (rest as u32, (rest >> 32) as u16, (rest >> 48) as u16);
            chain.direct += usize::from(table.is_none());
            if flags & INDIRECT != 0 {
                let is_last = flags & NEXT == 0;
                let whole = bytes > 0 && (bytes as usize).is_multiple_of(DESCRIPTOR_BYTES);
                if table.is_some() || !self.indirect || !is_last || !whole {
                    return Err(BadChain::Indirect);
                }
                let found = live.memory.guest(address, bytes);
                let found = found.filter(|found| found.bytes() == bytes as usize);
                table = Some(found.ok_or(BadChain::Unmapped)?);
                index = 0;
                continue;
            }
            let is_writable = flags & WRITE != 0;
            match (way, is_writable) {
                (Way::FromGuest, true) | (Way::ToGuest, false) => return Err(BadChain::Direction),
                (Way::Both, false) if chain.writable != usize::MAX => {
                    return Err(BadChain::Direction);
                }
                (Way::Both, true) => chain.writable = chain.writable.min(self.pieces.len()),
                _ => {}
            }
            if bytes == 0 {
                return Err(BadChain::Empty);
            }
            let (mut at, mut left) = (address, bytes);
            while left > 0 {
                let piece = live.memory.guest(at, left).ok_or(BadChain::Unmapped)?;
                if self.pieces.len() == self.pieces.capacity() {
                    return Err(BadChain::Endless);
                }
                self.pieces.push(piece);
                left -= piece.bytes() as u32;
                let behind = at.checked_add(piece.bytes() as u64);
                at = behind.ok_or(BadChain::Unmapped)?;
            }
            chain.bytes += bytes as usize;
            if way != Way::ToGuest && chain.bytes > most {
                return Err(BadChain::Long);
            }
            if way == Way::ToGuest && chain.bytes >= most {
                chain.bytes = most;
                return Ok(chain);
            }
            if flags & NEXT == 0 {
                chain.writable = chain.writable.min(self.pieces.len());
                return Ok(chain);
            }
            index = next;
        }
        Err(BadChain::Endless)
    }
}
