//! How packets are made and freed.

#![allow(unsafe_code, reason = "initializes lines that no packet has")]

use super::arena::{self, Arena, Cache, Core, Line, NO_LINE, start};
use super::frame::FrameClass;
use super::iter::Cursor;
use super::meta::Meta;
use super::{Packet, PacketError};
use crate::limits::HEADROOM_BYTES;
use crate::plant::planted;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;

impl Arena {
    /// A packet without segments.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`] if all lines are in use.
    pub fn empty_packet(&self) -> Result<Packet, PacketError> {
        Packet::new_in(self.core())
    }

    /// A packet of one empty segment, with the standard headroom and the rest of the frame as
    /// tailroom.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`] if no frame of the class or no line is free.
    #[inline]
    pub fn packet(&self, class: FrameClass) -> Result<Packet, PacketError> {
        let mut whole = None;
        if class == FrameClass::Small {
            arena::with_cache(|cache| cache.take_whole(self.core(), 1, |line| whole = Some(line)));
        }
        match whole {
            Some(line) => Ok(Packet::renewed(line)),
            None => self.fresh_packet(class),
        }
    }

    /// Adds packets as those of [`Arena::packet`] to `packets`, until there are `count`. False if
    /// too few frames or lines are free.
    pub fn fill(&self, class: FrameClass, packets: &mut Vec<Packet>, count: usize) -> bool {
        let missing = count.saturating_sub(packets.len());
        self.take(class, missing, |packet| packets.push(packet))
    }

    /// As [`Arena::fill`], for packets that are to be filled.
    pub(crate) fn fill_unfilled(
        &self,
        class: FrameClass,
        frames: &mut Vec<Unfilled>,
        count: usize,
    ) -> bool {
        let missing = count.saturating_sub(frames.len());
        self.take(class, missing, |packet| frames.push(Unfilled::of(packet)))
    }

    /// Calls `add` with `count` packets as those of [`Arena::packet`]. False if too few frames or
    /// lines are free.
    #[inline]
    fn take(&self, class: FrameClass, count: usize, mut add: impl FnMut(Packet)) -> bool {
        let mut taken = 0;
        if class == FrameClass::Small {
            let add = |line| add(Packet::renewed(line));
            let whole = arena::with_cache(|cache| cache.take_whole(self.core(), count, add));
            taken = whole.unwrap_or(0);
        }
        for _ in taken..count {
            match self.packet(class) {
                Ok(packet) => add(packet),
                Err(_no_buffer) => return false,
            }
        }
        true
    }

    /// A packet as that of [`Arena::packet`], which is to be filled.
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub(crate) fn unfilled(&self, class: FrameClass) -> Result<Unfilled, PacketError> {
        self.packet(class).map(Unfilled::of)
    }

    #[inline(never)]
    fn fresh_packet(&self, class: FrameClass) -> Result<Packet, PacketError> {
        let mut packet = self.empty_packet()?;
        packet.add_frame(class)?;
        Ok(packet)
    }

    /// A packet with a copy of `bytes`, in as few frames as the classes allow: one small frame if
    /// they fit, else large ones.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`] if too few frames are free.
    pub fn packet_from(&self, bytes: &[u8]) -> Result<Packet, PacketError> {
        let class = if bytes.len() <= FrameClass::Small.data_bytes() {
            FrameClass::Small
        } else {
            FrameClass::Large
        };
        let mut packet = self.packet(class)?;
        packet.append_copy(class, bytes)?;
        Ok(packet)
    }
}

/// A packet of one frame without bytes, which a device or a copy is to fill. No other packet can
/// have the frame, so the address of its free bytes is computed once.
#[derive(Debug)]
pub(crate) struct Unfilled {
    packet: Packet,
    /// The free bytes: from the end of the headroom to the end of the frame.
    start: NonNull<u8>,
    bytes: u32,
}

// SAFETY: `start` points into the packet's frame, which goes with the packet.
unsafe impl Send for Unfilled {}
// SAFETY: `&Unfilled` gives no access to the bytes.
unsafe impl Sync for Unfilled {}

