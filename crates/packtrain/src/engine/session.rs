//! One run, from the ports to the final report.

use super::assemble::{Assembled, Assembly, Ends, memory};
use super::control::{Command, CommandError, Control, Queues};
use super::error::{RunError, StartError};
use super::flows::TxFlows;
use super::handle::TxHandle;
use super::handler::{Forward, Handler, RxId};
use super::intake::Intake;
use super::settings::Settings;
use super::shared::Submit;
use super::snapshot::{Snapshot, Stats};
use super::thread::{Threads, run_to_end};
use super::worker::Worker;
use crate::driver::{DeviceCounters, Driver, Input, IntoPort, Link, Port};
use crate::limits::PORTS_MAX;
use crate::packet::{Arena, Burst};
use crate::plan::{Demand, Plan, Side, plan, plan_among, plan_one};
use crate::policy::placement::{Placed, Why};
use crate::runtime::{Runtime, System};
use crate::time::Instant;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The default handler of a session on one port: takes all packets, which count as delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deliver;

impl Handler for Deliver {
    fn handle(&mut self, _now: Instant, _from: RxId, burst: &mut Burst) {
        burst.clear();
    }

    const PARSED: bool = false;
}

/// One port.
#[derive(Debug)]
pub struct One<D>(Port<D>);

/// Two ports.
#[derive(Debug)]
pub struct Two<A, B>(Port<A>, Port<B>);

/// Several ports, of one type.
#[derive(Debug)]
pub struct Many<D>(Vec<Port<D>>);

/// The ports of a session: [`One`], [`Two`] or [`Many`].
pub trait Ports: sealed::Ports {}

impl<P: sealed::Ports> Ports for P {}

mod sealed {
    use super::{Assembly, DynPort, Handler, Plan, RxId, StartError};
    use crate::plan::{Incompatible, Side};

    pub trait Ports {
        fn sides(&self) -> Vec<Side>;
        fn plan(&self) -> Result<Plan, Incompatible>;
        /// Attaches the ports and assembles their queues.
        fn assemble<H: Handler + 'static>(
            self,
            assembly: &mut Assembly<'_>,
            each: &mut dyn FnMut(RxId) -> H,
        ) -> Result<Vec<Box<dyn DynPort>>, StartError>;
    }
}

/// The part of a port that a session uses, besides its queues.
pub trait DynPort: Send {
    /// See [`Driver::link`].
    fn link(&mut self) -> Link;
    /// See [`Driver::device_counters`].
    fn device_counters(&mut self) -> Option<DeviceCounters>;
}

impl<D: Driver> DynPort for D {
    fn link(&mut self) -> Link {
        Driver::link(self)
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        Driver::device_counters(self)
    }
}

fn side<D: Driver>(port: &Port<D>) -> Side {
    Side::of(&port.driver, port.config)
}

impl<D: Driver + 'static> sealed::Ports for One<D> {
    fn sides(&self) -> Vec<Side> {
        vec![side(&self.0)]
    }

    fn plan(&self) -> Result<Plan, crate::plan::Incompatible> {
        plan_one(&side(&self.0))
    }

    fn assemble<H: Handler + 'static>(
        self,
        assembly: &mut Assembly<'_>,
        mut each: &mut dyn FnMut(RxId) -> H,
    ) -> Result<Vec<Box<dyn DynPort>>, StartError> {
        let mut driver = self.0.driver;
        let (rx, tx) = assembly.attach(0, &mut driver)?;
        let can = driver.capabilities();
        assembly.direction(0, (rx, &can), (tx, &can), &mut each)?;
        Ok(vec![Box::new(driver)])
    }
}

impl<A: Driver + 'static, B: Driver + 'static> sealed::Ports for Two<A, B> {
    fn sides(&self) -> Vec<Side> {
        vec![side(&self.0), side(&self.1)]
    }

    fn plan(&self) -> Result<Plan, crate::plan::Incompatible> {
        plan(&side(&self.0), &side(&self.1))
    }

