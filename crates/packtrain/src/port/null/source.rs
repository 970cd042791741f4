//! Generated packets: each continues the one before, and each run makes the same ones.

use crate::driver::{Attach, RxBuffers};
use crate::limits::{BURST_BYTES_MAX, BURST_PACKETS_MAX};
use crate::packet::{FrameClass, Packet};
use packtrain_offload::checksum::{self, Sum};
use packtrain_offload::limits::{
    ETHERNET_HEADER_BYTES, IP_LENGTH_MAX, IPV4_HEADER_BYTES_MIN, TCP_HEADER_BYTES_MIN,
    UDP_HEADER_BYTES,
};
use packtrain_offload::offload::LinkType;
use std::ops::RangeInclusive;

/// Bytes of the number at the start of each UDP payload: 64 bits, big-endian.
pub const NUMBER_BYTES: usize = 8;
/// Shortest packet that a source makes: a numbered datagram without a link header.
pub const FRAME_BYTES_MIN: usize = IPV4_HEADER_BYTES_MIN + UDP_HEADER_BYTES + NUMBER_BYTES;
/// A minimal Ethernet frame without its FCS.
const ETHERNET_BYTES_MIN: usize = 60;
/// Longest packet: one behind an Ethernet header.
pub const FRAME_BYTES_MAX: usize = ETHERNET_HEADER_BYTES + IP_LENGTH_MAX;
/// Most flows of a source.
pub const FLOWS_MAX: usize = 100_000;
/// Most packets of a flow in a train.
pub const TRAIN_MAX: usize = 4096;
/// Most packets of which one may be an ACK.
pub const ACKS_EACH_MAX: u64 = 1_000_000;
/// Most packets in a hundred that may be out of order: one of each two.
pub const OUT_OF_ORDER_MAX: u8 = 50;

/// The transport header. As the offsets below, it counts from the IP header.
pub(super) const L4: usize = IPV4_HEADER_BYTES_MIN;
pub(super) const FIRST_PORT: u16 = 1024;
/// Flows from one source address, each from a port of its own.
pub(super) const PORTS: usize = 65_536 - FIRST_PORT as usize;
/// The discard service (RFC 863).
const DESTINATION_PORT: u16 = 9;
/// Two NOPs and the timestamps (RFC 7323 appendix A).
const TIMESTAMPS_BYTES: usize = 12;
/// Packets of a flow with the same timestamp, as a power of two.
const TICK_SHIFT: u32 = 6;
/// Bytes that an ACK acknowledges: two full-sized segments (RFC 9293 §3.8.6.3).
const ACKNOWLEDGED_BYTES: u64 = 2 * 1460;

/// The kind of packets that a source makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// UDP datagrams. The payload starts with the packet's number in its flow.
    #[default]
    Udp,
    /// TCP segments with data.
    Tcp,
    /// TCP segments without data. Each acknowledges two more full-sized segments.
    Ack,
}

impl Protocol {
    /// Permitted lengths of a packet: link, IP and transport header, and at least one byte of data
    /// except for an ACK; at least 60 on Ethernet.
    #[must_use]
    pub const fn frame_bytes(self, link: LinkType, timestamps: bool) -> RangeInclusive<usize> {
        let headers = link.header_bytes() + L4 + self.header_bytes(timestamps);
        let least = match self {
            Self::Udp => headers + NUMBER_BYTES,
            Self::Tcp => headers + 1,
            Self::Ack => headers,
        };
        let least = match link {
            LinkType::Ethernet if least < ETHERNET_BYTES_MIN => ETHERNET_BYTES_MIN,
            _ => least,
        };
        match self {
            Self::Udp | Self::Tcp => least..=link.header_bytes() + IP_LENGTH_MAX,
            Self::Ack => least..=least,
        }
    }

