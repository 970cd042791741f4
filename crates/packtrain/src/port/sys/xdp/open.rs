//! Opens AF_XDP sockets of an interface: finds the best mode that its driver has, and attaches the
//! program.

use super::line::Line;
use super::program::{Hook, Program};
use super::receive::{Queue, Receiver};
use super::send::{Limits, Sender};
use super::socket::{METADATA_BYTES, Memory, Rings, Socket};
use crate::driver::{DeviceError, Features};
use crate::limits::{HEADROOM_BYTES, QUEUES_MAX, SMALL_FRAME_BYTES};
use crate::name::Name;
use crate::packet::Arena;
use crate::port::sys::device::{Device, failed, unsupported};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Descriptors of each ring, unless configured otherwise.
const RING_ENTRIES: usize = 1024;
/// The least and the most that can be configured.
pub(in crate::port) const RING_ENTRIES_MIN: usize = 256;
pub(in crate::port) const RING_ENTRIES_MAX: usize = 4096;
/// Packets that a device may hand over in a system call, at most (`NAPI_POLL_WEIGHT` of Linux).
pub(in crate::port) const BUSY_POLL_MAX: u16 = 64;
/// Bytes of packets that the kernel may have copied and not sent: a full ring of long packets.
const BUFFER_BYTES: usize = 16 << 20;
/// Segments of a packet that the kernel copies (`MAX_SKB_FRAGS`). Most drivers have one more,
/// beside the fragments; for those of `IFF_TX_SKB_NO_LINEAR` the first one is a fragment as well.
const COPIED_SEGMENTS_MAX: usize = 17;
/// Segments of a packet that a driver sends without a copy: as many as each driver with several
/// takes (i40e and ice).
const ZERO_COPY_SEGMENTS_MAX: usize = 8;
/// The kernel frees a queue that another socket has left later, in a work queue: attempts to bind,
/// and the time to the next one.
const ATTEMPTS_MAX: usize = 2000;
const RETRY: Duration = Duration::from_millis(1);
/// `ETHTOOL_GDRVINFO`, `ETHTOOL_GCHANNELS` and `ETHTOOL_GFLAGS` (linux/ethtool.h), and the words of
/// their structures.
const GET_DRIVER: u32 = 0x03;
const DRIVER_WORDS: usize = 49;
const GET_CHANNELS: u32 = 0x3c;
const CHANNELS_WORDS: usize = 9;
const GET_FLAGS: u32 = 0x25;
const FLAGS_WORDS: usize = 2;
/// The device takes VLAN tags out of packets that it receives (`ETH_FLAG_RXVLAN`).
const TAKES_TAGS: u32 = 1 << 8;

/// How packets come from the driver to the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// The first that works of: zero copy, copy, generic.
    #[default]
    Auto,
    /// The device writes to the packets' memory. Only drivers with support for AF_XDP have it.
    ZeroCopy,
    /// The program runs in the driver, and the kernel copies packets.
    Copy,
    /// The program runs in the kernel's stack, for any driver, and the kernel copies packets.
    Generic,
}

/// The interface to open, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The interface's name. It exists, and is an Ethernet interface.
    pub name: String,
    /// Sockets to open, one for each of the first queues; `None` for all that receive and send.
    pub queues: Option<usize>,
    /// How packets come from the driver.
    pub mode: XdpMode,
    /// Offloads of packets to the interface, at most: checksums.
    pub offload: Features,
    /// Receive packets for any address, which a bridge needs.
    pub promiscuous: bool,
    /// Descriptors of each ring, and frames that wait for packets: a power of two from 256 to 4096.
    /// `None` for 1024.
    pub rings: Option<usize>,
    /// Packets that the device hands over within each system call for a socket, in the calling
    /// thread, where interrupts are put off (`SO_PREFER_BUSY_POLL`): 1 to 64. An RX half then makes
    /// a call in each poll that finds nothing. `None` for interrupts alone.
    pub busy_poll: Option<u16>,
}

