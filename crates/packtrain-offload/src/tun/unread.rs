//! How many packets of a read were fetched, and the count of those that never were.

#[cfg(target_has_atomic = "ptr")]
use core::sync::atomic::{AtomicUsize, Ordering};

/// As wide as a pointer: some targets have no 64-bit atomics.
#[cfg(target_has_atomic = "ptr")]
static UNREAD: AtomicUsize = AtomicUsize::new(0);

/// Packets that were lost in this process, because their [`Packets`](super::Packets) was dropped,
/// or read into again, before they were fetched. A packet that was left out with
/// [`skip_packet`](super::Packets::skip_packet) is not counted, nor is a read whose virtio-net
/// header is refused. Packets that a live `Packets` still has are not lost, so they are not counted
/// either.
///
/// A correct program has 0 until it ends. It is a counter for a program's metrics: it wraps at
/// `usize::MAX`, and each thread sees the losses of others some time later (relaxed atomics). On
/// targets without atomics this function does not exist.
#[cfg(target_has_atomic = "ptr")]
#[must_use]
pub fn unread_packets() -> usize {
    UNREAD.load(Ordering::Relaxed)
}

/// The packets of a read, by number. A type of its own because of its `Drop`: if `Packets` had one,
/// the buffer would stay borrowed to the end of the scope, and could not be given back.
pub(super) struct Progress {
    /// The next one.
    pub(super) index: u32,
    pub(super) count: u32,
}

impl Progress {
    pub(super) const fn of(count: u32) -> Self {
        Self { index: 0, count }
    }

    pub(super) const fn remaining(&self) -> usize {
        (self.count - self.index) as usize
    }
}

impl Drop for Progress {
    #[inline]
    fn drop(&mut self) {
        #[cfg(target_has_atomic = "ptr")]
        if self.remaining() > 0 {
            UNREAD.fetch_add(self.remaining(), Ordering::Relaxed);
        }
    }
}
