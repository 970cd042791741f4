//! Packets that end early.

use super::*;

/// A packet cut at every length: which error belongs to which range of lengths, first when the
/// length fields still speak of the whole, then when the IP length field agrees with the cut.
struct Cut {
    packet: Vec<u8>,
    lying: Vec<(Range<usize>, ParseError)>,
    honest: Vec<(Range<usize>, ParseError)>,
}

fn cuts() -> Vec<Cut> {
    use ParseError::*;
    let v4 = |protocol, body: &[u8]| ethernet(&[TAG], 0x0800, &ipv4(protocol, &[1; 8], body));
    let v4_lying = vec![
        (0..14, EthernetTruncated),
        (14..18, VlanTruncated),
        (18..38, Ipv4Truncated),
        (38..46, Ipv4OptionsTruncated),
    ];
    let with = |mut list: Vec<_>, more: &[(Range<usize>, ParseError)]| {
        list.extend_from_slice(more);
        list
    };
    let v6 = |next, body: &[u8]| ethernet(&[], 0x86DD, &ipv6_with(&[(60, 16)], next, body));
    let v6_lying = vec![(0..14, EthernetTruncated), (14..54, Ipv6Truncated)];
    let v6_honest = vec![(54..70, Ipv6ExtensionTruncated)];
    let arp = [0, 1, 8, 0, 6, 4, 0, 1]
        .iter()
        .copied()
        .chain([7; 20])
        .collect::<Vec<_>>();
    vec![
        Cut {
            packet: v4(6, &tcp(12, 4)),
            lying: with(v4_lying.clone(), &[(46..82, Ipv4TotalLengthBeyond)]),
            honest: vec![(46..66, TcpTruncated), (66..78, TcpOptionsTruncated)],
        },
        Cut {
            packet: v4(17, &udp(4)),
            lying: with(v4_lying.clone(), &[(46..58, Ipv4TotalLengthBeyond)]),
            honest: vec![(46..54, UdpTruncated), (54..58, UdpLengthBeyond)],
        },
        Cut {
            packet: v4(1, &[0; 12]),
            lying: with(v4_lying, &[(46..58, Ipv4TotalLengthBeyond)]),
            honest: vec![(46..54, IcmpTruncated)],
        },
        Cut {
            packet: v6(6, &tcp(12, 4)),
            lying: with(v6_lying.clone(), &[(54..106, Ipv6PayloadLengthBeyond)]),
            honest: with(
                v6_honest.clone(),
                &[(70..90, TcpTruncated), (90..102, TcpOptionsTruncated)],
            ),
        },
        Cut {
            packet: v6(17, &udp(4)),
            lying: with(v6_lying.clone(), &[(54..82, Ipv6PayloadLengthBeyond)]),
            honest: with(
                v6_honest.clone(),
                &[(70..78, UdpTruncated), (78..82, UdpLengthBeyond)],
            ),
        },
        Cut {
            packet: v6(58, &[0; 12]),
            lying: with(v6_lying, &[(54..82, Ipv6PayloadLengthBeyond)]),
            honest: with(v6_honest, &[(70..78, Icmpv6Truncated)]),
        },
        Cut {
            packet: ethernet(&[], 0x0806, &arp),
            lying: vec![(0..14, EthernetTruncated), (14..42, ArpTruncated)],
            honest: vec![],
        },
    ]
}

#[test]
fn cut_at_every_length_with_the_old_length_fields() {
    for Cut { packet, lying, .. } in cuts() {
        for n in 0..packet.len() {
            let expected = lying
                .iter()
                .find(|(range, _)| range.contains(&n))
                .unwrap()
                .1;
            assert_eq!(
                whole(ETHERNET, &packet[..n]),
                Err(expected),
                "{n} of {packet:02X?}"
            );
            // Memory behind the packet must make no difference.
            let got = Layout::parse(ETHERNET, &packet, n as u32);
            assert_eq!(got, Err(expected), "{n} of {packet:02X?}");
        }
    }
}

#[test]
fn cut_at_every_length_with_an_honest_ip_length() {
    for Cut { packet, honest, .. } in cuts() {
        for (range, expected) in honest {
            for n in range {
                let mut short = packet.clone();
                let network = if packet[12..14] == TAG.to_be_bytes() {
                    18
                } else {
                    14
                };
                set_ip_length(&mut short, network, n - network);
                // The datagram ends at `n` whether or not padding follows.
                assert_eq!(
                    whole(ETHERNET, &short[..n]),
                    Err(expected),
                    "{n} of {packet:02X?}"
                );
                assert_eq!(
                    whole(ETHERNET, &short),
                    Err(expected),
                    "{n} of {packet:02X?}"
                );
            }
        }
    }
}

#[test]
fn a_split_header_is_not_the_packets_fault() {
    for Cut { packet, .. } in cuts() {
        let expected = whole(ETHERNET, &packet).unwrap();
        let needed = match expected.kind {
            // Only the lengths of its addresses are read.
            Network::Arp => 22,
            _ => usize::from(expected.payload),
        };
        for n in 0..packet.len() {
            let got = Layout::parse(ETHERNET, &packet[..n], packet.len() as u32);
            if n < needed {
                assert_eq!(
                    got,
                    Err(ParseError::HeadersNotContiguous),
                    "{n} of {packet:02X?}"
                );
            } else {
                assert_eq!(got, Ok(expected), "{n} of {packet:02X?}");
            }
        }
    }
}

#[test]
fn headers_bytes_max_is_enough_for_the_longest() {
    let chain = [(0, 64), (60, 64), (43, 64), (60, 64)];
    let datagram = ipv6_with(&chain, 6, &tcp(40, 2000));
    let packet = ethernet(&[SERVICE_TAG, TAG], 0x86DD, &datagram);
    let prefix = &packet[..HEADER_BYTES_MAX];
    let layout = Layout::parse(ETHERNET, prefix, packet.len() as u32).unwrap();
    assert_eq!(usize::from(layout.payload), HEADER_BYTES_MAX);
    assert_eq!(layout.payload_len(), 2000);
}
