//! What a driver author reads: the contract between a device and the framework.
//!
//! A [`Driver`] states what its device can do and attaches; each queue then is a pair of halves,
//! [`RxDescriptors`] and [`TxDescriptors`]. One thread calls a half at a time. The calls are those
//! of a descriptor ring, and a device behind system calls answers the same ones: its descriptors
//! are simply done at once. The framework does the rest, and does it in this order:
//!
//! - to transmit: `encap` for each packet of a batch, `flush` once, `reclaim` when it suits;
//! - to receive: `refill` once, `receive` for a batch;
//! - before it sleeps: `arm` on each half; [`Armed::WorkPending`] means "do not sleep".
//!
//! A device ends the sleep of its worker in one of three ways. It offers a descriptor (`wake`). Or
//! it has none, and raises the interrupt that it was given (`set_interrupt`). Or it never makes a
//! worker wait: `arm` always returns `WorkPending`, or `next_at` says when there will be something.
//!
//! A driver never sees a packet that its [`Capabilities`] do not allow: segments, checksum and GSO
//! were fitted before ([`TxPacket`] cannot be built outside of the framework).

mod config;
mod features;

pub use config::{Coalesce, IntoPort, Port, PortConfig, QueueConfig};
pub use features::Features;
// A port reads settings from text, and needs no policy for that.
pub use crate::policy::SettingError;

use crate::advice;
use crate::limits::{BURST_BYTES_MAX, BURST_LAST_BYTES, BURST_PACKETS_MAX, QUEUES_MAX};
use crate::packet::{Arena, Burst, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::Layout;
use packtrain_offload::offload::{ChecksumState, Gso, LinkType};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::task::Waker;

/// From which memory a device can transmit without the framework copying first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMemory {
    /// From any frame.
    #[default]
    Any,
    /// From small frames only: they are the UMEM.
    SmallFrames,
}

/// Whether packets from a device come to an end by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Packets may always come: a network.
    #[default]
    Endless,
    /// They end, and then `receive` says [`DeviceError::Finished`]: a file, a counted source. A run
    /// ends when all its finite inputs have.
    Finite,
    /// There never are any: a sink, a file that is written.
    None,
}

/// What a device can do. The default is the humblest: one queue, one segment, no offload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What the first byte of a packet is.
    pub link: LinkType,
    /// Queues it can have.
    pub queues_max: usize,
    /// Whether its packets come to an end.
    pub input: Input,
    /// Offloads that packets *from* the device may come with.
    pub rx: Features,
    /// Offloads that packets *to* the device may come with.
    pub tx: Features,
    /// Packets that each queue may hold back on their way in, for which the arena is to have frames
    /// besides; of those in large frames [`RX_HELD_LARGE_MAX`](crate::limits::RX_HELD_LARGE_MAX).
    pub rx_held_max: usize,
    /// Segments that an ordinary packet may have.
    pub tx_segments_max: usize,
    /// Segments that a GSO packet may have.
    pub tx_gso_segments_max: usize,
    /// Bytes that one segment may have.
    pub tx_segment_bytes_max: usize,
    /// Where segments may be.
    pub tx_memory: TxMemory,
    /// Descriptors in the TX ring, for devices that have one: no packet may take more than a
    /// twelfth of it.
    pub tx_ring: Option<usize>,
    /// The device wants all headers in the first segment.
    pub contiguous_headers: bool,
    /// The framework pads shorter packets with zeros to this many bytes; 0 for no padding.
    pub min_packet_bytes: usize,
    /// A GSO packet costs the device less than the wire packets that it stands for. Not so for a
    /// file that keeps packets as they are, or a sink: then nothing is merged for its sake.
    pub gso_pays: bool,
    /// For people, one sentence each: what was asked of the device and refused, and why; what a
    /// source makes.
    pub notes: Vec<String>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            link: LinkType::Ethernet,
            queues_max: 1,
            input: Input::Endless,
            rx: Features::NONE,
            tx: Features::NONE,
            rx_held_max: 0,
            tx_segments_max: 1,
            tx_gso_segments_max: 1,
            tx_segment_bytes_max: usize::MAX,
            tx_memory: TxMemory::Any,
            tx_ring: None,
            contiguous_headers: false,
            min_packet_bytes: 0,
            gso_pays: true,
            notes: Vec::new(),
        }
    }
}

