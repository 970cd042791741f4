//! One test for each rule of the formats.

use std::io::{self, Cursor, Read, Write};

use super::*;

fn owned(timestamp_ns: Option<u64>, interface: u32, link: u16, data: &[u8]) -> Owned {
    let original_bytes = data.len() as u32;
    Owned {
        timestamp_ns,
        interface,
        link,
        original_bytes,
        data: data.to_vec(),
    }
}

#[test]
fn classic_magics_give_order_and_unit() {
    for order in BOTH {
        for (magic, nanosecond, unit) in [(0xa1b2_c3d4, false, 1_000), (0xa1b2_3c4d, true, 1)] {
            let file = File::pcap(order, magic, 101).record(7, 999_999, 1_500, b"abc");
            let mut reader = Reader::new(&file.bytes[..]).unwrap();
            assert_eq!(reader.format(), Format::Pcap { nanosecond });
            assert_eq!(reader.first_link(), Ok(Some(LinkCode::RAW)));
            let record = reader.next_record().unwrap().unwrap();
            assert_eq!(record.timestamp_ns, Some(7_000_000_000 + 999_999 * unit));
            assert_eq!((record.interface, record.link), (0, LinkCode::RAW));
            assert_eq!((record.original_bytes, record.data), (1_500, &b"abc"[..]));
            assert_eq!(reader.next_record(), Ok(None));
            assert_eq!(
                (reader.records(), reader.offset()),
                (1, file.bytes.len() as u64)
            );
        }
    }
}

#[test]
fn classic_link_type_is_the_lower_half() {
    let file = File::pcap(ByteOrder::Big, 0xa1b2_c3d4, 0x2400_0001).record(0, 0, 1, b"x");
    assert_eq!(read_good(&file.bytes)[0].link, 1);
}

/// Of 8 bytes on the wire, as many as the capture has.
#[test]
fn a_declared_fcs_is_no_part_of_a_packet() {
    let whole = b"abcdFCS!";
    // The declaration, and what is left of the packet.
    let classic = [
        (0x2400_0001_u32, 4),
        (0x1400_0001, 6),
        (0x2000_0001, 8),
        (0xf400_0001, 0),
    ];
    // `if_fcslen`, also in bits; the flags of the packet, which override it.
    let option = |value: u8| vec![value];
    let pcapng = [
        (option(4), None, 4),
        (option(32), None, 4),
        (option(16), None, 6),
        (option(0), None, 8),
        (vec![4; 2], None, 8),
        (option(4), Some(0x41_u32), 6),
        (option(4), Some(0x01), 4),
        (option(0), Some(0x81), 4),
    ];
    let mut files = Vec::new();
    for (order, have) in BOTH
        .into_iter()
        .flat_map(|order| (0..9).map(move |n| (order, n)))
    {
        let data = &whole[..have];
        for (link, left) in classic {
            let file = File::pcap(order, 0xa1b2_c3d4, link).record(0, 0, 8, data);
            files.push((file.bytes, have, left));
        }
        for (length, flags, left) in &pcapng {
            let file = File::pcapng(order).interface(1, 0, &[(13, length)]);
            let body = file.body().u32(0).u32(0).u32(0).u32(have as u32).u32(8);
            let body = body.raw(data).pad();
            let body = match flags {
                Some(flags) => body.u16(2).u16(4).u32(*flags).u32(0),
                None => body,
            };
            files.push((file.block(6, &body.bytes).bytes, have, *left));
        }
        let simple = File::pcapng(order).interface(1, have as u32, &[(13, &[4])]);
        if have > 0 {
            files.push((simple.simple(8, data).bytes, have, 4));
        }
    }
    for (file, have, left) in files {
        let read = &read_good(&file)[0];
        let expected = (&whole[..have.min(left)], left as u32, 1);
        assert_eq!(
            (&read.data[..], read.original_bytes, read.link),
            expected,
            "{file:x?}"
        );
    }
}

