//! TAP and TUN: a network interface of the kernel, through a descriptor for each queue.

use super::sys::tun::{self, Queue, ReadError, WriteError};
use super::vnet::{bytes_min, header_of, take_header};
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Interest,
    Link, QueuePair, Refused, RxBuffers, RxBurst, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::limits::{BURST_PACKETS_MAX, PACKET_BYTES_MAX, QUEUES_MAX};
use crate::packet::{Arena, FrameClass, Meta, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::Network;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::virtio_net::{Accept, HeaderLen};
use std::array::from_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Segments of one write: what even an interface with `IFF_NAPI_FRAGS` comes close to, and enough
/// for a 64 KiB packet in small frames.
const TX_SEGMENTS_MAX: usize = 64;
/// Packets that the kernel keeps for each queue of an interface that we create. TAP has 1000 by
/// itself, TUN 500, which one burst of small packets overruns.
const KERNEL_QUEUE_PACKETS: u16 = 1000;
/// Small frames that hold the longest packet with its header.
const PIECES: usize =
    (PACKET_BYTES_MAX + HeaderLen::V1.bytes()).div_ceil(FrameClass::Small.data_bytes());
/// Small frames posted to receive pieces: two of the longest packets (a burst ends after as many
/// bytes), and what one more read needs.
const PIECES_POSTED: usize = 3 * PIECES;
/// Large frames posted; each poll can receive as many packets that are longer than a small frame.
const LARGE_POSTED: usize = 8;

const _: () = assert!(PIECES_POSTED >= BURST_PACKETS_MAX + PIECES);
const _: () = assert!(PIECES * FrameClass::Small.data_bytes() > PACKET_BYTES_MAX + 12);

/// Offloads that the device knows: a bit of `TUNSETOFFLOAD`, and all that it stands for.
const OFFLOADS: [(u32, Features); 5] = [
    (tun::OFFLOAD_CSUM, Features::CSUM),
    (tun::OFFLOAD_TSO4, Features::TSO4),
    (tun::OFFLOAD_TSO6, Features::TSO6),
    (tun::OFFLOAD_TSO_ECN, Features::TSO_ECN),
    (tun::OFFLOAD_USO, Features::USO),
];

/// Which of the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapKind {
    /// Ethernet frames.
    Tap,
    /// IP packets.
    Tun,
}

/// Which interface to open, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// TAP or TUN.
    pub kind: TapKind,
    /// The interface's name: 1 to 15 bytes. One that does not exist is created, and left down and
    /// without addresses. `%d` in it stands for the first free number.
    pub name: String,
    /// Queues to open: 1 to [`QUEUES_MAX`].
    pub queues: usize,
    /// Offloads to use at most, in both directions.
    pub wish: Features,
    /// Fail if the interface exists.
    pub exclusive: bool,
}

impl TapConfig {
    /// One queue of the interface `name`, with every offload.
    #[must_use]
    pub fn new(kind: TapKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            queues: 1,
            wish: Features::ALL,
            exclusive: false,
        }
    }
}

/// An open TAP or TUN interface.
///
/// An interface that it created goes when the last descriptor is closed: this and both halves of
/// every queue. It may be set down and up, renamed and moved to another network namespace
/// meanwhile.
#[derive(Debug)]
pub struct Tap {
    name: String,
    control: Queue,
    queues: Vec<Queue>,
    header: Option<HeaderLen>,
    capabilities: Capabilities,
}

