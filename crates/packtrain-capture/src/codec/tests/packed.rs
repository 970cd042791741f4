//! Compressed captures, made by `gzip`, `zstd` and the encoders of the libraries.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::{self, Cursor, Write};
use std::process::{Command, Stdio};

const INTERFACE: Interface<'_> = Interface {
    link: LinkCode::ETHERNET,
    snaplen: 0,
    name: None,
};

/// A capture of more than a zstd block.
fn capture(format: Format) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), format, &[INTERFACE]).expect("a writer");
    let mut value = 1_u32;
    for time in 0..1000 {
        let noise = std::iter::repeat_with(|| {
            value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (value >> 24) as u8
        });
        let data: Vec<u8> = noise.take(300).chain([7; 300]).collect();
        writer.write(0, time, 600, [data]).expect("a record");
    }
    writer.finish().expect("the end")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// The output of a program; `None` if it is not installed.
fn piped(program: &str, args: &[&str], bytes: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("SKIP: {program} is not installed");
        return None;
    };
    let mut input = child.stdin.take().expect("its input");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("its end");
    writer.join().expect("the writer").expect("it reads all");
    assert!(output.status.success());
    Some(output.stdout)
}

/// Gives a few bytes in each second call, after some calls without a pause.
struct Slow<'a>(&'a [u8], u32);

impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1.checked_sub(1).unwrap_or(1);
        if self.1 == 1 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = out.len().min(997);
        self.0.read(&mut out[..count])
    }
}

#[test]
fn compressed_captures_are_read_as_others() {
    for format in [Format::Pcap { nanosecond: true }, Format::PcapNg] {
        let plain = capture(format);
        let wanted = read_all(&plain[..]);
        assert_eq!(wanted.len(), 1000);
        let (front, back) = plain.split_at(100_000);
        let skipped = [&0x184d_2a50_u32.to_le_bytes()[..], &[3, 0, 0, 0, 1, 2, 3]].concat();
        let packed = [
            Some(gzip(&plain)),
            Some(zstd(&plain)),
            Some([gzip(front), gzip(back)].concat()),
            Some([zstd(front), skipped.clone(), zstd(back)].concat()),
            // As `pzstd` writes: the length of the next frame before each.
            Some([skipped.clone(), zstd(front), skipped, zstd(back)].concat()),
            Some([&0x184d_2a5f_u32.to_le_bytes()[..], &[0; 4], &zstd(&plain)].concat()),
            piped("gzip", &["-9"], &plain),
            piped("zstd", &["-1"], &plain),
            piped("zstd", &["-19", "--no-check"], &plain),
            piped("zstd", &["--long=27"], &plain),
        ];
        for (index, packed) in packed.iter().flatten().enumerate() {
            assert!(packed.len() < plain.len());
            assert!(read_all(&packed[..]) == wanted, "{index}");
            let mut reader = Reader::new(Cursor::new(packed)).expect("a capture");
            for _ in 0..10 {
                reader.next_record().expect("a record");
            }
            reader.rewind().expect("the start");
            assert!(drain(&mut reader) == wanted, "{index}");
        }
    }
}

#[test]
fn a_compressed_input_may_block_anywhere() {
    let plain = capture(Format::PcapNg);
    let wanted = read_all(&plain[..]);
    for packed in [gzip(&plain), zstd(&plain)] {
        // An input that blocks in the file's header is lost with the error.
        let mut reader = Reader::new(Slow(&packed, 200)).expect("a capture");
        assert!(drain(&mut reader) == wanted);
    }
}

/// Compressed by each: with zstd itself, whose window is longer than the library's, if it is there.
fn packed(plain: &[u8]) -> [(Packing, Vec<u8>); 2] {
    let by_zstd = piped("zstd", &["-3"], plain).unwrap_or_else(|| zstd(plain));
    [(Packing::Gzip, gzip(plain)), (Packing::Zstd, by_zstd)]
}

