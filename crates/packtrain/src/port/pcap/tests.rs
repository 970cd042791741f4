use super::*;
use crate::driver::{BadPackets, TxDescriptors};
use crate::packet::{ArenaConfig, Burst};
use crate::plan::FitLimits;
use crate::queue::{Sent, TxQueue};
use crate::stats::{DropCounters, Stall, TxCounters};
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, GsoKind};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, PcapNGReader};
use proptest::prelude::*;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const NANO: Format = Format::Pcap { nanosecond: true };
const MICRO: Format = Format::Pcap { nanosecond: false };
const SECOND: u64 = 1_000_000_000;

/// A file that is removed when it goes out of scope.
struct Scratch(PathBuf);

impl Scratch {
    fn new(extension: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("packtrain-{}-{number}.{extension}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn with(bytes: &[u8]) -> Self {
        let file = Self::new("cap");
        std::fs::write(&file.0, bytes).unwrap();
        file
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

#[derive(Debug, Default)]
struct Bad(Vec<DropReason>);

impl BadPackets for Bad {
    fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        assert_eq!(wire_packets, 1);
        self.0.push(reason);
    }
}

/// One attached capture that is read.
struct Reading {
    rx: PcapRx,
    arena: Arena,
    bad: Bad,
}

impl Reading {
    fn open(path: &Path, how: PcapRead) -> Self {
        Self::attach(path, how, &Attach::default(), ArenaConfig::small())
    }

    fn attach(path: &Path, how: PcapRead, attach: &Attach, memory: ArenaConfig) -> Self {
        let arena = Arena::new(memory).unwrap();
        let mut port = Pcap::open_read(path, how).unwrap();
        let (rx, _tx) = port.attach(attach, &arena).unwrap().remove(0);
        let bad = Bad::default();
        Self { rx, arena, bad }
    }

    fn poll(&mut self, now: u64) -> (Vec<Packet>, Result<(), DeviceError>) {
        let mut burst = Burst::new();
        self.rx.refill(&self.arena);
        let mut sink = RxBurst::new(&mut burst, 64, &mut self.bad);
        let result = self.rx.receive(Instant::from_nanos(now), &mut sink);
        (std::iter::from_fn(|| burst.pop()).collect(), result)
    }

    /// Polls until the input ends or fails.
    fn all(&mut self) -> (Vec<Vec<u8>>, DeviceError) {
        let mut all = Vec::new();
        loop {
            let (packets, result) = self.poll(0);
            all.extend(packets.iter().map(bytes_of));
            if let Err(error) = result {
                return (all, error);
            }
        }
    }
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

fn frame(length: usize, seed: usize) -> Vec<u8> {
    let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    data.extend((14..length).map(|i| (i * 7 + seed) as u8));
    data
}

/// A capture of these records: time, original length, data.
fn capture(format: Format, link: LinkCode, records: &[(u64, u32, Vec<u8>)]) -> Vec<u8> {
    let interface = Interface {
        link,
        snaplen: 0,
        name: None,
    };
    let mut writer = Writer::new(Vec::new(), format, &[interface]).unwrap();
    for (time, original, data) in records {
        writer.write(0, *time, *original, [data]).unwrap();
    }
    writer.finish().unwrap()
}

fn ethernet(format: Format, records: &[(u64, u32, Vec<u8>)]) -> Scratch {
    Scratch::with(&capture(format, LinkCode::ETHERNET, records))
}

fn transmitter(port: &mut Pcap, arena: &Arena) -> TxQueue<PcapTx> {
    counted(port, arena).0
}

fn counted(port: &mut Pcap, arena: &Arena) -> (TxQueue<PcapTx>, Arc<DropCounters>) {
    let (_rx, tx) = port.attach(&Attach::default(), arena).unwrap().remove(0);
    let capabilities = port.capabilities();
    let limits = FitLimits::new(&capabilities, None);
    let (counters, drops) = <(Arc<TxCounters>, Arc<DropCounters>)>::default();
    let features = capabilities.tx;
    let count = Arc::clone(&drops);
    let queue = TxQueue::new(tx, arena.clone(), features, limits, None, counters, count);
    (queue, drops)
}

fn transmit(queue: &mut TxQueue<PcapTx>, arena: &Arena, frames: &[Vec<u8>]) {
    for chunk in frames.chunks(64) {
        let mut burst = Burst::new();
        for frame in chunk {
            burst.push(arena.packet_from(frame).unwrap()).unwrap();
        }
        queue.transmit(&mut burst).unwrap();
        // At its limit of bytes the queue keeps the rest for later steps.
        for step in 0..100 {
            if queue.is_ready() {
                break;
            }
            queue.service(Instant::from_nanos(step * 500_000)).unwrap();
            queue.transmit(&mut burst).unwrap();
        }
        assert!(burst.is_empty());
    }
}

fn how_to_write(format: Format, link: LinkType) -> PcapWrite {
    PcapWrite {
        format,
        link,
        snaplen: 0,
    }
}

/// Time and data of every packet, read by `pcap-parser`.
fn parse(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let mut packets = Vec::new();
    let mut reader: Box<dyn PcapReaderIterator> = if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        Box::new(PcapNGReader::new(1 << 20, &bytes[..]).unwrap())
    } else {
        Box::new(LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap())
    };
    let mut unit = 1;
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        unit = if header.is_nanosecond_precision() {
                            1
                        } else {
                            1000
                        };
                    }
                    PcapBlockOwned::Legacy(record) => {
                        let time = u64::from(record.ts_sec) * SECOND;
                        let time = time + u64::from(record.ts_usec) * unit;
                        packets.push((time, record.data.to_vec()));
                    }
                    PcapBlockOwned::NG(pcap_parser::Block::EnhancedPacket(record)) => {
                        let time = u64::from(record.ts_high) << 32 | u64::from(record.ts_low);
                        let data = &record.data[..record.caplen as usize];
                        packets.push((time, data.to_vec()));
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn what_is_written_is_read_back_here_and_by_an_independent_parser() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let frames: Vec<_> = [14, 60, 1514, 1792, 1793, 9014, PACKET_BYTES_MAX]
        .iter()
        .cycle()
        .take(100)
        .enumerate()
        .map(|(i, length)| frame(*length, i))
        .collect();
    for (format, unit) in [(NANO, 1), (MICRO, 1000), (Format::PcapNg, 1)] {
        let file = Scratch::new("pcap");
        let how = how_to_write(format, LinkType::Ethernet);
        let mut port = Pcap::open_write(&file.0, how).unwrap();
        assert_eq!(port.capabilities().tx, Features::NONE);
        assert_eq!(port.capabilities().input, Input::None);
        let mut queue = transmitter(&mut port, &arena);
        let before = wall_clock_ns() / unit * unit;
        transmit(&mut queue, &arena, &frames);
        let after = wall_clock_ns();
        // Everything is in the file after a flush, before the port is gone.
        let parsed = parse(&file.0);
        // One for each burst, and some at the byte limit, since some frames are large.
        assert!((3..10).contains(&queue.device().doorbells()));
        assert!(queue.device().syscalls() >= 3);
        assert!(
            parsed
                .iter()
                .all(|(time, _)| (before..=after).contains(time))
        );
        assert!(parsed.iter().map(|(_, data)| data).eq(&frames));
        drop((queue, port));

        let mut reading = Reading::open(&file.0, PcapRead::default());
        let (read, end) = reading.all();
        assert!(matches!(end, DeviceError::Finished), "{end}");
        assert_eq!(read, frames);
        assert!(reading.bad.0.is_empty());
        assert!(reading.rx.syscalls() > 0);
        drop(reading);
    }
    assert_eq!(arena.census().lines_used, 0);
}

#[test]
fn tcpdump_reads_what_is_written() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("SKIP: tcpdump is not installed");
        return;
    }
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    for format in [NANO, Format::PcapNg] {
        let file = Scratch::new("pcap");
        let how = how_to_write(format, LinkType::RawIp);
        let mut port = Pcap::open_write(&file.0, how).unwrap();
        let mut queue = transmitter(&mut port, &arena);
        let build = etherparse::PacketBuilder::ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64);
        let mut packet = Vec::new();
        build.udp(53, 4000).write(&mut packet, &[7; 40]).unwrap();
        transmit(&mut queue, &arena, &vec![packet; 3]);
        let output = Command::new("tcpdump")
            .args(["-n", "-tt", "--nano", "-r"])
            .arg(&file.0)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let wanted = "IP 198.18.0.1.53 > 198.18.0.2.4000";
        assert_eq!(
            text.lines().filter(|line| line.contains(wanted)).count(),
            3,
            "{text}"
        );
        let written = parse(&file.0)[0].0;
        let seconds = format!("{}.{:09}", written / SECOND, written % SECOND);
        assert!(text.starts_with(&seconds), "{text} begins with {seconds}");
    }
}

