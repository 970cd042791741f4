use super::*;
use crate::offload::LinkType;
use crate::test_packets::{Ext, Field, Spec};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn layout(spec: &Spec, packet: &[u8]) -> Layout {
    Layout::parse(spec.link, packet, packet.len() as u32).expect("a packet of the tests")
}

/// The result for the whole packet, after checking that all other functions agree.
fn ask(spec: &Spec, packet: &[u8]) -> Verdict {
    let layout = layout(spec, packet);
    let whole = verify_transport(packet, &layout);
    let (headers, payload) = packet.split_at(usize::from(layout.payload));
    let bytewise = verify_transport_pieces(headers, payload.chunks(1), &layout);
    let thirds = payload.chunks(payload.len() / 3 + 1);
    assert_eq!(bytewise, whole);
    assert_eq!(verify_transport_pieces(headers, thirds, &layout), whole);
    whole
}

fn specs() -> Vec<Spec> {
    let mut specs = vec![];
    for payload in [0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 130, 1447, 1448, 9001] {
        for spec in [
            Spec::tcp4(payload),
            Spec::tcp6(payload),
            Spec::udp4(payload),
            Spec::udp6(payload),
        ] {
            specs.push(spec.clone());
            let vlans = vec![0x88a8, 0x8100];
            specs.push(Spec { vlans, ..spec }.ethernet());
        }
    }
    specs.push(Spec {
        ip_options: vec![1; 40],
        tcp_options: vec![1; 40],
        ..Spec::tcp4(333)
    });
    specs.push(Spec {
        exts: vec![Ext::HopByHop, Ext::SegmentRoutingDone],
        ..Spec::udp6(333)
    });
    specs
}

#[test]
fn right_is_valid_and_one_bit_is_not() {
    for spec in specs() {
        let mut packet = spec.build(Field::Final);
        assert_eq!(ask(&spec, &packet), Verdict::Valid, "{spec:?}");
        let last = packet.len() - 1;
        let ports = spec.transport();
        let field = spec.transport() + usize::from(spec.checksum_offset());
        // The lowest bit of the source address is in the pseudo-header alone.
        let source = spec.network() + if spec.ipv6 { 23 } else { 15 };
        for at in [last, ports, field, source] {
            packet[at] ^= 1;
            // A flip may make the UDP field 0, which means "no checksum".
            if packet[field..field + 2] != [0, 0] {
                assert_eq!(ask(&spec, &packet), Verdict::Invalid, "{spec:?} {at}");
            }
            packet[at] ^= 1;
        }
    }
}

#[test]
fn a_preload_is_not_a_checksum() {
    for spec in specs() {
        let packet = spec.build(Field::Preload);
        assert_eq!(ask(&spec, &packet), Verdict::Invalid, "{spec:?}");
    }
}

#[test]
fn udp_zero_is_none_over_ipv4_and_wrong_over_ipv6() {
    let (v4, v6) = (Spec::udp4(100), Spec::udp6(100));
    let none = Field::Value(0);
    assert_eq!(ask(&v4, &v4.build(none)), Verdict::NoChecksum);
    assert_eq!(ask(&v6, &v6.build(none)), Verdict::Invalid);
}

#[test]
fn tcp_zero_is_a_checksum_like_any_other() {
    for mut spec in [Spec::tcp4(64), Spec::tcp6(64)] {
        assert_eq!(ask(&spec, &spec.build(Field::Value(0))), Verdict::Invalid);
        // Choose the last word so that 0 is right: the sum without it is the complement.
        spec.payload[62..].fill(0);
        let packet = spec.build(Field::Final);
        let at = spec.transport() + 16;
        let word = [packet[at], packet[at + 1]];
        spec.payload[62..].copy_from_slice(&word);
        let packet = spec.build(Field::Final);
        assert_eq!(packet[at..at + 2], [0, 0]);
        assert_eq!(ask(&spec, &packet), Verdict::Valid);
    }
}

#[test]
fn udp_all_ones_stands_for_a_computed_zero() {
    for mut spec in [Spec::udp4(64), Spec::udp6(64)] {
        spec.payload[62..].fill(0);
        let packet = spec.build(Field::Final);
        let at = spec.transport() + 6;
        spec.payload[62..].copy_from_slice(&[packet[at], packet[at + 1]]);
        let packet = spec.build(Field::Final);
        assert_eq!(packet[at..at + 2], [0xFF, 0xFF]);
        assert_eq!(ask(&spec, &packet), Verdict::Valid);
    }
}

#[test]
fn padding_is_not_summed() {
    for spec in [Spec::tcp4(1).ethernet(), Spec::udp6(1).ethernet()] {
        let mut packet = spec.build(Field::Final);
        packet.extend([0xEE; 7]);
        assert_eq!(ask(&spec, &packet), Verdict::Valid);
    }
}

#[test]
fn udp_ends_where_its_length_says() {
    for (spec, length_at) in [(Spec::udp4(21), 2), (Spec::udp6(21), 4)] {
        let mut packet = spec.build(Field::Final);
        let there = u16::from_be_bytes([packet[length_at], packet[length_at + 1]]);
        packet.extend([0xEE; 6]);
        packet[length_at..length_at + 2].copy_from_slice(&(there + 6).to_be_bytes());
        let layout = layout(&spec, &packet);
        assert_eq!(layout.payload_len(), 27);
        assert_eq!(ask(&spec, &packet), Verdict::Valid);
    }
}

