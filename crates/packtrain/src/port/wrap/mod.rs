//! Drivers around drivers. Each passes on everything that is not its purpose to the wrapped driver.
//!
//! [`Fault`] loses, repeats, damages and delays received packets; [`Capture`] writes all packets to
//! a pcapng file; [`Trace`] writes a line for each packet; [`Vlan`] tags received packets and
//! untags transmitted ones. They nest: `Trace<Fault<D>>`. [`Returning`] opens a device again that
//! was removed.

mod capture;
mod fault;
mod options;
mod returning;
mod trace;
mod vlan;
mod wire;

#[cfg(test)]
mod tests;

pub use capture::{Capture, CaptureOptions, CaptureRx, CaptureStatus, CaptureTx};
pub use fault::{Fault, FaultCounters, FaultOptions, FaultRx, Faults};
pub use options::Wrappers;
pub use returning::{Returning, ReturningRx, ReturningTx};
pub use trace::{Trace, TraceRx, TraceStatus, TraceTx};
pub use vlan::{Vlan, VlanRx, VlanTx};

use crate::driver::{BadPackets, RxBurst, RxInfo};
use crate::packet::Packet;
use crate::stats::DropReason;
use std::io::{self, Write};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The output of a wrapper.
type Output = Box<dyn Write + Send>;

/// Passes bad packets of the wrapped driver on.
#[derive(Debug)]
struct PassBad<'a, 'b>(&'a mut RxBurst<'b>);

impl BadPackets for PassBad<'_, '_> {
    fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        self.0.bad(reason, wire_packets);
    }
}

/// The wrapped driver's information about a packet, to report it again.
fn info_of(packet: &Packet) -> RxInfo {
    let meta = packet.meta();
    RxInfo {
        layout: meta.layout,
        checksum: meta.checksum,
        gso: meta.gso,
        wire_packets: meta.wire_packets,
        flow_hash: meta.flow_hash,
        timestamp: meta.timestamp,
    }
}

/// Locks also after a panic elsewhere: every user leaves the value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a wrapper has written, for readers that do not hold the lock of its output: the output is
/// the caller's code, and may ask. Only the holder of that lock changes it.
#[derive(Debug, Default)]
struct Progress {
    /// Records or lines.
    records: AtomicU64,
    /// Records since the output had all.
    unwritten: AtomicU64,
    /// Records that were left out, since the output was full.
    missed: AtomicU64,
    /// Why writing stopped: one sentence.
    note: OnceLock<String>,
}

impl Progress {
    fn stop(&self, what: &str, error: &io::Error) {
        // The first reason stays.
        self.note
            .get_or_init(|| format!("{what} stopped, since its output failed: {error}"));
    }

    fn has_stopped(&self) -> bool {
        self.note.get().is_some()
    }

    fn note(&self) -> Option<String> {
        self.note.get().cloned()
    }
}
