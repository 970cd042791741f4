//! The laboratory against the kernel: hosts, traffic, counters, and removal.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use packtrain_lab::counters::{self, Counters};
use packtrain_lab::cpus;
use packtrain_lab::harness::{self, Traces, need_tap, skip, wait_for};
use packtrain_lab::netns::{self, Netns};
use packtrain_lab::tap::{self, Tap, VNET_HDR_LEN, wait_readable};
use packtrain_lab::topology::{Host, Settings, Side, TwoHosts};
use packtrain_lab::traffic::{
    self, Amount, Datagrams, Exchange, IpVersion, Pace, Payload, Transfer, TransferReport,
};
use packtrain_lab::{LabError, rootless};

fn main() -> ExitCode {
    harness::main(&[
        ("a_test_is_in_a_namespace_of_its_own", alone),
        ("namespace_made_and_gone", namespace_made_and_gone),
        ("links_and_addresses", links_and_addresses),
        ("veth_tcp_both_ways", veth_tcp_both_ways),
        (
            "transfers_do_not_measure_the_machines_choice",
            congestion_control,
        ),
        ("veth_udp_both_ways", veth_udp_both_ways),
        ("plain_payloads_arrive", plain_payloads),
        ("transfers_run_on_their_cpus", transfers_run_on_their_cpus),
        ("counters_equal_traffic", counters_equal_traffic),
        ("quiet_hosts_send_nothing", quiet_hosts_send_nothing),
        ("taps_carry_tcp_and_udp", taps_carry_tcp_and_udp),
        ("taps_with_offloads", taps_with_offloads),
        ("tuns_carry_tcp_and_udp", tuns_carry_tcp_and_udp),
        ("loss_and_damage_are_seen", loss_and_damage_are_seen),
        ("stalls_and_stops_end", stalls_and_stops_end),
        ("nothing_is_left", nothing_is_left),
    ])
}

/// Longest wait for an event: a busy machine may be slow, and only a hang is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

fn namespace_made_and_gone() {
    let here = Netns::current().unwrap().inode().unwrap();
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    assert_ne!(a.inode().unwrap(), b.inode().unwrap());
    assert_ne!(a.inode().unwrap(), here);
    assert_eq!(
        a.run(|| Netns::current().unwrap().inode().unwrap()),
        a.inode()
    );
    assert_eq!(
        Netns::current().unwrap().inode().unwrap(),
        here,
        "the caller did not move"
    );
    let links = a.rtnl().unwrap().links().unwrap();
    assert_eq!(links.len(), 1, "{links:?}");
    assert_eq!(links[0].name, "lo");
    assert!(links[0].is_up());
    assert!(rootless::privileged());
    let descriptors = Traces::now().descriptors;
    drop((a, b));
    assert_eq!(Traces::now().descriptors.len() + 2, descriptors.len());
}

fn links_and_addresses() {
    let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
    let mut rtnl = a.rtnl().unwrap();
    rtnl.create_veth("left", "right", &b, 4).unwrap();
    let link = rtnl.link("left").unwrap();
    assert_eq!((link.tx_queues, link.is_up(), link.mtu), (4, false, 1500));
    rtnl.set_mtu(link.index, 9000).unwrap();
    rtnl.set_tx_queue_len(link.index, 77).unwrap();
    rtnl.set_mac(link.index, [2, 0, 0, 0, 0, 9]).unwrap();
    rtnl.set_up(link.index).unwrap();
    let changed = rtnl.link_by_index(link.index).unwrap();
    assert_eq!(
        (changed.mtu, changed.tx_queue_len, changed.mac),
        (9000, 77, Some([2, 0, 0, 0, 0, 9]))
    );
    assert!(changed.is_up());
    let mut peer = b.rtnl().unwrap();
    let other = peer.link("right").unwrap().index;
    peer.set_up(other).unwrap();
    // The kernel reports this end from a work queue.
    wait_for("carrier, as the peer is up", || {
        rtnl.link_by_index(link.index).unwrap().is_running()
    });

    rtnl.add_address(link.index, "198.18.9.1".parse().unwrap(), 24)
        .unwrap();
    let again = rtnl.add_address(link.index, "198.18.9.1".parse().unwrap(), 24);
    assert_eq!(again.unwrap_err().errno(), Some(libc::EEXIST));
    assert!(rtnl.is_local("198.18.9.1".parse().unwrap()).unwrap());
    assert!(!rtnl.is_local("198.18.9.2".parse().unwrap()).unwrap());
    if netns::has_ipv6() {
        rtnl.add_address(link.index, "fd00:9::1".parse().unwrap(), 64)
            .unwrap();
        assert!(!rtnl.is_local("fd00:9::2".parse().unwrap()).unwrap());
    }

    rtnl.set_down(link.index).unwrap();
    assert!(!rtnl.link("left").unwrap().is_up());
    rtnl.move_to(link.index, &b).unwrap();
    let left = rtnl.link("left").unwrap_err();
    assert_eq!(left.errno(), Some(libc::ENODEV));
    let moved = peer.link("left").unwrap().index;
    peer.delete(moved).unwrap();
    assert_eq!(peer.links().unwrap().len(), 1, "a veth's peer goes with it");
}

