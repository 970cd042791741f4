//! Two TAPs under each policy: every byte of kernel TCP and UDP arrives, no packet is lost or
//! retransmitted, packets of application threads keep their order, and interrupt moderation bounds
//! the wake-ups of a queue.

use etherparse::PacketBuilder;
use packtrain::driver::{Port, PortConfig};
use packtrain::engine::{self, Command, PortSnapshot, Queues, Report, Session, TxHandle};
use packtrain::packet::Burst;
use packtrain::policy::dispatch::Dispatch;
use packtrain::policy::idle::Idle;
use packtrain::policy::moderation::Moderation;
use packtrain::policy::placement::Placement;
use packtrain_lab::LabError;
use packtrain_lab::harness::{self, need_tap, wait_for};
use packtrain_lab::link::LinkStats;
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Protocol, Transfer, TransferReport};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    harness::main(&[
        ("signals_are_as_far_apart_as_fixed_says", fixed),
        ("nothing_is_held_back_where_it_is_off", off),
        ("adaptive_loses_nothing", adaptive),
        ("producers_keep_their_order_under_every_policy", producers),
    ])
}

/// Room for all packets that TCP may have in flight, so that the kernel drops none in front of
/// packtrain.
const TX_QUEUE_LEN: u32 = 20_000;

/// The result of one transfer.
struct Account {
    transfer: TransferReport,
    report: Report,
    links: [LinkStats; 2],
    /// At least the time of the session.
    lasted: Duration,
}

/// Two hosts, the session between them, `senders` threads that send to the host on the right, and a
/// time before the start.
fn joined(
    what: &str,
    queues: usize,
    senders: usize,
    settings: &engine::Settings,
) -> (TwoHosts, Session, Instant) {
    let hosts = Settings {
        tx_queue_len: TX_QUEUE_LEN,
        ..Settings::default()
    };
    let (hosts, a, b) = harness::taps(&hosts, ["policy-a", "policy-b"], |_, config| {
        config.queues = queues;
    });
    let config = PortConfig {
        queues: Some(queues),
        ..PortConfig::default()
    };
    let [a, b] = [a, b].map(|driver| Port { driver, config });
    let start = Instant::now();
    let session = Session::between(a, b).settings(settings.clone());
    let session = session.senders(1, senders).start();
    let session = session.unwrap_or_else(|error| panic!("{what}: {error}"));
    (hosts, session, start)
}

fn run(protocol: Protocol, moderation: Moderation) -> Result<Account, LabError> {
    let what = format!("{protocol:?}, {moderation}");
    let settings = engine::Settings {
        moderation,
        // A worker that spins gets no wake-up.
        idle: Idle::Halt,
        ..engine::Settings::default()
    };
    let (hosts, session, start) = joined(&what, 1, 0, &settings);
    let transfer = match protocol {
        Protocol::Tcp => Transfer::tcp(IpVersion::V4, Amount::Bytes(8 << 20)),
        // One at a time: each is an interrupt, unless interrupts are coalesced.
        Protocol::Udp => Transfer::udp(IpVersion::V4, Amount::Bytes(256 << 10)).window(1),
    };
    let transfer = transfer.run(&hosts.left, &hosts.right)?;
    let links = [hosts.left.stats()?, hosts.right.stats()?];
    let report = session.finish();
    Ok(Account {
        transfer,
        report,
        links,
        lasted: start.elapsed(),
    })
}

fn check(protocol: Protocol, moderation: Moderation) -> Account {
    let what = format!("{protocol:?}, {moderation}");
    let account = run(protocol, moderation).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_complete(&account, &what);
    account
}

/// Every sent byte arrived once, and packtrain's counts equal the kernel's.
fn assert_complete(account: &Account, what: &str) {
    let snapshot = &account.report.snapshot;
    assert!(account.report.error.is_none(), "{:?}", account.report.error);
    assert!(account.transfer.hash_ok, "{what}: bytes differ");
    assert!(snapshot.ledger.closed(), "{what}: {:?}", snapshot.ledger);
    assert_eq!(snapshot.ledger.held, 0, "{what}");
    assert_eq!(snapshot.ledger.dropped, 0, "{what}: {:?}", snapshot.drops);
    let lost = account.links.iter().map(LinkStats::dropped);
    assert_eq!(lost.sum::<u64>(), 0, "{what}: {:?}", account.links);
    for (port, link) in snapshot.ports.iter().zip(&account.links) {
        // All packets that the kernel had counted as sent were read.
        assert!(port.rx_total().packets >= link.tx_packets, "{what}");
    }
}

