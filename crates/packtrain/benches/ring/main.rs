//! The ring beside DPDK's `rte_ring` (many producers, one consumer) and crossbeam's `ArrayQueue`.
//!
//! `cargo bench -p packtrain --features peers --bench ring` prints one line for each work and peer,
//! and writes `target/bench/ring.json`. A round has a sample of each, one right after the other in
//! turning order; ratios are taken within a round. A sample is the fastest of 8 pieces of some ten
//! microseconds: with threads on two CPUs of a shared machine, most pieces have a thread waiting
//! for its CPU. Across CPUs the time is from the start of all threads until the consumer has
//! everything. `--help` lists the options.
//!
//! With one producer, a producer at a full ring and a consumer at an empty one spin. With two, they
//! yield, on every side alike: on a machine with two CPUs the three threads share CPUs, and a
//! thread that spins would measure the time slice of the scheduler.

#[cfg(feature = "peers")]
#[path = "../../../packtrain-offload/benches/offload/peers/loader.rs"]
mod loader;
#[cfg(feature = "peers")]
mod rte;
mod sides;

use clap::Parser;
use packtrain::queue::ring::Ring;
use packtrain_measure::options::{self, Common, Goals};
use packtrain_measure::report::{self, Conditions, rounded};
use packtrain_measure::statistics::{self, Estimate};
use packtrain_measure::{Expected, Verdict, clock, native};
use serde_json::{Value, json};
use sides::{Direct, Polled, Queue, Wait};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Items that each ring holds.
const CAPACITY: usize = 1024;
/// Pieces of a sample.
const PIECES: usize = 8;

/// The shared queue's ring beside other queues.
#[derive(clap::Parser)]
struct Arguments {
    /// Rows whose name contains this
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    only: String,
    /// Rounds of each row, 2 to 10000
    #[arg(long, value_name = "N", value_parser = options::rounds, default_value_t = 61)]
    #[arg(default_value_if("quick", "true", options::ROUNDS_QUICK))]
    rounds: usize,
    #[command(flatten)]
    common: Common,
    /// Run this build; without it a build for this CPU is made and run, as `rte_ring` is compiled
    /// for it
    #[arg(long)]
    as_built: bool,
    #[command(flatten)]
    goals: Goals,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "peers")]
    if !arguments.as_built {
        match for_this_cpu() {
            Ok(code) => return code,
            Err(error) => eprintln!("ring: {error}; this build runs instead"),
        }
    }
    options::status("ring", run(&arguments))
}

#[cfg(feature = "peers")]
fn for_this_cpu() -> Result<ExitCode, String> {
    let directory = output_directory();
    let bench = native::Bench {
        name: "ring",
        package: Path::new(env!("CARGO_MANIFEST_DIR")),
        json: &directory.join("ring.json"),
    };
    bench.run_for_this_cpu(&directory)
}

/// Where producers and the consumer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// One thread, which claims the role with each burst, bypasses the slots, and leaves the ring
    /// idle.
    Direct,
    /// One thread, whose consumer keeps the role.
    Polled,
    /// Threads on CPUs of their own, as far as there are any; the consumer keeps the role.
    Across,
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug)]
struct Work {
    place: Place,
    burst: usize,
    producers: usize,
}

impl Work {
    fn all() -> impl Iterator<Item = Self> {
        let places = [
            (Place::Direct, 1),
            (Place::Polled, 1),
            (Place::Across, 1),
            (Place::Across, 2),
        ];
        places.into_iter().flat_map(|(place, producers)| {
            [1, 8, 32].map(|burst| Self {
                place,
                burst,
                producers,
            })
        })
    }

    const fn row(self) -> &'static str {
        match self.place {
            Place::Direct => "direct",
            Place::Polled => "same thread",
            Place::Across => "across cores",
        }
    }

    /// Items in a piece. Where threads share CPUs, it has many switches between them.
    const fn items(self) -> u64 {
        let items = match self.burst {
            1 => 1 << 12,
            8 => 1 << 14,
            _ => 1 << 15,
        };
        match self.wait() {
            Wait::Spin => items,
            Wait::Yield => 8 * items,
        }
    }

    /// What threads do at a full or an empty ring.
    const fn wait(self) -> Wait {
        if self.producers > 1 {
            Wait::Yield
        } else {
            Wait::Spin
        }
    }
}

/// The goal of every row: at least as fast as each peer.
const GOAL: Expected = Expected::AtLeast(1.0);

/// One sample: nanoseconds for an item. The fastest of several pieces, which are so short that
/// one of them goes undisturbed where a scheduler has other work, too.
fn sample(queue: &dyn Queue, work: Work, cpus: &[usize]) -> io::Result<f64> {
    let total = work.items();
    let least = if work.place == Place::Across {
        across(queue, work, cpus)?
    } else {
        let pieces = (0..PIECES).map(|_| {
            let start = Instant::now();
            let sum = queue.same(work.burst, total);
            let ns = start.elapsed().as_nanos();
            assert_eq!(sum, expected_sum(total), "{work:?}: items are lost");
            ns
        });
        pieces.min().unwrap_or_default()
    };
    Ok((least as f64 - clock::overhead_ns()) / total as f64)
}