fn assert_intact(report: &TransferReport, what: &str) {
    assert!(report.hash_ok, "{what}: {report:?}");
    assert_eq!(report.sent_hash, report.received_hash, "{what}");
    assert_eq!(report.sent_bytes, report.received_bytes, "{what}");
    assert!(
        report.elapsed > Duration::ZERO && report.gbps() > 0.0,
        "{what}: {report:?}"
    );
    assert!(
        report.calls.send > 0 && report.calls.receive > 0,
        "{what}: {report:?}"
    );
}

fn both_ways(hosts: &TwoHosts) -> [(&Host, &Host); 2] {
    [(&hosts.left, &hosts.right), (&hosts.right, &hosts.left)]
}

fn veth_tcp_both_ways() {
    // The same with address resolution.
    let chatty = Settings {
        quiet: false,
        ..Settings::default()
    };
    let hosts = TwoHosts::veth(&chatty).unwrap();
    for &ip in netns::ip_versions() {
        let transfer = Transfer::tcp(ip, Amount::Bytes(100_000));
        assert_intact(
            &transfer.run(&hosts.left, &hosts.right).unwrap(),
            "with ARP",
        );
    }
    let hosts = TwoHosts::veth(&Settings::default()).unwrap();
    for &ip in netns::ip_versions() {
        for (from, to) in both_ways(&hosts) {
            let what = format!("{ip} from {:?}", from.side);
            let transfer = Transfer::tcp(ip, Amount::Bytes(10_000_001)).streams(3);
            let report = transfer.run(from, to).unwrap();
            assert_intact(&report, &what);
            assert_eq!(report.sent_bytes, 10_000_001);
            assert_eq!(report.datagrams, Datagrams::default());
        }
        let timed = Transfer::tcp(ip, Amount::Time(Duration::from_millis(100)));
        let report = timed.run(&hosts.left, &hosts.right).unwrap();
        assert_intact(&report, "timed");
        assert!(report.elapsed >= Duration::from_millis(100), "{report:?}");
        assert!(report.elapsed < TIMEOUT, "{report:?}");
        assert!(report.send_cpu.cpu() > Duration::ZERO, "{report:?}");
        assert!(report.receive_cpu.cpu() > Duration::ZERO, "{report:?}");
    }
}

/// The masks of the threads of a running transfer are read from `/proc`.
fn transfers_run_on_their_cpus() {
    const STREAMS: u32 = 2;
    let allowed = cpus::allowed().unwrap();
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    if first == last {
        skip("one CPU: every thread is on it");
    }
    let threads_on = |cpu: usize| {
        let line = format!("\nCpus_allowed_list:\t{cpu}\n");
        let tasks = fs::read_dir("/proc/self/task").expect("/proc");
        let status = tasks.map(|task| task.expect("a task").path().join("status"));
        // A thread may end meanwhile.
        let texts = status.filter_map(|path| fs::read_to_string(path).ok());
        texts.filter(|status| status.contains(&line)).count()
    };
    let hosts = TwoHosts::veth(&Settings::default()).unwrap();
    for start in [Transfer::tcp, Transfer::udp] {
        let stop = Arc::new(AtomicBool::new(false));
        let mut transfer = start(IpVersion::V4, Amount::Time(TIMEOUT)).streams(STREAMS);
        transfer = transfer.stop(Arc::clone(&stop));
        (transfer.sender_cpu, transfer.receiver_cpu) = (Some(first), Some(last));
        thread::scope(|scope| {
            let running = scope.spawn(|| transfer.run(&hosts.left, &hosts.right));
            let begin = Instant::now();
            let bound = || [first, last].map(threads_on) == [STREAMS as usize; 2];
            while !bound() && begin.elapsed() < TIMEOUT && !running.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            let all = bound();
            stop.store(true, Relaxed);
            let ended = running.join().unwrap();
            assert!(all, "{:?}: {ended:?}", transfer.protocol);
            assert_eq!(ended, Err(LabError::Cancelled));
        });
        let mut nowhere = start(IpVersion::V4, Amount::Bytes(1));
        nowhere.receiver_cpu = Some(60_000);
        let error = nowhere.run(&hosts.left, &hosts.right).unwrap_err();
        assert!(
            error.to_string().starts_with("sched_setaffinity"),
            "{error}"
        );
    }
}

