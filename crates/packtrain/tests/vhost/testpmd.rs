//! DPDK's `dpdk-testpmd` as front end, through its virtio-user driver: killed and started again in
//! the middle, the same number of packets is counted on both sides. With `PACKTRAIN_FULL=1` each
//! test passes ten million of them.

use packtrain::driver::Link;
use packtrain::engine::{Command, Queues, Session, Snapshot};
use packtrain::port;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PROGRAM: &str = "dpdk-testpmd";
/// The longest time of any step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// One at a time: each takes a CPU and half a gigabyte.
static ONE: Mutex<()> = Mutex::new(());

/// Packets of a test, half of them for each of its two front ends.
fn packets() -> u64 {
    let full = std::env::var_os("PACKTRAIN_FULL").is_some_and(|full| full == "1");
    if full { 10_000_000 } else { 100_000 }
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

/// What a test has beside its kind.
struct Setting {
    name: &'static str,
    /// Keys of the port, each behind a comma.
    keys: &'static str,
    /// Properties of the device of the front end.
    device: &'static str,
    queues: usize,
    /// DPDK's offloads of received packets and of sent ones (`RTE_ETH_RX_OFFLOAD`,
    /// `RTE_ETH_TX_OFFLOAD`). Its driver negotiates those only.
    offloads: [u32; 2],
}

/// Checksums of UDP and TCP, and large packets of TCP in several buffers.
const LARGE: [u32; 2] = [0x1C, 0x802C];
const CHECKSUMS: [u32; 2] = [0xC, 0x800C];
const NONE: [u32; 2] = [0, 0x8000];

/// Descriptors of the longest ring.
const RING: u64 = 1024;

/// A running testpmd. It is killed when it is dropped.
struct Testpmd {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Testpmd {
    /// Starts it, without forwarding.
    fn new(path: &Path, setting: &Setting, mode: &str) -> Self {
        let Setting {
            device,
            queues,
            offloads: [rx, tx],
            ..
        } = setting;
        let path = path.display();
        let vdev = format!("--vdev=net_virtio_user0,path={path},queues={queues},{device}");
        // It is executed in place of `stdbuf`, which has it write each line at once.
        let mut command = process::Command::new("stdbuf");
        command.args(["-oL", PROGRAM, "-l", "0,1", "--no-huge", "-m", "512"]);
        command.args(["--no-pci", "--no-telemetry"]);
        command.args([&format!("--file-prefix={}", prefix()), &vdev]);
        command.args(["--", "-i", "--nb-cores=1", "--no-mlockall"]);
        command.args(["--disable-device-start", "--total-num-mbufs=16384"]);
        command.args([
            format!("--forward-mode={mode}"),
            format!("--rxq={queues}"),
            format!("--txq={queues}"),
            format!("--rx-offloads={rx:#x}"),
            format!("--tx-offloads={tx:#x}"),
        ]);
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
        let mut testpmd = Self {
            child,
            lines,
            seen: Vec::new(),
        };
        if mode == "csum" {
            // What the device does not do, it does itself. Segments are of 1000 bytes.
            let by = |bit: u32| if tx & bit == 0 { "sw" } else { "hw" };
            for (name, bit) in [("udp", 4), ("tcp", 8)] {
                testpmd.command(&format!("csum set {name} {} 0", by(bit)));
            }
            if tx & 0x20 != 0 {
                testpmd.command("tso set 1000 0");
            }
        }
        testpmd.command("port start all");
        testpmd.command("start");
        testpmd
    }

    fn command(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Packets that its port has received and sent until now.
    fn counts(&mut self) -> [u64; 2] {
        self.command("show port stats all");
        ["RX-packets:", "TX-packets:"].map(|name| self.next(name))
    }

    /// Stops forwarding. The received packets that it did not send.
    fn dropped(&mut self) -> u64 {
        self.command("stop");
        // The counts of each stream of packets come before those of the port.
        self.next("RX-total:");
        self.next("TX-dropped:")
    }

    /// The number behind the next `name` that it prints.
    fn next(&mut self, name: &str) -> u64 {
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
        // By SIGKILL.
        self.child.kill().unwrap_or(());
        self.child.wait().expect("it was a child");
        // It leaves this folder behind.
        let folder = format!("/run/dpdk/{}", prefix());
        match fs::remove_dir_all(&folder) {
            // It did not come to make it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.unwrap_or_else(|error| println!("remove {folder}: {error}")),
        }
    }
}

/// The name of the folder that each testpmd of this process has in DPDK's.
fn prefix() -> String {
    format!("packtrain{}", process::id())
}

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until both sides have counted the same, `[here, there]`, in each direction, and no more
/// arrives.
fn settle(mut count: impl FnMut() -> [[u64; 2]; 2]) -> [u64; 2] {
    let until = Instant::now() + PATIENCE;
    let mut last = None;
    loop {
        let now = count();
        if last == Some(now) && now.iter().all(|[here, there]| here == there) {
            return now.map(|[here, _]| here);
        }
        assert!(Instant::now() < until, "counted here and by DPDK: {now:?}");
        last = Some(now);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Packets to the guest and from it until now.
fn passed(session: &Session) -> [u64; 2] {
    let port = &session.snapshot().ports[0];
    [port.tx_total().packets, port.rx_total().packets]
}

/// Passes packets through two front ends in `mode`, the first of which is killed in the middle,
/// where the port is joined to `other`.
fn pass(setting: &Setting, mode: &str, other: &str) -> Option<Snapshot> {
    let (_one, path) = begin(setting.name)?;
    let Setting { keys, queues, .. } = setting;
    let vhost = format!("vhost-user:{},server,queues={queues}{keys}", path.display());
    let other = format!("{other},queues={queues}");
    let [vhost, other] = [vhost, other].map(|text| port::open(&text).expect("it opens"));
    let mut session = Session::between(vhost, other).start().expect("it starts");
    let source = Queues::rx(1);
    // DPDK discards, and does not count, what it finds in its rings when it starts the port
    // (`virtqueue_rxvq_flush`). So packets come once it is at its prompt.
    let start = |session: &Session| {
        session.command(source, Command::Pause).expect("it runs");
        let mut testpmd = Testpmd::new(&path, setting, mode);
        assert_eq!(testpmd.counts()[0], 0);
        session.command(source, Command::Resume).expect("it runs");
        testpmd
    };
    let half = packets() / 2;
    let has_half = |now: [u64; 2], before: [u64; 2]| match mode {
        "rxonly" => now[0] - before[0] > half,
        _ => now[1] - before[1] > half,
    };

    let mut first = start(&session);
    wait("half of the packets", || has_half(passed(&session), [0; 2]));
    let there = first.counts();
    drop(first);
    wait("no link", || session.links()[0] == Link::Down);
    let before = settle(|| passed(&session).map(|count| [count; 2]));
    // Nothing that passed is lost with it, but what was in the rings to the port.
    let in_rings = *queues as u64 * RING;
    let is_kept = before[0] >= there[0] && before[1] + in_rings >= there[1];
    assert!(is_kept, "here {before:?}, by DPDK {there:?}");

    let mut second = start(&session);
    wait("the other half", || has_half(passed(&session), before));
    session.command(source, Command::Pause).expect("it runs");
    if mode == "txonly" {
        second.command("stop");
    }
    let [to, from] = settle(|| {
        let (here, there) = (passed(&session), second.counts());
        [0, 1].map(|way| [here[way] - before[way], there[way]])
    });
    let lost = match mode {
        // What it received it has sent, or dropped since its ring was full.
        "csum" => {
            let lost = second.dropped();
            assert_eq!(to, from + lost, "{lost} dropped by DPDK");
            lost
        }
        _ => 0,
    };
    drop(second);
    println!(
        "{}: {before:?} packets to DPDK and from it; by the second front end {:?}, of which it \
         dropped {lost}",
        setting.name,
        [to, from],
    );
    let snapshot = session.finish().into_result().expect("no device failed");
    assert!(snapshot.ledger.closed());
    // While no front end is connected.
    let drops = snapshot.drops.nonzero().map(|(reason, _)| reason.name());
    let drops: Vec<_> = drops.collect();
    let expected: &[&str] = if mode == "txonly" {
        &[]
    } else {
        &["link_down"]
    };
    assert_eq!(drops, expected);
    assert!(!path.exists(), "the socket is removed");
    let port = &snapshot.ports[0];
    for queue in 0..*queues {
        let counts = [port.tx[queue].packets, port.rx[queue].packets];
        let is_used = counts.map(|count| count > 0);
        assert_eq!(is_used, [mode != "txonly", mode != "rxonly"], "{queue}");
    }
    Some(snapshot)
}

/// DPDK sends all packets back. Those to it are merged, of up to three packets; those from it are
/// large and without checksums, as it has negotiated.
fn echoes(setting: &Setting) {
    let source = "null:source,proto=tcp,flows=8,coalesce=on,gro-bytes=4500";
    let Some(snapshot) = pass(setting, "csum", source) else {
        return;
    };
    let (tx, rx) = (snapshot.ports[0].tx_total(), snapshot.ports[0].rx_total());
    let has_large = setting.offloads == LARGE;
    assert_eq!(tx.gso_packets > 0, has_large, "{tx:?}");
    assert_eq!(rx.gso_packets > 0, has_large, "{rx:?}");
    assert_eq!(rx.csum_unnecessary > 0, setting.offloads != NONE, "{rx:?}");
}

/// One queue, and all that the port and DPDK have in common.
const ALL: Setting = Setting {
    name: "all",
    keys: "",
    device: "queue_size=1024",
    queues: 1,
    offloads: LARGE,
};
const TWO_QUEUES: Setting = Setting {
    device: "cq=1,queue_size=1024",
    queues: 2,
    ..ALL
};

#[test]
fn dpdk_sends_from_two_queues() {
    let setting = Setting {
        name: "sends",
        offloads: NONE,
        ..TWO_QUEUES
    };
    pass(&setting, "txonly", "null:");
}

#[test]
fn dpdk_receives_in_two_queues() {
    let setting = Setting {
        name: "receives",
        offloads: NONE,
        ..TWO_QUEUES
    };
    pass(&setting, "rxonly", "null:source,bytes=64");
}

#[test]
fn dpdk_echoes_large_packets() {
    echoes(&ALL);
}

#[test]
fn dpdk_echoes_large_packets_of_two_queues() {
    echoes(&Setting {
        name: "two-queues",
        ..TWO_QUEUES
    });
}

#[test]
fn dpdk_echoes_with_checksums_of_both_sides() {
    echoes(&Setting {
        name: "checksums",
        keys: ",offload=csum",
        offloads: CHECKSUMS,
        ..ALL
    });
}

/// Each receive buffer is a chain of its own.
#[test]
fn dpdk_echoes_without_mergeable_buffers() {
    echoes(&Setting {
        name: "not-mergeable",
        device: "queue_size=256,mrg_rxbuf=0",
        offloads: CHECKSUMS,
        ..ALL
    });
}

#[test]
fn dpdk_echoes_without_the_offloads_of_the_port() {
    echoes(&Setting {
        name: "unwanted",
        offloads: NONE,
        ..ALL
    });
}

#[test]
fn dpdk_echoes_without_offloads() {
    echoes(&Setting {
        name: "off",
        keys: ",offload=off",
        offloads: NONE,
        ..ALL
    });
}
