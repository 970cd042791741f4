//! A shared TX queue: the ring in front of it, and what a producer does there.
//!
//! The dispatch mode decides in each state of the ring ([`Dispatch::decide`]). A producer that
//! finds the ring idle may become its consumer; its burst then bypasses the slots. Otherwise it
//! puts the burst into the ring, and notifies the TX worker if the mode says so.
//!
//! No packet is stranded, since each state of a ring with packets has a thread that comes for them.
//! Position, state and flags are one word (`queue::ring`), so a producer learns the state by the
//! compare-and-swap that reserves its slots, and each change of the state is ordered with it.
//!
//! - *idle*: no thread has to come: ring and stage are empty, and the TX queue keeps nothing back.
//! - *busy*: the consumer comes. It makes the ring idle by a compare-and-swap of that word, which
//!   fails if a packet came ([`ConsumerGuard::release`]); then it drains again. Each other release
//!   leads to a state below.
//! - *abdicated*: the TX worker comes, or under direct dispatch a producer that claims the ring
//!   first. It is notified by the producer that released the ring ([`SharedTx::released`]), or that
//!   put packets into an idle ring without draining it (`finish`).
//! - *stalled*: the TX worker comes. A producer that stalls the ring notifies it; before it sleeps
//!   it claims the ring and arms the device (`TxPart::arm`).
//! - *gap*: the TX worker comes: notified as above, and again after 50 us.
//!
//! A notification is not lost: [`Wakeup`] is one word, which the worker clears before a step reads
//! the ring, and whose notification ends a sleep that began before or after it. And `TxPart::arm`
//! lets the worker sleep over none of these states but a gap with its timer, a stall with an armed
//! device, and what a notification follows.
//!
//! A producer that the system does not run while it is the consumer holds up the queue until it
//! runs again, as in FreeBSD's mp_ring. ARCHITECTURE.md numbers the rules, also for the flags.

use super::egress::Egress;
use super::space::SpaceWaiters;
use super::stats::PathStats;
use crate::driver::{DeviceError, Features, TxDescriptors};
use crate::limits::RING_SLOTS_PER_LANE;
use crate::packet::{Burst, Packet};
use crate::plant::planted;
use crate::policy::dispatch::{BUDGET, Decision, Dispatch, RingState};
use crate::queue::ring::{
    ConsumerGuard, Ended, Items, ProducerKind, Put, Released, Reservation, Ring, Turn,
};
#[cfg(feature = "internals")]
use crate::queue::ring::{Kept, KeptSlots};
use crate::queue::{Sent, TxQueue};
use crate::runtime::Wakeup;
use crate::stats::{
    Counter, DropCounters, DropReason, Histogram, QueueId, SubmitCounters, TxCounters,
};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, spin};
use crate::time::Instant;
use crate::trace;
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::Waker;

/// How often a producer that abdicates under `dispatch=direct` checks whether another producer has
/// claimed the ring, before it notifies the TX worker. The checks take about a microsecond; a
/// wake-up takes five or more.
const TAKEOVER_POLLS: u32 = if cfg!(any(packtrain_loom, miri)) {
    1
} else {
    64
};

/// Slots that a lane reserves. Models have small rings.
const SLOTS_PER_LANE: usize = if cfg!(packtrain_loom) {
    1
} else {
    RING_SLOTS_PER_LANE
};

/// The queue accepts no more packets: the run ends, or has ended.
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

/// One producer of a shared queue: a lane, or an application's handle.
#[derive(Debug)]
pub(super) struct Producer {
    counters: Arc<SubmitCounters>,
    /// The sizes of its batches.
    batches: Arc<Histogram>,
    id: u64,
    source: ProducerKind,
}

