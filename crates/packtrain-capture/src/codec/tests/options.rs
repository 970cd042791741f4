//! Options, and blocks that hold no packet, in either byte order, as a replay copies them.

use super::*;
use crate::replay::{Options, Report, run};

const ENTERPRISE: u32 = 32_473;

/// Options of a block, with an end.
fn list(file: File, options: &[(u16, Vec<u8>)]) -> File {
    let each = |file: File, (code, value): &(u16, Vec<u8>)| {
        let bytes = value.len() as u16;
        file.u16(*code).u16(bytes).raw(value).pad()
    };
    options.iter().fold(file, each).u32(0)
}

/// A capture with everything that can be copied, in that byte order. `is_copy`: as its copy is,
/// with times in nanoseconds and without what is not copied.
fn everything(order: ByteOrder, is_copy: bool) -> File {
    let body = || File::empty(order);
    let long = |value: u64| match order {
        ByteOrder::Little => value.to_le_bytes(),
        ByteOrder::Big => value.to_be_bytes(),
    };
    let int = |value: u32| body().u32(value).bytes;
    let time = |microseconds: u64| {
        let units = if is_copy {
            microseconds * 1000
        } else {
            microseconds
        };
        body().u32((units >> 32) as u32).u32(units as u32).bytes
    };
    let text = |text: &str| text.as_bytes().to_vec();
    let secret_option = || [int(ENTERPRISE), text("no")].concat();

    let mut interface = vec![
        (2, text("eth0")),
        (3, text("the uplink")),
        (8, long(10_000_000_000).to_vec()),
        (11, text("\0tcp port 80")),
        (2988, [int(ENTERPRISE), text("a text")].concat()),
    ];
    if is_copy {
        interface.push((9, vec![9]));
    } else {
        interface.insert(1, (19372, secret_option()));
        interface.insert(2, (9, vec![6]));
        interface.insert(3, (14, long(0).to_vec()));
    }
    let snaplen = if is_copy {
        MAX_CAPTURED_BYTES as u32
    } else {
        0
    };
    let interface = list(body().u16(1).u16(0).u32(snaplen), &interface);

    let names = body()
        .u16(1)
        .u16(12)
        .raw(&[198, 18, 0, 1])
        .raw(b"a.local\0");
    let names = list(names.u32(0), &[(2, text("a server")), (1, text("names"))]);
    let secrets = body().u32(0x544c_534b).u32(5).raw(b"key=1").pad();
    let secrets = list(secrets, &[(1, text("of a test"))]);
    let custom = body().u32(ENTERPRISE).raw(b"12345678");

    let mut packet = vec![
        (1, text("first")),
        (2, int(0x0100_0002)),
        (4, long(3).to_vec()),
        (5, long(77).to_vec()),
        (6, int(2)),
        (7, [&[1][..], &long(5)].concat()),
        (3, vec![2, 1, 2, 3, 4]),
        (2989, [int(ENTERPRISE), vec![1]].concat()),
        (1, text("second")),
    ];
    if !is_copy {
        packet.push((19373, secret_option()));
    }
    let data = |at: u64| {
        body()
            .u32(0)
            .raw(&time(at))
            .u32(3)
            .u32(60)
            .raw(&[1, 2, 3])
            .pad()
    };
    let statistics = body().u32(0).raw(&time(9_000_000));
    let counters = [
        (2, time(1_000_000)),
        (4, long(500).to_vec()),
        (5, long(7).to_vec()),
    ];

    let file = body().block(1, &interface.bytes);
    let file = file.block(4, &names.bytes).block(10, &secrets.bytes);
    let file = file.block(6, &list(data(2_000_000), &packet).bytes);
    let file = file.block(0xbad, &custom.bytes);
    let file = if is_copy {
        file
    } else {
        // One that must not be copied, and a journal entry.
        file.block(0x4000_0bad, &custom.bytes).block(9, b"A=b\n")
    };
    let file = file.block(6, &data(3_000_000).bytes);
    file.block(5, &list(statistics, &counters).bytes)
}