/// In what buffers a device receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxBuffers {
    /// A small frame for what fits one, else a large frame: a packet keeps little memory if it is
    /// small, and is in one or two pieces if it is not.
    #[default]
    Whole,
    /// Small frames only: a 64 KiB packet has 37 segments. As most NICs receive.
    Pieces,
}

/// How a port is to be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Queues to open; at least 1, at most [`QUEUES_MAX`] and the device's own limit.
    pub queues: usize,
    /// Offloads that the device may use on packets it hands over: a subset of its capabilities.
    pub rx: Features,
    /// Buffers to receive into.
    pub rx_buffers: RxBuffers,
}

impl Default for Attach {
    fn default() -> Self {
        Self {
            queues: 1,
            rx: Features::ALL,
            rx_buffers: RxBuffers::Whole,
        }
    }
}

const _: () = assert!(QUEUES_MAX <= u16::MAX as usize);

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Packets can pass.
    Up,
    /// The port is down or has no carrier; it may come back.
    Down,
    /// The device is gone for good.
    Removed,
}

/// What the device or the kernel counted on its side of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets the kernel received from us (we transmitted).
    pub rx_packets: u64,
    /// Bytes of those.
    pub rx_bytes: u64,
    /// Packets from us that it dropped.
    pub rx_dropped: u64,
    /// Packets from us that it refused as malformed.
    pub rx_errors: u64,
    /// Packets it sent to us (we received).
    pub tx_packets: u64,
    /// Bytes of those.
    pub tx_bytes: u64,
    /// Packets for us that it dropped, mostly since we did not read fast enough.
    pub tx_dropped: u64,
    /// Packets for us that it could not send.
    pub tx_errors: u64,
}

impl DeviceCounters {
    /// What was counted since `earlier`.
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
    /// The input is at its end: a capture file that does not loop, a source with a count.
    Finished,
    /// A call failed that the port cannot go on without.
    Failed {
        /// What was tried, in words that follow "cannot".
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The port cannot be attached as asked: one sentence with what, why and what to do.
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

/// A device, before and beside its queues.
pub trait Driver: Send {
    /// The receiving half of a queue.
    type Rx: RxDescriptors;
    /// The transmitting half of a queue.
    type Tx: TxDescriptors;

    /// What the port is called in counters: the interface's name, or kind and index.
    fn name(&self) -> &str;

    /// What the device can do. The plan is made from it, before `attach`.
    fn capabilities(&self) -> Capabilities;

    /// Opens the queues. Called once.
    ///
    /// # Errors
    ///
    /// What the device cannot do, or what the system refused.
    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError>;

    /// Whether packets can pass.
    fn link(&mut self) -> Link {
        Link::Up
    }

    /// What the other side of the port counted, when it counts.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        None
    }
}

/// Names a packet in flight: the framework's slot number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u32);

/// What became of a packet that the device accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The device is done with it: the bytes may be reused at once.
    Complete,
    /// The device still reads from it, until `reclaim` yields its token.
    Pending,
}

/// Why a device did not accept a packet. The packet stays with the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No free descriptor now: ends the batch, the packet is sent again later.
    NoDescriptor,
    /// The device is busy for another reason: ends the batch, the packet is sent again later.
    Busy,
    /// The system has no memory now, and will not say when it has: as `Busy`, but later by time.
    NoMemory,
    /// The link is down: costs this packet, counted as `drop.link_down`.
    LinkDown,
    /// The device does not take this feature on this packet although it said so: the framework
    /// turns the feature off for the queue and sends the same packet again.
    Feature(Features),
    /// More segments than the device can map: copied into fewer ones and sent again, once.
    TooManySegments,
    /// This packet cannot be sent: costs exactly it.
    Bad(DropReason),
    /// The device is gone.
    Removed,
}

/// A packet that fits: at most the device's number of segments, each within its size and memory;
/// GSO and partial checksum only if the device offered them; headers contiguous if it asked.
#[derive(Debug)]
pub struct TxPacket<'a>(&'a mut Packet);

impl<'a> TxPacket<'a> {
    /// Only the TX queue makes these, after fitting.
    pub(crate) const fn fitted(packet: &'a mut Packet) -> Self {
        Self(packet)
    }

    /// The packet as it is.
    #[must_use]
    pub const fn packet(&self) -> &Packet {
        self.0
    }

