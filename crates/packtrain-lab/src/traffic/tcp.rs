//! TCP streams: connect, write the pattern, read and hash to the end.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use socket2::{Domain, SockRef, Socket, Type};

use super::exchange;
use super::gauge::{Gauge, Gauges};
use super::in_force::{InForce, set_buffers};
use super::limits::{End, Limits, QUANTUM, Way, is_pause};
use super::payload::{Pattern, StreamHash, combine};
use super::streams;
use super::transfer::{Payload, Transfer, TransferReport};
use crate::error::LabError;
use crate::netns::Netns;
use crate::sys;

/// Bytes of one `recv`.
const READ: usize = 256 * 1024;

/// FNV-1a of 64 bits: a step for each byte that needs the one before.
fn work_on(data: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    data.iter().fold(START, step)
}

/// Bytes by which the segments of a connection are shorter than its maximum segment size: each has
/// a timestamp (RFC 7323).
const TIMESTAMP: u32 = 12;

/// The two ends of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: TcpStream,
    receiver: TcpStream,
}

pub(super) fn run(
    transfer: &Transfer,
    connections: &[Connection],
    gauges: &[Gauges],
    over: &AtomicBool,
) -> Result<TransferReport, LabError> {
    let pattern = Pattern::new(transfer.seed);
    // The clock starts after all connections are open.
    let limits = Limits::until(transfer, over);
    let send = |stream, connection: &Connection, gauge: &Gauge| {
        let socket = &connection.sender;
        match transfer.exchange {
            None => send(&limits, &pattern, stream, socket, gauge),
            Some(exchange) => exchange::request(&limits, exchange, stream, socket, gauge),
        }
    };
    let receive = |_, connection: &Connection, gauge: &Gauge| {
        let socket = &connection.receiver;
        match transfer.exchange {
            None => receive(&limits, socket, gauge),
            Some(exchange) => exchange::serve(&limits, exchange, socket, gauge),
        }
    };
    let (mut sent, received) = streams::run(&limits, connections, gauges, send, receive)?;
    if transfer.payload == Payload::Hashed {
        for (stream, end) in (0..).zip(&mut sent) {
            // The hash is computed after the transfer, so that its cost is not measured.
            end.hash = pattern.stream_hash(stream, end.bytes, || limits.cancelled())?;
        }
    }
    let hash = |ends: &[End]| match transfer.payload {
        Payload::Hashed => combine(ends.iter().map(|end| end.hash)),
        Payload::Plain => 0,
    };
    Ok(TransferReport {
        retransmits: retransmits(connections.iter().map(|one| &one.sender))?,
        ..streams::report(&sent, &received, hash)
    })
}

/// Segments retransmitted by these ends of connections.
fn retransmits<'a>(ends: impl IntoIterator<Item = &'a TcpStream>) -> Result<u64, LabError> {
    ends.into_iter()
        .map(|end| sys::tcp_retransmits(end).map_err(LabError::from_io("TCP_INFO")))
        .sum()
}

/// Segments retransmitted by both ends of all connections.
pub(super) fn retransmits_of_both(connections: &[Connection]) -> Result<u64, LabError> {
    retransmits(
        connections
            .iter()
            .flat_map(|one| [&one.sender, &one.receiver]),
    )
}

/// What the kernel has in force for a connection.
pub(super) fn in_force(connection: &Connection) -> Result<InForce, LabError> {
    let socket = SockRef::from(&connection.sender);
    let congestion = socket
        .tcp_congestion()
        .map_err(LabError::from_io("TCP_CONGESTION"))?;
    Ok(InForce {
        congestion_control: Some(text(&congestion)),
        mss: Some(mss(&connection.sender)?),
        ..InForce::of_buffers(&connection.sender, &connection.receiver)?
    })
}

/// The payload bytes of a full segment.
fn mss(socket: &TcpStream) -> Result<u32, LabError> {
    let mss = SockRef::from(socket).tcp_mss();
    mss.map_err(LabError::from_io("TCP_MAXSEG"))
}

