//! What `ping` reports is what happened: injected delays are in the latency, losses are counted.

use packtrain_lab::harness::{
    self, assert_refused, assert_stops, count, need_tap, options, run, testbed,
};
use packtrain_lab::testbed::Through;
use packtrain_lab::tool::Measured;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::{cpus, netns};
use std::fs::{DirEntry, read_to_string};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    harness::main(&[
        ("every_request_is_answered", every_request_is_answered),
        ("a_delay_is_added", a_delay_is_added),
        ("losses_and_copies_are_counted", losses_and_copies),
        ("late_requests_count_from_when_they_were_due", late_requests),
        ("a_flood_waits_for_replies", a_flood),
        ("idle_and_loaded", idle_and_loaded),
        ("a_load_is_bound_to_its_cpus", bound_beside_a_load),
        ("options_out_of_range", options_out_of_range),
        ("a_stop_ends_it", a_stop_ends_it),
    ])
}

const REQUESTS: u64 = 300;

fn few(keys: &str) -> Ping {
    let few = format!("rate = '3k', count = {REQUESTS}, duration = '60s'");
    options(&[&few, keys])
}

fn latency(measured: &Measured, of: &str) -> f64 {
    measured.figures["latency_us"][of].as_f64().expect(of)
}

fn every_request_is_answered() {
    need_tap();
    for device in [Through::Packtrain, Through::Veth] {
        let testbed = testbed(device, "tap");
        for (icmp, ipv6) in [(false, false), (true, false), (false, true), (true, true)] {
            if ipv6 && !netns::has_ipv6() {
                continue;
            }
            let ping = few(&format!("icmp = {icmp}, ipv6 = {ipv6}, rate = '10k'"));
            let before = testbed.hosts().right.stats().expect("counters");
            let measured = run(&ping, &testbed).expect("a run");
            let after = testbed.hosts().right.stats().expect("counters");
            assert_eq!(count(&measured, "received_replies"), REQUESTS, "{ping:?}");
            assert_eq!(count(&measured, "lost_requests"), 0);
            assert_eq!(count(&measured, "duplicate_replies"), 0);
            let growth = after.since(&before);
            assert_eq!(growth.rx_packets, REQUESTS);
            // The kernel does not count the FCS.
            assert_eq!(growth.rx_bytes, REQUESTS * 98);
            let ordered = ["min", "p50", "p90", "p99", "p999", "max"];
            let times = ordered.map(|of| latency(&measured, of));
            assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
        }
        testbed.finish().expect("a closed ledger");
    }
}

fn a_delay_is_added() {
    need_tap();
    // The delay is that of packets from A; replies have none.
    let testbed = testbed(Through::Packtrain, "tap,delay=5ms");
    for flood in [false, true] {
        // At a low rate, so that one pause of the worker meets few of them.
        let ping = few(&format!("flood = {flood}, count = 50, rate = '200'"));
        let measured = run(&ping, &testbed).expect("a run");
        assert_eq!(count(&measured, "lost_requests"), 0);
        // The delay counts from the worker's last look at the clock. A packet that was sent after
        // it, while the worker had no CPU, has a shorter one; not half of them. Three digits.
        let p50 = latency(&measured, "p50");
        assert!(p50 >= 5000.0 * 0.999, "{measured:?}");
        // One after the other, or 10 ms after the last one: half of them took this together.
        let rate = measured.figures["requests_per_second"].as_f64();
        let most = 50.0 / (24.0 * p50.min(10_000.0) / 1e6);
        assert!(!flood || rate <= Some(most), "{measured:?}");
    }
    testbed.finish().expect("a closed ledger");
}

fn losses_and_copies() {
    need_tap();
    let testbed = testbed(Through::Packtrain, "tap,drop=0.1,duplicate=0.1");
    // On a busy machine a reply takes a while, and would count as lost.
    let measured = run(&few("timeout = '2s'"), &testbed).expect("a run");
    let faults = testbed.faults()[0].expect("faults of port A");
    assert!(faults.dropped > 10 && faults.duplicated > 10, "{faults:?}");
    assert_eq!(count(&measured, "lost_requests"), faults.dropped);
    assert_eq!(count(&measured, "duplicate_replies"), faults.duplicated);
    testbed.finish().expect("a closed ledger");
}