impl Unfilled {
    /// `packet` is fresh, with one frame and no bytes.
    #[inline]
    fn of(packet: Packet) -> Self {
        let segment = packet.head().segments[0];
        debug_assert!(packet.bytes() == 0 && packet.core().is_exclusive(segment.frame));
        // SAFETY: a frame is not at address 0.
        let start = unsafe { NonNull::new_unchecked(start(packet.core(), segment)) };
        let bytes = segment.tailroom() as u32;
        Self {
            packet,
            start,
            bytes,
        }
    }

    /// The same with free bytes that begin `bytes` bytes earlier, within the headroom.
    ///
    /// # Panics
    ///
    /// If the headroom is shorter.
    #[must_use]
    pub(crate) fn earlier(mut self, bytes: usize) -> Self {
        let segment = &mut self.packet.head_mut().segments[0];
        assert!(bytes <= segment.offset as usize, "the headroom is shorter");
        segment.offset -= bytes as u32;
        self.bytes += bytes as u32;
        // SAFETY: still within the frame.
        self.start = unsafe { self.start.sub(bytes) };
        self
    }

    /// The free bytes, to write to.
    #[inline]
    pub(crate) fn free(&mut self) -> &mut [u8] {
        // SAFETY: they are within the frame, which no other packet has, and `&mut self` makes this
        // the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes as usize) }
    }

    /// The packet of this range of the free bytes; `None` if it ends beyond them, or before it
    /// starts.
    #[inline(always)]
    pub(crate) fn filled(self, range: Range<usize>) -> Option<Packet> {
        let Self {
            mut packet, bytes, ..
        } = self;
        if range.start > range.end || range.end > bytes as usize {
            return None;
        }
        let head = packet.head_mut();
        head.bytes = range.len() as u32;
        head.segments[0].offset += range.start as u32;
        head.segments[0].len = range.len() as u32;
        Some(packet)
    }
}

impl Packet {
    pub(super) fn new_in(core: &Core) -> Result<Self, PacketError> {
        let line = core.take_line().ok_or(PacketError::NoBuffer)?;
        // SAFETY: the line was free, so this packet alone has it; its header was initialized and is
        // never overwritten.
        unsafe {
            (*line.as_ptr()).header.next = NO_LINE;
            (*line.as_ptr()).bytes = 0;
            (*line.as_ptr()).count = 0;
            (*line.as_ptr()).egress = 0;
            (&raw mut (*line.as_ptr()).meta).write(Meta::default());
        }
        Ok(Self { line })
    }

    /// The packet of a free line that has kept its frame.
    #[inline]
    fn renewed(mut line: NonNull<Line>) -> Self {
        // SAFETY: the line was free, so this packet alone has it; all of it is initialized.
        let head = unsafe { line.as_mut() };
        head.bytes = 0;
        head.egress = 0;
        head.meta = Meta::default();
        head.segments[0].offset = HEADROOM_BYTES as u32;
        head.segments[0].len = 0;
        Self { line }
    }

    /// Frees the first `count` packets. It costs less than to drop each.
    pub(crate) fn free(packets: &mut VecDeque<Self>, count: usize) {
        if count == 1 {
            drop(packets.pop_front());
            return;
        }
        let mut packets = packets.drain(..count);
        let mut keep = || {
            arena::with_cache(|cache| {
                for packet in &mut packets {
                    if !packet.keep_in(cache) {
                        return Some(packet);
                    }
                    _ = ManuallyDrop::new(packet);
                }
                None
            })
        };
        // A packet that is not kept is dropped outside of that access: it has its own.
        while let Some(Some(packet)) = keep() {
            drop(packet);
        }
    }

    /// Puts the line, with its frame, into `cache`, or returns false. After true the packet must
    /// not be used or dropped.
    #[inline]
    fn keep_in(&self, cache: &mut Cache) -> bool {
        let head = self.head();
        self.is_one_small_frame()
            && self.core().is_exclusive(head.segments[0].frame)
            && !planted!(DoubleFree)
            && cache.keep(head.header.core, head.header.index)
    }

    /// Frees the frames and lines, each by itself.
    #[inline(never)]
    fn free_parts(&mut self) {
        let core = self.core();
        let mut cursor = Cursor::new(self.head());
        while let Some(segment) = cursor.next() {
            core.unshare(segment.frame);
        }
        if self.head().header.next != NO_LINE {
            self.set_segment_count(0);
        }
        core.put_line(self.head().header.index);
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        if arena::with_cache(|cache| self.keep_in(cache)) != Some(true) {
            self.free_parts();
        }
    }
}
