//! Opens packet sockets of an interface, by system calls whose order matters.

pub(in crate::port) use super::device::failed;
use super::device::{Device, index_of, unsupported};
use super::socket::{Fanout, Socket};
use crate::driver::{DeviceError, Features, RxBurst};
use crate::limits::QUEUES_MAX;
use crate::stats::DropReason;
use crate::time::Instant;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Bytes of kernel memory for packets that wait: a few hundred large ones.
const BUFFER_BYTES: usize = 16 << 20;
/// The drops of a socket that is kept busy are read this often.
const LOSSES_INTERVAL: Duration = Duration::from_millis(100);
/// Offloads of packets in both directions.
pub(in crate::port) const OFFLOADS: Features =
    Features::CSUM.union(Features::TSO).union(Features::USO);

/// The interface to open, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketConfig {
    /// The interface's name. It exists, and is an Ethernet interface.
    pub name: String,
    /// Sockets to open: 1 to [`QUEUES_MAX`].
    pub queues: usize,
    /// Offloads of packets to the interface, at most. What arrives has the offloads that the kernel
    /// gives it.
    pub offload: Features,
    /// How packets are distributed over several queues.
    pub fanout: Fanout,
    /// Receive packets for any address, which a bridge needs.
    pub promiscuous: bool,
    /// Send without the interface's queueing discipline. It costs less for each packet; its limits,
    /// order and statistics no longer apply. The kernel would drop GSO packets that the device
    /// cannot cut itself, so packtrain cuts them then: those of TCP if the device has no TSO, and
    /// those of UDP and of TCP with CWR always, since the kernel does not say that in one number.
    pub bypass_qdisc: bool,
    /// Bytes of kernel memory for packets that wait in each queue, in each direction; `None` for
    /// 16 MiB.
    pub buffer: Option<usize>,
}

impl PacketConfig {
    /// One queue of the interface `name`, with every offload, promiscuous.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            queues: 1,
            offload: Features::ALL,
            fanout: Fanout::Hash,
            promiscuous: true,
            bypass_qdisc: false,
            buffer: None,
        }
    }
}

/// Sockets that are open, and their interface.
#[derive(Debug)]
pub(in crate::port) struct Opened {
    /// The settings, with the interface's name and the number of sockets.
    pub(in crate::port) config: PacketConfig,
    /// By a socket of the first queue.
    pub(in crate::port) device: Device,
    /// At least one, until they are bound.
    sockets: Vec<Socket>,
    /// Offloads of packets to the interface.
    pub(in crate::port) tx: Features,
    /// The requested settings that were refused, in sentences.
    pub(in crate::port) notes: Vec<String>,
}

/// Opens sockets in the network namespace of the calling thread.
pub(in crate::port) fn open(config: &PacketConfig) -> Result<Opened, DeviceError> {
    let queues = config.queues;
    if queues == 0 || queues > QUEUES_MAX {
        let name = &config.name;
        return unsupported(format!("{queues} queues for {name}: use 1 to {QUEUES_MAX}"));
    }
    let sockets = (0..queues).map(|_| Socket::open().map_err(failed("open a packet socket")));
    let sockets = sockets.collect::<Result<_, _>>()?;
    let namespace = File::open("/proc/thread-self/ns/net").ok();
    Opened::new(config.clone(), sockets, namespace)
}

/// Takes over sockets.
pub(in crate::port) fn adopt(
    fds: Vec<OwnedFd>,
    config: &PacketConfig,
) -> Result<Opened, DeviceError> {
    if fds.is_empty() || fds.len() > QUEUES_MAX {
        let count = fds.len();
        return unsupported(format!("{count} descriptors: give 1 to {QUEUES_MAX}"));
    }
    let mut sockets = Vec::with_capacity(fds.len());
    for fd in fds {
        let adopted = Socket::from_fd(fd).map_err(failed("use the given descriptor"))?;
        let Some(socket) = adopted else {
            return unsupported(
                "the descriptor is no packet socket: open it with socket(AF_PACKET, SOCK_RAW, 0)"
                    .to_owned(),
            );
        };
        sockets.push(socket);
    }
    let namespace = sockets[0].namespace().ok();
    Opened::new(config.clone(), sockets, namespace)
}

