//! Whole packets: what they say, and what they leave for the other calls.

use super::*;
use crate::offload::GsoKind;
use crate::test_packets::{Field, Spec};
use crate::tun::TunOffload;
use crate::virtio_net::{
    FLAG_DATA_VALID, FLAG_NEEDS_CSUM, GSO_TCPV4, GSO_UDP_L4, HeaderLen, VnetHeader,
};
use core::num::NonZeroU16;
use std::format;
use std::vec;
use std::vec::Vec;

/// A read of the packet behind `header`, with padding behind it.
fn read(header: &VnetHeader, packet: &[u8]) -> Vec<u8> {
    let mut read = vec![0; 10];
    header.encode(&mut read, HeaderLen::Legacy).expect("room");
    [&read, packet, &[9; 3]].concat()
}

fn partial(spec: &Spec, gso_type: u8, gso_size: u16) -> VnetHeader {
    VnetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type,
        gso_size,
        csum_start: spec.transport() as u16,
        csum_offset: if spec.tcp { 16 } else { 6 },
        ..VnetHeader::default()
    }
}

fn state(spec: &Spec) -> ChecksumState {
    ChecksumState::Partial {
        start: spec.transport() as u16,
        offset: if spec.tcp { 16 } else { 6 },
    }
}

#[test]
fn a_gso_packet_is_given_whole_and_leaves_nothing() {
    let specs = [
        (Spec::tcp4(3000), GSO_TCPV4, GsoKind::TcpV4),
        (Spec::udp4(3000), GSO_UDP_L4, GsoKind::UdpV4),
    ];
    for (spec, gso_type, kind) in specs {
        let packet = spec.build(Field::Preload);
        let mut read = read(&partial(&spec, gso_type, 1400), &packet);
        let mut packets = TunOffload::tun().packets(&mut read).expect("a packet");
        let size = NonZeroU16::new(1400).expect("not 0");
        let whole = Whole {
            bytes: &packet,
            checksum: state(&spec),
            gso: Some(WholeGso {
                gso: Gso::new(kind, size),
                header_bytes: packet.len() - 3000,
                segments: 3,
            }),
        };
        assert_eq!(packets.whole(), Some(whole));
        let printed = format!("{:?}", packets.whole());
        assert!(printed.contains(&format!("bytes: {}", packet.len())));
        assert_eq!(packets.remaining(), 3);
        assert_eq!(packets.take_whole(), Some(&mut packet.clone()[..]));
        assert_eq!((packets.remaining(), packets.next_bytes()), (0, None));
        assert_eq!(packets.next_packet(), None);
        assert_eq!(packets.take_whole(), None);
        assert_eq!(packets.whole(), None);
    }
}

#[test]
fn a_wire_packet_is_whole_with_the_state_of_its_checksum() {
    let spec = Spec::tcp6(77);
    let finished = spec.build(Field::Final);
    let unfinished = spec.build(Field::Preload);
    let valid = VnetHeader {
        flags: FLAG_DATA_VALID,
        ..VnetHeader::default()
    };
    for (header, packet, checksum) in [
        (VnetHeader::default(), &finished, ChecksumState::None),
        (valid, &finished, ChecksumState::Unnecessary),
        (partial(&spec, 0, 0), &unfinished, state(&spec)),
        // A GSO packet that fits one segment is a wire packet.
        (partial(&spec, 4, 1400), &unfinished, state(&spec)),
    ] {
        let mut read = read(&header, packet);
        if header.flags != FLAG_NEEDS_CSUM {
            // Only with an unfinished checksum is padding found.
            read.truncate(10 + packet.len());
        }
        let mut packets = TunOffload::tun().packets(&mut read).expect("a packet");
        let whole = packets.whole().expect("nothing was fetched");
        assert_eq!((whole.bytes, whole.checksum), (&packet[..], checksum));
        assert_eq!(whole.gso, None);
        assert_eq!(packets.take_whole(), Some(&mut packet.clone()[..]));
        assert_eq!(packets.remaining(), 0);
    }
}

/// A reader has no packet before a read and after one that is refused. Each read has its own state.
#[test]
fn a_reader_has_the_whole_of_its_last_read() {
    let spec = Spec::tcp4(3000);
    let packet = spec.build(Field::Preload);
    let large = read(&partial(&spec, GSO_TCPV4, 1400), &packet);
    let mut small = Spec::tcp4(7).build(Field::Final);
    small = [vec![0; 10], small].concat();
    let mut reader = TunOffload::tun().reader(vec![0; 4000]);
    assert_eq!(reader.whole(), None);
    assert_eq!(reader.take_whole(), None);
    for _ in 0..2 {
        reader.buffer()[..large.len()].copy_from_slice(&large);
        assert_eq!(reader.whole(), None, "the buffer is for the next read");
        reader.received(large.len()).expect("a packet");
        let whole = reader.whole().expect("a packet");
        assert_eq!((whole.bytes, whole.checksum), (&packet[..], state(&spec)));
        assert_eq!(whole.gso.map(|gso| gso.segments), Some(3));
        assert_eq!(reader.take_whole(), Some(&mut packet.clone()[..]));
        assert_eq!((reader.remaining(), reader.whole()), (0, None));

        reader.buffer()[..small.len()].copy_from_slice(&small);
        reader.received(small.len()).expect("a packet");
        let whole = reader.whole().expect("a packet");
        assert_eq!((whole.bytes, whole.gso), (&small[10..], None));
        assert_eq!(whole.checksum, ChecksumState::None);
        assert!(reader.take_whole().is_some());
        assert!(reader.received(9).is_err(), "less than a header");
        assert_eq!(reader.whole(), None);
        assert_eq!(reader.take_whole(), None);
    }
}

/// A look changes nothing, and there is no whole packet once a part of it was fetched.
#[test]
fn after_a_packet_was_fetched_or_skipped_there_is_no_whole() {
    let spec = Spec::tcp4(3000);
    let header = partial(&spec, GSO_TCPV4, 1400);
    let packet = spec.build(Field::Preload);
    let mut looked_at = read(&header, &packet);
    let mut packets = TunOffload::tun().packets(&mut looked_at).expect("a packet");
    assert!(packets.whole().is_some());
    let mut others = read(&header, &packet);
    let mut others = TunOffload::tun().packets(&mut others).expect("a packet");
    for left in [2, 1, 0] {
        assert_eq!(packets.next_packet(), others.next_packet());
        assert_eq!(packets.whole(), None);
        assert_eq!(packets.take_whole(), None);
        assert_eq!(packets.remaining(), left);
    }
    let mut read = read(&header, &packet);
    let mut packets = TunOffload::tun().packets(&mut read).expect("a packet");
    assert!(packets.skip_packet());
    assert_eq!(packets.whole(), None);
    assert_eq!(packets.take_whole(), None);
    assert_eq!(packets.remaining(), 2);
}
