//! VMware's network card vmxnet3, without a driver of the kernel: that of virtual machines of ESXi,
//! Workstation and, as a model, QEMU.
//!
//! The card has no data sheet: what is here is what the drivers of Linux, FreeBSD and DPDK have in
//! common. Each queue has a TX ring and two RX rings, and the card writes completions to rings of
//! their own. Both sides know by a bit of each descriptor, its generation, whether it is of this
//! round. Checksums and TCP segmentation are the card's work; it verifies the checksums of packets
//! that it receives. VLAN tags stay in the frames. The card has an interface for NICs that take
//! its place ("UPT"); the driver does not use it.
//!
//! # Receive buffers
//!
//! A packet begins in a buffer of the first ring, and goes on in those of the second one. These are
//! filled only if a packet can be longer than one buffer: with a longer MTU, or if the card merges
//! packets. It merges them only if it also says what they consist of (its second version), since
//! segments that are cut otherwise than they were sent may not fit the rest of their way.
//!
//! # Interrupts
//!
//! With MSI-X each half has an interrupt, with MSI or INTx there is one for all
//! ([`Fanout`](super::card::Fanout)). The card masks one that it raises. Events, such as changes of
//! the link, come with that of the first RX queue. The card may delay interrupts (`modLevels`);
//! the driver has it delay none, since the framework does so.
//!
//! # Limits of offloads
//!
//! The card never does these, and the first such packet takes the offload from its queue
//! ([`Refused::Feature`](crate::driver::Refused::Feature)): the checksum of neither TCP nor UDP,
//! and the segmentation behind more than 256 bytes of headers or of a packet with a source route.

mod area;
mod card;
mod keys;
mod registers;
mod rings;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub use keys::Vmxnet3Options;
pub use rx::Vmxnet3Receive;
pub use tx::Vmxnet3Transmit;

use crate::driver::{
    Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Link, QueuePair,
};
use crate::limits::PACKET_BYTES_MAX;
use crate::packet::Arena;
use crate::port::card::{
    Arriving, Buffers, Bus, CardConfig, CardRx, CardTx, Flight, InterruptKind, Model, Pieces,
    Receive as _, Running, address_of, write_barrier,
};
use crate::port::sys::device::{failed, unsupported};
use crate::time::Instant;
use area::{Area, Settings, vector};
use card::{Card, Shared};
use registers::{self as reg, BAR, command};
use std::io;
use std::sync::Arc;

/// The card. Its rings have room for three packets of the most pieces, and are aligned to as many
/// bytes as they are a multiple of.
const MODEL: Model = Model {
    name: "a vmxnet3 card",
    id: 0x07b0_15ad,
    queues_max: 8,
    queues_of_one: 8,
    rings_min: 96,
    rings_max: 4096,
    rings_step: 32,
    mtu_max: 9000,
};
/// Bytes of an Ethernet header with two tags.
const LINK_BYTES: usize = 14 + 8;

// The number of a descriptor has 12 bits.
const _: () = assert!(MODEL.rings_max <= reg::done::INDEX as usize + 1);

/// The settings of the card: 1 to 8 queues, rings of a multiple of 32 from 96 to 4096 descriptors,
/// and an MTU of 1500 to 9000.
pub type Vmxnet3Config = CardConfig;

/// The receiving half of a queue.
pub type Vmxnet3Rx<B> = CardRx<Vmxnet3Receive<B>>;

/// The transmitting half of a queue.
pub type Vmxnet3Tx<B> = CardTx<Vmxnet3Transmit<B>>;

/// An open card.
#[derive(Debug)]
pub struct Vmxnet3<B: Bus> {
    card: Arc<Card<B>>,
    config: Vmxnet3Config,
    interrupts: InterruptKind,
    queues_max: usize,
    version: u32,
    address: [u8; 6],
    /// Where its counters are, once it has queues.
    area: Option<Area>,
}

impl<B: Bus> Vmxnet3<B> {
    /// Resets the card. It receives from [`Driver::attach`] on.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it is another card, has no such interrupt, or the settings
    /// are out of range; [`DeviceError::Failed`] when the system refuses.
    pub fn open(bus: B, config: &Vmxnet3Config) -> Result<Self, DeviceError> {
        let (interrupts, queues_max) = MODEL.accept(&bus, config)?;
        let offered = bus.read32(BAR, reg::VERSIONS);
        let upt = bus.read32(BAR, reg::UPT_VERSIONS);
        let (known, is_known) = match offered & reg::VERSION_2 {
            0 => (reg::VERSION_1, offered & reg::VERSION_1 != 0),
            version => (version, offered != u32::MAX),
        };
        if !is_known || upt & 1 == 0 {
            let name = bus.name();
            return unsupported(format!(
                "{name} has versions that are unknown ({offered:#x}, {upt:#x}), or was removed"
            ));
        }
        let card = Card::new(bus);
        card.stop().map_err(failed("stop the card"))?;
        card.bus.write32(BAR, reg::VERSIONS, known);
        card.bus.write32(BAR, reg::UPT_VERSIONS, 1);
        let [low, high] = [reg::MAC_LOW, reg::MAC_HIGH].map(|at| card.bus.read32(BAR, at));
        Ok(Self {
            card: Arc::new(card),
            config: config.clone(),
            interrupts,
            queues_max,
            version: known,
            address: address_of(low, high),
            area: None,
        })
    }

