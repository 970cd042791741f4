//! A device with scripted answers, and packets for it.

use crate::driver::{
    Accepted, Completed, DeviceError, Features, Refused, Token, TxDescriptors, TxPacket,
};
use crate::packet::{Arena, Meta, Packet, VlanTag};
use crate::queue::segment::checksum_of;
use crate::time::Instant;
use packtrain_offload::checksum::{pseudo_header_v4, pseudo_header_v6, sum};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Ecn, Gso, GsoKind, LinkType};
use packtrain_offload::segment::{Fill, Segmenter, finish_partial};
use std::collections::VecDeque;
use std::num::NonZeroU16;

/// Plays `script`, an answer for each packet offered, and accepts everything after its end.
#[derive(Debug, Default)]
pub struct Scripted {
    pub script: VecDeque<Result<Accepted, Refused>>,
    /// Features for which it refuses every packet, before the script.
    pub without: Features,
    /// The most packets that it keeps; further ones get `NoDescriptor`. For `Pending` answers.
    pub ring: Option<usize>,
    /// Completes nothing while this is set.
    pub quiet: bool,
    pub segments_max: usize,
    pub in_flight: VecDeque<Token>,
    /// Tokens that it completes in addition.
    pub extra: Vec<Token>,
    /// Completes the youngest first.
    pub backwards: bool,
    /// Packets on the wire: segmented, with complete checksums, and tags in the bytes.
    pub wire: Vec<Vec<u8>>,
    /// Segments and metadata of each accepted packet.
    pub accepted: Vec<(usize, Meta)>,
    pub offered: usize,
    pub flushes: u64,
    pub mtu: Option<u32>,
    pub asked_for_mtu: usize,
    /// The error of the next flush.
    pub flush_error: Option<DeviceError>,
}

impl Scripted {
    pub fn new(script: impl IntoIterator<Item = Result<Accepted, Refused>>) -> Self {
        Self {
            script: script.into_iter().collect(),
            segments_max: 8,
            ..Self::default()
        }
    }
}

impl TxDescriptors for Scripted {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        self.offered += 1;
        let packet = packet.packet();
        assert!(packet.segments().count() <= self.segments_max);
        assert!(!self.in_flight.contains(&token), "the token is in use");
        let used = uses(packet.meta()).intersection(self.without);
        if !used.is_empty() {
            return Err(Refused::Feature(used));
        }
        if self.ring.is_some_and(|ring| self.in_flight.len() >= ring) {
            return Err(Refused::NoDescriptor);
        }
        let accepted = self.script.pop_front().unwrap_or(Ok(Accepted::Complete));
        if let Err(Refused::Feature(feature)) = accepted {
            let used = uses(packet.meta()).intersection(feature);
            if !used.is_empty() {
                // A device that refused a feature keeps refusing it.
                self.without |= feature;
            }
        }
        let accepted = accepted?;
        if accepted == Accepted::Pending {
            self.in_flight.push_back(token);
        }
        self.accepted
            .push((packet.segments().count(), *packet.meta()));
        self.wire.extend(to_wire(packet));
        Ok(accepted)
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        self.flushes += 1;
        self.flush_error.take().map_or(Ok(()), Err)
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        for token in self.extra.drain(..) {
            assert!(completed.push(token));
        }
        while !self.quiet {
            let token = if self.backwards {
                self.in_flight.pop_back()
            } else {
                self.in_flight.pop_front()
            };
            match token {
                Some(token) => assert!(completed.push(token)),
                None => return,
            }
        }
    }

    fn mtu(&mut self) -> Option<u32> {
        self.asked_for_mtu += 1;
        self.mtu
    }

    fn doorbells(&self) -> u64 {
        self.flushes
    }
}

fn uses(meta: &Meta) -> Features {
    let mut used = Features::NONE;
    if let Some(gso) = meta.gso {
        used |= Features::of(gso.kind) | checksum_of(gso.kind);
        if gso.ecn() == Ecn::Cwr {
            used |= Features::TSO_ECN;
        }
    }
    if let ChecksumState::Partial { .. } = meta.checksum {
        used |= if meta
            .layout
            .is_some_and(|layout| layout.kind == packtrain_offload::layout::Network::Ipv6)
        {
            Features::CSUM6
        } else {
            Features::CSUM4
        };
    }
    if meta.vlan.is_some() {
        used |= Features::VLAN;
    }
    used
}

/// The wire packets of `packet`.
pub fn to_wire(packet: &Packet) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = packet.segments().flatten().copied().collect();
    let meta = packet.meta();
    let mut wire = match (meta.gso, meta.checksum) {
        (Some(gso), _) => {
            let layout = meta.layout.expect("a GSO packet has a layout");
            let segmenter = Segmenter::new(&bytes, &layout, gso, bytes.len() as u32).unwrap();
            (0..segmenter.segments())
                .map(|index| {
                    let range = segmenter.payload(index);
                    let payload = &bytes[range.start as usize..range.end as usize];
                    let mut out = vec![0; segmenter.header_bytes()];
                    let fill = Fill::Complete {
                        payload: sum(payload),
                    };
                    segmenter
                        .write_header(index, &bytes, &mut out, fill)
                        .unwrap();
                    out.extend(payload);
                    out
                })
                .collect()
        }
        (None, ChecksumState::Partial { start, offset }) => {
            let mut out = bytes;
            let start = usize::from(start);
            let value = finish_partial(sum(&out[start..]), offset == 6);
            let at = start + usize::from(offset);
            out[at..at + 2].copy_from_slice(&value.to_be_bytes());
            vec![out]
        }
        (None, _) => vec![bytes],
    };
    if let Some(tag) = meta.vlan {
        for out in &mut wire {
            let tag = [tag.protocol.to_be_bytes(), tag.control.to_be_bytes()].concat();
            out.splice(12..12, tag);
        }
    }
    wire
}

