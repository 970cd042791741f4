//! Merging, its exceptions, and its reversal.

use super::*;
use packtrain_offload::coalesce::{FlushReason, Stats};
use proptest::prelude::*;
use std::collections::HashMap;

#[test]
fn original_is_the_same_file() {
    for format in [NANO, MICRO, Format::PcapNg] {
        let mut packets = mixture();
        if format == MICRO {
            for packet in &mut packets {
                packet.at = packet.at / 1000 * 1000;
            }
        }
        let input = file(format, &packets);
        for mode in [Mode::Hash, Mode::Sorted, Mode::Auto] {
            for flows in [1, 2, 1024] {
                let options = Options {
                    mode,
                    limits: Limits {
                        flows: Some(flows),
                        ..Limits::default()
                    },
                    segment: Segment::Original,
                    ..Options::default()
                };
                let (output, report) = replayed(&input, options);
                assert!(output == input, "{format:?} {options:?}");
                assert!(report.restored > 0 || flows == 1, "{report:?}");
                assert_eq!(report.received, packets.len() as u64);
            }
        }
    }
}

/// The wire packets of each packet of a flow in order of arrival, 10 us apart, replayed in one
/// window, and the reasons for which they were passed on.
fn in_one_window(limits: Limits, mode: Mode) -> (Vec<u64>, Stats) {
    let packets = train(1, 60, 0, 10_000, 0);
    let options = Options {
        limits,
        mode,
        hold_ns: 1_000_000_000,
        ..Options::default()
    };
    let (output, report) = replayed(&file(Format::PcapNg, &packets), options);
    let payload = |data: &Vec<u8>| checked_payload(data).len() as u64 / 1000;
    let out = parsed(&output)
        .iter()
        .map(|packet| payload(&packet.data))
        .collect();
    (out, report.interfaces[0].stats)
}

/// The settings of a port have the same effect on a capture.
#[test]
fn limits_end_windows_or_pass_packets_on() {
    let never = Limits::default();
    for mode in [Mode::Hash, Mode::Sorted] {
        let (out, stats) = in_one_window(never, mode);
        assert_eq!(out, [60], "{mode:?}");
        assert_eq!(stats.flushes.get(FlushReason::Inactive), 0);
        for (limits, expected) in [
            (
                Limits {
                    bytes: Some(20_040),
                    ..never
                },
                vec![20; 3],
            ),
            (
                Limits {
                    packets: Some(24),
                    ..never
                },
                vec![25, 25, 10],
            ),
            (
                Limits {
                    window_packets: Some(20),
                    ..never
                },
                vec![20; 3],
            ),
            (
                Limits {
                    inactive_ns: Some(200_000),
                    ..never
                },
                vec![20; 3],
            ),
        ] {
            if limits.packets.is_some() && mode == Mode::Sorted {
                // As many packets are sorted at once.
                assert_eq!(in_one_window(limits, mode).0, [24, 24, 12]);
                continue;
            }
            assert_eq!(
                in_one_window(limits, mode).0,
                expected,
                "{mode:?} {limits:?}"
            );
        }
    }
    let old = Limits {
        inactive_ns: Some(200_000),
        ..never
    };
    let (_, stats) = in_one_window(old, Mode::Hash);
    assert_eq!(stats.flushes.get(FlushReason::Inactive), 2);
}

