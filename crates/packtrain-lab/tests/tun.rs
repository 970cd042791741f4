//! `packtrain_offload::tun` between a kernel and itself: a TUN whose other end swaps addresses, so
//! that what a kernel's TCP and UDP send to a neighbour comes back to it, in super-packets.

use packtrain_lab::harness::{self, Outcome, without_tap};
use packtrain_lab::link::Rtnl;
use packtrain_lab::netns::Netns;
use packtrain_lab::tap::{OFFLOAD_TSO, Tap, wait_readable};
use packtrain_offload::tun::{Piece, Tun, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::{Accept, HeaderLen};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    harness::main(&[
        ("tcp_through_writes_that_were_copied", || tcp(Form::Copied)),
        ("tcp_through_writes_that_were_gathered", || {
            tcp(Form::Gathered)
        }),
        ("udp_trains_come_apart_in_order", udp),
    ])
}

const HERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);
/// Room for a virtio-net header in front of each packet.
const HEADROOM: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Copied,
    Gathered,
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
fn world() -> (Netns, File) {
    let netns = Netns::new().expect("a namespace");
    let file = netns.run(|| {
        let tap = Tap::tun("echo0").multi_queue(false).vnet_hdr(true);
        // UDP stays whole: a train has to be made here.
        let mut files = tap.offload(OFFLOAD_TSO).open().expect("a TUN");
        let mut rtnl = Rtnl::open().expect("rtnetlink");
        let index = rtnl.link("echo0").expect("the TUN").index;
        rtnl.add_address(index, IpAddr::V4(HERE), 24)
            .expect("an address");
        rtnl.set_up(index).expect("it is up");
        File::from(files.remove(0))
    });
    (netns, file.expect("a thread in it"))
}

/// Swaps addresses of what is read until `stop`; whatever can be read at once is one batch.
fn echo(mut device: File, form: Form, stop: &AtomicBool) -> Echoed {
    let mut tun = Tun::new(Accept::ALL);
    tun.header = HeaderLen::V1;
    let mut echoed = Echoed::default();
    let mut read = vec![0; WRITE_BYTES_MAX];
    let mut buffers = vec![vec![0xA5; WRITE_BYTES_MAX]; 8];
    let patience = Duration::from_millis(20);
    while !stop.load(Ordering::Acquire) {
        wait_readable(&[device.as_fd()], patience).expect("poll");
        let mut batch: Vec<Vec<u8>> = Vec::new();
        while batch.len() < 500 {
            match device.read(&mut read) {
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
        let mut done = |result: std::io::Result<usize>, bytes: usize| {
            echoed.writes += 1;
            match result {
                Ok(written) => assert_eq!(written, bytes),
                Err(error) => echoed.refused.push(error.kind()),
            }
        };
        match form {
            Form::Copied => {
                let packets = batch.iter().map(|packet| &packet[HEADROOM..]);
                tun.write_batch(&mut buffers, packets, |bytes| {
                    done(device.write(bytes), bytes.len());
                });
            }
            Form::Gathered => {
                let mut pieces = vec![Piece::EMPTY; batch.len()];
                let packets = batch.iter_mut().map(|packet| &mut packet[..]);
                tun.gather_batch(&mut pieces, packets, HEADROOM, |write| {
                    let slices: Vec<_> = write.slices().map(IoSlice::new).collect();
                    done(device.write_vectored(&slices), write.bytes());
                });
            }
        }
    }
    echoed
}

/// Runs `traffic` in the namespace with the echo beside it.
fn with_echo(form: Form, traffic: impl FnOnce() + Send) -> Echoed {
    let (netns, device) = world();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| echo(device, form, &stop));
        let ran = netns.run(traffic);
        stop.store(true, Ordering::Release);
        let echoed = echo.join().expect("the echo");
        ran.expect("a thread in it");
        echoed
    })
}

fn tcp(form: Form) -> Outcome {
    if let Some(skip) = without_tap() {
        return skip;
    }
    const BYTES: usize = 8 << 20;
    let echoed = with_echo(form, || {
        let listener = TcpListener::bind((HERE, 0)).expect("a listener");
        let port = listener.local_addr().expect("its address").port();
        let data: Vec<u8> = (0..BYTES).map(|at| (at * 31 + (at >> 9)) as u8).collect();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the data");
            received
        });
        let to = SocketAddr::from((THERE, port));
        let mut client = TcpStream::connect(to).expect("a connection");
        client.write_all(&data).expect("it is taken");
        client.shutdown(Shutdown::Write).expect("an end");
        assert!(
            server.join().expect("a server") == data,
            "other bytes arrived"
        );
    });
    assert_eq!(echoed.refused, [], "{echoed:?}");
    assert!(
        echoed.packets > 2 * echoed.reads,
        "the kernel sends super-packets: {echoed:?}"
    );
    assert!(
        echoed.packets > 2 * echoed.writes,
        "it is given super-packets: {echoed:?}"
    );
    Outcome::Done
}

fn udp() -> Outcome {
    if let Some(skip) = without_tap() {
        return skip;
    }
    const TRAIN: u32 = 50;
    let mut merged = 0;
    for form in [Form::Copied, Form::Gathered] {
        let echoed = with_echo(form, || {
            let [from, to] = [(); 2].map(|()| UdpSocket::bind((HERE, 0)).expect("a socket"));
            let port = to.local_addr().expect("its address").port();
            to.set_read_timeout(Some(Duration::from_secs(5)))
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
            return Outcome::Skipped("this kernel takes no UDP GSO packets (Linux 6.2)".into());
        }
        assert_eq!(echoed.refused, [], "{echoed:?}");
        merged += echoed.packets - echoed.writes;
    }
    // How many are read at once is the scheduler's choice; that none ever are is not.
    assert!(merged > 0);
    Outcome::Done
}
