//! What a packet has become when it is handed on.

use super::stats::{FlushReason, NotTaken};
use crate::layout::Layout;
use crate::offload::{ChecksumState, Gso};

/// What a packet has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// As it came: it was not taken.
    Passed(NotTaken),
    /// As it came, after it was held for a while; its checksum was verified. `Stream` has cut link
    /// padding off.
    Alone(FlushReason),
    /// It is several packets now, and its headers say so.
    Merged(Merged),
}

/// What a merged packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// How to cut it again; `None` if its payload is that of one packet (ACKs only), or fits one:
    /// `Stream` merges payloads of any size, and what is below
    /// [`TCP_GSO_SIZE_MIN`](crate::segment::TCP_GSO_SIZE_MIN) is not cut as small again.
    pub gso: Option<Gso>,
    /// What is left to do about its checksum.
    pub checksum: ChecksumState,
    /// Where its headers are.
    pub layout: Layout,
    /// Wire packets in it, without `absorbed`.
    pub pieces: u16,
    /// Pure ACKs that went into it and will never come out: to be booked as absorbed.
    pub absorbed: u16,
    /// Why it was handed on.
    pub reason: FlushReason,
}
