//! The tools beside other programs that measure the same in the same testbed, beside the kernel's
//! own accounts, and beside a known truth.
//!
//! What is exact is compared exactly: `nstat` with [`packtrain_lab::counters`], injected faults
//! with what a tool reports, CPU time of threads with that of their process and of the machine.
//!
//! Times are compared with bounds that hold on a machine of any speed: an injected delay, the time
//! of the whole run, and the bytes that the kernel counted. Other programs that measure the same
//! are held to the same bounds, and their figures are printed beside the tool's. A program that is
//! not found is a test that is skipped.

mod cpu;
mod exact;
mod interference;
mod peers;
mod program;
mod truth;

use packtrain_lab::harness::{self, count, number, options, testbed};
use packtrain_lab::testbed::Testbed;
use packtrain_lab::tool::{Measured, Tool};
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(&[
        ("stream_and_its_peers_count_bits", peers::goodput),
        ("ping_and_its_peer_time_round_trips", peers::round_trips),
        ("counters_are_those_of_nstat", exact::nstat),
        ("cpu_time_is_that_of_the_process", cpu::parts),
        ("cpu_time_is_in_that_of_the_machine", cpu::machine),
        ("delays_are_in_the_times", truth::delays),
        (
            "ping_loses_nothing_out_of_order",
            truth::replies_out_of_order,
        ),
        ("trials_of_rfc2544_lose_and_wait", truth::trials),
        ("a_disturbed_run_is_not_judged", interference::disturbed),
    ])
}

fn run(tool: &impl Tool, testbed: &Testbed) -> Measured {
    harness::run(tool, testbed).expect("a run")
}
