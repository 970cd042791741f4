//! The report of a replay.

use super::delays::Delays;
use super::hash::StableHash;
use crate::codec::{CaptureError, Format, Interface, LinkCode};
use packtrain_offload::coalesce::Stats;
use packtrain_offload::layout::{Layout, Network, Transport};
use std::ops::{AddAssign, Deref};
use std::sync::Arc;

/// The least number of packets in a merged one, for each bar of
/// [`InterfaceReport::histogram`].
pub const HISTOGRAM_FROM: [u64; 8] = [1, 2, 3, 5, 9, 17, 33, 65];

/// The MTU of Ethernet without jumbo frames, in bytes of an IP datagram. A longer TCP packet is
/// [`InterfaceReport::large`].
pub const ETHERNET_MTU: u32 = 1500;

/// The result of a replay.
///
/// With the feature `serde` a report can be stored, and merged later: all counts and
/// distributions are exact. [`last_bad`](Self::last_bad) and [`stopped`](Self::stopped) are not
/// stored, since errors of the operating system have no form that is the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    #[cfg_attr(feature = "serde", serde(skip))]
    pub last_bad: Option<CaptureError>,
    /// The reason why the capture was not read to its end.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub stopped: Option<CaptureError>,
    /// The times of its packets; `None` without any.
    pub times: Option<Times>,
    pub(super) totals: Totals,
}

/// The times of packets, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Times {
    /// The earliest.
    pub first_ns: u64,
    /// The latest.
    pub last_ns: u64,
    /// The longest of 1 ns, 1 µs, 1 ms and 1 s of which all of them are multiples: how fine the
    /// clock was at least.
    pub step_ns: u64,
}

impl Times {
    /// The steps, without the shortest.
    const STEPS: [u64; 3] = [1_000_000_000, 1_000_000, 1000];

    const fn of(at: u64) -> Self {
        let mut step_ns = 1;
        let mut index = Self::STEPS.len();
        while index > 0 && at.is_multiple_of(Self::STEPS[index - 1]) {
            index -= 1;
            step_ns = Self::STEPS[index];
        }
        Self {
            first_ns: at,
            last_ns: at,
            step_ns,
        }
    }

    fn add(&mut self, at: u64) {
        self.first_ns = self.first_ns.min(at);
        self.last_ns = self.last_ns.max(at);
        // The usual case is without a division: a clock of nanoseconds.
        if self.step_ns > 1 && !at.is_multiple_of(self.step_ns) {
            self.step_ns = self.step_ns.min(Self::of(at).step_ns);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.step_ns = self.step_ns.min(other.step_ns);
    }
}

/// The totals of all interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            interfaces: Vec::new(),
            received: 0,
            dropped: 0,
            held: 0,
            blocks_left_out: 0,
            last_bad: None,
            stopped: None,
            times: None,
            totals: Totals::default(),
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
            times,
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
        match (&mut self.times, times) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, theirs) => self.times = *theirs,
            (Some(_), None) => {}
        }
        self.totals += *totals;
    }

    /// Counts a packet with this time. 0 is that of a packet without one.
    pub(super) fn received_at(&mut self, at: u64) {
        self.received += 1;
        match &mut self.times {
            _ if at == 0 => {}
            Some(times) => times.add(at),
            None => self.times = Some(Times::of(at)),
        }
    }

    /// All interfaces as one, without name and link type. A flow on several of them counts once,
    /// and queues of the same number are one.
    #[must_use]
    pub fn total(&self) -> InterfaceReport {
        let mut total = InterfaceReport::of_queues(1);
        for seen in &self.interfaces {
            total.merge(seen);
        }
        total
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// Packets that the capture does not have whole, and that passed by.
    pub cut_short: u64,
    /// Packets that the capture does not have whole, or of which only the headers were looked at:
    /// their checksums are taken as correct.
    pub by_headers: u64,
    /// TCP packets without payload, and without a flag but ACK.
    pub pure_acks: u64,
    /// UDP datagrams, without fragments.
    pub udp: u64,
    /// Those of them from or to port 443, which is QUIC nearly always.
    pub quic: u64,
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
    /// The most packets that a queue held at once; a merged one counts once.
    pub held_max: u64,
    /// The delay that holding adds to each packet: from its arrival to the flush.
    pub delays: Delays,
    /// Each queue, if there are more than one.
    pub queues: Vec<QueueReport>,
    pub(super) flows: Flows,
}

