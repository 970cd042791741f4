//! Packets whose every byte follows from a flow and a number, and what is known of them at the far
//! end: the oracle that uses no counter of packtrain.

use packtrain::packet::{Arena, FrameClass, Packet, PacketError, VlanTag};
use packtrain::stats::DropReason;
use packtrain_offload::checksum::{Sum, ipv4_header, pseudo_header_v4, pseudo_header_v6};
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use packtrain_offload::random::{Random, mix};
use packtrain_offload::segment::SegmentError;
use packtrain_offload::verify::{Verdict, verify_ipv4_header, verify_transport};
use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

/// The ports of flow `n` are this plus `n`, and this.
const PORT: u16 = 7_000;
/// The sequence number of the first byte of a TCP flow.
const FIRST: u32 = 0xffff_0000;
/// The start of each unit: the flow and the unit's number.
const UNIT_HEADER: usize = 6;
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Both Ethernet addresses. VLAN tags and the type follow.
const ADDRESSES: usize = 12;
/// The VLAN tags of frames with two: of IEEE 802.1ad and 802.1Q. Frames with one have the second.
const TAGS: [VlanTag; 2] = [
    VlanTag {
        protocol: 0x88a8,
        control: 0xe064,
    },
    VlanTag {
        protocol: 0x8100,
        control: 7,
    },
];
const SOURCE4: [u8; 4] = [198, 18, 0, 1];
const TARGET4: [u8; 4] = [198, 18, 0, 2];
const SOURCE6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const TARGET6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// What a flow consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Frames of 60 bytes that are not IP.
    Short,
    Tcp4,
    Udp4,
    Tcp6,
    Udp6,
    /// TCP without payload, each acknowledging more.
    Ack,
}

impl Kind {
    const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Tcp6 | Self::Ack)
    }

    const fn is_ipv6(self) -> bool {
        matches!(self, Self::Tcp6 | Self::Udp6)
    }

    const fn ethertype(self) -> [u8; 2] {
        match self {
            Self::Short => ETHERTYPE,
            Self::Tcp6 | Self::Udp6 => [0x86, 0xdd],
            Self::Tcp4 | Self::Udp4 | Self::Ack => [8, 0],
        }
    }

    const fn gso(self) -> GsoKind {
        match (self.is_tcp(), self.is_ipv6()) {
            (true, false) => GsoKind::TcpV4,
            (true, true) => GsoKind::TcpV6,
            (false, false) => GsoKind::UdpV4,
            (false, true) => GsoKind::UdpV6,
        }
    }
}

/// What an application says wrongly of a packet. The framework drops the packet, and no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// The checksum field is behind the end.
    Checksum,
    /// The GSO type is not that of the headers.
    Kind,
    /// The headers are longer than the packet.
    Headers,
    /// The IP packet is longer than the packet.
    Length,
    /// Each byte is the payload of a wire packet.
    Size,
}

impl Lie {
    pub(super) const ALL: [Self; 5] = [
        Self::Checksum,
        Self::Kind,
        Self::Headers,
        Self::Length,
        Self::Size,
    ];

    /// The reasons for which such a packet is dropped.
    pub(super) const fn reasons(self) -> &'static [DropReason] {
        match self {
            Self::Checksum => &[DropReason::BadChecksumPlace],
            Self::Kind => &[DropReason::Segment(SegmentError::Kind)],
            // The second for a device that needs all headers in one segment.
            Self::Headers => &[
                DropReason::Segment(SegmentError::Headers),
                DropReason::HeadersTooLong,
            ],
            Self::Length => &[DropReason::Segment(SegmentError::Length)],
            Self::Size => &[DropReason::Segment(SegmentError::TooManySegments)],
        }
    }
}

/// The first unit of a packet that has a [`Lie`], which no flow sends.
const UNSENT: u32 = 1 << 31;

