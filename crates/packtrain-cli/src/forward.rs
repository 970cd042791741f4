//! `packtrain forward`: joins two ports until something ends it.

use crate::args::ForwardArgs;
use crate::exit::{Exit, Failure};
use crate::joint::Joint;
use crate::live::Live;
use crate::print::{self, Style};
use crate::privileges::{Privileges, used};
use crate::signals::{Start, Stop};
use crate::table::{Align, Table, grouped};
use crate::{json, plan};
use packtrain::driver::{DeviceError, Link};
use packtrain::engine::{Forward, Ledger, PortSnapshot, Report, Session, WorkerSnapshot};
use packtrain::port::LinkWatch;
use packtrain::port::wrap::Faults;
use packtrain::stats::{DropSnapshot, HistogramSnapshot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How often everything is read that has no notification: refused features, troubles, captures, and
/// links that [`LinkWatch`] does not watch.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the end may take after a signal: draining is bounded by two seconds.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Columns of queues that fit beside each other on a terminal.
const QUEUES_ABREAST: usize = 4;

/// Why the intake was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Signal,
    Duration,
    /// The input, or the count, came to its end; or a worker failed, and then the report says so.
    End,
    /// A device is gone although no worker has noticed.
    Removed(usize),
}

/// Runs the command.
///
/// # Errors
///
/// What could not be opened or joined, what failed on the way, or a ledger that does not close.
pub fn run(args: &ForwardArgs) -> Result<(), Failure> {
    let settings = args.settings.settings();
    plan::check(&settings)?;
    let privileges = Privileges::of(args.user.as_deref())?;
    let (stop, start) = (Stop::install()?, Start::new());
    // Before a port is opened: what `--user` may not do ends the program here.
    privileges.without(|| stop.end_after(STOP_MAX, &start))?;
    let signals = Stop::pipe()?;
    let joint = Joint::open(&args.a, &args.b, &settings)?;
    // The threads of the workers inherit what is left.
    privileges.keep(used(&settings, joint.has_interface))?;
    let names = joint.names();
    let plan_json = json::plan(&joint);
    if !args.quiet && !args.json {
        print::message(&plan::text(&joint, &args.settings, Style::stderr()));
        let placed = joint.place(&settings);
        print::message(&plan::settings_line(&settings, &placed));
    }
    let has_no_input = joint.has_no_input();
    let captures = joint.ports.each_ref().map(|port| port.driver.capture());
    let faults = joint.ports.each_ref().map(|port| port.driver.faults());
    let parts = joint.parts();
    let [a, b] = joint.ports;
    // Called before any worker runs.
    let handler = move |_| {
        start.end();
        Forward
    };
    let session = Session::between(a, b).handler(handler).settings(settings);
    let session = match args.count {
        Some(count) => session.packets(count),
        None => session,
    };
    let mut session = session.start().map_err(|error| Failure::of_start(&error))?;
    if !args.quiet && !args.json {
        let [a, b] = &names;
        print::message(&format!("forwarding between {a} and {b}; Ctrl-C ends it\n"));
        if has_no_input {
            print::message("note: neither port has any input, so nothing will move\n");
        }
    }
    let mut live = Live::new(names.clone(), captures, args.stats_interval, args.quiet);
    let settings = json::settings(&args.settings, &joint.sides, session.placed());
    let ended = watch(&mut session, args, (&stop, &signals), &mut live)?;
    let ended = look_at_links(&mut session, &mut live).unwrap_or(ended);
    let report = session.finish();
    let faults = faults.map(|counters| Some(counters?.get()));
    live.finish(&report.snapshot);
    let failure = failure(&names, &ended, &report).or_else(|| live.stopped());
    if args.json {
        let error = failure.as_ref().map(|failure| failure.line.as_str());
        json::write(document(
            &names,
            &parts,
            [plan_json, settings],
            &report,
            &faults,
            ended.word(&report),
            error,
        ))?;
    } else {
        print::output(&text(&names, &report, &faults, Style::stdout()))?;
    }
    failure.map_or(Ok(()), Err)
}

impl Ended {
    fn word(&self, report: &Report) -> &'static str {
        match self {
            _ if report.error.is_some() => "failure",
            Self::Removed(_) => "failure",
            Self::Signal => "signal",
            Self::Duration => "duration",
            Self::End => "end",
        }
    }
}

