//! TCP as Linux merges it (`dev_gro_receive()`, `inet_gro_receive()`, `tcp_gro_receive()`), case by
//! case. Tests of a deliberate difference say so.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::offload::{Ecn, GsoKind};
use crate::test_packets::frame::{Field, Frame, both, tcp4, tcp6, timestamps, train};
use crate::test_packets::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

#[test]
fn t1_two_of_the_same_size() {
    for frames in both(&[100, 100]) {
        let (output, stats) = reversible(&frames, &[200]);
        let merged = merged(&output[0].1);
        assert_eq!(merged.gso.unwrap().size.get(), 100);
        assert_eq!((merged.pieces, merged.absorbed), (2, 0));
        assert_eq!(merged.reason, FlushReason::Timeout);
        assert_eq!(stats.flushes.get(FlushReason::Timeout), 1);
    }
}

#[test]
fn t2_a_shorter_one_ends_it_at_once() {
    for frames in both(&[100, 50]) {
        let (output, _) = reversible(&frames, &[150]);
        assert_eq!(merged(&output[0].1).reason, FlushReason::Size);
    }
}

#[test]
fn t3_a_longer_one_starts_anew() {
    for frames in both(&[50, 100]) {
        let (output, _) = reversible(&frames, &[50, 100]);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Size));
        assert_eq!(output[1].1, Done::Alone(FlushReason::Timeout));
    }
}

#[test]
fn t4_nothing_after_a_shorter_one() {
    for frames in both(&[100, 100, 50, 100]) {
        reversible(&frames, &[250, 100]);
    }
}

#[test]
fn t5_psh_ends_it() {
    for mut frames in both(&[100; 5]) {
        frames[2].flags |= PSH;
        let (output, _) = reversible(&frames, &[300, 200]);
        assert_eq!(merged(&output[0].1).reason, FlushReason::Flags);
        let flags = frames[0].transport() + 13;
        assert_eq!(output[0].0.bytes[flags], ACK | PSH);
        assert_eq!(output[1].0.bytes[flags], ACK);
    }
}

#[test]
fn t6_pure_acks_are_not_held() {
    for mut frames in both(&[0, 0, 0]) {
        frames[2].acknowledgement += 1;
        let (output, _) = reversible(&frames, &[0, 0, 0]);
        for (_, done) in &output {
            assert_eq!(*done, Done::Passed(NotTaken::Payload));
        }
    }
}

#[test]
fn t7_control_packets_push_out_what_is_held() {
    for flag in [SYN, RST, URG] {
        for mut frames in both(&[100, 100, 0, 100, 100]) {
            frames[2].flags |= flag;
            let (output, _) = reversible(&frames, &[200, 0, 200]);
            assert_eq!(merged(&output[0].1).reason, FlushReason::Flags);
            assert_eq!(output[1].1, Done::Passed(NotTaken::Flags));
        }
    }
}

#[test]
fn t7_control_packets_with_payload_are_not_merged_either() {
    for flag in [SYN, RST, URG] {
        for mut frames in both(&[100, 100, 100, 100, 100]) {
            frames[2].flags |= flag;
            reversible(&frames, &[200, 100, 200]);
        }
    }
}

/// The rule before Accurate ECN: a new packet with CWR is not merged, a held one is continued.
#[test]
fn t8_cwr_is_on_the_first_alone() {
    for mut frames in both(&[100; 5]) {
        frames[1].flags |= CWR;
        frames[2].flags |= CWR;
        let (output, _) = reversible(&frames, &[100, 100, 300]);
        let gso = merged(&output[2].1).gso.unwrap();
        assert_eq!(gso.ecn(), Ecn::Cwr);
    }
}

#[test]
fn t9_a_wrong_checksum_passes_untouched() {
    for mut frames in both(&[100, 100, 100]) {
        frames[1].checksum = Field::Wrong;
        for mode in MODES {
            let config = Config {
                mode,
                ..config(Semantics::Reversible, LinkType::RawIp)
            };
            let input = frames.iter().map(|f| Step::Push(f.unverified())).collect();
            let (output, stats) = run(config, input);
            assert_eq!(lengths(&config, &output), [100, 100, 100]);
            // Linux lets it overtake; here it flushes the held packet.
            check_order(&output);
            assert_eq!(output[0].1, Done::Alone(FlushReason::Refused));
            assert_eq!(output[1].1, Done::Passed(NotTaken::BadChecksum));
            assert_eq!(stats.bad_checksums, 1);
        }
    }
}

