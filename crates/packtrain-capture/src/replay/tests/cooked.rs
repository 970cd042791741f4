//! Packets of devices that are no Ethernet devices.

use super::*;
use etherparse::{
    ArpHardwareId, EtherType, LinuxSllHeader, LinuxSllPacketType, LinuxSllProtocolType,
};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The header for an Ethernet type: `other` makes it differ.
fn header(link: LinkCode, ethertype: u16, other: bool) -> Vec<u8> {
    let family = if ethertype == 0x800 { 2_u32 } else { 30 };
    match link {
        // Captured on a host of either byte order.
        LinkCode::NULL if other => family.to_be_bytes().to_vec(),
        LinkCode::NULL => family.to_le_bytes().to_vec(),
        LinkCode::LOOP => family.to_be_bytes().to_vec(),
        LinkCode::LINUX_SLL => {
            let header = LinuxSllHeader {
                packet_type: if other {
                    LinuxSllPacketType::OUTGOING
                } else {
                    LinuxSllPacketType::HOST
                },
                arp_hrd_type: ArpHardwareId::ETHERNET,
                sender_address_valid_length: 6,
                sender_address: [2, 0, 0, 0, 0, 7, 0, 0],
                protocol_type: LinuxSllProtocolType::EtherType(EtherType(ethertype)),
            };
            header.to_bytes().to_vec()
        }
        _ => {
            let mut header = ethertype.to_be_bytes().to_vec();
            header.extend([0, 0, 0, 0, 0, if other { 3 } else { 2 }, 0, 1, 0, 6]);
            header.extend([2, 0, 0, 0, 0, 7, 0, 0]);
            header
        }
    }
}

/// A packet with such a header in place of the Ethernet header.
fn cooked(link: LinkCode, mut packet: Captured, other: bool) -> Captured {
    let ethertype = u16::from_be_bytes([packet.data[12], packet.data[13]]);
    packet.data.splice(..14, header(link, ethertype, other));
    packet.original = packet.data.len() as u32;
    packet
}

const LINKS: [LinkCode; 4] = [
    LinkCode::NULL,
    LinkCode::LOOP,
    LinkCode::LINUX_SLL,
    LinkCode::LINUX_SLL2,
];

#[test]
fn packets_without_ethernet_are_merged_and_keep_their_header() {
    for (link, flow) in LINKS.into_iter().flat_map(|link| [(link, 0), (link, 1)]) {
        let packets = train(flow, 10, 1_000, 10, 0).into_iter();
        let packets: Vec<_> = packets.map(|packet| cooked(link, packet, false)).collect();
        let input = capture(Format::PcapNg, link, &packets);
        let (output, report) = replayed(&input, Options::default());
        assert_eq!(report.interfaces[0].other_link, 0);
        let [merged] = &parsed(&output)[..] else {
            panic!("{link:?}: {report:?}")
        };
        let own = header(link, if flow == 0 { 0x86dd } else { 0x800 }, false);
        assert_eq!(merged.data[..own.len()], own);
        let ethernet = [&tcp(flow, 1, 0, 0, &[])[..14], &merged.data[own.len()..]].concat();
        assert_eq!(checked_payload(&ethernet).len(), 10_000);
        assert_eq!(
            (merged.at, merged.original as usize),
            (1_000, merged.data.len())
        );

        let options = Options {
            segment: Segment::Original,
            ..Options::default()
        };
        let (output, report) = replayed(&input, options);
        assert_eq!(report.restored, 10);
        assert!(output == input, "{link:?}");
        let options = Options {
            segment: Segment::Mtu(1200),
            ..Options::default()
        };
        let (output, _) = replayed(&input, options);
        let out = parsed(&output);
        assert!(out.len() > 8 && out.iter().all(|packet| packet.data.starts_with(&own)));
    }
}