/// Requests that are all due at once, as if the requester had not been on a CPU until then.
fn late_requests() {
    let testbed = testbed(Through::Veth, "tap");
    let measured = run(&few("rate = '1G', count = 100"), &testbed).expect("a run");
    assert_eq!(count(&measured, "lost_requests"), 0);
    assert!(count(&measured, "late_requests") > 90, "{measured:?}");
    // The time that a request was late is part of its latency.
    for of in ["p50", "p90", "p99", "max"] {
        let late = measured.figures["send_delay_us"][of].as_f64();
        assert!(late > Some(0.0), "{measured:?}");
        // Not less: both have three digits.
        assert!(late <= Some(latency(&measured, of)), "{measured:?}");
    }
}

fn a_flood() {
    let testbed = testbed(Through::Veth, "tap");
    let measured = run(&few("flood = true"), &testbed).expect("a run");
    assert_eq!(count(&measured, "received_replies"), REQUESTS);
    assert_eq!(count(&measured, "late_requests"), 0);
    assert!(measured.settings["rate_per_second"].is_null());
}

fn idle_and_loaded() {
    let testbed = testbed(Through::Veth, "tap");
    let ping: Ping = options(&["load = 'stream', rate = '500', duration = '200ms'"]);
    let measured = run(&ping, &testbed).expect("a run");
    let figures = &measured.figures;
    for prefix in ["", "idle_"] {
        let sent = figures[&format!("{prefix}sent_requests")].as_u64();
        assert_eq!(sent, Some(100), "{prefix}");
        let p50 = figures[&format!("{prefix}latency_us")]["p50"].as_f64();
        assert!(p50 > Some(0.0), "{prefix}");
    }
    assert!(figures["load_goodput_gbps"].as_f64() > Some(0.0));
}

/// Requester and answering thread, and both ends of the load, are bound to their CPU.
fn bound_beside_a_load() {
    let cpu = cpus::allowed().expect("a mask")[0];
    let bound = format!("through = 'veth', cpus = 'sender={cpu},receiver={cpu}'");
    let testbed = harness::start(&options(&[&bound]));
    let ping: Ping = options(&["load = 'stream', duration = '150ms'"]);
    let mask = format!("\nCpus_allowed_list:\t{cpu}\n");
    let bound = || {
        let threads = std::fs::read_dir("/proc/self/task").expect("threads");
        // A thread may end meanwhile.
        let read = |thread: DirEntry| read_to_string(thread.path().join("status"));
        let status = threads.flatten().flat_map(read);
        status.filter(|status| status.contains(&mask)).count()
    };
    // On a busy machine a run may end before all four have been seen.
    let all_seen = (0..100).any(|_| {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let counting = scope.spawn(|| {
                let mut most = 0;
                while !ended.load(Ordering::Relaxed) {
                    most = most.max(bound());
                    thread::sleep(Duration::from_millis(2));
                }
                most
            });
            let measured = run(&ping, &testbed);
            ended.store(true, Ordering::Relaxed);
            measured.expect("a run");
            counting.join().expect("it counts") >= 4
        })
    });
    assert!(all_seen, "fewer than four threads were bound");
}

fn options_out_of_range() {
    let testbed = testbed(Through::Veth, "tap");
    assert_refused(run(&few("size = 61"), &testbed), "--size");
    assert_refused(run(&few("count = 0"), &testbed), "--count");
}

fn a_stop_ends_it() {
    let testbed = testbed(Through::Veth, "tap");
    let long = format!("rate = '0.001', count = {}, duration = '2h'", i64::MAX);
    for load in ["none", "stream"] {
        let ping: Ping = options(&[&long, &format!("load = '{load}'")]);
        assert_stops(&ping, &testbed);
    }
}
