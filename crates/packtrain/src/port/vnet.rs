//! The code shared by ports with a virtio-net header in front of every packet.

use crate::driver::{Features, Refused, RxInfo};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::{Meta, Packet};
use crate::stats::DropReason;
use packtrain_offload::limits::L2_HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::virtio_net::{Accept, HeaderLen, VnetHeader, describe, validate};

/// The header's information about a packet that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) info: RxInfo,
    /// Bytes of the header.
    pub(super) front: usize,
    /// Bytes of the packet behind it; the read may have returned more.
    pub(super) bytes: usize,
}

/// Reads and checks the header in front of a packet.
///
/// `first` holds the first of all `bytes` bytes that were read, header included, and contains all
/// headers of the packet. Without a header (`None`) only the length is checked.
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

/// The header to write in front of `packet`; its first bytes are valid, as many as `header` has.
pub(super) fn header_of(packet: &Packet, header: HeaderLen) -> [u8; HeaderLen::V1.bytes()] {
    let meta = packet.meta();
    let mut bytes = [0; HeaderLen::V1.bytes()];
    describe(meta.checksum, meta.gso, meta.layout.as_ref())
        .encode(&mut bytes, header)
        .expect("no form of the header is longer");
    bytes
}

/// The least bytes of a packet: its link header, or one byte that holds the IP version.
pub(super) const fn bytes_min(link: LinkType) -> usize {
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

/// The reason to report for a packet that the kernel refused: if the packet is legal, the offload
/// that it uses.
pub(super) fn blame(meta: &Meta) -> Refused {
    match (meta.gso, meta.checksum) {
        (Some(gso), _) => Refused::Feature(Features::of(gso.kind)),
        (None, ChecksumState::Partial { .. }) => {
            Refused::Feature(Features::checksum_of(meta.layout))
        }
        (None, _) => Refused::Bad(DropReason::DeviceRefused),
    }
}
