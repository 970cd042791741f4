//! TAP to TAP: the packtrain program beside the least that a C program can do, in pairs.
//!
//! Two kernels talk TCP to each other, and what joins them is in turn packtrain and the
//! laboratory's `tapfwd.c` with one and with two threads. Every round runs all of them, in another
//! order each time, and figures are compared within a round only, so that a machine that gets
//! faster or slower meanwhile does not decide.
//!
//! `cargo bench -p packtrain-cli --bench tap_forward -- --help` lists the options.

mod arguments;
mod forwarder;
mod measure;
#[path = "../process/mod.rs"]
mod process;
mod report;

use arguments::Arguments;
use clap::Parser;
use forwarder::Contestant;
use measure::{Direction, Row};
use packtrain_lab::baseline::Program;
use packtrain_lab::{rootless, tap};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::{Claim, options};
use process::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The program that is measured: built with the bench's profile.
const PACKTRAIN: &str = env!("CARGO_BIN_EXE_packtrain");

/// Orders of three contestants: each is equally often first, second and last.
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [2, 1, 0],
    [1, 2, 0],
    [0, 2, 1],
    [2, 0, 1],
    [1, 0, 2],
];

fn main() -> ExitCode {
    // The first thing, since it needs a process with one thread.
    let entered = rootless::enter_if_needed();
    let arguments = Arguments::parse();
    if let Err(missing) = entered {
        eprintln!("tap_forward: {missing}");
        return ExitCode::from(3);
    }
    if let Err(missing) = tap::available() {
        eprintln!("tap_forward: {missing}");
        return ExitCode::from(3);
    }
    let met = run(&arguments).map(|met| met || !arguments.check);
    options::status("tap_forward", met)
}

/// Runs everything; says whether all goals were reproduced.
fn run(arguments: &Arguments) -> Result<bool, Error> {
    let directory = output_directory()?;
    // `nice` needs a path of its own.
    let baseline = directory.join("tapfwd");
    fs::copy(Program::forwarder()?.path(), &baseline)?;
    let conditions = report::conditions(arguments);
    conditions.print();
    report::print_head();
    let (mut rows, mut claims, mut medians) = (Vec::new(), Vec::new(), Vec::new());
    for experiment in &arguments.experiments() {
        let contestants = arguments.contestants(*experiment, Path::new(PACKTRAIN), &baseline);
        let measured = rounds(arguments, experiment.name(), &contestants)?;
        medians.extend(report::medians(*experiment, &contestants, &measured));
        claims.extend(report::judge(*experiment, &contestants, &measured));
        rows.extend(measured);
    }
    let default = || directory.join("tap_forward.json");
    let file = arguments.common.json.clone().unwrap_or_else(default);
    let rounds = arguments.rounds;
    let document = compared("tap_forward", &conditions, rounds, &rows, medians, &claims);
    save(&file, &document)?;
    Ok(claims.iter().all(Claim::is_met))
}

/// All rounds of one experiment.
fn rounds(
    arguments: &Arguments,
    experiment: &'static str,
    contestants: &[Contestant],
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for round in 0..arguments.rounds {
        // Twelve rounds have every order in both directions.
        let direction = Direction::ALL[round % 2];
        let order = ORDERS[round / 2 % ORDERS.len()];
        for contestant in order {
            // Of two contestants, each is first in three of the six orders.
            let Some(contestant) = contestants.get(contestant) else {
                continue;
            };
            let row = measure::run(arguments, experiment, contestant, direction, round)?;
            report::print_row(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// `bench` in the target directory, made if it is not there.
fn output_directory() -> Result<PathBuf, Error> {
    let target = Path::new(PACKTRAIN).parent().and_then(Path::parent);
    let directory = target.unwrap_or(Path::new("target")).join("bench");
    fs::create_dir_all(&directory)
        .map_err(|error| format!("make {}: {error}", directory.display()))?;
    Ok(directory)
}
