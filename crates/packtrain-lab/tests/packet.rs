//! Real kernel TCP and UDP through `packet:` and `xdp:` on veth pairs and `vhost-user:`, beside
//! `tap:`, each other and themselves, with offloads on and off, both IP versions, MTUs of 1500 and
//! 9000, VLAN tags, one and two queues; our counts against the kernels' own.
//!
//! A veth hands a packet over through the backlog of the CPU that it is sent on, so the kernel puts
//! a flow out of order when its sender changes the CPU: TCP sends from the thread of its program,
//! and from the softirq that an ACK arrives in. Its own bridge does so between two veths, too: with
//! TSO off and up to 8 streams, in 20 of 80 runs of these transfers on two CPUs, up to 136 segments
//! (Linux 6.18). So the whole process runs on one CPU: there the kernel keeps the order, and a
//! segment out of order would be packtrain's doing.

#[allow(dead_code, reason = "`vhost` of packtrain uses all of it")]
#[path = "../../packtrain/tests/vhost/guest.rs"]
mod guest;
#[path = "grid/relay.rs"]
mod relay;
#[path = "grid/transfers.rs"]
mod transfers;

use guest::OFFLOADS;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use packtrain::driver::{DeviceError, Features, Port, PortConfig};
use packtrain::engine::{Report, Session};
use packtrain::port::AnyPort;
use packtrain::port::packet::{PacketConfig, PacketSocket};
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::port::wrap::Vlan;
use packtrain::port::xdp::{XdpConfig, XdpMode, XdpSocket};
use packtrain_lab::counters::Counters;
use packtrain_lab::cpus;
use packtrain_lab::ethtool::Offload;
use packtrain_lab::harness;
use packtrain_lab::link::{LinkStats, Rtnl, quiet_ipv6};
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, Transfer};
use packtrain_lab::{LabError, netns};
use relay::{Device, Relay};
use std::process::ExitCode;
use std::time::Instant;
use std::{fmt, fs};
use transfers::{NAMES, TIMEOUT, tcp_transfers, ways};

const UDP_BYTES: u64 = 1 << 20;
const UDP_TRAIN: u32 = 40;
/// What TCP may have in flight: less than the queue of a veth with XDP takes (256), so that it
/// loses none while its reader has no CPU.
const IN_FLIGHT_PACKETS: u32 = 170;
const TCP_BUFFERS: &str = "/proc/sys/net/ipv4/tcp_wmem";
const VLAN: u16 = 100;
const TAG_BYTES: u64 = 4;
const ETHERNET_BYTES: u64 = 14;

fn main() -> ExitCode {
    harness::main(&[
        ("packet_grid", packet_grid),
        ("packets_above_64_kib_are_cut", big_tcp),
    ])
}

/// A port, and whether the host behind it and packtrain use offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    TapOff,
    /// Joined with its like only: it has no Ethernet header, and no tag.
    Tun,
    TunOff,
    Packet,
    /// The host segments, and packtrain gives the kernel finished packets.
    PacketOff,
    /// The program on the veth has the host segment.
    Xdp,
    XdpOff,
    Vhost,
    VhostOff,
}

impl Kind {
    const fn tap(self) -> Option<TapKind> {
        match self {
            Self::Tap | Self::TapOff => Some(TapKind::Tap),
            Self::Tun | Self::TunOff => Some(TapKind::Tun),
            _ => None,
        }
    }

    const fn is_xdp(self) -> bool {
        matches!(self, Self::Xdp | Self::XdpOff)
    }

    const fn is_vhost(self) -> bool {
        matches!(self, Self::Vhost | Self::VhostOff)
    }

    fn offload(self) -> Features {
        match self {
            Self::Tap | Self::Tun | Self::Packet | Self::Xdp | Self::Vhost => Features::ALL,
            _ => Features::NONE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kinds: [Kind; 2],
    mtu: u32,
    queues: usize,
    tagged: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kinds: [a, b],
            mtu,
            queues,
            tagged,
        } = self;
        write!(
            f,
            "{a:?} x {b:?}, mtu {mtu}, queues {queues}, tagged {tagged}"
        )
    }
}

