//! TCP packets above 64 KiB (BIG TCP) that a read has gathered: they go on as GSO packets of up to
//! 64 KiB.

use super::vectored::{Filled, Gathered, Posted};
use super::vnet::read_header;
use crate::driver::RxBurst;
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::VlanTag;
use crate::stats::DropReason;
use packtrain_offload::offload::LinkType;
use packtrain_offload::virtio_net::{Accept, BigTcp, HeaderLen, VnetHeader};

/// An Ethernet packet above 64 KiB whose parts are received one by one.
#[derive(Debug)]
pub(super) struct Cutting {
    cut: BigTcp,
    header: HeaderLen,
    gathered: Gathered,
    tag: Option<VlanTag>,
    /// The next part.
    next: u32,
}

impl Cutting {
    /// Begins to cut what was read, a virtio-net header of the length `header` and a packet; `None`
    /// if that is a packet as any other.
    ///
    /// # Errors
    ///
    /// The reason for which the packet is dropped: its header is wrong, or it is longer than a
    /// packet may be and no TCP.
    pub(super) fn begin(
        posted: &mut Posted,
        header: HeaderLen,
        filled: Filled,
        tag: Option<VlanTag>,
    ) -> Result<Option<Box<Self>>, DropReason> {
        let gathered = posted.gather(filled)?;
        let read = posted.gathered(gathered);
        let vnet = VnetHeader::decode(read, header).map_err(DropReason::Vnet)?;
        let packet = read.get(header.bytes()..).unwrap_or_default();
        let (link, bytes) = (LinkType::Ethernet, packet.len() as u32);
        let cut = BigTcp::new(&vnet, link, Accept::ALL, packet, bytes);
        let cut = cut.map_err(DropReason::Vnet)?;
        if cut.is_none() && filled.bytes() > header.bytes() + PACKET_BYTES_MAX {
            return Err(DropReason::TooLong);
        }
        let begun = |cut| Self {
            cut,
            header,
            gathered,
            tag,
            next: 0,
        };
        Ok(cut.map(|cut| Box::new(begun(cut))))
    }

    /// Whether `posted` has frames for the next part, and for what was read besides if
    /// `more_is_read`.
    pub(super) fn has_room(&self, posted: &Posted, more_is_read: bool) -> bool {
        posted.has_room(self.gathered, more_is_read)
    }

    /// Puts the next part into `burst`. Its headers are written in front of its payload, over that
    /// of the part before. Returns what is left.
    ///
    /// # Errors
    ///
    /// The reason for which the rest of the packet is dropped.
    pub(super) fn push(
        mut self: Box<Self>,
        posted: &mut Posted,
        burst: &mut RxBurst<'_>,
    ) -> Result<Option<Box<Self>>, DropReason> {
        let Self { cut, header, .. } = &*self;
        let payload = cut.payload(self.next);
        let start = payload.start as usize - cut.header_bytes();
        let range = start..payload.end as usize + header.bytes();
        let read = posted.gathered(self.gathered);
        let part = read.get_mut(range.clone()).ok_or(DropReason::Truncated)?;
        let vnet = cut.write_headers(self.next, &mut part[header.bytes()..]);
        let vnet = vnet.map_err(DropReason::Vnet)?;
        vnet.encode(part, *header).map_err(DropReason::Vnet)?;
        let (link, bytes) = (LinkType::Ethernet, part.len());
        let (read, info) = read_header(part, bytes, Some(*header), link, Accept::ALL)?;
        let mut packet = posted.copy_gathered(self.gathered, range)?;
        packet.trim_front(read.start);
        packet.meta_mut().vlan = self.tag;
        burst.push(packet, &info);
        self.next += 1;
        Ok((self.next < self.cut.parts()).then_some(self))
    }
}
