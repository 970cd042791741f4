//! A forwarder between two devices that it creates, with planted faults: what the tests of
//! `packtrain check` run. Without `--fault` it drops only what the kernel refuses.
//!
//! ```text
//! forwarder [--tap] [--plain | --forget] [--route] [--fault NAME] A B
//! forwarder --faults
//! ```
//!
//! `--plain` opens the devices without a virtio-net header. `--forget` does so with B only, and
//! treats it as a device with one. `--route` takes one from TTL and hop limit. Each fault has the
//! name of the check that must find it, but for those behind `late-copy`, which is found by the
//! check that sent the packet. Each is as narrow as the defect that it is modelled on.

use packtrain_offload::checksum::{
    Sum, ipv4_header, pseudo_header_v4, pseudo_header_v6, sum, udp_field,
};
use packtrain_offload::layout::{IpProtocol, Layout, Network, Transport};
use packtrain_offload::offload::LinkType;
use packtrain_offload::tun::{TunOffload, WRITE_BYTES_MAX};
use packtrain_offload::virtio_net::{FLAG_NEEDS_CSUM, GSO_NONE, HeaderLen, VnetHeader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use std::collections::{HashSet, VecDeque};
use std::io::{Error, ErrorKind};
use std::mem::take;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Reads of a device in one batch.
const READS_MAX: usize = 256;
/// How long a fault that needs several packets in a batch waits for them.
const GATHER: Duration = Duration::from_millis(2);
/// How long after a packet its late copy is sent.
const LATE: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    ended(std::env::args().skip(1))
}

/// Runs it with these arguments, to its end.
pub fn ended(args: impl Iterator<Item = String>) -> ExitCode {
    let Err(error) = run(args);
    if error.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn run(mut args: impl Iterator<Item = String>) -> Result<std::convert::Infallible, String> {
    let (mut tap, mut plain, mut forget, mut routes) = (false, false, false, false);
    let (mut names, mut fault) = (Vec::new(), None);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--tap" => tap = true,
            "--plain" => plain = true,
            "--forget" => forget = true,
            "--route" => routes = true,
            "--fault" => {
                let name = args.next().unwrap_or_default();
                let found = FAULTS.iter().find(|fault| fault.name == name);
                fault = Some(found.ok_or(format!("no fault is named '{name}'"))?);
            }
            "--faults" => {
                for Fault { name, what, .. } in FAULTS {
                    println!("{name:18} {what}");
                }
                return Err(String::new());
            }
            _ => names.push(arg),
        }
    }
    let [a, b] = &names[..] else {
        return Err(
            "usage: forwarder [--tap] [--plain | --forget] [--route] [--fault NAME] A B".into(),
        );
    };
    let offload = [TunOffload::tun(), TunOffload::tap()][usize::from(tap)];
    let offload = match plain {
        true => TunOffload {
            header: None,
            merge_tcp: false,
            ..offload
        },
        false => offload,
    };
    let open = |name: &str, plain: bool| -> Result<SyncDevice, String> {
        let layer = if tap { Layer::L2 } else { Layer::L3 };
        let device = DeviceBuilder::new().name(name).layer(layer);
        let device = device.offload(!plain).build_sync();
        let device = device.map_err(|error| format!("open {name}: {error}"))?;
        ioctl_fionbio(&device, true).map_err(|error| format!("open {name}: {error}"))?;
        Ok(device)
    };
    let devices = [open(a, plain)?, open(b, plain || forget)?];
    forward(devices.each_ref(), offload, fault, routes).map_err(|error| error.to_string())
}

