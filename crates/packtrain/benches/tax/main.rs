//! What the framework costs: 64-byte packets through the whole TX path to `sim:`, beside a
//! hand-written loop over the same device.
//!
//! `cargo bench -p packtrain --bench tax` prints four lines for each batch size, and writes
//! `target/bench/tax.json`:
//!
//! - `handle, shared`: a handle under `dispatch=direct` (ring, plan, fit, counters);
//! - `lane, shared`: a lane that drains the ring under `dispatch=direct` (`tx=shared`);
//! - `lane, owned`: a lane that has the TX queue;
//! - `lane, deliver`: a lane whose handler takes all packets.
//!
//! The RX half of a lane makes the packets, a batch in each poll. `tax ns` is what a packet takes
//! more than in the loop that makes and transmits it; for the last lane, more than in a loop that
//! makes and frees it. `TX ns` is the tax of the TX path alone: of a lane, its time less that of
//! `lane, deliver`, less what transmitting takes by hand (the loop less the one that makes and
//! frees); of the handle, which has no RX half, its tax.
//! The bench drives the workers itself, and reads the clock for each step, as a thread does.
//!
//! All sides make their packets in the arena, and end when the device has put all of them on the
//! wire. A round has a sample of each, one right after the other in alternating order. Differences
//! are taken within a round. A sample is the fastest of 8 pieces of some hundred microseconds,
//! since other programs use the machine, too.

mod sides;

use clap::Parser;
use packtrain_measure::options::{self, Common, Goals};
use packtrain_measure::report::{self, Conditions, rounded};
use packtrain_measure::statistics::{self, Estimate};
use packtrain_measure::{Expected, Verdict, clock};
use serde_json::{Value, json};
use sides::{ByHand, FRAME_BYTES, Lane, Make, Sender, Shared};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Packets of a piece: the same for each batch size, and a multiple of all.
const PACKETS: usize = 2048;
/// Pieces of a sample.
const PIECES: usize = 8;
/// Sizes of batches.
const BATCHES: [usize; 3] = [1, 8, 32];
/// The batch size for which the handle has a goal, and the goal: nanoseconds more for each packet.
const HANDLE_MAX: (usize, f64) = (32, 30.0);
/// The goal of the owned path, for each batch size: the tax of its TX path by that of the shared
/// path, of the handle's and of the lane's.
const OWNED_MAX: f64 = 0.5;
/// What iflib took of the throughput of minimal packets (S1), in percent.
const IFLIB_PERCENT: f64 = 10.0;

/// What the framework adds to a packet. The goals of the owned path are ratios of small
/// differences, which a busy machine changes: `--check-half` is about the handle alone.
#[derive(clap::Parser)]
struct Arguments {
    /// Rounds of each batch size, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 41)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    rounds: usize,
    #[command(flatten)]
    common: Common,
    /// Send by one path alone in batches of N, for a profiler: that of a line, `by hand` or `make`
    #[arg(long, num_args = 2, value_names = ["N", "PATH"])]
    only: Vec<String>,
    #[command(flatten)]
    goals: Goals,
}

impl Arguments {
    /// The batch size and the path of `--only`.
    fn only(&self) -> Result<Option<(usize, &str)>, String> {
        let [batch, path] = &self.only[..] else {
            return Ok(None);
        };
        let known = batch.parse().ok().filter(|batch| BATCHES.contains(batch));
        let known = known.ok_or_else(|| format!("a batch is 1, 8 or 32, not {batch}"))?;
        Ok(Some((known, path)))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let reached = match arguments.only() {
        Ok(Some((batch, path))) => alone(batch, path, arguments.rounds),
        Ok(None) => run(&arguments),
        Err(wrong) => Err(wrong.into()),
    };
    options::status("tax", reached)
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

/// What has a line in the report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Handle,
    LaneShared,
    LaneOwned,
    LaneDeliver,
}

const SIDES: [Side; 4] = [
    Side::Handle,
    Side::LaneShared,
    Side::LaneOwned,
    Side::LaneDeliver,
];

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Handle => "handle, shared",
            Self::LaneShared => "lane, shared",
            Self::LaneOwned => "lane, owned",
            Self::LaneDeliver => "lane, deliver",
        }
    }
}

