//! A guest with cards, `packtrain forward` in it, and what that counted.

use crate::program::PACKTRAIN;
use packtrain_lab::guest::{Card, Guest, GuestConfig, Job};
use packtrain_lab::harness::{need_guest, need_tap};
use packtrain_lab::link::LinkStats;
use packtrain_lab::netns;
use packtrain_lab::tap::Tap;
use packtrain_lab::topology::{Host, Settings, Side, TwoHosts};
use packtrain_lab::traffic::{Amount, IpVersion, Transfer};
use serde_json::Value;
use std::fmt::Display;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Of each TCP transfer, and of each UDP transfer.
const TCP_BYTES: u64 = 512 << 10;
const UDP_BYTES: u64 = 100 << 10;
/// Nothing is on its way after this time without a packet, which a slow guest needs.
const QUIET: Duration = Duration::from_millis(150);
const TIMEOUT: Duration = Duration::from_secs(60);
/// Flows of UDP, their ports, and where they go.
pub const FLOWS: u16 = 64;
const PORTS: u16 = 20_000;
const TO: u16 = 30_000;

/// A guest with packtrain, these programs and these cards.
pub fn boot(programs: Vec<PathBuf>, cards: Vec<Card>) -> Guest {
    let mut config = GuestConfig::new(need_guest());
    config.programs = programs;
    config.programs.push(PACKTRAIN.into());
    config.cards = cards;
    // QEMU sometimes loses a timer on a busy host. A periodic one comes again.
    config.kernel_line = "nohz=off highres=off".to_owned();
    let guest = Guest::start(config).unwrap_or_else(|error| panic!("{error}"));
    println!("boot: {} ms", guest.boot_time().as_millis());
    guest
}

/// A line of the guest's shell that succeeds; what it prints.
pub fn check(guest: &Guest, line: &str) -> String {
    let checked = guest.check(line);
    let output = checked.unwrap_or_else(|error| panic!("{error}"));
    output.trim_end().to_owned()
}

/// The guest's kernel has seen no fault of a card, and no process that is stuck.
pub fn assert_healthy(guest: &Guest) {
    assert_eq!(guest.iommu_faults().expect("a log"), [""; 0]);
    let log = check(guest, "dmesg");
    let wrong = [
        "BUG:",
        "Oops",
        "Call Trace",
        "blocked for more than",
        "stall",
    ];
    let lines: Vec<_> = log
        .lines()
        .filter(|line| wrong.iter().any(|word| line.contains(word)))
        .collect();
    assert_eq!(lines, [""; 0]);
}

/// Two hosts with a TAP of so many queues each, for a card each. The virtio-net header has QEMU
/// pass on what the card has to segment: QEMU 7.2 itself makes IP fragments of it.
pub fn hosts(queues: usize) -> (TwoHosts, [Vec<OwnedFd>; 2]) {
    need_tap();
    let made = TwoHosts::taps(&Settings::default(), |side| {
        let tap = Tap::new(side.of(["left", "right"]));
        tap.queues(queues).multi_queue(queues > 1).vnet_hdr(true)
    });
    let (hosts, left, right) = made.unwrap_or_else(|error| panic!("{error}"));
    (hosts, [left, right])
}

/// `packtrain forward` in a guest.
pub struct Run<'a> {
    guest: &'a Guest,
    job: Job<'a>,
    what: String,
    log: String,
}

impl<'a> Run<'a> {
    /// Starts it, and waits until it has both cards.
    pub fn start(guest: &'a Guest, a: &str, b: &str) -> Self {
        let what = format!("{a} {b}");
        println!("{what}");
        // More than one may run at a time.
        let log = format!("/run/{}.log", what.replace(' ', "-"));
        let line = format!("exec packtrain forward {what} --json 2>{log}");
        let job = guest.begin(&line).unwrap_or_else(|error| panic!("{error}"));
        // The interrupts are connected right before a card receives.
        let addresses = [a, b].map(|port| {
            let address = port.split_once(':').expect("a port").1;
            address.split(',').next().expect("an address")
        });
        let has = addresses.map(|address| format!("grep -q {address} /proc/interrupts"));
        let ended = format!("[ -s {log} ]");
        let [a, b] = has;
        check(
            guest,
            &format!("until {{ {a} && {b}; }} || {ended}; do sleep 0.02; done; sleep 0.1"),
        );
        Self {
            guest,
            job,
            what,
            log,
        }
    }

