//! The port of AF_XDP sockets, at one end of a veth pair. The other end is the kernel's, or a
//! packet socket of the test.

use super::{payload, why_not};
use crate::line::{Line, within};
use crate::packet::{
    ETHERTYPE, FAR, HEADER_BYTES, MAC_NEAR, NEAR, assert_gone_when_deleted, frame, number_of,
    numbers, renew_mtu, send, veth,
};
use crate::traffic::{Port, Train, contents};
use crate::world::{
    self, Namespace, PacketSocket, TIMEOUT, configure, hardware_address, in_namespace, wait_until,
};
use packtrain::driver::{
    Armed, Attach, DeviceError, Driver, Features, Link, RxBuffers, RxDescriptors, TxDescriptors,
    TxMemory,
};
use packtrain::engine::Session;
use packtrain::packet::{Arena, ArenaConfig, Burst, FrameClass, Packet};
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::port::xdp::{XdpConfig, XdpMode, XdpSocket};
use packtrain::port::{self, AnyPort, open_pair};
use packtrain::stats::DropReason;
use packtrain::time::{Clock, Instant, MonotonicClock};
use packtrain_offload::offload::ChecksumState;
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};

/// Few enough that the arena of a test has frames left.
const RINGS: usize = 256;

fn near() -> XdpConfig {
    XdpConfig {
        mode: XdpMode::Copy,
        rings: Some(RINGS),
        ..XdpConfig::new(NEAR)
    }
}

/// The port, or why this machine has none: in a user namespace no program can be loaded.
fn try_open(config: &XdpConfig) -> Result<XdpSocket, Skip> {
    XdpSocket::open(config).map_err(|error| match &error {
        DeviceError::Failed { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Skip(error.to_string())
        }
        _ => panic!("{error}"),
    })
}

/// Runs `test` in a namespace with a veth pair, if it may use AF_XDP.
fn with_veth(test: fn()) {
    veth();
    match try_open(&near()) {
        Ok(port) => drop(port),
        Err(skip) => {
            println!("SKIP: AF_XDP: {skip}");
            return;
        }
    }
    test();
}

fn open_port(config: &XdpConfig) -> XdpSocket {
    XdpSocket::open(config).unwrap_or_else(|error| panic!("{error}"))
}

fn open_near() -> Port<XdpSocket> {
    Port::attach(open_port(&near()), &Attach::default())
}

/// Gives the kernel's end 198.18.1.1 and fd00:1::1.
fn configure_far() {
    let switch = format!("/proc/sys/net/ipv6/conf/{FAR}/disable_ipv6");
    std::fs::write(switch, "0").expect("IPv6 again");
    configure(FAR, 1, 1);
}

/// The next frames that arrive at the other end, without their headers.
fn arrived(far: &PacketSocket, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    wait_until("frames arrive", || {
        while let Some((bytes, _)) = far.receive() {
            got.push(bytes[HEADER_BYTES..].to_vec());
        }
        got.len() >= count
    });
    got
}

mod conforms {
    use super::*;

    /// The interface has counted the frames that showed that it is connected.
    const COUNTS_EXACTLY: bool = false;

    /// GSO packets are injected by the tests of hosts: XDP has none, so the kernel cuts them.
    fn line(config: &XdpConfig) -> Result<Line<XdpSocket>, Skip> {
        veth();
        let port = try_open(config)?;
        let line = Line::on(port, PacketSocket::open(FAR), COUNTS_EXACTLY);
        Ok(line.injecting(Features::CSUM))
    }

    fn copy() -> Result<Line<XdpSocket>, Skip> {
        line(&near())
    }

    fn generic() -> Result<Line<XdpSocket>, Skip> {
        line(&XdpConfig {
            mode: XdpMode::Generic,
            ..near()
        })
    }

    fn no_offload() -> Result<Line<XdpSocket>, Skip> {
        line(&XdpConfig {
            offload: Features::NONE,
            ..near()
        })
    }

    /// As a program opens it: from its spec, in the closed set of ports.
    fn from_spec() -> Result<Line<AnyPort>, Skip> {
        drop(line(&near())?);
        let port = port::open(&format!("xdp:{NEAR},rings=256")).expect("it opens");
        assert!(matches!(port.driver, AnyPort::Xdp(_)));
        let line = Line::on(port.driver, PacketSocket::open(FAR), COUNTS_EXACTLY);
        Ok(line.injecting(Features::CSUM))
    }

    /// As an embedder opens it, with a program of its own.
    fn of_given() -> Result<Line<XdpSocket>, Skip> {
        veth();
        drop(try_open(&near())?);
        let (sockets, map, link) = given(1, 1);
        let port = XdpSocket::from_fds(sockets, map, &near()).expect("it opens");
        let line = Line::on(port, PacketSocket::open(FAR), COUNTS_EXACTLY);
        Ok(line.injecting(Features::CSUM).keeping(link))
    }

    driver_conformance!(xdp, |_| copy(), within);
    driver_conformance!(xdp_generic, |_| generic(), within);
    driver_conformance!(xdp_off, |_| no_offload(), within);
    driver_conformance!(xdp_given, |_| of_given(), within);
    driver_conformance!(any_xdp, |_| from_spec(), within);
}

