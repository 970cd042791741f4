//! `packtrain bench dispatch`: prints what the laboratory measures.

mod text;

use crate::args::BenchDispatchArgs;
use crate::exit::{Exit, Failure};
use crate::print::Style;
use crate::signals::Stop;
use crate::{json, print};
use packtrain_bench::statistics;
use packtrain_lab::dispatch::regret::Regret;
use packtrain_lab::dispatch::{self, BenchError, Options, Outcome, Progress, Row, Sample};
use packtrain_lab::{LabError, Missing, rootless};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{self, IsTerminal, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that a run has before it counts: caches, the scheduler and the adaptive policies settle. A
/// policy looks at sixteen windows of a millisecond or a little more before its first trial, which
/// takes up to fifteen and is begun again at most twice. Where producers contend, trials of turns,
/// of gathering and of deferring take eighteen or more with the look back, and there is three times
/// as much of it.
const WARM_UP: Duration = Duration::from_millis(60);
/// Less of it where the runs are short: then nobody asks for exact figures.
const WARM_UP_SHARE: u32 = 2;

/// Runs the bench.
///
/// # Errors
///
/// When no port can be had or one fails, and when the account of a run does not close.
pub fn run(args: &BenchDispatchArgs) -> Result<(), Failure> {
    let grid = args.grid();
    // Before any thread: the kernel lets only a process with one thread make a user namespace.
    let wants_tap = grid.ports.contains(&dispatch::schedule::PortKind::Tap);
    let refused = match wants_tap {
        true => rootless::enter_if_needed().err(),
        false => None,
    };
    let stop = Stop::install()?;
    let options = Options {
        grid,
        thresholds: args.thresholds(),
        repeats: args.repeats(),
        again: args.again(),
        window: args.time(),
        warm_up: WARM_UP.min(args.time() * WARM_UP_SHARE),
        seed: args.seed,
        stop: stop.flag(),
    };
    if let Some(path) = &args.output {
        check(path)?;
    }
    let begin = Instant::now();
    let mut told = Told::new(refused);
    let result = dispatch::run(&options, |progress| told.progress(progress));
    told.clear();
    let outcome = result.map_err(|error| failed(&error))?;
    let document = document(&outcome, &options, begin.elapsed());
    // What took minutes is printed, whatever becomes of the file.
    let written = args.output.as_ref().map(|path| write(path, &document));
    if args.json {
        json::write(document)?;
    } else {
        print::output(&text::text(&outcome, args.repeats(), Style::stdout()))?;
    }
    written.transpose()?;
    match outcome.unclosed.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            Exit::Check,
            format!(
                "the account of {} of {} runs does not close; the first is {first}",
                outcome.unclosed.len(),
                outcome.runs
            ),
        )),
    }
}

fn failed(error: &BenchError) -> Failure {
    let exit = match error {
        BenchError::Lab(LabError::Missing(_)) | BenchError::NoPort(_) => Exit::Privilege,
        _ => Exit::Port,
    };
    Failure::new(exit, format!("the bench cannot go on: {error}"))
}

/// Whether the document can be written to this file, as far as that shows before the measurement,
/// which takes minutes. What the file has stays there until then.
fn check(path: &Path) -> Result<(), Failure> {
    // A pipe would be at its end for who reads it.
    if fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir()) {
        return Ok(());
    }
    let is_new = fs::symlink_metadata(path).is_err();
    let opened = File::options().append(true).create(true).open(path);
    let checked = match opened {
        // A bench that fails leaves nothing behind.
        Ok(_) if is_new => fs::remove_file(path),
        opened => opened.map(drop),
    };
    checked.map_err(|error| unwritten(path, &error))
}

fn write(path: &Path, document: &Map<String, Value>) -> Result<(), Failure> {
    let text = format!("{}\n", Value::Object(document.clone()));
    fs::write(path, text).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let line = format!("cannot write {path}: {error}; choose another file for --output");
    Failure::new(Exit::Port, line)
}

/// What is said on standard error.
struct Told {
    terminal: bool,
    /// Why no namespace can be had without root.
    refused: Option<Missing>,
    runs: usize,
    /// Tenths of the runs that were told of, where there is no terminal.
    tenths: usize,
}

