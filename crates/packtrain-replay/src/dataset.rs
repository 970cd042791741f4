//! Data sets of Parquet files: a folder that DuckDB, Polars and pyarrow read as tables.
//!
//! | path in the folder | |
//! | --- | --- |
//! | `packtrain-dataset.json` | the version of the format |
//! | `inputs/NAME.json` | the captures of the data set `NAME`, and their parts |
//! | `trains/dataset=NAME/configuration=ID/part-0000.parquet` | [`trains_schema`] |
//! | `parts/dataset=NAME/configuration=ID/part-0000.json` | the report of a part |
//! | `runs/dataset=NAME/configuration=ID/part-0000.parquet` | [`runs_schema`] |
//! | `unfinished` | files that are being written |
//!
//! The columns `dataset` and `configuration` are in the paths only (hive partitions). The metadata
//! of each Parquet file has the captures, the settings and the version of packtrain.
//!
//! A file has its name when it is whole: it is written in `unfinished`, where readers of the tables
//! do not look, synchronised and renamed. The last file of a run is its commit mark: the
//! table of runs, or the report of a part. After a run that was killed, [`Dataset::has`] says what
//! is done, and [`Dataset::writer`] removes what the killed run left behind. Several processes may
//! write to a folder at once, also on several machines, but one at a time for each part.
//!
//! [`trains_schema`]: super::tables::trains_schema
//! [`runs_schema`]: super::tables::runs_schema

use super::error::Error;
use super::grid::settings;
use super::run::Sink;
use super::tables::{BATCH_ROWS, Rows, Run, configuration_id, runs};
use arrow_array::RecordBatch;
use packtrain_capture::replay::{Options, Report, Train};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnPath;
use serde_json::{Value, from_slice, json, to_vec_pretty};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the format of a folder. Another version is not read or written.
pub const FORMAT_VERSION: u64 = 1;

const MARKER: &str = "packtrain-dataset.json";
const UNFINISHED: &str = "unfinished";
/// The metadata of a file of the table of runs: what is wrong with the captures.
const FAULTS: &str = "packtrain.faults";
const NAME_BYTES_MAX: usize = 128;
/// Rows of a row group: many for a scan, few for the memory of hundreds of writers.
const ROW_GROUP_ROWS: usize = 2 * BATCH_ROWS;

/// A capture of a data set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Input {
    /// Its path.
    pub path: String,
    /// Its length, if known.
    pub bytes: Option<u64>,
    /// When it was last changed, in nanoseconds since the Unix epoch, if its length is known: a
    /// capture may be replaced by one of the same length.
    pub modified_ns: Option<i64>,
}

/// The captures of a data set. A name stands for the same inputs in every run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// The captures, in any order.
    pub files: Vec<Input>,
    /// A description of each part, if parts are run on their own: any text that is the same for
    /// the same packets. None if each configuration runs on everything at once.
    pub parts: Vec<String>,
}

impl Inputs {
    /// The captures at these paths, which are made absolute.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn of<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        let files = paths.iter().map(|path| {
            let path = path.as_ref();
            let found = path.canonicalize().and_then(|absolute| {
                let metadata = fs::metadata(&absolute)?;
                let nanoseconds = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
                Ok(Input {
                    path: absolute.display().to_string(),
                    bytes: metadata.is_file().then_some(metadata.len()),
                    modified_ns: metadata.is_file().then_some(nanoseconds),
                })
            });
            found.map_err(|error| open_error(path, error))
        });
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
            parts: Vec::new(),
        })
    }

    fn record(&self) -> Value {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort();
        let file = |file: &&Input| {
            let Input {
                path,
                bytes,
                modified_ns,
            } = file;
            json!({"path": path, "bytes": bytes, "modified_ns": modified_ns})
        };
        let files: Vec<_> = files.iter().map(file).collect();
        json!({"files": files, "parts": self.parts})
    }
}

/// Checks that a data set can have this name: up to 128 letters, digits, `.`, `-` and `_`, without
/// `.` at the start.
///
/// # Errors
/// The reason, in one line.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_short = (1..=NAME_BYTES_MAX).contains(&name.len());
    if is_short && name.chars().all(is_good) && !name.starts_with('.') {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot be the name of a data set: use up to {NAME_BYTES_MAX} letters, digits, \
         '.', '-' and '_', without '.' at the start"
    ))
}

