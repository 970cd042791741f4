//! The way of packets to a TX queue: from any thread, through the ring in front of it.
//!
//! Whoever submits asks the [`Rule`] that holds what to do with the batch. Under direct dispatch,
//! who finds the ring idle becomes its consumer and gives the batch to the queue as it is, past the
//! ring's slots; who finds it busy leaves the batch in the ring, and drains it if nobody does by
//! then. What a producer leaves when its budget is used up the next one takes. What no other takes,
//! and what the device does not take, is the worker's affair: it is told by its alarm, and only a
//! worker that sleeps costs a system call.

mod missed;
pub(super) mod space;
mod station;
mod stats;
#[cfg(all(test, not(packtrain_loom)))]
mod tests;

pub(super) use station::Visit;
pub use stats::EgressStats;

use super::alarm::Alarm;
use super::control::Command;
use crate::driver::{Armed, DeviceError, Features, TxDescriptors};
use crate::limits::{BURST_PACKETS_MAX, TX_RING_PACKETS};
use crate::packet::{Burst, Packet};
use crate::policy::dispatch::{Dispatch, Rule, Seen, Sight};
use crate::queue::TxQueue;
use crate::queue::ring::{Claim, Consumer, Duty, Exit, Ring, Status, Turn};
use crate::stats::{
    Counter, DropCounters, DropReason, Histogram, QueueId, SubmitCounters, TxCounters,
};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Barrier, Ordering, Padded, spin};
use crate::time::Instant;
use crate::trace;
use missed::Missed;
use space::Space;
use station::Station;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

/// How often a producer that leaves a ring to others looks whether one has taken it, before it
/// wakes the worker: for some three microseconds, where a wakeup is five and more.
const LOOKS: u32 = if cfg!(any(packtrain_loom, miri)) {
    1
} else {
    64
};

/// No more packets are taken: the run ends, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the queue takes no more packets since the run ends: drop them; for another session, \
             copy their bytes into its own arena",
        )
    }
}

impl std::error::Error for Closed {}

/// One who submits to a queue: the worker, or a handle of an application.
#[derive(Debug)]
pub(super) struct Producer {
    counters: Arc<SubmitCounters>,
    /// How many packets it submitted at once.
    batches: Arc<Histogram>,
    id: u64,
    /// Whether it is the worker of the queue: then nobody has to be told.
    is_worker: bool,
}

/// One TX queue and the ring in front of it.
pub(super) struct Egress<T> {
    ring: Ring<Packet, Station<T>>,
    /// A [`Rule`], written by the consumer.
    rule: AtomicU64,
    shut: AtomicBool,
    ids: AtomicU64,
    /// CPUs that may be used, less those of other workers.
    for_producers: AtomicU32,
    /// Handles of applications.
    handles: AtomicU32,
    /// The device has kept a packet for a while, or is known to.
    keeps: AtomicBool,
    missed: Missed,
    signs: Padded<Signs>,
    space: Space,
    alarm: Arc<Alarm>,
    stats: Arc<EgressStats>,
    /// Of the queue.
    counters: Arc<TxCounters>,
    barrier: Barrier,
    id: QueueId,
}

impl<T> fmt::Debug for Egress<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("ring", &self.ring)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// What producers let the policy know. Signs, not counters: every producer writes them, and only
/// when it leaves a batch to somebody else or wakes the worker, which costs more than that.
#[derive(Debug, Default)]
struct Signs {
    left: AtomicU64,
    wakeups: AtomicU64,
    wakeup_ns: AtomicU64,
}

impl Signs {
    fn read(&self) -> [u64; 2] {
        [&self.left, &self.wakeups].map(|sign| sign.load(Ordering::Relaxed))
    }

    fn wakeup_ns(&self) -> u64 {
        self.wakeup_ns.load(Ordering::Relaxed)
    }
}

