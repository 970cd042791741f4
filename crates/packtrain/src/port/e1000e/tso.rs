//! What the card is told about the headers of a packet whose checksum, or segmentation, is its
//! work.

use super::registers::{WORDS, tx};
use crate::driver::{Features, Refused};
use crate::packet::Packet;
use crate::port::card::{CutHeaders, TCP_CHECKSUM, checksum_place};
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

/// What the card is told of a packet: a context, and the commands and options of its descriptors.
pub(super) type Work = (Option<[u32; WORDS]>, u32, u32);

/// The work on a packet that is sent as it is: its checksum, or none.
///
/// # Errors
///
/// [`Refused::Feature`] if the place of the checksum is no offset of 8 bits.
pub(super) fn checksum(packet: &Packet) -> Result<Work, Refused> {
    let Some((start, field)) = checksum_place(packet)? else {
        return Ok((None, 0, 0));
    };
    let layout = packet.meta().layout;
    if field > OFFSET_MAX {
        return Err(Refused::Feature(Features::checksum_of(layout)));
    }
    // The card has errors without the place of the IP header (FreeBSD, em_txrx.c).
    let network = layout.map_or(start, |layout| layout.network);
    // A sum of UDP that is 0 becomes 0xffff.
    let is_tcp = field - usize::from(start) == TCP_CHECKSUM;
    let command = tx::EXTENDED | if is_tcp { tx::TCP } else { 0 };
    let context = [ip(network, 0), transport(start, field), command, 0];
    Ok((Some(context), 0, tx::CHECKSUM))
}

/// Bytes of a piece of a packet that the card segments.
pub(super) fn piece_bytes_max(gso: Gso) -> usize {
    PIECE_BYTES_MAX.min(PIECE_SEGMENTS * usize::from(gso.size.get()))
}

/// The work on a packet that the card segments; its headers, with the bytes behind them that are in
/// front of a segment's end; and where it ends, without padding of the link. The headers are a
/// copy, since the packet's own may be shared: their IP lengths and their IPv4 checksum are 0, and
/// their TCP checksum is the sum of the pseudo-header without a length, as the card wants them
/// (Linux, netdev.c).
///
/// # Errors
///
/// [`Refused::Feature`] if the card can segment it in no form: it has IPv6 extension headers or a
/// source route, or more than 244 segments, which are too many pieces even of a copy in one frame.
pub(super) fn cut(packet: &Packet, gso: Gso) -> Result<(Work, CutHeaders, usize), Refused> {
    // With bytes of the payload, since the card has errors without (Linux, netdev.c).
    let mut headers = CutHeaders::of(packet, gso, SENTINEL_BYTES)?;
    let layout = headers.layout;
    let (start, payload, end) = (layout.transport, layout.payload, layout.ip_end);
    let (length, last, kind, options) = match gso.kind {
        GsoKind::TcpV4 => (IPV4_LENGTH, start - 1, tx::IPV4, tx::IP_CHECKSUM),
        _ => (IPV6_LENGTH, 0, 0, 0),
    };
    let field = usize::from(start) + TCP_CHECKSUM;
    // QEMU does not count extension headers.
    let is_plain = kind == tx::IPV4 || layout.l3_header_len() == IPV6_BYTES;
    let rest = end as usize - headers.as_bytes().len();
    if !is_plain || field > OFFSET_MAX || rest > (PIECES_MAX - 1) * piece_bytes_max(gso) {
        return Err(Refused::Feature(Features::of(gso.kind)));
    }
    headers.clear(usize::from(layout.network) + length);
    let context = [
        ip(layout.network, last),
        transport(start, field),
        tx::EXTENDED | tx::SEGMENT | tx::TCP | kind | (end - u32::from(payload)),
        u32::from(gso.size.get()) << 16 | u32::from(payload) << 8,
    ];
    let work = (Some(context), tx::SEGMENT, tx::CHECKSUM | options);
    Ok((work, headers, end as usize))
}
