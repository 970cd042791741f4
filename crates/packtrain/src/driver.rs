//! The contract between a device and the framework, for authors of drivers.
//!
//! A [`Driver`] states the [`Capabilities`] of its device and attaches. Each queue is then a pair
//! of halves, [`RxDescriptors`] and [`TxDescriptors`]. One thread calls a half at a time. The calls
//! are those of a descriptor ring. A device behind system calls has the same calls and completes
//! its descriptors at once. The framework calls:
//!
//! - to transmit: `encap` for each packet of a batch, `flush` once, later `reclaim`;
//! - to receive: `refill` once, `receive` for a batch;
//! - before it sleeps: `arm` on each half; [`Armed::WorkPending`] means "do not sleep".
//!
//! A device ends the sleep of its worker in one of three ways. It has a descriptor (`wake`). Or it
//! raises the interrupt of its queue (`set_interrupt`). Or a worker never waits for it: `arm`
//! always returns `WorkPending`, or `next_at` returns the time of the next event.
//!
//! A driver gets only packets that its capabilities allow: the TX queue has fitted segments,
//! checksum and GSO ([`TxPacket`] cannot be built outside of the framework).

mod change;
mod config;
pub(crate) mod contract;
mod features;
mod interface;
pub(crate) mod key;
pub(crate) mod options;
mod wrap;

pub(crate) use change::ChangeLog;
pub use change::{Change, ChangeKind, ChangeRecord, Changes, Moved, PortChanges};
pub use config::{ADDRESSES_MAX, Coalesce, Fit, IntoPort, Port, PortConfig, QueueConfig};
pub use features::Features;
pub use interface::Interface;
pub use key::KeyHelp;
pub(crate) use wrap::wraps;
pub use wrap::{WrapDriver, WrapRx, WrapTx};

use crate::advice;
use crate::limits::{
    BURST_BYTES_MAX, BURST_LAST_BYTES, BURST_PACKETS_MAX, QUEUES_MAX, RX_PIECE_BYTES_MIN,
};
use crate::packet::{Burst, FrameClass, Ingress, Packet};
use crate::stats::DropReason;
use crate::time::WallTime;
use contract::contract;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};
use std::fmt;

// The rest of the names in the texts of the traits, for files that pass their methods on.
pub(crate) use crate::packet::Arena;
pub(crate) use crate::time::Instant;
pub(crate) use std::os::fd::BorrowedFd;
pub(crate) use std::task::Waker;
pub(crate) use std::time::Duration;

/// The memory from which a device can transmit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMemory {
    /// Any frame.
    #[default]
    Any,
    /// Small frames only: they are the UMEM. The framework copies packets in large frames.
    SmallFrames,
}

/// Whether a device has an end of input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Packets may arrive at any time: a network.
    #[default]
    Endless,
    /// At the end of input `receive` returns [`DeviceError::Finished`]: a file, a counted source. A
    /// run ends when all its finite inputs have ended.
    Finite,
    /// No packet ever arrives: a sink, a file that is written.
    None,
}

