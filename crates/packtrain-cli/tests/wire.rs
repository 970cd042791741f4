//! What leaves `packtrain forward` is legal on a cable: the TCP and UDP of iperf3 between two
//! hosts, recorded by tcpdump where it arrives, and checked by tshark.
//!
//! A veth is no cable. A GSO packet crosses it whole, and a packet without a checksum as it is,
//! since the kernel on the other side knows of both. So the interfaces of packtrain have no
//! offloads for what they send: what a port leaves to the device, the kernel then does in front of
//! the veth, as a card does in front of a cable. Packets are recorded on their way in only, and the
//! hosts' interfaces have no GRO, which would merge them before that: a veth is made without. What
//! the hosts themselves send has all offloads, so that packtrain gets large packets.

mod program;

use packtrain_lab::ethtool::Offload;
use packtrain_lab::harness::{self, need_tap, skip, wait_for};

use packtrain_lab::link::quiet_ipv6;
use packtrain_lab::netns::{self, Netns};
use packtrain_lab::topology::{Host, Settings, Side, TwoHosts};
use packtrain_lab::traffic::IpVersion;
use program::{PACKTRAIN, Scratch, command, ends, finish, interrupted, start, wait_for_line};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, ExitCode};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    harness::main(&[
        ("packet_packet", || {
            forward(1500, ["packet:near-a", "packet:near-b"]);
        }),
        ("packet_packet_in_software", || {
            forward(
                9000,
                ["packet:near-a,offload=off", "packet:near-b,offload=off"],
            );
        }),
        ("xdp_xdp", || forward(1500, ["xdp:near-a", "xdp:near-b"])),
        ("xdp_packet", || {
            forward(9000, ["xdp:near-a", "packet:near-b"]);
        }),
        ("xdp_tap", || forward(1500, ["xdp:near-a", "tap:far-b"])),
        ("xdp_tap_in_software", || {
            forward(1500, ["xdp:near-a", "tap:far-b,offload=off"]);
        }),
        ("tshark_finds_what_is_not_legal", control),
        ("replay_of_headers_is_that_of_whole_packets", replay),
    ])
}

/// Interfaces of packtrain, and of the hosts. A TAP is both.
const NEAR: [&str; 2] = ["near-a", "near-b"];
const FAR: [&str; 2] = ["far-a", "far-b"];
const ETHERNET_BYTES: u32 = 14;
/// Ends what does not end by itself, also if this process is gone: coreutils.
const LIMIT: [&str; 3] = ["timeout", "--foreground", "100"];

/// Skips the calling test where a program or a feature is missing.
fn need(ports: [&str; 2]) {
    need_tap();
    for (name, package) in [
        ("iperf3", "iperf3"),
        ("tcpdump", "tcpdump"),
        ("tshark", "tshark"),
    ] {
        if let Err(error) = command(name, &["--version"]).output() {
            skip(format!("{name} (package {package}): {error}"));
        }
    }
    if ports.iter().any(|port| port.starts_with("xdp:")) {
        let netns = Netns::new().expect("a namespace");
        netns
            .rtnl()
            .and_then(|mut rtnl| rtnl.create_veth("a", "b", &netns, 1))
            .expect("a veth");
        let plan = ["plan", "xdp:a,mode=copy", "null:"];
        let ran = run_in(&netns, || finish(start(&mut command(PACKTRAIN, &plan))));
        if ran.code == Some(3) {
            skip(format!("no XDP program can be loaded here: {}", ran.err));
        }
    }
}

fn run_in<T: Send>(netns: &Netns, run: impl FnOnce() -> T + Send) -> T {
    netns.run(run).expect("the namespace")
}

/// Starts a program in a namespace.
fn spawn(netns: &Netns, words: &[&str]) -> Child {
    let words = [&LIMIT[1..], words].concat();
    run_in(netns, || start(&mut command(LIMIT[0], &words)))
}

/// An interface of packtrain, and that of a host behind it, both in `middle`.
fn make_veth(middle: &Netns, side: Side, mtu: u32) {
    let (near, far) = (side.of(NEAR), side.of(FAR));
    let mut rtnl = middle.rtnl().expect("rtnetlink");
    rtnl.create_veth(far, near, middle, 1).expect("a veth");
    run_in(middle, || quiet_ipv6(near)).expect("its settings");
    for offload in [Offload::Tso, Offload::Gso, Offload::Checksum] {
        offload.set(middle, near, false).expect("it is switched");
    }
    let index = rtnl.link(near).expect("it is there").index;
    rtnl.set_mtu(index, mtu).expect("an MTU");
    rtnl.set_up(index).expect("it is up");
}