impl InterfaceReport {
    pub(super) fn new(interface: &Interface<'_>, options: &[u8]) -> Self {
        Self {
            name: interface.name.map(str::to_owned),
            link: interface.link,
            snaplen: interface.snaplen,
            options: StableHash::new().with(options).finish(),
            ..Self::default()
        }
    }

    /// Nothing but the queues of one.
    pub(super) fn of_queues(queues: u16) -> Self {
        let interface = Interface {
            link: LinkCode(0),
            snaplen: 0,
            name: None,
        };
        let mut seen = Self::new(&interface, &[]);
        seen.set_queues(queues);
        seen
    }

    /// With this many queues, which are counted if there are more than one.
    pub(super) fn set_queues(&mut self, queues: u16) {
        if queues > 1 {
            self.queues = vec![QueueReport::default(); queues.into()];
        }
    }

    /// Whether both have the same description.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let described = |seen: &Self| (seen.link, seen.snaplen, seen.options);
        self.name == other.name && described(self) == described(other)
    }

    pub(super) fn merge(&mut self, other: &Self) {
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
            by_headers,
            pure_acks,
            udp,
            quic,
            other_link,
            no_length,
            unfinished,
            large,
            not_cut,
            stats,
            histogram,
            held_max,
            delays,
            queues,
            flows,
        } = other;
        self.frames += frames;
        self.bytes += bytes;
        self.captured_bytes += captured_bytes;
        self.records += records;
        self.record_bytes += record_bytes;
        self.cut_short += cut_short;
        self.by_headers += by_headers;
        self.pure_acks += pure_acks;
        self.udp += udp;
        self.quic += quic;
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
        self.delays.merge(delays);
        if self.queues.len() < queues.len() {
            self.queues.resize(queues.len(), QueueReport::default());
        }
        for (mine, queue) in self.queues.iter_mut().zip(queues) {
            mine.packets += queue.packets;
            mine.bytes += queue.bytes;
            mine.emitted += queue.emitted;
        }
        self.flows.merge(flows);
    }

    /// Counts a packet of `bytes` bytes on the wire that arrived in a queue.
    pub(super) fn arrived(&mut self, queue: u16, bytes: u32) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.packets += 1;
            queue.bytes += u64::from(bytes);
        }
    }

    /// Counts a packet of `packets` packets that left a queue's coalescer, or passed it by.
    pub(super) fn left(&mut self, queue: u16, packets: u64) {
        if let Some(queue) = self.queues.get_mut(usize::from(queue)) {
            queue.emitted += 1;
        }
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

    /// The packets of the busiest queue divided by the mean of all queues: 1 if the hash spreads
    /// packets evenly, the number of queues if all are in one. `None` with one queue, and without
    /// packets.
    #[must_use]
    pub fn skew(&self) -> Option<f64> {
        let packets = || self.queues.iter().map(|queue| queue.packets);
        let (most, sum) = (packets().max()?, packets().sum::<u64>());
        (sum > 0).then(|| most as f64 * self.queues.len() as f64 / sum as f64)
    }

    /// Packets that left the coalescer.
    #[must_use]
    pub fn emitted(&self) -> u64 {
        self.histogram.iter().sum()
    }

    /// Packets that were read for each one that is written, merged or not.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.frames as f64 / self.emitted().max(1) as f64
    }
}

/// The result for one queue of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct QueueReport {
    /// Packets that arrived.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that left, merged or not.
    pub emitted: u64,
}

/// The flow of the last packet: the next one is often of the same.
#[derive(Debug, Default)]
pub(super) struct LastFlow {
    /// Addresses; ports, protocol and IP version.
    key: [u64; 5],
    hash: u64,
}