impl Told {
    fn new(refused: Option<Missing>) -> Self {
        let terminal = stderr().is_terminal();
        print::message("finding out what the ports take ...\n");
        Self {
            terminal,
            refused,
            runs: 0,
            tenths: 0,
        }
    }

    fn progress(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::LeftOut(port, why) => {
                let refused = self.refused.map(|missing| format!("; {missing}"));
                let refused = refused.unwrap_or_default();
                print::message(&format!("{port}: is left out: {why}{refused}\n"));
            }
            Progress::Begin(runs, time) => {
                self.runs = runs;
                let time = in_words(time);
                print::message(&format!("{runs} runs, which take about {time}\n"));
            }
            Progress::Again(cells, runs, time) => {
                self.clear();
                (self.runs, self.tenths) = (runs, 0);
                let time = in_words(time);
                let (s, it) = if cells == 1 { ("", "is") } else { ("s", "are") };
                print::message(&format!(
                    "{cells} situation{s} {it} looked at again: {runs} runs more, which take about \
                     {time}\n"
                ));
            }
            Progress::Done(done) if self.terminal => {
                print::message(&format!("\r{done} of {} runs ", self.runs));
            }
            Progress::Done(done) => {
                let tenths = done * 10 / self.runs.max(1);
                if tenths > self.tenths {
                    self.tenths = tenths;
                    print::message(&format!("{done} of {} runs\n", self.runs));
                }
            }
        }
    }

    fn clear(&self) {
        if self.terminal {
            print::message("\r\x1b[K");
        }
    }
}

/// A time for people.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    match seconds {
        0..=1 => "a second".to_owned(),
        2..120 => format!("{seconds} seconds"),
        _ => format!("{} minutes", (seconds + 30) / 60),
    }
}

/// Figures with as many digits as mean something.
fn rounded(value: f64) -> Value {
    if value.is_finite() {
        json!((value * 1e4).round() / 1e4)
    } else {
        Value::Null
    }
}

fn document(outcome: &Outcome, options: &Options, took: Duration) -> Map<String, Value> {
    let mut document = json::document("bench dispatch");
    document.insert(
        "settings".into(),
        json!({
            "repeats": options.repeats,
            "again": options.again,
            "time_ms": rounded(options.window.as_secs_f64() * 1e3),
            "warm_up_ms": rounded(options.warm_up.as_secs_f64() * 1e3),
            "seed": options.seed,
        }),
    );
    let places = outcome.places.iter().map(|place| {
        json!({
            "placement": place.placement.to_string(),
            "cpu": place.cpu.map(|cpu| cpu.0),
            "why": place.why,
            "same_as": place.same_as.as_ref().map(ToString::to_string),
        })
    });
    document.insert("placements".into(), places.collect());
    let left_out = outcome.left_out.iter();
    let left_out = left_out.map(|(port, why)| json!({ "port": port.to_string(), "why": why }));
    document.insert("left_out".into(), left_out.collect());
    document.insert("repeats".into(), outcome.repeats.into());
    document.insert("again".into(), outcome.again.into());
    document.insert("runs".into(), outcome.runs.into());
    document.insert("retaken".into(), outcome.retaken.into());
    document.insert("seconds".into(), rounded(took.as_secs_f64()));
    document.insert("stopped".into(), outcome.stopped.into());
    let rows = outcome.cells().flat_map(|cell| {
        let fixed = &cell[..cell.len() - 1];
        cell.iter().map(move |one| row(one, fixed))
    });
    document.insert("rows".into(), rows.collect());
    let claims = dispatch::claims(outcome);
    document.insert("claims".into(), json::claims("dispatch", &claims));
    document.insert("drops".into(), json::drops(&outcome.drops));
    document.insert("conservation".into(), json::conservation(&outcome.ledger));
    document
}

/// Something of a sample.
type Figure = fn(&Sample) -> f64;