/// Passes packets on, both ways by turns, until a device is removed.
fn forward(
    devices: [&SyncDevice; 2],
    offload: TunOffload,
    fault: Option<&Fault>,
    routes: bool,
) -> Result<std::convert::Infallible, Error> {
    let at = fault.map_or(At::None, |fault| fault.at);
    let mut read = vec![0; WRITE_BYTES_MAX];
    let mut buffers = vec![vec![0; WRITE_BYTES_MAX]; 33];
    let mut memory = [Memory::new(offload.link), Memory::new(offload.link)];
    loop {
        let mut ready = devices.map(|device| PollFd::new(device, PollFlags::IN));
        let due = memory.iter().filter_map(|memory| memory.copies.front());
        let wait = due.map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let wait = wait.min().and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut ready, wait.as_ref()) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if matches!(at, At::Batch(_)) {
            std::thread::sleep(GATHER);
        }
        for from in 0..2 {
            let [this, other] = &mut memory;
            let (memory, other) = if from == 0 {
                (this, other)
            } else {
                (other, this)
            };
            let mut batch = Vec::new();
            memory.reads = 0;
            while memory.reads < READS_MAX && !memory.stopped {
                let bytes = match devices[from].recv(&mut read) {
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if removed(&error) => return Err(error),
                    Err(error) => {
                        eprintln!("read: {error}");
                        break;
                    }
                };
                memory.reads += 1;
                if let At::Bytes(fault) = at {
                    fault(&mut read[..bytes], memory);
                }
                let mut packets = match offload.packets(&mut read[..bytes]) {
                    Ok(packets) => packets,
                    Err(_) if matches!(at, At::Refused) => {
                        let header = offload.header.map_or(0, HeaderLen::bytes);
                        batch.push(read[header.min(bytes)..bytes].to_vec());
                        continue;
                    }
                    Err(error) => {
                        eprintln!("read: {error}");
                        continue;
                    }
                };
                let mut of_read = Vec::with_capacity(packets.remaining());
                while let Some(packet) = packets.next_packet() {
                    of_read.push(packet.to_vec());
                }
                if routes {
                    of_read.retain_mut(|packet| route(packet, offload.link));
                }
                match at {
                    At::Read(fault) => fault(&mut of_read, memory),
                    At::Both(fault) => fault(&mut of_read, memory, other),
                    At::Copy(is_meant) => {
                        let meant = of_read.iter().filter(|packet| is_meant(packet, memory));
                        let copies: Vec<_> = meant.cloned().collect();
                        let due = Instant::now() + LATE;
                        memory
                            .copies
                            .extend(copies.into_iter().map(|copy| (due, copy)));
                    }
                    _ => {}
                }
                batch.append(&mut of_read);
            }
            while let Some((due, _)) = memory.copies.front()
                && *due <= Instant::now()
            {
                batch.extend(memory.copies.pop_front().map(|(_, copy)| copy));
            }
            if let At::Batch(fault) = at
                && !batch.is_empty()
            {
                fault(&mut batch, memory);
            }
            let _written = offload.write_batch(&mut buffers, &batch, |write| {
                match devices[1 - from].send(write) {
                    Err(error) if removed(&error) => return Err(error),
                    Err(error) if matches!(at, At::Refused) && code(&error) == Errno::INVAL => {
                        return Err(error);
                    }
                    Err(error) if matches!(at, At::Down) && code(&error) == Errno::IO => {
                        memory.stopped = true;
                    }
                    // EINVAL: no packet. EIO: the device is down.
                    _written => {}
                }
                Ok(())
            })?;
        }
        if memory.iter().any(|memory| memory.stopped) {
            std::thread::sleep(GATHER); // `poll` returns at once.
        }
    }
}

/// Takes one from the TTL or the hop limit; false if nothing is left of it.
fn route(packet: &mut [u8], link: LinkType) -> bool {
    let ip = match (link, packet.get(12..14)) {
        (LinkType::RawIp, _) => 0,
        (_, Some(&[0x81, 0])) => 18,
        (_, Some(&[8, 0] | &[0x86, 0xdd])) => 14,
        _ => return true,
    };
    let version = packet.get(ip).map_or(0, |first| first >> 4);
    let at = ip + if version == 4 { 8 } else { 7 };
    if packet.len() < ip + 20 || packet[at] <= 1 {
        return false;
    }
    packet[at] -= 1;
    if version == 4 {
        let end = ip + usize::from(packet[ip] & 15) * 4;
        let value = ipv4_header(&packet[ip..end]);
        put(packet, ip + 10, value.into());
    }
    true
}

fn code(error: &Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::INVAL)
}

fn removed(error: &Error) -> bool {
    code(error) == Errno::BADFD
}

// The faults.

/// A planted fault.
pub struct Fault {
    /// The check that finds it, or what it is.
    pub name: &'static str,
    /// What goes wrong.
    what: &'static str,
    at: At,
}