impl LastFlow {
    /// A hash of the flow of a TCP or UDP packet, the same on every machine: addresses, ports and
    /// protocol. `None` for other packets, and for fragments.
    pub fn hash(&mut self, packet: &[u8], layout: &Layout) -> Option<u64> {
        let addresses = match layout.kind {
            Network::Ipv4 => 12..20,
            Network::Ipv6 => 8..40,
            _ => return None,
        };
        if layout.fragment || !matches!(layout.transport_kind, Transport::Tcp | Transport::Udp) {
            return None;
        }
        let network = usize::from(layout.network);
        let addresses = packet.get(network + addresses.start..network + addresses.end)?;
        let ports = packet.get(layout.transport.into()..)?.first_chunk::<4>()?;
        let mut key = [0; 5];
        for (word, part) in key.iter_mut().zip(addresses.as_chunks().0) {
            *word = u64::from_le_bytes(*part);
        }
        let kind = u64::from(layout.kind == Network::Ipv6) << 8 | u64::from(layout.protocol.0);
        key[4] = kind << 32 | u64::from(u32::from_le_bytes(*ports));
        // Word by word: a comparison of arrays waits until their parts are in memory.
        let differs = key
            .iter()
            .zip(&self.key)
            .fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 {
            self.key = key;
            let words = key.iter().take(addresses.len() / 8).chain(&key[4..]);
            let hash = words.fold(StableHash::new(), |hash, word| hash.with_word(*word));
            self.hash = hash.finish();
        }
        Some(self.hash)
    }
}

/// Counts flows by linear counting (Whang, Vander-Zanden and Taylor, 1990).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "Vec<(u32, u64)>", try_from = "Vec<(u32, u64)>")
)]
pub(super) struct Flows {
    /// A bit for each value of a hash; none before the first flow. Reports of many configurations
    /// share them.
    bits: Arc<Vec<u64>>,
    ones: u64,
}

impl Flows {
    const BITS: u64 = 1 << 20;

    /// Adds a flow by its [`LastFlow::hash`].
    pub(super) fn add(&mut self, hash: u64) {
        if self.bits.is_empty() {
            self.bits = Self::none();
        }
        let bit = hash % Self::BITS;
        let (index, mask) = ((bit / 64) as usize, 1 << (bit % 64));
        if self.bits[index] & mask == 0 {
            self.ones += 1;
            Arc::make_mut(&mut self.bits)[index] |= mask;
        }
    }

    fn none() -> Arc<Vec<u64>> {
        Arc::new(vec![0; (Self::BITS / 64) as usize])
    }

    fn merge(&mut self, other: &Self) {
        if self.bits.is_empty() {
            self.clone_from(other);
            return;
        }
        if other.bits.is_empty() {
            return;
        }
        let words = Arc::make_mut(&mut self.bits).iter_mut();
        for (word, more) in words.zip(&*other.bits) {
            self.ones += u64::from((more & !*word).count_ones());
            *word |= more;
        }
    }

    fn estimate(&self) -> u64 {
        let (all, zeros) = (Self::BITS as f64, (Self::BITS - self.ones).max(1) as f64);
        (all * (all / zeros).ln()).round() as u64
    }
}

/// The words that are not 0, each with its index.
#[cfg(feature = "serde")]
impl From<Flows> for Vec<(u32, u64)> {
    fn from(flows: Flows) -> Self {
        let words = (0..).zip(flows.bits.iter().copied());
        words.filter(|(_, word)| *word != 0).collect()
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Vec<(u32, u64)>> for Flows {
    type Error = &'static str;

    fn try_from(words: Vec<(u32, u64)>) -> Result<Self, Self::Error> {
        let mut flows = Self::default();
        if !words.is_empty() {
            flows.bits = Self::none();
        }
        for (index, word) in words {
            let place = Arc::make_mut(&mut flows.bits).get_mut(index as usize);
            *place.ok_or("a word of the flows is out of range")? |= word;
        }
        let ones = flows.bits.iter().map(|word| u64::from(word.count_ones()));
        flows.ones = ones.sum();
        Ok(flows)
    }
}
