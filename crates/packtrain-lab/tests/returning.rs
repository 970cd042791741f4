//! Interfaces that are deleted and made again during a run (`gone=wait`), between kernels: the run
//! continues with them, every packet is accounted for, and nothing of the old ones stays.

use packtrain::bridge::{ADDRESSES, AGING, Addresses, Bridge};
use packtrain::driver::{ChangeKind, Link, Port};
use packtrain::engine::{Report, Session};
use packtrain::port::{self, AnyPort};
use packtrain::stats::DropReason;
use packtrain_lab::LabError;
use packtrain_lab::harness::{Traces, need_tap, wait_for};
use packtrain_lab::link::{Rtnl, quiet_ipv6};
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Host, Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    packtrain_lab::tests![
        an_interface_that_is_made_again_continues_in_the_run,
        a_port_goes_again_and_again_and_leaves_nothing,
        an_interface_that_is_made_again_has_its_own_mtu,
        one_of_three_ports_goes_and_the_others_do_not_notice,
    ]
}

const NAMES: [&str; 2] = ["again-a", "again-b"];
const BYTES: u64 = 1 << 20;

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A TAP interface that packtrain makes, and makes again.
    Tap,
    /// One end of a veth. The test makes it, and makes it again.
    Packet,
    /// As that, through AF_XDP sockets.
    Xdp,
}

/// One way through the test: the kind of both ports, and their queues.
#[derive(Debug)]
struct Place {
    kind: Kind,
    queues: u32,
    /// Of the veths that are made from now on.
    mtu: u32,
    /// The other ends of the veths are here.
    middle: Netns,
}

impl Place {
    fn new(kind: Kind, queues: u32) -> Self {
        let middle = Netns::new().expect("a namespace");
        Self {
            kind,
            queues,
            mtu: 1500,
            middle,
        }
    }

    /// Makes the veth of a side in the calling thread's namespace.
    fn make_veth(&self, name: &str) -> Result<(), LabError> {
        let mut rtnl = Rtnl::open()?;
        rtnl.create_veth(name, name, &self.middle, self.queues)?;
        let index = rtnl.link(name)?.index;
        rtnl.set_mtu(index, self.mtu)?;
        self.middle.run(|| {
            quiet_ipv6(name)?;
            let mut rtnl = Rtnl::open()?;
            let index = rtnl.link(name)?.index;
            rtnl.set_mtu(index, self.mtu)?;
            rtnl.set_up(index)
        })?
    }

    fn open(&self, name: &str) -> Result<Port<AnyPort>, LabError> {
        let queues = self.queues;
        let open = |kind: &str| {
            let spec = format!("{kind}:{name},queues={queues},gone=wait");
            port::open(&spec).unwrap_or_else(|error| panic!("{error}"))
        };
        match self.kind {
            Kind::Tap => Ok(open("tap")),
            Kind::Packet | Kind::Xdp => {
                self.make_veth(name)?;
                let kind = match self.kind {
                    Kind::Xdp => "xdp",
                    _ => "packet",
                };
                self.middle.run(|| open(kind))
            }
        }
    }

    fn hosts(&self) -> (TwoHosts, [Port<AnyPort>; 2]) {
        let hosts = TwoHosts::with(&Settings::default(), |side| {
            let name = side.of(NAMES);
            Ok::<_, LabError>((name.to_owned(), self.open(name)?))
        });
        let (hosts, a, b) = hosts.expect("two hosts");
        (hosts, [a, b])
    }

    /// Deletes the interface of a host, and returns once the run has noticed.
    fn delete(&self, session: &mut Session, host: &Host) {
        let gone = happened(session, ChangeKind::Gone);
        let mut rtnl = host.netns.rtnl().expect("netlink");
        let index = rtnl.link(host.side.of(NAMES)).expect("it is there").index;
        // What it has counted until now.
        wait_until_quiet(session);
        session.links();
        rtnl.delete(index).expect("it is deleted");
        wait_for("the port to be away", || {
            happened(session, ChangeKind::Gone) > gone
        });
    }

