//! Packets whose IP length was left to a NIC: captured on their sender before its segmentation
//! offload, as Windows shows them, and as Linux does above 64 KiB (BIG TCP).

use packtrain_offload::layout::{EtherType, IpProtocol, Layout, Transport};
use packtrain_offload::offload::LinkType;

const IPV6_HEADER_BYTES: usize = 40;

/// A packet whose IP length was 0, with the length that it has on the wire or the longest that its
/// header can state. The layout has the length on the wire. `None` for any other packet.
pub(super) fn restored(
    link: LinkType,
    packet: &[u8],
    wire_bytes: u32,
) -> Option<(Vec<u8>, Layout)> {
    let base = Layout::parse_link(link, packet, wire_bytes).ok()?;
    let network = usize::from(base.network);
    let ip = packet.get(network..)?;
    // The place of the length, and the bytes that it does not count.
    let (at, uncounted) = match base.ethertype {
        EtherType::IPV4 => (2, 0),
        // Datagrams without payload have the length 0, too.
        EtherType::IPV6 if ip.get(6) == Some(&IpProtocol::TCP.0) => (4, IPV6_HEADER_BYTES),
        _ => return None,
    };
    if ip.get(at..at + 2)? != [0, 0] {
        return None;
    }
    let length = (wire_bytes as usize).checked_sub(network + uncounted)?;
    let length = u16::try_from(length).unwrap_or(u16::MAX);
    let mut restored = packet.to_vec();
    restored[network + at..network + at + 2].copy_from_slice(&length.to_be_bytes());
    let stated = network + uncounted + usize::from(length);
    let layout = Layout::parse(link, &restored, stated as u32).ok()?;
    if !matches!(layout.transport_kind, Transport::Tcp | Transport::Udp) {
        return None;
    }
    let ip_end = wire_bytes;
    Some((restored, Layout { ip_end, ..layout }))
}
