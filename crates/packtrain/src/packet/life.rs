//! How packets are made and freed.

#![allow(unsafe_code, reason = "initializes lines that no packet has")]

use super::arena::{self, Arena, Cache, Core, Line, NO_LINE};
use super::frame::FrameClass;
use super::iter::Cursor;
use super::meta::Meta;
use super::{Packet, PacketError};
use crate::limits::HEADROOM_BYTES;
use crate::plant::planted;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
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
        if class == FrameClass::Small {
            let missing = count.saturating_sub(packets.len());
            let add = |line| packets.push(Packet::renewed(line));
            arena::with_cache(|cache| cache.take_whole(self.core(), missing, add));
        }
        while packets.len() < count {
            match self.packet(class) {
                Ok(packet) => packets.push(packet),
                Err(_no_buffer) => return false,
            }
        }
        true
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