#[test]
fn the_name_of_the_file_suggests_its_format() {
    for (name, format) in [
        ("a.pcap", NANO),
        ("a.CAP", NANO),
        ("a.pcapng", Format::PcapNg),
        ("a", Format::PcapNg),
    ] {
        assert_eq!(format_of(Path::new(name)), format, "{name}");
    }
}

#[test]
fn packets_come_in_the_buffers_asked_for() {
    let file = ethernet(NANO, &[(0, 0, frame(1792, 1)), (0, 0, frame(9000, 2))]);
    for (rx_buffers, segments) in [
        (RxBuffers::Whole, [1, 2]),
        (RxBuffers::PIECES, [1, 6]),
        (RxBuffers::Pieces { bytes: 512 }, [4, 18]),
    ] {
        let attach = Attach {
            rx_buffers,
            ..Attach::default()
        };
        let mut reading =
            Reading::attach(&file.0, PcapRead::default(), &attach, ArenaConfig::small());
        let (packets, _end) = reading.poll(0);
        assert_eq!(
            packets
                .iter()
                .map(Packet::segment_count)
                .collect::<Vec<_>>(),
            segments
        );
        assert_eq!(packets.iter().all(Packet::in_small_frames), segments[1] > 2);
        assert_eq!(bytes_of(&packets[1]), frame(9000, 2));
    }
}