/// iperf3 both ways, by TCP and UDP. The server may not listen yet.
fn iperf3(hosts: &TwoHosts, version: IpVersion, protocol: &[&str]) {
    let server = ["iperf3", "--server", "--one-off"];
    let server = spawn(&hosts.right.netns, &server);
    let address = hosts.right.ip(version).to_string();
    let words = ["iperf3", "--client", &address, "--bidir", "--bytes", "2M"];
    let words = [&words[..], protocol].concat();
    wait_for("a transfer", || {
        let ran = finish(spawn(&hosts.left.netns, &words));
        let is_refused = ran.code == Some(1) && ran.err.contains("Connection refused");
        assert!(ran.code == Some(0) || is_refused, "{ran:?}");
        !is_refused
    });
    let ran = finish(server);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

/// A recording of a host's interface, in one direction.
struct Recording {
    tcpdump: Child,
    file: String,
}

impl Recording {
    fn start(host: &Host, direction: Direction, file: String) -> Self {
        let direction = match direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let words = [
            "tcpdump",
            "--immediate-mode",
            // A packet that waits for it takes as much, of 64 MiB.
            "--snapshot-length=9100",
            "--buffer-size=65536",
            "--packet-buffered",
            "--relinquish-privileges=root",
            &format!("--direction={direction}"),
            &format!("--interface={}", host.link.name),
            "-w",
            &file,
        ];
        let mut tcpdump = spawn(&host.netns, &words);
        wait_for_line(&mut tcpdump, "listening on");
        Self { tcpdump, file }
    }

    /// Ends it once it has so many packets, and returns them.
    fn finish(self, packets: u64) -> Vec<Frame> {
        wait_for("all packets in the recording", || {
            records(&fs::read(&self.file).expect("the recording")) >= packets
        });
        interrupted(self.tcpdump, "INT");
        frames(&self.file)
    }
}

/// Whole records of a pcap file of this machine's byte order (pcap-savefile(5)).
fn records(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    bytes = bytes.get(24..).unwrap_or_default();
    while let Some(length) = bytes.get(8..12) {
        let length = u32::from_ne_bytes(length.try_into().expect("four"));
        match bytes.get(16 + length as usize..) {
            Some(rest) => (bytes, count) = (rest, count + 1),
            None => break,
        }
    }
    count
}

/// A recorded packet, as tshark sees it.
struct Frame {
    bytes: u32,
    /// `ip:tcp`.
    kind: String,
    /// tshark has seen all of it, and has verified the checksum of TCP, UDP or ICMP, and that of an
    /// IPv4 header.
    is_right: bool,
    /// What it printed.
    line: String,
}

fn frames(file: &str) -> Vec<Frame> {
    // In front of what ICMP quotes.
    const TRANSPORTS: [&str; 4] = ["icmp", "icmpv6", "tcp", "udp"];
    let fields = [
        "frame.len",
        "frame.cap_len",
        "ip.checksum",
        "ipv6.version",
        "tcp.checksum",
        "tcp.checksum_calculated",
    ];
    let mut tshark = command("tshark", &["-n", "-r", file, "-T", "fields"]);
    tshark.args(["-E", "occurrence=f"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    for protocol in ["ip"].iter().chain(&TRANSPORTS) {
        tshark.args(["-e", &format!("{protocol}.checksum.status")]);
    }
    for protocol in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let ran = finish(start(&mut tshark));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.out
        .lines()
        .map(|line| frame(line, TRANSPORTS))
        .collect()
}

/// A frame from its fields.
fn frame(line: &str, transports: [&str; 4]) -> Frame {
    const RIGHT: &str = "1";
    let cells: Vec<_> = line.split('\t').collect();
    let [
        bytes,
        whole,
        ipv4,
        ipv6,
        tcp,
        computed,
        header,
        statuses @ ..,
    ] = &cells[..]
    else {
        panic!("too few fields: {line}");
    };
    let (network, is_right) = match (*ipv4, *ipv6) {
        ("", "6") => ("ipv6", true),
        (_, "") => ("ip", *header == RIGHT),
        _ => panic!("not one IP version: {line}"),
    };
    let transport = transports
        .iter()
        .zip(statuses)
        .find(|(_, status)| !status.is_empty());
    let (transport, status) = transport.unwrap_or((&"none", &""));
    // Receivers take both for 0. The kernel, which completes checksums of all protocols alike,
    // writes the one that UDP demands (`skb_checksum_help`), and tshark the other.
    let is_zero = (*tcp, *computed) == ("0xffff", "0x0000");
    Frame {
        bytes: bytes.parse().expect("a number"),
        kind: format!("{network}:{transport}"),
        is_right: is_right && (*status == RIGHT || is_zero) && whole == bytes,
        line: line.to_owned(),
    }
}

/// How many frames of each kind there are.
fn kinds(frames: &[Frame]) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    for frame in frames {
        *kinds.entry(frame.kind.as_str()).or_default() += 1;
    }
    kinds
}

/// The kinds that iperf3 sends.
fn expected() -> Vec<&'static str> {
    let versions = netns::ip_versions().iter();
    let kinds = versions.flat_map(|version| match version {
        IpVersion::V4 => ["ip:tcp", "ip:udp"],
        IpVersion::V6 => ["ipv6:tcp", "ipv6:udp"],
    });
    kinds.collect()
}

/// The file of a recording.
fn recording(scratch: &Scratch, side: Side, direction: Direction) -> String {
    scratch.file(&format!("{side:?}-{direction:?}.pcap"))
}

/// Joins two hosts with `packtrain forward` while iperf3 runs. Returns packtrain's document, and
/// for each of `records`, a host and a direction, its frames and how many the host has counted.
fn pass(
    scratch: &Scratch,
    mtu: u32,
    ports: [&str; 2],
    records: &[(Side, Direction)],
) -> (Value, Vec<(Vec<Frame>, u64)>) {
    need(ports);
    let middle = Netns::new().expect("a namespace");
    for side in [Side::Left, Side::Right] {
        if !side.of(ports).starts_with("tap:") {
            make_veth(&middle, side, mtu);
        }
    }
    let [a, b] = ports;
    let mut packtrain = spawn(&middle, &[PACKTRAIN, "forward", a, b, "--json"]);
    // It runs, and the hosts' interfaces are down.
    wait_for_line(&mut packtrain, "link is down");
    let settings = Settings {
        mtu,
        ..Settings::default()
    };
    let hosts = TwoHosts::moved(&settings, &middle, FAR).expect("two hosts");
    let record = |(side, direction): &(Side, Direction)| {
        let file = recording(scratch, *side, *direction);
        Recording::start(hosts.host(*side), *direction, file)
    };
    let recordings: Vec<_> = records.iter().map(record).collect();
    for &version in netns::ip_versions() {
        iperf3(&hosts, version, &[]);
        iperf3(&hosts, version, &["--udp", "--bitrate", "200M"]);
    }
    let count = |(side, direction): &(Side, Direction)| {
        let stats = hosts.host(*side).stats().expect("counters");
        match direction {
            Direction::In => stats.rx_packets,
            Direction::Out => stats.tx_packets,
        }
    };
    let counts = || -> Vec<_> { records.iter().map(count).collect() };
    let mut last = counts();
    // After the last ACKs, which may be delayed by 200 ms.
    wait_for("silence", || {
        thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut last, counts()) == last
    });
    // Before packtrain ends, and a TAP with it.
    let recorded = recordings
        .into_iter()
        .zip(last)
        .map(|(recording, count)| (recording.finish(count), count))
        .collect();
    let document = interrupted(packtrain, "INT").json();
    assert_eq!(document["conservation"]["closed"], true, "{document}");
    (document, recorded)
}