/// An application that may be the consumer now. While there is one, its producer counts as inside.
struct Inside<'a, T> {
    egress: &'a Egress<T>,
    counters: &'a SubmitCounters,
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.counters.publish();
        // A worker that shut the ring meanwhile waits for this one to be outside, and may sleep.
        self.egress.barrier.light();
        if self.egress.is_shut() {
            self.egress.alarm.ring();
        }
    }
}

impl<T> Egress<T> {
    /// What producers do from now on.
    pub(super) fn publish_rule(&self, rule: Rule) {
        let bits = rule.to_bits();
        if self.rule.load(Ordering::Relaxed) != bits {
            self.rule.store(bits, Ordering::Relaxed);
        }
    }

    fn rule(&self) -> Rule {
        Rule::from_bits(self.rule.load(Ordering::Relaxed))
    }

    /// Whether producers leave packets here until enough have gathered.
    pub(super) fn gathers(&self) -> bool {
        self.rule().counts_depth()
    }

    /// Whether one of them was the last to drain.
    pub(super) fn was_drained_by_producer(&self) -> bool {
        self.stats.shown.by_handle.get() > 0
    }

    /// CPUs for the worker while producers have theirs: one for each handle that exists.
    pub(super) fn idle_cpus(&self) -> u32 {
        let for_producers = self.for_producers.load(Ordering::Relaxed);
        for_producers.saturating_sub(self.handles())
    }

    /// There are now so many CPUs for producers.
    pub(super) fn leave_cpus(&self, for_producers: u32) {
        self.for_producers.store(for_producers, Ordering::Relaxed);
    }

    /// Handles of applications that there are, used or not: nobody knows when one will send again,
    /// and to ask each when it sent last would be a look at all their counters. [`TxHandle`] says
    /// so.
    ///
    /// [`TxHandle`]: crate::engine::TxHandle
    pub(super) fn handles(&self) -> u32 {
        self.handles.load(Ordering::Relaxed)
    }

    pub(super) const fn id(&self) -> QueueId {
        self.id
    }

    pub(super) fn status(&self) -> Status {
        self.ring.status()
    }

    /// Packets as they were submitted, and not as a device counts them, since the run began. None
    /// where it takes no more.
    pub(super) fn items_taken(&self) -> Option<u64> {
        match self.status() {
            Status::Stalled(_) => None,
            _ => Some(self.ring.taken()),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.ring.len() < self.ring.capacity()
    }

    /// Whether a producer may take the ring from one that left it, full as it is.
    pub(super) fn is_left(&self) -> bool {
        self.status() == Status::Abdicated && self.rule().producers_drain()
    }

    /// Whether a producer may go on: the device takes packets, as far as is known, and there is
    /// space.
    pub(super) fn takes(&self) -> bool {
        !matches!(self.status(), Status::Stalled(_)) && self.has_room()
    }

    /// Whether anybody but the worker can change the ring.
    pub(super) fn is_shared(&self) -> bool {
        // Acquire: what a handle that is gone left behind is seen.
        self.handles.load(Ordering::Acquire) > 0
    }

    /// Whether the worker, which has looked, is told of all that it has to do here from now on: the
    /// ring is empty, or somebody is at it who says so if anything is left.
    pub(super) fn tells(&self) -> bool {
        let busy = || self.status() == Status::Busy;
        let rests = self.status() == Status::Idle || (busy() && self.missed.came(busy));
        rests && self.is_shared() && !self.is_shut()
    }

    /// Whether there may be packets in the device of which the worker was told nothing: somebody
    /// has to look whether they come back. `watches`: it looks after those that are there now.
    pub(super) fn wants_lookout(&self, watches: bool) -> bool {
        let unwatched = || !watches && self.in_flight() > 0;
        self.keeps.load(Ordering::Relaxed) && (self.is_shared() || unwatched())
    }

    /// Whether the device of an idle ring shall wake the worker when it has completed packets. Not
    /// while the run goes on: that would be a wake-up for every few packets, and nobody waits for
    /// them. Who sends collects them, and the worker looks in by the clock.
    pub(super) fn wants_completions(&self) -> bool {
        self.in_flight() > 0 && self.is_shut()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.stats.shown.in_flight.get()
    }

    pub(super) fn features(&self) -> Features {
        Features::from_bits(self.stats.shown.features.get())
    }

    pub(super) const fn stats(&self) -> &Arc<EgressStats> {
        &self.stats
    }

    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Takes no more from applications. Those that wait for space learn it.
    pub(super) fn shut(&self) {
        if !self.shut.swap(true, Ordering::AcqRel) {
            // Who is inside was seen to be, or sees this before it submits.
            self.barrier.heavy();
            self.space.tell_all();
        }
    }

    /// Whether it is shut and no application is in the middle of a submission: nothing comes any
    /// more, but from the worker.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_shut() && !self.stats.anybody_inside()
    }