#[test]
fn without_memory_records_wait_in_the_file() {
    let records: Vec<_> = (0..10).map(|i| (0, 0, frame(60, i))).collect();
    let file = ethernet(NANO, &records);
    let memory = ArenaConfig {
        small_frames: 3,
        large_frames: 1,
        lines: 16,
    };
    let mut reading = Reading::attach(&file.0, PcapRead::default(), &Attach::default(), memory);
    let mut read = Vec::new();
    let (first, result) = reading.poll(0);
    assert!(result.is_ok());
    assert_eq!(first.len(), 3);
    assert!(!reading.rx.refill(&reading.arena), "nothing is left");
    assert_eq!(reading.rx.arm(), Armed::WorkPending);
    read.extend(first.iter().map(bytes_of));
    drop(first);
    read.extend(reading.all().0);
    assert!(
        read.into_iter()
            .eq(records.into_iter().map(|(_, _, data)| data))
    );
    assert!(reading.bad.0.is_empty());
}

#[test]
fn the_original_pace_is_exact_to_the_nanosecond() {
    let start = 1_700_000_000 * SECOND + 123_456_789;
    let times = [
        start,
        start + 1,
        start + 1,
        start + 5_000_000_001,
        start + 7,
    ];
    let records = times.map(|time| (time, 0, frame(60, 0)));
    for format in [NANO, Format::PcapNg] {
        let file = ethernet(format, &records);
        let how = PcapRead {
            pace: Pace::Original,
            ..PcapRead::default()
        };
        let mut reading = Reading::open(&file.0, how);
        assert_eq!(reading.rx.arm(), Armed::WorkPending);
        let (first, _) = reading.poll(1000);
        assert_eq!(first.len(), 1);
        assert_eq!(reading.rx.next_at(), Some(Instant::from_nanos(1001)));
        assert_eq!((reading.rx.held(), reading.rx.arm()), (1, Armed::Idle));
        assert!(reading.poll(1000).0.is_empty());
        // Late polls catch up.
        assert_eq!(reading.poll(5000).0.len(), 2);
        assert_eq!(
            reading.rx.next_at(),
            Some(Instant::from_nanos(5_000_001_001))
        );
        assert!(reading.poll(5_000_001_000).0.is_empty());
        // The time of the last record is before its predecessor's: it follows at once.
        let (last, end) = reading.poll(5_000_001_001);
        assert_eq!(last.len(), 2);
        assert!(matches!(end, Err(DeviceError::Finished)));
        assert_eq!((reading.rx.held(), reading.rx.next_at()), (0, None));
    }
}

