//! What the framework costs: 64-byte packets through the whole TX path to `sim:`, beside a
//! hand-written loop over the same device.
//!
//! `cargo bench -p packtrain --bench tax` prints two lines for each batch size, and writes
//! `target/bench/tax.json`. The *shared* path is a handle under `dispatch=direct`: ring, plan, fit,
//! counters. The *owned* path is a lane whose RX half makes the packets, a batch in each poll: RX
//! queue, handler, plan, fit, counters. What the RX queue takes for a packet counts as tax, too.
//! The bench drives the workers itself, and reads the clock for each step, as a thread does.
//!
//! All sides make their packets in the arena, and end when the device has put all of them on the
//! wire. A round has a sample of each, one right after the other in alternating order. Differences
//! are taken within a round. A sample is the fastest of 8 pieces of some hundred microseconds,
//! since other programs use the machine, too.

mod sides;

use packtrain::plan::PathKind;
use packtrain_bench::clock;
use packtrain_bench::report::{self, Conditions, rounded};
use packtrain_bench::statistics::{self, Estimate};
use serde_json::{Value, json};
use sides::{ByHand, FRAME_BYTES, Owned, Sender, Shared};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo bench -p packtrain --bench tax -- [OPTIONS]
  --rounds N     rounds of each batch size [default: 41]
  --quick        3 rounds: too few for a verdict
  --json FILE    where the rows go [default: bench/tax.json in the target directory]
  --check        exit with 1 when a goal is not reached
  --help         this";

/// Packets of a piece: the same for each batch size, and a multiple of all.
const PACKETS: usize = 2048;
/// Pieces of a sample.
const PIECES: usize = 8;
/// Sizes of batches.
const BATCHES: [usize; 3] = [1, 8, 32];
/// The batch size for which the shared path has a goal, and the goal: nanoseconds more for each
/// packet.
const JUDGED: (usize, f64) = (32, 30.0);
/// The goal of the owned path, for each batch size: its tax by that of the shared path.
const OWNED_MAX: f64 = 0.5;
/// What iflib took of the throughput of minimal packets (S1), in percent.
const IFLIB_PERCENT: f64 = 10.0;

struct Arguments {
    rounds: usize,
    json: Option<PathBuf>,
    check: bool,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Self {
            rounds: 41,
            json: None,
            check: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--rounds" => {
                    let text = value()?;
                    let rounds = text.parse().ok().filter(|n| (1..=10_000).contains(n));
                    arguments.rounds =
                        rounds.ok_or(format!("--rounds is 1 to 10000, not {text}"))?;
                }
                "--quick" => arguments.rounds = 3,
                "--json" => arguments.json = Some(value()?.into()),
                "--check" => arguments.check = true,
                // Cargo says it.
                "--bench" => {}
                "--help" => return Ok(None),
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(Some(arguments))
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("tax: {wrong}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(reached) if reached || !arguments.check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tax: {error}");
            ExitCode::from(4)
        }
    }
}

/// Nanoseconds for a packet.
fn sample(side: &mut dyn Sender, batch: usize) -> Result<f64, Box<dyn Error>> {
    let mut least = u128::MAX;
    for _ in 0..PIECES {
        let start = Instant::now();
        side.send(PACKETS, batch)?;
        least = least.min(start.elapsed().as_nanos());
    }
    Ok((least as f64 - clock::overhead_ns()) / PACKETS as f64)
}

/// One line of the report.
struct Row {
    path: PathKind,
    batch: usize,
    framework_ns: f64,
    hand_ns: f64,
    /// Framework by hand.
    ratio: Option<Estimate>,
    /// Of an owned path: its tax by that of the shared path.
    by_shared: Option<f64>,
}

impl Row {
    /// Nanoseconds that the framework takes more, where it takes `ratio` times as long.
    fn tax_ns(&self, ratio: f64) -> f64 {
        (ratio - 1.0) * self.hand_ns
    }

    /// The tax and the ends of its interval, as by the ratios within rounds.
    fn tax(&self) -> [Option<f64>; 3] {
        let ends = |one: Estimate| [one.median, one.low, one.high];
        let of = |ratio: Option<[f64; 3]>, i: usize| ratio.map(|ends| self.tax_ns(ends[i]));
        [0, 1, 2].map(|i| of(self.ratio.map(ends), i))
    }

    /// The tax as a share of the throughput of the hand-written loop, in percent.
    fn percent(&self) -> Option<f64> {
        self.ratio.map(|ratio| (1.0 - 1.0 / ratio.median) * 100.0)
    }

    fn goal(&self) -> Option<Goal> {
        match self.path {
            PathKind::Owned => Some(Goal {
                text: format!("owned at most {OWNED_MAX} of shared"),
                max: OWNED_MAX,
                measured: self.by_shared,
            }),
            PathKind::Shared => (self.batch == JUDGED.0).then(|| Goal {
                text: format!("at most {} ns", JUDGED.1),
                max: JUDGED.1,
                measured: self.tax()[0],
            }),
        }
    }
}

/// What a row is to reach.
struct Goal {
    text: String,
    max: f64,
    measured: Option<f64>,
}

impl Goal {
    fn ok(&self) -> bool {
        self.measured.is_some_and(|measured| measured <= self.max)
    }
}

