//! TAP and TUN: a network interface of the kernel, through a descriptor for each queue.

mod keys;

pub use keys::{INTERFACE_NAME_BYTES_MAX, TunTapOptions};
pub(super) use keys::{check_name, check_waits, open_given, open_one};

pub(super) use super::sys::tap::exists;
use super::sys::tap::{self as setup, Opened, failed};
pub use super::sys::tap::{TapConfig, TapKind};
use super::sys::tun::{Queue, is_removed};
use super::vectored::Posted;
use super::vnet::{ReadError, WriteError, bytes_min, mend, receive, refused, write_with};
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Interest,
    Interface, Link, QueuePair, Refused, RxBurst, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::packet::Arena;
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::LinkType;
use packtrain_offload::virtio_net::HeaderLen;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Segments of one packet: enough for 64 KiB in small frames.
const TX_SEGMENTS_MAX: usize = 64;

/// An open TAP or TUN interface.
///
/// An interface that it created is removed when the last descriptor is closed: this and both halves
/// of every queue. Meanwhile it may be set down and up, renamed, and moved to another network
/// namespace.
#[derive(Debug)]
pub struct Tap {
    control: Queue,
    opened: Opened,
}

impl Tap {
    /// Opens an interface of the calling thread's network namespace, all queues at once.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] when the system refuses: no /dev/net/tun, or no right to use it or
    /// to create the interface (`CAP_NET_ADMIN`, or to own the interface).
    /// [`DeviceError::Unsupported`] when the interface does not support the requested settings.
    pub fn open(config: &TapConfig) -> Result<Self, DeviceError> {
        Self::new(setup::open(config)?)
    }

    /// Takes over descriptors that are attached to an interface: its queues, 1 to [`QUEUES_MAX`].
    /// Name, kind and header size are read back from them; of `offload`, the features that they
    /// allow are used.
    ///
    /// Two settings reach the process that passed a descriptor on, and persist after the port is
    /// dropped. Reads and writes of its duplicate become non-blocking (`O_NONBLOCK` belongs to the
    /// open file description), and the interface keeps the negotiated offloads. Descriptors that
    /// are refused stay blocking.
    ///
    /// [`QUEUES_MAX`]: crate::limits::QUEUES_MAX
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] when they are not descriptors of one TUN or TAP interface, or
    /// are set up with packet information; [`DeviceError::Failed`] when the system refuses.
    pub fn from_fds(fds: Vec<OwnedFd>, offload: Features) -> Result<Self, DeviceError> {
        Self::new(setup::adopt(fds, offload)?)
    }

    fn new(opened: Opened) -> Result<Self, DeviceError> {
        let control = opened.queues[0].try_clone();
        let control = control.map_err(failed("duplicate the descriptor"))?;
        Ok(Self { control, opened })
    }

    /// TAP or TUN.
    #[must_use]
    pub const fn kind(&self) -> TapKind {
        self.opened.kind
    }

    /// Whether the port has made the interface, which did not exist.
    #[must_use]
    pub const fn created(&self) -> bool {
        self.opened.created
    }

    const fn link_type(&self) -> LinkType {
        match self.opened.kind {
            TapKind::Tap => LinkType::Ethernet,
            TapKind::Tun => LinkType::RawIp,
        }
    }
}

impl Driver for Tap {
    type Rx = TapRx;
    type Tx = TapTx;

