//! The headers of a packet, in one piece.

use super::Packet;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::LinkType;

impl Packet {
    /// The layout, which is parsed if the metadata have none; `None` if it cannot be. A packet
    /// without a layout starts with `link`.
    pub(crate) fn parsed_layout(&self, link: LinkType) -> Option<Layout> {
        self.meta().layout.or_else(|| {
            let mut copy = [0; HEADER_BYTES_MAX];
            let headers = self.front(HEADER_BYTES_MAX, &mut copy);
            Layout::parse(link, headers, self.bytes() as u32).ok()
        })
    }

    /// The first `bytes` bytes and maybe more, or all if there are fewer, in one piece: copied to
    /// `copy` if they are in several.
    pub(crate) fn front<'a>(
        &'a self,
        bytes: usize,
        copy: &'a mut [u8; HEADER_BYTES_MAX],
    ) -> &'a [u8] {
        let first = self.first();
        if first.len() >= bytes.min(self.bytes()) {
            return first;
        }
        let copied = self.copy_to(copy);
        &copy[..copied]
    }
}