    /// The default length of a packet: the shortest, or for TCP the length that fits an MTU of 1500
    /// bytes.
    #[must_use]
    pub const fn frame_bytes_usual(self, link: LinkType, timestamps: bool) -> usize {
        match self {
            Self::Udp | Self::Ack => *self.frame_bytes(link, timestamps).start(),
            Self::Tcp => link.header_bytes() + 1500,
        }
    }

    /// Bytes of the transport header.
    pub(super) const fn header_bytes(self, timestamps: bool) -> usize {
        match self {
            Self::Udp => UDP_HEADER_BYTES,
            Self::Tcp | Self::Ack if timestamps => TCP_HEADER_BYTES_MIN + TIMESTAMPS_BYTES,
            Self::Tcp | Self::Ack => TCP_HEADER_BYTES_MIN,
        }
    }

    /// The number of the protocol in an IP header.
    const fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp | Self::Ack => 6,
        }
    }

    /// Where the transport checksum is.
    const fn checksum_at(self) -> usize {
        match self {
            Self::Udp => L4 + 6,
            Self::Tcp | Self::Ack => L4 + 16,
        }
    }
}

/// The settings of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The kind of packets.
    pub protocol: Protocol,
    /// Bytes of each packet, link header included, no FCS: within [`Protocol::frame_bytes`].
    pub bytes: usize,
    /// Flows, from 1 to [`FLOWS_MAX`], rounded up to a multiple of the number of queues. Flow `i`
    /// is always on queue `i` modulo the number of queues. Its source port is 1024 + `i`; after
    /// port 65 535 the next source address follows.
    pub flows: usize,
    /// Flows of a queue that alternate at a time, 1 to [`FLOWS_MAX`], as connections whose bursts
    /// arrive together: after a train of each, the next as many follow. The flows of a queue are
    /// rounded up to a multiple of it. `None`: all flows alternate.
    pub active: Option<usize>,
    /// Packets of each of the active flows, before the next ones: 1 to [`TRAIN_MAX`].
    pub train: usize,
    /// Frames to make, over all queues; `None` for no limit.
    pub count: Option<u64>,
    /// Packets that one poll of a queue receives at most, 1 to [`BURST_PACKETS_MAX`].
    pub burst: usize,
    /// TCP packets have timestamps, which increase every 64 packets of a flow. UDP ignores it.
    pub timestamps: bool,
    /// Of a hundred packets of a flow, the number that come right after the packet that follows
    /// them, 0 to [`OUT_OF_ORDER_MAX`].
    pub out_of_order: u8,
    /// On each queue one of this many packets, 2 to [`ACKS_EACH_MAX`], is a pure ACK of one more
    /// flow: a connection that mostly transmits, beside unrelated data.
    pub acks: Option<u64>,
    /// Packets of one frame keep the bytes that the frame has, so that a count is of the framework
    /// alone. Without effect with `acks`.
    pub blank: bool,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            protocol: Protocol::Udp,
            bytes: ETHERNET_BYTES_MIN,
            flows: 1,
            active: None,
            train: 1,
            count: None,
            burst: BURST_PACKETS_MAX,
            timestamps: false,
            out_of_order: 0,
            acks: None,
            blank: false,
        }
    }
}

impl Source {
    /// A description for the user.
    pub(super) fn described(&self) -> String {
        let what = match self.protocol {
            _ if self.blank && self.acks.is_none() => "unwritten packets",
            Protocol::Udp => "UDP datagrams",
            Protocol::Tcp => "TCP segments",
            Protocol::Ack => "TCP ACKs",
        };
        let (bytes, flows, share) = (self.bytes, self.flows, self.out_of_order);
        let timestamps = if self.timestamps && self.protocol != Protocol::Udp {
            " with timestamps"
        } else {
            ""
        };
        let mut text = format!("makes {what} of {bytes} bytes{timestamps}; flows: {flows}");
        if let Some(active) = self.active {
            let train = self.train;
            text.push_str(&format!("; {active} at a time, in trains of {train}"));
        }
        if self.burst < BURST_PACKETS_MAX {
            text.push_str(&format!("; at most {} in a poll", self.burst));
        }
        if share > 0 {
            text.push_str(&format!("; out of order: {share} % of each"));
        }
        if let Some(each) = self.acks {
            text.push_str(&format!(
                "; one of {each} packets is an ACK of one more flow"
            ));
        }
        text
    }
}

