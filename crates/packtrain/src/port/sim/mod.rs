//! A NIC in memory: descriptor rings, doorbells, late and reordered completions, a wire.
//!
//! Two endpoints joined by a wire ([`pair`]), or one with a simple far end ([`Sim::alone`]). A
//! driver meets the situations of real hardware: the device does not see packets before the
//! doorbell, buffers run out, a packet needs several of them, descriptors complete with an error,
//! an announced offload is refused. All of it is reproducible: everything random comes from a seed,
//! and the framework passes the time.
//!
//! An endpoint has no file descriptor. It raises the interrupts of its queues on the thread of the
//! other end: an armed RX queue's when packets arrive; a TX queue's when the receiver posts buffers
//! again, if it is armed or has packets that wait for them.
//!
//! The transmitting side does the device's work at the doorbell, on the caller's thread. It reads
//! the packet and finishes it as hardware would (cuts GSO packets, completes checksums, inserts the
//! VLAN tag), unless the receiver agreed to take it unchanged. It copies the bytes once, into
//! buffers that the receiver posted. Endpoints may have different arenas; if they have the same
//! one, long packets may be shared instead ([`SimConfig::rx_shares`]).

mod config;
mod keys;
mod rx;
mod tx;
mod wire;

#[cfg(test)]
mod tests;

pub use config::{
    CompletionDelay, FLAP_MAX, FLAP_MIN, Interrupts, RATE_MAX, RING_MAX, RING_MIN, SimConfig,
};
pub use keys::SimOptions;
pub use rx::SimRx;
pub use tx::SimTx;
pub use wire::{SimCounters, SimFault};

use crate::driver::{Attach, Capabilities, DeviceCounters, DeviceError, Driver, Link, QueuePair};
use crate::packet::Arena;
use std::sync::Arc;
use wire::{Arrival, Attached, End, Interrupt, Wire, Word};

/// The far end of an endpoint that is not one of a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Far {
    /// Takes every packet and counts it.
    #[default]
    Discard,
    /// Sends every packet back, to the same queue.
    Echo,
}

/// One endpoint.
#[derive(Debug)]
pub struct Sim {
    control: SimControl,
    /// The end where transmitted packets arrive; `None` to discard them.
    destination: Option<usize>,
    seed: u64,
}

/// Two endpoints: each receives the packets that the other transmits, in order. Queue `i` sends to
/// queue `i` (modulo the number of queues that the receiver has attached).
#[must_use]
pub fn pair(a: SimConfig, b: SimConfig, seed: u64) -> (Sim, Sim) {
    let wire = Arc::new(Wire::new([a, b], [1, 0]));
    let end = |side: usize| Sim {
        control: SimControl {
            wire: Arc::clone(&wire),
            side,
        },
        destination: Some(1 - side),
        seed: seed ^ (side as u64) << 63,
    };
    (end(0), end(1))
}

impl Sim {
    /// One endpoint with `far` at the other end of the wire.
    #[must_use]
    pub fn alone(config: SimConfig, far: Far, seed: u64) -> Self {
        let far_end = SimConfig::default();
        let wire = Arc::new(Wire::new([config, far_end], [0, 0]));
        Self {
            control: SimControl { wire, side: 0 },
            destination: match far {
                Far::Discard => None,
                Far::Echo => Some(0),
            },
            seed,
        }
    }

    /// A handle to pull the cable, remove the device, and read the hardware's counters.
    #[must_use]
    pub fn control(&self) -> SimControl {
        self.control.clone()
    }

    fn config(&self) -> &SimConfig {
        &self.control.end().config
    }
}

impl Driver for Sim {
    type Rx = SimRx;
    type Tx = SimTx;

    fn name(&self) -> &str {
        &self.config().name
    }

    fn capabilities(&self) -> Capabilities {
        let config = self.config();
        Capabilities {
            link: config.link,
            queues_max: config.queues,
            rx: config.rx.consistent(),
            tx: config.tx.consistent(),
            tx_segments_max: config.segments,
            tx_gso_segments_max: config.gso_segments,
            tx_segment_bytes_max: config.segment_bytes,
            tx_memory: config.memory,
            tx_ring: Some(config.tx_ring),
            contiguous_headers: config.contiguous_headers,
            min_packet_bytes: config.min_packet_bytes,
            notes: config.notes(),
            ..Capabilities::default()
        }
    }

    fn attach(
        &mut self,
        how: &Attach,
        _arena: &Arena,
    ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let config = self.config();
        config.validate()?;
        if how.queues == 0 || how.queues > config.queues {
            return Err(DeviceError::Unsupported(format!(
                "{}: {} queues were asked for, and it has from 1 to {}",
                config.name, how.queues, config.queues
            )));
        }
        let (wire, side) = (&self.control.wire, self.control.side);
        let attached = Attached::new(config, how);
        if wire.end(side).attached.set(attached).is_err() {
            let again = format!("{}: it is attached already", config.name);
            return Err(DeviceError::Unsupported(again));
        }
        Ok((0..how.queues)
            .map(|queue| {
                let seed = self.seed.wrapping_add(how.seed).wrapping_add(queue as u64);
                (
                    SimRx::new(Arc::clone(wire), side, queue),
                    SimTx::new(Arc::clone(wire), side, self.destination, queue, seed),
                )
            })
            .collect())
    }

