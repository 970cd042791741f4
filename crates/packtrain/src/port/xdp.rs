//! AF_XDP: an Ethernet interface that exists, whose driver hands packets over before the kernel's
//! stack has them.
//!
//! The small frames of the arena are the memory of the sockets (UMEM), so a packet that arrives is
//! in a frame of the arena, and is sent from one. A packet that is longer than a frame is in
//! several. The kernel's stack receives nothing from the queues that are opened.
//!
//! There are four rings for each queue. The RX half puts free frames into the *fill* ring and takes
//! packets from the *RX* ring; the TX half puts packets into the *TX* ring, and takes from the
//! *completion* ring what was sent.

mod keys;

pub use super::sys::xdp::open::{XdpConfig, XdpMode};
pub use keys::XdpOptions;

use super::sys::device::failed;
use super::sys::xdp::given::adopt;
use super::sys::xdp::open::{self as setup, Opened};
use super::sys::xdp::receive::Receiver;
use super::sys::xdp::send::{Sender, leave_checksum};
use super::vnet::bytes_min;
use crate::driver::{
    Accepted, Armed, Attach, Capabilities, Completed, DeviceCounters, DeviceError, Driver,
    Interest, Interface, Link, QueuePair, Refused, RxBurst, RxDescriptors, RxInfo, Token,
    TxDescriptors, TxMemory, TxPacket,
};
use crate::packet::{Arena, Packet};
use crate::stats::DropReason;
use crate::time::Instant;
use packtrain_offload::layout::Layout;
use packtrain_offload::limits::HEADER_BYTES_MAX;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_offload::verify::unfinished;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A socket that is kept busy reports its drops this often.
const DROPS_INTERVAL: Duration = Duration::from_millis(100);
/// The interface is checked this often, and this often while it is down.
const UP_INTERVAL: Duration = Duration::from_secs(1);
const DOWN_INTERVAL: Duration = Duration::from_millis(100);

/// Open AF_XDP sockets of an interface, and the program that gives them packets.
///
/// The program is attached, and passes every packet on to the kernel's stack until
/// [`Driver::attach`]. When the port is dropped, also by a kill, the kernel detaches the program
/// and ends the promiscuous mode: the queues receive nothing from then on.
#[derive(Debug)]
pub struct XdpSocket(Opened);

impl XdpSocket {
    /// Opens sockets in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Failed`] when the system refuses: no right, no AF_XDP.
    /// [`DeviceError::Unsupported`] when there is no such interface, it is no Ethernet interface,
    /// it has another program, or another socket has one of its queues.
    pub fn open(config: &XdpConfig) -> Result<Self, DeviceError> {
        Ok(Self(setup::open(config)?))
    }

    /// Takes over AF_XDP sockets, the first one for queue 0 of the interface `config.name` and so
    /// on, and `map`, the `XSKMAP` of a program that another process has attached. It needs no
    /// privilege; the thread is in the network namespace of the sockets and the interface. The
    /// sockets have neither memory nor rings and are not bound: [`attach`](Driver::attach) does all
    /// of it, and puts each socket into the map, by the number of its queue. When the queues are
    /// dropped, they take them out again: another process may keep the sockets open. The program
    /// stays.
    ///
    /// Of `config`, `queues` and `promiscuous` are not used: the process that opened the sockets
    /// makes the interface promiscuous. `mode` says where the program is attached: `Copy` and
    /// `ZeroCopy` in the driver, `Generic` in the stack. With `Auto`, in either, packets are
    /// copied, and their checksums are looked at as those of `Generic`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] when they are no such descriptors, or of another network
    /// namespace, or too many for the interface; [`DeviceError::Failed`] when the system refuses.
    pub fn from_fds(
        sockets: Vec<OwnedFd>,
        map: OwnedFd,
        config: &XdpConfig,
    ) -> Result<Self, DeviceError> {
        Ok(Self(adopt(sockets, map, config)?))
    }

    /// The number of sockets: that of the settings, or of the interface's channels.
    #[must_use]
    pub const fn queues(&self) -> usize {
        self.0.queues()
    }
}

impl Driver for XdpSocket {
    type Rx = XdpRx;
    type Tx = XdpTx;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues_max: self.0.queues(),
            rx: self.0.rx,
            tx: self.0.tx,
            tx_segments_max: self.0.segments_max(),
            tx_gso_segments_max: self.0.segments_max(),
            tx_memory: TxMemory::SmallFrames,
            tx_ring: Some(self.0.rings as usize),
            mtu: self.0.line.mtu().ok(),
            notes: self.0.notes.clone(),
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, how: &Attach, arena: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let halves = self
            .0
            .attach(how.queues, how.rx_buffers.small_bytes(), arena)?;
        let pairs = halves.into_iter().map(|(receiver, sender)| {
            let rx = XdpRx {
                receiver,
                finds_unfinished: !self.0.rx.is_empty(),
                counted: true,
                count_at: Instant::default(),
                recheck_at: Instant::default(),
                lost: 0,
                reported: 0,
                calls: 0,
            };
            let tx = XdpTx {
                sender,
                returned: None,
                doorbells: 0,
            };
            (rx, tx)
        });
        Ok(pairs.collect())
    }

    fn interface(&self) -> Option<Interface> {
        self.0.line.device.interface()
    }

    fn link(&mut self) -> Link {
        self.0.line.check()
    }

    /// Those of the interface. `None` in another network namespace without `CAP_NET_ADMIN` there.
    fn device_counters(&mut self) -> Option<DeviceCounters> {
        self.0.line.device.counters()
    }
}