/// What a device can do. The default is the least: one queue, one segment, no offload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The header at the start of a packet.
    pub link: LinkType,
    /// The most queues.
    pub queues_max: usize,
    /// Whether it has an end of input.
    pub input: Input,
    /// Received packets wait in the device without a loss: a file, a source. Among several ports,
    /// such a port waits for one that has no space, and packets of other ports are dropped
    /// (`drop.egress_full`).
    pub rx_waits: bool,
    /// Offloads of packets *from* the device.
    pub rx: Features,
    /// Offloads of packets *to* the device.
    pub tx: Features,
    /// The most packets that each RX queue holds back; the arena has frames for them in addition.
    /// In large frames at most [`RX_HELD_LARGE_MAX`](crate::limits::RX_HELD_LARGE_MAX).
    pub rx_held_max: usize,
    /// The most segments of a packet without GSO.
    pub tx_segments_max: usize,
    /// The most segments of a GSO packet.
    pub tx_gso_segments_max: usize,
    /// The most bytes of a segment.
    pub tx_segment_bytes_max: usize,
    /// The memory of segments.
    pub tx_memory: TxMemory,
    /// The other end takes a limit on the large packets that it sends
    /// ([`Attach::large_bytes_max`]).
    pub limits_large: bool,
    /// Descriptors in the TX ring, if the device has one. A packet uses at most a twelfth of them.
    pub tx_ring: Option<usize>,
    /// A packet takes one of them, however many segments it has: they are in a table.
    pub tx_tables: bool,
    /// The device needs all headers in the first segment.
    pub contiguous_headers: bool,
    /// The framework pads shorter packets with zeros to this many bytes; 0 for no padding.
    pub min_packet_bytes: usize,
    /// The most bytes of a wire packet to the device, without link header and two VLAN tags; `None`
    /// for no limit. Longer packets are dropped (`drop.mtu`). It may change:
    /// [`TxDescriptors::mtu`].
    pub mtu: Option<u32>,
    /// Of a device with large receive features: it does not merge. Packets arrive large if their
    /// sender made them so, and others as on the wire: those are merged in software.
    pub rx_mixed: bool,
    /// A GSO packet costs the device less than its wire packets do. Not so for a file or a sink: no
    /// packets are merged for it.
    pub gso_pays: bool,
    /// The requests that the device refused, with the reason, and what a source makes: one sentence
    /// each, for people.
    pub notes: Vec<String>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            link: LinkType::Ethernet,
            queues_max: 1,
            input: Input::Endless,
            rx_waits: false,
            rx: Features::NONE,
            tx: Features::NONE,
            rx_held_max: 0,
            tx_segments_max: 1,
            tx_gso_segments_max: 1,
            tx_segment_bytes_max: usize::MAX,
            tx_memory: TxMemory::Any,
            limits_large: false,
            tx_ring: None,
            tx_tables: false,
            contiguous_headers: false,
            min_packet_bytes: 0,
            mtu: None,
            rx_mixed: false,
            gso_pays: true,
            notes: Vec::new(),
        }
    }
}

/// The buffers into which a device receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxBuffers {
    /// A small frame if the packet fits, else a large one: a small packet uses little memory, and a
    /// large one has one or two segments.
    #[default]
    Whole,
    /// Small frames only, as most NICs receive. A packet takes `bytes` bytes of each frame,
    /// [`RX_PIECE_BYTES_MIN`] to all that fit ([`Self::PIECES`]). A short piece leaves the rest of
    /// its frame free.
    Pieces {
        /// Bytes of each piece but the last.
        bytes: usize,
    },
}

impl RxBuffers {
    /// Pieces that fill their frames: a 64 KiB packet has 37 segments.
    pub const PIECES: Self = Self::Pieces {
        bytes: FrameClass::Small.data_bytes(),
    };

    /// The most bytes of a packet that a driver writes to one small frame: all that fit, unless
    /// shorter pieces were requested. A value out of range is clamped.
    #[must_use]
    pub fn small_bytes(self) -> usize {
        let all = FrameClass::Small.data_bytes();
        match self {
            Self::Whole => all,
            Self::Pieces { bytes } => bytes.clamp(RX_PIECE_BYTES_MIN, all),
        }
    }
}

impl fmt::Display for RxBuffers {
    /// As in `rx=`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.pad("whole"),
            Self::Pieces { bytes } => write!(f, "pieces({bytes})"),
        }
    }
}

/// The parameters of [`Driver::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Queues to open; at least 1, at most [`QUEUES_MAX`] and the device's own limit.
    pub queues: usize,
    /// Offloads that the device may use for received packets: a subset of its capabilities.
    pub rx: Features,
    /// Buffers to receive into.
    pub rx_buffers: RxBuffers,
    /// The longest GSO packet that the other end may send, link header included, in bytes; `None`
    /// for no limit, and where [`Capabilities::limits_large`] is false.
    pub large_bytes_max: Option<u32>,
    /// What is added to the seed of the device: see
    /// [`Runtime::seed`](crate::runtime::Runtime::seed).
    pub seed: u64,
}

