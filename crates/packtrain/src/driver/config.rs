//! A port: a driver and its requested settings.

use super::{Driver, Features, RxBuffers};
use crate::policy::dispatch::Dispatch;
use crate::policy::moderation::Moderation;

/// Whether, and how, packtrain merges the packets of a port in software on their way to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// Where the other port takes large packets, gains by it, and this one hands over none.
    #[default]
    Auto,
    /// Never.
    Off,
    /// As `Auto`, also where the other port gains nothing by it.
    On,
    /// As `On`, and flows are always found in a table.
    Hash,
    /// As `On`, and packets are always grouped by sorting.
    Sorted,
    /// As `On`, and merging keeps byte streams instead of packets: it also takes TCP segments of
    /// unequal sizes and pure ACKs. What was merged cannot be cut into the same packets again.
    Stream,
}

/// Settings of a port's queues. `None` takes the setting of the session (`engine::Settings`). The
/// settings of a thread are not among them, since one thread works queues of both ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// Dispatch mode of the port's TX queues.
    pub dispatch: Option<Dispatch>,
    /// Interrupt moderation of the port's RX queues.
    pub moderation: Option<Moderation>,
    /// The port's TX queues have a ring and a TX worker, also where the plan would do without
    /// (`tx=shared`): for experiments.
    pub shared: bool,
}

/// The requested settings of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Offloads that may be used at most, both ways.
    pub offload: Features,
    /// A scatter-gather limit lower than the device's.
    pub segments: Option<usize>,
    /// Queues; 1 by default.
    pub queues: Option<usize>,
    /// Buffers to receive into; by default they follow from the other port's settings.
    pub rx_buffers: Option<RxBuffers>,
    /// Merging of what comes from the port.
    pub coalesce: Coalesce,
    /// Settings of the port's queues.
    pub work: QueueConfig,
}

/// A driver and its requested settings: what a session is built from.
#[derive(Debug)]
pub struct Port<D> {
    /// The driver.
    pub driver: D,
    /// The requested settings.
    pub config: PortConfig,
}

impl<D> From<D> for Port<D> {
    /// The driver with the default settings.
    fn from(driver: D) -> Self {
        Self {
            driver,
            config: PortConfig::default(),
        }
    }
}

/// What a session takes as a port: a [`Port`], or a driver with the default settings.
pub trait IntoPort {
    /// The driver's type.
    type Driver: Driver;

    /// The port.
    fn into_port(self) -> Port<Self::Driver>;
}

impl<D: Driver> IntoPort for Port<D> {
    type Driver = D;

    fn into_port(self) -> Self {
        self
    }
}

impl<D: Driver> IntoPort for D {
    type Driver = D;

    fn into_port(self) -> Port<D> {
        self.into()
    }
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            offload: Features::ALL,
            segments: None,
            queues: None,
            rx_buffers: None,
            coalesce: Coalesce::Auto,
            work: QueueConfig::default(),
        }
    }
}