#[test]
fn classic_fraction_beyond_a_second_is_carried() {
    let file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1).record(!0, !0, 1, b"x");
    let expected = u64::from(u32::MAX) * 1_000_000_000 + u64::from(u32::MAX) * 1_000;
    assert_eq!(read_good(&file.bytes)[0].timestamp_ns, Some(expected));
}

#[test]
fn original_length_is_never_below_the_captured() {
    let classic = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1).record(0, 0, 0, b"abcde");
    let file = File::pcapng(ByteOrder::Little)
        .interface(1, 0, &[])
        .enhanced(0, 0, (5, 2), b"abcde");
    for bytes in [classic.bytes, file.bytes] {
        assert_eq!(read_good(&bytes), [owned(Some(0), 0, 1, b"abcde")]);
    }
}

/// The lengths of a record, in the order of its version. In 2.3 both orders were written.
#[test]
fn old_versions_have_the_lengths_of_a_record_in_the_other_order() {
    for (minor, first, second) in [
        (0, 60_u32, 4_u32),
        (2, 60, 4),
        (3, 60, 4),
        (3, 4, 60),
        (4, 4, 60),
    ] {
        let mut bytes = File::pcap(ByteOrder::Big, 0xa1b2_c3d4, 1).bytes;
        bytes[7] = minor;
        for field in [1, 0, first, second] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(b"data");
        let read = read_all(&bytes[..]);
        let [Ok(record)] = &read[..] else {
            panic!("2.{minor}: {read:?}");
        };
        assert_eq!(
            (record.original_bytes, &record.data[..]),
            (60, &b"data"[..])
        );
    }
}

#[test]
fn unknown_magic_and_versions_are_refused() {
    let error = read_all(&b"GIF89a and so on, and so on"[..])
        .remove(0)
        .unwrap_err();
    assert_eq!(error, CaptureError::UnknownMagic { magic: *b"GIF8" });
    let little = || File::pcapng(ByteOrder::Little);
    let magic = [0, 0x3c, 0x2b, 0x1a];
    for (mut file, at, byte, fault) in [
        (
            File::pcap(ByteOrder::Big, 0xa1b2_c3d4, 1),
            5,
            3,
            StructureFault::Version { major: 3, minor: 4 },
        ),
        (
            little(),
            12,
            2,
            StructureFault::Version { major: 2, minor: 0 },
        ),
        (little(), 8, 0, StructureFault::ByteOrderMagic { magic }),
    ] {
        file.bytes[at] = byte;
        let expected = CaptureError::Structure {
            fault,
            offset: 0,
            record: 1,
        };
        assert_eq!(read_all(&file.bytes[..]), [Err(expected)]);
    }
}

#[test]
fn sections_change_order_and_forget_interfaces() {
    for (first, second) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
        let file = File::pcapng(first)
            .interface(1, 0, &[])
            .interface(101, 0, &[])
            .enhanced(1, 5, (1, 1), b"a")
            .section(second)
            .interface(229, 0, &[])
            .enhanced(0, 6, (2, 2), b"bc")
            .enhanced(1, 7, (1, 1), b"d");
        let outcome = read_all(&file.bytes[..]);
        assert_eq!(outcome[0], Ok(owned(Some(5_000), 1, 101, b"a")));
        assert_eq!(outcome[1], Ok(owned(Some(6_000), 0, 229, b"bc")));
        let offset = file.bytes.len() as u64 - 36;
        let fault = RecordFault::NoSuchInterface { interface: 1 };
        assert_eq!(
            outcome[2],
            Err(CaptureError::Record {
                fault,
                offset,
                record: 3
            })
        );
        assert_eq!(outcome.len(), 3);
    }
}