impl Default for Attach {
    fn default() -> Self {
        Self {
            queues: 1,
            rx: Features::ALL,
            rx_buffers: RxBuffers::Whole,
            large_bytes_max: None,
            seed: 0,
        }
    }
}

const _: () = assert!(QUEUES_MAX <= u16::MAX as usize);

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Packets can pass.
    Up,
    /// The port is down or has no carrier; it may come up again.
    Down,
    /// The device was removed.
    Removed,
}

/// The counters of the device or the kernel on its side of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets that the kernel received from the framework.
    pub rx_packets: u64,
    /// Bytes of those.
    pub rx_bytes: u64,
    /// Packets from the framework that it dropped.
    pub rx_dropped: u64,
    /// Packets from the framework that it refused as malformed.
    pub rx_errors: u64,
    /// Packets that it sent to the framework.
    pub tx_packets: u64,
    /// Bytes of those.
    pub tx_bytes: u64,
    /// Packets for the framework that it dropped, mostly because they were not read fast enough.
    pub tx_dropped: u64,
    /// Packets for the framework that it could not send.
    pub tx_errors: u64,
}

impl DeviceCounters {
    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets.saturating_add(other.rx_packets),
            rx_bytes: self.rx_bytes.saturating_add(other.rx_bytes),
            rx_dropped: self.rx_dropped.saturating_add(other.rx_dropped),
            rx_errors: self.rx_errors.saturating_add(other.rx_errors),
            tx_packets: self.tx_packets.saturating_add(other.tx_packets),
            tx_bytes: self.tx_bytes.saturating_add(other.tx_bytes),
            tx_dropped: self.tx_dropped.saturating_add(other.tx_dropped),
            tx_errors: self.tx_errors.saturating_add(other.tx_errors),
        }
    }

    /// The difference from `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            rx_packets: self.rx_packets.saturating_sub(earlier.rx_packets),
            rx_bytes: self.rx_bytes.saturating_sub(earlier.rx_bytes),
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            rx_errors: self.rx_errors.saturating_sub(earlier.rx_errors),
            tx_packets: self.tx_packets.saturating_sub(earlier.tx_packets),
            tx_bytes: self.tx_bytes.saturating_sub(earlier.tx_bytes),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
            tx_errors: self.tx_errors.saturating_sub(earlier.tx_errors),
        }
    }
}

