//! A TUN behind which every address answers, with threads: packets go from one UDP socket to
//! another, and come back with their addresses swapped. As root: `tun_echo tun9`, then
//! `ip addr add 198.18.0.1/24 dev tun9`, and `ping 198.18.0.9`.
//!
//! Packets that are dropped are counted on stderr. An error of the device or of a socket ends the
//! program.

use packtrain_offload::tun::{Fallback, Outcome, PacketRun, TooShort, TunOffload, WRITE_BYTES_MAX};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use std::convert::Infallible;
use std::io::{Error, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use tun_rs::{DeviceBuilder, SyncDevice};

/// The longest UDP payload over IPv4.
const UDP_BYTES_MAX: usize = 65_507;
/// Bytes of a socket's receive buffer. The kernel's default, 208 KiB, is three datagrams of 64 KiB
/// (`UDP_GRO`): a burst that is longer loses packets, and TCP in the tunnel sends them again.
const RECEIVE_BUFFER: usize = 8 << 20;

/// For a path of 1500 bytes: less 28 for IPv4 and UDP (48 for IPv6), and 32 for a cipher. A longer
/// packet is not sent.
const MTU: u16 = 1440;

fn main() {
    let name = std::env::args().nth(1).unwrap_or("tun9".into());
    end(run(&name))
}

fn run(name: &str) -> Result<Infallible, String> {
    let device = DeviceBuilder::new().name(name).mtu(MTU).offload(true);
    let device = device.build_sync().map_err(failed("open", name))?;
    let socket = || -> Result<_, Error> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let offloads = UdpSocketState::new((&socket).into())?;
        socket.set_nonblocking(false)?; // `UdpSocketState::new` changed it.
        // Without CAP_NET_ADMIN the kernel grants at most net.core.rmem_max.
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))?;
        Ok((socket, offloads))
    };
    let socket = || socket().map_err(failed("open", "a UDP socket"));
    let (a, b) = (socket()?, socket()?);
    let destination = b.0.local_addr();
    let destination = destination.map_err(failed("look up", "a UDP socket"))?;
    std::thread::scope(|scope| {
        scope.spawn(|| end(udp_to_tun(&b, &device, name)));
        end(tun_to_udp(&device, name, &a, destination))
    })
}

/// Ends the program: the other thread waits in a system call.
fn end(result: Result<Infallible, String>) -> ! {
    let Err(error) = result;
    eprintln!("error: {error}");
    std::process::exit(1)
}

fn failed(operation: &str, on: &str) -> impl Fn(Error) -> String {
    move |error| format!("{operation} {on}: {error}")
}

/// Adds to a count of lost packets or writes, and prints it each time that it doubles.
fn lose(count: &mut u64, more: usize, why: &str) {
    let before = count.checked_ilog2();
    *count += more as u64;
    if count.checked_ilog2() != before {
        eprintln!("dropped: {why} ({count} so far)");
    }
}

/// The packets of one read are one `sendmsg` (`UDP_SEGMENT`). A full read, 64 KiB, is two: with
/// headers in front of each packet it is more than the 65 507 bytes of one.
fn tun_to_udp(
    device: &SyncDevice,
    name: &str,
    (socket, offloads): &(UdpSocket, UdpSocketState),
    destination: SocketAddr,
) -> Result<Infallible, String> {
    let (mut read, mut out) = (vec![0; WRITE_BYTES_MAX], vec![0; UDP_BYTES_MAX]);
    let (mut unsent, mut fallback) = (0, Fallback::new(TunOffload::tun()));
    loop {
        let bytes = device.recv(&mut read).map_err(failed("read", name))?;
        let Ok(mut packets) = TunOffload::tun().packets(&mut read[..bytes]) else {
            lose(&mut unsent, 1, "a virtio-net header that lies");
            continue;
        };
        loop {
            let segments_max = fallback.segments_max(offloads.max_gso_segments());
            let run = match packets.fill_run(&mut out, 0, 0, segments_max) {
                Ok(Some(run)) => run,
                Ok(None) => break,
                Err(TooShort { needs, .. }) => {
                    packets.skip_packet();
                    lose(
                        &mut unsent,
                        1,
                        &format!("a packet of {needs} bytes fits no datagram"),
                    );
                    continue;
                }
            };
            // All of it, and packet by packet if the kernel refuses that.
            let mut at_once = run.bytes;
            'again: loop {
                for contents in out[..run.bytes].chunks(at_once) {
                    let (segment_size, ecn, src_ip) = (Some(run.stride), None, None);
                    #[rustfmt::skip]
                    let transmit = Transmit { destination, ecn, contents, segment_size, src_ip };
                    // `send` would not return the error.
                    let result = offloads.try_send(socket.into(), &transmit);
                    let (stride, bytes) = (run.stride, contents.len());
                    match (
                        fallback.check_run(PacketRun { stride, bytes }, &result),
                        result,
                    ) {
                        (Outcome::Again, _) => {
                            at_once = stride;
                            continue 'again;
                        }
                        (_, Err(error)) => {
                            let why = format!("send {stride} bytes to {destination}: {error}");
                            lose(&mut unsent, bytes.div_ceil(stride), &why);
                        }
                        (_, Ok(())) => {}
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

/// The datagrams of one receive (`UDP_GRO`) are one batch: packets that arrive together are merged
/// together. The two `sendmsg` of a full read are two writes. Several buffers would merge them, but
/// quinn-udp returns from a blocking socket only when all of them have datagrams: `tokio_tunnel`,
/// whose socket does not block, uses several.
fn udp_to_tun(
    (socket, offloads): &(UdpSocket, UdpSocketState),
    device: &SyncDevice,
    name: &str,
) -> Result<Infallible, String> {
    let (mut buffer, mut buffers) = (vec![0; 1 << 16], vec![[0; WRITE_BYTES_MAX]; 9]);
    let mut meta = [RecvMeta::default()];
    let (mut fallback, mut refused) = (Fallback::new(TunOffload::tun()), 0);
    loop {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let received = offloads.recv(socket.into(), &mut slices, &mut meta);
        received.map_err(failed("receive from", "a UDP socket"))?;
        let (run, size) = (&mut buffer[..meta[0].len], meta[0].stride.max(1));
        for packet in run.chunks_mut(size) {
            let (at, bytes) = [(12, 4), (8, 16)][usize::from(packet[0] >> 4 == 6)];
            if let Some(addresses) = packet.get_mut(at..at + 2 * bytes) {
                addresses.rotate_left(bytes);
            }
        }
        let written = fallback
            .offload()
            .write_batch(&mut buffers, run.chunks(size), |write| {
                fallback.write(write, |bytes| device.send(bytes))
            });
        // A buffer of `WRITE_BYTES_MAX` holds any packet, so none is lost.
        let _written = written.map_err(failed("write to", name))?;
        let more = fallback.dropped() - refused;
        lose(
            &mut refused,
            more as usize,
            "writes that the kernel refused",
        );
        if let Some(refused) = fallback.notice() {
            eprintln!("{refused}");
        }
    }
}
