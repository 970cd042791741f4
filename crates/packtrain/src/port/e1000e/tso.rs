//! What the card is told about the headers of a packet whose checksum, or segmentation, is its
//! work.

use super::registers::{WORDS, tx};
use crate::driver::{Features, Refused};
use crate::packet::Packet;
use crate::port::card::{CutHeaders, TCP_CHECKSUM, checksum_place};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{Gso, GsoKind};

/// Bytes at the end of a segmented packet in a descriptor of their own: the card may report the one
/// before too early (FreeBSD, em_txrx.c).
pub(super) const SENTINEL_BYTES: usize = 4;
/// Data descriptors of a packet (`NET_MAX_FRAG_SG_LIST` of QEMU), with room for one that is split.
pub(super) const PIECES_MAX: usize = 62;
/// Bytes of a data descriptor (Linux, netdev.c).
pub(super) const PIECE_BYTES_MAX: usize = 8192;
/// A piece may have the payload of this many segments: the card's FIFO has room for them (Linux,
/// netdev.c).
const PIECE_SEGMENTS: usize = 4;
/// Offsets are fields of 8 bits.
const OFFSET_MAX: usize = 255;
/// The fields of headers.
const IPV4_LENGTH: usize = 2;
const IPV4_CHECKSUM: usize = 10;
const IPV6_LENGTH: usize = 4;
const IPV6_BYTES: u16 = 40;

/// Word 0 of a context: where the IP header is, and the last byte that its checksum covers.
const fn ip(network: u16, last: u16) -> u32 {
    network as u32 & 0xff
        | ((network as u32 + IPV4_CHECKSUM as u32) & 0xff) << 8
        | (last as u32) << 16
}

/// Word 1: where the sum starts and where it goes. It covers the rest of the packet.
const fn transport(start: u16, field: usize) -> u32 {
    start as u32 | (field as u32) << 8
}

/// The context for a packet whose checksum is the card's work; `None` for any other.
///
/// # Errors
///
/// [`Refused::Feature`] if the place of the checksum is no offset of 8 bits.
pub(super) fn checksum(packet: &Packet) -> Result<Option<[u32; WORDS]>, Refused> {
    let Some((start, field)) = checksum_place(packet)? else {
        return Ok(None);
    };
    let layout = packet.meta().layout;
    if field > OFFSET_MAX {
        return Err(Refused::Feature(Features::checksum_of(layout)));
    }
    // The card has errors without the place of the IP header (FreeBSD, em_txrx.c).
    let network = layout.map_or(start, |layout| layout.network);
    // A sum of UDP that is 0 becomes 0xffff.
    let is_tcp = field - usize::from(start) == TCP_CHECKSUM;
    let kind = if is_tcp { tx::TCP } else { 0 };
    let words = [
        ip(network, 0),
        transport(start, field),
        tx::EXTENDED | kind,
        0,
    ];
    Ok(Some(words))
}

/// Bytes of a piece of a packet that the card segments.
pub(super) fn piece_bytes_max(gso: Gso) -> usize {
    PIECE_BYTES_MAX.min(PIECE_SEGMENTS * usize::from(gso.size.get()))
}

/// The headers of a packet that the card segments, with the bytes behind them that are in front of
/// a segment's end: a copy, since the packet's own may be shared.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) copy: CutHeaders,
    layout: Layout,
    gso: Gso,
    /// Where the packet ends, without padding of the link.
    pub(super) end: usize,
}

impl Headers {
    /// Those of `packet`. Its IP lengths and its IPv4 checksum are 0, and its TCP checksum is the
    /// sum of the pseudo-header without a length, as the card wants them (Linux, netdev.c).
    ///
    /// # Errors
    ///
    /// [`Refused::Feature`] if the card can segment it in no form: it has IPv6 extension headers or
    /// a source route, or more than 244 segments, which are too many pieces even of a copy in one
    /// frame.
    pub(super) fn of(packet: &Packet, gso: Gso) -> Result<Self, Refused> {
        let refused = Refused::Feature(Features::of(gso.kind));
        // With bytes of the payload, since the card has errors without (Linux, netdev.c).
        let (mut copy, layout) = CutHeaders::of(packet, gso, SENTINEL_BYTES)?;
        let (network, end) = (usize::from(layout.network), layout.ip_end as usize);
        let is_ipv4 = gso.kind == GsoKind::TcpV4;
        // QEMU does not count extension headers.
        let is_plain = is_ipv4 || layout.l3_header_len() == IPV6_BYTES;
        let rest = end - copy.as_bytes().len();
        if !is_plain
            || usize::from(layout.transport) + TCP_CHECKSUM > OFFSET_MAX
            || rest > (PIECES_MAX - 1) * piece_bytes_max(gso)
        {
            return Err(refused);
        }
        copy.clear(network + if is_ipv4 { IPV4_LENGTH } else { IPV6_LENGTH });
        Ok(Self {
            copy,
            layout,
            gso,
            end,
        })
    }

    /// The context.
    pub(super) const fn context(&self) -> [u32; WORDS] {
        let Layout {
            network,
            transport: start,
            payload,
            ip_end,
            ..
        } = self.layout;
        let (last, kind) = match self.gso.kind {
            GsoKind::TcpV4 => (start - 1, tx::IPV4),
            _ => (0, 0),
        };
        [
            ip(network, last),
            transport(start, start as usize + TCP_CHECKSUM),
            tx::EXTENDED | tx::SEGMENT | tx::TCP | kind | (ip_end - payload as u32),
            (self.gso.size.get() as u32) << 16 | (payload as u32) << 8,
        ]
    }

    /// What the card inserts.
    pub(super) const fn options(&self) -> u32 {
        match self.gso.kind {
            GsoKind::TcpV4 => tx::IP_CHECKSUM | tx::CHECKSUM,
            _ => tx::CHECKSUM,
        }
    }
}
