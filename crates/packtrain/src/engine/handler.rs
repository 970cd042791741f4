//! The user's code in the middle of a packet's trip.

use crate::packet::Burst;
use crate::time::Instant;

/// Which of the two joined ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The first.
    A,
    /// The second.
    B,
}

impl Port {
    /// 0 for the first and 1 for the second: its place in [`Snapshot::ports`](super::Snapshot).
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// What happens to packets between RX and TX. Each worker has one of its own.
///
/// It may change packets, take packets out (they count as delivered) and put packets in (they count
/// as generated); what is in the burst afterwards goes to the other port. A step never blocks.
pub trait Handler: Send {
    /// Handles what arrived at `from`, in arrival order.
    fn handle(&mut self, now: Instant, from: Port, burst: &mut Burst);

    /// False for a handler that neither takes packets out nor puts any in: then nothing has to be
    /// counted around it.
    const COUNTED: bool = true;
}

/// Passes everything on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward;

impl Handler for Forward {
    fn handle(&mut self, _now: Instant, _from: Port, _burst: &mut Burst) {}

    const COUNTED: bool = false;
}
