//! What sends the packets of a lane to the ports that its handler named, in a session among several
//! ports.
//!
//! A switch does not push back: the lane has packets for other ports, too. So the packets for which
//! a port has no space are dropped at once (`drop.egress_full`), as in Linux's bridge and in VALE.
//! A port has space if the ring in front of its TX queue has, and if the frames that wait there
//! stay within [`EGRESS_FRAME_BYTES_MAX`](crate::limits::EGRESS_FRAME_BYTES_MAX).
//!
//! A lane whose input loses nothing by waiting ([`Capabilities::rx_waits`]) keeps those packets
//! instead, and receives nothing until they are sent.
//!
//! [`Capabilities::rx_waits`]: crate::driver::Capabilities::rx_waits

use super::producer::RingProducer;
use super::stats::LaneCounters;
use crate::driver::{Features, TxDescriptors};
use crate::limits::{BURST_PACKETS_MAX, PORTS_MAX};
use crate::packet::{Burst, Packet, PortSet};
use crate::plant::planted;
use crate::stats::{DropCounters, DropReason};
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A lane whose packets wait retries after this time: no event says that the frames in front of a
/// port have become fewer while its ring had space.
const RETRY_AFTER: Duration = Duration::from_millis(1);

const IN_USE: &str = "it is put back after each use";

/// A lane's access to a TX queue of each port.
#[derive(Debug)]
pub(super) struct Fan<T: TxDescriptors> {
    /// The lane's own port.
    port: usize,
    /// By port.
    rings: Vec<RingProducer<T>>,
    /// Where packets go for which no port was named.
    default: PortSet,
    /// The packets of a burst for several ports.
    routed: Vec<Routed>,
    /// Those of one port; `None` while it is filled and sent.
    to: Option<Burst>,
    /// Those for which that port has no frames.
    excess: Burst,
    /// Packets for which a port had no space, with that port; only if `waits`.
    waiting: VecDeque<(usize, Packet)>,
    /// The input loses nothing by waiting.
    waits: bool,
    /// The ports whose rings have the lane in their list of waiters.
    listed: Vec<usize>,
    /// Offloads that all devices do and have not refused, as of this step.
    features: Option<Features>,
    closed: Option<DropReason>,
    deregistered: bool,
    counters: Arc<LaneCounters>,
    drops: Arc<DropCounters>,
}

/// A packet and its ports.
#[derive(Debug)]
struct Routed {
    /// `None` once it was sent to the last one.
    packet: Option<Packet>,
    to: PortSet,
    last: usize,
}

impl<T: TxDescriptors> Fan<T> {
    /// The fan of a lane of `port`. `rings` is by port; the ring of `port` itself is for packets
    /// that the handler sends back.
    pub(super) fn new(
        port: usize,
        rings: Vec<RingProducer<T>>,
        default: PortSet,
        waits: bool,
        counters: Arc<LaneCounters>,
        drops: Arc<DropCounters>,
    ) -> Self {
        let most = if waits { rings.len() } else { 0 };
        Self {
            port,
            rings,
            default,
            routed: Vec::with_capacity(BURST_PACKETS_MAX),
            to: Some(Burst::new()),
            excess: Burst::new(),
            waiting: VecDeque::with_capacity(most * BURST_PACKETS_MAX),
            waits,
            listed: Vec::with_capacity(most),
            features: None,
            closed: None,
            deregistered: false,
            counters,
            drops,
        }
    }

    /// Begins a step. Packets that wait go when it is their lane's turn.
    pub(super) fn begin(&mut self) {
        self.features = None;
        let rings = &mut self.rings;
        self.listed.retain(|&port| rings[port].begin());
    }

    /// Sends packets that wait.
    pub(super) fn retry(&mut self, now: Instant) {
        // Those of a port follow each other, and what is left of them goes to the back.
        let mut left = self.waiting.len();
        while left > 0 {
            let mut to = self.to.take().expect(IN_USE);
            let port = self.waiting[0].0;
            while left > 0
                && to.room() > 0
                && let Some((_, packet)) = self.waiting.pop_front_if(|one| one.0 == port)
            {
                left -= 1;
                put(&mut to, packet);
            }
            self.send_to(now, port, &mut to);
            self.to = Some(to);
        }
    }