/// A device failed as a whole; the queue or port must stop.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device was removed.
    Removed,
    /// The end of input: a capture file that does not loop, a source with a count.
    Finished,
    /// A call failed, and the port cannot work without it.
    Failed {
        /// The action, in words that follow "cannot".
        action: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The port cannot be attached as requested: one sentence with what, why and what to do.
    Unsupported(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed => f.write_str("the device was removed"),
            Self::Finished => f.write_str("the input is at its end"),
            Self::Failed { action, source } => {
                let advice = advice::on_descriptors(source.raw_os_error());
                write!(f, "cannot {action}: {source}{advice}")
            }
            Self::Unsupported(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The two halves of one queue.
pub type QueuePair<D> = (<D as Driver>::Rx, <D as Driver>::Tx);

contract! { ($ pass_on_driver)
/// A device without its queues.
pub trait Driver: Send {
    /// The receiving half of a queue.
    type Rx: RxDescriptors;
    /// The transmitting half of a queue.
    type Tx: TxDescriptors;

    /// The name of the port in counters: that of the interface, or kind and index.
    fn name(&self) -> &str;

    /// What the device can do. The plan uses it, before `attach`.
    fn capabilities(&self) -> Capabilities;

    /// Opens the queues. Called once.
    ///
    /// # Errors
    ///
    /// If the device cannot do it, or the system refused it.
    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError>;

    /// Gives the port the place where it records that its device is away or back, once, before
    /// `attach`.
    fn record_changes(&mut self, changes: PortChanges) {}

    /// The interface of the kernel that the port is attached to, if it is. Two ports of one
    /// interface are not joined: packets would come back for ever.
    fn interface(&self) -> Option<Interface> {
        None
    }

    /// Whether packets can pass.
    fn link(&mut self) -> Link {
        Link::Up
    }

    /// The counters of the other side of the port, if it has any.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        None
    }
}
}

/// The name of a packet in flight: the framework's slot number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u32);

/// How a device accepted a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The packet has completed: its bytes may be reused at once.
    Complete,
    /// The device reads from the packet until `reclaim` returns its token.
    Pending,
}

/// The reason why a device did not accept a packet. The packet stays with the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No free descriptor now: it ends the batch, and the packet is offered again later.
    NoDescriptor,
    /// The device is busy for another reason: as `NoDescriptor`.
    Busy,
    /// The system has no memory now: as `Busy`, but the packet is offered again after a time.
    NoMemory,
    /// The link is down: this packet is dropped as `drop.link_down`.
    LinkDown,
    /// The device does not do this feature for this packet although it offered it: the framework
    /// removes the feature from the queue and prepares the packet again.
    Feature(Features),
    /// More segments than the device can map: the packet is copied into fewer and offered once
    /// more.
    TooManySegments,
    /// This packet cannot be sent: exactly it is dropped.
    Bad(DropReason),
    /// The device was removed.
    Removed,
}

/// A packet that fits the device: at most its number of segments, each within its size and memory;
/// GSO and partial checksum only if the device offers them; contiguous headers if it needs them.
#[derive(Debug)]
pub struct TxPacket<'a>(&'a mut Packet);

impl<'a> TxPacket<'a> {
    /// Only the TX queue makes it, after the fit.
    pub(crate) const fn fitted(packet: &'a mut Packet) -> Self {
        Self(packet)
    }

    /// The packet.
    #[must_use]
    pub const fn packet(&self) -> &Packet {
        self.0
    }

    /// The packet, for a wrapping driver that changes it. It must still fit, and the wrapper must
    /// undo the change if the wrapped device refuses it.
    pub(crate) const fn packet_mut(&mut self) -> &mut Packet {
        self.0
    }

    /// Prepends `header`, runs `send`, and removes the header again. `None` without headroom.
    pub fn with_header<T>(&mut self, header: &[u8], send: impl FnOnce(&Packet) -> T) -> Option<T> {
        self.0.prepend(header.len()).ok()?.copy_from_slice(header);
        let result = send(self.0);
        self.0.trim_front(header.len());
        Some(result)
    }
}

/// Tokens of completed packets, in any order, and the failure of the device that was found with
/// them.
#[derive(Debug, Default)]
pub struct Completed {
    tokens: Vec<Token>,
    failed: Option<DeviceError>,
}

impl Completed {
    /// Room for `capacity` tokens. It never grows.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            tokens: Vec::with_capacity(capacity),
            failed: None,
        }
    }

    /// Adds a token. If it is full, returns false, and the driver keeps the token for the next
    /// call.
    #[must_use]
    pub fn push(&mut self, token: Token) -> bool {
        if self.tokens.len() == self.tokens.capacity() {
            return false;
        }
        self.tokens.push(token);
        true
    }

    /// The device as a whole failed, which ends the run as an error of
    /// [`TxDescriptors::flush`] does. For [`TxDescriptors::reclaim`]: a reset returns its error.
    /// The first error stays.
    pub fn fail(&mut self, error: DeviceError) {
        self.failed.get_or_insert(error);
    }

    /// Removes the error of [`fail`](Self::fail).
    pub const fn take_failure(&mut self) -> Option<DeviceError> {
        self.failed.take()
    }

    /// Removes all tokens.
    pub fn drain(&mut self) -> impl Iterator<Item = Token> + '_ {
        self.tokens.drain(..)
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// True without tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

