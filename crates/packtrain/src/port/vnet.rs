//! The code shared by ports with a virtio-net header in front of every packet.

use super::vectored::{Filled, Posted, with_pieces};
use crate::driver::{Features, Refused, RxBurst, RxInfo, TxPacket};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{Meta, Packet, VlanTag};
use crate::stats::DropReason;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::{HEADER_BYTES_MAX, L2_HEADER_BYTES_MAX};
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};
use packtrain_offload::segment::SegmentError;
use packtrain_offload::virtio_net::{
    self, Accept, HeaderLen, VnetError, VnetHeader, describe, fill_ip_length, validate,
};
use std::io::{self, IoSlice};
use std::ops::Range;

/// Why a read returned no packet.
#[derive(Debug)]
pub(in crate::port) enum ReadError {
    /// No packet is there now.
    Empty,
    /// The interface has gone down, and maybe was deleted. A packet socket reports it once.
    Down,
    /// The kernel could not express the packet's offload in a virtio-net header, and dropped it.
    Lost,
    /// The interface was deleted.
    Removed,
    /// Anything else.
    Failed(io::Error),
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) enum WriteError {
    /// No room in the socket's buffer: it becomes writable when there is.
    Busy,
    /// No memory in the kernel. No event reports free memory: the descriptor stays writable.
    NoMemory,
    /// The interface is not up.
    Down,
    /// The interface was deleted.
    Removed,
    /// The kernel refused the virtio-net header, or the packet is malformed.
    Invalid,
    /// More segments than the kernel maps.
    Segments,
    /// More bytes than the kernel takes.
    Bytes,
    /// More bytes than the interface's MTU, and no GSO packet.
    Mtu,
    /// Anything else, including a partial write.
    Other,
}

/// Makes a packet of what was read, without the header in front, and puts it into `burst`.
///
/// Any offload is accepted. Whatever the port offers now, the packet may have been queued before,
/// or another descriptor of the interface offered more: software supports all.
///
/// # Errors
///
/// Why the packet is lost.
#[inline(always)]
pub(super) fn receive(
    posted: &mut Posted,
    filled: Filled,
    header: Option<HeaderLen>,
    link: LinkType,
    tag: Option<VlanTag>,
    burst: &mut RxBurst<'_>,
) -> Result<(), DropReason> {
    let first = posted.first(filled)?;
    let plain = read_plain(first, filled.bytes(), header, link, Accept::ALL)?;
    let Some((range, checksum)) = plain else {
        // Without a header every packet is plain.
        let form = header.unwrap_or(HeaderLen::V1);
        return receive_checked(posted, filled, form, link, tag, burst);
    };
    let mut packet = posted.take(filled, range)?;
    packet.meta_mut().vlan = tag;
    burst.push(packet, &plain_info(checksum));
    Ok(())
}

/// As [`receive`], of a packet with any header.
#[inline(never)]
fn receive_checked(
    posted: &mut Posted,
    filled: Filled,
    form: HeaderLen,
    link: LinkType,
    tag: Option<VlanTag>,
    burst: &mut RxBurst<'_>,
) -> Result<(), DropReason> {
    let first = posted.first(filled)?;
    // Parsed before it is copied: the copy takes a while to reach the cache.
    let received = read_checked(first, filled.bytes(), form, link, Accept::ALL)?;
    let end = form.bytes() + received.packet_bytes as usize;
    let mut packet = posted.take(filled, form.bytes()..end)?;
    // The offsets of the header are those without the tag, as are the bytes.
    packet.meta_mut().vlan = tag;
    burst.push(packet, &checked_info(&received));
    Ok(())
}

/// As [`read_header`], of a header that asks for nothing: where the packet is, and the state of its
/// checksum. `None` for all others.
#[inline(always)]
fn read_plain(
    first: &[u8],
    bytes: usize,
    header: Option<HeaderLen>,
    link: LinkType,
    accept: Accept,
) -> Result<Option<(Range<usize>, ChecksumState)>, DropReason> {
    let Some(form) = header else {
        return match bytes {
            _ if bytes < bytes_min(link) => Err(DropReason::Truncated),
            _ if bytes > bytes_max(link) => Err(DropReason::TooLong),
            _ => Ok(Some((0..bytes, ChecksumState::None))),
        };
    };
    let header = VnetHeader::decode(first, form).map_err(DropReason::Vnet)?;
    let packet = form.bytes()..bytes;
    let checksum = header.asks_for_nothing(link, accept, packet.len() as u32);
    Ok(checksum.map(|checksum| (packet, checksum)))
}