impl Tap {
    /// Opens an interface of the calling thread's network namespace, all queues at once.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] when the system refuses: no /dev/net/tun, or no right to use it or
    /// to create the interface (`CAP_NET_ADMIN`, or to own the interface).
    /// [`DeviceError::Unsupported`] when the interface cannot be had like that.
    pub fn open(config: &TapConfig) -> Result<Self, DeviceError> {
        let TapConfig { name, queues, .. } = config;
        if name.is_empty() || name.len() > 15 {
            return unsupported(format!("{name:?} is no interface name: use 1 to 15 bytes"));
        }
        if *queues == 0 || *queues > QUEUES_MAX {
            let most = QUEUES_MAX;
            return unsupported(format!("{queues} queues for {name}: use 1 to {most}"));
        }
        let mut opened = Vec::with_capacity(*queues);
        let (first, flags, created) = open_first(config)?;
        let name = first
            .interface()
            .map_err(failed("read the interface's name"))?
            .0;
        opened.push(first);
        for number in 1..*queues {
            let next = open_queue()?;
            next.attach(&name, flags).map_err(|error| match error {
                error if error.raw_os_error().is_some() && tun::is_taken(&error) => {
                    DeviceError::Unsupported(format!(
                        "{name} has only {number} free queues: use fewer, or end the other user"
                    ))
                }
                error => failed("open a further queue of the interface")(error),
            })?;
            opened.push(next);
        }
        let mut tap = Self::new(opened, config.wish, true)?;
        if created && let Err(error) = tun::set_queue_length(&tap.name, KERNEL_QUEUE_PACKETS) {
            let note = format!("the transmit queue of {name} keeps its default length: {error}");
            tap.capabilities.notes.push(note);
        }
        Ok(tap)
    }

    /// Takes over descriptors that are attached to an interface: its queues. Name, kind and
    /// header size are read back from them.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] when they are no descriptors of one TUN or TAP interface, or
    /// set up with packet information; [`DeviceError::Failed`] when the system refuses.
    pub fn from_fds(fds: Vec<OwnedFd>, wish: Features) -> Result<Self, DeviceError> {
        if fds.is_empty() || fds.len() > QUEUES_MAX {
            return unsupported(format!("{} descriptors: give 1 to {QUEUES_MAX}", fds.len()));
        }
        let queues = fds.into_iter().map(Queue::from_fd);
        let queues: io::Result<Vec<_>> = queues.collect();
        Self::new(
            queues.map_err(failed("set up the given descriptor"))?,
            wish,
            false,
        )
    }

    /// Reads back what the descriptors are, and agrees on the rest.
    fn new(queues: Vec<Queue>, wish: Features, ours: bool) -> Result<Self, DeviceError> {
        let (name, flags) = interface_of(&queues[0])?;
        for other in &queues[1..] {
            if interface_of(other)?.0 != name {
                return unsupported(format!("not all given descriptors belong to {name}"));
            }
        }
        if flags & tun::NO_PACKET_INFO == 0 {
            return unsupported(format!(
                "the descriptor of {name} has packet information in front of every packet: \
                 open it with IFF_NO_PI"
            ));
        }
        let control = queues[0]
            .try_clone()
            .map_err(failed("duplicate a descriptor"))?;
        let link = if flags & tun::TUN == 0 {
            LinkType::Ethernet
        } else {
            LinkType::RawIp
        };
        let mut notes = Vec::new();
        let header = if flags & tun::VNET_HEADER == 0 {
            notes.push(format!(
                "{name} has no virtio-net header (IFF_VNET_HDR): no offloads"
            ));
            None
        } else {
            Some(agree_on_header(&control, &name, ours)?)
        };
        let wish = if header.is_some() {
            wish.consistent()
        } else {
            Features::NONE
        };
        // Also to clear what an earlier user of a persistent interface left there.
        let granted = probe_offload(wish, &mut notes, |mask| control.set_offload(mask));
        if let Err(error) = control.observe() {
            notes.push(format!(
                "link and counters of {name} cannot be observed: {error}"
            ));
        }
        let features = granted.map_err(failed("set the interface's offloads"))?;
        let capabilities = Capabilities {
            link,
            queues_max: queues.len(),
            rx: features,
            tx: features,
            tx_segments_max: TX_SEGMENTS_MAX,
            tx_gso_segments_max: TX_SEGMENTS_MAX,
            headroom_bytes: header.map_or(0, HeaderLen::bytes),
            notes,
            ..Capabilities::default()
        };
        Ok(Self {
            name,
            control,
            queues,
            header,
            capabilities,
        })
    }

