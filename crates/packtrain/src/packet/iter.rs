//! Iterators over the bytes of a packet.

#![allow(unsafe_code, reason = "walks lines and frames by pointer")]

use super::arena::{Core, HEAD_SEGMENTS, Line, MORE_SEGMENTS, MoreLine, start};
use super::frame::Segment;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// Walks a packet's segments line by line. Must not outlive the packet.
#[derive(Clone)]
pub(super) struct Cursor {
    core: NonNull<Core>,
    at: *const Segment,
    in_line: usize,
    /// The line before the next one; for the first further line, the last one.
    line: u32,
    left: usize,
}

impl Cursor {
    /// `head` is the first line of the packet.
    pub(super) fn new(head: &Line) -> Self {
        Self {
            core: head.header.core,
            at: head.segments.as_ptr(),
            in_line: HEAD_SEGMENTS,
            line: head.header.next,
            left: usize::from(head.count),
        }
    }

    pub(super) fn next(&mut self) -> Option<Segment> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: `left` counts the packet's segments, so a line with the next one exists.
        unsafe {
            if self.in_line == 0 {
                let core = self.core.as_ref();
                self.line = core.line(self.line).as_ref().header.next;
                let line = core.line(self.line).cast::<MoreLine>().as_ptr();
                self.at = (&raw const (*line).segments).cast();
                self.in_line = MORE_SEGMENTS;
            }
            let segment = self.at.read();
            self.at = self.at.add(1);
            self.in_line -= 1;
            Some(segment)
        }
    }
}

/// Iterator over a packet's bytes, segment by segment.
#[derive(Clone)]
pub struct Segments<'a> {
    packet: PhantomData<&'a Line>,
    cursor: Cursor,
}

impl<'a> Segments<'a> {
    pub(super) fn new(head: &'a Line) -> Self {
        Self {
            packet: PhantomData,
            cursor: Cursor::new(head),
        }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let segment = self.cursor.next()?;
            if segment.len == 0 {
                continue;
            }
            // SAFETY: the packet is borrowed for 'a, so the frame stays. To write to it takes the
            // only packet that refers to it, by `&mut`.
            return Some(unsafe {
                let core = self.cursor.core.as_ref();
                std::slice::from_raw_parts(start(core, segment), segment.len as usize)
            });
        }
    }
}

/// Iterator over a range of a packet's bytes, segment by segment.
pub struct Pieces<'a> {
    segments: Segments<'a>,
    skip: usize,
    left: usize,
}

impl<'a> Pieces<'a> {
    /// `range` must be within the packet.
    pub(super) fn new(head: &'a Line, range: &Range<usize>) -> Self {
        Self {
            segments: Segments::new(head),
            skip: range.start,
            left: range.len(),
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.left > 0 {
            let segment = self.segments.next()?;
            let skipped = self.skip.min(segment.len());
            self.skip -= skipped;
            let piece = &segment[skipped..];
            let piece = &piece[..piece.len().min(self.left)];
            if !piece.is_empty() {
                self.left -= piece.len();
                return Some(piece);
            }
        }
        None
    }
}
