//! Threads, parts, queues and several files: each gives what one pass on one thread gives.

mod captures;

use captures::{Folder, Packet, merged, traffic, write, writer};
use packtrain_capture::replay::{Options, Report, Train};
use packtrain_capture::{Format, LinkCode};
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_replay::{Done, Error, Files, Grid, Ignore, Parts, Settings, Sink, run};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

const NANO: Format = Format::Pcap { nanosecond: true };

fn grid() -> Vec<Options> {
    let grid = Grid {
        mode: vec![Mode::Hash, Mode::Sorted],
        flows: vec![2, 1024],
        hold_ns: vec![20_000, 100_000],
        coalesce: vec![Some(Semantics::Reversible), Some(Semantics::Stream)],
        queues: vec![4],
        ..Grid::of(&Options::default())
    };
    grid.runs()
}

/// A folder, and a capture in it.
fn captured(format: Format, packets: &[Packet]) -> (Folder, PathBuf) {
    let folder = Folder::new();
    let path = folder.file("all");
    write(&path, format, packets);
    (folder, path)
}

fn open<P: AsRef<Path>>(paths: &[P]) -> Files {
    Files::open(paths).expect("captures")
}

/// The reports and the trains of a run that reads all.
fn on(files: Files, runs: &[Options], threads: usize, queue: Option<u16>) -> Done<Vec<Train>> {
    let mut settings = Settings {
        threads,
        queue,
        ..Settings::default()
    };
    let sinks = vec![Vec::new(); runs.len()];
    let done = run(files, runs, sinks, &mut settings).expect("a run");
    assert!(!done.stopped && done.broken.is_empty());
    assert!(done.reports.iter().all(Report::is_closed));
    done
}

fn alone(files: Files, runs: &[Options]) -> Done<Vec<Train>> {
    on(files, runs, 1, None)
}

/// A run of one configuration without trains.
fn counted(files: Files) -> Result<Done<Ignore>, Error> {
    let runs = [Options::default()];
    run(files, &runs, vec![Ignore], &mut Settings::default())
}

fn assert_same(done: &Done<Vec<Train>>, whole: &Done<Vec<Train>>) {
    assert!(done.reports == whole.reports && done.sinks == whole.sinks);
}

#[test]
fn threads_change_nothing() {
    let (_folder, path) = captured(Format::PcapNg, &traffic(20_000));
    let whole = alone(open(&[&path]), &grid());
    assert!(whole.sinks.iter().flatten().any(|train| train.packets > 5));
    for threads in [0, 2, 3, 100] {
        assert_same(&on(open(&[&path]), &grid(), threads, None), &whole);
    }
}

/// Rotated files in any order, and files that were captured at the same time.
#[test]
fn several_files_are_as_one() {
    let packets = traffic(5000);
    let (folder, path) = captured(Format::PcapNg, &packets);
    let whole = alone(open(&[path]), &grid());
    let file_of: [fn(usize) -> usize; 2] = [|index| 6 - index / 777, |index| index / 7 % 2];
    for file_of in file_of {
        let mut files = BTreeMap::<_, Vec<Packet>>::new();
        for (index, packet) in packets.iter().enumerate() {
            let path = folder.file(&format!("{}.pcapng", file_of(index)));
            files.entry(path).or_default().push(packet.clone());
        }
        for (path, packets) in &files {
            write(path, Format::PcapNg, packets);
        }
        let paths: Vec<_> = files.keys().collect();
        assert_same(&alone(open(&paths), &grid()), &whole);
    }
}

/// Parts begin behind pauses of more than the hold time, but for what cannot be divided: what is
/// behind a second section.
#[test]
fn captures_are_divided_at_pauses() {
    let packets = traffic(1000);
    for format in [NANO, Format::PcapNg] {
        let (folder, path) = captured(format, &packets);
        let count = |hold_ns, bytes| {
            let parts = Parts::of(&path, hold_ns, bytes).expect("parts");
            assert_eq!(parts.packets, 1000);
            parts.parts.len()
        };
        // A millisecond before each hundredth packet, of which the file has 30 to 60 kB each.
        assert_eq!((count(999_999, 1), count(1_000_000, 1)), (11, 1));
        assert!((3..=8).contains(&count(100_000, 60_000)));
        let bytes = std::fs::read(&path).expect("the file");
        let end = bytes.len() as u64;
        let all = Parts::of(&path, u64::MAX, 1).expect("parts").parts;
        let all: Vec<_> = all
            .iter()
            .map(|part| (part.head, part.start, part.end))
            .collect();
        assert_eq!(all, [(0, 0, end)]);
        if format == Format::PcapNg {
            let twice = folder.file("twice");
            std::fs::write(&twice, [&bytes[..], &bytes[..]].concat()).expect("a file");
            let parts = Parts::of(&twice, 100_000, 1).expect("parts");
            assert_eq!((parts.packets, parts.parts.len()), (2000, 11));
            assert_eq!(parts.parts[10].end, 2 * end);
        }
    }
}

