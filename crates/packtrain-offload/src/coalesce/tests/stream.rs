//! TCP as `tcp_lro` in FreeBSD merges it, case by case. Tests of a deliberate difference say so.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::test_packets::frame::{Field, Frame, tcp4, tcp6, timestamps, train};
use crate::test_packets::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

const MSS: usize = 1448;

/// With timestamps, and acknowledgements, windows and timestamps that go on.
fn data(first: &Frame, sizes: &[usize]) -> Vec<Frame> {
    let mut frames = train(first, sizes);
    for (n, frame) in (0_u32..).zip(&mut frames) {
        frame.options = timestamps(5000 + n, 700 + n);
        frame.acknowledgement += n * 10;
        frame.window += n as u16;
    }
    frames
}

fn both(sizes: &[usize]) -> [Vec<Frame>; 2] {
    [data(&tcp4(0), sizes), data(&tcp6(0), sizes)]
}

/// Pure ACKs of one flow.
fn acks(numbers: &[u32]) -> Vec<Frame> {
    let with = |&acknowledgement| Frame {
        acknowledgement,
        options: timestamps(1, 1),
        ..tcp4(0)
    };
    numbers.iter().map(with).collect()
}

fn header<'a>(frame: &Frame, wire: &'a Wire) -> &'a [u8] {
    &wire.bytes[frame.transport()..]
}

fn acknowledgement(wire: &Wire, frame: &Frame) -> u32 {
    let header = header(frame, wire);
    u32::from_be_bytes([header[8], header[9], header[10], header[11]])
}

fn window(wire: &Wire, frame: &Frame) -> u16 {
    u16::from_be_bytes([header(frame, wire)[14], header(frame, wire)[15]])
}

#[test]
fn b1_ten_segments_become_one_with_the_fields_of_the_last() {
    for frames in both(&[MSS; 10]) {
        let (output, stats) = streamed(&frames, &[14_480]);
        let (wire, done) = &output[0];
        assert_eq!(merged(done).pieces, 10);
        assert_eq!(merged(done).gso.unwrap().size.get(), 1448);
        let last = &frames[9];
        assert_eq!(acknowledgement(wire, last), last.acknowledgement);
        assert_eq!(window(wire, last), last.window);
        assert_eq!(header(last, wire)[20..32], last.options);
        assert_eq!((stats.packets, stats.emitted, stats.supers), (10, 1, 1));
    }
}

#[test]
fn b2_a_gap_or_an_overlap() {
    for step in [1, 1448, -1, -1448] {
        for mut frames in both(&[MSS; 6]) {
            for frame in &mut frames[3..] {
                frame.sequence = frame.sequence.wrapping_add_signed(step);
            }
            let (output, _) = streamed(&frames, &[4344, 4344]);
            assert_eq!(merged(&output[0].1).reason, FlushReason::Order);
        }
    }
}

#[test]
fn b3_65280_bytes_at_most() {
    for frames in both(&[MSS; 46]) {
        let (output, _) = streamed(&frames, &[65_160, 1448]);
        assert_eq!(merged(&output[0].1).reason, FlushReason::Full);
    }
}

#[test]
fn b3_exactly_as_much_as_fits() {
    for (first, room) in [(tcp4(0), 68), (tcp6(0), 48)] {
        let sizes = |last: usize| [vec![MSS; 45], vec![last]].concat();
        streamed(&data(&first, &sizes(room)), &[65_160 + room as u32]);
        let expected = [65_160, room as u32 + 1];
        streamed(&data(&first, &sizes(room + 1)), &expected);
    }
}

/// FreeBSD does not count the ACKs that it merges; they are counted here.
#[test]
fn b4_pure_acks_become_one() {
    let mut frames = acks(&[100, 200, 300]);
    frames[2].window = 777;
    let (output, stats) = streamed(&frames, &[0]);
    let (wire, done) = &output[0];
    assert_eq!(acknowledgement(wire, &frames[0]), 300);
    assert_eq!(window(wire, &frames[0]), 777);
    let merged = merged(done);
    assert_eq!((merged.pieces, merged.absorbed), (1, 2));
    assert_eq!(merged.gso, None);
    assert_eq!(stats.absorbed, 2);
}

