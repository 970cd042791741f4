use super::*;
use crate::limits;
use proptest::collection::vec as bytes_of;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

#[test]
fn every_error_has_its_own_reason_and_words() {
    let reasons: BTreeSet<_> = ParseError::ALL.iter().map(|error| error.reason()).collect();
    let words: BTreeSet<_> = ParseError::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(
        (reasons.len(), words.len()),
        (ParseError::ALL.len(), ParseError::ALL.len())
    );
    for error in ParseError::ALL {
        let reason = error.reason();
        assert!(
            reason
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')),
            "{reason}"
        );
        let truncated = format!("{error:?}").ends_with("Truncated");
        assert_eq!(error.is_truncated(), truncated, "{reason}");
    }
}

/// The error of a view parser, if any.
fn refusal<T>(parsed: Result<T, ParseError>) -> Option<ParseError> {
    parsed.err()
}

/// The view of a header refuses every shorter slice with the error of its length, takes the whole
/// one, and takes it with bytes behind.
fn cut_everywhere(
    header: &[u8],
    expected: impl Fn(usize) -> ParseError,
    read: impl Fn(&[u8]) -> Option<ParseError>,
) {
    let bytes = [header, &[0xEE; 7]].concat();
    for n in 0..bytes.len() {
        let refused = (n < header.len()).then(|| expected(n));
        assert_eq!(read(&bytes[..n]), refused, "{n}");
    }
}

#[test]
fn tunnel_headers_refuse_every_shorter_slice() {
    use ParseError::*;
    cut_everywhere(
        &[0; 4],
        |_| IpoibTruncated,
        |b| refusal(ipoib::Header::parse(b)),
    );
    cut_everywhere(
        &[0; 8],
        |_| VxlanTruncated,
        |b| refusal(vxlan::Header::parse(b)),
    );
    for flags in 0..16_u8 {
        let mut header = vec![0; 4 + 4 * (flags & 0b1011).count_ones() as usize];
        header[0] = flags << 4;
        cut_everywhere(
            &header,
            |_| GreTruncated,
            |b| refusal(gre::Header::parse(b)),
        );
    }
    for words in [0, 1, 63_u8] {
        let mut header = vec![0; 8 + 4 * usize::from(words)];
        header[0] = 0xc0 | words;
        cut_everywhere(
            &header,
            |n| {
                if n < 8 {
                    GeneveTruncated
                } else {
                    GeneveOptionsTruncated
                }
            },
            |b| refusal(geneve::Header::parse(b)),
        );
    }
}

