//! Properties over arbitrary captures and arbitrary bytes.

use std::io::Cursor;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const CASES: u32 = 256;

/// Interface choice, time, bytes beyond the captured ones, data.
type Packet = (usize, u64, u32, Vec<u8>);

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    // Any time that classic pcap can express.
    let time = 0..(1_u64 << 32) * 1_000_000_000;
    vec(
        (
            any::<usize>(),
            time,
            0..70_000_u32,
            vec(any::<u8>(), 0..200),
        ),
        0..20,
    )
}

/// Writes packets by hand in the byte order that the writer does not use.
fn by_hand(order: ByteOrder, format: Format, links: &[u16], packets: &[Packet]) -> Vec<u8> {
    let mut file = match format {
        Format::Pcap { nanosecond: true } => File::pcap(order, 0xa1b2_3c4d, links[0].into()),
        Format::Pcap { nanosecond: false } => File::pcap(order, 0xa1b2_c3d4, links[0].into()),
        Format::PcapNg => links.iter().fold(File::pcapng(order), |file, link| {
            file.interface(*link, 0, &[(9, &[9]), (0, &[])])
        }),
    };
    for (interface, time, extra, data) in packets {
        let (captured, original) = (data.len() as u32, data.len() as u32 + extra);
        let (seconds, rest) = ((time / 1_000_000_000) as u32, (time % 1_000_000_000) as u32);
        file = match format {
            Format::Pcap { nanosecond: true } => file.record(seconds, rest, original, data),
            Format::Pcap { .. } => file.record(seconds, rest / 1_000, original, data),
            Format::PcapNg => {
                let interface = (interface % links.len()) as u32;
                file.enhanced(interface, *time, (captured, original), data)
            }
        };
    }
    file.bytes
}

fn written(format: Format, links: &[u16], packets: &[Packet]) -> Vec<u8> {
    let interfaces: Vec<Interface<'_>> = links
        .iter()
        .map(|link| Interface {
            link: LinkCode(*link),
            snaplen: 0,
            name: Some("net"),
        })
        .collect();
    let mut writer = Writer::new(Vec::new(), format, &interfaces).unwrap();
    for (interface, time, extra, data) in packets {
        let interface = (interface % links.len()) as u32;
        let original = data.len() as u32 + extra;
        // In up to three pieces, with boundaries anywhere.
        let (front, back) = data.split_at(data.len() / 3);
        let (middle, back) = back.split_at(back.len() / 2);
        writer
            .write(interface, *time, original, [front, middle, back])
            .unwrap();
    }
    assert_eq!(writer.records(), packets.len() as u64);
    writer.finish().unwrap()
}

fn expected(format: Format, links: &[u16], packets: &[Packet]) -> Vec<Owned> {
    let unit = if format == (Format::Pcap { nanosecond: false }) {
        1_000
    } else {
        1
    };
    let expect = |(interface, time, extra, data): &Packet| Owned {
        timestamp_ns: Some(time / unit * unit),
        interface: (interface % links.len()) as u32,
        link: links[interface % links.len()],
        original_bytes: data.len() as u32 + extra,
        data: data.clone(),
    };
    packets.iter().map(expect).collect()
}

/// For any input, a reader ends, counts correctly, and returns the same after a rewind.
fn check_survives(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(Cursor::new(bytes)) else {
        return;
    };
    let outcome = drain(&mut reader);
    assert!(
        outcome.len() <= bytes.len() / 12 + 1,
        "each result costs input"
    );
    let met = outcome.iter().filter(|result| match result {
        Ok(record) => {
            assert!(record.data.len() <= MAX_CAPTURED_BYTES);
            assert!(record.original_bytes as usize >= record.data.len());
            true
        }
        Err(error) => error.costs_a_record(),
    });
    let met = met.count() as u64;
    // A record that is truncated while it is skipped is counted and not delivered.
    assert!(reader.records() == met || reader.records() == met + 1);
    if reader.rewind().is_ok() {
        assert_eq!(drain(&mut reader), outcome);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn written_or_made_by_hand_all_comes_back(
        links in vec(any::<u16>(), 1..5),
        packets in packets(),
    ) {
        let pcap = |nanosecond| Format::Pcap { nanosecond };
        for (format, links) in
            [(pcap(false), &links[..1]), (pcap(true), &links[..1]), (Format::PcapNg, &links[..])]
        {
            let expected = expected(format, links, &packets);
            let ours = written(format, links, &packets);
            prop_assert_eq!(Reader::new(&ours[..]).unwrap().format(), format);
            prop_assert_eq!(&read_good(&ours), &expected);
            for order in BOTH {
                let theirs = by_hand(order, format, links, &packets);
                prop_assert_eq!(&read_good(&theirs), &expected);
            }
        }
    }

    #[test]
    fn any_bytes_behind_any_magic_are_survived(
        magic in prop_oneof![
            Just(0xa1b2_c3d4_u32), Just(0xd4c3_b2a1), Just(0xa1b2_3c4d), Just(0x0a0d_0d0a),
            any::<u32>(),
        ],
        rest in vec(any::<u8>(), 0..2_000),
    ) {
        check_survives(&[&magic.to_be_bytes()[..], &rest].concat());
    }

    #[test]
    fn damaged_files_are_survived(
        big in any::<bool>(),
        kind in 0..3,
        links in vec(any::<u16>(), 1..5),
        packets in packets(),
        damage in vec((any::<usize>(), any::<u8>()), 1..10),
        cut in any::<usize>(),
    ) {
        let order = BOTH[usize::from(big)];
        let format = match kind {
            0 => Format::Pcap { nanosecond: false },
            1 => Format::Pcap { nanosecond: true },
            _ => Format::PcapNg,
        };
        let mut bytes = by_hand(order, format, &links, &packets);
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        check_survives(&bytes);
        bytes.truncate(cut % bytes.len());
        check_survives(&bytes);
    }
}