/// Each record up to the cut is read, and then the reason and the place.
#[test]
fn a_cut_compressed_capture_says_so() {
    let plain = capture(Format::PcapNg);
    let wanted = read_all(&plain[..]);
    for (packing, packed) in packed(&plain) {
        for at in (8..packed.len()).step_by(1999).chain([packed.len() - 1]) {
            let mut outcome = read_all(&packed[..at]);
            let error = outcome.pop().expect("an error").expect_err("an error");
            let CaptureError::Packed {
                packing: found,
                fault,
                offset,
            } = error
            else {
                panic!("{at}: {error}")
            };
            assert_eq!((found, fault), (packing, PackedFault::Truncated), "{at}");
            assert!(offset <= at as u64);
            assert!(outcome == wanted[..outcome.len()]);
            // A zstd block is 128 KiB of the capture; no more is lost, also of a longer window.
            let bytes = outcome.len() * plain.len() / wanted.len();
            let share = plain.len() * at / packed.len();
            assert!(bytes + (300 << 10) > share, "{at}: {bytes} of {share}");
        }
    }
}

/// Other bytes behind the compressed data cost no record, and are named with their place.
#[test]
fn what_follows_compressed_data_is_left_out() {
    let plain = capture(Format::PcapNg);
    let wanted = read_all(&plain[..]);
    let other: Vec<u8> = b"a signature".repeat(20_000);
    for (packing, packed) in [(Packing::Gzip, gzip(&plain)), (Packing::Zstd, zstd(&plain))] {
        for rest in [&[0][..], &[0; 300_000], b"\n", &other, b"\0\0x"] {
            let bytes = rest.len() as u64;
            let fault = match rest.iter().all(|byte| *byte == 0) {
                true => PackedFault::Padding { bytes },
                false => PackedFault::Trailing { bytes },
            };
            let offset = packed.len() as u64;
            let file = [&packed[..], rest].concat();
            let mut reader = Reader::new(Slow(&file, 200)).expect("a capture");
            for outcome in [read_all(&file[..]), drain(&mut reader)] {
                let (last, records) = outcome.split_last().expect("an error");
                let expected = CaptureError::Packed {
                    packing,
                    fault,
                    offset,
                };
                assert_eq!(last, &Err(expected), "{packing}");
                assert_eq!(expected.is_fatal(), rest[rest.len() - 1] != 0);
                assert!(records == wanted, "{packing} {bytes}");
            }
        }
    }
}

/// Gives one byte at once.
struct OneByOne<'a>(&'a [u8]);

impl Read for OneByOne<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = out.len().min(1);
        self.0.read(&mut out[..bytes])
    }
}

#[test]
fn damage_is_found_and_named() {
    let plain = capture(Format::PcapNg);
    let wanted = read_all(&plain[..]);
    for (packing, packed) in packed(&plain) {
        for at in (20..packed.len()).step_by(1013) {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x55;
            let outcome = read_all(&damaged[..]);
            assert_eq!(outcome, read_all(OneByOne(&damaged)), "{packing} {at}");
            let last = outcome.last().expect("an error");
            assert!(last.is_err(), "{packing} {at}");
            // Before the checksum is checked, records may be wrong, too.
            assert!(
                outcome.len() <= wanted.len() + 1
                    || matches!(last, Err(CaptureError::Packed { .. }))
            );
        }
    }
    let mut wrong = gzip(&plain);
    let sum = wrong.len() - 8;
    wrong[sum] ^= 1;
    let outcome = read_all(&wrong[..]);
    let error = outcome[1000].as_ref().expect_err("the checksum is wrong");
    let text = error.to_string();
    assert_eq!(
        text,
        format!("the gzip data at byte {sum} is corrupt: its checksum is wrong")
    );
}

/// At most so many bytes at a time.
#[derive(Debug)]
struct AtMost<'a>(&'a [u8], usize);

impl Read for AtMost<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = self.1.min(out.len());
        self.0.read(&mut out[..most])
    }
}

/// Two bytes are decompressed before the fault, which is in the last byte of the input.
#[test]
fn a_fault_at_the_end_of_the_input_is_named_however_it_is_read() {
    const BROKEN: [u8; 24] = [
        0x1f, 0x8b, 8, 0xfa, 13, 13, 45, 10, 0, 39, 10, 13, 0, 0, 68, 13, 10, 255, 6, 128, 19, 0,
        0, 0,
    ];
    for most in 1..=BROKEN.len() {
        let error = Reader::new(AtMost(&BROKEN, most)).expect_err("it is broken");
        let expected = CaptureError::Packed {
            packing: Packing::Gzip,
            fault: PackedFault::Corrupt,
            offset: 24,
        };
        assert_eq!(error, expected, "{most} bytes at a time");
    }
}