#[test]
fn b4_repeated_acks_all_come_out() {
    let (output, _) = streamed(&acks(&[300, 300, 300]), &[0, 0, 0]);
    for (_, done) in output {
        assert!(matches!(done, Done::Alone(_)));
    }
}

/// FreeBSD merges the last repeated one into the next that acknowledges more, so that the sender
/// counts one less.
#[test]
fn b4_a_repeated_ack_does_not_vanish_in_what_follows() {
    let (output, _) = streamed(&acks(&[100, 300, 300, 300, 400, 500]), &[0, 0, 0, 0]);
    let numbers: Vec<u32> = output
        .iter()
        .map(|(wire, _)| acknowledgement(wire, &tcp4(0)))
        .collect();
    assert_eq!(numbers, [300, 300, 300, 500]);
    // Nor in data with the same acknowledgement.
    let mut frames = acks(&[300, 300, 300, 300]);
    frames[2].payload = vec![1; 100];
    frames[3].payload = vec![2; 100];
    frames[3].sequence += 100;
    streamed(&frames, &[0, 0, 200]);
}

#[test]
fn b4_a_repetition_of_what_data_said_comes_out() {
    let mut frames = data(&tcp4(0), &[MSS, MSS, 0, MSS]);
    for frame in &mut frames {
        frame.acknowledgement = 5;
        frame.window = 9;
    }
    streamed(&frames, &[2896, 0, 1448]);
}

#[test]
fn b5_a_window_that_opens() {
    let mut frames = acks(&[100, 100]);
    frames[1].window += 1;
    let (output, stats) = streamed(&frames, &[0]);
    assert_eq!(window(&output[0].0, &frames[0]), frames[1].window);
    assert_eq!(stats.absorbed, 1);
}

/// FreeBSD frees it without a trace.
#[test]
fn b5_a_window_that_shrinks_is_passed_on() {
    let mut frames = acks(&[100, 100]);
    frames[1].window -= 1;
    let (output, _) = streamed(&frames, &[0, 0]);
    assert_eq!(window(&output[1].0, &frames[0]), frames[1].window);
}

/// FreeBSD frees it, and counts nothing.
#[test]
fn b5_an_older_ack_is_passed_on() {
    let (output, _) = streamed(&acks(&[300, 200]), &[0, 0]);
    assert_eq!(acknowledgement(&output[1].0, &tcp4(0)), 200);
    let (output, _) = streamed(&acks(&[0xFFFF_FF00, 0x100]), &[0]);
    assert_eq!(acknowledgement(&output[0].0, &tcp4(0)), 0x100);
}

#[test]
fn b6_fin_and_the_like_are_never_merged() {
    for flag in [FIN, RST, URG, CWR, ECE, SYN] {
        for mut frames in both(&[MSS; 4]) {
            frames[2].flags |= flag;
            let (output, _) = streamed(&frames, &[2896, 1448, 1448]);
            assert_eq!(merged(&output[0].1).reason, FlushReason::Flags);
            assert_eq!(output[1].1, Done::Passed(NotTaken::Flags));
        }
    }
    for mut frames in both(&[MSS; 4]) {
        frames[2].reserved = 1;
        let (output, _) = streamed(&frames, &[2896, 1448, 1448]);
        assert_eq!(output[1].1, Done::Passed(NotTaken::Flags));
    }
    for mut frames in both(&[MSS; 4]) {
        frames[2].flags = 0;
        streamed(&frames, &[2896, 1448, 1448]);
    }
}

#[test]
fn b7_timestamps_do_not_go_back() {
    for mut frames in both(&[MSS, MSS]) {
        frames[0].options = timestamps(5000, 1);
        frames[1].options = timestamps(4999, 1);
        let (output, _) = streamed(&frames, &[1448, 1448]);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Order));
        frames[0].options = timestamps(0xFFFF_FFFF, 1);
        frames[1].options = timestamps(0, 1);
        streamed(&frames, &[2896]);
    }
}

