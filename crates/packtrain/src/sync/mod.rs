//! What threads share: the atomics and cells of `std`, or those of loom.
//!
//! Code that takes them from here is model-checked as it ships: with `--cfg packtrain_loom` loom
//! runs it under every order of events that the memory model allows (`tests/loom_ring.rs`, and
//! `engine/models.rs`). Nothing but such code needs this module.

mod cells;
mod lines;

pub(crate) use cells::{UnsafeCell, write_cells};
pub(crate) use lines::Lines;

use std::ops::Deref;

#[cfg(packtrain_loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(packtrain_loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// Keeps the compiler from moving reads and writes across it.
#[inline(always)]
pub(crate) fn in_program_order() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Says that this thread waits for another one, for a moment.
#[inline]
pub(crate) fn spin() {
    #[cfg(not(packtrain_loom))]
    std::hint::spin_loop();
    #[cfg(packtrain_loom)]
    loom::thread::yield_now();
}

/// Keeps what one side writes away from what the other side writes: 128 bytes, since Intel's
/// processors fetch cache lines in pairs, and some of Arm's have lines of that size.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
