//! Data sets of Parquet files: a folder that DuckDB, Polars and pyarrow read as tables.
//!
//! | path in the folder | |
//! | --- | --- |
//! | `inputs/NAME.json` | the captures of the data set `NAME`, and their parts |
//! | `trains/dataset=NAME/configuration=ID/part-0000.parquet` | [`Trains`] |
//! | `reports/dataset=NAME/configuration=ID/part-0000.json` | the report of a part |
//! | `runs/dataset=NAME/configuration=ID/part-0000.parquet` | [`runs`] |
//! | `unfinished` | files that are being written |
//!
//! The columns `dataset` and `configuration` are in the paths only (hive partitions). The metadata
//! of each Parquet file has the captures, the settings and the version of packtrain.
//!
//! A file has its name when it is whole: it is written in `unfinished`, where readers of the tables
//! do not look, synchronised and renamed. The report of a part is its last file, so
//! [`Dataset::missing`] says what is left to do after a run that was killed. Several processes may
//! write to a folder at once, also on several machines, but one at a time for each configuration
//! and part.

use super::error::Error;
use super::files::Files;
use super::grid::settings;
use super::part::Share;
use super::run::{Done, Settings, run};
use super::tables::{BATCH_ROWS, Out, Trains, configuration_id, runs, trains_schema};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use packtrain_capture::CaptureError;
use packtrain_capture::replay::{Options, Report};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempPath;

/// The version of the format of a folder. Another version is not read or written.
const FORMAT_VERSION: u64 = 1;

const UNFINISHED: &str = "unfinished";
const NAME_BYTES_MAX: usize = 128;
/// Rows of a row group: many for a scan, few for the memory of hundreds of writers.
const ROW_GROUP_ROWS: usize = 2 * BATCH_ROWS;

/// A capture of a data set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Input {
    /// Absolute, but for an input that is no file.
    path: String,
    /// Its length, if it is a file.
    bytes: Option<u64>,
    /// When it was last changed, in nanoseconds since the Unix epoch, if it is a file: a capture
    /// may be replaced by one of the same length.
    modified_ns: Option<i64>,
}

impl Input {
    fn of(path: &Path) -> Result<Self, Error> {
        let found = || {
            let file = match path == Path::new("-") {
                true => None,
                false => Some(fs::metadata(path)?).filter(fs::Metadata::is_file),
            };
            let absolute = file.as_ref().map(|_| path.canonicalize()).transpose()?;
            Ok((absolute.unwrap_or_else(|| path.to_owned()), file))
        };
        let (absolute, file) = found().map_err(|error| open_error(path, error))?;
        let text = absolute.to_str().ok_or_else(|| {
            let why = "its path is not UTF-8, as those of a data set are: rename it";
            fault(path, why.to_owned())
        })?;
        let modified = |file: &fs::Metadata| {
            let nanoseconds = file.mtime().saturating_mul(1_000_000_000);
            nanoseconds.saturating_add(file.mtime_nsec())
        };
        Ok(Self {
            path: text.to_owned(),
            bytes: file.as_ref().map(fs::Metadata::len),
            modified_ns: file.as_ref().map(modified),
        })
    }
}

/// The captures of a data set. A name stands for the same inputs in every run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Inputs {
    version: u64,
    files: Vec<Input>,
    parts: Vec<Share>,
}

