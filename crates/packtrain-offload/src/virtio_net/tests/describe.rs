//! Headers that `describe` writes, also for any input: they validate, and pass a model of the
//! kernel's check.

use super::*;

/// What `describe` writes for what `validate` returned passes again, means the same but for the
/// verdict on a finished checksum, which is not passed on, and passes the kernel.
fn assert_describe(case: &Case) {
    let received = case.validate().unwrap();
    let layout = received.layout.as_ref();
    let header = describe(received.checksum, received.gso, layout);
    let packet = case.packet[..received.packet_bytes as usize].to_vec();
    let again = Case {
        header,
        packet,
        link: case.link,
        accept: Accept::ALL,
        packet_bytes: None,
    };
    let checksum = match received.checksum {
        ChecksumState::Unnecessary => ChecksumState::None,
        other => other,
    };
    assert_eq!(
        again.validate(),
        Ok(Received {
            checksum,
            ..received
        })
    );
    assert!(again.kernel_accepts(), "{header:?}");
    assert_eq!(header.num_buffers, 1);
    if received.gso.is_some() {
        assert_eq!(Some(header.hdr_len), layout.map(|layout| layout.payload));
    } else {
        assert_eq!(
            (header.gso_type, header.gso_size, header.hdr_len),
            (0, 0, 0)
        );
    }
}

#[test]
fn what_describe_writes_passes_for_every_tail() {
    for tail in 1..=500 {
        for spec in [
            Spec::tcp4(1500),
            Spec::tcp6(1500),
            Spec::udp4(1500),
            Spec::udp6(1500),
        ] {
            let mut spec = if tail % 2 == 0 { spec.ethernet() } else { spec };
            spec.payload.truncate(1000 + tail);
            assert_describe(&Case::gso(&spec, 500));
        }
    }
}

#[test]
fn describe_keeps_ecn_on_tcp_only() {
    let spec = Spec {
        flags: CWR | ACK,
        ..Spec::tcp6(3000)
    };
    let mut case = Case::gso(&spec, 1000);
    case.header.gso_type |= GSO_ECN;
    assert_describe(&case);
    let received = case.validate().unwrap();
    assert_eq!(received.gso.unwrap().ecn(), Ecn::Cwr);
    let header = describe(received.checksum, received.gso, received.layout.as_ref());
    assert_eq!(header.gso_type, GSO_TCPV6 | GSO_ECN);
}

#[test]
fn describe_of_finished_packets_is_empty() {
    let empty = VnetHeader {
        num_buffers: 1,
        ..VnetHeader::default()
    };
    assert_eq!(describe(ChecksumState::None, None, None), empty);
    assert_eq!(describe(ChecksumState::Unnecessary, None, None), empty);
}

prop_compose! {
    fn any_header()(
        flags in prop_oneof![2 => Just(1_u8), 1 => Just(0), 1 => Just(2), 2 => any::<u8>()],
        gso_type in prop_oneof![Just(0_u8), Just(1), Just(4), Just(5), Just(0x81), any::<u8>()],
        hdr_len in prop_oneof![0_u16..100, any::<u16>()],
        gso_size in prop_oneof![0_u16..2000, any::<u16>()],
        csum_start in prop_oneof![Just(20_u16), Just(34), Just(40), Just(54), any::<u16>()],
        csum_offset in prop_oneof![Just(6_u16), Just(16), any::<u16>()],
        num_buffers in any::<u16>(),
    ) -> VnetHeader {
        VnetHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers }
    }
}

