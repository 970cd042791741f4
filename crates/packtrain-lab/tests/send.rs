//! What `tool = "send"` reports is what the kernel behind a TAP counts.

use packtrain_lab::ToolError;
use packtrain_lab::experiment::Setup;
use packtrain_lab::harness::{self, count, need_tap, stopped};
use packtrain_lab::tool::Control;
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(&[
        ("the_kernel_counts_what_was_sent", the_kernel_counts),
        ("a_stop_ends_it", a_stop_ends_it),
    ])
}

/// A run with a port, policies and options of the tool.
fn setup(port: &str, policies: &str, options: &str) -> Setup {
    let testbed = format!("a = \"{port}\", {policies}");
    let workload = format!("tool = \"send\", {options}");
    harness::setup(&testbed, &workload, "received_kpps", 1)
}

fn the_kernel_counts() {
    need_tap();
    let mut all = 0;
    for (port, senders) in [("tap", 1), ("tap,queues=2", 3), ("tap,offload=off", 2)] {
        for dispatch in ["direct", "deferred", "adaptive"] {
            let policies = format!("dispatch = \"{dispatch}\"");
            let options = format!("senders = {senders}, duration = \"100ms\"");
            let measured = setup(port, &policies, &options)
                .run(&Control::default())
                .unwrap_or_else(|error| panic!("{port}, {dispatch}: {error}"));
            assert_eq!(measured.settings["dispatch_a"], dispatch);
            assert_eq!(measured.settings["mtu"], 1500);
            let sent = count(&measured, "sent_packets");
            assert!(senders * count(&measured, "offered_least_packets") <= sent);
            // One run of 100 ms may get no CPU; all runs together send.
            all += sent;
            assert_eq!(sent, count(&measured, "offered_packets"), "{port}");
            // By the IP layer of the host, and by the interface.
            assert_eq!(sent, count(&measured, "received_packets"), "{port}");
            let device = &measured.figures["a"]["device"];
            assert_eq!(device["rx_packets"], sent, "{port}");
            assert_eq!(device["tx_packets"], 0, "{port}: the host answers nothing");
        }
    }
    assert!(all > 0);
}

fn a_stop_ends_it() {
    need_tap();
    let setup = setup("tap", "mtu = 1500", "senders = 2, duration = \"600s\"");
    let ended = stopped(|control| setup.run(control));
    assert_eq!(ended, Err(ToolError::Cancelled));
}
