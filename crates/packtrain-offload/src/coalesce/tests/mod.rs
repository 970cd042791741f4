//! Tests of the coalescer, against its public API alone. [`Frame`] describes a packet field by
//! field, with its own checksum code: nothing here builds or checks a packet with the code under
//! test, except the segmenter, for which `Reversible` guarantees its output.

mod bugs;
mod linux_tcp;
mod linux_udp;
mod properties;
mod refused;
mod run;
mod segmented;
mod shortcut;
mod storage;
mod stream;
mod table;
mod tunnel;

use core::ops::Range;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::checksum::{self, Sum};
use crate::layout::Layout;
use crate::offload::{ChecksumState, Ecn, Gso, LinkType};
use crate::segment::{Fill, Segmenter};
use crate::sort;
use crate::test_packets::CWR;
use crate::test_packets::frame::{self, Frame};
use crate::test_packets::wire::Wire;
use crate::virtio_net::{self, Accept};

/// The output, in order.
type Output = Vec<(Wire, Done)>;

/// An operation on a coalescer.
#[derive(Clone, Debug)]
enum Step {
    Push(Wire),
    /// `push_burst`.
    Burst(Vec<Wire>),
    Flush,
    /// `flush_inactive(now, age)`.
    Age(u64, u64),
    /// The time of the next packets.
    Clock(u64),
}

const MODES: [Mode; 3] = [Mode::Hash, Mode::Sorted, Mode::Auto];

fn config(semantics: Semantics, link: LinkType) -> Config {
    Config {
        queue: 4096,
        ..Config::new(semantics, link, 64)
    }
}

/// Runs `steps` and one flush, after which nothing may be held, and checks what holds for any
/// input:
/// conservation, what [`Stats`] says, and that what was not merged is as it came.
fn run(config: Config, steps: Vec<Step>) -> (Output, Stats) {
    let storage = Owned::for_config(&config);
    run_in(config, storage, steps)
}

fn run_in<S: Storage<Wire>>(config: Config, storage: S, steps: Vec<Step>) -> (Output, Stats) {
    run_on(Coalescer::new(config, storage).unwrap(), steps)
}

fn run_on<S: Storage<Wire>>(
    mut coalescer: Coalescer<Wire, S>,
    steps: Vec<Step>,
) -> (Output, Stats) {
    let config = *coalescer.config();
    let mut input = vec![];
    let mut output = vec![];
    let mut number = |wire: &mut Wire| {
        wire.ids = vec![input.len()];
        input.push(wire.clone());
    };
    let mut now = 0;
    for step in steps {
        let mut sink = |wire: Wire, done: &Done| output.push((wire, *done));
        match step {
            Step::Push(mut wire) => {
                number(&mut wire);
                coalescer.push(now, wire, &mut sink);
            }
            Step::Burst(mut wires) => {
                wires.iter_mut().for_each(&mut number);
                coalescer.push_burst(now, wires, &mut sink);
            }
            Step::Flush => {
                coalescer.flush(&mut sink);
                assert_eq!(coalescer.held(), 0, "one flush empties everything");
            }
            Step::Age(now, age) => coalescer.flush_inactive(now, age, &mut sink),
            Step::Clock(time) => now = time,
        }
        let needs = config.needs();
        let most = needs.entries
            + if coalescer.is_sorting() {
                needs.queue
            } else {
                0
            };
        assert!(coalescer.held() <= most);
    }
    coalescer.flush(&mut |wire, done| output.push((wire, *done)));
    assert_eq!(coalescer.held(), 0, "one flush empties everything");
    let before = output.len();
    coalescer.flush(&mut |wire, done| output.push((wire, *done)));
    assert_eq!(output.len(), before, "nothing was left behind");
    let stats = *coalescer.stats();
    check_conservation(&config, &input, &output, &stats);
    (output, stats)
}

