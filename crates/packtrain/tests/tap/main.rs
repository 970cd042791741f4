//! The ports of the kernel's interfaces against the kernel: TAP, TUN and packet sockets. Each test
//! is in a network namespace of its own.

mod conformance;
mod given;
mod gro;
mod line;
mod oracle;
mod packet;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../packtrain-offload/src/test_packets/mod.rs"]
mod test_packets;
mod traffic;
mod world;
mod xdp;

// What `test_packets` names.
use packtrain_offload::{checksum, coalesce, layout, offload};

use packtrain::driver::{
    Attach, DeviceError, Driver, Features, Link, RxBuffers, RxDescriptors, TxDescriptors,
};
use packtrain::engine::Session;
use packtrain::packet::{Arena, ArenaConfig, Burst, Packet};
use packtrain::port::open_pair;
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use packtrain_offload::layout::Transport;
use packtrain_offload::offload::{ChecksumState, GsoKind, LinkType};
use rustix::fs::{OFlags, fcntl_getfl};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::{Port, Train, contents, has_final_checksum, open, open_in, open_with, payload};
use world::{
    Namespace, TIMEOUT, configure, get_int, in_namespace, raw_tun, set_int, set_up, set_value,
};

const TUN: i32 = libc::IFF_TUN | libc::IFF_NO_PI;
const CSUM: Features = Features::CSUM;

/// Three 1000-byte datagrams and one of 500, from the kernel to host 2, in one GSO packet if the
/// interface takes it.
fn send_udp_train() -> UdpSocket {
    let socket = UdpSocket::bind("198.18.1.1:0").expect("an address");
    world::set_udp_segment(&socket, 1000);
    let sent = socket
        .send_to(&payload(3500), "198.18.1.2:9")
        .expect("a route");
    assert_eq!(sent, 3500);
    socket
}

/// Checks that a train from the kernel arrives in as few packets as the offloads allow.
fn assert_udp_train(port: &mut Port, features: Features, context: &str) {
    let _socket = send_udp_train();
    let whole = features.contains(Features::USO);
    let packets = port.wait_for(Transport::Udp, if whole { 1 } else { 4 });
    let headers = if port.link == LinkType::RawIp { 28 } else { 42 };
    let lengths: Vec<_> = packets.iter().map(|p| p.bytes() - headers).collect();
    let expected: &[usize] = if whole {
        &[3500]
    } else {
        &[1000, 1000, 1000, 500]
    };
    assert_eq!(lengths, expected, "{context}");
    let mut data: Vec<u8> = Vec::new();
    for packet in &packets {
        let meta = packet.meta();
        data.extend(&contents(packet)[headers..]);
        let partial = ChecksumState::Partial {
            start: headers as u16 - 8,
            offset: 6,
        };
        if features.contains(CSUM) {
            assert_eq!(meta.checksum, partial, "{context}");
        } else {
            assert!(
                !matches!(meta.checksum, ChecksumState::Partial { .. }),
                "{context}"
            );
            assert!(has_final_checksum(packet), "{context}");
        }
        match meta.gso {
            Some(gso) => {
                assert!(whole, "{context}");
                assert_eq!(
                    (gso.kind, gso.size.get()),
                    (GsoKind::UdpV4, 1000),
                    "{context}"
                );
                assert_eq!(meta.wire_packets, 4, "{context}");
            }
            None => assert!(!whole, "{context}"),
        }
    }
    assert_eq!(data, payload(3500), "{context}");
    port.assert_clean(context);
}

fn why(result: Result<Tap, DeviceError>) -> String {
    why_not(result)
}

/// The sentence of a port that cannot be opened as requested.
fn why_not<D: Driver>(result: Result<D, DeviceError>) -> String {
    match result {
        Ok(port) => panic!("{} opened", port.name()),
        Err(DeviceError::Unsupported(why)) => why,
        Err(other) => panic!("another error: {other}"),
    }
}

#[test]
fn a_created_interface_is_down_without_addresses_and_goes_with_its_port() {
    in_namespace(|| {
        let mut port = open(TapKind::Tap, "pt%d");
        assert_eq!(
            (port.driver.name(), port.driver.kind()),
            ("pt0", TapKind::Tap)
        );
        let flags = world::flags("pt0").expect("it exists");
        assert_eq!(flags & libc::IFF_UP, 0);
        assert_eq!(port.driver.link(), Link::Down);
        assert!(
            port.poll().is_empty(),
            "an interface that is down has no packets to read"
        );
        assert_eq!(world::queue_length("pt0"), 1000);
        let capabilities = port.driver.capabilities();
        assert_eq!(capabilities.link, LinkType::Ethernet);
        assert_eq!(capabilities.queues_max, 1);
        assert!(
            capabilities.rx.contains(CSUM | Features::TSO),
            "{:?}",
            capabilities.rx
        );
        let Port { driver, rx, tx, .. } = port;
        drop((driver, rx));
        assert!(
            world::interface_index("pt0").is_some(),
            "the TX half keeps it"
        );
        drop(tx);
        assert_eq!(world::interface_index("pt0"), None);
        let tun = open(TapKind::Tun, "pt1");
        assert_eq!(tun.driver.kind(), TapKind::Tun);
        assert_eq!(tun.driver.capabilities().link, LinkType::RawIp);
        assert_eq!(world::queue_length("pt1"), 1000);
    });
}