/// For each ingress port: the wake-ups, and how often its queue slept with a delayed wake-up.
fn signals(account: &Account) -> Vec<(u64, u64)> {
    let ports = account.report.snapshot.ports.iter();
    ports
        .map(PortSnapshot::rx_total)
        .filter(|rx| rx.packets > 0)
        .map(|rx| (rx.wakeups, rx.moderated))
        .collect()
}

fn fixed() {
    need_tap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for usecs in [500_u32, 5000] {
            let moderation = Moderation::Fixed { usecs, frames: 256 };
            let account = check(protocol, moderation);
            // At most one wake-up for each delay, and the first.
            let most = account.lasted.as_micros() as u64 / u64::from(usecs) + 1;
            for (wakeups, moderated) in signals(&account) {
                println!("{protocol:?}, {moderation}: {wakeups} signals of {most}, {moderated}");
                assert!(wakeups <= most, "{wakeups} signals, at most {most}");
                assert!(moderated > 0, "nothing was held back");
            }
        }
    }
}

fn off() {
    need_tap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let account = check(protocol, Moderation::Off);
        for (wakeups, moderated) in signals(&account) {
            println!("{protocol:?}, off: {wakeups} signals");
            assert!(wakeups > 0);
            assert_eq!(moderated, 0);
        }
    }
}

fn adaptive() {
    need_tap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let account = check(protocol, Moderation::Adaptive);
        println!("{protocol:?}, adaptive: {:?}", signals(&account));
    }
}

const QUEUES: usize = 2;
/// Threads that send; each has a flow for each queue.
const PRODUCERS: u16 = 3;
const FLOWS: u16 = PRODUCERS * QUEUES as u16;
const EACH: u32 = 1500;
/// Datagrams of a flow that may be in flight: fewer than the buffer of the receiver's socket holds.
const WINDOW: u32 = 64;
const FIRST_PORT: u16 = 7000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// One datagram to the host on the right.
fn frame(flow: u16, number: u32) -> Vec<u8> {
    let (from, to) = (Side::Left, Side::Right);
    let builder = PacketBuilder::ethernet2(from.mac(), to.mac())
        .ipv4(from.ipv4().octets(), to.ipv4().octets(), 64)
        .udp(FIRST_PORT + flow, FIRST_PORT + flow);
    let payload = number.to_be_bytes();
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, &payload).expect("it is short");
    frame
}

/// Sends `EACH` datagrams of each of these flows, to its queue, in bursts of 1, 2, 3 and so on.
fn produce(mut queues: Vec<(u16, TxHandle)>, arrived: &[AtomicU32]) {
    let mut sent = vec![0_u32; queues.len()];
    let mut most = 1;
    let deadline = Instant::now() + TIMEOUT;
    while sent.iter().any(|&sent| sent < EACH) {
        assert!(Instant::now() < deadline, "sent {sent:?} of {EACH}");
        for ((flow, handle), sent) in queues.iter_mut().zip(&mut sent) {
            let until = arrived[usize::from(*flow)].load(Ordering::Acquire) + WINDOW;
            let mut burst = Burst::new();
            for number in *sent..EACH.min(until).min(*sent + most) {
                let packet = handle.arena().packet_from(&frame(*flow, number));
                burst.push(packet.expect("a buffer")).expect("room");
            }
            *sent += burst.len() as u32;
            if !burst.is_empty() {
                let done = handle.send_blocking(&mut burst, TIMEOUT);
                done.expect("it goes on");
            }
            most = most % 32 + 1;
        }
        thread::yield_now();
    }
}

/// Receives a flow; each datagram has to arrive once and in order.
fn consume(socket: &UdpSocket, arrived: &AtomicU32, what: &str) {
    for expected in 0..EACH {
        let mut number = [0; 4];
        let bytes = socket.recv(&mut number);
        let bytes = bytes.unwrap_or_else(|error| panic!("{what}: {expected}: {error}"));
        assert_eq!((bytes, u32::from_be_bytes(number)), (4, expected), "{what}");
        arrived.store(expected + 1, Ordering::Release);
    }
}

