//! Sessions in a [`World`], and what applications do there: shared by the tests of packtrain, the
//! worlds that are drawn from a seed, and experiments in virtual time.

use crate::line::Line;
use crate::{Costs, Hardware, Trace, World};
use packtrain::engine::{
    Action, Builder, HalfSend, Handler, Ports, Report, Session, Settings, Snapshot, StartError,
    TrySendError, TxHandle,
};
use packtrain::limits::TX_RING_PACKETS;
use packtrain::packet::Burst;
use packtrain::policy::dispatch::{Dispatch, RingState};
use packtrain::policy::idle::Idle;
use packtrain::policy::moderation::Moderation;
use packtrain::policy::placement::Placement;
use packtrain::policy::priority::Priority;
use packtrain::time::Instant;
use packtrain_offload::random::Random;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Milliseconds after the start of a world.
#[must_use]
pub const fn ms(ms: u64) -> Instant {
    us(1000 * ms)
}

/// Microseconds after the start of a world.
#[must_use]
pub const fn us(us: u64) -> Instant {
    Instant::from_nanos(us * 1000)
}

/// Runs a scenario twice with the same seed.
///
/// # Panics
///
/// If the two results differ.
pub fn twice<T: PartialEq + fmt::Debug>(mut run: impl FnMut() -> T) -> T {
    let first = run();
    assert!(first == run(), "two runs with equal seeds are equal");
    first
}

/// Sessions whose workers run in one world.
#[derive(Debug)]
pub struct Rig {
    /// The world.
    pub world: World,
    /// The sessions, by number.
    pub sessions: Vec<Session>,
    /// The tasks that are workers.
    pub workers: Vec<usize>,
    /// Whether threads that only compute end.
    pub(crate) ends: Rc<Cell<bool>>,
    /// The line that all ports with INTx share.
    pub(crate) shared: Option<Arc<Line>>,
}

impl Rig {
    /// An empty world of `machine`.
    #[must_use]
    pub fn new(machine: Hardware, costs: Costs, seed: u64) -> Self {
        Self {
            world: World::new(machine, costs, seed),
            sessions: Vec::new(),
            workers: Vec::new(),
            ends: Rc::default(),
            shared: None,
        }
    }

    /// Adds a session. Its workers have the CPUs and the priority that `settings` say, beside so
    /// many senders. Returns its number.
    ///
    /// # Errors
    ///
    /// If the session cannot start.
    pub fn try_add<P: Ports, H: Handler + 'static>(
        &mut self,
        builder: Builder<P, H>,
        settings: Settings,
        senders: usize,
    ) -> Result<usize, StartError> {
        let (priority, idle) = (settings.priority, settings.idle);
        let runtime = self.world.runtime();
        let (session, workers) = builder.settings(settings).assemble_placed(runtime)?;
        let announced = session.plan().paths.iter().map(|path| path.senders);
        debug_assert_eq!(announced.sum::<usize>(), senders);
        self.world.session(&session);
        let cpus = session.placed().cpus.clone();
        for (index, (worker, cpu)) in workers.into_iter().zip(cpus).enumerate() {
            let task = self.world.worker(worker, cpu);
            let serves = session.plan().serves(index);
            let nice = priority.nice(idle, serves, 0);
            self.world.set_nice(task, nice.unwrap_or(0));
            if priority.batch(serves) {
                self.world.set_batch(task);
            }
            self.workers.push(task);
        }
        self.sessions.push(session);
        Ok(self.sessions.len() - 1)
    }

    /// As [`Rig::try_add`], for a session that can start.
    ///
    /// # Panics
    ///
    /// If it cannot.
    pub fn add<P: Ports, H: Handler + 'static>(
        &mut self,
        builder: Builder<P, H>,
        settings: Settings,
        senders: usize,
    ) -> usize {
        let added = self.try_add(builder, settings, senders);
        added.expect("the session can start")
    }

    /// A handle to the first TX queue of a port.
    ///
    /// # Panics
    ///
    /// If no senders were announced for it.
    #[must_use]
    pub fn handle(&self, session: usize, port: usize) -> TxHandle {
        let handle = self.sessions[session].handle(port, 0);
        handle.expect("senders were announced")
    }

    /// Stops the sessions, lets three seconds pass, and checks the ledgers.
    ///
    /// # Panics
    ///
    /// If a worker has not ended or reports an error, or a ledger is not closed.
    pub fn end(self) -> (Trace, Vec<Report>) {
        let workers = self.workers.clone();
        let (trace, reports) = self.end_with_errors();
        for task in workers.iter().map(|&worker| &trace.tasks[worker]) {
            assert_eq!(task.error, None);
        }
        (trace, reports)
    }

    /// The same if a worker may report an error.
    ///
    /// # Panics
    ///
    /// As [`Rig::end`].
    pub fn end_with_errors(mut self) -> (Trace, Vec<Report>) {
        for session in &self.sessions {
            session.stop();
        }
        let until = self.world.now().after(Duration::from_secs(3));
        let trace = self.world.run(until);
        for task in self.workers.iter().map(|&worker| &trace.tasks[worker]) {
            assert!(task.ended.is_some(), "{task:?}");
        }
        drop(self.world);
        let reports: Vec<_> = self.sessions.into_iter().map(Session::finish).collect();
        for report in &reports {
            let ledger = &report.snapshot.ledger;
            assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
        }
        (trace, reports)
    }
}