/// Recorded times, or the wall clock's without one. The segments of a GSO packet have its time.
#[test]
fn a_copy_of_a_capture_has_its_times() {
    let times = [0, 7, 1_700_000_000 * SECOND + 123_456_789, u64::MAX - 1, 3];
    let records = times.map(|time| (time, 0, frame(60, 0)));
    let last = (1 << 32) * SECOND - 1;
    for (format, expected) in [
        (Format::PcapNg, times),
        (NANO, times.map(|time| time.min(last))),
        (MICRO, times.map(|time| time.min(last) / 1000 * 1000)),
    ] {
        let input = ethernet(Format::PcapNg, &records);
        let mut reading = Reading::open(&input.0, PcapRead::default());
        let (packets, _end) = reading.poll(0);
        let output = Scratch::new("pcap");
        let how = how_to_write(format, LinkType::Ethernet);
        let mut port = Pcap::open_write(&output.0, how).unwrap();
        let mut queue = transmitter(&mut port, &reading.arena);
        let mut burst = Burst::new();
        for packet in packets {
            burst.push(packet).unwrap();
        }
        let build = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
            .tcp(5000, 443, 1, 500);
        let mut bytes = Vec::new();
        build.write(&mut bytes, &[7; 300]).unwrap();
        let mut large = reading.arena.packet_from(&bytes).unwrap();
        let meta = large.meta_mut();
        meta.layout = Layout::parse(LinkType::Ethernet, &bytes, bytes.len() as u32).ok();
        meta.gso = NonZeroU16::new(100).map(|size| Gso::new(GsoKind::TcpV4, size));
        meta.checksum = ChecksumState::Partial {
            start: 34,
            offset: 16,
        };
        meta.timestamp = Some(WallTime::from_nanos(5000));
        burst.push(large).unwrap();
        queue.transmit(&mut burst).unwrap();
        let before = wall_clock_ns() / 1000 * 1000;
        transmit(&mut queue, &reading.arena, &[frame(60, 1)]);
        let mut copied: Vec<_> = parse(&output.0).into_iter().map(|(time, _)| time).collect();
        assert!(copied.pop() >= Some(before));
        assert_eq!(copied, [&expected[..], &[5000; 3]].concat(), "{format:?}");
    }
}

#[test]
fn a_loop_starts_over_and_a_count_ends_it() {
    let records: Vec<_> = (0..3)
        .map(|i| (i * 100, 0, frame(60, i as usize)))
        .collect();
    let file = ethernet(Format::PcapNg, &records);
    let endless = PcapRead {
        repeat: true,
        ..PcapRead::default()
    };
    let port = Pcap::open_read(&file.0, endless).unwrap();
    assert_eq!(port.capabilities().input, Input::Endless);
    let how = PcapRead {
        count: Some(1000),
        ..endless
    };
    let port = Pcap::open_read(&file.0, how).unwrap();
    assert_eq!(port.capabilities().input, Input::Finite);
    let (read, end) = Reading::open(&file.0, how).all();
    assert!(matches!(end, DeviceError::Finished));
    assert_eq!(read.len(), 1000);
    assert!(
        read.iter()
            .enumerate()
            .all(|(i, data)| *data == records[i % 3].2)
    );

    // At the original pace a pass begins where the one before ended.
    let how = PcapRead {
        pace: Pace::Original,
        ..how
    };
    let mut reading = Reading::open(&file.0, how);
    assert_eq!(reading.poll(0).0.len(), 1);
    assert_eq!(reading.poll(100).0.len(), 1);
    assert_eq!(reading.poll(200).0.len(), 2);
    assert_eq!(reading.rx.next_at(), Some(Instant::from_nanos(300)));
}

#[test]
fn a_loop_without_a_good_record_ends() {
    let how = PcapRead {
        repeat: true,
        ..PcapRead::default()
    };
    let empty = ethernet(NANO, &[]);
    let (read, end) = Reading::open(&empty.0, how).all();
    assert!(read.is_empty() && matches!(end, DeviceError::Finished));
    let bad = ethernet(NANO, &[(0, 1500, frame(60, 0))]);
    let mut reading = Reading::open(&bad.0, how);
    assert!(matches!(reading.all().1, DeviceError::Finished));
    assert_eq!(reading.bad.0, [DropReason::CutShort]);
}

