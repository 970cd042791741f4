//! The report of a replay.

use super::hash::StableHash;
use crate::codec::{CaptureError, Format, Interface, LinkCode};
use packtrain_offload::coalesce::Stats;
use packtrain_offload::layout::{Layout, Network, Transport};
use std::ops::{AddAssign, Deref};

/// The least number of packets in a merged one, for each bar of
/// [`InterfaceReport::histogram`].
pub const HISTOGRAM_FROM: [u64; 8] = [1, 2, 3, 5, 9, 17, 33, 65];

/// The MTU of Ethernet without jumbo frames, in bytes of an IP datagram. A longer TCP packet is
/// [`InterfaceReport::large`].
pub const ETHERNET_MTU: u32 = 1500;

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The format of the capture.
    pub format: Format,
    /// Every interface, in the order of the output.
    pub interfaces: Vec<InterfaceReport>,
    /// Packets of the input, including bad records.
    pub received: u64,
    /// Bad records.
    pub dropped: u64,
    /// Packets still held at the end: none.
    pub held: u64,
    /// pcapng blocks without packets that are not in the output.
    pub blocks_left_out: u64,
    /// The last bad record or block.
    pub last_bad: Option<CaptureError>,
    /// The reason why the capture was not read to its end.
    pub stopped: Option<CaptureError>,
    pub(super) totals: Totals,
}

/// The totals of all interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Packets of the input that were written, single or merged.
    pub transmitted: u64,
    /// Packets of the input that were not written: pure ACKs that were merged, and packets that a
    /// split to an MTU removed.
    pub absorbed: u64,
    /// Packets that a split added.
    pub expanded: u64,
    /// Packets that were merged and restored.
    pub restored: u64,
    /// Restored packets that differ from the input: none.
    pub differing: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        // Without `..`, so that a total that is added has to be merged.
        let Self {
            transmitted,
            absorbed,
            expanded,
            restored,
            differing,
        } = other;
        self.transmitted += transmitted;
        self.absorbed += absorbed;
        self.expanded += expanded;
        self.restored += restored;
        self.differing += differing;
    }
}

impl Totals {
    /// Counts a packet of `before` packets that was split into `after`.
    pub(super) const fn count_split(&mut self, before: u64, after: u64) {
        self.transmitted += after;
        self.expanded += after.saturating_sub(before);
        self.absorbed += before.saturating_sub(after);
    }
}

impl Report {
    pub(super) const fn new(format: Format) -> Self {
        Self {
            format,
            interfaces: Vec::new(),
            received: 0,
            dropped: 0,
            held: 0,
            blocks_left_out: 0,
            last_bad: None,
            stopped: None,
            totals: Totals {
                transmitted: 0,
                absorbed: 0,
                expanded: 0,
                restored: 0,
                differing: 0,
            },
        }
    }

    /// Adds the report of another capture, for captures that are replayed in parts. Interfaces with
    /// equal descriptions become one, and a flow in both captures counts
    /// once. The format is that of the first; faults are those of the last report with any.
    /// Merging is associative, so parts may be merged in any grouping.
    pub fn merge(&mut self, other: &Self) {
        let Self {
            format: _,
            interfaces,
            received,
            dropped,
            held,
            blocks_left_out,
            last_bad,
            stopped,
            totals,
        } = other;
        let own = self.interfaces.len();
        let mut joined = vec![false; own];
        for interface in interfaces {
            let known = self.interfaces[..own].iter_mut().zip(&mut joined);
            // Each one is joined at most once: a capture may describe the same interface twice.
            let same = known
                .filter(|(_, joined)| !**joined)
                .find(|(known, _)| known.is_same(interface));
            match same {
                Some((known, joined)) => {
                    known.merge(interface);
                    *joined = true;
                }
                None => self.interfaces.push(interface.clone()),
            }
        }
        self.received += received;
        self.dropped += dropped;
        self.held += held;
        self.blocks_left_out += blocks_left_out;
        self.last_bad = last_bad.or(self.last_bad);
        self.stopped = stopped.or(self.stopped);
        self.totals += *totals;
    }

    /// The conservation check:
    /// `received + expanded = transmitted + absorbed + held + dropped`.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        let totals = &self.totals;
        self.received + totals.expanded
            == totals.transmitted + totals.absorbed + self.held + self.dropped
            && self.held == 0
    }
}

impl Deref for Report {
    type Target = Totals;

    fn deref(&self) -> &Totals {
        &self.totals
    }
}

