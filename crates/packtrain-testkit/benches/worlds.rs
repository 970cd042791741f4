//! Simulated packets in a second of real time on one core: the simplest world, and worlds of a seed
//! with all their faults. `cargo bench -p packtrain-testkit --bench worlds`.

use packtrain_testkit::fuzz::{Options, Totals, plain, run};
use std::process::ExitCode;

/// Packets of the simplest world. Its backlog has to arrive within some virtual seconds.
const PACKETS: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (totals, failure) = plain(PACKETS);
        if let Some(failure) = failure {
            eprintln!("the simplest world fails: {failure}");
            return ExitCode::FAILURE;
        }
        rounds.push(rate(&totals));
    }
    rounds.sort_by(f64::total_cmp);
    let (median, least) = (rounds[ROUNDS / 2], rounds[0]);
    println!("plain path: {median:.2} M packets/s (median of {ROUNDS}; least {least:.2})");
    let options = Options {
        seed: 1,
        runs: 300,
        wire_packets: None,
    };
    let (totals, failed) = run(&options, |_| true);
    if let Some(failed) = failed {
        eprintln!("world {} of seed 1 fails: {}", failed.world, failed.failure);
        return ExitCode::FAILURE;
    }
    let worlds = totals.worlds as f64 / totals.real_time.as_secs_f64();
    let rate = rate(&totals);
    println!("with faults: {rate:.2} M wire packets/s, {worlds:.1} worlds/s");
    ExitCode::SUCCESS
}

/// Millions of wire packets in a second.
fn rate(totals: &Totals) -> f64 {
    totals.wire_packets as f64 / totals.real_time.as_secs_f64() / 1e6
}