const fn expected_sum(total: u64) -> u64 {
    total * (total + 1) / 2
}

/// The calling thread consumes.
fn across(queue: &dyn Queue, work: Work, cpus: &[usize]) -> io::Result<u128> {
    let threads = work.producers;
    let each = work.items() / threads as u64;
    let ready = AtomicUsize::new(0);
    // All threads come here once for each piece.
    let together = |piece: usize| {
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < (threads + 1) * (piece + 1) {
            work.wait().once();
        }
    };
    let produce = |one: usize| {
        let pinned = clock::pin(cpus[one % cpus.len()]);
        for piece in 0..PIECES {
            together(piece);
            queue.produce(work.burst, each * one as u64, each, work.wait());
        }
        pinned
    };
    let produce = &produce;
    thread::scope(|scope| {
        let producers: Vec<_> = (0..threads)
            .map(|one| scope.spawn(move || produce(one)))
            .collect();
        let mut least = u128::MAX;
        for piece in 0..PIECES {
            together(piece);
            let start = Instant::now();
            let sum = queue.consume(work.burst, work.items(), work.wait());
            least = least.min(start.elapsed().as_nanos());
            assert_eq!(sum, expected_sum(work.items()), "{work:?}: items are lost");
        }
        for producer in producers {
            producer.join().expect("a producer failed")?;
        }
        Ok(least)
    })
}

/// One line of the report.
struct Row {
    work: Work,
    peer: String,
    ours_ns: f64,
    peer_ns: Option<f64>,
    ratio: Option<Estimate>,
    missing: Option<String>,
}

impl Row {
    /// The verdict; `None` without a peer.
    fn verdict(&self, expected: Expected) -> Option<Verdict> {
        self.peer_ns?;
        let verdict = |ratio| expected.verdict(&ratio);
        Some(self.ratio.map_or(Verdict::NotReproduced, verdict))
    }

    fn is_met(&self) -> bool {
        let verdict = self.verdict(GOAL);
        self.missing.is_none() && verdict.is_none_or(|met| met == Verdict::Reproduced)
    }

    fn is_half_met(&self) -> bool {
        self.verdict(GOAL.half()) != Some(Verdict::NotReproduced)
    }
}

struct Player<'a> {
    queue: &'a dyn Queue,
    ns: Vec<f64>,
}

impl Player<'_> {
    fn play(&mut self, work: Work, cpus: &[usize]) -> io::Result<()> {
        self.ns.push(sample(self.queue, work, cpus)?);
        Ok(())
    }
}

type Missing = Result<Box<dyn Queue>, String>;

/// Alternates ours and the peers.
fn compete(
    work: Work,
    rounds: usize,
    cpus: &[usize],
    peers: &[(&str, Missing)],
) -> Result<Vec<Row>, Box<dyn Error>> {
    let ours: Box<dyn Queue> = match work.place {
        Place::Direct => Box::new(Direct(Ring::new(CAPACITY, ()))),
        _ => Box::new(Polled(Ring::new(CAPACITY, ()))),
    };
    let player = |queue| Player {
        queue,
        ns: Vec::new(),
    };
    let mut players = vec![player(ours.as_ref())];
    let found = peers.iter().filter_map(|(_, peer)| peer.as_ref().ok());
    players.extend(found.map(|peer| player(peer.as_ref())));
    for one in &mut players {
        // Pages are faulted in, the clock frequency raised.
        one.play(work, cpus)?;
        one.ns.clear();
    }
    for round in 0..rounds {
        for turn in 0..players.len() {
            let one = (round + turn) % players.len();
            players[one].play(work, cpus)?;
        }
    }
    let mut players = players.into_iter();
    let ours = players.next().expect("ours is the first");
    let blank = |peer: &str| Row {
        work,
        peer: peer.to_owned(),
        ours_ns: statistics::median(&ours.ns),
        peer_ns: None,
        ratio: None,
        missing: None,
    };
    if peers.is_empty() {
        return Ok(vec![blank("")]);
    }
    let rows = peers.iter().map(|(name, peer)| {
        let mut row = blank(name);
        match peer {
            Ok(_) => {
                let peer = players.next().expect("one for each that was found");
                let ratios: Vec<f64> = ours.ns.iter().zip(&peer.ns).map(|(a, b)| b / a).collect();
                row.peer_ns = Some(statistics::median(&peer.ns));
                row.ratio = statistics::estimate(&ratios);
            }
            Err(missing) => row.missing = Some(missing.clone()),
        }
        row
    });
    Ok(rows.collect())
}

#[cfg(feature = "peers")]
struct Peers(Result<std::rc::Rc<rte::Shim>, String>);