/// Raw IP by another number, and loopback with an Ethernet type as some programs write it.
#[test]
fn ip_is_found_behind_other_numbers() {
    let types = |flow: u16| if flow == 0 { 0x86dd_u16 } else { 0x800 };
    for flow in [0, 1] {
        let kind = types(flow);
        let short = [kind.to_be_bytes(), kind.to_le_bytes()];
        let loopback = short
            .iter()
            .flat_map(|kind| [[&kind[..], &[0; 2]].concat(), [&[0; 2], &kind[..]].concat()]);
        let headers = loopback
            .flat_map(|header| [LinkCode::NULL, LinkCode::LOOP].map(|link| (link, header.clone())));
        let raw = [LinkCode::RAW_12, LinkCode::RAW_14].map(|link| (link, Vec::new()));
        for (link, header) in headers.chain(raw) {
            let mut packets = train(flow, 10, 1_000, 10, 0);
            for packet in &mut packets {
                packet.data.splice(..14, header.clone());
                packet.original = packet.data.len() as u32;
            }
            let (output, report) = replayed(&capture(NANO, link, &packets), Options::default());
            let [merged] = &parsed(&output)[..] else {
                panic!("{link:?} {header:x?}: {report:?}")
            };
            assert!(merged.data.starts_with(&header) && merged.data.len() > 10_000);
            assert_eq!(report.interfaces[0].link, link);
        }
    }
}

#[test]
fn packets_with_different_link_headers_are_not_merged() {
    for link in [LinkCode::NULL, LinkCode::LINUX_SLL, LinkCode::LINUX_SLL2] {
        let packets = train(1, 10, 1_000, 10, 0).into_iter().enumerate();
        let packets = packets.map(|(index, packet)| cooked(link, packet, index >= 5));
        let packets: Vec<_> = packets.collect();
        let (output, _) = replayed(&capture(NANO, link, &packets), Options::default());
        let out = parsed(&output);
        assert_eq!(out.len(), 2, "{link:?}");
        assert_eq!(out[0].data[..4], packets[0].data[..4]);
        assert_eq!(out[1].data[..4], packets[5].data[..4]);
    }
}

/// Other protocols, a VLAN tag, packets that are cut or too short: each stays as it is.
#[test]
fn what_is_not_merged_is_not_changed() {
    for link in LINKS {
        let mut packets: Vec<_> = mixture()
            .into_iter()
            .filter(|packet| packet.data.len() >= 14)
            .map(|packet| cooked(link, packet, false))
            .collect();
        packets[7].data.truncate(30);
        packets.insert(9, Captured::new(packets[9].at, 0, vec![0, 0, 8]));
        let input = capture(Format::PcapNg, link, &packets);
        for coalesce in [None, Some(Semantics::Reversible)] {
            let options = Options {
                coalesce,
                segment: Segment::Original,
                ..Options::default()
            };
            let (output, report) = replayed(&input, options);
            assert!(output == input, "{link:?}");
            assert_eq!(report.interfaces[0].other_link, 1);
        }
    }
}

#[test]
fn tcpdump_reads_merged_packets() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("SKIP: tcpdump is not installed");
        return;
    }
    for link in LINKS {
        let packets = train(1, 10, 1_000, 10, 0).into_iter();
        let packets: Vec<_> = packets.map(|packet| cooked(link, packet, false)).collect();
        let (output, _) = replayed(&capture(NANO, link, &packets), Options::default());
        let mut dump = Command::new("tcpdump")
            .args(["-nvr", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("tcpdump");
        let mut input = dump.stdin.take().expect("its input");
        input.write_all(&output).expect("it reads");
        drop(input);
        let text = dump.wait_with_output().expect("its end").stdout;
        let text = String::from_utf8_lossy(&text);
        let wanted = "198.18.0.1.5001 > 198.18.0.2.443";
        assert!(
            text.contains(wanted) && text.contains("length 10000"),
            "{link:?}: {text}"
        );
        assert!(
            text.contains("(correct)") && !text.contains("bad"),
            "{text}"
        );
    }
}
