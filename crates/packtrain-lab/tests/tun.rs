//! `packtrain_offload::tun` between a kernel and itself: a TUN whose other end swaps addresses, so
//! that what a kernel's TCP and UDP send to a neighbour comes back to it, in large packets. And the
//! example `tokio_tunnel` between two kernels.

use packtrain_lab::harness::{self, need_tap, skip};
use packtrain_lab::link::Rtnl;
use packtrain_lab::netns::{Netns, ip_versions};
use packtrain_lab::tap::{OFFLOAD_ALL, OFFLOAD_TSO, Tap, wait_readable};
use packtrain_lab::traffic::IpVersion;
use packtrain_offload::tun::{Fallback, LargeWrite, Outcome, Pieces, TunOffload, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::{GSO_TCPV4, HeaderLen};
use packtrain_smoltcp::TunDevice;
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    harness::main(&[
        ("tcp_through_writes_that_were_copied", || tcp(Form::Copied)),
        ("tcp_through_writes_that_were_gathered", || {
            tcp(Form::Gathered);
        }),
        ("tcp_through_a_tun_without_a_header", || {
            tcp(Form::Headerless);
        }),
        ("udp_trains_come_apart_in_order", udp),
        ("tcp_through_a_tunnel_of_tokio", tunnel),
        ("smoltcp_on_a_tun", || {
            smoltcp(Tap::tun("echo0"), TunDevice::tun);
        }),
        ("smoltcp_on_a_tap", || {
            smoltcp(Tap::new("echo0"), TunDevice::tap);
        }),
        ("a_kernel_that_refuses_merged_tcp", || {
            merged_tcp_is_refused(libc::EINVAL);
        }),
        ("a_kernel_that_refuses_merged_tcp_with_eio", || {
            merged_tcp_is_refused(libc::EIO);
        }),
        ("errors_of_a_write", errors_of_a_write),
    ])
}

#[path = "../../packtrain-smoltcp/examples/echo.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod smoltcp_echo;
#[path = "../../packtrain-offload/examples/tokio_tunnel.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod tokio_tunnel;

const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);
const HERE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const THERE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
/// Room for a virtio-net header in front of each packet.
const HEADROOM: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Copied,
    Gathered,
    /// Copied, to a TUN without a virtio-net header.
    Headerless,
}

/// What the far end of the TUN did.
#[derive(Debug, Default)]
struct Echoed {
    reads: u64,
    packets: u64,
    writes: u64,
    /// Writes that the kernel did not take.
    refused: Vec<ErrorKind>,
}

/// A namespace with a TUN that is up, and its descriptor.
fn world(address: Ipv4Addr, header: bool) -> (Netns, File) {
    let tap = Tap::tun("echo0").vnet_hdr(header);
    // UDP is not offloaded: its datagrams are merged here.
    let tap = tap.offload(if header { OFFLOAD_TSO } else { 0 });
    world_of(&tap, &[(IpAddr::V4(address), 24)])
}

/// The same with this interface and addresses of it.
fn world_of(tap: &Tap, addresses: &[(IpAddr, u8)]) -> (Netns, File) {
    let netns = Netns::new().expect("a namespace");
    let file = netns.run(|| {
        let tap = tap.clone().multi_queue(false);
        let mut files = tap.open().expect("an interface");
        let mut rtnl = Rtnl::open().expect("rtnetlink");
        let index = rtnl.link(tap.name()).expect("the interface").index;
        for &(address, prefix) in addresses {
            rtnl.add_address(index, address, prefix)
                .expect("an address");
        }
        rtnl.set_up(index).expect("it is up");
        File::from(files.remove(0))
    });
    (netns, file.expect("a thread in it"))
}

/// The laboratory's TUNs have a header of 12 bytes.
fn with_header() -> TunOffload {
    TunOffload {
        header: Some(HeaderLen::V1),
        ..TunOffload::tun()
    }
}

