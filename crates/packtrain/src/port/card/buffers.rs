//! The frames that a card may fill, in the order of its ring.

use super::Window;
use crate::packet::{Arena, FrameClass, Packet};
use crate::stats::DropReason;

/// Free descriptors that are worth filling.
const REFILL: usize = 16;

/// The frames of an RX ring, which the card fills in order.
///
/// A driver stops the queue in the card before it drops them: the card writes to the memory of
/// other packets else.
#[derive(Debug)]
pub struct Buffers {
    /// By descriptor: the empty packet that the card may fill.
    posted: Box<[Option<Packet>]>,
    /// The descriptor that the card fills next, and how many it has.
    next: usize,
    count: usize,
    window: Window,
    /// Bytes that the card may write to each frame.
    bytes: usize,
}

impl Buffers {
    /// For a ring of `descriptors`, of which one stays free: a ring that is full would look like an
    /// empty one. The card may write `bytes` bytes to each frame.
    #[must_use]
    pub fn new(descriptors: usize, window: Window, bytes: usize) -> Self {
        Self {
            posted: (0..descriptors).map(|_| None).collect(),
            next: 0,
            count: 0,
            window,
            bytes,
        }
    }

    /// Calls `post` with each free descriptor and the address of a frame for it, once so many are
    /// free that it is worth a doorbell: 16, so a ring has to have more. Returns false if the arena
    /// had too few frames.
    pub fn refill(&mut self, arena: &Arena, mut post: impl FnMut(usize, u64)) -> bool {
        if self.count + REFILL >= self.posted.len() {
            return true;
        }
        while self.count + 1 < self.posted.len() {
            let Ok(mut packet) = arena.packet(FrameClass::Small) else {
                return false;
            };
            let room = packet.tailroom_mut();
            let room = room.get(..self.bytes).unwrap_or(room);
            let Some(address) = self.window.address(room) else {
                return false;
            };
            let index = self.tail();
            post(index, address);
            self.posted[index] = Some(packet);
            self.count += 1;
        }
        true
    }

    /// How many descriptors the card has.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The descriptor that the card fills next; `None` if it has none.
    #[must_use]
    pub fn next(&self) -> Option<usize> {
        (self.count > 0).then_some(self.next)
    }

    /// The first descriptor that the card does not have.
    #[must_use]
    pub const fn tail(&self) -> usize {
        let tail = self.next + self.count;
        if tail < self.posted.len() {
            tail
        } else {
            tail - self.posted.len()
        }
    }

    /// Takes the frame of the [`next`](Self::next) descriptor, to which the card has written
    /// `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`DropReason::BadDescriptor`] if the card has no descriptor, or says that it has written
    /// more than it may. The frame is then free.
    pub fn take(&mut self, bytes: usize) -> Result<Packet, DropReason> {
        let posted = self.posted.get_mut(self.next).and_then(Option::take);
        let mut packet = posted.ok_or(DropReason::BadDescriptor)?;
        self.count -= 1;
        self.next += 1;
        if self.next == self.posted.len() {
            self.next = 0;
        }
        if bytes > self.bytes {
            return Err(DropReason::BadDescriptor);
        }
        packet
            .grow(bytes)
            .map_err(|_beyond| DropReason::BadDescriptor)?;
        Ok(packet)
    }

    /// Takes the frames that the card has, of a half that is dropped before the card is stopped.
    pub fn take_all(&mut self) -> Box<[Option<Packet>]> {
        self.count = 0;
        std::mem::take(&mut self.posted)
    }
}
