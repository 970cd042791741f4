//! A packet that a coalescer can merge.

use core::ops::Range;
use std::vec;
use std::vec::Vec;

use super::frame;
use crate::checksum::{self, Sum};
use crate::coalesce::Packet;
use crate::layout::Layout;
use crate::offload::{ChecksumState, Gso};

/// A packet in one piece of memory that records which packets of the input it contains.
#[derive(Clone, Debug)]
pub struct Wire {
    pub bytes: Vec<u8>,
    pub checksum: ChecksumState,
    pub gso: Option<Gso>,
    pub aside: u32,
    /// The layout is given with the packet.
    pub parsed: Option<Layout>,
    /// Only this many bytes are in the first piece.
    pub head: usize,
    /// The headers cannot be written to.
    pub shared: bool,
    /// Pieces it can take.
    pub room: usize,
    /// It grows only to the capacity of its memory.
    pub fixed: bool,
    /// Numbers of the packets in it.
    pub ids: Vec<usize>,
}

impl Wire {
    pub fn new(bytes: Vec<u8>, checksum: ChecksumState) -> Self {
        Self {
            bytes,
            checksum,
            gso: None,
            aside: 0,
            parsed: None,
            head: usize::MAX,
            shared: false,
            room: usize::MAX,
            fixed: false,
            ids: vec![],
        }
    }
}

impl Packet for Wire {
    fn head(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(self.head)]
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.shared || bytes > self.head {
            return None;
        }
        self.bytes.get_mut(..bytes)
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn checksum(&self) -> ChecksumState {
        self.checksum
    }

    fn gso(&self) -> Option<Gso> {
        self.gso
    }

    fn layout(&self) -> Option<Layout> {
        self.parsed
    }

    fn aside(&self) -> u32 {
        self.aside
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        checksum::sum(&self.bytes[range.start as usize..range.end as usize])
    }

    fn truncate(&mut self, bytes: u32) {
        assert!(bytes as usize <= self.bytes.len());
        self.bytes.truncate(bytes as usize);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let payload = &tail.bytes[payload.start as usize..payload.end as usize];
        let free = self.bytes.capacity() - self.bytes.len();
        if self.room == 0 || self.fixed && free < payload.len() {
            return Err(tail);
        }
        self.room -= 1;
        self.bytes.extend_from_slice(payload);
        self.ids.extend(tail.ids);
        Ok(())
    }
}

impl Wire {
    /// The bytes with a finished checksum.
    pub fn finished(&self) -> Vec<u8> {
        match self.checksum {
            ChecksumState::Partial { start, offset } => frame::finish(&self.bytes, start, offset),
            ChecksumState::None | ChecksumState::Unnecessary => self.bytes.clone(),
        }
    }
}