    fn assemble<H: Handler + 'static>(
        self,
        assembly: &mut Assembly<'_>,
        mut each: &mut dyn FnMut(RxId) -> H,
    ) -> Result<Vec<Box<dyn DynPort>>, StartError> {
        let (mut a, mut b) = (self.0.driver, self.1.driver);
        let (rx_a, tx_a) = assembly.attach(0, &mut a)?;
        let (rx_b, tx_b) = assembly.attach(1, &mut b)?;
        let (can_a, can_b) = (a.capabilities(), b.capabilities());
        assembly.direction(0, (rx_a, &can_a), (tx_b, &can_b), &mut each)?;
        assembly.direction(1, (rx_b, &can_b), (tx_a, &can_a), &mut each)?;
        Ok(vec![Box::new(a), Box::new(b)])
    }
}

impl<D: Driver + 'static> sealed::Ports for Many<D> {
    fn sides(&self) -> Vec<Side> {
        self.0.iter().map(side).collect()
    }

    fn plan(&self) -> Result<Plan, crate::plan::Incompatible> {
        plan_among(&self.sides())
    }

    fn assemble<H: Handler + 'static>(
        self,
        assembly: &mut Assembly<'_>,
        mut each: &mut dyn FnMut(RxId) -> H,
    ) -> Result<Vec<Box<dyn DynPort>>, StartError> {
        let (mut ports, mut ends) = (Vec::<Box<dyn DynPort>>::new(), Vec::new());
        for (index, port) in self.0.into_iter().enumerate() {
            let mut driver = port.driver;
            let (rx, tx) = assembly.attach(index, &mut driver)?;
            ends.push(Ends {
                rx,
                tx,
                capabilities: driver.capabilities(),
            });
            ports.push(Box::new(driver));
        }
        assembly.among(ends, &mut each)?;
        Ok(ports)
    }
}

/// Makes a session's handlers, one for each RX queue.
type Each<H> = Box<dyn FnMut(RxId) -> H>;

/// The description of a session, which starts it. Everything but the ports has a default.
pub struct Builder<P, H> {
    ports: P,
    each: Each<H>,
    settings: Settings,
    packets: Option<u64>,
    senders: [usize; PORTS_MAX],
    arena: Option<Arena>,
}

