//! What `blast` reports is what happened: faults that are injected are counted exactly.

use packtrain_lab::ToolError;
use packtrain_lab::baseline::{self, BaselineError, Program};
use packtrain_lab::harness::{
    self, assert_refused, assert_stops, count, need_tap, options, run, skip, stopped_after,
    wait_for,
};
use packtrain_lab::testbed::{Testbed, Through};
use packtrain_lab::tool::{Control, Tool};
use packtrain_lab::tools::bad_frames::BadFrames;
use packtrain_lab::tools::blast::{self, Blast};
use std::fs;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    harness::main(&[
        ("every_packet_arrives", every_packet_arrives),
        ("senders_and_sizes", senders_and_sizes),
        ("losses_and_copies_are_counted", losses_and_copies),
        ("reordering_is_counted", reordering),
        ("flat_out_accounts_for_every_packet", flat_out),
        ("a_rate_is_kept", a_rate_is_kept),
        ("bad_frames_are_counted", bad_frames_are_counted),
        ("the_c_loop_is_received_alike", c_loop),
        ("busy_threads_compute_beside_it", busy_threads),
        ("options_out_of_range", options_out_of_range),
        ("a_stop_ends_it", a_stop_ends_it),
    ])
}

/// Fewer than a TAP's ring holds, so that no queue on the way can be full.
const PACKETS: u64 = 900;

fn blast(keys: &str) -> Blast {
    options(&[keys])
}

/// As many packets at a rate at which they take a moment.
fn few(keys: &str) -> Blast {
    let few = format!("count = {PACKETS}, rate = '20k', duration = '60s'");
    options(&[&few, keys])
}

fn through(through: Through) -> Testbed {
    harness::testbed(through, "tap")
}

fn every_packet_arrives() {
    need_tap();
    for device in [Through::Packtrain, Through::Veth] {
        let testbed = through(device);
        let measured = run(&few(""), &testbed).expect("a run");
        assert_eq!(count(&measured, "sent_packets"), PACKETS);
        for name in ["lost", "duplicate", "reordered", "damaged"] {
            assert_eq!(count(&measured, &format!("{name}_packets")), 0, "{name}");
        }
        assert_eq!(measured.settings["burst_packets"], 2);
        assert!(measured.settings["receive_buffer_bytes"].as_u64() > Some(0));
        let is_ours = device == Through::Packtrain;
        let figure = |name: &str| measured.figures[name].as_f64().expect(name);
        for name in ["wakeups_forwarder_per_second", "cpu_forwarder_percent"] {
            assert_eq!(figure(name) > 0.0, is_ours, "{name}");
        }
        let switches = figure("switches_forwarder_per_second");
        assert!(figure("wakeups_forwarder_per_second") <= switches);
        assert!(figure("switches_sender_per_second") > 0.0);
        let cpu = |part: &str| figure(&format!("cpu_{part}_percent"));
        let used: f64 = ["sender", "receiver", "forwarder"].map(cpu).iter().sum();
        assert!((figure("cpus_used") - used / 100.0).abs() < 1e-9);
        // Of all CPUs together. Hardware interrupts have no figure of their own.
        let states: f64 = ["user", "system", "softirq"].map(cpu).iter().sum();
        assert!(states <= cpu("machine") + 1e-9, "{measured:?}");
        assert!(cpu("machine") + cpu("idle") <= 100.0 + 1e-9, "{measured:?}");
        testbed.finish().expect("a closed ledger");
    }
}

fn senders_and_sizes() {
    let testbed = through(Through::Veth);
    let before = testbed.hosts().right.stats().expect("counters");
    // A whole number of the mix for each sender.
    let blast = few("size = 'imix', senders = 3, batch = 7, count = 72");
    let measured = run(&blast, &testbed).expect("a run");
    assert_eq!(count(&measured, "received_packets"), 72);
    assert_eq!(count(&measured, "lost_packets"), 0);
    let after = testbed.hosts().right.stats().expect("counters");
    let growth = after.since(&before);
    assert_eq!(growth.rx_packets, 72);
    // The kernel does not count the FCS.
    let mix = 7 * 60 + 4 * 590 + 1514;
    assert_eq!(growth.rx_bytes, 6 * mix);
}

