//! One direction of a run: RX queues with their coalescers and handlers, and the TX paths that
//! they send to.

use super::control::{Command, Commanded, QueueKind, Queues};
use super::error::RunError;
use super::handler::{Handler, RxId};
use super::intake::Intake;
use super::path::TxPath;
use super::stats::LaneCounters;
use super::worker::Part;
use crate::driver::{Armed, DeviceError, Interest, RxDescriptors, TxDescriptors};
use crate::limits::BURST_PACKETS_MAX;
use crate::packet::Burst;
use crate::queue::{CoalesceStage, RxQueue};
use crate::runtime::{Began, Interrupt};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::random::Random;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::Waker;

/// Bursts of one turn of an RX queue. A burst ends with a large packet, so that it stays in the
/// cache. Polling all other queues after each such burst would double the cost.
const TURN_BURSTS_MAX: usize = 8;

/// An RX queue with its coalescer and handler, and the packets that its TX path has not accepted
/// yet.
#[derive(Debug)]
pub(super) struct Lane<R, H> {
    pub(super) id: RxId,
    pub(super) queue: RxQueue<R>,
    pub(super) coalesce: Option<CoalesceStage>,
    pub(super) handler: H,
    pub(super) burst: Burst,
    /// The index of its TX path.
    pub(super) tx: usize,
    pub(super) interrupt: Arc<Interrupt>,
    /// The input has ended.
    pub(super) finished: bool,
    /// A command has paused the RX queue.
    pub(super) paused: bool,
    /// When its last turn began.
    pub(super) turn_at: Instant,
}

/// The lanes of one direction that one worker has, and their TX paths.
#[derive(Debug)]
pub(super) struct Lanes<R, T: TxDescriptors, H> {
    pub(super) rx: Vec<Lane<R, H>>,
    pub(super) tx: Vec<TxPath<T>>,
    /// The lane that is next to receive.
    pub(super) turn: usize,
    /// Among several ports the lane that begins is drawn instead. One that waits for a slow port
    /// would begin for long, and the others would not take turns.
    pub(super) lots: Option<Random>,
    /// The ingress and the egress port. Among several ports, whose queues are shared, no device
    /// fails here but the ingress: it is twice that.
    pub(super) ports: [usize; 2],
    pub(super) intake: Arc<Intake>,
    pub(super) counters: Arc<LaneCounters>,
    /// Wakes the worker when a shared TX path has space again.
    pub(super) waker: Waker,
}

impl<R: RxDescriptors, H: Handler> Lane<R, H> {
    /// Whether packets have to leave before the lane may receive more: its own, or those that wait
    /// in `tx`. Packets held by the coalescer may stay. A paused queue waits only for packets that
    /// no TX queue or ring has yet.
    fn has_to_wait<T: TxDescriptors>(&self, tx: &TxPath<T>) -> bool {
        let output = self
            .coalesce
            .as_ref()
            .is_some_and(CoalesceStage::has_output);
        let waits = || !tx.accepts() && (!self.paused || tx.has_waiting());
        output || !self.burst.is_empty() || waits()
    }

    /// Carries out `command` on the RX queue. At a pause the coalescer flushes its packets, since
    /// no packet will continue them.
    fn command(&mut self, command: Command) -> Commanded {
        match command {
            Command::Pause if self.paused => {}
            Command::Pause => {
                self.paused = true;
                self.queue.counters().pauses.add(1);
                if let Some(stage) = &mut self.coalesce {
                    stage.flush();
                }
            }
            Command::Resume => self.paused = false,
            Command::Reset => return Commanded::of(false),
        }
        Commanded::of(true)
    }

    fn held(&self) -> u64 {
        self.burst.wire_packets() + self.coalesce.as_ref().map_or(0, CoalesceStage::held)
    }

