//! Bugs of other segmentation code, one test each, named after the bug.

use super::*;
use crate::fragment::Fragmenter;
use crate::virtio_net::{Accept, FLAG_NEEDS_CSUM, GSO_TCPV4, VnetHeader, describe, validate};

/// Every kind, with and without options, extension headers, tags and link headers.
fn shapes(payload: usize) -> Vec<Spec> {
    let v4 = |spec: Spec| Spec {
        ip_options: vec![1; 8],
        ..spec
    };
    let v6 = |spec: Spec| Spec {
        exts: vec![Ext::HopByHop, Ext::Destination(2)],
        ..spec
    };
    let tcp = |spec: Spec| Spec {
        tcp_options: vec![1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
        ..spec
    };
    let tags = |spec: Spec| Spec {
        vlans: vec![0x88a8, 0x8100],
        ..spec.ethernet()
    };
    let plain = [
        Spec::tcp4(payload),
        Spec::tcp6(payload),
        Spec::udp4(payload),
        Spec::udp6(payload),
    ];
    let mut all = plain.to_vec();
    all.extend([
        v4(tcp(Spec::tcp4(payload))),
        v6(tcp(Spec::tcp6(payload))),
        v4(Spec::udp4(payload)),
        v6(Spec::udp6(payload)),
    ]);
    let bare = all.clone();
    all.extend(bare.iter().cloned().map(Spec::ethernet));
    all.extend(bare.iter().cloned().map(Spec::ipoib));
    all.extend(bare.into_iter().map(tags));
    all
}

/// Review in arcboxlabs/arcbox#210; OpenBSD's software TSO.
#[test]
fn cwr_is_not_repeated_on_every_segment() {
    for spec in shapes(3000).into_iter().filter(|spec| spec.tcp) {
        let spec = Spec {
            flags: CWR | ACK,
            ..spec
        };
        let at = spec.transport() + 13;
        let wire = segments(&spec, 1000);
        assert_eq!(
            wire.iter().map(|s| s[at]).collect::<Vec<_>>(),
            [CWR | ACK, ACK, ACK]
        );
    }
}

/// Review in arcboxlabs/arcbox#210.
#[test]
fn fin_and_psh_are_not_repeated_on_every_segment() {
    for spec in shapes(3000).into_iter().filter(|spec| spec.tcp) {
        let spec = Spec {
            flags: FIN | PSH | ACK,
            ..spec
        };
        let at = spec.transport() + 13;
        let wire = segments(&spec, 1000);
        assert_eq!(
            wire.iter().map(|s| s[at]).collect::<Vec<_>>(),
            [ACK, ACK, FIN | PSH | ACK]
        );
    }
}

/// libpnet/libpnet#585, smoltcp-rs/smoltcp#632, wireguard-go: 0 means "no checksum".
#[test]
fn a_udp_sum_of_zero_is_not_sent_as_zero() {
    for mut spec in shapes(500).into_iter().filter(|spec| !spec.tcp) {
        spec.payload[498..].fill(0);
        let at = spec.transport() + 6;
        let lacking = word(&spec.build(Field::Final), at);
        spec.payload[498..].copy_from_slice(&lacking.to_be_bytes());
        assert_eq!(word(&segments(&spec, 500)[0], at), 0xffff);
    }
}

/// expressvpn/lightway#413: TUN says how much of the packet was linear, not how long its headers
/// are.
#[test]
fn hdr_len_is_not_believed() {
    let spec = Spec {
        tcp_options: vec![1; 12],
        ..Spec::tcp4(3000)
    };
    let packet = spec.build(Field::Preload);
    for hdr_len in [0, 20, 40, 51, 53, 64, 1000, packet.len() as u16] {
        let header = VnetHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type: GSO_TCPV4,
            hdr_len,
            gso_size: 1000,
            csum_start: 20,
            csum_offset: 16,
            num_buffers: 0,
        };
        let bytes = packet.len() as u32;
        let got = validate(&header, spec.link, Accept::ALL, &packet, bytes).unwrap();
        let (layout, gso) = (got.layout.unwrap(), got.gso.unwrap());
        let segmenter = Segmenter::new(&packet, &layout, gso, bytes).unwrap();
        assert_eq!(segmenter.header_bytes(), 52, "hdr_len {hdr_len}");
        let wire = cut(&segmenter, &packet, true);
        assert!(wire.into_iter().map(|w| w.0).eq(segments(&spec, 1000)));
    }
}