/// The result of `reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The queue is empty and works.
    Done,
    /// The device does not support it; nothing has changed.
    Unsupported,
}

/// The result of `arm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// No work is pending. When there is some, the descriptor of `wake` becomes ready, or the
    /// device raises its interrupt.
    Idle,
    /// Work is pending: the worker must not sleep.
    WorkPending,
}

/// The readiness of a descriptor for which a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Writable.
    Write,
}

contract! { ($ pass_on_tx)
/// The transmitting half of a queue. One thread calls it at a time: the RX worker of an owned
/// queue; of a shared queue its TX worker, or a producer that drains the ring.
pub trait TxDescriptors: Send {
    /// Gives one packet to the device, which need not see it before `flush`.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; the packet stays with the framework in every case.
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused>;

    /// Gives a batch to the device, up to the first refusal. Drivers do not implement it: it is a
    /// method so that a closed set of drivers branches once a batch and not once a packet.
    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused>
    where
        Self: Sized,
    {
        batch.each(|packet, token| self.encap(packet, token))
    }

    /// Rings the doorbell for the packets since the last call.
    ///
    /// # Errors
    ///
    /// If the device as a whole failed, also for packets that it had accepted, as with a full file
    /// system.
    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Returns the tokens of [`Accepted::Pending`] packets that have completed. If the device as a
    /// whole has failed, so that no more complete, [`Completed::fail`] takes the error.
    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        debug_assert!(completed.is_empty());
    }

    /// Gives the device the interrupt of this queue, once, before the first packet. A device
    /// without a descriptor keeps it and raises it (`wake_by_ref`), from any thread, once for each
    /// `arm` that returned [`Armed::Idle`], when the event of that `arm` occurs.
    fn set_interrupt(&mut self, interrupt: Waker) {}

    /// Arms the device: it wakes the worker when it has room for packets, or when some that were
    /// [`Accepted::Pending`] have completed.
    ///
    /// `None`: the device has no interrupt, and the queue polls it each
    /// [`TX_REST_MAX`](crate::limits::TX_REST_MAX) while it has packets. This is the default of a
    /// device without a descriptor. With one the default is [`Armed::Idle`], which is right if the
    /// descriptor stays ready while there is work, as that of a socket does. If it becomes ready
    /// only once, `arm` has to check for earlier completions.
    fn arm(&mut self) -> Option<Armed> {
        self.wake().map(|_| Armed::Idle)
    }

    /// As [`TxDescriptors::arm`], but the device wakes the worker when `packets` that were
    /// [`Accepted::Pending`] have completed and are not reclaimed, or fewer and none is in flight.
    /// `None` from a device that does not count: the queue polls it after a time, or calls `arm`.
    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        None
    }

    /// Whether the wire is at fault: the link is down, or the receiver sends pause frames. The
    /// device may then keep its packets, and is not hung.
    fn is_blocked(&self) -> bool {
        false
    }

    /// What has changed at the device since the last call. It is called at the start of each step
    /// and drain, so it costs a load or two.
    fn changed(&mut self) -> Change {
        Change::No
    }

    /// The present MTU, as in [`Capabilities::mtu`]; with `None` the last one stays. The queue asks
    /// at most ten times a second while it is used, and only a device that has one.
    fn mtu(&mut self) -> Option<u32> {
        None
    }

    /// Stops the queue in the device and starts it again, empty. Afterwards the device neither
    /// reads nor completes packets that it accepted before.
    ///
    /// The tokens of [`Accepted::Pending`] packets go to `sent` if they were sent, and to `unsent`
    /// if they certainly were not: the queue sends those again, in order. Packets in neither are
    /// dropped as `drop.device_reset`.
    ///
    /// # Errors
    ///
    /// If the device was removed, or does not start again.
    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        Ok(Reset::Unsupported)
    }

    /// The descriptor that becomes ready when the event of `arm` occurs.
    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    /// Time at which the event of `arm` or `arm_for` occurs, if the device knows it. It bounds the
    /// sleep of the worker; `None` while the device is not armed.
    fn next_at(&self) -> Option<Instant> {
        None
    }

    /// Doorbells since the start: system calls or writes that announced packets to the device.
    fn doorbells(&self) -> u64;

    /// System calls made since the start.
    fn syscalls(&self) -> u64 {
        0
    }
}
}