/// Whatever can be read at once, with addresses swapped: one batch. It may be empty.
fn read_batch(
    device: &File,
    tun: TunOffload,
    echoed: &mut Echoed,
    read: &mut [u8],
) -> Vec<Vec<u8>> {
    wait_readable(&[device.as_fd()], Duration::from_millis(20)).expect("poll");
    let (mut device, mut batch) = (device, Vec::new());
    while batch.len() < 500 {
        match device.read(read) {
            Ok(bytes) => {
                echoed.reads += 1;
                let mut packets = tun.packets(&mut read[..bytes]).expect("a good header");
                while let Some(packet) = packets.next_packet() {
                    packet[12..20].rotate_left(4);
                    batch.push([&[0xA5; HEADROOM][..], packet].concat());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    echoed.packets += batch.len() as u64;
    batch
}

/// Swaps addresses of what is read until `stop`.
fn echo(mut device: File, form: Form, stop: &AtomicBool) -> Echoed {
    let tun = match form {
        Form::Copied | Form::Gathered => with_header(),
        Form::Headerless => TunOffload::headerless(),
    };
    let mut pieces = Pieces::new();
    let mut echoed = Echoed::default();
    let mut read = vec![0; WRITE_BYTES_MAX];
    let mut buffers = vec![vec![0xA5; WRITE_BYTES_MAX]; 8];
    while !stop.load(Ordering::Acquire) {
        let mut batch = read_batch(&device, tun, &mut echoed, &mut read);
        let mut done = |result: std::io::Result<usize>, bytes: usize| {
            echoed.writes += 1;
            match result {
                Ok(written) => assert_eq!(written, bytes),
                Err(error) => echoed.refused.push(error.kind()),
            }
        };
        match form {
            Form::Copied | Form::Headerless => {
                let packets = batch.iter().map(|packet| &packet[HEADROOM..]);
                let written = tun.write_batch(&mut buffers, packets, |bytes| {
                    done(device.write(bytes), bytes.len());
                    Ok::<_, Error>(())
                });
                let written = written.expect("refused writes are counted");
                assert_eq!(written.buffer_too_short, 0);
            }
            Form::Gathered => {
                for write in tun.gather_batch(&mut pieces, &mut batch, HEADROOM) {
                    let slices: Vec<IoSlice<'_>> = write.io_slices().collect();
                    done(device.write_vectored(&slices), write.bytes());
                }
            }
        }
    }
    echoed
}

/// Runs `traffic` in the namespace with the echo beside it.
fn with_echo(form: Form, traffic: impl FnOnce() + Send) -> Echoed {
    let header = form != Form::Headerless;
    beside(header, |device, stop| echo(device, form, stop), traffic)
}

/// Runs `traffic` in a namespace with a TUN, and `echo` beside it until the traffic ends.
fn beside<T: Send>(
    header: bool,
    echo: impl FnOnce(File, &AtomicBool) -> T + Send,
    traffic: impl FnOnce() + Send,
) -> T {
    let (netns, device) = world(HERE, header);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| echo(device, &stop));
        let ran = netns.run(traffic);
        stop.store(true, Ordering::Release);
        let echoed = echo.join().expect("the echo");
        ran.expect("a thread in it");
        echoed
    })
}

/// A TUN of a kernel that refuses merged TCP. No kernel of today does, so the error is made here;
/// each other write is one to the TUN.
struct Refusing {
    device: File,
    error: i32,
    refused: u64,
}

impl Refusing {
    fn write(&mut self, slices: &[IoSlice<'_>]) -> std::io::Result<usize> {
        if slices[0][1] == GSO_TCPV4 {
            self.refused += 1;
            return Err(Error::from_raw_os_error(self.error));
        }
        self.device.write_vectored(slices)
    }
}

/// TCP is slower, and complete.
fn merged_tcp_is_refused(error: i32) {
    need_tap();
    for gathered in [false, true] {
        let echo = |device: File, stop: &AtomicBool| {
            let mut device = Refusing {
                device,
                error,
                refused: 0,
            };
            let mut fallback = Fallback::new(with_header());
            let (mut pieces, mut notices) = (Pieces::new(), Vec::new());
            let (mut echoed, mut read) = (Echoed::default(), vec![0; WRITE_BYTES_MAX]);
            let mut buffers = vec![vec![0xA5; WRITE_BYTES_MAX]; 8];
            while !stop.load(Ordering::Acquire) {
                let tun = fallback.offload();
                let mut batch = read_batch(&device.device, tun, &mut echoed, &mut read);
                if gathered {
                    for write in tun.gather_batch(&mut pieces, &mut batch, HEADROOM) {
                        let slices: Vec<IoSlice<'_>> = write.io_slices().collect();
                        let result = device.write(&slices);
                        let outcome = fallback.check(&slices[0], result).expect("a TUN");
                        if outcome == Outcome::Again {
                            let again = &mut buffers[0];
                            let bytes = write.copy_to(again).expect("room");
                            let packets = tun.packets(&mut again[..bytes]);
                            let mut packets = packets.expect("what was merged");
                            while let Some(packet) = packets.next_write() {
                                let result = device.write(&[IoSlice::new(packet)]);
                                let outcome = fallback.check(packet, result).expect("a TUN");
                                assert_eq!(outcome, Outcome::Written);
                            }
                        }
                    }
                } else {
                    let packets = batch.iter().map(|packet| &packet[HEADROOM..]);
                    let written = tun.write_batch(&mut buffers, packets, |write| {
                        fallback.write(write, |bytes| device.write(&[IoSlice::new(bytes)]))
                    });
                    assert_eq!(written.expect("a TUN").buffer_too_short, 0);
                }
                notices.extend(fallback.notice());
            }
            (fallback, notices, device.refused)
        };
        let (fallback, notices, refused) = beside(true, echo, transfer);
        let refused_at_least = if error == libc::EIO { 2 } else { 1 };
        assert!(refused >= refused_at_least, "{fallback:?}");
        // The batch in which it is turned off may have more; `write` does not try those.
        assert!(
            gathered || refused == refused_at_least,
            "{refused}: {fallback:?}"
        );
        let what = LargeWrite::TcpToDevice;
        assert!(fallback.again(what) >= refused, "{refused}: {fallback:?}");
        let off: Vec<_> = notices.iter().map(|off| (off.what, off.error)).collect();
        assert_eq!(off, [(what, error)], "said once");
        assert_eq!(fallback.dropped(), 0, "{fallback:?}");
        assert!(fallback.offload().merge_udp, "UDP is another matter");
    }
}

fn tcp(form: Form) {
    need_tap();
    let echoed = with_echo(form, transfer);
    assert_eq!(echoed.refused, [], "{echoed:?}");
    assert!(
        form == Form::Headerless || echoed.packets > 2 * echoed.reads,
        "the kernel sends large packets: {echoed:?}"
    );
    assert!(
        echoed.packets > 2 * echoed.writes,
        "it gets large packets: {echoed:?}"
    );
}

/// A connection of the kernel with itself.
fn transfer() {
    let listener = TcpListener::bind((HERE, 0)).expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let data = data();
    let server = thread::spawn(move || receive(&listener));
    send(SocketAddr::from((THERE, port)), &data);
    let received = server.join().expect("a server");
    assert!(received == data, "other bytes arrived");
}

const DATA_BYTES: usize = 8 << 20;

fn data() -> Vec<u8> {
    (0..DATA_BYTES)
        .map(|at| (at * 31 + (at >> 9)) as u8)
        .collect()
}

/// All that one connection sends.
fn receive(listener: &TcpListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("the data");
    received
}

fn send(to: SocketAddr, data: &[u8]) {
    let mut client = TcpStream::connect(to).expect("a connection");
    client.write_all(data).expect("it is taken");
    client.shutdown(Shutdown::Write).expect("an end");
}

/// Two kernels, a TUN each, and two tunnels over the loopback of the first.
fn tunnel() {
    need_tap();
    let ends = [world(HERE, true), world(THERE, true)];
    let [near, far] = ends.each_ref().map(|(netns, _)| netns);
    let sockets = near.run(|| {
        [(); 2].map(|()| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            socket.set_nonblocking(true).expect("it does not block");
            socket
        })
    });
    let sockets = sockets.expect("a thread in it");
    let devices = ends.each_ref().map(|(_, device)| device.try_clone());
    let counts = [(); 2].map(|()| tokio_tunnel::Counts::default());
    let (ended, end) = tokio::sync::watch::channel(false);
    thread::scope(|scope| {
        // A panic drops it, and that ends the tunnels too.
        let ended = ended;
        let tunnels = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let peers = [sockets[1].local_addr()?, sockets[0].local_addr()?];
            runtime.block_on(async {
                let mut tunnels = Vec::new();
                for (((device, socket), peer), counts) in
                    devices.into_iter().zip(sockets).zip(peers).zip(&counts)
                {
                    let (mut end, socket) = (end.clone(), tokio::net::UdpSocket::from_std(socket)?);
                    let ended = async move {
                        let ended = end.wait_for(|ended| *ended).await;
                        ended.map(drop).map_err(Error::other)
                    };
                    tunnels.push(tokio_tunnel::tunnel(
                        device?,
                        with_header(),
                        socket,
                        peer,
                        counts,
                        ended,
                    ));
                }
                let [there, back] = <[_; 2]>::try_from(tunnels).ok().expect("two tunnels");
                tokio::try_join!(there, back).map(drop)
            })
        });
        let data = data();
        let listener = far.run(|| TcpListener::bind((THERE, 0)).expect("a listener"));
        let listener = listener.expect("a thread in it");
        let port = listener.local_addr().expect("its address").port();
        let server = thread::spawn(move || receive(&listener));
        near.run(|| send(SocketAddr::from((THERE, port)), &data))
            .expect("a thread in it");
        let received = server.join().expect("a server");
        assert!(received == data, "other bytes arrived");
        ended.send(true).expect("the tunnels run");
        tunnels.join().expect("no panic").expect("no error");
    });
    let [near, far] = counts.each_ref();
    let many = |packets: &AtomicU64, calls: &AtomicU64| {
        packets.load(Ordering::Relaxed) > 2 * calls.load(Ordering::Relaxed)
    };
    assert!(many(&near.sent, &near.reads), "large reads: {near:?}");
    assert!(many(&far.received, &far.writes), "large writes: {far:?}");
    for lost in [&near.unsent, &near.refused, &far.unsent, &far.refused] {
        assert_eq!(lost.load(Ordering::Relaxed), 0, "{counts:?}");
    }
}

