//! Trains and runs as tables in the form of Apache Arrow.

use super::grid::{Grid, settings};
use super::run::Sink;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, PrimitiveArray, RecordBatch,
    StringArray, TimestampNanosecondArray, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use packtrain_capture::replay::{End, InterfaceReport, Options, Report, Train};
use packtrain_offload::coalesce::{FlushReason, NotTaken};
use packtrain_offload::offload::LinkType;
use std::io;
use std::mem::take;
use std::sync::Arc;

/// Rows of a batch of trains.
pub const BATCH_ROWS: usize = 65_536;

const UTC: &str = "UTC";

/// The name of a configuration: `c` and 15 hex digits of a hash of its [`settings`] (FNV-1a, 64
/// bits) and of [`Options::user0`]. It is the same in every release and on every machine. Since it
/// starts with a letter, readers of a data set do not take it for a number.
#[must_use]
pub fn configuration_id(options: &Options) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        // The byte behind each text is in no text.
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for (name, value) in settings(options) {
        add(name);
        add(&value);
    }
    if let Some(link) = user0(options) {
        add("user0");
        add(link);
    }
    format!("c{:015x}", hash >> 4)
}

const fn user0(options: &Options) -> Option<&'static str> {
    match options.user0 {
        None => None,
        Some(LinkType::Ethernet) => Some("ethernet"),
        Some(LinkType::RawIp) => Some("ip"),
        Some(LinkType::Ipoib) => Some("ipoib"),
    }
}

/// A text that many rows share.
fn shared(name: &str, key: DataType) -> Field {
    let dictionary = DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
    Field::new(name, dictionary, false)
}

fn trains_fields() -> Vec<Field> {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into()));
    vec![
        Field::new("time", time, false),
        shared("interface", DataType::Int32),
        Field::new("queue", DataType::UInt16, false),
        Field::new("flow", DataType::UInt64, false),
        Field::new("packets", DataType::UInt32, false),
        Field::new("bytes", DataType::UInt32, false),
        Field::new("held_ns", DataType::UInt64, false),
        Field::new("was_held", DataType::Boolean, false),
        shared("end", DataType::Int8),
    ]
}

/// The columns of the table of trains, one row for each [`Train`]:
///
/// | column | type | |
/// | --- | --- | --- |
/// | `time` | timestamp (ns, UTC) | the arrival of the first packet |
/// | `interface` | dictionary of text | the name of the interface, or its number if it has none |
/// | `queue` | `u16` | |
/// | `flow` | `u64` | the same for the packets of a flow, on every machine; 0 without ports |
/// | `packets`, `bytes` | `u32` | bytes as one packet, with the link header |
/// | `held_ns` | `u64` | how long the first packet was held |
/// | `was_held` | bool | `end` is a reason of a flush; otherwise the coalescer did not take it |
/// | `end` | dictionary of text | [`End::name`] |
#[must_use]
pub fn trains_schema() -> SchemaRef {
    Arc::new(Schema::new(trains_fields()))
}

/// The keys of `end` in its dictionary.
#[derive(Clone, Debug)]
struct Ends {
    names: Vec<&'static str>,
    flushed: Vec<i8>,
    not_taken: Vec<i8>,
    passed_by: i8,
}

impl Ends {
    fn new() -> Self {
        let mut names = Vec::new();
        let mut key = |end: End| {
            let name = end.name();
            let known = names.iter().position(|known| *known == name);
            let index = known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            index as i8
        };
        let flushed = FlushReason::ALL.iter().map(|&why| key(End::Flushed(why)));
        let flushed = flushed.collect();
        let not_taken = NotTaken::ALL.iter().map(|&why| key(End::NotTaken(why)));
        Self {
            flushed,
            not_taken: not_taken.collect(),
            passed_by: key(End::PassedBy),
            names,
        }
    }

    fn key(&self, end: End) -> i8 {
        match end {
            End::Flushed(why) => self.flushed[why as usize],
            End::NotTaken(why) => self.not_taken[why as usize],
            End::PassedBy => self.passed_by,
        }
    }
}

/// The values of some trains, by column.
#[derive(Clone, Debug, Default)]
struct Columns {
    time: Vec<i64>,
    interface: Vec<i32>,
    queue: Vec<u16>,
    flow: Vec<u64>,
    packets: Vec<u32>,
    bytes: Vec<u32>,
    held_ns: Vec<u64>,
    was_held: Vec<bool>,
    end: Vec<i8>,
}

/// Makes batches of trains: the rows that are not in a batch yet.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    schema: SchemaRef,
    configuration: Option<String>,
    ends: Ends,
    /// The names of interfaces, each once.
    names: Vec<String>,
    /// For each interface the index of its name.
    interfaces: Vec<i32>,
    columns: Columns,
}