/// FreeBSD refuses the flows that find no entry; here the oldest is evicted, in hash mode, and the
/// sorted mode has the same result.
#[test]
fn b8_more_flows_than_entries() {
    for (mode, packets) in [(Mode::Hash, 48), (Mode::Sorted, 12)] {
        let config = Config {
            mode,
            ..Config::new(Semantics::Stream, LinkType::RawIp, 8)
        };
        let mut input = vec![];
        for round in 0..4 {
            for flow in 0..12 {
                let mut frame = data(&tcp4(0), &[MSS; 4])[round].clone();
                frame.ports.0 += flow;
                input.push(frame.verified());
            }
        }
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_eq!(output.len(), packets);
    }
}

/// FreeBSD ignores it, so that all marks but the first one's vanish.
#[test]
fn b10_a_congestion_mark_is_not_lost() {
    for mut frames in both(&[MSS; 3]) {
        for frame in &mut frames {
            frame.tos = 2;
        }
        frames[1].tos = 3;
        let (output, _) = streamed(&frames, &[1448, 1448, 1448]);
        assert_eq!(output[0].1, Done::Alone(FlushReason::Mismatch));
    }
}

#[test]
fn b11_padding_is_cut_off() {
    let mut frames = acks(&[100, 200]);
    for frame in &mut frames {
        frame.link = LinkType::Ethernet;
        frame.padding = 6;
    }
    let (output, _) = streamed(&frames, &[0]);
    let bare = Frame {
        padding: 0,
        ..frames[0].clone()
    };
    assert_eq!(output[0].0.bytes.len(), bare.bytes().len());
    let mut frames = data(&tcp4(0).ethernet(), &[10, 10, 10]);
    for frame in &mut frames {
        frame.padding = 4;
    }
    streamed(&frames, &[30]);
    // And off one that stays alone.
    let (output, _) = streamed(&frames[..1], &[10]);
    let bare = Frame {
        padding: 0,
        ..frames[0].clone()
    };
    assert_eq!(output[0].0.bytes.len(), bare.bytes().len());
}

#[test]
fn b11_a_datagram_that_is_not_all_there_is_passed_on() {
    let frames = data(&tcp4(0), &[100, 100]);
    for state in [Frame::unverified, Frame::verified] {
        let mut input: Vec<Wire> = frames.iter().map(state).collect();
        input[0].bytes.pop();
        let config = config(Semantics::Stream, LinkType::RawIp);
        let (output, _) = run(config, vec![Step::Burst(input)]);
        assert_eq!(output[0].1, Done::Passed(NotTaken::Malformed));
    }
}

/// FreeBSD adds sums of odd lengths as they are, which is wrong, and hidden by a flag.
#[test]
fn b12_odd_lengths() {
    for sizes in [
        &[1447; 4][..],
        &[1, 2, 3, 4, 5, 6, 7],
        &[1447, 1448, 1, 1447],
    ] {
        for frames in both(sizes) {
            // `run` verifies the checksum of what comes out.
            streamed(&frames, &[sizes.iter().sum::<usize>() as u32]);
        }
    }
}

#[test]
fn b13_a_wrong_ip_checksum_is_passed_on_and_counted() {
    let mut frames = data(&tcp4(0), &[MSS; 3]);
    frames[1].ip_checksum = Field::Wrong;
    let (output, stats) = streamed(&frames, &[1448, 1448, 1448]);
    assert_eq!(output[1].1, Done::Passed(NotTaken::BadChecksum));
    assert_eq!(stats.bad_checksums, 1);
}