impl Producer {
    /// Counts the oldest `accepted` packets of a batch that goes into the ring, before the consumer
    /// sees them.
    fn count(&self, batch: &VecDeque<Packet>, accepted: usize) {
        let accepted = batch.iter().take(accepted);
        let wire_packets = accepted.map(|p| u64::from(p.meta().wire_packets)).sum();
        self.counters.ring_wire_packets.add(wire_packets);
        self.count_generated(wire_packets);
    }

    /// Counts wire packets for which the queue has no space and that the producer drops.
    pub(super) fn count_refused(&self, wire_packets: u64) {
        self.counters.egress_full.add(wire_packets);
    }

    /// What an application submits is generated. What a lane submits was received.
    fn count_generated(&self, wire_packets: u64) {
        if self.source == ProducerKind::Application {
            self.counters.generated.add(wire_packets);
        }
    }
}

/// One shared TX queue.
pub(super) struct SharedTx<T> {
    pub(super) ring: Ring<Packet, TxConsumer<T>>,
    pub(super) dispatch: Dispatch,
    tx_worker: Arc<Wakeup>,
    pub(super) waiters: SpaceWaiters,
    /// Registered lanes. The TX worker ends after the last one has deregistered.
    lanes: AtomicU32,
    /// Slots that are withheld from applications for each of them.
    slots_per_lane: usize,
    ids: AtomicU64,
    /// The frames of the packets that wait are counted ([`SharedTx::among`]).
    counts_frames: bool,
    /// The device failed, so packets that find the queue closed are counted as `drop.device_reset`.
    pub(super) broken: AtomicBool,
    pub(super) stats: Arc<PathStats>,
    pub(super) counters: Arc<TxCounters>,
}

impl<T> fmt::Debug for SharedTx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTx")
            .field("ring", &self.ring)
            .field("dispatch", &self.dispatch)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// The state that only the consumer of the ring uses: the TX queue, and packets taken out of the
/// ring.
#[derive(Debug)]
pub(super) struct TxConsumer<T> {
    /// `None` after the run: the device is dropped, though handles may still exist.
    pub(super) egress: Option<Egress<T>>,
    stage: Burst,
    /// Bytes of the frames of packets that were taken out of the ring or bypassed it, and that
    /// count as waiting. `None` between two ports, where nothing counts them.
    taken: Option<u64>,
    /// The device failed while a producer drained. The TX worker ends the run.
    failed: Option<DeviceError>,
    drops: Arc<DropCounters>,
    stats: Arc<PathStats>,
}

/// The consumer role of a shared queue.
pub(super) type Role<'a, T> = ConsumerGuard<'a, Packet, TxConsumer<T>>;

/// A send between its two halves, as [`Ring::reserve`] returns it: slots that are reserved, the
/// role of a ring that was idle, or the reason for neither.
type Begun<'a, T> = Result<Reservation<'a, Packet, TxConsumer<T>>, Put<'a, Packet, TxConsumer<T>>>;

/// A send between its two halves, without a borrow of the queue: it has reserved slots or the
/// consumer role. If it is dropped, the ring stays as it is then, and the TX worker never ends.
#[cfg(feature = "internals")]
#[derive(Debug)]
#[must_use = "the second half of the send publishes slots or releases the consumer role"]
pub struct HalfSend(Halfway);

#[cfg(feature = "internals")]
#[derive(Debug)]
enum Halfway {
    Slots(KeptSlots),
    Role(Kept),
}

impl<T> SharedTx<T> {
    /// Whether a producer may send: there is space for it, or the queue is closed and a send
    /// returns [`Closed`].
    pub(super) fn has_space(&self, own: &Producer) -> bool {
        self.ring.has_space(own.source)
    }

    pub(super) fn id(&self) -> QueueId {
        self.counters.id
    }

    pub(super) fn features(&self) -> Features {
        Features::from_bits(self.stats.shown.features.get())
    }

    /// Lanes that have not deregistered.
    pub(super) fn lanes(&self) -> u32 {
        self.lanes.load(Ordering::Acquire)
    }

