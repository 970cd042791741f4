//! Packets of a check: described by their fields, built byte by byte, and named in reports.

use std::fmt::{self, Write};

use packtrain_offload::checksum::{
    Sum, ipv4_header, pseudo_header_v4, pseudo_header_v6, sum, udp_field,
};
use packtrain_offload::layout::{Layout, Transport};
use packtrain_offload::offload::LinkType;
use packtrain_offload::virtio_net::{
    FLAG_NEEDS_CSUM, GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, HeaderLen, VnetHeader,
};

use crate::ip::IpVersion;
use crate::topology::Side;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
/// DF, in the third word of an IPv4 header.
pub(super) const DF: u16 = 0x4000;
/// MF, at the same place.
pub(super) const MF: u16 = 0x2000;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// The IPv6 fragment header (RFC 8200 section 4.5).
pub(super) const FRAGMENT: u8 = 44;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const URG: u8 = 0x20;
pub(super) const ECE: u8 = 0x40;
pub(super) const CWR: u8 = 0x80;

/// The address that packets of a side are from, and those to it are sent to: in the prefix of the
/// hosts, but of no host, so that no kernel answers.
fn ipv4(side: Side) -> [u8; 4] {
    side.of([[198, 18, 0, 101], [198, 18, 0, 102]])
}

fn ipv6(side: Side) -> [u8; 16] {
    let mut address = side.ipv6().octets();
    address[14] = 1;
    address
}

/// What is in front of a packet on the hosts' interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Nothing.
    Tun,
    /// An Ethernet header.
    Tap,
}

impl Link {
    /// Bytes of the link header.
    pub(super) fn header(self) -> usize {
        match self {
            Self::Tun => 0,
            Self::Tap => ETHERNET,
        }
    }

    /// Where the headers of a packet are; `None` if they do not fit its bytes.
    pub(super) fn layout(self, packet: &[u8]) -> Option<Layout> {
        let kind = match self {
            Self::Tun => LinkType::RawIp,
            Self::Tap => LinkType::Ethernet,
        };
        Layout::parse(kind, packet, packet.len() as u32).ok()
    }
}

/// What follows the IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Tcp {
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        urgent: u16,
        /// A multiple of four bytes.
        options: Vec<u8>,
    },
    Udp,
    /// Another protocol: the payload follows the IP header.
    Other(u8),
    /// The protocol of a fragment, whose first byte is this one of the datagram.
    Piece(u8),
    /// No IP: an Ethernet type, and the payload. TAP only.
    Ethertype(u16),
}

/// The transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// That of the bytes.
    Right,
    /// UDP over IPv4 without one (RFC 768).
    Absent,
    /// One that is not that of the bytes.
    Wrong,
    /// The bytes are chosen so that the sum is zero, which UDP sends as all ones.
    Zero,
}

/// A packet of a flow. The bytes of its payload are those of a pseudo-random stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub ip: IpVersion,
    /// Distinguishes flows: part of the ports.
    pub flow: u16,
    pub ttl: u8,
    /// TOS of IPv4, traffic class of IPv6: DSCP and ECN.
    pub tos: u8,
    /// Of IPv4.
    pub id: u16,
    /// The third word of an IPv4 header: DF, MF and the offset.
    pub fragment: u16,
    /// Of IPv6.
    pub label: u32,
    /// IPv4 options, a multiple of four bytes.
    pub ip_options: Vec<u8>,
    /// IPv6 extension headers: the type of each, and its bytes behind the first one, which is the
    /// type of the next. With that byte a multiple of eight.
    pub extensions: Vec<(u8, Vec<u8>)>,
    pub body: Body,
    /// Bytes of payload.
    pub payload: usize,
    pub check: Check,
    /// Where the payload is in its stream.
    pub offset: usize,
    /// An 802.1Q tag. TAP only.
    pub tag: Option<u16>,
}

impl Packet {
    fn new(ip: IpVersion, flow: u16, body: Body, payload: usize) -> Self {
        Self {
            ip,
            flow,
            ttl: 64,
            tos: 0,
            id: 0x1000,
            fragment: DF,
            label: 0,
            ip_options: Vec::new(),
            extensions: Vec::new(),
            body,
            payload,
            check: Check::Right,
            offset: 0,
            tag: None,
        }
    }