fn congestion_control() {
    let said = traffic::congestion_control().unwrap();
    let there = || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = Netns::new().unwrap().run(there).unwrap().unwrap();
    if available.split_whitespace().any(|name| name == "cubic") {
        assert_eq!(said, "cubic");
    } else {
        assert!(available.split_whitespace().any(|name| name == said));
    }
}

fn veth_udp_both_ways() {
    let hosts = TwoHosts::veth(&Settings::default()).unwrap();
    for &ip in netns::ip_versions() {
        for (from, to) in both_ways(&hosts) {
            for (datagram, train, gro, streams) in [
                (1452, 1, false, 1),
                (8, 1, false, 2),
                (1200, 64, true, 1),
                (1400, 10, false, 2),
            ] {
                let what = format!("{ip} from {:?}: {datagram} x {train}", from.side);
                let transfer = Transfer::udp(ip, Amount::Bytes(500_000))
                    .datagram(datagram)
                    .train(train)
                    .gro(gro)
                    .streams(streams);
                let report = transfer.run(from, to).unwrap();
                assert_intact(&report, &what);
                assert!(report.datagrams.intact(), "{what}: {report:?}");
                let least = 500_000u64.div_ceil(datagram as u64);
                assert!(
                    (least..=least + 1).contains(&report.datagrams.sent),
                    "{report:?}"
                );
                if train > 1 {
                    assert!(report.calls.send <= least / 5, "{what}: {report:?}");
                }
            }
        }
        // Larger than the MTU: the kernel makes fragments.
        let large = Transfer::udp(ip, Amount::Bytes(1_000_000)).datagram(9000);
        assert_intact(&large.run(&hosts.left, &hosts.right).unwrap(), "fragments");
        let timed = Transfer::udp(ip, Amount::Time(Duration::from_millis(50)));
        let start = Instant::now();
        let report = timed.run(&hosts.left, &hosts.right).unwrap();
        // The report's time includes the sending, but not always the last arrival.
        assert!(start.elapsed() >= Duration::from_millis(50), "{report:?}");
        assert!(report.elapsed < TIMEOUT, "{report:?}");
        assert_intact(&report, "timed");
    }
}

/// Growth of the counters of both hosts while `f` runs.
fn counted<T>(hosts: &TwoHosts, f: impl FnOnce() -> T) -> (T, Counters, Counters) {
    let before = (
        hosts.left.counters().unwrap(),
        hosts.right.counters().unwrap(),
    );
    let value = f();
    let left = hosts.left.counters().unwrap().since(&before.0);
    let right = hosts.right.counters().unwrap().since(&before.1);
    (value, left, right)
}

fn plain_payloads() {
    let hosts = TwoHosts::veth(&Settings::default()).unwrap();
    let plain = |mut transfer: Transfer| {
        transfer.payload = Payload::Plain;
        let report = transfer.run(&hosts.left, &hosts.right).expect("a transfer");
        assert!(report.hash_ok, "{report:?}");
        assert_eq!((report.sent_hash, report.received_hash), (0, 0));
        assert_eq!(report.sent_bytes, report.received_bytes);
        report
    };
    let mut tcp = Transfer::tcp(IpVersion::V4, Amount::Bytes(1_000_001)).streams(2);
    tcp.write_size = 512;
    let report = plain(tcp.clone());
    assert_eq!(report.sent_bytes, 1_000_001);
    assert!(
        report.calls.send >= 1_000_001_u64.div_ceil(512),
        "{report:?}"
    );
    // Requests are whole: 501 and 500.
    tcp.exchange = Some(Exchange {
        request: 1000,
        response: 1,
    });
    assert_eq!(plain(tcp).sent_bytes, 1_001_000);
    let mut udp = Transfer::udp(IpVersion::V4, Amount::Bytes(100_000)).datagram(1000);
    assert_eq!(plain(udp.clone()).datagrams.received, 100);
    // 0.8 Mbit at 8 Mbit/s take 0.1 s, less one datagram.
    udp.pace = Pace::Rate(8_000_000);
    let report = plain(udp.clone());
    assert!(report.elapsed >= Duration::from_millis(98), "{report:?}");
    assert_eq!(report.marked, report.datagrams);
    udp.pace = Pace::Rate(0);
    let refused = udp.run(&hosts.left, &hosts.right);
    assert!(matches!(refused, Err(LabError::Setting(_))), "{refused:?}");
}

