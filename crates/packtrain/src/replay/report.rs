//! What a replay found.

use crate::capture::{CaptureError, Format, Interface, LinkCode};
use packtrain_offload::coalesce::Stats;
use packtrain_offload::layout::{Layout, Network, Transport};
use std::hash::{DefaultHasher, Hasher};
use std::ops::Deref;

/// The least number of packets in a merged one, for each bar of
/// [`InterfaceReport::histogram`].
pub const HISTOGRAM_FROM: [u64; 8] = [1, 2, 3, 5, 9, 17, 33, 65];

/// What became of the packets of a capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The format of the capture.
    pub format: Format,
    /// Every interface, in the order of the output.
    pub interfaces: Vec<InterfaceReport>,
    /// Packets of the input, those that could not be read included.
    pub received: u64,
    /// Packets that could not be read from the capture.
    pub dropped: u64,
    /// Packets that were never handed on: none.
    pub held: u64,
    /// The last thing in the capture that could not be read.
    pub last_bad: Option<CaptureError>,
    /// Why the capture was not read to its end.
    pub stopped: Option<CaptureError>,
    pub(super) totals: Totals,
}

/// What is added up over all interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Packets of the input that went out, alone or in another.
    pub transmitted: u64,
    /// Packets of the input that will never come out again: pure ACKs that were merged, and
    /// packets that cutting to an MTU made fewer of.
    pub absorbed: u64,
    /// Packets that cutting made more of.
    pub expanded: u64,
    /// Packets that were merged and restored.
    pub restored: u64,
    /// Packets that were restored and are not what they were: none.
    pub differing: u64,
}

impl Totals {
    /// Books a packet that stood for `before` packets, and was cut into `after`.
    pub(super) const fn cut(&mut self, before: u64, after: u64) {
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

    /// Whether every packet that came in went out or is accounted for:
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

/// What became of the packets of one interface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InterfaceReport {
    /// Its name, if the capture has one.
    pub name: Option<String>,
    /// Its link type.
    pub link: LinkCode,
    snaplen: u32,
    /// Packets read.
    pub frames: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets written.
    pub records: u64,
    /// Their bytes on the wire.
    pub record_bytes: u64,
    /// Packets that the capture does not have whole.
    pub cut_short: u64,
    /// Packets of a link type that is not looked into.
    pub other_link: u64,
    /// Packets with a checksum that was never finished: captured in front of the offloads of the
    /// host that sent them. They are merged like others.
    pub unfinished: u64,
    /// Packets longer than the MTU that could not be cut, and not fragmented, since they have DF or
    /// are IPv6: UDP, wrong checksums, SYN or RST, more segments than a packet is cut into. Merged
    /// ones count once, or each datagram of them.
    pub not_cut: u64,
    /// What the coalescer counted.
    pub stats: Stats,
    /// How many packets came out of the coalescer that had so many in them: bar `i` is for
    /// [`HISTOGRAM_FROM`]`[i]` packets up to where the next one begins.
    pub histogram: [u64; HISTOGRAM_FROM.len()],
    /// Most packets that were held at once, merged ones counted once.
    pub held_max: u64,
    pub(super) flows: Flows,
}

impl InterfaceReport {
    pub(super) fn new(interface: &Interface<'_>) -> Self {
        Self {
            name: interface.name.map(str::to_owned),
            link: interface.link,
            snaplen: interface.snaplen,
            frames: 0,
            bytes: 0,
            records: 0,
            record_bytes: 0,
            cut_short: 0,
            other_link: 0,
            unfinished: 0,
            not_cut: 0,
            stats: Stats::default(),
            histogram: [0; HISTOGRAM_FROM.len()],
            held_max: 0,
            flows: Flows::default(),
        }
    }

    /// Whether a description is that of this interface.
    pub(super) fn is(&self, interface: &Interface<'_>) -> bool {
        self.name.as_deref() == interface.name
            && self.link == interface.link
            && self.snaplen == interface.snaplen
    }

    pub(super) fn count_merged(&mut self, packets: u64) {
        let bar = HISTOGRAM_FROM.partition_point(|&from| from <= packets);
        if let Some(bar) = self.histogram.get_mut(bar.saturating_sub(1)) {
            *bar += 1;
        }
    }

    /// How many TCP and UDP flows there were, estimated: within 1 % up to a million.
    #[must_use]
    pub fn flows(&self) -> u64 {
        self.flows.estimate()
    }

    /// Packets that the coalescer handed on.
    #[must_use]
    pub fn emitted(&self) -> u64 {
        self.histogram.iter().sum()
    }
}

/// Counts flows without remembering them: linear counting (Whang, Vander-Zanden and Taylor, 1990).
#[derive(Clone, Debug, Default)]
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
        let mut hasher = DefaultHasher::new();
        hasher.write(addresses);
        hasher.write(ports);
        hasher.write_u8(layout.protocol.0);
        if self.bits.is_empty() {
            self.bits = vec![0; (Self::BITS / 64) as usize];
        }
        let bit = hasher.finish() % Self::BITS;
        let word = &mut self.bits[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        self.ones += u64::from(*word & mask == 0);
        *word |= mask;
    }

    fn estimate(&self) -> u64 {
        let (all, zeros) = (Self::BITS as f64, (Self::BITS - self.ones).max(1) as f64);
        (all * (all / zeros).ln()).round() as u64
    }
}
