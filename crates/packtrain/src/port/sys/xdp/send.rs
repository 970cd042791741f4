//! The transmitting half of a queue: packets that the kernel sends, and which of them it has sent.

use super::flight::Flight;
use super::receive::Queue;
use super::ring::{Consumer, Producer};
use super::socket::{CONTINUED, Descriptor, METADATA, checksum_metadata};
use crate::driver::{DeviceError, Link, Refused, Token, TxPacket};
use crate::limits::SMALL_FRAME_BYTES;
use crate::packet::{Packet, PacketError};
use crate::port::sys::device::failed;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::ChecksumState;
use rustix::io::Errno;
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The time to the next attempt after the kernel took no packet of the ring, since its device was
/// busy or had no memory.
const RETRY: Duration = Duration::from_millis(1);
/// Packets that a kernel that copies sends in a system call (its `max_tx_budget`).
const COPIED_AT_ONCE: u32 = 32;
/// Not that of a packet.
const NO_PACKET: Token = Token(u32::MAX);
/// Bytes of an Ethernet header, which the kernel does not look for behind a first descriptor.
const HEADER_BYTES: usize = 14;

/// What the kernel takes of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) segments_max: usize,
    /// Bytes that each segment needs in front of it in its frame: those of metadata, if the kernel
    /// reads it.
    pub(super) front_bytes: usize,
}

/// Asks the kernel for the checksum of a packet, if it was left to the device. Returns the options
/// of its first descriptor.
pub(in crate::port) fn leave_checksum(packet: &mut TxPacket<'_>) -> Result<u32, Refused> {
    let whole = packet.packet();
    let ChecksumState::Partial { start, offset } = whole.meta().checksum else {
        return Ok(0);
    };
    let metadata = checksum_metadata(start, offset);
    let end = usize::from(start) + usize::from(offset) + 2;
    if usize::from(start) < HEADER_BYTES || end > whole.bytes() {
        // The kernel would refuse it, and all that follow it in the ring.
        return Err(Refused::Bad(DropReason::BadChecksumPlace));
    }
    prepare(packet, metadata.len(), end)?;
    packet
        .with_header(&metadata, |_| ())
        .ok_or(Refused::TooManySegments)?;
    Ok(METADATA)
}

/// Has the first segment contain the checksum's field, which ends at `end`, and `front` free bytes
/// in front that no other packet shares.
fn prepare(packet: &mut TxPacket<'_>, front: usize, end: usize) -> Result<(), Refused> {
    let whole = packet.packet();
    if whole.headroom() >= front && whole.first().len() >= end {
        return Ok(());
    }
    // A fresh frame has free bytes.
    match packet.packet_mut().pull(end) {
        Ok(true) => Ok(()),
        Err(PacketError::NoBuffer) => Err(Refused::NoMemory),
        // The copy has them.
        Ok(false) | Err(_) => Err(Refused::TooManySegments),
    }
}

/// Where a segment is behind `start`, and its bytes.
fn place(segment: &[u8], start: usize) -> (usize, usize) {
    (segment.as_ptr().addr().wrapping_sub(start), segment.len())
}

impl Limits {
    /// The number of descriptors of a packet with segments at these `places` in `bytes` of frames.
    /// One with too many segments is copied, which has the usual headroom.
    fn count(
        &self,
        places: impl Iterator<Item = (usize, usize)>,
        bytes: usize,
    ) -> Result<usize, Refused> {
        let (mut count, mut fits) = (0, true);
        let mut first = None;
        for (offset, length) in places {
            if offset.saturating_add(length) > bytes {
                return Err(Refused::Bad(DropReason::DeviceRefused));
            }
            fits &= offset % SMALL_FRAME_BYTES >= self.front_bytes;
            first.get_or_insert(length);
            count += 1;
        }
        // A kernel that copies only looks for the header in the first descriptor, and does not
        // check that it is there.
        fits &= count <= 1 || first.is_some_and(|length| length >= HEADER_BYTES);
        match fits && count <= self.segments_max {
            true => Ok(count),
            false => Err(Refused::TooManySegments),
        }
    }
}

/// The TX ring and the completion ring of a queue.
#[derive(Debug)]
pub(in crate::port) struct Sender {
    ring: Producer<Descriptor>,
    completion: Consumer<u64>,
    pub(in crate::port) queue: Arc<Queue>,
    flight: Flight,
    /// The addresses of the small frames.
    frames: Range<usize>,
    limits: Limits,
    /// The interface is not up: what is in the ring waits.
    down: bool,
    /// The kernel took nothing of the ring, and when it is asked again.
    refused: bool,
    retry_at: Option<Instant>,
    calls: u64,
}

impl Sender {
    pub(super) fn new(
        ring: Producer<Descriptor>,
        completion: Consumer<u64>,
        queue: Arc<Queue>,
        frames: Range<usize>,
        descriptors: u32,
        limits: Limits,
    ) -> Self {
        Self {
            ring,
            completion,
            queue,
            flight: Flight::new(frames.clone(), descriptors as usize),
            frames,
            limits,
            down: false,
            refused: false,
            retry_at: None,
            calls: 0,
        }
    }

    /// Puts a packet into the ring. `options` are those of its first descriptor.
    #[inline]
    pub(in crate::port) fn put(
        &mut self,
        packet: &Packet,
        token: Token,
        options: u32,
    ) -> Result<(), Refused> {
        let (first, start) = (packet.first(), self.frames.start);
        if packet.segment_count() == 1 && !first.is_empty() {
            return self.put_at(once(place(first, start)), token, options);
        }
        let pieces = packet.segments();
        self.put_at(pieces.map(|piece| place(piece, start)), token, options)
    }

