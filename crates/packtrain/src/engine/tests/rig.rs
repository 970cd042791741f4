//! A session between fake devices, whose workers the test drives in virtual time. A worker that
//! sleeps runs only if it was notified, if its device woke it, or if its sleep is over.

use super::fake::{Fake, Queue, number_of, numbered};
use crate::driver::{DeviceError, Features, Input, Port, PortConfig};
use crate::engine::control::{CommandError, Queues};
use crate::engine::{
    Action, Builder, Command, Forward, Handler, PortSnapshot, Ports, RunError, RxId, Session,
    Settings, Snapshot, StartError, Two, TxHandle, Worker,
};
use crate::limits::{BURST_PACKETS_MAX, RING_SLOTS_PER_LANE, TX_RING_PACKETS};
use crate::packet::{Arena, ArenaConfig, Burst};
use crate::policy::dispatch::Dispatch;
use crate::policy::idle::Idle;
use crate::policy::topology::{Topology, TopologyError};
use crate::runtime::{Machine, Notifier, Runtime};
use crate::stats::TxSnapshot;
use crate::time::{Clock, Instant, ManualClock};
pub use packtrain_offload::random::Random;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

/// The longest wait for an expected event, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Slots for applications in a ring with one lane.
pub const SLOTS: usize = TX_RING_PACKETS - RING_SLOTS_PER_LANE;
pub const POLICIES: [Dispatch; 5] = [
    Dispatch::Direct,
    Dispatch::Deferred,
    Dispatch::Abdicate,
    Dispatch::Threshold(8),
    Dispatch::Adaptive,
];

/// Whether a producer that finds the ring idle drains it.
pub fn drains(dispatch: Dispatch) -> bool {
    matches!(dispatch, Dispatch::Direct | Dispatch::Adaptive)
}

/// Virtual time, and notifiers without descriptors.
#[derive(Debug)]
pub struct Virtual {
    clock: ManualClock,
    notifiers: Mutex<Vec<Arc<TestNotifier>>>,
    machine: Machine,
}

#[derive(Debug, Default)]
pub struct TestNotifier {
    rung: AtomicBool,
}

impl Notifier for TestNotifier {
    fn notify(&self) {
        self.rung.store(true, Ordering::Release);
    }

