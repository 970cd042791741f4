//! `stream`: its figures are what the kernels, packtrain and the fault injector counted.

use packtrain::stats::DropReason;
use packtrain_lab::ToolError;
use packtrain_lab::harness::{self, assert_stops, need_tap};
use packtrain_lab::testbed::{Testbed, TestbedOptions, Through};
use packtrain_lab::tool::{Control, Measured, Tool};
use packtrain_lab::tools::stream::{Direction, Stream, Switch};
use packtrain_lab::traffic::Protocol;
use serde_json::Value;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn main() -> ExitCode {
    harness::main(&[
        ("one_direction_is_measured_at_both_ends", one_direction),
        ("both_directions_at_once", both_directions),
        ("segmentation_is_where_it_was_requested", segmentation),
        ("settings_that_do_not_take_are_errors", not_taken),
        ("no_packet_is_built_that_the_egress_copies", built_to_fit),
        ("a_link_with_a_rate_holds_the_sender_up", line_rate),
        ("requests_are_answered", exchange),
        ("injected_faults_are_reported_as_they_are", faults),
        ("a_rate_is_kept", rate),
        ("a_stop_ends_it_soon", stop),
    ])
}

/// Short: what is checked are counts, which a busy machine does not change.
fn stream() -> Stream {
    Stream {
        duration: "300ms".parse().unwrap(),
        warm_up: "100ms".parse().unwrap(),
        ..Stream::default()
    }
}

/// The same port in both hosts.
fn same_ports(through: Through, port: &str) -> Testbed {
    let options = TestbedOptions {
        through,
        a: port.to_owned(),
        b: port.to_owned(),
        ..TestbedOptions::default()
    };
    Testbed::start(&options).expect("a testbed")
}

fn try_run(stream: &Stream, testbed: &Testbed) -> Result<Measured, ToolError> {
    let measured = stream.run(testbed, &Control::default());
    measured.map(Measured::fields)
}

fn run(stream: &Stream, testbed: &Testbed) -> Measured {
    try_run(stream, testbed).unwrap_or_else(|error| panic!("{stream:?}: {error}"))
}

/// S0's "one segment less", at the kernel behind the ingress: with its limit, all its packets have
/// few enough pieces; without, too many.
fn built_to_fit() {
    need_tap();
    for (key, fits) in [("", true), (",gso-limit=off", false)] {
        let testbed = Testbed::start(&TestbedOptions {
            a: format!("tap,rx=pieces(512){key}"),
            b: "tap,segs=24".to_owned(),
            ..TestbedOptions::default()
        })
        .expect("a testbed");
        let stream = Stream {
            direction: Direction::AToB,
            ..stream()
        };
        run(&stream, &testbed);
        let snapshot = testbed.session().expect("packtrain").snapshot();
        let tx = snapshot.ports[1].tx_total();
        assert!(tx.gso_packets > 100, "{}", tx.gso_packets);
        assert_eq!(tx.defrag == 0, fits, "{key}: {} copied", tx.defrag);
        testbed.finish().expect("the ledger closes");
    }
}

