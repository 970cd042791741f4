//! The receiving half of a simulated queue.

use super::wire::{RxRing, Status, Wire, Written};
use crate::driver::{Armed, DeviceError, Link, RxBurst, RxDescriptors, RxInfo};
use crate::packet::{Arena, FrameClass, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use std::sync::Arc;
use std::task::Waker;

/// Buffers posted with one write of the tail register.
const REFILL_BATCH: usize = 32;

/// The receiving half of one queue.
#[derive(Debug)]
pub struct SimRx {
    wire: Arc<Wire>,
    side: usize,
    queue: usize,
    batch: Vec<Packet>,
    /// Armed for the next packet, so not for several of them.
    armed_for_one: bool,
}

impl SimRx {
    pub(super) fn new(wire: Arc<Wire>, side: usize, queue: usize) -> Self {
        Self {
            wire,
            side,
            queue,
            batch: Vec::with_capacity(REFILL_BATCH),
            armed_for_one: false,
        }
    }

    fn ring(&self) -> Option<&RxRing> {
        let attached = self.wire.end(self.side).attached.get()?;
        attached.rings.get(self.queue)
    }

    fn is_removed(&self) -> bool {
        self.wire.link(self.side) == Link::Removed
    }

    /// Takes up to a batch of `class` from the arena; true if the arena had all of them.
    fn supply(&mut self, arena: &Arena, class: FrameClass, wanted: usize) -> bool {
        let wanted = self.batch.len() + wanted.min(REFILL_BATCH);
        arena.fill(class, &mut self.batch, wanted)
    }
}

impl SimRx {
    /// Arms the queue for `packets`, 1 or more.
    fn interrupt_for(&self, packets: usize) -> Armed {
        let waits = self.ring().is_some_and(|ring| ring.lock().arm_for(packets));
        // This order ensures that a removal finds the queue armed, or is seen here.
        if waits || self.is_removed() {
            Armed::WorkPending
        } else {
            Armed::Idle
        }
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

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.wire.pass_time(now);
        self.armed_for_one = false;
        if self.is_removed() {
            return Err(DeviceError::Removed);
        }
        let Some(ring) = self.ring() else {
            return Ok(());
        };
        let mut rx = ring.lock();
        rx.armed_for = 0;
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

    fn set_interrupt(&mut self, interrupt: Waker) {
        if let Some(ring) = self.ring() {
            ring.interrupt.set(interrupt);
        }
    }

    fn arm(&mut self) -> Armed {
        self.armed_for_one = true;
        self.interrupt_for(1)
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        self.armed_for_one = false;
        Some(self.interrupt_for(packets.max(1)))
    }

    fn next_at(&self) -> Option<Instant> {
        // A delay of interrupts ends by itself, and packets may arrive before the link changes.
        self.wire.flaps_at().filter(|_| self.armed_for_one)
    }
}

/// The buffers of a packet that is not complete yet.
#[derive(Debug, Default)]
struct Chain {
    packet: Option<Packet>,
    broken: bool,
}

impl Chain {
    /// Adds the next buffer; with the last one the packet goes to `burst`, and true is returned.
    fn add(&mut self, mut written: Written, burst: &mut RxBurst<'_>) -> bool {
        let room = written.buffer.bytes() + written.buffer.tailroom_mut().len();
        match &mut self.packet {
            None => self.packet = Some(written.buffer),
            // A packet of many buffers needs lines for its segments; the arena may have none.
            Some(packet) => self.broken |= packet.append(written.buffer).is_err(),
        }
        let Some(word) = written.end else {
            return false;
        };
        let wire_packets = u64::from(word.wire_packets);
        // As any driver: a length that the device wrote is compared with its buffer.
        let wrong = match word.status {
            Status::Good if self.broken => Some(DropReason::NoBuffer),
            Status::Good => None,
            Status::Error => Some(DropReason::BadDescriptor),
            Status::Length(bytes) if bytes > room => Some(DropReason::TooLong),
            Status::Length(_) => Some(DropReason::Truncated),
        };
        match (self.packet.take(), wrong) {
            (Some(mut packet), None) => {
                packet.meta_mut().vlan = word.vlan;
                let info = RxInfo {
                    checksum: word.checksum,
                    gso: word.gso,
                    wire_packets: word.wire_packets,
                    ..RxInfo::default()
                };
                burst.push(packet, &info);
            }
            (_, wrong) => burst.bad(wrong.unwrap_or(DropReason::NoBuffer), wire_packets),
        }
        true
    }
}

impl Drop for SimRx {
    fn drop(&mut self) {
        if let Some(ring) = self.ring() {
            ring.lock().close();
            // A transmitter that waits for buffers must see that none will come.
            self.wire.wake_feeders(self.side, self.queue);
        }
    }
}