#[test]
fn a_record_that_cannot_be_sent_costs_only_itself() {
    let records = [
        (0, 0, frame(60, 1)),
        (0, 61, frame(60, 2)),
        (0, 0, frame(13, 3)[..13].to_vec()),
        (0, 0, frame(PACKET_BYTES_MAX + 1, 4)),
        (0, 0, frame(PACKET_BYTES_MAX, 5)),
    ];
    let file = ethernet(Format::PcapNg, &records);
    let mut reading = Reading::open(&file.0, PcapRead::default());
    let (read, end) = reading.all();
    assert!(matches!(end, DeviceError::Finished));
    assert_eq!(read, [records[0].2.clone(), records[4].2.clone()]);
    let reasons = [
        DropReason::CutShort,
        DropReason::Truncated,
        DropReason::TooLong,
    ];
    assert_eq!(reading.bad.0, reasons);

    // Two interfaces of different links in one file.
    let [one, two] = [LinkCode::ETHERNET, LinkCode::RAW].map(|link| Interface {
        link,
        snaplen: 0,
        name: None,
    });
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[one, two]).unwrap();
    writer.write(1, 0, 0, [&[0x45; 60]]).unwrap();
    writer.write(0, 0, 0, [frame(60, 0)]).unwrap();
    let file = Scratch::with(&writer.finish().unwrap());
    let mut reading = Reading::open(&file.0, PcapRead::default());
    assert_eq!(reading.all().0, [frame(60, 0)]);
    assert_eq!(reading.bad.0, [DropReason::LinkType]);
}

#[test]
fn link_types_are_recognized_or_refused_in_words() {
    for (code, link) in [
        (LinkCode::ETHERNET, LinkType::Ethernet),
        (LinkCode::RAW, LinkType::RawIp),
        (LinkCode::RAW_12, LinkType::RawIp),
        (LinkCode::RAW_14, LinkType::RawIp),
        (LinkCode::IPV4, LinkType::RawIp),
        (LinkCode::IPV6, LinkType::RawIp),
    ] {
        let file = Scratch::with(&capture(NANO, code, &[]));
        let port = Pcap::open_read(&file.0, PcapRead::default()).unwrap();
        assert_eq!(port.capabilities().link, link);
    }
    let file = Scratch::with(&capture(NANO, LinkCode::IPOIB, &[]));
    let error = Pcap::open_read(&file.0, PcapRead::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, DeviceError::Unsupported(_)));
    assert!(
        text.contains("link type is 242") && text.contains(file.0.to_str().unwrap()),
        "{text}"
    );
}

#[test]
fn packets_without_ethernet_become_ip_or_ethernet() {
    let ip = [vec![0x45, 0, 0, 60], vec![7; 56]].concat();
    let arp = vec![9; 28];
    let sll2 = |kind: u16, rest: &[u8]| {
        let tail = [0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 7, 0, 0];
        (0, 0, [&kind.to_be_bytes()[..], &tail, rest].concat())
    };
    let sll = |kind: u16, rest: &[u8]| {
        let head = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 7, 0, 0];
        (0, 0, [&head[..], &kind.to_be_bytes(), rest].concat())
    };
    let loopback = |family: u32, rest: &[u8]| (0, 0, [&family.to_be_bytes(), rest].concat());
    for (code, packet, other, sender) in [
        (LinkCode::LINUX_SLL, sll(0x800, &ip), sll(0x806, &arp), 2),
        (LinkCode::LINUX_SLL2, sll2(0x800, &ip), sll2(0x806, &arp), 2),
        (LinkCode::LOOP, loopback(2, &ip), loopback(7, &arp), 0),
        (LinkCode::NULL, loopback(2 << 24, &ip), loopback(7, &arp), 0),
        (LinkCode::NULL, loopback(0x800, &ip), loopback(7, &arp), 0),
    ] {
        let short = (0, 0, vec![0; 3]);
        let file = Scratch::with(&capture(NANO, code, &[packet, other, short]));
        let mut reading = Reading::open(&file.0, PcapRead::default());
        assert!(reading.all().0.iter().eq([&ip]), "{code:?}");
        assert_eq!(reading.bad.0, [DropReason::LinkType, DropReason::Truncated]);

        let link = Some(LinkType::Ethernet);
        let how = PcapRead {
            link,
            ..PcapRead::default()
        };
        let port = Pcap::open_read(&file.0, how).unwrap();
        assert_eq!(port.capabilities().link, LinkType::Ethernet);
        let (read, _) = Reading::open(&file.0, how).all();
        let header = [
            &[0; 6][..],
            &[sender, 0, 0, 0, 0, if sender == 0 { 0 } else { 7 }],
            &[8, 0],
        ];
        assert_eq!(read[0], [&header.concat()[..], &ip].concat());
        assert_eq!((read.len(), &read[1][14..]), (2, &arp[..]));
    }
}

