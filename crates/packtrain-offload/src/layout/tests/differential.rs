//! Packets built by another library, and parsed by it for comparison.

use super::*;
use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader, Ipv6Header,
    Ipv6RawExtHeader, Ipv6RoutingExtensions, NetSlice, PacketBuilder, SlicedPacket, TcpHeader,
    TransportSlice, VlanId,
};
use proptest::collection::vec as bytes_of;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Spec {
    vlans: u8,
    ip: IpHeaders,
    /// 6, 17, 1 or 58.
    protocol: u8,
    tcp_option_words: usize,
    payload: Vec<u8>,
    padding: usize,
}

fn raw_extension() -> impl Strategy<Value = Option<Ipv6RawExtHeader>> {
    prop::option::of((0usize..6).prop_map(|n| {
        // The byte that a routing header would have its segments left in is zero.
        Ipv6RawExtHeader::new_raw(IpNumber::UDP, &vec![0; n * 8 + 6]).unwrap()
    }))
}

fn ipv4_headers() -> impl Strategy<Value = IpHeaders> {
    (0usize..=10, 0u16..3, any::<bool>()).prop_map(|(words, offset, more)| {
        let mut header =
            Ipv4Header::new(0, 64, IpNumber::UDP, [198, 18, 0, 1], [198, 18, 0, 2]).unwrap();
        header.options = vec![1; words * 4].as_slice().try_into().unwrap();
        header.fragment_offset = IpFragOffset::try_new(offset / 2).unwrap();
        header.more_fragments = more && offset == 1;
        IpHeaders::Ipv4(header, Default::default())
    })
}

fn ipv6_headers() -> impl Strategy<Value = IpHeaders> {
    let fragment = prop::option::of((0u16..3, any::<bool>()));
    (raw_extension(), raw_extension(), raw_extension(), fragment).prop_map(
        |(hop_by_hop, destination, routing, fragment)| {
            let header = Ipv6Header {
                hop_limit: 64,
                ..Default::default()
            };
            let extensions = Ipv6Extensions {
                hop_by_hop_options: hop_by_hop,
                destination_options: destination,
                routing: routing.map(|routing| Ipv6RoutingExtensions {
                    routing,
                    final_destination_options: None,
                }),
                fragment: fragment.map(|(offset, more)| {
                    let offset = IpFragOffset::try_new(offset).unwrap();
                    Ipv6FragmentHeader::new(IpNumber::UDP, offset, more, 7)
                }),
                auth: None,
            };
            IpHeaders::Ipv6(header, extensions)
        },
    )
}

fn spec() -> impl Strategy<Value = Spec> {
    (
        0u8..=2,
        prop_oneof![ipv4_headers(), ipv6_headers()],
        prop_oneof![Just(6u8), Just(17), Just(1), Just(58)],
        0usize..=10,
        bytes_of(any::<u8>(), 0..200),
        0usize..30,
    )
        .prop_map(
            |(vlans, ip, protocol, tcp_option_words, payload, padding)| Spec {
                vlans,
                ip,
                protocol,
                tcp_option_words,
                payload,
                padding,
            },
        )
}

impl Spec {
    fn build(&self) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let id = |n| VlanId::try_new(n).unwrap();
        let ip = match self.vlans {
            0 => ethernet.ip(self.ip.clone()),
            1 => ethernet.single_vlan(id(5)).ip(self.ip.clone()),
            _ => ethernet.double_vlan(id(6), id(7)).ip(self.ip.clone()),
        };
        let mut bytes = Vec::new();
        match self.protocol {
            6 => {
                let mut tcp = TcpHeader::new(1, 2, 3, 4);
                tcp.set_options_raw(&vec![1; self.tcp_option_words * 4])
                    .unwrap();
                ip.tcp_header(tcp).write(&mut bytes, &self.payload).unwrap();
            }
            17 => ip.udp(1, 2).write(&mut bytes, &self.payload).unwrap(),
            1 => ip
                .icmpv4_echo_request(1, 2)
                .write(&mut bytes, &self.payload)
                .unwrap(),
            _ => match self.ip {
                IpHeaders::Ipv4(..) => ip.icmpv4_echo_reply(1, 2).write(&mut bytes, &self.payload),
                IpHeaders::Ipv6(..) => ip.icmpv6_echo_reply(1, 2).write(&mut bytes, &self.payload),
            }
            .unwrap(),
        }
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }
}

