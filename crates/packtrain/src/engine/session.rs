//! Two ports from opening to the final account: what a program needs around the workers.

use super::control::{Command, CommandError, Control, TxQueues};
use super::error::RunError;
use super::handle::{TxHandle, TxHandles};
use super::handler::{Forward, Handler, Port};
use super::interrupts::Interrupts;
use super::settings::{Follower, Settings};
use super::shell::Running;
use super::snapshot::{Snapshot, Stats};
use super::{arena_config, join_with};
use crate::driver::{DeviceCounters, DeviceError, Driver, Link};
use crate::packet::Arena;
use crate::plan::Plan;
use crate::policy::SettingError;
use crate::policy::placement::Placed;
use crate::policy::priority::Priority;
use crate::time::{Clock, MonotonicClock};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two ports that are being joined by threads of their own.
#[derive(Debug)]
pub struct Session<A, B> {
    // First, also when a panic drops it: workers end before what they work with does, and the arena
    // is then given back at once.
    running: Running,
    a: A,
    b: B,
    arena: Arena,
    stats: Arc<Stats>,
    handles: TxHandles,
    follower: Follower,
    start: Instant,
    began: crate::time::Instant,
    device_start: [Option<DeviceCounters>; 2],
    interrupts_start: Option<Interrupts>,
}

/// The final account of a session.
#[derive(Debug)]
pub struct Report {
    /// All counters; nothing moves any more, so the ledger is exact.
    pub snapshot: Snapshot,
    /// What each port's other side counted during the session, where it counts.
    pub devices: [Option<DeviceCounters>; 2],
    /// Interrupts between all CPUs of the system during the session, where it counts them.
    pub interrupts: Option<Interrupts>,
    /// When it started, on the clock of whatever else in here has a time.
    pub began: crate::time::Instant,
    /// Wall-clock time from start to end.
    pub elapsed: Duration,
    /// Where the threads of the workers ran at the end, and why.
    pub placed: Placed,
    /// How often that was decided again, since the CPUs that may be used had changed.
    pub placement_changes: u64,
    /// Why it ended early, if a device failed, and which.
    pub error: Option<RunError>,
}