#[test]
fn a_persistent_interface_keeps_nothing_of_its_last_user() {
    in_namespace(|| {
        let stale = raw_tun("pt0", TUN | libc::IFF_VNET_HDR).expect("it is created");
        set_int(&stale, libc::TUNSETPERSIST, 1);
        set_int(&stale, libc::TUNSETVNETHDRSZ, 100);
        set_value(&stale, libc::TUNSETOFFLOAD, 0x6f);
        drop(stale);
        for offload in [Features::NONE, Features::ALL, CSUM, Features::ALL] {
            let mut port = open_with(TapKind::Tun, "pt0", offload, RxBuffers::Whole);
            configure("pt0", 1, 1);
            assert_eq!(
                world::queue_length("pt0"),
                500,
                "the length was set by another"
            );
            let features = port.driver.capabilities().rx;
            assert!(offload.contains(features));
            assert_udp_train(&mut port, features, &format!("{offload:?}"));
            set_up("pt0", false);
        }
        let plain = raw_tun("pt0", TUN).expect("it attaches without a header");
        let tap = Tap::from_fds(vec![plain], Features::ALL).expect("without offloads");
        let mut port = Port::attach(tap, &Attach::default());
        configure("pt0", 1, 1);
        assert_udp_train(&mut port, Features::NONE, "stale offloads, no header");
    });
}

#[test]
fn offloads_are_what_was_requested() {
    in_namespace(|| {
        let sets = [
            Features::NONE,
            CSUM,
            CSUM | Features::TSO,
            CSUM | Features::USO,
            Features::ALL,
        ];
        for kind in [TapKind::Tun, TapKind::Tap] {
            for offload in sets {
                for buffers in [RxBuffers::Whole, RxBuffers::PIECES] {
                    let mut port = open_with(kind, "pt0", offload, buffers);
                    let capabilities = port.driver.capabilities();
                    assert_eq!(capabilities.rx, capabilities.tx);
                    let uso = offload.contains(Features::USO);
                    if uso && !capabilities.rx.contains(Features::USO) {
                        let noted = capabilities.notes.iter().any(|note| note.contains("uso4"));
                        assert!(noted, "{:?}", capabilities.notes);
                    }
                    configure("pt0", 1, 1);
                    if kind == TapKind::Tap {
                        world::add_neighbour("pt0", 1, 2, [2, 0, 0, 0, 0, 2]);
                    }
                    let context = format!("{kind:?} {offload:?} {buffers:?}");
                    assert_udp_train(&mut port, capabilities.rx, &context);
                }
            }
        }
    });
}

/// For packets to the port, the kernel has one switch for both IP versions. From the port, it
/// accepts either version.
#[test]
fn offloads_of_one_ip_version_are_used_towards_the_kernel() {
    in_namespace(|| {
        let asked = Features::CSUM4 | Features::TSO4;
        let mut port = open_with(TapKind::Tun, "pt0", asked, RxBuffers::Whole);
        let capabilities = port.driver.capabilities();
        assert_eq!(capabilities.tx, asked);
        assert_eq!(capabilities.rx, Features::NONE);
        let is_noted = |note: &String| note.contains("tso4") && note.contains("add ipv6-checksum");
        assert!(
            capabilities.notes.iter().any(is_noted),
            "{:?}",
            capabilities.notes
        );
        configure("pt0", 1, 1);
        let train = Train::tcp(3000, 1000);
        assert_delivered(&mut port, &train, 65_600);
        assert_delivered(&mut port, &train.ipv6(), 65_600);
        assert_udp_train(&mut port, capabilities.rx, "nothing is handed over");
    });
}

#[test]
fn attaching_can_take_offloads_back() {
    in_namespace(|| {
        for rx in [Features::NONE, CSUM, Features::ALL] {
            let config = TapConfig::new(TapKind::Tun, "pt0");
            let tap = Tap::open(&config).expect("it opens");
            let all = tap.capabilities().rx;
            let how = Attach {
                rx,
                ..Attach::default()
            };
            let mut port = Port::attach(tap, &how);
            configure("pt0", 1, 1);
            assert_udp_train(&mut port, rx.intersection(all), &format!("{rx:?}"));
        }
    });
}

