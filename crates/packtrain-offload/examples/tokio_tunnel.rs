//! A tunnel with tokio: a TUN on one side, UDP on the other. Nothing is encrypted, but each packet
//! has room for a cipher. As root, on two machines or in two network namespaces, with addresses of
//! one network on the two devices:
//!
//! ```text
//! tokio_tunnel tun9 192.0.2.1:5000 192.0.2.2:5000 [SECONDS]
//! ```
//!
//! It ends after so many seconds, 60 if none are given, or on SIGINT, and prints what it did. The
//! device gets an MTU for a path of 1500 bytes: set a smaller one if the path takes less.

use packtrain_offload::tun::{
    Fallback, Outcome, PacketRun, Pieces, TooShort, TunOffload, WRITE_BYTES_MAX,
};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use std::fs::File;
use std::future::Future;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Result, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{Interest, unix::AsyncFd};
use tokio::net::UdpSocket;

/// The longest UDP payload over IPv4.
const UDP_BYTES_MAX: usize = 65_507;

/// Bytes of a socket's receive buffer. The kernel's default, 208 KiB, is three datagrams of 64 KiB
/// (`UDP_GRO`): a burst that is longer loses packets, and TCP in the tunnel sends them again.
const RECEIVE_BUFFER: usize = 8 << 20;

/// What the path takes in one IP packet: Ethernet's MTU.
const PATH_MTU: u16 = 1500;

/// Bytes in front of each packet for a cipher's header, as many as WireGuard has. The receiver puts
/// the virtio-net header into their place, so that it is no slice of its own.
const HEADROOM: usize = 16;

/// Bytes behind each packet for a cipher's tag.
const TAILROOM: usize = 16;

/// What a tunnel did so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads of the device.
    pub reads: AtomicU64,
    /// Datagrams sent, a packet each.
    pub sent: AtomicU64,
    /// Packets that were read and not sent, because they are longer than the path takes, or the
    /// network is down. The first error is printed.
    pub unsent: AtomicU64,
    /// Datagrams received.
    pub received: AtomicU64,
    /// Writes to the device, without those of the next line.
    pub writes: AtomicU64,
    /// Writes of packets one by one, because the kernel refused the large one.
    pub again: AtomicU64,
    /// Writes that the kernel refused and that are lost: a packet of the peer is none, or the
    /// device is down.
    pub refused: AtomicU64,
}

/// The program: see the top of the file.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &[String]) -> Result<()> {
    let [name, local, peer, seconds @ ..] = args else {
        let usage = "usage: tokio_tunnel DEVICE LOCAL PEER [SECONDS]";
        return Err(Error::new(ErrorKind::InvalidInput, usage));
    };
    let wrong = |error| Error::new(ErrorKind::InvalidInput, error);
    let seconds = seconds.first().map_or(Ok(60), |text| text.parse());
    let limit = tokio::time::sleep(Duration::from_secs(seconds.map_err(wrong)?));
    let socket = UdpSocket::bind(local).await;
    let socket = socket.map_err(failed(&format!("bind {local}")))?;
    let found = tokio::net::lookup_host(peer).await;
    let peer = found.map_err(failed(&format!("look up {peer}")))?.next();
    let peer = peer.ok_or(ErrorKind::InvalidInput)?;
    // Of IP and UDP.
    let headers = if peer.is_ipv4() { 28 } else { 48 };
    let mtu = PATH_MTU - headers - (HEADROOM + TAILROOM) as u16;
    let device = tun_rs::DeviceBuilder::new().name(name).mtu(mtu);
    let device = device.offload(true).build_sync();
    let device = device.map_err(failed(&format!("open {name}")))?;
    device.set_nonblocking(true)?;
    // Not tun-rs' `AsyncDevice`: `tunnel` takes the TUN of any crate, as a `File`.
    let device = File::from(device.as_fd().try_clone_to_owned()?);
    let (counts, ended) = (Counts::default(), async {
        tokio::select! {
            () = limit => Ok(()),
            result = tokio::signal::ctrl_c() => result,
        }
    });
    let result = tunnel(device, TunOffload::tun(), socket, peer, &counts, ended).await;
    println!("{counts:?}");
    result.map_err(failed(name))
}

/// Says which operation failed.
fn failed(operation: &str) -> impl Fn(Error) -> Error {
    move |error| Error::new(error.kind(), format!("{operation}: {error}"))
}

/// Runs a tunnel between `device`, which is non-blocking, and `peer` until `ended`.
pub async fn tunnel(
    device: File,
    tun: TunOffload,
    socket: UdpSocket,
    peer: SocketAddr,
    counts: &Counts,
    ended: impl Future<Output = Result<()>>,
) -> Result<()> {
    let device = register(device)?;
    let offloads = UdpSocketState::new((&socket).into())?;
    // Without CAP_NET_ADMIN the kernel grants at most net.core.rmem_max.
    set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        .or_else(|_| set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))?;
    tokio::select! {
        result = device_to_network(&device, tun, &socket, &offloads, peer, counts) => result,
        result = network_to_device(&device, tun, &socket, &offloads, counts) => result,
        result = ended => result,
    }
}

#[allow(
    deprecated,
    reason = "sound for a File, which stays the same descriptor; what replaces it is unsafe"
)]
fn register(device: File) -> Result<AsyncFd<File>> {
    AsyncFd::new(device)
}

