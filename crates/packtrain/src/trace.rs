//! Static probes (USDT): places where a tracer can attach to a running program.
//!
//! Each is one `nop` and a note in the executable that says where it is and where its arguments
//! are (`.note.stapsdt`, SystemTap's third version); with a tracer attached the kernel puts a
//! breakpoint there. Arguments are values that are at hand, and the same first three for every
//! probe: a size in packets, the queue, and which of the two ports (0 or 1). `docs/seeing.md` says
//! how to use them, and `docs/batches.bt` does.
//!
//! What is not at hand is the depth of a ring, for `dispatch`: it is in a cache line that the
//! consumer writes. So that probe has a semaphore, a word that a tracer increments while it is
//! attached. Without a tracer the probe only reads that word.
//!
//! On processors other than x86-64 and AArch64 there are none.

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
/// Not generic: a tracer knows one semaphore for all places of a probe.
#[inline]
pub(crate) fn dispatch(id: QueueId, packets: u64, deferred: bool, depth: &dyn Fn() -> u64) {
    fire_if_traced!(dispatch, packets, id.queue, id.port, deferred, depth());
}

/// A TX queue starts to send, with `depth` packets in front of the device: what is submitted now
/// and what waited already.
#[inline]
pub(crate) fn tx_start(id: QueueId, depth: u64) {
    fire!(tx_start, depth, id.queue, id.port);
}

/// A TX queue has given `packets` to its device and flushed it once. Not when it took none.
#[inline]
pub(crate) fn tx_drain(id: QueueId, packets: u64) {
    fire!(tx_drain, packets, id.queue, id.port);
}

/// A poll of an RX queue received `packets`, bad ones included. Not when it received none.
#[inline]
pub(crate) fn rx_poll(id: QueueId, packets: u64) {
    fire!(rx_poll, packets, id.queue, id.port);
}

/// Coalescing hands on a held packet, made of `packets`; 1 when nothing was merged with it.
#[inline]
pub(crate) fn coalesce_flush(id: QueueId, packets: u64) {
    fire!(coalesce_flush, packets, id.queue, id.port);
}