    /// Registers a lane. Slots are reserved for it, so applications cannot fill the ring. It counts
    /// in the block of `of_worker`, if that is given: another producer of the worker that has it.
    pub(super) fn enter_lane(&self, of_worker: Option<&Producer>) -> Producer {
        let lanes = self.lanes.fetch_add(1, Ordering::AcqRel) + 1;
        self.ring.withhold(self.slots_per_lane);
        let Some(other) = of_worker else {
            return self.enter(ProducerKind::Lane);
        };
        self.waiters.reserve(lanes as usize);
        Producer {
            counters: Arc::clone(&other.counters),
            batches: Arc::clone(&other.batches),
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            source: ProducerKind::Lane,
        }
    }

    /// Deregisters a lane. Its block of counters stays, since other lanes may have it.
    pub(super) fn leave_lane(&self, own: &Producer) {
        self.waiters.remove(own.id);
        self.lanes.fetch_sub(1, Ordering::AcqRel);
        self.ring.give_back(self.slots_per_lane);
        self.tx_worker.notify();
        // Applications may use its slots now.
        self.waiters.wake_all(&self.ring);
    }

    pub(super) fn enter(&self, source: ProducerKind) -> Producer {
        let (counters, producers) = self.stats.enter();
        self.waiters.reserve(producers);
        Producer {
            counters,
            batches: self.counters.batches.enqueue.writer(),
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            source,
        }
    }

    fn leave(&self, own: &Producer) {
        self.waiters.remove(own.id);
        self.stats.leave(&own.counters);
    }

    /// Waits for space: returns true if the producer may send already; else `waker` is woken when
    /// it may.
    pub(super) fn wait(&self, own: &Producer, waker: &Waker) -> bool {
        let is_new = self.waiters.add(own.id, waker);
        if self.ring.wait_for_space(own.source) {
            return true;
        }
        // The producer that released the ring notifies the TX worker, but may have been preempted
        // before that. This producer notifies only once for each wait: otherwise two workers whose
        // lanes wait for each other's TX queues would wake each other without end.
        let waits_for_worker = matches!(
            self.ring.state(),
            RingState::Abdicated | RingState::Gap | RingState::Stalled
        );
        if is_new && waits_for_worker {
            self.notify(own);
        }
        false
    }

    /// Ends the wait of a producer, whether it was woken or not.
    pub(super) fn forget(&self, own: &Producer) {
        self.waiters.remove(own.id);
    }

    /// Closes the queue to a source, and wakes waiting producers.
    pub(super) fn close(&self, to: ProducerKind) {
        self.ring.close(to);
        self.waiters.wake_all(&self.ring);
    }

    fn notify(&self, own: &Producer) {
        if !planted!(LostWakeup) && self.tx_worker.notify() {
            own.counters.wakeups.add(1);
        }
    }
}

impl<T: TxDescriptors> SharedTx<T> {
    pub(super) fn new(
        queue: TxQueue<T>,
        drops: Arc<DropCounters>,
        dispatch: Dispatch,
        slots: usize,
        asynchronous: bool,
        tx_worker: Arc<Wakeup>,
        stats: Arc<PathStats>,
    ) -> Self {
        let counters = Arc::clone(queue.counters());
        let egress = Egress::new(queue.behind_ring(), Arc::clone(&stats), asynchronous);
        let consumer = TxConsumer {
            egress: Some(egress),
            stage: Burst::new(),
            taken: None,
            failed: None,
            drops,
            stats: Arc::clone(&stats),
        };
        Self {
            ring: Ring::new(slots, consumer),
            dispatch,
            tx_worker,
            waiters: SpaceWaiters::default(),
            lanes: AtomicU32::new(0),
            slots_per_lane: SLOTS_PER_LANE,
            ids: AtomicU64::new(0),
            counts_frames: false,
            broken: AtomicBool::new(false),
            stats,
            counters,
        }
    }

