//! The TX worker's part of a shared TX queue: it drains packets that producers defer to it,
//! restarts a stalled device, and collects completions.

use super::control::{Command, Commanded, QueueKind, Queues};
use super::egress::Egress;
use super::error::RunError;
use super::shared::{Role, SharedTx, drain};
use super::worker::Part;
use crate::driver::{Armed, DeviceError, Interest, TxDescriptors};
use crate::policy::dispatch::{BUDGET, Dispatch, RingState};
use crate::queue::ring::{Attended, Ended, Kept, ProducerKind, Turn};
use crate::runtime::{Began, Interrupt};
use crate::stats::{Counter, DropReason};
use crate::sync::Ordering;
use crate::time::Instant;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The time after which the TX worker rechecks a slot that is reserved and not published. Its
/// producer was probably preempted.
const GAP_RETRY: Duration = Duration::from_micros(50);

/// The longest sleep, and the longest time without the role while the device has packets.
/// Completions wake the TX worker only if packets wait for them, so the watchdog needs a step at
/// this interval to find a hung device.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// One shared TX queue of a TX worker.
#[derive(Debug)]
pub(super) struct TxPart<T: TxDescriptors> {
    shared: Arc<SharedTx<T>>,
    phase: Phase,
    reason: Reason,
    /// The consumer role, kept from one step to the next.
    kept: Option<Held>,
    interrupt: Arc<Interrupt>,
    /// The descriptor of the device, duplicated: another thread may have the queue while the worker
    /// sleeps.
    device: Option<OwnedFd>,
    /// [`TxQueue::restarts`](crate::queue::TxQueue::restarts) as of that descriptor.
    restarts: u32,
    /// The worker has lanes too, which may never let it sleep. So under `adaptive` an empty poll
    /// ends the kept role.
    beside_lanes: bool,
    /// The readiness of the device's descriptor that ends the worker's sleep.
    interest: Option<Interest>,
    /// When the queue needs a step without a wake-up, as of the last time that the worker had the
    /// role.
    retry_at: Option<Instant>,
    gap_until: Option<Instant>,
    stepped_at: Instant,
    /// When the worker had the role last, or the device last had no packet.
    worked_at: Instant,
    /// Packets that the worker took out of rings.
    drained: Arc<Counter>,
}

/// How far the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Intake has stopped, and the queue is closed to applications.
    Ending {
        /// The last step did not get the role: the worker takes another step before it sleeps.
        missed: bool,
    },
    /// The queue is empty and closed, and the device is not used any more.
    Over,
}

/// Why the worker needs the role before it sleeps, since it last had the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// It does not.
    None,
    /// It was notified, or time woke it, or it left the ring stalled and has not armed the device.
    Work,
    /// The device woke it.
    Interrupt,
}

/// The consumer role between two steps.
#[derive(Debug)]
struct Held {
    role: Kept,
    /// The next step services the queue in any state.
    recheck: bool,
}

impl<T: TxDescriptors> TxPart<T> {
    /// `device` is a duplicate of the device's descriptor, if it has one. `beside_lanes` says
    /// whether the worker also has lanes.
    pub(super) fn new(
        shared: Arc<SharedTx<T>>,
        interrupt: Arc<Interrupt>,
        device: Option<OwnedFd>,
        beside_lanes: bool,
        drained: Arc<Counter>,
    ) -> Self {
        Self {
            shared,
            phase: Phase::Running,
            reason: Reason::None,
            kept: None,
            interrupt,
            device,
            restarts: 0,
            beside_lanes,
            interest: None,
            retry_at: None,
            gap_until: None,
            stepped_at: Instant::default(),
            worked_at: Instant::default(),
            drained,
        }
    }

    const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// The worker has a reason at least as good as this one.
    fn needs(&mut self, reason: Reason) {
        self.reason = self.reason.max(reason);
    }

