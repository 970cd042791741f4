//! The network card Intel 82574L, without a driver of the kernel.
//!
//! Each queue has a ring of extended RX descriptors and one of TX descriptors, which the card
//! writes back one by one. Checksums of packets to the card, and TCP segmentation, are its work; it
//! verifies the checksums of packets that it receives. VLAN tags stay in the frames.
//!
//! # Receive buffers
//!
//! The card knows one size of buffers, which it assumes of every one. With the usual MTU that is
//! 2048 bytes, more than a small frame has behind its headroom. It is right only since the card
//! then drops frames of more than 1522 bytes (`RCTL.LPE` and `RCTL.SBP` are 0), and writes no byte
//! beyond the frame. With a longer MTU the buffers are of 1024 bytes, and packets in pieces.
//!
//! # Interrupts
//!
//! With MSI-X each half has a vector, whose cause the card clears and masks when it fires. With MSI
//! or INTx there is one interrupt, and the RX half of the only queue has it; the queue polls its TX
//! half ([`arm`](crate::driver::TxDescriptors::arm)).
//!
//! # Limits of offloads
//!
//! The card never does these, and the first such packet takes the offload from its queue
//! ([`Refused::Feature`](crate::driver::Refused::Feature)): the checksum at an offset of more than
//! 255 bytes, and the segmentation of a packet with IPv6 extension headers, with a source route, or
//! with more than 244 segments. A packet of more than 62 pieces, which are at most 8 KiB and 4
//! segments long, is copied first.
//!
//! # Errata
//!
//! Of those that Linux and FreeBSD know, these are done: TARC, TXDCTL, CTRL, CTRL_EXT and GCR
//! (`init.rs`), RX that does not end without a reset, the last 4 bytes of a segmented packet in a
//! descriptor of their own, one context for both queues, no segmentation below 1 Gbit/s, no
//! interrupts for acknowledgements. These are not: ASPM L0s and L1 have to be off
//! (`pcie_aspm=off`), and a PHY that hangs is not found.

mod init;
mod keys;
mod line;
mod registers;
mod rx;
#[cfg(test)]
mod tests;
mod tso;
mod tx;

pub use keys::E1000eOptions;
pub use rx::E1000eRx;
pub use tx::E1000eTx;

use crate::driver::{
    Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Link, QueuePair,
};
use crate::packet::Arena;
use crate::port::card::{
    Arriving, Buffers, Bus, Dma, Flight, Interrupt, InterruptKind, Ring, Window, choose_interrupts,
};
use crate::port::sys::device::{failed, unsupported};
use crate::time::Instant;
use line::{Card, Line};
use registers::{RingRegisters, WORDS, rctl, tctl};
use std::sync::Arc;

/// The queues of the card.
const QUEUES_MAX: usize = 2;
/// Descriptors of a ring by default.
const RINGS: usize = 512;
/// Enough for three packets of the most pieces.
const RINGS_MIN: usize = 256;
/// The most that Linux has.
const RINGS_MAX: usize = 4096;
/// The MTU of Ethernet, and the default.
const MTU: u32 = 1500;
/// The card takes frames of up to 9234 bytes (`DEFAULT_JUMBO` of Linux), with 14 bytes of Ethernet,
/// a VLAN tag and the FCS.
const MTU_MAX: u32 = 9234 - 14 - 4 - 4;
/// Bytes of a frame without `RCTL.LPE`: with a VLAN tag and the FCS, which QEMU does not count.
const FRAME_BYTES_MAX: usize = 1522;
/// Segments of a packet (`EM_MAX_SCATTER` of FreeBSD). The longest one has 37 in small frames.
const SEGMENTS_MAX: usize = 40;
/// Shorter packets are not given to the card, which pads them on the wire (Linux, netdev.c).
const PACKET_BYTES_MIN: usize = 17;

