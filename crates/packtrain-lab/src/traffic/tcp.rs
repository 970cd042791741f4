//! TCP streams: connect, write the pattern, read and hash to the end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::payload::{Datagrams, Pattern, StreamHash, combine};
use super::transfer::{Calls, Transfer, TransferReport};
use super::watch::{End, QUANTUM, Watch, Way, first_error, is_pause};
use crate::cpu::Usage;
use crate::cpus::on_cpu;
use crate::error::LabError;
use crate::netns::Netns;
use crate::sys;

/// Bytes of one `recv`.
const READ: usize = 256 * 1024;

/// The two ends of one connection.
struct Connection {
    sender: TcpStream,
    receiver: TcpStream,
}

pub(super) fn run(transfer: &Transfer, way: &Way<'_>) -> Result<TransferReport, LabError> {
    let connections = connect(transfer, way)?;
    let pattern = Pattern::new(transfer.seed);
    // The clock starts after all connections are open.
    let watch = Watch::new(transfer);
    let (watch, pattern) = (&watch, &pattern);
    let (sent, received) = thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for (stream, connection) in (0u32..).zip(&connections) {
            receivers.push(scope.spawn(move || {
                let receive = || receive(watch, &connection.receiver);
                on_cpu(transfer.receiver_cpu, receive).inspect_err(|_| watch.abort())
            }));
            senders.push(scope.spawn(move || {
                let send = || send(watch, pattern, stream, &connection.sender);
                on_cpu(transfer.sender_cpu, send).inspect_err(|_| watch.abort())
            }));
        }
        let sent: Vec<_> = senders.into_iter().map(join).collect();
        let received: Vec<_> = receivers.into_iter().map(join).collect();
        (sent, received)
    });
    // The sender of a broken connection often sees only a reset, so the receivers' errors come
    // first.
    let (received, sent) = match (first_error(received), first_error(sent)) {
        (Ok(received), Ok(sent)) => (received, sent),
        (Err(LabError::Cancelled), Err(error)) | (Err(error), _) | (_, Err(error)) => {
            return Err(error);
        }
    };
    let mut retransmits = 0;
    let mut sent = sent;
    for (stream, end) in (0..).zip(&mut sent) {
        // The hash is computed after the transfer, so that its cost is not measured.
        end.hash = pattern.stream_hash(stream, end.bytes);
    }
    for connection in &connections {
        retransmits +=
            sys::tcp_retransmits(&connection.sender).map_err(LabError::from_io("TCP_INFO"))?;
    }
    let elapsed = received
        .iter()
        .map(|(_, end)| *end)
        .max()
        .unwrap_or_default();
    let received: Vec<End> = received.into_iter().map(|(end, _)| end).collect();
    Ok(report(transfer, &sent, &received, elapsed, retransmits))
}

fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle
        .join()
        .unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

