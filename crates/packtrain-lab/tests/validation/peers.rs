//! Goodput and round trips beside iperf3, nuttcp and ping.

use packtrain_lab::harness::{Outcome, without_tap};
use packtrain_lab::testbed::{Testbed, Through};
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::stream::{Stream, WarmUp};
use serde_json::Value;
use std::time::Duration;

use crate::agreement::{Observer, Rounds};
use crate::program::{Program, without};
use crate::{ROUNDS, milliseconds, number, run, testbed};

/// Bytes of a write of all three programs: the default of `stream` and iperf3.
const MESSAGE: u64 = 131_072;

/// The length of a run of `stream`, and about that of the others.
const TIME_MS: u64 = 150;

/// The devices under test, each with the name that is printed.
const DEVICES: [(Through, &str); 2] = [(Through::Packtrain, "packtrain"), (Through::Veth, "veth")];

pub fn goodput() -> Outcome {
    let programs = [("iperf3", "iperf3"), ("nuttcp", "nuttcp")];
    let tools = [&programs[..], &[("ip", "iproute2")]].concat();
    if let Some(skip) = without_tap().or_else(|| without(&tools)) {
        return skip;
    }
    for (through, name) in DEVICES {
        let testbed = testbed(through, "tap");
        // The others count from the first byte, too.
        let stream = Stream {
            duration: milliseconds(TIME_MS),
            warm_up: WarmUp::For(Duration::ZERO),
            ..Stream::default()
        };
        let first = run(&stream, &testbed);
        let control = first.settings["congestion_control"].as_str();
        let control = control.expect("a name");
        use_congestion_control(&testbed, control);
        let ours = || number(&run(&stream, &testbed).figures["goodput_gbps"]);
        let bits = number(&first.figures["goodput_gbps"]) * 1e9 * TIME_MS as f64 / 1e3;
        let messages = (bits / 8.0 / MESSAGE as f64) as u64 + 1;
        let observer = Observer::start().expect("/proc/stat");
        let (mut tool, mut again) = (Vec::new(), Vec::new());
        let mut others = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for turn in 0..4 {
                match (round + turn) % 4 {
                    0 => tool.push(ours()),
                    1 => others[0].push(iperf3(&testbed, messages, control)),
                    2 => again.push(ours()),
                    _ => others[1].push(nuttcp(&testbed, messages)),
                }
            }
        }
        let disturbed = observer.end().expect("/proc/stat");
        testbed.finish().expect("a closed ledger");
        for (other, (program, _)) in others.into_iter().zip(programs) {
            let rounds = Rounds {
                tool: tool.clone(),
                again: again.clone(),
                other,
            };
            let what = format!("goodput through {name} of stream and {program}");
            let compared = rounds.compare(&what, "Gbit/s", disturbed.is_some());
            compared.expect("agreement");
        }
    }
    Outcome::Done
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
fn nuttcp(testbed: &Testbed, messages: u64) -> f64 {
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

/// Requests of a run.
const REQUESTS: u64 = 300;

/// A delay of packtrain's that both programs have to report.
const DELAY_US: f64 = 2000.0;

pub fn round_trips() -> Outcome {
    if let Some(skip) = without_tap().or_else(|| without(&[("ping", "iputils-ping")])) {
        return skip;
    }
    let ping = Ping {
        flood: true,
        icmp: true,
        count: Some(REQUESTS),
        duration: milliseconds(60_000),
        ..Ping::default()
    };
    let latency = |ping: &Ping, testbed: &Testbed| {
        let figures = run(ping, testbed).figures;
        ["min", "mean"].map(|name| number(&figures["latency_us"][name]))
    };
    for (through, name) in DEVICES {
        let testbed = testbed(through, "tap");
        let mut rounds = [Rounds::default(), Rounds::default()];
        latency(&ping, &testbed);
        let observer = Observer::start().expect("/proc/stat");
        for round in 0..ROUNDS {
            for turn in 0..3 {
                let which = (round + turn) % 3;
                let times = match which {
                    1 => iputils(&testbed, REQUESTS),
                    _ => latency(&ping, &testbed),
                };
                for (rounds, time) in rounds.iter_mut().zip(times) {
                    match which {
                        0 => rounds.tool.push(time),
                        1 => rounds.other.push(time),
                        _ => rounds.again.push(time),
                    }
                }
            }
        }
        let disturbed = observer.end().expect("/proc/stat").is_some();
        testbed.finish().expect("a closed ledger");
        for (rounds, figure) in rounds.iter().zip(["least", "mean"]) {
            let what = format!("{figure} round trip through {name} of ping and ping -f");
            let compared = rounds.compare(&what, "us", disturbed);
            // Beside a load the mean is that of waits for a CPU: ours polls, the other one sleeps.
            if !(disturbed && figure == "mean") {
                compared.expect("agreement");
            }
        }
    }
    let testbed = testbed(Through::Packtrain, "tap,delay=2ms");
    let few = Ping {
        count: Some(20),
        ..ping
    };
    for [min, mean] in [latency(&few, &testbed), iputils(&testbed, 20)] {
        // Ours has three digits, and the other is in whole microseconds.
        assert!(mean >= min && min >= DELAY_US * 0.999, "{min} {mean}");
    }
    testbed.finish().expect("a closed ledger");
    Outcome::Done
}

/// The least and the mean round trip in microseconds, as `ping -f` reports them. With `-U` they
/// include the time until the requester has the reply, as ours do.
fn iputils(testbed: &Testbed, requests: u64) -> [f64; 2] {
    let hosts = testbed.hosts();
    let address = hosts.right.side.ipv4().to_string();
    let count = requests.to_string();
    let words = ["ping", "-f", "-U", "-q", "-n", "-c", &count, &address];
    let text = Program::start(&hosts.left, &words).output();
    // rtt min/avg/max/mdev = 0.005/0.017/1.368/0.087 ms, ipg/ewma 0.018/0.006 ms
    let times = text.split_once("min/avg/max/mdev = ");
    let times = times.and_then(|(_, times)| times.split_once(" ms"));
    let (times, _) = times.unwrap_or_else(|| panic!("no times: {text}"));
    let times: Vec<f64> = times
        .split('/')
        .map(|time| time.parse().expect("a time"))
        .collect();
    [times[0] * 1e3, times[1] * 1e3]
}
