//! The metadata of a packet.

use crate::time::WallTime;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};

/// A VLAN tag in the metadata, and not in the packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol: 0x8100 or 0x88A8.
    pub protocol: u16,
    /// Priority, drop eligibility and VLAN number, as in the frame.
    pub control: u16,
}

/// The RX queue of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ingress {
    /// Index of the port in its session.
    pub port: u16,
    /// Index of the RX queue within the port.
    pub queue: u16,
}

/// A packet's metadata.
///
/// Memory safety must not depend on it: the owner of a packet may overwrite all of it, or swap it
/// with that of another packet.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Header offsets, if the packet was parsed: `None` for a protocol without offloads.
    pub layout: Option<Layout>,
    /// When the packet was received, if its driver knows: of a packet from a capture the recorded
    /// time. A merged packet has the time of its first one, a segment that of its GSO packet.
    pub timestamp: Option<WallTime>,
    /// Hash of the flow from the device, 0 for none. A hint only: a worker sends from queue i to
    /// queue i, and [`TxFlows`](crate::engine::TxFlows) computes its own.
    pub flow_hash: u32,
    /// The RX queue where it arrived.
    pub ingress: Ingress,
    /// The state of the transport checksum.
    pub checksum: ChecksumState,
    /// Set for a GSO packet.
    pub gso: Option<Gso>,
    /// A VLAN tag outside of the bytes.
    pub vlan: Option<VlanTag>,
    /// Wire packets that this packet accounts for in the ledger. Set on receive; merging adds them,
    /// segmentation distributes them.
    pub wire_packets: u16,
    /// The header at the start of the bytes.
    pub link: LinkType,
    /// The most segments that merging may give the packet, so that its TX queue need not copy it.
    /// By default as many as fit the field, fewer than
    /// [`SEGMENTS_MAX`](crate::limits::SEGMENTS_MAX).
    pub merge_segments_max: u8,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            layout: None,
            timestamp: None,
            flow_hash: 0,
            ingress: Ingress::default(),
            checksum: ChecksumState::None,
            gso: None,
            vlan: None,
            wire_packets: 1,
            link: LinkType::Ethernet,
            merge_segments_max: u8::MAX,
        }
    }
}
