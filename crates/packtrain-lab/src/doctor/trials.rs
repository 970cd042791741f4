//! Everything that is tried. Each trial closes what it opened.

use packtrain::name::Name;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use libc::c_int;
use nix::unistd::geteuid;
use packtrain::driver::{Driver, Features, Port};
use packtrain::engine::{Session, Settings, arena_config};
use packtrain::packet::{Arena, ArenaConfig, memory_available};
use packtrain::policy::priority::Priority;
use packtrain::port::open;
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use socket2::{Domain, Socket, Type};

use crate::error::Missing;
use crate::link::Rtnl;
use crate::netns::{self, Netns};
use crate::traffic::udp;
use crate::{LabError, rootless, sys, tap};

/// An index that no interface has: the kernel counts them from 1.
const NO_INTERFACE: u32 = i32::MAX.unsigned_abs();

/// The results of all trials. A number in an error is an `errno`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trials {
    /// The path of the program, for a command that runs it again.
    pub program: String,
    /// The process is of user 0, as the system sees it.
    pub superuser: bool,
    /// The process may administer the network namespace that it was started in.
    pub admin: bool,
    /// A user namespace was made; `None` if the process needs none.
    pub user_namespace: Option<Result<(), Missing>>,
    /// A network namespace was made.
    pub network_namespace: Result<(), Missing>,
    /// TAP interfaces work in a network namespace, as the laboratory makes them.
    pub laboratory: Result<(), Missing>,
    /// `/dev/net/tun` was opened; the flags (`IFF_*`) that its driver knows.
    pub tun_flags: Result<c_int, Missing>,
    /// What works inside of a network namespace; `None` without one.
    pub inside: Option<Inside>,
    /// An AF_PACKET socket in the network namespace that the process was started in.
    pub packet: Result<(), i32>,
    /// An AF_XDP socket, there too.
    pub xdp: Result<(), i32>,
    /// The kernel took an XDP program.
    pub xdp_program: Result<(), i32>,
    /// The kernel made an io_uring.
    pub io_uring: Result<(), i32>,
    /// A memfd was mapped, and a pair of Unix sockets made.
    pub shared_memory: Result<(), i32>,
    /// The most memory that packets of a run between two ports take, in bytes; between two TAP
    /// interfaces if these work.
    pub packet_bytes: Option<u64>,
    /// Memory of that size is in huge pages.
    pub huge_pages: bool,
    /// Bytes of memory that the process can use.
    pub memory: Option<u64>,
    /// Bytes of kernel memory that a UDP socket of the laboratory gets to receive.
    pub receive_buffer: Result<i32, LabError>,
    /// Nice levels that a worker's thread is ahead, with `--priority auto`. The error is one line.
    pub nice_levels: Result<i8, String>,
}

/// What works in a network namespace of the process's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The offloads of a TAP interface; the error is one line.
    pub offloads: Result<Features, String>,
    /// A TAP interface has two queues; the error is one line.
    pub queues: Result<(), String>,
    /// The virtio-net header can be as long as packtrain needs it.
    pub header: Result<(), LabError>,
    /// An AF_PACKET socket.
    pub packet: Result<(), i32>,
    /// An AF_XDP socket that is bound in copy mode.
    pub xdp_copy: Result<(), i32>,
}

impl Trials {
    /// Tries everything. The process is then in a user namespace, if it needs one: so no thread may
    /// have been started before.
    #[must_use]
    pub fn run() -> Self {
        // What the process may do here, it may no longer do from a user namespace.
        let user = geteuid().as_raw();
        let admin = may_administer();
        let packet = raw_socket(libc::AF_PACKET).map(drop);
        let xdp = raw_socket(libc::AF_XDP).map(drop);
        let xdp_program = sys::try_xdp_program();
        let io_uring = sys::try_io_uring();

        let user_namespace = match rootless::enter_if_needed() {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(missing) => Some(Err(missing)),
        };
        let netns = Netns::new().map_err(netns::as_missing);
        let (inside, taps) = match &netns {
            Ok(netns) => (Some(Inside::run(netns)), plan_bytes(netns)),
            Err(_) => (None, None),
        };
        let packets = taps.or_else(|| arena_of(["sim:", "sim:"].map(|text| open(text).ok())));
        let memory = packets.map(Arena::new).transpose();
        let huge_pages = memory.as_ref().is_ok_and(|arena| {
            let arena = arena.as_ref();
            arena.is_some_and(Arena::huge_pages)
        });
        let shared_memory = memory.map(drop).and_then(|()| UnixStream::pair().map(drop));
        let program = std::env::current_exe();
        let program = program.map_or("packtrain".to_owned(), |path| Name::from(path).to_string());
        Self {
            program,
            superuser: user == 0,
            admin,
            user_namespace,
            network_namespace: netns.map(drop),
            laboratory: tap::available(),
            tun_flags: tun_flags(),
            inside,
            packet: numbered(packet),
            xdp: numbered(xdp),
            xdp_program: numbered(xdp_program),
            io_uring: numbered(io_uring),
            shared_memory: numbered(shared_memory),
            packet_bytes: packets.map(|arena| arena.bytes()),
            huge_pages,
            memory: memory_available(),
            receive_buffer: receive_buffer(),
            nice_levels: nice_levels(),
        }
    }
}

