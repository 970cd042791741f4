//! Broken and inconsistent files.

use super::*;

fn structure(fault: StructureFault, offset: u64, record: u64) -> Result<Owned, CaptureError> {
    Err(CaptureError::Structure {
        fault,
        offset,
        record,
    })
}

fn bad(fault: RecordFault, offset: u64, record: u64) -> Result<Owned, CaptureError> {
    Err(CaptureError::Record {
        fault,
        offset,
        record,
    })
}

/// A section header and one interface: 28 and 20 bytes.
fn start(order: ByteOrder) -> File {
    File::pcapng(order).interface(1, 0, &[])
}

const START: u64 = 48;

#[test]
fn a_file_truncated_anywhere_is_reported_or_ends_between_records() {
    let oversized = vec![1; MAX_CAPTURED_BYTES + 1];
    for order in BOTH {
        let classic = File::pcap(order, 0xa1b2_c3d4, 1).record(1, 2, 3, b"abc");
        check_every_cut(&classic.clone().record(4, 5, 6, b"").bytes, &[24, 43, 59]);
        let file = start(order)
            .enhanced(0, 1, (5, 5), b"abcde")
            .simple(1, b"x")
            .block(9, &[0; 4]);
        let file = file.section(order);
        check_every_cut(&file.bytes, &[28, 48, 88, 108, 124, 152]);
        let skipped = classic.record(1, 2, 3, &oversized).bytes;
        let cut = &skipped[..skipped.len() - 1];
        let outcome = read_all(cut);
        let expected = CaptureError::Truncated {
            offset: 43,
            record: 2,
        };
        assert_eq!(outcome[1..], [Err(expected)]);
    }
}

fn check_every_cut(bytes: &[u8], ends: &[usize]) {
    let whole = read_good(bytes);
    for length in 0..bytes.len() {
        let mut outcome = read_all(&bytes[..length]);
        if !ends.contains(&length) {
            let begin = ends
                .iter()
                .rev()
                .find(|end| **end < length)
                .copied()
                .unwrap_or(0);
            let error = outcome.pop().expect("an error").expect_err("it is cut");
            let CaptureError::Truncated { offset, record } = error else {
                panic!("{error}")
            };
            assert_eq!(offset, begin as u64, "cut at {length}");
            assert_eq!(record, outcome.len() as u64 + 1, "cut at {length}");
            assert!(error.is_fatal() && !error.costs_a_record());
        }
        let records: Vec<Owned> = outcome.into_iter().map(Result::unwrap).collect();
        assert_eq!(records, whole[..records.len()], "cut at {length}");
    }
}

#[test]
fn impossible_block_lengths_end_the_file() {
    for order in BOTH {
        for kind in [1, 2, 3, 5, 6, 77] {
            for bytes in [0, 3, 4, 8, 11, 13, 14, 15, u32::MAX] {
                let file = start(order).u32(kind).u32(bytes).raw(&[0; 64]);
                let fault = StructureFault::BlockLength { bytes };
                assert_eq!(read_all(&file.bytes[..]), [structure(fault, START, 1)]);
            }
        }
        for bytes in [0, 3, 12, 24, 27, 29, u32::MAX] {
            let file = start(order)
                .u32(0x0a0d_0d0a)
                .u32(bytes)
                .u32(0x1a2b_3c4d)
                .u16(1);
            let file = file.raw(&[0; 64]);
            let fault = StructureFault::BlockLength { bytes };
            assert_eq!(read_all(&file.bytes[..]), [structure(fault, START, 1)]);
        }
    }
}

#[test]
fn huge_block_lengths_are_followed_in_bounded_memory() {
    for order in BOTH {
        for kind in [1, 6, 77] {
            let file = start(order)
                .u32(kind)
                .u32(0xffff_fffc)
                .raw(&vec![0; 1_000_000]);
            let expected = CaptureError::Truncated {
                offset: START,
                record: 1,
            };
            assert_eq!(read_all(&file.bytes[..]), [Err(expected)], "kind {kind}");
        }
    }
}

