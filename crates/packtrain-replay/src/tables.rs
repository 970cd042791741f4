//! Trains and runs as tables in the form of Apache Arrow.

use super::grid::settings;
use super::run::Sink;
use super::summary::{configuration, figures, row};
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, StringDictionaryBuilder, TimestampNanosecondBuilder,
    UInt16Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use packtrain_capture::replay::{Options, Report, Train};
use packtrain_offload::offload::LinkType;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;

/// Rows of a batch of trains.
pub const BATCH_ROWS: usize = 65_536;

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

/// The rows of trains that are not in a batch yet, by column.
#[derive(Default)]
struct Rows {
    time: TimestampNanosecondBuilder,
    interface: StringDictionaryBuilder<Int32Type>,
    queue: UInt16Builder,
    flow: UInt64Builder,
    packets: UInt32Builder,
    bytes: UInt32Builder,
    held_ns: UInt64Builder,
    was_held: BooleanBuilder,
    end: StringDictionaryBuilder<Int8Type>,
    configuration: StringDictionaryBuilder<Int8Type>,
}

impl Rows {
    fn add(&mut self, train: &Train, interface: &str, configuration: &str) {
        let time = i64::try_from(train.time_ns).unwrap_or(i64::MAX);
        self.time.append_value(time);
        self.interface.append_value(interface);
        self.queue.append_value(train.queue);
        self.flow.append_value(train.flow);
        self.packets.append_value(train.packets);
        self.bytes.append_value(train.bytes);
        self.held_ns.append_value(train.held_ns);
        self.was_held.append_value(train.end.was_held());
        self.end.append_value(train.end.name());
        self.configuration.append_value(configuration);
    }

    /// The rows added since the last call.
    fn batch(&mut self) -> Result<RecordBatch, ArrowError> {
        let time = self.time.finish().with_timezone("UTC");
        // All batches have one dictionary.
        let interface = self.interface.finish_preserve_values();
        let end = self.end.finish_preserve_values();
        let configuration = self.configuration.finish_preserve_values();
        let columns: [(&str, ArrayRef); 10] = [
            ("time", Arc::new(time)),
            ("interface", Arc::new(interface)),
            ("queue", Arc::new(self.queue.finish())),
            ("flow", Arc::new(self.flow.finish())),
            ("packets", Arc::new(self.packets.finish())),
            ("bytes", Arc::new(self.bytes.finish())),
            ("held_ns", Arc::new(self.held_ns.finish())),
            ("was_held", Arc::new(self.was_held.finish())),
            ("end", Arc::new(end)),
            ("configuration", Arc::new(configuration)),
        ];
        table(false, columns)
    }
}

fn table<N: Into<String>>(
    has_nulls: bool,
    columns: impl IntoIterator<Item = (N, ArrayRef)>,
) -> Result<RecordBatch, ArrowError> {
    let columns = columns.into_iter();
    let columns = columns.map(|(name, array)| {
        let field = Field::new(name, array.data_type().clone(), has_nulls);
        (field, array)
    });
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

/// The columns of [`Trains`].
pub(super) fn trains_schema() -> io::Result<SchemaRef> {
    let none = Rows::default().batch().map_err(io::Error::other)?;
    Ok(none.schema())
}

/// Takes full batches of trains.
pub(super) trait Out: Send {
    fn write(&mut self, batch: RecordBatch) -> io::Result<()>;
}

impl Out for Vec<RecordBatch> {
    fn write(&mut self, batch: RecordBatch) -> io::Result<()> {
        self.push(batch);
        Ok(())
    }
}

/// The trains of a configuration as batches of [`BATCH_ROWS`] rows, in the order in which they end.
/// Each train is a row:
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
/// | `end` | dictionary of text | [`End::name`](packtrain_capture::replay::End::name) |
/// | `configuration` | dictionary of text | [`configuration_id`] |
pub struct Trains<O = Vec<RecordBatch>> {
    rows: Rows,
    configuration: String,
    /// The names of interfaces.
    names: Vec<String>,
    out: O,
}

impl Trains {
    /// Keeps them in memory.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self::into(options, Vec::new())
    }

    /// All trains. The last batch has fewer rows, or none.
    ///
    /// # Errors
    /// None is known: those of Arrow for columns that do not fit.
    pub fn into_batches(self) -> io::Result<Vec<RecordBatch>> {
        self.finish()
    }
}

impl<O> Trains<O> {
    pub(super) fn into(options: &Options, out: O) -> Self {
        Self {
            rows: Rows::default(),
            configuration: configuration_id(options),
            names: Vec::new(),
            out,
        }
    }

    pub(super) fn finish(mut self) -> io::Result<O>
    where
        O: Out,
    {
        let last = self.rows.batch().map_err(io::Error::other)?;
        self.out.write(last)?;
        Ok(self.out)
    }
}

impl<O: Out> Sink for Trains<O> {
    fn take(&mut self, trains: &[Train]) -> io::Result<()> {
        for train in trains {
            let interface = self.names.get(train.interface as usize);
            let interface = interface.map_or("", String::as_str);
            self.rows.add(train, interface, &self.configuration);
            if self.rows.queue.len() == BATCH_ROWS {
                let full = self.rows.batch().map_err(io::Error::other)?;
                self.out.write(full)?;
            }
        }
        Ok(())
    }

