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
//! beyond the frame. With a longer MTU the buffers are of 1024 bytes, and packets in pieces. So at
//! an MTU of 1500 a frame with two VLAN tags is received with at most 1496 bytes behind them.
//!
//! # Interrupts
//!
//! With MSI-X each half has a vector, whose cause the card clears and masks when it fires, and a
//! further one is for changes of the link. With MSI or INTx there is one interrupt: a thread masks
//! all causes, and wakes both halves of the only queue. A half enables its causes when it is armed.
//! The link is also read once a second: QEMU ends it for a negotiation without an interrupt, and a
//! card that was removed, or reset by another program, raises none.
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
//! interrupts for acknowledgements, ASPM L0s and L1 off by sysfs (VFIO lets no program change
//! them), a reset of a PHY that hangs. `docs/cards.md` lists them with their sources, and what is
//! not done.

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
pub use rx::E1000eReceive;
pub use tx::E1000eTransmit;

use crate::driver::{Attach, Capabilities, DeviceCounters, DeviceError, Driver, Link, QueuePair};
use crate::packet::Arena;
use crate::port::card::{
    Arriving, Buffers, Bus, CardConfig, CardRx, CardTx, Dma, Flight, InterruptKind, MTU, Model,
    Pieces, Ring,
};
use crate::port::sys::device::failed;
use crate::time::Instant;
use line::Card;
use registers::{RingRegisters, WORDS, cause, rctl, tctl};
use std::sync::Arc;

/// The card. Its rings have room for three packets of the most pieces, and are no longer than those
/// of Linux. It takes frames of up to 9234 bytes (`DEFAULT_JUMBO` of Linux), with 14 bytes of
/// Ethernet, two VLAN tags and the FCS. One interrupt is for one queue.
const MODEL: Model = Model {
    name: "an 82574",
    id: 0x10d3_8086,
    queues_max: 2,
    queues_of_one: 1,
    rings_min: 256,
    rings_max: 4096,
    rings_step: 8,
    mtu_max: 9234 - 14 - 8 - 4,
};

/// Bytes of a frame without `RCTL.LPE`: with one VLAN tag, and the FCS, which QEMU does not count.
const FRAME_BYTES_MAX: usize = 1522;
/// Segments of a packet (`EM_MAX_SCATTER` of FreeBSD). The longest one has 37 in small frames.
const SEGMENTS_MAX: usize = 40;
/// Shorter packets are not given to the card, which pads them on the wire (Linux, netdev.c).
const PACKET_BYTES_MIN: usize = 17;

/// The settings of the card: 1 or 2 queues, rings of a multiple of 8 from 256 to 4096 descriptors,
/// and an MTU of 1500 to 9208.
pub type E1000eConfig = CardConfig;

/// The receiving half of a queue.
pub type E1000eRx<B> = CardRx<E1000eReceive<B>>;

/// The transmitting half of a queue.
pub type E1000eTx<B> = CardTx<E1000eTransmit<B>>;

/// An open card.
#[derive(Debug)]
pub struct E1000e<B: Bus> {
    card: Arc<Card<B>>,
    config: E1000eConfig,
    interrupts: InterruptKind,
    queues_max: usize,
    address: [u8; 6],
    /// What is wrong about the bus of the card.
    notes: Vec<String>,
}

impl<B: Bus> E1000e<B> {
    /// Resets the card. It receives from [`Driver::attach`] on.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it is another card, has no such interrupt, or the settings
    /// are out of range; [`DeviceError::Failed`] when the system refuses.
    pub fn open(bus: B, config: &E1000eConfig) -> Result<Self, DeviceError> {
        let (interrupts, queues_max) = MODEL.accept(&bus, config)?;
        let address = init::reset(&bus, queues_max)?;
        let sleeps = init::link_sleeps(&bus).map_err(failed("read its configuration"))?;
        let name = bus.name();
        let note = format!(
            "its PCIe link may sleep (ASPM), of which an 82574 may hang: `echo 0 | sudo tee \
             /sys/bus/pci/devices/{name}/link/l*_aspm`, or boot with `pcie_aspm=off`"
        );
        Ok(Self {
            notes: sleeps.then_some(note).into_iter().collect(),
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
            tx: self.config.tx_offloads(),
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            tx_ring: Some(self.config.rings),
            min_packet_bytes: PACKET_BYTES_MIN,
            mtu: Some(self.config.mtu),
            notes: self.notes.clone(),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let (bus, rings) = (&self.card.bus, self.config.rings);
        let queues = how.queues.clamp(1, self.queues_max);
        let ring_bytes = rings * Ring::<WORDS>::DESCRIPTOR_BYTES;
        let queue_bytes = 2 * ring_bytes + rings * Pieces::SLOT_BYTES;
        let dma = Dma::new(bus, queues * queue_bytes).map_err(failed("map the rings"))?;
        let dma = Arc::new(dma);
        let (line, window, interrupts) = line::start(&self.card, self.interrupts, queues, arena)?;
        let is_msix = self.interrupts == InterruptKind::Msix;
        let (control, bytes) = self.receives(how.rx_buffers.small_bytes());
        let mut pairs = Vec::new();
        for (queue, [rx_interrupt, tx_interrupt]) in interrupts.into_iter().enumerate() {
            let start = queue * queue_bytes;
            let ring = |at: usize| Ring::new(Arc::clone(&dma), start + at * ring_bytes, rings);
            let (rx_ring, tx_ring) = (ring(0), ring(1));
            let (rx, tx) = (RingRegisters::rx(queue), RingRegisters::tx(queue));
            init::place(bus, rx, rx_ring.address(), rx_ring.bytes());
            init::place(bus, tx, tx_ring.address(), tx_ring.bytes());
            let (rx_causes, tx_causes, delay) = match is_msix {
                // The vectors of the RX halves are the even ones.
                true => (
                    cause::rx_queue(queue),
                    cause::tx_queue(queue),
                    registers::eitr(2 * queue),
                ),
                false => (
                    cause::RX | cause::RX_LOW | cause::RX_OVERRUN,
                    cause::TX,
                    registers::ITR,
                ),
            };
            let receive = E1000eReceive {
                card: Arc::clone(&line),
                registers: rx,
                ring: rx_ring,
                buffers: Buffers::new(rings, window, bytes),
                arriving: Arriving::default(),
                causes: rx_causes,
                delay,
                recheck_at: Instant::default(),
                passed: None,
            };
            let transmit = E1000eTransmit {
                card: Arc::clone(&line),
                registers: tx,
                ring: tx_ring,
                flight: Flight::new(rings),
                pieces: Pieces::new(window, &dma, start + 2 * ring_bytes, tso::PIECES_MAX + 2),
                context: None,
                is_alone: queues == 1,
                unreported: 0,
                last: None,
                after_segments: false,
                causes: tx_causes,
                offloads: self.config.tx_offloads(),
                offers: self.config.tx_offloads(),
            };
            pairs.push((
                CardRx::new(receive, rx_interrupt),
                CardTx::new(transmit, tx_interrupt),
            ));
        }
        init::spread(bus, queues);
        bus.start(true).map_err(failed("start the card"))?;
        let multiple = if queues > 1 { tctl::MULTIPLE } else { 0 };
        self.card.transmit(tctl::BASE | multiple);
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
