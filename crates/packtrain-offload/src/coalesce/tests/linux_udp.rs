//! UDP as Linux merges it (`udp_gro_receive_segment()`), case by case, in either semantics.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::limits::UDP_GSO_SEGMENTS_MAX;
use crate::offload::GsoKind;
use crate::test_packets::frame::{Field, Frame, train, udp4, udp6};

fn both(sizes: &[usize]) -> [Vec<Frame>; 2] {
    [train(&udp4(0), sizes), train(&udp6(0), sizes)]
}

/// In either semantics, since datagrams have to be restored.
#[track_caller]
fn udp(frames: &[Frame], expected: &[u32]) -> (Output, Stats) {
    streamed(frames, expected);
    reversible(frames, expected)
}

#[test]
fn u1_four_of_the_same_size() {
    for frames in both(&[500; 4]) {
        let (output, _) = udp(&frames, &[2000]);
        let merged = merged(&output[0].1);
        assert_eq!(merged.pieces, 4);
        let gso = merged.gso.unwrap();
        assert_eq!(gso.size.get(), 500);
        assert!(matches!(gso.kind, GsoKind::UdpV4 | GsoKind::UdpV6));
    }
}

#[test]
fn u2_a_shorter_one_is_the_last() {
    for frames in both(&[500, 500, 300, 500]) {
        let (output, _) = udp(&frames, &[1300, 500]);
        assert_eq!(merged(&output[0].1).reason, FlushReason::Size);
    }
}

#[test]
fn u3_a_longer_one_starts_anew() {
    for frames in both(&[500, 600]) {
        let (output, _) = udp(&frames, &[500, 600]);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Size));
    }
}

#[test]
fn u4_without_a_checksum_nothing_is_merged() {
    for (mut frames, why) in both(&[500, 500])
        .into_iter()
        .zip([NotTaken::NoChecksum, NotTaken::BadChecksum])
    {
        for frame in &mut frames {
            frame.checksum = Field::Value(0);
        }
        for state in [Frame::unverified, Frame::verified] {
            for semantics in [Semantics::Reversible, Semantics::Stream] {
                let config = config(semantics, LinkType::RawIp);
                let input = frames.iter().map(state).collect();
                let (output, stats) = run(config, vec![Step::Burst(input)]);
                assert_eq!(output.len(), 2);
                assert_eq!(stats.not_taken.get(why), 2);
                let field = frames[0].transport() + 6;
                for (wire, _) in &output {
                    assert_eq!(wire.bytes[field..field + 2], [0, 0]);
                }
            }
        }
    }
}

/// A partial checksum of zero is a sum like any other.
#[test]
fn u4_a_partial_checksum_is_never_absent() {
    let mut frames = train(&udp4(0), &[500, 500]);
    for frame in &mut frames {
        frame.checksum = Field::Value(0);
    }
    let config = config(Semantics::Reversible, LinkType::RawIp);
    let input = frames.iter().map(Frame::partial).collect();
    let (output, _) = run(config, vec![Step::Burst(input)]);
    assert_eq!(lengths(&config, &output), [1000]);
}

#[test]
fn u5_64_datagrams_at_most() {
    for frames in both(&[10; 65]) {
        let (output, _) = udp(&frames, &[640, 10]);
        let merged = merged(&output[0].1);
        assert_eq!(usize::from(merged.pieces), UDP_GSO_SEGMENTS_MAX);
        assert_eq!(merged.reason, FlushReason::Full);
    }
}

/// Linux lets it overtake the held packet; here that goes first.
#[test]
fn u6_an_empty_datagram_keeps_its_place() {
    for frames in both(&[500, 500, 0, 500, 500]) {
        let (output, _) = udp(&frames, &[1000, 0, 1000]);
        assert_eq!(output[1].1, Done::Passed(NotTaken::Payload));
    }
}

#[test]
fn u7_a_length_that_is_not_that_of_the_ip_payload() {
    for mut frames in both(&[500, 500, 500]) {
        frames[1].surplus = 12;
        let (output, _) = udp(&frames, &[500, 512, 500]);
        assert_eq!(output[1].1, Done::Passed(NotTaken::UdpLength));
    }
}