impl<P: fmt::Debug, H> fmt::Debug for Builder<P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("ports", &self.ports)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<P: Ports, H: Handler + 'static> Builder<P, H> {
    fn new(ports: P, each: Each<H>) -> Self {
        Self {
            ports,
            each,
            settings: Settings::default(),
            packets: None,
            senders: [0; PORTS_MAX],
            arena: None,
        }
    }

    /// Sets the handlers: `each` is called once for each RX queue, and returns its handler. Two
    /// queues share state if their handlers do.
    pub fn handler<G: Handler + 'static>(
        self,
        each: impl FnMut(RxId) -> G + 'static,
    ) -> Builder<P, G> {
        Builder {
            ports: self.ports,
            each: Box::new(each),
            settings: self.settings,
            packets: self.packets,
            senders: self.senders,
            arena: self.arena,
        }
    }

    /// Sets dispatch, moderation, and the idle mode, placement and priority of the workers.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Ends the run after `limit` received packets (as devices hand them over: a GSO packet is
    /// one).
    #[must_use]
    pub fn packets(mut self, limit: u64) -> Self {
        self.packets = Some(limit);
        self
    }

    /// Announces that `threads` application threads will send to a port, each with a [`TxHandle`].
    /// The TX queues of the port are then shared, and a worker with no other queues does not go
    /// ahead of the threads ([`Priority::Auto`](crate::policy::priority::Priority::Auto)). A thread
    /// with several handles counts once.
    ///
    /// # Panics
    ///
    /// If the session has no such port.
    #[must_use]
    pub fn senders(mut self, port: usize, threads: usize) -> Self {
        let ports = self.ports.sides().len();
        assert!(
            port < ports,
            "port {port}: the session has {ports}, which are counted from 0"
        );
        self.senders[port] = threads;
        self
    }

    /// Uses an existing arena, for a caller that has packets already. By default the session makes
    /// one with [`arena_config`](super::arena_config).
    #[must_use]
    pub fn arena(mut self, arena: Arena) -> Self {
        self.arena = Some(arena);
        self
    }

    /// The plan of the session on this machine.
    ///
    /// # Errors
    ///
    /// If the ports cannot be joined.
    pub fn plan(&self) -> Result<Plan, StartError> {
        self.plan_for(&System::new())
    }

    fn plan_for(&self, runtime: &dyn Runtime) -> Result<Plan, StartError> {
        let plan = self.ports.plan().map_err(StartError::Incompatible)?;
        Ok(plan.working(&Demand {
            dispatch: self.settings.dispatch,
            senders: self.senders,
            cpus: runtime.machine().cpus,
        }))
    }

    /// Starts the workers on threads. Returns after each thread has its CPU and its priority.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(self) -> Result<Session, StartError> {
        self.start_with(|| Ok(()))
    }

    /// As [`Builder::start`], and each worker's thread calls `settled` once it has its CPU and its
    /// priority, before it moves a packet: to give up the privileges that only the start needs.
    ///
    /// # Errors
    ///
    /// See [`StartError`]; that of `settled` is one of the system.
    pub fn start_with(
        self,
        settled: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Session, StartError> {
        let settings = self.settings.clone();
        settings.check_priority()?;
        let runtime: Arc<dyn Runtime> = Arc::new(System::new());
        let (mut session, workers) = self.assemble_placed(Arc::clone(&runtime))?;
        let (plan, placed) = (&session.plan, &session.placed);
        let (threads, with) = (&mut session.threads, (&runtime, Arc::new(settled) as _));
        threads.start(workers, plan, &settings, placed, with)?;
        Ok(session)
    }

    /// As [`Builder::assemble`], for workers on threads that have the CPUs of [`Session::placed`]:
    /// the placement policy chooses them on the machine of `runtime`.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn assemble_placed(
        self,
        runtime: Arc<dyn Runtime>,
    ) -> Result<(Session, Vec<Worker>), StartError> {
        self.settings.check_placement(&*runtime)?;
        let senders = self.senders.iter().sum();
        let (mut session, workers) = self.assemble(runtime)?;
        let (settings, runtime) = (&session.settings, &*session.runtime);
        session.placed = settings.place(runtime, workers.len(), senders);
        Ok((session, workers))
    }

    /// Starts without threads, for a caller with an event loop of its own: it drives the workers
    /// ([`Worker::run`]). The session has the same queries and the same end as one that was
    /// started.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn assemble(self, runtime: Arc<dyn Runtime>) -> Result<(Session, Vec<Worker>), StartError> {
        let plan = self.plan_for(&*runtime)?;
        let arena = match self.arena {
            Some(arena) => arena,
            None => memory(&plan, runtime.machine().memory)?,
        };
        let sides = self.ports.sides();
        let finite = sides.iter().zip(&plan.attach);
        let finite = finite.filter(|(side, _)| side.capabilities.input == Input::Finite);
        let finite = finite.map(|(_, attach)| attach.queues).sum();
        let names = sides.iter().map(|side| side.name.exact().to_owned());
        let names = names.collect();
        let intake = (self.packets, finite);
        let mut each = self.each;
        let mut assembly = Assembly::new(
            &plan,
            &self.settings,
            &arena,
            self.senders,
            names,
            intake,
            &runtime,
        )?;
        let mut ports = self.ports.assemble(&mut assembly, &mut *each)?;
        let Assembled {
            workers,
            intake,
            stats,
            control,
            handles,
        } = assembly.finish();
        // The caller decides where its workers run.
        let placed = Placed {
            cpus: vec![None; workers.len()],
            why: Why::Unbound,
        };
        let session = Session {
            settings: self.settings,
            threads: Threads::new(Arc::clone(&intake)),
            device_start: ports
                .iter_mut()
                .map(|port| port.device_counters())
                .collect(),
            ports,
            arena,
            stats,
            handles,
            control,
            intake,
            placed,
            began: runtime.now(),
            runtime,
            plan,
        };
        Ok((session, workers))
    }
}

