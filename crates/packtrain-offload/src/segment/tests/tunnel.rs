//! Packets in tunnels: every segment against one that is built around its own inner packet.

use super::*;
use crate::layout::TunnelPorts;
use crate::test_packets::tunnel::{Between, Carried, GRE};

impl Carried {
    fn segmenter(&self, packet: &[u8], size: u16) -> Result<Segmenter, SegmentError> {
        let gso = gso_of(&self.inner, size);
        Segmenter::in_tunnel(packet, &self.layout(packet), gso, packet.len() as u32)
    }

    /// The description of every segment.
    fn describe(&self, size: u16) -> Vec<Self> {
        describe_segments(&self.inner, usize::from(size))
            .into_iter()
            .enumerate()
            .map(|(i, inner)| Self {
                id: self.id.wrapping_add(i as u16),
                inner,
                ..self.clone()
            })
            .collect()
    }

    fn assert_reference(&self, size: u16) {
        let packet = self.build(Field::Preload);
        let segmenter = self.segmenter(&packet, size).unwrap();
        let expected = self.describe(size);
        assert_eq!(segmenter.segments() as usize, expected.len());
        let outermost = usize::from(self.layout(&packet).outer.network);
        let longest = expected
            .iter()
            .map(|s| s.build(Field::Final).len() - outermost);
        let longest = longest.max().unwrap() as u32;
        assert_eq!(longest, segmenter.ip_bytes_max());
        assert_eq!(segmenter.fits_mtu(&packet, longest), Ok(()));
        let too_big = segmenter.fits_mtu(&packet, longest - 1).unwrap_err();
        // The outer packet's sender is notified.
        assert_eq!(too_big.remedy == Remedy::Icmpv6, self.ipv6);
        let complete = cut(&segmenter, &packet, true);
        let partial = cut(&segmenter, &packet, false);
        let inner_start = self.layout(&packet).inner_start as usize;
        let left = ChecksumState::Partial {
            start: (inner_start + self.inner.transport()) as u16,
            offset: self.inner.checksum_offset(),
        };
        for (i, segment) in expected.iter().enumerate() {
            let finished = segment.build(Field::Final);
            assert_eq!(complete[i].0, finished, "segment {i}, finished");
            assert_eq!(complete[i].1, ChecksumState::Unnecessary);
            let unfinished = segment.build(Field::Preload);
            assert_eq!(partial[i].0, unfinished, "segment {i}, partial");
            assert_eq!(partial[i].1, left);
            let mut whole = vec![0; segmenter.wire_bytes(i as u32)];
            let wrote = segmenter.write_segment(i as u32, &packet, &mut whole);
            assert_eq!(wrote, Ok(whole.len()));
            assert_eq!(whole, finished);
        }
    }
}

/// GRE, VXLAN and GENEVE with and without checksum.
fn betweens() -> Vec<Between> {
    let mut all = vec![
        GRE,
        Between::Gre {
            checksum: false,
            key: true,
            sequence: false,
        },
        Between::Gre {
            checksum: true,
            key: true,
            sequence: false,
        },
    ];
    for checksum in [false, true] {
        all.push(Between::Gre {
            checksum,
            key: false,
            sequence: false,
        });
        all.push(Between::Vxlan { checksum });
        all.extend([0, 3, 63].map(|options| Between::Geneve { checksum, options }));
    }
    all
}

fn inners(payload: usize) -> [Spec; 4] {
    [
        Spec::tcp4(payload),
        Spec::tcp6(payload),
        Spec::udp4(payload),
        Spec::udp6(payload),
    ]
}

#[test]
fn every_tunnel_with_every_inner_packet() {
    for between in betweens() {
        for inner in inners(2999) {
            for ipv6 in [false, true] {
                let carried = Carried {
                    ipv6,
                    ..Carried::new(between.clone(), inner.clone().ethernet())
                };
                carried.assert_reference(1000);
                if !matches!(between, Between::Vxlan { .. }) {
                    let inner = inner.clone();
                    Carried { inner, ..carried }.assert_reference(1000);
                }
            }
        }
    }
}

