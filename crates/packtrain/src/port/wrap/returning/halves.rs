//! The halves of the queues of a port that returns: those of the present device, or none.

use super::shared::{Removed, Shared, is_away};
use crate::driver::{
    Accepted, Armed, Change, Completed, DeviceError, Driver, Features, Interest, Refused, Reset,
    RxBurst, RxDescriptors, Token, TxBatch, TxDescriptors, TxPacket,
};
use crate::packet::Arena;
use crate::time::Instant;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The time to the next refill of a new device that got too few buffers.
const REFILL_RETRY: Duration = Duration::from_millis(1);

/// The receiving half of a queue.
pub struct ReturningRx<D: Driver> {
    shared: Arc<Shared<D>>,
    queue: usize,
    /// Of the device of `life`; `None` while it is away.
    inner: Option<D::Rx>,
    life: u32,
    interrupt: Option<Waker>,
    arena: Arena,
    /// The delay of interrupts that the queue asked for, and whether the device has it.
    delay: Duration,
    moderates: bool,
    /// A new device has fewer buffers than it could use.
    short: bool,
    /// It is, and had nothing to receive into: it is not polled before `refill_at`.
    is_dry: bool,
    refill_at: Instant,
    /// System calls for the devices before.
    syscalls: u64,
}

impl<D: Driver> ReturningRx<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, queue: usize, inner: D::Rx, arena: Arena) -> Self {
        Self {
            shared,
            queue,
            inner: Some(inner),
            life: 0,
            interrupt: None,
            arena,
            delay: Duration::ZERO,
            moderates: false,
            short: false,
            is_dry: false,
            refill_at: Instant::default(),
            syscalls: 0,
        }
    }

    /// Whether the device was removed, or another one is in its place.
    #[inline]
    fn is_changed(&self) -> bool {
        self.shared.life() != self.life
    }

    /// Gives the half of the removed device to the thread, and takes that of the new one.
    #[cold]
    fn follow(&mut self) {
        let mut state = self.shared.state();
        self.life = self.shared.life();
        if let Some(old) = self.inner.take() {
            self.syscalls += old.syscalls();
            state.removed.push(Removed::Rx(old));
            self.shared.changed.notify_all();
        }
        if !is_away(self.life) {
            self.inner = state.queues[self.queue].rx.take();
        }
        drop(state);
        self.short = self.inner.is_some();
        self.is_dry = false;
        self.refill_at = Instant::default();
        if let (Some(inner), Some(interrupt)) = (&mut self.inner, &self.interrupt) {
            inner.set_interrupt(interrupt.clone());
        }
        self.moderate(self.delay);
    }
}

impl<D: Driver> RxDescriptors for ReturningRx<D> {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.inner.as_mut().is_none_or(|inner| inner.refill(arena))
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        if self.is_changed() {
            self.follow();
        }
        let Some(inner) = &mut self.inner else {
            return Ok(());
        };
        if self.short && now >= self.refill_at {
            self.short = !inner.refill(&self.arena);
            self.refill_at = now.after(REFILL_RETRY);
        }
        let budget = burst.budget();
        let result = inner.receive(now, burst);
        self.is_dry = self.short && burst.budget() == budget;
        match result {
            Err(DeviceError::Removed) => {
                self.shared.gone(self.life);
                Ok(())
            }
            result => result,
        }
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.shared.state().queues[self.queue].wakers[0] = Some(interrupt.clone());
        if let Some(inner) = &mut self.inner {
            inner.set_interrupt(interrupt.clone());
        }
        self.interrupt = Some(interrupt);
    }

    /// A new device is of the same kind, so the answer is that of the one before.
    fn moderate(&mut self, delay: Duration) -> bool {
        self.delay = delay;
        if let Some(inner) = &mut self.inner {
            self.moderates = inner.moderate(delay);
        }
        self.moderates
    }

    fn arm(&mut self) -> Armed {
        if self.is_changed() {
            return Armed::WorkPending;
        }
        if self.is_dry {
            return Armed::Idle;
        }
        // The thread raises the interrupt when there is a device.
        self.inner.as_mut().map_or(Armed::Idle, D::Rx::arm)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        if self.is_changed() {
            return Some(Armed::WorkPending);
        }
        match &mut self.inner {
            Some(inner) if !self.is_dry => inner.arm_for(packets),
            _ => Some(Armed::Idle),
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        // What arrives would end each sleep at once.
        let inner = self.inner.as_ref().filter(|_| !self.is_dry);
        inner?.wake()
    }

    fn next_at(&self) -> Option<Instant> {
        let refill = self.short.then_some(self.refill_at);
        let next = self.inner.as_ref().and_then(D::Rx::next_at);
        refill.into_iter().chain(next).min()
    }

    fn held(&self) -> u64 {
        self.inner.as_ref().map_or(0, D::Rx::held)
    }

    fn syscalls(&self) -> u64 {
        self.syscalls + self.inner.as_ref().map_or(0, D::Rx::syscalls)
    }
}

