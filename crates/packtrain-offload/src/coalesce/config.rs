//! How a coalescer is asked to work.

use super::storage::Needs;
use super::table;
use crate::layout::TunnelPorts;
use crate::limits::IP_LENGTH_MAX;
use crate::offload::LinkType;
use crate::sort;

/// What may be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semantics {
    /// What segmentation restores byte for byte.
    #[default]
    Reversible,
    /// What leaves the byte stream, its acknowledgements and windows as they were.
    Stream,
}

/// How flows are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In a table, as packets come. Best while the flows fit it.
    Hash,
    /// Packets are queued, and grouped by flow when the queue is full or flushed: any number of
    /// flows merge as far as their packets are in one queue. Nothing is held after a flush.
    Sorted,
    /// `Hash`, and `Sorted` while the table overflows.
    #[default]
    Auto,
}

/// What the transport checksum of a merged packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// The pseudo-header sum: for a port that cuts the packet or a kernel that takes it as it is.
    #[default]
    Partial,
    /// The right one over all of the payload: for a stack that verifies it. Made from the checksums
    /// of the parts, without reading the payload.
    Complete,
}

/// How a coalescer works. Made with [`Config::new`], then changed field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What may be merged.
    pub semantics: Semantics,
    /// How flows are found.
    pub mode: Mode,
    /// What packets start with.
    pub link: LinkType,
    /// Packets held at once: entries of the table, 1 to [`Config::FLOWS_MAX`]; less counts as 1,
    /// and more as that.
    pub flows: u32,
    /// Packets queued at once in sorted mode, 1 to [`sort::ITEMS_MAX`]; none are needed for
    /// [`Mode::Hash`].
    pub queue: u32,
    /// Longest IP datagram to make, in bytes, with the IP header. At most 65 535, for IPv6 too, of
    /// which the length field does not count 40 bytes: it is the limit of Linux.
    pub max_bytes: u32,
    /// Most packets in a merged one, for `Stream`: `lro_ackcnt_lim` of FreeBSD.
    pub ack_limit: u16,
    /// TCP is merged.
    pub tcp: bool,
    /// UDP is merged.
    pub udp: bool,
    /// UDP datagrams to or from these ports, which carry VXLAN and GENEVE, are not merged: Linux
    /// before 6.9 (6.8.5, and later ones of older series) loses a merged one that comes for a
    /// tunnel of its own (CVE-2024-35884, commit 3d010c8031e3; tailscale/tailscale#11026). `None`
    /// merges them like any other datagrams: for who knows that no such kernel gets them, or that
    /// these ports are something else.
    pub tunnels: Option<TunnelPorts>,
    /// IPv4 packets that all have the same identification are merged, if they have DF. To restore
    /// them, segmentation has to be told ([`Gso::fixed_id`](crate::offload::Gso::fixed_id)), and a
    /// virtio-net header cannot say it.
    pub fixed_id: bool,
    /// What the checksum of a merged packet is.
    pub finish: Finish,
    /// Makes the table's hash another one, so that nobody outside can aim at a set of it.
    pub seed: u64,
}

impl Config {
    /// Most flows, and most queued packets.
    pub const FLOWS_MAX: u32 = table::FLOWS_MAX as u32;
    /// `TCP_LRO_LENGTH_MAX` of FreeBSD: room for outer headers below 65 535.
    pub const STREAM_BYTES_MAX: u32 = 65_280;

    /// The usual settings: TCP and UDP, `flows` held at once, [`Mode::Auto`] with a queue of 1024
    /// packets. `Stream` finishes checksums, `Reversible` leaves them partial.
    #[must_use]
    pub const fn new(semantics: Semantics, link: LinkType, flows: u32) -> Self {
        let (max_bytes, finish) = match semantics {
            Semantics::Reversible => (IP_LENGTH_MAX as u32, Finish::Partial),
            Semantics::Stream => (Self::STREAM_BYTES_MAX, Finish::Complete),
        };
        Self {
            semantics,
            mode: Mode::Auto,
            link,
            flows,
            queue: 1024,
            max_bytes,
            ack_limit: u16::MAX,
            tcp: true,
            udp: true,
            tunnels: Some(TunnelPorts::ASSIGNED),
            fixed_id: true,
            finish,
            seed: 0,
        }
    }

    /// Elements of the storage that this configuration needs: entries, sets, links, queued packets,
    /// keys, words.
    #[must_use]
    pub const fn needs(&self) -> Needs {
        let flows = clamp(self.flows);
        let queue = match self.mode {
            Mode::Hash => 0,
            Mode::Sorted | Mode::Auto => min(clamp(self.queue), sort::ITEMS_MAX),
        };
        Needs {
            entries: flows,
            sets: table::sets_for(flows),
            links: flows,
            queue,
            keys: 2 * queue,
            words: if queue == 0 { 0 } else { sort::words(queue) },
        }
    }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// Entries, or queued packets, of a configuration that asks for `n`.
pub(super) const fn clamp(n: u32) -> usize {
    if n == 0 {
        1
    } else if n > Config::FLOWS_MAX {
        Config::FLOWS_MAX as usize
    } else {
        n as usize
    }
}
