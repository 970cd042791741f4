//! What is printed and written.

use crate::arguments::{Arguments, Experiment};
use crate::forwarder::Contestant;
use crate::measure::{Direction, Row};
use packtrain_lab::topology::Settings;
use packtrain_lab::traffic::congestion_control;
use packtrain_measure::claim::figures;
use packtrain_measure::report::{Conditions, rounded};
use packtrain_measure::statistics::{self, Estimate};
use packtrain_measure::{Claim, Expected};
use serde_json::{Value, json};

/// The least goodput beside the better C forwarder.
const GOODPUT_GOAL: f64 = 0.95;
/// What merging (toward the interface with offloads) and cutting (from it) in software have to be
/// worth, as the least goodput beside doing neither.
const COALESCE_GOALS: [f64; 2] = [2.0, 1.5];
/// The most CPU time beside the better C forwarder.
const CPU_GOAL: f64 = 1.05;

/// As in claims.
fn name(experiment: Experiment) -> String {
    format!("tap_forward/{}", experiment.name())
}

/// On what everything is measured.
pub fn conditions(arguments: &Arguments) -> Conditions {
    let mut conditions = Conditions::of_host();
    let congestion = congestion_control().unwrap_or_else(|_| "unknown".to_owned());
    conditions.add("tcp", congestion);
    let Settings {
        mtu, tx_queue_len, ..
    } = Settings::default();
    conditions.add(
        "samples",
        format!(
            "{} rounds of {} s each, IPv4, 1 stream, MTU {mtu}, {tx_queue_len} packets of queue",
            arguments.rounds,
            arguments.timed.time.as_secs_f64()
        ),
    );
    conditions
}

/// The heads of the columns of [`print_row`].
pub fn print_head() {
    println!(
        "{:>5} {:<10} {:<7} {:<16} {:>8} {:>8} {:>7} {:>7} {:>6} {:>7} {:>9} {:>7}",
        "round",
        "experiment",
        "way",
        "forwarder",
        "Gbit/s",
        "CPU s/GB",
        "retrans",
        "dropped",
        "calls",
        "pk/wait",
        "bytes/pkt",
        "kpkt/s"
    );
}

/// One line for one transfer.
pub fn print_row(row: &Row) {
    println!(
        "{:>5} {:<10} {:<7} {:<16} {:>8.3} {:>8.4} {:>7} {:>7} {:>6.2} {:>7.1} {:>9.0} {:>7.1}",
        row.round,
        row.experiment,
        row.direction.name(),
        row.forwarder,
        row.gbps,
        row.cpu_s_per_gb,
        row.retransmits,
        row.kernel_drops + row.lost,
        row.syscalls_per_packet,
        row.packets_per_sleep,
        row.packet_bytes,
        row.packets_per_s / 1e3,
    );
}

fn of<'a>(
    rows: &'a [Row],
    forwarder: &'a str,
    direction: Option<Direction>,
) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| {
        row.forwarder == forwarder && direction.is_none_or(|wanted| row.direction == wanted)
    })
}

/// The ratio of two forwarders, first to second, over the rounds.
fn ratio(
    rows: &[Row],
    names: [&str; 2],
    direction: Option<Direction>,
    figure: fn(&Row) -> f64,
) -> Option<Estimate> {
    let ratio = |ours: &Row| {
        let theirs = of(rows, names[1], direction).find(|row| row.round == ours.round)?;
        Some(figure(ours) / figure(theirs))
    };
    let ratios: Vec<f64> = of(rows, names[0], direction).filter_map(ratio).collect();
    statistics::estimate(&ratios)
}

/// Prints the median figures of each forwarder, and returns them for the JSON document.
pub fn medians(experiment: Experiment, contestants: &[Contestant], rows: &[Row]) -> Vec<Value> {
    println!();
    let medians = contestants.iter().map(|contestant| {
        let name = contestant.name();
        let median = |figure: fn(&Row) -> f64| {
            statistics::median(&of(rows, name, None).map(figure).collect::<Vec<_>>())
        };
        let (gbps, cpu) = (median(|row| row.gbps), median(|row| row.cpu_s_per_gb));
        println!(
            "{name}: median {gbps:.3} Gbit/s, {cpu:.4} CPU s/GB (user {:.4}; by ticks {:.4}), \
             {:.2} calls and {:.0} bytes per packet, {:.0} retransmits",
            median(|row| row.user_s_per_gb),
            median(|row| row.cpu_ticks_s_per_gb),
            median(|row| row.syscalls_per_packet),
            median(|row| row.packet_bytes),
            median(|row| row.retransmits as f64),
        );
        json!({
            "comparison": experiment.name(),
            "forwarder": name,
            "gbps": rounded(Some(gbps)),
            "cpu_s_per_gb": rounded(Some(cpu)),
        })
    });
    medians.collect()
}