/// A watch sees progress, and ends a run.
#[test]
fn a_watch_ends_a_run() {
    let (_folder, path) = captured(NANO, &traffic(200));
    let mut seen = 0;
    let mut watch = |progress: &packtrain_replay::Progress| {
        assert_eq!(progress.bytes_total, None);
        assert!(progress.bytes >= progress.packets * 200);
        seen += 1;
        false
    };
    let mut settings = Settings {
        threads: 1,
        watch: Some(&mut watch),
        ..Settings::default()
    };
    let input = Slow(File::open(&path).expect("the file"));
    let files = Files::input("slow", Box::new(input));
    let done = run(files, &[Options::default()], vec![Ignore], &mut settings);
    assert!(done.expect("a run").stopped);
    assert_eq!(seen, 1);
}

/// Longer than the time between two reports passes before each read.
struct Slow(File);

impl std::io::Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::thread::sleep(std::time::Duration::from_millis(110));
        let some = buffer.len().min(10_000);
        self.0.read(&mut buffer[..some])
    }
}

#[test]
fn errors_name_the_file() {
    let (folder, good) = captured(NANO, &traffic(100));
    let bad = folder.file("bad");
    let bytes = std::fs::read(&good).expect("the file");
    let fails = |expected| {
        let error = Files::open(&[&good, &bad]).expect_err("it is bad");
        let line = error.to_string();
        let path = bad.display().to_string();
        assert!(line.contains(&path) && line.contains(expected), "{line}");
        assert!(!line.contains('\n'), "{line}");
    };
    fails("No such file");
    std::fs::write(&bad, "no capture").expect("a file");
    fails("neither a pcap nor a pcapng");

    // It ends in the middle of a record, or before the first one: what is before that counts, and
    // no other capture ends.
    for (bytes, beside, received) in [
        (&bytes[..bytes.len() - 10], None, 99),
        (&bytes[..30], Some(&good), 100),
    ] {
        std::fs::write(&bad, bytes).expect("a file");
        let paths: Vec<_> = [&bad].into_iter().chain(beside).collect();
        let done = counted(open(&paths)).expect("a run");
        let broken: Vec<_> = done.broken.into_iter().map(|(path, _)| path).collect();
        assert_eq!(broken, [bad.display().to_string()]);
        assert_eq!(done.reports[0].received, received);
    }

    // It grows, or goes, while it is read; a part of it became shorter.
    let parts = Parts::of(&good, 100_000, 1).expect("parts");
    let (changing, going) = (open(&[&good]), open(&[&bad]));
    let longer = [&bytes[..], &[0]].concat();
    std::fs::write(&good, longer).expect("a file");
    std::fs::remove_file(&bad).expect("the file");
    let error = counted(changing);
    assert!(matches!(error, Err(Error::Changed { .. })), "{error:?}");
    let error = counted(going);
    assert!(matches!(error, Err(Error::Open { .. })), "{error:?}");
    std::fs::write(&good, &bytes[..bytes.len() - 1]).expect("a file");
    let error = Files::part(&good, parts.parts[1]);
    assert!(matches!(error, Err(Error::Changed { .. })), "{error:?}");
}

/// A sink that cannot write.
struct Full;

