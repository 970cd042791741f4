//! A TX queue as its worker sees it.

use super::control::Command;
use super::egress::{Egress, Producer, Visit};
use super::relief::Helpers;
use crate::driver::{Armed, DeviceError, Features, Interest, TxDescriptors};
use crate::limits::{TX_HUNG_AFTER, TX_POLL_AFTER};
use crate::packet::Burst;
use crate::policy::idle::Relief;
use crate::queue::ring::Status;
use crate::stats::{Counter, DropReason, QueueId, Stall, TxCounters};
use crate::time::Instant;
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A TX queue with the ring in front of it, and its worker's part in it. When it is dropped the
/// queue is closed: what is left is counted as lost, and applications are told.
#[derive(Debug)]
pub struct TxLane<T: TxDescriptors> {
    egress: Arc<Egress<T>>,
    own: Producer,
    visit: Visit,
    counters: Arc<TxCounters>,
    /// Whether the worker is among those that wait for space.
    waits: Cell<bool>,
    /// Armed, it found work: the next step looks at it, whatever can be seen.
    recheck: Cell<bool>,
    /// Since the last step the device was asked to wake the worker.
    asked: Cell<bool>,
    /// Its device woke the worker.
    woken: Cell<bool>,
    lookout: Lookout,
    helpers: Helpers,
    /// The last visit sent packets that were in the ring.
    found: bool,
    /// Until when the ring need not be looked at, since it had nothing for the worker and who
    /// leaves it anything says so; or as of now, since what is there is a producer's.
    quiet_until: Cell<Option<Instant>>,
}

/// A worker that does not sleep looks this often at a ring where applications send and that it was
/// told nothing of: packets that the device is done with may be all there is, and each look takes
/// away the lines that producers write with every packet.
const GLANCE_EVERY: Duration = Duration::from_millis(1);

/// When to look in on a device that applications give packets to: they tell nobody, and if it never
/// gives them back and they send no more, nobody else notices.
#[derive(Debug, Default)]
struct Lookout {
    due: Option<Instant>,
    /// Until the next look: longer while nothing is sent.
    wait: Duration,
    /// Packets given to the device as of the last look.
    packets: u64,
}

impl Lookout {
    /// Once a step.
    fn look(&mut self, now: Instant, wanted: bool, packets: &Counter) {
        if !wanted {
            self.due = None;
            return;
        }
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        let packets = packets.get();
        self.wait = if self.due.is_none() || packets != self.packets {
            TX_POLL_AFTER
        } else {
            (2 * self.wait).min(TX_HUNG_AFTER)
        };
        self.packets = packets;
        self.due = Some(now.after(self.wait));
    }
}

impl<T: TxDescriptors> TxLane<T> {
    pub(super) fn new(egress: Arc<Egress<T>>, counters: Arc<TxCounters>) -> Self {
        Self {
            own: egress.producer(true),
            egress,
            visit: Visit::default(),
            counters,
            waits: Cell::new(false),
            recheck: Cell::new(false),
            asked: Cell::new(false),
            woken: Cell::new(false),
            lookout: Lookout::default(),
            helpers: Helpers::default(),
            found: false,
            quiet_until: Cell::new(None),
        }
    }

    /// Whether the queue takes packets from the worker, as far as it knows.
    pub(super) fn takes(&self) -> bool {
        self.is_quiet() || self.egress.takes()
    }

    /// Whether the ring had nothing for the worker, and nobody had rung since as the step began; or
    /// what it had was left to a producer in this step.
    fn is_quiet(&self) -> bool {
        self.quiet_until.get().is_some()
    }

    /// Whether the step sent packets that were in the ring. Not where the device took no more: its
    /// wake-up is waited for, and is not worth to look for.
    pub(super) const fn found(&self) -> bool {
        self.found
    }

    /// Handles that applications have to it.
    pub(super) fn handles(&self) -> u32 {
        self.egress.handles()
    }

    /// Whether applications have handles to it.
    pub(super) fn is_shared(&self) -> bool {
        self.egress.is_shared()
    }

    /// Whether packets were left to who comes next.
    pub(super) fn is_left(&self) -> bool {
        !self.is_quiet() && self.egress.status() == Status::Abdicated
    }

    /// After a stop: whether anything is still held or in flight, or somebody is submitting.
    pub(super) fn is_in_use(&self) -> bool {
        // In this order: what somebody submitted who is gone by now is seen in the ring.
        !self.egress.is_quiet() || self.has_pending() || self.egress.in_flight() > 0
    }

    /// Whether anything waits in the ring or behind it. A paused queue is stalled without, too.
    fn has_pending(&self) -> bool {
        match self.egress.status() {
            Status::Idle => false,
            Status::Stalled(Stall::Flush) => self.held() > 0,
            Status::Busy | Status::Abdicated | Status::Stalled(_) => true,
        }
    }

    /// There are now so many CPUs for producers.
    pub(super) fn leave_cpus(&self, for_producers: u32) {
        self.egress.leave_cpus(for_producers);
    }

    /// How much of its work producers do.
    pub(super) fn relief(&mut self, now: Instant) -> Relief {
        // Else its counters are not even looked at: who sends writes them with every packet.
        if !self.egress.gathers() || self.is_stalled() {
            return Relief::None;
        }
        self.have_drained(now);
        self.helpers.relief(now, self.egress.idle_cpus() > 0)
    }

    /// Whether a producer drained what had gathered, since the last look.
    fn have_drained(&mut self, now: Instant) -> bool {
        let by_others = self.egress.was_drained_by_producer();
        self.helpers
            .look(now, self.counters.packets.get(), by_others)
    }