fn counters_equal_traffic() {
    let hosts = TwoHosts::veth(&Settings::default()).unwrap();
    let stats = (hosts.left.stats().unwrap(), hosts.right.stats().unwrap());
    let transfer = Transfer::udp(IpVersion::V4, Amount::Bytes(1000 * 1000)).datagram(1000);
    let (report, left, right) = counted(&hosts, || transfer.run(&hosts.left, &hosts.right));
    assert_intact(&report.unwrap(), "udp");
    assert_eq!(left.udp_out_datagrams, 1000);
    assert_eq!(right.udp_in_datagrams, 1000);
    assert_eq!(right.ip_in_delivers, 1000);
    assert_eq!(
        (
            right.udp_no_ports,
            right.udp_rcvbuf_errors,
            right.udp_in_csum_errors
        ),
        (0, 0, 0)
    );
    let sent = hosts.left.stats().unwrap().since(&stats.0);
    let received = hosts.right.stats().unwrap().since(&stats.1);
    // Ethernet 14, IPv4 20, UDP 8.
    assert_eq!((sent.tx_packets, sent.tx_bytes), (1000, 1000 * 1042));
    assert_eq!(
        (received.rx_packets, received.rx_bytes),
        (1000, 1000 * 1042)
    );
    assert_eq!((sent.rx_packets, received.tx_packets), (0, 0));
    let rows = hosts.left.netns.run(counters::devices).unwrap().unwrap();
    let row = rows
        .iter()
        .find(|(name, _)| *name == hosts.left.link.name)
        .unwrap();
    assert_eq!(
        row.1.since(&stats.0),
        sent,
        "netlink and /proc/net/dev agree"
    );

    if netns::has_ipv6() {
        let transfer = Transfer::udp(IpVersion::V6, Amount::Bytes(500 * 300)).datagram(300);
        let (report, left, right) = counted(&hosts, || transfer.run(&hosts.right, &hosts.left));
        assert_intact(
            &report.unwrap(),
            &format!("udp6, left {left:?}, right {right:?}"),
        );
        assert_eq!(
            (right.udp6_out_datagrams, left.udp6_in_datagrams),
            (500, 500)
        );
        assert_eq!((left.ip6_in_delivers, left.udp6_in_errors), (500, 0));
        assert_eq!((left.icmp6_out_msgs, right.icmp6_out_msgs), (0, 0));
    }

    // The host may count the connection's last segments after the report, so the two counts have to
    // be equal once.
    let same = (0..10).any(|_| {
        let transfer = Transfer::tcp(IpVersion::V4, Amount::Bytes(1 << 22));
        let (report, left, right) = counted(&hosts, || transfer.run(&hosts.left, &hosts.right));
        let report = report.unwrap();
        assert_intact(&report, "tcp");
        assert!(left.tcp_retrans_segs >= report.retransmits, "{left:?}");
        assert!(
            left.tcp_out_segs >= (1 << 22) / 1448,
            "segments, not GSO packets: {left:?}"
        );
        // Not tcp_ofo_queue: a veth reorders when its receive work moves to another CPU.
        assert_eq!((right.tcp_in_csum_errors, left.tcp_in_csum_errors), (0, 0));
        left.tcp_retrans_segs == report.retransmits
    });
    assert!(same, "never the same retransmissions");
}

