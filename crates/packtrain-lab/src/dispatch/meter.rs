//! A driver around another one that says how long packets took to the device.
//!
//! Whoever sends writes the time at which a packet was due into its metadata
//! ([`Meta::timestamp`](packtrain::packet::Meta::timestamp)); most packets have none, and cost one
//! comparison here. A device that is done with a packet at once has accepted it when `encap` says
//! so; one that keeps it (`Pending`) knows of it only after the doorbell, so there the time ends
//! with `flush`.

use packtrain::driver::{
    Accepted, Armed, Attach, Capabilities, Completed, DeviceCounters, DeviceError, Driver,
    Interest, Link, QueuePair, Refused, Reset, Token, TxDescriptors, TxPacket,
};
use packtrain::packet::Arena;
use packtrain::stats::Histogram;
use packtrain::time::{Clock, Instant, MonotonicClock};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;

/// Stamps that may wait for a doorbell. The framework rings after 128 descriptors at the latest,
/// and a packet has at least one.
const WAITING_MAX: usize = 128;

/// The driver.
#[derive(Debug)]
pub struct Meter<D> {
    inner: D,
    latency: Arc<Histogram>,
}

impl<D> Meter<D> {
    /// Measures what is sent through the first queue of `inner`. Nanoseconds go into `latency`,
    /// which nobody else may write while the queue exists.
    pub const fn new(inner: D, latency: Arc<Histogram>) -> Self {
        Self { inner, latency }
    }
}

impl<D: Driver> Driver for Meter<D> {
    type Rx = D::Rx;
    type Tx = MeterTx<D::Tx>;

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // A histogram has one writer.
            queues_max: 1,
            ..self.inner.capabilities()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let pairs = self.inner.attach(how, arena)?.into_iter();
        let wrap = |(rx, inner)| {
            let tx = MeterTx {
                inner,
                clock: MonotonicClock::new(),
                waiting: Vec::with_capacity(WAITING_MAX),
                latency: Arc::clone(&self.latency),
            };
            (rx, tx)
        };
        Ok(pairs.map(wrap).collect())
    }

    fn link(&mut self) -> Link {
        self.inner.link()
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        self.inner.device_counters()
    }
}

/// The transmitting half of its queue.
#[derive(Debug)]
pub struct MeterTx<T> {
    inner: T,
    clock: MonotonicClock,
    /// Stamps of packets that the device does not know of yet.
    waiting: Vec<Instant>,
    latency: Arc<Histogram>,
}

impl<T> MeterTx<T> {
    fn record_waiting(&mut self) {
        if !self.waiting.is_empty() {
            let now = self.clock.now();
            for stamp in self.waiting.drain(..) {
                self.latency.record(now.since(stamp).as_nanos() as u64);
            }
        }
    }
}

impl<T: TxDescriptors> TxDescriptors for MeterTx<T> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let stamp = packet.packet().meta().timestamp;
        let accepted = self.inner.encap(packet, token)?;
        if stamp != Instant::default() {
            if self.waiting.len() == WAITING_MAX {
                self.record_waiting();
            }
            self.waiting.push(stamp);
            if accepted == Accepted::Complete {
                self.record_waiting();
            }
        }
        Ok(accepted)
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        let result = self.inner.flush(now);
        self.record_waiting();
        result
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        self.inner.reclaim(now, completed);
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.inner.set_interrupt(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        self.inner.arm()
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        self.inner.arm_for(packets)
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        self.inner.reset(sent, unsent)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        self.inner.wake()
    }

    fn next_at(&self) -> Option<Instant> {
        self.inner.next_at()
    }

    fn doorbells(&self) -> u64 {
        self.inner.doorbells()
    }

    fn syscalls(&self) -> u64 {
        self.inner.syscalls()
    }
}
