//! Splits the output of a coalescer, by segmentation or fragmentation.

use super::frame::Frame;
use super::options::Segment;
use super::order::{Order, Out};
use super::report::{InterfaceReport, Totals};
use packtrain_offload::checksum;
use packtrain_offload::coalesce::{Merged, Packet as _, Semantics};
use packtrain_offload::fragment::{Fragmenter, IdSource};
use packtrain_offload::layout::{Layout, Network, Transport};
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use packtrain_offload::segment::{Segmenter, TCP_GSO_SIZE_MIN};
use packtrain_offload::verify::{Verdict, verify_ipv4_header, verify_transport};
use std::num::NonZeroU16;

/// Counters of new IPv4 identifications, as many as Linux has at least.
const ID_COUNTERS: usize = 2048;
/// Constant, so that equal captures give equal output.
const ID_SEED: u64 = 0x7061_636b_7472_6169;

/// Splits packets.
#[derive(Debug)]
pub(super) struct Splitter {
    segment: Segment,
    /// The packets of a merged one have consecutive identifications, or the same one.
    counts_up: bool,
    ids: Box<[u16; ID_COUNTERS]>,
}

impl Splitter {
    pub(super) fn new(segment: Segment, coalesce: Option<Semantics>) -> Self {
        Self {
            segment,
            counts_up: coalesce != Some(Semantics::Stream),
            ids: Box::new([0; ID_COUNTERS]),
        }
    }

    /// Outputs a packet that was merged from those with these numbers.
    pub(super) fn merged(
        &mut self,
        packet: &[u8],
        merged: &Merged,
        mut numbers: impl Iterator<Item = u64>,
        order: &mut Order,
        seen: &mut InterfaceReport,
        totals: &mut Totals,
    ) {
        let pieces = u64::from(merged.pieces);
        if self.segment == Segment::Original {
            totals.transmitted += pieces;
            let segments = merged
                .gso
                .and_then(|gso| segments(packet, &merged.layout, gso));
            let mut segments = segments.unwrap_or_default().into_iter();
            for number in numbers {
                let Some(mut bytes) = segments.next() else {
                    totals.differing += 1;
                    order.ready(number, Vec::new());
                    continue;
                };
                if order.is_partial(number) {
                    make_partial(&mut bytes, &merged.layout);
                }
                totals.restored += 1;
                totals.differing += u64::from(!order.is(number, &bytes));
                order.as_is(number, bytes);
            }
            totals.differing += segments.count() as u64;
            return;
        }
        let Some(first) = numbers.next() else { return };
        order.is_merged(first);
        numbers.for_each(|number| order.merged(number, first));
        let Some(mtu) = self.too_long(&merged.layout) else {
            totals.transmitted += pieces;
            order.ready(first, vec![Out::Whole(packet.to_vec())]);
            return;
        };
        let out = self.split_merged(packet, merged, mtu);
        let out = out.unwrap_or_else(|| vec![packet.to_vec()]);
        let headers = usize::from(merged.layout.network);
        let is_longer = |out: &&Vec<u8>| out.len() - headers > mtu as usize;
        seen.not_cut += out.iter().filter(is_longer).count() as u64;
        if out.len() == 1 {
            totals.transmitted += pieces;
        } else {
            totals.count_split(pieces, out.len() as u64);
        }
        order.ready(first, out.into_iter().map(Out::Whole).collect());
    }

    /// Splits a merged packet that is longer than the MTU, if possible: TCP to the MTU, UDP into
    /// its datagrams, and those into fragments if they may be fragmented.
    fn split_merged(&mut self, packet: &[u8], merged: &Merged, mtu: u32) -> Option<Vec<Vec<u8>>> {
        let layout = &merged.layout;
        if layout.transport_kind == Transport::Udp {
            let datagrams = segments(packet, layout, merged.gso?)?;
            let fitting = datagrams.into_iter().flat_map(|datagram| {
                let layout = Layout {
                    ip_end: datagram.len() as u32,
                    ..*layout
                };
                fragments(&datagram, &layout, mtu).unwrap_or_else(|| vec![datagram])
            });
            return Some(fitting.collect());
        }
        let mut gso = gso_for(mtu, kind_of(layout)?, layout)?;
        if let Some(merged) = merged.gso {
            gso = gso.with_ecn(merged.ecn());
            if merged.fixed_id() {
                gso = gso.with_fixed_id();
            }
        }
        self.segments_with_ids(packet, layout, gso, u32::from(merged.pieces))
    }