/// Nanoseconds for a packet in one round.
#[derive(Clone, Copy)]
struct Round {
    /// The loop that makes and transmits.
    hand: f64,
    /// The loop that makes and frees.
    make: f64,
    /// By [`SIDES`].
    sides: [f64; 4],
}

impl Round {
    fn of(&self, side: Side) -> f64 {
        self.sides[side as usize]
    }

    /// What the same takes by hand.
    fn by_hand(&self, side: Side) -> f64 {
        match side {
            Side::LaneDeliver => self.make,
            _ => self.hand,
        }
    }

    /// Tax of all that `side` does.
    fn tax(&self, side: Side) -> f64 {
        self.of(side) - self.by_hand(side)
    }

    /// Tax of its TX path.
    fn tx_tax(&self, side: Side) -> Option<f64> {
        match side {
            Side::Handle => Some(self.tax(side)),
            Side::LaneShared | Side::LaneOwned => {
                let lane = self.of(side) - self.of(Side::LaneDeliver);
                Some(lane - (self.hand - self.make))
            }
            Side::LaneDeliver => None,
        }
    }
}

/// The tax of each round in relation to the round's loop by hand, in nanoseconds of the median one.
fn tax(rounds: &[Round], of: impl Fn(&Round) -> Option<f64>) -> Option<Estimate> {
    let relative = relative(rounds, of)?;
    let hand_ns = median(rounds, |round| round.hand);
    statistics::bootstrap(rounds.len(), |drawn| {
        hand_ns * drawn_median(&relative, drawn)
    })
}

/// The TX tax of the owned path by that of `other`.
fn by(rounds: &[Round], other: Side) -> Option<Estimate> {
    let owned = relative(rounds, |round| round.tx_tax(Side::LaneOwned))?;
    let other = relative(rounds, |round| round.tx_tax(other))?;
    statistics::bootstrap(rounds.len(), |drawn| {
        let shared = drawn_median(&other, drawn);
        if shared > 0.0 {
            drawn_median(&owned, drawn) / shared
        } else {
            f64::NAN
        }
    })
}

fn relative(rounds: &[Round], of: impl Fn(&Round) -> Option<f64>) -> Option<Vec<f64>> {
    let relative = |round: &Round| of(round).map(|tax| tax / round.hand);
    rounds.iter().map(relative).collect()
}

fn drawn_median(values: &[f64], drawn: &[usize]) -> f64 {
    statistics::median(&drawn.iter().map(|&round| values[round]).collect::<Vec<_>>())
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    statistics::median(&rounds.iter().map(of).collect::<Vec<_>>())
}

/// One line of the report.
struct Row {
    side: Side,
    batch: usize,
    framework_ns: f64,
    /// The same by hand.
    hand_ns: f64,
    tax: Option<Estimate>,
    tx_tax: Option<Estimate>,
    /// Of the owned path: the tax of its TX path by that of the handle's and of the lane's.
    by_shared: Option<[Estimate; 2]>,
}

impl Row {
    fn of(side: Side, batch: usize, rounds: &[Round]) -> Self {
        let both = || Some([by(rounds, Side::Handle)?, by(rounds, Side::LaneShared)?]);
        Self {
            side,
            batch,
            framework_ns: median(rounds, |round| round.of(side)),
            hand_ns: median(rounds, |round| round.by_hand(side)),
            tax: tax(rounds, |round| Some(round.tax(side))),
            tx_tax: tax(rounds, |round| round.tx_tax(side)),
            by_shared: if side == Side::LaneOwned {
                both()
            } else {
                None
            },
        }
    }

    /// The tax as a share of the throughput of the hand-written loop, in percent.
    fn percent(&self) -> Option<f64> {
        let tax = self.tax?.median;
        Some(tax / (self.hand_ns + tax) * 100.0)
    }

    fn goal(&self) -> Option<Goal> {
        match self.side {
            Side::LaneOwned => Some(Goal {
                text: format!("TX at most {OWNED_MAX} of each shared"),
                expected: Expected::AtMost(OWNED_MAX),
                measured: self.by_shared.iter().flatten().copied().collect(),
            }),
            Side::Handle => (self.batch == HANDLE_MAX.0).then(|| Goal {
                text: format!("at most {} ns", HANDLE_MAX.1),
                expected: Expected::AtMost(HANDLE_MAX.1),
                measured: self.tax.into_iter().collect(),
            }),
            Side::LaneShared | Side::LaneDeliver => None,
        }
    }
}