#[test]
fn frames_pass_both_ways_and_are_counted_as_the_kernel_does() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            let before = port.device_counters();
            for number in 0..600 {
                send(&far, &frame(MAC_NEAR, 1, number, 60 + number as usize));
                assert_eq!(numbers(&mut port, 1), [number]);
                let sent = frame([2; 6], 2, number, 60 + number as usize);
                let packet = port.arena.packet_from(&sent).expect("memory");
                port.send(packet);
                assert!(arrived(&far, 1) == [sent]);
            }
            let counted = port.device_counters().since(&before);
            assert_eq!((counted.rx_packets, counted.tx_packets), (600, 600));
            let (rx, tx) = (port.rx[0].counters(), port.tx[0].counters());
            // A veth counts what its XDP program gets without Ethernet headers.
            assert_eq!(rx.snapshot().bytes, counted.tx_bytes + 600 * 14);
            assert_eq!(tx.snapshot().bytes, counted.rx_bytes);
            port.assert_clean("both ways");
        });
    });
}

#[test]
fn an_interface_that_cannot_be_had_is_refused_in_words() {
    in_namespace(|| {
        with_veth(|| {
            let open = |name: &str| XdpSocket::open(&XdpConfig::new(name));
            let line = why_not(open("gone0"));
            assert!(line.contains("no interface gone0"), "{line}");
            let line = why_not(open("lo"));
            assert!(line.contains("xdp: sends by it"), "{line}");
            let with = |config| why_not(XdpSocket::open(&config));
            let line = with(XdpConfig {
                queues: Some(9),
                ..near()
            });
            assert!(line.contains("9 queues for near0"), "{line}");
            let line = with(XdpConfig {
                rings: Some(1000),
                ..near()
            });
            assert!(line.contains("powers of two"), "{line}");
            let _first = open_port(&near());
            let line = with(near());
            // This process holds it.
            let own = format!(" (process {}): end that process", std::process::id());
            assert!(
                line.contains("near0 has the XDP program of ") && line.contains(&own),
                "{line}"
            );
            let generic = with(XdpConfig {
                mode: XdpMode::Generic,
                ..near()
            });
            assert_eq!(generic, line);
            let ports = ["xdp:far0", "packet:far0"].map(|text| text.parse().expect("a spec"));
            let [a, b] = open_pair(&ports[0], &ports[1]).expect("they open");
            let error = Session::between(a, b).plan().expect_err("one interface");
            assert!(error.to_string().contains("both ports are"), "{error}");
        });
    });
}

#[test]
fn the_mode_and_why_it_is_no_better_one_are_said() {
    in_namespace(|| {
        with_veth(|| {
            let mode = |mode| XdpSocket::open(&XdpConfig { mode, ..near() });
            let line = why_not(mode(XdpMode::ZeroCopy));
            assert!(
                line.contains("near0 has no zero-copy mode (Operation not supported")
                    && line.contains("use mode=auto"),
                "{line}"
            );
            let notes = |port: &XdpSocket| port.capabilities().notes;
            let auto = mode(XdpMode::Auto).expect("it opens");
            let said = notes(&auto);
            assert!(
                said[0].starts_with("packets come in copy mode: "),
                "{said:?}"
            );
            drop(auto);
            for asked in [XdpMode::Copy, XdpMode::Generic] {
                let port = mode(asked).expect("it opens");
                let said = notes(&port);
                assert!(said[0].contains("txvlan off"), "{said:?}");
                let large = said.get(1).map(|note| note.contains("tso off gso off"));
                assert_eq!(
                    large,
                    (asked == XdpMode::Generic).then_some(true),
                    "{said:?}"
                );
                assert!(said.len() <= 2, "{said:?}");
                let capabilities = port.capabilities();
                assert_eq!(capabilities.tx_memory, TxMemory::SmallFrames);
                assert_eq!(capabilities.tx_ring, Some(RINGS));
            }
            // Without the right to load a program, packet sockets are left.
            let open = || {
                world::drop_capabilities_but_raw();
                let port = port::open(&format!("xdp:{NEAR}")).expect("it opens");
                let strict = port::open(&format!("xdp:{NEAR},mode=copy"));
                (port, strict.map(drop).expect_err("no right").to_string())
            };
            let (port, strict) =
                std::thread::scope(|scope| scope.spawn(open).join().expect("no panic"));
            assert!(strict.contains("CAP_BPF"), "{strict}");
            assert!(matches!(port.driver, AnyPort::Packet(_)));
            let said = port.driver.capabilities().notes;
            assert!(
                said[0].starts_with("packets come by packet sockets, not AF_XDP: cannot "),
                "{said:?}"
            );
        });
    });
}