    /// A segment with ACK and no options.
    pub(super) fn tcp(ip: IpVersion, flow: u16, seq: u32, payload: usize) -> Self {
        let body = Body::Tcp {
            seq,
            ack: 0x0102_0304,
            flags: ACK,
            window: 0x0400,
            urgent: 0,
            options: Vec::new(),
        };
        Self::new(ip, flow, body, payload)
    }

    pub(super) fn udp(ip: IpVersion, flow: u16, payload: usize) -> Self {
        Self::new(ip, flow, Body::Udp, payload)
    }

    /// A packet of another protocol.
    pub(super) fn other(ip: IpVersion, flow: u16, protocol: u8, payload: usize) -> Self {
        Self::new(ip, flow, Body::Other(protocol), payload)
    }

    /// A frame that is no IP packet.
    pub(super) fn frame(ethertype: u16, payload: usize) -> Self {
        Self::new(IpVersion::V4, 0, Body::Ethertype(ethertype), payload)
    }

    /// With a change.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A TCP segment with these flags.
    pub(super) fn flags(mut self, set: u8) -> Self {
        if let Body::Tcp { flags, .. } = &mut self.body {
            *flags = set;
        }
        self
    }

    /// A TCP segment with these options.
    pub(super) fn options(mut self, set: &[u8]) -> Self {
        if let Body::Tcp { options, .. } = &mut self.body {
            *options = set.to_vec();
        }
        self
    }

    fn protocol(&self) -> u8 {
        match &self.body {
            Body::Tcp { .. } => TCP,
            Body::Udp => UDP,
            Body::Other(protocol) | Body::Piece(protocol) => *protocol,
            Body::Ethertype(_) => 0,
        }
    }

    /// Bytes of the transport header.
    fn transport(&self) -> usize {
        match &self.body {
            Body::Tcp { options, .. } => 20 + options.len(),
            Body::Udp => 8,
            _ => 0,
        }
    }

    /// Bytes of the IP header with options or extension headers.
    fn network(&self) -> usize {
        match (&self.body, self.ip) {
            (Body::Ethertype(_), _) => 0,
            (_, IpVersion::V4) => 20 + self.ip_options.len(),
            (_, IpVersion::V6) => {
                let extensions = self.extensions.iter().map(|(_, bytes)| 1 + bytes.len());
                40 + extensions.sum::<usize>()
            }
        }
    }

    /// Bytes of the IP packet.
    pub(super) fn bytes(&self) -> usize {
        self.network() + self.transport() + self.payload
    }

    /// Where the transport header has its checksum; `None` for other protocols than TCP and UDP.
    fn field(&self) -> Option<usize> {
        match self.body {
            Body::Tcp { .. } => Some(16),
            Body::Udp => Some(6),
            _ => None,
        }
    }

