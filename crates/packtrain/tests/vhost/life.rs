//! Front ends that come and go, guests that boot again, and the file of the socket.

use crate::guest::*;
use crate::{Queues, frame};
use packtrain::driver::{Armed, Attach, ChangeKind, Driver, Features, Link, QueuePair};
use packtrain::engine::Session;
use packtrain::packet::{Arena, ArenaConfig, Burst};
use packtrain::port::vhost::{Vhost, VhostConfig};
use packtrain::stats::DropReason;
use packtrain_offload::offload::{GsoKind, LinkType};
use packtrain_testkit::conformance::Outside;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
use rustix::time::Timespec;
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FEATURES: u64 = VERSION_1 | MRG_RXBUF | EVENT_IDX | INDIRECT | OFFLOADS;

/// A TCP packet over IPv4 of three wire packets, with the seed of its checksum.
fn large() -> Outside {
    crate::careless::large(GsoKind::TcpV4)
}

/// The types of the packets that the guest received, and their lengths.
fn received(queues: &mut Queues) -> Vec<(u8, usize)> {
    let guest = queues.guest();
    let all = std::iter::from_fn(|| guest.receive(0));
    all.map(|(header, bytes)| (header[1], bytes.len()))
        .collect()
}

#[test]
fn a_front_end_leaves_and_another_one_comes() {
    let options = Options::new(FEATURES);
    let mut queues = Queues::new(options);
    queues.assert_passes(0, 1);
    for round in 2..5 {
        queues.joined.guest = None;
        queues
            .joined
            .wait_for("end", |joined| joined.port.link() == Link::Down);
        let before = queues.tx_dropped(DropReason::LinkDown);
        queues.send(0, &frame(1, 60));
        assert_eq!(queues.tx_dropped(DropReason::LinkDown), before + 1);
        assert!(queues.poll(0).is_empty());
        queues.joined.join(options);
        queues.assert_passes(0, round);
        // One to ask for the features, and one for each guest.
        assert_eq!(
            queues.joined.port.status().connections,
            u64::from(round) + 1
        );
    }
    assert_eq!(queues.rx_drops.snapshot().total(), 0);
}