/// A name that the kernel padded with zeroes.
fn text(name: &[u8]) -> String {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// The default of Linux. A machine may have another one. If that paces by its own model of the
/// link, as BBR does, a transfer measures the model.
const CONGESTION_CONTROL: &str = "cubic";

/// A socket with [`CONGESTION_CONTROL`] set before it connects. A connection that begins under BBR
/// and changes keeps BBR's timer for every burst (`sk_pacing_status`).
fn socket(address: SocketAddr) -> Result<Socket, LabError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)
        .map_err(LabError::from_io("socket (tcp)"))?;
    match socket.set_tcp_congestion(CONGESTION_CONTROL.as_bytes()) {
        Ok(()) => Ok(socket),
        // If the kernel lacks it or refuses it to this user, the machine's default remains.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPERM)) => {
            Ok(socket)
        }
        Err(error) => Err(LabError::os("TCP_CONGESTION", &error)),
    }
}

/// A listener; its connections have its settings from their first packet on.
fn listen(
    address: SocketAddr,
    prepare: impl Fn(&Socket) -> Result<(), LabError>,
) -> Result<TcpListener, LabError> {
    let socket = socket(address)?;
    prepare(&socket)?;
    socket
        .bind(&address.into())
        .map_err(LabError::from_io("bind"))?;
    socket.listen(128).map_err(LabError::from_io("listen"))?;
    Ok(socket.into())
}

/// The congestion control of TCP transfers on this machine.
///
/// # Errors
///
/// If no namespace can be made.
pub fn congestion_control() -> Result<String, LabError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let name = Netns::new()?.run(|| {
        let listener = listen(address, |_| Ok(()))?;
        let at = listener.local_addr();
        let end = TcpStream::connect(at.map_err(LabError::from_io("getsockname"))?)
            .map_err(LabError::from_io("connect"))?;
        let accepted = listener.accept();
        drop(end);
        let (accepted, _) = accepted.map_err(LabError::from_io("accept"))?;
        SockRef::from(&accepted)
            .tcp_congestion()
            .map_err(LabError::from_io("TCP_CONGESTION"))
    })??;
    Ok(text(&name))
}

/// Sets what must be there before the first packet: buffers decide on the window scale, and the
/// maximum segment size is announced.
fn prepare(transfer: &Transfer, socket: &Socket) -> Result<(), LabError> {
    if let Some(bytes) = transfer.buffers {
        set_buffers(socket, bytes)?;
    }
    if let Some(mss) = transfer.mss {
        let set = socket.set_tcp_mss(mss);
        set.map_err(LabError::from_io("TCP_MAXSEG"))?;
    }
    Ok(())
}

/// Whether the requested maximum segment size is in force.
fn check_mss(transfer: &Transfer, socket: &TcpStream) -> Result<(), LabError> {
    let Some(wanted) = transfer.mss else {
        return Ok(());
    };
    let found = mss(socket)?;
    if [wanted, wanted - TIMESTAMP].contains(&found) {
        return Ok(());
    }
    Err(LabError::NotTaken {
        what: "mss",
        wanted: wanted.into(),
        found: found.into(),
        hint: "a segment with its headers must fit the MTU",
    })
}

/// Connects every stream, one after the other, so that both lists are in the same order.
pub(super) fn connect(transfer: &Transfer, way: &Way<'_>) -> Result<Vec<Connection>, LabError> {
    let limits = Limits::new(transfer);
    let prepare = |socket: &Socket| prepare(transfer, socket);
    let listener = way.to.run(|| listen((way.address, 0).into(), prepare))??;
    SockRef::from(&listener)
        .set_read_timeout(Some(QUANTUM))
        .map_err(LabError::from_io("SO_RCVTIMEO"))?;
    let address = listener
        .local_addr()
        .map_err(LabError::from_io("getsockname"))?;
    way.from.run(|| {
        let connect = |_| {
            limits.cancelled()?;
            limits.check_limit("tcp connect", 0)?;
            let sender = socket(address)?;
            prepare(&sender)?;
            sender
                .connect_timeout(&address.into(), transfer.stall)
                .map_err(|error| connect_failed(transfer, &error))?;
            let sender = TcpStream::from(sender);
            let receiver = accept(&limits, &listener, &sender)?;
            for end in [&sender, &receiver] {
                end.set_read_timeout(Some(QUANTUM))
                    .map_err(LabError::from_io("SO_RCVTIMEO"))?;
                end.set_write_timeout(Some(QUANTUM))
                    .map_err(LabError::from_io("SO_SNDTIMEO"))?;
                if transfer.exchange.is_some() {
                    end.set_nodelay(true)
                        .map_err(LabError::from_io("TCP_NODELAY"))?;
                }
            }
            check_mss(transfer, &sender)?;
            Ok(Connection { sender, receiver })
        };
        (0..transfer.streams).map(connect).collect()
    })?
}

