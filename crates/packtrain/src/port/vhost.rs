//! A virtio network device for a virtual machine or a DPDK program: the back end of a vhost-user
//! connection.
//!
//! The front end (QEMU, or DPDK's virtio-user) shares the guest's memory and its rings over a Unix
//! socket. The port copies packets from and to them. Front ends come and go while it runs: without
//! one the link is down. The guest may negotiate fewer offloads than the plan assumes, and others
//! after it has booted again: packets for it are held to what is negotiated at that time.

mod keys;

pub use keys::VhostOptions;

pub use super::sys::vhost::device::VhostStatus;
use super::sys::vhost::device::{Device, Shared};
use super::sys::vhost::features::{from_guest, offer, to_guest};
use super::sys::vhost::packet::{Agreed, LINK, receive};
use super::sys::vhost::ring::HEADER_BYTES_MAX;
use super::sys::vhost::serve::{Endpoint, Listener, Server};
pub use super::sys::vhost::setup::{QUEUES_MAX_VHOST, SocketFile, VhostConfig, VhostWatch};
use super::sys::vhost::setup::{check_queues, failed, too_many_queues};
use super::vectored::Posted;
use super::vnet::mend;
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, Change, DeviceError, Driver, Features, Interest, Link,
    PortChanges, QueuePair, Refused, RxBurst, RxDescriptors, Token, TxBatch, TxDescriptors,
    TxPacket,
};
use crate::limits::SEGMENTS_MAX;
use crate::packet::Arena;
use crate::time::Instant;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

/// A port to a guest. It answers its front end from [`Driver::attach`] on, by a thread of its own,
/// until it is dropped.
#[derive(Debug)]
pub struct Vhost {
    name: String,
    queues: usize,
    rx: Features,
    tx: Features,
    endpoint: Option<Endpoint>,
    watch: VhostWatch,
    server: Option<Server>,
}

impl Vhost {
    /// Makes the socket, or connects to the front end if it listens already. A socket of a process
    /// that has ended is replaced. The file is removed when the port is dropped; a process that is
    /// killed leaves it ([`VhostWatch::socket_file`]).
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] if the system refuses, [`DeviceError::Unsupported`] if another
    /// process listens at the path, or with more queues than a front end can name.
    pub fn open(config: &VhostConfig) -> Result<Self, DeviceError> {
        let (name, endpoint) = config.open()?;
        Self::new(name, endpoint, config.queues, config.offload)
    }

    /// Takes over a socket that listens. Its file is left to its maker. Settings are those of
    /// [`VhostConfig`].
    ///
    /// # Errors
    ///
    /// As [`Vhost::open`].
    pub fn from_listener(
        name: &str,
        socket: UnixListener,
        queues: usize,
        offload: Features,
    ) -> Result<Self, DeviceError> {
        let endpoint = Endpoint::Listen(Listener::from(socket));
        Self::new(name.to_owned(), endpoint, queues, offload)
    }

    pub(in crate::port) fn new(
        name: String,
        endpoint: Endpoint,
        queues: usize,
        offload: Features,
    ) -> Result<Self, DeviceError> {
        check_queues(queues)?;
        Ok(Self {
            name,
            queues,
            rx: from_guest(offload),
            tx: to_guest(offload),
            watch: VhostWatch::of(&endpoint),
            endpoint: Some(endpoint),
            server: None,
        })
    }

    /// The other side, for a program whose session has the port.
    #[must_use]
    pub fn watch(&self) -> VhostWatch {
        self.watch.clone()
    }

    /// The state of the other side.
    #[must_use]
    pub fn status(&self) -> VhostStatus {
        self.watch.status()
    }
}

