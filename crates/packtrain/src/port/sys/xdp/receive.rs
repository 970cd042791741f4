//! The receiving half of a queue: frames that the kernel fills, and packets made of them.

use super::line::Line;
use super::program::Program;
use super::ring::{Consumer, Producer};
use super::socket::{CONTINUED, Descriptor, Socket};
use crate::limits::{HEADROOM_BYTES, SMALL_FRAME_BYTES};
use crate::packet::{Arena, FrameClass, Packet, Unfilled};
use crate::port::arriving::Arriving;
use crate::stats::DropReason;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The shared part of a queue's halves. Each half drops its rings, which keep the socket alive, and
/// then its reference to this; so the socket is closed when the second half is dropped.
///
/// In copy mode the kernel neither reads nor writes frames from then on. In zero-copy mode the
/// device may for a while, since the kernel stops it later, in a work queue: the frames that it may
/// fill are then not given back, so each RX half costs the arena as many as its ring has.
#[derive(Debug)]
pub(in crate::port) struct Queue {
    pub(in crate::port) socket: Socket,
    pub(in crate::port) line: Arc<Line>,
    /// The frames into which the kernel may write until the socket is closed, after the RX half was
    /// dropped.
    kept: OnceLock<Box<[Option<Unfilled>]>>,
    /// The device itself writes to them.
    zero_copy: bool,
    /// In the map of another process's program.
    entry: OnceLock<(Arc<Program>, u32)>,
    /// It hands packets over in system calls, rather than in interrupts.
    polls_busily: bool,
}

impl Queue {
    pub(super) const fn new(
        socket: Socket,
        line: Arc<Line>,
        zero_copy: bool,
        polls_busily: bool,
    ) -> Self {
        Self {
            socket,
            line,
            kept: OnceLock::new(),
            zero_copy,
            entry: OnceLock::new(),
            polls_busily,
        }
    }
}

impl Queue {
    /// The socket has this entry of the map of another process, which may keep it open, too.
    pub(super) fn enter(&self, map: &Arc<Program>, number: u32) {
        let is_first = self.entry.set((Arc::clone(map), number)).is_ok();
        debug_assert!(is_first, "a queue has one entry");
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // While packets may come for a socket that stays open, its frames are not free.
        if let Some((map, number)) = self.entry.get()
            && map.remove(*number).is_err()
            && let Some(kept) = self.kept.take()
        {
            Box::leak(kept);
        }
    }
}

/// The RX ring and the fill ring of a queue.
#[derive(Debug)]
pub(in crate::port) struct Receiver {
    fill: Producer<u64>,
    ring: Consumer<Descriptor>,
    pub(in crate::port) queue: Arc<Queue>,
    /// The addresses of the small frames.
    frames: Range<usize>,
    /// By the number of the frame: the empty packets that the kernel may fill.
    posted: Box<[Option<Unfilled>]>,
    /// Frames on their way to the fill ring.
    fresh: Vec<Unfilled>,
    /// How many there are, and how many there may be.
    count: u32,
    capacity: u32,
    /// The next packet.
    arriving: Arriving,
    calls: u64,
}

impl Receiver {
    pub(super) fn new(
        fill: Producer<u64>,
        ring: Consumer<Descriptor>,
        queue: Arc<Queue>,
        frames: Range<usize>,
        capacity: u32,
    ) -> Self {
        let count = frames.len() / SMALL_FRAME_BYTES;
        Self {
            fill,
            ring,
            queue,
            frames,
            posted: (0..count).map(|_| None).collect(),
            fresh: Vec::with_capacity(capacity as usize),
            count: 0,
            capacity,
            arriving: Arriving::default(),
            calls: 0,
        }
    }

    /// Gives the kernel frames up to the full number; false when the arena ran out of them.
    pub(in crate::port) fn refill(&mut self, arena: &Arena) -> bool {
        let before = self.count;
        let missing = self.capacity.saturating_sub(before) as usize;
        arena.fill_unfilled(FrameClass::Small, &mut self.fresh, missing);
        for mut unfilled in self.fresh.drain(..) {
            let offset = unfilled.free().as_ptr().addr() - self.frames.start;
            let frame = offset / SMALL_FRAME_BYTES;
            if !self.fill.put((frame * SMALL_FRAME_BYTES) as u64) {
                break;
            }
            self.posted[frame] = Some(unfilled);
            self.count += 1;
        }
        if self.count > before {
            self.fill.publish();
            // A driver that had no frames does not look for them by itself.
            if self.fill.needs_wakeup() {
                self.wake();
            }
        }
        self.count == self.capacity
    }

    /// While nothing arrives: has a driver look at the fill ring that found it empty and asked for
    /// that only after the last refill. With busy polling, also has the device hand over packets.
    pub(in crate::port) fn look_again(&mut self) {
        let asks = self.fill.asks() && self.fill.waiting() > 0;
        if asks || self.queue.polls_busily {
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.calls += 1;
        // An interface that is down or gone is found by the next check.
        self.queue.socket.wake_rx().unwrap_or(());
    }

    /// The kernel has no frame, so that it drops what arrives.
    pub(in crate::port) const fn is_starved(&self) -> bool {
        self.count == 0
    }

    /// The next packet that has arrived, or why it cannot be used.
    pub(in crate::port) fn next(&mut self) -> Option<Result<Packet, DropReason>> {
        loop {
            let descriptor = self.ring.take()?;
            let piece = self.piece(descriptor);
            let is_last = descriptor.options & CONTINUED == 0;
            if is_last && self.arriving.is_empty() {
                return Some(piece);
            }
            self.arriving.add(piece);
            if is_last {
                return Some(self.arriving.finish());
            }
        }
    }

    /// Gives the places of the packets in the ring back.
    pub(in crate::port) fn release(&self) {
        self.ring.release();
    }

    /// Whether nothing has arrived.
    pub(in crate::port) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// System calls made.
    pub(in crate::port) const fn calls(&self) -> u64 {
        self.calls
    }

    /// The packet in the frame of a descriptor.
    fn piece(&mut self, at: Descriptor) -> Result<Packet, DropReason> {
        let (frame, offset) = (at.address as usize / SMALL_FRAME_BYTES, at.address as usize);
        let posted = self.posted.get_mut(frame).and_then(Option::take);
        let unfilled = posted.ok_or(DropReason::BadDescriptor)?;
        self.count -= 1;
        let front = (offset % SMALL_FRAME_BYTES).checked_sub(HEADROOM_BYTES);
        let front = front.ok_or(DropReason::BadDescriptor)?;
        let packet = unfilled.filled(front..front + at.bytes as usize);
        packet.ok_or(DropReason::BadDescriptor)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let posted = std::mem::take(&mut self.posted);
        if self.queue.zero_copy {
            Box::leak(posted);
            return;
        }
        let kept = self.queue.kept.set(posted);
        debug_assert!(kept.is_ok(), "a queue has one RX half");
    }
}