#[test]
fn t10_a_gap() {
    for step in [1, -1, -100, 100] {
        for mut frames in both(&[100, 100]) {
            frames[1].sequence = frames[1].sequence.wrapping_add_signed(step);
            let (output, _) = reversible(&frames, &[100, 100]);
            assert_eq!(output[0].1, Done::Alone(FlushReason::Order));
        }
    }
}

#[test]
fn t11_options_have_to_be_equal() {
    for mut frames in both(&[100; 5]) {
        for (frame, options) in frames.iter_mut().zip([
            timestamps(0, 0),
            timestamps(0, 0),
            timestamps(100, 0),
            [&timestamps(100, 0)[2..], &[1, 1]].concat(),
            [&[1], &timestamps(100, 0)[2..], &[1]].concat(),
        ]) {
            frame.options = options;
        }
        reversible(&frames, &[200, 100, 100, 100]);
    }
}

#[test]
fn t12_time_to_live() {
    for mut frames in both(&[100, 100]) {
        frames[1].ttl -= 1;
        let (output, _) = reversible(&frames, &[100, 100]);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Mismatch));
    }
}

#[test]
fn t13_ecn_of_ip() {
    for (a, b) in [(0, 2), (2, 3), (0, 4), (2, 1), (0x20, 0x60)] {
        for mut frames in both(&[100, 100]) {
            frames[0].tos = a;
            frames[1].tos = b;
            reversible(&frames, &[100, 100]);
        }
    }
}

/// Linux delivers the one with options at once, ahead of the held packet; here it flushes that
/// first.
#[test]
fn t14_ip_options() {
    let mut frames = train(&tcp4(0), &[100; 3]);
    frames[1].ip_options = vec![1, 1, 1, 0];
    let (output, _) = reversible(&frames, &[100, 100, 100]);
    assert_eq!(output[0].1, Done::Alone(FlushReason::Refused));
    assert_eq!(output[1].1, Done::Passed(NotTaken::Options));
}

/// Destination options of 16 bytes, padded.
fn destination_options(mark: u8) -> (u8, Vec<u8>) {
    let mut rest = vec![1, 0x1e, 12];
    rest.resize(15, mark);
    (60, rest)
}

#[test]
fn t15_extension_headers_have_to_be_equal() {
    let with = |marks: [u8; 2]| {
        let mut frames = train(&tcp6(0), &[100, 100]);
        for (frame, mark) in frames.iter_mut().zip(marks) {
            frame.extensions = vec![destination_options(mark)];
        }
        frames
    };
    reversible(&with([0, 0]), &[200]);
    reversible(&with([0, 1]), &[100, 100]);
    let mut frames = with([0, 0]);
    frames[1].extensions.clear();
    reversible(&frames, &[100, 100]);
    // Hop by hop, too, and several of them; longer than what is kept in the table.
    for extensions in [
        vec![(0, vec![0, 1, 4, 0, 0, 0, 0])],
        vec![(0, vec![0, 1, 4, 0, 0, 0, 0]), destination_options(7)],
        vec![
            destination_options(1),
            destination_options(2),
            destination_options(3),
        ],
        vec![destination_options(1); 8],
    ] {
        let first = Frame {
            extensions,
            options: timestamps(7, 8),
            ..tcp6(0).ethernet()
        };
        reversible(&train(&first, &[100, 100, 100, 10]), &[310]);
    }
}

#[test]
fn t16_fragments_are_not_merged() {
    let mut frames = train(&tcp6(0), &[100; 4]);
    frames[1].extensions = vec![(44, vec![0, 0, 1, 0, 0, 0, 9])];
    // An atomic one.
    frames[2].extensions = vec![(44, vec![0, 0, 0, 0, 0, 0, 9])];
    for mode in MODES {
        let config = Config {
            mode,
            ..config(Semantics::Reversible, LinkType::RawIp)
        };
        let input: Vec<Wire> = frames.iter().map(Frame::verified).collect();
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_eq!(output.len(), 4);
        check_order(&output);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Refused));
        assert_eq!(output[1].1, Done::Passed(NotTaken::Fragment));
        assert_eq!(output[2].1, Done::Passed(NotTaken::Fragment));
    }
}

