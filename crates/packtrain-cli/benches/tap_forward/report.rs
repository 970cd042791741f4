//! What is printed and written.

use crate::arguments::{Arguments, Experiment};
use crate::forwarder::{Contestant, Error};
use crate::measure::{Direction, Row};
use crate::statistics::{self, Estimate};
use packtrain_lab::topology::Settings;
use packtrain_lab::traffic::congestion_control;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The least the lower bound of the goodput ratio may be.
const GOODPUT_GOAL: f64 = 0.95;
/// What merging (toward the interface with offloads) and cutting (from it) in software have to be
/// worth, as the least that the lower bound of the goodput ratio may be.
const COALESCE_GOALS: [f64; 2] = [2.0, 1.5];
/// The most the CPU time ratio may be.
const CPU_GOAL: f64 = 1.05;

/// A verdict.
#[derive(Clone, Debug)]
pub struct Claim {
    experiment: &'static str,
    claim: String,
    expected: String,
    measured: Measured,
    reached: bool,
}

#[derive(Clone, Copy, Debug)]
enum Measured {
    /// A ratio over the pairs; `None` when there was none.
    Ratio(Option<Estimate>),
    /// Totals over all rounds: packtrain's, and the other's.
    Totals(u64, u64),
}

impl Claim {
    /// Whether the figures are as expected.
    pub const fn is_reached(&self) -> bool {
        self.reached
    }

    fn verdict(&self) -> &'static str {
        if self.reached { "ok" } else { "not ok" }
    }
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|_| "unknown".to_owned());
    text.trim().to_owned()
}

fn machine() -> String {
    let text = read("/proc/cpuinfo");
    let model = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// What the figures depend on.
fn host() -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "machine": machine(),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpus": packtrain_lab::cpu::count(),
        "load": read("/proc/loadavg"),
        "unix_time": since.map_or(0, |since| since.as_secs()),
        "tcp_congestion_control": congestion_control().unwrap_or_else(|_| "unknown".to_owned()),
    })
}