/// A thread of an application, and what it sends. Its packets consist of units: the payload of one
/// wire packet each, with a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) kind: Kind,
    /// The same for all flows of a world.
    pub(super) link: LinkType,
    /// Payload bytes of a wire packet.
    pub(super) unit: usize,
    /// Wire packets of a packet: with more than one it is a GSO packet.
    pub(super) units: usize,
    /// Pieces of memory that the payload consists of.
    pub(super) pieces: usize,
    /// The device, or software on its behalf, completes the checksum.
    pub(super) partial: bool,
    /// A packet of one wire packet is a GSO packet too, of a size that is larger than its payload.
    pub(super) oversize: bool,
    /// Beside each burst there are packets with it.
    pub(super) lie: Option<Lie>,
    /// VLAN tags, and whether the first of them is in the metadata.
    pub(super) tags: usize,
    pub(super) beside: bool,
    /// Packets of a burst.
    pub(super) burst: usize,
    pub(super) bursts: u32,
    /// Between two bursts.
    pub(super) pace: Duration,
    pub(super) queue: usize,
    pub(super) from_forwarder: bool,
}

/// The payload of unit `number` of a flow.
fn content(flow: usize, number: u32, out: &mut [u8]) {
    let mut random = Random::new(mix((flow as u64) << 32 | u64::from(number)));
    if let Some((header, rest)) = out.split_at_mut_checked(UNIT_HEADER) {
        header[..2].copy_from_slice(&(flow as u16).to_be_bytes());
        header[2..].copy_from_slice(&number.to_be_bytes());
        random.fill(rest);
    }
}