#[test]
fn a_capture_that_is_cut_off_delivers_what_it_has_and_then_fails() {
    let records = [
        (0, 0, frame(60, 1)),
        (0, 0, frame(60, 2)),
        (0, 0, frame(60, 3)),
    ];
    for (format, repeat) in [(NANO, false), (NANO, true), (Format::PcapNg, false)] {
        let mut bytes = capture(format, LinkCode::ETHERNET, &records);
        bytes.truncate(bytes.len() - 10);
        let file = Scratch::with(&bytes);
        let how = PcapRead {
            repeat,
            ..PcapRead::default()
        };
        let mut reading = Reading::open(&file.0, how);
        let (read, error) = reading.all();
        assert_eq!(read, [records[0].2.clone(), records[1].2.clone()]);
        let text = error.to_string();
        assert!(text.starts_with("cannot read the capture: "), "{text}");
        assert!(text.contains(file.0.to_str().unwrap()), "{text}");
        assert!(text.contains("ends inside record 3"), "{text}");
        // It stays that way.
        assert_eq!(reading.all().1.to_string(), text);
    }
}

#[test]
fn files_that_are_no_captures_are_refused_in_words() {
    let folder = format!("packtrain-no-folder-{}", std::process::id());
    let nowhere = std::env::temp_dir().join(folder).join("a.pcap");
    let error = Pcap::open_read(&nowhere, PcapRead::default())
        .unwrap_err()
        .to_string();
    let expected = format!("cannot open the capture: {}: No such", nowhere.display());
    assert!(error.starts_with(&expected), "{error}");
    let how = how_to_write(NANO, LinkType::Ethernet);
    let error = Pcap::open_write(&nowhere, how).unwrap_err().to_string();
    let expected = format!("cannot create the capture: {}", nowhere.display());
    assert!(error.starts_with(&expected), "{error}");
    let error = Pcap::open_write(Path::new("/dev/full"), how)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/dev/full: No space left"), "{error}");
    let text = Scratch::with(b"this is no capture at all");
    let error = Pcap::open_read(&text.0, PcapRead::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("neither a pcap nor a pcapng"), "{error}");
}

#[test]
fn an_output_that_fails_later_fails_the_run() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (mut queue, reader, _) = piped(&arena);
    drop(reader);
    let mut burst = Burst::new();
    burst
        .push(arena.packet_from(&frame(60, 0)).unwrap())
        .unwrap();
    let error = queue.transmit(&mut burst).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot write the capture: pipe: Broken pipe (os error 32)"
    );
    // Later packets are refused: once the buffer is full, and at each flush.
    assert!(queue.transmit(&mut burst).is_err());
}

/// A capture that is written to a pipe, the reading end, and what was dropped.
fn piped(arena: &Arena) -> (TxQueue<PcapTx>, io::PipeReader, Arc<DropCounters>) {
    let (reader, output) = io::pipe().unwrap();
    let (queue, drops) = writing_to(File::from(std::os::fd::OwnedFd::from(output)), arena);
    (queue, reader, drops)
}

fn writing_to(file: File, arena: &Arena) -> (TxQueue<PcapTx>, Arc<DropCounters>) {
    let file = Counted::new(file);
    file.set_nonblocking().unwrap();
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let writer = Writer::new(file, NANO, &[interface]).unwrap();
    let mut port = Pcap {
        name: "pipe".to_owned(),
        path: "pipe".into(),
        link: LinkType::Ethernet,
        converts: false,
        input: Input::None,
        side: Side::Write(Box::new(writer)),
    };
    counted(&mut port, arena)
}

/// Fills a pipe that is not read. Returns the frames that the queue accepted.
fn fill_pipe(queue: &mut TxQueue<PcapTx>, arena: &Arena) -> Vec<Vec<u8>> {
    let mut accepted = Vec::new();
    loop {
        let mut burst = Burst::new();
        let frames: Vec<_> = (0..32).map(|i| frame(1000 + i, accepted.len())).collect();
        for frame in &frames {
            burst.push(arena.packet_from(frame).unwrap()).unwrap();
        }
        let sent = queue.transmit(&mut burst).unwrap();
        accepted.extend_from_slice(&frames[..frames.len() - burst.len()]);
        if sent == Sent::Stalled(Stall::Busy) {
            return accepted;
        }
    }
}