#[test]
fn an_interface_that_was_created_takes_a_limit_on_large_packets() {
    // gso_features_check() compares the length since then; before, only TCP keeps to the limit.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next(), numbers.next());
    if version < (Some(6), Some(8)) {
        println!("SKIP: Linux {release} does not cut longer datagrams (6.8 does)");
        return;
    }
    in_namespace(|| {
        for (limit, packets) in [(None, 1), (Some(2048), 4)] {
            let tap = Tap::open(&TapConfig::new(TapKind::Tun, "pt0")).expect("it opens");
            assert!(tap.capabilities().limits_large);
            let how = Attach {
                large_bytes_max: limit,
                ..Attach::default()
            };
            let mut port = Port::attach(tap, &how);
            configure("pt0", 1, 1);
            for (from, to) in [
                ("198.18.1.1:0", "198.18.1.2:9"),
                ("[fd00:1::1]:0", "[fd00:1::2]:9"),
            ] {
                let socket = UdpSocket::bind(from).expect("an address");
                world::set_udp_segment(&socket, 1000);
                socket.send_to(&payload(3500), to).expect("a route");
                let found = port.wait_for(Transport::Udp, packets).len();
                assert_eq!(found, packets, "{limit:?}, {to}");
            }
        }
        let config = TapConfig {
            gso_limit: false,
            ..TapConfig::new(TapKind::Tun, "pt0")
        };
        let ours = Tap::open(&config).expect("it opens");
        assert!(!ours.capabilities().limits_large, "switched off");
        drop(ours);
        let stale = raw_tun("pt0", TUN | libc::IFF_VNET_HDR).expect("it is created");
        set_int(&stale, libc::TUNSETPERSIST, 1);
        drop(stale);
        let theirs = Tap::open(&TapConfig::new(TapKind::Tun, "pt0")).expect("it opens");
        assert!(!theirs.capabilities().limits_large, "it was there before");
    });
}

#[test]
fn the_kernels_tcp_syn_says_what_is_left_to_do() {
    in_namespace(|| {
        let mut port = open(TapKind::Tun, "pt0");
        configure("pt0", 1, 1);
        let connecting = std::thread::spawn({
            let here = Namespace::current();
            move || {
                here.run(|| {
                    let to = SocketAddr::from(([198, 18, 1, 2], 80));
                    TcpStream::connect_timeout(&to, Duration::from_millis(300))
                })
            }
        });
        let syn = port.wait_for(Transport::Tcp, 1).remove(0);
        let partial = ChecksumState::Partial {
            start: 20,
            offset: 16,
        };
        assert_eq!(syn.meta().checksum, partial);
        assert_eq!((syn.meta().gso, syn.meta().wire_packets), (None, 1));
        assert_eq!(contents(&syn)[33], 0x02, "a SYN");
        assert_eq!(
            syn.segment_count(),
            1,
            "a small packet takes a small frame only"
        );
        let result = connecting.join().expect("no panic");
        assert_eq!(
            result.expect_err("no peer answers").kind(),
            ErrorKind::TimedOut
        );
    });
}

#[test]
fn given_descriptors_are_read_back() {
    in_namespace(|| {
        let refuse = |fds: Vec<OwnedFd>| why(Tap::from_fds(fds, Features::ALL));
        let with_info = raw_tun("pi0", libc::IFF_TUN).expect("it is created");
        assert!(refuse(vec![with_info]).contains("IFF_NO_PI"));
        let unattached = std::fs::File::open("/dev/net/tun").expect("it opens");
        assert!(refuse(vec![unattached.into()]).contains("not attached"));
        let other = std::fs::File::open("/dev/null").expect("it opens");
        assert!(refuse(vec![other.into()]).contains("not attached"));
        assert!(refuse(vec![]).contains("give 1"));
        let one = raw_tun("pt0", TUN).expect("it is created");
        let two = raw_tun("pt1", TUN).expect("it is created");
        assert!(refuse(vec![one, two]).contains("not all"));

        for header in [10, 12, 24] {
            let given = raw_tun("pt2", TUN | libc::IFF_VNET_HDR).expect("it is created");
            set_int(&given, libc::TUNSETVNETHDRSZ, header);
            let same = given.try_clone().expect("it is duplicated");
            let tap = Tap::from_fds(vec![given], Features::ALL).expect("it is understood");
            assert_eq!((tap.name(), tap.kind()), ("pt2", TapKind::Tun));
            let kept = if header == 24 { 12 } else { header };
            assert_eq!(get_int(&same, libc::TUNGETVNETHDRSZ), kept);
            drop(same);
            let features = tap.capabilities().rx;
            let mut port = Port::attach(tap, &Attach::default());
            configure("pt2", 1, 1);
            assert_udp_train(&mut port, features, &format!("header of {header}"));
            assert_delivered(&mut port, &Train::udp(3000, 1000), 1792);
        }
    });
}

#[test]
fn an_interface_is_not_joined_to_itself() {
    in_namespace(|| {
        let queue = || raw_tun("pt3", TUN | libc::IFF_MULTI_QUEUE).expect("it is created");
        let (one, two) = (queue(), queue());
        let other = raw_tun("pt4", TUN).expect("it is created");
        let port = |fd: &OwnedFd| {
            let text = format!("tun:,fd={},trace", fd.as_raw_fd());
            text.parse().expect("a spec")
        };
        for again in [&one, &two] {
            let [a, b] = open_pair(&port(&one), &port(again)).expect("they are opened");
            let error = Session::between(a, b).plan().expect_err("one interface");
            let line = "both ports are the interface pt3; name two different interfaces";
            assert_eq!(error.to_string(), line);
        }
        let [a, b] = open_pair(&port(&one), &port(&other)).expect("they are opened");
        Session::between(a, b).plan().expect("two interfaces");
    });
}