/// Waits for the end and tells what happens meanwhile. Never on the packets' path.
fn watch(
    session: &mut Session,
    args: &ForwardArgs,
    (stop, signals): (&Stop, &UnixStream),
    live: &mut Live,
) -> Result<Ended, Failure> {
    // Without one, links are read at each look.
    let link_watch = LinkWatch::open().ok();
    let mut look = Duration::ZERO;
    loop {
        let elapsed = session.elapsed();
        if stop.requested() {
            return Ok(Ended::Signal);
        }
        if args.duration.is_some_and(|duration| elapsed >= duration) {
            return Ok(Ended::Duration);
        }
        let changed = link_watch.as_ref().is_some_and(LinkWatch::changed);
        if (changed || elapsed >= look)
            && let Some(removed) = look_at_links(session, live)
        {
            return Ok(removed);
        }
        if elapsed >= look {
            let snapshot = session.snapshot();
            live.refused(&snapshot);
            live.troubles(&snapshot);
            live.captures();
            look = elapsed + LOOK_INTERVAL;
        }
        if live.due().is_some_and(|due| elapsed >= due) {
            live.statistics(elapsed, session.snapshot());
        }
        let times = [args.duration, live.due()].into_iter().flatten();
        let until = times.fold(look, Duration::min);
        let left = until.saturating_sub(session.elapsed());
        if is_over_within(left, session, signals, link_watch.as_ref())? {
            return Ok(Ended::End);
        }
    }
}

/// Sleeps until the session is over (then it returns true), a signal arrives, a link changes, or
/// `left` has passed.
fn is_over_within(
    left: Duration,
    session: &Session,
    signals: &UnixStream,
    link_watch: Option<&LinkWatch>,
) -> Result<bool, Failure> {
    let (over, links) = (session.over_fd(), link_watch.map(LinkWatch::fd));
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    let others = over.iter().chain(&links);
    fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::IN)));
    let left = Timespec {
        tv_sec: left.as_secs().cast_signed(),
        tv_nsec: left.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(session.is_over()),
        Err(error) => Err(Failure::new(
            Exit::Port,
            format!("cannot wait for the end of the run: {error}"),
        )),
    }
}

/// Tells which links have changed. Says so where a device is gone.
fn look_at_links(session: &mut Session, live: &mut Live) -> Option<Ended> {
    let links = session.links();
    live.links(&links);
    let gone = links.iter().position(|link| *link == Link::Removed)?;
    Some(Ended::Removed(gone))
}

/// What went wrong, the worst first.
fn failure(names: &[String; 2], ended: &Ended, report: &Report) -> Option<Failure> {
    let ledger = &report.snapshot.ledger;
    if !ledger.closed() || ledger.held != 0 {
        let line = format!("the account of packets does not close: {}", sums(ledger));
        return Some(Failure::new(Exit::Check, line));
    }
    let (port, error) = match (&report.error, ended) {
        (Some(failed), _) => (failed.port, &failed.error),
        (None, Ended::Removed(port)) => (Some(*port), &DeviceError::Removed),
        (None, _) => return None,
    };
    let who = port.map_or("the engine", |port| &names[port]);
    // It was open and running: whatever the system says now is no missing privilege.
    Some(Failure::new(Exit::Port, format!("{who}: {error}")))
}

/// The JSON document of a run.
fn document(
    names: &[String; 2],
    parts: &[Vec<String>],
    [plan, settings]: [Value; 2],
    report: &Report,
    faults: &[Option<Faults>; 2],
    ended: &str,
    error: Option<&str>,
) -> Map<String, Value> {
    let snapshot = &report.snapshot;
    let workers = snapshot.workers.iter().zip(parts);
    let workers = workers.map(|(worker, parts)| json::worker(worker, parts));
    let mut document = json::document("forward");
    document.insert("plan".into(), plan);
    document.insert("settings".into(), settings);
    document.insert(
        "run".into(),
        json!({
            "seconds": report.elapsed.as_secs_f64(),
            "cpu_seconds": snapshot.cpu_ns as f64 / 1e9,
            "syscalls": snapshot.syscalls,
            "sleeps": snapshot.sleeps,
            "workers": workers.collect::<Vec<_>>(),
            "placement": json::placement(&report.placed),
            "ended": ended,
            "error": error,
        }),
    );
    let mut ports = Map::new();
    for (index, name) in names.iter().enumerate() {
        let (device, faults) = (report.devices[index].as_ref(), faults[index].as_ref());
        let port = json::port(&snapshot.ports[index], device, faults, report.began);
        ports.insert(name.clone(), port);
    }
    document.insert("ports".into(), ports.into());
    document.insert("drops".into(), json::drops(&snapshot.drops));
    document.insert("conservation".into(), json::conservation(&snapshot.ledger));
    document
}

