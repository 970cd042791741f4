//! Captures without payload, queues, and delays.

use super::*;
use packtrain_offload::coalesce::NotTaken;
use proptest::prelude::*;

/// The same packets, each cut to this many bytes.
fn cut(packets: &[Captured], bytes: usize) -> Vec<Captured> {
    let mut packets = packets.to_vec();
    for packet in &mut packets {
        packet.data.truncate(bytes);
    }
    packets
}

/// The mixture, without a packet that is wrong or cut.
fn right() -> Vec<Captured> {
    let mut packets = mixture();
    let (last, whole) = (packets[30].data.len() - 1, packets[41].original as usize);
    packets[30].data[last] ^= 1;
    packets[41].data.resize(whole, 0x5a);
    packets
}

#[test]
fn trains_of_headers_are_those_of_whole_packets() {
    let packets = right();
    for format in [NANO, Format::PcapNg] {
        for coalesce in [Semantics::Reversible, Semantics::Stream] {
            let options = Options {
                coalesce: Some(coalesce),
                ..Options::default()
            };
            let (whole, trains) = analysed(&file(format, &packets), &options);
            let (headers, same) = analysed(&file(format, &cut(&packets, 96)), &options);
            assert!(trains.iter().any(|train| train.packets > 1));
            assert_eq!(trains, same);
            let seen = headers.interfaces.iter();
            assert_eq!(seen.clone().map(|seen| seen.cut_short).sum::<u64>(), 0);
            assert!(seen.map(|seen| seen.by_headers).sum::<u64>() > 100);
            assert_eq!(
                (whole.received, whole.transmitted, whole.absorbed),
                (headers.received, headers.transmitted, headers.absorbed)
            );
        }
    }
}

/// Addresses were replaced after the checksums were made.
#[test]
fn wrong_checksums_are_taken_for_right_on_request() {
    let mut packets = right();
    for packet in &mut packets {
        if let Some(address) = packet.data.get_mut(30) {
            *address ^= 0x55;
        }
    }
    let file = file(Format::PcapNg, &packets);
    let (report, _) = analysed(&file, &Options::default());
    let merged = |report: &Report| {
        report
            .interfaces
            .iter()
            .map(|seen| seen.stats.supers)
            .sum::<u64>()
    };
    let bad = |report: &Report| {
        let reasons = report.interfaces.iter().map(|seen| seen.stats.not_taken);
        reasons
            .map(|counts| counts.get(NotTaken::BadChecksum))
            .sum::<u64>()
    };
    assert_eq!(merged(&report), 0_u64);
    assert!(bad(&report) > 100);
    let options = Options {
        headers_only: true,
        ..Options::default()
    };
    let (report, _) = analysed(&file, &options);
    assert!(merged(&report) > 0_u64);
    assert_eq!(bad(&report), 0);
}

/// Without its headers a packet passes by, and is counted.
#[test]
fn packets_without_their_headers_pass_by() {
    let packets = right();
    let (report, trains) = analysed(
        &file(Format::PcapNg, &cut(&packets, 50)),
        &Options::default(),
    );
    let cut = report.interfaces.iter().map(|seen| seen.cut_short);
    let passed = trains.iter().filter(|train| train.end == End::PassedBy);
    assert_eq!(cut.sum::<u64>(), passed.count() as u64);
    assert_eq!(report.interfaces[0].stats.supers, 0);
}

#[test]
fn queues_are_those_of_the_usual_hash() {
    // Of the verification suite of RSS, in the order of its addresses.
    type Case = ([u8; 4], u16, [u8; 4], u16, u32);
    const SUITE: [Case; 3] = [
        (
            [66, 9, 149, 187],
            2794,
            [161, 142, 100, 80],
            1766,
            0x51cc_c178,
        ),
        (
            [199, 92, 111, 2],
            14230,
            [65, 69, 140, 83],
            4739,
            0xc626_b0ea,
        ),
        (
            [24, 19, 198, 95],
            12898,
            [12, 22, 207, 184],
            38024,
            0x5c2b_394a,
        ),
    ];
    let mut packets = Vec::new();
    for (index, (from, source, to, destination, _)) in SUITE.into_iter().enumerate() {
        let mut data = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4(from, to, 64)
            .tcp(source, destination, 1, 500)
            .write(&mut data, &[0; 100])
            .expect("a packet");
        packets.push(Captured::new(index as u64, 0, data));
    }
    let options = Options {
        queues: 8,
        ..Options::default()
    };
    let (report, trains) = analysed(&file(NANO, &packets), &options);
    for (train, (.., hash)) in trains.iter().zip(SUITE) {
        assert_eq!(u32::from(train.queue), hash % 128 % 8);
    }
    let queues = &report.interfaces[0].queues;
    assert_eq!(queues.len(), 8);
    assert_eq!(queues.iter().map(|queue| queue.packets).sum::<u64>(), 3);
}

#[test]
fn a_packet_is_delayed_until_its_window_ends() {
    let packets = train(1, 3, 1_000_000, 10_000, 0);
    let (report, trains) = analysed(&file(NANO, &packets), &Options::default());
    let [train] = &trains[..] else {
        panic!("{trains:?}")
    };
    // The window ends 50 µs after the first packet, though no packet follows.
    assert_eq!((train.time_ns, train.held_ns), (1_000_000, 50_000));
    assert_eq!((train.packets, train.bytes), (3, 54 + 3000));
    let delays: Vec<_> = report.interfaces[0].delays.iter().collect();
    let right = |ns: u64| ns..=ns + ns / 100;
    for ((ns, count), expected) in delays.into_iter().zip([30_000, 40_000, 50_000]) {
        assert!(right(expected).contains(&ns) && count == 1, "{ns} {count}");
    }
}

#[test]
fn kinds_of_packets_are_counted() {
    let mut packets = right();
    packets.push(Captured::new(2_000_000_000, 0, tcp(1, 9, 9, 0, &[])));
    packets.push(Captured::new(2_000_000_000, 0, tcp(1, 9, 9, 8, &[])));
    let (report, _) = analysed(&file(NANO, &packets), &Options::default());
    let seen = &report.interfaces[0];
    assert_eq!((seen.pure_acks, seen.udp, seen.quic), (1, 30, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any settings: the same trains with and without payload, and the same report as a replay that
    /// writes.
    #[test]
    fn no_setting_needs_payload(
        limits in merging::limits(),
        (queues, hold_us, stream) in (1_u16..9, 0_u64..200, any::<bool>()),
        mode in prop_oneof![Just(Mode::Hash), Just(Mode::Sorted), Just(Mode::Auto)],
    ) {
        let packets = right();
        let options = Options {
            coalesce: Some(if stream { Semantics::Stream } else { Semantics::Reversible }),
            limits,
            queues,
            hold_ns: hold_us * 1000,
            mode,
            ..Options::default()
        };
        let whole = file(Format::PcapNg, &packets);
        let (_, trains) = analysed(&whole, &options);
        let (_, same) = analysed(&file(Format::PcapNg, &cut(&packets, 96)), &options);
        prop_assert_eq!(trains, same);
        replayed(&whole, options);
    }
}
