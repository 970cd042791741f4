//! Instructions for each packet: packtrain's driver of the 82574L beside that of a guest's kernel.
//!
//! QEMU counts what a guest executes, exactly (`-icount`). A figure is the difference between a run
//! with many packets and one with few, so what a process and its start cost is not in it. All
//! contestants run in one guest, on equal cards. With the counts QEMU's trace says how often a
//! driver accessed the registers of a card.
//!
//! `cargo bench -p packtrain-cli --bench cards -- --help` lists the options.

mod bed;
mod paths;
mod report;

use bed::{Bed, Error};
use clap::Parser;
use packtrain_lab::guest::{self, Kernel};
use packtrain_lab::{rootless, tap};
use packtrain_measure::claim::{compared, save};
use packtrain_measure::{Claim, options};
use paths::{Contestant, Path};
use report::Row;
use std::path::PathBuf;
use std::process::ExitCode;

/// Packets of a short run and of a long one.
const PACKETS: [u64; 2] = [10_000, 50_000];
/// The same while accesses are counted, which is slow.
const TRACED: [u64; 2] = [5_000, 25_000];

/// The options.
#[derive(Debug, clap::Parser)]
pub struct Arguments {
    /// Rounds of each path, 1 to 1000 [with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    #[arg(default_value_t = 5, default_value_if("quick", "true", "1"))]
    rounds: u16,
    /// Those of every bench.
    #[command(flatten)]
    common: options::Common,
    /// Paths whose names contain NAME; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The IOMMU also translates what the kernel's own drivers map, as Debian has it; without, the
    /// kernel saves that work, and packtrain, which maps once, does not notice
    #[arg(long)]
    translated: bool,
    /// Do not count accesses to registers
    #[arg(long)]
    no_accesses: bool,
    /// Exit with 1 if a goal is not reproduced or a peer is missing
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    if std::env::args()
        .nth(1)
        .is_some_and(|first| first == bed::AWAIT)
    {
        return options::status("cards", bed::await_the_last_frame().map(|()| true));
    }
    // The first thing, since it needs a process with one thread.
    let entered = rootless::enter_if_needed();
    let arguments = Arguments::parse();
    let kernel = entered
        .map_err(|missing| missing.to_string())
        .and_then(|_| tap::available().map_err(|missing| missing.to_string()))
        .and_then(|()| kernel().map_err(|error| error.to_string()));
    let kernel = match kernel {
        Ok(kernel) => kernel,
        Err(missing) => {
            println!("SKIP: cards: {missing}");
            return match arguments.check {
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            };
        }
    };
    let met = run(&arguments, kernel).map(|met| met || !arguments.check);
    options::status("cards", met)
}

/// The kernel for guests: of the tests, or where `packtrain guest --fetch` has put it.
fn kernel() -> Result<Kernel, packtrain_lab::ToolError> {
    guest::need_programs()?;
    let tests = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest"));
    let is_given = std::env::var_os(guest::FOLDER_VARIABLE).is_some();
    match !is_given && tests.join("vmlinuz").exists() {
        true => Kernel::open(tests),
        false => Kernel::open(Kernel::folder()?),
    }
}

/// Runs everything; says whether all goals were reproduced.
fn run(arguments: &Arguments, kernel: Kernel) -> Result<bool, Error> {
    let conditions = report::conditions(arguments);
    conditions.print();
    let log = std::env::temp_dir().join(format!("packtrain-cards.{}", std::process::id()));
    let bed = Bed::new(kernel, arguments.translated, &log)?;
    let (mut rows, mut claims, mut medians) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths::all(&bed)? {
        let is_wanted = |name: &String| path.name.contains(name.as_str());
        if !arguments.only.is_empty() && !arguments.only.iter().any(is_wanted) {
            continue;
        }
        let measured = measure(arguments, &bed, &path)?;
        medians.extend(report::medians(&path, &measured));
        claims.extend(report::judge(&path, &measured));
        rows.extend(measured);
    }
    if log.exists() {
        std::fs::remove_file(&log)?;
    }
    let faults = bed.guest.iommu_faults()?;
    if !faults.is_empty() {
        return Err(format!("the IOMMU stopped accesses of a card: {faults:?}").into());
    }
    let met = claims.iter().filter(|claim| claim.is_met()).count();
    println!("{met} of {} goals reproduced", claims.len());
    if let Some(file) = &arguments.common.json {
        let rounds = arguments.rounds.into();
        let document = compared("cards", &conditions, rounds, &rows, medians, &claims);
        save(file, &document)?;
    }
    Ok(claims.iter().all(Claim::is_met))
}

/// All rounds of one path.
fn measure(arguments: &Arguments, bed: &Bed, path: &Path) -> Result<Vec<Row>, Error> {
    println!("{}: {}", path.name, path.about);
    let mut rows = Vec::new();
    for contestant in &path.contestants {
        if !contestant.setup.is_empty() {
            bed.guest.check(&contestant.setup)?;
        }
        let rounds = each(arguments, bed, path, contestant)?;
        if !contestant.cleanup.is_empty() {
            bed.guest.check(&contestant.cleanup)?;
        }
        rows.extend(rounds);
    }
    Ok(rows)
}

/// All rounds of one contestant.
fn each(
    arguments: &Arguments,
    bed: &Bed,
    path: &Path,
    contestant: &Contestant,
) -> Result<Vec<Row>, Error> {
    let accesses = match arguments.no_accesses || contestant.is_share {
        true => None,
        false => Some(bed.accesses(&contestant.work, TRACED)?),
    };
    let transmitted = bed.transmitted(&contestant.work, PACKETS[0])?;
    let mut rows = Vec::new();
    for round in 0..arguments.rounds.into() {
        let row = Row {
            path: path.name,
            contestant: contestant.name,
            round,
            instructions: bed.instructions(&contestant.work, PACKETS)?,
            reads: accesses.map(|[reads, _]| reads),
            writes: accesses.map(|[_, writes]| writes),
            segments: transmitted.map(|packets| PACKETS[0] as f64 / packets),
        };
        report::print_row(&row);
        rows.push(row);
    }
    Ok(rows)
}
