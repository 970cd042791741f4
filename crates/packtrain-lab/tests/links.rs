//! Links that go down, move and are removed, and a device that refuses an offload that it
//! announced, under kernel TCP.

use packtrain::driver::{
    Accepted, ChangeKind, DeviceError, Driver, Features, Link, Moved, QueuePair, Refused, Token,
    TxDescriptors, TxPacket, WrapDriver, WrapTx,
};
use packtrain::engine::{Command, CommandError, Handler, Queues, Report, RxId, Session};
use packtrain::packet::{Arena, Burst};
use packtrain::plan::PathKind;
use packtrain::port::LinkWatch;
use packtrain::port::tap::{Tap, TapConfig, TapKind, TapRx, TapTx};
use packtrain::stats::DropReason;
use packtrain::time::Instant as Now;
use packtrain_lab::harness::{self, need_tap, skip, wait_for};
use packtrain_lab::link::{Rtnl, quiet_ipv6};
use packtrain_lab::netns::Netns;
use packtrain_lab::tap;
use packtrain_lab::topology::{Host, Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use packtrain_lab::{LabError, netns};
use packtrain_offload::offload::ChecksumState;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

fn main() -> ExitCode {
    packtrain_lab::tests![
        a_link_that_is_down_costs_packets_and_comes_back,
        carrier_that_is_lost_and_found,
        an_interface_that_moves_resumes_where_it_is_configured,
        an_interface_that_is_deleted_ends_the_run_by_name,
        a_watch_reports_changes_of_links_also_after_an_overflow,
        queues_that_are_paused_and_resumed_lose_nothing,
        a_pause_over_a_link_that_goes_costs_what_the_link_costs,
        tcp_through_a_device_that_refuses_tso,
        udp_trains_that_the_kernel_refuses,
        where_interfaces_are_made_without_ipv6_they_get_it,
    ]
}

/// As in a namespace that inherits `disable_ipv6` from a host that has it.
fn where_interfaces_are_made_without_ipv6_they_get_it() {
    need_tap();
    if !netns::has_ipv6() {
        skip("this kernel has no IPv6");
    }
    let hosts = TwoHosts::with(&Settings::default(), |side| {
        // In the namespace of the side, for interfaces that are made there later.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a setting");
        let name = side.of(NAMES);
        let tap = Tap::open(&TapConfig::new(TapKind::Tap, name)).expect("a TAP");
        let own = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        assert_eq!(std::fs::read_to_string(own).expect("a setting"), "1\n");
        Ok::<_, LabError>((name.to_owned(), tap))
    });
    let (hosts, a, b) = hosts.expect("both get their addresses");
    let session = forward(a, b);
    let transfer = Transfer::tcp(IpVersion::V6, Amount::Bytes(100_000));
    let report = transfer.run(&hosts.left, &hosts.right).expect("IPv6");
    assert!(report.hash_ok, "{report:?}");
    assert_ended_well(&session.finish());
}

const NAMES: [&str; 2] = ["link-a", "link-b"];
const TIMEOUT: Duration = Duration::from_secs(60);

fn taps() -> (TwoHosts, Tap, Tap) {
    harness::taps(&Settings::default(), NAMES, |_, _| {})
}

fn forward(a: Tap, b: Tap) -> Session {
    Session::between(a, b).start().expect("it starts")
}

/// As [`forward`], with application threads that send to each port.
fn forward_and_send(a: Tap, b: Tap) -> Session {
    let session = Session::between(a, b).senders(0, 1).senders(1, 1);
    session.start().expect("it starts")
}

/// Runs one transfer after the other until `meanwhile` has ended, and checks every byte.
fn send_during(hosts: &TwoHosts, ip: IpVersion, meanwhile: impl FnOnce()) {
    let transfer = Transfer::tcp(ip, Amount::Time(Duration::from_secs(1)));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let report = transfer.run(&hosts.left, &hosts.right);
                let report = report.expect("the connection survives");
                assert!(report.hash_ok, "{report:?}");
            }
        });
        let result = catch_unwind(AssertUnwindSafe(meanwhile));
        over.store(true, Ordering::Relaxed);
        sender.join().expect("no panic");
        result.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// A short transfer in each direction; every byte is checked.
fn assert_carries(left: &Host, right: &Host) {
    let versions = netns::ip_versions();
    for &ip in versions {
        for (from, to) in [(left, right), (right, left)] {
            let report = Transfer::tcp(ip, Amount::Bytes(1 << 20)).run(from, to);
            let report = report.unwrap_or_else(|error| panic!("{ip}: {error}"));
            assert!(report.hash_ok, "{report:?}");
        }
    }
}