/// What a row is to reach.
struct Goal {
    text: String,
    expected: Expected,
    /// All are expected to be so.
    measured: Vec<Estimate>,
}

impl Goal {
    /// The worst verdict.
    fn verdict(&self, expected: Expected) -> Verdict {
        let verdicts = self.measured.iter().map(|one| expected.verdict(one));
        verdicts.min().unwrap_or(Verdict::NotReproduced)
    }

    fn is_met(&self) -> bool {
        self.verdict(self.expected) == Verdict::Reproduced
    }

    fn is_half_met(&self) -> bool {
        self.verdict(self.expected.half()) > Verdict::NotReproduced
    }
}

fn verdict(row: &Row) -> Option<Verdict> {
    row.goal().map(|goal| goal.verdict(goal.expected))
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let (mut hand, mut make) = (ByHand::new()?, Make::new()?);
    let mut conditions = Conditions::of_host();
    conditions.add("samples", format!(
        "{} rounds of the fastest of {PIECES} pieces of {PACKETS} packets of {FRAME_BYTES} bytes",
        arguments.rounds
    ));
    conditions.print();
    println!(
        "{:>5} {:<14} {:>7} {:>7} {:>7} {:>15} {:>5} {:>7} {:>15} {:>10}  goal",
        "batch", "path", "ns", "by hand", "tax ns", "95 %", "%", "TX ns", "95 %", "of shared"
    );
    let mut rows: Vec<Row> = Vec::new();
    for batch in BATCHES {
        let mut handle = Shared::new()?;
        let mut lanes = [Lane::shared()?, Lane::owned()?, Lane::deliver()?];
        let [shared, owned, deliver] = &mut lanes;
        let players: [&mut dyn Sender; 6] =
            [&mut hand, &mut make, &mut handle, shared, owned, deliver];
        let rounds = compete(players, batch, arguments.rounds)?;
        for side in SIDES {
            let row = Row::of(side, batch, &rounds);
            print_row(&row);
            rows.push(row);
        }
        handle.finish()?;
        lanes.into_iter().try_for_each(Lane::finish)?;
    }
    println!(
        "\nTX ns of a lane: its time less that of the lane that delivers, less what transmitting \
         takes by hand.\nOf the handle, which has no RX half: its tax. \
         `of shared`: TX ns by those of the handle and of the shared lane."
    );
    println!("iflib took about {IFLIB_PERCENT} % of the throughput of minimal packets (S1)");
    let file = arguments.common.json.clone();
    let file = file.unwrap_or_else(|| output_directory().join("tax.json"));
    report::write(&file, &document(arguments, &conditions, &rows))?;
    println!("rows: {}", file.display());
    println!("{}", report::met(rows.iter().map(verdict)));
    let met = !arguments.goals.check || rows.iter().filter_map(Row::goal).all(|goal| goal.is_met());
    let mut handle = rows
        .iter()
        .filter(|row| row.side == Side::Handle)
        .filter_map(Row::goal);
    Ok(met && (!arguments.goals.check_half || handle.all(|goal| goal.is_half_met())))
}

/// Sends by `path` alone, and measures nothing.
fn alone(batch: usize, path: &str, rounds: usize) -> Result<bool, Box<dyn Error>> {
    let mut side: Box<dyn Sender> = match path {
        "by hand" => Box::new(ByHand::new()?),
        "make" => Box::new(Make::new()?),
        "handle, shared" => Box::new(Shared::new()?),
        "lane, shared" => Box::new(Lane::shared()?),
        "lane, owned" => Box::new(Lane::owned()?),
        "lane, deliver" => Box::new(Lane::deliver()?),
        _ => return Err(format!("no path is called {path}").into()),
    };
    for _ in 0..rounds * PIECES {
        side.send(PACKETS, batch)?;
    }
    Ok(true)
}