#[test]
fn long_frames_are_in_several_pieces() {
    in_namespace(|| {
        with_veth(|| {
            for name in [NEAR, FAR] {
                world::set_mtu(name, 9000);
            }
            let far = PacketSocket::open(FAR);
            for mode in [XdpMode::Copy, XdpMode::Generic] {
                let config = XdpConfig { mode, ..near() };
                let mut port = Port::attach(open_port(&config), &Attach::default());
                for bytes in [1792, 1793, 3584, 9014] {
                    let sent = frame(MAC_NEAR, 1, 7, bytes);
                    send(&far, &sent);
                    let mut packets = Vec::new();
                    wait_until("it arrives", || {
                        packets.extend(port.poll());
                        !packets.is_empty()
                    });
                    assert!(contents(&packets[0]) == sent, "{mode:?}, {bytes} bytes");
                    assert!(packets[0].in_small_frames());
                    assert_eq!(
                        packets[0].segment_count(),
                        bytes.div_ceil(1792),
                        "{bytes} bytes"
                    );
                    // Back in the same pieces.
                    port.send(packets.remove(0));
                    assert!(arrived(&far, 1) == [sent], "{mode:?}, {bytes} bytes");
                }
                port.assert_clean("long frames");
            }
        });
    });
}

#[test]
fn what_the_ring_has_no_room_for_is_counted() {
    const FRAMES: u32 = 2000;
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            for number in 0..FRAMES {
                send(&far, &frame(MAC_NEAR, 1, number, 1000));
            }
            let (mut got, mut last) = (0, FRAMES);
            wait_until("all are accounted for", || {
                for packet in port.poll() {
                    let number = number_of(&packet).expect("one of ours");
                    assert!(last == FRAMES || number > last, "{number} after {last}");
                    (got, last) = (got + 1, number);
                }
                // As before a sleep.
                let armed = port.rx[0].arm();
                let lost = port.dropped(DropReason::SocketFull);
                assert!(got + lost <= u64::from(FRAMES), "{got} and {lost}");
                got + lost == u64::from(FRAMES) && armed == Armed::Idle
            });
            assert!(port.dropped(DropReason::SocketFull) > 0 && got > 0);
            // And it goes on.
            send(&far, &frame(MAC_NEAR, 1, 7, 60));
            assert_eq!(numbers(&mut port, 1), [7]);
        });
    });
}

#[test]
fn packets_of_queues_that_are_not_opened_go_to_the_kernel() {
    const FRAMES: u32 = 200;
    in_namespace(|| {
        with_veth(|| {
            for name in [NEAR, FAR] {
                world::set_channels(name, 2, 2);
            }
            assert_eq!(open_port(&near()).queues(), 2);
            for text in ["mode=copy", "mode=copy,gone=wait"] {
                let port = port::open(&format!("xdp:{NEAR},{text}")).expect("it opens");
                assert_eq!(port.config.queues, Some(2), "{text}");
            }
            let far = PacketSocket::open(FAR);
            for queues in [1, 2] {
                let port = open_port(&XdpConfig {
                    queues: Some(queues),
                    ..near()
                });
                let notes = port.capabilities().notes;
                let said = notes
                    .iter()
                    .any(|note| note.contains("go to the kernel's stack"));
                assert_eq!(said, queues == 1, "{notes:?}");
                let how = Attach {
                    queues,
                    ..Attach::default()
                };
                let arena = Arena::new(ArenaConfig::default()).expect("memory");
                let mut port = Port::attach_in(port, &how, &arena);
                let stack = PacketSocket::open(NEAR);
                for flow in 0..FRAMES {
                    send(&far, &world::datagram(MAC_NEAR, flow as u16));
                }
                let (mut here, mut there) = (vec![0; queues], 0);
                wait_until("all arrive", || {
                    for packet in port.poll() {
                        here[usize::from(packet.meta().ingress.queue)] += 1;
                    }
                    while stack.receive().is_some() {
                        there += 1;
                    }
                    here.iter().sum::<u32>() + there >= FRAMES
                });
                assert!(here.iter().all(|count| *count > 0), "{here:?} and {there}");
                assert_eq!(there > 0, queues == 1, "{here:?} and {there}");
                port.assert_clean("several queues");
            }
        });
    });
}

/// Of a queue that only receives, the kernel would take packets to send, and send none.
#[test]
fn only_queues_that_also_send_are_opened() {
    in_namespace(|| {
        with_veth(|| {
            world::set_channels(FAR, 2, 2);
            world::set_channels(NEAR, 2, 1);
            let line = why_not(XdpSocket::open(&XdpConfig {
                queues: Some(2),
                ..near()
            }));
            assert!(
                line.contains("2 queues for near0, which has 1 that receive and send"),
                "{line}"
            );
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            assert_eq!(port.tx.len(), 1);
            let notes = port.driver.capabilities().notes;
            assert!(
                notes.iter().any(|note| note.starts_with("1 of 2 queues")),
                "{notes:?}"
            );
            for number in 0..600 {
                let packet = port.arena.packet_from(&frame([2; 6], 1, number, 60));
                port.send_all(packet.expect("memory"));
            }
            arrived(&far, 600);
            port.assert_clean("one queue");
        });
    });
}

