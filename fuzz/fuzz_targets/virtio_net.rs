//! `VnetHeader` and `validate` over any header in front of any packet: an accepted packet uses only
//! negotiated features, has all offsets inside, can be segmented into the stated number of wire
//! packets, and is still valid after it is described to another peer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packtrain_fuzz::{Input, reached};
use packtrain_offload::offload::{ChecksumState, Ecn, LinkType};
use packtrain_offload::segment::{Segmenter, TCP_SEGMENTS_MAX, UDP_SEGMENTS_MAX};
use packtrain_offload::virtio_net::{
    Accept, BigTcp, FLAG_DATA_VALID, FLAG_NEEDS_CSUM, HeaderLen, Received, VnetError, VnetHeader,
    describe, validate,
};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let link = input.link();
    let accept = accept(input.byte());
    let form = input.byte();
    let len = if form & 1 == 0 {
        HeaderLen::Legacy
    } else {
        HeaderLen::V1
    };
    let bytes = input.rest();

    let Ok(header) = VnetHeader::decode(bytes, len) else {
        assert!(bytes.len() < len.bytes());
        return;
    };
    let mut encoded = [0; 12];
    header
        .encode(&mut encoded, len)
        .expect("12 bytes hold either form");
    assert_eq!(encoded[..len.bytes()], bytes[..len.bytes()]);

    let packet = &bytes[len.bytes()..];
    // Of a packet this much longer the bytes are not read.
    let whole = packet.len() as u32 + (u32::from(form >> 1) << 10);
    match BigTcp::new(&header, link, accept, packet, whole) {
        Ok(Some(big)) => check_big(&big, link, accept, whole),
        Ok(None) => {}
        Err(error) => assert!(VnetError::ALL.contains(&error)),
    }
    let validated = validate(&header, link, accept, packet, packet.len() as u32);
    if let Some(checksum) = header.asks_for_nothing(link, accept, packet.len() as u32) {
        let received = validated.expect("a header that asks for nothing is accepted");
        assert_eq!((received.checksum, received.gso), (checksum, None));
        assert_eq!(received.packet_bytes, packet.len() as u32);
    }
    match validated {
        Ok(received) => {
            check(&header, accept, packet, &received);
            check_round_trip(link, packet, &received);
        }
        Err(error) => assert!(VnetError::ALL.contains(&error) && !error.reason().is_empty()),
    }
});

/// Mostly all features, so that the rules behind the negotiation are reached.
fn accept(bits: u8) -> Accept {
    const EACH: [Accept; 7] = [
        Accept::CSUM,
        Accept::TSO4,
        Accept::TSO6,
        Accept::TSO_ECN,
        Accept::USO4,
        Accept::USO6,
        Accept::DATA_VALID,
    ];
    let refused = EACH
        .into_iter()
        .enumerate()
        .filter(|(i, _)| bits & (1 << i) != 0);
    refused.fold(Accept::ALL, |accept, (_, refused)| accept.without(refused))
}

/// The parts have the payload in order, and what is written in front of each is valid.
fn check_big(big: &BigTcp, link: LinkType, accept: Accept, whole: u32) {
    assert!(big.parts() >= 2);
    let mut next = big.payload(0).start;
    for index in 0..big.parts() {
        let payload = big.payload(index);
        assert!(payload.start == next && !payload.is_empty());
        next = payload.end;
        let mut headers = vec![0; big.header_bytes()];
        let Ok(header) = big.write_headers(index, &mut headers) else {
            continue;
        };
        let bytes = (headers.len() + payload.len()) as u32;
        let received = validate(&header, link, accept, &headers, bytes);
        assert_eq!(received.map(|received| received.packet_bytes), Ok(bytes));
    }
    assert!(next <= whole);
    reached("cutting BIG TCP");
}

fn check(header: &VnetHeader, accept: Accept, packet: &[u8], received: &Received) {
    assert!(received.packet_bytes as usize <= packet.len());
    assert!(received.wire_packets >= 1);
    match received.checksum {
        ChecksumState::Partial { start, offset } => {
            assert!(header.flags & FLAG_NEEDS_CSUM != 0 && accept.contains(Accept::CSUM));
            let field_end = u32::from(start) + u32::from(offset) + 2;
            assert!(field_end <= received.packet_bytes);
        }
        ChecksumState::Unnecessary => {
            assert!(header.flags & FLAG_DATA_VALID != 0 && accept.contains(Accept::DATA_VALID));
        }
        ChecksumState::None => assert_eq!(header.flags & FLAG_NEEDS_CSUM, 0),
    }
    let Some(gso) = received.gso else {
        assert_eq!(received.wire_packets, 1);
        return;
    };
    assert!(accept.contains(Accept::of(gso.kind)));
    assert!(gso.ecn() == Ecn::None || (gso.kind.is_tcp() && accept.contains(Accept::TSO_ECN)));
    assert!(matches!(received.checksum, ChecksumState::Partial { .. }));
    let layout = received.layout.expect("a GSO packet is understood");
    let segmenter = Segmenter::new(packet, &layout, gso, received.packet_bytes)
        .expect("what passes can be segmented");
    assert_eq!(segmenter.segments(), received.wire_packets);
    let most = if gso.kind.is_tcp() {
        TCP_SEGMENTS_MAX
    } else {
        UDP_SEGMENTS_MAX
    };
    assert!((2..=most).contains(&received.wire_packets));
}

/// Passed on to a peer that accepts all features, it means the same.
fn check_round_trip(link: LinkType, packet: &[u8], received: &Received) {
    let header = describe(received.checksum, received.gso, received.layout.as_ref());
    let packet = &packet[..received.packet_bytes as usize];
    let again = validate(&header, link, Accept::ALL, packet, received.packet_bytes)
        .expect("what we describe is valid");
    // `DATA_VALID` is not passed on.
    let checksum = match received.checksum {
        ChecksumState::Unnecessary => ChecksumState::None,
        other => other,
    };
    assert_eq!(
        again,
        Received {
            checksum,
            ..*received
        }
    );
}