fn cases() -> impl Iterator<Item = Case> {
    const PAIRS: [[Kind; 2]; 28] = [
        [Kind::Packet, Kind::Packet],
        [Kind::Packet, Kind::PacketOff],
        [Kind::PacketOff, Kind::PacketOff],
        [Kind::Tap, Kind::Packet],
        [Kind::Packet, Kind::TapOff],
        [Kind::PacketOff, Kind::Tap],
        [Kind::TapOff, Kind::PacketOff],
        [Kind::Xdp, Kind::Xdp],
        [Kind::Tap, Kind::Xdp],
        [Kind::Xdp, Kind::TapOff],
        [Kind::XdpOff, Kind::Tap],
        [Kind::Xdp, Kind::Packet],
        [Kind::Vhost, Kind::Vhost],
        [Kind::VhostOff, Kind::Vhost],
        [Kind::VhostOff, Kind::VhostOff],
        [Kind::Tap, Kind::Vhost],
        [Kind::Vhost, Kind::TapOff],
        [Kind::VhostOff, Kind::Tap],
        [Kind::TapOff, Kind::VhostOff],
        [Kind::Packet, Kind::Vhost],
        [Kind::Vhost, Kind::Xdp],
        [Kind::Xdp, Kind::XdpOff],
        [Kind::XdpOff, Kind::XdpOff],
        [Kind::XdpOff, Kind::TapOff],
        [Kind::XdpOff, Kind::Packet],
        [Kind::Tun, Kind::Tun],
        [Kind::TunOff, Kind::Tun],
        [Kind::TunOff, Kind::TunOff],
    ];
    let is_full = std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1");
    PAIRS
        .into_iter()
        .enumerate()
        .flat_map(move |(pair, kinds)| {
            (0..8)
                .map(move |number: usize| Case {
                    kinds,
                    mtu: [1500, 9000][number % 2],
                    queues: 1 + number / 2 % 2,
                    tagged: number / 4 == 1 && kinds[0].tap() != Some(TapKind::Tun),
                })
                .enumerate()
                // Two of each pair's eight, in a way that each setting comes up.
                .filter(move |(number, _)| is_full || [pair % 8, (pair + 3) % 8].contains(number))
                .map(|(_, case)| case)
        })
}

/// Without `CAP_BPF` of the host.
const ATTACH_REFUSED: LabError = LabError::Os {
    what: "attaching an XDP program",
    errno: libc::EPERM,
};

fn packet_grid() {
    harness::need_tap();
    let allowed = cpus::allowed().expect("the CPUs of this process");
    bind_to(&allowed[..1]);
    let mut has_xdp = true;
    for case in cases() {
        let needs_xdp = case.kinds.iter().any(|kind| kind.is_xdp());
        if needs_xdp && !has_xdp {
            continue;
        }
        let start = Instant::now();
        match run(case) {
            Ok(()) => println!("{case}: ok, {} ms", start.elapsed().as_millis()),
            Err(ATTACH_REFUSED) if needs_xdp => {
                println!("SKIP: {case}, and all others with xdp: {ATTACH_REFUSED}");
                has_xdp = false;
            }
            Err(error) => panic!("{case}: {error}"),
        }
    }
    bind_to(&allowed);
}

/// Binds this thread, and those that it starts, to CPUs.
fn bind_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu).expect("a CPU"));
    sched_setaffinity(Pid::from_raw(0), &set).expect("the CPUs are allowed");
}

/// The port of a side, with the device behind it if that is served from here, and the host's
/// interface: a TAP, or a veth whose other end is in `middle`.
type Opened = (String, (AnyPort, Option<Device>));