#[test]
fn only_descriptors_that_are_used_become_non_blocking() {
    in_namespace(|| {
        let is_blocking = |fd: &OwnedFd| {
            let flags = fcntl_getfl(fd).expect("it is open");
            !flags.contains(OFlags::NONBLOCK)
        };
        let (terminal, _writer) = std::io::pipe().expect("a pipe");
        let unattached = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        let with_info = raw_tun("pi0", libc::IFF_TUN).expect("it is created");
        let refused = [
            terminal.into(),
            unattached.expect("it opens").into(),
            with_info,
        ];
        for given in refused {
            let ours: OwnedFd = given.try_clone().expect("it is duplicated");
            Tap::from_fds(vec![given], Features::ALL).expect_err("it is no queue to use");
            assert!(is_blocking(&ours), "{ours:?}");
        }

        let given = raw_tun("pt0", TUN | libc::IFF_VNET_HDR).expect("it is created");
        let ours = given.try_clone().expect("it is duplicated");
        assert!(is_blocking(&ours));
        let tap = Tap::from_fds(vec![given], Features::ALL).expect("it is understood");
        assert!(!is_blocking(&ours));
        drop(tap);
        assert!(!is_blocking(&ours), "as documented");
    });
}

#[test]
fn a_descriptor_without_header_works_without_offloads() {
    in_namespace(|| {
        for (name, flags) in [("pt0", TUN), ("pt1", libc::IFF_TAP | libc::IFF_NO_PI)] {
            let given = raw_tun(name, flags).expect("it is created");
            let tap = Tap::from_fds(vec![given], Features::ALL).expect("without offloads");
            let capabilities = tap.capabilities();
            assert_eq!(
                (capabilities.rx, capabilities.tx),
                (Features::NONE, Features::NONE)
            );
            assert!(
                capabilities.notes[0].contains("no offloads"),
                "{:?}",
                capabilities.notes
            );
            let mut port = Port::attach(tap, &Attach::default());
            configure(name, 1, 1);
            if port.link == LinkType::Ethernet {
                world::add_neighbour(name, 1, 2, [2, 0, 0, 0, 0, 2]);
            }
            assert_udp_train(&mut port, Features::NONE, name);
            for segment in [20_000, 500] {
                // The TX queue segments the packet and completes its checksums before the port sees
                // it.
                assert_delivered(&mut port, &Train::udp(3000, 1000), segment);
            }
            drop(port);
        }
    });
}

#[test]
fn a_second_queue_without_header_has_the_interfaces() {
    in_namespace(|| {
        let multi = TUN | libc::IFF_MULTI_QUEUE;
        let first = raw_tun("pt0", multi | libc::IFF_VNET_HDR).expect("it is created");
        let second = raw_tun("pt0", multi).expect("a further queue");
        drop(first);
        let tap = Tap::from_fds(vec![second], Features::ALL).expect("it is understood");
        assert_ne!(
            tap.capabilities().rx,
            Features::NONE,
            "the header is the interface's"
        );
        let features = tap.capabilities().rx;
        let mut port = Port::attach(tap, &Attach::default());
        configure("pt0", 1, 1);
        assert_udp_train(&mut port, features, "second queue");
        drop(port);

        let first = raw_tun("pt1", multi).expect("it is created");
        let mut port = open(TapKind::Tun, "pt1");
        assert_eq!(
            port.driver.capabilities().rx,
            Features::NONE,
            "and so is its lack"
        );
        drop(first);
        configure("pt1", 1, 1);
        assert_udp_train(&mut port, Features::NONE, "no header");
    });
}

#[test]
fn an_interface_that_cannot_be_had_is_refused_in_words() {
    in_namespace(|| {
        let tun = |name: &str| TapConfig::new(TapKind::Tun, name);
        let with_queues = |name: &str, queues| TapConfig {
            queues,
            ..tun(name)
        };
        let single = Tap::open(&tun("pt0")).expect("it opens");
        assert!(why(Tap::open(&tun("pt0"))).contains("in use"));
        assert!(why(Tap::open(&with_queues("pt0", 2))).contains("single queue"));
        let exclusive = TapConfig {
            exclusive: true,
            ..tun("pt0")
        };
        assert!(why(Tap::open(&exclusive)).contains("exists already"));
        drop(single);
        Tap::open(&exclusive).expect("it does not exist any more");

        let multi = Tap::open(&with_queues("pt1", 3)).expect("it opens");
        assert_eq!(multi.capabilities().queues_max, 3);
        Tap::open(&tun("pt1")).expect("one of several queues");
        let tap = TapConfig::new(TapKind::Tap, "pt1");
        assert!(why(Tap::open(&tap)).contains("not a TAP interface"));
        assert!(why(Tap::open(&with_queues("pt1", 256))).contains("only 253 queues"));

        for name in ["", "a-name-too-long-for-it", "a/b", "a b", "."] {
            assert!(
                why(Tap::open(&tun(name))).contains("interface name"),
                "{name:?}"
            );
        }
        assert!(why(Tap::open(&with_queues("pt2", 0))).contains("1 to 256"));
        assert!(why(Tap::open(&with_queues("pt2", 257))).contains("1 to 256"));
        assert_eq!(world::interface_index("pt2"), None);
    });
}

