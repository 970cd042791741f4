//! How the packets of a lane reach a TX queue: directly, or through the ring in front of a shared
//! one.

use super::control::{Command, Commanded, Half, Queues};
use super::shared::{Closed, Producer, SharedTx};
use super::stats::PathStats;
use crate::driver::{Armed, DeviceError, Features, Interest, TxDescriptors};
use crate::packet::Burst;
use crate::queue::TxQueue;
use crate::runtime::Interrupt;
use crate::stats::{DropReason, QueueId};
use crate::sync::Ordering;
use crate::time::Instant;
use crate::trace;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;

/// A TX queue as a lane sees it. A path never changes while a run goes on.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a lane has few paths, and the owned one is reached without a pointer"
)]
pub(super) enum TxPath<T: TxDescriptors> {
    /// The RX worker has the queue: no ring, no atomic operation.
    Owned(OwnedTx<T>),
    /// The queue is behind a ring, with a TX worker and any number of producers.
    Shared(RingProducer<T>),
}

impl<T: TxDescriptors> TxPath<T> {
    /// A step begins: the queue goes on with what waits in front of its device.
    #[inline]
    pub(super) fn begin(
        &mut self,
        now: Instant,
        slept: bool,
        stopped: bool,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Owned(path) => path.begin(now, slept, stopped),
            Self::Shared(path) => {
                path.begin();
                Ok(())
            }
        }
    }

    /// A step ends: one doorbell for all that it has sent.
    #[inline]
    pub(super) fn end(&mut self) -> Result<(), DeviceError> {
        match self {
            Self::Owned(path) => path.end(),
            Self::Shared(_) => Ok(()),
        }
    }

    /// Whether it takes packets, as far as is known without trying.
    #[inline]
    pub(super) fn accepts(&self) -> bool {
        match self {
            Self::Owned(path) => path.accepts(),
            Self::Shared(path) => path.shared.has_space(&path.own),
        }
    }

    /// Takes packets from the front of `burst`. Packets for which there is no space stay there.
    #[inline]
    pub(super) fn send(&mut self, now: Instant, burst: &mut Burst) -> Result<(), DeviceError> {
        match self {
            Self::Owned(path) => path.send(burst),
            Self::Shared(path) => {
                path.send(now, burst);
                Ok(())
            }
        }
    }

    /// Offloads that the device is still trusted with.
    pub(super) fn features(&self) -> Features {
        match self {
            Self::Owned(path) => path.queue.features(),
            Self::Shared(path) => path.shared.features(),
        }
    }

    /// The worker is about to sleep: asks the device of an owned queue for a wake-up.
    pub(super) fn arm(&mut self) -> Armed {
        match self {
            Self::Owned(path) => path.arm(),
            Self::Shared(_) => Armed::Idle,
        }
    }

    /// A lane waits for space. True if there is some already; else `waker` is woken when there is.
    pub(super) fn wait(&mut self, waker: &Waker) -> bool {
        match self {
            // Its device was armed.
            Self::Owned(path) => path.accepts(),
            Self::Shared(path) => path.wait(waker),
        }
    }

    /// When there is something to do though no device wakes the worker.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Owned(path) => path.next_at(now),
            Self::Shared(_) => None,
        }
    }

    /// The lanes of this worker send nothing more.
    pub(super) fn deregister(&mut self) {
        if let Self::Shared(path) = self {
            path.deregister();
        }
    }

    /// Why packets for it are lost, if it takes nothing any more: the TX worker has ended.
    pub(super) const fn closed(&self) -> Option<DropReason> {
        match self {
            Self::Owned(_) => None,
            Self::Shared(path) => path.closed,
        }
    }

    /// Whether nothing waits here, once its lanes send nothing more.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Owned(path) => path.queue.is_ready() && path.queue.in_flight() == 0,
            Self::Shared(path) => path.deregistered,
        }
    }

    /// Wire packets that wait here. What is in a ring is its TX worker's.
    pub(super) fn held(&self) -> u64 {
        match self {
            Self::Owned(path) => path.queue.held(),
            Self::Shared(_) => 0,
        }
    }

    /// The descriptor that becomes ready when the device can go on, if packets wait for that.
    pub(super) fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        match self {
            Self::Owned(path) if path.waits() => path.queue.wake(),
            _ => None,
        }
    }

    /// The worker was woken for the queue.
    pub(super) fn count_wakeup(&mut self) {
        if let Self::Owned(path) = self {
            path.queue.count_wakeup();
        }
    }

    /// Does `command`, if the queue is one of `queues` and owned.
    pub(super) fn command(
        &mut self,
        command: Command,
        queues: Queues,
        now: Instant,
    ) -> Result<Commanded, DeviceError> {
        match self {
            Self::Owned(path) if queues.has(Half::Tx, path.id()) => {
                path.recheck = true;
                command.apply(&mut path.queue, now)
            }
            _ => Ok(Commanded::default()),
        }
    }

    /// Counts what waits here as lost for `reason`.
    pub(super) fn abandon(&mut self, reason: DropReason) {
        match self {
            Self::Owned(path) => {
                path.queue.abandon(reason);
                path.show();
            }
            Self::Shared(path) => path.deregister(),
        }
    }
}