fn quiet_hosts_send_nothing() {
    need_tap();
    let open = |_| Tap::new("tap0").queues(2).vnet_hdr(true);
    let (hosts, left, right) = TwoHosts::taps(&Settings::default(), open).unwrap();
    assert_eq!((left.len(), right.len()), (2, 2));
    // Unsolicited MLD reports are spread over the first second (RFC 3810 section 9.11).
    thread::sleep(Duration::from_millis(1500));
    for (host, fds) in [(&hosts.left, left), (&hosts.right, right)] {
        let readable: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        assert!(
            !wait_readable(&readable, Duration::ZERO).unwrap(),
            "a frame was sent"
        );
        let stats = host.stats().unwrap();
        assert_eq!((stats.tx_packets, stats.tx_dropped), (0, 0), "{stats:?}");
        assert_eq!(host.counters().unwrap().icmp6_out_msgs, 0);
    }
}

/// A cable between descriptors: thread `i` copies frames from `left[i]` to `right[i]`, and another
/// one in the other direction, frame by frame. `change` may modify a frame, or return false to drop
/// it.
struct Cable {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Cable {
    fn new(
        left: Vec<OwnedFd>,
        right: Vec<OwnedFd>,
        change: impl Fn(u64, &mut [u8]) -> bool + Clone + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (left, right) in left.into_iter().zip(right) {
            let other = (right.try_clone().unwrap(), left.try_clone().unwrap());
            for (from, to) in [(left, right), other] {
                let (stop, change) = (Arc::clone(&stop), change.clone());
                threads.push(thread::spawn(move || {
                    carry(&stop, from.into(), to.into(), change)
                }));
            }
        }
        Self { stop, threads }
    }

