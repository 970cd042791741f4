//! Frames, and segments of packets in them.

use crate::limits::{HEADROOM_BYTES, LARGE_FRAME_BYTES, SMALL_FRAME_BYTES};

/// The size class of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// 2 KiB, in the region that may be registered as a UMEM.
    Small,
    /// 68 KiB: a whole GSO packet in one segment.
    Large,
}

impl FrameClass {
    /// Bytes of one frame, headroom included.
    #[must_use]
    pub const fn frame_bytes(self) -> usize {
        match self {
            Self::Small => SMALL_FRAME_BYTES,
            Self::Large => LARGE_FRAME_BYTES,
        }
    }

    /// Bytes that fit after the standard headroom.
    #[must_use]
    pub const fn data_bytes(self) -> usize {
        self.frame_bytes() - HEADROOM_BYTES
    }
}

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

/// A segment of a packet: `len` bytes at `offset` of `frame`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) frame: FrameId,
    pub(super) offset: u32,
    pub(super) len: u32,
}

impl Segment {
    pub(super) const UNUSED: Self = Self {
        frame: FrameId(0),
        offset: 0,
        len: 0,
    };

    /// Bytes after the segment, up to the end of its frame.
    pub(super) const fn tailroom(&self) -> usize {
        self.frame.class().frame_bytes() - (self.offset + self.len) as usize
    }
}
