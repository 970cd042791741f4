//! What a run prints on standard error until its end.

use crate::exit::{Exit, Failure};
use crate::table::{grouped, scaled};
use crate::{json, print};
use packtrain::driver::Link;
use packtrain::engine::{PortSnapshot, Snapshot};
use packtrain::name::Name;
use packtrain::port::vhost::VhostWatch;
use packtrain::port::wrap::CaptureStatus;
use packtrain::stats::{DropReason, DropSnapshot, Trouble};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{IsTerminal, stderr};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest wait for the reader of a pipe after a run, and the time between attempts.
const PIPE_WAIT: Duration = Duration::from_secs(2);
const PIPE_POLL: Duration = Duration::from_millis(10);

/// Said once for each port.
const NOT_POPULATED: &str = "note: the front end shares memory of which pages are not allocated: \
    those that packtrain is the first to touch count as packtrain's; have them allocated first \
    (QEMU: prealloc=on)";

/// Statistics, redrawn in place on a terminal and one line each time otherwise, and events between
/// them, each printed once.
#[derive(Debug)]
pub struct Live {
    names: Vec<Name>,
    /// Of each port whether it is an interface of the kernel.
    interfaces: Vec<bool>,
    /// Captures of the ports, until the message that one has stopped.
    captures: Vec<Option<CaptureStatus>>,
    /// Front ends of the ports, how many of their messages were refused, and whether each had its
    /// memory populated so far.
    front_ends: Vec<Option<(VhostWatch, u64, bool)>>,
    /// The first capture that stopped, and why.
    stopped: Option<String>,
    /// How often statistics are due; `None` for never.
    interval: Option<Duration>,
    terminal: bool,
    /// Statistics are JSON lines.
    json: bool,
    due: Duration,
    last: (Duration, Snapshot),
    /// Lines of the block on the terminal.
    drawn: usize,
    /// Changes of the plan that were printed.
    changes: u64,
    links: Vec<Link>,
    /// Port, queue and cause of the faults that were printed.
    troubles: BTreeSet<(usize, usize, Trouble)>,
    /// The drops of packets that were too long were printed.
    too_long: bool,
    /// The ports of which was printed that they have no memory, or that they are full.
    short: BTreeSet<(usize, &'static str)>,
}

impl Live {
    /// For a run that starts now. Statistics are printed every `interval`. Without one they are
    /// printed every second on a terminal, unless `quiet`, and never otherwise. With `json` those
    /// of an `interval` are JSON lines. Events are always printed.
    pub fn new(
        (names, interfaces): (Vec<Name>, Vec<bool>),
        captures: Vec<Option<CaptureStatus>>,
        front_ends: Vec<Option<VhostWatch>>,
        interval: Option<Duration>,
        (json, quiet): (bool, bool),
    ) -> Self {
        let json = json && interval.is_some();
        let terminal = stderr().is_terminal();
        let usual = (terminal && !quiet).then_some(Duration::from_secs(1));
        let interval = interval.or(usual);
        let ports = names.len();
        Self {
            names,
            interfaces,
            captures,
            front_ends: front_ends
                .into_iter()
                .map(|watch| Some((watch?, 0, true)))
                .collect(),
            stopped: None,
            interval,
            terminal,
            json,
            due: interval.unwrap_or_default(),
            last: Default::default(),
            drawn: 0,
            changes: 0,
            // No event is printed for a link that is up from the start.
            links: vec![Link::Up; ports],
            troubles: BTreeSet::new(),
            too_long: false,
            short: BTreeSet::new(),
        }
    }

    /// When statistics are due next, since the start; `None` for never.
    pub fn due(&self) -> Option<Duration> {
        self.interval.and(Some(self.due))
    }

    /// Prints the rates since the last call.
    pub fn statistics(&mut self, elapsed: Duration, snapshot: Snapshot) {
        if self.json {
            self.json_line("interval", elapsed, &snapshot);
        } else {
            self.rates(elapsed, &snapshot);
        }
        self.last = (elapsed, snapshot);
        let interval = self.interval.unwrap_or(Duration::MAX);
        // Intervals that passed while the machine was suspended are left out.
        let on_time = self.due.saturating_add(interval);
        self.due = match on_time > elapsed {
            true => on_time,
            false => elapsed.saturating_add(interval),
        };
    }