impl<A: Driver, B: Driver> Session<A, B>
where
    A::Rx: 'static,
    A::Tx: 'static,
    B::Rx: 'static,
    B::Tx: 'static,
{
    /// Attaches both ports as `plan` says and forwards between them. `packets` limits what is
    /// taken in.
    ///
    /// # Errors
    ///
    /// A port's, or the system's when there is no memory or no thread.
    pub fn forward(a: A, b: B, plan: &Plan, packets: Option<u64>) -> Result<Self, DeviceError> {
        Self::start(a, b, plan, packets, || Forward)
    }

    /// As [`Session::forward`], with settings of one's own.
    ///
    /// # Errors
    ///
    /// As [`Session::forward`]; also when a setting asks for what this machine has not.
    pub fn forward_with(
        a: A,
        b: B,
        plan: &Plan,
        packets: Option<u64>,
        settings: &Settings,
    ) -> Result<Self, DeviceError> {
        Self::start_with(a, b, plan, packets, settings, || Forward)
    }

    /// As [`Session::forward`], with `handler` called for each worker's own handler.
    ///
    /// # Errors
    ///
    /// As [`Session::forward`].
    pub fn start<H: Handler + 'static>(
        a: A,
        b: B,
        plan: &Plan,
        packets: Option<u64>,
        handler: impl FnMut() -> H,
    ) -> Result<Self, DeviceError> {
        Self::start_with(a, b, plan, packets, &Settings::default(), handler)
    }

    /// As [`Session::start`], with settings of one's own.
    ///
    /// # Errors
    ///
    /// As [`Session::forward_with`].
    pub fn start_with<H: Handler + 'static>(
        mut a: A,
        mut b: B,
        plan: &Plan,
        packets: Option<u64>,
        settings: &Settings,
        handler: impl FnMut() -> H,
    ) -> Result<Self, DeviceError> {
        let wrong = |error: SettingError| DeviceError::Unsupported(error.to_string());
        settings.check().map_err(wrong)?;
        let failed = |action| move |source| DeviceError::Failed { action, source };
        if let Priority::Nice(_) = settings.priority {
            let tried = settings.try_priority();
            tried.map_err(failed("give a worker's thread its priority"))?;
        }
        let arena = memory(plan).map_err(failed("map memory for packets"))?;
        let joined = join_with(&mut a, &mut b, plan, &arena, packets, settings, handler)?;
        let paired = plan.worker_per_direction();
        let follower = Follower::new(settings, joined.workers.len(), paired);
        let cpus = &follower.placed.cpus;
        let device_start = [a.device_counters(), b.device_counters()];
        let interrupts_start = Interrupts::now();
        let start = Instant::now();
        let began = MonotonicClock::new().now();
        let (workers, intake) = (joined.workers, joined.intake);
        let running = Running::start_with(workers, intake, settings, cpus)
            .map_err(failed("start a worker thread"))?;
        Ok(Self {
            a,
            b,
            arena,
            running,
            stats: joined.stats,
            handles: joined.handles,
            follower,
            start,
            began,
            device_start,
            interrupts_start,
        })
    }

    /// Whether the workers ended: the input or the count came to its end, or a device failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running.any_ended()
    }

    /// Readable once a worker has ended, for a thread that waits for other things as well. A
    /// moment later [`is_over`](Self::is_over) is true.
    #[must_use]
    pub fn over_fd(&self) -> BorrowedFd<'_> {
        self.running.stopped_fd()
    }

    /// The counters as of now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.stats.snapshot()
    }

    /// The TX queues, for threads of the application that send too.
    #[must_use]
    pub const fn tx_handles(&self) -> &TxHandles {
        &self.handles
    }

    /// A handle to one TX queue, for a thread of the application; `None` for a queue that the port
    /// does not have.
    #[must_use]
    pub fn tx_handle(&self, port: Port, queue: usize) -> Option<TxHandle> {
        self.handles.queue(port, queue)
    }

    /// Pauses, resumes or resets TX queues, and says how many they are. As
    /// [`Control::command`]: returns when their workers have done it, and is not for handlers.
    ///
    /// # Errors
    ///
    /// See [`CommandError`].
    pub fn command(&self, queues: TxQueues, command: Command) -> Result<usize, CommandError> {
        self.running.command(queues, command)
    }

    /// The same for other threads: to be cloned.
    #[must_use]
    pub const fn control(&self) -> &Control {
        self.running.control()
    }

    /// Where the threads of the workers run, and why.
    #[must_use]
    pub const fn placed(&self) -> &Placed {
        &self.follower.placed
    }

    /// Looks whether the calling thread may use other CPUs than at the last look, and if so decides
    /// anew where the threads of the workers run. They follow; who may stay, stays. Returns what
    /// came of it, if there was anything to decide.
    ///
    /// For the thread that started the session, now and then: once a second is often enough, and a
    /// look that finds nothing takes one system call. A mask that is set for the whole process (as
    /// `taskset -ap` does), a cpuset of its control group, and CPUs that go offline all show there.
    pub fn follow_cpus(&mut self) -> Option<&Placed> {
        let changed = self.follower.has_changed();
        // A thread that was too late for its CPU is told again.
        if !changed && !self.running.was_seat_refused() {
            return None;
        }
        self.running.seat(self.follower.decide_again().into_iter());
        changed.then_some(&self.follower.placed)
    }

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The state of both links.
    pub fn links(&mut self) -> [Link; 2] {
        [self.a.link(), self.b.link()]
    }

    /// The memory of the packets.
    #[must_use]
    pub const fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Stops intake, lets the workers send on what they hold, and draws the final account.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.running.stop();
        let result = self.running.join();
        let elapsed = self.start.elapsed();
        let interrupts = Interrupts::now().zip(self.interrupts_start);
        let interrupts = interrupts.map(|(now, start)| now.since(start));
        let devices = [self.a.device_counters(), self.b.device_counters()];
        let mut changes = [None, None];
        for ((change, now), start) in changes.iter_mut().zip(devices).zip(self.device_start) {
            *change = now.map(|now| now.since(&start.unwrap_or_default()));
        }
        let mut error = result.err();
        if let Some(RunError {
            port: Some(port),
            name,
            ..
        }) = &mut error
        {
            *name = Some(self.stats.ports[port.index()].name.clone());
        }
        Report {
            snapshot: self.stats.snapshot(),
            devices: changes,
            interrupts,
            began: self.began,
            elapsed,
            placed: self.follower.placed,
            placement_changes: self.follower.changes,
            error,
        }
    }
}

/// The arena for `plan`, or an error that says how much memory it would take.
fn memory(plan: &Plan) -> io::Result<Arena> {
    let config = arena_config(plan);
    Arena::new(config).map_err(|error| {
        let queues: usize = plan.attach.iter().map(|attach| attach.queues).sum();
        let mib = config.bytes() >> 20;
        io::Error::new(
            error.kind(),
            format!(
                "{queues} queues take {mib} MiB: {error}; use fewer queues or smaller rings, or \
                 allow more memory"
            ),
        )
    })
}