/// The settings of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct E1000eConfig {
    /// The most queues, 1 or 2; `None` for as many as it has interrupts for.
    pub queues: Option<usize>,
    /// How it raises interrupts; `None` for the first that it has of MSI-X, MSI and INTx.
    pub interrupts: Option<InterruptKind>,
    /// Descriptors of each ring: a multiple of 8 from 256 to 4096.
    pub rings: usize,
    /// The most bytes of a packet behind its link header and VLAN tag, 1500 to 9212.
    pub mtu: u32,
    /// Offloads of packets to the card, at most.
    pub offload: Features,
    /// Receive packets for any address, which a bridge needs. Without, those for its own address,
    /// and all multicast.
    pub promiscuous: bool,
}

impl Default for E1000eConfig {
    fn default() -> Self {
        Self {
            queues: None,
            interrupts: None,
            rings: RINGS,
            mtu: MTU,
            offload: Features::ALL,
            promiscuous: true,
        }
    }
}

/// An open card.
#[derive(Debug)]
pub struct E1000e<B: Bus> {
    card: Arc<Card<B>>,
    config: E1000eConfig,
    interrupts: InterruptKind,
    queues_max: usize,
    address: [u8; 6],
}

impl<B: Bus> E1000e<B> {
    /// Resets the card. It receives from [`Driver::attach`] on.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it is another card, has no such interrupt, or the settings
    /// are out of range; [`DeviceError::Failed`] when the system refuses.
    pub fn open(bus: B, config: &E1000eConfig) -> Result<Self, DeviceError> {
        let rings = config.rings;
        if !(RINGS_MIN..=RINGS_MAX).contains(&rings) || !rings.is_multiple_of(8) {
            return unsupported(format!(
                "{rings} descriptors are no ring of an 82574: give a multiple of 8 from \
                 {RINGS_MIN} to {RINGS_MAX}"
            ));
        }
        if !(MTU..=MTU_MAX).contains(&config.mtu) {
            let mtu = config.mtu;
            return unsupported(format!(
                "an 82574 has no MTU of {mtu}: give {MTU} to {MTU_MAX}"
            ));
        }
        // A vector for each half.
        let interrupts = choose_interrupts(&bus, config.interrupts, 2)?;
        let queues_max = match interrupts {
            InterruptKind::Msix => (bus.interrupts(interrupts) / 2).min(QUEUES_MAX),
            InterruptKind::Msi | InterruptKind::Intx => 1,
        };
        let queues_max = config.queues.unwrap_or(QUEUES_MAX).clamp(1, queues_max);
        let address = init::reset(&bus, queues_max)?;
        Ok(Self {
            card: Arc::new(Card::new(bus)),
            config: config.clone(),
            interrupts,
            queues_max,
            address,
        })
    }

    /// The card's Ethernet address.
    #[must_use]
    pub const fn address(&self) -> [u8; 6] {
        self.address
    }

    fn offloads(&self) -> Features {
        let all = Features::CSUM | Features::TSO4 | Features::TSO6;
        all.intersection(self.config.offload).consistent()
    }

    /// RCTL, and the bytes of each buffer.
    fn receives(&self, small_bytes: usize) -> (u32, usize) {
        let mut control = rctl::ENABLE | rctl::BROADCAST | rctl::ALL_MULTICAST | rctl::STRIP_CRC;
        if self.config.promiscuous {
            control |= rctl::ALL_UNICAST;
        }
        if self.config.mtu > MTU {
            control |= rctl::LONG;
        } else if small_bytes >= FRAME_BYTES_MAX {
            // The card writes no more than a frame: see the documentation of the module.
            return (control | rctl::BUFFERS_2048, small_bytes);
        }
        let fits = |(bytes, _): &&(usize, u32)| *bytes <= small_bytes;
        let [.., least] = rctl::BUFFERS;
        let (bytes, bits) = *rctl::BUFFERS.iter().find(fits).unwrap_or(&least);
        (control | bits, bytes)
    }
}

