//! The receiving half of a queue.

use super::line::Line;
use super::registers::{self, RingRegisters, WORDS, rx};
use crate::driver::{Armed, DeviceError, Interest, RxBurst, RxDescriptors, RxInfo};
use crate::packet::Arena;
use crate::port::card::{Arriving, Buffers, Bus, Interrupt, Ring, write_barrier};
use crate::port::vnet::bytes_min;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::{ChecksumState, LinkType};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Free RX descriptors that are worth a write of the tail register.
const REFILL: usize = 16;

/// The receiving half of a queue.
#[derive(Debug)]
pub struct E1000eRx<B: Bus> {
    pub(super) line: Arc<Line<B>>,
    pub(super) queue: usize,
    pub(super) ring: Ring<WORDS>,
    pub(super) buffers: Buffers,
    pub(super) arriving: Arriving,
    /// Those of its interrupt, and the register of the delay of that.
    pub(super) causes: u32,
    pub(super) delay: usize,
    pub(super) interrupt: Interrupt,
    /// When the link is checked again.
    pub(super) recheck_at: Instant,
}

impl<B: Bus> E1000eRx<B> {
    /// The descriptor that the card has filled, and its status.
    fn arrived(&self) -> Option<(usize, u32)> {
        let index = self.buffers.next()?;
        let status = self.ring.status(index, 2);
        (status & rx::DONE != 0).then_some((index, status))
    }

    /// Tells the card its buffers.
    fn offer(&self) {
        let tail = RingRegisters::rx(self.queue).tail();
        self.line.card.write(tail, self.buffers.tail() as u32);
    }

    /// What the card says about the packet that ends with a descriptor.
    fn info(&self, index: usize, status: u32) -> RxInfo {
        let is_checked = status & (rx::TCP_CHECKED | rx::UDP_CHECKED) != 0;
        let is_wrong = status & (rx::BAD_TRANSPORT | rx::BAD_IP | rx::IGNORE) != 0;
        let is_hashed = self.ring.word(index, 0) & rx::HASH_TYPE != 0;
        RxInfo {
            // Of a wrong checksum, software finds out by itself.
            checksum: match is_checked && !is_wrong {
                true => ChecksumState::Unnecessary,
                false => ChecksumState::None,
            },
            flow_hash: if is_hashed {
                self.ring.word(index, 1)
            } else {
                0
            },
            ..RxInfo::default()
        }
    }
}

impl<B: Bus> RxDescriptors for E1000eRx<B> {
    fn refill(&mut self, arena: &Arena) -> bool {
        let before = self.buffers.count();
        if before + REFILL >= self.ring.count() {
            return true;
        }
        let ring = &mut self.ring;
        let is_full = self.buffers.refill(arena, |index, address| {
            ring.write(index, [address as u32, (address >> 32) as u32, 0, 0]);
        });
        if self.buffers.count() > before {
            write_barrier();
            self.offer();
        }
        is_full
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        while !burst.exhausted() {
            let Some((index, status)) = self.arrived() else {
                if now >= self.recheck_at {
                    self.recheck_at = self.line.card.recheck(now)?;
                    // A write is lost while another program has switched off the registers, as
                    // for a reset, and a card without buffers never causes the next one.
                    self.offer();
                }
                break;
            };
            let bytes = self.ring.word(index, 3) & 0xffff;
            let piece = self.buffers.take(bytes as usize);
            self.arriving.add(match status & rx::ERRORS {
                0 => piece,
                _ => Err(DropReason::BadDescriptor),
            });
            if status & rx::END == 0 {
                continue;
            }
            match self.arriving.finish() {
                Ok(packet) if packet.bytes() >= bytes_min(LinkType::Ethernet) => {
                    burst.push(packet, &self.info(index, status));
                }
                Ok(_short) => burst.bad(DropReason::Truncated, 1),
                Err(reason) => burst.bad(reason, 1),
            }
        }
        Ok(())
    }

    fn moderate(&mut self, delay: Duration) -> bool {
        let card = &self.line.card;
        card.write(self.delay, registers::delay_units(delay));
        true
    }

    /// No packet is missed. One that the card wrote before the ring is looked at is seen there. The
    /// cause of a later one is in ICR or comes into it, and the interrupt fires once the write to
    /// IMS has arrived at the card: after the eventfd was cleared. With MSI and INTx a thread may
    /// mask and clear that cause (`Card::acknowledge`): it raises the eventfd afterwards.
    fn arm(&mut self) -> Armed {
        self.interrupt.clear();
        self.line.card.write(registers::IMS, self.causes);
        match self.arrived() {
            Some(_) => Armed::WorkPending,
            None => Armed::Idle,
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.interrupt.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        Some(self.recheck_at)
    }
}

impl<B: Bus> Drop for E1000eRx<B> {
    fn drop(&mut self) {
        self.line.keep(self.buffers.take_all());
    }
}
