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

/// The ports that a packet is sent to, in a session among several: any set of the first
/// [`PortSet::LISTED`] ports, one port, or all ports but one.
///
/// A packet's line has 16 bits for it, which a session of [`PORTS_MAX`] ports would not fit in as
/// one bit for each port.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortSet(u16);

/// In a packet's line: a set was named. Without it the line has 0.
const NAMED: u16 = 1 << 15;
/// The lower bits are the number of a port, and not a bit for each of the first ports.
const NUMBER: u16 = 1 << 14;
/// With [`NUMBER`]: all ports but that one.
const ALL_BUT: u16 = 1 << 13;

const _: () = assert!(PORTS_MAX <= ALL_BUT as usize);

impl PortSet {
    /// No port: a packet that goes nowhere is dropped, as `drop.no_egress`.
    pub const NONE: Self = Self(NAMED);
    /// A set of several ports has none from this number on, unless it is [`PortSet::all_but`].
    pub const LISTED: usize = NUMBER.trailing_zeros() as usize;

    /// One port.
    ///
    /// # Panics
    ///
    /// If `port` is not less than [`PORTS_MAX`].
    #[must_use]
    pub const fn one(port: usize) -> Self {
        assert!(port < PORTS_MAX, "a session has no such port");
        match port < Self::LISTED {
            true => Self(NAMED | 1 << port),
            false => Self(NAMED | NUMBER | port as u16),
        }
    }

    /// All ports of the session but `port`.
    ///
    /// # Panics
    ///
    /// As [`PortSet::one`].
    #[must_use]
    pub const fn all_but(port: usize) -> Self {
        assert!(port < PORTS_MAX, "a session has no such port");
        Self(NAMED | NUMBER | ALL_BUT | port as u16)
    }

    /// The one port of this set, if the set is not [`PortSet::all_but`] and has one port.
    #[must_use]
    pub const fn single(self) -> Option<usize> {
        let low = self.0 & !(NAMED | NUMBER);
        match self.0 & NUMBER != 0 {
            true if low & ALL_BUT == 0 => Some(low as usize),
            false if low.is_power_of_two() => Some(low.trailing_zeros() as usize),
            _ => None,
        }
    }

    /// Whether `port` is one of them.
    #[must_use]
    pub const fn has(self, port: usize) -> bool {
        let low = (self.0 & !(NAMED | NUMBER | ALL_BUT)) as usize;
        match self.0 & (NUMBER | ALL_BUT) {
            NUMBER => port == low,
            bits if bits & NUMBER != 0 => port != low,
            _ => port < Self::LISTED && self.0 & 1 << port != 0,
        }
    }

    /// How many ports were named, by their number, that a session of `ports` ports does not have.
    pub(crate) const fn missing(self, ports: usize) -> usize {
        match self.single() {
            Some(port) => (port >= ports) as usize,
            None if self.0 & NUMBER != 0 || ports >= Self::LISTED => 0,
            None => ((self.0 & !NAMED) >> ports).count_ones() as usize,
        }
    }

    /// True without ports.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == NAMED
    }

    /// As a packet's line has it.
    pub(super) const fn named(self) -> u16 {
        self.0
    }

    /// The set of a packet's line, if one was named.
    pub(super) const fn of_line(bits: u16) -> Option<Self> {
        match bits {
            0 => None,
            named => Some(Self(named)),
        }
    }

    /// Those of the first `ports` ports that are in the set, lowest first.
    pub fn iter(self, ports: usize) -> impl Iterator<Item = usize> {
        (0..ports).filter(move |&port| self.has(port))
    }
}

impl Default for PortSet {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & (NUMBER | ALL_BUT) == NUMBER | ALL_BUT {
            return write!(f, "all but {{{}}}", self.0 & (ALL_BUT - 1));
        }
        f.debug_set().entries(self.iter(PORTS_MAX)).finish()
    }
}

impl FromIterator<usize> for PortSet {
    /// # Panics
    ///
    /// If a port is not less than [`PORTS_MAX`], or of several ones not less than
    /// [`PortSet::LISTED`].
    fn from_iter<I: IntoIterator<Item = usize>>(ports: I) -> Self {
        ports.into_iter().fold(Self::NONE, |all, port| {
            let one = Self::one(port);
            if all.is_empty() || all == one {
                return one;
            }
            let listed = (all.0 | one.0) & NUMBER == 0;
            assert!(listed, "a set of several ports has none as high as {port}");
            Self(all.0 | one.0)
        })
    }
}

/// A packet's metadata.
///
/// Memory safety must not depend on it: the owner of a packet may overwrite all of it, or swap it
/// with that of another packet.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Header offsets, if the packet was parsed: `None` for a protocol without offloads. A received
    /// packet is parsed if a handler or a later stage reads them. Where no packet is merged and
    /// [`Handler::PARSED`](crate::engine::Handler::PARSED) is false, those are packets that are to
    /// be cut, or whose checksum is unfinished.
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

impl Meta {
    /// Whether the packet needs no offload: no GSO, no VLAN tag outside of the bytes, no partial
    /// checksum.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.gso.is_none()
            && self.vlan.is_none()
            && !matches!(self.checksum, ChecksumState::Partial { .. })
    }
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