#[test]
fn a_pipe_that_is_full_stalls_its_queue_and_continues_when_it_is_read() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (mut queue, mut reader, _) = piped(&arena);
    let frames = fill_pipe(&mut queue, &arena);
    assert!(queue.in_flight() > 0 && queue.held() > 0);
    let (_, interest) = queue.wake().expect("the pipe's descriptor");
    assert_eq!(interest, Interest::Write);
    // The reader is at fault for as long as it likes: the device is not hung.
    for second in 1..5 {
        queue.service(Instant::from_nanos(second * SECOND)).unwrap();
    }
    assert_eq!(
        queue.counters().stuck.get() + queue.counters().hangs.get(),
        0
    );
    let (mut bytes, mut part) = (Vec::new(), [0; 5000]);
    while !queue.is_ready() || queue.in_flight() > 0 {
        let got = reader.read(&mut part).unwrap();
        bytes.extend_from_slice(&part[..got]);
        queue.reclaim(Instant::from_nanos(6 * SECOND));
        queue.transmit(&mut Burst::new()).unwrap();
    }
    drop(queue);
    reader.read_to_end(&mut bytes).unwrap();
    let file = Scratch::with(&bytes);
    let read = parse(&file.0);
    assert!(read.iter().map(|(_, data)| data).eq(&frames));
    assert_eq!(arena.census().lines_used, 0);
}

#[test]
fn packets_that_a_full_pipe_does_not_have_are_dropped_at_the_end() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (mut queue, mut reader, drops) = piped(&arena);
    let frames = fill_pipe(&mut queue, &arena);
    queue.abandon(DropReason::Shutdown);
    assert_eq!((queue.in_flight(), queue.held()), (0, 0));
    let sent = queue.counters().wire_packets.get() - queue.counters().taken_back.get();
    let dropped = drops.snapshot().get(DropReason::Shutdown);
    assert_eq!(sent + dropped, frames.len() as u64);
    assert_eq!(queue.counters().resets.get(), 0);
    let mut part = vec![0; 1 << 20];
    let got = reader.read(&mut part).unwrap();
    let whole: usize = frames[..sent as usize].iter().map(|f| f.len() + 16).sum();
    let next = frames[sent as usize].len() + 16;
    assert!((whole..whole + next).contains(&(got - 24)), "{got} {whole}");
    assert_eq!(arena.census().lines_used, 0);
}

/// As the worker does after a failure. Transmitted are the records that the output has whole.
#[track_caller]
fn assert_counts_what_is_written(queue: &mut TxQueue<PcapTx>, drops: &DropCounters, frames: u64) {
    queue.abandon(DropReason::DeviceReset);
    let counters = queue.counters();
    let sent = counters.wire_packets.get() - counters.taken_back.get();
    let dropped = drops.snapshot().get(DropReason::DeviceReset);
    assert_eq!(sent + dropped, frames);
    let sink = queue.device().0.as_ref().unwrap();
    assert_eq!(sent, (sink.writer.written() - 24) / (1000 + 16));
    assert!(dropped > 0, "{sent} sent");
}

#[test]
fn packets_that_a_full_disk_does_not_have_are_not_transmitted() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let file = rustix::fs::memfd_create("full", MemfdFlags::ALLOW_SEALING).unwrap();
    let file = File::from(file);
    file.set_len(40_960).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let (mut queue, drops) = writing_to(file.try_clone().unwrap(), &arena);
    let mut burst = Burst::new();
    for seed in 0..60 {
        let packet = arena.packet_from(&frame(1000, seed)).unwrap();
        burst.push(packet).unwrap();
    }
    let error = queue.transmit(&mut burst).unwrap_err().to_string();
    assert!(error.starts_with("cannot write the capture"), "{error}");
    let left = burst.len() as u64;
    assert_counts_what_is_written(&mut queue, &drops, 60 - left);
    // The same are in the file, also after it has room again and the writer was dropped.
    drop(queue);
    let mut input = &file;
    io::Seek::rewind(&mut input).unwrap();
    let mut reader = Reader::new(input).unwrap();
    while reader.next_record().expect("no part of a record").is_some() {}
    assert_eq!(reader.records(), (40_960 - 24) / 1016);
    assert_eq!(arena.census().lines_used, left as u32);
}

