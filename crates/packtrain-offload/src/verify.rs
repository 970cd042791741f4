//! Verification of the checksums of received packets. Merging needs it, because the merged packet
//! gets its own checksum, which hides a wrong one.
//!
//! Verification covers the stored bytes: a packet in state
//! [`Partial`](crate::offload::ChecksumState::Partial) has no finished checksum, counts as correct
//! by definition, and must not be passed to this module.
//!
//! | packet | answer |
//! |---|---|
//! | TCP or UDP, sum right | [`Valid`](Verdict::Valid) |
//! | TCP or UDP, sum wrong | [`Invalid`](Verdict::Invalid) |
//! | UDP over IPv4, field 0 | [`NoChecksum`](Verdict::NoChecksum) (RFC 768) |
//! | UDP over IPv6, field 0 | [`Invalid`](Verdict::Invalid) (RFC 8200 §8.1) |
//! | an IP fragment, other protocols, not IP | [`NotApplicable`](Verdict::NotApplicable) |
//! | a source route that is not used up | [`NotApplicable`](Verdict::NotApplicable) |
//! | bytes missing | [`NotApplicable`](Verdict::NotApplicable) |
//!
//! The module does not know the tunnels for which RFC 6935 permits a 0 over IPv6. The pseudo-header
//! of a packet with a source route has an address other than those in the IP header; it is not
//! searched for. UDP is summed up to its own length, which is also the length in its pseudo-header;
//! a surplus area behind it (RFC 9868) and link padding are ignored.

use core::ops::Range;

use crate::checksum::{Sum, sum};
use crate::layout::{Layout, Network, Transport};
use crate::limits::{
    IPV4_HEADER_BYTES_MIN, IPV6_HEADER_BYTES, TCP_HEADER_BYTES_MIN, UDP_HEADER_BYTES,
};
use crate::wire::{ipv4, ipv6, tcp, udp};

/// The result of verifying a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is correct.
    Valid,
    /// It is wrong, or absent although it is mandatory.
    Invalid,
    /// The sender stored none, as UDP over IPv4 allows: the bytes are neither confirmed nor
    /// refuted.
    NoChecksum,
    /// There is no checksum that could be verified from these bytes alone.
    NotApplicable,
}

impl Verdict {
    /// True for [`Valid`](Self::Valid) alone.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(self, Self::Valid)
    }

    #[inline]
    fn of(sum: Sum) -> Self {
        if sum.is_valid() {
            Self::Valid
        } else {
            Self::Invalid
        }
    }
}

/// Verifies the IPv4 header checksum, options included. `headers` is the start of the packet that
/// `layout` was made from; [`NotApplicable`](Verdict::NotApplicable) if it is not IPv4.
#[inline]
#[must_use]
pub fn verify_ipv4_header(headers: &[u8], layout: &Layout) -> Verdict {
    let range = usize::from(layout.network)..usize::from(layout.transport);
    match headers.get(range) {
        Some(header) if layout.kind == Network::Ipv4 && header.len() >= IPV4_HEADER_BYTES_MIN => {
            Verdict::of(sum(header))
        }
        _ => Verdict::NotApplicable,
    }
}

/// Verifies the TCP or UDP checksum of a packet in one piece. Every byte is read once.
#[inline]
#[must_use]
pub fn verify_transport(packet: &[u8], layout: &Layout) -> Verdict {
    verify_transport_pieces(packet, [], layout)
}

/// Verifies the TCP or UDP checksum of a packet in pieces of any lengths. `headers` has at least
/// `layout.payload` bytes, `rest` all bytes after `headers`.
#[inline]
#[must_use]
pub fn verify_transport_pieces<'a>(
    headers: &[u8],
    rest: impl IntoIterator<Item = &'a [u8]>,
    layout: &Layout,
) -> Verdict {
    let Some(summed) = Summed::find(headers, layout) else {
        return Verdict::NotApplicable;
    };
    if let Some(verdict) = summed.without_payload {
        return verdict;
    }
    let mut left = (summed.payload.end - summed.payload.start) as usize;
    let mut payload = Sum::new();
    let mut add = |piece: &[u8]| {
        let piece = piece.get(..left).unwrap_or(piece);
        payload.add(piece);
        left -= piece.len();
        left > 0
    };
    let after = headers.get(usize::from(layout.payload)..);
    if add(after.unwrap_or_default()) {
        let mut rest = rest.into_iter();
        while rest.next().is_some_and(&mut add) {}
    }
    if left > 0 {
        return Verdict::NotApplicable;
    }
    summed.verdict(payload, layout)
}

