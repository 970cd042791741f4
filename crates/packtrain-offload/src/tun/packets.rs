//! One read, cut into wire packets.

use super::batch::{ALONE, store_header};
use super::offload::TunOffload;
use super::unread::Progress;
use crate::checksum::{copy_and_sum, sum};
use crate::limits::HEADER_BYTES_MAX;
use crate::offload::{ChecksumState, Gso};
use crate::segment::{Fill, Segmenter, finish_partial};
use crate::virtio_net::{Accept, VnetError, VnetHeader, validate};
use core::fmt;
use core::ops::Range;

pub(super) mod whole;

/// The wire packets of one read, in order. Every packet has finished checksums. The calls below may
/// be mixed.
///
/// - [`TunOffload::packets`] borrows the bytes of one read: a `Packets<&mut [u8]>`.
/// - [`TunOffload::reader`] owns its buffer, of any type, and is used for read after read: see
///   [there](TunOffload::reader). A program with fewer output buffers than a read has packets
///   takes the rest with its next call.
///
/// Packets that were not fetched yet stay, and [`remaining`](Self::remaining) counts them. If the
/// value is dropped before they are fetched, they are lost, and
/// [`unread_packets`](super::unread_packets) counts them.
#[must_use = "packets that are not fetched are lost"]
pub struct Packets<B> {
    /// The virtio-net header, the packet, and behind it padding and what the read left free.
    buffer: B,
    offload: TunOffload,
    /// The packet in `buffer`.
    from: usize,
    to: usize,
    /// Of the packet before it is cut.
    checksum: ChecksumState,
    gso: Option<Gso>,
    cut: Cut,
    progress: Progress,
    headers: [u8; HEADER_BYTES_MAX],
}

// Counts: the packet itself would be up to 64 KiB in hex.
impl<B> fmt::Debug for Packets<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets")
            .field("packet_bytes", &(self.to - self.from))
            .field("remaining", &self.remaining())
            .field("next_bytes", &self.next_bytes())
            .finish()
    }
}

/// How the packet is taken apart.
#[derive(Clone, Copy)]
enum Cut {
    /// It is a wire packet.
    Whole,
    /// It is one, but for its checksum.
    Unfinished { start: usize, offset: usize },
    /// It is several.
    Segments(Segmenter),
}

impl Cut {
    /// Makes packet `index` in `read`, which is the packet that is taken apart, behind `before`
    /// bytes. Returns it with so many bytes in front of it.
    #[inline]
    fn make<'r>(
        &self,
        index: u32,
        headers: &[u8; HEADER_BYTES_MAX],
        read: &'r mut [u8],
        before: usize,
    ) -> &'r mut [u8] {
        let packet = &mut read[before..];
        match self {
            Self::Whole => read,
            &Self::Unfinished { start, offset } => {
                let value = finish_partial(sum(&packet[start..]), offset == UDP_OFFSET);
                store(packet, start + offset, value);
                read
            }
            Self::Segments(cut) => {
                let range = cut.payload(index);
                let (from, to) = (range.start as usize, range.end as usize);
                let fill = Fill::Complete {
                    payload: sum(&packet[from..to]),
                };
                // The payload begins behind at least one set of headers.
                let from = from - cut.header_bytes();
                let written = cut.write_header(index, headers, &mut packet[from..to], fill);
                debug_assert!(written.is_ok(), "the headers are there and fit");
                &mut read[from..before + to]
            }
        }
    }

    /// Copies packet `index` of `packet` to `out`, which is of its length.
    fn copy(&self, index: u32, headers: &[u8; HEADER_BYTES_MAX], packet: &[u8], out: &mut [u8]) {
        match self {
            Self::Whole => out.copy_from_slice(packet),
            &Self::Unfinished { start, offset } => {
                out[..start].copy_from_slice(&packet[..start]);
                let sum = copy_and_sum(&mut out[start..], &packet[start..]);
                let value = finish_partial(sum, offset == UDP_OFFSET);
                store(out, start + offset, value);
            }
            Self::Segments(cut) => {
                let range = cut.payload(index);
                let payload = &packet[range.start as usize..range.end as usize];
                let (header, body) = out.split_at_mut(cut.header_bytes());
                let fill = Fill::Complete {
                    payload: copy_and_sum(body, payload),
                };
                let written = cut.write_header(index, headers, header, fill);
                debug_assert!(written.is_ok(), "the headers are there and fit");
            }
        }
    }
}

/// A buffer that the next packet does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// Bytes of the buffer, without headroom.
    pub has: usize,
    /// Bytes of the packet.
    pub needs: usize,
}

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { has, needs } = self;
        write!(
            f,
            "the next packet has {needs} bytes and the buffer room for {has}: \
             give a longer one, or skip the packet"
        )
    }
}

crate::error::error!(TooShort, InvalidInput);

