//! Tables and data sets: what is read back is what was run.

mod captures;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int32Type, TimestampNanosecondType, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch, StringArray};
use captures::{Folder, merged, traffic, write};
use packtrain_capture::Format;
use packtrain_capture::replay::{Options, Report, Train};
use packtrain_offload::coalesce::{FlushCounts, Mode, Semantics};
use packtrain_offload::offload::LinkType;
use packtrain_replay::dataset::Dataset;
use packtrain_replay::tables::{self, BATCH_ROWS, Trains, configuration_id};
use packtrain_replay::{Files, Grid, Settings, Sink, figures, run};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::RowGroupMetaData;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NAMES: [&str; 2] = ["left", "right"];

fn capture(folder: &Folder, packets: u32) -> PathBuf {
    let path = folder.file("all.pcapng");
    write(&path, Format::PcapNg, &traffic(packets));
    path
}

fn grid() -> Vec<Options> {
    let grid = Grid {
        flows: vec![2, 1024],
        mode: vec![Mode::Hash],
        coalesce: vec![Some(Semantics::Stream), None],
        queues: vec![4],
        ack_limit: vec![Some(3)],
        ..Grid::of(&Options::default())
    };
    grid.runs()
}

fn on<S: Sink>(path: &Path, runs: &[Options], sinks: Vec<S>) -> Vec<(S, Report)> {
    let files = Files::open(&[path]).expect("a capture");
    let done = run(files, runs, sinks, &mut Settings::default()).expect("a run");
    assert!(done.broken.is_empty());
    done.sinks.into_iter().zip(done.reports).collect()
}

fn trains(path: &Path, runs: &[Options]) -> Vec<(Vec<Train>, Report)> {
    on(path, runs, vec![Vec::new(); runs.len()])
}

/// Every value of a row of trains.
type Row = (i64, String, u16, u64, [u32; 2], u64, bool, String);

fn expected(trains: &[Train]) -> Vec<Row> {
    let row = |train: &Train| {
        let interface = NAMES[train.interface as usize].to_owned();
        let (end, held) = (train.end.name().to_owned(), train.end.was_held());
        let (time, sizes) = (train.time_ns as i64, [train.packets, train.bytes]);
        (
            time,
            interface,
            train.queue,
            train.flow,
            sizes,
            train.held_ns,
            held,
            end,
        )
    };
    trains.iter().map(row).collect()
}

fn rows(batches: &[RecordBatch]) -> Vec<Row> {
    let rows = batches.iter().flat_map(|batch| {
        let column = |name| batch.column_by_name(name).expect(name);
        let interface = column("interface").as_dictionary::<Int32Type>();
        let interface = interface.downcast_dict::<StringArray>().expect("text");
        let end = column("end").as_dictionary::<Int8Type>();
        let end = end.downcast_dict::<StringArray>().expect("text");
        let time = column("time").as_primitive::<TimestampNanosecondType>();
        let queue = column("queue").as_primitive::<UInt16Type>();
        let [flow, held] =
            ["flow", "held_ns"].map(|name| column(name).as_primitive::<UInt64Type>());
        let [packets, bytes] =
            ["packets", "bytes"].map(|name| column(name).as_primitive::<UInt32Type>());
        let rows = interface.into_iter().zip(end).enumerate();
        let rows = rows.map(|(row, (interface, end))| {
            (
                time.value(row),
                interface.expect("a name").to_owned(),
                queue.value(row),
                flow.value(row),
                [packets.value(row), bytes.value(row)],
                held.value(row),
                column("was_held").as_boolean().value(row),
                end.expect("a reason").to_owned(),
            )
        });
        rows.collect::<Vec<_>>()
    });
    rows.collect()
}

#[test]
fn batches_have_the_trains() {
    let folder = Folder::new();
    let path = capture(&folder, BATCH_ROWS as u32 + 4000);
    let plain = trains(&path, &grid());
    let sinks = grid().iter().map(Trains::new).collect();
    let tables = on(&path, &grid(), sinks);
    for ((options, (trains, _)), (table, _)) in grid().iter().zip(&plain).zip(tables) {
        let batches = table.into_batches().expect("batches");
        assert!(rows(&batches) == expected(trains), "{options:?}");
        let (last, full) = batches.split_last().expect("batches");
        assert!(full.iter().all(|batch| batch.num_rows() == BATCH_ROWS));
        assert!(options.coalesce.is_some() || full.len() == 1);
        let id = last.column_by_name("configuration").expect("a column");
        let id = id.as_dictionary::<Int8Type>().values().as_string::<i32>();
        assert_eq!(id.value(0), configuration_id(options));
    }
}

