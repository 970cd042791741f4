//! The packet trait of a coalescer.

use crate::checksum::Sum;
use crate::layout::Layout;
use crate::offload::{ChecksumState, Gso};
use core::ops::Range;

/// Why [`Packet::append_checked`] gave the packet back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The packet cannot take more pieces, or more bytes.
    Full,
    /// The payload does not have the sum that its checksum implies.
    Checksum,
}

/// An owned packet that a [`Coalescer`](super::Coalescer) can merge.
///
/// Offsets count from the first byte of the packet, link header included.
pub trait Packet: Sized {
    /// The packet's first bytes in one piece. If they do not contain all headers, the packet is not
    /// merged.
    fn head(&self) -> &[u8];

    /// The first `bytes` bytes, writable; `None` if they are shared, or not in one piece. Then the
    /// packet is not merged.
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]>;

    /// Length in bytes, link header and padding included.
    fn bytes(&self) -> u32;

    /// The state of the transport checksum.
    fn checksum(&self) -> ChecksumState;

    /// `Some` for a GSO packet: such a packet is not merged.
    fn gso(&self) -> Option<Gso> {
        None
    }

    /// The layout, if known: then the packet is not parsed again.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// A value outside the packet's bytes that has to be equal for two packets to merge: a VLAN tag
    /// beside them, the receiving port, or a mix of these.
    fn aside(&self) -> u32 {
        0
    }

    /// Sum over `range`, starting at the range's first byte. The range is inside the packet.
    fn sum(&self, range: Range<u32>) -> Sum;

    /// Cuts link padding off: the packet is `bytes` long afterwards. Called only for `stream`, for
    /// every padded packet that is held.
    fn truncate(&mut self, bytes: u32);

    /// Appends `payload` of `tail` and consumes `tail`; its headers are dropped.
    ///
    /// # Errors
    /// Returns `tail`; both packets are unchanged.
    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self>;

    /// Appends like [`append`](Self::append), if the payload's sum added to `headers` gives the sum
    /// of a correct checksum. A type that copies can sum during the copy.
    ///
    /// # Errors
    /// Like [`append`](Self::append), with the reason.
    fn append_checked(
        &mut self,
        tail: Self,
        payload: Range<u32>,
        headers: Sum,
    ) -> Result<(), (AppendError, Self)> {
        let mut sum = headers;
        sum.add_sum(tail.sum(payload.clone()));
        if !sum.is_valid() {
            return Err((AppendError::Checksum, tail));
        }
        self.append(tail, payload)
            .map_err(|tail| (AppendError::Full, tail))
    }

    /// Prefetches the memory that [`append`](Self::append) will access.
    fn prefetch(&self) {}
}