    fn name(&self) -> &str {
        &self.opened.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            link: self.link_type(),
            queues_max: self.opened.queues_max,
            rx: self.opened.rx,
            tx: self.opened.tx,
            tx_segments_max: TX_SEGMENTS_MAX,
            tx_gso_segments_max: TX_SEGMENTS_MAX,
            limits_large: self.opened.limits_large,
            notes: self.opened.notes.clone(),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let (name, has) = (&self.opened.name, self.opened.queues.len());
        if how.queues == 0 || how.queues > has {
            let asked = how.queues;
            let why = format!("{asked} queues for {name}, of which {has} are open");
            return Err(DeviceError::Unsupported(why));
        }
        let rx = how.rx.intersection(self.opened.rx);
        setup::offer(&self.control, rx).map_err(failed("set the interface's offloads"))?;
        // It saves copies, so the port also works without: where the interface is in a namespace
        // that this process may not enter.
        if let Some(bytes) = how.large_bytes_max
            && let Err(error) = self.control.limit_gso(bytes)
        {
            let note = format!("the kernel's GSO packets keep their length: {error}");
            self.opened.notes.push(note);
        }
        let (header, link) = (self.opened.header, self.link_type());
        let front = header.map_or(0, HeaderLen::bytes);
        // The others are closed: the kernel must not steer packets to a queue that is not read.
        let queues = self.opened.queues.drain(..).take(how.queues);
        let pairs = queues.map(|queue| {
            let tx = TapTx {
                queue: queue.try_clone()?,
                header,
                link,
                calls: 0,
            };
            let mut posted = Posted::new(how.rx_buffers, front);
            posted.refill(arena);
            let rx = TapRx {
                queue,
                header,
                link,
                posted,
                drained: false,
                calls: 0,
            };
            Ok((rx, tx))
        });
        pairs
            .collect::<io::Result<_>>()
            .map_err(failed("duplicate the descriptor"))
    }

    fn interface(&self) -> Option<Interface> {
        let namespace = self.control.namespace_inode().ok();
        // Without it, another interface may have its name.
        let observed = namespace.and_then(|_| self.control.observe().ok());
        Some(Interface {
            name: self.control.interface().ok()?.0.into(),
            index: observed.map(|observed| observed.index),
            namespace,
        })
    }

    fn link(&mut self) -> Link {
        match self.control.observe() {
            Ok(observed) if observed.running => Link::Up,
            Ok(_) => Link::Down,
            Err(error) if is_removed(&error) => Link::Removed,
            // An unknown state counts as up; a write reports a link that is down.
            Err(_) => Link::Up,
        }
    }

    fn device_counters(&mut self) -> Option<DeviceCounters> {
        Some(self.control.observe().ok()?.counters)
    }
}

/// The receiving half of a queue.
#[derive(Debug)]
pub struct TapRx {
    queue: Queue,
    header: Option<HeaderLen>,
    link: LinkType,
    posted: Posted,
    drained: bool,
    calls: u64,
}

impl RxDescriptors for TapRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.posted.refill(arena)
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.drained = false;
        while !burst.exhausted() {
            match self.posted.read(|pieces| self.queue.read(pieces)) {
                Ok(Some(filled)) => {
                    let (header, link) = (self.header, self.link);
                    let received = receive(&mut self.posted, filled, header, link, None, burst);
                    received.unwrap_or_else(|reason| burst.bad(reason, 1));
                }
                // Out of frames: the kernel keeps its packets until the next refill.
                Ok(None) => return Ok(()),
                Err(ReadError::Empty | ReadError::Down) => self.drained = true,
                Err(ReadError::Lost) => burst.bad(DropReason::BadDescriptor, 1),
                Err(ReadError::Removed) => return Err(DeviceError::Removed),
                Err(ReadError::Failed(source)) => return Err(failed("read a packet")(source)),
            }
            self.calls += 1;
            if self.drained {
                break;
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        // The descriptor is readable while there are packets, so no wake-up is lost.
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
        let queue = &self.queue;
        write_with(
            packet,
            self.header,
            |packet| queue.write(packet),
            |pieces, bytes| queue.write_pieces(pieces, bytes),
        )
    }
}

impl TxDescriptors for TapTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        if packet.packet().bytes() < bytes_min(self.link) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        mend(packet)?;
        self.calls += 1;
        match self.send(packet) {
            Ok(()) => Ok(Accepted::Complete),
            Err(error) => Err(refused(error, packet.packet())),
        }
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
