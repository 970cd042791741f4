//! Captured packets for the coalescer.

use super::engine::Counted;
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{Finish, Packet};
use packtrain_offload::offload::ChecksumState;
use std::ops::Range;

/// A packet in one piece, for a [`Coalescer`](packtrain_offload::coalesce::Coalescer), with the
/// numbers of the packets that are merged into it.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    checksum: ChecksumState,
    first: u64,
    more: Vec<u64>,
}

impl Frame {
    /// A packet from its link header on, with the state of its transport checksum.
    #[must_use]
    pub const fn new(number: u64, bytes: Vec<u8>, checksum: ChecksumState) -> Self {
        Self {
            bytes,
            checksum,
            first: number,
            more: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, from the link header on.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The number of its first packet, and those of the packets merged into that one, in order.
    #[must_use]
    pub fn numbers(&self) -> (u64, &[u64]) {
        (self.first, &self.more)
    }
}

impl Counted for Frame {
    const FINISH: Finish = Finish::Complete;

    fn count(&self) -> u64 {
        1 + self.more.len() as u64
    }
}

impl Packet for Frame {
    fn head(&self) -> &[u8] {
        &self.bytes
    }

    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(..bytes)
    }

    fn bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn checksum(&self) -> ChecksumState {
        self.checksum
    }

    fn sum(&self, range: Range<u32>) -> Sum {
        let range = range.start as usize..range.end as usize;
        checksum::sum(self.bytes.get(range).unwrap_or_default())
    }

    fn truncate(&mut self, bytes: u32) {
        self.bytes.truncate(bytes as usize);
    }

    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self> {
        let range = payload.start as usize..payload.end as usize;
        let Some(payload) = tail.bytes.get(range) else {
            return Err(tail);
        };
        self.bytes.extend_from_slice(payload);
        self.more.push(tail.first);
        self.more.extend_from_slice(&tail.more);
        Ok(())
    }
}
