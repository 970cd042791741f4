//! What a port that returns, its queues and its thread share.

use crate::driver::{DeviceCounters, Driver, Features};
use crate::port::wrap::lock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::Waker;

/// What the port, its queues and the thread share.
pub(super) struct Shared<D: Driver> {
    /// Twice the number of devices so far, without the first one; one more while there is none. It
    /// changes only under the lock of `state`.
    pub(super) life: AtomicU32,
    /// Workers take this lock: nothing is asked of the kernel under it.
    pub(super) state: Mutex<State<D>>,
    /// Workers never take this lock, under which the kernel is asked, and may take its time. It is
    /// taken before that of `state`.
    pub(super) device: Mutex<Device<D>>,
    pub(super) changed: Condvar,
}

/// The device as a whole.
pub(super) struct Device<D: Driver> {
    /// The present device; the removed one until the thread has closed it.
    pub(super) driver: Option<D>,
    /// What an interface had counted before it was opened; none for the first device.
    pub(super) baseline: DeviceCounters,
    /// The sum of the devices that were removed, and the last known ones of the present device.
    pub(super) counters: (Option<DeviceCounters>, Option<DeviceCounters>),
}

/// The moves of queues from one device to another.
pub(super) struct State<D: Driver> {
    pub(super) queues: Vec<Slot<D>>,
    /// Halves of removed devices, for the thread to close.
    pub(super) removed: Vec<Removed<D>>,
    /// Offloads of packets to the present device.
    pub(super) offers: Features,
    pub(super) stop: bool,
}

/// The new halves of a queue until it takes them, and what wakes its workers.
pub(super) struct Slot<D: Driver> {
    pub(super) rx: Option<D::Rx>,
    pub(super) tx: Option<D::Tx>,
    pub(super) wakers: [Option<Waker>; 2],
}

/// A half of a removed device, which the thread closes.
pub(super) enum Removed<D: Driver> {
    Rx(D::Rx),
    Tx(D::Tx),
}

/// Whether there is no device.
pub(super) const fn is_away(life: u32) -> bool {
    life % 2 == 1
}

impl<D: Driver> Shared<D> {
    /// With the first device, which has no queues yet.
    pub(super) fn new(driver: D) -> Self {
        Self {
            life: AtomicU32::new(0),
            state: Mutex::new(State {
                queues: Vec::new(),
                removed: Vec::new(),
                offers: Features::NONE,
                stop: false,
            }),
            device: Mutex::new(Device {
                driver: Some(driver),
                baseline: DeviceCounters::default(),
                counters: (None, None),
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<D>> {
        lock(&self.state)
    }

    pub(super) fn device(&self) -> MutexGuard<'_, Device<D>> {
        lock(&self.device)
    }

    /// The present device, or its absence.
    #[inline]
    pub(super) fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    /// The device of `life` was removed.
    pub(super) fn gone(&self, life: u32) {
        let _state = self.state();
        if self.life() == life && !is_away(life) {
            self.life.store(life.wrapping_add(1), Ordering::Release);
            self.changed.notify_all();
        }
    }
}

impl<D: Driver> State<D> {
    /// The first device has so many queues.
    pub(super) fn open_queues(&mut self, queues: usize) {
        // As many halves as queues can give back before the thread has closed them.
        self.removed.reserve(4 * queues);
        let slot = || Slot {
            rx: None,
            tx: None,
            wakers: [None, None],
        };
        self.queues = (0..queues).map(|_| slot()).collect();
    }

    /// What is to be closed: what the queues gave back, and new halves that they never took of a
    /// device that `is_away`.
    pub(super) fn take_closed(&mut self, is_away: bool) -> Vec<Removed<D>> {
        let State {
            removed, queues, ..
        } = self;
        let slots = queues.iter_mut().filter(|_| is_away);
        let never_taken = slots.flat_map(|slot| {
            let rx = slot.rx.take().map(Removed::Rx);
            rx.into_iter().chain(slot.tx.take().map(Removed::Tx))
        });
        removed.drain(..).chain(never_taken).collect()
    }
}

impl<D: Driver> Device<D> {
    /// The counters of all devices so far.
    pub(super) fn counted(&self) -> Option<DeviceCounters> {
        let (before, now) = self.counters;
        match (before, now) {
            (Some(before), Some(now)) => Some(before.plus(&now)),
            (before, now) => before.or(now),
        }
    }

    /// Reads the counters of the present device.
    pub(super) fn count(&mut self) {
        if let Some(driver) = &mut self.driver {
            let now = driver.device_counters();
            let now = now.map(|now| now.since(&self.baseline));
            self.counters.1 = now.or(self.counters.1);
        }
    }
}
