//! Builds the world of a scene, runs it, and judges it.

mod judge;

use super::captured::Captured;
use super::caught::caught;
use super::memory::Memory;
use super::scene::{Event, Fault, Link, Neighbour, Scene, Shape, receiver, sender};
use super::talker::{Shared, Stage, Talker, lock};
use super::traffic::{Allowed, Failure, Flow, Lie, Truth, Wrong};
use crate::rig::{Rig, ms};
use crate::{Costs, Trace};
use packtrain::bridge::{AGING, Addresses, Bridge};
use packtrain::driver::{Coalesce, DeviceCounters, Fit, Port, PortConfig, RxBuffers};
use packtrain::engine::{
    Action, Builder, Command, Control, Handler, PortSnapshot, Ports, Queues, Report, RxId, Session,
    StartError, arena_config,
};
use packtrain::packet::{Arena, ArenaConfig, Burst, FrameClass, Packet};
use packtrain::policy::idle::Idle;
use packtrain::port::AnyPort;
use packtrain::port::sim::{self, SimConfig, SimControl, SimFault};
use packtrain::port::wrap::{self, FaultCounters};
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The load begins then: receivers have posted buffers by that time.
const BEGIN: Instant = ms(1);
/// After the faults, all that was sent before has arrived or is dropped within this time. It has
/// room for several hung devices one after the other, a second or two each.
const BACKLOG_MAX: Duration = Duration::from_secs(15);
/// A fresh packet of each flow has arrived within this time. It has room for a device that has hung
/// without packets: it is found and reset with the fresh one.
const FRESH_MAX: Duration = Duration::from_secs(4);
/// A stop ends a run within two seconds.
const END_MAX: Duration = Duration::from_millis(2_500);
/// Without an arrival for so long, nothing is on its way but what a hung device has.
const QUIET: Duration = Duration::from_millis(20);
/// A hung device is found and reset within this time.
const RECOVERY: Duration = Duration::from_millis(2_500);

/// Faults that devices count, and what those call them.
const OF_DEVICES: [(Fault, SimFault); 11] = [
    (Fault::BadDescriptor, SimFault::Corrupt),
    (Fault::Truncated, SimFault::Truncate),
    (Fault::TooLong, SimFault::Overrun),
    (Fault::LostCompletions, SimFault::LoseCompletion),
    (Fault::DelayedCompletions, SimFault::DelayCompletion),
    (Fault::RepeatedCompletions, SimFault::RepeatCompletion),
    (Fault::LostInterrupts, SimFault::LoseInterrupt),
    (Fault::LateInterrupts, SimFault::DelayInterrupt),
    (Fault::LateCompletions, SimFault::LateCompletion),
    (Fault::Full, SimFault::Full),
    (Fault::Hang, SimFault::Hang),
];

/// Sessions of a world at most.
const SESSIONS_MAX: u32 = 4;

/// What worlds have reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Times that each fault had an effect.
    pub faults: BTreeMap<&'static str, u64>,
    /// Wire packets dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Sends that found a ring in each state.
    pub rings: BTreeMap<&'static str, u64>,
}

impl Reached {
    fn fault(&mut self, fault: Fault, times: u64) {
        *self.faults.entry(fault.name()).or_default() += times;
    }
}

/// What a world came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) failure: Option<Failure>,
    /// Packets that arrived at their destination, and the wire packets that they account for.
    pub(super) packets: u64,
    pub(super) wire_packets: u64,
    /// The wire packets that arrived at the last destination.
    pub(super) beside: u64,
    /// The time in the world.
    pub(super) time: Duration,
    /// Of all steps: the same for the same scene.
    pub(super) digest: u64,
    pub(super) reached: Reached,
}

/// The world of a scene.
struct Play<'a> {
    scene: &'a Scene,
    rig: Rig,
    /// The workers of each session, as places in the rig's list.
    workers: Vec<Range<usize>>,
    arenas: Vec<Arena>,
    /// Of each link, the device at its start and at its end.
    devices: Vec<[SimControl; 2]>,
    faults: Vec<FaultCounters>,
    stage: Rc<Stage>,
    /// Of each session at the end of a way, which receives what is sent.
    truths: Rc<[Shared]>,
    /// Faults that the world itself has made.
    happened: Rc<RefCell<Vec<Fault>>>,
    trace: Option<Trace>,
}

/// Runs a world.
pub(super) fn run(scene: &Scene, memory: &mut Memory) -> Outcome {
    run_captured(scene, memory, &mut Captured::default())
}

/// The same, with a capture of what its links carry.
pub(super) fn run_captured(scene: &Scene, memory: &mut Memory, links: &mut Captured) -> Outcome {
    let mut outcome = run_once(scene, memory, links);
    if scene.neighbour.is_some() && outcome.failure.is_none() {
        let mut other = scene.clone();
        other.neighbour = Some(Neighbour::Takes);
        other.links[1].from.sim.rate = None;
        let other = run_once(&other, memory, &mut Captured::default());
        let [beside, of] = [outcome.beside, other.beside];
        // A machine that is too slow for the load without the neighbour shows nothing.
        let is_overloaded = other.reached.drops.contains_key("egress_full");
        if !is_overloaded && 10 * beside < 7 * of || other.failure.is_some() {
            let why = other.failure;
            let line = format!(
                "beside a neighbour {beside} wire packets arrive, and {of} beside one that takes \
                 all: {why:?}"
            );
            outcome.failure = Some(Failure::new(Wrong::Lost, line));
        }
    }
    outcome
}