/// Compares packtrain, the first, with the better of the others, and prints the verdicts.
pub fn judge(experiment: Experiment, contestants: &[Contestant], rows: &[Row]) -> Vec<Claim> {
    let (ours, first, second) = match contestants {
        [ours, first, second] => (ours, first.name(), second.name()),
        [with, without] => return with_and_without(experiment, [with, without], rows),
        _ => return Vec::new(),
    };
    let goodput = |name: &str| {
        statistics::median(&of(rows, name, None).map(|row| row.gbps).collect::<Vec<_>>())
    };
    let (better, other) = if goodput(first) >= goodput(second) {
        (first, second)
    } else {
        (second, first)
    };
    let mut claims = Vec::new();
    for (what, figure) in FIGURES {
        let estimate = ratio(rows, [ours.name(), better], None, figure);
        let goal = goal(experiment, what);
        let what = format!("{what} beside the better other forwarder");
        let claim = Claim::of_ratio(&name(experiment), what, better, estimate, goal);
        println!("{claim}");
        for direction in Direction::ALL {
            let names = [ours.name(), better];
            let estimate = ratio(rows, names, Some(direction), figure);
            println!("  {}: {}", direction.name(), figures(estimate));
        }
        let beside = ratio(rows, [ours.name(), other], None, figure);
        println!("  to {other}: {}", figures(beside));
        claims.push(claim);
    }
    claims.push(retransmits(experiment, rows, [ours.name(), better]));
    if experiment == Experiment::Unequal {
        println!(
            "The C forwarder passes headers on as they come, so it cannot join an interface that \
             has offloads with one that has none: it had to go without on both."
        );
    }
    println!();
    claims
}

/// Two settings of packtrain, each way for itself.
fn with_and_without(
    experiment: Experiment,
    contestants: [&Contestant; 2],
    rows: &[Row],
) -> Vec<Claim> {
    let names = contestants.map(Contestant::name);
    let mut claims = Vec::new();
    for (direction, goal) in Direction::ALL.into_iter().zip(COALESCE_GOALS) {
        let estimate = ratio(rows, names, Some(direction), |row| row.gbps);
        let claim = Claim::of_ratio(
            &name(experiment),
            format!("goodput {} beside no offloads", direction.name()),
            names[1],
            estimate,
            Expected::AtLeast(goal),
        );
        println!("{claim}");
        let cpu = ratio(rows, names, Some(direction), |row| row.cpu_s_per_gb);
        println!("  CPU per GB: {}", figures(cpu));
        claims.push(claim);
    }
    println!();
    claims
}

/// Segments that TCP sent again: no more than beside the other, but for those that the kernels
/// dropped in front of packtrain. (A dropped GSO packet is sent again as many segments.)
fn retransmits(experiment: Experiment, rows: &[Row], [ours, other]: [&'static str; 2]) -> Claim {
    let total = |name, figure: fn(&Row) -> u64| of(rows, name, None).map(figure).sum::<u64>();
    let (mine, theirs) = (
        total(ours, |row| row.retransmits),
        total(other, |row| row.retransmits),
    );
    let allowed = theirs + total(ours, |row| row.kernel_drops);
    let claim = Claim::of_totals(
        &name(experiment),
        "retransmissions beside the better other forwarder".to_owned(),
        other,
        [mine, theirs],
        allowed,
        "kernel drops included",
    );
    println!("{claim}");
    claim
}

type Figure = fn(&Row) -> f64;

const FIGURES: [(&str, Figure); 2] = [
    ("goodput", |row| row.gbps),
    ("CPU per GB", |row| row.cpu_s_per_gb),
];

fn goal(experiment: Experiment, what: &str) -> Expected {
    match (experiment, what) {
        (Experiment::Offloaded, "goodput") => Expected::AtLeast(GOODPUT_GOAL),
        (Experiment::Offloaded, _) => Expected::AtMost(CPU_GOAL),
        // How much better is not known beforehand.
        (Experiment::Unequal | Experiment::Coalesce, "goodput") => Expected::AtLeast(1.0),
        (Experiment::Unequal | Experiment::Coalesce, _) => Expected::AtMost(1.0),
    }
}