    /// Has `producer` told by `waker` when there may be space. It has to look once more after this.
    pub(super) fn wait(&self, producer: &Producer, waker: &Waker) {
        self.space.wait(producer.id, waker);
    }

    /// `producer` need not be told any more.
    pub(super) fn wait_no_more(&self, producer: &Producer) {
        self.space.forget(producer.id);
    }
}

impl<T: TxDescriptors> Egress<T> {
    pub(super) fn new(
        queue: TxQueue<T>,
        drops: Arc<DropCounters>,
        dispatch: Dispatch,
        for_producers: u32,
        alarm: Arc<Alarm>,
        keeps: bool,
    ) -> Self {
        let counters = Arc::clone(queue.counters());
        let station = Station::new(queue.behind_ring(), drops, dispatch);
        let ring = Ring::new(TX_RING_PACKETS, station);
        let egress = Self {
            ring: ring.unwrap_or_else(|error| unreachable!("{error}: checked when compiled")),
            rule: AtomicU64::new(dispatch.rule(TX_RING_PACKETS as u32).to_bits()),
            shut: AtomicBool::new(false),
            ids: AtomicU64::new(0),
            for_producers: AtomicU32::new(for_producers),
            handles: AtomicU32::new(0),
            keeps: AtomicBool::new(keeps),
            missed: Missed::default(),
            signs: Padded::default(),
            space: Space::new(),
            alarm,
            stats: Arc::default(),
            barrier: Barrier::new(),
            id: counters.id,
            counters,
        };
        if let Some(mut consumer) = egress.ring.try_consume(Claim::Free) {
            consumer.with_state(|station| station.show(&egress));
            let Exit::Idle = consumer.leave(Turn::More) else {
                unreachable!("nobody else has it yet")
            };
        }
        egress
    }

    /// One more who submits.
    pub(super) fn producer(&self, is_worker: bool) -> Producer {
        if !is_worker {
            self.handles.fetch_add(1, Ordering::Relaxed);
            // A worker that has to wait for space sleeps otherwise where it is not alone.
            self.alarm.ring();
        }
        let (counters, producers) = self.stats.enter();
        self.space.make_place(producers);
        Producer {
            counters,
            batches: self.counters.batches.enqueue.writer(),
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            is_worker,
        }
    }

    /// It will submit no more.
    pub(super) fn retire(&self, producer: &Producer) {
        if !producer.is_worker {
            let before = self.handles.fetch_sub(1, Ordering::AcqRel);
            if before == 1 && self.in_flight() > 0 {
                // Nobody else will collect them.
                self.alarm.ring();
            }
        }
        self.space.forget(producer.id);
        self.stats.leave(&producer.counters);
    }

    /// An application's producer comes in, until what this gives is dropped.
    #[inline(always)]
    fn enter<'a>(&'a self, producer: &'a Producer) -> Result<Inside<'a, T>, Closed> {
        let counters = &*producer.counters;
        counters.begin();
        let inside = Inside {
            egress: self,
            counters,
        };
        // That it is inside is written, now the gate is read. Who shuts it does it the other way
        // round.
        self.barrier.light();
        if self.is_shut() {
            return Err(Closed);
        }
        Ok(inside)
    }