/// Not to be spun by whatever listens there: the port asks five times a second.
#[test]
fn a_front_end_that_closes_each_connection_is_asked_slowly() {
    let path = std::env::temp_dir().join(format!("packtrain-closes-{}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let began = Instant::now();
    let config = client(&path);
    let mut port = Vhost::open(&config).expect("it waits for a front end");
    let queues = attach(&mut port);
    for _ in 0..4 {
        drop(listener.accept().expect("the port connects"));
    }
    // The first at once.
    assert!(began.elapsed() >= 3 * Duration::from_millis(200));
    std::fs::remove_file(&path).expect("it is there");
    assert!(port.status().connections >= 3);
    drop(queues);
}

#[test]
fn packets_are_held_to_what_the_guest_has_negotiated_now() {
    let mut queues = Queues::new(Options::new(FEATURES));
    queues.send(0, &large());
    assert_eq!(received(&mut queues), [(1, 2554)]);
    // It boots again, first into firmware without offloads, on the same connection.
    for (features, arrives) in [
        (FEATURES & !OFFLOADS, vec![(0, 1054), (0, 1054), (0, 554)]),
        (FEATURES, vec![(1, 2554)]),
        (
            FEATURES & !OFFLOADS | 2,
            vec![(0, 1054), (0, 1054), (0, 554)],
        ),
        (FEATURES, vec![(1, 2554)]),
    ] {
        let guest = queues.guest();
        for ring in 0..2 {
            let base = guest.stop(ring);
            assert_eq!(
                base,
                u64::from(guest.used(ring)),
                "all taken chains are used"
            );
        }
        guest.number(SET_FEATURES, features | PROTOCOL);
        for ring in 0..2 {
            guest.start_at(ring, guest.used(ring));
        }
        guest.barrier();
        queues.send(0, &large());
        assert_eq!(received(&mut queues), arrives, "{features:#x}");
    }
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
    // From the guest: what it has not negotiated is refused.
    let guest = queues.guest();
    guest.number(SET_FEATURES, FEATURES & !(1 << 11) | PROTOCOL);
    guest.barrier();
    let packet = large();
    assert!(guest.send(0, &crate::conformance::header(&packet), &packet.bytes));
    assert!(queues.poll(0).is_empty());
    assert_eq!(queues.rx_drops.snapshot().total(), 1);
    queues.guest().number(SET_FEATURES, FEATURES | PROTOCOL);
    queues.guest().barrier();
    assert!(
        queues
            .guest()
            .send(0, &crate::conformance::header(&packet), &packet.bytes)
    );
    assert_eq!(queues.poll(0), [packet]);
}

/// As QEMU does for a guest whose rings are enabled before its features are set, but with packets
/// in the ring that were not announced.
#[test]
fn calls_by_index_may_be_negotiated_while_packets_are_not_announced() {
    let features = VERSION_1 | MRG_RXBUF;
    let mut queues = Queues::new(Options::new(features));
    queues.assert_passes(0, 1);
    for (round, features) in [features | EVENT_IDX, features].into_iter().enumerate() {
        let packet = frame(round as u8, 300);
        let put = packet.to_packet(&queues.arena, LinkType::Ethernet, || 1000);
        let mut burst = Burst::new();
        burst.push(put.expect("frames")).expect("room");
        queues.now = queues.now.after(Duration::from_millis(1));
        queues.tx[0].service(queues.now).expect("it works");
        let sent = queues.tx[0].transmit_more(&mut burst);
        sent.expect("it is put into the ring");
        let guest = queues.guest();
        assert!(guest.take_used(0).is_none(), "it is not announced");
        guest.number(SET_FEATURES, features | PROTOCOL);
        guest.barrier();
        guest.options.features = features | PROTOCOL;
        queues.tx[0].ring().expect("it works");
        let (_, bytes) = queues.guest().receive(0).expect("it was sent");
        assert_eq!(bytes, packet.bytes);
        queues.assert_passes(0, 2);
    }
}

#[test]
fn a_ring_that_is_stopped_goes_on_where_it_was() {
    let mut queues = Queues::new(Options::new(FEATURES));
    queues.assert_passes(0, 1);
    // Three that were sent before, and are taken afterwards.
    for number in 0..3 {
        queues.give(0, &frame(number, 60));
    }
    let base = queues.guest().stop(1);
    assert_eq!(base, 1);
    assert!(queues.poll(0).is_empty(), "it is off");
    queues.guest().start_at(1, base as u16);
    queues.guest().barrier();
    assert_eq!(queues.poll(0), [0, 1, 2].map(|number| frame(number, 60)));
}

/// Whether the worker of a receive queue would wake up now.
pub fn wakes(queues: &Queues) -> bool {
    let (fd, _) = queues.rx[0].wake().expect("a descriptor");
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&time)).expect("a poll") > 0
}

/// Of a ring that runs: it neither enables it nor disables it.
#[test]
fn another_descriptor_for_kicks_is_heard_and_changes_nothing_else() {
    let mut queues = Queues::new(Options::new(FEATURES));
    for (enabled, lost) in [(1, 0), (0, 1), (1, 1)] {
        let guest = queues.guest();
        guest.state(SET_VRING_ENABLE, 1, enabled);
        guest.renew_kick(1);
        assert!(queues.poll(0).is_empty());
        assert_eq!(queues.rx[0].arm(), Armed::Idle);
        assert!(!wakes(&queues), "nothing is there");
        let sent = frame(1, 60);
        queues.give(0, &sent);
        assert!(wakes(&queues), "the guest kicked");
        assert_eq!(queues.poll(0).len(), enabled as usize);
        assert_eq!(queues.rx_dropped(DropReason::LinkDown), lost);
    }
}