/// What the kernel sends to smoltcp comes back, in both directions at once, as IPv4 and as IPv6.
/// Both sides count packets: large ones pass whole.
fn smoltcp(tap: Tap, device: fn(File, u16) -> TunDevice<File>) {
    need_tap();
    const MTU: u16 = 1500;
    let tap = tap.vnet_hdr(true).offload(OFFLOAD_ALL);
    for &version in ip_versions() {
        let (here, there) = match version {
            IpVersion::V4 => ((HERE.into(), 24), IpAddr::V4(THERE)),
            IpVersion::V6 => ((HERE_V6.into(), 64), IpAddr::V6(THERE_V6)),
        };
        let (netns, file) = world_of(&tap, &[here]);
        let device = device(file, MTU).with_header(HeaderLen::V1);
        let counts = thread::scope(|scope| {
            let limit = ::smoltcp::time::Duration::from_secs(60);
            let server = scope.spawn(move || smoltcp_echo::serve(device, limit));
            netns
                .run(|| echoed(SocketAddr::new(there, 7)))
                .expect("a thread in it");
            server.join().expect("a server").expect("no error")
        });
        let lost = [counts.bad_headers, counts.bad_checksums, counts.refused];
        assert_eq!(lost, [0; 3], "{counts:?}");
        assert_eq!(counts.writes, counts.sent, "{counts:?}");
        // Pure ACKs are packets as well, so wire packets of large ones are counted.
        let in_large = |wire: u64, all: u64, large: u64| wire - (all - large);
        let received = in_large(counts.received_wire, counts.received, counts.received_large);
        let half = DATA_BYTES as u64 / u64::from(MTU) / 2;
        assert!(received > half, "the kernel sends large ones: {counts:?}");
        // smoltcp 0.14 sends IPv6 in wire packets.
        if version == IpVersion::V4 {
            let sent = in_large(counts.sent_wire, counts.sent, counts.sent_large);
            assert!(sent > half, "it gets large ones: {counts:?}");
        } else {
            assert_eq!(counts.sent_large, 0, "{counts:?}");
        }
    }
}