impl Sink for Full {
    fn take(&mut self, _trains: &[Train]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn what_ends_a_run_is_its_error() {
    let (_folder, path) = captured(NANO, &traffic(30_000));
    for threads in [1, 2] {
        let runs = grid();
        let sinks = runs.iter().map(|_| Full).collect();
        let mut settings = Settings {
            threads,
            ..Settings::default()
        };
        let error = run(open(&[&path]), &runs, sinks, &mut settings);
        assert!(matches!(error, Err(Error::Sink(_))));
    }
    // Configurations that are not of one pass.
    let grid = Grid {
        queues: vec![2, 4],
        ..Grid::of(&Options::default())
    };
    let mut settings = Settings {
        queue: Some(1),
        ..Settings::default()
    };
    let mixed = run(open(&[&path]), &grid.runs(), vec![Ignore; 2], &mut settings);
    assert!(matches!(mixed, Err(Error::Mixed(_))), "{mixed:?}");
}

/// A section that ends in one capture leaves the windows of another one alone.
#[test]
fn a_section_ends_its_own_windows_only() {
    let packets = traffic(16);
    // Eight packets in a row: one train.
    let (folder, right) = captured(NANO, &packets[8..]);
    let left = folder.file("left");
    let sections = [3, 6].map(|index: usize| {
        write(&left, Format::PcapNg, &packets[8 + index..][..1]);
        std::fs::read(&left).expect("the file")
    });
    std::fs::write(&left, sections.concat()).expect("a file");
    for files in [open(&[&right]), open(&[&left, &right])] {
        let done = on(files, &[Options::default()], 1, None);
        let longest = done.sinks[0].iter().map(|train| train.packets).max();
        assert_eq!(longest, Some(8));
    }
}

/// What may be between the packets of a capture: types of blocks, and their bodies.
fn odd_blocks() -> Vec<Vec<(u32, Vec<u8>)>> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let interface = (1, words(&[1, 0]));
    vec![
        // A packet of an interface that is not described, and one without a time.
        vec![(6, words(&[9, 0, 0, 4, 4, 0x5a5a_5a5a]))],
        vec![(3, words(&[4, 0x0403_0201]))],
        // Of another type, and one that is copied.
        vec![(0x8000_0001, words(&[0, 0]))],
        vec![(4, words(&[0]))],
        // A description that is too short, and a good one.
        vec![(1, words(&[0]))],
        vec![interface.clone()],
        // Another section, with interfaces.
        vec![
            (0x0a0d_0d0a, words(&[0x1a2b_3c4d, 1, !0, !0])),
            interface.clone(),
            interface,
        ],
    ]
}

/// Without the place of a fault, which is that in the part.
fn without_faults(mut report: Report) -> Report {
    report.last_bad = None;
    report
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any sizes of parts, any blocks between packets, times that go back.
    #[test]
    fn any_parts_and_queues_add_up(
        bytes in 1_u64..100_000,
        packets in 1_u32..3000,
        jitter in prop::option::of(1_u64..4000),
        odd in prop::collection::vec((0_usize..3000, prop::sample::select(odd_blocks())), 0..4),
        first in prop::option::of(prop::sample::select(odd_blocks())),
        format in prop::sample::select(vec![NANO, Format::PcapNg]),
    ) {
        let folder = Folder::new();
        let path = folder.file("all");
        let names: &[_] = if format == NANO { &["one"] } else { &["left", "right"] };
        let mut writer = writer(format, LinkCode::ETHERNET, names);
        let odd: Vec<_> = odd.into_iter().chain(first.map(|first| (0, first))).collect();
        for (index, (at, interface, data)) in traffic(packets).into_iter().enumerate() {
            let here = odd.iter().filter(|(before, _)| *before == index);
            for (kind, body) in here.flat_map(|(_, blocks)| blocks) {
                writer.write_block(*kind, body).expect("a block");
            }
            let at = at + jitter.map_or(0, |most| index as u64 * 7919 % most);
            let written = writer.write(interface % names.len() as u32, at, 0, [data]);
            written.expect("a record");
        }
        std::fs::write(&path, writer.finish().expect("the end")).expect("a file");
        // Each value of each setting twice.
        let runs: Vec<_> = grid().into_iter().step_by(5).collect();
        let whole = alone(open(&[&path]), &runs);
        let parts = Parts::of(&path, 100_000, bytes).expect("parts").parts;
        let parts = parts.iter().map(|part| Files::part(&path, *part).expect("a part"));
        let parts = parts.map(|part| alone(part, &runs));
        let parts: Vec<_> = parts.collect();
        let queues = (0..4).map(|queue| on(open(&[&path]), &runs, 1, Some(queue)));
        let queues: Vec<_> = queues.collect();
        for (index, trains) in whole.sinks.iter().enumerate() {
            let of_parts = parts.iter().flat_map(|done| &done.sinks[index]);
            prop_assert!(of_parts.eq(trains));
            for (queue, done) in queues.iter().enumerate() {
                let mine = trains.iter().filter(|train| usize::from(train.queue) == queue);
                prop_assert!(done.sinks[index].iter().eq(mine));
            }
            let report = without_faults(whole.reports[index].clone());
            for done in [&parts, &queues] {
                let sum = merged(done.iter().map(|done| done.reports[index].clone()));
                prop_assert_eq!(&without_faults(sum), &report);
            }
        }
    }
}