fn is_ok(row: &Row) -> bool {
    row.goal().is_none_or(|goal| goal.ok())
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let mut hand = ByHand::new()?;
    let mut conditions = Conditions::of_host();
    conditions.add("samples", format!(
        "{} rounds of the fastest of {PIECES} pieces of {PACKETS} packets of {FRAME_BYTES} bytes",
        arguments.rounds
    ));
    conditions.print();
    println!(
        "{:>5} {:<6} {:>12} {:>8} {:>8} {:>17} {:>7} {:>9}  goal",
        "batch", "path", "framework ns", "hand ns", "tax ns", "95 %", "%", "of shared"
    );
    let mut rows: Vec<Row> = Vec::new();
    for batch in BATCHES {
        let (mut shared, mut owned) = (Shared::new()?, Owned::new()?);
        let players: [&mut dyn Sender; 3] = [&mut hand, &mut shared, &mut owned];
        let [hand_ns, shared_ns, owned_ns] = compete(players, batch, arguments.rounds)?;
        let row = |path, ns: &[f64], shared_tax: Option<f64>| {
            let ratios: Vec<f64> = ns.iter().zip(&hand_ns).map(|(a, b)| a / b).collect();
            let mut row = Row {
                path,
                batch,
                framework_ns: statistics::median(ns),
                hand_ns: statistics::median(&hand_ns),
                ratio: statistics::estimate(&ratios),
                by_shared: None,
            };
            let both = row.tax()[0].zip(shared_tax.filter(|tax| *tax > 0.0));
            row.by_shared = both.map(|(own, shared)| own / shared);
            print_row(&row);
            row
        };
        let of_shared = row(PathKind::Shared, &shared_ns, None);
        let of_owned = row(PathKind::Owned, &owned_ns, of_shared.tax()[0]);
        rows.extend([of_shared, of_owned]);
        shared.finish()?;
        owned.finish()?;
    }
    println!("\niflib took about {IFLIB_PERCENT} % of the throughput of minimal packets (S1)");
    let file = arguments.json.clone();
    let file = file.unwrap_or_else(|| output_directory().join("tax.json"));
    report::write(&file, &document(arguments, &conditions, &rows))?;
    println!("rows: {}", file.display());
    Ok(rows.iter().all(is_ok))
}

/// The samples of all, in alternating order.
fn compete<const N: usize>(
    mut players: [&mut dyn Sender; N],
    batch: usize,
    rounds: usize,
) -> Result<[Vec<f64>; N], Box<dyn Error>> {
    for one in &mut players {
        // Caches are warm.
        sample(*one, batch)?;
    }
    let mut found = [const { Vec::new() }; N];
    for round in 0..rounds {
        for turn in 0..N {
            let who = (round + turn) % N;
            found[who].push(sample(players[who], batch)?);
        }
    }
    Ok(found)
}

fn print_row(row: &Row) {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let [tax, low, high] = row.tax().map(figure);
    let goal = row.goal().map_or(String::new(), |goal| {
        let verdict = if goal.ok() { "ok" } else { "not ok" };
        format!("{}: {verdict}", goal.text)
    });
    let by_shared = row.by_shared.map_or(String::new(), |by| format!("{by:.2}"));
    let line = format!(
        "{:>5} {:<6} {:>12.1} {:>8.1} {tax:>8} {:>17} {:>7} {by_shared:>9}  {goal}",
        row.batch,
        row.path,
        row.framework_ns,
        row.hand_ns,
        format!("{low} .. {high}"),
        figure(row.percent()),
    );
    println!("{}", line.trim_end());
}

fn document(arguments: &Arguments, conditions: &Conditions, rows: &[Row]) -> Value {
    let documents: Vec<Value> = rows.iter().map(row_document).collect();
    let mut document = report::envelope("bench tax", conditions, arguments.rounds, &documents);
    let judged = rows.iter().filter_map(|row| Some((row, row.goal()?)));
    let claims = judged.map(|(row, goal)| {
        json!({
            "experiment": "tax",
            "claim": format!("the {} path costs little, in batches of {}", row.path, row.batch),
            "expected": goal.text,
            "measured": rounded(goal.measured),
            "verdict": if goal.ok() { "reproduced" } else { "not reproduced" },
            "must": false,
        })
    });
    document["claims"] = claims.collect();
    document
}

fn row_document(row: &Row) -> Value {
    let [tax, low, high] = row.tax();
    json!({
        "experiment": "tax",
        "port": "sim",
        "frame_bytes": FRAME_BYTES,
        "batch": row.batch,
        "path": row.path.to_string(),
        "framework_ns": rounded(Some(row.framework_ns)),
        "hand_ns": rounded(Some(row.hand_ns)),
        "tax_ns": rounded(tax),
        "tax_ns_low": rounded(low),
        "tax_ns_high": rounded(high),
        "percent": rounded(row.percent()),
        "by_shared": rounded(row.by_shared),
        "iflib_percent": IFLIB_PERCENT,
        "goal": row.goal().map(|goal| goal.text),
        "ok": is_ok(row),
    })
}

/// `bench` in the target directory: this executable is in `release/deps` of it.
fn output_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable.ancestors().nth(3);
    target.unwrap_or(Path::new("target")).join("bench")
}
