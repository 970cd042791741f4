//! What sends the packets of a lane to the ports that its handler named, in a session among several
//! ports.
//!
//! Each port is a branch: a producer of the ring in front of its TX queue, and the packets for
//! which that had no space. While any wait, the lane receives nothing, so a slow egress pushes back
//! on its ingress as between two ports. But it also holds up packets for the other ports. So a port
//! is waited for if it sends a burst within [`EGRESS_WAIT_MAX`]. After one in which it has sent
//! less, what its ring has no space for is dropped until it has sent a burst.

use super::producer::RingProducer;
use super::stats::LaneCounters;
use crate::driver::{Features, TxDescriptors};
use crate::limits::{BURST_PACKETS_MAX, EGRESS_WAIT_MAX};
use crate::packet::{Burst, Packet, PortSet};
use crate::stats::{DropCounters, DropReason};
use crate::time::Instant;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// The longest time between two looks at a ring that accepts nothing. Longer pauses count as this
/// much: the process was stopped or did not get a CPU, and its device may not have either.
const LOOK_EVERY: Duration = EGRESS_WAIT_MAX.checked_div(4).expect("not by zero");

/// A lane's access to a TX queue of each port.
#[derive(Debug)]
pub(super) struct Fan<T: TxDescriptors> {
    /// By port.
    branches: Vec<Branch<T>>,
    /// Where packets go for which no port was named.
    default: PortSet,
    /// The ports that packets of this lane leave by, unless its handler sends them back.
    others: PortSet,
    counters: Arc<LaneCounters>,
    drops: Arc<DropCounters>,
}

#[derive(Debug)]
struct Branch<T: TxDescriptors> {
    ring: RingProducer<T>,
    /// Packets for which the ring had no space.
    waiting: Burst,
    stall: Stall,
}

/// How long packets have waited for a port that has not sent a burst meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Stall {
    lasted: Duration,
    /// The last look at a ring that accepts nothing. `None` if no packets wait: a time in which
    /// the port had nothing to send does not count.
    looked: Option<Instant>,
    /// What the device had taken and completed at the beginning.
    moved: [u64; 2],
}

impl<T: TxDescriptors> Fan<T> {
    /// The fan of a lane of `port`. `rings` is by port; the ring of `port` itself is for packets
    /// that the handler sends back.
    pub(super) fn new(
        port: usize,
        rings: impl Iterator<Item = RingProducer<T>>,
        default: PortSet,
        counters: Arc<LaneCounters>,
        drops: Arc<DropCounters>,
    ) -> Self {
        let branches: Vec<_> = rings
            .map(|ring| Branch {
                ring,
                waiting: Burst::new(),
                stall: Stall::default(),
            })
            .collect();
        Self {
            others: PortSet::first(branches.len()).without(port),
            branches,
            default,
            counters,
            drops,
        }
    }

    /// Begins a step. Packets that wait go when it is their lane's turn.
    pub(super) fn begin(&mut self) {
        for branch in &mut self.branches {
            branch.ring.begin();
        }
    }

    /// Sends packets that wait.
    pub(super) fn retry(&mut self, now: Instant) {
        for branch in &mut self.branches {
            branch.send(now, &self.drops);
        }
    }

    /// Whether no packets wait.
    pub(super) fn accepts(&self) -> bool {
        self.branches.iter().all(|one| one.waiting.is_empty())
    }

    /// Takes all packets of `burst`. The fan must accept packets: then each branch has room for
    /// all of them.
    pub(super) fn send(&mut self, now: Instant, burst: &mut Burst) {
        while let Some(packet) = burst.pop() {
            self.route(packet);
        }
        self.retry(now);
    }