    /// Among several ports, where so many lanes feed the queue: they withhold at most half of the
    /// slots, and the frames of the packets that wait are counted.
    pub(super) fn among(mut self, lanes: usize) -> Self {
        let role = self.ring.claim(|_| true);
        let mut role = role.expect("no other thread has the queue yet");
        role.state().taken = Some(0);
        self.counts_frames = true;
        assert!(role.release(Ended::Empty).is_ok(), "the ring is empty");
        let most = self.ring.capacity() / 2 / lanes.max(1);
        self.slots_per_lane = self.slots_per_lane.min(most);
        self
    }

    /// Takes packets from the front of `burst`, as many as there is space for.
    pub(super) fn put(
        &self,
        own: &Producer,
        burst: &mut Burst,
        now: &impl Fn() -> Instant,
    ) -> Result<(), Closed> {
        let begun = self.begin(own, burst.len(), now);
        self.finish(own, begun, burst, now)
    }

    /// The first half of [`put`](Self::put), for a batch of `want` packets: reserves slots or
    /// claims the consumer role. Tests preempt a producer between the two halves.
    #[inline(always)]
    fn begin(&self, own: &Producer, want: usize, now: &impl Fn() -> Instant) -> Begun<'_, T> {
        let depth = match self.dispatch.counts_depth() {
            true => (self.ring.len() + want) as u32,
            false => 0,
        };
        let decide = |state| self.dispatch.decide(state, depth);
        let mut made_space = false;
        loop {
            let begun = self.ring.reserve(want, own.source, decide);
            if made_space || !matches!(begun, Err(Put::Full)) {
                return begun;
            }
            if !self.make_space(own, now) {
                return begun;
            }
            // `Full` has nothing to drop. The compiler does not see that, and would keep the result
            // of each send in memory for it.
            let _full = ManuallyDrop::new(begun);
            made_space = true;
        }
    }

    /// Sends an application's packets. Slots that the ring withholds are the bound of their frames.
    fn counted<R>(&self, burst: &mut Burst, send: impl FnOnce(&mut Burst) -> R) -> R {
        if !self.counts_frames {
            return send(burst);
        }
        self.stats.add_frames(burst.frame_bytes());
        let sent = send(burst);
        self.stats.discharge(burst.frame_bytes());
        sent
    }

    /// Drains a ring without space, if no other thread drains and the mode lets producers drain.
    /// Among several ports they do in any mode, rather than drop packets because the TX worker has
    /// not had a CPU yet.
    pub(super) fn make_space(&self, own: &Producer, now: &impl Fn() -> Instant) -> bool {
        let drains = |state| self.dispatch.decide(state, u32::MAX) == Decision::Drain;
        let may = |state| self.counts_frames && state == RingState::Abdicated || drains(state);
        let role = self.ring.claim(may);
        role.map(|role| self.drain(own, role, now)).is_some()
    }

    /// The second half: publishes the slots, or drains with the role that the first half claimed.
    #[inline(always)]
    fn finish(
        &self,
        own: &Producer,
        begun: Begun<'_, T>,
        burst: &mut Burst,
        now: &impl Fn() -> Instant,
    ) -> Result<(), Closed> {
        let batch = burst.len();
        let count = |batch: &VecDeque<Packet>, accepted| own.count(batch, accepted);
        let put = match begun {
            Ok(slots) => slots.publish(burst.batch(), count),
            Err(put) => put,
        };
        match put {
            Put::Closed => return Err(Closed),
            Put::Full => {}
            Put::Enqueued { notify } => {
                let accepted = batch - burst.len();
                self.trace(accepted, true);
                own.counters.deferred.add(u64::from(accepted > 0));
                if notify {
                    self.notify(own);
                }
            }
            Put::Drain(role) => {
                own.counters.direct.add(1);
                if role.from() == RingState::Idle {
                    self.bypass(own, role, burst, now);
                } else {
                    self.drain(own, role, now);
                }
                self.trace(batch - burst.len(), false);
            }
        }
        own.counters.ring_full.add(u64::from(!burst.is_empty()));
        let accepted = batch - burst.len();
        if accepted > 0 {
            own.batches.record(accepted as u64);
        }
        Ok(())
    }

    #[inline]
    fn trace(&self, packets: usize, deferred: bool) {
        if packets > 0 {
            let depth = || self.ring.len() as u64;
            trace::dispatch(self.id(), packets as u64, deferred, &depth);
        }
    }

    /// The ring is empty, and this producer is its consumer: the burst bypasses the slots.
    #[inline]
    fn bypass(
        &self,
        own: &Producer,
        role: Role<'_, T>,
        burst: &mut Burst,
        now: &impl Fn() -> Instant,
    ) {
        let mut drain = ProducerDrain::new(self, own, role);
        let consumer = drain.consumer();
        consumer.begin(now);
        let bypassing = Bypassing::new(own, burst);
        let mut turn = consumer.transmit(bypassing.burst);
        drop(bypassing);
        if !burst.is_empty() {
            let count = |batch: &VecDeque<Packet>, accepted| own.count(batch, accepted);
            // Packets without a free slot stay in the burst.
            drain.role().put_rest(burst.batch(), own.source, count);
            turn = Turn::Stalled;
        }
        drain.finish(turn, BUDGET);
    }

    /// This producer is the consumer, and its packets are in the ring.
    fn drain(&self, own: &Producer, role: Role<'_, T>, now: &impl Fn() -> Instant) {
        let mut drain = ProducerDrain::new(self, own, role);
        drain.consumer().begin(now);
        drain.finish(Turn::More, BUDGET);
    }

    /// Frees packets that the device has completed, if the mode lets producers drain and no other
    /// thread drains.
    fn reclaim(&self, own: &Producer, now: &impl Fn() -> Instant) {
        if self.stats.shown.in_flight.get() == 0 {
            return;
        }
        let may = |state| self.dispatch.decide(state, u32::MAX) == Decision::Drain;
        if let Some(role) = self.ring.claim(may) {
            let mut drain = ProducerDrain::new(self, own, role);
            let consumer = drain.consumer();
            // Reclaims at once: `service` waits until more packets are complete.
            if let Some(egress) = &mut consumer.egress {
                egress.queue.reclaim(now());
            }
            consumer.begin(now);
            drain.finish(Turn::More, BUDGET);
        }
    }

    /// Whether another producer claims the ring that was just abdicated, in less time than the TX
    /// worker needs to wake up.
    #[cold]
    fn is_taken_over(&self) -> bool {
        (0..TAKEOVER_POLLS).any(|_| {
            spin();
            self.ring.state() != RingState::Abdicated
        })
    }

    /// A producer has released the ring: notifies the TX worker and wakes waiters, if needed. In
    /// this order: wakers are the caller's code, which may take long or panic.
    #[inline]
    fn released(&self, own: &Producer, released: Released, news: bool) {
        let notify = match released.state {
            RingState::Abdicated if released.attention => true,
            RingState::Abdicated => {
                own.counters.abdications.add(1);
                self.dispatch != Dispatch::Direct || !self.is_taken_over()
            }
            RingState::Gap => true,
            // The TX worker was already notified of a stall in which nothing has moved.
            RingState::Stalled => news,
            RingState::Idle | RingState::Busy => false,
        };
        if notify {
            self.notify(own);
        }
        if released.wake_waiters {
            self.waiters.wake_all(&self.ring);
        }
    }
}