/// Every packet of the input is in exactly one of the output; an unmerged packet is unchanged; the
/// counters match.
fn check_conservation(config: &Config, input: &[Wire], output: &Output, stats: &Stats) {
    let mut seen = vec![false; input.len()];
    let (mut pieces, mut absorbed, mut single, mut supers, mut wrong) = (0, 0, 0, 0, 0);
    for (wire, done) in output {
        for &id in &wire.ids {
            assert!(!std::mem::replace(&mut seen[id], true), "packet {id} twice");
        }
        match done {
            Done::Passed(why) => {
                wrong += u64::from(*why == NotTaken::BadChecksum);
                assert_eq!(wire.bytes, input[wire.ids[0]].bytes, "untouched: {why}");
                single += 1;
            }
            Done::Alone(_) => {
                let came = &input[wire.ids[0]];
                let padded = config.semantics == Semantics::Stream;
                let len = if padded {
                    wire.bytes.len()
                } else {
                    came.bytes.len()
                };
                assert_eq!(wire.bytes, came.bytes[..len]);
                single += 1;
            }
            Done::Merged(merged) => {
                assert_eq!(
                    wire.ids.len(),
                    usize::from(merged.pieces) + usize::from(merged.absorbed)
                );
                assert!(wire.ids.len() > 1);
                pieces += u64::from(merged.pieces);
                absorbed += u64::from(merged.absorbed);
                supers += 1;
                check_merged(config, wire, merged);
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen), "nothing is lost");
    assert_eq!(stats.packets, input.len() as u64);
    assert_eq!(stats.packets, single + pieces + absorbed);
    assert_eq!(stats.emitted, output.len() as u64);
    assert_eq!(stats.supers, supers);
    assert_eq!(stats.merged, pieces + absorbed);
    assert_eq!(stats.absorbed, absorbed);
    assert_eq!(stats.bad_checksums, wrong);
    assert_eq!(stats.packets, stats.emitted + stats.merged - stats.supers);
    assert_eq!(
        stats.emitted,
        stats.flushes.total() + stats.not_taken.total()
    );
}

/// The description of a merged packet is correct.
fn check_merged(config: &Config, wire: &Wire, merged: &Merged) {
    let bytes = wire.bytes.len() as u32;
    let layout = Layout::parse(config.link, &wire.bytes, bytes).unwrap();
    assert_eq!(merged.layout, layout, "the layout is that of the headers");
    assert_eq!(layout.ip_end, bytes, "the length fields count everything");
    let ip_bytes = bytes - u32::from(layout.network);
    assert!(ip_bytes <= config.max_bytes, "{ip_bytes}");
    match (config.finish, merged.checksum) {
        (Finish::Complete, ChecksumState::Unnecessary) => {
            assert!(frame::is_right(&wire.bytes, &layout), "sums of {merged:?}");
        }
        (Finish::Partial, ChecksumState::Partial { start, offset }) => {
            assert_eq!(start, layout.transport);
            let finished = frame::finish(&wire.bytes, start, offset);
            assert!(frame::is_right(&finished, &layout), "sums of {merged:?}");
        }
        other => panic!("{other:?}"),
    }
    let Some(gso) = merged.gso else { return };
    assert!(gso.segments(layout.payload_len()) > 1);
    let flags = usize::from(layout.transport) + 13;
    let cwr = gso.kind.is_tcp() && wire.bytes[flags] & CWR != 0;
    assert_eq!(gso.ecn() == Ecn::Cwr, cwr, "{gso:?}");
    // The requirements of the kernel, and of our own input check, on such a packet.
    let partial = ChecksumState::Partial {
        start: layout.transport,
        offset: if gso.kind.is_tcp() { 16 } else { 6 },
    };
    let header = virtio_net::describe(partial, Some(gso), Some(&layout));
    let received = virtio_net::validate(&header, config.link, Accept::ALL, &wire.bytes, bytes);
    let received = received.unwrap_or_else(|error| panic!("{error}: {merged:?}"));
    assert_eq!(received.gso.map(|gso| gso.size), Some(gso.size));
    assert_eq!(received.packet_bytes, bytes);
}

/// The packets that an output stands for, with finished checksums.
fn restore(config: &Config, wire: &Wire, done: &Done) -> Vec<Vec<u8>> {
    let Done::Merged(merged) = done else {
        return vec![wire.finished()];
    };
    let Some(gso) = merged.gso else {
        return vec![wire.bytes.clone()];
    };
    let bytes = wire.bytes.len() as u32;
    let layout = Layout::parse(config.link, &wire.bytes, bytes).unwrap();
    let segmenter = Segmenter::new(&wire.bytes, &layout, gso, bytes).unwrap();
    let segment = |index| {
        let range = segmenter.payload(index);
        let payload = &wire.bytes[range.start as usize..range.end as usize];
        let mut out = vec![0xA5; segmenter.header_bytes()];
        let fill = Fill::Complete {
            payload: checksum::sum(payload),
        };
        segmenter
            .write_header(index, &wire.bytes, &mut out, fill)
            .unwrap();
        out.extend_from_slice(payload);
        out
    };
    (0..segmenter.segments()).map(segment).collect()
}

/// Segmenting every output restores the input, byte for byte, in order.
fn check_restored(config: &Config, input: &[Wire], output: &Output) {
    for (wire, done) in output {
        let pieces = restore(config, wire, done);
        assert_eq!(pieces.len(), wire.ids.len(), "{done:?}");
        for (piece, &id) in pieces.iter().zip(&wire.ids) {
            assert_eq!(*piece, input[id].finished(), "packet {id} of {done:?}");
        }
    }
}

/// The transport payload lengths of the output, in bytes.
fn lengths(config: &Config, output: &Output) -> Vec<u32> {
    let payload = |wire: &Wire| {
        let layout = Layout::parse(config.link, &wire.bytes, wire.bytes.len() as u32);
        layout.map_or(0, |layout| layout.payload_len())
    };
    output.iter().map(|(wire, _)| payload(wire)).collect()
}

/// The three states of a packet with a correct checksum.
const STATES: [fn(&Frame) -> Wire; 3] = [Frame::unverified, Frame::verified, Frame::partial];

/// Runs one flow through `Reversible` in every mode, with every checksum state and either finish,
/// and compares the payload lengths that come out. Everything is restored.
#[track_caller]
fn reversible(frames: &[Frame], expected: &[u32]) -> (Output, Stats) {
    let mut last = None;
    for mode in MODES {
        for state in STATES {
            for finish in [Finish::Partial, Finish::Complete] {
                let config = Config {
                    mode,
                    finish,
                    ..config(Semantics::Reversible, frames[0].link)
                };
                let input: Vec<Wire> = frames.iter().map(state).collect();
                let steps = input.iter().cloned().map(Step::Push).collect();
                let (output, stats) = run(config, steps);
                let got = lengths(&config, &output);
                assert_eq!(got, expected, "{mode:?}, {finish:?}, {output:#?}");
                check_restored(&config, &input, &output);
                check_order(&output);
                last = Some((output, stats));
            }
        }
    }
    last.unwrap()
}

/// The same for `Stream`, which restores nothing.
#[track_caller]
fn streamed(frames: &[Frame], expected: &[u32]) -> (Output, Stats) {
    let mut last = None;
    for mode in MODES {
        for state in STATES {
            for finish in [Finish::Complete, Finish::Partial] {
                let config = Config {
                    mode,
                    finish,
                    ..config(Semantics::Stream, frames[0].link)
                };
                let input: Vec<Wire> = frames.iter().map(state).collect();
                let (output, stats) = run(config, vec![Step::Burst(input)]);
                let got = lengths(&config, &output);
                assert_eq!(got, expected, "{mode:?}, {finish:?}, {output:#?}");
                check_order(&output);
                last = Some((output, stats));
            }
        }
    }
    last.unwrap()
}

/// Packets of the one flow left in the order of arrival.
#[track_caller]
fn check_order(output: &Output) {
    let ids: Vec<usize> = output
        .iter()
        .flat_map(|(wire, _)| wire.ids.clone())
        .collect();
    assert!(ids.is_sorted(), "{ids:?}");
}

fn merged(done: &Done) -> &Merged {
    match done {
        Done::Merged(merged) => merged,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_reason_has_a_name_of_its_own() {
    let names: Vec<&str> = FlushReason::ALL.iter().map(|r| r.name()).collect();
    let more: Vec<&str> = NotTaken::ALL.iter().map(|r| r.name()).collect();
    for list in [names, more] {
        let mut unique = list.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), list.len());
    }
    assert_eq!(FlushReason::Evict.to_string(), "evict");
    assert_eq!(NotTaken::BadChecksum.to_string(), "bad_checksum");
}
