//! One transfer between a kernel and smoltcp.

use crate::device::Stack;
use packtrain_lab::counters::{self, Counters};
use packtrain_lab::cpu::Usage;
use packtrain_lab::link::{LinkStats, Rtnl};
use packtrain_lab::netns::Netns;
use packtrain_measure::clock;
use serde::Serialize;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::{Duration as Delay, Instant as Now};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// What stops the bench.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The TUN, in a network namespace of its own.
pub const INTERFACE: &str = "stack0";
/// Of the TUN, in bytes of an IP packet.
pub const MTU: u16 = 1500;
/// Bytes that the kernel's program reads or writes at once, at most.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Each byte that is sent.
const BYTE: u8 = 0xA5;

/// The kernel's address.
const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// smoltcp's address.
const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);
const PORT: u16 = 7;
/// Beyond the time of a transfer: then it has stalled.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest wait for a packet.
const WAIT: Delay = Delay::from_millis(10);

/// What is equal for all devices.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long the sender sends.
    pub time: Duration,
    /// Bytes of each buffer of smoltcp's socket.
    pub buffer_bytes: usize,
    /// The CPUs of smoltcp's thread and of the kernel's program. The scheduler would often put both
    /// on one, since each wakes the other.
    pub cpus: Option<[usize; 2]>,
}

impl Settings {
    /// Keeps the calling thread on one of the CPUs.
    fn pin(&self, which: usize) -> io::Result<()> {
        self.cpus.map_or(Ok(()), |cpus| clock::pin(cpus[which]))
    }
}

/// Where data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From smoltcp to the kernel.
    ToKernel,
    /// From the kernel to smoltcp.
    FromKernel,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ToKernel, Self::FromKernel];

    /// As in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToKernel => "to the kernel",
            Self::FromKernel => "from the kernel",
        }
    }
}

/// The figures of one transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Of [`Direction::name`].
    pub direction: &'static str,
    /// Of [`Stack::NAME`].
    pub device: &'static str,
    /// Figures of one round are compared.
    pub round: usize,
    /// Payload received, in Gbit/s.
    pub gbps: f64,
    /// CPU seconds of smoltcp's thread for 10^9 bytes of payload.
    pub cpu_s_per_gb: f64,
    /// Of these in user mode, counted in clock ticks.
    pub user_s_per_gb: f64,
    /// Average bytes of the packets that the kernel counts in the direction of the data.
    pub packet_bytes: f64,
    /// Segments that the kernel's TCP sent again.
    pub retransmits: u64,
}

/// Makes a kernel beside smoltcp, and transfers.
///
/// # Errors
/// What failed; also if other bytes arrived than were sent.
pub fn run<S: Stack>(direction: Direction, settings: Settings, round: usize) -> Result<Row, Error> {
    let netns = Netns::new()?;
    // Threads that it starts are in the namespace as well.
    let row = netns.run(|| transfer::<S>(direction, settings, round))?;
    row.map_err(|error| format!("{}, {}: {error}", S::NAME, direction.name()).into())
}

fn transfer<S: Stack>(
    direction: Direction,
    settings: Settings,
    round: usize,
) -> Result<Row, Error> {
    let time = settings.time;
    settings.pin(0)?;
    let mut end = End::<S>::open(settings)?;
    let mut rtnl = Rtnl::open()?;
    let index = rtnl.link(INTERFACE)?.index;
    rtnl.add_address(index, IpAddr::V4(HERE), 24)?;
    rtnl.set_up(index)?;
    let (ours, theirs) = thread::scope(|scope| {
        let peer = scope.spawn(move || {
            settings.pin(1)?;
            match direction {
                Direction::ToKernel => receive(),
                Direction::FromKernel => send(time),
            }
        });
        let ours = match direction {
            Direction::ToKernel => end.send(time),
            Direction::FromKernel => end.receive(),
        };
        // Ends the program of the kernel if it did not end by itself.
        if ours.is_err() {
            rtnl.delete(index).ok();
        }
        let theirs = peer.join();
        (ours, theirs)
    });
    let ours = ours?;
    let theirs = theirs.unwrap_or_else(|payload| std::panic::resume_unwind(payload))?;
    if ours.bytes != theirs {
        return Err(format!("{} bytes at smoltcp, {theirs} at the kernel", ours.bytes).into());
    }
    let stats = stats()?;
    let packet_bytes = match direction {
        Direction::ToKernel => stats.rx_bytes as f64 / stats.rx_packets as f64,
        Direction::FromKernel => stats.tx_bytes as f64 / stats.tx_packets as f64,
    };
    let gigabytes = ours.bytes as f64 / 1e9;
    Ok(Row {
        direction: direction.name(),
        device: S::NAME,
        round,
        gbps: gigabytes * 8.0 / ours.time.as_secs_f64(),
        cpu_s_per_gb: ours.usage.cpu().as_secs_f64() / gigabytes,
        user_s_per_gb: ours.usage.user.as_secs_f64() / gigabytes,
        packet_bytes,
        retransmits: Counters::read()?.tcp_retrans_segs,
    })
}

/// The kernel's counters of the TUN.
fn stats() -> Result<LinkStats, Error> {
    let devices = counters::devices()?;
    let ours = devices.into_iter().find(|(name, _)| name == INTERFACE);
    Ok(ours.ok_or("the TUN is gone")?.1)
}

