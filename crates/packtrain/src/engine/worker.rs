//! A worker: a list of parts. One thread steps them, and does what each step returns.

use super::control::{Command, Commanded, Desk, Inbox, Letter, QueueKind, Queues};
use super::error::RunError;
use super::intake::Intake;
use super::shell::{Action, Shell, Stepped};
use crate::driver::{Armed, Interest};
use crate::runtime::{Began, Notifier, Sleeper, Wakeup};
use crate::stats::{Counter, DropReason, QueueId};
use crate::sync::spin;
use crate::time::Instant;
use packtrain_offload::random::Random;
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI8};

/// The counters of a worker, without those of its queues. Only the worker writes them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WorkerCounters {
    /// Steps taken.
    pub(super) steps: Counter,
    /// Times it went to sleep.
    pub(super) sleeps: Counter,
    /// Sleeps that a device or another thread ended. Other sleeps lasted until their time.
    pub(super) wakeups: Counter,
    /// Packets that the worker took out of the rings of shared TX queues.
    pub(super) drained: Arc<Counter>,
    /// Voluntary context switches. These two and `cpu_ns` are up to 10 ms old.
    pub(super) voluntary_switches: Counter,
    /// Involuntary context switches.
    pub(super) involuntary_switches: Counter,
    /// Nanoseconds of CPU time.
    pub(super) cpu_ns: Counter,
    /// System calls to wait, to be woken, and to read these counters.
    pub(super) syscalls: Counter,
    /// Nice value of the worker's thread, as set at the start. 0 without a thread.
    pub(super) nice: AtomicI8,
    /// Whether that thread was given the class `SCHED_BATCH`.
    pub(super) batch: AtomicBool,
}

/// The CPU time and context switches of a thread since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// Voluntary context switches: the thread waited for something.
    pub voluntary_switches: u64,
    /// Involuntary context switches: the scheduler took the CPU away.
    pub involuntary_switches: u64,
}

/// One part of a worker: the lanes of a direction, or one shared TX queue. No call blocks.
pub(super) trait Part: Send {
    /// Moves packets. Returns whether there may be more to do now.
    fn step(&mut self, now: Instant, began: Began, stopped: bool) -> Result<bool, RunError>;

    /// Before a sleep: arms every device whose event can continue the work.
    fn arm(&mut self) -> Armed;

    /// The time of the next work for which nothing wakes the worker.
    fn next_at(&self, now: Instant) -> Option<Instant>;

    /// After intake has stopped: whether no packet is held or in flight, and none can arrive.
    fn is_over(&self) -> bool;

    /// Wire packets in the part.
    fn held(&self) -> u64;

    /// Carries out `command` on those of `queues` that the part has. Returns `None` if a producer
    /// is draining one of them: call again.
    fn command(
        &mut self,
        command: Command,
        queues: Queues,
        now: Instant,
    ) -> Result<Option<Commanded>, RunError>;

    /// Drops all packets that the part holds, counted under `reason`, and accepts no more. Returns
    /// false while a producer is still writing into a ring: call again.
    fn abandon(&mut self, reason: DropReason) -> bool;

    /// Descriptors that end the worker's sleep.
    fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest));

    /// Records that this descriptor ended the worker's sleep.
    fn woken_by(&mut self, fd: RawFd);
}

/// A part, and the queues that it has.
pub(super) struct WorkerPart {
    pub(super) part: Box<dyn Part>,
    pub(super) queues: Vec<(QueueKind, QueueId)>,
}

/// Moves packets between the queues that it has. It never blocks.
///
/// [`Session`](super::Session) runs workers on threads. Another event loop calls [`Worker::run`]
/// and does what it returns:
///
/// - [`Action::Step`], [`Action::Spin`], [`Action::Yield`]: call `run` again, at once or soon;
/// - [`Action::Sleep`]: wait until one of [`Worker::interests`] is ready, but no longer than until
///   the given time. Call [`Worker::woken_by`] for each ready one, then `run`;
/// - [`Action::Done`]: the worker has ended.
///
/// Dropping a worker stops the run.
pub struct Worker {
    parts: Vec<WorkerPart>,
    /// So many of the last parts send to the same rings. Which of them begins a step is drawn:
    /// otherwise one would always take the free space, or always at a certain step.
    rivals: usize,
    lots: Random,
    sleeper: Sleeper,
    shell: Shell,
    intake: Arc<Intake>,
    inbox: Inbox,
    /// A command that a part could not carry out yet.
    pending: Option<Pending>,
    counters: Arc<WorkerCounters>,
    /// The worker is ending: with this error, or without one at the end of the run.
    ending: Option<Result<(), RunError>>,
    over: bool,
}

