//! One worker: the trip of a packet as a non-blocking step over the queues it owns.

use super::alarm::{Alarm, Sleeper};
use super::control::{Command, Commanded, Inbox, TxQueues};
use super::error::RunError;
use super::handler::{Handler, Port};
use super::intake::Intake;
use super::lane::TxLane;
use super::relief::{Heard, Others};
use crate::driver::{Armed, DeviceError, Interest, RxDescriptors, TxDescriptors};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::Burst;
use crate::policy::idle::Relief;
use crate::queue::{Coalesce, RxQueue};
use crate::stats::{Counter, DropReason, QueueId};
use crate::time::Instant;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicI8;
use std::task::Waker;

/// What a step asks of whoever drives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is more to do: step again.
    Again,
    /// Nothing to do: `arm`, and if that finds nothing either, wait for one of `interests`.
    Arm,
    /// As [`Next::Arm`], and not longer than until this time.
    SleepUntil(Instant),
    /// The work is over: intake has stopped or ended, and nothing is held.
    Done,
}

/// What a worker counts besides its queues. Written by the worker only.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerCounters {
    /// Steps taken.
    pub steps: Counter,
    /// Times it went to sleep.
    pub sleeps: Counter,
    /// Sleeps that something ended: a device, or another thread. The others lasted as long as
    /// they were meant to.
    pub wakeups: Counter,
    /// Context switches since it gave the CPU away; these two and `cpu_ns` are up to 10 ms old.
    pub voluntary_switches: Counter,
    /// Context switches since the CPU was taken from it.
    pub involuntary_switches: Counter,
    /// Wire packets that the handler took.
    pub delivered: Counter,
    /// Wire packets that the handler made.
    pub generated: Counter,
    /// Wire packets received and not submitted to a TX queue yet, as of the end of the last step.
    pub held: Counter,
    /// Nanoseconds of CPU time.
    pub cpu_ns: Counter,
    /// System calls of the outer shell (waiting and being woken), and of looking after them.
    pub syscalls: Counter,
    /// Nice value of its thread, as it was given at the start. 0 where no thread was started for
    /// it.
    pub(super) nice: AtomicI8,
}

/// The queues of one port that one worker owns. The RX queue at index i sends to the TX queue at
/// index i of the other port, modulo the number of those.
#[derive(Debug)]
pub struct Lanes<R, T: TxDescriptors> {
    /// Receiving halves.
    pub rx: Vec<RxLane<R>>,
    /// Transmitting halves.
    pub tx: Vec<TxLane<T>>,
}

/// An RX queue and the packets it received that its TX queue has not taken yet.
#[derive(Debug)]
pub struct RxLane<R> {
    queue: RxQueue<R>,
    coalesce: Option<Coalesce>,
    burst: Burst,
    finished: bool,
}

impl<R: RxDescriptors> RxLane<R> {
    /// A lane for `queue`.
    #[must_use]
    pub fn new(queue: RxQueue<R>) -> Self {
        Self {
            queue,
            coalesce: None,
            burst: Burst::new(),
            finished: false,
        }
    }

    /// The same, with what it receives merged.
    #[must_use]
    pub fn coalescing(mut self, stage: Option<Coalesce>) -> Self {
        self.coalesce = stage;
        self
    }

    /// Whether packets have to go before more may be received: its own, or any in front of `tx`.
    /// Packets that are held to be merged may stay.
    fn has_to_wait<T: TxDescriptors>(&self, tx: &TxLane<T>) -> bool {
        let output = self.coalesce.as_ref().is_some_and(Coalesce::has_output);
        output || !self.burst.is_empty() || !tx.takes()
    }

    /// Wire packets in it.
    fn held(&self) -> u64 {
        self.burst.wire_packets() + self.coalesce.as_ref().map_or(0, Coalesce::held)
    }

    /// Counts everything in it as lost for `reason`.
    fn abandon(&mut self, reason: DropReason) {
        self.queue.abandon(&mut self.burst, reason);
        if let Some(stage) = &mut self.coalesce {
            stage.abandon(reason);
        }
    }

