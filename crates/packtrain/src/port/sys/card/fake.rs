//! Memory as a device sees it, for tests of drivers without one.

#![allow(unsafe_code, reason = "accesses memory by the addresses of a device")]

use super::memory::Memory;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Between the addresses of two pieces of memory, so that a range behind one of them is in none.
const STEP: u64 = 1 << 32;
/// The number of the first one: an address has more than 32 bits.
const FIRST: usize = 5;

/// The memory that a driver has given to a device. Its tests access it on one thread, and not after
/// the driver has stopped the device.
#[derive(Debug, Default)]
pub(in crate::port) struct DeviceMemory(Mutex<Vec<Mapped>>);

#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address; see `DeviceMemory` for the accesses.
unsafe impl Send for Mapped {}

impl DeviceMemory {
    /// Adds memory, and returns its address.
    pub(in crate::port) fn map(&self, memory: &Memory<'_>) -> u64 {
        let mut all = self.0.lock().expect("no panic");
        all.push(Mapped {
            start: memory.start(),
            bytes: memory.bytes(),
        });
        (all.len() - 1 + FIRST) as u64 * STEP
    }

    /// The first of `bytes` bytes at an address, if the driver has given all of them to the device.
    fn at(&self, address: u64, bytes: usize) -> Option<NonNull<u8>> {
        let all = self.0.lock().expect("no panic");
        let (number, offset) = ((address / STEP) as usize, (address % STEP) as usize);
        let mapped = all.get(number.checked_sub(FIRST)?)?;
        let is_within = offset.saturating_add(bytes) <= mapped.bytes;
        // SAFETY: within the memory.
        is_within.then(|| unsafe { mapped.start.add(offset) })
    }

    /// Reads memory, if it is the device's.
    pub(in crate::port) fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let start = self.at(address, bytes)?;
        let byte = |at| {
            // SAFETY: within the memory, which the driver has not freed; no other thread writes.
            unsafe { start.add(at).read() }
        };
        Some((0..bytes).map(byte).collect())
    }

    /// Writes memory. Returns false if it is not the device's.
    pub(in crate::port) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let start = self.at(address, bytes.len());
        if let Some(start) = start {
            for (at, byte) in bytes.iter().enumerate() {
                // SAFETY: as in `read`; the driver has left the bytes to the device.
                unsafe { start.add(at).write(*byte) };
            }
        }
        start.is_some()
    }
}