    /// An application's packets: takes them from the front of `burst`, as many as there is space
    /// for. They count as generated.
    pub(super) fn submit(
        &self,
        producer: &Producer,
        burst: &mut Burst,
        now: &impl Fn() -> Instant,
    ) -> Result<(), Closed> {
        let _inside = self.enter(producer)?;
        if burst.is_empty() {
            // Nothing is to be done, and so nobody's role is taken for it.
            return Ok(());
        }
        let counters = &*producer.counters;
        let before = burst.wire_packets();
        self.put(producer, burst, None, now);
        let left = burst.wire_packets();
        counters.generated.add(before - left);
        Ok(())
    }

    /// The worker's packets. What it does not take the worker keeps.
    pub(super) fn forward(
        &self,
        producer: &Producer,
        burst: &mut Burst,
        visit: &mut Visit,
        now: Instant,
    ) {
        self.put(producer, burst, Some(visit), &|| now);
    }

    fn put(
        &self,
        producer: &Producer,
        burst: &mut Burst,
        visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) {
        let before = burst.len();
        self.dispatch(producer, burst, visit, now);
        let accepted = before - burst.len();
        if accepted > 0 {
            producer.batches.record(accepted as u64);
        }
    }

    fn dispatch(
        &self,
        producer: &Producer,
        burst: &mut Burst,
        mut visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) {
        let counters = &*producer.counters;
        let rule = self.rule();
        let batch = burst.len() as u32;
        let seen = match self.ring.status() {
            Status::Idle => Seen::Idle,
            Status::Busy => Seen::Draining,
            Status::Abdicated => Seen::Asked,
            Status::Stalled(_) => Seen::Stalled,
        };
        let before = if rule.counts_depth() {
            self.ring.len() as u32
        } else {
            0
        };
        let action = rule.ask(Sight {
            seen,
            depth: before + batch,
            batch,
        });
        let budget = action.budget as usize;
        let mut claim = match action.drain {
            true if rule.restarts() => Claim::Any,
            true => Claim::Free,
            false => Claim::Never,
        };
        // Idle means empty: there is nothing of this producer's in the ring that must go before.
        if seen == Seen::Idle
            && action.drain
            && let Some(consumer) = self.ring.try_consume(Claim::Free)
        {
            counters.direct.add(1);
            self.drain(producer, consumer, Some(burst), budget, visit, now);
            let sent = u64::from(batch) - burst.len() as u64;
            if sent > 0 {
                trace::dispatch(self.id, sent, false, &|| self.ring.len() as u64);
            }
            if burst.is_empty() || producer.is_worker {
                return;
            }
            // The device is full: the rest waits in the ring.
            (visit, claim) = (None, claim.min(Claim::Free));
        }
        let wire_packets = burst.wire_packets();
        let enqueued = self.ring.enqueue(burst.batch(), claim);
        let left = burst.wire_packets();
        counters.ring_wire_packets.add(wire_packets - left);
        if !burst.is_empty() {
            counters.ring_full.add(1);
        }
        let accepted = enqueued.accepted > 0;
        if accepted {
            let deferred = !matches!(enqueued.duty, Duty::Drain(_));
            let depth = || self.ring.len() as u64;
            trace::dispatch(self.id, enqueued.accepted as u64, deferred, &depth);
        }
        match enqueued.duty {
            Duty::Drain(mut consumer) => {
                let mut budget = budget;
                if !accepted {
                    // It was full, and left: what is sent now makes space for the batch.
                    budget -= self.make_space(&mut consumer, visit.as_deref_mut(), now);
                    let before = burst.wire_packets();
                    let enqueued = self.ring.enqueue(burst.batch(), Claim::Never);
                    debug_assert!(enqueued.duty.is_none(), "the role is here");
                    counters
                        .ring_wire_packets
                        .add(before - burst.wire_packets());
                    let count = enqueued.accepted as u64;
                    if count > 0 {
                        trace::dispatch(self.id, count, false, &|| self.ring.len() as u64);
                    }
                }
                counters.direct.add(u64::from(burst.len() < batch as usize));
                self.drain(producer, consumer, None, budget, visit, now);
            }
            Duty::Wake => {
                counters.deferred.add(u64::from(accepted));
                self.tell_worker(producer, now);
            }
            Duty::None => {
                counters.deferred.add(u64::from(accepted));
                if seen == Seen::Draining {
                    self.signs.left.fetch_add(1, Ordering::Relaxed);
                }
                if action.wake && accepted {
                    self.tell_worker(producer, now);
                }
            }
        }
    }