/// Where a fault is.
#[derive(Clone, Copy)]
enum At {
    None,
    /// In what a read returned: the virtio-net header and the packet.
    Bytes(fn(&mut [u8], &mut Memory)),
    /// In the packets of a read.
    Read(fn(&mut Vec<Vec<u8>>, &mut Memory)),
    /// In the packets of several reads.
    Batch(fn(&mut Vec<Vec<u8>>, &mut Memory)),
    /// In the packets of a read, with the memory of the other direction.
    Both(fn(&mut Vec<Vec<u8>>, &mut Memory, &mut Memory)),
    /// Packets of which a second copy is sent later.
    Copy(fn(&[u8], &Memory) -> bool),
    /// In a write that is refused with `EINVAL`.
    Refused,
    /// In a write to a device that is down.
    Down,
}

/// What a fault remembers of a direction.
struct Memory {
    link: LinkType,
    /// Reads in this batch.
    reads: usize,
    /// Nothing is read any more.
    stopped: bool,
    last: Instant,
    /// A packet to send later, or to compare with.
    packet: Vec<u8>,
    flows: HashSet<Vec<u8>>,
    /// Packets that are sent once more, each at a time.
    copies: VecDeque<(Instant, Vec<u8>)>,
    /// Large packets so far, or since `last`.
    large: usize,
}

impl Memory {
    fn new(link: LinkType) -> Self {
        Self {
            link,
            reads: 0,
            stopped: false,
            last: Instant::now(),
            packet: Vec::new(),
            flows: HashSet::new(),
            copies: VecDeque::new(),
            large: 0,
        }
    }

    /// How long ago this was called before.
    fn pause(&mut self) -> Duration {
        let before = std::mem::replace(&mut self.last, Instant::now());
        self.last - before
    }

    fn layout(&self, packet: &[u8]) -> Option<Layout> {
        Layout::parse(self.link, packet, packet.len() as u32).ok()
    }

    fn is(&self, packet: &[u8], kind: Transport) -> bool {
        let layout = self.layout(packet);
        layout.is_some_and(|layout| layout.transport_kind == kind)
    }

    /// A large packet that was cut.
    fn is_cut(&self, read: &[Vec<u8>], kind: Transport) -> bool {
        read.len() > 1 && self.is(&read[0], kind)
    }

    /// Keeps the packets of which `keep` is true, and those that have no layout.
    fn keep(&self, packets: &mut Vec<Vec<u8>>, keep: impl Fn(&[u8], &Layout) -> bool) {
        let layout = |packet: &[u8]| self.layout(packet);
        packets.retain(|packet| layout(packet).is_none_or(|layout| keep(packet, &layout)));
    }

    /// Calls `change` with each packet that follows one of its flow, and that one.
    fn followers(
        &self,
        batch: &mut [Vec<u8>],
        mut change: impl FnMut(&mut Vec<u8>, &Layout, &mut Vec<u8>, &Layout),
    ) {
        for i in 1..batch.len() {
            let (before, rest) = batch.split_at_mut(i);
            let (leader, follower) = (&mut before[i - 1], &mut rest[0]);
            if let (Some(l), Some(f)) = (self.layout(leader), self.layout(follower))
                && (flow(leader, &l), l.transport) == (flow(follower, &f), f.transport)
            {
                change(leader, &l, follower, &f);
            }
        }
    }
}

/// Addresses, protocol, ports.
fn flow(packet: &[u8], layout: &Layout) -> Vec<u8> {
    let (at, ports) = (usize::from(layout.network), usize::from(layout.transport));
    let addresses = match layout.kind {
        Network::Ipv4 => at + 12..at + 20,
        Network::Ipv6 => at + 8..at + 40,
        _ => return packet.to_vec(),
    };
    let ports = packet.get(ports..ports + 4).unwrap_or_default();
    [&packet[addresses], &[layout.protocol.0], ports].concat()
}

