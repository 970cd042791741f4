//! `packtrain forward`: joins two ports, or several as a bridge, until something ends it.

use crate::args::ForwardArgs;
use crate::exit::{Exit, Failure};
use crate::joint::Joint;
use crate::live::Live;
use crate::print::{self, Style};
use crate::privileges::{Privileges, used};
use crate::signals::{Asked, FOR_A_FILE, Start, Stop};
use crate::{json, plan, report, summary};
use packtrain::bridge::{ADDRESSES, AGING, Addresses, Bridge};
use packtrain::driver::{DeviceError, Link, Port};
use packtrain::engine::{Builder, Forward, Handler, Ports, Report, Session, Settings};
use packtrain::name::Name;
use packtrain::port::spec::kinds;
use packtrain::port::wrap::Faults;
use packtrain::port::{AnyPort, LinkWatch};
use packtrain_lab::in_force::{InForce, WorkerCpus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde_json::{Map, Value, json};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How often the run polls what has no notification: changes of the plan, faults of devices,
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
    let bridged = bridged(args)?;
    let privileges = Privileges::of(args.user.as_deref())?;
    let (stop, start) = (Stop::install()?, Start::new());
    // Before a port is opened: what `--user` may not do ends the program here.
    privileges.without(|| stop.end_after(STOP_MAX, &start, FOR_A_FILE))?;
    let (signals, asked) = (Stop::pipe()?, Asked::install()?);
    let joint = Joint::open(&args.ports(), &settings, args.duration, args.quiet)?;
    let [at_start, running] = used(
        &settings,
        joint.has_interface,
        joint.waits,
        joint.pins_memory,
    );
    privileges.keep(at_start)?;
    let names = joint.names();
    let mut in_force = joint.in_force(&args.settings);
    if !args.quiet && !args.json {
        if args.verbose {
            let text = plan::text(&joint, &in_force, Style::stderr());
            let line = plan::policies_line(&in_force.settings);
            print::lines(&format!("{text}{line}\n"));
        } else {
            print::lines(&summary::plan(&joint));
        }
    }
    let has_no_input = joint.has_no_input();
    let captures = joint.ports.iter().map(|port| port.driver.capture());
    let captures: Vec<_> = captures.collect();
    let faults = joint.ports.iter().map(|port| port.driver.faults());
    let faults: Vec<_> = faults.collect();
    let front_ends = joint.ports.iter().map(|port| port.driver.vhost());
    let front_ends: Vec<_> = front_ends.collect();
    let run = (settings, args.count, running);
    let mut session = start_session(joint.ports, run, bridged.as_ref(), start)?;
    Privileges::of(None)?.keep(running)?;
    if !args.quiet && !args.json {
        print::message(&greeting(&names));
        if has_no_input {
            let none = if bridged.is_some() { "no" } else { "neither" };
            print::message(&format!(
                "note: {none} port has any input, so no packet will move"
            ));
        }
    }
    let interval = args.stats_interval;
    let how = (args.json, args.quiet);
    let is_one = |port: &&str, kinds: &[&str]| kinds.iter().any(|kind| port.starts_with(kind));
    let ports = args.ports();
    let of_kernel = ["tap:", "tun:", "packet:", "xdp:"];
    let of_kernel = ports.iter().map(|port| is_one(port, &of_kernel));
    let of_kernel = (names.clone(), of_kernel.collect());
    let mut live = Live::new(of_kernel, captures, front_ends, interval, how);
    in_force.settings.placed = session.placed().into();
    let ended = watch(
        &mut session,
        (args, &names),
        (&stop, &signals, &asked),
        &mut live,
    )?;
    let ended = poll_links(&mut session, &mut live).unwrap_or(ended);
    let report = session.finish();
    let faults = faults.into_iter().map(|counters| Some(counters?.get()));
    let faults: Vec<_> = faults.collect();
    live.finish(&report.snapshot);
    let failure = failure(&names, &ports, &ended, &report).or_else(|| live.stopped());
    if args.json {
        let error = failure.as_ref().map(|failure| failure.line.as_str());
        json::write(document(
            &names,
            &in_force,
            &report,
            &faults,
            (ended.word(&report), error),
            bridged.as_deref(),
        ))?;
    } else {
        let style = Style::stdout();
        let interfaces = ports.iter().map(|port| is_one(port, &["tap:", "tun:"]));
        let interfaces: Vec<_> = interfaces.collect();
        let mut text = report::totals(&names, &interfaces, &report, &faults, style);
        if let Some(addresses) = &bridged {
            let known = addresses.len();
            text.push_str(&format!("addresses known at the end: {known}\n"));
        }
        if args.verbose {
            text.push_str(&report::details(&names, &report, &faults, style));
        }
        print::output(&text)?;
    }
    failure.map_or(Ok(()), Err)
}

/// The table of a bridge; `None` for two ports, which have no use for its options.
fn bridged(args: &ForwardArgs) -> Result<Option<Arc<Addresses>>, Failure> {
    if !args.more.is_empty() {
        let most = args.addresses.unwrap_or(ADDRESSES);
        return Ok(Some(Addresses::new(most, args.aging.unwrap_or(AGING))));
    }
    let asked = [
        (args.aging.is_some(), "--aging"),
        (args.addresses.is_some(), "--addresses"),
    ];
    match asked.iter().find(|(asked, _)| *asked) {
        None => Ok(None),
        Some((_, option)) => Err(Failure::new(
            Exit::Usage,
            format!(
                "{option} is for three and more ports: two pass everything on, whatever its \
                 address; leave it out, or name a further port"
            ),
        )),
    }
}

