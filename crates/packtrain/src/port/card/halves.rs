//! The halves of a card's queue: what drivers of cards have in common around their descriptors.

use super::Interrupt;
use crate::driver::{
    Accepted, Armed, Change, Completed, DeviceError, Interest, Link, Refused, Reset, RxBurst,
    RxDescriptors, RxInfo, Token, TxDescriptors, TxPacket,
};
use crate::packet::{Arena, Packet};
use crate::port::vnet::bytes_min;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::LinkType;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What [`CardRx::receive`](RxDescriptors::receive) asks for: a packet with what the card says of
/// it, or why it cannot be used.
pub type Received = Result<(Packet, RxInfo), DropReason>;

/// How a card hands packets over: the descriptors of an RX ring. [`CardRx`] makes a half of it.
pub trait Receive: fmt::Debug + Send {
    /// As [`RxDescriptors::refill`].
    fn refill(&mut self, arena: &Arena) -> bool;

    /// Called before each poll, for a card whose interrupt is then of no use.
    fn begin(&mut self) {}

    /// The next packet of the ring. Descriptors that end none are handled on the way.
    fn next(&mut self) -> Option<Received>;

    /// Looks after the card while nothing arrives: its link, and whether it still works.
    ///
    /// # Errors
    ///
    /// Those that end the run.
    fn check(&mut self, now: Instant) -> Result<(), DeviceError>;

    /// When [`check`](Self::check) is due, also of a queue that sleeps.
    fn next_check(&self) -> Option<Instant>;

    /// Lets the interrupt come, after that for `packets` packets, and *then* looks whether they
    /// are there: so none is missed, since the eventfd was cleared before. `came` is whether it was
    /// readable. `None` only if the card [counts](Self::counts) and cannot do so here.
    fn arm(&mut self, came: bool, packets: usize) -> Option<Armed>;

    /// Whether the interrupt may be asked for after several packets.
    fn counts(&self) -> bool {
        false
    }

    /// As [`RxDescriptors::moderate`].
    fn moderate(&mut self, _delay: Duration) -> bool {
        false
    }
}

/// The receiving half of a card's queue.
#[derive(Debug)]
pub struct CardRx<Q> {
    pub(in crate::port) queue: Q,
    pub(in crate::port) interrupt: Interrupt,
    /// Times that the interrupt was cleared.
    calls: u64,
}

impl<Q: Receive> CardRx<Q> {
    /// Of a queue and its interrupt.
    pub const fn new(queue: Q, interrupt: Interrupt) -> Self {
        Self {
            queue,
            interrupt,
            calls: 0,
        }
    }

    fn clear(&mut self) -> bool {
        self.calls += 1;
        self.interrupt.clear()
    }
}