#[test]
fn a_guest_goes_on_with_its_rings_over_a_new_connection() {
    let options = Options::new(FEATURES);
    let mut queues = Queues::new(options);
    queues.assert_passes(0, 1);
    // Over another connection to the same port, and to another port.
    for number in 2..4 {
        let mut guest = queues.joined.guest.take().expect("it is attached");
        assert!(guest.send(0, &[0; 12], &frame(number, 90).bytes));
        guest.stream.shutdown(Shutdown::Both).expect("it ends");
        if number == 3 {
            queues = Queues::new(options);
            queues.joined.guest = None;
        }
        let joined = &mut queues.joined;
        joined.wait_for_leave();
        guest.resume(joined.connect());
        joined.guest = Some(guest);
        joined.wait_for("link", |joined| joined.port.link() == Link::Up);
        assert_eq!(
            queues.poll(0),
            [frame(number, 90)],
            "neither lost nor twice"
        );
        assert!(queues.guest().receive(0).is_none());
        // More than the ring holds.
        for round in 0..200 {
            queues.assert_passes(0, round);
        }
    }
    assert_eq!(queues.tx_drops.snapshot().total(), 0);
}

#[test]
fn a_guest_kicks_again_after_its_ring_was_stopped_while_it_was_polled() {
    // Without EVENT_IDX a flag in the guest's memory switches kicks off.
    let mut queues = Queues::new(Options::new(VERSION_1 | MRG_RXBUF));
    for round in 0..3 {
        let sent = frame(round, 60);
        queues.give(0, &sent);
        assert_eq!(queues.poll(0), [sent]);
        let base = queues.guest().stop(1);
        queues.guest().start_at(1, base as u16);
        queues.guest().barrier();
        assert!(queues.poll(0).is_empty());
        assert_eq!(queues.rx[0].arm(), Armed::Idle);
        assert!(!wakes(&queues), "nothing is there");
        let sent = frame(round, 70);
        queues.give(0, &sent);
        assert!(wakes(&queues), "the guest kicked");
        assert_eq!(queues.poll(0), [sent]);
    }
}

#[test]
fn a_guest_is_called_for_what_came_before_its_descriptor() {
    for features in [FEATURES, FEATURES & !EVENT_IDX] {
        let mut queues = Queues::new(Options::new(features));
        for round in 0..3 {
            queues.guest().forget_call(0);
            queues.send(0, &frame(round, 60));
            queues.guest().renew_call(0);
            let (_, bytes) = queues.guest().receive(0).expect("it was sent");
            assert_eq!(bytes, frame(round, 60).bytes);
            queues.assert_arrives(0, round);
        }
    }
}

#[test]
fn a_guest_without_several_pairs_gets_no_packets_in_its_control_ring() {
    let options = Options::with_pairs(FEATURES | CTRL_VQ, 3);
    let mut queues = Queues::new(options);
    for ring in [0, 4] {
        queues.guest().stop(ring);
    }
    queues.guest().barrier();
    assert_eq!(queues.joined.port.link(), Link::Down);
    for pair in 0..3 {
        queues.send(pair, &frame(1, 60));
        let dropped = queues.tx_dropped(DropReason::LinkDown);
        assert_eq!(dropped, pair as u64 + 1);
    }
}

#[test]
fn a_ring_that_is_disabled_discards_what_the_guest_sends() {
    let mut queues = Queues::new(Options::new(FEATURES));
    queues.guest().state(SET_VRING_ENABLE, 1, 0);
    queues.guest().state(SET_VRING_ENABLE, 0, 0);
    queues.guest().barrier();
    assert_eq!(queues.joined.port.link(), Link::Down);
    queues.give(0, &frame(1, 60));
    assert!(queues.poll(0).is_empty());
    assert_eq!(queues.rx_dropped(DropReason::LinkDown), 1);
    queues.send(0, &frame(1, 60));
    assert_eq!(queues.tx_dropped(DropReason::LinkDown), 1);
    queues.guest().state(SET_VRING_ENABLE, 1, 1);
    queues.guest().state(SET_VRING_ENABLE, 0, 1);
    queues.guest().barrier();
    queues.assert_passes(0, 2);
}

