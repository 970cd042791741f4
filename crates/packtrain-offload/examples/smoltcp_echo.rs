//! smoltcp behind a TUN: an echo server at 198.18.0.9, TCP port 7. The device gives smoltcp wire
//! packets, and merges those that smoltcp sends. It ends after one connection, or after a minute.
//! As root: `smoltcp_echo tun9`, then `ip addr add 198.18.0.1/24 dev tun9`, and `nc 198.18.0.9 7`.

use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsFd;

/// A TUN with a virtio-net header, as smoltcp's device. `D` does not block.
pub struct Tun<D> {
    device: D,
    offload: TunOffload,
    read: Vec<u8>,
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    buffers: Vec<Vec<u8>>,
    error: Option<Error>,
    counts: Counts,
}

/// What a device did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Reads of the device.
    pub reads: u64,
    /// Packets that they were.
    pub received: u64,
    /// Packets that smoltcp sent.
    pub sent: u64,
    /// Writes to the device.
    pub writes: u64,
}

impl<D: Read + Write> Tun<D> {
    fn new(device: D, offload: TunOffload) -> Self {
        Self {
            device,
            offload: TunOffload {
                // smoltcp makes right checksums, and numbers no packets.
                verified: true,
                merge_fixed_id: true,
                ..offload
            },
            read: vec![0; WRITE_BYTES_MAX],
            received: VecDeque::new(),
            sent: Vec::new(),
            buffers: vec![vec![0; WRITE_BYTES_MAX]; 9],
            error: None,
            counts: Counts::default(),
        }
    }

    fn read(&mut self) -> Result<()> {
        let bytes = match self.device.read(&mut self.read) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            bytes => bytes?,
        };
        let mut packets = self.offload.packets(&mut self.read[..bytes])?;
        self.counts.reads += 1;
        self.counts.received += packets.remaining() as u64;
        while let Some(packet) = packets.next_packet() {
            self.received.push_back(packet.to_vec());
        }
        Ok(())
    }

    /// Writes what smoltcp has sent since the last call.
    fn flush(&mut self) -> Result<()> {
        let device = &mut self.device;
        let written = self
            .offload
            .write_batch(&mut self.buffers, &self.sent, |write| {
                device.write_all(write)
            })?;
        self.counts.sent += self.sent.len() as u64;
        self.counts.writes += written.stats.emitted;
        self.sent.clear();
        self.error.take().map_or(Ok(()), Err)
    }
}

impl<D: Read + Write> Device for Tun<D> {
    type RxToken<'a>
        = Packet
    where
        Self: 'a;
    type TxToken<'a>
        = Sent<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(Packet, Sent<'_>)> {
        if self.received.is_empty() {
            self.error = self.read().err();
        }
        let packet = self.received.pop_front()?;
        Some((Packet(packet), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

/// A packet for smoltcp.
pub struct Packet(Vec<u8>);

impl RxToken for Packet {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Where smoltcp's packets go.
pub struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let mut packet = vec![0; bytes];
        let result = write(&mut packet);
        self.0.push(packet);
        result
    }
}

/// Serves one connection on `device`, or none within `limit`.
pub fn serve(device: impl Read + Write, offload: TunOffload, limit: Duration) -> Result<Counts> {
    let (mut tun, start) = (Tun::new(device, offload), Instant::now());
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut tun, start);
    let mut room = Ok(());
    interface.update_ip_addrs(|addresses| {
        let address = IpCidr::new(IpAddress::v4(198, 18, 0, 9), 24);
        room = addresses.push(address);
    });
    room.map_err(|_| Error::other("smoltcp has no room for an address"))?;
    let buffer = || SocketBuffer::new(vec![0; 1 << 16]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.listen(7).map_err(Error::other)?;
    let mut sockets = SocketSet::new(vec![]);
    let (socket, mut served) = (sockets.add(socket), false);
    loop {
        let changed = interface.poll(Instant::now(), &mut tun, &mut sockets);
        tun.flush()?;
        let socket = sockets.get_mut::<Socket<'_>>(socket);
        served |= socket.may_recv();
        let mut chunk = [0; 4096];
        while socket.can_recv() && socket.can_send() {
            let room = socket.send_capacity() - socket.send_queue();
            let most = room.min(chunk.len());
            let bytes = socket
                .recv_slice(&mut chunk[..most])
                .map_err(Error::other)?;
            socket.send_slice(&chunk[..bytes]).map_err(Error::other)?;
        }
        if served && !socket.may_recv() && !socket.can_recv() {
            socket.close();
        }
        if served && !socket.is_open() || Instant::now() - start > limit {
            return Ok(tun.counts);
        }
        if changed == PollResult::None {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// The program: see the top of the file.
pub fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or("tun9".into());
    let device = tun_rs::DeviceBuilder::new().name(name).offload(true);
    let device = device.build_sync()?;
    device.set_nonblocking(true)?;
    let device = File::from(device.as_fd().try_clone_to_owned()?);
    let counts = serve(device, TunOffload::tun(), Duration::from_secs(60))?;
    println!("{counts:?}");
    Ok(())
}
