//! The TCP headers of packets that a card segments, or that it has merged.

use crate::driver::{Features, Refused};
use crate::packet::Packet;
use packtrain_offload::checksum::sum;
use packtrain_offload::layout::{IpProtocol, Layout, Network};
use packtrain_offload::offload::Gso;
use packtrain_offload::segment::TCP_GSO_SIZE_MIN;

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
    let mut all = match layout.kind {
        Network::Ipv4 => sum(header.get(12..20)?),
        Network::Ipv6 => sum(header.get(8..40)?),
        _ => return None,
    };
    all.add_u32(IpProtocol::TCP.0.into());
    all.add_u32(transport_bytes);
    Some(all.fold().to_be_bytes())
}

/// A copy of the first bytes of a packet that a card segments, since its own may be shared. The
/// IPv4 checksum is 0, and the TCP checksum the sum of the pseudo-header without a length: so
/// most cards want them.
#[derive(Debug)]
pub(in crate::port) struct CutHeaders {
    bytes: [u8; Self::BYTES_MAX],
    count: usize,
    pub(in crate::port) layout: Layout,
}

impl CutHeaders {
    /// The longest copy.
    pub(in crate::port) const BYTES_MAX: usize = 256;

    /// The headers of a packet with `more` bytes behind them, if it has those.
    ///
    /// # Errors
    ///
    /// [`Refused::Feature`] for what no card segments: another protocol than TCP, a source route
    /// (whose last address the checksum is about), segments that are too small, and headers that
    /// are too long.
    pub(in crate::port) fn of(packet: &Packet, gso: Gso, more: usize) -> Result<Self, Refused> {
        let refused = Refused::Feature(Features::of(gso.kind));
        let layout = packet.meta().layout.ok_or(refused)?;
        let headers = usize::from(layout.payload);
        let mut copy = Self {
            bytes: [0; Self::BYTES_MAX],
            count: (headers + more).min(layout.ip_end as usize),
            layout,
        };
        let is_possible =
            gso.kind.is_tcp() && gso.size.get() >= TCP_GSO_SIZE_MIN && !layout.source_routed;
        match is_possible && copy.fill(packet).is_some() {
            true => Ok(copy),
            false => Err(refused),
        }
    }

    /// Copies the bytes. `None` if they are too many, or not all headers.
    fn fill(&mut self, packet: &Packet) -> Option<()> {
        let layout = &self.layout;
        let bytes = self.bytes.get_mut(..self.count)?;
        let field = usize::from(layout.transport) + TCP_CHECKSUM;
        let is_whole = packet.copy_to(bytes) == bytes.len();
        if !is_whole || field + 2 > usize::from(layout.payload).min(bytes.len()) {
            return None;
        }
        if layout.kind == Network::Ipv4 {
            let field = usize::from(layout.network) + IPV4_CHECKSUM;
            bytes[field..field + 2].fill(0);
        }
        let seed = pseudo_header(bytes, layout, 0)?;
        bytes[field..field + 2].copy_from_slice(&seed);
        Some(())
    }

    pub(in crate::port) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }

    /// Sets 16 bits to 0, of which a card takes care.
    pub(in crate::port) fn clear(&mut self, at: usize) {
        self.bytes[at..at + 2].fill(0);
    }
}