/// One data set of a folder: what any number of configurations make of some captures.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
    name: String,
    /// [`Inputs`], as they are recorded.
    inputs: Arc<Value>,
}

impl Dataset {
    /// Creates a data set, or opens it if it is there. The folder is made if it is not there; an
    /// empty one is taken. [`check_name`] has the rule of names.
    ///
    /// # Errors
    /// If the folder has other files, a data set of another format, or one of this name from other
    /// inputs; if it cannot be written.
    pub fn create(folder: &Path, name: &str, inputs: &Inputs) -> Result<Self, Error> {
        check_name(name).map_err(|why| fault(folder, why))?;
        if !is_dataset(folder)? {
            fs::create_dir_all(folder).map_err(|error| write_error(folder, error))?;
            let marker = json!({"format": "packtrain-dataset", "version": FORMAT_VERSION});
            write_json(folder, &folder.join(MARKER), &marker)?;
        }
        let path = inputs_path(folder, name);
        let wanted = inputs.record();
        if !path.is_file() {
            write_json(folder, &path, &wanted)?;
        }
        let created = Self::open(folder, name)?;
        if *created.inputs != wanted {
            return Err(fault(
                folder,
                format!(
                    "the data set {name} was made from other captures, or from other parts of \
                     them: choose another name, or remove {} and each folder dataset={name}",
                    path.display()
                ),
            ));
        }
        Ok(created)
    }

