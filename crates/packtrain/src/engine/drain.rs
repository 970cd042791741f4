//! The TX worker's part of a shared TX queue: it drains packets that producers defer to it,
//! restarts a stalled device, and collects completions.

use super::control::{Command, Commanded, Half, Queues};
use super::error::RunError;
use super::shared::{Role, SharedTx, drain};
use super::worker::Part;
use crate::driver::{Armed, DeviceError, Interest, TxDescriptors};
use crate::policy::dispatch::{BUDGET, Dispatch, RingState};
use crate::queue::TxQueue;
use crate::queue::ring::{Attended, Drain, Kept, Release, Source, Turn};
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

/// The longest sleep. Completions wake the TX worker only if packets wait for them, so the watchdog
/// needs a step at this interval to find a hung device.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// One shared TX queue of a TX worker.
#[derive(Debug)]
pub(super) struct TxDrain<T: TxDescriptors> {
    shared: Arc<SharedTx<T>>,
    /// The consumer role, kept from one step to the next.
    kept: Option<Kept>,
    interrupt: Arc<Interrupt>,
    /// The descriptor of the device, duplicated: another thread may have the queue while the worker
    /// sleeps.
    device: Option<OwnedFd>,
    /// The worker has lanes too, which may never let it sleep. So under `adaptive` an empty poll
    /// ends the kept role.
    beside_lanes: bool,
    /// The readiness of the device's descriptor that ends the worker's sleep.
    interest: Option<Interest>,
    /// The worker needs the role before it sleeps: it was woken or notified since it last had the
    /// role, or it left the ring stalled and has not armed the device.
    attends: bool,
    /// Intake has stopped, and the last step did not get the role: the worker takes another step
    /// before it sleeps.
    missed: bool,
    /// The device woke the worker since it last had the role.
    interrupted: bool,
    /// The next step needs the role in any state of the ring.
    recheck: bool,
    /// When the queue needs a step without a wake-up, as of the last time that the worker had the
    /// role.
    retry_at: Option<Instant>,
    gap_until: Option<Instant>,
    stepped_at: Instant,
    stopped: bool,
    over: bool,
    /// Packets that the worker took out of rings.
    drained: Arc<Counter>,
}