impl Flow {
    /// The packet that begins with unit `first` of flow `number`.
    ///
    /// # Errors
    ///
    /// If the arena has no memory.
    pub(super) fn packet(
        &self,
        number: usize,
        first: u32,
        arena: &Arena,
        scratch: &mut Vec<u8>,
    ) -> Result<Packet, PacketError> {
        scratch.clear();
        let (beside, inside) = self
            .tags()
            .split_at(usize::from(self.beside && self.tags > 0));
        match self.link {
            LinkType::Ethernet => {
                scratch.extend_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                for tag in inside {
                    scratch.extend_from_slice(&tag.protocol.to_be_bytes());
                    scratch.extend_from_slice(&tag.control.to_be_bytes());
                }
                scratch.extend_from_slice(&self.kind.ethertype());
            }
            LinkType::Ipoib => {
                scratch.extend_from_slice(&self.kind.ethertype());
                scratch.extend_from_slice(&[0; 2]);
            }
            LinkType::RawIp => {}
        }
        let network = scratch.len();
        let payload = self.unit * self.units;
        let headers = match self.kind {
            Kind::Short => network,
            _ => self.headers(number, first, payload, scratch),
        };
        scratch.resize(headers + payload, 0);
        if self.unit > 0 {
            let units = scratch[headers..].chunks_mut(self.unit);
            for (unit, index) in units.zip(first..) {
                content(number, index, unit);
            }
        }
        if self.kind == Kind::Short {
            let mut packet = arena.packet_from(scratch)?;
            let meta = packet.meta_mut();
            (meta.link, meta.vlan) = (self.link, beside.first().copied());
            return Ok(packet);
        }
        let transport = network + if self.kind.is_ipv6() { 40 } else { 20 };
        let field = if self.kind.is_tcp() { 16 } else { 6 };
        if !self.partial {
            // The pseudo-header is summed in the field.
            let value = match Sum::finish(sum_of(&scratch[transport..])) {
                0 if !self.kind.is_tcp() => 0xffff,
                value => value,
            };
            let at = transport + field;
            scratch[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        let mut packet = match self.pieces {
            1 => arena.packet_from(scratch)?,
            pieces => {
                let mut packet = arena.packet_from(&scratch[..headers])?;
                let size = payload.div_ceil(pieces).max(1);
                for piece in scratch[headers..].chunks(size) {
                    let class = match piece.len() <= FrameClass::Small.data_bytes() {
                        true => FrameClass::Small,
                        false => FrameClass::Large,
                    };
                    packet.append_copy(class, piece)?;
                }
                packet
            }
        };
        let bytes = packet.bytes() as u32;
        let meta = packet.meta_mut();
        (meta.link, meta.vlan) = (self.link, beside.first().copied());
        meta.layout = Layout::parse(self.link, &scratch[..headers], bytes).ok();
        meta.checksum = match self.partial {
            true => ChecksumState::Partial {
                start: transport as u16,
                offset: field as u16,
            },
            false => ChecksumState::None,
        };
        if self.units > 1 {
            meta.gso = self.gso(self.unit);
            meta.wire_packets = self.units as u16;
        } else if self.oversize {
            meta.gso = self.gso(self.unit + 1);
        }
        Ok(packet)
    }

    /// The VLAN tags, the first of the frame first.
    fn tags(&self) -> &'static [VlanTag] {
        &TAGS[TAGS.len() - self.tags..]
    }

    fn gso(&self, size: usize) -> Option<Gso> {
        let size = NonZeroU16::new(size as u16)?;
        Some(Gso::new(self.kind.gso(), size))
    }

    /// A packet of flow `number` with `lie`.
    ///
    /// # Errors
    ///
    /// If the arena has no memory.
    pub(super) fn lying(
        &self,
        lie: Lie,
        number: usize,
        arena: &Arena,
        scratch: &mut Vec<u8>,
    ) -> Result<Packet, PacketError> {
        let honest = Self {
            kind: match lie {
                Lie::Size => Kind::Udp4,
                _ => Kind::Tcp4,
            },
            unit: 1_400,
            units: 2,
            partial: true,
            // A tag that is inserted has the headers parsed again.
            tags: 0,
            ..*self
        };
        let mut packet = honest.packet(number, UNSENT, arena, scratch)?;
        let bytes = packet.bytes() as u32;
        let meta = packet.meta_mut();
        meta.wire_packets = 1;
        match (lie, &mut meta.checksum, &mut meta.layout) {
            (Lie::Checksum, ChecksumState::Partial { offset, .. }, _) => {
                (*offset, meta.gso) = (bytes as u16, None);
            }
            (Lie::Kind, ..) => {
                let other = Self {
                    kind: Kind::Udp6,
                    ..honest
                };
                meta.gso = other.gso(honest.unit);
            }
            (Lie::Headers, _, Some(layout)) => layout.payload = u16::MAX,
            (Lie::Length, _, Some(layout)) => layout.ip_end = bytes + 1,
            (Lie::Size, ..) => meta.gso = honest.gso(1),
            // The headers were parsed, and the checksum is partial.
            (Lie::Checksum | Lie::Headers | Lie::Length, ..) => {}
        }
        Ok(packet)
    }

    /// Appends the headers of an IP packet with `payload` bytes behind them, the sum of the
    /// pseudo-header in the checksum field. Returns the bytes of all headers.
    fn headers(&self, number: usize, first: u32, payload: usize, out: &mut Vec<u8>) -> usize {
        let l4 = if self.kind.is_tcp() { 20 } else { 8 };
        let protocol = if self.kind.is_tcp() { 6 } else { 17 };
        let bytes = l4 + payload;
        let pseudo = if self.kind.is_ipv6() {
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&(bytes as u16).to_be_bytes());
            out.extend_from_slice(&[protocol, 64]);
            out.extend_from_slice(&SOURCE6);
            out.extend_from_slice(&TARGET6);
            pseudo_header_v6(SOURCE6, TARGET6, protocol, bytes as u32)
        } else {
            let network = out.len();
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&((20 + bytes) as u16).to_be_bytes());
            out.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
            out.extend_from_slice(&SOURCE4);
            out.extend_from_slice(&TARGET4);
            let check = ipv4_header(&out[network..]);
            out[network + 10..network + 12].copy_from_slice(&check.to_be_bytes());
            pseudo_header_v4(SOURCE4, TARGET4, protocol, bytes as u32)
        };
        let transport = out.len();
        out.extend_from_slice(&(PORT + number as u16).to_be_bytes());
        out.extend_from_slice(&PORT.to_be_bytes());
        if self.kind.is_tcp() {
            let ack = match self.kind {
                Kind::Ack => first.wrapping_add(1),
                _ => 1,
            };
            out.extend_from_slice(&self.sequence(first).to_be_bytes());
            out.extend_from_slice(&ack.to_be_bytes());
            // Five words; ACK; a window; no checksum, no urgent pointer.
            out.extend_from_slice(&[5 << 4, 0x10, 0x40, 0, 0, 0, 0, 0]);
        } else {
            out.extend_from_slice(&(bytes as u16).to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        }
        let field = transport + if self.kind.is_tcp() { 16 } else { 6 };
        out[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        out.len()
    }

    /// The TCP sequence number of unit `first`.
    const fn sequence(&self, first: u32) -> u32 {
        FIRST.wrapping_add(first.wrapping_mul(self.unit as u32))
    }
}

/// The VLAN tags of a packet, in its metadata and its bytes, and where the type behind them begins.
fn tags_of(packet: &Packet, bytes: &[u8], link: LinkType) -> (Vec<VlanTag>, usize) {
    let mut tags: Vec<_> = packet.meta().vlan.into_iter().collect();
    if link != LinkType::Ethernet {
        return (tags, 0);
    }
    let mut at = ADDRESSES;
    while let Some(&[p, q, c, d]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let protocol = u16::from_be_bytes([p, q]);
        if TAGS.iter().all(|tag| tag.protocol != protocol) {
            break;
        }
        let control = u16::from_be_bytes([c, d]);
        tags.push(VlanTag { protocol, control });
        at += 4;
    }
    (tags, at)
}

fn sum_of(bytes: &[u8]) -> Sum {
    let mut sum = Sum::new();
    sum.add(bytes);
    sum
}

/// What is wrong. Shrinking keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The framework panicked.
    Panic,
    /// A worker slept though it had packets to move.
    Wakeup,
    /// A session did not start, or a worker ended with an error.
    Error,
    /// A packet arrived that was not sent, or with other bytes.
    Bytes,
    /// A checksum is wrong.
    Checksum,
    /// A packet arrived behind a later one of its flow.
    Order,
    /// A packet arrived twice.
    Twice,
    /// Packets are missing, or there are too many.
    Lost,
    /// A packet was dropped for a reason that no fault of the world explains.
    Drop,
    /// A device was given a packet that it cannot take.
    Unfit,
    /// A ledger is not closed, or holds packets.
    Ledger,
    /// A counter is not what was counted independently.
    Counter,
    /// Memory was not given back.
    Memory,
    /// After the faults, packets do not arrive in time.
    Stuck,
    /// A worker does not end.
    End,
}

