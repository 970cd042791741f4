//! The reasons for which packets are dropped.

use super::Counter;
use packtrain_offload::layout::ParseError;
use packtrain_offload::segment::SegmentError;
use packtrain_offload::virtio_net::VnetError;
use std::fmt;

macro_rules! own_reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// The reason of a drop. Each packet that is not delivered has exactly one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
            /// The virtio-net header of the packet is inconsistent, in itself or with the packet.
            Vnet(VnetError),
            /// The packet cannot be segmented.
            Segment(SegmentError),
        }

        #[derive(Clone, Copy)]
        enum Own { $($variant,)* }

        const OWN: &[DropReason] = &[$(DropReason::$variant,)*];

        impl DropReason {
            /// The reason's name, the part after `drop.` in the counter tree.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Vnet(error) => error.reason(),
                    Self::Segment(error) => error.reason(),
                }
            }

            fn index(self) -> usize {
                match self {
                    $(Self::$variant => Own::$variant as usize,)*
                    Self::Vnet(error) => OWN.len() + error as usize,
                    Self::Segment(error) => OWN.len() + VnetError::ALL.len() + error as usize,
                }
            }
        }
    };
}

own_reasons! {
    /// No free frame or line in the arena.
    NoBuffer => "no_buffer",
    /// The egress port is down or has no carrier.
    LinkDown => "link_down",
    /// Fewer bytes than the link header has, or than the device reported.
    Truncated => "truncated",
    /// More bytes than [`crate::limits::PACKET_BYTES_MAX`], or than its buffers have.
    TooLong => "too_long",
    /// The device marked the packet as received in error, or a guest's descriptors are wrong or too
    /// many.
    BadDescriptor => "bad_descriptor",
    /// The place of a partial checksum is outside of the packet.
    BadChecksumPlace => "bad_checksum_place",
    /// More segments than the device accepts, also after copying.
    TooManySegments => "too_many_segments",
    /// The device needs all headers in one segment, and they are longer than its segments.
    HeadersTooLong => "headers_too_long",
    /// The egress device refused the packet, not for a feature that the packet needs.
    DeviceRefused => "device_refused",
    /// In flight at a reset, and the device does not know whether it sent the packet; or waiting
    /// when a device failed or was removed, which ended the run.
    DeviceReset => "device_reset",
    /// Waiting when the run ended.
    Shutdown => "shutdown",
    /// Dropped by the fault injector.
    FaultInjected => "fault_injected",
    /// Sent to a read-only port: a capture file opened without `write`.
    ReadOnly => "read_only",
    /// The capture file's record is cut to a snapshot length: the rest of the packet is not there.
    CutShort => "cut_short",
    /// The capture file's record cannot be read as a packet.
    BadRecord => "bad_record",
    /// A packet socket or AF_XDP socket had no room: it was not read fast enough. The kernel counts
    /// a large packet as one.
    SocketFull => "socket_full",
    /// Longer than the egress interface's MTU, and not to be cut.
    Mtu => "mtu",
    /// The two ports' link types differ and this packet cannot be converted.
    LinkType => "link_type",
    /// In a session among several ports: no port was named for the packet, or one that the session
    /// does not have. A bridge names none for a frame that is not forwarded.
    NoEgress => "no_egress",
    /// In a session among several ports: the queue of the egress port had no space. Counted for
    /// that port, as `egress_full` of its TX queue.
    EgressFull => "egress_full",
}

const REASONS: usize = OWN.len() + VnetError::ALL.len() + SegmentError::ALL.len();

impl DropReason {
    /// All reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        OWN.iter()
            .copied()
            .chain(VnetError::ALL.iter().copied().map(Self::Vnet))
            .chain(SegmentError::ALL.iter().copied().map(Self::Segment))
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<ParseError> for DropReason {
    /// A packet whose offload needs headers that do not parse.
    fn from(_: ParseError) -> Self {
        Self::BadChecksumPlace
    }
}

/// The cause of a stall: a TX queue stopped with packets waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// No free descriptor.
    NoDescriptor,
    /// The link is down.
    LinkDown,
    /// The device is busy.
    Busy,
    /// The system had no memory for a packet; counted as busy.
    NoMemory,
    /// The queue is stopped.
    Flush,
    /// The byte limit of the device is reached.
    ByteLimit,
}

/// Wire packets dropped, by reason. One writer at a time: the worker that owns the block, or the
/// consumer of the ring of its TX queue.
#[derive(Debug)]
pub struct DropCounters {
    counts: Box<[Counter]>,
}

impl Default for DropCounters {
    fn default() -> Self {
        Self {
            counts: (0..REASONS).map(|_| Counter::default()).collect(),
        }
    }
}

impl DropCounters {
    /// Counts `wire_packets` lost for `reason`.
    pub fn add(&self, reason: DropReason, wire_packets: u64) {
        self.counts[reason.index()].add(wire_packets);
    }

    /// A copy.
    #[must_use]
    pub fn snapshot(&self) -> DropSnapshot {
        DropSnapshot {
            counts: self.counts.iter().map(Counter::get).collect(),
        }
    }
}

/// A copy of [`DropCounters`].
#[derive(Clone, PartialEq, Eq)]
pub struct DropSnapshot {
    counts: Vec<u64>,
}

/// The reasons with at least one drop, by name.
impl fmt::Debug for DropSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.nonzero().map(|(reason, count)| (reason.name(), count));
        f.debug_map().entries(named).finish()
    }
}

impl Default for DropSnapshot {
    fn default() -> Self {
        Self {
            counts: vec![0; REASONS],
        }
    }
}

impl DropSnapshot {
    /// Wire packets lost for `reason`.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.counts[reason.index()]
    }

    /// Wire packets lost for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The reasons with at least one drop, and their wire packets.
    pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + fmt::Debug + '_ {
        let counted = DropReason::all().map(|reason| (reason, self.get(reason)));
        let counted: Vec<_> = counted.filter(|&(_, count)| count > 0).collect();
        counted.into_iter()
    }

    /// Adds wire packets that were counted elsewhere.
    pub(crate) fn add(&mut self, reason: DropReason, wire_packets: u64) {
        self.counts[reason.index()] += wire_packets;
    }

    /// Adds another block's counts to these.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_its_own_name_and_its_own_counter() {
        let names: HashSet<_> = DropReason::all().map(DropReason::name).collect();
        let indices: HashSet<_> = DropReason::all().map(DropReason::index).collect();
        assert_eq!(DropReason::all().count(), REASONS);
        assert_eq!(names.len(), REASONS);
        assert_eq!(indices.len(), REASONS);
        assert_eq!(indices.iter().max(), Some(&(REASONS - 1)));
    }

    #[test]
    fn what_was_dropped_can_be_printed() {
        let counters = DropCounters::default();
        counters.add(DropReason::LinkDown, 3);
        let drops = counters.snapshot();
        assert_eq!(
            format!("{:?}", drops.nonzero()),
            "IntoIter([(LinkDown, 3)])"
        );
        assert_eq!(format!("{drops:?}"), r#"{"link_down": 3}"#);
    }
}