/// Sends to an echo server, and compares what comes back.
fn echoed(to: SocketAddr) {
    let mut stream = TcpStream::connect(to).expect("a connection");
    let mut reader = stream.try_clone().expect("a descriptor");
    let data = data();
    let received = thread::scope(|scope| {
        let received = scope.spawn(move || {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).expect("the data");
            received
        });
        stream.write_all(&data).expect("it is taken");
        stream.shutdown(Shutdown::Write).expect("an end");
        received.join().expect("a reader")
    });
    assert!(received == data, "other bytes came back");
}

/// The errors of the page of `packtrain_offload::tun`.
fn errors_of_a_write() {
    need_tap();
    let (netns, device) = world(HERE, true);
    let error = |mut device: &File, bytes: &[u8]| {
        let written = device.write(bytes);
        written.err().and_then(|error| error.raw_os_error())
    };
    let mut packet = vec![0; 12];
    packet.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0]);
    packet.extend(THERE.octets().iter().chain(&HERE.octets()));
    assert_eq!(error(&device, &packet), None);
    assert_eq!(error(&device, &[0; 32]), Some(libc::EINVAL), "no packet");
    let without_header = error(&device, &packet[12..]);
    assert_eq!(without_header, Some(libc::EINVAL));
    let change = |change: fn(&mut Rtnl, u32)| {
        let changed = netns.run(|| {
            let mut rtnl = Rtnl::open().expect("rtnetlink");
            let index = rtnl.link("echo0").expect("the TUN").index;
            change(&mut rtnl, index);
        });
        changed.expect("a thread in it");
    };
    // 3000 bytes of TCP, three segments.
    let mut large = vec![0; 12 + 40 + 3000];
    large[..10].copy_from_slice(&[1, GSO_TCPV4, 40, 0, 0x78, 5, 20, 0, 16, 0]);
    large[12..22].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 1, 0x40, 0, 64, 6]);
    large[24..32].copy_from_slice(&[THERE.octets(), HERE.octets()].concat());
    large[44..46].copy_from_slice(&[5 << 4, 16]);
    let mut fallback = Fallback::new(with_header());
    let mut write = |mut write: Vec<u8>| {
        let mut calls = 0;
        let written = fallback.write(&mut write, |bytes| {
            calls += 1;
            (&device).write(bytes)
        });
        let error = written.err().and_then(|error| error.raw_os_error());
        let is_off = fallback.refused(LargeWrite::TcpToDevice).is_some();
        (error, calls, fallback.dropped(), is_off)
    };
    assert_eq!(write(large.clone()), (None, 1, 0, false));
    change(|rtnl, index| rtnl.set_down(index).expect("it is down"));
    assert_eq!(error(&device, &packet), Some(libc::EIO));
    // As often as it is tried: the packets are refused, too.
    assert_eq!(write(large.clone()), (None, 4, 3, false));
    assert_eq!(write(packet.clone()), (None, 1, 4, false));
    assert_eq!(write(large.clone()), (None, 4, 7, false));
    change(|rtnl, index| rtnl.set_up(index).expect("it is up"));
    assert_eq!(error(&device, &packet), None);
    assert_eq!(write(large.clone()), (None, 1, 7, false));
    change(|rtnl, index| rtnl.delete(index).expect("it is removed"));
    assert_eq!(error(&device, &packet), Some(libc::EBADFD));
    assert_eq!(write(large), (Some(libc::EBADFD), 1, 7, false));
    let read = (&device).read(&mut packet).err();
    assert_eq!(
        read.and_then(|error| error.raw_os_error()),
        Some(libc::EBADFD)
    );
    let unattached = File::options().write(true).open("/dev/net/tun");
    let unattached = unattached.expect("a descriptor");
    assert_eq!(error(&unattached, &[0; 32]), Some(libc::EBADFD));
}

