//! Real kernel TCP and UDP through the forwarder, in every combination of offloads, IP version,
//! MTU, queues, segment limit and tagging; our counts against the kernel's own.
//!
//! A spread of cases runs by default, all of them with `PACKTRAIN_FULL=1`.
//!
//! The counts of both kernels and ours follow each segment from one TCP to the other. They must
//! arrive in order, unless a kernel counted a drop. TCP also repeats what is only late, as on a
//! busy machine: that decides nothing here, and the bench `tap` compares it with the C forwarder.

mod transfers;

use packtrain::driver::{DeviceCounters, Features, Port, PortConfig};
use packtrain::engine::{PortSnapshot, Report, Session};
use packtrain::port::AnyPort;
use packtrain::port::tap::Tap;
use packtrain::port::wrap::Vlan;
use packtrain_lab::counters::Counters;
use packtrain_lab::harness;
use packtrain_lab::link::LinkStats;
use packtrain_lab::topology::{Settings, TwoHosts};
use packtrain_lab::traffic::{Amount, Transfer, TransferReport};
use packtrain_lab::{LabError, netns};
use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use transfers::{NAMES, TIMEOUT, tcp_transfers, ways};

fn main() -> ExitCode {
    harness::main(&[("forward_grid", forward_grid)])
}

const OFFLOADS: [(&str, Features); 4] = [
    ("auto", Features::ALL),
    ("off", Features::NONE),
    ("csum", Features::CSUM),
    ("tso", Features::CSUM.union(Features::TSO)),
];
const UDP_BYTES: u64 = 1 << 20;
/// Small enough to be kept by the test in a row of cases, large enough for 64 KiB packets.
const UDP_TRAIN: u32 = 40;
const VLAN: u16 = 100;
const TAG_BYTES: u64 = 4;
#[derive(Clone, Copy)]
struct Case {
    a: usize,
    b: usize,
    mtu: u32,
    queues: usize,
    segments: Option<usize>,
    tagged: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            a,
            b,
            mtu,
            queues,
            segments,
            tagged,
        } = self;
        let (a, b) = (OFFLOADS[*a].0, OFFLOADS[*b].0);
        write!(
            f,
            "{a} x {b}, mtu {mtu}, queues {queues}, segs {segments:?}, tagged {tagged}"
        )
    }
}

fn cases() -> Vec<Case> {
    let case = |number: usize| Case {
        a: number / 64,
        b: number / 16 % 4,
        mtu: [1500, 9000][number / 8 % 2],
        queues: [1, 4][number / 4 % 2],
        segments: [None, Some(3)][number / 2 % 2],
        tagged: number % 2 == 1,
    };
    let all: Vec<Case> = (0..4 * 64).map(case).collect();
    if std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1") {
        return all;
    }
    // Every pair of offloads with two of the sixteen others, in a way that each of them comes up.
    all.chunks(16)
        .enumerate()
        .flat_map(|(pair, others)| [others[(pair * 7) % 16], others[(pair * 7 + 5) % 16]])
        .collect()
}

fn forward_grid() {
    let cases = cases();
    println!("{} cases", cases.len());
    for case in cases {
        let start = Instant::now();
        let accounts = run(case).unwrap_or_else(|error| panic!("{case}: {error}"));
        check(case, &accounts);
        println!(
            "{case}: ok, {} wire packets, {} dropped by kernels, {} ms",
            accounts.report.snapshot.ledger.received,
            accounts.kernel_drops(),
            start.elapsed().as_millis(),
        );
    }
}

/// What one case came to, as counted by all sides.
struct Accounts {
    reports: Vec<TransferReport>,
    report: Report,
    /// Counted by the kernel for each interface.
    links: [LinkStats; 2],
    /// Counted by each kernel's TCP and others, during the TCP transfers only.
    tcp: [Counters; 2],
    /// Our wire packets received from each port during the TCP transfers.
    tcp_wire_packets: [u64; 2],
    /// Dropped by the interfaces meanwhile, in packets.
    tcp_link_drops: u64,
    /// Each segment that one TCP counted as sent then came to the other one.
    all_arrived: bool,
}

impl Accounts {
    fn kernel_drops(&self) -> u64 {
        self.links.iter().map(LinkStats::dropped).sum()
    }
}

/// Packets that the two kernels at the ends dropped above their interfaces.
fn dropped_by_tcp(tcp: &[Counters; 2]) -> u64 {
    let packets = |tcp: &Counters| {
        tcp.tcp_backlog_drop + tcp.tcp_rcv_pruned + tcp.tcp_rcv_q_drop + tcp.tcp_zero_window_drop
    };
    tcp.iter().map(packets).sum()
}

/// Segments that a kernel's TCP sent; a GSO packet counts as the segments in it.
fn sent_segments(tcp: &Counters) -> u64 {
    tcp.tcp_out_segs + tcp.tcp_retrans_segs
}