    fn link(&mut self) -> Link {
        self.control.wire.link(self.control.side)
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        Some(self.control.device_counters())
    }
}

/// Controls the device from outside of the driver: the cable, and the counters that `ethtool` would
/// show. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimControl {
    wire: Arc<Wire>,
    side: usize,
}

impl SimControl {
    fn end(&self) -> &End {
        self.wire.end(self.side)
    }

    /// Plugs the cable in or pulls it, for both ends.
    pub fn set_link(&self, up: bool) {
        self.wire.set_up(up);
    }

    /// Removes this endpoint's device for good. The other end loses its link.
    pub fn remove(&self) {
        self.wire.remove(self.side);
    }

    /// The next `packets` packets that arrive at this endpoint are reported as received in error.
    pub fn corrupt_next(&self, packets: u64) {
        self.end().add_faults(SimFault::Corrupt, packets);
    }

    /// The next `packets` packets that arrive at this endpoint are reported with a length of 0.
    pub fn truncate_next(&self, packets: u64) {
        self.end().add_faults(SimFault::Truncate, packets);
    }

    /// The next `packets` packets that arrive at this endpoint are reported with a length beyond
    /// their buffer.
    pub fn overrun_next(&self, packets: u64) {
        self.end().add_faults(SimFault::Overrun, packets);
    }

    /// A frame arrives from the wire at RX queue `queue`, modulo the queues that are attached, on
    /// the caller's thread. Without a buffer for it, or before the device is attached, it is lost.
    pub fn arrive(&self, queue: usize, frame: &[u8]) {
        let end = self.wire.end(self.side);
        let Some(attached) = end.attached.get() else {
            return;
        };
        let ring = &attached.rings[queue % attached.rings.len()];
        let mut rx = ring.lock();
        let word = Word {
            wire_packets: 1,
            ..Word::default()
        };
        match rx.write(frame.len(), std::iter::once(frame), None, word, end) {
            Arrival::Written => end.counts.arrived(frame.len()),
            Arrival::Pause | Arrival::Lost => end.counts.arrived_in_vain(),
        }
        let signals = rx.signals();
        drop(rx);
        if signals {
            ring.interrupt.raise();
        }
    }

    /// The completions of the next `packets` packets that this endpoint sends are lost.
    pub fn lose_completions(&self, packets: u64) {
        self.end().add_faults(SimFault::LoseCompletion, packets);
    }

    /// The completions of the next `packets` packets that this endpoint sends are late: by 16 steps
    /// of the unit of the completion delay, or calls of `reclaim` with nothing sent before. Later
    /// ones wait for them.
    pub fn delay_completions(&self, packets: u64) {
        self.end().add_faults(SimFault::DelayCompletion, packets);
    }

    /// The next `packets` completions of this endpoint are reported twice.
    pub fn repeat_completions(&self, packets: u64) {
        self.end().add_faults(SimFault::RepeatCompletion, packets);
    }

    /// The next `times` completion interrupts of this endpoint are lost.
    pub fn lose_interrupts(&self, times: u64) {
        self.end().add_faults(SimFault::LoseInterrupt, times);
    }

    /// The next `times` completion interrupts of this endpoint are 1 ms late. Only a device with a
    /// rate has them.
    pub fn delay_interrupts(&self, times: u64) {
        self.end().add_faults(SimFault::DelayInterrupt, times);
    }

    /// Raises both interrupts of queue `queue` of this endpoint now, without a cause.
    pub fn interrupt(&self, queue: usize) {
        if let Some(attached) = self.end().attached.get() {
            let rx = attached.rings.get(queue).map(|ring| &ring.interrupt);
            let tx = attached.waiters.get(queue).map(|waiter| &waiter.interrupt);
            [rx, tx].into_iter().flatten().for_each(Interrupt::raise);
        }
    }

    /// While `full` is true, the TX queues of this endpoint take no packet, as if their rings were
    /// full. What they have is sent and completed.
    pub fn set_full(&self, full: bool) {
        self.wire.set_full(self.side, full);
    }

    /// Cancels the faults that were requested here and have not happened. A stalled queue stays so.
    pub fn heal(&self) {
        self.end().cancel_faults();
    }

    /// TX queue `queue` of this endpoint is stalled from now on: it takes packets while its ring
    /// has room, and sends and completes none until it is reset.
    pub fn hang(&self, queue: usize) {
        self.end().set_hung(queue, true);
    }

    /// Times that a fault of this endpoint has happened. One that was requested and met no packet,
    /// completion or interrupt has not.
    #[must_use]
    pub fn happened(&self, fault: SimFault) -> u64 {
        self.end().happened(fault)
    }

    /// The hardware's counters beside [`Self::device_counters`].
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.end().counts.hardware()
    }

    /// The hardware's counters. A packet is the unit of one doorbell or one reception: a GSO packet
    /// is one.
    #[must_use]
    pub fn device_counters(&self) -> DeviceCounters {
        self.end().counts.device()
    }
}
