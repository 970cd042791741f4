//! Sends the packets of a check into one host, collects what arrives in the other, and compares.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use packtrain_offload::checksum::sum;
use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::{FLAG_DATA_VALID, FLAG_NEEDS_CSUM, HeaderLen};

use super::cause::Difference;
use super::header::{header_hint, large_error};
use super::packet::{Bytes, DF, Form, Link, Rule, Sent};
use crate::error::LabError;
use crate::ip::IpVersion;
use crate::sys;
use crate::topology::{Host, Side, TwoHosts};

/// Packets and bytes that may be under way, unless a check sends a burst: less than the queue of
/// an interface and the receive buffer of an unprivileged socket hold.
const PACKETS_UNDER_WAY: usize = 64;
const BYTES_UNDER_WAY: usize = 128 * 1024;
/// The receive buffer that is asked for.
const RECEIVE_BUFFER: usize = 64 << 20;

/// How long the queue of an interface may be full.
const FULL: Duration = Duration::from_secs(3);
/// Bytes of the shortest Ethernet frame, without its FCS.
const FRAME_MIN: usize = 60;

/// How long packets are waited for, at most, while the input of a failure is made smaller.
pub(super) const SHORT_PATIENCE: Duration = Duration::from_millis(300);

/// How long a packet that arrives a second time is waited for once all have arrived.
const AFTER: Duration = Duration::from_millis(1);

/// The same if a packet of the list may arrive or not.
const AFTER_OPTIONAL: Duration = Duration::from_millis(20);

/// What is wrong with what a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A packet arrived with other bytes, twice, or with a checksum that nothing verified.
    Bytes,
    /// Packets of one flow arrived in another order.
    Reordered,
    /// A packet did not arrive, and nothing said so.
    Lost,
    /// It passed too few bytes or packets a second.
    Slow,
    /// The program ended.
    Ended,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "wrong bytes",
            Self::Reordered => "reordered",
            Self::Lost => "lost in silence",
            Self::Slow => "slow",
            Self::Ended => "ended",
        })
    }
}

/// The interval at which the program's threads are read, while packets are waited for.
const LOOK: Duration = Duration::from_millis(100);

/// A failure: what, and a sentence that says which packet and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub wrong: Wrong,
    pub what: String,
    /// Equal in failures that probably have the same cause; empty if unknown.
    pub cause: String,
}

impl Fault {
    /// A failure of unknown cause.
    pub(super) fn new(wrong: Wrong, what: impl Into<String>) -> Self {
        Self {
            wrong,
            what: what.into(),
            cause: String::new(),
        }
    }

    /// The same, with its cause.
    fn of(self, cause: impl Into<String>) -> Self {
        let cause = cause.into();
        Self { cause, ..self }
    }
}

/// A packet that arrived in a host, as it is on the wire.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub at: Side,
    pub bytes: Vec<u8>,
    /// The kernel was told not to verify its checksum.
    is_trusted: bool,
    /// What is wrong with the large packet that it was a segment of.
    large: Option<&'static str>,
    /// When.
    pub after: Duration,
}

/// What happened to a list of packets.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub fault: Option<Fault>,
    /// Why the harness cannot judge it.
    pub doubt: Option<String>,
    /// Packets that went, with the host that sent them.
    pub went: Vec<(Side, Vec<u8>)>,
    pub arrived: Vec<Arrival>,
    /// A clause that says why packets are missing, with evidence.
    pub hint: Option<String>,
    /// How many of the packets did not arrive.
    pub lost: usize,
}

/// One host's interface.
#[derive(Debug)]
struct End {
    side: Side,
    socket: File,
}

/// The sockets on both hosts' interfaces.
#[derive(Debug)]
pub(super) struct Probe {
    ends: [End; 2],
    pub link: Link,
    /// Packets that each host has sent, and its lost ones by their numbers.
    pub sent: [u64; 2],
    pub lost: [Vec<u64>; 2],
    /// Numbers the streams of payload, so that no two packets have the same bytes.
    stream: u64,
    exact_id: bool,
    routes: bool,
    /// The check that runs.
    pub check: &'static str,
    /// Packets of earlier runs, by the host that they arrive in.
    earlier: HashMap<(Side, Vec<u8>), Earlier>,
    /// The first packet of each check that has arrived once more since its run.
    pub late: Vec<Late>,
}