#[test]
fn outer_tags_options_and_links_are_on_every_segment() {
    for between in betweens() {
        let inner = Spec {
            vlans: vec![0x88a8, 0x8100],
            ..Spec::tcp4(2500).ethernet()
        };
        let base = Carried::new(between, inner);
        for (link, vlans) in [
            (LinkType::Ethernet, vec![0x8100]),
            (LinkType::Ethernet, vec![0x88a8, 0x8100]),
            (LinkType::RawIp, vec![]),
            (LinkType::Ipoib, vec![]),
        ] {
            for (ipv6, options) in [(false, 8), (false, 40), (true, 8), (true, 24)] {
                Carried {
                    link,
                    vlans: vlans.clone(),
                    ipv6,
                    options,
                    ..base.clone()
                }
                .assert_reference(999);
            }
        }
    }
}

#[test]
fn an_outer_udp_checksum_of_zero_stays_zero() {
    for ipv6 in [false, true] {
        let carried = Carried {
            ipv6,
            ..Carried::new(
                Between::Vxlan { checksum: false },
                Spec::tcp4(3000).ethernet(),
            )
        };
        let packet = carried.build(Field::Preload);
        let wire = cut(&carried.segmenter(&packet, 1000).unwrap(), &packet, true);
        let at = carried.transport() + 6;
        assert!(wire.iter().all(|(segment, _)| word(segment, at) == 0));
    }
}

#[test]
fn an_outer_udp_sum_of_zero_is_sent_as_ffff() {
    let carried = Carried::new(
        Between::Vxlan { checksum: true },
        Spec::udp4(1000).ethernet(),
    );
    // The outer source port makes up what the sum lacks.
    let at = carried.transport();
    let lacking = word(&carried.build(Field::Final), at + 6);
    let mut packet = carried.build(Field::Preload);
    let port = slow_sum(&[word(&packet, at).to_be_bytes(), lacking.to_be_bytes()].concat());
    packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
    let wire = cut(&carried.segmenter(&packet, 1000).unwrap(), &packet, true);
    assert_eq!(word(&wire[0].0, at + 6), 0xffff);
}

#[test]
fn gre_with_a_sequence_number_is_refused() {
    for (checksum, key) in [(false, false), (true, false), (true, true)] {
        let between = Between::Gre {
            checksum,
            key,
            sequence: true,
        };
        let carried = Carried::new(between, Spec::tcp4(3000));
        let packet = carried.build(Field::Preload);
        assert_eq!(
            carried.segmenter(&packet, 1000),
            Err(SegmentError::TunnelSequence)
        );
    }
}

#[test]
fn identifications_of_both_packets_count_and_the_inner_one_may_stay() {
    let carried = Carried {
        id: 65_535,
        ..Carried::new(GRE, Spec::tcp4(3000))
    };
    let packet = carried.build(Field::Preload);
    let segmenter = carried.segmenter(&packet, 1000).unwrap();
    let ids = |segmenter: &Segmenter| -> Vec<_> {
        let inner = carried.transport() + 4;
        cut(segmenter, &packet, true)
            .iter()
            .map(|(s, _)| {
                let (outer, inner) = (&s[14..34], &s[inner..inner + 20]);
                assert_eq!((slow_sum(outer), slow_sum(inner)), (0xffff, 0xffff));
                (word(outer, 4), word(inner, 4))
            })
            .collect()
    };
    assert_eq!(ids(&segmenter), [(65_535, 100), (0, 101), (1, 102)]);
    let inner = segmenter.with_fixed_id(&packet).unwrap();
    assert_eq!(ids(&inner), [(65_535, 100), (0, 100), (1, 100)]);
}

