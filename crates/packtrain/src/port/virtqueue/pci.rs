//! The registers of a virtio PCI function (virtio 1.2 §4.1), and its status (§3.1).

use super::Virtqueue;
use super::features::RING_RESET;
use crate::driver::DeviceError;
use crate::port::card::{Bus, failed, unsupported};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The vendor of virtio functions (§4.1.2).
const VENDOR: u32 = 0x1af4;
/// Of the PCI configuration space: status, with a bit for a list of capabilities, and where that
/// begins. A list has at most as many as fit behind the header.
const STATUS_AT: usize = 4;
const HAS_CAPABILITIES: u32 = 1 << 20;
const CAPABILITIES_AT: usize = 0x34;
const CAPABILITIES_MAX: usize = 48;
const VENDOR_SPECIFIC: u32 = 9;
/// The kinds of virtio capabilities (§4.1.4); the third one is the cause of an interrupt.
const COMMON: usize = 1;
const NOTIFY: usize = 2;
const DEVICE: usize = 4;
/// The fields of the common configuration (§4.1.4.3).
const DEVICE_FEATURE_SELECT: usize = 0;
const DEVICE_FEATURE: usize = 4;
const DRIVER_FEATURE_SELECT: usize = 8;
const DRIVER_FEATURE: usize = 12;
const CONFIG_VECTOR: usize = 16;
const STATUS: usize = 20;
const QUEUE_SELECT: usize = 22;
const QUEUE_SIZE: usize = 24;
const QUEUE_VECTOR: usize = 26;
const QUEUE_ENABLE: usize = 28;
const QUEUE_NOTIFY: usize = 30;
const QUEUE_ADDRESSES: usize = 32;
const COMMON_BYTES: usize = 56;
/// Since virtio 1.2.
const QUEUE_RESET: usize = 58;
/// In the cause of an interrupt: the configuration has changed.
const CHANGED: u8 = 2;
/// No interrupt.
pub(in crate::port) const NO_VECTOR: u16 = 0xffff;
/// The status (§2.1).
pub(in crate::port) const ACKNOWLEDGE: u8 = 1;
pub(in crate::port) const DRIVER: u8 = 2;
pub(in crate::port) const DRIVER_OK: u8 = 4;
pub(in crate::port) const FEATURES_OK: u8 = 8;
pub(in crate::port) const NEEDS_RESET: u8 = 64;
pub(in crate::port) const FAILED: u8 = 128;
/// What a removed function reads as.
const REMOVED: u8 = 0xff;
/// A device that was reset says so within this time.
const RESET_MAX: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// A part of a region of the function.
#[derive(Clone, Copy, Debug)]
struct Place {
    bar: usize,
    at: usize,
    bytes: usize,
}

/// A virtio function and where its registers are.
#[derive(Debug)]
pub(in crate::port) struct Function<B> {
    pub(in crate::port) bus: B,
    common: Place,
    notify: Place,
    /// Bytes between the registers of two notifications.
    multiplier: usize,
    isr: Place,
    device: Place,
    /// Held while a ring is selected: all have the same registers.
    selected: Mutex<()>,
}

/// The register that notifies the device of a ring.
#[derive(Clone, Copy, Debug)]
pub(in crate::port) struct Doorbell {
    at: usize,
    pub(in crate::port) queue: u16,
    /// Of the ring's interrupt.
    pub(in crate::port) vector: u16,
}