/// What smoltcp's end of a transfer did.
struct Done {
    bytes: u64,
    /// From the first byte to the end of the connection's data.
    time: Duration,
    usage: Usage,
}

/// smoltcp's end: one connection, on one thread.
struct End<S> {
    device: S,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    until: Instant,
}

impl<S: Stack> End<S> {
    fn open(settings: Settings) -> Result<Self, Error> {
        let mut device = S::open()?;
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut device, Now::now());
        let [a, b, c, d] = THERE.octets();
        let mut room = Ok(());
        interface.update_ip_addrs(|addresses| {
            room = addresses.push(IpCidr::new(IpAddress::v4(a, b, c, d), 24));
        });
        room.map_err(|_| "smoltcp has no room for an address")?;
        // What is sent: see `send`.
        let buffer = || SocketBuffer::new(vec![BYTE; settings.buffer_bytes]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.listen(PORT).map_err(io::Error::other)?;
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(socket);
        Ok(Self {
            device,
            interface,
            sockets,
            socket,
            until: Instant::now() + settings.time + PATIENCE,
        })
    }

    /// Polls until `step` says that it is over. `step` says whether it did something.
    fn run(
        &mut self,
        mut step: impl FnMut(&mut Socket<'_>) -> Result<Step, Error>,
    ) -> Result<(), Error> {
        loop {
            let now = Now::now();
            let changed = self
                .interface
                .poll(now, &mut self.device, &mut self.sockets);
            self.device.end_of_poll()?;
            let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
            match step(socket)? {
                Step::Over => return Ok(()),
                Step::Busy => continue,
                Step::Idle if changed == PollResult::SocketStateChanged => continue,
                Step::Idle => {}
            }
            if Instant::now() > self.until {
                return Err("the transfer stalled".into());
            }
            let delay = self.interface.poll_delay(Now::now(), &self.sockets);
            let delay = delay.map_or(WAIT, |delay| delay.min(WAIT));
            smoltcp::phy::wait(self.device.fd(), Some(delay))?;
        }
    }

    /// Sends until `time` is over, and closes. What is sent lies in the socket's buffer from the
    /// beginning, so that only the stack and the device are measured.
    fn send(&mut self, time: Duration) -> Result<Done, Error> {
        let (mut bytes, mut began) = (0, None);
        self.run(|socket| {
            if socket.may_send() {
                let (start, _) = *began.get_or_insert_with(|| (Instant::now(), Usage::of_thread()));
                if start.elapsed() > time {
                    socket.close();
                    return Ok(Step::Busy);
                }
                let sent = socket.send(|room| (room.len(), room.len()));
                let sent = sent.map_err(io::Error::other)?;
                bytes += sent as u64;
                return Ok(if sent > 0 { Step::Busy } else { Step::Idle });
            }
            let over = began.is_some() && !socket.is_open();
            Ok(if over { Step::Over } else { Step::Idle })
        })?;
        Done::new(bytes, began)
    }

    /// Receives until the other side has closed, and leaves the data where it is.
    fn receive(&mut self) -> Result<Done, Error> {
        let (mut bytes, mut began) = (0, None);
        self.run(|socket| {
            if socket.can_recv() {
                began.get_or_insert_with(|| (Instant::now(), Usage::of_thread()));
                let received = socket.recv(|data| (data.len(), check(data)));
                bytes += received.map_err(io::Error::other)??;
                return Ok(Step::Busy);
            }
            if began.is_some() && !socket.may_recv() {
                if !socket.is_open() {
                    return Ok(Step::Over);
                }
                socket.close();
            }
            Ok(Step::Idle)
        })?;
        Done::new(bytes, began)
    }
}

impl Done {
    fn new(bytes: u64, began: Option<(Instant, Usage)>) -> Result<Self, Error> {
        let (start, usage) = began.ok_or("no connection")?;
        Ok(Self {
            bytes,
            time: start.elapsed(),
            usage: Usage::of_thread().since(&usage),
        })
    }
}

/// What a program did with its socket after a poll.
enum Step {
    /// Sent or received.
    Busy,
    /// Nothing.
    Idle,
    /// The transfer has ended.
    Over,
}

fn connect() -> io::Result<TcpStream> {
    let to = SocketAddr::from((THERE, PORT));
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The kernel's program: receives until the end, and returns how many bytes that were.
fn receive() -> Result<u64, Error> {
    let mut stream = connect()?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut received = 0;
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok(received),
            bytes => received += check(&chunk[..bytes])?,
        }
    }
}

/// The kernel's program: sends for `time`, and returns how many bytes.
fn send(time: Duration) -> Result<u64, Error> {
    let mut stream = connect()?;
    let data = vec![BYTE; CHUNK_BYTES];
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < time {
        bytes += stream.write(&data)? as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    // Until smoltcp has closed as well.
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(bytes)
}

/// Checks the first bytes of what is received at once, and returns how many there are. The tests of
/// packtrain-lab compare all bytes.
fn check(received: &[u8]) -> Result<u64, Error> {
    if received.iter().take(64).any(|&byte| byte != BYTE) {
        return Err("other bytes arrived".into());
    }
    Ok(received.len() as u64)
}
