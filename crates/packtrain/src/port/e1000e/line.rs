//! The card of a port and its queues, with what changes while it runs.

use super::init;
use super::registers::{self, cause, count, ctrl_ext, ivar, rctl, status, tctl};
use crate::driver::{DeviceCounters, DeviceError, Link};
use crate::packet::Arena;
use crate::port::card::{Bus, InterruptKind, LastLink, Running, Started, Stop, was_reset};
use crate::time::Instant;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time between two checks of the link, and of the PHY (Linux, netdev.c).
const INTERVAL: Duration = Duration::from_secs(1);
const PHY_INTERVAL: Duration = Duration::from_secs(2);
/// Checks in a row that find the PHY hung (Linux, netdev.c).
const HUNG_CHECKS: u32 = 2;
/// The least time between two interrupts of causes that no queue has: QEMU counts a full RX ring as
/// one.
const OTHER_DELAY: Duration = Duration::from_millis(10);
/// The card ends what it transmits (Linux, 82571.c).
const PAUSE: Duration = Duration::from_millis(10);

/// The card.
#[derive(Debug)]
pub(super) struct Card<B> {
    pub(super) bus: B,
    /// The link as checked last, and whether it was below 1 Gbit/s when it was up last.
    pub(super) link: LastLink,
    slow: AtomicBool,
    /// TCTL while it transmits. It is not read back: while another program resets the card, its
    /// registers are off, and read as 0.
    control: AtomicU32,
    /// What its counters, which are 0 after a read, had before.
    counters: Mutex<DeviceCounters>,
    /// Held while TX is stopped.
    paused: Mutex<()>,
    /// When the PHY is checked again, and how many checks have found it hung.
    phy: Mutex<(Instant, u32)>,
}

impl<B: Bus> Card<B> {
    pub(super) fn new(bus: B) -> Self {
        let card = Self {
            bus,
            link: LastLink::default(),
            slow: AtomicBool::new(false),
            control: AtomicU32::new(0),
            counters: Mutex::default(),
            paused: Mutex::default(),
            phy: Mutex::default(),
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

    /// Gives each half of the queues its vector: those of the queue 0 come first, RX before TX. The
    /// one behind them, if there is one more, is for the other causes.
    fn route(&self, queues: usize, has_other: bool) {
        let (mut vectors, mut causes) = (ivar::TX_EACH, 0);
        for queue in 0..queues {
            let vector = 2 * queue as u32;
            vectors |= (ivar::VALID | vector) << (4 * queue);
            vectors |= (ivar::VALID | (vector + 1)) << (8 + 4 * queue);
            causes |= cause::rx_queue(queue) | cause::tx_queue(queue);
        }
        if has_other {
            let vector = 2 * queues;
            vectors |= (ivar::VALID | vector as u32) << 16;
            let delay = registers::delay_units(OTHER_DELAY);
            self.write(registers::eitr(vector), delay);
        }
        self.write(registers::IVAR, vectors);
        // A vector that fires clears its cause, and masks it. QEMU masks what is in EIAC, the card
        // what is in IAM.
        self.write(registers::EIAC, causes);
        self.write(registers::IAM, causes);
        let extended = self.read(registers::CTRL_EXT);
        self.write(registers::CTRL_EXT, extended | ctrl_ext::EIAME);
    }

    /// An interrupt came: that of the other causes, or, without MSI-X, the only one.
    fn acknowledge(&self, is_msix: bool) {
        let (is_changed, enable) = if is_msix {
            // A read would clear the causes of the queues, too. QEMU raises the interrupt of a
            // cause that stays again and again.
            self.write(registers::ICR, cause::OTHERS);
            (true, cause::OTHER | cause::LINK)
        } else {
            // The read clears the causes, so that the line falls, and the next one is a message. It
            // comes first: while the interrupt is not asserted it loses others (erratum 12).
            let causes = self.read(registers::ICR);
            self.write(registers::IMC, u32::MAX);
            (causes & cause::LINK != 0, cause::LINK)
        };
        if is_changed {
            self.check();
        }
        self.write(registers::IMS, enable);
        self.bus.unmask();
    }

    /// Resets a PHY that hangs, which is an erratum (Linux, `e1000_check_phy_82574`). The worker
    /// waits for the PHY: some 100 µs, each 2 s.
    fn check_phy(&self, now: Instant) {
        let mut phy = self.phy.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, hung) = &mut *phy;
        if now < *next {
            return;
        }
        *next = now.after(PHY_INTERVAL);
        *hung = match init::is_phy_hung(&self.bus) {
            true => *hung + 1,
            false => 0,
        };
        if *hung == HUNG_CHECKS {
            *hung = 0;
            init::reset_phy(&self.bus);
        }
    }

    /// Reads the state of the link: a register, and system calls of the bus.
    pub(super) fn check(&self) -> Link {
        let now = self.read(registers::STATUS);
        // A link that is down has no speed.
        if now != u32::MAX && now & status::LINK_UP != 0 {
            let is_slow = now & status::GIGABIT == 0;
            self.slow.store(is_slow, Ordering::Relaxed);
        }
        // After the speed: a queue that sees the link up knows it.
        self.link.set(&self.bus, now, status::LINK_UP)
    }

    /// [`check`](Self::check), and when to do so again.
    pub(super) fn recheck(&self, now: Instant) -> Result<Instant, DeviceError> {
        if self.check() == Link::Removed {
            return Err(DeviceError::Removed);
        }
        if self.read(registers::RCTL) & rctl::ENABLE == 0 {
            return Err(was_reset());
        }
        self.check_phy(now);
        Ok(now.after(INTERVAL))
    }

    /// Whether the link was below 1 Gbit/s when it was up last.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    /// Lets all queues transmit, with this value of TCTL.
    pub(super) fn transmit(&self, control: u32) {
        self.control.store(control, Ordering::Relaxed);
        self.write(registers::TCTL, control);
    }

    /// Runs `change` while no queue transmits.
    pub(super) fn pause_tx(&self, change: impl FnOnce()) {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let control = self.control.load(Ordering::Relaxed);
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

/// The card while it runs, which the halves of its queues share.
pub(super) type Line<B> = Running<Arc<Card<B>>>;

impl<B: Bus> Stop for Arc<Card<B>> {
    type Bus = B;

    fn bus(&self) -> &B {
        &self.bus
    }

    fn stop(&self) -> bool {
        let is_stopped = init::stop(&self.bus).is_ok();
        init::change(&self.bus, registers::CTRL_EXT, ctrl_ext::DRIVER_LOADED, 0);
        is_stopped || self.bus.is_removed()
    }
}

/// Connects an interrupt for each half. All of them are raised when the link may have changed.
pub(super) fn start<B: Bus>(
    card: &Arc<Card<B>>,
    kind: InterruptKind,
    queues: usize,
    arena: &Arena,
) -> Result<Started<Arc<Card<B>>>, DeviceError> {
    let is_msix = kind == InterruptKind::Msix;
    let bell = Arc::clone(card);
    let acknowledge = move || bell.acknowledge(is_msix);
    let started = Running::start(Arc::clone(card), kind, queues, arena, true, acknowledge)?;
    let has_other = started.0.has_fanout();
    if is_msix {
        card.route(queues, has_other);
    }
    if has_other {
        // As `acknowledge` leaves it.
        let other = if is_msix { cause::OTHER } else { 0 };
        card.write(registers::IMS, other | cause::LINK);
    }
    // Its firmware leaves it to the driver, until it is stopped.
    init::change(&card.bus, registers::CTRL_EXT, 0, ctrl_ext::DRIVER_LOADED);
    Ok(started)
}
