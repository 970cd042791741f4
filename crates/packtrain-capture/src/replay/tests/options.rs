//! The options of packets that are merged or split.

use super::*;

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [code, value.len() as u16].map(u16::to_le_bytes).concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn comment(text: &str) -> Vec<u8> {
    option(1, text.as_bytes())
}

/// Outbound, with an error of the link; and the number of a packet.
fn flags_and_number(number: u8) -> Vec<u8> {
    let flags = option(2, &[2, 0, 0, 0x80]);
    [flags, option(5, &[number, 0, 0, 0, 0, 0, 0, 0])].concat()
}

/// A train with these options.
fn with_options(each: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[]).expect("a writer");
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    writer.add_interface(&interface).expect("an interface");
    for (packet, options) in train(1, each.len() as u32, 1_000, 10, 0).iter().zip(each) {
        let data = [&packet.data];
        let written = writer.write_with(0, packet.at, packet.original, data, options);
        written.expect("a record");
    }
    writer.finish().expect("the end")
}

fn options_of(file: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(file).expect("a capture");
    let mut found = Vec::new();
    while let Some(record) = reader.next_record().expect("a whole file") {
        found.push(record.options.to_vec());
    }
    found
}

#[test]
fn a_merged_packet_has_all_comments_and_the_direction_and_its_parts_their_own() {
    let each = [
        [comment("one"), flags_and_number(1)].concat(),
        flags_and_number(2),
        [comment("three"), flags_and_number(3), comment("3")].concat(),
    ];
    let input = with_options(&each);
    let (merged, _) = replayed(&input, Options::default());
    let direction = option(2, &[2, 0, 0, 0]);
    let all = [
        comment("one"),
        direction.clone(),
        comment("three"),
        comment("3"),
    ]
    .concat();
    assert_eq!(options_of(&merged), [all]);

    let original = Options {
        segment: Segment::Original,
        ..Options::default()
    };
    let (restored, _) = replayed(&input, original);
    assert!(restored == input);

    let split = Options {
        segment: Segment::Mtu(540),
        ..Options::default()
    };
    let (split, _) = replayed(&merged, split);
    let parts = options_of(&split);
    assert_eq!(parts.len(), 6);
    let first = [
        comment("one"),
        direction.clone(),
        comment("three"),
        comment("3"),
    ]
    .concat();
    assert_eq!(parts[0], first);
    assert!(
        parts[1..].iter().all(|options| *options == direction),
        "{parts:?}"
    );
}

#[test]
fn comments_beyond_the_limit_stay_out_of_a_merged_packet() {
    let long = "x".repeat(30_000);
    let (merged, _) = replayed(
        &with_options(&[const { Vec::new() }; 3]),
        Options::default(),
    );
    assert_eq!(options_of(&merged), [[]]);
    let each = [0; 4].map(|_| comment(&long));
    let (merged, _) = replayed(&with_options(&each), Options::default());
    assert_eq!(options_of(&merged), [each[..2].concat()]);
}

/// A caller may read from the capture before the replay: each interface keeps its own name, and
/// only the interface that is described later has the options of that description.
#[test]
fn interfaces_that_were_read_before_the_replay_have_no_options_of_others() {
    let names = ["eth0", "eth1", "eth2"];
    let mut writer = Writer::new(Vec::new(), Format::PcapNg, &[]).expect("a writer");
    for name in names {
        let interface = Interface {
            link: LinkCode::ETHERNET,
            snaplen: 0,
            name: Some(name),
        };
        let options = [option(2, name.as_bytes()), option(3, b"described")].concat();
        let added = writer.add_interface_with(&interface, &options);
        let number = added.expect("an interface");
        if number == 1 {
            writer.write(0, 5, 1, [[7]]).expect("a record");
        }
    }
    let input = writer.finish().expect("the end");
    type Early = fn(&mut Reader<&[u8]>);
    let early: [(Early, [bool; 3]); 3] = [
        (|_| {}, [true; 3]),
        (
            |reader| assert!(reader.first_link().is_ok()),
            [false, true, true],
        ),
        (
            |reader| assert!(reader.next_record().is_ok()),
            [false, false, true],
        ),
    ];
    for (read, has_description) in early {
        let mut reader = Reader::new(&input[..]).expect("a capture");
        read(&mut reader);
        let mut out = Vec::new();
        let report = run(reader, Some(&mut out), &Options::default()).expect("a replay");
        assert_eq!(report.interfaces.len(), 3);
        let mut copy = Reader::new(&out[..]).expect("our own header");
        let mut found = Vec::new();
        while let Some(item) = copy.next_item().expect("a whole file") {
            if let Item::Interface(options) = item {
                found.push(options);
            }
        }
        let expected: Vec<_> = names
            .iter()
            .zip(has_description)
            .map(|(name, described)| {
                let name = option(2, name.as_bytes());
                let description = described.then(|| option(3, b"described"));
                [name, description.unwrap_or_default()].concat()
            })
            .collect();
        assert_eq!(found, expected);
    }
}
