//! Three hosts behind a bridge of packtrain's: kernel TCP between all of them, with addresses that
//! the kernels find by themselves, and a host that moves.

use packtrain::bridge::{ADDRESSES, AGING, Addresses, Bridge};
use packtrain::driver::Features;
use packtrain::engine::{Session, Settings};
use packtrain::policy::dispatch::Dispatch;
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::stats::DropReason;
use packtrain_lab::counters::devices;
use packtrain_lab::harness::{need_tap, wait_for};
use packtrain_lab::link::{LinkStats, Mac, quiet_ipv6};
use packtrain_lab::netns::{self, Netns};
use packtrain_lab::traffic::IpVersion;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    packtrain_lab::tests![
        three_hosts_reach_each_other_and_only_whom_they_mean,
        what_one_host_sends_to_all_arrives_whole_at_each,
        a_host_that_moves_is_found_at_its_new_port,
    ]
}

const TIMEOUT: Duration = Duration::from_secs(60);
const BYTES: usize = 4 << 20;

struct Host {
    number: u8,
    netns: Netns,
    index: u32,
}

fn address(number: u8, version: IpVersion) -> IpAddr {
    match version {
        IpVersion::V4 => Ipv4Addr::new(198, 18, 0, number).into(),
        IpVersion::V6 => Ipv6Addr::new(0xfd00, 0x18, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

fn mac(number: u8) -> Mac {
    [0x02, 0, 0, 0x47, 0, number]
}

fn name_of(number: u8) -> String {
    format!("among-{number}")
}

impl Host {
    /// A host that has to find the others by ARP and neighbour discovery. The third one's TAP takes
    /// and delivers finished wire packets only.
    fn new(number: u8) -> (Self, Tap) {
        let netns = Netns::new().expect("a namespace");
        let name = name_of(number);
        let made = netns.run(|| {
            let mut config = TapConfig::new(TapKind::Tap, &name);
            if number == 3 {
                config.offload = Features::NONE;
            }
            let tap = Tap::open(&config).expect("a TAP");
            quiet_ipv6(&name).expect("settings");
            tap
        });
        let tap = made.expect("a thread");
        let mut rtnl = netns.rtnl().expect("netlink");
        let index = rtnl.link(&name).expect("the TAP").index;
        rtnl.set_mac(index, mac(number)).expect("an address");
        rtnl.set_up(index).expect("it is up");
        for &version in netns::ip_versions() {
            let prefix = if version == IpVersion::V4 { 24 } else { 64 };
            let added = rtnl.add_address(index, address(number, version), prefix);
            added.expect("an address");
        }
        wait_for("the link to be usable", || {
            let link = rtnl.link_by_index(index).expect("the TAP");
            !link.is_settling()
        });
        let host = Self {
            number,
            netns,
            index,
        };
        (host, tap)
    }

    /// The counts once no frame comes any more: acknowledgements of an earlier transfer may be on
    /// their way when its last byte has arrived.
    fn settled(&self) -> LinkStats {
        let mut last = self.stats();
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = self.stats();
            if now == last {
                return now;
            }
            last = now;
        }
    }

    fn stats(&self) -> LinkStats {
        let all = self.netns.run(devices).expect("a thread");
        let all = all.expect("counters");
        let own = all.iter().find(|(name, _)| *name == name_of(self.number));
        own.expect("the TAP").1
    }

    /// Sends `BYTES` to the host that has the address `to`, and checks what arrives.
    fn send(&self, to: &Self, ip: IpAddr) {
        let sent: Vec<u8> = (0..BYTES).map(|at| (at * 31 + at / 251) as u8).collect();
        let listener = to.netns.run(|| TcpListener::bind((ip, 0)));
        let listener = listener.expect("a thread").expect("a socket");
        let place = listener.local_addr().expect("an address");
        let stream = self
            .netns
            .run(|| TcpStream::connect_timeout(&place, TIMEOUT));
        let mut stream = stream.expect("a thread").unwrap_or_else(|error| {
            panic!("host {} to {place}: {error}", self.number);
        });
        let (mut receiver, _) = listener.accept().expect("a connection");
        receiver.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
        let arrived = thread::scope(|scope| {
            scope.spawn(|| {
                stream.write_all(&sent).expect("it is sent");
                stream.shutdown(std::net::Shutdown::Write).expect("an end");
            });
            let mut arrived = Vec::new();
            receiver.read_to_end(&mut arrived).expect("it arrives");
            arrived
        });
        assert!(arrived == sent, "host {} to {place}", self.number);
    }
}

fn bridge(dispatch: Dispatch) -> ([Host; 3], Arc<Addresses>, Session) {
    let (hosts, taps): (Vec<_>, Vec<_>) = (1..=3).map(Host::new).unzip();
    let addresses = Addresses::new(ADDRESSES, AGING);
    let bridge = Bridge::new(Arc::clone(&addresses));
    let settings = Settings {
        dispatch,
        ..Settings::default()
    };
    let session = Session::among(taps).handler(move |_| bridge.clone());
    let session = session.settings(settings).start().expect("it starts");
    let hosts = <[Host; 3]>::try_from(hosts).ok().expect("three hosts");
    (hosts, addresses, session)
}

/// Frames for one host are not seen by the third one, but those that look for it are.
fn three_hosts_reach_each_other_and_only_whom_they_mean() {
    need_tap();
    for dispatch in [Dispatch::Adaptive, Dispatch::Direct, Dispatch::Deferred] {
        let (hosts, addresses, session) = bridge(dispatch);
        for &version in netns::ip_versions() {
            for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
                if from == to {
                    continue;
                }
                let [from, to, third] = [from, to, 3 - from - to].map(|at: usize| &hosts[at]);
                let before = [to, third].map(Host::settled);
                from.send(to, address(to.number, version));
                let [to, third] = [
                    to.stats().since(&before[0]),
                    third.stats().since(&before[1]),
                ];
                assert!(to.rx_bytes as usize > BYTES, "{to:?}");
                assert!(third.rx_packets < 10, "{dispatch}: {third:?}");
            }
        }
        assert_eq!(addresses.len(), 3);
        let report = session.finish();
        assert!(report.error.is_none(), "{:?}", report.error);
        let snapshot = report.snapshot;
        assert!(snapshot.ledger.closed() && snapshot.ledger.held == 0);
        // What looks for a host goes to two ports.
        assert!(snapshot.ledger.expanded >= 3, "{:?}", snapshot.ledger);
        assert_eq!(snapshot.drops.total(), 0, "{:?}", snapshot.drops);
        let [one, two, three] = &snapshot.ports[..] else {
            panic!("three ports");
        };
        for port in [one, two] {
            // Large packets stay whole.
            let (rx, tx) = (port.rx_total(), port.tx_total());
            assert!(rx.wire_packets > rx.packets && rx.gso_packets > 0, "{rx:?}");
            assert!(tx.gso_packets > 0 && tx.gso_sw_packets == 0, "{tx:?}");
        }
        let tx = three.tx_total();
        assert!(
            tx.gso_packets == 0 && tx.gso_sw_packets > 0 && tx.csum_sw > 0,
            "{tx:?}"
        );
    }
}

/// One frame for two ports: its checksum is unfinished, and only one of them takes it like that.
fn what_one_host_sends_to_all_arrives_whole_at_each() {
    const PORT: u16 = 4711;
    need_tap();
    for dispatch in [Dispatch::Adaptive, Dispatch::Direct, Dispatch::Deferred] {
        let (hosts, _, session) = bridge(dispatch);
        let receivers = [&hosts[1], &hosts[2]].map(|host| {
            let socket = host
                .netns
                .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)));
            let socket = socket.expect("a thread").expect("a socket");
            socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
            socket
        });
        let sender = hosts[0]
            .netns
            .run(|| UdpSocket::bind((address(1, IpVersion::V4), 0)));
        let sender = sender.expect("a thread").expect("a socket");
        sender.set_broadcast(true).expect("permission");
        for length in [1, 500, 1471, 1472] {
            let sent: Vec<u8> = (0..length).map(|at: usize| (at * 7) as u8).collect();
            let to = (Ipv4Addr::new(198, 18, 0, 255), PORT);
            assert_eq!(sender.send_to(&sent, to).expect("it is sent"), length);
            for receiver in &receivers {
                let mut arrived = [0; 2000];
                let count = receiver.recv(&mut arrived).expect("it arrives");
                assert!(arrived[..count] == sent, "{dispatch}: {length} bytes");
            }
        }
        let snapshot = session.finish().into_result().expect("no failure");
        // A kernel may send more to all, as IPv6 does when an interface is new.
        let expanded = snapshot.ledger.expanded;
        assert!(expanded >= 4, "{dispatch}: {expanded}");
        assert!(snapshot.ledger.closed() && snapshot.drops.total() == 0);
    }
}