/// One setting in one situation; `fixed` are those that it is compared with, if it is adaptive.
fn row(row: &Row, fixed: &[Row]) -> Value {
    let cell = &row.cell;
    let settings = &row.settings;
    let median = |figure: Figure| match row.samples.is_empty() {
        false => rounded(row.median(figure)),
        true => Value::Null,
    };
    let mut keys = json!({
        "experiment": "dispatch",
        "load": cell.load.to_string(),
        "port": cell.port.to_string(),
        "producers": cell.producers,
        "frame_bytes": cell.frame_bytes,
        "batch": cell.load.batch(),
        "dispatch": settings.dispatch.to_string(),
        "idle": settings.idle.to_string(),
        "placement": settings.placement.to_string(),
        "offered_kpps": row.offered.map(|rate| rate as f64 / 1e3),
        "cpus": median(Sample::cpus),
        "worker_cpus": median(Sample::worker_cpus),
        "ctxt_per_s": median(Sample::switches_per_second),
        "ctxt_per_frame": median(Sample::switches_per_frame),
        "wakeups_per_s": median(Sample::wakeups_per_second),
        "disturbed": row.all_samples().filter(|sample| sample.is_disturbed()).count(),
        "unsent": row.all_samples().map(|sample| sample.unsent).sum::<u64>(),
        "repeats": row.samples.len(),
    });
    let Some(map) = keys.as_object_mut() else {
        return keys;
    };
    let figures: [(_, Figure); 3] = [
        ("kpps", Sample::kpps),
        ("p50_us", |sample| sample.latency_us(0.5)),
        ("p99_us", |sample| sample.latency_us(0.99)),
    ];
    for (name, figure) in figures {
        let spread = statistics::estimate(&row.figures(figure));
        let end = |end: Option<f64>| end.map_or(Value::Null, rounded);
        map.insert(name.into(), median(figure));
        map.insert(format!("{name}_low"), end(spread.map(|one| one.low)));
        map.insert(format!("{name}_high"), end(spread.map(|one| one.high)));
    }
    let each = |figures: Vec<f64>| figures.into_iter().map(rounded).collect();
    map.insert("figures".into(), each(row.judged()));
    map.insert("again".into(), each(row.judged_again()));
    if row.is_adaptive() {
        let changes = |samples: &[Sample]| samples.iter().map(|one| one.changes).collect();
        map.insert("changes".into(), changes(&row.samples));
        map.insert("changes_again".into(), changes(&row.again));
        let of = if cell.load.is_paced() {
            "p99_us"
        } else {
            "kpps"
        };
        let name = |which: usize| fixed.get(which).map(|row| dispatch::named(&row.settings));
        let regret = row.regret;
        for (name, regret) in [("regret", regret), ("regret_first", row.first)] {
            let of = |end: fn(&Regret) -> f64| json!(regret.map(|one| rounded(end(&one))));
            map.insert(name.into(), of(|one| one.regret));
            map.insert(format!("{name}_low"), of(|one| one.low));
            map.insert(format!("{name}_high"), of(|one| one.high));
            let certain = regret.and_then(|one| one.certain);
            map.insert(format!("{name}_certain"), json!(certain.map(rounded)));
        }
        map.insert("regret_of".into(), of.into());
        map.insert("best".into(), json!(regret.and_then(|one| name(one.best))));
        map.insert(
            "worst".into(),
            json!(regret.and_then(|one| name(one.worst))),
        );
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use packtrain_lab::dispatch::load::Load;
    use packtrain_lab::dispatch::schedule::{self, Cell, PortKind};

    #[test]
    fn a_check_leaves_no_file_and_changes_none() {
        let name = format!("packtrain-check-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let (new, old) = (folder.join("new"), folder.join("old"));
        fs::write(&old, "kept").unwrap();
        assert!(check(&new).is_ok() && check(&old).is_ok());
        assert!(!new.exists());
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
        assert!(check(&folder.join("none/new")).is_err());
        assert!(check(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_was_never_measured_is_null_and_not_0() {
        let of = |samples| {
            row(
                &Row {
                    cell: Cell {
                        port: PortKind::Null,
                        producers: 1,
                        frame_bytes: 64,
                        load: Load::Saturation,
                    },
                    settings: schedule::adaptive(),
                    offered: None,
                    samples,
                    again: Vec::new(),
                    regret: None,
                    first: None,
                },
                &[],
            )
        };
        let figures = "kpps p50_us p99_us cpus worker_cpus ctxt_per_s ctxt_per_frame wakeups_per_s";
        let (none, one) = (of(Vec::new()), of(vec![Sample::default()]));
        for figure in figures.split_whitespace() {
            assert_eq!(none.get(figure), Some(&Value::Null), "{figure}");
            assert!(one[figure].is_number(), "{figure}");
        }
        assert_eq!(
            (&none["repeats"], &none["figures"]),
            (&0.into(), &json!([]))
        );
    }
}