    /// Whether this queue, at `index` of its port, is one to receive from.
    fn may_receive<T: TxDescriptors>(&self, index: usize, egress: &[TxLane<T>]) -> bool {
        !self.finished && !self.has_to_wait(&egress[index % egress.len()])
    }
}

/// Moves packets between its queues of two ports, queue i to queue i, both ways.
///
/// Drive it with [`Worker::step`] from any event loop:
///
/// 1. call `step` while it says [`Next::Again`];
/// 2. else call [`Worker::arm`]; on [`Armed::WorkPending`] go to 1;
/// 3. else wait until one of [`Worker::interests`] is ready or the time has come, and go to 1.
#[derive(Debug)]
pub struct Worker<RA, TA: TxDescriptors, RB, TB: TxDescriptors, H> {
    sleeper: Sleeper,
    heard: Heard,
    /// It [napped](Worker::nap) since the last step.
    napped: bool,
    inbox: Inbox,
    a: Lanes<RA, TA>,
    b: Lanes<RB, TB>,
    handler: H,
    /// The RX queue of each port that is next to receive.
    turns: [usize; 2],
    intake: Arc<Intake>,
    counters: Arc<WorkerCounters>,
}

impl<RA, TA, RB, TB, H> Worker<RA, TA, RB, TB, H>
where
    RA: RxDescriptors,
    TA: TxDescriptors,
    RB: RxDescriptors,
    TB: TxDescriptors,
    H: Handler,
{
    /// A worker over the queues of two ports.
    ///
    /// # Panics
    ///
    /// When a port has RX queues and the other has no TX queue to send to.
    #[must_use]
    pub(super) fn new(
        a: Lanes<RA, TA>,
        b: Lanes<RB, TB>,
        handler: H,
        intake: Arc<Intake>,
        counters: Arc<WorkerCounters>,
        alarm: Arc<Alarm>,
    ) -> Self {
        assert!(
            (a.rx.is_empty() || !b.tx.is_empty()) && (b.rx.is_empty() || !a.tx.is_empty()),
            "what is received must have a queue to be sent on"
        );
        Self {
            sleeper: Sleeper::new(alarm),
            heard: Heard::default(),
            napped: false,
            inbox: Inbox::default(),
            a,
            b,
            handler,
            turns: [0; 2],
            intake,
            counters,
        }
    }

    /// What tells it to look.
    pub(super) const fn alarm(&self) -> &Arc<Alarm> {
        self.sleeper.alarm()
    }

    /// Where it finds commands.
    pub(super) const fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The TX queues that it owns.
    pub(super) fn tx_queues(&self) -> Vec<QueueId> {
        let (a, b) = (&self.a.tx, &self.b.tx);
        let (a, b) = (a.iter().map(TxLane::id), b.iter().map(TxLane::id));
        a.chain(b).collect()
    }

    /// The worker's own counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Moves at most as many packets as a burst holds for each RX queue. Never blocks.
    ///
    /// # Errors
    ///
    /// When a device is gone or failed, and which; packets that it has not taken are still held.
    pub fn step(&mut self, now: Instant) -> Result<Next, RunError> {
        let counters = &self.counters;
        let slept = self.sleeper.has_slept();
        counters.syscalls.add(self.sleeper.wake());
        counters.steps.add(1);
        if self.inbox.has_news() {
            self.obey(now)?;
        }
        let stopped = self.intake.is_stopped();
        if stopped {
            // Applications are intake too.
            self.a.tx.iter().for_each(TxLane::shut);
            self.b.tx.iter().for_each(TxLane::shut);
        }
        let told = self.sleeper.was_rung() || slept;
        let napped = std::mem::take(&mut self.napped);
        if napped {
            self.sleeper.rise();
        }
        let more = self
            .serve(now, told, napped)
            .and_then(|()| self.run_both(now, slept || napped));
        self.counters.held.set(self.received_and_held());
        // What is left in a ring is this worker's as soon as nobody has it.
        if more? || any(&self.a.tx, TxLane::is_left) || any(&self.b.tx, TxLane::is_left) {
            return Ok(Next::Again);
        }
        if stopped && self.is_over() {
            return Ok(Next::Done);
        }
        Ok(self.next_at().map_or(Next::Arm, Next::SleepUntil))
    }

    /// What packets wait for in front of a device goes first. `told`: somebody rang, or may have;
    /// `napped`: see [`Worker::nap`].
    fn serve(&mut self, now: Instant, told: bool, napped: bool) -> Result<(), RunError> {
        let serve_a = self
            .a
            .tx
            .iter_mut()
            .try_for_each(|lane| lane.serve(now, told, napped));
        let serve_b = self
            .b
            .tx
            .iter_mut()
            .try_for_each(|lane| lane.serve(now, told, napped));
        serve_a.map_err(|error| RunError::of(Port::A, error))?;
        serve_b.map_err(|error| RunError::of(Port::B, error))
    }

    fn run_both(&mut self, now: Instant, slept: bool) -> Result<bool, RunError> {
        let mut trip = Trip {
            handler: &mut self.handler,
            intake: &self.intake,
            counters: &self.counters,
            now,
            slept,
        };
        let (a, b) = (&mut self.a, &mut self.b);
        let ab = trip.run(Port::A, &mut self.turns[0], &mut a.rx, &mut b.tx)?;
        let ba = trip.run(Port::B, &mut self.turns[1], &mut b.rx, &mut a.tx)?;
        Ok(ab || ba)
    }

    /// When a device that may receive has its next packet, one without memory may have some, or
    /// one whose signals are held back is looked at.
    fn next_at(&self) -> Option<Instant> {
        let a = self.a.tx.iter().filter_map(TxLane::retry_at);
        let b = self.b.tx.iter().filter_map(TxLane::retry_at);
        let retry = a.chain(b).min();
        if self.intake.is_stopped() {
            return retry;
        }
        let a = receiving(&self.a.rx, &self.b.tx).filter_map(|lane| lane.queue.next_at());
        let b = receiving(&self.b.rx, &self.a.tx).filter_map(|lane| lane.queue.next_at());
        a.chain(b).chain(retry).min()
    }

    /// Whether nothing more will happen once intake has stopped: nothing held, nothing in flight,
    /// nobody who submits.
    fn is_over(&self) -> bool {
        let ended = !any(&self.a.tx, TxLane::is_in_use) && !any(&self.b.tx, TxLane::is_in_use);
        ended && self.received_and_held() == 0
    }

    fn received_and_held(&self) -> u64 {
        fn rx<R: RxDescriptors>(lanes: &[RxLane<R>]) -> u64 {
            lanes.iter().map(RxLane::held).sum()
        }
        rx(&self.a.rx) + rx(&self.b.rx)
    }

    /// There are now so many CPUs for producers, of those that may be used.
    pub(super) fn leave_cpus(&self, for_producers: u32) {
        self.a
            .tx
            .iter()
            .for_each(|lane| lane.leave_cpus(for_producers));
        self.b
            .tx
            .iter()
            .for_each(|lane| lane.leave_cpus(for_producers));
    }

    /// Whether applications have handles to a queue of this worker's.
    pub(super) fn is_shared(&self) -> bool {
        any(&self.a.tx, TxLane::is_shared) || any(&self.b.tx, TxLane::is_shared)
    }

    /// Whether the last step sent packets that applications had left to this worker.
    pub(super) fn found(&self) -> bool {
        any(&self.a.tx, TxLane::found) || any(&self.b.tx, TxLane::found)
    }

    /// What those do who submit to this worker's queues: no work of its own, where it receives.
    pub(super) fn others(&mut self, now: Instant) -> Others {
        fn received<R: RxDescriptors>(lanes: &[RxLane<R>]) -> u64 {
            let counts = lanes.iter().map(|lane| lane.queue.received());
            counts.fold(0, u64::wrapping_add)
        }
        let received = received(&self.a.rx).wrapping_add(received(&self.b.rx));
        let heard = self.heard.look(now, received);
        fn of<T: TxDescriptors>(
            lanes: &mut [TxLane<T>],
            now: Instant,
        ) -> impl Iterator<Item = Relief> {
            let shared = lanes.iter_mut().filter(|lane| lane.is_shared());
            shared.map(move |lane| lane.relief(now))
        }
        // Every queue is looked at, whatever the others say.
        let reliefs = of(&mut self.a.tx, now).chain(of(&mut self.b.tx, now));
        let relief = reliefs.reduce(Relief::and).unwrap_or_default();
        let a = self.a.tx.iter().map(TxLane::handles);
        let handles: u32 = a.chain(self.b.tx.iter().map(TxLane::handles)).sum();
        Others {
            relief: if heard { Relief::None } else { relief },
            // Behind a device that it hears there is one at least.
            producers: (handles > 0).then(|| handles.saturating_add(u32::from(heard))),
        }
    }

    /// Wire packets in the worker's queues, and in the rings in front of them. What a device holds
    /// back (`RxDescriptors::held`) was not received yet, so it is on neither side of the ledger.
    #[must_use]
    pub fn held(&self) -> u64 {
        let a = self.a.tx.iter().map(TxLane::held);
        let b = self.b.tx.iter().map(TxLane::held);
        self.received_and_held() + a.chain(b).sum::<u64>()
    }

    /// Counts everything that is still held as lost for `reason`. Applications cannot submit any
    /// more after that; those that are at it are waited for, which never takes long.
    pub fn abandon(&mut self, reason: DropReason) {
        fn side<R: RxDescriptors, T: TxDescriptors>(lanes: &mut Lanes<R, T>, reason: DropReason) {
            for lane in &mut lanes.rx {
                lane.abandon(reason);
            }
            for lane in &lanes.tx {
                lane.abandon(reason);
            }
        }
        side(&mut self.a, reason);
        side(&mut self.b, reason);
        self.counters.held.set(self.received_and_held());
    }

    /// Does `command` to those of `queues` that this worker owns, for a caller that drives it: step
    /// it next, as what may go on does so there. Other threads have a [`Control`] for it.
    ///
    /// # Errors
    ///
    /// When the device is gone, or does not come back from a reset.
    ///
    /// [`Control`]: super::Control
    pub fn command(
        &mut self,
        queues: TxQueues,
        command: Command,
        now: Instant,
    ) -> Result<Commanded, RunError> {
        let done = match queues.port() {
            Port::A => command_all(&mut self.a.tx, queues, command, now),
            Port::B => command_all(&mut self.b.tx, queues, command, now),
        };
        done.map_err(|error| RunError::of(queues.port(), error))
    }

    /// Carries out what other threads have asked for.
    #[cold]
    fn obey(&mut self, now: Instant) -> Result<(), RunError> {
        while let Some(letter) = self.inbox.next() {
            let done = self.command(letter.queues, letter.command, now)?;
            letter.answer(done);
        }
        Ok(())
    }

    /// It is going to sleep for a bounded time, since producers do most of its work: they do not
    /// wake it, and in the next step it leaves to them what they are about to do. Its devices do:
    /// asks those that it receives from for a wake-up. If one has work already it is not to sleep.
    pub(super) fn nap(&mut self) -> Armed {
        let stopped = self.intake.is_stopped();
        let alarm = Waker::from(Arc::clone(self.sleeper.alarm()));
        let pending = [
            arm_rx(&mut self.a.rx, &self.b.tx, stopped, &alarm),
            arm_rx(&mut self.b.rx, &self.a.tx, stopped, &alarm),
        ];
        if pending.contains(&true) {
            return Armed::WorkPending;
        }
        self.sleeper.nap();
        self.napped = true;
        Armed::Idle
    }

    /// Before it steps again without having slept, and without work: what it was rung for until now
    /// it looks at in the next step, and so does its caller.
    pub(super) fn listen(&mut self) {
        self.sleeper.listen();
    }

    /// Asks every queue that can go on for a wake-up; says whether one has work already. If none
    /// has, whoever has something for the worker makes a descriptor readable, until the next step.
    pub fn arm(&mut self) -> Armed {
        let stopped = self.intake.is_stopped();
        let alarm = Waker::from(Arc::clone(self.sleeper.alarm()));
        // Every queue must be armed, also after one has said that it has work.
        let pending = [
            arm_tx(&self.a.tx),
            arm_tx(&self.b.tx),
            arm_rx(&mut self.a.rx, &self.b.tx, stopped, &alarm),
            arm_rx(&mut self.b.rx, &self.a.tx, stopped, &alarm),
        ];
        if pending.contains(&true) || !self.sleeper.try_sleep() {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }

    /// What to wait for before the next step: the worker's own descriptor, RX queues that may
    /// receive, TX queues that packets wait for. After each step they may be other ones; the
    /// descriptors themselves stay open for as long as the worker is there.
    pub fn interests<'a>(&'a self, mut visit: impl FnMut(BorrowedFd<'a>, Interest)) {
        visit(self.sleeper.alarm().fd(), Interest::Read);
        let stopped = self.intake.is_stopped();
        rx_interests(&self.a.rx, &self.b.tx, stopped, &mut visit);
        rx_interests(&self.b.rx, &self.a.tx, stopped, &mut visit);
        tx_interests(&self.a.tx, &mut visit);
        tx_interests(&self.b.tx, &mut visit);
    }

    /// Tells the worker which descriptor woke it, so that the wake-up of its queue is counted.
    pub fn woken_by(&self, fd: i32) {
        fn rx<R: RxDescriptors>(lanes: &[RxLane<R>], fd: i32) {
            let woken = |lane: &&RxLane<R>| {
                lane.queue
                    .wake()
                    .is_some_and(|(wake, _)| wake.as_raw_fd() == fd)
            };
            lanes
                .iter()
                .filter(woken)
                .for_each(|lane| lane.queue.count_wakeup());
        }
        fn tx<T: TxDescriptors>(lanes: &[TxLane<T>], fd: i32) {
            lanes.iter().for_each(|lane| lane.woken_by(fd));
        }
        rx(&self.a.rx, fd);
        rx(&self.b.rx, fd);
        tx(&self.a.tx, fd);
        tx(&self.b.tx, fd);
    }
}

fn command_all<T: TxDescriptors>(
    lanes: &mut [TxLane<T>],
    queues: TxQueues,
    command: Command,
    now: Instant,
) -> Result<Commanded, DeviceError> {
    let mut sum = Commanded::default();
    for lane in lanes.iter_mut().filter(|lane| queues.has(lane.id())) {
        if lane.command(command, now)? {
            sum.done += 1;
        } else {
            sum.unsupported += 1;
        }
    }
    Ok(sum)
}

fn any<T: TxDescriptors>(lanes: &[TxLane<T>], is: impl Fn(&TxLane<T>) -> bool) -> bool {
    lanes.iter().any(is)
}

/// The RX queues that the next step would receive from: those that have not come to their end and
/// whose TX queue has nothing left to send. Waiting for another one would be no waiting at all: its
/// packets are there, and stay where they are until the TX queue has gone on.
fn receiving<'a, R: RxDescriptors, T: TxDescriptors>(
    lanes: &'a [RxLane<R>],
    egress: &'a [TxLane<T>],
) -> impl Iterator<Item = &'a RxLane<R>> {
    let lanes = lanes.iter().enumerate();
    lanes.filter_map(|(index, lane)| lane.may_receive(index, egress).then_some(lane))
}