/// Nothing adapts itself. A worker without work sleeps.
#[must_use]
pub fn fixed(dispatch: Dispatch) -> Settings {
    Settings {
        dispatch,
        moderation: Moderation::Off,
        idle: Idle::Halt,
        placement: Placement::None,
        priority: Priority::None,
    }
}

/// A packet of 64 bytes that begins, behind the Ethernet header, with a number.
///
/// # Panics
///
/// For more numbers than a burst holds, and if the arena has no frame.
pub fn burst(handle: &TxHandle, numbers: impl Iterator<Item = u64>) -> Burst {
    let mut bytes = [0; 64];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    let mut burst = Burst::new();
    for number in numbers {
        bytes[14..22].copy_from_slice(&number.to_be_bytes());
        let packet = handle.arena().packet_from(&bytes).expect("memory");
        burst.push(packet).expect("at most a burst");
    }
    burst
}

/// The number in a packet of [`burst`].
///
/// # Panics
///
/// If the packet is shorter.
#[must_use]
pub fn number(packet: &[u8]) -> u64 {
    let bytes = packet[14..22].try_into();
    u64::from_be_bytes(bytes.expect("eight bytes"))
}

/// The packets of producers that number theirs from `n << 32` on, each with another `n`, in the
/// order in which the device accepts them.
#[derive(Debug, Default)]
pub struct Order(Vec<u64>);

impl Order {
    /// A packet with this number.
    ///
    /// # Panics
    ///
    /// If it is not the next one of its producer.
    pub fn check(&mut self, number: u64) {
        let (producer, number) = ((number >> 32) as usize, number & 0xffff_ffff);
        self.0.resize(self.0.len().max(producer + 1), 0);
        let expected = &mut self.0[producer];
        assert_eq!(number, *expected, "producer {producer}: order is kept");
        *expected += 1;
    }
}

/// A handle, and the burst that it sends. The thread may be preempted in the middle of a send.
#[derive(Debug)]
pub struct Producer {
    /// The handle.
    pub handle: TxHandle,
    /// What it sends next, or has begun to send.
    pub burst: Burst,
    /// The next number.
    next: u64,
    half: Option<HalfSend>,
}

impl Producer {
    /// It numbers its packets from `first` on.
    #[must_use]
    pub fn new(handle: TxHandle, first: u64) -> Self {
        Self {
            handle,
            burst: Burst::new(),
            next: first,
            half: None,
        }
    }

    /// Makes the next packets.
    pub fn fill(&mut self, packets: u64) {
        self.burst = burst(&self.handle, self.next..self.next + packets);
        self.next += packets;
    }

    /// Begins to send the burst. False if the queue accepts nothing.
    pub fn begin(&mut self) -> bool {
        self.half = self.handle.begin_send(&self.burst);
        self.half.is_some()
    }

    /// Sends the burst, or goes on with the send that was begun.
    ///
    /// # Errors
    ///
    /// As [`TxHandle::try_send`].
    pub fn send(&mut self) -> Result<usize, TrySendError> {
        match self.half.take() {
            Some(half) => self.handle.finish_send(half, &mut self.burst),
            None => self.handle.try_send(&mut self.burst),
        }
    }

    /// Whether a send was begun and not finished.
    #[must_use]
    pub const fn is_preempted(&self) -> bool {
        self.half.is_some()
    }
}

impl Drop for Producer {
    /// A test that fails ends, though a producer has not published its slots.
    fn drop(&mut self) {
        if self.half.is_some() {
            self.send().ok();
        }
    }
}