    /// The packet as a host sends it. `stream` seeds the payload. The transport checksum of a
    /// partial one is the sum of the pseudo-header.
    fn write(&self, from: Side, link: Link, stream: u64, is_partial: bool) -> Vec<u8> {
        let to = from.other();
        let mut out = Vec::with_capacity(link.header() + 4 + self.bytes());
        if link == Link::Tap {
            out.extend_from_slice(&to.mac());
            out.extend_from_slice(&from.mac());
            if let Some(tag) = self.tag {
                out.extend_from_slice(&[0x81, 0]);
                out.extend_from_slice(&tag.to_be_bytes());
            }
            let ethertype: u16 = match (&self.body, self.ip) {
                (Body::Ethertype(ethertype), _) => *ethertype,
                (_, IpVersion::V4) => 0x0800,
                (_, IpVersion::V6) => 0x86dd,
            };
            out.extend_from_slice(&ethertype.to_be_bytes());
        }
        let below = self.transport() + self.payload;
        let pseudo = match (&self.body, self.ip) {
            (Body::Ethertype(_), _) => Sum::new(),
            (_, IpVersion::V4) => self.write_ipv4(&mut out, from, below),
            (_, IpVersion::V6) => self.write_ipv6(&mut out, from, below),
        };
        let transport = out.len();
        self.write_transport(&mut out, from, below);
        let body = out.len();
        let bytes = (self.offset..self.offset + self.payload).map(|at| content(stream, at));
        out.extend(bytes);
        let Some(field) = self.field() else {
            return out;
        };
        let field = transport + field;
        if is_partial {
            out[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
            return out;
        }
        if self.check == Check::Zero && self.payload >= 2 {
            // With this word the sum is that of all ones, whose complement is zero.
            out[body..body + 2].fill(0);
            let mut all = pseudo;
            all.add(&out[transport..]);
            let word = all.finish();
            out[body..body + 2].copy_from_slice(&word.to_be_bytes());
        }
        let mut all = pseudo;
        all.add(&out[transport..]);
        let right = match self.body {
            Body::Udp => udp_field(all.finish()),
            _ => all.finish(),
        };
        let value = match self.check {
            Check::Right | Check::Zero => right,
            Check::Absent => 0,
            Check::Wrong => right ^ 0x0101,
        };
        out[field..field + 2].copy_from_slice(&value.to_be_bytes());
        out
    }

    fn write_ipv4(&self, out: &mut Vec<u8>, from: Side, below: usize) -> Sum {
        let start = out.len();
        let header = 20 + self.ip_options.len();
        out.extend_from_slice(&[0x40 | (header / 4) as u8, self.tos]);
        for word in [(header + below) as u16, self.id, self.fragment] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&[self.ttl, self.protocol(), 0, 0]);
        out.extend_from_slice(&ipv4(from));
        out.extend_from_slice(&ipv4(from.other()));
        out.extend_from_slice(&self.ip_options);
        let check = ipv4_header(&out[start..]);
        out[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
        pseudo_header_v4(
            ipv4(from),
            ipv4(from.other()),
            self.protocol(),
            below as u32,
        )
    }

    fn write_ipv6(&self, out: &mut Vec<u8>, from: Side, below: usize) -> Sum {
        let first = 0x6000_0000 | u32::from(self.tos) << 20 | self.label & 0xf_ffff;
        out.extend_from_slice(&first.to_be_bytes());
        let length = self.network() - 40 + below;
        out.extend_from_slice(&(length as u16).to_be_bytes());
        let mut next = self.extensions.iter().map(|(kind, _)| *kind);
        let protocol = self.protocol();
        out.extend_from_slice(&[next.next().unwrap_or(protocol), self.ttl]);
        out.extend_from_slice(&ipv6(from));
        out.extend_from_slice(&ipv6(from.other()));
        for (_, bytes) in &self.extensions {
            out.push(next.next().unwrap_or(protocol));
            out.extend_from_slice(bytes);
        }
        pseudo_header_v6(ipv6(from), ipv6(from.other()), protocol, below as u32)
    }

    fn write_transport(&self, out: &mut Vec<u8>, from: Side, below: usize) {
        let ports = [20_000 + self.flow, 9 + u16::from(from == Side::Right)];
        match &self.body {
            Body::Tcp {
                seq,
                ack,
                flags,
                window,
                urgent,
                options,
            } => {
                for port in ports {
                    out.extend_from_slice(&port.to_be_bytes());
                }
                out.extend_from_slice(&seq.to_be_bytes());
                out.extend_from_slice(&ack.to_be_bytes());
                out.extend_from_slice(&[((20 + options.len()) * 4) as u8, *flags]);
                for word in [*window, 0, *urgent] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
                out.extend_from_slice(options);
            }
            Body::Udp => {
                for word in [ports[0], ports[1], below as u16, 0] {
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
            _ => {}
        }
    }

    /// Packets of one flow arrive in the order in which they were sent.
    pub(super) fn flow(&self) -> (IpVersion, u8, u16) {
        (self.ip, self.protocol(), self.flow)
    }
}

/// A byte of a pseudo-random stream.
fn content(stream: u64, at: usize) -> u8 {
    // The mixer of splitmix64.
    let mut word = stream.wrapping_add((at as u64 / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31).to_le_bytes()[at % 8]
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Body::Ethertype(ethertype) = self.body {
            return write!(f, "frame of type {ethertype:#06x}, {} bytes", self.payload);
        }
        if let Some(tag) = self.tag {
            write!(f, "VLAN tag {tag:#06x} ")?;
        }
        match self.ip {
            IpVersion::V4 => write!(f, "IPv4 {} B", self.bytes())?,
            IpVersion::V6 => write!(f, "IPv6 {} B", self.bytes())?,
        }
        if self.ip == IpVersion::V4 {
            write!(f, " id {:#06x}", self.id)?;
            if self.fragment != DF {
                write!(f, " fragment word {:#06x}", self.fragment)?;
            }
        }
        if self.ttl != 64 {
            write!(f, " ttl {}", self.ttl)?;
        }
        if self.tos != 0 {
            write!(f, " tos {:#04x}", self.tos)?;
        }
        if self.label != 0 {
            write!(f, " label {:#x}", self.label)?;
        }
        if !self.ip_options.is_empty() {
            write!(f, " options {}", hex(&self.ip_options))?;
        }
        for (kind, bytes) in &self.extensions {
            write!(f, " extension {kind} ({} B)", bytes.len() + 1)?;
        }
        match &self.body {
            Body::Tcp {
                seq,
                flags,
                options,
                urgent,
                ..
            } => {
                write!(
                    f,
                    " TCP port {} seq {seq} {}",
                    20_000 + self.flow,
                    names(*flags)
                )?;
                if *urgent != 0 {
                    write!(f, " urgent {urgent}")?;
                }
                if !options.is_empty() {
                    write!(f, " options {}", hex(options))?;
                }
            }
            Body::Udp => write!(f, " UDP port {}", 20_000 + self.flow)?,
            Body::Other(protocol) | Body::Piece(protocol) => write!(f, " protocol {protocol}")?,
            Body::Ethertype(_) => {}
        }
        write!(f, " payload {} B", self.payload)?;
        match self.check {
            Check::Right => Ok(()),
            Check::Absent => f.write_str(", no checksum"),
            Check::Wrong => f.write_str(", wrong checksum"),
            Check::Zero => f.write_str(", checksum sent as 0xffff"),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// TCP flags in words.
pub(super) fn names(flags: u8) -> String {
    let all = [
        (FIN, "FIN"),
        (SYN, "SYN"),
        (RST, "RST"),
        (PSH, "PSH"),
        (ACK, "ACK"),
        (URG, "URG"),
        (ECE, "ECE"),
        (CWR, "CWR"),
    ];
    let set = all.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join("+")
}

/// What must become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It arrives, byte for byte.
    Arrives,
    /// It arrives so, or not at all.
    WholeOrNot,
    /// It arrives so, or not at all, and nothing says that its checksum is right.
    NotBlessed,
}

/// How a packet is handed to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is on the wire.
    Wire(Packet),
    /// Its checksum is left to the device (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    Partial(Packet),
    /// Its bytes from one of them on are to be summed, into a field of its payload: `start` and
    /// `offset` count from its first byte of payload.
    Summed {
        packet: Packet,
        start: usize,
        offset: usize,
    },
    /// A large packet, which the device cuts into segments of `size` bytes of payload.
    Large { packet: Packet, size: usize },
    /// Bytes that are no packet: the first four bits of a packet are no version of IP.
    Garbage(Vec<u8>),
}

/// A packet that a check sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// The host that sends it.
    pub from: Side,
    pub form: Form,
    pub rule: Rule,
}

/// The bytes of one: with a virtio-net header, and each packet that has to arrive.
pub(super) struct Bytes {
    pub handed: Vec<u8>,
    pub wire: Vec<Vec<u8>>,
}

impl Sent {
    /// A packet that has to arrive.
    pub(super) fn new(from: Side, form: Form) -> Self {
        let rule = Rule::Arrives;
        Self { from, form, rule }
    }

    /// The same, with another rule.
    pub(super) fn rule(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// The packet, whole.
    pub(super) fn packet(&self) -> Option<&Packet> {
        match &self.form {
            Form::Wire(packet)
            | Form::Partial(packet)
            | Form::Summed { packet, .. }
            | Form::Large { packet, .. } => Some(packet),
            Form::Garbage(_) => None,
        }
    }

    /// How many packets have to arrive.
    pub(super) fn packets(&self) -> usize {
        match &self.form {
            Form::Large { packet, size } => packet.payload.div_ceil(*size),
            Form::Garbage(_) => 0,
            _ => 1,
        }
    }

    /// The bytes, with payload from the stream of this number.
    pub(super) fn build(&self, link: Link, stream: u64) -> Bytes {
        let mut header = VnetHeader::default();
        let (packet, wire) = match &self.form {
            Form::Wire(packet) => {
                let bytes = packet.write(self.from, link, stream, false);
                (bytes.clone(), vec![bytes])
            }
            Form::Partial(packet) => {
                let tag = if packet.tag.is_some() { 4 } else { 0 };
                header.flags = FLAG_NEEDS_CSUM;
                header.csum_start = (link.header() + tag + packet.network()) as u16;
                header.csum_offset = packet.field().unwrap_or(0) as u16;
                let wire = packet.write(self.from, link, stream, false);
                (packet.write(self.from, link, stream, true), vec![wire])
            }
            Form::Summed {
                packet,
                start,
                offset,
            } => {
                let bytes = packet.write(self.from, link, stream, false);
                let from = bytes.len() - packet.payload + start;
                header.flags = FLAG_NEEDS_CSUM;
                header.csum_start = from as u16;
                header.csum_offset = *offset as u16;
                let mut wire = bytes.clone();
                let value = sum(&wire[from..]).finish();
                wire[from + offset..from + offset + 2].copy_from_slice(&value.to_be_bytes());
                (bytes, vec![wire])
            }
            Form::Large { packet, size } => {
                header = packet.large_header(link, *size);
                let segments = packet.segments(*size);
                let segment = |one: &Packet| one.write(self.from, link, stream, false);
                let wire = segments.iter().map(segment).collect();
                (packet.write(self.from, link, stream, true), wire)
            }
            Form::Garbage(bytes) => {
                let mut frame = Vec::new();
                if link == Link::Tap {
                    frame.extend_from_slice(&self.from.other().mac());
                    frame.extend_from_slice(&self.from.mac());
                    frame.extend_from_slice(&[8, 0]);
                }
                frame.extend_from_slice(bytes);
                (frame, Vec::new())
            }
        };
        let mut handed = vec![0; HeaderLen::Legacy.bytes()];
        let encoded = header.encode(&mut handed, HeaderLen::Legacy);
        debug_assert!(encoded.is_ok(), "ten bytes hold the header");
        handed.extend_from_slice(&packet);
        Bytes { handed, wire }
    }
}

impl Packet {
    fn large_header(&self, link: Link, size: usize) -> VnetHeader {
        let tag = if self.tag.is_some() { 4 } else { 0 };
        let start = link.header() + tag + self.network();
        let kind = match (&self.body, self.ip) {
            (Body::Udp, _) => GSO_UDP_L4,
            (_, IpVersion::V4) => GSO_TCPV4,
            (_, IpVersion::V6) => GSO_TCPV6,
        };
        let ecn = match self.body {
            Body::Tcp { flags, .. } if flags & CWR != 0 => GSO_ECN,
            _ => 0,
        };
        VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type: kind | ecn,
            hdr_len: (start + self.transport()) as u16,
            gso_size: size as u16,
            csum_start: start as u16,
            csum_offset: self.field().unwrap_or(0) as u16,
            num_buffers: 0,
        }
    }

    /// The packets of a large one: identification and sequence number go up, FIN and PSH are on the
    /// last one only, CWR on the first (`tcp_gso_segment` and `inet_gso_segment` of Linux; RFC 3168
    /// section 6.1.2 for CWR).
    fn segments(&self, size: usize) -> Vec<Self> {
        let count = self.payload.div_ceil(size);
        let one = |index: usize| {
            let at = index * size;
            let mut segment = self.clone();
            segment.payload = size.min(self.payload - at);
            segment.offset = self.offset + at;
            segment.id = self.id.wrapping_add(index as u16);
            if let Body::Tcp { seq, flags, .. } = &mut segment.body {
                *seq = seq.wrapping_add(at as u32);
                if index + 1 < count {
                    *flags &= !(FIN | PSH);
                }
                if index > 0 {
                    *flags &= !CWR;
                }
            }
            segment
        };
        (0..count).map(one).collect()
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.from.of(["A to B", "B to A"]))?;
        match &self.form {
            Form::Wire(packet) => packet.fmt(f),
            Form::Partial(packet) => write!(f, "{packet}, checksum left to the device"),
            Form::Summed { packet, start, .. } => {
                write!(
                    f,
                    "{packet}, to be summed from byte {start} of the payload on"
                )
            }
            Form::Large { packet, size } => {
                write!(
                    f,
                    "one read of {} segments at MSS {size}: {packet}",
                    self.packets()
                )
            }
            Form::Garbage(bytes) => write!(f, "no IP packet: {}", hex(bytes)),
        }
    }
}

/// The name of the field with the TCP flags.
pub(super) const TCP_FLAGS: &str = "value of the TCP flags";

/// The name of the field at a byte of a packet, which is at least as long as its IP header.
pub(super) fn field_at(link: Link, packet: &[u8], at: usize) -> &'static str {
    let Some(inside) = at.checked_sub(link.header()) else {
        return "Ethernet header";
    };
    let ip = &packet[link.header()..];
    let network = match ip.first().map(|first| first >> 4) {
        Some(4) if ip.len() >= 20 => usize::from(ip[0] & 15) * 4,
        Some(6) if ip.len() >= 40 => 40,
        _ => return "byte of a frame that is no IP packet",
    };
    if inside < network {
        match (ip[0] >> 4, inside) {
            (4, 0) => "IPv4 version and header length",
            (4, 1) => "IPv4 TOS",
            (4, 2..=3) => "IPv4 total length",
            (4, 4..=5) => "IPv4 identification",
            (4, 6..=7) => "IPv4 flags and fragment offset",
            (4, 8) => "IPv4 TTL",
            (4, 9) => "IPv4 protocol",
            (4, 10..=11) => "IPv4 header checksum",
            (4, 12..=15) => "IPv4 source address",
            (4, 16..=19) => "IPv4 destination address",
            (4, _) => "IPv4 options",
            (_, 0..=3) => "IPv6 traffic class and flow label",
            (_, 4..=5) => "IPv6 payload length",
            (_, 6) => "IPv6 next header",
            (_, 7) => "IPv6 hop limit",
            (_, 8..=23) => "IPv6 source address",
            _ => "IPv6 destination address",
        }
    } else {
        let Some(layout) = link.layout(packet) else {
            return "byte behind the IP header";
        };
        let Some(below) = at.checked_sub(layout.transport.into()) else {
            return "IPv6 extension header";
        };
        let protocol = match layout.transport_kind {
            Transport::Tcp => TCP,
            Transport::Udp => UDP,
            _ => 0,
        };
        match (protocol, below) {
            (TCP, 0..=3) => "TCP ports",
            (TCP, 4..=7) => "TCP sequence number",
            (TCP, 8..=11) => "TCP acknowledgement number",
            (TCP, 12) => "TCP data offset",
            (TCP, 13) => TCP_FLAGS,
            (TCP, 14..=15) => "TCP window",
            (TCP, 16..=17) => "TCP checksum",
            (TCP, 18..=19) => "TCP urgent pointer",
            (UDP, 0..=3) => "UDP ports",
            (UDP, 4..=5) => "UDP length",
            (UDP, 6..=7) => "UDP checksum",
            (TCP, _) if at < layout.payload.into() => "TCP options",
            _ => "payload",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

    fn payload(packet: &Packet, stream: u64) -> Vec<u8> {
        let range = packet.offset..packet.offset + packet.payload;
        range.map(|at| content(stream, at)).collect()
    }

    /// The same packet of an independent builder, as a frame.
    fn built(from: Side, packet: &Packet, stream: u64) -> Vec<u8> {
        let to = from.other();
        let builder = PacketBuilder::ethernet2(from.mac(), to.mac());
        let builder = match packet.ip {
            IpVersion::V4 => {
                let mut header = etherparse::Ipv4Header::new(
                    0,
                    packet.ttl,
                    etherparse::IpNumber(0),
                    ipv4(from),
                    ipv4(to),
                )
                .expect("a header");
                header.identification = packet.id;
                let header = etherparse::IpHeaders::Ipv4(header, Default::default());
                builder.ip(header)
            }
            IpVersion::V6 => builder.ipv6(ipv6(from), ipv6(to), packet.ttl),
        };
        let (mut out, payload) = (Vec::new(), payload(packet, stream));
        let to_port = 9 + u16::from(from == Side::Right);
        match &packet.body {
            Body::Tcp { seq, ack, .. } => builder
                .tcp(20_000 + packet.flow, to_port, *seq, 0x0400)
                .ack(*ack)
                .write(&mut out, &payload),
            _ => builder
                .udp(20_000 + packet.flow, to_port)
                .write(&mut out, &payload),
        }
        .expect("a packet");
        out
    }

    #[test]
    fn packets_are_those_of_an_independent_builder() {
        for (ip, from) in VERSIONS.into_iter().zip([Side::Left, Side::Right]) {
            for packet in [Packet::tcp(ip, 3, 77, 501), Packet::udp(ip, 4, 502)] {
                let sent = Sent::new(from, Form::Wire(packet.clone()));
                let mut expected = built(from, &packet, 5);
                let frame = sent.build(Link::Tap, 5);
                assert_eq!(frame.wire, [expected.clone()], "{sent}");
                assert_eq!(frame.handed[..10], [0; 10]);
                assert_eq!(frame.handed[10..], expected);
                expected.drain(..ETHERNET);
                assert_eq!(sent.build(Link::Tun, 5).wire, [expected], "{sent}");
            }
        }
    }

    #[test]
    fn the_packets_of_a_large_one_are_those_that_would_be_sent_alone() {
        for ip in VERSIONS {
            let large = Packet::tcp(ip, 3, u32::MAX - 1000, 2500);
            let large = large
                .flags(ACK | FIN | PSH | CWR)
                .with(|packet| packet.id = 0xffff);
            let form = Form::Large {
                packet: large.clone(),
                size: 1000,
            };
            let built = Sent::new(Side::Left, form).build(Link::Tun, 9);
            let header = VnetHeader::decode(&built.handed, HeaderLen::Legacy).expect("a header");
            let (start, kind) = match ip {
                IpVersion::V4 => (20, GSO_TCPV4),
                IpVersion::V6 => (40, GSO_TCPV6),
            };
            let wanted = (kind | GSO_ECN, 1000, start, 16, start + 20);
            let found = (header.gso_type, header.gso_size, header.csum_start);
            assert_eq!(
                (
                    found.0,
                    found.1,
                    found.2,
                    header.csum_offset,
                    header.hdr_len
                ),
                wanted
            );
            let alone = |index: usize, flags| {
                let packet = large.clone().flags(flags).with(|packet| {
                    packet.payload = [1000, 1000, 500][index];
                    packet.offset = index * 1000;
                    packet.id = 0xffff_u16.wrapping_add(index as u16);
                    if let Body::Tcp { seq, .. } = &mut packet.body {
                        *seq = (u32::MAX - 1000).wrapping_add(index as u32 * 1000);
                    }
                });
                Sent::new(Side::Left, Form::Wire(packet))
                    .build(Link::Tun, 9)
                    .wire
                    .swap_remove(0)
            };
            let segments = [
                alone(0, ACK | CWR),
                alone(1, ACK),
                alone(2, ACK | FIN | PSH),
            ];
            assert_eq!(built.wire, segments);
        }
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_all_ones_and_a_wrong_one_is_wrong() {
        for ip in VERSIONS {
            let check = |check| {
                let packet = Packet::udp(ip, 1, 100).with(|packet| packet.check = check);
                let start = packet.network() + 6;
                let wire = Sent::new(Side::Left, Form::Wire(packet))
                    .build(Link::Tun, 2)
                    .wire;
                [wire[0][start], wire[0][start + 1]]
            };
            assert_eq!(check(Check::Zero), [0xff, 0xff]);
            assert_eq!(check(Check::Absent), [0, 0]);
            assert_ne!(check(Check::Wrong), check(Check::Right));
        }
    }

    #[test]
    fn a_difference_names_its_field() {
        let wire = Sent::new(Side::Left, Form::Wire(Packet::tcp(IpVersion::V4, 0, 1, 10)));
        let wire = wire.build(Link::Tap, 1).wire.swap_remove(0);
        let name = |at| field_at(Link::Tap, &wire, at);
        assert_eq!(name(3), "Ethernet header");
        assert_eq!(name(ETHERNET + 8), "IPv4 TTL");
        assert_eq!(name(ETHERNET + 33), TCP_FLAGS);
        assert_eq!(name(ETHERNET + 41), "payload");
        let packet = Packet::tcp(IpVersion::V6, 0, 1, 10).options(&[1; 4]);
        let packet =
            packet.with(|packet| packet.extensions = vec![(60, vec![0, 1, 4, 0, 0, 0, 0])]);
        let sent = Sent::new(Side::Left, Form::Wire(packet));
        let wire = sent.build(Link::Tun, 1).wire.swap_remove(0);
        let names = [44, 64, 68, 72].map(|at| field_at(Link::Tun, &wire, at));
        let wanted = [
            "IPv6 extension header",
            "TCP checksum",
            "TCP options",
            "payload",
        ];
        assert_eq!(names, wanted);
    }
}