#[test]
fn time_resolutions_and_offsets() {
    const SECOND: u64 = 1_000_000_000;
    // Resolution, offset in seconds, units, nanoseconds.
    let cases: [(u8, i64, u64, u64); 17] = [
        (6, 0, 1_234_567, 1_234_567_000),
        (9, 0, u64::MAX, u64::MAX),
        (0, 0, 3, 3 * SECOND),
        (3, 0, 3, 3_000_000),
        (12, 0, 1_999, 1),
        (28, 0, 10_000_000_000_000_000_000, 1),
        (29, 0, u64::MAX, 0),
        (127, 0, u64::MAX, 0),
        (0x80, 0, 2, 2 * SECOND),
        (0x80 | 10, 0, 512, SECOND / 2),
        (0x80 | 32, 0, (5 << 32) + (1 << 30), 5 * SECOND + SECOND / 4),
        (0x80 | 127, 0, u64::MAX, 0),
        (9, 100, 7, 100 * SECOND + 7),
        (9, -1, SECOND + 1, 1),
        (9, -1, SECOND - 1, 0),
        (0, 0, u64::MAX, u64::MAX),
        (9, i64::MAX, u64::MAX, u64::MAX),
    ];
    for order in BOTH {
        for (resolution, seconds, units, expected) in cases {
            let offset = match order {
                ByteOrder::Little => seconds.to_le_bytes(),
                ByteOrder::Big => seconds.to_be_bytes(),
            };
            let file = File::pcapng(order)
                .interface(1, 0, &[(9, &[resolution]), (14, &offset), (0, &[])])
                .enhanced(0, units, (1, 1), b"x")
                .enhanced(0, 0, (0, 0), b"");
            let outcome = read_all(&file.bytes[..]);
            let stamp = outcome[0].as_ref().map(|record| record.timestamp_ns);
            assert_eq!(stamp, Ok(Some(expected)), "{resolution} {seconds} {units}");
            assert_eq!(outcome.len(), 2, "the record behind is met in any case");
        }
    }
}

#[test]
fn options_after_the_end_marker_are_not_read() {
    let file = File::pcapng(ByteOrder::Little)
        .interface(1, 0, &[(0, &[]), (9, &[9])])
        .enhanced(0, 4, (1, 1), b"x");
    assert_eq!(read_good(&file.bytes), [owned(Some(4_000), 0, 1, b"x")]);
}

#[test]
fn simple_packets_take_their_length_from_the_snapshot() {
    for order in BOTH {
        let file = File::pcapng(order)
            .interface(1, 3, &[])
            .simple(9, b"abc")
            .simple(2, b"de");
        let records = read_good(&file.bytes);
        assert_eq!(
            records[0],
            Owned {
                original_bytes: 9,
                ..owned(None, 0, 1, b"abc")
            }
        );
        assert_eq!(records[1], owned(None, 0, 1, b"de"));
        let file = File::pcapng(order).interface(1, 0, &[]).simple(5, b"abcde");
        assert_eq!(read_good(&file.bytes), [owned(None, 0, 1, b"abcde")]);
    }
}

#[test]
fn obsolete_packet_blocks_are_read() {
    for order in BOTH {
        let file = File::pcapng(order)
            .interface(1, 0, &[])
            .interface(101, 0, &[]);
        let body = file
            .body()
            .u16(1)
            .u16(77)
            .u32(1)
            .u32(2)
            .u32(3)
            .u32(4)
            .raw(b"abc")
            .pad();
        let file = file.block(2, &body.bytes);
        let units = (1 << 32) + 2;
        let expected = Owned {
            original_bytes: 4,
            ..owned(Some(units * 1_000), 1, 101, b"abc")
        };
        assert_eq!(read_good(&file.bytes), [expected]);
    }
}

#[test]
fn unknown_blocks_and_packet_options_are_skipped() {
    let file = File::pcapng(ByteOrder::Big)
        .block(0x8000_1234, &[7; 400_000])
        .block(77, &[]);
    let file = file
        .interface(1, 0, &[])
        .block(4, &[1; 16])
        .block(5, &[2; 32]);
    let body = file
        .body()
        .u32(0)
        .u32(0)
        .u32(1)
        .u32(1)
        .u32(1)
        .raw(b"x")
        .pad();
    // A flags option, then one that exceeds the block: options of a packet are not parsed.
    let body = body.u16(2).u16(4).u32(1).u16(3).u16(999);
    let file = file.block(6, &body.bytes);
    assert_eq!(read_good(&file.bytes), [owned(Some(1_000), 0, 1, b"x")]);
}

