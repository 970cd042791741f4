//! The transmitting half of a queue: packets that the kernel sends, and which of them it has sent.

use super::flight::Flight;
use super::receive::Queue;
use super::ring::{Consumer, Producer};
use super::socket::{CONTINUED, Descriptor};
use crate::driver::{DeviceError, Refused, Token};
use crate::limits::SMALL_FRAME_BYTES;
use crate::packet::Packet;
use crate::port::sys::device::failed;
use crate::stats::DropReason;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// What the kernel takes of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) segments_max: usize,
    /// Bytes that each segment needs in front of it in its frame: those of metadata, if the kernel
    /// reads it.
    pub(super) front_bytes: usize,
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
    /// The interface is down: what is in the ring waits.
    down: bool,
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
            calls: 0,
        }
    }

    /// Puts a packet into the ring. `options` are those of its first descriptor.
    pub(in crate::port) fn put(
        &mut self,
        packet: &Packet,
        token: Token,
        mut options: u32,
    ) -> Result<(), Refused> {
        let (start, front) = (self.frames.start, self.limits.front_bytes);
        let places = || {
            let pieces = packet.segments();
            pieces.map(move |piece| (piece.as_ptr().addr().wrapping_sub(start), piece.len()))
        };
        let mut count = 0;
        for (offset, bytes) in places() {
            if offset.saturating_add(bytes) > self.frames.len() {
                return Err(Refused::Bad(DropReason::DeviceRefused));
            }
            if offset % SMALL_FRAME_BYTES < front {
                // Copied, it has the usual headroom.
                return Err(Refused::TooManySegments);
            }
            count += 1;
        }
        if count > self.limits.segments_max {
            return Err(Refused::TooManySegments);
        }
        if !self.flight.has_room(count, token) {
            return Err(Refused::NoDescriptor);
        }
        for (index, (offset, bytes)) in places().enumerate() {
            let more = if index + 1 < count { CONTINUED } else { 0 };
            let put = self.ring.put(Descriptor {
                address: offset as u64,
                bytes: bytes as u32,
                options: options | more,
            });
            debug_assert!(put, "the ring has an entry for each descriptor in flight");
            self.flight.put(offset / SMALL_FRAME_BYTES, token);
            options = 0;
        }
        Ok(())
    }

    /// Shows the kernel what was put.
    pub(in crate::port) fn publish(&self) {
        self.ring.publish();
    }

    /// Has the kernel read the ring if it needs a system call for that. A kernel that copies sends
    /// a few packets with each.
    pub(in crate::port) fn kick(&mut self) -> Result<(), DeviceError> {
        let mut waiting = self.ring.waiting();
        while waiting > 0 && self.ring.needs_wakeup() {
            self.calls += 1;
            let sent = self.queue.socket.wake_tx();
            self.down = sent == Err(Errno::NETDOWN);
            match sent {
                Ok(()) | Err(Errno::NETDOWN) => break,
                // More than it sends at once, or a packet that the device dropped; or, if it took
                // none, no memory now: the next call goes on.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => {}
                Err(error) => return Err(failed("send packets")(error.into())),
            }
            if self.ring.waiting() == waiting {
                break;
            }
            waiting = self.ring.waiting();
        }
        Ok(())
    }

    /// The interface was down at the last system call.
    pub(in crate::port) const fn is_down(&self) -> bool {
        self.down
    }

    /// The next packet that is complete.
    pub(in crate::port) fn next_complete(&mut self) -> Option<Token> {
        loop {
            let address = self.completion.take()?;
            let token = self.flight.complete(address as usize / SMALL_FRAME_BYTES);
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
        // The RX half may keep the socket alive; the kernel ignores descriptors of no bytes.
        self.ring.replace_waiting(Descriptor::default());
    }
}
