//! What users ask of a port.

use super::{Features, RxBuffers};
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
    /// As `Auto`, also where nobody gains by it.
    On,
    /// As `On`, and flows are always found in a table.
    Hash,
    /// As `On`, and packets are always grouped by sorting.
    Sorted,
    /// As `On`, and merging keeps byte streams instead of packets: it also takes TCP segments of
    /// unequal sizes and pure ACKs. What was merged cannot be cut into the same packets again.
    Stream,
}

/// How the queues of one port are worked, where its user says so. `None` is for whoever joins the
/// ports to say (`engine::Settings`). What a thread does is not among it, since one thread works
/// queues of both ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueWishes {
    /// When the rings in front of the port's TX queues are drained, and by whom.
    pub dispatch: Option<Dispatch>,
    /// When the port's RX queues wake their worker.
    pub moderation: Option<Moderation>,
}

/// What the user asked of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Offloads that may be used at most, both ways.
    pub offload: Features,
    /// A scatter-gather limit lower than the device's.
    pub segments: Option<usize>,
    /// Queues; 1 when nobody says.
    pub queues: Option<usize>,
    /// Buffers to receive into; chosen from the other port's wishes when nobody says.
    pub rx_buffers: Option<RxBuffers>,
    /// Merging of what comes from the port.
    pub coalesce: Coalesce,
    /// How the port's queues are worked.
    pub work: QueueWishes,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            offload: Features::ALL,
            segments: None,
            queues: None,
            rx_buffers: None,
            coalesce: Coalesce::Auto,
            work: QueueWishes::default(),
        }
    }
}