/// Restores the settings that an interface lost when it was set down or moved.
fn address(netns: &Netns, side: Side) -> Host {
    let name = side.of(NAMES);
    let mut rtnl = netns.rtnl().expect("netlink");
    let index = rtnl.link(name).expect("it is there").index;
    wait_for("the link to settle", || {
        !rtnl.link_by_index(index).expect("a link").is_settling()
    });
    let mut addresses = vec![(side.ipv4().into(), 24, side.other().ipv4().into())];
    if netns::has_ipv6() {
        addresses.push((side.ipv6().into(), 64, side.other().ipv6().into()));
    }
    for (ip, prefix, peer) in addresses {
        match rtnl.add_address(index, ip, prefix) {
            // The interface has kept it.
            Err(LabError::Os { errno, .. }) if errno == libc::EEXIST => {}
            result => result.expect("an address"),
        }
        let peer = rtnl.add_neighbour(index, peer, side.other().mac());
        peer.expect("a neighbour");
        // Without a route the query is an error.
        wait_for("the address", || rtnl.is_local(ip).is_ok_and(|local| local));
    }
    let netns = netns.run(Netns::current).expect("a thread").expect("/proc");
    let link = rtnl.link_by_index(index).expect("a link");
    Host { side, netns, link }
}

fn rtnl(host: &Host) -> Rtnl {
    host.netns.rtnl().expect("netlink")
}

fn assert_closed(report: &Report) {
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.held == 0, "{ledger:?}");
}

fn assert_ended_well(report: &Report) {
    assert!(report.error.is_none(), "{:?}", report.error);
    assert_closed(report);
}

fn a_link_that_is_down_costs_packets_and_comes_back() {
    need_tap();
    let (hosts, a, b) = taps();
    let mut session = forward(a, b);
    assert_eq!(session.links(), [Link::Up; 2]);
    let index = hosts.right.link.index;
    send_during(&hosts, IpVersion::V4, || {
        sleep(Duration::from_millis(200));
        rtnl(&hosts.right).set_down(index).expect("down");
        wait_for("the port to be down", || {
            session.links() == [Link::Up, Link::Down]
        });
        wait_for("a packet for a link that is down", || {
            session.snapshot().drops.get(DropReason::LinkDown) > 0
        });
        rtnl(&hosts.right).set_up(index).expect("up");
        address(&hosts.right.netns, Side::Right);
        wait_for("the port to be up", || session.links() == [Link::Up; 2]);
    });
    assert_carries(&hosts.left, &hosts.right);
    let report = session.finish();
    assert_ended_well(&report);
    let drops = &report.snapshot.drops;
    assert!(drops.get(DropReason::LinkDown) > 0, "{drops:?}");
    assert_eq!(drops.total(), drops.get(DropReason::LinkDown), "{drops:?}");
}

fn carrier_that_is_lost_and_found() {
    need_tap();
    let (hosts, a, b) = taps();
    let mut session = forward(a, b);
    let index = hosts.left.link.index;
    match rtnl(&hosts.left).set_carrier(index, false) {
        Err(LabError::Os { errno, .. }) if errno == libc::EOPNOTSUPP => {
            skip("this kernel's TAP has no carrier to change");
        }
        result => result.expect("carrier off"),
    }
    rtnl(&hosts.left).set_carrier(index, true).expect("on");
    wait_for("the first carrier", || session.links() == [Link::Up; 2]);
    address(&hosts.left.netns, Side::Left);
    send_during(&hosts, IpVersion::V4, || {
        sleep(Duration::from_millis(200));
        rtnl(&hosts.left).set_carrier(index, false).expect("off");
        wait_for("no carrier", || session.links() == [Link::Down, Link::Up]);
        sleep(Duration::from_millis(100));
        rtnl(&hosts.left).set_carrier(index, true).expect("on");
        wait_for("carrier", || session.links() == [Link::Up; 2]);
    });
    address(&hosts.left.netns, Side::Left);
    assert_carries(&hosts.left, &hosts.right);
    assert_ended_well(&session.finish());
}

