//! Captures made with etherparse, replayed, and read again with pcap-parser and etherparse.

use super::*;
use crate::capture::{Interface, Record};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use std::collections::HashMap;

/// One packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Captured {
    at: u64,
    interface: u32,
    original: u32,
    data: Vec<u8>,
}

impl Captured {
    fn new(at: u64, interface: u32, data: Vec<u8>) -> Self {
        let original = data.len() as u32;
        Self {
            at,
            interface,
            original,
            data,
        }
    }
}

/// A TCP segment of flow `flow`, with finished checksums and DF.
fn tcp(flow: u16, seq: u32, id: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    tcp_df(flow, seq, id, flags, payload, true)
}

fn tcp_df(flow: u16, seq: u32, id: u16, flags: u8, payload: &[u8], df: bool) -> Vec<u8> {
    let ipv6 = flow.is_multiple_of(3);
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut fd = [0; 16];
    fd[0] = 0xfd;
    let mut step = if ipv6 {
        let mut to = fd;
        to[15] = 9;
        link.ipv6(fd, to, 64).tcp(5000 + flow, 443, seq, 500)
    } else {
        let ip = etherparse::Ipv4Header {
            identification: id,
            dont_fragment: df,
            time_to_live: 64,
            protocol: etherparse::IpNumber::TCP,
            source: [198, 18, 0, 1],
            destination: [198, 18, 0, 2],
            ..Default::default()
        };
        link.ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
            .tcp(5000 + flow, 443, seq, 500)
    };
    step = step.ack(7);
    if flags & 8 != 0 {
        step = step.psh();
    }
    let mut bytes = Vec::new();
    step.write(&mut bytes, payload).expect("a packet");
    bytes
}

fn udp(flow: u16, payload: &[u8]) -> Vec<u8> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut bytes = Vec::new();
    let mut to = [0; 16];
    (to[0], to[15]) = (0xfd, 7);
    link.ipv6([0xfd; 16], to, 64)
        .udp(6000 + flow, 53)
        .write(&mut bytes, payload)
        .expect("a packet");
    bytes
}

const NANO: Format = Format::Pcap { nanosecond: true };
const MICRO: Format = Format::Pcap { nanosecond: false };

fn file(format: Format, packets: &[Captured]) -> Vec<u8> {
    let named = |name| Interface {
        link: LinkCode::ETHERNET,
        snaplen: 65_535,
        name,
    };
    let interfaces = match format {
        Format::PcapNg => vec![named(Some("left")), named(None), named(Some("right"))],
        Format::Pcap { .. } => vec![named(None)],
    };
    let mut writer = Writer::new(Vec::new(), format, &interfaces).expect("a writer");
    for packet in packets {
        let interface = match format {
            Format::PcapNg => packet.interface,
            Format::Pcap { .. } => 0,
        };
        writer
            .write(interface, packet.at, packet.original, [&packet.data])
            .expect("a record");
    }
    writer.finish().expect("the end")
}

fn replayed(file: &[u8], options: Options) -> (Vec<u8>, Report) {
    let mut out = Vec::new();
    let reader = Reader::new(file).expect("a capture");
    let report = run(reader, Some(&mut out), &options).expect("a replay");
    assert!(report.is_closed(), "{report:?}");
    assert_eq!(report.differing, 0, "{report:?}");
    (out, report)
}

/// The packets of a capture, read by somebody else.
fn parsed(file: &[u8]) -> Vec<Captured> {
    use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
    let mut reader = create_reader(1 << 20, file).expect("a capture");
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => packets.push(Captured {
                        at: u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                        interface: packet.if_id,
                        original: packet.origlen,
                        data: packet.data[..packet.caplen as usize].to_vec(),
                    }),
                    PcapBlockOwned::Legacy(packet) => packets.push(Captured {
                        at: u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_usec),
                        interface: 0,
                        original: packet.origlen,
                        data: packet.data.to_vec(),
                    }),
                    _ => {}
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("more"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Payload bytes and TCP checksum of an Ethernet packet; checks the checksum.
fn checked_payload(data: &[u8]) -> Vec<u8> {
    let packet = SlicedPacket::from_ethernet(data).expect("a packet");
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
        panic!("not TCP")
    };
    let sum = match packet.net.as_ref().expect("IP") {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
        }
        NetSlice::Ipv6(ip) => {
            tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
        }
        NetSlice::Arp(_) => panic!("ARP"),
    };
    assert_eq!(tcp.checksum(), sum.expect("short enough"));
    tcp.payload().to_vec()
}

