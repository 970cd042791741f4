//! A whole driver, to copy from: a cable made of a Unix datagram socket, one Ethernet frame in
//! each datagram.
//!
//! ```text
//! cargo run -p packtrain --example driver -- 100000
//! ```
//!
//! The program joins two such cables with packtrain. It sends the given number of frames (1000 by
//! default) each way, checks that all arrive unchanged and in order, and prints the ledger.
//!
//! `docs/drivers.md` explains each part.

use packtrain::driver::{
    Accepted, Armed, Attach, Capabilities, DeviceError, Driver, Interest, QueuePair, Refused,
    RxBurst, RxDescriptors, RxInfo, Token, TxDescriptors, TxPacket,
};
use packtrain::engine::{Ledger, Session};
use packtrain::limits::BURST_PACKETS_MAX;
use packtrain::packet::{Arena, FrameClass, Packet};
use packtrain::{stats::DropReason, time::Instant};
use std::io::{
    self,
    ErrorKind::{ConnectionRefused, ConnectionReset, NotConnected, WouldBlock},
};
use std::os::{fd::AsFd, fd::BorrowedFd, unix::net::UnixDatagram};
use std::{error::Error, time::Duration};

/// Longest frame that a cable carries: an MTU of 1500, an Ethernet header and a VLAN tag.
pub const FRAME_BYTES_MAX: usize = 1518;
/// Shortest frame: Ethernet's 64 bytes without the FCS. The framework pads up to it.
pub const FRAME_BYTES_MIN: usize = 60;
/// An Ethernet header.
const HEADER_BYTES: usize = 14;

/// A cable. The other end of the socket is the network.
pub struct Cable {
    /// Its name.
    pub name: &'static str,
    /// Connected.
    pub socket: UnixDatagram,
}

impl Driver for Cable {
    type Rx = CableRx;
    type Tx = CableTx;

    fn name(&self) -> &str {
        self.name
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
        _how: &Attach,
        _arena: &Arena,
    ) -> Result<Vec<QueuePair<Self>>, DeviceError> {
        self.socket.set_nonblocking(true).map_err(failed)?;
        let [rx, tx] = [self.socket.try_clone(), self.socket.try_clone()];
        let rx = CableRx {
            socket: rx.map_err(failed)?,
            buffers: Vec::with_capacity(BURST_PACKETS_MAX),
            drained: false,
        };
        Ok(vec![(rx, CableTx(tx.map_err(failed)?, 0))])
    }
}

fn failed(source: io::Error) -> DeviceError {
    let action = "use the socket";
    DeviceError::Failed { action, source }
}

/// Whether the other end is closed for good: a datagram socket reports that to the sender.
fn is_removed(error: &io::Error) -> bool {
    [ConnectionRefused, ConnectionReset, NotConnected].contains(&error.kind())
}

/// The receiving half.
pub struct CableRx {
    socket: UnixDatagram,
    /// Empty packets: the RX ring.
    buffers: Vec<Packet>,
    /// The last poll ended for lack of frames.
    drained: bool,
}

impl RxDescriptors for CableRx {
    fn refill(&mut self, arena: &Arena) -> bool {
        while self.buffers.len() < BURST_PACKETS_MAX {
            let Ok(buffer) = arena.packet(FrameClass::Small) else {
                return false;
            };
            self.buffers.push(buffer);
        }
        true
    }

    fn receive(&mut self, _now: Instant, burst: &mut RxBurst<'_>) -> Result<(), DeviceError> {
        self.drained = false;
        while !burst.exhausted() && !self.drained {
            let Some(mut packet) = self.buffers.pop() else {
                break;
            };
            // One byte more than the longest frame, so that a longer frame is noticed and not
            // truncated.
            match self
                .socket
                .recv(&mut packet.tailroom_mut()[..=FRAME_BYTES_MAX])
            {
                Ok(bytes) if bytes < HEADER_BYTES => burst.bad(DropReason::Truncated, 1),
                Ok(bytes) if bytes <= FRAME_BYTES_MAX && packet.grow(bytes).is_ok() => {
                    burst.push(packet, &RxInfo::default());
                    continue;
                }
                Ok(_) => burst.bad(DropReason::TooLong, 1),
                Err(error) if error.kind() == WouldBlock => self.drained = true,
                Err(error) if is_removed(&error) => return Err(DeviceError::Removed),
                Err(error) => return Err(failed(error)),
            }
            // The buffer was not used.
            self.buffers.push(packet);
        }
        Ok(())
    }