impl Opened {
    fn new(
        mut config: PacketConfig,
        sockets: Vec<Socket>,
        namespace: Option<File>,
    ) -> Result<Self, DeviceError> {
        let control = sockets[0].try_clone().map_err(failed(DUPLICATE))?;
        let index = interface_of(&sockets, &config.name)?;
        let device = Device::new(control, index, namespace);
        config.name = device.ethernet("packet")?;
        config.queues = sockets.len();
        let name = &config.name;
        let mut notes = Vec::new();
        let buffer = config.buffer.unwrap_or(BUFFER_BYTES);
        let mut least = usize::MAX;
        for socket in &sockets {
            socket.set_up().map_err(failed(SET_UP))?;
            let granted = socket.set_buffers(buffer);
            least = least.min(granted.map_err(failed("set the socket's buffers"))?);
            if config.bypass_qdisc {
                let bypassed = socket.bypass_qdisc();
                bypassed.map_err(failed("send without the queueing discipline"))?;
            }
        }
        if least < buffer {
            notes.push(format!(
                "the kernel keeps at most {least} bytes for {name}, not {buffer}: bursts may be \
                 lost; run with CAP_NET_ADMIN of the host (not of a user namespace), or raise \
                 net.core.rmem_max"
            ));
        }
        if !config.offload.contains(OFFLOADS) {
            notes.push(format!(
                "packets from {name} have the offloads that its kernel gives them, whatever \
                 offload= says: to change those, ethtool -K"
            ));
        }
        let mut tx = OFFLOADS.intersection(config.offload);
        if config.bypass_qdisc {
            tx = tx.without(Features::USO | Features::TSO_ECN);
            // One that does not say cuts nothing.
            if !device.control().cuts_tcp(index).unwrap_or(false) {
                tx = tx.without(Features::TSO);
            }
        }
        Ok(Self {
            tx: tx.consistent(),
            config,
            device,
            sockets,
            notes,
        })
    }

    /// Binds the first `queues` sockets, and returns them. The others are closed: the kernel must
    /// not give packets to a queue that is not read.
    pub(in crate::port) fn bind(&mut self, queues: usize) -> Result<Vec<Socket>, DeviceError> {
        let mut sockets = std::mem::take(&mut self.sockets);
        let (name, has) = (&self.config.name, sockets.len());
        if queues == 0 || queues > has {
            return unsupported(format!(
                "{queues} queues for {name}, of which {has} are open"
            ));
        }
        sockets.truncate(queues);
        self.bind_all(&sockets)?;
        Ok(sockets)
    }

    /// Between its binding and its joining the group, a socket would receive the packets of all
    /// queues, so it accepts none yet. An embedder's filter stays, though. A socket of a protocol
    /// that is not bound yet has received the packets of all interfaces, and one that is bound and
    /// in no group those of all queues: what waits in them is not the port's.
    fn bind_all(&self, sockets: &[Socket]) -> Result<(), DeviceError> {
        let index = self.device.index();
        let several = sockets.len() > 1;
        let (mut changed, mut filtered) = (Vec::new(), Vec::new());
        for socket in sockets {
            let bound = socket.bound_to().map_err(failed("read the binding"))? != 0;
            if bound && !several {
                continue;
            }
            changed.push(socket);
            if !socket.has_filter().map_err(failed("read the filter"))? {
                socket.refuse_all().map_err(failed(FILTER))?;
                filtered.push(socket);
            }
            if !bound {
                let bound = socket.bind(index);
                bound.map_err(failed("bind to the interface"))?;
            }
        }
        if let [first, others @ ..] = sockets
            && !others.is_empty()
        {
            let fanout = self.config.fanout;
            let group = first.found_group(fanout).map_err(failed(FANOUT))?;
            for other in others {
                other.join_group(group, fanout).map_err(failed(FANOUT))?;
            }
        }
        if self.config.promiscuous {
            let set = sockets[0].set_promiscuous(index);
            set.map_err(failed("make the interface promiscuous"))?;
        }
        for socket in changed {
            socket.discard().map_err(failed("drop what waits"))?;
        }
        for socket in filtered {
            // The group's hook ignores the host's own packets only since Linux 6.2.
            let accept = match several {
                true => socket.accept_incoming(),
                false => socket.accept_all(),
            };
            accept.map_err(failed(FILTER))?;
        }
        Ok(())
    }
}

