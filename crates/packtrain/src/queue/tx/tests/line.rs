//! A device with a ring. It sends in order, as fast as the test lets it, and may be reset.

use super::device::{Spec, to_wire};
use super::*;
use crate::driver::{Armed, Reset};
use crate::stats::TxSnapshot;

/// The device.
#[derive(Debug, Default)]
pub struct Line {
    /// Packets that it was given and has not sent.
    pub ring: VecDeque<(Token, Vec<Vec<u8>>)>,
    pub ring_max: usize,
    /// Packets before the last doorbell, and segments after it.
    pub announced: usize,
    pub pending_segments: usize,
    pub pending_most: usize,
    /// Packets sent over the wire.
    pub wire: Vec<Vec<u8>>,
    /// Packets sent and not yet reported.
    pub done: VecDeque<Token>,
    /// This many of `done` are never reported.
    pub lose: usize,
    pub lost: Vec<Token>,
    /// Features that it refuses.
    pub without: Features,
    pub link_down: bool,
    pub refuses_all: bool,
    pub blocked: bool,
    /// Reports nothing.
    pub silent: bool,
    pub can_reset: bool,
    /// What it reports next.
    pub change: Change,
    /// It raises its interrupt after a given number of completions.
    pub counts: bool,
    /// The number it was armed for last.
    pub armed_for: usize,
    /// Raises no interrupt.
    pub mute: bool,
    /// The time of its next event.
    pub due: Option<Instant>,
    /// At a reset, the first packets, as many as this, are in an unknown state.
    pub unknown: usize,
    pub flushes: u64,
    pub reclaims: u64,
    pub fails: bool,
}

impl Line {
    pub fn new(ring_max: usize) -> Self {
        Self {
            ring_max,
            can_reset: true,
            ..Self::default()
        }
    }

    /// Sends up to `packets` that were announced by a doorbell.
    pub fn work(&mut self, packets: usize) {
        for _ in 0..packets.min(self.announced) {
            let (token, wire) = self.ring.pop_front().unwrap();
            self.announced -= 1;
            self.wire.extend(wire);
            if self.lose > 0 {
                self.lose -= 1;
                self.lost.push(token);
            } else {
                self.done.push_back(token);
            }
        }
    }

    fn has(&self) -> usize {
        self.ring.len() + self.done.len() + self.lost.len()
    }
}

impl TxDescriptors for Line {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let packet = packet.packet();
        if self.link_down {
            return Err(Refused::LinkDown);
        }
        let refused = Features::needed_by(packet.meta()).intersection(self.without);
        if !refused.is_empty() {
            return Err(Refused::Feature(refused));
        }
        if self.refuses_all || self.has() >= self.ring_max {
            return Err(Refused::NoDescriptor);
        }
        self.ring.push_back((token, to_wire(packet)));
        self.pending_segments += packet.segments().count();
        self.pending_most = self.pending_most.max(self.pending_segments);
        Ok(Accepted::Pending)
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        if self.fails {
            return Err(DeviceError::Removed);
        }
        if self.announced < self.ring.len() {
            self.flushes += 1;
        }
        self.announced = self.ring.len();
        self.pending_segments = 0;
        Ok(())
    }

    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        self.reclaims += 1;
        if self.fails {
            completed.fail(DeviceError::Removed);
        }
        if self.silent {
            return;
        }
        for token in self.done.drain(..) {
            assert!(completed.push(token));
        }
    }

    /// As a device with interrupts: it reports no pending work.
    fn arm(&mut self) -> Option<Armed> {
        assert_eq!(
            self.announced,
            self.ring.len(),
            "no worker sleeps before the doorbell"
        );
        self.armed_for = 1;
        (!self.mute).then_some(Armed::Idle)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        let armed = self.counts.then(|| self.arm())?;
        self.armed_for = packets;
        armed
    }

    fn next_at(&self) -> Option<Instant> {
        self.due
    }

    fn changed(&mut self) -> Change {
        std::mem::take(&mut self.change)
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        if !self.can_reset {
            return Ok(Reset::Unsupported);
        }
        for token in self.done.drain(..).chain(self.lost.drain(..)) {
            assert!(sent.push(token));
        }
        // In any order: the queue restores it.
        for (token, _) in self.ring.drain(..).skip(self.unknown).rev() {
            assert!(unsent.push(token));
        }
        (self.announced, self.pending_segments) = (0, 0);
        (self.silent, self.refuses_all) = (false, false);
        Ok(Reset::Done)
    }

    fn doorbells(&self) -> u64 {
        self.flushes
    }
}