fn replayed(file: &[u8]) -> (Vec<u8>, Report) {
    let mut out = Vec::new();
    let options = Options {
        coalesce: None,
        ..Options::default()
    };
    let report = run(Reader::new(file).unwrap(), Some(&mut out), &options).unwrap();
    assert!(report.is_closed(), "{report:?}");
    (out, report)
}

#[test]
fn everything_but_packets_is_copied_from_either_byte_order() {
    let kept = [(1, b"of a test".to_vec()), (3, b"an OS".to_vec())];
    let options = list(File::empty(ByteOrder::Little), &kept).bytes;
    let options = &options[..options.len() - 4];
    let ours = Writer::with_section(Vec::new(), Format::PcapNg, &[], options);
    let header = ours.unwrap().finish().unwrap();
    let expected = [header, everything(ByteOrder::Little, true).bytes].concat();
    for order in BOTH {
        let section = File::empty(order).u32(0x1a2b_3c4d).u16(1).u16(0);
        let program = (4, b"another program".to_vec());
        let with_program = [&kept[..], &[program]].concat();
        let section = list(section.u32(!0).u32(!0), &with_program);
        let section = File::empty(order).block(0x0a0d_0d0a, &section.bytes);
        let input = [section.bytes, everything(order, false).bytes].concat();
        let (out, report) = replayed(&input);
        assert_eq!(out, expected, "{order:?}");
        assert_eq!((report.received, report.blocks_left_out), (2, 2));
        assert_eq!(read_good(&out).len(), 2);
    }
    let (again, report) = replayed(&expected);
    assert!(again == expected);
    assert_eq!(report.blocks_left_out, 0);
}

/// The output has no frame check sequence, and declares none.
#[test]
fn a_declared_fcs_is_not_in_the_output() {
    for order in BOTH {
        let flags =
            |file: &File, flags| list(file.body(), &[(2, file.body().u32(flags).bytes)]).bytes;
        let file = File::pcapng(order).interface(1, 0, &[(2, b"eth0"), (13, &[4])]);
        let body = file
            .body()
            .u32(0)
            .u32(0)
            .u32(0)
            .u32(8)
            .u32(8)
            .raw(b"abcdFCS!");
        let body = body.raw(&flags(&file, 0x82));
        let (out, _) = replayed(&file.block(6, &body.bytes).bytes);
        let ours = File::empty(ByteOrder::Little);
        let options: [(u16, &[u8]); 3] = [(2, b"eth0"), (9, &[9]), (0, &[])];
        let plain = ours.interface(1, MAX_CAPTURED_BYTES as u32, &options);
        let body = plain.body().u32(0).u32(0).u32(0).u32(4).u32(4).raw(b"abcd");
        let body = body.raw(&flags(&plain, 2));
        let expected = plain.block(6, &body.bytes).bytes;
        assert!(out.ends_with(&expected), "{out:x?}, not {expected:x?}");

        let classic = File::pcap(order, 0xa1b2_3c4d, 0x2400_0001).record(7, 7, 8, b"abcdFCS!");
        let (out, _) = replayed(&classic.bytes);
        let expected = File::empty(ByteOrder::Little)
            .u32(1)
            .record(7, 7, 4, b"abcd");
        assert_eq!(out[20..], expected.bytes);
    }
}

