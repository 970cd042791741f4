//! Packets whose IP length was left to a NIC: captured on their sender before its segmentation
//! offload, as Windows shows them, and as Linux does above 64 KiB (BIG TCP).

use packtrain_offload::layout::{Layout, Unstated};
use packtrain_offload::offload::LinkType;

/// A packet whose IP length was 0, with the length that it has on the wire or the longest that its
/// header can state, and without the jumbo payload option. The layout has the length on the wire.
/// `None` for any other packet.
pub(super) fn restored(
    link: LinkType,
    packet: &[u8],
    wire_bytes: u32,
) -> Option<(Vec<u8>, Layout)> {
    let unstated = Unstated::parse(link, packet, wire_bytes)?;
    let headers = unstated.headers();
    let rest = packet.get(headers.len() + usize::from(unstated.removed())..)?;
    Some(([headers, rest].concat(), *unstated.layout()))
}
