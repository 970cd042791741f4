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

/// A cable with a name. The other end of the connected socket is the network.
pub struct Cable(pub String, pub UnixDatagram);

impl Driver for Cable {
    type Rx = CableRx;
    type Tx = CableTx;

    fn name(&self) -> &str {
        &self.0
    }

    // The default is one queue, one segment and no offload.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            min_packet_bytes: FRAME_BYTES_MIN,
            ..Capabilities::default()
        }
    }

    fn attach(&mut self, _: &Attach, _: &Arena) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        let attached = || {
            self.1.set_nonblocking(true)?;
            let (buffers, drained) = (Vec::with_capacity(BURST_PACKETS_MAX), false);
            let rx = CableRx {
                socket: self.1.try_clone()?,
                buffers,
                drained,
            };
            Ok(vec![(
                rx,
                CableTx {
                    socket: self.1.try_clone()?,
                    sent: 0,
                },
            )])
        };
        attached().map_err(failed("duplicate the socket"))
    }
}

/// The other end is closed for good, or a call failed.
fn failed(action: &'static str) -> impl Fn(io::Error) -> DeviceError {
    move |source| match source.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => DeviceError::Removed,
        _ => DeviceError::Failed { action, source },
    }
}

/// The receiving half.
pub struct CableRx {
    socket: UnixDatagram,
    /// Empty packets: the RX ring.
    buffers: Vec<Packet>,
    /// The socket had nothing left at the last poll.
    drained: bool,
}

impl RxDescriptors for CableRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        let missing = BURST_PACKETS_MAX - self.buffers.len();
        let new = (0..missing).map_while(|_| arena.packet(FrameClass::Small).ok());
        self.buffers.extend(new);
        self.buffers.len() == BURST_PACKETS_MAX
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.drained = false;
        while !burst.exhausted() && !self.drained {
            let Some(mut packet) = self.buffers.pop() else {
                break;
            };
            // One byte more than a frame has: a longer one shows, instead of losing its end.
            match self
                .socket
                .recv(&mut packet.tailroom_mut()[..=FRAME_BYTES_MAX])
            {
                Ok(bytes @ HEADER_BYTES..=FRAME_BYTES_MAX) if packet.grow(bytes).is_ok() => {
                    burst.push(packet, &RxInfo::default());
                    continue;
                }
                Ok(..HEADER_BYTES) => burst.bad(DropReason::Truncated, 1),
                Ok(_) => burst.bad(DropReason::TooLong, 1),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.drained = true,
                Err(error) => return Err(failed("receive from the socket")(error)),
            }
            // The next frame gets the buffer.
            self.buffers.push(packet);
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
}

/// The transmitting half. It never keeps a packet, and its descriptor stays ready while the socket
/// has room, so the defaults of `reclaim` and `arm` do.
pub struct CableTx {
    socket: UnixDatagram,
    sent: u64,
}

impl TxDescriptors for CableTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        // Its only segment, as the capabilities say.
        let frame = packet.packet().first();
        if frame.len() > FRAME_BYTES_MAX {
            return Err(Refused::Bad(DropReason::TooLong));
        }
        self.sent += 1;
        match self.socket.send(frame).map_err(failed("send")) {
            Ok(_) => Ok(Accepted::Complete),
            Err(DeviceError::Removed) => Err(Refused::Removed),
            Err(DeviceError::Failed { source, .. }) if source.kind() == ErrorKind::WouldBlock => {
                Err(Refused::Busy)
            }
            Err(_) => Err(Refused::Bad(DropReason::DeviceRefused)),
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Write))
    }

    // Each call is a doorbell: this device has none for a batch.
    fn doorbells(&self) -> u64 {
        self.sent
    }
}

// The driver ends here; the rest of the program tries it out.

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
    let (a, b) = (
        Cable("cable0".into(), near_a),
        Cable("cable1".into(), near_b),
    );
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
