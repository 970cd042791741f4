//! A TUN behind which every address answers: packets go from one UDP socket to another, come back
//! with their addresses swapped, and a run of one size is one system call either way. As root:
//! `tun_echo tun9`, then `ip addr add 198.18.0.1/24 dev tun9`, and `ping 198.18.0.9`.

use packtrain_offload::tun::{Tun, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::Accept;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use std::{io::IoSliceMut, io::Result, net::UdpSocket};

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or("tun9".into());
    let device = tun_rs::DeviceBuilder::new().name(name).offload(true);
    let (device, tun) = (device.build_sync()?, Tun::new(Accept::ALL));
    let bind = || UdpSocket::bind("127.0.0.1:0");
    let (a, b) = (bind()?, bind()?);
    let (offloads, destination) = (UdpSocketState::new((&a).into())?, b.local_addr()?);
    let receiver = UdpSocketState::new((&b).into())?;
    b.set_nonblocking(false)?;
    std::thread::scope(|scope| {
        // UDP to TUN: what was received at once (`UDP_GRO`) becomes one batch.
        scope.spawn(|| -> Result<()> {
            let (mut buffer, mut writes) = (vec![0; 1 << 16], vec![[0; WRITE_BYTES_MAX]; 8]);
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
                tun.write_batch(&mut writes, run.chunks(size), |write| {
                    device.send(write).expect("since Linux 6.2");
                });
            }
        });
        // TUN to UDP: the packets of one read have one size, but for the last (`UDP_SEGMENT`).
        let (mut read, mut run) = (vec![0; WRITE_BYTES_MAX], Vec::new());
        loop {
            let bytes = device.recv(&mut read)?;
            let Ok(mut packets) = tun.packets(&mut read[..bytes]) else {
                continue; // Wrongly described: dropped, as a device would.
            };
            let size = packets.next_bytes().unwrap_or(1);
            while let Some(packet) = packets.next_packet() {
                run.extend_from_slice(packet);
            }
            let segments = (60_000 / size).clamp(1, offloads.max_gso_segments());
            for contents in run.chunks(size * segments) {
                let (ecn, src_ip, segment_size) = (None, None, Some(size));
                #[rustfmt::skip]
                let transmit = Transmit { destination, ecn, contents, segment_size, src_ip };
                offloads.send((&a).into(), &transmit)?;
            }
            run.clear();
        }
    })
}