/// The kernel's receiver takes only datagrams with right checksums.
#[test]
fn checksums_are_left_to_the_kernel() {
    in_namespace(|| {
        with_veth(|| {
            configure_far();
            for offload in [Features::ALL, Features::NONE] {
                let port = open_port(&XdpConfig { offload, ..near() });
                let mut port = Port::attach(port, &Attach::default());
                let leaves = port.driver.capabilities().tx.contains(Features::CSUM);
                assert_eq!(leaves, !offload.is_empty());
                for (ipv6, address) in [(false, "198.18.1.1:9"), (true, "[fd00:1::1]:9")] {
                    let socket = UdpSocket::bind(address).expect("an address");
                    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
                    let mut train = Train::udp(1000, 0);
                    train.ipv6 = ipv6;
                    let whole = train.packet(&port, Some(hardware_address(FAR)), 1400);
                    // Alone; with a clone, whose frames are shared; with headers of their own.
                    let clone = whole.try_clone().expect("a line");
                    let split = train.packet(&port, Some(hardware_address(FAR)), 30);
                    let short = Train::udp(300, 0);
                    let short = Train { ipv6, ..short };
                    let short = short.packet(&port, Some(hardware_address(FAR)), 40);
                    for packet in [whole, clone, split, short] {
                        let expected = packet.bytes() - if ipv6 { 62 } else { 42 };
                        port.send_all(packet);
                        let mut datagram = [0; 2000];
                        let got = socket.recv(&mut datagram).expect("a datagram");
                        assert!(datagram[..got] == payload(expected), "IPv6 {ipv6}");
                    }
                }
                let sent = port.tx[0].counters().snapshot();
                let expected = if leaves { (8, 0) } else { (0, 8) };
                assert_eq!((sent.needs_csum, sent.csum_sw), expected);
                port.assert_clean("checksums");
            }
        });
    });
}

/// What the kernel's TCP and UDP leave to a veth is known again, and completed for the next port.
#[test]
fn checksums_that_the_kernel_left_unfinished_are_found() {
    in_namespace(|| {
        with_veth(|| {
            configure_far();
            world::add_neighbour(FAR, 1, 2, MAC_NEAR);
            let socket = UdpSocket::bind("198.18.1.1:0").expect("an address");
            let mut port = open_near();
            let mut tap = {
                let tap = Tap::open(&TapConfig {
                    offload: Features::NONE,
                    ..TapConfig::new(TapKind::Tap, "tap0")
                });
                Port::attach_in(tap.expect("it opens"), &Attach::default(), &port.arena)
            };
            configure("tap0", 2, 1);
            for is_finished in [false, true] {
                let feature = "tx-checksum-ip-generic";
                assert!(world::set_feature(FAR, feature, !is_finished), "{feature}");
                socket
                    .send_to(&payload(700), "198.18.1.2:9")
                    .expect("a route");
                let packets = port.wait_for(packtrain_offload::layout::Transport::Udp, 1);
                let checksum = packets[0].meta().checksum;
                let partial = ChecksumState::Partial {
                    start: 34,
                    offset: 6,
                };
                let expected = if is_finished {
                    ChecksumState::None
                } else {
                    partial
                };
                assert_eq!(checksum, expected);
                let wire = PacketSocket::open("tap0");
                for packet in packets {
                    tap.send(packet);
                }
                let mut got = Vec::new();
                wait_until("it arrives", || {
                    got.extend(wire.receive());
                    !got.is_empty()
                });
                let bytes = &got[0].0[HEADER_BYTES..];
                let packet = tap.arena.packet_from(bytes).expect("memory");
                let layout = packtrain_offload::layout::Layout::parse(
                    tap.link,
                    packet.first(),
                    bytes.len() as u32,
                );
                let verdict = packtrain_offload::verify::verify_transport(
                    packet.first(),
                    &layout.expect("it parses"),
                );
                assert!(verdict.is_valid(), "finished {is_finished}: {verdict:?}");
            }
            port.assert_clean("checksums");
        });
    });
}

/// Also where another driver passes them on, in generic mode.
#[test]
fn unfinished_checksums_of_a_bridge_are_found() {
    const BRIDGE: &str = "bridge0";
    in_namespace(|| {
        with_veth(|| {
            if let Err(error) = world::create_bridge(BRIDGE) {
                println!("SKIP: no bridge here: {error}");
                return;
            }
            world::add_to_bridge(BRIDGE, NEAR);
            world::set_up(BRIDGE, true);
            configure_far();
            world::add_neighbour(FAR, 1, 2, hardware_address(BRIDGE));
            let port = open_port(&XdpConfig {
                mode: XdpMode::Generic,
                ..XdpConfig {
                    rings: Some(RINGS),
                    ..XdpConfig::new(BRIDGE)
                }
            });
            assert!(port.capabilities().rx.contains(Features::CSUM));
            let mut port = Port::attach(port, &Attach::default());
            let socket = UdpSocket::bind("198.18.1.1:0").expect("an address");
            let sent = socket.send_to(&payload(700), "198.18.1.2:9");
            assert_eq!(sent.expect("a route"), 700);
            let packets = port.wait_for(packtrain_offload::layout::Transport::Udp, 1);
            let expected = ChecksumState::Partial {
                start: 34,
                offset: 6,
            };
            assert_eq!(packets[0].meta().checksum, expected);
        });
    });
}

