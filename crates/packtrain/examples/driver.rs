//! A whole driver, to copy from: a cable made of a Unix datagram socket, one Ethernet frame in
//! each datagram.
//!
//! ```text
//! cargo run -p packtrain --example driver -- 100000
//! ```
//!
//! The program plugs two such cables into packtrain, sends as many frames through as it is told
//! (1000), each way, checks that all of them arrive as they were sent and in order, and prints the
//! ledger. Exit status 1: they do not, the ledger is not closed, or an error; 2: wrong arguments.
//!
//! `docs/drivers.md` explains each part.

use packtrain::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceError, Driver, Interest, PortConfig, QueuePair,
    Refused, RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors, TxPacket,
};
use packtrain::engine::{Ledger, Session};
use packtrain::limits::BURST_PACKETS_MAX;
use packtrain::packet::{Arena, FrameClass, Packet};
use packtrain::plan::{Side, plan};
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::process::ExitCode;
use std::time::Duration;

/// Longest frame that a cable carries: an MTU of 1500, an Ethernet header and a VLAN tag.
pub const FRAME_BYTES_MAX: usize = 1518;
/// Shortest frame: Ethernet's 64 bytes without the FCS. The framework pads up to it.
pub const FRAME_BYTES_MIN: usize = 60;
/// An Ethernet header.
const HEADER_BYTES: usize = 14;

const _: () = assert!(FRAME_BYTES_MAX < FrameClass::Small.data_bytes());

/// A cable. The other end of the socket is the network.
#[derive(Debug)]
pub struct Cable {
    name: String,
    /// Taken by `attach`.
    socket: Option<UnixDatagram>,
}

impl Cable {
    /// A cable called `name`; `socket` is connected.
    pub fn new(name: &str, socket: UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            name: name.to_owned(),
            socket: Some(socket),
        })
    }
}

impl Driver for Cable {
    type Rx = CableRx;
    type Tx = CableTx;

    fn name(&self) -> &str {
        &self.name
    }

    // No offloads, one segment, one queue are the default.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            min_packet_bytes: FRAME_BYTES_MIN,
            ..Capabilities::default()
        }
    }

    fn attach(
        &mut self,
        how: &Attach,
        _arena: &Arena,
    ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let socket = self.socket.take().filter(|_| how.queues == 1);
        let Some(socket) = socket else {
            let why = format!("{} has one queue and is attached once", self.name);
            return Err(DeviceError::Unsupported(why));
        };
        let tx = CableTx {
            socket: socket.try_clone().map_err(failed("duplicate the socket"))?,
            calls: 0,
        };
        let rx = CableRx {
            socket,
            buffers: Vec::with_capacity(BURST_PACKETS_MAX),
            drained: false,
            calls: 0,
        };
        Ok(vec![(rx, tx)])
    }
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> DeviceError {
    move |source| DeviceError::Failed { action, source }
}

/// Whether the other end is closed for good; a datagram socket says so to who sends.
fn is_removed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::NotConnected
    )
}

/// The receiving half.
#[derive(Debug)]
pub struct CableRx {
    socket: UnixDatagram,
    /// Empty packets: the RX ring.
    buffers: Vec<Packet>,
    /// The last poll ended for lack of frames.
    drained: bool,
    calls: u64,
}

impl RxDescriptors for CableRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        while self.buffers.len() < BURST_PACKETS_MAX {
            match arena.packet(FrameClass::Small) {
                Ok(buffer) => self.buffers.push(buffer),
                Err(_no_buffer) => return false,
            }
        }
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.drained = false;
        while !burst.exhausted() {
            let Some(mut packet) = self.buffers.pop() else {
                break;
            };
            self.calls += 1;
            // One byte more than a frame may have: a longer one shows, instead of losing its end.
            let room = &mut packet.tailroom_mut()[..=FRAME_BYTES_MAX];
            match self.socket.recv(room) {
                Ok(bytes) if (HEADER_BYTES..=FRAME_BYTES_MAX).contains(&bytes) => {
                    if packet.grow(bytes).is_ok() {
                        burst.push(packet, &RxInfo::default());
                        continue;
                    }
                    burst.bad(DropReason::TooLong, 1);
                }
                Ok(bytes) if bytes < HEADER_BYTES => burst.bad(DropReason::Truncated, 1),
                Ok(_) => burst.bad(DropReason::TooLong, 1),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.drained = true,
                Err(error) if is_removed(&error) => return Err(DeviceError::Removed),
                Err(error) => return Err(failed("receive from the socket")(error)),
            }
            // Nothing was made of it.
            self.buffers.push(packet);
            if self.drained {
                break;
            }
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        if self.drained {
            Armed::Idle
        } else {
            Armed::WorkPending
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Read))
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

