//! `TunnelLayout` and `Segmenter::in_tunnel` over any bytes: each segment parses as the tunnel it
//! was cut from, and a plain sum verifies every checksum of both packets.

#![no_main]

use std::num::NonZeroU16;

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, be16, plain_sum};
use packtrain_offload::layout::{Layout, Network, Tunnel, TunnelLayout, TunnelPorts};
use packtrain_offload::limits::TUNNEL_HEADER_BYTES_MAX;
use packtrain_offload::offload::{Gso, GsoKind, LinkType};
use packtrain_offload::segment::{Fill, Segmenter};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let link = input.link();
    let Some(size) = NonZeroU16::new(input.word()) else {
        return;
    };
    let packet = input.rest();
    let bytes = packet.len() as u32;
    let ports = TunnelPorts::default();
    let Ok(Some(layout)) = TunnelLayout::parse(link, packet, bytes, ports) else {
        return;
    };
    assert!(layout.outer.payload <= layout.inner_start);
    assert!(layout.inner_start <= layout.inner.network);
    assert!(usize::from(layout.inner.payload) <= TUNNEL_HEADER_BYTES_MAX);
    assert!(layout.inner.ip_end <= layout.outer.ip_end && layout.outer.ip_end <= bytes);
    for kind in [
        GsoKind::TcpV4,
        GsoKind::TcpV6,
        GsoKind::UdpV4,
        GsoKind::UdpV6,
    ] {
        let gso = Gso::new(kind, size);
        if let Ok(segmenter) = Segmenter::in_tunnel(packet, &layout, gso, bytes) {
            check(&segmenter, packet, link, &layout);
        }
    }
});

fn check(segmenter: &Segmenter, packet: &[u8], link: LinkType, layout: &TunnelLayout) {
    let mut payload = Vec::new();
    for index in 0..segmenter.segments() {
        let mut segment = vec![0; segmenter.wire_bytes(index)];
        let wrote = segmenter.write_segment(index, packet, &mut segment);
        assert_eq!(wrote, Ok(segment.len()));
        let bytes = segment.len() as u32;
        let parsed = TunnelLayout::parse(link, &segment, bytes, TunnelPorts::default());
        let mut expected = *layout;
        expected.outer.ip_end = bytes;
        expected.inner.ip_end = bytes;
        assert_eq!(parsed, Ok(Some(expected)));
        check_sums(packet, &segment, &expected);
        let mut partial = vec![0; segmenter.header_bytes()];
        segmenter
            .write_header(index, packet, &mut partial, Fill::Partial)
            .expect("as long as before");
        let transport = usize::from(layout.inner.transport);
        assert_eq!(partial[..transport], segment[..transport], "outer sums");
        payload.extend_from_slice(&segment[segmenter.header_bytes()..]);
    }
    let range = usize::from(layout.inner.payload)..layout.inner.ip_end as usize;
    assert_eq!(payload, packet[range]);
}

fn check_sums(packet: &[u8], segment: &[u8], layout: &TunnelLayout) {
    let (outer, inner) = (&layout.outer, &layout.inner);
    for ip in [outer, inner] {
        if ip.kind == Network::Ipv4 {
            let header = usize::from(ip.network)..usize::from(ip.transport);
            assert_eq!(plain_sum(&[&segment[header]]), 0xffff);
        }
    }
    let at = usize::from(outer.transport);
    if !inner.source_routed {
        assert_eq!(transport_sum(segment, inner), 0xffff);
    }
    if layout.tunnel == Tunnel::Gre {
        if packet[at] & 0x80 != 0 && !inner.source_routed {
            assert_eq!(plain_sum(&[&segment[at..]]), 0xffff);
        }
    } else if be16(packet, at + 6) == 0 {
        assert_eq!(be16(segment, at + 6), 0, "no checksum stays none");
    } else if !outer.source_routed {
        assert_ne!(be16(segment, at + 6), 0);
        assert_eq!(transport_sum(segment, outer), 0xffff);
    }
}

/// Sum of pseudo-header, transport header and payload.
fn transport_sum(segment: &[u8], ip: &Layout) -> u16 {
    let network = usize::from(ip.network);
    let addresses = match ip.kind {
        Network::Ipv4 => network + 12..network + 20,
        _ => network + 8..network + 40,
    };
    let body = &segment[usize::from(ip.transport)..];
    let length = (body.len() as u32).to_be_bytes();
    plain_sum(&[&segment[addresses], &length, &[0, ip.protocol.0], body])
}
