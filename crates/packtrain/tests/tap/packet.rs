//! The port of packet sockets, at one end of a veth pair. The other end is the kernel's, or a
//! packet socket of the test.

use super::{payload, why_not};
use crate::line::{Line, quiet, within};
use crate::traffic::{Port, Train, contents};
use crate::world::{
    self, Namespace, PacketSocket, TIMEOUT, configure, create_veth, hardware_address, in_namespace,
    wait_until, wait_until_connected,
};
use packtrain::driver::{
    Armed, Attach, DeviceError, Driver, Features, Link, RxBuffers, RxDescriptors, TxDescriptors,
};
use packtrain::engine::Session;
use packtrain::packet::{Arena, ArenaConfig, Burst, Packet, VlanTag};
use packtrain::port::packet::{PacketConfig, PacketSocket as PacketPort};
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::port::{self, AnyPort, open_pair};
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use packtrain_offload::offload::{ChecksumState, LinkType};
use packtrain_testkit::conformance::Skip;
use packtrain_testkit::driver_conformance;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::time::Duration;

/// The port's end, and the other one.
pub const NEAR: &str = "near0";
pub const FAR: &str = "far0";
/// Bytes of the virtio-net header of the test's socket.
pub const HEADER_BYTES: usize = 10;
pub const MAC_NEAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// For local experiments (IEEE 802).
pub const ETHERTYPE: u16 = 0x88b5;

/// Both ends, up, silent and connected.
pub fn veth() {
    if world::interface_index(NEAR).is_some() {
        // Of an earlier rig.
        world::delete(NEAR);
    }
    create_veth(NEAR, FAR);
    for name in [NEAR, FAR] {
        quiet(name);
        world::set_up(name, true);
    }
    wait_until_connected(&PacketSocket::open(FAR), &PacketSocket::open(NEAR));
}

fn open_port(config: &PacketConfig) -> PacketPort {
    PacketPort::open(config).expect("it opens")
}

fn open_near() -> Port<PacketPort> {
    Port::attach(open_port(&PacketConfig::new(NEAR)), &Attach::default())
}

/// A frame from `host` to `mac` with a number, in `bytes` bytes.
pub fn frame(mac: [u8; 6], host: u8, number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = [mac, [2, 0, 0, 0, 9, host]].concat();
    frame.extend(ETHERTYPE.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend(payload(bytes - frame.len()));
    frame
}

pub fn number_of(packet: &Packet) -> Option<u32> {
    let bytes = contents(packet);
    let is_ours = bytes.get(12..14) == Some(&ETHERTYPE.to_be_bytes());
    let number = bytes.get(14..18).filter(|_| is_ours)?;
    Some(u32::from_be_bytes(number.try_into().expect("four bytes")))
}

/// The frames of [`frame`] that arrive, once there are `count`.
pub fn numbers<D: Driver>(port: &mut Port<D>, count: usize) -> Vec<u32> {
    let mut found = Vec::new();
    wait_until("frames arrive", || {
        found.extend(port.poll().iter().filter_map(number_of));
        found.len() >= count
    });
    found
}

pub fn send(wire: &PacketSocket, bytes: &[u8]) {
    let header = [0; HEADER_BYTES];
    let ethertype = u16::from_be_bytes([bytes[12], bytes[13]]);
    let sent = wire.send(ethertype, &[&header, bytes].concat());
    sent.expect("the kernel sends it");
}

mod conforms {
    use super::*;

    /// The interface has counted the frames that showed that it is connected.
    const COUNTS_EXACTLY: bool = false;

    fn line(offload: Features) -> Result<Line<PacketPort>, Skip> {
        veth();
        let port = open_port(&PacketConfig {
            offload,
            ..PacketConfig::new(NEAR)
        });
        Ok(Line::on(port, PacketSocket::open(FAR), COUNTS_EXACTLY))
    }

    /// As a program opens it: from its spec, in the closed set of ports.
    fn from_spec() -> Result<Line<AnyPort>, Skip> {
        veth();
        let port = port::open(&format!("packet:{NEAR},qdisc=bypass")).expect("it opens");
        assert!(matches!(port.driver, AnyPort::Packet(_)));
        Ok(Line::on(
            port.driver,
            PacketSocket::open(FAR),
            COUNTS_EXACTLY,
        ))
    }

    fn given() -> Result<Line<PacketPort>, Skip> {
        veth();
        let port = PacketPort::from_fds(vec![raw_socket(None)], &PacketConfig::new(NEAR));
        let port = port.expect("it opens");
        Ok(Line::on(port, PacketSocket::open(FAR), COUNTS_EXACTLY))
    }

    driver_conformance!(packet, |_| line(Features::ALL), within);
    driver_conformance!(packet_off, |_| line(Features::NONE), within);
    driver_conformance!(packet_csum, |_| line(Features::CSUM), within);
    driver_conformance!(any_packet, |_| from_spec(), within);
    driver_conformance!(packet_given, |_| given(), within);
}

/// A socket as an embedder opens it, bound to an interface or not.
fn raw_socket(name: Option<&str>) -> OwnedFd {
    match name {
        Some(name) => PacketSocket::open(name).into_fd(),
        None => world::unbound_packet_socket(0),
    }
}

#[test]
fn an_interface_that_cannot_be_had_is_refused_in_words() {
    in_namespace(|| {
        let open = |name: &str| PacketPort::open(&PacketConfig::new(name));
        let line = why_not(open("gone0"));
        assert!(
            line.contains("no interface gone0") && line.contains("ip link"),
            "{line}"
        );
        let _tun = Tap::open(&TapConfig::new(TapKind::Tun, "tun0")).expect("it opens");
        let line = why_not(open("tun0"));
        assert!(line.contains("tun0 is no Ethernet interface"), "{line}");
        let line = why_not(open("lo"));
        assert!(line.contains("lo is a loopback interface"), "{line}");
        veth();
        let queues = PacketConfig {
            queues: 0,
            ..PacketConfig::new(NEAR)
        };
        let line = why_not(PacketPort::open(&queues));
        assert!(line.contains("use 1 to 256"), "{line}");
        let udp = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let line = why_not(PacketPort::from_fds(
            vec![udp.into()],
            &PacketConfig::new(NEAR),
        ));
        assert!(line.contains("no packet socket"), "{line}");
        let unbound = PacketPort::from_fds(vec![raw_socket(None)], &PacketConfig::new(""));
        assert!(why_not(unbound).contains("name the interface"));
        let sockets = vec![raw_socket(Some(NEAR)), raw_socket(Some(FAR))];
        let line = why_not(PacketPort::from_fds(sockets, &PacketConfig::new("")));
        assert!(line.contains("bound to far0"), "{line}");
        let with_ring = raw_socket(Some(NEAR));
        world::make_ring(&with_ring);
        let error = PacketPort::from_fds(vec![with_ring], &PacketConfig::new(""));
        let line = error.expect_err("it has a ring").to_string();
        assert!(line.contains("must have no ring"), "{line}");
        let asked = Attach {
            queues: 2,
            ..Attach::default()
        };
        let mut port = open_port(&PacketConfig::new(NEAR));
        let arena = Arena::new(ArenaConfig::small());
        let error = port
            .attach(&asked, &arena.expect("memory"))
            .expect_err("one is open");
        assert!(error.to_string().contains("2 queues for near0"), "{error}");
    });
}

#[test]
fn an_interface_is_not_joined_to_itself() {
    in_namespace(|| {
        veth();
        let ports = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| text.parse().expect("a spec"));
            open_pair(&a, &b).expect("they open")
        };
        let [a, b] = ports("packet:near0", "packet:near0");
        let error = Session::between(a, b).plan().expect_err("one interface");
        assert!(
            error
                .to_string()
                .contains("both ports are the interface near0"),
            "{error}"
        );
        let [a, b] = ports("packet:near0", "packet:far0");
        Session::between(a, b).plan().expect("two interfaces");
    });
}