    /// Whether the device took no more: then the worker is the one to go on.
    fn is_stalled(&self) -> bool {
        matches!(self.egress.status(), Status::Stalled(_))
    }

    /// Whether what is in the ring is a producer's to send, and nothing else is to be done.
    fn is_theirs(&mut self, now: Instant) -> bool {
        self.egress.gathers()
            && self.have_drained(now)
            && self.egress.status() == Status::Abdicated
            && self.retry_at().is_none_or(|due| now < due)
            && !self.recheck.get()
            && !self.egress.is_shut()
    }

    /// Offloads that the device is still trusted with.
    pub(super) fn features(&self) -> Features {
        self.egress.features()
    }

    /// Wire packets in the ring and behind it.
    pub(super) fn held(&self) -> u64 {
        self.egress.stats().snapshot().held
    }

    /// Sends on what waits, and frees what the device is done with. `told`: somebody rang for the
    /// worker since its last step, or it slept. `napped`: it slept for as long as it wanted, since
    /// producers do most of its work.
    pub(super) fn serve(
        &mut self,
        now: Instant,
        told: bool,
        napped: bool,
    ) -> Result<(), DeviceError> {
        let quiet = self.quiet_until.take().filter(|until| now < *until);
        self.found = false;
        if !told && quiet.is_some() && !self.recheck.get() {
            self.quiet_until.set(quiet);
            return Ok(());
        }
        if napped && self.is_theirs(now) {
            // Until the next nap is over, or whatever else makes it step.
            self.quiet_until.set(Some(now));
            return Ok(());
        }
        if self.waits.take() {
            // It looks now: what it does itself is nothing to be told of.
            self.egress.wait_no_more(&self.own);
        }
        (self.visit.retry_at, self.visit.rests) = (None, false);
        self.visit.woken |= self.woken.take();
        let recheck = self.recheck.take();
        self.asked.set(false);
        self.found = self.egress.serve(&self.own, recheck, &mut self.visit, now);
        if self.egress.tells() {
            let until = now.after(GLANCE_EVERY);
            let until = self.visit.retry_at.map_or(until, |retry| retry.min(until));
            self.quiet_until.set(Some(until));
        }
        // Where there was no need to serve, it does not make the next visit one that does.
        self.visit.serves = false;
        let wanted = self.egress.wants_lookout(self.visit.retry_at.is_some());
        self.lookout.look(now, wanted, &self.counters.packets);
        self.visit.error.take().map_or(Ok(()), Err)
    }

    /// Takes packets from the front of `burst`. What the device or the ring do not take stays.
    pub(super) fn forward(&mut self, now: Instant, burst: &mut Burst) -> Result<(), DeviceError> {
        // What is left there is told to nobody.
        self.quiet_until.set(None);
        self.egress.forward(&self.own, burst, &mut self.visit, now);
        self.visit.error.take().map_or(Ok(()), Err)
    }

    /// The end of a step: the device is told of all that it was given.
    pub(super) fn ring(&mut self, now: Instant) -> Result<(), DeviceError> {
        if std::mem::take(&mut self.visit.owes) {
            self.egress.ring(&mut self.visit, now);
        }
        self.visit.error.take().map_or(Ok(()), Err)
    }

    /// The queue's place.
    pub(super) fn id(&self) -> QueueId {
        self.egress.id()
    }

    /// Does `command` to the queue. False for a device that cannot do that.
    pub(super) fn command(&mut self, command: Command, now: Instant) -> Result<bool, DeviceError> {
        self.quiet_until.set(None);
        self.recheck.set(true);
        self.egress.command(command, now)
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.visit
            .retry_at
            .into_iter()
            .chain(self.lookout.due)
            .min()
    }

    pub(super) fn arm(&self) -> Armed {
        let armed = self.egress.arm(self.visit.rests, &self.asked);
        self.recheck.set(armed == Armed::WorkPending);
        armed
    }

    /// Waits for the queue to take packets again, where that may happen without the worker: `alarm`
    /// is woken then. False if there is nothing to wait for.
    pub(super) fn wait(&self, alarm: &Waker) -> bool {
        if self.egress.is_shared() {
            self.egress.wait(&self.own, alarm);
            self.waits.set(true);
        }
        !self.egress.takes()
    }

    /// What becomes ready when the device can go on, if anything waits for that.
    pub(super) fn watched(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let waits = match self.egress.status() {
            Status::Stalled(_) => true,
            Status::Idle => self.egress.wants_completions(),
            // Somebody looks at what the device was asked to tell of, and tells the worker nothing
            // where nothing has changed.
            Status::Busy => self.asked.get(),
            Status::Abdicated => false,
        };
        let watch = &self.visit.watch;
        let fd = watch.fd.as_ref().map(|(_, fd)| fd.as_fd())?;
        Some((fd, watch.wanted.filter(|_| waits)?))
    }

    /// Counts a wake-up if `fd` is the descriptor that was watched. Whether it would be now may
    /// have changed since.
    pub(super) fn woken_by(&self, fd: RawFd) {
        let own = self.visit.watch.fd.as_ref();
        if own.is_some_and(|(_, own)| own.as_raw_fd() == fd) {
            self.counters.wakeups.add(1);
            self.woken.set(true);
        }
    }

    /// Takes no more from applications.
    pub(super) fn shut(&self) {
        self.egress.shut();
    }

    pub(super) fn abandon(&self, reason: DropReason) {
        self.egress.abandon(reason);
    }
}

impl<T: TxDescriptors> Drop for TxLane<T> {
    fn drop(&mut self) {
        self.egress.close(DropReason::Shutdown);
        self.egress.retire(&self.own);
    }
}