#[test]
fn only_attached_queues_get_packets() {
    in_namespace(|| {
        let config = TapConfig {
            queues: 4,
            ..TapConfig::new(TapKind::Tun, "pt0")
        };
        let mut tap = Tap::open(&config).expect("it opens");
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        let how = |queues| Attach {
            queues,
            ..Attach::default()
        };
        assert!(tap.attach(&how(5), &arena).is_err());
        assert!(tap.attach(&how(0), &arena).is_err());
        let mut port = Port::attach(tap, &how(2));
        configure("pt0", 1, 1);
        for _ in 0..64 {
            let socket = UdpSocket::bind("198.18.1.1:0").expect("an address");
            socket.send_to(&[1; 100], "198.18.1.2:9").expect("a route");
        }
        let packets = port.wait_for(Transport::Udp, 64);
        assert_eq!(packets.len(), 64);
        let second = packets
            .iter()
            .filter(|p| p.meta().ingress.queue == 1)
            .count();
        assert!(
            second > 0 && second < 64,
            "{second} of 64 flows in the second queue"
        );
        assert_eq!(port.device_counters().tx_dropped, 0);
    });
}

/// Sends `train` to a socket of the kernel, or has the kernel refuse the connection, and expects
/// every byte of it to arrive.
fn assert_delivered(port: &mut Port, train: &Train, segment: usize) {
    let name = port.driver.name().to_owned();
    let mac = (port.link == LinkType::Ethernet).then(|| world::hardware_address(&name));
    let context = format!("{name} {train:?} in segments of {segment}");
    let to = if train.ipv6 {
        "[fd00:1::1]:9"
    } else {
        "198.18.1.1:9"
    };
    let socket = (!train.tcp).then(|| UdpSocket::bind(to).expect("an address"));
    let before = port.device_counters();
    let packet = train.packet(port, mac, segment);
    let bytes = packet.bytes() as u64;
    port.send(packet);
    port.assert_clean(&context);
    let counted = port.device_counters().since(&before);
    assert_eq!((counted.rx_errors, counted.rx_dropped), (0, 0), "{context}");
    if port
        .driver
        .capabilities()
        .tx
        .contains(Features::of(train.kind()))
    {
        assert_eq!(
            (counted.rx_packets, counted.rx_bytes),
            (1, bytes),
            "{context}"
        );
    } else {
        assert_eq!(counted.rx_packets, train.wire_packets() as u64, "{context}");
    }
    let Some(socket) = socket else {
        // No socket listens, so the kernel answers valid packets with a reset. On Ethernet an
        // answer over IPv6 would need neighbour discovery first.
        if mac.is_none() || !train.ipv6 {
            let answer = port.wait_for(Transport::Tcp, 1).remove(0);
            let layout = answer.meta().layout.expect("it parses");
            let flags = contents(&answer)[usize::from(layout.transport) + 13];
            assert_eq!(flags & 0x04, 0x04, "{context}: a reset");
        }
        return;
    };
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut data = Vec::new();
    for _ in 0..train.wire_packets() {
        let mut datagram = [0; 65_536];
        let got = socket
            .recv(&mut datagram)
            .unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(
            train.size == 0 || got <= usize::from(train.size),
            "{context}"
        );
        data.extend_from_slice(&datagram[..got]);
    }
    assert_eq!(data, payload(train.payload), "{context}");
}

#[test]
fn the_kernel_takes_every_legal_header() {
    in_namespace(|| {
        let trains = [
            Train::tcp(3000, 1000),
            Train::tcp(1449, 1448),
            Train::tcp(3000, 8),
            Train::tcp(1000, 1000),
            Train::tcp(1000, 1400),
            Train::tcp(65_495, 1448),
            Train::tcp(3000, 1000).ecn(),
            Train::tcp(100, 0),
            Train::tcp(100, 0).finished(),
            Train::tcp(3000, 0),
            Train::udp(3000, 1000),
            Train::udp(6400, 100),
            Train::udp(500, 1000),
            Train::udp(100, 0),
            Train::udp(100, 0).finished(),
            Train::udp(3012, 0),
        ];
        for (kind, name) in [(TapKind::Tun, "pt0"), (TapKind::Tap, "pt1")] {
            let mut port = open(kind, name);
            configure(name, 1, 1);
            if kind == TapKind::Tap {
                world::add_neighbour(name, 1, 2, [2, 0, 0, 0, 0, 2]);
            }
            let segments: &[usize] = &[65_600, 1792, 1100];
            for train in &trains {
                let uso = port.driver.capabilities().tx.contains(Features::USO);
                if !train.tcp && train.size > 0 && !uso {
                    continue;
                }
                for &segment in segments {
                    assert_delivered(&mut port, train, segment);
                    if train.payload < 65_000 {
                        assert_delivered(&mut port, &train.clone().ipv6(), segment);
                    }
                }
            }
            drop(port);
        }
    });
}