impl<B: Bus> Function<B> {
    /// Finds the registers of a function with one of these device IDs, which are those of a `what`.
    pub(in crate::port) fn find(bus: B, ids: &[u32], what: &str) -> Result<Self, DeviceError> {
        const READ: &str = "read the configuration space of the card";
        let config = |at| bus.config(at).map_err(failed(READ));
        let id = config(0)?;
        if id == u32::MAX {
            return Err(DeviceError::Removed);
        }
        if id & 0xffff != VENDOR || !ids.contains(&(id >> 16)) {
            let (name, vendor, device) = (bus.name(), id & 0xffff, id >> 16);
            return unsupported(format!(
                "{name} is {vendor:04x}:{device:04x}, no {what}: `lspci -nn -d 1af4:` lists \
                 virtio devices"
            ));
        }
        let mut places: [Option<(Place, usize)>; DEVICE + 1] = [None; DEVICE + 1];
        let mut at = match config(STATUS_AT)? & HAS_CAPABILITIES {
            0 => 0,
            _ => config(CAPABILITIES_AT)? as usize & 0xfc,
        };
        for _ in 0..CAPABILITIES_MAX {
            if at == 0 {
                break;
            }
            let head = config(at)?;
            let kind = (head >> 24) as usize;
            if head & 0xff == VENDOR_SPECIFIC && (COMMON..=DEVICE).contains(&kind) {
                let place = Place {
                    bar: config(at + 4)? as usize & 0xff,
                    at: config(at + 8)? as usize,
                    bytes: config(at + 12)? as usize,
                };
                let multiplier = match kind {
                    NOTIFY => config(at + 16)? as usize,
                    _ => 0,
                };
                // The first one of a kind is the device's favourite; other BARs are reserved.
                if place.bar < 6 {
                    places[kind].get_or_insert((place, multiplier));
                }
            }
            at = (head >> 8) as usize & 0xfc;
        }
        let [
            _,
            Some((common, _)),
            Some((notify, multiplier)),
            Some((isr, _)),
            Some((device, _)),
        ] = places
        else {
            let name = bus.name();
            return unsupported(format!(
                "{name} has not all registers of virtio 1.0 and later: QEMU gives them to a card \
                 with `disable-modern=off`"
            ));
        };
        if common.bytes < COMMON_BYTES {
            let (name, bytes) = (bus.name(), common.bytes);
            return unsupported(format!(
                "{name} has {bytes} bytes of common registers, and virtio 1.0 has {COMMON_BYTES}"
            ));
        }
        for (place, align) in [(common, 4), (notify, 2), (isr, 1), (device, 4)] {
            let Place { bar, at, bytes } = place;
            let region = bus.region(bar);
            if at.saturating_add(bytes.max(1)) > region || !at.is_multiple_of(align) {
                let name = bus.name();
                return unsupported(format!(
                    "{name} has {bytes} bytes of registers at {at:#x} of region {bar}, which has \
                     {region:#x}: not within it, or not aligned"
                ));
            }
        }
        if !multiplier.is_multiple_of(2) {
            let name = bus.name();
            return unsupported(format!(
                "{name} has doorbells {multiplier} bytes apart, and not an even number"
            ));
        }
        Ok(Self {
            bus,
            common,
            notify,
            multiplier,
            isr,
            device,
            selected: Mutex::default(),
        })
    }

    fn read16(&self, at: usize) -> u16 {
        self.bus.read16(self.common.bar, self.common.at + at)
    }

    fn write16(&self, at: usize, value: u16) {
        self.bus
            .write16(self.common.bar, self.common.at + at, value);
    }

    fn read32(&self, at: usize) -> u32 {
        self.bus.read32(self.common.bar, self.common.at + at)
    }

    fn write32(&self, at: usize, value: u32) {
        self.bus
            .write32(self.common.bar, self.common.at + at, value);
    }

    /// The status of the device; an error if it was removed.
    pub(in crate::port) fn status(&self) -> Result<u8, DeviceError> {
        let status = self.bus.read8(self.common.bar, self.common.at + STATUS);
        match status == REMOVED || self.bus.is_removed() {
            true => Err(DeviceError::Removed),
            false => Ok(status),
        }
    }

    /// Adds bits to the status.
    pub(in crate::port) fn advance(&self, bits: u8) -> Result<(), DeviceError> {
        let status = self.status()? | bits;
        self.bus
            .write8(self.common.bar, self.common.at + STATUS, status);
        Ok(())
    }

    /// Resets the device, and waits until it is: it then accesses no memory.
    pub(in crate::port) fn reset(&self) -> Result<(), DeviceError> {
        self.bus.write8(self.common.bar, self.common.at + STATUS, 0);
        self.wait_until("reset the card", |status| status == 0)
    }

    /// Waits until a reset is complete, as `is_done` says of the status.
    fn wait_until(
        &self,
        action: &'static str,
        is_done: impl Fn(u8) -> bool,
    ) -> Result<(), DeviceError> {
        let mut waited = Duration::ZERO;
        while !is_done(self.status()?) {
            if waited >= RESET_MAX {
                return Err(failed(action)(io::ErrorKind::TimedOut.into()));
            }
            self.bus.pause(STEP);
            waited += STEP;
        }
        Ok(())
    }

    /// The features that the device offers.
    pub(in crate::port) fn offered(&self) -> u64 {
        let half = |half: u32| {
            self.write32(DEVICE_FEATURE_SELECT, half);
            u64::from(self.read32(DEVICE_FEATURE))
        };
        let offered = half(0) | half(1) << 32;
        match self.common.bytes < QUEUE_RESET + 2 {
            true => offered & !RING_RESET,
            false => offered,
        }
    }

