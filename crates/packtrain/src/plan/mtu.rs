//! The longest wire packet for a TX queue.

use crate::packet::Packet;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::{L2_HEADER_BYTES_MAX, VLAN_TAG_BYTES, VLAN_TAGS_MAX};
use packtrain_offload::offload::LinkType;

/// The longest wire packet for a TX queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    link: LinkType,
    /// What the user allows.
    asked: Option<u32>,
    /// Whether the device has a limit of its own, which may change.
    of_device: bool,
    /// Bytes of a wire packet, link header included, without VLAN tags.
    wire_bytes_max: usize,
}

impl Mtu {
    /// Of packets that start with `link`, for a device with the MTU `device`, if the user allows
    /// `asked`. `None` is no limit.
    #[must_use]
    pub fn new(link: LinkType, asked: Option<u32>, device: Option<u32>) -> Self {
        let least = device.into_iter().chain(asked).min();
        let bytes = least.map(|mtu| mtu as usize + link.header_bytes());
        Self {
            link,
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
            wire_bytes_max: least as usize + self.link.header_bytes(),
            ..self
        }
    }

    /// The limit, without link header and VLAN tags; `None` for no limit.
    #[must_use]
    pub const fn get(&self) -> Option<u32> {
        match self.wire_bytes_max {
            usize::MAX => None,
            bytes => Some((bytes - self.link.header_bytes()) as u32),
        }
    }

    /// Whether `packet`, or a segment of it if it is a GSO packet, is longer. Two VLAN tags do not
    /// count, of 802.1Q or 802.1ad, in the bytes or beside them. That is what a bridge of Linux
    /// passes: it takes off one tag of either kind (`skb_vlan_untag`), and allows the bytes of
    /// another one (`is_skb_forwardable`).
    #[must_use]
    #[inline]
    pub fn is_exceeded_by(&self, packet: &Packet) -> bool {
        self.may_be_exceeded_by(packet.bytes()) && self.is_exceeded_by_wire_packet(packet)
    }

    /// Whether a packet of so many bytes may be longer: its VLAN tags are not deducted.
    #[inline]
    pub(crate) const fn may_be_exceeded_by(&self, bytes: usize) -> bool {
        bytes > self.wire_bytes_max
    }

    fn is_exceeded_by_wire_packet(&self, packet: &Packet) -> bool {
        let meta = packet.meta();
        let bytes = match (meta.gso, meta.layout) {
            (None, _) => packet.bytes(),
            (Some(gso), Some(layout)) => usize::from(layout.payload) + usize::from(gso.size.get()),
            // It cannot be cut, which is the reason to drop it.
            (Some(_), None) => return false,
        };
        let free = VLAN_TAGS_MAX - usize::from(meta.vlan.is_some());
        bytes > self.wire_bytes_max + self.tags(packet).min(free) * VLAN_TAG_BYTES
    }

    /// VLAN tags in the bytes of `packet`, 0 to 2.
    fn tags(&self, packet: &Packet) -> usize {
        let mut header = [0; L2_HEADER_BYTES_MAX];
        let got = packet.copy_to(&mut header);
        Layout::parse_link(self.link, &header[..got], packet.bytes() as u32)
            .map_or(0, |layout| usize::from(layout.vlans))
    }
}