/// A command, and the next part to carry it out.
struct Pending {
    letter: Letter,
    next: usize,
    sum: Commanded,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("parts", &self.parts.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Worker {
    pub(super) fn new(
        parts: Vec<WorkerPart>,
        wakeup: Arc<Wakeup>,
        shell: Shell,
        intake: Arc<Intake>,
        counters: Arc<WorkerCounters>,
    ) -> Self {
        Self {
            parts,
            rivals: 0,
            lots: Random::new(0),
            sleeper: Sleeper::new(wakeup),
            shell,
            intake,
            inbox: Inbox::default(),
            pending: None,
            counters,
            ending: None,
            over: false,
        }
    }

    /// The last `rivals` parts send to the same rings.
    pub(super) const fn with_rivals(mut self, rivals: usize) -> Self {
        self.rivals = rivals;
        self
    }

    pub(super) const fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// The address of the worker for commands.
    pub(super) fn desk(&self) -> Desk {
        let parts = self.parts.iter();
        let queues = parts.flat_map(|part| part.queues.iter().copied());
        self.inbox.desk(self.sleeper.wakeup(), queues.collect())
    }

    /// Takes one step: moves at most 64 packets of each RX queue, and drains at most 256 packets of
    /// each ring. Returns what to do next.
    ///
    /// # Errors
    ///
    /// If a device was removed or failed; the error names the port. Intake has stopped then, the
    /// worker has dropped the packets that it held (`drop.device_reset`), and it has ended.
    pub fn run(&mut self, now: Instant) -> Result<Action, RunError> {
        if self.over {
            return Ok(Action::Done);
        }
        if self.ending.is_some() {
            return self.end();
        }
        let began = self.sleeper.begin();
        self.counters.syscalls.add(began.syscalls);
        self.counters.steps.add(1);
        let seen = match self.step(now, began) {
            Ok(seen) => seen,
            Err(error) => {
                self.ending = Some(Err(error));
                return self.end();
            }
        };
        match self.shell.next(now, &seen) {
            Action::Sleep { until } => Ok(match self.arm() {
                Armed::WorkPending => Action::Step,
                Armed::Idle => {
                    self.counters.sleeps.add(1);
                    // Read again after arming: the device may now know when it completes the
                    // packets.
                    let until = until.into_iter().chain(self.next_at(now)).min();
                    Action::Sleep { until }
                }
            }),
            Action::Done => {
                self.ending = Some(Ok(()));
                self.end()
            }
            action => Ok(action),
        }
    }

    fn step(&mut self, now: Instant, began: Began) -> Result<Stepped, RunError> {
        let stopped = self.intake.is_stopped();
        let mut more = self.obey(now)?;
        let others = self.parts.len() - self.rivals;
        let (others, rivals) = self.parts.split_at_mut(others);
        for WorkerPart { part, .. } in others {
            more |= part.step(now, began, stopped)?;
        }
        if !rivals.is_empty() {
            let (last, first) = rivals.split_at_mut(self.lots.index(rivals.len()));
            for WorkerPart { part, .. } in first.iter_mut().chain(last) {
                more |= part.step(now, began, stopped)?;
            }
        }
        Ok(Stepped {
            more,
            over: stopped && self.parts.iter().all(|placed| placed.part.is_over()),
            stopped,
            // Only a worker that may sleep needs it.
            next_at: if more { None } else { self.next_at(now) },
        })
    }

    fn next_at(&self, now: Instant) -> Option<Instant> {
        let parts = self.parts.iter();
        parts.filter_map(|placed| placed.part.next_at(now)).min()
    }

    /// Carries out the commands of other threads. Returns whether one has to be retried.
    fn obey(&mut self, now: Instant) -> Result<bool, RunError> {
        if self.pending.is_none() && !self.inbox.has_letters() {
            return Ok(false);
        }
        loop {
            let taken = self.pending.take().or_else(|| {
                self.inbox.next().map(|letter| Pending {
                    letter,
                    next: 0,
                    sum: Commanded::default(),
                })
            });
            let Some(mut pending) = taken else {
                return Ok(false);
            };
            let (command, queues) = (pending.letter.command, pending.letter.queues);
            while let Some(placed) = self.parts.get_mut(pending.next) {
                match placed.part.command(command, queues, now)? {
                    Some(done) => pending.sum.add(done),
                    None => {
                        self.pending = Some(pending);
                        return Ok(true);
                    }
                }
                pending.next += 1;
            }
            pending.letter.answer(pending.sum);
        }
    }

    /// Arms every part, even after one has reported pending work. If none has, the worker may
    /// sleep: a ready descriptor, an interrupt or a notification wakes it.
    fn arm(&mut self) -> Armed {
        let mut pending = self.pending.is_some();
        for WorkerPart { part, .. } in &mut self.parts {
            pending |= part.arm() == Armed::WorkPending;
        }
        if pending || !self.sleeper.try_sleep() {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }

    /// Drops the remaining packets, and ends when no producer is in the middle of a submission.
    fn end(&mut self) -> Result<Action, RunError> {
        self.intake.stop();
        let reason = match self.ending {
            Some(Err(_)) => DropReason::DeviceReset,
            _ => DropReason::Shutdown,
        };
        let abandoned = self
            .parts
            .iter_mut()
            .map(|placed| placed.part.abandon(reason));
        if !abandoned.fold(true, |all, one| all & one) {
            return Ok(Action::Yield);
        }
        self.over = true;
        // The drop answers threads that wait for a command.
        (self.pending, self.inbox) = (None, Inbox::default());
        self.intake.worker_ended();
        self.ending.take().unwrap_or(Ok(())).map(|()| Action::Done)
    }

    /// When the worker needs a step that nothing wakes it for, as of its last step. For a runtime
    /// that counts the polls of a worker that never sleeps instead of running each.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    #[must_use]
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        self.next_at(now)
    }

    /// The notifier that ends the worker's sleep; the [`Runtime`](crate::runtime::Runtime) made it.
    #[must_use]
    pub fn notifier(&self) -> &dyn Notifier {
        self.sleeper.wakeup().notifier()
    }

    /// Publishes what the thread that drives the worker has used
    /// ([`WorkerSnapshot`](super::WorkerSnapshot)).
    pub fn publish(&self, usage: &ThreadUsage) {
        self.counters.cpu_ns.set(usage.cpu_ns);
        let (voluntary, involuntary) = (usage.voluntary_switches, usage.involuntary_switches);
        self.counters.voluntary_switches.set(voluntary);
        self.counters.involuntary_switches.set(involuntary);
    }

    /// Wire packets in the worker's queues and rings.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.held()).sum()
    }

    /// The descriptors to wait for before the next step: the worker's own, those of RX queues that
    /// may receive, and those of TX queues for which packets wait. The set may change with each
    /// step; the descriptors stay open as long as the worker exists, but for those of a device that
    /// was removed ([`Change::Restarted`](crate::driver::Change::Restarted)). Another one may have
    /// its number later, and a loop that remembers numbers has to register that; `WorkerFd` does.
    pub fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest)) {
        if let Some(fd) = self.sleeper.wakeup().notifier().fd() {
            visit(fd, Interest::Read);
        }
        for placed in &self.parts {
            placed.part.interests(visit);
        }
    }

    /// Records that a descriptor ended the sleep: counts a wake-up of its queue.
    pub fn woken_by(&mut self, fd: RawFd) {
        for placed in &mut self.parts {
            placed.part.woken_by(fd);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Also after a panic. The other workers end, and applications get `Closed`.
        self.intake.worker_ended();
        while !self.over {
            let abandon = |placed: &mut WorkerPart| placed.part.abandon(DropReason::Shutdown);
            self.over = self
                .parts
                .iter_mut()
                .map(abandon)
                .fold(true, |all, one| all & one);
            spin();
        }
    }
}
