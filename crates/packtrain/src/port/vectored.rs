//! Packets as the vectors of `readv(2)` and `writev(2)`, for ports that move one packet a call.

use crate::driver::RxBuffers;
use crate::limits::{
    BURST_PACKETS_MAX, HEADROOM_BYTES, LARGE_FRAME_BYTES, PACKET_BYTES_MAX, RX_LARGE_POSTED,
    RX_PIECE_BYTES_MIN, SEGMENTS_MAX,
};
use crate::packet::{Arena, FrameClass, Packet, Unfilled};
use crate::stats::DropReason;
use packtrain_offload::limits::IP_LENGTH_MAX;
use std::array::from_fn;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Bytes that may stand in front of a received packet: a virtio-net header.
const FRONT_BYTES_MAX: usize = 12;
/// Small frames for the longest packet in pieces that fill them, and in the shortest ones.
const PIECES: usize = pieces(FrameClass::Small.data_bytes());
const PIECES_MAX: usize = pieces(RX_PIECE_BYTES_MIN);
const _: () = assert!(FRONT_BYTES_MAX <= HEADROOM_BYTES);
const _: () = assert!(pieces_posted(PIECES) >= BURST_PACKETS_MAX + PIECES);
/// Segments of a packet that is written with a short array of vectors, and with a long one.
const FEW_SEGMENTS: usize = 4;
const MANY_SEGMENTS: usize = 128;
/// Most vectors of one call (`UIO_MAXIOV` in Linux).
const VECTORS_MAX: usize = 1024;
/// Bytes behind the frames for the rest of a packet: `GSO_MAX_SIZE` of Linux, rounded up.
const REST_BYTES: usize = 8 << 16;
/// In front of the rest is space for what the frames have of it.
const PLACE_BYTES: usize = LARGE_FRAME_BYTES + REST_BYTES;
const _: () = assert!(pieces_bytes(PIECES) <= LARGE_FRAME_BYTES);
const _: () = assert!(PIECES_MAX * RX_PIECE_BYTES_MIN + FRONT_BYTES_MAX <= LARGE_FRAME_BYTES);
const _: () = assert!(PIECES_MAX < VECTORS_MAX && SEGMENTS_MAX < VECTORS_MAX);

/// Pieces of `bytes` bytes for the longest packet with its header, and one byte more: a read that
/// fills all of them is of a packet that was too long.
const fn pieces(bytes: usize) -> usize {
    (PACKET_BYTES_MAX + FRONT_BYTES_MAX) / bytes + 1
}

const fn pieces_bytes(pieces: usize) -> usize {
    pieces * FrameClass::Small.data_bytes() + FRONT_BYTES_MAX
}

/// Small frames posted to receive packets of up to `pieces` pieces: the frames that a burst may
/// fill (small packets, and a long one that ends it), and those that one more read needs.
const fn pieces_posted(pieces: usize) -> usize {
    3 * pieces
}

/// Frames to receive into. Frames that a packet does not use stay posted for the next one.
#[derive(Debug)]
pub(in crate::port) struct Posted {
    buffers: RxBuffers,
    front: usize,
    /// Bytes of a packet in one small frame, and the frames of the longest packet.
    piece: usize,
    pieces: usize,
    small: Vec<Unfilled>,
    large: Vec<Unfilled>,
    /// Places for packets that are longer than the frames, one for each packet of a read; empty if
    /// such packets are lost. Places that are never used cost no memory.
    rest: Vec<u8>,
}

/// A packet that is in one piece, at its place. It is there until the next read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    start: usize,
    bytes: usize,
    /// As of [`Filled`].
    at: usize,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    bytes: usize,
    truncated: bool,
    /// Which large frame was read into. Frames before it stay where they are when it is taken.
    at: usize,
    /// Its number among the packets of the read, which is that of its place.
    number: usize,
}

/// A read of several packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// One more than the number of the large frame of the first packet.
    last: usize,
    /// Bytes of each frame and the place behind it.
    room: usize,
}

