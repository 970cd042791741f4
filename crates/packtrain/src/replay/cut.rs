//! Cutting what comes out of a coalescer.

use super::Segment;
use super::frame::Frame;
use super::order::{Order, Out};
use super::report::{InterfaceReport, Totals};
use packtrain_offload::checksum;
use packtrain_offload::coalesce::Merged;
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{Gso, GsoKind, LinkType};
use packtrain_offload::segment::{Segmenter, TCP_GSO_SIZE_MIN};
use packtrain_offload::verify::{Verdict, verify_ipv4_header, verify_transport};
use std::num::NonZeroU16;

/// Cuts packets as it was told.
#[derive(Debug)]
pub(super) struct Cutter {
    segment: Segment,
}

impl Cutter {
    pub(super) const fn new(segment: Segment) -> Self {
        Self { segment }
    }

    /// A packet that was made of those with these numbers.
    pub(super) fn merged(
        &mut self,
        packet: &[u8],
        merged: &Merged,
        mut numbers: impl Iterator<Item = u64>,
        order: &mut Order,
        totals: &mut Totals,
    ) {
        let pieces = u64::from(merged.pieces);
        if self.segment == Segment::Original {
            totals.transmitted += pieces;
            let mut cut = segments(packet, &merged.layout, merged.gso).into_iter();
            for number in numbers {
                let Some(bytes) = cut.next() else {
                    totals.differing += 1;
                    order.gone(number);
                    continue;
                };
                totals.restored += 1;
                totals.differing += u64::from(!order.is(number, &bytes));
                order.as_is(number, bytes);
            }
            totals.differing += cut.count() as u64;
            return;
        }
        let Some(first) = numbers.next() else { return };
        numbers.for_each(|number| order.gone(number));
        let gso = self.too_long(&merged.layout).and_then(|mtu| {
            let gso = merged.gso?;
            if gso.kind.is_tcp() {
                let cut = gso_for(mtu, gso.kind, &merged.layout)?;
                Some(cut.with_ecn(gso.ecn()))
            } else {
                Some(gso)
            }
        });
        match gso {
            Some(gso) => {
                let out = segments(packet, &merged.layout, Some(gso));
                totals.cut(pieces, out.len() as u64);
                order.ready(first, out.into_iter().map(Out::Made).collect());
            }
            None => {
                totals.transmitted += pieces;
                order.ready(first, vec![Out::Made(packet.to_vec())]);
            }
        }
    }

    /// A packet as it was captured.
    pub(super) fn single(
        &mut self,
        frame: Frame,
        link: LinkType,
        order: &mut Order,
        seen: &mut InterfaceReport,
        totals: &mut Totals,
    ) {
        let (number, _) = frame.numbers();
        let packet = frame.bytes();
        let layout = Layout::parse(link, packet, packet.len() as u32).ok();
        let is_unfinished = layout.is_some_and(|layout| is_unfinished(packet, &layout));
        seen.unfinished += u64::from(is_unfinished);
        if let Some(layout) = layout
            && let Some(mtu) = self.too_long(&layout)
        {
            if let Some(out) = cut_single(packet, &layout, mtu, is_unfinished) {
                totals.cut(1, out.len() as u64);
                order.ready(number, out.into_iter().map(Out::Made).collect());
                return;
            }
            seen.not_cut += 1;
        }
        totals.transmitted += 1;
        order.as_is(number, frame.into_bytes());
    }

    /// The MTU, if the packet's IP datagram is longer than that.
    fn too_long(&self, layout: &Layout) -> Option<u32> {
        let Segment::Mtu(mtu) = self.segment else {
            return None;
        };
        let is_longer = layout.is_ip() && layout.ip_end - u32::from(layout.network) > mtu;
        is_longer.then_some(mtu)
    }
}

/// A captured TCP packet that is longer than the MTU, if it can be cut and its checksum does not
/// speak against it.
fn cut_single(
    packet: &[u8],
    layout: &Layout,
    mtu: u32,
    is_unfinished: bool,
) -> Option<Vec<Vec<u8>>> {
    let kind = match (layout.kind, layout.transport_kind) {
        (Network::Ipv4, Transport::Tcp) => GsoKind::TcpV4,
        (Network::Ipv6, Transport::Tcp) => GsoKind::TcpV6,
        _ => return None,
    };
    if !is_unfinished && !verify_transport(packet, layout).is_valid() {
        return None;
    }
    if verify_ipv4_header(packet, layout) == Verdict::Invalid {
        return None;
    }
    let gso = gso_for(mtu, kind, layout)?;
    let out = segments(packet, layout, Some(gso));
    (!out.is_empty()).then_some(out)
}

/// How TCP is cut to an MTU.
fn gso_for(mtu: u32, kind: GsoKind, layout: &Layout) -> Option<Gso> {
    let headers = u32::from(layout.payload - layout.network);
    let size = u16::try_from(mtu.checked_sub(headers)?).ok()?;
    if size < TCP_GSO_SIZE_MIN {
        return None;
    }
    Some(Gso::new(kind, NonZeroU16::new(size)?))
}

/// The wire packets of `packet`; none if it cannot be cut.
fn segments(packet: &[u8], layout: &Layout, gso: Option<Gso>) -> Vec<Vec<u8>> {
    let Some(gso) = gso else { return Vec::new() };
    let Ok(segmenter) = Segmenter::new(packet, layout, gso, packet.len() as u32) else {
        return Vec::new();
    };
    let cut = (0..segmenter.segments()).map(|index| {
        let mut bytes = vec![0; segmenter.wire_bytes(index)];
        segmenter
            .write_segment(index, packet, &mut bytes)
            .map(|_| bytes)
    });
    cut.collect::<Result<_, _>>().unwrap_or_default()
}

/// Whether the transport checksum is the sum of the pseudo-header: what a stack stores for a device
/// that finishes it.
fn is_unfinished(packet: &[u8], layout: &Layout) -> bool {
    let offset = match layout.transport_kind {
        Transport::Tcp => 16,
        Transport::Udp => 6,
        _ => return false,
    };
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let addresses = match layout.kind {
        Network::Ipv4 => network + 12..network + 20,
        Network::Ipv6 => network + 8..network + 40,
        _ => return false,
    };
    let field = packet.get(transport + offset..transport + offset + 2);
    let (Some(&[high, low]), Some(addresses)) = (field, packet.get(addresses)) else {
        return false;
    };
    if layout.fragment || layout.source_routed {
        return false;
    }
    let mut sum = checksum::sum(addresses);
    sum.add_u16(u16::from(layout.protocol.0));
    sum.add_u32(layout.ip_end - u32::from(layout.transport));
    sum.fold() == u16::from_be_bytes([high, low]) && !verify_transport(packet, layout).is_valid()
}