#[test]
fn packets_of_a_pipe_whose_reader_has_left_are_not_transmitted() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (mut queue, reader, drops) = piped(&arena);
    let mut frames = 0;
    while queue.is_ready() {
        transmit(&mut queue, &arena, &[frame(1000, 0)]);
        frames += 1;
    }
    drop(reader);
    queue.reclaim(Instant::from_nanos(1));
    assert!(queue.transmit(&mut Burst::new()).is_err());
    assert_counts_what_is_written(&mut queue, &drops, frames);
}

/// No later packet meets the error.
#[test]
fn a_reader_that_leaves_after_the_last_packet_fails_the_run_at_once() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let (mut queue, reader, drops) = piped(&arena);
    let mut frames = 0;
    while queue.in_flight() == 0 {
        transmit(&mut queue, &arena, &[frame(1000, 0)]);
        frames += 1;
        queue.reclaim(Instant::from_nanos(1));
    }
    assert!(queue.is_ready());
    drop(reader);
    // A step that follows a packet may leave its completion to the next one.
    let error = (2..4).find_map(|ns| queue.service(Instant::from_nanos(ns)).err());
    assert_eq!(
        error.map(|error| error.to_string()).as_deref(),
        Some("cannot write the capture: pipe: Broken pipe (os error 32)")
    );
    assert!(queue.trouble().is_none());
    assert_counts_what_is_written(&mut queue, &drops, frames);
}

#[test]
fn a_capture_that_is_read_takes_nothing_and_one_that_is_written_never_receives() {
    let arena = Arena::new(ArenaConfig::small()).unwrap();
    let file = ethernet(NANO, &[(0, 0, frame(60, 0))]);
    let mut port = Pcap::open_read(&file.0, PcapRead::default()).unwrap();
    let mut queue = transmitter(&mut port, &arena);
    transmit(&mut queue, &arena, &[frame(60, 0)]);
    // The packet is refused with its reason, and counted.
    assert_eq!(queue.counters().wire_packets.get(), 0);
    assert_eq!(queue.held(), 0);
    // Attached once, with one queue.
    assert!(port.attach(&Attach::default(), &arena).is_err());
    let two = Attach {
        queues: 2,
        ..Attach::default()
    };
    let mut port = Pcap::open_read(&file.0, PcapRead::default()).unwrap();
    assert!(matches!(
        port.attach(&two, &arena),
        Err(DeviceError::Unsupported(_))
    ));

    let file = Scratch::new("pcap");
    let how = how_to_write(NANO, LinkType::Ethernet);
    let mut port = Pcap::open_write(&file.0, how).unwrap();
    let (mut rx, _tx) = port.attach(&Attach::default(), &arena).unwrap().remove(0);
    let (mut burst, mut bad) = (Burst::new(), Bad::default());
    let mut sink = RxBurst::new(&mut burst, 64, &mut bad);
    rx.receive(Instant::from_nanos(1), &mut sink).unwrap();
    assert!(burst.is_empty() && rx.arm() == Armed::Idle && rx.refill(&arena));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any bytes in the middle of a capture: it ends, and every record is delivered or bad.
    #[test]
    fn damage_never_loses_count(
        ng: bool,
        at in 0_usize..600,
        damage in proptest::collection::vec(any::<u8>(), 1..24),
    ) {
        let records: Vec<_> = (0..6).map(|i| (i * 10, 0, frame(60 + i as usize, 0))).collect();
        let format = if ng { Format::PcapNg } else { NANO };
        let mut bytes = capture(format, LinkCode::ETHERNET, &records);
        let at = at.min(bytes.len() - 1);
        let end = (at + damage.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&damage[..end - at]);
        let file = Scratch::with(&bytes);
        let Ok(mut port) = Pcap::open_read(&file.0, PcapRead::default()) else {
            return Ok(());
        };
        let arena = Arena::new(ArenaConfig::small()).unwrap();
        let (rx, _tx) = port.attach(&Attach::default(), &arena).unwrap().remove(0);
        let mut reading = Reading { rx, arena, bad: Bad::default() };
        let (read, end) = reading.all();
        let met = reading.rx.0.as_ref().map_or(0, |source| source.reader.records());
        let known = read.len() as u64 + reading.bad.0.len() as u64;
        // The record at the damaged place or at the end may be incomplete.
        let begun = u64::from(!matches!(end, DeviceError::Finished));
        prop_assert!((known..=known + begun).contains(&met), "{} of {}: {}", known, met, end);
    }
}