#[test]
fn packets_of_any_memory_and_form_are_sent() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            let bytes = frame([2; 6], 1, 5, 1514);
            let in_pieces = |class, length: usize| {
                let mut packet = port.arena.empty_packet().expect("a line");
                for chunk in bytes.chunks(length) {
                    packet.add_frame(class).expect("a frame");
                    packet.tailroom_mut()[..chunk.len()].copy_from_slice(chunk);
                    packet.grow(chunk.len()).expect("room");
                }
                packet
            };
            let mut at_the_start = in_pieces(FrameClass::Small, 1514);
            at_the_start.prepend(256).expect("headroom").fill(0);
            at_the_start.truncate(1514);
            let expected = contents(&at_the_start);
            let packets = [
                (in_pieces(FrameClass::Small, 100), bytes.clone()),
                (in_pieces(FrameClass::Small, 50), bytes.clone()),
                (in_pieces(FrameClass::Large, 2000), bytes.clone()),
                (at_the_start, expected),
            ];
            for (packet, expected) in packets {
                let clone = packet.try_clone().expect("a line");
                port.send_all(packet);
                port.send_all(clone);
                assert!(arrived(&far, 2) == [expected.clone(), expected]);
            }
            port.assert_clean("forms");
        });
    });
}

#[test]
fn a_packet_that_is_too_long_costs_only_itself() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            for (number, bytes) in [(1, 1515), (2, 1514), (3, 1600)] {
                let packet = port.arena.packet_from(&frame([2; 6], 1, number, bytes));
                port.send_all(packet.expect("memory"));
            }
            assert_eq!(port.dropped(DropReason::Mtu), 2);
            assert_eq!(arrived(&far, 1)[0][17], 2);
            // A change is noticed.
            for name in [NEAR, FAR] {
                world::set_mtu(name, 1700);
            }
            renew_mtu(&mut port, 1);
            let packet = port.arena.packet_from(&frame([2; 6], 1, 4, 1600));
            port.send_all(packet.expect("memory"));
            assert_eq!(arrived(&far, 1)[0][17], 4);
        });
    });
}

#[test]
fn promiscuous_mode_and_the_program_last_as_long_as_the_port() {
    in_namespace(|| {
        with_veth(|| {
            for promiscuous in [true, false] {
                let port = open_port(&XdpConfig {
                    promiscuous,
                    ..near()
                });
                let port = Port::attach(port, &Attach::default());
                assert_eq!(world::promiscuity(NEAR), u32::from(promiscuous));
                assert!(world::has_xdp_program(NEAR));
                drop(port);
                assert!(!world::has_xdp_program(NEAR));
            }
            assert_eq!(world::promiscuity(NEAR), 0);
        });
    });
}

#[test]
fn a_link_that_is_down_costs_packets_and_comes_back() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            assert_eq!(port.driver.link(), Link::Up);
            let mut number = 10;
            // Of the other end: this one has no carrier then, and the kernel would drop its packets
            // and say that it has sent them.
            for (round, name) in (1..).zip([NEAR, FAR]) {
                world::set_up(name, false);
                wait_until("it is down", || port.driver.link() == Link::Down);
                let sent = port.tx[0].counters().snapshot().packets;
                assert!(port.poll().is_empty());
                for number in 0..3 {
                    let packet = port.arena.packet_from(&frame([2; 6], 1, number, 60));
                    port.send_all(packet.expect("memory"));
                }
                assert_eq!(port.dropped(DropReason::LinkDown), 3 * round, "{name}");
                assert_eq!(port.tx[0].counters().snapshot().packets, sent, "{name}");
                assert!(port.tx[0].device_mut().is_blocked());
                world::set_up(name, true);
                wait_until("it is up", || port.driver.link() == Link::Up);
                wait_until("frames pass again", || {
                    number += 1;
                    let packet = port.arena.packet_from(&frame([2; 6], 1, number, 60));
                    port.send_all(packet.expect("memory"));
                    let bytes = [&[0; HEADER_BYTES][..], &frame(MAC_NEAR, 1, number, 60)].concat();
                    // Until the other end is up, the kernel refuses it.
                    far.send(ETHERTYPE, &bytes).unwrap_or(());
                    let received = port.poll().iter().any(|packet| number_of(packet).is_some());
                    received && far.receive().is_some()
                });
                assert_eq!(port.dropped(DropReason::LinkDown), 3 * round, "{name}");
                // What was sent and not looked at.
                while far.receive().is_some() {}
                port.poll();
            }
        });
    });
}