fn run_once(scene: &Scene, memory: &mut Memory, links: &mut Captured) -> Outcome {
    let mut outcome = Outcome::default();
    // A panic of the framework leaves the world as it was: it is taken down afterwards.
    let mut play = None;
    let result = caught(|| {
        let play = play.insert(Play::new(scene, memory, links)?);
        play.play()
    });
    let result = result.unwrap_or_else(|panic| Err(Failure::of_panic(&panic)));
    if let Some(mut play) = play {
        outcome.observe(&play);
        let ended = caught(|| play.end(&mut outcome));
        let ended = ended.unwrap_or_else(|panic| Err(Failure::of_panic(&panic)));
        outcome.failure = result.and(ended).err();
        let arenas = std::mem::take(&mut play.arenas);
        let gone = caught(move || drop(play));
        if let Err(panic) = gone {
            outcome.failure.get_or_insert(Failure::of_panic(&panic));
        }
        if outcome.failure.is_none() {
            let unused = caught(|| arenas.iter().find_map(in_use));
            outcome.failure = unused.unwrap_or_else(|panic| Some(Failure::of_panic(&panic)));
        }
        // After a failure its memory may still be in use.
        if outcome.failure.is_none() {
            arenas.into_iter().for_each(|arena| memory.give(arena));
        }
    } else {
        outcome.failure = result.err();
    }
    outcome
}

impl Failure {
    fn of_panic(message: &str) -> Self {
        let sleeps = ["lost wake-up", "sleep for ever", "sleeps for ever"];
        let wrong = match sleeps.iter().any(|words| message.contains(words)) {
            true => Wrong::Wakeup,
            false => Wrong::Panic,
        };
        Self::new(wrong, message)
    }
}

/// Memory of an arena that is still in use.
fn in_use(arena: &Arena) -> Option<Failure> {
    let census = arena.census();
    let used = census.lines_used + census.small_used + census.large_used;
    (used > 0).then(|| Failure::new(Wrong::Memory, format!("at the end, {census:?}")))
}

impl<'a> Play<'a> {
    fn new(scene: &'a Scene, memory: &mut Memory, links: &mut Captured) -> Result<Self, Failure> {
        let step = match scene.settings.idle {
            // A worker that polls takes fewer steps.
            Idle::Poll => Duration::from_micros(10),
            Idle::Adaptive => Duration::from_micros(1),
            Idle::Halt => Costs::default().step,
        };
        let costs = Costs {
            step,
            ..Costs::default()
        };
        let ports = scene.links.iter().flat_map(|link| [&link.from, &link.to]);
        let absorbs = |port: &PortConfig| {
            let stream = [
                Coalesce::Stream,
                Coalesce::StreamHash,
                Coalesce::StreamSorted,
            ];
            stream.contains(&port.coalesce)
        };
        let wires = scene.links.iter().map(|link| link.to.faults);
        let allowed = Allowed {
            twice: wires.clone().any(|wire| wire.duplicate > 0.0),
            // The copy of a packet may bring what was lost of the packet itself.
            order: wires
                .clone()
                .any(|wire| wire.reorder > 0.0 || wire.delay > 0.0 || wire.duplicate > 0.0),
            corrupt: wires.clone().any(|wire| wire.corrupt > 0.0),
            absorb: ports.clone().any(|end| absorbs(&end.port)),
        };
        let mut play = Self {
            scene,
            rig: Rig::new(scene.hardware, costs, scene.seed),
            workers: Vec::new(),
            arenas: Vec::new(),
            devices: Vec::new(),
            faults: Vec::new(),
            stage: Rc::default(),
            truths: scene
                .sinks()
                .map(|_| Arc::new(Mutex::new(Truth::new(&scene.flows, allowed))))
                .collect(),
            happened: Rc::default(),
            trace: None,
        };
        play.sessions(memory, links)?;
        if scene.neighbour == Some(Neighbour::Stuck) {
            play.devices[1][0].set_full(true);
        }
        play.talkers()?;
        for event in &scene.events {
            play.event(event);
        }
        Ok(play)
    }