impl XdpConfig {
    /// All queues of the interface `name`, with every offload, promiscuous.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            queues: None,
            mode: XdpMode::Auto,
            offload: Features::ALL,
            promiscuous: true,
            rings: None,
            busy_poll: None,
        }
    }
}

/// What a socket of the interface can do, as a bind of one has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) zero_copy: bool,
    /// Packets may be in several frames.
    pub(super) several: bool,
    /// The kernel reads metadata in front of packets to send.
    pub(super) metadata: bool,
}

impl Granted {
    const fn flags(self) -> u16 {
        let copy = match self.zero_copy {
            true => libc::XDP_ZEROCOPY,
            false => libc::XDP_COPY,
        };
        let several = if self.several { libc::XDP_USE_SG } else { 0 };
        copy | several | libc::XDP_USE_NEED_WAKEUP
    }
}

/// The sockets of an interface, and the program.
#[derive(Debug)]
pub(in crate::port) struct Opened {
    /// The interface's name.
    pub(in crate::port) name: String,
    pub(in crate::port) line: Arc<Line>,
    /// Descriptors of each ring.
    pub(in crate::port) rings: u32,
    /// Offloads of packets to the interface, and from it.
    pub(in crate::port) tx: Features,
    pub(in crate::port) rx: Features,
    /// Where the search for a mode stopped and why, and the settings that were refused.
    pub(in crate::port) notes: Vec<String>,
    granted: Granted,
    promiscuous: bool,
    polls_busily: bool,
    program: Arc<Program>,
    /// One for each queue, until they are bound.
    sockets: Vec<Socket>,
    queues: usize,
}

/// Opens sockets in the network namespace of the calling thread, and attaches the program. Packets
/// go to the kernel's stack until [`Opened::attach`].
pub(in crate::port) fn open(config: &XdpConfig) -> Result<Opened, DeviceError> {
    let place = Place::new(Device::open(&config.name)?, config, config.queues)?;
    let sockets = (0..place.queues).map(|_| Socket::open());
    let sockets = sockets.collect::<io::Result<_>>();
    let sockets = sockets.map_err(failed("open an AF_XDP socket"))?;
    let Place { name, line, .. } = &place;
    let mut notes = Vec::new();
    let channels = place.channels.both as u32;
    let (program, granted) = find_mode(config.mode, name, line, channels, &mut notes)?;
    Opened::new(place, config, sockets, program, granted, notes)
}

/// An interface, and what is opened of it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) line: Line,
    rings: u32,
    pub(super) queues: usize,
    channels: Channels,
}

impl Place {
    /// Checks the settings. Without `queues` it is all that receive and send.
    pub(super) fn new(
        device: Device,
        config: &XdpConfig,
        queues: Option<usize>,
    ) -> Result<Self, DeviceError> {
        let rings = config.rings.unwrap_or(RING_ENTRIES);
        if !rings.is_power_of_two() || !(RING_ENTRIES_MIN..=RING_ENTRIES_MAX).contains(&rings) {
            return unsupported(format!(
                "rings of {rings} descriptors: the kernel takes powers of two; use 256, 512, \
                 1024, 2048 or 4096"
            ));
        }
        if let Some(packets) = config.busy_poll
            && !(1..=BUSY_POLL_MAX).contains(&packets)
        {
            return unsupported(format!(
                "busy polling of {packets} packets at a time: use 1 to {BUSY_POLL_MAX}"
            ));
        }
        let name = device.ethernet("xdp")?;
        let channels = channels(&device);
        let most = channels.both.min(QUEUES_MAX);
        let queues = queues.unwrap_or(most);
        if queues == 0 || queues > most {
            let both = channels.both;
            return unsupported(format!(
                "{queues} queues for {name}, which has {both} that receive and send: use 1 to \
                 {both} (`ethtool -L {name}` changes how many it has)"
            ));
        }
        Ok(Self {
            name,
            line: Line::new(device),
            rings: rings as u32,
            queues,
            channels,
        })
    }
}