/// Makes the frames of one queue.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) source: Source,
    /// Bytes of the link header.
    link: usize,
    /// A whole packet. Everything that [`Generator::fill_in`] fills in is zero, except for the
    /// source address, and both checksums are right for that.
    template: Vec<u8>,
    /// Of the template.
    ip_check: u16,
    check: u16,
    /// The buffers that a frame is made in.
    pub(super) class: FrameClass,
    /// Bytes of a frame in one buffer.
    piece: usize,
    queue: usize,
    queues: usize,
    /// Flows of this queue: a multiple of `active`.
    flows: u64,
    active: u64,
    train: u64,
    pub(super) made: u64,
    count: Option<u64>,
    /// The number of the first flow.
    first: usize,
    /// Makes the packets that are ACKs of one more flow.
    acks: Option<Box<Self>>,
}

impl Generator {
    pub(super) fn new(source: Source, link: LinkType, queue: usize, how: &Attach) -> Self {
        let (queue64, queues64) = (queue as u64, how.queues as u64);
        let share = |count: u64| count / queues64 + u64::from(queue64 < count % queues64);
        let small = source.bytes <= FrameClass::Small.data_bytes();
        let class = if small || how.rx_buffers != RxBuffers::Whole {
            FrameClass::Small
        } else {
            FrameClass::Large
        };
        let template = template(&source, link);
        let link_bytes = link.header_bytes();
        let ip = &template[link_bytes..];
        let at = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let flows = source.flows.div_ceil(how.queues);
        let active = source.active.map_or(flows, |active| active.min(flows));
        let flows = flows.next_multiple_of(active);
        let count = source.count.map(share);
        // An ACK is the last one of as many packets.
        let acked = count.map(|count| source.acks.map_or(0, |each| count / each));
        let acks = source.acks.map(|_| {
            let protocol = Protocol::Ack;
            let alone = Source {
                protocol,
                bytes: protocol.frame_bytes_usual(link, source.timestamps),
                timestamps: source.timestamps,
                flows: how.queues,
                ..Source::default()
            };
            Box::new(Self {
                count: acked,
                first: flows * how.queues,
                ..Self::new(alone, link, queue, how)
            })
        });
        Self {
            ip_check: at(IP_CHECKSUM),
            check: at(source.protocol.checksum_at()),
            link: link_bytes,
            template,
            class,
            piece: match class {
                FrameClass::Small => how.rx_buffers.small_bytes(),
                FrameClass::Large => class.data_bytes(),
            },
            queue,
            queues: how.queues,
            flows: flows as u64,
            active: active as u64,
            train: source.train as u64,
            made: 0,
            count: count.zip(acked).map(|(count, acked)| count - acked),
            first: 0,
            acks,
            source,
        }
    }

    /// Packets that are still to be made.
    pub(super) fn left(&self) -> u64 {
        let own = self
            .count
            .map_or(u64::MAX, |count| count.saturating_sub(self.made));
        own.saturating_add(self.acks.as_ref().map_or(0, |acks| acks.left()))
    }

    /// Buffers of one frame.
    const fn pieces(&self) -> usize {
        self.template.len().div_ceil(self.piece)
    }

    /// Buffers of the frames that fit a burst: at most two for each of its packets.
    pub(super) fn posted(&self) -> usize {
        let packets = BURST_BYTES_MAX.div_ceil(self.template.len());
        packets.min(BURST_PACKETS_MAX) * self.pieces()
    }

