//! The result for a packet that is handed on.

use super::stats::{FlushReason, NotTaken};
use crate::layout::Layout;
use crate::offload::{ChecksumState, Gso};

/// The result for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Unchanged: the coalescer did not take it.
    Passed(NotTaken),
    /// Unchanged after it was held; its checksum was verified. `Stream` has cut link padding off.
    Alone(FlushReason),
    /// Several packets merged into one, with headers to match.
    Merged(Merged),
}

/// A merged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// How to segment it again. `None` if its payload is that of one packet (ACKs only), or fits
    /// one: `Stream` merges payloads of any size, and segmentation does not cut pieces smaller than
    /// [`TCP_GSO_SIZE_MIN`](crate::segment::TCP_GSO_SIZE_MIN).
    pub gso: Option<Gso>,
    /// The state of its transport checksum.
    pub checksum: ChecksumState,
    /// Where its headers are.
    pub layout: Layout,
    /// Wire packets in it, without `absorbed`.
    pub pieces: u16,
    /// Pure ACKs merged into it, which segmentation does not restore: counted as absorbed.
    pub absorbed: u16,
    /// Why it was handed on.
    pub reason: FlushReason,
}