    /// TAP or TUN.
    #[must_use]
    pub fn kind(&self) -> TapKind {
        match self.capabilities.link {
            LinkType::Ethernet => TapKind::Tap,
            LinkType::RawIp => TapKind::Tun,
        }
    }
}

/// Opens the first queue; returns the flags that further ones need, and whether the interface is
/// new.
fn open_first(config: &TapConfig) -> Result<(Queue, u32, bool), DeviceError> {
    let TapConfig { kind, name, .. } = config;
    let kind_flag = match kind {
        TapKind::Tap => tun::TAP,
        TapKind::Tun => tun::TUN,
    };
    let single = kind_flag | tun::NO_PACKET_INFO | tun::VNET_HEADER;
    let multi = single | tun::MULTI_QUEUE;
    let (wanted, other) = if config.queues > 1 {
        (multi, single)
    } else {
        (single, multi)
    };
    let queue = open_queue()?;
    match queue.attach(name, wanted | tun::CREATE_ONLY) {
        Ok(()) => return Ok((queue, wanted, true)),
        Err(error) if !tun::is_taken(&error) => return Err(failed(CREATE)(error)),
        Err(_) if config.exclusive => {
            return unsupported(format!(
                "{name} exists already: delete it, or use another name"
            ));
        }
        Err(_exists) => {}
    }
    let error = match queue.attach(name, wanted) {
        Ok(()) => return Ok((queue, wanted, false)),
        Err(error) if tun::is_mismatch(&error) => match queue.attach(name, other) {
            // An interface for several queues is as good for one.
            Ok(()) if config.queues == 1 => return Ok((queue, other, false)),
            Ok(()) => return unsupported(single_queue(name, config.queues)),
            Err(error) if config.queues > 1 && tun::is_taken(&error) => {
                return unsupported(single_queue(name, config.queues));
            }
            Err(error) => error,
        },
        Err(error) => error,
    };
    if tun::is_mismatch(&error) {
        return unsupported(format!(
            "{name} exists and is no {kind:?} interface: use another name"
        ));
    }
    if tun::is_taken(&error) {
        return unsupported(format!(
            "{name} is in use: end its other user, or use another name"
        ));
    }
    Err(failed(CREATE)(error))
}

const CREATE: &str = "create or attach to the interface";

fn single_queue(name: &str, queues: usize) -> String {
    format!("{name} exists with a single queue, not {queues}: use queues=1, or delete it first")
}

fn open_queue() -> Result<Queue, DeviceError> {
    Queue::open().map_err(failed("open /dev/net/tun"))
}

fn interface_of(queue: &Queue) -> Result<(String, u32), DeviceError> {
    queue.interface().or_else(|error| {
        unsupported(format!(
            "the descriptor is not attached to a TUN or TAP interface: {error}"
        ))
    })
}

/// Sets the header's form where we may, and reads it back: it belongs to the interface, and stays
/// with a persistent one.
fn agree_on_header(queue: &Queue, name: &str, ours: bool) -> Result<HeaderLen, DeviceError> {
    let ask = || {
        queue
            .header_bytes()
            .map_err(failed("read the virtio-net header's size"))
    };
    let present = HeaderLen::from_bytes(ask()?);
    if (ours || present.is_none()) && present != Some(HeaderLen::V1) {
        // Whether it worked shows below.
        queue.set_header_bytes(HeaderLen::V1.bytes()).unwrap_or(());
    }
    // Without the call the header is in the host's order.
    if let Err(error) = queue.set_little_endian()
        && cfg!(target_endian = "big")
    {
        return Err(failed("make the virtio-net header little endian")(error));
    }
    let bytes = ask()?;
    HeaderLen::from_bytes(bytes).ok_or_else(|| {
        DeviceError::Unsupported(format!(
            "{name} has a virtio-net header of {bytes} bytes, not 10 or 12, and keeps it"
        ))
    })
}

