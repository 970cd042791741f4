//! TCP between a kernel and smoltcp over a TUN, in each direction, with three devices of smoltcp:
//!
//! - `packtrain_smoltcp::TunDevice`: large packets pass whole;
//! - *wire packets, merged*: the kernel's large packets are cut, and those of smoltcp merged, by
//!   `packtrain_offload::tun` ([`merged`]);
//! - smoltcp's own `TunTapInterface`: a system call for each wire packet.
//!
//! smoltcp has one thread, which polls, and the kernel's program another, which reads or writes.
//! Each has a CPU of its own if there are two. Both are the same for all devices ([`measure`]), and
//! so are the buffers of their sockets. smoltcp's program copies no data: it sends what is in its
//! socket's buffer, and leaves there what it receives. Every round runs all devices in both
//! directions, in an order that alternates, and figures are compared within a round only. CPU time
//! is that of smoltcp's thread, the kernel's work in its reads and writes included.
//!
//! `cargo bench -p packtrain-lab --bench smoltcp -- --help` lists the options.

mod device;
mod measure;
mod merged;

use clap::Parser;
use device::{Own, Stack, Whole};
use measure::{CHUNK_BYTES, Direction, Error, MTU, Row, Settings};
use merged::Merged;
use packtrain_lab::traffic::congestion_control;
use packtrain_lab::{rootless, tap};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::options::{self, Common, Timed};
use packtrain_measure::report::{Conditions, rounded};
use packtrain_measure::{Claim, Expected, clock, statistics};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(clap::Parser)]
struct Arguments {
    /// Runs of each device in each direction, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 9)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    rounds: usize,
    /// KiB of each buffer of smoltcp's socket, 64 to 16384
    #[arg(long, value_name = "KIB", default_value_t = 512)]
    #[arg(value_parser = clap::value_parser!(u16).range(64..=16384))]
    buffer: u16,
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
        println!("SKIP: smoltcp: {missing}");
        return ExitCode::SUCCESS;
    }
    options::status("smoltcp", run(&arguments).map(|()| true))
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let cpus = clock::cpus()?.first_chunk().copied();
    let conditions = conditions(arguments, cpus);
    conditions.print();
    println!(
        "{:>5} {:<15} {:<20} {:>8} {:>9} {:>7} {:>12} {:>7}",
        "round", "direction", "device", "Gbit/s", "CPU s/GB", "user", "bytes/packet", "retrans"
    );
    let settings = Settings {
        cpus,
        time: arguments.timed.time,
        buffer_bytes: usize::from(arguments.buffer) << 10,
    };
    let mut rows = Vec::new();
    let mut contestants = [
        measure::run::<Whole> as fn(Direction, Settings, usize) -> Result<Row, Error>,
        measure::run::<Merged>,
        measure::run::<Own>,
    ];
    for round in 0..arguments.rounds {
        for direction in Direction::ALL {
            for measure in contestants {
                let row = measure(direction, settings, round)?;
                print_row(&row);
                rows.push(row);
            }
        }
        contestants.reverse();
    }
    println!();
    let names = [Whole::NAME, Merged::NAME, Own::NAME];
    let medians: Vec<Value> = Direction::ALL
        .iter()
        .flat_map(|&direction| names.map(|name| medians(&rows, direction, name)))
        .collect();
    let claims: Vec<Claim> = GOALS.iter().map(|goal| goal.claim(&rows)).collect();
    for claim in &claims {
        println!("{claim}");
    }
    if let Some(file) = &arguments.common.json {
        let rounds = arguments.rounds;
        let document = compared("smoltcp", &conditions, rounds, &rows, medians, &claims);
        save(file, &document)?;
    }
    Ok(())
}

