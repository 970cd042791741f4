//! `packtrain replay`: opens files, and prints what the library found.

use crate::args::{Coalesce, FlowMode, GroId, ReplayArgs, Switch, User0, word};
use crate::exit::{Exit, Failure};
use crate::print::{self, Style};
use crate::signals::{FOR_A_FILE, Start, Stop};
use crate::table::{Align, BAR_COLUMNS, Table, bar, grouped};
use crate::{fifo, json, report, words};
use packtrain::advice;
use packtrain::engine::Ledger;
use packtrain::file;
use packtrain::limits::COALESCE_HOLD_MAX;
use packtrain::policy::gro::Flush;
use packtrain_capture::replay::{
    self, HISTOGRAM_FROM, InterfaceReport, Limits, Options, ReplayError, Report, Segment,
};
use packtrain_capture::{CaptureError, Format, Reader, WriteError};
use packtrain_lab::experiment::counters::counters;
use packtrain_offload::coalesce::{Mode, Semantics};
use packtrain_offload::offload::LinkType;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread::Builder;
use std::time::Duration;

/// How long a signal can go unnoticed while the input has no data.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long writing may take after a signal.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Replays a capture.
///
/// # Errors
///
/// If a file cannot be opened, read to its end or written, or a check failed.
pub fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let options = options(args);
    check(args, &options)?;
    let stop = Stop::install()?;
    let start = Start::new();
    start.end();
    stop.end_after(STOP_MAX, &start, FOR_A_FILE)?;
    let input = Stoppable::open(&args.input, stop.clone())?;
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
        CaptureError::Truncated { .. } if stop.requested() => {
            let line = format!("{}: a signal came before the capture began", args.input);
            Failure::new(Exit::Port, line)
        }
        error => of_input(&args.input, &error),
    })?;
    let readers = waiter.join().unwrap_or_else(|panic| resume_unwind(panic))?;
    let is_stopped = readers.is_empty() && stop.requested();
    let output = output.map(|path| create(path, is_stopped)).transpose()?;
    drop(readers);
    let report = replay::run(reader, output, &options).map_err(|error| of_replay(args, &error))?;
    if args.json {
        let mut document = json::document("replay");
        document.append(&mut fields(args, &options, &report, stop.requested()));
        json::write(document)?;
    } else if writes_to_stdout(args) {
        print::message(&tables(args, &report, Style::stderr()));
    } else {
        print::output(&tables(args, &report, Style::stdout()))?;
    }
    conclude(args, &report, stop.requested())
}

fn writes_to_stdout(args: &ReplayArgs) -> bool {
    let output = args.output.as_deref();
    output.is_some_and(|path| print::is_stdout(Path::new(path)))
}

fn options(args: &ReplayArgs) -> Options {
    let mut options = Options::default();
    options.coalesce = match args.coalesce {
        Coalesce::Reversible => Some(Semantics::Reversible),
        Coalesce::Stream => Some(Semantics::Stream),
        Coalesce::Off => None,
    };
    options.mode = match args.mode {
        FlowMode::Hash => Mode::Hash,
        FlowMode::Sorted => Mode::Sorted,
        FlowMode::Auto => Mode::Auto,
    };
    // It is a year at most.
    options.hold_ns = u64::try_from(args.hold.as_nanos()).unwrap_or(u64::MAX);
    let flush_packets = match args.gro_flush {
        Flush::Off => None,
        Flush::Packets(n) => Some(n),
        Flush::Usecs(n) => {
            options.hold_ns = options.hold_ns.min(u64::from(n) * 1000);
            None
        }
    };
    options.limits = Limits {
        flows: Some(args.flows),
        bytes: args.gro_bytes,
        packets: args.gro_packets,
        ack_limit: args.ack_limit,
        exact_id: args.gro_id == GroId::Exact,
        inactive_ns: (args.gro_inactive == Switch::On)
            .then_some(COALESCE_HOLD_MAX.as_nanos() as u64),
        window_packets: args.rx_pause.into_iter().chain(flush_packets).min(),
    };
    options.segment = args.segment;
    options.user0 = args.user0.map(User0::link);
    options
}

/// The checks that clap does not make.
fn check(args: &ReplayArgs, options: &Options) -> Result<(), Failure> {
    let usage = |line: &str| Err(Failure::new(Exit::Usage, line));
    if options.segment == Segment::Original && options.coalesce == Some(Semantics::Stream) {
        return usage(&ReplayError::NotReversible.to_string());
    }
    if args.ack_limit.is_some() && options.coalesce != Some(Semantics::Stream) {
        return usage(
            "--ack-limit is for --coalesce stream, which alone merges pure ACKs: add it, or leave \
             --ack-limit out",
        );
    }
    if args.json && writes_to_stdout(args) {
        return usage("standard output cannot have the capture and the JSON document: name a file");
    }
    let input = identity(&args.input, stdin().as_fd());
    let output = args.output.as_deref();
    if input.is_some() && input == output.and_then(|path| identity(path, stdout().as_fd())) {
        return usage("the capture would be written over itself: name another file");
    }
    Ok(())
}

