//! Packets: an 8-byte owning handle, segments in shared frames, metadata in one cache line.
//!
//! A [`Packet`] is a list of segments, and a segment is a part of a frame. Frames are
//! reference-counted, so slices and clones share bytes instead of copying them. Bytes can be
//! written only while exactly one segment refers to their frame. The last reference frees a frame.

#![allow(unsafe_code, reason = "owns lines and frames of an arena by pointer")]

mod arena;
mod burst;
mod frame;
mod free;
mod headers;
mod iter;
mod life;
mod memory;
mod merge;
mod meta;
#[cfg_attr(miri, path = "sys_miri.rs")]
mod sys;
#[cfg(test)]
mod tests;

pub use arena::{Arena, ArenaConfig, Census};
pub use burst::Burst;
pub use frame::FrameClass;
pub use iter::{Pieces, Segments};
pub(crate) use life::Unfilled;
pub use memory::memory_available;
pub use meta::{Ingress, Meta, PortSet, VlanTag};
pub(crate) use sys::Mapping;

use crate::limits::{HEADROOM_BYTES, SEGMENTS_MAX};
use arena::{Core, HEAD_SEGMENTS, Line, LineHeader, MORE_SEGMENTS, MoreLine, NO_LINE, start};
use frame::{FrameId, Segment};
use iter::Cursor;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

/// The reason why a packet could not be made, grown or changed. The packet is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketError {
    /// The arena has no free frame or line.
    NoBuffer,
    /// The packet would have more than [`SEGMENTS_MAX`] segments.
    TooManySegments,
    /// Not enough free bytes before the packet, or its first frame is shared.
    NoHeadroom,
    /// The bytes are shared with another packet, or not contiguous.
    NotWritable,
    /// The range is outside of the packet.
    OutOfRange,
    /// The two packets are in different arenas.
    ForeignArena,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBuffer => "the arena has no free frame or line",
            Self::TooManySegments => "the packet would have too many segments",
            Self::NoHeadroom => "not enough headroom in front of the packet",
            Self::NotWritable => "the bytes are shared or not contiguous",
            Self::OutOfRange => "the range is outside the packet",
            Self::ForeignArena => "the packets are in different arenas",
        })
    }
}

impl std::error::Error for PacketError {}

/// An owning handle to a packet in an [`Arena`]; 8 bytes.
pub struct Packet {
    line: NonNull<Line>,
}

// SAFETY: the line is owned by this handle alone; frames are shared by atomic counts, and written
// only while exclusive.
unsafe impl Send for Packet {}
// SAFETY: `&Packet` gives read access only, and no packet writes to a shared frame.
unsafe impl Sync for Packet {}

const _: () = assert!(size_of::<Option<Packet>>() == 8);

impl Packet {
    #[inline]
    fn head(&self) -> &Line {
        // SAFETY: a packet owns its line, which lives as long as the arena's core, which lives as
        // long as any line is in use.
        unsafe { self.line.as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Line {
        // SAFETY: as in `head`, and `&mut self` makes this the only access.
        unsafe { self.line.as_mut() }
    }

    #[inline]
    fn core<'a>(&self) -> &'a Core {
        // SAFETY: the core outlives every line in use; callers keep the reference no longer than
        // they keep the packet.
        unsafe { self.head().header.core.as_ref() }
    }

    /// Bytes of all segments, with the link header and without FCS.
    #[must_use]
    #[inline]
    #[doc(alias = "len")]
    pub fn bytes(&self) -> usize {
        self.head().bytes as usize
    }

    /// True for a packet of no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head().bytes == 0
    }

    /// Number of segments, empty ones included.
    #[must_use]
    #[inline]
    pub fn segment_count(&self) -> usize {
        usize::from(self.head().count)
    }

    /// Whether it has one segment, in a small frame.
    #[inline]
    pub(crate) fn is_one_small_frame(&self) -> bool {
        let head = self.head();
        head.count == 1 && head.segments[0].frame.class() == FrameClass::Small
    }

    /// Bytes of the frames of all segments. A frame with several segments counts for each, as does
    /// one that is shared with other packets.
    pub(crate) fn frame_bytes(&self) -> u64 {
        let mut cursor = Cursor::new(self.head());
        let segments = std::iter::from_fn(|| cursor.next());
        segments
            .map(|segment| segment.frame.class().frame_bytes() as u64)
            .sum()
    }

    /// The metadata.
    #[must_use]
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.head().meta
    }

