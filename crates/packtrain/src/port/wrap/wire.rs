//! The wire packets of a packet: GSO packets cut, checksums finished, one wire packet at a time.

use crate::packet::{Packet, VlanTag};
use packtrain_offload::checksum::Sum;
use packtrain_offload::limits::{HEADER_BYTES_MAX, VLAN_TAG_BYTES};
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};
use packtrain_offload::segment::{Fill, Segmenter, finish_partial};
use std::ops::Range;

const ETHERNET_ADDRESSES_BYTES: usize = 12;
/// Offset of the checksum in the UDP header, and in no other that has a partial one.
const UDP_CHECKSUM_OFFSET: u16 = 6;

type Header = [u8; HEADER_BYTES_MAX + VLAN_TAG_BYTES];

/// Room for a packet's rewritten headers. Allocated once and used for every packet.
#[derive(Debug)]
pub(super) struct Scratch {
    headers: [u8; HEADER_BYTES_MAX],
    out: Header,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            headers: [0; HEADER_BYTES_MAX],
            out: [0; HEADER_BYTES_MAX + VLAN_TAG_BYTES],
        }
    }
}

/// One wire packet: rewritten bytes, then a range of the packet that it comes from.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    pub(super) header: &'a [u8],
    pub(super) rest: Range<usize>,
    /// Its index, from 0.
    pub(super) index: u32,
    /// The number of wire packets.
    pub(super) count: u32,
}

/// Gives each wire packet of `packet` to `visit`, a VLAN tag beside the bytes put into them if
/// `tagged`. Returns false, with nothing visited, when the packet contradicts itself so that no
/// wire packets can be made of it.
pub(super) fn for_each(
    packet: &Packet,
    link: LinkType,
    tagged: bool,
    scratch: &mut Scratch,
    mut visit: impl FnMut(Wire<'_>),
) -> bool {
    let Scratch { headers, out } = scratch;
    let tag = packet.meta().vlan.filter(|_| tagged);
    let mut emit = |out: &mut Header, bytes: usize, rest: Range<usize>, index, count| {
        let bytes = match tag {
            Some(tag) => insert_tag(out, bytes, tag),
            None => bytes,
        };
        visit(Wire {
            header: &out[..bytes],
            rest,
            index,
            count,
        });
    };
    let Some(gso) = packet.meta().gso else {
        let Some(header_bytes) = finish(packet, tag.is_some(), out) else {
            return false;
        };
        emit(out, header_bytes, header_bytes..packet.bytes(), 0, 1);
        return true;
    };
    let Some((segmenter, got)) = segmenter(packet, link, gso, headers) else {
        return false;
    };
    let count = segmenter.segments();
    for index in 0..count {
        let payload = segmenter.payload(index);
        let payload = payload.start as usize..payload.end as usize;
        let fill = Fill::Complete {
            payload: sum_of(packet, payload.clone()),
        };
        let written = segmenter.write_header(index, &headers[..got], out, fill);
        if written.is_err() {
            // Impossible: the index and both lengths are right.
            return index > 0;
        }
        emit(out, segmenter.header_bytes(), payload, index, count);
    }
    true
}

/// Puts the tag behind the addresses of a header of `bytes` bytes; returns its new length.
fn insert_tag(out: &mut Header, bytes: usize, tag: VlanTag) -> usize {
    if bytes < ETHERNET_ADDRESSES_BYTES {
        return bytes;
    }
    let behind = ETHERNET_ADDRESSES_BYTES + VLAN_TAG_BYTES;
    out.copy_within(ETHERNET_ADDRESSES_BYTES..bytes, behind);
    out[12..14].copy_from_slice(&tag.protocol.to_be_bytes());
    out[14..16].copy_from_slice(&tag.control.to_be_bytes());
    bytes + VLAN_TAG_BYTES
}

/// Copies the part of an ordinary packet that has to change to `out`, with its checksum finished.
/// Returns the length of that part.
fn finish(packet: &Packet, tagged: bool, out: &mut Header) -> Option<usize> {
    let bytes = packet.bytes();
    let mut header_bytes = if tagged {
        ETHERNET_ADDRESSES_BYTES.min(bytes)
    } else {
        0
    };
    let ChecksumState::Partial { start, offset } = packet.meta().checksum else {
        packet.copy_to(&mut out[..header_bytes]);
        return Some(header_bytes);
    };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    if field + 2 > bytes.min(HEADER_BYTES_MAX) {
        return None;
    }
    header_bytes = header_bytes.max(field + 2);
    packet.copy_to(&mut out[..header_bytes]);
    let value = finish_partial(sum_of(packet, start..bytes), offset == UDP_CHECKSUM_OFFSET);
    out[field..field + 2].copy_from_slice(&value.to_be_bytes());
    Some(header_bytes)
}

fn segmenter(
    packet: &Packet,
    link: LinkType,
    gso: Gso,
    headers: &mut [u8; HEADER_BYTES_MAX],
) -> Option<(Segmenter, usize)> {
    let layout = packet.parsed_layout(link)?;
    let got = packet.copy_to(headers);
    let segmenter = Segmenter::new(&headers[..got], &layout, gso, packet.bytes() as u32).ok()?;
    Some((segmenter, got))
}

fn sum_of(packet: &Packet, range: Range<usize>) -> Sum {
    let mut sum = Sum::new();
    // The range is within the packet: that was checked before.
    for piece in packet.pieces(range).into_iter().flatten() {
        sum.add(piece);
    }
    sum
}