/// The receiving half of a queue.
#[derive(Debug)]
pub struct XdpRx {
    receiver: Receiver,
    /// Checksums that the sender left to its device are looked for.
    finds_unfinished: bool,
    /// No packet was received since the drops were read.
    counted: bool,
    count_at: Instant,
    /// When the interface is checked again.
    recheck_at: Instant,
    /// Drops that the kernel has counted, and those of them that were reported.
    lost: u64,
    reported: u64,
    calls: u64,
}

impl XdpRx {
    /// What is known of a packet that has arrived.
    #[inline]
    fn info(&self, packet: &Packet) -> RxInfo {
        let mut info = RxInfo::default();
        if self.finds_unfinished {
            let headers = packet.first();
            let headers = headers.get(..HEADER_BYTES_MAX).unwrap_or(headers);
            let bytes = packet.bytes() as u32;
            info.layout = Layout::parse(LinkType::Ethernet, headers, bytes).ok();
            if let Some((start, offset)) = info.layout.and_then(|of| unfinished(headers, &of)) {
                info.checksum = ChecksumState::Partial { start, offset };
            }
        }
        info
    }

    fn count_drops(&mut self) -> std::io::Result<()> {
        self.calls += 1;
        self.lost = self.receiver.queue.socket.lost()?;
        self.counted = true;
        Ok(())
    }

    /// Checks whether the interface is down, or was deleted.
    fn recheck(&mut self, now: Instant) -> Result<(), DeviceError> {
        if now < self.recheck_at {
            return Ok(());
        }
        self.calls += 4;
        self.recheck_at = match self.receiver.queue.line.check() {
            Link::Up => now.after(UP_INTERVAL),
            Link::Down => now.after(DOWN_INTERVAL),
            Link::Removed => return Err(DeviceError::Removed),
        };
        Ok(())
    }
}

impl RxDescriptors for XdpRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        let is_full = self.receiver.refill(arena);
        // What arrives now is lost, and nothing else tells of it.
        self.counted &= !self.receiver.is_starved();
        is_full
    }

    fn receive(&mut self, now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        if !self.counted && now >= self.count_at {
            self.count_drops().map_err(failed("read the drops"))?;
            self.count_at = now.after(DROPS_INTERVAL);
        }
        if self.lost > self.reported && !burst.exhausted() {
            burst.bad(DropReason::SocketFull, self.lost - self.reported);
            self.reported = self.lost;
        }
        while !burst.exhausted() {
            let Some(arrived) = self.receiver.next() else {
                self.receiver.look_again();
                self.recheck(now)?;
                break;
            };
            self.counted = false;
            match arrived {
                Ok(packet) if packet.bytes() >= bytes_min(LinkType::Ethernet) => {
                    let info = self.info(&packet);
                    burst.push(packet, &info);
                }
                Ok(_short) => burst.bad(DropReason::Truncated, 1),
                Err(reason) => burst.bad(reason, 1),
            }
        }
        self.receiver.release();
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        // Before a sleep that may last, the drops of the packets since the last one are read. An
        // error is the next poll's.
        let counted = self.counted || self.count_drops().is_ok();
        // The descriptor is readable while there are packets, so no wake-up is lost.
        match self.receiver.is_empty() && counted && self.lost == self.reported {
            true => Armed::Idle,
            false => Armed::WorkPending,
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.receiver.queue.socket.as_fd(), Interest::Read))
    }

    fn next_at(&self) -> Option<Instant> {
        Some(self.recheck_at)
    }

    fn syscalls(&self) -> u64 {
        self.calls + self.receiver.calls()
    }
}

/// The transmitting half of a queue.
#[derive(Debug)]
pub struct XdpTx {
    sender: Sender,
    /// The completed packet for which the last call had no room.
    returned: Option<Token>,
    doorbells: u64,
}

impl TxDescriptors for XdpTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let whole = packet.packet();
        if whole.bytes() < bytes_min(LinkType::Ethernet) {
            return Err(Refused::Bad(DropReason::Truncated));
        }
        if self.sender.is_down() {
            self.sender.kick().map_err(|_gone| Refused::Removed)?;
            if self.sender.is_down() {
                return Err(Refused::LinkDown);
            }
        }
        let options = leave_checksum(packet)?;
        self.sender.put(packet.packet(), token, options)?;
        Ok(Accepted::Pending)
    }

    fn flush(&mut self, now: Instant) -> Result<(), DeviceError> {
        self.sender.publish();
        self.doorbells += 1;
        self.sender.kick_at(now)
    }

    fn reclaim(&mut self, now: Instant, completed: &mut Completed) {
        // What the kernel did not take at the doorbell.
        if let Err(error) = self.sender.kick_at(now) {
            completed.fail(error);
        }
        while let Some(token) = self.returned.take().or_else(|| self.sender.next_complete()) {
            if !completed.push(token) {
                self.returned = Some(token);
                break;
            }
        }
        self.sender.release();
    }

    /// The socket reports room in the ring, and not completions.
    fn arm(&mut self) -> Option<Armed> {
        self.sender.has_complete().then_some(Armed::WorkPending)
    }

    fn is_blocked(&self) -> bool {
        self.sender.is_down()
    }

    /// Also checks the link, for a port whose RX half is not polled.
    fn mtu(&mut self) -> Option<u32> {
        self.sender.queue.line.check();
        self.sender.queue.line.mtu().ok()
    }

    fn next_at(&self) -> Option<Instant> {
        self.sender.retry_at()
    }

    fn doorbells(&self) -> u64 {
        self.doorbells
    }

    fn syscalls(&self) -> u64 {
        self.sender.calls()
    }
}
