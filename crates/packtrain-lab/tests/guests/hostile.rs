//! A guest of this process with two queues: one has chains of every bad kind, in both directions,
//! and the other one carries the TCP of a kernel behind it.

use crate::chains::{either, from_guest};
use crate::guest::{EVENT_IDX, GUEST_BASE, Guest, INDIRECT, MRG_RXBUF, Options, VERSION_1, WRITE};
use packtrain::driver::{Port, PortConfig};
use packtrain::engine::Session;
use packtrain::port::AnyPort;
use packtrain::port::tap::{Tap, TapConfig, TapKind};
use packtrain::port::vhost::{Vhost, VhostConfig};
use packtrain::stats::DropReason;
use packtrain_lab::harness::{need_tap, wait_for};
use packtrain_lab::topology::{Settings, Side, TwoHosts};
use packtrain_lab::{LabError, tap};
use rustix::net::sockopt;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const BYTES: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The rings of the bad queue, from the guest and to it, and the pair of the good one.
const FROM: usize = 1;
const TO: usize = 0;
const GOOD: usize = 1;

/// What the guest has done so far.
#[derive(Default)]
struct Done {
    stop: AtomicBool,
    /// Bad chains from the guest, and bad buffers to it.
    from: AtomicUsize,
    to: AtomicUsize,
}

pub fn bad_chains_of_one_queue_leave_the_tcp_of_another_one_alone() {
    need_tap();
    let folder = crate::Folder::new("hostile");
    // The left host is behind the guest, the right one behind the other port.
    let (hosts, near, far) = TwoHosts::with(&Settings::default(), |side| {
        if side == Side::Left {
            let near = tap::Tap::new("hostile0").multi_queue(false).open()?;
            return Ok::<_, LabError>(("hostile0".to_owned(), (near, None)));
        }
        let far = Tap::open(&TapConfig {
            queues: 2,
            ..TapConfig::new(TapKind::Tap, "hostile1")
        });
        Ok(("hostile1".to_owned(), (vec![], Some(far.expect("a TAP")))))
    })
    .expect("two hosts");
    let near = File::from(near.0.into_iter().next().expect("a descriptor"));
    let socket = folder.socket(0);
    let port = Vhost::open(&VhostConfig {
        queues: 2,
        ..VhostConfig::server(&socket)
    });
    let port = port.expect("it opens");
    let watch = port.watch();
    let ports = [AnyPort::Vhost(port), AnyPort::Tap(far.1.expect("a TAP"))];
    let [guest, far] = ports.map(|driver| Port {
        driver,
        config: PortConfig {
            queues: Some(2),
            ..PortConfig::default()
        },
    });
    let session = Session::between(guest, far).start().expect("it starts");
    let stream = UnixStream::connect(&socket).expect("the port listens");
    let guest = Guest::new(
        stream,
        Options {
            pairs: 2,
            ..Options::new(VERSION_1 | MRG_RXBUF | INDIRECT | EVENT_IDX)
        },
    );
    wait_for("the guest", || watch.status().connected);
    let done = Done::default();
    let kinds = either(0).len() + from_guest().len();
    thread::scope(|scope| {
        let guest = scope.spawn(|| pump(guest, &near, &done));
        scope.spawn(|| disturb(&hosts, &done));
        let listener = hosts.right.netns.run(|| {
            let ip = hosts.right.side.ipv4();
            TcpListener::bind((ip, 0)).expect("a socket")
        });
        let listener = listener.expect("a thread");
        let all = || {
            let made = [&done.from, &done.to].map(|made| made.load(Ordering::Relaxed));
            made[0] >= kinds && made[1] >= either(WRITE).len()
        };
        // At least once with all of them behind it.
        loop {
            let was_all = all();
            exchange(&hosts, &listener);
            if was_all {
                break;
            }
        }
        done.stop.store(true, Ordering::Relaxed);
        let mut guest = guest.join().expect("the guest works");
        // A broken ring of the bad queue stays alone, too.
        let index = guest.rings[FROM].avail.wrapping_add(1000);
        guest.set_avail(FROM, index);
        guest.kick_always(FROM);
        wait_for("a broken ring", || watch.status().problem.is_some());
        done.stop.store(false, Ordering::Relaxed);
        let guest = scope.spawn(|| carry_alone(guest, &near, &done));
        exchange(&hosts, &listener);
        done.stop.store(true, Ordering::Relaxed);
        guest.join().expect("the guest works");
    });
    let bad_buffers = watch.status().bad_buffers;
    let report = session.finish();
    assert!(report.error.is_none(), "{:?}", report.error);
    let snapshot = &report.snapshot;
    assert!(snapshot.ledger.closed(), "{:?}", snapshot.ledger);
    let [guest, _] = &snapshot.ports[..] else {
        panic!("two ports");
    };
    // Each bad chain costs one packet, and so does the ring that was broken in the end.
    let bad = done.from.load(Ordering::Relaxed) as u64 + 1;
    let counted = [&guest.rx[0], &guest.rx[1]].map(|queue| queue.bad_packets);
    assert_eq!(counted, [bad, 0], "{:?}", snapshot.drops);
    assert!(bad_buffers >= either(WRITE).len() as u64, "{bad_buffers}");
    // Packets for the bad queue: dropped when its ring broke, or still waiting in the end.
    let lost = [DropReason::LinkDown, DropReason::Shutdown];
    let lost: u64 = lost.map(|reason| snapshot.drops.get(reason)).iter().sum();
    assert!(
        lost > 0 && snapshot.drops.total() >= bad,
        "{:?}",
        snapshot.drops
    );
    assert!(guest.rx[1].bytes as usize > 2 * BYTES && guest.tx[1].bytes as usize > 2 * BYTES);
}

