//! CPU time beside the accounts of the process and of the machine.
//!
//! `/proc/stat` counts ticks of 10 ms as a rule: a tick is charged to what runs when it happens, so
//! a sum over a second has an error of some percent. Others may use the machine at the same time.
//! So what is checked holds beside any load: all CPUs together had the time that passed, and a part
//! has no more than the whole.

use packtrain_lab::cpu::Usage;
use packtrain_lab::harness::need_tap;
use packtrain_lab::machine::Activity;
use packtrain_lab::testbed::Through;
use packtrain_lab::tools::stream::Stream;
use std::f64::consts::SQRT_2;
use std::time::Instant;

use crate::{number, options, run, testbed};

/// Sender, receiver and forwarder are the process, but for the thread that reads the counters.
pub fn parts() {
    need_tap();
    for through in [Through::Packtrain, Through::Veth] {
        let testbed = testbed(through, "tap");
        let stream: Stream = options(&["duration = '400ms', warm-up = '0'"]);
        let before = Usage::of_process();
        let figures = run(&stream, &testbed).figures;
        let process = Usage::of_process().since(&before).cpu().as_secs_f64();
        let seconds = number(&figures["seconds"]);
        let of = |side: &str| number(&figures[&format!("cpu_{side}_percent")]) / 100.0 * seconds;
        let sides = ["sender", "receiver", "forwarder"].map(of);
        let parts: f64 = sides.iter().sum();
        println!("CPU time: {sides:.3?} of {process:.3} s of the process");
        // The clocks of threads and the usage of a process are rounded differently.
        assert!(parts <= process * 1.02 + 0.005, "{parts} {process}");
        assert!(process <= parts * SQRT_2 + 0.020, "{parts} {process}");
        testbed.finish().expect("a closed ledger");
    }
}

pub fn machine() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let testbed = testbed(Through::Veth, "tap");
    let stream: Stream = options(&["duration = '1200ms'"]);
    let (used, activity, start) = (Usage::of_process(), Activity::now(), Instant::now());
    let figures = run(&stream, &testbed).figures;
    let wall = start.elapsed().as_secs_f64();
    let machine = Activity::now().expect("/proc/stat") - activity.expect("/proc/stat");
    let own = Usage::of_process().since(&used).cpu().as_secs_f64();
    let (busy, steal) = (machine.busy().as_secs_f64(), machine.steal.as_secs_f64());
    let all = machine.total().as_secs_f64();
    println!(
        "CPU time: {own:.2} s of the process in {busy:.2} s of the machine, and {steal:.2} s \
         stolen; all CPUs had {all:.2} s in {wall:.2} s"
    );
    // A quota of a cgroup can only make `cpus` less than the machine's.
    assert!(all >= wall * cpus as f64 / SQRT_2, "{all} {wall} {cpus}");
    assert!(own <= (busy + steal) * SQRT_2, "{own} {busy} {steal}");
    let percent = number(&figures["cpu_machine_percent"]);
    assert!((0.0..=100.0).contains(&percent), "{percent}");
}
