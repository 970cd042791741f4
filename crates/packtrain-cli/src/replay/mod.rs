//! `packtrain replay`: opens files, and prints what the libraries found.

pub mod args;
mod document;
mod found;
mod input;
#[cfg_attr(not(feature = "parquet"), path = "no_parquet.rs")]
mod parquet;
mod pass;
mod shown;
mod tables;

use crate::exit::{Exit, Failure};
use crate::print::{self, Style};
use crate::signals::{FOR_A_FILE, Start, Stop};
use crate::{fifo, json, report};
use args::{Coalesce, FlowMode, GroId, ReplayArgs, Switch, User0};
use found::{Found, ledger};
use packtrain::advice;
use packtrain::file;
use packtrain::limits::COALESCE_HOLD_MAX;
use packtrain::name::Name;
use packtrain::policy::gro::Flush;
use packtrain_capture::replay::{self, Limits, Options, ReplayError, Segment};
use packtrain_capture::{CaptureError, Reader, WriteError};
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::layout::TunnelPorts;
use packtrain_replay::{Done, Grid, Ignore};
use pass::watched;
use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

/// How long writing may take after a signal.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The most configurations of a run: each one has tables of flows in memory.
const RUNS_MAX: usize = 1024;
/// The most combinations, of which some are the same configuration.
const COMBINATIONS_MAX: usize = 8 * RUNS_MAX;

/// Replays captures.
///
/// # Errors
///
/// If a file cannot be opened, read to its end or written, or a check failed.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let grid = grid(args);
    // Before they are made: lists of some hundred values have millions.
    let combinations = grid.combinations();
    if combinations.is_none_or(|count| count > COMBINATIONS_MAX) {
        let line = format!(
            "the lists have more than {COMBINATIONS_MAX} combinations: run some of them at a time"
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    let runs = grid.runs();
    check(args, &runs)?;
    let stop = Stop::install()?;
    let start = Start::new();
    start.end();
    stop.end_after(STOP_MAX, &start, FOR_A_FILE)?;
    let found = match (&runs[..], &args.parquet) {
        (_, Some(folder)) => parquet::run(args, folder, &runs, &stop)?,
        ([options], None) if args.writes() => with_output(args, options, &stop)?,
        _ => without_output(args, runs, &stop)?,
    };
    let text = |style| tables::of(args, &found, style).text(style);
    if args.json {
        json::write(document::of(args, &found))?;
    } else if writes_to_stdout(args) {
        print::lines(&text(Style::stderr()));
    } else {
        print::output(&text(Style::stdout()))?;
    }
    if let Some(path) = &args.html {
        let names: Vec<_> = found
            .inputs
            .iter()
            .map(|name| Name::from(name).to_string())
            .collect();
        let page = tables::of(args, &found, Style::PLAIN).page(&names.join(", "));
        file::replace(path, &page)
            .map_err(|error| input::of_file(&Name::from(path).to_string(), true, &error))?;
    }
    conclude(&found)
}

/// Reads the captures once, for all configurations.
fn without_output(args: &ReplayArgs, runs: Vec<Options>, stop: &Stop) -> Result<Found, Failure> {
    let files = input::files(args, stop)?;
    let inputs = files.paths().map(str::to_owned).collect();
    let sinks = vec![Ignore; runs.len()];
    let Done {
        reports, broken, ..
    } = watched(args, stop, |settings| {
        packtrain_replay::run(files, &runs, sinks, settings)
    })?;
    Ok(Found {
        runs,
        reports,
        inputs,
        broken,
        stopped: stop.requested(),
        stored: None,
    })
}

/// Replays one capture with one configuration, packet by packet, into the output.
fn with_output(args: &ReplayArgs, options: &Options, stop: &Stop) -> Result<Found, Failure> {
    let name = args.inputs.first().map_or("", String::as_str);
    let input = input::open(name, stop)?;
    let output = args.output.as_deref();
    // The program that writes the input may read the output, and open it first.
    let (path, stopped) = (args.output.clone(), stop.clone());
    let wait = move || {
        let path = path.iter().map(Path::new);
        fifo::wait_for_readers(path, None, false, || stopped.requested())
    };
    let waiter = Builder::new().spawn(wait);
    let waiter = waiter.map_err(|error| Failure::of_thread(&error))?;
    let reader = Reader::new(input).map_err(|error| match error {
        CaptureError::Truncated { .. } if stop.requested() => input::before_the_start(name),
        error => input::of_capture(name, &error),
    })?;
    let readers = waiter.join().unwrap_or_else(|panic| resume_unwind(panic))?;
    let is_stopped = readers.is_empty() && stop.requested();
    let output = output.map(|path| create(path, is_stopped)).transpose()?;
    drop(readers);
    let report = replay::run(reader, output, options).map_err(|error| of_replay(args, &error))?;
    Ok(Found {
        runs: vec![*options],
        broken: report
            .stopped
            .map(|error| (name.to_owned(), error))
            .into_iter()
            .collect(),
        reports: vec![report],
        inputs: args.inputs.clone(),
        stopped: stop.requested(),
        stored: None,
    })
}

fn writes_to_stdout(args: &ReplayArgs) -> bool {
    let output = args.output.as_deref();
    output.is_some_and(|path| print::is_stdout(Path::new(path)))
}

/// The values of each setting.
fn grid(args: &ReplayArgs) -> Grid {
    let base = base(args);
    let each = |hold: &Duration| {
        // It is a year at most.
        let hold = u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX);
        match args.gro_flush {
            Flush::Usecs(n) => hold.min(u64::from(n) * 1000),
            Flush::Off | Flush::Packets(_) => hold,
        }
    };
    Grid {
        coalesce: args.coalesce.iter().map(|one| one.semantics()).collect(),
        mode: args.mode.iter().map(|one| one.mode()).collect(),
        flows: args.flows.clone(),
        hold_ns: args.hold.iter().map(each).collect(),
        queues: args.queues.clone(),
        ack_limit: or_default(&args.ack_limit),
        bytes: or_default(&args.gro_bytes),
        packets: or_default(&args.gro_packets),
        base,
    }
}