#[cfg(feature = "peers")]
impl Peers {
    fn find(directory: &Path, conditions: &mut Conditions) -> Self {
        let shim = rte::Shim::load(directory);
        conditions.add(
            "peers",
            match &shim {
                Ok(shim) => format!(
                    "crossbeam-queue in this build; rte_ring (MP/SC) of {}, -O3 -march=native",
                    shim.version()
                ),
                Err(missing) => format!("crossbeam-queue in this build; no rte_ring: {missing}"),
            },
        );
        Self(shim.map(std::rc::Rc::new))
    }

    fn make(&self) -> Vec<(&'static str, Missing)> {
        let rte = self.0.clone().and_then(|shim| {
            let ring = rte::RteRing::new(&shim, CAPACITY)?;
            Ok(Box::new(ring) as Box<dyn Queue>)
        });
        let array = sides::Array(crossbeam_queue::ArrayQueue::new(CAPACITY));
        vec![("rte_ring", rte), ("ArrayQueue", Ok(Box::new(array)))]
    }
}

#[cfg(not(feature = "peers"))]
struct Peers;

#[cfg(not(feature = "peers"))]
impl Peers {
    fn find(_directory: &Path, conditions: &mut Conditions) -> Self {
        conditions.add("peers", "none: --features peers");
        Self
    }

    fn make(&self) -> Vec<(&'static str, Missing)> {
        Vec::new()
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let cpu = clock::last_cpu()?;
    // The consumer is on the last one; producers begin with the first.
    let cpus: Vec<usize> = clock::cpus()?;
    let directory = output_directory();
    std::fs::create_dir_all(&directory)?;
    let mut conditions = Conditions::of_host();
    let peers = Peers::find(&directory, &mut conditions);
    conditions.add("ours", format!("built for {}", native::built_for()));
    conditions.add("cpus", format!("{cpus:?}, the consumer on {cpu}"));
    conditions.add(
        "samples",
        format!(
            "{} rounds of the fastest of {PIECES} pieces, medians of ns for an item; ratio is \
             theirs to ours, with a bootstrap interval of 95 %; rings of {CAPACITY}",
            arguments.rounds
        ),
    );
    clock::pin(cpu)?;
    conditions.print();
    println!(
        "{:<20} {:>5} {:>9} {:>8}  {:<10} {:>8} {:>6} {:>15} {:>5}",
        "row", "burst", "producers", "ours ns", "beside", "ns", "ratio", "95 %", "goal"
    );
    let mut rows: Vec<Row> = Vec::new();
    for work in Work::all() {
        let lonely = work.place == Place::Across && cpus.len() < 2;
        if !work.row().contains(&arguments.only) || lonely {
            continue;
        }
        let measured = compete(work, arguments.rounds, &cpus, &peers.make())?;
        measured.iter().for_each(print_row);
        rows.extend(measured);
    }
    println!(
        "\n{}",
        report::met(rows.iter().map(|row| row.verdict(GOAL)))
    );
    let default = || directory.join("ring.json");
    let file = arguments.common.json.clone().unwrap_or_else(default);
    let documents: Vec<Value> = rows.iter().map(document).collect();
    let document = report::envelope("bench ring", &conditions, arguments.rounds, &documents);
    report::write(&file, &document)?;
    println!("rows: {}", file.display());
    let met = !arguments.goals.check || rows.iter().all(Row::is_met);
    Ok(met && (!arguments.goals.check_half || rows.iter().all(Row::is_half_met)))
}

fn print_row(row: &Row) {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let interval = row.ratio.map_or(String::new(), |ratio| {
        format!("{:.2} .. {:.2}", ratio.low, ratio.high)
    });
    let verdict = row.verdict(GOAL).map_or("", Verdict::name);
    let mut line = format!(
        "{:<20} {:>5} {:>9} {:>8.2}  {:<10} {:>8} {:>6} {:>15} {:>5} {verdict}",
        row.work.row(),
        row.work.burst,
        row.work.producers,
        row.ours_ns,
        row.peer,
        figure(row.peer_ns),
        figure(row.ratio.map(|ratio| ratio.median)),
        interval,
        figure(row.peer_ns.and(report::goal(Some(GOAL)))),
    );
    if let Some(missing) = &row.missing {
        line.push_str(&format!("  {missing}"));
    }
    println!("{}", line.trim_end());
}

fn document(row: &Row) -> Value {
    json!({
        "row": row.work.row(),
        "burst": row.work.burst,
        "producers": row.work.producers,
        "peer": (!row.peer.is_empty()).then_some(&row.peer),
        "ours_ns": rounded(Some(row.ours_ns)),
        "peer_ns": rounded(row.peer_ns),
        "ratio": rounded(row.ratio.map(|ratio| ratio.median)),
        "ratio_low": rounded(row.ratio.map(|ratio| ratio.low)),
        "ratio_high": rounded(row.ratio.map(|ratio| ratio.high)),
        "goal": rounded(row.peer_ns.and(report::goal(Some(GOAL)))),
        "missing": row.missing,
        "verdict": row.verdict(GOAL).map(Verdict::name),
    })
}

/// `bench` in the target directory: this executable is in `release/deps` of it.
fn output_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable.ancestors().nth(3);
    target.unwrap_or(Path::new("target")).join("bench")
}