    /// For a failure: ends it, and returns what it has said and counted.
    pub fn said(&self) -> String {
        self.job.signal("INT").expect("a guest");
        let said = check(self.guest, &format!("sleep 3; cat {}", self.log));
        format!("{said}\n{}", self.job.output().expect("a guest"))
    }

    /// Its end by SIGINT, with no frame between these ends. A frame may wait in QEMU, or in a TAP,
    /// which counts it only when QEMU reads it. Datagrams that pass both ways pass after all
    /// earlier frames. The second exchange does the same for the replies to those.
    pub fn end_between(self, ends: &[End<'_>; 2]) -> Document {
        flows(ends);
        flows(ends);
        settle(ends);
        self.end()
    }

    /// Its end by SIGINT, with nothing left to do.
    pub fn end(self) -> Document {
        self.job.signal("INT").expect("a guest");
        let (status, document) = self.wait();
        assert_eq!(status, 0, "{document:?}");
        assert_eq!(document.json["run"]["error"], Value::Null, "{document:?}");
        document
    }

    /// Its end by itself: its exit code, and what it counted. Its ledger is closed.
    pub fn wait(self) -> (i32, Document) {
        let (guest, log) = (self.guest, self.log);
        let output = self.job.wait().unwrap_or_else(|error| panic!("{error}"));
        let said = check(guest, &format!("cat {log}"));
        let json = serde_json::from_str(&output.stdout);
        let json = json.unwrap_or_else(|error| panic!("{}: {error}: {output:?} {said}", self.what));
        let document = Document {
            json,
            what: self.what,
            said,
        };
        let conservation = &document.json["conservation"];
        assert_eq!(conservation["closed"], true, "{document:?}");
        assert_eq!(conservation["held"], 0, "{document:?}");
        (output.status, document)
    }
}

/// What a run has counted. Ports are named by the addresses of their cards.
pub struct Document {
    pub json: Value,
    what: String,
    /// Its standard error.
    pub said: String,
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let json = &self.json;
        let (run, ports) = (&json["run"], json["ports"].as_object());
        write!(f, "{} {}\n{run}\n", self.what, self.said)?;
        for (name, port) in ports.into_iter().flatten() {
            write!(f, "{name}:")?;
            let counts = port.as_object().into_iter().flatten();
            for (what, counts) in counts {
                write!(f, "\n  {what}:")?;
                for (key, value) in counts.as_object().into_iter().flatten() {
                    if value.as_u64().is_some_and(|value| value > 0) {
                        write!(f, " {key} {value}")?;
                    }
                }
            }
            writeln!(f)?;
        }
        write!(f, "{} {}", json["drops"], json["conservation"])
    }
}

impl Document {
    fn queues(&self, port: &str, half: &'static str) -> impl Iterator<Item = &Value> {
        let port = self.json["ports"][port].as_object();
        let port = port.unwrap_or_else(|| panic!("no such port: {self:?}"));
        let queues = port.iter().filter(move |(key, _)| key.starts_with(half));
        queues.map(|(_, queue)| queue)
    }

    fn count(&self, of: &Value, key: &str) -> u64 {
        let count = of[key].as_u64();
        count.unwrap_or_else(|| panic!("no {key}: {self:?}"))
    }

    /// Of each queue of one half: `rxq` or `txq`.
    pub fn each(&self, port: &str, half: &'static str, key: &str) -> Vec<u64> {
        let queues = self.queues(port, half);
        queues.map(|queue| self.count(queue, key)).collect()
    }

    pub fn rx(&self, port: &str, key: &str) -> u64 {
        self.each(port, "rxq", key).iter().sum()
    }

    pub fn tx(&self, port: &str, key: &str) -> u64 {
        self.each(port, "txq", key).iter().sum()
    }

    pub fn device(&self, port: &str, key: &str) -> u64 {
        self.count(&self.json["ports"][port]["device"], key)
    }

    /// Packets that were dropped for this reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.json["drops"][reason].as_u64().unwrap_or(0)
    }

    pub fn all_dropped(&self) -> u64 {
        self.count(&self.json["conservation"], "dropped")
    }
}

/// One end of a case: a card and the host at its TAP.
#[derive(Clone, Copy)]
pub struct End<'a> {
    pub host: &'a Host,
    pub address: &'a str,
    pub kind: &'static str,
}

impl End<'_> {
    pub fn port(&self, keys: impl Display) -> String {
        format!("{}:{}{keys}", self.kind, self.address)
    }

    pub fn is_virtio(&self) -> bool {
        self.kind == "virtio"
    }

    fn stats(&self) -> LinkStats {
        self.host.stats().expect("the TAP")
    }
}

