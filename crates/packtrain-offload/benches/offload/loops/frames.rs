//! Packet buffers in one block, like a pool of receive buffers.

use crate::loops::sizes::FRAME_BYTES;
use crate::loops::trains::Train;

/// Free bytes in front of a packet.
pub const HEADROOM_BYTES: usize = 128;

const PAGE_BYTES: usize = 4096;

/// Number of a frame.
pub type Frame = u32;

/// The metadata of a packet: a cache line, as in the peers.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct Line {
    /// Bytes of the packet in this frame, from its first byte.
    pub bytes: u32,
    /// Unused bytes at the start of the frame: the headers of a packet that was merged into
    /// another.
    pub skip: u32,
    /// The frame with the next bytes.
    pub next: Option<Frame>,
    /// Of a first frame: the last one of the packet.
    pub last: Frame,
    /// Of a first frame: frames of the packet, that is wire packets.
    pub frames: u32,
    /// Of a first frame: bytes of the whole packet.
    pub total: u32,
}

/// A block of frames and their lines.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    start: usize,
    lines: Vec<Line>,
}

impl Frames {
    /// This many frames with the payload of `train` already in place: its packets differ only in
    /// their headers.
    pub fn new(count: usize, train: &Train) -> Self {
        let bytes = vec![0; count * FRAME_BYTES + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        let mut frames = Self {
            bytes,
            start: if start < PAGE_BYTES { start } else { 0 },
            lines: vec![Line::default(); count],
        };
        let at = train.header_bytes();
        for frame in 0..count as Frame {
            let payload = train.payload();
            frames.packet_mut(frame)[at..at + payload.len()].copy_from_slice(payload);
        }
        frames
    }

    /// Frames.
    pub const fn count(&self) -> usize {
        self.lines.len()
    }

    const fn at(&self, frame: Frame) -> usize {
        self.start + frame as usize * FRAME_BYTES + HEADROOM_BYTES
    }

    /// The frame from the packet's first byte to the frame's end.
    #[inline]
    pub fn packet_mut(&mut self, frame: Frame) -> &mut [u8] {
        let at = self.at(frame);
        &mut self.bytes[at..at + FRAME_BYTES - HEADROOM_BYTES]
    }

    /// The bytes of the packet in this frame.
    #[inline]
    pub fn packet(&self, frame: Frame) -> &[u8] {
        let at = self.at(frame);
        &self.bytes[at..at + self.lines[frame as usize].bytes as usize]
    }

    /// The line of a frame.
    #[inline]
    pub fn line(&self, frame: Frame) -> &Line {
        &self.lines[frame as usize]
    }

    /// The line of a frame.
    #[inline]
    pub fn line_mut(&mut self, frame: Frame) -> &mut Line {
        &mut self.lines[frame as usize]
    }

    /// Receives the next packet of `flow` into a frame.
    pub fn load(&mut self, frame: Frame, train: &mut Train, flow: u32) {
        let bytes = train.write(flow, self.packet_mut(frame)) as u32;
        self.lines[frame as usize] = Line {
            bytes,
            skip: 0,
            next: None,
            last: frame,
            frames: 1,
            total: bytes,
        };
    }

    /// Lets the packet in frame `tail`, without its first `skip` bytes, follow the one that begins
    /// with `head`.
    #[inline]
    pub fn link(&mut self, head: Frame, tail: Frame, skip: u32) {
        let line = self.line_mut(tail);
        line.skip = skip;
        let bytes = line.bytes - skip;
        let last = self.line(head).last;
        self.line_mut(last).next = Some(tail);
        let line = self.line_mut(head);
        line.last = tail;
        line.frames += 1;
        line.total += bytes;
    }
}