#[test]
fn packets_of_the_host_itself_are_not_received() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        for queues in [1, 2] {
            let port = open_port(&PacketConfig {
                queues,
                ..PacketConfig::new(NEAR)
            });
            let how = Attach {
                queues,
                ..Attach::default()
            };
            let mut port = Port::attach(port, &how);
            // By the port, and by another program on the same interface.
            let own = port
                .arena
                .packet_from(&frame([2; 6], 1, 1, 60))
                .expect("memory");
            port.send(own);
            send(&PacketSocket::open(NEAR), &frame([2; 6], 1, 2, 60));
            send(&far, &frame(MAC_NEAR, 1, 3, 60));
            assert_eq!(numbers(&mut port, 1), [3], "{queues} queues");
            port.assert_clean("the host's own packets");
        }
    });
}

/// A frame for another host arrives only in promiscuous mode, which ends with the port.
#[test]
fn promiscuous_mode_lasts_as_long_as_the_port() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        for promiscuous in [true, false] {
            let port = open_port(&PacketConfig {
                promiscuous,
                ..PacketConfig::new(NEAR)
            });
            let mut port = Port::attach(port, &Attach::default());
            let other = [2, 0, 0, 0, 9, 9];
            send(&far, &frame(other, 1, 1, 60));
            send(&far, &frame(hardware_address(NEAR), 1, 2, 60));
            // The kernel marks packets for others and passes them to packet sockets all the same:
            // it is a network card that filters. A veth has no filter.
            assert_eq!(numbers(&mut port, 2), [1, 2]);
            assert_eq!(world::promiscuity(NEAR), u32::from(promiscuous));
        }
        assert_eq!(world::promiscuity(NEAR), 0, "it ends with the port");
    });
}

fn tagged(tags: &[VlanTag], number: u32) -> Vec<u8> {
    let mut bytes = frame(MAC_NEAR, 1, number, 100);
    let tags: Vec<u8> = tags
        .iter()
        .flat_map(|tag| [tag.protocol.to_be_bytes(), tag.control.to_be_bytes()].concat())
        .collect();
    bytes.splice(12..12, tags);
    bytes
}