    /// Keeps the role until the next step. `recheck`: that step services the queue in any state.
    fn keep(&mut self, role: Role<'_, T>, recheck: bool) {
        let (role, wake) = role.keep();
        self.kept = Some(Held { role, recheck });
        if wake {
            self.shared.waiters.wake_all(&self.shared.ring);
        }
    }

    /// Releases the role after a drain. If a slot was reserved meanwhile, keeps it and returns
    /// false.
    fn release(&mut self, role: Role<'_, T>, ended: Ended) -> bool {
        match role.release(ended) {
            Ok(released) => {
                // The releasing worker need not notify itself.
                if released.wake_waiters {
                    self.shared.waiters.wake_all(&self.shared.ring);
                }
                true
            }
            Err(role) => {
                self.keep(role, false);
                false
            }
        }
    }

    /// The role that was kept, or one that is claimed in any state, and whether the next step
    /// rechecks. If another thread has it, that thread's release notifies the worker.
    fn take<'a>(&mut self, shared: &'a SharedTx<T>) -> Option<(Role<'a, T>, bool)> {
        if let Some(Held { role, recheck }) = self.kept.take() {
            return Some((shared.ring.resume(role), recheck));
        }
        match shared.ring.attend(|_| true, true) {
            Attended::Claimed(role) => Some((role, false)),
            Attended::Busy | Attended::NotNeeded(_) => None,
        }
    }

    /// Stores when the worker needs its next step, and which readiness of the device wakes it.
    /// Requires the role.
    fn note(&mut self, role: &mut Role<'_, T>) {
        let consumer = role.state();
        let ready = consumer.is_ready();
        let Some(egress) = &mut consumer.egress else {
            return;
        };
        let restarts = egress.queue.restarts();
        if std::mem::replace(&mut self.restarts, restarts) != restarts {
            let wake = egress.queue.device_mut().wake();
            // Without a free descriptor the watchdog polls a device that packets wait for.
            self.device = wake.and_then(|(fd, _)| fd.try_clone_to_owned().ok());
        }
        let waits = !ready || egress.waits(self.is_ending());
        let wake = egress.queue.wake().filter(|_| waits);
        self.retry_at = egress.queue.retry_at(self.stepped_at);
        self.interest = wake.map(|(_, interest)| interest);
    }

    /// Drains, and releases or keeps the role. Returns whether there may be more to do.
    fn work(
        &mut self,
        mut role: Role<'_, T>,
        recheck: bool,
        now: Instant,
        lanes: u32,
    ) -> Result<bool, DeviceError> {
        let dispatch = self.shared.dispatch;
        let keeps = dispatch.keeps_until_sleep();
        let ending = self.is_ending();
        self.worked_at = now;
        if ending {
            self.phase = Phase::Ending { missed: false };
        }
        let reason = std::mem::replace(&mut self.reason, Reason::None);
        self.gap_until = None;
        let consumer = role.state();
        if let Some(egress) = &mut consumer.egress {
            if reason == Reason::Interrupt {
                egress.queue.note_wakeup();
            }
            if ending {
                // A stop overrides a pause.
                egress.queue.resume();
            }
            egress.begin(recheck, || now)?;
        }
        let gives_back = self.beside_lanes && dispatch == Dispatch::Adaptive;
        // No producer gave it the ring, but the device needed a poll. A worker that never sleeps
        // would keep the role from producers for good.
        let keeps_empty = keeps && role.from() != RingState::Idle;
        let mut left = BUDGET;
        let ended = drain(&mut role, &mut left);
        let took = left < BUDGET;
        self.drained.add((BUDGET - left) as u64);
        let consumer = role.state();
        consumer.end();
        if let Some(error) = consumer.take_error() {
            return Err(error);
        }
        let waits = |egress: &Egress<T>| egress.queue.in_flight() > 0;
        let waits = consumer.egress.as_ref().is_some_and(waits);
        self.note(&mut role);
        Ok(match ended {
            Ended::Empty if ending && lanes == 0 && !waits => {
                // The ring is closed to applications and the lanes have ended. If a slot was
                // reserved before that, the next step drains it.
                let over = self.shared.ring.is_empty();
                if over {
                    self.phase = Phase::Over;
                }
                self.keep(role, false);
                !over
            }
            Ended::Empty if keeps_empty && (took || !gives_back) => {
                self.keep(role, false);
                took
            }
            Ended::Budget if keeps => {
                self.keep(role, false);
                true
            }
            Ended::Empty => !self.release(role, ended),
            Ended::Budget => {
                self.release(role, ended);
                true
            }
            Ended::Stalled => {
                self.needs(Reason::Work);
                self.release(role, ended);
                false
            }
            Ended::Gap => {
                self.gap_until = Some(now.after(GAP_RETRY));
                self.release(role, ended);
                false
            }
        })
    }

    fn failed(&self, error: DeviceError) -> RunError {
        RunError::of(self.shared.id().port.into(), error)
    }

    /// Before a sleep, with the role: arms the device if packets wait for it, and releases the
    /// ring.
    fn arm_and_release(&mut self, mut role: Role<'_, T>) -> Armed {
        let consumer = role.state();
        let ready = consumer.is_ready();
        let mut armed = Armed::Idle;
        let mut paused = false;
        if let Some(egress) = &mut consumer.egress {
            paused = egress.queue.is_stopped();
            if !paused && (!ready || egress.waits(self.is_ending())) {
                armed = egress.queue.arm();
            }
        }
        self.note(&mut role);
        if armed == Armed::WorkPending {
            self.keep(role, true);
            return armed;
        }
        let ended = match ready && !paused {
            true => Ended::Empty,
            false => Ended::Stalled,
        };
        match self.release(role, ended) {
            true => Armed::Idle,
            false => Armed::WorkPending,
        }
    }
}

