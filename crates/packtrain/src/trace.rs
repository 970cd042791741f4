//! Static probes (USDT) for tracers.
//!
//! A probe is one `nop`, and an ELF note with its address and its arguments (`.note.stapsdt`,
//! SystemTap's third version). A tracer has the kernel replace the `nop` by a breakpoint. Each
//! probe has the same first three arguments: a size in packets, the queue, and the port (0 or 1).
//! `docs/seeing.md` describes their use, and `docs/batches.bt` is an example.
//!
//! The depth of the ring, an argument of `dispatch`, is in a cache line that the consumer writes.
//! So that probe has a semaphore, a word that a tracer increments while it is attached. Without a
//! tracer the probe only reads that word.
//!
//! Probes exist on x86-64 and AArch64 only.

use crate::stats::QueueId;

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
macro_rules! fire {
    ($name:ident, $($argument:expr),*) => {
        probe::probe!(packtrain, $name, $($argument),*)
    };
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
macro_rules! fire_if_traced {
    ($name:ident, $($argument:expr),*) => {
        let _traced: bool = probe::probe_lazy!(packtrain, $name, $($argument),*);
    };
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
macro_rules! fire_if_traced {
    ($name:ident, $($argument:expr),*) => {
        if false {
            nothing([$(u64::from($argument)),*]);
        }
    };
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
macro_rules! fire {
    ($name:ident, $($argument:expr),*) => {
        nothing([$(u64::from($argument)),*])
    };
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
const fn nothing<const N: usize>(_arguments: [u64; N]) {}

/// A batch of `packets` was submitted to a TX queue. The fourth argument is 1 if it is in the ring
/// for another thread, 0 if the producer sends it: as the consumer of the ring, or to a queue that
/// it owns. The fifth is the `depth` of the ring after it, 0 without a ring.
///
/// Not generic: all locations of a probe share one semaphore.
#[inline]
pub(crate) fn dispatch(id: QueueId, packets: u64, deferred: bool, depth: &dyn Fn() -> u64) {
    fire_if_traced!(dispatch, packets, id.queue, id.port, deferred, depth());
}

/// A TX queue starts to send, with `depth` packets before the device: those submitted now and those
/// that waited.
#[inline]
pub(crate) fn tx_start(id: QueueId, depth: u64) {
    fire!(tx_start, depth, id.queue, id.port);
}

/// A TX queue has given `packets` to its device, before one flush. Not for 0.
#[inline]
pub(crate) fn tx_drain(id: QueueId, packets: u64) {
    fire!(tx_drain, packets, id.queue, id.port);
}

/// A poll of an RX queue received `packets`, including bad ones. Not for 0.
#[inline]
pub(crate) fn rx_poll(id: QueueId, packets: u64) {
    fire!(rx_poll, packets, id.queue, id.port);
}

/// Coalescing flushes a packet made of `packets`; 1 if none was merged with it.
#[inline]
pub(crate) fn coalesce_flush(id: QueueId, packets: u64) {
    fire!(coalesce_flush, packets, id.queue, id.port);
}