fn report(
    transfer: &Transfer,
    sent: &[End],
    received: &[End],
    elapsed: Duration,
    retransmits: u64,
) -> TransferReport {
    let calls = |ends: &[End]| ends.iter().map(|end| end.calls).sum();
    let cpu = |ends: &[End]| {
        ends.iter()
            .fold(Usage::default(), |sum, end| sum.plus(&end.cpu))
    };
    let same = sent
        .iter()
        .zip(received)
        .all(|(s, r)| s.hash == r.hash && s.bytes == r.bytes);
    TransferReport {
        protocol: transfer.protocol,
        ip: transfer.ip,
        streams: transfer.streams,
        sent_bytes: sent.iter().map(|end| end.bytes).sum(),
        received_bytes: received.iter().map(|end| end.bytes).sum(),
        sent_hash: combine(sent.iter().map(|end| end.hash)),
        received_hash: combine(received.iter().map(|end| end.hash)),
        hash_ok: same && sent.len() == received.len(),
        elapsed,
        datagrams: Datagrams::default(),
        retransmits,
        calls: Calls {
            send: calls(sent),
            receive: calls(received),
        },
        send_cpu: cpu(sent),
        receive_cpu: cpu(received),
    }
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

/// A listener; its connections have its congestion control from their first packet on.
fn listen(address: SocketAddr) -> Result<TcpListener, LabError> {
    let socket = socket(address)?;
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
        let listener = listen(address)?;
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
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Connects every stream, one after the other, so that both lists are in the same order.
fn connect(transfer: &Transfer, way: &Way<'_>) -> Result<Vec<Connection>, LabError> {
    let watch = Watch::new(transfer);
    let listener = way.to.run(|| listen((way.address, 0).into()))??;
    sys::set_receive_timeout(&listener, QUANTUM).map_err(LabError::from_io("SO_RCVTIMEO"))?;
    let address = listener
        .local_addr()
        .map_err(LabError::from_io("getsockname"))?;
    way.from.run(|| {
        let connect = |_| {
            watch.cancelled()?;
            watch.check_limit("tcp connect", 0)?;
            let sender = socket(address)?;
            sender
                .connect_timeout(&address.into(), transfer.stall)
                .map_err(|error| connect_failed(transfer, &error))?;
            let sender = TcpStream::from(sender);
            let receiver = accept(&watch, &listener, &sender)?;
            for end in [&sender, &receiver] {
                end.set_read_timeout(Some(QUANTUM))
                    .map_err(LabError::from_io("SO_RCVTIMEO"))?;
                end.set_write_timeout(Some(QUANTUM))
                    .map_err(LabError::from_io("SO_SNDTIMEO"))?;
            }
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
    watch: &Watch<'_>,
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
            Ok(_) => watch.check("tcp accept", idle, 0)?,
            Err(error) if is_pause(&error) => watch.check("tcp accept", idle, 0)?,
            Err(error) => return Err(LabError::os("accept", &error)),
        }
    }
}

/// Sends. The caller computes the hash after the clock has stopped.
fn send(
    watch: &Watch<'_>,
    pattern: &Pattern,
    stream: u32,
    mut socket: &TcpStream,
) -> Result<End, LabError> {
    let cpu = Usage::of_thread();
    let goal = watch.transfer.share(stream).unwrap_or(u64::MAX);
    let (mut bytes, mut calls) = (0, 0);
    let mut progress = Instant::now();
    while bytes < goal && !watch.time_is_up() {
        let piece = pattern.stream(stream, bytes);
        let left = usize::try_from(goal - bytes).unwrap_or(usize::MAX);
        let piece = &piece[..piece.len().min(watch.transfer.write_size).min(left)];
        calls += 1;
        match socket.write(piece) {
            Ok(0) => return Err(LabError::Answer("write of 0 bytes")),
            Ok(len) => {
                bytes += len as u64;
                progress = Instant::now();
            }
            Err(error) if is_pause(&error) => watch.check("tcp send", progress, bytes)?,
            Err(error) => return Err(LabError::os("send (tcp)", &error)),
        }
        if calls % 64 == 0 {
            watch.cancelled()?;
            watch.check_limit("tcp send", bytes)?;
        }
    }
    socket
        .shutdown(Shutdown::Write)
        .map_err(LabError::from_io("shutdown"))?;
    let cpu = Usage::of_thread().since(&cpu);
    Ok(End {
        bytes,
        hash: 0,
        calls,
        cpu,
    })
}

/// Reads to the end of the stream; also returns the time of the end.
fn receive(watch: &Watch<'_>, mut socket: &TcpStream) -> Result<(End, Duration), LabError> {
    let cpu = Usage::of_thread();
    let mut buffer = vec![0; READ];
    let mut hash = StreamHash::new();
    let mut calls = 0;
    let mut progress = Instant::now();
    loop {
        calls += 1;
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => {
                hash.add(&buffer[..len]);
                progress = Instant::now();
            }
            Err(error) if is_pause(&error) => {
                watch.check("tcp receive", progress, hash.bytes())?;
            }
            Err(error) => return Err(LabError::os("recv (tcp)", &error)),
        }
        if calls % 64 == 0 {
            watch.cancelled()?;
            watch.check_limit("tcp receive", hash.bytes())?;
        }
    }
    let elapsed = watch.start.elapsed();
    let cpu = Usage::of_thread().since(&cpu);
    Ok((
        End {
            bytes: hash.bytes(),
            hash: hash.finish(),
            calls,
            cpu,
        },
        elapsed,
    ))
}