/// A TX queue that one RX worker has.
#[derive(Debug)]
pub(super) struct OwnedTx<T> {
    queue: TxQueue<T>,
    stats: Arc<PathStats>,
    interrupt: Arc<Interrupt>,
    /// Without packets: what waits in the queue is sent by submitting none.
    none: Burst,
    /// The next step services the queue, whatever its state is.
    recheck: bool,
    /// The run ends: completions of the last packets wake the worker.
    ending: bool,
    /// The device completes packets later, and needs the time with each step.
    asynchronous: bool,
}

impl<T: TxDescriptors> OwnedTx<T> {
    pub(super) fn new(
        mut queue: TxQueue<T>,
        stats: Arc<PathStats>,
        interrupt: Arc<Interrupt>,
        asynchronous: bool,
    ) -> Self {
        queue.set_interrupt(Arc::clone(&interrupt).into());
        let mut path = Self {
            queue,
            stats,
            interrupt,
            none: Burst::new(),
            recheck: false,
            ending: false,
            asynchronous,
        };
        path.show();
        path
    }

    fn id(&self) -> QueueId {
        self.queue.counters().id
    }

    #[inline]
    fn begin(&mut self, now: Instant, slept: bool, stopped: bool) -> Result<(), DeviceError> {
        if self.interrupt.take() {
            match slept {
                true => self.queue.count_wakeup(),
                false => self.queue.note_wakeup(),
            }
        }
        if stopped && !self.ending {
            self.ending = true;
            // A stop overrides a pause.
            self.queue.resume();
        }
        let pending = self.queue.in_flight() > 0 || !self.queue.is_ready();
        // A device that completes at once, and has taken everything, needs no care.
        if self.asynchronous || pending || self.recheck {
            self.go_on(now)?;
        }
        Ok(())
    }

    fn go_on(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.recheck = false;
        let before = self.queue.counters().reclaimed.get();
        self.queue.service(now)?;
        if self.queue.counters().reclaimed.get() != before {
            // The completions that it was armed for were found without the wake-up.
            self.queue.note_wakeup();
        }
        if !self.queue.is_ready() && !self.queue.is_stopped() {
            self.queue.transmit_more(&mut self.none)?;
        }
        Ok(())
    }

    #[inline]
    fn end(&mut self) -> Result<(), DeviceError> {
        let rung = self.queue.ring_if_pending();
        self.show();
        rung
    }

    #[inline]
    fn accepts(&self) -> bool {
        self.queue.is_ready() && !self.queue.is_stopped()
    }

    #[inline]
    fn send(&mut self, burst: &mut Burst) -> Result<(), DeviceError> {
        trace::dispatch(self.id(), burst.len() as u64, false, &|| 0);
        self.queue.transmit_more(burst).map(|_sent| ())
    }

    /// Whether packets wait for the device, or the end of the run does.
    fn waits(&self) -> bool {
        !self.queue.is_ready() || (self.ending && self.queue.in_flight() > 0)
    }

    fn arm(&mut self) -> Armed {
        // Completions wake the worker only if something waits for them.
        if !self.waits() {
            return Armed::Idle;
        }
        let armed = self.queue.arm();
        self.recheck = armed == Armed::WorkPending;
        armed
    }

    fn next_at(&self, now: Instant) -> Option<Instant> {
        self.queue.retry_at(now)
    }

    /// Shows what other threads can know of the queue.
    #[inline]
    fn show(&mut self) {
        let shown = &self.stats.shown;
        shown.held.set(match self.queue.is_ready() {
            true => 0,
            false => self.queue.held(),
        });
        shown.in_flight.set(self.queue.in_flight() as u64);
        shown.refused.set(self.queue.refused().bits());
        if let Some(troubles) = self.queue.take_troubles() {
            *self.stats.troubles() = troubles;
        }
    }
}

impl<T> Drop for OwnedTx<T> {
    fn drop(&mut self) {
        self.stats.shown.in_flight.set(0);
    }
}

/// A lane's access to a shared TX queue.
#[derive(Debug)]
pub(super) struct RingProducer<T: TxDescriptors> {
    shared: Arc<SharedTx<T>>,
    own: Producer,
    /// It is in the list of those that wait for space.
    waits: bool,
    closed: Option<DropReason>,
    deregistered: bool,
}

impl<T: TxDescriptors> RingProducer<T> {
    /// Registers with the queue: the TX worker does not end before this is deregistered.
    pub(super) fn new(shared: Arc<SharedTx<T>>) -> Self {
        Self {
            own: shared.enter_lane(),
            shared,
            waits: false,
            closed: None,
            deregistered: false,
        }
    }

    fn begin(&mut self) {
        if self.waits && self.shared.has_space(&self.own) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.shared.forget(&self.own);
        }
    }

    fn send(&mut self, now: Instant, burst: &mut Burst) {
        if self.shared.put(&self.own, burst, &|| now) == Err(Closed) {
            let broken = self.shared.broken.load(Ordering::Acquire);
            self.closed = Some(match broken {
                true => DropReason::DeviceReset,
                false => DropReason::Shutdown,
            });
        }
    }

    fn wait(&mut self, waker: &Waker) -> bool {
        self.waits = true;
        self.shared.wait(&self.own, waker)
    }

    fn deregister(&mut self) {
        if !std::mem::replace(&mut self.deregistered, true) {
            self.forget();
            self.shared.leave_lane(&self.own);
        }
    }
}

impl<T: TxDescriptors> Drop for RingProducer<T> {
    fn drop(&mut self) {
        self.deregister();
    }
}
