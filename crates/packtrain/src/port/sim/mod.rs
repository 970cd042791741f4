//! A NIC in memory: descriptor rings, doorbells, late and reordered completions, a wire.
//!
//! Two endpoints joined by a wire ([`pair`]) or one with somebody simple at the far end
//! ([`Sim::alone`]). What a driver of real hardware meets happens here too: packets are invisible
//! to the device before the doorbell, buffers run out, a packet needs several of them, descriptors
//! come back in error, an announced offload is refused. All of it is repeatable: whatever is
//! random comes from a seed, and time is what the framework passes.
//!
//! An endpoint has no descriptor. It raises the interrupts that its queues were given, on the
//! thread of the other end: an armed RX queue's when packets arrive, an armed TX queue's when the
//! receiver posts buffers again.
//!
//! The transmitting side does the device's work at the doorbell, on the caller's thread: it reads
//! the packet, finishes it as hardware would (cuts GSO packets, completes checksums, inserts the
//! VLAN tag) unless the receiver agreed to take it as it is, and copies the bytes, once, into
//! buffers that the receiver posted. Endpoints may have different arenas; where they have the same,
//! long packets may be shared instead ([`SimConfig::rx_shares`]).

mod rx;
mod tx;
mod wire;

#[cfg(test)]
mod tests;

pub use rx::SimRx;
pub use tx::SimTx;

use crate::driver::{
    Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Link, QueuePair, TxMemory,
};
use crate::limits::{QUEUES_MAX, SEGMENTS_MAX};
use crate::packet::Arena;
use packtrain_offload::offload::LinkType;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::{Attached, Wire};

/// Fewest descriptors of a ring.
pub const RING_MIN: usize = 8;
/// Most descriptors of a ring (as Intel's 40 Gb/s NICs and many others).
pub const RING_MAX: usize = 4096;

/// When the device reports a packet that it has sent as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionDelay {
    /// As soon as it is sent.
    #[default]
    None,
    /// After so many further doorbells.
    Flushes(u32),
    /// After so many further calls of `reclaim`.
    Reclaims(u32),
    /// After so many further packets of the queue.
    Packets(u32),
}

/// What a device with a rate can say of its completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// When as many packets are done as it was asked for, as NICs with interrupt moderation.
    #[default]
    Counted,
    /// When any is done.
    Each,
}

/// Most packets a second that a rate may be: ten times what a CPU sends.
pub const RATE_MAX: u64 = 100_000_000;

/// What one endpoint is and how it misbehaves.
///
/// In every mode, a `reclaim` without a packet since the one before counts as one step of
/// [`Self::delay`]: as with the interrupt timer of real NICs, the last packets before a pause are
/// reported in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// What the port is called.
    pub name: String,
    /// What the first byte of a packet is; the same at both ends of a pair.
    pub link: LinkType,
    /// Most queues it can have.
    pub queues: usize,
    /// Descriptors of each TX ring: one for each segment of a packet, and one more for a packet
    /// with an offload (the context descriptor).
    pub tx_ring: usize,
    /// Descriptors of each RX ring; one always stays empty.
    pub rx_ring: usize,
    /// Large buffers posted beside each RX ring when the receiver wants packets whole: each takes
    /// the part of one packet that did not fit its small buffer, so this many GSO packets may wait
    /// for the receiver. They are large frames of its arena.
    pub rx_large_buffers: usize,
    /// Where both ends' packets are in the same arena and the receiver wants them whole, what does
    /// not fit the first buffer of a packet is not copied but shared with the sender's packet, as
    /// interfaces within one kernel do (veth, for one).
    pub rx_shares: bool,
    /// Segments an ordinary packet may have.
    pub segments: usize,
    /// Segments a GSO packet may have.
    pub gso_segments: usize,
    /// Bytes a segment may have.
    pub segment_bytes: usize,
    /// What received packets may come with. With nothing, as from a real wire, every packet is
    /// finished and tags are in its bytes. With GSO and checksums, packets of the other end arrive
    /// as they were sent, as from a virtio device; with VLAN, tags are taken off.
    /// [`Features::LARGE_RECEIVE`] may be announced, and nothing is merged.
    pub rx: Features,
    /// What transmitted packets may come with.
    pub tx: Features,
    /// Where segments may be.
    pub memory: TxMemory,
    /// The device wants all headers in the first segment.
    pub contiguous_headers: bool,
    /// The framework pads shorter packets to this many bytes.
    pub min_packet_bytes: usize,
    /// When sent packets are reported.
    pub delay: CompletionDelay,
    /// Packets that each queue sends in a second, by the time that the framework passes, and
    /// completes no sooner; an armed queue knows when ([`TxDescriptors::next_at`]). A GSO packet is
    /// one. `None` for as fast as they come. Packets arrive at the other end at once all the same.
    ///
    /// [`TxDescriptors::next_at`]: crate::driver::TxDescriptors::next_at
    pub rate: Option<u64>,
    /// What it says of completions, with a rate.
    pub interrupts: Interrupts,
    /// Reports them in random order among those that are due.
    pub reorder: bool,
    /// Pause frames: the other end stops sending while this one has no buffer posted. Without them
    /// a packet that finds no buffer is lost, and counted by this end's device.
    pub flow_control: bool,
    /// Every so many packets that arrive at a queue, one is reported as received in error; 0 for
    /// never.
    pub corrupt_every: u64,
    /// Announced in `tx`, and refused for every packet that uses it.
    pub refuse: Features,
    /// Refuses packets of more segments than this, whatever it announced.
    pub refuse_segments: Option<usize>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            name: "sim0".to_owned(),
            link: LinkType::Ethernet,
            queues: 16,
            tx_ring: 512,
            rx_ring: 512,
            rx_large_buffers: 8,
            rx_shares: false,
            segments: 40,
            gso_segments: 40,
            segment_bytes: usize::MAX,
            rx: Features::NONE,
            tx: Features::CSUM | Features::TSO | Features::USO,
            memory: TxMemory::Any,
            contiguous_headers: false,
            min_packet_bytes: 0,
            delay: CompletionDelay::None,
            rate: None,
            interrupts: Interrupts::Counted,
            reorder: false,
            flow_control: false,
            corrupt_every: 0,
            refuse: Features::NONE,
            refuse_segments: None,
        }
    }
}

