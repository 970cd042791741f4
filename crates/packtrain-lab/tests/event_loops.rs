//! packtrain's example of an event loop, as a program: it joins two TAPs, forwards kernel
//! traffic, and ends after SIGINT.
//!
//! An example is included here, and runs in a process of its own: this executable again, with the
//! example's name.

use packtrain_lab::harness::{self, need_tap, wait_quiet};
use packtrain_lab::netns::Netns;
use packtrain_lab::topology::{Settings, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[path = "../../packtrain/examples/tokio_loop.rs"]
mod tokio_loop;

fn main() -> ExitCode {
    match std::env::args().next().as_deref() {
        Some("tokio_loop") => tokio_loop::main(),
        _ => harness::main(&[
            ("tokio_loop_forwards", || forwards("tokio_loop", 1)),
            ("tokio_loop_forwards_queues", || forwards("tokio_loop", 4)),
        ]),
    }
}

const TCP_BYTES: u64 = 8 << 20;
const UDP_BYTES: u64 = 2 << 20;
/// How long the example may take to end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running example, killed if the test fails.
struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(name: &str, netns: &Netns, args: &[String]) -> Self {
        let executable = std::env::current_exe().expect("this executable has a path");
        let mut command = Command::new(executable);
        command.arg0(name).args(args).stdout(Stdio::piped());
        // A new process is in the namespace of the thread that starts it.
        let child = netns.run(|| command.spawn()).expect("a namespace");
        let mut child = child.expect("the example starts");
        let stdout = child.stdout.take().expect("it is a pipe");
        let stdout = BufReader::new(stdout);
        Self { child, stdout }
    }

    /// Waits until the ports are open with all their queues. If an interface were moved before, the
    /// next queue would make it a second time.
    fn wait_joined(&mut self) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it prints text");
        assert!(line.ends_with("are joined\n"), "it printed {line:?}");
    }

    /// Interrupts it, and returns what it printed.
    fn interrupt(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it is running");
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(start.elapsed() < TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let text = std::io::read_to_string(&mut self.stdout).expect("it prints text");
        assert!(status.success(), "{status}: {text}");
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        if let Ok(None) = self.child.try_wait() {
            self.child.kill().expect("it is our child");
            self.child.wait().expect("it is our child");
        }
    }
}

fn forwards(name: &str, queues: usize) {
    need_tap();
    let middle = Netns::new().expect("namespaces are available");
    let names = ["loop-a", "loop-b"];
    let ports = names.map(|port| format!("tap:{port},queues={queues}"));
    let mut program = Program::start(name, &middle, &ports);
    program.wait_joined();
    // The example's interfaces are moved to the hosts.
    let hosts = TwoHosts::moved(&Settings::default(), &middle, names);
    let hosts = hosts.unwrap_or_else(|error| panic!("{name}: {error}"));
    let ways = [(&hosts.left, &hosts.right), (&hosts.right, &hosts.left)];
    for (from, to) in ways {
        for transfer in [
            Transfer::tcp(IpVersion::V4, Amount::Bytes(TCP_BYTES)).streams(queues as u32),
            Transfer::udp(IpVersion::V4, Amount::Bytes(UDP_BYTES)),
        ] {
            let report = transfer.run(from, to);
            let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(report.hash_ok, "{name}: bytes differ: {report:?}");
        }
    }
    wait_quiet(program.child.id());
    let printed = program.interrupt();
    println!("{name}, {queues} queues: {printed}");
    check(name, &printed);
}

fn check(name: &str, printed: &str) {
    assert!(printed.ends_with("\nclosed\n"), "{name}: {printed}");
    let count = |field: &str| -> u64 {
        let (_, rest) = printed.split_once(field).expect("the ledger has the field");
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        rest[..digits].parse().expect("a number")
    };
    let datagrams = 2 * UDP_BYTES / 1472;
    let segments = 2 * TCP_BYTES / 1460;
    assert!(
        count("received: ") > datagrams + segments,
        "{name}: {printed}"
    );
    assert_eq!(count("held: "), 0, "{name}: {printed}");
    assert_eq!(count("dropped: "), 0, "{name}: {printed}");
}
