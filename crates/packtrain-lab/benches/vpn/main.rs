//! TUN to TUN, as in a VPN: packtrain-offload beside the offloads of tun-rs.
//!
//! Two kernels, each in a network namespace, talk TCP to each other through a VPN without a cipher:
//! a read of one TUN becomes wire packets of the MTU, and a batch of wire packets becomes writes to
//! the other. Both contestants open the devices with tun-rs, and have the same two threads, the
//! same wire and the same receive buffers. Their sources, `with_tun_rs.rs` and `with_packtrain.rs`,
//! can be read side by side. tun-rs copies each packet of a read into a buffer, packtrain makes it
//! where it was read; then both copy it to the wire, once.
//!
//! Every round runs both, in an order that alternates, and figures are compared within a round
//! only. CPU time is that of the VPN's threads, the kernel's work in their reads and writes
//! included.
//!
//! `cargo bench -p packtrain-lab --bench vpn -- --help` lists the options.

mod endpoint;
mod measure;
mod with_packtrain;
mod with_tun_rs;

use clap::Parser;
use endpoint::Endpoint;
use measure::{Error, Row};
use packtrain_lab::topology::Settings;
use packtrain_lab::traffic::congestion_control;
use packtrain_lab::{rootless, tap};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::options::{self, Common, Timed};
use packtrain_measure::report::{Conditions, rounded};
use packtrain_measure::{Claim, Expected, statistics};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use with_packtrain::WithPacktrain;
use with_tun_rs::WithTunRs;

#[derive(clap::Parser)]
struct Arguments {
    /// Runs of each side, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 16)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    rounds: usize,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    timed: Timed,
}

fn main() -> ExitCode {
    // The first thing, since it needs a process with one thread.
    let entered = rootless::enter_if_needed();
    let arguments = Arguments::parse();
    if let Err(missing) = entered.and_then(|_| tap::available()) {
        println!("SKIP: vpn: {missing}");
        return ExitCode::SUCCESS;
    }
    options::status("vpn", run(&arguments).map(|()| true))
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let conditions = conditions(arguments);
    conditions.print();
    println!(
        "{:>5} {:<10} {:>8} {:>9} {:>7} {:>10} {:>11} {:>7} {:>7}",
        "round",
        "offloads",
        "Gbit/s",
        "CPU s/GB",
        "user",
        "bytes/read",
        "bytes/write",
        "retrans",
        "dropped"
    );
    let mut rows = Vec::new();
    let mut contestants = [
        measure::run::<WithPacktrain> as fn(Duration, usize) -> Result<Row, Error>,
        measure::run::<WithTunRs>,
    ];
    for round in 0..arguments.rounds {
        for measure in contestants {
            let row = measure(arguments.timed.time, round)?;
            print_row(&row);
            rows.push(row);
        }
        contestants.reverse();
    }
    println!();
    let medians = [WithPacktrain::NAME, WithTunRs::NAME].map(|name| medians(&rows, name));
    let claims = claims(&rows);
    for claim in &claims {
        println!("{claim}");
    }
    if let Some(file) = &arguments.common.json {
        let rounds = arguments.rounds;
        let document = compared("vpn", &conditions, rounds, &rows, medians, &claims);
        save(file, &document)?;
    }
    Ok(())
}

/// On what everything is measured.
fn conditions(arguments: &Arguments) -> Conditions {
    let mut conditions = Conditions::of_host();
    let congestion = congestion_control().unwrap_or_else(|_| "unknown".to_owned());
    conditions.add("tcp", congestion);
    let (mtu, seconds) = (Settings::default().mtu, arguments.timed.time.as_secs_f64());
    conditions.add(
        "samples",
        format!(
            "{} rounds of {seconds} s each, IPv4, 1 stream, MTU {mtu}, 2 threads",
            arguments.rounds
        ),
    );
    conditions
}

/// One line for one transfer.
fn print_row(row: &Row) {
    println!(
        "{:>5} {:<10} {:>8.3} {:>9.4} {:>7.4} {:>10.0} {:>11.0} {:>7} {:>7}",
        row.round,
        row.endpoint,
        row.gbps,
        row.cpu_s_per_gb,
        row.user_s_per_gb,
        row.read_bytes,
        row.write_bytes,
        row.retransmits,
        row.kernel_drops,
    );
}

fn of<'a>(rows: &'a [Row], name: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.endpoint == name)
}

/// Prints the median figures of one contestant, and returns them for the JSON document.
fn medians(rows: &[Row], name: &str) -> Value {
    let median = |figure: fn(&Row) -> f64| {
        statistics::median(&of(rows, name).map(figure).collect::<Vec<_>>())
    };
    let (gbps, cpu) = (median(|row| row.gbps), median(|row| row.cpu_s_per_gb));
    println!("{name}: median {gbps:.3} Gbit/s, {cpu:.4} CPU s/GB");
    json!({
        "offloads": name,
        "gbps": rounded(Some(gbps)),
        "cpu_s_per_gb": rounded(Some(cpu)),
    })
}

/// The ratios of packtrain to tun-rs, round by round.
fn claims(rows: &[Row]) -> Vec<Claim> {
    type Figure = fn(&Row) -> f64;
    let figures: [(&str, Figure, Expected); 2] = [
        ("goodput", |row| row.gbps, Expected::AtLeast(1.0)),
        ("CPU per GB", |row| row.cpu_s_per_gb, Expected::AtMost(1.0)),
    ];
    let claim = |(what, figure, expected): (&str, Figure, Expected)| {
        // A contestant has its rows in the order of the rounds.
        let pairs = of(rows, WithPacktrain::NAME).zip(of(rows, WithTunRs::NAME));
        let ratios: Vec<f64> = pairs.map(|(a, b)| figure(a) / figure(b)).collect();
        let estimate = statistics::estimate(&ratios);
        let claim = format!("{what} beside the peer");
        Claim::of_ratio("vpn", claim, WithTunRs::NAME, estimate, expected)
    };
    figures.map(claim).into()
}
