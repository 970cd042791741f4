//! What a coalescer needs of a packet.

use crate::checksum::Sum;
use crate::layout::Layout;
use crate::offload::{ChecksumState, Gso};
use core::ops::Range;

/// Why [`Packet::append_checked`] gave the packet back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// No room: this packet can take no more pieces, or bytes.
    Full,
    /// The payload does not have the sum that its header says.
    Checksum,
}

/// An owned packet that a [`Coalescer`](super::Coalescer) can merge.
///
/// Offsets count from the first byte of the packet, link header included.
pub trait Packet: Sized {
    /// The packet's first bytes in one piece: all of its headers, or the packet is not merged.
    fn head(&self) -> &[u8];

    /// The first `bytes` bytes, to change; `None` if they are shared, or not in one piece. Then the
    /// packet is not merged.
    fn head_mut(&mut self, bytes: usize) -> Option<&mut [u8]>;

    /// Length in bytes, link header and padding included.
    fn bytes(&self) -> u32;

    /// Who vouches for the transport checksum.
    fn checksum(&self) -> ChecksumState;

    /// Set for a GSO packet: such a packet is not merged.
    fn gso(&self) -> Option<Gso> {
        None
    }

    /// The layout, if it is known already: then the packet is not parsed again.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// What else has to be equal for two packets to merge and is not in their bytes: a VLAN tag
    /// beside them, the port they came from. Anything that fits.
    fn aside(&self) -> u32 {
        0
    }

    /// Sum over `range`, begun at its first byte. The range is inside the packet.
    fn sum(&self, range: Range<u32>) -> Sum;

    /// Cuts link padding off: the packet is `bytes` long afterwards. Asked of `stream` only, for
    /// every padded packet that is held.
    fn truncate(&mut self, bytes: u32);

    /// Appends `payload` of `tail`, which is gone then; its headers are dropped.
    ///
    /// # Errors
    /// `tail` comes back, and both packets are as they were.
    fn append(&mut self, tail: Self, payload: Range<u32>) -> Result<(), Self>;

    /// The same, if the payload's sum added to `headers` gives that of a right checksum. A type
    /// that copies can sum while it does.
    ///
    /// # Errors
    /// As [`append`](Self::append), with the reason.
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

    /// Asks the processor to load what [`append`](Self::append) will touch.
    fn prefetch(&self) {}
}