#[test]
fn tunnel_headers_are_read_field_by_field() {
    let bytes = [0x08, 0x06, 0xAA, 0xBB, 0xEE];
    assert_eq!(
        ipoib::Header::parse(&bytes).unwrap().ethertype(),
        EtherType::ARP
    );

    let vxlan = vxlan::Header::parse(&[0x08, 1, 2, 3, 0x12, 0x34, 0x56, 0x78]).unwrap();
    assert_eq!((vxlan.flags(), vxlan.vni()), (vxlan::FLAG_VNI, 0x12_3456));

    let bytes = [
        0x42, 0xC0, 0x65, 0x58, 0xAB, 0xCD, 0xEF, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0xEE,
    ];
    let geneve = geneve::Header::parse(&bytes).unwrap();
    assert_eq!((geneve.version(), geneve.header_len()), (1, 16));
    assert_eq!(geneve.flags(), geneve::FLAG_CONTROL | geneve::FLAG_CRITICAL);
    assert_eq!(
        (geneve.protocol(), geneve.vni()),
        (EtherType::TEB, 0xAB_CDEF)
    );
    assert_eq!(geneve.option_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn gre_fields_are_where_the_flags_before_them_leave_them() {
    let words = [0x1111_0000_u32, 0x2222_2222, 0x3333_3333];
    for flags in 0..8_u16 {
        let (c, k, s) = (flags & 4 != 0, flags & 2 != 0, flags & 1 != 0);
        let bits = u16::from(c) << 15 | u16::from(k) << 13 | u16::from(s) << 12;
        let mut bytes = bits.to_be_bytes().to_vec();
        bytes.extend([0x65, 0x58]);
        for (word, there) in words.iter().zip([c, k, s]) {
            if there {
                bytes.extend(word.to_be_bytes());
            }
        }
        let header = gre::Header::parse(&bytes).unwrap();
        assert!(header.is_plain());
        assert_eq!((header.version(), header.flags()), (0, bits));
        assert_eq!(header.protocol(), EtherType::TEB);
        assert_eq!(header.header_len(), bytes.len());
        assert_eq!(header.checksum(), c.then_some(0x1111));
        assert_eq!(header.key(), k.then_some(words[1]));
        assert_eq!(header.sequence(), s.then_some(words[2]));
    }
    for bad in [0x4000, 0x0800, 0x0700, 0x0080, 0x0001_u16] {
        let bytes = [&bad.to_be_bytes()[..], &[8, 0]].concat();
        assert!(!gre::Header::parse(&bytes).unwrap().is_plain(), "{bad:#x}");
    }
    let pptp = gre::Header::parse(&[0, 1, 0x88, 0x0b]).unwrap();
    assert_eq!(pptp.version(), 1);
}

#[test]
fn views_refuse_every_shorter_slice() {
    use ParseError::*;
    cut_everywhere(
        &[0; 14],
        |_| EthernetTruncated,
        |b| refusal(ether::Header::parse(b)),
    );
    cut_everywhere(
        &[0; 4],
        |_| VlanTruncated,
        |b| refusal(ether::VlanTag::parse(b)),
    );
    let mut ip = [0u8; 32];
    ip[0] = 0x48;
    cut_everywhere(
        &ip,
        |n| {
            if n < 20 {
                Ipv4Truncated
            } else {
                Ipv4OptionsTruncated
            }
        },
        |b| refusal(ipv4::Header::parse(b)),
    );
    let mut ip = [0u8; 40];
    ip[0] = 0x6F;
    cut_everywhere(&ip, |_| Ipv6Truncated, |b| refusal(ipv6::Header::parse(b)));
    let mut tcp = [0u8; 60];
    tcp[12] = 0xF0;
    cut_everywhere(
        &tcp,
        |n| {
            if n < 20 {
                TcpTruncated
            } else {
                TcpOptionsTruncated
            }
        },
        |b| refusal(tcp::Header::parse(b)),
    );
    cut_everywhere(
        &[0, 0, 0, 0, 0, 8, 0, 0],
        |_| UdpTruncated,
        |b| refusal(udp::Header::parse(b)),
    );
    cut_everywhere(
        &[0; 8],
        |_| IcmpTruncated,
        |b| refusal(icmp::Header::parse(b)),
    );
    cut_everywhere(
        &[0; 8],
        |_| Icmpv6Truncated,
        |b| refusal(icmp::Header::parse_v6(b)),
    );
}

#[test]
fn ethernet_and_vlan_fields() {
    let bytes = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0x00, 0xB1, 0x23, 0x08, 0x00,
    ];
    let header = ether::Header::parse(&bytes).unwrap();
    assert_eq!(
        (header.dst(), header.src()),
        ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12])
    );
    assert!(header.ethertype().is_vlan());
    let tag = ether::VlanTag::parse(&bytes[limits::ETHERNET_HEADER_BYTES..]).unwrap();
    assert_eq!((tag.tci(), tag.vid()), (0xB123, 0x123));
    assert_eq!(tag.ethertype(), EtherType::IPV4);
}

#[test]
fn arp_lengths() {
    let packet = [0, 1, 8, 0, 6, 4, 0, 2];
    assert_eq!(arp::packet_len(&packet), Ok(28));
    assert_eq!(arp::packet_len(&[0xFF; 8]), Ok(1028));
    assert_eq!(arp::packet_len(&packet[..7]), Err(ParseError::ArpTruncated));
}

#[test]
fn ipv4_fields() {
    let mut bytes = vec![0x46, 0xB9, 0x01, 0x02, 0x03, 0x04, 0x60, 0x05, 63, 17, 0, 0];
    bytes.extend([198, 18, 0, 1, 198, 19, 255, 2, 148, 4, 0, 0, 0xEE]);
    let header = ipv4::Header::parse(&bytes).unwrap();
    assert_eq!(
        (header.header_len(), header.tos(), header.total_len()),
        (24, 0xB9, 0x0102)
    );
    assert_eq!((header.id(), header.fragment_word()), (0x0304, 0x6005));
    assert!(header.dont_fragment() && header.more_fragments() && header.is_fragment());
    assert_eq!((header.fragment_offset(), header.ttl()), (40, 63));
    assert_eq!(header.protocol(), IpProtocol::UDP);
    assert_eq!(
        (header.src(), header.dst()),
        ([198, 18, 0, 1], [198, 19, 255, 2])
    );
    assert_eq!(header.option_bytes(), [148, 4, 0, 0]);
    assert!(!header.checksum_is_valid());
}

fn checksum_of(header: &[u8]) -> u16 {
    crate::checksum::ipv4_header(header)
}

#[test]
fn ipv6_fields() {
    let mut bytes = vec![0x6A, 0xBC, 0xDE, 0xF0, 0x12, 0x34, 58, 255];
    bytes.extend((0..33).map(|i| i as u8));
    let header = ipv6::Header::parse(&bytes).unwrap();
    assert_eq!(
        (header.traffic_class(), header.flow_label()),
        (0xAB, 0xCDEF0)
    );
    assert_eq!((header.payload_len(), header.hop_limit()), (0x1234, 255));
    assert_eq!(header.next_header(), IpProtocol::ICMPV6);
    assert_eq!((header.src()[15], header.dst()[0]), (15, 16));
}