    /// Sends as much as one turn does; says how many packets that were.
    #[cold]
    fn make_space(
        &self,
        consumer: &mut Consumer<'_, Packet, Station<T>>,
        visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) -> usize {
        let mut took = 0;
        // A stall is found again by the drain that follows.
        let (Turn::More | Turn::Stalled(_)) = consumer.poll(BURST_PACKETS_MAX, |station, items| {
            let before = items.len();
            let turn = station.turn(self, None, items, visit, now);
            took = before - items.len();
            turn
        });
        took
    }

    /// Drains as the consumer, and sees to it that somebody comes if there is more to do. Says
    /// whether anything was taken out of the ring, and the device took what it was given.
    fn drain(
        &self,
        producer: &Producer,
        consumer: Consumer<'_, Packet, Station<T>>,
        own: Option<&mut Burst>,
        budget: usize,
        visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) -> bool {
        let (mut exit, mut took) = self.turns(consumer, own, budget, visit, now);
        if exit == Exit::Abdicated && self.would_wake_alone(producer) {
            let (left, more) = self.drain_on(now);
            (exit, took) = (left, took | more);
        }
        self.left(producer, exit, took, now);
        took && !matches!(exit, Exit::Stalled(_))
    }

    /// Whether this producer is the only one that could go on, but for a worker that sleeps: no
    /// other can have left anything since that one last looked, but who is gone. A worker that is
    /// awake is told without a system call, and may be the one that fills the ring.
    #[cold]
    fn would_wake_alone(&self, producer: &Producer) -> bool {
        !producer.is_worker
            && self.handles() < 2
            && self.rule().producers_drain()
            && self.alarm.is_asleep()
    }

    /// Goes on beyond the budget, which is there so that nobody works for others without end: to
    /// wake the worker for what was left while it was at the ring costs more than to send it. As
    /// many as the ring has at most: the worker may wake up, and send through it too.
    #[cold]
    fn drain_on(&self, now: &impl Fn() -> Instant) -> (Exit, bool) {
        match self.ring.try_consume(Claim::Free) {
            Some(consumer) => self.turns(consumer, None, self.ring.capacity(), None, now),
            // The worker was faster, and sees to the rest.
            None => (Exit::Passed, false),
        }
    }

    /// Drains; says also whether anything was taken out of the ring.
    #[inline(always)]
    fn turns(
        &self,
        consumer: Consumer<'_, Packet, Station<T>>,
        mut own: Option<&mut Burst>,
        budget: usize,
        mut visit: Option<&mut Visit>,
        now: &impl Fn() -> Instant,
    ) -> (Exit, bool) {
        let mut took = false;
        let exit = consumer.drain(budget, |station, items| {
            let before = items.len();
            let turn = station.turn(self, own.as_deref_mut(), items, visit.as_deref_mut(), now);
            took |= items.len() < before;
            turn
        });
        (exit, took)
    }

    /// The consumer has left: sees to it that somebody comes if there is more to do, and that those
    /// know who wait for space.
    #[inline(always)]
    fn left(&self, producer: &Producer, exit: Exit, took: bool, now: &impl Fn() -> Instant) {
        match exit {
            Exit::Idle | Exit::Passed => self.tell_of_first_kept(producer, now),
            Exit::Stalled(_) => self.tell_worker(producer, now),
            Exit::Abdicated => {
                producer.counters.abdications.add(1);
                // Who waits for space may be the one that takes it.
                self.space.tell_after(exit, took);
                if !self.is_taken_over() {
                    self.tell_worker(producer, now);
                }
                return;
            }
        }
        self.space.tell_after(exit, took);
    }

