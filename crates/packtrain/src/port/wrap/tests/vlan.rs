//! Tags are inserted and removed.

use super::*;

fn tagged(tags: &[[u8; 4]], bytes: &[u8]) -> Vec<u8> {
    [&bytes[..12], &tags.concat(), &bytes[12..]].concat()
}

#[test]
fn tags_go_in_on_the_way_in_and_off_on_the_way_out() {
    let one: &[[u8; 4]] = &[[0x81, 0, 0, 7]];
    let two: &[[u8; 4]] = &[[0x88, 0xa8, 0, 9], [0x81, 0, 0, 7]];
    for tags in [one, two] {
        let mut rig = rig(|fake| match tags.len() {
            1 => Vlan::single(fake, 7),
            _ => Vlan::double(fake, 9, 7),
        });
        let (packet, info) = large(&rig.arena);
        let large_bytes = bytes_of(&packet);
        rig.fake.give(packet, info);
        let shared = rig.arena.packet_from(&udp(64, 1)).unwrap();
        rig.fake
            .give(shared.try_clone().unwrap(), RxInfo::default());
        let mut tight = rig.arena.packet_from(&udp(64, 2)).unwrap();
        tight.prepend(tight.headroom()).unwrap().fill(0x55);
        let tight_bytes = bytes_of(&tight);
        rig.fake.give(tight, RxInfo::default());
        rig.fake
            .give(rig.arena.packet_from(&[1; 13]).unwrap(), RxInfo::default());
        let (packets, _) = rig.poll(1);
        let got: Vec<_> = packets.iter().map(bytes_of).collect();
        assert_eq!(got[0], tagged(tags, &large_bytes));
        assert_eq!(got[1], tagged(tags, &udp(64, 1)));
        assert_eq!(got[2], tagged(tags, &tight_bytes));
        assert_eq!(got[3], [1; 13]);
        assert_eq!(bytes_of(&shared), udp(64, 1));
        let more = 4 * tags.len() as u16;
        let start = ETHERNET_IPV4 as u16 + more;
        let checksum = ChecksumState::Partial { start, offset: 16 };
        assert_eq!(packets[0].meta().checksum, checksum);
        assert_eq!(
            (packets[0].meta().gso, packets[0].meta().wire_packets),
            (info.gso, 4)
        );

        // The device refused it once: it stays tagged, and is untagged again for the next attempt.
        lock(&rig.fake.0).refuse.push_back(Refused::Busy);
        for packet in packets {
            let info = info_of(&packet);
            let packet = with_info(packet, info);
            rig.transmit(packet.try_clone().unwrap());
        }
        let sent = rig.fake.sent();
        let bytes: Vec<_> = sent.iter().map(|(bytes, _)| bytes.clone()).collect();
        let plain = [
            large_bytes.clone(),
            large_bytes,
            udp(64, 1),
            tight_bytes,
            vec![1; 13],
        ];
        assert_eq!(bytes, plain);
        for (_, meta) in &sent[..2] {
            let layout = meta.layout.unwrap();
            assert_eq!((layout.vlans, layout.transport), (0, ETHERNET_IPV4 as u16));
            let start = ETHERNET_IPV4 as u16;
            assert_eq!(meta.checksum, ChecksumState::Partial { start, offset: 16 });
        }
        assert_eq!(rig.tx.held(), 0);
    }
}

#[test]
fn other_tags_and_none_pass_as_they_are() {
    let mut rig = rig(|fake| Vlan::single(fake, 7));
    for tags in [
        &[][..],
        &[[0x81, 0, 0, 8]],
        &[[0x88, 0xa8, 0, 7]],
        &[[0x81, 0, 0xe0, 7]],
    ] {
        let bytes = tagged(tags, &udp(20, 0));
        let packet = rig.arena.packet_from(&bytes).unwrap();
        rig.transmit(packet);
        let sent = rig.fake.sent().remove(0).0;
        // Only the last one's number and protocol are the wrapper's; its priority is its own.
        let ours = tags.first().is_some_and(|tag| tag[2] == 0xe0);
        assert_eq!(sent, if ours { udp(20, 0) } else { bytes });
    }
    let capabilities = rig.driver.capabilities();
    assert_eq!(
        (
            capabilities.tx_segments_max,
            capabilities.tx_gso_segments_max
        ),
        (7, 7)
    );
    assert!(!capabilities.tx.contains(Features::VLAN));
}
