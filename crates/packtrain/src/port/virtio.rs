//! A virtio network device as a PCI function: the card of most virtual machines (virtio 1.2 §5.1).
//!
//! Packets have the virtio-net header in front. Its card takes checksums and GSO packets in both
//! directions, as they were agreed on at [`Driver::attach`]. The rings are split ones or packed
//! ones, and are the other end of those that [`vhost`](super::vhost) serves.
//!
//! - A packet to the card is a chain of its segments. The header is in the headroom of the packet,
//!   so that most have one descriptor; where other packets share that frame, it is in memory of the
//!   ring. A chain of several descriptors is in a table there (`INDIRECT_DESC`), so that each
//!   packet takes one descriptor of the ring, and may have as many segments as a table.
//! - A packet from the card is in small frames, as many as it needs (`MRG_RXBUF`). A frame is
//!   posted from 12 bytes in front of the usual headroom's end, so that the bytes of a packet
//!   begin behind the headroom.
//!
//! Changes of the link wake up the first queue: its interrupt is that of the configuration as well.
//! One that comes for no packet has the link read. Besides a queue reads it every tenth of a second
//! while packets pass, when a poll finds none, and once a second while it sleeps, with the status
//! of the card: no interrupt says that it was removed, or reset. Announcements are left to the host
//! (`GUEST_ANNOUNCE`): the addresses behind this port are not the card's.

mod halves;
mod keys;
mod shared;
#[cfg(test)]
mod tests;

pub use halves::{VirtioReceive, VirtioTransmit};
pub use keys::{VirtioIrq, VirtioOptions};

use super::card::{Bus, CardRx, CardTx, Dma, InterruptKind, Running, failed, unsupported};
use super::virtqueue::features::{
    ACCESS_PLATFORM, CTRL_RX, CTRL_VQ, EVENT_IDX, INDIRECT_DESC, MAC, MQ, MRG_RXBUF, MTU,
    ORDER_PLATFORM, RING_PACKED, RING_RESET, STATUS, VERSION_1,
};
use super::virtqueue::pci::{DRIVER_OK, Doorbell, Function, NO_VECTOR};
use super::virtqueue::{SIZE_MAX, Shape, Virtqueue};
use crate::driver::{
    Attach, Capabilities, DeviceError, Driver, Features, Link, QueuePair, RxDescriptors as _,
};
use crate::limits::{QUEUES_MAX, SEGMENTS_MAX};
use crate::packet::{Arena, FrameClass};
use halves::{Beside, HEADER_BYTES, Half, TABLE_DESCRIPTORS};
use packtrain_offload::limits::L2_HEADER_BYTES_MAX;
use packtrain_offload::virtio_net::Accept;
use shared::{Control, Shared};
use std::sync::{Arc, Weak};

/// The device IDs of network devices: of virtio 1.0 and later, and of one that older drivers know,
/// too (virtio 1.2 §5.1.1, §4.1.2.1).
const DEVICE_IDS: [u32; 2] = [0x1041, 0x1000];
/// Descriptors of a ring, unless configured otherwise.
const RING_ENTRIES: u16 = 1024;
/// Of the device's configuration (§5.1.4): its address, pairs of rings, and MTU.
const MAC_AT: usize = 0;
const PAIRS_AT: usize = 8;
const MTU_AT: usize = 10;
/// Commands (§5.1.6.5): a class, a command, and what it is about.
const PROMISCUOUS: [u8; 2] = [0, 0];
const ALL_MULTICAST: [u8; 2] = [0, 1];
const PAIRS_SET: [u8; 2] = [4, 0];

/// How to use a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioConfig {
    /// Pairs of queues at most; `None` for all that the card has.
    pub queues: Option<usize>,
    /// Offloads of packets to the card, and from it, at most.
    pub offload: Features,
    /// How it interrupts: `Msix`, or `Intx` for all queues at once.
    pub irq: InterruptKind,
    /// Packed rings, or split ones; `None` for packed ones if the card has them.
    pub packed: Option<bool>,
    /// Descriptors of each ring, at most as many as the card has: a power of two. `None` for 1024.
    pub rings: Option<u16>,
    /// Receive packets for any address, which a bridge needs; else those for the card's own and for
    /// all multicast addresses. A card that takes no commands about that (`CTRL_RX`) receives what
    /// it does.
    pub promiscuous: bool,
}