/// The report of a configuration on a part, as a file.
#[derive(Serialize, Deserialize)]
struct Stored {
    report: Report,
    /// Why the capture was not read to its end.
    fault: Option<String>,
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

/// The name of a data set that has none: that of its first capture, without the suffixes of
/// compression and format.
#[must_use]
pub fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = [".gz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    let stem = Path::new(plain.unwrap_or(&name)).file_stem();
    stem.unwrap_or_default().to_string_lossy().into_owned()
}

/// One data set of a folder: what any number of configurations make of some captures.
#[derive(Clone, Debug)]
pub struct Dataset {
    folder: PathBuf,
    name: String,
    inputs: Inputs,
}

impl Dataset {
    /// Creates a data set, or opens it if it is there, for captures and configurations. The folder
    /// is made if it is not there; an empty one is taken. [`check_name`] has the rule of names.
    ///
    /// With `part_bytes` one capture that is longer is divided, if its parts add up exactly for
    /// these configurations: where nothing arrives for longer than the hold time, or by queue. See
    /// [`Parts::of`](super::Parts::of). A data set that is there keeps its parts.
    ///
    /// # Errors
    /// If the folder has other files, a data set of another format, or one of this name from other
    /// captures or with parts that do not fit; if it cannot be written. A data set of an input that
    /// is no file cannot be extended.
    pub fn create<P: AsRef<Path>>(
        folder: &Path,
        name: &str,
        paths: &[P],
        runs: &[Options],
        part_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        check_name(name).map_err(|why| fault(folder, why))?;
        let folder = match folder == Path::new("") {
            true => Path::new("."),
            false => folder,
        };
        let known = entries(folder)?;
        let is_other = |path: &PathBuf| !path.ends_with("inputs") && !path.ends_with(UNFINISHED);
        if known.iter().all(is_other) && !known.is_empty() {
            let why = "the folder is not empty and no packtrain data set: choose another one, or a \
                       new one";
            return Err(fault(folder, why.to_owned()));
        }
        let files = paths.iter().map(|path| Input::of(path.as_ref()));
        let mut files: Vec<_> = files.collect::<Result<_, _>>()?;
        files.sort();
        let is_stream = files.iter().any(|file| file.bytes.is_none());
        let path = inputs_path(folder, name);
        let known = path
            .is_file()
            .then(|| Self::open(folder, name))
            .transpose()?;
        // The recorded inputs may be replaced while no trains were made from them.
        let is_unused = |known: &Self| known.inputs.files != files && !known.has_trains();
        if known.as_ref().is_none_or(is_unused) {
            if !is_stream {
                // A file that is no capture ends here: then no data set has the name.
                Files::open(paths)?;
            }
            let parts = match (paths, part_bytes) {
                ([path], Some(bytes)) => Share::of(path.as_ref(), runs, bytes)?,
                _ => vec![Share::Whole],
            };
            let inputs = Inputs {
                version: FORMAT_VERSION,
                files: files.clone(),
                parts,
            };
            if known.is_some() {
                fs::remove_file(&path).map_err(|error| write_error(&path, error))?;
            }
            write_json(folder, &path, &inputs)?;
        }
        // Another process may have written its own inputs first.
        let found = Self::open(folder, name)?;
        if found.inputs.files != files {
            return Err(found.unfit("was made from other captures"));
        }
        if is_stream && found.has_trains() {
            let why = "has trains, and its input is no file that can be compared with theirs";
            return Err(found.unfit(why));
        }
        found.check_parts(runs)?;
        Ok(found)
    }

    fn check_parts(&self, runs: &[Options]) -> Result<(), Error> {
        match self.inputs.parts.iter().all(|part| part.is_exact(runs)) {
            true => Ok(()),
            false => Err(self.unfit("is in parts that do not add up with these configurations")),
        }
    }

    /// A data set that cannot be used for this.
    fn unfit(&self, why: &str) -> Error {
        let (name, inputs) = (&self.name, inputs_path(&self.folder, &self.name));
        let line = format!(
            "the data set {name} {why}: choose another name (dataset), or remove {} and each \
             folder dataset={name}",
            inputs.display()
        );
        fault(&self.folder, line)
    }

    fn has_trains(&self) -> bool {
        self.table("trains").is_dir()
    }

    /// Opens a data set that is there, as a task does that runs a part.
    ///
    /// # Errors
    /// If there is none of this name, or one of another format.
    pub fn open(folder: &Path, name: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let path = inputs_path(folder, name);
        if !path.is_file() {
            let why = format!("no data set {name} is there: create it first");
            return Err(fault(folder, why));
        }
        let Versioned { version } = read_json(&path)?;
        if version != FORMAT_VERSION {
            let why = format!(
                "the data set {name} has format version {version}, and this is version \
                 {FORMAT_VERSION}: use the release of packtrain that made it, or another folder"
            );
            return Err(fault(folder, why));
        }
        Ok(Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            inputs: read_json(&path)?,
        })
    }