impl Wrong {
    /// A word for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Wakeup => "lost wake-up",
            Self::Error => "error",
            Self::Bytes => "bytes",
            Self::Checksum => "checksum",
            Self::Order => "order",
            Self::Twice => "twice",
            Self::Lost => "lost",
            Self::Drop => "drop",
            Self::Unfit => "unfit",
            Self::Ledger => "ledger",
            Self::Counter => "counter",
            Self::Memory => "memory",
            Self::Stuck => "stuck",
            Self::End => "end",
        }
    }
}

/// Why a world failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub wrong: Wrong,
    /// The same in a line, with figures.
    pub line: String,
}

impl Failure {
    pub(super) fn new(wrong: Wrong, line: impl Into<String>) -> Self {
        let line = line.into();
        Self { wrong, line }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.wrong.name(), self.line)
    }
}

/// The faults of wires that may change what arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    pub(super) twice: bool,
    pub(super) order: bool,
    pub(super) corrupt: bool,
    /// Pure ACKs may be merged.
    pub(super) absorb: bool,
}

/// What is known of a flow.
#[derive(Debug)]
struct Known {
    flow: Flow,
    /// Units that the TX queue has accepted.
    sent: u32,
    /// Packets with a lie that it has accepted.
    lies: u32,
    /// A bit for each unit that has arrived.
    seen: Vec<u64>,
    /// One more than the last unit that arrived.
    next: u32,
    arrived: u64,
}