impl Default for VirtioConfig {
    /// All queues of the card, with every offload, promiscuous.
    fn default() -> Self {
        Self {
            queues: None,
            offload: Features::ALL,
            irq: InterruptKind::Msix,
            packed: None,
            rings: None,
            promiscuous: true,
        }
    }
}

/// The receiving half of a queue.
pub type VirtioRx<B> = CardRx<VirtioReceive<B>>;

/// The transmitting half of a queue.
pub type VirtioTx<B> = CardTx<VirtioTransmit<B>>;

/// A virtio network card, reset and without queues.
#[derive(Debug)]
pub struct Virtio<B: Bus> {
    function: Arc<Function<B>>,
    /// Of the queues, once there are some.
    shared: Weak<Running<Shared<B>>>,
    is_attached: bool,
    /// The features that it offers, but for those that are not to be used.
    offered: u64,
    irq: InterruptKind,
    promiscuous: bool,
    pairs: usize,
    /// Descriptors of an RX ring and of a TX ring.
    sizes: [u16; 2],
    mtu: u16,
    mac: Option<[u8; 6]>,
    notes: Vec<String>,
}

impl<B: Bus> Virtio<B> {
    /// Finds the card's registers, resets it, and reads what it offers.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if it is no such card, or has not what `config` asks for;
    /// [`DeviceError::Removed`]; [`DeviceError::Failed`] if it does not answer.
    pub fn open(bus: B, config: &VirtioConfig) -> Result<Self, DeviceError> {
        let function = Function::find(bus, &DEVICE_IDS, "virtio network device")?;
        function.reset()?;
        let (name, mut notes) = (function.bus.name().to_owned(), Vec::new());
        let mut offered = function.offered();
        if offered & VERSION_1 == 0 {
            return unsupported(format!(
                "{name} is older than virtio 1.0: use another device"
            ));
        }
        let packed = config.packed.unwrap_or(offered & RING_PACKED != 0);
        match (packed, offered & RING_PACKED != 0) {
            (true, false) => {
                return unsupported(format!(
                    "{name} has no packed rings: leave packed= out, or give QEMU's card packed=on"
                ));
            }
            (false, true) => offered &= !RING_PACKED,
            _ => {}
        }
        // A device may offer one without those that it needs (§2.2.1).
        let usable = config.offload.accept();
        let from = Accept::from_host_features(offered).intersection(usable);
        let mut to = Accept::from_guest_features(offered).intersection(usable);
        if offered & MRG_RXBUF == 0 {
            // A large packet would need a large frame.
            to = to.intersection(Accept::CSUM);
            notes.push("receives no large packets: it takes one buffer for each".to_owned());
        }
        let offloads = Accept::ALL.host_features() | Accept::ALL.guest_features();
        offered &= !offloads | from.host_features() | to.guest_features();
        if offered & CTRL_VQ == 0 {
            offered &= !CTRL_RX;
        }
        let mtu = function.device16(MTU_AT);
        let room = FrameClass::Small.data_bytes() - L2_HEADER_BYTES_MAX;
        if usize::from(mtu) > room && offered & MRG_RXBUF == 0 {
            offered &= !MTU;
        }
        let irq = match (config.irq, function.bus.interrupts(InterruptKind::Msix)) {
            (InterruptKind::Msi, _) => {
                return unsupported("virtio has no MSI: use irq=msix or irq=intx".to_owned());
            }
            (InterruptKind::Msix, 0..2) => {
                notes.push("interrupts come by INTx: the card has no MSI-X for a queue".to_owned());
                InterruptKind::Intx
            }
            (irq, _) => irq,
        };
        let mut most = 1;
        if offered & MQ != 0 && offered & CTRL_VQ != 0 {
            most = usize::from(function.device16(PAIRS_AT)).clamp(1, QUEUES_MAX);
        }
        if irq == InterruptKind::Msix {
            // A vector for each half.
            most = most.min(function.bus.interrupts(irq) / 2);
        }
        let pairs = config.queues.unwrap_or(most);
        if pairs == 0 || pairs > most {
            return unsupported(format!("{pairs} queues for {name}: use 1 to {most}"));
        }
        let mut sizes = [0, 1].map(|queue| function.size_max(queue));
        for size in &mut sizes {
            *size = config.rings.unwrap_or(RING_ENTRIES).min(*size);
            if *size == 0 || u32::from(*size) > SIZE_MAX {
                return unsupported(format!("{name} has rings of {size} descriptors"));
            }
            // Each split one has such a size; a packed one may have any.
            *size = 1 << size.ilog2();
        }
        let mac = std::array::from_fn(|at| function.device8(MAC_AT + at));
        Ok(Self {
            function: Arc::new(function),
            shared: Weak::new(),
            is_attached: false,
            offered,
            irq,
            promiscuous: config.promiscuous,
            pairs,
            sizes,
            mtu,
            mac: (offered & MAC != 0).then_some(mac),
            notes,
        })
    }