impl<Q: Receive> RxDescriptors for CardRx<Q> {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.queue.refill(arena)
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.queue.begin();
        while !burst.exhausted() {
            match self.queue.next() {
                Some(Ok((packet, info))) => burst.push(packet, &info),
                Some(Err(reason)) => burst.bad(reason, 1),
                None => return self.queue.check(now),
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        let came = self.clear();
        self.queue.arm(came, 1).unwrap_or(Armed::WorkPending)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        if !self.queue.counts() {
            return None;
        }
        let came = self.clear();
        self.queue.arm(came, packets)
    }

    fn moderate(&mut self, delay: Duration) -> bool {
        self.queue.moderate(delay)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.interrupt.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        self.queue.next_check()
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

/// How a card is given packets: the descriptors of a TX ring. [`CardTx`] makes a half of it.
pub trait Transmit: fmt::Debug + Send {
    /// The link as it was last read.
    fn link(&self) -> Link;

    /// Reads the link, for a port whose RX half is not polled.
    fn read_link(&mut self) {}

    /// Writes the descriptors of a packet, which is long enough, while the link is up.
    ///
    /// # Errors
    ///
    /// Those of [`TxDescriptors::encap`].
    fn put(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<(), Refused>;

    /// Tells the card of what was put. Returns whether that was a write of a register.
    fn publish(&mut self) -> bool;

    /// The next packet that the card has sent. A token of no packet is counted as a wrong one.
    fn next_complete(&mut self) -> Option<Token>;

    /// Called before completions are collected, for a card whose interrupt is then of no use.
    fn begin(&mut self) {}

    /// Whether the card still works.
    ///
    /// # Errors
    ///
    /// Those that end the run.
    fn check(&mut self, _now: Instant) -> Result<(), DeviceError> {
        match self.link() {
            Link::Removed => Err(DeviceError::Removed),
            Link::Up | Link::Down => Ok(()),
        }
    }

    /// As [`Receive::arm`].
    fn arm(&mut self, came: bool, packets: usize) -> Option<Armed>;

    /// As [`Receive::counts`].
    fn counts(&self) -> bool {
        false
    }

    /// As [`TxDescriptors::changed`].
    fn changed(&mut self) -> Change {
        Change::No
    }

    /// Whether the card can stop this queue and start it again: [`reset`](Self::reset) is called.
    fn can_reset(&self) -> bool {
        false
    }

    /// As [`TxDescriptors::reset`].
    ///
    /// # Errors
    ///
    /// Those of that.
    fn reset(&mut self, _sent: &mut Completed, _unsent: &mut Completed) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The transmitting half of a card's queue.
#[derive(Debug)]
pub struct CardTx<Q> {
    pub(in crate::port) queue: Q,
    pub(in crate::port) interrupt: Interrupt,
    /// The completed packet for which the last call had no room.
    returned: Option<Token>,
    doorbells: u64,
    /// Times that the interrupt was cleared.
    calls: u64,
}

impl<Q: Transmit> CardTx<Q> {
    /// Of a queue and its interrupt.
    pub const fn new(queue: Q, interrupt: Interrupt) -> Self {
        Self {
            queue,
            interrupt,
            returned: None,
            doorbells: 0,
            calls: 0,
        }
    }

    fn arm_after(&mut self, packets: usize) -> Option<Armed> {
        if self.returned.is_some() {
            return Some(Armed::WorkPending);
        }
        self.calls += 1;
        let came = self.interrupt.clear();
        self.queue.arm(came, packets)
    }
}

impl<Q: Transmit> TxDescriptors for CardTx<Q> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        if packet.packet().bytes() < bytes_min(LinkType::Ethernet) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        match self.queue.link() {
            Link::Up => self.queue.put(packet, token).map(|()| Accepted::Pending),
            Link::Down => Err(Refused::LinkDown),
            Link::Removed => Err(Refused::Removed),
        }
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.doorbells += u64::from(self.queue.publish());
        self.queue.check(now)
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        self.queue.begin();
        while let Some(token) = self.returned.take().or_else(|| self.queue.next_complete()) {
            if !completed.push(token) {
                self.returned = Some(token);
                break;
            }
        }
        if let Err(error) = self.queue.check(now) {
            completed.fail(error);
        }
    }

    fn arm(&mut self) -> Option<Armed> {
        self.arm_after(1)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        self.queue.counts().then(|| self.arm_after(packets))?
    }

    fn is_blocked(&self) -> bool {
        self.queue.link() == Link::Down
    }

    fn changed(&mut self) -> Change {
        self.queue.changed()
    }

    /// It does not change.
    fn mtu(&mut self) -> Option<u32> {
        self.queue.read_link();
        None
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        if !self.queue.can_reset() {
            return Ok(Reset::Unsupported);
        }
        // First: a card that lies may report more than there is room for.
        if let Some(token) = self.returned.take() {
            let has_room = sent.push(token);
            debug_assert!(has_room, "it is empty, with room for all packets in flight");
        }
        self.queue.reset(sent, unsent)?;
        Ok(Reset::Done)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.interrupt.as_fd(), Interest::Read))
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}