#[test]
fn b13_a_wrong_tcp_checksum_is_passed_on_and_counted() {
    for mut frames in both(&[MSS; 3]) {
        frames[1].checksum = Field::Wrong;
        let config = config(Semantics::Stream, LinkType::RawIp);
        let input = frames.iter().map(Frame::unverified).collect();
        let (output, stats) = run(config, vec![Step::Burst(input)]);
        assert_eq!(lengths(&config, &output), [1448, 1448, 1448]);
        check_order(&output);
        assert_eq!(output[1].1, Done::Passed(NotTaken::BadChecksum));
        assert_eq!(stats.bad_checksums, 1);
    }
}

const MS: u64 = 1_000_000;

#[test]
fn b15_what_is_held_too_long_is_handed_on() {
    let mut young = tcp4(100);
    young.ports.0 += 1;
    let config = Config {
        mode: Mode::Hash,
        ..config(Semantics::Stream, LinkType::RawIp)
    };
    let steps = vec![
        Step::Clock(0),
        Step::Push(tcp4(100).verified()),
        Step::Clock(2 * MS),
        Step::Push(young.verified()),
        Step::Age(9 * MS, 10 * MS),
        Step::Age(11 * MS, 10 * MS),
    ];
    let (output, stats) = run(config, steps);
    assert_eq!(output[0].0.ids, [0]);
    assert_eq!(output[0].1, Done::Alone(FlushReason::Inactive));
    assert_eq!(output[1].1, Done::Alone(FlushReason::Timeout));
    assert_eq!(stats.flushes.get(FlushReason::Inactive), 1);
}

/// Counted from the first packet: a flow that never pauses is not held forever.
#[test]
fn b15_the_age_is_that_of_the_first_packet() {
    let config = Config {
        mode: Mode::Hash,
        ..config(Semantics::Stream, LinkType::RawIp)
    };
    let mut steps = vec![];
    for (n, frame) in (0..).zip(data(&tcp4(0), &[100; 4])) {
        steps.push(Step::Clock(n * 3 * MS));
        steps.push(Step::Push(frame.verified()));
        steps.push(Step::Age(n * 3 * MS, 5 * MS));
    }
    let (output, _) = run(config, steps);
    assert_eq!(lengths(&config, &output), [300, 100]);
}

/// The clock is kept in 32 bits of 1.024 µs.
#[test]
fn b15_the_clock_may_wrap() {
    let wrap = 1 << 42;
    let config = Config {
        mode: Mode::Hash,
        ..config(Semantics::Stream, LinkType::RawIp)
    };
    let steps = vec![
        Step::Clock(wrap - 5 * MS),
        Step::Push(tcp4(100).verified()),
        Step::Age(wrap + MS, 10 * MS),
        Step::Age(wrap + 6 * MS, 10 * MS),
    ];
    let (output, stats) = run(config, steps);
    assert_eq!(output.len(), 1);
    assert_eq!(stats.flushes.get(FlushReason::Inactive), 1);
    let steps = vec![
        Step::Clock(u64::MAX),
        Step::Push(tcp4(100).verified()),
        Step::Age(u64::MAX, u64::MAX),
        Step::Age(0, 0),
    ];
    let (_, stats) = run(config, steps);
    assert_eq!(stats.flushes.get(FlushReason::Inactive), 1);
}

#[test]
fn b16_what_it_does_not_support_keeps_its_place() {
    let mut frames = data(&tcp6(0), &[MSS; 3]);
    frames[1].extensions = vec![(0, vec![0, 1, 4, 0, 0, 0, 0])];
    let (output, _) = streamed(&frames, &[1448, 1448, 1448]);
    assert_eq!(output[1].1, Done::Passed(NotTaken::Options));
    let mut frames = data(&tcp4(0), &[MSS; 3]);
    frames[1].ip_options = vec![1, 1, 1, 0];
    let (output, _) = streamed(&frames, &[1448, 1448, 1448]);
    assert_eq!(output[1].1, Done::Passed(NotTaken::Options));
    let mut frames = data(&tcp4(0), &[MSS; 3]);
    frames[1].fragment = 0x2000;
    let config = config(Semantics::Stream, LinkType::RawIp);
    let input = frames.iter().map(Frame::verified).collect();
    let (output, _) = run(config, vec![Step::Burst(input)]);
    check_order(&output);
    assert_eq!(output[1].1, Done::Passed(NotTaken::Fragment));
}