/// Device and inode of a file; `-` is the file behind `standard`. `None` for pipes and the like,
/// and for a file that does not exist.
fn identity(path: &str, standard: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let metadata = if path == "-" {
        File::from(standard.try_clone_to_owned().ok()?).metadata()
    } else {
        std::fs::metadata(path)
    };
    let metadata = metadata.ok()?;
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

/// A failure to open a file, or to create it.
fn of_file(path: &str, write: bool, error: &io::Error) -> Failure {
    let what = if write { "create" } else { "open" };
    let advice = [
        advice::on_file(error.kind(), write),
        advice::on_descriptors(error.raw_os_error()),
    ];
    let advice = advice.concat();
    Failure::new(
        Exit::Port,
        format!("{path}: cannot {what}: {error}{advice}"),
    )
}

fn of_input(path: &str, error: &CaptureError) -> Failure {
    let advice = match error {
        CaptureError::Io { fault, .. } => advice::on_file(fault.kind, false),
        _ => "",
    };
    Failure::new(Exit::Port, format!("{path}: {error}{advice}"))
}

fn of_replay(args: &ReplayArgs, error: &ReplayError) -> Failure {
    match error {
        ReplayError::NotReversible => Failure::new(Exit::Usage, error.to_string()),
        _ => {
            let path = args.output.as_deref().unwrap_or(&args.input);
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
    let file = file::create(Path::new(path)).map_err(|error| of_file(path, true, &error))?;
    Ok(Box::new(file))
}

/// An input that ends after a signal, also if it is a FIFO without a writer.
struct Stoppable {
    input: File,
    /// For a pipe, a terminal and the like.
    may_block: bool,
    stop: Stop,
}

impl Stoppable {
    fn open(path: &str, stop: Stop) -> Result<Self, Failure> {
        let opened = if path == "-" {
            stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            // Otherwise `open` of a FIFO would wait for a writer.
            let flags = OFlags::NONBLOCK.bits() as i32;
            File::options().read(true).custom_flags(flags).open(path)
        };
        let input = opened.map_err(|error| of_file(path, false, &error))?;
        // If its metadata cannot be read, it may block.
        let may_block = !input.metadata().is_ok_and(|metadata| metadata.is_file());
        Ok(Self {
            input,
            may_block,
            stop,
        })
    }
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.stop.requested() {
            // The system restarts a read after a signal; a poll ends.
            if self.may_block {
                let wait = Timespec::try_from(POLL_INTERVAL).map_err(io::Error::other)?;
                let mut ready = [PollFd::new(&self.input, PollFlags::IN)];
                if matches!(poll(&mut ready, Some(&wait)), Ok(0) | Err(Errno::INTR)) {
                    continue;
                }
            }
            match self.input.read(buffer) {
                Err(error) if is_no_news(&error) => {}
                other => return other,
            }
        }
        Ok(0)
    }
}

/// No data yet, or a signal arrived.
fn is_no_news(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The exit status, with the reason.
fn conclude(args: &ReplayArgs, report: &Report, stopped: bool) -> Result<(), Failure> {
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
    match report.stopped {
        // The signal ended the input in the middle of a record.
        Some(CaptureError::Truncated { .. }) if stopped => Ok(()),
        Some(error) => Err(of_input(&args.input, &error)),
        None => Ok(()),
    }
}

fn ledger(report: &Report) -> Ledger {
    Ledger {
        received: report.received,
        expanded: report.expanded,
        transmitted: report.transmitted,
        held: report.held,
        absorbed: report.absorbed,
        dropped: report.dropped,
        ..Ledger::default()
    }
}

/// Packets that went into the coalescer for each that came out.
fn ratio(seen: &InterfaceReport) -> f64 {
    seen.frames as f64 / seen.emitted().max(1) as f64
}

fn title(index: usize, seen: &InterfaceReport) -> String {
    let name = seen.name.as_deref().map(advice::printable);
    name.unwrap_or_else(|| index.to_string())
}

fn tables(args: &ReplayArgs, report: &Report, style: Style) -> String {
    let mut text = String::new();
    let names = [
        "interface",
        "packets",
        "bytes",
        "flows",
        "held at most",
        "merged packets",
        "ratio",
        "records out",
    ];
    let mut table = Table::new(names.iter().enumerate().map(|(column, name)| {
        let align = if column == 0 {
            Align::Left
        } else {
            Align::Right
        };
        (*name, align)
    }));
    for (index, seen) in report.interfaces.iter().enumerate() {
        table.row([
            title(index, seen),
            grouped(seen.frames),
            grouped(seen.bytes),
            grouped(seen.flows()),
            grouped(seen.held_max),
            grouped(seen.stats.supers),
            format!("{:.2}:1", ratio(seen)),
            grouped(seen.records),
        ]);
    }
    text.push_str(&table.render(0, style));
    text.push_str(&hints(args, report));
    text.push_str(&chart(report, style));
    text.push_str(&reasons(report, style));
    if report.restored > 0 {
        let line = format!("restored: {} packets, ", grouped(report.restored));
        let end = if report.differing == 0 {
            style.good("every byte as it was")
        } else {
            style.bad(&format!("{} of them differ", grouped(report.differing)))
        };
        text.extend(["\n", &line, &end, "\n"]);
    }
    let state = if report.is_closed() {
        style.good("closed")
    } else {
        style.bad("NOT CLOSED")
    };
    let sums = report::sums(&ledger(report));
    text.extend(["\nledger: ", &sums, ": ", &state, "\n"]);
    if let (Some(error), None) = (report.last_bad, report.stopped) {
        text.extend([
            "the last record that cannot be read: ",
            &error.to_string(),
            "\n",
        ]);
    }
    text
}

/// What keeps the ratio low that is no matter of the traffic, and what the totals do not say.
fn hints(args: &ReplayArgs, report: &Report) -> String {
    let sum = |of: fn(&InterfaceReport) -> u64| report.interfaces.iter().map(of).sum::<u64>();
    let packets = grouped(sum(|seen| seen.frames));
    // With `--segment` they are made wire packets, or the user knows of them.
    let large = match args.segment {
        Segment::Off => sum(|seen| seen.large),
        Segment::Original | Segment::Mtu(_) => 0,
    };
    let hints = [
        (
            large,
            "are longer than 1500 bytes: TSO or GRO made them before the capture (switch both off \
             to see wire packets), or the MTU is larger",
        ),
        (
            sum(|seen| seen.cut_short),
            "are cut by the snapshot length, and such packets are not merged: capture whole \
             packets (tcpdump -s 0)",
        ),
    ];
    let lines = hints.into_iter().filter(|(count, _)| *count > 0);
    let mut text: String = lines
        .map(|(count, words)| format!("note: {} of {packets} packets {words}\n", grouped(count)))
        .collect();
    let [bytes, captured] = [sum(|seen| seen.bytes), sum(|seen| seen.captured_bytes)].map(grouped);
    if bytes != captured {
        let line =
            format!("note: bytes are those on the wire: the capture has {captured} of {bytes}\n");
        text.push_str(&line);
    }
    if report.blocks_left_out > 0 {
        let count = grouped(report.blocks_left_out);
        let line = format!("note: blocks without packets that cannot be copied: {count}\n");
        text.push_str(&line);
    }
    text
}

/// How many packets came out, by the number of packets merged into each.
fn chart(report: &Report, style: Style) -> String {
    let count = |index: usize| {
        let seen = report.interfaces.iter();
        seen.map(|seen| seen.histogram[index]).sum::<u64>()
    };
    let counts: [u64; HISTOGRAM_FROM.len()] = std::array::from_fn(count);
    let most = counts.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return String::new();
    }
    let mut table = Table::new([
        ("packets merged into one", Align::Right),
        ("", Align::Bar),
        ("how often", Align::Right),
    ]);
    for (index, count) in counts.into_iter().enumerate() {
        let from = HISTOGRAM_FROM[index];
        let merged = match HISTOGRAM_FROM.get(index + 1) {
            None => format!("{from}+"),
            Some(next) if next - from == 1 => from.to_string(),
            Some(next) => format!("{from}-{}", next - 1),
        };
        let bar = bar(count as f64, most as f64, BAR_COLUMNS);
        table.row([merged, bar, grouped(count)]);
    }
    format!("\n{}", table.render(0, style))
}

/// Every reason that came up, with its count over all interfaces and what it means.
fn reasons(report: &Report, style: Style) -> String {
    let mut text = String::new();
    let of_all = |of: fn(&InterfaceReport) -> Vec<Reason>| summed(report, of);
    let groups = [
        ("passed on after being held", of_all(held)),
        ("passed on at once", of_all(not_held)),
        ("passed through", of_all(not_seen)),
    ];
    for (title, counts) in groups {
        let mut table = Table::new([
            (title, Align::Left),
            ("packets", Align::Right),
            ("because", Align::Left),
        ]);
        for (name, count, words) in counts {
            table.row([name.to_owned(), grouped(count), words.to_owned()]);
        }
        if !table.is_empty() {
            text.extend(["\n", &table.render(0, style)]);
        }
    }
    let unfinished: u64 = report.interfaces.iter().map(|seen| seen.unfinished).sum();
    if unfinished > 0 {
        let count = grouped(unfinished);
        text += &format!(
            "\n{count} packets were captured before checksum offload: their checksums are \
             unfinished\n"
        );
    }
    text
}

/// A reason's name, its count, and what it means.
type Reason = (&'static str, u64, &'static str);

fn held(seen: &InterfaceReport) -> Vec<Reason> {
    let counts = seen.stats.flushes.iter();
    counts
        .map(|(reason, count)| (reason.name(), count, words::of_flush(reason)))
        .collect()
}

fn not_held(seen: &InterfaceReport) -> Vec<Reason> {
    let counts = seen.stats.not_taken.iter();
    counts
        .map(|(reason, count)| (reason.name(), count, words::of_not_taken(reason)))
        .collect()
}

/// Packets that the coalescer did not see.
fn not_seen(seen: &InterfaceReport) -> Vec<Reason> {
    vec![
        (
            "cut_short",
            seen.cut_short,
            "not captured whole (snapshot length)",
        ),
        (
            "other_link",
            seen.other_link,
            "of a link type that replay does not read",
        ),
        (
            "no_length",
            seen.no_length,
            "its IP length was left to the NIC (captured on the sender, with TSO on)",
        ),
        (
            "not_cut",
            seen.not_cut,
            "longer than --segment, and cannot be cut",
        ),
    ]
}

/// The sum over all interfaces, without the reasons that never came up.
fn summed(report: &Report, of: impl Fn(&InterfaceReport) -> Vec<Reason>) -> Vec<Reason> {
    let mut sums: Vec<Reason> = Vec::new();
    for seen in &report.interfaces {
        for one in of(seen) {
            match sums.iter_mut().find(|(known, ..)| *known == one.0) {
                Some((_, sum, _)) => *sum += one.1,
                None => sums.push(one),
            }
        }
    }
    sums.retain(|(_, count, _)| *count > 0);
    sums
}

fn object(reasons: Vec<Reason>) -> Map<String, Value> {
    let counts = reasons.into_iter();
    counters(counts.map(|(name, count, _)| (name, count)))
}

/// The keys of the JSON document that only a replay has.
fn fields(
    args: &ReplayArgs,
    options: &Options,
    report: &Report,
    stopped: bool,
) -> Map<String, Value> {
    let rows = report.interfaces.iter().enumerate();
    let semantics = options.coalesce.unwrap_or_default();
    let config = options.config(semantics, LinkType::Ethernet);
    let stream = semantics == Semantics::Stream;
    json::fields(&json!({
        "settings": {
            "input": args.input,
            "output": args.output,
            "coalesce": word(&args.coalesce),
            "mode": word(&args.mode),
            "flows": config.flows,
            "bytes_max": config.max_bytes,
            "packets": args.gro_packets,
            "inactive": args.gro_inactive == Switch::On,
            "flush": args.gro_flush.to_string(),
            "id": word(&args.gro_id),
            "ack_limit": stream.then_some(config.ack_limit),
            "rx_pause": args.rx_pause,
            "segment": match options.segment {
                Segment::Off => Value::from("off"),
                Segment::Original => Value::from("original"),
                Segment::Mtu(mtu) => Value::from(mtu),
            },
            "hold_ns": options.hold_ns,
            "user0": args.user0.as_ref().map(word),
        },
        "format": match report.format {
            Format::Pcap { .. } => "pcap",
            Format::PcapNg => "pcapng",
        },
        "histogram_from": HISTOGRAM_FROM,
        "rows": rows.map(|(index, seen)| row(index, seen)).collect::<Vec<_>>(),
        "blocks_left_out": report.blocks_left_out,
        "restored": report.restored,
        "differing": report.differing,
        "stopped": stopped,
        "unreadable": report.last_bad.map(|error| error.to_string()),
        "conservation": json::conservation(&ledger(report)),
    }))
}

fn row(index: usize, seen: &InterfaceReport) -> Value {
    let stats = &seen.stats;
    json!({
        "interface": index,
        "name": seen.name,
        "link": seen.link.0,
        "packets": seen.frames,
        "bytes": seen.bytes,
        "captured_bytes": seen.captured_bytes,
        "flows": seen.flows(),
        "held_max": seen.held_max,
        "emitted": seen.emitted(),
        "ratio": ratio(seen),
        "histogram": seen.histogram,
        "gro_packets": stats.supers,
        "gro_wire_packets": stats.merged,
        "absorbed": stats.absorbed,
        "bad_checksums": stats.bad_checksums,
        "unfinished": seen.unfinished,
        "large": seen.large,
        "sorted_windows": stats.sorted_windows,
        "gro_flush": object(held(seen)),
        "not_taken": object(not_held(seen)),
        "passed": object(not_seen(seen)),
        "records": seen.records,
        "record_bytes": seen.record_bytes,
    })
}