impl Rows {
    pub(super) fn new(configuration: Option<String>) -> Self {
        let mut fields = trains_fields();
        if configuration.is_some() {
            fields.push(shared("configuration", DataType::Int8));
        }
        Self {
            schema: Arc::new(Schema::new(fields)),
            configuration,
            ends: Ends::new(),
            names: Vec::new(),
            interfaces: Vec::new(),
            columns: Columns::default(),
        }
    }

    pub(super) fn name(&mut self, names: &[Option<String>]) {
        for name in names.iter().skip(self.interfaces.len()) {
            let number = self.interfaces.len();
            let name = label(name.as_deref(), number);
            let known = self.names.iter().position(|known| *known == name);
            let index = known.unwrap_or_else(|| {
                self.names.push(name);
                self.names.len() - 1
            });
            self.interfaces.push(index as i32);
        }
    }

    /// Adds trains until the batch is full, and returns how many.
    pub(super) fn add(&mut self, trains: &[Train]) -> usize {
        let added = trains.len().min(BATCH_ROWS - self.len());
        for train in &trains[..added] {
            let interface = train.interface as usize;
            if interface >= self.interfaces.len() {
                self.name(&vec![None; interface + 1]);
            }
            let columns = &mut self.columns;
            let time = i64::try_from(train.time_ns).unwrap_or(i64::MAX);
            columns.time.push(time);
            columns.interface.push(self.interfaces[interface]);
            columns.queue.push(train.queue);
            columns.flow.push(train.flow);
            columns.packets.push(train.packets);
            columns.bytes.push(train.bytes);
            columns.held_ns.push(train.held_ns);
            columns.was_held.push(train.end.was_held());
            columns.end.push(self.ends.key(train.end));
        }
        added
    }

    pub(super) fn len(&self) -> usize {
        self.columns.time.len()
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The rows added since the last call.
    pub(super) fn batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns = take(&mut self.columns);
        let rows = columns.time.len();
        let text = |names: &[&str]| Arc::new(StringArray::from_iter_values(names));
        let names = StringArray::from_iter_values(&self.names);
        let interface = PrimitiveArray::<Int32Type>::from(columns.interface);
        let end = PrimitiveArray::<Int8Type>::from(columns.end);
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(TimestampNanosecondArray::from(columns.time).with_timezone(UTC)),
            Arc::new(DictionaryArray::try_new(interface, Arc::new(names))?),
            Arc::new(UInt16Array::from(columns.queue)),
            Arc::new(UInt64Array::from(columns.flow)),
            Arc::new(UInt32Array::from(columns.packets)),
            Arc::new(UInt32Array::from(columns.bytes)),
            Arc::new(UInt64Array::from(columns.held_ns)),
            Arc::new(BooleanArray::from(columns.was_held)),
            Arc::new(DictionaryArray::try_new(end, text(&self.ends.names))?),
        ];
        if let Some(id) = &self.configuration {
            let keys = PrimitiveArray::<Int8Type>::from(vec![0; rows]);
            arrays.push(Arc::new(DictionaryArray::try_new(keys, text(&[id]))?));
        }
        RecordBatch::try_new(self.schema(), arrays)
    }
}

/// The name of an interface in a table: its own, or its number.
fn label(name: Option<&str>, number: usize) -> String {
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// The trains of one configuration in memory, as batches of [`BATCH_ROWS`] rows, in the order in
/// which they end.
#[derive(Clone, Debug)]
pub struct Trains {
    rows: Rows,
    batches: Vec<RecordBatch>,
}

impl Default for Trains {
    fn default() -> Self {
        Self::new()
    }
}

impl Trains {
    /// The columns of [`trains_schema`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            rows: Rows::new(None),
            batches: Vec::new(),
        }
    }

    /// With a last column `configuration`: its [`configuration_id`] in every row, a dictionary of
    /// text.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        Self {
            rows: Rows::new(Some(configuration_id(options))),
            batches: Vec::new(),
        }
    }

    /// The columns.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// All trains. The last batch has fewer rows; without trains there is none.
    ///
    /// # Errors
    /// None is known: those of Arrow for columns that do not fit.
    pub fn into_batches(mut self) -> Result<Vec<RecordBatch>, ArrowError> {
        if self.rows.len() > 0 {
            self.batches.push(self.rows.batch()?);
        }
        Ok(self.batches)
    }
}