    /// The next frame, in some of `buffers`; `None` if there are too few.
    pub(super) fn next(&mut self, buffers: &mut Vec<Packet>) -> Option<Packet> {
        if self.source.blank && self.acks.is_none() && self.template.len() <= self.piece {
            let mut packet = buffers.pop()?;
            packet.grow(self.template.len()).ok()?;
            self.made += 1;
            return Some(packet);
        }
        if let Some((each, acks)) = self.source.acks.zip(self.acks.as_mut())
            && self.made / (each - 1) > acks.made
        {
            return acks.next(buffers);
        }
        if buffers.len() < self.pieces() {
            return None;
        }
        let mut pieces = self.template.chunks(self.piece);
        let mut packet = filled(buffers, pieces.next()?, |bytes| {
            self.fill_in(&mut bytes[self.link..]);
        })?;
        for piece in pieces {
            packet.append(filled(buffers, piece, |_| ())?).ok()?;
        }
        self.made += 1;
        Some(packet)
    }

    /// The flow of the next packet, as its index within this queue, and its place in the flow.
    const fn next_place(&self) -> (u64, u64) {
        let (made, flows, active) = (self.made, self.flows, self.active);
        if active == flows {
            return (made % flows, made / flows);
        }
        let (block, groups) = (active * self.train, flows / active);
        let (blocks, rest) = (made / block, made % block);
        let flow = blocks % groups * active + rest % active;
        (flow, blocks / groups * self.train + rest / active)
    }

    /// How many packets come before the one at `place` in `flow`.
    const fn index_of(&self, flow: u64, place: u64) -> u64 {
        let (active, train) = (self.active, self.train);
        let blocks = place / train * (self.flows / active) + flow / active;
        let rest = place % train * active + flow % active;
        blocks.saturating_mul(active * train).saturating_add(rest)
    }

    /// The number, within its flow, of the packet at `place` in the flow: `place`, unless the
    /// packet is one of two that are swapped. `flow` is the flow's index within this queue.
    fn number(&self, place: u64, flow: u64) -> u64 {
        // Of fifty pairs of packets, as many are swapped as the setting names for a hundred
        // packets.
        let (pairs, share) = (
            u64::from(OUT_OF_ORDER_MAX),
            u64::from(self.source.out_of_order),
        );
        let pair = place / 2 % pairs;
        let swapped = (pair + 1) * share / pairs > pair * share / pairs;
        let other = place ^ 1;
        // The last packet of a flow may have no partner.
        let is_made = |count| self.index_of(flow, other) < count;
        if swapped && self.count.is_none_or(is_made) {
            other
        } else {
            place
        }
    }

    /// Fills in the fields that differ between packets. `packet` is the start of one, from its IP
    /// header on, with all headers.
    fn fill_in(&self, packet: &mut [u8]) {
        let Source {
            protocol,
            timestamps,
            ..
        } = self.source;
        // Counted per flow, so that a receiver of one flow alone can count its losses.
        let (flow, place) = self.next_place();
        let number = self.number(place, flow);
        let index = self.first + flow as usize * self.queues + self.queue;
        let (host, port) = ((index / PORTS) as u16, FIRST_PORT + (index % PORTS) as u16);
        let address = FIRST_HOST + host;
        let id = number as u16;
        put16(packet, IP_ID, id);
        put16(packet, IP_SOURCE_LOW, address);
        let ip_check = checksum::update_u16(self.ip_check, 0, id);
        let ip_check = checksum::update_u16(ip_check, FIRST_HOST, address);
        put16(packet, IP_CHECKSUM, ip_check);
        put16(packet, L4, port);
        let check = checksum::update_u16(self.check, FIRST_HOST, address);
        let mut check = checksum::update_u16(check, 0, port);
        let mut put32 = |at: usize, word: u32| {
            packet[at..at + 4].copy_from_slice(&word.to_be_bytes());
            check = checksum::update_u32(check, 0, word);
        };
        let headers = L4 + protocol.header_bytes(timestamps);
        match protocol {
            Protocol::Udp => {
                put32(headers, (number >> 32) as u32);
                put32(headers + 4, number as u32);
            }
            Protocol::Tcp => {
                let payload = (self.template.len() - self.link - headers) as u64;
                put32(L4 + 4, number.wrapping_mul(payload) as u32);
            }
            Protocol::Ack => {
                let bytes = number.wrapping_add(1).wrapping_mul(ACKNOWLEDGED_BYTES);
                put32(L4 + 8, bytes as u32);
            }
        }
        if timestamps && protocol != Protocol::Udp {
            let tick = (number >> TICK_SHIFT) as u32;
            put32(L4 + 24, tick);
            put32(L4 + 28, tick);
        }
        if protocol == Protocol::Udp {
            check = checksum::udp_field(check);
        }
        put16(packet, protocol.checksum_at(), check);
    }
}

