//! `packtrain sim`: worlds in virtual time that are drawn from a seed, and their report.

use crate::args::SimArgs;
use crate::exit::{Exit, Failure};
use crate::json;
use crate::print::{self, Style};
use crate::signals::Stop;
use crate::table::{Align, Table, grouped, scaled};
use crate::tool::Progress;
use packtrain::file::{STANDARD, create};
use packtrain::name::Name;
#[cfg(feature = "plants")]
use packtrain::plant;
use packtrain_testkit::fuzz::{self, Failed, Options, Totals};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{IsTerminal, Read, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Worlds, if neither their number nor one of packets is given.
const RUNS: u64 = 100;

/// How often progress is printed on a terminal, and how often elsewhere.
const PROGRESS_INTERVALS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Runs worlds.
///
/// # Errors
///
/// If one fails, a file cannot be read or written, or, in full, something is never reached.
pub fn run(args: &SimArgs) -> Result<(), Failure> {
    #[cfg(feature = "plants")]
    args.planted.set();
    match args.what.to_str() {
        Some("fuzz") => worlds(args),
        _ => repeat(args),
    }
}

fn worlds(args: &SimArgs) -> Result<(), Failure> {
    if args.pcap.is_some() {
        let line = "--pcap is of packtrain sim FILE: name the file of one world instead of fuzz";
        return Err(Failure::new(Exit::Usage, line));
    }
    let stop = Stop::install()?;
    let progress = Progress::with_lines(args.quiet);
    let interval = PROGRESS_INTERVALS[usize::from(!stderr().is_terminal())];
    let mut due = Instant::now() + interval;
    // A number of packets is a limit by itself.
    let usual = if args.packets.is_some() {
        u64::MAX
    } else {
        RUNS
    };
    let options = Options {
        seed: seed(args),
        runs: args.runs.unwrap_or(usual),
        wire_packets: args.packets,
    };
    let (totals, failed) = fuzz::run(&options, |totals| {
        if Instant::now() >= due {
            due = Instant::now() + interval;
            progress.say(&summary(totals));
        }
        !stop.requested()
    });
    progress.clear();
    let failed = failed.map(|failed| {
        let file = file_of(args, &failed);
        let written = fs::write(&file, fuzz::to_file(&failed.bytes));
        (failed, file, written)
    });
    let not_reached = totals.not_reached();
    if args.json {
        let failure = failed.as_ref().map(|(failed, file, written)| {
            let path = written.as_ref().ok();
            let path = path.map(|()| Name::from(&file).exact().to_owned());
            json!({
                "world": failed.world,
                "wrong": failed.failure.wrong.name(),
                "line": failed.failure.line,
                "file": path,
                "bytes": failed.bytes.len(),
            })
        });
        document(Some(options.seed), &totals, &not_reached, failure)?;
    } else {
        print::output(&report(&totals, &not_reached, Style::stdout()))?;
    }
    if let Some((failed, file, written)) = failed {
        let (world, length) = (failed.world, failed.bytes.len());
        let again = match written {
            Ok(()) => format!("{length} bytes repeat it: {}", command(&file)),
            Err(error) => {
                let file = Name::from(&file);
                format!(
                    "its {length} bytes could not be written: {file}: {error}; name a file with \
                     --save"
                )
            }
        };
        let line = format!(
            "world {world} of seed {}: {}; {again}",
            options.seed, failed.failure
        );
        return Err(Failure::new(Exit::Check, line));
    }
    // A run that was cut short, or is short, reaches less.
    if is_full(args) && !not_reached.is_empty() && !stop.requested() {
        let line = format!(
            "no world reached {}: run more worlds, or another seed",
            not_reached.join(", ")
        );
        return Err(Failure::new(Exit::Check, line));
    }
    Ok(())
}

/// Repeats the world of a file.
fn repeat(args: &SimArgs) -> Result<(), Failure> {
    let of_fuzz = [
        ("--runs", args.runs.is_some()),
        ("--packets", args.packets.is_some()),
        ("--seed", args.seed.is_some()),
        ("--full", args.full),
        ("--save", args.save.is_some()),
    ];
    if let Some((option, _)) = of_fuzz.iter().find(|(_, given)| *given) {
        let line = format!("{option} is of packtrain sim fuzz: a file is one world; leave it out");
        return Err(Failure::new(Exit::Usage, line));
    }
    let file = Name::from(&args.what);
    let read = read(&args.what).map_err(|error| {
        let hint = "name a file that packtrain sim fuzz wrote, or write packtrain sim fuzz";
        Failure::new(Exit::Port, format!("{file}: {error}; {hint}"))
    })?;
    let bytes = fuzz::of_file(&read).ok_or_else(|| {
        let line = format!(
            "{file} is no world of this version: name a file that its packtrain sim fuzz wrote"
        );
        Failure::new(Exit::Port, line)
    })?;
    let (totals, failure) = match &args.pcap {
        Some(path) => captured(&args.what, bytes, path)?,
        None => fuzz::repeat(bytes),
    };
    if args.json {
        let failure = failure.as_ref().map(|failure| {
            json!({
                "wrong": failure.wrong.name(),
                "line": failure.line,
                "file": Name::from(&args.what).exact(),
                "bytes": bytes.len(),
            })
        });
        document(None, &totals, &[], failure)?;
    } else {
        let text = report(&totals, &[], Style::stdout());
        print::output(&format!("{}\n{text}", fuzz::describe(bytes)))?;
    }
    match failure {
        Some(failure) => Err(Failure::new(Exit::Check, format!("{file}: {failure}"))),
        None => Ok(()),
    }
}

/// Repeats a world with a capture of what its links carry.
fn captured(
    world: &Path,
    bytes: &[u8],
    path: &Path,
) -> Result<(Totals, Option<fuzz::Failure>), Failure> {
    let why = if path.as_os_str() == STANDARD {
        Some("standard output has the report")
    } else if is_same(world, path) {
        Some("the capture would be written over the world")
    } else {
        None
    };
    if let Some(why) = why {
        let line = format!("--pcap {}: {why}; name another file", Name::from(path));
        return Err(Failure::new(Exit::Usage, line));
    }
    let failed = |error| {
        let line = format!("--pcap {}: {error}; name another file", Name::from(path));
        Failure::new(Exit::Port, line)
    };
    let file = create(path).map_err(failed)?;
    let (totals, failure, _) = fuzz::capture(bytes, Box::new(file)).map_err(failed)?;
    Ok((totals, failure))
}

/// Whether both name one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| fs::canonicalize(path).ok();
    of(one).is_some_and(|path| of(other) == Some(path))
}

