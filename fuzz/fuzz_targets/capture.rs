//! `capture::Reader` over any bytes: it ends, stays in bounds, counts every record, and gives the
//! same result for any split of the input; the records can be written and read again.

#![no_main]

use std::cell::Cell;
use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use packtrain_capture::{
    CaptureError, Format, Interface, Item, LinkCode, MAX_CAPTURED_BYTES, Reader, Record, Writer,
};
use packtrain_fuzz::Input;

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    timestamp_ns: Option<u64>,
    interface: u32,
    link: LinkCode,
    original_bytes: u32,
    data: Vec<u8>,
    options: Vec<u8>,
}

impl From<Record<'_>> for Owned {
    fn from(record: Record<'_>) -> Self {
        Self {
            timestamp_ns: record.timestamp_ns,
            interface: record.interface,
            link: record.link,
            original_bytes: record.original_bytes,
            data: record.data.to_vec(),
            options: record.options.to_vec(),
        }
    }
}

/// Gives at most so many bytes at once and, once it is told to, nothing every other time.
struct Pieces<'a> {
    bytes: &'a [u8],
    most: usize,
    blocks: &'a Cell<bool>,
    blocked: bool,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.blocked = self.blocks.get() && !self.blocked;
        if self.blocked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = self.most.min(out.len());
        self.bytes.read(&mut out[..most])
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let most = usize::from(input.byte()) + 1;
    let bytes = input.rest();

    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(error.is_fatal());
            let pieces = Pieces {
                bytes,
                most,
                blocks: &Cell::new(false),
                blocked: false,
            };
            assert_eq!(Reader::new(pieces).err(), Some(error));
            return;
        }
    };
    let format = reader.format();
    let whole = read_all(&mut reader, bytes.len());
    check_pieces(bytes, most, &whole);
    check_first_link(bytes, &whole);
    check_items(bytes, &whole);
    check_written(format, &whole);
});

/// All records of the reader, with the checks of each step.
fn read_all<R: Read>(reader: &mut Reader<R>, bytes: usize) -> Vec<Result<Owned, CaptureError>> {
    let mut found = Vec::new();
    let mut records = reader.records();
    let mut offset = reader.offset();
    loop {
        let next = match reader.next_record() {
            Ok(None) => break,
            Ok(Some(record)) => {
                assert!(record.data.len() <= MAX_CAPTURED_BYTES);
                assert!(record.original_bytes as usize >= record.data.len());
                Ok(Owned::from(record))
            }
            Err(error) => Err(error),
        };
        let goes_on = !matches!(&next, Err(error) if error.is_fatal());
        let blocked = matches!(&next, Err(CaptureError::Io { .. })) && goes_on;
        assert!(reader.offset() >= offset && reader.offset() <= bytes as u64);
        if goes_on && !blocked {
            records += u64::from(
                next.as_ref()
                    .map_or_else(CaptureError::costs_a_record, |_| true),
            );
            // Not asked in the midst of a record, where it may be counted already.
            assert_eq!(reader.records(), records);
            assert!(reader.offset() > offset, "each record or block takes bytes");
        }
        offset = reader.offset();
        match next {
            Err(error) if error.is_fatal() => {
                found.push(Err(error));
                assert_eq!(
                    reader.next_record(),
                    Err(error),
                    "what is broken stays broken"
                );
                break;
            }
            Err(_) if blocked => {}
            other => found.push(other),
        }
    }
    found
}

fn check_pieces(bytes: &[u8], most: usize, whole: &[Result<Owned, CaptureError>]) {
    let blocks = Cell::new(false);
    let pieces = Pieces {
        bytes,
        most,
        blocks: &blocks,
        blocked: false,
    };
    let mut reader = Reader::new(pieces).expect("the same header");
    // Not before: an input that blocks within `new` is lost with the error.
    blocks.set(true);
    assert_eq!(read_all(&mut reader, bytes.len()), whole);
}

/// Asking for the first link type consumes no packet.
fn check_first_link(bytes: &[u8], whole: &[Result<Owned, CaptureError>]) {
    let mut reader = Reader::new(bytes).expect("the same header");
    match reader.first_link() {
        Ok(first) => {
            let again = read_all(&mut reader, bytes.len());
            assert_eq!(again, whole);
            if let (Some(link), Some(Ok(record))) = (first, whole.first())
                && record.interface == 0
            {
                assert_eq!(record.link, link);
            }
        }
        Err(error) => assert!(whole.contains(&Err(error))),
    }
}

/// What is between packets changes none, and fits a copy.
fn check_items(bytes: &[u8], whole: &[Result<Owned, CaptureError>]) {
    let mut reader = Reader::new(bytes).expect("the same header");
    let mut copy = Writer::new(Vec::new(), Format::PcapNg, &[]).expect("a writer");
    let mut found = Vec::new();
    loop {
        let item = reader
            .next_item()
            .map(|item| item.map(|item| item.map(Owned::from)));
        match item {
            Ok(None) => break,
            Ok(Some(Item::Record(record))) => found.push(Ok(record)),
            Ok(Some(Item::Interface(options))) => {
                let interface = Interface {
                    link: LinkCode::ETHERNET,
                    snaplen: 0,
                    name: None,
                };
                // A capture with several sections may have more than one can have.
                copy.add_interface_with(&interface, &options).ok();
            }
            Ok(Some(Item::Block { kind, body, .. })) => {
                copy.write_block(kind, &body).expect("what was read fits");
            }
            Ok(Some(Item::LeftOut)) => {}
            Err(error) => {
                found.push(Err(error));
                if error.is_fatal() {
                    break;
                }
            }
        }
    }
    assert_eq!(found, whole);
    let copy = copy.finish().expect("memory takes everything");
    let mut reader = Reader::new(copy.as_slice()).expect("our own header");
    assert_eq!(read_all(&mut reader, copy.len()), []);
}

/// Records of one interface, written in the same format, read back unchanged.
fn check_written(format: Format, whole: &[Result<Owned, CaptureError>]) {
    let good: Vec<&Owned> = whole.iter().flatten().collect();
    let Some(first) = good.first() else { return };
    let interface = Interface {
        link: first.link,
        snaplen: 0,
        name: Some("fuzz0"),
    };
    let mut writer = Writer::new(Vec::new(), format, &[interface]).expect("one good interface");
    let mut expected = Vec::new();
    for record in &good {
        let timestamp_ns = record.timestamp_ns.unwrap_or(0);
        // The fraction of a second may carry it beyond the 32 bits of seconds.
        let timestamp_ns = match format {
            Format::Pcap { nanosecond } => {
                let unit = if nanosecond { 1 } else { 1000 };
                timestamp_ns.min((1 << 32) * 1_000_000_000 - unit)
            }
            Format::PcapNg => timestamp_ns,
        };
        // Half in one piece, half in another: the writer gathers.
        let (a, b) = record.data.split_at(record.data.len() / 2);
        let written = writer.write_with(
            0,
            timestamp_ns,
            record.original_bytes,
            [a, b],
            &record.options,
        );
        written.expect("what was read fits");
        expected.push(Ok(Owned {
            timestamp_ns: Some(timestamp_ns),
            interface: 0,
            link: first.link,
            ..(*record).clone()
        }));
    }
    let bytes = writer.finish().expect("memory takes everything");
    let mut reader = Reader::new(bytes.as_slice()).expect("our own header");
    assert_eq!(reader.format(), format);
    assert_eq!(read_all(&mut reader, bytes.len()), expected);
}
