//! One worker: the trip of a packet as a non-blocking step over the queues it owns.

use super::handler::{Handler, Port};
use super::intake::Intake;
use crate::driver::{Armed, DeviceError, Features, Interest, RxDescriptors, TxDescriptors};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::Burst;
use crate::queue::{RxQueue, TxQueue};
use crate::stats::{Counter, DropReason};
use crate::time::Instant;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

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
    /// Wire packets that the handler took.
    pub delivered: Counter,
    /// Wire packets that the handler made.
    pub generated: Counter,
    /// Wire packets waiting in queues, as of the end of the last step.
    pub held: Counter,
    /// Nanoseconds of CPU time, as of the last sleep or the end.
    pub cpu_ns: Counter,
    /// Features that the devices of each port refused on legal packets, as [`Features::bits`].
    pub refused: [Counter; 2],
    /// System calls of the outer shell (waiting and being woken).
    pub syscalls: Counter,
}

/// The queues of one port that one worker owns.
#[derive(Debug)]
pub struct Lanes<R, T> {
    /// Receiving halves.
    pub rx: Vec<RxLane<R>>,
    /// Transmitting halves.
    pub tx: Vec<TxQueue<T>>,
}

/// An RX queue and the packets it received that its TX queue has not taken yet.
#[derive(Debug)]
pub struct RxLane<R> {
    queue: RxQueue<R>,
    burst: Burst,
    finished: bool,
}