/// Attaches the program, and binds a socket to see what the driver grants.
fn find_mode(
    mode: XdpMode,
    name: &str,
    line: &Line,
    channels: u32,
    notes: &mut Vec<String>,
) -> Result<(Program, Granted), DeviceError> {
    let index = line.device.index();
    let attach = |hook| match Program::attach(index, channels, hook) {
        Err(error) if is_taken(&error) => unsupported(match holder(index) {
            Some(holder) => format!("{name} has the XDP program of {holder}: end that process"),
            None => format!(
                "{name} has another XDP program: detach it with `ip link set dev {name} xdp off`, \
                 or if it is a BPF link with `bpftool link detach id N`; `ip -details link show \
                 dev {name}` and `bpftool link` show it"
            ),
        }),
        attached => Ok(attached),
    };
    let native = match mode {
        XdpMode::Generic => None,
        _ => Some(attach(Hook::Native)?),
    };
    let program = match native {
        Some(Ok(program)) => program,
        Some(Err(error)) if mode != XdpMode::Auto => {
            return Err(failed("attach an XDP program in the driver")(error));
        }
        refused => {
            if let Some(Err(error)) = refused {
                notes.push(format!(
                    "packets come in generic mode: the driver takes no XDP program: {error}"
                ));
            }
            let generic = attach(Hook::Generic)?;
            let program = generic.map_err(failed("attach an XDP program"))?;
            return Ok((program, probe(name, line, false)?.map_err(failed(BIND))?));
        }
    };
    if mode != XdpMode::Copy {
        match probe(name, line, true)? {
            Ok(granted) => return Ok((program, granted)),
            Err(error) if mode == XdpMode::ZeroCopy && is_busy(&error) => {
                return Err(in_use(name, 0));
            }
            Err(error) if mode == XdpMode::ZeroCopy => return Err(no_zero_copy(name, &error)),
            Err(error) => notes.push(format!(
                "packets come in copy mode: the driver has no zero copy: {error}"
            )),
        }
    }
    Ok((program, probe(name, line, false)?.map_err(failed(BIND))?))
}

const BIND: &str = "bind an AF_XDP socket to the interface";
const RINGS: &str = "make the rings of an AF_XDP socket (a given one must have none yet)";
const BUSY_POLL: &str = "set busy polling (busy-poll= needs Linux 5.11, and CAP_NET_ADMIN of the \
                         host; leave it out)";
const REGISTER: &str = "register the memory of packets (the kernel pins it: run with CAP_IPC_LOCK, \
                        or raise the limit of locked memory, `ulimit -l`)";

/// Binds a socket to the first queue and closes it again: what it has been granted. Packets in
/// several frames need Linux 6.6, metadata 6.11.
fn probe(name: &str, line: &Line, zero_copy: bool) -> Result<io::Result<Granted>, DeviceError> {
    // Zero copy reads no metadata unless the device computes checksums by it, which it does not
    // report to a socket.
    let attempts = [(true, true), (true, false), (false, false)];
    let mut refused = io::Error::from(io::ErrorKind::Unsupported);
    let fits_a_frame = line.fits_a_frame().map_err(failed("read the MTU"))?;
    for (several, metadata) in attempts {
        let granted = Granted {
            zero_copy,
            several,
            metadata,
        };
        if (zero_copy && metadata) || (!several && !fits_a_frame) {
            continue;
        }
        match probe_with(name, line, granted) {
            Ok(()) => return Ok(Ok(granted)),
            Err(Refusal::Mode(error)) => refused = error,
            Err(Refusal::Device(error)) => return Err(error),
        }
    }
    Ok(Err(refused))
}

/// Why a socket was not bound.
enum Refusal {
    /// Another mode may work.
    Mode(io::Error),
    Device(DeviceError),
}