    fn arm(&mut self) -> Armed {
        match self.drained {
            true => Armed::Idle,
            false => Armed::WorkPending,
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.socket.as_fd(), Interest::Read))
    }
}

/// The transmitting half, and its number of sends.
pub struct CableTx(UnixDatagram, u64);

impl TxDescriptors for CableTx {
    fn encap(&mut self, packet: &mut TxPacket<'_>, _token: Token) -> Result<Accepted, Refused> {
        if packet.packet().bytes() > FRAME_BYTES_MAX {
            return Err(Refused::Bad(DropReason::TooLong));
        }
        self.1 += 1;
        // The limit is one segment, so the first is the whole frame.
        match self.0.send(packet.packet().first()) {
            Ok(_) => Ok(Accepted::Complete),
            Err(error) if error.kind() == WouldBlock => Err(Refused::Busy),
            Err(error) if is_removed(&error) => Err(Refused::Removed),
            Err(_) => Err(Refused::Bad(DropReason::DeviceRefused)),
        }
    }

    fn wake(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        Some((self.0.as_fd(), Interest::Write))
    }

    // Each call is a doorbell: this device has none for a batch.
    fn doorbells(&self) -> u64 {
        self.1
    }
}

// The driver ends here; the rest uses it.

/// The program: see the top of the file.
pub fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(1000), |count| count.parse())?;
    println!("{:?}", check(count)?);
    Ok(())
}

/// Sends `count` frames through two cables that packtrain joins, each way, and returns the final
/// ledger.
pub fn check(count: u32) -> Result<Ledger, Box<dyn Error>> {
    let (near_a, far_a) = UnixDatagram::pair()?;
    let (near_b, far_b) = UnixDatagram::pair()?;
    let [a, b] =
        [("cable0", near_a), ("cable1", near_b)].map(|(name, socket)| Cable { name, socket });
    let session = Session::between(a, b).start()?;
    for (from, to) in [(&far_a, &far_b), (&far_b, &far_a)] {
        to.set_read_timeout(Some(Duration::from_secs(60)))?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| (0..count).try_for_each(|n| from.send(&frame(n)).map(drop)));
            (0..count).try_for_each(|n| receive(to, n))?;
            sent.join().map_err(|_panic| "the sender panicked")??;
            Ok::<_, Box<dyn Error>>(())
        })?;
    }
    Ok(session.finish().into_result()?.ledger)
}

/// Frame `n`: between locally administered addresses, of an experimental type (IEEE 802), with the
/// number repeated as payload, from 18 bytes to the longest.
fn frame(n: u32) -> Vec<u8> {
    let bytes = HEADER_BYTES + 4 + n as usize % (FRAME_BYTES_MAX - HEADER_BYTES - 3);
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let payload = n.to_be_bytes().into_iter().cycle();
    header.into_iter().chain(payload).take(bytes).collect()
}

fn receive(socket: &UnixDatagram, n: u32) -> Result<(), Box<dyn Error>> {
    let mut buffer = [0; FRAME_BYTES_MAX + 1];
    let bytes = socket.recv(&mut buffer)?;
    let mut expected = frame(n);
    // Padded with zeros on its way.
    expected.resize(expected.len().max(FRAME_BYTES_MIN), 0);
    match buffer[..bytes] == expected {
        true => Ok(()),
        false => Err(format!("frame {n} did not arrive as it was sent").into()),
    }
}
