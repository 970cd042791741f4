//! Writes as values: payload stays in the packets of the caller.

use super::batch::{ALONE, LARGE, LARGE_SETS, Memory, SMALL, SMALL_SETS, store_header};
use super::offload::TunOffload;
use super::packets::TooShort;
use crate::checksum::{self, Sum};
use crate::coalesce::{Done, Packet, Stats};
use crate::offload::ChecksumState;
use crate::virtio_net::HeaderLen;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::iter::FusedIterator;
use core::ops::Range;
use core::slice;
#[cfg(feature = "std")]
use std::io::IoSlice;

/// Most slices of one write: `UIO_MAXIOV` of Linux.
pub const SLICES_MAX: usize = 1024;

/// Memory for [`TunOffload::gather_batch`]: which packets each write is made of. It grows to the
/// longest batch and is reused; it refers to nothing between batches.
#[derive(Debug, Default)]
pub struct Pieces {
    /// One for each packet.
    pieces: Vec<Piece>,
    writes: Vec<Plan>,
}

impl Pieces {
    /// Memory for no packet yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Memory for batches of up to `packets` packets.
    #[must_use]
    pub fn with_capacity(packets: usize) -> Self {
        Self {
            pieces: Vec::with_capacity(packets),
            writes: Vec::with_capacity(packets),
        }
    }
}

/// What a packet adds to the write that it is appended to.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Its payload, from the first byte of its buffer.
    from: usize,
    to: usize,
    /// The packet after it, plus one; 0 if it is the last.
    next: usize,
}

/// One write: its first packet, and the pieces after it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// The virtio-net header, if it is not in the headroom.
    header: Option<[u8; HeaderLen::V1.bytes()]>,
    header_bytes: usize,
    /// The first packet, and where in its buffer the write begins.
    first: usize,
    from: usize,
    /// The packet of the first piece, plus one; 0 if there is none.
    next: usize,
    /// Pieces after the first packet.
    more: usize,
    bytes: usize,
}

/// The writes of a batch, in order. Made by [`TunOffload::gather_batch`].
///
/// All of them are ready: to drop the iterator drops the rest of the batch.
pub struct Writes<'b, B> {
    packets: &'b [B],
    pieces: &'b [Piece],
    plans: slice::Iter<'b, Plan>,
    stats: Stats,
}

impl<B> Writes<'_, B> {
    /// Packets of the batch, its writes (`emitted`), packets merged, and why others were not.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl<'b, B> Iterator for Writes<'b, B> {
    type Item = GatheredWrite<'b, B>;

    fn next(&mut self) -> Option<GatheredWrite<'b, B>> {
        let plan = self.plans.next()?;
        Some(GatheredWrite {
            packets: self.packets,
            pieces: self.pieces,
            plan,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.plans.size_hint()
    }
}

// Counts: the packets themselves would be the whole batch in hex.
impl<B> fmt::Debug for Writes<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writes")
            .field("remaining", &self.plans.len())
            .field("stats", &self.stats)
            .finish()
    }
}

impl<B> ExactSizeIterator for Writes<'_, B> {}
impl<B> FusedIterator for Writes<'_, B> {}

/// One write: the virtio-net header and a packet, in one or more slices.
pub struct GatheredWrite<'b, B> {
    packets: &'b [B],
    pieces: &'b [Piece],
    plan: &'b Plan,
}

impl<B> fmt::Debug for GatheredWrite<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { header, more, .. } = self.plan;
        f.debug_struct("GatheredWrite")
            .field("bytes", &self.plan.bytes)
            .field("slices", &(usize::from(header.is_some()) + 1 + more))
            .finish()
    }
}

// Not derived: that would ask it of `B`.
impl<B> Clone for GatheredWrite<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for GatheredWrite<'_, B> {}