#[test]
fn a_queue_that_the_guest_does_not_use_sends_by_another_one() {
    let options = Options::with_pairs(FEATURES | MQ | CTRL_VQ, 3);
    let mut queues = Queues::new(options);
    for pair in 0..3 {
        queues.assert_passes(pair, 1);
    }
    // The front end leaves the control ring to the port.
    queues.guest().start(6);
    queues.guest().barrier();
    assert_eq!(queues.guest().set_pairs(1), 0);
    for pair in 0..3 {
        queues.send(pair, &frame(pair as u8, 80));
        let (_, bytes) = queues.guest().receive(0).expect("in the ring that is used");
        assert_eq!(bytes, frame(pair as u8, 80).bytes);
    }
    for wrong in [0, 4, u16::MAX] {
        assert_eq!(
            queues.guest().set_pairs(wrong),
            1,
            "{wrong} pairs are refused"
        );
    }
    assert_eq!(queues.guest().set_pairs(3), 0);
    for pair in 0..3 {
        queues.assert_passes(pair, 2);
    }
}

#[test]
fn a_second_front_end_is_turned_away() {
    let options = Options::new(FEATURES);
    let mut queues = Queues::new(options);
    let second = Guest::connected(queues.joined.connect(), options);
    second.number(SET_FEATURES, 0);
    assert!(second.answer().is_err(), "its connection is closed");
    queues.joined.wait_for("problem", |joined| {
        let problem = joined.port.status().problem;
        problem.is_some_and(|problem| problem.contains("second front end"))
    });
    queues.assert_passes(0, 1);
}

/// Regions of the guest's memory that end at these places in its file.
fn regions(ends: &[u64]) -> Vec<(u64, u64, u64, u64)> {
    let begins = [0].into_iter().chain(ends.iter().copied());
    let each = begins.zip(ends);
    each.map(|(at, end)| (GUEST_BASE + at, end - at, USER_BASE + at, at))
        .collect()
}

#[test]
fn memory_in_several_regions_is_one_to_a_packet() {
    const RING: u64 = 8 << 20;
    let mut queues = Queues::new(Options::new(FEATURES));
    for several in [false, true] {
        let guest = queues.guest();
        let slot = guest.slot(1).expect("a slot");
        let at = guest.buffer(1, slot);
        // Cut in the middle of the buffer.
        let cut = (at & !4095) + 4096;
        let ends = match several {
            false => vec![cut, 3 * RING],
            // Between the parts of a ring as well.
            true => vec![
                8 << 10,
                24 << 10,
                40 << 10,
                RING,
                cut,
                cut + 4096,
                2 * RING,
                3 * RING,
            ],
        };
        guest.share(&regions(&ends));
        guest.barrier();
        let packet = frame(7, 9000);
        guest.write(at, &[&[0; 12], &packet.bytes[..]].concat());
        guest.describe(1, slot, GUEST_BASE + at, 9012, 0, 0);
        guest.push(1, slot);
        assert_eq!(queues.poll(0), [packet]);
        queues.assert_passes(0, 1);
    }
    let ends: Vec<_> = (1..=9).map(|part| part * RING / 3).collect();
    let ends: Vec<_> = ends.iter().map(|end| end & !4095).collect();
    queues.guest().share(&regions(&ends));
    queues.joined.wait_for("refusal", |joined| {
        let problem = joined.port.status().problem;
        problem.is_some_and(|problem| problem.contains("guest memory in 9 regions"))
    });
}

#[test]
fn memory_whose_pages_are_not_allocated_is_noticed() {
    let mut queues = Queues::new(Options::new(FEATURES));
    assert!(!queues.joined.port.status().populated);
    let guest = queues.guest();
    let (_, bytes, ..) = guest.region();
    fallocate(&guest.memory, FallocateFlags::empty(), 0, bytes).expect("memory");
    guest.share(&[guest.region()]);
    guest.barrier();
    assert!(queues.joined.port.status().populated);
    queues.assert_passes(0, 1);
}

