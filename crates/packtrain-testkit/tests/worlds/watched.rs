//! A driver around a driver, for tests: sees each packet that the device accepts.

use packtrain::driver::{
    Accepted, Driver, QueuePair, Refused, Token, TxDescriptors, TxPacket, WrapDriver, WrapTx,
};
use packtrain::packet::Arena;
use std::sync::{Arc, Mutex};

/// Gets the bytes of each packet. It is not called for a packet that is sent while it runs.
pub type Seen = Arc<Mutex<dyn FnMut(&[u8]) + Send>>;

pub struct Watched<D>(pub D, pub Seen);

pub struct WatchedTx<T>(T, Seen);

impl<D: Driver> WrapDriver for Watched<D> {
    type Inner = D;
    type Rx = D::Rx;
    type Tx = WatchedTx<D::Tx>;

    fn inner(&self) -> &D {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.0
    }

    fn wrap(&mut self, _: usize, (rx, tx): QueuePair<D>, _: &Arena) -> QueuePair<Self> {
        (rx, WatchedTx(tx, Arc::clone(&self.1)))
    }
}

impl<T: TxDescriptors> WrapTx for WatchedTx<T> {
    type Inner = T;

    fn inner(&self) -> &T {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut T {
        &mut self.0
    }

    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let accepted = self.0.encap(packet, token)?;
        if let Ok(mut seen) = self.1.try_lock() {
            seen(packet.packet().first());
        }
        Ok(accepted)
    }
}