#[test]
fn lengths_that_differ_end_the_file() {
    for order in BOTH {
        let one = start(order).enhanced(0, 1, (1, 1), b"x");
        for (kind, body) in [(1, 8), (3, 8), (6, 24), (77, 8), (6, 500_000), (1, 500_000)] {
            let head = body + 12;
            for tail in [0, head - 4, head + 4, u32::MAX] {
                let body = vec![0; body as usize];
                let file = one.clone().u32(kind).u32(head).raw(&body).u32(tail);
                let file = file.enhanced(0, 2, (1, 1), b"y");
                let outcome = read_all(&file.bytes[..]);
                let fault = StructureFault::BlockLengthMismatch { head, tail };
                assert_eq!(outcome[1..], [structure(fault, START + 36, 2)]);
            }
        }
        // A section's own trailer, also of the first one.
        let mut file = File::pcapng(order);
        file.bytes[26] ^= 0x40;
        assert!(matches!(
            read_all(&file.bytes[..])[..],
            [Err(CaptureError::Structure {
                fault: StructureFault::BlockLengthMismatch { head: 28, .. },
                offset: 0,
                record: 1
            })]
        ));
    }
}

#[test]
fn a_bad_record_loses_one_record() {
    let huge = vec![0; MAX_CAPTURED_BYTES + 1];
    for order in BOTH {
        let first = || start(order).enhanced(0, 1, (1, 1), b"x");
        let short = |kind: u32, body: usize| first().block(kind, &vec![0; body]);
        let obsolete = first()
            .body()
            .u16(1)
            .u16(0)
            .u32(0)
            .u32(0)
            .u32(0)
            .u32(0)
            .bytes;
        let over = (MAX_CAPTURED_BYTES + 1) as u32;
        let cases = [
            (short(6, 0), RecordFault::ShortBlock { bytes: 12 }),
            (short(6, 16), RecordFault::ShortBlock { bytes: 28 }),
            (short(2, 16), RecordFault::ShortBlock { bytes: 28 }),
            (short(3, 0), RecordFault::ShortBlock { bytes: 12 }),
            (
                first().enhanced(0, 1, (5, 5), b"abcd"),
                RecordFault::DataOverrun {
                    captured: 5,
                    space: 4,
                },
            ),
            (
                first().enhanced(0, 1, (u32::MAX, 5), b"abcd"),
                RecordFault::DataOverrun {
                    captured: u32::MAX,
                    space: 4,
                },
            ),
            (
                first().simple(9, b"abcd"),
                RecordFault::DataOverrun {
                    captured: 9,
                    space: 4,
                },
            ),
            (
                first().enhanced(1, 1, (1, 1), b"x"),
                RecordFault::NoSuchInterface { interface: 1 },
            ),
            (
                first().enhanced(u32::MAX, 1, (1, 1), b"x"),
                RecordFault::NoSuchInterface {
                    interface: u32::MAX,
                },
            ),
            (
                first().block(2, &obsolete),
                RecordFault::NoSuchInterface { interface: 1 },
            ),
            (
                first().enhanced(0, 1, (over, over), &huge),
                RecordFault::TooLong { bytes: over },
            ),
            (
                first().enhanced(0, 1, (1, 1), &[&huge[..], &huge].concat()),
                RecordFault::TooLong {
                    bytes: 2 * over + 2 + 32,
                },
            ),
        ];
        for (file, fault) in cases {
            let file = file.enhanced(0, 3, (1, 1), b"z");
            let outcome = read_all(&file.bytes[..]);
            assert_eq!(outcome[1], bad(fault, START + 36, 2));
            let error = outcome[1].as_ref().unwrap_err();
            assert!(!error.is_fatal() && error.costs_a_record());
            assert_eq!(outcome[0].as_ref().unwrap().data, b"x");
            assert_eq!(outcome[2].as_ref().unwrap().data, b"z", "{fault}");
            assert_eq!(outcome.len(), 3);
        }
    }
}

#[test]
fn without_an_interface_no_packet_is_known() {
    let file = File::pcapng(ByteOrder::Big)
        .simple(1, b"x")
        .enhanced(0, 0, (1, 1), b"x");
    let fault = RecordFault::NoSuchInterface { interface: 0 };
    assert_eq!(
        read_all(&file.bytes[..]),
        [bad(fault, 28, 1), bad(fault, 48, 2)]
    );
}