impl<T: TxDescriptors> Part for TxPart<T> {
    fn step(&mut self, now: Instant, began: Began, stopped: bool) -> Result<bool, RunError> {
        self.stepped_at = now;
        if self.interrupt.take() {
            self.needs(Reason::Interrupt);
            self.shared.counters.wakeups.add(u64::from(began.slept));
        }
        let in_flight = self.shared.stats.shown.in_flight.get() > 0;
        // If the device raised its interrupt or `retry_at` has come, the values that `note` stored
        // are out of date.
        let due = self.retry_at.is_some_and(|at| now >= at);
        let signalled = due || self.reason == Reason::Interrupt;
        // Only a device with packets needs a poll when time ends a sleep. A worker that never
        // sleeps polls it as often.
        if !in_flight {
            self.worked_at = now;
        }
        let is_late = began.slept || now.since(self.worked_at) >= SLEEP_MAX;
        if began.notified || due || (in_flight && is_late) {
            self.needs(Reason::Work);
        }
        if stopped && self.phase == Phase::Running {
            self.phase = Phase::Ending { missed: false };
            self.shared.close(ProducerKind::Application);
        }
        if self.is_over() {
            return Ok(false);
        }
        // Read before the state of the ring, since a lane deregisters after its last packet.
        let lanes = self.shared.lanes();
        let shared = Arc::clone(&self.shared);
        if let Some(Held { role, recheck }) = self.kept.take() {
            let worked = self.work(shared.ring.resume(role), recheck, now, lanes);
            return worked.map_err(|error| self.failed(error));
        }
        let polls = self.is_ending() || signalled || (in_flight && self.reason != Reason::None);
        let gap = self.gap_until;
        let needs = |state| match state {
            RingState::Idle => polls,
            RingState::Busy => false,
            RingState::Gap => gap.is_none_or(|until| now >= until),
            RingState::Abdicated | RingState::Stalled => true,
        };
        let Attended::Claimed(role) = shared.ring.attend(needs, false) else {
            if let Phase::Ending { missed } = &mut self.phase {
                *missed = true;
            }
            return Ok(false);
        };
        self.work(role, false, now, lanes)
            .map_err(|error| self.failed(error))
    }