    /// The packet, for a wrapper that changes it on its way to the device it wraps. It must still
    /// fit, and be as it was before when the device refused it.
    pub(crate) const fn packet_mut(&mut self) -> &mut Packet {
        self.0
    }

    /// Runs `send` on the packet with `header` put in front of its bytes, where headroom allows;
    /// the header is taken off again. `None` when there is no headroom.
    pub fn with_header<T>(&mut self, header: &[u8], send: impl FnOnce(&Packet) -> T) -> Option<T> {
        self.0.prepend(header.len()).ok()?.copy_from_slice(header);
        let result = send(self.0);
        self.0.trim_front(header.len());
        Some(result)
    }
}

/// Tokens of packets that the device is done with, in any order.
#[derive(Debug, Default)]
pub struct Completed {
    tokens: Vec<Token>,
}

impl Completed {
    /// Room for `capacity` tokens; never grows beyond.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            tokens: Vec::with_capacity(capacity),
        }
    }

    /// Adds a token; false when full, and then the driver keeps it for the next call.
    #[must_use]
    pub fn push(&mut self, token: Token) -> bool {
        if self.tokens.len() == self.tokens.capacity() {
            return false;
        }
        self.tokens.push(token);
        true
    }

    /// Takes all tokens out.
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

/// The answer to `reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The queue is empty and works.
    Done,
    /// The device cannot do that; nothing has changed.
    Unsupported,
}

/// The answer to `arm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Nothing is waiting: the descriptor of `wake` becomes ready, or the interrupt is raised,
    /// when something is.
    Idle,
    /// Work is waiting: do not sleep.
    WorkPending,
}

/// What a descriptor has to become for its owner to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable.
    Read,
    /// Writable.
    Write,
}

/// The transmitting half of a queue. One thread calls it at a time: the RX worker of an owned
/// queue; of a shared queue its TX worker, or a producer that drains the ring.
pub trait TxDescriptors: Send {
    /// Hands one packet to the device; it need not be visible to it before `flush`.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; the packet stays with the framework in every case.
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused>;

    /// Hands over a batch, until the first refusal. Not for drivers to write: it is a method so
    /// that a closed set of drivers switches once a batch and not once a packet.
    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused>
    where
        Self: Sized,
    {
        while let Some((mut packet, token)) = batch.next() {
            let accepted = self.encap(&mut packet, token)?;
            batch.accepted(accepted);
        }
        Ok(())
    }

    /// Tells the device of the packets since the last call: one doorbell for the batch.
    ///
    /// # Errors
    ///
    /// When the device as a whole failed, also with packets that it had accepted: a file system
    /// that is full.
    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Yields the tokens of [`Accepted::Pending`] packets that the device is done with.
    fn reclaim(&mut self, _now: Instant, completed: &mut Completed) {
        debug_assert!(completed.is_empty());
    }

    /// Gives the device the interrupt of this queue, once, before the first packet. A device
    /// without a descriptor keeps it and raises it (`wake_by_ref`), from any thread, when what
    /// `arm` asked for happens: once for each `arm` that returned [`Armed::Idle`].
    fn set_interrupt(&mut self, _interrupt: Waker) {}

    /// Asks for a wake-up when the device can take packets again, or has completed some that were
    /// [`Accepted::Pending`].
    ///
    /// `None`: the device raises nothing, and the queue polls it after
    /// [`TX_REST_MAX`](crate::limits::TX_REST_MAX) for as long as it has packets. This is the
    /// default of a device without a descriptor. With one the default is [`Armed::Idle`], which is
    /// right if the descriptor stays ready for as long as there is something to do, as that of a
    /// socket does. If it becomes ready only once, `arm` has to check for completions that came
    /// before.
    fn arm(&mut self) -> Option<Armed> {
        self.wake().map(|_| Armed::Idle)
    }

    /// As [`TxDescriptors::arm`], but for a wake-up when `packets` that were [`Accepted::Pending`]
    /// are completed and not reclaimed, or fewer and the device has nothing left. `None` from a
    /// device that cannot count: the queue polls it after a while, or calls `arm`.
    fn arm_for(&mut self, _packets: usize) -> Option<Armed> {
        None
    }

    /// Whether the device may keep what it has for as long as it likes, since the wire is at fault:
    /// the link is down, or the receiver asks it to pause. It is not taken for hung meanwhile.
    fn is_blocked(&self) -> bool {
        false
    }

