//! Layouts that contradict the bytes, which no parser makes but a caller may, and source routes:
//! which are refused, and which address is used.

use super::*;

/// Whether it can be cut with the layout changed.
fn with(
    spec: &Spec,
    packet: &[u8],
    size: u16,
    change: impl Fn(&mut Layout),
) -> Result<u32, SegmentError> {
    let mut layout = layout_of(spec.link, &spec.build(Field::Preload));
    change(&mut layout);
    let segmenter = Segmenter::new(packet, &layout, gso_of(spec, size), u32::MAX)?;
    Ok(segmenter.segments())
}

#[test]
fn a_datagram_that_ends_in_its_headers_is_refused() {
    for spec in [Spec::tcp4(3000), Spec::udp6(3000)] {
        let packet = spec.build(Field::Preload);
        let headers = spec.header_bytes() as u32;
        let made = with(&spec, &packet, 1000, |layout| layout.ip_end = headers - 1);
        assert_eq!(made, Err(SegmentError::Length));
    }
    let spec = Spec::tcp4(3000);
    let packet = spec.build(Field::Preload);
    assert_eq!(
        with(&spec, &packet, 1000, |layout| layout.ip_end = 40),
        Ok(1)
    );
}

/// Its payload alone would fit the length field.
#[test]
fn a_segment_too_long_with_its_headers_is_refused() {
    for (spec, headers) in [(Spec::tcp4(3000), 40), (Spec::tcp6(3000), 20)] {
        let packet = spec.build(Field::Preload);
        let made = |size| with(&spec, &packet, size, |layout| layout.ip_end = 200_000);
        assert_eq!(made(65_535 - headers + 1), Err(SegmentError::Length));
        assert!(made(65_535 - headers).is_ok());
    }
}

#[test]
fn the_tcp_header_ends_where_the_payload_begins() {
    let spec = Spec {
        tcp_options: vec![1; 8],
        ..Spec::tcp4(3000)
    };
    let packet = spec.build(Field::Preload);
    for payload in [44, 52] {
        let made = with(&spec, &packet, 1000, |layout| layout.payload = payload);
        assert_eq!(made, Err(SegmentError::Headers), "{payload}");
    }
}

#[test]
fn the_ip_header_is_of_its_version_and_ends_where_the_transport_begins() {
    let spec = Spec::tcp6(3000);
    let mut packet = spec.build(Field::Preload);
    // What looks like a TCP header of 20 bytes, 8 bytes early.
    packet[32 + 12] = 0x50;
    let made = with(&spec, &packet, 1000, |layout| {
        (layout.transport, layout.payload) = (32, 52);
    });
    assert_eq!(made, Err(SegmentError::Headers));
    let mut packet = spec.build(Field::Preload);
    packet[0] = 0x50;
    assert_eq!(
        with(&spec, &packet, 1000, |_| ()),
        Err(SegmentError::Headers)
    );

    let spec = Spec {
        ip_options: vec![1; 8],
        ..Spec::tcp4(3000)
    };
    let mut packet = spec.build(Field::Preload);
    assert_eq!(with(&spec, &packet, 1000, |_| ()), Ok(3));
    for words in [0x46, 0x48, 0x57] {
        packet[0] = words;
        let made = with(&spec, &packet, 1000, |_| ());
        assert_eq!(made, Err(SegmentError::Headers), "{words:x}");
    }
}

#[test]
fn a_udp_length_is_exactly_that_of_the_datagram() {
    let spec = Spec::udp4(3000);
    let mut packet = spec.build(Field::Preload);
    for length in [3007_u16, 3009] {
        packet[24..26].copy_from_slice(&length.to_be_bytes());
        assert_eq!(
            with(&spec, &packet, 1000, |_| ()),
            Err(SegmentError::UdpLength)
        );
    }
}

/// The first segment's transport header and payload, with this final destination in front, sum up
/// as they have to.
fn is_summed_with(spec: &Spec, destination: &[u8]) -> bool {
    let packet = spec.build(Field::Preload);
    let (wire, _) = cut(&segmenter(spec, &packet, 1000).unwrap(), &packet, true).swap_remove(0);
    let (source, bytes) = if spec.ipv6 { (8, 16) } else { (12, 4) };
    let transport = &wire[spec.transport()..];
    let mut summed = wire[source..source + bytes].to_vec();
    summed.extend(destination);
    summed.extend((transport.len() as u32).to_be_bytes());
    summed.extend([0, 0, 0, if spec.tcp { 6 } else { 17 }]);
    summed.extend(transport);
    slow_sum(&summed) == 0xffff
}