/// A running session on one port, between two ports, or among several.
pub struct Session {
    // The first field, so it is dropped first, even after a panic. The workers then end before the
    // ports and the arena that they use, and the arena is freed at once.
    threads: Threads,
    ports: Vec<Box<dyn DynPort>>,
    arena: Arena,
    stats: Arc<Stats>,
    handles: Vec<Vec<Arc<dyn Submit>>>,
    control: Control,
    intake: Arc<Intake>,
    placed: Placed,
    began: Instant,
    runtime: Arc<dyn Runtime>,
    plan: Plan,
    settings: Settings,
    device_start: Vec<Option<DeviceCounters>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("threads", &self.threads)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// The final report of a session.
#[derive(Debug)]
pub struct Report {
    /// All counters. No packet moves any more, so the ledger is exact.
    pub snapshot: Snapshot,
    /// The counters of each device during the session; `None` for a device that has none.
    pub devices: Vec<Option<DeviceCounters>>,
    /// The time of the start, on the clock of the session's runtime.
    pub began: Instant,
    /// Time from start to end.
    pub elapsed: Duration,
    /// The CPUs of the workers' threads, and the reason.
    pub placed: Placed,
    /// The error that ended the session early, if a device failed. It names the port.
    pub error: Option<RunError>,
}

impl Report {
    /// The final counters, or the error that ended the session early.
    ///
    /// # Errors
    ///
    /// The failure of a device, if there was one.
    pub fn into_result(self) -> Result<Snapshot, RunError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.snapshot),
        }
    }
}

