//! Memory as a device sees it, for tests of drivers without one.

#![allow(unsafe_code, reason = "accesses memory by the addresses of a device")]

use super::memory::Memory;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Between the addresses of two pieces of memory, so that a range behind one of them is in none.
const STEP: u64 = 1 << 32;

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
        all.len() as u64 * STEP
    }

    /// The first of `bytes` bytes at an address.
    ///
    /// # Panics
    ///
    /// If the driver has not given all of them to the device.
    fn at(&self, address: u64, bytes: usize) -> NonNull<u8> {
        let all = self.0.lock().expect("no panic");
        let (index, offset) = (address / STEP, (address % STEP) as usize);
        let mapped = index
            .checked_sub(1)
            .and_then(|index| all.get(index as usize));
        let mapped = mapped.filter(|mapped| offset + bytes <= mapped.bytes);
        let mapped = mapped.unwrap_or_else(|| panic!("{bytes} bytes at {address:#x}"));
        // SAFETY: within the memory.
        unsafe { mapped.start.add(offset) }
    }

    /// Reads memory.
    pub(in crate::port) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let start = self.at(address, bytes);
        let byte = |at| {
            // SAFETY: within the memory, which the driver has not freed; no other thread writes.
            unsafe { start.add(at).read() }
        };
        (0..bytes).map(byte).collect()
    }

    /// Writes memory.
    pub(in crate::port) fn write(&self, address: u64, bytes: &[u8]) {
        let start = self.at(address, bytes.len());
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: as in `read`; the driver has left the bytes to the device.
            unsafe { start.add(at).write(*byte) };
        }
    }
}