/// What is run, and on what.
pub fn print_header(arguments: &Arguments) {
    let host = host();
    let text = |key: &str| host[key].as_str().unwrap_or_default().to_owned();
    println!(
        "{}, {} CPUs, Linux {}",
        text("machine"),
        host["cpus"],
        text("kernel")
    );
    println!(
        "load {}; TCP {}",
        text("load"),
        text("tcp_congestion_control")
    );
    let Settings {
        mtu, tx_queue_len, ..
    } = Settings::default();
    println!(
        "{} rounds of {} s each, IPv4, 1 stream, MTU {mtu}, {tx_queue_len} packets of queue",
        arguments.rounds,
        arguments.time.as_secs_f64()
    );
    println!(
        "\n{:>5} {:<10} {:<7} {:<16} {:>8} {:>8} {:>7} {:>7} {:>6} {:>7} {:>9} {:>7}",
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

fn pairs(
    rows: &[Row],
    names: [&str; 2],
    direction: Option<Direction>,
    figure: fn(&Row) -> f64,
) -> Vec<(f64, f64)> {
    let pair = |ours: &Row| {
        let theirs = of(rows, names[1], direction).find(|row| row.round == ours.round)?;
        Some((figure(ours), figure(theirs)))
    };
    of(rows, names[0], direction).filter_map(pair).collect()
}

fn print_medians(rows: &[Row], contestants: &[Contestant]) {
    println!();
    for contestant in contestants {
        let name = contestant.name();
        let median = |figure: fn(&Row) -> f64| {
            statistics::median(&of(rows, name, None).map(figure).collect::<Vec<_>>())
        };
        println!(
            "{name}: median {:.3} Gbit/s, {:.4} CPU s/GB (user {:.4}; by ticks {:.4}), \
             {:.2} calls and {:.0} bytes per packet, {:.0} retransmits",
            median(|row| row.gbps),
            median(|row| row.cpu_s_per_gb),
            median(|row| row.user_s_per_gb),
            median(|row| row.cpu_ticks_s_per_gb),
            median(|row| row.syscalls_per_packet),
            median(|row| row.packet_bytes),
            median(|row| row.retransmits as f64),
        );
    }
}

/// Compares packtrain, the first, with the better of the others, and prints the verdicts.
pub fn judge(experiment: Experiment, contestants: &[Contestant], rows: &[Row]) -> Vec<Claim> {
    print_medians(rows, contestants);
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
        let estimate = statistics::ratio(&pairs(rows, [ours.name(), better], None, figure));
        let claim = claim(experiment, what, better, estimate);
        println!("{}", line(&claim));
        for direction in Direction::ALL {
            let names = [ours.name(), better];
            let estimate = statistics::ratio(&pairs(rows, names, Some(direction), figure));
            println!("  {}: {}", direction.name(), figures(estimate));
        }
        let beside = statistics::ratio(&pairs(rows, [ours.name(), other], None, figure));
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
        let estimate = statistics::ratio(&pairs(rows, names, Some(direction), |row| row.gbps));
        let claim = Claim {
            experiment: experiment.name(),
            claim: format!("goodput {} ratio to {}", direction.name(), names[1]),
            expected: format!("lower bound >= {goal}"),
            measured: Measured::Ratio(estimate),
            reached: estimate.is_some_and(|estimate| estimate.low >= goal),
        };
        println!("{}", line(&claim));
        let cpu = pairs(rows, names, Some(direction), |row| row.cpu_s_per_gb);
        println!("  CPU per GB: {}", figures(statistics::ratio(&cpu)));
        claims.push(claim);
    }
    println!();
    claims
}

/// What TCP sent twice: no more than beside the other, but for what the kernels dropped in front
/// of us (a dropped GSO packet is sent again as many segments, so the bound is generous to nobody).
fn retransmits(experiment: Experiment, rows: &[Row], [ours, other]: [&str; 2]) -> Claim {
    let total = |name, figure: fn(&Row) -> u64| of(rows, name, None).map(figure).sum::<u64>();
    let (mine, theirs) = (
        total(ours, |row| row.retransmits),
        total(other, |row| row.retransmits),
    );
    let allowed = theirs + total(ours, |row| row.kernel_drops);
    let claim = Claim {
        experiment: experiment.name(),
        claim: format!("retransmissions, beside {other}"),
        expected: format!("<= {allowed}, kernel drops included"),
        measured: Measured::Totals(mine, theirs),
        reached: mine <= allowed,
    };
    println!("{}", line(&claim));
    claim
}

type Figure = fn(&Row) -> f64;

const FIGURES: [(&str, Figure); 2] = [
    ("goodput", |row| row.gbps),
    ("CPU per GB", |row| row.cpu_s_per_gb),
];

fn claim(experiment: Experiment, what: &str, better: &str, estimate: Option<Estimate>) -> Claim {
    type Test = fn(&Estimate) -> bool;
    let (expected, test): (String, Test) = match (experiment, what) {
        (Experiment::Offloaded, "goodput") => {
            let expected = format!("lower bound >= {GOODPUT_GOAL}");
            (expected, |estimate| estimate.low >= GOODPUT_GOAL)
        }
        (Experiment::Offloaded, _) => {
            let expected = format!("median <= {CPU_GOAL}");
            (expected, |estimate| estimate.median <= CPU_GOAL)
        }
        // How much better is not known beforehand.
        (Experiment::Unequal | Experiment::Coalesce, "goodput") => {
            ("lower bound > 1".to_owned(), |e| e.low > 1.0)
        }
        (Experiment::Unequal | Experiment::Coalesce, _) => {
            ("upper bound < 1".to_owned(), |e| e.high < 1.0)
        }
    };
    Claim {
        experiment: experiment.name(),
        claim: format!("{what} ratio to {better}"),
        expected,
        measured: Measured::Ratio(estimate),
        reached: estimate.as_ref().is_some_and(test),
    }
}

fn figures(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(
        || "not measured".to_owned(),
        |Estimate {
             median,
             low,
             high,
             pairs,
         }| { format!("median {median:.3}, 95 % [{low:.3}, {high:.3}], {pairs} pairs") },
    )
}

fn line(claim: &Claim) -> String {
    format!(
        "{}: {}: {}, goal {}: {}",
        claim.experiment,
        claim.claim,
        match claim.measured {
            Measured::Ratio(estimate) => figures(estimate),
            Measured::Totals(ours, theirs) => format!("{ours} to {theirs}"),
        },
        claim.expected,
        claim.verdict()
    )
}

/// Writes everything as one JSON document.
pub fn write(
    file: &Path,
    arguments: &Arguments,
    rows: &[Row],
    claims: &[Claim],
) -> Result<(), Error> {
    let Settings {
        mtu, tx_queue_len, ..
    } = Settings::default();
    let document = json!({
        "schema": "packtrain/1",
        "command": "bench tap_forward",
        "version": env!("CARGO_PKG_VERSION"),
        "host": host(),
        "settings": {
            "rounds": arguments.rounds,
            "seconds": arguments.time.as_secs_f64(),
            "mtu": mtu,
            "tx_queue_len": tx_queue_len,
            "streams": 1,
            "ip": "ipv4",
        },
        "rows": rows.iter().map(row_json).collect::<Vec<_>>(),
        "claims": claims.iter().map(claim_json).collect::<Vec<_>>(),
    });
    fs::write(file, format!("{document}\n"))
        .map_err(|error| format!("write {}: {error}", file.display()).into())
}

fn row_json(row: &Row) -> Value {
    json!({
        "experiment": "tap_forward",
        "comparison": row.experiment,
        "forwarder": row.forwarder,
        "threads": row.threads,
        "offload": row.offload,
        "direction": row.direction.name(),
        "round": row.round,
        "gbps": row.gbps,
        "cpu_s_per_gb": row.cpu_s_per_gb,
        "user_s_per_gb": row.user_s_per_gb,
        "cpu_ticks_s_per_gb": row.cpu_ticks_s_per_gb,
        "retransmits": row.retransmits,
        "kernel_drops": row.kernel_drops,
        "lost": row.lost,
        "syscalls_per_packet": row.syscalls_per_packet,
        "packets_per_sleep": row.packets_per_sleep,
        "packet_bytes": row.packet_bytes,
        "packets_per_s": row.packets_per_s,
    })
}

fn claim_json(claim: &Claim) -> Value {
    let measured = match claim.measured {
        Measured::Ratio(None) => Value::Null,
        Measured::Ratio(Some(estimate)) => json!({
            "median": estimate.median,
            "low": estimate.low,
            "high": estimate.high,
            "pairs": estimate.pairs,
        }),
        Measured::Totals(ours, theirs) => json!({ "packtrain": ours, "other": theirs }),
    };
    json!({
        "experiment": format!("tap_forward/{}", claim.experiment),
        "claim": claim.claim,
        "expected": claim.expected,
        "measured": measured,
        "verdict": if claim.reached { "reproduced" } else { "not reproduced" },
        "must": false,
    })
}