    fn arm(&mut self) -> Armed {
        if self.is_over() {
            return Armed::Idle;
        }
        let shared = Arc::clone(&self.shared);
        if let Some(Held { role, .. }) = self.kept.take() {
            return self.arm_and_release(shared.ring.resume(role));
        }
        let ending = self.is_ending();
        let needs = |state| match state {
            RingState::Idle => ending,
            RingState::Stalled => true,
            RingState::Busy | RingState::Abdicated | RingState::Gap => false,
        };
        // A consumer that releases the ring notifies the worker if ATTENTION is set. The worker
        // sets it only with a reason, since no producer claims the ring then.
        let request = ending || self.reason != Reason::None;
        match shared.ring.attend(needs, request) {
            Attended::Claimed(role) if self.phase == (Phase::Ending { missed: true }) => {
                self.keep(role, true);
                Armed::WorkPending
            }
            Attended::Claimed(role) => {
                if self.reason == Reason::Work {
                    self.reason = Reason::None;
                }
                self.arm_and_release(role)
            }
            Attended::Busy | Attended::NotNeeded(RingState::Idle) => Armed::Idle,
            Attended::NotNeeded(RingState::Gap) if self.gap_until.is_some() => Armed::Idle,
            Attended::NotNeeded(_) => Armed::WorkPending,
        }
    }

    fn next_at(&self, _now: Instant) -> Option<Instant> {
        let last = self.stepped_at.after(SLEEP_MAX);
        let due = [self.retry_at, self.gap_until, Some(last)];
        due.into_iter().flatten().min().filter(|_| !self.is_over())
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn held(&self) -> u64 {
        self.shared.stats.snapshot().held
    }

    fn command(
        &mut self,
        command: Command,
        queues: Queues,
        now: Instant,
    ) -> Result<Option<Commanded>, RunError> {
        if self.is_over() || !queues.has(QueueKind::Tx, self.shared.id()) {
            return Ok(Some(Commanded::default()));
        }
        let shared = Arc::clone(&self.shared);
        let Some((mut role, recheck)) = self.take(&shared) else {
            return Ok(None);
        };
        let consumer = role.state();
        let done = match &mut consumer.egress {
            Some(egress) => command.apply(&mut egress.queue, now),
            None => Ok(Commanded::default()),
        };
        consumer.end();
        // The next step continues with the role.
        self.keep(role, recheck);
        done.map(Some).map_err(|error| self.failed(error))
    }

    fn abandon(&mut self, reason: DropReason) -> bool {
        let shared = Arc::clone(&self.shared);
        if !shared.ring.is_closed(ProducerKind::Lane) {
            let broken = reason == DropReason::DeviceReset;
            shared.broken.store(broken, Ordering::Release);
            shared.close(ProducerKind::Lane);
        }
        let Some((mut role, _)) = self.take(&shared) else {
            return false;
        };
        // One more than the ring has slots: a turn that takes nothing counts as an item.
        let drained = role.drain(shared.ring.capacity() + 1, |consumer, items| {
            consumer.abandon(items, reason);
            Turn::More
        });
        // Producers still publish slots that they reserved before the ring was closed.
        let ended = drained == Ended::Empty;
        if ended {
            drop(role.state().egress.take());
            self.phase = Phase::Over;
        }
        self.keep(role, false);
        ended
    }

    fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest)) {
        let interest = self.interest.filter(|_| !self.is_over());
        if let Some((device, interest)) = self.device.as_ref().zip(interest) {
            visit(device.as_fd(), interest);
        }
    }

    fn woken_by(&mut self, fd: RawFd) {
        let device = self.device.as_ref();
        if device.is_some_and(|device| device.as_raw_fd() == fd) {
            self.needs(Reason::Interrupt);
            // No interest until the worker has the role again: the descriptor may stay ready while
            // another thread has the role.
            self.interest = None;
            self.shared.counters.wakeups.add(1);
        }
    }
}