/// What was sent, and what has arrived.
#[derive(Debug)]
pub(super) struct Truth {
    allowed: Allowed,
    flows: Vec<Known>,
    /// The first failure.
    failure: Option<Failure>,
    /// Packets that have arrived, and the wire packets that they account for.
    pub(super) packets: u64,
    pub(super) wire_packets: u64,
    pub(super) bytes: u64,
    /// Wire packets that arrived damaged.
    pub(super) damaged: u64,
    /// Units that arrived again.
    pub(super) again: u64,
    bytes_of: Vec<u8>,
    expected: Vec<u8>,
}

impl Truth {
    pub(super) fn new(flows: &[Flow], allowed: Allowed) -> Self {
        let known = |&flow: &Flow| Known {
            flow,
            sent: 0,
            lies: 0,
            seen: Vec::new(),
            next: 0,
            arrived: 0,
        };
        Self {
            allowed,
            flows: flows.iter().map(known).collect(),
            failure: None,
            packets: 0,
            wire_packets: 0,
            bytes: 0,
            damaged: 0,
            again: 0,
            bytes_of: Vec::new(),
            expected: Vec::new(),
        }
    }

    pub(super) const fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// A TX queue has accepted so many packets of a flow, and so many with a lie.
    pub(super) fn sent(&mut self, flow: usize, packets: usize, lies: usize) {
        let known = &mut self.flows[flow];
        known.sent += (packets * known.flow.units) as u32;
        known.lies += lies as u32;
    }

    /// Wire packets that TX queues have accepted from flows of the forwarder, or from the others.
    pub(super) fn accepted(&self, from_forwarder: bool) -> u64 {
        let flows = self.flows.iter();
        let flows = flows.filter(|known| known.flow.from_forwarder == from_forwarder);
        flows.map(|known| u64::from(known.sent + known.lies)).sum()
    }

    /// Packets among these whose lie is dropped for `reason`.
    pub(super) fn lies(&self, from_forwarder: bool, reason: DropReason) -> u64 {
        let flows = self.flows.iter().filter(|known| {
            let mut lie = known.flow.lie.iter();
            let drops = lie.any(|lie| lie.reasons().contains(&reason));
            known.flow.from_forwarder == from_forwarder && drops
        });
        flows.map(|known| u64::from(known.lies)).sum()
    }

    /// Wire packets that are too long for a port which has an MTU, of the flows that pass it, and
    /// packets with a lie, which say that they are longer.
    pub(super) fn too_long(
        &self,
        is_long: impl Fn(&Flow) -> bool,
        passes: impl Fn(&Flow) -> bool,
    ) -> u64 {
        let flows = self.flows.iter().filter(|known| passes(&known.flow));
        let flows = flows.map(|known| {
            let sent = if is_long(&known.flow) { known.sent } else { 0 };
            // Where each byte is a wire packet, none is long.
            let lies = match known.flow.lie {
                None | Some(Lie::Size) => 0,
                Some(_) => known.lies,
            };
            u64::from(sent + lies)
        });
        flows.sum()
    }

    /// Units of all flows that have arrived, each once.
    pub(super) fn arrived(&self) -> u64 {
        self.flows.iter().map(|known| known.arrived).sum()
    }

    /// Units of a flow that have arrived.
    pub(super) fn arrived_of(&self, flow: usize) -> u64 {
        self.flows[flow].arrived
    }

    /// Units that a flow has sent.
    pub(super) fn sent_by(&self, flow: usize) -> u32 {
        self.flows[flow].sent
    }