#[test]
fn merged_records_have_the_first_time_and_right_checksums() {
    let packets = train(1, 10, 77_000, 10, 2);
    let (output, report) = replayed(&file(Format::PcapNg, &packets), Options::default());
    let out = parsed(&output);
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].at, out[0].interface), (77_000, 2));
    assert_eq!(out[0].original as usize, out[0].data.len());
    assert_eq!(checked_payload(&out[0].data), vec![0x5a; 10_000]);
    let seen = &report.interfaces[2];
    assert_eq!((seen.frames, seen.records, seen.flows()), (10, 1, 1));
    assert_eq!(seen.name.as_deref(), Some("right"));
    assert_eq!(seen.histogram, [0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(report.transmitted, 10);
}

/// Packets of a private link type are parsed only with a setting.
#[test]
fn a_private_link_type_is_parsed_only_with_a_setting() {
    let interface = Interface {
        link: LinkCode::USER0,
        snaplen: 0,
        name: None,
    };
    let headers: [(LinkType, &[u8]); 2] =
        [(LinkType::Ipoib, &[8, 0, 0, 0]), (LinkType::RawIp, &[])];
    for (link, header) in headers {
        let mut writer = Writer::new(Vec::new(), NANO, &[interface]).expect("a writer");
        for packet in train(1, 10, 1_000, 10, 0) {
            let data = [header, &packet.data[14..]].concat();
            let written = writer.write(0, packet.at, data.len() as u32, [&data]);
            written.expect("a record");
        }
        let input = writer.finish().expect("the end");
        for user0 in [None, Some(LinkType::Ipoib), Some(LinkType::RawIp)] {
            let options = Options {
                user0,
                ..Options::default()
            };
            let (output, report) = replayed(&input, options);
            let seen = &report.interfaces[0];
            let merged = user0 == Some(link);
            assert_eq!(seen.other_link, if user0.is_none() { 10 } else { 0 });
            assert_eq!(
                seen.emitted(),
                if merged { 1 } else { 10 },
                "{link:?}, {user0:?}"
            );
            assert!(merged || parsed(&output) == parsed(&input));
        }
    }
}

#[test]
fn a_window_ends_after_the_hold_time() {
    // 10 µs apart: 5 packets arrive within 50 µs of the first, itself included.
    let input = file(NANO, &train(1, 20, 1_000_000, 10_000, 0));
    let sizes = |hold_ns| {
        let options = Options {
            hold_ns,
            ..Options::default()
        };
        let (output, _) = replayed(&input, options);
        let packets = parsed(&output);
        packets
            .iter()
            .map(|packet| checked_payload(&packet.data).len() / 1000)
            .collect::<Vec<_>>()
    };
    assert_eq!(sizes(50_000), [5; 4]);
    assert_eq!(sizes(50_001), [6, 6, 6, 2]);
    assert_eq!(sizes(1), [1; 20]);
    assert_eq!(sizes(u64::MAX), [20]);
}

#[test]
fn a_clock_that_goes_back_ends_every_window() {
    let mut packets = train(1, 10, 1_000_000, 10, 0);
    packets
        .iter_mut()
        .skip(5)
        .for_each(|packet| packet.at -= 500);
    let (output, _) = replayed(&file(NANO, &packets), Options::default());
    let counts: Vec<_> = parsed(&output)
        .iter()
        .map(|packet| checked_payload(&packet.data).len() / 1000)
        .collect();
    assert_eq!(counts, [5, 5]);
}

#[test]
fn interfaces_have_coalescers_of_their_own() {
    let mut packets = train(1, 10, 1_000, 10, 0);
    for (index, packet) in packets.iter_mut().enumerate() {
        packet.interface = (index % 2) as u32;
    }
    let (output, report) = replayed(&file(Format::PcapNg, &packets), Options::default());
    // Each interface has every other segment.
    assert_eq!(parsed(&output), packets);
    let supers: u64 = report.interfaces.iter().map(|seen| seen.stats.supers).sum();
    assert_eq!(supers, 0);
}

#[test]
fn unusual_packets_do_not_change_and_are_counted() {
    let packets = mixture();
    let (output, report) = replayed(&file(Format::PcapNg, &packets), Options::default());
    let sum = |of: fn(&InterfaceReport) -> u64| report.interfaces.iter().map(of).sum::<u64>();
    assert_eq!(sum(|seen| seen.cut_short), 1);
    assert_eq!(sum(|seen| seen.stats.bad_checksums), 1);
    assert_eq!(sum(|seen| seen.unfinished), 0);
    let out = parsed(&output);
    for index in [30, 41, 51, 52, 53] {
        assert!(out.contains(&packets[index]), "{index}");
    }
    // Timestamps increase in the input, and so they do in the output.
    assert!(out.is_sorted_by_key(|packet| packet.at));
}

/// A capture of the sending host: all checksums are partial, or some.
#[test]
fn packets_with_partial_checksums_are_merged_and_restored() {
    for every in [1, 2, 3] {
        let mut packets = train(1, 10, 1_000, 10, 0);
        packets.extend(train(3, 10, 1_000, 10, 0));
        packets.extend((0..10).map(|at| Captured::new(1_000 + at * 10, 0, udp(1, &[3; 400]))));
        packets.sort_by_key(|packet| packet.at);
        let mut unfinished = 0;
        for packet in packets.iter_mut().step_by(every) {
            unfinish_transport(&mut packet.data);
            unfinished += 1;
        }
        let input = file(NANO, &packets);
        for mode in [Mode::Hash, Mode::Sorted] {
            for semantics in [Semantics::Reversible, Semantics::Stream] {
                let options = Options {
                    mode,
                    coalesce: Some(semantics),
                    ..Options::default()
                };
                let (output, report) = replayed(&input, options);
                let seen = &report.interfaces[0];
                assert_eq!((seen.emitted(), seen.unfinished), (3, unfinished));
                assert_eq!(seen.stats.bad_checksums, 0);
                assert_eq!(seen.stats.not_taken.total(), 0);
                let out = parsed(&output);
                let tcp = out.iter().filter(|packet| packet.data.len() > 5_000);
                for packet in tcp {
                    assert_eq!(checked_payload(&packet.data), vec![0x5a; 10_000]);
                }
            }
            let options = Options {
                mode,
                segment: Segment::Original,
                ..Options::default()
            };
            let (output, report) = replayed(&input, options);
            assert!(output == input, "every {every}, {mode:?}");
            assert_eq!(report.restored, 30);
        }
    }
}

#[test]
fn stream_absorbs_acks_and_cannot_be_undone() {
    let link = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ack = |number: u32| {
        let mut bytes = Vec::new();
        link()
            .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
            .tcp(1, 2, 3, 4000)
            .ack(number)
            .write(&mut bytes, &[])
            .expect("a packet");
        bytes
    };
    let packets: Vec<_> = (0..6)
        .map(|index| Captured::new(100 + index, 0, ack(index as u32 * 1000)))
        .collect();
    let input = file(NANO, &packets);
    let mut options = Options {
        coalesce: Some(Semantics::Stream),
        ..Options::default()
    };
    let (output, report) = replayed(&input, options);
    assert_eq!(parsed(&output).len(), 1);
    assert_eq!((report.received, report.absorbed), (6, 5));
    options.segment = Segment::Original;
    let reader = Reader::new(&input[..]).expect("a capture");
    let refused = run(reader, None::<Vec<u8>>, &options).expect_err("refused");
    assert_eq!(refused, ReplayError::NotReversible);
}

#[test]
fn coalescing_off_copies() {
    let input = file(Format::PcapNg, &mixture());
    let options = Options {
        coalesce: None,
        ..Options::default()
    };
    let (output, report) = replayed(&input, options);
    assert!(output == input);
    assert_eq!(report.interfaces[0].stats.packets, 0);
}

/// Any limits but that of flows.
pub(super) fn limits() -> impl Strategy<Value = Limits> {
    let packets = || prop::option::of(1_u32..100);
    let bytes = prop::option::of(1_u32..65_536);
    let inactive_ns = prop::option::of(Just(200_000));
    (bytes, packets(), inactive_ns, packets()).prop_map(
        |(bytes, packets, inactive_ns, window_packets)| Limits {
            bytes,
            packets,
            inactive_ns,
            window_packets,
            ..Limits::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_train_comes_back(
        steps in prop::collection::vec(
            (0_u16..6, 0_u32..4, 0_u16..3, 0_u8..16, 1_usize..300, 0_u64..40_000, 0_u32..3),
            1..120,
        ),
        sorted in any::<bool>(),
        flows in 1_u32..8,
        limits in limits(),
        hold_ns in prop::sample::select(vec![50_000, 1_000_000_000]),
        mtu in 68_u32..1_000,
    ) {
        let mut seqs = [1_u32; 6];
        let mut ids = [0_u16; 6];
        let mut at = 1_000_000;
        let mut packets = Vec::new();
        for (flow, jump, id, flags, bytes, gap, interface) in steps {
            at += gap / 8;
            let index = usize::from(flow);
            // Usually in sequence, usually full-sized.
            let bytes = if bytes > 100 { 200 } else { bytes };
            seqs[index] = seqs[index].wrapping_add(if jump == 0 { 50 } else { 0 });
            ids[index] = ids[index].wrapping_add(if id == 0 { 0 } else { 1 });
            let payload = vec![flags; bytes];
            packets.push(Captured::new(
                at,
                interface.saturating_sub(1),
                tcp(flow, seqs[index], ids[index], if flags < 2 { 8 } else { 0 }, &payload),
            ));
            seqs[index] = seqs[index].wrapping_add(bytes as u32);
        }
        let input = file(Format::PcapNg, &packets);
        let options = Options {
            mode: if sorted { Mode::Sorted } else { Mode::Hash },
            limits: Limits {
                flows: Some(flows),
                ..limits
            },
            hold_ns,
            segment: Segment::Original,
            ..Options::default()
        };
        let (output, _) = replayed(&input, options);
        prop_assert!(output == input);

        let (out, _) = replayed(&input, Options { segment: Segment::Mtu(mtu), ..options });
        prop_assert_eq!(streams(&packets), streams(&parsed(&out)));
    }
}

/// The bytes of each flow, in the order of its packets.
fn streams(packets: &[Captured]) -> HashMap<u16, Vec<u8>> {
    let mut streams: HashMap<u16, Vec<u8>> = HashMap::new();
    for packet in packets {
        let ports = if packet.data[12] == 8 { 34 } else { 54 };
        let port = u16::from_be_bytes([packet.data[ports], packet.data[ports + 1]]);
        streams
            .entry(port)
            .or_default()
            .extend(checked_payload(&packet.data));
    }
    streams
}