    /// Whether another producer takes the ring that was just left to it, in less time than the
    /// worker takes to wake up. One that is awake is told at once, and is one more to take it.
    #[cold]
    fn is_taken_over(&self) -> bool {
        if self.handles() < 2 || !self.rule().producers_drain() || !self.alarm.is_asleep() {
            return false;
        }
        (0..LOOKS).any(|_| {
            spin();
            self.ring.status() != Status::Abdicated
        })
    }

    /// The first packet that a device keeps, though nobody knew that it does: the worker looks in
    /// from now on. Once, not for each packet.
    fn tell_of_first_kept(&self, producer: &Producer, now: &impl Fn() -> Instant) {
        if self.in_flight() > 0
            && !self.keeps.load(Ordering::Relaxed)
            && !self.keeps.swap(true, Ordering::Relaxed)
        {
            self.tell_worker(producer, now);
        }
    }

    fn tell_worker(&self, producer: &Producer, now: &impl Fn() -> Instant) {
        if producer.is_worker {
            // It looks at every ring before it sleeps.
            return;
        }
        let begin = self.alarm.is_asleep().then(now);
        if self.alarm.ring() {
            producer.counters.wakeups.add(1);
            self.signs.wakeups.fetch_add(1, Ordering::Relaxed);
            if let Some(begin) = begin {
                let ns = now().since(begin).as_nanos() as u64;
                self.signs.wakeup_ns.store(ns, Ordering::Relaxed);
            }
        }
    }

    /// The worker's turn at the start of a step: what was left to it, what a device has completed,
    /// what is due by time. Once, unless the ring is somebody else's. `recheck`: also where nothing
    /// of that can be seen. Says whether anything was taken out of the ring, and the device took
    /// all that it was given.
    pub(super) fn serve(
        &self,
        producer: &Producer,
        recheck: bool,
        visit: &mut Visit,
        now: Instant,
    ) -> bool {
        let claim = match self.ring.status() {
            Status::Idle if self.in_flight() > 0 || recheck => Claim::Free,
            Status::Idle | Status::Busy => return false,
            Status::Abdicated | Status::Stalled(_) => Claim::Any,
        };
        let rule = self.rule();
        let budget = usize::from(rule.budget()).max(BURST_PACKETS_MAX);
        let Some(consumer) = self.ring.try_consume(claim) else {
            return false;
        };
        visit.serves = true;
        self.drain(producer, consumer, None, budget, Some(visit), &|| now)
    }

    /// The end of the worker's step: tells the device of all that it was given. Where somebody else
    /// is the consumer, it does that; before a stall it was done.
    pub(super) fn ring(&self, visit: &mut Visit, now: Instant) {
        if let Some(mut consumer) = self.ring.try_consume(Claim::Free) {
            consumer.with_state(|station| station.ring(self, visit, now));
            // What came meanwhile is seen by the worker before it sleeps.
            let (Exit::Idle | Exit::Abdicated | Exit::Passed | Exit::Stalled(_)) =
                consumer.leave(Turn::More);
        }
    }

    /// Does `command` to the queue; what may go on does so with the next step. False for a device
    /// that cannot do it. Waits for whoever is the consumer, which never takes long.
    pub(super) fn command(&self, command: Command, now: Instant) -> Result<bool, DeviceError> {
        let mut consumer = loop {
            match self.ring.try_consume(Claim::Any) {
                Some(consumer) => break consumer,
                None => thread::yield_now(),
            }
        };
        let (done, said) = consumer.with_state(|station| {
            let done = station.command(self, command, now);
            (done, station.at_rest())
        });
        let (Exit::Idle | Exit::Abdicated | Exit::Passed | Exit::Stalled(_)) = consumer.leave(said);
        done
    }