    /// The sessions, in the direction of the packets.
    fn sessions(&mut self, memory: &mut Memory, links: &mut Captured) -> Result<(), Failure> {
        let scene = self.scene;
        let (mut froms, mut tos) = (Vec::new(), Vec::new());
        for (link, number) in scene.links.iter().zip(0..) {
            let (from, to) = self.link(link, number, links)?;
            froms.push(from);
            tos.push(to);
        }
        let senders = |from_forwarder: bool| {
            let flows = scene.flows.iter();
            let of = flows.filter(|flow| flow.from_forwarder == from_forwarder);
            of.count()
        };
        let mut froms = froms.into_iter();
        let mut tos = tos.into_iter();
        let first = froms.next().expect("a world has a link");
        let host = Session::on(first).senders(0, senders(false));
        self.add(host, senders(false), memory)?;
        let mut middle = || tos.next().expect("a link has two ends");
        if scene.shape == Shape::Bridge {
            let ports: Vec<_> = std::iter::once(middle()).chain(froms).collect();
            let bridge = Bridge::new(Addresses::new(8, AGING));
            let bridge = Session::among(ports).handler(move |_| bridge.clone());
            self.add(bridge, 0, memory)?;
        } else {
            for from in froms {
                let count = senders(true);
                let forwarder = Session::between(middle(), from).senders(1, count);
                self.add(forwarder, count, memory)?;
            }
        }
        for (last, number) in tos.zip(0..) {
            let truth = Arc::clone(&self.truths[number]);
            let sink = Session::on(last).handler(move |_| {
                let truth = Arc::clone(&truth);
                move |_: Instant, _: RxId, burst: &mut Burst| {
                    let mut truth = lock(&truth);
                    while let Some(packet) = burst.pop() {
                        truth.take(&packet);
                    }
                }
            });
            self.add(sink, 0, memory)?;
        }
        Ok(())
    }

    /// The ports at the start and at the end of a link.
    fn link(
        &mut self,
        link: &Link,
        number: u64,
        links: &mut Captured,
    ) -> Result<(Port<AnyPort>, Port<AnyPort>), Failure> {
        let named = |config: &SimConfig, end: &str| SimConfig {
            name: format!("link{}-{end}", number + 1),
            ..config.clone()
        };
        let (from, to) = sim::pair(
            named(&link.from.sim, "start"),
            named(&link.to.sim, "end"),
            self.scene.seed + number,
        );
        self.devices.push([from.control(), to.control()]);
        let to = wrap::Fault::new(AnyPort::Sim(to), link.to.faults);
        self.faults.push(to.counters());
        let to = AnyPort::Fault(Box::new(to));
        let mut port = |driver, config| {
            let driver = links.capture(driver, self.rig.world.runtime());
            let failed = |error: io::Error| Failure::new(Wrong::Error, error.to_string());
            driver.map(|driver| Port { driver, config }).map_err(failed)
        };
        Ok((
            port(AnyPort::Sim(from), link.from.port)?,
            port(to, link.to.port)?,
        ))
    }