/// Without a carrier the kernel completes packets that it drops, and does not show that it has read
/// their descriptors. Nothing is lost unseen, and the ring works again.
#[test]
fn a_completion_is_no_room_in_the_ring() {
    in_namespace(|| {
        with_veth(|| {
            let mut port = open_near();
            world::set_up(FAR, false);
            // Without a look at the link, which happens ten times a second.
            for train in 0..8 {
                let mut burst = Burst::new();
                for number in 0..64 {
                    let packet = port
                        .arena
                        .packet_from(&frame([2; 6], 1, train, 60 + number));
                    burst.push(packet.expect("memory")).expect("room");
                }
                port.tx[0]
                    .transmit(&mut burst)
                    .expect("the device is there");
            }
            world::set_up(FAR, true);
            let clock = MonotonicClock::default();
            wait_until("it is empty", || {
                port.tx[0]
                    .service(clock.now())
                    .expect("the device is there");
                port.tx[0].in_flight() == 0
            });
            let counters = port.tx[0].counters().snapshot();
            assert_eq!(counters.reclaimed, counters.packets);
            assert_eq!(counters.bad_completions + counters.lost_completions, 0);
            let far = PacketSocket::open(FAR);
            wait_until("frames pass again", || {
                // As an engine does: it looks at the link.
                port.tx[0]
                    .service(clock.now())
                    .expect("the device is there");
                let packet = port.arena.packet_from(&frame([2; 6], 1, 0, 60));
                port.send_all(packet.expect("memory"));
                far.receive().is_some()
            });
            while far.receive().is_some() {}
            for number in 0..RINGS as u32 + 10 {
                let packet = port.arena.packet_from(&frame([2; 6], 1, number, 60));
                port.send_all(packet.expect("memory"));
            }
            let all = (0..RINGS as u32 + 10).map(|number| frame([2; 6], 1, number, 60));
            assert_eq!(arrived(&far, all.len()), all.collect::<Vec<_>>());
        });
    });
}

/// The kernel sends what waits in the ring also when an event loop polls the socket, so that no
/// call of the port learns that the interface is up again.
#[test]
fn a_link_that_was_down_for_a_moment_carries_packets_again() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            let send = |port: &mut Port<XdpSocket>, number| {
                let packet = port.arena.packet_from(&frame([2; 6], 1, number, 60));
                port.send_all(packet.expect("memory"));
            };
            send(&mut port, 1);
            arrived(&far, 1);
            world::set_up(NEAR, false);
            for number in 2..5 {
                send(&mut port, number);
            }
            // The first one waits in the ring: it is how the port finds out.
            assert_eq!(port.dropped(DropReason::LinkDown), 2);
            world::set_up(NEAR, true);
            wait_until("it runs", || {
                world::flags(NEAR).is_some_and(|flags| flags & libc::IFF_RUNNING != 0)
            });
            let (fd, _) = port.rx[0].wake().expect("it has a descriptor");
            world::poll_once(fd);
            assert_eq!(arrived(&far, 1), [frame([2; 6], 1, 2, 60)]);
            for number in 5..8 {
                send(&mut port, number);
                assert_eq!(arrived(&far, 1), [frame([2; 6], 1, number, 60)]);
            }
            assert_eq!(port.dropped(DropReason::LinkDown), 2);
        });
    });
}

#[test]
fn a_deleted_interface_is_gone_on_both_halves() {
    in_namespace(|| with_veth(|| assert_gone_when_deleted(open_near())));
}

/// Sockets, the map of a program of another process, and what keeps it attached.
fn given(queues: usize, entries: u32) -> (Vec<OwnedFd>, OwnedFd, OwnedFd) {
    let map = world::bpf_map(world::MAP_XSK, entries).expect("a map");
    let link = world::attach_redirect(NEAR, &map).expect("a program");
    let sockets = (0..queues).map(|_| world::xdp_socket().expect("a socket"));
    (sockets.collect(), map, link)
}

/// All but what makes the descriptors is done without any privilege.
#[test]
fn given_sockets_and_a_given_map_need_no_privilege() {
    in_namespace(|| {
        with_veth(|| {
            for name in [NEAR, FAR] {
                world::set_channels(name, 2, 2);
            }
            let opened = open_port(&near()).capabilities();
            let far = PacketSocket::open(FAR);
            let (sockets, map, _link) = given(2, 4);
            let open = || {
                world::drop_capabilities();
                let port = XdpSocket::from_fds(sockets, map, &near()).expect("it opens");
                let has = port.capabilities();
                // What the kernel can is found without a socket that is bound.
                assert_eq!((has.tx, has.rx), (opened.tx, opened.rx));
                assert_eq!(has.tx_segments_max, opened.tx_segments_max);
                assert_eq!((has.queues_max, has.mtu), (2, opened.mtu));
                assert!(has.notes[0].contains("promisc on"), "{:?}", has.notes);
                let how = Attach {
                    queues: 2,
                    ..Attach::default()
                };
                let mut port = Port::attach(port, &how);
                assert_eq!(world::promiscuity(NEAR), 0);
                let before = port.device_counters().rx_packets;
                for number in 0..50 {
                    send(&far, &frame(MAC_NEAR, number as u8, number, 1000));
                    assert_eq!(numbers(&mut port, 1), [number]);
                    let sent = frame([2; 6], 2, number, 1000);
                    let packet = port.arena.packet_from(&sent).expect("memory");
                    port.send(packet);
                    assert!(arrived(&far, 1) == [sent]);
                }
                assert_eq!(port.driver.link(), Link::Up);
                assert_eq!(port.device_counters().rx_packets - before, 50);
                port.assert_clean("both ways");
                drop(port);
            };
            std::thread::scope(|scope| scope.spawn(open).join().expect("no panic"));
            assert!(world::has_xdp_program(NEAR), "it is not the port's");
        });
    });
}