#[test]
fn what_cannot_be_known_is_not_applicable() {
    let mut fragment = Spec::tcp4(64).build(Field::Final);
    fragment[6] = 0x20;
    assert_eq!(ask(&Spec::tcp4(64), &fragment), Verdict::NotApplicable);

    let mut sctp = Spec::tcp4(64).build(Field::Final);
    sctp[9] = 132;
    assert_eq!(ask(&Spec::tcp4(64), &sctp), Verdict::NotApplicable);

    for routing in [Ext::Routing2, Ext::SegmentRouting] {
        let routed = Spec {
            exts: vec![routing],
            ..Spec::tcp6(64)
        };
        let packet = routed.build(Field::Final);
        assert_eq!(ask(&routed, &packet), Verdict::NotApplicable);
    }

    let arp = [
        &[0xFF; 12][..],
        &[8, 6],
        &[0, 1, 8, 0, 6, 4, 0, 1],
        &[0; 20],
    ]
    .concat();
    let spec = Spec::tcp4(0).ethernet();
    assert_eq!(ask(&spec, &arp), Verdict::NotApplicable);
    assert_eq!(
        verify_ipv4_header(&arp, &layout(&spec, &arp)),
        Verdict::NotApplicable
    );
}

#[test]
fn missing_bytes_are_not_applicable() {
    for spec in [Spec::tcp4(40), Spec::udp6(40)] {
        let packet = spec.build(Field::Final);
        let layout = layout(&spec, &packet);
        for bytes in 0..packet.len() {
            let there = &packet[..bytes];
            assert_eq!(verify_transport(there, &layout), Verdict::NotApplicable);
        }
    }
}

#[test]
fn ipv4_header_with_and_without_options() {
    for options in [0, 4, 40] {
        let spec = Spec {
            ip_options: vec![1; options],
            ..Spec::udp4(5)
        };
        let mut packet = spec.build(Field::Value(0));
        let layout = layout(&spec, &packet);
        assert_eq!(verify_ipv4_header(&packet, &layout), Verdict::Valid);
        packet[8] -= 1;
        assert_eq!(verify_ipv4_header(&packet, &layout), Verdict::Invalid);
        assert_eq!(
            verify_ipv4_header(&packet[..19], &layout),
            Verdict::NotApplicable
        );
    }
    let v6 = Spec::udp6(5).build(Field::Final);
    assert_eq!(
        verify_ipv4_header(&v6, &layout(&Spec::udp6(5), &v6)),
        Verdict::NotApplicable
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_panic_on_any_layout_of_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        offsets in prop::array::uniform4(0u16..220),
        kinds: (bool, bool, bool, bool),
    ) {
        let spec = match (kinds.0, kinds.1) {
            (false, false) => Spec::tcp4(8),
            (false, true) => Spec::udp4(8),
            (true, false) => Spec::tcp6(8),
            (true, true) => Spec::udp6(8),
        };
        let packet = spec.build(Field::Final);
        let mut layout = layout(&spec, &packet);
        if kinds.2 {
            layout.network = offsets[0];
            layout.transport = offsets[1];
            layout.payload = offsets[2];
            layout.ip_end = offsets[3].into();
        }
        // The result must not depend on where the bytes are cut.
        let whole = verify_transport(&bytes, &layout);
        let (front, back) = bytes.split_at(bytes.len().min(layout.payload.into()));
        prop_assert_eq!(verify_transport_pieces(front, [back], &layout), whole);
        let complete = layout.ip_end as usize <= bytes.len();
        prop_assert!(complete || !whole.is_valid());
        if verify_ipv4_header(&bytes, &layout).is_valid() {
            prop_assert_eq!(layout.kind, Network::Ipv4);
        }
        if kinds.3 && let Ok(layout) = Layout::parse(LinkType::RawIp, &bytes, bytes.len() as u32) {
            let short = verify_transport(&bytes[..bytes.len() / 2], &layout);
            prop_assert!(short != Verdict::Valid || layout.ip_end as usize <= bytes.len() / 2);
        }
    }
}

#[test]
fn a_checksum_that_was_left_to_the_device_is_found() {
    for spec in specs() {
        let packet = spec.build(Field::Preload);
        let layout = layout(&spec, &packet);
        let headers = &packet[..usize::from(layout.payload)];
        let place = Some((layout.transport, spec.checksum_offset()));
        assert_eq!(unfinished(headers, &layout), place, "{spec:?}");
        // Of few right packets the sum is the same; none of these is.
        let finished = spec.build(Field::Final);
        let headers = &finished[..usize::from(layout.payload)];
        assert_eq!(unfinished(headers, &layout), None, "{spec:?}");
        assert_eq!(unfinished(&headers[..headers.len() - 1], &layout), None);
    }
}

/// A packet whose data sum up to nothing has one checksum, finished and not.
#[test]
fn completing_what_is_right_already_changes_nothing() {
    let spec = Spec::udp4(2);
    let mut packet = spec.build(Field::Final);
    let layout = layout(&spec, &packet);
    let ports = usize::from(layout.transport);
    packet[ports + 6..ports + 8].fill(0);
    // The source port is such that all but the pseudo-header sums up to 0.
    let mut rest = sum(&packet[ports + 2..]);
    let summed = Summed::find(&packet, &layout);
    let seed = summed.and_then(|of| of.pseudo_header(&layout));
    let seed = seed.expect("UDP").fold();
    rest.add_u16(seed);
    rest.add_u16(seed);
    packet[ports..ports + 2].copy_from_slice(&rest.finish().to_be_bytes());
    packet[ports + 6..ports + 8].copy_from_slice(&seed.to_be_bytes());
    assert_eq!(ask(&spec, &packet), Verdict::Valid);
    let place = unfinished(&packet[..usize::from(layout.payload)], &layout);
    assert_eq!(place, Some((layout.transport, 6)));
    let completed = sum(&packet[ports..]).finish();
    assert_eq!(completed.to_be_bytes(), packet[ports + 6..ports + 8]);
}