#[test]
fn a_payload_of_one_segment_is_one_finished_packet() {
    for between in betweens() {
        let carried = Carried::new(between, Spec::tcp6(700).ethernet());
        let packet = carried.build(Field::Preload);
        let wire = cut(&carried.segmenter(&packet, 700).unwrap(), &packet, true);
        assert_eq!(wire.len(), 1);
        assert_eq!(wire[0].0, carried.build(Field::Final));
    }
}

#[test]
fn wrong_sums_of_the_sender_change_nothing() {
    for between in betweens() {
        let carried = Carried::new(between.clone(), Spec::tcp4(2500).ethernet());
        let good: Vec<_> = carried
            .describe(1000)
            .iter()
            .map(|segment| segment.build(Field::Final))
            .collect();
        let mut packet = carried.build(Field::Value(0x4321));
        let at = carried.transport();
        match between {
            Between::Gre { checksum: true, .. } => packet[at + 4..at + 6].fill(0x77),
            Between::Vxlan { checksum: true } | Between::Geneve { checksum: true, .. } => {
                packet[at + 6..at + 8].fill(0x77);
            }
            _ => {}
        }
        packet[24..26].fill(0x55);
        let wire = cut(&carried.segmenter(&packet, 1000).unwrap(), &packet, true);
        assert!(wire.into_iter().map(|w| w.0).eq(good));
    }
}

#[test]
fn contradictions_are_refused() {
    let carried = Carried::new(
        Between::Vxlan { checksum: true },
        Spec::tcp4(3000).ethernet(),
    );
    let packet = carried.build(Field::Preload);
    let layout = carried.layout(&packet);
    let gso = gso_of(&carried.inner, 1000);
    let bytes = packet.len() as u32;
    let made = |packet: &[u8], layout: &TunnelLayout| {
        Segmenter::in_tunnel(packet, layout, gso, bytes).map(|s| s.segments())
    };
    assert_eq!(made(&packet, &layout), Ok(3));
    let mut wrong = layout;
    wrong.outer.fragment = true;
    assert_eq!(made(&packet, &wrong), Err(SegmentError::Fragment));
    let mut wrong = layout;
    wrong.tunnel = crate::layout::Tunnel::Gre;
    assert_eq!(made(&packet, &wrong), Err(SegmentError::Kind));
    let mut wrong = layout;
    wrong.outer.kind = crate::layout::Network::Other;
    assert_eq!(made(&packet, &wrong), Err(SegmentError::Kind));
    let mut wrong = layout;
    wrong.outer.transport_kind = crate::layout::Transport::Tcp;
    assert_eq!(made(&packet, &wrong), Err(SegmentError::Kind));
    for end in [layout.outer.ip_end - 1, layout.outer.ip_end + 1] {
        let mut wrong = layout;
        wrong.outer.ip_end = end;
        assert_eq!(made(&packet, &wrong), Err(SegmentError::Length));
    }
    let mut wrong = layout;
    wrong.outer.transport = wrong.inner.network;
    assert_eq!(made(&packet, &wrong), Err(SegmentError::Headers));
    let mut short = packet.clone();
    short[39] -= 1;
    assert_eq!(made(&short, &layout), Err(SegmentError::UdpLength));
    assert_eq!(
        made(&packet[..usize::from(layout.inner.payload) - 1], &layout),
        Err(SegmentError::Headers)
    );
}

/// The outer length field holds 16 bits too, and the outer packet is the longer one.
#[test]
fn a_segment_too_long_for_the_outer_packet_is_refused() {
    let carried = Carried::new(GRE, Spec::tcp4(65_000));
    let packet = carried.build(Field::Preload);
    let mut layout = carried.layout(&packet);
    // As a BIG TCP packet would be, of which the length fields say nothing.
    let more = 480;
    layout.outer.ip_end += more;
    layout.inner.ip_end += more;
    let bytes = packet.len() as u32 + more;
    let made = |size| {
        let gso = Gso::new(GsoKind::TcpV4, NonZeroU16::new(size).unwrap());
        let plain = Segmenter::new(&packet, &layout.inner, gso, bytes);
        assert!(plain.is_ok(), "the inner packet alone would fit");
        Segmenter::in_tunnel(&packet, &layout, gso, bytes).map(|s| s.segments())
    };
    let room = 65_535 - 20 - 4 - 40;
    assert_eq!(made(room), Ok(2));
    assert_eq!(made(room + 1), Err(SegmentError::Length));
}

