//! Handlers: the user's code between RX and TX.

use crate::packet::Burst;
use crate::time::Instant;

/// One RX queue of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RxId {
    /// The port, counted from 0.
    pub port: usize,
    /// The queue, counted from 0.
    pub queue: usize,
}

/// The user's code for packets between RX and TX. Each RX queue has a handler of its own.
///
/// A handler may change packets, take packets out (they count as delivered) and put packets in
/// (they count as generated). The packets that remain in the burst are transmitted: by the other
/// port, or, in a session on one port, by the same one. In a session among several ports the
/// handler chooses ([`Packet::set_egress`](crate::packet::Packet::set_egress)). A handler never
/// blocks.
pub trait Handler: Send {
    /// Handles packets received by `from`, in arrival order.
    fn handle(&mut self, now: Instant, from: RxId, burst: &mut Burst);

    /// False for a handler that neither takes packets out nor puts any in: the engine then counts
    /// nothing around its calls.
    const COUNTED: bool = true;

    /// False for a handler that reads no layout of a packet
    /// ([`Meta::layout`](crate::packet::Meta::layout)): then only those packets have one that a
    /// later stage needs it of.
    const PARSED: bool = true;
}

/// Forwards all packets unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward;

impl Handler for Forward {
    fn handle(&mut self, _now: Instant, _from: RxId, _burst: &mut Burst) {}

    const COUNTED: bool = false;
    const PARSED: bool = false;
}

/// A handler from a closure that takes the burst.
impl<F: FnMut(Instant, RxId, &mut Burst) + Send> Handler for F {
    fn handle(&mut self, now: Instant, from: RxId, burst: &mut Burst) {
        self(now, from, burst);
    }
}