/// A flood of datagrams waits in the sender's socket: the TAP behind the link drops none.
fn line_rate() {
    need_tap();
    let link = Some("100M".parse().unwrap());
    let testbed = Testbed::start(&TestbedOptions {
        link,
        ..TestbedOptions::default()
    });
    let testbed = match testbed {
        Err(ToolError::Missing(why)) => harness::skip(why),
        testbed => testbed.expect("a testbed"),
    };
    let host = &testbed.hosts().left;
    let mut rtnl = host.netns.rtnl().expect("netlink");
    assert_eq!(rtnl.line_rate(host.link.index).unwrap(), Some(12_500_000));
    let stream = Stream {
        protocol: Protocol::Udp,
        rate: "max".parse().unwrap(),
        direction: Direction::AToB,
        ..stream()
    };
    let figures = run(&stream, &testbed).figures;
    assert_eq!(testbed.settings()["link"], "100M");
    assert!(count(&figures["sent_packets"]) > 0);
    assert_eq!(figures["interface_a"]["tx_dropped"], 0);
    testbed.finish().expect("a closed ledger");
    let plain = same_ports(Through::Veth, "tap");
    let host = &plain.hosts().left;
    let mut rtnl = host.netns.rtnl().expect("netlink");
    assert_eq!(rtnl.line_rate(host.link.index).unwrap(), None);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn one_direction() {
    need_tap();
    for (through, check) in [(Through::Packtrain, true), (Through::Veth, false)] {
        let testbed = same_ports(through, "tap");
        let stream = Stream {
            check,
            streams: 3,
            direction: Direction::BToA,
            window: Some(65_536),
            ..stream()
        };
        let before = testbed.hosts().left.counters().expect("counters");
        let Measured {
            settings, figures, ..
        } = run(&stream, &testbed);
        let all = testbed.hosts().left.counters().expect("counters");
        let all = all.since(&before).tcp_in_segs;
        let payload = if check { "hashed" } else { "plain" };
        assert_eq!(settings["payload"], payload);
        assert_eq!(settings["direction"], "b_to_a");
        assert_eq!(settings["send_buffer_bytes"], 131_072);
        // With or without timestamps.
        assert!([1448, 1460].contains(&count(&settings["mss_bytes"])));
        // The warm-up is left out.
        let seconds = number(&figures["seconds"]);
        assert!(seconds >= 0.2 && number(&figures["goodput_gbps"]) > 0.0);
        // No more than the kernel received in the whole run, in packets of at most 64 KiB.
        let bytes = number(&figures["goodput_gbps"]) * 1e9 / 8.0 * seconds;
        assert!(bytes <= all as f64 * 65_536.0, "{bytes} in {all} segments");
        let received = count(&figures["received_segments"]);
        assert!(received > 0 && received <= all, "{received} of {all}");
        assert_eq!(figures["received_acks"], figures["nstat_b"]["TcpInSegs"]);
        for side in ["sender", "receiver"] {
            let all = number(&figures[&format!("cpu_{side}_percent")]);
            let busiest = number(&figures[&format!("cpu_{side}_busiest_percent")]);
            assert!(busiest > 0.0 && busiest <= all && all <= 3.0 * busiest + 1e-6);
        }
        assert!(count(&figures["send_calls"]) > 0 && count(&figures["receive_calls"]) > 0);
        let has_forwarder = through == Through::Packtrain;
        assert_eq!(figures["forwarder"]["packets"].is_u64(), has_forwarder);
        assert_eq!(figures.contains_key("drops"), has_forwarder);
        testbed.finish().expect("a closed ledger");
    }
}

fn both_directions() {
    let testbed = same_ports(Through::Veth, "tap");
    let stream = Stream {
        direction: Direction::Both,
        ..stream()
    };
    let figures = run(&stream, &testbed).figures;
    let [there, back, both] = ["goodput_a_to_b_gbps", "goodput_b_to_a_gbps", "goodput_gbps"]
        .map(|name| number(&figures[name]));
    assert!(there > 0.0 && back > 0.0 && (there + back - both).abs() < 1e-9);
}

/// A packet of the sending kernel has one segment or many, and packtrain gets one or many.
fn segmentation() {
    need_tap();
    let testbed = same_ports(Through::Packtrain, "tap");
    let with = |tso, gso| {
        let stream = Stream {
            tso: Some(tso),
            gso: Some(gso),
            mss: Some(1000),
            ..stream()
        };
        let measured = run(&stream, &testbed);
        assert_eq!(measured.settings["tso_a"], tso == Switch::On);
        assert_eq!(measured.settings["gso_a"], gso == Switch::On);
        assert!([988, 1000].contains(&count(&measured.settings["mss_bytes"])));
        let figures = measured.figures;
        let segments = number(&figures["sent_segments"]);
        let of_kernel = number(&figures["nstat_a"]["IpOutRequests"]);
        (
            segments / of_kernel,
            number(&figures["forwarder"]["wire_packets_per_packet"]),
        )
    };
    let (kernel, wire) = with(Switch::On, Switch::On);
    assert!(kernel > 2.0 && wire > 2.0, "{kernel} {wire}");
    let (kernel, wire) = with(Switch::Off, Switch::On);
    assert!(kernel > 2.0 && wire < 1.1, "{kernel} {wire}");
    let (kernel, wire) = with(Switch::Off, Switch::Off);
    assert!(kernel < 1.1 && wire < 1.1, "{kernel} {wire}");
    // What was there before is there again.
    let settings = run(&stream(), &testbed).settings;
    assert_eq!(settings["tso_a"], true);
    assert_eq!(settings["gso_a"], true);
    assert!(count(&settings["gso_max_segments_a"]) > 1);
    testbed.finish().expect("a closed ledger");
}

fn not_taken() {
    need_tap();
    let testbed = same_ports(Through::Packtrain, "tap,offload=off");
    let wrong = [
        (
            Stream {
                tso: Some(Switch::On),
                ..stream()
            },
            "--tso on did not take, it is off",
        ),
        (
            Stream {
                mss: Some(1461),
                ..stream()
            },
            "--mss 1461 did not take",
        ),
        (
            Stream {
                streams: 0,
                ..stream()
            },
            "--streams cannot be '0'",
        ),
        (
            Stream {
                duration: "120ms".parse().unwrap(),
                ..stream()
            },
            "--duration",
        ),
    ];
    for (stream, expected) in wrong {
        let error = try_run(&stream, &testbed).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    testbed.finish().expect("a closed ledger");
}

fn exchange() {
    need_tap();
    let testbed = same_ports(Through::Veth, "tap");
    let stream = Stream {
        exchange: Some("100,5000".parse().unwrap()),
        streams: 2,
        ..stream()
    };
    let before = testbed.hosts().right.counters().expect("counters");
    let Measured {
        settings, figures, ..
    } = run(&stream, &testbed);
    assert_eq!(
        (&settings["request_bytes"], &settings["response_bytes"]),
        (&100.into(), &5000.into())
    );
    let done = number(&figures["transactions_per_second"]) * number(&figures["seconds"]);
    let all = testbed.hosts().right.counters().expect("counters");
    let requests = all.since(&before).tcp_in_segs as f64;
    assert!(done >= 1.0 && done <= requests, "{done} of {requests}");
    assert!(!figures.contains_key("goodput_gbps"));
    let each = number(&figures["transaction_us"]) * done / 2.0 / 1e6;
    assert!((each - number(&figures["seconds"])).abs() < 1e-6, "{each}");

    // With UDP every lost request costs its transaction, and no copy adds one.
    let testbed = same_ports(Through::Packtrain, "tap,duplicate=0.5");
    let udp = Stream {
        protocol: Protocol::Udp,
        exchange: Some("8,1000".parse().unwrap()),
        warm_up: "0".parse().unwrap(),
        ..self::stream()
    };
    let figures = run(&udp, &testbed).figures;
    let done = number(&figures["transactions_per_second"]) * number(&figures["seconds"]);
    let sent = number(&figures["sent_packets"]);
    assert!(done >= 1.0 && done <= sent, "{done} of {sent}");
    assert!(count(&figures["duplicate_packets"]) > 0, "{figures:?}");
    testbed.finish().expect("a closed ledger");

    // The duration counts from the first response on.
    let testbed = same_ports(Through::Packtrain, "tap,delay=40ms");
    let short = Stream {
        duration: "60ms".parse().unwrap(),
        ..udp
    };
    let figures = run(&short, &testbed).figures;
    assert!(number(&figures["transactions_per_second"]) > 0.0);
    testbed.finish().expect("a closed ledger");
}

/// What an independent observer saw of a whole run.
struct Truth {
    injected: u64,
    /// Lost in full queues of the kernels.
    overflowed: u64,
    /// Datagrams that the receiver's socket delivered.
    delivered: u64,
}

/// Everything counts: the warm-up is 0, and late datagrams are awaited. Packets go out in bursts of
/// four, so that some overtake others in a few bursts, however busy the machine is.
fn faults() {
    need_tap();
    let udp = Stream {
        protocol: Protocol::Udp,
        warm_up: "0".parse().unwrap(),
        rate: "160M".parse().unwrap(),
        message: Some(500),
        check: true,
        ..stream()
    };
    let run = |faults: &str| {
        let testbed = same_ports(Through::Packtrain, &format!("tap,seed=7{faults}"));
        let hosts = testbed.hosts();
        let read = || {
            let stats = [&hosts.left, &hosts.right].map(|host| host.stats().expect("counters"));
            (stats, hosts.right.counters().expect("counters"))
        };
        let (links, counters) = read();
        let figures = run(&udp, &testbed).figures;
        let (later, now) = read();
        let now = now.since(&counters);
        let report = testbed.finish().expect("a closed ledger").report;
        let drops = report.expect("packtrain's").snapshot.drops;
        let truth = Truth {
            injected: drops.get(DropReason::FaultInjected),
            overflowed: now.udp_rcvbuf_errors
                + later[0].since(&links[0]).tx_dropped
                + later[1].since(&links[1]).rx_dropped,
            delivered: now.udp_in_datagrams,
        };
        assert_eq!(figures["damaged_packets"], 0);
        let names = ["sent", "received", "lost", "duplicate", "reordered"];
        let counts = names.map(|name| count(&figures[&format!("{name}_packets")]));
        let [sent, received, lost, duplicates, _] = counts;
        assert!(sent > 0 && sent == received + lost);
        assert_eq!(truth.delivered, received + duplicates);
        (counts, truth)
    };
    let ([_, _, lost, duplicates, reordered], truth) = run(",drop=0.2");
    assert!(truth.injected > 0);
    assert_eq!(lost, truth.injected + truth.overflowed);
    assert_eq!((duplicates, reordered), (0, 0));
    let ([_, _, lost, duplicates, _], truth) = run(",duplicate=0.2");
    assert!(duplicates > 0 && lost <= truth.overflowed);
    let ([_, _, lost, duplicates, reordered], truth) = run(",reorder=0.2");
    assert_eq!((lost, duplicates), (truth.overflowed, 0));
    assert!(reordered > 0);
    let ([_, _, lost, duplicates, reordered], truth) = run("");
    assert_eq!((lost, duplicates, reordered), (truth.overflowed, 0, 0));
}

fn rate() {
    let testbed = same_ports(Through::Veth, "tap");
    let stream = Stream {
        protocol: Protocol::Udp,
        rate: "20M".parse().unwrap(),
        streams: 2,
        train: 4,
        warm_up: "0".parse().unwrap(),
        ..stream()
    };
    let start = Instant::now();
    let Measured {
        settings, figures, ..
    } = run(&stream, &testbed);
    let elapsed = start.elapsed().as_secs_f64();
    assert_eq!(
        (&settings["rate"], &settings["train"]),
        (&"20M".into(), &4.into())
    );
    assert_eq!(settings["message_bytes"], 1472);
    // Late is possible, early is not: a train of each flow is ahead.
    let bits = (number(&figures["sent_packets"]) - 8.0) * 1472.0 * 8.0;
    let due = 20e6 * elapsed;
    assert!(bits > 0.0 && bits <= due, "{bits} of {due}");
    // As many as fit a packet.
    let long = Stream {
        train: 64,
        rate: "max".parse().unwrap(),
        ..stream
    };
    assert_eq!(run(&long, &testbed).settings["train"], 44);
}

fn stop() {
    let testbed = same_ports(Through::Veth, "tap");
    let stream = Stream {
        duration: "1h".parse().unwrap(),
        ..stream()
    };
    assert_stops(&stream, &testbed);
    let stopped_in = |phase: &str, warm_up: &str| {
        let stop = Arc::new(AtomicBool::new(false));
        let say = |line: &str| {
            stop.fetch_or(line.starts_with(phase), Ordering::Relaxed);
        };
        let control = Control {
            stop: Arc::clone(&stop),
            progress: &say,
        };
        let stream = Stream {
            duration: "2h".parse().unwrap(),
            warm_up: warm_up.parse().unwrap(),
            ..stream.clone()
        };
        stream.run(&testbed, &control)
    };
    let error = stopped_in("warm-up", "1h").expect_err("nothing was measured");
    let line = "interrupted during the warm-up of 3600s: nothing was measured yet";
    assert_eq!(error.to_string(), line);
    let measured = stopped_in("measuring", "0").expect("what was measured");
    assert!(measured.figures.seconds > 0.0, "{measured:?}");
}
