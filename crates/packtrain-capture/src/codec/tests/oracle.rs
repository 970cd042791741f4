//! Independent programs and libraries read captures of the writer, and the reader reads theirs.

use std::borrow::Cow;
use std::io::{self, Seek, Write};
use std::process::{Command, Stdio};

use pcap_parser::pcapng::{Block, OptionCode, PcapNGOption};
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, LegacyPcapBlock, LegacyPcapReader, Linktype,
    PcapBlockOwned, PcapError, PcapHeader, PcapNGReader, SectionHeaderBlock, SimplePacketBlock,
    ToVec,
};

use super::*;

const FORMATS: [Format; 3] = [
    Format::Pcap { nanosecond: false },
    Format::Pcap { nanosecond: true },
    Format::PcapNg,
];

/// Time, original length, captured data: all kinds of times, and frames of an EtherType for local
/// experiments, with every padding.
fn packets() -> Vec<(u64, u32, Vec<u8>)> {
    let times = [
        0,
        1,
        999_999_999,
        1_000_000_000,
        1_700_000_000_123_456_789,
        // The last second before 32 signed bits of seconds overflow.
        2_147_483_647_000_000_001,
    ];
    let frame = |length: usize, seed: usize| {
        let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
        data.extend((14..length).map(|i| (i * 7 + seed) as u8));
        data
    };
    let lengths = [14, 15, 16, 17, 60, 1_514, 65_549];
    let all = lengths.iter().enumerate().map(|(index, length)| {
        let extra = (index as u32 % 3) * 1_000;
        (
            times[index % times.len()],
            *length as u32 + extra,
            frame(*length, index),
        )
    });
    all.collect()
}

fn write_packets(format: Format) -> Vec<u8> {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: Some("tap0"),
    };
    let mut writer = Writer::new(Vec::new(), format, &[interface]).unwrap();
    for (time, original, data) in packets() {
        writer.write(0, time, original, data.chunks(1_000)).unwrap();
    }
    writer.finish().unwrap()
}