impl Reading {
    /// The packet in frame `number` of the read, with `bytes` bytes.
    #[inline]
    pub(super) const fn filled(self, number: usize, bytes: usize) -> Filled {
        Filled {
            bytes,
            truncated: bytes >= self.room,
            at: self.last - 1 - number,
            number,
        }
    }
}

impl Filled {
    /// All bytes that were read, including those in front of the packet.
    pub(super) const fn bytes(self) -> usize {
        self.bytes
    }

    /// Whether it is certainly copied to a small frame, the bytes in front counted or not.
    pub(super) const fn is_small(self) -> bool {
        self.bytes <= FrameClass::Small.data_bytes()
    }
}

impl Posted {
    /// Nothing posted yet. `front` bytes precede every packet, at most 12.
    pub(super) fn new(buffers: RxBuffers, front: usize) -> Self {
        debug_assert!(front <= FRONT_BYTES_MAX);
        let piece = buffers.small_bytes();
        let pieces = pieces(piece);
        let (small, large) = match buffers {
            RxBuffers::Whole => (BURST_PACKETS_MAX, RX_LARGE_POSTED),
            RxBuffers::Pieces { .. } => (pieces_posted(pieces), 0),
        };
        Self {
            buffers,
            front,
            piece,
            pieces,
            small: Vec::with_capacity(small),
            large: Vec::with_capacity(large),
            rest: Vec::new(),
        }
    }

    /// With places for packets that are longer than the frames, of up to `packets` of one read.
    pub(super) fn with_rest(mut self, packets: usize) -> Self {
        self.rest = vec![0; packets * PLACE_BYTES];
        self
    }

    /// Posts frames up to the full number; false when the arena ran out of them.
    pub(super) fn refill(&mut self, arena: &Arena) -> bool {
        let wanted = self.small.capacity();
        if self.reads_many() {
            // Packets are read into large frames, and most are copied without the bytes in front.
            if !arena.fill_unfilled(FrameClass::Small, &mut self.small, wanted) {
                return false;
            }
        }
        while self.small.len() < wanted {
            let Some(frame) = self.frame(arena, FrameClass::Small) else {
                return false;
            };
            self.small.push(frame);
        }
        while self.large.len() < self.large.capacity() {
            let Some(frame) = self.frame(arena, FrameClass::Large) else {
                return false;
            };
            self.large.push(frame);
        }
        true
    }

    /// A frame whose free bytes begin `front` bytes early, so that the packet's bytes begin at the
    /// usual offset.
    fn frame(&self, arena: &Arena, class: FrameClass) -> Option<Unfilled> {
        let frame = arena.unfilled(class).ok()?;
        Some(frame.earlier(self.front))
    }