#[test]
fn first_link_looks_ahead_without_consuming_a_packet() {
    let file = File::pcapng(ByteOrder::Little)
        .block(4, &[0; 8])
        .interface(229, 0, &[])
        .interface(1, 0, &[])
        .enhanced(1, 0, (1, 1), b"x");
    let mut reader = Reader::new(&file.bytes[..]).unwrap();
    assert_eq!(reader.first_link(), Ok(Some(LinkCode::IPV6)));
    assert_eq!(reader.first_link(), Ok(Some(LinkCode::IPV6)));
    assert_eq!(drain(&mut reader), [Ok(owned(Some(0), 1, 1, b"x"))]);

    let file = File::pcapng(ByteOrder::Little).enhanced(0, 0, (1, 1), b"x");
    let mut reader = Reader::new(&file.bytes[..]).unwrap();
    assert_eq!(reader.first_link(), Ok(None));
    assert_eq!(drain(&mut reader).len(), 1, "the packet is still to be met");
    let file = File::pcapng(ByteOrder::Little);
    assert_eq!(Reader::new(&file.bytes[..]).unwrap().first_link(), Ok(None));
}

#[test]
fn rewind_starts_over_also_after_a_fatal_error() {
    let file = File::pcapng(ByteOrder::Big)
        .interface(1, 0, &[])
        .enhanced(0, 1, (1, 1), b"x")
        .section(ByteOrder::Little)
        .u32(6)
        .u32(3);
    let mut reader = Reader::new(Cursor::new(&file.bytes)).unwrap();
    let first = drain(&mut reader);
    assert_eq!(first.len(), 2);
    let error = *first[1].as_ref().unwrap_err();
    assert!(error.is_fatal());
    assert_eq!(reader.next_record(), Err(error), "a fatal error stays");
    assert_eq!(reader.first_link(), Err(error));
    for _ in 0..3 {
        reader.rewind().unwrap();
        assert_eq!(reader.records(), 0);
        assert_eq!(drain(&mut reader), first);
    }
}

#[test]
fn a_rewind_of_an_input_that_is_no_longer_a_capture_fails_and_stays_failed() {
    let file = File::pcap(ByteOrder::Little, 0xa1b2_c3d4, 1).record(0, 0, 1, b"x");
    let path = std::env::temp_dir().join(format!("packtrain-rewind-{}", std::process::id()));
    std::fs::write(&path, &file.bytes).unwrap();
    let mut reader = Reader::new(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(drain(&mut reader).len(), 1);
    std::fs::write(&path, b"changed!").unwrap();
    let error = CaptureError::UnknownMagic { magic: *b"chan" };
    assert_eq!(reader.rewind(), Err(error));
    assert_eq!(reader.next_record(), Err(error));
    std::fs::write(&path, &file.bytes).unwrap();
    reader.rewind().unwrap();
    assert_eq!(drain(&mut reader).len(), 1);
    std::fs::remove_file(&path).unwrap();
}

/// An input that returns one byte at a time, and `WouldBlock` or `Interrupted` in between.
struct Drip<'a> {
    bytes: &'a [u8],
    calls: u32,
}

impl Read for Drip<'_> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        // Only the header does not block, since `new` does not wait.
        match self.calls % 3 {
            1 if self.calls > 100 => Err(io::ErrorKind::WouldBlock.into()),
            2 => Err(io::ErrorKind::Interrupted.into()),
            _ => self.bytes.read(&mut space[..1]),
        }
    }
}

