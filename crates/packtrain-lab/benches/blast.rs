//! packtrain's blast beside the least that sends UDP packets, a `sendmmsg` loop in C
//! (`baseline/udpblast.c`).
//!
//! Both send minimal frames flat out through the same veth pair, 64 with each call, and the same
//! threads receive them. packtrain also numbers each packet. The time is the kernel's, so equal
//! rates are the most that can be expected. Every round runs both, in an order
//! that alternates, and figures are compared within a round only.
//!
//! `cargo bench -p packtrain-lab --bench blast -- --help` lists the options.

use clap::Parser;
use packtrain_lab::baseline::{self, Program};
use packtrain_lab::testbed::{Testbed, TestbedOptions, Through};
use packtrain_lab::tool::{Control, Tool};
use packtrain_lab::tools::blast::{self, Blast};
use packtrain_lab::units::Time;
use packtrain_lab::{netns, rootless};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::options::{self, Common, Timed};
use packtrain_measure::report::{Conditions, rounded};
use packtrain_measure::{Claim, Expected, statistics};
use serde::Serialize;
use serde_json::json;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

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

/// Packets in one call of either sender.
const BATCH: u32 = 64;

/// The ratio that counts as equal. At 1, noise would decide about two equal senders.
const EQUAL: f64 = 0.97;

/// Payload of a frame of 64 bytes.
const PAYLOAD: usize = 18;

fn main() -> ExitCode {
    // The first thing, since it needs a process with one thread.
    let entered = rootless::enter_if_needed();
    let arguments = Arguments::parse();
    if let Err(missing) = entered.and_then(|_| netns::namespaces_available()) {
        println!("SKIP: blast: {missing}");
        return ExitCode::SUCCESS;
    }
    options::status("blast", run(&arguments).map(|()| true))
}

/// One run of one sender.
#[derive(Debug, Serialize)]
struct Row {
    sender: &'static str,
    round: usize,
    sent_kpps: f64,
    received_percent: f64,
}

const OURS: &str = "packtrain";
const C: &str = "c";

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let program = Program::sender()?;
    let mut conditions = Conditions::of_host();
    let seconds = arguments.timed.time.as_secs_f64();
    conditions.add(
        "samples",
        format!(
            "{} rounds of {seconds} s each, veth, IPv4, frames of 64 bytes, {BATCH} a call",
            arguments.rounds
        ),
    );
    conditions.print();
    let testbed = Testbed::start(&TestbedOptions {
        through: Through::Veth,
        ..TestbedOptions::default()
    })?;
    println!(
        "{:>5} {:<10} {:>10} {:>10}",
        "round", "sender", "kpps", "received"
    );
    let mut rows = Vec::new();
    let mut order = [OURS, C];
    for round in 0..arguments.rounds {
        for sender in order {
            let (sent_kpps, received_percent) = if sender == OURS {
                ours(&testbed, arguments.timed.time)?
            } else {
                c(&testbed, &program, arguments.timed.time)?
            };
            println!("{round:>5} {sender:<10} {sent_kpps:>10.1} {received_percent:>8.1} %");
            rows.push(Row {
                sender,
                round,
                sent_kpps,
                received_percent,
            });
        }
        order.reverse();
    }
    println!();
    report(arguments, &conditions, &rows)
}

/// Packets sent, in kpps, and the share that arrived, in percent.
fn ours(testbed: &Testbed, time: Duration) -> Result<(f64, f64), Box<dyn Error>> {
    let blast = Blast {
        batch: BATCH,
        duration: Time(time),
        ..Blast::default()
    };
    let figures = blast.run(testbed, &Control::default())?.figures;
    Ok((figures.offered_kpps, 100.0 - figures.lost_percent))
}

/// The same of the loop in C.
fn c(testbed: &Testbed, program: &Program, time: Duration) -> Result<(f64, f64), Box<dyn Error>> {
    let send = |to| match to {
        SocketAddr::V4(to) => baseline::send(program, to, PAYLOAD, BATCH as usize, time),
        SocketAddr::V6(_) => unreachable!("it receives IPv4"),
    };
    let (sent, received) = blast::receive(testbed, &Control::default(), send)?;
    let sent = sent?;
    let kpps = sent.packets as f64 / sent.nanoseconds as f64 * 1e6;
    Ok((kpps, 100.0 * received as f64 / sent.packets as f64))
}

fn report(
    arguments: &Arguments,
    conditions: &Conditions,
    rows: &[Row],
) -> Result<(), Box<dyn Error>> {
    let of = |sender| {
        let rows = rows.iter().filter(move |row| row.sender == sender);
        rows.map(|row| row.sent_kpps).collect::<Vec<f64>>()
    };
    let medians = [OURS, C].map(|sender| {
        let kpps = statistics::median(&of(sender));
        println!("{sender}: median {kpps:.1} kpps");
        json!({ "sender": sender, "sent_kpps": rounded(Some(kpps)) })
    });
    // A sender has its rows in the order of the rounds.
    let ratios: Vec<f64> = of(OURS).iter().zip(of(C)).map(|(a, b)| a / b).collect();
    let claim = Claim::of_ratio(
        "blast",
        "packets per second beside the peer".to_owned(),
        "sendmmsg in C",
        statistics::estimate(&ratios),
        Expected::AtLeast(EQUAL),
    );
    println!("{claim}");
    if let Some(file) = &arguments.common.json {
        let rounds = arguments.rounds;
        let document = compared("blast", conditions, rounds, rows, medians, &[claim]);
        save(file, &document)?;
    }
    Ok(())
}