    /// Makes the interface again, unless packtrain does, and sets it up. Returns once the port is
    /// back and up.
    fn make_again(&self, session: &mut Session, host: &Host) -> Host {
        let side = host.side;
        let name = side.of(NAMES);
        if self.kind != Kind::Tap {
            let made = host.netns.run(|| self.make_veth(name));
            made.expect("a thread").expect("a veth");
        }
        wait_for("the port to be back", || {
            happened(session, ChangeKind::Back) == happened(session, ChangeKind::Gone)
        });
        let host = set_up(&host.netns, side);
        wait_for("the link to be up", || {
            session.links()[side.of([0, 1])] == Link::Up
        });
        host
    }
}

fn happened(session: &Session, kind: ChangeKind) -> usize {
    let changes = session.snapshot().changes;
    assert_eq!(changes.count, changes.last.len() as u64, "none is left out");
    let of_kind = changes.last.iter().filter(|change| change.kind == kind);
    // A reason why it cannot be opened yet is another one of that kind, of the same absence.
    let of_kind = of_kind.filter(|change| !change.why.starts_with("it cannot be opened"));
    of_kind.count()
}

/// Waits until the kernels have sent the last segments of their connections.
fn wait_until_quiet(session: &Session) {
    let moved = || {
        let ports = session.snapshot().ports;
        let ports = ports.iter();
        ports
            .map(|port| port.rx_total().packets + port.tx_total().packets)
            .sum::<u64>()
    };
    let mut before = None;
    wait_for("the end of all traffic", || {
        thread::sleep(Duration::from_millis(100));
        let now = moved();
        before.replace(now) == Some(now)
    });
}

/// As the interface was set up at first.
fn set_up(netns: &Netns, side: Side) -> Host {
    let name = side.of(NAMES);
    let up = netns.run(|| {
        quiet_ipv6(name)?;
        let mut rtnl = Rtnl::open()?;
        let index = rtnl.link(name)?.index;
        rtnl.set_mac(index, side.mac())?;
        rtnl.set_arp(index, false)?;
        rtnl.set_up(index)
    });
    up.expect("a thread").expect("it is up");
    let mut rtnl = netns.rtnl().expect("netlink");
    let index = rtnl.link(name).expect("it is there").index;
    wait_for("the link to settle", || {
        !rtnl.link_by_index(index).expect("a link").is_settling()
    });
    let added = rtnl.add_address(index, side.ipv4().into(), 24);
    added.expect("an address");
    let peer = rtnl.add_neighbour(index, side.other().ipv4().into(), side.other().mac());
    peer.expect("a neighbour");
    let link = rtnl.link_by_index(index).expect("a link");
    let netns = netns.run(Netns::current).expect("a thread").expect("/proc");
    Host { side, netns, link }
}

/// A transfer in each direction; every byte is checked.
fn assert_carries(left: &Host, right: &Host) {
    for (from, to) in [(left, right), (right, left)] {
        let tcp = Transfer::tcp(IpVersion::V4, Amount::Bytes(BYTES)).streams(2);
        let report = tcp.run(from, to).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.hash_ok, "{report:?}");
    }
}

/// Sends datagrams to the other host, whether it is there or not.
fn send_datagrams(from: &Host, count: usize) {
    let sent = from.netns.run(|| {
        let socket = UdpSocket::bind((from.side.ipv4(), 0)).expect("a socket");
        for _ in 0..count {
            let sent = socket.send_to(&[0; 100], (from.side.other().ipv4(), 9));
            assert_eq!(sent.expect("it is sent"), 100);
        }
    });
    sent.expect("a thread");
}

fn assert_ended_well(report: &Report) {
    assert!(report.error.is_none(), "{:?}", report.error);
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
    let drops = &report.snapshot.drops;
    assert_eq!(drops.total(), drops.get(DropReason::LinkDown), "{drops:?}");
}