fn open(case: Case, side: Side, middle: &Netns) -> Result<Opened, LabError> {
    let (kind, name) = (side.of(case.kinds), side.of(NAMES));
    if kind.is_vhost() {
        let (device, port) = Device::open(name, case.queues, kind.offload())?;
        return Ok((name.to_owned(), (AnyPort::Vhost(port), Some(device))));
    }
    if let Some(tap) = kind.tap() {
        let tap = Tap::open(&TapConfig {
            queues: case.queues,
            offload: kind.offload(),
            ..TapConfig::new(tap, name)
        });
        let tap = tap.unwrap_or_else(|error| panic!("{case}: {error}"));
        return Ok((name.to_owned(), (AnyPort::Tap(tap), None)));
    }
    let queues = if kind.is_xdp() { case.queues } else { 1 };
    Rtnl::open()?.create_veth(name, name, middle, queues as u32)?;
    if kind == Kind::PacketOff {
        // Before it is up: the kernel's TCP then builds wire packets.
        let host = Netns::current()?;
        Offload::Tso.set(&host, name, false)?;
        Offload::Gso.set(&host, name, false)?;
    }
    let port = middle.run(|| {
        quiet_ipv6(name)?;
        let mut rtnl = Rtnl::open()?;
        let index = rtnl.link(name)?.index;
        rtnl.set_mtu(index, case.mtu)?;
        rtnl.set_up(index)?;
        let offload = kind.offload();
        let port = if kind.is_xdp() {
            let config = XdpConfig {
                mode: XdpMode::Copy,
                offload,
                ..XdpConfig::new(name)
            };
            XdpSocket::open(&config).map(AnyPort::Xdp)
        } else {
            let config = PacketConfig {
                queues: case.queues,
                offload,
                ..PacketConfig::new(name)
            };
            PacketSocket::open(&config).map(AnyPort::Packet)
        };
        match port {
            Err(DeviceError::Failed { source, .. })
                if kind.is_xdp() && source.raw_os_error() == Some(libc::EPERM) =>
            {
                Err(ATTACH_REFUSED)
            }
            port => Ok::<_, LabError>(port.unwrap_or_else(|error| panic!("{case}: {error}"))),
        }
    })??;
    Ok((name.to_owned(), (port, None)))
}

fn forward(case: Case, ports: [AnyPort; 2]) -> Session {
    let mut kinds = case.kinds.into_iter();
    let [a, b] = ports.map(|port| Port {
        driver: match case.tagged {
            true => AnyPort::Vlan(Box::new(Vlan::single(port, VLAN))),
            false => port,
        },
        config: PortConfig {
            offload: kinds.next().map_or(Features::ALL, Kind::offload),
            queues: Some(case.queues),
            ..PortConfig::default()
        },
    });
    let session = Session::between(a, b).start();
    session.unwrap_or_else(|error| panic!("{case}: {error}"))
}

fn run(case: Case) -> Result<(), LabError> {
    let middle = Netns::new()?;
    let settings = Settings {
        mtu: case.mtu,
        ..Settings::default()
    };
    let (hosts, a, b) = TwoHosts::with(&settings, |side| open(case, side, &middle))?;
    let session = forward(case, [a.0, b.0]);
    let guests = [a.1, b.1].into_iter().flatten().map(Device::relay);
    let guests = guests.collect::<Result<Vec<_>, _>>()?;
    let before = [hosts.left.counters()?, hosts.right.counters()?];
    let links_before = [hosts.left.stats()?, hosts.right.stats()?];
    let streams = 2 * case.queues as u32;
    if case.kinds.iter().any(|kind| kind.is_xdp()) {
        let bytes = IN_FLIGHT_PACKETS * case.mtu / streams;
        for host in [&hosts.left, &hosts.right] {
            let write = || fs::write(TCP_BUFFERS, format!("4096 {bytes} {bytes}"));
            host.netns.run(write)?.expect(TCP_BUFFERS);
        }
    }
    for report in tcp_transfers(&hosts, streams)? {
        assert!(report.hash_ok, "{case}: bytes differ: {report:?}");
    }
    settle(case, &session, &hosts, &links_before)?;
    let tcp = [
        hosts.left.counters()?.since(&before[0]),
        hosts.right.counters()?.since(&before[1]),
    ];
    let ports = session.snapshot().ports;
    let wire_packets = [0, 1].map(|port: usize| ports[port].rx_total().wire_packets);
    for &ip in netns::ip_versions() {
        for (from, to) in ways(&hosts) {
            let transfer = Transfer::udp(ip, Amount::Bytes(UDP_BYTES)).train(UDP_TRAIN);
            let report = transfer.gro(true).window(128).run(from, to)?;
            assert!(report.hash_ok, "{case}: bytes differ: {report:?}");
        }
    }
    let links = settle(case, &session, &hosts, &links_before)?;
    check_guests(case, &guests);
    let report = session.finish();
    check(case, &report, &links);
    check_tcp(case, &tcp, wire_packets);
    Ok(())
}