    /// The parts on which some of these configurations have not run, with the indices of those.
    #[must_use]
    pub fn missing(&self, runs: &[Options]) -> Vec<(usize, Vec<usize>)> {
        let parts = 0..self.inputs.parts.len();
        let left = parts.map(|part| {
            let runs = runs.iter().enumerate();
            let left = runs.filter(|(_, options)| !self.has(options, part));
            (part, left.map(|(index, _)| index).collect::<Vec<_>>())
        });
        left.filter(|(_, runs)| !runs.is_empty()).collect()
    }

    /// Whether a configuration has run on a part, to the end.
    fn has(&self, options: &Options, part: usize) -> bool {
        self.report_path(options, part).is_file() && self.trains_path(options, part).is_file()
    }

    /// The captures of a part, to be read by [`run`](Self::run).
    ///
    /// # Errors
    /// If there is no such part; if a capture cannot be opened, or is not what it was when the data
    /// set was created.
    pub fn files(&self, part: usize) -> Result<Files, Error> {
        for file in &self.inputs.files {
            if file.bytes.is_some() && Input::of(Path::new(&file.path))? != *file {
                let path = file.path.clone();
                return Err(Error::Changed { path });
            }
        }
        let paths: Vec<_> = self.inputs.files.iter().map(|file| &file.path).collect();
        match (self.share(part)?, &paths[..]) {
            (Share::Gap { part, .. }, [path]) => Files::part(Path::new(path), part),
            _ => Files::open(&paths),
        }
    }

    fn share(&self, part: usize) -> Result<Share, Error> {
        let share = self.inputs.parts.get(part).copied();
        share.ok_or_else(|| {
            let why = format!("the data set {} has no part {part}", self.name);
            fault(&self.folder, why)
        })
    }

    /// Runs the configurations that have not run on a part, and writes their trains and reports.
    /// The reports that are returned are theirs. Nothing is written after a run that was ended by
    /// its [`watch`](Settings::watch), or whose captures could not be read: another one may read
    /// more. Unfinished files of killed runs of these configurations are removed. The memory is
    /// that of [`run`](super::run), and of a row group for each configuration, about 10 MB. Each
    /// configuration has an open file.
    ///
    /// # Errors
    /// If there is no such part, parts do not add up with these configurations, or a file cannot be
    /// read or written.
    pub fn run(
        &self,
        files: Files,
        part: usize,
        runs: &[Options],
        settings: &mut Settings<'_>,
    ) -> Result<Done<()>, Error> {
        self.check_parts(runs)?;
        settings.queue = match self.share(part)? {
            Share::Queue { queue, .. } => Some(queue),
            Share::Whole | Share::Gap { .. } => None,
        };
        let mut known = BTreeSet::new();
        let left = runs
            .iter()
            .filter(|options| !self.has(options, part) && known.insert(configuration_id(options)));
        let runs: Vec<_> = left.copied().collect();
        if runs.is_empty() {
            return Ok(Done::default());
        }
        let writers = runs.iter().map(|options| {
            let path = self.trains_path(options, part);
            remove_unfinished(&self.folder, &path)?;
            remove_unfinished(&self.folder, &self.report_path(options, part))?;
            let schema = trains_schema().map_err(|error| write_error(&path, error))?;
            Ok(Trains::into(
                options,
                Writer::new(self, options, &path, &schema)?,
            ))
        });
        let writers = writers.collect::<Result<Vec<_>, Error>>()?;
        let done = run(files, &runs, writers, settings).map_err(|error| match error {
            // A writer's error is one of this crate, with the name of its file.
            Error::Sink(error) => error.downcast().unwrap_or_else(Error::Sink),
            error => error,
        })?;
        let mut faults = done.broken.iter();
        let is_io = |error: &CaptureError| matches!(error, CaptureError::Io { .. });
        let is_whole = !done.stopped && !faults.clone().any(|(_, error)| is_io(error));
        let fault = faults
            .next()
            .map(|(path, error)| format!("{path}: {error}"));
        let fault = faults.fold(fault, |fault, (path, error)| {
            fault.map(|fault| format!("{fault}; {path}: {error}"))
        });
        let all = runs.iter().zip(done.sinks).zip(&done.reports);
        for ((options, trains), report) in all.filter(|_| is_whole) {
            let trains = trains.finish().map_err(Error::Sink)?.finish()?;
            let stored = Stored {
                report: report.clone(),
                fault: fault.clone(),
            };
            let path = self.report_path(options, part);
            write_json(&self.folder, &path, &stored).inspect_err(|_| {
                // Readers of the tables would take them for a part that is done.
                fs::remove_file(trains).ok();
            })?;
        }
        Ok(Done {
            sinks: Vec::new(),
            reports: done.reports,
            stopped: done.stopped,
            broken: done.broken,
        })
    }