fn an_interface_that_is_made_again_continues_in_the_run() {
    need_tap();
    for (kind, queues) in [
        (Kind::Tap, 1),
        (Kind::Tap, 2),
        (Kind::Packet, 1),
        (Kind::Packet, 2),
        (Kind::Xdp, 1),
        (Kind::Xdp, 2),
    ] {
        let place = Place::new(kind, queues);
        let (hosts, [a, b]) = place.hosts();
        let mut session = Session::between(a, b).start().expect("it starts");
        let TwoHosts {
            mut left,
            mut right,
        } = hosts;
        assert_carries(&left, &right);
        for side in [Side::Left, Side::Right] {
            let (gone, other) = match side {
                Side::Left => (&left, &right),
                Side::Right => (&right, &left),
            };
            place.delete(&mut session, gone);
            let before = session.snapshot().drops.get(DropReason::LinkDown);
            send_datagrams(other, 100);
            wait_for("packets for a port that is away, or down", || {
                session.snapshot().drops.get(DropReason::LinkDown) >= before + 100
            });
            let host = place.make_again(&mut session, gone);
            match side {
                Side::Left => left = host,
                Side::Right => right = host,
            }
            assert_carries(&left, &right);
        }
        wait_until_quiet(&session);
        let report = session.finish();
        assert_ended_well(&report);
        let changes = &report.snapshot.changes.last;
        let ports: Vec<_> = changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Back)
            .map(|change| change.port)
            .collect();
        assert_eq!(ports, [0, 1], "{changes:?}");
        for (port, device) in report.snapshot.ports.iter().zip(&report.devices) {
            let device = device.expect("an interface counts");
            let (rx, tx) = (port.rx_total(), port.tx_total());
            assert!(rx.packets > 0 && tx.packets > 0, "{rx:?} {tx:?}");
            assert_eq!(
                tx.packets, device.rx_packets,
                "{kind:?} {queues} to {}",
                port.name
            );
            assert_eq!(
                rx.packets, device.tx_packets,
                "{kind:?} {queues} from {}",
                port.name
            );
        }
        println!("{kind:?}, {queues} queues: ok");
    }
}

fn a_port_goes_again_and_again_and_leaves_nothing() {
    need_tap();
    let is_full = std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1");
    let times = if is_full { 20 } else { 8 };
    let traces = Traces::now();
    for kind in [Kind::Tap, Kind::Packet, Kind::Xdp] {
        let place = Place::new(kind, 2);
        let (hosts, [a, b]) = place.hosts();
        let mut session = Session::between(a, b).start().expect("it starts");
        let mut left = hosts.left;
        let mut first = None;
        for _ in 0..times {
            place.delete(&mut session, &left);
            left = place.make_again(&mut session, &left);
            send_datagrams(&left, 10);
            // As many descriptors as after the first time, once the queues have taken the new ones.
            let now = Traces::now();
            first.get_or_insert(now).assert_again();
        }
        assert_carries(&left, &hosts.right);
        if kind != Kind::Tap {
            place.delete(&mut session, &left);
        }
        // Also while the port is away.
        let report = session.finish();
        assert_ended_well(&report);
    }
    traces.assert_again();
}