/// The final account for people.
fn text(
    names: &[String; 2],
    report: &Report,
    faults: &[Option<Faults>; 2],
    style: Style,
) -> String {
    let snapshot = &report.snapshot;
    let mut text = String::new();
    for (name, port) in names.iter().zip(&snapshot.ports) {
        text.push_str(&queues(name, port, style));
    }
    text.push_str(&batches(names, &snapshot.ports, style));
    let devices = [0, 1].map(|port: usize| {
        let device = report.devices[port].as_ref();
        Some(json::device_values(device?).to_vec())
    });
    let title = "the device's own counters";
    // Losses are listed always: that there are none is worth knowing.
    let always = |counter: &str| counter.ends_with("dropped");
    text.push_str(&per_port(title, names, devices, always, style));
    let faults = faults.each_ref().map(Option::as_ref);
    let faults = faults.map(|faults| Some(json::fault_values(faults?).to_vec()));
    text.push_str(&per_port("faults, packets", names, faults, |_| true, style));
    text.push_str(&workers(&snapshot.workers, style));
    text.push_str(&drops(&snapshot.drops, style));
    text.push_str(&conservation_line(&snapshot.ledger, style));
    let seconds = report.elapsed.as_secs_f64();
    text.push_str(&format!(
        "{seconds:.3} s, {:.3} s of CPU time, {} system calls\n",
        snapshot.cpu_ns as f64 / 1e9,
        grouped(snapshot.syscalls)
    ));
    text
}

/// One line that says whether everything is accounted for.
pub fn conservation_line(ledger: &Ledger, style: Style) -> String {
    let verdict = if ledger.closed() {
        style.good("closed")
    } else {
        style.bad("NOT CLOSED")
    };
    format!("conservation: {}: {verdict}\n", sums(ledger))
}

fn sums(ledger: &Ledger) -> String {
    let side = |terms: &[(&str, u64)]| {
        let terms: Vec<_> = terms
            .iter()
            .enumerate()
            .filter(|(index, (_, count))| *index == 0 || *count > 0)
            .map(|(_, (name, count))| format!("{} {name}", grouped(*count)))
            .collect();
        terms.join(" + ")
    };
    let inflow = side(&[
        ("received", ledger.received),
        ("generated", ledger.generated),
        ("expanded", ledger.expanded),
    ]);
    let outflow = side(&[
        ("transmitted", ledger.transmitted),
        ("delivered", ledger.delivered),
        ("held", ledger.held),
        ("absorbed", ledger.absorbed),
        ("dropped", ledger.dropped),
    ]);
    let sign = if ledger.closed() { "=" } else { "is not" };
    format!("{inflow} {sign} {outflow}")
}

/// The counters of one port, those of all queues beside each other.
fn queues(name: &str, port: &PortSnapshot, style: Style) -> String {
    let rx: Vec<Vec<_>> = port
        .rx
        .iter()
        .map(|queue| queue.values().collect())
        .collect();
    let tx: Vec<Vec<_>> = port
        .tx
        .iter()
        .map(|queue| queue.values().collect())
        .collect();
    let mut text = String::new();
    for (kind, what, queues) in [("rxq", "received", rx), ("txq", "transmitted", tx)] {
        let title = format!("{name}, {what}");
        for (chunk_index, chunk) in queues.chunks(QUEUES_ABREAST).enumerate() {
            let first = chunk_index * QUEUES_ABREAST;
            let columns =
                (0..chunk.len()).map(|index| (format!("{kind}{:02}", first + index), Align::Right));
            let mut table = Table::new([(title.clone(), Align::Left)].into_iter().chain(columns));
            for (row, (counter, _)) in chunk[0].iter().enumerate() {
                let values = chunk.iter().map(|queue| queue[row].1);
                if values.clone().any(|value| value > 0) {
                    table.row(
                        [(*counter).to_owned()]
                            .into_iter()
                            .chain(values.map(grouped)),
                    );
                }
            }
            if !table.is_empty() {
                text.push_str(&table.render(0, style));
                text.push('\n');
            }
        }
    }
    text
}

