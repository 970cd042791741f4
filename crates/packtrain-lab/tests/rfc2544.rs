//! `rfc2544` on the kernel: figures that fit together, and the loss of a forwarder that drops.

use packtrain_lab::ToolError;
use packtrain_lab::harness::{self, assert_refused, need_tap, number, options, run, testbed};
use packtrain_lab::testbed::Through;
use packtrain_lab::tool::{Control, Tool};
use packtrain_lab::tools::rfc2544::Rfc2544;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

fn main() -> ExitCode {
    harness::main(&[
        ("figures_fit_together", figures_fit_together),
        ("a_forwarder_that_drops_has_no_throughput", half_is_lost),
        ("a_frame_that_does_not_fit_is_refused", too_long),
        ("a_stop_ends_it_between_trials", a_stop_ends_it),
    ])
}

/// One short trial for each load.
fn short(keys: &str) -> Rfc2544 {
    let times = "initial-duration = '10ms', final-duration = '20ms', duration-sum = '20ms'";
    options(&[times, "settle = '20ms', width = 0.2", keys])
}

fn figures_fit_together() {
    let testbed = testbed(Through::Veth, "tap");
    let tool = short("size = 1518, loss-ratio = '0,0.5'");
    let measured = run(&tool, &testbed).expect("a run");
    let figures = &measured.figures;
    assert_eq!(measured.settings["frame_bytes"], 1518);
    let kpps = number(&figures["throughput_kpps"]);
    let gbps = number(&figures["throughput_gbps"]);
    assert!((gbps - kpps * 1518.0 * 8.0 / 1e6).abs() < 1e-9);
    assert_eq!(
        figures["throughput_kpps"],
        figures["goals"]["0"]["throughput_kpps"]
    );
    for ratio in ["0", "0.5"] {
        let goal = &figures["goals"][ratio];
        let (lower, upper) = (goal["lower_kpps"].as_f64(), goal["upper_kpps"].as_f64());
        let ends: &[&str] = match (lower, upper) {
            (Some(lower), Some(upper)) => {
                assert!(lower < upper, "{goal}");
                &["regular", "time_limit"]
            }
            (Some(_), None) => &["at_max", "time_limit"],
            (None, Some(_)) => &["below_min", "time_limit"],
            (None, None) => &["time_limit"],
        };
        assert!(ends.iter().any(|end| goal["end"] == *end), "{goal}");
        let throughput = number(&goal["throughput_kpps"]);
        assert_eq!(throughput > 0.0, lower.is_some(), "{goal}");
        assert!(throughput <= lower.unwrap_or(0.0), "{goal}");
        // What limits is known with an upper bound, and at the most that the sender sends.
        let is_known = upper.is_some() || goal["end"] == "at_max";
        assert_eq!(goal["limit"].is_string(), is_known, "{goal}");
    }
    let latency = figures["latency_us"].as_object().expect("an object");
    // A share of less than a packet a second is no load.
    let shares = [
        ("0", 1.0),
        ("10", kpps * 100.0),
        ("50", kpps * 500.0),
        ("90", kpps * 900.0),
    ];
    let loads = shares.into_iter().filter(|(_, rate)| *rate >= 1.0);
    let loads: Vec<_> = loads.map(|(share, _)| share).collect();
    assert!(latency.keys().eq(&loads), "{latency:?}");
    assert!(latency["0"]["p50"].as_f64() > Some(0.0), "{latency:?}");
    let beside = figures["latency_load"].as_object().expect("an object");
    assert!(beside.keys().eq(&loads[1..]), "{beside:?}");
    for load in beside.values() {
        assert!(number(&load["offered_kpps"]) > 0.0, "{load}");
        assert!(number(&load["received_kpps"]) >= 0.0, "{load}");
    }
    let losses = figures["loss_percent"].as_object().expect("an object");
    assert!(
        losses.contains_key("100") && losses.len() >= 2,
        "{losses:?}"
    );
    assert!(
        losses
            .values()
            .all(|loss| (0.0..=100.0).contains(&number(loss)))
    );
    let at_socket = figures["loss_at_socket_percent"]
        .as_object()
        .expect("an object");
    assert!(at_socket.keys().eq(losses.keys()), "{at_socket:?}");
    for (percent, loss) in losses {
        assert!(number(&at_socket[percent]) <= number(loss), "{figures:?}");
    }
    let burst = number(&figures["back_to_back_frames"]);
    assert!(burst <= number(&figures["back_to_back_tried_frames"]));
}

/// No load passes without loss if every second frame is dropped. The loss is that at any load.
fn half_is_lost() {
    need_tap();
    let testbed = testbed(Through::Packtrain, "tap,seed=1,drop=0.5");
    // Hundreds of frames also at the last step.
    let times = "final-duration = '100ms', duration-sum = '100ms'";
    let tool = short(&format!("loss-ratio = '0.1', {times}"));
    let measured = run(&tool, &testbed).expect("a run");
    let figures = &measured.figures;
    // The least loads have a handful of frames, which may all arrive.
    let kpps = number(&figures["throughput_kpps"]);
    assert!(kpps < 1.0, "{figures:?}");
    // Without a throughput there is no share of it.
    let latency = figures["latency_us"].as_object().expect("an object");
    assert!(kpps > 0.0 || latency.keys().eq(["0"]), "{latency:?}");
    assert!(
        number(&figures["back_to_back_frames"]) < 20.0,
        "{figures:?}"
    );
    let losses = figures["loss_percent"].as_object().expect("an object");
    // Never two trials in succession without loss, so every step is made.
    assert_eq!(losses.len(), 10, "{losses:?}");
    for (percent, loss) in losses {
        // Above that of the faults where a queue on the way is full.
        assert!(number(loss) > 20.0, "{percent}: {loss}");
    }
    testbed.finish().expect("a closed ledger");
}

fn too_long() {
    let testbed = testbed(Through::Veth, "tap");
    assert_refused(run(&short("size = 9000"), &testbed), "raise the MTU");
}

fn a_stop_ends_it() {
    let testbed = testbed(Through::Veth, "tap");
    let stop = Arc::new(AtomicBool::new(false));
    let trials = AtomicU32::new(0);
    let count = |_: &str| {
        if trials.fetch_add(1, Ordering::Relaxed) == 1 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let control = Control {
        stop: Arc::clone(&stop),
        progress: &count,
    };
    assert_eq!(short("").run(&testbed, &control), Err(ToolError::Cancelled));
    assert_eq!(trials.load(Ordering::Relaxed), 2);
}