/// Gives each block of a capture to `visit`, read by `pcap-parser`.
fn parse(mut reader: impl PcapReaderIterator, mut visit: impl FnMut(PcapBlockOwned<'_>)) {
    loop {
        match reader.next() {
            Ok((offset, block)) => {
                visit(block);
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("the rest of the block"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn pcap_parser_reads_the_pcapng_written_here() {
    let bytes = write_packets(Format::PcapNg);
    let (mut found, mut interfaces) = (Vec::new(), 0);
    parse(
        PcapNGReader::new(1 << 20, &bytes[..]).unwrap(),
        |block| match block {
            PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                assert_eq!(section.shb_userappl().unwrap().unwrap(), "packtrain");
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                assert_eq!(interface.if_tsresol, 9);
                assert_eq!(interface.linktype, Linktype::ETHERNET);
                assert_eq!(interface.snaplen as usize, MAX_CAPTURED_BYTES);
                assert_eq!(interface.if_name().unwrap().unwrap(), "tap0");
                interfaces += 1;
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                assert_eq!((packet.if_id, packet.options.len()), (0, 0));
                found.push((time, packet.origlen, packet.packet_data().to_vec()));
            }
            _ => panic!("a block that was not written"),
        },
    );
    assert_eq!(interfaces, 1);
    assert_eq!(found, packets());
}

#[test]
fn pcap_parser_reads_the_pcap_written_here() {
    for nanosecond in [false, true] {
        let bytes = write_packets(Format::Pcap { nanosecond });
        let unit = if nanosecond { 1 } else { 1_000 };
        let mut found = Vec::new();
        parse(
            LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap(),
            |block| match block {
                PcapBlockOwned::LegacyHeader(header) => {
                    assert_eq!(header.is_nanosecond_precision(), nanosecond);
                    assert_eq!(header.network, Linktype::ETHERNET);
                    assert_eq!((header.version_major, header.version_minor), (2, 4));
                }
                PcapBlockOwned::Legacy(packet) => {
                    let time = u64::from(packet.ts_sec) * 1_000_000_000;
                    let time = time + u64::from(packet.ts_usec) * unit;
                    found.push((time, packet.origlen, packet.data.to_vec()));
                }
                PcapBlockOwned::NG(_) => panic!("a pcapng block"),
            },
        );
        let mut expected = packets();
        for (time, ..) in &mut expected {
            *time = *time / unit * unit;
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn the_pcapng_that_pcap_parser_writes_is_read_here() {
    let option = |code, value: &'static [u8]| PcapNGOption {
        code,
        len: value.len() as u16,
        value: Cow::Borrowed(value),
    };
    let mut section = SectionHeaderBlock {
        block_type: 0,
        block_len1: 0,
        bom: 0,
        major_version: 0,
        minor_version: 0,
        section_len: -1,
        options: vec![option(OptionCode::Comment, b"made elsewhere")],
        block_len2: 0,
    };
    let mut bytes = section.to_vec().unwrap();
    let mut expected = Vec::new();
    for (index, (if_tsresol, unit)) in [(6, 1_000), (9, 1)].into_iter().enumerate() {
        let mut interface = InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype: Linktype::ETHERNET,
            reserved: 0,
            snaplen: 1_000_000,
            options: vec![option(OptionCode::IfName, b"eth0")],
            block_len2: 0,
            if_tsresol,
            if_tsoffset: 10,
        };
        bytes.extend(interface.to_vec().unwrap());
        for (time, original, data) in packets() {
            let units = time / unit;
            let mut packet = EnhancedPacketBlock {
                block_type: 0,
                block_len1: 0,
                if_id: index as u32,
                ts_high: (units >> 32) as u32,
                ts_low: units as u32,
                caplen: data.len() as u32,
                origlen: original,
                data: &data,
                options: vec![option(OptionCode::Comment, b"a packet")],
                block_len2: 0,
            };
            bytes.extend(packet.to_vec().unwrap());
            expected.push(Owned {
                timestamp_ns: Some(units * unit + 10_000_000_000),
                interface: index as u32,
                link: 1,
                original_bytes: original,
                data,
            });
        }
    }
    let data = b"simple";
    let mut simple = SimplePacketBlock {
        block_type: 0,
        block_len1: 0,
        origlen: 6,
        data,
        block_len2: 0,
    };
    bytes.extend(simple.to_vec().unwrap());
    let data = data.to_vec();
    expected.push(Owned {
        timestamp_ns: None,
        interface: 0,
        link: 1,
        original_bytes: 6,
        data,
    });
    assert_eq!(read_good(&bytes), expected);
}

#[test]
fn the_pcap_that_pcap_parser_writes_is_read_here() {
    for (magic_number, unit) in [(0xa1b2_c3d4, 1_000), (0xa1b2_3c4d, 1)] {
        let header = PcapHeader {
            magic_number,
            ..PcapHeader::new()
        };
        let mut bytes = header.to_vec_raw().unwrap();
        let mut expected = Vec::new();
        for (time, original, data) in packets() {
            let packet = LegacyPcapBlock {
                ts_sec: (time / 1_000_000_000) as u32,
                ts_usec: (time % 1_000_000_000 / unit) as u32,
                caplen: data.len() as u32,
                origlen: original,
                data: &data,
            };
            bytes.extend(packet.to_vec_raw().unwrap());
            let link = header.network.0 as u16;
            let timestamp_ns = Some(time / unit * unit);
            expected.push(Owned {
                timestamp_ns,
                interface: 0,
                link,
                original_bytes: original,
                data,
            });
        }
        assert_eq!(read_good(&bytes), expected);
    }
}

/// Prints to the real standard output, and not to that of the test harness, that a check was
/// skipped.
fn skip(reason: &str) {
    writeln!(io::stdout().lock(), "\nSKIP: {reason}").expect("standard output");
}

/// Packets as tcpdump prints them: time, original length, captured bytes.
fn parse_tcpdump(printed: &str) -> Vec<(u64, u32, Vec<u8>)> {
    let mut packets: Vec<(u64, u32, Vec<u8>)> = Vec::new();
    for line in printed.lines() {
        if let Some(dump) = line.strip_prefix('\t') {
            let (_, digits) = dump.split_once(':').expect("an offset");
            let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
            let bytes = digits
                .chunks(2)
                .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap());
            packets
                .last_mut()
                .expect("a packet before its dump")
                .2
                .extend(bytes);
            continue;
        }
        let (time, rest) = line.split_once(' ').expect("a time");
        let (seconds, fraction) = time.split_once('.').expect("a fraction");
        assert_eq!(fraction.len(), 9, "{line}");
        let time = seconds.parse::<u64>().unwrap() * 1_000_000_000;
        let time = time + fraction.parse::<u64>().unwrap();
        let (_, length) = rest.split_once("length ").expect("a length");
        let digits = length
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(length.len());
        packets.push((time, length[..digits].parse().unwrap(), Vec::new()));
    }
    packets
}

#[test]
fn tcpdump_reads_what_is_written_here() {
    if let Err(error) = Command::new("tcpdump").arg("--version").output() {
        skip(&format!(
            "tcpdump cannot be run, so it does not check our captures: {error}"
        ));
        return;
    }
    for format in FORMATS {
        // By a descriptor: tcpdump drops its privileges before it opens a file by name.
        let path = std::env::temp_dir().join(format!(
            "packtrain-oracle-{}-{format:?}",
            std::process::id()
        ));
        let mut file = std::fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&write_packets(format)).unwrap();
        file.rewind().unwrap();
        let output = Command::new("tcpdump")
            .args(["-r", "-", "-tt", "--nano", "-n", "-e", "-xx"])
            .stdin(Stdio::from(file))
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{format:?}: {complaints}");
        let unit = if format == (Format::Pcap { nanosecond: false }) {
            1_000
        } else {
            1
        };
        let mut expected = packets();
        for (time, ..) in &mut expected {
            *time = *time / unit * unit;
        }
        let found = parse_tcpdump(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(found, expected, "{format:?}: {complaints}");
    }
}