/// When threads are preempted: at random, in one of `one_in` sends, for at most so long.
#[derive(Clone, Copy, Debug)]
pub struct Preemptions {
    /// One of so many sends is interrupted.
    pub one_in: u64,
    /// The longest interruption.
    pub longest: Duration,
}

/// The states in which senders found a ring.
pub type States = Rc<RefCell<HashSet<RingState>>>;

/// The preemptions of one sender.
#[derive(Debug)]
struct Preempt {
    how: Preemptions,
    random: Random,
    states: States,
}

impl Preempt {
    /// How long the thread is preempted in its next send.
    fn next(&mut self) -> Option<Duration> {
        let longest = self.how.longest.as_nanos() as u64;
        let preempted = self.random.below(self.how.one_in) == 0;
        preempted.then(|| Duration::from_nanos(self.random.below(longest) + 1))
    }
}

/// How a blocking send waits for space: it polls for so long in all, then sleeps
/// (`engine/thread.rs`).
const SPIN_TIME: Duration = Duration::from_micros(400);

/// While fewer packets wait, a ring has space for applications: a lane has 64 slots of its own.
const SPACE: u64 = TX_RING_PACKETS as u64 - 64;

/// A thread that sends single packets or bursts at saturation.
pub struct Sender {
    producer: Producer,
    size: u64,
    left: u64,
    /// Since when it waits for space.
    full: Option<Instant>,
    accepted: Rc<Cell<u64>>,
    counters: Box<dyn Fn() -> Snapshot>,
    preempt: Option<Preempt>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("producer", &self.producer)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl Sender {
    /// Sender `number` of a session: for so many packets, in bursts of `size`. Adds what is
    /// accepted to `accepted`.
    ///
    /// # Panics
    ///
    /// If no senders were announced for the first port.
    #[must_use]
    pub fn new(
        session: &Session,
        number: usize,
        packets: u64,
        size: u64,
        accepted: &Rc<Cell<u64>>,
    ) -> Self {
        let handle = session.handle(0, 0).expect("senders were announced");
        Self {
            producer: Producer::new(handle, (number as u64) << 32),
            counters: Box::new(session.counters()),
            size,
            left: packets,
            full: None,
            accepted: Rc::clone(accepted),
            preempt: None,
        }
    }

    /// It is preempted, and adds to `states` in which states it finds the ring.
    #[must_use]
    pub fn preempted(self, how: Preemptions, seed: u64, states: &States) -> Self {
        let preempt = Preempt {
            how,
            random: Random::new(seed),
            states: Rc::clone(states),
        };
        Self {
            preempt: Some(preempt),
            ..self
        }
    }

    /// The next step of the thread, for [`World::actor`].
    pub fn run(&mut self, now: Instant, waker: &Waker) -> Action {
        if self.producer.burst.is_empty() {
            let next = self.left.min(self.size);
            if next == 0 {
                return Action::Done;
            }
            self.producer.fill(next);
            self.left -= next;
        }
        if let Some(preempt) = &mut self.preempt {
            let state = self.producer.handle.ring_state();
            preempt.states.borrow_mut().insert(state);
            if !self.producer.is_preempted()
                && let Some(time) = preempt.next()
                && self.producer.begin()
            {
                let until = Some(now.after(time));
                return Action::Sleep { until };
            }
        }
        if let Some(since) = self.full
            && !self.producer.is_preempted()
            && now.since(since) < SPIN_TIME
            && (self.counters)().ledger.held >= SPACE
        {
            return Action::Spin;
        }
        let sent = self.producer.send();
        let (accepted, action) = match sent {
            Ok(accepted) => (accepted, Action::Step),
            Err(TrySendError::Closed) => return Action::Done,
            Err(TrySendError::Full { accepted }) => (accepted, self.wait(now, waker)),
        };
        if self.producer.burst.is_empty() {
            self.full = None;
        }
        self.accepted.set(self.accepted.get() + accepted as u64);
        action
    }

    fn wait(&mut self, now: Instant, waker: &Waker) -> Action {
        let since = *self.full.get_or_insert(now);
        if now.since(since) < SPIN_TIME {
            return Action::Step;
        }
        let mut context = Context::from_waker(waker);
        match self.producer.handle.poll_ready(&mut context) {
            Poll::Ready(()) => Action::Step,
            Poll::Pending => Action::Sleep { until: None },
        }
    }
}