/// One of `buffers` with a copy of `bytes`, changed by `change`.
fn filled(
    buffers: &mut Vec<Packet>,
    bytes: &[u8],
    change: impl FnOnce(&mut [u8]),
) -> Option<Packet> {
    let mut packet = buffers.pop()?;
    let room = packet.tailroom_mut().get_mut(..bytes.len())?;
    room.copy_from_slice(bytes);
    change(room);
    packet.grow(bytes.len()).ok()?;
    Some(packet)
}

fn put16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

const IP_ID: usize = 4;
const IP_CHECKSUM: usize = 10;
/// The low half of the source address, which counts source addresses.
const IP_SOURCE_LOW: usize = 14;
/// Of the first source address.
const FIRST_HOST: u16 = 1;

/// A packet of the benchmarking network (RFC 2544, 198.18.0.0/15), complete except for the fields
/// that [`Generator::fill_in`] fills in.
fn template(source: &Source, link: LinkType) -> Vec<u8> {
    const SOURCE: [u8; 4] = [198, 18, 0, FIRST_HOST as u8];
    const DESTINATION: [u8; 4] = [198, 19, 0, 1];
    const ACK: u8 = 0x10;
    let protocol = source.protocol;
    let headers = L4 + protocol.header_bytes(source.timestamps);
    let mut frame = vec![0; source.bytes];
    let (header, packet) = frame.split_at_mut(link.header_bytes());
    // Locally administered addresses, and the type of IPv4.
    header.copy_from_slice(match link {
        LinkType::Ethernet => &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0],
        LinkType::Ipoib => &[8, 0, 0, 0],
        LinkType::RawIp => &[],
    });
    // Everything beyond the headers of an ACK is link padding.
    let end = match protocol {
        Protocol::Udp | Protocol::Tcp => packet.len(),
        Protocol::Ack => headers,
    };
    let ip = &mut packet[..L4];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(end as u16).to_be_bytes());
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = protocol.number();
    ip[12..16].copy_from_slice(&SOURCE);
    ip[16..20].copy_from_slice(&DESTINATION);
    let check = checksum::ipv4_header(ip);
    put16(packet, IP_CHECKSUM, check);
    let l4_bytes = end - L4;
    put16(packet, L4 + 2, DESTINATION_PORT);
    let data = match protocol {
        Protocol::Udp => {
            put16(packet, L4 + 4, l4_bytes as u16);
            headers + NUMBER_BYTES
        }
        Protocol::Tcp | Protocol::Ack => {
            packet[L4 + 12] = (((headers - L4) / 4) << 4) as u8;
            packet[L4 + 13] = ACK;
            put16(packet, L4 + 14, u16::MAX);
            if source.timestamps {
                packet[L4 + 20..L4 + 24].copy_from_slice(&[1, 1, 8, 10]);
            }
            headers
        }
    };
    for (index, byte) in packet[data..end].iter_mut().enumerate() {
        *byte = index as u8;
    }
    let mut sum = Sum::new();
    sum.add_sum(checksum::pseudo_header_v4(
        SOURCE,
        DESTINATION,
        protocol.number(),
        l4_bytes as u32,
    ));
    sum.add(&packet[L4..end]);
    put16(packet, protocol.checksum_at(), sum.finish());
    frame
}