/// Linux sends up to 128 datagrams in one since 6.9; a receiver with a limit of 64 loses them.
/// (Older kernels refuse merged packets of wireguard-go and tun-rs, up to 128; that concerns
/// merging.)
#[test]
fn up_to_128_datagrams_are_cut() {
    for spec in shapes(129 * 100).into_iter().filter(|spec| !spec.tcp) {
        let packet = spec.build(Field::Preload);
        let made = |size| segmenter(&spec, &packet, size).map(|s| s.segments());
        assert_eq!(made(99), Err(SegmentError::TooManySegments));
        assert_eq!(made(100), Err(SegmentError::TooManySegments));
        assert_eq!(made(101), Ok(128));
        assert_eq!(made(202), Ok(64));
    }
}

/// microsoft/openvmm#3812: the sender's preloaded sum was without the length, as NDIS wants it, and
/// every segment built on it was wrong.
#[test]
fn a_preloaded_sum_without_the_length_spoils_nothing() {
    for spec in shapes(3000) {
        let good = segments(&spec, 999);
        let mut packet = spec.build(Field::Preload);
        let at = spec.transport() + usize::from(spec.checksum_offset());
        let length = packet.len() - spec.transport();
        let without = slow_sum(
            &[
                word(&packet, at).to_be_bytes(),
                (!(length as u16)).to_be_bytes(),
            ]
            .concat(),
        );
        packet[at..at + 2].copy_from_slice(&without.to_be_bytes());
        let wire = cut(&segmenter(&spec, &packet, 999).unwrap(), &packet, true);
        assert!(wire.into_iter().map(|w| w.0).eq(good));
    }
}

/// The pseudo-header of a segment has the segment's length, in partial checksums too.
#[test]
fn a_partial_sum_has_the_full_l4_length_of_its_segment() {
    for spec in shapes(2500) {
        let packet = spec.build(Field::Preload);
        let wire = cut(&segmenter(&spec, &packet, 1000).unwrap(), &packet, false);
        let at = spec.transport() + usize::from(spec.checksum_offset());
        for ((segment, _), expected) in wire.iter().zip(describe_segments(&spec, 1000)) {
            assert_eq!(word(segment, at), word(&expected.build(Field::Preload), at));
        }
    }
}

/// microsoft/openvmm#3128: the IPv4 header checksum of the large packet was left zero, and copied.
#[test]
fn a_stale_ipv4_header_checksum_is_not_copied() {
    for spec in shapes(3000).into_iter().filter(|spec| !spec.ipv6) {
        let at = spec.network() + 10;
        for stale in [0_u16, 0xffff, 0x1234] {
            let mut packet = spec.build(Field::Preload);
            packet[at..at + 2].copy_from_slice(&stale.to_be_bytes());
            let wire = cut(&segmenter(&spec, &packet, 1000).unwrap(), &packet, true);
            assert!(wire.into_iter().map(|w| w.0).eq(segments(&spec, 1000)));
        }
    }
}

/// tun-rs/tun-rs#101: with something in front of the IP header, the addresses of the pseudo-header
/// were read at twice that offset.
#[test]
fn addresses_are_read_where_the_ip_header_is() {
    for spec in shapes(3000) {
        assert_reference(&spec, 1000);
    }
}

/// WireGuard/wireguard-go#151: the count was wrong when there were fewer buffers than segments.
#[test]
fn too_few_buffers_lose_no_segment_and_no_count() {
    let spec = Spec::tcp4(5500);
    let packet = spec.build(Field::Preload);
    let segmenter = segmenter(&spec, &packet, 1000).unwrap();
    let expected = segments(&spec, 1000);
    for room in 0..=expected.len() {
        let mut wire = Vec::new();
        let mut next = 0;
        // As many buffers as there are, again and again.
        while next < segmenter.segments() {
            let mut written = 0;
            let mut buffers = vec![[0_u8; 1040]; room.max(1)];
            for buffer in &mut buffers {
                match segmenter.write_segment(next + written, &packet, buffer) {
                    Ok(bytes) => wire.push(buffer[..bytes].to_vec()),
                    Err(error) => {
                        assert_eq!(error, SegmentError::Index);
                        break;
                    }
                }
                written += 1;
            }
            next += written;
        }
        assert_eq!(next, 6);
        assert_eq!(wire, expected);
    }
}

