//! The sockets of requests and replies: UDP to a thread that answers, or ICMP to the kernel.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use packtrain_offload::checksum;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::LabError;
use crate::ip::IpVersion;
use crate::topology::TwoHosts;
use crate::traffic::is_pause;
use crate::traffic::udp::enlarge;

/// Bytes of the header of an ICMP echo.
const ICMP_HEADER: usize = 8;

/// How long the answering thread waits before it checks whether the run has ended.
const QUANTUM: Duration = Duration::from_millis(20);

/// What is in front of the data of a message as the socket has it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Udp,
    /// A raw socket: the ICMP header when sent; received with IPv4 the IP header, too.
    Icmp(IpVersion),
}

/// The socket of the requests, which does not block.
#[derive(Debug)]
pub(super) struct Echo {
    /// For ICMP a raw socket: `send` and `recv` are the same for all kinds.
    socket: UdpSocket,
    kind: Kind,
    buffer: Vec<u8>,
    /// Sequence number of the next ICMP request.
    sequence: u16,
}

impl Echo {
    /// A socket in the left host to the right one, and for UDP the one that answers.
    pub(super) fn open(
        hosts: &TwoHosts,
        ip: IpVersion,
        icmp: bool,
    ) -> Result<(Self, Option<UdpSocket>), LabError> {
        let (from, to) = (hosts.left.ip(ip), hosts.right.ip(ip));
        let (socket, answers) = if icmp {
            let socket = (hosts.left.netns).run(|| raw(ip, (to, 0).into()))?;
            (socket.map_err(LabError::from_io("raw socket"))?, None)
        } else {
            let bind = |address| UdpSocket::bind((address, 0));
            let answers = hosts.right.netns.run(|| bind(to))?;
            let socket = hosts.left.netns.run(|| bind(from))?;
            let join = || {
                let (socket, answers) = (socket?, answers?);
                socket.connect(answers.local_addr()?)?;
                answers.connect(socket.local_addr()?)?;
                answers.set_read_timeout(Some(QUANTUM))?;
                Ok((socket, Some(answers)))
            };
            join().map_err(LabError::from_io("UDP socket"))?
        };
        // An end that is not on a CPU for some milliseconds loses nothing.
        for socket in [Some(&socket), answers.as_ref()].into_iter().flatten() {
            enlarge(socket)?;
        }
        socket
            .set_nonblocking(true)
            .map_err(LabError::from_io("O_NONBLOCK"))?;
        let kind = if icmp { Kind::Icmp(ip) } else { Kind::Udp };
        let echo = Self {
            socket,
            kind,
            buffer: vec![0; 1 << 16],
            sequence: 0,
        };
        Ok((echo, answers))
    }

    /// Over a connected socket that does not block.
    #[cfg(test)]
    pub(super) fn over(socket: UdpSocket) -> Self {
        Self {
            socket,
            kind: Kind::Udp,
            buffer: vec![0; 64],
            sequence: 0,
        }
    }

    /// Sends a request with this data. Returns whether the kernel accepted it.
    pub(super) fn send(&mut self, data: &[u8]) -> io::Result<bool> {
        let sent = match self.kind {
            Kind::Udp => self.socket.send(data),
            Kind::Icmp(ip) => {
                let message = &mut self.buffer[..ICMP_HEADER + data.len()];
                let request = if ip == IpVersion::V4 { 8 } else { 128 };
                message[..ICMP_HEADER].copy_from_slice(&[request, 0, 0, 0, 0, 1, 0, 0]);
                message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
                message[ICMP_HEADER..].copy_from_slice(data);
                if ip == IpVersion::V4 {
                    // The kernel does it for IPv6.
                    let check = checksum::sum(message).finish();
                    message[2..4].copy_from_slice(&check.to_be_bytes());
                }
                self.socket.send(message)
            }
        };
        match sent {
            Ok(_) => {
                self.sequence = self.sequence.wrapping_add(1);
                Ok(true)
            }
            Err(error) if is_full(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The data of a reply that has arrived; empty if it is none of ours. `None` if nothing has
    /// arrived.
    pub(super) fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let len = match self.socket.recv(&mut self.buffer) {
            Ok(len) => len,
            Err(error) if is_full(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = &self.buffer[..len];
        Ok(Some(match self.kind {
            Kind::Udp => message,
            Kind::Icmp(ip) => data_of_reply(ip, message).unwrap_or_default(),
        }))
    }

    /// Waits until a reply has arrived, at most this long.
    pub(super) fn wait(&self, time: Duration) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A raw socket that receives the ICMP messages of one address.
fn raw(ip: IpVersion, to: SocketAddr) -> io::Result<UdpSocket> {
    let (domain, protocol) = match ip {
        IpVersion::V4 => (Domain::IPV4, Protocol::ICMPV4),
        IpVersion::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// The data of an ICMP echo reply; `None` for another message.
fn data_of_reply(ip: IpVersion, message: &[u8]) -> Option<&[u8]> {
    let (icmp, reply) = match ip {
        // RFC 791: the header's length in words.
        IpVersion::V4 => (message.get(usize::from(message.first()? & 15) * 4..)?, 0),
        IpVersion::V6 => (message, 129),
    };
    (*icmp.first()? == reply).then(|| icmp.get(ICMP_HEADER..))?
}

/// Answers every UDP request, until `ended`.
pub(super) fn answer(socket: &UdpSocket, ended: impl Fn() -> bool) -> Result<(), LabError> {
    let mut buffer = vec![0; 1 << 16];
    while !ended() {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                // It blocks while its buffer is full; a request that it cannot answer is lost.
                match socket.send(&buffer[..len]) {
                    Ok(_) => {}
                    Err(error) if is_full(&error) => {}
                    Err(error) => return Err(LabError::os("send", &error)),
                }
            }
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(LabError::os("recv", &error)),
        }
    }
    Ok(())
}

/// Whether a call is to be repeated later: no data, no room, a signal.
fn is_full(error: &io::Error) -> bool {
    is_pause(error) || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_have_data() {
        let mut message = vec![0x46; 24];
        message.extend([0, 0, 1, 2, 0, 1, 0, 9, 7, 8]);
        assert_eq!(data_of_reply(IpVersion::V4, &message), Some(&[7, 8][..]));
        message[24] = 3;
        assert_eq!(data_of_reply(IpVersion::V4, &message), None);
        assert_eq!(data_of_reply(IpVersion::V4, &message[..24]), None);
        assert_eq!(data_of_reply(IpVersion::V4, &[]), None);
        let reply = [129, 0, 0, 0, 0, 1, 0, 0, 5];
        assert_eq!(data_of_reply(IpVersion::V6, &reply), Some(&[5][..]));
        assert_eq!(data_of_reply(IpVersion::V6, &reply[..7]), None);
    }
}
