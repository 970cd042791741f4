//! `Layout::parse` over any bytes: offsets in order and inside, agreeing with the length fields
//! they were read from, and the same whatever follows the headers and however much is contiguous.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, be16};
use packtrain_offload::layout::{Layout, Network, ParseError, Transport};
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::LinkType;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let link = input.link();
    let beyond = u32::from(input.word());
    let prefix = usize::from(input.word());
    let packet = input.rest();

    let packet_bytes = packet.len() as u32;
    let whole = Layout::parse(link, packet, packet_bytes);
    assert_ne!(whole, Err(ParseError::HeadersNotContiguous));
    if let Ok(layout) = &whole {
        check(link, packet, layout, packet_bytes);
        check_independence(link, packet, layout);
    }
    check_prefix(link, packet, prefix, &whole);

    // A packet whose tail is elsewhere, as long as no single buffer is.
    if let Ok(layout) = Layout::parse(link, packet, packet_bytes + beyond) {
        assert!(usize::from(layout.payload) <= packet.len());
        check(link, packet, &layout, packet_bytes + beyond);
    }
});

fn check(link: LinkType, packet: &[u8], layout: &Layout, packet_bytes: u32) {
    assert!(layout.network <= layout.transport && layout.transport <= layout.payload);
    assert!(u32::from(layout.payload) <= layout.ip_end && layout.ip_end <= packet_bytes);
    assert!(usize::from(layout.payload) <= HEADER_BYTES_MAX);
    assert!(layout.vlans <= 2);
    let link_bytes = match link {
        LinkType::Ethernet => 14 + 4 * u16::from(layout.vlans),
        LinkType::RawIp => 0,
        LinkType::Ipoib => 4,
    };
    assert_eq!(layout.network, link_bytes);

    let network = usize::from(layout.network);
    match layout.kind {
        Network::Ipv4 => {
            assert_eq!(packet[network] >> 4, 4);
            assert_eq!(layout.l3_header_len(), u16::from(packet[network] & 15) * 4);
            let total = u32::from(be16(packet, network + 2));
            assert_eq!(layout.ip_end, u32::from(layout.network) + total);
            assert_eq!(layout.fragment, be16(packet, network + 6) & 0x3fff != 0);
        }
        Network::Ipv6 => {
            assert_eq!(packet[network] >> 4, 6);
            assert!(layout.l3_header_len() >= 40 && layout.l3_header_len().is_multiple_of(8));
            let payload = u32::from(be16(packet, network + 4));
            assert_eq!(layout.ip_end, u32::from(layout.network) + 40 + payload);
            check_extensions(packet, layout);
        }
        Network::Arp | Network::Other => {
            assert_eq!(layout.transport_kind, Transport::None);
            assert!(!layout.fragment && !layout.source_routed);
        }
    }
    check_transport(packet, layout);
}

/// The chain of extension headers, followed once more: it ends at the transport header.
fn check_extensions(packet: &[u8], layout: &Layout) {
    let (mut at, end) = (
        usize::from(layout.network) + 40,
        usize::from(layout.transport),
    );
    let mut next = packet[usize::from(layout.network) + 6];
    let (mut fragment, mut source_routed) = (false, false);
    while at < end {
        assert!(!fragment, "nothing is walked behind a fragment header");
        assert!(matches!(next, 0 | 43 | 44 | 60), "{next} is walked");
        fragment = next == 44;
        source_routed |= next == 43 && packet[at + 3] != 0;
        next = packet[at];
        at += if fragment {
            8
        } else {
            8 + 8 * usize::from(packet[at + 1])
        };
    }
    assert_eq!((at, next), (end, layout.protocol.0));
    assert_eq!(
        (layout.fragment, layout.source_routed),
        (fragment, source_routed)
    );
    assert!(
        fragment || !matches!(next, 0 | 43 | 44 | 60),
        "{next} is not walked"
    );
}

fn check_transport(packet: &[u8], layout: &Layout) {
    let transport = usize::from(layout.transport);
    if layout.fragment {
        assert_eq!(layout.transport_kind, Transport::None);
    }
    match layout.transport_kind {
        Transport::Tcp => {
            assert_eq!(layout.protocol.0, 6);
            assert_eq!(
                layout.l4_header_len(),
                u16::from(packet[transport + 12] >> 4) * 4
            );
            assert!(layout.l4_header_len() >= 20);
        }
        Transport::Udp => {
            assert_eq!((layout.protocol.0, layout.l4_header_len()), (17, 8));
            assert!(u32::from(be16(packet, transport + 4)) <= layout.l4_len());
        }
        Transport::Icmp | Transport::Icmpv6 => assert_eq!(layout.l4_header_len(), 8),
        Transport::Other | Transport::None => assert_eq!(layout.l4_header_len(), 0),
    }
}

/// The bytes behind the headers do not affect the layout, and padding is no part of the packet.
fn check_independence(link: LinkType, packet: &[u8], layout: &Layout) {
    if layout.kind == Network::Arp {
        return;
    }
    let mut other = packet.to_vec();
    for byte in &mut other[usize::from(layout.payload)..] {
        *byte = !*byte;
    }
    assert_eq!(Layout::parse(link, &other, other.len() as u32), Ok(*layout));
    let trimmed = &packet[..layout.ip_end as usize];
    assert_eq!(Layout::parse(link, trimmed, layout.ip_end), Ok(*layout));
}

/// With part of the packet contiguous the result is the same, or an error that more is needed.
fn check_prefix(link: LinkType, packet: &[u8], prefix: usize, whole: &Result<Layout, ParseError>) {
    let prefix = &packet[..prefix.min(packet.len())];
    let part = Layout::parse(link, prefix, packet.len() as u32);
    let enough = packet.len().min(HEADER_BYTES_MAX);
    if prefix.len() >= enough || part != Err(ParseError::HeadersNotContiguous) {
        assert_eq!(&part, whole);
    }
}