fn probe_with(name: &str, line: &Line, granted: Granted) -> Result<(), Refusal> {
    /// Aligned for every page size of Linux.
    const ALIGNMENT: usize = 65_536;
    let system = |error| Refusal::Device(failed(BIND)(error));
    // No frame of it is given to the kernel, so it writes to none.
    let memory = vec![0_u8; 2 * ALIGNMENT];
    let start = memory.as_ptr().addr().next_multiple_of(ALIGNMENT);
    let socket = Socket::open().map_err(system)?;
    let memory = Memory {
        frames: start..start + ALIGNMENT,
        frame_bytes: SMALL_FRAME_BYTES as u32,
        headroom: 0,
        metadata: granted.metadata,
    };
    match socket.register(&memory) {
        // A kernel that does not know the metadata.
        Err(error) if granted.metadata && error.kind() == io::ErrorKind::InvalidInput => {
            return Err(Refusal::Mode(error));
        }
        registered => registered.map_err(|error| Refusal::Device(failed(REGISTER)(error)))?,
    }
    socket.size_rings(2).map_err(system)?;
    let bound = retried(|| socket.bind(line.device.index(), 0, granted.flags()));
    // In zero-copy mode something else of the driver may be in use: copy mode shows which it is.
    bound.map_err(|error| match is_busy(&error) && !granted.zero_copy {
        true => Refusal::Device(in_use(name, 0)),
        false => Refusal::Mode(error),
    })
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}

/// Binds a socket, also to a queue that the kernel has yet to free.
fn retried(bind: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 1..ATTEMPTS_MAX {
        match bind() {
            Err(error) if is_busy(&error) => std::thread::sleep(RETRY),
            bound => return bound,
        }
    }
    bind()
}

fn in_use(name: &str, queue: u32) -> DeviceError {
    DeviceError::Unsupported(format!(
        "another AF_XDP socket is bound to queue {queue} of {name}: end the program that has it"
    ))
}

fn no_zero_copy(name: &str, error: &io::Error) -> DeviceError {
    DeviceError::Unsupported(format!(
        "{name} has no zero-copy mode ({error}): use mode=auto or mode=copy"
    ))
}

/// The process of this network namespace that holds the link (`bpf_link`) of an XDP program of an
/// interface, as `NAME (process N)`. `None` if there is none, or this user may not see it.
fn holder(interface: u32) -> Option<String> {
    let of_interface = format!("ifindex:\t{interface}");
    let is_link = |file: fs::DirEntry| {
        // It may be closed meanwhile.
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        let has = |line: &str| text.lines().any(|one| one == line);
        has("link_type:\txdp") && has(&of_interface)
    };
    let own = fs::read_link("/proc/thread-self/ns/net").ok()?;
    let is_here = |process: &Path| {
        let tasks = fs::read_dir(process.join("task")).into_iter().flatten();
        let mut spaces = tasks
            .flatten()
            .map(|task| fs::read_link(task.path().join("ns/net")));
        spaces.any(|space| space.is_ok_and(|space| space == own))
    };
    let mut processes = fs::read_dir("/proc").ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    let found = processes.find(|process| {
        let files = fs::read_dir(process.path().join("fdinfo"));
        is_here(&process.path()) && files.into_iter().flatten().flatten().any(is_link)
    })?;
    let name = fs::read_to_string(found.path().join("comm")).ok()?;
    let (name, number) = (Name::from(name.trim_end()), Name::from(found.file_name()));
    Some(format!("{name} (process {number})"))
}

/// Whether another program is attached.
fn is_taken(error: &io::Error) -> bool {
    let taken = [libc::EBUSY, libc::EEXIST];
    error
        .raw_os_error()
        .is_some_and(|errno| taken.contains(&errno))
}

/// The channels of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Channels {
    receive: usize,
    /// Those that also send: of a queue that only receives, the kernel takes packets to send and
    /// sends none.
    both: usize,
}

/// The channels of the interface; one if its driver does not report them.
fn channels(device: &Device) -> Channels {
    let mut request = [0; CHANNELS_WORDS];
    request[0] = GET_CHANNELS;
    let answer = device.control().ethtool(device.index(), request);
    // After the four maxima: for RX, for TX, for other events, for RX and TX.
    let (rx, tx, both) = answer.map_or((0, 0, 1), |of| (of[5], of[6], of[8]));
    Channels {
        receive: (rx + both).max(1) as usize,
        both: (rx.min(tx) + both).max(1) as usize,
    }
}

