//! Writes in pieces: payload stays where it is.

use super::batch::{ALONE, Memory, header_of};
use super::options::Tun;
use crate::checksum::{self, Sum};
use crate::coalesce::{Done, Packet, Stats};
use crate::offload::ChecksumState;
use crate::virtio_net::HeaderLen;
use core::cell::Cell;
use core::ops::Range;

/// Most payload pieces of one write: `UIO_MAXIOV` of Linux, less one for the virtio-net header.
pub const GATHER_PIECES_MAX: usize = 1023;

/// Room for one packet of a batch in the lists that [`Tun::gather_batch`] makes.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'p> {
    payload: &'p [u8],
    /// The piece behind it, plus one; 0 if it is the last.
    next: u32,
}

impl Piece<'_> {
    /// Room that is free.
    pub const EMPTY: Self = Self {
        payload: &[],
        next: 0,
    };
}

/// One write, in pieces.
#[derive(Debug)]
pub struct Write<'w, 'p> {
    /// The virtio-net header, if it is not in the headroom.
    header: Option<&'w [u8]>,
    /// Headroom as far as it is used, and the first packet.
    first: &'w [u8],
    pieces: &'w [Cell<Piece<'p>>],
    /// The first piece plus one.
    next: u32,
    bytes: usize,
    slices: usize,
}

impl<'w, 'p> Write<'w, 'p> {
    /// Bytes of all slices together, virtio-net header included.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slices, in order. Never more than 1024, which is what `writev` takes.
    #[must_use]
    pub const fn slices(&self) -> Slices<'_, 'p> {
        Slices {
            header: self.header,
            first: Some(self.first),
            pieces: self.pieces,
            next: self.next,
            left: self.slices,
        }
    }
}

/// The slices of a [`Write`].
#[derive(Clone, Debug)]
pub struct Slices<'w, 'p> {
    header: Option<&'w [u8]>,
    first: Option<&'w [u8]>,
    pieces: &'w [Cell<Piece<'p>>],
    next: u32,
    left: usize,
}

impl<'w> Iterator for Slices<'w, '_> {
    type Item = &'w [u8];

    fn next(&mut self) -> Option<&'w [u8]> {
        let slice = if let Some(header) = self.header.take() {
            header
        } else if let Some(first) = self.first.take() {
            first
        } else {
            let piece = self.pieces.get((self.next as usize).checked_sub(1)?)?.get();
            self.next = piece.next;
            piece.payload
        };
        self.left -= 1;
        Some(slice)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Slices<'_, '_> {}

/// A packet with a list of payload pieces behind it.
struct Gathered<'x, 'p> {
    /// Headroom and packet.
    bytes: &'p mut [u8],
    headroom: usize,
    pieces: &'x [Cell<Piece<'p>>],
    /// The piece that is this packet's own, for when it is appended.
    own: u32,
    /// The first and the last piece behind it, plus one.
    first: u32,
    last: u32,
    /// Pieces behind it, and their bytes.
    count: usize,
    more: usize,
    checksum: ChecksumState,
}

impl Gathered<'_, '_> {
    fn packet(&self) -> &[u8] {
        self.bytes.get(self.headroom..).unwrap_or_default()
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
        (self.packet().len() + self.more) as u32
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
        if self.count == GATHER_PIECES_MAX - 1 {
            return Err(tail);
        }
        let from = tail.headroom + payload.start as usize;
        let own = tail.own;
        let Some(place) = self.pieces.get(own as usize) else {
            return Err(tail);
        };
        let bytes: &[u8] = tail.bytes;
        let payload = bytes.get(from..from + payload.len()).unwrap_or_default();
        place.set(Piece { payload, next: 0 });
        match self.pieces.get((self.last as usize).wrapping_sub(1)) {
            Some(last) => last.set(Piece {
                next: own + 1,
                ..last.get()
            }),
            None => self.first = own + 1,
        }
        self.last = own + 1;
        self.count += 1;
        self.more += payload.len();
        Ok(())
    }
}

/// Puts the virtio-net header where it belongs, and hands the packet on.
fn hand_on<'p>(
    tun: &Tun,
    packet: &mut Gathered<'_, 'p>,
    done: &Done,
    write: &mut impl FnMut(Write<'_, 'p>),
) {
    let mut header = [0; HeaderLen::V1.bytes()];
    let header = &mut header[..tun.header.bytes()];
    let encoded = header_of(done).encode(header, tun.header);
    debug_assert!(encoded.is_ok(), "there is room for either form");
    let (headroom, body) = packet.bytes.split_at_mut(packet.headroom);
    let bytes = header.len() + body.len() + packet.more;
    let place = headroom
        .len()
        .checked_sub(header.len())
        .map(|at| (at, &mut headroom[at..]));
    let (header, first): (_, &[u8]) = match place {
        Some((at, place)) => {
            place.copy_from_slice(header);
            (None, &packet.bytes[at..])
        }
        None => (Some(&*header), body),
    };
    write(Write {
        slices: usize::from(header.is_some()) + 1 + packet.count,
        header,
        first,
        pieces: packet.pieces,
        next: packet.first,
        bytes,
    });
}

impl<'x, 'p> Gathered<'x, 'p> {
    fn new(
        tun: &Tun,
        bytes: &'p mut [u8],
        headroom: usize,
        pieces: &'x [Cell<Piece<'p>>],
        own: u32,
    ) -> Self {
        Self {
            headroom: headroom.min(bytes.len()),
            bytes,
            pieces,
            own,
            first: 0,
            last: 0,
            count: 0,
            more: 0,
            checksum: tun.checksum(),
        }
    }
}

/// [`Tun::gather_batch`] without merging.
pub(super) fn run_alone<'p>(
    tun: &Tun,
    packets: impl Iterator<Item = &'p mut [u8]>,
    headroom: usize,
    mut write: impl FnMut(Write<'_, 'p>),
) -> Stats {
    let mut stats = Stats::default();
    for bytes in packets {
        let mut packet = Gathered::new(tun, bytes, headroom, &[], 0);
        hand_on(tun, &mut packet, &ALONE, &mut write);
        stats.alone();
    }
    stats
}

/// [`Tun::gather_batch`], with `FLOWS` flows at once and at least one piece.
pub(super) fn run<'p, const FLOWS: usize, const SETS: usize>(
    tun: &Tun,
    pieces: &mut [Piece<'p>],
    packets: impl Iterator<Item = &'p mut [u8]>,
    headroom: usize,
    mut write: impl FnMut(Write<'_, 'p>),
) -> Stats {
    let pieces = Cell::from_mut(pieces).as_slice_of_cells();
    let mut memory = Memory::<Gathered<'_, 'p>, FLOWS, SETS>::new();
    let mut made = memory.coalescer(tun, FLOWS);
    // Left where it is: it is too large to be moved for nothing.
    let Ok(coalescer) = &mut made else {
        debug_assert!(false, "the memory is of the right size");
        return Stats::default();
    };
    let mut sink = |mut packet: Gathered<'_, 'p>, done: &Done| {
        hand_on(tun, &mut packet, done, &mut write);
    };
    let mut own = 0;
    for bytes in packets {
        let packet = Gathered::new(tun, bytes, headroom, pieces, own);
        coalescer.push(0, packet, &mut sink);
        own += 1;
        if own as usize == pieces.len() {
            coalescer.flush(&mut sink);
            own = 0;
        }
    }
    coalescer.flush(&mut sink);
    *coalescer.stats()
}
