//! `Segmenter` over packets built from a few settings and over any bytes: the segments tile the
//! payload, parse like the original, and have checksums that a plain sum verifies.

#![no_main]

use std::num::NonZeroU16;

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, be16, be32, plain_sum};
use packtrain_offload::checksum::Sum;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind, LinkType};
use packtrain_offload::segment::{
    Fill, SegmentError, Segmenter, TCP_SEGMENTS_MAX, UDP_SEGMENTS_MAX,
};

const SYN_RST: u8 = 0x06;
const CWR: u8 = 0x80;
const FIN_PSH: u8 = 0x09;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let settings = input.byte();
    let kind = [
        GsoKind::TcpV4,
        GsoKind::TcpV6,
        GsoKind::UdpV4,
        GsoKind::UdpV6,
    ][usize::from(settings & 3)];
    let Some(size) = NonZeroU16::new(input.word()) else {
        return;
    };
    let gso = Gso::new(kind, size);
    if settings & 0x80 == 0 {
        let (link, packet) = build(kind, settings, &mut input);
        let layout = Layout::parse(link, &packet, packet.len() as u32).expect("built well");
        let result = check(&packet, link, &layout, gso);
        check_verdict(&packet, &layout, gso, result);
    } else {
        let link = input.link();
        let packet = input.rest();
        if let Ok(layout) = Layout::parse(link, packet, packet.len() as u32) {
            // The segmenter decides whether it can be cut; each segment must be correct.
            let refused = check(packet, link, &layout, gso).err();
            assert!(refused.is_none_or(|error| SegmentError::ALL.contains(&error)));
        }
    }
});

/// A valid packet, its payload and the copied fields taken from the input.
fn build(kind: GsoKind, settings: u8, input: &mut Input<'_>) -> (LinkType, Vec<u8>) {
    let vlans = usize::from(settings >> 2 & 3);
    let link = if vlans == 3 {
        LinkType::RawIp
    } else {
        LinkType::Ethernet
    };
    let extra = usize::from(input.byte());
    // Short ones mostly: a full one costs as much as hundreds of them.
    let most = if settings & 0x70 == 0x70 {
        u16::MAX
    } else {
        0xfff
    };
    let payload_bytes = usize::from(input.word() & most);
    let mut packet = Vec::new();
    if link == LinkType::Ethernet {
        packet.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        for _ in 0..vlans {
            packet.extend([0x81, 0, 0, 7]);
        }
        packet.extend(if kind.is_ipv6() { [0x86, 0xdd] } else { [8, 0] });
    }
    let network = packet.len();
    // Options of no effect: IPv4 and TCP pad with 1, IPv6 with a destination options header.
    let (ip_options, tcp_options) = (extra & 15, extra >> 4);
    let protocol = if kind.is_tcp() { 6 } else { 17 };
    if kind.is_ipv6() {
        packet.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
        packet.extend((0..32).map(|_| input.byte()));
        if ip_options > 0 {
            packet[network + 6] = 60;
            packet.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
        }
    } else {
        let words = 5 + ip_options.min(10);
        packet.extend([0x40 | words as u8, 0, 0, 0]);
        packet.extend(input.word().to_be_bytes());
        packet.extend([0x40, 0, 64, protocol, 0, 0]);
        packet.extend((0..8).map(|_| input.byte()));
        packet.resize(network + words * 4, 1);
    }
    let transport = packet.len();
    packet.extend((0..4).map(|_| input.byte()));
    if kind.is_tcp() {
        packet.extend((0..8).map(|_| input.byte()));
        let words = 5 + tcp_options.min(10);
        packet.extend([(words as u8) << 4, input.byte(), 1, 0, 0, 0, 0, 0]);
        packet.resize(transport + words * 4, 1);
    } else {
        packet.extend([0; 4]);
    }
    let ip_header = if kind.is_ipv6() { 40 } else { 0 };
    let room = 65_535 + ip_header - (packet.len() - network);
    let pattern = if input.0.is_empty() { &[0] } else { input.0 };
    let payload = pattern.iter().cycle().take(payload_bytes.min(room));
    packet.extend(payload);

    let ip_bytes = ((packet.len() - network - ip_header) as u16).to_be_bytes();
    let at = network + if kind.is_ipv6() { 4 } else { 2 };
    packet[at..at + 2].copy_from_slice(&ip_bytes);
    if !kind.is_tcp() {
        let udp_bytes = ((packet.len() - transport) as u16).to_be_bytes();
        packet[transport + 4..transport + 6].copy_from_slice(&udp_bytes);
    }
    (link, packet)
}

/// A valid packet is refused for its number of segments or its flags, and not otherwise.
fn check_verdict(packet: &[u8], layout: &Layout, gso: Gso, result: Result<u32, SegmentError>) {
    let count = (layout.payload_len())
        .div_ceil(u32::from(gso.size.get()))
        .max(1);
    let most = if gso.kind.is_tcp() {
        TCP_SEGMENTS_MAX
    } else {
        UDP_SEGMENTS_MAX
    };
    let is_syn = gso.kind.is_tcp() && packet[usize::from(layout.transport) + 13] & SYN_RST != 0;
    let expected = if count > most {
        Err(SegmentError::TooManySegments)
    } else if is_syn && count > 1 {
        Err(SegmentError::TcpFlags)
    } else {
        Ok(count)
    };
    assert_eq!(result, expected);
}