/// The result for one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceReport {
    /// Its name, if the capture has one.
    pub name: Option<String>,
    /// Its link type.
    pub link: LinkCode,
    pub(super) snaplen: u32,
    /// A hash of its options.
    options: u64,
    /// Packets read.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Those of them that the capture has: fewer if packets were cut to a snapshot length.
    pub captured_bytes: u64,
    /// Packets written.
    pub records: u64,
    /// Their bytes on the wire.
    pub record_bytes: u64,
    /// Packets that the capture does not have whole.
    pub cut_short: u64,
    /// Packets of a link type that is not parsed.
    pub other_link: u64,
    /// Packets whose IP length is 0: it was left to the NIC of the host that sent and captured
    /// them. They are not merged. The length in the capture is theirs.
    pub no_length: u64,
    /// Packets with a partial checksum: captured before the offloads of their host. They are merged
    /// like others.
    pub unfinished: u64,
    /// TCP packets with an IP datagram of more than [`ETHERNET_MTU`] bytes, or whose length was
    /// left to the NIC: TSO or GRO of the capturing host made them, or the MTU is larger. Packets
    /// of a loopback interface are not counted, since its MTU is larger.
    pub large: u64,
    /// Packets longer than the MTU that could be neither segmented (UDP, wrong checksums, SYN or
    /// RST, too many segments) nor fragmented (DF, or IPv6). A merged packet counts once, or each
    /// of its datagrams does.
    pub not_cut: u64,
    /// The counters of the coalescer.
    pub stats: Stats,
    /// Packets that left the coalescer, by the number of packets in them: bar `i` counts those of
    /// [`HISTOGRAM_FROM`]`[i]` packets up to the start of the next bar.
    pub histogram: [u64; HISTOGRAM_FROM.len()],
    /// The most packets held at once; a merged one counts once.
    pub held_max: u64,
    pub(super) flows: Flows,
}

impl InterfaceReport {
    pub(super) fn new(interface: &Interface<'_>, options: &[u8]) -> Self {
        Self {
            name: interface.name.map(str::to_owned),
            link: interface.link,
            snaplen: interface.snaplen,
            options: StableHash::new().with(options).finish(),
            frames: 0,
            bytes: 0,
            captured_bytes: 0,
            records: 0,
            record_bytes: 0,
            cut_short: 0,
            other_link: 0,
            no_length: 0,
            unfinished: 0,
            large: 0,
            not_cut: 0,
            stats: Stats::default(),
            histogram: [0; HISTOGRAM_FROM.len()],
            held_max: 0,
            flows: Flows::default(),
        }
    }

    /// Whether both have the same description.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let described = |seen: &Self| (seen.link, seen.snaplen, seen.options);
        self.name == other.name && described(self) == described(other)
    }

    fn merge(&mut self, other: &Self) {
        let Self {
            name: _,
            link: _,
            snaplen: _,
            options: _,
            frames,
            bytes,
            captured_bytes,
            records,
            record_bytes,
            cut_short,
            other_link,
            no_length,
            unfinished,
            large,
            not_cut,
            stats,
            histogram,
            held_max,
            flows,
        } = other;
        self.frames += frames;
        self.bytes += bytes;
        self.captured_bytes += captured_bytes;
        self.records += records;
        self.record_bytes += record_bytes;
        self.cut_short += cut_short;
        self.other_link += other_link;
        self.no_length += no_length;
        self.unfinished += unfinished;
        self.large += large;
        self.not_cut += not_cut;
        self.stats += *stats;
        for (bar, count) in self.histogram.iter_mut().zip(histogram) {
            *bar += count;
        }
        self.held_max = self.held_max.max(*held_max);
        self.flows.merge(flows);
    }

    pub(super) fn count_merged(&mut self, packets: u64) {
        let bar = HISTOGRAM_FROM.partition_point(|&from| from <= packets);
        if let Some(bar) = self.histogram.get_mut(bar.saturating_sub(1)) {
            *bar += 1;
        }
    }

    /// The estimated number of TCP and UDP flows, within 1 % up to a million.
    #[must_use]
    pub fn flows(&self) -> u64 {
        self.flows.estimate()
    }

    /// Packets that left the coalescer.
    #[must_use]
    pub fn emitted(&self) -> u64 {
        self.histogram.iter().sum()
    }
}

/// Counts flows by linear counting (Whang, Vander-Zanden and Taylor, 1990).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flows {
    /// A bit for each value of a hash; none before the first flow.
    bits: Vec<u64>,
    ones: u64,
}

impl Flows {
    const BITS: u64 = 1 << 20;

    pub(super) fn add(&mut self, packet: &[u8], layout: &Layout) {
        let addresses = match layout.kind {
            Network::Ipv4 => 12..20,
            Network::Ipv6 => 8..40,
            _ => return,
        };
        if layout.fragment || !matches!(layout.transport_kind, Transport::Tcp | Transport::Udp) {
            return;
        }
        let network = usize::from(layout.network);
        let transport = usize::from(layout.transport);
        let addresses = packet.get(network + addresses.start..network + addresses.end);
        let ports = packet.get(transport..transport + 4);
        let (Some(addresses), Some(ports)) = (addresses, ports) else {
            return;
        };
        let hash = StableHash::new().with(addresses).with(ports);
        let hash = hash.with(&[layout.protocol.0]).finish();
        if self.bits.is_empty() {
            self.bits = vec![0; (Self::BITS / 64) as usize];
        }
        let bit = hash % Self::BITS;
        let word = &mut self.bits[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        self.ones += u64::from(*word & mask == 0);
        *word |= mask;
    }

    fn merge(&mut self, other: &Self) {
        if self.bits.is_empty() {
            self.clone_from(other);
            return;
        }
        for (word, more) in self.bits.iter_mut().zip(&other.bits) {
            self.ones += u64::from((more & !*word).count_ones());
            *word |= more;
        }
    }

    fn estimate(&self) -> u64 {
        let (all, zeros) = (Self::BITS as f64, (Self::BITS - self.ones).max(1) as f64);
        (all * (all / zeros).ln()).round() as u64
    }
}