/// The value of a column of the table of runs, as JSON.
fn cell(batch: &RecordBatch, name: &str, row: usize) -> Value {
    let column = batch.column_by_name(name).expect(name);
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type().to_string().as_str() {
        "Utf8" => column.as_string::<i32>().value(row).into(),
        "Boolean" => column.as_boolean().value(row).into(),
        "Float64" => column
            .as_primitive::<arrow_array::types::Float64Type>()
            .value(row)
            .into(),
        _ => column.as_primitive::<UInt64Type>().value(row).into(),
    }
}

#[test]
fn a_row_of_runs_has_the_figures_of_an_interface() {
    let folder = Folder::new();
    let path = capture(&folder, 5000);
    for (options, (_, report)) in grid().iter().zip(trains(&path, &grid())) {
        let batch = tables::runs("some", &[(options, &report)]).expect("a table");
        assert_eq!(batch.num_rows(), 2);
        let figures = figures(&report);
        for (row, name) in NAMES.into_iter().enumerate() {
            let cell = |column: &str| cell(&batch, column, row);
            assert_eq!(cell("interface"), name);
            assert_eq!(cell("dataset"), "some");
            assert_eq!(cell("configuration"), configuration_id(options));
            assert_eq!(
                cell("coalesce"),
                options.coalesce.map_or("off", |_| "stream")
            );
            assert_eq!(cell("max_flows"), options.limits.flows.expect("flows"));
            assert_eq!(cell("user0"), Value::Null);
            let seen = &figures["rows"][row];
            for column in [
                "packets",
                "emitted",
                "ratio",
                "skew",
                "gro_packets",
                "flows",
                "link",
            ] {
                assert_eq!(cell(column), seen[column], "{column}");
            }
            for (object, key) in [
                ("delay_ns", "p99"),
                ("gro_flush", "flags"),
                ("passed", "not_cut"),
            ] {
                assert_eq!(cell(&format!("{object}_{key}")), seen[object][key], "{key}");
            }
            for key in ["received", "absorbed", "closed"] {
                let column = format!("conservation_{key}");
                assert_eq!(cell(&column), figures["conservation"][key], "{key}");
            }
        }
        // Without an interface there is a row for the ledger.
        let mut none = report.clone();
        none.interfaces.clear();
        let batch = tables::runs("some", &[(options, &none)]).expect("a table");
        assert_eq!(cell(&batch, "conservation_received", 0), report.received);
        assert_eq!(cell(&batch, "interface", 0), Value::Null);
    }
}

/// They are in the paths of data sets: they may never change.
#[test]
fn configurations_keep_their_names() {
    let options = Options::default();
    assert_eq!(configuration_id(&options), "c5208cad0058c7ef");
    let mut stated = options;
    stated.limits.flows = Some(Grid::FLOWS);
    assert_eq!(configuration_id(&stated), configuration_id(&options));
    let mut other = options;
    other.user0 = Some(LinkType::Ipoib);
    let mut all: Vec<_> = grid()
        .iter()
        .chain([&options, &other])
        .map(configuration_id)
        .collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), grid().len() + 2);
    assert!(all.iter().all(|id| id.len() == 16));
}

