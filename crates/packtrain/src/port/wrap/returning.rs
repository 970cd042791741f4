//! A port that goes and comes back in one run: when its device is removed, the port waits, and
//! opens it again once it is there.

mod halves;
mod reopen;
mod shared;

#[cfg(all(test, not(packtrain_loom)))]
mod tests;

pub use halves::{ReturningRx, ReturningTx};

use crate::driver::{
    Attach, Capabilities, DeviceCounters, DeviceError, Driver, Interface, Link, PortChanges,
    QueuePair,
};
use crate::packet::Arena;
use reopen::{Open, Reopener, Reopening};
use shared::{Shared, is_away};
use std::fmt;
use std::fs::File;
use std::sync::Arc;

/// A driver whose device may be removed and come back in the same run, as an interface that is
/// deleted and made again.
///
/// While the device is away, the link is down: packets for it are dropped (`drop.link_down`), and
/// none arrive. Packets that the device had go out again once it is back if it reports that it did
/// not send them (by then the link is down, so they are dropped as those are); else they are
/// `drop.device_reset`. The queues then continue with the new device, and are planned anew for its
/// offloads and its MTU: what it lacks is done in software, and what it has in addition is left to
/// it. A device that accepts fewer segments, or has other rings, is not taken.
///
/// A thread opens the device, ten times a second at most, and closes the one that was removed:
/// both may take the kernel a while, and a worker never waits. A device that is that of another
/// port by then is not taken. The thread does so in the network namespace
/// in which the port was made, with the privileges of the thread that attaches the port.
///
/// ```no_run
/// use packtrain::port::packet::{PacketConfig, PacketSocket};
/// use packtrain::port::wrap::Returning;
///
/// let config = PacketConfig::new("eth1");
/// let port = PacketSocket::open(&config)?;
/// let port = Returning::new(port, move || PacketSocket::open(&config));
/// # let _: Returning<PacketSocket> = port;
/// # Ok::<(), packtrain::driver::DeviceError>(())
/// ```
pub struct Returning<D: Driver> {
    name: String,
    capabilities: Capabilities,
    shared: Arc<Shared<D>>,
    /// Until the port is attached.
    open: Option<Open<D>>,
    /// Of the thread that made the port; `None` if it is not known.
    namespace: Option<File>,
    changes: Option<PortChanges>,
    thread: Option<Reopening<D>>,
}

impl<D: Driver + 'static> Returning<D> {
    /// Around `driver`, which `open` opens again. It returns [`DeviceError::Removed`] as long as
    /// there is no device.
    pub fn new(driver: D, open: impl Fn() -> Result<D, DeviceError> + Send + 'static) -> Self {
        Self {
            name: driver.name().to_owned(),
            capabilities: driver.capabilities(),
            shared: Arc::new(Shared::new(driver)),
            open: Some(Box::new(open)),
            namespace: File::open("/proc/thread-self/ns/net").ok(),
            changes: None,
            thread: None,
        }
    }
}

impl<D: Driver + 'static> Driver for Returning<D> {
    type Rx = ReturningRx<D>;
    type Tx = ReturningTx<D>;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let Some(open) = self.open.take() else {
            let why = format!("{} is attached already: open it once more", self.name);
            return Err(DeviceError::Unsupported(why));
        };
        let mut device = self.shared.device();
        let driver = device.driver.as_mut().ok_or(DeviceError::Removed)?;
        // As the plan saw it.
        let planned = driver.capabilities();
        let queues = driver.attach(how, arena)?;
        self.capabilities = driver.capabilities();
        drop(device);
        self.shared.state().open_queues(queues.len());
        let reopener = Reopener {
            shared: Arc::clone(&self.shared),
            open,
            how: *how,
            arena: arena.clone(),
            planned,
            notes: self.capabilities.notes.clone(),
            changes: self.changes.clone(),
        };
        self.thread = Some(reopener.start(self.namespace.take())?);
        let pairs = queues.into_iter().enumerate().map(|(queue, (rx, tx))| {
            let shared = || Arc::clone(&self.shared);
            (
                ReturningRx::new(shared(), queue, rx, arena.clone()),
                ReturningTx::new(shared(), queue, tx),
            )
        });
        Ok(pairs.collect())
    }

    fn record_changes(&mut self, changes: PortChanges) {
        if let Some(driver) = &mut self.shared.device().driver {
            driver.record_changes(changes.clone());
        }
        self.changes = Some(changes);
    }

    fn interface(&self) -> Option<Interface> {
        self.shared.device().driver.as_ref()?.interface()
    }

    /// Down while the device is away.
    fn link(&mut self) -> Link {
        let mut device = self.shared.device();
        let life = self.shared.life();
        let Some(driver) = device.driver.as_mut().filter(|_| !is_away(life)) else {
            return Link::Down;
        };
        match driver.link() {
            Link::Removed => {
                self.shared.gone(life);
                Link::Down
            }
            link => {
                // They go with the device.
                device.count();
                link
            }
        }
    }

    /// The sum of all devices so far. What a removed one counted since the last call of this or of
    /// [`link`](Driver::link) is missing.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        let mut device = self.shared.device();
        if !is_away(self.shared.life()) {
            device.count();
        }
        device.counted()
    }
}

impl<D: Driver> fmt::Debug for Returning<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Returning")
            .field("name", &self.name)
            .field("life", &self.shared.life())
            .finish_non_exhaustive()
    }
}