#[test]
fn an_input_may_block_anywhere() {
    let oversized = vec![0x55; 3_000];
    let file = File::pcapng(ByteOrder::Big)
        .block(9, &oversized)
        .interface(1, 0, &[(9, &[9])])
        .interface(1, 0, &[(9, &[9, 9])])
        .enhanced(0, 1, (5, 5), b"abcde")
        .enhanced(1, 2, (5, 5), b"abcde")
        .section(ByteOrder::Little)
        .interface(101, 0, &[])
        .enhanced(0, 3, (9, 9), b"abc");
    let expected = read_all(&file.bytes[..]);
    assert_eq!(expected.len(), 4);
    assert_eq!(
        read_all(Drip {
            bytes: &file.bytes,
            calls: 0
        }),
        expected
    );
    let file = File::pcap(ByteOrder::Big, 0xa1b2_c3d4, 1).record(1, 2, 3_000, &oversized);
    assert_eq!(
        read_all(Drip {
            bytes: &file.bytes,
            calls: 0
        }),
        read_all(&file.bytes[..])
    );
}

#[test]
fn a_failing_input_is_an_error_with_its_position() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }
    let file = File::pcap(ByteOrder::Big, 0xa1b2_c3d4, 1).u32(1);
    let outcome = read_all(file.bytes.chain(Failing));
    let fault = IoFault {
        kind: io::Error::from_raw_os_error(5).kind(),
        os_error: Some(5),
    };
    assert_eq!(outcome, [Err(CaptureError::Io { fault, offset: 28 })]);
    assert!(
        outcome[0]
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("at byte 28")
    );
}

const ETHERNET: Interface<'static> = Interface {
    link: LinkCode::ETHERNET,
    snaplen: 0,
    name: None,
};

#[test]
fn written_bytes_are_as_the_formats_specify() {
    let pcap = Format::Pcap { nanosecond: true };
    let interface = Interface {
        snaplen: 100,
        ..ETHERNET
    };
    let mut writer = Writer::new(Vec::new(), pcap, &[interface]).unwrap();
    writer
        .write(0, 3_000_000_004, 9, [&b"ab"[..], b"", b"c"])
        .unwrap();
    let expected = File::pcap(ByteOrder::Little, 0xa1b2_3c4d, 1).record(3, 4, 9, b"abc");
    let mut expected = expected.bytes;
    expected[16] = 100;
    expected[17] = 0;
    assert_eq!(writer.finish().unwrap(), expected);

    let interface = Interface {
        name: Some("tap0"),
        ..interface
    };
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).unwrap();
    writer.write(0, (5 << 32) + 6, 9, [b"abcde"]).unwrap();
    let written = writer.finish().unwrap();
    let file = File::empty(ByteOrder::Little);
    let section = file.body().u32(0x1a2b_3c4d).u16(1).u16(0).u32(!0).u32(!0);
    let section = section.u16(4).u16(9).raw(b"packtrain").pad().u32(0);
    let expected = file
        .block(0x0a0d_0d0a, &section.bytes)
        .interface(1, 100, &[(2, b"tap0"), (9, &[9]), (0, &[])])
        .enhanced(0, (5 << 32) + 6, (5, 9), b"abcde");
    assert_eq!(written, expected.bytes);
}

#[test]
fn a_writer_truncates_to_the_snapshot_length_across_pieces() {
    for format in [Format::Pcap { nanosecond: false }, Format::PcapNg] {
        let interface = Interface {
            snaplen: 5,
            ..ETHERNET
        };
        let mut writer = Writer::new(Vec::new(), format, &[interface]).unwrap();
        writer
            .write(0, 1_000, 0, [&b"abcd"[..], b"efgh", b"ij"])
            .unwrap();
        let records = read_good(&writer.finish().unwrap());
        let expected = Owned {
            original_bytes: 10,
            ..owned(Some(1_000), 0, 1, b"abcde")
        };
        assert_eq!(records, [expected]);
    }
}