/// TCP both ways with each IP version, and UDP: all bytes arrive.
pub fn exchange(ends: &[End<'_>; 2], what: impl Fn() -> String) {
    let run = |from: &End<'_>, to: &End<'_>, transfer: Transfer| {
        let report = transfer.run(from.host, to.host);
        let report = report.unwrap_or_else(|error| panic!("{error}: {}", what()));
        assert!(report.hash_ok, "{report:?}: {}", what());
    };
    for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        for &ip in netns::ip_versions() {
            run(from, to, Transfer::tcp(ip, Amount::Bytes(TCP_BYTES)));
        }
        let udp = Transfer::udp(IpVersion::V4, Amount::Bytes(UDP_BYTES));
        run(from, to, udp.window(64));
    }
}

/// A datagram of each flow, from the left host.
pub fn send_flows(host: &Host) -> Vec<UdpSocket> {
    let send = |number: u16| {
        let socket = UdpSocket::bind((Side::Left.ipv4(), PORTS + number)).expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a setting");
        let sent = socket.send_to(&number.to_be_bytes(), (Side::Right.ipv4(), TO));
        assert_eq!(sent.expect("it is sent"), 2);
        socket
    };
    let sent = host.netns.run(|| (0..FLOWS).map(send).collect());
    sent.expect("a thread")
}

/// A datagram of each flow there and back.
pub fn flows([left, right]: &[End<'_>; 2]) {
    let bound = right
        .host
        .netns
        .run(|| UdpSocket::bind((Side::Right.ipv4(), TO)));
    let there = bound.expect("a thread").expect("a socket");
    there.set_read_timeout(Some(TIMEOUT)).expect("a setting");
    let sockets = send_flows(left.host);
    for _ in 0..FLOWS {
        let mut number = [0; 2];
        let (length, from) = there.recv_from(&mut number).expect("a datagram");
        assert_eq!(
            (length, from.port()),
            (2, PORTS + u16::from_be_bytes(number))
        );
        there.send_to(&number, from).expect("it is sent");
    }
    for (number, socket) in (0_u16..).zip(sockets) {
        let mut back = [0; 2];
        assert_eq!(socket.recv(&mut back).expect("a datagram"), 2);
        assert_eq!(back, number.to_be_bytes());
    }
}

/// Waits until no TAP has seen a packet for some time.
pub fn settle(ends: &[End<'_>; 2]) -> [LinkStats; 2] {
    let start = Instant::now();
    let (mut last, mut since) = (ends.map(|end| end.stats()), start);
    while since.elapsed() < QUIET {
        assert!(start.elapsed() < TIMEOUT, "there is no end: {last:?}");
        thread::sleep(Duration::from_millis(10));
        let now = ends.map(|end| end.stats());
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// The growth of the counts of both TAPs, and what the run counted, are the same.
pub fn assert_counts(ends: &[End<'_>; 2], before: [LinkStats; 2], document: &Document) {
    let after = ends.map(|end| end.stats());
    for (end, (after, before)) in ends.iter().zip(after.into_iter().zip(before)) {
        let (link, address) = (after.since(&before), end.address);
        assert_eq!(link.dropped(), 0, "{address}: {link:?} {document:?}");
        let packets = [
            document.rx(address, "packets"),
            document.tx(address, "packets"),
        ];
        let expected = [link.tx_packets, link.rx_packets];
        assert_eq!(packets, expected, "{address}: {document:?}");
        if end.is_virtio() {
            // The other card pads short frames.
            let bytes = [document.rx(address, "bytes"), document.tx(address, "bytes")];
            assert_eq!(bytes, [link.tx_bytes, link.rx_bytes], "{document:?}");
        } else {
            // QEMU's cards count a packet that they segment once.
            let counted = ["tx_packets", "rx_packets"].map(|key| document.device(address, key));
            assert_eq!(counted, packets, "{address}: {document:?}");
            let wrong = ["tx_dropped", "tx_errors", "rx_errors"];
            assert_eq!(wrong.map(|key| document.device(address, key)), [0; 3]);
        }
        for key in ["hangs", "stuck", "bad_completions", "defrag_failed"] {
            assert_eq!(document.tx(address, key), 0, "{key}: {document:?}");
        }
        assert_eq!(document.rx(address, "bad_packets"), 0, "{document:?}");
    }
    assert_eq!(document.all_dropped(), 0, "{document:?}");
}