/// A read with a virtio-net header that is accepted.
struct Opened {
    /// The packet in the read.
    packet: Range<usize>,
    checksum: ChecksumState,
    gso: Option<Gso>,
    cut: Cut,
    /// Wire packets.
    count: u32,
}

/// Reads the virtio-net header of `read`. If the packet is several wire packets, its headers are
/// copied to `headers`.
fn open(
    offload: &TunOffload,
    read: &[u8],
    headers: &mut [u8; HEADER_BYTES_MAX],
) -> Result<Opened, VnetError> {
    let header = match offload.header {
        Some(form) => VnetHeader::decode(read, form)?,
        None => VnetHeader::default(),
    };
    let from = offload.header_bytes();
    let packet = &read[from..];
    let bytes = u32::try_from(packet.len()).map_err(|_| VnetError::PacketTooLong)?;
    let received = validate(&header, offload.link, Accept::ALL, packet, bytes)?;
    let packet = &packet[..received.packet_bytes as usize];
    let (cut, count) = match (received.gso, received.layout, received.checksum) {
        (Some(gso), Some(layout), _) => {
            let cut = Segmenter::new(packet, &layout, gso, received.packet_bytes)
                .map_err(|_| VnetError::GsoHeaders)?;
            let bytes = cut.header_bytes();
            headers[..bytes].copy_from_slice(&packet[..bytes]);
            (Cut::Segments(cut), cut.segments())
        }
        (_, _, ChecksumState::Partial { start, offset }) => {
            let (start, offset) = (usize::from(start), usize::from(offset));
            (Cut::Unfinished { start, offset }, 1)
        }
        _ => (Cut::Whole, 1),
    };
    Ok(Opened {
        packet: from..from + packet.len(),
        checksum: received.checksum,
        gso: received.gso,
        cut,
        count,
    })
}

impl<B> Packets<B> {
    pub(super) const fn new(offload: TunOffload, buffer: B) -> Self {
        Self {
            buffer,
            offload,
            from: 0,
            to: 0,
            checksum: ChecksumState::None,
            gso: None,
            cut: Cut::Whole,
            progress: Progress::of(0),
            headers: [0; HEADER_BYTES_MAX],
        }
    }