#[test]
fn a_shared_packet_is_sent_without_touching_its_bytes() {
    in_namespace(|| {
        let mut port = open(TapKind::Tun, "pt0");
        configure("pt0", 1, 1);
        let socket = UdpSocket::bind("198.18.1.1:9").expect("an address");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        for segment in [2000, 400, 50] {
            let packet = Train::udp(1600, 0).packet(&port, None, segment);
            let keep = packet.try_clone().expect("a line");
            let before = contents(&keep);
            port.send(packet);
            assert_eq!(contents(&keep), before);
            let mut datagram = [0; 2000];
            assert_eq!(socket.recv(&mut datagram).expect("it arrives"), 1600);
            assert_eq!(&datagram[..1600], payload(1600));
        }
        port.assert_clean("shared");
    });
}

#[test]
fn a_gso_packet_that_the_kernel_refuses_is_cut_in_software() {
    in_namespace(|| {
        let mut port = open(TapKind::Tun, "pt0");
        configure("pt0", 1, 1);
        let socket = UdpSocket::bind("198.18.1.1:9").expect("an address");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        for round in 0..2 {
            let mut packet = Train::udp(3000, 1000).packet(&port, None, 2000);
            // Linux wants UDP GSO packets to have a partial checksum.
            packet.meta_mut().checksum = ChecksumState::None;
            port.send(packet);
            for _ in 0..3 {
                let mut datagram = [0; 2000];
                assert_eq!(socket.recv(&mut datagram).expect("it arrives"), 1000);
            }
            let counters = port.tx[0].counters().snapshot();
            assert_eq!(counters.refused_features, 1);
            assert_eq!(counters.gso_sw_packets, round + 1);
            assert_eq!(counters.gso_packets, 0);
        }
        assert!(!port.tx[0].features().contains(Features::USO4));
        assert!(
            port.tx[0]
                .features()
                .contains(Features::USO6 | Features::TSO)
        );
    });
}

#[test]
fn a_malformed_packet_costs_only_itself() {
    in_namespace(|| {
        let mut tun = open(TapKind::Tun, "pt0");
        configure("pt0", 1, 1);
        tun.send(tun.arena.empty_packet().expect("a line"));
        assert_eq!(tun.dropped(DropReason::Truncated), 1);
        tun.send(tun.arena.packet_from(&[0x55; 100]).expect("a frame"));
        assert_eq!(tun.dropped(DropReason::DeviceRefused), 1);
        let mut tap = open(TapKind::Tap, "pt1");
        set_up("pt1", true);
        tap.send(tap.arena.packet_from(&[0; 13]).expect("a frame"));
        assert_eq!(tap.dropped(DropReason::Truncated), 1);
        let counted = tun.device_counters();
        assert_eq!(
            (counted.rx_packets, counted.rx_errors),
            (0, 0),
            "{counted:?}"
        );
        tun.send(Train::udp(100, 0).packet(&tun, None, 2000));
        assert_eq!(tun.device_counters().rx_packets, 1);
    });
}

#[test]
fn a_link_that_is_down_costs_packets_and_comes_back() {
    in_namespace(|| {
        let mut port = open(TapKind::Tun, "pt0");
        for round in 1..=3 {
            configure("pt0", 1, 1);
            assert_eq!(port.driver.link(), Link::Up);
            port.send(Train::udp(3000, 1000).packet(&port, None, 2000));
            assert_eq!(port.device_counters().rx_packets, round);
            let _socket = send_udp_train();
            assert!(!port.wait_for(Transport::Udp, 1).is_empty());
            set_up("pt0", false);
            assert_eq!(port.driver.link(), Link::Down);
            port.send(Train::udp(3000, 1000).packet(&port, None, 2000));
            assert_eq!(port.dropped(DropReason::LinkDown), 3 * round);
            assert_eq!(port.device_counters().rx_packets, round);
            // The kernel may have sent packets of its own while the link was up.
            drop::<Vec<Packet>>(port.poll());
            assert!(port.poll().is_empty());
        }
    });
}

#[test]
fn a_moved_and_renamed_interface_stays_the_ports() {
    in_namespace(|| {
        let mut port = open(TapKind::Tun, "pt0");
        configure("pt0", 1, 1);
        let features = port.driver.capabilities().rx;
        assert_udp_train(&mut port, features, "at home");
        let elsewhere = Namespace::fresh();
        world::move_to("pt0", &elsewhere);
        assert_eq!(world::interface_index("pt0"), None);
        assert_eq!(port.driver.link(), Link::Down);
        // Another interface of the same name here must not be mistaken for the port's.
        let decoy = open(TapKind::Tun, "pt0");
        set_up("pt0", true);
        assert_eq!(port.driver.link(), Link::Down);
        drop(decoy);
        elsewhere.run(|| {
            world::rename("pt0", "moved0");
            configure("moved0", 1, 1);
        });
        assert_eq!(port.driver.link(), Link::Up);
        let before = port.device_counters();
        let seen = port.rx[0].counters().snapshot();
        let _socket = elsewhere.run(send_udp_train);
        let packets = port.wait_for(Transport::Udp, 1);
        assert_eq!(
            packets[0].meta().wire_packets > 1,
            features.contains(Features::USO)
        );
        port.send(Train::udp(100, 0).packet(&port, None, 2000));
        let counted = port.device_counters().since(&before);
        assert_eq!((counted.rx_packets, counted.rx_bytes), (1, 128));
        let now = port.rx[0].counters().snapshot();
        assert_eq!(counted.tx_packets, now.packets - seen.packets);
        assert_eq!(counted.tx_bytes, now.bytes - seen.bytes);
        port.assert_clean("moved");

        // The interface is removed in its present namespace. (It would be removed with the
        // namespace too, but the kernel decides when that ends: after seconds or minutes.)
        elsewhere.run(|| world::delete("moved0"));
        assert_removed(&mut port);
    });
}

