//! A bridge of two hosts and two guests. A load has the left host or one guest send to the other
//! guest, and decides what the guests do wrong.

use crate::guest::*;
use etherparse::PacketBuilder;
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use packtrain::bridge::{ADDRESSES, AGING, Addresses, Bridge};
use packtrain::driver::Port;
use packtrain::engine::{Report, Session};
use packtrain::port::vhost::VhostWatch;
use packtrain::port::{AnyPort, open};
use packtrain_lab::LabError;
use packtrain_lab::harness::wait_for;
use packtrain_lab::link::Mac;
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Settings, TwoHosts};
use packtrain_lab::traffic::{
    Amount, Datagrams, Exchange, IpVersion, Payload, Transfer, TransferReport,
};
use std::env::temp_dir;
use std::error::Error;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The guest that takes, and the one that may send.
const MACS: [Mac; 2] = [[2, 0, 0, 0x66, 0, 1], [2, 0, 0, 0x66, 0, 2]];
const HOSTS: [Mac; 2] = [[2, 0, 0, 0x18, 0, 1], [2, 0, 0, 0x18, 0, 2]];
/// The rings of a guest: to it, and from it.
const TO: usize = 0;
const FROM: usize = 1;
/// Where the left host sends datagrams for the guest that takes.
const GUEST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 9);
const TICK: Duration = Duration::from_millis(1);
/// Bytes of a ping.
const PING: usize = 64;
pub const PINGS: u64 = 1000;
/// Source addresses of [`Sends::Addresses`], more than the table of the bridge has.
const SOURCES: usize = 9000;

/// What is sent to a guest in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// So many datagrams of the left host.
    Datagrams(usize),
    /// Five datagrams of the left host, each of 64 wire packets of 8 bytes.
    Tiny,
    /// So many frames of the other guest.
    Frames(usize),
    /// TCP segments of the other guest, which are merged into one packet of 63 frames.
    Segments,
    /// 64 chains of 1024 descriptors of the other guest, which are no packets.
    BadChains,
    /// Ten frames of the other guest, each from another address.
    Addresses,
}

/// What the guest takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    All,
    Nothing,
    /// So many packets in so many ticks.
    Few(usize, usize),
    /// Nothing: its buffers become chains of 1024 empty descriptors.
    Empty,
}

/// What the guests of a bridge do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub name: &'static str,
    pub sends: Sends,
    pub takes: Takes,
    /// The packets or chains that were sent when the load has its effect.
    pub enough: usize,
}

const fn load(name: &'static str, sends: Sends, takes: Takes, enough: usize) -> Load {
    Load {
        name,
        sends,
        takes,
        enough,
    }
}

pub const LOADS: [Load; 8] = [
    load("honest", Sends::Frames(5), Takes::All, 1000),
    load("stuck_segments", Sends::Segments, Takes::Nothing, 20_000),
    load("stuck", Sends::Datagrams(40), Takes::Nothing, 17_600),
    load("slow", Sends::Datagrams(5), Takes::Few(2, 5), 2000),
    load("slow_tiny", Sends::Tiny, Takes::Few(1, 160), 2000),
    load("empty_chains", Sends::Datagrams(20), Takes::Empty, 4000),
    load("bad_chains", Sends::BadChains, Takes::All, 10_000),
    load("addresses", Sends::Addresses, Takes::All, SOURCES),
];

/// The bridge.
pub struct Bed {
    pub hosts: TwoHosts,
    session: Session,
    guests: Vec<Guest>,
    watches: Vec<VhostWatch>,
}

pub fn bridge(ports: Vec<Port<AnyPort>>) -> Result<Session, Box<dyn Error>> {
    let bridge = Bridge::new(Addresses::new(ADDRESSES, AGING));
    let session = Session::among(ports).handler(move |_| bridge.clone());
    Ok(session.start()?)
}