#[test]
fn a_stored_report_is_the_report() {
    let folder = Folder::new();
    let path = capture(&folder, 5000);
    for (_, report) in trains(&path, &grid()) {
        let text = serde_json::to_string(&report).expect("text");
        let read: Report = serde_json::from_str(&text).expect("a report");
        assert_eq!(read, report);
        // Also as part of a sum.
        let sum = merged([report.clone(), report.clone()]);
        assert_eq!(merged([read.clone(), report]), sum);
        assert_eq!(merged([read.clone(), read]), sum);
        let strange = text.replace("\"flows\":[[", "\"flows\":[[16384,1],[");
        assert!(strange != text && serde_json::from_str::<Report>(&strange).is_err());
    }
    let counts = |text| serde_json::from_str::<FlushCounts>(text).map(|counts| counts.total());
    assert_eq!(counts(r#"{"full": 2, "flags": 3}"#).expect("counts"), 5);
    assert!(counts(r#"{"fuller": 2}"#).is_err());
}

fn read(path: &Path) -> Vec<RecordBatch> {
    let file = File::open(path).expect("a file");
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let groups = reader.metadata().row_groups().iter();
    assert!(
        groups
            .map(RowGroupMetaData::num_rows)
            .all(|rows| rows <= 2 * BATCH_ROWS as i64)
    );
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let metadata = format!("{metadata:?}");
    assert!(
        metadata.contains("all.pcapng") && metadata.contains("hold_ns"),
        "{metadata}"
    );
    let batches = reader.build().expect("a reader");
    batches.map(|batch| batch.expect("a batch")).collect()
}

fn place(folder: &Path, table: &str, options: &Options) -> PathBuf {
    let id = configuration_id(options);
    folder.join(format!("{table}/dataset=some/configuration={id}"))
}

fn create(folder: &Path, path: &Path, part_bytes: Option<u64>) -> Dataset {
    Dataset::create(folder, "some", &[path], &grid(), part_bytes).expect("a data set")
}

/// Runs what is missing, the last part first, and merges all. Returns how much was missing.
fn complete(dataset: &Dataset, plain: &[(Vec<Train>, Report)]) -> Vec<(usize, Vec<usize>)> {
    let missing = dataset.missing(&grid());
    for (part, left) in missing.iter().rev() {
        let error = dataset
            .merge(&grid()[left[0]])
            .expect_err("not all have run");
        assert!(error.to_string().contains("has not run"), "{error}");
        let runs: Vec<_> = left.iter().map(|index| grid()[*index]).collect();
        let files = dataset.files(*part).expect("a capture");
        let done = dataset.run(files, *part, &runs, &mut Settings::default());
        assert!(done.expect("a run").broken.is_empty());
    }
    for (options, (_, report)) in grid().iter().zip(plain) {
        assert_eq!(
            dataset.merge(options).expect("a sum"),
            (report.clone(), None)
        );
    }
    missing
}

/// Every file: its path, inode and time of modification.
fn everything(folder: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let found = path.metadata().expect("a file");
        match found.is_dir() {
            true => all.extend(everything(&path)),
            false => all.push((path, found.ino(), found.mtime(), found.mtime_nsec())),
        }
    }
    all.sort();
    all
}

fn check(folder: &Path, parts: usize, plain: &[(Vec<Train>, Report)]) {
    for (options, (trains, report)) in grid().iter().zip(plain) {
        let files = (0..parts).flat_map(|part| {
            let name = format!("part-{part:04}.parquet");
            read(&place(folder, "trains", options).join(name))
        });
        let files: Vec<_> = files.collect();
        assert_eq!(files[0].num_columns(), 9);
        let (mut found, mut wanted) = (rows(&files), expected(trains));
        // Parts are in the order of time or of queues.
        found.sort();
        wanted.sort();
        assert!(found == wanted, "{options:?}");
        let wanted = tables::runs("some", &[(options, report)]).expect("a table");
        let found = read(&place(folder, "runs", options).join("part-0000.parquet"));
        let columns: Vec<_> = (2..wanted.num_columns()).collect();
        assert_eq!(
            found[0].columns(),
            wanted.project(&columns).expect("columns").columns()
        );
    }
}

#[test]
fn a_data_set_is_read_back_and_not_made_twice() {
    let folder = Folder::new();
    let path = capture(&folder, 2 * BATCH_ROWS as u32 + 4000);
    let plain = trains(&path, &grid());
    let out = folder.file("out");
    assert_eq!(
        complete(&create(&out, &path, None), &plain),
        [(0, vec![0, 1, 2, 3])]
    );
    check(&out, 1, &plain);
    let before = everything(&out);
    let again = create(&out, &path, Some(1000));
    assert_eq!(complete(&again, &plain), []);
    assert_eq!(everything(&out), before);

    // A run that was killed: while it wrote trains, and before it wrote the report.
    for (table, file, index) in [("trains", "parquet", 0), ("reports", "json", 1)] {
        let whole = place(&out, table, &grid()[index]).join(format!("part-0000.{file}"));
        let name = whole
            .strip_prefix(&out)
            .expect("a path")
            .display()
            .to_string();
        let left = format!("unfinished/{}.Ab12Cd", name.replace('/', "+"));
        fs::rename(whole, out.join(left)).expect("a file");
    }
    assert_eq!(complete(&again, &plain), [(0, vec![0, 1])]);
    check(&out, 1, &plain);
    let paths = |all: Vec<(PathBuf, u64, i64, i64)>| all.into_iter().map(|(path, ..)| path);
    assert!(paths(everything(&out)).eq(paths(before)));
}

#[test]
fn parts_add_up_to_the_whole() {
    let folder = Folder::new();
    let path = capture(&folder, 10_000);
    let plain = trains(&path, &grid());
    let out = folder.file("out");
    let parts = complete(&create(&out, &path, Some(1_000_000)), &plain).len();
    assert!(parts > 2);
    check(&out, parts, &plain);
    let error = create(&out, &path, None)
        .files(parts)
        .expect_err("no such part");
    assert!(error.to_string().contains("has no part"), "{error}");
    // Where a hold time may be longer than the gaps, parts are queues.
    let mut auto = grid();
    auto.iter_mut()
        .for_each(|options| options.mode = Mode::Auto);
    let refused = Dataset::create(&out, "some", &[&path], &auto, None).expect_err("other parts");
    assert!(refused.to_string().contains("do not add up"), "{refused}");
    let queues = Dataset::create(&out, "auto", &[&path], &auto, Some(1000)).expect("a data set");
    assert_eq!(queues.missing(&auto).len(), 4);
    for (part, _) in queues.missing(&auto) {
        let files = queues.files(part).expect("a capture");
        queues
            .run(files, part, &auto, &mut Settings::default())
            .expect("a run");
    }
    for (options, (_, report)) in auto.iter().zip(trains(&path, &auto)) {
        assert_eq!(queues.merge(options).expect("a sum"), (report, None));
    }
}

/// As processes do, each with a configuration of its own.
#[test]
fn a_folder_is_written_from_several_sides_at_once() {
    let folder = Folder::new();
    let (path, out) = (capture(&folder, 1000), folder.file("out"));
    let plain = trains(&path, &grid());
    std::thread::scope(|scope| {
        for (options, (_, report)) in grid().into_iter().zip(&plain) {
            let (out, path) = (&out, &path);
            scope.spawn(move || {
                let dataset = Dataset::create(out, "some", &[path], &[options], None);
                let dataset = dataset.expect("a data set");
                let files = dataset.files(0).expect("a capture");
                let done = dataset.run(files, 0, &[options], &mut Settings::default());
                done.expect("a run");
                assert_eq!(
                    dataset.merge(&options).expect("a sum"),
                    (report.clone(), None)
                );
            });
        }
    });
    check(&out, 1, &plain);
}

#[test]
fn an_error_names_the_folder_and_leaves_it_as_it_was() {
    let folder = Folder::new();
    let path = capture(&folder, 1000);
    let refused = |out: &Path, name: &str, words: &str| {
        let before = everything(&folder.0);
        let error = Dataset::create(out, name, &[&path], &grid(), None).expect_err(words);
        let line = error.to_string();
        let place = out.display().to_string();
        assert!(line.contains(words) && line.contains(&place), "{line}");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(everything(&folder.0), before);
    };
    refused(&folder.0, "some", "not empty");
    let out = folder.file("out");
    for name in ["", "a/b", "..", "a=b", &"a".repeat(200)] {
        refused(&out, name, "name of a data set");
    }
    let error = Dataset::open(&out, "some").expect_err("no data set");
    assert!(error.to_string().contains("create it first"), "{error}");
    // Nothing takes a name that has no trains: no text file, and no capture that changed.
    fs::write(&path, "no capture").expect("a file");
    Dataset::create(&out, "some", &[&path], &grid(), None).expect_err("no capture");
    write(&path, Format::PcapNg, &traffic(900));
    create(&out, &path, None);
    write(&path, Format::PcapNg, &traffic(1000));
    let dataset = create(&out, &path, None);
    let files = dataset.files(0).expect("a capture");
    dataset
        .run(files, 0, &grid()[..1], &mut Settings::default())
        .expect("a run");
    // Of the same length, and of another one.
    for packets in [1000, 999] {
        write(&path, Format::PcapNg, &traffic(packets));
        refused(&out, "some", "other captures");
        let error = dataset
            .files(0)
            .map(drop)
            .expect_err("it was written again");
        assert!(error.to_string().contains("all.pcapng"), "{error}");
    }
    let run = |name: &str, words: &str| {
        let dataset = Dataset::create(&out, name, &[&path], &grid(), None).expect("a data set");
        let files = dataset.files(0).expect("a capture");
        let done = dataset.run(files, 0, &grid()[..1], &mut Settings::default());
        let line = done
            .map(|_| words)
            .expect_err("a place is taken")
            .to_string();
        assert!(
            line.contains(words) && line.contains("cannot write"),
            "{line}"
        );
        assert_eq!(dataset.missing(&grid()[..1]).len(), 1);
    };
    fs::create_dir_all(out.join("trains")).expect("a folder");
    fs::write(out.join("trains/dataset=another"), "").expect("a file");
    run("another", "dataset=another");
    // The report cannot be written: the trains are not left without it.
    let id = configuration_id(&grid()[0]);
    let in_the_way = format!("reports/dataset=third/configuration={id}/part-0000.json");
    fs::create_dir_all(out.join(in_the_way)).expect("a folder");
    run("third", "part-0000.json");
    let trains = out.join(format!("trains/dataset=third/configuration={id}"));
    assert_eq!(everything(&trains), []);

    let inputs = out.join("inputs/some.json");
    let text = fs::read_to_string(&inputs)
        .expect("a file")
        .replace("version\":1", "version\":2");
    fs::write(&inputs, text).expect("a file");
    refused(&out, "some", "format version 2");
}