    /// The segments of a packet of `pieces` packets. They keep its identifications if these are
    /// known and enough, or have no meaning. Otherwise they get new ones, since the following ones
    /// belong to the next packets of the capture (RFC 6864 §4.3).
    fn segments_with_ids(
        &mut self,
        packet: &[u8],
        layout: &Layout,
        gso: Gso,
        pieces: u32,
    ) -> Option<Vec<Vec<u8>>> {
        let network = usize::from(layout.network);
        let count = gso.segments(layout.ip_end - u32::from(layout.payload));
        let header = packet.get(network..network + 20)?;
        let may_be_fragmented = layout.kind == Network::Ipv4 && header[6] & 0x40 == 0;
        if !may_be_fragmented || (self.counts_up && count <= pieces) {
            return segments(packet, layout, gso);
        }
        let mut ids = IdSource::new(&mut self.ids[..], ID_SEED)?;
        let (source, destination) = (header[12..].first_chunk()?, header[16..].first_chunk()?);
        let count = u16::try_from(count).ok()?;
        let id = ids.take(*source, *destination, header[9], count);
        let mut packet = packet.to_vec();
        packet[network + 4..network + 6].copy_from_slice(&id.to_be_bytes());
        segments(&packet, layout, gso)
    }

    /// Outputs a packet that was captured whole and is not merged.
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
        if let Some(layout) = layout
            && let Some(mtu) = self.too_long(&layout)
        {
            if let Some(out) = self.split_single(packet, &layout, mtu, frame.checksum()) {
                totals.count_split(1, out.len() as u64);
                order.ready(number, out.into_iter().map(Out::Whole).collect());
                return;
            }
            seen.not_cut += 1;
        }
        totals.transmitted += 1;
        // Without padding, if that was removed.
        order.ready(number, vec![Out::Whole(frame.into_bytes())]);
    }

    /// Outputs a packet that was captured whole, and whose IP length was left to the NIC.
    /// `restored` has it. Its checksum was left to the NIC, too, and is not verified.
    pub(super) fn without_length(
        &mut self,
        frame: Frame,
        (restored, layout): (&[u8], &Layout),
        order: &mut Order,
        seen: &mut InterfaceReport,
        totals: &mut Totals,
    ) {
        let (number, _) = frame.numbers();
        if let Some(mtu) = self.too_long(layout) {
            let gso = kind_of(layout).and_then(|kind| gso_for(mtu, kind, layout));
            if let Some(gso) = gso
                && let Some(out) = self.segments_with_ids(restored, layout, gso, 1)
            {
                totals.count_split(1, out.len() as u64);
                order.ready(number, out.into_iter().map(Out::Whole).collect());
                return;
            }
            seen.not_cut += 1;
        }
        totals.transmitted += 1;
        order.as_is(number, frame.into_bytes());
    }

    /// Splits a captured packet that is longer than the MTU, if possible: TCP without a wrong
    /// checksum into segments, and a packet that may be fragmented into fragments, as a router does
    /// with any transport checksum.
    fn split_single(
        &mut self,
        packet: &[u8],
        layout: &Layout,
        mtu: u32,
        checksum: ChecksumState,
    ) -> Option<Vec<Vec<u8>>> {
        if verify_ipv4_header(packet, layout) == Verdict::Invalid {
            return None;
        }
        let is_partial = checksum != ChecksumState::None;
        if let Some(kind) = kind_of(layout)
            && (is_partial || verify_transport(packet, layout).is_valid())
            && let Some(gso) = gso_for(mtu, kind, layout)
            && let Some(segments) = self.segments_with_ids(packet, layout, gso, 1)
        {
            return Some(segments);
        }
        if !is_partial {
            return fragments(packet, layout, mtu);
        }
        let mut complete = packet.to_vec();
        complete_partial(&mut complete, layout, checksum)?;
        fragments(&complete, layout, mtu)
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

/// The GSO kind of a TCP packet.
fn kind_of(layout: &Layout) -> Option<GsoKind> {
    match (layout.kind, layout.transport_kind) {
        (Network::Ipv4, Transport::Tcp) => Some(GsoKind::TcpV4),
        (Network::Ipv6, Transport::Tcp) => Some(GsoKind::TcpV6),
        _ => None,
    }
}

/// The GSO of TCP for an MTU.
fn gso_for(mtu: u32, kind: GsoKind, layout: &Layout) -> Option<Gso> {
    let headers = u32::from(layout.payload - layout.network);
    let size = u16::try_from(mtu.checked_sub(headers)?).ok()?;
    if size < TCP_GSO_SIZE_MIN {
        return None;
    }
    Some(Gso::new(kind, NonZeroU16::new(size)?))
}

/// The segments of `packet`, if it can be segmented.
fn segments(packet: &[u8], layout: &Layout, gso: Gso) -> Option<Vec<Vec<u8>>> {
    let segmenter = Segmenter::new(packet, layout, gso, packet.len() as u32).ok()?;
    let segments = (0..segmenter.segments()).map(|index| {
        let mut bytes = vec![0; segmenter.wire_bytes(index)];
        segmenter.write_segment(index, packet, &mut bytes).ok()?;
        Some(bytes)
    });
    segments.collect()
}

/// The fragments of `packet`, if it is IPv4, longer than the MTU, and may be fragmented. They keep
/// its identification, which its sender does not repeat (RFC 6864 §4.3); new identifications are
/// for segments only.
fn fragments(packet: &[u8], layout: &Layout, mtu: u32) -> Option<Vec<Vec<u8>>> {
    let bytes = packet.len() as u32;
    let fragmenter = Fragmenter::new(packet, layout, mtu, ChecksumState::None, bytes).ok()?;
    let fragments = (0..fragmenter.fragments()).map(|index| {
        let mut bytes = vec![0; fragmenter.wire_bytes(index)];
        fragmenter.write_fragment(index, packet, &mut bytes).ok()?;
        Some(bytes)
    });
    fragments.collect()
}

/// Completes the checksum of a packet, without its padding.
fn complete_partial(packet: &mut [u8], layout: &Layout, state: ChecksumState) -> Option<()> {
    let ChecksumState::Partial { start, offset } = state else {
        return None;
    };
    let datagram = packet.get_mut(..layout.ip_end as usize)?;
    checksum::complete_partial(datagram, [], start, offset).map(drop)
}

/// The state of the transport checksum of a captured packet: partial if it is the sum of the
/// pseudo-header, as a stack stores it for a device that completes it.
pub(super) fn checksum_of(packet: &[u8], layout: &Layout) -> ChecksumState {
    if layout.fragment || layout.source_routed {
        return ChecksumState::None;
    }
    let (Some(offset), Some(sum)) = (checksum_offset(layout), pseudo_sum(packet, layout)) else {
        return ChecksumState::None;
    };
    let field = packet.get(usize::from(layout.transport + offset)..);
    if field.and_then(|field| field.first_chunk()) != Some(&sum.to_be_bytes())
        || verify_transport(packet, layout).is_valid()
    {
        return ChecksumState::None;
    }
    ChecksumState::Partial {
        start: layout.transport,
        offset,
    }
}

/// Restores a partial checksum. `merged` is the layout of the merged packet.
fn make_partial(packet: &mut [u8], merged: &Layout) {
    let layout = Layout {
        ip_end: packet.len() as u32,
        ..*merged
    };
    let (Some(offset), Some(sum)) = (checksum_offset(&layout), pseudo_sum(packet, &layout)) else {
        return;
    };
    let at = usize::from(layout.transport + offset);
    if let Some(field) = packet.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// The offset of the transport checksum in its header.
const fn checksum_offset(layout: &Layout) -> Option<u16> {
    match layout.transport_kind {
        Transport::Tcp => Some(16),
        Transport::Udp => Some(6),
        _ => None,
    }
}

/// The sum of the pseudo-header.
fn pseudo_sum(packet: &[u8], layout: &Layout) -> Option<u16> {
    let network = usize::from(layout.network);
    let addresses = match layout.kind {
        Network::Ipv4 => network + 12..network + 20,
        Network::Ipv6 => network + 8..network + 40,
        _ => return None,
    };
    let mut sum = checksum::sum(packet.get(addresses)?);
    sum.add_u16(u16::from(layout.protocol.0));
    sum.add_u32(layout.ip_end - u32::from(layout.transport));
    Some(sum.fold())
}