    /// Whether the card accesses memory at the addresses of the platform (`ACCESS_PLATFORM`). If
    /// not, it does so at physical addresses, and an IOMMU neither translates nor stops that
    /// (virtio 1.2 §6).
    #[must_use]
    pub const fn is_behind_iommu(&self) -> bool {
        self.offered & ACCESS_PLATFORM != 0
    }

    /// The card's Ethernet address; `None` if it has none.
    #[must_use]
    pub const fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// The features for so many pairs, with these offloads of packets from the card.
    fn features(&self, pairs: usize, rx: Features) -> u64 {
        const PLAIN: u64 = MTU
            | MAC
            | MRG_RXBUF
            | STATUS
            | CTRL_VQ
            | CTRL_RX
            | INDIRECT_DESC
            | EVENT_IDX
            | VERSION_1
            | ACCESS_PLATFORM
            | RING_PACKED
            | RING_RESET
            | ORDER_PLATFORM;
        let several = if pairs > 1 { MQ } else { 0 };
        let offloads = Accept::ALL.host_features() | rx.accept().guest_features();
        self.offered & (PLAIN | several | offloads)
    }

    /// Gives the card a ring, in so many bytes of memory.
    fn ring(
        &self,
        queue: usize,
        shape: Shape,
        vector: u16,
        bytes: usize,
    ) -> Result<(Virtqueue, Doorbell), DeviceError> {
        let memory = Dma::new(&self.function.bus, bytes);
        let memory = memory.map_err(failed("give the card memory for a ring"))?;
        let ring = Virtqueue::new(Arc::new(memory), shape);
        let doorbell = self.function.enable(queue as u16, vector, &ring)?;
        Ok((ring, doorbell))
    }

    /// The vector of a half.
    const fn vector(&self, queue: usize) -> u16 {
        match self.irq {
            InterruptKind::Msix => queue as u16,
            _ => NO_VECTOR,
        }
    }

    /// Sends the commands that a start needs.
    fn command(
        &self,
        features: u64,
        pairs: usize,
        control: &mut Control,
    ) -> Result<(), DeviceError> {
        if features & CTRL_RX != 0 {
            let all = u8::from(self.promiscuous);
            for ([class, command], on) in [(PROMISCUOUS, all), (ALL_MULTICAST, 1 - all)] {
                let set = [class, command, on];
                control.send(&self.function, &set, "set which packets the card receives")?;
            }
        }
        if pairs > 1 {
            let ([class, command], [low, high]) = (PAIRS_SET, (pairs as u16).to_le_bytes());
            let set = [class, command, low, high];
            control.send(&self.function, &set, "set the card's number of queues")?;
        }
        Ok(())
    }
}

impl<B: Bus> Driver for Virtio<B> {
    type Rx = VirtioRx<B>;
    type Tx = VirtioTx<B>;

    fn name(&self) -> &str {
        self.function.bus.name()
    }