pub fn port(text: &str) -> Port<AnyPort> {
    open(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A port that waits for its guest, and the function that connects one with rings of `size`.
pub fn vhost(features: u64, size: u16) -> (Port<AnyPort>, impl FnOnce() -> (Guest, VhostWatch)) {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let socket = temp_dir().join(format!("neighbours-{}-{number}.sock", process::id()));
    let port = port(&format!("vhost-user:{},server", socket.display()));
    let watch = port.driver.vhost().expect("a front end");
    let connect = move || {
        let stream = UnixStream::connect(&socket).expect("the port listens");
        let mut options = Options::new(VERSION_1 | MRG_RXBUF | INDIRECT | EVENT_IDX | features);
        options.size = size;
        let guest = Guest::new(stream, options);
        wait_for("the guest", || watch.status().connected);
        (guest, watch)
    };
    (port, connect)
}

impl Bed {
    /// Two hosts, two guests if they are wanted, and `idle` TAPs without traffic.
    pub fn new(
        settings: &Settings,
        with_guests: bool,
        idle: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let (hosts, near, far) = TwoHosts::with(settings, |side| {
            let name = side.of(["near", "far"]);
            Ok::<_, LabError>((name.to_owned(), port(&format!("tap:{name}"))))
        })?;
        let (mut ports, mut connect) = (vec![near, far], Vec::new());
        for _ in 0..if with_guests { 2 } else { 0 } {
            let (port, guest) = vhost(OFFLOADS, 128);
            ports.push(port);
            connect.push(guest);
        }
        let quiet = Netns::new()?;
        let mut rtnl = quiet.rtnl()?;
        for number in 0..idle {
            let name = format!("idle-{number}");
            ports.push(quiet.run(|| port(&format!("tap:{name}")))?);
            let index = rtnl.link(&name)?.index;
            rtnl.set_up(index)?;
        }
        let session = bridge(ports)?;
        let connected = connect.into_iter().map(|connect| connect());
        let (mut guests, watches): (Vec<_>, _) = connected.unzip();
        if let [taker, sender] = &mut guests[..] {
            // The bridge learns where the first one is. Both hosts and the second one see it.
            assert!(taker.send(0, &[0; 12], &frame(0)), "a slot is free");
            wait_for("a frame", || sender.receive(0).is_some());
        }
        Ok(Self {
            hosts,
            session,
            guests,
            watches,
        })
    }

    /// Runs `run` while the guests do what `load` says. Also returns the number of packets for a
    /// host that the guests got.
    pub fn beside<T>(&mut self, load: Load, run: impl FnOnce(&Self) -> T) -> (T, usize) {
        let left = &self.hosts.left;
        let mut rtnl = left.netns.rtnl().expect("netlink");
        let added = rtnl.add_neighbour(left.link.index, GUEST.into(), MACS[0]);
        added.expect("a neighbour");
        let socket = left.netns.run(|| UdpSocket::bind((left.side.ipv4(), 0)));
        let socket = socket.expect("a thread").expect("a socket");
        if load.sends == Sends::Tiny {
            setsockopt(&socket, UdpGsoSegment, &8).expect("an option");
        }
        let (sent, mut strange) = (AtomicUsize::new(0), 0);
        let mut guests = std::mem::take(&mut self.guests);
        let act = act(load, &mut guests, &socket, &sent, &mut strange);
        let result = while_repeated(TICK, act, || {
            wait_for("the load", || sent.load(Ordering::Relaxed) >= load.enough);
            run(self)
        });
        self.guests = guests;
        (result, strange)
    }

    /// Why a ring of a guest is broken, if one is.
    pub fn problem(&self) -> Option<String> {
        let mut all = self.watches.iter().map(VhostWatch::status);
        all.find_map(|status| status.problem)
    }

    /// The end of the run, after that of the guests.
    pub fn finish(self) -> Report {
        drop(self.guests);
        self.session.finish()
    }
}

/// Runs `run` while another thread calls `work` again and again, each time after `pause`.
pub fn while_repeated<T>(
    pause: Duration,
    mut work: impl FnMut() + Send,
    run: impl FnOnce() -> T,
) -> T {
    let (stop, stopped) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                work();
            }
        });
        let result = run();
        // A panic drops it, too.
        drop(stop);
        result
    })
}

pub type Exchanged = (
    Result<TransferReport, LabError>,
    Result<Datagrams, LabError>,
);