    /// Opens a data set that is there, as a task does that runs a part.
    ///
    /// # Errors
    /// If there is none of this name, or one of another format.
    pub fn open(folder: &Path, name: &str) -> Result<Self, Error> {
        let path = inputs_path(folder, name);
        if !is_dataset(folder)? || !path.is_file() {
            let why = format!("no data set {name} is there: create it first");
            return Err(fault(folder, why));
        }
        Ok(Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            inputs: Arc::new(read_json(&path)?),
        })
    }

    /// Whether the captures that it was created from are as they were, for a task that reads them.
    ///
    /// # Errors
    /// [`Error::Changed`], or if one cannot be found.
    pub fn unchanged(&self) -> Result<(), Error> {
        let files = self.inputs["files"].as_array();
        for file in files.into_iter().flatten() {
            let path = file["path"].as_str().unwrap_or_default();
            let now = Inputs::of(&[path])?.record();
            if !file["bytes"].is_null() && now["files"][0] != *file {
                return Err(Error::Changed {
                    path: path.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptions of its parts: see [`Inputs::parts`].
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        let parts = self.inputs["parts"].as_array();
        let parts = parts.map_or(&[][..], Vec::as_slice);
        parts.iter().map(|part| part.as_str().unwrap_or_default())
    }

    /// Whether a configuration has run on a part, to the end. Without parts, 0 is everything.
    #[must_use]
    pub fn has(&self, options: &Options, part: usize) -> bool {
        let trains = self.trains_path(options, part);
        trains.is_file() && self.mark_path(options, part).is_file()
    }

    /// Whether the table of runs has a configuration: it has run on everything, and its parts are
    /// merged.
    #[must_use]
    pub fn has_run(&self, options: &Options) -> bool {
        self.runs_path(options).is_file()
    }

    /// Whether it has no trains yet, of any configuration.
    ///
    /// # Errors
    /// If its folders cannot be read.
    pub fn is_empty(&self) -> Result<bool, Error> {
        let all = self.table_path("trains");
        for configuration in entries(&all)? {
            if !entries(&configuration)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Why the captures were not read to their end when a configuration ran that the table of runs
    /// has, as its file says. `None` if they were.
    ///
    /// # Errors
    /// If the file is not there, or is no Parquet file.
    pub fn fault(&self, options: &Options) -> Result<Option<String>, Error> {
        let path = self.runs_path(options);
        let file = File::open(&path).map_err(|error| open_error(&path, error))?;
        let reader = SerializedFileReader::new(file);
        let reader = reader.map_err(|error| open_error(&path, to_io(error)))?;
        let entries = reader.metadata().file_metadata().key_value_metadata();
        let mut entries = entries.into_iter().flatten();
        let found = entries.find(|entry| entry.key == FAULTS);
        Ok(found.and_then(|entry| entry.value.clone()))
    }

    /// Begins to write the trains of a configuration on a part. Without parts, 0 is everything.
    /// What another run left unfinished is removed.
    ///
    /// # Errors
    /// If there is no such part, or a file cannot be written.
    pub fn writer(&self, options: &Options, part: usize) -> Result<TrainsWriter, Error> {
        let parts = self.parts().len();
        if part >= parts.max(1) {
            let why = format!(
                "the data set {} has {parts} parts, not part {part}",
                self.name
            );
            return Err(fault(&self.folder, why));
        }
        let path = self.trains_path(options, part);
        remove_unfinished(&self.folder, &path)?;
        remove_unfinished(&self.folder, &self.mark_path(options, part))?;
        let (pending, file) = Pending::create(&self.folder, &path)?;
        let rows = Rows::new(None);
        let properties = properties()
            // Times increase, and flows repeat.
            .set_column_dictionary_enabled(ColumnPath::from("time"), false)
            .set_column_encoding(ColumnPath::from("time"), Encoding::DELTA_BINARY_PACKED)
            .set_key_value_metadata(Some(self.metadata(options, &[])))
            .build();
        let file = BufWriter::new(file);
        let writer = ArrowWriter::try_new(file, rows.schema(), Some(properties));
        Ok(TrainsWriter {
            writer: writer.map_err(|error| write_error(&path, to_io(error)))?,
            pending,
            rows,
            written: 0,
            dataset: self.clone(),
            options: *options,
            part,
        })
    }

    /// Adds up the reports of all parts of a configuration, and writes its rows of the table of
    /// runs, unless they are there.
    ///
    /// # Errors
    /// If a part has not run, the sum does not add up, or a file cannot be read or written.
    pub fn merge(&self, options: &Options) -> Result<Report, Error> {
        let mut sum = None::<Report>;
        let mut faults = Vec::new();
        for part in 0..self.parts().len() {
            if !self.has(options, part) {
                let why = format!("part {part} of the data set {} has not run", self.name);
                return Err(fault(&self.mark_path(options, part), why));
            }
            let path = self.mark_path(options, part);
            let mut stored = read_json(&path)?;
            if let Some(text) = stored["fault"].as_str() {
                faults.push(text.to_owned());
            }
            let report = serde_json::from_value(stored["report"].take());
            let report: Report = report.map_err(|error| open_error(&path, error.into()))?;
            match &mut sum {
                Some(sum) => sum.merge(&report),
                None => sum = Some(report),
            }
        }
        let sum = sum.ok_or_else(|| {
            let why = format!("the data set {} has no parts to merge", self.name);
            fault(&self.folder, why)
        })?;
        if !self.has_run(options) {
            remove_unfinished(&self.folder, &self.runs_path(options))?;
            self.write_runs(options, &sum, &faults)?;
        }
        Ok(sum)
    }

    /// Writes the last file of a part.
    fn mark(&self, options: &Options, part: usize, report: &Report) -> Result<(), Error> {
        let fault = report.stopped.map(|error| error.to_string());
        if self.parts().len() == 0 {
            return self.write_runs(options, report, fault.as_slice());
        }
        let stored = json!({"report": report, "fault": fault});
        write_json(&self.folder, &self.mark_path(options, part), &stored)
    }

    fn write_runs(&self, options: &Options, sum: &Report, faults: &[String]) -> Result<(), Error> {
        let path = self.runs_path(options);
        if !sum.is_closed() {
            let why = "the ledger does not close: packets received are not those passed on; \
                       remove the parts of this configuration and run it again";
            return Err(fault(&path, why.to_owned()));
        }
        let row = Run {
            dataset: &self.name,
            options,
            report: sum,
        };
        let write = |file: BufWriter<File>| {
            let table = runs(&[row])?;
            // `dataset` and `configuration` are in the path.
            let columns: Vec<_> = (2..table.num_columns()).collect();
            let table = table.project(&columns)?;
            let metadata = self.metadata(options, faults);
            let properties = properties().set_key_value_metadata(Some(metadata)).build();
            let mut writer = ArrowWriter::try_new(file, table.schema(), Some(properties))?;
            writer.write(&table)?;
            writer.into_inner()
        };
        let (pending, file) = Pending::create(&self.folder, &path)?;
        let file = write(BufWriter::new(file));
        pending.commit(file.map_err(|error| write_error(&path, to_io(error)))?)
    }

    /// What each Parquet file says about itself.
    fn metadata(&self, options: &Options, faults: &[String]) -> Vec<KeyValue> {
        let settings = settings(options).into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), Value::String(value)));
        let settings = Value::Object(settings.collect());
        let mut all = vec![
            ("packtrain.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("packtrain.dataset", self.name.clone()),
            ("packtrain.configuration", configuration_id(options)),
            ("packtrain.inputs", self.inputs["files"].to_string()),
            ("packtrain.settings", settings.to_string()),
        ];
        if !faults.is_empty() {
            all.push((FAULTS, faults.join("; ")));
        }
        let entry = |(key, value): (&str, _)| KeyValue::new(key.to_owned(), value);
        all.into_iter().map(entry).collect()
    }

    fn place(&self, table: &str, options: &Options) -> PathBuf {
        let id = configuration_id(options);
        self.table_path(table).join(format!("configuration={id}"))
    }

    fn table_path(&self, table: &str) -> PathBuf {
        let table = self.folder.join(table);
        table.join(format!("dataset={}", self.name))
    }

    fn trains_path(&self, options: &Options, part: usize) -> PathBuf {
        let name = format!("part-{part:04}.parquet");
        self.place("trains", options).join(name)
    }

    fn runs_path(&self, options: &Options) -> PathBuf {
        self.place("runs", options).join("part-0000.parquet")
    }

    /// The file that is written last.
    fn mark_path(&self, options: &Options, part: usize) -> PathBuf {
        if self.parts().len() == 0 {
            return self.runs_path(options);
        }
        let name = format!("part-{part:04}.json");
        self.place("parts", options).join(name)
    }
}

/// Writes the trains of one configuration on a part: see [`Dataset::writer`]. Its memory is that
/// of a row group, about 10 MB. Without [`finish`](Self::finish) it leaves no file.
#[derive(Debug)]
pub struct TrainsWriter {
    writer: ArrowWriter<BufWriter<File>>,
    pending: Pending,
    rows: Rows,
    written: u64,
    dataset: Dataset,
    options: Options,
    part: usize,
}

impl TrainsWriter {
    /// Ends the file of trains, then writes the report: the part is done. The report is that of the
    /// run whose trains were taken. Not to be called if the run was ended by its
    /// [`watch`](super::Settings::watch).
    ///
    /// # Errors
    /// If a file cannot be written, or trains and report are not of one run. The part is not done
    /// then.
    pub fn finish(mut self, report: &Report) -> Result<(), Error> {
        self.write()?;
        let path = &self.pending.path;
        let seen = report.interfaces.iter();
        let records: u64 = seen.map(|interface| interface.records).sum();
        if records != self.written {
            let why = format!(
                "{} trains were written, and the report counts {records}: finish each writer \
                 with the report of its own run",
                self.written
            );
            return Err(fault(path, why));
        }
        let file = self.writer.into_inner();
        let file = file.map_err(|error| write_error(path, to_io(error)))?;
        self.pending.commit(file)?;
        let marked = self.dataset.mark(&self.options, self.part, report);
        if marked.is_err() {
            // Readers of the tables would take them for a part that is done.
            fs::remove_file(path).ok();
        }
        marked
    }

    /// Writes the rows that wait.
    fn write(&mut self) -> Result<(), Error> {
        let batch: Result<RecordBatch, _> = self.rows.batch();
        let batch = batch.map_err(ParquetError::from);
        let written = batch.and_then(|batch| {
            self.written += batch.num_rows() as u64;
            self.writer.write(&batch)
        });
        written.map_err(|error| write_error(&self.pending.path, to_io(error)))
    }
}

impl Sink for TrainsWriter {
    fn take(&mut self, mut trains: &[Train]) -> io::Result<()> {
        while !trains.is_empty() {
            trains = &trains[self.rows.add(trains)..];
            if self.rows.len() == BATCH_ROWS {
                self.write().map_err(|error| {
                    let kind = match &error {
                        Error::Write { error, .. } => error.kind(),
                        _ => io::ErrorKind::Other,
                    };
                    io::Error::new(kind, error)
                })?;
            }
        }
        Ok(())
    }

    fn interfaces(&mut self, names: &[Option<String>]) -> io::Result<()> {
        self.rows.name(names);
        Ok(())
    }
}

/// A file that does not have its name yet. It is removed unless it is committed.
#[derive(Debug)]
struct Pending {
    path: PathBuf,
    temporary: PathBuf,
}

impl Pending {
    /// Begins a file in a folder of data sets.
    fn create(folder: &Path, path: &Path) -> Result<(Self, File), Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let unfinished = folder.join(UNFINISHED);
        for folder in [&unfinished, path.parent().unwrap_or(path)] {
            fs::create_dir_all(folder).map_err(|error| write_error(folder, error))?;
        }
        // Processes on two machines may have the same number.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos());
        let suffix = format!("{}-{now}-{number}", process::id());
        let temporary = unfinished.join(unfinished_prefix(folder, path) + &suffix);
        let file = File::create_new(&temporary).map_err(|error| write_error(path, error))?;
        let pending = Self {
            path: path.to_owned(),
            temporary,
        };
        Ok((pending, file))
    }

    /// Gives the file its name.
    fn commit(&self, file: BufWriter<File>) -> Result<(), Error> {
        let done = || {
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            // So that a file with its name is whole after a power failure, too.
            file.sync_all()?;
            fs::rename(&self.temporary, &self.path)
        };
        done().map_err(|error| write_error(&self.path, error))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // It is not there after a commit.
        fs::remove_file(&self.temporary).ok();
    }
}

/// How the names begin under which a file is written: its path in the folder.
fn unfinished_prefix(folder: &Path, path: &Path) -> String {
    let path = path.strip_prefix(folder).unwrap_or(path);
    let name = path.to_string_lossy().replace('/', "+");
    name + ".tmp-"
}

/// The paths of what is in a folder; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| open_error(folder, error))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: io::Result<_> = paths.collect();
    paths.map_err(|error| open_error(folder, error))
}

/// Removes what runs that were killed left of a file.
fn remove_unfinished(folder: &Path, path: &Path) -> Result<(), Error> {
    let prefix = unfinished_prefix(folder, path);
    let unfinished = folder.join(UNFINISHED);
    for path in entries(&unfinished)? {
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
            fs::remove_file(&path).map_err(|error| write_error(&path, error))?;
        }
    }
    Ok(())
}