    fn add<P: Ports, H: Handler + 'static>(
        &mut self,
        builder: Builder<P, H>,
        senders: usize,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let failed = |error: StartError| Failure::new(Wrong::Error, error.to_string());
        let wanted = arena_config(&builder.plan().map_err(failed)?);
        let arena = match self.arenas.first() {
            Some(arena) if self.scene.one_arena => arena.clone(),
            None if self.scene.one_arena => memory.take(ArenaConfig {
                small_frames: SESSIONS_MAX * wanted.small_frames,
                large_frames: SESSIONS_MAX * wanted.large_frames,
                ..wanted
            })?,
            _ => memory.take(wanted)?,
        };
        let builder = builder.arena(arena.clone());
        self.arenas.push(arena);
        let before = self.rig.workers.len();
        let added = self
            .rig
            .try_add(builder, self.scene.settings.clone(), senders);
        added.map_err(failed)?;
        self.workers.push(before..self.rig.workers.len());
        Ok(())
    }

    fn talkers(&mut self) -> Result<(), Failure> {
        for (number, &flow) in self.scene.flows.iter().enumerate() {
            let (session, port) = match flow.from_forwarder {
                true => (1, 1),
                false => (0, 0),
            };
            let handle = self.rig.sessions[session].handle(port, flow.queue);
            let Some(handle) = handle else {
                let line = format!("there is no TX queue {} for a sender", flow.queue);
                return Err(Failure::new(Wrong::Error, line));
            };
            let mut talker = Talker::new(
                (number, flow),
                handle,
                &self.stage,
                &self.truths,
                self.scene.preemptions,
                BEGIN,
            );
            let run = move |now: Instant, waker: &_| talker.run(now, waker);
            self.rig.world.actor(run, None);
        }
        Ok(())
    }

    /// Has a fault happen at its time.
    fn event(&mut self, event: &Event) {
        let Event {
            fault,
            lasts,
            link,
            amount,
            ..
        } = *event;
        let at = BEGIN.after(Duration::from_micros(event.at.into()));
        let until = at.after(lasts);
        let happened = Rc::clone(&self.happened);
        if fault == Fault::Cpu {
            // A program that uses a CPU without an end.
            let (mut begun, until) = (false, at.after(lasts.min(Duration::from_millis(1))));
            let run = move |now: Instant, _: &_| {
                if now < at {
                    return Action::Sleep { until: Some(at) };
                }
                if !std::mem::replace(&mut begun, true) {
                    happened.borrow_mut().push(fault);
                }
                match now < until {
                    true => Action::Step,
                    false => Action::Done,
                }
            };
            self.rig.world.actor(run, None);
            return;
        }
        let [from, to] = self.devices[link].clone();
        let queue = amount as usize % self.scene.queues;
        let ((sender, port), receiver) = (sender(link), receiver(link));
        let arena = self.arenas[receiver].clone();
        let [sender, receiver] =
            [sender, receiver].map(|session| self.rig.sessions[session].control().clone());
        let tx = Queues::tx(port).only(queue);
        let rx = Queues::rx(0).only(queue);
        let mut taken = Vec::new();
        let mut act = move |begins: bool| match (fault, begins) {
            (Fault::BadDescriptor, true) => to.corrupt_next(u64::from(amount) + 1),
            (Fault::LostCompletions, true) => from.lose_completions(u64::from(amount) + 1),
            (Fault::LostInterrupts, true) => from.lose_interrupts(u64::from(amount) % 4 + 1),
            (Fault::Hang, true) => from.hang(queue),
            (Fault::Link, _) => from.set_link(!begins),
            (Fault::PauseRx, _) => post(&receiver, rx, begins),
            (Fault::PauseTx, _) => post(&sender, tx, begins),
            (Fault::Reset, true) => {
                sender.post(tx, Command::Reset);
            }
            (Fault::Truncated, true) => to.truncate_next(u64::from(amount) + 1),
            (Fault::TooLong, true) => to.overrun_next(u64::from(amount) + 1),
            (Fault::DelayedCompletions, true) => from.delay_completions(u64::from(amount) + 1),
            (Fault::RepeatedCompletions, true) => from.repeat_completions(u64::from(amount) + 1),
            (Fault::LateInterrupts, true) => from.delay_interrupts(u64::from(amount) % 4 + 1),
            (Fault::SpuriousInterrupts, _) => {
                from.interrupt(queue);
                to.interrupt(queue);
                happened.borrow_mut().push(fault);
            }
            (Fault::Full, _) => from.set_full(begins),
            (Fault::Remove, true) if amount.is_multiple_of(2) => from.remove(),
            (Fault::Remove, true) => to.remove(),
            (Fault::Memory, true) => taken = take_all_but(&arena, amount as usize),
            (Fault::Memory, false) => taken.clear(),
            _ => {}
        };
        let mut begun = false;
        self.rig.world.hardware(move |now| {
            if now < at {
                return Some(at);
            }
            if begun {
                act(false);
                return None;
            }
            begun = true;
            act(true);
            Some(until)
        });
    }

    fn play(&mut self) -> Result<(), Failure> {
        let ends = self.scene.events.iter().map(|event| {
            let at = Duration::from_micros(event.at.into());
            BEGIN.after(at + event.lasts)
        });
        let last = ends.max().unwrap_or(BEGIN);
        self.run_until(last);
        self.calm();
        self.settle(BACKLOG_MAX, |play| {
            play.stage.done() == play.scene.flows.len()
        })?;
        self.fresh()?;
        if self.scene.neighbour.is_some() {
            self.devices[1][0].set_full(false);
        }
        self.stop()
    }

    fn run_until(&mut self, at: Instant) {
        self.trace = Some(self.rig.world.run(at));
    }

    /// Ends the faults.
    fn calm(&mut self) {
        self.stage.calm.set(true);
        self.faults.iter().for_each(FaultCounters::stop);
        for device in self.devices.iter().flatten() {
            device.heal();
            device.set_link(true);
        }
        for session in &self.rig.sessions {
            for port in 0..self.scene.links.len() {
                for queues in [Queues::rx(port), Queues::tx(port)] {
                    session.control().post(queues, Command::Resume);
                }
            }
        }
        // The watchdog resets no queue without a link (as in Linux), and a link whose other end was
        // removed does not come back.
        let hangs = self.has(Fault::Hang) || self.has(Fault::LostCompletions);
        for link in 0..self.devices.len() {
            if hangs && self.is_cut(link) {
                let (session, port) = sender(link);
                let control = self.rig.sessions[session].control();
                control.post(Queues::tx(port), Command::Reset);
            }
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.scene.events.iter().any(|event| event.fault == fault)
    }

    /// Whether a device of the session was removed, which ends it.
    fn is_gone(&self, session: usize) -> bool {
        let mut events = self.scene.events.iter();
        events.any(|event| event.removes() == Some(session))
    }

    /// Whether a session at an end of the link is gone.
    fn is_cut(&self, link: usize) -> bool {
        self.is_gone(sender(link).0) || self.is_gone(receiver(link))
    }

    /// Whether the session or one that it sends to is gone.
    fn is_beside_gone(&self, session: usize) -> bool {
        let mut links = 0..self.devices.len();
        let is_cut = links.any(|link| sender(link).0 == session && self.is_cut(link));
        is_cut || self.is_gone(session)
    }

    /// Whether all sessions on the way of a flow to the session at its end are there, and its
    /// packets are not too long for a link.
    fn arrives(&self, flow: usize, sink: usize) -> bool {
        let first = usize::from(self.scene.flows[flow].from_forwarder);
        let before = first..*self.scene.sinks().start();
        let mut way = before.chain([sink]);
        let is_free = self.scene.neighbour.is_none() || sink > *self.scene.sinks().start();
        is_free && !way.any(|session| self.is_gone(session)) && self.scene.fits(flow, sink)
    }

    /// The sum over the sessions at the ends.
    fn total(&self, of: impl Fn(&Truth) -> u64) -> u64 {
        self.truths.iter().map(|truth| of(&lock(truth))).sum()
    }

    /// Runs until nothing moves any more, and `done` says yes.
    fn settle(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<(), Failure> {
        let begin = self.rig.world.now();
        let recovers = [Fault::Hang, Fault::LostCompletions, Fault::LostInterrupts];
        let quiet = match recovers.into_iter().any(|fault| self.has(fault)) {
            true => RECOVERY,
            false => QUIET,
        };
        // Packets for a neighbour still wait when all others have arrived.
        let beside = self.scene.neighbour.is_some();
        let (mut arrived, mut since) = (u64::MAX, begin);
        loop {
            let now = self.rig.world.now();
            let packets = match beside {
                true => self.truths.last().map_or(0, |truth| lock(truth).packets),
                false => self.total(|truth| truth.packets),
            };
            if packets != arrived {
                (arrived, since) = (packets, now);
            }
            let held = |session: &Session| session.snapshot().ledger.held > 0;
            let moves = |play: &Self| {
                !beside && (play.devices_wait() || play.rig.sessions.iter().any(held))
            };
            if now.since(since) >= quiet && done(self) && !moves(self) {
                return Ok(());
            }
            self.check()?;
            if now.since(begin) > limit {
                return Err(self.stuck("the backlog", limit));
            }
            self.run_until(now.after(quiet / 4));
        }
    }

    /// Whether a device has packets that it has not read, since it waits for buffers of its
    /// receiver.
    fn devices_wait(&self) -> bool {
        let mut devices = self.devices.iter().enumerate();
        devices.any(|(number, [from, _])| {
            let (session, port) = sender(number);
            let snapshot = self.rig.sessions[session].snapshot();
            let given = snapshot.ports[port].tx_total();
            let read = from.device_counters();
            let is_behind = given.packets > read.rx_packets + read.rx_dropped + read.rx_errors;
            // What a reset took back was not read, and was given again.
            given.resets == 0 && is_behind && !self.is_cut(number)
        })
    }

    /// What was found while the world ran.
    fn check(&self) -> Result<(), Failure> {
        let mut truths = self.truths.iter();
        let failure = truths.find_map(|truth| lock(truth).failure().cloned());
        failure.map_or(Ok(()), Err)
    }

    fn stuck(&self, what: &str, limit: Duration) -> Failure {
        let ledgers = self.rig.sessions.iter().map(|session| {
            let snapshot = session.snapshot();
            format!(
                "{} held, dropped {:?}",
                snapshot.ledger.held, snapshot.drops
            )
        });
        let ledgers: Vec<_> = ledgers.collect();
        let (idle, all) = (self.stage.done(), self.scene.flows.len());
        let line = format!(
            "{what} does not arrive within {limit:?}: {}; {idle} of {all} senders are done",
            ledgers.join(", ")
        );
        Failure::new(Wrong::Stuck, line)
    }

    /// Wire packets dropped for too many segments.
    fn unfit(&self) -> u64 {
        let sessions = self.rig.sessions.iter().map(Session::snapshot);
        let dropped = sessions.map(|it| it.drops.get(DropReason::TooManySegments));
        dropped.sum()
    }

    /// Whether such packets are dropped for good, since a port does not copy them.
    fn collapses(&self) -> bool {
        let mut links = self.scene.links.iter();
        links.any(|link| link.from.port.fit == Fit::Collapse)
    }

    /// Whether the session `number` may be out of memory without a fault: the packets of its
    /// senders take half of the large frames or more, or it receives in pieces shorter than a small
    /// frame, so that a burst of large packets takes more frames than its arena is made for
    /// (`engine::arena_config`).
    fn may_lack_memory(&self, number: usize) -> bool {
        let own = |flow: &&Flow| self.scene.one_arena || usize::from(flow.from_forwarder) == number;
        let flows = self.scene.flows.iter().filter(own);
        let sent: usize = flows
            .map(|flow| flow.burst * flow.bursts as usize * flow.pieces)
            .sum();
        let frames = self.arenas[number].config().large_frames as usize;
        let from = number.checked_sub(1).map(|link| &self.scene.links[link]);
        let buffers = from.and_then(|link| link.to.port.rx_buffers);
        let whole = RxBuffers::PIECES.small_bytes();
        2 * sent >= frames || buffers.is_some_and(|buffers| buffers.small_bytes() < whole)
    }

    /// A fresh packet of every flow arrives whose way no removed device has cut.
    fn fresh(&mut self) -> Result<(), Failure> {
        let begin = self.rig.world.now();
        self.stage.probes.set(1);
        self.stage.wake();
        let flows = 0..self.scene.flows.len();
        let flows = flows.map(|flow| lock(&self.truths[0]).sent_by(flow));
        // A flow has a way to each end.
        let sinks = self.scene.sinks().zip(0..);
        let before: Vec<_> = flows
            .enumerate()
            .flat_map(|way| sinks.clone().map(move |sink| (way, sink)))
            .collect();
        let unfit_before = self.unfit();
        // A receiver without flow control may lose wire packets: more are sent until some arrive.
        let mut links = self.scene.links.iter();
        let overruns = links.any(|link| !link.to.sim.flow_control);
        loop {
            for _ in 0..4 {
                self.run_until(self.rig.world.now().after(QUIET / 4));
                self.check()?;
            }
            let unfit = match self.collapses() {
                true => self.unfit() - unfit_before,
                false => 0,
            };
            let arrived = |&((flow, before), (sink, number)): &((usize, u32), (usize, usize))| {
                if !self.arrives(flow, sink) {
                    return true;
                }
                let truth = lock(&self.truths[number]);
                let sent = truth.sent_by(flow);
                let first = if overruns {
                    before
                } else {
                    sent.saturating_sub(1)
                };
                sent > before && (first..sent).any(|unit| truth.has(flow, unit))
            };
            // Each drop excuses one flow at most, or in front of a bridge its ways to all ends.
            let missing: Vec<_> = before.iter().filter(|it| !arrived(it)).collect();
            if missing.len() as u64 <= unfit * self.truths.len() as u64 {
                return Ok(());
            }
            if self.rig.world.now().since(begin) > FRESH_MAX {
                let ((flow, before), (sink, _)) = *missing[0];
                let sent = lock(&self.truths[0]).sent_by(flow);
                let what = format!(
                    "a fresh packet of flow {flow} to session {sink}, unit {sent} after {before},"
                );
                return Err(self.stuck(&what, FRESH_MAX));
            }
            if overruns && self.stage.done() == self.scene.flows.len() {
                self.stage.probes.set(self.stage.probes.get() + 1);
                self.stage.wake();
            }
        }
    }

    /// Stops the sessions, in the direction of the packets.
    fn stop(&mut self) -> Result<(), Failure> {
        self.stage.over.set(true);
        self.stage.wake();
        self.run_until(self.rig.world.now().after(QUIET));
        for session in 0..self.rig.sessions.len() {
            self.rig.sessions[session].stop();
            let begin = self.rig.world.now();
            loop {
                self.run_until(self.rig.world.now().after(QUIET));
                let trace = self.trace.as_ref().expect("it has run");
                let workers = &self.rig.workers[self.workers[session].clone()];
                let mut tasks = workers.iter().map(|&task| &trace.tasks[task]);
                let error = tasks.clone().find_map(|task| task.error.as_ref());
                if let Some(error) = error.filter(|_| !self.is_gone(session)) {
                    return Err(Failure::new(Wrong::Error, error.clone()));
                }
                if tasks.all(|task| task.ended.is_some()) {
                    if self.is_gone(session) {
                        let removed = error.filter(|error| error.contains("was removed"));
                        removed.ok_or_else(|| {
                            let line = format!("session {session} ends without: {error:?}");
                            Failure::new(Wrong::Error, line)
                        })?;
                        self.happened.borrow_mut().push(Fault::Remove);
                    }
                    // The next session receives what the last one sent.
                    self.run_until(self.rig.world.now().after(QUIET));
                    break;
                }
                if self.rig.world.now().since(begin) > END_MAX {
                    let line = format!("session {session} does not end within {END_MAX:?}");
                    return Err(Failure::new(Wrong::End, line));
                }
            }
        }
        self.check()
    }

    /// The end of all sessions, and what their reports say.
    fn end(&mut self, outcome: &mut Outcome) -> Result<(), Failure> {
        let counted: Vec<_> = self.devices.iter().map(Counted::of).collect();
        let empty = Rig::new(self.scene.hardware, Costs::default(), 0);
        let Rig {
            world, sessions, ..
        } = std::mem::replace(&mut self.rig, empty);
        drop(world);
        let reports: Vec<_> = sessions.into_iter().map(Session::finish).collect();
        for report in &reports {
            for (reason, count) in report.snapshot.drops.nonzero() {
                *outcome.reached.drops.entry(reason.name()).or_default() += count;
                if Lie::ALL.iter().any(|lie| lie.reasons().contains(&reason)) {
                    outcome.reached.fault(Fault::Malformed, count);
                }
            }
            self.felt(report, &mut outcome.reached);
        }
        let lossy = self.scene.links.iter().zip(&counted);
        let lossy = lossy.filter(|(link, _)| !link.to.sim.flow_control);
        let overruns = lossy.map(|(_, counted)| counted.to.tx_dropped).sum();
        outcome.reached.fault(Fault::Overrun, overruns);
        let on_wires = counted.iter().map(|link| link.from.rx_dropped).sum::<u64>();
        let cut = on_wires * u64::from(self.has(Fault::Link));
        outcome.reached.fault(Fault::Link, cut);
        self.judge(&reports, &counted)
    }

    /// Counts the faults that a session has felt.
    fn felt(&self, report: &Report, reached: &mut Reached) {
        let ports = &report.snapshot.ports;
        let tx = || ports.iter().map(PortSnapshot::tx_total);
        let rx = || ports.iter().map(PortSnapshot::rx_total);
        // The watchdog resets a queue, too: at most once for each of these.
        let resets = tx().map(|tx| {
            let own = tx.hangs + tx.stuck + tx.lost_completions;
            tx.resets.saturating_sub(own)
        });
        let starved = rx().map(|rx| rx.alloc_fail).sum::<u64>();
        let starved = starved + report.snapshot.drops.get(DropReason::NoBuffer);
        let felt = [
            (Fault::Refuse, tx().map(|tx| tx.refused_features).sum()),
            (Fault::PauseTx, tx().map(|tx| tx.stall_flush).sum()),
            (Fault::PauseRx, rx().map(|rx| rx.pauses).sum()),
            (
                Fault::Reset,
                resets.sum::<u64>() * u64::from(!self.has(Fault::Remove)),
            ),
            (Fault::Memory, starved),
            (Fault::Link, report.snapshot.drops.get(DropReason::LinkDown)),
        ];
        for (fault, times) in felt {
            // A sender may be short of memory without another thread that takes it.
            let is_drawn = fault == Fault::Refuse || self.has(fault);
            reached.fault(fault, times * u64::from(is_drawn));
        }
    }
}

/// The counters of the devices of a link.
struct Counted {
    from: DeviceCounters,
    to: DeviceCounters,
    unfit: u64,
    bad_descriptors: u64,
}

impl Counted {
    fn of([from, to]: &[SimControl; 2]) -> Self {
        Self {
            from: from.device_counters(),
            to: to.device_counters(),
            unfit: from.counters().unfit + to.counters().unfit,
            bad_descriptors: to.counters().bad_descriptors,
        }
    }

    /// Packets that the sending device did not put on the wire, and those for which the receiving
    /// one had no buffer.
    const fn lost(&self) -> u64 {
        self.from.rx_dropped + self.from.rx_errors + self.to.tx_dropped
    }
}

impl Outcome {
    /// What a world has come to, also one that failed.
    fn observe(&mut self, play: &Play<'_>) {
        self.packets = play.total(|truth| truth.packets);
        self.wire_packets = play.total(|truth| truth.wire_packets);
        let last = play.truths.last();
        self.beside = last.map_or(0, |truth| lock(truth).wire_packets);
        if let Some(trace) = &play.trace {
            (self.time, self.digest) = (trace.now.since(ms(0)), trace.digest);
        }
        let reached = &mut self.reached;
        for &fault in &*play.happened.borrow() {
            reached.fault(fault, 1);
        }
        for faults in play.faults.iter().map(FaultCounters::get) {
            reached.fault(Fault::Loss, faults.dropped);
            reached.fault(Fault::Duplicate, faults.duplicated);
            reached.fault(Fault::Corrupt, faults.corrupted);
            reached.fault(Fault::Reorder, faults.reordered);
            reached.fault(Fault::Delay, faults.delayed);
        }
        reached.fault(Fault::Preempt, play.stage.preempted.get());
        for device in play.devices.iter().flatten() {
            for (fault, kind) in OF_DEVICES {
                reached.fault(fault, device.happened(kind));
            }
        }
        let names = ["idle", "busy", "abdicated", "stalled", "gap"];
        for (name, times) in names.into_iter().zip(play.stage.rings.get()) {
            *reached.rings.entry(name).or_default() += times;
        }
    }
}

fn post(control: &Control, queues: Queues, pauses: bool) {
    let command = match pauses {
        true => Command::Pause,
        false => Command::Resume,
    };
    // A worker that has ended needs none.
    control.post(queues, command);
}

/// All packets of an arena but some of each class.
fn take_all_but(arena: &Arena, left: usize) -> Vec<Packet> {
    let mut all = Vec::new();
    for class in [FrameClass::Small, FrameClass::Large] {
        let mut taken: Vec<_> = std::iter::from_fn(|| arena.packet(class).ok()).collect();
        taken.truncate(taken.len().saturating_sub(left));
        all.append(&mut taken);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::decisions::bytes_of;
    use crate::fuzz::traffic::Kind;
    use packtrain::policy::dispatch::Dispatch;

    /// A world with one flow, the fault of which happens in the middle of it or long after.
    fn with(fault: Fault, at: u32) -> Scene {
        let mut scene = Scene::draw(&[]);
        let flow = &mut scene.flows[0];
        (flow.burst, flow.bursts, flow.pace) = (8, 40, Duration::from_micros(50));
        scene.events = vec![Event {
            fault,
            at,
            lasts: Duration::from_micros(500),
            link: 0,
            amount: 1,
        }];
        scene
    }

    fn times(scene: &Scene, fault: Fault) -> u64 {
        let outcome = run(scene, &mut Memory::default());
        assert_eq!(outcome.failure, None, "{scene:?}");
        let times = outcome.reached.faults.get(fault.name());
        times.copied().unwrap_or(0)
    }

    #[test]
    fn a_fault_counts_where_it_has_an_effect() {
        let of_devices = OF_DEVICES.into_iter().map(|(fault, _)| fault);
        for fault in of_devices.chain([Fault::Link, Fault::Memory]) {
            // A stalled queue waits for a packet.
            if fault != Fault::Hang {
                assert_eq!(times(&with(fault, 15_000), fault), 0, "{}", fault.name());
            }
        }
        for fault in [
            Fault::BadDescriptor,
            Fault::Truncated,
            Fault::TooLong,
            Fault::LostCompletions,
            Fault::DelayedCompletions,
            Fault::RepeatedCompletions,
            Fault::Full,
            Fault::Hang,
            Fault::Link,
        ] {
            assert!(times(&with(fault, 500), fault) > 0, "{}", fault.name());
        }
    }

    /// Without a rate a device has no completion interrupt that could be late.
    #[test]
    fn an_interrupt_is_late_if_there_is_one() {
        let mut scene = with(Fault::LateInterrupts, 500);
        assert_eq!(times(&scene, Fault::LateInterrupts), 0);
        let from = &mut scene.links[0].from.sim;
        (from.rate, from.tx_ring) = (Some(30_000), 16);
        assert!(times(&scene, Fault::LateInterrupts) > 0);
    }

    /// The rest of the packet waits neither for the next one nor for the watchdog's second.
    #[test]
    fn a_pause_ends_when_the_receiver_has_buffers() {
        let mut scene = Scene::draw(&[]);
        (scene.settings.dispatch, scene.settings.idle) = (Dispatch::Direct, Idle::Halt);
        let flow = &mut scene.flows[0];
        (flow.kind, flow.unit, flow.units, flow.partial) = (Kind::Udp4, 1448, 24, true);
        let to = &mut scene.links[0].to.sim;
        (to.rx_ring, to.flow_control) = (16, true);
        let outcome = run(&scene, &mut Memory::default());
        assert_eq!(outcome.failure, None, "{scene:?}");
        assert_eq!(outcome.wire_packets, 48, "the load and a fresh packet");
        assert!(outcome.time < ms(200).since(ms(0)), "{:?}", outcome.time);
    }

    /// A plain world with a bridge, with these bytes for its one flow.
    fn bridged() -> Scene {
        let mut scene = Scene::draw(&[]);
        scene.shape = Shape::Bridge;
        scene.links = vec![scene.links[0].clone(); 3];
        let flow = &mut scene.flows[0];
        (flow.kind, flow.unit, flow.units, flow.partial) = (Kind::Udp4, 1448, 24, true);
        (flow.burst, flow.bursts) = (4, 10);
        scene
    }

    #[test]
    fn each_packet_arrives_at_both_hosts_behind_a_bridge() {
        let outcome = run(&bridged(), &mut Memory::default());
        assert_eq!(outcome.failure, None);
        let sent = 24 * (4 * 10 + 1);
        assert_eq!(
            outcome.wire_packets,
            2 * sent,
            "the load and a fresh packet"
        );
        assert_eq!(outcome.reached.drops, BTreeMap::new());
    }

    /// Each end is judged by itself.
    #[test]
    fn the_host_behind_a_port_that_is_removed_receives_less_and_the_other_one_all() {
        let mut scene = bridged();
        scene.flows[0].pace = Duration::from_micros(500);
        scene.events = vec![Event {
            fault: Fault::Remove,
            at: 2_000,
            lasts: Duration::ZERO,
            link: 2,
            amount: 1,
        }];
        let outcome = run(&scene, &mut Memory::default());
        assert_eq!(outcome.failure, None);
        let sent = 24 * (4 * 10 + 1);
        assert!(
            (sent..2 * sent).contains(&outcome.wire_packets),
            "{outcome:?}"
        );
        assert_eq!(outcome.reached.faults.get("removed"), Some(&1));
    }

    #[test]
    fn packets_longer_than_the_mtu_are_counted_where_they_enter_the_link() {
        let sent = 24 * (4 * 10 + 1);
        for (link, arrives) in [(0, 0), (1, sent), (2, sent)] {
            let mut scene = bridged();
            scene.links[link].from.port.mtu = Some(1_200);
            let outcome = run(&scene, &mut Memory::default());
            assert_eq!(outcome.failure, None);
            assert_eq!(outcome.wire_packets, arrives);
            assert_eq!(outcome.reached.drops, BTreeMap::from([("mtu", sent)]));
        }
    }

    #[test]
    fn a_world_is_the_same_twice() {
        let mut memory = Memory::default();
        for number in 0..20 {
            let bytes = bytes_of(3, number);
            let scene = Scene::draw(&bytes);
            let [first, second] = [(); 2].map(|()| run(&scene, &mut memory));
            assert_eq!(first.failure, None, "world {number}: {scene:?}");
            assert_eq!(first.digest, second.digest, "world {number}");
            assert_eq!(first.reached, second.reached, "world {number}");
        }
    }
}