/// Beside kernel TCP through the same queues, which are paused and resumed all the time.
fn under(settings: &engine::Settings) {
    let engine::Settings {
        dispatch,
        moderation,
        idle,
        placement,
        ..
    } = settings;
    let what = format!("{dispatch}, {moderation}, {idle}, {placement}");
    let (hosts, session, start) = joined(&what, QUEUES, PRODUCERS.into(), settings);
    let sockets: Vec<_> = (0..FLOWS)
        .map(|flow| {
            let bind = || UdpSocket::bind((Side::Right.ipv4(), FIRST_PORT + flow));
            let socket = hosts.right.netns.run(bind).expect("a thread");
            let socket = socket.expect("the port is free");
            socket.set_read_timeout(Some(TIMEOUT)).expect("a time");
            socket
        })
        .collect();
    let arrived: Vec<_> = (0..FLOWS).map(|_| AtomicU32::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let transfer = thread::scope(|scope| {
        let (what, arrived) = (what.as_str(), arrived.as_slice());
        let (control, is_over) = (session.control(), &is_over);
        for (socket, arrived) in sockets.iter().zip(arrived) {
            scope.spawn(move || consume(socket, arrived, what));
        }
        let pausing = scope.spawn(move || {
            let mut pauses = 0;
            while !is_over.load(Ordering::Relaxed) {
                let queues = match pauses % 3 {
                    0 => Queues::tx(1),
                    one => Queues::tx(1).only(one - 1),
                };
                let done = [Command::Pause, Command::Resume].map(|command| {
                    let done = control.command(queues, command);
                    thread::sleep(Duration::from_millis(1));
                    done
                });
                assert_eq!(done[0], done[1], "{what}");
                done[0].expect("they can be paused");
                pauses += 1;
            }
            pauses
        });
        let producing: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let flows = (producer * QUEUES as u16..).zip(0..QUEUES);
                let handle = |queue| session.handle(1, queue).expect("a queue");
                let own = flows.map(|(flow, queue)| (flow, handle(queue))).collect();
                scope.spawn(move || produce(own, arrived))
            })
            .collect();
        let transfer = Transfer::tcp(IpVersion::V4, Amount::Bytes(4 << 20)).streams(2);
        let transfer = transfer.run(&hosts.left, &hosts.right);
        for thread in producing {
            thread.join().expect("it sends all");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(pausing.join().expect("no panic") > 0, "{what}");
        transfer.expect("the connections survive")
    });
    // The interfaces are removed with the session; TCP may still send its last segments.
    let links = || [&hosts.left, &hosts.right].map(|host| host.stats().expect("counters"));
    wait_for(&format!("{what}: {:?}", links()), || {
        let ports = session.snapshot().ports;
        let given = [0, 1].map(|port: usize| ports[port].tx_total().packets);
        given == links().map(|link| link.rx_packets)
    });
    let links = links();
    let report = session.finish();
    let generated = report.snapshot.ledger.generated;
    assert_eq!(generated, u64::from(FLOWS) * u64::from(EACH), "{what}");
    let tx = report.snapshot.ports[1].tx_total();
    assert!(tx.stall_flush > 0, "{what}: {tx:?}");
    println!("{what}: {} direct, {} deferred", tx.direct, tx.deferred);
    if *dispatch == Dispatch::Deferred {
        assert_eq!(tx.direct, 0, "{what}");
    }
    let account = Account {
        transfer,
        report,
        links,
        lasted: start.elapsed(),
    };
    assert_complete(&account, &what);
}

/// Each dispatch mode with each idle mode, and the other settings among them.
fn producers() {
    need_tap();
    let held_back = Moderation::Fixed {
        usecs: 50,
        frames: 32,
    };
    let moderations = [Moderation::Off, held_back, Moderation::Adaptive];
    let mut index = 0;
    for dispatch in [
        Dispatch::Direct,
        Dispatch::Deferred,
        Dispatch::Abdicate,
        Dispatch::Threshold(8),
        Dispatch::Adaptive,
    ] {
        for idle in [Idle::Halt, Idle::Poll, Idle::Adaptive] {
            index += 1;
            under(&engine::Settings {
                dispatch,
                idle,
                moderation: moderations[(index + index / 3) % 3],
                placement: [Placement::None, Placement::Auto][index % 2].clone(),
                ..engine::Settings::default()
            });
        }
    }
}
