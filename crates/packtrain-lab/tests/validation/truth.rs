//! Faults that packtrain's port injects, beside what the tools report. Lost packets and copies of
//! `blast`, `ping` and `stream`, and those out of order, are checked by the tests of these tools.

use packtrain_lab::harness::need_tap;
use packtrain_lab::testbed::{Testbed, Through};
use packtrain_lab::tools::blast::Blast;
use packtrain_lab::tools::ping::Ping;
use packtrain_lab::tools::rfc2544::Rfc2544;
use packtrain_lab::tools::stream::Stream;

use crate::{count, number, options, run, testbed};

fn packtrain(faults: &str) -> Testbed {
    testbed(Through::Packtrain, &format!("tap,seed=3,{faults}"))
}

pub fn delays() {
    need_tap();
    let testbed = packtrain("delay=3ms");
    let stream: Stream = options(&["exchange = '100,100', duration = '200ms', warm-up = '0'"]);
    let figures = run(&stream, &testbed).figures;
    assert!(number(&figures["transaction_us"]) >= 3000.0, "{figures:?}");
    // A delay loses nothing, and keeps the order.
    let delayed = || testbed.faults()[0].expect("faults of port A").delayed;
    let before = delayed();
    let blast: Blast = options(&["count = 500, rate = '20k', duration = '60s'"]);
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
    let ping: Ping = options(&["rate = '5k', count = 300, duration = '60s'"]);
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
    let times = "initial-duration = '10ms', final-duration = '20ms', duration-sum = '20ms'";
    let keys = "loss-ratio = '0.9', settle = '20ms', width = 0.2";
    let trials: Rfc2544 = options(&[times, keys]);
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
    // A packet that was sent while the worker had no CPU has a shorter delay, not half of them.
    // Three digits.
    assert!(number(&latency["p50"]) >= 3000.0 * 0.999, "{latency}");
    testbed.finish().expect("a closed ledger");
}
