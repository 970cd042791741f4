//! The two cache lines behind a packet handle: metadata and the first segments.

use super::arena::{Core, FrameClass};
use super::meta::Meta;
use crate::limits::SEGMENTS_MAX;
use std::ptr::NonNull;

/// No further line follows.
pub(super) const NO_LINE: u32 = u32::MAX;
/// Segments in a packet's first line.
pub(super) const HEAD_SEGMENTS: usize = 4;
/// Segments in each further line.
pub(super) const MORE_SEGMENTS: usize = 9;

/// A frame of an arena: its class and its index within the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameId(u32);

const LARGE_BIT: u32 = 1 << 31;

impl FrameId {
    pub(super) const fn new(class: FrameClass, index: u32) -> Self {
        match class {
            FrameClass::Small => Self(index),
            FrameClass::Large => Self(index | LARGE_BIT),
        }
    }

    pub(super) const fn class(self) -> FrameClass {
        if self.0 & LARGE_BIT == 0 {
            FrameClass::Small
        } else {
            FrameClass::Large
        }
    }

    pub(super) const fn index(self) -> u32 {
        self.0 & !LARGE_BIT
    }
}

/// One contiguous piece of a packet: `len` bytes at `offset` of `frame`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) frame: FrameId,
    pub(super) offset: u32,
    pub(super) len: u32,
}

impl Segment {
    const UNUSED: Self = Self {
        frame: FrameId(0),
        offset: 0,
        len: 0,
    };

    /// Bytes behind the segment, up to the end of its frame.
    pub(super) const fn tailroom(&self) -> usize {
        self.frame.class().frame_bytes() - (self.offset + self.len) as usize
    }
}

/// What every line starts with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LineHeader {
    /// The arena's shared state; never changes.
    pub(super) core: NonNull<Core>,
    /// This line's own index; never changes.
    pub(super) index: u32,
    /// In a packet's first line: its last line, or [`NO_LINE`] if there is no other. In a further
    /// line: the next one, and in the last of them the first, so that either end is near.
    pub(super) next: u32,
}

/// A packet's first line.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Line {
    pub(super) header: LineHeader,
    /// Bytes over all segments.
    pub(super) bytes: u32,
    /// Segments, empty ones included.
    pub(super) count: u8,
    pub(super) meta: Meta,
    pub(super) segments: [Segment; HEAD_SEGMENTS],
}

/// A further line of a packet, in the place of a [`Line`].
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct MoreLine {
    pub(super) header: LineHeader,
    pub(super) segments: [Segment; MORE_SEGMENTS],
}

impl Line {
    pub(super) fn unused(core: NonNull<Core>, index: u32) -> Self {
        Self {
            header: LineHeader {
                core,
                index,
                next: NO_LINE,
            },
            bytes: 0,
            count: 0,
            meta: Meta::default(),
            segments: [Segment::UNUSED; HEAD_SEGMENTS],
        }
    }
}

const _: () = assert!(size_of::<Line>() == 128);
const _: () = assert!(size_of::<MoreLine>() == 128);
const _: () = assert!(SEGMENTS_MAX <= u8::MAX as usize);