/// Every frame that arrives at a host is legal, and packtrain has counted it.
fn forward(mtu: u32, ports: [&str; 2]) {
    // The kernel reads a TAP as it does a veth: there is a cable only in front of one without
    // offloads.
    let is_cable = |side: &Side| {
        let port = side.of(ports);
        !port.starts_with("tap:") || port.ends_with("offload=off")
    };
    let sides = [Side::Left, Side::Right].into_iter().filter(is_cable);
    let records: Vec<_> = sides.map(|side| (side, Direction::In)).collect();
    let (document, recorded) = pass(&Scratch::new("wire"), mtu, ports, &records);
    for ((side, _), (frames, received)) in records.into_iter().zip(recorded) {
        let kinds = kinds(&frames);
        println!("{ports:?}, to {side:?}: {kinds:?}");
        assert_eq!(frames.len() as u64, received, "{kinds:?}");
        let bad: Vec<_> = frames
            .iter()
            .filter(|frame| !frame.is_right || frame.bytes > mtu + ETHERNET_BYTES)
            .collect();
        let (count, first) = (bad.len(), bad.first().map(|frame| &frame.line));
        assert_eq!(count, 0, "bad frames, the first: {first:?}");
        for kind in expected() {
            // Not acknowledgements alone. How many each way has depends on which is faster: iperf3
            // ends both together.
            let is_long = |frame: &Frame| frame.kind == kind && frame.bytes > mtu / 2;
            assert!(frames.iter().any(is_long), "{kind}: none of {kinds:?}");
        }
        let port = side.of(ports).split([':', ',']).nth(1).expect("a name");
        let queues = document["ports"][port].as_object().expect("a port");
        let sent = queues.iter().filter(|(name, _)| name.starts_with("txq"));
        let sent = sent.map(|(_, queue)| queue["wire_packets"].as_u64().expect("a count"));
        assert_eq!(sent.sum::<u64>(), received, "{port}: {document}");
    }
}

