//! Writes in contiguous buffers: payload is copied to where it belongs, and summed meanwhile.

use super::batch::{ALONE, Memory, store_header};
use super::offload::TunOffload;
use crate::checksum::{self, Sum, copy_and_sum};
use crate::coalesce::{AppendError, Done, Packet, Stats};
use crate::offload::ChecksumState;
use crate::virtio_net::HeaderLen;
use core::cell::{Cell, OnceCell};
use core::ops::Range;

/// What happened to a batch.
#[must_use = "`buffer_too_short` counts packets that were lost"]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets given, writes made (`emitted`), packets merged, and why others were not.
    pub stats: Stats,
    /// Packets that were not written, because there is no buffer, or one whose length (not its
    /// capacity) is less than that of the packet and its virtio-net header; not in `stats`. Always
    /// 0 with buffers of [`WRITE_BYTES_MAX`](super::WRITE_BYTES_MAX) bytes.
    pub buffer_too_short: u64,
}

/// Buffers that are free, last in first out: the last one is in cache.
struct Pool<'x, 'b> {
    buffers: &'x [Cell<Option<&'b mut [u8]>>],
    free: Cell<usize>,
    header: Option<HeaderLen>,
    /// Where packets begin: behind the virtio-net header.
    packet_at: usize,
}

impl<'b> Pool<'_, 'b> {
    fn take(&self) -> Option<&'b mut [u8]> {
        let top = self.free.get().checked_sub(1)?;
        self.free.set(top);
        self.buffers.get(top)?.take()
    }

    fn put(&self, buffer: &'b mut [u8]) {
        if let Some(place) = self.buffers.get(self.free.get()) {
            place.set(Some(buffer));
            self.free.set(self.free.get() + 1);
        }
    }
}

/// A packet that is copied into a buffer as soon as its payload is summed or its headers change.
struct Copied<'x, 'b, 'p> {
    source: &'p [u8],
    /// The buffer, if it was copied.
    buffer: OnceCell<&'b mut [u8]>,
    bytes: usize,
    checksum: ChecksumState,
    pool: &'x Pool<'x, 'b>,
}

impl<'b> Copied<'_, 'b, '_> {
    /// Copies the packet, with the sum of `range`.
    fn copy(&self, range: Range<usize>) -> Option<(&'b mut [u8], Sum)> {
        let buffer = self.pool.take()?;
        let Some(out) = buffer.get_mut(self.pool.packet_at..) else {
            self.pool.put(buffer);
            return None;
        };
        // `run` compared the lengths.
        let (before, rest) = self.source.split_at(range.start);
        let (summed, after) = rest.split_at(range.len());
        out[..before.len()].copy_from_slice(before);
        let sum = copy_and_sum(&mut out[range.clone()], summed);
        out[range.end..self.source.len()].copy_from_slice(after);
        Some((buffer, sum))
    }

    fn copied(&mut self) -> Option<&mut [u8]> {
        if self.buffer.get().is_none() {
            let (buffer, _) = self.copy(self.source.len()..self.source.len())?;
            self.buffer.set(buffer).ok()?;
        }
        let bytes = self.bytes;
        let at = self.pool.packet_at;
        self.buffer.get_mut()?.get_mut(at..at + bytes)
    }

    /// The bytes behind the packet in its buffer, as many as `payload` has.
    fn room(&mut self, payload: &Range<u32>) -> Option<&mut [u8]> {
        let at = self.pool.packet_at + self.bytes;
        let bytes = payload.len();
        self.copied()?;
        self.buffer.get_mut()?.get_mut(at..at + bytes)
    }
}

fn wide(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Packet for Copied<'_, '_, '_> {
    #[inline]
    fn head(&self) -> &[u8] {
        match self.buffer.get() {
            Some(buffer) => buffer.get(self.pool.packet_at..).unwrap_or_default(),
            None => self.source,
        }
    }

    #[inline]
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.copied()?.get_mut(..bytes)
    }

    #[inline]
    fn bytes(&self) -> u32 {
        self.bytes as u32
    }

    #[inline]
    fn checksum(&self) -> ChecksumState {
        self.checksum
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        let range = wide(&range);
        if self.buffer.get().is_none()
            && let Some((buffer, sum)) = self.copy(range.clone())
        {
            // It was empty.
            if let Err(buffer) = self.buffer.set(buffer) {
                self.pool.put(buffer);
            }
            return sum;
        }
        checksum::sum(self.head().get(range).unwrap_or_default())
    }

    fn truncate(&mut self, bytes: u32) {
        self.bytes = self.bytes.min(bytes as usize);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let from = wide(&payload);
        let Some(room) = self.room(&payload) else {
            return Err(tail);
        };
        room.copy_from_slice(&tail.source[from]);
        self.bytes += payload.len();
        Ok(())
    }

    #[inline]
    fn append_checked(
        &mut self,
        tail: Self,
        payload: Range<u32>,
        headers: Sum,
    ) -> Result<(), (AppendError, Self)> {
        let from = wide(&payload);
        let Some(room) = self.room(&payload) else {
            return Err((AppendError::Full, tail));
        };
        let mut sum = headers;
        sum.add_sum(copy_and_sum(room, &tail.source[from]));
        if !sum.is_valid() {
            // What was copied is behind the end, where the next packet goes.
            return Err((AppendError::Checksum, tail));
        }
        self.bytes += payload.len();
        Ok(())
    }
}