/// A packet of an earlier run.
#[derive(Debug)]
struct Earlier {
    check: &'static str,
    sent: Arc<Sent>,
    /// Which packet of a large one.
    segment: usize,
    /// How many copies of it may still arrive.
    owed: usize,
    /// When the latest one arrived, or its run ended.
    latest: Instant,
}

/// A packet that arrived once more than it was sent, after its run.
#[derive(Debug)]
pub(super) struct Late {
    /// The check that sent it; empty before the first one.
    pub check: &'static str,
    pub fault: Fault,
    /// The packet as it was sent.
    pub least: String,
    /// The packet, and its last copy.
    pub outcome: Outcome,
}

impl Probe {
    /// Without `exact_id` identifications that have no meaning are not compared. With `routes`
    /// packets have to arrive with a TTL or hop limit that is one less.
    pub(super) fn open(
        hosts: &TwoHosts,
        seed: u64,
        exact_id: bool,
        routes: bool,
    ) -> Result<Self, LabError> {
        let link = match hosts.left.link.mac {
            Some(_) => Link::Tap,
            None => Link::Tun,
        };
        Ok(Self {
            ends: [end(&hosts.left)?, end(&hosts.right)?],
            link,
            sent: [0; 2],
            lost: Default::default(),
            stream: seed << 32,
            exact_id,
            routes,
            check: "",
            earlier: HashMap::new(),
            late: Vec::new(),
        })
    }

    fn compare(&self) -> Compare {
        Compare {
            link: self.link,
            exact_id: self.exact_id,
        }
    }

    /// Sends a list of packets and judges what arrives. With `at_once` nothing is waited for while
    /// they are sent. `sent` is called when all are. `had` returns the time that the program had
    /// since the last call, of which `patience` is, or `None` if nothing is to be waited for.
    pub(super) fn run(
        &mut self,
        list: &[Sent],
        at_once: bool,
        patience: Duration,
        sent: impl FnOnce(),
        mut had: impl FnMut() -> Option<Duration>,
    ) -> Result<Outcome, LabError> {
        let mut built = Vec::with_capacity(list.len());
        for sent in list {
            self.stream += 1;
            let mut bytes = sent.build(self.link, self.stream);
            if self.routes {
                bytes.wire = routed(sent).build(self.link, self.stream).wire;
            }
            built.push(bytes);
        }
        let mut outcome = Outcome::default();
        let mut buffer = vec![0; WRITE_BYTES_MAX];
        let begin = Instant::now();
        self.listen(Duration::ZERO)?;
        for end in &self.ends {
            drops(end)?;
        }
        let wanted: usize = list
            .iter()
            .filter(|one| one.rule == Rule::Arrives)
            .map(Sent::packets)
            .sum();
        let is_optional = list.iter().any(|one| one.rule != Rule::Arrives);
        let (mut packets, mut bytes) = (0, 0);
        for (one, Bytes { handed, wire }) in list.iter().zip(&built) {
            let room = |packets: usize, bytes: usize| {
                at_once || (packets <= PACKETS_UNDER_WAY && bytes <= BYTES_UNDER_WAY)
            };
            if !room(packets + wire.len(), bytes + handed.len()) && packets > 0 {
                self.settle(&mut buffer, begin, &mut outcome.arrived, packets)?;
                (packets, bytes) = (0, 0);
            }
            packets += wire.len();
            bytes += handed.len();
            outcome
                .went
                .extend(wire.iter().map(|bytes| (one.from, bytes.clone())));
            match self.send(one.from, handed) {
                Ok(true) => {}
                // What was not sent counts as lost: the program takes nothing.
                Ok(false) => break,
                Err(error) => {
                    outcome.doubt = Some(format!("the kernel refused to send \"{one}\": {error}"));
                    break;
                }
            }
        }
        sent();
        if outcome.doubt.is_some() {
            return Ok(outcome);
        }
        let mut last = Instant::now();
        let (mut seen, mut quiet, mut is_first) = (last, Duration::ZERO, true);
        let (mut matched, mut changed) = (0, 0);
        loop {
            let before = outcome.arrived.len();
            self.collect(&mut buffer, begin, &mut outcome.arrived)?;
            if outcome.arrived.len() > before {
                last = Instant::now();
                (seen, quiet, is_first) = (last, Duration::ZERO, true);
                matched = count(self.compare(), &built, list, &outcome.arrived);
                changed = match matched >= wanted {
                    true => 0,
                    false => self.changed(&built, list, &outcome.arrived),
                };
            }
            let rest = match matched >= wanted {
                true if is_optional => AFTER_OPTIONAL,
                true => AFTER,
                // Each has arrived, some of them with other bytes.
                false if matched + changed >= wanted => patience.min(SHORT_PATIENCE),
                false => patience,
            };
            // Packets that arrived before the last look are collected by now.
            if quiet > rest || (matched >= wanted && last.elapsed() > rest) {
                break;
            }
            if seen.elapsed() > LOOK.min(rest) {
                let Some(had) = had() else {
                    break;
                };
                // The first look after an arrival includes time before it.
                if !std::mem::take(&mut is_first) {
                    quiet += had.min(seen.elapsed());
                }
                seen = Instant::now();
            }
            self.wait(AFTER)?;
        }
        for end in &self.ends {
            let missed = drops(end)?;
            if missed > 0 {
                outcome.doubt = Some(format!(
                    "the socket in host {} had no room for {missed} packets",
                    end.side.of(['A', 'B'])
                ));
            }
        }
        let lost = self.lost.each_ref().map(Vec::len);
        let fault = self.judge(list, &built, &outcome.arrived, begin);
        let since = self
            .lost
            .iter()
            .zip(lost)
            .map(|(now, before)| now.len() - before);
        outcome.lost = since.sum();
        // What the harness has lost is no fault of the program.
        let is_lost = |fault: &Fault| fault.wrong == Wrong::Lost;
        outcome.fault = fault.filter(|fault| outcome.doubt.is_none() || !is_lost(fault));
        if outcome.fault.as_ref().is_some_and(is_lost) {
            let expected = list.iter().zip(&built).flat_map(|(sent, bytes)| {
                let wires = bytes.wire.iter();
                wires.map(|wire| (sent.from.other(), untagged(wire, sent)))
            });
            let arrived = outcome.arrived.iter().map(|one| (one.at, &*one.bytes));
            outcome.hint = header_hint(expected, &arrived.collect::<Vec<_>>());
        }
        Ok(outcome)
    }