/// Statistics are of the interface that the output has, not of the one with that index.
#[test]
fn sections_that_differ_in_an_option_have_interfaces_of_their_own() {
    let section = |order, speed: u8| {
        let file = File::pcapng(order).interface(1, 0, &[(8, &[speed; 8])]);
        let file = file.enhanced(0, 1, (1, 1), &[7]);
        let body = File::empty(order).u32(0).u32(0).u32(5).u32(0);
        file.block(5, &body.bytes).bytes
    };
    let [little, big] = BOTH;
    let input = [section(little, 1), section(big, 1), section(little, 2)].concat();
    let (out, report) = replayed(&input);
    assert_eq!((report.interfaces.len(), report.blocks_left_out), (2, 0));
    let packets: Vec<_> = read_good(&out)
        .iter()
        .map(|packet| packet.interface)
        .collect();
    assert_eq!(packets, [0, 0, 1]);
    let statistics = |interface: u8| [&[5, 0, 0, 0, 28, 0, 0, 0, interface][..], &[0; 7]].concat();
    let count = |part: &[u8]| {
        out.windows(part.len())
            .filter(|bytes| *bytes == part)
            .count()
    };
    assert_eq!(
        [0, 1].map(|interface| count(&statistics(interface))),
        [2, 1]
    );
}

#[test]
fn an_interface_behind_one_with_a_bad_description_keeps_its_number() {
    for order in BOTH {
        let section = |file: File| {
            let file = file.interface(101, 96, &[(2, b"one")]);
            let file = file.interface(1, 0, &[(9, &[6, 6])]);
            let file = file.interface(101, 96, &[(2, b"three")]);
            let file = file.enhanced(2, 1, (1, 1), b"x");
            file.enhanced(1, 2, (1, 1), b"y")
                .enhanced(0, 3, (1, 1), b"z")
        };
        let file = section(section(File::pcapng(order)).section(order));
        let (out, report) = replayed(&file.bytes);
        assert_eq!((report.received, report.dropped), (6, 2));
        let names = report.interfaces.iter().map(|seen| seen.name.as_deref());
        let expected = ["one", "bad description", "three"].map(Some);
        assert_eq!(names.collect::<Vec<_>>(), expected);
        let mut reader = Reader::new(&out[..]).unwrap();
        let mut found = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            found.push((record.interface, record.data.to_vec()));
        }
        let section = [(2, b"x".to_vec()), (0, b"z".to_vec())];
        assert_eq!(found, [&section[..], &section].concat());
        for (index, name) in expected.into_iter().enumerate() {
            let interface = Interface {
                link: LinkCode::RAW,
                snaplen: 96,
                name,
            };
            assert_eq!(reader.interface(index as u32), Some(interface));
        }
    }
}

/// In a file that libpcap reads: its interfaces have one link type.
#[test]
fn a_bad_description_before_the_first_good_one_has_its_link_type() {
    for order in BOTH {
        let file = File::pcapng(order).interface(1, 0, &[(9, &[6, 6])]);
        let file = file.interface(101, 96, &[(2, b"two")]);
        let (out, report) = replayed(&file.enhanced(1, 1, (1, 1), b"x").bytes);
        assert_eq!((report.received, report.dropped), (1, 0));
        let mut reader = Reader::new(&out[..]).unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().interface, 1);
        for (index, name) in (0..).zip(["bad description", "two"].map(Some)) {
            let interface = Interface {
                link: LinkCode::RAW,
                snaplen: 96,
                name,
            };
            assert_eq!(reader.interface(index), Some(interface));
        }
    }
}