fn an_interface_that_moves_resumes_where_it_is_configured() {
    need_tap();
    let (hosts, a, b) = taps();
    let mut session = forward(a, b);
    assert_carries(&hosts.left, &hosts.right);
    let elsewhere = Netns::new().expect("a third namespace");
    let moved = rtnl(&hosts.right).move_to(hosts.right.link.index, &elsewhere);
    moved.expect("it moves");
    // It is down and without addresses after the move.
    assert_eq!(session.links(), [Link::Up, Link::Down]);
    assert!(!session.is_over(), "a move is no end");
    let before = session.snapshot().ports[1].tx_total().packets;
    let configured = elsewhere.run(|| {
        let mut rtnl = Rtnl::open()?;
        quiet_ipv6(NAMES[1])?;
        let index = rtnl.link(NAMES[1])?.index;
        rtnl.set_arp(index, false)?;
        rtnl.set_up(index)
    });
    configured.expect("a thread").expect("it is configured");
    let right = address(&elsewhere, Side::Right);
    wait_for("the port to be up", || session.links() == [Link::Up; 2]);
    assert_carries(&hosts.left, &right);
    let report = session.finish();
    assert_ended_well(&report);
    assert!(report.snapshot.ports[1].tx_total().packets > before);
}

fn an_interface_that_is_deleted_ends_the_run_by_name() {
    need_tap();
    for side in [Side::Left, Side::Right] {
        let (hosts, a, b) = taps();
        let session = forward(a, b);
        let host = hosts.host(side);
        let (port, name) = (side.of([0, 1]), side.of(NAMES));
        let mut transfer = Transfer::tcp(IpVersion::V4, Amount::Time(2 * TIMEOUT));
        transfer.stall = Duration::from_secs(1);
        thread::scope(|scope| {
            let sender = scope.spawn(|| transfer.run(&hosts.left, &hosts.right));
            sleep(Duration::from_millis(200));
            rtnl(host).delete(host.link.index).expect("it is deleted");
            wait_for("the end of the run", || session.is_over());
            let result = sender.join().expect("no panic");
            assert!(result.is_err(), "nothing can arrive any more: {result:?}");
        });
        let report = session.finish();
        let error = report.error.as_ref().expect("an error");
        assert!(matches!(error.error, DeviceError::Removed), "{error}");
        assert_eq!(error.port, Some(port), "{error}");
        assert_eq!(error.to_string(), format!("{name}: the device was removed"));
        assert_closed(&report);
    }
}

fn a_watch_reports_changes_of_links_also_after_an_overflow() {
    need_tap();
    let (hosts, mut tap, _other) = taps();
    let host = &hosts.left;
    let (index, mut rtnl) = (host.link.index, rtnl(host));
    let watch = host.netns.run(LinkWatch::open);
    let watch = watch.expect("a thread").expect("netlink");
    let readable = |patience| tap::wait_readable(&[watch.fd()], patience).expect("poll");
    let is_reported = |change: &str| {
        assert!(readable(TIMEOUT), "{change}: no notification");
        assert!(watch.changed(), "{change}");
    };
    // Notifications of the set-up.
    while readable(Duration::from_millis(500)) {
        assert!(watch.changed());
    }
    assert!(!watch.changed());

    rtnl.set_down(index).expect("down");
    is_reported("down");
    assert_eq!(tap.link(), Link::Down);
    rtnl.set_up(index).expect("up");
    is_reported("up");
    wait_for("the link to be up", || tap.link() == Link::Up);

    // More notifications than the socket's buffer holds.
    for _ in 0..2000 {
        rtnl.set_down(index).expect("down");
        rtnl.set_up(index).expect("up");
    }
    rtnl.set_down(index).expect("down");
    is_reported("many changes");
    assert_eq!(tap.link(), Link::Down);

    let elsewhere = Netns::new().expect("a third namespace");
    while readable(Duration::from_millis(500)) {
        assert!(watch.changed());
    }
    rtnl.move_to(index, &elsewhere).expect("it moves");
    is_reported("the move");
    let mut there = elsewhere.rtnl().expect("netlink");
    let index = there.link(NAMES[0]).expect("it has arrived").index;
    there.delete(index).expect("it is deleted");
    assert_eq!(tap.link(), Link::Removed);
}

fn given_to(session: &Session, port: usize) -> u64 {
    let ports = session.snapshot().ports;
    ports[port].tx_total().packets
}

fn received_from(session: &Session, port: usize) -> u64 {
    let ports = session.snapshot().ports;
    ports[port].rx_total().packets
}