    /// Takes packets of earlier runs that arrive within a time, to the first that has arrived once
    /// more than it was sent.
    pub(super) fn listen(&mut self, time: Duration) -> Result<(), LabError> {
        let (begin, mut buffer) = (Instant::now(), vec![0; WRITE_BYTES_MAX]);
        loop {
            let mut arrived = Vec::new();
            self.collect(&mut buffer, begin, &mut arrived)?;
            for arrival in &arrived {
                self.take_earlier(arrival, begin);
            }
            let rest = time.saturating_sub(begin.elapsed());
            if rest.is_zero() || !self.late.is_empty() {
                return Ok(());
            }
            self.wait(rest)?;
        }
    }

    /// Takes a packet of an earlier run; false if it is none. One that arrives once more than it
    /// was sent is a fault of the check that sent it.
    fn take_earlier(&mut self, arrival: &Arrival, begin: Instant) -> bool {
        let key = (arrival.at, self.compare().arrived(&arrival.bytes));
        let Some(earlier) = self.earlier.get_mut(&key) else {
            return false;
        };
        let when = begin + arrival.after;
        let since = when.saturating_duration_since(earlier.latest);
        earlier.latest = when;
        if earlier.owed > 0 {
            earlier.owed -= 1;
            return true;
        }
        let check = earlier.check;
        if self.late.iter().all(|late| late.check != check) {
            let (sent, segment) = (&*earlier.sent, earlier.segment);
            let what = format!(
                "a packet arrived once more, {} ms after its last copy: {}",
                since.as_millis(),
                Numbered { sent, segment }
            );
            self.late.push(Late {
                check,
                fault: Fault::new(Wrong::Bytes, what).of("packets arrive once more, later"),
                least: sent.to_string(),
                outcome: Outcome {
                    went: vec![(sent.from, arrival.bytes.clone())],
                    arrived: vec![arrival.clone()],
                    ..Outcome::default()
                },
            });
        }
        true
    }