    /// Whether no packets wait.
    pub(super) fn accepts(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes all packets of `burst`. The fan must accept packets.
    pub(super) fn send(&mut self, now: Instant, burst: &mut Burst) {
        let default = self.default;
        let port = |packet: &Packet| packet.egress().unwrap_or(default).single();
        // Most bursts are for one port, and stay as they are.
        if let Some(first) = burst.front().and_then(port)
            && burst.iter().all(|packet| port(packet) == Some(first))
        {
            // Taken out, since the packets may come to another session that has other ports.
            burst.iter_mut().for_each(|packet| {
                packet.take_egress();
            });
            return self.send_to(now, first, burst);
        }
        self.distribute(now, burst);
    }

    /// Sends the packets of `burst`, or clones of them, port by port: what a port has no space for
    /// takes no memory while the others are served.
    fn distribute(&mut self, now: Instant, burst: &mut Burst) {
        let all = self.rings.len();
        let mut ports = [0_u64; PORTS_MAX / 64];
        while let Some(mut packet) = burst.pop() {
            let to = packet.take_egress().unwrap_or(self.default);
            let wire_packets = u64::from(packet.meta().wire_packets);
            let (mut count, mut last) = (0, 0);
            let one = to.single();
            let (first, end) = one.map_or((0, all), |port| (port, all.min(port + 1)));
            for port in (first..end).filter(|&port| to.has(port)) {
                ports[port / 64] |= 1 << (port % 64);
                (count, last) = (count + 1, port);
            }
            let missing = to.missing(all);
            let clones = (count + missing).saturating_sub(1) as u64;
            self.counters.cloned.add(clones * wire_packets);
            let nowhere = missing.max(usize::from(count == 0)) as u64;
            self.drops.add(DropReason::NoEgress, nowhere * wire_packets);
            let packet = (count > 0).then_some(packet);
            self.routed.push(Routed { packet, to, last });
        }
        let mut to = self.to.take().expect(IN_USE);
        let used = (0..all).filter(|port| ports[port / 64] & 1 << (port % 64) != 0);
        for port in used {
            for one in &mut self.routed {
                match one.take(port) {
                    None => {}
                    Some(Ok(packet)) => put(&mut to, packet),
                    // It is counted as made, and is a loss.
                    Some(Err(wire_packets)) => self.drops.add(DropReason::NoBuffer, wire_packets),
                }
            }
            self.send_to(now, port, &mut to);
        }
        self.to = Some(to);
        self.routed.clear();
    }

    /// Sends all of `burst` to a port. What that has no space for is dropped or waits.
    fn send_to(&mut self, now: Instant, port: usize, burst: &mut Burst) {
        let Some(ring) = self.rings.get_mut(port) else {
            self.drops.add(DropReason::NoEgress, burst.wire_packets());
            return burst.clear();
        };
        ring.send_within(now, burst, &mut self.excess);
        if burst.is_empty() {
            return;
        }
        if let Some(reason) = ring.closed() {
            self.closed = Some(reason);
            self.drops.add(reason, burst.wire_packets());
            return burst.clear();
        }
        if !self.waits && !planted!(EgressWaits) {
            return ring.refuse(burst);
        }
        while let Some(packet) = burst.pop() {
            self.waiting.push_back((port, packet));
        }
    }

    /// Offloads that all devices do and have not refused.
    pub(super) fn features(&mut self) -> Features {
        let (before, from) = self.rings.split_at(self.port);
        let others = before.iter().chain(&from[1..]).map(RingProducer::features);
        let all = || others.fold(Features::ALL, Features::intersection);
        *self.features.get_or_insert_with(all)
    }

    /// Waits until a port for which packets wait has space: returns true if one has some already;
    /// else `waker` is woken when its ring has.
    pub(super) fn wait(&mut self, waker: &Waker) -> bool {
        let (mut ready, mut last) = (false, None);
        // Registers with each of them, even after one that has space.
        for (port, packet) in &self.waiting {
            if last.replace(*port) != Some(*port) {
                let ring = &mut self.rings[*port];
                ready |= ring.wait(waker) && ring.has_frames(packet);
                if !self.listed.contains(port) {
                    self.listed.push(*port);
                }
            }
        }
        ready
    }

    /// When packets that wait are to be sent again.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        (!self.accepts()).then(|| now.after(RETRY_AFTER))
    }

    pub(super) fn deregister(&mut self) {
        if !std::mem::replace(&mut self.deregistered, true) {
            self.rings.iter_mut().for_each(RingProducer::deregister);
        }
    }

    /// The reason for which packets are dropped, if a ring was found closed: then the run ends.
    pub(super) const fn closed(&self) -> Option<DropReason> {
        self.closed
    }

    pub(super) const fn is_over(&self) -> bool {
        self.deregistered
    }

    /// Wire packets that wait.
    pub(super) fn waiting(&self) -> u64 {
        let waiting = self.waiting.iter().map(|(_, packet)| packet.meta());
        waiting.map(|meta| u64::from(meta.wire_packets)).sum()
    }

    /// Drops the packets that wait, counted under `reason`.
    pub(super) fn abandon(&mut self, reason: DropReason) {
        self.drops.add(reason, self.waiting());
        self.waiting.clear();
        self.deregister();
    }
}

impl Routed {
    /// The packet for `port`, which is a clone if another port comes after it; `None` if it does
    /// not go there. Without memory for a clone, returns its wire packets.
    fn take(&mut self, port: usize) -> Option<Result<Packet, u64>> {
        let packet = self.packet.as_ref().filter(|_| self.to.has(port))?;
        if port == self.last {
            return self.packet.take().map(Ok);
        }
        let wire_packets = u64::from(packet.meta().wire_packets);
        Some(packet.try_clone().map_err(|_no_line| wire_packets))
    }
}

fn put(to: &mut Burst, packet: Packet) {
    if to.push(packet).is_err() {
        unreachable!("each packet of a burst is sent to a port once");
    }
}