#[test]
fn tags_come_beside_the_packet_and_go_into_it_again() {
    in_namespace(|| {
        veth();
        let tap = Tap::open(&TapConfig::new(TapKind::Tap, "tap0")).expect("it opens");
        let customer = VlanTag {
            protocol: 0x8100,
            control: 0x6064,
        };
        let service = VlanTag {
            protocol: 0x88a8,
            control: 0x2007,
        };
        let far = PacketSocket::open(FAR);
        let mut port = open_near();
        let mut tap = Port::attach_in(tap, &Attach::default(), &port.arena);
        quiet("tap0");
        world::set_up("tap0", true);
        let kernel = PacketSocket::open("tap0");
        for (number, tags) in [&[][..], &[customer], &[service], &[service, customer]]
            .into_iter()
            .enumerate()
        {
            let sent = tagged(tags, number as u32);
            send(&far, &sent);
            let mut packets = Vec::new();
            wait_until("a frame", || {
                packets.extend(port.poll());
                !packets.is_empty()
            });
            let packet = packets.remove(0);
            assert_eq!(packet.meta().vlan, tags.first().copied(), "{tags:?}");
            let beside = 4 * usize::from(!tags.is_empty());
            assert_eq!(packet.bytes(), sent.len() - beside, "{tags:?}");
            tap.send(packet);
            // That interface takes the outer tag off again, and says what it was.
            let mut got = None;
            wait_until("the frame", || {
                got = kernel.receive();
                got.is_some()
            });
            let (bytes, tag) = got.expect("it has arrived");
            let tag = tag.map(|[protocol, control]| VlanTag { protocol, control });
            assert_eq!(tag, tags.first().copied(), "{tags:?}");
            let mut expected = sent.clone();
            expected.drain(12..12 + beside);
            assert_eq!(bytes[HEADER_BYTES..], expected, "{tags:?}");
        }
        tap.assert_clean("tags");
    });
}

/// Linux counts the checksum's start without the tag that it took off. To Linux, the tag is in the
/// bytes, and counted.
#[test]
fn tagged_gso_packets_pass_with_their_offsets() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let mut port = open_near();
        let tag = VlanTag {
            protocol: 0x8100,
            control: 100,
        };
        for train in [
            Train::tcp(5000, 1000),
            Train::tcp(5000, 1000).ipv6(),
            Train::udp(5000, 1000),
        ] {
            let mut packet = train.packet(&port, Some([2; 6]), 1400);
            packet.meta_mut().vlan = Some(tag);
            let (bytes, start) = (contents(&packet), usize::from(partial_start(&packet)));
            port.send(packet);
            let mut got = None;
            wait_until("the packet", || {
                got = far.receive();
                got.is_some()
            });
            let (received, found) = got.expect("it has arrived");
            assert_eq!(found, Some([tag.protocol, tag.control]), "{train:?}");
            let (header, received) = received.split_at(HEADER_BYTES);
            assert!(received == bytes, "{train:?}");
            let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
            assert_eq!((header[0], word(4), word(6)), (1, 1000, start), "{train:?}");
            // And the same to the port.
            let mut sent = bytes.clone();
            sent.splice(12..12, [0x81, 0x00, 0, 100]);
            let mut shifted = header.to_vec();
            shifted[6..8].copy_from_slice(&(start as u16 + 4).to_ne_bytes());
            shifted[2..4].copy_from_slice(&(start as u16 + 4 + 20).to_ne_bytes());
            far.send(0x8100, &[shifted, sent].concat())
                .expect("it is sent");
            let mut packets = Vec::new();
            wait_until("the packet comes back", || {
                packets.extend(port.poll());
                !packets.is_empty()
            });
            let packet = packets.remove(0);
            let meta = packet.meta();
            assert_eq!(meta.vlan, Some(tag), "{train:?}");
            assert_eq!(
                meta.gso.map(|gso| (gso.kind, gso.size.get())),
                Some((train.kind(), 1000))
            );
            assert_eq!(usize::from(partial_start(&packet)), start, "{train:?}");
            assert!(contents(&packet) == bytes, "{train:?}");
        }
        port.assert_clean("tagged GSO packets");
    });
}

fn partial_start(packet: &Packet) -> u16 {
    match packet.meta().checksum {
        ChecksumState::Partial { start, .. } => start,
        other => panic!("a partial checksum, not {other:?}"),
    }
}

#[test]
fn what_the_socket_has_no_room_for_is_counted() {
    const FRAMES: u32 = 2000;
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let port = open_port(&PacketConfig {
            buffer: Some(65_536),
            ..PacketConfig::new(NEAR)
        });
        let mut port = Port::attach(port, &Attach::default());
        for number in 0..FRAMES {
            send(&far, &frame(MAC_NEAR, 1, number, 1000));
        }
        // The last packets arrive a little later on another CPU.
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
        let counted = port.rx[0].counters().snapshot();
        assert_eq!(counted.wire_packets, u64::from(FRAMES));
        assert_eq!(counted.packets, got);
    });
}

/// Else a worker would not sleep before there are frames again.
#[test]
fn a_port_without_frames_is_polled_as_seldom_as_an_idle_one() {
    in_namespace(|| {
        veth();
        let arena = Arena::new(ArenaConfig::small()).expect("memory");
        let held = Vec::from_iter(std::iter::from_fn(|| arena.packet_from(&[0; 60]).ok()));
        let how = Attach::default();
        let mut port = Port::attach_in(open_port(&PacketConfig::new(NEAR)), &how, &arena);
        send(&PacketSocket::open(FAR), &frame(MAC_NEAR, 1, 7, 60));
        let now = Instant::default().after(Duration::from_secs(5));
        let mut burst = Burst::new();
        port.rx[0].poll(now, &mut burst, 64).expect("it is there");
        assert!(burst.is_empty() && port.rx[0].is_short());
        let next = port.rx[0].next_at().expect("a time");
        assert!(next > now, "{next:?} is not after {now:?}");
        drop(held);
        assert_eq!(numbers(&mut port, 1), [7]);
    });
}