#[test]
fn long_and_malformed_options_and_blocks_cost_no_packet() {
    let order = ByteOrder::Big;
    let packet = |options: &[u8]| {
        let body = File::empty(order)
            .u32(0)
            .u32(0)
            .u32(1)
            .u32(2)
            .u32(2)
            .raw(&[1, 2])
            .pad();
        body.raw(options).bytes
    };
    let comment = |bytes: u16| {
        let file = File::empty(order).u16(1).u16(bytes);
        file.raw(&vec![b'x'; bytes.into()]).pad().bytes
    };
    let file = File::pcapng(order).interface(1, 0, &[]);
    // More than is kept; a value beyond the block; half an option; a value without its padding.
    let long = [comment(40_000), comment(40_000), comment(1000)].concat();
    let file = file.block(6, &packet(&long));
    let beyond = [comment(8), vec![0, 1, 0, 9, 1, 2, 3, 4]].concat();
    let file = file.block(6, &packet(&beyond));
    let file = file.block(6, &packet(&[comment(4), vec![0, 2, 0, 4]].concat()));
    // Names of which one does not end, and with comments of which one does not, or too many.
    let name = File::empty(order)
        .u16(1)
        .u16(8)
        .raw(b"\xc6\x12\0\x01ab\0\0");
    let names = name.clone().u32(0).bytes;
    let file = file.block(4, &[&name.bytes[..], &[0, 1, 0, 100]].concat());
    let file = file.block(4, &[&names[..], &beyond].concat());
    let file = file.block(4, &[&names[..], &long].concat());
    // Secrets and statistics that are too short, and of no interface, and with such a comment.
    let file = file.block(10, &File::empty(order).u32(1).u32(9).raw(&[1; 8]).bytes);
    let file = file.block(5, &[0; 8]).block(5, &[1; 12]).block(0xbad, &[]);
    let file = file.block(5, &[&[0; 12][..], &beyond].concat());
    // Secrets that are too long to be held.
    let file = file.block(10, &vec![0; MAX_BLOCK_BYTES]);
    let (out, report) = replayed(&file.bytes);
    assert_eq!((report.received, report.dropped), (3, 0));
    assert_eq!(report.blocks_left_out, 8);
    let mut reader = Reader::new(&out[..]).unwrap();
    let mut kept = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        kept.push(record.options.to_vec().len());
    }
    assert_eq!(kept, [40_004, 12, 8]);

    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[]).unwrap();
    let long = vec![0; MAX_BLOCK_BYTES];
    let refused = WriteError::OptionsTooLong { bytes: long.len() };
    assert_eq!(writer.write_block(10, &long), Err(refused));
    assert_eq!(writer.records(), 0);
}

#[test]
fn a_reader_of_items_finds_the_same_packets() {
    let input = [
        File::pcapng(ByteOrder::Big),
        everything(ByteOrder::Big, false),
    ];
    let input = input.map(|file| file.bytes).concat();
    let mut reader = Reader::new(&input[..]).unwrap();
    let mut found: Outcome = Vec::new();
    let mut others = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        match item.map(Owned::from) {
            Item::Record(record) => found.push(Ok(record)),
            Item::Interface(_) => others.push(1),
            Item::Block { kind, .. } => others.push(kind),
            Item::LeftOut => others.push(0),
        }
    }
    assert_eq!(found, read_all(&input[..]));
    assert_eq!(others, [1, 4, 10, 0xbad, 0, 0, 5]);
}

/// A Simple Packet Block has no options, also if it has more data than its interface captures.
#[test]
fn the_data_of_a_simple_packet_is_not_parsed_as_options() {
    for order in BOTH {
        let comment = list(File::empty(order), &[(1, b"no comment".to_vec())]);
        let data = [&[7; 68][..], &comment.bytes].concat();
        let file = File::pcapng(order).interface(1, 68, &[]).simple(100, &data);
        let mut reader = Reader::new(&file.bytes[..]).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.data, record.original_bytes), (&data[..68], 100));
        assert_eq!(record.options.to_vec(), []);
    }
}

/// Names and secrets are parsed in both byte orders, so what must not be copied is left out.
#[test]
fn names_and_secrets_are_copied_alike_from_either_byte_order() {
    let little = File::empty(ByteOrder::Little);
    let names = |file: File| file.u16(1).u16(8).raw(b"\xc6\x12\0\x01ab\0\0").u32(0);
    let secrets = |file: File| file.u32(0x544c_534b).u32(5).raw(b"key=1").pad();
    let kept = [(1, b"kept".to_vec())];
    let private = [(19372, vec![1; 8]), kept[0].clone(), (19373, vec![2; 8])];
    let expected = [
        Some((4, list(names(little.clone()), &kept).bytes)),
        Some((10, list(secrets(little), &kept).bytes)),
        None,
    ];
    for order in BOTH {
        let body = || File::empty(order);
        let file = File::pcapng(order).block(4, &list(names(body()), &private).bytes);
        let file = file.block(10, &list(secrets(body()), &private).bytes);
        // Secrets that are longer than their block.
        let file = file.block(10, &body().u32(0x544c_534b).u32(!0).raw(b"key=").bytes);
        let mut reader = Reader::new(&file.bytes[..]).unwrap();
        let mut found = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            found.push(match item {
                Item::Block { kind, body, .. } => Some((kind, body)),
                _ => None,
            });
        }
        assert_eq!(found, expected, "{order:?}");
    }
}