/// The transmitting half of a queue.
pub struct ReturningTx<D: Driver> {
    shared: Arc<Shared<D>>,
    queue: usize,
    /// Of the device of `life`, until the queue has taken back what it had; `None` while it is
    /// away.
    inner: Option<D::Tx>,
    life: u32,
    /// The queue knows of the change, and calls `reset` next.
    told: bool,
    /// Offloads of a device that has come back, until the queue knows of them.
    offers: Option<Features>,
    interrupt: Option<Waker>,
    /// Doorbells and system calls for the devices before.
    doorbells: u64,
    syscalls: u64,
}

impl<D: Driver> ReturningTx<D> {
    pub(super) const fn new(shared: Arc<Shared<D>>, queue: usize, inner: D::Tx) -> Self {
        Self {
            shared,
            queue,
            inner: Some(inner),
            life: 0,
            told: false,
            offers: None,
            interrupt: None,
            doorbells: 0,
            syscalls: 0,
        }
    }

    #[inline]
    fn is_changed(&self) -> bool {
        self.shared.life() != self.life
    }

    /// As of [`ReturningRx`].
    fn follow(&mut self) {
        let mut state = self.shared.state();
        self.life = self.shared.life();
        if let Some(old) = self.inner.take() {
            self.doorbells += old.doorbells();
            self.syscalls += old.syscalls();
            state.removed.push(Removed::Tx(old));
            self.shared.changed.notify_all();
        }
        self.offers = None;
        if !is_away(self.life) {
            self.inner = state.queues[self.queue].tx.take();
            self.offers = Some(state.offers);
        }
        drop(state);
        if let (Some(inner), Some(interrupt)) = (&mut self.inner, &self.interrupt) {
            inner.set_interrupt(interrupt.clone());
        }
    }

    /// What the queue does with the refusal of the device: one that was removed has no link.
    fn refused(&self, refused: Refused) -> Refused {
        match refused {
            Refused::Removed => {
                self.shared.gone(self.life);
                Refused::LinkDown
            }
            refused => refused,
        }
    }
}

impl<D: Driver> TxDescriptors for ReturningTx<D> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let Some(inner) = &mut self.inner else {
            return Err(Refused::LinkDown);
        };
        let result = inner.encap(packet, token);
        result.map_err(|refused| self.refused(refused))
    }

    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
        match &mut self.inner {
            Some(inner) => {
                let result = inner.encap_batch(batch);
                result.map_err(|refused| self.refused(refused))
            }
            None => batch.each(|packet, token| self.encap(packet, token)),
        }
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        match self.inner.as_mut().map_or(Ok(()), |inner| inner.flush(now)) {
            Err(DeviceError::Removed) => {
                self.shared.gone(self.life);
                Ok(())
            }
            result => result,
        }
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        let Some(inner) = &mut self.inner else {
            return;
        };
        inner.reclaim(now, completed);
        match completed.take_failure() {
            None => {}
            Some(DeviceError::Removed) => self.shared.gone(self.life),
            Some(error) => completed.fail(error),
        }
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.shared.state().queues[self.queue].wakers[1] = Some(interrupt.clone());
        if let Some(inner) = &mut self.inner {
            inner.set_interrupt(interrupt.clone());
        }
        self.interrupt = Some(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        if self.is_changed() {
            return Some(Armed::WorkPending);
        }
        match &mut self.inner {
            Some(inner) => inner.arm(),
            None => Some(Armed::Idle),
        }
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        if self.is_changed() {
            return Some(Armed::WorkPending);
        }
        self.inner.as_mut()?.arm_for(packets)
    }

    fn is_blocked(&self) -> bool {
        self.inner.as_ref().is_none_or(D::Tx::is_blocked)
    }

    fn mtu(&mut self) -> Option<u32> {
        self.inner.as_mut()?.mtu()
    }

    #[inline]
    fn changed(&mut self) -> Change {
        if self.is_changed() {
            self.told = true;
            return Change::Restarted;
        }
        match (self.offers.take(), &mut self.inner) {
            (Some(offers), _) => Change::Offloads(offers),
            (None, Some(inner)) => inner.changed(),
            (None, None) => Change::No,
        }
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        let told = std::mem::take(&mut self.told);
        let result = match &mut self.inner {
            Some(inner) => inner.reset(sent, unsent),
            None => Ok(Reset::Done),
        };
        let removed = matches!(result, Err(DeviceError::Removed));
        if !told && !removed {
            return result;
        }
        if result.is_err() {
            // A device that was removed reads no packet: what it may have sent is lost to it.
            sent.drain().for_each(drop);
            unsent.drain().for_each(drop);
        }
        if told {
            self.follow();
        } else {
            self.shared.gone(self.life);
        }
        Ok(Reset::Done)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        self.inner.as_ref()?.wake()
    }

    fn next_at(&self) -> Option<Instant> {
        self.inner.as_ref()?.next_at()
    }

    fn doorbells(&self) -> u64 {
        self.doorbells + self.inner.as_ref().map_or(0, D::Tx::doorbells)
    }

    fn syscalls(&self) -> u64 {
        self.syscalls + self.inner.as_ref().map_or(0, D::Tx::syscalls)
    }
}

macro_rules! debug {
    ($half:ident) => {
        impl<D: Driver> fmt::Debug for $half<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($half))
                    .field("queue", &self.queue)
                    .field("life", &self.life)
                    .finish_non_exhaustive()
            }
        }
    };
}

debug!(ReturningRx);
debug!(ReturningTx);