/// The process that gave it may keep it open: what arrives later goes to the stack, and not into
/// frames that are free again.
#[test]
fn a_given_socket_that_stays_open_gets_no_packets_after_the_port() {
    in_namespace(|| {
        with_veth(|| {
            let (far, stack) = (PacketSocket::open(FAR), PacketSocket::open(NEAR));
            let (sockets, map, _link) = given(1, 1);
            let _kept = sockets[0].try_clone().expect("a descriptor");
            let port = XdpSocket::from_fds(sockets, map, &near()).expect("it opens");
            let mut port = Port::attach(port, &Attach::default());
            send(&far, &frame(MAC_NEAR, 1, 7, 60));
            assert_eq!(numbers(&mut port, 1), [7]);
            assert!(stack.receive().is_none());
            drop(port);
            send(&far, &frame(MAC_NEAR, 1, 8, 60));
            wait_until("the stack has it", || stack.receive().is_some());
        });
    });
}

#[test]
fn descriptors_that_cannot_be_used_are_refused_in_words() {
    in_namespace(|| {
        with_veth(|| {
            let (sockets, map, link) = given(1, 1);
            let socket = || vec![world::xdp_socket().expect("a socket")];
            let duplicate = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
            let refused = |sockets, map, config: &XdpConfig| {
                why_not(XdpSocket::from_fds(sockets, map, config))
            };
            let line = refused(vec![], duplicate(&map), &near());
            assert!(line.contains("0 queues for near0"), "{line}");
            let line = refused(socket(), duplicate(&map), &XdpConfig::new("gone0"));
            assert!(line.contains("no interface gone0"), "{line}");
            let nine = (0..9).flat_map(|_| socket()).collect();
            let line = refused(nine, duplicate(&map), &near());
            assert!(line.contains("9 queues for near0"), "{line}");
            let udp = UdpSocket::bind("0.0.0.0:0").expect("a port");
            let line = refused(vec![udp.into()], duplicate(&map), &near());
            assert!(line.contains("no AF_XDP socket"), "{line}");
            let file = std::fs::File::open("/dev/null").expect("it is there");
            let line = refused(vec![file.into()], duplicate(&map), &near());
            assert!(line.contains("no AF_XDP socket"), "{line}");
            let foreign = Namespace::fresh().run(world::xdp_socket);
            let line = refused(vec![foreign.expect("a socket")], duplicate(&map), &near());
            assert!(line.contains("another network namespace"), "{line}");
            let numbers = world::bpf_map(world::MAP_ARRAY, 4).expect("a map");
            for other in [numbers, duplicate(&link), duplicate(&sockets[0])] {
                let line = refused(socket(), other, &near());
                assert!(line.contains("no XSKMAP with 1 entries"), "{line}");
            }
            let port = XdpSocket::from_fds(
                socket(),
                duplicate(&map),
                &XdpConfig {
                    mode: XdpMode::ZeroCopy,
                    ..near()
                },
            );
            let attached = port.expect("only a socket that is bound shows it").attach(
                &Attach::default(),
                &Arena::new(ArenaConfig::small()).expect("memory"),
            );
            let line = attached.expect_err("a veth").to_string();
            assert!(line.contains("near0 has no zero-copy mode"), "{line}");
            let again = vec![duplicate(&sockets[0])];
            let port = XdpSocket::from_fds(sockets, duplicate(&map), &near());
            let port = Port::attach(port.expect("it opens"), &Attach::default());
            let line = refused(again, duplicate(&map), &near());
            assert!(line.contains("has memory or is bound already"), "{line}");
            drop(port);
        });
    });
}

#[test]
fn given_descriptors_are_named_in_a_spec() {
    in_namespace(|| {
        with_veth(|| {
            let (sockets, map, _link) = given(1, 1);
            // The holder of the descriptor can use it for this interface only.
            world::tie_to_interface(&sockets[0], NEAR);
            let far = PacketSocket::open(FAR);
            let spec = format!(
                "xdp:{NEAR},fd={},map={},rings=256",
                sockets[0].as_raw_fd(),
                map.as_raw_fd()
            );
            let port = port::open(&spec).expect("it opens");
            assert_eq!(port.config.queues, Some(1));
            let mut port = Port::attach(port.driver, &Attach::default());
            send(&far, &frame(MAC_NEAR, 1, 7, 60));
            assert_eq!(numbers(&mut port, 1), [7]);
        });
    });
}

