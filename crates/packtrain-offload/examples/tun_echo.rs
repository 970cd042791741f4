//! A TUN behind which every address answers, with threads: packets go from one UDP socket to
//! another, come back with their addresses swapped, and a run of one size is one system call either
//! way. As root: `tun_echo tun9`, then `ip addr add 198.18.0.1/24 dev tun9`, and `ping 198.18.0.9`.

use packtrain_offload::tun::{TooShort, TunOffload, WRITE_BYTES_MAX};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use std::{io::IoSliceMut, io::Result, net::UdpSocket};

/// The longest UDP payload over IPv4.
const UDP_BYTES_MAX: usize = 65_507;

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or("tun9".into());
    let device = tun_rs::DeviceBuilder::new().name(name).offload(true);
    let (device, tun) = (device.build_sync()?, TunOffload::tun());
    let bind = || UdpSocket::bind("127.0.0.1:0");
    let (a, b) = (bind()?, bind()?);
    let (offloads, destination) = (UdpSocketState::new((&a).into())?, b.local_addr()?);
    let receiver = UdpSocketState::new((&b).into())?;
    // `UdpSocketState::new` made them non-blocking; a thread waits in the call.
    a.set_nonblocking(false)?;
    b.set_nonblocking(false)?;
    std::thread::scope(|scope| {
        // UDP to TUN: the datagrams of one `recvmsg` (`UDP_GRO`) are one batch.
        scope.spawn(|| -> Result<()> {
            let (mut buffer, mut writes) = (vec![0; 1 << 16], vec![[0; WRITE_BYTES_MAX]; 9]);
            let mut meta = [RecvMeta::default()];
            loop {
                let mut slices = [IoSliceMut::new(&mut buffer)];
                receiver.recv((&b).into(), &mut slices, &mut meta)?;
                let (run, size) = (&mut buffer[..meta[0].len], meta[0].stride.max(1));
                for packet in run.chunks_mut(size) {
                    let (at, bytes) = [(12, 4), (8, 16)][usize::from(packet[0] >> 4 == 6)];
                    if let Some(addresses) = packet.get_mut(at..at + 2 * bytes) {
                        addresses.rotate_left(bytes);
                    }
                }
                tun.write_batch(&mut writes, run.chunks(size), |write| device.send(write))?;
            }
        });
        // TUN to UDP: the packets of one read are one `sendmsg` (`UDP_SEGMENT`).
        let (mut read, mut out) = (vec![0; WRITE_BYTES_MAX], vec![0; UDP_BYTES_MAX]);
        loop {
            let bytes = device.recv(&mut read)?;
            let Ok(mut packets) = tun.packets(&mut read[..bytes]) else {
                continue; // A header that lies: dropped, as a device does.
            };
            loop {
                let run = match packets.fill_run(&mut out, 0, 0, offloads.max_gso_segments()) {
                    Ok(Some(run)) => run,
                    Ok(None) => break,
                    // Longer than a datagram.
                    Err(TooShort { .. }) => {
                        packets.skip_packet();
                        continue;
                    }
                };
                let (ecn, src_ip, segment_size) = (None, None, Some(run.stride));
                let contents = &out[..run.bytes];
                #[rustfmt::skip]
                let transmit = Transmit { destination, ecn, contents, segment_size, src_ip };
                offloads.send((&a).into(), &transmit)?;
            }
        }
    })
}