/// The beginning of a file, of a byte more than a world has.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let (mut bytes, most) = (Vec::new(), fuzz::FILE_BYTES_MAX as u64 + 1);
    File::open(file)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether everything has to be reached.
fn is_full(args: &SimArgs) -> bool {
    args.full || std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1")
}

fn seed(args: &SimArgs) -> u64 {
    args.seed.unwrap_or(1)
}

/// Where the bytes of a failed world are written.
fn file_of(args: &SimArgs, failed: &Failed) -> PathBuf {
    let name = || PathBuf::from(format!("world-{}-{}", seed(args), failed.world));
    args.save.clone().unwrap_or_else(name)
}

/// The command that repeats the world of a file.
fn command(file: &Path) -> String {
    #[cfg(feature = "plants")]
    let planted = plant::current().map_or_else(String::new, |plant| format!(" --plant {plant}"));
    #[cfg(not(feature = "plants"))]
    let planted = "";
    format!("packtrain sim {}{planted}", Name::from(file))
}

/// Counts and times in one line.
fn summary(totals: &Totals) -> String {
    let seconds = totals.real_time.as_secs_f64();
    let rate = totals.wire_packets as f64 / seconds.max(1e-6);
    format!(
        "{} worlds, {} packets, {} wire packets, {:.1} virtual seconds in {seconds:.1} s: {} wire \
         packets/s",
        grouped(totals.worlds),
        grouped(totals.packets),
        grouped(totals.wire_packets),
        totals.virtual_time.as_secs_f64(),
        scaled(rate).trim_end(),
    )
}

fn report(totals: &Totals, not_reached: &[String], style: Style) -> String {
    let mut table = Table::new([
        ("reached", Align::Left),
        ("", Align::Left),
        ("times", Align::Right),
    ]);
    for (kind, name, times) in reached(totals) {
        table.row([kind.to_owned(), name.to_owned(), grouped(times)]);
    }
    let mut text = format!("{}\n\n{}", summary(totals), table.render(0, style));
    if !not_reached.is_empty() {
        text.push_str(&format!("not reached: {}\n", not_reached.join(", ")));
    }
    text
}

/// Kind, name and times of everything that was reached.
fn reached(totals: &Totals) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let all = &totals.reached;
    let kinds = [
        ("fault", &all.faults),
        ("drop", &all.drops),
        ("ring", &all.rings),
    ];
    let all = kinds.into_iter().flat_map(|(kind, of)| {
        let of = of.iter().map(move |(&name, &times)| (kind, name, times));
        of.filter(|&(_, _, times)| times > 0)
    });
    all.collect::<Vec<_>>().into_iter()
}

fn document(
    seed: Option<u64>,
    totals: &Totals,
    not_reached: &[String],
    failure: Option<Value>,
) -> Result<(), Failure> {
    let mut document = json::document("sim");
    let reached = reached(totals)
        .map(|(kind, name, times)| json!({ "kind": kind, "name": name, "times": times }));
    let values = [
        ("seed", json!(seed)),
        ("worlds", json!(totals.worlds)),
        ("packets", json!(totals.packets)),
        ("wire_packets", json!(totals.wire_packets)),
        ("virtual_seconds", json!(totals.virtual_time.as_secs_f64())),
        ("reached", reached.collect()),
        ("not_reached", json!(not_reached)),
        ("failure", failure.unwrap_or(Value::Null)),
    ];
    document.extend(values.map(|(key, value)| (key.to_owned(), value)));
    // Nothing outside `host` depends on the machine.
    document["host"]["real_seconds"] = json!(totals.real_time.as_secs_f64());
    json::write(document)
}