    /// Stops the queue in the device and starts it again, empty. The device reads no packet
    /// afterwards that was accepted before, and reports none of them.
    ///
    /// Of the packets that were [`Accepted::Pending`], the tokens of those that were sent go to
    /// `sent`, and of those that certainly were not to `unsent`: these are sent again, in order.
    /// What is named in neither is lost, counted as `drop.device_reset`.
    ///
    /// # Errors
    ///
    /// When the device is gone, or does not come back.
    fn reset(
        &mut self,
        _sent: &mut Completed,
        _unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        Ok(Reset::Unsupported)
    }

    /// The descriptor that becomes ready when what `arm` asked for happens.
    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    /// Time at which what `arm` or `arm_for` asked for happens, if the device knows it. It bounds
    /// the sleep of the worker; `None` while the device is not armed.
    fn next_at(&self) -> Option<Instant> {
        None
    }

    /// Doorbells rung since the start: calls or writes that told the device of packets.
    fn doorbells(&self) -> u64;

    /// System calls made since the start.
    fn syscalls(&self) -> u64 {
        0
    }
}

/// The batch that [`TxDescriptors::encap_batch`] works through.
pub trait TxBatch {
    /// The next packet, not taken out.
    fn next(&mut self) -> Option<(TxPacket<'_>, Token)>;
    /// The device accepted it.
    fn accepted(&mut self, accepted: Accepted);
}

/// What a driver knows about a packet it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxInfo {
    /// Header offsets, when the driver had to parse anyway.
    pub layout: Option<Layout>,
    /// State of the transport checksum.
    pub checksum: ChecksumState,
    /// Set on a packet that stands for several.
    pub gso: Option<Gso>,
    /// Wire packets it accounts for; at least 1.
    pub wire_packets: u16,
    /// Hash of the flow from the device; 0 for none. Only ever a hint.
    pub flow_hash: u32,
    /// When it arrived, if the device says so.
    pub timestamp: Option<Instant>,
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

/// Where a driver puts what it received: packets, or bad packets one by one.
#[derive(Debug)]
pub struct RxBurst<'a> {
    burst: &'a mut Burst,
    budget: usize,
    bytes: usize,
    bad: &'a mut dyn BadPackets,
}

/// Counts packets that arrived but cannot be used.
pub trait BadPackets: fmt::Debug {
    /// One packet (standing for `wire_packets`) was received and is lost for `reason`.
    fn bad(&mut self, reason: DropReason, wire_packets: u64);
}

impl<'a> RxBurst<'a> {
    /// A burst that takes at most `budget` packets, bad ones included.
    pub fn new(burst: &'a mut Burst, budget: usize, bad: &'a mut dyn BadPackets) -> Self {
        let budget = budget.min(burst.room()).min(BURST_PACKETS_MAX);
        Self {
            burst,
            budget,
            bytes: 0,
            bad,
        }
    }

    /// How many more packets may be received: a real bound.
    #[must_use]
    pub fn budget(&self) -> usize {
        if self.bytes >= BURST_BYTES_MAX {
            0
        } else {
            self.budget
        }
    }

    /// True when the bound ended the poll, not the device.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        self.budget() == 0
    }

    /// One packet was received.
    #[inline]
    pub fn push(&mut self, mut packet: Packet, info: &RxInfo) {
        self.budget = self.budget.saturating_sub(1);
        let bytes = packet.bytes();
        self.bytes += bytes;
        if bytes >= BURST_LAST_BYTES {
            self.bytes = BURST_BYTES_MAX;
        }
        let meta = packet.meta_mut();
        meta.layout = info.layout;
        meta.checksum = info.checksum;
        meta.gso = info.gso;
        meta.wire_packets = info.wire_packets.max(1);
        meta.flow_hash = info.flow_hash;
        if let Some(timestamp) = info.timestamp {
            meta.timestamp = timestamp;
        }
        if self.burst.push(packet).is_err() {
            // Only a driver that ignores the budget gets here; the loss is counted all the same.
            let wire_packets = u64::from(info.wire_packets.max(1));
            self.bad.bad(DropReason::NoBuffer, wire_packets);
        }
    }

    /// One packet was received and cannot be used; it costs only itself.
    pub fn bad(&mut self, reason: DropReason, wire_packets: u64) {
        self.budget = self.budget.saturating_sub(1);
        self.bad.bad(reason, wire_packets);
    }
}