#[test]
fn u8_cut_again_with_identifications_that_count() {
    let mut frames = train(&udp4(0), &[1000, 1000, 500]);
    for (frame, id) in frames.iter_mut().zip([0xFFFE, 0xFFFF, 0]) {
        frame.id = id;
    }
    let (output, _) = udp(&frames, &[2500]);
    let config = config(Semantics::Reversible, LinkType::RawIp);
    let pieces = restore(&config, &output[0].0, &output[0].1);
    let ids: Vec<[u8; 2]> = pieces.iter().map(|p| [p[4], p[5]]).collect();
    assert_eq!(ids, [[0xFF, 0xFE], [0xFF, 0xFF], [0, 0]]);
}

/// A payload that brings the checksum to zero.
pub(super) fn with_zero_sum(frame: &mut Frame) {
    frame.payload[..2].fill(0);
    let at = frame.transport() + 6;
    let bytes = frame.bytes();
    let sum = [bytes[at], bytes[at + 1]];
    // The checksum itself is the complement of the rest.
    frame.payload[..2].copy_from_slice(&sum);
    assert_eq!(frame.bytes()[at..at + 2], [0xFF, 0xFF]);
}

#[test]
fn u9_a_sum_of_zero_is_all_ones() {
    for mut frames in both(&[500, 500, 500]) {
        frames.iter_mut().for_each(with_zero_sum);
        // `restore` compares with the originals, all of which have 0xFFFF.
        udp(&frames, &[1500]);
    }
}

#[test]
fn u11_65535_bytes_at_most() {
    let mut sizes = vec![1472; 44];
    // 28 bytes of headers.
    sizes.push(65_535 - 28 - 44 * 1472);
    reversible(&train(&udp4(0), &sizes), &[65_507]);
    let sizes = [1472; 45];
    let (output, _) = udp(&train(&udp4(0), &sizes), &[44 * 1472, 1472]);
    assert_eq!(merged(&output[0].1).reason, FlushReason::Full);
}

#[test]
fn u11_a_limit_of_the_configuration() {
    for (frames, headers) in both(&[100; 3]).iter().zip([28, 48]) {
        for (room, expected) in [(300, &[300][..]), (299, &[200, 100]), (199, &[100; 3])] {
            for mode in MODES {
                let config = Config {
                    mode,
                    max_bytes: headers + room,
                    ..config(Semantics::Reversible, LinkType::RawIp)
                };
                let input = frames.iter().map(Frame::verified).collect();
                let (output, _) = run(config, vec![Step::Burst(input)]);
                assert_eq!(lengths(&config, &output), expected);
            }
        }
    }
}

#[test]
fn header_fields_of_ip_have_to_be_equal() {
    let changes: [fn(&mut Frame); 4] = [
        |frame| frame.ttl += 1,
        |frame| frame.tos = 3,
        |frame| frame.ports.0 += 1,
        |frame| frame.destination += 1,
    ];
    for change in changes {
        for mut frames in both(&[500, 500]) {
            change(&mut frames[1]);
            udp(&frames, &[500, 500]);
        }
    }
    let mut frames = train(&udp4(0), &[500, 500, 500]);
    frames[1].fragment = 0;
    udp(&frames, &[500, 500, 500]);
    let mut frames = train(&udp4(0), &[500, 500, 500]);
    frames[2].id += 1;
    udp(&frames, &[1000, 500]);
}

#[test]
fn what_is_switched_off_is_not_held() {
    let config = Config {
        udp: false,
        ..config(Semantics::Reversible, LinkType::RawIp)
    };
    let frames = train(&udp4(0), &[100, 100]);
    let input = frames.iter().map(Frame::verified).collect();
    let (_, stats) = run(config, vec![Step::Burst(input)]);
    assert_eq!(stats.not_taken.get(NotTaken::Off), 2);
}

#[test]
fn one_byte_each() {
    for frames in both(&[1; 64]) {
        udp(&frames, &[64]);
    }
}
