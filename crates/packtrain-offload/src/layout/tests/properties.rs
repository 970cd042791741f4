//! Any bytes at all, and valid packets with a few bytes changed.

use super::*;
use proptest::collection::vec as bytes_of;
use proptest::prelude::*;

/// Invariants for every input: no panic, consistent offsets, and a result that does not depend on
/// bytes beyond the needed prefix.
fn holds(link: LinkType, headers: &[u8], packet_bytes: u32) -> Result<(), TestCaseError> {
    let prefix = Prefix::new(headers, packet_bytes as usize);
    if let Some(usual) = prefix.usual() {
        let general = prefix.ethernet(0).and_then(|base| prefix.network(base));
        prop_assert_eq!(Ok(usual), general);
    }
    let got = Layout::parse(link, headers, packet_bytes);
    if let Ok(layout) = got {
        prop_assert_eq!(layout.check(packet_bytes), Ok(()));
        let payload = usize::from(layout.payload);
        prop_assert!(payload <= headers.len());
        if layout.kind != Network::Arp {
            prop_assert_eq!(Layout::parse(link, &headers[..payload], packet_bytes), got);
        }
    }
    let enough = HEADER_BYTES_MAX.min(packet_bytes as usize);
    if headers.len() >= enough {
        prop_assert_eq!(Layout::parse(link, &headers[..enough], packet_bytes), got);
        prop_assert_ne!(got, Err(ParseError::HeadersNotContiguous));
    }
    Ok(())
}

fn link() -> impl Strategy<Value = LinkType> {
    prop_oneof![
        Just(LinkType::Ethernet),
        Just(LinkType::RawIp),
        Just(LinkType::Ipoib)
    ]
}

/// Lengths around the boundaries of the 16-bit fields.
fn packet_bytes(headers: usize) -> impl Strategy<Value = u32> {
    let headers = headers as u32;
    prop_oneof![
        4 => Just(headers),
        1 => 0..=headers,
        1 => 0u32..128,
        1 => 65_500u32..70_000,
        1 => any::<u32>(),
    ]
}

fn valid_packet() -> impl Strategy<Value = Vec<u8>> {
    let tags = bytes_of(prop_oneof![Just(TAG), Just(SERVICE_TAG)], 0..4);
    let chain = bytes_of(
        (
            prop_oneof![Just(0u8), Just(43), Just(44), Just(60)],
            (1usize..6).prop_map(|n| n * 8),
        ),
        0..9,
    );
    let body = prop_oneof![
        (0usize..=10, 0usize..300).prop_map(|(options, n)| (6u8, tcp(options * 4, n))),
        (0usize..300).prop_map(|n| (17, udp(n))),
        (any::<u8>(), bytes_of(any::<u8>(), 0..60)),
    ];
    let options = (0usize..=10, any::<u8>()).prop_map(|(n, byte)| vec![byte; n * 4]);
    (tags, any::<bool>(), chain, options, body).prop_map(
        |(tags, six, chain, options, (p, body))| {
            if six {
                ethernet(&tags, 0x86DD, &ipv6_with(&chain, p, &body))
            } else {
                ethernet(&tags, 0x0800, &ipv4(p, &options, &body))
            }
        },
    )
}

#[test]
fn most_packets_are_usual() {
    let mut packet = vec![0; 60];
    packet[12..15].copy_from_slice(&[8, 0, 0x45]);
    packet[17] = 46;
    for (protocol, at, value, payload) in [(6, 46, 0x50, 54), (17, 39, 26, 42)] {
        packet[23] = protocol;
        packet[at] = value;
        let layout = Prefix::new(&packet, 60).usual();
        assert_eq!(layout.map(|layout| layout.payload), Some(payload));
        assert_eq!(Layout::parse(LinkType::Ethernet, &packet, 60).ok(), layout);
        // The same bytes on another link are no such packet.
        assert_ne!(Layout::parse(LinkType::Ipoib, &packet, 60).ok(), layout);
        packet[at] = 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn any_bytes(
        link in link(),
        (headers, n) in bytes_of(any::<u8>(), 0..500)
            .prop_flat_map(|headers| (Just(headers.clone()), packet_bytes(headers.len()))),
    ) {
        holds(link, &headers, n)?;
    }

    #[test]
    fn changed_packets(
        (mut headers, n) in valid_packet()
            .prop_flat_map(|headers| (Just(headers.clone()), packet_bytes(headers.len()))),
        edits in bytes_of((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        for (at, byte) in edits {
            // Most relevant bytes are in the first hundred.
            let at = at.index(headers.len().min(100));
            headers[at] = byte;
        }
        if let Some(cut) = cut {
            headers.truncate(cut.index(headers.len()));
        }
        holds(LinkType::Ethernet, &headers, n)?;
        holds(LinkType::RawIp, headers.get(14..).unwrap_or_default(), n)?;
    }

    #[test]
    fn lying_fields_at_every_length(
        first in prop_oneof![Just(0x45u8), Just(0x4F), Just(0x60), any::<u8>()],
        fill in prop_oneof![Just(0u8), Just(6), Just(17), Just(60), Just(0xFF), any::<u8>()],
        length in any::<u16>(),
        next in prop_oneof![Just(0u8), Just(6), Just(17), Just(44), Just(60), any::<u8>()],
    ) {
        let mut bytes = [fill; 512];
        bytes[0] = first;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        bytes[6] = next;
        bytes[9] = next;
        for n in (0..128).chain(65_500..65_600) {
            let there = (n as usize).min(bytes.len());
            holds(LinkType::RawIp, &bytes[..there], n)?;
        }
    }
}