    /// Agrees on features with a device that was reset.
    pub(in crate::port) fn negotiate(&self, features: u64) -> Result<(), DeviceError> {
        self.advance(ACKNOWLEDGE)?;
        self.advance(DRIVER)?;
        for half in [0, 1] {
            self.write32(DRIVER_FEATURE_SELECT, half);
            self.write32(DRIVER_FEATURE, (features >> (32 * half)) as u32);
        }
        self.advance(FEATURES_OK)?;
        if self.status()? & FEATURES_OK == 0 {
            self.advance(FAILED)?;
            let name = self.bus.name();
            return unsupported(format!(
                "{name} offers virtio features that it does not accept together: {features:#x}"
            ));
        }
        Ok(())
    }

    /// The most descriptors of a ring; 0 if the device has no such ring.
    pub(in crate::port) fn size_max(&self, queue: u16) -> u16 {
        let _alone = self.select(queue);
        self.read16(QUEUE_SIZE)
    }

    fn select(&self, queue: u16) -> MutexGuard<'_, ()> {
        let alone = self.selected.lock();
        self.write16(QUEUE_SELECT, queue);
        alone.unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the device raise `vector` for changes of the configuration as well: also one of a ring
    /// (§4.1.5.1.2), or [`NO_VECTOR`] for an [`Intx`](crate::port::card::InterruptKind::Intx). If
    /// it has no memory for that, they are found when it is polled.
    pub(in crate::port) fn report_changes(&self, vector: u16) {
        self.write16(CONFIG_VECTOR, vector);
    }

    /// Gives the device a ring, with the vector of its interrupt.
    pub(in crate::port) fn enable(
        &self,
        queue: u16,
        vector: u16,
        ring: &Virtqueue,
    ) -> Result<Doorbell, DeviceError> {
        let _alone = self.select(queue);
        let (size, most) = (ring.shape().size, self.read16(QUEUE_SIZE));
        if size > most {
            let name = self.bus.name();
            return unsupported(format!(
                "{name} has {most} descriptors in its ring {queue}, and {size} are needed: use \
                 fewer queues, or smaller rings"
            ));
        }
        self.write16(QUEUE_SIZE, size);
        self.write16(QUEUE_VECTOR, vector);
        if self.read16(QUEUE_VECTOR) != vector {
            let name = self.bus.name();
            return unsupported(format!(
                "{name} has no memory for the interrupt {vector}: use fewer queues, or irq=intx"
            ));
        }
        for (index, address) in ring.addresses().into_iter().enumerate() {
            self.write32(QUEUE_ADDRESSES + 8 * index, address as u32);
            self.write32(QUEUE_ADDRESSES + 8 * index + 4, (address >> 32) as u32);
        }
        let at = usize::from(self.read16(QUEUE_NOTIFY)) * self.multiplier;
        if at + 2 > self.notify.bytes {
            let name = self.bus.name();
            return unsupported(format!(
                "{name} has its doorbell of ring {queue} at {at:#x}, behind their region"
            ));
        }
        self.write16(QUEUE_ENABLE, 1);
        let at = self.notify.at + at;
        Ok(Doorbell { at, queue, vector })
    }

    /// Resets a ring (`RING_RESET`, §2.6.1), and waits until it is, at most a second: the device
    /// accesses nothing of it until it is [enabled](Self::enable) again.
    pub(in crate::port) fn reset_ring(&self, doorbell: Doorbell) -> Result<(), DeviceError> {
        let _alone = self.select(doorbell.queue);
        self.write16(QUEUE_RESET, 1);
        self.wait_until("reset a ring of the card", |_| {
            self.read16(QUEUE_RESET) == 0
        })
    }

    /// Notifies the device of chains in a ring, which were published.
    pub(in crate::port) fn notify(&self, doorbell: Doorbell) {
        self.bus
            .write16(self.notify.bar, doorbell.at, doorbell.queue);
    }

    /// Reads, and so clears, the cause of an [`Intx`](crate::port::card::InterruptKind::Intx).
    /// Returns whether the configuration has changed (§4.1.4.5).
    pub(in crate::port) fn acknowledge(&self) -> bool {
        let cause = self.bus.read8(self.isr.bar, self.isr.at);
        self.bus.unmask();
        cause & CHANGED != 0
    }

    /// A byte of the device's own configuration; 0 behind its end.
    pub(in crate::port) fn device8(&self, at: usize) -> u8 {
        match at < self.device.bytes {
            true => self.bus.read8(self.device.bar, self.device.at + at),
            false => 0,
        }
    }

    /// 16 bits of it.
    pub(in crate::port) fn device16(&self, at: usize) -> u16 {
        match at + 1 < self.device.bytes {
            true => self.bus.read16(self.device.bar, self.device.at + at),
            false => 0,
        }
    }
}