/// A stream from the left host to the right one, with pings beside it.
pub fn exchange(hosts: &TwoHosts, stream: &Transfer, loss_wait: Duration) -> Exchanged {
    let amount = match stream.amount {
        Amount::Bytes(_) => Amount::Bytes(PINGS * PING as u64),
        time => time,
    };
    let (request, response) = (PING, PING);
    let mut pings = Transfer::udp(IpVersion::V4, amount).datagram(PING);
    pings.payload = Payload::Plain;
    pings.exchange = Some(Exchange { request, response });
    pings.loss_wait = loss_wait;
    thread::scope(|scope| {
        let pings = scope.spawn(|| pings.run(&hosts.left, &hosts.right));
        let stream = stream.run(&hosts.left, &hosts.right);
        let pings = pings.join().expect("a thread");
        (stream, pings.map(|report| report.datagrams))
    })
}

/// A frame from one guest to the other one.
fn frame(from: usize) -> Vec<u8> {
    let ends = [MACS[1 - from], MACS[from]].concat();
    [&ends[..], &[0x88, 0xB5], &[0; 86]].concat()
}

fn segment(number: u32) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(MACS[1], MACS[0]);
    let builder = builder.ipv4([198, 18, 0, 8], GUEST.octets(), 64);
    let builder = builder.tcp(1000, 2000, number * 1000, 1000).ack(1);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[7; 1000]).expect("memory");
    frame
}

/// What happens in a tick. Counts what was sent, and the packets for a host that the guests got.
fn act(
    load: Load,
    guests: &mut [Guest],
    socket: &UdpSocket,
    sent: &AtomicUsize,
    strange: &mut usize,
) -> impl FnMut() {
    let [taker, sender] = guests.get_disjoint_mut([0, 1]).expect("two guests");
    let mut packets = match load.sends {
        Sends::Datagrams(count) => vec![vec![0; 100]; count],
        Sends::Tiny => vec![vec![0; 512]; 5],
        Sends::Segments => (0..63).map(segment).collect(),
        Sends::Frames(count) => vec![frame(1); count],
        Sends::Addresses => vec![frame(1); 10],
        Sends::BadChains => vec![vec![]; 64],
    };
    // Behind the buffers that are in use.
    let table = |guest: &Guest, ring: usize, bytes: u32, flag: u16| {
        let at = guest.buffer(ring, 100);
        let row = |flags, next| descriptor(GUEST_BASE + at, bytes, flags, next);
        let mut rows: Vec<_> = (1..1024).map(|next| row(flag | NEXT, next)).collect();
        rows.push(row(flag, 0));
        guest.write(at, &rows.concat());
        GUEST_BASE + at
    };
    let (empty, bad) = (table(taker, TO, 0, WRITE), table(sender, FROM, 64, 0));
    let (mut tick, mut count) = (0, 0);
    move || {
        tick += 1;
        for packet in &mut packets {
            let is_sent = match load.sends {
                // A queue of the kernel that is full refuses it.
                Sends::Datagrams(_) | Sends::Tiny => socket.send_to(packet, (GUEST, 9)).is_ok(),
                Sends::BadChains => {
                    if let Some(slot) = sender.slot(FROM) {
                        sender.describe(FROM, slot, bad, 16 << 10, TABLE, 0);
                        sender.push(FROM, slot);
                        sender.kick(FROM, 1);
                    }
                    // A broken ring takes none.
                    true
                }
                sends => {
                    if sends == Sends::Addresses {
                        let source = (count % SOURCES) as u16;
                        packet[9..12].copy_from_slice(&[9, (source >> 8) as u8, source as u8]);
                    }
                    sender.send(0, &[0; 12], packet)
                }
            };
            count += usize::from(is_sent);
        }
        sent.store(count, Ordering::Relaxed);
        let most = match load.takes {
            Takes::All => usize::MAX,
            Takes::Few(packets, ticks) if tick % ticks == 0 => packets,
            _ => 0,
        };
        let took = std::iter::from_fn(|| taker.receive(0)).take(most);
        let took = took.chain(std::iter::from_fn(|| sender.receive(0)));
        let is_strange = |bytes: &[u8]| bytes.starts_with(&HOSTS[1]);
        *strange += took.filter(|(_, bytes)| is_strange(bytes)).count();
        if load.takes == Takes::Empty {
            while let Some((head, _)) = taker.take_used(TO) {
                taker.describe(TO, head, empty, 16 << 10, TABLE, 0);
                taker.push(TO, head);
                taker.kick(TO, 1);
            }
        }
    }
}