/// The same frame in the other direction: addresses and ports are swapped.
fn reversed(mut frame: Vec<u8>) -> Vec<u8> {
    for (one, other, bytes) in [(26, 30, 4), (34, 36, 2)] {
        for at in 0..bytes {
            frame.swap(one + at, other + at);
        }
    }
    frame
}

/// A datagram of the kernel to a host behind the port.
fn datagram(source: u16, bytes: usize, fragment: Option<(u16, bool)>) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    let transport = [source.to_be_bytes(), 9_u16.to_be_bytes()].concat();
    ip.extend((20 + bytes as u16).to_be_bytes());
    let (offset, more) = fragment.unwrap_or_default();
    let place = (offset / 8) | if more { 0x2000 } else { 0 };
    ip.extend(source.to_be_bytes());
    ip.extend(place.to_be_bytes());
    ip.extend([64, 17, 0, 0, 198, 18, 2, (source >> 8) as u8, 198, 18, 2, 1]);
    let sum = packtrain_offload::checksum::sum(&ip).finish().to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    let mut body = if offset == 0 {
        let all = fragment.map_or(bytes, |_| 2000);
        [transport, (all as u16).to_be_bytes().to_vec(), vec![0, 0]].concat()
    } else {
        Vec::new()
    };
    body.resize(bytes, 7);
    let mut frame = [MAC_NEAR, [2, 0, 0, 0, 9, 1]].concat();
    frame.extend([8, 0]);
    [frame, ip, body].concat()
}

#[test]
fn each_flow_goes_to_one_queue_and_nothing_comes_twice() {
    const FLOWS: u16 = 64;
    const ROUNDS: usize = 4;
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let port = open_port(&PacketConfig {
            queues: 4,
            ..PacketConfig::new(NEAR)
        });
        let how = Attach {
            queues: 4,
            ..Attach::default()
        };
        let arena = Arena::new(ArenaConfig::default()).expect("memory");
        let mut port = Port::attach_in(port, &how, &arena);
        for _ in 0..ROUNDS {
            for flow in 0..FLOWS {
                // The hash is the same in both directions.
                send(&far, &datagram(0x4000 + flow, 60, None));
                send(&far, &reversed(datagram(0x4000 + flow, 60, None)));
            }
        }
        for flow in 0..FLOWS {
            // Three fragments of a datagram: those behind the first have no ports.
            let source = 0x8000 + flow * 256;
            for place in [(0, true), (800, true), (1600, false)] {
                let bytes = if place.1 { 800 } else { 400 };
                send(&far, &datagram(source, bytes, Some(place)));
            }
        }
        let expected = usize::from(FLOWS) * (2 * ROUNDS + 3);
        let (mut queues, mut got) = (HashMap::new(), 0);
        wait_until("all arrive", || {
            for packet in port.poll() {
                let id = contents(&packet)[18..20].to_vec();
                let queue = packet.meta().ingress.queue;
                let first = *queues.entry(id).or_insert(queue);
                assert_eq!(first, queue, "a flow changes its queue");
                got += 1;
            }
            got >= expected
        });
        std::thread::sleep(Duration::from_millis(20));
        got += port.poll().len();
        assert_eq!(got, expected, "packets come twice");
        let mut used: Vec<_> = queues.into_values().collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used, [0, 1, 2, 3]);
        port.assert_clean("several queues");
    });
}

#[test]
fn reassembled_fragments_come_as_one_packet() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let spec = format!("packet:{NEAR},queues=2,fanout=defrag");
        let port = port::open(&spec).expect("it opens");
        let how = Attach {
            queues: 2,
            ..Attach::default()
        };
        let mut port = Port::attach(port.driver, &how);
        for place in [(0, true), (800, true), (1600, false)] {
            let bytes = if place.1 { 800 } else { 400 };
            send(&far, &datagram(5, bytes, Some(place)));
        }
        let mut lengths = Vec::new();
        wait_until("it arrives", || {
            lengths.extend(port.poll().iter().map(Packet::bytes));
            !lengths.is_empty()
        });
        assert_eq!(lengths, [14 + 20 + 2000]);
    });
}

#[test]
fn given_sockets_are_used_as_they_are_bound() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        for (bound, name) in [(None, NEAR), (Some(NEAR), ""), (Some(NEAR), NEAR)] {
            let config = PacketConfig::new(name);
            let sockets = vec![raw_socket(bound), raw_socket(bound)];
            let port = PacketPort::from_fds(sockets, &config).expect("they are sockets");
            assert_eq!(port.name(), NEAR);
            assert_eq!(port.capabilities().queues_max, 2);
            let how = Attach {
                queues: 2,
                ..Attach::default()
            };
            let mut port = Port::attach(port, &how);
            for number in 0..50 {
                send(&far, &frame(MAC_NEAR, number as u8, number, 60));
            }
            let mut got = numbers(&mut port, 50);
            got.sort_unstable();
            assert_eq!(got, Vec::from_iter(0..50), "{bound:?} {name:?}");
        }
    });
}