#[test]
fn a_packet_longer_than_the_buffers_is_dropped_alone() {
    let options = Options {
        buffer: 700,
        ..Options::new(VERSION_1)
    };
    let mut queues = Queues::new(options);
    queues.send(0, &frame(1, 689));
    assert_eq!(queues.tx_dropped(DropReason::TooLong), 1);
    queues.send(0, &frame(1, 688));
    let (_, bytes) = queues.guest().receive(0).expect("it fits");
    assert_eq!(bytes.len(), 688);
}

/// A port that connects to a front end.
fn client(path: &Path) -> VhostConfig {
    VhostConfig {
        server: false,
        ..VhostConfig::server(path)
    }
}

/// The queues of a port, in an arena of their own.
fn attach(port: &mut Vhost) -> Vec<QueuePair<Vhost>> {
    let arena = Arena::new(ArenaConfig::small()).expect("memory");
    let queues = port.attach(&Attach::default(), &arena);
    queues.expect("it attaches")
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("packtrain-{}-{name}", std::process::id()))
}

#[test]
fn the_file_of_the_socket_goes_with_the_port() {
    let path = path("file.sock");
    let port = Vhost::open(&VhostConfig::server(&path)).expect("it opens");
    let mode = std::fs::metadata(&path).expect("a file").mode();
    assert_eq!(mode & 0o777, 0o600, "for its user alone");
    let made = std::fs::metadata(&path).expect("a file");
    let watch = port.watch();
    let file = watch.socket_file().expect("it made one");
    assert_eq!(file.path, path);
    assert_eq!((file.device, file.inode), (made.dev(), made.ino()));
    let of_another = Vhost::open(&client(&path));
    let of_another = of_another.expect("it connects").watch();
    assert_eq!(of_another.socket_file(), None);
    let taken = Vhost::open(&VhostConfig::server(&path)).expect_err("it is taken");
    let line = taken.to_string();
    let me = format!("process {} (", std::process::id());
    assert!(
        line.contains(&me) && line.contains("use another path"),
        "{line}"
    );
    assert!(path.exists(), "it is still there");
    drop(port);
    assert!(!path.exists());
    // One that is bound, and does not listen yet.
    let bound = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    bind(&bound, &SocketAddrUnix::new(&path).expect("a path")).expect("it is free");
    let taken = Vhost::open(&VhostConfig::server(&path)).expect_err("it is taken");
    assert!(taken.to_string().contains("use another path"), "{taken}");
    assert!(path.exists(), "it is still there");
    drop(bound);
    let port = Vhost::open(&VhostConfig::server(&path)).expect("nobody has it");
    drop(port);
    // One that a killed process left.
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let port = Vhost::open(&VhostConfig::server(&path)).expect("nobody listens there");
    // One that another process has made in its place is not removed.
    std::fs::remove_file(&path).expect("it is there");
    let other = UnixListener::bind(&path).expect("a socket");
    drop(port);
    assert!(path.exists());
    drop(other);
    std::fs::remove_file(&path).expect("it is there");
    std::fs::write(&path, "precious").expect("a file");
    let error = Vhost::open(&VhostConfig::server(&path)).expect_err("that is no socket");
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(std::fs::read(&path).expect("it is there"), b"precious");
    std::fs::remove_file(&path).expect("it is there");
    let missing = path.join("none").join("x.sock");
    Vhost::open(&VhostConfig::server(missing)).expect_err("there is no such directory");
}