    fn clear(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Virtual {
    pub fn new(cpus: usize) -> Arc<Self> {
        let new = Self {
            clock: ManualClock::default(),
            notifiers: Mutex::default(),
            machine: Machine { cpus, memory: None },
        };
        new.clock.advance(Duration::from_millis(1));
        Arc::new(new)
    }

    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Whether the notifier of a worker was called and not cleared since.
    pub fn is_rung(&self, index: usize) -> bool {
        self.notifiers.lock().unwrap()[index]
            .rung
            .load(Ordering::Acquire)
    }
}

impl Clock for Virtual {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl Runtime for Virtual {
    fn notifier(&self) -> io::Result<Arc<dyn Notifier>> {
        let notifier = Arc::<TestNotifier>::default();
        self.notifiers.lock().unwrap().push(Arc::clone(&notifier));
        Ok(notifier)
    }

    fn machine(&self) -> Machine {
        self.machine
    }

    fn topology(&self) -> Result<Topology, TopologyError> {
        Err(TopologyError::NoCpu)
    }
}

/// The builder of a session between two fake devices.
pub type BetweenFakes<H> = Builder<Two<Fake, Fake>, H>;

/// The description of a rig: two ports, a and b, with a session between them.
#[derive(Clone, Debug)]
pub struct Setup {
    pub queues: [usize; 2],
    pub input: [Input; 2],
    pub packets: Option<u64>,
    pub settings: Settings,
    pub senders: usize,
    pub config: [PortConfig; 2],
    /// Offloads of packets from each port, and of packets to it.
    pub offloads: [[Features; 2]; 2],
    pub cpus: usize,
    pub with_fds: bool,
}

impl Setup {
    pub fn new(queues: [usize; 2]) -> Self {
        Self {
            queues,
            input: [Input::Endless; 2],
            packets: None,
            // The clock of a rig does not advance by itself, so a worker that polls for a time
            // would never sleep.
            settings: Settings {
                idle: Idle::Halt,
                ..Settings::default()
            },
            senders: 0,
            config: [PortConfig::default(); 2],
            offloads: [[Features::NONE; 2]; 2],
            cpus: 2,
            with_fds: false,
        }
    }

    pub fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.settings.dispatch = dispatch;
        self
    }

    /// Puts a ring in front of each TX queue.
    pub fn shared(mut self, dispatch: Dispatch) -> Self {
        self.config
            .iter_mut()
            .for_each(|port| port.work.shared = true);
        self.dispatch(dispatch)
    }

    /// Announces `senders` application threads that send to port b.
    pub fn senders(mut self, senders: usize) -> Self {
        self.senders = senders;
        self
    }

    /// The setup on both paths: owned, and shared with each dispatch mode, with and without
    /// application senders, and with packets that are handed over one by one.
    pub fn on_every_path(&self) -> Vec<(String, Self)> {
        let owned = [Dispatch::Direct, Dispatch::Adaptive].map(|dispatch| {
            (
                format!("{dispatch}, owned"),
                self.clone().dispatch(dispatch),
            )
        });
        let shared =
            POLICIES.map(|dispatch| (format!("{dispatch}, shared"), self.clone().shared(dispatch)));
        let sent = POLICIES.map(|dispatch| {
            (
                format!("{dispatch}, senders"),
                self.clone().dispatch(dispatch).senders(1),
            )
        });
        let each = POLICIES.map(|dispatch| {
            let mut setup = self.clone().shared(dispatch);
            setup
                .config
                .iter_mut()
                .for_each(|port| port.work.by_packet = true);
            (format!("{dispatch}, packet by packet"), setup)
        });
        let shared = shared.into_iter().chain(each);
        owned.into_iter().chain(shared).chain(sent).collect()
    }

    pub fn builder<H: Handler + 'static>(
        &self,
        handler: impl FnMut(RxId) -> H + 'static,
    ) -> (BetweenFakes<H>, [Vec<Queue>; 2]) {
        let port = |port: usize| {
            let [rx, tx] = self.offloads[port];
            let name = ["a", "b"][port];
            let parts = (self.input[port], rx, tx);
            let (driver, queues) = Fake::new(name, parts, self.queues[port], self.with_fds);
            let config = PortConfig {
                queues: Some(self.queues[port].max(1)),
                ..self.config[port]
            };
            (Port { driver, config }, queues)
        };
        let ((a, to_a), (b, to_b)) = (port(0), port(1));
        let builder = Session::between(a, b)
            .handler(handler)
            .settings(self.settings.clone())
            .arena(arena())
            .senders(1, self.senders);
        let builder = match self.packets {
            Some(packets) => builder.packets(packets),
            None => builder,
        };
        (builder, [to_a, to_b])
    }

    pub fn try_rig<H: Handler + 'static>(
        &self,
        handler: impl FnMut(RxId) -> H + 'static,
    ) -> Result<Rig, StartError> {
        let (builder, queues) = self.builder(handler);
        Rig::of(builder, self.cpus, queues)
    }

    pub fn rig<H: Handler + 'static>(&self, handler: impl FnMut(RxId) -> H + 'static) -> Rig {
        self.try_rig(handler).unwrap()
    }

    pub fn forward(&self) -> Rig {
        self.rig(|_| Forward)
    }

    /// The same, with workers that sleep.
    pub fn settled(&self) -> Rig {
        let mut rig = self.forward();
        rig.settle();
        rig
    }

    /// The same with threads, in real time.
    pub fn start<H: Handler + 'static>(
        &self,
        handler: impl FnMut(RxId) -> H + 'static,
    ) -> (Session, [Vec<Queue>; 2]) {
        let (builder, queues) = self.builder(handler);
        (builder.start().unwrap(), queues)
    }
}

/// A settled rig with one queue on each side, and application threads that send to port b.
pub fn with_senders(dispatch: Dispatch, senders: usize) -> Rig {
    let setup = Setup::new([1, 1]).dispatch(dispatch);
    setup.senders(senders).settled()
}

/// Whether a path of [`Setup::on_every_path`] has no ring in front of its TX queue.
pub fn is_owned(path: &str) -> bool {
    path.ends_with("owned")
}

/// The slots of the ring of a path of [`Setup::on_every_path`].
pub fn ring_slots(path: &str) -> usize {
    if is_owned(path) { 0 } else { TX_RING_PACKETS }
}

/// An arena for all packets of two full rings and devices.
pub fn arena() -> Arena {
    Arena::new(ArenaConfig {
        small_frames: 4096,
        lines: 8192,
        ..ArenaConfig::small()
    })
    .unwrap()
}

