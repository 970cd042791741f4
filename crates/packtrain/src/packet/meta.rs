//! The metadata of a packet.

use crate::limits::PORTS_MAX;
use crate::time::WallTime;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};
use std::fmt;

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

/// A set of a session's ports, by their indices from 0 to [`PORTS_MAX`] less 1.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PortSet(u16);

/// In a packet's line: a set was named. Without it there is none, and the other bits are 0.
const NAMED: u16 = 1 << 15;

const _: () = assert!(PORTS_MAX < u16::BITS as usize);

impl PortSet {
    /// No port: a packet that goes nowhere is dropped, as `drop.no_egress`.
    pub const NONE: Self = Self(0);

    /// One port.
    ///
    /// # Panics
    ///
    /// If `port` is not less than [`PORTS_MAX`].
    #[must_use]
    pub const fn one(port: usize) -> Self {
        assert!(port < PORTS_MAX, "a session has no such port");
        Self(1 << port)
    }

    /// The first `ports` ports.
    ///
    /// # Panics
    ///
    /// If they are more than [`PORTS_MAX`].
    #[must_use]
    pub const fn first(ports: usize) -> Self {
        assert!(ports <= PORTS_MAX, "a session has fewer ports");
        Self(((1_u32 << ports) - 1) as u16)
    }

    /// These ports and `port`.
    ///
    /// # Panics
    ///
    /// As [`PortSet::one`].
    #[must_use]
    pub const fn with(self, port: usize) -> Self {
        Self(self.0 | Self::one(port).0)
    }

    /// These ports without `port`.
    #[must_use]
    pub const fn without(self, port: usize) -> Self {
        match port < PORTS_MAX {
            true => Self(self.0 & !(1 << port)),
            false => self,
        }
    }

    /// Whether `port` is one of them.
    #[must_use]
    pub const fn has(self, port: usize) -> bool {
        port < PORTS_MAX && self.0 & (1 << port) != 0
    }

    /// The number of ports.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True without ports.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// As a packet's line has it.
    pub(super) const fn named(self) -> u16 {
        self.0 | NAMED
    }

    /// The set of a packet's line, if one was named.
    pub(super) const fn of_line(bits: u16) -> Option<Self> {
        match bits & NAMED != 0 {
            true => Some(Self(bits & !NAMED)),
            false => None,
        }
    }

    /// The ports, lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let port = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(port)
        })
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl FromIterator<usize> for PortSet {
    /// # Panics
    ///
    /// As [`PortSet::one`].
    fn from_iter<I: IntoIterator<Item = usize>>(ports: I) -> Self {
        ports.into_iter().fold(Self::NONE, Self::with)
    }
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