/// Waits until our counts and those of the hosts' interfaces, since `before`, are equal.
fn settle(
    case: Case,
    session: &Session,
    hosts: &TwoHosts,
    before: &[LinkStats; 2],
) -> Result<[LinkStats; 2], LabError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = None;
    loop {
        let links = [
            hosts.left.stats()?.since(&before[0]),
            hosts.right.stats()?.since(&before[1]),
        ];
        let ports = session.snapshot().ports;
        let equal = (0..2).all(|port| {
            ports[port].rx_total().packets == links[port].tx_packets
                && ports[port].tx_total().packets == links[port].rx_packets
        });
        // A last ACK may be on its way after the counts have met once.
        if equal && last == Some(links) {
            return Ok(links);
        }
        assert!(
            Instant::now() < deadline,
            "{case}: counts do not meet: {ports:?} {links:?}"
        );
        last = Some(links);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// What was negotiated, and that nothing was wrong with any ring.
fn check_guests(case: Case, guests: &[Relay]) {
    let kinds = case.kinds.into_iter().filter(|kind| kind.is_vhost());
    for (kind, guest) in kinds.zip(guests) {
        let offers = !kind.offload().is_empty();
        let wanted = if offers { OFFLOADS } else { 0 };
        assert_eq!(guest.features & OFFLOADS, wanted, "{case}");
        let status = guest.watch.status();
        assert_eq!(status.features, guest.features, "{case}");
        assert!(status.connected && status.problem.is_none(), "{status:?}");
        assert_eq!(status.refused + status.bad_buffers, 0, "{status:?}");
    }
}

fn check(case: Case, report: &Report, links: &[LinkStats; 2]) {
    let snapshot = &report.snapshot;
    assert!(report.error.is_none(), "{case}: {:?}", report.error);
    assert!(snapshot.ledger.closed(), "{case}: {:?}", snapshot.ledger);
    assert_eq!(snapshot.ledger.held, 0, "{case}");
    assert_eq!(snapshot.ledger.dropped, 0, "{case}: {:?}", snapshot.drops);
    for (index, (port, link)) in snapshot.ports.iter().zip(links).enumerate() {
        let (rx, tx) = (port.rx_total(), port.tx_total());
        let tags = |packets| if case.tagged { packets * TAG_BYTES } else { 0 };
        // A veth whose other end has a program counts what it sends without Ethernet headers.
        let headers = match case.kinds[index].is_xdp() {
            true => rx.packets * ETHERNET_BYTES,
            false => 0,
        };
        assert_eq!(rx.packets, link.tx_packets, "{case}");
        assert_eq!(
            rx.bytes,
            link.tx_bytes + headers + tags(rx.packets),
            "{case}"
        );
        assert_eq!(tx.packets, link.rx_packets, "{case}");
        assert_eq!(tx.bytes, link.rx_bytes + tags(tx.packets), "{case}");
        assert_eq!(rx.bad_packets, 0, "{case}");
        let is_used = port.rx.iter().all(|queue| queue.packets > 0);
        assert!(is_used, "{case}: {:?}", port.rx);
        assert_eq!(link.dropped() + link.rx_errors, 0, "{case}");
        let kind = case.kinds[index];
        if !kind.is_vhost() {
            let device = report.devices[index].as_ref();
            let device = device.expect("the interface counts");
            assert!(device.tx_packets >= rx.packets, "{case}: {device:?}");
            assert!(device.rx_packets >= tx.packets, "{case}: {device:?}");
        }
        let offers = !kind.offload().is_empty();
        // ethtool's two switches leave a veth its UDP segmentation.
        let any_udp = kind == Kind::PacketOff;
        let is_large = offers && !kind.is_xdp();
        assert!(
            (rx.gso_packets > 0) == is_large || any_udp,
            "{case}: {rx:?}"
        );
        assert_eq!(tx.gso_packets > 0, is_large, "{case}: {tx:?}");
        // Packets whose checksums are complete stay as they are, if they are not merged.
        let stays = kind.is_xdp() && case.kinds[1 - index] == Kind::TapOff;
        assert_eq!(tx.needs_csum > 0, offers && !stays, "{case}: {tx:?}");
        assert_eq!(tx.refused_features, 0, "{case}");
    }
}

/// Hosts whose TCP builds packets above 64 KiB (BIG TCP), which no port sends.
fn big_tcp() {
    const MOST: u32 = 196_608;
    const BYTES: u64 = 32 << 20;
    harness::need_tap();
    let allowed = cpus::allowed().expect("the CPUs of this process");
    bind_to(&allowed[..1]);
    for other in [Kind::Packet, Kind::Tap, Kind::TapOff] {
        let case = Case {
            kinds: [Kind::Packet, other],
            mtu: 1500,
            queues: 1,
            tagged: false,
        };
        if let Err(error) = cut_big(case, MOST, BYTES) {
            panic!("{case}: {error}");
        }
    }
    bind_to(&allowed);
}

fn cut_big(case: Case, most: u32, bytes: u64) -> Result<(), LabError> {
    let middle = Netns::new()?;
    let settings = Settings::default();
    let (hosts, a, b) = TwoHosts::with(&settings, |side| open(case, side, &middle))?;
    for (host, kind) in [&hosts.left, &hosts.right].into_iter().zip(case.kinds) {
        if kind == Kind::Packet {
            host.netns.run(|| {
                let mut rtnl = Rtnl::open()?;
                rtnl.set_gso_max_size(host.link.index, most)?;
                rtnl.set_gso_ipv4_max_size(host.link.index, most)
            })??;
        }
    }
    let session = forward(case, [a.0, b.0]);
    for &ip in netns::ip_versions() {
        let before = (hosts.left.stats()?, session.snapshot().ports[0].rx_total());
        let transfer = Transfer::tcp(ip, Amount::Bytes(bytes));
        let report = transfer.run(&hosts.left, &hosts.right)?;
        assert!(report.hash_ok, "{case}: bytes differ: {report:?}");
        let sent = hosts.left.stats()?.since(&before.0).tx_packets;
        let received = session.snapshot().ports[0].rx_total().packets - before.1.packets;
        // What is above 64 KiB is received as two packets or more.
        assert!(
            received > sent + sent / 8,
            "{case}: {ip:?}: {received} of {sent}"
        );
    }
    let snapshot = session.finish().snapshot;
    assert_eq!(snapshot.ledger.dropped, 0, "{case}: {:?}", snapshot.drops);
    for host in [&hosts.left, &hosts.right] {
        assert_eq!(host.counters()?.tcp_in_csum_errors, 0, "{case}");
    }
    Ok(())
}

fn check_tcp(case: Case, tcp: &[Counters; 2], wire_packets: [u64; 2]) {
    for (tcp, wire_packets) in tcp.iter().zip(wire_packets) {
        assert_eq!(tcp.tcp_in_csum_errors, 0, "{case}");
        let sent = tcp.tcp_out_segs + tcp.tcp_retrans_segs;
        assert_eq!(wire_packets, sent, "{case}: {tcp:?}");
        assert_eq!(tcp.tcp_ofo_queue, 0, "{case}: {tcp:?}");
    }
}
