//! `stream`: its figures are what the kernels, packtrain and the fault injector counted.

use packtrain::stats::DropReason;
use packtrain_lab::harness::{self, assert_stops, need_tap, number, options, start, wait_for};
use packtrain_lab::testbed::{Testbed, TestbedOptions, Through};
use packtrain_lab::tool::{Control, Measured, Tool};
use packtrain_lab::tools::stream::Stream;
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
        ("kernel_threads_receive_for_their_host", kernel_threads),
        ("a_link_with_a_rate_holds_the_sender_up", line_rate),
        ("requests_are_answered", exchange),
        ("injected_faults_are_reported_as_they_are", faults),
        ("a_rate_is_kept", rate),
        ("a_stop_ends_it_soon", stop),
    ])
}

/// Short: what is checked are counts, which a busy machine does not change.
fn stream(keys: &str) -> Stream {
    options(&["duration = '300ms', warm-up = '100ms'", keys])
}

/// The same port in both hosts.
fn same_ports(through: Through, port: &str) -> Testbed {
    start(&TestbedOptions {
        through,
        ..options(&[&format!("a = '{port}', b = '{port}'")])
    })
}

fn run(stream: &Stream, testbed: &Testbed) -> Measured {
    harness::run(stream, testbed).unwrap_or_else(|error| panic!("{stream:?}: {error}"))
}

/// S0's "one segment less", at the kernel behind the ingress: with its limit, all its packets have
/// few enough pieces; without, too many.
fn built_to_fit() {
    need_tap();
    for (key, fits) in [("", true), (",gso-limit=off", false)] {
        let ports = format!("a = 'tap,rx=pieces(512){key}', b = 'tap,segs=24'");
        let testbed = start(&options(&[&ports]));
        run(&stream("direction = 'a-to-b'"), &testbed);
        let snapshot = testbed.session().expect("packtrain").snapshot();
        let tx = snapshot.ports[1].tx_total();
        assert!(tx.gso_packets > 0, "{tx:?}");
        assert_eq!(tx.defrag == 0, fits, "{key}: {} copied", tx.defrag);
        testbed.finish().expect("the ledger closes");
    }
}

/// With `napi=threaded` a host's TCP has threads of the kernel, and no packet that packtrain wrote
/// is lost on the way to them.
fn kernel_threads() {
    need_tap();
    for (key, threads) in [("", None), (",napi=threaded", Some(2))] {
        let ports = format!("a = 'tap{key}', b = 'tap,queues=2{key}'");
        let testbed = start(&options(&[&ports]));
        let settings = testbed.settings();
        let found = settings.get("kernel_threads_b").and_then(Value::as_u64);
        assert_eq!(found, threads, "{key}");
        for protocol in ["tcp", "udp"] {
            let keys = format!("protocol = '{protocol}', rate = 'max', direction = 'a-to-b'");
            let Measured { figures, .. } = run(&stream(&keys), &testbed);
            let [all, busiest] = ["cpu_receiver_percent", "cpu_receiver_busiest_percent"]
                .map(|name| number(&figures[name]));
            // The receiver has one thread.
            assert_eq!(
                all > busiest,
                threads.is_some(),
                "{protocol}{key}: {all}, {busiest}"
            );
        }
        let host = &testbed.hosts().right;
        let tx = || {
            let snapshot = testbed.session().expect("packtrain").snapshot();
            snapshot.ports[1].tx_total().packets
        };
        // What is dropped for a full backlog is counted as received, too.
        wait_for("all that was written", || {
            let (before, link, after) = (tx(), host.stats().expect("counters"), tx());
            before == after && before == link.rx_packets
        });
        testbed.finish().expect("a closed ledger");
    }
}