impl SimConfig {
    /// Why it cannot be built: one sentence, for people.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] for a value out of its range.
    pub fn validate(&self) -> Result<(), DeviceError> {
        let bounds = [
            ("queues", self.queues, 1, QUEUES_MAX),
            ("tx_ring", self.tx_ring, RING_MIN, RING_MAX),
            ("rx_ring", self.rx_ring, RING_MIN, RING_MAX),
            ("rx_large_buffers", self.rx_large_buffers, 1, RING_MAX),
            ("segments", self.segments, 1, SEGMENTS_MAX),
            ("gso_segments", self.gso_segments, 1, SEGMENTS_MAX),
            ("segment_bytes", self.segment_bytes, 64, usize::MAX),
        ];
        for (what, value, min, max) in bounds {
            if value < min || value > max {
                return Err(DeviceError::Unsupported(format!(
                    "{}: {what} is {value}, and must be from {min} to {max}",
                    self.name
                )));
            }
        }
        let Some(rate) = self.rate else {
            return Ok(());
        };
        let why = if !(1..=RATE_MAX).contains(&rate) {
            format!("rate is {rate}, and must be from 1 to {RATE_MAX}")
        } else if self.delay != CompletionDelay::None {
            "sent packets are reported at a rate or after a delay: leave one of them out".to_owned()
        } else {
            return Ok(());
        };
        Err(DeviceError::Unsupported(format!("{}: {why}", self.name)))
    }
}

/// Who is at the far end of an endpoint that is not one of a pair.
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

/// Two endpoints: what one transmits the other receives, in order; queue `i` to queue `i` (modulo
/// the number of queues that the receiver has attached).
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
        let nobody = SimConfig::default();
        let wire = Arc::new(Wire::new([config, nobody], [0, 0]));
        Self {
            control: SimControl { wire, side: 0 },
            destination: match far {
                Far::Discard => None,
                Far::Echo => Some(0),
            },
            seed,
        }
    }

    /// A handle to pull the cable, remove the device, and read what the hardware counted.
    #[must_use]
    pub fn control(&self) -> SimControl {
        self.control.clone()
    }

    fn config(&self) -> &SimConfig {
        &self.control.wire.end(self.control.side).config
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
                let seed = self.seed.wrapping_add(queue as u64);
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

/// What the hardware of one endpoint counted that a driver's counters have no place for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Packets that the endpoint put on the wire: each segment of a GSO packet that it cut is one;
    /// one that the receiver took whole is one.
    pub wire_packets: u64,
    /// Bytes of those, link header included.
    pub wire_bytes: u64,
    /// Packets that broke the endpoint's capabilities: the framework must never hand one over.
    pub unfit: u64,
}

/// Reaches the device from outside of the driver: what a hand at the cable does, and what `ethtool`
/// would show. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimControl {
    wire: Arc<Wire>,
    side: usize,
}

impl SimControl {
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
        let end = self.wire.end(self.side);
        end.corrupt.fetch_add(packets, Ordering::AcqRel);
    }

    /// The next `packets` packets that this endpoint sends are never reported as sent.
    pub fn lose_completions(&self, packets: u64) {
        let end = self.wire.end(self.side);
        end.lose_completions.fetch_add(packets, Ordering::AcqRel);
    }

    /// The next `times` that this endpoint has to raise an interrupt for completions, it does not.
    pub fn lose_interrupts(&self, times: u64) {
        let end = self.wire.end(self.side);
        end.lose_interrupts.fetch_add(times, Ordering::AcqRel);
    }

    /// TX queue `queue` of this endpoint stands still from now on: it takes packets while its ring
    /// has room, and sends and reports none until it is reset.
    pub fn hang(&self, queue: usize) {
        self.wire.end(self.side).set_hung(queue, true);
    }

    /// What the hardware counted beside [`Self::device_counters`].
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.wire.end(self.side).counts.hardware()
    }

    /// What the hardware counted. A packet is what one doorbell or one reception brings over: a GSO
    /// packet is one.
    #[must_use]
    pub fn device_counters(&self) -> DeviceCounters {
        self.wire.end(self.side).counts.device()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same sequence for the same seed, everywhere.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    /// A number below `bound`, which must not be 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
