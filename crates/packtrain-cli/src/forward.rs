//! `packtrain forward`: joins two ports until something ends it.

use crate::args::ForwardArgs;
use crate::exit::{Exit, Failure};
use crate::joint::Joint;
use crate::live::Live;
use crate::print::{self, Style};
use crate::privileges::{Privileges, used};
use crate::signals::{FOR_A_FILE, Start, Stop};
use crate::{json, plan, report, summary};
use packtrain::driver::{DeviceError, Link};
use packtrain::engine::{Forward, Report, Session};
use packtrain::port::LinkWatch;
use packtrain::port::wrap::Faults;
use packtrain_lab::in_force::{InForce, WorkerCpus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How often the run polls what has no notification: refused features, faults of devices,
/// captures, and links that [`LinkWatch`] does not watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the end may take after a signal. Draining takes two seconds at most.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Why the intake was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Signal,
    Duration,
    /// The input or the count ended, or a worker failed; the report has the error.
    End,
    /// A device was removed, and no worker has found it yet.
    Removed(usize),
}

/// Runs the command.
///
/// # Errors
///
/// A port that cannot be opened or joined, a failure of the run, or a ledger that does not close.
pub fn run(args: &ForwardArgs) -> Result<(), Failure> {
    let settings = args.settings.settings();
    plan::check(&settings)?;
    let privileges = Privileges::of(args.user.as_deref())?;
    let (stop, start) = (Stop::install()?, Start::new());
    // Before a port is opened: what `--user` may not do ends the program here.
    privileges.without(|| stop.end_after(STOP_MAX, &start, FOR_A_FILE))?;
    let signals = Stop::pipe()?;
    let joint = Joint::open(&args.a, &args.b, &settings, args.duration, args.quiet)?;
    // The threads of the workers inherit what is left.
    privileges.keep(used(&settings, joint.has_interface))?;
    let names = joint.names();
    let mut in_force = joint.in_force(&args.settings);
    if !args.quiet && !args.json {
        if args.verbose {
            let text = plan::text(&joint, &in_force, Style::stderr());
            let line = plan::policies_line(&in_force.settings);
            print::message(&format!("{text}{line}\n"));
        } else {
            print::message(&summary::plan(&joint));
        }
    }
    let has_no_input = joint.has_no_input();
    let captures = joint.ports.each_ref().map(|port| port.driver.capture());
    let faults = joint.ports.each_ref().map(|port| port.driver.faults());
    let front_ends = joint.ports.each_ref().map(|port| port.driver.vhost());
    let [a, b] = joint.ports;
    // The session calls it before any worker runs.
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
            print::message("note: neither port has any input, so no packet will move\n");
        }
    }
    let interval = args.stats_interval;
    let mut live = Live::new(names.clone(), captures, front_ends, interval, args.quiet);
    in_force.settings.placed = session.placed().into();
    let ended = watch(&mut session, args, (&stop, &signals), &mut live)?;
    let ended = poll_links(&mut session, &mut live).unwrap_or(ended);
    let report = session.finish();
    let faults = faults.map(|counters| Some(counters?.get()));
    live.finish(&report.snapshot);
    let failure = failure(&names, &ended, &report).or_else(|| live.stopped());
    if args.json {
        let error = failure.as_ref().map(|failure| failure.line.as_str());
        json::write(document(
            &names,
            &in_force,
            &report,
            &faults,
            ended.word(&report),
            error,
        ))?;
    } else {
        let style = Style::stdout();
        let is_interface =
            |port: &String| ["tap:", "tun:"].iter().any(|kind| port.starts_with(kind));
        let interfaces = [&args.a, &args.b].map(is_interface);
        let mut text = report::totals(&names, interfaces, &report, &faults, style);
        if args.verbose {
            text.push_str(&report::details(&names, &report, &faults, style));
        }
        print::output(&text)?;
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

/// Waits for the end, and prints events and statistics until then. It is not on the packet path.
fn watch(
    session: &mut Session,
    args: &ForwardArgs,
    (stop, signals): (&Stop, &UnixStream),
    live: &mut Live,
) -> Result<Ended, Failure> {
    // Without it links are polled.
    let link_watch = LinkWatch::open().ok();
    let mut next_poll = Duration::ZERO;
    loop {
        let elapsed = session.elapsed();
        if stop.requested() {
            return Ok(Ended::Signal);
        }
        if args.duration.is_some_and(|duration| elapsed >= duration) {
            return Ok(Ended::Duration);
        }
        let changed = link_watch.as_ref().is_some_and(LinkWatch::changed);
        if (changed || elapsed >= next_poll)
            && let Some(removed) = poll_links(session, live)
        {
            return Ok(removed);
        }
        if elapsed >= next_poll {
            let snapshot = session.snapshot();
            live.refused(&snapshot);
            live.troubles(&snapshot);
            live.captures();
            live.front_ends();
            next_poll = elapsed + POLL_INTERVAL;
        }
        if live.due().is_some_and(|due| elapsed >= due) {
            live.statistics(elapsed, session.snapshot());
        }
        let times = [args.duration, live.due()].into_iter().flatten();
        let until = times.fold(next_poll, Duration::min);
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

/// Prints which links have changed. Returns the port whose device was removed.
fn poll_links(session: &mut Session, live: &mut Live) -> Option<Ended> {
    let links = session.links();
    live.links(&links);
    let removed = links.iter().position(|link| *link == Link::Removed)?;
    Some(Ended::Removed(removed))
}

/// The failure of the run; the worst, if there are several.
fn failure(names: &[String; 2], ended: &Ended, report: &Report) -> Option<Failure> {
    let ledger = &report.snapshot.ledger;
    if !ledger.closed() || ledger.held != 0 {
        let line = format!("the packet ledger does not close: {}", report::sums(ledger));
        return Some(Failure::new(Exit::Check, line));
    }
    let (port, error) = match (&report.error, ended) {
        (Some(failed), _) => (failed.port, &failed.error),
        (None, Ended::Removed(port)) => (Some(*port), &DeviceError::Removed),
        (None, _) => return None,
    };
    let name = port.map_or("the engine", |port| &names[port]);
    // The port was open and running, so no error is a missing privilege.
    Some(Failure::new(Exit::Port, format!("{name}: {error}")))
}

/// The JSON document of a run.
fn document(
    names: &[String; 2],
    in_force: &InForce,
    report: &Report,
    faults: &[Option<Faults>; 2],
    ended: &str,
    error: Option<&str>,
) -> Map<String, Value> {
    let snapshot = &report.snapshot;
    let workers = snapshot.workers.iter().zip(&in_force.plan.workers);
    let workers = workers.map(|(worker, parts)| json::worker(worker, parts));
    let mut document = json::document("forward");
    document.extend(json::fields(in_force));
    document.insert(
        "run".into(),
        json!({
            "seconds": report.elapsed.as_secs_f64(),
            "cpu_seconds": snapshot.cpu_ns as f64 / 1e9,
            "syscalls": snapshot.syscalls,
            "sleeps": snapshot.sleeps,
            "workers": workers.collect::<Vec<_>>(),
            "placement": WorkerCpus::from(&report.placed),
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
