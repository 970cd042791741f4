//! Every value of every length field.

use super::*;

#[test]
fn every_ihl() {
    for ihl in 0..16usize {
        let mut packet = ipv4(132, &[0; 28], &[0; 4]);
        packet[0] = 0x40 | ihl as u8;
        let expected = match ihl {
            0..5 => Err(ParseError::Ipv4HeaderLength),
            5..=13 => Ok((0, ihl as u16 * 4, ihl as u16 * 4, 52)),
            _ => Err(ParseError::Ipv4OptionsTruncated),
        };
        let got = whole(LinkType::RawIp, &packet);
        assert_eq!(
            got.map(|l| (l.network, l.transport, l.payload, l.ip_end)),
            expected,
            "{ihl}"
        );
    }
}

#[test]
fn every_tcp_data_offset() {
    for doff in 0..16usize {
        let mut packet = ipv4(6, &[], &tcp(0, 12));
        packet[32] = (doff as u8) << 4;
        let expected = match doff {
            0..5 => Err(ParseError::TcpDataOffset),
            5..=8 => Ok(20 + doff as u16 * 4),
            _ => Err(ParseError::TcpOptionsTruncated),
        };
        let got = whole(LinkType::RawIp, &packet).map(|layout| layout.payload);
        assert_eq!(got, expected, "{doff}");
    }
}

#[test]
fn every_ipv4_total_length() {
    let mut packet = ipv4(132, &[1; 4], &[0; 30]);
    for total in 0..=u16::MAX {
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        let expected = match total {
            0..24 => Err(ParseError::Ipv4TotalLengthShort),
            24..=54 => Ok(u32::from(total)),
            _ => Err(ParseError::Ipv4TotalLengthBeyond),
        };
        let got = whole(LinkType::RawIp, &packet).map(|layout| layout.ip_end);
        assert_eq!(got, expected, "{total}");
    }
}

#[test]
fn every_ipv6_payload_length() {
    let mut packet = ipv6(132, &[0; 30]);
    for payload in 0..=u16::MAX {
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
        let expected = match payload {
            0..=30 => Ok(40 + u32::from(payload)),
            _ => Err(ParseError::Ipv6PayloadLengthBeyond),
        };
        let got = whole(LinkType::RawIp, &packet).map(|layout| layout.ip_end);
        assert_eq!(got, expected, "{payload}");
    }
}

#[test]
fn every_udp_length() {
    for mut packet in [ipv4(17, &[1; 20], &udp(30)), ipv6(17, &udp(30))] {
        for len in 0..=u16::MAX {
            packet[44..46].copy_from_slice(&len.to_be_bytes());
            let expected = match len {
                0..8 => Err(ParseError::UdpLengthShort),
                // Less than the datagram holds is legal (RFC 9868).
                8..=38 => Ok(48),
                _ => Err(ParseError::UdpLengthBeyond),
            };
            let got = whole(LinkType::RawIp, &packet).map(|layout| layout.payload);
            assert_eq!(got, expected, "{len}");
        }
    }
}

#[test]
fn a_udp_length_may_not_reach_into_padding() {
    let mut packet = ethernet(&[], 0x0800, &ipv4(17, &[], &udp(4)));
    packet.extend([0; 14]);
    packet[38..40].copy_from_slice(&13u16.to_be_bytes());
    assert_eq!(whole(ETHERNET, &packet), Err(ParseError::UdpLengthBeyond));
}

#[test]
fn lengths_around_64_kib() {
    // A GSO packet as long as its length field can say, and the largest frame around it.
    let mut datagram = ipv4(6, &[], &tcp(0, 65_535 - 40));
    assert_eq!(
        offsets(ETHERNET, &ethernet(&[SERVICE_TAG, TAG], 0x0800, &datagram)).3,
        65_557
    );
    let datagram6 = ipv6(17, &udp(65_535 - 8));
    let packet = ethernet(&[SERVICE_TAG, TAG], 0x86DD, &datagram6);
    assert_eq!(packet.len(), crate::limits::PACKET_BYTES_MAX);
    assert_eq!(offsets(ETHERNET, &packet).3 as usize, packet.len());

    // Longer ones have a length of 0 (BIG TCP in Linux), which is not supported here.
    set_ip_length(&mut datagram, 0, 0);
    let parse = |bytes: &[u8], n| Layout::parse(LinkType::RawIp, bytes, n);
    assert_eq!(
        parse(&datagram, 65_535),
        Err(ParseError::Ipv4TotalLengthShort)
    );
    for n in [65_536, 65_575, 1 << 20, u32::MAX] {
        assert_eq!(parse(&datagram, n), Err(ParseError::Ipv4TotalLengthZero));
    }
    let jumbo = ipv6_with(&[(0, 8)], 6, &tcp(0, 300));
    let mut jumbo = [&jumbo[..], &[0; 100]].concat();
    set_ip_length(&mut jumbo, 0, 40);
    assert_eq!(
        parse(&jumbo, 65_575),
        Err(ParseError::Ipv6ExtensionTruncated)
    );
    for n in [65_576, 70_000, u32::MAX] {
        assert_eq!(parse(&jumbo, n), Err(ParseError::Ipv6Jumbogram));
    }
    // Any other length is accepted however many bytes follow.
    set_ip_length(&mut jumbo, 0, 40 + 28);
    assert_eq!(parse(&jumbo, u32::MAX).unwrap().ip_end, 68);
}