/// The packets of one read are one `sendmsg` (`UDP_SEGMENT`). A full read, 64 KiB, is two: with
/// headers in front of each packet it is more than the 65 507 bytes of one.
async fn device_to_network(
    device: &AsyncFd<File>,
    tun: TunOffload,
    socket: &UdpSocket,
    offloads: &UdpSocketState,
    destination: SocketAddr,
    counts: &Counts,
) -> Result<()> {
    let (mut buffer, mut out) = (vec![0; WRITE_BYTES_MAX], vec![0; UDP_BYTES_MAX]);
    let mut fallback = Fallback::new(tun);
    let unsent = |packets, why: &str| {
        if counts.unsent.fetch_add(packets, Relaxed) == 0 {
            eprintln!("unsent: {why} (the following are only counted)");
        }
    };
    loop {
        let read = device.async_io(Interest::READABLE, |mut file| file.read(&mut buffer));
        let bytes = read.await.map_err(failed("read from the device"))?;
        counts.reads.fetch_add(1, Relaxed);
        let Ok(mut packets) = tun.packets(&mut buffer[..bytes]) else {
            unsent(1, "a virtio-net header that lies");
            continue;
        };
        loop {
            let segments_max = fallback.segments_max(offloads.max_gso_segments());
            let run = match packets.fill_run(&mut out, HEADROOM, TAILROOM, segments_max) {
                Ok(Some(run)) => run,
                Ok(None) => break,
                Err(TooShort { needs, .. }) => {
                    packets.skip_packet();
                    unsent(1, &format!("a packet of {needs} bytes fits no datagram"));
                    continue;
                }
            };
            // Packets are encrypted in place here.
            // All of the run, and packet by packet if the kernel refuses that.
            let mut at_once = run.bytes;
            'again: loop {
                for contents in out[..run.bytes].chunks(at_once) {
                    let transmit = Transmit {
                        destination,
                        ecn: None,
                        contents,
                        segment_size: Some(run.stride),
                        src_ip: None,
                    };
                    // `send` would return no other error than `WouldBlock`.
                    let send = || offloads.try_send(socket.into(), &transmit);
                    let result = socket.async_io(Interest::WRITABLE, send).await;
                    let (stride, bytes) = (run.stride, contents.len());
                    let outcome = fallback.check_run(PacketRun { stride, bytes }, &result);
                    let packets = bytes.div_ceil(stride) as u64;
                    match (outcome, result) {
                        (Outcome::Again, _) => {
                            at_once = stride;
                            continue 'again;
                        }
                        (_, Ok(())) => drop(counts.sent.fetch_add(packets, Relaxed)),
                        (_, Err(error)) => {
                            let why = format!("send {stride} bytes to {destination}: {error}");
                            unsent(packets, &why);
                        }
                    }
                }
                break;
            }
            if let Some(refused) = fallback.notice() {
                eprintln!("{refused}");
            }
        }
    }
}

/// The datagrams of one `recvmmsg`, with `UDP_GRO`, are one batch.
async fn network_to_device(
    device: &AsyncFd<File>,
    tun: TunOffload,
    socket: &UdpSocket,
    offloads: &UdpSocketState,
    counts: &Counts,
) -> Result<()> {
    let (mut buffers, mut pieces) = (vec![vec![0; 1 << 16]; BATCH_SIZE], Pieces::new());
    let (mut fallback, mut again) = (Fallback::new(tun), vec![0; WRITE_BYTES_MAX]);
    loop {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut slices: Vec<_> = buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let receive = || offloads.recv(socket.into(), &mut slices, &mut metas);
        let messages = socket.async_io(Interest::READABLE, receive).await;
        let messages = messages.map_err(failed("receive"))?;
        let received = buffers.iter_mut().zip(&metas).take(messages);
        let datagrams = received.flat_map(|(b, meta)| b[..meta.len].chunks_mut(meta.stride.max(1)));
        // Packets are decrypted in place here.
        let packets = datagrams.map(|datagram| {
            let end = datagram.len().saturating_sub(TAILROOM);
            &mut datagram[..end]
        });
        let mut batch: Vec<&mut [u8]> = packets.collect();
        counts.received.fetch_add(batch.len() as u64, Relaxed);
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        let tun = fallback.offload();
        for write in tun.gather_batch(&mut pieces, &mut batch, HEADROOM) {
            slices.clear();
            slices.extend(write.io_slices());
            let large = |mut file: &File| file.write_vectored(&slices);
            let written = device.async_io(Interest::WRITABLE, large).await;
            counts.writes.fetch_add(1, Relaxed);
            let outcome = fallback.check(&slices[0], written);
            if outcome.map_err(failed("write to the device"))? != Outcome::Again {
                continue;
            }
            let bytes = write.copy_to(&mut again)?;
            let mut packets = tun.packets(&mut again[..bytes])?;
            while let Some(packet) = packets.next_write() {
                let small = |mut file: &File| file.write(packet);
                let written = device.async_io(Interest::WRITABLE, small).await;
                counts.again.fetch_add(1, Relaxed);
                let outcome = fallback.check(packet, written);
                let _counted = outcome.map_err(failed("write to the device"))?;
            }
        }
        counts.refused.store(fallback.dropped(), Relaxed);
        if let Some(refused) = fallback.notice() {
            eprintln!("{refused}");
        }
    }
}