#[test]
fn t16_fragments_of_ipv4_push_out_all_flows_with_their_addresses() {
    for fragment in [0x2000, 0x0005, 0x2005] {
        let mut other = tcp4(100);
        other.ports.0 += 1;
        let first = Frame {
            fragment,
            ..tcp4(100)
        };
        let frames = [tcp4(100), other, first];
        let config = config(Semantics::Reversible, LinkType::RawIp);
        let input = frames.iter().map(Frame::verified).collect();
        let (output, stats) = run(config, vec![Step::Burst(input)]);
        check_order(&output);
        assert_eq!(output[2].1, Done::Passed(NotTaken::Fragment));
        assert_eq!(stats.flushes.get(FlushReason::Refused), 2);
    }
}

fn with_ids(fragment: u16, ids: &[u16]) -> Vec<Frame> {
    let mut frames = train(&tcp4(0), &vec![100; ids.len()]);
    for (frame, &id) in frames.iter_mut().zip(ids) {
        frame.id = id;
        frame.fragment = fragment;
    }
    frames
}

const DF: u16 = 0x4000;

#[test]
fn t17_identifications_count_or_stay() {
    reversible(&with_ids(DF, &[8, 9]), &[200]);
    let (output, _) = reversible(&with_ids(DF, &[8, 8]), &[200]);
    assert!(merged(&output[0].1).gso.unwrap().fixed_id());
    let (output, _) = reversible(&with_ids(0, &[8, 9]), &[200]);
    assert!(!merged(&output[0].1).gso.unwrap().fixed_id());
    reversible(&with_ids(DF, &[0xFFFF, 0, 1]), &[300]);
    reversible(&with_ids(DF, &[0, 0, 0]), &[300]);
}

/// Linux merges these since 6.18; RFC 6864 forbids sending them.
#[test]
fn t18_identifications_that_stay_need_df() {
    reversible(&with_ids(0, &[8, 8]), &[100, 100]);
}

#[test]
fn t18_identifications_that_stay_can_be_refused() {
    for (ids, expected) in [([8, 8], &[100, 100][..]), ([8, 9], &[200])] {
        let config = Config {
            fixed_id: false,
            ..config(Semantics::Reversible, LinkType::RawIp)
        };
        let input = with_ids(DF, &ids).iter().map(Frame::verified).collect();
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_eq!(lengths(&config, &output), expected);
    }
}

#[test]
fn t19_the_second_decides_about_identifications() {
    reversible(&with_ids(DF, &[8, 9, 9]), &[200, 100]);
    reversible(&with_ids(DF, &[8, 8, 9]), &[200, 100]);
    reversible(&with_ids(DF, &[8, 9, 8]), &[200, 100]);
    reversible(&with_ids(DF, &[8, 7]), &[100, 100]);
    reversible(&with_ids(DF, &[8, 10]), &[100, 100]);
}

/// 16 packets, one that fills up to 65 535 with `beyond`, and one more that does not follow.
fn large(first: &Frame, header_bytes: usize, beyond: usize) -> Vec<Frame> {
    const MSS: usize = 4056;
    let rest = 65_535 - header_bytes - 16 * MSS + beyond;
    let mut sizes = vec![MSS; 16];
    sizes.extend([rest, rest]);
    let mut frames = train(first, &sizes);
    frames[17].sequence += MSS as u32;
    frames
}

#[test]
fn t20_up_to_65535_bytes_with_the_ip_header() {
    reversible(&large(&tcp4(0), 40, 0), &[65_495, 599]);
    // The length field of IPv6 does not count its header; the limit of Linux does.
    reversible(&large(&tcp6(0), 60, 0), &[65_475, 579]);
}

#[test]
fn t21_and_not_a_byte_more() {
    reversible(&large(&tcp4(0), 40, 1), &[64_896, 600, 600]);
    let (output, _) = reversible(&large(&tcp6(0), 60, 1), &[64_896, 580, 580]);
    assert_eq!(merged(&output[0].1).reason, FlushReason::Full);
}