#[test]
fn the_largest_record_is_written_and_read_and_a_larger_one_truncated() {
    let piece = vec![0xa5; MAX_CAPTURED_BYTES];
    for format in [Format::Pcap { nanosecond: true }, Format::PcapNg] {
        let interface = Interface {
            snaplen: u32::MAX,
            ..ETHERNET
        };
        let mut writer = Writer::new(Vec::new(), format, &[interface]).unwrap();
        writer.write(0, 1, 0, [&piece]).unwrap();
        writer.write(0, 2, 0, [&piece, &piece]).unwrap();
        let records = read_good(&writer.finish().unwrap());
        assert_eq!(records.len(), 2);
        for (record, pieces) in records.iter().zip([1, 2]) {
            assert_eq!(record.data, piece);
            assert_eq!(record.original_bytes as usize, pieces * MAX_CAPTURED_BYTES);
        }
    }
}

#[test]
fn a_refused_packet_is_not_in_the_capture() {
    let pcap = Format::Pcap { nanosecond: false };
    for (format, count) in [(pcap, 0), (pcap, 2), (Format::PcapNg, MAX_INTERFACES + 1)] {
        let error = Writer::new(io::sink(), format, &vec![ETHERNET; count]).unwrap_err();
        assert_eq!(error, WriteError::InterfaceCount { count });
    }
    let name = "x".repeat(MAX_NAME_BYTES + 1);
    let interface = Interface {
        name: Some(&name),
        ..ETHERNET
    };
    let error = Writer::new(io::sink(), Format::PcapNg, &[interface]).unwrap_err();
    assert_eq!(
        error,
        WriteError::NameTooLong {
            bytes: MAX_NAME_BYTES + 1
        }
    );

    let mut writer = Writer::new(Vec::new(), pcap, &[ETHERNET]).unwrap();
    let missing = WriteError::NoSuchInterface { interface: 1 };
    assert_eq!(writer.write(1, 0, 0, [b"a"]), Err(missing));
    // Seconds have 32 bits: later times become the last one.
    let timestamp_ns = (1 << 32) * 1_000_000_000;
    for late in [timestamp_ns - 1, timestamp_ns, u64::MAX] {
        writer.write(0, late, 0, [b"b"]).unwrap();
    }
    assert_eq!(writer.records(), 3);
    let expected = owned(Some(timestamp_ns - 1_000), 0, 1, b"b");
    let three = [&expected; 3].map(Clone::clone);
    assert_eq!(read_good(&writer.finish().unwrap()), three);
}

#[test]
fn the_most_interfaces_are_written_and_read() {
    let name = "x".repeat(MAX_NAME_BYTES);
    let interfaces = vec![
        Interface {
            name: Some(&name),
            ..ETHERNET
        };
        MAX_INTERFACES
    ];
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &interfaces).unwrap();
    let last = MAX_INTERFACES as u32 - 1;
    writer.write(last, 5, 0, [b"a"]).unwrap();
    assert_eq!(
        read_good(&writer.finish().unwrap()),
        [owned(Some(5), last, 1, b"a")]
    );
}

/// An output that accepts at most seven bytes at a time, and none while `closed`.
#[derive(Debug, Default)]
struct Trickle {
    bytes: Vec<u8>,
    closed: bool,
    calls: u32,
}