/// cloud-hypervisor#4949, tun-rs/tun-rs#149, mullvad/gotatun#145, microsoft/openvmm#3119: lengths
/// that wrap or go negative when a header field lies.
#[test]
fn lengths_that_lie_do_not_wrap() {
    let sizes = (0..=128).chain(65_400..=70_000);
    for bytes in sizes {
        for (version, protocol) in [(0x45, 6), (0x45, 17), (0x60, 6), (0x60, 17)] {
            let mut packet = vec![0_u8; bytes];
            for (lie, offset) in [(0_u16, 0x50), (8, 0xf0), (40, 0x50), (0xffff, 0x50)] {
                for (at, value) in [(0, version), (6, protocol), (9, protocol), (32, offset)] {
                    if let Some(byte) = packet.get_mut(at) {
                        *byte = value;
                    }
                }
                for at in [2, 4, 24, 44] {
                    if let Some(field) = packet.get_mut(at..at + 2) {
                        field.copy_from_slice(&lie.to_be_bytes());
                    }
                }
                cut_if_it_can_be(&packet);
            }
            cut_if_it_can_be(&packet);
        }
    }
}

/// Cuts as every kind, whatever the packet is; what is cut stays inside.
fn cut_if_it_can_be(packet: &[u8]) {
    let bytes = packet.len() as u32;
    let Ok(layout) = Layout::parse(LinkType::RawIp, packet, bytes) else {
        return;
    };
    let kinds = [
        GsoKind::TcpV4,
        GsoKind::TcpV6,
        GsoKind::UdpV4,
        GsoKind::UdpV6,
    ];
    for kind in kinds {
        for size in [1, 1448, 65_535] {
            let gso = Gso::new(kind, NonZeroU16::new(size).unwrap());
            let Ok(segmenter) = Segmenter::new(packet, &layout, gso, bytes) else {
                continue;
            };
            let mut out = vec![0; 66_000];
            let mut payload = 0;
            for index in 0..segmenter.segments() {
                let wrote = segmenter.write_segment(index, packet, &mut out).unwrap();
                payload += wrote - segmenter.header_bytes();
            }
            assert_eq!(payload, layout.payload_len() as usize);
        }
    }
}

/// OpenBSD's software TSO gives every segment a random identification.
#[test]
fn identifications_are_not_random() {
    let wire = segments(&Spec::tcp4(14_600), 1460);
    let ids: Vec<_> = wire.iter().map(|s| word(s, 4)).collect();
    assert_eq!(ids, (100..110).collect::<Vec<_>>());
}

/// The case of OpenBSD's `tcp_softtso_chop()`: ten segments, flags on the last only.
#[test]
fn soft_tso_of_14600_bytes() {
    let spec = Spec {
        flags: PSH | FIN | ACK,
        ..Spec::tcp4(14_600)
    };
    let wire = segments(&spec, 1460);
    assert_eq!(wire.len(), 10);
    for (i, segment) in wire.iter().enumerate() {
        let flags = if i == 9 { PSH | FIN | ACK } else { ACK };
        assert_eq!(segment[33], flags);
        assert_eq!(sequence(segment, 20), 1 + 1460 * i as u32);
    }
    assert_reference(&spec, 1460);
}

/// RFC 3168 ECN offload clears CWR, which Accurate ECN counts with: a packet that needs it is not
/// sent behind a header that cannot express this.
#[test]
fn accurate_ecn_is_not_described_as_cwr() {
    let size = NonZeroU16::new(1000).unwrap();
    for (kind, ecn, fits) in [
        (GsoKind::TcpV4, Ecn::None, true),
        (GsoKind::TcpV4, Ecn::Cwr, true),
        (GsoKind::TcpV4, Ecn::Accurate, false),
        (GsoKind::TcpV6, Ecn::Accurate, false),
        (GsoKind::UdpV4, Ecn::Accurate, true),
    ] {
        let gso = Gso::new(kind, size).with_ecn(ecn);
        assert_eq!(gso.fits_virtio(), fits);
        assert_eq!(gso.ecn(), ecn);
        let header = describe(ChecksumState::None, Some(gso), None);
        let cwr = header.gso_type & crate::virtio_net::GSO_ECN != 0;
        assert_eq!(cwr, ecn == Ecn::Cwr);
    }
}