    /// Puts a packet, or clones of it, into the branches of its ports.
    fn route(&mut self, mut packet: Packet) {
        let wire_packets = u64::from(packet.meta().wire_packets);
        // Taken out, since the packet may come to another session that has other ports.
        let mut ports = packet.take_egress().unwrap_or(self.default).iter();
        let Some(mut port) = ports.next() else {
            return self.drops.add(DropReason::NoEgress, wire_packets);
        };
        for next in ports {
            // A clone that is not made for lack of memory, or of its port, is a loss, so it is
            // counted as made.
            self.counters.cloned.add(wire_packets);
            match self
                .branches
                .get_mut(port)
                .map(|to| (to, packet.try_clone()))
            {
                Some((to, Ok(clone))) => to.put(clone),
                Some((_, Err(_))) => self.drops.add(DropReason::NoBuffer, wire_packets),
                None => self.drops.add(DropReason::NoEgress, wire_packets),
            }
            port = next;
        }
        match self.branches.get_mut(port) {
            Some(to) => to.put(packet),
            None => self.drops.add(DropReason::NoEgress, wire_packets),
        }
    }

    /// Offloads that all devices do and have not refused.
    pub(super) fn features(&self) -> Features {
        let branches = self.others.iter().map(|port| &self.branches[port]);
        branches.fold(Features::ALL, |all, one| {
            all.intersection(one.ring.features())
        })
    }

    /// Waits until a branch whose packets wait has space: returns true if one has some already;
    /// else `waker` is woken when it has.
    pub(super) fn wait(&mut self, waker: &Waker) -> bool {
        // Registers with each of them, even after one that has space.
        let waiting = self.branches.iter_mut().filter(|one| one.waits());
        waiting.fold(false, |ready, one| ready | one.ring.wait(waker))
    }

    /// When the rings have to be looked at again for which packets wait.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let waiting = self.branches.iter().filter(|one| one.waits());
        let looked = waiting.filter_map(|one| one.stall.looked);
        looked.min().map(|looked| looked.after(LOOK_EVERY))
    }

    pub(super) fn deregister(&mut self) {
        self.branches
            .iter_mut()
            .for_each(|one| one.ring.deregister());
    }

    /// The reason for which packets are dropped, if the ring of any branch is closed: then the run
    /// ends.
    pub(super) fn closed(&self) -> Option<DropReason> {
        self.branches.iter().find_map(|one| one.ring.closed())
    }

    pub(super) fn is_over(&self) -> bool {
        self.branches.iter().all(|one| one.ring.is_over())
    }

    /// Wire packets that wait.
    pub(super) fn waiting(&self) -> u64 {
        let waiting = self.branches.iter().map(|one| one.waiting.wire_packets());
        waiting.sum()
    }

    /// Drops the packets that wait, counted under `reason`.
    pub(super) fn abandon(&mut self, reason: DropReason) {
        for branch in &mut self.branches {
            branch.abandon(reason, &self.drops);
        }
        self.deregister();
    }
}

impl<T: TxDescriptors> Branch<T> {
    fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn send(&mut self, now: Instant, drops: &DropCounters) {
        if !self.waits() {
            return;
        }
        self.ring.send(now, &mut self.waiting);
        if let Some(reason) = self.ring.closed() {
            self.abandon(reason, drops);
        }
        if self.waits() && self.has_stalled(now) {
            self.abandon(DropReason::EgressStalled, drops);
        }
        if !self.waits() {
            self.stall.looked = None;
        }
    }

    /// Looks at a ring that accepts nothing: whether packets have waited for [`EGRESS_WAIT_MAX`]
    /// since the port had last sent a burst. If it sends, other lanes were first to use the space.
    fn has_stalled(&mut self, now: Instant) -> bool {
        let stall = &mut self.stall;
        let moved = self.ring.moved();
        let sent = moved.iter().zip(stall.moved).map(|(now, then)| now - then);
        if sent.max() >= Some(BURST_PACKETS_MAX as u64) {
            (stall.lasted, stall.moved) = (Duration::ZERO, moved);
        } else if let Some(looked) = stall.looked {
            stall.lasted += now.since(looked).min(LOOK_EVERY);
        }
        stall.looked = Some(now);
        stall.lasted >= EGRESS_WAIT_MAX
    }

    /// The branch must have room for a burst, as one of a fan that accepts packets has.
    fn put(&mut self, packet: Packet) {
        if self.waiting.push(packet).is_err() {
            unreachable!("a branch that accepts packets has room for a burst");
        }
    }

    fn abandon(&mut self, reason: DropReason, drops: &DropCounters) {
        let wire_packets = self.waiting.wire_packets();
        self.waiting.clear();
        drops.add(reason, wire_packets);
    }
}
