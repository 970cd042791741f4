//! Goodput and round trips beside iperf3, nuttcp and ping.

use packtrain_lab::harness::need_tap;
use packtrain_lab::testbed::{Testbed, Through};
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::stream::Stream;
use serde_json::Value;
use std::time::Instant;

use crate::program::{Program, need};
use crate::{number, options, run, testbed};

/// Bytes of a write of all three programs: the default of `stream` and iperf3.
const MESSAGE: u64 = 131_072;

/// The length of a run of `stream`, and about that of the others.
const TIME_MS: u64 = 150;

/// The devices under test, each with the name that is printed.
const DEVICES: [(Through, &str); 2] = [(Through::Packtrain, "packtrain"), (Through::Veth, "veth")];

/// Each program's goodput times the time that its whole run took is at least the payload that it
/// sent: bits counted as bytes, or half of the bytes, are less. `stream` sent for [`TIME_MS`] at
/// least, so its payload is at most what the receiver's interface counted.
pub fn goodput() {
    let programs = [("iperf3", "iperf3"), ("nuttcp", "nuttcp")];
    let tools = [&programs[..], &[("ip", "iproute2")]].concat();
    need_tap();
    need(&tools);
    for (through, name) in DEVICES {
        let testbed = testbed(through, "tap");
        // The others count from the first byte, too.
        let keys = format!("duration = '{TIME_MS}ms', warm-up = '0'");
        let stream: Stream = options(&[&keys]);
        let arrived = || testbed.hosts().right.stats().expect("counters").rx_bytes;
        let (before, start) = (arrived(), Instant::now());
        let first = run(&stream, &testbed);
        let (bytes, time) = ((arrived() - before) as f64, start.elapsed().as_secs_f64());
        let gigabits = number(&first.figures["goodput_gbps"]);
        let measured = [time, TIME_MS as f64 / 1e3].map(|time| gigabits * 1e9 / 8.0 * time);
        // What is under way when the time is over is not counted.
        let least = bytes / 2.0;
        println!("stream through {name}: {gigabits} Gbit/s for {bytes} bytes in {time} s");
        assert!(measured[0] >= least && measured[1] <= bytes, "{measured:?}");

        let control = first.settings["congestion_control"].as_str();
        let control = control.expect("a name");
        use_congestion_control(&testbed, control);
        let messages = (measured[1] / MESSAGE as f64) as u64 + 1;
        let bytes = (messages * MESSAGE) as f64;
        for (other, (program, _)) in [iperf3, nuttcp].into_iter().zip(programs) {
            let start = Instant::now();
            let gigabits = other(&testbed, messages, control);
            let time = start.elapsed().as_secs_f64();
            println!("{program} through {name}: {gigabits} Gbit/s for {bytes} bytes in {time} s");
            // Three digits.
            assert!(gigabits * 1e9 / 8.0 * time >= bytes * 0.999, "{program}");
        }
        testbed.finish().expect("a closed ledger");
    }
}

/// Makes the congestion control of `stream` that of the route between the hosts: one that paces
/// gives another goodput. nuttcp has no option for it, and a namespace may not make each of them
/// its default.
fn use_congestion_control(testbed: &Testbed, name: &str) {
    let command = "ip route replace $(ip -4 route show) congctl \"$0\"";
    for host in [&testbed.hosts().left, &testbed.hosts().right] {
        Program::start(host, &["sh", "-c", command, name]).output();
    }
}

/// Goodput in Gbit/s that the server measured.
fn iperf3(testbed: &Testbed, messages: u64, control: &str) -> f64 {
    let (from, to) = (&testbed.hosts().left, &testbed.hosts().right);
    let mut server = Program::start(to, &["iperf3", "--server", "--one-off"]);
    server.listens(to, 5201);
    let address = to.side.ipv4().to_string();
    let (bytes, message) = ((messages * MESSAGE).to_string(), MESSAGE.to_string());
    let words = ["iperf3", "--client", &address, "--json"];
    let amount = ["--bytes", &bytes, "--length", &message];
    let text = Program::start(from, &[&words[..], &amount].concat()).output();
    server.output();
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["end"]["sender_tcp_congestion"], control);
    number(&report["end"]["sum_received"]["bits_per_second"]) / 1e9
}

/// Goodput in Gbit/s that the receiver measured.
fn nuttcp(testbed: &Testbed, messages: u64, _control: &str) -> f64 {
    let (from, to) = (&testbed.hosts().left, &testbed.hosts().right);
    let mut server = Program::start(to, &["nuttcp", "-1", "--nofork", "-P", "5000"]);
    server.listens(to, 5000);
    let address = to.side.ipv4().to_string();
    let (length, amount) = (format!("-l{MESSAGE}"), format!("-n{messages}"));
    let words = ["nuttcp", "-t", "-P", "5000", "-p", "5001", "-fparse"];
    let words = [&words[..], &[&length, &amount, &address]].concat();
    let text = Program::start(from, &words).output();
    server.output();
    let value = |name: &str| -> f64 {
        let found = text.split_whitespace().find_map(|word| {
            let (key, value) = word.split_once('=')?;
            (key == name).then(|| value.parse().expect("a number"))
        });
        found.unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    value("rate_Mbps") / 1e3
}

/// A delay of packtrain's that both programs have to report.
const DELAY_MS: u64 = 100;

/// A round trip is at least the delay, and at most the time that its whole run took: one that is
/// counted twice is more.
pub fn round_trips() {
    need_tap();
    need(&[("ping", "iputils-ping")]);
    let ping: Ping = options(&["flood = true, icmp = true, count = 1, duration = '60s'"]);
    let ours = |testbed: &Testbed| {
        let figures = run(&ping, testbed).figures;
        number(&figures["latency_us"]["min"])
    };
    let testbed = testbed(Through::Packtrain, &format!("tap,delay={DELAY_MS}ms"));
    // Both hosts have the other's hardware address then.
    ours(&testbed);
    for program in ["ping of packtrain", "ping -f"] {
        let start = Instant::now();
        let least = match program {
            "ping -f" => iputils(&testbed),
            _ => ours(&testbed),
        };
        let time = start.elapsed().as_secs_f64() * 1e6;
        println!("{program}: {least} of {time} us");
        // Three digits.
        let delay = DELAY_MS as f64 * 1e3 * 0.999;
        assert!(least >= delay && least <= time * 1.001, "{program}");
    }
    testbed.finish().expect("a closed ledger");
}

/// The round trip of a request in microseconds, as `ping -f` reports it. With `-U` it includes the
/// time until the requester has the reply, as ours does.
fn iputils(testbed: &Testbed) -> f64 {
    let hosts = testbed.hosts();
    let address = hosts.right.side.ipv4().to_string();
    let words = ["ping", "-f", "-U", "-q", "-n", "-c", "1", &address];
    let text = Program::start(&hosts.left, &words).output();
    // rtt min/avg/max/mdev = 0.005/0.017/1.368/0.087 ms, ipg/ewma 0.018/0.006 ms
    let times = text.split_once("min/avg/max/mdev = ");
    let least = times.and_then(|(_, times)| times.split('/').next());
    let least = least.unwrap_or_else(|| panic!("no times: {text}"));
    least.parse::<f64>().expect("a time") * 1e3
}
