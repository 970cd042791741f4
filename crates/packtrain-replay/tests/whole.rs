//! Threads, parts, queues and several files: each gives what one pass on one thread gives.

mod captures;

use captures::{Folder, merged, traffic, write};
use packtrain_capture::Format;
use packtrain_capture::replay::{Options, Report, Train};
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_replay::{Done, Error, Files, Grid, Ignore, Part, Parts, Settings, Sink, run};
use proptest::prelude::*;
use std::fs::File;
use std::path::Path;

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

fn on(files: Files, runs: &[Options], settings: &mut Settings<'_>) -> Done<Vec<Train>> {
    let sinks = vec![Vec::new(); runs.len()];
    let done = run(files, runs, sinks, settings).expect("a run");
    assert!(!done.stopped && done.broken.is_none());
    assert!(done.reports.iter().all(Report::is_closed));
    done
}

fn on_one_thread(files: Files, runs: &[Options]) -> Done<Vec<Train>> {
    let mut settings = Settings {
        threads: 1,
        ..Settings::default()
    };
    on(files, runs, &mut settings)
}

/// The packets of one queue.
fn of_queue(path: &Path, runs: &[Options], queue: u16) -> Done<Vec<Train>> {
    let mut settings = Settings {
        threads: 1,
        queue: Some(queue),
        ..Settings::default()
    };
    on(files(path), runs, &mut settings)
}

fn files(path: &Path) -> Files {
    Files::open(&[path]).expect("a capture")
}

#[test]
fn threads_change_nothing() {
    let folder = Folder::new();
    let path = folder.file("all.pcapng");
    write(&path, Format::PcapNg, &traffic(20_000));
    let alone = on_one_thread(files(&path), &grid());
    assert!(alone.sinks.iter().flatten().any(|train| train.packets > 5));
    for threads in [0, 2, 3, 100] {
        let mut settings = Settings {
            threads,
            ..Settings::default()
        };
        let done = on(files(&path), &grid(), &mut settings);
        assert_eq!(done.reports, alone.reports, "{threads}");
        assert!(done.sinks == alone.sinks, "{threads}");
    }
}

/// Rotated files, and files of an interface each.
#[test]
fn several_files_are_as_one() {
    let folder = Folder::new();
    let packets = traffic(5000);
    let path = folder.file("all.pcapng");
    write(&path, Format::PcapNg, &packets);
    let whole = on_one_thread(files(&path), &grid());
    let rotated: Vec<_> = packets
        .chunks(777)
        .enumerate()
        .map(|(index, packets)| {
            let path = folder.file(&format!("{index}.pcapng"));
            write(&path, Format::PcapNg, packets);
            path
        })
        .collect();
    // In any order.
    let shuffled: Vec<_> = rotated.iter().rev().collect();
    let done = on_one_thread(Files::open(&shuffled).expect("captures"), &grid());
    assert_eq!(done.reports, whole.reports);
    assert!(done.sinks == whole.sinks);
    // At the same time.
    let parts = [0, 1].map(|part| {
        let path = folder.file(&format!("part-{part}.pcapng"));
        let mine = packets.iter().enumerate();
        let mine = mine.filter(|(index, _)| index / 7 % 2 == part);
        let mine: Vec<_> = mine.map(|(_, packet)| packet.clone()).collect();
        write(&path, Format::PcapNg, &mine);
        path
    });
    let done = on_one_thread(Files::open(&parts).expect("captures"), &grid());
    assert_eq!(done.reports, whole.reports);
    assert!(done.sinks == whole.sinks);
}