fn assert_removed(port: &mut Port) {
    assert_eq!(port.driver.link(), Link::Removed);
    assert!(port.driver.device_counters().is_none());
    let mut burst = Burst::new();
    let received = port.rx[0].poll(Instant::default(), &mut burst, 64);
    assert!(
        matches!(received, Err(DeviceError::Removed)),
        "{received:?}"
    );
    let mac = (port.link == LinkType::Ethernet).then_some([2; 6]);
    burst
        .push(Train::udp(100, 0).packet(port, mac, 2000))
        .expect("room");
    let sent = port.tx[0].transmit(&mut burst);
    assert!(matches!(sent, Err(DeviceError::Removed)), "{sent:?}");
    assert_eq!(port.tx[0].held(), 1, "the packet is still accounted for");
}

#[test]
fn a_deleted_interface_is_gone_on_both_halves() {
    in_namespace(|| {
        for kind in [TapKind::Tun, TapKind::Tap] {
            let mut port = open(kind, "pt0");
            configure("pt0", 1, 1);
            assert_eq!(port.driver.link(), Link::Up, "{kind:?}");
            world::delete("pt0");
            assert_removed(&mut port);
        }
    });
}

#[test]
fn arming_says_whether_packets_are_waiting() {
    in_namespace(|| {
        use packtrain::driver::Armed;
        let mut port = open(TapKind::Tun, "pt0");
        configure("pt0", 1, 1);
        assert_eq!(port.rx[0].arm(), Armed::WorkPending, "not polled yet");
        while !port.poll().is_empty() {}
        assert_eq!(port.rx[0].arm(), Armed::Idle);
        let _socket = send_udp_train();
        let _other = send_udp_train();
        let mut burst = Burst::new();
        while burst.is_empty() {
            let more = port.rx[0]
                .poll(Instant::default(), &mut burst, 1)
                .expect("it is there");
            assert_eq!(more, !burst.is_empty(), "the budget ended the poll");
        }
        assert_eq!(port.rx[0].arm(), Armed::WorkPending);
        let calls = port.rx[0].device_mut().syscalls();
        assert!(calls >= 2);
        assert_eq!(port.tx[0].device_mut().doorbells(), 0);
    });
}

/// Moves packets between two ports until `done`; returns how many GSO packets arrived from each.
fn forward(a: &mut Port, b: &mut Port, done: &AtomicBool) -> [u64; 2] {
    let mut bursts = [Burst::new(), Burst::new()];
    while !done.load(Ordering::Relaxed) {
        let mut moved = 0;
        let mut pass = |from: &mut Port, to: &mut Port, burst: &mut Burst| {
            from.rx[0]
                .poll(Instant::default(), burst, 64)
                .expect("it is there");
            moved += burst.len();
            to.tx[0].transmit(burst).expect("it is there");
        };
        pass(a, b, &mut bursts[0]);
        pass(b, a, &mut bursts[1]);
        if moved == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    [a, b].map(|port| port.rx[0].counters().snapshot().gso_packets)
}

fn send_and_check(from: &Namespace, to: &Namespace, address: &str) {
    const BYTES: usize = 1 << 20;
    let listener = to.run(|| TcpListener::bind(address).expect("an address"));
    let address = listener.local_addr().expect("bound");
    let receiver = std::thread::spawn(move || {
        let mut data = Vec::new();
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream.read_to_end(&mut data).expect("everything");
        data
    });
    let mut stream =
        from.run(|| TcpStream::connect_timeout(&address, TIMEOUT).expect("a connection"));
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    let sent = payload(BYTES);
    stream.write_all(&sent).expect("it takes everything");
    drop(stream);
    assert!(
        receiver.join().expect("no panic") == sent,
        "{address}: other bytes arrived"
    );
}

#[test]
fn kernel_tcp_passes_between_two_namespaces_with_any_offloads() {
    in_namespace(|| {
        let (home, away) = (Namespace::current(), Namespace::fresh());
        let tso = CSUM | Features::TSO;
        let combinations = [
            (Features::ALL, Features::ALL, RxBuffers::Whole),
            (Features::ALL, Features::ALL, RxBuffers::PIECES),
            (Features::ALL, Features::NONE, RxBuffers::Whole),
            (Features::NONE, tso, RxBuffers::PIECES),
            (CSUM, tso, RxBuffers::Whole),
            (Features::NONE, Features::NONE, RxBuffers::Whole),
        ];
        for kind in [TapKind::Tun, TapKind::Tap] {
            for (offload_a, offload_b, buffers) in combinations {
                let context = format!("{kind:?} {offload_a:?} {offload_b:?} {buffers:?}");
                let arena = Arena::new(ArenaConfig::default()).expect("memory");
                let mut a = open_in(kind, "pt0", offload_a, buffers, &arena);
                let mut b = away.run(|| open_in(kind, "pt1", offload_b, buffers, &arena));
                configure("pt0", 1, 1);
                away.run(|| configure("pt1", 1, 2));
                let done = AtomicBool::new(false);
                let gso = std::thread::scope(|scope| {
                    let forwarder = scope.spawn(|| forward(&mut a, &mut b, &done));
                    let ends = scope.spawn(|| {
                        send_and_check(&home, &away, "198.18.1.2:0");
                        send_and_check(&away, &home, "198.18.1.1:0");
                        let v6 = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2);
                        send_and_check(&home, &away, &format!("[{v6}]:0"));
                    });
                    let ends = ends.join();
                    done.store(true, Ordering::Relaxed);
                    let gso = forwarder.join().expect("the forwarder");
                    ends.unwrap_or_else(|_| panic!("{context}"));
                    gso
                });
                for (gso, offload) in gso.into_iter().zip([offload_a, offload_b]) {
                    assert_eq!(gso > 0, offload.contains(Features::TSO), "{context}: {gso}");
                }
                assert_accounts(&mut a, &context);
                assert_accounts(&mut b, &context);
            }
        }
    });
}