    /// Has `read` fill the frames, the bytes in front zeroed before. `None` when too few are
    /// posted for the longest packet.
    ///
    /// Whole packets are read into one large frame, always the same one while packets are small:
    /// the kernel fills one piece, which stays in cache. Two pieces would cost the kernel more than
    /// it costs us to copy a small packet out.
    pub(super) fn read<E>(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Option<Filled>, E> {
        let (front, piece, pieces) = (self.front, self.piece, self.pieces);
        if self.small.is_empty() {
            return Ok(None);
        }
        let small = self.small.iter_mut().rev();
        let rest = rest_of(&mut self.rest).next().unwrap_or_default();
        match self.buffers {
            RxBuffers::Whole => {
                let most = usize::MAX - front;
                let at = self.large.len().saturating_sub(1);
                let filled = read_into::<2, E>(self.large.last_mut(), 1, (most, front), rest, read);
                Ok(filled?.map(|filled| Filled { at, ..filled }))
            }
            RxBuffers::Pieces { .. } if pieces <= PIECES => {
                read_into::<{ PIECES + 1 }, E>(small, pieces, (piece, front), rest, read)
            }
            RxBuffers::Pieces { .. } => {
                read_into::<{ PIECES_MAX + 1 }, E>(small, pieces, (piece, front), rest, read)
            }
        }
    }

    /// Whether [`read_many`](Self::read_many) may be called.
    pub(super) const fn reads_many(&self) -> bool {
        matches!(self.buffers, RxBuffers::Whole)
    }

    /// Has `read` fill frames with whole packets, at most `most` and at most `N`: each in one frame
    /// and the place behind it. The bytes in front are zeroed before. `read` also gets what makes a
    /// [`Filled`] of a packet. Take, or give up, each before the next read. Without posted frames
    /// there are none to fill.
    #[inline]
    pub(super) fn read_many<const N: usize, E>(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut [[IoSliceMut<'_>; 2]], Reading) -> Result<(), E>,
    ) -> Result<(), E> {
        debug_assert!(self.reads_many());
        let count = self.large.len().min(self.small.len()).min(most).min(N);
        let last = self.large.len();
        let mut frames: [[IoSliceMut<'_>; 2]; N] =
            from_fn(|_| from_fn(|_| IoSliceMut::new(&mut [])));
        let posted = self.large[last - count..].iter_mut().rev();
        let mut rest = rest_of(&mut self.rest);
        let mut room = 0;
        for (frame, posted) in frames.iter_mut().zip(posted) {
            let free = posted.free();
            zero(free, self.front);
            let rest = rest.next().unwrap_or_default();
            room = free.len() + rest.len();
            *frame = [IoSliceMut::new(free), IoSliceMut::new(rest)];
        }
        read(&mut frames[..count], Reading { last, room })
    }

    /// The first bytes that were read, as many as are in one piece.
    ///
    /// # Errors
    ///
    /// That the packet was too long, or that no frame is posted.
    #[inline]
    pub(super) fn first(&mut self, filled: Filled) -> Result<&mut [u8], DropReason> {
        if filled.truncated {
            return Err(DropReason::TooLong);
        }
        let (frame, most) = match self.buffers {
            RxBuffers::Whole => (self.large.get_mut(filled.at), usize::MAX),
            RxBuffers::Pieces { .. } => (self.small.last_mut(), self.front + self.piece),
        };
        let read = frame.ok_or(DropReason::NoBuffer)?.free();
        let bytes = filled.bytes.min(most).min(read.len());
        Ok(&mut read[..bytes])
    }

    /// Makes a packet of `range` of the bytes that were read. Call [`first`](Self::first) before,
    /// which refuses a packet that is too long. The frames of a packet that is not taken so stay
    /// posted.
    ///
    /// A packet that fits a small frame is copied there (copy-break), so that a waiting packet
    /// keeps no more memory than it needs.
    ///
    /// # Errors
    ///
    /// Why the packet is lost.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        filled: Filled,
        range: Range<usize>,
    ) -> Result<Packet, DropReason> {
        let packet = match self.buffers {
            RxBuffers::Whole if range.len() <= FrameClass::Small.data_bytes() => {
                let small = self.small.pop().ok_or(DropReason::NoBuffer)?;
                let frame = self.large.get_mut(filled.at).ok_or(DropReason::NoBuffer)?;
                let read = frame.free().get(range).unwrap_or_default();
                copied(small, read.len(), |out| out.copy_from_slice(read))
            }
            RxBuffers::Whole => self.large.remove(filled.at).filled(range),
            RxBuffers::Pieces { .. } => {
                let mut packet = self.take_pieces(filled.bytes)?;
                packet.truncate(range.end);
                packet.trim_front(range.start);
                Some(packet)
            }
        };
        packet.ok_or(DropReason::TooLong)
    }

    /// Whether a packet that was read may be longer than a length field can state.
    pub(super) const fn may_be_big(&self, filled: Filled) -> bool {
        !filled.truncated && !self.rest.is_empty() && filled.bytes > self.front + IP_LENGTH_MAX
    }

    /// Copies what the frames have of a packet in front of its rest. Its frames stay posted.
    ///
    /// # Errors
    ///
    /// Why the packet is lost.
    pub(super) fn gather(&mut self, filled: Filled) -> Result<Gathered, DropReason> {
        let place = filled.number * PLACE_BYTES;
        let place = self.rest.get_mut(place..place + PLACE_BYTES);
        let place = place.ok_or(DropReason::TooLong)?;
        let (frames, mut most) = match self.buffers {
            RxBuffers::Whole => (self.large.get_mut(filled.at..=filled.at), usize::MAX),
            RxBuffers::Pieces { .. } => {
                let first = self.small.len().checked_sub(self.pieces);
                let frames = first.and_then(|first| self.small.get_mut(first..));
                (frames, self.front + self.piece)
            }
        };
        // In the order of the packet, and moved to end where the rest begins.
        let mut bytes = 0;
        for frame in frames.ok_or(DropReason::NoBuffer)?.iter_mut().rev() {
            let read = frame.free();
            let n = read.len().min(most).min(filled.bytes - bytes);
            let to = place.get_mut(bytes..bytes + n);
            to.ok_or(DropReason::TooLong)?.copy_from_slice(&read[..n]);
            bytes += n;
            most = self.piece;
        }
        let start = LARGE_FRAME_BYTES - bytes;
        place.copy_within(..bytes, start);
        let start = filled.number * PLACE_BYTES + start;
        Ok(Gathered {
            start,
            bytes: filled.bytes,
            at: filled.at,
        })
    }

    /// The bytes of a packet in one piece, including those in front of it.
    pub(super) fn gathered(&mut self, gathered: Gathered) -> &mut [u8] {
        let Gathered { start, bytes, .. } = gathered;
        self.rest.get_mut(start..start + bytes).unwrap_or_default()
    }

    /// Whether a part of such a packet can be [copied](Self::copy_gathered). The frames before its
    /// own are in use as long as other packets of the read are `waiting`.
    pub(super) fn has_room(&self, gathered: Gathered, waiting: bool) -> bool {
        let used = if waiting { gathered.at } else { 0 };
        match self.buffers {
            RxBuffers::Whole => self.small.len() > used && self.large.len() > used,
            RxBuffers::Pieces { .. } => self.is_ready(),
        }
    }

    /// A packet with these bytes of one in one piece.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    pub(super) fn copy_gathered(
        &mut self,
        gathered: Gathered,
        range: Range<usize>,
    ) -> Result<Packet, DropReason> {
        let place = std::mem::take(&mut self.rest);
        let range = gathered.start + range.start..gathered.start + range.end;
        let mut rest = place.get(range).unwrap_or_default();
        let copied = self.copy(rest.len(), |out| {
            let (now, later) = rest.split_at(out.len());
            out.copy_from_slice(now);
            rest = later;
        });
        self.rest = place;
        copied
    }

    /// Whether the longest packet fits what is posted.
    pub(super) fn is_ready(&self) -> bool {
        match self.buffers {
            RxBuffers::Whole => !self.small.is_empty() && !self.large.is_empty(),
            RxBuffers::Pieces { .. } => self.small.len() >= self.pieces,
        }
    }

    /// A packet of `bytes` bytes, without those in front, which `fill` writes; `None` if it is not
    /// for one small frame.
    pub(in crate::port) fn short(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Packet> {
        if !self.reads_many() || bytes > FrameClass::Small.data_bytes() {
            return None;
        }
        copied(self.small.pop()?, bytes, fill)
    }

    /// A packet of a known length, the bytes in front of it included, which `copy` copies piece by
    /// piece.
    ///
    /// # Errors
    ///
    /// Why it is lost.
    pub(super) fn copy(
        &mut self,
        bytes: usize,
        mut copy: impl FnMut(&mut [u8]),
    ) -> Result<Packet, DropReason> {
        let mut from = |frame: &mut Unfilled, most: usize| {
            let room = frame.free();
            let n = bytes.min(room.len()).min(most);
            copy(&mut room[..n]);
            n
        };
        match self.buffers {
            RxBuffers::Whole => {
                let mut frame = if bytes <= FrameClass::Small.data_bytes() + self.front {
                    let small = self.small.pop().ok_or(DropReason::NoBuffer)?;
                    small.earlier(self.front)
                } else {
                    self.large.pop().ok_or(DropReason::NoBuffer)?
                };
                from(&mut frame, bytes);
                frame.filled(0..bytes).ok_or(DropReason::TooLong)
            }
            RxBuffers::Pieces { .. } => {
                let mut left = bytes;
                let mut most = self.front + self.piece;
                for frame in self.small.iter_mut().rev() {
                    left -= from(frame, left.min(most));
                    if left == 0 {
                        break;
                    }
                    most = self.piece;
                }
                self.take_pieces(bytes)
            }
        }
    }

    fn take_pieces(&mut self, bytes: usize) -> Result<Packet, DropReason> {
        let (mut packet, mut left) = self.take_piece(bytes, self.front + self.piece)?;
        while left > 0 {
            let piece;
            (piece, left) = self.take_piece(left, self.piece)?;
            packet.append(piece).map_err(|_| DropReason::NoBuffer)?;
        }
        Ok(packet)
    }

    /// The first of `left` bytes, at most `most`, and how many are left behind them.
    fn take_piece(&mut self, left: usize, most: usize) -> Result<(Packet, usize), DropReason> {
        let frame = self.small.pop().ok_or(DropReason::NoBuffer)?;
        let piece = frame.filled(0..left.min(most));
        let piece = piece.ok_or(DropReason::TooLong)?;
        Ok((piece, left.saturating_sub(most)))
    }
}

/// The packet of a frame whose first bytes `fill` writes; `None` if there are fewer.
#[inline(always)]
fn copied(mut frame: Unfilled, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Option<Packet> {
    fill(frame.free().get_mut(..bytes)?);
    frame.filled(0..bytes)
}

/// Zeroes the bytes in front of a packet, `front` or a few more. A constant length, so that the
/// compiler writes the zeros without a call of `memset`.
#[inline]
fn zero(free: &mut [u8], front: usize) {
    if front > 0
        && let Some(bytes) = free.first_chunk_mut::<FRONT_BYTES_MAX>()
    {
        *bytes = [0; FRONT_BYTES_MAX];
    }
}

/// The space behind the frames, of each place.
fn rest_of(places: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    let places = places.chunks_exact_mut(PLACE_BYTES);
    places.map(|place| &mut place[LARGE_FRAME_BYTES..])
}

/// Has `read` fill the first `wanted` of `frames`, less than `N`, with up to `most` bytes each and
/// `front` bytes more in the first, and then `rest`; `None` when there are fewer.
fn read_into<'a, const N: usize, E>(
    frames: impl IntoIterator<Item = &'a mut Unfilled>,
    wanted: usize,
    (most, front): (usize, usize),
    rest: &'a mut [u8],
    read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
) -> Result<Option<Filled>, E> {
    let mut pieces: [IoSliceMut<'_>; N] = from_fn(|_| IoSliceMut::new(&mut []));
    let pieces = &mut pieces[..wanted + usize::from(!rest.is_empty())];
    let (mut used, mut room, mut most) = (0, 0, most + front);
    for (piece, frame) in pieces.iter_mut().zip(frames) {
        let free = frame.free();
        let free_bytes = free.len().min(most);
        most -= if used == 0 { front } else { 0 };
        room += free_bytes;
        *piece = IoSliceMut::new(&mut free[..free_bytes]);
        used += 1;
    }
    if used < wanted {
        return Ok(None);
    }
    zero(&mut pieces[0], front);
    if let Some(last) = pieces.get_mut(wanted) {
        room += rest.len();
        *last = IoSliceMut::new(rest);
    }
    let bytes = read(pieces)?;
    Ok(Some(Filled {
        bytes,
        truncated: bytes >= room,
        at: 0,
        number: 0,
    }))
}

/// Has `write` take the pieces of `header` and `packet`, of which there is at least one.
pub(super) fn with_pieces<T>(
    header: &[u8],
    packet: &Packet,
    write: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    // Most packets have few segments, and the array is written each time.
    let segments = packet.segment_count();
    if segments < FEW_SEGMENTS {
        gather::<FEW_SEGMENTS, T>(header, packet, write)
    } else if segments < MANY_SEGMENTS {
        gather::<MANY_SEGMENTS, T>(header, packet, write)
    } else {
        gather::<{ SEGMENTS_MAX + 1 }, T>(header, packet, write)
    }
}

fn gather<const N: usize, T>(
    header: &[u8],
    packet: &Packet,
    write: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let mut pieces = [IoSlice::new(header); N];
    let first = usize::from(!header.is_empty());
    let mut used = first;
    for (piece, segment) in pieces[first..].iter_mut().zip(packet.segments()) {
        *piece = IoSlice::new(segment);
        used += 1;
    }
    write(&pieces[..used.max(1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::ArenaConfig;
    use std::convert::Infallible;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i % 251) as u8).collect()
    }

    /// Receives `packet`, with 12 bytes in front that the device does not write.
    fn receive(posted: &mut Posted, packet: &[u8]) -> Option<Result<Packet, DropReason>> {
        let filled = posted.read(|pieces| {
            let mut rest = packet;
            let (mut skip, mut done) = (12, 12);
            for piece in pieces.iter_mut() {
                let at = skip.min(piece.len());
                assert_eq!(&piece[..at], &[0; 12][..at], "the front is zeroed");
                let n = rest.len().min(piece.len() - at);
                piece[at..at + n].copy_from_slice(&rest[..n]);
                rest = &rest[n..];
                skip -= at;
                done += n;
            }
            Ok::<_, Infallible>(done)
        });
        let Ok(filled) = filled;
        filled.map(|filled| take(posted, filled))
    }

    fn take(posted: &mut Posted, filled: Filled) -> Result<Packet, DropReason> {
        let first = posted.first(filled)?[12..].to_vec();
        let taken = posted.take(filled, 12..filled.bytes())?;
        assert_eq!(first, taken.first(), "what was shown is what is taken");
        Ok(taken)
    }

    fn contents(packet: &Packet) -> Vec<u8> {
        packet.segments().flatten().copied().collect()
    }

    #[test]
    fn a_packet_takes_only_the_frames_it_fills() {
        let arena = Arena::new(ArenaConfig::default()).expect("memory");
        let small = FrameClass::Small.data_bytes();
        for (buffers, lengths) in [
            (
                RxBuffers::Whole,
                [(small, 1), (small + 1, 1), (PACKET_BYTES_MAX, 1)],
            ),
            (
                RxBuffers::PIECES,
                [(small, 1), (small + 1, 2), (PACKET_BYTES_MAX, PIECES)],
            ),
            (
                RxBuffers::Pieces { bytes: 512 },
                [(512, 1), (1025, 3), (PACKET_BYTES_MAX, 129)],
            ),
            (
                RxBuffers::Pieces {
                    bytes: RX_PIECE_BYTES_MIN,
                },
                [(256, 1), (257, 2), (PACKET_BYTES_MAX, PIECES_MAX)],
            ),
        ] {
            let mut posted = Posted::new(buffers, 12);
            assert!(posted.refill(&arena));
            for (length, segments) in lengths {
                let before = (posted.small.len(), posted.large.len());
                let sent = bytes(length);
                let got = receive(&mut posted, &sent)
                    .expect("frames are posted")
                    .expect("it fits");
                assert_eq!(contents(&got), sent);
                assert_eq!(got.segment_count(), segments, "{buffers:?} {length}");
                assert_eq!(got.headroom(), HEADROOM_BYTES);
                let mut pieces: Vec<_> = got.segments().map(<[u8]>::len).collect();
                let last = pieces.pop();
                if let RxBuffers::Pieces { bytes } = buffers {
                    assert!(pieces.iter().all(|&piece| piece == bytes), "{pieces:?}");
                    assert!(last.is_some_and(|last| last <= bytes));
                }
                let used = before.0 - posted.small.len() + before.1 - posted.large.len();
                assert_eq!(used, segments);
                assert!(posted.refill(&arena));
            }
        }
        assert_eq!(arena.census().lines_used, 0);
    }

    #[test]
    fn packets_that_are_read_at_once_are_taken_in_order() {
        let arena = Arena::new(ArenaConfig::default()).expect("memory");
        let small = FrameClass::Small.data_bytes();
        let mut posted = Posted::new(RxBuffers::Whole, 12);
        assert!(posted.refill(&arena));
        // 0 is one that is given up.
        let lengths = [60, small + 1, 0, PACKET_BYTES_MAX, small, 61];
        let mut read = Vec::new();
        let all = posted.read_many::<8, Infallible>(6, |frames, reading| {
            assert_eq!(frames.len(), 6);
            for (number, (frame, length)) in frames.iter_mut().zip(lengths).enumerate() {
                assert_eq!(frame[0][..12], [0; 12], "the front is zeroed");
                frame[0][12..12 + length].copy_from_slice(&bytes(length));
                read.push(reading.filled(number, 12 + length));
            }
            Ok(())
        });
        let Ok(()) = all;
        for (filled, length) in read.into_iter().zip(lengths) {
            assert_eq!(filled.is_small(), filled.bytes() <= small, "{length}");
            if length == 0 {
                continue;
            }
            let taken = take(&mut posted, filled).expect("it fits");
            assert_eq!(contents(&taken), bytes(length));
            // As between two bursts.
            assert!(posted.refill(&arena));
        }
        let next = receive(&mut posted, &bytes(60)).expect("frames are posted");
        assert_eq!(next.expect("it fits").bytes(), 60);
    }

    #[test]
    fn a_read_that_fills_everything_is_too_long_and_costs_one_packet() {
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        for buffers in [
            RxBuffers::Whole,
            RxBuffers::PIECES,
            RxBuffers::Pieces { bytes: 256 },
        ] {
            let mut posted = Posted::new(buffers, 12);
            assert!(posted.refill(&arena));
            let long = receive(&mut posted, &bytes(100_000)).expect("frames are posted");
            assert_eq!(long.err(), Some(DropReason::TooLong));
            assert!(posted.refill(&arena));
            let next = receive(&mut posted, &bytes(60)).expect("frames are posted");
            assert_eq!(next.expect("it fits").bytes(), 60);
        }
        assert_eq!(arena.census().small_used, 0);
        assert_eq!(arena.census().large_used, 0);
    }

    #[test]
    fn nothing_is_read_while_the_longest_packet_would_not_fit() {
        let lacking = [
            (RxBuffers::Whole, 64, 0),
            (RxBuffers::Whole, 0, 8),
            (RxBuffers::PIECES, PIECES as u32 - 1, 8),
            (RxBuffers::Pieces { bytes: 256 }, PIECES_MAX as u32 - 1, 8),
        ];
        for (buffers, small_frames, large_frames) in lacking {
            let config = ArenaConfig {
                small_frames,
                large_frames,
                lines: 256,
            };
            let arena = Arena::new(config).expect("memory");
            let mut posted = Posted::new(buffers, 12);
            assert!(!posted.refill(&arena), "{buffers:?}");
            assert!(receive(&mut posted, &bytes(60)).is_none(), "{buffers:?}");
        }
    }

    #[test]
    fn pieces_are_the_header_and_the_segments() {
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        for segments in [1, 3, 4, 5, 127, 128, SEGMENTS_MAX] {
            let mut packet = arena.empty_packet().expect("a line");
            for i in 0..segments {
                packet.add_frame(FrameClass::Small).expect("a frame");
                packet.tailroom_mut()[0] = i as u8;
                packet.grow(1).expect("room");
            }
            for header in [&[][..], &[7; 12][..]] {
                let pieces = with_pieces(header, &packet, |pieces| {
                    assert_eq!(pieces.len(), segments + usize::from(!header.is_empty()));
                    pieces.iter().flat_map(|p| p.to_vec()).collect::<Vec<_>>()
                });
                assert_eq!(pieces, [header, &contents(&packet)].concat());
            }
        }
    }
}