#[test]
fn parts_and_queues_add_up_to_the_whole() {
    let folder = Folder::new();
    for format in [NANO, Format::PcapNg] {
        let path = folder.file("all");
        write(&path, format, &traffic(10_000));
        let whole = on_one_thread(files(&path), &grid());
        let parts = Parts::of(&path, 100_000, 200_000).expect("parts");
        assert_eq!(parts.packets, 10_000);
        assert!(parts.parts.len() > 10, "{}", parts.parts.len());
        let done: Vec<_> = parts
            .parts
            .iter()
            .map(|part| on_one_thread(Files::part(&path, *part).expect("a part"), &grid()))
            .collect();
        for index in 0..grid().len() {
            let trains = done.iter().flat_map(|done| done.sinks[index].clone());
            assert!(trains.eq(whole.sinks[index].iter().copied()), "{index}");
            let report = merged(done.iter().map(|done| done.reports[index].clone()));
            assert_eq!(report, whole.reports[index]);
        }
        let queues: Vec<_> = (0..4)
            .map(|queue| of_queue(&path, &grid(), queue))
            .collect();
        for index in 0..grid().len() {
            let report = merged(queues.iter().map(|done| done.reports[index].clone()));
            assert_eq!(report, whole.reports[index]);
            for (queue, done) in queues.iter().enumerate() {
                let mine = |train: &&Train| usize::from(train.queue) == queue;
                let of_whole = whole.sinks[index].iter().filter(mine);
                assert!(done.sinks[index].iter().eq(of_whole), "{index} {queue}");
            }
        }
    }
}

/// Behind a second section, and in a compressed file, nothing is divided.
#[test]
fn what_cannot_be_divided_is_one_part() {
    let folder = Folder::new();
    let (path, twice) = (folder.file("one.pcapng"), folder.file("twice.pcapng"));
    write(&path, Format::PcapNg, &traffic(1000));
    let bytes = std::fs::read(&path).expect("the file");
    std::fs::write(&twice, [&bytes[..], &bytes[..]].concat()).expect("a file");
    let parts = Parts::of(&twice, 100_000, 1).expect("parts");
    assert_eq!(parts.packets, 2000);
    let last = parts.parts.last().expect("a part");
    assert_eq!(last.end, 2 * bytes.len() as u64);
    assert!(last.end - last.start > bytes.len() as u64);
    let never = Parts::of(&path, u64::MAX, 1).expect("parts");
    let all = Part {
        head: 0,
        start: 0,
        end: bytes.len() as u64,
    };
    assert_eq!(never.parts, [all]);
}

#[test]
fn a_watch_sees_progress_and_ends_a_run() {
    let folder = Folder::new();
    let path = folder.file("all.pcap");
    write(&path, NANO, &traffic(200));
    let mut seen = 0;
    // One call ends the run; with few packets there may be none before the end.
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
    // A source that blocks until progress is due.
    let input = Slow(File::open(&path).expect("the file"));
    let done = run(
        Files::input("slow", Box::new(input)),
        &[Options::default()],
        vec![Ignore],
        &mut settings,
    );
    let error = done.map(|done| done.stopped);
    assert!(matches!(error, Ok(true)), "{error:?}");
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
    let folder = Folder::new();
    let (good, bad) = (folder.file("good.pcap"), folder.file("bad.pcap"));
    write(&good, NANO, &traffic(100));
    let error = Files::open(&[&good, &bad]).expect_err("not there");
    let line = error.to_string();
    assert!(
        line.contains("bad.pcap") && line.contains("No such file"),
        "{line}"
    );
    std::fs::write(&bad, "no capture").expect("a file");
    let line = Files::open(&[&good, &bad])
        .expect_err("no capture")
        .to_string();
    assert!(line.contains("bad.pcap") && !line.contains('\n'), "{line}");

    // It ends in the middle of a record: what is before that counts.
    let bytes = std::fs::read(&good).expect("the file");
    std::fs::write(&bad, &bytes[..bytes.len() - 10]).expect("a file");
    let runs = [Options::default()];
    let done = run(files(&bad), &runs, vec![Ignore], &mut Settings::default()).expect("a run");
    let (path, _) = done.broken.expect("it is cut");
    assert_eq!(path, bad.display().to_string());
    assert_eq!(done.reports[0].received, 99);

    // It grows, or goes, while it is read.
    let changing = files(&good);
    std::fs::write(&good, [&bytes[..], &[0]].concat()).expect("a file");
    let error = run(changing, &runs, vec![Ignore], &mut Settings::default());
    assert!(matches!(error, Err(Error::Changed { .. })), "{error:?}");
    let going = files(&bad);
    std::fs::remove_file(&bad).expect("the file");
    let error = run(going, &runs, vec![Ignore], &mut Settings::default());
    assert!(matches!(error, Err(Error::Open { .. })), "{error:?}");
}

