//! The fast parser for common headers gives the same result as the full parser.

use proptest::prelude::*;

use super::*;
use crate::coalesce::parse::{Parsed, ipv4_header_is_right, same_flow};
use crate::test_packets::frame::{tcp4, timestamps};
use crate::test_packets::slow_sum;

fn base(ipv6: bool, tcp: bool, link: LinkType, payload: usize, options: bool) -> Vec<u8> {
    let mut frame = tcp4(payload);
    frame.link = link;
    frame.ipv6 = ipv6;
    frame.tcp = tcp;
    if options {
        frame.options = timestamps(7, 9);
    }
    frame.bytes()
}

fn link() -> impl Strategy<Value = LinkType> {
    prop_oneof![Just(LinkType::Ethernet), Just(LinkType::RawIp)]
}

fn state() -> impl Strategy<Value = ChecksumState> {
    prop_oneof![
        Just(ChecksumState::None),
        Just(ChecksumState::Unnecessary),
        (0_u16..90, 0_u16..20).prop_map(|(start, offset)| ChecksumState::Partial { start, offset }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]

    #[test]
    fn the_shortcut_and_the_parser_agree(
        (ipv6, tcp, options, strict) in any::<(bool, bool, bool, bool)>(),
        link in link(),
        state in state(),
        payload in 0_usize..200,
        // Most packets get a byte or two changed, near the front.
        changes in prop::collection::vec((0_usize..70, any::<u8>()), 0..3),
        cut in prop::option::weighted(0.2, 0_usize..200),
        more in prop::option::weighted(0.2, 1_usize..40),
    ) {
        let mut bytes = base(ipv6, tcp, link, payload, options);
        let len = bytes.len();
        for (at, value) in changes {
            bytes[at % len] = value;
        }
        bytes.truncate(cut.unwrap_or(len));
        bytes.extend(std::iter::repeat_n(0xAA, more.unwrap_or(0)));
        let packet = Wire::new(bytes, state);
        let short = Parsed::of(&packet, link, strict, 5);
        let long = Parsed::of_any(&packet, packet.head(), link, strict, 5);
        prop_assert_eq!(short, long);
    }
}

/// Entries are found by a part of a hash: what they are is decided by these bytes.
#[test]
fn a_flow_is_addresses_ports_and_protocol() {
    let packet = |ipv6, tcp, link| {
        let bytes = base(ipv6, tcp, link, 10, false);
        let wire = Wire::new(bytes.clone(), ChecksumState::None);
        (bytes, Parsed::of(&wire, link, false, 0).shape)
    };
    for (ipv6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let (bytes, shape) = packet(ipv6, tcp, LinkType::RawIp);
        let (framed, elsewhere) = packet(ipv6, tcp, LinkType::Ethernet);
        assert!(same_flow(&bytes, shape, &framed, elsewhere));
        let (other, others) = packet(ipv6, !tcp, LinkType::RawIp);
        assert!(!same_flow(&bytes, shape, &other, others), "protocol");
        let (addresses, transport) = if ipv6 { (8..40, 40) } else { (12..20, 20) };
        for at in addresses.chain(transport..transport + 4) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(!same_flow(&bytes, shape, &other, shape), "byte {at}");
        }
    }
}

/// Carries of carries included: words of nothing but ones.
#[test]
fn the_sum_of_an_ipv4_header_is_folded_to_the_end() {
    for ones in 0..1 << 10 {
        let mut header = [0; 20];
        for (word, bytes) in header.as_chunks_mut().0.iter_mut().enumerate() {
            *bytes = [if ones >> word & 1 == 1 { 0xFF } else { 0 }; 2];
        }
        assert_eq!(ipv4_header_is_right(&header), slow_sum(&header) == 0xFFFF);
        header[7] ^= 0x10;
        assert!(!ipv4_header_is_right(&header), "{header:x?}");
    }
}