/// Counts the packets of an application's burst that bypassed the ring, even if the driver panics.
struct Bypassing<'a> {
    own: &'a Producer,
    burst: &'a mut Burst,
    before: u64,
}

impl<'a> Bypassing<'a> {
    #[inline]
    fn new(own: &'a Producer, burst: &'a mut Burst) -> Self {
        let before = match own.source {
            ProducerKind::Application => burst.wire_packets(),
            ProducerKind::Lane => 0,
        };
        Self { own, burst, before }
    }
}

impl Drop for Bypassing<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.own.source == ProducerKind::Application {
            let left = match self.burst.is_empty() {
                true => 0,
                false => self.burst.wire_packets(),
            };
            self.own.count_generated(self.before - left);
        }
    }
}

/// A producer that drains. If the driver panics, the queue is marked as failed and the TX worker
/// takes over.
struct ProducerDrain<'a, T: TxDescriptors> {
    shared: &'a SharedTx<T>,
    own: &'a Producer,
    /// `None` after its release.
    role: Option<Role<'a, T>>,
    from: RingState,
    /// Packets given to the device and reclaimed from it, before the drain.
    moved: [u64; 2],
}

impl<'a, T: TxDescriptors> ProducerDrain<'a, T> {
    #[inline]
    fn new(shared: &'a SharedTx<T>, own: &'a Producer, role: Role<'a, T>) -> Self {
        Self {
            from: role.from(),
            shared,
            own,
            role: Some(role),
            moved: shared.moved(),
        }
    }

