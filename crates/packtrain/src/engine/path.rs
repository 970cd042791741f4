//! The path of a lane's packets to a TX queue: direct, or through the ring in front of a shared
//! queue; or to those of several ports.

use super::control::{Command, Commanded, QueueKind, Queues};
use super::egress::Egress;
use super::fan::Fan;
use super::producer::RingProducer;
use crate::driver::{Armed, DeviceError, Features, Interest, TxDescriptors};
use crate::packet::Burst;
use crate::runtime::Interrupt;
use crate::stats::{DropReason, QueueId};
use crate::time::Instant;
use crate::trace;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;

/// A lane's access to a TX queue, or to one of each port. A path does not change during a run.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a lane has few paths, and the owned one is reached without a pointer"
)]
pub(super) enum TxPath<T: TxDescriptors> {
    /// The RX worker owns the queue: no ring, no atomic operation.
    Owned(OwnedTx<T>),
    /// The queue is behind a ring, with a TX worker and any number of producers.
    Shared(RingProducer<T>),
    /// The handler chooses the port of each packet. Each has a shared queue.
    Fan(Box<Fan<T>>),
}

impl<T: TxDescriptors> TxPath<T> {
    /// Begins a step: the queue continues with packets that wait for its device.
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
            Self::Fan(fan) => {
                fan.begin();
                Ok(())
            }
        }
    }

    /// Ends a step: rings the doorbell once for all packets that the step has sent.
    #[inline]
    pub(super) fn end(&mut self) -> Result<(), DeviceError> {
        match self {
            Self::Owned(path) => path.egress.end(0),
            Self::Shared(_) | Self::Fan(_) => Ok(()),
        }
    }

    /// Whether the path accepts packets, as far as it is known without a send.
    #[inline]
    pub(super) fn accepts(&self) -> bool {
        match self {
            Self::Owned(path) => path.egress.accepts(),
            Self::Shared(path) => path.has_space(),
            Self::Fan(fan) => fan.accepts(),
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
            Self::Fan(fan) => {
                fan.send(now, burst);
                Ok(())
            }
        }
    }

    /// Sends packets that wait for one of several ports.
    pub(super) fn retry(&mut self, now: Instant) {
        match self {
            Self::Owned(_) | Self::Shared(_) => {}
            Self::Fan(fan) => fan.retry(now),
        }
    }

    /// Offloads that the device does and has not refused.
    pub(super) fn features(&mut self) -> Features {
        match self {
            Self::Owned(path) => path.egress.queue.features(),
            Self::Shared(path) => path.features(),
            Self::Fan(fan) => fan.features(),
        }
    }

    /// Before a sleep: arms the device of an owned queue.
    pub(super) fn arm(&mut self) -> Armed {
        match self {
            Self::Owned(path) => path.arm(),
            Self::Shared(_) | Self::Fan(_) => Armed::Idle,
        }
    }

    /// Waits for space: returns true if there is some already; else `waker` is woken when there is.
    pub(super) fn wait(&mut self, waker: &Waker) -> bool {
        match self {
            // `arm` has armed its device.
            Self::Owned(path) => path.egress.accepts(),
            Self::Shared(path) => path.wait(waker),
            Self::Fan(fan) => fan.wait(waker),
        }
    }

    /// The time of the next work for which no device wakes the worker.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Owned(path) => path.egress.queue.retry_at(now),
            Self::Shared(_) => None,
            Self::Fan(fan) => fan.next_at(now),
        }
    }

    /// Deregisters from shared queues: the lanes of this worker send nothing more.
    pub(super) fn deregister(&mut self) {
        match self {
            Self::Owned(_) => {}
            Self::Shared(path) => path.deregister(),
            Self::Fan(fan) => fan.deregister(),
        }
    }

    /// The reason for which packets are dropped, if the TX worker has ended and the path accepts
    /// none.
    #[inline]
    pub(super) fn closed(&self) -> Option<DropReason> {
        match self {
            Self::Owned(_) => None,
            Self::Shared(path) => path.closed(),
            Self::Fan(fan) => fan.closed(),
        }
    }

    /// Whether no packets wait here, after the lanes have sent their last packet.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Owned(path) => !path.egress.waits(true),
            Self::Shared(path) => path.is_over(),
            Self::Fan(fan) => fan.is_over(),
        }
    }

    /// Wire packets that wait in the TX queue. The TX worker counts those in a ring.
    pub(super) fn held(&self) -> u64 {
        match self {
            Self::Owned(path) => path.egress.queue.held(),
            Self::Shared(_) | Self::Fan(_) => 0,
        }
    }

    /// Wire packets of a lane among several ports that wait.
    #[inline]
    pub(super) fn waiting(&self) -> u64 {
        match self {
            Self::Owned(_) | Self::Shared(_) => 0,
            Self::Fan(fan) => fan.waiting(),
        }
    }

    /// Whether there are any.
    pub(super) fn has_waiting(&self) -> bool {
        match self {
            Self::Owned(_) | Self::Shared(_) => false,
            Self::Fan(fan) => !fan.accepts(),
        }
    }

    /// The descriptor that becomes ready when the device can continue, if packets wait for it.
    pub(super) fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        match self {
            Self::Owned(path) if path.egress.waits(path.ending) => path.egress.queue.wake(),
            _ => None,
        }
    }

    /// Counts a wake-up of the worker for the queue.
    pub(super) fn count_wakeup(&mut self) {
        if let Self::Owned(path) = self {
            path.egress.queue.count_wakeup();
        }
    }

    /// Carries out `command`, if the queue is owned and one of `queues`.
    pub(super) fn command(
        &mut self,
        command: Command,
        queues: Queues,
        now: Instant,
    ) -> Result<Commanded, DeviceError> {
        match self {
            Self::Owned(path) if queues.has(QueueKind::Tx, path.id()) => {
                path.recheck = true;
                command.apply(&mut path.egress.queue, now)
            }
            _ => Ok(Commanded::default()),
        }
    }

    /// Drops the packets that wait here, counted under `reason`.
    pub(super) fn abandon(&mut self, reason: DropReason) {
        match self {
            Self::Owned(path) => {
                path.egress.queue.abandon(reason);
                path.egress.publish(0);
            }
            Self::Shared(path) => path.deregister(),
            Self::Fan(fan) => fan.abandon(reason),
        }
    }
}