/// Cuts the packet and checks every segment. Returns their number.
fn check(packet: &[u8], link: LinkType, layout: &Layout, gso: Gso) -> Result<u32, SegmentError> {
    let segmenter = Segmenter::new(packet, layout, gso, packet.len() as u32)?;
    let header_bytes = segmenter.header_bytes();
    assert_eq!(header_bytes, usize::from(layout.payload));
    let mut next = u32::from(layout.payload);
    for index in 0..segmenter.segments() {
        let range = segmenter.payload(index);
        assert_eq!(range.start, next, "the payload is tiled");
        let is_last = index + 1 == segmenter.segments();
        let bytes = range.end - range.start;
        assert!(is_last && bytes <= gso.size.get().into() || bytes == gso.size.get().into());
        assert!(bytes > 0 || segmenter.segments() == 1);
        next = range.end;

        let payload = &packet[range.start as usize..range.end as usize];
        let mut sum = Sum::new();
        sum.add(payload);
        let mut segment = vec![0xa5; header_bytes + 1];
        let fill = Fill::Complete { payload: sum };
        let state = segmenter.write_header(index, packet, &mut segment, fill)?;
        assert_eq!(state, ChecksumState::Unnecessary);
        assert_eq!(
            segment.pop(),
            Some(0xa5),
            "nothing is written behind the headers"
        );
        segment.extend_from_slice(payload);
        check_segment(packet, link, layout, gso, &segment, index, is_last);
        check_partial(&segmenter, packet, layout, &segment, index);
        let mut whole = vec![0; segmenter.wire_bytes(index)];
        let wrote = segmenter.write_segment(index, packet, &mut whole);
        assert_eq!((wrote, &whole), (Ok(segment.len()), &segment));
    }
    assert_eq!(next, layout.ip_end);
    let end = segmenter.segments();
    assert!(segmenter.payload(end).is_empty());
    let mut out = vec![0; header_bytes];
    let beyond = segmenter.write_header(end, packet, &mut out, Fill::Partial);
    assert_eq!(beyond, Err(SegmentError::Index));
    Ok(end)
}

fn check_segment(
    packet: &[u8],
    link: LinkType,
    layout: &Layout,
    gso: Gso,
    segment: &[u8],
    index: u32,
    is_last: bool,
) {
    let parsed = Layout::parse(link, segment, segment.len() as u32).expect("a segment parses");
    assert_eq!(
        parsed,
        Layout {
            ip_end: segment.len() as u32,
            ..*layout
        }
    );
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    assert_eq!(
        segment[..network],
        packet[..network],
        "link headers are copied"
    );
    if !gso.kind.is_ipv6() {
        assert_eq!(plain_sum(&[&segment[network..transport]]), 0xffff);
        let first = be16(packet, network + 4);
        assert_eq!(be16(segment, network + 4), first.wrapping_add(index as u16));
    }
    if gso.kind.is_tcp() {
        let sequence = be32(packet, transport + 4).wrapping_add(index * u32::from(gso.size.get()));
        assert_eq!(be32(segment, transport + 4), sequence);
        let mut flags = packet[transport + 13];
        flags &= if index == 0 { 0xff } else { !CWR };
        flags &= if is_last { 0xff } else { !FIN_PSH };
        assert_eq!(segment[transport + 13], flags);
        let copied = transport + 20..usize::from(layout.payload);
        assert_eq!(
            segment[copied.clone()],
            packet[copied],
            "TCP options are copied"
        );
    } else {
        assert_ne!(
            be16(segment, transport + 6),
            0,
            "0 would mean that there is no checksum"
        );
    }
    // With a source route the destination is not the header's: the unit tests have those.
    if !layout.source_routed {
        assert_eq!(
            plain_sum(&[&pseudo_header(segment, layout), &segment[transport..]]),
            0xffff
        );
    }
}

/// The unfinished form differs in the checksum field alone, and finishing it gives the other.
fn check_partial(
    segmenter: &Segmenter,
    packet: &[u8],
    layout: &Layout,
    segment: &[u8],
    index: u32,
) {
    let mut partial = vec![0; segmenter.header_bytes()];
    let state = segmenter.write_header(index, packet, &mut partial, Fill::Partial);
    let Ok(ChecksumState::Partial { start, offset }) = state else {
        panic!("{state:?}");
    };
    assert_eq!(start, layout.transport);
    partial.extend_from_slice(&segment[partial.len()..]);
    let field = usize::from(start) + usize::from(offset);
    let finished = !plain_sum(&[&partial[usize::from(start)..]]);
    let finished = if finished == 0 && offset == 6 {
        0xffff
    } else {
        finished
    };
    partial[field..field + 2].copy_from_slice(&finished.to_be_bytes());
    assert_eq!(partial, segment);
}

fn pseudo_header(segment: &[u8], layout: &Layout) -> Vec<u8> {
    let network = usize::from(layout.network);
    let addresses = match segment[network] >> 4 {
        4 => network + 12..network + 20,
        _ => network + 8..network + 40,
    };
    let mut bytes = segment[addresses].to_vec();
    bytes.extend((segment.len() as u32 - u32::from(layout.transport)).to_be_bytes());
    bytes.extend([0, 0, 0, layout.protocol.0]);
    bytes
}