/// How large the batches of each queue were, in packets; nothing for one that had none.
fn batches(names: &[String; 2], ports: &[PortSnapshot], style: Style) -> String {
    let columns = ["times", "p50", "p90", "p99", "max"];
    let columns = columns.map(|name| (name, Align::Right));
    let title = [("packets in a batch", Align::Left), ("of a", Align::Left)];
    let mut table = Table::new(title.into_iter().chain(columns));
    let mut row = |name: &str, kind: &str, sizes: &HistogramSnapshot| {
        if sizes.count() > 0 {
            let values = [
                sizes.count(),
                sizes.quantile(0.5),
                sizes.quantile(0.9),
                sizes.quantile(0.99),
                sizes.max(),
            ];
            let words = [name.to_owned(), kind.to_owned()];
            table.row(words.into_iter().chain(values.map(grouped)));
        }
    };
    for (name, port) in names.iter().zip(ports) {
        for (index, queue) in port.rx_batches.iter().enumerate() {
            for (kind, sizes) in queue.values() {
                row(&format!("{name} rxq{index:02}"), kind, sizes);
            }
        }
        for (index, queue) in port.tx_batches.iter().enumerate() {
            for (kind, sizes) in queue.values() {
                row(&format!("{name} txq{index:02}"), kind, sizes);
            }
        }
    }
    if table.is_empty() {
        return String::new();
    }
    table.render(0, style) + "\n"
}

/// What each worker did and cost.
fn workers(workers: &[WorkerSnapshot], style: Style) -> String {
    let columns = [
        "sleeps",
        "wakeups",
        "drained",
        "switches",
        "preempted",
        "CPU ms",
        "system calls",
        "nice",
    ];
    let columns = columns.map(|name| (name, Align::Right));
    let mut table = Table::new([("worker", Align::Left)].into_iter().chain(columns));
    for (index, worker) in workers.iter().enumerate() {
        let values = [
            worker.sleeps,
            worker.wakeups,
            worker.drained,
            worker.voluntary_switches,
            worker.involuntary_switches,
            worker.cpu_ns / 1_000_000,
            worker.syscalls,
        ];
        let values = values.map(grouped).into_iter();
        let cells = [index.to_string()].into_iter().chain(values);
        table.row(cells.chain([worker.nice.to_string()]));
    }
    table.render(0, style) + "\n"
}

/// What is counted once for a port, of those ports that count it. What is 0 everywhere is left out
/// unless it is one of those that are listed `always`.
fn per_port(
    title: &str,
    names: &[String; 2],
    values: [Option<Vec<(&'static str, u64)>>; 2],
    always: impl Fn(&str) -> bool,
    style: Style,
) -> String {
    let known: Vec<_> = names
        .iter()
        .zip(values)
        .filter_map(|(name, values)| Some((name, values?)))
        .collect();
    let columns = known
        .iter()
        .map(|(name, _)| ((*name).clone(), Align::Right));
    let title = (title.to_owned(), Align::Left);
    let mut table = Table::new([title].into_iter().chain(columns));
    let Some((_, first)) = known.first() else {
        return String::new();
    };
    for (row, (counter, _)) in first.iter().enumerate() {
        let values = known.iter().map(|(_, values)| values[row].1);
        if always(counter) || values.clone().any(|value| value > 0) {
            table.row(
                [(*counter).to_owned()]
                    .into_iter()
                    .chain(values.map(grouped)),
            );
        }
    }
    table.render(0, style) + "\n"
}

fn drops(drops: &DropSnapshot, style: Style) -> String {
    let mut table = Table::new([("dropped", Align::Left), ("wire packets", Align::Right)]);
    for (reason, count) in drops.nonzero() {
        table.row([reason.name().to_owned(), grouped(count)]);
    }
    if table.is_empty() {
        "dropped by packtrain: nothing\n".to_owned()
    } else {
        table.render(0, style)
    }
}