    #[inline]
    fn role(&mut self) -> &mut Role<'a, T> {
        self.role
            .as_mut()
            .expect("the role is released at the end only")
    }

    #[inline]
    fn consumer(&mut self) -> &mut TxConsumer<T> {
        self.role().state()
    }

    /// Drains at most `budget` packets of the ring, unless the device has stalled by now, rings the
    /// doorbell, and releases the ring.
    #[inline]
    fn finish(mut self, mut turn: Turn, budget: usize) {
        let mut left = budget;
        let mut failed;
        let released = loop {
            let ended = match turn {
                Turn::Stalled => Ended::Stalled,
                Turn::More => drain(self.role(), &mut left),
            };
            self.consumer().end();
            failed = self.consumer().failed.is_some();
            // A failed queue is released as stalled, since an idle ring notifies no thread. The TX
            // worker then ends the run.
            let ended = if failed { Ended::Stalled } else { ended };
            let role = self.role.take().expect("the loop puts the role back");
            match role.release(ended) {
                Ok(released) => break released,
                Err(role) => self.role = Some(role),
            }
            turn = Turn::More;
        };
        let moved = self.moved != self.shared.moved();
        let news = self.from != RingState::Stalled || moved || failed;
        self.shared.released(self.own, released, news);
    }
}

impl<T: TxDescriptors> Drop for ProducerDrain<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mut role) = self.role.take() {
            role.state().fail(DeviceError::Unsupported(
                "the driver panicked while packets were given to it".to_owned(),
            ));
            drop(role);
            self.shared.notify(self.own);
            self.shared.waiters.wake_all(&self.shared.ring);
        }
    }
}

/// Drains at most `left` packets, and subtracts their number from it. The role stays with the
/// caller.
#[inline]
pub(super) fn drain<T: TxDescriptors>(role: &mut Role<'_, T>, left: &mut usize) -> Ended {
    let budget = *left;
    role.drain(budget, |consumer, items| {
        let before = items.len();
        let turn = consumer.turn(items);
        *left = left.saturating_sub(before - items.len());
        turn
    })
}

impl<T> SharedTx<T> {
    /// Wire packets given to the device, and packets reclaimed from it.
    #[inline]
    pub(super) fn moved(&self) -> [u64; 2] {
        [&self.counters.wire_packets, &self.counters.reclaimed].map(Counter::get)
    }
}

impl<T: TxDescriptors> TxConsumer<T> {
    /// Begins a drain.
    #[inline]
    pub(super) fn begin(&mut self, now: &impl Fn() -> Instant) {
        if let Some(egress) = &mut self.egress
            && let Err(error) = egress.begin(false, now)
        {
            self.fail(error);
        }
    }