    /// The card's Ethernet address.
    #[must_use]
    pub const fn address(&self) -> [u8; 6] {
        self.address
    }

    /// Offloads of packets from the card: those that it merges, in which the checksum is left to
    /// their receiver. One bit is for all of them.
    fn merges(&self) -> Features {
        let all = Features::CSUM | Features::TSO;
        match self.version >= reg::VERSION_2 && self.config.offload.contains(all) {
            true => all,
            false => Features::NONE,
        }
    }

    /// Gives the card its memory, and has it run.
    fn activate(&self, area: &Area) -> Result<(), DeviceError> {
        let bus = &self.card.bus;
        bus.start(true).map_err(failed("start the card"))?;
        let address = area.address();
        write_barrier();
        bus.write32(BAR, reg::SHARED_LOW, address as u32);
        bus.write32(BAR, reg::SHARED_HIGH, (address >> 32) as u32);
        match self.card.command(command::ACTIVATE) {
            0 => Ok(()),
            u32::MAX => Err(DeviceError::Removed),
            status => {
                let source = io::Error::other(format!(
                    "it refuses its settings with {status:#x}: give it 1, 2, 4 or 8 queues"
                ));
                Err(failed("activate the card")(source))
            }
        }
    }
}

impl<B: Bus> Driver for Vmxnet3<B> {
    type Rx = Vmxnet3Rx<B>;
    type Tx = Vmxnet3Tx<B>;

    fn name(&self) -> &str {
        self.card.bus.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues_max: self.queues_max,
            rx: self.merges(),
            // It merges what the host has not: the rest is for software.
            rx_mixed: true,
            tx: self.config.tx_offloads(),
            tx_segments_max: reg::tx::PIECES_MAX,
            // One is for the headers.
            tx_gso_segments_max: reg::tx::CUT_PIECES_MAX - 1,
            tx_ring: Some(self.config.rings),
            contiguous_headers: true,
            mtu: Some(self.config.mtu),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let (bus, rings) = (&self.card.bus, self.config.rings);
        let queues = how.queues.clamp(1, self.queues_max);
        let merges = self.merges();
        let merges = merges != Features::NONE && how.rx.contains(merges);
        let bytes = how.rx_buffers.small_bytes().min(reg::rx::BYTES_MAX);
        let longest = match merges {
            true => PACKET_BYTES_MAX,
            false => self.config.mtu as usize + LINK_BYTES,
        };
        // Both RX rings have as many buffers as one.
        let rx_rings = match longest > bytes {
            true => (rings / 2).next_multiple_of(MODEL.rings_step),
            false => rings,
        };
        let area = Area::new(bus, queues, rings, rx_rings).map_err(failed("map the rings"))?;
        let shared = Shared {
            card: Arc::clone(&self.card),
            area: area.clone(),
        };
        let card = Arc::clone(&self.card);
        let acknowledge = move || card.acknowledge();
        let (shared, window, interrupts) =
            Running::start(shared, self.interrupts, queues, arena, false, acknowledge)?;
        let has_vectors = self.interrupts == InterruptKind::Msix;
        area.describe(&Settings {
            mtu: self.config.mtu,
            merges,
            promiscuous: self.config.promiscuous,
            masks: self.card.command(command::INTERRUPTS) & 0b1100 == 0,
            interrupts: has_vectors,
            pieces_max: longest.div_ceil(bytes) as u16,
        });
        let mut pairs = Vec::with_capacity(queues);
        for (queue, [rx_interrupt, tx_interrupt]) in interrupts.into_iter().enumerate() {
            let (posts, completions) = area.rx(queue);
            let number = |is_tx| if has_vectors { vector(queue, is_tx) } else { 0 };
            let mut receive = Vmxnet3Receive {
                shared: Arc::clone(&shared),
                queue,
                posts,
                completions,
                buffers: [(); 2].map(|()| Buffers::new(rx_rings, window, bytes)),
                bytes,
                has_bodies: longest > bytes,
                arriving: Arriving::default(),
                begin: None,
                number: number(false),
                recheck_at: Instant::default(),
            };
            // The card drops what arrives without buffers. More of them come with the first poll.
            receive.refill(arena);
            let (posts, completions, headers) = area.tx(queue);
            let transmit = Vmxnet3Transmit {
                shared: Arc::clone(&shared),
                queue,
                posts,
                completions,
                flight: Flight::new(rings),
                pieces: Pieces::new(window, &area.memory, headers, reg::tx::CUT_PIECES_MAX),
                is_new: false,
                number: number(true),
            };
            pairs.push((
                CardRx::new(receive, rx_interrupt),
                CardTx::new(transmit, tx_interrupt),
            ));
        }
        self.activate(&area)?;
        self.card.check();
        for (rx, _) in &pairs {
            rx.queue.tell(0);
            rx.queue.tell(1);
        }
        self.area = Some(area);
        Ok(pairs)
    }

    fn link(&mut self) -> Link {
        self.card.check()
    }

    /// The card's own: a packet that it segments, and one that it has merged, may be one.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        let (_, counters) = self.card.count(self.area.as_ref()?);
        Some(counters)
    }
}