    /// How many packets of checks have arrived that neither this list nor an earlier one has sent.
    fn changed(&self, built: &[Bytes], list: &[Sent], arrived: &[Arrival]) -> usize {
        let all = list.iter().zip(built);
        let wires = all.flat_map(|(sent, bytes)| bytes.wire.iter().map(move |wire| (sent, wire)));
        let compare = self.compare();
        let known: HashSet<_> = wires.map(|(sent, wire)| compare.sent(wire, sent)).collect();
        let is_one = |one: &&Arrival| {
            let bytes = compare.arrived(&one.bytes);
            is_ours(self.link, &one.bytes)
                && !is_error(self.link, &one.bytes)
                && !known.contains(&bytes)
                && !self.earlier.contains_key(&(one.at, bytes))
        };
        arrived.iter().filter(is_one).count()
    }

    /// Whether a packet of a check is among those that arrived in a host.
    pub(super) fn has_arrived(&self, at: Side, arrived: &[Arrival]) -> bool {
        let is_one = |one: &&Arrival| one.at == at && is_ours(self.link, &one.bytes);
        arrived.iter().any(|one| is_one(&one))
    }

    /// Waits until as many packets have arrived as were sent, or for a moment in which none does.
    fn settle(
        &self,
        buffer: &mut [u8],
        begin: Instant,
        arrived: &mut Vec<Arrival>,
        packets: usize,
    ) -> Result<(), LabError> {
        let (goal, mut last) = (arrived.len() + packets, Instant::now());
        while arrived.len() < goal && last.elapsed() < Duration::from_millis(50) {
            let before = arrived.len();
            self.collect(buffer, begin, arrived)?;
            if arrived.len() > before {
                last = Instant::now();
            } else {
                self.wait(Duration::from_millis(1))?;
            }
        }
        Ok(())
    }