#[test]
fn busy_polling_passes_packets_and_is_refused_without_the_right() {
    in_namespace(|| {
        with_veth(|| {
            let config = XdpConfig {
                busy_poll: Some(32),
                ..near()
            };
            let far = PacketSocket::open(FAR);
            let mut port = Port::attach(open_port(&config), &Attach::default());
            for number in 0..100 {
                send(&far, &frame(MAC_NEAR, 1, number, 60));
                assert_eq!(numbers(&mut port, 1), [number]);
                let sent = frame([2; 6], 2, number, 60);
                let packet = port.arena.packet_from(&sent).expect("memory");
                port.send(packet);
                assert!(arrived(&far, 1) == [sent]);
            }
            port.assert_clean("busy polling");
            let before = port.rx[0].device_mut().syscalls();
            for _ in 0..10 {
                assert!(port.poll().is_empty());
            }
            assert!(port.rx[0].device_mut().syscalls() >= before + 10);
            drop(port);
            let many = XdpSocket::open(&XdpConfig {
                busy_poll: Some(65),
                ..near()
            });
            let line = why_not(many);
            assert!(line.contains("use 1 to 64"), "{line}");
            let (sockets, map, _link) = given(1, 1);
            let refused = || {
                world::drop_capabilities();
                let opened = XdpSocket::from_fds(sockets, map, &config);
                opened.expect_err("no right").to_string()
            };
            let line = std::thread::scope(|scope| scope.spawn(refused).join().expect("no panic"));
            assert!(line.contains("busy-poll= needs"), "{line}");
        });
    });
}

/// What arrives while the arena is empty is lost in the kernel, and is counted though no packet
/// comes.
#[test]
fn what_arrives_without_a_frame_is_counted() {
    const LOST: u64 = 20;
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let mut port = open_near();
            let mut kept = Vec::new();
            while let Ok(packet) = port.arena.packet(FrameClass::Small) {
                kept.push(packet);
            }
            let mut number = 0;
            let mut last = |port: &mut Port<XdpSocket>| {
                send(&far, &frame(MAC_NEAR, 1, number, 60));
                number += 1;
                port.poll()
            };
            let mut held = Vec::new();
            wait_until("the last frame is used", || {
                held.extend(last(&mut port));
                held.len() == RINGS
            });
            for _ in 0..LOST {
                assert!(last(&mut port).is_empty());
            }
            // A worker polls a queue that lacks frames again and again.
            let later = Instant::from_nanos(1_000_000_000);
            for _ in 0..2 {
                let polled = port.rx[0].poll(later, &mut Burst::new(), 64);
                polled.expect("the device is there");
            }
            assert!(port.dropped(DropReason::SocketFull) >= LOST);
            drop((kept, held));
            assert!(port.poll().is_empty());
            wait_until("frames arrive again", || !last(&mut port).is_empty());
        });
    });
}

/// A packet that was sent and is not complete keeps its frame, and a port that is dropped gives all
/// frames back.
#[test]
fn every_frame_comes_back() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let arena = Arena::new(ArenaConfig::small()).expect("memory");
            for order in 0..2 {
                let port = open_port(&near());
                let mut port = Port::attach_in(port, &Attach::default(), &arena);
                for number in 0..100 {
                    send(&far, &frame(MAC_NEAR, 1, number, 60));
                    let packet = port.arena.packet_from(&frame([2; 6], 1, number, 60));
                    port.send(packet.expect("memory"));
                }
                let received: Vec<Packet> = port.poll();
                assert!(!received.is_empty());
                // One half at a time.
                if order == 0 {
                    port.rx.clear();
                } else {
                    port.tx.clear();
                }
                drop(port);
                drop(received);
                let census = arena.census();
                assert_eq!((census.small_used, census.lines_used), (0, 0));
            }
        });
    });
}

#[test]
fn a_port_works_from_another_namespace() {
    in_namespace(|| {
        let away = Namespace::fresh();
        let opened = away.run(|| {
            veth();
            try_open(&near())
        });
        let Ok(mut port) = opened else {
            println!("SKIP: AF_XDP: {opened:?}");
            return;
        };
        assert_eq!(port.link(), Link::Up);
        assert_eq!(port.interface().expect("it is there").name.exact(), NEAR);
        let before = port.device_counters().expect("counters");
        let mut port = Port::attach(port, &Attach::default());
        let packet = port.arena.packet_from(&frame([2; 6], 1, 1, 60));
        port.send(packet.expect("memory"));
        let far = away.run(|| PacketSocket::open(FAR));
        send(&far, &frame(MAC_NEAR, 1, 7, 60));
        assert_eq!(numbers(&mut port, 1), [7]);
        let counted = port.device_counters().since(&before);
        assert_eq!((counted.rx_packets, counted.tx_packets), (1, 1));
    });
}

#[test]
fn shorter_pieces_are_received_as_well() {
    in_namespace(|| {
        with_veth(|| {
            let far = PacketSocket::open(FAR);
            let how = Attach {
                rx_buffers: RxBuffers::Pieces { bytes: 512 },
                ..Attach::default()
            };
            let mut port = Port::attach(open_port(&near()), &how);
            let sent = frame(MAC_NEAR, 1, 3, 1400);
            send(&far, &sent);
            let mut packets = Vec::new();
            wait_until("it arrives", || {
                packets.extend(port.poll());
                !packets.is_empty()
            });
            assert!(contents(&packets[0]) == sent);
            assert_eq!(packets[0].segment_count(), 3);
            assert!(port.rx[0].device_mut().syscalls() > 0);
        });
    });
}