impl Inside {
    fn run(netns: &Netns) -> Self {
        let tap = |queues| {
            let config = TapConfig {
                queues,
                ..TapConfig::new(TapKind::Tap, "doctor%d")
            };
            let opened = netns
                .run(|| Tap::open(&config))
                .map_err(|error| error.to_string())?;
            opened
                .map(|tap| tap.capabilities().tx)
                .map_err(|error| error.to_string())
        };
        let header = || tap::Tap::new("doctor%d").vnet_hdr(true).open().map(drop);
        let packet = netns.run(|| raw_socket(libc::AF_PACKET).map(drop));
        let xdp_copy = netns.run(|| {
            let loopback = Rtnl::open().and_then(|mut rtnl| rtnl.link("lo"));
            let loopback = loopback.map_err(io::Error::other)?;
            sys::try_xdp_copy(raw_socket(libc::AF_XDP)?.as_fd(), loopback.index)
        });
        Self {
            offloads: tap(1),
            queues: tap(2).map(drop),
            header: netns.run(header).and_then(|header| header),
            packet: numbered(packet.map_err(io::Error::other).and_then(|result| result)),
            xdp_copy: numbered(xdp_copy.map_err(io::Error::other).and_then(|result| result)),
        }
    }
}

/// Whether rtnetlink takes a change from this process. There is nothing that it could change.
fn may_administer() -> bool {
    let asked = Rtnl::open().and_then(|mut rtnl| rtnl.set_up(NO_INTERFACE));
    asked.is_err_and(|error| error.errno() == Some(libc::ENODEV))
}

fn raw_socket(domain: c_int) -> io::Result<Socket> {
    // Of no protocol: no packet arrives.
    Socket::new(Domain::from(domain), Type::RAW, None)
}

fn tun_flags() -> Result<c_int, Missing> {
    let device = tap::open_device().map_err(netns::as_missing)?;
    let flags = sys::tun_features(device.as_fd());
    flags.map_err(|error| tap::missing(&error))
}

/// The arena of a run between two TAP interfaces of a network namespace.
fn plan_bytes(netns: &Netns) -> Option<ArenaConfig> {
    let ports = || ["tap:doctor-a", "tap:doctor-b"].map(|text| open(text).ok());
    arena_of(netns.run(ports).ok()?)
}

/// The arena of a run between two ports.
fn arena_of<D: Driver + 'static>(ports: [Option<Port<D>>; 2]) -> Option<ArenaConfig> {
    let [a, b] = ports;
    let plan = Session::between(a?, b?).plan().ok()?;
    Some(arena_config(&plan))
}

fn receive_buffer() -> Result<i32, LabError> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).map_err(LabError::from_io("bind"))?;
    udp::enlarge(&socket)
}

/// Starts and ends two runs in memory: one with the nice value of this thread.
fn nice_levels() -> Result<i8, String> {
    let nice = |priority| {
        let [a, b] = ["sim:", "null:"].map(|text| open(text).map_err(|error| error.to_string()));
        let settings = Settings {
            priority,
            ..Settings::default()
        };
        let session = Session::between(a?, b?).settings(settings).start();
        let workers = session
            .map_err(|error| error.to_string())?
            .finish()
            .snapshot
            .workers;
        let worker = workers.first().ok_or("a run without a worker")?;
        Ok::<i8, String>(worker.nice)
    };
    Ok(nice(Priority::None)? - nice(Priority::Auto)?)
}

fn numbered(result: io::Result<()>) -> Result<(), i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}
