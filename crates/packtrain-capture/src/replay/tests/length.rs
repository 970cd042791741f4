//! Packets whose lengths are not those of the wire.

use super::*;
use packtrain_offload::coalesce::NotTaken;
use packtrain_offload::coalesce::NotTakenCounts;
use packtrain_offload::layout::Layout;
use packtrain_offload::verify::verify_transport;

/// As a sender captures it before its NIC segments it: the IP length is 0, and both checksums are
/// those of other bytes.
fn left_to_the_nic(flow: u16, payload: usize) -> Vec<u8> {
    let mut packet = tcp(flow, 1, 1, 0, &[]);
    packet.extend((0..payload).map(|index| index as u8));
    let length = if flow.is_multiple_of(3) { 18 } else { 16 };
    packet[length..length + 2].fill(0);
    packet
}

fn cut_to(mtu: u32) -> Options {
    Options {
        segment: Segment::Mtu(mtu),
        ..Options::default()
    }
}

#[test]
fn a_length_that_was_left_to_the_nic_is_that_of_the_capture() {
    // The last ones are longer than a length field can state.
    for (flow, payload) in [(1, 3000), (0, 3000), (1, 70_000), (0, 70_000)] {
        let packets = [Captured::new(1_000, 0, left_to_the_nic(flow, payload))];
        let input = capture(NANO, LinkCode::ETHERNET, &packets);
        let (output, report) = replayed(&input, Options::default());
        assert!(parsed(&output) == packets, "it is not changed");
        let seen = &report.interfaces[0];
        assert_eq!((seen.no_length, seen.large, seen.flows()), (1, 1, 1));
        assert_eq!(seen.stats.packets, 0, "it has a reason of its own");

        for coalesce in [None, Some(Semantics::Reversible)] {
            let options = Options {
                coalesce,
                ..cut_to(1500)
            };
            let (output, report) = replayed(&input, options);
            let out = parsed(&output);
            assert_eq!(report.expanded, out.len() as u64 - 1);
            assert!(out.iter().all(|packet| packet.data.len() <= 1514));
            let data: Vec<u8> = out.iter().flat_map(|p| checked_payload(&p.data)).collect();
            assert_eq!(data.len(), payload);
            assert!(data.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
    }
}

/// The same over IPv6 with the jumbo payload option in front of TCP, alone or beside another one.
fn jumbo(payload: usize, beside: &[u8]) -> Vec<u8> {
    let mut packet = left_to_the_nic(0, payload);
    let units = (beside.len() / 8) as u8;
    let bytes = (packet.len() - 54 + 8 + beside.len()) as u32;
    let option = [&[6, units, 0xC2, 4][..], &bytes.to_be_bytes(), beside].concat();
    packet[20] = 0;
    packet.splice(54..54, option);
    packet
}

#[test]
fn a_jumbo_payload_is_cut_without_its_option() {
    let router_alert = [5, 2, 0, 0, 1, 2, 0, 0];
    for (beside, front) in [(&[][..], 54), (&router_alert, 54 + 16)] {
        let packet = Captured::new(1_000, 0, jumbo(100_000, beside));
        let input = capture(NANO, LinkCode::ETHERNET, std::slice::from_ref(&packet));
        let (output, report) = replayed(&input, cut_to(1500));
        let (out, seen) = (parsed(&output), &report.interfaces[0]);
        assert_eq!((seen.no_length, seen.large, seen.flows()), (1, 1, 1));
        assert_eq!((seen.stats.not_taken.total(), seen.not_cut), (0, 0));
        let mut data = Vec::new();
        for part in &out {
            assert!(part.data.len() <= 1514);
            let length = u16::from_be_bytes([part.data[18], part.data[19]]);
            assert_eq!(usize::from(length) + 54, part.data.len());
            let layout = Layout::parse(LinkType::Ethernet, &part.data, part.data.len() as u32);
            let layout = layout.expect("IPv6 with TCP");
            assert_eq!(usize::from(layout.transport), front);
            assert!(verify_transport(&part.data, &layout).is_valid());
            data.extend_from_slice(&part.data[layout.payload.into()..]);
        }
        assert!(data == packet.data[packet.data.len() - 100_000..]);
    }
    // One that says more than there is, and one whose payload is no jumbo payload.
    for bytes in [200_000_u32, 65_535] {
        let mut packet = jumbo(100_000, &[]);
        packet[58..62].copy_from_slice(&bytes.to_be_bytes());
        let packet = [Captured::new(1_000, 0, packet)];
        let input = capture(NANO, LinkCode::ETHERNET, &packet);
        let (output, report) = replayed(&input, cut_to(1500));
        assert!(parsed(&output) == packet, "it is not changed");
        let counts = report.interfaces[0].stats.not_taken;
        assert_eq!((counts.get(NotTaken::Malformed), counts.total()), (1, 1));
    }
}

#[test]
fn a_length_of_a_cut_packet_is_unknown() {
    let mut packet = Captured::new(1_000, 0, left_to_the_nic(1, 3000));
    packet.data.truncate(96);
    let (output, report) = replayed(&file(NANO, std::slice::from_ref(&packet)), cut_to(1500));
    assert_eq!(parsed(&output), [packet]);
    let seen = &report.interfaces[0];
    assert_eq!((seen.no_length, seen.cut_short, seen.not_cut), (1, 1, 0));
}

fn not_taken(data: Vec<u8>) -> NotTakenCounts {
    let packet = Captured::new(1_000, 0, data);
    let (output, report) = replayed(&file(NANO, std::slice::from_ref(&packet)), cut_to(1200));
    assert_eq!(parsed(&output), [packet]);
    report.interfaces[0].stats.not_taken
}

#[test]
fn each_odd_packet_has_its_reason() {
    let ethernet = |ethertype: [u8; 2], rest: &[u8]| [&[2; 12], &ethertype[..], rest].concat();
    let ip = tcp(1, 1, 1, 0, &[7; 100])[14..].to_vec();
    let mut wrong_udp = udp(1, &[7; 100]);
    wrong_udp[58..60].copy_from_slice(&500_u16.to_be_bytes());
    let mut gre = ip.clone();
    gre[9] = 47;
    for (data, reason) in [
        (wrong_udp, NotTaken::UdpLength),
        (vec![2; 13], NotTaken::Malformed),
        (ethernet([8, 0], &ip[..18]), NotTaken::Malformed),
        (ethernet([8, 0], &ip[..60]), NotTaken::Malformed),
        (ethernet([8, 0], &gre), NotTaken::Tunnel),
        (
            ethernet([0x88, 0x47], &[&[0, 1, 0x41, 64][..], &ip].concat()),
            NotTaken::Tunnel,
        ),
        (
            ethernet(
                [0x88, 0x64],
                &[&[0x11, 0, 0, 7, 0, 142, 0, 0x21][..], &ip].concat(),
            ),
            NotTaken::Tunnel,
        ),
        (ethernet([0x88, 0xcc], &[0; 60]), NotTaken::Protocol),
    ] {
        let counts = not_taken(data);
        assert_eq!((counts.get(reason), counts.total()), (1, 1), "{reason:?}");
    }
}