fn with_faults(faults: &str) -> Testbed {
    // With this seed the last packets are not held back: none could overtake them. The worker does
    // not wait between polls.
    let port = format!("a = 'tap,seed=1,{faults}'");
    harness::start(&options(&[&port, "moderation = 'off'"]))
}

fn losses_and_copies() {
    need_tap();
    let testbed = with_faults("drop=0.05,duplicate=0.1");
    let measured = run(&few(""), &testbed).expect("a run");
    let faults = testbed.faults()[0].expect("faults of port A");
    assert!(faults.dropped > 10 && faults.duplicated > 20, "{faults:?}");
    assert_eq!(count(&measured, "lost_packets"), faults.dropped);
    assert_eq!(count(&measured, "duplicate_packets"), faults.duplicated);
    assert_eq!(count(&measured, "reordered_packets"), 0);
    let percent = 100.0 * faults.dropped as f64 / PACKETS as f64;
    assert_eq!(measured.figures["lost_percent"], percent);
    testbed.finish().expect("a closed ledger");
}

fn reordering() {
    need_tap();
    let flat_out = blast(&format!("count = {PACKETS}, duration = '60s'"));
    // packtrain holds a packet for 10 ms at most. If the sender or the worker was not on a CPU for
    // as long, no other packet could overtake it. Then the run is made again.
    let all_overtaken = (0..100).any(|_| {
        let testbed = with_faults("reorder=0.1");
        let measured = run(&flat_out, &testbed).expect("a run");
        let faults = testbed.faults()[0].expect("faults of port A");
        assert!(faults.reordered > 20, "{faults:?}");
        let reordered = count(&measured, "reordered_packets");
        assert!(reordered <= faults.reordered, "{reordered} of {faults:?}");
        assert_eq!(count(&measured, "lost_packets"), 0);
        assert_eq!(count(&measured, "duplicate_packets"), 0);
        testbed.finish().expect("a closed ledger");
        reordered == faults.reordered
    });
    assert!(all_overtaken, "never as many as packtrain held back");
}

fn flat_out() {
    need_tap();
    let testbed = through(Through::Packtrain);
    let hosts = [&testbed.hosts().left, &testbed.hosts().right];
    let before = hosts.map(|host| host.stats().expect("counters"));
    // All that will arrive has arrived by the end.
    let flat_out = blast("duration = '200ms', settle = '1s'");
    let measured = run(&flat_out, &testbed).expect("a run");
    let after = hosts.map(|host| host.stats().expect("counters"));
    let [growth, behind] = [0, 1].map(|host: usize| after[host].since(&before[host]));
    let (sent, lost) = (
        count(&measured, "sent_packets"),
        count(&measured, "lost_packets"),
    );
    assert_eq!(sent, growth.tx_packets + growth.tx_dropped);
    assert_eq!(sent, lost + count(&measured, "received_packets"));
    assert_eq!(
        count(&measured, "lost_at_interface_packets"),
        growth.tx_dropped
    );
    let report = testbed.finish().expect("a closed ledger").report;
    let dropped = report.expect("packtrain's report").snapshot.ledger.dropped;
    // In front of packtrain, in it, behind it where the kernel's backlog was full, and at the
    // socket.
    let socket = count(&measured, "lost_at_socket_packets");
    let known = growth.tx_dropped + dropped + behind.rx_dropped + socket;
    assert_eq!(lost, known, "{measured:?}");
}

fn bad_frames_are_counted() {
    let testbed = through(Through::Veth);
    for fault in ["none", "checksum", "header", "cut"] {
        let keys = format!("fault = '{fault}', fault-rate = '1k', duration = '100ms'");
        let frames: BadFrames = options(&[&keys]);
        let measured = run(&frames, &testbed).expect("a run");
        let [bad, dropped] = ["bad_frames", "bad_at_kernel"].map(|key| count(&measured, key));
        // At most 1000 a second; fewer if the machine is busy.
        let expected = if fault == "none" { 0..=0 } else { 1..=100 };
        assert!(expected.contains(&bad), "{fault}: {measured:?}");
        assert_eq!(dropped, bad, "{fault}: {measured:?}");
        for key in ["bad_delivered", "lost_packets", "damaged_packets"] {
            assert_eq!(count(&measured, key), 0, "{fault} {key}: {measured:?}");
        }
        assert!(count(&measured, "received_packets") > 0, "{measured:?}");
    }
    testbed.finish().expect("the hosts");
}

