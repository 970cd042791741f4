//! One counter.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer and any number of readers.
///
/// Adding is a plain load and store without a locked instruction: one thread writes at a time, the
/// owner of the block.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at 0.
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`. Only the owner of the block may call this.
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Stores a total that is kept elsewhere (in a driver). Only the owner may call this.
    pub fn set(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