    fn capabilities(&self) -> Capabilities {
        let has_tables = self.offered & INDIRECT_DESC != 0;
        let segments = match has_tables {
            // The header may take one.
            true => TABLE_DESCRIPTORS.min(usize::from(self.sizes[1])) - 1,
            false => SEGMENTS_MAX,
        };
        Capabilities {
            queues_max: self.pairs,
            rx: Features::of_accept(Accept::from_guest_features(self.offered)),
            tx: Features::of_accept(Accept::from_host_features(self.offered)),
            tx_segments_max: segments,
            tx_gso_segments_max: segments,
            tx_ring: Some(usize::from(self.sizes[1])),
            tx_tables: has_tables,
            mtu: (self.offered & MTU != 0).then(|| u32::from(self.mtu)),
            // The host hands over what its sender made, and merges nothing.
            rx_mixed: true,
            notes: self.notes.clone(),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let pairs = how.queues;
        if pairs == 0 || pairs > self.pairs || self.is_attached {
            let (name, most) = (self.name(), self.pairs);
            return unsupported(format!("{pairs} queues for {name}: use 1 to {most}, once"));
        }
        self.is_attached = true;
        let features = self.features(pairs, how.rx);
        let function = &self.function;
        function.reset()?;
        function.negotiate(features)?;
        // From here on the card is stopped when this is dropped.
        let shared = Shared::new(function, features);
        let acknowledge = shared.acknowledge();
        let (shared, window, interrupts) =
            Running::start(shared, self.irq, pairs, arena, false, acknowledge)?;
        function.report_changes(self.vector(0));
        let shape = |size| Shape {
            size,
            packed: features & RING_PACKED != 0,
            event_idx: features & EVENT_IDX != 0,
        };
        let mut accept = Accept::from_guest_features(features);
        let rx = Features::of_accept(accept);
        if rx.contains(Features::CSUM) {
            // The host has verified it, or made it.
            accept |= Accept::DATA_VALID;
        }
        let small_bytes = match features & MRG_RXBUF {
            // A packet is in one frame, and so a whole one.
            0 => FrameClass::Small.data_bytes(),
            _ => how.rx_buffers.small_bytes(),
        };
        let buffer_bytes = HEADER_BYTES + small_bytes;
        let beside = Beside::new(shape(self.sizes[1]), features & INDIRECT_DESC != 0);
        let is_mergeable = features & MRG_RXBUF != 0;
        let mut all = Vec::with_capacity(pairs);
        for (pair, [rx_interrupt, tx_interrupt]) in interrupts.into_iter().enumerate() {
            let half = |is_tx: usize, bytes: usize| -> Result<_, DeviceError> {
                let (queue, shape) = (2 * pair + is_tx, shape(self.sizes[is_tx]));
                let (ring, doorbell) = self.ring(queue, shape, self.vector(queue), bytes)?;
                Ok(Half {
                    shared: Arc::clone(&shared),
                    ring,
                    doorbell,
                    window,
                    check_at: None,
                    has_taken: false,
                })
            };
            let rx = half(0, shape(self.sizes[0]).bytes())?;
            let receive = VirtioReceive::new(rx, buffer_bytes, accept, is_mergeable);
            let transmit = VirtioTransmit::new(half(1, beside.end(self.sizes[1]))?, beside);
            all.push((
                CardRx::new(receive, rx_interrupt),
                CardTx::new(transmit, tx_interrupt),
            ));
        }
        let queues = if features & MQ == 0 {
            2
        } else {
            2 * usize::from(function.device16(PAIRS_AT))
        };
        let mut control = None;
        if features & CTRL_VQ != 0 {
            let shape = shape(Control::SIZE);
            let bytes = shape.bytes() + Control::MORE;
            let (ring, doorbell) = self.ring(queues, shape, NO_VECTOR, bytes)?;
            shared.keep(Box::default(), Some(ring.dma()));
            control = Some(Control::new(ring, doorbell));
        }
        let started = self.function.bus.start(true);
        started.map_err(failed("let the card access memory"))?;
        self.function.advance(DRIVER_OK)?;
        if let Some(control) = &mut control {
            self.command(features, pairs, control)?;
        }
        shared.check()?;
        self.shared = Arc::downgrade(&shared);
        for (rx, _) in &mut all {
            // What arrives without buffers a card drops, and QEMU behind its hub lets another
            // packet overtake it. More of them come with the first poll. They come after the
            // commands, so that none is for a packet that the card should not receive.
            rx.refill(arena);
        }
        Ok(all)
    }

    fn link(&mut self) -> Link {
        match (self.shared.upgrade(), self.function.status()) {
            (_, Err(_)) => Link::Removed,
            (Some(shared), _) => shared.link(),
            (None, _) => Link::Down,
        }
    }
}