    /// Takes one turn. Returns whether packets were received. If so, the worker polls once more
    /// before it sleeps, since a sleep and a wake-up cost more than an empty poll.
    fn turn<T: TxDescriptors>(
        &mut self,
        now: Instant,
        tx: &mut TxPath<T>,
        intake: &Intake,
        counters: &LaneCounters,
    ) -> Result<bool, Failed> {
        let last_turn = std::mem::replace(&mut self.turn_at, now);
        let before = self.queue.received();
        for _ in 0..TURN_BURSTS_MAX {
            let received = (self.queue.received() - before) as usize;
            let budget = BURST_PACKETS_MAX.saturating_sub(received);
            let more = self.receive(now, budget, tx, intake, counters)?;
            if !more || self.has_to_wait(tx) {
                break;
            }
        }
        let received = self.queue.received() - before;
        let mut found = received > 0;
        if let Some(stage) = &mut self.coalesce {
            stage.record_held(now);
            // In a pause the worker does the same as with an empty queue.
            found &= !stage.pauses(received);
            if found && !self.queue.is_short() {
                // While packets arrive, held packets stay for the next turn, which may continue
                // them. Old packets that this turn did not continue leave.
                stage.flush_due(now, last_turn);
            } else {
                // No event wakes the worker for held packets.
                stage.flush();
            }
            self.transmit(now, tx, counters)?;
        }
        self.queue.settle(now, found);
        Ok(found)
    }

    /// Receives one burst of at most `budget` packets. Returns true if a bound ended the burst,
    /// false if the device did.
    fn receive<T: TxDescriptors>(
        &mut self,
        now: Instant,
        budget: usize,
        tx: &mut TxPath<T>,
        intake: &Intake,
        counters: &LaneCounters,
    ) -> Result<bool, Failed> {
        if self.finished {
            return Ok(false);
        }
        let claimed = intake.claim(budget);
        if claimed == 0 {
            return Ok(false);
        }
        let before = self.queue.received();
        let stage = self.coalesce.as_mut().map(|stage| (stage, tx.features()));
        let mut merging = stage.filter(|(stage, egress)| !stage.is_off(*egress));
        self.queue.set_merges(merging.is_some());
        let polled = self.queue.poll(now, &mut self.burst, claimed);
        intake.refund(claimed, self.queue.received() - before);
        // Packets received before a failure are still sent.
        if let Some((stage, egress)) = &mut merging {
            if !self.burst.is_empty() {
                stage.take(now, &mut self.burst, *egress);
            }
            if polled.is_err() {
                stage.flush();
            }
        } else {
            if let Some(stage) = &mut self.coalesce
                && !self.burst.is_empty()
            {
                stage.pass(self.burst.len() as u64);
            }
            self.handle(now, counters);
        }
        self.transmit(now, tx, counters)?;
        match polled {
            Err(DeviceError::Finished) => {
                self.finished = true;
                intake.one_finished();
                Ok(false)
            }
            other => other.map_err(Failed::Ingress),
        }
    }

    /// Sends the burst, whose packets the handler has seen, and the output of the coalescer.
    fn transmit<T: TxDescriptors>(
        &mut self,
        now: Instant,
        tx: &mut TxPath<T>,
        counters: &LaneCounters,
    ) -> Result<(), Failed> {
        loop {
            if !self.burst.is_empty() && tx.accepts() {
                tx.send(now, &mut self.burst).map_err(Failed::Egress)?;
            }
            let Some(stage) = &mut self.coalesce else {
                return Ok(());
            };
            if !stage.has_output() || !self.burst.is_empty() || !tx.accepts() {
                return Ok(());
            }
            stage.deliver(&mut self.burst);
            self.handle(now, counters);
        }
    }

    fn handle(&mut self, now: Instant, counters: &LaneCounters) {
        if self.burst.is_empty() {
            return;
        }
        if !H::COUNTED {
            return self.handler.handle(now, self.id, &mut self.burst);
        }
        let handling = Handling {
            before: self.burst.wire_packets(),
            burst: &mut self.burst,
            counters,
        };
        self.handler.handle(now, self.id, handling.burst);
    }

