//! Captures that are odd, long or broken, as files.

use super::*;

/// A packet padded to 60 bytes, as receivers capture it, is whole also without the padding.
#[test]
fn a_packet_without_its_padding_is_whole() {
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
fn records_longer_than_the_snapshot_length_stay_whole() {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 64,
        name: None,
    };
    for format in [NANO, Format::PcapNg] {
        let writer = Writer::new(Vec::new(), format, &[interface]).expect("a writer");
        let mut writer = writer.without_truncation();
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
fn a_truncated_capture_is_read_up_to_its_end() {
    let packets = train(1, 8, 1_000, 10, 0);
    let input = file(NANO, &packets);
    let (output, report) = replayed(&input[..input.len() - 3], Options::default());
    assert!(
        matches!(
            report.stopped,
            Some(crate::codec::CaptureError::Truncated { .. })
        ),
        "{report:?}"
    );
    let out = parsed(&output);
    assert_eq!(checked_payload(&out[0].data), vec![0x5a; 7000]);
}

#[test]
fn equal_interfaces_of_sections_are_one() {
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

/// Flows one after the other with the same timestamp: no window ends by time.
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
fn memory_is_bounded_for_any_capture() {
    let header = file(NANO, &[]);
    let until = 3 * SPAN_MAX as u32;
    let endless = Endless {
        sent: 0,
        until,
        pending: header,
    };
    let mut reader = Reader::new(endless).expect("a capture");
    let options = Options {
        limits: Limits {
            flows: Some(100_000),
            ..Limits::default()
        },
        mode: Mode::Hash,
        ..Options::default()
    };
    let mut replay = Replay::new(&mut reader, None::<Vec<u8>>, options).expect("a replay");
    let mut most = 0;
    loop {
        let next = reader.next_record().expect("a record");
        let next = next.map(|record| Arrival::of(&record, replay.engine.now()));
        replay.update_interfaces(&reader, None).expect("no output");
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
fn a_record_without_a_time_gets_that_of_the_one_before() {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 2,
        name: None,
    };
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[interface]).expect("a writer");
    // A Simple Packet Block: its length, and the captured bytes.
    writer.write_block(3, &[9, 0, 0, 0, 1, 2]).expect("a block");
    let input = writer.finish().expect("the end");
    let mut reader = Reader::new(&input[..]).expect("a capture");
    let record = reader.next_record().expect("a record").expect("a record");
    assert_eq!(record.timestamp_ns, None);
    let (arrival, data) = Arrival::of(&record, 55);
    assert_eq!((arrival.timestamp_ns, arrival.original_bytes), (55, 9));
    assert_eq!(data, [1, 2]);
}

#[test]
fn a_bad_time_affects_one_record() {
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

/// Equal interfaces of one section stay apart, and those of the next section get their numbers.
#[test]
fn equal_interfaces_keep_their_numbers_in_each_section() {
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let section = |count: usize| {
        let interfaces = vec![interface; count];
        let mut writer = Writer::new(Vec::new(), Format::PcapNg, &interfaces).expect("a writer");
        for number in 0..count as u32 {
            writer.write(number, 5, 1, [[7]]).expect("a record");
        }
        writer.finish().expect("the end")
    };
    let (output, report) = replayed(&[section(2), section(3)].concat(), Options::default());
    assert_eq!(report.interfaces.len(), 3);
    let mut reader = Reader::new(&output[..]).expect("a capture");
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole file") {
        found.push(record.interface);
    }
    assert_eq!(found, [0, 1, 0, 1, 2]);
}
