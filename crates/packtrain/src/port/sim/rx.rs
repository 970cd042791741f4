//! The receiving half of a simulated queue.

use super::wire::{RxRing, Wire, Written};
use crate::driver::{Armed, DeviceError, Interest, Link, RxBurst, RxDescriptors, RxInfo};
use crate::packet::{Arena, FrameClass, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Buffers posted with one write of the tail register.
const REFILL_BATCH: usize = 32;

/// The receiving half of one queue.
#[derive(Debug)]
pub struct SimRx {
    wire: Arc<Wire>,
    side: usize,
    queue: usize,
    batch: Vec<Packet>,
    syscalls: u64,
}

impl SimRx {
    pub(super) fn new(wire: Arc<Wire>, side: usize, queue: usize) -> Self {
        Self {
            wire,
            side,
            queue,
            batch: Vec::with_capacity(REFILL_BATCH),
            syscalls: 0,
        }
    }

    fn ring(&self) -> Option<&RxRing> {
        let attached = self.wire.end(self.side).attached.get()?;
        attached.rings.get(self.queue)
    }

    fn is_removed(&self) -> bool {
        self.wire.link(self.side) == Link::Removed
    }

    /// Takes up to a batch of `class` from the arena; true if that is all that was wanted.
    fn supply(&mut self, arena: &Arena, class: FrameClass, wanted: usize) -> bool {
        for _ in 0..wanted.min(REFILL_BATCH) {
            match arena.packet(class) {
                Ok(buffer) => self.batch.push(buffer),
                Err(_no_buffer) => return false,
            }
        }
        true
    }
}

impl SimRx {
    /// Asks for a signal once `packets` wait, 1 or more.
    fn signal_for(&mut self, packets: usize) -> Armed {
        if self.is_removed() {
            return Armed::WorkPending;
        }
        let Some(ring) = self.ring() else {
            return Armed::Idle;
        };
        let mut rx = ring.lock();
        if rx.arm_for(packets) {
            return Armed::WorkPending;
        }
        let stale = std::mem::take(&mut rx.signalled);
        if stale {
            ring.event.clear();
        }
        drop(rx);
        self.syscalls += u64::from(stale);
        Armed::Idle
    }
}

impl RxDescriptors for SimRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        let wire = Arc::clone(&self.wire);
        let Some(attached) = wire.end(self.side).attached.get() else {
            return true;
        };
        let ring = &attached.rings[self.queue];
        let (mut small, mut large) = ring.lock().wanted();
        let (mut all, mut posted) = (true, false);
        while all && small + large > 0 {
            let class = if small > 0 {
                FrameClass::Small
            } else {
                FrameClass::Large
            };
            all = self.supply(arena, class, if small > 0 { small } else { large });
            let mut rx = ring.lock();
            posted |= !self.batch.is_empty();
            match class {
                FrameClass::Small => rx.post_small(self.batch.drain(..)),
                FrameClass::Large => rx.post_large(self.batch.drain(..)),
            }
            (small, large) = rx.wanted();
        }
        if posted && std::mem::take(&mut ring.lock().waiting) {
            wire.wake_feeders(self.side, self.queue);
        }
        all
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        if self.is_removed() {
            return Err(DeviceError::Removed);
        }
        let Some(ring) = self.ring() else {
            return Ok(());
        };
        let mut rx = ring.lock();
        while burst.budget() > 0 && rx.packets > 0 {
            let mut chain = Chain::default();
            while let Some(written) = rx.take() {
                if chain.add(written, burst) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        self.signal_for(1)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        Some(self.signal_for(packets.max(1)))
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        self.ring().map(|ring| (ring.event.as_fd(), Interest::Read))
    }

    fn syscalls(&self) -> u64 {
        self.syscalls
    }
}

/// The buffers of one packet on their way to becoming one.
#[derive(Debug, Default)]
struct Chain {
    packet: Option<Packet>,
    broken: bool,
}

impl Chain {
    /// Adds the next buffer; with the last one the packet goes to `burst`, and true is returned.
    fn add(&mut self, written: Written, burst: &mut RxBurst<'_>) -> bool {
        match &mut self.packet {
            None => self.packet = Some(written.buffer),
            // A packet of many buffers needs lines for its segments, and there may be none.
            Some(packet) => self.broken |= packet.append(written.buffer).is_err(),
        }
        let Some(word) = written.end else {
            return false;
        };
        let wire_packets = u64::from(word.wire_packets);
        match self.packet.take() {
            _ if word.corrupt => burst.bad(DropReason::BadDescriptor, wire_packets),
            Some(mut packet) if !self.broken => {
                packet.meta_mut().vlan = word.vlan;
                let info = RxInfo {
                    checksum: word.checksum,
                    gso: word.gso,
                    wire_packets: word.wire_packets,
                    ..RxInfo::default()
                };
                burst.push(packet, &info);
            }
            _ => burst.bad(DropReason::NoBuffer, wire_packets),
        }
        true
    }
}

impl Drop for SimRx {
    fn drop(&mut self) {
        if let Some(ring) = self.ring() {
            ring.lock().close();
            // Who waits for buffers must see that there will be none.
            self.wire.wake_feeders(self.side, self.queue);
        }
    }
}
