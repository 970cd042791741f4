//! The examples do what they say. Those that need real interfaces also run in the laboratory.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use packtrain::capture::{Format, Interface, LinkCode, Reader, Writer};
use packtrain::conformance::{Injects, Observes, Outside, Rig, Skip, Traits};
use packtrain::driver::{Armed, DeviceError, Driver, Interest, PortConfig};
use packtrain::engine::{Forward, Joined, Ledger, Next, Port, arena_config, join};
use packtrain::packet::Arena;
use packtrain::plan::{Side, plan};
use packtrain::port::null::{Null, NullConfig, Source};
use packtrain::stats::DropReason;
use packtrain::time::Instant;
use std::error::Error;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant as Started};

#[path = "../examples/driver.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod driver;
#[path = "../examples/poll_loop.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod poll_loop;
#[path = "../examples/reflect.rs"]
#[allow(dead_code, reason = "its main function is not called")]
mod reflect;
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
fn two_threads_send_through_one_queue() {
    // The second device has room for few packets, and keeps them until it is polled.
    for port in ["null:", "sim:rings=64"] {
        let ledger = send::run(port, 20_000).unwrap_or_else(|error| panic!("{port}: {error}"));
        assert!(ledger.closed(), "{port}: {ledger:?}");
        let sums = (ledger.generated, ledger.transmitted, ledger.held);
        assert_eq!(sums, (40_000, 40_000, 0), "{port}");
    }
}

/// Cut in software for a capture, which etherparse reads, and by the device.
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

/// Of a frame whose checksums are right.
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

type Run = fn(&[String]) -> Result<Ledger, Box<dyn Error>>;
const LOOPS: [(&str, Run); 2] = [
    ("poll_loop", poll_loop::run),
    ("tokio_loop", tokio_loop::run),
];

#[test]
fn loops_forward_until_a_finite_input_ends() {
    for (name, run) in LOOPS {
        for line in [
            "null:source,count=100000 null:",
            "null:source,count=100000,flows=8,queues=4 null:queues=4",
            // Packets stay with this device until it is polled for completions.
            "null:source,count=20000 sim:rings=64",
        ] {
            let ledger = run(&args(line)).unwrap_or_else(|error| panic!("{name} {line}: {error}"));
            assert!(ledger.closed(), "{name} {line}: {ledger:?}");
            assert_eq!(ledger.received, ledger.transmitted, "{name} {line}");
            assert!(ledger.received >= 20_000, "{name} {line}: {ledger:?}");
        }
    }
}

#[test]
fn loops_end_in_time() {
    for (name, run) in LOOPS {
        // Busy all the time, and asleep all the time.
        for (line, busy) in [
            ("null:source null: --seconds 1", true),
            ("null: null: --seconds 1", false),
        ] {
            let start = Started::now();
            let ledger = run(&args(line)).unwrap_or_else(|error| panic!("{name} {line}: {error}"));
            let elapsed = start.elapsed();
            assert!(elapsed >= Duration::from_secs(1), "{name} {line}");
            assert!(
                elapsed < Duration::from_secs(60),
                "{name} {line}: {elapsed:?}"
            );
            assert!(ledger.closed(), "{name} {line}: {ledger:?}");
            assert_eq!(ledger.received > 0, busy, "{name} {line}");
        }
    }
}

/// A loop over a source of `count` frames and a cable.
type Drive = fn(Joined<Null, Cable, Forward>) -> Result<Ledger, Box<dyn Error>>;

fn drive_poll(joined: Joined<Null, Cable, Forward>) -> Result<Ledger, Box<dyn Error>> {
    poll_loop::drive(joined, Duration::MAX)
}

fn drive_tokio(joined: Joined<Null, Cable, Forward>) -> Result<Ledger, Box<dyn Error>> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(tokio_loop::drive(joined, Duration::MAX))
}