impl<'b, B: AsRef<[u8]>> GatheredWrite<'b, B> {
    /// Bytes of all slices together, virtio-net header included.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.plan.bytes
    }

    /// The slices, in order. Never more than [`SLICES_MAX`]; one for a packet that was not merged,
    /// if the headroom has room for the virtio-net header.
    #[must_use]
    pub fn slices(&self) -> Slices<'b, B> {
        Slices {
            packets: self.packets,
            pieces: self.pieces,
            header: self.plan.header.as_ref().map(|header| {
                let bytes = self.plan.header_bytes.min(header.len());
                &header[..bytes]
            }),
            first: Some((self.plan.first, self.plan.from)),
            next: self.plan.next,
            more: self.plan.more,
        }
    }

    /// The same for `write_vectored`. To allocate nothing for each write, clear one
    /// `Vec<IoSlice<'_>>` and extend it with these: they outlive the iterator of the batch.
    #[cfg(feature = "std")]
    pub fn io_slices(&self) -> impl ExactSizeIterator<Item = IoSlice<'b>> + use<'b, B> {
        self.slices().map(IoSlice::new)
    }

    /// Copies the write to the start of `out`, for a device that takes one slice, and returns its
    /// length. [`WRITE_BYTES_MAX`](super::WRITE_BYTES_MAX) bytes are always enough.
    ///
    /// # Errors
    /// [`TooShort`] if it does not fit; then nothing is copied.
    pub fn copy_to(&self, out: &mut [u8]) -> Result<usize, TooShort> {
        let (has, needs) = (out.len(), self.bytes());
        let mut out = out.get_mut(..needs).ok_or(TooShort { has, needs })?;
        for slice in self.slices() {
            let (start, rest) = out.split_at_mut(slice.len().min(out.len()));
            start.copy_from_slice(&slice[..start.len()]);
            out = rest;
        }
        Ok(needs)
    }
}

/// The slices of a [`GatheredWrite`].
pub struct Slices<'b, B> {
    packets: &'b [B],
    pieces: &'b [Piece],
    header: Option<&'b [u8]>,
    first: Option<(usize, usize)>,
    next: usize,
    /// Pieces that are still to come.
    more: usize,
}

impl<B> Slices<'_, B> {
    fn remaining(&self) -> usize {
        usize::from(self.header.is_some()) + usize::from(self.first.is_some()) + self.more
    }
}

impl<B> fmt::Debug for Slices<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slices")
            .field("remaining", &self.remaining())
            .finish()
    }
}

impl<'b, B: AsRef<[u8]>> Iterator for Slices<'b, B> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(header) = self.header.take() {
            return Some(header);
        }
        let (packet, range) = if let Some((packet, from)) = self.first.take() {
            (packet, from..self.packets.get(packet)?.as_ref().len())
        } else {
            let packet = self.next.checked_sub(1)?;
            let piece = self.pieces.get(packet)?;
            self.next = piece.next;
            self.more -= 1;
            (packet, piece.from..piece.to)
        };
        let bytes = self.packets.get(packet)?.as_ref();
        Some(bytes.get(range).unwrap_or_default())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining(), Some(self.remaining()))
    }
}

impl<B: AsRef<[u8]>> ExactSizeIterator for Slices<'_, B> {}
impl<B: AsRef<[u8]>> FusedIterator for Slices<'_, B> {}

/// A packet with a list of payload pieces behind it.
struct Gathered<'x, 'p> {
    /// Headroom and packet.
    bytes: &'p mut [u8],
    headroom: usize,
    pieces: &'x [Cell<Piece>],
    /// Its place in the batch, and in `pieces` when it is appended.
    own: usize,
    /// The first and the last piece behind it, plus one.
    first: usize,
    last: usize,
    /// Pieces behind it, and their bytes.
    count: usize,
    more: usize,
    checksum: ChecksumState,
}

impl Gathered<'_, '_> {
    fn packet(&self) -> &[u8] {
        self.bytes.get(self.headroom..).unwrap_or_default()
    }

    /// Writes the virtio-net header in front of the packet, or into the plan if there is no room.
    fn plan(self, offload: &TunOffload, done: &Done) -> Plan {
        let header_bytes = offload.header_bytes();
        let mut plan = Plan {
            header: None,
            header_bytes,
            first: self.own,
            from: self.headroom,
            next: self.first,
            more: self.count,
            bytes: header_bytes + self.packet().len() + self.more,
        };
        match self.headroom.checked_sub(header_bytes) {
            Some(from) => {
                plan.from = from;
                store_header(&mut self.bytes[from..], offload.header, done);
            }
            None => {
                let mut header = [0; HeaderLen::V1.bytes()];
                store_header(&mut header, offload.header, done);
                plan.header = Some(header);
            }
        }
        plan
    }
}

