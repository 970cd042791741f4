//! The settings of an endpoint.

use crate::driver::{DeviceError, Features, TxMemory};
use crate::limits::{QUEUES_MAX, SEGMENTS_MAX};
use packtrain_offload::offload::LinkType;
use std::time::Duration;

/// Fewest descriptors of a ring.
pub const RING_MIN: usize = 8;
/// Most descriptors of a ring (as Intel's 40 Gb/s NICs and many others).
pub const RING_MAX: usize = 4096;

/// When the device completes a packet that it has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionDelay {
    /// As soon as it is sent.
    #[default]
    None,
    /// After this many further doorbells.
    Flushes(u32),
    /// After this many further calls of `reclaim`.
    Reclaims(u32),
    /// After this many further packets of the queue.
    Packets(u32),
}

/// The completion interrupts of a device with a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// When as many packets are done as it was armed for, as NICs with interrupt moderation.
    #[default]
    Counted,
    /// When any is done.
    Each,
}

/// The largest rate in packets per second: ten times what a CPU sends.
pub const RATE_MAX: u64 = 100_000_000;

/// The shortest and the longest time between changes of a flapping link.
pub const FLAP_MIN: Duration = Duration::from_millis(1);
/// See [`FLAP_MIN`].
pub const FLAP_MAX: Duration = Duration::from_secs(60);

/// The settings of one endpoint, and its faults.
///
/// In every mode, a `reclaim` with no packet sent since the one before counts as one step of
/// [`Self::delay`]: as with the interrupt timer of real NICs, the last packets before a pause are
/// completed in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// The name of the port.
    pub name: String,
    /// The link type; the same at both ends of a pair.
    pub link: LinkType,
    /// The largest number of queues.
    pub queues: usize,
    /// Descriptors of each TX ring: one for each segment of a packet, and one more for a packet
    /// with an offload (the context descriptor).
    pub tx_ring: usize,
    /// Descriptors of each RX ring; one always stays empty.
    pub rx_ring: usize,
    /// Large buffers posted beside each RX ring if the receiver wants packets whole. Each takes the
    /// part of one packet that did not fit its small buffer, so this many GSO packets may wait for
    /// the receiver. They are large frames of its arena.
    pub rx_large_buffers: usize,
    /// If both ends' packets are in the same arena and the receiver wants them whole, the part that
    /// does not fit the first buffer of a packet is not copied but shared with the sender's packet,
    /// as between interfaces of one kernel (veth, for example).
    pub rx_shares: bool,
    /// Segments an ordinary packet may have.
    pub segments: usize,
    /// Segments a GSO packet may have.
    pub gso_segments: usize,
    /// Bytes a segment may have.
    pub segment_bytes: usize,
    /// The offloads that received packets may use. With none, as from a real wire, every packet is
    /// finished and tags are in its bytes. With GSO and checksums, packets of the other end arrive
    /// as they were sent, as from a virtio device; with VLAN, tags are taken off.
    /// [`Features::LARGE_RECEIVE`] may be announced, but nothing is merged.
    pub rx: Features,
    /// The offloads that transmitted packets may use.
    pub tx: Features,
    /// Where segments may be.
    pub memory: TxMemory,
    /// The device wants all headers in the first segment.
    pub contiguous_headers: bool,
    /// The framework pads shorter packets to this many bytes.
    pub min_packet_bytes: usize,
    /// When sent packets are completed.
    pub delay: CompletionDelay,
    /// Packets that each queue sends in a second, by the time that the framework passes. None
    /// completes sooner; an armed queue knows when ([`TxDescriptors::next_at`]). A GSO packet is
    /// one. `None` for no limit. Packets arrive at the other end at once in any case.
    ///
    /// [`TxDescriptors::next_at`]: crate::driver::TxDescriptors::next_at
    pub rate: Option<u64>,
    /// The completion interrupts, with a rate.
    pub interrupts: Interrupts,
    /// Completes due packets in random order.
    pub reorder: bool,
    /// Pause frames: the other end stops sending while this one has no buffer posted. Without them
    /// a packet that finds no buffer is lost, and this end's device counts it.
    pub flow_control: bool,
    /// Of this many packets that arrive at a queue, one is reported as received in error; 0 for
    /// none.
    pub corrupt_every: u64,
    /// The link goes down and up again, with a change each time that this time has passed since the
    /// first packets were polled; of a pair, the first endpoint's. `None` for a link that stays up.
    pub flap: Option<Duration>,
    /// Features that are announced in `tx`, and refused for every packet that uses them.
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
            flap: None,
            refuse: Features::NONE,
            refuse_segments: None,
        }
    }
}

impl SimConfig {
    /// What it does to packets beside carrying them, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let corrupt = (self.corrupt_every > 0).then(|| {
            let every = self.corrupt_every;
            format!("1 of {every} packets that arrive has a bad descriptor (bad-descriptors=)")
        });
        let flap = self.flap.map(|time| {
            format!("the link goes down and up again, a change every {time:?} (flap=)")
        });
        let pause = "a full RX ring pauses the sender (flow-control=)".to_owned();
        let pause = self.flow_control.then_some(pause);
        [corrupt, flap, pause].into_iter().flatten().collect()
    }

    /// Why it cannot be built: one sentence, for the user.
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
        if let Some(flap) = self
            .flap
            .filter(|time| !(FLAP_MIN..=FLAP_MAX).contains(time))
        {
            return Err(DeviceError::Unsupported(format!(
                "{}: flap is {flap:?}, and must be from {FLAP_MIN:?} to {FLAP_MAX:?}",
                self.name
            )));
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