/// The place of a transport checksum that a sender left to its device: its field holds the sum of
/// the pseudo-header alone. As in [`Partial`](crate::offload::ChecksumState::Partial): where the
/// covered bytes begin, and where the field is, counted from there.
///
/// For packets of senders that leave it so and cannot say it, such as those of Linux on a veth with
/// an XDP program. Completing a checksum that is right already changes nothing. A damaged packet is
/// taken for such a one, and so repaired, with a probability of 2^-16: not for packets from a wire.
///
/// `headers` is the start of the packet, with all headers. `None` for other packets, and for those
/// that [`verify_transport`] does not judge.
#[inline]
#[must_use]
pub fn unfinished(headers: &[u8], layout: &Layout) -> Option<(u16, u16)> {
    let summed = Summed::find(headers, layout)?;
    if summed.without_payload.is_some() {
        return None;
    }
    let at = match layout.transport_kind {
        Transport::Tcp => tcp::field::CHECKSUM,
        _ => udp::field::CHECKSUM,
    };
    let transport = headers.get(usize::from(layout.transport)..)?;
    let field = transport.get(at..at + 2)?;
    let is_seed = summed.pseudo_header(layout)?.fold().to_be_bytes() == field;
    is_seed.then_some((layout.transport, at as u16))
}

/// The bytes that the transport checksum of a packet covers.
struct Summed<'a> {
    /// The headers in front of the payload.
    headers: &'a [u8],
    payload: Range<u32>,
    /// Transport header and payload: the length in the pseudo-header.
    l4_bytes: u32,
    /// The result, if it does not depend on the payload.
    without_payload: Option<Verdict>,
}

impl<'a> Summed<'a> {
    #[inline]
    fn find(headers: &'a [u8], layout: &Layout) -> Option<Self> {
        if layout.fragment || layout.source_routed {
            return None;
        }
        let headers = headers.get(..usize::from(layout.payload))?;
        let transport = headers.get(usize::from(layout.transport)..)?;
        let there = layout.ip_end.checked_sub(u32::from(layout.transport))?;
        let (l4_bytes, without_payload) = match layout.transport_kind {
            Transport::Tcp if transport.len() >= TCP_HEADER_BYTES_MIN => (there, None),
            Transport::Udp if transport.len() == UDP_HEADER_BYTES => {
                let header = udp::Header::parse(transport).ok()?;
                let verdict = match (header.checksum(), layout.kind) {
                    (0, Network::Ipv6) => Some(Verdict::Invalid),
                    (0, _) => Some(Verdict::NoChecksum),
                    _ => None,
                };
                (u32::from(header.len()), verdict)
            }
            _ => return None,
        };
        if l4_bytes > there || l4_bytes < transport.len() as u32 {
            return None;
        }
        Some(Self {
            headers,
            payload: u32::from(layout.payload)..u32::from(layout.transport) + l4_bytes,
            l4_bytes,
            without_payload,
        })
    }

    #[inline]
    fn pseudo_header(&self, layout: &Layout) -> Option<Sum> {
        let network = usize::from(layout.network);
        // In both versions the two addresses lie side by side at the end of the fixed header.
        let addresses = match layout.kind {
            Network::Ipv4 => network + ipv4::field::SRC..network + IPV4_HEADER_BYTES_MIN,
            Network::Ipv6 => network + ipv6::field::SRC..network + IPV6_HEADER_BYTES,
            Network::Arp | Network::Other => return None,
        };
        let mut sum = sum(self.headers.get(addresses)?);
        sum.add_u16(u16::from(layout.protocol.0));
        sum.add_u32(self.l4_bytes);
        Some(sum)
    }

    /// The pseudo-header, the transport header, and the payload summed before.
    #[inline]
    fn verdict(&self, payload: Sum, layout: &Layout) -> Verdict {
        let transport = self.headers.get(usize::from(layout.transport)..);
        let (Some(mut sum), Some(transport)) = (self.pseudo_header(layout), transport) else {
            return Verdict::NotApplicable;
        };
        sum.add(transport);
        sum.add_sum(payload);
        Verdict::of(sum)
    }
}

#[cfg(test)]
mod tests;