    /// Whether a unit of a flow has arrived.
    pub(super) fn has(&self, flow: usize, unit: u32) -> bool {
        let known = &self.flows[flow];
        let word = known.seen.get(unit as usize / 64);
        let merged = known.flow.kind == Kind::Ack && self.allowed.absorb && unit < known.next;
        merged || word.is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// A packet has arrived.
    pub(super) fn take(&mut self, packet: &Packet) {
        let wire_packets = u64::from(packet.meta().wire_packets);
        self.packets += 1;
        self.wire_packets += wire_packets;
        self.bytes += packet.bytes() as u64;
        let mut bytes = std::mem::take(&mut self.bytes_of);
        let checked = if packet.segment_count() == 1 {
            self.check(packet, packet.first())
        } else {
            bytes.resize(packet.bytes(), 0);
            packet.copy_to(&mut bytes);
            self.check(packet, &bytes)
        };
        self.bytes_of = bytes;
        match checked {
            Ok(()) => {}
            Err(Failure {
                wrong: Wrong::Bytes | Wrong::Checksum,
                ..
            }) if self.allowed.corrupt => self.damaged += wire_packets,
            Err(failure) => {
                self.failure.get_or_insert(failure);
            }
        }
    }

    fn check(&mut self, packet: &Packet, bytes: &[u8]) -> Result<(), Failure> {
        let wrong = |line: String| Failure::new(Wrong::Bytes, line);
        let link = self
            .flows
            .first()
            .map_or(LinkType::Ethernet, |it| it.flow.link);
        let (tags, at) = tags_of(packet, bytes, link);
        let typed = bytes.get(at..).and_then(<[u8]>::first_chunk) == Some(&ETHERTYPE);
        if typed && link != LinkType::RawIp {
            let network = at + if link == LinkType::Ipoib { 4 } else { 2 };
            let payload = bytes.get(network..).unwrap_or_default();
            return self.units(packet, &tags, Kind::Short, payload, None);
        }
        let layout = Layout::parse(link, bytes, bytes.len() as u32)
            .map_err(|error| wrong(format!("a packet does not parse: {error:?}")))?;
        let transport = usize::from(layout.transport);
        let payload = bytes
            .get(usize::from(layout.payload)..layout.ip_end as usize)
            .ok_or_else(|| wrong("a packet ends before its payload".to_owned()))?;
        let kind = match (layout.kind, layout.transport_kind) {
            (Network::Ipv4, Transport::Tcp) if payload.is_empty() => Kind::Ack,
            (Network::Ipv4, Transport::Tcp) => Kind::Tcp4,
            (Network::Ipv6, Transport::Tcp) => Kind::Tcp6,
            (Network::Ipv4, Transport::Udp) => Kind::Udp4,
            (Network::Ipv6, Transport::Udp) => Kind::Udp6,
            other => return Err(wrong(format!("a packet of {other:?} was not sent"))),
        };
        let is_whole = matches!(
            packet.meta().checksum,
            ChecksumState::None | ChecksumState::Unnecessary
        );
        let header = verify_ipv4_header(bytes, &layout);
        if header == Verdict::Invalid {
            return Err(Failure::new(Wrong::Checksum, "an IPv4 header's is wrong"));
        }
        if is_whole && packet.meta().gso.is_none() && !verify_transport(bytes, &layout).is_valid() {
            let line = format!("a packet of {kind:?} has a wrong one: {:?}", packet.meta());
            return Err(Failure::new(Wrong::Checksum, line));
        }
        let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if port(transport + 2) != PORT {
            return Err(wrong("a packet goes to another port".to_owned()));
        }
        let number = |at: usize| {
            let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_be_bytes(bytes)
        };
        if kind != Kind::Ack {
            let sequence = kind.is_tcp().then(|| number(transport + 4));
            return self.units(packet, &tags, kind, payload, sequence);
        }
        let flow = usize::from(port(transport).wrapping_sub(PORT));
        let last = number(transport + 8).wrapping_sub(1);
        let known = self.flows.get(flow).filter(|it| it.flow.kind == kind);
        if known.is_none_or(|known| last >= known.sent || known.flow.tags() != tags) {
            return Err(wrong(format!("an ACK {last} of flow {flow} was not sent")));
        }
        self.unit(flow, last)
    }

    /// The payload of a packet: units of one flow. In TCP one follows the other; datagrams may be
    /// merged in any order that a wire made of them.
    fn units(
        &mut self,
        packet: &Packet,
        tags: &[VlanTag],
        kind: Kind,
        payload: &[u8],
        sequence: Option<u32>,
    ) -> Result<(), Failure> {
        let wrong = |line: String| Failure::new(Wrong::Bytes, line);
        let header = |unit: &[u8]| {
            let header = unit.first_chunk::<UNIT_HEADER>();
            header.map(|&[a, b, c, d, e, f]| {
                let flow = usize::from(u16::from_be_bytes([a, b]));
                (flow, u32::from_be_bytes([c, d, e, f]))
            })
        };
        let (flow, first) = header(payload)
            .ok_or_else(|| wrong(format!("a payload of {} bytes", payload.len())))?;
        let Some(known) = self.flows.get(flow).filter(|it| it.flow.kind == kind) else {
            return Err(wrong(format!("there is no flow {flow} of {kind:?}")));
        };
        let of = known.flow;
        if of.tags() != tags {
            return Err(wrong(format!("a packet of flow {flow} has {tags:?}")));
        }
        let (units, sent) = (payload.len() / of.unit, known.sent);
        if !payload.len().is_multiple_of(of.unit) {
            let line = format!("{} bytes of flow {flow}", payload.len());
            return Err(wrong(line));
        }
        if sequence.is_some_and(|sequence| sequence != of.sequence(first)) {
            return Err(wrong(format!("unit {first} of flow {flow} is misplaced")));
        }
        let meta = packet.meta();
        let cut = meta.gso.map(|gso| usize::from(gso.size.get()));
        if usize::from(meta.wire_packets) != units || units > 1 && cut != Some(of.unit) {
            let line = format!("{units} units of flow {flow} as {meta:?}");
            return Err(Failure::new(Wrong::Counter, line));
        }
        let mut expected = std::mem::take(&mut self.expected);
        expected.resize(of.unit, 0);
        let mut numbers = Vec::new();
        for (unit, next) in payload.chunks(of.unit).zip(first..) {
            let number = match kind.is_tcp() {
                true => next,
                false => header(unit).map_or(u32::MAX, |(_, number)| number),
            };
            content(flow, number, &mut expected);
            if number >= sent || unit != expected {
                let line = format!("unit {number} of flow {flow}, behind {first}, is not as sent");
                self.expected = expected;
                return Err(wrong(line));
            }
            numbers.push(number);
        }
        self.expected = expected;
        numbers
            .into_iter()
            .try_for_each(|number| self.unit(flow, number))
    }

    /// One unit has arrived.
    fn unit(&mut self, flow: usize, number: u32) -> Result<(), Failure> {
        let known = &mut self.flows[flow];
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if known.seen.len() <= word {
            known.seen.resize(word + 1, 0);
        }
        if known.seen[word] & bit != 0 {
            self.again += 1;
            return match self.allowed.twice {
                true => Ok(()),
                false => {
                    let line = format!("unit {number} of flow {flow}");
                    Err(Failure::new(Wrong::Twice, line))
                }
            };
        }
        known.seen[word] |= bit;
        known.arrived += 1;
        if number < known.next && !self.allowed.order {
            let line = format!("unit {number} of flow {flow} is behind {}", known.next - 1);
            return Err(Failure::new(Wrong::Order, line));
        }
        known.next = known.next.max(number + 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain::packet::ArenaConfig;

    fn flow(kind: Kind, units: usize) -> Flow {
        Flow {
            kind,
            link: LinkType::Ethernet,
            unit: match kind {
                Kind::Short => 46,
                Kind::Ack => 0,
                _ => 700,
            },
            units,
            pieces: 2,
            partial: units > 1,
            oversize: false,
            lie: None,
            tags: 0,
            beside: false,
            burst: 1,
            bursts: 1,
            pace: Duration::ZERO,
            queue: 0,
            from_forwarder: false,
        }
    }

    const KINDS: [Kind; 6] = [
        Kind::Short,
        Kind::Tcp4,
        Kind::Udp4,
        Kind::Tcp6,
        Kind::Udp6,
        Kind::Ack,
    ];

    /// Packets of one flow with these first units, and what the truth says then.
    fn truth(flow: Flow, firsts: &[u32], change: impl Fn(&mut Packet)) -> Truth {
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        let mut truth = Truth::new(&[flow], Allowed::default());
        truth.sent(0, 8, 0);
        for &first in firsts {
            let packet = flow.packet(0, first, &arena, &mut Vec::new());
            let mut packet = packet.expect("memory");
            change(&mut packet);
            truth.take(&packet);
        }
        truth
    }

    fn wrong(truth: &Truth) -> Option<Wrong> {
        truth.failure().map(|failure| failure.wrong)
    }

    #[test]
    fn packets_as_they_were_sent_are_right() {
        for kind in KINDS {
            let truth = truth(flow(kind, 1), &[0, 1, 5], |_| {});
            assert_eq!(truth.failure(), None);
            assert_eq!((truth.arrived(), truth.has(0, 5)), (3, true));
        }
        let truth = truth(flow(Kind::Tcp4, 8), &[0, 8], |_| {});
        assert_eq!((truth.failure(), truth.arrived()), (None, 16));
    }

    #[test]
    fn packets_of_any_link_are_right() {
        for (kind, link) in [
            (Kind::Short, LinkType::Ipoib),
            (Kind::Tcp4, LinkType::Ipoib),
            (Kind::Udp6, LinkType::Ipoib),
            (Kind::Tcp4, LinkType::RawIp),
            (Kind::Ack, LinkType::RawIp),
            (Kind::Udp6, LinkType::RawIp),
        ] {
            let of = Flow {
                link,
                ..flow(kind, 1)
            };
            let truth = truth(of, &[0, 1], |_| {});
            assert_eq!(
                (truth.failure(), truth.arrived()),
                (None, 2),
                "{kind:?} {link:?}"
            );
        }
    }

    #[test]
    fn tags_are_as_they_were_sent() {
        for kind in KINDS {
            for (tags, beside) in [(1, false), (1, true), (2, false), (2, true)] {
                let tagged = Flow {
                    tags,
                    beside,
                    ..flow(kind, 1)
                };
                assert_eq!(truth(tagged, &[0, 1], |_| {}).failure(), None, "{kind:?}");
                let other = VlanTag {
                    protocol: 0x8100,
                    control: 9,
                };
                let retags = |packet: &mut Packet| packet.meta_mut().vlan = Some(other);
                assert_eq!(wrong(&truth(tagged, &[0], retags)), Some(Wrong::Bytes));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found() {
        for kind in KINDS {
            let flips = |packet: &mut Packet| {
                let bytes = packet.bytes();
                if bytes > 54 {
                    packet.truncate(bytes - 1);
                    packet.append_copy(FrameClass::Small, &[0xa5]).unwrap();
                } else {
                    packet.headers_mut(54).unwrap()[45] ^= 4;
                }
            };
            let found = wrong(&truth(flow(kind, 1), &[0], flips));
            assert!(
                matches!(found, Some(Wrong::Bytes | Wrong::Checksum)),
                "{kind:?}: {found:?}"
            );
        }
    }

    #[test]
    fn order_and_repetition_are_found() {
        for kind in KINDS {
            let late = truth(flow(kind, 1), &[0, 2, 1], |_| {});
            assert_eq!(wrong(&late), Some(Wrong::Order));
            let twice = truth(flow(kind, 1), &[0, 0], |_| {});
            assert_eq!(wrong(&twice), Some(Wrong::Twice));
            let unsent = truth(flow(kind, 1), &[8], |_| {});
            assert_eq!(wrong(&unsent), Some(Wrong::Bytes));
        }
    }

    #[test]
    fn a_wrong_count_is_found() {
        let miscounts = |packet: &mut Packet| packet.meta_mut().wire_packets = 7;
        let found = truth(flow(Kind::Udp4, 8), &[0], miscounts);
        assert_eq!(wrong(&found), Some(Wrong::Counter));
    }
}
