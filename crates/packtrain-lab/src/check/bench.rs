//! A program in its hosts, and what a check does with it.

use std::collections::HashSet;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::cause::Losses;
use super::header::HEADER_QUESTION;
use super::packet::{Form, Packet, Sent};
use super::packets::{Ground, Step};
use super::probe::{Fault, Late, Outcome, Probe, SHORT_PATIENCE, Wrong};
use crate::error::{LabError, ToolError};
use crate::exec::{Exec, Program};
use crate::ip::IpVersion;
use crate::tool::Control;
use crate::topology::{Settings, Side, TwoHosts};
use crate::used::Threads;

/// How long the packets of the start are waited for until they are sent again.
const AGAIN: Duration = Duration::from_millis(50);

/// The pause before a packet that nothing follows.
const PAUSE: Duration = Duration::from_millis(100);

/// What is run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub exec: Exec,
    /// MTU of both interfaces.
    pub mtu: u32,
    /// Names of checks; all if empty.
    pub only: Vec<String>,
    /// Names of checks that are left out.
    pub skip: Vec<String>,
    /// Versions of IP that the program claims to pass.
    pub versions: Vec<IpVersion>,
    /// Whether identifications of IPv4 packets that are no fragments and have DF are compared: they
    /// have no meaning (RFC 6864 section 4.1).
    pub exact_id: bool,
    /// Whether the program routes: TTL and hop limit have to arrive one less.
    pub routes: bool,
    /// Whether the program is stopped (SIGSTOP) while packets are sent, so that it reads them at
    /// once.
    pub stops: bool,
    /// A folder for captures of what failed.
    pub captures: Option<PathBuf>,
    /// Seed of the payloads.
    pub seed: u64,
    /// How long a packet is waited for after the last one that arrived, until it counts as lost.
    /// Time in which the program waits for a CPU does not count.
    pub patience: Duration,
    /// Whether goodput, CPU time and round trips are measured at the end, beside those of a
    /// forwarder in C, a bridge and veth.
    pub speed: bool,
}

impl Options {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            mtu: self.mtu,
            ..Settings::default()
        }
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub fault: Option<Fault>,
    pub doubt: Option<String>,
    /// Nothing was sent.
    pub is_empty: bool,
    pub least: Vec<String>,
    /// Whether `least` failed when it was sent again; `None` if it was not.
    pub shows_again: Option<bool>,
    /// Runs in which `least` was looked for and sent again.
    pub tries: usize,
    pub outcome: Outcome,
    pub figures: String,
    /// For the row of a check that passed.
    pub note: String,
}

/// The time that a program had since `before`, which becomes now.
fn had(program: &Program, before: &mut Threads) -> Duration {
    let now = program.threads();
    std::mem::replace(before, now).had(before)
}

/// For runs in which a lost packet fails no check: all time counts.
pub(super) fn any() -> Option<Duration> {
    Some(Duration::MAX)
}

/// A program in its hosts, and what a check needs.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub options: &'a Options,
    pub control: &'a Control<'a>,
    // Dropped before the hosts, whose interfaces it holds.
    pub program: Program,
    pub hosts: TwoHosts,
    pub probe: Probe,
    pub starts: u64,
    pub memory_bytes: u64,
    /// A check failed: what its fault leaves behind must not fail the next one.
    pub is_spoiled: bool,
    /// Copies that arrived late, of packets of any check.
    late: Vec<Late>,
    /// Causes that were found.
    pub causes: HashSet<String>,
    /// Losses of starts before this one.
    losses: Losses,
}

impl<'a> Bench<'a> {
    pub(super) fn start(options: &'a Options, control: &'a Control<'a>) -> Result<Self, ToolError> {
        let (program, hosts, probe) = started(options, 1)?;
        let mut bench = Self {
            options,
            control,
            program,
            hosts,
            probe,
            starts: 1,
            memory_bytes: 0,
            is_spoiled: false,
            late: Vec::new(),
            causes: HashSet::new(),
            losses: Losses::default(),
        };
        bench.warm_up()?;
        Ok(bench)
    }

    /// Starts the program anew, in hosts of its own.
    pub(super) fn restart(&mut self) -> Result<(), ToolError> {
        self.starts += 1;
        // A program may have files or sockets that only one instance can have.
        self.program.end();
        self.take_losses();
        self.late.append(&mut self.probe.late);
        let check = self.probe.check;
        (self.program, self.hosts, self.probe) = started(self.options, self.starts)?;
        self.probe.check = check;
        self.warm_up()
    }

    /// Losses of all starts so far.
    pub(super) fn take_losses(&mut self) -> &Losses {
        for (sent, lost) in self.probe.sent.iter_mut().zip(&mut self.probe.lost) {
            let mut before = 0;
            for at in lost.drain(..) {
                self.losses.gaps.push(at - before);
                before = at;
            }
            self.losses.sent += std::mem::take(sent);
        }
        &self.losses
    }

