//! What ports with a virtio-net header in front of every packet have in common.

use crate::driver::{Features, Refused, RxInfo};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{Meta, Packet};
use crate::stats::DropReason;
use packtrain_offload::limits::L2_HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::virtio_net::{Accept, HeaderLen, VnetHeader, describe, validate};

/// What is known of a packet that was read, from the header in front of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) info: RxInfo,
    /// Bytes of the header.
    pub(super) front: usize,
    /// Bytes of the packet behind it; what was read may be longer.
    pub(super) bytes: usize,
}

/// What the header in front of a packet says of it, as far as it is consistent.
///
/// `first` are the first of all `bytes` bytes that were read, header included, and have all headers
/// of the packet in them. Without a header (`None`) only the length is checked.
///
/// # Errors
///
/// Why the packet cannot be used.
pub(super) fn read_header(
    first: &[u8],
    bytes: usize,
    header: Option<HeaderLen>,
    link: LinkType,
    accept: Accept,
) -> Result<Known, DropReason> {
    let Some(form) = header else {
        return match bytes {
            _ if bytes < bytes_min(link) => Err(DropReason::Truncated),
            _ if bytes > bytes_max(link) => Err(DropReason::TooLong),
            _ => Ok(Known {
                info: RxInfo::default(),
                front: 0,
                bytes,
            }),
        };
    };
    let header = VnetHeader::decode(first, form).map_err(DropReason::Vnet)?;
    let front = form.bytes();
    let received = validate(
        &header,
        link,
        accept,
        &first[front..],
        (bytes - front) as u32,
    )
    .map_err(DropReason::Vnet)?;
    Ok(Known {
        info: RxInfo {
            layout: received.layout,
            checksum: received.checksum,
            gso: received.gso,
            wire_packets: received.wire_packets.try_into().unwrap_or(u16::MAX),
            ..RxInfo::default()
        },
        front,
        bytes: received.packet_bytes as usize,
    })
}

/// The header to write in front of `packet`; as many of the bytes count as `header` has.
pub(super) fn header_of(packet: &Packet, header: HeaderLen) -> [u8; HeaderLen::V1.bytes()] {
    let meta = packet.meta();
    let mut bytes = [0; HeaderLen::V1.bytes()];
    describe(meta.checksum, meta.gso, meta.layout.as_ref())
        .encode(&mut bytes, header)
        .expect("no form of the header is longer");
    bytes
}

/// Bytes that a packet has at least: its link header, or one byte to tell the IP version by.
pub(super) const fn bytes_min(link: LinkType) -> usize {
    match link {
        LinkType::RawIp => 1,
        LinkType::Ethernet | LinkType::Ipoib => link.header_bytes(),
    }
}

/// Bytes that a packet has at most.
const fn bytes_max(link: LinkType) -> usize {
    match link {
        LinkType::Ethernet => PACKET_BYTES_MAX,
        LinkType::RawIp | LinkType::Ipoib => {
            PACKET_BYTES_MAX - L2_HEADER_BYTES_MAX + link.header_bytes()
        }
    }
}

/// What to make of a packet that the kernel does not believe: legal as it is, it was refused for
/// the offload it uses.
pub(super) fn blame(meta: &Meta) -> Refused {
    match (meta.gso, meta.checksum) {
        (Some(gso), _) => Refused::Feature(Features::of(gso.kind)),
        (None, ChecksumState::Partial { .. }) => {
            Refused::Feature(Features::checksum_of(meta.layout))
        }
        (None, _) => Refused::Bad(DropReason::DeviceRefused),
    }
}
