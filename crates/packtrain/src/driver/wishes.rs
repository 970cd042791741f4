//! What users ask of a port.

use super::{Features, RxBuffers};

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
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            offload: Features::ALL,
            segments: None,
            queues: None,
            rx_buffers: None,
            coalesce: Coalesce::Auto,
        }
    }
}