/// The receiving half of a queue; owned by one worker.
pub trait RxDescriptors: Send {
    /// Gives the device buffers, as many as it can use. Returns false when the arena could not
    /// supply all that were wanted; then the queue is polled again after a moment, and as long as
    /// nothing arrives `arm` and `wake` are not asked.
    fn refill(&mut self, arena: &Arena) -> bool;

    /// Receives at most `burst.budget()` packets.
    ///
    /// # Errors
    ///
    /// When the device as a whole failed; a bad packet is not an error ([`RxBurst::bad`]).
    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError>;

    /// Gives the device the interrupt of this queue, once, before the first poll. A device
    /// without a descriptor keeps it and raises it (`wake_by_ref`), from any thread, when what
    /// `arm` asked for happens: once for each `arm` that returned [`Armed::Idle`].
    fn set_interrupt(&mut self, _interrupt: Waker) {}

    /// Asks for a wake-up when a packet arrives, and says whether one is there already.
    fn arm(&mut self) -> Armed;

    /// As [`RxDescriptors::arm`], but for a wake-up when `packets` are there, or fewer and the
    /// device can receive no more. `None` from a device that cannot count what waits: then it is
    /// not armed, and polled after a while.
    fn arm_for(&mut self, _packets: usize) -> Option<Armed> {
        None
    }

    /// The descriptor that becomes ready when what `arm` asked for happens.
    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        None
    }

    /// Time of the next packet, if the device knows it: a capture replayed at its own pace. It
    /// bounds the sleep of the worker.
    fn next_at(&self) -> Option<Instant> {
        None
    }

    /// Packets that the device holds already: taken from outside but not handed over. They have
    /// not been received yet, as the framework counts. Where a poll changes the number, buffers are
    /// gone with the packets, and `refill` comes as if some had been handed over.
    fn held(&self) -> u64 {
        0
    }

    /// System calls made since the start.
    fn syscalls(&self) -> u64 {
        0
    }
}

/// Boxing a driver boxes its queues: for wrappers around a closed set that contains them.
impl<D: Driver> Driver for Box<D> {
    type Rx = Box<D::Rx>;
    type Tx = Box<D::Tx>;

    fn name(&self) -> &str {
        (**self).name()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let queues = (**self).attach(how, arena)?;
        Ok(queues
            .into_iter()
            .map(|(rx, tx)| (Box::new(rx), Box::new(tx)))
            .collect())
    }

    fn link(&mut self) -> Link {
        (**self).link()
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        (**self).device_counters()
    }
}

impl<T: TxDescriptors> TxDescriptors for Box<T> {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        (**self).encap(packet, token)
    }

    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
        (**self).encap_batch(batch)
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        (**self).flush(now)
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        (**self).reclaim(now, completed);
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        (**self).set_interrupt(interrupt);
    }

    fn arm(&mut self) -> Option<Armed> {
        (**self).arm()
    }

    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        (**self).arm_for(packets)
    }

    fn is_blocked(&self) -> bool {
        (**self).is_blocked()
    }

    fn reset(
        &mut self,
        sent: &mut Completed,
        unsent: &mut Completed,
    ) -> Result<Reset, DeviceError> {
        (**self).reset(sent, unsent)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        (**self).wake()
    }

    fn next_at(&self) -> Option<Instant> {
        (**self).next_at()
    }

    fn doorbells(&self) -> u64 {
        (**self).doorbells()
    }

    fn syscalls(&self) -> u64 {
        (**self).syscalls()
    }
}

impl<R: RxDescriptors> RxDescriptors for Box<R> {
    fn arm_for(&mut self, packets: usize) -> Option<Armed> {
        (**self).arm_for(packets)
    }

    fn refill(&mut self, arena: &Arena) -> bool {
        (**self).refill(arena)
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        (**self).receive(now, burst)
    }

    fn set_interrupt(&mut self, interrupt: Waker) {
        (**self).set_interrupt(interrupt);
    }

    fn arm(&mut self) -> Armed {
        (**self).arm()
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        (**self).wake()
    }

    fn next_at(&self) -> Option<Instant> {
        (**self).next_at()
    }

    fn held(&self) -> u64 {
        (**self).held()
    }

    fn syscalls(&self) -> u64 {
        (**self).syscalls()
    }
}