#[test]
fn t21_a_limit_of_the_configuration() {
    for (max_bytes, expected) in [
        (340, &[300][..]),
        (339, &[200, 100]),
        (140, &[100, 100, 100]),
        (139, &[100, 100, 100]),
        (0, &[100, 100, 100]),
    ] {
        let config = Config {
            max_bytes,
            ..config(Semantics::Reversible, LinkType::RawIp)
        };
        let frames = train(&tcp4(0), &[100; 3]);
        let input = frames.iter().map(Frame::verified).collect();
        let (output, stats) = run(config, vec![Step::Burst(input)]);
        assert_eq!(lengths(&config, &output), expected);
        let too_long = if max_bytes < 140 { 3 } else { 0 };
        assert_eq!(stats.not_taken.get(NotTaken::Length), too_long);
    }
}

#[test]
fn t22_window() {
    for mut frames in both(&[100, 100]) {
        frames[1].window = 1001;
        reversible(&frames, &[100, 100]);
    }
}

/// In Linux nine flows in one bucket of eight merge nothing. Here the table has the configured
/// number of entries, and is then the same: the oldest is evicted.
#[test]
fn t23_a_table_that_is_too_small_thrashes_and_one_that_is_not_does_not() {
    for (flows, packets, evicted) in [(8, 18, 10), (9, 9, 0)] {
        let config = Config {
            mode: Mode::Hash,
            ..Config::new(Semantics::Reversible, LinkType::RawIp, flows)
        };
        let mut input = vec![];
        for round in 0..2 {
            for flow in 0..9 {
                let mut frame = train(&tcp4(0), &[100, 100])[round].clone();
                frame.ports.0 += flow;
                input.push(frame.verified());
            }
        }
        let (output, stats) = run(config, vec![Step::Burst(input)]);
        assert_eq!(output.len(), packets);
        assert_eq!(stats.flushes.get(FlushReason::Evict), evicted);
    }
}

#[test]
fn t24_vlan_tags_have_to_be_equal() {
    let tagged = |vlans: [Vec<(u16, u16)>; 2]| {
        let mut frames = train(&tcp4(0).ethernet(), &[100, 100]);
        for (frame, vlans) in frames.iter_mut().zip(vlans) {
            frame.vlans = vlans;
        }
        frames
    };
    let tag = |control| vec![(0x8100, control)];
    reversible(&tagged([tag(10), tag(10)]), &[200]);
    reversible(&tagged([tag(10), tag(10 | 1 << 13)]), &[100, 100]);
    reversible(&tagged([tag(10), tag(10 | 1 << 12)]), &[100, 100]);
    reversible(&tagged([tag(10), tag(11)]), &[100, 100]);
    reversible(&tagged([tag(10), vec![]]), &[100, 100]);
    reversible(&tagged([tag(10), vec![(0x88a8, 10)]]), &[100, 100]);
    let stacked = |inner| vec![(0x88a8, 5), (0x8100, inner)];
    reversible(&tagged([stacked(10), stacked(10)]), &[200]);
    reversible(&tagged([stacked(10), stacked(11)]), &[100, 100]);
    reversible(&tagged([stacked(10), tag(10)]), &[100, 100]);
}

#[test]
fn t24_a_tag_beside_the_packet_has_to_be_equal() {
    for (asides, expected) in [([7, 7], &[200][..]), ([7, 8], &[100, 100])] {
        let config = config(Semantics::Reversible, LinkType::RawIp);
        let frames = train(&tcp4(0), &[100, 100]);
        let input = frames.iter().zip(asides).map(|(frame, aside)| Wire {
            aside,
            ..frame.verified()
        });
        let (output, _) = run(config, vec![Step::Burst(input.collect())]);
        assert_eq!(lengths(&config, &output), expected);
    }
}

#[test]
fn t25_another_acknowledgement() {
    for mut frames in both(&[100, 100, 100]) {
        frames[1].acknowledgement += 1;
        frames[2].acknowledgement += 1;
        reversible(&frames, &[100, 200]);
    }
}

#[test]
fn t26_fin_is_the_last() {
    for mut frames in both(&[100; 5]) {
        frames[4].flags |= FIN;
        let (output, _) = reversible(&frames, &[500]);
        assert_eq!(merged(&output[0].1).reason, FlushReason::Flags);
        assert_eq!(output[0].0.bytes[frames[0].transport() + 13], ACK | FIN);
    }
}

#[test]
fn t26_fin_without_payload_is_not_merged() {
    for mut frames in both(&[100, 100, 0]) {
        frames[2].flags |= FIN;
        reversible(&frames, &[200, 0]);
    }
}