    /// Prints what was moved until now: `text` for people, or a JSON line.
    pub fn totals(&mut self, elapsed: Duration, snapshot: &Snapshot, text: Option<&str>) {
        match text {
            Some(text) => {
                self.clear();
                print::lines(text);
            }
            None => self.json_line("totals", elapsed, snapshot),
        }
    }

    fn json_line(&mut self, kind: &str, elapsed: Duration, snapshot: &Snapshot) {
        let start = Default::default();
        let (since, before) = if kind == "interval" {
            &self.last
        } else {
            &start
        };
        let times = (elapsed, elapsed.saturating_sub(*since));
        let times = (times.0.as_secs_f64(), times.1.as_secs_f64());
        let line = json::moved(kind, &self.names, (before, snapshot), times);
        self.clear();
        print::json_line(&Value::Object(line).to_string());
    }

    fn rates(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        let (before, last) = &self.last;
        let seconds = elapsed.saturating_sub(*before).as_secs_f64().max(1e-6);
        let ports = self.names.len();
        let ways = (0..ports).map(|port| {
            // Among more than two ports, packets from one go out anywhere: a way to each.
            let (from, to) = match ports {
                2 => (Some(port), 1 - port),
                _ => (None, port),
            };
            Way {
                from: from.map(|port| short(&self.names[port])),
                to: short(&self.names[to]),
                rates: Rates::between(last, snapshot, to, seconds),
            }
        });
        let ways: Vec<_> = ways.collect();
        let drops = &snapshot.drops;
        let text = if self.terminal {
            let columns = print::columns().unwrap_or(usize::MAX);
            cut(&block(&ways, elapsed, drops), columns)
        } else {
            line(&ways, elapsed, drops)
        };
        self.clear();
        if self.terminal {
            self.drawn = text.lines().count();
        }
        print::lines(&text);
    }

    /// Prints what has changed since the last call: offloads that a device refused, lost or gained,
    /// ports that are away or back.
    pub fn changes(&mut self, snapshot: &Snapshot) {
        let changes = &snapshot.changes;
        let new = changes.count.saturating_sub(self.changes) as usize;
        self.changes = changes.count;
        let kept = changes.last.len();
        let left_out = new.saturating_sub(kept);
        if left_out > 0 {
            self.event(&format!("{left_out} changes of the plan are not printed"));
        }
        for change in &changes.last[kept - new.min(kept)..] {
            let name = &self.names[usize::from(change.port)];
            self.event(&format!("{name}: {change}"));
        }
    }

    /// Prints the faults of devices since the last call and what was done about them, once for each
    /// queue and cause. The counters have how many there were.
    pub fn troubles(&mut self, snapshot: &Snapshot) {
        for (index, port) in snapshot.ports.iter().enumerate() {
            for (queue, log) in port.troubles.iter().enumerate() {
                for report in log.iter() {
                    if self.troubles.insert((index, queue, report.cause)) {
                        let name = &self.names[index];
                        self.event(&format!("{name}: txq{queue:02}: {report}"));
                    }
                }
            }
        }
    }

    /// Prints which ports receive nothing for lack of memory, and which have no space for what is
    /// sent to them, once for each.
    pub fn short(&mut self, snapshot: &Snapshot) {
        for (index, port) in snapshot.ports.iter().enumerate() {
            let starved = "no memory is free for packets, and it receives none until other ports \
                           send theirs (alloc_fail)";
            let full = "its queue is full, and packets for it are dropped (drop.egress_full): it \
                        takes fewer than are sent to it";
            let found = [
                (port.rx_total().alloc_fail > 0, starved),
                (port.tx_total().egress_full > 0, full),
            ];
            for (_, line) in found.into_iter().filter(|(is_so, _)| *is_so) {
                if self.short.insert((index, line)) {
                    self.event(&format!("{}: {line}\n", self.names[index]));
                }
            }
        }
    }