/// What the writer adds to the longest options leaves its output readable, and copies of it equal.
#[test]
fn copies_of_the_longest_options_can_be_read_and_copied() {
    for order in BOTH {
        let filler = |bytes: usize| {
            let comment = |bytes: usize| {
                let file = File::empty(order).u16(1).u16(bytes as u16 - 4);
                file.raw(&vec![b'x'; bytes - 4]).bytes
            };
            [comment(bytes / 2), comment(bytes - bytes / 2)].concat()
        };
        let options = filler(MAX_OPTION_BYTES);
        let body = || File::empty(order);
        let section = body().u32(0x1a2b_3c4d).u16(1).u16(0).u32(!0).u32(!0);
        let file = body().block(0x0a0d_0d0a, &section.raw(&options).bytes);
        let file = file.block(1, &body().u16(1).u16(0).u32(0).raw(&options).bytes);
        let captured = MAX_CAPTURED_BYTES as u32;
        let packet = body().u32(0).u32(0).u32(1).u32(captured).u32(captured);
        let packet = packet.raw(&vec![7; MAX_CAPTURED_BYTES]).raw(&options);
        let file = file.block(6, &packet.bytes);
        // Secrets whose end of options, 4 bytes, makes the block too long, and fits exactly.
        let secrets = |bytes: usize| {
            let file = body().u32(1).u32(bytes as u32);
            let file = file.raw(&vec![7; bytes]);
            file.u16(1).u16(4).raw(b"note").bytes
        };
        let file = file.block(10, &secrets(MAX_BODY_BYTES - 16));
        let file = file.block(10, &secrets(MAX_BODY_BYTES - 20));
        let (out, report) = replayed(&file.bytes);
        assert_eq!((report.received, report.dropped), (1, 0), "{order:?}");
        assert_eq!((report.blocks_left_out, report.last_bad), (1, None));
        let (again, report) = replayed(&out);
        assert_eq!((report.received, report.blocks_left_out), (1, 0));
        assert!(again == out, "{order:?}");
        let reader = Reader::new(&out[..]).unwrap();
        assert_eq!(reader.section_options().len(), MAX_OPTION_BYTES);
    }
}

/// Only verdicts of eBPF are integers; those of hardware and of unknown types stay as they are.
#[test]
fn verdicts_that_are_not_integers_are_not_reversed() {
    let verdicts = |first: [u8; 2]| {
        let verdict = |kind: u8, first: u8| [&[kind, first][..], &[0; 6], &[9 - first]].concat();
        let kinds = [(0, 1), (1, first[0]), (2, first[1]), (3, 1)];
        kinds.map(|(kind, first)| (7, verdict(kind, first)))
    };
    let order = ByteOrder::Big;
    let body = File::empty(order).raw(&[0; 20]);
    let file = File::pcapng(order).interface(1, 0, &[]);
    let file = file.block(6, &list(body, &verdicts([1, 2])).bytes);
    let mut reader = Reader::new(&file.bytes[..]).unwrap();
    let options = reader.next_record().unwrap().unwrap().options.to_vec();
    let expected = list(File::empty(ByteOrder::Little), &verdicts([8, 7])).bytes;
    assert_eq!(options, expected[..expected.len() - 4]);
}