fn arm_rx<R: RxDescriptors, T: TxDescriptors>(
    lanes: &mut [RxLane<R>],
    egress: &[TxLane<T>],
    stopped: bool,
    alarm: &Waker,
) -> bool {
    let mut pending = false;
    for (index, lane) in lanes.iter_mut().enumerate() {
        if lane.has_to_wait(&egress[index % egress.len()]) {
            pending |= !egress[index % egress.len()].wait(alarm);
        } else if !stopped && lane.may_receive(index, egress) {
            pending |= lane.queue.arm() == Armed::WorkPending;
        }
    }
    pending
}

fn arm_tx<T: TxDescriptors>(lanes: &[TxLane<T>]) -> bool {
    lanes.iter().fold(false, |pending, lane| {
        pending | (lane.arm() == Armed::WorkPending)
    })
}

fn rx_interests<'a, R: RxDescriptors, T: TxDescriptors>(
    lanes: &'a [RxLane<R>],
    egress: &'a [TxLane<T>],
    stopped: bool,
    visit: &mut impl FnMut(BorrowedFd<'a>, Interest),
) {
    if stopped {
        return;
    }
    for lane in receiving(lanes, egress) {
        if let Some((fd, interest)) = lane.queue.wake() {
            visit(fd, interest);
        }
    }
}