/// The device is full nearly all the time: the loop has to sleep until it is not, to the end.
#[test]
fn loops_wait_for_a_slow_device() {
    const FRAMES: u64 = 20_000;
    let drives: [(&str, Drive); 2] = [("poll_loop", drive_poll), ("tokio_loop", drive_tokio)];
    for (name, drive) in drives {
        let (near, far) = UnixDatagram::pair().unwrap();
        let (mut cable, mut source) = (Cable("cable0".into(), near), source(Some(FRAMES)));
        let plan = plan(&side(&source), &side(&cable)).unwrap();
        let arena = Arena::new(arena_config(&plan)).unwrap();
        let joined = join(&mut source, &mut cable, &plan, &arena, None, || Forward).unwrap();
        let worker = Arc::clone(joined.workers[0].counters());
        let stats = Arc::clone(&joined.stats);
        let reader = thread::spawn(move || {
            far.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut buffer = [0; FRAME_BYTES_MAX];
            for n in 0..FRAMES {
                far.recv(&mut buffer).unwrap();
                if n % 100 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let ledger = drive(joined).unwrap_or_else(|error| panic!("{name}: {error}"));
        reader.join().unwrap();
        assert!(ledger.closed(), "{name}: {ledger:?}");
        assert_eq!(ledger.transmitted, FRAMES, "{name}: {ledger:?}");
        let stalls = stats.snapshot().ports[1].tx_total().stalls;
        assert!(
            stalls > 10,
            "{name}: the device was full {stalls} times only"
        );
        // It goes on when a part of the buffer is free, which is worth some frames.
        let steps = worker.steps.get();
        assert!(steps < FRAMES / 4, "{name} does not sleep: {steps} steps");
    }
}

#[test]
fn loops_explain_what_is_wrong() {
    for (name, run) in LOOPS {
        for (line, expected) in [
            ("null:", "usage"),
            ("null: null: --minutes 1", "usage"),
            ("nul: null:", "did you mean"),
            ("tun:t,fd=0 null:", "descriptor"),
        ] {
            let error = run(&args(line)).expect_err(line).to_string();
            assert!(error.contains(expected), "{name} {line}: {error}");
        }
    }
}

#[test]
fn reflect_swaps_addresses_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("packtrain-reflect-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (from, to) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let interface = Interface {
        link: LinkCode::ETHERNET,
        snaplen: 0,
        name: None,
    };
    let format = Format::Pcap { nanosecond: true };
    let mut writer = Writer::new(File::create(&from).unwrap(), format, &[interface]).unwrap();
    let frame = |n: u8| {
        let mut frame: Vec<u8> = (0..60 + n).collect();
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    };
    for n in 0..100 {
        writer.write(0, u64::from(n), 0, [frame(n)]).unwrap();
    }
    writer.finish().unwrap();
    let line = format!("pcap:{} pcap:{},write", from.display(), to.display());
    let (counts, ledger) = reflect::run(&args(&line)).unwrap();
    assert!(ledger.closed() && ledger.transmitted == 100, "{ledger:?}");
    assert_eq!(counts.swapped.load(Ordering::Relaxed), 100);
    assert_eq!(counts.unchanged.load(Ordering::Relaxed), 0);
    let mut reader = Reader::new(File::open(&to).unwrap()).unwrap();
    for n in 0..100 {
        let record = reader.next_record().unwrap().expect("100 records");
        let mut expected = frame(n);
        expected[..12].rotate_left(6);
        assert_eq!(record.data, expected, "frame {n}");
    }
    assert!(reader.next_record().unwrap().is_none());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_driver_checks_itself() {
    let ledger = driver::check(5000).unwrap();
    assert!(ledger.closed(), "{ledger:?}");
    assert_eq!(ledger.transmitted, 10_000, "{ledger:?}");
}

/// A cable and who is at its other end.
struct Plugged {
    cable: Cable,
    far: UnixDatagram,
}

fn plug(_seed: u64) -> Result<Plugged, Skip> {
    let (near, far) = UnixDatagram::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let cable = Cable("cable0".into(), near);
    Ok(Plugged { cable, far })
}

impl Rig for Plugged {
    type Driver = Cable;

    fn traits(&self) -> Traits {
        Traits {
            injects: Injects::Live,
            observes: Observes::Live,
            window: 16,
            fills: true,
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
        Some(Outside::finished(bytes))
    }
}

packtrain::driver_conformance!(cable, plug);

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

fn side(driver: &impl Driver) -> Side {
    Side::of(driver, PortConfig::default())
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

#[test]
fn a_full_cable_asks_to_be_woken_when_it_has_room() {
    let (mut source, mut plugged) = (source(None), plug(0).unwrap());
    let (a, b) = (&mut source, &mut plugged.cable);
    let plan = plan(&side(a), &side(b)).unwrap();
    let arena = Arena::new(arena_config(&plan)).unwrap();
    let mut joined = join(a, b, &plan, &arena, None, || Forward).unwrap();
    let worker = &mut joined.workers[0];
    // The source never ends, so only the cable can make the worker pause.
    let paused = (0..10_000).any(|_| worker.step(Instant::default()).unwrap() != Next::Again);
    assert!(paused, "the cable never fills");
    assert_eq!(worker.arm(), Armed::Idle);
    let mut interests = Vec::new();
    worker.interests(|_, interest| interests.push(interest));
    // The worker's own descriptor, the source of the other way, and the room of the cable.
    assert_eq!(interests, [Interest::Read, Interest::Read, Interest::Write]);
    let mut buffer = [0; FRAME_BYTES_MAX];
    while plugged.far.recv(&mut buffer).is_ok() {}
    let next = worker.step(Instant::default()).unwrap();
    assert_eq!(next, Next::Again, "goes on when there is room");
}

#[test]
fn an_unplugged_cable_is_a_removed_device() {
    let (mut source, mut plugged) = (source(None), plug(0).unwrap());
    let (a, b) = (&mut source, &mut plugged.cable);
    let plan = plan(&side(a), &side(b)).unwrap();
    let arena = Arena::new(arena_config(&plan)).unwrap();
    let mut joined = join(a, b, &plan, &arena, None, || Forward).unwrap();
    let worker = &mut joined.workers[0];
    assert!(worker.step(Instant::default()).is_ok());
    drop(plugged.far);
    let error = worker.step(Instant::default()).unwrap_err();
    assert_eq!(error.port, Some(Port::B));
    assert!(matches!(error.error, DeviceError::Removed), "{error}");
    worker.abandon(DropReason::Shutdown);
    let ledger = joined.stats.snapshot().ledger;
    assert!(ledger.closed() && ledger.dropped > 0, "{ledger:?}");
}