impl Driver for Vhost {
    type Rx = VhostRx;
    type Tx = VhostTx;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            link: LINK,
            queues_max: self.queues,
            rx: self.rx,
            tx: self.tx,
            tx_segments_max: SEGMENTS_MAX,
            tx_gso_segments_max: SEGMENTS_MAX,
            // A guest that has not negotiated TSO sends wire packets, and so does one that
            // forwards.
            rx_mixed: true,
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let asked = how.queues;
        let endpoint = match self.endpoint.take() {
            Some(endpoint) if asked > 0 && asked <= self.queues => endpoint,
            _ => {
                return Err(too_many_queues(&self.name, asked, self.queues));
            }
        };
        let shared = Shared::new(asked).map_err(failed("make the descriptors of the queues"))?;
        let shared = Arc::clone(self.watch.set(shared));
        let offered = offer(from_guest(how.rx.intersection(self.rx)), self.tx, asked);
        let pairs = (0..asked).map(|pair| {
            let mut posted = Posted::new(how.rx_buffers, HEADER_BYTES_MAX);
            posted.refill(arena);
            let rx = VhostRx {
                shared: Arc::clone(&shared),
                pair,
                posted,
                drained: false,
                calls: 0,
            };
            let tx = VhostTx {
                shared: Arc::clone(&shared),
                pair,
                agreed: Agreed::new(self.tx),
                full: false,
                doorbells: 0,
                calls: 0,
            };
            (rx, tx)
        });
        let pairs = pairs.collect();
        let device = Device::new(Arc::clone(&shared), offered, self.watch.changes());
        let server = Server::start(endpoint, device);
        self.server = Some(server.map_err(failed("start the thread of the front end"))?);
        Ok(pairs)
    }

    fn record_changes(&mut self, changes: PortChanges) {
        self.watch.record_changes(changes);
    }

    fn link(&mut self) -> Link {
        match self.watch.shared() {
            Some(shared) if shared.is_up() => Link::Up,
            _ => Link::Down,
        }
    }
}

/// The receiving half of a queue: packets that the guest sends.
#[derive(Debug)]
pub struct VhostRx {
    shared: Arc<Shared>,
    pair: usize,
    posted: Posted,
    drained: bool,
    calls: u64,
}

impl RxDescriptors for VhostRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.posted.refill(arena)
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        let mut ring = self.shared.ring_from_guest(self.pair);
        self.drained = false;
        ring.begin_poll();
        // Without frames the guest keeps its packets until the next refill.
        while !burst.exhausted() && self.posted.is_ready() && !ring.is_exhausted() {
            match receive(&mut ring, &mut self.posted) {
                Some(Ok((packet, info))) => burst.push(packet, &info),
                Some(Err(reason)) => burst.bad(reason, 1),
                None => {
                    self.drained = true;
                    break;
                }
            }
        }
        self.calls += ring.publish().1;
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        if !self.drained {
            return Armed::WorkPending;
        }
        // First: what rings from here on ends the sleep.
        self.shared.bell_from_guest(self.pair).clear();
        match self.shared.ring_from_guest(self.pair).arm() {
            true => Armed::WorkPending,
            false => Armed::Idle,
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let bell = self.shared.bell_from_guest(self.pair);
        Some((bell.as_fd(), Interest::Read))
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

/// The transmitting half of a queue: packets that the guest receives.
#[derive(Debug)]
pub struct VhostTx {
    shared: Arc<Shared>,
    pair: usize,
    agreed: Agreed,
    /// The last packet found no buffer.
    full: bool,
    doorbells: u64,
    calls: u64,
}

impl TxDescriptors for VhostTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        mend(packet)?;
        let mut ring = self.shared.ring_to_guest(self.pair);
        let accepted = self.agreed.put(&mut ring, packet.packet());
        self.full = accepted == Err(Refused::NoDescriptor);
        accepted
    }

    fn encap_batch(&mut self, batch: &mut impl TxBatch) -> Result<(), Refused> {
        // Locked once for all of them.
        let mut ring = self.shared.ring_to_guest(self.pair);
        let agreed = &mut self.agreed;
        let result = batch.each(|packet, _| {
            mend(packet)?;
            agreed.put(&mut ring, packet.packet())
        });
        self.full = result == Err(Refused::NoDescriptor);
        result
    }

    fn flush(&mut self, _now: Instant) -> Result<(), DeviceError> {
        let (published, calls) = self.shared.ring_to_guest(self.pair).publish();
        self.doorbells += published;
        self.calls += calls;
        Ok(())
    }

    fn arm(&mut self) -> Option<Armed> {
        if !self.full {
            return Some(Armed::Idle);
        }
        self.shared.bell_to_guest(self.pair).clear();
        let mut ring = self.shared.ring_to_guest(self.pair);
        // Off, or another queue found buffers: the packets are offered again.
        let has_work = !ring.is_running() || !ring.is_full() || ring.arm();
        has_work.then_some(Armed::WorkPending).or(Some(Armed::Idle))
    }

    fn is_blocked(&self) -> bool {
        self.full
    }

    fn changed(&mut self) -> Change {
        self.agreed.changed(&self.shared)
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let bell = self.shared.bell_to_guest(self.pair);
        Some((bell.as_fd(), Interest::Read))
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}