/// A queue of a [`Line`] of `slots`, and the packets that it was given.
pub struct Bench {
    pub arena: Arena,
    pub queue: TxQueue<Line>,
    pub burst: Burst,
    pub expected: Vec<Vec<u8>>,
    pub accounted: u64,
    id: u32,
}

impl Bench {
    /// Packets that completed, and wire packets that resets took back.
    pub fn completed_and_taken_back(&self) -> (u64, u64) {
        let counters = self.queue.counters();
        (counters.reclaimed.get(), counters.taken_back.get())
    }

    pub fn new(features: Features, device: Line) -> Self {
        let arena = Arena::new(ArenaConfig {
            small_frames: 4096,
            large_frames: 16,
            lines: 8192,
        })
        .unwrap();
        let queue = queue_of(&arena, features, Some(device.ring_max), device);
        Self {
            arena,
            queue,
            burst: Burst::new(),
            expected: Vec::new(),
            accounted: 0,
            id: 0,
        }
    }

    /// Puts a packet in the burst, if there is room.
    pub fn add(&mut self, spec: &Spec) {
        if self.burst.room() == 0 {
            return;
        }
        self.id += 1;
        let packet = spec.build(&self.arena, self.id);
        self.expected.extend(to_wire(&packet));
        self.accounted += u64::from(packet.meta().wire_packets);
        self.burst.push(packet).unwrap();
    }

    pub fn add_many(&mut self, spec: &Spec, packets: usize) {
        (0..packets).for_each(|_| self.add(spec));
    }

    pub fn transmit(&mut self) -> Sent {
        self.queue.transmit(&mut self.burst).unwrap()
    }

    pub fn transmit_more(&mut self) -> Sent {
        self.queue.transmit_more(&mut self.burst).unwrap()
    }

    /// Adds `packets`, and transmits.
    pub fn send(&mut self, spec: &Spec, packets: usize) -> Sent {
        self.add_many(spec, packets);
        self.transmit()
    }

    /// Adds `packets`, and transmits before more come.
    pub fn send_more(&mut self, spec: &Spec, packets: usize) -> Sent {
        self.add_many(spec, packets);
        self.transmit_more()
    }

    pub fn counters(&self) -> TxSnapshot {
        self.queue.counters().snapshot()
    }

    pub fn line(&mut self) -> &mut Line {
        self.queue.device_mut()
    }

    /// The conservation law, at any moment.
    pub fn check(&self) {
        let counters = self.counters();
        let held = self.queue.held() + self.burst.wire_packets();
        assert_eq!(
            self.accounted + counters.expanded,
            counters.wire_packets - counters.taken_back
                + counters.absorbed
                + self.queue.drops.snapshot().total()
                + held
        );
    }

    /// Sends all packets, and checks that each came once and in order, and that none is left.
    /// Returns the number of wire packets lost.
    pub fn end(mut self) -> u64 {
        let mut calls = 0;
        while self.transmit() != Sent::All {
            self.line().work(usize::MAX);
            calls += 1;
            assert!(calls < 1000, "no progress: {:?}", self.queue);
            self.check();
        }
        self.line().work(usize::MAX);
        self.queue.reclaim(Instant::default());
        self.check();
        assert_eq!((self.queue.held(), self.queue.in_flight()), (0, 0));
        assert_eq!(self.counters().bad_completions, 0);
        let dropped = self.queue.drops.snapshot().total();
        let wire = &self.queue.device().wire;
        let mut rest = self.expected.iter();
        for packet in wire {
            assert!(
                rest.any(|expected| expected == packet),
                "a packet came out twice, out of order, or with other bytes"
            );
        }
        assert_eq!(wire.len() as u64 + dropped, self.expected.len() as u64);
        assert_all_free(&self.arena);
        dropped
    }
}