/// A sink that cannot write.
struct Full;

impl Sink for Full {
    fn take(&mut self, _trains: &[Train]) -> std::io::Result<()> {
        Err(std::io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_sink_that_fails_ends_the_run() {
    let folder = Folder::new();
    let path = folder.file("all.pcap");
    write(&path, NANO, &traffic(30_000));
    let runs = grid();
    for threads in [1, 2] {
        let sinks = runs.iter().map(|_| Full).collect();
        let mut settings = Settings {
            threads,
            ..Settings::default()
        };
        let error = run(files(&path), &runs, sinks, &mut settings);
        assert!(matches!(error, Err(Error::Sink(_))));
    }
}

/// A pcapng block.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let total = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes(), &total, body, &total].concat()
}

/// What may be between the packets of a capture.
fn odd_block() -> impl Strategy<Value = Vec<u8>> {
    let packet = |interface: u32| {
        let fields = [interface, 0, 0, 4, 4, 0x5a5a_5a5a];
        fields.map(u32::to_le_bytes).concat()
    };
    prop_oneof![
        // A packet of an interface that is not described, and one without a time.
        Just(block(6, &packet(9))),
        Just(block(3, &[4, 0, 0, 0, 1, 2, 3, 4])),
        // Of another type, and one that is copied.
        Just(block(0x8000_0001, &[0; 8])),
        Just(block(4, &[0; 4])),
        // A description that is too short, and a good one.
        Just(block(1, &[0; 4])),
        Just(block(1, &[1, 0, 0, 0, 0, 0, 0, 0])),
        // Another section, with an interface.
        Just({
            let mut section = vec![0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
            section.extend([0xff; 8]);
            let interface = block(1, &[1, 0, 0, 0, 0, 0, 0, 0]);
            [block(0x0a0d_0d0a, &section), interface.clone(), interface].concat()
        }),
    ]
}

/// Inserts blocks before those with these numbers.
fn insert(path: &Path, odd: &[(usize, Vec<u8>)]) {
    let bytes = std::fs::read(path).expect("the file");
    let (mut at, mut index, mut out) = (0, 0, Vec::new());
    while at < bytes.len() {
        let here = odd.iter().filter(|(before, _)| *before == index);
        // The section header stays the first.
        here.filter(|_| index > 0)
            .for_each(|(_, block)| out.extend(block));
        let length = bytes[at + 4..at + 8].try_into().expect("four bytes");
        let end = at + u32::from_le_bytes(length) as usize;
        out.extend(&bytes[at..end]);
        (at, index) = (end, index + 1);
    }
    std::fs::write(path, out).expect("a file");
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
        packets in 1_u32..1200,
        jitter in prop::option::of(1_u64..4000),
        odd in prop::collection::vec((0_usize..1300, odd_block()), 0..4),
        first in prop::option::of(odd_block()),
    ) {
        let folder = Folder::new();
        let path = folder.file("all.pcapng");
        let mut traffic = traffic(packets);
        for (index, (at, ..)) in traffic.iter_mut().enumerate() {
            *at += jitter.map_or(0, |most| index as u64 * 7919 % most);
        }
        write(&path, Format::PcapNg, &traffic);
        let odd: Vec<_> = odd.into_iter().chain(first.map(|block| (3, block))).collect();
        insert(&path, &odd);
        let grid = Grid {
            mode: vec![Mode::Hash, Mode::Sorted],
            queues: vec![4],
            ..Grid::of(&Options::default())
        };
        let runs = grid.runs();
        let whole = on_one_thread(files(&path), &runs);
        let parts = Parts::of(&path, runs[0].hold_ns, bytes).expect("parts");
        let parts: Vec<_> = parts
            .parts
            .iter()
            .map(|part| on_one_thread(Files::part(&path, *part).expect("a part"), &runs))
            .collect();
        let queues: Vec<_> = (0..4)
            .map(|queue| of_queue(&path, &runs, queue))
            .collect();
        for index in 0..runs.len() {
            let trains = parts.iter().flat_map(|done| done.sinks[index].clone());
            prop_assert!(trains.eq(whole.sinks[index].iter().copied()));
            for (queue, done) in queues.iter().enumerate() {
                let mine = |train: &&Train| usize::from(train.queue) == queue;
                let of_whole: Vec<_> = whole.sinks[index].iter().filter(mine).copied().collect();
                prop_assert_eq!(&done.sinks[index], &of_whole);
            }
            let report = without_faults(whole.reports[index].clone());
            for done in [&parts, &queues] {
                let sum = merged(done.iter().map(|done| done.reports[index].clone()));
                prop_assert_eq!(&without_faults(sum), &report);
            }
        }
    }
}

/// A section that ends in one capture leaves the windows of another one alone.
#[test]
fn a_section_ends_its_own_windows_only() {
    let folder = Folder::new();
    let (left, right) = (folder.file("left.pcapng"), folder.file("right.pcapng"));
    let packets = traffic(16);
    let of = |interface| {
        let mine = packets.iter().enumerate();
        let mine = mine.filter(move |(index, _)| *index >= 8 && index % 8 == interface);
        mine.map(|(_, packet)| packet.clone()).collect::<Vec<_>>()
    };
    // Eight packets in a row: one train.
    write(&right, NANO, &packets[8..]);
    let alone = on_one_thread(files(&right), &[Options::default()]);
    write(&left, Format::PcapNg, &of(3));
    let one = std::fs::read(&left).expect("the file");
    write(&left, Format::PcapNg, &of(6));
    let other = std::fs::read(&left).expect("the file");
    std::fs::write(&left, [one, other].concat()).expect("a file");
    let both = Files::open(&[&left, &right]).expect("captures");
    let both = on_one_thread(both, &[Options::default()]);
    let longest = |done: &Done<Vec<Train>>| {
        let lengths = done.sinks[0].iter().map(|train| train.packets);
        lengths.max()
    };
    assert_eq!(longest(&both), longest(&alone));
    assert_eq!(longest(&alone), Some(8));
}

/// A capture without a packet, or that is cut before its first, ends no other one.
#[test]
fn a_capture_without_packets_is_read_last() {
    let folder = Folder::new();
    let (good, cut) = (folder.file("good.pcap"), folder.file("cut.pcap"));
    write(&good, NANO, &traffic(100));
    let bytes = std::fs::read(&good).expect("the file");
    std::fs::write(&cut, &bytes[..30]).expect("a file");
    let both = Files::open(&[&cut, &good]).expect("captures");
    let runs = [Options::default()];
    let done = run(both, &runs, vec![Ignore], &mut Settings::default()).expect("a run");
    assert_eq!(
        done.broken.map(|(path, _)| path),
        Some(cut.display().to_string())
    );
    assert_eq!(done.reports[0].received, 100);
}

/// A part of a file that became shorter, and configurations that are not of one pass.
#[test]
fn what_does_not_fit_is_an_error() {
    let folder = Folder::new();
    let path = folder.file("all.pcap");
    write(&path, NANO, &traffic(1000));
    let parts = Parts::of(&path, 100_000, 50_000).expect("parts");
    let last = *parts.parts.last().expect("a part");
    let file = File::options().write(true).open(&path).expect("the file");
    file.set_len(last.start - 1).expect("a shorter file");
    let error = Files::part(&path, last).expect_err("it is shorter");
    assert!(matches!(error, Error::Changed { .. }), "{error:?}");
    let grid = Grid {
        queues: vec![2, 4],
        ..Grid::of(&Options::default())
    };
    let mut settings = Settings {
        queue: Some(1),
        ..Settings::default()
    };
    let mixed = run(files(&path), &grid.runs(), vec![Ignore; 2], &mut settings);
    assert!(matches!(mixed, Err(Error::Mixed(_))), "{mixed:?}");
}