    /// Sends a list and judges what arrives. A program that ended explains what is missing.
    pub(super) fn step(
        &mut self,
        step: &Step,
        ground: &Ground,
        patience: Duration,
    ) -> Result<Outcome, ToolError> {
        if step.is_late {
            thread::sleep(PAUSE);
        }
        if let Some(mtu) = step.mtu {
            self.set_mtu(ground.from, mtu)?;
        }
        if step.is_held {
            self.program.pause();
        }
        let resume = || {
            if step.is_held {
                self.program.resume();
            }
        };
        let at_once = step.at_once || step.is_held;
        let before = self.program.datagrams_refused()?;
        let mut threads = self.program.threads();
        let outcome = self.probe.run(&step.list, at_once, patience, resume, || {
            let ended = end(&self.program, &self.hosts).is_some() || self.control.stopped();
            (!ended).then(|| had(&self.program, &mut threads))
        });
        let mut outcome = outcome?;
        if step.mtu.is_some() {
            self.set_mtu(ground.from, self.options.mtu)?;
        }
        let refused = self.program.datagrams_refused()?.saturating_sub(before);
        if let (Some(fault), Some(hint)) = (&mut outcome.fault, &outcome.hint) {
            fault.what += hint;
        }
        if let Some(fault) = &mut outcome.fault
            && fault.wrong == Wrong::Lost
            && refused > 0
        {
            fault.what += &format!(
                "; meanwhile the buffers of the program's own UDP sockets were too small for \
                 {refused} datagrams (RcvbufErrors)"
            );
        }
        // A packet cannot be sent to a device that is gone.
        if (outcome.fault.is_some() || outcome.doubt.is_some())
            && let Some(end) = self.end()
        {
            (outcome.fault, outcome.doubt) = (Some(end), None);
        }
        Ok(outcome)
    }

    /// The fault of a program that has ended, or has closed one of its devices; `None` for another.
    pub(super) fn end(&self) -> Option<Fault> {
        end(&self.program, &self.hosts)
    }

    /// Whether a packet passes in each direction: a program may have stalled.
    pub(super) fn passes(&mut self) -> Result<bool, ToolError> {
        let Some(ip) = self.options.versions.first().copied() else {
            return Ok(true);
        };
        let patience = self.options.patience.min(SHORT_PATIENCE);
        let list = greetings(ip);
        let mut threads = self.program.threads();
        let outcome = self.probe.run(
            &list,
            false,
            patience,
            || {},
            || Some(had(&self.program, &mut threads)),
        )?;
        // One with other bytes has passed.
        let mut sides = [Side::Left, Side::Right].into_iter();
        Ok(outcome.fault.is_none_or(|fault| {
            fault.wrong == Wrong::Bytes
                && sides.all(|side| self.probe.has_arrived(side, &outcome.arrived))
        }))
    }

    /// Waits until packets pass in both directions, for as long as the program may take to open its
    /// devices: the ends of a VPN have to find each other first.
    pub(super) fn warm_up(&mut self) -> Result<(), ToolError> {
        let Some(ip) = self.options.versions.first().copied() else {
            return Ok(());
        };
        let (begin, wait) = (Instant::now(), self.options.exec.wait);
        let mut passes = [false; 2];
        let list = greetings(ip);
        loop {
            let outcome = self.probe.run(&list, false, AGAIN, || {}, any)?;
            if let Some(end) = self.end() {
                return Err(ToolError::Failed(format!(
                    "the program ended before packets passed it in both directions: {}",
                    end.what
                )));
            }
            for (passes, side) in passes.iter_mut().zip([Side::Left, Side::Right]) {
                // One that was sent before will do: a program may hold the last one back.
                *passes |= self.probe.has_arrived(side, &outcome.arrived);
            }
            let Some(fault) = outcome.fault.filter(|_| passes != [true; 2]) else {
                // What was lost before the program was ready is none of its losses.
                self.probe.lost = Default::default();
                return Ok(());
            };
            if begin.elapsed() < wait && !self.control.stopped() {
                continue;
            }
            let what = fault.what + &self.header_hint()?.unwrap_or_default();
            return Err(ToolError::Failed(format!(
                "no packet passes the program within {} s of its start; checks send from \
                 198.18.0.101 and fd00:18::101 to .102: {what}",
                wait.as_secs()
            )));
        }
    }

    /// Takes a copy that arrived late of a packet that this check has sent, or a start before it.
    pub(super) fn late_copy_of(&mut self, check: &str) -> Option<Late> {
        self.late.append(&mut self.probe.late);
        let is_one = |late: &Late| late.check == check || late.check.is_empty();
        let at = self.late.iter().position(is_one)?;
        Some(self.late.swap_remove(at))
    }