/// A train of TCP segments of one flow, `gap` apart.
fn train(flow: u16, count: u32, start: u64, gap: u64, interface: u32) -> Vec<Captured> {
    let payload = vec![0x5a; 1000];
    let packet = |index: u32| tcp(flow, 1 + index * 1000, index as u16, 0, &payload);
    (0..count)
        .map(|index| Captured::new(start + u64::from(index) * gap, interface, packet(index)))
        .collect()
}

/// A bit of everything.
fn mixture() -> Vec<Captured> {
    let mut packets = Vec::new();
    for (flow, interface) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 0)] {
        packets.extend(train(
            flow,
            20,
            1_000_000_000 + u64::from(flow),
            400,
            interface,
        ));
    }
    for index in 0..30_u64 {
        let bytes = if index == 20 { 100 } else { 500 };
        packets.push(Captured::new(
            1_000_000_200 + index * 300,
            1,
            udp(1, &vec![index as u8; bytes]),
        ));
    }
    packets.sort_by_key(|packet| packet.at);
    // A wrong checksum in the middle, a packet that is cut off, noise, ARP, an empty one.
    let last = packets[30].data.len() - 1;
    packets[30].data[last] ^= 1;
    packets[41].data.truncate(80);
    let at = packets[50].at;
    packets.insert(51, Captured::new(at, 0, vec![0xff; 33]));
    packets.insert(
        52,
        Captured::new(at, 0, [vec![2; 12], vec![8, 6], vec![0; 28]].concat()),
    );
    packets.insert(53, Captured::new(at, 2, Vec::new()));
    packets
}

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
                    flows,
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

/// What begins with the same bytes as something else may be anything, unless somebody knows.
#[test]
fn a_private_link_type_is_looked_into_only_as_told() {
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
    // Every other segment is missing on each of them.
    assert_eq!(parsed(&output), packets);
    let supers: u64 = report.interfaces.iter().map(|seen| seen.stats.supers).sum();
    assert_eq!(supers, 0);
}

#[test]
fn what_is_odd_is_passed_through_and_counted() {
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
    // Timestamps go up in the input, and so they do in the output.
    assert!(out.is_sorted_by_key(|packet| packet.at));
}

/// A packet as a host captures it in front of its NIC: long, with the checksum left to do.
fn unfinished(payload: usize) -> Vec<u8> {
    let mut data = tcp(1, 1, 9, 8, &vec![0x77; payload]);
    unfinish_transport(&mut data);
    data
}

