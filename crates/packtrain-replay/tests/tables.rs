//! Tables and data sets: what is read back is what was run.

mod captures;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int8Type, Int32Type, TimestampNanosecondType, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use captures::{Folder, merged, traffic, write};
use packtrain_capture::Format;
use packtrain_capture::replay::{Options, Report, Train};
use packtrain_offload::coalesce::{FlushCounts, Mode, Semantics};
use packtrain_offload::offload::LinkType;
use packtrain_replay::dataset::{Dataset, Inputs};
use packtrain_replay::tables::{self, BATCH_ROWS, Run, Trains, configuration_id};
use packtrain_replay::{Error, Files, Grid, Parts, Settings, Sink, run};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
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

fn on<S: Sink>(files: Files, runs: &[Options], sinks: Vec<S>) -> Vec<(S, Report)> {
    let done = run(files, runs, sinks, &mut Settings::default()).expect("a run");
    assert!(done.broken.is_none());
    done.sinks.into_iter().zip(done.reports).collect()
}

fn trains(files: Files, runs: &[Options]) -> Vec<(Vec<Train>, Report)> {
    on(files, runs, vec![Vec::new(); runs.len()])
}

fn open(path: &Path) -> Files {
    Files::open(&[path]).expect("a capture")
}

/// Every value of a row of trains.
type Row = (i64, String, u16, u64, u32, u32, u64, bool, String);

fn expected(trains: &[Train]) -> Vec<Row> {
    let row = |train: &Train| {
        let interface = NAMES[train.interface as usize].to_owned();
        let end = train.end.name().to_owned();
        let held = train.end.was_held();
        let (packets, bytes, held_ns) = (train.packets, train.bytes, train.held_ns);
        let (time, queue, flow) = (train.time_ns as i64, train.queue, train.flow);
        (
            time, interface, queue, flow, packets, bytes, held_ns, held, end,
        )
    };
    trains.iter().map(row).collect()
}

fn rows(batches: &[RecordBatch]) -> Vec<Row> {
    let rows = batches.iter().flat_map(|batch| {
        let schema = tables::trains_schema();
        let names = |schema: &arrow_schema::Schema| {
            let fields = schema.fields().iter().take(9);
            fields
                .map(|field| (field.name().clone(), field.data_type().clone()))
                .collect()
        };
        let (found, wanted): (Vec<_>, Vec<_>) = (names(&batch.schema()), names(&schema));
        assert_eq!(found, wanted);
        let column = |index: usize| batch.column(index);
        let interface = column(1).as_dictionary::<Int32Type>();
        let interface = interface.downcast_dict::<arrow_array::StringArray>();
        let interface = interface.expect("text");
        let end = column(8).as_dictionary::<Int8Type>();
        let end = end
            .downcast_dict::<arrow_array::StringArray>()
            .expect("text");
        let row = |index: usize| {
            use arrow_array::ArrayAccessor as _;
            (
                column(0)
                    .as_primitive::<TimestampNanosecondType>()
                    .value(index),
                interface.value(index).to_owned(),
                column(2).as_primitive::<UInt16Type>().value(index),
                column(3).as_primitive::<UInt64Type>().value(index),
                column(4).as_primitive::<UInt32Type>().value(index),
                column(5).as_primitive::<UInt32Type>().value(index),
                column(6).as_primitive::<UInt64Type>().value(index),
                column(7).as_boolean().value(index),
                end.value(index).to_owned(),
            )
        };
        (0..batch.num_rows()).map(row).collect::<Vec<_>>()
    });
    rows.collect()
}

#[test]
fn batches_have_the_trains() {
    let folder = Folder::new();
    let path = capture(&folder, BATCH_ROWS as u32 + 4000);
    let plain = trains(open(&path), &grid());
    let sinks = grid().iter().map(Trains::of).collect();
    let tables = on(open(&path), &grid(), sinks);
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
    assert_eq!(Trains::new().into_batches().expect("none"), []);
}