fn run(case: Case) -> Result<Accounts, LabError> {
    let settings = Settings {
        mtu: case.mtu,
        ..Settings::default()
    };
    let (hosts, a, b) = harness::taps(&settings, NAMES, |side, config| {
        config.queues = case.queues;
        config.offload = OFFLOADS[side.of([case.a, case.b])].1;
        // With `segs=` some packets have to be copied.
        config.gso_limit = false;
    });
    let session = forward(case, a, b);
    let before = [hosts.left.counters()?, hosts.right.counters()?];
    let mut reports = tcp_transfers(&hosts, case.queues as u32)?;
    let after_tcp = settle(&session, &hosts, case, &before, Quiet::has_all_segments)?;
    for &ip in netns::ip_versions() {
        for (from, to) in ways(&hosts) {
            let transfer = Transfer::udp(ip, Amount::Bytes(UDP_BYTES))
                .train(UDP_TRAIN)
                .gro(true);
            reports.push(transfer.window(256).run(from, to)?);
        }
    }
    let links = settle(&session, &hosts, case, &before, |_| true)?.links;
    Ok(Accounts {
        reports,
        report: session.finish(),
        links,
        tcp: after_tcp.tcp,
        tcp_wire_packets: after_tcp.wire_packets,
        tcp_link_drops: after_tcp.link_drops(),
        all_arrived: after_tcp.all_arrived(),
    })
}

fn forward(case: Case, a: Tap, b: Tap) -> Session {
    let port = |tap| match case.tagged {
        true => AnyPort::Vlan(Box::new(Vlan::single(AnyPort::Tap(tap), VLAN))),
        false => AnyPort::Tap(tap),
    };
    let side = |tap, offload| {
        let config = PortConfig {
            offload,
            segments: case.segments,
            queues: Some(case.queues),
            rx_buffers: None,
            coalesce: packtrain::driver::Coalesce::Auto,
            ..PortConfig::default()
        };
        Port {
            driver: port(tap),
            config,
        }
    };
    let (a, b) = (side(a, OFFLOADS[case.a].1), side(b, OFFLOADS[case.b].1));
    let session = Session::between(a, b).start();
    session.unwrap_or_else(|error| panic!("{case}: {error}"))
}

/// Counts of a moment at which nothing was on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quiet {
    /// Our wire packets received from each port.
    wire_packets: [u64; 2],
    /// Our packets transmitted to each port, and the wire packets that they stand for.
    transmitted: [[u64; 2]; 2],
    links: [LinkStats; 2],
    /// Since the beginning of the case.
    tcp: [Counters; 2],
}

impl Quiet {
    fn link_drops(&self) -> u64 {
        let drops = self.links.iter();
        drops.map(LinkStats::dropped).sum()
    }

    /// What TCP counted as sent has come to us, if no interface has dropped any of it.
    fn has_all_segments(&self) -> bool {
        let mut pairs = self.tcp.iter().zip(self.wire_packets);
        self.link_drops() > 0 || pairs.all(|(tcp, wire)| sent_segments(tcp) == wire)
    }

    /// Follows the segments from one TCP to the other, by the counts of both and ours between.
    fn all_arrived(&self) -> bool {
        let arrived = |from: usize| {
            let to = 1 - from;
            let [packets, wire_packets] = self.transmitted[to];
            sent_segments(&self.tcp[from]) == self.wire_packets[from]
                && self.wire_packets[from] == wire_packets
                && self.tcp[to].tcp_in_segs == packets
        };
        dropped_by_tcp(&self.tcp) == 0 && arrived(0) && arrived(1)
    }
}

