//! Captures without payload, queues, and delays.

use super::*;
use packtrain_offload::coalesce::NotTaken;
use proptest::prelude::*;
use std::net::SocketAddrV4;

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

/// A segment of flow 0, over IPv6: its TCP header begins at byte 54.
fn with_options(seq: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let [mut from, mut to] = [[0; 16]; 2];
    (from[0], to[0], to[15]) = (0xfd, 0xfd, 9);
    let mut data = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv6(from, to, 64)
        .tcp(5000, 443, seq, 500)
        .ack(7)
        .options_raw(options)
        .expect("options")
        .write(&mut data, payload)
        .expect("a packet");
    data
}

/// ACKs amid the data of flow 0, with timestamps and three SACK blocks: 114 bytes.
fn selective_acks() -> impl Iterator<Item = Captured> {
    (0..5).map(|index| {
        let mut options = [index; 40];
        options[..4].copy_from_slice(&[1, 1, 8, 10]);
        options[12..16].copy_from_slice(&[1, 1, 5, 26]);
        let data = with_options(1 + u32::from(index) * 3000, &options, &[]);
        Captured::new(1_000_000_100 + u64::from(index) * 1200, 0, data)
    })
}

/// Options matter if the packet may be merged, or if they may be timestamps.
#[test]
fn options_that_matter_must_be_there() {
    let cases = [
        // Bytes of options, of payload, and of the record.
        (40, 0, 96, 0),
        (16, 0, 74, 0),
        (16, 0, 73, 1),
        (16, 1, 80, 1),
        (12, 0, 85, 1),
        (12, 0, 86, 0),
    ];
    for (options, payload, bytes, cut_short) in cases {
        let packet = with_options(1, &vec![1; options], &vec![0; payload]);
        let packets = cut(&[Captured::new(1, 0, packet)], bytes);
        let (report, _) = analysed(&file(NANO, &packets), &Options::default());
        let seen = &report.interfaces[0];
        assert_eq!(seen.cut_short, cut_short, "{options} {payload} {bytes}");
        assert_eq!(seen.flows(), 1 - cut_short);
    }
}

/// Addresses were replaced after the checksums were made.
#[test]
fn wrong_checksums_are_taken_as_correct_on_request() {
    let mut packets = right();
    for packet in &mut packets {
        if let Some(address) = packet.data.get_mut(30) {
            *address ^= 0x55;
        }
    }
    let file = file(Format::PcapNg, &packets);
    let counts = |headers_only| {
        let options = Options {
            headers_only,
            ..Options::default()
        };
        let stats = analysed(&file, &options).0.total().stats;
        (stats.supers, stats.not_taken.get(NotTaken::BadChecksum))
    };
    let (whole, headers) = (counts(false), counts(true));
    assert!(whole.0 == 0 && whole.1 > 100, "{whole:?}");
    assert!(headers.0 > 0 && headers.1 == 0, "{headers:?}");
}

/// Without its headers a packet passes by, and is counted.
#[test]
fn packets_without_their_headers_pass_by() {
    let input = file(Format::PcapNg, &cut(&right(), 50));
    let (report, trains) = analysed(&input, &Options::default());
    let passed = trains.iter().filter(|train| train.end == End::PassedBy);
    let (passed, total) = (passed.count() as u64, report.total());
    assert!(passed > 100);
    assert_eq!((total.cut_short, total.stats.supers), (passed, 0));
}

/// By the vectors of Microsoft's "Verifying the RSS hash calculation", in a table of 128 entries.
#[test]
fn queues_are_those_of_the_toeplitz_hash() {
    const SUITE: [(&str, &str, u32); 3] = [
        ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178),
        ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea),
        ("24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b_394a),
    ];
    let packets = SUITE.iter().zip(0..).map(|((from, to, _), at)| {
        let [from, to] = [from, to].map(|end| end.parse::<SocketAddrV4>().expect("an address"));
        let mut data = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4(from.ip().octets(), to.ip().octets(), 64)
            .tcp(from.port(), to.port(), 1, 500)
            .write(&mut data, &[0; 100])
            .expect("a packet");
        Captured::new(at, 0, data)
    });
    let input = file(NANO, &packets.collect::<Vec<_>>());
    for queues in [2, 6, 8, 128] {
        let options = Options {
            queues,
            ..Options::default()
        };
        let (report, trains) = analysed(&input, &options);
        let mut expected = vec![0; queues.into()];
        for (train, (.., hash)) in trains.iter().zip(SUITE) {
            let queue = hash % 128 % u32::from(queues);
            assert_eq!(u32::from(train.queue), queue);
            expected[queue as usize] += 1;
        }
        let of_queues = report.interfaces[0].queues.iter();
        let got: Vec<_> = of_queues.map(|queue| queue.packets).collect();
        assert_eq!(got, expected);
    }
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
    let delays = report.interfaces[0].delays.iter();
    for ((ns, count), expected) in delays.zip([30_000, 40_000, 50_000]) {
        let right = expected..=expected + expected / 100;
        assert!(right.contains(&ns) && count == 1, "{ns} {count}");
    }
}

#[test]
fn kinds_of_packets_are_counted() {
    let mut packets = right();
    let (mut from, mut to) = (udp(1, b"x"), udp(1, b"x"));
    from[54..56].copy_from_slice(&443_u16.to_be_bytes());
    to[56..58].copy_from_slice(&443_u16.to_be_bytes());
    let more = [tcp(1, 9, 9, 0, &[]), tcp(1, 9, 9, 8, &[]), from, to];
    packets.extend(more.map(|data| Captured::new(2_000_000_000, 0, data)));
    let (report, _) = analysed(&file(NANO, &packets), &Options::default());
    let seen = &report.interfaces[0];
    assert_eq!((seen.pure_acks, seen.udp, seen.quic), (1, 32, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any settings: the same trains with and without payload, and without the options of an ACK
    /// that is not merged, and the same report as a replay that writes.
    #[test]
    fn no_setting_needs_payload(
        limits in merging::limits(),
        (queues, hold_us, stream) in (1_u16..9, 0_u64..200, any::<bool>()),
        mode in prop_oneof![Just(Mode::Hash), Just(Mode::Sorted), Just(Mode::Auto)],
    ) {
        let mut packets = right();
        packets.extend(selective_acks());
        packets.sort_by_key(|packet| packet.at);
        let options = Options {
            coalesce: Some(if stream { Semantics::Stream } else { Semantics::Reversible }),
            limits,
            queues,
            hold_ns: hold_us * 1000,
            mode,
            ..Options::default()
        };
        let whole = file(Format::PcapNg, &packets);
        let (report, trains) = analysed(&whole, &options);
        let (headers, same) = analysed(&file(Format::PcapNg, &cut(&packets, 96)), &options);
        prop_assert_eq!(trains, same);
        prop_assert_eq!(report.totals, headers.totals);
        let total = headers.total();
        prop_assert!(total.cut_short == 0 && total.by_headers > 100);
        replayed(&whole, options);
    }
}