/// A note about VLAN tags beside the bytes of a packet: XDP has no place for them.
fn lost_tags(name: &str, device: &Device, is_veth: bool) -> Option<String> {
    if is_veth {
        return Some(format!(
            "a VLAN interface on the other end of {name} sends packets that arrive without their \
             tags; if there is one, run `ethtool -K PEER txvlan off` for the other end, PEER"
        ));
    }
    let answer = device.control().ethtool(device.index(), [GET_FLAGS, 0]);
    let takes = answer.is_ok_and(|of: [u32; FLAGS_WORDS]| of[1] & TAKES_TAGS != 0);
    takes.then(|| {
        format!(
            "{name} may take VLAN tags out of packets, which arrive without them then; `ethtool -K \
             {name} rxvlan off` has it leave them"
        )
    })
}

/// Whether the interface is one end of a veth pair.
fn is_veth(device: &Device) -> bool {
    let mut request = [0; DRIVER_WORDS];
    request[0] = GET_DRIVER;
    let answer = device.control().ethtool(device.index(), request);
    // The driver's name is behind the command.
    answer.is_ok_and(|of| of[1].to_ne_bytes() == *b"veth" && of[2].to_ne_bytes()[0] == 0)
}

impl Opened {
    /// Prepares the sockets, which have no rings yet: one for each queue.
    pub(super) fn new(
        place: Place,
        config: &XdpConfig,
        sockets: Vec<Socket>,
        program: Program,
        granted: Granted,
        mut notes: Vec<String>,
    ) -> Result<Self, DeviceError> {
        let Place {
            name,
            line,
            rings,
            queues,
            channels,
        } = place;
        for socket in &sockets {
            let set = socket.set_buffer(BUFFER_BYTES);
            set.map_err(failed("set the socket's buffer"))?;
            socket.size_rings(rings).map_err(failed(RINGS))?;
            if let Some(packets) = config.busy_poll {
                socket.poll_busily(packets).map_err(failed(BUSY_POLL))?;
            }
        }
        let receive = channels.receive;
        if queues < receive {
            notes.push(format!(
                "{queues} of {receive} queues are opened: packets of the others go to the \
                 kernel's stack"
            ));
        }
        let is_veth = is_veth(&line.device);
        notes.extend(lost_tags(&name, &line.device, is_veth));
        let says_so = !program.is_given() || config.mode == XdpMode::Generic;
        if program.hook == Hook::Generic && says_so {
            notes.push(format!(
                "in generic mode a large packet of a sender with TSO or USO arrives whole and \
                 without its sizes, so that it is longer than the MTU and dropped (drop.mtu); if \
                 the other end of {name} has them, run `ethtool -K PEER tso off gso off \
                 tx-udp-segmentation off` there, or use packet:{name}"
            ));
        }
        let tx = match granted.metadata {
            true => Features::CSUM.intersection(config.offload),
            false => Features::NONE,
        };
        // Packets of the host's own senders, or of a guest, may have checksums that were left to
        // a device, and XDP does not say so: a veth passes such packets on, and in generic mode any
        // driver may. Whatever the settings say: without this, what arrives could not be passed on.
        let rx = match is_veth || program.hook == Hook::Generic {
            true => Features::CSUM,
            false => Features::NONE,
        };
        Ok(Self {
            name,
            line: Arc::new(line),
            rings,
            tx,
            rx,
            notes,
            granted,
            promiscuous: config.promiscuous,
            polls_busily: config.busy_poll.is_some(),
            program: Arc::new(program),
            sockets,
            queues,
        })
    }

    pub(in crate::port) const fn queues(&self) -> usize {
        self.queues
    }

    /// The most segments of a packet to send.
    pub(in crate::port) const fn segments_max(&self) -> usize {
        match self.granted {
            Granted { several: false, .. } => 1,
            Granted {
                zero_copy: true, ..
            } => ZERO_COPY_SEGMENTS_MAX,
            Granted { .. } => COPIED_SEGMENTS_MAX,
        }
    }

