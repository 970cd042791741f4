//! DPDK's `dpdk-testpmd` as a child process, without huge pages and without PCI devices.

use crate::process::Error;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take to be ready, and to end.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Each has a folder of its own in DPDK's.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// Packets of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// That arrived.
    pub received: u64,
    /// That it sent.
    pub sent: u64,
}

/// A testpmd that runs. Dropped, it is killed. It also ends if this process is killed, since its
/// standard input is closed then.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    lines: Receiver<String>,
    devices: usize,
    prefix: String,
}

impl Testpmd {
    /// Starts it in the network namespace of the calling thread, with one thread that forwards, and
    /// waits until it does. `cpus` are those of its main thread and of the one that forwards.
    pub fn start(cpus: [u32; 2], devices: &[String], more: &[&str]) -> Result<Self, Error> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("packtrain-ports-{}-{number}", std::process::id());
        let [main, forward] = cpus;
        // It is executed in place of `stdbuf`, which has it write each line at once.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]);
        command.arg(format!("--lcores=0@{main},1@{forward}"));
        command.arg(format!("--file-prefix={prefix}"));
        command.args(["--no-huge", "-m", "512", "--no-pci", "--no-telemetry"]);
        command.args(devices.iter().map(|device| format!("--vdev={device}")));
        command.args(["--", "-i", "--auto-start", "--nb-cores=1"]);
        command.args(["--no-mlockall", "--total-num-mbufs=16384"]);
        command.arg("--disable-link-check").args(more);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("start stdbuf, for dpdk-testpmd: {error}"))?;
        let (sender, lines) = channel();
        let output = child.stdout.take().ok_or("no standard output")?;
        let errors = child.stderr.take().ok_or("no standard error")?;
        follow(output, sender.clone());
        follow(errors, sender);
        let devices = devices.len();
        let mut testpmd = Self {
            child,
            lines,
            devices,
            prefix,
        };
        testpmd.packets()?;
        Ok(testpmd)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn command(&mut self, line: &str) -> Result<(), Error> {
        let input = self.child.stdin.as_mut().ok_or("no standard input")?;
        match writeln!(input, "{line}") {
            // It has ended: what it printed says why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// The packets of each device so far.
    pub fn packets(&mut self) -> Result<Vec<Packets>, Error> {
        self.command("show port stats all")?;
        let until = Instant::now() + TIME_MAX;
        let (mut all, mut received, mut last) = (Vec::new(), 0, String::new());
        while all.len() < self.devices {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                return Err(format!("dpdk-testpmd is not ready: {last}").into());
            };
            if let Some(packets) = counter(&line, "RX-packets:") {
                received = packets;
            } else if let Some(sent) = counter(&line, "TX-packets:") {
                all.push(Packets { received, sent });
            }
            if !line.trim().is_empty() {
                last = line;
            }
        }
        Ok(all)
    }

    /// Has it quit, and waits for its end.
    pub fn end(mut self) -> Result<(), Error> {
        self.command("quit")?;
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > TIME_MAX {
                return Err("dpdk-testpmd does not quit".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // After `end` there is nothing left to kill or wait for.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let ended = self.child.kill().and_then(|()| self.child.wait());
            debug_assert!(ended.is_ok(), "{ended:?}");
        }
        // It leaves this folder behind. As an ordinary user it has made none there.
        let folder = format!("/run/dpdk/{}", self.prefix);
        if let Err(error) = fs::remove_dir_all(&folder)
            && error.kind() != ErrorKind::NotFound
        {
            eprintln!("ports: remove {folder}: {error}");
        }
    }
}

/// Passes on each line, until the process ends.
fn follow(output: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.try_for_each(|line| sender.send(line))
    });
}

/// The number behind `name` in a line.
fn counter(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}
