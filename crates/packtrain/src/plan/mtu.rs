//! The longest wire packet for a TX queue.

use crate::packet::Packet;
use packtrain_offload::limits::{ETHERNET_HEADER_BYTES, VLAN_TAG_BYTES};
use packtrain_offload::offload::LinkType;
use packtrain_offload::wire::EtherType;

/// The longest wire packet for a TX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Bytes of the link header.
    link_bytes: usize,
    /// What the user allows.
    asked: Option<u32>,
    /// Whether the device has a limit of its own, which may change.
    of_device: bool,
    /// Bytes of a wire packet, link header included, without a VLAN tag.
    wire_bytes_max: usize,
}

impl Mtu {
    /// Of packets that start with `link`, for a device with the MTU `device`, if the user allows
    /// `asked`. `None` is no limit.
    #[must_use]
    pub fn new(link: LinkType, asked: Option<u32>, device: Option<u32>) -> Self {
        let link_bytes = link.header_bytes();
        let least = device.into_iter().chain(asked).min();
        let bytes = least.map(|mtu| mtu as usize + link_bytes);
        Self {
            link_bytes,
            asked,
            of_device: device.is_some(),
            wire_bytes_max: bytes.unwrap_or(usize::MAX),
        }
    }

    /// Whether the device has a limit of its own, which may change.
    #[must_use]
    #[inline]
    pub const fn is_of_device(&self) -> bool {
        self.of_device
    }

    /// The same for a device whose MTU is `device` now.
    #[must_use]
    pub fn with_device(self, device: u32) -> Self {
        let least = self.asked.map_or(device, |asked| asked.min(device));
        Self {
            of_device: true,
            wire_bytes_max: least as usize + self.link_bytes,
            ..self
        }
    }

    /// The limit, without link header and VLAN tag; `None` for no limit.
    #[must_use]
    pub const fn get(&self) -> Option<u32> {
        match self.wire_bytes_max {
            usize::MAX => None,
            bytes => Some((bytes - self.link_bytes) as u32),
        }
    }

    /// Whether `packet`, or a segment of it if it is a GSO packet, is longer. As in Linux's
    /// `packet_snd`, a tag of 802.1Q does not count.
    #[must_use]
    #[inline]
    pub fn is_exceeded_by(&self, packet: &Packet) -> bool {
        packet.bytes() > self.wire_bytes_max && self.is_exceeded_by_wire_packet(packet)
    }

    fn is_exceeded_by_wire_packet(&self, packet: &Packet) -> bool {
        let meta = packet.meta();
        let bytes = match (meta.gso, meta.layout) {
            (None, _) => packet.bytes(),
            (Some(gso), Some(layout)) => usize::from(layout.payload) + usize::from(gso.size.get()),
            // It cannot be cut, which is the reason to drop it.
            (Some(_), None) => return false,
        };
        let tagged = self.link_bytes == ETHERNET_HEADER_BYTES
            && packet.first().get(12..14) == Some(&EtherType::VLAN.0.to_be_bytes());
        let tag_bytes = if tagged { VLAN_TAG_BYTES } else { 0 };
        bytes > self.wire_bytes_max + tag_bytes
    }
}