fn a_host_that_moves_is_found_at_its_new_port() {
    need_tap();
    let (hosts, _, session) = bridge(Dispatch::Adaptive);
    let [one, two, three] = &hosts;
    let ip = address(2, IpVersion::V4);
    one.send(two, ip);
    // Host 3 becomes host 2, at another port.
    two.netns
        .rtnl()
        .and_then(|mut rtnl| rtnl.set_down(two.index))
        .expect("it is down");
    let mut rtnl = three.netns.rtnl().expect("netlink");
    rtnl.set_mac(three.index, mac(2)).expect("an address");
    rtnl.add_address(three.index, ip, 24).expect("an address");
    // It says something, so the bridge learns where it is.
    let said = three.netns.run(|| {
        let socket = UdpSocket::bind((ip, 0))?;
        socket.send_to(b"here", (address(1, IpVersion::V4), 9))
    });
    assert_eq!(said.expect("a thread").expect("it is sent"), 4);
    one.send(three, ip);
    let report = session.finish();
    assert!(report.error.is_none(), "{:?}", report.error);
    let drops = &report.snapshot.drops;
    // Frames for the interface that is down are lost, and nothing else.
    assert_eq!(drops.total(), drops.get(DropReason::LinkDown), "{drops:?}");
    assert!(report.snapshot.ledger.closed());
}