impl<T: TxDescriptors> TxDrain<T> {
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
            kept: None,
            interrupt,
            device,
            beside_lanes,
            interest: None,
            attends: false,
            missed: false,
            interrupted: false,
            recheck: false,
            retry_at: None,
            gap_until: None,
            stepped_at: Instant::default(),
            stopped: false,
            over: false,
            drained,
        }
    }

    /// Resumes the kept role, or claims it if `needs` accepts the state of the ring.
    fn claim<'a>(
        shared: &'a SharedTx<T>,
        kept: &mut Option<Kept>,
        needs: impl Fn(RingState) -> bool,
    ) -> Option<Role<'a, T>> {
        if let Some(kept) = kept.take() {
            return Some(shared.ring.resume(kept));
        }
        match shared.ring.attend(needs, false) {
            Attended::Claimed(role) => Some(role),
            Attended::Busy | Attended::NotNeeded(_) => None,
        }
    }

    /// Stores when the worker needs its next step, and which readiness of the device wakes it.
    /// Requires the role.
    fn note(&mut self, role: &mut Role<'_, T>) {
        let consumer = role.state();
        let ready = consumer.is_ready();
        let Some(queue) = &mut consumer.queue else {
            return;
        };
        let waits = !ready || (self.stopped && queue.in_flight() > 0);
        self.retry_at = queue.retry_at(self.stepped_at);
        self.interest = queue.wake().filter(|_| waits).map(|(_, interest)| interest);
    }

    fn keep(&mut self, role: Role<'_, T>) {
        let (kept, wake) = role.keep();
        self.kept = Some(kept);
        if wake {
            self.shared.waiters.wake_all(&self.shared.ring);
        }
    }

    fn release(&mut self, role: Role<'_, T>, to: Release) {
        // The releasing worker need not notify itself.
        if role.release(to).wake_waiters {
            self.shared.waiters.wake_all(&self.shared.ring);
        }
    }

    /// Releases the ring as idle. If a slot was reserved meanwhile, keeps the role and returns
    /// false.
    fn release_idle(&mut self, role: Role<'_, T>) -> bool {
        match role.release_idle() {
            Ok(released) => {
                if released.wake_waiters {
                    self.shared.waiters.wake_all(&self.shared.ring);
                }
                true
            }
            Err(role) => {
                self.keep(role);
                false
            }
        }
    }

    /// Drains, and releases or keeps the role. Returns whether there may be more to do.
    fn work(
        &mut self,
        mut role: Role<'_, T>,
        now: Instant,
        lanes: u32,
    ) -> Result<bool, DeviceError> {
        let dispatch = self.shared.dispatch;
        let keeps = dispatch.keeps_until_sleep();
        self.attends = false;
        self.missed = false;
        self.gap_until = None;
        let interrupted = std::mem::take(&mut self.interrupted);
        let recheck = std::mem::take(&mut self.recheck);
        let consumer = role.state();
        if let Some(queue) = &mut consumer.queue {
            if interrupted {
                queue.note_wakeup();
            }
            if self.stopped && queue.is_stopped() {
                // A stop overrides a pause.
                queue.resume();
            }
            let before = queue.counters().reclaimed.get();
            if queue.in_flight() > 0 || !queue.is_ready() || recheck {
                queue.service(now)?;
            }
            if queue.counters().reclaimed.get() != before {
                // This poll found the completions for which the device was armed, without its
                // wake-up.
                queue.note_wakeup();
            }
        }
        let gives_back = self.beside_lanes && dispatch == Dispatch::Adaptive;
        let mut left = BUDGET;
        let ended = drain(&mut role, &mut left);
        self.drained.add((BUDGET - left) as u64);
        let consumer = role.state();
        consumer.end();
        if let Some(error) = consumer.take_error() {
            return Err(error);
        }
        let in_flight = consumer.queue.as_ref().map_or(0, TxQueue::in_flight);
        self.note(&mut role);
        Ok(match ended {
            Drain::Empty if self.stopped && lanes == 0 && in_flight == 0 => {
                // The ring is closed to applications and the lanes have ended. If a slot was
                // reserved before that, the next step drains it.
                self.over = self.shared.ring.is_empty();
                self.keep(role);
                !self.over
            }
            Drain::Empty if keeps && (left < BUDGET || !gives_back) => {
                self.keep(role);
                left < BUDGET
            }
            Drain::Empty => !self.release_idle(role),
            Drain::Budget if keeps => {
                self.keep(role);
                true
            }
            Drain::Budget => {
                self.release(role, Release::Abdicated);
                true
            }
            Drain::Stalled => {
                self.release(role, Release::Stalled);
                self.attends = true;
                false
            }
            Drain::Gap => {
                self.release(role, Release::Gap);
                self.gap_until = Some(now.after(GAP_RETRY));
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
        if let Some(queue) = &mut consumer.queue {
            paused = queue.is_stopped();
            if !paused && (!ready || (self.stopped && queue.in_flight() > 0)) {
                armed = queue.arm();
            }
        }
        self.note(&mut role);
        if armed == Armed::WorkPending {
            self.recheck = true;
            self.keep(role);
            return armed;
        }
        if !ready || paused {
            self.release(role, Release::Stalled);
            return Armed::Idle;
        }
        match self.release_idle(role) {
            true => Armed::Idle,
            false => Armed::WorkPending,
        }
    }
}

impl<T: TxDescriptors> Part for TxDrain<T> {
    fn step(&mut self, now: Instant, began: Began, stopped: bool) -> Result<bool, RunError> {
        self.stepped_at = now;
        if self.interrupt.take() {
            self.interrupted = true;
            self.shared.counters.wakeups.add(u64::from(began.slept));
        }
        let in_flight = self.shared.stats.shown.in_flight.get() > 0;
        // Only a device with packets needs a poll when time ends a sleep.
        let due = self.retry_at.is_some_and(|at| now >= at);
        self.attends |= began.notified || self.interrupted || due || (began.slept && in_flight);
        if stopped && !self.stopped {
            self.stopped = true;
            self.shared.close(Source::Application);
        }
        if self.over {
            return Ok(false);
        }
        // Read before the state of the ring, since a lane deregisters after its last packet.
        let lanes = self.shared.lanes();
        // If the device raised its interrupt or `retry_at` has come, the values that `note` stored
        // are out of date.
        let signalled = self.interrupted || due;
        let polls = self.stopped || self.recheck || signalled || (in_flight && self.attends);
        let gap = self.gap_until;
        let needs = |state| match state {
            RingState::Idle => polls,
            RingState::Busy => false,
            RingState::Gap => gap.is_none_or(|until| now >= until),
            RingState::Abdicated | RingState::Stalled => true,
        };
        let shared = Arc::clone(&self.shared);
        let Some(role) = Self::claim(&shared, &mut self.kept, needs) else {
            self.missed = self.stopped;
            return Ok(false);
        };
        self.work(role, now, lanes)
            .map_err(|error| self.failed(error))
    }

    fn arm(&mut self) -> Armed {
        if self.over {
            return Armed::Idle;
        }
        let shared = Arc::clone(&self.shared);
        if let Some(kept) = self.kept.take() {
            return self.arm_and_release(shared.ring.resume(kept));
        }
        let stopped = self.stopped;
        let needs = |state| match state {
            RingState::Idle => stopped,
            RingState::Stalled => true,
            RingState::Busy | RingState::Abdicated | RingState::Gap => false,
        };
        // A consumer that releases the ring notifies the worker if ATTENTION is set. The worker
        // sets it only with a reason, since no producer claims the ring then.
        match shared.ring.attend(needs, self.stopped || self.attends) {
            Attended::Claimed(role) if self.missed => {
                self.recheck = true;
                self.keep(role);
                Armed::WorkPending
            }
            Attended::Claimed(role) => {
                self.attends = false;
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
        due.into_iter().flatten().min().filter(|_| !self.over)
    }

    fn is_over(&self) -> bool {
        self.over
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
        if self.over || !queues.has(Half::Tx, self.shared.id()) {
            return Ok(Some(Commanded::default()));
        }
        let shared = Arc::clone(&self.shared);
        let mut role = match self.kept.take() {
            Some(kept) => shared.ring.resume(kept),
            None => match shared.ring.attend(|_| true, true) {
                Attended::Claimed(role) => role,
                Attended::Busy | Attended::NotNeeded(_) => return Ok(None),
            },
        };
        let consumer = role.state();
        let done = match &mut consumer.queue {
            Some(queue) => command.apply(queue, now),
            None => Ok(Commanded::default()),
        };
        consumer.end();
        // The next step continues with the role.
        self.keep(role);
        done.map(Some).map_err(|error| self.failed(error))
    }

    fn abandon(&mut self, reason: DropReason) -> bool {
        let shared = Arc::clone(&self.shared);
        if !shared.ring.is_closed(Source::Lane) {
            let broken = reason == DropReason::DeviceReset;
            shared.broken.store(broken, Ordering::Release);
            shared.close(Source::Lane);
        }
        let mut role = match self.kept.take() {
            Some(kept) => shared.ring.resume(kept),
            None => match shared.ring.attend(|_| true, true) {
                Attended::Claimed(role) => role,
                Attended::Busy | Attended::NotNeeded(_) => return false,
            },
        };
        // One more than the ring has slots: a turn that takes nothing counts as an item.
        let drained = role.drain(shared.ring.capacity() + 1, |consumer, items| {
            consumer.abandon(items, reason);
            Turn::More
        });
        // Producers still publish slots that they reserved before the ring was closed.
        let ended = drained == Drain::Empty;
        if ended {
            drop(role.state().take_queue());
        }
        self.over = ended;
        self.keep(role);
        ended
    }

    fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest)) {
        let interest = self.interest.filter(|_| !self.over);
        if let Some((device, interest)) = self.device.as_ref().zip(interest) {
            visit(device.as_fd(), interest);
        }
    }

    fn woken_by(&mut self, fd: RawFd) {
        if self
            .device
            .as_ref()
            .is_some_and(|device| device.as_raw_fd() == fd)
        {
            self.interrupted = true;
            // No interest until the worker has the role again: the descriptor may stay ready while
            // another thread has the role.
            self.interest = None;
            self.shared.counters.wakeups.add(1);
        }
    }
}