/// Whatever age that is, nothing is as old.
#[test]
fn b15_ages_beyond_those_that_are_told_apart() {
    for age in [1 << 42, 1 << 43, u64::MAX] {
        let steps = vec![Step::Push(tcp4(100).verified()), Step::Age(MS, age)];
        let (_, stats) = run(config(Semantics::Stream, LinkType::RawIp), steps);
        assert_eq!(stats.flushes.get(FlushReason::Inactive), 0, "{age}");
    }
}

/// `age` or longer, in units of 1.024 µs.
#[test]
fn b15_what_is_exactly_as_old_is_handed_on() {
    for (age, expected) in [(1 << 20, 1), ((1 << 20) + 1024, 0)] {
        let steps = vec![Step::Push(tcp4(100).verified()), Step::Age(1 << 20, age)];
        let (_, stats) = run(config(Semantics::Stream, LinkType::RawIp), steps);
        assert_eq!(stats.flushes.get(FlushReason::Inactive), expected);
    }
}

/// The first packet has timestamps, the second something else as long.
#[test]
fn options_have_to_stay_timestamps() {
    let mut frames = data(&tcp4(0), &[MSS; 3]);
    frames[1].options[2] = 30;
    streamed(&frames, &[1448, 1448, 1448]);
}

#[test]
fn options_other_than_timestamps_are_passed_on() {
    for options in [
        vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        vec![8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1],
        vec![1, 1, 1, 1],
        [timestamps(1, 2), vec![1, 1, 1, 1]].concat(),
    ] {
        let mut frames = data(&tcp4(0), &[MSS; 3]);
        for frame in &mut frames {
            frame.options.clone_from(&options);
        }
        let (output, _) = streamed(&frames, &[1448, 1448, 1448]);
        for (_, done) in output {
            assert_eq!(done, Done::Passed(NotTaken::Options));
        }
    }
}

#[test]
fn without_options_as_well() {
    let frames: Vec<Frame> = data(&tcp4(0), &[MSS; 3])
        .into_iter()
        .map(|frame| Frame {
            options: vec![],
            ..frame
        })
        .collect();
    streamed(&frames, &[4344]);
}

/// FreeBSD loses it, so that the receiver waits.
#[test]
fn psh_is_carried_and_ends_nothing() {
    for at in 0..3 {
        for mut frames in both(&[MSS; 3]) {
            frames[at].flags |= PSH;
            let (output, _) = streamed(&frames, &[4344]);
            assert_eq!(header(&frames[0], &output[0].0)[13], ACK | PSH);
        }
    }
}

#[test]
fn sizes_need_not_be_equal() {
    let frames = data(&tcp4(0), &[100, 1448, 7, 1000]);
    let (output, _) = streamed(&frames, &[2555]);
    assert_eq!(merged(&output[0].1).gso.unwrap().size.get(), 1448);
}

/// Every segmenter can cut the merged packet.
#[test]
fn payloads_too_small_to_be_segments() {
    let (output, _) = streamed(&data(&tcp4(0), &[1; 8]), &[8]);
    assert_eq!(merged(&output[0].1).gso, None);
    assert_eq!(merged(&output[0].1).pieces, 8);
    let (output, _) = streamed(&data(&tcp4(0), &[1; 20]), &[20]);
    assert_eq!(merged(&output[0].1).gso.unwrap().size.get(), 8);
    let sizes = vec![8; 3000];
    let frames = train(&tcp4(0), &sizes);
    streamed(&frames, &[24_000]);
}