impl<B: Bus> Driver for E1000e<B> {
    type Rx = E1000eRx<B>;
    type Tx = E1000eTx<B>;

    fn name(&self) -> &str {
        self.card.bus.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues_max: self.queues_max,
            tx: self.offloads(),
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            tx_ring: Some(self.config.rings),
            min_packet_bytes: PACKET_BYTES_MIN,
            mtu: Some(self.config.mtu),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let (bus, rings) = (&self.card.bus, self.config.rings);
        let queues = how.queues.clamp(1, self.queues_max);
        let ring_bytes = rings * Ring::<WORDS>::DESCRIPTOR_BYTES;
        let queue_bytes = 2 * ring_bytes + rings * tso::SLOT_BYTES;
        let dma = Dma::new(bus, queues * queue_bytes).map_err(failed("map the rings"))?;
        let (dma, window) = (Arc::new(dma), Window::new(bus, arena));
        let window = window.map_err(failed("give the card the packets' memory"))?;
        let mut interrupts = Vec::new();
        let count = match self.interrupts {
            InterruptKind::Msix => 2 * queues,
            InterruptKind::Msi | InterruptKind::Intx => 1,
        };
        for _ in 0..count {
            interrupts.push(Interrupt::new().map_err(failed("open an eventfd"))?);
        }
        bus.connect(self.interrupts, &interrupts)
            .map_err(failed("connect the interrupts"))?;
        if self.interrupts == InterruptKind::Msix {
            self.card.route(queues);
        }
        let (control, bytes) = self.receives(how.rx_buffers.small_bytes());
        let line = Arc::new(Line::new(Arc::clone(&self.card)));
        let mut pairs = Vec::new();
        for queue in 0..queues {
            let start = queue * queue_bytes;
            let ring = |at: usize| Ring::new(Arc::clone(&dma), start + at * ring_bytes, rings);
            let (rx_ring, tx_ring) = (ring(0), ring(1));
            let (rx, tx) = (RingRegisters::rx(queue), RingRegisters::tx(queue));
            init::place(bus, rx, rx_ring.address(), rx_ring.bytes());
            init::place(bus, tx, tx_ring.address(), tx_ring.bytes());
            let rx_half = E1000eRx {
                line: Arc::clone(&line),
                queue,
                ring: rx_ring,
                buffers: Buffers::new(rings, window, bytes),
                arriving: Arriving::default(),
                kind: self.interrupts,
                interrupt: interrupts[2 * queue].clone(),
                recheck_at: Instant::default(),
            };
            let tx_half = E1000eTx {
                line: Arc::clone(&line),
                queue,
                ring: tx_ring,
                slots: start + 2 * ring_bytes,
                dma: Arc::clone(&dma),
                window,
                flight: Flight::new(rings),
                pieces: Vec::with_capacity(tso::PIECES_MAX + 2),
                context: None,
                is_alone: queues == 1,
                unreported: 0,
                last: None,
                after_segments: false,
                interrupt: interrupts.get(2 * queue + 1).cloned(),
                offloads: self.offloads(),
                offers: self.offloads(),
                returned: None,
                doorbells: 0,
            };
            pairs.push((rx_half, tx_half));
        }
        init::spread(bus, queues);
        bus.start(true).map_err(failed("start the card"))?;
        let mut transmit = tctl::ENABLE | tctl::PAD | tctl::RETRY_LATE;
        transmit |= tctl::COLLISIONS | tctl::DISTANCE;
        if queues > 1 {
            transmit |= tctl::MULTIPLE;
        }
        self.card.write(registers::TCTL, transmit);
        // The sizes of buffers and descriptors take effect here.
        self.card.write(registers::RCTL, control);
        self.card.check();
        Ok(pairs)
    }

    fn link(&mut self) -> Link {
        self.card.check()
    }

    /// The card's own: its bytes include the FCS.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        Some(self.card.count())
    }
}