    /// Puts a packet with segments at these `places` into the ring.
    #[inline]
    fn put_at(
        &mut self,
        places: impl Iterator<Item = (usize, usize)> + Clone,
        token: Token,
        mut options: u32,
    ) -> Result<(), Refused> {
        let count = self.limits.count(places.clone(), self.frames.len())?;
        // The kernel completes a packet before it shows that it has read its descriptors.
        if !self.flight.has_room(count, token) || !self.ring.has_room(count as u32) {
            return Err(Refused::NoDescriptor);
        }
        for (index, (offset, bytes)) in places.enumerate() {
            let more = if index + 1 < count { CONTINUED } else { 0 };
            let put = self.ring.put(Descriptor {
                address: offset as u64,
                bytes: bytes as u32,
                options: options | more,
            });
            debug_assert!(put, "there is room for all");
            self.flight.put(offset / SMALL_FRAME_BYTES, token);
            options = 0;
        }
        Ok(())
    }

    /// Shows the kernel what was put.
    pub(in crate::port) fn publish(&self) {
        self.ring.publish();
    }

    /// As [`kick`](Self::kick), and keeps in mind when to do it again.
    pub(in crate::port) fn kick_at(&mut self, now: Instant) -> Result<(), DeviceError> {
        let kicked = self.kick();
        self.retry_at = self.refused.then(|| now.after(RETRY));
        kicked
    }

    /// When to [`kick_at`](Self::kick_at) again: no completion says that the device has room.
    pub(in crate::port) const fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Has the kernel read the ring if it needs a system call for that. A kernel that copies sends
    /// a few packets with each.
    pub(in crate::port) fn kick(&mut self) -> Result<(), DeviceError> {
        let mut waiting = self.ring.waiting();
        // Linux before 6.17 shows what it has read only once it has read all.
        let mut unseen = waiting / COPIED_AT_ONCE;
        // A poll of the socket has the kernel read the ring as well.
        (self.down, self.refused) = (self.down && waiting > 0, false);
        while waiting > 0 && self.ring.needs_wakeup() {
            self.calls += 1;
            let sent = self.queue.socket.wake_tx();
            self.down = sent == Err(Errno::NETDOWN);
            match sent {
                Ok(()) | Err(Errno::NETDOWN) => break,
                // More than it sends at once, or a packet that the device dropped; or, if it took
                // none, no memory now: the next call goes on.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {}
                // A device that is set up anew says so as well.
                Err(Errno::NXIO) if self.queue.line.check() != Link::Removed => {
                    self.refused = true;
                    break;
                }
                Err(error) => return Err(failed("send packets")(error.into())),
            }
            let left = self.ring.waiting();
            if left == waiting {
                if unseen == 0 {
                    self.refused = true;
                    break;
                }
                unseen -= 1;
            }
            waiting = left;
        }
        Ok(())
    }

    /// The interface was not up at the last system call, or had no carrier when it was checked.
    pub(in crate::port) fn is_down(&self) -> bool {
        self.down || self.queue.line.is_down()
    }

    /// The next packet that is complete; for a completion of none a token that the queue counts as
    /// such.
    pub(in crate::port) fn next_complete(&mut self) -> Option<Token> {
        loop {
            let address = self.completion.take()?;
            let frame = address as usize / SMALL_FRAME_BYTES;
            if !self.flight.has(frame) {
                return Some(NO_PACKET);
            }
            let token = self.flight.complete(frame);
            if token.is_some() {
                return token;
            }
        }
    }

    /// Gives the places of the complete packets back.
    pub(in crate::port) fn release(&self) {
        self.completion.release();
    }

    /// Whether something is complete.
    pub(in crate::port) fn has_complete(&self) -> bool {
        !self.completion.is_empty()
    }

    /// System calls made.
    pub(in crate::port) const fn calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The RX half may keep the socket alive.
        self.ring.discard_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        segments_max: 3,
        front_bytes: 16,
    };
    const BYTES: usize = 4 * SMALL_FRAME_BYTES;

    fn count(places: &[(usize, usize)]) -> Result<usize, Refused> {
        LIMITS.count(places.iter().copied(), BYTES)
    }

    #[test]
    fn only_packets_that_the_kernel_can_take_are_put() {
        let frame = |number: usize| number * SMALL_FRAME_BYTES + 256;
        assert_eq!(count(&[(frame(0), 14)]), Ok(1));
        assert_eq!(count(&[(frame(3), 1792)]), Ok(1));
        assert_eq!(
            count(&[(frame(0), 14), (frame(1), 1), (frame(2), 1)]),
            Ok(3)
        );
        let copied = Err(Refused::TooManySegments);
        let four = [0, 1, 2, 3].map(|number| (frame(number), 60));
        assert_eq!(count(&four), copied);
        // The kernel takes the header from the first one, whether it is there or not.
        assert_eq!(count(&[(frame(0), 13), (frame(1), 60)]), copied);
        // No room for metadata in front.
        assert_eq!(
            count(&[(frame(0), 60), (2 * SMALL_FRAME_BYTES + 15, 60)]),
            copied
        );
        let foreign = Err(Refused::Bad(DropReason::DeviceRefused));
        assert_eq!(count(&[(frame(3), 1793)]), foreign);
        assert_eq!(count(&[(usize::MAX - 3, 60)]), foreign);
        assert_eq!(count(&[(frame(0), 60), (BYTES, 1)]), foreign);
    }
}