fn number(batch: &RecordBatch, name: &str) -> u64 {
    let column = batch.column_by_name(name).expect(name);
    column.as_primitive::<UInt64Type>().values().iter().sum()
}

#[test]
fn a_row_of_runs_has_the_report_of_an_interface() {
    let folder = Folder::new();
    let path = capture(&folder, 5000);
    for (options, (trains, report)) in grid().iter().zip(trains(open(&path), &grid())) {
        let row = Run {
            dataset: "some",
            options,
            report: &report,
        };
        let batch = tables::runs(&[row]).expect("a table");
        assert_eq!(batch.num_rows(), 2);
        let text = |name| batch.column_by_name(name).expect("text").as_string::<i32>();
        assert!(text("interface").iter().eq(NAMES.map(Some)));
        assert_eq!(text("dataset").value(1), "some");
        assert_eq!(text("configuration").value(0), configuration_id(options));
        let coalesce = options.coalesce.map_or("off", |_| "stream");
        assert_eq!(text("coalesce").value(0), coalesce);
        let limit = batch.column_by_name("ack_limit").expect("a column");
        let limit = limit.as_primitive::<UInt16Type>();
        assert_eq!(limit.iter().next(), Some(options.limits.ack_limit));
        let packets: u64 = trains.iter().map(|train| u64::from(train.packets)).sum();
        assert_eq!(number(&batch, "packets"), packets);
        assert_eq!(number(&batch, "received"), 2 * packets);
        assert_eq!(number(&batch, "emitted"), trains.len() as u64);
        let closes = number(&batch, "transmitted") + number(&batch, "absorbed");
        assert_eq!(closes, number(&batch, "received"));
        let closed = batch.column_by_name("closed").expect("a column");
        assert_eq!(closed.as_boolean().true_count(), 2);
        let seen = &report.interfaces[1];
        let share = batch.column_by_name("packets_per_merged").expect("one");
        let share = share.as_primitive::<Float64Type>();
        let stats = &seen.stats;
        match options.coalesce {
            Some(_) => assert_eq!(share.value(1), stats.merged as f64 / stats.supers as f64),
            None => assert!(share.is_null(1)),
        }
        let p99 = batch.column_by_name("delay_p99_ns").expect("a column");
        let p99 = p99.as_primitive::<UInt64Type>().value(1);
        assert_eq!(p99, seen.delays.quantile(0.99));
        let schema = batch.schema();
        let reasons = schema.fields().iter().map(|field| field.name());
        let reasons =
            reasons.filter(|name| name.starts_with("flush_") || name.starts_with("not_taken_"));
        let why: u64 = reasons.map(|name| number(&batch, name)).sum();
        let emitted = report.interfaces.iter().map(|seen| seen.stats.emitted);
        assert_eq!(why, emitted.sum::<u64>());
    }
    let none = tables::runs(&[]).expect("a table");
    assert_eq!((none.num_rows(), none.schema()), (0, tables::runs_schema()));
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
    for (_, report) in trains(open(&path), &grid()) {
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
            .clone()
            .all(|group| group.num_rows() <= 2 * BATCH_ROWS as i64)
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

/// Runs what is not done on a part, and returns how many configurations that was.
fn complete(dataset: &Dataset, files: Files, part: usize) -> usize {
    let mut runs = grid();
    runs.retain(|options| !dataset.has(options, part));
    let writers = runs.iter().map(|options| dataset.writer(options, part));
    let writers = writers.collect::<Result<_, _>>().expect("writers");
    for (writer, report) in on(files, &runs, writers) {
        writer.finish(&report).expect("a file");
    }
    runs.len()
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

fn check(folder: &Path, options: &Options, parts: usize, trains: &[Train], report: &Report) {
    let files = (0..parts).flat_map(|part| {
        let name = format!("part-{part:04}.parquet");
        read(&place(folder, "trains", options).join(name))
    });
    assert!(
        rows(&files.collect::<Vec<_>>()) == expected(trains),
        "{options:?}"
    );
    let row = Run {
        dataset: "some",
        options,
        report,
    };
    let wanted = tables::runs(&[row]).expect("a table");
    let found = &read(&place(folder, "runs", options).join("part-0000.parquet"))[0];
    for (wanted, name) in wanted
        .columns()
        .iter()
        .zip(wanted.schema().fields())
        .skip(2)
    {
        assert_eq!(found.column_by_name(name.name()), Some(wanted), "{name}");
    }
    assert_eq!(found.num_columns(), wanted.num_columns() - 2);
}

#[test]
fn a_data_set_is_read_back_and_not_made_twice() {
    let folder = Folder::new();
    let path = capture(&folder, 2 * BATCH_ROWS as u32 + 4000);
    let plain = trains(open(&path), &grid());
    let out = folder.file("out");
    let inputs = Inputs::of(&[&path]).expect("a capture");
    let dataset = Dataset::create(&out, "some", &inputs).expect("a data set");
    assert!(dataset.is_empty().expect("a folder"));
    assert_eq!(complete(&dataset, open(&path), 0), grid().len());
    assert!(!dataset.is_empty().expect("a folder"));
    for (options, (trains, report)) in grid().iter().zip(&plain) {
        assert!(dataset.has(options, 0) && dataset.has_run(options));
        assert_eq!(dataset.fault(options).expect("a file"), None);
        check(&out, options, 1, trains, report);
    }
    let before = everything(&out);
    let again = Dataset::create(&out, "some", &inputs).expect("the data set");
    assert_eq!(complete(&again, open(&path), 0), 0);
    assert_eq!(everything(&out), before);

    // A run that was killed: while it wrote trains, and before it wrote the table of runs.
    let [first, second, ..] = &grid()[..] else {
        unreachable!("two configurations");
    };
    for (table, options) in [("trains", first), ("runs", second)] {
        let whole = place(&out, table, options).join("part-0000.parquet");
        let name = whole
            .strip_prefix(&out)
            .expect("a path")
            .display()
            .to_string();
        let left = format!("unfinished/{}.tmp-7-8-9", name.replace('/', "+"));
        fs::rename(whole, out.join(left)).expect("a file");
    }
    assert!(!again.has(first, 0) && !again.has(second, 0));
    assert_eq!(complete(&again, open(&path), 0), 2);
    for (options, (trains, report)) in grid().iter().zip(&plain) {
        check(&out, options, 1, trains, report);
    }
    let paths = |all: Vec<(PathBuf, u64, i64, i64)>| all.into_iter().map(|(path, ..)| path);
    assert!(paths(everything(&out)).eq(paths(before)));
}

#[test]
fn parts_add_up_to_the_whole() {
    let folder = Folder::new();
    let path = capture(&folder, 10_000);
    let plain = trains(open(&path), &grid());
    let parts = Parts::of(&path, 50_000, 1_000_000).expect("parts").parts;
    assert!(parts.len() > 2);
    let out = folder.file("out");
    let inputs = Inputs {
        parts: parts.iter().map(|part| format!("{part:?}")).collect(),
        ..Inputs::of(&[&path]).expect("a capture")
    };
    Dataset::create(&out, "some", &inputs).expect("a data set");
    // As tasks do: in any order.
    for (index, part) in parts.iter().enumerate().rev() {
        let dataset = Dataset::open(&out, "some").expect("the data set");
        assert!(dataset.parts().eq(&inputs.parts));
        let error = dataset.merge(&grid()[0]).expect_err("not all have run");
        assert!(error.to_string().contains("has not run"), "{error}");
        let files = Files::part(&path, *part).expect("a part");
        assert_eq!(complete(&dataset, files, index), grid().len());
    }
    let dataset = Dataset::open(&out, "some").expect("the data set");
    for (options, (trains, report)) in grid().iter().zip(&plain) {
        assert!(!dataset.has_run(options));
        assert_eq!(dataset.merge(options).expect("a sum"), *report);
        assert!(dataset.has_run(options));
        check(&out, options, parts.len(), trains, report);
    }
    let before = everything(&out);
    dataset.merge(&grid()[0]).expect("the same sum");
    assert_eq!(everything(&out), before);
    let error = dataset
        .writer(&grid()[0], parts.len())
        .expect_err("no such part");
    assert!(matches!(error, Error::Dataset { .. }), "{error}");
}

#[test]
fn an_error_names_the_folder_and_leaves_it_as_it_was() {
    let folder = Folder::new();
    let path = capture(&folder, 1000);
    let inputs = Inputs::of(&[&path]).expect("a capture");
    let refused = |out: &Path, name: &str, inputs: &Inputs, words: &str| {
        let before = everything(&folder.0);
        let error = Dataset::create(out, name, inputs).expect_err(words);
        let line = error.to_string();
        let place = out.display().to_string();
        assert!(line.contains(words) && line.contains(&place), "{line}");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(everything(&folder.0), before);
    };
    refused(&folder.0, "some", &inputs, "not empty");
    let out = folder.file("out");
    for name in ["", "a/b", "..", "a=b", &"a".repeat(200)] {
        refused(&out, name, &inputs, "name of a data set");
    }
    let error = Dataset::open(&out, "some").expect_err("no data set");
    assert!(error.to_string().contains("create it first"), "{error}");
    let dataset = Dataset::create(&out, "some", &inputs).expect("a data set");
    let other = Inputs {
        parts: vec!["one".to_owned()],
        ..inputs.clone()
    };
    refused(&out, "some", &other, "other captures");
    // Of the same length, and of another one.
    dataset.unchanged().expect("the capture");
    write(&path, Format::PcapNg, &traffic(1000));
    let rewritten = Inputs::of(&[&path]).expect("a capture");
    assert_eq!(rewritten.files[0].bytes, inputs.files[0].bytes);
    refused(&out, "some", &rewritten, "other captures");
    let error = dataset.unchanged().expect_err("it was written again");
    assert!(error.to_string().contains("all.pcapng"), "{error}");
    write(&path, Format::PcapNg, &traffic(999));
    let changed = Inputs::of(&[&path]).expect("a capture");
    refused(&out, "some", &changed, "other captures");
    Dataset::create(&out, "another", &changed).expect("another data set");

    // A report of another run, and no report at all.
    let mut reports = trains(open(&path), &grid()).into_iter();
    let before = everything(&out);
    let report = reports.next().expect("a report").1;
    let options = &grid()[0];
    let writer = dataset.writer(options, 0).expect("a writer");
    let error = writer.finish(&report).expect_err("no trains were written");
    assert!(error.to_string().contains("0 trains"), "{error}");
    drop(dataset.writer(options, 0).expect("a writer"));
    assert_eq!(everything(&out), before);
    // A folder that cannot be made.
    fs::write(out.join("trains/dataset=another"), "").expect("a file");
    let another = Dataset::open(&out, "another").expect("the data set");
    let error = another.writer(options, 0).expect_err("a file is there");
    assert!(error.to_string().contains("dataset=another"), "{error}");

    // The report cannot be written: the trains are not left without it.
    let third = Dataset::create(&out, "third", &changed).expect("a third data set");
    let id = configuration_id(options);
    let in_the_way = format!("runs/dataset=third/configuration={id}/part-0000.parquet");
    fs::create_dir_all(out.join(in_the_way)).expect("a folder");
    let writer = third.writer(options, 0).expect("a writer");
    for (writer, report) in on(open(&path), &grid()[..1], vec![writer]) {
        let error = writer.finish(&report).expect_err("a folder is there");
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
    assert!(third.is_empty().expect("a folder"));

    let marker = out.join("packtrain-dataset.json");
    fs::write(&marker, r#"{"format": "packtrain-dataset", "version": 2}"#).expect("a file");
    refused(&out, "some", &changed, "format version 2");
}
