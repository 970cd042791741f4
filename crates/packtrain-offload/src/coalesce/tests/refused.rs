//! What is not merged and rarely seen: mostly in headers that are no common ones.

use super::*;
use crate::test_packets::frame::{Field, tcp4, tcp6, train};

/// Runs two packets through either semantics; neither is taken, and for this reason.
#[track_caller]
fn refused(frames: &[Frame], change: impl Fn(&mut Wire), why: NotTaken) {
    for semantics in [Semantics::Reversible, Semantics::Stream] {
        let config = config(semantics, frames[0].link);
        let input = frames.iter().map(|frame| {
            let mut wire = frame.verified();
            change(&mut wire);
            wire
        });
        let (output, _) = run(config, vec![Step::Burst(input.collect())]);
        let all: Vec<Done> = output.iter().map(|(_, done)| *done).collect();
        assert_eq!(all, vec![Done::Passed(why); frames.len()], "{semantics:?}");
    }
}

fn tagged() -> Frame {
    Frame {
        vlans: vec![(0x8100, 10)],
        ..tcp4(0).ethernet()
    }
}

/// RFC 791 §3.1: it must be zero, so nobody knows what it would mean to lose it.
#[test]
fn the_reserved_flag_of_ipv4() {
    let first = Frame {
        fragment: 0xC000,
        ..tagged()
    };
    refused(&train(&first, &[100, 100]), |_| (), NotTaken::Options);
}

/// With a segment left the destination is not the one that the checksum is made with.
#[test]
fn a_source_route_of_ipv6() {
    let mut route = vec![2, 2, 1, 0, 0, 0, 0, 0xfd];
    route.resize(23, 0);
    let first = Frame {
        extensions: vec![(43, route)],
        ..tcp6(0)
    };
    refused(&train(&first, &[100, 100]), |_| (), NotTaken::Options);
}

/// Headers of these kinds are of even length, but a layout that comes with a packet may say
/// anything.
#[test]
fn a_layout_with_odd_offsets() {
    let frames = train(&tagged(), &[100, 100]);
    let changes: [fn(&mut Layout); 3] = [
        |layout| layout.network -= 1,
        |layout| layout.transport += 1,
        |layout| layout.payload += 1,
    ];
    for change in changes {
        let with_layout = |wire: &mut Wire| {
            let mut layout =
                Layout::parse(LinkType::Ethernet, &wire.bytes, wire.bytes.len() as u32).unwrap();
            change(&mut layout);
            wire.parsed = Some(layout);
        };
        refused(&frames, with_layout, NotTaken::Protocol);
    }
}

/// A header whose sum is 0 has a checksum of 0xFFFF as well as one of 0. No segmenter would write
/// it; where nothing is to be restored it does not matter.
#[test]
fn the_other_form_of_zero_in_an_ip_header() {
    let bytes = tcp4(100).bytes();
    let checksum = u16::from_be_bytes([bytes[10], bytes[11]]);
    let frame = Frame {
        id: tcp4(0).id.checked_add(checksum).unwrap(),
        ..tcp4(100)
    };
    assert_eq!(frame.bytes()[10..12], [0, 0], "it is that of zero now");
    let other = Frame {
        ip_checksum: Field::Value(0xFFFF),
        ..frame
    };
    for (semantics, done) in [
        (Semantics::Reversible, Done::Passed(NotTaken::ChecksumForm)),
        (Semantics::Stream, Done::Alone(FlushReason::Timeout)),
    ] {
        let (output, _) = run(
            config(semantics, LinkType::RawIp),
            vec![Step::Push(other.verified())],
        );
        assert_eq!(output[0].1, done);
    }
}
