//! Ports in pairs: the packtrain program beside what else joins the same devices.
//!
//! A path is a pair of devices. What joins it is in turn packtrain and its peers: `dpdk-testpmd`
//! with its driver for such a device, the kernel's bridge, a forwarder in C. Every round runs all
//! of them, in another order each time, with the same load, and figures are compared within a
//! round only. The path says which devices are there; the program says which it opens.
//!
//! `cargo bench -p packtrain-cli --bench ports -- --help` lists the options.

mod arguments;
mod figures;
mod forwarder;
mod front_ends;
mod hosts;
mod paths;
#[path = "../process/mod.rs"]
mod process;
mod report;
mod testpmd;

use arguments::Arguments;
use clap::Parser;
use figures::Row;
use packtrain_lab::{rootless, tap};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::{Claim, options};
use paths::{Contestant, Ends, Path};
use process::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The first thing, since it needs a process with one thread.
    let entered = rootless::enter_if_needed();
    let arguments = Arguments::parse();
    if let Err(missing) = entered.and_then(|_| tap::available()) {
        println!("SKIP: ports: {missing}");
        return match arguments.check {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        };
    }
    let met = run(&arguments).map(|met| met || !arguments.check);
    options::status("ports", met)
}

/// Runs everything; says whether all goals were reproduced.
fn run(arguments: &Arguments) -> Result<bool, Error> {
    let conditions = report::conditions(arguments);
    conditions.print();
    let (mut rows, mut claims, mut medians) = (Vec::new(), Vec::new(), Vec::new());
    for mut path in arguments.paths() {
        open(arguments, &mut path);
        let measured = match path.contestants.iter().any(Contestant::is_ours) {
            true => rounds(arguments, &path)?,
            // Its goals are missed.
            false => Vec::new(),
        };
        medians.extend(report::medians(&path, &measured));
        claims.extend(report::judge(&path, &measured));
        rows.extend(measured);
    }
    let met = claims.iter().filter(|claim| claim.is_met()).count();
    println!("{met} of {} goals reproduced", claims.len());
    if let Some(file) = &arguments.common.json {
        let rounds = arguments.rounds.into();
        let document = compared("ports", &conditions, rounds, &rows, medians, &claims);
        save(file, &document)?;
    }
    Ok(claims.iter().all(Claim::is_met))
}

/// Starts each contestant once, and leaves those out that do not start, with the reason.
fn open(arguments: &Arguments, path: &mut Path) {
    println!("{}: {}", path.name, path.about);
    let mut opened = Vec::new();
    for contestant in std::mem::take(&mut path.contestants) {
        let started = match path.ends {
            Ends::Hosts(ends) => {
                let joined = hosts::join(arguments, ends, &contestant);
                joined.and_then(hosts::Joined::end)
            }
            Ends::FrontEnds => front_ends::open(arguments, &contestant),
        };
        match started {
            Ok(()) => opened.push(contestant),
            Err(error) => {
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default();
                let what = match contestant.is_ours() {
                    true => "not opened here",
                    false => "missing",
                };
                println!("{what}: {}, {}: {reason}", path.name, contestant.name);
            }
        }
    }
    path.contestants = opened;
}

/// All rounds of one path.
fn rounds(arguments: &Arguments, path: &Path) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let mut order: Vec<&Contestant> = path.contestants.iter().collect();
    report::print_head();
    for round in 0..arguments.rounds.into() {
        for contestant in &order {
            let figures = match path.ends {
                Ends::Hosts(ends) => {
                    let joined = hosts::join(arguments, ends, contestant)?;
                    let figures = figures::of_hosts(arguments, joined.testbed())?;
                    joined.end()?;
                    figures
                }
                Ends::FrontEnds => front_ends::measure(arguments, contestant)?,
            };
            let row = Row {
                path: path.name,
                forwarder: contestant.name,
                far_offloads: contestant.far(),
                round,
                figures,
            };
            report::print_row(&row);
            rows.push(row);
        }
        // Each is first equally often, and of three none always follows the same one.
        order.rotate_left(1);
        if (round + 1) % order.len() == 0 {
            order.reverse();
        }
    }
    println!();
    Ok(rows)
}
