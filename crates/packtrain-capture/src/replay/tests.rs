//! Captures made with etherparse, replayed, and read again with pcap-parser and etherparse.

use super::*;
use crate::codec::{Interface, LinkCode, MAX_INTERFACES};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use packtrain_offload::coalesce::Mode;
use packtrain_offload::offload::LinkType;

mod captures;
mod cooked;
mod headers;
mod length;
mod merge;
mod merging;
mod options;
mod splitting;

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

/// A TCP segment of flow `flow`, with complete checksums and DF.
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

/// A capture without a snapshot length.
fn capture(format: Format, link: LinkCode, packets: &[Captured]) -> Vec<u8> {
    let interface = Interface {
        link,
        snaplen: 0,
        name: None,
    };
    let mut writer = Writer::new(Vec::new(), format, &[interface]).expect("a writer");
    for packet in packets {
        let written = writer.write(0, packet.at, packet.original, [&packet.data]);
        written.expect("a record");
    }
    writer.finish().expect("the end")
}

fn replayed(file: &[u8], options: Options) -> (Vec<u8>, Report) {
    let mut out = Vec::new();
    let reader = Reader::new(file).expect("a capture");
    let report = run(reader, Some(&mut out), &options).expect("a replay");
    assert!(report.is_closed(), "{report:?}");
    assert_eq!(report.differing, 0, "{report:?}");
    let seen = &report.interfaces;
    if options.segment == Segment::Off && seen.iter().all(|seen| seen.cut_short == 0) {
        assert_eq!(analysed(file, &options).0, report);
    }
    (out, report)
}

/// What an analysis says of a capture: the report, and each train.
fn analysed(file: &[u8], options: &Options) -> (Report, Vec<Train>) {
    let mut intake = Intake::new(&[*options]);
    let reader = Reader::new(file).expect("a capture");
    intake.add(0, reader).expect("few interfaces");
    let mut analysis = Analysis::new(options);
    let (mut batch, mut trains) = (Batch::default(), Vec::new());
    let mut sink = |train: &Train| trains.push(*train);
    while intake.fill(&mut batch, None).expect("few interfaces") {
        analysis.take(&batch, &mut sink);
    }
    analysis.finish(&mut sink);
    let report = analysis.report(intake.report());
    assert!(report.is_closed(), "{report:?}");
    let packets = trains.iter().map(|train| u64::from(train.packets));
    assert_eq!(packets.sum::<u64>(), report.received - report.dropped);
    (report, trains)
}

/// The packets of a capture, read by an independent reader.
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

/// A mixture of all kinds.
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
    // A wrong checksum in the middle, a truncated packet, noise, ARP, an empty one.
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

/// Makes the checksum partial: the sum of the pseudo-header.
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