fn udp() {
    need_tap();
    const TRAIN: u32 = 50;
    let mut merged = 0;
    for form in [Form::Copied, Form::Gathered] {
        let echoed = with_echo(form, || {
            let [from, to] = [(); 2].map(|()| UdpSocket::bind((HERE, 0)).expect("a socket"));
            let port = to.local_addr().expect("its address").port();
            to.set_read_timeout(Some(Duration::from_secs(60)))
                .expect("a timeout");
            for round in 0..10_u32 {
                for index in 0..TRAIN {
                    let mut datagram = vec![index as u8; 700];
                    datagram[..4].copy_from_slice(&(round * TRAIN + index).to_be_bytes());
                    from.send_to(&datagram, (THERE, port)).expect("it is sent");
                }
                for index in 0..TRAIN {
                    let mut datagram = [0; 2000];
                    let bytes = to.recv(&mut datagram).expect("a datagram");
                    assert_eq!(bytes, 700);
                    assert_eq!(datagram[..4], (round * TRAIN + index).to_be_bytes());
                    assert!(datagram[4..700].iter().all(|&byte| byte == index as u8));
                }
            }
        });
        if echoed.refused.contains(&ErrorKind::InvalidInput) {
            skip("this kernel takes no UDP GSO packets (Linux 6.2)");
        }
        assert_eq!(echoed.refused, [], "{echoed:?}");
        merged += echoed.packets - echoed.writes;
    }
    // How many are read at once is the scheduler's choice; that none ever are is not.
    assert!(merged > 0);
}