    /// Gives the queue a burst that bypasses the slots; it may be empty.
    #[inline]
    pub(super) fn transmit(&mut self, burst: &mut Burst) -> Turn {
        match &mut self.egress {
            Some(egress) if self.failed.is_none() => {
                let bytes = self.taken.map(|_| burst.frame_bytes());
                let turn = give(&mut egress.queue, burst, &mut self.failed);
                if let (Some(taken), Some(bytes)) = (&mut self.taken, bytes) {
                    *taken += bytes - burst.frame_bytes();
                }
                turn
            }
            Some(_) => Turn::Stalled,
            None => Turn::More,
        }
    }

    /// One turn of a drain: gives the packets of the stage to the device. An empty stage is filled
    /// from the ring first.
    #[inline]
    fn turn(&mut self, items: &mut Items<'_, Packet, Self>) -> Turn {
        let Some(Egress { queue, .. }) = &mut self.egress else {
            return Turn::More;
        };
        if self.failed.is_some() || queue.is_stopped() {
            // Packets stay in the ring after a failure, and while the queue is paused.
            return Turn::Stalled;
        }
        if self.stage.is_empty() && queue.is_ready() {
            if items.len() == 0 {
                return Turn::More;
            }
            let stage = &mut self.stage;
            items.take(usize::MAX, |packet| {
                if let Err(packet) = stage.push(packet) {
                    drop(packet);
                    unreachable!("a turn has at most a burst, and the stage is empty");
                }
            });
            self.stats.shown.taken.add(self.stage.wire_packets());
            if let Some(taken) = &mut self.taken {
                *taken += self.stage.frame_bytes();
            }
        }
        give(queue, &mut self.stage, &mut self.failed)
    }

    /// Ends a drain, before the consumer releases the ring or polls again: rings the doorbell once
    /// for all packets that it has sent.
    #[inline]
    pub(super) fn end(&mut self) {
        let staged = self.staged();
        if let Some(egress) = &mut self.egress
            && let Err(error) = egress.end(staged)
        {
            self.fail(error);
        }
        if let Some(taken @ 1..) = &mut self.taken {
            let queue = self.egress.as_ref().map(|one| one.queue.frame_bytes());
            // Pieces of a packet count its frames again, until all of them are sent.
            let left = self.stage.frame_bytes() + queue.unwrap_or(0);
            let sent = taken.saturating_sub(left);
            *taken -= sent;
            self.stats.discharge(sent);
        }
    }

    /// Wire packets of the stage.
    #[inline]
    fn staged(&self) -> u64 {
        match self.stage.is_empty() {
            true => 0,
            false => self.stage.wire_packets(),
        }
    }

    /// Records an error. Only the first one is reported.
    pub(super) fn fail(&mut self, error: DeviceError) {
        self.failed.get_or_insert(error);
    }

    /// The error that ends the run.
    pub(super) const fn take_error(&mut self) -> Option<DeviceError> {
        self.failed.take()
    }

    /// Whether no packet waits behind the ring, and the queue accepts packets.
    pub(super) fn is_ready(&self) -> bool {
        let accepts = self.egress.as_ref().is_none_or(Egress::accepts);
        self.failed.is_none() && self.stage.is_empty() && accepts
    }

    /// Drops the packets of the stage, of the queue and of `items`, counted under `reason`.
    pub(super) fn abandon(&mut self, items: &mut Items<'_, Packet, Self>, reason: DropReason) {
        let mut lost = self.stage.wire_packets();
        self.stage.clear();
        items.take(usize::MAX, |packet| {
            let wire_packets = u64::from(packet.meta().wire_packets);
            self.stats.shown.taken.add(wire_packets);
            lost += wire_packets;
        });
        if lost > 0 {
            self.drops.add(reason, lost);
        }
        if let Some(egress) = &mut self.egress {
            egress.queue.abandon(reason);
            egress.publish(0);
        }
        self.failed = None;
    }
}

