//! What the framework costs: 64-byte packets through the whole TX path (handle, ring, plan, fit,
//! counters) to `sim:`, beside a hand-written loop over the same device.
//!
//! `cargo bench -p packtrain --bench tax` prints one line for each batch size and dispatch, and
//! writes `target/bench/tax.json`. Both sides make their packets in the arena, and end when the
//! device has put all of them on the wire. A round has a sample of each, one right after the other
//! in turning order; differences are taken within a round. A sample is the fastest of 8 pieces of
//! some hundred microseconds, since the machine is not ours alone. The scheduler
//! says who is on which CPU; the framework's worker is there too, and works when it is asked to.

mod sides;

use packtrain::policy::dispatch::Dispatch;
use packtrain_bench::clock;
use packtrain_bench::report::{self, Conditions, rounded};
use packtrain_bench::statistics::{self, Estimate};
use serde_json::{Value, json};
use sides::{ByHand, FRAME_BYTES, Framework, Sender};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: cargo bench -p packtrain --bench tax -- [OPTIONS]
  --rounds N     rounds of each batch size [default: 41]
  --quick        3 rounds: a look, no verdict
  --json FILE    where the rows go [default: bench/tax.json in the target directory]
  --check        exit with 1 when the goal is not reached
  --help         this";

/// Packets of a piece: the same for each batch size, and a multiple of all.
const PACKETS: usize = 2048;
/// Pieces of a sample.
const PIECES: usize = 8;
/// Sizes of batches.
const BATCHES: [usize; 3] = [1, 8, 32];
/// The batch size for which there is a goal, and the goal: nanoseconds more for each packet.
const JUDGED: (usize, f64) = (32, 30.0);
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
    dispatch: Dispatch,
    batch: usize,
    framework_ns: f64,
    hand_ns: f64,
    /// Framework to hand.
    ratio: Option<Estimate>,
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

    fn is_judged(&self) -> bool {
        self.batch == JUDGED.0
    }

    fn ok(&self) -> bool {
        !self.is_judged() || self.tax()[0].is_some_and(|tax| tax <= JUDGED.1)
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let dispatches = [Dispatch::Adaptive, Dispatch::Direct];
    let mut hand = ByHand::new()?;
    let mut conditions = Conditions::of_host();
    conditions.add("samples", format!(
        "{} rounds of the fastest of {PIECES} pieces of {PACKETS} packets of {FRAME_BYTES} bytes",
        arguments.rounds
    ));
    conditions.print();
    println!(
        "{:>5} {:<10} {:>12} {:>8} {:>8} {:>17} {:>7} {:>6}",
        "batch", "dispatch", "framework ns", "hand ns", "tax ns", "95 %", "%", "goal"
    );
    let mut rows = Vec::new();
    for batch in BATCHES {
        // Anew for each: what the policy learned of single packets it would keep for a while, and
        // the rows are of loads that do not change.
        let mut ours = Vec::new();
        for dispatch in dispatches {
            ours.push(Framework::new(dispatch)?);
        }
        let mut players: Vec<&mut dyn Sender> = vec![&mut hand];
        players.extend(ours.iter_mut().map(|one| one as &mut dyn Sender));
        let found = compete(&mut players, batch, arguments.rounds)?;
        let (hand_ns, ours_ns) = found.split_first().ok_or("nobody took part")?;
        for (ns, dispatch) in ours_ns.iter().zip(dispatches) {
            let ratios: Vec<f64> = ns.iter().zip(hand_ns).map(|(a, b)| a / b).collect();
            let row = Row {
                dispatch,
                batch,
                framework_ns: statistics::median(ns),
                hand_ns: statistics::median(hand_ns),
                ratio: statistics::estimate(&ratios),
            };
            print_row(&row);
            rows.push(row);
        }
        for one in ours {
            one.finish()?;
        }
    }
    println!("\niflib took about {IFLIB_PERCENT} % of the throughput of minimal packets (S1)");
    let file = arguments.json.clone();
    let file = file.unwrap_or_else(|| output_directory().join("tax.json"));
    report::write(&file, &document(arguments, &conditions, &rows))?;
    println!("rows: {}", file.display());
    Ok(rows.iter().all(Row::ok))
}

/// The samples of all, in turning order.
fn compete(
    players: &mut [&mut dyn Sender],
    batch: usize,
    rounds: usize,
) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    for one in players.iter_mut() {
        // Caches are warm, and the policy has seen the load.
        sample(*one, batch)?;
    }
    let mut found = vec![Vec::with_capacity(rounds); players.len()];
    for round in 0..rounds {
        for turn in 0..players.len() {
            let who = (round + turn) % players.len();
            found[who].push(sample(players[who], batch)?);
        }
    }
    Ok(found)
}

fn print_row(row: &Row) {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let [tax, low, high] = row.tax().map(figure);
    let goal = match (row.is_judged(), row.ok()) {
        (false, _) => String::new(),
        (true, true) => format!("{} ok", JUDGED.1),
        (true, false) => format!("{} not ok", JUDGED.1),
    };
    let line = format!(
        "{:>5} {:<10} {:>12.1} {:>8.1} {tax:>8} {:>17} {:>7} {goal:>6}",
        row.batch,
        row.dispatch.to_string(),
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
    let judged = rows.iter().filter(|row| row.is_judged());
    let claims = judged.map(|row| {
        let tax = row.tax()[0].map_or("nothing".to_owned(), |tax| format!("{tax:.1} ns"));
        json!({
            "experiment": "tax",
            "claim": format!("the framework takes little of a packet's time: {}", row.dispatch),
            "expected": format!("at most {} ns more in batches of {}", JUDGED.1, JUDGED.0),
            "measured": tax,
            "verdict": if row.ok() { "reproduced" } else { "not reproduced" },
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
        "dispatch": row.dispatch.to_string(),
        "framework_ns": rounded(Some(row.framework_ns)),
        "hand_ns": rounded(Some(row.hand_ns)),
        "tax_ns": rounded(tax),
        "tax_ns_low": rounded(low),
        "tax_ns_high": rounded(high),
        "percent": rounded(row.percent()),
        "iflib_percent": IFLIB_PERCENT,
        "goal_ns": row.is_judged().then_some(JUDGED.1),
        "ok": row.ok(),
    })
}

/// `bench` in the target directory: this executable is in `release/deps` of it.
fn output_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable.ancestors().nth(3);
    target.unwrap_or(Path::new("target")).join("bench")
}