/// In front of packtrain, where the host has left segmentation and checksums to a device, tshark
/// finds large packets and wrong checksums. So it would find them behind packtrain.
fn control() {
    let mtu = 1500;
    let records = [(Side::Left, Direction::Out)];
    let ports = ["packet:near-a", "packet:near-b"];
    let (_, mut recorded) = pass(&Scratch::new("wire"), mtu, ports, &records);
    let (frames, _) = recorded.pop().expect("one");
    for kind in expected() {
        let of_kind = || frames.iter().filter(|frame| frame.kind == kind);
        assert!(of_kind().any(|frame| !frame.is_right), "{kind}");
        let is_large = of_kind().any(|frame| frame.bytes > mtu + ETHERNET_BYTES);
        assert_eq!(is_large, kind.ends_with("tcp"), "{kind}");
    }
}

/// What iperf3 sent is merged in the same way whether the capture has all of it, or 96 bytes of
/// each packet as public traces do.
fn replay() {
    let scratch = Scratch::new("wire-replay");
    let (side, direction) = (Side::Right, Direction::In);
    let ports = ["packet:near-a", "packet:near-b"];
    let (_, recorded) = pass(&scratch, 1500, ports, &[(side, direction)]);
    let whole = recording(&scratch, side, direction);
    let cut = scratch.file("cut.pcap");
    // Wireshark's, as tshark.
    let args = ["-F", "pcap", "-s", "96", &whole, &cut];
    let ran = finish(start(&mut command("editcap", &args)));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let replayed = |path: &str| {
        let lists = "--flows 1,1024 --mode hash,sorted --hold 20us,200us \
                     --coalesce reversible,stream --queues 1,4";
        let args = ["replay", "--json", path].into_iter();
        let args: Vec<_> = args.chain(lists.split_whitespace()).collect();
        let mut json = ends(0, &args).json();
        for run in json["runs"].as_array_mut().expect("a sweep") {
            let row = run["rows"][0].as_object_mut().expect("an interface");
            assert_eq!(row["bad_checksums"], 0, "{row:?}");
            assert_eq!(row["passed"]["cut_short"], 0, "{row:?}");
            row.remove("captured_bytes");
            let by_headers = row.remove("by_headers").expect("a count");
            assert_eq!(by_headers != 0, path == cut, "{row:?}");
        }
        json["runs"].take()
    };
    let runs = replayed(&whole);
    assert_eq!(runs, replayed(&cut));
    let runs = runs.as_array().expect("a sweep");
    let packets = recorded.iter().map(|(frames, _)| frames.len());
    assert_eq!(runs.len(), 32);
    assert_eq!(runs[0]["total"]["packets"], packets.sum::<usize>());
    let of = |run: &Value, key: &str| run["total"][key].as_u64();
    let merges = |run: &Value| of(run, "emitted") < of(run, "packets");
    assert!(runs.iter().all(merges), "{runs:?}");
}