#[test]
fn t27_sequence_numbers_wrap() {
    for first in [tcp4(0), tcp6(0)] {
        let first = Frame {
            sequence: 0xFFFF_FFCE,
            ..first
        };
        let frames = train(&first, &[100, 100]);
        assert_eq!(frames[1].sequence, 0x32);
        reversible(&frames, &[200]);
    }
}

#[test]
fn echo_bits_have_to_be_equal_and_are_kept() {
    for mut frames in both(&[100, 100, 100]) {
        frames[1].flags |= ECE;
        frames[2].flags |= ECE;
        reversible(&frames, &[100, 200]);
        frames[0].flags |= ECE;
        reversible(&frames, &[300]);
        frames[2].reserved = 1;
        reversible(&frames, &[200, 100]);
    }
}

#[test]
fn nothing_starts_with_what_ends_it() {
    for (flags, reason) in [
        (PSH, NotTaken::Push),
        (FIN, NotTaken::Flags),
        (FIN | PSH, NotTaken::Flags),
    ] {
        for mut frames in both(&[100, 100, 100]) {
            frames[0].flags |= flags;
            let (output, _) = reversible(&frames, &[100, 200]);
            assert_eq!(output[0].1, Done::Passed(reason));
        }
    }
}

#[test]
fn fewer_bytes_than_a_segment_may_have_are_not_held() {
    for frames in both(&[7, 7]) {
        let (output, _) = reversible(&frames, &[7, 7]);
        assert_eq!(output[0].1, Done::Passed(NotTaken::Payload));
    }
    for frames in both(&[8, 8, 1]) {
        reversible(&frames, &[17]);
    }
}

/// A merged packet with more pieces than any segmenter accepts would be lost. The smallest payloads
/// fill a packet earlier.
#[test]
fn no_more_pieces_than_can_be_cut() {
    for frames in both(&vec![8; 8192]) {
        let headers = if frames[0].ipv6 { 60 } else { 40 };
        let fit = (65_535 - headers) / 8;
        // Sorting ends a batch earlier.
        let config = Config {
            mode: Mode::Hash,
            ..config(Semantics::Reversible, LinkType::RawIp)
        };
        let input = frames.iter().map(Frame::partial).collect();
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_eq!(lengths(&config, &output), [fit * 8, (8192 - fit) * 8]);
        let first = merged(&output[0].1);
        assert_eq!(first.reason, FlushReason::Full);
        assert!(u32::from(first.pieces) <= crate::segment::TCP_SEGMENTS_MAX);
    }
}

#[test]
fn padding_is_not_restored_so_it_is_not_merged() {
    for mut frames in both(&[100, 100, 100, 100]) {
        for frame in &mut frames {
            frame.link = LinkType::Ethernet;
        }
        frames[2].padding = 6;
        let config = config(Semantics::Reversible, LinkType::Ethernet);
        let input = frames.iter().map(Frame::verified).collect();
        let (output, stats) = run(config, vec![Step::Burst(input)]);
        assert_eq!(lengths(&config, &output), [200, 100, 100]);
        assert_eq!(output[1].1, Done::Passed(NotTaken::Padding));
        assert_eq!(stats.flushes.get(FlushReason::Refused), 1);
    }
}

#[test]
fn a_gso_packet_pushes_out_what_is_held_and_is_not_merged() {
    let mut frames = train(&tcp4(0), &[100, 300, 100]);
    frames[2].sequence = 5;
    let mut input: Vec<Wire> = frames.iter().map(Frame::partial).collect();
    input[1].gso = Some(Gso::new(GsoKind::TcpV4, 100.try_into().unwrap()));
    let config = config(Semantics::Reversible, LinkType::RawIp);
    let (output, _) = run(config, vec![Step::Burst(input)]);
    check_order(&output);
    assert_eq!(output[0].1, Done::Alone(FlushReason::Refused));
    assert_eq!(output[1].1, Done::Passed(NotTaken::Gso));
}

#[test]
fn what_is_switched_off_is_not_held() {
    for semantics in [Semantics::Reversible, Semantics::Stream] {
        let config = Config {
            tcp: false,
            ..config(semantics, LinkType::RawIp)
        };
        let frames = train(&tcp4(0), &[100, 100]);
        let input = frames.iter().map(Frame::verified).collect();
        let (_, stats) = run(config, vec![Step::Burst(input)]);
        assert_eq!(stats.not_taken.get(NotTaken::Off), 2);
    }
}