    /// Drops all packets of the lane, counted under `reason`.
    fn abandon(&mut self, reason: DropReason) {
        self.queue.abandon(&mut self.burst, reason);
        if let Some(stage) = &mut self.coalesce {
            stage.abandon(reason);
        }
    }
}

/// Counts the packets that a handler took out and put in, even if it panics.
struct Handling<'a> {
    before: u64,
    burst: &'a mut Burst,
    counters: &'a LaneCounters,
}

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        let after = self.burst.wire_packets();
        let (delivered, generated) = (&self.counters.delivered, &self.counters.generated);
        delivered.add(self.before.saturating_sub(after));
        generated.add(after.saturating_sub(self.before));
    }
}

/// The failure of a device: of the ingress or of the egress.
enum Failed {
    Ingress(DeviceError),
    Egress(DeviceError),
}

impl Failed {
    /// The error of the failed one of these ports.
    fn at(self, [ingress, egress]: [usize; 2]) -> RunError {
        match self {
            Self::Ingress(error) => RunError::of(ingress, error),
            Self::Egress(error) => RunError::of(egress, error),
        }
    }
}

impl<R: RxDescriptors, T: TxDescriptors, H: Handler> Lanes<R, T, H> {
    /// Gives each lane its turn. If lanes share a TX path that stalls, the first lane that had to
    /// wait starts the next step. Otherwise one busy RX queue would take all free space.
    fn turns(&mut self, now: Instant, slept: bool) -> Result<bool, Failed> {
        let (mut more, mut waits, mut stalled) = (false, None, None);
        let Self {
            rx,
            tx,
            turn,
            lots,
            intake,
            counters,
            ..
        } = self;
        let start = lots.as_mut().map_or(*turn, |lots| lots.index(rx.len()));
        for lane in rx.iter_mut() {
            lane.queue.resume(slept);
            if lane.interrupt.take() && slept {
                lane.queue.count_wakeup();
            }
        }
        for index in (start..rx.len()).chain(0..start.min(rx.len())) {
            let lane = &mut rx[index];
            let path = &mut tx[lane.tx];
            // A path that has stalled gets no more packets in this step.
            if stalled == Some(lane.tx) {
                waits = waits.or(Some(index));
                continue;
            }
            // Packets that the path has not accepted yet go first. Until then the lane receives
            // nothing, so a slow egress pushes back on the ingress instead of filling memory.
            if lane.has_to_wait(path) {
                path.retry(now);
                lane.transmit(now, path, counters)?;
                if lane.has_to_wait(path) {
                    waits = waits.or(Some(index));
                    stalled = Some(lane.tx);
                    continue;
                }
            }
            if lane.paused {
                continue;
            }
            more |= lane.turn(now, path, intake, counters)?;
            if lane.has_to_wait(path) {
                stalled = Some(lane.tx);
            }
        }
        *turn = waits.unwrap_or(start);
        Ok(more)
    }

    fn received_and_held(&self) -> u64 {
        let waiting = self.tx.iter().map(TxPath::waiting).sum::<u64>();
        self.rx.iter().map(Lane::held).sum::<u64>() + waiting
    }

    /// The lanes from which the next step would receive: their input has not ended and is not
    /// paused, and their TX path accepts packets. Other lanes need not wake the worker: their
    /// packets stay in the device until the path has space or the queue is resumed.
    fn receiving(&self) -> impl Iterator<Item = &Lane<R, H>> {
        let stopped = self.intake.is_stopped();
        self.rx.iter().filter(move |lane| {
            let ended = stopped || lane.finished || lane.paused;
            !ended && !lane.has_to_wait(&self.tx[lane.tx])
        })
    }
}

