//! DPDK's `dpdk-testpmd` as front end, through its virtio-user driver: the same number of packets
//! is counted on both sides. With `PACKTRAIN_FULL=1` ten million of them.

use packtrain::driver::Link;
use packtrain::engine::{Command, Queues, Session};
use packtrain::port;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PROGRAM: &str = "dpdk-testpmd";
/// The longest time of any step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// One at a time: each takes a CPU and half a gigabyte.
static ONE: Mutex<()> = Mutex::new(());

fn packets() -> u64 {
    let full = std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1");
    if full { 10_000_000 } else { 200_000 }
}

/// The socket of a test, or the reason why it is not run.
fn begin(name: &str) -> Option<(MutexGuard<'static, ()>, PathBuf)> {
    match process::Command::new(PROGRAM).arg("--version").output() {
        Ok(_) if rustix::process::geteuid().is_root() => {}
        Ok(_) => {
            println!("SKIP: {name}: {PROGRAM} needs root");
            return None;
        }
        Err(error) => {
            println!("SKIP: {name}: {PROGRAM} (package dpdk-dev): {error}");
            return None;
        }
    }
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = format!("packtrain-{}-{name}.sock", process::id());
    Some((guard, std::env::temp_dir().join(file)))
}

/// A running testpmd. It is killed when it is dropped.
struct Testpmd {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Testpmd {
    fn start(path: &Path, mode: &str, device: &str, more: &[&str]) -> Self {
        let vdev = format!("--vdev=net_virtio_user0,path={},{device}", path.display());
        let prefix = format!("--file-prefix=packtrain{}", process::id());
        // It is executed in place of `stdbuf`, which has it write each line at once.
        let mut command = process::Command::new("stdbuf");
        command.args(["-oL", PROGRAM]);
        command.args([
            "-l",
            "0,1",
            "--no-huge",
            "-m",
            "512",
            "--no-pci",
            "--no-telemetry",
        ]);
        command.args([&prefix, &vdev, "--", "-i", "--nb-cores=1", "--no-mlockall"]);
        command.args(["--total-num-mbufs=4096", &format!("--forward-mode={mode}")]);
        command.args(more).arg("--auto-start");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    fn command(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{line}").expect("it reads");
    }

    /// The counter `name` of its port, as it is now.
    fn counter(&mut self, name: &str) -> u64 {
        self.command("show port stats all");
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("no {name} in {:#?}", self.seen));
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                if word == name {
                    let value = words.next().expect("a number");
                    return value.parse().expect("a number");
                }
            }
            self.seen.push(line);
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        self.child.kill().unwrap_or(());
        self.child.wait().expect("it was a child");
    }
}

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until both sides have counted the same, `[here, there]`, and no more arrives.
fn settle(mut count: impl FnMut() -> [u64; 2]) -> u64 {
    let until = Instant::now() + PATIENCE;
    let mut last = [0; 2];
    loop {
        let now = count();
        if now == last && now[0] == now[1] {
            return now[0];
        }
        assert!(Instant::now() < until, "counted here and by DPDK: {now:?}");
        last = now;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn session(path: &Path, keys: &str, other: &str) -> Session {
    let vhost = format!("vhost-user:{},server{keys}", path.display());
    let ports = [vhost.as_str(), other].map(|text| port::open(text).expect("it opens"));
    let [vhost, other] = ports;
    Session::between(vhost, other).start().expect("it starts")
}

/// Packets from the guest, with two front ends, the first of which is killed.
fn sends(name: &str, keys: &str, device: &str, more: &[&str]) {
    let Some((_one, path)) = begin(name) else {
        return;
    };
    let mut session = session(&path, keys, "null:");
    let received = |session: &Session| session.snapshot().ledger.received;
    let first = Testpmd::start(&path, "txonly", device, more);
    wait("packets of the first", || {
        received(&session) > packets() / 4
    });
    // By SIGKILL.
    drop(first);
    wait("no link", || session.links()[0] == Link::Down);
    let before = settle(|| [received(&session); 2]);
    let mut second = Testpmd::start(&path, "txonly", device, more);
    wait("packets of the second", || {
        received(&session) > before + packets()
    });
    second.command("stop");
    let count = settle(|| [received(&session) - before, second.counter("TX-packets:")]);
    assert!(count >= packets(), "{count}");
    drop(second);
    let snapshot = session.finish().into_result().expect("no device failed");
    assert!(snapshot.ledger.closed());
    assert_eq!(snapshot.drops.total(), 0, "{:?}", snapshot.drops);
    assert!(!path.exists(), "the socket is removed");
}

/// Packets to the guest, which is killed in the middle.
fn receives(name: &str, keys: &str, device: &str, more: &[&str]) {
    let Some((_one, path)) = begin(name) else {
        return;
    };
    let mut session = session(&path, keys, "null:source,bytes=64");
    let sent = |session: &Session| session.snapshot().ledger.transmitted;
    // DPDK discards, and does not count, what it finds in its rings when it starts the port
    // (`virtqueue_rxvq_flush`). So packets come once it is at its prompt.
    let start = |session: &Session| {
        let source = Queues::rx(1);
        session.command(source, Command::Pause).expect("it runs");
        let mut testpmd = Testpmd::start(&path, "rxonly", device, more);
        assert_eq!(testpmd.counter("RX-packets:"), 0);
        session.command(source, Command::Resume).expect("it runs");
        testpmd
    };
    let first = start(&session);
    wait("packets to the first", || sent(&session) > packets() / 4);
    drop(first);
    wait("no link", || session.links()[0] == Link::Down);
    let before = settle(|| [sent(&session); 2]);
    let mut second = start(&session);
    wait("packets to the second", || {
        sent(&session) > before + packets()
    });
    session.stop();
    let count = settle(|| [sent(&session) - before, second.counter("RX-packets:")]);
    assert!(count >= packets(), "{count}");
    drop(second);
    let snapshot = session.finish().into_result().expect("no device failed");
    assert!(snapshot.ledger.closed());
    // While no front end is connected.
    let drops: Vec<_> = snapshot
        .drops
        .nonzero()
        .map(|(reason, _)| reason.name())
        .collect();
    assert_eq!(drops, ["link_down"]);
}

const ONE_QUEUE: &str = "queues=1,queue_size=256";
const TWO: [&str; 2] = ["--rxq=2", "--txq=2"];

#[test]
fn dpdk_sends() {
    sends("sends", "", ONE_QUEUE, &[]);
}

#[test]
fn dpdk_sends_without_offloads() {
    sends("sends-off", ",offload=off", "queues=1,queue_size=1024", &[]);
}

#[test]
fn dpdk_sends_from_two_queues() {
    sends(
        "sends-two",
        ",queues=2",
        "queues=2,cq=1,queue_size=256",
        &TWO,
    );
}

#[test]
fn dpdk_receives() {
    receives("receives", "", ONE_QUEUE, &[]);
}

#[test]
fn dpdk_receives_without_mergeable_buffers() {
    receives(
        "receives-plain",
        "",
        "queues=1,queue_size=256,mrg_rxbuf=0",
        &[],
    );
}

#[test]
fn dpdk_receives_in_two_queues() {
    receives(
        "receives-two",
        ",queues=2,offload=csum",
        "queues=2,cq=1,queue_size=256",
        &TWO,
    );
}