/// The transmitting half.
#[derive(Debug)]
pub struct CableTx {
    socket: UnixDatagram,
    calls: u64,
}

impl TxDescriptors for CableTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        if packet.packet().bytes() > FRAME_BYTES_MAX {
            return Err(Refused::Bad(DropReason::TooLong));
        }
        self.calls += 1;
        // One segment was asked for, so the first is all there is.
        match self.socket.send(packet.packet().first()) {
            Ok(_) => Ok(Accepted::Complete),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Refused::Busy),
            Err(error) if is_removed(&error) => Err(Refused::Removed),
            Err(_) => Err(Refused::Bad(DropReason::DeviceRefused)),
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Write))
    }

    // Each call is a doorbell: this device has none for a batch.
    fn doorbells(&self) -> u64 {
        self.calls
    }

    fn syscalls(&self) -> u64 {
        self.calls
    }
}

// The driver ends here; what follows tries it out.

/// The program: see the top of the file.
pub fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let count = match args.as_slice() {
        [] => Some(1000),
        [count] => count.parse().ok(),
        _ => None,
    };
    let Some(count) = count else {
        eprintln!("usage: driver [FRAMES]");
        return ExitCode::from(2);
    };
    let ledger = check(count);
    match &ledger {
        Ok(ledger) => println!("{ledger:?}\nclosed: {}", ledger.closed()),
        Err(error) => eprintln!("error: {error}"),
    }
    ExitCode::from(u8::from(!ledger.is_ok_and(|ledger| ledger.closed())))
}

/// Sends `count` frames through two joined cables, each way, and returns the final ledger.
pub fn check(count: u32) -> Result<Ledger, Box<dyn std::error::Error>> {
    let (near_a, far_a) = UnixDatagram::pair()?;
    let (near_b, far_b) = UnixDatagram::pair()?;
    let (a, b) = (Cable::new("cable0", near_a)?, Cable::new("cable1", near_b)?);
    let plan = plan(
        &Side::of(&a, PortConfig::default()),
        &Side::of(&b, PortConfig::default()),
    )?;
    let session = Session::forward(a, b, &plan, None)?;
    for (from, to) in [(&far_a, &far_b), (&far_b, &far_a)] {
        to.set_read_timeout(Some(Duration::from_secs(60)))?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| (0..count).try_for_each(|n| send(from, n)));
            (0..count).try_for_each(|n| receive(to, n))?;
            sent.join().map_err(|_panic| "the sender panicked")??;
            Ok::<_, Box<dyn std::error::Error>>(())
        })?;
    }
    let report = session.finish();
    match report.error {
        Some(error) => Err(error.into()),
        None => Ok(report.snapshot.ledger),
    }
}

/// Frame `n`: between locally administered addresses, of an experimental type (IEEE 802), with the
/// number repeated as payload, from 18 bytes to the longest.
fn frame(n: u32) -> Vec<u8> {
    let bytes = HEADER_BYTES + 4 + n as usize % (FRAME_BYTES_MAX - HEADER_BYTES - 3);
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let payload = n.to_be_bytes().into_iter().cycle();
    header.into_iter().chain(payload).take(bytes).collect()
}

fn send(socket: &UnixDatagram, n: u32) -> io::Result<()> {
    socket.send(&frame(n)).map(drop)
}

fn receive(socket: &UnixDatagram, n: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut buffer = [0; FRAME_BYTES_MAX + 1];
    let bytes = socket.recv(&mut buffer)?;
    let mut expected = frame(n);
    // Padded with zeros on its way.
    expected.resize(expected.len().max(FRAME_BYTES_MIN), 0);
    if buffer[..bytes] != expected {
        return Err(format!("frame {n} did not arrive as it was sent").into());
    }
    Ok(())
}