#[test]
fn a_bad_interface_keeps_its_index_and_loses_only_its_packets() {
    let long = vec![0; usize::from(u16::MAX)];
    for order in BOTH {
        let body = File::empty(order).u16(1).u16(0).u32(0);
        let overrun = |code: u16, bytes: u16| body.clone().u16(code).u16(bytes).u32(0).bytes;
        let lying = |code: u16, bytes: u16| InterfaceFault::OptionLength { code, bytes };
        let options = (2 * (4 + 65_536)) as u32;
        let cases = [
            (vec![0; 4], InterfaceFault::ShortBlock { bytes: 16 }),
            (vec![], InterfaceFault::ShortBlock { bytes: 12 }),
            (overrun(2, 5), InterfaceFault::OptionOverrun),
            (overrun(2, 8), InterfaceFault::OptionOverrun),
            (overrun(9, u16::MAX), InterfaceFault::OptionOverrun),
            (overrun(9, 0), lying(9, 0)),
            (overrun(9, 2), lying(9, 2)),
            (overrun(14, 4), lying(14, 4)),
            (
                File::empty(order)
                    .interface(1, 0, &[(1, &long), (1, &long)])
                    .bytes[8..][..131_088]
                    .to_vec(),
                InterfaceFault::OptionsTooLong { bytes: options },
            ),
        ];
        for (body, fault) in cases {
            let file = start(order).block(1, &body).interface(101, 0, &[]);
            let file = file
                .enhanced(2, 1, (1, 1), b"x")
                .enhanced(1, 2, (1, 1), b"y");
            let at = file.bytes.len() as u64 - 36;
            let file = file.enhanced(0, 3, (1, 1), b"z");
            let outcome = read_all(&file.bytes[..]);
            let error = CaptureError::Interface {
                fault,
                interface: 1,
                offset: START,
            };
            assert_eq!(outcome[0], Err(error));
            assert!(!error.is_fatal() && !error.costs_a_record());
            assert_eq!(outcome[1].as_ref().unwrap().link, 101);
            assert_eq!(
                outcome[2],
                bad(RecordFault::UnusableInterface { interface: 1 }, at, 2)
            );
            assert_eq!(outcome[3].as_ref().unwrap().data, b"z");
            assert_eq!(outcome.len(), 4);
        }
    }
}

#[test]
fn interfaces_beyond_the_limit_lose_only_their_packets() {
    let limit = MAX_INTERFACES as u32;
    let mut file = File::pcapng(ByteOrder::Little);
    for _ in 0..limit + 2 {
        file = file.interface(1, 0, &[]);
    }
    let file = file
        .enhanced(limit, 1, (1, 1), b"x")
        .enhanced(limit - 1, 1, (1, 1), b"y");
    let outcome = read_all(&file.bytes[..]);
    for index in 0..2 {
        let offset = 28 + 20 * u64::from(limit + index);
        let fault = InterfaceFault::TooMany;
        let expected = CaptureError::Interface {
            fault,
            interface: limit,
            offset,
        };
        assert_eq!(outcome[index as usize], Err(expected));
    }
    let offset = 28 + 20 * u64::from(limit + 2);
    assert_eq!(
        outcome[2],
        bad(RecordFault::NoSuchInterface { interface: limit }, offset, 1)
    );
    assert_eq!(outcome[3].as_ref().unwrap().data, b"y");
    assert_eq!(outcome.len(), 4);
}

#[test]
fn a_long_classic_record_is_skipped_and_an_impossible_one_ends_the_file() {
    for order in BOTH {
        let huge = vec![0; MAX_CAPTURED_BYTES + 1];
        let bytes = huge.len() as u32;
        let file = File::pcap(order, 0xa1b2_c3d4, 1)
            .record(0, 0, 0, &huge)
            .record(0, 0, 1, b"x");
        let outcome = read_all(&file.bytes[..]);
        assert_eq!(outcome[0], bad(RecordFault::TooLong { bytes }, 24, 1));
        assert_eq!(outcome[1].as_ref().unwrap().data, b"x");
        assert_eq!(outcome.len(), 2);
        for bytes in [MAX_SKIPPED_BYTES + 1, u32::MAX] {
            let file = File::pcap(order, 0xa1b2_c3d4, 1)
                .u32(0)
                .u32(0)
                .u32(bytes)
                .u32(0);
            let fault = StructureFault::RecordLength { bytes };
            assert_eq!(read_all(&file.bytes[..]), [structure(fault, 24, 1)]);
        }
    }
}