    /// The sum of all parts of a configuration, and why the captures were not read to their end, if
    /// so. Its rows of the table of runs are written, unless they are there.
    ///
    /// # Errors
    /// If a part has not run, the sum does not add up, or a file cannot be read or written.
    pub fn merge(&self, options: &Options) -> Result<(Report, Option<String>), Error> {
        self.check_parts(&[*options])?;
        let parts = (0..self.inputs.parts.len()).map(|part| {
            let path = self.report_path(options, part);
            if !self.has(options, part) {
                let why = format!("part {part} of the data set {} has not run", self.name);
                return Err(fault(&path, why));
            }
            read_json::<Stored>(&path)
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let faults: Vec<_> = parts.iter().filter_map(|part| part.fault.clone()).collect();
        let sum = parts
            .into_iter()
            .map(|part| part.report)
            .reduce(|mut sum, report| {
                sum.merge(&report);
                sum
            });
        let path = self.place("runs", options).join("part-0000.parquet");
        let sum = sum.filter(Report::is_closed).ok_or_else(|| {
            let why = "the ledger does not close: packets received are not those passed on; remove \
                       the reports of this configuration and run it again";
            fault(&path, why.to_owned())
        })?;
        if !path.is_file() {
            let rows = runs(&self.name, &[(options, &sum)]);
            let rows = rows.map_err(|error| write_error(&path, io::Error::other(error)))?;
            let mut writer = Writer::new(self, options, &path, &rows.schema())?;
            writer.write(rows).map_err(Error::Sink)?;
            writer.finish()?;
        }
        Ok((sum, (!faults.is_empty()).then(|| faults.join("; "))))
    }

    fn table(&self, table: &str) -> PathBuf {
        self.folder
            .join(table)
            .join(format!("dataset={}", self.name))
    }

    fn place(&self, table: &str, options: &Options) -> PathBuf {
        let id = configuration_id(options);
        self.table(table).join(format!("configuration={id}"))
    }

    fn trains_path(&self, options: &Options, part: usize) -> PathBuf {
        let name = format!("part-{part:04}.parquet");
        self.place("trains", options).join(name)
    }

    /// The file that is written last.
    fn report_path(&self, options: &Options, part: usize) -> PathBuf {
        let name = format!("part-{part:04}.json");
        self.place("reports", options).join(name)
    }
}

/// A Parquet file that does not have its name yet. Without [`finish`](Self::finish) it leaves none.
struct Writer {
    path: PathBuf,
    temporary: TempPath,
    writer: ArrowWriter<File>,
    /// The columns that are not in the path.
    columns: Vec<usize>,
}

impl Writer {
    fn new(
        dataset: &Dataset,
        options: &Options,
        path: &Path,
        schema: &Schema,
    ) -> Result<Self, Error> {
        let settings: BTreeMap<_, _> = settings(options).into_iter().collect();
        let metadata = [
            ("packtrain.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("packtrain.dataset", dataset.name.clone()),
            ("packtrain.configuration", configuration_id(options)),
            ("packtrain.inputs", text(&dataset.inputs.files)),
            ("packtrain.settings", text(&settings)),
        ];
        let metadata = metadata.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            // Times increase.
            .set_column_dictionary_enabled(ColumnPath::from("time"), false)
            .set_column_encoding(ColumnPath::from("time"), Encoding::DELTA_BINARY_PACKED)
            .set_key_value_metadata(Some(metadata.into()))
            .build();
        let (file, temporary) = unfinished(&dataset.folder, path)?;
        let fields = schema.fields().iter().enumerate();
        let columns = fields.filter(|(_, field)| {
            let in_path = ["dataset", "configuration"];
            !in_path.contains(&&field.name()[..])
        });
        let columns: Vec<_> = columns.map(|(index, _)| index).collect();
        let writer = schema.project(&columns).map_err(ParquetError::from);
        let writer = writer
            .and_then(|schema| ArrowWriter::try_new(file, Arc::new(schema), Some(properties)));
        Ok(Self {
            writer: writer.map_err(|error| write_error(path, to_io(error)))?,
            path: path.to_owned(),
            temporary,
            columns,
        })
    }

    /// Gives the file its name, and returns that.
    fn finish(mut self) -> Result<PathBuf, Error> {
        let finished = self.writer.finish();
        finished.map_err(|error| write_error(&self.path, to_io(error)))?;
        commit(self.writer.inner(), self.temporary, &self.path)?;
        Ok(self.path)
    }
}

impl Out for Writer {
    fn write(&mut self, batch: RecordBatch) -> io::Result<()> {
        let batch = batch.project(&self.columns).map_err(ParquetError::from);
        let written = batch.and_then(|batch| self.writer.write(&batch));
        written.map_err(|error| {
            let error = to_io(error);
            io::Error::new(error.kind(), write_error(&self.path, error))
        })
    }
}

/// The start of the names that a file has while it is written.
fn unfinished_prefix(folder: &Path, path: &Path) -> String {
    let path = path.strip_prefix(folder).unwrap_or(path);
    path.to_string_lossy().replace('/', "+") + "."
}

/// Removes the unfinished files of killed runs that were to become `path`.
fn remove_unfinished(folder: &Path, path: &Path) -> Result<(), Error> {
    let prefix = unfinished_prefix(folder, path);
    for left in entries(&folder.join(UNFINISHED))? {
        let name = left.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
            fs::remove_file(&left).map_err(|error| write_error(&left, error))?;
        }
    }
    Ok(())
}

/// Begins a file.
fn unfinished(folder: &Path, path: &Path) -> Result<(File, TempPath), Error> {
    let unfinished = folder.join(UNFINISHED);
    fs::create_dir_all(&unfinished).map_err(|error| write_error(&unfinished, error))?;
    let mut file = tempfile::Builder::new();
    let prefix = unfinished_prefix(folder, path);
    // As that of other new files, after the mask of the process.
    let file = file
        .prefix(&prefix)
        .permissions(Permissions::from_mode(0o666));
    let file = file.tempfile_in(unfinished);
    Ok(file.map_err(|error| write_error(path, error))?.into_parts())
}

/// Gives a file its name, unless another process has made a file with this name.
fn commit(file: &File, temporary: TempPath, path: &Path) -> Result<(), Error> {
    let done = || {
        // So that a file with its name is whole after a power failure, too.
        file.sync_all()?;
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        match temporary.persist_noclobber(path) {
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists && path.is_file() => {
                Ok(())
            }
            persisted => Ok(persisted?),
        }
    };
    done().map_err(|error| write_error(path, error))
}

/// The paths of what is in a folder; none if it is not there.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| open_error(folder, error))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: io::Result<_> = paths.collect();
    paths.map_err(|error| open_error(folder, error))
}

fn inputs_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("inputs").join(format!("{name}.json"))
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn write_json(folder: &Path, path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let (mut file, temporary) = unfinished(folder, path)?;
    let written = file.write_all(text(value).as_bytes());
    written.map_err(|error| write_error(path, error))?;
    commit(&file, temporary, path)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let read = fs::read(path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map_err(|error| open_error(path, error))
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
    let path = path.display().to_string();
    Error::Open { path, error }
}

fn write_error(path: &Path, error: io::Error) -> Error {
    let path = path.display().to_string();
    Error::Write { path, error }
}

fn fault(path: &Path, why: String) -> Error {
    let path = path.display().to_string();
    Error::Dataset { path, why }
}
