//! The settings of one kind of port: keys that become a driver.

use super::key::Key;
use super::{DeviceError, Driver, PortConfig};
use packtrain_offload::offload::LinkType;

/// The settings that only one kind of port has.
pub(crate) trait Options: Clone + Default + 'static {
    /// The driver that they make.
    type Driver: Driver;
    /// Every key.
    const KEYS: &'static [Key<Self>];

    /// Checks what needs several settings. `given` are the keys that the user wrote.
    ///
    /// # Errors
    ///
    /// One line with what, why and what to do.
    fn check(&self, port: &Request<'_>, given: &[&str]) -> Result<(), String>;

    /// Opens the port.
    ///
    /// # Errors
    ///
    /// The driver's.
    fn open(&self, port: &Request<'_>) -> Result<Self::Driver, DeviceError>;

    /// The number of queues that these settings imply.
    fn queues(&self) -> Option<usize> {
        None
    }

    /// Whether the port waits for a device that is removed (`gone=wait`).
    fn waits(&self) -> bool {
        false
    }

    /// Whether the kernel pins the memory of packets for the device when the port is attached. It
    /// needs `CAP_IPC_LOCK` beyond the limit of locked memory.
    fn pins_memory(&self) -> bool {
        false
    }

    /// Whether the port can have the link type of the other one.
    fn takes_link(&self) -> TakesLink {
        TakesLink::None
    }
}

/// Which link types a port can have. The one with fewer is opened first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TakesLink {
    /// Its own: that of an interface, or one that the settings name.
    None,
    /// Perhaps another one than its own: a capture of a device that is no Ethernet device.
    Some,
    /// Any.
    Any,
}

/// The rest of what the user wrote about a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The kind, in front of the colon.
    pub(crate) kind: &'static str,
    /// The name behind the colon.
    pub(crate) name: &'a str,
    /// The settings that every kind has.
    pub(crate) config: &'a PortConfig,
    /// The seed of all chance.
    pub(crate) seed: Option<u64>,
    /// The link type of the other port, for a port that can have either and names none. `None` if
    /// the other one is not open yet.
    pub(crate) link: Option<LinkType>,
}
