//! The card of a port and its queues, with what changes while it runs.

use super::init;
use super::registers::{self, cause, count, ctrl_ext, ivar, rctl, status, tctl};
use crate::driver::{DeviceCounters, DeviceError, Link};
use crate::packet::Packet;
use crate::port::card::{Bus, was_reset};
use crate::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time between two checks of the link while it is up, and while it is down.
const UP_INTERVAL: Duration = Duration::from_secs(1);
const DOWN_INTERVAL: Duration = Duration::from_millis(100);
/// The card ends what it transmits (Linux, 82571.c).
const PAUSE: Duration = Duration::from_millis(10);

/// The card.
#[derive(Debug)]
pub(super) struct Card<B> {
    pub(super) bus: B,
    /// The [`Link`] as checked last, and whether it was below 1 Gbit/s when it was up last.
    link: AtomicU8,
    slow: AtomicBool,
    /// What its counters, which are 0 after a read, had before.
    counters: Mutex<DeviceCounters>,
    /// Held while TX is stopped.
    paused: Mutex<()>,
}

impl<B: Bus> Card<B> {
    pub(super) fn new(bus: B) -> Self {
        let card = Self {
            bus,
            link: AtomicU8::new(Link::Up as u8),
            slow: AtomicBool::new(false),
            counters: Mutex::default(),
            paused: Mutex::default(),
        };
        // What an earlier user left.
        card.count();
        *card.lock_counters() = DeviceCounters::default();
        card
    }

    pub(super) fn read(&self, register: usize) -> u32 {
        init::read(&self.bus, register)
    }

    pub(super) fn write(&self, register: usize, value: u32) {
        init::write(&self.bus, register, value);
    }

    /// Gives each half of the queues its vector: those of the queue 0 come first, RX before TX.
    pub(super) fn route(&self, queues: usize) {
        let (mut vectors, mut causes) = (ivar::TX_EACH, 0);
        for queue in 0..queues {
            let vector = 2 * queue as u32;
            vectors |= (ivar::VALID | vector) << (4 * queue);
            vectors |= (ivar::VALID | (vector + 1)) << (8 + 4 * queue);
            causes |= cause::rx_queue(queue) | cause::tx_queue(queue);
        }
        self.write(registers::IVAR, vectors);
        // A vector that fires clears its cause, and masks it. QEMU masks what is in EIAC, the card
        // what is in IAM.
        self.write(registers::EIAC, causes);
        self.write(registers::IAM, causes);
        let extended = self.read(registers::CTRL_EXT);
        self.write(registers::CTRL_EXT, extended | ctrl_ext::EIAME);
    }

    /// Reads the state of the link: a register, and system calls of the bus.
    pub(super) fn check(&self) -> Link {
        let now = self.read(registers::STATUS);
        let link = if now == u32::MAX || self.bus.is_removed() {
            Link::Removed
        } else if now & status::LINK_UP == 0 {
            Link::Down
        } else {
            // A link that is down has no speed.
            let is_slow = now & status::GIGABIT == 0;
            self.slow.store(is_slow, Ordering::Relaxed);
            Link::Up
        };
        // After the speed: a queue that sees the link up knows it.
        self.link.store(link as u8, Ordering::Release);
        link
    }

    /// [`check`](Self::check), and when to do so again.
    pub(super) fn recheck(&self, now: Instant) -> Result<Instant, DeviceError> {
        let interval = match self.check() {
            Link::Up => UP_INTERVAL,
            Link::Down => DOWN_INTERVAL,
            Link::Removed => return Err(DeviceError::Removed),
        };
        if self.read(registers::RCTL) & rctl::ENABLE == 0 {
            return Err(was_reset());
        }
        Ok(now.after(interval))
    }

    /// The link at the last [`check`](Self::check).
    pub(super) fn link(&self) -> Link {
        const LINKS: [Link; 3] = [Link::Up, Link::Down, Link::Removed];
        let link = usize::from(self.link.load(Ordering::Acquire));
        LINKS[link.min(LINKS.len() - 1)]
    }

    /// Whether the link was below 1 Gbit/s when it was up last.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    /// Runs `change` while no queue transmits.
    pub(super) fn pause_tx(&self, change: impl FnOnce()) {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let control = self.read(registers::TCTL);
        self.write(registers::TCTL, control & !tctl::ENABLE);
        self.read(registers::STATUS);
        self.bus.pause(PAUSE);
        change();
        self.write(registers::TCTL, control);
        drop(paused);
    }

    fn lock_counters(&self) -> std::sync::MutexGuard<'_, DeviceCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters since the start.
    pub(super) fn count(&self) -> DeviceCounters {
        let mut all = self.lock_counters();
        if self.bus.is_removed() {
            return *all;
        }
        let one = |register| u64::from(self.read(register));
        let two = |register| one(register) | one(register + 4) << 32;
        let sum = |registers: &[usize]| registers.iter().map(|register| one(*register)).sum();
        let since = DeviceCounters {
            rx_packets: one(count::TX_PACKETS),
            rx_bytes: two(count::TX_BYTES),
            rx_dropped: 0,
            rx_errors: sum(&count::TX_ERRORS),
            tx_packets: one(count::RX_PACKETS),
            tx_bytes: two(count::RX_BYTES),
            tx_dropped: one(count::RX_MISSED),
            tx_errors: sum(&count::RX_ERRORS),
        };
        // All registers of a card that was removed meanwhile are all ones.
        if self.read(registers::STATUS) != u32::MAX {
            *all = all.plus(&since);
        }
        *all
    }
}

/// What the halves of all queues share. The last one that is dropped stops the card.
#[derive(Debug)]
pub(super) struct Line<B: Bus> {
    pub(super) card: Arc<Card<B>>,
    /// The frames into which the card may write until then.
    kept: Mutex<Vec<Box<[Option<Packet>]>>>,
}

impl<B: Bus> Line<B> {
    pub(super) fn new(card: Arc<Card<B>>) -> Self {
        // Its firmware leaves it to the driver, until `drop`.
        init::change(&card.bus, registers::CTRL_EXT, 0, ctrl_ext::DRIVER_LOADED);
        let kept = Mutex::default();
        Self { card, kept }
    }

    /// The frames of a half that is dropped.
    pub(super) fn keep(&self, frames: Box<[Option<Packet>]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(frames);
    }
}

impl<B: Bus> Drop for Line<B> {
    fn drop(&mut self) {
        let bus = &self.card.bus;
        let is_stopped = init::stop(bus).is_ok();
        init::change(bus, registers::CTRL_EXT, ctrl_ext::DRIVER_LOADED, 0);
        if !is_stopped && !bus.is_removed() {
            // It may still write to them.
            let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(kept).leak();
        }
    }
}