    /// Prints that packets are too long for their egress, once.
    pub fn too_long(&mut self, snapshot: &Snapshot) {
        if !self.too_long && snapshot.drops.get(DropReason::Mtu) > 0 {
            self.too_long = true;
            self.event(
                "packets are longer than the MTU of their egress port, and dropped (drop.mtu): \
                 lower the MTU where they come from, or raise that of the egress interface or its \
                 mtu=; notes of `packtrain plan` say where packets arrive longer than the MTU",
            );
        }
    }

    /// Prints which captures have stopped since the last call. Forwarding continues.
    pub fn captures(&mut self) {
        for index in 0..self.names.len() {
            let capture = &mut self.captures[index];
            let Some(note) = capture.as_ref().and_then(CaptureStatus::note) else {
                continue;
            };
            let records = capture.take().map_or(0, |capture| capture.records());
            let name = &self.names[index];
            let line = format!(
                "{name}: {note}; the file has at most {records} records; make room, or choose \
                 another file"
            );
            self.event(&line);
            self.stopped.get_or_insert(line);
        }
    }

    /// Prints what ports have refused of their front ends since the last call.
    pub fn front_ends(&mut self) {
        for index in 0..self.front_ends.len() {
            let Some((watch, last, populated)) = &mut self.front_ends[index] else {
                continue;
            };
            let status = watch.status();
            let is_new = std::mem::replace(last, status.refused) != status.refused;
            // Once for each port.
            let is_note =
                std::mem::replace(populated, *populated && status.populated) && !status.populated;
            let problem = status.problem.as_deref().filter(|_| is_new);
            for line in is_note.then_some(NOT_POPULATED).into_iter().chain(problem) {
                let line = format!("{}: {line}\n", self.names[index]);
                self.event(&line);
            }
        }
    }

    /// The failure of a run of which a capture has stopped.
    pub fn stopped(&self) -> Option<Failure> {
        let line = self.stopped.as_ref()?;
        Some(Failure::new(Exit::Port, line.clone()))
    }

    /// Prints which links have changed since the last call.
    pub fn links(&mut self, links: &[Link]) {
        for (index, &link) in links.iter().enumerate() {
            if std::mem::replace(&mut self.links[index], link) == link {
                continue;
            }
            let name = &self.names[index];
            let lines = match link {
                Link::Up => format!("{name}: link is up"),
                Link::Down => {
                    let remedy = match self.interfaces[index] {
                        true => format!(" (ip link set {name} up)"),
                        false => String::new(),
                    };
                    format!(
                        "{name}: link is down: packets for it are dropped until it is up{remedy}"
                    )
                }
                Link::Removed => String::new(),
            };
            self.event(&lines);
        }
    }

    /// The run is over: the block stays on the terminal. Waits for the readers of captures that go
    /// to pipes.
    pub fn finish(&mut self, snapshot: &Snapshot) {
        self.drawn = 0;
        self.changes(snapshot);
        self.troubles(snapshot);
        self.too_long(snapshot);
        self.short(snapshot);
        let end = Instant::now() + PIPE_WAIT;
        for capture in self.captures.iter().flatten() {
            while !capture.flush() && Instant::now() < end {
                sleep(PIPE_POLL);
            }
        }
        self.captures();
        for index in 0..self.names.len() {
            let missed = self.captures[index]
                .as_ref()
                .map_or(0, CaptureStatus::missed);
            if missed > 0 {
                let name = &self.names[index];
                let missed = grouped(missed);
                self.event(&format!(
                    "{name}: {missed} records are not in the capture: the reader of its pipe was \
                     too slow; write to a file"
                ));
            }
        }
    }

    fn event(&mut self, text: &str) {
        if !text.is_empty() {
            self.clear();
            print::message(text);
        }
    }

    /// Removes the block from the terminal.
    fn clear(&mut self) {
        if self.drawn > 0 {
            // Cursor up to the block's first line, then erase to the end of the screen.
            print::remove(self.drawn);
            self.drawn = 0;
        }
    }
}

/// The rates of one direction, in each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rates {
    packets: f64,
    wire_packets: f64,
    bits: f64,
    drops: f64,
}

