//! The conservation ledger: every wire packet that came in is accounted for.

use crate::stats::{DropSnapshot, RxSnapshot, TxSnapshot};

/// The sums of the conservation law, in wire packets.
///
/// `received + generated + expanded = transmitted + delivered + held + absorbed + dropped`,
/// exact when no worker is in the middle of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Taken from a device, bad packets included.
    pub received: u64,
    /// Made by the user's code.
    pub generated: u64,
    /// Made from others: fragments, clones, cutting into more.
    pub expanded: u64,
    /// Accepted by a device, those included that it still had when the run ended: what it does
    /// with them shows in its own counters.
    pub transmitted: u64,
    /// Taken by the user's code.
    pub delivered: u64,
    /// Still in a queue.
    pub held: u64,
    /// Merged into others for good: aggregated ACKs, cutting into fewer.
    pub absorbed: u64,
    /// Lost, for all reasons together.
    pub dropped: u64,
}

impl Ledger {
    /// Whether the two sides are equal.
    #[must_use]
    pub const fn closed(&self) -> bool {
        self.inflow() == self.outflow()
    }

    /// Left side of the law.
    #[must_use]
    pub const fn inflow(&self) -> u64 {
        self.received + self.generated + self.expanded
    }

    /// Right side of the law.
    #[must_use]
    pub const fn outflow(&self) -> u64 {
        self.transmitted + self.delivered + self.held + self.absorbed + self.dropped
    }

    /// Adds an RX queue.
    pub const fn add_rx(&mut self, rx: &RxSnapshot) {
        self.received += rx.wire_packets;
        self.absorbed += rx.absorbed;
    }

    /// Adds a TX queue.
    pub const fn add_tx(&mut self, tx: &TxSnapshot) {
        // What a reset took back from the device was not transmitted; it is held again, or dropped.
        self.transmitted += tx.wire_packets.saturating_sub(tx.taken_back);
        self.expanded += tx.expanded;
        self.absorbed += tx.absorbed;
    }

    /// Adds a block of drops.
    pub fn add_drops(&mut self, drops: &DropSnapshot) {
        self.dropped += drops.total();
    }

    /// Adds another ledger, of another run.
    pub const fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.generated += other.generated;
        self.expanded += other.expanded;
        self.transmitted += other.transmitted;
        self.delivered += other.delivered;
        self.held += other.held;
        self.absorbed += other.absorbed;
        self.dropped += other.dropped;
    }
}