impl Write for &mut Trickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.closed || self.calls.is_multiple_of(1_000) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.calls.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = bytes.len().min(7);
        self.bytes.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_output_that_blocks_loses_only_the_refused_packets() {
    let mut output = Trickle::default();
    let mut writer = Writer::new(&mut output, Format::PcapNg, &[ETHERNET]).unwrap();
    let mut expected = Vec::new();
    let mut refused = 0;
    for time in 0..2_000 {
        let data = [time as u8; 333];
        match writer.write(0, time, 0, [data]) {
            Ok(()) => expected.push(owned(Some(time), 0, 1, &data)),
            Err(WriteError::Io(fault)) => {
                assert_eq!(fault.kind, io::ErrorKind::WouldBlock);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    while writer.flush().is_err() {}
    drop(writer);
    assert_eq!(read_good(&output.bytes), expected);
}

#[test]
fn what_a_full_output_has_of_a_record_is_known() {
    for format in [Format::Pcap { nanosecond: true }, Format::PcapNg] {
        let mut whole = Writer::new(Vec::new(), format, &[ETHERNET]).unwrap();
        let mut ends = vec![whole.position()];
        for time in 0..5 {
            let data = vec![7_u8; 100 + time as usize];
            whole.write(0, time, 0, [data]).unwrap();
            ends.push(whole.position());
        }
        let whole = whole.finish().unwrap();
        for room in ends[0]..whole.len() as u64 {
            let mut output = vec![0; room as usize];
            let mut writer = Writer::new(&mut output[..], format, &[ETHERNET]).unwrap();
            for time in 0..5 {
                let data = vec![7_u8; 100 + time as usize];
                writer.write(0, time, 0, [data]).unwrap();
            }
            assert!(writer.flush().is_err());
            let last = ends.iter().rfind(|end| **end <= room).unwrap();
            assert_eq!(writer.begun(), room - last, "{room}");
            drop(writer);
            assert_eq!(output, whole[..room as usize]);
        }
    }
}

#[test]
fn the_drop_of_a_writer_writes_the_buffered_bytes() {
    let mut output = Trickle::default();
    let mut writer = Writer::new(&mut output, Format::PcapNg, &[ETHERNET]).unwrap();
    writer.write(0, 1, 0, [b"abc"]).unwrap();
    drop(writer);
    assert_eq!(read_good(&output.bytes), [owned(Some(1), 0, 1, b"abc")]);

    let mut closed = Trickle {
        closed: true,
        ..Trickle::default()
    };
    let error = Writer::new(&mut closed, Format::PcapNg, &[ETHERNET]).unwrap_err();
    let fault = IoFault {
        kind: io::ErrorKind::WouldBlock,
        os_error: None,
    };
    assert_eq!(error, WriteError::Io(fault));
    assert!(closed.bytes.is_empty());
    let mut full = [0_u8; 10];
    let error = Writer::new(&mut full[..], Format::PcapNg, &[ETHERNET]).unwrap_err();
    let fault = IoFault {
        kind: io::ErrorKind::WriteZero,
        os_error: None,
    };
    assert_eq!(error, WriteError::Io(fault));
}

/// An input and output that states more bytes than it was given.
struct Boasting;

impl Read for Boasting {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        assert!(!space.is_empty());
        Ok(usize::MAX)
    }
}

impl Write for Boasting {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Ok(usize::MAX)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_wrong_length_of_an_input_or_output_is_clipped() {
    let file = File::pcap(ByteOrder::Big, 0xa1b2_c3d4, 1);
    let mut reader = Reader::new(file.bytes.chain(Boasting)).unwrap();
    // The rest of the buffer is zeros, so empty records.
    for _ in 0..100_000 {
        assert_eq!(reader.next_record().unwrap().unwrap().data, b"");
    }
    let mut writer = Writer::new(Boasting, Format::PcapNg, &[ETHERNET]).unwrap();
    for time in 0..1_000 {
        writer.write(0, time, 0, [[0; 1_000]]).unwrap();
    }
    writer.flush().unwrap();
}

#[test]
fn no_buffer_grows_after_construction() {
    for format in [Format::Pcap { nanosecond: true }, Format::PcapNg] {
        let mut output = Trickle::default();
        let mut writer = Writer::new(&mut output, format, &[ETHERNET]).unwrap();
        let before = writer.capacity();
        let largest = vec![0; MAX_CAPTURED_BYTES];
        for index in 0..200 {
            let data = if index % 2 == 0 {
                &largest[..]
            } else {
                &largest[..65_000]
            };
            if let Err(error) = writer.write(0, 0, 0, [data]) {
                assert!(matches!(error, WriteError::Io(_)), "{error}");
            }
            assert_eq!(writer.capacity(), before);
        }
    }
    let mut file = File::pcapng(ByteOrder::Little);
    for _ in 0..MAX_INTERFACES + 9 {
        file = file.interface(1, 0, &[]);
    }
    let bytes = [&file.bytes[..], &file.bytes].concat();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let before = reader.capacity();
    assert_eq!(drain(&mut reader).len(), 18);
    assert_eq!(reader.capacity(), before);
}