    /// Frees what the device is done with, if nobody is at it and the run does not end. What has
    /// stalled, or was left, goes on, where the rule has producers drain at all.
    pub(super) fn reclaim(&self, producer: &Producer, now: &impl Fn() -> Instant) {
        if self.in_flight() == 0 {
            return;
        }
        let Ok(_inside) = self.enter(producer) else {
            return;
        };
        let before = self.moved();
        let claim = match (self.status(), self.rule().producers_drain()) {
            (Status::Stalled(_), true) => Claim::Any,
            // Left to the worker, which sends it.
            (Status::Abdicated, false) => return,
            _ => Claim::Free,
        };
        let Some(consumer) = self.ring.try_consume(claim) else {
            return;
        };
        let (mut took, mut new) = (false, false);
        let exit = consumer.drain(BURST_PACKETS_MAX, |station, items| {
            let (ready, waiting) = (station.is_ready(), items.len());
            let turn = station.turn(self, None, items, None, now);
            took |= items.len() < waiting;
            new |= ready || station.has_failed();
            turn
        });
        // A stall that was there before, and in which nothing has moved, is the one that the worker
        // was told of. Who asks again and again must not wake it each time.
        if took || new || !matches!(exit, Exit::Stalled(_)) || self.moved() != before {
            self.left(producer, exit, took, now);
        }
        // Where there is nothing to arm, the worker has missed nothing.
        let arms = matches!(exit, Exit::Stalled(_)) || self.wants_completions();
        if arms && self.missed.take() {
            self.tell_worker(producer, now);
        }
    }

    /// Packets that the device took, and that it gave back.
    fn moved(&self) -> [u64; 2] {
        [&self.counters.packets, &self.counters.reclaimed].map(Counter::get)
    }

    /// Asks the device for a wake-up, if anything waits for it and nobody else is at it: another
    /// producer tells the worker when it leaves anything, or was only looking. `looks`: the worker
    /// will look by its clock. `asked`: whether the device was asked.
    pub(super) fn arm(&self, looks: bool, asked: &Cell<bool>) -> Armed {
        let (claim, stall) = match self.ring.status() {
            Status::Idle if !self.wants_completions() => return Armed::Idle,
            Status::Idle => (Claim::Free, None),
            Status::Busy if self.missed.came(|| self.ring.status() == Status::Busy) => {
                return Armed::Idle;
            }
            Status::Busy | Status::Abdicated => return Armed::WorkPending,
            Status::Stalled(cause) => (Claim::Any, Some(cause)),
        };
        let Some(mut consumer) = self.ring.try_consume(claim) else {
            return Armed::WorkPending;
        };
        let (armed, ready) =
            consumer.with_state(|station| (station.arm(looks), station.is_ready()));
        asked.set(armed == Armed::Idle);
        let said = match stall {
            Some(cause) if !ready => Turn::Stalled(cause),
            _ => Turn::More,
        };
        match consumer.leave(said) {
            Exit::Idle | Exit::Stalled(_) | Exit::Passed => armed,
            Exit::Abdicated => Armed::WorkPending,
        }
    }

    /// Counts everything in the ring and behind it as lost for `reason`; applications cannot submit
    /// any more. Waits for those that are at it, which never takes long: they do not block.
    pub(super) fn abandon(&self, reason: DropReason) {
        self.shut();
        while self.stats.anybody_inside() {
            thread::yield_now();
        }
        // Nobody else is left who could have the role, or have reserved what is not written yet.
        while let Some(consumer) = self.ring.try_consume(Claim::Any) {
            let exit = consumer.drain(TX_RING_PACKETS, |station, items| {
                station.abandon(self, items, reason);
                Turn::More
            });
            if exit == Exit::Idle {
                return;
            }
        }
    }

    /// As [`Egress::abandon`], and the device is given back.
    pub(super) fn close(&self, reason: DropReason) {
        self.abandon(reason);
        if let Some(mut consumer) = self.ring.try_consume(Claim::Any) {
            let queue = consumer.with_state(Station::take_queue);
            let Exit::Idle = consumer.leave(Turn::More) else {
                unreachable!("nobody submits any more")
            };
            drop(queue);
        }
    }
}