/// Reads and checks the header in front of a packet. Returns where the packet is in what was read,
/// and what the framework is told of it.
///
/// `first` holds the first of all `bytes` bytes that were read, header included, and contains all
/// headers of the packet. Without a header (`None`) only the length is checked. A GSO packet whose
/// IP length is 0 gets it ([`fill_ip_length`]).
///
/// # Errors
///
/// Why the packet cannot be used.
#[inline]
pub(in crate::port) fn read_header(
    first: &mut [u8],
    bytes: usize,
    header: Option<HeaderLen>,
    link: LinkType,
    accept: Accept,
) -> Result<(Range<usize>, RxInfo), DropReason> {
    if let Some((packet, checksum)) = read_plain(first, bytes, header, link, accept)? {
        return Ok((packet, plain_info(checksum)));
    }
    let form = header.unwrap_or(HeaderLen::V1);
    let received = read_checked(first, bytes, form, link, accept)?;
    let end = form.bytes() + received.packet_bytes as usize;
    Ok((form.bytes()..end, checked_info(&received)))
}

/// As [`read_header`], of any header.
#[inline(always)]
fn read_checked(
    first: &mut [u8],
    bytes: usize,
    form: HeaderLen,
    link: LinkType,
    accept: Accept,
) -> Result<virtio_net::Received, DropReason> {
    let header = VnetHeader::decode(first, form).map_err(DropReason::Vnet)?;
    let front = form.bytes();
    let (first, bytes) = (&mut first[front..], (bytes - front) as u32);
    match validate(&header, link, accept, first, bytes) {
        Ok(received) => Ok(received),
        Err(error) => lengthened(error, &header, link, accept, first, bytes),
    }
}

/// Checks a refused packet again, if it is one whose IP length was 0.
#[cold]
#[inline(never)]
fn lengthened(
    error: VnetError,
    header: &VnetHeader,
    link: LinkType,
    accept: Accept,
    first: &mut [u8],
    bytes: u32,
) -> Result<virtio_net::Received, DropReason> {
    let checked = match fill_ip_length(header, link, first, bytes) {
        true => validate(header, link, accept, first, bytes),
        false => Err(error),
    };
    checked.map_err(DropReason::Vnet)
}

/// The [`RxInfo`] of a packet whose header was checked.
#[inline]
pub(in crate::port) fn checked_info(received: &virtio_net::Received) -> RxInfo {
    RxInfo {
        layout: received.layout,
        checksum: received.checksum,
        gso: received.gso,
        wire_packets: received.wire_packets.try_into().unwrap_or(u16::MAX),
        ..RxInfo::default()
    }
}

/// The [`RxInfo`] of a packet whose header asks for nothing.
const fn plain_info(checksum: ChecksumState) -> RxInfo {
    RxInfo {
        layout: None,
        checksum,
        gso: None,
        wire_packets: 1,
        flow_hash: 0,
        timestamp: None,
    }
}

/// Removes the header of the form `header` in front of a packet of another machine, and checks the
/// packet by it. The machine must not be able to change the bytes any more.
///
/// # Errors
///
/// Why the packet cannot be used.
#[inline]
pub(in crate::port) fn admit(
    mut packet: Packet,
    header: HeaderLen,
    accept: Accept,
) -> Result<(Packet, RxInfo), DropReason> {
    let (first, bytes) = (packet.first().len(), packet.bytes());
    let first = packet.headers_mut(first);
    let first = first.map_err(|_shared| DropReason::NoBuffer)?;
    let (range, info) = read_header(first, bytes, Some(header), LinkType::Ethernet, accept)?;
    packet.trim_front(range.start);
    packet.truncate(range.len());
    Ok((packet, info))
}