/// Asks for the offloads in `wish`, in ever smaller sets until the kernel takes one: it takes a
/// mask as a whole or not at all. Returns what was granted.
fn probe_offload(
    wish: Features,
    notes: &mut Vec<String>,
    mut set: impl FnMut(u32) -> io::Result<()>,
) -> io::Result<Features> {
    let mut wanted = supported(wish);
    loop {
        let Err(error) = set(mask_of(wanted)) else {
            return Ok(wanted);
        };
        // The latest addition to the kernel is given up first.
        let Some((_, last)) = OFFLOADS.iter().rev().find(|(_, f)| wanted.contains(*f)) else {
            return Err(error);
        };
        for name in last.names() {
            notes.push(format!(
                "the kernel refuses {name} (TUNSETOFFLOAD): {error}"
            ));
        }
        wanted = supported(wanted.without(*last));
    }
}

/// What of `wish` the device can be asked for: each bit stands for all of its features.
fn supported(wish: Features) -> Features {
    let whole = OFFLOADS.iter().filter(|(_, f)| wish.contains(*f));
    whole
        .fold(Features::NONE, |all, (_, f)| all | *f)
        .consistent()
}

fn mask_of(features: Features) -> u32 {
    let asked = OFFLOADS.iter().filter(|(_, f)| features.contains(*f));
    asked.fold(0, |mask, (bit, _)| mask | bit)
}

fn unsupported<T>(why: String) -> Result<T, DeviceError> {
    Err(DeviceError::Unsupported(why))
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| {
        if tun::is_removed(&source) {
            DeviceError::Removed
        } else {
            DeviceError::Failed { action, source }
        }
    }
}

impl Driver for Tap {
    type Rx = TapRx;
    type Tx = TapTx;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let (has, name) = (self.queues.len(), &self.name);
        if how.queues == 0 || how.queues > has {
            return unsupported(format!("{} queues for {name}, which has {has}", how.queues));
        }
        let rx = supported(how.rx.intersection(self.capabilities.rx));
        self.control
            .set_offload(mask_of(rx))
            .map_err(failed("set the interface's offloads"))?;
        // The kernel must not steer packets to queues that nobody reads.
        let queues = self.queues.drain(..).take(how.queues);
        let (header, link) = (self.header, self.capabilities.link);
        let pair = |queue: Queue| {
            let tx = TapTx {
                queue: queue.try_clone()?,
                header,
                link,
                calls: 0,
            };
            let mut rx = TapRx::new(queue, header, link, how.rx_buffers);
            rx.refill(arena);
            Ok((rx, tx))
        };
        let pairs: io::Result<Vec<_>> = queues.map(pair).collect();
        pairs.map_err(failed("duplicate a descriptor"))
    }

    fn link(&mut self) -> Link {
        match self.control.observe() {
            Ok(observed) if observed.running => Link::Up,
            Ok(_) => Link::Down,
            Err(error) if tun::is_removed(&error) => Link::Removed,
            // What cannot be observed is not known to be down; a write will tell.
            Err(_) => Link::Up,
        }
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        self.control.observe().ok()?.counters
    }
}

/// The receiving half of a queue.
#[derive(Debug)]
pub struct TapRx {
    queue: Queue,
    header: Option<HeaderLen>,
    link: LinkType,
    buffers: RxBuffers,
    small: Vec<Packet>,
    large: Vec<Packet>,
    drained: bool,
    calls: u64,
}

impl TapRx {
    fn new(queue: Queue, header: Option<HeaderLen>, link: LinkType, buffers: RxBuffers) -> Self {
        let (small, large) = match buffers {
            RxBuffers::Whole => (BURST_PACKETS_MAX, LARGE_POSTED),
            RxBuffers::Pieces => (PIECES_POSTED, 0),
        };
        Self {
            queue,
            header,
            link,
            buffers,
            small: Vec::with_capacity(small),
            large: Vec::with_capacity(large),
            drained: false,
            calls: 0,
        }
    }

