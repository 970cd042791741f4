//! A driver around a driver, for tests: sees each packet that the device accepts.

use packtrain::driver::{
    Accepted, Armed, Attach, Capabilities, Completed, DeviceCounters, DeviceError, Driver,
    Interest, Link, QueuePair, Refused, Reset, Token, TxDescriptors, TxPacket,
};
use packtrain::packet::Arena;
use packtrain::time::Instant;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Gets the bytes of each packet. It is not called for a packet that is sent while it runs.
pub type Seen = Arc<Mutex<dyn FnMut(&[u8]) + Send>>;

pub struct Watched<D>(pub D, pub Seen);

pub struct WatchedTx<T>(T, Seen);

impl<D: Driver> Driver for Watched<D> {
    type Rx = D::Rx;
    type Tx = WatchedTx<D::Tx>;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let pairs = self.0.attach(how, arena)?.into_iter();
        let wrap = |(rx, tx)| (rx, WatchedTx(tx, Arc::clone(&self.1)));
        Ok(pairs.map(wrap).collect())
    }

    fn link(&mut self) -> Link {
        self.0.link()
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        self.0.device_counters()
    }
}

impl<T: TxDescriptors> TxDescriptors for WatchedTx<T> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let accepted = self.0.encap(packet, token)?;
        if let Ok(mut seen) = self.1.try_lock() {
            seen(packet.packet().first());
        }
        Ok(accepted)
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.0.flush(now)
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        self.0.reclaim(now, completed);
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        self.0.set_interrupt(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        self.0.arm()
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        self.0.arm_for(packets)
    }

    fn is_blocked(&self) -> bool {
        self.0.is_blocked()
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        self.0.reset(sent, unsent)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        self.0.wake()
    }

    fn next_at(&self) -> Option<Instant> {
        self.0.next_at()
    }

    fn doorbells(&self) -> u64 {
        self.0.doorbells()
    }

    fn syscalls(&self) -> u64 {
        self.0.syscalls()
    }
}