/// A flood of datagrams waits in the sender's socket: the TAP behind the link drops none.
fn line_rate() {
    need_tap();
    let testbed = start(&options(&["link = '100M'"]));
    let host = &testbed.hosts().left;
    let mut rtnl = host.netns.rtnl().expect("netlink");
    assert_eq!(rtnl.line_rate(host.link.index).unwrap(), Some(12_500_000));
    let stream = stream("protocol = 'udp', rate = 'max', direction = 'a-to-b'");
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

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn one_direction() {
    need_tap();
    for (through, check) in [(Through::Packtrain, true), (Through::Veth, false)] {
        let testbed = same_ports(through, "tap");
        let keys = "streams = 3, direction = 'b-to-a', window = 65536";
        let stream = stream(&format!("check = {check}, {keys}"));
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
    let figures = run(&stream("direction = 'both'"), &testbed).figures;
    let [there, back, both] = ["goodput_a_to_b_gbps", "goodput_b_to_a_gbps", "goodput_gbps"]
        .map(|name| number(&figures[name]));
    assert!(there > 0.0 && back > 0.0 && (there + back - both).abs() < 1e-9);
}

/// A packet of the sending kernel has one segment or many, and packtrain gets one or many.
fn segmentation() {
    need_tap();
    let testbed = same_ports(Through::Packtrain, "tap");
    let with = |tso: &str, gso: &str| {
        let stream = stream(&format!("tso = '{tso}', gso = '{gso}', mss = 1000"));
        let measured = run(&stream, &testbed);
        assert_eq!(measured.settings["tso_a"], tso == "on");
        assert_eq!(measured.settings["gso_a"], gso == "on");
        assert!([988, 1000].contains(&count(&measured.settings["mss_bytes"])));
        let figures = measured.figures;
        let segments = number(&figures["sent_segments"]);
        let of_kernel = number(&figures["nstat_a"]["IpOutRequests"]);
        (
            segments / of_kernel,
            number(&figures["forwarder"]["wire_packets_per_packet"]),
        )
    };
    let (kernel, wire) = with("on", "on");
    assert!(kernel > 2.0 && wire > 2.0, "{kernel} {wire}");
    let (kernel, wire) = with("off", "on");
    assert!(kernel > 2.0 && wire < 1.1, "{kernel} {wire}");
    let (kernel, wire) = with("off", "off");
    assert!(kernel < 1.1 && wire < 1.1, "{kernel} {wire}");
    // What was there before is there again.
    let settings = run(&stream(""), &testbed).settings;
    assert_eq!(settings["tso_a"], true);
    assert_eq!(settings["gso_a"], true);
    assert!(count(&settings["gso_max_segments_a"]) > 1);
    testbed.finish().expect("a closed ledger");
}

fn not_taken() {
    need_tap();
    let testbed = same_ports(Through::Packtrain, "tap,offload=off");
    for (keys, expected) in [
        ("tso = 'on'", "--tso on did not take, it is off"),
        ("mss = 1461", "--mss 1461 did not take"),
        ("streams = 0", "--streams cannot be '0'"),
        ("duration = '120ms'", "--duration"),
    ] {
        let error = harness::run(&stream(keys), &testbed)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    testbed.finish().expect("a closed ledger");
}

fn exchange() {
    need_tap();
    let testbed = same_ports(Through::Veth, "tap");
    let stream = stream("exchange = '100,5000', streams = 2");
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
    let udp = "protocol = 'udp', exchange = '8,1000', warm-up = '0'";
    let figures = run(&self::stream(udp), &testbed).figures;
    let done = number(&figures["transactions_per_second"]) * number(&figures["seconds"]);
    let sent = number(&figures["sent_packets"]);
    assert!(done >= 1.0 && done <= sent, "{done} of {sent}");
    assert!(count(&figures["duplicate_packets"]) > 0, "{figures:?}");
    testbed.finish().expect("a closed ledger");

    // The duration counts from the first response on.
    let testbed = same_ports(Through::Packtrain, "tap,delay=40ms");
    let short = options(&[udp, "duration = '60ms'"]);
    let figures = run(&short, &testbed).figures;
    assert!(number(&figures["transactions_per_second"]) > 0.0);
    testbed.finish().expect("a closed ledger");
}

/// Everything counts: the warm-up is 0, and late datagrams are awaited. Packets go out in bursts of
/// four, so that some overtake others in a few bursts, however busy the machine is.
fn faults() {
    need_tap();
    let udp = "protocol = 'udp', warm-up = '0', rate = '160M', message = 500, check = true";
    for faults in [
        "",
        ",drop=0.2",
        ",duplicate=0.2",
        ",reorder=0.2",
        ",drop=0.2,duplicate=0.2",
    ] {
        let testbed = same_ports(Through::Packtrain, &format!("tap,seed=7{faults}"));
        let hosts = testbed.hosts();
        let read = || {
            let stats = [&hosts.left, &hosts.right].map(|host| host.stats().expect("counters"));
            (stats, hosts.right.counters().expect("counters"))
        };
        let (links, counters) = read();
        let figures = run(&stream(udp), &testbed).figures;
        let (later, now) = read();
        let now = now.since(&counters);
        let injected = testbed.faults()[0].unwrap_or_default();
        let report = testbed.finish().expect("a closed ledger").report;
        let drops = report.expect("packtrain's").snapshot.drops;
        assert_eq!(drops.get(DropReason::FaultInjected), injected.dropped);
        // Lost in full queues of the kernels.
        let overflowed = now.udp_rcvbuf_errors
            + later[0].since(&links[0]).tx_dropped
            + later[1].since(&links[1]).rx_dropped;
        let names = [
            "sent",
            "received",
            "lost",
            "duplicate",
            "reordered",
            "damaged",
        ];
        let counts = names.map(|name| count(&figures[&format!("{name}_packets")]));
        let what = format!("{faults}: {names:?} {counts:?}, {overflowed}, {injected:?}");
        let [sent, received, lost, copies, reordered, damaged] = counts;
        assert_eq!(damaged, 0, "{what}");
        assert!(sent > 0 && sent == received + lost, "{what}");
        assert_eq!(now.udp_in_datagrams, received + copies, "{what}");
        let gone = injected.dropped + overflowed;
        assert_eq!(
            sent + injected.duplicated,
            received + copies + gone,
            "{what}"
        );
        assert!(copies <= injected.duplicated, "{what}");
        assert!(copies + overflowed >= injected.duplicated, "{what}");
        // A packet that is held back is not overtaken if none follows in time.
        assert!(reordered <= injected.reordered, "{what}");
        let happened = [injected.dropped, copies, reordered].map(|count| count > 0);
        let wanted = ["drop", "duplicate", "reorder"].map(|fault| faults.contains(fault));
        assert_eq!(happened, wanted, "{what}");
    }
}

fn rate() {
    let testbed = same_ports(Through::Veth, "tap");
    let udp = "protocol = 'udp', streams = 2, train = 4, rate = '20M', warm-up = '0'";
    let stream = stream(udp);
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
    let long = options(&[udp, "duration = '300ms', train = 64, rate = 'max'"]);
    assert_eq!(run(&long, &testbed).settings["train"], 44);
}

fn stop() {
    let testbed = same_ports(Through::Veth, "tap");
    assert_stops(&stream("duration = '1h'"), &testbed);
    let stopped_in = |phase: &str, warm_up: &str| {
        let stop = Arc::new(AtomicBool::new(false));
        let say = |line: &str| {
            stop.fetch_or(line.starts_with(phase), Ordering::Relaxed);
        };
        let control = Control {
            stop: Arc::clone(&stop),
            progress: &say,
        };
        let stream = stream(&format!("duration = '2h', warm-up = '{warm_up}'"));
        stream.run(&testbed, &control)
    };
    let error = stopped_in("warm-up", "1h").expect_err("nothing was measured");
    let line = "interrupted during the warm-up of 3600s: nothing was measured yet";
    assert_eq!(error.to_string(), line);
    let measured = stopped_in("measuring", "0").expect("what was measured");
    assert!(measured.figures.seconds > 0.0, "{measured:?}");
}