fn tx_interests<'a, T: TxDescriptors>(
    lanes: &'a [TxLane<T>],
    visit: &mut impl FnMut(BorrowedFd<'a>, Interest),
) {
    for (fd, interest) in lanes.iter().filter_map(TxLane::watched) {
        visit(fd, interest);
    }
}

/// Bursts of one turn of an RX queue. A burst ends with a super-packet, so that it stays in cache;
/// to ask all the other queues after each of them would cost as much again.
const TURN_BURSTS_MAX: usize = 8;

/// What one step of a worker needs besides the queues.
struct Trip<'a, H> {
    handler: &'a mut H,
    intake: &'a Intake,
    counters: &'a WorkerCounters,
    now: Instant,
    /// Whether the worker was asleep in front of the step.
    slept: bool,
}

impl<H: Handler> Trip<'_, H> {
    /// The whole trip, one way: receive, handle, transmit. Returns whether there is more to do now.
    ///
    /// `turn` is the RX queue to start with. When several share a TX queue that stalls, the first
    /// that had to wait is the next to start: else one busy RX queue would take every free place.
    fn run<R: RxDescriptors, T: TxDescriptors>(
        &mut self,
        from: Port,
        turn: &mut usize,
        lanes: &mut [RxLane<R>],
        queues: &mut [TxLane<T>],
    ) -> Result<bool, RunError> {
        let more = self.turns(from, turn, lanes, queues);
        // One doorbell for all that the step has sent: no packet waits for it longer. Also where
        // something has failed: of what a device has taken it is told.
        let mut rung = Ok(());
        for tx in queues.iter_mut() {
            let told = tx.ring(self.now);
            rung = rung.and(told.map_err(|error| RunError::of(from.other(), error)));
        }
        let more = more?;
        rung.map(|()| more)
    }

    /// The turn of each queue.
    fn turns<R: RxDescriptors, T: TxDescriptors>(
        &mut self,
        from: Port,
        turn: &mut usize,
        lanes: &mut [RxLane<R>],
        queues: &mut [TxLane<T>],
    ) -> Result<bool, RunError> {
        let (mut more, mut waits, mut stalled) = (false, None, None);
        let start = *turn;
        for lane in lanes.iter_mut() {
            lane.queue.resume(self.slept);
        }
        for index in (start..lanes.len()).chain(0..start.min(lanes.len())) {
            let lane = &mut lanes[index];
            let egress = index % queues.len();
            let tx = &mut queues[egress];
            // One that has just stalled is not asked again in the same step.
            if stalled == Some(egress) {
                waits = waits.or(Some(index));
                continue;
            }
            // What the device has not taken yet goes first; until then nothing new is received, so
            // a slow egress pushes back on the ingress instead of filling memory.
            if lane.has_to_wait(tx) {
                self.transmit(from, lane, tx)?;
                if lane.has_to_wait(tx) {
                    waits = waits.or(Some(index));
                    stalled = Some(egress);
                    continue;
                }
            }
            more |= self.turn(from, lane, tx)?;
            if lane.has_to_wait(tx) {
                stalled = Some(egress);
            }
        }
        *turn = waits.unwrap_or(start);
        Ok(more)
    }

    /// The turn of a queue that may receive. Returns whether there may be more: one that had
    /// anything is looked at once more before the worker sleeps, since to fall asleep and be woken
    /// costs more than a read that finds nothing.
    fn turn<R: RxDescriptors, T: TxDescriptors>(
        &mut self,
        from: Port,
        lane: &mut RxLane<R>,
        tx: &mut TxLane<T>,
    ) -> Result<bool, RunError> {
        let before = lane.queue.received();
        let received = |lane: &RxLane<R>| (lane.queue.received() - before) as usize;
        if let Some(stage) = &mut lane.coalesce {
            stage.flush_old(self.now);
            self.transmit(from, lane, tx)?;
            if lane.has_to_wait(tx) {
                return Ok(false);
            }
        }
        for _ in 0..TURN_BURSTS_MAX {
            let budget = BURST_PACKETS_MAX.saturating_sub(received(lane));
            if !self.receive(from, lane, tx, budget)? || lane.has_to_wait(tx) {
                break;
            }
        }
        let found = received(lane) > 0;
        // What is held stays for the next turn while packets come, since they may belong to it.
        // Never while none do, for whatever reason: nothing wakes the worker for it.
        if let Some(stage) = &mut lane.coalesce
            && (!found || lane.queue.is_short())
        {
            stage.flush();
            self.transmit(from, lane, tx)?;
        }
        lane.queue.settle(self.now, found);
        Ok(found)
    }

    /// One burst of at most `budget` packets. Returns whether a bound ended it, and not the device.
    fn receive<R: RxDescriptors, T: TxDescriptors>(
        &mut self,
        from: Port,
        lane: &mut RxLane<R>,
        tx: &mut TxLane<T>,
        budget: usize,
    ) -> Result<bool, RunError> {
        if lane.finished {
            return Ok(false);
        }
        let claimed = self.intake.claim(budget);
        if claimed == 0 {
            return Ok(false);
        }
        let before = lane.queue.received();
        let polled = lane.queue.poll(self.now, &mut lane.burst, claimed);
        self.intake.refund(claimed, lane.queue.received() - before);
        // What came before a failure is sent on all the same.
        if let Some(stage) = &mut lane.coalesce {
            if !lane.burst.is_empty() {
                stage.take(self.now, &mut lane.burst, tx.features());
            }
            if polled.is_err() {
                stage.flush();
            }
        } else {
            self.handle(from, &mut lane.burst);
        }
        self.transmit(from, lane, tx)?;
        match polled {
            Err(DeviceError::Finished) => {
                lane.finished = true;
                self.intake.one_finished();
                Ok(false)
            }
            other => other.map_err(|error| RunError::of(from, error)),
        }
    }

    /// What arrived at `from` goes to the other port: the burst, which was handled already, and
    /// what has come out of merging.
    fn transmit<R: RxDescriptors, T: TxDescriptors>(
        &mut self,
        from: Port,
        lane: &mut RxLane<R>,
        tx: &mut TxLane<T>,
    ) -> Result<(), RunError> {
        let failed = |error| RunError::of(from.other(), error);
        loop {
            if !lane.burst.is_empty() && tx.takes() {
                tx.forward(self.now, &mut lane.burst).map_err(failed)?;
            }
            let Some(stage) = &mut lane.coalesce else {
                return Ok(());
            };
            if !stage.has_output() || !lane.burst.is_empty() || !tx.takes() {
                return Ok(());
            }
            stage.deliver(&mut lane.burst);
            self.handle(from, &mut lane.burst);
        }
    }

    fn handle(&mut self, from: Port, burst: &mut Burst) {
        if burst.is_empty() {
            return;
        }
        if !H::COUNTED {
            return self.handler.handle(self.now, from, burst);
        }
        let before = burst.wire_packets();
        self.handler.handle(self.now, from, burst);
        let after = burst.wire_packets();
        self.counters.delivered.add(before.saturating_sub(after));
        self.counters.generated.add(after.saturating_sub(before));
    }
}
