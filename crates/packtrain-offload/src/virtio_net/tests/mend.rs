//! Packets as careless senders hand them over become those that a kernel takes.

use super::*;
use crate::wire::EtherType;

/// Changes the header and the packet; the offsets are of the IP header and the checksum field.
type Damage = fn(&mut VnetHeader, &mut Vec<u8>, usize, usize);

const DAMAGE: [(&str, Damage); 9] = [
    ("nothing", |_, _, _, _| {}),
    ("IPv4 checksum", |_, packet, network, _| {
        if packet[network] >> 4 == 4 {
            packet[network + 10..network + 12].fill(0);
        }
    }),
    ("IP length", |_, packet, network, _| {
        let at = if packet[network] >> 4 == 4 { 2 } else { 4 };
        packet[network + at..network + at + 2].fill(0);
    }),
    ("no seed", |_, packet, _, field| {
        packet[field..field + 2].fill(0);
    }),
    ("any seed", |_, packet, _, field| {
        packet[field..field + 2].fill(0xa5);
    }),
    ("hdr_len of 0", |header, _, _, _| header.hdr_len = 0),
    ("hdr_len of the packet", |header, packet, _, _| {
        header.hdr_len = packet.len() as u16;
    }),
    ("bytes behind", |_, packet, _, _| packet.extend([0xee; 9])),
    ("DATA_VALID", |header, _, _, _| {
        header.flags |= FLAG_DATA_VALID;
    }),
];

fn specs() -> impl Iterator<Item = Spec> {
    let all = [
        Spec::tcp4(5000),
        Spec::tcp6(5000),
        Spec::udp4(5000),
        Spec::udp6(5000),
    ];
    all.into_iter().flat_map(|spec| {
        let ethernet = spec.clone().ethernet();
        let tagged = Spec {
            vlans: vec![EtherType::QINQ.0, EtherType::VLAN.0],
            ..ethernet.clone()
        };
        [spec, ethernet, tagged]
    })
}

/// The packet as it goes to a kernel: header and bytes.
fn mended(case: &mut Case) -> (VnetHeader, Vec<u8>) {
    let bytes = case.packet.len() as u32;
    let mut received = case.validate();
    if received.is_err() {
        assert!(fill_ip_length(
            &case.header,
            case.link,
            &mut case.packet,
            bytes
        ));
        received = case.validate();
    }
    let received = received.expect("it is legal now");
    let (layout, gso) = (received.layout.expect("IP"), received.gso.expect("GSO"));
    let mut packet = case.packet[..received.packet_bytes as usize].to_vec();
    let mut out = [0; 200];
    let differs = mend(&packet, &layout, gso, &mut out).expect("it can be cut");
    let headers = usize::from(layout.payload);
    assert_eq!(differs, packet[..headers] != out[..headers]);
    packet[..headers].copy_from_slice(&out[..headers]);
    (
        describe(received.checksum, received.gso, Some(&layout)),
        packet,
    )
}

#[test]
fn each_defect_and_any_two_are_mended() {
    for spec in specs() {
        let good = Case::gso(&spec, 1000);
        let field = spec.transport() + usize::from(spec.checksum_offset());
        for (first, damage) in DAMAGE {
            for (second, more) in DAMAGE {
                // Behind an IP header without a length, everything is the packet.
                if [first, second].contains(&"IP length")
                    && [first, second].contains(&"bytes behind")
                {
                    continue;
                }
                let mut case = Case::gso(&spec, 1000);
                for damage in [damage, more] {
                    damage(&mut case.header, &mut case.packet, spec.network(), field);
                }
                let (header, packet) = mended(&mut case);
                let context = format!("{first}, {second}: {spec:?}");
                assert!(packet == good.packet, "{context}");
                assert_eq!(header.hdr_len as usize, spec.header_bytes(), "{context}");
                assert_eq!(header.flags, FLAG_NEEDS_CSUM, "{context}");
                let sent = Case {
                    header,
                    packet,
                    ..case
                };
                assert!(sent.kernel_accepts(), "{context}");
            }
        }
    }
}

#[test]
fn a_right_packet_is_not_changed() {
    for spec in specs() {
        let case = Case::gso(&spec, 1000);
        let received = case.validate().expect("it is legal");
        let (layout, gso) = (received.layout.expect("IP"), received.gso.expect("GSO"));
        let mut out = [0; 200];
        assert_eq!(
            mend(&case.packet, &layout, gso, &mut out),
            Ok(false),
            "{spec:?}"
        );
        let mut packet = case.packet.clone();
        let bytes = packet.len() as u32;
        assert!(!fill_ip_length(&case.header, spec.link, &mut packet, bytes));
        assert_eq!(packet, case.packet);
    }
}

#[test]
fn only_the_length_of_a_gso_packet_that_has_room_for_it_is_filled() {
    let spec = Spec::tcp4(3000);
    let mut gso = Case::gso(&spec, 1000);
    gso.packet[2..4].fill(0);
    let mut plain = gso.packet.clone();
    let bytes = plain.len() as u32;
    assert!(!fill_ip_length(
        &VnetHeader::default(),
        spec.link,
        &mut plain,
        bytes
    ));
    assert!(
        !fill_ip_length(&gso.header, spec.link, &mut gso.packet, 65_536),
        "BIG TCP"
    );
    assert_eq!(gso.packet[2..4], [0, 0]);
    assert!(fill_ip_length(
        &gso.header,
        spec.link,
        &mut gso.packet,
        65_535
    ));
    assert_eq!(gso.packet[2..4], [0xff, 0xff]);
    let mut short = [0x60, 0, 0, 0, 0, 0];
    assert!(
        !fill_ip_length(&gso.header, spec.link, &mut short, 40),
        "no payload"
    );
}

#[test]
fn what_cannot_be_cut_is_not_mended() {
    let spec = Spec::tcp4(3000);
    let case = Case::gso(&spec, 1000);
    let received = case.validate().expect("it is legal");
    let layout = received.layout.expect("IP");
    let other = Gso::new(GsoKind::UdpV4, NonZeroU16::MIN);
    let mut out = [0; 200];
    assert_eq!(
        mend(&case.packet, &layout, other, &mut out),
        Err(SegmentError::Kind)
    );
    let gso = received.gso.expect("GSO");
    assert_eq!(
        mend(&case.packet, &layout, gso, &mut out[..39]),
        Err(SegmentError::Buffer)
    );
    assert_eq!(
        mend(&case.packet[..39], &layout, gso, &mut out),
        Err(SegmentError::Headers)
    );
}

proptest! {
    #[test]
    fn any_bytes_keep_all_but_two(
        bytes in any_vec(any::<u8>(), 0..120),
        link in 0_usize..3,
        gso_type in any::<u8>(),
        packet_bytes in any::<u32>(),
    ) {
        let link = [LinkType::Ethernet, LinkType::RawIp, LinkType::Ipoib][link];
        let header = VnetHeader { gso_type, ..VnetHeader::default() };
        let mut filled = bytes.clone();
        let changed = fill_ip_length(&header, link, &mut filled, packet_bytes);
        let differing = bytes.iter().zip(&filled).filter(|(a, b)| a != b).count();
        prop_assert!(differing <= 2);
        prop_assert_eq!(changed, differing > 0);
    }
}