/// Writes a packet with its virtio-net header, and takes its buffer back. A packet without a buffer
/// while none is free is returned: its source.
fn hand_on<'p, T, E>(
    mut packet: Copied<'_, '_, 'p>,
    done: &Done,
    write: &mut impl FnMut(&mut [u8]) -> Result<T, E>,
) -> Result<Option<&'p [u8]>, E> {
    let pool = packet.pool;
    let end = pool.packet_at + packet.bytes;
    if packet.copied().is_none() {
        return Ok(Some(packet.source));
    }
    let mut result = Ok(None);
    if let Some(buffer) = packet.buffer.into_inner() {
        if let Some(bytes) = buffer.get_mut(..end) {
            store_header(bytes, pool.header, done);
            result = write(bytes).map(|_| None);
        }
        pool.put(buffer);
    }
    result
}

/// [`TunOffload::write_batch`] without merging, for a batch of one packet and for no buffers.
pub(super) fn run_alone<'p, B: AsMut<[u8]>, T, E>(
    offload: &TunOffload,
    buffers: &mut [B],
    packets: impl Iterator<Item = &'p [u8]>,
    mut write: impl FnMut(&mut [u8]) -> Result<T, E>,
) -> Result<Written, E> {
    let mut written = Written::default();
    let buffer = buffers.first_mut().map(AsMut::as_mut).unwrap_or_default();
    let packet_at = offload.header_bytes();
    for source in packets {
        let Some(bytes) = buffer.get_mut(..packet_at + source.len()) else {
            written.buffer_too_short += 1;
            continue;
        };
        bytes[packet_at..].copy_from_slice(source);
        store_header(bytes, offload.header, &ALONE);
        write(bytes)?;
        written.stats.alone();
    }
    Ok(written)
}

/// [`TunOffload::write_batch`], with room for `BUFFERS` buffers, of which there is one or more.
pub(super) fn run<'p, const BUFFERS: usize, const SETS: usize, B: AsMut<[u8]>, T, E>(
    offload: &TunOffload,
    buffers: &mut [B],
    packets: impl Iterator<Item = &'p [u8]>,
    mut write: impl FnMut(&mut [u8]) -> Result<T, E>,
) -> Result<Written, E> {
    let mut places = [const { Cell::new(None) }; BUFFERS];
    let packet_at = offload.header_bytes();
    let mut shortest = usize::MAX;
    let mut free = 0;
    for (place, buffer) in places.iter_mut().zip(buffers) {
        let buffer = buffer.as_mut();
        shortest = shortest.min(buffer.len());
        *place.get_mut() = Some(buffer);
        free += 1;
    }
    let pool = Pool {
        buffers: &places,
        free: Cell::new(free),
        header: offload.header,
        packet_at,
    };
    let mut buffer_too_short = 0;
    let mut memory = Memory::<Copied<'_, '_, 'p>, BUFFERS, SETS>::new();
    // A buffer more than packets that are held: for a packet that is written at once.
    let mut made = memory.coalescer(offload, free.saturating_sub(1).max(1));
    // Left where it is: it is too large to be moved for nothing.
    let Ok(coalescer) = &mut made else {
        debug_assert!(false, "the memory is of the right size");
        return Ok(Written::default());
    };
    let packet_of = |source: &'p [u8]| Copied {
        source,
        buffer: OnceCell::new(),
        bytes: source.len(),
        checksum: offload.checksum(),
        pool: &pool,
    };
    let failed = OnceCell::new();
    // With one buffer: the packet just pushed. The buffer has a packet of another flow: one of the
    // same flow was written before this.
    let waiting = Cell::new(None);
    let mut sink = |packet: Copied<'_, '_, 'p>, done: &Done| {
        if failed.get().is_some() {
            return;
        }
        match hand_on(packet, done, &mut write) {
            Ok(None) => {}
            Ok(source) => waiting.set(source),
            Err(error) => {
                failed.get_or_init(|| error);
            }
        }
    };
    for source in packets {
        if packet_at + source.len() > shortest {
            buffer_too_short += 1;
            continue;
        }
        coalescer.push(0, packet_of(source), &mut sink);
        if let Some(source) = waiting.take() {
            coalescer.flush(&mut sink);
            // The flush has freed the buffer.
            sink(packet_of(source), &ALONE);
        }
        if failed.get().is_some() {
            break;
        }
    }
    coalescer.flush(&mut sink);
    let stats = *coalescer.stats();
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(Written {
            stats,
            buffer_too_short,
        }),
    }
}