    /// Copied frames, by thread.
    fn cut(self) -> Vec<u64> {
        self.stop.store(true, Relaxed);
        self.threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    }
}

fn carry(
    stop: &AtomicBool,
    mut from: File,
    mut to: File,
    change: impl Fn(u64, &mut [u8]) -> bool,
) -> u64 {
    let mut buffer = vec![0; 70_000];
    let mut frames = 0;
    while !stop.load(Relaxed) {
        match from.read(&mut buffer) {
            Ok(len) => {
                frames += 1;
                if change(frames, &mut buffer[..len]) {
                    assert_eq!(to.write(&buffer[..len]).unwrap(), len);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_readable(&[from.as_fd()], Duration::from_millis(20)).unwrap();
            }
            Err(error) => panic!("read: {error}"),
        }
    }
    frames
}

fn taps_carry_tcp_and_udp() {
    need_tap();
    for (mtu, queues) in [(1500, 1), (9000, 2)] {
        let settings = Settings {
            mtu,
            ..Settings::default()
        };
        let (hosts, left, right) = TwoHosts::with(&settings, |side| {
            let name = side.of(["tapl", "tapr"]);
            Ok::<_, LabError>((name.to_owned(), Tap::new(name).queues(queues).open()?))
        })
        .unwrap();
        assert_eq!(hosts.left.link.name, "tapl");
        // The interfaces and their counters exist while a descriptor is open.
        let kept: Vec<OwnedFd> = left
            .iter()
            .chain(&right)
            .map(|fd| fd.try_clone().unwrap())
            .collect();
        let cable = Cable::new(left, right, |_, _| true);
        let before = (hosts.left.stats().unwrap(), hosts.right.stats().unwrap());
        for &ip in netns::ip_versions() {
            for (from, to) in both_ways(&hosts) {
                let what = format!("{ip} from {:?}, mtu {mtu}", from.side);
                let tcp = Transfer::tcp(ip, Amount::Bytes(3_000_000)).streams(2);
                assert_intact(&tcp.run(from, to).unwrap(), &what);
                let udp = Transfer::udp(ip, Amount::Bytes(1_000_000)).window(200);
                assert_intact(&udp.run(from, to).unwrap(), &what);
            }
        }
        // A frame counts as sent when it is read, so the counts are equal when the cable stops.
        let frames: u64 = cable.cut().iter().sum();
        let left = hosts.left.stats().unwrap().since(&before.0);
        let right = hosts.right.stats().unwrap().since(&before.1);
        assert_eq!(frames, left.tx_packets + right.tx_packets);
        assert_eq!(left.tx_packets, right.rx_packets);
        assert_eq!((left.tx_dropped, right.tx_dropped), (0, 0));
        drop(kept);
    }
}

fn taps_with_offloads() {
    need_tap();
    let open = |_| Tap::new("tap0").vnet_hdr(true).offload(tap::OFFLOAD_ALL);
    let (hosts, left, right) = match TwoHosts::taps(&Settings::default(), open) {
        Err(LabError::Os {
            what: "TUNSETOFFLOAD",
            errno: libc::EINVAL,
        }) => {
            skip("this kernel's TAP has no USO (Linux 6.2)");
        }
        result => result.unwrap(),
    };
    let cable = Cable::new(left, right, |_, frame| frame.len() > VNET_HDR_LEN);
    let before = hosts.left.stats().unwrap();
    for &ip in netns::ip_versions() {
        let tcp = Transfer::tcp(ip, Amount::Bytes(20_000_000));
        assert_intact(&tcp.run(&hosts.left, &hosts.right).unwrap(), "tcp");
    }
    let sent = hosts.left.stats().unwrap().since(&before);
    // TCP chooses their size by its pacing, which depends on how busy the machine is.
    assert!(
        sent.tx_bytes > 1514 * sent.tx_packets,
        "GSO frames: {sent:?}"
    );
    let udp = Transfer::udp(IpVersion::V4, Amount::Bytes(4_000_000))
        .datagram(1400)
        .train(40);
    let before = hosts.left.stats().unwrap();
    assert_intact(
        &udp.gro(true).run(&hosts.left, &hosts.right).unwrap(),
        "udp",
    );
    let sent = hosts.left.stats().unwrap().since(&before);
    assert!(
        sent.tx_bytes > 20_000 * sent.tx_packets,
        "USO frames: {sent:?}"
    );
    let frames = cable.cut();
    assert!(frames[0] > 100 && frames[1] > 0, "{frames:?}");
}

fn tuns_carry_tcp_and_udp() {
    need_tap();
    let open = |_| Tap::tun("tun0").vnet_hdr(true).offload(tap::OFFLOAD_TSO);
    let (hosts, left, right) = TwoHosts::taps(&Settings::default(), open).unwrap();
    assert_eq!(hosts.left.link.mac, None);
    let cable = Cable::new(left, right, |_, _| true);
    for &ip in netns::ip_versions() {
        let tcp = Transfer::tcp(ip, Amount::Bytes(2_000_000));
        assert_intact(&tcp.run(&hosts.left, &hosts.right).unwrap(), "tcp");
        let udp = Transfer::udp(ip, Amount::Bytes(1_000_000));
        assert_intact(&udp.run(&hosts.right, &hosts.left).unwrap(), "udp");
    }
    cable.cut();
}

/// Offset of the UDP payload: Ethernet 14, IPv4 20, UDP 8.
const PAYLOAD: usize = 42;

fn loss_and_damage_are_seen() {
    need_tap();
    let run = |change: fn(u64, &mut [u8]) -> bool| {
        let (hosts, left, right) =
            TwoHosts::taps(&Settings::default(), |_| Tap::new("tap0")).unwrap();
        let cable = Cable::new(left, right, change);
        let udp = Transfer::udp(IpVersion::V4, Amount::Bytes(400 * 1000)).datagram(1000);
        let (report, _, right) = counted(&hosts, || udp.run(&hosts.left, &hosts.right));
        cable.cut();
        (report.unwrap(), right)
    };
    let (report, _) = run(|frame, _| frame != 100 && frame != 400);
    assert_eq!((report.datagrams.sent, report.datagrams.lost), (400, 2));
    assert!(!report.hash_ok && report.sent_hash != report.received_hash);

    // A flipped bit fails the kernel's checksum.
    let (report, right) = run(|frame, bytes| {
        if frame == 50 {
            bytes[PAYLOAD + 500] ^= 1;
        }
        true
    });
    assert_eq!((report.datagrams.lost, report.datagrams.damaged), (1, 0));
    assert_eq!(right.udp_in_csum_errors, 1);
    assert!(!report.hash_ok);

    // Exchanged 16-bit words do not: only the check of the content finds them.
    let (report, right) = run(|frame, bytes| {
        if frame == 50 {
            bytes[PAYLOAD + 500..PAYLOAD + 504].rotate_left(2);
        }
        true
    });
    assert_eq!(
        (report.datagrams.lost, report.datagrams.damaged),
        (1, 1),
        "{report:?}"
    );
    assert_eq!((right.udp_in_csum_errors, right.udp_in_datagrams), (0, 400));
    assert!(!report.hash_ok);

    tcp_damage_is_seen();
}

/// The same for TCP: words exchanged in one full segment pass TCP's checksum.
fn tcp_damage_is_seen() {
    let (hosts, left, right) = TwoHosts::taps(&Settings::default(), |_| Tap::new("tap0")).unwrap();
    let damaged = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&damaged);
    let cable = Cable::new(left, right, move |frame, bytes| {
        if frame >= 50 && bytes.len() == 1514 && !once.swap(true, Relaxed) {
            bytes[1000..1004].rotate_left(2);
        }
        true
    });
    let tcp = Transfer::tcp(IpVersion::V4, Amount::Bytes(1_000_000));
    let report = tcp.run(&hosts.left, &hosts.right).unwrap();
    cable.cut();
    assert!(damaged.load(Relaxed));
    assert_eq!(report.received_bytes, 1_000_000);
    assert!(
        !report.hash_ok && report.sent_hash != report.received_hash,
        "{report:?}"
    );
}

fn stalls_and_stops_end() {
    need_tap();
    // Without a cable no connection opens, and no datagram arrives.
    let (hosts, _left, _right) =
        TwoHosts::taps(&Settings::default(), |_| Tap::new("tap0")).unwrap();
    for make in [Transfer::tcp, Transfer::udp] {
        let mut transfer = make(IpVersion::V4, Amount::Bytes(10_000_000));
        transfer.stall = Duration::from_millis(300);
        let start = Instant::now();
        let error = transfer.run(&hosts.left, &hosts.right).unwrap_err();
        assert!(
            matches!(error, LabError::Stalled { bytes: 0.., .. }),
            "{error}"
        );
        assert!(error.to_string().contains("stalled"), "{error}");
        assert!(start.elapsed() < TIMEOUT, "{transfer:?}");
    }
    // A cable that stops in the middle of the transfer.
    let (hosts, left, right) = TwoHosts::taps(&Settings::default(), |_| Tap::new("tap0")).unwrap();
    let cable = Cable::new(left, right, |frame, _| frame < 300);
    let mut transfer = Transfer::tcp(IpVersion::V4, Amount::Bytes(10_000_000));
    transfer.stall = Duration::from_secs(3);
    let error = transfer.run(&hosts.left, &hosts.right).unwrap_err();
    assert!(
        matches!(error, LabError::Stalled { bytes: 1.., .. }),
        "{error}"
    );
    cable.cut();

    let hosts = TwoHosts::veth(&Settings::default()).unwrap();
    for make in [Transfer::tcp, Transfer::udp] {
        let stop = Arc::new(AtomicBool::new(false));
        let transfer = make(IpVersion::V4, Amount::Time(2 * TIMEOUT));
        let transfer = transfer.stop(Arc::clone(&stop));
        let start = Instant::now();
        let result = thread::scope(|scope| {
            let run = scope.spawn(|| transfer.run(&hosts.left, &hosts.right));
            thread::sleep(Duration::from_millis(100));
            stop.store(true, Relaxed);
            run.join().unwrap()
        });
        assert_eq!(result, Err(LabError::Cancelled), "{transfer:?}");
        assert!(start.elapsed() < TIMEOUT, "{transfer:?}");
    }
}

/// Other programs make and remove interfaces in the namespace of the process at any time.
fn alone() {
    let namespace = |of| fs::read_link(format!("/proc/{of}/ns/net")).expect("/proc");
    assert_ne!(namespace("thread-self"), namespace("self"));
    assert!(Traces::now().interfaces.iter().eq(["lo"]));
}

fn nothing_is_left() {
    need_tap();
    let before = Traces::now();
    {
        let (hosts, left, right) =
            TwoHosts::taps(&Settings::default(), |_| Tap::new("tap0").queues(2)).unwrap();
        let cable = Cable::new(left, right, |_, _| true);
        for ip in netns::ip_versions() {
            let tcp = Transfer::tcp(*ip, Amount::Bytes(100_000));
            assert_intact(&tcp.run(&hosts.left, &hosts.right).unwrap(), "tcp");
            let udp = Transfer::udp(*ip, Amount::Bytes(100_000));
            assert_intact(&udp.run(&hosts.right, &hosts.left).unwrap(), "udp");
        }
        cable.cut();
        TwoHosts::veth(&Settings::default()).unwrap();
        let failed = TwoHosts::with(&Settings::default(), |side| match side {
            Side::Left => Ok(("tap0".to_owned(), Tap::new("tap0").open()?)),
            Side::Right => Err(LabError::Setting("on purpose")),
        });
        assert_eq!(failed.map(drop), Err(LabError::Setting("on purpose")));
    }
    before.assert_again();
}