fn put(packet: &mut [u8], at: usize, value: usize) {
    packet[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Where the transport checksum is.
fn field(layout: &Layout) -> Option<usize> {
    match layout.transport_kind {
        Transport::Tcp => Some(usize::from(layout.transport) + 16),
        Transport::Udp => Some(usize::from(layout.transport) + 6),
        _ => None,
    }
}

/// Makes lengths and checksums those of a packet that ends where its bytes do.
fn seal(packet: &mut [u8], layout: &Layout) {
    let (network, at) = (usize::from(layout.network), usize::from(layout.transport));
    let bytes = packet.len() - at;
    let mut all: Sum = if layout.kind == Network::Ipv4 {
        put(packet, network + 2, packet.len() - network);
        seal_network(packet, layout);
        let address = |at: usize| std::array::from_fn(|i| packet[at + i]);
        let (from, to) = (address(network + 12), address(network + 16));
        pseudo_header_v4(from, to, layout.protocol.0, bytes as u32)
    } else {
        put(packet, network + 4, packet.len() - network - 40);
        let address = |at: usize| std::array::from_fn(|i| packet[at + i]);
        let (from, to) = (address(network + 8), address(network + 24));
        pseudo_header_v6(from, to, layout.protocol.0, bytes as u32)
    };
    if layout.transport_kind == Transport::Udp {
        put(packet, at + 4, bytes);
    }
    if let Some(field) = field(layout) {
        put(packet, field, 0);
        all.add_sum(sum(&packet[at..]));
        let is_udp = layout.transport_kind == Transport::Udp;
        let value = if is_udp {
            udp_field(all.finish())
        } else {
            all.finish()
        };
        put(packet, field, value.into());
    }
}

/// Makes the checksum of an IPv4 header right.
fn seal_network(packet: &mut [u8], layout: &Layout) {
    let (network, at) = (usize::from(layout.network), usize::from(layout.transport));
    if layout.kind == Network::Ipv4 {
        put(
            packet,
            network + 10,
            ipv4_header(&packet[network..at]).into(),
        );
    }
}

/// The TCP flags PSH and CWR.
const PSH_CWR: u8 = 0x88;
/// A direction is busy if it has moved 16 packets with data in this time.
const BUSY: Duration = Duration::from_millis(5);
/// Hop-by-hop options, routing, destination options.
const EXTENSION_HEADERS: [u8; 3] = [0, 43, 60];

/// All of them.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "tcp-sizes",
        what: "the segment size of a large TCP packet is rounded down to a multiple of 8",
        at: At::Read(|read, memory| {
            if memory.is_cut(read, Transport::Tcp) {
                let last = read.len() - 1;
                for packet in &mut read[..last] {
                    let layout = memory.layout(packet).expect("it was cut");
                    let rest = layout.payload_len() as usize % 8;
                    packet.truncate(packet.len() - rest);
                    seal(packet, &layout);
                }
            }
        }),
    },
    Fault {
        name: "tcp-segments",
        what: "segments of a large TCP packet behind the 64th are dropped",
        at: At::Read(|read, memory| {
            if memory.is_cut(read, Transport::Tcp) {
                read.truncate(64);
            }
        }),
    },
    Fault {
        name: "tcp-tails",
        what: "a last segment of fewer than 8 bytes is dropped",
        at: At::Read(|read, memory| {
            if memory.is_cut(read, Transport::Tcp) {
                let layout = read.last().and_then(|last| memory.layout(last));
                if layout.is_some_and(|layout| layout.payload_len() < 8) {
                    read.pop();
                }
            }
        }),
    },
    Fault {
        name: "udp-sizes",
        what: "datagrams of several sizes are merged, and cut at the size of the first",
        at: At::Batch(|batch, memory| {
            let same = |a: &[u8], b: &[u8]| match (memory.layout(a), memory.layout(b)) {
                (Some(l), Some(m)) if l.transport_kind == Transport::Udp => {
                    flow(a, &l) == flow(b, &m)
                }
                _ => false,
            };
            let mut out = Vec::new();
            for run in batch.chunk_by(|a, b| same(a, b)) {
                let (first, last) = (&run[0], &run[run.len() - 1]);
                let is_regular = run[1..]
                    .iter()
                    .rev()
                    .skip(1)
                    .all(|p| p.len() == first.len());
                let Some(layout) = memory.layout(first) else {
                    out.extend_from_slice(run);
                    continue;
                };
                let (at, size) = (usize::from(layout.payload), layout.payload_len() as usize);
                if is_regular && last.len() <= first.len() || size == 0 {
                    out.extend_from_slice(run);
                    continue;
                }
                let payload = run.iter().flat_map(|packet| &packet[at..]).copied();
                for piece in payload.collect::<Vec<_>>().chunks(size) {
                    let mut packet = [&first[..at], piece].concat();
                    seal(&mut packet, &layout);
                    out.push(packet);
                }
            }
            *batch = out;
        }),
    },
    Fault {
        name: "udp-segments",
        what: "the short last datagram of a large UDP packet is appended to the one before",
        at: At::Read(|read, memory| {
            if memory.is_cut(read, Transport::Udp) && read[read.len() - 1].len() < read[0].len() {
                let last = read.pop().expect("there are two");
                let layout = memory.layout(&last).expect("it was cut");
                let packet = read.last_mut().expect("there were two");
                packet.extend_from_slice(&last[layout.payload.into()..]);
                seal(packet, &layout);
            }
        }),
    },
    Fault {
        name: "ttl-tos",
        what: "packets of a flow get the TTL and the TOS of the first one of a batch",
        at: At::Batch(|batch, memory| {
            memory.followers(batch, |leader, _, follower, f| {
                let at = usize::from(f.network);
                follower[at..at + 2].copy_from_slice(&leader[at..at + 2]);
                let ttl = at + if f.kind == Network::Ipv4 { 8 } else { 7 };
                follower[ttl] = leader[ttl];
                seal_network(follower, f);
            });
        }),
    },
    Fault {
        name: "tcp-options",
        what: "packets of a flow get the TCP options of the first one of a batch",
        at: At::Batch(|batch, memory| {
            memory.followers(batch, |leader, l, follower, f| {
                if f.transport_kind == Transport::Tcp && l.payload == f.payload {
                    let options = usize::from(f.transport) + 20..f.payload.into();
                    follower[options.clone()].copy_from_slice(&leader[options]);
                    seal(follower, f);
                }
            });
        }),
    },
    Fault {
        name: "tcp-flags",
        what: "each segment gets PSH and CWR of the large TCP packet",
        at: At::Read(|read, memory| {
            if memory.is_cut(read, Transport::Tcp) {
                let layout = memory.layout(&read[0]).expect("it was cut");
                let at = usize::from(layout.transport) + 13;
                let flags = read
                    .iter()
                    .fold(0, |flags, packet| flags | packet[at] & PSH_CWR);
                for packet in read {
                    packet[at] |= flags;
                    let layout = memory.layout(packet).expect("it was cut");
                    seal(packet, &layout);
                }
            }
        }),
    },
    Fault {
        name: "ip-id",
        what: "all segments of a large packet get the IPv4 identification of the first",
        at: At::Read(|read, memory| {
            if let [first, rest @ ..] = &mut read[..]
                && let Some(layout) = memory.layout(first)
                && layout.kind == Network::Ipv4
            {
                let id = usize::from(layout.network) + 4;
                for packet in rest {
                    packet[id..id + 2].copy_from_slice(&first[id..id + 2]);
                    seal_network(packet, &layout);
                }
            }
        }),
    },
    Fault {
        name: "zero-checksum",
        what: "a UDP datagram over IPv4 without a checksum is dropped as wrong",
        at: At::Read(|read, memory| {
            memory.keep(read, |packet, layout| {
                let is_udp = layout.transport_kind == Transport::Udp;
                !(is_udp && field(layout).is_some_and(|at| packet[at..at + 2] == [0, 0]))
            });
        }),
    },
    Fault {
        name: "wrong-checksum",
        what: "a wrong TCP or UDP checksum is made right",
        at: At::Read(|read, memory| {
            if let [packet] = &mut read[..]
                && let Some(layout) = memory.layout(packet)
                && layout.ip_end as usize == packet.len()
                && field(&layout).is_some_and(|at| packet[at..at + 2] != [0, 0])
            {
                seal(packet, &layout);
            }
        }),
    },
    Fault {
        name: "short-packets",
        what: "an IP packet without payload is dropped, unless it is TCP",
        at: At::Read(|read, memory| {
            memory.keep(read, |_, layout| {
                let is_tcp = layout.transport_kind == Transport::Tcp;
                !layout.is_ip() || is_tcp || layout.payload_len() > 0
            });
        }),
    },
    Fault {
        name: "fragments",
        what: "IP fragments are dropped",
        at: At::Read(|read, memory| memory.keep(read, |_, layout| !layout.fragment)),
    },
    Fault {
        name: "ipv4-options",
        what: "the checksum of an IPv4 header with options covers 20 bytes",
        at: At::Read(|read, memory| {
            for packet in read {
                if let Some(layout) = memory.layout(packet)
                    && layout.kind == Network::Ipv4
                    && layout.l3_header_len() > 20
                {
                    let at = usize::from(layout.network);
                    let value = ipv4_header(&packet[at..at + 20]);
                    put(packet, at + 10, value.into());
                }
            }
        }),
    },
    Fault {
        name: "ipv6-extensions",
        what: "IPv6 packets with a hop-by-hop, routing or destination header are dropped",
        at: At::Read(|read, memory| {
            memory.keep(read, |packet, layout| {
                let next = packet.get(usize::from(layout.network) + 6);
                layout.kind != Network::Ipv6
                    || next.is_none_or(|next| !EXTENSION_HEADERS.contains(next))
            });
        }),
    },
    Fault {
        name: "mtu",
        what: "a packet of more than 1499 bytes is truncated, unless it is a segment of TCP",
        at: At::Read(|read, memory| {
            if !memory.is_cut(read, Transport::Tcp) {
                for packet in read {
                    let layout = memory.layout(packet);
                    packet.truncate(layout.map_or(0, |layout| layout.network.into()) + 1499);
                }
            }
        }),
    },
    Fault {
        name: "order",
        what: "of a flow with three other packets between its own, two are swapped",
        at: At::Batch(|batch, memory| {
            for i in 4..batch.len() {
                let flow = |packet: &[u8]| Some(flow(packet, &memory.layout(packet)?));
                let of = batch[i - 4..=i].iter().map(|packet| flow(packet));
                let of: Vec<_> = of.collect();
                if of[0] == of[4] && !of[1..4].contains(&of[0]) {
                    batch.swap(i - 4, i);
                    break;
                }
            }
        }),
    },
    Fault {
        name: "idle",
        what: "a single packet after 80 ms of silence is held until the next batch",
        at: At::Batch(|batch, memory| {
            let held = take(&mut memory.packet);
            if memory.pause() >= Duration::from_millis(80) && batch.len() == 1 {
                memory.packet = batch.remove(0);
            }
            if !held.is_empty() {
                batch.insert(0, held);
            }
        }),
    },
    Fault {
        name: "refused-write",
        what: "what is no packet is written too, and the program ends when the kernel refuses it",
        at: At::Refused,
    },
    Fault {
        name: "down-up",
        what: "a direction ends when a write is refused with EIO, since the device is down",
        at: At::Down,
    },
    Fault {
        name: "partial-checksum",
        what: "an unfinished checksum of other protocols than TCP and UDP is not finished",
        at: At::Bytes(|read, memory| {
            if let Ok(header) = VnetHeader::decode(read, HeaderLen::Legacy)
                && header.flags & FLAG_NEEDS_CSUM != 0
                && let Some(layout) = memory.layout(&read[HeaderLen::Legacy.bytes()..])
                && field(&layout).is_none()
            {
                read[0] &= !FLAG_NEEDS_CSUM;
            }
        }),
    },
    Fault {
        name: "flows",
        what: "packets of new flows are dropped while 4096 others were seen without a pause",
        at: At::Read(|read, memory| {
            if memory.pause() >= Duration::from_millis(500) {
                memory.flows.clear();
            }
            let mut flows = take(&mut memory.flows);
            let layout = |packet: &[u8]| memory.layout(packet).filter(Layout::is_ip);
            read.retain(|packet| {
                layout(packet).is_none_or(|layout| {
                    let flow = flow(packet, &layout);
                    flows.contains(&flow) || flows.len() < 4096 && flows.insert(flow)
                })
            });
            memory.flows = flows;
        }),
    },
    Fault {
        name: "acks",
        what: "a TCP packet without payload that repeats the one before is dropped",
        at: At::Read(|read, memory| {
            let before = take(&mut memory.packet);
            if let [packet] = &mut read[..]
                && let Some(layout) = memory.layout(packet)
                && layout.transport_kind == Transport::Tcp
                && layout.payload_len() == 0
            {
                // Without the IP header, whose identification differs.
                memory.packet = packet[layout.transport.into()..].to_vec();
                if memory.packet == before {
                    read.clear();
                }
            }
        }),
    },
    Fault {
        name: "protocols",
        what: "IP protocols but TCP, UDP and ICMP are dropped",
        at: At::Read(|read, memory| {
            let known = [
                IpProtocol::TCP,
                IpProtocol::UDP,
                IpProtocol::ICMP,
                IpProtocol::ICMPV6,
            ];
            memory.keep(read, |_, layout| {
                !layout.is_ip() || layout.fragment || known.contains(&layout.protocol)
            });
        }),
    },
    Fault {
        name: "ethernet",
        what: "frames with a VLAN tag are dropped",
        at: At::Read(|read, memory| memory.keep(read, |_, layout| layout.vlans == 0)),
    },
    Fault {
        name: "both-ways",
        what: "while both directions are busy, the last byte of a packet is that of the other",
        at: At::Both(|read, memory, other| {
            if memory.last.elapsed() > BUSY {
                (memory.last, memory.large) = (Instant::now(), 0);
            }
            memory.large += read.iter().filter(|packet| packet.len() > 200).count();
            let is_busy = |m: &Memory| m.last.elapsed() <= BUSY && m.large >= 16;
            if let Some(packet) = read.iter_mut().find(|packet| packet.len() > 200) {
                memory.packet.clone_from(packet);
                if is_busy(memory)
                    && is_busy(other)
                    && let (Some(mine), Some(theirs)) = (packet.last_mut(), other.packet.last())
                {
                    *mine = if mine == theirs { !*theirs } else { *theirs };
                }
            }
        }),
    },
    Fault {
        name: "burst",
        what: "reads behind the 100th that is pending are dropped",
        at: At::Batch(|batch, memory| {
            let excess = memory.reads.saturating_sub(100);
            batch.truncate(batch.len() - excess.min(batch.len()));
        }),
    },
    Fault {
        name: "tcp-stream",
        what: "in each 1000th large TCP packet a bit is flipped, and the checksum made right",
        at: At::Read(|read, memory| {
            memory.large += usize::from(memory.is_cut(read, Transport::Tcp));
            if memory.large == 1000 {
                memory.large = 0;
                let layout = memory.layout(&read[0]).expect("it was cut");
                read[0][usize::from(layout.payload)] ^= 1;
                seal(&mut read[0], &layout);
            }
        }),
    },
    Fault {
        name: "mss-speed",
        what: "large TCP packets with segments of less than 400 bytes are dropped",
        at: At::Read(|read, memory| {
            if memory.is_cut(read, Transport::Tcp) && read[0].len() < 400 {
                read.clear();
            }
        }),
    },
    Fault {
        name: "late-copy",
        what: "of each IP fragment a second copy is sent 0.3 s later",
        at: At::Copy(|packet, memory| memory.layout(packet).is_some_and(|layout| layout.fragment)),
    },
    Fault {
        name: "pseudo-sum",
        what: "an unfinished checksum of a packet that is not cut is not finished",
        at: At::Bytes(|read, _| {
            if read[1] == GSO_NONE {
                read[0] &= !FLAG_NEEDS_CSUM;
            }
        }),
    },
    Fault {
        name: "gso-lost",
        what: "the segmentation of the virtio-net header is not passed on",
        at: At::Bytes(|read, _| read[1] = GSO_NONE),
    },
    Fault {
        name: "each-1000th",
        what: "each 1000th packet of a direction is dropped",
        at: At::Read(|read, memory| {
            read.retain(|_| {
                memory.large += 1;
                memory.large % 1000 != 0
            });
        }),
    },
    Fault {
        name: "ends",
        what: "the program ends at the 500th packet of a direction, with exit status 0",
        at: At::Read(|read, memory| {
            memory.large += read.len();
            if memory.large >= 500 {
                std::process::exit(0);
            }
        }),
    },
];
