//! Packet sockets: an Ethernet interface that exists, through a socket for each queue (packet(7)).
//!
//! The port receives every packet that arrives at the interface, for any address, and sends by
//! the interface. The host's own stack stays attached: it gets the same packets, and packets that
//! it sends by the interface do not reach the port. An interface without addresses is packtrain's
//! alone.
//!
//! In front of every packet is a virtio-net header, so GSO packets and unfinished checksums pass in
//! both directions. There is one system call for each packet that is sent, and one for up to 32
//! small packets that are received.
//!
//! TCP packets above 64 KiB (BIG TCP), which a peer or GRO may build if `gso_max_size` or
//! `gro_max_size` says so, are received whole, and go on as GSO packets of up to 64 KiB.

mod keys;

pub use super::sys::packet::PacketConfig;
pub use super::sys::socket::Fanout;
pub use keys::PacketOptions;

use super::big::Cutting;
use super::sys::packet::{self as setup, Losses, OFFLOADS, Opened, failed};
use super::sys::socket::{BATCH, Inbox, Socket, Tag};
use super::vectored::{Filled, Posted};
use super::vnet::{ReadError, WriteError, bytes_min, mend, receive, refused, write_with};
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceCounters, DeviceError, Driver, Features, Interest,
    Interface, Link, QueuePair, Refused, RxBurst, RxDescriptors, Token, TxDescriptors, TxPacket,
};
use crate::packet::{Arena, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::offload::LinkType;
use packtrain_offload::virtio_net::HeaderLen;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Segments of one packet: enough for 64 KiB in small frames.
const TX_SEGMENTS_MAX: usize = 64;
/// The header of every socket; the longer one needs Linux 6.5, and carries no more.
const HEADER: HeaderLen = HeaderLen::Legacy;
/// The interface is checked this often: only one half of a socket is told that it went down.
const UP_INTERVAL: Duration = Duration::from_secs(1);
/// And this often while it is down: the socket does not say when it is deleted then.
const DOWN_INTERVAL: Duration = Duration::from_millis(100);
/// Attempts to send a packet for which the kernel has no room.
const ATTEMPTS_MAX: u32 = 4;

/// Open packet sockets of an interface.
///
/// Nothing arrives before [`Driver::attach`], unless an embedder's sockets are bound already. When
/// the last descriptor of the port and its queues is closed, also by a kill, the kernel ends the
/// promiscuous mode and the fanout group.
#[derive(Debug)]
pub struct PacketSocket(pub(super) Opened);

impl PacketSocket {
    /// Opens sockets in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] when the system refuses: no right (`CAP_NET_RAW`), or no packet
    /// sockets. [`DeviceError::Unsupported`] when there is no such interface, or it is no Ethernet
    /// interface.
    pub fn open(config: &PacketConfig) -> Result<Self, DeviceError> {
        Ok(Self(setup::open(config)?))
    }

    /// Takes over packet sockets (`SOCK_RAW`), one for each queue, 1 to
    /// [`QUEUES_MAX`](crate::limits::QUEUES_MAX); `config.queues` is not used. They are not bound,
    /// or all to one interface; then `config.name` may be empty. The port binds those that are not,
    /// in [`attach`](Driver::attach). Sockets with a ring are not supported.
    ///
    /// The options of the port are set on the sockets: a virtio-net header, aux data, no outgoing
    /// packets. They reach the process that passed a descriptor on. A filter of the embedder stays;
    /// with several queues, Linux before 6.2 relies on it to drop the host's own packets. Packets
    /// that wait in a socket are dropped if it is not bound, or if there are several.
    ///
    /// # Errors
    ///
    /// As of [`open`](Self::open); [`DeviceError::Unsupported`] also when they are no such sockets.
    pub fn from_fds(fds: Vec<OwnedFd>, config: &PacketConfig) -> Result<Self, DeviceError> {
        Ok(Self(setup::adopt(fds, config)?))
    }
}

impl Driver for PacketSocket {
    type Rx = PacketRx;
    type Tx = PacketTx;

    fn name(&self) -> &str {
        &self.0.config.name
    }

    fn capabilities(&self) -> Capabilities {
        let (control, index) = (self.0.device.control(), self.0.device.index());
        Capabilities {
            queues_max: self.0.config.queues,
            rx: OFFLOADS | Features::VLAN,
            tx: self.0.tx,
            tx_segments_max: TX_SEGMENTS_MAX,
            tx_gso_segments_max: TX_SEGMENTS_MAX,
            // If they cannot be read, the kernel alone compares, and packets are merged in vain.
            mtu: control.mtu_of(index).ok(),
            rx_mixed: !control.merges(index).unwrap_or(false),
            notes: self.0.notes.clone(),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let pairs = self.0.bind(how.queues)?.into_iter().map(|socket| {
            let tx = PacketTx {
                socket: socket.try_clone().map_err(failed(setup::DUPLICATE))?,
                bypass_qdisc: self.0.config.bypass_qdisc,
                attempts: 0,
                calls: 0,
            };
            let mut posted = Posted::new(how.rx_buffers, HEADER.bytes()).with_rest(BATCH);
            posted.refill(arena);
            let rx = PacketRx {
                socket,
                posted,
                inbox: Inbox::default(),
                cutting: None,
                drained: false,
                losses: Losses::default(),
                recheck_at: Instant::default(),
                calls: 0,
            };
            Ok((rx, tx))
        });
        pairs.collect()
    }

    fn interface(&self) -> Option<Interface> {
        self.0.device.interface()
    }

    fn link(&mut self) -> Link {
        // A packet that is sent reports a link that is down.
        self.0.device.link()
    }

    /// Those of the interface, and so of the host's own packets, too. `None` in another network
    /// namespace, and for given sockets, without `CAP_NET_ADMIN` there.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        self.0.device.counters()
    }
}

/// The receiving half of a queue.
#[derive(Debug)]
pub struct PacketRx {
    socket: Socket,
    posted: Posted,
    inbox: Inbox,
    cutting: Option<Box<Cutting>>,
    drained: bool,
    losses: Losses,
    /// When the interface is checked again.
    recheck_at: Instant,
    calls: u64,
}

impl PacketRx {
    /// Makes a packet of the data that was read, if it is usable, and puts it into `burst`.
    #[inline]
    fn push(
        &mut self,
        (filled, tag): (Filled, Tag),
        burst: &mut RxBurst<'_>,
    ) -> Result<(), DropReason> {
        let tag = tag?;
        if self.posted.may_be_big(filled) {
            self.cutting = Cutting::begin(&mut self.posted, HEADER, filled, tag)?;
            if self.cutting.is_some() {
                return Ok(());
            }
        }
        let (header, link) = (Some(HEADER), LinkType::Ethernet);
        receive(&mut self.posted, filled, header, link, tag, burst)
    }

    /// Checks whether the interface is down, or was deleted.
    fn recheck(&mut self, now: Instant) -> Result<(), DeviceError> {
        if now < self.recheck_at {
            return Ok(());
        }
        self.calls += 3;
        let link = self.socket.link();
        self.recheck_at = match link.map_err(failed("read the link's state"))? {
            Link::Up => now.after(UP_INTERVAL),
            Link::Down => now.after(DOWN_INTERVAL),
            Link::Removed => return Err(DeviceError::Removed),
        };
        Ok(())
    }
}

impl RxDescriptors for PacketRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        self.posted.refill(arena)
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.drained = false;
        if self.losses.are_due(now) {
            self.calls += 1;
            let read = self.losses.read(&self.socket);
            read.map_err(failed("read the drops"))?;
        }
        self.losses.report(burst);
        while !burst.exhausted() {
            if let Some(cutting) = self.cutting.take() {
                // Out of frames: the rest waits for the next refill.
                if !cutting.has_room(&self.posted, self.inbox.has_more()) {
                    self.cutting = Some(cutting);
                    return self.recheck(now);
                }
                match cutting.push(&mut self.posted, burst) {
                    Ok(rest) => self.cutting = rest,
                    Err(reason) => burst.bad(reason, 1),
                }
                continue;
            }
            if let Some(read) = self.inbox.take() {
                if let Err(reason) = self.push(read, burst) {
                    burst.bad(reason, 1);
                }
                continue;
            }
            let wanted = burst.budget();
            match self.inbox.fill(&self.socket, &mut self.posted, wanted) {
                Ok(true) => self.losses.may_be_more(),
                // Out of frames: the kernel keeps its packets until the next refill.
                Ok(false) => return self.recheck(now),
                Err(ReadError::Empty) => {
                    self.drained = true;
                    self.calls += 1;
                    return self.recheck(now);
                }
                // Packets from before may still wait.
                Err(ReadError::Down) => self.recheck_at = now,
                Err(ReadError::Lost) => burst.bad(DropReason::BadDescriptor, 1),
                Err(ReadError::Removed) => return Err(DeviceError::Removed),
                Err(ReadError::Failed(source)) => return Err(failed("read a packet")(source)),
            }
            self.calls += 1;
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        // Before a sleep that may last, the drops of the packets since the last one are read. An
        // error is the next poll's.
        let mut known = self.losses.is_known();
        if !known {
            self.calls += 1;
            known = self.losses.read(&self.socket).is_ok();
        }
        // The descriptor is readable while there are packets, so no wake-up is lost.
        if self.drained && known && self.losses.are_reported() {
            Armed::Idle
        } else {
            Armed::WorkPending
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        Some(self.recheck_at)
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

/// The transmitting half of a queue.
#[derive(Debug)]
pub struct PacketTx {
    socket: Socket,
    bypass_qdisc: bool,
    /// Attempts for which the kernel had no room, less those that it accepted.
    attempts: u32,
    calls: u64,
}

impl PacketTx {
    fn send(&mut self, packet: &mut TxPacket<'_>) -> Result<(), WriteError> {
        self.calls += 1;
        let socket = &self.socket;
        write_with(
            packet,
            Some(HEADER),
            |packet| socket.send(packet),
            |pieces, bytes| socket.send_pieces(pieces, bytes),
        )
    }

    /// The kernel had no room, or its device dropped the packet: the same error means both. So
    /// after a few attempts the packet is lost; each packet that is accepted permits another one.
    ///
    /// The kernel may have cut a GSO packet, and sent some of its segments: it must not get the
    /// packet again. With `qdisc=bypass` it sends all or nothing, and drops what it would have to
    /// cut: that is the reason if the device's TSO was switched off meanwhile.
    fn no_room(&mut self, packet: &Packet) -> Refused {
        let gso = packet.meta().gso;
        if gso.is_none() || self.bypass_qdisc {
            self.attempts = ATTEMPTS_MAX.min(self.attempts + 1);
            if self.attempts < ATTEMPTS_MAX {
                return Refused::NoMemory;
            }
        }
        self.calls += 3;
        match (self.socket.link().unwrap_or(Link::Up), gso) {
            (Link::Removed, _) => Refused::Removed,
            (Link::Down, _) => Refused::LinkDown,
            (Link::Up, Some(gso)) if self.bypass_qdisc && !self.socket.still_cuts_tcp() => {
                Refused::Feature(Features::of(gso.kind))
            }
            (Link::Up, _) => Refused::Bad(DropReason::DeviceRefused),
        }
    }
}

impl TxDescriptors for PacketTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        if packet.packet().bytes() < bytes_min(LinkType::Ethernet) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        mend(packet)?;
        match self.send(packet) {
            Ok(()) => {
                self.attempts = self.attempts.saturating_sub(1);
                Ok(Accepted::Complete)
            }
            Err(WriteError::NoMemory) => Err(self.no_room(packet.packet())),
            Err(error) => Err(refused(error, packet.packet())),
        }
    }

    fn mtu(&mut self) -> Option<u32> {
        self.calls += 3;
        self.socket.mtu().ok()
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Write))
    }

    fn doorbells(&self) -> u64 {
        self.calls
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::ArenaConfig;
    use packtrain_offload::offload::{Gso, GsoKind};
    use std::num::NonZeroU16;

    /// What happens to a packet for which the kernel has no room again and again.
    fn refusals(gso: Option<GsoKind>, bypass_qdisc: bool) -> Vec<Refused> {
        let file = std::fs::File::open("/dev/null").expect("a file");
        let mut tx = PacketTx {
            socket: Socket::of(file.into()),
            bypass_qdisc,
            attempts: 0,
            calls: 0,
        };
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        let mut packet = arena.packet_from(&[0; 60]).expect("memory");
        packet.meta_mut().gso = gso.map(|kind| Gso::new(kind, NonZeroU16::MIN));
        (0..5).map(|_| tx.no_room(&packet)).collect()
    }

    #[test]
    fn only_a_packet_that_the_kernel_has_not_cut_is_offered_again() {
        let lost = || Refused::Bad(DropReason::DeviceRefused);
        let again = || Refused::NoMemory;
        let each = [again(), again(), again(), lost(), lost()];
        assert_eq!(refusals(None, false), each);
        assert_eq!(refusals(None, true), each);
        assert_eq!(
            refusals(Some(GsoKind::TcpV4), false),
            [(); 5].map(|()| lost())
        );
        // Nor is an offload given up for a device that is full.
        assert_eq!(refusals(Some(GsoKind::TcpV6), true), each);
    }
}