    fn interfaces(&mut self, names: &[Option<String>]) -> io::Result<()> {
        for (number, name) in names.iter().enumerate().skip(self.names.len()) {
            self.names.push(name_of(name.as_deref(), number));
        }
        Ok(())
    }
}

/// The name of an interface in a table: its own, or its number.
fn name_of(name: Option<&str>, number: usize) -> String {
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// The columns of [`runs`] with text.
const TEXT: [&str; 6] = [
    "dataset",
    "configuration",
    "coalesce",
    "mode",
    "user0",
    "interface",
];
/// Those with `true` and `false`.
const FLAGS: [&str; 3] = ["headers_only", "exact_id", "conservation_closed"];
/// Those with fractions; all others have counts.
const FRACTIONS: [&str; 2] = ["ratio", "skew"];

/// The table of runs: a row for each configuration and interface. A capture without interfaces has
/// one row, without a name.
///
/// - `dataset`, `configuration` ([`configuration_id`]).
/// - The settings: `coalesce`, `mode`, `max_flows`, `hold_ns`, `queues`, `headers_only`,
///   `ack_limit`, `max_bytes`, `max_packets`, `exact_id`, `inactive_ns`, `window_packets`, `user0`.
///   Null is no limit.
/// - The interface: `interface` as in [`Trains`], `interface_number` as in [`Report::interfaces`].
/// - What `packtrain replay --json` says of it: `packets`, `emitted`, `ratio`, `flows`, `skew` and
///   so on. Of an object each key is a column: `delay_ns_p99`, `gro_flush_timeout`,
///   `not_taken_flags`.
/// - The ledger of all interfaces, equal in the rows of a configuration: `conservation_received`
///   and so on; `conservation_closed` says whether it adds up.
///
/// # Errors
/// None is known: those of Arrow for columns that do not fit.
pub fn runs(dataset: &str, runs: &[(&Options, &Report)]) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<_> = runs
        .iter()
        .flat_map(|(run, report)| rows(dataset, run, report))
        .collect();
    let names = rows.first().map_or(&[][..], Vec::as_slice);
    let columns = names.iter().enumerate().map(|(index, (name, _))| {
        let values = rows.iter().map(|row| &row[index].1);
        let is_in = |names: &[&str]| names.contains(&&name[..]);
        let array: ArrayRef = if is_in(&TEXT) {
            Arc::new(values.map(Value::as_str).collect::<StringArray>())
        } else if is_in(&FLAGS) {
            Arc::new(values.map(Value::as_bool).collect::<BooleanArray>())
        } else if is_in(&FRACTIONS) {
            Arc::new(values.map(Value::as_f64).collect::<Float64Array>())
        } else {
            Arc::new(values.map(Value::as_u64).collect::<UInt64Array>())
        };
        (name, array)
    });
    table(true, columns)
}

type Row = Vec<(String, Value)>;

/// The rows of a configuration: the names of their columns are the same in all.
fn rows(dataset: &str, options: &Options, report: &Report) -> Vec<Row> {
    let limits = &options.limits;
    let settings = json!({
        "headers_only": options.headers_only,
        "exact_id": limits.exact_id,
        "inactive_ns": limits.inactive_ns,
        "window_packets": limits.window_packets,
        "user0": user0(options),
    });
    let mut shared = vec![
        ("dataset".to_owned(), dataset.into()),
        ("configuration".to_owned(), configuration_id(options).into()),
    ];
    for (name, value) in configuration(options) {
        let name = match &name[..] {
            "flows" => "max_flows",
            "bytes_max" => "max_bytes",
            "packets" => "max_packets",
            name => name,
        };
        shared.push((name.to_owned(), value));
    }
    flatten("", settings, &mut shared);
    let ledger = figures(report).remove("conservation").unwrap_or_default();
    let seen = report.interfaces.iter().enumerate();
    let seen = seen.map(|(number, seen)| {
        let mut fields = row(number, seen);
        fields["name"] = name_of(seen.name.as_deref(), number).into();
        fields
    });
    let mut seen: Vec<_> = seen.collect();
    if seen.is_empty() {
        seen.push(row(0, &report.total()));
    }
    let rows = seen.into_iter().map(|seen| {
        let mut row = shared.clone();
        flatten("", seen, &mut row);
        flatten("conservation_", json!(ledger), &mut row);
        row
    });
    rows.collect()
}

/// Adds the fields of an object, and those of objects in it, without lists.
fn flatten(prefix: &str, object: Value, row: &mut Row) {
    let Value::Object(fields) = object else {
        return;
    };
    for (name, value) in fields {
        let name = match &name[..] {
            "interface" => "interface_number",
            "name" => "interface",
            name => name,
        };
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) => flatten(&format!("{name}_"), value, row),
            Value::Array(_) => {}
            value => row.push((name, value)),
        }
    }
}
