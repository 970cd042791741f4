//! Captured packets for the coalescer.

use super::engine::Counted;
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::coalesce::{Finish, Packet};
use packtrain_offload::offload::ChecksumState;
use std::ops::Range;

/// A packet that owns its bytes, with the numbers of its packets of the input.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    checksum: ChecksumState,
    first: u64,
    more: Vec<u64>,
}

impl Frame {
    pub(super) const fn new(number: u64, bytes: Vec<u8>, checksum: ChecksumState) -> Self {
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

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The numbers of the packets in it, in order.
    pub(super) fn numbers(&self) -> (u64, &[u64]) {
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