/// Gives a burst to the queue, which keeps the packets that the device does not accept.
#[inline]
fn give<T: TxDescriptors>(
    queue: &mut TxQueue<T>,
    burst: &mut Burst,
    failed: &mut Option<DeviceError>,
) -> Turn {
    match queue.transmit_more(burst) {
        Ok(Sent::All) => Turn::More,
        Ok(Sent::Stalled(_)) => Turn::Stalled,
        Err(error) => {
            *failed = Some(error);
            Turn::Stalled
        }
    }
}

/// A [`SharedTx`] of any device, for handles: one indirect call for a burst.
pub(super) trait Submit: Send + Sync {
    fn enter(&self) -> Producer;
    fn leave(&self, own: &Producer);
    fn put(
        &self,
        own: &Producer,
        burst: &mut Burst,
        now: &dyn Fn() -> Instant,
    ) -> Result<(), Closed>;
    fn reclaim(&self, own: &Producer, now: &dyn Fn() -> Instant);
    fn wait(&self, own: &Producer, waker: &Waker) -> bool;
    fn forget(&self, own: &Producer);
    fn has_space(&self, own: &Producer) -> bool;

    /// The state of the ring.
    #[cfg(feature = "internals")]
    fn state(&self) -> RingState;

    /// The first half of `put`, for so many packets; `None` if the ring is full or closed, or there
    /// are no packets.
    #[cfg(feature = "internals")]
    fn begin(&self, own: &Producer, packets: usize, now: &dyn Fn() -> Instant) -> Option<HalfSend>;

    /// The second half of `put`.
    #[cfg(feature = "internals")]
    fn finish(
        &self,
        own: &Producer,
        half: HalfSend,
        burst: &mut Burst,
        now: &dyn Fn() -> Instant,
    ) -> Result<(), Closed>;
}

impl<T: TxDescriptors> Submit for SharedTx<T> {
    fn enter(&self) -> Producer {
        Self::enter(self, ProducerKind::Application)
    }

    fn leave(&self, own: &Producer) {
        Self::leave(self, own);
    }

    fn put(
        &self,
        own: &Producer,
        burst: &mut Burst,
        now: &dyn Fn() -> Instant,
    ) -> Result<(), Closed> {
        self.counted(burst, |burst| Self::put(self, own, burst, &|| now()))
    }

    fn reclaim(&self, own: &Producer, now: &dyn Fn() -> Instant) {
        Self::reclaim(self, own, &|| now());
    }

    fn wait(&self, own: &Producer, waker: &Waker) -> bool {
        Self::wait(self, own, waker)
    }

    fn forget(&self, own: &Producer) {
        Self::forget(self, own);
    }

    fn has_space(&self, own: &Producer) -> bool {
        Self::has_space(self, own)
    }

    #[cfg(feature = "internals")]
    fn state(&self) -> RingState {
        self.ring.state()
    }

    #[cfg(feature = "internals")]
    fn begin(&self, own: &Producer, packets: usize, now: &dyn Fn() -> Instant) -> Option<HalfSend> {
        let half = match Self::begin(self, own, packets, &|| now()) {
            Ok(slots) => Halfway::Slots(slots.keep()),
            Err(Put::Drain(role)) => Halfway::Role(role.keep().0),
            Err(Put::Closed | Put::Full | Put::Enqueued { .. }) => return None,
        };
        Some(HalfSend(half))
    }

    #[cfg(feature = "internals")]
    fn finish(
        &self,
        own: &Producer,
        half: HalfSend,
        burst: &mut Burst,
        now: &dyn Fn() -> Instant,
    ) -> Result<(), Closed> {
        let begun = match half.0 {
            Halfway::Slots(slots) => Ok(self.ring.resume_slots(slots)),
            Halfway::Role(role) => Err(Put::Drain(self.ring.resume(role))),
        };
        self.counted(burst, |burst| {
            Self::finish(self, own, begun, burst, &|| now())
        })
    }
}