fn a_rate_is_kept() {
    let testbed = through(Through::Veth);
    let blast = blast("rate = '2k', count = 500, duration = '60s'");
    let start = Instant::now();
    let measured = run(&blast, &testbed).expect("a run");
    // All, and never sooner. `traffic/pace.rs` has the times of the packets in virtual time.
    assert_eq!(count(&measured, "sent_packets"), 500);
    assert!(start.elapsed() >= Duration::from_micros(499 * 500));
    let offered = measured.figures["offered_kpps"].as_f64().expect("a rate");
    assert!(offered <= 2.001, "{offered}");
}

/// The peer of the bench: both deliver, and report what they sent.
fn c_loop() {
    let program = match Program::sender() {
        Ok(program) => program,
        Err(BaselineError::NoCompiler(_, error)) => {
            skip(format!("no C compiler: {error}"));
        }
        Err(error) => panic!("{error}"),
    };
    let testbed = through(Through::Veth);
    let time = Duration::from_millis(200);
    let stats = || testbed.hosts().right.stats().expect("counters").rx_packets;
    let before = stats();
    let send = |to| match to {
        SocketAddr::V4(to) => baseline::send(&program, to, 18, 64, time),
        SocketAddr::V6(to) => panic!("{to}"),
    };
    let (sent, received) = blast::receive(&testbed, &Control::default(), send).expect("a run");
    let sent = sent.expect("it sends");
    assert!(sent.nanoseconds >= time.as_nanos() as u64, "{sent:?}");
    assert_eq!(sent.packets, stats() - before);
    assert!(
        received > 0 && received <= sent.packets,
        "{received} of {sent:?}"
    );
    let before = stats();
    let measured = run(&blast("duration = '200ms'"), &testbed).expect("a run");
    assert_eq!(count(&measured, "sent_packets"), stats() - before);
    assert!(count(&measured, "received_packets") > 0);
}

fn busy_threads() {
    let testbed = through(Through::Veth);
    // A packet in 1000 s: the other threads have nothing to do.
    let blast = blast("rate = '0.001', burst = 1, duration = '1h', busy = 2");
    let tasks = || fs::read_dir("/proc/self/task").expect("threads").flatten();
    let before: Vec<_> = tasks().map(|task| task.file_name()).collect();
    let busy = || {
        let own = tasks().filter(|task| !before.contains(&task.file_name()));
        own.flat_map(|task| fs::read_to_string(task.path().join("stat")))
            .filter(|stat| {
                // After the name in parentheses, field 14 of proc(5), user time, is at 11.
                let fields = stat.rsplit(')').next().expect("fields");
                let ticks = fields.split_whitespace().nth(11).expect("a time");
                ticks.parse::<u64>().expect("a number") >= 10
            })
            .count()
    };
    let are_busy = || {
        // This thread is none of them.
        thread::sleep(Duration::from_millis(50));
        busy() == 2
    };
    let end = || wait_for("two threads that compute", are_busy);
    match stopped_after(end, |control| blast.run(&testbed, control)) {
        Ok(measured) => assert_eq!(measured.fields().settings["busy_threads"], 2),
        // The sender had no CPU until then.
        Err(error) => assert_eq!(error, ToolError::Cancelled),
    }
}

fn options_out_of_range() {
    let testbed = through(Through::Veth);
    for keys in [
        "size = '1519'",
        "senders = 0",
        "batch = 1025",
        "busy = 65",
        "count = 0",
        "burst = 0",
    ] {
        let (option, _) = keys.split_once(' ').expect("a key");
        assert_refused(run(&few(keys), &testbed), &format!("--{option}"));
    }
}

fn a_stop_ends_it() {
    let testbed = through(Through::Veth);
    for keys in ["duration = '2h'", "duration = '2h', rate = '0.001'"] {
        assert_stops(&blast(keys), &testbed);
    }
}