/// A TX queue that one RX worker owns.
#[derive(Debug)]
pub(super) struct OwnedTx<T> {
    egress: Egress<T>,
    interrupt: Arc<Interrupt>,
    /// An empty burst: submitting it sends the packets that wait in the queue.
    none: Burst,
    /// The next step services the queue in any state.
    recheck: bool,
    /// The run ends: completions of the last packets wake the worker.
    ending: bool,
}

impl<T: TxDescriptors> OwnedTx<T> {
    pub(super) fn new(mut egress: Egress<T>, interrupt: Arc<Interrupt>) -> Self {
        egress.queue.set_interrupt(Arc::clone(&interrupt).into());
        Self {
            egress,
            interrupt,
            none: Burst::new(),
            recheck: false,
            ending: false,
        }
    }

    fn id(&self) -> QueueId {
        self.egress.queue.counters().id
    }

    #[inline]
    fn begin(&mut self, now: Instant, slept: bool, stopped: bool) -> Result<(), DeviceError> {
        let queue = &mut self.egress.queue;
        if self.interrupt.take() {
            match slept {
                true => queue.count_wakeup(),
                false => queue.note_wakeup(),
            }
        }
        if stopped && !self.ending {
            self.ending = true;
            // A stop overrides a pause.
            queue.resume();
        }
        let recheck = std::mem::take(&mut self.recheck);
        self.egress.begin(recheck, || now)?;
        let queue = &mut self.egress.queue;
        if !queue.is_ready() && !queue.is_stopped() {
            queue.transmit_more(&mut self.none)?;
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, burst: &mut Burst) -> Result<(), DeviceError> {
        trace::dispatch(self.id(), burst.len() as u64, false, &|| 0);
        self.egress.queue.transmit_more(burst).map(|_sent| ())
    }

    fn arm(&mut self) -> Armed {
        // Completions wake the worker only if packets or the end of the run wait for them.
        if !self.egress.waits(self.ending) {
            return Armed::Idle;
        }
        let armed = self.egress.queue.arm();
        self.recheck = armed == Armed::WorkPending;
        armed
    }
}