/// A socket of a protocol receives from every interface, and one that is in no group yet all that
/// the others do.
#[test]
fn what_waits_in_given_sockets_is_not_received() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        for (bound, queues) in [(None, 1), (None, 2), (Some(NEAR), 2)] {
            let all = || match bound {
                None => world::unbound_packet_socket(libc::ETH_P_ALL),
                Some(_) => raw_socket(bound),
            };
            let sockets = Vec::from_iter((0..queues).map(|_| all()));
            // To the interface, and by it to the other one.
            for number in 0..10 {
                send(&far, &frame(MAC_NEAR, number as u8, number, 60));
                send(
                    &PacketSocket::open(NEAR),
                    &frame([2; 6], number as u8, number, 60),
                );
            }
            std::thread::sleep(Duration::from_millis(20));
            let port = PacketPort::from_fds(sockets, &PacketConfig::new(NEAR));
            let how = Attach {
                queues,
                ..Attach::default()
            };
            let mut port = Port::attach(port.expect("they are sockets"), &how);
            send(&far, &frame(MAC_NEAR, 1, 77, 60));
            assert_eq!(numbers(&mut port, 1), [77], "{bound:?}, {queues} queues");
            port.assert_clean("what waited");
        }
    });
}

#[test]
fn the_filter_of_a_given_socket_stays() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        for (bound, queues) in [(None, 1), (None, 2), (Some(NEAR), 1), (Some(NEAR), 2)] {
            let filtered = || {
                let socket = raw_socket(bound);
                // The last byte of the number.
                world::accept_only(&socket, 17, 3);
                socket
            };
            let sockets = Vec::from_iter((0..queues).map(|_| filtered()));
            let port = PacketPort::from_fds(sockets, &PacketConfig::new(NEAR));
            let how = Attach {
                queues,
                ..Attach::default()
            };
            let mut port = Port::attach(port.expect("they are sockets"), &how);
            for number in 0..5 {
                send(&far, &frame(MAC_NEAR, 1, number, 60));
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(numbers(&mut port, 1), [3], "{bound:?}, {queues} queues");
        }
    });
}

/// The kernel would drop the packet, again and again.
#[test]
fn without_a_discipline_a_packet_that_the_device_cannot_cut_is_cut_here() {
    const SIZE: usize = 1000;
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let bypass = || PacketConfig {
            bypass_qdisc: true,
            ..PacketConfig::new(NEAR)
        };
        let has_tso = |on: bool| {
            let feature = "tx-tcp-segmentation";
            for feature in [feature, "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"] {
                assert!(world::set_feature(NEAR, feature, on), "{feature}");
            }
            // Linux counts packets that it mangles the identification of as TCP, too.
            world::set_feature(NEAR, "tx-tcp-mangleid-segmentation", on);
        };
        let passes = |port: &mut Port<PacketPort>| {
            let train = Train::tcp(5 * SIZE, SIZE as u16);
            let packet = train.packet(port, Some([2; 6]), 1400);
            port.send_all(packet);
            let (mut got, mut packets) = (Vec::new(), 0);
            wait_until("the segments arrive", || {
                while let Some((bytes, _)) = far.receive() {
                    got.extend_from_slice(&bytes[HEADER_BYTES + 54..]);
                    packets += 1;
                }
                got.len() >= train.payload
            });
            assert!(got == payload(train.payload));
            packets
        };
        let refused = |port: &Port<PacketPort>| port.tx[0].counters().snapshot().refused_features;
        has_tso(false);
        let mut port = Port::attach(open_port(&bypass()), &Attach::default());
        assert_eq!(port.driver.capabilities().tx, Features::CSUM);
        assert_eq!((passes(&mut port), refused(&port)), (5, 0));
        drop(port);
        has_tso(true);
        let mut port = Port::attach(open_port(&bypass()), &Attach::default());
        let offered = Features::CSUM | Features::TSO4 | Features::TSO6;
        assert_eq!(port.driver.capabilities().tx, offered);
        assert_eq!((passes(&mut port), refused(&port)), (1, 0));
        // Switched off during the run: that it is refused is noticed.
        has_tso(false);
        assert_eq!((passes(&mut port), refused(&port)), (5, 1));
        assert_eq!((passes(&mut port), refused(&port)), (5, 1));
        assert_eq!(port.dropped(DropReason::DeviceRefused), 0);
    });
}

/// Others are sent in between, without a wait for each one that is lost.
#[test]
fn a_device_that_drops_some_packets_does_not_hold_up_the_others() {
    const PACKETS: u64 = 200;
    in_namespace(|| {
        veth();
        world::set_mtu(NEAR, 1700);
        let mut port = open_near();
        for number in 0..PACKETS as u32 {
            for bytes in [1600, 100] {
                let packet = port.arena.packet_from(&frame([2; 6], 1, number, bytes));
                port.send_all(packet.expect("memory"));
            }
        }
        assert_eq!(port.dropped(DropReason::DeviceRefused), PACKETS);
        let sent = port.tx[0].counters().snapshot();
        assert_eq!((sent.packets, sent.stalls), (PACKETS, 1));
    });
}

/// The kernel reports once that an interface went down: to the next read or write of the socket.
#[test]
fn a_link_that_was_down_costs_nothing_later() {
    in_namespace(|| {
        veth();
        let mut port = open_near();
        world::set_up(NEAR, false);
        wait_until("it is down", || port.driver.link() == Link::Down);
        world::set_up(NEAR, true);
        wait_until("it is up", || port.driver.link() == Link::Up);
        let packet = port.arena.packet_from(&frame([2; 6], 1, 1, 60));
        port.send(packet.expect("memory"));
        port.assert_clean("after a link that was down");
    });
}

