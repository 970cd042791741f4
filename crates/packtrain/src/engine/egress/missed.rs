//! A worker that comes to look before it sleeps, while somebody else is at it.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether the worker came while somebody else was the consumer, and went to sleep for that. Who
/// leaves packets behind tells it anyway; who was only looking asks here whether it has to.
#[derive(Debug, Default)]
pub(super) struct Missed(AtomicBool);

impl Missed {
    /// The worker came. Whether it may sleep: somebody is at it still, and will know.
    pub(super) fn came(&self, is_busy: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        // Either this sees that the other one has left, or that one sees that this came.
        fence();
        is_busy()
    }

    /// Whether the worker came since this was asked last. To be asked after leaving.
    pub(super) fn take(&self) -> bool {
        fence();
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