    /// False if the interface's queue stays full.
    fn send(&self, from: Side, handed: &[u8]) -> std::io::Result<bool> {
        let end = from.of(self.ends.each_ref());
        let begin = Instant::now();
        loop {
            match (&end.socket).write(handed) {
                Ok(_) => return Ok(true),
                // The interface's queue, or the socket's buffer, is full.
                Err(error) if is_full(&error) => {
                    if begin.elapsed() > FULL {
                        return Ok(false);
                    }
                    thread::sleep(Duration::from_micros(200));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, time: Duration) -> Result<(), LabError> {
        let sockets = self.ends.each_ref().map(|end| end.socket.as_fd());
        crate::tap::wait_readable(&sockets, time).map(drop)
    }

    /// Takes what has arrived.
    fn collect(
        &self,
        buffer: &mut [u8],
        begin: Instant,
        arrived: &mut Vec<Arrival>,
    ) -> Result<(), LabError> {
        let offload = match self.link {
            Link::Tun => TunOffload::tun(),
            Link::Tap => TunOffload::tap(),
        };
        for End { side, socket } in &self.ends {
            let mut socket = socket;
            loop {
                let bytes = match socket.read(buffer) {
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // The interface is down.
                    Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => continue,
                    Err(error) => return Err(LabError::from_io("read a packet socket")(error)),
                };
                let large = large_error(self.link, &buffer[..bytes]);
                let mut add = |bytes: &[u8], is_trusted| {
                    arrived.push(Arrival {
                        at: *side,
                        bytes: bytes.to_vec(),
                        is_trusted,
                        large,
                        after: begin.elapsed(),
                    });
                };
                let is_trusted = buffer[0] & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0;
                match offload.packets(&mut buffer[..bytes]) {
                    Ok(mut packets) => {
                        while let Some(packet) = packets.next_packet() {
                            add(packet, is_trusted);
                        }
                    }
                    // The kernel has accepted it.
                    Err(_) => add(&buffer[10.min(bytes)..bytes], is_trusted),
                }
            }
        }
        Ok(())
    }

    fn judge(
        &mut self,
        list: &[Sent],
        built: &[Bytes],
        arrived: &[Arrival],
        begin: Instant,
    ) -> Option<Fault> {
        let mut expected = Vec::new();
        for (sent, bytes) in list.iter().zip(built) {
            for (segment, wire) in bytes.wire.iter().enumerate() {
                expected.push(Expected {
                    sent,
                    segment,
                    wire,
                    handed: &bytes.handed[HeaderLen::Legacy.bytes()..],
                    arrived: None,
                });
            }
        }
        // The places of packets with the same bytes that have not arrived, and one of them all.
        let mut by_bytes: HashMap<(Side, Vec<u8>), (Vec<usize>, usize)> = HashMap::new();
        for (index, one) in expected.iter().enumerate().rev() {
            let wire = self.compare().sent(one.wire, one.sent);
            by_bytes
                .entry((one.sent.from.other(), wire))
                .or_insert((Vec::new(), index))
                .0
                .push(index);
        }
        let mut faults = Vec::new();
        let mut last: HashMap<(Side, IpVersion, u8, u16), usize> = HashMap::new();
        let mut strange = Vec::new();
        for arrival in arrived {
            let Some((places, one)) =
                by_bytes.get_mut(&(arrival.at, self.compare().arrived(&arrival.bytes)))
            else {
                strange.push(arrival);
                continue;
            };
            if let Some(what) = arrival.large {
                let cause = format!("a large packet was handed to the kernel, and {what}");
                let first = short(&arrival.bytes, self.link);
                let what = format!("{cause}: its first bytes when cut: {first}");
                faults.push(Fault::new(Wrong::Bytes, what).of(cause));
            }
            let Some(index) = places.pop() else {
                let what = format!("a packet arrived twice: {}", expected[*one]);
                faults.push(Fault::new(Wrong::Bytes, what).of("packets arrive twice"));
                continue;
            };
            let one = &mut expected[index];
            one.arrived = Some(arrival.after);
            if one.sent.rule == Rule::NotBlessed && arrival.is_trusted {
                let what = format!(
                    "a packet with a wrong checksum was handed to the kernel as one that needs no \
                     verification: {}",
                    one.sent
                );
                faults.push(Fault::new(Wrong::Bytes, what));
            }
            if let Some(packet) = one.sent.packet() {
                let (ip, protocol, flow) = packet.flow();
                let latest = last
                    .entry((arrival.at, ip, protocol, flow))
                    .or_insert(index);
                if *latest > index {
                    let (this, other) = (index + 1, *latest + 1);
                    let what = format!(
                        "packet {this} arrived after packet {other} of the same flow: {}",
                        one.sent
                    );
                    let cause = "packets of a flow arrive in another order";
                    faults.push(Fault::new(Wrong::Reordered, what).of(cause));
                }
                *latest = index.max(*latest);
            }
        }
        for arrival in strange {
            if !self.take_earlier(arrival, begin) {
                faults.extend(self.strange(arrival, &expected));
            }
        }
        let mut lost = Vec::new();
        for one in &expected {
            let side = one.sent.from.of([0, 1]);
            self.sent[side] += 1;
            if one.arrived.is_none() && one.sent.rule == Rule::Arrives {
                self.lost[side].push(self.sent[side]);
                lost.push(one);
            }
        }
        if let Some(first) = lost.first() {
            let others = match lost.len() {
                1 => String::new(),
                count => format!("; {count} in all"),
            };
            let what = format!("did not arrive: {first}{others}");
            faults.push(Fault::new(Wrong::Lost, what));
        }
        self.remember(list, &expected, begin);
        // The first kind explains the others best: what arrived with wrong bytes is missing too.
        let order = [Wrong::Bytes, Wrong::Reordered, Wrong::Lost];
        let find = |wrong| faults.iter().find(|fault| fault.wrong == wrong).cloned();
        order.into_iter().find_map(find)
    }

    /// Remembers the packets of a run, for copies that arrive later.
    fn remember(&mut self, list: &[Sent], expected: &[Expected<'_>], begin: Instant) {
        let (compare, end) = (self.compare(), Instant::now());
        let mut expected = expected.iter();
        for sent in list {
            let shared = Arc::new(sent.clone());
            for one in expected.by_ref().take(sent.packets()) {
                let key = (sent.from.other(), compare.sent(one.wire, sent));
                let owed = self.earlier.get(&key).map_or(0, |earlier| earlier.owed);
                let earlier = Earlier {
                    check: self.check,
                    sent: Arc::clone(&shared),
                    segment: one.segment,
                    owed: owed + usize::from(one.arrived.is_none()),
                    latest: one.arrived.map_or(end, |after| begin + after),
                };
                self.earlier.insert(key, earlier);
            }
        }
    }

    /// A packet that nothing sent like this: one of a host's own, or one that was changed.
    fn strange(&self, arrival: &Arrival, expected: &[Expected<'_>]) -> Option<Fault> {
        let arrived = self.compare().arrived(&arrival.bytes);
        if !is_ours(self.link, &arrival.bytes) || is_error(self.link, &arrival.bytes) {
            return None;
        }
        let differs = |one: &Expected<'_>| {
            let wire = self.compare().sent(one.wire, one.sent);
            let common = wire.iter().zip(&arrived).filter(|(a, b)| a != b).count();
            common + wire.len().abs_diff(arrived.len())
        };
        let of_side = |one: &&Expected<'_>| one.arrived.is_none() && one.sent.from != arrival.at;
        let mut missing = expected.iter().filter(of_side);
        let is_whole =
            |one: &&Expected<'_>| one.sent.packets() > 1 && one.handed.len() == arrival.bytes.len();
        let uncut = missing.clone().find(is_whole);
        let nearest = uncut.or_else(|| missing.by_ref().min_by_key(|one| differs(one)));
        let Some(nearest) = nearest else {
            let bytes = short(&arrival.bytes, self.link);
            let what = format!("arrived, and was not sent: {bytes}");
            return Some(Fault::new(Wrong::Bytes, what));
        };
        let wire = untagged(nearest.wire, nearest.sent);
        let (sent, found) = (wire.len(), arrival.bytes.len());
        let difference = Difference {
            link: self.link,
            routes: self.routes,
            wire: &wire,
            handed: nearest.handed,
            found: &arrival.bytes,
            is_uncut: uncut.is_some(),
        };
        let (difference, cause) = difference.words();
        let lengths = if sent == found {
            String::new()
        } else {
            format!("; expected {sent} B, arrived {found} B")
        };
        let what = format!("{difference}{lengths}: {nearest}");
        Some(Fault::new(Wrong::Bytes, what).of(cause))
    }
}

/// What a host would have to send for the packets that a router has to pass on.
fn routed(sent: &Sent) -> Sent {
    let mut sent = sent.clone();
    match &mut sent.form {
        Form::Wire(packet)
        | Form::Partial(packet)
        | Form::Summed { packet, .. }
        | Form::Large { packet, .. } => packet.ttl -= 1,
        Form::Garbage(_) => {}
    }
    sent
}

struct Expected<'a> {
    sent: &'a Sent,
    /// Which packet of a large one.
    segment: usize,
    wire: &'a [u8],
    /// The whole packet as it was handed to the device.
    handed: &'a [u8],
    /// When, counted from the begin of the run.
    arrived: Option<Duration>,
}

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, segment) = (self.sent, self.segment);
        Numbered { sent, segment }.fmt(f)
    }
}

