//! Faults that packtrain's port injects, beside what the tools report. Lost packets and copies of
//! `blast` and `ping`, and lost packets of `stream`, are checked by the tests of these tools.

use packtrain_lab::harness::need_tap;
use packtrain_lab::testbed::{Testbed, Through};
use packtrain_lab::tools::blast::Blast;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::rfc2544::Rfc2544;
use packtrain_lab::tools::stream::Stream;
use packtrain_lab::traffic::Protocol;
use packtrain_lab::units::Rate;

use crate::{count, milliseconds, number, run, testbed};

fn packtrain(faults: &str) -> Testbed {
    testbed(Through::Packtrain, &format!("tap,seed=3,{faults}"))
}

/// What the sender sent, less what was dropped, more what was copied, is what the receiver got or
/// what a full queue of a kernel lost. Packets go out in bursts of four, so that some overtake
/// others in a few bursts, however busy the machine is.
pub fn copies_and_order() {
    need_tap();
    let stream = Stream {
        protocol: Protocol::Udp,
        duration: milliseconds(250),
        warm_up: "0".parse().expect("a time"),
        rate: "160M".parse().expect("a rate"),
        message: Some(500),
        ..Stream::default()
    };
    for faults in ["drop=0.2,duplicate=0.2", "reorder=0.2"] {
        let testbed = packtrain(faults);
        let hosts = testbed.hosts();
        let read = || {
            let left = hosts.left.stats().expect("counters").tx_dropped;
            let right = hosts.right.stats().expect("counters").rx_dropped;
            let socket = hosts.right.counters().expect("counters").udp_rcvbuf_errors;
            left + right + socket
        };
        let before = read();
        let measured = run(&stream, &testbed);
        let overflowed = read() - before;
        let injected = testbed.faults()[0].expect("faults of port A");
        let [sent, received, copies, reordered] = ["sent", "received", "duplicate", "reordered"]
            .map(|name| count(&measured, &format!("{name}_packets")));
        assert_eq!(
            sent + injected.duplicated,
            received + copies + injected.dropped + overflowed,
            "{measured:?} {injected:?}"
        );
        assert!(copies <= injected.duplicated);
        assert!(copies + overflowed >= injected.duplicated);
        // A packet that is held back is not overtaken if none follows in time.
        assert!(reordered <= injected.reordered, "{reordered} {injected:?}");
        let is_order = faults.starts_with("reorder");
        assert_eq!(reordered > 0, is_order, "{measured:?} {injected:?}");
        assert_eq!(
            injected.duplicated > 0,
            !is_order,
            "{measured:?} {injected:?}"
        );
        testbed.finish().expect("a closed ledger");
    }
}

pub fn delays() {
    need_tap();
    let testbed = packtrain("delay=3ms");
    let stream = Stream {
        exchange: Some("100,100".parse().expect("sizes")),
        duration: milliseconds(200),
        warm_up: "0".parse().expect("a time"),
        ..Stream::default()
    };
    let figures = run(&stream, &testbed).figures;
    assert!(number(&figures["transaction_us"]) >= 3000.0, "{figures:?}");
    // A delay loses nothing, and keeps the order.
    let delayed = || testbed.faults()[0].expect("faults of port A").delayed;
    let before = delayed();
    let blast = Blast {
        count: Some(500),
        rate: Some(Rate(20_000.0)),
        duration: milliseconds(60_000),
        ..Blast::default()
    };
    let measured = run(&blast, &testbed);
    // A question for the receiver's address may be delayed, too.
    assert!(delayed() - before >= 500);
    assert_eq!(count(&measured, "received_packets"), 500);
    for name in ["lost", "duplicate", "reordered", "damaged"] {
        assert_eq!(count(&measured, &format!("{name}_packets")), 0, "{name}");
    }
    testbed.finish().expect("a closed ledger");
}

pub fn replies_out_of_order() {
    need_tap();
    let testbed = packtrain("reorder=0.1");
    let ping = Ping {
        rate: Rate(5000.0),
        count: Some(300),
        duration: milliseconds(60_000),
        ..Ping::default()
    };
    let measured = run(&ping, &testbed);
    let injected = testbed.faults()[0].expect("faults of port A");
    assert!(injected.reordered > 10, "{injected:?}");
    assert_eq!(count(&measured, "received_replies"), 300);
    assert_eq!(count(&measured, "lost_requests"), 0);
    assert_eq!(count(&measured, "duplicate_replies"), 0);
    testbed.finish().expect("a closed ledger");
}

/// Where every frame is dropped, all is lost at any load. A delay is in the least latency.
pub fn trials() {
    need_tap();
    let trials = Rfc2544 {
        loss_ratio: "0.9".parse().expect("a ratio"),
        initial_duration: milliseconds(10),
        final_duration: milliseconds(20),
        duration_sum: milliseconds(20),
        settle: milliseconds(20),
        width: 0.2,
        ..Rfc2544::default()
    };
    let testbed = packtrain("drop=1");
    let figures = run(&trials, &testbed).figures;
    assert_eq!(number(&figures["throughput_kpps"]), 0.0, "{figures:?}");
    assert_eq!(number(&figures["back_to_back_frames"]), 0.0);
    assert_eq!(figures["end"], "below_min");
    assert_eq!(figures["limit"], "device");
    // No load has a latency if none arrives.
    let latency = figures["latency_us"].as_object().expect("an object");
    assert!(latency.keys().eq(["0"]), "{latency:?}");
    let losses = figures["loss_percent"].as_object().expect("losses");
    assert!(!losses.is_empty());
    for (load, loss) in losses {
        assert_eq!(number(loss), 100.0, "{load}");
    }
    testbed.finish().expect("a closed ledger");
    let testbed = packtrain("delay=3ms");
    let figures = run(&trials, &testbed).figures;
    let latency = &figures["latency_us"]["0"];
    // Three digits.
    assert!(number(&latency["min"]) >= 3000.0 * 0.999, "{latency}");
    testbed.finish().expect("a closed ledger");
}