/// Where `part` lies in `whole`.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn agrees_with_etherparse(spec in spec()) {
        let packet = spec.build();
        let ours = whole(ETHERNET, &packet).unwrap();
        let theirs = SlicedPacket::from_ethernet(&packet).unwrap();

        prop_assert_eq!(usize::from(ours.vlans), theirs.vlan_ids().len());
        let (network, header_bytes, ip) = match theirs.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => {
                prop_assert_eq!(ours.kind, Network::Ipv4);
                (ip.header().slice().as_ptr(), ip.header().slice().len(), ip.payload())
            }
            NetSlice::Ipv6(ip) => {
                prop_assert_eq!(ours.kind, Network::Ipv6);
                let bytes = ip.header().slice().len() + ip.extensions().slice().len();
                (ip.header().slice().as_ptr(), bytes, ip.payload())
            }
            NetSlice::Arp(_) => unreachable!("none was built"),
        };
        prop_assert_eq!(usize::from(ours.network), network as usize - packet.as_ptr() as usize);
        prop_assert_eq!(usize::from(ours.l3_header_len()), header_bytes);
        prop_assert_eq!(usize::from(ours.transport), offset_in(&packet, ip.payload));
        prop_assert_eq!(ours.l4_len() as usize, ip.payload.len());
        prop_assert_eq!(ours.protocol.0, ip.ip_number.0);
        prop_assert_eq!(ours.ip_end as usize, packet.len() - spec.padding);

        // An atomic IPv6 fragment is unfragmented for that library, a fragment here.
        let atomic = ours.fragment && !ip.fragmented;
        if atomic {
            let IpHeaders::Ipv6(_, extensions) = &spec.ip else { unreachable!("IPv4 has none") };
            let header = extensions.fragment.as_ref().unwrap();
            prop_assert!(header.fragment_offset.value() == 0 && !header.more_fragments);
        } else {
            prop_assert_eq!(ours.fragment, ip.fragmented);
            let (kind, payload_bytes) = match theirs.transport.as_ref() {
                Some(TransportSlice::Tcp(tcp)) => (Transport::Tcp, tcp.payload().len()),
                Some(TransportSlice::Udp(udp)) => (Transport::Udp, udp.payload().len()),
                Some(TransportSlice::Icmpv4(icmp)) if ours.kind == Network::Ipv4 => {
                    (Transport::Icmp, icmp.payload().len())
                }
                Some(TransportSlice::Icmpv6(icmp)) if ours.kind == Network::Ipv6 => {
                    (Transport::Icmpv6, icmp.payload().len())
                }
                None if ours.fragment => (Transport::None, ip.payload.len()),
                // ICMP over the other family: opaque to us.
                _ => (Transport::Other, ip.payload.len()),
            };
            prop_assert_eq!(ours.transport_kind, kind);
            prop_assert_eq!(ours.payload_len() as usize, payload_bytes);
        }
    }

    #[test]
    fn checksums_agree_with_etherparse(spec in spec()) {
        use crate::checksum;
        let packet = spec.build();
        let ours = whole(ETHERNET, &packet).unwrap();
        let at = |offset: u16| usize::from(offset);
        let l3 = &packet[at(ours.network)..at(ours.transport)];
        let l4 = &packet[at(ours.transport)..ours.ip_end as usize];
        let mut sum = if ours.kind == Network::Ipv4 {
            let header = ipv4::Header::parse(l3).unwrap();
            prop_assert!(header.checksum_is_valid());
            prop_assert_eq!(checksum::ipv4_header(l3), header.checksum());
            if ours.protocol == IpProtocol::ICMP {
                checksum::Sum::new()
            } else {
                let (src, dst) = (header.src(), header.dst());
                checksum::pseudo_header_v4(src, dst, ours.protocol.0, ours.l4_len())
            }
        } else {
            let header = ipv6::Header::parse(l3).unwrap();
            if ours.protocol == IpProtocol::ICMP {
                checksum::Sum::new()
            } else {
                let (src, dst) = (header.src(), header.dst());
                checksum::pseudo_header_v6(src, dst, ours.protocol.0, ours.l4_len())
            }
        };
        sum.add(l4);
        prop_assert!(sum.is_valid());
    }
}