const LAST: [u8; 4] = [198, 18, 9, 9];

#[test]
fn a_route_is_found_behind_other_options_loose_or_strict() {
    for kind in [131, 137] {
        for front in [
            &[][..],
            &[1, 1, 1, 1],
            &[148, 4, 0, 0],
            &[7, 8, 5, 0, 0, 0, 0, 0],
        ] {
            let route = [&[1, kind, 11, 4, 198, 18, 7, 7][..], &LAST].concat();
            let spec = Spec {
                ip_options: [front, &route].concat(),
                ..Spec::tcp4(3000)
            };
            assert!(is_summed_with(&spec, &LAST), "{kind} behind {front:?}");
        }
    }
}

#[test]
fn no_route_is_used_behind_the_end_of_options_or_when_it_is_used_up() {
    let route = |pointer| [&[131, 7, pointer][..], &LAST].concat();
    let end = [&[0][..], &route(4)].concat();
    let used_up = [&[1][..], &route(8)].concat();
    for options in [end, used_up] {
        let spec = Spec {
            ip_options: options,
            ..Spec::tcp4(3000)
        };
        let packet = spec.build(Field::Preload);
        let made = with(&spec, &packet, 1000, |layout| layout.source_routed = true);
        assert_eq!(made, Err(SegmentError::SourceRoute));
    }
}

/// Type 0 lists addresses in order, type 4 backwards; behind a header of another kind, too.
#[test]
fn of_several_addresses_of_a_routing_header_the_last_of_the_route_counts() {
    let address = |mark| [&[0xfd][..], &[0; 14], &[mark]].concat();
    for kind in [0, 4] {
        for hop_by_hop in [false, true] {
            let exts = if hop_by_hop {
                vec![Ext::HopByHop, Ext::Destination(5)]
            } else {
                vec![Ext::Destination(5)]
            };
            let spec = Spec {
                exts,
                ..Spec::tcp6(3000)
            };
            // In place of the 40 bytes of destination options.
            let mut packet = spec.build(Field::Preload);
            let at = spec.transport() - 40;
            let place = if hop_by_hop { 40 } else { 6 };
            packet[place] = 43;
            let route = [&[6, 4, kind, 2, 1, 0, 0, 0][..], &address(1), &address(2)].concat();
            packet[at..at + 40].copy_from_slice(&route);
            let segmenter = segmenter(&spec, &packet, 1000).unwrap();
            let (wire, _) = cut(&segmenter, &packet, true).swap_remove(0);
            let transport = &wire[spec.transport()..];
            let mut summed = wire[8..24].to_vec();
            summed.extend(address(if kind == 0 { 2 } else { 1 }));
            summed.extend((transport.len() as u32).to_be_bytes());
            summed.extend([0, 0, 0, 6]);
            summed.extend(transport);
            assert_eq!(slow_sum(&summed), 0xffff, "type {kind}");
        }
    }
}

/// All sums that a header can have, so that each carry occurs.
#[test]
fn checksums_are_right_for_every_sequence_number() {
    let mut spec = Spec {
        tcp_options: vec![0xff; 8],
        flags: ACK | CWR,
        ..Spec::tcp4(0)
    };
    spec.payload = vec![0xff; 20];
    for low in 0..=u16::MAX {
        spec.sequence = 0xffff_0000 | u32::from(low);
        let mut packet = spec.build(Field::Preload);
        packet[14..16].fill(0xff);
        let mut out = [0; 58];
        let made = segmenter(&spec, &packet, 10).unwrap();
        assert_eq!(made.write_segment(0, &packet, &mut out), Ok(58));
        let mut sum = checksum::pseudo_header_v4(
            [198, 18, 255, 255],
            crate::test_packets::DESTINATION4,
            6,
            38,
        );
        sum.add(&out[20..]);
        assert!(sum.is_valid(), "{low:x}");
    }
}