impl<R: RxDescriptors> RxLane<R> {
    /// A lane for `queue`.
    #[must_use]
    pub fn new(queue: RxQueue<R>) -> Self {
        Self {
            queue,
            burst: Burst::new(),
            finished: false,
        }
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
pub struct Worker<RA, TA, RB, TB, H> {
    a: Lanes<RA, TA>,
    b: Lanes<RB, TB>,
    handler: H,
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
    #[must_use]
    pub const fn new(
        a: Lanes<RA, TA>,
        b: Lanes<RB, TB>,
        handler: H,
        intake: Arc<Intake>,
        counters: Arc<WorkerCounters>,
    ) -> Self {
        Self {
            a,
            b,
            handler,
            intake,
            counters,
        }
    }

    /// The worker's own counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Moves at most one burst for each RX queue. Never blocks.
    ///
    /// # Errors
    ///
    /// When a device is gone or failed; packets that it has not taken are still held.
    pub fn step(&mut self, now: Instant) -> Result<Next, DeviceError> {
        let (handler, intake, counters) = (&mut self.handler, &*self.intake, &*self.counters);
        let ab = run(
            Port::A,
            &mut self.a.rx,
            &mut self.b.tx,
            handler,
            intake,
            counters,
            now,
        )?;
        let ba = run(
            Port::B,
            &mut self.b.rx,
            &mut self.a.tx,
            handler,
            intake,
            counters,
            now,
        )?;
        counters.steps.add(1);
        counters.held.set(self.held());
        counters.refused[0].set(refused(&self.a.tx).bits());
        counters.refused[1].set(refused(&self.b.tx).bits());
        if ab || ba {
            return Ok(Next::Again);
        }
        if self.is_over() {
            return Ok(Next::Done);
        }
        let next_a = self
            .a
            .rx
            .iter()
            .filter_map(|lane| lane.queue.next_at())
            .min();
        let next_b = self
            .b
            .rx
            .iter()
            .filter_map(|lane| lane.queue.next_at())
            .min();
        Ok(next_a
            .into_iter()
            .chain(next_b)
            .min()
            .map_or(Next::Arm, Next::SleepUntil))
    }

    /// Whether nothing more will happen: no intake, nothing held, nothing in flight.
    fn is_over(&self) -> bool {
        let ended = self.intake.is_stopped();
        ended && self.held() == 0 && in_flight(&self.a.tx) + in_flight(&self.b.tx) == 0
    }

    /// Wire packets in the worker's queues. What a device holds back (`RxDescriptors::held`) was
    /// not received yet, so it is on neither side of the ledger.
    #[must_use]
    pub fn held(&self) -> u64 {
        fn rx<R: RxDescriptors>(lanes: &[RxLane<R>]) -> u64 {
            lanes.iter().map(|lane| lane.burst.wire_packets()).sum()
        }
        fn tx<T: TxDescriptors>(queues: &[TxQueue<T>]) -> u64 {
            queues.iter().map(TxQueue::held).sum()
        }
        rx(&self.a.rx) + rx(&self.b.rx) + tx(&self.a.tx) + tx(&self.b.tx)
    }

    /// Counts everything that is still held as lost for `reason`.
    pub fn abandon(&mut self, reason: DropReason) {
        fn side<R: RxDescriptors, T: TxDescriptors>(lanes: &mut Lanes<R, T>, reason: DropReason) {
            for lane in &mut lanes.rx {
                lane.queue.abandon(&mut lane.burst, reason);
            }
            for queue in &mut lanes.tx {
                queue.abandon(reason);
            }
        }
        side(&mut self.a, reason);
        side(&mut self.b, reason);
        self.counters.held.set(self.held());
    }

    /// Asks every queue for a wake-up; says whether one has work already.
    pub fn arm(&mut self) -> Armed {
        fn side<R: RxDescriptors, T: TxDescriptors>(lanes: &mut Lanes<R, T>) -> bool {
            // Every queue must be armed, also after one has said that it has work.
            let rx = lanes
                .rx
                .iter_mut()
                .filter(|lane| lane.burst.is_empty() && !lane.finished);
            let rx = rx.fold(false, |any, lane| {
                any | (lane.queue.arm() == Armed::WorkPending)
            });
            lanes
                .tx
                .iter_mut()
                .fold(rx, |any, queue| any | (queue.arm() == Armed::WorkPending))
        }
        let (a, b) = (side(&mut self.a), side(&mut self.b));
        if !self.intake.is_stopped() && (a || b) {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
    }

    /// What to wait for before the next step: RX queues that may receive, TX queues that packets
    /// wait for.
    pub fn interests(&self, mut visit: impl FnMut(BorrowedFd<'_>, Interest)) {
        let stopped = self.intake.is_stopped();
        side_interests(&self.a, stopped, &mut visit);
        side_interests(&self.b, stopped, &mut visit);
    }

    /// Tells the worker which descriptor woke it, so that the queue's wake-up is counted.
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
        rx(&self.a.rx, fd);
        rx(&self.b.rx, fd);
    }
}

fn in_flight<T: TxDescriptors>(queues: &[TxQueue<T>]) -> usize {
    queues.iter().map(TxQueue::in_flight).sum()
}

fn refused<T: TxDescriptors>(queues: &[TxQueue<T>]) -> Features {
    queues
        .iter()
        .fold(Features::NONE, |all, queue| all | queue.refused())
}

fn side_interests<R: RxDescriptors, T: TxDescriptors>(
    lanes: &Lanes<R, T>,
    stopped: bool,
    visit: &mut impl FnMut(BorrowedFd<'_>, Interest),
) {
    let receiving = |lane: &&RxLane<R>| !stopped && !lane.finished && lane.burst.is_empty();
    for lane in lanes.rx.iter().filter(receiving) {
        if let Some((fd, interest)) = lane.queue.wake() {
            visit(fd, interest);
        }
    }
    for queue in lanes
        .tx
        .iter()
        .filter(|queue| !queue.is_ready() || queue.in_flight() > 0)
    {
        if let Some((fd, interest)) = queue.wake() {
            visit(fd, interest);
        }
    }
}

/// The whole trip, one way: receive, handle, transmit. Returns whether there is more to do now.
fn run<R: RxDescriptors, T: TxDescriptors, H: Handler>(
    from: Port,
    lanes: &mut [RxLane<R>],
    queues: &mut [TxQueue<T>],
    handler: &mut H,
    intake: &Intake,
    counters: &WorkerCounters,
    now: Instant,
) -> Result<bool, DeviceError> {
    let mut more = false;
    let egress = queues.len();
    for (index, lane) in lanes.iter_mut().enumerate() {
        let tx = &mut queues[index % egress];
        tx.reclaim();
        // What the device has not taken yet goes first; until then nothing new is received, so a
        // slow egress pushes back on the ingress instead of filling memory.
        if !lane.burst.is_empty() || !tx.is_ready() {
            tx.transmit(&mut lane.burst)?;
            if !lane.burst.is_empty() || !tx.is_ready() {
                continue;
            }
        }
        let claimed = if lane.finished {
            0
        } else {
            intake.claim(BURST_PACKETS_MAX)
        };
        if claimed == 0 {
            continue;
        }
        let before = lane.queue.received();
        let polled = lane.queue.poll(now, &mut lane.burst, claimed);
        intake.refund(claimed, lane.queue.received() - before);
        let failed = match polled {
            Ok(exhausted) => {
                more |= exhausted;
                None
            }
            Err(DeviceError::Finished) => {
                lane.finished = true;
                intake.one_finished();
                None
            }
            Err(error) => Some(error),
        };
        if !lane.burst.is_empty() {
            handle(handler, now, from, &mut lane.burst, counters);
            tx.transmit(&mut lane.burst)?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(more)
}

fn handle<H: Handler>(
    handler: &mut H,
    now: Instant,
    from: Port,
    burst: &mut Burst,
    counters: &WorkerCounters,
) {
    if !H::COUNTED {
        return handler.handle(now, from, burst);
    }
    let before = burst.wire_packets();
    handler.handle(now, from, burst);
    let after = burst.wire_packets();
    counters.delivered.add(before.saturating_sub(after));
    counters.generated.add(after.saturating_sub(before));
}