/// A packet, with its number if it is one of a large one.
struct Numbered<'a> {
    sent: &'a Sent,
    segment: usize,
}

impl fmt::Display for Numbered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sent.packets() > 1 {
            write!(f, "segment {} of ", self.segment + 1)?;
        }
        self.sent.fmt(f)
    }
}

/// A sent packet as a packet socket sees it where it arrives: the kernel has removed a VLAN tag.
fn untagged(wire: &[u8], sent: &Sent) -> Vec<u8> {
    match sent.packet().and_then(|packet| packet.tag) {
        Some(_) => [&wire[..12], &wire[16..]].concat(),
        None => wire.to_vec(),
    }
}

/// How bytes are compared.
#[derive(Clone, Copy, Debug)]
struct Compare {
    link: Link,
    exact_id: bool,
}

impl Compare {
    /// What of a sent packet is compared.
    fn sent(self, wire: &[u8], sent: &Sent) -> Vec<u8> {
        self.arrived(&untagged(wire, sent))
    }

    /// The same of one that arrived. The identification of an IPv4 packet that is no fragment and
    /// may not become one has no meaning (RFC 6864 section 4.1): it is left out, with a header
    /// checksum that is right.
    fn arrived(self, packet: &[u8]) -> Vec<u8> {
        let mut packet = packet.to_vec();
        // A frame that was padded on its way is the same.
        if self.link == Link::Tap && packet.len() < FRAME_MIN {
            packet.resize(FRAME_MIN, 0);
        }
        let is_ipv4 = self.link == Link::Tun || packet.get(12..14) == Some(&[8, 0]);
        let ip = packet.get_mut(self.link.header()..);
        let Some(ip) = ip.filter(|ip| ip.len() >= 20 && is_ipv4 && !self.exact_id) else {
            return packet;
        };
        let header = ip.get(..usize::from(ip[0] & 15) * 4);
        let is_right = ip[0] >> 4 == 4 && header.is_some_and(|header| sum(header).is_valid());
        if is_right && ip[6..8] == DF.to_be_bytes() {
            ip[4..6].fill(0);
            ip[10..12].fill(0);
        }
        packet
    }
}

