//! What travels with a packet besides its bytes.

use crate::limits::SEGMENTS_MAX;
use crate::time::Instant;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};

/// A VLAN tag that is not in the packet's bytes but beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol: 0x8100 or 0x88A8.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN number, as in the frame.
    pub control: u16,
}

/// Where a packet came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ingress {
    /// Index of the port in its session.
    pub port: u16,
    /// Index of the RX queue within the port.
    pub queue: u16,
}

/// A packet's metadata.
///
/// Nothing that memory safety rests on may be in here: the owner of a packet may overwrite all of
/// it, or swap it with another packet's.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Header offsets, when the packet parsed: `None` for a protocol that offloads do not know.
    pub layout: Option<Layout>,
    /// When the packet arrived.
    pub timestamp: Instant,
    /// Hash of the flow as the device gave it, 0 for none. Only a hint: a worker sends from queue i
    /// to queue i, and [`TxFlows`](crate::engine::TxFlows) computes its own.
    pub flow_hash: u32,
    /// Where it came in.
    pub ingress: Ingress,
    /// What is left to do about the transport checksum.
    pub checksum: ChecksumState,
    /// Set when the packet stands for several wire packets.
    pub gso: Option<Gso>,
    /// A VLAN tag outside the bytes.
    pub vlan: Option<VlanTag>,
    /// Wire packets this packet accounts for in the conservation ledger. Set when it enters;
    /// merging adds, slicing distributes.
    pub wire_packets: u16,
    /// What the first byte is.
    pub link: LinkType,
    /// Segments that merging may give the packet at most: what the way ahead takes without copying.
    /// Never more than [`SEGMENTS_MAX`].
    pub merge_segments_max: u8,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            layout: None,
            timestamp: Instant::default(),
            flow_hash: 0,
            ingress: Ingress::default(),
            checksum: ChecksumState::None,
            gso: None,
            vlan: None,
            wire_packets: 1,
            link: LinkType::Ethernet,
            merge_segments_max: SEGMENTS_MAX as u8,
        }
    }
}