/// The left host connects, so that the right one's TAP sends the connection to the good queue. Each
/// sends what the other one checks.
fn exchange(hosts: &TwoHosts, listener: &TcpListener) {
    let place = listener.local_addr().expect("an address");
    let sent: Vec<u8> = (0..BYTES).map(|at| (at * 31 + at / 251) as u8).collect();
    let near = hosts
        .left
        .netns
        .run(|| TcpStream::connect_timeout(&place, TIMEOUT));
    let near = near.expect("a thread").expect("a connection");
    // A TAP forgets after three seconds in which queue a flow arrived, and may send it to the bad
    // one then (`TUN_FLOW_EXPIRE`): so the left host says something each second.
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(&near, second).expect("an option");
    sockopt::set_tcp_keepintvl(&near, second).expect("an option");
    sockopt::set_socket_keepalive(&near, true).expect("an option");
    let (far, _) = listener.accept().expect("a connection");
    for (mut from, mut to) in [(&near, &far), (&far, &near)] {
        from.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
        to.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let arrived = thread::scope(|scope| {
            scope.spawn(|| {
                from.write_all(&sent).expect("it is sent");
                from.shutdown(Shutdown::Write).expect("an end");
            });
            let mut arrived = Vec::new();
            to.read_to_end(&mut arrived).expect("it arrives");
            arrived
        });
        assert!(arrived == sent, "{} bytes", arrived.len());
    }
}

/// Datagrams from the right host, whose TAP sends about half of them to the bad queue.
fn disturb(hosts: &TwoHosts, done: &Done) {
    let to = (hosts.left.side.ipv4(), 9);
    let sockets = hosts.right.netns.run(|| {
        let ip = hosts.right.side.ipv4();
        let sockets = (0..16).map(|_| UdpSocket::bind((ip, 0)).expect("a socket"));
        sockets.collect::<Vec<_>>()
    });
    for socket in sockets.expect("a thread").iter().cycle() {
        if done.stop.load(Ordering::Relaxed) {
            return;
        }
        // A queue that is full refuses it, and so does a host that has no such port.
        socket.send_to(&[0; 100], to).unwrap_or(0);
        thread::sleep(Duration::from_micros(300));
    }
}

/// The guest: carries packets between its TAP and the good queue, and fills the bad one.
fn pump(mut guest: Guest, near: &File, done: &Done) -> Guest {
    let (either_from, from, to) = (either(0), from_guest(), either(WRITE));
    let count = either_from.len() + from.len();
    let mut returned = guest.rings[FROM].avail;
    while !done.stop.load(Ordering::Relaxed) {
        let mut is_idle = !carry(&mut guest, near, done);
        // The last one was taken: the next one.
        if guest.used(FROM) == returned
            && let Some(slot) = guest.slot(FROM)
        {
            let number = done.from.load(Ordering::Relaxed) % count;
            let at = GUEST_BASE + guest.buffer(FROM, slot);
            match either_from.get(number) {
                Some((_, write)) => write(&mut guest, FROM, slot, at),
                None => from[number - either_from.len()].2(&mut guest, FROM, slot, at),
            }
            guest.push(FROM, slot);
            guest.kick(FROM, 1);
            returned = returned.wrapping_add(1);
            done.from.fetch_add(1, Ordering::Relaxed);
            is_idle = false;
        }
        // The second descriptor of a chain is that of a buffer that is never posted again.
        // The port takes bad buffers as fast as they are posted: between a few, the good queue.
        for _ in 0..64 {
            let Some((head, _)) = guest.take_used(TO) else {
                break;
            };
            if head.is_multiple_of(2) {
                let number = done.to.load(Ordering::Relaxed) % to.len();
                let at = GUEST_BASE + guest.buffer(TO, head);
                to[number].1(&mut guest, TO, head, at);
                guest.push(TO, head);
                guest.kick(TO, 1);
                done.to.fetch_add(1, Ordering::Relaxed);
            }
        }
        if is_idle {
            thread::sleep(Duration::from_micros(50));
        }
    }
    // What is on its way is counted.
    wait_for("the last bad chain", || guest.used(FROM) == returned);
    guest
}

fn carry_alone(mut guest: Guest, near: &File, done: &Done) {
    while !done.stop.load(Ordering::Relaxed) {
        if !carry(&mut guest, near, done) {
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Carries what is there by the good queue, and returns whether there was anything.
fn carry(guest: &mut Guest, mut near: &File, done: &Done) -> bool {
    let mut carried = false;
    let mut frame = [0; 2048];
    for _ in 0..64 {
        let bytes = match near.read(&mut frame) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        };
        while !guest.send(GOOD, &[0; 12], &frame[..bytes]) && !done.stop.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        carried = true;
    }
    for _ in 0..64 {
        let Some((_, bytes)) = guest.receive(GOOD) else {
            break;
        };
        let written = near.write(&bytes).expect("the host takes it");
        assert_eq!(written, bytes.len());
        carried = true;
    }
    carried
}
