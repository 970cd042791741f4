//! The TCP headers of packets that a card segments, or that it has merged.

use crate::packet::Packet;
use packtrain_offload::checksum::{pseudo_header_v4, pseudo_header_v6};
use packtrain_offload::layout::{IpProtocol, Layout, Network};

/// Where the checksum is in a TCP header.
pub(in crate::port) const TCP_CHECKSUM: usize = 16;
const IPV4_CHECKSUM: usize = 10;

/// The sum of the pseudo-header, as the checksum field of an unfinished packet has it, for
/// `transport_bytes` bytes of TCP. `None` if `headers` has no such IP header.
pub(in crate::port) fn pseudo_header(
    headers: &[u8],
    layout: &Layout,
    transport_bytes: u32,
) -> Option<[u8; 2]> {
    let header = headers.get(usize::from(layout.network)..)?;
    let tcp = IpProtocol::TCP.0;
    let sum = match layout.kind {
        Network::Ipv4 => {
            let [from, to] = [header.get(12..16)?, header.get(16..20)?];
            let [from, to] = [from.try_into().ok()?, to.try_into().ok()?];
            pseudo_header_v4(from, to, tcp, transport_bytes)
        }
        Network::Ipv6 => {
            let [from, to] = [header.get(8..24)?, header.get(24..40)?];
            let [from, to] = [from.try_into().ok()?, to.try_into().ok()?];
            pseudo_header_v6(from, to, tcp, transport_bytes)
        }
        _ => return None,
    };
    Some(sum.fold().to_be_bytes())
}

/// A copy of the first bytes of a packet that a card segments, since its own may be shared. The
/// IPv4 checksum is 0, and the TCP checksum the sum of the pseudo-header without a length: so
/// most cards want them.
#[derive(Debug)]
pub(in crate::port) struct CutHeaders {
    bytes: [u8; Self::BYTES_MAX],
    count: usize,
}

impl CutHeaders {
    /// The longest copy.
    pub(in crate::port) const BYTES_MAX: usize = 256;

    /// A copy of the first `count` bytes. `None` if they are too many, or not all headers.
    pub(in crate::port) fn copy(packet: &Packet, layout: &Layout, count: usize) -> Option<Self> {
        let mut bytes = [0; Self::BYTES_MAX];
        let copied = packet.copy_to(bytes.get_mut(..count)?);
        let field = usize::from(layout.transport) + TCP_CHECKSUM;
        if copied < count || field + 2 > usize::from(layout.payload).min(count) {
            return None;
        }
        if layout.kind == Network::Ipv4 {
            let field = usize::from(layout.network) + IPV4_CHECKSUM;
            bytes[field..field + 2].fill(0);
        }
        let sum = pseudo_header(&bytes[..count], layout, 0)?;
        bytes[field..field + 2].copy_from_slice(&sum);
        Some(Self { bytes, count })
    }

    pub(in crate::port) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    /// Sets 16 bits to 0, of which a card takes care.
    pub(in crate::port) fn clear(&mut self, at: usize) {
        self.bytes[at..at + 2].fill(0);
    }
}