/// A packet that is longer than the MTU is lost alone. So is one that the other end of the veth
/// does not take, for which the kernel reports that it has no room.
#[test]
fn a_packet_that_is_too_long_costs_only_itself() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let mut port = open_near();
        let transmit = |port: &mut Port<PacketPort>, number, bytes| {
            let packet = port.arena.packet_from(&frame([2; 6], 1, number, bytes));
            port.send_all(packet.expect("memory"));
        };
        transmit(&mut port, 1, 1600);
        assert_eq!(port.dropped(DropReason::Mtu), 1);
        transmit(&mut port, 2, 1514);
        world::set_mtu(NEAR, 1700);
        renew_mtu(&mut port, 1);
        transmit(&mut port, 3, 1600);
        transmit(&mut port, 4, 1600);
        assert_eq!(port.dropped(DropReason::DeviceRefused), 2);
        transmit(&mut port, 5, 1514);
        let mut got = Vec::new();
        wait_until("both arrive", || {
            while let Some((bytes, _)) = far.receive() {
                got.push(bytes[HEADER_BYTES + 17]);
            }
            got.len() >= 2
        });
        assert_eq!(got, [2, 5]);
    });
}

/// The queue asks for the MTU when that is due, as it is at each of these seconds.
pub fn renew_mtu<D: Driver>(port: &mut Port<D>, second: u64) {
    let now = Instant::from_nanos(second * 1_000_000_000);
    port.tx[0].service(now).expect("the device is there");
}

/// The kernel compares no segment of a GSO packet with the MTU: a card would get segments that it
/// cannot send. The other end of a veth gets none that is longer.
#[test]
fn a_gso_packet_is_lost_if_its_segments_are_longer_than_the_mtu() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let mut port = open_near();
        assert_eq!(port.driver.capabilities().mtu, Some(1500));
        let trains = [
            Train::tcp(9000, 1460),
            Train::tcp(9000, 1461),
            Train::udp(9000, 1473),
        ];
        for train in &trains {
            let packet = train.packet(&port, Some([2; 6]), 1400);
            port.send_all(packet);
        }
        assert_eq!(port.dropped(DropReason::Mtu), 7 + 7);
        world::set_mtu(NEAR, 1400);
        renew_mtu(&mut port, 1);
        let packet = trains[0].packet(&port, Some([2; 6]), 1400);
        port.send_all(packet);
        assert_eq!(port.dropped(DropReason::Mtu), 7 + 7 + 7);
        world::set_mtu(NEAR, 1501);
        renew_mtu(&mut port, 2);
        let packet = trains[1].packet(&port, Some([2; 6]), 1400);
        port.send_all(packet);
        assert_eq!(port.dropped(DropReason::Mtu), 7 + 7 + 7);
        let mut sizes = Vec::new();
        wait_until("two arrive", || {
            while let Some((bytes, _)) = far.receive() {
                sizes.push(u16::from_le_bytes([bytes[4], bytes[5]]));
            }
            sizes.len() >= 2
        });
        assert_eq!(sizes, [1460, 1461]);
    });
}

/// The worker of a running session asks, though the port completes every packet at once.
#[test]
fn a_session_follows_the_mtu_of_its_egress() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let specs = ["null:source,bytes=1614,coalesce=off", "packet:near0"];
        let [a, b] = specs.map(|text| text.parse().expect("a spec"));
        let [source, port] = open_pair(&a, &b).expect("they open");
        let session = Session::between(source, port).start().expect("it starts");
        let lost = || session.snapshot().drops.get(DropReason::Mtu);
        wait_until("packets are too long", || lost() > 0);
        let arrives = |bytes: usize| {
            let received = std::iter::from_fn(|| far.receive());
            { received }.any(|(packet, _)| packet.len() == HEADER_BYTES + bytes)
        };
        assert!(!arrives(1614));
        for name in [FAR, NEAR] {
            world::set_mtu(name, 1600);
        }
        wait_until("they fit", || arrives(1614));
        let before = lost();
        world::set_mtu(NEAR, 1500);
        wait_until("they are too long again", || lost() > before);
        let snapshot = session.finish().snapshot;
        assert!(snapshot.ledger.closed(), "{:?}", snapshot.ledger);
        assert_eq!(snapshot.drops.total(), snapshot.drops.get(DropReason::Mtu));
    });
}

#[test]
fn a_link_that_is_down_costs_packets_and_comes_back() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let mut port = open_near();
        assert_eq!(port.driver.link(), Link::Up);
        let own = |port: &Port<PacketPort>| {
            let packet = port.arena.packet_from(&frame([2; 6], 1, 1, 60));
            packet.expect("memory")
        };
        world::set_up(NEAR, false);
        wait_until("it is down", || port.driver.link() == Link::Down);
        assert!(port.poll().is_empty());
        let packet = own(&port);
        port.send(packet);
        assert_eq!(port.dropped(DropReason::LinkDown), 1);
        world::set_up(NEAR, true);
        wait_until("it is up", || port.driver.link() == Link::Up);
        // Without a carrier, which the other end takes away.
        world::set_up(FAR, false);
        wait_until("no carrier", || port.driver.link() == Link::Down);
        world::set_up(FAR, true);
        wait_until("a carrier", || port.driver.link() == Link::Up);
        let mut number = 0;
        wait_until("a frame arrives", || {
            number += 1;
            // Until the other end is up, the kernel refuses it.
            far.send(
                ETHERTYPE,
                &[&[0; HEADER_BYTES][..], &frame(MAC_NEAR, 1, number, 60)].concat(),
            )
            .unwrap_or(());
            port.poll().iter().any(|packet| number_of(packet).is_some())
        });
    });
}

