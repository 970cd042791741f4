//! The examples work as described. Those that need real interfaces also run in the laboratory.

use etherparse::{Icmpv4Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use packtrain::driver::{DeviceError, Interest};
use packtrain::engine::{Action, Session, Worker};
use packtrain::port;
use packtrain::port::null::{Null, NullConfig, Source};
use packtrain::runtime::System;
use packtrain::time::Instant;
use packtrain_capture::Reader;
use packtrain_testkit::conformance::{Fills, Injects, Observes, Outside, Rig, Skip, Traits};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant as Started};

#[path = "../examples/card.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod card;
#[path = "../examples/driver.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod driver;
#[path = "../examples/guest.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod guest;
#[path = "../examples/one_port.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod one_port;
#[path = "../examples/one_port_loop.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod one_port_loop;
#[path = "../examples/send.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod send;
#[path = "../examples/send_large.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod send_large;
#[path = "../examples/tokio_loop.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod tokio_loop;

use driver::{Cable, FRAME_BYTES_MAX};

fn args(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_port_for_a_guest_waits_for_its_front_end() {
    let path = std::env::temp_dir().join(format!("packtrain-guest-{}", std::process::id()));
    let ledger = guest::run(&path, Duration::from_millis(50)).expect("it runs without one");
    assert!(ledger.closed() && ledger.received == 0, "{ledger:?}");
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn two_threads_send_through_one_queue() {
    // The second device has room for few packets, and completes them only when it is polled.
    for port in ["null:", "sim:rings=64"] {
        let ledger = send::run(port, 20_000).unwrap_or_else(|error| panic!("{port}: {error}"));
        assert!(ledger.closed(), "{port}: {ledger:?}");
        let sums = (ledger.generated, ledger.transmitted, ledger.held);
        assert_eq!(sums, (40_000, 40_000, 0), "{port}");
    }
}

/// Segmented in software for a capture, which etherparse reads, and by the device.
#[test]
fn a_large_packet_arrives_as_datagrams() {
    let folder = std::env::temp_dir().join(format!("packtrain-large-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("large.pcapng");
    for (bytes, datagrams) in [(1, 1), (1400, 1), (10_000, 8), (65_000, 47)] {
        let port = format!("pcap:{},write", file.display());
        for port in [port.as_str(), "sim:"] {
            let ledger = send_large::run(port, bytes).unwrap();
            assert!(ledger.closed(), "{port} {bytes}: {ledger:?}");
            let sums = (ledger.generated, ledger.transmitted, ledger.held);
            assert_eq!(sums, (datagrams, datagrams, 0), "{port} {bytes}");
        }
        let mut received = Vec::new();
        let mut reader = Reader::new(File::open(&file).unwrap()).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            received.extend(udp_payload(record.data));
        }
        let sent: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        assert!(received == sent, "{bytes}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The UDP payload of a frame, whose checksums must be right.
fn udp_payload(frame: &[u8]) -> Vec<u8> {
    let frame = SlicedPacket::from_ethernet(frame).unwrap();
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (&frame.net, &frame.transport)
    else {
        panic!("{frame:?}");
    };
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    let payload = udp.payload();
    let right = udp.to_header().calc_checksum_ipv4(&header, payload);
    assert_eq!(udp.checksum(), right.unwrap());
    payload.to_vec()
}

/// A cable, and the other end of it.
fn cable() -> (Cable, UnixDatagram) {
    let (socket, far) = UnixDatagram::pair().unwrap();
    far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let name = "cable0";
    (Cable { name, socket }, far)
}

/// Frame `n` from one station to another.
fn frame(n: u8) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..60 + n).collect();
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// The frames that the handle broadcasts are among those that the handler returns.
#[test]
fn one_port_answers_with_swapped_addresses_and_says_hello() {
    let (cable, far) = cable();
    let peer = thread::spawn(move || {
        let mut hellos = 0;
        let mut buffer = [0; FRAME_BYTES_MAX];
        for n in 0..100 {
            // Before the last frame, which ends the run.
            while n == 99 && hellos == 0 {
                far.recv(&mut buffer).unwrap();
                hellos += 1;
            }
            far.send(&frame(n)).unwrap();
            let answer = loop {
                let bytes = far.recv(&mut buffer).unwrap();
                if buffer[..6] != [0xff; 6] {
                    break &buffer[..bytes];
                }
                hellos += 1;
            };
            let mut expected = frame(n);
            expected[..12].rotate_left(6);
            assert_eq!(answer, expected, "frame {n}");
        }
        (far, hellos)
    });
    let ledger = one_port::run(cable, 100).unwrap();
    let (far, mut hellos) = peer.join().unwrap();
    far.set_nonblocking(true).unwrap();
    while let Ok(bytes) = far.recv(&mut [0; FRAME_BYTES_MAX]) {
        assert_eq!(bytes, 60, "padded");
        hellos += 1;
    }
    assert!(ledger.closed(), "{ledger:?}");
    let sums = (ledger.received, ledger.generated, ledger.transmitted);
    assert_eq!(sums, (100, hellos, 100 + hellos));
}

/// What is for another address, no request or too short gets no answer.
#[test]
fn a_host_on_a_card_answers_arp_and_ping() {
    const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let (ip, other) = (Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 0, 9));
    let arp = move |target: Ipv4Addr| {
        let mut request = [&[0xff; 6][..], &THEIRS, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        request.extend([&THEIRS[..], &other.octets(), &[0; 6], &target.octets()].concat());
        request
    };
    let echo = move |destination: Ipv4Addr, length: usize| {
        let builder = PacketBuilder::ethernet2(THEIRS, [2, 0, 0, 0, 0, 1])
            .ipv4(other.octets(), destination.octets(), 64)
            .icmpv4_echo_request(0xfff7, 3);
        let mut frame = Vec::new();
        builder.write(&mut frame, &vec![0xff; length]).unwrap();
        frame
    };
    let (cable, far) = cable();
    let peer = thread::spawn(move || {
        far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut buffer = [0; FRAME_BYTES_MAX];
        for unanswered in [arp(other), echo(other, 8), vec![0; 30]] {
            far.send(&unanswered).unwrap();
        }
        far.send(&arp(ip)).unwrap();
        far.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..12], [&THEIRS[..], &[2, 0, 0, 0, 0, 1]].concat());
        assert_eq!(
            buffer[20..32],
            [&[0, 2, 2, 0, 0, 0, 0, 1][..], &ip.octets()].concat()
        );
        assert_eq!(buffer[32..42], [&THEIRS[..], &other.octets()].concat());
        for length in [0, 1, 56, 1400] {
            far.send(&echo(ip, length)).unwrap();
            let bytes = far.recv(&mut buffer).unwrap();
            let reply = SlicedPacket::from_ethernet(&buffer[..bytes]).unwrap();
            let Some(NetSlice::Ipv4(header)) = &reply.net else {
                panic!("{reply:?}")
            };
            let header = header.header();
            assert_eq!(
                [header.source_addr(), header.destination_addr()],
                [ip, other]
            );
            assert_eq!(
                header.header_checksum(),
                header.to_header().calc_header_checksum()
            );
            let Some(TransportSlice::Icmpv4(reply)) = &reply.transport else {
                panic!("{reply:?}")
            };
            let kind = reply.icmp_type();
            assert!(matches!(kind, Icmpv4Type::EchoReply(of) if (of.id, of.seq) == (0xfff7, 3)));
            assert_eq!(reply.header().checksum, kind.calc_checksum(reply.payload()));
        }
        far
    });
    let run = card::run(cable, ip, || Ok(peer.join())).unwrap();
    let ledger = run.ledger;
    assert!(ledger.closed(), "{ledger:?}");
    assert_eq!(
        (ledger.received, ledger.transmitted, ledger.delivered),
        (8, 5, 3)
    );
}

#[test]
fn one_port_in_a_loop_takes_packets_and_broadcasts_one() {
    let (cable, far) = cable();
    let peer = thread::spawn(move || {
        let mut buffer = [0; FRAME_BYTES_MAX];
        let bytes = far.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..bytes], [0xff; 60]);
        // The pauses make the loop wait.
        for n in 0..100 {
            thread::sleep(Duration::from_millis(u64::from(n % 10 / 9)));
            far.send(&frame(n)).unwrap();
        }
        far
    });
    let ledger = one_port_loop::run(cable, 100).unwrap();
    peer.join().unwrap();
    assert!(ledger.closed(), "{ledger:?}");
    let sums = (ledger.received, ledger.delivered, ledger.transmitted);
    assert_eq!(sums, (100, 100, 1));
}

/// Ports other than a cable: some that never wait, and one whose input ends first.
#[test]
fn one_port_takes_any_port() {
    for spec in [
        "null:source",
        "null:source,queues=4",
        "null:source,count=50",
    ] {
        let expected = if spec.ends_with("=50") { 50 } else { 100 };
        let ledger = one_port::run(port::open(spec).unwrap(), 100).unwrap();
        assert!(
            ledger.closed() && ledger.received == expected,
            "{spec}: {ledger:?}"
        );
        let ledger = one_port_loop::run(port::open(spec).unwrap(), 100).unwrap();
        assert!(
            ledger.closed() && ledger.received == expected,
            "{spec}: {ledger:?}"
        );
        assert_eq!(ledger.delivered, expected, "{spec}");
    }
}

#[test]
fn a_program_with_one_port_has_at_most_forty_lines() {
    for (name, text) in [
        ("one_port", include_str!("../examples/one_port.rs")),
        (
            "one_port_loop",
            include_str!("../examples/one_port_loop.rs"),
        ),
    ] {
        let code = text.lines().map(str::trim_start);
        let code = code.filter(|line| !line.is_empty() && !line.starts_with("//"));
        assert!(code.count() <= 40, "{name}");
    }
}

#[test]
fn the_loop_forwards_until_a_finite_input_ends() {
    for line in [
        "null:source,count=100000 null:",
        "null:source,count=100000,flows=8,queues=4 null:queues=4",
        // This device completes packets only when it is polled.
        "null:source,count=20000 sim:rings=64",
    ] {
        let ledger = tokio_loop::run(&args(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(ledger.closed(), "{line}: {ledger:?}");
        assert_eq!(ledger.received, ledger.transmitted, "{line}");
        assert!(ledger.received >= 20_000, "{line}: {ledger:?}");
    }
}

#[test]
fn the_loop_ends_in_time() {
    // One loop that is always busy, and one that always sleeps.
    for (line, busy) in [
        ("null:source null: --seconds 1", true),
        ("null: null: --seconds 1", false),
    ] {
        let start = Started::now();
        let ledger = tokio_loop::run(&args(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_secs(1), "{line}");
        assert!(elapsed < Duration::from_secs(60), "{line}: {elapsed:?}");
        assert!(ledger.closed(), "{line}: {ledger:?}");
        assert_eq!(ledger.received > 0, busy, "{line}");
    }
}

/// The device is full nearly all the time, so until the end the loop has to sleep until there is
/// room.
#[test]
fn the_loop_waits_for_a_slow_device() {
    const FRAMES: u64 = 20_000;
    let (cable, far) = cable();
    let builder = Session::between(source(Some(FRAMES)), cable);
    let (session, workers) = builder.assemble(Arc::new(System::new())).unwrap();
    let reader = thread::spawn(move || {
        let mut buffer = [0; FRAME_BYTES_MAX];
        for n in 0..FRAMES {
            far.recv(&mut buffer).unwrap();
            if n % 100 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let snapshot = runtime.block_on(tokio_loop::drive(session, workers, Duration::MAX));
    let snapshot = snapshot.unwrap();
    reader.join().unwrap();
    let ledger = snapshot.ledger;
    assert!(ledger.closed(), "{ledger:?}");
    assert_eq!(ledger.transmitted, FRAMES, "{ledger:?}");
    let stalls = snapshot.ports[1].tx_total().stalls;
    assert!(stalls > 10, "the device was full {stalls} times only");
    // The loop continues when a part of the buffer is free, which is room for some frames.
    let steps: u64 = snapshot.workers.iter().map(|worker| worker.steps).sum();
    assert!(steps < FRAMES / 4, "the loop does not sleep: {steps} steps");
}

#[test]
fn the_loop_explains_errors() {
    for (line, expected) in [
        ("null:", "usage"),
        ("null: null: --minutes 1", "usage"),
        ("nul: null:", "did you mean"),
        ("tun:t,fd=0 null:", "descriptor"),
    ] {
        let error = tokio_loop::run(&args(line)).expect_err(line).to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn the_driver_checks_itself() {
    let ledger = driver::check(5000).unwrap();
    assert!(ledger.closed(), "{ledger:?}");
    assert_eq!(ledger.transmitted, 10_000, "{ledger:?}");
}

/// A cable with its other end, for the suite.
struct Plugged {
    cable: Cable,
    far: UnixDatagram,
}

fn plug(_seed: u64) -> Result<Plugged, Skip> {
    let (cable, far) = cable();
    far.set_nonblocking(true).unwrap();
    Ok(Plugged { cable, far })
}

impl Rig for Plugged {
    type Driver = Cable;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: Fills::Yes,
            injects_bad: true,
            ..Traits::default()
        }
    }

    fn driver(&mut self) -> &mut Cable {
        &mut self.cable
    }

    fn inject(&mut self, packet: &Outside) -> bool {
        self.far.send(&packet.bytes).is_ok()
    }

    fn inject_bad(&mut self) -> bool {
        self.far.send(&[0; FRAME_BYTES_MAX + 1]).is_ok()
    }

    fn observe(&mut self) -> Option<Outside> {
        let mut bytes = vec![0; FRAME_BYTES_MAX + 1];
        let count = self.far.recv(&mut bytes).ok()?;
        bytes.truncate(count);
        Some(Outside::complete(bytes))
    }
}

packtrain_testkit::driver_conformance!(cable, plug);

#[test]
fn the_documentation_shows_this_rig() {
    let (text, code) = (
        include_str!("../../../docs/drivers.md"),
        include_str!("examples.rs"),
    );
    let (_, rest) = code.split_once("\nimpl Rig for Plugged {").unwrap();
    let (rig, _) = rest.split_once("\npackt").unwrap();
    assert!(
        text.contains(rig),
        "docs/drivers.md has another rig than this test"
    );
}

fn source(count: Option<u64>) -> Null {
    Null::new(NullConfig {
        source: Some(Source {
            count,
            ..Source::default()
        }),
        ..NullConfig::default()
    })
}

/// The workers of a session from an endless source to a cable. The first one has both.
fn source_to_cable() -> (Session, Vec<Worker>, UnixDatagram) {
    let (cable, far) = cable();
    let builder = Session::between(source(None), cable);
    let (session, workers) = builder.assemble(Arc::new(System::new())).unwrap();
    (session, workers, far)
}

#[test]
fn a_full_cable_wakes_its_worker_when_it_has_room() {
    let (session, mut workers, far) = source_to_cable();
    let [worker] = &mut workers[..] else {
        panic!("another plan than expected: {:?}", session.plan().workers);
    };
    // The source never ends, so only the cable can make the worker pause.
    let mut sleeps = || matches!(worker.run(Instant::default()), Ok(Action::Sleep { .. }));
    let paused = (0..10_000).any(|_| sleeps());
    assert!(paused, "the cable never fills");
    let mut interests = Vec::new();
    worker.interests(&mut |_, interest| interests.push(interest));
    // The worker's own descriptor, the room of the cable, and the cable's other direction.
    assert_eq!(interests, [Interest::Read, Interest::Write, Interest::Read]);
    far.set_nonblocking(true).unwrap();
    while far.recv(&mut [0; FRAME_BYTES_MAX]).is_ok() {}
    let next = worker.run(Instant::default()).unwrap();
    assert_eq!(next, Action::Step, "goes on when there is room");
}

#[test]
fn an_unplugged_cable_is_a_removed_device() {
    let (session, mut workers, far) = source_to_cable();
    assert!(workers[0].run(Instant::default()).is_ok());
    drop(far);
    let error = workers[0].run(Instant::default()).unwrap_err();
    assert_eq!(error.port, Some(1));
    assert!(matches!(error.error, DeviceError::Removed), "{error}");
    let ledger = session.finish_with(workers).snapshot.ledger;
    assert!(ledger.closed() && ledger.dropped > 0, "{ledger:?}");
}