impl Session {
    /// A session on one port. Packets that its handler leaves in the burst go out of the same port;
    /// the default handler takes all packets ([`Deliver`]).
    pub fn on<P: IntoPort<Driver: 'static>>(port: P) -> Builder<One<P::Driver>, Deliver> {
        Builder::new(One(port.into_port()), Box::new(|_| Deliver))
    }

    /// A session between two ports: what one receives, the other transmits.
    pub fn between<A: IntoPort<Driver: 'static>, B: IntoPort<Driver: 'static>>(
        a: A,
        b: B,
    ) -> Builder<Two<A::Driver, B::Driver>, Forward> {
        let ports = Two(a.into_port(), b.into_port());
        Builder::new(ports, Box::new(|_| Forward))
    }

    /// A session among 2 to [`PORTS_MAX`] ports of one type, such as
    /// [`AnyPort`](crate::port::AnyPort). The handler chooses where each packet goes, with
    /// [`Packet::set_egress`](crate::packet::Packet::set_egress): to several ports as clones, which
    /// share its bytes, also back to the port that it came from. Without a choice it goes to the
    /// other one of two ports, and among more is dropped, as `drop.no_egress`. A handler that
    /// switches Ethernet frames is [`Bridge`](crate::bridge::Bridge).
    ///
    /// Each TX queue is shared by the RX queues of all ports, so two ports cost less in a session
    /// [between](Session::between) them. No port waits for another one: packets for which the queue
    /// of an egress has no space are dropped for it, as `drop.egress_full`, also during a pause of
    /// its TX queue ([`Command::Pause`]). Only an input that loses nothing by waiting waits
    /// ([`Capabilities::rx_waits`](crate::driver::Capabilities::rx_waits)).
    ///
    /// ```
    /// use packtrain::engine::{RxId, Session};
    /// use packtrain::packet::{Burst, PortSet};
    /// use packtrain::port;
    /// use packtrain::time::Instant;
    ///
    /// let ports = ["null:source,count=1000", "null:", "null:"].map(port::open);
    /// let ports = ports.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// // A hub: each packet goes to all other ports.
    /// let session = Session::among(ports).handler(|from: RxId| {
    ///     let others = PortSet::all_but(from.port);
    ///     move |_: Instant, _: RxId, burst: &mut Burst| {
    ///         burst.iter_mut().for_each(|packet| packet.set_egress(others));
    ///     }
    /// });
    /// let session = session.start()?;
    /// while !session.is_over() {
    ///     std::thread::sleep(std::time::Duration::from_millis(1));
    /// }
    /// let ledger = session.finish().snapshot.ledger;
    /// assert_eq!((ledger.received, ledger.expanded), (1000, 1000));
    /// assert_eq!((ledger.transmitted, ledger.closed()), (2000, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn among<P: IntoPort<Driver: 'static>>(
        ports: impl IntoIterator<Item = P>,
    ) -> Builder<Many<P::Driver>, Forward> {
        let ports = ports.into_iter().map(IntoPort::into_port).collect();
        Builder::new(Many(ports), Box::new(|_| Forward))
    }

    /// A handle to one TX queue, for a thread of the application; `None` for a queue that the port
    /// does not have, and if no senders were announced for the port ([`Builder::senders`]).
    #[must_use]
    pub fn handle(&self, port: usize, queue: usize) -> Option<TxHandle> {
        let to = self.handles.get(port)?.get(queue)?;
        Some(TxHandle::new(to, &self.arena, &self.runtime))
    }

    /// A handle to all TX queues of a port, which sends each flow to one of them; `None` as for
    /// [`Session::handle`].
    #[must_use]
    pub fn flows(&self, port: usize) -> Option<TxFlows> {
        let queues = self.handles.get(port).filter(|queues| !queues.is_empty())?;
        let handle = |to| TxHandle::new(to, &self.arena, &self.runtime);
        Some(TxFlows::new(queues.iter().map(handle)))
    }

    /// Pauses, resumes or resets queues, and returns their number. As [`Control::command`], it
    /// returns after their workers have carried it out, and a handler must not call it.
    ///
    /// # Errors
    ///
    /// See [`CommandError`].
    pub fn command(&self, queues: Queues, command: Command) -> Result<usize, CommandError> {
        self.control.command(queues, command)
    }

    /// The same for other threads, which take a clone.
    #[must_use]
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// The current counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.stats.snapshot()
    }

    /// A function that reads the counters as [`Session::snapshot`] does, on any thread and even
    /// after the end.
    pub fn counters(&self) -> impl Fn() -> Snapshot + Send + Sync + use<> {
        let stats = Arc::clone(&self.stats);
        move || stats.snapshot()
    }

    /// A function that reads what the steps have done, on any thread and even after the end.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn work(&self) -> impl Fn() -> super::snapshot::Work + Send + Sync + use<> {
        let stats = Arc::clone(&self.stats);
        move || stats.work()
    }

    /// The plan: which side does each offload, which parts each worker has, and the reasons.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The settings of the queues and threads, over which those of a port's own queues
    /// ([`Plan::work`]) take precedence: [`Settings::of_port`].
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The CPUs of the workers' threads, and the reason.
    #[must_use]
    pub const fn placed(&self) -> &Placed {
        &self.placed
    }

    /// The arena of the packets.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.runtime.now().since(self.began)
    }

    /// The state of each port's link.
    pub fn links(&mut self) -> Vec<Link> {
        self.ports.iter_mut().map(|port| port.link()).collect()
    }

    /// Whether a worker has ended: the input ended, the packet limit was reached, or a device
    /// failed. The other workers end after they have sent the packets that they hold.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.intake.any_ended()
    }

    /// A descriptor that becomes readable when a worker has ended, for a thread that also waits for
    /// other events. `None` in virtual time.
    #[must_use]
    pub fn over_fd(&self) -> Option<BorrowedFd<'_>> {
        self.intake.over().fd()
    }

    /// Stops intake. The workers send the packets that they hold, and end.
    pub fn stop(&self) {
        self.intake.stop();
    }

    /// Stops intake, waits until the workers have ended, and returns the report. After
    /// [`Builder::assemble`], drop the workers first, or use [`Session::finish_with`].
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.intake.stop();
        let result = self.threads.join();
        self.report(result)
    }

    /// As [`Session::finish`], for workers that the caller has driven: runs them until they have
    /// ended, for 2 s at most.
    #[must_use]
    pub fn finish_with(mut self, workers: Vec<Worker>) -> Report {
        self.intake.stop();
        let result = run_to_end(workers, &*self.runtime);
        self.report(result)
    }

    fn report(&mut self, result: Result<(), RunError>) -> Report {
        let elapsed = self.elapsed();
        let now = self.ports.iter_mut().map(|port| port.device_counters());
        let devices = now
            .zip(&self.device_start)
            .map(|(now, start)| now.map(|now| now.since(&start.unwrap_or_default())));
        let devices = devices.collect();
        let mut error = result.err();
        if let Some(RunError {
            port: Some(port),
            name,
            ..
        }) = &mut error
        {
            *name = Some(self.stats.ports[*port].name.clone());
        }
        Report {
            snapshot: self.stats.snapshot(),
            devices,
            began: self.began,
            elapsed,
            placed: self.placed.clone(),
            error,
        }
    }
}
