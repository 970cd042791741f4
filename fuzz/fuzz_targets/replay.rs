//! `replay` over any capture: merging and segmenting restores it, the conservation check holds for
//! any merging and cutting, and the output can be read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packtrain_capture::replay::{Options, Report, Segment, run};
use packtrain_capture::{Cooked, LinkCode, Reader};
use packtrain_fuzz::{Input, reached, write_checksums};
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::offload::LinkType;

/// A record that owns its bytes, without its interface: sections are joined.
type Owned = (u64, u32, Vec<u8>);

/// All records that can be read, each with a time: its own, or that of the one before.
fn records(capture: &[u8]) -> Vec<Owned> {
    let mut reader = Reader::new(capture).expect("it was read before");
    let (mut records, mut now) = (Vec::new(), 0);
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                now = record.timestamp_ns.unwrap_or(now);
                records.push((now, record.original_bytes, record.data.to_vec()));
            }
            Ok(None) => return records,
            Err(error) if error.is_fatal() => return records,
            Err(_) => {}
        }
    }
}

/// The same capture with correct checksums in its packets: only such packets are merged, and random
/// inputs do not have them.
fn with_checksums(capture: &[u8]) -> Vec<u8> {
    let mut right = capture.to_vec();
    let Ok(mut reader) = Reader::new(capture) else {
        return right;
    };
    loop {
        let start = reader.offset() as usize;
        let (data, link) = match reader.next_record() {
            Ok(Some(record)) => (record.data.to_vec(), record.link),
            Ok(None) => return right,
            Err(error) if error.is_fatal() => return right,
            Err(_) => continue,
        };
        // The headers of other links are in front of an IP packet.
        let header = Cooked::parse(link, &data).map_or(0, |cooked| cooked.bytes);
        let link = match link {
            LinkCode::ETHERNET => LinkType::Ethernet,
            LinkCode::USER0 => LinkType::Ipoib,
            _ => LinkType::RawIp,
        };
        let bytes = data.len();
        let block = &mut right[start..reader.offset() as usize];
        // Where the header of a record begins with its data, that is another input, too.
        let at = (0..=block.len() - bytes).find(|at| block[*at..].starts_with(&data));
        let at = at.expect("the record is in its block");
        write_checksums(&mut block[at + header..at + bytes], link);
    }
}

/// Packets contained in others.
fn merged(report: &Report) -> u64 {
    let interfaces = report.interfaces.iter();
    interfaces.map(|seen| seen.stats.merged).sum()
}

fn replayed(capture: &[u8], options: &Options) -> Option<(Vec<u8>, Report)> {
    let reader = Reader::new(capture).ok()?;
    let mut out = Vec::new();
    // More interfaces than a capture can have, in many sections, are refused.
    let report = run(reader, Some(&mut out), options).ok()?;
    assert!(report.is_closed(), "{report:?}");
    assert_eq!(report.differing, 0, "{report:?}");
    Some((out, report))
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (how, flows, hold, mtu) = (input.byte(), input.byte(), input.word(), input.word());
    let mut options = Options::default();
    options.mode = [Mode::Hash, Mode::Sorted, Mode::Auto][usize::from(how) % 3];
    options.limits.flows = Some(u32::from(flows) + 1);
    options.limits.inactive_ns = (how & 4 != 0).then_some(200_000);
    options.hold_ns = u64::from(hold) << 8;
    options.segment = Segment::Original;
    let given = input.rest();
    let right;
    let capture = if how & 8 == 0 {
        right = with_checksums(given);
        &right
    } else {
        given
    };

    let Some((out, report)) = replayed(capture, &options) else {
        return;
    };
    if merged(&report) > 0 {
        reached("merged and restored");
    }
    let before = records(capture);
    // A classic record has 32 bits of seconds.
    let fits = |record: &Owned| record.0 >> 32 < 1_000_000_000;
    if before.iter().all(fits) {
        assert!(records(&out) == before, "{report:?}");
    }
    options.coalesce =
        [None, Some(Semantics::Reversible), Some(Semantics::Stream)][usize::from(how >> 4) % 3];
    for segment in [Segment::Off, Segment::Mtu(u32::from(mtu))] {
        options.segment = segment;
        if let Some((out, report)) = replayed(capture, &options) {
            let written: u64 = report.interfaces.iter().map(|seen| seen.records).sum();
            assert_eq!(records(&out).len() as u64, written, "{report:?}");
            if merged(&report) > 0 {
                reached(match options.coalesce {
                    Some(Semantics::Stream) => "merged as a stream",
                    _ => "merged and written",
                });
            }
        }
    }
});
