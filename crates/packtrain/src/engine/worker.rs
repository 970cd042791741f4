//! A worker: a list of parts that one thread steps, and what that thread does next.

use super::control::{Command, Commanded, Desk, Half, Inbox, Letter, Queues};
use super::error::RunError;
use super::intake::Intake;
use super::shell::{Action, Observation, Shell};
use crate::driver::{Armed, Interest};
use crate::runtime::{Began, Notifier, Sleeper, Wakeup};
use crate::stats::{Counter, DropReason, QueueId};
use crate::sync::spin;
use crate::time::Instant;
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicI8;

/// What a worker counts besides its queues. One writer: the worker.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WorkerCounters {
    /// Steps taken.
    pub(super) steps: Counter,
    /// Times it went to sleep.
    pub(super) sleeps: Counter,
    /// Sleeps that a device or another thread ended. The others lasted as long as they were meant
    /// to.
    pub(super) wakeups: Counter,
    /// Packets that it took out of the rings of shared TX queues.
    pub(super) drained: Arc<Counter>,
    /// Context switches since it gave the CPU away; these two and `cpu_ns` are up to 10 ms old.
    pub(super) voluntary_switches: Counter,
    /// Context switches since the CPU was taken from it.
    pub(super) involuntary_switches: Counter,
    /// Nanoseconds of CPU time.
    pub(super) cpu_ns: Counter,
    /// System calls to wait, to be woken, and to read these counters.
    pub(super) syscalls: Counter,
    /// Nice value of its thread, as it was given at the start. 0 without a thread.
    pub(super) nice: AtomicI8,
}

/// One part of a worker: the lanes of a direction, or one shared TX queue. No call blocks.
pub(super) trait Part: Send {
    /// Moves packets. Returns whether there may be more to do now.
    fn step(&mut self, now: Instant, began: Began, stopped: bool) -> Result<bool, RunError>;

    /// The worker is about to sleep: asks every device that can go on for a wake-up.
    fn arm(&mut self) -> Armed;

    /// When there is something to do though nothing wakes the worker.
    fn next_at(&self, now: Instant) -> Option<Instant>;

    /// Once intake has stopped: whether nothing is held, in flight, or about to come.
    fn is_over(&self) -> bool;

    /// Wire packets in it.
    fn held(&self) -> u64;

    /// Does `command` to those of `queues` that it has. `None`: a producer drains one of them at
    /// this moment; try again.
    fn command(
        &mut self,
        command: Command,
        queues: Queues,
        now: Instant,
    ) -> Result<Option<Commanded>, RunError>;

    /// Counts everything that it holds as lost for `reason`, and takes nothing more. False while a
    /// producer is still writing into a ring: try again.
    fn abandon(&mut self, reason: DropReason) -> bool;

    /// Descriptors that end the worker's sleep.
    fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest));

    /// This descriptor ended the worker's sleep.
    fn woken_by(&mut self, fd: RawFd);
}

/// A part, and the queues that it has.
pub(super) struct Placed {
    pub(super) part: Box<dyn Part>,
    pub(super) queues: Vec<(Half, QueueId)>,
}

/// Moves packets between the queues that it has. It never blocks.
///
/// [`Session`](super::Session) runs workers on threads. Another event loop calls [`Worker::run`]
/// and does what it returns:
///
/// - [`Action::Step`], [`Action::Spin`], [`Action::Yield`]: call `run` again, at once or soon;
/// - [`Action::Sleep`]: wait until one of [`Worker::interests`] is ready, call
///   [`Worker::woken_by`] for each, then `run`; not longer than until the time given;
/// - [`Action::Done`]: the worker has ended.
///
/// A worker that is dropped stops the run.
pub struct Worker {
    parts: Vec<Placed>,
    sleeper: Sleeper,
    shell: Shell,
    intake: Arc<Intake>,
    inbox: Inbox,
    /// A command that a part could not do yet.
    pending: Option<Pending>,
    counters: Arc<WorkerCounters>,
    /// The worker ends: with this error, or since time is up.
    ending: Option<Result<(), RunError>>,
    over: bool,
}

/// A command, and the next part to do it.
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
        parts: Vec<Placed>,
        wakeup: Arc<Wakeup>,
        shell: Shell,
        intake: Arc<Intake>,
        counters: Arc<WorkerCounters>,
    ) -> Self {
        Self {
            parts,
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

    pub(super) const fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// How commands reach it.
    pub(super) fn desk(&self) -> Desk {
        let parts = self.parts.iter();
        let queues = parts.flat_map(|part| part.queues.iter().copied());
        self.inbox.desk(self.sleeper.wakeup(), queues.collect())
    }

    /// One step: moves at most 64 packets of each RX queue, and drains at most 256 of each ring.
    /// Then says what to do next.
    ///
    /// # Errors
    ///
    /// When a device is gone or failed, and which. Intake has stopped then, and what the worker
    /// held is counted as lost (`drop.device_reset`). The worker has ended.
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
                    // Once more: a device that knows when it completes what it was armed for.
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

    fn step(&mut self, now: Instant, began: Began) -> Result<Observation, RunError> {
        let stopped = self.intake.is_stopped();
        let mut more = self.obey(now)?;
        for Placed { part, .. } in &mut self.parts {
            more |= part.step(now, began, stopped)?;
        }
        Ok(Observation {
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

    /// Carries out what other threads have asked for. Returns whether a command has to be tried
    /// again.
    fn obey(&mut self, now: Instant) -> Result<bool, RunError> {
        if self.pending.is_none() && !self.inbox.has_news() {
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

    /// Arms every part, also after one has said that it has work. If none has, the worker may
    /// sleep: a device makes a descriptor ready or raises an interrupt, and a thread notifies.
    fn arm(&mut self) -> Armed {
        let mut pending = self.pending.is_some();
        for Placed { part, .. } in &mut self.parts {
            pending |= part.arm() == Armed::WorkPending;
        }
        if pending || !self.sleeper.try_sleep() {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }

    /// Drops what is left, and ends once no producer is in the middle of a submission.
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
        // Threads that wait for an answer to a command get it.
        (self.pending, self.inbox) = (None, Inbox::default());
        self.intake.worker_ended();
        self.ending.take().unwrap_or(Ok(())).map(|()| Action::Done)
    }

    /// Ends the worker's sleep: the one that the [`Runtime`](crate::runtime::Runtime) made for it.
    #[must_use]
    pub fn notifier(&self) -> &dyn Notifier {
        self.sleeper.wakeup().notifier()
    }

    /// Wire packets in the worker's queues and rings.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.held()).sum()
    }

    /// What to wait for before the next step: the worker's own descriptor, RX queues that may
    /// receive, TX queues that packets wait for. The set may change with each step; the
    /// descriptors stay open as long as the worker exists.
    pub fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest)) {
        if let Some(fd) = self.sleeper.wakeup().notifier().fd() {
            visit(fd, Interest::Read);
        }
        for placed in &self.parts {
            placed.part.interests(visit);
        }
    }

    /// A descriptor ended the sleep: the wake-up of its queue is counted.
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
            let abandon = |placed: &mut Placed| placed.part.abandon(DropReason::Shutdown);
            self.over = self
                .parts
                .iter_mut()
                .map(abandon)
                .fold(true, |all, one| all & one);
            spin();
        }
    }
}