fn an_interface_that_is_made_again_has_its_own_mtu() {
    need_tap();
    const LONG: usize = 3000;
    let mut place = Place::new(Kind::Packet, 1);
    let (hosts, [a, b]) = place.hosts();
    let mut session = Session::between(a, b).start().expect("it starts");
    place.mtu = 4000;
    place.delete(&mut session, &hosts.left);
    let left = place.make_again(&mut session, &hosts.left);
    let send = |from: &Host| {
        let sent = from.netns.run(|| {
            let socket = UdpSocket::bind((from.side.ipv4(), 0))?;
            socket.send_to(&[7; LONG], (from.side.other().ipv4(), 9))
        });
        assert_eq!(sent.expect("a thread").expect("it is sent"), LONG);
    };
    let too_long = |session: &Session| session.snapshot().drops.get(DropReason::Mtu);
    send(&left);
    wait_for("a packet that is too long", || too_long(&session) == 1);
    place.delete(&mut session, &hosts.right);
    let right = place.make_again(&mut session, &hosts.right);
    let new_mtu = |session: &Session, port| {
        let changes = session.snapshot().changes.last;
        let line = "its MTU is 4000 now";
        let is_that = |kind, why: &str| kind == ChangeKind::Mtu && why == line;
        let mut of_port = changes.iter().filter(|change| change.port == port);
        of_port.any(|change| is_that(change.kind, &change.why))
    };
    wait_for("both MTUs", || new_mtu(&session, 0) && new_mtu(&session, 1));
    for (from, to) in [(&left, &right), (&right, &left)] {
        let socket = to.netns.run(|| UdpSocket::bind((to.side.ipv4(), 9)));
        let socket = socket.expect("a thread").expect("a socket");
        let timeout = Some(Duration::from_secs(60));
        socket.set_read_timeout(timeout).expect("a timeout");
        send(from);
        let mut bytes = [0; 2 * LONG];
        assert_eq!(socket.recv(&mut bytes).expect("it arrives"), LONG);
        assert!(bytes[..LONG].iter().all(|&byte| byte == 7));
    }
    assert_eq!(too_long(&session), 1);
    let report = session.finish();
    assert!(report.error.is_none(), "{:?}", report.error);
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
}

/// TCP between two of them runs on: nothing of it is dropped.
fn one_of_three_ports_goes_and_the_others_do_not_notice() {
    need_tap();
    let place = Place::new(Kind::Tap, 1);
    let (hosts, [a, b]) = place.hosts();
    let third = Netns::new().expect("a third host");
    let name = "again-c";
    let up = |netns: &Netns| {
        let up = netns.run(|| {
            quiet_ipv6(name)?;
            let mut rtnl = Rtnl::open()?;
            let index = rtnl.link(name)?.index;
            rtnl.set_arp(index, false)?;
            rtnl.set_up(index)?;
            Ok::<_, LabError>(index)
        });
        up.expect("a thread").expect("it is up")
    };
    let c = third.run(|| place.open(name)).expect("a thread");
    let c = c.expect("a third port");
    let mut index = up(&third);
    let addresses = Addresses::new(ADDRESSES, AGING);
    let bridge = Bridge::new(addresses);
    let session = Session::among([a, b, c]).handler(move |_| bridge.clone());
    let mut session = session.start().expect("it starts");
    let over = AtomicBool::new(false);
    let transfers = AtomicU64::new(0);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let tcp = Transfer::tcp(IpVersion::V4, Amount::Bytes(4 * BYTES));
                let report = tcp.run(&hosts.left, &hosts.right).expect("it arrives");
                assert!(report.hash_ok, "{report:?}");
                transfers.fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..3 {
                let before = transfers.load(Ordering::Relaxed);
                let mut rtnl = third.rtnl().expect("netlink");
                let back = happened(&session, ChangeKind::Back);
                rtnl.delete(index).expect("it is deleted");
                wait_for("the port to be back", || {
                    happened(&session, ChangeKind::Back) > back
                });
                index = up(&third);
                wait_for("the link to be up", || session.links()[2] == Link::Up);
                wait_for("a transfer", || {
                    transfers.load(Ordering::Relaxed) > before + 1
                });
            }
            // A frame for a group, and so for all. One for all hosts has the host's own address on
            // an interface without ARP.
            let to_third = |session: &Session| session.snapshot().ports[2].tx_total().packets;
            let before = to_third(&session);
            let host = &hosts.left;
            let sent = host.netns.run(|| {
                let socket = UdpSocket::bind((host.side.ipv4(), 0))?;
                socket.send_to(&[0; 100], ("239.1.2.3", 9))
            });
            sent.expect("a thread").expect("it is sent");
            wait_for("a frame for the third host", || to_third(&session) > before);
        }));
        over.store(true, Ordering::Relaxed);
        sender.join().expect("no panic");
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let report = session.finish();
    assert_ended_well(&report);
    let changes = &report.snapshot.changes.last;
    assert!(changes.iter().all(|change| change.port == 2), "{changes:?}");
}