#[test]
fn acks_and_data_together() {
    // An ACK before, between and after data.
    for sizes in [[0, 100, 100], [100, 0, 100], [100, 100, 0]] {
        for frames in both(&sizes) {
            let (output, stats) = streamed(&frames, &[200]);
            let merged = merged(&output[0].1);
            assert_eq!((merged.pieces, merged.absorbed), (2, 1));
            assert_eq!(stats.absorbed, 1);
        }
    }
    for frames in both(&[0, 0, 100, 0]) {
        let (output, _) = streamed(&frames, &[100]);
        let merged = merged(&output[0].1);
        assert_eq!((merged.pieces, merged.absorbed), (1, 3));
        assert_eq!(merged.gso, None);
    }
}

/// Segments of these sizes, with ascending acknowledgements; what leaves before a flush, and after.
fn limited(ack_limit: u16, sizes: &[usize]) -> (Output, Stats, usize) {
    let config = Config {
        ack_limit,
        mode: Mode::Hash,
        ..config(Semantics::Stream, LinkType::RawIp)
    };
    let mut frames = train(&tcp4(0), sizes);
    for (frame, number) in frames.iter_mut().zip(0..) {
        frame.acknowledgement += number;
    }
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let mut out = vec![];
    let wires = frames.iter().map(Frame::verified);
    coalescer.push_burst(0, wires, &mut |wire, done| out.push((wire, *done)));
    let early = out.len();
    coalescer.flush(&mut |wire, done| out.push((wire, *done)));
    (out, *coalescer.stats(), early)
}

/// The last ACK of the limit hands the packet on: nothing delays it further.
#[test]
fn an_ack_limit_hands_on_the_last_ack_that_it_permits() {
    for (ack_limit, expected, early) in [(2, 3, 3), (4, 2, 1), (6, 1, 1), (7, 1, 0)] {
        let (output, stats, left) = limited(ack_limit, &[0; 6]);
        assert_eq!((output.len(), left), (expected, early), "{ack_limit}");
        let full = stats.flushes.get(FlushReason::Full);
        assert_eq!(full, early as u64, "{ack_limit}");
    }
}

/// The first of the alternatives that FreeBSD tried before it flushed inactive entries.
#[test]
fn an_ack_limit_of_one_holds_no_pure_ack() {
    for ack_limit in [0, 1] {
        let (output, stats, left) = limited(ack_limit, &[0; 6]);
        assert_eq!((output.len(), left), (6, 6));
        assert_eq!(stats.not_taken.get(NotTaken::Payload), 6);
        // Data before and after the ACK is merged, and keeps its order.
        let (output, ..) = limited(ack_limit, &[100, 100, 0, 100, 100]);
        let sizes: Vec<_> = output.iter().map(|(wire, _)| wire.bytes.len()).collect();
        assert_eq!(sizes, [240, 40, 240]);
    }
}

/// The limit of data is its length.
#[test]
fn an_ack_limit_does_not_limit_data() {
    let (output, ..) = limited(2, &[100; 6]);
    assert_eq!(output.len(), 1);
    // An ACK behind as much data as the limit is a packet of its own.
    let (output, ..) = limited(2, &[100, 100, 0, 0, 100]);
    let sizes: Vec<_> = output.iter().map(|(wire, _)| wire.bytes.len()).collect();
    assert_eq!(sizes, [240, 40, 140]);
}

/// The count of one entry has 16 bits.
#[test]
fn more_acks_than_can_be_counted_in_one() {
    let config = Config {
        mode: Mode::Hash,
        ..config(Semantics::Stream, LinkType::RawIp)
    };
    let count = if cfg!(miri) { 300 } else { 70_000 };
    let mut coalescer = Coalescer::new(config, Owned::for_config(&config)).unwrap();
    let mut out = vec![];
    for number in 0..count {
        let wire = acks(&[number])[0].verified();
        coalescer.push(0, wire, &mut |wire, done| out.push((wire, *done)));
    }
    coalescer.flush(&mut |wire, done| out.push((wire, *done)));
    let last = &out.last().unwrap().0;
    assert_eq!(acknowledgement(last, &tcp4(0)), count - 1);
    assert_eq!(out.len(), if cfg!(miri) { 1 } else { 2 });
}