/// google/gvisor#14011 and FDio/vpp#3184: forwarding compared the length of the GSO packet with the
/// MTU. Nearly 64 KiB in segments of 1 less than the MTU, the MTU, and 1 more: the first two pass,
/// and the last is dropped with the MTU for its sender; or it may be fragmented.
#[test]
fn the_mtu_is_compared_with_segments_and_not_with_the_whole() {
    const MTU: u32 = 1500;
    for (spec, df) in both_ways(60_000) {
        // Most datagrams that UDP can have.
        let payload = if spec.tcp { 60_000 } else { 64 * 1400 / 2 };
        let spec = Spec {
            payload: vec![7; payload],
            df,
            ..spec
        };
        let packet = spec.build(Field::Preload);
        let layout = layout_of(spec.link, &packet);
        let headers = u32::from(layout.payload - layout.network);
        for (above, fits) in [(-1, true), (0, true), (1, false)] {
            let ip_bytes = MTU.wrapping_add_signed(above);
            let segmenter = segmenter(&spec, &packet, (ip_bytes - headers) as u16).unwrap();
            assert!(packet.len() as u32 > MTU && segmenter.segments() > 20);
            let longest = cut(&segmenter, &packet, true)
                .iter()
                .map(|(segment, _)| segment.len() as u32 - u32::from(layout.network))
                .max();
            assert_eq!(longest, Some(ip_bytes));
            let expected = if fits {
                Ok(())
            } else {
                Err(too_big(&spec, ip_bytes, MTU))
            };
            assert_eq!(segmenter.fits_mtu(&packet, MTU), expected, "{spec:?}");
        }
    }
}

/// Every kind, with DF and without.
fn both_ways(payload: usize) -> impl Iterator<Item = (Spec, bool)> {
    shapes(payload)
        .into_iter()
        .flat_map(|spec| [(spec.clone(), true), (spec, false)])
}

fn too_big(spec: &Spec, ip_bytes: u32, mtu: u32) -> TooBig {
    let remedy = match (spec.ipv6, spec.df) {
        (true, _) => Remedy::Icmpv6,
        (false, true) => Remedy::Icmp,
        (false, false) => Remedy::Fragment,
    };
    TooBig {
        mtu,
        ip_bytes,
        remedy,
    }
}

/// The same for packets that are none, with padding behind them: DF and IPv6 decide what is owed to
/// the sender, and what may be fragmented is.
#[test]
fn the_mtu_is_compared_with_single_packets_without_their_padding() {
    const MTU: u32 = 1400;
    for (spec, df) in both_ways(0) {
        let spec = Spec { df, ..spec };
        let headers = {
            let packet = spec.build(Field::Final);
            let layout = layout_of(spec.link, &packet);
            u32::from(layout.payload - layout.network)
        };
        for (ip_bytes, fits) in [(MTU - 1, true), (MTU, true), (MTU + 1, false)] {
            let spec = Spec {
                payload: vec![7; (ip_bytes - headers) as usize],
                ..spec.clone()
            };
            let mut packet = spec.build(Field::Final);
            packet.extend([0; 9]);
            let layout = layout_of(spec.link, &packet);
            let expected = if fits {
                Ok(())
            } else {
                Err(too_big(&spec, ip_bytes, MTU))
            };
            assert_eq!(fits_mtu(&packet, &layout, MTU), expected, "{spec:?}");
            let fragments = Fragmenter::new(
                &packet,
                &layout,
                MTU,
                ChecksumState::None,
                packet.len() as u32,
            )
            .map(|fragmenter| fragmenter.fragments());
            match expected {
                Ok(()) if !spec.ipv6 => assert_eq!(fragments, Ok(1)),
                Err(too_big) if too_big.remedy == Remedy::Fragment => {
                    assert_eq!(fragments, Ok(2));
                }
                _ => assert!(fragments.is_err()),
            }
        }
    }
    // An ARP packet has no sender that understands ICMP.
    let arp = [vec![2; 12], vec![8, 6, 0, 1, 8, 0, 6, 4], vec![0; 22]].concat();
    let layout = layout_of(LinkType::Ethernet, &arp);
    assert_eq!(fits_mtu(&arp, &layout, 28), Ok(()));
    let dropped = fits_mtu(&arp, &layout, 27).unwrap_err();
    assert_eq!((dropped.remedy, dropped.ip_bytes), (Remedy::Drop, 28));
    assert_eq!(dropped.reason(), "mtu_not_ip");
    assert_eq!(
        dropped.to_string(),
        "28 bytes are longer than the MTU of 27: mtu_not_ip"
    );
}
