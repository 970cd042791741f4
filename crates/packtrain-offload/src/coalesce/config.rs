//! Configuration of a coalescer.

use super::storage::Needs;
use super::table;
use crate::layout::TunnelPorts;
use crate::limits::IP_LENGTH_MAX;
use crate::offload::LinkType;
use crate::sort;

/// What may be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Semantics {
    /// Packets that segmentation restores byte for byte.
    #[default]
    Reversible,
    /// Packets whose merging preserves the byte stream, its acknowledgements and its windows.
    Stream,
}

/// How flows are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In a table, as packets arrive. Best while all flows fit into the table.
    Hash,
    /// Packets are queued, and grouped by flow when the queue is full or flushed: any number of
    /// flows merge as far as their packets are in one queue. Nothing is held after a flush.
    Sorted,
    /// `Hash`, and `Sorted` while the table overflows.
    #[default]
    Auto,
}

/// The transport checksum of a merged packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// The pseudo-header sum: for a port that segments the packet, or a kernel that accepts it.
    #[default]
    Partial,
    /// The complete checksum over the payload: for a stack that verifies it. Computed from the
    /// checksums of the pieces, without reading the payload.
    Complete,
}

/// Configuration of a coalescer. Made with [`Config::new`], then changed field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What may be merged.
    pub semantics: Semantics,
    /// How flows are found.
    pub mode: Mode,
    /// What packets start with.
    pub link: LinkType,
    /// Packets held at once: entries of the table, 1 to [`Config::FLOWS_MAX`]. Values outside this
    /// range are clamped.
    pub flows: u32,
    /// Packets queued at once in sorted mode, 1 to [`sort::ITEMS_MAX`]. [`Mode::Hash`] needs none.
    pub queue: u32,
    /// Longest IP datagram to make, in bytes, with the IP header. At most 65 535. For IPv6, whose
    /// length field does not count the 40 bytes of the header, this is the limit of Linux.
    pub max_bytes: u32,
    /// For `Stream`: a merged packet is handed on with the pure ACK that is this packet of it, so
    /// that the ACK is not delayed further. With 1 (or 0) no pure ACK is held. Data is limited by
    /// `max_bytes` instead. `lro_ackcnt_lim` of FreeBSD, which does not count the first packet.
    pub ack_limit: u16,
    /// TCP is merged.
    pub tcp: bool,
    /// UDP is merged.
    pub udp: bool,
    /// UDP datagrams to or from these ports, which carry VXLAN and GENEVE, are not merged. Linux
    /// before 6.9 (6.8.5, and later ones of older series) drops a merged datagram that is addressed
    /// to one of its own tunnels (CVE-2024-35884, commit 3d010c8031e3; tailscale/tailscale#11026).
    /// `None` merges them like any other datagram: safe if no such kernel receives them, or if
    /// these ports carry another protocol.
    pub tunnels: Option<TunnelPorts>,
    /// Merges IPv4 packets that all have the same identification, if DF is set. To restore them,
    /// segmentation needs [`Gso::fixed_id`](crate::offload::Gso::fixed_id); a virtio-net header
    /// cannot express it.
    pub fixed_id: bool,
    /// The checksum of a merged packet.
    pub finish: Finish,
    /// Seeds the table's hash, so that an outside sender cannot aim at one set.
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
            tunnels: Some(TunnelPorts::KNOWN),
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

/// Entries, or queued packets, of a configuration that requests `n`.
pub(super) const fn clamp(n: u32) -> usize {
    if n == 0 {
        1
    } else if n > Config::FLOWS_MAX {
        Config::FLOWS_MAX as usize
    } else {
        n as usize
    }
}