/// The values of an option, or none of them.
fn or_default<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    match values {
        [] => vec![None],
        values => values.iter().map(|value| Some(*value)).collect(),
    }
}

/// What is the same in all configurations.
fn base(args: &ReplayArgs) -> Options {
    let flush_packets = match args.gro_flush {
        Flush::Off | Flush::Usecs(_) => None,
        Flush::Packets(n) => Some(n),
    };
    let mut options = Options::default();
    options.limits = Limits {
        // More are refused by `check`.
        tunnels: TunnelPorts::with_other(&args.tunnel_ports).unwrap_or_default(),
        exact_id: args.gro_id == GroId::Exact,
        inactive_ns: (args.gro_inactive == Switch::On)
            .then_some(COALESCE_HOLD_MAX.as_nanos() as u64),
        window_packets: args.rx_pause.into_iter().chain(flush_packets).min(),
        ..Limits::default()
    };
    options.segment = args.segment;
    options.headers_only = args.headers_only;
    options.user0 = args.user0.map(User0::link);
    options
}

impl Coalesce {
    const fn semantics(self) -> Option<Semantics> {
        match self {
            Self::Reversible => Some(Semantics::Reversible),
            Self::Stream => Some(Semantics::Stream),
            Self::Off => None,
        }
    }
}

impl FlowMode {
    const fn mode(self) -> Mode {
        match self {
            Self::Hash => Mode::Hash,
            Self::Sorted => Mode::Sorted,
            Self::Auto => Mode::Auto,
        }
    }
}