impl<R: RxDescriptors, T: TxDescriptors, H: Handler> Part for Lanes<R, T, H> {
    fn step(&mut self, now: Instant, began: Began, stopped: bool) -> Result<bool, RunError> {
        let (egress, slept) = (self.ports[1], began.slept);
        let begun = (self.tx.iter_mut()).try_for_each(|path| path.begin(now, slept, stopped));
        begun.map_err(|error| RunError::of(egress, error))?;
        let more = self.turns(now, slept);
        // Rings the doorbell once for all packets that the step has sent, even after a failure.
        let mut ended = Ok(());
        for path in &mut self.tx {
            ended = ended.and(path.end());
        }
        for lane in &mut self.rx {
            // A TX worker that has ended accepts no packets. Its error ends the run.
            if let Some(reason) = self.tx[lane.tx].closed() {
                lane.abandon(reason);
            }
        }
        let held = self.received_and_held();
        self.counters.held.set(held);
        if stopped && held == 0 {
            self.tx.iter_mut().for_each(TxPath::deregister);
        }
        let more = more.map_err(|failed| failed.at(self.ports))?;
        ended.map_err(|error| RunError::of(egress, error))?;
        Ok(more)
    }

    fn arm(&mut self) -> Armed {
        let stopped = self.intake.is_stopped();
        // Arms every queue, even after another one has reported pending work.
        let mut pending = false;
        for path in &mut self.tx {
            pending |= path.arm() == Armed::WorkPending;
        }
        for lane in &mut self.rx {
            let path = &mut self.tx[lane.tx];
            if lane.has_to_wait(path) {
                pending |= path.wait(&self.waker);
            } else if !stopped && !lane.finished && !lane.paused {
                pending |= lane.queue.arm() == Armed::WorkPending;
            }
        }
        match pending {
            true => Armed::WorkPending,
            false => Armed::Idle,
        }
    }

    fn next_at(&self, now: Instant) -> Option<Instant> {
        let rx = self.receiving().filter_map(|lane| lane.queue.next_at());
        let tx = self.tx.iter().filter_map(|path| path.next_at(now));
        rx.chain(tx).min()
    }

    fn is_over(&self) -> bool {
        self.received_and_held() == 0 && self.tx.iter().all(TxPath::is_over)
    }

    fn held(&self) -> u64 {
        let tx = self.tx.iter().map(TxPath::held);
        self.received_and_held() + tx.sum::<u64>()
    }

    fn command(
        &mut self,
        command: Command,
        queues: Queues,
        now: Instant,
    ) -> Result<Option<Commanded>, RunError> {
        let mut sum = Commanded::default();
        for lane in &mut self.rx {
            if queues.has(QueueKind::Rx, lane.queue.counters().id) {
                sum.add(lane.command(command));
                // Sent at once, since the TX queue may be paused next.
                let sent = lane.transmit(now, &mut self.tx[lane.tx], &self.counters);
                sent.map_err(|failed| failed.at(self.ports))?;
            }
        }
        for path in &mut self.tx {
            let done = path.command(command, queues, now);
            sum.add(done.map_err(|error| RunError::of(self.ports[1], error))?);
        }
        Ok(Some(sum))
    }

    fn abandon(&mut self, reason: DropReason) -> bool {
        self.rx.iter_mut().for_each(|lane| lane.abandon(reason));
        self.tx.iter_mut().for_each(|path| path.abandon(reason));
        self.counters.held.set(0);
        true
    }

    fn interests<'a>(&'a self, visit: &mut dyn FnMut(BorrowedFd<'a>, Interest)) {
        let rx = self.receiving().filter_map(|lane| lane.queue.wake());
        let tx = self.tx.iter().filter_map(TxPath::wake);
        rx.chain(tx).for_each(|(fd, interest)| visit(fd, interest));
    }

    fn woken_by(&mut self, fd: RawFd) {
        for lane in &self.rx {
            if is_fd(lane.queue.wake(), fd) {
                lane.queue.count_wakeup();
            }
        }
        for path in &mut self.tx {
            if is_fd(path.wake(), fd) {
                path.count_wakeup();
            }
        }
    }
}

fn is_fd(wake: Option<(BorrowedFd<'_>, Interest)>, fd: RawFd) -> bool {
    wake.is_some_and(|(own, _)| own.as_raw_fd() == fd)
}
