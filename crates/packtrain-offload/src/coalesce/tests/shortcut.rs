//! The shortcut for common headers says what the parser says.

use proptest::prelude::*;

use super::*;
use crate::coalesce::parse::Parsed;
use crate::test_packets::frame::{tcp4, timestamps};

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