#[test]
fn tcp_fields() {
    let mut bytes = vec![
        0x12, 0x34, 0x56, 0x78, 1, 2, 3, 4, 5, 6, 7, 8, 0x6F, 0xC1, 9, 10, 11, 12,
    ];
    bytes.extend([13, 14, 1, 1, 1, 0, 0xEE]);
    let header = tcp::Header::parse(&bytes).unwrap();
    assert_eq!((header.src_port(), header.dst_port()), (0x1234, 0x5678));
    assert_eq!((header.seq(), header.ack()), (0x0102_0304, 0x0506_0708));
    assert_eq!(header.header_len(), 24);
    let flags = header.flags();
    assert_eq!(
        flags,
        tcp::Flags::AE | tcp::Flags::CWR | tcp::Flags::ECE | tcp::Flags::FIN
    );
    assert!(flags.contains(tcp::Flags::CWR | tcp::Flags::FIN));
    assert!(!flags.contains(tcp::Flags::FIN | tcp::Flags::SYN));
    assert_eq!(
        (header.window(), header.checksum(), header.urgent()),
        (0x090A, 0x0B0C, 0x0D0E)
    );
    assert_eq!(header.option_bytes(), [1, 1, 1, 0]);
}

#[test]
fn udp_and_icmp_fields() {
    let mut bytes = [0x12, 0x34, 0x56, 0x78, 0, 8, 0xAB, 0xCD, 0xEE];
    let header = udp::Header::parse(&bytes).unwrap();
    assert_eq!((header.src_port(), header.dst_port()), (0x1234, 0x5678));
    assert_eq!((header.len(), header.checksum()), (8, 0xABCD));
    for len in 0..8 {
        bytes[4..6].copy_from_slice(&[0, len]);
        assert_eq!(
            refusal(udp::Header::parse(&bytes)),
            Some(ParseError::UdpLengthShort)
        );
    }

    let bytes = [3, 4, 0xAB, 0xCD, 0, 0, 0x05, 0xDC, 0xEE];
    let header = icmp::Header::parse(&bytes).unwrap();
    assert_eq!((header.kind(), header.code()), (icmp::v4::UNREACHABLE, 4));
    assert_eq!((header.checksum(), header.rest()), (0xABCD, 1500));
}

#[test]
fn ipv4_options_and_their_lies() {
    let header = |options: [u8; 8]| {
        let mut bytes = [0u8; 28];
        bytes[0] = 0x47;
        bytes[20..].copy_from_slice(&options);
        bytes
    };
    let list = |bytes: &[u8]| {
        let header = ipv4::Header::parse(bytes).unwrap();
        header
            .options()
            .map(|o| o.map(|o| (o.kind, o.data.to_vec())))
            .collect::<Vec<_>>()
    };
    let error = Err(ParseError::Ipv4OptionLength);
    assert_eq!(
        list(&header([1, 148, 4, 0, 0, 0, 7, 7])),
        [Ok((1, vec![])), Ok((148, vec![0, 0]))]
    );
    assert_eq!(
        list(&header([7, 8, 1, 2, 3, 4, 5, 6])),
        [Ok((7, vec![1, 2, 3, 4, 5, 6]))]
    );
    assert_eq!(
        list(&header([7, 2, 7, 2, 7, 2, 7, 2])),
        vec![Ok((7, vec![])); 4]
    );
    assert_eq!(
        list(&header([1, 7, 8, 0, 0, 0, 0, 0])),
        [Ok((1, vec![])), error.clone()]
    );
    assert_eq!(list(&header([7, 0, 1, 1, 1, 1, 1, 1])), vec![error.clone()]);
    assert_eq!(list(&header([7, 1, 1, 1, 1, 1, 1, 1])), vec![error.clone()]);
    let mut nops = vec![Ok((1, vec![])); 7];
    nops.push(error);
    assert_eq!(list(&header([1, 1, 1, 1, 1, 1, 1, 7])), nops);
}