impl Sink for Trains {
    fn take(&mut self, mut trains: &[Train]) -> io::Result<()> {
        while !trains.is_empty() {
            trains = &trains[self.rows.add(trains)..];
            if self.rows.len() == BATCH_ROWS {
                self.batches
                    .push(self.rows.batch().map_err(io::Error::other)?);
            }
        }
        Ok(())
    }

    fn interfaces(&mut self, names: &[Option<String>]) -> io::Result<()> {
        self.rows.name(names);
        Ok(())
    }
}

/// A configuration and its report: a row for each interface in the table of [`runs`].
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The name of the captures.
    pub dataset: &'a str,
    /// The configuration.
    pub options: &'a Options,
    /// What it made of the captures.
    pub report: &'a Report,
}

/// A row of the table of runs.
struct Row<'a> {
    run: &'a Run<'a>,
    number: usize,
    seen: &'a InterfaceReport,
}

/// The columns of the table of [`runs`]. None of the counters is null; a share of nothing is.
///
/// - `dataset`, `configuration` ([`configuration_id`]): text.
/// - The settings: `coalesce`, `mode`, `max_flows`, `hold_ns`, `queues`, `headers_only`,
///   `ack_limit`, `max_bytes`, `max_packets`, `exact_id`, `inactive_ns`, `window_packets`, `user0`.
///   Null is the default.
/// - The interface: `interface` as in [`trains_schema`], `interface_number` as in
///   [`Report::interfaces`].
/// - Its counters, as in [`InterfaceReport`]: `packets` ([`frames`](InterfaceReport::frames)),
///   `bytes`, `captured_bytes`, `emitted`, `emitted_bytes`, `merged_packets` (that were made) and
///   `merged_from` (packets that they were made of), `absorbed_acks`, `flows` (estimated),
///   `pure_acks`, `udp`, `quic`, `cut_short`, `by_headers`, `other_link`, `no_length`,
///   `unfinished`, `large`, `bad_checksums`, `held_max`.
/// - Its shares: `packets_per_emitted`, `packets_per_merged`.
/// - The delay that holding adds: `delay_p50_ns`, `delay_p99_ns`.
/// - Why trains ended: `flush_full` and so on for each [`FlushReason`], `not_taken_protocol` and so
///   on for each [`NotTaken`].
/// - The ledger of all interfaces, equal in the rows of a configuration: `received`, `dropped`,
///   `transmitted`, `absorbed` and `closed`, which says whether the ledger adds up.
#[must_use]
pub fn runs_schema() -> SchemaRef {
    let columns = columns(&[]);
    let fields = columns.map(|(name, array)| {
        let may_be_null = OPTIONAL.contains(&&name[..]);
        Field::new(name, array.data_type().clone(), may_be_null)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns with nulls.
const OPTIONAL: [&str; 8] = [
    "ack_limit",
    "max_bytes",
    "max_packets",
    "inactive_ns",
    "window_packets",
    "user0",
    "packets_per_emitted",
    "packets_per_merged",
];

/// The table of runs: a row for each configuration and interface, with the columns of
/// [`runs_schema`].
///
/// # Errors
/// None is known: those of Arrow for columns that do not fit.
pub fn runs(runs: &[Run<'_>]) -> Result<RecordBatch, ArrowError> {
    let rows = runs.iter().flat_map(|run| {
        let seen = run.report.interfaces.iter().enumerate();
        seen.map(move |(number, seen)| Row { run, number, seen })
    });
    let rows: Vec<_> = rows.collect();
    let arrays = columns(&rows).map(|(_, array)| array);
    RecordBatch::try_new(runs_schema(), arrays.collect())
}

/// Every column of the table of runs.
fn columns(rows: &[Row<'_>]) -> impl Iterator<Item = (String, ArrayRef)> {
    type Column = (&'static str, ArrayRef);
    let text = |name, get: &dyn Fn(&Row<'_>) -> Option<String>| -> Column {
        (
            name,
            Arc::new(rows.iter().map(get).collect::<StringArray>()),
        )
    };
    let flag = |name, get: fn(&Row<'_>) -> bool| -> Column {
        let values: Vec<_> = rows.iter().map(get).collect();
        (name, Arc::new(BooleanArray::from(values)))
    };
    let share = |name, get: fn(&Row<'_>) -> (u64, u64)| -> Column {
        let shares = rows.iter().map(get);
        let shares = shares.map(|(of, by)| (by > 0).then(|| of as f64 / by as f64));
        (name, Arc::new(shares.collect::<Float64Array>()))
    };
    let short = |name, get: fn(&Row<'_>) -> Option<u16>| -> Column {
        (
            name,
            Arc::new(rows.iter().map(get).collect::<UInt16Array>()),
        )
    };
    let word = |name, get: fn(&Row<'_>) -> Option<u32>| -> Column {
        (
            name,
            Arc::new(rows.iter().map(get).collect::<UInt32Array>()),
        )
    };
    let long = |name, get: fn(&Row<'_>) -> Option<u64>| -> Column {
        (
            name,
            Arc::new(rows.iter().map(get).collect::<UInt64Array>()),
        )
    };
    let count = |name, get: fn(&Row<'_>) -> u64| -> Column {
        let values = rows.iter().map(get);
        (name, Arc::new(UInt64Array::from_iter_values(values)))
    };
    let setting = |name: &'static str| {
        move |row: &Row<'_>| {
            let settings = settings(row.run.options).into_iter();
            let mut values = settings.filter(|(known, _)| *known == name);
            values.next().map(|(_, value)| value)
        }
    };
    let fixed = vec![
        text("dataset", &|row| Some(row.run.dataset.to_owned())),
        text("configuration", &|row| {
            Some(configuration_id(row.run.options))
        }),
        text("coalesce", &setting("coalesce")),
        text("mode", &setting("mode")),
        word("max_flows", |row| {
            Some(row.run.options.limits.flows.unwrap_or(Grid::FLOWS))
        }),
        count("hold_ns", |row| row.run.options.hold_ns),
        short("queues", |row| Some(row.run.options.queues.max(1))),
        flag("headers_only", |row| row.run.options.headers_only),
        short("ack_limit", |row| row.run.options.limits.ack_limit),
        word("max_bytes", |row| row.run.options.limits.bytes),
        word("max_packets", |row| row.run.options.limits.packets),
        flag("exact_id", |row| row.run.options.limits.exact_id),
        long("inactive_ns", |row| row.run.options.limits.inactive_ns),
        word("window_packets", |row| {
            row.run.options.limits.window_packets
        }),
        text("user0", &|row| user0(row.run.options).map(str::to_owned)),
        text("interface", &|row| {
            Some(label(row.seen.name.as_deref(), row.number))
        }),
        word("interface_number", |row| Some(row.number as u32)),
        count("packets", |row| row.seen.frames),
        count("bytes", |row| row.seen.bytes),
        count("captured_bytes", |row| row.seen.captured_bytes),
        count("emitted", |row| row.seen.emitted()),
        count("emitted_bytes", |row| row.seen.record_bytes),
        count("merged_packets", |row| row.seen.stats.supers),
        count("merged_from", |row| row.seen.stats.merged),
        count("absorbed_acks", |row| row.seen.stats.absorbed),
        share("packets_per_emitted", |row| {
            (row.seen.frames, row.seen.emitted())
        }),
        share("packets_per_merged", |row| {
            (row.seen.stats.merged, row.seen.stats.supers)
        }),
        count("flows", |row| row.seen.flows()),
        count("delay_p50_ns", |row| row.seen.delays.quantile(0.5)),
        count("delay_p99_ns", |row| row.seen.delays.quantile(0.99)),
        count("pure_acks", |row| row.seen.pure_acks),
        count("udp", |row| row.seen.udp),
        count("quic", |row| row.seen.quic),
        count("cut_short", |row| row.seen.cut_short),
        count("by_headers", |row| row.seen.by_headers),
        count("other_link", |row| row.seen.other_link),
        count("no_length", |row| row.seen.no_length),
        count("unfinished", |row| row.seen.unfinished),
        count("large", |row| row.seen.large),
        count("bad_checksums", |row| row.seen.stats.bad_checksums),
        count("held_max", |row| row.seen.held_max),
    ];
    let counts = |get: &dyn Fn(&Row<'_>) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(get)))
    };
    let flushes = FlushReason::ALL.iter().map(|&why| {
        let counts = counts(&|row| row.seen.stats.flushes.get(why));
        (format!("flush_{why}"), counts)
    });
    let not_taken = NotTaken::ALL.iter().map(|&why| {
        let counts = counts(&|row| row.seen.stats.not_taken.get(why));
        (format!("not_taken_{why}"), counts)
    });
    let ledger = [
        count("received", |row| row.run.report.received),
        count("dropped", |row| row.run.report.dropped),
        count("transmitted", |row| row.run.report.transmitted),
        count("absorbed", |row| row.run.report.absorbed),
        flag("closed", |row| row.run.report.is_closed()),
    ];
    let named = |(name, array): Column| (name.to_owned(), array);
    let all: Vec<_> = fixed
        .into_iter()
        .map(named)
        .chain(flushes)
        .chain(not_taken)
        .chain(ledger.map(named))
        .collect();
    all.into_iter()
}