#[test]
fn gre_flags_that_the_layout_does_not_know_are_refused() {
    let carried = Carried::new(GRE, Spec::tcp4(3000));
    let mut packet = carried.build(Field::Preload);
    let layout = carried.layout(&packet);
    let at = carried.transport();
    for (first, second) in [(0x40, 0), (0x08, 0), (0, 1), (0, 0x80)] {
        packet[at..at + 2].copy_from_slice(&[first, second]);
        let gso = gso_of(&carried.inner, 1000);
        let made = Segmenter::in_tunnel(&packet, &layout, gso, packet.len() as u32);
        assert_eq!(made, Err(SegmentError::Headers));
    }
}

fn any_between() -> impl Strategy<Value = Between> {
    prop_oneof![
        any::<(bool, bool)>().prop_map(|(checksum, key)| Between::Gre {
            checksum,
            key,
            sequence: false
        }),
        any::<bool>().prop_map(|checksum| Between::Vxlan { checksum }),
        (any::<bool>(), 0_u8..=63)
            .prop_map(|(checksum, options)| Between::Geneve { checksum, options }),
    ]
}

prop_compose! {
    fn any_carried()(
        mut inner in any_spec(),
        between in any_between(),
        (teb, ipv6, df, id) in any::<(bool, bool, bool, u16)>(),
        link in prop_oneof![Just(LinkType::Ethernet), Just(LinkType::RawIp), Just(LinkType::Ipoib)],
        vlans in any_vec(prop_oneof![Just(0x8100_u16), Just(0x88a8)], 0..=2),
        options in 0_u8..=5,
    ) -> Carried {
        let teb = teb || matches!(between, Between::Vxlan { .. });
        inner.link = if teb { LinkType::Ethernet } else { LinkType::RawIp };
        Carried { link, vlans, ipv6, id, df, options: options * 8, between, inner }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_tunnels_equal_the_reference(carried in any_carried(), size in 8_u16..3000) {
        let count = carried.inner.payload.len().div_ceil(usize::from(size));
        prop_assume!(carried.inner.tcp || count <= 64);
        carried.assert_reference(size);
    }

    /// For any bytes and any layout, which need not belong together.
    #[test]
    fn no_tunnel_bytes_panic(
        carried in any_carried(),
        other in any_carried(),
        flips in any_vec((0_usize..250, any::<u8>()), 0..12),
        size in 1_u16..,
        cut_at in 1_usize..400,
    ) {
        let mut packet = carried.build(Field::Preload);
        for (at, value) in flips {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let whole = packet.len() as u32;
        packet.truncate(cut_at);
        let gso = Gso::new(gso_of(&carried.inner, size).kind, NonZeroU16::new(size).unwrap());
        let foreign = other.build(Field::Preload);
        let layouts = [
            TunnelLayout::parse(carried.link, &packet, whole, TunnelPorts::default()),
            TunnelLayout::parse(other.link, &foreign, foreign.len() as u32, TunnelPorts::default()),
        ];
        for layout in layouts.into_iter().flatten().flatten() {
            for headers in [&packet[..], &foreign[..]] {
                let Ok(segmenter) = Segmenter::in_tunnel(headers, &layout, gso, whole) else {
                    continue;
                };
                let mut out = vec![0; segmenter.header_bytes()];
                for index in [0, segmenter.segments() - 1] {
                    for bytes in [headers, &foreign[..], &packet[..]] {
                        let fill = Fill::Complete { payload: Sum::new() };
                        let wrote = segmenter.write_header(index, bytes, &mut out, fill);
                        prop_assert_eq!(wrote.is_ok(), bytes.len() >= out.len());
                    }
                }
            }
        }
    }
}