/// On what everything is measured.
fn conditions(arguments: &Arguments, cpus: Option<[usize; 2]>) -> Conditions {
    let mut conditions = Conditions::of_host();
    let congestion = congestion_control().unwrap_or_else(|_| "unknown".to_owned());
    conditions.add("tcp", format!("{congestion}; smoltcp: none"));
    let cpus = cpus.map_or("any".to_owned(), |cpus| format!("{cpus:?}"));
    conditions.add("cpus", format!("{cpus}: smoltcp's, the kernel's program's"));
    let seconds = arguments.timed.time.as_secs_f64();
    conditions.add(
        "samples",
        format!(
            "{} rounds of {seconds} s each, IPv4, 1 stream, MTU {MTU}, 2 threads",
            arguments.rounds
        ),
    );
    conditions.add(
        "buffers",
        format!(
            "{} KiB in each direction of smoltcp's socket, {} KiB in each call of the other \
             program; the kernel's socket sizes its own",
            arguments.buffer,
            CHUNK_BYTES >> 10
        ),
    );
    conditions
}

/// One line for one transfer.
fn print_row(row: &Row) {
    println!(
        "{:>5} {:<15} {:<20} {:>8.3} {:>9.4} {:>7.4} {:>12.0} {:>7}",
        row.round,
        row.direction,
        row.device,
        row.gbps,
        row.cpu_s_per_gb,
        row.user_s_per_gb,
        row.packet_bytes,
        row.retransmits,
    );
}

/// The figures of one device in one direction, in the order of the rounds.
fn of(rows: &[Row], direction: Direction, name: &str, figure: fn(&Row) -> f64) -> Vec<f64> {
    let rows = rows.iter();
    rows.filter(|row| row.direction == direction.name() && row.device == name)
        .map(figure)
        .collect()
}

/// Prints the median figures of one device in one direction, and returns them for the JSON
/// document.
fn medians(rows: &[Row], direction: Direction, name: &str) -> Value {
    let all = |figure| of(rows, direction, name, figure);
    let goodput = all(|row| row.gbps);
    let gbps = statistics::median(&goodput);
    let cpu = statistics::median(&all(|row| row.cpu_s_per_gb));
    let least = goodput.iter().copied().fold(f64::INFINITY, f64::min);
    let most = goodput.iter().copied().fold(0.0, f64::max);
    println!(
        "{}, {name}: median {gbps:.3} Gbit/s ({least:.3} to {most:.3}), {cpu:.4} CPU s/GB",
        direction.name()
    );
    json!({
        "direction": direction.name(),
        "device": name,
        "gbps": rounded(Some(gbps)),
        "gbps_least": rounded(Some(least)),
        "gbps_most": rounded(Some(most)),
        "cpu_s_per_gb": rounded(Some(cpu)),
    })
}

/// A ratio of `TunDevice` to another device, round by round.
struct Goal {
    direction: Direction,
    what: &'static str,
    figure: fn(&Row) -> f64,
    beside: &'static str,
    expected: Expected,
}

const fn goodput(direction: Direction, beside: &'static str, least: f64) -> Goal {
    Goal {
        direction,
        what: "goodput",
        figure: |row| row.gbps,
        beside,
        expected: Expected::AtLeast(least),
    }
}

const fn cpu(direction: Direction, beside: &'static str) -> Goal {
    Goal {
        direction,
        what: "CPU per GB",
        figure: |row| row.cpu_s_per_gb,
        beside,
        expected: Expected::AtMost(1.0),
    }
}

const GOALS: &[Goal] = &[
    goodput(Direction::ToKernel, Merged::NAME, 2.0),
    goodput(Direction::ToKernel, Own::NAME, 2.0),
    cpu(Direction::ToKernel, Merged::NAME),
    cpu(Direction::ToKernel, Own::NAME),
    goodput(Direction::FromKernel, Merged::NAME, 1.0),
    goodput(Direction::FromKernel, Own::NAME, 1.0),
    cpu(Direction::FromKernel, Merged::NAME),
    cpu(Direction::FromKernel, Own::NAME),
];

impl Goal {
    fn claim(&self, rows: &[Row]) -> Claim {
        let all = |name| of(rows, self.direction, name, self.figure);
        let pairs = all(Whole::NAME).into_iter().zip(all(self.beside));
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
        let estimate = statistics::estimate(&ratios);
        let claim = format!("{} beside {}", self.what, self.beside);
        let experiment = self.direction.name();
        Claim::of_ratio(experiment, claim, self.beside, estimate, self.expected)
    }
}