/// A description of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub kind: GsoKind,
    pub payload: usize,
    /// Segment size of a GSO packet.
    pub gso: Option<u16>,
    pub ecn: bool,
    /// The checksum is partial. Always so in a GSO packet.
    pub partial: bool,
    pub vlan: bool,
    /// Payload bytes in each of its frames.
    pub piece: usize,
    /// Another packet shares the bytes.
    pub shared: bool,
    /// Added to its number of wire packets.
    pub surplus: i8,
}

/// `spec.payload(20)` has another payload, and `spec.vlan()` a tag.
macro_rules! setters {
    ($($name:ident: $type:ty),*; $($flag:ident),*) => {
        $(pub const fn $name(self, $name: $type) -> Self { Self { $name, ..self } })*
        $(pub const fn $flag(self) -> Self { Self { $flag: true, ..self } })*
    };
}

impl Spec {
    pub const PLAIN: Self = Self {
        kind: GsoKind::TcpV4,
        payload: 100,
        gso: None,
        ecn: false,
        partial: false,
        vlan: false,
        piece: 1000,
        shared: false,
        surplus: 0,
    };

    pub fn gso(kind: GsoKind, payload: usize, size: u16) -> Self {
        Self {
            kind,
            payload,
            gso: Some(size),
            partial: true,
            ..Self::PLAIN
        }
    }

    setters! { payload: usize, piece: usize, surplus: i8, kind: GsoKind; vlan, partial, ecn }

    /// Its number of wire packets.
    pub fn segments(&self) -> usize {
        self.gso
            .map_or(1, |size| self.payload.div_ceil(usize::from(size)).max(1))
    }

    /// The packet; `id` makes its bytes differ from those of all others.
    pub fn build(&self, arena: &Arena, id: u32) -> Packet {
        let bytes = self.bytes(id);
        let mut packet = arena.empty_packet().unwrap();
        let first = 74.min(bytes.len());
        for piece in
            std::iter::once(&bytes[..first]).chain(bytes[first..].chunks(self.piece.max(1)))
        {
            packet.append(arena.packet_from(piece).unwrap()).unwrap();
        }
        let layout = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32).unwrap();
        let meta = packet.meta_mut();
        meta.layout = Some(layout);
        meta.gso = self.gso.map(|size| {
            Gso::new(self.kind, NonZeroU16::new(size).unwrap()).with_ecn(
                if self.ecn && self.kind.is_tcp() {
                    Ecn::Cwr
                } else {
                    Ecn::None
                },
            )
        });
        if self.partial || self.gso.is_some() {
            meta.checksum = ChecksumState::Partial {
                start: layout.transport,
                offset: if self.kind.is_tcp() { 16 } else { 6 },
            };
        }
        meta.vlan = self.vlan.then_some(VlanTag {
            protocol: 0x8100,
            control: 0x6007,
        });
        meta.wire_packets = (self.segments() as i64 + i64::from(self.surplus)).max(1) as u16;
        packet
    }

    fn bytes(&self, id: u32) -> Vec<u8> {
        let protocol = if self.kind.is_tcp() { 6 } else { 17 };
        let transport_bytes = self.payload + if self.kind.is_tcp() { 20 } else { 8 };
        let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let pseudo = if self.kind.is_ipv6() {
            let (source, destination) = ([0xfd; 16], [0xfe; 16]);
            out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            out.extend((transport_bytes as u16).to_be_bytes());
            out.extend([protocol, 64]);
            out.extend([source, destination].concat());
            pseudo_header_v6(source, destination, protocol, transport_bytes as u32)
        } else {
            let (source, destination) = ([198, 18, 0, 1], [198, 18, 0, 2]);
            out.extend([8, 0, 0x45, 0]);
            out.extend((20 + transport_bytes as u16).to_be_bytes());
            out.extend([(id >> 8) as u8, id as u8, 0x40, 0, 64, protocol, 0, 0]);
            out.extend([source, destination].concat());
            let check = packtrain_offload::checksum::ipv4_header(&out[14..34]);
            out[24..26].copy_from_slice(&check.to_be_bytes());
            pseudo_header_v4(source, destination, protocol, transport_bytes as u32)
        };
        out.extend([0x12, 0x34, 0x56, 0x78]);
        let field = pseudo.fold().to_be_bytes();
        if self.kind.is_tcp() {
            out.extend((id << 16).to_be_bytes());
            out.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, field[0], field[1], 0, 0]);
        } else {
            out.extend((transport_bytes as u16).to_be_bytes());
            out.extend(field);
        }
        out.extend((0..self.payload).map(|i| (i as u32).wrapping_mul(31).wrapping_add(id) as u8));
        out
    }
}