/// The batch of [`TxDescriptors::encap_batch`].
pub trait TxBatch {
    /// Calls `encap` for each packet, up to the first refusal.
    ///
    /// # Errors
    ///
    /// That refusal.
    fn each(
        &mut self,
        encap: impl FnMut(&mut TxPacket<'_>, Token) -> Result<Accepted, Refused>,
    ) -> Result<(), Refused>;
}

/// The metadata of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxInfo {
    /// Header offsets, if the driver has parsed them.
    pub layout: Option<Layout>,
    /// State of the transport checksum.
    pub checksum: ChecksumState,
    /// Set for a GSO packet.
    pub gso: Option<Gso>,
    /// Its number of wire packets; at least 1.
    pub wire_packets: u16,
    /// Hash of the flow from the device; 0 for none. A hint only.
    pub flow_hash: u32,
    /// When it was received, if the device reports it.
    pub timestamp: Option<WallTime>,
}

impl Default for RxInfo {
    fn default() -> Self {
        Self {
            layout: None,
            checksum: ChecksumState::None,
            gso: None,
            wire_packets: 1,
            flow_hash: 0,
            timestamp: None,
        }
    }
}

/// The packets of one poll: a driver adds packets, and counts bad ones.
#[derive(Debug)]
pub struct RxBurst<'a> {
    burst: &'a mut Burst,
    budget: usize,
    bytes: usize,
    link: LinkType,
    ingress: Ingress,
    received: Received,
    bad: &'a mut dyn BadPackets,
}

/// Sums over the packets of a poll, without bad ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) wire_packets: u64,
    /// GSO packets.
    pub(crate) gso: u64,
    /// Packets without a verified checksum.
    pub(crate) unverified: u64,
    /// Some are not in one small frame, are GSO packets, or have an unfinished checksum.
    pub(crate) has_unusual: bool,
}

/// Counts bad packets.
pub trait BadPackets: fmt::Debug {
    /// A packet of `wire_packets` wire packets was received and is dropped for `reason`.
    fn bad(&mut self, reason: DropReason, wire_packets: u64);
}

impl<'a> RxBurst<'a> {
    /// A burst of at most `budget` packets, including bad ones.
    pub fn new(burst: &'a mut Burst, budget: usize, bad: &'a mut dyn BadPackets) -> Self {
        let budget = budget.min(burst.room()).min(BURST_PACKETS_MAX);
        Self {
            burst,
            budget,
            bytes: 0,
            link: LinkType::default(),
            ingress: Ingress::default(),
            received: Received::default(),
            bad,
        }
    }

    /// The same burst of a queue, whose packets start with `link` and get `ingress`.
    pub(crate) const fn of_queue(mut self, link: LinkType, ingress: Ingress) -> Self {
        (self.link, self.ingress) = (link, ingress);
        self
    }

    /// Sums over its packets.
    pub(crate) const fn received(&self) -> Received {
        self.received
    }

    /// The most packets that the driver may still add.
    #[must_use]
    pub fn budget(&self) -> usize {
        if self.bytes >= BURST_BYTES_MAX {
            0
        } else {
            self.budget
        }
    }

