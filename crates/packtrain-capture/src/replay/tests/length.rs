//! Packets whose lengths are not those of the wire.

use super::*;
use packtrain_offload::coalesce::NotTaken;
use packtrain_offload::coalesce::NotTakenCounts;

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