#[test]
fn the_extension_walk_counts_what_it_walked() {
    let bytes = [
        43, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 44, 0, 2, 1, 0, 0, 0, 0, 6, 9, 0, 1,
    ];
    let bytes = [&bytes[..], &[0; 4]].concat();
    let found = ipv6::Extensions::walk(IpProtocol::HOP_BY_HOP, &bytes).unwrap();
    let expected = ipv6::Extensions {
        protocol: IpProtocol::TCP,
        bytes: 32,
        count: 3,
        fragment: true,
        source_routed: true,
    };
    assert_eq!(found, expected);
    let none = ipv6::Extensions::walk(IpProtocol::UDP, &[]).unwrap();
    assert_eq!(
        (none.protocol, none.bytes, none.count),
        (IpProtocol::UDP, 0, 0)
    );
    for n in 0..bytes.len() {
        let cut = ipv6::Extensions::walk(IpProtocol::HOP_BY_HOP, &bytes[..n]);
        assert_eq!(cut, Err(ParseError::Ipv6ExtensionTruncated), "{n}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn getters_agree_with_etherparse(mut bytes in bytes_of(any::<u8>(), 60)) {
        bytes[12] = bytes[12].max(0x50);
        let ours = tcp::Header::parse(&bytes).unwrap();
        let theirs = etherparse::TcpHeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!(ours.header_len(), theirs.slice().len());
        prop_assert_eq!(ours.seq(), theirs.sequence_number());
        prop_assert_eq!(ours.ack(), theirs.acknowledgment_number());
        prop_assert_eq!(ours.window(), theirs.window_size());
        prop_assert_eq!(ours.checksum(), theirs.checksum());
        prop_assert_eq!(ours.urgent(), theirs.urgent_pointer());
        prop_assert_eq!(ours.option_bytes(), theirs.options());
        use tcp::Flags;
        for (flag, set) in [
            (Flags::FIN, theirs.fin()),
            (Flags::SYN, theirs.syn()),
            (Flags::RST, theirs.rst()),
            (Flags::PSH, theirs.psh()),
            (Flags::ACK, theirs.ack()),
            (Flags::URG, theirs.urg()),
            (Flags::ECE, theirs.ece()),
            (Flags::CWR, theirs.cwr()),
            (Flags::AE, theirs.ns()),
        ] {
            prop_assert_eq!(ours.flags().contains(flag), set);
        }

        bytes[0] = 0x40 | (bytes[0] & 0x0F).max(5);
        // Their header does not keep the reserved flag, so that their checksum lacks it.
        bytes[6] &= 0x7F;
        let ours = ipv4::Header::parse(&bytes).unwrap();
        let theirs = etherparse::Ipv4HeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!(ours.header_len(), theirs.slice().len());
        prop_assert_eq!(ours.tos(), theirs.dcp().value() << 2 | theirs.ecn().value());
        prop_assert_eq!(ours.total_len(), theirs.total_len());
        prop_assert_eq!(ours.id(), theirs.identification());
        prop_assert_eq!(ours.dont_fragment(), theirs.dont_fragment());
        prop_assert_eq!(ours.more_fragments(), theirs.more_fragments());
        prop_assert_eq!(ours.fragment_offset() / 8, theirs.fragments_offset().value());
        prop_assert_eq!(ours.ttl(), theirs.ttl());
        prop_assert_eq!(ours.protocol().0, theirs.protocol().0);
        prop_assert_eq!(ours.src(), theirs.source());
        prop_assert_eq!(ours.dst(), theirs.destination());
        prop_assert_eq!(
            checksum_of(&bytes[..ours.header_len()]),
            theirs.to_header().calc_header_checksum()
        );

        bytes[0] = 0x60 | bytes[0] & 0x0F;
        let ours = ipv6::Header::parse(&bytes).unwrap();
        let theirs = etherparse::Ipv6HeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!(ours.traffic_class(), theirs.traffic_class());
        prop_assert_eq!(ours.flow_label(), theirs.flow_label().value());
        prop_assert_eq!(ours.payload_len(), theirs.payload_length());
        prop_assert_eq!(ours.next_header().0, theirs.next_header().0);
        prop_assert_eq!(ours.hop_limit(), theirs.hop_limit());
        prop_assert_eq!(ours.src(), theirs.source());
        prop_assert_eq!(ours.dst(), theirs.destination());
    }

    #[test]
    fn views_of_any_bytes_do_not_panic(bytes in bytes_of(any::<u8>(), 0..80)) {
        if let Ok(header) = ipv4::Header::parse(&bytes) {
            prop_assert!(header.header_len() <= bytes.len());
            prop_assert!(header.options().count() <= header.option_bytes().len());
            prop_assert_eq!(
                header.checksum_is_valid(),
                header.checksum() % 0xFFFF == checksum_of(&bytes[..header.header_len()]) % 0xFFFF
            );
        }
        if let Ok(header) = tcp::Header::parse(&bytes) {
            prop_assert!(header.header_len() <= bytes.len());
        }
        for first in [0, 43, 44, 60] {
            if let Ok(found) = ipv6::Extensions::walk(IpProtocol(first), &bytes) {
                prop_assert!(usize::from(found.bytes) <= bytes.len());
                prop_assert!(usize::from(found.count) * 8 <= usize::from(found.bytes));
            }
        }
    }
}