/// The sum of the pseudo-header in the place of the checksum.
fn unfinish_transport(data: &mut [u8]) {
    let ipv6 = data[12] != 8;
    let (addresses, transport) = if ipv6 { (22..54, 54) } else { (26..34, 34) };
    let tcp = data[if ipv6 { 20 } else { 23 }] == 6;
    let (protocol, at) = if tcp {
        (6, transport + 16)
    } else {
        (17, transport + 6)
    };
    let mut sum = protocol + (data.len() - transport) as u32;
    for pair in data[addresses].chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    data[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
}

/// A capture of the sending host: nothing has a finished checksum yet, or only some.
#[test]
fn packets_in_front_of_their_offloads_are_merged_and_come_back_as_they_were() {
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
fn a_packet_in_front_of_its_offloads_is_cut_and_finished() {
    let packets = [Captured::new(5, 0, unfinished(7000))];
    let input = file(NANO, &packets);
    let (output, report) = replayed(&input, Options::default());
    assert_eq!(parsed(&output), packets, "it is passed through");
    assert_eq!(report.interfaces[0].unfinished, 1);
    let options = Options {
        segment: Segment::Mtu(1500),
        ..Options::default()
    };
    let (output, report) = replayed(&input, options);
    let out = parsed(&output);
    let payloads: Vec<_> = out
        .iter()
        .map(|packet| checked_payload(&packet.data))
        .collect();
    assert_eq!(payloads.concat(), vec![0x77; 7000]);
    assert_eq!(payloads[0].len(), 1460);
    assert!(out.iter().all(|packet| packet.at == 5));
    assert_eq!((report.transmitted, report.expanded), (5, 4));
}

#[test]
fn an_mtu_cuts_what_was_merged_and_what_is_right_but_nothing_wrong() {
    let mut packets = train(1, 9, 1_000, 10, 0);
    packets.push(Captured::new(2_000, 0, tcp(2, 1, 1, 0, &[1; 3000])));
    let mut wrong = Captured::new(2_001, 0, tcp(4, 1, 1, 0, &[2; 3000]));
    wrong.data[2000] ^= 4;
    packets.push(wrong.clone());
    packets.push(Captured::new(2_002, 0, udp(1, &[3; 3000])));
    let options = Options {
        segment: Segment::Mtu(1500),
        ..Options::default()
    };
    let (output, report) = replayed(&file(NANO, &packets), options);
    let out = parsed(&output);
    assert_eq!(report.interfaces[0].not_cut, 2, "{report:?}");
    assert!(out.contains(&wrong));
    let merged: Vec<_> = out.iter().filter(|packet| packet.at == 1_000).collect();
    let sizes: Vec<_> = merged
        .iter()
        .map(|packet| checked_payload(&packet.data).len())
        .collect();
    assert_eq!(sizes, [1460, 1460, 1460, 1460, 1460, 1460, 240]);
    assert_eq!(report.absorbed, 2, "nine packets became seven");
    assert_eq!(report.expanded, 2, "one became three");
}

/// Replays `packets` with an MTU.
fn cut(packets: &[Captured], mtu: u32, semantics: Semantics) -> (Vec<Captured>, Report) {
    let options = Options {
        coalesce: Some(semantics),
        segment: Segment::Mtu(mtu),
        ..Options::default()
    };
    let (output, report) = replayed(&file(NANO, packets), options);
    (parsed(&output), report)
}

/// Also into more segments than an MSS of 48 gives.
#[test]
fn the_least_mtus_cut_everything_and_what_is_below_stays_merged_and_counted() {
    let packets = train(1, 60, 1_000, 10, 0);
    for mtu in [68, 80, 84] {
        let (out, report) = cut(&packets, mtu, Semantics::Reversible);
        let bytes: usize = out.iter().map(|p| checked_payload(&p.data).len()).sum();
        assert_eq!(bytes, 60_000, "MTU {mtu}");
        let segments = 60_000_u32.div_ceil(mtu - 40) as usize;
        assert_eq!((out.len(), report.interfaces[0].not_cut), (segments, 0));
        assert_eq!(report.absorbed, 0, "MTU {mtu}");
    }
    // Flow 0 is IPv6, which leaves less than the least segment.
    let (out, report) = cut(&train(0, 4, 1_000, 10, 0), 67, Semantics::Reversible);
    assert_eq!(checked_payload(&out[0].data).len(), 4000);
    assert_eq!((out.len(), report.interfaces[0].not_cut), (1, 1));
}

#[test]
fn merged_datagrams_that_are_too_long_are_counted_one_by_one() {
    let packets: Vec<_> = [1400, 1400, 1400, 100]
        .iter()
        .zip(1_000..)
        .map(|(&bytes, at)| Captured::new(at, 0, udp(1, &vec![7; bytes])))
        .collect();
    let (out, report) = cut(&packets, 576, Semantics::Reversible);
    let same = out
        .iter()
        .zip(&packets)
        .all(|(out, packet)| out.data == packet.data);
    assert!(same && out.len() == 4);
    assert_eq!(report.interfaces[0].not_cut, 3);
}

/// Merged with an ACK before it, it has no size to be cut into again, but is too long all the same.
#[test]
fn data_behind_an_ack_is_cut_to_the_mtu() {
    let packets = [
        Captured::new(1_000, 0, tcp(1, 1, 1, 0, &[])),
        Captured::new(1_001, 0, tcp(1, 1, 2, 0, &[9; 1400])),
    ];
    let (out, report) = cut(&packets, 576, Semantics::Stream);
    let sizes: Vec<_> = out.iter().map(|p| checked_payload(&p.data).len()).collect();
    assert_eq!(sizes, [536, 536, 328]);
    assert_eq!(report.interfaces[0].not_cut, 0);
}

/// A UDP datagram over IPv4.
fn udp4(id: u16, df: bool, payload: &[u8]) -> Vec<u8> {
    let ip = etherparse::Ipv4Header {
        identification: id,
        dont_fragment: df,
        time_to_live: 64,
        protocol: etherparse::IpNumber::UDP,
        source: [198, 18, 0, 1],
        destination: [198, 18, 0, 2],
        ..Default::default()
    };
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        .udp(7000, 53)
        .write(&mut bytes, payload)
        .expect("a packet");
    bytes
}

/// What a receiver makes of IPv4 fragments and of whole packets: by source, destination, protocol
/// and identification, as IP payloads in the order in which they are complete.
fn reassembled(packets: &[Captured]) -> Vec<Vec<u8>> {
    let mut pools = etherparse::defrag::IpDefragPool::<(), ()>::new();
    let mut whole = Vec::new();
    for packet in packets {
        let sliced = SlicedPacket::from_ethernet(&packet.data).expect("a packet");
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else {
            panic!("not IPv4")
        };
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        if !header.is_fragmenting_payload() {
            whole.push(ip.payload().payload.to_vec());
        } else if let Some(done) = pools.process_sliced_packet(&sliced, (), ()).expect("room") {
            whole.push(done.payload);
        }
    }
    whole
}

/// Datagrams alone and merged, some with unfinished checksums: fragments that come together again,
/// those of each by an identification of its own; with DF each stays whole, and is counted.
#[test]
fn datagrams_that_may_be_fragmented_are_and_come_together_again() {
    for mtu in [68, 576, 1000] {
        for (df, gap) in [(false, 1), (false, 1_000_000), (true, 1), (true, 1_000_000)] {
            let mut packets: Vec<_> = (0..6_u16)
                .map(|n| {
                    let payload: Vec<u8> = (0..1400).map(|at| (at * 7 + n) as u8).collect();
                    let at = 1_000 + u64::from(n) * gap;
                    Captured::new(at, 0, udp4(500 + n, df, &payload))
                })
                .collect();
            let datagrams: Vec<_> = packets.iter().map(|p| p.data[34..].to_vec()).collect();
            for packet in packets.iter_mut().step_by(2) {
                unfinish_transport(&mut packet.data);
            }
            let (out, report) = cut(&packets, mtu, Semantics::Reversible);
            let seen = &report.interfaces[0];
            assert_eq!(seen.stats.supers, u64::from(gap == 1));
            if df {
                assert_eq!((out.len() as u64, seen.not_cut), (6, 6));
                continue;
            }
            assert_eq!(seen.not_cut, 0, "MTU {mtu}");
            let longest = out.iter().map(|packet| packet.data.len() as u32 - 14);
            assert!(longest.max() <= Some(mtu) && out.len() >= 12);
            assert_eq!(report.expanded, out.len() as u64 - 6);
            assert_eq!(reassembled(&out), datagrams);
            let mut ids = ids(&out);
            ids.dedup();
            assert_eq!(ids, [500, 501, 502, 503, 504, 505]);
        }
    }
}

/// What TCP cannot be cut into segments for is fragmented as by anybody who forwards it: its
/// checksum is none of theirs. A wrong IPv4 header is.
#[test]
fn what_cannot_be_segmented_is_fragmented_where_it_may_be() {
    let mut wrong = tcp_df(1, 1, 9, 0, &[2; 3000], false);
    wrong[2000] ^= 4;
    let captured = [Captured::new(1_000, 0, wrong.clone())];
    let (out, report) = cut(&captured, 1500, Semantics::Reversible);
    assert_eq!((out.len(), report.interfaces[0].not_cut), (3, 0));
    assert_eq!(reassembled(&out), [wrong[34..].to_vec()]);
    wrong[22] ^= 1;
    let captured = [Captured::new(1_000, 0, wrong)];
    let (out, report) = cut(&captured, 1500, Semantics::Reversible);
    assert_eq!((out, report.interfaces[0].not_cut), (captured.to_vec(), 1));
}

fn ids(packets: &[Captured]) -> Vec<u16> {
    let id = |packet: &Captured| u16::from_be_bytes([packet.data[18], packet.data[19]]);
    packets.iter().map(id).collect()
}

/// RFC 6864 §4.3: without DF none comes again, though there are more packets than were captured.
#[test]
fn identifications_do_not_repeat_where_packets_may_be_fragmented() {
    let packet = |n: u32| {
        let flags = if n % 4 == 3 { 8 } else { 0 };
        let bytes = tcp_df(1, 1 + n * 1000, n as u16, flags, &[3; 1000], false);
        Captured::new(1_000 + u64::from(n), 0, bytes)
    };
    let packets: Vec<_> = (0..8).map(packet).collect();
    for (mtu, count) in [(700, 14), (1040, 8), (2040, 4)] {
        let (out, _) = cut(&packets, mtu, Semantics::Reversible);
        let mut seen = ids(&out);
        assert_eq!(seen.len(), count, "MTU {mtu}");
        if mtu >= 1040 {
            assert!(
                seen.iter().all(|id| *id < 8),
                "of the merged ones: {seen:?}"
            );
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "MTU {mtu}");
        out.iter().for_each(|p| drop(checked_payload(&p.data)));
    }
}

/// What `stream` merges need not count up: then what is made of it is not numbered from the first.
#[test]
fn what_did_not_count_up_is_numbered_anew() {
    let packet = |(n, id): (u32, u16)| {
        let bytes = tcp_df(1, 1 + n * 1000, id, 0, &[3; 1000], false);
        Captured::new(1_000 + u64::from(n), 0, bytes)
    };
    let packets = [(0, 100), (1, 7), (2, 300)].map(packet);
    let (out, _) = cut(&packets, 1040, Semantics::Stream);
    let seen = ids(&out);
    assert_eq!(seen.len(), 3);
    assert_ne!(seen[0], 100);
    assert_eq!([seen[1], seen[2]], [1, 2].map(|n| seen[0].wrapping_add(n)));
}

#[test]
fn a_fixed_identification_stays_fixed() {
    let packet = |n: u32| {
        let bytes = tcp(1, 1 + n * 1000, 5, 0, &[3; 1000]);
        Captured::new(1_000 + u64::from(n), 0, bytes)
    };
    let packets: Vec<_> = (0..4).map(packet).collect();
    let (out, _) = cut(&packets, 540, Semantics::Reversible);
    assert_eq!(ids(&out), [5; 8]);
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

/// As every receiver captures it: padded to 60 bytes. Without the padding it is no less whole.
#[test]
fn padding_that_is_cut_off_leaves_a_whole_packet() {
    let mut padded = tcp(1, 1, 1, 0, &[]);
    padded.resize(60, 0);
    let packets = [Captured::new(1_000, 0, padded)];
    let options = Options {
        coalesce: Some(Semantics::Stream),
        ..Options::default()
    };
    let (output, _) = replayed(&file(NANO, &packets), options);
    let out = parsed(&output);
    assert_eq!(out, [Captured::new(1_000, 0, tcp(1, 1, 1, 0, &[]))]);
    let (again, report) = replayed(&output, options);
    assert!(again == output);
    assert_eq!(report.interfaces[0].cut_short, 0);
}

#[test]
fn records_longer_than_the_capture_says_stay_so() {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 64,
        name: None,
    };
    for format in [NANO, Format::PcapNg] {
        let writer = Writer::new(Vec::new(), format, &[interface]).expect("a writer");
        let mut writer = writer.without_cutting();
        for packet in train(1, 5, 1_000, 10, 0) {
            let written = writer.write(0, packet.at, packet.original, [&packet.data]);
            written.expect("a record");
        }
        let input = writer.finish().expect("the end");
        assert!(parsed(&input).iter().all(|packet| packet.data.len() > 1000));
        for (coalesce, segment) in [
            (Some(Semantics::Reversible), Segment::Original),
            (None, Segment::Off),
        ] {
            let options = Options {
                coalesce,
                segment,
                ..Options::default()
            };
            let (output, _) = replayed(&input, options);
            assert!(output == input, "{format:?} {segment:?}");
        }
    }
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

#[test]
fn a_capture_that_ends_in_the_middle_gives_what_it_has() {
    let packets = train(1, 8, 1_000, 10, 0);
    let input = file(NANO, &packets);
    let (output, report) = replayed(&input[..input.len() - 3], Options::default());
    assert!(
        matches!(
            report.stopped,
            Some(crate::capture::CaptureError::Truncated { .. })
        ),
        "{report:?}"
    );
    let out = parsed(&output);
    assert_eq!(checked_payload(&out[0].data), vec![0x5a; 7000]);
}

#[test]
fn sections_are_joined_by_what_their_interfaces_are() {
    let one = file(Format::PcapNg, &train(1, 5, 1_000, 10, 0));
    let two = file(Format::PcapNg, &train(1, 5, 1_050, 10, 2));
    let (output, report) = replayed(&[one, two].concat(), Options::default());
    assert_eq!(report.interfaces.len(), 3);
    let out = parsed(&output);
    assert_eq!(
        out.iter()
            .map(|packet| packet.interface)
            .collect::<Vec<_>>(),
        [0, 2],
        "nothing is merged across sections"
    );
    assert_eq!(report.interfaces[0].stats.packets, 5);
}

/// A flow after the other, all at the same instant: no window ever ends by time.
struct Endless {
    sent: u32,
    until: u32,
    pending: Vec<u8>,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.pending.is_empty() && self.sent < self.until {
            let data = udp((self.sent % 5000) as u16, &[7; 100]);
            self.sent += 1;
            let length = (data.len() as u32).to_le_bytes();
            self.pending = [&[0; 8][..], &length, &length, &data].concat();
        }
        let bytes = out.len().min(self.pending.len());
        out[..bytes].copy_from_slice(&self.pending[..bytes]);
        self.pending.drain(..bytes);
        Ok(bytes)
    }
}

#[test]
fn memory_is_bounded_whatever_the_capture() {
    let header = file(NANO, &[]);
    let until = 3 * SPAN_MAX as u32;
    let endless = Endless {
        sent: 0,
        until,
        pending: header,
    };
    let mut reader = Reader::new(endless).expect("a capture");
    let options = Options {
        flows: 100_000,
        mode: Mode::Hash,
        ..Options::default()
    };
    let mut replay = Replay::new(&mut reader, None::<Vec<u8>>, options).expect("a replay");
    let mut most = 0;
    loop {
        let next = reader.next_record().expect("a record");
        let next = next.map(|record| Arrival::of(&record, replay.now, NANO));
        replay.keep_up(&reader).expect("no output");
        let Some((arrival, data)) = next else { break };
        replay.take(arrival, data);
        most = most.max(replay.order.span());
        replay.write_out().expect("no output");
    }
    assert!(most > 1000 && most <= SPAN_MAX + 1, "{most}");
    let report = replay.finish().expect("the end");
    assert!(report.is_closed(), "{report:?}");
    let flows = report.interfaces[0].flows();
    assert!((4950..=5050).contains(&flows), "{flows}");
}

#[test]
fn a_record_without_time_has_that_of_the_one_before() {
    let record = Record {
        timestamp_ns: None,
        interface: 3,
        link: LinkCode::ETHERNET,
        original_bytes: 9,
        data: &[1, 2],
    };
    let (arrival, data) = Arrival::of(&record, 55, Format::PcapNg);
    assert_eq!((arrival.timestamp_ns, arrival.original_bytes), (55, 9));
    assert_eq!(data, [1, 2]);
}

#[test]
fn a_wild_time_costs_nothing_but_itself() {
    let mut input = file(NANO, &train(1, 3, 1_000, 10, 0));
    // Seconds and nanoseconds of the first record.
    input[24..32].fill(0xff);
    let (output, report) = replayed(&input, Options::default());
    assert_eq!((parsed(&output).len(), report.received), (2, 3));
}

#[test]
fn interfaces_of_all_sections_are_bounded() {
    let section = |name: usize| {
        let interface = Interface {
            link: LinkCode::ETHERNET,
            snaplen: name as u32 + 1,
            name: None,
        };
        let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).expect("a writer");
        writer.write(0, 5, 1, [[7]]).expect("a record");
        writer.finish().expect("the end")
    };
    let replay = |sections| {
        let input: Vec<u8> = (0..sections).flat_map(section).collect();
        let reader = Reader::new(&input[..]).expect("a capture");
        run(reader, None::<Vec<u8>>, &Options::default()).map(|report| report.interfaces.len())
    };
    assert_eq!(replay(3), Ok(3));
    assert_eq!(
        replay(MAX_INTERFACES + 1),
        Err(ReplayError::TooManyInterfaces)
    );
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
        mtu in 68_u32..1_000,
    ) {
        let mut seqs = [1_u32; 6];
        let mut ids = [0_u16; 6];
        let mut at = 1_000_000;
        let mut packets = Vec::new();
        for (flow, jump, id, flags, bytes, gap, interface) in steps {
            at += gap / 8;
            let index = usize::from(flow);
            // Mostly in sequence, mostly full-sized.
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
            flows,
            segment: Segment::Original,
            ..Options::default()
        };
        let (output, _) = replayed(&input, options);
        prop_assert!(output == input);

        let (out, _) = replayed(&input, Options { segment: Segment::Mtu(mtu), ..options });
        prop_assert_eq!(streams(&packets), streams(&parsed(&out)));
    }
}

/// What each flow sent, in the order of its packets.
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