    /// Whether the budget ended the poll, and not the device.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.budget() == 0
    }

    /// One packet was received.
    #[inline(always)]
    pub fn push(&mut self, mut packet: Packet, info: &RxInfo) {
        self.budget = self.budget.saturating_sub(1);
        let bytes = packet.bytes();
        self.bytes += bytes;
        if bytes >= BURST_LAST_BYTES {
            self.bytes = BURST_BYTES_MAX;
        }
        let is_small = packet.is_one_small_frame();
        let meta = packet.meta_mut();
        meta.layout = info.layout;
        meta.checksum = info.checksum;
        meta.gso = info.gso;
        meta.wire_packets = info.wire_packets.max(1);
        meta.flow_hash = info.flow_hash;
        meta.timestamp = info.timestamp;
        meta.link = self.link;
        meta.ingress = self.ingress;
        let wire_packets = u64::from(meta.wire_packets);
        if self.burst.push(packet).is_err() {
            // Only with a driver that ignores the budget. The loss is counted.
            self.bad.bad(DropReason::NoBuffer, wire_packets);
            return;
        }
        let received = &mut self.received;
        received.bytes += bytes as u64;
        received.wire_packets += wire_packets;
        received.gso += u64::from(info.gso.is_some());
        received.unverified += u64::from(info.checksum == ChecksumState::None);
        let is_unfinished = matches!(info.checksum, ChecksumState::Partial { .. });
        received.has_unusual |= !is_small || is_unfinished || info.gso.is_some();
    }

    /// One bad packet was received; only it is dropped.
    pub fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        self.budget = self.budget.saturating_sub(1);
        self.bad.bad(reason, wire_packets);
    }
}

contract! { ($ pass_on_rx)
/// The receiving half of a queue; owned by one worker.
pub trait RxDescriptors: Send {
    /// Posts buffers to the device, as many as it can use. Returns false if the arena had too few:
    /// then the queue is polled again after a time, and is not armed while no packet arrives.
    fn refill(&mut self, arena: &Arena) -> bool;

    /// Receives at most `burst.budget()` packets.
    ///
    /// # Errors
    ///
    /// If the device as a whole failed; a bad packet is not an error ([`RxBurst::bad`]).
    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError>;

    /// Gives the device the interrupt of this queue, once, before the first poll. A device
    /// without a descriptor keeps it and raises it (`wake_by_ref`), from any thread, once for each
    /// `arm` that returned [`Armed::Idle`], when the event of that `arm` occurs.
    fn set_interrupt(&mut self, interrupt: Waker) {}

    /// Arms the device: it wakes the worker when a packet arrives. Returns whether one has arrived.
    fn arm(&mut self) -> Armed;

    /// Sets the shortest time from one interrupt of this queue to the next. A packet that arrives
    /// within it raises its interrupt at the end, a later packet at once. Zero, with which a device
    /// starts, delays nothing.
    ///
    /// Returns whether the device delays its interrupts. With `false`, the default, the framework
    /// delays the wake-ups by itself ([`RxDescriptors::arm_for`]). The framework calls it when the
    /// moderation policy has decided otherwise than before, with at most
    /// [`USECS_MAX`](crate::policy::moderation::USECS_MAX) microseconds.
    fn moderate(&mut self, delay: Duration) -> bool {
        false
    }

    /// As [`RxDescriptors::arm`], but the device wakes the worker when `packets` have arrived, or
    /// fewer and it can receive no more. `None` from a device that does not count: then it is not
    /// armed, and polled after a time.
    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        None
    }

    /// The descriptor that becomes ready when the event of `arm` occurs.
    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    /// Time of the next packet, if the device knows it, as a capture with its timestamps. It bounds
    /// the sleep of the worker. A device that raises interrupts may return the time of another
    /// event after `arm`.
    fn next_at(&self) -> Option<Instant> {
        None
    }

    /// Packets that the device holds back. The framework does not count them as received. They use
    /// buffers, so a poll that changes their number is followed by `refill`.
    fn held(&self) -> u64 {
        0
    }

    /// System calls made since the start.
    fn syscalls(&self) -> u64 {
        0
    }
}
}