#[test]
fn a_session_records_that_a_front_end_has_left_and_another_one_come() {
    let path = path("record.sock");
    let port = Vhost::open(&VhostConfig::server(&path)).expect("it opens");
    let session = Session::on(port).start().expect("it starts");
    let count = |wanted| {
        let until = Instant::now() + Duration::from_secs(60);
        while session.snapshot().changes.count != wanted {
            assert!(Instant::now() < until, "{:?}", session.snapshot().changes);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let connect = || UnixStream::connect(&path).expect("the port listens");
    drop(connect());
    count(1);
    let second = connect();
    count(2);
    drop(second);
    count(3);
    let changes = session.finish().snapshot.changes.last;
    let kinds: Vec<_> = changes.iter().map(|change| change.kind.name()).collect();
    assert_eq!(kinds, ["gone", "back", "gone"]);
    assert!(changes.iter().all(|change| change.queue.is_none()));
    assert_eq!(changes[1].why, "a front end has connected again");
}

/// The next packets that the guest receives: their types and lengths.
fn arrivals(guest: &mut Guest, packets: usize) -> Vec<(u8, usize)> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut all = Vec::new();
    while all.len() < packets {
        assert!(Instant::now() < until, "{all:?} of {packets}");
        match guest.receive(0) {
            Some((header, bytes)) => all.push((header[1], bytes.len())),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    all
}

/// Front ends leave and come back with more and with fewer features, and one negotiates again while
/// it runs: a large packet arrives whole or in segments, and the session says what has changed.
#[test]
fn a_session_is_planned_anew_for_what_the_front_end_has_negotiated() {
    let path = path("plan.sock");
    let port = Vhost::open(&VhostConfig::server(&path)).expect("it opens");
    let watch = port.watch();
    let session = Session::on(port).senders(0, 1).start();
    let session = session.expect("it starts");
    let mut handle = session.handle(0, 0).expect("a queue");
    let whole = vec![(1, 2554)];
    let cut = vec![(0, 1054), (0, 1054), (0, 554)];
    let basic = VERSION_1 | MRG_RXBUF;
    // The features, whether the front end has left before, and what arrives.
    let lives = [
        (FEATURES, true, &whole),
        (FEATURES, true, &whole),
        (basic | 2, true, &cut),
        (basic | OFFLOADS, false, &whole),
        (basic, true, &cut),
        // One buffer takes any packet.
        (VERSION_1 | OFFLOADS, true, &whole),
        (VERSION_1 | OFFLOADS & !(1 << 7), true, &cut),
        (FEATURES, true, &whole),
    ];
    let mut guest = None;
    for (features, leaves, arrives) in lives {
        if leaves {
            drop(guest.take());
            let until = Instant::now() + Duration::from_secs(60);
            while watch.status().connected {
                assert!(Instant::now() < until, "it has left");
                std::thread::sleep(Duration::from_millis(1));
            }
            let stream = UnixStream::connect(&path).expect("the port listens");
            guest = Some(Guest::new(stream, Options::new(features)));
        }
        let guest = guest.as_mut().expect("it is there");
        guest.number(SET_FEATURES, features | PROTOCOL);
        guest.barrier();
        for _ in 0..3 {
            let packet = large().to_packet(session.arena(), LinkType::Ethernet, || 1000);
            let mut burst = Burst::new();
            burst.push(packet.expect("frames")).expect("room");
            let sent = handle.send_blocking(&mut burst, Duration::from_secs(60));
            sent.expect("it is sent");
            assert_eq!(&arrivals(guest, arrives.len()), arrives, "{features:#x}");
        }
    }
    let report = session.finish();
    let ledger = &report.snapshot.ledger;
    assert!(ledger.closed() && ledger.dropped == 0, "{ledger:?}");
    let lines: Vec<_> = report
        .snapshot
        .changes
        .last
        .iter()
        .filter(|change| change.kind == ChangeKind::Renegotiated)
        .map(ToString::to_string)
        .collect();
    let queue = |what: &str| format!("txq00: the other side has negotiated its offloads; {what}");
    let large = "tso4, tso6, tso-ecn, uso4, uso6";
    let all = format!("ipv4-checksum, ipv6-checksum, {large}");
    let in_software = |what: &str| queue(&format!("packtrain does {what} in software from now on"));
    let again = |what: &str| queue(&format!("it does {what} from now on"));
    let buffers = [
        "a packet has to fit one buffer of the guest from now on (no mergeable buffers)",
        "a packet may fill several buffers of the guest from now on (mergeable buffers)",
    ];
    let expected = [
        in_software(large),
        again(large),
        in_software(&all),
        buffers[0].to_owned(),
        again(&all),
        in_software("tso4"),
        buffers[1].to_owned(),
        again("tso4"),
    ];
    assert_eq!(lines, expected);
    let refused = report.snapshot.ports[0].tx_total().refused_features;
    assert_eq!(refused, 0, "no packet was needed to find out");
}

#[test]
fn nothing_waits_for_a_listener_that_does_not_accept() {
    let path = path("full.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&listener, 0).expect("room for one");
    let _waiting = UnixStream::connect(&path).expect("the one");
    let (done, is_done) = std::sync::mpsc::channel();
    let at = path.clone();
    let thread = std::thread::spawn(move || {
        let taken = Vhost::open(&VhostConfig::server(&at)).expect_err("it is taken");
        let mut port = Vhost::open(&client(&at)).expect("it opens");
        drop(attach(&mut port));
        // Long enough for an attempt to connect.
        std::thread::sleep(Duration::from_millis(100));
        drop(port);
        done.send(taken.to_string()).expect("the test waits");
    });
    let taken = is_done.recv_timeout(Duration::from_secs(60));
    let taken = taken.expect("opened, refused and dropped in time");
    assert!(taken.contains("use another path"), "{taken}");
    thread.join().expect("it is done");
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn what_keeps_a_port_from_connecting_is_said() {
    let file = path("plain");
    for (at, why) in [
        (file.clone(), "is no socket"),
        (file.join("vm0.sock"), "Not a directory"),
    ] {
        let config = client(&at);
        let mut port = Vhost::open(&config).expect("it opens while nothing is there");
        let halves = attach(&mut port);
        std::fs::write(&file, "precious").expect("a file");
        let until = Instant::now() + Duration::from_secs(60);
        let problem = loop {
            if let Some(problem) = port.status().problem {
                break problem;
            }
            assert!(Instant::now() < until, "nothing is said");
            std::thread::sleep(Duration::from_millis(1));
        };
        let named = at.to_string_lossy();
        assert!(
            problem.contains(&*named) && problem.contains(why),
            "{problem}"
        );
        // Two more attempts.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(port.status().refused, 1, "it is said once");
        drop(halves);
        let refused = Vhost::open(&config).expect_err("no front end can be there");
        assert!(refused.to_string().contains(why), "{refused}");
        std::fs::remove_file(&file).expect("it is there");
    }
    // A socket that is not there yet is no problem.
    let config = client(&file);
    let mut port = Vhost::open(&config).expect("it opens");
    let halves = attach(&mut port);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(port.status().problem, None);
    drop(halves);
}

/// After that its process may have fewer rights.
#[test]
fn a_port_connects_when_it_is_opened_if_the_front_end_listens() {
    let path = path("early.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let config = client(&path);
    let mut port = Vhost::open(&config).expect("it opens");
    let (stream, _) = listener.accept().expect("it has connected");
    std::fs::remove_file(&path).expect("it is there");
    let halves = attach(&mut port);
    let _guest = Guest::new(stream, Options::new(VERSION_1 | MRG_RXBUF));
    assert_eq!(port.status().connections, 1);
    drop(halves);
}

#[test]
fn a_port_connects_to_a_front_end_that_listens() {
    let path = path("client.sock");
    let mut port = Vhost::open(&VhostConfig {
        offload: Features::NONE,
        ..client(&path)
    })
    .expect("it opens before the front end");
    let halves = attach(&mut port);
    for _ in 0..2 {
        let listener = UnixListener::bind(&path).expect("a socket");
        let (stream, _): (UnixStream, _) = listener.accept().expect("it connects");
        let guest = Guest::new(stream, Options::new(VERSION_1 | MRG_RXBUF));
        let until = Instant::now() + Duration::from_secs(60);
        while port.link() != Link::Up {
            assert!(Instant::now() < until, "no link: {:?}", port.status());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop((guest, listener));
        std::fs::remove_file(&path).expect("it is there");
    }
    drop(halves);
}