    /// The metadata, to change.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.head_mut().meta
    }

    /// Sends the packet to `ports` in a session among several
    /// ([`Session::among`](crate::engine::Session::among)): to each a clone that shares the bytes.
    /// Without any port it is dropped, as `drop.no_egress`; so is the clone for a port that the
    /// session does not have. Other sessions do not read it.
    #[inline]
    pub fn set_egress(&mut self, ports: PortSet) {
        self.head_mut().egress = ports.named();
    }

    /// The ports of [`Packet::set_egress`]; `None` for the default of the session.
    #[must_use]
    #[inline]
    pub fn egress(&self) -> Option<PortSet> {
        PortSet::of_line(self.head().egress)
    }

    /// The same; the packet has none after it.
    #[inline]
    pub(crate) fn take_egress(&mut self) -> Option<PortSet> {
        PortSet::of_line(std::mem::take(&mut self.head_mut().egress))
    }

    /// The bytes, segment by segment. Empty segments are skipped.
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        Segments::new(self.head())
    }

    /// The bytes of the first non-empty segment; empty for an empty packet.
    #[must_use]
    #[inline]
    pub fn first(&self) -> &[u8] {
        let head = self.head();
        let segment = head.segments[0];
        if head.count == 0 || segment.len == 0 {
            return self.segments().next().unwrap_or(&[]);
        }
        // SAFETY: the packet has this segment, which is within its frame. To write to it takes the
        // only packet that refers to it, by `&mut`.
        unsafe { std::slice::from_raw_parts(start(self.core(), segment), segment.len as usize) }
    }

    /// The bytes of `range`, segment by segment.
    ///
    /// # Errors
    ///
    /// [`PacketError::OutOfRange`] if `range` ends beyond the packet.
    pub fn pieces(&self, range: Range<usize>) -> Result<Pieces<'_>, PacketError> {
        if range.start > range.end || range.end > self.bytes() {
            return Err(PacketError::OutOfRange);
        }
        Ok(Pieces::new(self.head(), &range))
    }

    /// Copies the first `out.len()` bytes, or all if there are fewer; returns their number.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in self.segments() {
            let n = piece.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&piece[..n]);
            done += n;
            if done == out.len() {
                break;
            }
        }
        done
    }

    /// The first `bytes` bytes for writing: they must be in the first segment, and its frame must
    /// not be shared.
    ///
    /// # Errors
    ///
    /// [`PacketError::NotWritable`] otherwise.
    pub fn headers_mut(&mut self, bytes: usize) -> Result<&mut [u8], PacketError> {
        let all = self.first_mut().ok_or(PacketError::NotWritable)?;
        all.get_mut(..bytes).ok_or(PacketError::NotWritable)
    }

    /// All of the first segment for writing, if its frame is not shared.
    fn first_mut(&mut self) -> Option<&mut [u8]> {
        let segment = self.segment(0)?;
        let core = self.core();
        if !core.is_exclusive(segment.frame) {
            return None;
        }
        // SAFETY: the segment is within its frame, and this packet's first segment is the only
        // one that refers to that frame.
        Some(unsafe { std::slice::from_raw_parts_mut(start(core, segment), segment.len as usize) })
    }

    /// Free bytes before the packet, for [`Packet::prepend`]: none if the first frame is shared.
    #[must_use]
    pub fn headroom(&self) -> usize {
        match self.segment(0) {
            Some(segment) if self.core().is_exclusive(segment.frame) => segment.offset as usize,
            _ => 0,
        }
    }

    /// Prepends `bytes` new bytes and returns them; their content is undefined.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoHeadroom`].
    #[inline]
    pub fn prepend(&mut self, bytes: usize) -> Result<&mut [u8], PacketError> {
        let core = self.core();
        let head = self.head_mut();
        let first = &mut head.segments[0];
        let has_room = head.count > 0 && first.offset as usize >= bytes;
        if !has_room || !core.is_exclusive(first.frame) {
            return Err(PacketError::NoHeadroom);
        }
        first.offset -= bytes as u32;
        first.len += bytes as u32;
        head.bytes += bytes as u32;
        // SAFETY: the segment has these bytes now, it is within its frame, and this packet's first
        // segment is the only one that refers to that frame.
        Ok(unsafe { std::slice::from_raw_parts_mut(start(core, *first), bytes) })
    }

    /// Removes the first `bytes` bytes, or all if there are fewer.
    #[inline]
    pub fn trim_front(&mut self, bytes: usize) {
        let head = self.head_mut();
        let first = &mut head.segments[0];
        if head.count > 0 && bytes <= first.len as usize {
            first.offset += bytes as u32;
            first.len -= bytes as u32;
            head.bytes -= bytes as u32;
        } else {
            self.remove_front(bytes);
        }
    }

    #[inline(never)]
    fn remove_front(&mut self, bytes: usize) {
        let mut left = bytes.min(self.bytes()) as u32;
        self.head_mut().bytes -= left;
        for index in 0..self.segment_count() {
            let Some(mut segment) = self.segment(index) else {
                break;
            };
            let n = segment.len.min(left);
            segment.offset += n;
            segment.len -= n;
            self.set_segment(index, segment);
            left -= n;
            if left == 0 {
                break;
            }
        }
    }

    /// Shortens the packet to `bytes` bytes, if it is longer. Segments that become empty are freed,
    /// except for the first one.
    #[inline]
    pub fn truncate(&mut self, bytes: usize) {
        let head = self.head_mut();
        if bytes >= head.bytes as usize {
            return;
        }
        if head.count == 1 {
            head.segments[0].len = bytes as u32;
            head.bytes = bytes as u32;
        } else {
            self.remove_back(self.bytes() - bytes);
        }
    }

    #[inline(never)]
    fn remove_back(&mut self, bytes: usize) {
        let mut excess = bytes as u32;
        self.head_mut().bytes -= excess;
        while excess > 0 {
            let Some(last) = self.segment_count().checked_sub(1) else {
                break;
            };
            let Some(mut segment) = self.segment(last) else {
                break;
            };
            let n = segment.len.min(excess);
            segment.len -= n;
            excess -= n;
            self.set_segment(last, segment);
            if segment.len == 0 && last > 0 {
                self.pop_segment();
            }
        }
    }

    /// Free bytes after the last segment, for writing; follow with [`Packet::grow`]. Empty if the
    /// frame is shared.
    #[inline]
    pub fn tailroom_mut(&mut self) -> &mut [u8] {
        let Some(last) = self.own_last() else {
            return &mut [];
        };
        // SAFETY: `own_last` returned it, and `&mut self` makes this the only access. The bytes are
        // after the segment but within its frame, which only this segment refers to.
        unsafe {
            let segment = last.read();
            let end = start(self.core(), segment).add(segment.len as usize);
            std::slice::from_raw_parts_mut(end, segment.tailroom())
        }
    }

    /// A pointer to the last segment, if no other refers to its frame.
    ///
    /// Not a copy: it would be read in wider words than it was written in, and the CPU would wait
    /// until all earlier stores are in the cache, such as those of a packet just copied.
    #[inline]
    fn own_last(&self) -> Option<*mut Segment> {
        let index = self.segment_count().checked_sub(1)?;
        // SAFETY: `index` is below the count, so `slot` is in a line of this packet, and `&self`
        // excludes writes.
        let (last, frame) = unsafe {
            let last = self.slot(index);
            (last, (*last).frame)
        };
        self.core().is_exclusive(frame).then_some(last)
    }

    /// Makes the first `bytes` bytes of the tailroom part of the packet.
    ///
    /// # Errors
    ///
    /// [`PacketError::OutOfRange`] if the tailroom is smaller.
    #[inline]
    pub fn grow(&mut self, bytes: usize) -> Result<(), PacketError> {
        // SAFETY: `own_last` returned it, and `&mut self` makes this the only access.
        let last = self.own_last().map(|last| unsafe { &mut *last });
        match last {
            Some(segment) if bytes <= segment.tailroom() => {
                segment.len += bytes as u32;
                self.head_mut().bytes += bytes as u32;
                Ok(())
            }
            _ if bytes == 0 => Ok(()),
            _ => Err(PacketError::OutOfRange),
        }
    }

    /// Adds an empty segment at the end: a fresh frame with the standard headroom.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`], [`PacketError::TooManySegments`].
    pub fn add_frame(&mut self, class: FrameClass) -> Result<(), PacketError> {
        let core = self.core();
        let frame = core.take_frame(class).ok_or(PacketError::NoBuffer)?;
        let segment = Segment {
            frame,
            offset: HEADROOM_BYTES as u32,
            len: 0,
        };
        self.push_segment(segment)
            .inspect_err(|_| core.unshare(frame))
    }

    /// Appends a copy of `bytes`, first into the last segment's tailroom, then into fresh frames.
    ///
    /// # Errors
    ///
    /// As [`Packet::add_frame`]; the packet then has the part that fitted.
    pub fn append_copy(&mut self, class: FrameClass, bytes: &[u8]) -> Result<(), PacketError> {
        let mut left = bytes;
        if self.segment_count() == 0 {
            self.add_frame(class)?;
        }
        loop {
            let room = self.tailroom_mut();
            let n = room.len().min(left.len());
            room[..n].copy_from_slice(&left[..n]);
            self.grow(n)?;
            left = &left[n..];
            if left.is_empty() {
                return Ok(());
            }
            self.add_frame(class)?;
        }
    }

    /// Appends all segments of `other`, without copying bytes. The metadata of `other` is dropped.
    ///
    /// # Errors
    ///
    /// [`PacketError::TooManySegments`], [`PacketError::NoBuffer`] or
    /// [`PacketError::ForeignArena`], and returns `other`.
    pub fn append(&mut self, mut other: Self) -> Result<(), (PacketError, Self)> {
        if self.head().header.core != other.head().header.core {
            return Err((PacketError::ForeignArena, other));
        }
        let before = self.segment_count();
        for index in 0..other.segment_count() {
            let Some(segment) = other.segment(index).filter(|s| s.len > 0) else {
                continue;
            };
            if let Err(error) = self.push_segment(segment) {
                while self.segment_count() > before {
                    // `other` still has its reference.
                    self.forget_last_segment();
                }
                return Err((error, other));
            }
        }
        let mut cursor = Cursor::new(other.head());
        while let Some(segment) = cursor.next() {
            if segment.len == 0 {
                other.core().unshare(segment.frame);
            }
        }
        // The other references moved, so `other` must not decrement them.
        other.set_segment_count(0);
        other.head_mut().bytes = 0;
        Ok(())
    }

    /// Appends `range` of `from`, sharing the bytes.
    ///
    /// # Errors
    ///
    /// [`PacketError::OutOfRange`], [`PacketError::TooManySegments`], [`PacketError::NoBuffer`],
    /// [`PacketError::ForeignArena`].
    pub fn append_shared(&mut self, from: &Self, range: Range<usize>) -> Result<(), PacketError> {
        if self.head().header.core != from.head().header.core {
            return Err(PacketError::ForeignArena);
        }
        if range.start > range.end || range.end > from.bytes() {
            return Err(PacketError::OutOfRange);
        }
        let before = self.segment_count();
        let (mut skip, mut left) = (range.start as u32, range.len() as u32);
        let mut cursor = Cursor::new(from.head());
        while let Some(mut segment) = cursor.next().filter(|_| left > 0) {
            let skipped = skip.min(segment.len);
            skip -= skipped;
            segment.offset += skipped;
            segment.len = (segment.len - skipped).min(left);
            if segment.len == 0 {
                continue;
            }
            left -= segment.len;
            if let Err(error) = self.push_segment(segment) {
                while self.segment_count() > before {
                    self.pop_segment();
                }
                return Err(error);
            }
            self.core().share(segment.frame);
        }
        Ok(())
    }

    /// A packet with the same bytes, shared, and the same metadata.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`] if no line is free.
    pub fn try_clone(&self) -> Result<Self, PacketError> {
        let mut clone = Self::new_in(self.core())?;
        clone.append_shared(self, 0..self.bytes())?;
        clone.copy_meta(self);
        Ok(clone)
    }

    /// Copies the metadata of `from` and the ports that it is sent to, not its length and
    /// segments.
    pub fn copy_meta(&mut self, from: &Self) {
        *self.meta_mut() = *from.meta();
        self.head_mut().egress = from.head().egress;
    }

    /// Makes the first `bytes` bytes (or all, if there are fewer) contiguous and writable, by
    /// copying them to a fresh small frame if they are not. Returns whether bytes were copied.
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`], [`PacketError::TooManySegments`];
    /// [`PacketError::OutOfRange`] if `bytes` is more than a small frame holds.
    pub fn pull(&mut self, bytes: usize) -> Result<bool, PacketError> {
        let bytes = bytes.min(self.bytes());
        if self.first_mut().is_some_and(|first| first.len() >= bytes) {
            return Ok(false);
        }
        if bytes > FrameClass::Small.data_bytes() {
            return Err(PacketError::OutOfRange);
        }
        let mut fresh = Self::new_in(self.core())?;
        fresh.add_frame(FrameClass::Small)?;
        let got = self.copy_to(&mut fresh.tailroom_mut()[..bytes]);
        fresh.grow(got)?;
        fresh.append_shared(self, got..self.bytes())?;
        fresh.copy_meta(self);
        *self = fresh;
        Ok(true)
    }

    /// Replaces the bytes from `at` on by `bytes`, in a small frame of their own. For a position
    /// beyond the limit of [`Packet::pull`].
    ///
    /// # Errors
    ///
    /// [`PacketError::NoBuffer`], [`PacketError::TooManySegments`]; [`PacketError::OutOfRange`] if
    /// the packet ends before. The packet is then unchanged.
    pub(crate) fn replace(&mut self, at: usize, bytes: &[u8]) -> Result<(), PacketError> {
        let end = at.saturating_add(bytes.len());
        let mut fresh = Self::new_in(self.core())?;
        fresh.append_shared(self, 0..at)?;
        fresh.append_copy(FrameClass::Small, bytes)?;
        fresh.append_shared(self, end..self.bytes())?;
        fresh.copy_meta(self);
        *self = fresh;
        Ok(())
    }

    /// Merges adjacent segments in place until at most `target` remain, by copying each into the
    /// tailroom of the one before it. Returns whether that succeeded; the packet's bytes do not
    /// change. Shared frames are not written to.
    pub fn collapse(&mut self, target: usize) -> bool {
        self.collapse_counted(target);
        self.segment_count() <= target
    }

    /// As [`Packet::collapse`]; returns the number of bytes copied.
    pub(crate) fn collapse_counted(&mut self, target: usize) -> usize {
        // A cursor, since each access by index to a far segment walks the lines in front of it.
        let mut cursor = Cursor::new(self.head());
        let Some(mut into) = cursor.next() else {
            return 0;
        };
        let core = self.core();
        let (mut kept, mut segments, mut copied) = (0, self.segment_count(), 0);
        while let Some(from) = cursor.next() {
            let fits = segments > target && into.tailroom() >= from.len as usize;
            if fits && core.is_exclusive(into.frame) {
                // SAFETY: the destination is tailroom of a frame that only `into` refers to, so it
                // cannot overlap `from`, which is in another frame.
                unsafe {
                    let end = start(core, into).add(into.len as usize);
                    std::ptr::copy_nonoverlapping(start(core, from), end, from.len as usize);
                }
                into.len += from.len;
                copied += from.len as usize;
                segments -= 1;
                core.unshare(from.frame);
            } else {
                self.set_segment(kept, into);
                kept += 1;
                into = from;
            }
        }
        self.set_segment(kept, into);
        self.set_segment_count(kept + 1);
        copied
    }

    /// Whether the first segment has no bytes.
    #[inline]
    pub(crate) fn has_empty_front(&self) -> bool {
        let head = self.head();
        head.count > 0 && head.segments[0].len == 0
    }

    /// Removes empty segments before the first bytes, so that prepended bytes need no segment of
    /// their own. A packet of no bytes does not change.
    pub(crate) fn drop_empty_front(&mut self) {
        let count = self.segment_count();
        let empty = (0..count)
            .take_while(|&i| self.segment(i).is_some_and(|s| s.len == 0))
            .count();
        if empty == 0 || empty == count {
            return;
        }
        for index in 0..empty {
            if let Some(segment) = self.segment(index) {
                self.core().unshare(segment.frame);
            }
        }
        for index in empty..count {
            if let Some(segment) = self.segment(index) {
                self.set_segment(index - empty, segment);
            }
        }
        self.set_segment_count(count - empty);
    }

    fn segment(&self, index: usize) -> Option<Segment> {
        if index >= self.segment_count() {
            return None;
        }
        // SAFETY: `index` is below the count, so `slot` is in a line of this packet.
        Some(unsafe { self.slot(index).read() })
    }

    #[inline]
    fn set_segment(&mut self, index: usize, segment: Segment) {
        debug_assert!(
            index < self.segment_count(),
            "segment {index} does not exist"
        );
        // SAFETY: as in `segment`; `&mut self` makes this the only access.
        unsafe { self.slot(index).write(segment) };
    }

    /// A pointer to segment `index`.
    ///
    /// # Safety
    ///
    /// The packet must have enough lines for it.
    #[inline]
    unsafe fn slot(&self, index: usize) -> *mut Segment {
        let head = self.line.as_ptr();
        if index < HEAD_SEGMENTS {
            // SAFETY: the packet owns the head line, which has this many segments.
            return unsafe { (&raw mut (*head).segments).cast::<Segment>().add(index) };
        }
        // SAFETY: the caller promises that the lines exist.
        unsafe { self.far_slot(index) }
    }

    /// [`Packet::slot`] of a segment in a further line. A function of its own, so that `slot` is
    /// short enough to be inlined.
    ///
    /// # Safety
    ///
    /// As `slot`, and `index` is at least `HEAD_SEGMENTS`.
    #[inline(never)]
    unsafe fn far_slot(&self, index: usize) -> *mut Segment {
        let head = self.line.as_ptr();
        let core = self.core();
        let rest = index - HEAD_SEGMENTS;
        let (line, at) = (rest / MORE_SEGMENTS, rest % MORE_SEGMENTS);
        // SAFETY: the caller promises that the lines exist, and the packet owns them.
        unsafe {
            let mut more = core.line((*head).header.next).cast::<MoreLine>().as_ptr();
            // The head refers to the last line, and the last one to the first.
            if line + 1 != more_lines(self.segment_count()) {
                for _ in 0..=line {
                    more = core.line((*more).header.next).cast::<MoreLine>().as_ptr();
                }
            }
            (&raw mut (*more).segments).cast::<Segment>().add(at)
        }
    }

    #[inline]
    fn push_segment(&mut self, segment: Segment) -> Result<(), PacketError> {
        let index = self.segment_count();
        if index >= SEGMENTS_MAX {
            return Err(PacketError::TooManySegments);
        }
        if index >= HEAD_SEGMENTS && (index - HEAD_SEGMENTS).is_multiple_of(MORE_SEGMENTS) {
            self.add_line()?;
        }
        let head = self.head_mut();
        head.count += 1;
        head.bytes += segment.len;
        self.set_segment(index, segment);
        Ok(())
    }

    /// Removes the last segment and its reference.
    fn pop_segment(&mut self) {
        if let Some(last) = self
            .segment_count()
            .checked_sub(1)
            .and_then(|i| self.segment(i))
        {
            self.forget_last_segment();
            self.core().unshare(last.frame);
        }
    }

    /// Removes the last segment without decrementing its frame's count.
    fn forget_last_segment(&mut self) {
        let count = self.segment_count();
        if let Some(last) = count.checked_sub(1).and_then(|i| self.segment(i)) {
            self.head_mut().bytes -= last.len;
            self.set_segment_count(count - 1);
        }
    }

    /// Sets the number of segments to a smaller one and frees the lines that are not needed.
    fn set_segment_count(&mut self, count: usize) {
        let (had, keeps) = (more_lines(self.segment_count()), more_lines(count));
        self.head_mut().count = count as u16;
        if had == keeps {
            return;
        }
        let core = self.core();
        let head = self.line.as_ptr();
        // SAFETY: walks the packet's own further lines, `had` of them, in a ring that the head
        // enters at the last one; each line that is not kept is freed exactly once.
        unsafe {
            let mut line = (*head).header.next;
            let first = next_of(core, line);
            for _ in 0..keeps {
                line = next_of(core, line);
            }
            // Now `line` is the last one that is kept, or the last one of all if none is.
            let mut free = next_of(core, line);
            if keeps == 0 {
                (*head).header.next = NO_LINE;
            } else {
                (*core.line(line).as_ptr()).header.next = first;
                (*head).header.next = line;
            }
            for _ in keeps..had {
                let next = next_of(core, free);
                core.put_line(free);
                free = next;
            }
        }
    }

    /// Adds a line at the end; the segment that needs it is not counted yet.
    fn add_line(&mut self) -> Result<(), PacketError> {
        let core = self.core();
        let fresh = core
            .take_line()
            .ok_or(PacketError::NoBuffer)?
            .cast::<LineHeader>()
            .as_ptr();
        let head = self.line.as_ptr();
        // SAFETY: `fresh` was free, and this packet owns it now, as it owns its last line.
        unsafe {
            let last = (*head).header.next;
            (*fresh).next = if last == NO_LINE {
                (*fresh).index
            } else {
                let last = core.line(last).as_ptr();
                std::mem::replace(&mut (*last).header.next, (*fresh).index)
            };
            (*head).header.next = (*fresh).index;
        }
        Ok(())
    }
}

/// The further lines of a packet of `segments` segments.
#[inline]
const fn more_lines(segments: usize) -> usize {
    segments
        .saturating_sub(HEAD_SEGMENTS)
        .div_ceil(MORE_SEGMENTS)
}

/// The line after `line`.
///
/// # Safety
///
/// The caller owns the line.
#[inline]
unsafe fn next_of(core: &Core, line: u32) -> u32 {
    // SAFETY: the caller owns the line.
    unsafe { (*core.line(line).cast::<LineHeader>().as_ptr()).next }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("bytes", &self.bytes())
            .field("segments", &self.segment_count())
            .field("meta", self.meta())
            .finish()
    }
}

impl Packet {
    /// Whether all bytes are in small frames (the region that may be a UMEM).
    #[must_use]
    pub fn in_small_frames(&self) -> bool {
        let mut cursor = Cursor::new(self.head());
        while let Some(segment) = cursor.next() {
            if segment.len > 0 && FrameId::class(segment.frame) == FrameClass::Large {
                return false;
            }
        }
        true
    }
}