impl Packet for Gathered<'_, '_> {
    #[inline]
    fn head(&self) -> &[u8] {
        self.packet()
    }

    #[inline]
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.headroom..)?.get_mut(..bytes)
    }

    #[inline]
    fn bytes(&self) -> u32 {
        u32::try_from(self.packet().len() + self.more).unwrap_or(u32::MAX)
    }

    #[inline]
    fn checksum(&self) -> ChecksumState {
        self.checksum
    }

    #[inline]
    fn sum(&self, range: Range<u32>) -> Sum {
        let range = range.start as usize..range.end as usize;
        checksum::sum(self.packet().get(range).unwrap_or_default())
    }

    /// `reversible` never asks.
    fn truncate(&mut self, _bytes: u32) {}

    #[inline]
    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        // The header and the first packet are slices too.
        if self.count + 2 == SLICES_MAX {
            return Err(tail);
        }
        let Some(place) = self.pieces.get(tail.own) else {
            return Err(tail);
        };
        let from = tail.headroom + payload.start as usize;
        let to = from + payload.len();
        place.set(Piece { from, to, next: 0 });
        match self.last.checked_sub(1).and_then(|at| self.pieces.get(at)) {
            Some(last) => last.set(Piece {
                next: tail.own + 1,
                ..last.get()
            }),
            None => self.first = tail.own + 1,
        }
        self.last = tail.own + 1;
        self.count += 1;
        self.more += payload.len();
        Ok(())
    }
}

/// [`TunOffload::gather_batch`].
pub(super) fn run<'b, B: AsRef<[u8]> + AsMut<[u8]>>(
    offload: &TunOffload,
    memory: &'b mut Pieces,
    packets: &'b mut [B],
    headroom: usize,
) -> Writes<'b, B> {
    let count = packets.len();
    let Pieces { pieces, writes } = memory;
    pieces.clear();
    pieces.resize(count, Piece::default());
    writes.clear();
    writes.reserve(count);
    let cells = Cell::from_mut(&mut pieces[..]).as_slice_of_cells();
    let batch = packets.iter_mut().enumerate().map(|(own, packet)| {
        let bytes = packet.as_mut();
        Gathered {
            headroom: headroom.min(bytes.len()),
            bytes,
            pieces: cells,
            own,
            first: 0,
            last: 0,
            count: 0,
            more: 0,
            checksum: offload.checksum(),
        }
    });
    let stats = match count {
        0 | 1 => alone(offload, batch, writes),
        ..=SMALL => merge::<SMALL, SMALL_SETS>(offload, batch, writes),
        _ => merge::<LARGE, LARGE_SETS>(offload, batch, writes),
    };
    Writes {
        packets,
        pieces,
        plans: writes.iter(),
        stats,
    }
}

/// Plans a batch of at most one packet.
fn alone<'x, 'p: 'x>(
    offload: &TunOffload,
    batch: impl Iterator<Item = Gathered<'x, 'p>>,
    writes: &mut Vec<Plan>,
) -> Stats {
    let mut stats = Stats::default();
    for packet in batch {
        writes.push(packet.plan(offload, &ALONE));
        stats.alone();
    }
    stats
}

/// Plans a batch, with `FLOWS` flows at once.
fn merge<'x, 'p: 'x, const FLOWS: usize, const SETS: usize>(
    offload: &TunOffload,
    batch: impl Iterator<Item = Gathered<'x, 'p>>,
    writes: &mut Vec<Plan>,
) -> Stats {
    let mut memory = Memory::<Gathered<'x, 'p>, FLOWS, SETS>::new();
    let mut made = memory.coalescer(offload, FLOWS);
    // Left where it is: it is too large to be moved for nothing.
    let Ok(coalescer) = &mut made else {
        debug_assert!(false, "the memory is of the right size");
        return Stats::default();
    };
    let mut sink = |packet: Gathered<'_, '_>, done: &Done| {
        writes.push(packet.plan(offload, done));
    };
    coalescer.push_burst(0, batch, &mut sink);
    coalescer.flush(&mut sink);
    *coalescer.stats()
}
