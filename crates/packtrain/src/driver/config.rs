//! Ports: a driver and its requested settings.

use super::{Driver, Features, RxBuffers};
use crate::limits::SEGMENTS_FRAMEWORK_MAY_ADD;
use crate::policy::dispatch::Dispatch;
use crate::policy::gro::Gro;
use crate::policy::moderation::Moderation;
use std::fmt;

/// Whether and how packtrain merges packets of a port in software, for the other port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// If the other port accepts large packets, gains by them, and this port delivers none.
    #[default]
    Auto,
    /// Never.
    Off,
    /// As `Auto`, also if the other port gains nothing by them.
    On,
    /// As `On`, always with a table of flows.
    Hash,
    /// As `On`, always with sorting.
    Sorted,
    /// As `On`, and merging keeps byte streams instead of packets: it also merges TCP segments of
    /// unequal sizes, and pure ACKs. Segmentation does not restore the same packets.
    Stream,
}

impl fmt::Display for Coalesce {
    /// As in `coalesce=`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::On => "on",
            Self::Hash => "hash",
            Self::Sorted => "sorted",
            Self::Stream => "stream",
        })
    }
}

/// What is done with a packet of too many segments for the device after neighbouring segments were
/// merged in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// It is dropped (`too_many_segments`), as iflib did before it called `m_defrag` (S0). For
    /// experiments.
    Collapse,
    /// It is copied into fresh frames, and dropped only if that fails.
    #[default]
    Defrag,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Collapse => "collapse",
            Self::Defrag => "defrag",
        })
    }
}

/// Settings of a port's queues. `None` is the setting of the session (`engine::Settings`). Settings
/// of a thread are not among them, since one thread has queues of both ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// Dispatch mode of the port's TX queues.
    pub dispatch: Option<Dispatch>,
    /// Interrupt moderation of the port's RX queues.
    pub moderation: Option<Moderation>,
    /// The port's TX queues are shared (`tx=shared`), also if the plan would make them owned. For
    /// experiments.
    pub shared: bool,
}

/// The requested settings of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The offloads that may be used, in both directions.
    pub offload: Features,
    /// A scatter-gather limit lower than the device's.
    pub segments: Option<usize>,
    /// As `segments`, for GSO packets; `None` for the same limit.
    pub gso_segments: Option<usize>,
    /// The segments by which the advertised limit is lower than the effective one: what the
    /// framework may add to a packet that was built to the limit. 1 by default, at most
    /// [`SEGMENT_HEADROOM_MAX`](crate::limits::SEGMENT_HEADROOM_MAX).
    pub segment_headroom: usize,
    /// How packets with too many segments are made to fit.
    pub fit: Fit,
    /// Queues; 1 by default.
    pub queues: Option<usize>,
    /// Buffers to receive into; by default the plan chooses them by the other port.
    pub rx_buffers: Option<RxBuffers>,
    /// Merging of packets from the port.
    pub coalesce: Coalesce,
    /// How many of them are held to be merged, and for how long.
    pub gro: Gro,
    /// Settings of the port's queues.
    pub work: QueueConfig,
}

/// A driver and its requested settings: a session is built from ports.
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

/// Conversion to a [`Port`]: of a port itself, or of a driver with the default settings.
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
            gso_segments: None,
            segment_headroom: SEGMENTS_FRAMEWORK_MAY_ADD,
            fit: Fit::Defrag,
            queues: None,
            rx_buffers: None,
            coalesce: Coalesce::Auto,
            gro: Gro::default(),
            work: QueueConfig::default(),
        }
    }
}