/// The samples of all, in alternating order.
fn compete(
    mut players: [&mut dyn Sender; 6],
    batch: usize,
    rounds: usize,
) -> Result<Vec<Round>, Box<dyn Error>> {
    for one in &mut players {
        // Caches are warm.
        sample(*one, batch)?;
    }
    let mut found = Vec::new();
    for round in 0..rounds {
        let mut ns = [0.0; 6];
        for turn in 0..players.len() {
            let one = (round + turn) % players.len();
            ns[one] = sample(players[one], batch)?;
        }
        let [hand, make, sides @ ..] = ns;
        found.push(Round { hand, make, sides });
    }
    Ok(found)
}

fn print_row(row: &Row) {
    let figures = |tax: Option<Estimate>| {
        tax.map_or(["-".to_owned(), String::new()], |tax| {
            let Estimate {
                median, low, high, ..
            } = tax;
            [format!("{median:.1}"), format!("{low:.1} .. {high:.1}")]
        })
    };
    let ([tax, interval], [tx, tx_interval]) = (figures(row.tax), figures(row.tx_tax));
    let percent = row.percent().map_or("-".to_owned(), |p| format!("{p:.1}"));
    let goal = row.goal().map_or(String::new(), |goal| {
        format!("{}: {}", goal.text, goal.verdict(goal.expected).name())
    });
    let by_shared = row.by_shared.map_or(String::new(), |[handle, lane]| {
        format!("{:.2} {:.2}", handle.median, lane.median)
    });
    let line = format!(
        "{:>5} {:<14} {:>7.1} {:>7.1} {tax:>7} {interval:>15} {percent:>5} {tx:>7} \
         {tx_interval:>15} {by_shared:>10}  {goal}",
        row.batch,
        row.side.name(),
        row.framework_ns,
        row.hand_ns,
    );
    println!("{}", line.trim_end());
}

fn document(arguments: &Arguments, conditions: &Conditions, rows: &[Row]) -> Value {
    let documents: Vec<Value> = rows.iter().map(row_document).collect();
    let mut document = report::envelope("bench tax", conditions, arguments.rounds, &documents);
    let judged = rows.iter().filter_map(|row| Some((row, row.goal()?)));
    let claims = judged.map(|(row, goal)| {
        let measured = goal.measured.iter().map(|one| rounded(Some(one.median)));
        json!({
            "experiment": "tax",
            "claim": format!("{} costs little, in batches of {}", row.side.name(), row.batch),
            "expected": goal.text,
            "measured": measured.collect::<Vec<_>>(),
            "verdict": goal.verdict(goal.expected).name(),
            "must": false,
        })
    });
    document["claims"] = claims.collect();
    document
}

fn row_document(row: &Row) -> Value {
    let part = |of: Option<Estimate>, part: fn(Estimate) -> f64| rounded(of.map(part));
    let median = |of| part(of, |of| of.median);
    let (low, high) = (|of| part(of, |of| of.low), |of| part(of, |of| of.high));
    let by = |index: usize| row.by_shared.map(|by| by[index]);
    json!({
        "experiment": "tax",
        "port": "sim",
        "frame_bytes": FRAME_BYTES,
        "batch": row.batch,
        "path": row.side.name(),
        "framework_ns": rounded(Some(row.framework_ns)),
        "hand_ns": rounded(Some(row.hand_ns)),
        "tax_ns": median(row.tax),
        "tax_ns_low": low(row.tax),
        "tax_ns_high": high(row.tax),
        "percent": rounded(row.percent()),
        "tx_ns": median(row.tx_tax),
        "tx_ns_low": low(row.tx_tax),
        "tx_ns_high": high(row.tx_tax),
        "by_shared_handle": median(by(0)),
        "by_shared_handle_low": low(by(0)),
        "by_shared_handle_high": high(by(0)),
        "by_shared_lane": median(by(1)),
        "by_shared_lane_low": low(by(1)),
        "by_shared_lane_high": high(by(1)),
        "iflib_percent": IFLIB_PERCENT,
        "goal": row.goal().map(|goal| goal.text),
        "verdict": verdict(row).map(Verdict::name),
    })
}

/// `bench` in the target directory: this executable is in `release/deps` of it.
fn output_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable.ancestors().nth(3);
    target.unwrap_or(Path::new("target")).join("bench")
}