    /// An empty packet to read into, which begins before its first data byte by the header's
    /// length: so the data is where it is in every other packet.
    fn post(&self, arena: &Arena, class: FrameClass) -> Option<Packet> {
        let mut packet = arena.packet(class).ok()?;
        packet
            .prepend(self.header.map_or(0, HeaderLen::bytes))
            .ok()?;
        packet.truncate(0);
        Some(packet)
    }

    /// Reads into the posted frames; returns the bytes, and whether there was room for more.
    /// `None` when too few frames are posted for the longest packet.
    fn read(&mut self) -> Result<Option<(usize, bool)>, ReadError> {
        match self.buffers {
            RxBuffers::Whole if self.large.is_empty() => Ok(None),
            RxBuffers::Whole => self.read_into::<2>(),
            RxBuffers::Pieces => self.read_into::<PIECES>(),
        }
    }

    fn read_into<const N: usize>(&mut self) -> Result<Option<(usize, bool)>, ReadError> {
        let small = self
            .small
            .iter_mut()
            .rev()
            .take(N - usize::from(!self.large.is_empty()));
        let frames = small.chain(self.large.last_mut());
        let mut pieces: [IoSliceMut<'_>; N] = from_fn(|_| IoSliceMut::new(&mut []));
        let (mut used, mut room) = (0, 0);
        for (piece, frame) in pieces.iter_mut().zip(frames) {
            let free = frame.tailroom_mut();
            room += free.len();
            *piece = IoSliceMut::new(free);
            used += 1;
        }
        if used < N {
            return Ok(None);
        }
        // TUN writes only ten bytes of a longer header, and leaves the others as they were.
        pieces[0][..self.header.map_or(0, HeaderLen::bytes)].fill(0);
        self.calls += 1;
        let bytes = self.queue.read(&mut pieces)?;
        Ok(Some((bytes, bytes < room)))
    }

    /// Makes a packet of the frames that `bytes` bytes were read into; the others stay posted.
    fn take(&mut self, bytes: usize) -> Result<Packet, DropReason> {
        let mut packet = self.small.pop().ok_or(DropReason::NoBuffer)?;
        let mut left = bytes - fill(&mut packet, bytes)?;
        while left > 0 {
            let next = self.large.pop().or_else(|| self.small.pop());
            let mut next = next.ok_or(DropReason::NoBuffer)?;
            left -= fill(&mut next, left)?;
            packet.append(next).map_err(|_| DropReason::NoBuffer)?;
        }
        Ok(packet)
    }

    fn take_received(&mut self, bytes: usize, whole: bool, burst: &mut RxBurst<'_>) {
        let received = self.take(bytes).and_then(|mut packet| {
            if !whole {
                return Err(DropReason::TooLong);
            }
            // Whatever the offloads are now, the packet may have been queued under others, or
            // they were changed through another descriptor: software can deal with any of them.
            let info = take_header(&mut packet, self.header, self.link, Accept::ALL)?;
            Ok((packet, info))
        });
        match received {
            Ok((packet, info)) => burst.push(packet, &info),
            Err(reason) => burst.bad(reason, 1),
        }
    }
}

/// Makes up to `bytes` bytes of a frame, just read, part of its packet; returns how many.
fn fill(packet: &mut Packet, bytes: usize) -> Result<usize, DropReason> {
    let bytes = bytes.min(packet.tailroom_mut().len());
    packet.grow(bytes).map_err(|_| DropReason::TooLong)?;
    Ok(bytes)
}

impl RxDescriptors for TapRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        while self.small.len() < self.small.capacity() {
            let Some(packet) = self.post(arena, FrameClass::Small) else {
                return false;
            };
            self.small.push(packet);
        }
        while self.large.len() < self.large.capacity() {
            let Ok(packet) = arena.packet(FrameClass::Large) else {
                return false;
            };
            self.large.push(packet);
        }
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.drained = false;
        while !burst.exhausted() {
            match self.read() {
                Ok(Some((bytes, whole))) => self.take_received(bytes, whole, burst),
                // Out of frames: the kernel keeps the packets until the next refill.
                Ok(None) => break,
                Err(ReadError::Empty) => {
                    self.drained = true;
                    break;
                }
                Err(ReadError::Lost) => burst.bad(DropReason::BadDescriptor, 1),
                Err(ReadError::Removed) => return Err(DeviceError::Removed),
                Err(ReadError::Failed(source)) => {
                    return Err(failed("read from the interface")(source));
                }
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        // The descriptor is readable as long as packets are there, so nothing is missed.
        if self.drained {
            Armed::Idle
        } else {
            Armed::WorkPending
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.queue.as_fd(), Interest::Read))
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

/// The transmitting half of a queue.
#[derive(Debug)]
pub struct TapTx {
    queue: Queue,
    header: Option<HeaderLen>,
    link: LinkType,
    calls: u64,
}

impl TapTx {
    fn send(&self, packet: &mut TxPacket<'_>) -> Result<(), WriteError> {
        let Some(header) = self.header else {
            return self.write(packet.packet());
        };
        let bytes = header_of(packet.packet(), header);
        let bytes = &bytes[..header.bytes()];
        match packet.with_header(bytes, |packet| self.write(packet)) {
            Some(result) => result,
            None => self.write_gathered::<{ TX_SEGMENTS_MAX + 1 }>(bytes, packet.packet()),
        }
    }

    fn write(&self, packet: &Packet) -> Result<(), WriteError> {
        match packet.segment_count() {
            1 => self.queue.write(packet.first()),
            2..=4 => self.write_gathered::<4>(&[], packet),
            _ => self.write_gathered::<TX_SEGMENTS_MAX>(&[], packet),
        }
    }

    fn write_gathered<const N: usize>(
        &self,
        header: &[u8],
        packet: &Packet,
    ) -> Result<(), WriteError> {
        let mut pieces = [IoSlice::new(&[]); N];
        let header_pieces = (!header.is_empty()).then_some(header);
        let mut used = 0;
        for segment in header_pieces.into_iter().chain(packet.segments()) {
            *pieces.get_mut(used).ok_or(WriteError::Segments)? = IoSlice::new(segment);
            used += 1;
        }
        self.queue
            .write_pieces(&pieces[..used], header.len() + packet.bytes())
    }
}

/// The feature that a legal packet was refused for, if it uses any.
fn blame(meta: &Meta) -> Refused {
    match (
        meta.gso,
        meta.checksum,
        meta.layout.map(|layout| layout.kind),
    ) {
        (Some(gso), ..) => Refused::Feature(Features::of(gso.kind)),
        (_, ChecksumState::Partial { .. }, Some(Network::Ipv6)) => {
            Refused::Feature(Features::CSUM6)
        }
        (_, ChecksumState::Partial { .. }, Some(Network::Ipv4)) => {
            Refused::Feature(Features::CSUM4)
        }
        (_, ChecksumState::Partial { .. }, _) => Refused::Feature(Features::CSUM),
        _ => Refused::Bad(DropReason::DeviceRefused),
    }
}

impl TxDescriptors for TapTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        if packet.packet().bytes() < bytes_min(self.link) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        self.calls += 1;
        self.send(packet).map_err(|error| match error {
            WriteError::Busy => Refused::Busy,
            WriteError::Down => Refused::LinkDown,
            WriteError::Removed => Refused::Removed,
            WriteError::Invalid => blame(packet.packet().meta()),
            WriteError::Segments => Refused::TooManySegments,
            WriteError::Bytes => Refused::Bad(DropReason::TooLong),
            WriteError::Other => Refused::Bad(DropReason::DeviceRefused),
        })?;
        Ok(Accepted::Complete)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.queue.as_fd(), Interest::Write))
    }

    fn doorbells(&self) -> u64 {
        self.calls
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}