fn connect_failed(transfer: &Transfer, error: &std::io::Error) -> LabError {
    if error.kind() == std::io::ErrorKind::TimedOut {
        return LabError::Stalled {
            what: "tcp connect",
            after: transfer.stall,
            bytes: 0,
        };
    }
    LabError::os("connect", error)
}

/// Accepts the connection that `sender` made.
fn accept(
    limits: &Limits<'_>,
    listener: &TcpListener,
    sender: &TcpStream,
) -> Result<TcpStream, LabError> {
    let wanted: SocketAddr = sender
        .local_addr()
        .map_err(LabError::from_io("getsockname"))?;
    let idle = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, peer)) if peer == wanted => return Ok(stream),
            // A connection of another sender. The namespace has no other senders than the test's.
            Ok(_) => limits.check("tcp accept", idle, 0)?,
            Err(error) if is_pause(&error) => limits.check("tcp accept", idle, 0)?,
            Err(error) => return Err(LabError::os("accept", &error)),
        }
    }
}

/// Sends. The caller computes the hash after the clock has stopped.
fn send(
    limits: &Limits<'_>,
    pattern: &Pattern,
    stream: u32,
    mut socket: &TcpStream,
    gauge: &Gauge,
) -> Result<End, LabError> {
    let goal = limits.transfer.share(stream).unwrap_or(u64::MAX);
    let (mut bytes, mut calls) = (0, 0);
    let mut progress = Instant::now();
    while bytes < goal && !limits.ends(bytes) {
        let piece = match limits.transfer.payload {
            Payload::Hashed => pattern.stream(stream, bytes),
            Payload::Plain => pattern.block(),
        };
        let left = usize::try_from(goal - bytes).unwrap_or(usize::MAX);
        let piece = &piece[..piece.len().min(limits.transfer.write_size).min(left)];
        calls += 1;
        match socket.write(piece) {
            Ok(0) => return Err(LabError::Answer("write of 0 bytes")),
            Ok(len) => {
                bytes += len as u64;
                progress = Instant::now();
            }
            Err(error) if is_pause(&error) => limits.check("tcp send", progress, bytes)?,
            Err(error) => return Err(LabError::os("send (tcp)", &error)),
        }
        gauge.set(bytes, calls);
        limits.check_call("tcp send", calls, bytes)?;
    }
    socket
        .shutdown(Shutdown::Write)
        .map_err(LabError::from_io("shutdown"))?;
    Ok(End {
        bytes,
        calls,
        ..End::default()
    })
}

/// Reads to the end of the stream.
fn receive(limits: &Limits<'_>, mut socket: &TcpStream, gauge: &Gauge) -> Result<End, LabError> {
    let mut buffer = vec![0; READ];
    let mut hash = StreamHash::new();
    let (mut bytes, mut calls) = (0, 0);
    let mut progress = Instant::now();
    loop {
        calls += 1;
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => {
                if limits.transfer.payload == Payload::Hashed {
                    hash.add(&buffer[..len]);
                }
                for _ in 0..limits.transfer.work {
                    black_box(work_on(black_box(&buffer[..len])));
                }
                bytes += len as u64;
                progress = Instant::now();
            }
            Err(error) if is_pause(&error) => limits.check("tcp receive", progress, bytes)?,
            Err(error) => return Err(LabError::os("recv (tcp)", &error)),
        }
        gauge.set(bytes, calls);
        limits.check_call("tcp receive", calls, bytes)?;
    }
    let elapsed = limits.start.elapsed();
    let hash = match limits.transfer.payload {
        Payload::Hashed => hash.finish(),
        Payload::Plain => 0,
    };
    Ok(End {
        bytes,
        hash,
        calls,
        elapsed,
        ..End::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' list of test vectors (isthe.com, `test_fnv.c`).
    #[test]
    fn the_work_on_data_is_that_of_fnv() {
        let works = [work_on(b""), work_on(b"a"), work_on(b"foobar")];
        let known = [
            0xcbf2_9ce4_8422_2325,
            0xaf63_dc4c_8601_ec8c,
            0x8594_4171_f739_67e8,
        ];
        assert_eq!(works, known);
    }
}