pub(in crate::port) const DUPLICATE: &str = "duplicate the descriptor";
const SET_UP: &str = "set up a packet socket (a given one must have no ring, PACKET_RX_RING)";
const FANOUT: &str = "distribute packets over several queues (a given socket must be in no fanout \
                      group yet; before Linux 6.13 the interface must be up)";
const FILTER: &str = "set the filter of a socket (SO_LOCK_FILTER must not be set)";

/// The interface that the sockets are bound to, or else `name`.
fn interface_of(sockets: &[Socket], name: &str) -> Result<u32, DeviceError> {
    let named = (!name.is_empty()).then(|| index_of(&sockets[0], name));
    let mut index = named.transpose()?;
    for socket in sockets {
        let bound = socket.bound_to().map_err(failed("read the binding"))?;
        let bound = u32::try_from(bound).map_err(|_negative| DeviceError::Removed)?;
        match index {
            _ if bound == 0 => {}
            Some(index) if bound != index => {
                let is = socket.name_of(bound).map_err(failed("read its name"))?;
                return unsupported(format!(
                    "the given socket is bound to {is}, and not to the same interface as the rest"
                ));
            }
            _ => index = Some(bound),
        }
    }
    index.ok_or_else(|| {
        DeviceError::Unsupported("the given sockets are not bound: name the interface".to_owned())
    })
}

/// Packets that the kernel dropped in front of a socket, as the port reports them.
#[derive(Debug, Default)]
pub(in crate::port) struct Losses {
    /// A packet was received since they were read.
    stale: bool,
    read_at: Instant,
    /// That were read and not reported yet: the socket had no room, or could not describe them.
    full: u64,
    undescribed: u64,
}

impl Losses {
    /// A packet was received: some may have been dropped behind it.
    pub(in crate::port) const fn may_be_more(&mut self) {
        self.stale = true;
    }

    /// Whether none can have been dropped since they were read.
    pub(in crate::port) const fn is_known(&self) -> bool {
        !self.stale
    }

    /// Whether to [`read`](Self::read) them now, of a socket that is kept busy.
    pub(in crate::port) fn are_due(&mut self, now: Instant) -> bool {
        let due = self.stale && now >= self.read_at;
        if due {
            self.read_at = now.after(LOSSES_INTERVAL);
        }
        due
    }

    /// Reads them: a system call.
    pub(in crate::port) fn read(&mut self, socket: &Socket) -> std::io::Result<()> {
        self.full += u64::from(socket.drops()?);
        self.undescribed += socket.undescribed();
        self.stale = false;
        Ok(())
    }

    /// Reports what was read, if the burst has room.
    pub(in crate::port) fn report(&mut self, burst: &mut RxBurst<'_>) {
        let full = (DropReason::SocketFull, &mut self.full);
        let undescribed = (DropReason::BadDescriptor, &mut self.undescribed);
        for (reason, count) in [full, undescribed] {
            if *count > 0 && !burst.exhausted() {
                burst.bad(reason, std::mem::take(count));
            }
        }
    }

    /// Whether all that were read are reported.
    pub(in crate::port) const fn are_reported(&self) -> bool {
        self.full == 0 && self.undescribed == 0
    }
}