    /// Packets that were not fetched yet.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.progress.remaining()
    }

    /// Bytes of the next packet, link header included; `None` if there is none.
    #[must_use]
    pub fn next_bytes(&self) -> Option<usize> {
        (self.remaining() > 0).then(|| match &self.cut {
            Cut::Segments(cut) => cut.wire_bytes(self.progress.index),
            Cut::Whole | Cut::Unfinished { .. } => self.to - self.from,
        })
    }

    /// Leaves the next packet out. Says whether there was one.
    pub fn skip_packet(&mut self) -> bool {
        let is_one = self.remaining() > 0;
        self.progress.index += u32::from(is_one);
        is_one
    }

    /// Gives the buffer back, for a pool. Packets that remain are lost and counted, as if this was
    /// dropped.
    pub fn into_buffer(self) -> B {
        self.buffer
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Packets<B> {
    /// The whole buffer, to read into; then call [`received`](Self::received). Packets of the read
    /// before it that remain are lost and counted, so call it when [`remaining`](Self::remaining)
    /// returns 0.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.progress = Progress::of(0);
        self.buffer.as_mut()
    }

    /// Begins with the packets of a read that put `bytes` bytes into [`buffer`](Self::buffer):
    /// the virtio-net header and the packet behind it.
    ///
    /// # Errors
    /// Those of [`TunOffload::packets`]; then there are no packets, and the next read may follow.
    pub fn received(&mut self, bytes: usize) -> Result<(), VnetError> {
        self.progress = Progress::of(0);
        let read = self.buffer.as_ref();
        let read = read.get(..bytes).unwrap_or(read);
        let opened = open(&self.offload, read, &mut self.headers)?;
        (self.from, self.to) = (opened.packet.start, opened.packet.end);
        (self.checksum, self.gso, self.cut) = (opened.checksum, opened.gso, opened.cut);
        self.progress = Progress::of(opened.count);
        Ok(())
    }

    /// The next packet, made where it lies: its headers are written in front of its payload, over
    /// bytes of the packet before it.
    pub fn next_packet(&mut self) -> Option<&mut [u8]> {
        self.next_behind(0)
    }

    /// The next packet, made where it lies, behind a virtio-net header that says that it is
    /// complete: a write for the device, should it
    /// [refuse the large one](super#a-kernel-that-refuses-large-writes).
    pub fn next_write(&mut self) -> Option<&mut [u8]> {
        let header = self.offload.header;
        let write = self.next_behind(self.offload.header_bytes())?;
        store_header(write, header, &ALONE);
        Some(write)
    }

    /// The next packet, and so many bytes in front of it, at most those of the virtio-net header.
    fn next_behind(&mut self, before: usize) -> Option<&mut [u8]> {
        if self.remaining() == 0 {
            return None;
        }
        let index = self.progress.index;
        self.progress.index += 1;
        let read = &mut self.buffer.as_mut()[self.from - before..self.to];
        Some(self.cut.make(index, &self.headers, read, before))
    }

    /// Writes the next packet to the start of `out`, and returns its length; `None` if there is
    /// none. Every byte is read once: the checksum is made while copying.
    ///
    /// # Errors
    /// [`TooShort`] if it does not fit; then it is still the next one.
    pub fn next_into(&mut self, out: &mut [u8]) -> Result<Option<usize>, TooShort> {
        let Some(needs) = self.next_bytes() else {
            return Ok(None);
        };
        let has = out.len();
        let out = out.get_mut(..needs).ok_or(TooShort { has, needs })?;
        let packet = &self.buffer.as_ref()[self.from..self.to];
        let index = self.progress.index;
        self.cut.copy(index, &self.headers, packet, out);
        self.progress.index += 1;
        Ok(Some(needs))
    }

    /// Writes packets into buffers until either runs out, each behind `headroom` bytes that are
    /// left as they are, and their lengths, without headroom, into `lengths`. Returns how many
    /// packets were written: when it is all of `buffers`, the rest comes with the next call.
    ///
    /// # Errors
    /// [`TooShort`] if the first one does not fit its buffer. It is left out, so that a caller that
    /// reports the error and goes on gets the packet behind it: one packet longer than the buffers
    /// does not stop a program. If a later one does not fit, those before it are returned, and the
    /// error comes with the next call. To keep it, compare [`next_bytes`](Self::next_bytes) with
    /// the buffer before the call.
    pub fn fill<O: AsMut<[u8]>>(
        &mut self,
        buffers: &mut [O],
        headroom: usize,
        lengths: &mut [usize],
    ) -> Result<usize, TooShort> {
        let mut count = 0;
        for (buffer, length) in buffers.iter_mut().zip(lengths) {
            let out = buffer.as_mut().get_mut(headroom..).unwrap_or_default();
            match self.next_into(out) {
                Ok(Some(bytes)) => *length = bytes,
                Ok(None) => break,
                Err(_) if count > 0 => break,
                Err(error) => {
                    self.skip_packet();
                    return Err(error);
                }
            }
            count += 1;
        }
        Ok(count)
    }

    /// Writes up to `segments_max` packets into `out`, one behind the other, each with `headroom`
    /// bytes before it and `tailroom` bytes after it, which stay as they are. All packets of a read
    /// have the same length but the last, which may be shorter: so do the pieces of
    /// `out[..run.bytes].chunks_mut(run.stride)`. Encrypted in place, the run is one `sendmsg` with
    /// `UDP_SEGMENT`. Further packets come with the next call. `None` if there are no packets.
    ///
    /// Linux takes 64 segments and 65 507 bytes in one `sendmsg`, so `out` must not be longer, and
    /// one segment where it cannot segment: `max_gso_segments` of quinn-udp says which. The stride
    /// plus the UDP and IP headers (28 bytes for IPv4, 48 for IPv6) must fit the MTU of the path:
    /// otherwise `sendmsg` fails with `EMSGSIZE`, or a router drops the datagrams. So the MTU of
    /// the device is that of the path less these headers, `headroom` and `tailroom`.
    ///
    /// # Errors
    /// [`TooShort`] if the first packet does not fit, or `segments_max` is 0; then it is still the
    /// next one.
    pub fn fill_run(
        &mut self,
        out: &mut [u8],
        headroom: usize,
        tailroom: usize,
        segments_max: usize,
    ) -> Result<Option<PacketRun>, TooShort> {
        let Some(needs) = self.next_bytes() else {
            return Ok(None);
        };
        let around = headroom.saturating_add(tailroom);
        let stride = around.saturating_add(needs);
        let end = stride.saturating_mul(segments_max).min(out.len());
        let out = &mut out[..end];
        let mut bytes = 0_usize;
        while let Some(next) = self.next_bytes() {
            let Some(place) = out.get_mut(bytes..bytes.saturating_add(around.saturating_add(next)))
            else {
                break;
            };
            self.next_into(&mut place[headroom..headroom + next])?;
            bytes += place.len();
        }
        if bytes == 0 {
            let has = out.len().saturating_sub(around);
            return Err(TooShort { has, needs });
        }
        Ok(Some(PacketRun { stride, bytes }))
    }
}

/// Packets of one read in one run of bytes, as `UDP_SEGMENT` takes it. Made by
/// [`Packets::fill_run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRun {
    /// Bytes from one packet's headroom to the next one's: headroom, packet and tailroom.
    pub stride: usize,
    /// Bytes of the run. Less than a multiple of `stride` if the last packet is shorter.
    pub bytes: usize,
}

/// Where UDP has its checksum.
const UDP_OFFSET: usize = 6;

/// `validate` made sure that the field is inside the packet.
fn store(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