    /// Makes the rings of the first `queues` sockets, which have their packets in the small frames
    /// of `arena`, at most `piece` bytes in each, and binds them: from then on packets arrive. The
    /// other sockets are closed. Makes the interface promiscuous.
    pub(in crate::port) fn attach(
        &mut self,
        queues: usize,
        piece: usize,
        arena: &Arena,
    ) -> Result<Vec<(Receiver, Sender)>, DeviceError> {
        let (name, has) = (&self.name, self.sockets.len());
        if queues == 0 || queues > has {
            return unsupported(format!(
                "{queues} queues for {name}, of which {has} are open"
            ));
        }
        if self.promiscuous && !self.program.is_given() {
            let device = &self.line.device;
            let set = device.control().set_promiscuous(device.index());
            set.map_err(failed("make the interface promiscuous"))?;
        }
        let frames = arena.small_frames();
        let sockets = std::mem::take(&mut self.sockets);
        let mut halves: Vec<(Receiver, Sender)> = Vec::with_capacity(queues);
        for (queue, socket) in sockets.into_iter().take(queues).enumerate() {
            let rings = self.make_rings(&socket, queue == 0, &frames, piece)?;
            let line = Arc::clone(&self.line);
            let shared = Queue::new(socket, line, self.granted.zero_copy, self.polls_busily);
            let shared = Arc::new(shared);
            let of = (Arc::clone(&shared), frames.clone());
            let mut receiver = Receiver::new(rings.fill, rings.rx, of.0, of.1, self.rings);
            // First: some drivers send nothing either while they have no frames to receive into.
            receiver.refill(arena);
            let owner = halves.first().map(|(first, _)| &first.queue.socket);
            self.bind(&shared.socket, queue as u32, owner)?;
            if self.program.is_given() {
                shared.enter(&self.program, queue as u32);
            }
            let limits = Limits {
                segments_max: self.segments_max(),
                front_bytes: if self.granted.metadata {
                    METADATA_BYTES
                } else {
                    0
                },
            };
            let frames = frames.clone();
            let sender = Sender::new(
                rings.tx,
                rings.completion,
                shared,
                frames,
                self.rings,
                limits,
            );
            halves.push((receiver, sender));
        }
        Ok(halves)
    }

    /// Makes the rings of a socket. The first socket of the port registers `frames`, of which
    /// received packets take at most `piece` bytes each.
    fn make_rings(
        &self,
        socket: &Socket,
        owns: bool,
        frames: &Range<usize>,
        piece: usize,
    ) -> Result<Rings, DeviceError> {
        if owns {
            let memory = Memory {
                frames: frames.clone(),
                frame_bytes: SMALL_FRAME_BYTES as u32,
                headroom: (SMALL_FRAME_BYTES - HEADROOM_BYTES - piece) as u32,
                metadata: self.granted.metadata,
            };
            socket.register(&memory).map_err(failed(REGISTER))?;
        }
        let mapped = socket.map_rings(self.rings);
        mapped.map_err(failed("map the rings of an AF_XDP socket"))
    }

    /// Binds a socket to its queue: from now on packets arrive. `owner` has registered the memory,
    /// if it is another one.
    fn bind(&self, socket: &Socket, queue: u32, owner: Option<&Socket>) -> Result<(), DeviceError> {
        let index = self.line.device.index();
        let bound = retried(|| match owner {
            None => socket.bind(index, queue, self.granted.flags()),
            Some(owner) => socket.bind_shared(index, queue, owner.as_fd()),
        });
        bound.map_err(|error| match (is_busy(&error), self.granted.zero_copy) {
            (true, _) => in_use(&self.name, queue),
            (false, true) => no_zero_copy(&self.name, &error),
            (false, false) => failed(BIND)(error),
        })?;
        let set = self.program.set(queue, socket.as_fd());
        set.map_err(failed("give a queue's packets to its socket"))
    }
}
