//! smoltcp behind a TUN: an echo server at 198.18.0.9 and fd00::9, TCP port 7. It ends after one
//! connection, or after a minute. As root: `echo tun9`, then `ip addr add 198.18.0.1/24 dev tun9`,
//! and `nc 198.18.0.9 7`.

use packtrain_smoltcp::{Counts, TunDevice, smoltcp};
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::phy::{Device, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

/// Bytes of each buffer of the connection.
const BUFFER_BYTES: usize = 1 << 18;

/// Serves one connection on `device`, or none within `limit`.
pub fn serve(mut device: TunDevice<impl Read + Write>, limit: Duration) -> Result<Counts> {
    let start = Instant::now();
    let address = match device.capabilities().medium {
        Medium::Ethernet => EthernetAddress([2, 0, 0, 0, 0, 9]).into(),
        _ => HardwareAddress::Ip,
    };
    let mut interface = Interface::new(Config::new(address), &mut device, start);
    let mut room = Ok(());
    interface.update_ip_addrs(|addresses| {
        let here = [
            IpCidr::new(IpAddress::v4(198, 18, 0, 9), 24),
            IpCidr::new(IpAddress::v6(0xfd00, 0, 0, 0, 0, 0, 0, 9), 64),
        ];
        room = here.into_iter().try_for_each(|here| addresses.push(here));
    });
    room.map_err(|_| Error::other("smoltcp has no room for an address"))?;
    let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.listen(7).map_err(Error::other)?;
    let mut sockets = SocketSet::new(vec![]);
    let (socket, mut served) = (sockets.add(socket), false);
    let mut chunk = vec![0; BUFFER_BYTES];
    loop {
        let changed = interface.poll(Instant::now(), &mut device, &mut sockets);
        if let Some(error) = device.take_error() {
            return Err(error);
        }
        let socket = sockets.get_mut::<Socket<'_>>(socket);
        served |= socket.may_recv();
        while socket.can_recv() && socket.can_send() {
            let room = socket.send_capacity() - socket.send_queue();
            let bytes = socket
                .recv_slice(&mut chunk[..room])
                .map_err(Error::other)?;
            socket.send_slice(&chunk[..bytes]).map_err(Error::other)?;
        }
        if served && !socket.may_recv() && !socket.can_recv() {
            socket.close();
        }
        if served && !socket.is_open() || Instant::now() - start > limit {
            return Ok(device.counts());
        }
        if changed == PollResult::None {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Opens a TUN whose reads and writes are up to 64 KiB and do not block.
fn open(name: &str) -> Result<(File, u16)> {
    let device = tun_rs::DeviceBuilder::new().name(name).offload(true);
    let device = device.build_sync()?;
    device.set_nonblocking(true)?;
    Ok((
        File::from(device.as_fd().try_clone_to_owned()?),
        device.mtu()?,
    ))
}

/// What to do about an error of [`open`].
fn remedy(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => "run it as root, or with CAP_NET_ADMIN",
        ErrorKind::NotFound => "load the driver: modprobe tun",
        ErrorKind::ResourceBusy => "another program has this interface: write another name",
        _ => "`packtrain doctor` says what this host allows",
    }
}

/// The program: see the top of the file.
pub fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or("tun9".into());
    let opened = open(&name).map_err(|error| {
        let remedy = remedy(&error);
        format!("cannot open the TUN interface {name}: {error}; {remedy}")
    });
    let served = opened.and_then(|(file, mtu)| {
        let served = serve(TunDevice::tun(file, mtu), Duration::from_secs(60));
        served.map_err(|error| format!("{name}: {error}"))
    });
    match served {
        Ok(counts) => println!("{counts:#?}"),
        Err(line) => {
            eprintln!("echo: {line}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