/// A session, and the workers that the test drives.
pub struct Rig {
    pub a: Vec<Queue>,
    pub b: Vec<Queue>,
    pub session: Session,
    pub workers: Vec<Worker>,
    pub runtime: Arc<Virtual>,
    /// No other thread moves packets: the ledger is exact after each step.
    pub alone: bool,
    /// The last action of each worker.
    said: Vec<Action>,
    error: Option<RunError>,
}

impl Rig {
    /// A session on a machine with `cpus` CPUs.
    pub fn of<P: Ports, H: Handler + 'static>(
        builder: Builder<P, H>,
        cpus: usize,
        [a, b]: [Vec<Queue>; 2],
    ) -> Result<Self, StartError> {
        let runtime = Virtual::new(cpus);
        let (session, workers) = builder.assemble(Arc::<Virtual>::clone(&runtime))?;
        Ok(Self {
            a,
            b,
            said: vec![Action::Step; workers.len()],
            session,
            workers,
            runtime,
            alone: true,
            error: None,
        })
    }

    pub fn now(&self) -> Instant {
        self.runtime.now()
    }

    pub fn advance(&self, by: Duration) {
        self.runtime.advance(by);
    }

    pub fn arena(&self) -> Arena {
        self.session.arena().clone()
    }

    pub fn handle(&self, queue: usize) -> TxHandle {
        self.session.handle(1, queue).unwrap()
    }

    /// Packets with these numbers, as many as there are buffers for.
    pub fn burst(&self, numbers: impl IntoIterator<Item = u32>) -> Burst {
        burst(self.session.arena(), numbers)
    }

    /// The counters of TX queue 0 of port b.
    pub fn tx(&self) -> TxSnapshot {
        self.closed().ports[1].tx[0]
    }

    /// All counters; checks that the ledger is closed.
    pub fn closed(&self) -> Snapshot {
        closed(self.session.snapshot())
    }

    /// Takes one step of a worker, with or without a reason.
    pub fn run(&mut self, index: usize) -> Action {
        let action = match self.workers[index].run(self.runtime.now()) {
            Ok(action) => action,
            Err(error) => {
                self.error.get_or_insert(error);
                Action::Done
            }
        };
        self.said[index] = action;
        if self.alone {
            self.closed();
        }
        action
    }

    /// Whether a worker has a reason to run.
    fn is_due(&mut self, index: usize) -> bool {
        match self.said[index] {
            Action::Done => false,
            Action::Step | Action::Spin | Action::Yield => true,
            Action::Sleep { until } => {
                let woken = self.ready(index);
                woken
                    .iter()
                    .for_each(|&fd| self.workers[index].woken_by(fd));
                let due = until.is_some_and(|until| until <= self.now());
                due || !woken.is_empty() || self.runtime.is_rung(index)
            }
        }
    }

    /// Descriptors of a worker that are ready.
    fn ready(&self, index: usize) -> Vec<RawFd> {
        let mut ready = Vec::new();
        self.workers[index].interests(&mut |fd, _| {
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            if rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap() > 0 {
                ready.push(fd.as_raw_fd());
            }
        });
        ready
    }

    /// How many descriptors a worker waits for.
    pub fn watched(&self, index: usize) -> usize {
        let mut count = 0;
        self.workers[index].interests(&mut |_, _| count += 1);
        count
    }

    /// Runs all workers until each sleeps or has ended. Returns the earliest time at which one has
    /// to run again.
    pub fn try_settle(&mut self) -> Option<Instant> {
        for _ in 0..20_000 {
            let mut ran = false;
            for index in 0..self.workers.len() {
                if self.is_due(index) {
                    self.run(index);
                    ran = true;
                }
            }
            if !ran {
                return self.until();
            }
        }
        panic!("the workers do not all sleep or end: {:?}", self.said)
    }

    pub fn settle(&mut self) -> Option<Instant> {
        let until = self.try_settle();
        assert!(self.error.is_none(), "{:?}", self.error);
        until
    }

    fn until(&self) -> Option<Instant> {
        let until = |action: &Action| match action {
            Action::Sleep { until } => *until,
            _ => None,
        };
        self.said.iter().filter_map(until).min()
    }

    /// The last action of a worker.
    pub fn said(&self, index: usize) -> Action {
        self.said[index]
    }

    /// Packets arrive at queue 0 of port a, and the workers run until they sleep.
    pub fn receive(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.a[0].arrive(numbers);
        self.settle();
    }

    /// Queue 0 of port b accepts more packets, and the workers run until they sleep.
    pub fn make_room(&mut self, packets: usize) {
        self.b[0].make_room(packets);
        self.settle();
    }

    pub fn is_done(&self) -> bool {
        self.said.iter().all(|&action| action == Action::Done)
    }

    /// The first error that ended a worker.
    pub fn take_error(&mut self) -> RunError {
        self.error.take().expect("a worker has ended with an error")
    }

    /// The port of the device whose removal ended a worker.
    #[track_caller]
    pub fn removed_port(&mut self) -> Option<usize> {
        let error = self.take_error();
        assert!(matches!(error.error, DeviceError::Removed), "{error}");
        error.port
    }

    /// Advances the time from sleep to sleep until `is_so`. Returns the time that passed.
    pub fn pass_until(&mut self, is_so: impl Fn(&Self) -> bool) -> Duration {
        let begin = self.now();
        for _ in 0..100_000 {
            let until = self.settle();
            if is_so(self) {
                return self.now().since(begin);
            }
            let until = until.expect("a worker sleeps for ever");
            assert!(until > self.now(), "a worker does not sleep");
            self.advance(until.since(self.now()));
        }
        panic!("the condition never holds")
    }

    /// Stops the run and drives the workers to their end.
    pub fn stop(&mut self) -> Duration {
        self.session.stop();
        self.pass_until(Self::is_done)
    }

    /// Ends the run, and checks that no packet is held.
    pub fn finish(mut self) -> Snapshot {
        self.stop();
        drop(self.workers);
        let report = self.session.finish();
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!(report.snapshot.ledger.held, 0);
        closed(report.snapshot)
    }

    /// Sends a command, which the workers carry out at once.
    pub fn command(&mut self, queues: Queues, what: Command) -> Result<usize, CommandError> {
        let sent = self.session.control().send(queues, what);
        let ticket = sent.ok_or(CommandError::NoSuchQueue)?;
        self.settle();
        // Waits on another thread: a command that is never carried out fails the test.
        let (sender, receiver) = channel();
        thread::spawn(move || sender.send(ticket.wait()));
        receiver
            .recv_timeout(TIMEOUT)
            .expect("the command is carried out")
    }
}

