//! How a queue's RX descriptors are written and read.

use super::line::Line;
use super::registers::{self, RingRegisters, WORDS, rx};
use crate::driver::{Armed, DeviceError, RxInfo};
use crate::packet::Arena;
use crate::port::card::{Arriving, Buffers, Bus, Receive, Received, Ring, write_barrier};
use crate::port::vnet::bytes_min;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::{ChecksumState, LinkType};
use std::sync::Arc;
use std::time::Duration;

/// The RX ring of a queue.
#[derive(Debug)]
pub struct E1000eReceive<B: Bus> {
    pub(super) card: Arc<Line<B>>,
    pub(super) registers: RingRegisters,
    pub(super) ring: Ring<WORDS>,
    pub(super) buffers: Buffers,
    pub(super) arriving: Arriving,
    /// Those of its interrupt, and the register of the delay of that.
    pub(super) causes: u32,
    pub(super) delay: usize,
    /// When the link is checked again.
    pub(super) recheck_at: Instant,
    /// The next descriptor, if the card's head was beyond it at the last check and no packet has
    /// arrived since.
    pub(super) passed: Option<usize>,
}

impl<B: Bus> E1000eReceive<B> {
    /// The descriptor that the card has filled, and its status.
    fn arrived(&self) -> Option<(usize, u32)> {
        let index = self.buffers.next()?;
        let status = self.ring.status(index, 2);
        (status & rx::DONE != 0).then_some((index, status))
    }

    /// Tells the card its buffers.
    fn offer(&self) {
        let tail = self.buffers.tail();
        self.card.write(self.registers.tail(), tail as u32);
    }

    /// Takes back the buffers of descriptors that the card has passed without writing them back.
    /// Before a reset by another program the kernel switches bus mastering off. QEMU's card may
    /// still take a descriptor then: its head moves on, and its writes to memory are lost. The card
    /// writes each descriptor back at once (`threshold::EACH`), so after a second none follows.
    fn skip_lost(&mut self) {
        let head = self.card.read(self.registers.head()) as usize;
        let is_passed = |next: &usize| *next != head && head < self.ring.count();
        let passed = self.buffers.next().filter(is_passed);
        if passed.is_some() && passed == self.passed {
            while self.arrived().is_none() && self.buffers.next().is_some_and(|next| next != head) {
                // Nothing was written to the buffer.
                drop(self.buffers.take(0));
            }
            self.arriving = Arriving::default();
        }
        self.passed = passed;
    }

    /// What the card says about the packet that ends with a descriptor.
    fn info(&self, index: usize, status: u32) -> RxInfo {
        let is_checked = status & (rx::TCP_CHECKED | rx::UDP_CHECKED) != 0;
        let is_wrong = status & (rx::BAD_TRANSPORT | rx::BAD_IP | rx::IGNORE) != 0;
        let [hash_type, hash] = [0, 1].map(|word| self.ring.word(index, word));
        RxInfo {
            // Of a wrong checksum, software finds out by itself.
            checksum: match is_checked && !is_wrong {
                true => ChecksumState::Unnecessary,
                false => ChecksumState::None,
            },
            flow_hash: if hash_type & rx::HASH_TYPE != 0 {
                hash
            } else {
                0
            },
            ..RxInfo::default()
        }
    }
}

impl<B: Bus> Receive for E1000eReceive<B> {
    fn refill(&mut self, arena: &Arena) -> bool {
        let (before, ring) = (self.buffers.count(), &mut self.ring);
        let is_full = self.buffers.refill(arena, |index, address| {
            ring.write(index, [address as u32, (address >> 32) as u32, 0, 0]);
        });
        if self.buffers.count() > before {
            self.passed = None;
            write_barrier();
            self.offer();
        }
        is_full
    }

    #[inline]
    fn next(&mut self) -> Option<Received> {
        loop {
            let (index, status) = self.arrived()?;
            let bytes = self.ring.word(index, 3) & 0xffff;
            let piece = self.buffers.take(bytes as usize);
            self.arriving.add(match status & rx::ERRORS {
                0 => piece,
                _ => Err(DropReason::BadDescriptor),
            });
            if status & rx::END == 0 {
                continue;
            }
            return Some(match self.arriving.finish() {
                Ok(packet) if packet.bytes() >= bytes_min(LinkType::Ethernet) => {
                    Ok((packet, self.info(index, status)))
                }
                Ok(_short) => Err(DropReason::Truncated),
                Err(reason) => Err(reason),
            });
        }
    }

    fn check(&mut self, now: Instant) -> Result<(), DeviceError> {
        if now >= self.recheck_at {
            self.recheck_at = self.card.recheck(now)?;
            self.skip_lost();
            // A write is lost while another program has switched off the registers, as for a
            // reset, and a card without buffers never causes the next one.
            self.offer();
        }
        Ok(())
    }

    fn next_check(&self) -> Option<Instant> {
        Some(self.recheck_at)
    }

    /// The cause of a later packet is in ICR or comes into it, and the interrupt fires once the
    /// write to IMS has arrived at the card. With MSI and INTx a thread may mask and clear that
    /// cause (`Card::acknowledge`): it raises the eventfd afterwards.
    fn arm(&mut self, _came: bool, _packets: usize) -> Option<Armed> {
        self.card.write(registers::IMS, self.causes);
        Some(match self.arrived() {
            Some(_) => Armed::WorkPending,
            None => Armed::Idle,
        })
    }

    fn moderate(&mut self, delay: Duration) -> bool {
        self.card.write(self.delay, registers::delay_units(delay));
        true
    }
}

impl<B: Bus> Drop for E1000eReceive<B> {
    fn drop(&mut self) {
        self.card.keep(self.buffers.take_all(), None);
    }
}