    /// Whether the check that runs need not go on: one of its packets has arrived once more.
    pub(super) fn has_late_copy(&self) -> bool {
        let mut all = self.late.iter().chain(&self.probe.late);
        all.any(|late| late.check == self.probe.check)
    }

    /// Waits for late copies at the end of all checks, for the time that a packet is waited for, or
    /// until one arrives.
    pub(super) fn listen(&mut self) -> Result<(), ToolError> {
        const ONCE: Duration = Duration::from_millis(100);
        let begin = Instant::now();
        while self.probe.late.is_empty()
            && begin.elapsed() < self.options.patience
            && !self.control.stopped()
        {
            self.probe.listen(ONCE)?;
        }
        Ok(())
    }

    /// Sends packets once more to a program that passes none, if it has a device with a virtio-net
    /// header: a clause, if the header arrives as a part of packets, or if the kernel refuses what
    /// the program writes.
    fn header_hint(&mut self) -> Result<Option<String>, ToolError> {
        const TIMES: usize = 10;
        let sides = [Side::Left, Side::Right];
        let mut has_header = false;
        for side in sides {
            let host = self.hosts.host(side);
            let link = host.netns.rtnl()?.link_by_index(host.link.index)?;
            has_header |= link.vnet_header;
        }
        if !has_header {
            return Ok(None);
        }
        for ip in self.options.versions.clone() {
            let hosts = &self.hosts;
            let before = [hosts.left.stats()?, hosts.right.stats()?];
            let list: Vec<_> = (0..TIMES).flat_map(|_| greetings(ip)).collect();
            let patience = self.options.patience;
            let outcome = self.probe.run(&list, false, patience, || {}, any)?;
            if outcome.hint.is_some() {
                return Ok(outcome.hint);
            }
            for (side, before) in sides.into_iter().zip(before) {
                // A TUN counts a write that begins with no IP version as dropped, and a header that
                // cannot be as a frame error.
                let since = self.hosts.host(side).stats()?.since(&before);
                let refused = since.rx_dropped + since.rx_errors;
                let is_empty = outcome.arrived.iter().all(|one| one.at != side);
                if is_empty && refused as usize * 10 >= TIMES * 9 {
                    return Ok(Some(format!(
                        "; the kernel refused {refused} packets of {TIMES} that the program wrote \
                         in host {}: {HEADER_QUESTION}",
                        side.of(['A', 'B'])
                    )));
                }
            }
        }
        Ok(None)
    }

    pub(super) fn set_mtu(&self, side: Side, mtu: u32) -> Result<(), LabError> {
        let host = self.hosts.host(side);
        host.netns.rtnl()?.set_mtu(host.link.index, mtu)
    }
}

fn end(program: &Program, hosts: &TwoHosts) -> Option<Fault> {
    let is_closed = |side: &Side| {
        let host = hosts.host(*side);
        let rtnl = host.netns.rtnl();
        let link = rtnl.and_then(|mut rtnl| rtnl.link_by_index(host.link.index));
        link.is_err_and(|error| error.errno() == Some(libc::ENODEV))
    };
    let what = match program.ended() {
        Some(status) => format!("the program ended, {status}"),
        None => {
            let name = [Side::Left, Side::Right].into_iter().find(is_closed)?;
            let name = name.of(["A", "B"]);
            format!("the program closed its device in host {name}, which removed it")
        }
    };
    Some(Fault::new(Wrong::Ended, what + &program.printed()))
}

/// A packet in each direction.
fn greetings(ip: IpVersion) -> [Sent; 2] {
    let packet = Packet::udp(ip, 0, 100);
    [Side::Left, Side::Right].map(|from| Sent::new(from, Form::Wire(packet.clone())))
}

/// The first line of a list that is sent to a program while it is stopped.
const HELD: &str = "sent while the program is stopped (SIGSTOP), so that it reads them at once:";

pub(super) fn started(
    options: &Options,
    number: u64,
) -> Result<(Program, TwoHosts, Probe), ToolError> {
    let (program, hosts) = Program::start(&options.exec, &options.settings())?;
    let seed = options.seed + number;
    let probe = Probe::open(&hosts, seed, options.exact_id, options.routes)?;
    Ok((program, hosts, probe))
}

/// The lines that describe a list of packets: equal neighbours are counted.
pub(super) fn lines(step: &Step) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for sent in &step.list {
        let line = sent.to_string();
        match lines.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => lines.push((line, 1)),
        }
    }
    let counted = |(line, count)| match count {
        1 => line,
        count => format!("{line} ({count} times)"),
    };
    let how = step.is_held.then_some(HELD.to_owned());
    how.into_iter()
        .chain(lines.into_iter().map(counted))
        .collect()
}