/// How many packets that have to arrive have arrived, at most.
fn count(compare: Compare, built: &[Bytes], list: &[Sent], arrived: &[Arrival]) -> usize {
    let mut there: HashMap<Vec<u8>, usize> = HashMap::new();
    for arrival in arrived {
        *there.entry(compare.arrived(&arrival.bytes)).or_default() += 1;
    }
    let mut count = 0;
    for (sent, bytes) in list.iter().zip(built) {
        if sent.rule != Rule::Arrives {
            continue;
        }
        for wire in &bytes.wire {
            if let Some(left) = there
                .get_mut(&compare.sent(wire, sent))
                .filter(|left| **left > 0)
            {
                *left -= 1;
                count += 1;
            }
        }
    }
    count
}

/// Whether a packet is from an address that only checks send from.
fn is_ours(link: Link, bytes: &[u8]) -> bool {
    let Some(ip) = bytes.get(link.header()..) else {
        return false;
    };
    match ip.first().map(|first| first >> 4) {
        Some(4) => {
            ip.get(12..15) == Some(&[198, 18, 0]) && ip.get(15).is_some_and(|last| *last > 100)
        }
        Some(6) => ip.get(8..12) == Some(&[0xfd, 0, 0, 0x18]) && ip.get(22) == Some(&1),
        _ => false,
    }
}

/// Whether a packet is an ICMP error, such as "packet too big": a program may send it in the name
/// of the destination.
fn is_error(link: Link, bytes: &[u8]) -> bool {
    let ip = bytes.get(link.header()..).unwrap_or_default();
    match ip.first().map(|first| first >> 4) {
        Some(4) => {
            let kind = ip.get(usize::from(ip[0] & 15) * 4);
            ip.get(9) == Some(&1) && kind.is_some_and(|kind| [3, 11, 12].contains(kind))
        }
        // RFC 4443 section 2.1: the types of errors are below 128.
        Some(6) => ip.get(6) == Some(&58) && ip.get(40).is_some_and(|kind| *kind < 128),
        _ => false,
    }
}

fn short(bytes: &[u8], link: Link) -> String {
    let shown: Vec<_> = bytes
        .iter()
        .take(link.header() + 48)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let more = if bytes.len() > shown.len() { "…" } else { "" };
    format!("{} B {}{more}", bytes.len(), shown.concat())
}

fn end(host: &Host) -> Result<End, LabError> {
    let open = || sys::vnet_socket(host.link.index);
    let socket = host
        .netns
        .run(open)?
        .map_err(LabError::from_io("open a packet socket"))?;
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let set = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
        set.map_err(LabError::from_errno("SO_RCVBUF"))?;
    }
    Ok(End {
        side: host.side,
        socket: socket.into(),
    })
}

fn drops(end: &End) -> Result<u64, LabError> {
    let count = sys::packet_socket_drops(end.socket.as_fd());
    count.map_err(LabError::from_io("PACKET_STATISTICS"))
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}