/// A packet of no application, for a queue that is paused. Packets from the kernel stay there while
/// their egress is paused: they are not received.
fn hold_one(session: &Session, port: usize) {
    let mut bytes = [0_u8; 60];
    bytes[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
    let packet = session.arena().packet_from(&bytes).expect("a buffer");
    let mut burst = Burst::new();
    burst.push(packet).expect("it is empty");
    let mut handle = session.handle(port, 0).expect("a queue");
    assert_eq!(handle.try_send(&mut burst), Ok(1));
    assert!(session.snapshot().ledger.held > 0);
}

/// Under TCP: data go to one port and ACKs to the other.
fn queues_that_are_paused_and_resumed_lose_nothing() {
    need_tap();
    pauses_of(PathKind::Owned);
    pauses_of(PathKind::Shared);
}

fn pauses_of(kind: PathKind) {
    const ROUNDS: u64 = 20;
    let (hosts, a, b) = taps();
    let session = match kind {
        PathKind::Owned => forward(a, b),
        PathKind::Shared => forward_and_send(a, b),
    };
    let paths = session.plan().paths.iter();
    assert!(paths.map(|path| path.kind).all(|found| found == kind));
    send_during(&hosts, IpVersion::V4, || {
        for round in 0..ROUNDS {
            for port in [0, 1] {
                let queues = match round % 2 {
                    0 => Queues::tx(port),
                    _ => Queues::tx(port).only(0),
                };
                let ingress = match round % 2 {
                    0 => Queues::rx(port),
                    _ => Queues::rx(port).only(0),
                };
                let before = received_from(&session, port);
                wait_for("packets", || received_from(&session, port) > before);
                assert_eq!(session.command(ingress, Command::Pause), Ok(1));
                let paused = received_from(&session, port);
                sleep(Duration::from_millis(2));
                assert_eq!(received_from(&session, port), paused, "{port}");
                assert_eq!(session.command(ingress, Command::Resume), Ok(1));
                wait_for("more", || received_from(&session, port) > paused);
                let before = given_to(&session, port);
                wait_for("packets", || given_to(&session, port) > before);
                assert_eq!(session.command(queues, Command::Pause), Ok(1));
                let paused = given_to(&session, port);
                if kind == PathKind::Shared {
                    hold_one(&session, port);
                }
                let cannot = Err(CommandError::Unsupported { done: 0 });
                assert_eq!(session.command(queues, Command::Reset), cannot);
                assert_eq!(given_to(&session, port), paused, "{port}");
                assert_eq!(session.command(queues, Command::Resume), Ok(1));
                wait_for("packets to go on", || given_to(&session, port) > paused);
            }
        }
    });
    assert_carries(&hosts.left, &hosts.right);
    let report = session.finish();
    assert_ended_well(&report);
    let drops = &report.snapshot.drops;
    assert_eq!(drops.total(), 0, "{drops:?}");
    for port in &report.snapshot.ports {
        let tx = port.tx_total();
        assert!(tx.stall_flush <= ROUNDS, "{tx:?}");
        assert!(tx.stall_flush > 0, "{kind}: {tx:?}");
        assert!(tx.stalls == tx.restarts && tx.resets == 0, "{tx:?}");
        assert_eq!(port.rx_total().pauses, ROUNDS);
    }
}

/// A change of media under load: the queues are paused, and resumed before the link is up.
fn a_pause_over_a_link_that_goes_costs_what_the_link_costs() {
    need_tap();
    let (hosts, a, b) = taps();
    let mut session = forward_and_send(a, b);
    let index = hosts.right.link.index;
    let to_right = Queues::tx(1);
    send_during(&hosts, IpVersion::V4, || {
        let before = given_to(&session, 1);
        wait_for("packets", || given_to(&session, 1) > before);
        assert_eq!(session.command(to_right, Command::Pause), Ok(1));
        rtnl(&hosts.right).set_down(index).expect("down");
        let down = [Link::Up, Link::Down];
        wait_for("the port to be down", || session.links() == down);
        hold_one(&session, 1);
        let lost = session.snapshot().drops.total();
        assert_eq!(lost, 0, "what is held is not for the link yet");
        assert_eq!(session.command(to_right, Command::Resume), Ok(1));
        wait_for("a packet for a link that is down", || {
            session.snapshot().drops.get(DropReason::LinkDown) > 0
        });
        rtnl(&hosts.right).set_up(index).expect("up");
        address(&hosts.right.netns, Side::Right);
        wait_for("the port to be up", || session.links() == [Link::Up; 2]);
    });
    assert_carries(&hosts.left, &hosts.right);
    let report = session.finish();
    assert_ended_well(&report);
    let drops = &report.snapshot.drops;
    assert_eq!(drops.total(), drops.get(DropReason::LinkDown), "{drops:?}");
}

/// A TAP that refuses TCP GSO packets over IPv4 although it announces them, as some kernels do.
struct Refusing(Tap);

struct RefusingTx(TapTx);

impl WrapDriver for Refusing {
    type Inner = Tap;
    type Rx = TapRx;
    type Tx = RefusingTx;

    fn inner(&self) -> &Tap {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut Tap {
        &mut self.0
    }

    fn wrap(&mut self, _: usize, (rx, tx): QueuePair<Tap>, _: &Arena) -> QueuePair<Self> {
        (rx, RefusingTx(tx))
    }
}

impl WrapTx for RefusingTx {
    type Inner = TapTx;

    fn inner(&self) -> &TapTx {
        &self.0
    }

    fn inner_mut(&mut self) -> &mut TapTx {
        &mut self.0
    }

    fn encap(&mut self, packet: &mut TxPacket<'_>, token: Token) -> Result<Accepted, Refused> {
        let gso = packet.packet().meta().gso;
        if gso.is_some_and(|gso| Features::of(gso.kind) == Features::TSO4) {
            return Err(Refused::Feature(Features::TSO4));
        }
        self.0.encap(packet, token)
    }
}

fn tcp_through_a_device_that_refuses_tso() {
    need_tap();
    let (hosts, a, b) = taps();
    let b = Refusing(b);
    let session = Session::between(a, b).start().expect("it starts");
    let before = hosts.right.counters().expect("counters");
    assert_eq!(session.snapshot().ports[1].refused, Features::NONE);
    assert_carries(&hosts.left, &hosts.right);
    let after = hosts.right.counters().expect("counters").since(&before);
    // The refusal is reported while the run continues.
    assert_eq!(session.snapshot().ports[1].refused, Features::TSO4);
    let report = session.finish();
    assert_ended_well(&report);
    assert_eq!(report.snapshot.ledger.dropped, 0);
    assert_eq!(after.tcp_in_csum_errors, 0, "{after:?}");
    assert_eq!(
        after.tcp_ofo_queue, 0,
        "nothing came out of order: {after:?}"
    );
    let tx = report.snapshot.ports[1].tx_total();
    assert_eq!(tx.refused_features, 1, "refused once: {tx:?}");
    let [change] = &report.snapshot.changes.last[..] else {
        panic!("one change: {:?}", report.snapshot.changes);
    };
    let is = (change.kind, change.port, change.queue);
    assert_eq!(is, (ChangeKind::Refused, 1, Some(0)), "{change:?}");
    let lost = Moved::between(Features::TSO4, Features::NONE);
    assert_eq!(change.offloads, lost);
    assert!(tx.gso_sw_packets > 0, "IPv4 is cut by us: {tx:?}");
    if netns::has_ipv6() {
        assert!(tx.gso_packets > 0, "IPv6 is left to the device: {tx:?}");
    }
}

/// Removes the partial checksum of UDP GSO packets. Linux refuses such packets (`EINVAL`), and
/// software segments them with finished checksums.
struct WithoutChecksum;

impl Handler for WithoutChecksum {
    fn handle(&mut self, _now: Now, _from: RxId, burst: &mut Burst) {
        for _ in 0..burst.len() {
            let Some(mut packet) = burst.pop() else { break };
            let meta = packet.meta_mut();
            if meta.gso.is_some_and(|gso| !gso.kind.is_tcp()) {
                meta.checksum = ChecksumState::None;
            }
            assert!(
                burst.push(packet).is_ok(),
                "there is room for what was taken"
            );
        }
    }

    const COUNTED: bool = false;
}

fn udp_trains_that_the_kernel_refuses() {
    need_tap();
    let (hosts, a, b) = taps();
    if !a.capabilities().tx.contains(Features::USO) {
        skip("this kernel's TAP has no USO to refuse");
    }
    let session = Session::between(a, b).handler(|_| WithoutChecksum).start();
    let session = session.expect("it starts");
    let transfer = Transfer::udp(IpVersion::V4, Amount::Bytes(1 << 20)).train(40);
    let report = transfer
        .gro(true)
        .window(256)
        .run(&hosts.left, &hosts.right);
    let report = report.expect("it runs");
    assert!(report.hash_ok, "{report:?}");
    assert_carries(&hosts.left, &hosts.right);
    assert_eq!(session.snapshot().ports[1].refused, Features::USO4);
    let report = session.finish();
    assert_ended_well(&report);
    assert_eq!(report.snapshot.ledger.dropped, 0);
    let tx = report.snapshot.ports[1].tx_total();
    assert_eq!(tx.refused_features, 1, "{tx:?}");
    assert!(tx.gso_sw_packets > 0 && tx.gso_packets > 0, "{tx:?}");
}