/// Deletes the interface of a port. The packets that arrived before are still received.
pub fn assert_gone_when_deleted<D: Driver>(mut port: Port<D>) {
    send(&PacketSocket::open(FAR), &frame(MAC_NEAR, 1, 1, 60));
    std::thread::sleep(Duration::from_millis(20));
    world::delete(NEAR);
    assert_eq!(port.driver.link(), Link::Removed);
    assert!(port.driver.interface().is_none());
    let (mut burst, mut got) = (Burst::new(), 0);
    let mut now = Instant::default();
    let error = loop {
        let polled = port.rx[0].poll(now, &mut burst, 64);
        while burst.pop().is_some() {
            got += 1;
        }
        match polled {
            Err(error) => break error,
            Ok(_) => now = now.after(Duration::from_millis(50)),
        }
        assert!(now < Instant::default().after(TIMEOUT), "it is not noticed");
    };
    assert!(matches!(error, DeviceError::Removed), "{error}");
    assert_eq!(got, 1);
    let packet = port.arena.packet_from(&frame([2; 6], 1, 1, 60));
    burst.push(packet.expect("memory")).expect("room");
    assert!(port.tx[0].transmit(&mut burst).is_err());
}

#[test]
fn a_deleted_interface_is_gone_on_both_halves() {
    in_namespace(|| {
        veth();
        assert_gone_when_deleted(open_near());
    });
}

/// The sockets stay in the namespace in which they were opened, whichever thread uses them.
#[test]
fn a_port_works_from_another_namespace() {
    in_namespace(|| {
        let away = Namespace::fresh();
        let mut port = away.run(|| {
            veth();
            open_port(&PacketConfig::new(NEAR))
        });
        assert_eq!(port.link(), Link::Up);
        let interface = port.interface().expect("it is there");
        assert_eq!(interface.name.exact(), NEAR);
        let own = std::fs::metadata("/proc/thread-self/ns/net").expect("/proc");
        let theirs = away.run(|| std::fs::metadata("/proc/thread-self/ns/net").expect("/proc"));
        let inode = |of: std::fs::Metadata| Some((of.st_dev(), of.st_ino()));
        assert_ne!(interface.namespace, inode(own));
        assert_eq!(interface.namespace, inode(theirs));
        let before = port.device_counters().expect("counters");
        let mut port = Port::attach(port, &Attach::default());
        let packet = port
            .arena
            .packet_from(&frame([2; 6], 1, 1, 60))
            .expect("memory");
        port.send(packet);
        let far = away.run(|| PacketSocket::open(FAR));
        send(&far, &frame(MAC_NEAR, 1, 7, 60));
        assert_eq!(numbers(&mut port, 1), [7]);
        let counted = port.device_counters().since(&before);
        assert_eq!((counted.rx_packets, counted.tx_packets), (1, 1));
    });
}

#[test]
fn the_plan_names_what_the_kernel_does_not_grant() {
    in_namespace(|| {
        veth();
        let port = open_port(&PacketConfig {
            offload: Features::NONE,
            buffer: Some(1 << 30),
            ..PacketConfig::new(NEAR)
        });
        let capabilities = port.capabilities();
        assert_eq!(capabilities.link, LinkType::Ethernet);
        assert_eq!(capabilities.tx, Features::NONE);
        assert!(capabilities.rx.contains(Features::TSO | Features::VLAN));
        let notes = capabilities.notes.join("\n");
        assert!(notes.contains("ethtool -K"), "{notes}");
    });
}

/// Changes the header and the bytes of a packet.
type Damage = fn(&mut Vec<u8>, &mut Vec<u8>, &Train);

/// How the sender of a GSO packet leaves it to its device.
const DEFECTS: [(&str, Damage); 8] = [
    ("IPv4 checksum 0", |_, bytes, train| {
        if !train.ipv6 {
            bytes[24..26].fill(0);
        }
    }),
    ("IP length 0", |_, bytes, train| {
        bytes[if train.ipv6 { 18..20 } else { 16..18 }].fill(0);
    }),
    ("both", |_, bytes, train| {
        bytes[if train.ipv6 { 18..20 } else { 16..18 }].fill(0);
        if !train.ipv6 {
            bytes[24..26].fill(0);
        }
    }),
    ("a seed without the length", |_, bytes, train| {
        let addresses = if train.ipv6 { 22..54 } else { 26..34 };
        let at = addresses.end + usize::from(train.checksum_offset());
        let mut sum = packtrain_offload::checksum::Sum::new();
        sum.add(&bytes[addresses]);
        sum.add(&[0, if train.tcp { 6 } else { 17 }]);
        bytes[at..at + 2].copy_from_slice(&sum.fold().to_be_bytes());
    }),
    ("bytes behind the packet", |_, bytes, _| {
        bytes.extend([0xee; 9]);
    }),
    ("DATA_VALID beside NEEDS_CSUM", |header, _, _| {
        header[0] |= 2;
    }),
    ("hdr_len 0", |header, _, _| header[2..4].fill(0)),
    ("hdr_len of the packet", |header, bytes, _| {
        header[2..4].copy_from_slice(&(bytes.len() as u16).to_ne_bytes());
    }),
];

