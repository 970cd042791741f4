//! The text of traces.

use super::*;

#[test]
fn a_trace_says_what_passes() {
    let file = Memory::default();
    let output = Box::new(file.clone());
    let mut rig = rig(|fake| Trace::new(fake, output));
    let (packet, info) = large(&rig.arena);
    rig.fake.give(packet, info);
    let verified = RxInfo {
        checksum: ChecksumState::Unnecessary,
        ..RxInfo::default()
    };
    rig.fake
        .give(rig.arena.packet_from(&udp(20, 0)).unwrap(), verified);
    rig.fake.give(
        rig.arena.packet_from(&[0x88; 60]).unwrap(),
        RxInfo::default(),
    );
    rig.fake
        .give(rig.arena.packet_from(&[1; 3]).unwrap(), RxInfo::default());
    lock(&rig.fake.0)
        .input
        .push_back(In::Bad(DropReason::TooLong, 1));
    let (mut packets, _) = rig.poll(1);
    lock(&rig.fake.0)
        .refuse
        .extend([Refused::Busy, Refused::Bad(DropReason::DeviceRefused)]);
    let packet = packets.remove(1);
    rig.transmit(packet.try_clone().unwrap());
    rig.transmit(packet);
    let mut ipv6 = Vec::new();
    let from = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [2; 6]).ipv6(from, from, 64);
    builder.tcp(1, 2, 3, 4).write(&mut ipv6, &[]).unwrap();
    let mut packet = rig.arena.packet_from(&ipv6).unwrap();
    packet.meta_mut().vlan = Some(VlanTag {
        protocol: 0x8100,
        control: 0x2007,
    });
    rig.transmit(packet);
    let text = String::from_utf8(lock(&file.0).clone()).unwrap();
    let wanted = "\
rx fake/0 bad too_long wire=1
rx fake/0 4054 B wire=4 csum=partial(34+16) gso=TcpV4/1000 tcp 198.18.0.1:443 > 198.18.0.2:51000
rx fake/0 62 B wire=1 csum=ok udp 198.18.0.1:53 > 198.18.0.2:4000
rx fake/0 60 B wire=1 csum=none ethertype=0x8888
rx fake/0 3 B wire=1 csum=none unparsed
tx fake/0 62 B wire=1 csum=ok udp 198.18.0.1:53 > 198.18.0.2:4000 refused device_refused
tx fake/0 62 B wire=1 csum=ok udp 198.18.0.1:53 > 198.18.0.2:4000
tx fake/0 74 B wire=1 csum=none vlan=7 tcp [fd00::1]:1 > [fd00::1]:2
";
    assert_eq!(text, wanted);
    assert_eq!(rig.driver.status().lines(), 8);
}