impl Rates {
    /// What port `to` transmitted between two snapshots that are `seconds` apart.
    fn between(before: &Snapshot, after: &Snapshot, to: usize, seconds: f64) -> Self {
        // At the first call `before` has no ports.
        let old = before.ports.get(to).map(PortSnapshot::tx_total);
        let (old, new) = (old.unwrap_or_default(), after.ports[to].tx_total());
        let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        Self {
            packets: rate(old.packets, new.packets),
            wire_packets: rate(old.wire_packets, new.wire_packets),
            bits: rate(old.bytes, new.bytes) * 8.0,
            drops: rate(before.drops.total(), after.drops.total()),
        }
    }
}

/// What goes to a port: from the other one of two, or from any of more.
struct Way {
    from: Option<String>,
    to: String,
    rates: Rates,
}

impl Way {
    fn title(&self) -> String {
        match &self.from {
            Some(from) => format!("{from} -> {}", self.to),
            None => format!("-> {}", self.to),
        }
    }
}

/// Cuts each line to `columns`. A line that the terminal wraps would leave a part of the block on
/// it. A character counts as one column, which is right for nearly all names.
fn cut(text: &str, columns: usize) -> String {
    let mut cut = String::with_capacity(text.len());
    for line in text.lines() {
        cut.extend(line.chars().take(columns));
        cut.push('\n');
    }
    cut
}

/// A name, cut to the length of an interface's.
fn short(name: &Name) -> String {
    name.to_string().chars().take(15).collect()
}

fn block(ways: &[Way], elapsed: Duration, drops: &DropSnapshot) -> String {
    let titles: Vec<_> = ways.iter().map(Way::title).collect();
    let width = titles.iter().map(|title| title.chars().count()).max();
    let width = width.unwrap_or(0);
    let lines = titles.iter().zip(ways);
    let lines = lines.map(|(title, way)| format!("{title:width$} {}\n", rates(&way.rates)));
    let lost = ways.first().map_or(0.0, |way| way.rates.drops);
    let (lost, seconds) = (scaled(lost), elapsed.as_secs_f64());
    let (drops, why) = (drops.total(), reasons(drops));
    lines.collect::<String>() + &format!("{seconds:.0} s, dropped {drops} ({lost}/s){why}\n")
}

fn rates(rates: &Rates) -> String {
    format!(
        "{:>7}pkt/s {:>7}wire/s {:>7.3} Gbit/s",
        scaled(rates.packets),
        scaled(rates.wire_packets),
        rates.bits / 1e9
    )
}

/// The reasons of the drops, behind their sum; nothing without any.
fn reasons(drops: &DropSnapshot) -> String {
    let reasons = drops.nonzero();
    let reasons = reasons.map(|(reason, count)| format!("{} {count}", reason.name()));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    match &*reasons {
        "" => String::new(),
        reasons => format!(": {reasons}"),
    }
}

fn line(ways: &[Way], elapsed: Duration, drops: &DropSnapshot) -> String {
    let ways = ways.iter().map(|way| {
        let of = way.rates;
        let [packets, wire] = [of.packets, of.wire_packets].map(scaled);
        let (title, gbps) = (way.title(), of.bits / 1e9);
        format!("; {title} {packets}packets/s {wire}wire packets/s {gbps:.3} Gbit/s")
    });
    let (seconds, ways) = (elapsed.as_secs_f64(), ways.collect::<String>());
    let (drops, why) = (drops.total(), reasons(drops));
    format!("{seconds:.1} s{ways}; dropped {drops}{why}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_the_block_is_wider_than_the_terminal() {
        let ways = [("sim0", "nüll0"), ("nüll0", "sim0")].map(|(from, to)| Way {
            from: Some(from.to_owned()),
            to: to.to_owned(),
            rates: Rates::default(),
        });
        let whole = block(&ways, Duration::from_secs(7), &DropSnapshot::default());
        assert_eq!(cut(&whole, 200), whole);
        for columns in [1, 10, 40] {
            let cut = cut(&whole, columns);
            assert_eq!(cut.lines().count(), whole.lines().count());
            for (line, whole) in cut.lines().zip(whole.lines()) {
                let left: String = whole.chars().take(columns).collect();
                assert_eq!(line, left);
            }
        }
    }
}