/// From a veth, whose kernel looks at none of it, to the kernel behind a TAP, and behind a veth.
#[test]
fn packets_of_careless_senders_reach_the_kernel() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let mut ingress = open_near();
        let tap = Tap::open(&TapConfig::new(TapKind::Tap, "out0")).expect("it opens");
        let mut tap = Port::attach_in(tap, &Attach::default(), &ingress.arena);
        configure("out0", 1, 1);
        check_mended(&far, &mut ingress, &mut tap, "out0", "a TAP");
        drop(tap);
        create_veth("out0", "out1");
        world::set_up("out1", true);
        configure("out0", 1, 1);
        wait_until_connected(&PacketSocket::open("out1"), &PacketSocket::open("out0"));
        let packet = open_port(&PacketConfig::new("out1"));
        let mut packet = Port::attach_in(packet, &Attach::default(), &ingress.arena);
        check_mended(&far, &mut ingress, &mut packet, "out0", "a packet socket");
    });
}

/// The resets that the kernel has sent, and the packets with a wrong checksum that it has received.
fn tcp_counts() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc");
    let lines: Vec<Vec<_>> = text
        .lines()
        .filter(|line| line.starts_with("Tcp:"))
        .map(|line| line.split(' ').collect())
        .collect();
    let [names, values] = &lines[..] else {
        panic!("{text}")
    };
    ["OutRsts", "InCsumErrors"].map(|wanted| {
        let at = names.iter().position(|name| *name == wanted);
        values[at.expect("a column")].parse().expect("a number")
    })
}

fn check_mended<D: Driver>(
    far: &PacketSocket,
    ingress: &mut Port<PacketPort>,
    egress: &mut Port<D>,
    name: &str,
    what: &str,
) {
    const SIZE: usize = 1000;
    let ipv4 = Train::udp(3500, SIZE as u16);
    let ipv6 = ipv4.clone().ipv6();
    let tcp = Train::tcp(3500, SIZE as u16);
    let sockets = ["198.18.1.1:9", "[fd00:1::1]:9"].map(|address| {
        let socket = UdpSocket::bind(address).expect("an address");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    });
    let [ipv4_tcp, ipv6_tcp] = [tcp.clone(), tcp.ipv6()];
    let trains = DEFECTS.iter().flat_map(|defect| {
        let all = [
            (&ipv4, Some(&sockets[0])),
            (&ipv6, Some(&sockets[1])),
            (&ipv4_tcp, None),
            (&ipv6_tcp, None),
        ];
        all.map(|of| (defect, of))
    });
    for ((defect, damage), (train, socket)) in trains {
        let (tcp, ipv6) = (train.tcp, train.ipv6);
        let context = format!("{defect}, TCP {tcp}, IPv6 {ipv6}, to {what}");
        let mut bytes = train.bytes(Some(hardware_address(name)));
        let (ethertype, transport) = if ipv6 { (0x86dd, 54) } else { (0x0800, 34) };
        let mut header = match (tcp, ipv6) {
            (false, _) => vec![1, 5],
            (true, false) => vec![1, 1],
            (true, true) => vec![1, 4],
        };
        let transport_bytes = if tcp { 20 } else { 8 };
        for word in [
            transport + transport_bytes,
            SIZE as u16,
            transport,
            train.checksum_offset(),
        ] {
            header.extend(word.to_ne_bytes());
        }
        damage(&mut header, &mut bytes, train);
        far.send(ethertype, &[header, bytes].concat())
            .expect("it is sent");
        let mut packets = Vec::new();
        wait_until(&context, || {
            packets.extend(ingress.poll());
            !packets.is_empty()
        });
        let packet = packets.remove(0);
        assert_eq!(
            packet.meta().gso.map(|gso| gso.kind),
            Some(train.kind()),
            "{context}"
        );
        let before = tcp_counts();
        egress.send(packet);
        let Some(socket) = socket else {
            // Of no connection, so it is answered by a reset if its checksum is right.
            wait_until(&context, || tcp_counts() != before);
            let [resets, errors] = before;
            assert_eq!(tcp_counts(), [resets + 1, errors], "{context}");
            continue;
        };
        let mut data = Vec::new();
        while data.len() < train.payload {
            let mut datagram = [0; 2000];
            let got = socket.recv(&mut datagram);
            let got = got.unwrap_or_else(|error| panic!("{context}: {error}"));
            data.extend_from_slice(&datagram[..got]);
        }
        assert!(data == payload(train.payload), "{context}: other bytes");
    }
    egress.assert_clean(what);
    let sent = egress.tx[0].counters().snapshot();
    assert_eq!(sent.gso_sw_packets, 0, "{what}: the kernel gets them whole");
}

#[test]
fn pieces_are_received_as_well() {
    in_namespace(|| {
        veth();
        let far = PacketSocket::open(FAR);
        let how = Attach {
            rx_buffers: RxBuffers::PIECES,
            ..Attach::default()
        };
        let mut port = Port::attach(open_port(&PacketConfig::new(NEAR)), &how);
        let train = Train::tcp(20_000, 1000);
        let mut header = vec![1, 1];
        for word in [54_u16, 1000, 34, 16] {
            header.extend(word.to_ne_bytes());
        }
        let bytes = train.bytes(Some(MAC_NEAR));
        far.send(0x0800, &[&header[..], &bytes].concat())
            .expect("it is sent");
        let mut packets = Vec::new();
        wait_until("it arrives", || {
            packets.extend(port.poll());
            !packets.is_empty()
        });
        assert!(contents(&packets[0]) == bytes);
        assert!(packets[0].segment_count() > 10);
        assert!(port.rx[0].device_mut().syscalls() > 0);
        assert_eq!(port.tx[0].device_mut().doorbells(), 0);
    });
}