/// Checks that the ledger is closed, and that the batches have exactly the packets of the counters.
pub fn closed(snapshot: Snapshot) -> Snapshot {
    assert!(snapshot.ledger.closed(), "{:?}", snapshot.ledger);
    snapshot.ports.iter().for_each(assert_batches);
    snapshot
}

fn assert_batches(port: &PortSnapshot) {
    for (rx, batches) in port.rx.iter().zip(&port.rx_batches) {
        let poll = &batches.poll;
        assert_eq!(poll.sum(), rx.packets + rx.bad_packets);
        assert!(poll.count() <= rx.polls && poll.max() <= BURST_PACKETS_MAX as u64);
        let flushes = rx
            .values()
            .filter(|(name, _)| name.starts_with("gro_flush"));
        let flushed: u64 = flushes.map(|(_, count)| count).sum();
        assert_eq!(batches.coalesce.count(), flushed);
        let alone = flushed - rx.gro_packets;
        assert_eq!(batches.coalesce.sum(), rx.gro_wire_packets + alone);
    }
    for (tx, batches) in port.tx.iter().zip(&port.tx_batches) {
        assert_eq!(batches.drain.sum(), tx.packets);
        assert!(batches.enqueue.max() <= BURST_PACKETS_MAX as u64);
    }
}

pub fn burst(arena: &Arena, numbers: impl IntoIterator<Item = u32>) -> Burst {
    let mut burst = Burst::new();
    for packet in numbers
        .into_iter()
        .map_while(|number| numbered(arena, number))
    {
        burst.push(packet).unwrap();
    }
    burst
}

pub fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

pub fn numbers(burst: &Burst) -> Vec<u32> {
    burst
        .iter()
        .map(|packet| number_of(packet.first()))
        .collect()
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Counts how often it is woken.
#[derive(Default)]
pub struct Woken(AtomicU64);

impl Woken {
    pub fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::<Self>::default();
        (Arc::clone(&woken), Waker::from(woken))
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
