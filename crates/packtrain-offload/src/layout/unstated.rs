//! Packets whose IP header does not state their length.

use super::{EtherType, IpProtocol, Layout, Transport};
use crate::limits::{HEADER_BYTES_MAX, IP_LENGTH_MAX, IPV6_HEADER_BYTES};
use crate::offload::LinkType;
use crate::wire::ipv6;

/// TCP or UDP with an IP length field of 0: the packet ends where its bytes end, or where its jumbo
/// payload option says (RFC 2675).
///
/// Senders leave the length to a NIC that segments: Windows always, Linux above 64 KiB (BIG TCP).
/// Linux puts the jumbo payload option into such packets of IPv6, or sends them without it. No wire
/// carries them; cut the packet that [`headers`](Self::headers) begin with a
/// [`Segmenter`](crate::segment::Segmenter).
#[derive(Clone, Copy, Debug)]
pub struct Unstated {
    headers: [u8; HEADER_BYTES_MAX],
    layout: Layout,
    removed: u16,
}

impl Unstated {
    /// Finds the headers of such a packet; `None` for any other, and for one whose option
    /// contradicts its bytes. The arguments are those of [`Layout::parse`].
    #[must_use]
    pub fn parse(link: LinkType, headers: &[u8], packet_bytes: u32) -> Option<Self> {
        let base = Layout::parse_link(link, headers, packet_bytes).ok()?;
        let network = usize::from(base.network);
        let ip = headers.get(network..)?;
        let mut end = packet_bytes as usize;
        let (mut hop_by_hop, mut removed) = (None, 0);
        // The place of the length, and the bytes that it does not count.
        let (at, uncounted) = match base.ethertype {
            EtherType::IPV4 => (2, 0),
            EtherType::IPV6 => (ipv6::field::PAYLOAD_LEN, IPV6_HEADER_BYTES),
            _ => return None,
        };
        if ip.get(at..at + 2)? != [0, 0] {
            return None;
        }
        if uncounted > 0 {
            // Datagrams without payload have the length 0, too.
            match IpProtocol(*ip.get(ipv6::field::NEXT_HEADER)?) {
                IpProtocol::TCP => {}
                IpProtocol::HOP_BY_HOP => {
                    let jumbo = ipv6::Jumbo::find(ip.get(IPV6_HEADER_BYTES..)?)?;
                    end = network + IPV6_HEADER_BYTES + jumbo.payload_bytes as usize;
                    removed = if jumbo.is_alone { ipv6::JUMBO_BYTES } else { 0 };
                    hop_by_hop = Some(jumbo);
                }
                _ => return None,
            }
        }
        let after = network + IPV6_HEADER_BYTES;
        let mut out = [0; HEADER_BYTES_MAX];
        let front = if removed > 0 { after } else { 0 };
        out.get_mut(..front)?.copy_from_slice(headers.get(..front)?);
        let rest = headers.get(front + removed..)?;
        let known = rest.len().min(out.len() - front);
        out[front..front + known].copy_from_slice(&rest[..known]);
        match hop_by_hop {
            Some(_) if removed > 0 => out[network + ipv6::field::NEXT_HEADER] = headers[after],
            Some(jumbo) => jumbo.pad(out.get_mut(after..)?),
            None => {}
        }
        end = end.checked_sub(removed)?;
        let stated = end.checked_sub(network + uncounted)?.min(IP_LENGTH_MAX);
        out[network + at..network + at + 2].copy_from_slice(&(stated as u16).to_be_bytes());
        let there = (network + uncounted + stated) as u32;
        let layout = Layout::parse(link, &out[..front + known], there).ok()?;
        let is_cut = matches!(layout.transport_kind, Transport::Tcp | Transport::Udp);
        if !is_cut || end + removed > packet_bytes as usize {
            return None;
        }
        let ip_end = end as u32;
        Some(Self {
            headers: out,
            layout: Layout { ip_end, ..layout },
            removed: removed as u16,
        })
    }

    /// The headers of the packet with its length, or the longest that the field can state, and
    /// without the jumbo payload option: [`Layout::payload`] bytes.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        self.headers
            .get(..usize::from(self.layout.payload))
            .unwrap_or_default()
    }

    /// The layout of the packet that begins with [`headers`](Self::headers).
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes that the packet's own headers are longer than [`headers`](Self::headers): 0, or 8 for
    /// the extension header of the jumbo payload option.
    #[must_use]
    pub const fn removed(&self) -> u16 {
        self.removed
    }
}