/// Writes `packet` with its header in front: `one` takes both in one piece, `several` takes pieces
/// and their bytes.
pub(super) fn write_with<T>(
    packet: &mut TxPacket<'_>,
    header: Option<HeaderLen>,
    one: impl Fn(&[u8]) -> T,
    several: impl Fn(&[IoSlice<'_>], usize) -> T,
) -> T {
    let write = |header: &[u8], packet: &Packet| {
        if header.is_empty() && packet.segment_count() == 1 {
            return one(packet.first());
        }
        let bytes = header.len() + packet.bytes();
        with_pieces(header, packet, |pieces| several(pieces, bytes))
    };
    let Some(form) = header else {
        return write(&[], packet.packet());
    };
    let header = header_of(packet.packet(), form);
    let header = &header[..form.bytes()];
    match packet.with_header(header, |packet| write(&[], packet)) {
        Some(result) => result,
        None => write(header, packet.packet()),
    }
}

/// The header to write in front of `packet`; its first bytes are valid, as many as `header` has.
pub(in crate::port) fn header_of(
    packet: &Packet,
    header: HeaderLen,
) -> [u8; HeaderLen::V1.bytes()] {
    let meta = packet.meta();
    let mut bytes = [0; HeaderLen::V1.bytes()];
    if meta.is_plain() && header == HeaderLen::Legacy {
        return bytes;
    }
    describe(meta.checksum, meta.gso, meta.layout.as_ref())
        .encode(&mut bytes, header)
        .expect("no form of the header is longer");
    bytes
}

/// The least bytes of a packet: its link header, or one byte that holds the IP version.
pub(in crate::port) const fn bytes_min(link: LinkType) -> usize {
    match link {
        LinkType::RawIp => 1,
        LinkType::Ethernet | LinkType::Ipoib => link.header_bytes(),
    }
}

/// The most bytes of a packet.
const fn bytes_max(link: LinkType) -> usize {
    match link {
        LinkType::Ethernet => PACKET_BYTES_MAX,
        LinkType::RawIp | LinkType::Ipoib => {
            PACKET_BYTES_MAX - L2_HEADER_BYTES_MAX + link.header_bytes()
        }
    }
}

/// Mends the headers of a GSO packet for the kernel, which builds those of the segments on them,
/// and removes bytes behind the IP packet, which it would take for payload.
///
/// Packets of this host's kernel need none of it. Those of a guest or of an application may.
///
/// # Errors
///
/// That the packet cannot be cut at all, which the kernel would not say; or that there was no
/// memory for headers to write to.
#[inline]
pub(super) fn mend(packet: &mut TxPacket<'_>) -> Result<(), Refused> {
    let meta = packet.packet().meta();
    match (meta.gso, meta.layout) {
        (Some(gso), Some(layout)) => mend_large(packet, gso, layout),
        _ => Ok(()),
    }
}

fn mend_large(packet: &mut TxPacket<'_>, gso: Gso, layout: Layout) -> Result<(), Refused> {
    let end = layout.ip_end as usize;
    if packet.packet().bytes() > end {
        packet.packet_mut().truncate(end);
    }
    let bytes = usize::from(layout.payload);
    let (mut copied, mut mended) = ([0; HEADER_BYTES_MAX], [0; HEADER_BYTES_MAX]);
    let mut headers = packet.packet().first();
    if headers.len() < bytes {
        let got = packet.packet().copy_to(&mut copied);
        headers = &copied[..got];
    }
    match virtio_net::mend(headers, &layout, gso, &mut mended) {
        Ok(true) => {}
        // No IP header has the length of a longer packet.
        Ok(false) | Err(SegmentError::Length) => return Ok(()),
        Err(error) => return Err(Refused::Bad(DropReason::Segment(error))),
    }
    let packet = packet.packet_mut();
    let pulled = packet.pull(bytes).and_then(|_| packet.headers_mut(bytes));
    let headers = pulled.map_err(|_| Refused::Bad(DropReason::NoBuffer))?;
    headers.copy_from_slice(&mended[..bytes]);
    Ok(())
}

/// What the framework is told of a packet that the kernel refused.
pub(super) fn refused(error: WriteError, packet: &Packet) -> Refused {
    match error {
        WriteError::Busy => Refused::Busy,
        WriteError::NoMemory => Refused::NoMemory,
        WriteError::Down => Refused::LinkDown,
        WriteError::Removed => Refused::Removed,
        WriteError::Invalid => blame(packet.meta()),
        WriteError::Segments => Refused::TooManySegments,
        WriteError::Bytes => Refused::Bad(DropReason::TooLong),
        WriteError::Mtu => Refused::Bad(DropReason::Mtu),
        WriteError::Other => Refused::Bad(DropReason::DeviceRefused),
    }
}

/// The reason to report for a packet that the kernel refused: if the packet is legal, the offload
/// that it uses.
fn blame(meta: &Meta) -> Refused {
    match (meta.gso, meta.checksum) {
        (Some(gso), _) => Refused::Feature(Features::of(gso.kind)),
        (None, ChecksumState::Partial { .. }) => {
            Refused::Feature(Features::checksum_of(meta.layout))
        }
        (None, _) => Refused::Bad(DropReason::DeviceRefused),
    }
}