/// Whether a folder has data sets; `false` if it is empty or not there.
fn is_dataset(folder: &Path) -> Result<bool, Error> {
    let marker = folder.join(MARKER);
    if !marker.is_file() {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries.map_err(|error| open_error(folder, error))?,
        };
        for entry in entries {
            let name = entry
                .map_err(|error| open_error(folder, error))?
                .file_name();
            // Another process may have created it meanwhile.
            if name != UNFINISHED && !marker.is_file() {
                let why = "the folder is not empty and no packtrain data set: choose another \
                           one, or a new one";
                return Err(fault(folder, why.to_owned()));
            }
        }
        if !marker.is_file() {
            return Ok(false);
        }
    }
    let found = read_json(&marker)?;
    if found["version"].as_u64() != Some(FORMAT_VERSION) {
        let why = format!(
            "a data set of format version {}, and this is version {FORMAT_VERSION}: use the \
             release of packtrain that made it, or another folder",
            found["version"]
        );
        return Err(fault(folder, why));
    }
    Ok(true)
}

fn inputs_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("inputs").join(format!("{name}.json"))
}

fn write_json(folder: &Path, path: &Path, value: &Value) -> Result<(), Error> {
    let (pending, file) = Pending::create(folder, path)?;
    let mut file = BufWriter::new(file);
    let text = to_vec_pretty(value).map_err(io::Error::from);
    let written = text.and_then(|text| file.write_all(&text));
    written.map_err(|error| write_error(path, error))?;
    pending.commit(file)
}

fn read_json(path: &Path) -> Result<Value, Error> {
    let read = fs::read(path).and_then(|text| Ok(from_slice(&text)?));
    read.map_err(|error| open_error(path, error))
}

fn properties() -> parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
}

fn to_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

fn open_error(path: &Path, error: io::Error) -> Error {
    Error::Open {
        path: path.display().to_string(),
        error,
    }
}

fn write_error(path: &Path, error: io::Error) -> Error {
    Error::Write {
        path: path.display().to_string(),
        error,
    }
}

fn fault(path: &Path, why: String) -> Error {
    Error::Dataset {
        path: path.display().to_string(),
        why,
    }
}