/// The checks that clap does not make.
fn check(args: &ReplayArgs, runs: &[Options]) -> Result<(), Failure> {
    let usage = |line: &str| Err(Failure::new(Exit::Usage, line));
    let is_stream = |options: &Options| options.coalesce == Some(Semantics::Stream);
    let option = if args.output.is_some() {
        "-o"
    } else {
        "--segment"
    };
    if args.writes() && args.headers_only {
        return usage(&format!(
            "{option} needs whole packets, and --headers-only looks at no payload: leave one of \
             them out"
        ));
    }
    if args.writes() && runs.len() > 1 {
        return usage(&format!(
            "{option} is for one configuration, and the lists are {}: write one value for each \
             option, or leave {option} out",
            runs.len()
        ));
    }
    if args.writes() && args.inputs.len() > 1 {
        return usage(&format!(
            "{option} is for one input, and there are {}: leave it out, or join them first \
             (mergecap -w all.pcapng FILES)",
            args.inputs.len()
        ));
    }
    if TunnelPorts::with_other(&args.tunnel_ports).is_none() {
        return usage("--tunnel-ports has more than 8 ports: leave some out");
    }
    if runs.len() > RUNS_MAX {
        return usage(&format!(
            "the lists have {} combinations, more than {RUNS_MAX}: run some of them at a time",
            runs.len()
        ));
    }
    if args.segment == Segment::Original && runs.iter().any(is_stream) {
        return usage(&ReplayError::NotReversible.to_string());
    }
    if !args.ack_limit.is_empty() && !runs.iter().any(is_stream) {
        return usage(
            "--ack-limit is for --coalesce stream, which alone merges pure ACKs: add it, or leave \
             --ack-limit out",
        );
    }
    match &args.parquet {
        Some(_) if args.writes() => {
            return usage(&format!(
                "--parquet writes trains and {option} is for packets: leave one of them out"
            ));
        }
        Some(_) => parquet::check(args, runs)?,
        None if args.dataset.is_some() => {
            return usage("--dataset names a data set of --parquet DIR: add it");
        }
        None => {}
    }
    if args.json && writes_to_stdout(args) {
        return usage("standard output cannot have the capture and the JSON document: name a file");
    }
    input::check(args)
}

fn of_replay(args: &ReplayArgs, error: &ReplayError) -> Failure {
    match error {
        ReplayError::NotReversible => Failure::new(Exit::Usage, error.to_string()),
        _ => {
            let path = args.output.as_ref().or(args.inputs.first());
            let path = path.map_or("", String::as_str);
            let advice = match error {
                ReplayError::Output(WriteError::Io(fault)) => advice::on_file(fault.kind, true),
                _ => "",
            };
            Failure::new(Exit::Port, format!("{path}: {error}{advice}"))
        }
    }
}

fn create(path: &str, is_stopped: bool) -> Result<Box<dyn Write>, Failure> {
    if is_stopped {
        let line = format!("{path}: a signal came before it was created");
        return Err(Failure::new(Exit::Port, line));
    }
    let file = file::create(Path::new(path));
    let file = file.map_err(|error| input::of_file(path, true, &error))?;
    Ok(Box::new(file))
}

/// The exit status, with the reason.
fn conclude(found: &Found) -> Result<(), Failure> {
    for report in &found.reports {
        if !report.is_closed() {
            let sums = report::sums(&ledger(report));
            let line = format!("the packet ledger does not close: {sums}");
            return Err(Failure::new(Exit::Check, line));
        }
        if report.differing > 0 {
            let line = format!(
                "{} packets differ after --segment original",
                report.differing
            );
            return Err(Failure::new(Exit::Check, line));
        }
    }
    // A signal ends an input in the middle of a record.
    let is_ended = |error| found.stopped && matches!(error, CaptureError::Truncated { .. });
    let broken = found.broken.iter().filter(|(_, error)| !is_ended(*error));
    let lines: Vec<_> = broken
        .map(|(path, error)| input::of_capture(path, error).line)
        .collect();
    match lines[..] {
        [_, ..] => Err(Failure::new(Exit::Port, lines.join("; "))),
        [] => match found
            .stored
            .as_ref()
            .and_then(|stored| stored.fault.as_ref())
        {
            Some(fault) => Err(Failure::new(Exit::Port, fault)),
            None => Ok(()),
        },
    }
}
