//! A packet outside of a port. The tests of `sim:` in packtrain include this file.

use packtrain::packet::{Arena, FrameClass, Packet, PacketError, VlanTag};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};

/// A packet outside of the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// All bytes, with VLAN tags and link header.
    pub bytes: Vec<u8>,
    /// The state of the transport checksum.
    pub checksum: ChecksumState,
    /// Set for a GSO packet.
    pub gso: Option<Gso>,
}

impl Outside {
    /// A wire packet.
    #[must_use]
    pub const fn complete(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            checksum: ChecksumState::None,
            gso: None,
        }
    }

    /// A packet of the framework, as the outside gets it.
    #[must_use]
    pub fn of(packet: &Packet) -> Self {
        let meta = packet.meta();
        let mut bytes = vec![0; packet.bytes()];
        packet.copy_to(&mut bytes);
        let untagged = Self {
            bytes,
            checksum: meta.checksum,
            gso: meta.gso,
        };
        match meta.vlan {
            Some(tag) => untagged.tagged(tag),
            None => untagged,
        }
    }

    /// The packet with one more tag before its own.
    pub fn tagged(mut self, tag: VlanTag) -> Self {
        self.bytes.splice(12..12, tag_bytes(tag));
        if let ChecksumState::Partial { start, .. } = &mut self.checksum {
            *start += 4;
        }
        self
    }

    /// A packet of the framework with these bytes, in segments with the lengths of `lengths`.
    ///
    /// # Errors
    ///
    /// If the arena has too few frames.
    pub fn to_packet(
        &self,
        arena: &Arena,
        link: LinkType,
        mut lengths: impl FnMut() -> usize,
    ) -> Result<Packet, PacketError> {
        let mut packet = arena.empty_packet()?;
        let mut left = &self.bytes[..];
        while !left.is_empty() {
            packet.add_frame(FrameClass::Small)?;
            let room = packet.tailroom_mut();
            let n = left.len().min(room.len()).min(lengths().max(1));
            room[..n].copy_from_slice(&left[..n]);
            packet.grow(n)?;
            left = &left[n..];
        }
        let layout = Layout::parse(link, packet.first(), self.bytes.len() as u32).ok();
        let meta = packet.meta_mut();
        meta.link = link;
        meta.layout = layout;
        meta.checksum = self.checksum;
        meta.gso = self.gso;
        meta.wire_packets = match (self.gso, layout) {
            (Some(gso), Some(layout)) => gso.segments(layout.payload_len()) as u16,
            _ => 1,
        };
        Ok(packet)
    }
}

/// A VLAN tag as it is in a frame.
pub fn tag_bytes(tag: VlanTag) -> [u8; 4] {
    let (protocol, control) = (tag.protocol.to_be_bytes(), tag.control.to_be_bytes());
    [protocol[0], protocol[1], control[0], control[1]]
}