prop_compose! {
    fn any_case()(
        header in any_header(),
        kind in 0_usize..4,
        ethernet in any::<bool>(),
        payload in 0_usize..4000,
        flips in any_vec((0_usize..80, any::<u8>()), 0..3),
        garbage in prop_oneof![4 => Just(None), 1 => any_vec(any::<u8>(), 0..200).prop_map(Some)],
        extra in prop_oneof![3 => Just(0_u32), 1 => 0_u32..70_000],
        accept in prop_oneof![3 => Just(Accept::ALL), 1 => (0_u8..128).prop_map(Accept)],
    ) -> Case {
        let spec = [Spec::tcp4, Spec::tcp6, Spec::udp4, Spec::udp6][kind](payload);
        let spec = if ethernet { spec.ethernet() } else { spec };
        let mut packet = garbage.unwrap_or_else(|| spec.build(Field::Preload));
        for (at, value) in flips {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let packet_bytes = Some(packet.len() as u32 + extra);
        Case { header, link: spec.link, accept, packet, packet_bytes }
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {:?} ", self.header, self.link, self.accept)?;
        write!(f, "{:?} {:02x?}", self.packet_bytes, self.packet)
    }
}

#[test]
fn a_header_that_asks_for_nothing() {
    let (plain, verified) = (ChecksumState::None, ChecksumState::Unnecessary);
    let trusts = Accept::ALL;
    for (flags, gso_type, hdr_len, bytes, accept, expected) in [
        (0, 0, 0, 14, trusts, Some(plain)),
        (0, 0, 14, 14, trusts, Some(plain)),
        (2, 0, 0, PACKET_BYTES_MAX, trusts, Some(verified)),
        (2, 0, 0, 60, Accept::CSUM, Some(plain)),
        (0, 0, 0, 13, trusts, None),
        (0, 0, 0, PACKET_BYTES_MAX + 1, trusts, None),
        (0, 0, 61, 60, trusts, None),
        (1, 0, 0, 60, trusts, None),
        (4, 0, 0, 60, trusts, None),
        (0, GSO_ECN, 0, 60, trusts, None),
    ] {
        let header = VnetHeader {
            flags,
            gso_type,
            hdr_len,
            ..VnetHeader::default()
        };
        let asked = header.asks_for_nothing(LinkType::Ethernet, accept, bytes as u32);
        assert_eq!(asked, expected, "{header:?} {bytes}");
        let raw = header.asks_for_nothing(LinkType::RawIp, accept, bytes as u32);
        assert_eq!(raw, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_header_survives_the_round_trip(bytes in any::<[u8; 12]>()) {
        for len in [HeaderLen::Legacy, HeaderLen::V1] {
            let header = VnetHeader::decode(&bytes, len).unwrap();
            let mut out = [0; 12];
            header.encode(&mut out, len).unwrap();
            prop_assert_eq!(&out[..len.bytes()], &bytes[..len.bytes()]);
            prop_assert_eq!(VnetHeader::decode(&out, len).unwrap(), header);
        }
    }

    /// No panic, and every accepted packet keeps the guarantees of [`Received`].
    #[test]
    fn what_passes_can_be_relied_on(case in any_case()) {
        let nothing = case.header.asks_for_nothing(
            case.link,
            case.accept,
            case.packet_bytes.unwrap(),
        );
        let Ok(received) = case.validate() else {
            prop_assert_eq!(nothing, None);
            return Ok(());
        };
        if let Some(checksum) = nothing {
            prop_assert_eq!((received.checksum, received.gso), (checksum, None));
            prop_assert_eq!(Some(received.packet_bytes), case.packet_bytes);
        }
        prop_assert!(received.packet_bytes <= case.packet_bytes.unwrap());
        prop_assert!(received.wire_packets >= 1);
        if let ChecksumState::Partial { start, offset } = received.checksum {
            prop_assert!(u32::from(start) + u32::from(offset) + 2 <= received.packet_bytes);
        }
        prop_assert_eq!(received.gso.is_some(), received.wire_packets > 1);
        if let Some(gso) = received.gso {
            let layout = received.layout.unwrap();
            let segmenter = Segmenter::new(&case.packet, &layout, gso, received.packet_bytes);
            prop_assert_eq!(segmenter.unwrap().segments(), received.wire_packets);
        }
        if case.packet_bytes == Some(case.packet.len() as u32) {
            assert_describe(&case);
        }
    }
}