/// Waits until the forwarder has taken all that the kernels sent, and `enough` is true: an
/// interface counts a packet as sent when we read it, so only TCP knows what still waits there.
fn settle(
    session: &Session,
    hosts: &TwoHosts,
    case: Case,
    before: &[Counters; 2],
    enough: fn(&Quiet) -> bool,
) -> Result<Quiet, LabError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut last = None;
    loop {
        let tcp = [
            hosts.left.counters()?.since(&before[0]),
            hosts.right.counters()?.since(&before[1]),
        ];
        let links = [hosts.left.stats()?, hosts.right.stats()?];
        let ports = session.snapshot().ports;
        let equal = (0..2).all(|port| {
            ports[port].rx_total().packets == links[port].tx_packets
                && ports[port].tx_total().packets == links[port].rx_packets
        });
        let wire_packets = [0, 1].map(|port: usize| ports[port].rx_total().wire_packets);
        let transmitted = [0, 1].map(|port: usize| {
            let tx = ports[port].tx_total();
            [tx.packets, tx.wire_packets]
        });
        let now = Quiet {
            wire_packets,
            transmitted,
            links,
            tcp,
        };
        // A last ACK may be on its way after the counts have met once.
        if equal && enough(&now) && last == Some(now) {
            return Ok(now);
        }
        assert!(
            Instant::now() < deadline,
            "{case}: counts do not meet: {ports:?} {now:?}"
        );
        last = Some(now);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn check(case: Case, accounts: &Accounts) {
    let Accounts {
        reports,
        report,
        links,
        ..
    } = accounts;
    let snapshot = &report.snapshot;
    assert!(report.error.is_none(), "{case}: {:?}", report.error);
    for transfer in reports {
        assert!(transfer.hash_ok, "{case}: bytes differ: {transfer:?}");
    }
    assert!(snapshot.ledger.closed(), "{case}: {:?}", snapshot.ledger);
    assert_eq!(snapshot.ledger.held, 0, "{case}");
    assert_eq!(snapshot.ledger.dropped, 0, "{case}: {:?}", snapshot.drops);
    for ((port, link), device) in snapshot.ports.iter().zip(links).zip(&report.devices) {
        check_port(case, port, link, device.as_ref());
    }
    check_tcp(case, accounts);
    check_work(case, &snapshot.ports);
}

/// Frames and bytes of one port, as counted by us and by the kernel, twice.
fn check_port(case: Case, port: &PortSnapshot, link: &LinkStats, device: Option<&DeviceCounters>) {
    let (rx, tx) = (port.rx_total(), port.tx_total());
    let tags = |packets| if case.tagged { packets * TAG_BYTES } else { 0 };
    assert_eq!(rx.packets, link.tx_packets, "{case}");
    assert_eq!(rx.bytes, link.tx_bytes + tags(rx.packets), "{case}");
    assert_eq!(tx.packets, link.rx_packets, "{case}");
    assert_eq!(tx.bytes, link.rx_bytes + tags(tx.packets), "{case}");
    assert_eq!(rx.bad_packets, 0, "{case}");
    assert_eq!(
        link.rx_errors + link.rx_dropped + link.rx_frame_errors,
        0,
        "{case}"
    );
    let device = device.expect("a TAP counts");
    assert_eq!(device.tx_packets, link.tx_packets, "{case}");
    assert_eq!(device.rx_packets, link.rx_packets, "{case}");
    assert_eq!(device.tx_dropped, link.tx_dropped, "{case}");
}

/// Wire packets against the kernel's TCP counters.
fn check_tcp(case: Case, accounts: &Accounts) {
    let no_room = dropped_by_tcp(&accounts.tcp);
    for (tcp, &wire_packets) in accounts.tcp.iter().zip(&accounts.tcp_wire_packets) {
        assert_eq!(tcp.tcp_in_csum_errors, 0, "{case}");
        let sent = sent_segments(tcp);
        if accounts.tcp_link_drops == 0 {
            assert_eq!(wire_packets, sent, "{case}: {tcp:?}");
        } else {
            // What the kernel dropped in front of us it had counted as sent.
            assert!(wire_packets <= sent, "{case}: {wire_packets} of {sent}");
        }
        if accounts.tcp_link_drops + no_room == 0 {
            assert!(accounts.all_arrived, "{case}: {:?}", accounts.tcp);
            // Nothing was lost, so a segment out of order was put out of order by us.
            assert_eq!(tcp.tcp_ofo_queue, 0, "{case}: {tcp:?}");
        }
    }
}

/// Whether the offloads and the segment limit were really exercised.
fn check_work(case: Case, ports: &[PortSnapshot]) {
    let offered = [OFFLOADS[case.a].1, OFFLOADS[case.b].1];
    for (from, to) in [(0, 1), (1, 0)] {
        let (rx, tx) = (ports[from].rx_total(), ports[to].tx_total());
        let large = Features::TSO4 | Features::USO4;
        let in_gso = offered[from].contains(Features::TSO4);
        let out_gso = offered[to].contains(Features::TSO4);
        assert_eq!(rx.gso_packets > 0, in_gso, "{case}");
        // What arrives as wire packets is merged for an egress that takes large ones. Not if each
        // has more segments than that takes already, as TCP's have here and not all of UDP's.
        let merges = !offered[to]
            .intersection(large)
            .without(offered[from])
            .is_empty();
        if case.mtu == 1500 || case.segments.is_none() {
            assert_eq!(tx.gso_packets > 0, out_gso, "{case}");
            assert_eq!(rx.gro_packets > 0, merges, "{case}: {rx:?}");
        } else {
            assert!(merges || rx.gro_packets == 0, "{case}: {rx:?}");
            assert!(tx.gso_packets > 0 || !in_gso || !out_gso, "{case}");
        }
        let cut = !offered[from]
            .intersection(large)
            .without(offered[to])
            .is_empty();
        assert_eq!(tx.gso_sw_packets > 0, cut, "{case}");
        let in_csum = offered[from].contains(Features::CSUM);
        let out_csum = offered[to].contains(Features::CSUM);
        assert_eq!(
            tx.needs_csum > 0,
            out_csum && (in_csum || rx.gro_packets > 0),
            "{case}"
        );
        assert_eq!(tx.csum_sw > 0, in_csum && !out_csum, "{case}");
        if case.segments.is_some() && in_gso && out_gso {
            assert!(tx.defrag + tx.collapse > 0, "{case}: {tx:?}");
        }
        if case.segments.is_none() {
            assert_eq!(tx.defrag + tx.collapse, 0, "{case}: {tx:?}");
        }
        assert_eq!(tx.defrag_failed, 0, "{case}");
    }
}