/// 60,042 bytes are 117 pieces of 512 bytes and a rest. Three and the rest fit a frame, so 39
/// segments remain.
#[test]
fn packets_in_short_pieces_are_merged_copied_or_dropped() {
    const DATAGRAMS: u64 = 20;
    in_namespace(|| {
        let (home, away) = (Namespace::current(), Namespace::fresh());
        for (keys, expected) in [
            ("segs=39", [DATAGRAMS, 0, 0, 0]),
            ("segs=38", [0, DATAGRAMS, DATAGRAMS, 0]),
            ("segs=38,fit=collapse", [0, DATAGRAMS, 0, 0]),
        ] {
            let open = |text: String| packtrain::port::open(&text).expect("a TAP");
            let a = open("tap:pt0,rx=pieces(512)".to_owned());
            let b = away.run(|| open(format!("tap:pt1,{keys}")));
            let session = Session::between(a, b).start().expect("a run");
            for (namespace, name, host) in [(&home, "pt0", 1), (&away, "pt1", 2)] {
                namespace.run(|| {
                    configure(name, 1, host);
                    world::set_mtu(name, 65_521);
                });
            }
            let receiver = away.run(|| UdpSocket::bind("198.18.1.2:9").expect("an address"));
            receiver.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
            let sender = UdpSocket::bind("198.18.1.1:0").expect("an address");
            let (sent, mut got) = (payload(60_000), vec![0; 65_536]);
            let counts = || {
                let counters = session.snapshot().ports[1].tx_total();
                let collapse = [counters.collapse, counters.collapse_failed];
                let defrag = [counters.defrag, counters.defrag_failed];
                [collapse, defrag].concat()
            };
            for datagram in 1..=DATAGRAMS {
                sender.send_to(&sent, "198.18.1.2:9").expect("a route");
                world::wait_until(keys, || counts()[..2].iter().sum::<u64>() == datagram);
                if expected[0] + expected[2] > 0 {
                    let bytes = receiver.recv(&mut got).expect("a datagram");
                    assert!(got[..bytes] == sent, "{keys}: {bytes} other bytes arrived");
                }
            }
            assert_eq!(counts(), expected, "{keys}");
            session.stop();
            let snapshot = session.finish().into_result().expect("no failure");
            assert!(snapshot.ledger.closed(), "{keys}: {:?}", snapshot.ledger);
            let dropped = snapshot.drops.get(DropReason::TooManySegments);
            let lost = expected[1] - expected[2];
            assert_eq!(dropped, lost, "{keys}");
        }
    });
}

/// Checks that our counters and the kernel's agree, packet by packet and byte by byte.
fn assert_accounts(port: &mut Port, context: &str) {
    drop::<Vec<Packet>>(port.poll());
    let (rx, tx) = (
        port.rx[0].counters().snapshot(),
        port.tx[0].counters().snapshot(),
    );
    let kernel = port.device_counters();
    assert_eq!(
        (kernel.tx_packets, kernel.tx_bytes),
        (rx.packets, rx.bytes),
        "{context}"
    );
    assert_eq!(
        (kernel.rx_packets, kernel.rx_bytes),
        (tx.packets, tx.bytes),
        "{context}"
    );
    assert_eq!(rx.bad_packets, 0, "{context}");
    assert_eq!(kernel.rx_errors + kernel.tx_errors, 0, "{context}");
    port.assert_clean(context);
}