/// Starts the session: two ports between each other, more as a bridge.
fn start_session(
    ports: Vec<Port<AnyPort>>,
    run: (Settings, Option<u64>, CapabilitySet),
    bridged: Option<&Arc<Addresses>>,
    start: Start,
) -> Result<Session, Failure> {
    fn started<P: Ports, H: Handler + 'static>(
        builder: Builder<P, H>,
        (settings, count, running): (Settings, Option<u64>, CapabilitySet),
    ) -> Result<Session, Failure> {
        let builder = builder.settings(settings);
        let builder = match count {
            Some(count) => builder.packets(count),
            None => builder,
        };
        let privileges = Privileges::of(None)?;
        let keep = move || privileges.keep(running);
        let settled = move || keep().map_err(|failure| io::Error::other(failure.line));
        let session = builder.start_with(settled);
        session.map_err(|error| Failure::of_start(&error))
    }
    // The session calls a handler's maker before any worker runs.
    match bridged {
        None => {
            let ports = <[_; 2]>::try_from(ports).ok();
            let [a, b] = ports.expect("more than two ports are bridged");
            let handler = move |_| {
                start.end();
                Forward
            };
            started(Session::between(a, b).handler(handler), run)
        }
        Some(addresses) => {
            for (index, port) in ports.iter().enumerate() {
                if let Some(most) = port.config.addresses {
                    addresses.bound(index, most);
                }
            }
            let bridge = Bridge::new(Arc::clone(addresses));
            let handler = move |_| {
                start.end();
                bridge.clone()
            };
            started(Session::among(ports).handler(handler), run)
        }
    }
}

/// What a run says when it has started.
fn greeting(names: &[Name]) -> String {
    if let [a, b] = names {
        return format!("forwarding between {a} and {b}; Ctrl-C ends it");
    }
    let names: Vec<_> = names.iter().map(Name::to_string).collect();
    let names = names.join(", ");
    format!("bridging {names}; it detects no loop: join them nowhere else; Ctrl-C ends it")
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
    (args, names): (&ForwardArgs, &[Name]),
    (stop, signals, asked): (&Stop, &UnixStream, &Asked),
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
        if changed || elapsed >= next_poll {
            if let Some(removed) = poll_links(session, live) {
                return Ok(removed);
            }
            live.changes(&session.snapshot());
        }
        if elapsed >= next_poll {
            let snapshot = session.snapshot();
            live.troubles(&snapshot);
            live.too_long(&snapshot);
            live.short(&snapshot);
            live.captures();
            live.front_ends();
            next_poll = elapsed + POLL_INTERVAL;
        }
        if live.due().is_some_and(|due| elapsed >= due) {
            live.statistics(elapsed, session.snapshot());
        }
        if asked.take()? {
            let snapshot = session.snapshot();
            let text =
                (!args.json).then(|| report::so_far(names, &snapshot, elapsed, Style::stderr()));
            live.totals(elapsed, &snapshot, text.as_deref());
        }
        let times = [args.duration, live.due()].into_iter().flatten();
        let until = times.fold(next_poll, Duration::min);
        let left = until.saturating_sub(session.elapsed());
        let streams = [signals, asked.stream()];
        if is_over_within(left, session, streams, link_watch.as_ref())? {
            return Ok(Ended::End);
        }
    }
}

/// Sleeps until the session is over (then it returns true), a signal arrives, a link changes, or
/// `left` has passed.
fn is_over_within(
    left: Duration,
    session: &Session,
    signals: [&UnixStream; 2],
    link_watch: Option<&LinkWatch>,
) -> Result<bool, Failure> {
    let (over, links) = (session.over_fd(), link_watch.map(LinkWatch::fd));
    let mut fds: Vec<_> = signals.map(|fd| PollFd::new(fd, PollFlags::IN)).into();
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
fn failure(names: &[Name], ports: &[&str], ended: &Ended, report: &Report) -> Option<Failure> {
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
    let name = port.map_or("the engine".into(), |port| names[port].clone());
    // The port was open and running, so no error is a missing privilege.
    let remedy = match (error, port) {
        (DeviceError::Removed, Some(port)) if may_wait(ports[port]) => {
            "; with gone=wait the run goes on until it is back"
        }
        _ => "",
    };
    Some(Failure::new(Exit::Port, format!("{name}: {error}{remedy}")))
}

/// Whether `gone=wait` may be added to a port.
fn may_wait(port: &str) -> bool {
    let kind = port.split(':').next();
    let mut kinds = kinds().into_iter();
    let kind = kinds.find(|one| Some(one.name) == kind);
    let has = kind.is_some_and(|kind| kind.keys.iter().any(|key| key.name == "gone"));
    has && !port.contains(",fd=")
}

/// The JSON document of a run.
fn document(
    names: &[Name],
    in_force: &InForce,
    report: &Report,
    faults: &[Option<Faults>],
    (ended, error): (&str, Option<&str>),
    bridged: Option<&Addresses>,
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
            "changes": json::changes(&snapshot.changes, names, report.began),
            "addresses": bridged.map(Addresses::len),
        }),
    );
    let mut ports = Map::new();
    for (index, name) in names.iter().enumerate() {
        let (device, faults) = (report.devices[index].as_ref(), faults[index].as_ref());
        let port = json::port(&snapshot.ports[index], device, faults, report.began);
        ports.insert(name.exact().to_owned(), port);
    }
    document.insert("ports".into(), ports.into());
    document.insert("drops".into(), json::drops(&snapshot.drops));
    document.insert("conservation".into(), json::conservation(&snapshot.ledger));
    document
}
